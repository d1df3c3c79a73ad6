"""What the command line says, and refuses: repeated flags, pairs, contradicted intervals, plurals, strict JSON."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from refusals import blames
from written import write_counts

from rrjax import io

pytestmark = pytest.mark.once  # nothing here depends on the precision


READ = ("--column", "label", "--counts", "n")


def write_values(name="v.csv", number=4000):
    """Attribute b goes with a, c is independent of both."""
    generator = np.random.default_rng(3)
    a = generator.choice(3, number, p=[0.6, 0.3, 0.1])
    b = np.where(generator.random(number) < 0.5, a == 0, generator.random(number) < 0.5)
    c = generator.choice(4, number, p=[0.85, 0.05, 0.05, 0.05])
    io.write_table(name, {"a": np.array(list("xyz"))[a], "b": np.where(b, "no", "yes"), "c": c})
    return a, b, c


PAIR = ("randomize", "v.csv", "--column", "a", "--column", "b", "--epsilon", "2", "--out", "p.parquet")


@pytest.mark.full
def test_two_columns_are_randomized_as_a_pair_and_tested(invoke):
    a, b, _ = write_values()
    assert "disclosed without any privacy" in invoke.said(0, *PAIR, "--seed", "1")
    metadata = io.read_metadata("p.parquet")
    assert metadata is not None
    assert (metadata.columns, metadata.column, metadata.num_categories) == (("a", "b"), "a × b", 6)
    # The category of the product is kept with the probability of K = 6.
    kept = np.mean(io.read_values(io.Source("p.parquet")).indices == 2 * a + ~b)
    p = np.exp(2) / (np.exp(2) + 5)
    assert abs(kept - p) < 5 * np.sqrt(p * (1 - p) / len(a))
    out = invoke.done("test", "independent", "p.parquet")
    assert "p = 0.0001 " in out
    result = invoke.json("test", "independent", "p.parquet", "--column", "a", "--column", "b")
    assert (result["columns"], result["num_categories"], result["tests"][0]["rejected"]) == (["a", "b"], [3, 2], True)


@pytest.mark.full
def test_independent_values_make_dependent_pairs_that_are_not_called_dependent(invoke):
    write_values(number=40_000)
    line = ("randomize", "v.csv", "--column", "a", "--column", "c", "--epsilon", "1", "--seed", "2")
    invoke.said(3, *line, "--domain", "labels.txt", "--domain", "0:3", "--out", "p.parquet")
    Path("labels.txt").write_text("x\ny\nz\n")
    assert "domain" not in invoke.said(0, *line, "--domain", "labels.txt", "--domain", "0:3", "--out", "p.parquet")
    assert invoke.json("test", "independent", "p.parquet", "--draws", "999")["tests"][0]["rejected"] is False
    # What a test that takes the reports for those of two randomizations says.
    reported = io.read_values(io.Source("p.parquet")).indices
    io.write_table("apart.csv", {"a": reported // 4, "c": reported % 4})
    line = ("test", "independent", "apart.csv", "--column", "a", "--column", "c", "--draws", "999")
    assert invoke.json(*line)["tests"][0]["rejected"] is True


@pytest.mark.long
def test_a_file_of_pairs_is_estimated_and_compared(invoke):
    write_values()
    assert invoke(*PAIR, "--seed", "1")[0] == 0
    result = invoke.json("compare", "p.parquet", "--truth", "v.csv", "--estimator", "mle-star")
    assert result["top"][0]["label"] == "x × no"
    assert result["estimators"][0]["errors"]["tv"] < 0.1
    for flags in (("--column", "a"), ("--epsilon", "3")):
        invoke.refuses(flags[0], "estimate", "p.parquet", *flags)


@pytest.mark.parametrize("flags", [("--column", "c"), ("--domain", "labels.txt")])
def test_pairs_that_are_refused(invoke, flags):
    write_values()
    invoke.refuses(flags[0], *PAIR, *flags)
    assert io.read_values(io.Source("v.csv", column="a")).indices.size == 4000


def test_contradictions_of_columns(invoke):
    write_values()
    one = ("randomize", "v.csv", "--epsilon", "2", "--out", "p.parquet", "--column", "a")
    for flags in (("--column", "a"), ("--domain", "0:3", "--domain", "0:3")):
        invoke.refuses(flags[0], *one, *flags)
    assert invoke(*PAIR)[0] == 0
    for flags in (("--column", "b", "--column", "a"), ("--domain", "0:3", "--domain", "0:1")):
        invoke.refuses(flags[0], "test", "independent", "p.parquet", *flags)
        assert "p.parquet" in str(invoke.error)
    code, _, error = invoke("test", "independent", "v.csv")
    assert (code, "v.csv" in error) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (("randomize", "v.csv", "--epsilon", "1", "--epsilon", "2", "--out", "p.parquet"), "--epsilon"),
        (("estimate", "v.csv", "--column", "a", "--column", "b", "--epsilon", "1"), "--column"),
        (("estimate", "v.csv", "--header", "--no-header", "--epsilon", "1"), "--header"),
        (("compare", "v.csv", "--level", "0.9", "--level", "0.8"), "--level"),
        (("demo", "--users", "10", "--users", "20"), "--users"),
        (("plan", "--categories", "10", "--categories", "20"), "--categories"),
        (("study", "quick", "--out", "a", "--out", "b"), "--out"),
        (("test", "fit", "v.csv", "--domain", "0:1", "--domain", "0:2"), "--domain"),
        (("test", "equal", "v.csv", "v.csv", "--seed", "1", "--seed", "2"), "--seed"),
        (("test", "trend", "v.csv", "v.csv", "--category", "a", "--category", "b"), "--category"),
        (("test", "independent", "v.csv", "--draws", "99", "--draws", "999"), "--draws"),
    ],
)
def test_an_option_that_takes_one_value_is_refused_twice(invoke, arguments, flag):
    code, out, _ = invoke(*arguments)
    assert (code, out) == (2, "")
    assert blames(invoke.error, flag)


@pytest.mark.parametrize(
    ("arguments", "flag", "came"),
    [
        (("estimate", "r.csv", "--epsilon", "half"), "--epsilon", "'half'"),
        (("plan", "--categories", "1.5", "--epsilon", "1"), "--categories", "'1.5'"),
        (("estimate", "r.csv", "--epsilon", "1", "--quantile", "0.5", "--quantile", "top"), "--quantile", "'top'"),
        (("audit", "--categories", "5", "--epsilon", "1", "--draws", "3"), "--draws", "3"),
        (("estimate", "r.csv", "--epsilon", "1", "--estimator", "best"), "--estimator", "'best'"),
        (("plan", "--categories", "10", "--epsilon", "1", "--users", "10.000"), "--users", "'10.000'"),
        (("study", "paper", "--figure", "1", "--figure", "2.0"), "--figure", "'2.0'"),
        (("demo", "--users", "1_000"), "--users", "'1_000'"),
    ],
)
def test_a_value_that_cannot_be_is_repeated(invoke, arguments, flag, came):
    code, out, error = invoke(*arguments)
    assert (code, out) == (2, "")
    assert blames(invoke.error, flag)
    assert error.count(came) == 1


@pytest.mark.long
def test_options_that_take_several_values_may_be_repeated(invoke):
    io.write_table("r.csv", {"a": np.array(["x", "y", "?", "-"] * 10)})
    assert invoke.json("estimate", "r.csv", "--epsilon", "1", "--missing", "?", "--missing", "-")["num_missing"] == 20


@pytest.mark.full
def test_categories_without_an_interval_are_said_to_contradict_the_mechanism(invoke, monkeypatch):
    write_counts("r.csv", [9000, 900, 10, 950])
    out = invoke.done("estimate", "r.csv", *READ, "--epsilon", "1")
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith(("a ", "b ", "c ", "d "))}
    assert "–  ●!" in rows["a"]
    assert "–  !" in rows["b"]
    assert "! 4 categories (marked !) have no interval" in out
    result = invoke.json("estimate", "r.csv", *READ, "--epsilon", "1")
    assert result["num_contradicted"] == 4
    assert all(row["contradicted"] and row["lower"] is row["upper"] is None for row in result["top"])
    # At 80 columns there is room for all of it in one table.
    monkeypatch.setenv("COLUMNS", "80")
    out = invoke("estimate", "r.csv", *READ, "--epsilon", "1")[1]
    assert sum(line.startswith("category  ") for line in out.splitlines()) == 1
    # Two estimates and an interval leave no room for the bars; one does.
    assert "████" not in out
    assert "●!  ████" in invoke("estimate", "r.csv", *READ, "--epsilon", "1", "--estimator", "mle-star")[1]


@pytest.mark.long
def test_intervals_that_contradict_nothing_carry_no_mark(invoke):
    write_counts("r.csv", [5200, 2850, 1000, 950])
    _, out, _ = invoke("estimate", "r.csv", *READ, "--epsilon", "2")
    assert "!" not in out


@pytest.mark.full
def test_json_is_strict_and_what_is_infinite_is_null(invoke):
    write_counts("r.csv", [50, 40, 0])
    write_counts("t.csv", [50, 40, 30])
    read = ("--truth", "t.csv", "--truth-column", "label", "--truth-counts", "n")
    result = invoke.json("compare", "r.csv", *READ, "--epsilon", "8", *read)
    assert result["estimators"][0]["errors"]["kl"] is None
    assert invoke.json("plan", "--categories", "10", "--epsilon", "1", "--users", "1")["detectable"] is None


@pytest.mark.long
def test_metrics_of_distributions_are_null_for_what_is_none(invoke):
    """The unbiased estimate has a negative share, whose KL divergence came out negative; Base-Pos sums to more."""
    write_counts("r.csv", [500, 310, 110, 80])
    write_counts("t.csv", [55, 30, 15, 0])
    read = ("--truth", "t.csv", "--truth-column", "label", "--truth-counts", "n")
    names = [flag for name in ("inv", "base_pos", "inv_p") for flag in ("--estimator", name)]
    line = ("compare", "r.csv", *READ, "--epsilon", "2", *read, *names)
    *improper, proper = invoke.json(*line)["estimators"]
    for row in improper:
        assert row["certificate"]["simplex_violation"] > 1e-3
        assert (row["nll"], row["errors"]["kl"], row["certificate"]["gap"]) == (None, None, None)
        assert min(row["errors"][name] for name in ("mse", "tv", "max_error")) > 0
    assert None not in (proper["nll"], proper["certificate"]["gap"], *proper["errors"].values())
    rows = [line.split() for line in invoke(*line, "--explain")[1].splitlines() if line]
    for title in ("Inv", "Base-Pos"):
        assert next(row for row in rows if row[0] == title).count("–") == 3
    assert [row[1:3] for row in rows if row[0] == "–"] == [["Inv,", "Base-Pos:"]]  # the reason


@pytest.mark.long
def test_one_spelling_of_names_in_what_machines_read(invoke):
    write_counts("r.csv", [50, 40, 30])
    result = invoke.json("compare", "r.csv", *READ, "--epsilon", "2", "--estimator", "mle-star")
    assert [row["estimator"] for row in result["estimators"]] == ["mle_star"]
    two = ("--estimator", "mle-star", "--estimator", "inv-n", "--out", "e.jsonl")
    result = invoke.json("compare", "r.csv", *READ, "--epsilon", "2", *two)
    names = set(json.loads(Path("e.jsonl").read_text().splitlines()[0]))
    assert set(result["top"][0]) == names == {"label", "count", "mle_star", "inv_n"}
    result = invoke.json("estimate", "r.csv", *READ, "--epsilon", "2")
    assert result["closest"]["estimator"] == "empirical_bayes"
    assert result["likeliest"]["estimator"] == "mle_star"
    result = invoke.json("plan", "--categories", "10", "--epsilon", "1", "--users", "100")
    assert result["mechanism"] in [row["name"] for row in result["mechanisms"]]


def ones(text):
    """What follows the number one: "1 row", "1 of 71 reports is"."""
    return set(re.findall(r"\b1 (?:of \S+ \w+ )?(\w+)", text))


@pytest.mark.full
def test_one_of_anything_is_singular(invoke):
    io.write_table("one.csv", {"a": np.array(["x"])})
    Path("labels.txt").write_text("x\ny\n")
    read = ("--epsilon", "1", "--domain", "labels.txt")
    _, out, _ = invoke("randomize", "one.csv", *read, "--out", "p.parquet")
    assert "report" in ones(out)
    io.write_table("r.csv", {"a": np.array(["x"] * 30 + ["y"] * 40 + [""])})
    _, out, error = invoke("randomize", "r.csv", *read, "--out", "q.parquet")
    assert "row" in ones(error)
    _, out, error = invoke("estimate", "r.csv", *read)
    assert "is" in ones(error)
    write_counts("r.csv", [900, 90, 10])
    _, out, error = invoke("estimate", "r.csv", *READ, "--epsilon", "2")
    assert "category" in ones(error)
    assert "intervals" not in ones(out)
    assert "has" in ones(invoke("estimate", "r.csv", *READ, "--epsilon", "2", "--explain")[1])
    _, _, error = invoke("estimate", "r.csv", *READ, "--epsilon", "1", "--domain", "3:3")
    assert "category" in ones(error)
    io.write_table("two.csv", {"a": np.array(["x"]), "b": np.array(["y"])})
    columns = ("--column", "a", "--column", "b", "--domain", "labels.txt", "--domain", "labels.txt")
    _, out, error = invoke("test", "independent", "two.csv", *columns)
    assert "user" in ones(out), error
    _, out, _ = invoke("plan", "--categories", "2", "--epsilon", "20", "--target-rmse", "0.9")
    assert "user" in ones(out)


def test_standard_input_is_refused_with_what_to_do(invoke):
    error = invoke.said(3, "estimate", "-", "--format", "csv", "--epsilon", "1")
    assert isinstance(invoke.error, io.DataError)
    assert "file" in error  # the advice: save it to one


@pytest.mark.full
def test_a_table_of_counts_that_is_read_row_by_row_is_noticed(invoke):
    write_counts("census.csv", [500, 300, 200])
    write_counts("r.csv", [1, 1, 1])
    io.write_table("reports.csv", {"label": np.array(list("aaabbc"))})
    reading = ("--column", "label", "--epsilon", "1")
    assert sum("--counts" in warning for warning in invoke.json("estimate", "census.csv", *reading)["warnings"]) == 1
    for command in (("compare", "reports.csv", "--truth"), ("test", "fit", "reports.csv", "--against")):
        flag = command[-1]
        invoke.refuses(f"{flag}-counts", *command, "census.csv", *reading, f"{flag}-column", "label")
        invoke.done(*command, "census.csv", *reading, f"{flag}-column", "label", f"{flag}-counts", "n")
