"""The command line on the answers to survey designs, which need no metadata."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

import rrjax
from rrjax import inference, io
from rrjax.cli.design import RANDOMIZING
from rrjax.mechanisms import DESIGNS, ForcedResponse, NegativeQuestion
from rrjax.mechanisms.table import TABLE

pytestmark = pytest.mark.once
DICE = ["--domain", "yesno.txt", "--mechanism", "forced-response"]
DICE += ["--parameter", "truth=2/3", "--parameter", "forced=1/2,1/2"]
COUNTED = ("--column", "answer", "--counts", "n")
EXAMPLES = {
    "warner": ["truth_probability=0.3"],
    "forced-response": ["truth=2/3", "forced=1/2,1/2"],
    "unrelated-question": ["truth=0.7", "unrelated=1/4,3/4"],
    "negative-question": ["own=0.2"],
    "crosswise": ["innocuous=0.15"],
    "triangular": ["innocuous=1/4"],
    "kuk": ["have=0.8", "lack=0.2"],
    "mangat": ["truth=0.7"],
    "coin": ["rate=0.4"],
    "direct": [],
}


@pytest.fixture
def answers(invoke):
    """An interviewer's table of answers, and its domain: yes first."""
    io.write_table("counts.csv", {"answer": np.array(["yes", "no"]), "n": np.array([831, 1604])})
    Path("yesno.txt").write_text("yes\nno\n")
    return invoke


def shares(out):
    return {row["label"]: row for row in json.loads(out)["top"]}


@pytest.mark.long
def test_a_published_survey(answers):
    out = answers.done("estimate", "counts.csv", *COUNTED, *DICE, "--json")
    found = shares(out)["yes"]
    assert round(100 * found["likeliest"], 2) == 26.19
    design = ForcedResponse(2 / 3, [1 / 2, 1 / 2])
    lower, upper = rrjax.inference.intervals(design.tally_of_counts([831, 1604]))
    assert found["lower"] == pytest.approx(float(lower[0]), abs=1e-5)
    assert found["upper"] == pytest.approx(float(upper[0]), abs=1e-5)
    assert json.loads(out)["epsilon"] == pytest.approx(np.log(5), abs=1e-6)
    assert "forced-response (truth 0.6667, forced 0.5 : 0.5)" in json.loads(out)["to_publish"]


@pytest.mark.long
def test_a_design_in_a_file(answers):
    def written(text):
        Path("dice.toml").write_text(text)

    line = ("estimate", "counts.csv", *COUNTED, "--domain", "yesno.txt", "--design", "dice.toml", "--json")
    written('mechanism = "forced-response"\ntruth = "2/3"\nforced = [0.5, "1/2"]\n')
    out = answers.done(*line)
    by_flags = shares(answers("estimate", "counts.csv", *COUNTED, *DICE, "--json")[1])
    assert shares(out) == by_flags
    answers.refuses("--design", *line, "--mechanism", "mangat")
    written('\ufeffmechanism = "forced-response"\ntruth = "2/3"\nforced = [0.5, "1/2"]\n')
    assert shares(answers.done(*line)) == by_flags
    unclear = 'mechanism = "forced-response"\ntruth = "2/3"\nforced = [0.3, 0.6]'  # which is of the yes?
    for text in (
        'mechanism = "forced-response"\ntruth = "2/3"',
        "truth = 1",
        'mechanism = "dice"',
        "mechanism = ",
        unclear,
    ):
        written(text)
        assert answers(*line)[0] == 3
        assert (answers.error.flag, str(answers.error.file)) == ("--design", "dice.toml")
    for fault in ("nowhere.toml", "."):
        assert answers(*line[:-2], fault)[0] == 3
        assert (answers.error.flag, str(answers.error.file)) == ("--design", fault)


