"""Designs and parameters in columns of a file, and differences: what the command line and a notebook say of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from outlets import check_outlets
from refusals import blames, refused
from scipy import stats

import rrjax
from rrjax import models
from rrjax.data.errors import ArgumentError, DataError
from rrjax.io.domain import Domain
from rrjax.io.read import count_by
from rrjax.io.source import Source
from rrjax.mechanisms import ByRespondent, Crosswise, Direct
from rrjax.reports import test_difference as difference_of

pytestmark = pytest.mark.once
COLUMNS = ("--column", "answer", "--domain", "0:1")
MIXED = (*COLUMNS, "--mechanism", "@design", "--parameter", "innocuous=@p")
GROUPS = {("crosswise", "1/4"): [112, 198], ("direct", ""): [89, 7]}
"""Answers 0 and 1 to a question on plagiarism (p = 1/4), published as counts."""


@pytest.fixture
def survey(invoke):
    """The published answers, row by row and as a table of counts; ages are made up."""
    rows = [
        f"{answer},{design},{p},{20 + 7 * place % 60}"
        for (design, p), numbers in GROUPS.items()
        for answer, number in enumerate(numbers)
        for place in range(number)
    ]
    Path("rows.csv").write_text("answer,design,p,age\n" + "\n".join(rows) + "\n,direct,,30\n")
    table = [
        f"{answer},{design},{p},{number}" for (design, p), each in GROUPS.items() for answer, number in enumerate(each)
    ]
    Path("table.csv").write_text("answer,design,p,n\n" + "\n".join(table) + "\n")
    return invoke


def read(name="rows.csv", **more):
    given = {"column": "answer", "domain": "0:1", "mechanism": "@design", "parameters": {"innocuous": "@p"}}
    return rrjax.read(name, **{**given, **more})


def test_counts_by_the_texts_of_other_columns(survey):
    found = count_by(Source("rows.csv", column="answer"), ["design", "p"], Domain.range(0, 1))
    assert {key: each.counts.tolist() for key, each in found.items()} == GROUPS
    assert [each.num_missing for each in found.values()] == [0, 1]
    counted = count_by(Source("table.csv", column="answer"), ["p"], Domain.range(0, 1), "n")
    assert {key: each.counts.tolist() for key, each in counted.items()} == {("",): [89, 7], ("1/4",): [112, 198]}


@pytest.mark.full  # an estimate of each group, and of both
def test_rows_tables_and_frames_give_one_answer(survey):
    polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")
    answer = read().shares()
    check_outlets(answer, survey, "estimate", "rows.csv", *MIXED)
    assert answer.fit is not None
    assert float(answer.fit.p_value) == pytest.approx(0.0145, abs=5e-5)
    assert [each.mechanism.name for each in answer.reports.parts.values()] == ["crosswise", "direct"]
    assert "inf" in answer.reports.summary()
    for name, more in (("table.csv", {"counts": "n"}), (polars.read_csv("rows.csv"), {})):
        other = read(name, **more).shares()
        for column, values in answer.columns.items():
            np.testing.assert_array_equal(values, other.columns[column])
    columns = answer.columns
    np.testing.assert_allclose(columns["likeliest"], [0.88551863, 0.11448137], atol=1e-7)
    assert columns["group_2"] == pytest.approx([89 / 96, 7 / 96], abs=1e-6)


@pytest.mark.full  # a fit of 406 rows
def test_a_regression_takes_the_design_of_each_row(survey):
    answer = read().regress("age")
    rows = [line.split(",") for line in Path("rows.csv").read_text().splitlines()[1:-1]]
    which = [int(design == "direct") for _, design, _, _ in rows]
    designs = Crosswise(0.25, yes_category=1), Direct(2)
    ages = np.asarray([[float(age)] for *_, age in rows])
    with rrjax_in_float64():
        fitted = models.fit(ages, np.asarray([int(row[0]) for row in rows]), ByRespondent(designs, which))
        wanted = np.ravel(fitted.coefficients)
    np.testing.assert_allclose(answer.columns["estimate"], wanted, rtol=1e-6)
    check_outlets(
        answer, survey, "regress", "rows.csv", "--outcome", "answer", "--covariates", "age", *MIXED[2:], out=False
    )


def rrjax_in_float64():
    import jax

    return jax.enable_x64(True)


@pytest.mark.long
def test_direct_less_crosswise_is_the_published_difference(survey):
    answer = difference_of(read())
    found = {name: float(each[1]) for name, each in answer.columns.items()}
    assert round(100 * found["first"], 2) == 22.26
    assert round(100 * found["second"], 2) == 7.29
    assert round(100 * found["difference"], 2) == 14.97
    assert round(100 * found["standard_error"], 1) == 6.1
    assert round(2 * stats.norm.sf(found["difference"] / found["standard_error"]), 3) == 0.014  # Wald's, as published
    assert round(found["p_value"], 3) == 0.019
    check_outlets(answer, survey, "test", "difference", "rows.csv", *MIXED)
    said = json.loads(survey.done("test", "difference", "table.csv", *MIXED, "--counts", "n", "--json"))
    assert said["p_value"] == pytest.approx(answer.to_dict()["p_value"])


@pytest.mark.long
def test_the_difference_of_two_collections(survey):
    one, other = rrjax.Reports.of_counts([520, 290, 190], 2.0), rrjax.Reports.of_counts([0, 1, 999], Direct(3))
    answer = difference_of(one, other, names=["now", "then"], level=0.9)
    columns = answer.columns
    law = one.mechanism.rates_by(np.expm1)
    seen = np.array([520, 290, 190]) / 1000
    np.testing.assert_allclose(columns["first"], (seen - law.q) / law.d, atol=1e-6)
    error = np.sqrt(seen * (1 - seen) / 1000) / law.d
    # A count of zero has the error of half an answer.
    rare = np.array([0.5 / 1001, 1 / 1000, 999 / 1000])
    np.testing.assert_allclose(columns["standard_error"], np.hypot(error, np.sqrt(rare * (1 - rare) / 1000)), rtol=1e-5)
    assert "Bonferroni" in repr(answer)
    with refused("second"):
        difference_of(one)
    with refused("second"):
        difference_of(one, one)
    with refused("domain"):
        difference_of(one, rrjax.Reports.of_counts([1, 2], Direct(2)))
    with refused("names"):
        difference_of(one, other, names=["now"])


@pytest.mark.long
def test_a_difference_beyond_one_has_limits_within():
    columns = difference_of(
        rrjax.Reports.of_counts([900, 50, 50], 1.0), rrjax.Reports.of_counts([0, 500, 500], 1.0)
    ).columns
    assert columns["difference"][0] > 1.2
    assert np.isnan(
        columns["lower"]
    ).all()  # 900 of 1,000 are too many even if all hold it, and 50 too few if nobody does
    columns = difference_of(
        rrjax.Reports.of_counts([590, 205, 205], 1.0), rrjax.Reports.of_counts([200, 400, 400], 1.0)
    ).columns
    assert columns["difference"][0] > 1
    assert columns["upper"].max() == 1


@pytest.mark.long
def test_supports_of_two_categories_are_two_tests():
    mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(2, 1.0)
    tallies = [rrjax.Tally(np.asarray(each), 1000, rates=mechanism.rates) for each in ([400, 350], [350, 380])]
    answer = difference_of(*(rrjax.Reports.of_tally(each, mechanism) for each in tallies))
    p = np.asarray([0.4, 0.35, 0.35, 0.38])
    pooled = (p[:2] + p[2:]) / 2
    z = (np.abs([0.05, 0.03]) - 0.5 / 1000) / np.sqrt(2 * pooled * (1 - pooled) / 1000)  # Yates
    np.testing.assert_allclose(answer.columns["p_value"], np.minimum(4 * stats.norm.sf(z), 1), rtol=1e-3)
    assert answer.num_tests == 2


@pytest.fixture
def samples(invoke):
    """Two surveys of 15 and 20 schools in two regions, of which half of the pupils were asked directly."""
    for name, number in (("one", 600), ("other", 800)):
        random, school = np.random.default_rng(number), np.arange(number) // 40
        north = school < number // 80
        columns = {
            "answer": random.integers(0, 2, number), "design": random.choice(["direct", "crosswise"], number),
            "weight": random.uniform(1, 3, number).round(3), "region": np.where(north, "north", "south"),
            "school": school, "schools": np.where(north, 30, 50), "sex": random.choice(["f", "m"], number),
        }  # fmt: skip
        rrjax.io.write_table(f"{name}.csv", {name: each.astype(object) for name, each in columns.items()})
    return invoke


DESIGN = {"weights": "weight", "strata": "region", "clusters": "school", "population_size": "schools"}
FLAGS = [text for name, column in DESIGN.items() for text in (f"--{name.replace('_', '-')}", column)]


def sampled(name):
    """The columns of a survey, as arguments of `survey_estimate`."""
    frame = np.genfromtxt(f"{name}.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    return frame, {argument: frame[column] for argument, column in DESIGN.items()}


@pytest.mark.long
def test_groups_of_one_survey_share_its_clusters(samples):
    """By levels of a column, and by design, against the difference of two domains and Student's t."""
    one = {"column": "answer", "domain": "0:1", "mechanism": Crosswise(0.25, yes_category=1)}
    frame, given = sampled("one")
    mixed = ByRespondent([Direct(2), one["mechanism"]], (frame["design"] == "crosswise").astype(int))
    flags = (*COLUMNS, "--mechanism", "crosswise", "--parameter", "innocuous=1/4")
    of_design = {**one, "mechanism": "@design", "parameters": {"innocuous": 0.25}}
    by_design = (*COLUMNS, "--mechanism", "@design", "--parameter", "innocuous=1/4")
    for options, line, by, mechanism, domain in (
        (one, flags, {"by": "sex"}, one["mechanism"], frame["sex"] == "f"),
        (of_design, by_design, {}, mixed, frame["design"] == "crosswise"),
    ):
        reports = rrjax.read("one.csv", **options)
        answer = difference_of(reports, **by, **DESIGN)
        sign = {"f": 1, "crosswise": 1}.get(answer.names[0], -1)
        with rrjax_in_float64():
            wanted, *sides = (
                rrjax.inference.survey_estimate(
                    frame["answer"], mechanism, values=[0, 1], method="normal", **each, **given
                )
                for each in ({"domain": domain, "less": ~domain}, {"domain": domain}, {"domain": ~domain})
            )
        assert answer.columns["difference"][1] == pytest.approx(sign * float(wanted.value))
        assert answer.columns["standard_error"][1] == pytest.approx(float(wanted.standard_error))
        assert abs(answer.columns["standard_error"][1] - np.hypot(*(each.standard_error for each in sides))) > 1e-4
        limits = [answer.columns[name][1] for name in ("lower", "upper")]
        assert sorted(sign * each for each in limits) == pytest.approx([float(wanted.lower), float(wanted.upper)])
        p_value = 2 * stats.t.sf(abs(float(wanted.value / wanted.standard_error)), 13)
        assert answer.columns["p_value"][1] == pytest.approx(p_value)
        assert answer.facts["degrees"] == 13
        assert {answer.facts["first"]["num_reports"], answer.facts["second"]["num_reports"]} == {
            domain.sum(),
            (~domain).sum(),
        }
        extra = [text for name in by for text in ("--by", by[name])]
        check_outlets(answer, samples, "test", "difference", "one.csv", *line, *extra, *FLAGS)


