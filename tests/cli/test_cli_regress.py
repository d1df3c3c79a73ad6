"""Regression on the command line, and covariates from files."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from refusals import refused

import rrjax
from rrjax import io
from rrjax.io.rows import read_covariate, read_covariates, read_rows
from rrjax.models import fit, fit_randomized_covariates, goodness_of_fit_test, wald_test

pytestmark = pytest.mark.once  # nothing here depends on the precision

LABELS = np.asarray(["never", "once", "often"], object)
READ = ("--outcome", "uses", "--epsilon", "2", "--domain", "domain.txt")


@pytest.fixture
def survey(invoke):
    """Covariates, reports, and the file of them."""
    rng = np.random.default_rng(0)
    age, region = rng.integers(18, 80, 2000), rng.integers(0, 3, 2000)
    logits = np.c_[np.zeros(2000), -1 + 0.02 * age + 0.5 * (region == 2), 0.5 - 0.01 * age]
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    values = (shares.cumsum(1) < rng.random(2000)[:, None]).sum(1)
    reports = np.asarray(rrjax.RandomizedResponse(3, 2.0).randomize(jax.random.key(0), values))
    columns = {
        "uses": LABELS[reports],
        "age": age,
        "region": np.asarray(["east", "north", "south"], object)[region],
        "weight": rng.uniform(0.5, 2, 2000),
        "house": np.arange(2000) // 4,
    }
    io.write_table("survey.csv", columns)
    Path("domain.txt").write_text("\n".join(LABELS))
    matrix = np.c_[age, region == 1, region == 2].astype(float)
    return matrix, reports, columns


@pytest.mark.full
def test_what_is_printed_is_what_the_library_finds(invoke, survey):
    """A dozen seconds: two regressions in the precision of the command line, and two of the library."""
    matrix, reports, columns = survey
    found = invoke.json("regress", "survey.csv", *READ, "--covariates", "age,region", "--out", "c.csv")
    result = fit(matrix, reports, 2.0, num_categories=3)
    assert [row["term"] for row in found["coefficients"][:4]] == [
        "(intercept)",
        "age",
        "region: north",
        "region: south",
    ]
    assert [row["category"] for row in found["coefficients"]] == ["once"] * 4 + ["often"] * 4
    for name, wanted in (("estimate", result.coefficients), ("standard_error", result.standard_errors)):
        np.testing.assert_allclose([row[name] for row in found["coefficients"]], wanted.T.ravel(), rtol=5e-3, atol=1e-4)
    row = found["coefficients"][1]
    assert row["upper"] - row["lower"] == pytest.approx(2 * 1.959964 * row["standard_error"])
    tests = [wald_test(result, 0), wald_test(result, [1, 2])]
    assert [test["covariate"] for test in found["tests"]] == ["age", "region"]
    assert [test["degrees"] for test in found["tests"]] == [2, 4]
    assert [test["statistic"] for test in found["tests"]] == pytest.approx(
        [float(t.statistic) for t in tests], rel=0.01
    )
    fitness = goodness_of_fit_test(result, matrix, reports, 2.0)
    assert found["goodness_of_fit"]["statistic"] == pytest.approx(float(fitness.statistic), rel=0.05)
    assert found["gap"] < 1e-9
    written = read_covariate(io.Source("c.csv", column="estimate"))
    np.testing.assert_allclose(written.values, [row["estimate"] for row in found["coefficients"]])
    given = ("--weights", "weight", "--clusters", "house", "--reference", "often")
    out = invoke.done("regress", "survey.csv", *READ, "--covariates", "age", *given, "--explain")
    turned = np.asarray([1, 2, 0])[reports]
    weighted = fit(matrix[:, 0], turned, 2.0, num_categories=3, weights=columns["weight"], clusters=columns["house"])
    assert "never, compared with often" in out
    row = next(line for line in out.splitlines() if line.startswith("age")).split()
    assert float(row[1]) == pytest.approx(float(weighted.coefficients[1, 0]), abs=1e-3)
    assert float(row[2]) == pytest.approx(float(weighted.standard_errors[1, 0]), abs=1e-3)


@pytest.mark.long
@pytest.mark.usefixtures("survey")
def test_what_is_wrong_is_named(invoke):
    def said(*flags, code=2):
        status, _, error = invoke("regress", "survey.csv", *READ, *flags)
        assert status == code, error
        return " ".join(error.split())

    def flag(*flags):
        said(*flags)
        return invoke.error.flag

    assert "there is no column 'Age'; did you mean 'age'?" in said("--covariates", "Age", code=3)
    assert flag("--covariates", "age,") == "--covariates"
    assert flag("--covariates", "age", "--clusters", "region") == "--clusters"  # three, for four coefficients
    said("--covariates", "age", "--weights", "region", code=3)
    assert invoke.error.column == "region"
    assert flag("--covariates", "age", "--ridge", "1e308") == "--ridge"
    assert flag("--covariates", "age\nregion") == "--covariates"
    assert flag("--covariates", "age", "--factors", "x" * 200_000) == "--factors"
    assert "has 500 levels, more than 100. Correct" in said("--covariates", "house", "--factors", "house", code=3)


@pytest.mark.long
def test_rows_that_lack_something_are_left_out(invoke, survey):
    _, _, columns = survey
    age = columns["age"].astype(object)
    age[[5, 9]] = ""
    double = np.asarray(columns["age"]) * 2
    io.write_table("double.csv", columns | {"twice": double, "age": np.asarray([str(each) for each in age], object)})
    error = invoke.said(3, "regress", "double.csv", *READ, "--covariates", "age,twice", "--drop-missing")
    assert invoke.error.column == "age"
    assert "covariate 'age', covariate 'twice'" in " ".join(error.split())


@pytest.mark.long
def test_units_and_clusters_that_say_little_are_named(invoke, survey):
    _, _, columns = survey
    house = np.arange(len(columns["age"])) % 40
    more = {"far": np.asarray(columns["age"]) * 1e305, "kind": (house < 3).astype(int), "house": house}
    io.write_table("more.csv", columns | more)
    assert invoke("regress", "more.csv", *READ, "--covariates", "far")[0] == 3
    assert invoke.error.column == "far"
    line = ("regress", "more.csv", *READ, "--covariates", "age,kind", "--clusters", "house", "--json")
    warned = [text for text in json.loads(invoke.done(*line))["warnings"] if "cluster" in text]
    assert len(warned) == 1
    assert "'kind'" in warned[0]


@pytest.mark.long
@pytest.mark.usefixtures("invoke")
def test_covariates_are_numbers_or_levels():
    io.write_table("n.csv", {"x": np.asarray(["1", "2", "-", "nan"], object)})
    for show, value in ((None, None), (True, "-")):
        with refused(error=io.DataError, file="n.csv", column="x", row=3, value=value):
            read_covariate(io.Source("n.csv", column="x", show_values=show))
    named = read_covariate(io.Source("n.csv", column="x", missing=("-", "nan")))
    np.testing.assert_array_equal(named.values, [1, 2, np.nan, np.nan])
    levels = read_covariate(io.Source("n.csv", column="x"), factor=True)
    assert levels.of_rows(np.asarray([True, False, True, False])).levels == ("-", "1")
    io.write_table(
        "t.csv",
        {
            "number": np.asarray(["1.5", "", "-2e3"], object),
            "code": np.asarray([10, 9, 10]),
            "text": np.asarray(["b", "a", "?"], object),
            "same": np.asarray(["x", "x", "x"], object),
        },
    )
    source = io.Source("t.csv", missing=("?",))
    number, code, text = read_covariates(source, ["number", "code", "text"], ["code"])
    np.testing.assert_array_equal(number.values, [1.5, np.nan, -2000])
    assert (number.levels, code.levels, text.levels) == (None, ("9", "10"), ("a", "b"))
    matrix, names = code.columns()
    assert names == ["code: 10"]
    np.testing.assert_array_equal(matrix, [[1], [0], [1]])
    np.testing.assert_array_equal(text.columns()[0], [[1], [0], [np.nan]])
    with refused(error=io.DataError, file="t.csv", column="same"):
        read_covariates(source, ["same"])


@pytest.mark.full
def test_a_covariate_may_be_randomized_too(invoke):
    rng = np.random.default_rng(3)
    income, age = rng.integers(0, 3, 6000), rng.integers(18, 80, 6000)
    smokes = (rng.random(6000) < 1 / (1 + np.exp(1 - 1.2 * (income == 2)))).astype(int)
    names = {"smokes": np.asarray(["no", "yes"], object)[smokes], "income": np.asarray(list("abc"), object)[income]}
    io.write_table("v.csv", {**names, "age": age, "coin": rng.integers(0, 2, 6000)})
    line = ("randomize", "v.csv", *(each for name in (*names, "coin") for each in ("--column", name)), "--apart")
    how = ("--epsilon", "6", "--seed", "1", "--keep", "age", "--out")
    invoke.done(*line, *how, "s.parquet", "--columns-per-user", "2")
    given = ("regress", "s.parquet", "--outcome", "smokes", "--covariates")
    found = invoke.json(*given, "age,income", "--reference", "yes", "--out", "c.csv")
    assert found["randomized_covariates"] == ["income"]
    assert found["goodness_of_fit"] is None
    assert [row["term"] for row in found["coefficients"]] == ["(intercept)", "age", "income: b", "income: c"]
    assert [test["degrees"] for test in found["tests"]] == [1, 2]
    # Two of three columns are reported: some users have no outcome, and count by their income.
    known = io.Source("s.parquet").columns()
    reports = [read_rows(io.Source("s.parquet", column=name), known[name].domain).indices for name in names]
    assert found["num_rows"] == (np.maximum(*reports) >= 0).sum()
    laws = [rrjax.RandomizedResponse(size, 3.0) for size in (2, 3)]
    turned = np.where(reports[0] >= 0, 1 - reports[0], -1)
    wanted = fit_randomized_covariates(age.astype(float), [(reports[1], laws[1])], turned, laws[0])
    for name, values in (("estimate", wanted.coefficients), ("standard_error", wanted.standard_errors)):
        np.testing.assert_allclose([row[name] for row in found["coefficients"]], values.ravel(), rtol=5e-3, atol=1e-3)
    out = invoke.done(*given, "income")
    assert "income: b" in out

    def flag(*flags):
        assert invoke(*given, *flags)[0] == 2
        return invoke.error.flag

    assert flag("income", "--clusters", "coin") == "--clusters"
    assert flag("income,smokes") == "--covariates"
    assert invoke(*line, *how, "one.parquet", "--columns-per-user", "1")[0] == 0
    assert invoke("regress", "one.parquet", *given[2:], "income")[0] == 2
    assert (invoke.error.flag, invoke.error.value) == ("--covariates", "income")
    invoke.refuses("--keep", *line, *how[:-2], "coin", "--out", "x.parquet")
