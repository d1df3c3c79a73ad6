"""Statements, comparisons, regressions, tests and plans: the words of the command line, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal  # noqa: E402
from refusals import refused  # noqa: E402

import rrjax  # noqa: E402
from rrjax import io, reports  # noqa: E402
from rrjax.data.errors import ArgumentError, DataError  # noqa: E402
from rrjax.io.domain import Domain  # noqa: E402
from rrjax.mechanisms import DESIGNS  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
LABELS = ["red", "green", "blue"]
COLOURS = [600, 250, 150]
COLLECTIONS = {"first": COLOURS, "second": [500, 300, 200], "third": [450, 300, 250]}
DRAWS = {"draws": 199, "seed": 3}
FLAGS = ("--draws", "199", "--seed", "3")
COUNTED = ("--column", "colour", "--counts", "n", "--epsilon", "2", "--domain", "colours.txt")
VISITS = ("--column", "visits", "--epsilon", "2", "--domain", "0:5")
VISIT_COUNTS = [400, 300, 200, 100]
KUK = ("--mechanism", "kuk", "--parameter", "have=0.5", "--parameter", "lack=0.05")
USES = ("--epsilon", "2", "--domain", "answers.txt")
TRUTH = [70, 20, 10]


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    polars.DataFrame({"colour": LABELS, "n": COLOURS}).write_csv("r.csv")
    polars.DataFrame({"colour": [label for label, n in zip(LABELS, TRUTH, strict=True) for _ in range(n)]}).write_csv(
        "truth.csv"
    )
    (tmp_path / "colours.txt").write_text("\n".join(LABELS))
    return rrjax.read("r.csv", column="colour", counts="n", epsilon=2.0, domain="colours.txt")


@pytest.mark.full
@pytest.mark.parametrize("truth", [None, "truth.csv"])
def test_comparisons_say_the_same_in_all_outlets(table, invoke, truth):
    answer = table.compare(truth, level=0.9)
    flags = ("--level", "0.9", *(("--truth", truth) if truth else ()))
    read = ("r.csv", "--column", "colour", "--counts", "n", "--epsilon", "2", "--domain", "colours.txt")
    rounded = {"tolerance": 1e-6, "absolute": 1e-9, "skipped": ("certificate",)}
    check_outlets(answer, invoke, "compare", *read, *flags, **rounded)


@pytest.mark.long
def test_true_values_are_shares_however_they_are_given(table):
    named = {"green": 20, "red": 70, "blue": 10}
    found = [
        table.compare(truth, estimators=["inv_p"])
        for truth in (TRUTH, np.array(TRUTH) / 100, named, "truth.csv", {"red": 0.7, "green": 0.2, "blue": 0.1})
    ]
    for each in found:
        np.testing.assert_allclose(each.columns["truth"], [0.7, 0.2, 0.1], rtol=1e-12)
        assert each.errors[0] == pytest.approx(found[0].errors[0])
    assert table.compare(estimators="inv_p").truth is None


@pytest.mark.long
def test_few_or_the_leading_estimators_are_shown(table):
    everything = table.compare()
    assert len(everything.shown) < len(everything.estimates)
    assert set(everything.columns) == {"label", "count", *(each.estimator.name for each in everything.estimates)}
    two = table.compare(estimators=["inv", "inv_n", "inv"])
    assert [each.estimator.name for each in two.shown] == ["inv", "inv_n"]
    assert len(two.blocks()[0].rows) == 2
    assert len(two.blocks(1)[-1].rows) == 1


@pytest.mark.long
def test_comparisons_of_reports_that_contradict_their_mechanism_say_so():
    found = rrjax.Reports.of_counts([1000, 1000, 1000, 0], 0.5).compare(estimators=["inv"])
    assert len(found.warnings) == len(found.to_dict()["warnings"]) == 1


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("truth", {"truth": [1, 2]}),
        ("truth", {"truth": [1, -2, 3]}),
        ("truth", {"truth": [0, 0, 0]}),
        ("truth", {"truth": [0.5, 0.2, 0.1]}),
        ("truth", {"truth": [1, np.nan, 3]}),
        ("truth", {"truth": ["a", "b", "c"]}),
        ("truth", {"truth": {"secret": 1, "red": 2}}),
        ("level", {"level": 95}),
        ("estimators", {"estimators": ["best"]}),
        ("ordered", {"estimators": ["inv"], "ordered": True}),
    ],
)
def test_errors_about_truths_name_the_argument_and_no_true_value(argument, asked):
    refused = check_refusal(argument, lambda: rrjax.Reports.of_counts(COLOURS, 2.0, LABELS).compare(**asked))
    assert "secret" not in str(refused)


@pytest.mark.long
def test_estimators_that_these_reports_do_not_allow():
    oue = rrjax.mechanisms.OptimizedUnaryEncoding(2, epsilon=2.0)
    reports = rrjax.Reports.of_tally(rrjax.Tally([388, 230], 1000, rates=oue.rates), oue)
    assert "estimator=" not in str(check_refusal("estimators", lambda: reports.compare(estimators=["mle"])))


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """Reports with a public column, of which one value is missing, and weights."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    region = rng.choice(["north", "south"], 900).tolist()
    region[7] = None
    visits = np.minimum(rng.poisson(2, 900), 5)
    columns = {"visits": visits, "region": region, "weight": rng.uniform(0.5, 2, 900)}
    polars.DataFrame(columns).write_csv("s.csv")
    Path("p.csv").write_text("region,people\nsouth,100\nnorth,300\n")
    return rrjax.read("s.csv", column="visits", epsilon=2.0, domain="0:5")