@pytest.mark.long
def test_two_surveys_are_independent_and_have_the_degrees_of_welch(samples):
    design = Crosswise(0.25, yes_category=1)
    read = {"column": "answer", "domain": "0:1", "mechanism": design}
    answer = difference_of(*(rrjax.read(f"{name}.csv", **read) for name in ("one", "other")), **DESIGN)
    sides = []
    for name in ("one", "other"):
        frame, given = sampled(name)
        with rrjax_in_float64():
            each = rrjax.inference.survey_estimate(frame["answer"], design, values=[0, 1], method="normal", **given)
        sides.append(np.asarray(each))
    value, error, *_, degrees = np.transpose(sides)
    columns = {name: each[1] for name, each in answer.columns.items()}
    assert [columns["first"], columns["second"]] == pytest.approx(value)
    assert columns["standard_error"] == pytest.approx(np.hypot(*error))
    welch = (error**2).sum() ** 2 / (error**4 / degrees).sum()
    assert welch < degrees.sum() == 31
    assert columns["p_value"] == pytest.approx(2 * stats.t.sf(abs(value[0] - value[1]) / np.hypot(*error), welch))
    line = (*COLUMNS, "--mechanism", "crosswise", "--parameter", "innocuous=1/4", *FLAGS)
    check_outlets(answer, samples, "test", "difference", "one.csv", "other.csv", *line)


