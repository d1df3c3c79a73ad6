"""What is taken for something else: reports for counts or true values, a column for another one, labels for numbers."""

from pathlib import Path

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

pytestmark = pytest.mark.once


@pytest.fixture
def files(invoke):
    """`invoke` beside v.parquet, true values with names that differ in case, and r.parquet, its reports."""
    rng = np.random.default_rng(0)
    columns = {"answer": rng.choice(["no", "yes"], 300), "age": ["SECRET"] * 300, "Age": ["secret"] * 300}
    columns |= {"Age_1": rng.choice(["10-20", "20-30"], 300), "n": rng.integers(1, 90, 300)}
    parquet.write_table(pyarrow.table(columns), "v.parquet")
    flags = ("--column", "answer", "--domain", "no,yes", "--epsilon", "1", "--seed", "1")
    invoke.done("randomize", "v.parquet", *flags, "--keep", "Age_1,n", "--out", "r.parquet")
    invoke.done("randomize", "v.parquet", *flags, "--mechanism", "olh", "--keep", "n", "--out", "h.parquet")
    return invoke


@pytest.mark.long
def test_the_columns_that_were_named_are_kept_and_randomized(files):
    kept, values = parquet.read_table("r.parquet"), parquet.read_table("v.parquet")
    assert kept.column_names == ["answer", "Age_1", "n"]
    assert kept["Age_1"].to_pylist() == values["Age_1"].to_pylist()
    files.done("randomize", "v.parquet", "--column", "Age_1", "--epsilon", "30", "--seed", "1", "--out", "b.parquet")
    assert parquet.read_table("b.parquet")["Age_1"].to_pylist() == values["Age_1"].to_pylist()
    files.said(3, "estimate", "v.parquet", "--column", "Age_1_1", "--epsilon", "1")


@pytest.mark.long
@pytest.mark.parametrize("name", ["r.parquet", "h.parquet"])
@pytest.mark.parametrize("command", [("estimate",), ("compare",), ("report", "--out", "p.html"), ("test", "fit")])
def test_reports_are_no_counts(files, name, command):
    files.refuses("--counts", *command, name, "--counts", "n")
    table = ("--num-users", 900, "--mechanism", "oue", "--epsilon", 1, "--domain", "no,yes")
    files.refuses("--counts", "estimate", name, "--column", "answer", "--counts", "n", *table)


@pytest.mark.long
@pytest.mark.parametrize("name", ["r.parquet", "h.parquet"])
def test_reports_are_no_true_values(files, name, monkeypatch):
    monkeypatch.setattr("rrjax.cli.study.Machine.settle", lambda self: None)  # JAX cannot be configured once more
    for flag, *line in (
        ("VALUES", "randomize", name, "--column", "answer", "--epsilon", "1", "--out", "new.parquet"),
        ("FILES", "study", "data", name, "--column", "answer", "--num-seeds", "2", "--out", "study"),
        ("FILES", "study", "data", name, "--column", "answer", "--counts", "n", "--num-seeds", "2", "--out", "study"),
        ("--truth", "compare", "r.parquet", "--truth", name),
        ("--against", "test", "fit", "r.parquet", "--against", name),
    ):
        files.refuses(flag, *line)
        assert files.error.value == name


def test_reports_are_no_answers_to_designs_of_a_column(files):
    line = ("estimate", "r.parquet", "--column", "answer", "--domain", "no,yes")
    files.refuses("--mechanism", *line, "--mechanism", "@Age_1")


def test_reports_are_not_compared_with_themselves(files):
    read = ("--column", "answer", "--domain", "no,yes", "--epsilon", "1")
    for more in ((), ("--against-column", "answer")):
        files.refuses("--against", "test", "fit", "v.parquet", *read, "--against", "v.parquet", *more)
    files.refuses("--truth", "compare", "v.parquet", *read, "--truth", "v.parquet", "--truth-column", "answer")


def test_labels_with_underscores_are_no_numbers(files):
    with open("b.csv", "w") as stream:
        stream.write("band,weight\n" + "18_24,1_0\n25_34,2\n" * 50)
    read = ("b.csv", "--column", "band", "--domain", "18_24,25_34")
    files.refuses("--mean", "estimate", *read, "--epsilon", "1", "--mean")
    files.refuses("--epsilon", "estimate", *read, "--epsilon", "1_0")
    error = files.said(3, "estimate", *read, "--epsilon", "1", "--weights", "weight")
    assert (files.error.column, files.error.row) == ("weight", 1)
    assert "--factors" not in error  # which estimate does not have
    waves = ("--mechanism", "square-wave", "--epsilon", "1", "--out", "w.parquet")
    files.refuses("--range", "randomize", "b.csv", "--column", "band", "--range", "0,5_000", *waves)
    files.said(3, "randomize", "b.csv", "--column", "band", "--range", "0,5000", *waves)


def test_a_statement_asked_for_twice_gets_its_own_advice(files):
    read = ("estimate", "v.parquet", "--column", "n", "--domain", "1:90", "--epsilon", "1")
    assert "--group" not in files.refuses("--quantile", *read, "--quantile", ".5", "--quantile", ".5")
    assert "--group NAME=" in files.refuses("--group", *read, "--group", "5", "--group", "5")


def test_a_name_that_is_too_long_is_said_of_its_file(files):
    name = "x" * 300 + ".csv"
    error = files.said(3, "estimate", "r.parquet", "--out", name)
    assert name in error
    assert files.error.file == name


def test_one_answer_twice_is_no_file_twice(files):
    assert "twice" not in files.said(3, "estimate", "yes", "yes", "--epsilon", "1")


def test_a_first_line_that_may_be_values_is_not_repeated(files):
    """Two names that are one are two values of a file without names."""
    Path("two.csv").write_text("positive,positive\nnegative,positive\nnegative,negative\n")
    line = ("randomize", "two.csv", "--epsilon", "1", "--out", "two.parquet")
    assert "positive" not in files.said(3, *line)
    assert "'positive'" in files.said(3, *line, "--header")


@pytest.mark.long
def test_a_page_about_other_reports_is_not_replaced(files):
    """By the default name, which is that of the file without its folder; about the same file it is."""
    pytest.importorskip("matplotlib")
    read = ("--column", "answer", "--domain", "no,yes", "--epsilon", "1")
    for folder in ("jan", "feb"):
        Path(folder).mkdir()
        Path(folder, "r.1.csv").write_text("answer\n" + "no\nyes\n" * 20)
    for _ in range(2):
        files.done("report", "jan/r.1.csv", *read)
    page = Path("r.1-report.html").read_bytes()
    files.refuses("--out", "report", "feb/r.1.csv", *read)
    assert Path("r.1-report.html").read_bytes() == page
    for more in (("--out", "r.1-report.html"), ("--force",)):
        files.done("report", "feb/r.1.csv", *read, *more)
    assert b"/jan/" not in page
