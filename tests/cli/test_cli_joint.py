"""Several columns randomized apart on the command line: one column, the joint distribution, all pairs."""

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import blames

from rrjax import io

pytestmark = pytest.mark.once
SHARES = np.array([[0.35, 0.05, 0.1], [0.05, 0.25, 0.2]])  # smokes × drinks


@pytest.fixture
def survey(invoke):
    """6,000 users: two columns that go together, and one that does not."""
    rng = np.random.default_rng(1)
    cells = rng.choice(6, size=6000, p=SHARES.ravel())
    smokes, drinks = np.array(["yes", "no"])[cells // 3], np.array(["often", "rarely", "never"])[cells % 3]
    io.write_table("v.csv", {"smokes": smokes, "drinks": drinks, "coin": rng.integers(0, 2, 6000)})
    Path("yn.txt").write_text("yes\nno\n")
    Path("d.txt").write_text("often\nrarely\nnever\n")
    return invoke


LINE = ["randomize", "v.csv", "--column", "smokes", "--column", "drinks", "--column", "coin", "--apart"]
DOMAINS = ["--domain", "yn.txt", "--domain", "d.txt", "--domain", "0:1"]


@pytest.mark.long  # joint tables, simulated tests
def test_a_survey_of_three_questions(survey):
    code, out, error = survey(*LINE, *DOMAINS, "--epsilon", 6, "--seed", 1, "--out", "s.parquet", "--json")
    assert code == 0, error
    made = json.loads(out)
    assert [each["epsilon"] for each in made["columns"]] == [2, 2, 2]
    assert made["effective_epsilon"] <= 6

    code, out, error = survey("estimate", "s.parquet", "--joint", "smokes,drinks", "--json", "--out", "all.csv")
    assert code == 0, error
    found = json.loads(out)
    assert found["converged"]
    assert found["gap"] < 1e-4
    true = {
        (a, b): SHARES[i, j] for i, a in enumerate(("yes", "no")) for j, b in enumerate(("often", "rarely", "never"))
    }
    for row in found["top"]:
        share = true[tuple(row["labels"])]
        assert abs(row["unbiased"] - share) < 4 * row["standard_error"]
        assert abs(row["share"] - share) < 5 * row["standard_error"]
    expected = np.outer(SHARES.sum(axis=1), SHARES.sum(axis=0))
    v = np.sqrt(((SHARES - expected) ** 2 / expected).sum())
    assert abs(found["association"]["cramers_v"] - v) < 0.06
    assert found["association"]["p_value"] < 0.01

    pairs = json.loads(survey("estimate", "s.parquet", "--all-pairs", "--json")[1])["pairs"]
    assert pairs[0]["columns"] == ["smokes", "drinks"]
    assert all(each["adjusted_p_value"] >= each["p_value"] for each in pairs)
    assert pairs[0]["adjusted_p_value"] < 0.01

    # Each column is a file of randomized response for every command.
    code, out, error = survey("estimate", "s.parquet", "--column", "drinks", "--json")
    assert code == 0, error
    assert json.loads(out)["epsilon"] == pytest.approx(2, abs=1e-6)
    assert survey("test", "independent", "s.parquet", "--column", "smokes", "--column", "coin", "--json")[0] == 0
    assert survey("estimate", "s.parquet")[0] == 3
    assert survey.error.argument == "column"
    assert survey("estimate", "s.parquet", "--joint", "smokes,drinks", "--out", "s.parquet")[0] == 2


def test_missing_answers_and_weights(survey):
    Path("m.csv").write_text("a,b\nyes,1\n,0\nno,1\nyes,0\nno,\n" + "yes,1\n" * 50)
    line = ["randomize", "m.csv", "--column", "a", "--column", "b", "--apart", "--out", "m.parquet", "--json"]
    code, out, error = survey(*line, "--epsilon", 3, "--split", "2,1")
    assert code == 0, error
    made = json.loads(out)
    assert made["num_reports"] == 53
    assert [each["epsilon"] for each in made["columns"]] == [2, 1]
    assert sum(each["effective_epsilon"] for each in made["columns"]) <= 3


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ([*LINE[:4], "--apart", "--epsilon", 1], "--column"),
        ([*LINE[:4], "--column", "smokes", "--apart", "--epsilon", 1], "--column"),
        ([*LINE, "--domain", "yn.txt", "--epsilon", 1], "--domain"),
        ([*LINE, "--epsilon", 1, "--split", "1,2"], "--split"),
        ([*LINE, "--epsilon", 1, "--split", "1,2,0"], "--split"),
        ([*LINE, "--epsilon", 1, "--mechanism", "oue"], "--mechanism"),
        ([*LINE, "--epsilon", 1, "--keep", "coin"], "--keep"),
        ([*LINE[:-1], "--epsilon", 1, "--split", "1,2,3"], "--split"),
    ],
)
def test_columns_that_cannot_be_randomized_apart(survey, line, flag):
    assert survey(*line, "--out", "s.parquet")[0] == 2
    assert blames(survey.error, flag)
    assert not Path("s.parquet").exists()


def test_joint_estimates_that_cannot_be(survey):
    assert survey(*LINE, *DOMAINS, "--epsilon", 6, "--seed", 1, "--out", "s.parquet")[0] == 0
    assert survey("randomize", "v.csv", "--column", "coin", "--epsilon", 1, "--out", "one.parquet")[0] == 0
    for line, flag in (
        (("one.parquet", "--joint", "smokes,drinks"), "--joint"),
        (("one.parquet", "--all-pairs"), "--all-pairs"),
        (("s.parquet", "--joint", "smokes"), "--joint"),
        (("s.parquet", "--joint", "smokes,job"), "--joint"),
        (("s.parquet", "--joint", "smokes,coin", "--all-pairs"), "--all-pairs"),
        (("s.parquet", "--joint", "smokes,coin", "--mean"), "--mean, --quantile, --group, --by and --weights"),
        (("s.parquet", "--joint", "smokes,coin", "--epsilon", 1), "--epsilon"),
    ):
        assert survey("estimate", *line)[0] == 2, line
        assert survey.error.flag == flag, line
