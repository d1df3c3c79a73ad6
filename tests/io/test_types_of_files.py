"""Files whose columns have different types of numbers: each value is that of its own file."""

import duckdb
import numpy as np
import pytest

from rrjax.io import Source, count_reports
from rrjax.io.database import connect
from rrjax.io.rounds import read_users
from rrjax.io.rows import read_covariate
from rrjax.io.scan import selected

PAIRS = {
    "of other scales": ("1::DECIMAL(38,0)", "0.40::DECIMAL(10,2)", ["0.4", "1"]),
    "of more digits": ("1.5::DECIMAL(38,2)", "0.123456::DECIMAL(38,10)", ["0.123456", "1.5"]),
    "of equal values": ("1.50::DECIMAL(10,2)", "1.5000::DECIMAL(12,4)", ["1.5000"]),
    "of equal values without a joint type": ("1.50::DECIMAL(38,2)", "1.5::DECIMAL(38,10)", ["1.5"]),
    "with floats": ("123456789::DECIMAL(12,0)", "0.5::FLOAT", ["0.5", "123456789"]),
    "of equal values with floats": ("1.50::DECIMAL(10,2)", "1.5::DOUBLE", ["1.5"]),
    "too long for floats": ("12345678901234567.8::DECIMAL(20,1)", "0.5::DOUBLE", ["0.5", "12345678901234567.8"]),
    "of two floats": ("0.5::FLOAT", "0.1::DOUBLE", ["0.1", "0.5"]),
    "of large integers": ("70000::UHUGEINT", "1::TINYINT", ["1", "70000"]),
    "of integers": ("1::UBIGINT", "-2::BIGINT", ["-2", "1"]),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("order", [1, -1])
def test_numbers_of_other_types_are_not_rounded(tmp_path, pair, order):
    *values, labels = PAIRS[pair]
    files = []
    for place, value in enumerate(values):
        files.append(str(tmp_path / f"{place}.parquet"))
        duckdb.sql(f"SELECT {value} AS x, 'a' AS y").write_parquet(files[-1])
    source = Source(files[::order], column="x")
    domain = None if len(labels) == 2 else [*labels, "other"]
    counted = count_reports(source, domain)
    assert sorted(map(str, counted.domain.labels())) == (domain or labels)
    assert counted.counts.tolist() == ([1, 1] if domain is None else [2, 0])
    if len(labels) == 2:
        assert sorted(read_users(source, "x").tolist()) == labels
    numbers = sorted([float(each) for each in labels] * (3 - len(labels)))
    np.testing.assert_allclose(sorted(read_covariate(source).values), numbers)
    with connect() as connection:
        kept = connection.execute(selected(connection, source, ["x"])).fetchall()
    assert sorted(float(value) for (value,) in kept) == numbers


@pytest.mark.parametrize("other", ["1::INTEGER", "1::FLOAT", "1.0::DECIMAL(4,1)", "1::DECIMAL(38,0)"])
@pytest.mark.parametrize("writer", ["duckdb", "arrow"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_missing_number_is_missing_beside_numbers_of_another_type(tmp_path, writer, other, sign):
    """Arrow writes statistics without NaN, by which DuckDB says that there is none. That of 0/0 has a sign."""
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    if writer == "arrow":
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(
            pytest.importorskip("pyarrow").table({"x": np.copysign([np.nan, 2.0], [sign, 1])}), files[0]
        )
    else:
        duckdb.sql(f"SELECT unnest([{sign} * 'nan'::DOUBLE, 2.0]) AS x").write_parquet(files[0])
    duckdb.sql(f"SELECT {other} AS x").write_parquet(files[1])
    assert count_reports(Source(files[0], column="x"), "1:2").num_missing == 1
    counted = count_reports(Source(files, column="x"), "1:2")
    assert (counted.counts.tolist(), counted.num_missing) == ([1, 1], 1)
    assert np.isnan(read_covariate(Source(files, column="x")).values).tolist() == [True, False, False]
