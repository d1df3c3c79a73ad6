"""Files whose columns have different types of numbers: each value is that of its own file."""

import itertools
from decimal import Decimal, localcontext

import duckdb
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

from rrjax.io import DataError, Source, count_frame, count_reports, read_values
from rrjax.io.database import connect, is_parquet, spelling
from rrjax.io.labels import label_of
from rrjax.io.rounds import read_users
from rrjax.io.rows import read_cells, read_covariate
from rrjax.io.scan import selected

PAIRS = {
    "of other scales": ("1::DECIMAL(38,0)", "0.40::DECIMAL(10,2)", ["0.4", "1"]),
    "of more digits": ("1.5::DECIMAL(38,2)", "0.123456::DECIMAL(38,10)", ["0.123456", "1.5"]),
    "of equal values in wide types": ("1.50::DECIMAL(38,2)", "1.5::DECIMAL(38,10)", ["1.5000000000"]),
    "of wide ones with floats": ("1.5::DECIMAL(18,2)", "1.5::DOUBLE", ["1.5"]),
    "of many digits": ("1::DECIMAL(38,23)", "0.5::DECIMAL(30,25)", ["0.5", "1"]),
    "below one": ("0.50::DECIMAL(2,2)", "0.25::DECIMAL(3,3)", ["0.25", "0.5"]),
    "of equal values": ("1.50::DECIMAL(10,2)", "1.5000::DECIMAL(12,4)", ["1.5000"]),
    "of large integers with decimals": (f"{2**60 + 1}::BIGINT", "5.5::DECIMAL(6,2)", [str(2**60 + 1), "5.5"]),
    "with floats": ("123456789::DECIMAL(12,0)", "0.5::FLOAT", ["0.5", "123456789"]),
    "of equal values with floats": ("1.50::DECIMAL(10,2)", "1.5::DOUBLE", ["1.5"]),
    "of two floats": ("0.5::FLOAT", "0.1::DOUBLE", ["0.1", "0.5"]),
    "with integers": ("4::INTEGER", "0.1::DOUBLE", ["0.1", "4"]),
    "of equal values with integers": ("7::INTEGER", "7.00::DECIMAL(4,2)", ["7"]),
    "with large integers": (f"{2**53 - 1}::BIGINT", "0.5::DECIMAL(9,1)", ["0.5", f"{2**53 - 1}"]),
    "of whole decimals with floats": ("12345678901234567::DECIMAL(38,0)", "0.5::DOUBLE", ["0.5", "12345678901234567"]),
    "of large integers": ("70000::UHUGEINT", "1::TINYINT", ["1", "70000"]),
    "of integers": ("1::UBIGINT", "-2::BIGINT", ["-2", "1"]),
}


@pytest.mark.long
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


ALIKE = {
    "0.1": ["0.1::FLOAT", "0.1::DOUBLE", "0.10::DECIMAL(5,2)", "0.100::DECIMAL(12,3)"],
    "7": ["7::UINTEGER", "7::FLOAT", "7.00::DECIMAL(4,2)", "7::DECIMAL(4,0)"],
    "7 of texts": ["7::TINYINT", "7::UBIGINT", "'7'", "7::DECIMAL(38,0)"],
    "134217728": ["134217728::FLOAT", "134217728::DOUBLE", "134217728::INTEGER", "134217728::UBIGINT"],
}


@pytest.mark.long
@pytest.mark.parametrize("label", ALIKE)
def test_one_value_of_several_types_is_one_level(tmp_path, label):
    files = [str(tmp_path / f"{place}.parquet") for place in range(len(ALIKE[label]))]
    with connect() as connection:
        for value, file in zip(ALIKE[label], files, strict=True):
            connection.sql(f"SELECT {value} AS x, {file!r} AS y").write_parquet(file)
    for group in (*itertools.permutations(files, 2), files):
        cells = [cell for (cell,) in read_cells(Source(group, column="x"), ["x"])]
        assert len(cells) == len(group)
        assert len({spelling(cell) for cell in cells}) == 1
        assert float(cells[0]) == float(label.split()[0])