@pytest.mark.full
@pytest.mark.parametrize(
    ("ask", "flags"),
    [
        (
            lambda reports: reports.statements(mean=True, quantile=[0.5, 0.9], group="often=3:9", level=0.9),
            ("--mean", "--quantile", "0.5", "--quantile", "0.9", "--group", "often=3:9", "--level", "0.9"),
        ),
        (
            lambda reports: reports.by("region", mean=True, population={"north": 3, "south": 1}, normal=True),
            ("--by", "region", "--mean", "--population", "p.csv", "--normal"),
        ),
        (
            lambda reports: reports.group({"few": [0, 1]}, by="region", weights="weight"),
            ("--group", "few=0,1", "--by", "region", "--weights", "weight"),
        ),
        (lambda reports: reports.statements(top=2), None),
    ],
)
def test_statements_say_the_same_in_all_outlets(survey, invoke, ask, flags):
    answer = ask(survey)
    assert answer.columns["value"].dtype == np.float64
    if flags is not None:
        check_outlets(answer, invoke, "estimate", "s.csv", *VISITS, *flags)
    assert len(repr(answer).splitlines()) < 30
    assert answer.title in repr(answer)


@pytest.mark.long
def test_quantiles_of_labels_are_texts_and_of_integers_numbers():
    named = rrjax.Reports.of_counts(VISIT_COUNTS, 2.0, ["none", "one", "2", "more"]).quantile(0.5)
    numbered = rrjax.Reports.of_counts(VISIT_COUNTS, 2.0).quantile(0.5)
    assert named.columns["value"].tolist() == ["one"]
    assert numbered.columns["value"].tolist() == [1]
    with pytest.raises(ArgumentError) as caught:
        named.figure()
    assert caught.value.argument == "plot"


@pytest.mark.long
def test_groups_are_texts_or_labels_by_name():
    reports = rrjax.Reports.of_counts(VISIT_COUNTS, 2.0)
    found = reports.group("a=2,3", "2:3", {"b": [2, 3], "c": range(2, 4), "d": "2:3"}, "e=2:inf")
    assert len(set(found.columns["value"].tolist())) == 1
    assert not found.warnings
    odd = rrjax.Reports.of_counts(VISIT_COUNTS, 2.0, ["a=b", "a,b", "1:2", "c"])
    assert odd.group("a=b", "x=a,b", "1:2").columns["statement"].tolist() == ["a=b", "x", "1:2"]
    signs = rrjax.Reports.of_counts(VISIT_COUNTS, 2.0, ["=1", "1", "2", "="])
    assert signs.group("=1", "=", "x=1").columns["statement"].tolist() == ["=1", "=", "x"]


def test_a_range_from_the_larger_number_down_is_not_said_to_hold_nothing(survey):
    with pytest.raises(ArgumentError, match="smaller one first"):
        survey.group("x=3:1")


@pytest.mark.long
@pytest.mark.parametrize("held", ["2:9", "-3:1", "3:1000"])
def test_a_range_beyond_the_domain_is_said(held):
    found = rrjax.Reports.of_counts(VISIT_COUNTS, 2.0).group(f"x={held}")
    assert len(found.warnings) == len(found.notes) == 1
    assert found.facts["warnings"] == found.warnings


