"""Bad input: every message names the file and says what to do."""

import dataclasses
import gzip
import subprocess
import sys

import duckdb
import numpy as np
import pytest
from written import written

from rrjax.io import (
    DataError,
    Source,
    count_reports,
    read_counts,
    read_domain,
    read_metadata,
    read_values,
    write_reports,
)
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.numbers import Bins, read_bins
from rrjax.io.rows import count_pairs, read_pairs

pytestmark = pytest.mark.once  # nothing here depends on the precision


def refused(call, file=None, **attributes):
    """The message of a `DataError` with these attributes."""
    with pytest.raises(DataError) as caught:
        call()
    expected = attributes if file is None else {"file": str(file), **attributes}
    assert {name: getattr(caught.value, name) for name in expected} == expected
    message = str(caught.value)
    # A person reads this: where it is, no SQL, no type names of the engine.
    assert str(file or "") in message
    for word in ("SELECT", "read_csv", "LINE 1", "Exception", "VARCHAR", "Error:"):
        assert word not in message
    return message


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.dat", "a.jsonl", "a.csv.gz"])
def test_empty_missing_and_folder(tmp_path, name):
    path = tmp_path / name
    refused(lambda: count_reports(Source(path)), path)
    path.write_bytes(b"")
    refused(lambda: count_reports(Source(path)), path)
    refused(lambda: count_reports(Source(tmp_path)), tmp_path)
    refused(lambda: count_reports(Source(tmp_path / "*.x")), tmp_path / "*.x")


@pytest.mark.parametrize("name", ["a.csv", "a.dat", "a.jsonl"])
def test_compressed_nothing(tmp_path, name):
    path = written(tmp_path / f"{name}.gz", gzip.compress(b""))
    refused(lambda: count_reports(Source(path)), path)


def test_no_rows(tmp_path):
    path = written(tmp_path / "a.csv", "a,b\n")
    for read in (count_reports, read_values):
        refused(lambda read=read: read(Source(path, column="a")), path, column="a")
        domain = Domain.range(0, 1)
        refused(lambda read=read: read(Source(path, column="a"), domain), path, column="a")  # noqa: B023
    path.write_text("a,b\n,1\n?,2\n")
    source = Source(path, column="a", missing=("?",))
    refused(lambda: count_reports(source), path, column="a")
    refused(lambda: read_values(source, Domain.range(0, 1)), path, column="a")


@pytest.mark.long
@pytest.mark.parametrize(
    ("column", "token", "domain"),
    [("a", "x", Domain.of(["x", "y"])), ("b", "1", Domain.range(1, 2)), ("c", "1.0", Domain.range(1, 2))],
)
def test_a_category_is_not_missing(tmp_path, column, token, domain):
    path = written(tmp_path / "a.csv", "a,b,c,n\nx,1,1.0,1\ny,2,2,1\nx,1,1,1\n")
    source, other = Source(path, column=column, missing=(token,)), "b" if column == "a" else "a"
    for read in (
        lambda: count_reports(source, domain),
        lambda: read_values(source, domain),
        lambda: read_counts(source, "n", domain),
        lambda: count_pairs(source, (column, other), (domain, None)),
        lambda: count_pairs(source, (other, column), (None, domain)),
        lambda: read_pairs(source, (other, column), (None, domain)),
    ):
        refused(read, path, column=column, argument="missing")
    # What is no category, or not in the column, may be named.
    assert count_reports(Source(path, column="a", missing=("x",)), Domain.of(["y", "z"])).num_missing == 2
    assert read_values(Source(path, column="a", missing=("z",)), Domain.of(["x", "y", "z"])).num_missing == 0


def test_a_number_of_the_range_is_not_missing(tmp_path):
    path = written(tmp_path / "a.csv", "a\n0\n7.5\n99\n")
    for token in ("0", "7.5"):
        refused(lambda: read_bins(Source(path, missing=(token,)), Bins(0, 10, 2)), path, argument="missing")  # noqa: B023
    assert read_bins(Source(path, missing=("99", "-", "5")), Bins(0, 10, 2)).num_missing == 1