@pytest.mark.long
def test_equal_weights_are_none_and_answers_that_are_all_alike_have_no_error(samples):
    read = {"column": "answer", "domain": "0:1", "mechanism": Direct(2)}
    Path("alike.csv").write_text("answer,w,sex\n" + "1,2,f\n" * 300 + "1,2,m\n0,2,m\n" * 100)
    Path("same.csv").write_text("answer,w,sex\n" + "1,2,f\n1,2,m\n" * 10)
    reports = rrjax.read("alike.csv", **read)
    plain = difference_of(reports, by="sex").columns
    weighted = difference_of(reports, by="sex", weights="w").columns
    assert weighted["standard_error"] == pytest.approx(np.sqrt(0.25 / 199), rel=1e-6)
    assert plain["standard_error"][0] == pytest.approx(np.hypot(np.sqrt(0.25 / 200), 0.5 / 300), rel=0.01)
    for name in ("first", "second", "difference"):
        np.testing.assert_allclose(weighted[name], plain[name], rtol=1e-12, atol=1e-12)
    for name in ("lower", "upper"):
        np.testing.assert_allclose(weighted[name], plain[name], atol=0.01)
    assert difference_of(rrjax.read("same.csv", **read), by="sex").columns["p_value"].tolist() == [1, 1]
    same = difference_of(rrjax.read("same.csv", **read), by="sex", weights="w")
    assert np.isnan(same.columns["p_value"]).all()
    assert any("10 reports" in warning for warning in same.warnings)
    assert same.facts["p_value"] == 1
    assert "< 1e-99" not in repr(same)
    # The noise of the design is an error that they have.
    hidden = rrjax.read("same.csv", **read | {"mechanism": Crosswise(0.25)})
    error = difference_of(hidden, by="sex", weights="w").columns["standard_error"]
    assert error == pytest.approx(np.sqrt(2 * 0.25 * 0.75 / 0.5**2 / 10), rel=1e-6)


