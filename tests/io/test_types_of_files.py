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
    "of other scales": ("1::DECIMAL(38,0)", "0.4::DECIMAL(10,2)", ["0.40", "1"]),
    "of more digits": ("1::DECIMAL(38,2)", "0.123456::DECIMAL(38,10)", ["0.1234560000", "1"]),
    "with floats": ("123456789::DECIMAL(12,0)", "0.5::FLOAT", ["0.5", "123456789"]),
    "of two floats": ("0.1::FLOAT", "0.25::DOUBLE", ["0.1", "0.25"]),
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
    assert sorted(map(str, count_reports(source).domain.labels())) == labels
    assert sorted(read_users(source, "x").tolist()) == labels
    np.testing.assert_allclose(sorted(read_covariate(source).values), sorted(map(float, labels)))
    with connect() as connection:
        kept = connection.execute(selected(connection, source, ["x"])).fetchall()
    assert sorted(float(value) for (value,) in kept) == sorted(map(float, labels))


def test_a_missing_number_is_missing_beside_numbers_of_another_type(tmp_path):
    duckdb.sql("SELECT unnest(['nan'::DOUBLE, 2.0]) AS x").write_parquet(str(tmp_path / "0.parquet"))
    duckdb.sql("SELECT 1::INTEGER AS x").write_parquet(str(tmp_path / "1.parquet"))
    counted = count_reports(Source([str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")], column="x"), "1:2")
    assert (counted.counts.tolist(), counted.num_missing) == ([1, 1], 1)