def test_missing_column(tmp_path):
    path = written(tmp_path / "a.csv", "age,country\n1,a\n")
    source = Source(path, column="contry")
    refused(lambda: count_reports(source), path, column="contry")
    assert "mean 'country'" in refused(lambda: count_reports(source))
    refused(lambda: count_reports(Source(path)), path, argument="column")
    refused(lambda: count_reports(Source(path, column="2")), path, column="2")
    for suffix, text in (("jsonl", '{"age": 1, "country": "a"}\n'), ("tsv", "age\tcountry\n1\ta\n")):
        other = written(path.with_suffix("." + suffix), text)
        refused(lambda other=other: count_reports(Source(other, column="x")), other, column="x")
    other = path.with_suffix(".parquet")
    duckdb.execute(f"COPY (SELECT 1 AS age, 'a' AS country) TO '{other}'")
    refused(lambda: count_reports(Source(other, column="Age")), other, column="Age")


def test_column_missing_in_one_of_many_files(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("c,b\n1,2\n")
    source = Source(tmp_path / "*.csv", column="a")
    refused(lambda: count_reports(source), tmp_path / "2.csv", column="a")


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("read", [count_reports, read_values])
def test_value_outside_the_domain(tmp_path, read, listed):
    (tmp_path / "1.csv").write_text("x,a\n1,1\n1,2\n")
    (tmp_path / "2.csv").write_text("x,a\n1,1\n1,?\n1,seven\n1,seven\n1,\n")
    domain = Domain.of("012") if listed else Domain.range(0, 2)
    # Reports are randomized; what is about to be is not repeated, because logs keep messages.
    value = "?" if read is count_reports else None
    source = Source(tmp_path / "?.csv", column="a")
    message = refused(lambda: read(source, domain), tmp_path / "2.csv", column="a", row=2, value=value)
    assert ("seven" in message) == (read is count_reports)
    for show in (True, False):
        chosen = dataclasses.replace(source, show_values=show)
        message = refused(lambda: read(chosen, domain), row=2, value="?" if show else None)  # noqa: B023
        assert ("seven" in message) == show


def test_value_outside_the_domain_of_parquet_and_json(tmp_path):
    path = tmp_path / "a.parquet"
    duckdb.execute(f"COPY (SELECT range AS a FROM range(100)) TO '{path}'")
    source = Source(path)
    domain = Domain.range(0, 98)
    refused(lambda: count_reports(source, domain), path, row=100, value="99")
    duckdb.execute(f"COPY (SELECT unnest([1.0, 2.5, 'nan'::DOUBLE, 'inf'::DOUBLE]) AS a) TO '{path}'")
    refused(lambda: count_reports(source, Domain.range(0, 9)), path, row=2, value="2.5")
    path = written(tmp_path / "a.jsonl", '{"a": 1}\n{"a": [1, 2]}\n')
    refused(lambda: count_reports(Source(path), Domain.range(0, 9)), path, row=2, column="a")


def test_nan_in_a_column_of_numbers_is_missing(tmp_path):
    # Data frames write a missing number so. It is counted, and never becomes a category.
    path = tmp_path / "a.parquet"
    duckdb.execute(f"COPY (SELECT unnest([1.0, 2.0, 'nan'::DOUBLE, NULL, 2.0]) AS a) TO '{path}'")
    for domain in (None, Domain.range(1, 2)):
        counted = count_reports(Source(path), domain)
        assert counted.counts.tolist() == [1, 2]
        assert counted.missing == {"": 1, "nan": 1}


def test_fewer_than_two_categories(tmp_path):
    path = written(tmp_path / "a.csv", "a\nx\nx\n")
    refused(lambda: count_reports(Source(path)), path, argument="domain")
    refused(lambda: Domain.range(0, 0), argument="domain")
    assert "'x'" not in refused(lambda: read_values(path), path, column="a", value=None)


@pytest.mark.parametrize("bad", ["-1", "2.5", "nan", "many", "", "1e3"])
def test_bad_counts(tmp_path, bad):
    path = written(tmp_path / "a.csv", f"label,n\nx,3\ny,{bad}\nz,4\n")
    refused(lambda: read_counts(Source(path), "n"), path, column="n", row=2, value=bad or None)


@pytest.mark.long
def test_counts_with_a_point_between_thousands_are_refused(tmp_path):
    """Where other counts show that the point is a decimal one, it is."""
    path = written(tmp_path / "a.csv", "label;n\nx;12.000\ny;7\nz;4.000\n")
    source = Source(path, delimiter=";")
    assert "thousand" in refused(lambda: read_counts(source, "n"), path, column="n")
    for other, number in (("0.000", 0), ("1200.000", 1200), ("7.0", 7)):
        written(tmp_path / "a.csv", f"label;n\nx;12.000\ny;{other}\n")
        assert read_counts(source, "n").counts.tolist() == [12, number]


@pytest.mark.parametrize("large", ["99999999999999999999", "9223372036854775808", "+99999999999999999999.0"])
def test_counts_that_are_too_large(tmp_path, large):
    path = written(tmp_path / "a.csv", f"label,n\nx,3\ny,{large}\n")
    message = refused(lambda: read_counts(Source(path), "n"), path, row=2, value=large)
    assert "too large" in message
    path = tmp_path / "a.parquet"
    duckdb.execute(f"COPY (SELECT unnest(['x', 'y']) l, unnest([3::DOUBLE, 1e300]) n) TO '{path}'")
    refused(lambda: read_counts(Source(path), "n"), path, row=2, value="1e+300")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.dat", "a.jsonl", "a.jsonl.gz"])
def test_utf_16_is_named(tmp_path, name, encoding):
    path = tmp_path / name
    text = {"jsonl": '{"a": 1}\n{"a": 2}\n'}.get(name.split(".")[1], "a\n1\n2\n").encode(encoding)
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    assert f"iconv -f {name} -t utf-8" in refused(lambda: count_reports(Source(path)), path)
    if path.suffix == ".csv":
        refused(lambda: read_domain(path), path)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"\x28\xb5\x2f\xfd\x04\x00", "unzstd"),
        (b"\xfd7zXZ\x00\x00", "unxz"),
        (b"BZh91AY&SY\x00", "bunzip2"),
        (b"\x04\x22\x4d\x18d@", "unlz4"),
        (b"PK\x03\x04\x14\x00", "spreadsheet"),
        (b"\xd0\xcf\x11\xe0\xa1", "Excel"),
        (b"SQLite format 3\x00", "SQLite"),
        (b"ARROW1\x00\x00", "Arrow"),
        (b"Obj\x01\x04", "Avro"),
        (b"\x89HDF\r\n", "HDF5"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.zst", "a.parquet"])
def test_other_formats_are_called_by_their_name(tmp_path, name, start, words):
    path = written(tmp_path / name, start + bytes(range(256)))
    for call in (lambda: count_reports(Source(path, format="csv")), lambda: read_domain(path)):
        message = refused(call, path)
        assert words in message
        assert "UTF" not in message


@pytest.mark.parametrize("start", ["PKI", "BZh", "CDF", "ORC", "Obj", "7z", "ARROW1"])
def test_headers_that_only_look_like_other_formats(tmp_path, start):
    path = written(tmp_path / "a.csv", f"{start},n\n1,2\n2,3\n")
    assert count_reports(Source(path, column=start)).num_rows == 2


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-32-be"])
def test_zero_bytes_are_no_text(tmp_path, encoding):
    # Without a mark, and in letters whose bytes show no pattern.
    path = written(tmp_path / "a.csv", "ж\nя\nд\n".encode(encoding))
    refused(lambda: count_reports(Source(path)), path)
    refused(lambda: read_domain(path), path)


def test_equal_names_of_columns(tmp_path):
    # Whichever is asked for, the labels or the counts, or none: nothing is guessed.
    path = written(tmp_path / "a.csv", "a,n, a,n\n1,2,3,4\n")
    for source, counts, name in (
        (Source(path), None, "a"),
        (Source(path, column="a"), None, "a"),
        (Source(path, column="a"), "n", "n"),
        (Source(path), "n", "n"),
    ):
        read = (lambda: count_reports(source)) if counts is None else (lambda: read_counts(source, counts))  # noqa: B023
        refused(read, path, column=name)


@pytest.mark.parametrize("bad", ["-1", "2.5", "'nan'::DOUBLE", "NULL", "'inf'::DOUBLE"])
def test_bad_counts_in_parquet(tmp_path, bad):
    path = tmp_path / "a.parquet"
    duckdb.execute(f"COPY (SELECT unnest(['x', 'y']) l, unnest([3::DOUBLE, {bad}]) n) TO '{path}'")
    refused(lambda: read_counts(Source(path), "n"), path, column="n", row=2)


def test_nan_among_counts_is_called_a_missing_number(tmp_path):
    path = tmp_path / "a.parquet"
    duckdb.sql("SELECT unnest(['a', 'b']) AS x, unnest([3.0::DOUBLE, 'nan']) AS n").write_parquet(str(path))
    message = refused(lambda: read_counts(Source(path, column="x"), "n"), path, column="n", row=2, value="nan")
    assert "NaN, a missing number, is not a count; 1 such row" in message


def test_labels_with_decimals_are_those_of_numbers(tmp_path):
    path = tmp_path / "a.parquet"
    duckdb.sql("SELECT unnest([1.00, 1.50]::DECIMAL(4, 2)[]) AS x").write_parquet(str(path))
    for domain in (["1.00", "1.50"], ["1", "1.50"], ["1", "1.5"]):
        assert count_reports(path, domain).counts.tolist() == [1, 1]
    refused(lambda: count_reports(path, ["2", "1.50"]), path, column="x", row=1, value="1")


def test_text_that_is_not_utf_8_in_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    duckdb.sql("SELECT unnest(['\\xE9t\\xE9'::BLOB, 'tea'::BLOB]) AS x").write_parquet(str(path))
    message = refused(lambda: count_reports(path), path)
    assert "not UTF-8" in message
    assert "damaged" not in message


def test_a_name_of_gzip_on_a_plain_file(tmp_path):
    path = written(tmp_path / "a.csv.gz", "a\n1\n2\n")
    assert "rename it without .gz" in refused(lambda: count_reports(Source(path)), path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.dat"])
def test_truncated_gzip(tmp_path, name):
    path = tmp_path / f"{name}.gz"
    line = {"a.jsonl": '{"a": %d}\n'}.get(name, "%d\n")
    text = "a\n" * name.endswith("sv") + "".join(line % (n * 7919 % 997) for n in range(50_000))
    data = gzip.compress(text.encode())
    path.write_bytes(data)
    assert count_reports(Source(path)).num_rows == 50_000
    for cut in (len(data) // 2, 15):
        path.write_bytes(data[:cut])
        for read in (count_reports, read_values):
            refused(lambda read=read: read(Source(path)), path)
    path.write_bytes(data[: len(data) // 2])
    refused(lambda: count_reports(Source(path)), path)
    path.write_bytes(b"plain text\nthat is not compressed\n")
    refused(lambda: count_reports(Source(path)), path)


def test_truncated_and_damaged_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    mechanism = MechanismRecord("rr", {"num_categories": 1000, "epsilon": 1.0})
    metadata = Metadata(mechanism, 1.0, Domain.range(0, 999), "r", False, "0")
    write_reports(path, np.random.default_rng(0).integers(1000, size=100_000), metadata)
    data = path.read_bytes()
    for damaged in (data[:-5], data[: len(data) // 2], data[:3], b"text, not parquet"):
        path.write_bytes(damaged)
        refused(lambda: count_reports(Source(path)), path)
        refused(lambda: read_metadata(path), path)
    path.write_bytes(data[:50] + bytes(len(data) // 2) + data[50 + len(data) // 2 :])
    refused(lambda: count_reports(Source(path)), path)


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("a,b\n1,2\n3\n4,5\n", {"row": 3}),
        ("a,b\n1,2\n3,4,5\n4,5\n", {"row": 3}),
        ('a,b\n1,"x\n2,y\n', {"row": 2}),
        (b"a,b\n1,2\n1,\xff\xfe\n", {}),
        (b"\xff,b\n1,2\n", {}),
        ("\na,b\n1,2\n", {"row": 1}),
        ("a,a\n1,2\n", {"column": "a"}),
        ("b,a,c,a,a\n1,2,3,4,5\n", {"column": "a"}),
        ("a;b\n1;2\n", {"row": 1, "argument": "delimiter"}),
        ('x;"b, c";a\n1;2;3\n', {"row": 1, "argument": "delimiter"}),
        ("sep=;\na;b\n1;2\n", {"row": 1, "argument": "data"}),
        ("a,b\r\n1,2\n3,4\r\n", {"row": 2}),
        ("a,\n1,2\n", {"row": 1, "argument": "header"}),
    ],
)
def test_malformed_csv(tmp_path, text, attributes):
    path = written(tmp_path / "a.csv", text.encode() if isinstance(text, str) else text)
    refused(lambda: count_reports(Source(path, column="a"), Domain.range(0, 9)), path, **attributes)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1}\n{"a": 2\n{"a": 3}\n', 2),
        ('{"a": 1}\n\n{"a": 2}\n{"a" 3}\n{"a": 4}\n', 4),
        ('{"a": 1}\n{"a": 2}\n{"a": ]\n', 3),
        ('{"a": 1}\n' * 50_000 + "oops\n" + '{"a": 1}\n' * 50_000, 50_001),
        ('{"a": 1}\n[1, 2]\n', 2),
        ('{"a": 1}\n3\n', 2),
        ('[\n{"a": 1},\n{"a" 2}]', 3),
        ('{\n"a": 1\n}\n{\n"a" 2\n}\n', 5),
        ("a,b\n1,2\n", 1),
        ('{"a": 1', 1),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_malformed_json(tmp_path, text, line, suffix):
    path = written(tmp_path / f"a.jsonl{suffix}", gzip.compress(text.encode()) if suffix else text.encode())
    for column in ("a", None):
        source = Source(path, column=column)
        refused(lambda: count_reports(source, Domain.range(0, 9)), path, row=line)  # noqa: B023


NINE = Domain.range(0, 9)


@pytest.mark.parametrize(
    ("name", "text", "call", "attributes"),
    [
        ("a.csv", "3\n4\n", lambda path: read_counts(Source(path, header=False), "1"), {"column": "1"}),
        ("a.csv", "label,n\nx,0\ny,0\n", lambda path: read_counts(Source(path), "n"), {"column": "n"}),
        (  # a short row far down is not dropped
            *("a.csv", "a,b\n" + "1,2\n" * 100_000 + "5\n" + "1,2\n" * 10),
            *(lambda path: count_reports(Source(path, column="a"), NINE), {"row": 100_002}),
        ),
        ("a.jsonl", '{"a": 1}\n{"a": 2, "a": 3}\n', lambda path: count_reports(Source(path), NINE), {"row": 2}),
        ("a.jsonl", '{"a": 1}\n\n\n{"a": 2, "a": 3}\n', lambda path: count_reports(Source(path), NINE), {"row": 4}),
        *(
            ("a.jsonl", text, lambda path: count_reports(Source(path, column="a"), NINE), {"row": row})
            for text, row in (  # keys within an object may be there twice
                ('{"a": 1}\n{"a": 1, "o": {"b": 1, "b": 2}}\nx\n', 3),
                ('{"a": 1}\n{"a": 2, "a": 3}\nx\n', 3),
                ('{"a": 1, "o": {"b": 1, "b": 2}}\n{"a": 2, "a": 3}\n', 2),
                ('{"a": 1}\n{"a": ' + "[" * 100_000 + "}\n", 2),
            )
        ),
    ],
)
def test_files_that_are_refused(tmp_path, name, text, call, attributes):
    path = written(tmp_path / name, text)
    refused(lambda: call(path), path, **attributes)


def test_names_that_are_refused(tmp_path):
    refused(lambda: count_reports(Source("-", format="csv")), "-")
    path = written(tmp_path / "a.csv", "a\n1\n2\n")
    refused(lambda: count_reports(Source(path, missing=("\0",))))


def test_bad_value_among_files_of_different_types(tmp_path):
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS a) TO '{tmp_path / '1.parquet'}'")
        connection.execute(f"COPY (SELECT unnest([2.0, 2.5]) AS a) TO '{tmp_path / '2.parquet'}'")
    source = Source(tmp_path / "*.parquet")
    refused(lambda: count_reports(source, Domain.range(0, 9)), tmp_path / "2.parquet", row=2, value="2.5")


def test_formats(tmp_path):
    path = written(tmp_path / "a.data", "a\n1\n")
    refused(lambda: count_reports(Source(path)), path)
    assert count_reports(Source(path, format="csv"), Domain.range(0, 1)).num_rows == 1
    (tmp_path / "b.csv").write_text("a\n1\n")
    (tmp_path / "b.tsv").write_text("a\n1\n")
    refused(lambda: count_reports(Source(tmp_path / "b.*")), tmp_path / "b.tsv")
    refused(lambda: Source("a.csv", format="xls"), argument="format", value="xls")  # pyright: ignore
    refused(lambda: Source("a.csv", delimiter=", "), argument="delimiter", value=", ")
    refused(lambda: Source([]), argument="paths")
    hidden = written(tmp_path / "a.csv", gzip.compress(b"a\n1\n"))
    refused(lambda: count_reports(Source(hidden)), hidden)
    sessions = written(tmp_path / "a.dat", "1 2\n")
    refused(lambda: count_reports(Source(sessions, column="a")), sessions, column="a")


def test_without_duckdb(tmp_path):
    path = written(tmp_path / "a.csv", "a\n1\n2\n")
    code = (
        "import sys; sys.modules['duckdb'] = None\n"
        "from rrjax.data.errors import MissingPackage\n"
        "from rrjax.io import Source, count_reports\n"
        f"try: count_reports(Source({str(path)!r}))\n"
        "except MissingPackage as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install '.[files]'" in done.stdout


def test_import_is_light():
    code = "import sys, rrjax.io; print('duckdb' in sys.modules, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "False"


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.dat"])
def test_names_of_folders_are_no_columns(tmp_path, name):
    """DuckDB by itself reads 3 in every row of `answer`, or of its own name for a column, in such a folder."""
    folder = tmp_path / "answer=3" / "c0=3" / "line=3"
    folder.mkdir(parents=True)
    form = {"a.parquet": "parquet", "a.csv": "csv", "a.jsonl": "json", "a.dat": "csv, HEADER false"}[name]
    rows = "SELECT i % 4 AS answer FROM range(10) AS t(i)"
    for place in (tmp_path / name, folder / name):
        duckdb.execute(f"COPY ({rows}) TO '{place}' (FORMAT {form})")
    assert count_reports(Source(folder / name), "0:3").counts.tolist() == [3, 3, 2, 2]
    assert np.bincount(read_values(Source(folder / name), "0:3").indices).tolist() == [3, 3, 2, 2]
    with pytest.raises(DataError):  # they are copies
        Source([tmp_path / name, folder / name]).files()


@pytest.mark.parametrize("domain", ["labels", None])
@pytest.mark.parametrize("read", [count_reports, read_values])
def test_an_answer_is_no_header(tmp_path, read, domain):
    """A first line without a name would be a row fewer, and a true value in all that is said and written."""
    path = written(tmp_path / "a.csv", "ill\nwell\nill\nwell\n")
    domain = domain and ["ill", "well"]
    message = refused(lambda: read(Source(path), domain), path, row=1, argument="header")
    assert "ill" not in message.split(str(path))[1].split()
    for more in ({"header": True}, {"column": "ill"}):  # as said
        source = Source(path, **more)
        assert count_reports(source, domain).counts.tolist() == [1, 2]
    assert count_reports(Source(path, header=False), domain).counts.tolist() == [2, 2]
    path.write_text("state\nwell\nill\nwell\n")
    assert count_reports(Source(path), domain).counts.tolist() == [1, 2]


def test_a_first_line_of_values_is_not_repeated(tmp_path):
    path = written(tmp_path / "a.csv", "ill,Anna\nwell,Bob\n")
    message = refused(lambda: read_values(Source(path), ["ill", "well"]), path, argument="column")
    assert "Anna" not in message
    assert "Anna" in refused(lambda: count_reports(Source(path), ["ill", "well"]), path, argument="column")