@pytest.mark.long
def test_two_levels_are_two_collections(samples):
    """Also where one has six reports, all alike, whose own variance would say that they hardly err."""
    read = {"column": "v", "domain": "yes,no", "epsilon": 1.0}
    rows = ["yes,few"] * 6 + ["yes,many", "no,many"] * 200
    Path("levels.csv").write_text("\n".join(["v,g", *rows]))
    one, other = rrjax.Reports.of_counts([6, 0], 1.0, ["yes", "no"]), [200, 200]
    apart = difference_of(one, rrjax.Reports.of_counts(other, 1.0, ["yes", "no"])).columns
    found = difference_of(rrjax.read("levels.csv", **read), by="g")
    for name, each in found.columns.items():
        np.testing.assert_array_equal(each, apart[name])
    assert 0.02 < apart["p_value"][0] < 0.06  # 2 · .5⁶ = .031 without the noise of the many
    assert found.sizes == (6, 400)


@pytest.mark.long
def test_what_does_not_go_with_the_difference_of_samples(samples):
    one, other = (
        rrjax.read(f"{name}.csv", column="answer", domain="0:1", mechanism=Direct(2)) for name in ("one", "other")
    )
    groups = rrjax.reports.Groups({1: one, 2: other})
    counted = rrjax.Reports.of_counts([2, 3], Direct(2))
    for argument, sides, given in (
        ("by", (one, other), {"by": "sex"}),
        ("by", (one,), {"by": "school"}),
        ("by", (groups,), {"by": "sex"}),
        ("clusters", (groups, one), {"clusters": "school"}),
        ("data", (one, counted), {"clusters": "school"}),
        ("second", (one,), {"clusters": "school"}),
        ("strata", (one, other), {"strata": "answer"}),
    ):
        with refused(argument):
            difference_of(*sides, **given)
    line = ("test", "difference", "one.csv", *COLUMNS, "--mechanism", "direct")
    assert samples(*line, "other.csv", "--by", "sex")[0] == 2
    assert samples.error.flag == "REPORTS"
    assert samples(*line, "--clusters", "school")[0] == 2
    assert samples.error.flag == "REPORTS"
    samples.refuses("--by", *line, "--by", "school")