@pytest.mark.full  # eight programs
@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_has_the_estimates_of_its_class(answers, name):
    assert set(EXAMPLES) == set(DESIGNS)
    flags = [flag for text in EXAMPLES[name] for flag in ("--parameter", text)]
    values = {text.split("=")[0]: text.split("=")[1] for text in EXAMPLES[name]}
    assert set(values) == set(TABLE[name].parameters)
    line = ("counts.csv", *COUNTED, "--domain", "yesno.txt", "--mechanism", name, *flags, "--json")
    out = answers.done("compare", *line)
    made = {key: [eval(part) for part in value.split(",")] for key, value in values.items()}
    made = {key: value if len(value) > 1 else value[0] for key, value in made.items()}
    design = DESIGNS[name](**({"num_categories": 2} if name in ("negative-question", "coin", "direct") else {}), **made)
    found, counts = shares(out), np.array([831, 1604])
    for estimator, expected in (
        ("mle", rrjax.mle(design.mixture_of_counts(counts))),
        ("inv", rrjax.inv(design.tally_of_counts(counts))),
        ("empirical_bayes", rrjax.empirical_bayes(design.tally_of_counts(counts)).theta),
    ):
        assert found["yes"][estimator] == pytest.approx(float(expected[0]), abs=1e-5)
    epsilon = json.loads(out)["epsilon"]
    assert (epsilon is None) == (not np.isfinite(float(design.epsilon)))


def flags_of(name):
    return ["--mechanism", name, *(flag for text in EXAMPLES[name] for flag in ("--parameter", text))]


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "forced-response" else (pytest.mark.long,)) for name in RANDOMIZING],
)
def test_answers_that_were_randomized_here(answers, name):
    """Values, their answers in a file that carries its design, and an estimate near the truth."""
    io.write_table("v.csv", {"answer": np.array(["yes", "no"])[(np.arange(8000) % 4 > 0).astype(int)]})
    asked = ("--domain", "yesno.txt", *flags_of(name), "--json")
    assert json.loads(answers.done("randomize", "v.csv", *asked, "--seed", 1, "--out", "r.parquet"))[
        "parameters"
    ].keys() >= {text.split("=")[0] for text in EXAMPLES[name]}
    out = answers.done("estimate", "r.parquet", "--json")
    assert json.loads(out)["mechanism"] == name
    assert abs(shares(out)["yes"]["likeliest"] - 0.25) < 4 * json.loads(out)["standard_error"]
    assert answers("randomize", "v.csv", *asked, "--out", "s.parquet")[0] == 0  # of secure random numbers
    assert abs(shares(answers("estimate", "s.parquet", "--json")[1])["yes"]["likeliest"] - 0.25) < 0.1
    answers.refuses("--mechanism", "estimate", "r.parquet", *DICE)


