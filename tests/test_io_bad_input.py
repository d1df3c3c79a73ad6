"""Bad input: every message names the file and says what to do."""

import gzip
import subprocess
import sys

import duckdb
import numpy as np
import pytest

from rrjax.io import (
    DataError,
    Domain,
    MechanismRecord,
    Metadata,
    Source,
    count_reports,
    read_counts,
    read_domain,
    read_metadata,
    read_values,
    write_reports,
)

pytestmark = pytest.mark.once  # nothing here depends on the precision


def refused(call, *parts):
    with pytest.raises(DataError) as caught:
        call()
    message = str(caught.value)
    for part in parts:
        assert str(part) in message
    # A person reads this: no SQL, no type names of the engine.
    for word in ("SELECT", "read_csv", "LINE 1", "Exception", "VARCHAR", "Error:"):
        assert word not in message
    return message


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.dat", "a.jsonl", "a.csv.gz"])
def test_empty_missing_and_folder(tmp_path, name):
    path = tmp_path / name
    refused(lambda: count_reports(Source(path)), path, "no such file")
    path.write_bytes(b"")
    refused(lambda: count_reports(Source(path)), path, "empty")
    refused(lambda: count_reports(Source(tmp_path)), tmp_path, "folder")
    refused(lambda: count_reports(Source(tmp_path / "*.x")), "No file matches", "*.x")


@pytest.mark.parametrize("name", ["a.csv", "a.dat", "a.jsonl"])
def test_compressed_nothing(tmp_path, name):
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(b""))
    refused(lambda: count_reports(Source(path)), path)


def test_no_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n")
    for read in (count_reports, read_values):
        refused(lambda read=read: read(Source(path, column="a")), path, "'a'", "no rows")
        domain = Domain.range(0, 1)
        refused(lambda read=read: read(Source(path, column="a"), domain), path, "no rows")  # noqa: B023
    path.write_text("a,b\n,1\n?,2\n")
    source = Source(path, column="a", missing=("?",))
    refused(lambda: count_reports(source), path, "all 2 values are missing")
    refused(lambda: read_values(source, Domain.range(0, 1)), "all 2 values are missing")


def test_missing_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age,country\n1,a\n")
    source = Source(path, column="contry")
    refused(lambda: count_reports(source), path, "'contry'", "mean 'country'", "'age', 'country'")
    refused(lambda: count_reports(Source(path)), path, "2 columns", "'age', 'country'", "--column")
    refused(lambda: count_reports(Source(path, column="2")), "--no-header")
    for suffix, text in (
        ("jsonl", '{"age": 1, "country": "a"}\n'),
        ("tsv", "age\tcountry\n1\ta\n"),
    ):
        other = path.with_suffix("." + suffix)
        other.write_text(text)
        refused(lambda other=other: count_reports(Source(other, column="x")), other, "'x'")
    other = path.with_suffix(".parquet")
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS age, 'a' AS country) TO '{other}'")
    refused(lambda: count_reports(Source(other, column="Age")), other, "mean 'age'")


def test_column_missing_in_one_of_many_files(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("c,b\n1,2\n")
    source = Source(tmp_path / "*.csv", column="a")
    refused(lambda: count_reports(source), tmp_path / "2.csv", "'a'")


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("read", [count_reports, read_values])
def test_value_outside_the_domain(tmp_path, read, listed):
    (tmp_path / "1.csv").write_text("x,a\n1,1\n1,2\n")
    (tmp_path / "2.csv").write_text("x,a\n1,1\n1,?\n1,seven\n1,seven\n1,\n")
    domain = Domain.of("012") if listed else Domain.range(0, 2)
    message = refused(
        lambda: read(Source(tmp_path / "?.csv", column="a"), domain),
        tmp_path / "2.csv",
        "column 'a', row 2: '?' is not in the domain",
        "3 such values, such as 'seven', '?'",
        "--domain",
        "--missing",
    )
    assert "1.csv" not in message


def test_value_outside_the_domain_of_parquet_and_json(tmp_path):
    path = tmp_path / "a.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT range AS a FROM range(100)) TO '{path}'")
    source = Source(path)
    domain = Domain.range(0, 98)
    refused(lambda: count_reports(source, domain), path, "row 100: '99'", "; 1 such value.")
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT unnest([1.0, 2.5, 'nan'::DOUBLE, 'inf'::DOUBLE]) AS a) TO '{path}'")
    refused(lambda: count_reports(source, Domain.range(0, 9)), "row 2: '2.5'", "2 such values", "'inf'")
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": [1, 2]}\n')
    refused(lambda: count_reports(Source(path), Domain.range(0, 9)), path, "row 2: '[1")