@pytest.mark.full  # 300 surveys
def test_the_difference_keeps_its_level():
    random, designs = np.random.default_rng(2), (Direct(2), Crosswise(0.2))
    laws = [np.asarray(each.channel(), float).T @ [0.3, 0.7] for each in designs]
    number, misses = 300, 0
    for _ in range(number):
        sides = [
            rrjax.Reports.of_counts(random.multinomial(400, law), each) for law, each in zip(laws, designs, strict=True)
        ]
        columns = difference_of(*sides).columns
        misses += not columns["lower"][0] <= 0 <= columns["upper"][0]
    assert abs(misses / number - 0.05) < 4 * np.sqrt(0.05 * 0.95 / number)


@pytest.mark.long
def test_cells_of_one_design_are_one_group_and_rows_without_an_answer_need_none(survey):
    rows = ["1,crosswise,1/4", "0,crosswise,0.250", "0,Direct,", "0,direct,NA", ",warner,0.3", ",,"] * 3
    Path("rows.csv").write_text("answer,design,p\n" + "\n".join(rows) + "\n")
    reports = read()
    found = {each.mechanism.name: each.counts.tolist() for each in reports.parts.values()}
    assert found == {"crosswise": [3, 3], "direct": [6, 0]}
    assert (
        reports.warnings
        == difference_of(reports).warnings
        == ["6 of 18 reports are missing (6 empty), and are left out."]
    )
    assert (reports.num_reports, reports.facts()["num_missing"]) == (12, 6)
    Path("none.csv").write_text("answer,design,p\n,direct,\n")
    with pytest.raises(DataError, match="missing"):
        read("none.csv")


def test_files_that_say_how_they_were_randomized_are_not_of_a_survey(survey):
    Path("true.csv").write_text("answer,design,p\n" + "1,crosswise,1/4\n0,direct,\n" * 20)
    made = ("--epsilon", 2, "--keep", "design,p", "--out", "r.parquet")
    _ = survey.done("randomize", "true.csv", *COLUMNS, *made)
    assert "r.parquet" in survey.refuses("--mechanism", "estimate", "r.parquet", *MIXED)


