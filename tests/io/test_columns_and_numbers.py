"""Columns are those that were named, whatever DuckDB calls them; numbers are what people write as numbers."""

import json
import unicodedata

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import refused
from written import written

import rrjax
from rrjax.data.errors import DataError
from rrjax.data.number_text import plain
from rrjax.io import Source, count_reports, read_counts, read_values
from rrjax.io.database import connect, double, number_of
from rrjax.io.domain import Domain
from rrjax.io.numbers import Bins, read_bins
from rrjax.io.read import count_by
from rrjax.io.rows import read_covariate
from rrjax.io.scan import column_names, selected

pytestmark = pytest.mark.once  # nothing here depends on the precision
# DuckDB calls the third column Age_1, and the fourth one Age_1_1. Members of nested columns are no columns.
NAMES = {
    "made": [{"age": 1, "Age": [2]}] * 4,
    "age": ["a", "b", "a", "b"],
    "Age": ["c", "d", "d", "d"],
    "Age_1": ["0", "1", "1", "0"],
}


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2])
def test_names_that_differ_in_case_are_different_columns(tmp_path, number):
    files = [str(tmp_path / f"{place}.parquet") for place in range(number)]
    for place, file in enumerate(files):  # copies would be refused
        pq.write_table(pa.table({"row": range(4 * place, 4 * place + 4), **NAMES}), file)
    assert column_names(Source(files)) == ["row", *NAMES]
    for name in ("age", "Age", "Age_1"):
        values = read_values(Source(files, column=name))
        assert values.domain.labels()[values.indices].tolist() == NAMES[name] * number
    with refused(error=DataError, column="Age_1_1"):
        count_reports(Source(files, column="Age_1_1"))


def test_equal_names_in_parquet_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array(["x", "y"]), pa.array(["y", "y"])], names=["a", "a"]), path)
    with refused(error=DataError, column="a"):
        count_reports(Source(path, column="a"))


@pytest.mark.long
def test_levels_and_weights_of_a_frame_are_those_that_were_named():
    given = {
        "answer": ["no", "yes"] * 2,
        **NAMES,
        "w": [1.0] * 4,
        "W": [1.0, 3.0, 1.0, 3.0],
        "W_1": [5.0, 1.0, 1.0, 1.0],
    }
    reports = rrjax.read(pa.table(given), column="answer", domain=["no", "yes"], epsilon=1.0)
    found = reports.by("Age", group=["yes"]).columns
    assert dict(zip(found["of"].tolist(), found["num_reports"].tolist(), strict=True)) == {
        "all": 4,
        "c": 1,
        "d": 3,
        "c less d": 4,
    }
    weighted = {name: float(reports.group(["yes"], weights=name).columns["value"][0]) for name in ("w", "W", "W_1")}
    assert weighted["W"] > weighted["w"] > weighted["W_1"]


