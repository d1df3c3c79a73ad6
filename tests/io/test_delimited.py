"""Text with delimiters: no row is lost, whatever line breaks are in its first line."""

import csv
import gzip
import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import rrjax
from rrjax.io import DataError, Source, count_reports, delimited, load_tally, save_tally
from rrjax.io.labels import read_domain

pytestmark = pytest.mark.once
BREAKS = ["\n", "\r\n", "\r"]
ANSWERS = read_domain("no,yes")


def written_file(tmp_path, name, first, end, rows):
    text = first + end + "".join(row + end for row in rows)
    (tmp_path / name).write_bytes(text.encode())
    return text


@pytest.mark.parametrize(("within", "end"), [*itertools.product(BREAKS, BREAKS)])
@pytest.mark.parametrize("cell", ["", '"a\nb"'])
@pytest.mark.parametrize("header", [None, False])
def test_a_line_break_in_the_first_line_loses_no_row(tmp_path, monkeypatch, within, end, cell, header):
    """Spreadsheets write a line feed in a cell, and CRLF after rows: all rows were lost, in silence beside others."""
    monkeypatch.chdir(tmp_path)
    first = f'{"answer" if header is None else "yes"},"Re{within}marks"'
    text = written_file(tmp_path, "one.csv", first, end, [f"yes,{cell}"] * 7 + [f"no,{cell}"] * 2)
    written_file(tmp_path, "other.csv", first.replace(within, "\n"), "\n", ["no,"] * 3)
    source = Source(["other.csv", "one.csv"], column="answer" if header is None else "1", header=header)
    rows = [row[0] for row in csv.reader(io.StringIO(text, newline=""))][header is None :]
    counted = count_reports(source, ANSWERS)
    more = 3 if header is None else 4
    np.testing.assert_array_equal(counted.counts, [2 + 3, len(rows) - 2 + more - 3])


@pytest.mark.parametrize("rows", [["yes,", "no,x,y"], ["yes,", 'no,"x'], ["yes,", "no"]])
def test_odd_rows_after_such_a_line_are_refused(tmp_path, monkeypatch, rows):
    monkeypatch.chdir(tmp_path)
    written_file(tmp_path, "odd.csv", 'answer,"Re\nmarks"', "\r\n", rows)
    with refused(error=DataError, file="odd.csv", row=4):
        count_reports(Source("odd.csv", column="answer"), ANSWERS)


@pytest.mark.parametrize("end", BREAKS)
@pytest.mark.parametrize("cell", ['"Re"\t', '"Re"x', '"Re\nmarks"\t', ' "Re\nmarks"', '"Re" ', '5" disk'])
def test_characters_beside_quotes_in_the_first_line_lose_no_row(tmp_path, monkeypatch, end, cell):
    """Blanks before quotes and anything after them made DuckDB find no row, in silence beside another file."""
    monkeypatch.chdir(tmp_path)
    written_file(tmp_path, "other.csv", "answer,b", "\n", ["no,"] * 3)
    written_file(tmp_path, "one.csv", f"answer,{cell}", end, ["yes,x"] * 5)
    source = Source(["other.csv", "one.csv"], column="answer")
    if cell == '"Re\nmarks"\t':  # not of any program
        with refused(error=DataError, file="one.csv", row=1):
            count_reports(source, ANSWERS)
    else:
        np.testing.assert_array_equal(count_reports(source, ANSWERS).counts, [3, 5])


def test_a_quote_in_the_first_line_that_is_never_closed_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written_file(tmp_path, "open.csv", 'answer,"Re', "\n", ["yes,", "no,"])
    with refused(error=DataError, file="open.csv", row=1):
        count_reports(Source("open.csv", column="answer"), ANSWERS)


@pytest.mark.full
@pytest.mark.long
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.dat"])
@pytest.mark.parametrize("place", [-2, -1, 0, 1])
def test_a_line_break_of_another_kind_where_a_part_begins_loses_no_row(tmp_path, monkeypatch, name, place):
    """DuckDB reads parts of 8,000,000 bytes, and left out all of a part that began there, in silence."""
    monkeypatch.chdir(tmp_path)
    before = (8_000_000 + place) // 4
    rest = b"y" * ((8_000_000 + place) % 4)
    text = b"no\r\n" * before + rest + b"\r" + b"no\r\n" * 100_000
    (tmp_path / name).write_bytes(gzip.compress(text, 1) if name.endswith(".gz") else text)
    with refused(error=DataError, file=name):
        count_reports(Source(name, header=None if name == "a.dat" else False), read_domain("no,y,yy,yyy"))