def test_nan_in_a_column_of_numbers_is_missing(tmp_path):
    # Data frames write a missing number so. It is counted, and never becomes a category.
    path = tmp_path / "a.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT unnest([1.0, 2.0, 'nan'::DOUBLE, NULL, 2.0]) AS a) TO '{path}'")
    for domain in (None, Domain.range(1, 2)):
        counted = count_reports(Source(path), domain)
        assert counted.counts.tolist() == [1, 2]
        assert counted.missing == {"": 1, "nan": 1}


def test_fewer_than_two_categories(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\nx\nx\n")
    refused(lambda: count_reports(Source(path)), path, "'x'", "--domain")
    refused(lambda: Domain.range(0, 0), "at least 2")


@pytest.mark.parametrize("bad", ["-1", "2.5", "nan", "many", "", "1e3"])
def test_bad_counts(tmp_path, bad):
    path = tmp_path / "a.csv"
    path.write_text(f"label,n\nx,3\ny,{bad}\nz,4\n")
    refused(
        lambda: read_counts(Source(path), "n"),
        path,
        "column 'n', row 2: " + (repr(bad) if bad else "an empty cell"),
        "is not a count",
        "whole numbers from 0 to 9,223,372,036,854,775,807",
    )


@pytest.mark.parametrize("large", ["99999999999999999999", "9223372036854775808", "+99999999999999999999.0"])
def test_counts_that_are_too_large(tmp_path, large):
    path = tmp_path / "a.csv"
    path.write_text(f"label,n\nx,3\ny,{large}\n")
    message = refused(lambda: read_counts(Source(path), "n"), path, f"row 2: '{large}' is too large; 1 such row.")
    assert "is not a count" not in message
    path = tmp_path / "a.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT unnest(['x', 'y']) l, unnest([3::DOUBLE, 1e300]) n) TO '{path}'")
    refused(lambda: read_counts(Source(path), "n"), "row 2: '1e+300' is too large")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.dat", "a.jsonl", "a.jsonl.gz"])
def test_utf_16_is_named(tmp_path, name, encoding):
    path = tmp_path / name
    text = {"jsonl": '{"a": 1}\n{"a": 2}\n'}.get(name.split(".")[1], "a\n1\n2\n").encode(encoding)
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    message = refused(lambda: count_reports(Source(path)), path, f"the text is {name}", f"iconv -f {name} -t utf-8")
    assert "latin1" not in message
    if path.suffix == ".csv":
        refused(lambda: read_domain(path), f"the text is {name}")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-32-be"])
def test_zero_bytes_are_no_text(tmp_path, encoding):
    # Without a mark, and in letters whose bytes show no pattern.
    path = tmp_path / "a.csv"
    path.write_bytes("ж\nя\nд\n".encode(encoding))
    refused(lambda: count_reports(Source(path)), path, "there are zero bytes in it" if "16" in encoding else "UTF-")
    refused(lambda: read_domain(path), path)


def test_standard_input_is_refused_with_what_to_do():
    refused(lambda: count_reports(Source("-", format="csv")), "standard input", "save it to a file first")


def test_equal_names_of_columns(tmp_path):
    # Whichever is asked for, the labels or the counts, or none: nothing is guessed.
    path = tmp_path / "a.csv"
    path.write_text("a,n, a,n\n1,2,3,4\n")
    for source, counts, name in (
        (Source(path), None, "'a'"),
        (Source(path, column="a"), None, "'a'"),
        (Source(path, column="a"), "n", "'n'"),
        (Source(path), "n", "'n'"),
    ):
        read = (lambda: count_reports(source)) if counts is None else (lambda: read_counts(source, counts))  # noqa: B023
        refused(read, path, f"have the same name, {name}", "Rename")


def test_counts_without_labels(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("3\n4\n")
    refused(lambda: read_counts(Source(path, header=False), "1"), path, "one column, '1', the counts", "labels")


@pytest.mark.parametrize("bad", ["-1", "2.5", "'nan'::DOUBLE", "NULL", "'inf'::DOUBLE"])
def test_bad_counts_in_parquet(tmp_path, bad):
    path = tmp_path / "a.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT unnest(['x', 'y']) l, unnest([3::DOUBLE, {bad}]) n) TO '{path}'")
    refused(lambda: read_counts(Source(path), "n"), path, "column 'n', row 2: ")