@pytest.mark.parametrize("column", ["answer", "Answer", "Answer_1", "other"])
def test_keys_that_differ_in_case_are_refused(tmp_path, column):
    rows = [{"answer": "yes", "other": "a"}, {"Answer": "no", "other": "b"}]
    path = written(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    with refused(error=DataError, column="answer", file=str(path)):
        count_reports(Source(path, column=column), ["no", "yes"])
    rows = [{"answer": "yes", "answer_1": "a", "Answer_2": "a"}, {"answer": "no", "answer_1": "b", "Answer_2": "b"}]
    path = written(tmp_path / "b.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    assert count_reports(Source(path, column="answer_1"), ["a", "b"]).counts.tolist() == [1, 1]


NUMBERS = ["1", "+1", "-1.5", ".5", "5.", "1e5", "1E+5", "007"]
NO_NUMBERS = ["1_0", "18_24", "1e5_0", "+-1", "١٢", "1,5", "1 0", "0x10", "1e", "1d", "", "."]


def test_one_notation_of_numbers_in_python_and_sql():
    for text in [*NUMBERS, *NO_NUMBERS]:
        in_sql = duckdb.sql(f"SELECT {double('text')} FROM (SELECT '{text}' AS value)").fetchall()[0][0]
        try:
            in_python = float(plain(text))
        except ValueError:
            in_python = None
        assert (in_sql, number_of(text)) == (in_python, in_python), text
        assert (in_python is None) == (text in NO_NUMBERS), text


def test_bands_are_no_numbers(tmp_path):
    path = written(tmp_path / "a.csv", "a,band\n" + "1_0,18_24\n10,25_34\n10,18_24\n" * 3)
    assert read_covariate(Source(path, column="band")).levels == ("18_24", "25_34")
    assert not Bins(0, 5000, 2).has("18_24")
    assert count_reports(Source(path, column="a", missing="10"), ["1_0", "2"]).num_missing == 6
    reports = rrjax.read(path, column="band", epsilon=1.0)
    with refused("mean", value="18_24"):
        reports.mean()
    with refused(error=DataError, column="a", row=1):
        reports.group(["18_24"], weights="a")
    with refused("epsilon", value="1_0"):
        rrjax.read(path, column="band", epsilon="1_0")
    third = {"truth_probability": "0_1/3"}
    with refused("truth_probability", value="0_1/3"):
        rrjax.read(path, column="band", domain=["18_24", "25_34"], mechanism="warner", parameters=third)


@pytest.mark.parametrize("missing", [9, [9], [9, None], (9.0,), "9"])
def test_missing_answers_are_given_as_texts_or_numbers(tmp_path, missing):
    path = written(tmp_path / "a.csv", "a,b\n9,x\n1,x\n2,y\n1,x\n")
    frame = pa.table({"a": [9, 1, 2, 1]})
    for data in (path, frame):
        found = rrjax.read(data, column="a", domain="1:2", epsilon=1.0, missing=missing)
        assert (found.counts.tolist(), found.counted.num_missing) == ([2, 1], 1)


def test_columns_are_given_as_numbers(tmp_path):
    path = written(tmp_path / "a.csv", "x,1\ny,2\nx,1\n")
    for column in (1, "1"):
        found = rrjax.read(path, column=column, header=False, epsilon=1.0)
        assert found.counts.tolist() == [2, 1]
    with refused(error=DataError, column="3"):
        rrjax.read(path, column=3, header=False, epsilon=1.0)
    with refused(error=DataError, column="3"):
        rrjax.read(path, column=1, counts=3, header=False, epsilon=1.0)


def test_an_empty_key_is_named(tmp_path):
    path = written(tmp_path / "a.jsonl", '{"a": "yes"}\n{"": "no"}\n')
    with refused(error=DataError, file=str(path), row=2):
        count_reports(Source(path, column="a"))


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_nan_among_numbers_is_missing_everywhere(tmp_path, kind):
    """Statistics of Parquet leave it out, and DuckDB concludes that no number is so large."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": pa.array([1.0, 2.5, float("nan"), None, 3.0], kind)}), path)
    np.testing.assert_array_equal(read_covariate(Source(path)).values, [1, 2.5, np.nan, np.nan, 3])
    assert read_covariate(Source(path), factor=True).levels == ("1", "2.5", "3")
    assert read_bins(Source(path), Bins(0, 4, 4)).indices.tolist() == [1, 2, 3]
    assert count_reports(Source(path)).missing == {"": 1, "nan": 1}


def test_keys_that_come_late_are_columns(tmp_path):
    """DuckDB looks for keys in the first 20,480 rows."""
    rows = '{"a": "x"}\n' * 21_000 + '{"a": "y", "n": 3, "g": "s"}\n'
    source = Source(written(tmp_path / "a.jsonl", rows), column="a")
    assert sorted((*key, *found.counts) for key, found in count_by(source, ["g"], Domain.of("xy")).items()) == [
        ("", 21_000, 0),
        ("s", 0, 1),
    ]
    with connect() as connection:
        kept = connection.execute(selected(connection, source, ["g", "n"])).fetchall()
    assert kept[-2:] == [(None, None), ("s", "3")]
    source = Source(written(tmp_path / "b.jsonl", '{"a": "x", "b": 1}\n' * 21_000 + '{"a": "y", "n": 3}\n'), column="a")
    with refused(error=DataError, column="n", row=1):  # not that there is no such column
        read_counts(source, "n", ["x", "y"])


@pytest.mark.parametrize("header", [0, 1, "no"])
def test_a_header_is_true_or_false(tmp_path, header):
    with refused("header", error=DataError):
        rrjax.read(written(tmp_path / "a.csv", "no\nyes\nno\n"), header=header, epsilon=1.0, domain=["no", "yes"])


@pytest.mark.parametrize("first", ["ill", "Ill", "ILL"])
def test_an_answer_in_other_letters_is_no_header(tmp_path, first):
    path = written(tmp_path / "a.csv", f"{first}\nwell\nill\nwell\n")
    with refused(error=DataError, argument="header", row=1):
        count_reports(Source(path), ["ill", "well"])
    assert np.sum(count_reports(Source(path, header=True), ["ill", "well"]).counts) == 3


def test_the_names_of_rows_that_programs_write_first_have_no_name(tmp_path):
    """As pandas and R write tables: the first cell of the header is empty."""
    path = written(tmp_path / "a.csv", ",a,w\n0,yes,1.5\n1,no,2\n2,yes,3\n")
    assert count_reports(Source(path, column="a"), ["no", "yes"]).counts.tolist() == [1, 2]
    assert read_covariate(Source(path, column="w")).values.tolist() == [1.5, 2, 3]
    for header, column in ((",a,w", None), (",a,w", "b"), (",a,1", "a"), ("a,,w", "a"), (",a,", "a")):
        path = written(tmp_path / "b.csv", f"{header}\n0,yes,1.5\n1,no,2\n")
        with refused(error=DataError, argument="header", row=1):
            count_reports(Source(path, column=column), ["no", "yes"])


def test_another_form_of_unicode_is_told(tmp_path):
    name = "Zürich"
    path = written(tmp_path / "a.csv", f"a\nTea\n{unicodedata.normalize('NFD', name)}\n")
    with refused(error=DataError, row=2) as error:
        count_reports(Source(path, column="a"), [name, "Tea"])
    assert "Unicode" in str(error.value)