@pytest.mark.full  # many commands
def test_plans_and_audits_of_designs(answers):
    dice = DICE[2:]
    plan = answers.json("plan", *dice, "--target-rmse", 0.02)
    assert (plan["num_categories"], plan["design"]) == (2, "truth 0.6667, forced 0.5 : 0.5")
    # The same channel as randomized response of two categories at log 5.
    alike = answers.json("plan", "--categories", 2, "--epsilon", np.log(5), "--target-rmse", 0.02)
    assert abs(plan["num_users"] - alike["num_users"]) <= 1
    assert plan["rmse"] == pytest.approx(0.02, abs=1e-4)
    assert answers.json("plan", *flags_of("mangat"), "--users", 1000)["epsilon"] is None
    assert plan["category"] is None
    kuk = "plan", "--mechanism", "kuk", "--parameter", "have=0.5", "--parameter", "lack=0.05", "--json"
    plan = json.loads(answers(*kuk, "--users", 1000)[1])
    assert plan["rmse"] == pytest.approx(np.sqrt(0.5 / 0.45**2 / 2000))  # everybody has the attribute
    assert json.loads(answers(*kuk, "--target-width", 0.08, "--share", 0.1)[1])["num_users"] == 1075
    assert (plan["category"], plan["empty_category"]) == (0, 0)
    # The interval of the yes, by Clopper and Pearson's limits; that of the no is twice as wide.
    for named in ("yes:0.02,no:0.98", "no:0.98,yes:0.02"):
        line = ("--mechanism", "unrelated-question", "--parameter", "truth=1/2", "--parameter", f"unrelated={named}")
        plan = answers.json("plan", *line, "--users", 1000, "--share", 0.1)
        assert (plan["category"], plan["share_width"]) == (0, pytest.approx(0.06093, abs=1e-5))
    unequal = "plan", "--mechanism", "forced-response", "--parameter", "truth=0.6", "--parameter", "forced=0.1,0.7,0.2"
    assert answers.json(*unequal, "--users", 1000, "--share", 1)["empty_category"] == 1
    found = answers.json("audit", *dice, "--draws", 40_000)
    assert 1.4 < found["lower"] <= found["claimed"] == pytest.approx(np.log(5))
    assert not found["violated"]
    for line, flag in (
        (("plan", *dice, "--epsilon", 1, "--users", 10), "--epsilon"),
        (("plan", *dice, "--categories", 3, "--users", 10), "--mechanism"),
        (("plan", *dice), "--users"),
        (("plan", *flags_of("negative-question"), "--users", 10), "--categories"),
        (("plan", "--epsilon", 1, "--users", 10), "--categories"),
        (("plan", "--mechanism", "loloha", "--categories", 4, "--epsilon", 1, "--users", 10), "--mechanism"),
        (("plan", "--mechanism", "geometric", "--categories", 4, "--epsilon", 1, "--users", 10), "--mechanism"),
        (("audit", *flags_of("mangat")), "--mechanism"),
        (("audit", "--categories", 4), "--epsilon"),
        (("study", "quick", *dice), "--mechanism"),
        (("randomize", "counts.csv", "--out", "r.parquet", "--epsilon", 1, *dice), "--epsilon"),
        (("randomize", "counts.csv", "--out", "r.parquet"), "--epsilon"),
    ):
        answers.refuses(flag, *line)


@pytest.mark.full  # a study
def test_a_study_of_a_design(answers, monkeypatch):
    monkeypatch.setattr("rrjax.cli.study.Machine.settle", lambda self: None)
    dice = DICE[2:]
    io.write_table("v.csv", {"answer": np.array(["yes", "no"])[(np.arange(800) % 4 > 0).astype(int)]})
    study = ("study", "data", "v.csv", "--domain", "yesno.txt", *dice, "--num-seeds", 20, "--out", "s", "--json")
    answers.done(*study)
    answers.refuses("--epsilon", *study, "--epsilon", 1)


@pytest.mark.full  # a regression, statements, a page
def test_statements_regressions_and_pages(answers):
    rng = np.random.default_rng(3)
    age, region = rng.integers(18, 81, 3000), rng.integers(0, 2, 3000)
    true = (rng.random(3000) >= 0.1 + 0.006 * (age - 18)).astype(int)  # 0 is yes
    design = ForcedResponse(2 / 3, [1 / 2, 1 / 2])
    said = np.asarray(design.randomize(jax.random.key(0), true))
    labels = np.array(["yes", "no"])
    io.write_table("d.csv", {"answer": labels[said], "age": age, "region": np.array(["north", "south"])[region]})
    asked = ["--column", "answer", "--group", "yes=yes", "--by", "region", "--json"]
    rows = {row["of"]: row for row in json.loads(answers.done("estimate", "d.csv", *asked, *DICE))["statements"]}
    for place, name in enumerate(("north", "south")):
        counts = np.bincount(said[region == place], minlength=2)
        tally = design.tally_of_counts(counts)
        assert rows[name]["value"] == pytest.approx(float(rrjax.inv(tally)[0]), abs=1e-5)
        assert rows[name]["lower"] == pytest.approx(float(rrjax.inference.intervals(tally).lower[0]), abs=1e-5)
    for more in ((), ("--normal",)):
        line = ("d.csv", "--column", "answer", "--group", "yes=yes", *more, "--json", *DICE)
        (row,) = json.loads(answers("estimate", *line)[1])["statements"]
        counts = np.bincount(said, minlength=2)
        assert row["value"] == pytest.approx(float(rrjax.inv(design.tally_of_counts(counts))[0]), abs=1e-5)
        error = float(inference.standard_errors(design.mixture_of_counts(counts))[0])
        assert row["standard_error"] == pytest.approx(error, rel=1e-3)
    asked = ["--outcome", "answer", "--covariates", "age", "--reference", "no", "--json"]
    slope = next(
        row
        for row in json.loads(answers.done("regress", "d.csv", *asked, *DICE))["coefficients"]
        if row["term"] == "age"
    )
    result = rrjax.models.fit(np.column_stack([age]).astype(np.float32), said, design)
    assert slope["estimate"] == pytest.approx(-float(result.coefficients[1, 0]), rel=1e-3)
    assert slope["estimate"] > 3 * slope["standard_error"]
    answers.done("report", "d.csv", "--column", "answer", *DICE, "--out", "d.html")
    assert "forced-response (truth 0.6667" in Path("d.html").read_text()