@pytest.mark.long
def test_statements_about_reports_that_contradict_their_mechanism_say_so():
    found = rrjax.Reports.of_counts([1000, 0, 0, 0], 1.0).statements(mean=True, group="x=1")
    assert len(found.warnings) == len(found.cautions) == 1
    assert np.isnan(found.columns["lower"]).all()
    assert found.facts["num_contradicted"] == 2


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("quantile", {"quantile": 50}),
        ("quantile", {"quantile": 0.5, "weights": "weight"}),
        ("population", {"mean": True, "population": "p.csv"}),
        ("population", {"by": "region", "weights": "weight", "population": "p.csv"}),
        ("population", {"by": "region", "quantile": 0.5, "population": "p.csv"}),
        ("population", {"by": "region", "population": {"north": 1}}),
        ("population", {"by": "region", "population": {"north": 1, "south": 1, "west": 1}}),
        ("population", {"by": "region", "population": {"north": -1, "south": 1}}),
        ("group", {"group": "x=7:9"}),
        ("group", {"group": {"x": [1, 12]}}),
        ("group", {"group": "=1"}),
        ("group", {"group": "= 1"}),
        ("group", {"group": {"": [1]}}),
        ("group", {"group": ["x=1", "x=2"]}),
        ("by", {"by": "visits"}),
        ("by", {"by": "weight"}),
        ("level", {"mean": True, "level": 95}),
        ("top", {"top": 0}),
        ("top", {"group": "x=1", "top": 3}),
        ("normal", {"quantile": 0.5, "normal": True}),
    ],
)
def test_errors_about_statements_name_the_argument(survey, argument, asked):
    check_refusal(argument, lambda: survey.statements(**asked))


def test_columns_of_reports_that_were_counted_are_refused(survey):
    with pytest.raises(ArgumentError):
        rrjax.Reports.of_counts(VISIT_COUNTS, 2.0).by("region")
    with pytest.raises(ArgumentError):
        rrjax.Reports.of_counts(VISIT_COUNTS, 2.0, list("abcd")).mean()
    with pytest.raises(DataError):
        survey.by("land")