@pytest.mark.parametrize(
    ("have", "lack", "place"), [("abc", "0.2", (None, None)), ("0.2", "0.2", ("p", 2)), (None, "0.2", (None, None))]
)
def test_an_error_is_about_the_cell_or_about_what_is_given_for_all(survey, have, lack, place):
    Path("kuk.csv").write_text(f"answer,p\n1,0.3\n0,{lack}\n")
    given = {"lack": "@p"} if have is None else {"lack": "@p", "have": have}
    with pytest.raises((DataError, ArgumentError), match="have") as caught:
        read("kuk.csv", mechanism="kuk", parameters=given)
    assert (caught.value.column, caught.value.row) == place


@pytest.mark.parametrize(
    ("row", "column", "problem"),
    [
        ("1,crosswise,,30", "p", "needs its parameter"),
        ("1,crosswise,1.5,30", "p", "'1.5'"),
        ("1,crosswise,half,30", "p", "'half'"),
        ("1,crosswise,0.5,30", "p", "'0.5'"),
        ("1,odd,0.5,30", "design", "'odd'"),
        ("1,,0.5,30", "design", "names no survey design"),
    ],
)
def test_a_cell_that_makes_no_design_is_named_with_its_row(survey, row, column, problem):
    Path("rows.csv").write_text(f"answer,design,p,age\n1,crosswise,1/4,30\n0,direct,,30\n{row}\n")
    code, _, said = survey("estimate", "rows.csv", *MIXED)
    assert code == 3, said
    assert (survey.error.column, survey.error.row) == (column, 3)
    assert problem in str(survey.error)
    with pytest.raises(DataError):
        read()


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (("estimate", "rows.csv", *MIXED[2:]), "--column"),
        (("estimate", "rows.csv", "--column", "answer", *MIXED[4:]), "--domain"),
        (("estimate", "rows.csv", *MIXED, "--epsilon", "1"), "--epsilon"),
        (("estimate", "rows.csv", *MIXED, "--parameter", "truth=0.5"), "--parameter"),
        (("estimate", "rows.csv", *COLUMNS, "--parameter", "innocuous=@p"), "--parameter"),
        (("estimate", "rows.csv", *COLUMNS, "--mechanism", "@design"), "--parameter"),
        (("estimate", "rows.csv", *COLUMNS, "--mechanism", "@design", "--parameter", "innocuous=0.5"), "--parameter"),
        (("test", "fit", "rows.csv", *MIXED), "--mechanism"),
        (("compare", "rows.csv", *MIXED), "REPORTS"),
        (("estimate", "rows.csv", *MIXED, "--quantile", "0.5"), "--quantile"),
        (("regress", "table.csv", "--outcome", "answer", "--covariates", "n", *MIXED[2:], "--counts", "n"), None),
        (("test", "difference", "rows.csv", *MIXED, "--epsilon", "1"), "--mechanism"),
        (("test", "difference", "rows.csv", *COLUMNS, "--epsilon", "1"), "REPORTS"),
        (("test", "difference", "rows.csv", *COLUMNS, "--mechanism", "oue", "--parameter", "x=@p"), "--mechanism"),
        (
            (
                "regress",
                "rows.csv",
                "--outcome",
                "answer",
                "--covariates",
                "age",
                *COLUMNS[2:],
                "--mechanism",
                "cdm",
                "--parameter",
                "forced=@p",
            ),
            "--mechanism",
        ),
        (("randomize", "rows.csv", "--column", "answer", "--mechanism", "direct", "--out", "r.parquet"), "--mechanism"),
    ],
)
def test_what_does_not_go_with_designs_in_columns(survey, line, flag):
    code, _, said = survey(*line)
    assert code == 2, said
    assert flag is None or blames(survey.error, flag) or flag.strip("-") in str(survey.error), said


@pytest.mark.long
def test_a_parameter_that_the_design_lacks_is_named(survey):
    """It was said that the design lacks its own one."""
    flags = ("--mechanism", "warner", "--parameter", "truth=@p")
    assert survey("estimate", "rows.csv", *COLUMNS, *flags)[0] == 2
    assert (survey.error.flag, survey.error.value) == ("--parameter", "truth")