def test_counts_that_are_all_zero(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("label,n\nx,0\ny,0\n")
    refused(lambda: read_counts(Source(path), "n"), path, "'n' are all 0")


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
    refused(lambda: count_reports(Source(path)), "cut short")
    path.write_bytes(b"plain text\nthat is not compressed\n")
    refused(lambda: count_reports(Source(path)), path, "gzip")


def test_truncated_and_damaged_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    mechanism = MechanismRecord("rr", {"num_categories": 1000, "epsilon": 1.0})
    metadata = Metadata(mechanism, 1.0, Domain.range(0, 999), "r", False, "0")
    write_reports(path, np.random.default_rng(0).integers(1000, size=100_000), metadata)
    data = path.read_bytes()
    for damaged in (data[:-5], data[: len(data) // 2], data[:3], b"text, not parquet"):
        path.write_bytes(damaged)
        refused(lambda: count_reports(Source(path)), path, "not a whole Parquet file")
        refused(lambda: read_metadata(path), path, "not a whole Parquet file")
    path.write_bytes(data[:50] + bytes(len(data) // 2) + data[50 + len(data) // 2 :])
    refused(lambda: count_reports(Source(path)), path)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a,b\n1,2\n3\n4,5\n", "line 3"),
        ("a,b\n1,2\n3,4,5\n4,5\n", "3 columns where the first line has 2"),
        ('a,b\n1,"x\n2,y\n', "never closed"),
        (b"a,b\n1,2\n1,\xff\xfe\n", "UTF-8"),
        (b"\xff,b\n1,2\n", "UTF-8"),
        ("\na,b\n1,2\n", "blank"),
        ("a,a\n1,2\n", "columns 1 and 2 have the same name, 'a'"),
        ("b,a,c,a,a\n1,2,3,4,5\n", "columns 2, 4 and 5 have the same name, 'a'"),
        ("a;b\n1;2\n", "Is the delimiter ';'"),
        ("a,b\r\n1,2\n3,4\r\n", r"line 2: it ends with '\n' where the first line ends with '\r\n'. Save it again"),
        ("a,\n1,2\n", "is the first line a header"),
    ],
)
def test_malformed_csv(tmp_path, text, part):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    refused(lambda: count_reports(Source(path, column="a"), Domain.range(0, 9)), path, part)


def test_a_short_row_far_down_is_not_dropped(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "1,2\n" * 100_000 + "5\n" + "1,2\n" * 10)
    refused(lambda: count_reports(Source(path, column="a"), Domain.range(0, 9)), path, "line 100002")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1}\n{"a": 2\n{"a": 3}\n', 2),
        ('{"a": 1}\n\n{"a": 2}\n{"a" 3}\n{"a": 4}\n', 4),
        ('{"a": 1}\n{"a": 2}\n{"a": ]\n', 3),
        ('{"a": 1}\n' * 50_000 + "oops\n" + '{"a": 1}\n' * 50_000, "50,001"),
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
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix else text.encode())
    for column in ("a", None):
        source = Source(path, column=column)
        refused(lambda: count_reports(source, Domain.range(0, 9)), f"{path}, line {line}: not valid JSON")  # noqa: B023


def test_a_key_that_is_there_twice(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2, "a": 3}\n')
    refused(lambda: count_reports(Source(path), Domain.range(0, 9)), path, "line 2", "the key 'a' more than once")


def test_bad_value_among_files_of_different_types(tmp_path):
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT 1 AS a) TO '{tmp_path / '1.parquet'}'")
        connection.execute(f"COPY (SELECT unnest([2.0, 2.5]) AS a) TO '{tmp_path / '2.parquet'}'")
    source = Source(tmp_path / "*.parquet")
    refused(lambda: count_reports(source, Domain.range(0, 9)), tmp_path / "2.parquet", "row 2: '2.5'")


def test_formats(tmp_path):
    path = tmp_path / "a.data"
    path.write_text("a\n1\n")
    refused(lambda: count_reports(Source(path)), path, "--format")
    assert count_reports(Source(path, format="csv"), Domain.range(0, 1)).num_rows == 1
    (tmp_path / "b.csv").write_text("a\n1\n")
    (tmp_path / "b.tsv").write_text("a\n1\n")
    refused(lambda: count_reports(Source(tmp_path / "b.*")), "one format at a time")
    refused(lambda: Source("a.csv", format="xls"), "xls", "csv, tsv")  # pyright: ignore
    refused(lambda: Source("a.csv", delimiter=", "), "one character")
    refused(lambda: Source([]), "No file")
    hidden = tmp_path / "a.csv"
    hidden.write_bytes(gzip.compress(b"a\n1\n"))
    refused(lambda: count_reports(Source(hidden)), hidden, ".gz")
    sessions = tmp_path / "a.dat"
    sessions.write_text("1 2\n")
    refused(lambda: count_reports(Source(sessions, column="a")), sessions, "no columns")


def test_null_characters(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n2\n")
    refused(lambda: count_reports(Source(path, missing=("\0",))), "null character")


def test_without_duckdb(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n2\n")
    code = (
        "import sys; sys.modules['duckdb'] = None\n"
        "from rrjax.io import Source, count_reports, DataError\n"
        f"try: count_reports(Source({str(path)!r}))\n"
        "except DataError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'rrjax[files]'" in done.stdout


def test_import_is_light():
    code = "import sys, rrjax.io; print('duckdb' in sys.modules, 'jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "False"