TEXTS = [
    (["'1.10'", "'1.1'", "'007'"], "12::BIGINT"),
    (["TIMESTAMP '2026-01-01'"], "TIMESTAMP_NS '2026-01-02'"),
    (["TIMESTAMP_NS '2026-01-01 10:00:00.5'"], "TIMESTAMP_MS '2026-01-02'"),
    (["TIMESTAMPTZ '2026-01-01 10:00:00+00'"], "TIMESTAMPTZ_NS '2026-01-02'"),
]


@pytest.mark.parametrize(("values", "other"), TEXTS)
def test_texts_stay_as_they_are_beside_other_types(tmp_path, values, other):
    """So a token of missing values, a label of a domain and a kept text are those of each file alone."""
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    duckdb.sql(f"SELECT unnest([{', '.join(values)}]) AS x").write_parquet(files[0])
    duckdb.sql(f"SELECT {other} AS x").write_parquet(files[1])
    alone = [cell for file in files for cell in read_cells(Source(file, column="x"), ["x"])]
    assert read_cells(Source(files, column="x"), ["x"]) == alone
    with connect() as connection:
        assert connection.execute(selected(connection, Source(files), ["x"])).fetchall() == alone
    labels = [cell for (cell,) in alone]
    assert count_reports(Source(files, column="x"), labels).counts.tolist() == [1] * len(labels)
    first = Source(files, column="x", missing=(labels[0],))
    assert count_reports(first, [*labels[1:], "other"]).num_missing == 1


def test_a_missing_value_that_is_an_answer_is_told_by_its_number(tmp_path):
    file = str(tmp_path / "0.parquet")
    duckdb.sql("SELECT unnest([0.1, 0.2])::DECIMAL(5,2) AS x").write_parquet(file)
    for token in ("0.1", "0.10", "1e-1", ".1"):
        with refused("missing", error=DataError):
            count_reports(Source(file, column="x", missing=(token,)), ["0.10", "0.20"])


TYPES = [["DECIMAL(5,2)"], ["DECIMAL(5,2)", "DECIMAL(6,3)"], ["DOUBLE", "FLOAT"], ["DOUBLE"], ["DECIMAL(2,2)"]]


@pytest.mark.parametrize("types", TYPES)
def test_a_category_that_is_a_number_is_found_by_its_value(tmp_path, types):
    files = [str(tmp_path / f"{place}.parquet") for place in range(len(types))]
    for kind, file in zip(types, files, strict=True):
        duckdb.sql(f"SELECT unnest([0.1, 0.2, 0.1])::{kind} AS x, {file!r} AS y").write_parquet(file)
    source = Source(files, column="x")
    assert {cell for (cell,) in read_cells(Source(files, column="y"), ["x"])} == {"0.1", "0.2"}  # one name of a level
    for domain in (["0.10", "0.20"], ["0.1", "0.2"], ["0.1", "0.20"]):
        assert count_reports(source, domain).counts.tolist() == [2 * len(types), len(types)]
        assert read_values(source, domain).indices.tolist() == [0, 1, 0] * len(types)
    with refused(error=DataError, column="x"):
        count_reports(source, ["0.1", "0.10", "0.2"])
    duckdb.sql("SELECT unnest(['0.1', '0.10']) AS x").write_parquet(files[0])  # as texts they are two
    assert count_reports(Source(files[:1], column="x"), ["0.1", "0.10"]).counts.tolist() == [1, 1]


@pytest.mark.parametrize("types", [["BIGINT", "UBIGINT"], ["UBIGINT", "BIGINT"]])
@pytest.mark.parametrize("small", ["TINYINT", "INTEGER"])
def test_large_integers_beside_unsigned_ones_are_kept_exactly(tmp_path, types, small):
    numbers = [2**60 + 1, 2**60 + 3, 5]
    files = [str(tmp_path / f"{place}.parquet") for place in range(3)]
    for kind, number, file in zip([*types, small], numbers, files, strict=True):
        duckdb.sql(f"SELECT {number}::{kind} AS x").write_parquet(file)
    kept = str(tmp_path / "kept.parquet")
    with connect() as connection:
        connection.sql(selected(connection, Source(files), ["x"])).write_parquet(kept)
    assert [int(each) for (each,) in duckdb.sql(f"SELECT k0 FROM '{kept}'").fetchall()] == numbers
    assert sorted(read_users(Source(kept), "k0").tolist()) == sorted(map(str, numbers))


