"""Text with delimiters: no row is lost, whatever line breaks are in its first line."""

import csv
import io
import itertools

import numpy as np
import pytest
from refusals import refused

import rrjax
from rrjax.io import DataError, Source, count_reports, load_tally, save_tally
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
    if (within, end) == ("\r\n", "\r"):  # not of any program; DuckDB would lose the first character of each row
        with refused(error=DataError, file="one.csv", row=1):
            count_reports(source, ANSWERS)
        return
    counted = count_reports(source, ANSWERS)
    more = 3 if header is None else 4
    np.testing.assert_array_equal(counted.counts, [2 + 3, len(rows) - 2 + more - 3])


@pytest.mark.parametrize("rows", [["yes,", "no,x,y"], ["yes,", 'no,"x'], ["yes,", "no"]])
def test_odd_rows_after_such_a_line_are_refused(tmp_path, monkeypatch, rows):
    """DuckDB is not strict there, and Python has to find the same cells."""
    monkeypatch.chdir(tmp_path)
    written_file(tmp_path, "odd.csv", 'answer,"Re\nmarks"', "\r\n", rows)
    with refused(error=DataError, file="odd.csv", row=1):
        count_reports(Source("odd.csv", column="answer"), ANSWERS)


def test_mixed_ends_after_such_a_line_lose_no_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.csv").write_bytes(b'answer,"Re\nmarks"\r\n' + b"yes,\nno,\r\n" * 5)
    np.testing.assert_array_equal(count_reports(Source("mixed.csv", column="answer"), ANSWERS).counts, [5, 5])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("first", ['"Any\nremarks",answer', '"Any\r\nremarks",answer'])
def test_a_byte_order_mark_before_such_a_line_makes_no_row(tmp_path, monkeypatch, first, end):
    """DuckDB took the quoted first cell for two lines, and the second one for a row."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "marked.csv").write_bytes(("\ufeff" + first + end + f"x,yes{end}x,no{end}" * 5).encode())
    with refused(error=DataError, file="marked.csv", row=1):
        count_reports(Source("marked.csv", column="answer"), ANSWERS)
    (tmp_path / "marked.csv").write_bytes(("\ufeffx,answer" + end + f"x,yes{end}x,no{end}" * 5).encode())
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


def test_a_stored_tally_of_another_design_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(2, epsilon=1.0)
    save_tally(
        "two.parquet", rrjax.Tally([700, 600], num_users=2000, rates=mechanism.rates, domain=["no", "yes"]), mechanism
    )
    warner = {"mechanism": rrjax.mechanisms.Warner(0.8), "domain": ["no", "yes"]}
    with refused("mechanism"):
        rrjax.read("two.parquet", counts="support", column="label", **warner)


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
    for other in (rrjax.mechanisms.ForcedResponse(0.7, [0.5, 0.5]), rrjax.mechanisms.ForcedResponse(0.8, forced)):
        with refused("mechanism"):
            rrjax.read("one.parquet", mechanism=other, **own)


@pytest.mark.parametrize("label", ["a ", " a", "a\t"])
def test_a_tally_that_no_file_keeps_is_refused_before_it_is_written(tallies, label):
    """It was written over a whole one, and could not be read."""
    mechanism = rrjax.RandomizedResponse(3, epsilon=1.0)
    tally = rrjax.Tally([50, 30, 20], num_users=100, rates=mechanism.rates, domain=[label, "b", "c"])
    with refused("tally"):
        save_tally("direct.parquet", tally, mechanism)
    assert int(load_tally("direct.parquet").tally.num_users) == 1700
