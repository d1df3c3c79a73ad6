"""`docs/reference/outputs.md` names every field that commands and studies write, and none that they do not."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="the command line needs rrjax[cli]")
pytest.importorskip("typer", reason="the command line needs rrjax[cli]")
xarray = pytest.importorskip("xarray", reason="studies write datasets with rrjax[study]")

from cases import READ, TRUTH  # noqa: E402

from rrjax.estimators.catalogue import ESTIMATORS, METRICS  # noqa: E402
from rrjax.study import Study  # noqa: E402

pytestmark = pytest.mark.once  # nothing here depends on the precision

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "outputs.md"
EVERYWHERE, OF_REPORTS, ESTIMATES = "In every JSON object", "Of reports that were read", "Estimates"
OBJECTS = {"parameters", "metadata_tests"}
"""Whose fields are those of the mechanism."""


def fields(heading):
    """What the first column of the tables below a heading names, up to the next heading."""
    (text,) = re.findall(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return {name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)}


def paths(value, before=""):
    """The fields of an object, as the page spells them."""
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        return set().union(*(paths(each, before + "[]") for each in value))
    if not isinstance(value, dict) or before.rpartition(".")[2] in OBJECTS:
        return {before}
    return set().union(*(paths(each, f"{before}.{name}" if before else name) for name, each in value.items()))


def test_fields_are_found():
    assert fields("`audit`") >= {"lower", "claimed", "counts", "num_draws"}
    assert paths({"a": {"b": 1}, "c": [{"d": [1, 2]}, {"e": []}]}) == {"a.b", "c[].d", "c[].e"}
    assert paths({"parameters": {"f": 1}}) == {"parameters"}


def test_questions_and_answers_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("outputs", PAGE.parents[1] / "outputs.py")
    outputs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(outputs)
    text = PAGE.read_text(encoding="utf-8")
    assert text == outputs.with_section(text), "run python docs/outputs.py"


def under(name, inner):
    return {f"{name}.{each}" for each in inner}


def documented(command):
    """Which fields one or another object of a command has, by the page."""
    everywhere, of_reports, of_estimates = fields(EVERYWHERE), fields(OF_REPORTS), fields(ESTIMATES)
    if command == "estimate":
        both = {"closest", "likeliest"}
        own = fields("`estimate`") - both | set().union(*(under(name, of_estimates) for name in both))
        return everywhere | of_reports | own | fields("`estimate` of means, quantiles and groups")
    if command == "compare":
        shares = {f"top[].{name}" for name, entry in ESTIMATORS.items() if not (entry.by_name or entry.ordered)}
        return everywhere | of_reports | under("estimators[]", of_estimates) | fields("`compare`") | shares
    if command == "regress":
        return everywhere | of_reports | fields("`regress`")
    if command == "test difference":
        return everywhere | fields("`test difference`")
    if command == "test":
        own = fields("`test fit`, `test equal`, `test trend`, `test independent`") - {"collections[]"}
        return everywhere | under("collections[]", of_reports) | own
    without = {"plan": set(), "randomize": {"plot"}, "audit": {"out", "plot"}, "study": {"out", "plot"}}
    return everywhere - without[command] | fields(f"`{command}`")


RUNS = {
    "estimate": [
        ("estimate", *READ, "--fakes"),
        ("estimate", "unary.parquet"),
        ("estimate", *READ, "--mean", "--by", "region", "--group", "few=2:3"),
    ],
    "compare": [("compare", *READ, *TRUTH)],
    "regress": [("regress", "r.csv", "--outcome", "answer", *READ[3:], "--covariates", "age,region")],
    "test": [
        ("test", "fit", *READ, "--draws", "19"),
        ("test", "trend", "first.parquet", "first.parquet", "--category", "0", "--draws", "19"),
        ("test", "independent", "pairs.parquet", "--draws", "19"),
    ],
    "test difference": [("test", "difference", "first.parquet", "other.parquet")],
    "plan": [("plan", "--categories", "4", "--users", "1000", "--epsilon", "1")],
    "randomize": [
        ("randomize", "t.csv", "--column", "label", "--epsilon", "1", "--domain", "0:3", "--out", "o.parquet")
    ],
    "audit": [("audit", "--categories", "3", "--epsilon", "1", "--draws", "1000")],
    "study": [("study", "own.toml", "--out", "s")],
}


@pytest.fixture
def files(beside_files):
    Path("regions.txt").write_text("north\nsouth\n")
    answers = ("--column", "answer", "--domain", "0:3")
    for name, flags in {
        "first": answers,
        "other": answers,
        "unary": (*answers, "--mechanism", "optimized-unary-encoding"),
        "pairs": (*answers, "--column", "region", "--domain", "regions.txt"),
    }.items():
        assert beside_files("randomize", "r.csv", "--epsilon", "2", *flags, "--out", f"{name}.parquet")[0] == 0
    return beside_files


@pytest.mark.full  # what most commands do, once
@pytest.mark.parametrize("command", RUNS)
def test_objects_have_the_fields_that_the_page_names(files, command):
    found = set()
    for run in RUNS[command]:
        code, out, error = files(*run, "--json")
        assert code == 0, error
        found |= paths(json.loads(out))
    named = documented(command) - {"…"}
    assert found == named


@pytest.mark.full
def test_numbers_have_the_fields_that_the_page_names(files):
    Path("n.csv").write_text("age\n" + "".join(f"{number}\n" for number in range(10, 90)))
    flags = ("--mechanism", "square-wave", "--range", "0,100", "--bins", "5", "--epsilon", "2", "--out", "n.parquet")
    assert files("randomize", "n.csv", *flags)[0] == 0
    found = set()
    for command in (("estimate", "n.parquet"), ("compare", "n.parquet", "--truth", "n.csv")):
        code, out, error = files(*command, "--json")
        assert code == 0, error
        found |= paths(json.loads(out))
    assert found == fields(EVERYWHERE) | fields(OF_REPORTS) | fields("`estimate` and `compare` of numbers")


@pytest.mark.full
def test_a_regression_of_two_samples_has_the_fields_that_the_page_names(files):
    said = {"A": (1, 0, 0), "B": (1, 1, 0)}
    rows = [f"{yes},{card},{age}" for age in range(20, 70) for card in "AB" for yes in (*said[card], age % 2)]
    Path("two.csv").write_text("\n".join(["said,card,age", *rows]))
    line = ["regress", "two.csv", "--outcome", "said", "--domain", "0:1", "--mechanism", "stochastic-lie-detector"]
    line += ["--parameter", "truth=0.8,0.4", "--sample", "card=A,B", "--covariates", "age", "--robust", "--json"]
    code, out, error = files(*line)
    assert code == 0, error
    found = {name for name in paths(json.loads(out)) if name.startswith("second.")}
    assert found == fields("`regress` of two samples")


@pytest.mark.full
def test_rounds_and_columns_have_the_fields_that_the_page_names(files):
    Path("u.csv").write_text("id,a,b,c\n" + "".join(f"{user},{user % 2},{user % 3},{user % 2}\n" for user in range(60)))
    protocol = ("--mechanism", "lgrr", "--epsilon", "4", "--first-epsilon", "2", "--user", "id", "--memo", "m.parquet")
    one = ("randomize", "u.csv", "--column", "a", "--domain", "0:1", *protocol, "--out")
    apart = ("randomize", "u.csv", "--column", "a", "--column", "b", "--apart", "--epsilon", "4", "--out", "c.parquet")
    three = (*apart[:6], "--column", "c", *apart[6:-1], "t.parquet")
    assert files(*three)[0] == 0
    for name, epsilon in (("g1", "1"), ("g2", "2")):
        group = ("--column", "a", "--domain", "0:1", "--epsilon", epsilon, "--out", f"{name}.parquet")
        assert files("randomize", "u.csv", *group)[0] == 0
    for heading, runs in (
        ("`randomize --memo`", ((*one, "r1.parquet"), (*one, "r2.parquet"))),
        ("`estimate` of several rounds", (("estimate", "r1.parquet", "r2.parquet"),)),
        ("`estimate` of files that were randomized differently", (("estimate", "g1.parquet", "g2.parquet"),)),
        ("`randomize --apart`", (apart,)),
        ("`plan --columns`", (("plan", "--columns", "2,3", "--epsilon", "1", "--users", "90"),)),
        ("`estimate --joint`", (("estimate", "c.parquet", "--joint", "a,b"),)),
        ("`estimate --all-pairs`", (("estimate", "c.parquet", "--all-pairs"),)),
        ("`estimate --tree`", (("estimate", "t.parquet", "--tree"),)),
    ):
        found = set()
        for run in runs:
            code, out, error = files(*run, "--json")
            assert code == 0, error
            found |= paths(json.loads(out))
        found = {name.partition(".")[0] if name.startswith("rounds.") else name for name in found}
        assert found - {"command", "out", "plot", "top[].round_2", "top[].group_2"} == fields(heading)


def test_no_command_with_json_is_left_out():
    import typer

    from rrjax.cli.app import app

    root = typer.main.get_command(app)
    assert {
        name for name, each in root.commands.items() if "json" in {flag.name for flag in each.loaded.params}
    } == RUNS.keys() - {"test", "test difference"}


@pytest.mark.full
def test_tables_have_the_columns_that_the_page_names(files):
    text = PAGE.read_text()

    def columns(*run):
        code, _, error = files(*run, "--out", "out.csv")
        assert code == 0, error
        return Path("out.csv").read_text().splitlines()[0].split(",")

    (named,) = re.findall(r"for each of the K categories and the columns (.*?)\. With", text, re.DOTALL)
    names = re.findall(r"`(\w+)`", named)
    assert columns("estimate", *READ, "--fakes") == names
    names.remove("fakes")
    assert columns("estimate", *READ) == columns("estimate", "unary.parquet") == names
    alone = ["inv" if name == "closest" else name for name in names if name != "likeliest"]
    assert columns("estimate", *READ, "--estimator", "inv") == alone
    for heading, prefix, run in (
        ("`estimate` of means, quantiles and groups", "statements[].", ("estimate", *READ, "--mean")),
        ("`regress`", "coefficients[].", RUNS["regress"][0]),
    ):
        assert set(columns(*run)) == {name.removeprefix(prefix) for name in fields(heading) if name.startswith(prefix)}


@pytest.mark.full
def test_a_study_has_the_dimensions_variables_and_attributes_that_the_page_names():
    given = {"estimators": ["inv_n", "inv_p"], "num_categories": 4, "num_users": 100, "epsilon": 2.0, "num_seeds": 3}
    first = Study(**given, zipf=1.0, metrics=list(METRICS)).run(quantiles=[0.5], keep_seeds=True)
    second = Study(
        **given, distributions={"even": lambda size: np.ones(size) / size}, mechanism="subset-selection", metrics="mse"
    ).run()
    section = PAGE.read_text().partition("## The folder of a study")[2]
    named = {}
    for title in ("Dimension", "Variable", "Attribute"):
        rows = section.partition(f"| {title} | What it is |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
        named[title] = {name for row in rows for name in re.findall(r"`([^`]+)`", row.partition(" | ")[0])}
    assert {*first.dims, *second.dims} <= named["Dimension"] | {"distribution"}
    assert named["Dimension"] <= {*first.dims, *second.dims}
    summed = {"bias2", "variance"}
    patterns = {name.replace("METRIC", metric) for name in named["Variable"] for metric in METRICS.keys() - summed}
    assert {*first.data_vars} == patterns
    assert {*first.attrs} == named["Attribute"]
    assert {*second.attrs} - named["Attribute"] == {"distributions", "mechanism"}