TWO_WAYS = [
    ("'1.10'", "1.1::DOUBLE"),  # two versions, or two users
    ("'0.10'", "0.10::DECIMAL(5,2)"),
    ("'A+00'", "DATE '2026-01-01'"),
    ("TIMESTAMP '2026-01-01'", "DATE '2026-01-01'"),
    ("TIMESTAMP '2026-01-01'", "TIMESTAMPTZ '2026-01-01 00:00:00+00'"),
    ("'true'", "true"),
    ("1234567890.50::DECIMAL(38,2)", "1.5::DECIMAL(38,30)"),
    ("12345678901234567.8::DECIMAL(20,1)", "0.5::DOUBLE"),
    (f"{2**60}::BIGINT", f"{2**60}::DOUBLE"),  # whose text is 1.152921504606847e+18
    (f"{2**60}::DECIMAL(20,0)", f"{2**61}::FLOAT"),
    ("'a'", "[1, 2]"),
    (f"[{2**53 + 1}]::BIGINT[]", "[0.5]::DOUBLE[]"),  # joined as doubles
    (f"[{2**64 - 1}]::UBIGINT[]", "[-3]::BIGINT[]"),  # as HUGEINT, which Parquet writes as doubles
    ("[1.25]::DECIMAL(38,2)[]", "[0.123456]::DECIMAL(38,6)[]"),
    ("[0.1]::FLOAT[]", "['t']"),
    ("{'p': 1}", "{'r': 1}"),
    ("{'INTEGER': 'a'}", "{'BIGINT': 'a'}"),
]


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), TWO_WAYS)
def test_types_in_which_one_value_has_two_texts_are_refused(tmp_path, first, second):
    """Each of these joined as texts made two categories, clusters, strata or users of one, or lost digits."""
    files = [str(tmp_path / f"{place}.parquet") for place in range(3)]
    with connect() as connection:
        for value, file in zip([first, second, "NULL::DOUBLE"], files, strict=True):
            connection.sql(f"SELECT {value} AS x, {file!r} AS y").write_parquet(file)
        for group in (files[:2], files[1::-1], [files[2], *files[:2]], [files[0], files[2], files[1]]):
            with refused(error=DataError, column="x"):
                count_reports(Source(group, column="x"))
            with refused(error=DataError, column="x"):
                read_cells(Source(group, column="y"), ["x"])
            with refused(error=DataError, column="x"):
                selected(connection, Source(group), ["x"])


@pytest.mark.parametrize("order", [1, -1])
def test_numbers_of_a_data_frame_with_and_without_a_missing_one_are_numbers(tmp_path, order):
    """pandas has int64 for the one and float64 for the other."""
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    duckdb.sql("SELECT unnest([3, 99, 4])::BIGINT AS x").write_parquet(files[0])
    duckdb.sql("SELECT unnest([3, 'nan'::DOUBLE, 99]) AS x").write_parquet(files[1])
    for token in ("99", "99.0"):
        counted = count_reports(Source(files[::order], column="x", missing=(token,)), "3:4")
        assert (counted.counts.tolist(), counted.num_missing) == ([2, 1], 3)


@pytest.mark.long
@pytest.mark.parametrize("empty", ["NULL::DOUBLE", "NULL::VARCHAR", "'nan'::FLOAT", "''", "NULL::DATE", "[NULL][2]"])
@pytest.mark.parametrize(
    ("value", "order"), [("'1.10'", 1), ("0.10::DECIMAL(18,2)", -1), ("DATE '2026-01-01'", 1), ("3::BIGINT", -1)]
)
def test_a_file_without_values_says_nothing_of_the_type(tmp_path, empty, value, order):
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    duckdb.sql(f"SELECT {empty} AS x, 'a' AS y").write_parquet(files[0])
    duckdb.sql(f"SELECT {value} AS x, 'a' AS y").write_parquet(files[1])
    ((alone,),) = read_cells(Source(files[1], column="y"), ["x"])
    cells = read_cells(Source(files[::order], column="y"), ["x"])
    assert sorted("" if cell == "nan" else cell for (cell,) in cells) == ["", alone]
    counted = count_reports(Source(files, column="x"), [alone, "other"])
    assert (counted.counts.tolist(), counted.num_missing) == ([1, 0], 1)


@pytest.mark.long
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


