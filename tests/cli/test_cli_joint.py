"""Several columns randomized apart on the command line: one column, the joint distribution, all pairs."""

import json
from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.full  # joint tables, simulated tests
def test_a_survey_of_three_questions(survey):
    made = survey.json(*LINE, *DOMAINS, "--epsilon", 6, "--seed", 1, "--out", "s.parquet")
    assert [each["epsilon"] for each in made["columns"]] == [2, 2, 2]
    assert made["effective_epsilon"] <= 6

    found = survey.json("estimate", "s.parquet", "--joint", "smokes,drinks", "--out", "all.csv")
    assert found["converged"]
    assert found["gap"] < 1e-4
    true = {
        (a, b): SHARES[i, j] for i, a in enumerate(("yes", "no")) for j, b in enumerate(("often", "rarely", "never"))
    }
    for row in found["top"]:
        share = true[tuple(row["labels"])]
        assert abs(row["unbiased"] - share) < 4 * row["standard_error"]
        assert abs(row["likeliest"] - share) < 5 * row["standard_error"]
        assert abs(row["closest"] - share) < 5 * row["standard_error"]
    expected = np.outer(SHARES.sum(axis=1), SHARES.sum(axis=0))
    v = np.sqrt(((SHARES - expected) ** 2 / expected).sum())
    assert abs(found["association"]["cramers_v"] - v) < 0.06
    assert 0 < found["association"]["cramers_v_lower"] < v < found["association"]["cramers_v_upper"] < 0.7
    assert found["association"]["odds_ratio"] is None
    assert found["association"]["p_value"] < 0.01

    line = ("estimate", "s.parquet", "--all-pairs", "--level", 0.9, "--out", "pairs.csv", "--json")
    found = json.loads(survey(*line)[1])
    pairs = found["pairs"]
    assert found["level"] == 0.9
    assert pairs[0]["columns"] == ["smokes", "drinks"]
    assert [pair["columns"] for pair in pairs if pair["odds_ratio_lower"] is not None] == [["smokes", "coin"]]
    for pair in pairs:
        for name in ("cramers_v", "mutual_information"):
            assert 0 <= pair[f"{name}_lower"] <= pair[name] <= pair[f"{name}_upper"]
    assert "odds_ratio_upper" in Path("pairs.csv").read_text().partition("\n")[0]
    assert all(each["adjusted_p_value"] >= each["p_value"] for each in pairs)
    assert pairs[0]["adjusted_p_value"] < 0.01

    # Each column is a file of randomized response for every command.
    assert survey.json("estimate", "s.parquet", "--column", "drinks")["epsilon"] == pytest.approx(2, abs=1e-6)
    assert survey("test", "independent", "s.parquet", "--column", "smokes", "--column", "coin", "--json")[0] == 0
    survey.refuses("REPORTS", "estimate", "s.parquet")
    assert survey("estimate", "s.parquet", "--joint", "smokes,drinks", "--out", "s.parquet")[0] == 2


@pytest.mark.full  # a joint table and its association
def test_missing_answers_and_weights(survey):
    Path("m.csv").write_text("a,b\nyes,1\n,0\nno,1\nyes,0\nno,\n" + "yes,1\n" * 50)
    line = ["randomize", "m.csv", "--column", "a", "--column", "b", "--apart", "--out", "m.parquet", "--json"]
    made = json.loads(survey.done(*line, "--epsilon", 3, "--split", "2,1"))
    assert made["num_reports"] == 55
    assert [each["num_reports"] for each in made["columns"]] == [54, 54]
    assert len(made["warnings"]) == 4  # two domains from the values, two columns with a row without a value
    assert [each["epsilon"] for each in made["columns"]] == [2, 1]
    assert sum(each["effective_epsilon"] for each in made["columns"]) <= 3
    # Who left one question out counts by the other.
    found = survey.json("estimate", "m.parquet", "--joint", "a,b")
    assert (found["num_reports"], found["num_complete"]) == (55, 53)
    alone = survey.json("estimate", "m.parquet", "--column", "a")
    assert (alone["num_reports"], alone["num_missing"]) == (54, 1)


@pytest.mark.full  # joint tables, simulated tests
def test_columns_that_are_sampled(survey):
    for seed in ([], ["--seed", 3]):  # secure random numbers, and a simulation
        made = survey.json(
            *LINE, *DOMAINS, "--epsilon", 6, "--columns-per-user", 2, *seed, "--force", "--out", "s.parquet"
        )
        assert made["sampled"] == 2
        assert [each["epsilon"] for each in made["columns"]] == [3, 3, 3]
        assert made["effective_epsilon"] == pytest.approx(6)
        numbers = [each["num_reports"] for each in made["columns"]]
        assert sum(numbers) == 12_000
        assert all(abs(number - 4000) < 4 * np.sqrt(6000 * 2 / 9) for number in numbers)
    found = survey.json("estimate", "s.parquet", "--joint", "smokes,drinks")
    assert abs(found["num_complete"] - 2000) < 4 * np.sqrt(6000 * 2 / 9)
    shares = {tuple(row["labels"]): row for row in found["top"]}
    for i, a in enumerate(("yes", "no")):
        for j, b in enumerate(("often", "rarely", "never")):
            row = shares[a, b]
            assert abs(row["unbiased"] - SHARES[i, j]) < 4 * row["standard_error"]
    survey.refuses("--joint", "estimate", "s.parquet", "--joint", "smokes,drinks,coin")
    found = survey.json("estimate", "s.parquet", "--column", "coin")
    assert len(found["warnings"]) == 1  # of the simulation, and not of missing reports

    assert survey(*LINE, *DOMAINS, "--epsilon", 6, "--columns-per-user", 1, "--force", "--out", "s.parquet")[0] == 0
    survey.refuses("--all-pairs", "estimate", "s.parquet", "--all-pairs")


