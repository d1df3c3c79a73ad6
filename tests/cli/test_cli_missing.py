"""A category that is named as missing is refused by every command, in every way of reading."""

import json
import pathlib

import numpy as np
import pytest

from rrjax import io

pytestmark = pytest.mark.once  # nothing here depends on the precision

COLUMN = ("--column", "smokes", "--domain", "0:2")
PAIR = ("--column", "smokes", "--column", "drinks", "--domain", "0:2", "--domain", "0:1")
ONE = ("r.csv", *COLUMN, "--epsilon", 2)
SAMPLES = ("--mechanism", "anchored-crosswise", "--parameter", "innocuous=0.15", "--parameter", "anchor=0.15")
FORCED = ("--parameter", "truth=2/3", "--parameter", "forced=1/3,1/3,1/3")
LRR = ("--mechanism", "longitudinal-randomized-response", "--first-epsilon", 1, "--user", "id", "--memo", "m.parquet")


@pytest.fixture
def survey(invoke):
    """A table of answers, and what `rrjax randomize` makes of it."""
    rng = np.random.default_rng(0)
    smokes, drinks = rng.choice(3, 400, p=[0.6, 0.3, 0.1]), rng.integers(0, 2, 400)
    io.write_table("r.csv", {"id": np.arange(400), "smokes": smokes, "drinks": drinks, "age": 1.0 + np.arange(400)})
    io.write_table("yes.csv", {"label": np.asarray([1, 0])})
    assert invoke("randomize", "r.csv", *PAIR, "--apart", "--epsilon", 6, "--out", "apart.parquet")[0] == 0
    assert invoke("randomize", "r.csv", *PAIR, "--epsilon", 6, "--out", "pairs.parquet")[0] == 0
    return invoke


@pytest.mark.full
@pytest.mark.parametrize(
    "line",
    [
        ("estimate", *ONE),
        ("estimate", *ONE, "--mean"),
        ("estimate", *ONE, "--mean", "--by", "drinks"),
        ("estimate", *ONE, "--mean", "--weights", "age"),
        ("estimate", "r.csv", *COLUMN, "--counts", "age", "--epsilon", 2),
        ("estimate", "apart.parquet", "--joint", "smokes,drinks"),
        ("estimate", "apart.parquet", "--all-pairs"),
        ("estimate", "apart.parquet", "--tree"),
        ("estimate", "apart.parquet", "--column", "smokes"),
        ("estimate", "r.csv", "--column", "drinks", "--domain", "yes.csv", *SAMPLES, "--sample", "smokes=1,2"),
        ("estimate", "r.csv", *COLUMN, "--mechanism", "forced-response", *FORCED),
        ("compare", *ONE),
        ("compare", "apart.parquet", "--column", "smokes", "--truth", "r.csv", "--truth-column", "smokes"),
        ("report", *ONE),
        ("report", "apart.parquet"),
        ("regress", "r.csv", "--outcome", "smokes", "--covariates", "age", "--domain", "0:2", "--epsilon", 2),
        ("regress", "apart.parquet", "--outcome", "smokes", "--covariates", "drinks"),
        ("test", "fit", *ONE),
        ("test", "fit", "apart.parquet", "--column", "smokes", "--against", "r.csv", "--against-column", "smokes"),
        ("test", "independent", "r.csv", *PAIR),
        ("randomize", "r.csv", *COLUMN, "--epsilon", 2, "--out", "o.parquet"),
        ("randomize", "r.csv", *COLUMN, "--epsilon", 2, "--mechanism", "geometric", "--out", "o.parquet"),
        ("randomize", "r.csv", *PAIR, "--epsilon", 2, "--out", "o.parquet"),
        ("randomize", "r.csv", *PAIR, "--apart", "--epsilon", 2, "--out", "o.parquet"),
        ("randomize", "r.csv", *COLUMN, "--epsilon", 2, *LRR, "--out", "o.parquet"),
        (
            *("randomize", "r.csv", "--column", "smokes", "--mechanism", "square-wave", "--range", "0,2"),
            *("--epsilon", 2, "--out", "o.parquet"),
        ),
        ("study", "data", "r.csv", *COLUMN),
    ],
)
def test_a_category_is_not_missing(survey, monkeypatch, line):
    monkeypatch.setattr("rrjax.cli.study.Machine.settle", lambda self: None)
    assert survey(*line, "--missing", "0")[0] in (2, 3)
    assert "missing" in (survey.error.argument, (survey.error.flag or "").removeprefix("--")), survey.error


@pytest.mark.parametrize(("token", "seen"), [("9", True), ("9.0", True), ("8", False), ("?", False)])
def test_what_is_named_as_missing_and_is_not_there_is_told(invoke, token, seen):
    io.write_table("n.csv", {"n": np.asarray([0, 1, 9 if seen else 1])})
    line = ("randomize", "n.csv", "--domain", "0:1", "--epsilon", 2, "--missing", token, "--out", "o.parquet", "--json")
    out = invoke.done(*line)
    told = any(f"--missing {token}" in each for each in json.loads(out)["warnings"])
    assert told == (not seen)
    assert json.loads(out)["num_missing"] == seen


def test_items_of_transactions_that_mean_missing(invoke):
    pathlib.Path("n.dat").write_text("0 1\n1\n9\n")
    line = ("randomize", "n.dat", "--domain", "0:1", "--epsilon", 2, "--missing", "9", "--out", "o.parquet", "--json")
    assert not any("--missing" in each for each in json.loads(invoke.done(*line))["warnings"])