@pytest.fixture
def people(tmp_path, monkeypatch):
    """Reports of three answers, covariates, of which one value is missing, weights and clusters."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    age, region = rng.integers(18, 80, 1200), rng.choice(["north", "south"], 1200)
    answer = np.where(rng.random(1200) < age / 90, 1, 2 * (rng.random(1200) < 0.4))
    income = rng.normal(3, 1, 1200).round(3).tolist()
    income[4] = None
    columns = {
        "uses": np.asarray(["never", "once", "often"])[answer],
        "age": age,
        "region": region,
        "income": income,
        "weight": rng.uniform(0.5, 2, 1200),
        "house": np.arange(1200) // 40,
    }
    polars.DataFrame(columns).write_csv("s.csv")
    Path("answers.txt").write_text("never\nonce\noften\n")
    return rrjax.read("s.csv", column="uses", epsilon=2.0, domain="answers.txt")


@pytest.mark.full
@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ({"covariates": ["age", "region"], "reference": "often"}, ("age,region", "--reference", "often")),
        (
            {"covariates": "income", "weights": "weight", "clusters": "house", "drop_missing": True, "level": 0.9},
            *[("income", "--weights", "weight", "--clusters", "house", "--drop-missing", "--level", "0.9")],
        ),
    ],
)
def test_regressions_say_the_same_in_all_outlets(people, invoke, asked, flags):
    answer = people.regress(**asked)
    line = ("regress", "s.csv", "--outcome", "uses", *USES, "--covariates", *flags)
    check_outlets(answer, invoke, *line, tolerance=1e-6)
    assert answer.title in repr(answer)
    assert answer.num_dropped == ("drop_missing" in asked)
    assert len(answer.notes) == 0


@pytest.mark.full
def test_a_covariate_that_is_randomized_too(people, invoke):
    del people
    rng = np.random.default_rng(4)
    income = rng.integers(0, 2, 3000)
    smokes = (rng.random(3000) < 0.2 + 0.5 * income).astype(int)
    polars.DataFrame({"smokes": smokes, "income": income, "age": rng.integers(18, 80, 3000)}).write_csv("v.csv")
    line = ("randomize", "v.csv", "--column", "smokes", "--column", "income", "--apart", "--epsilon", "6")
    assert invoke(*line, "--keep", "age", "--out", "s.parquet")[0] == 0
    reports = rrjax.read("s.parquet", column="smokes")
    answer = reports.regress(["income", "age"])
    assert answer.randomized_covariates == ["income"]
    line = ("regress", "s.parquet", "--outcome", "smokes", "--covariates", "income,age")
    check_outlets(answer, invoke, *line, tolerance=1e-5)
    for argument, asked in (("weights", {"weights": "income"}), ("factors", {"factors": ["income"]})):
        check_refusal(argument, lambda asked=asked: reports.regress(["income", "age"], **asked))


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("covariates", {"covariates": []}),
        ("covariates", {"covariates": ["age", "age"]}),
        ("covariates", {"covariates": "uses"}),
        ("clusters", {"covariates": "age", "clusters": "uses"}),
        ("factors", {"covariates": "age", "factors": ["region"]}),
        ("reference", {"covariates": "age", "reference": "ever"}),
        ("ridge", {"covariates": "age", "ridge": -1.0}),
        ("level", {"covariates": "age", "level": 95}),
    ],
)
def test_errors_about_regressions_name_the_argument(people, argument, asked):
    check_refusal(argument, lambda: people.regress(**asked))


def test_rows_that_lack_something_and_reports_without_rows_are_refused(people):
    with pytest.raises(DataError) as caught:
        people.regress("income")
    assert (caught.value.column, caught.value.row) == ("income", 5)
    with pytest.raises(ArgumentError):
        rrjax.Reports.of_counts([600, 400], 1.0).regress("age")


@pytest.fixture
def collections(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("colours.txt").write_text("\n".join(LABELS) + "\n")
    for name, counts in COLLECTIONS.items():
        io.write_table(f"{name}.csv", {"colour": np.array(LABELS), "n": np.array(counts)})
    io.write_table("pairs.csv", {"a": np.arange(60) % 2, "b": np.arange(60) % 4 // 2})
    given = {"epsilon": 2.0, "domain": "colours.txt", "column": "colour", "counts": "n"}
    return [rrjax.read(f"{name}.csv", **given) for name in COLLECTIONS]


@pytest.mark.full
@pytest.mark.parametrize(
    ("line", "ask"),
    [
        (("fit", "first.csv", *COUNTED), lambda one, *_: one.test_fit(**DRAWS)),
        (
            ("fit", "first.csv", *COUNTED, "--against", "second.csv", "--against-column", "colour"),
            lambda one, *_: one.test_fit([0.5, 0.3, 0.2], **DRAWS),
        ),
        (("equal", "first.csv", "second.csv", *COUNTED), lambda *all_of: reports.test_equal(all_of[:2], **DRAWS)),
        (
            ("trend", "first.csv", "second.csv", "third.csv", *COUNTED, "--category", "red"),
            lambda *all_of: reports.test_trend(all_of, category="red", **DRAWS),
        ),
        (
            ("independent", "pairs.csv", "--column", "a", "--column", "b"),
            lambda *_: reports.test_independence("pairs.csv", ["a", "b"], **DRAWS),
        ),
    ],
    ids=["any fit", "fit", "equal", "trend", "independent"],
)
def test_tests_say_the_same_in_all_outlets(collections, invoke, line, ask):
    more = ("--against-counts", "n") if "--against" in line else ()
    answer = ask(*collections)
    check_outlets(answer, invoke, "test", *line, *more, *FLAGS, tolerance=1e-12, spelt=("warnings",), out=False)
    assert answer.to_polars()["p_value"].to_list() == [test["p_value"] for test in answer.to_dict()["tests"]]
    code, out, error = invoke("test", *line, *more, *FLAGS)
    assert code == 0, error
    assert all(outcome.question in out for outcome in answer.outcomes)


@pytest.mark.full
def test_tests_of_a_design_are_exact():
    design = DESIGNS["forced-response"](2 / 3, [1 / 2, 1 / 2])
    one, other = (rrjax.Reports.of_counts(counts, design, ["yes", "no"]) for counts in ([420, 580], [520, 480]))
    for answer, label in (
        (one.test_fit([0.5, 0.5]), "yes"),
        (reports.test_equal([one, other]), "yes"),
        (reports.test_trend([one, other], category="yes", draws=999), "yes"),
    ):
        (outcome,) = answer.outcomes
        assert outcome.rejected
        assert outcome.category == answer.columns["category"][0] == label
    assert not one.test_fit([0.5, 0.5]).outcomes[0].simulated


@pytest.mark.full
def test_collections_without_files_have_numbers():
    one, other = (rrjax.Reports.of_counts(counts, 2.0, LABELS) for counts in ([0, 0, 500], COLLECTIONS["first"]))
    answer = reports.test_equal([one, other], draws=99)
    assert len(answer.title.splitlines()) == 2
    assert [warning.partition(":")[0] for warning in answer.warnings] == ["collection 1"]  # which contradicts its ε
    assert len(reports.test_equal([one, other], draws=99).warnings) == 1  # tested once
    assert answer.outcomes[0].question in answer._repr_html_()


@pytest.mark.long
def test_pairs_that_are_randomized_as_one():
    answers = Domain.of(["no", "yes"])
    pairs = rrjax.Reports.of_counts([500, 150, 150, 200], 2.0, Domain.product(answers, answers))
    for columns in ([], ["smokes", "drinks"]):
        answer = reports.test_independence(pairs, columns, draws=199)
        assert answer.outcomes[0].rejected
        assert answer.facts["num_categories"] == [2, 2]
    assert answer.facts["columns"] == ["smokes", "drinks"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("argument", "ask"),
    [
        ("significance", lambda one, *_: one.test_fit(significance=0.95)),
        ("significance", lambda one, *_: one.test_fit(significance=5)),
        ("draws", lambda one, *_: one.test_fit(draws=9)),
        ("draws", lambda one, *_: one.test_fit(draws=10**9)),
        ("seed", lambda one, *_: one.test_fit(seed=-1)),
        ("theta", lambda one, *_: one.test_fit([0.5, 0.5], draws=99)),
        ("collections", lambda one, *_: reports.test_equal([one])),
        ("domain", lambda one, *_: reports.test_equal([one, rrjax.Reports.of_counts([1, 2], 1.0)])),
        ("times", lambda *all_of: reports.test_trend(all_of, [1, 2])),
        ("times", lambda *all_of: reports.test_trend(all_of, [1, 1, 1])),
        ("category", lambda *all_of: reports.test_trend(all_of, category="rde")),
        ("data", lambda one, *_: reports.test_independence(one)),
        ("columns", lambda *_: reports.test_independence("pairs.csv")),
        ("columns", lambda *_: reports.test_independence("pairs.csv", ["a"])),
        ("domains", lambda *_: reports.test_independence("pairs.csv", ["a", "b"], ["0:1"])),
    ],
)
def test_errors_about_tests_name_the_argument(collections, argument, ask):
    check_refusal(argument, lambda: ask(*collections))


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "ask"),
    [
        (
            ("--categories", "50", "--epsilon", "1", "--target-rmse", "0.01"),
            lambda: rrjax.plan(50, epsilon=1, target_rmse=0.01),
        ),
        (
            ("--categories", "10", "--users", "50000", "--target-width", "0.02", "--share", "0.3", "--level", "0.9"),
            lambda: rrjax.plan(10, num_users=50_000, target_width=0.02, share=0.3, level=0.9),
        ),
        (
            ("--categories", "10", "--users", "50000", "--epsilon", "1.5", "--mechanism", "ss"),
            lambda: rrjax.plan(10, 1.5, 50_000, mechanism="ss"),
        ),
        ((*KUK, "--users", "1000"), lambda: rrjax.plan(num_users=1000, mechanism=DESIGNS["kuk"](0.5, 0.05))),
        (
            (*KUK, "--target-width", "0.08"),
            lambda: rrjax.plan(2, target_width=0.08, mechanism="kuk", parameters={"have": "1/2", "lack": 0.05}),
        ),
        (
            ("--columns", "2,3", "--epsilon", "2", "--users", "10000"),
            lambda: reports.plan_columns([2, 3], 2.0, 10_000),
        ),
    ],
    ids=["users", "epsilon", "known", "design", "named design", "columns"],
)
def test_plans_say_the_same_in_all_outlets(invoke, line, ask):
    answer = ask()
    check_outlets(answer, invoke, "plan", *line, tolerance=1e-12, out=False)
    (rows,) = answer.rows().values()
    assert len(answer.to_polars()) == len(rows)
    code, out, error = invoke("plan", *line)
    assert code == 0, error
    assert answer.title.split(":")[0] in out
    assert "<th" in answer._repr_html_()


@pytest.mark.parametrize(
    ("argument", "ask"),
    [
        ("num_categories", lambda: rrjax.plan(epsilon=1.0, num_users=9)),
        ("num_categories", lambda: rrjax.plan(1, epsilon=1.0, num_users=9)),
        ("num_categories", lambda: rrjax.plan(3, num_users=9, mechanism=DESIGNS["warner"](0.7))),
        ("num_users", lambda: rrjax.plan(3, epsilon=1.0, num_users=0)),
        ("num_users", lambda: rrjax.plan(4, 1, 10.5)),
        ("num_users", lambda: rrjax.plan(4, 1, True)),
        ("num_users", lambda: reports.plan_columns([3, 4], 1.0, float("inf"))),
        ("epsilon", lambda: rrjax.plan(4, True, 10)),
        ("num_users", lambda: rrjax.plan(mechanism=DESIGNS["warner"](0.7))),
        ("epsilon", lambda: rrjax.plan(3, num_users=9)),
        ("epsilon", lambda: rrjax.plan(3, epsilon=-1.0, num_users=9)),
        ("epsilon", lambda: rrjax.plan(epsilon=1.0, num_users=9, mechanism=DESIGNS["warner"](0.7))),
        ("mechanism", lambda: rrjax.plan(3, 1.0, 9, mechanism="loloha")),
        ("parameters", lambda: rrjax.plan(3, 1.0, 9, parameters={"truth": 0.5})),
        ("target_rmse", lambda: rrjax.plan(3, 1.0, target_rmse=5)),
        ("target_width", lambda: rrjax.plan(3, 1.0, target_rmse=0.1, target_width=0.1)),
        ("share", lambda: rrjax.plan(3, 1.0, 9, share=2)),
        ("level", lambda: rrjax.plan(3, 1.0, 9, level=95)),
        ("num_categories", lambda: reports.plan_columns([3], 1.0, 9)),
        ("num_categories", lambda: reports.plan_columns(["a", 3], 1.0, 9)),
        ("num_users", lambda: reports.plan_columns([3, 4], 1.0, 0)),
        ("epsilon", lambda: reports.plan_columns([3, 4], 100.0, 9)),
    ],
)
def test_errors_about_plans_name_the_argument(argument, ask):
    check_refusal(argument, ask)


@pytest.mark.long
def test_a_plan_draws_itself():
    pytest.importorskip("matplotlib")
    for plan in (rrjax.plan(3, 1.0, 900), reports.plan_columns([2, 3], 2.0, 900)):
        assert plan.figure().axes


@pytest.mark.long
def test_the_sentence_of_a_difference_is_about_the_first_row():
    """Of several p-values of 1 it was about the first label, which may differ the least."""
    one, other = rrjax.Reports.of_counts([50, 30, 20, 12], 1.0), rrjax.Reports.of_counts([49, 30, 20, 13], 1.0)
    answer = reports.test_difference(one, other)
    assert answer.columns["p_value"].tolist() == [1, 1, 1, 1]
    assert answer.sentences[0].startswith("3: ")
    tables = [block.rows for block in answer.blocks() if hasattr(block, "rows")]
    assert tables[0][0][0] == "3"
    for counts in ([70, 30], [50, 50]):  # two answers are tied up to rounding
        answer = reports.test_difference(rrjax.Reports.of_counts(counts, 1.0), rrjax.Reports.of_counts([61, 45], 1.0))
        (shown, *_) = [block.rows for block in answer.blocks() if hasattr(block, "rows")]
        assert answer.sentences[0].startswith(f"{shown[0][0]}: ")


@pytest.mark.long
@pytest.mark.parametrize("column", [0, "0"])
def test_columns_whose_names_are_no_texts_are_refused(column):
    pandas = pytest.importorskip("pandas", reason="frames need rrjax[frames]")
    with refused("column", error=DataError):
        rrjax.read(pandas.DataFrame({0: LABELS * 3}), column=column, epsilon=1.0, domain=LABELS)
    if column == 0:  # the name is a text, and the argument is none
        with refused("column", error=DataError):
            rrjax.read(pandas.DataFrame({"0": LABELS * 3}), column=column, epsilon=1.0, domain=LABELS)


def test_an_epsilon_beyond_the_floats_is_refused():
    with refused("epsilon"):
        rrjax.Reports.of_counts(COLOURS, 10**400)


@pytest.mark.long
def test_a_table_of_a_population_that_lacks_a_level_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("visits,region\n" + "0,N\n1,S\n" * 20)
    Path("one.csv").write_text("region,people\nN,1000\n")
    Path("semicolons.csv").write_text("region;people\nN;1000\nS;300\n")
    read = rrjax.read("s.csv", column="visits", epsilon=1.0, domain="0:1")
    with refused(error=DataError, value="S"):
        read.mean(by="region", population="one.csv")
    with refused(error=DataError, file="semicolons.csv", argument=None):  # the flag is for the reports
        read.mean(by="region", population="semicolons.csv")