@pytest.mark.long
def test_a_large_file_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for end in ("\n", "\r\n"):  # more than the 8 MB of a part, which takes its time
        for name in ("a.csv", "a.dat"):
            written_file(tmp_path, name, "no", end, ["yes"] * 2_500_000)
            counted = count_reports(Source(name, header=None if name == "a.dat" else False), ANSWERS)
            np.testing.assert_array_equal(counted.counts, [1, 2_500_000])
    assert delimited.reading_of("a.csv", 1, ",", False, is_odd=False) == "in parts"


def test_a_control_character_is_part_of_an_item(tmp_path, monkeypatch):
    """It separated the cells of a transaction, of which the first was left."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.dat").write_bytes(b"yes\nno\nyes\x1f\n\x1f\nyes\x1fno\n")
    assert {*count_reports(Source("a.dat")).domain.listed} == {"yes", "no", "yes\x1f", "\x1f", "yes\x1fno"}


def test_mixed_ends_after_such_a_line_lose_no_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.csv").write_bytes(b'answer,"Re\nmarks"\r\n' + b"yes,\nno,\r\n" * 5)
    np.testing.assert_array_equal(count_reports(Source("mixed.csv", column="answer"), ANSWERS).counts, [5, 5])


def test_files_whose_names_differ_in_capitals_are_each_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, folder, rows in (("A.csv", "Site", ["yes,"] * 3), ("a.csv", "site", ["no,"] * 5)):
        (tmp_path / folder).mkdir(exist_ok=True)
        written_file(tmp_path, f"{folder}/{name}", 'answer,"Re\nmarks"', "\r\n", rows)
    source = Source(["Site/A.csv", "site/a.csv"], column="answer")
    np.testing.assert_array_equal(count_reports(source, ANSWERS).counts, [5, 3])


def test_spaces_after_quotes_change_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written_file(tmp_path, "data.csv", '"yes" ,1', "\n", ['"no" , "x" '] * 3)
    np.testing.assert_array_equal(count_reports(Source("data.csv", column="1", header=False), ANSWERS).counts, [3, 1])
    written_file(tmp_path, "broken.csv", '"answer\n",b', "\n", ['"no" ,x'] * 3)
    np.testing.assert_array_equal(count_reports(Source("broken.csv", column="answer"), ANSWERS).counts, [3, 0])


@pytest.mark.long
def test_an_open_quote_in_a_large_file_is_named_with_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written_file(tmp_path, "open.csv", "answer,b", "\n", ["yes,x"] * 1_000_000 + ['no,"x'])
    with refused(error=DataError, file="open.csv", row=1_000_002):
        count_reports(Source("open.csv", column="answer"), ANSWERS)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("first", ['"Any\nremarks",answer', '"Any\r\nremarks",answer'])
def test_a_byte_order_mark_before_such_a_line_makes_no_row(tmp_path, monkeypatch, first, end):
    """DuckDB took the quoted first cell for two lines, and the second one for a row."""
    monkeypatch.chdir(tmp_path)
    for line in (first, "x,answer"):
        (tmp_path / "marked.csv").write_bytes(("\ufeff" + line + end + f"x,yes{end}x,no{end}" * 5).encode())
        np.testing.assert_array_equal(count_reports(Source("marked.csv", column="answer"), ANSWERS).counts, [5, 5])


@pytest.fixture
def tallies(tmp_path, monkeypatch):
    """Stored tallies of two mechanisms, and their labels."""
    monkeypatch.chdir(tmp_path)
    for name, mechanism, users in (
        ("unary", rrjax.mechanisms.OptimizedUnaryEncoding(3, epsilon=1.0), 2000),
        ("direct", rrjax.RandomizedResponse(3, epsilon=1.0), 1700),
    ):
        tally = rrjax.Tally([700, 600, 400], num_users=users, rates=mechanism.rates, domain=["a", "b", "c"])
        save_tally(f"{name}.parquet", tally, mechanism)
    return {"counts": "support", "column": "label", "domain": ["a", "b", "c"]}


@pytest.mark.long
def test_a_stored_tally_is_read_as_what_it_is(tallies):
    """The support of unary encoding was read as counts of randomized response."""
    unary = {"mechanism": "oue", "num_users": 2000}
    assert int(rrjax.read("unary.parquet", epsilon=1.0, **tallies, **unary).tally().num_users) == 2000
    assert int(rrjax.read("direct.parquet", epsilon=1.0, **tallies).tally().num_users) == 1700
    for given, argument in (
        ({"epsilon": 1.0}, "mechanism"),
        ({"epsilon": 1.0, "mechanism": "sue", "num_users": 2000}, "mechanism"),
        ({"epsilon": 2.0} | unary, "epsilon"),
        ({"epsilon": 1.0} | unary | {"num_users": 3000}, "num_users"),
    ):
        with refused(argument):
            rrjax.read("unary.parquet", **tallies, **given)
    for given in ({}, {"epsilon": 2.0}):
        with refused("epsilon"):
            rrjax.read("direct.parquet", **tallies, **given)
    # Of several files the users are those of all.
    unary_of_three = rrjax.mechanisms.OptimizedUnaryEncoding(3, epsilon=1.0)
    other = rrjax.Tally([500, 800, 600], num_users=2000, rates=unary_of_three.rates, domain=["a", "b", "c"])
    save_tally("again.parquet", other, unary_of_three)
    of_both = rrjax.read(["unary.parquet", "again.parquet"], epsilon=1.0, **tallies, **unary | {"num_users": 4000})
    assert int(of_both.tally().num_users) == 4000
    with refused("num_users"):
        rrjax.read(["unary.parquet", "again.parquet"], epsilon=1.0, **tallies, **unary)
    with refused("counts"):
        rrjax.read("direct.parquet", epsilon=1.0, column="label", domain=["a", "b", "c"])


@pytest.mark.long
def test_a_stored_tally_knows_its_domain(tallies):
    """It was sorted, and said to be of the data, though the file has every category."""
    del tallies["domain"]
    direct = rrjax.RandomizedResponse(4, epsilon=1.0)
    for name, labels, first in (("one", "bazc", 500), ("two", "bazc", 501), ("three", "abzc", 502)):
        users = first + 510
        tally = rrjax.Tally([first, 300, 0, 210], num_users=users, rates=direct.rates, domain=list(labels))
        save_tally(f"{name}.parquet", tally, direct)
    own = tallies | {"epsilon": 1.0}
    reports = rrjax.read("one.parquet", **own)
    assert (list(reports.labels), reports.counts.tolist()) == (["b", "a", "z", "c"], [500, 300, 0, 210])
    assert not any("data" in warning for warning in reports.warnings)
    assert rrjax.read(["one.parquet", "two.parquet"], **own).counts.tolist() == [1001, 600, 0, 420]
    assert rrjax.read(["one.parquet", "three.parquet"], **own).counts.tolist() == [800, 802, 0, 420]
    save_tally("range.parquet", rrjax.Tally([50, 30, 0, 21], num_users=101, rates=direct.rates), direct)
    assert rrjax.read("range.parquet", **own).counts.tolist() == [50, 30, 0, 21]


@pytest.mark.long
@pytest.mark.parametrize("kept", [True, False])
def test_a_stored_tally_has_its_categories_and_its_rates(tallies, kept):
    """Those of unary encoding, without the mechanism, were counts of randomized response; those of three, of five."""
    del tallies["domain"]
    unary = rrjax.mechanisms.OptimizedUnaryEncoding(3, epsilon=1.0)
    direct = rrjax.RandomizedResponse(3, epsilon=1.0)
    for made, name, given in ((unary, "unary", {"mechanism": "oue", "num_users": 2000}), (direct, "direct", {})):
        users = given.get("num_users", 1700)
        tally = rrjax.Tally([700, 600, 400], num_users=users, rates=made.rates, domain=["a", "b", "c"])
        save_tally("kept.parquet", tally, made if kept else None)
        own = tallies | given | {"epsilon": 1.0}
        assert int(rrjax.read("kept.parquet", domain=["a", "c", "b"], **own).tally().num_users) == users
        for labels in (["a", "b", "c", "d"], ["a", "b", "c", "d", "e"]):
            with refused("domain"):
                rrjax.read("kept.parquet", domain=labels, **own)
        if not kept:
            with refused("mechanism"):
                rrjax.read("kept.parquet", domain=["a", "b", "c"], **own | {"epsilon": 1.01})
            if name == "unary":
                with refused():
                    rrjax.read("kept.parquet", domain=["a", "b", "c"], epsilon=1.0, **tallies)


def test_a_stored_tally_of_another_design_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(2, epsilon=1.0)
    save_tally(
        "two.parquet", rrjax.Tally([700, 600], num_users=2000, rates=mechanism.rates, domain=["no", "yes"]), mechanism
    )
    warner = {"mechanism": rrjax.mechanisms.Warner(0.8), "domain": ["no", "yes"]}
    with refused("mechanism"):
        rrjax.read("two.parquet", counts="support", column="label", **warner)


@pytest.mark.long
@pytest.mark.parametrize("labels", [["no", "yes"], ["yes", "no"]])
@pytest.mark.parametrize("kept", [True, False])
def test_a_stored_tally_of_a_design_has_its_rates(tmp_path, monkeypatch, labels, kept):
    """With other parameters of the same design its counts were read, as another share."""
    monkeypatch.chdir(tmp_path)
    made = rrjax.mechanisms.ForcedResponse(0.7, [0.4, 0.6])
    tally = rrjax.Tally([700, 1300], num_users=2000, rates=made.rates, domain=["no", "yes"])
    save_tally("one.parquet", tally, made if kept else None)
    own = {"counts": "support", "column": "label", "domain": labels}
    forced = [0.4, 0.6] if labels == ["no", "yes"] else [0.6, 0.4]
    same = rrjax.read("one.parquet", mechanism=rrjax.mechanisms.ForcedResponse(0.7, forced), **own)
    assert sorted(same.counts.tolist()) == [700, 1300]
    for truth, other in ((0.7, [0.5, 0.5]), (0.8, forced), (0.7, forced[::-1])):
        with refused("mechanism"):
            rrjax.read("one.parquet", mechanism=rrjax.mechanisms.ForcedResponse(truth, other), **own)


@pytest.mark.parametrize("label", ["a ", " a", "a\t"])
def test_a_tally_that_no_file_keeps_is_refused_before_it_is_written(tallies, label):
    """It was written over a whole one, and could not be read."""
    mechanism = rrjax.RandomizedResponse(3, epsilon=1.0)
    tally = rrjax.Tally([50, 30, 20], num_users=100, rates=mechanism.rates, domain=[label, "b", "c"])
    with refused("tally"):
        save_tally("direct.parquet", tally, mechanism)
    assert int(load_tally("direct.parquet").tally.num_users) == 1700


@pytest.mark.parametrize("spaces", range(4))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_spaces_before_quotes_make_no_rows(tmp_path, monkeypatch, spaces, end):
    """After two of them quotes were characters, and each line of a cell a row, or a label with quotes."""
    monkeypatch.chdir(tmp_path)
    blank = " " * spaces
    for name, header, rows in (
        ("last", "answer,note", [f'yes,{blank}"well{end}no,bye"', "yes,x", "no,y", "no,z"]),
        ("first", "note,answer", [f'{blank}"well,no{end}bye",yes', "x,yes", "x,no", "x,no"]),
        ("around", "answer,note", [f'{blank}"yes"{blank},{blank}"x"{blank}', "yes,x", f'{blank}"no",y', "no,z"]),
        ("zipped", "answer,note", [f'yes,{blank}"a ""b""  ,  ""c"""', "yes,x", f'{blank}"no",y', "no,z"]),
    ):
        text = end.join([header, *rows, ""]).encode()
        file = f"{name}.csv" + ".gz" * (name == "zipped")
        Path(file).write_bytes(gzip.compress(text) if name == "zipped" else text)
        np.testing.assert_array_equal(count_reports(Source(file, column="answer"), ANSWERS).counts, [2, 2])
    Path("kept.csv").write_text(f'answer\n{blank}"a ""b"" , c"\nyes\n')
    assert 'a "b" , c' in count_reports(Source("kept.csv", column="answer")).domain.labels()
    Path("open.csv").write_text(f'answer,note\nyes,x\nno,{blank}"y\n')
    with refused(error=DataError, file="open.csv"):
        count_reports(Source("open.csv", column="answer"), ANSWERS)


