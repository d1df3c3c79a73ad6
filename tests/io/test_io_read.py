"""Reports, counts and values from every format."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from refusals import refused
from written import written

from rrjax.data.errors import Contradiction
from rrjax.io import (
    DataError,
    Source,
    count_reports,
    read_counts,
    read_domain,
    read_metadata,
    read_values,
    write_reports,
    write_table,
)
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.numbers import Bins, read_bins
from rrjax.io.rows import count_pairs, read_covariate, read_pairs
from rrjax.io.source import copies

pytestmark = pytest.mark.once  # nothing here depends on the precision

DATA = Path(os.environ.get("RRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))
KOSARAK = DATA / "kosarak-head.dat.gz"
ADULT = DATA / "adult.data.gz"
needs_kosarak = pytest.mark.skipif(not KOSARAK.exists(), reason="kosarak-head.dat.gz is not here")
needs_adult = pytest.mark.skipif(not ADULT.exists(), reason="adult.data.gz is not here")

ODD = ["plain", "with, comma", 'with "quotes"', "two\nlines", "été ☃", "007", "'; DROP TABLE t"]


def by_label(counted):
    return dict(zip(counted.domain.labels().tolist(), counted.counts.tolist(), strict=True))


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode() if isinstance(text, str) else text
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def copy(path, query):
    duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
    return str(path)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".csv.gz", ".tsv.gz", ".jsonl.gz"])
def test_every_format_counts_odd_labels_alike(tmp_path, suffix):
    rng = np.random.default_rng(0)
    indices = rng.integers(len(ODD), size=500)
    path = tmp_path / f"reports{suffix}"
    write_table(path, {"x": np.arange(500), "answer": np.array(ODD)[indices]})
    domain = Domain.of(ODD)
    counted = count_reports(Source(path, column="answer"), domain)
    np.testing.assert_array_equal(counted.counts, np.bincount(indices, minlength=len(ODD)))
    assert counted.counts.dtype == np.int64
    assert (counted.num_rows, counted.num_missing, counted.domain_from_data) == (500, 0, False)
    values = read_values(Source(path, column="answer"), domain)
    assert values.indices.dtype == np.int32
    np.testing.assert_array_equal(values.indices, indices)
    from_data = count_reports(Source(path, column="answer"))
    assert from_data.domain_from_data
    assert by_label(from_data) == by_label(counted)


@pytest.mark.parametrize(
    ("name", "data", "options", "domain", "expected"),
    [
        ("a.json", '[{"a": 1, "b": "x"}, {"b": "y"}, {"a": 2, "b": null}, {"a": 2}]', {"column": "a"}, "1:2", [1, 2]),
        (
            "a.jsonl",
            '{"a": 1}\n' * 30_000 + '{"late": "x"}\n{"late": "y"}\n',
            {"column": "late"},
            None,
            {"x": 1, "y": 1},
        ),
        (
            "a.jsonl",
            '{"a": 1}\n{"a": "s"}\n{"a": true}\n{"a": 1.5}\n',
            {},
            None,
            dict.fromkeys(("1", "1.5", "s", "true"), 1),
        ),
        ("a.csv", "a\n007\n7\n7.0\n", {}, None, {"007": 1, "7": 1, "7.0": 1}),  # labels stay what they are
        ("a.csv", "a\n10\n9\n-1\n10\n", {}, None, {"-1": 1, "9": 1, "10": 2}),  # in numeric order
        ("a.csv", "a\n3\n", {}, "0:4", [0, 0, 0, 1, 0]),
        ("a.csv", "tally\nx\ny\n", {"column": "tally"}, None, {"x": 1, "y": 1}),  # no variable of Python
        ("a.csv", b"\xef\xbb\xbfa,b\r\n1,x\r\n2,y\r\n\r\n", {"column": "a"}, None, {"1": 1, "2": 1}),
    ],
)
def test_what_is_in_a_file_is_counted(write, name, data, options, domain, expected):
    counted = count_reports(Source(write(name, data), **options), domain)
    assert (counted.counts.tolist() if domain else by_label(counted)) == expected
    assert domain or list(by_label(counted)) == list(expected)
    assert name != "a.json" or counted.num_missing == 1


@pytest.mark.parametrize("type_name", ["TINYINT", "BIGINT", "UBIGINT", "HUGEINT", "DOUBLE"])
def test_numeric_parquet_types(tmp_path, type_name):
    path = copy(tmp_path / "a.parquet", f"SELECT (range % 5)::{type_name} AS a FROM range(12)")
    assert count_reports(Source(path), Domain.range(0, 5)).counts.tolist() == [3, 3, 2, 2, 2, 0]
    # Whole numbers in a column of floats are the labels that people write.
    counted = count_reports(Source(path), Domain.of("43210"))
    assert counted.counts.tolist() == [2, 2, 2, 3, 3]
    assert count_reports(Source(path)).domain.listed == ("0", "1", "2", "3", "4")


@pytest.mark.parametrize("type_name", ["VARCHAR", "DATE", "BLOB", "BOOLEAN", "DECIMAL(5,2)"])
def test_other_parquet_types_count_as_text(tmp_path, type_name):
    values = {"DATE": ("2020-01-02", "2020-01-03"), "BOOLEAN": ("false", "true"), "DECIMAL(5,2)": ("1.25", "2.5")}.get(
        type_name, ("a", "b")
    )
    query = f"SELECT unnest([{values[1]!r}, {values[0]!r}, {values[1]!r}])::{type_name} AS a"
    path = copy(tmp_path / "a.parquet", query)
    assert by_label(count_reports(Source(path))) == {values[0]: 1, values[1]: 2}


@pytest.mark.parametrize("value", ["[1, 2]", '{"a": 1}'])
def test_lists_and_records_of_json_are_no_labels(tmp_path, value):
    path = written(tmp_path / "a.jsonl", f'{{"a": {value}, "b": "x"}}\n{{"a": {value}, "b": "[y]"}}\n')
    with refused(error=DataError, file=str(path), column="a"):
        count_reports(Source(path, column="a"))
    assert by_label(count_reports(Source(path, column="b"))) == {"x": 1, "[y]": 1}


@pytest.mark.parametrize("value", ["[1, 2]", "{'a': 1}", "MAP {'a': 1}"])
def test_lists_and_records_are_no_labels(tmp_path, value):
    path = copy(tmp_path / "a.parquet", f"SELECT {value} AS a, unnest(['x', 'y']) AS b")
    with refused(error=DataError, file=str(path), column="a"):
        count_reports(Source(path, column="a"))
    assert by_label(count_reports(Source(path, column="b"))) == {"x": 1, "y": 1}


def test_one_value_tells_no_domain(write):
    with refused("domain", error=DataError):
        count_reports(Source(write("a.csv", "a\n3\n")))


@pytest.mark.long
def test_text_takes_integers_and_refuses_what_duckdb_would_round(write):
    path = write("a.csv", "a\n12\n12.0\n+12\n 12 \n012\n")
    assert count_reports(Source(path), Domain.range(12, 13)).counts.tolist() == [5, 0]
    for text in ("12.5", "1e1", "0x0c", "1_2", "nan", "12abc", "99999999999999999999"):
        path = write("b.csv", f"a\n12\n{text}\n")
        with refused(error=DataError, row=2, value=text):
            count_reports(Source(path), Domain.range(12, 13))
        with refused(error=DataError, row=2, value=None):
            read_values(Source(path), Domain.range(12, 13))


def test_chunks_add_up_to_the_whole(tmp_path):
    rng = np.random.default_rng(1)
    values = rng.integers(0, 50, size=3000)
    chunks = np.split(values, [100, 101, 1500])
    suffixes = [".csv", ".csv.gz", ".csv", ".csv"]
    for number, (chunk, suffix) in enumerate(zip(chunks, suffixes, strict=True)):
        columns = {"x": np.zeros(len(chunk), dtype=int), "a": chunk}
        if number == 2:  # another order of columns
            columns = dict(reversed(columns.items()))
        write_table(tmp_path / f"part-{number}{suffix}", columns)
    domain = Domain.range(0, 49)
    whole = count_reports(Source(tmp_path / "part-*.csv*", column="a"), domain)
    np.testing.assert_array_equal(whole.counts, np.bincount(values, minlength=50))
    parts = [count_reports(Source(path, column="a"), domain).counts for path in tmp_path.glob("part-*")]
    np.testing.assert_array_equal(sum(parts), whole.counts)
    named = [tmp_path / f"part-{number}{suffix}" for number, suffix in enumerate(suffixes)]
    np.testing.assert_array_equal(read_values(Source(named, column="a"), domain).indices, values)
    # A file that two patterns name counts once.
    twice = Source([tmp_path / "part-*", tmp_path / "part-0.csv"], column="a")
    with refused(error=DataError, file=str(tmp_path / "part-0.csv")):
        count_reports(twice, domain)


def test_a_file_under_two_names_is_refused(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("r.csv", "a\n1\n2\n")
    os.link("r.csv", "hard.csv")
    os.symlink("r.csv", "soft.csv")
    os.mkdir("folder")
    os.symlink(tmp_path, "folder/up")
    for other in ("./r.csv", "hard.csv", "soft.csv", str(tmp_path / "r.csv"), "folder/up/r.csv"):
        with pytest.raises(DataError) as caught:
            count_reports(Source(["r.csv", other]))
        assert caught.value.file == other
        assert f"r.csv and {other} are the same file" in str(caught.value)
    for paths in (["r.csv", "r.csv"], ["r*.csv", "r.csv"], ["?.csv", "r*"], ["*.csv"]):
        with refused(error=DataError, file="r.csv"):
            count_reports(Source(paths))


@pytest.mark.parametrize(("order", "column"), [("12", "x"), ("21", "x"), ("21", None)])
def test_a_header_that_one_of_several_files_lacks_is_not_repeated(tmp_path, order, column):
    (tmp_path / "1.csv").write_text("x,y\na,1\nb,2\n")
    (tmp_path / "2.csv").write_text("secret,private\nb,2\n")
    source = Source([str(tmp_path / f"{name}.csv") for name in order], column=column, header=True)
    for shown in (False, True):
        with pytest.raises(DataError) as caught:
            read_values(replace(source, show_values=True) if shown else source)
        assert caught.value.file == str(tmp_path / "2.csv")
        assert ("secret" in str(caught.value), "private" in str(caught.value)) == (shown, shown)


def test_the_names_of_one_header_are_repeated(tmp_path):
    (tmp_path / "1.csv").write_text("x,y\na,1\nb,2\n")
    with refused(error=DataError, column="z") as caught:
        read_values(Source(str(tmp_path / "1.csv"), column="z", header=True))
    assert "'y'" in str(caught.value)


NINES = ["99", "99.0", "99.00", "+99", "9.9e1", "099"]


@pytest.mark.full
@pytest.mark.parametrize("token", NINES)
@pytest.mark.parametrize("held", ["INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(9, 2)", *NINES])
def test_a_number_that_means_missing_in_any_notation(tmp_path, held, token):
    if held in NINES:
        path = str(tmp_path / "a.csv")
        Path(path).write_text("a\n1\n2\n3.0\n" + f"{held}\n" * 2)
    else:
        path = copy(tmp_path / "a.parquet", f"SELECT unnest([1, 2, 3, 99, 99])::{held} AS a")
    source = Source(path, missing=(token,))
    exponent = "e" in held  # no whole number of a domain
    if not exponent:
        assert count_reports(source, "1:3").counts.tolist() == [1, 1, 1]
        assert read_values(source, "0:3").num_missing == 2
        for refusing in (count_reports, read_values):
            with refused("missing", error=DataError):
                refusing(source, "0:120")
    assert read_bins(source, Bins(0, 4, 2)).indices.tolist() == [0, 1, 1]
    assert np.isnan(read_covariate(replace(source, column="a")).values).tolist() == [False] * 3 + [True] * 2
    with refused("missing", error=DataError):
        read_bins(source, Bins(0, 120, 2))
    if held not in NINES:  # listed labels of numbers
        assert count_reports(source).counts.tolist() == [1, 1, 1]
        with refused("missing", error=DataError):
            count_reports(source, ["1", "2", "3", "99"])
    elif held != token:  # texts
        assert count_reports(source).num_missing == 0
        assert count_reports(source, ["1", "2", "3.0", held]).counts.tolist() == [1, 1, 1, 2]


def test_numbers_that_floats_do_not_tell_apart_mean_missing_as_text(tmp_path):
    path = copy(tmp_path / "a.parquet", "SELECT unnest([9007199254740992, 9007199254740993]) AS a")
    assert count_reports(Source(path, missing="9007199254740993"), ["9007199254740992", "0"]).counts.tolist() == [1, 0]


TABLE = "r,s\n" + "".join(f"{number % 7},é\n" for number in range(40_000))  # of more than is compared first
TEXTS = {
    "packed": gzip.compress(TABLE.encode()),
    "packed more": gzip.compress(TABLE.encode(), 1, mtime=1),
    "marked": b"\xef\xbb\xbf" + TABLE.encode(),
    "of Windows": TABLE.replace("\n", "\r\n").encode(),
    "without the last line end": TABLE[:-1].encode(),
    "with blank lines at its end": (TABLE + "\r\n\n").encode(),
}


@pytest.mark.parametrize("other", TEXTS)
@pytest.mark.parametrize("first", [None, "packed", "of Windows"])
def test_a_text_that_was_saved_again_is_a_copy(tmp_path, first, other):
    if first == other:
        pytest.skip("copied byte by byte")
    files = []
    for name, data in {"a": TEXTS.get(first, TABLE.encode()), "b": TEXTS[other]}.items():
        files.append(str(tmp_path / f"{name}.csv") + ".gz" * (data[0] == 0x1F))
        Path(files[-1]).write_bytes(data)
    assert copies(files) == [tuple(files)]
    with refused(error=DataError, file=files[1]):
        count_reports(Source(files, column="r"))
    Path(tmp_path / "c.csv").write_text(TABLE[:-4] + "8,é\n")  # one cell in the last line
    assert copies([files[0], str(tmp_path / "c.csv")]) == []


def test_parquet_that_was_saved_again_is_a_copy(tmp_path):
    rows = "SELECT (range * 7 % 5)::{0} AS r, CASE WHEN range % 3 > 0 THEN 'x' END AS s FROM range({1})"
    first = copy(tmp_path / "a.parquet", rows.format("INTEGER", 3000))
    again = copy(tmp_path / "b.parquet", rows.format("BIGINT", 3000))
    shorter = copy(tmp_path / "c.parquet", rows.format("INTEGER", 2999))
    last = copy(tmp_path / "d.parquet", f"SELECT * REPLACE (if(row_number() OVER () = 3000, 9, r) AS r) FROM '{first}'")
    turned = copy(tmp_path / "e.parquet", f"SELECT * FROM '{first}' ORDER BY r")
    renamed = copy(tmp_path / "f.parquet", f"SELECT r, s AS t FROM '{first}'")
    assert copies([first, again, shorter, last, turned, renamed]) == [(first, again)]
    with refused(error=DataError, file=again):
        count_reports(Source([first, again], column="r"))
    Path(again).write_bytes(Path(again).read_bytes()[:-100])  # damaged
    assert copies([first, again]) == []


@pytest.mark.long
@pytest.mark.parametrize("size", [10, 10**6])
def test_a_copy_of_a_file_is_refused(tmp_path, monkeypatch, size):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{number % 7}\n" for number in range(size))
    for name, last in {"a": "1", "b": "2", "c": "1"}.items():  # of one size; copies are alike to the last byte
        Path(f"{name}.csv").write_text(f"r\n{rows}{last}\n")
    assert count_reports(Source(["a.csv", "b.csv"])).num_rows == 2 * size + 2
    with refused(error=DataError, file="c.csv") as caught:
        count_reports(Source("*.csv"))
    assert {"a.csv", "c.csv"} <= set(str(caught.value).split())


def test_parquet_files_of_different_types_are_not_rounded_into_each_other(tmp_path):
    copy(tmp_path / "1.parquet", "SELECT 1::BIGINT AS a, 'x' AS b")
    copy(tmp_path / "2.parquet", "SELECT 'x' AS b, 1.5::DOUBLE AS a")
    counted = count_reports(Source(tmp_path / "*.parquet", column="a"))
    assert by_label(counted) == {"1": 1, "1.5": 1}


def test_missing_values_are_named_and_counted(write):
    path = write("a.csv", 'a,b\n1,x\n?,x\n,x\n"",x\n2,x\nn/a,x\n?,x\n')
    source = Source(path, column="a", missing=("?", "n/a"))
    counted = count_reports(source, Domain.range(1, 2))
    assert counted.counts.tolist() == [1, 1]
    assert counted.missing == {"": 2, "?": 2, "n/a": 1}
    assert counted.num_missing == 5
    assert counted.num_rows == 7
    values = read_values(source, Domain.range(1, 2))
    assert values.indices.tolist() == [0, 1]
    assert values.num_missing == 5


def test_leading_zeros_are_counted_where_they_are_lost(write):
    path = write("a.csv", "a\n007\n7\n70\n0\n00\n07.0\n")
    counted = count_reports(Source(path), Domain.range(0, 99))
    assert (counted.counts[7], counted.num_padded) == (3, 3)
    assert read_values(Source(path), Domain.range(0, 99)).num_padded == 3
    # As labels they are what they are.
    assert count_reports(Source(path)).num_padded == 0
    assert count_reports(Source(path)).domain.num_categories == 6


@pytest.mark.long
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", pytest.param("a.csv.gz", marks=pytest.mark.full)])
def test_cells_of_several_lines_in_a_large_file(write, name):
    """DuckDB reads parts of more than 8 MB at once, and takes lines within a cell for rows."""
    mark, number = "\t" if name.endswith(".tsv") else ",", 4_500
    lines = f"no{mark}x\n"
    text = f"a{mark}b\n" + f'yes{mark}"{400 * lines}"\n{lines}' * number
    source = Source(write(name, text), column="a")
    assert count_reports(source, ["no", "yes"]).counts.tolist() == [number, number]
    assert (read_values(source, ["no", "yes"]).indices == np.tile([1, 0], number)).all()
    # In one part DuckDB would leave out rows after a quote that is not closed, and not say so.
    for end in (f'yes{mark}"', f'yes{mark}5" pipe\nyes{mark}"x\n', f"yes{mark}x{mark}y\n"):
        with refused(error=DataError):
            count_reports(Source(write(name, text + end), column="a"), ["no", "yes"])


@pytest.mark.parametrize("folder", ["~", "./~"])
def test_a_folder_called_as_that_of_home(tmp_path, monkeypatch, folder):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for place, text in (("home", "a\nx\nz\n"), (folder, "a\nx\ny\n")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "a.csv").write_text(text)
    assert count_reports(Source(f"{folder}/a.csv")).domain.listed == ("x", "y")


def test_names_that_are_not_utf_8_are_said(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")
    try:
        Path(path).write_text("a\nx\ny\n")
    except OSError:
        pytest.skip("the names of this file system are UTF-8")
    with refused(error=DataError):
        count_reports(Source(path))
    path = written(tmp_path / "a.csv", "a\nx\ny\n")
    for call in (lambda: Domain.of(["x", "y", "\udce9"]), lambda: count_reports(Source(path, missing="\udce9"))):
        with refused(error=DataError):
            call()


def test_names_with_quotes_and_patterns(tmp_path):
    folder = tmp_path / 'it\'s [1] "ok" *'
    folder.mkdir()
    path = folder / "a'b[x].csv"
    column = "co\"l'umn; DROP TABLE tally --"
    write_table(path, {column: np.array(["a", "b"]), "é": np.array(["c", "d"])})
    write_table(folder / "a'bx.csv", {column: np.array(["z", "z"]), "é": np.array(["c", "d"])})
    assert count_reports(Source(path, column=column)).domain.listed == ("a", "b")
    parquet = path.with_suffix(".parquet")
    write_table(parquet, {column: np.array(["a", "b"])})
    assert count_reports(Source(parquet)).column == column
    jsonl = path.with_suffix(".jsonl")
    write_table(jsonl, {column: np.array(["a", "b"]), "x": np.arange(2)})
    assert count_reports(Source(jsonl, column=column)).domain.listed == ("a", "b")


def test_header_and_delimiter(write):
    path = write("a.csv", "1;x\n2;y\n2;x\n")
    headerless = Source(path, header=False, delimiter=";", column="1")
    assert by_label(count_reports(headerless)) == {"1": 1, "2": 2}
    with refused("header", error=DataError, row=1):
        count_reports(Source(path, delimiter=";", column="1"))
    assert count_reports(Source(path, header=True, delimiter=";", column="x")).num_rows == 2


def test_one_quoted_column(write):
    path = write("a.csv", '"one, quoted; name"\n"x, y"\nz\n')
    with refused("delimiter", error=DataError, row=1):
        count_reports(Source(path))
    assert count_reports(Source(path, delimiter=",")).domain.listed == ("x, y", "z")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_blanks_around_a_value_are_no_part_of_it_in_any_format(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    values = np.array([" yes", "yes ", "yes", "no", " New  York\t", " ? ", "  "])
    write_table(path, {"a": values, "label": values})
    for missing in ("?", " ?"):
        counted = count_reports(Source(path, column="a", missing=(missing,)))
        assert by_label(counted) == {"New  York": 1, "no": 1, "yes": 3}
        assert counted.missing == {"": 1, "?": 1}
    domain = Domain.of([" yes", "no ", "New  York"])
    assert domain.listed == ("yes", "no", "New  York")
    assert read_values(Source(path, column="a", missing=("?",)), domain).indices.tolist() == [0, 0, 0, 1, 2]
    labels = tmp_path / f"labels{suffix}"
    write_table(labels, {"label": values[2:5]})
    assert read_domain(labels).listed == ("yes", "no", "New  York")


def test_a_table_in_json_has_no_infinity(tmp_path):
    path = tmp_path / "a.jsonl"
    write_table(path, {"x": np.array([1.5, np.inf, -np.inf, np.nan]), "n": np.arange(4)})
    rows = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert [row["x"] for row in rows] == [1.5, None, None, None]


def test_pairs_as_one_column(write):
    path = write("a.csv", "a,b\nx,2\ny,1\nx,\ny,2\n")
    values = read_pairs(Source(path), ("a", "b"), (None, "1:3"))
    assert values.column == "a × b"
    assert values.domain.listed == ("x × 1", "x × 2", "x × 3", "y × 1", "y × 2", "y × 3")
    assert values.indices.tolist() == [1, 3, 4]
    assert (values.num_missing, values.domain_from_data) == (1, True)
    assert Domain.from_metadata(values.domain.to_metadata()) == values.domain
    assert values.domain.describe() == "6 pairs ('x × 1', 'x × 2', 'x × 3', …)"
    with refused(error=DataError, row=1):
        Domain.product(Domain.of(["x × y", "z"]), Domain.range(1, 3))
    for label in ("x ×", "× x"):
        # Not even at an end: 'x ×' and '× y' would make one label of two pairs.
        with refused(error=DataError, row=1):
            Domain.product(Domain.of([label, "z"]), Domain.range(1, 3))
    with refused("domain", error=DataError):
        Domain.product(Domain.range(1, 5000), Domain.range(1, 5000))


def test_transactions(write):
    path = write("a.dat", "3 1 2\n1\t5 \n\n 3 3\n")
    first = count_reports(Source(path), Domain.range(1, 5))
    assert first.counts.tolist() == [1, 0, 2, 0, 0]
    assert first.num_missing == 1
    everything = Source(path, items="all")
    assert count_reports(everything, Domain.range(1, 5)).counts.tolist() == [2, 1, 3, 0, 1]
    assert read_values(everything, Domain.range(1, 5)).indices.tolist() == [2, 0, 1, 0, 4, 2, 2]
    with refused(error=DataError, row=2, value="5"):
        count_reports(everything, Domain.range(1, 4))
    quoted = write("b.dat", "\"a b\n'c,d e\n")
    assert count_reports(Source(quoted)).domain.listed == ('"a', "'c,d")
    blanks = write("c.dat", "\xa0a;\tb\nc\n")  # as everywhere, a blank of another kind is part of a label
    for items, labels in (("first", {"\xa0a", "c"}), ("all", {"\xa0a", "b", "c"})):
        assert {*count_reports(Source(blanks, items=items, delimiter=";")).domain.listed} == labels


def test_read_counts(write):
    path = write("a.csv", "n,label\n3,x\n0,y\n4,x\n5,\n2.0,z\n")
    counted = read_counts(Source(path), "n", Domain.of("xyzw"))
    assert counted.counts.tolist() == [7, 0, 2, 0]
    assert (counted.num_rows, counted.num_missing, counted.missing) == (14, 5, {"": 5})
    assert by_label(read_counts(Source(path, column="label"), "n")) == {"x": 7, "y": 0, "z": 2}


def test_read_counts_beyond_int32(tmp_path, write):
    path = write("a.csv", f"label,n\n0,{2**31}\n1,{2**40}\n")
    assert read_counts(Source(path), "n").counts.tolist() == [2**31, 2**40]
    path = write("a.csv", f"label,n\n0,{2**53}\n1,1\n")
    with refused(error=DataError, column="label"):
        read_counts(Source(path), "n")
    parquet = copy(tmp_path / "a.parquet", "SELECT unnest(['a','b']) l, unnest([1.0, 2.0]) n")
    assert read_counts(Source(parquet), "n").counts.tolist() == [1, 2]


@pytest.mark.parametrize("listed", [False, True])
def test_reports_carry_their_domain(tmp_path, listed):
    domain = Domain.of(ODD) if listed else Domain.range(-3, 3)
    indices = np.random.default_rng(2).integers(7, size=5000)
    mechanism = MechanismRecord("randomized-response", {"num_categories": 7, "epsilon": 2.5})
    metadata = Metadata(mechanism, 2.4999, domain, "odd'\"name", False, "0.1.0")
    path = tmp_path / "reports.parquet"
    write_reports(path, indices, metadata)
    assert read_metadata(path) == metadata
    assert metadata.num_categories == 7
    counted = count_reports(Source(path))
    assert counted.metadata == metadata
    assert counted.domain == domain
    assert not counted.domain_from_data
    np.testing.assert_array_equal(counted.counts, np.bincount(indices, minlength=7))
    np.testing.assert_array_equal(read_values(Source(path)).indices, indices)
    assert count_reports(Source(path), domain).domain == domain
    with refused("domain", error=Contradiction, flag="--domain", file=str(path)):
        count_reports(Source(path), Domain.range(0, 9))


def test_metadata_of_several_files(tmp_path):
    def metadata(epsilon=1.0, version="1"):
        mechanism = MechanismRecord("rr", {"num_categories": 5, "epsilon": epsilon})
        return Metadata(mechanism, epsilon, Domain.range(0, 4), "r", False, version)

    one, two, three, plain = (tmp_path / f"{name}.parquet" for name in ("1", "2", "3", "plain"))
    write_reports(one, np.arange(5), metadata())
    write_reports(two, np.arange(5), metadata(version="2"))
    write_reports(three, np.arange(5), metadata(epsilon=2.0))
    write_table(plain, {"r": np.arange(5)})
    assert read_metadata([one, two]) == metadata()
    assert count_reports(Source([one, two])).counts.tolist() == [2] * 5
    assert read_metadata(plain) is None
    with refused("epsilon", error=DataError, file=str(three)):
        read_metadata([one, three])
    for pair in ([one, plain], [plain, one]):
        with refused(error=DataError, file=str(plain)):
            count_reports(Source(pair))


@pytest.mark.long
def test_counts_grow_with_the_domain_not_with_the_rows(tmp_path):
    path = copy(tmp_path / "a.parquet", "SELECT range * 7919 % 1423000 AS a FROM range(2000000)")
    counted = count_reports(Source(path), Domain.range(0, 1_422_999))
    expected = np.bincount(np.arange(2_000_000) * 7919 % 1_423_000, minlength=1_423_000)
    np.testing.assert_array_equal(counted.counts, expected)


@needs_kosarak
def test_kosarak_first_pages():
    counted = count_reports(Source(KOSARAK))
    assert counted.num_rows == 36_683
    assert counted.domain.num_categories == 2_891
    found = by_label(counted)
    expected = {"11": 10_571, "6": 5_171, "1": 2_653, "3": 2_131, "4": 1_765}
    assert {page: found[page] for page in expected} == expected
    over_range = count_reports(Source(KOSARAK), Domain.range(1, 41_270))
    assert over_range.counts[[10, 5, 0, 2, 3]].tolist() == list(expected.values())


@needs_kosarak
def test_kosarak_all_pages():
    counted = count_reports(Source(KOSARAK, items="all"))
    assert counted.domain.listed == tuple(str(page) for page in range(1, 17_035))


@needs_adult
def test_adult_weights():
    source = Source(ADULT, format="csv", header=False, column="3")
    counted = count_reports(source, read_domain("0:1484705"))
    assert counted.counts.shape == (1_484_706,)
    assert counted.counts.sum() == 32_561
    there = np.flatnonzero(counted.counts)
    assert (there[0], there[-1], len(there)) == (12_285, 1_484_705, 21_648)
    values = read_values(source, read_domain("0:1484705"))
    assert values.indices[:2].tolist() == [77_516, 83_311]


@needs_adult
def test_adult_ages_and_countries():
    ages = count_reports(Source(ADULT, format="csv", header=False, column="1"))
    assert ages.domain.num_categories == 73
    countries = Source(ADULT, format="csv", header=False, column="14")
    assert count_reports(countries).domain.num_categories == 42
    answered = count_reports(Source(ADULT, format="csv", header=False, column="14", missing=("?",)))
    assert answered.domain.num_categories == 41
    assert answered.num_missing == answered.missing["?"] == 583


def test_pairs_are_counted_row_by_row(write):
    source = Source(str(write("p.csv", "a,b\nx,1\ny,2\nx,1\n,2\ny,?\nx,3\n")), missing=("?",))
    pairs = count_pairs(source, ("a", "b"), (None, "1:3"))
    np.testing.assert_array_equal(pairs.counts, [[2, 0, 1], [0, 1, 0]])
    assert (pairs.num_rows, pairs.num_missing, pairs.columns) == (6, 2, ("a", "b"))
    assert [domain.num_categories for domain in pairs.domains] == [2, 3]
    with refused("columns", error=DataError, column="a"):
        count_pairs(source, ("a", "a"), (None, None))
    with refused(error=DataError, column="b", row=6, value="3"):
        count_pairs(source, ("a", "b"), (None, "1:2"))
    with refused(error=DataError, column="a"):
        count_pairs(source, ("a", "b"), (None, "0:99999999"))
    alone = Source(str(write("q.csv", "a,b\nx,\n,1\ny,\n,2\n")))
    with refused(error=DataError, column="a", row=None):
        count_pairs(alone, ("a", "b"), (None, None))