@pytest.mark.long
def test_a_plan_for_several_columns(invoke):
    line = ("plan", "--columns", "2,3", "--epsilon", 2, "--users", 10_000)
    pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")
    out = invoke.done(*line, "--plot", "splits.png")
    assert "Figure: splits.png" in out
    assert Path("splits.png").read_bytes().startswith(b"\x89PNG")
    for more, flag in (
        (["--columns", "2"], "--columns"),
        (["--columns", "2,x"], "--columns"),
        (["--columns", "2,3", "--users", 0], "--users"),
        (["--columns", "2,3", "--target-rmse", 0.1], "--target-rmse"),
        (["--columns", "2,3", "--plot", "a.gif"], "--plot"),
    ):
        invoke.refuses(flag, "plan", "--epsilon", 2, *([] if "--users" in more else ["--users", 9]), *more)
    invoke.refuses("--epsilon", "plan", "--columns", "2,3", "--users", 9)


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
        ([*LINE[:4], "--epsilon", 1, "--columns-per-user", 1], "--columns-per-user"),
        ([*LINE, "--epsilon", 1, "--columns-per-user", 4], "--columns-per-user"),
        ([*LINE, "--epsilon", 1, "--columns-per-user", 2, "--split", "1,2,3"], "--split"),
    ],
)
def test_columns_that_cannot_be_randomized_apart(survey, line, flag):
    survey.refuses(flag, *line, "--out", "s.parquet")
    assert not Path("s.parquet").exists()


@pytest.mark.full
def test_joint_estimates_that_cannot_be(survey):
    assert survey(*LINE, *DOMAINS, "--epsilon", 6, "--seed", 1, "--out", "s.parquet")[0] == 0
    assert survey("randomize", "v.csv", "--column", "coin", "--epsilon", 1, "--out", "one.parquet")[0] == 0
    for line, flag in (
        (("one.parquet", "--joint", "smokes,drinks"), "--joint"),
        (("one.parquet", "--all-pairs"), "--all-pairs"),
        (("v.csv", "--joint", "smokes,drinks", "--epsilon", 1), "--joint"),
        (("one.parquet", "--tree"), "--tree"),
        (("s.parquet", "--tree", "--all-pairs"), "--all-pairs"),
        (("s.parquet", "--joint", "smokes"), "--joint"),
        (("s.parquet", "--joint", "smokes,job"), "--joint"),
        (("s.parquet", "--joint", "smokes,coin", "--all-pairs"), "--all-pairs"),
        (("s.parquet", "--joint", "smokes,coin", "--mean"), "--mean"),
        (("s.parquet", "--joint", "smokes,coin", "--epsilon", 1), "--epsilon"),
        (("s.parquet", "--joint", "smokes,drinks,coin", "--plot", "a.png"), "--plot"),
    ):
        survey.refuses(flag, "estimate", *line)
    survey.refuses("--ordered", "report", "s.parquet", "--ordered", "--out", "b.html")


@pytest.mark.long
@pytest.mark.parametrize("flag", ["--by", "--weights"])
def test_another_randomized_column_is_not_public(survey, flag):
    """By reports of `smokes` the shares of `drinks` would be alike for all who smoke and who do not."""
    more = ["--apart", "--epsilon", 2, "--seed", 1, "--keep", "group", "--out", "s.parquet"]
    table = io.read_values(io.Source("v.csv", column="coin"), "0:1").indices
    io.write_table("u.csv", {"smokes": table, "coin": table[::-1], "group": table + 1})
    line = ["randomize", "u.csv", "--column", "smokes", "--column", "coin", "--domain", "0:1", "--domain", "0:1", *more]
    assert survey(*line)[0] == 0
    ask = ["estimate", "s.parquet", "--column", "coin", "--mean", flag]
    for name in ("smokes", "coin"):
        survey.refuses(flag, *ask, name)
        assert survey.error.value == name
    assert survey(*ask, "group")[0] == 0


@pytest.mark.full  # a joint table
def test_a_column_with_the_name_of_an_estimate_has_no_table(invoke):
    io.write_table("v.csv", {"closest": [0, 1, 1, 0] * 20, "coin": [1, 1, 0, 0] * 20})
    line = ["randomize", "v.csv", "--column", "coin", "--column", "closest", "--domain", "0:1", "--domain", "0:1"]
    assert invoke(*line, "--apart", "--epsilon", 6, "--seed", 1, "--out", "r.parquet")[0] == 0
    code, _, said = invoke("estimate", "r.parquet", "--joint", "coin,closest", "--out", "t.csv")
    assert (code, invoke.error.value, Path("t.csv").exists()) == (2, "closest", False), said