@pytest.mark.long
@pytest.mark.parametrize("spaces", [1, 2])
def test_spaces_before_quotes_in_a_large_file(tmp_path, monkeypatch, spaces):
    """It was refused, because its lines end in several ways: they did not."""
    monkeypatch.chdir(tmp_path)
    rows = [*["yes," + "x" * 90] * 100_000, f'yes,{" " * spaces}"well', 'no,bye"', "no,x"]
    written_file(tmp_path, "large.csv", "answer,note", "\n", rows)
    np.testing.assert_array_equal(count_reports(Source("large.csv", column="answer"), ANSWERS).counts, [1, 100_001])


@pytest.mark.parametrize("end", BREAKS)
@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("cell", ['"Smoke, or not,"', '"Did you ""smoke"", ""drink"" or neither?"', '"Re"', '"x,"'])
def test_quotes_after_a_byte_order_mark_lose_no_row(tmp_path, monkeypatch, cell, marked, end):
    """As spreadsheets write them: there was no row, in silence beside another file."""
    monkeypatch.chdir(tmp_path)
    written_file(tmp_path, "other.csv", "answer,b", "\n", ["no,"] * 3)
    written_file(tmp_path, "marked.csv", "\ufeff" * marked + f"{cell},answer", end, ["x,yes", "x,yes"])
    source = Source(["other.csv", "marked.csv"], column="answer")
    np.testing.assert_array_equal(count_reports(source, ANSWERS).counts, [3, 2])