def test_a_column_without_values_in_several_types_is_kept_as_text(tmp_path):
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    for file, value in zip(files, ("NULL::DOUBLE", "NULL::VARCHAR"), strict=True):
        duckdb.sql(f"SELECT {value} AS x, {file!r} AS y").write_parquet(file)
    with connect() as connection:
        assert connection.sql(selected(connection, Source(files), ["x"])).types == ["VARCHAR"]


def test_lists_of_integers_of_two_types_are_kept(tmp_path):
    files = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    for file, value in zip(files, ("[1]::UINTEGER[]", "[2]::BIGINT[]"), strict=True):
        duckdb.sql(f"SELECT {value} AS x").write_parquet(file)
    with connect() as connection:
        assert connection.execute(selected(connection, Source(files), ["x"])).fetchall() == [([1],), ([2],)]


def test_a_text_that_ends_as_parquet_does_is_a_text(tmp_path):
    files = [tmp_path / "0.csv", tmp_path / "1.csv"]
    for file in files:
        file.write_text("x\na\nPAR1")
        assert not is_parquet(file)
    with refused(error=DataError):  # one is a copy
        count_reports(Source([*map(str, files)], column="x"))


@pytest.mark.parametrize("size", [0, 3, 8, 11])
def test_short_files_are_no_parquet(tmp_path, size):
    (tmp_path / "0").write_bytes((b"\0\0\0\0PAR1" * 2)[-size:] if size else b"")
    assert not is_parquet(tmp_path / "0")


@pytest.mark.parametrize("scale", [22, 23, 37])
def test_whole_numbers_of_many_decimals_are_read(tmp_path, scale):
    file = str(tmp_path / "0.parquet")
    duckdb.sql(f"SELECT unnest([1, 0.5, 1])::DECIMAL(38,{scale}) AS x").write_parquet(file)
    assert count_reports(Source(file, column="x"), ["0.5", "1"]).counts.tolist() == [1, 2]


def test_decimals_of_a_frame_have_the_labels_of_those_of_a_file(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    frame = arrow.table({"x": [Decimal(each) for each in ("0.10", "1.00", "0.10", "2.50")]})
    file = str(tmp_path / "0.parquet")
    pytest.importorskip("pyarrow.parquet").write_table(frame, file)
    labels = [str(each) for each in count_reports(Source(file, column="x")).domain.labels()]
    assert labels == ["0.1", "1", "2.5"]
    assert count_frame(frame, labels, column="x").counts.tolist() == [2, 1, 1]


def test_labels_of_a_column_of_decimals_may_be_written_without_a_zero(tmp_path):
    file = str(tmp_path / "0.parquet")
    duckdb.sql("SELECT unnest([.5, .1, .5, -.5])::DECIMAL(2,2) AS x").write_parquet(file)
    assert count_reports(Source(file, column="x"), [".5", ".1", "-.50"]).counts.tolist() == [2, 1, 1]


@pytest.mark.parametrize("place", ["id || chr(0)", "chr(0) || id", "'a' || chr(0) || chr(0) || 'b'"])
def test_zero_bytes_are_no_part_of_an_id(tmp_path, place):
    """NumPy's texts have none at their end, so a user was two in a memo and one in every count."""
    file = str(tmp_path / "0.parquet")
    duckdb.sql(f"SELECT {place} AS u FROM (SELECT 'ab' AS id)").write_parquet(file)
    assert read_users(Source(file), "u").tolist() == ["ab"]


def test_decimals_keep_their_digits_in_every_context():
    with localcontext() as context:
        context.prec = 3
        texts = ("12.345", "12.3410", "0.50", "1.00", "100", "123456789012345678901.00")
        found = [label_of(Decimal(each)) for each in texts]
    assert found == ["12.345", "12.341", "0.5", 1, 100, "123456789012345678901"]


def test_labels_of_short_floats_and_of_no_number():
    """0.1 in float32 is 0.1, as in a column of this type; decimals that are no number compare with nothing."""
    assert [label_of(of(0.1)) for of in (np.float16, np.float32, np.float64, jnp.float32)] == ["0.1"] * 4
    assert [label_of(of(3)) for of in (np.float32, jnp.float32, np.int64)] == [3, 3, 3]
    assert [label_of(each) for each in (np.float32("nan"), Decimal("NaN"), Decimal("sNaN"))] == ["", "", ""]