MANGAT = ("--domain", "yesno.txt", "--mechanism", "mangat", "--parameter", "truth=0.7")


@pytest.mark.long
def test_an_infinite_epsilon_is_said(answers):
    out = answers.done("estimate", "counts.csv", *COUNTED, *MANGAT)
    assert "ε = inf" in out


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (("--mechanism", "forced-response", "--parameter", "truth=2/3", *DICE[:2]), "--parameter"),
        (("--mechanism", "mangat", "--parameter", "trust=2/3", *DICE[:2]), "--parameter"),
        (("--mechanism", "mangat", "--parameter", "truth", *DICE[:2]), "--parameter"),
        (("--mechanism", "mangat", "--parameter", "truth=1/0", *DICE[:2]), "--parameter"),
        (("--mechanism", "mangat", "--parameter", "truth=1.5", *DICE[:2]), "--parameter"),
        (("--mechanism", "warner", "--parameter", "truth-probability=0.5", *DICE[:2]), "--parameter"),
        (("--mechanism", "kuk", "--parameter", "have=0.5", "--parameter", "lack=1/2", *DICE[:2]), "--parameter"),
        ((*DICE, "--parameter", "truth=0.5"), "--parameter"),
        (("--parameter", "truth=2/3", *DICE[:2]), "--parameter"),
        (("--mechanism", "mangat", "--parameter", "truth=0.7"), "--domain"),
        ((*DICE, "--epsilon", "1"), "--epsilon"),
        (
            (*DICE[:4], "--parameter", "truth=0.5", "--parameter", "forced=1/3,1/3,1/3"),
            "--mechanism",
        ),
        (("--mechanism", "dice", *DICE[:2]), "--mechanism"),
        (("--mechanism", "oue", *DICE[:2]), "--mechanism"),
    ],
)
def test_flags_that_make_no_design_are_refused(answers, flags, flag):
    answers.refuses(flag, "estimate", "counts.csv", *COUNTED, *flags)


@pytest.mark.long
def test_reports_with_metadata_and_statements_that_a_design_has_not(answers):
    io.write_table("v.csv", {"answer": np.array(["yes", "no"])[np.arange(200) % 2]})
    assert answers("randomize", "v.csv", "--epsilon", 1, "--domain", "yesno.txt", "--out", "r.parquet")[0] == 0
    answers.refuses("--mechanism", "estimate", "r.parquet", *DICE)
    assert answers("estimate", "v.csv", "--column", "answer", *DICE, "--weights", "n")[0] == 3
    with pytest.raises(ValueError, match="differ"):
        rrjax.ordered_bayes(ForcedResponse(0.6, [0.5, 0.3, 0.2]).tally_of_counts([5, 3, 2]))
    # A negative question's answers support the others: its tally counts those.
    assert NegativeQuestion(3).tally_of_counts([5, 3, 2]).support.tolist() == [5, 7, 8]