@pytest.mark.long
def test_two_samples_from_a_table_of_counts(survey):
    Path("dice.csv").write_text("answer,die,n\n1,a,400\n0,a,600\n1,b,550\n0,b,450\n")
    forced = ("--mechanism", "cheating-detection", "--parameter", "forced=0.25,0.75", "--sample", "die=a,b")
    found = json.loads(survey.done("estimate", "dice.csv", *COLUMNS, *forced, "--counts", "n", "--json"))
    assert found["counts"] == [[400, 600], [550, 450]]
    assert found["num_missing"] == 0
    with Path("dice.csv").open("a") as table:  # a third sample without an answer
        table.write("0,c,0\n")
    assert json.loads(survey.done("estimate", "dice.csv", *COLUMNS, *forced, "--counts", "n", "--json")) == found


@pytest.mark.full  # an estimate by whole counts
def test_support_counts_from_a_table(invoke):
    import jax

    polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")
    mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(3, 2.0)
    tally = mechanism.collect(jax.random.key(0), np.asarray([600, 300, 100]))
    support = [int(each) for each in tally.support]
    Path("support.csv").write_text("label,n\n" + "\n".join(map("{},{}".format, "abc", support)) + "\n")
    line = "estimate", "support.csv", "--column", "label", "--counts", "n", "--domain", "a,b,c", "--mechanism", "oue"
    given = {"column": "label", "counts": "n", "domain": ["a", "b", "c"], "epsilon": 2.0, "num_users": 1000}
    answer = rrjax.read("support.csv", mechanism="oue", **given).shares()
    check_outlets(answer, invoke, *line, "--epsilon", 2, "--num-users", 1000)
    wanted = rrjax.Reports.of_tally(tally, mechanism, ["a", "b", "c"]).shares().columns
    for name, column in answer.columns.items():
        np.testing.assert_array_equal(column, wanted[name])
    frame = rrjax.read(polars.read_csv("support.csv"), mechanism="oue", **given)
    assert frame.counts.tolist() == support
    for flags, flag in (
        (("--epsilon", 2), "--mechanism"),
        (("--num-users", 1000), "--epsilon"),
        (("--epsilon", 2, "--num-users", max(support) - 1), "--num-users"),
        (("--epsilon", 2, "--num-users", 0), "--num-users"),
    ):
        code, _, said = invoke(*line, *flags)
        assert code == 2, said
        assert blames(invoke.error, flag), said
    with refused("mechanism"):
        rrjax.read("support.csv", mechanism="warner", **given)
    with refused("parameters"):
        rrjax.read("support.csv", mechanism="oue", parameters={"truth": 0.5}, **given)
    with refused("num_users"):
        rrjax.read("support.csv", mechanism="oue", **{**given, "num_users": 1000.5})


@pytest.mark.full  # an estimate
def test_answers_to_direct_questions_are_what_they_are():
    shares = rrjax.Reports.of_counts([49, 47], Direct(2), ["yes", "no"]).shares()
    assert "50" not in shares.to_publish.split("of these")[0]
    assert "told directly" in shares.to_publish
    assert "hardly" not in " ".join(shares.sentences)


@pytest.mark.full  # two groups are estimated
def test_groups_that_contradict_each_other_are_warned_of_in_every_outlet():
    crosswise = rrjax.Reports.of_counts(np.array([600, 400]), Crosswise(0.25), ["yes", "no"])
    for direct, warned in (([7, 893], True), ([270, 630], False)):
        asked = rrjax.Reports.of_counts(np.asarray(direct), Direct(2), ["yes", "no"])
        answer = rrjax.reports.Groups({1: crosswise, 2: asked}).shares()
        assert any("contradict each other" in warning for warning in answer.warnings) is warned
        assert answer.to_dict()["warnings"] == answer.warnings