@pytest.mark.full
def test_questions_about_the_answers_to_a_design(answers):
    io.write_table("later.csv", {"answer": np.array(["yes", "no"]), "n": np.array([930, 1505])})
    io.write_table("census.csv", {"answer": np.array(["yes", "no"]), "n": np.array([20, 80])})
    design = ForcedResponse(2 / 3, [1 / 2, 1 / 2])
    first, later = design.tally_of_counts([831, 1604]), design.tally_of_counts([930, 1505])

    def test(*line):
        return answers.json("test", *line, *COUNTED, *DICE)["tests"][0]

    law = stats.binom(2435, 1 / 6 + 2 / 3 * 0.2)
    found = test("fit", "counts.csv", "--against", "census.csv", "--against-column", "answer", "--against-counts", "n")
    assert found["p_value"] == pytest.approx(2 * law.sf(830), rel=1e-4)
    assert found["category"] == "yes"
    assert test("fit", "counts.csv")["p_value"] == 1
    found = test("equal", "counts.csv", "later.csv")
    expected = stats.fisher_exact([[831, 1604], [930, 1505]], alternative="less").pvalue
    assert found["p_value"] == pytest.approx(2 * expected, rel=1e-4)
    found = test("trend", "counts.csv", "later.csv", "--draws", "999")
    whole = inference.trend_test(jax.random.key(0), [first, later], num_draws=999)
    assert found["p_value"] == pytest.approx(float(whole.p_value))
    assert "upwards" in found["answer"]
    (row,) = answers.json("estimate", "counts.csv", *COUNTED, *DICE, "--quantile", "0.2")["statements"]
    assert [row[name] for name in ("value", "lower", "upper")] == ["yes", "yes", "yes"]
    answers.refuses("--epsilon", "test", "fit", "counts.csv", *COUNTED, *DICE, "--epsilon", "1")


@pytest.mark.full
def test_who_complies_is_estimated_from_two_samples(answers):
    Path("same.txt").write_text("same\ndifferent\n")
    counts = {"sensitive": (1427, 573), "anchor": (1541, 459)}
    said = [label for pair in counts.values() for label in ["same"] * pair[0] + ["different"] * pair[1]]
    questions = [name for name, pair in counts.items() for _ in range(sum(pair))]
    io.write_table("two.csv", {"question": np.array(questions), "said": np.array(said)})
    line = ["two.csv", "--column", "said", "--domain", "same.txt", "--mechanism", "anchored-crosswise"]
    line += ["--parameter", "innocuous=0.15", "--parameter", "anchor=0.15", "--parameter", "yes=same"]
    sample = ("--sample", "question=sensitive,anchor")
    for command, flags, flag in (
        ("estimate", (), "--sample"),
        ("estimate", (*sample, "--epsilon", "1"), "--epsilon"),
        ("estimate", (*sample, "--at-once"), "--at-once"),
        ("estimate", (*sample, "--ordered"), "--ordered"),
        ("estimate", (*sample, "--estimator", "inv"), "--estimator"),
        ("estimate", (*sample, "--group", "a=same"), "--mean, --quantile, --group, --by and --weights"),
        ("report", (), "--mechanism"),
    ):
        answers.refuses(flag, command, *line, *flags)
    io.write_table("gaps.csv", {"question": np.array(questions), "said": np.array(["", *said[1:]])})
    assert answers.json("estimate", "gaps.csv", *line[1:], *sample)["num_missing"] == 1
    assert "1 row has no answer" in answers("estimate", "gaps.csv", *line[1:], *sample)[2]
    answers.refuses("--sample", "estimate", "counts.csv", *COUNTED, *DICE, *sample)


@pytest.mark.full
def test_estimates_at_the_boundary_are_said(answers):
    io.write_table("two.csv", {"die": np.repeat(["a", "b"], (50, 60)), "said": np.repeat("no", 110)})
    line = ["estimate", "two.csv", "--column", "said", "--domain", "yesno.txt", "--sample", "die=a,b"]
    line += ["--mechanism", "unrelated-question-two-samples", "--parameter", "truth=0.7,0.3"]
    nobody = answers.json(*line)
    assert nobody["standard_error"] is None
    assert len(nobody["warnings"]) == answers(*line)[2].count("Warning:") == 1
