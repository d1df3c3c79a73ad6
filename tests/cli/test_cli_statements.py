"""Means, groups, quantiles and subgroups on the command line: what the library says, and what is refused."""

from pathlib import Path

import jax
import numpy as np
import pytest
from refusals import blames

import rrjax
from rrjax import inference, io
from rrjax.io.rows import read_covariate

pytestmark = pytest.mark.once  # nothing here depends on the precision

READ = ("--column", "visits", "--epsilon", "2", "--domain", "0:9")


@pytest.fixture
def survey(invoke):
    """Reports, regions and weights, and the file of them."""
    rng = np.random.default_rng(0)
    region = rng.integers(0, 2, 3000)
    visits = np.minimum(rng.poisson(2 + 2 * region), 9)
    reports = np.asarray(rrjax.RandomizedResponse(10, 2.0).randomize(jax.random.key(0), visits))
    weight = rng.uniform(0.5, 2, 3000)
    names = np.asarray(["north", "south"], object)[region]
    io.write_table("s.csv", {"visits": reports, "region": names, "weight": weight})
    return reports, region, weight


def said(invoke, *flags):
    return {(row["statement"], row["of"]): row for row in invoke.json("estimate", "s.csv", *READ, *flags)["statements"]}


def agree(row, found):
    assert [row[name] for name in ("value", "standard_error", "lower", "upper")] == pytest.approx(
        [float(each) for each in found], rel=1e-4, abs=1e-5
    )


@pytest.mark.full
def test_statements_are_those_of_the_library(invoke, survey):
    """A dozen seconds: intervals of both kinds, each compiled for all users, for levels and for their difference."""
    reports, region, _ = survey
    counts = np.stack([np.bincount(reports[region == code], minlength=10) for code in (0, 1)])
    often = np.arange(10) >= 5
    io.write_table("p.csv", {"region": np.asarray(["south", "north"], object), "people": np.asarray([100, 300])})
    flags = ("--mean", "--quantile", "0.5", "--group", "often=5:9", "--group", "one or two=1,2")
    found = said(invoke, *flags, "--by", "region", "--population", "p.csv")
    values = np.arange(10.0)
    for level, each in (("all", counts.sum(0)), ("north", counts[0]), ("south", counts[1])):
        agree(found["mean", level], inference.linear_functional(each, 2.0, values=values))
        agree(found["often", level], inference.linear_functional(each, 2.0, values=often))
        assert found["mean", level]["num_reports"] == each.sum()
        median = inference.quantile(each, 2.0, 0.5)
        assert [found["median", level][name] for name in ("value", "lower", "upper")] == [int(x) for x in median]
    agree(found["often", "north less south"], inference.difference(*counts, 2.0, values=often))
    agree(found["often", "population"], inference.stratified(counts, 2.0, shares=[0.75, 0.25], values=often))
    assert ("one or two", "all") in found
    found = said(invoke, "--group", "often=5:9", "--by", "region", "--normal")
    agree(found["often", "south"], inference.linear_functional(counts[1], 2.0, values=often, method="normal"))
    agree(found["often", "north less south"], inference.difference(*counts, 2.0, values=often, method="normal"))
    out = invoke.done("estimate", "s.csv", *READ, *flags, "--by", "region", "--out", "o.csv", "--plot", "o.png")
    assert "o.png" in out
    assert "north less south" in out
    assert "Intervals of shares and quantiles are exact" in out
    assert read_covariate(io.Source("o.csv", column="num_reports")).values[0] == 3000
    assert len(read_covariate(io.Source("o.csv", column="value")).values) == 4 * 4 - 1


@pytest.mark.full
def test_statements_at_any_time_are_those_of_the_library(invoke, survey):
    reports, region, _ = survey
    counts = np.stack([np.bincount(reports[region == code], minlength=10) for code in (0, 1)])
    flags = ("--mean", "--group", "often=5:9", "--by", "region", "--at-any-time")
    for tuned in ({}, {"tuned_to": 500}):
        more = ("--tuned-to", "500") * bool(tuned)
        found, how = said(invoke, *flags, *more), {"looks": "any", **tuned}
        for name, values in (("mean", np.arange(10.0)), ("often", np.arange(10) >= 5)):
            agree(found[name, "all"], inference.linear_functional(counts.sum(0), 2.0, values=values, **how))
            agree(found[name, "north"], inference.linear_functional(counts[0], 2.0, values=values, **how))
            agree(found[name, "north less south"], inference.difference(*counts, 2.0, values=values, **how))
        whole = invoke.json("estimate", "s.csv", *READ, *flags, *more)
        assert (whole["tuned_to"], whole["by"]) == (tuned.get("tuned_to", 10_000), "region")
    answer = rrjax.read("s.csv", column="visits", epsilon=2.0, domain="0:9").mean(looks="any", tuned_to=500)
    usual = rrjax.read("s.csv", column="visits", epsilon=2.0, domain="0:9").mean()
    assert answer.columns["lower"][0] < usual.columns["lower"][0]
    assert answer.sentences != usual.sentences
    assert usual.facts["tuned_to"] is None


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (("--mean", "--normal", "--at-any-time"), "--normal"),
        (("--mean", "--quantile", "0.5", "--at-any-time"), "--quantile"),
        (("--mean", "--weights", "weight", "--at-any-time"), "--weights"),
        (("--mean", "--by", "region", "--population", "p.csv", "--at-any-time"), "--population"),
        (("--mean", "--tuned-to", "500"), "--tuned-to"),
        (("--mean", "--at-any-time", "--fakes"), "--fakes"),
    ],
)
def test_what_does_not_fit_any_time_is_refused(invoke, survey, flags, flag):
    io.write_table("p.csv", {"region": np.asarray(["south", "north"], object), "people": np.asarray([100, 300])})
    invoke.refuses(flag, "estimate", "s.csv", *READ, *flags)


@pytest.mark.long
def test_weights_stand_for_others(invoke, survey):
    reports, region, weight = survey
    found = said(invoke, "--group", "often=5:9", "--by", "region", "--weights", "weight")
    for level, chosen in (("all", region >= 0), ("north", region == 0), ("south", region == 1)):
        each = inference.survey_estimate(reports, 2.0, values=np.arange(10) >= 5, weights=weight, domain=chosen)
        agree(found["often", level], each[:4])
        assert found["often", level]["effective_size"] == pytest.approx(float(each.effective_size), rel=1e-4)
    agree(
        found["often", "north less south"],
        inference.survey_estimate(
            reports, 2.0, values=np.arange(10) >= 5, weights=weight, domain=region == 0, less=region == 1
        )[:4],
    )


SURVEYED = (
    ("--mechanism", "optimized-unary-encoding", "--epsilon", "2"),
    ("--mechanism", "optimized-local-hashing", "--epsilon", "2"),
    ("--mechanism", "forced-response", "--parameter", "truth=1/2", "--parameter", "forced=1/4,1/4,1/4,1/4"),
    ("--mechanism", "@design", "--parameter", "truth=1/2", "--parameter", "forced=1/4,1/4,1/4,1/4"),
)


@pytest.mark.full
@pytest.mark.parametrize("how", SURVEYED, ids=lambda how: how[1])
def test_a_sample_survey_of_every_mechanism(invoke, how):
    """The file and the arrays say the same; rows without a weight are left out."""
    rng = np.random.default_rng(1)
    region = np.repeat(["north", "south"], 300).astype(object)
    columns = {
        "value": rng.integers(0, 4, 600).astype(str).astype(object), "region": region,
        "school": np.asarray([f"s{place // 20}" for place in range(600)], object),
        "weight": np.where(rng.random(600) < 0.02, "", rng.uniform(1, 3, 600).round(3).astype(str)).astype(object),
        "schools": np.where(region == "north", 40, 90), "sex": rng.choice(["f", "m"], 600).astype(object),
        "design": np.where(rng.random(600) < 0.5, "direct", "forced-response").astype(object),
    }  # fmt: skip
    keep = [name for name in columns if name != "value"]
    io.write_table("v.csv", columns)
    read = ("v.csv", "--column", "value", "--domain", "0:3", *how)
    if "--epsilon" in how:
        invoke.done("randomize", *read, "--keep", ",".join(keep), "--out", "v.parquet", "--seed", "1")
        read = ("v.parquet",)
    sample = ("--weights", "weight", "--strata", "region", "--clusters", "school", "--population-size", "schools")
    found = invoke.json("estimate", *read, "--mean", "--group", "high=2,3", "--by", "sex", *sample)
    rows = {(row["statement"], row["of"]): row for row in found["statements"]}
    options = {"column": "value"} if read[0] == "v.csv" else {}
    if how[1] == "forced-response":
        options |= {"domain": "0:3", "mechanism": rrjax.mechanisms.ForcedResponse(1 / 2, [1 / 4] * 4)}
    elif how[1] == "@design":
        options |= {
            "domain": "0:3",
            "mechanism": "@design",
            "parameters": {"truth": "1/2", "forced": "1/4,1/4,1/4,1/4"},
        }
    reports = rrjax.read(read[0], **options)
    told = columns["weight"] != ""
    given = {
        "weights": columns["weight"][told].astype(float), "strata": region[told], "clusters": columns["school"][told],
        "population_size": columns["schools"][told],
    }  # fmt: skip
    women = columns["sex"][told] == "f"
    for name, values in (("mean", np.arange(4)), ("high", np.arange(4) >= 2)):
        for of, domain in (
            ("all", {}),
            ("f", {"domain": women}),
            ("f less m", {"domain": women, "less": ~women}),
        ):
            each = inference.survey_estimate(
                reports.reports("")[told], reports.mechanism_of(told), values=values, **given, **domain
            )
            agree(rows[name, of], each[:4])
            assert rows[name, of]["degrees"] == 28
    assert found["num_without_level"] == (~told).sum()
    assert len(found["warnings"]) == 1 + ("--epsilon" in how)  # what was randomized here is a simulation
    total = invoke.json("estimate", *read, "--group", "high=2,3", "--total", *sample)["statements"][0]
    each = inference.survey_estimate(
        reports.reports("")[told], reports.mechanism_of(told), values=np.arange(4) >= 2, total=True, **given
    )
    assert (total["kind"], total["effective_size"]) == ("total", None)
    agree(total, each[:4])


@pytest.mark.long
def test_without_a_statement_shares_are_told_by_level(invoke, survey):
    reports, region, _ = survey
    found = said(invoke, "--by", "region", "--top", "2")
    largest = np.argsort(-np.bincount(reports, minlength=10), kind="stable")[:2]
    assert {name for name, _ in found} == {str(place) for place in largest}
    counts = np.bincount(reports[region == 1], minlength=10)
    agree(found[str(largest[0]), "south"], inference.linear_functional(counts, 2.0, values=np.arange(10) == largest[0]))


@pytest.mark.full
def test_statements_that_contradict_the_reports_are_said_to(invoke):
    """Of 1,000 reports at ε = 1 chance alone makes some hundred name each category."""
    asked = ("--group", "x=1", "--mean", "--quantile", "0.5")
    for counts, contradicted in (([1000, 0, 0, 0], 3), ([400, 210, 200, 190], 0)):
        io.write_table("c.csv", {"label": np.arange(4), "n": np.asarray(counts)})
        for more in ((), ("--normal",)):
            line = ("estimate", "c.csv", "--column", "label", "--counts", "n", "--epsilon", "1", *asked, *more)
            found = invoke.json(*line, "--out", "e.csv", "--plot", "e.png")
            assert found["num_contradicted"] == contradicted
            assert sum(row["lower"] is row["upper"] is None for row in found["statements"]) == contradicted
            assert ("! 3 " in invoke(*line)[1]) == bool(contradicted)
        page = ("report", *line[1:-1], "--out", "e.html", "--force")
        assert invoke(*page)[0] == 0
        page_text = Path("e.html").read_text("utf-8").replace("\N{NO-BREAK SPACE}", " ")
        assert ("3 rows have no interval" in page_text) == bool(contradicted)


@pytest.mark.full
@pytest.mark.usefixtures("survey")
def test_what_is_wrong_is_named(invoke):
    def refused(*flags):
        code, _, text = invoke("estimate", "s.csv", *READ, *flags)
        return code, text

    by = ("--by", "region")
    for flag, *flags in (
        ("--group", "x=1,12"),
        ("--group", "x=20:30"),
        ("--group", "x=0:9"),
        ("--group", "x=1", "--group", "x=2"),
        ("--normal",),
        ("--quantile", "50"),
        ("--quantile", "0.5", "--weights", "weight"),
        ("--population", "p.csv"),
        ("--population", "p.csv", *by, "--weights", "weight"),
        ("--population", "p.csv", *by, "--quantile", "0.5"),
        ("--at-once", "--mean"),
        ("--by", "visits", "--mean"),
        ("--by", "weight", "--mean"),
        ("--strata", "visits", "--mean"),
        ("--quantile", "0.5", "--clusters", "region"),
        ("--population", "p.csv", *by, "--strata", "region"),
        ("--total", "--mean"),
        ("--population-size", "2999", "--mean"),
        ("--population-size", "0", "--mean"),
        ("--population-size", "12.000", "--mean"),
    ):
        code, text = refused(flag, *flags)
        assert code == 2, text
        assert blames(invoke.error, flag), text
    for flag, *flags in (("--group", "x=1\n2"), ("--quantile", "1e-320")):
        assert refused(flag, *flags)[0] == 2
        assert blames(invoke.error, flag)
    for name, label in (("far", 1e308), ("tiny", 1e-300)):
        io.write_table(f"{name}.csv", {"x": np.asarray([label, -label, 5.0]), "w": np.full(3, label)})
    invoke.refuses("--mean", "estimate", "far.csv", "--column", "x", "--epsilon", "1", "--mean")
    line = ("estimate", "tiny.csv", "--column", "x", "--epsilon", "1", "--weights", "w")
    assert invoke(*line)[0] == 3
    assert invoke.error.column == "w"
    refused("--group", "x=1,12")
    assert invoke.error.value == "12"
    code, text = refused("--mean", "--by", "land")
    assert (code, "'land'" in text) == (3, True)
    for (regions, people), named in (
        ((["south", "west"], [2, 3]), "'north'"),
        ((["south", "north", "west"], [1, 2, 3]), "'west'"),
        ((["south", "north", "south"], [1, 2, 3]), "'south'"),
    ):
        io.write_table("p.csv", {"region": np.asarray(regions, object), "people": np.asarray(people)})
        code, text = refused("--group", "x=1", *by, "--population", "p.csv")
        assert (code, named in text, "p.csv" in text) == (3, True, True)
    Path("index.csv").write_text(",people\nsouth,2\nnorth,1\nwest,1\n")
    assert refused("--group", "x=1", *by, "--population", "index.csv", "--header")[0] == 3
    assert (invoke.error.argument, invoke.error.row) == (None, 1)  # not a flag for the header of the reports
    code, text = refused("--group", "x=1", *by, "--population", "p.csv", "--out", "p.csv")
    assert (code, "p.csv" in text) == (2, True)
    io.write_table("w.csv", {"a": np.asarray(["x", "y"] * 5, object), "w": np.asarray([1.0] * 9 + [-1])})
    text = invoke.said(3, "estimate", "w.csv", "--column", "a", "--epsilon", "1", "--weights", "w", "--top", "1")
    assert (invoke.error.column, invoke.error.row) == ("w", 10)
    rows = [("a", "w", "h", "c", "n"), *(("x", place % 2, place // 4, place // 2, 5) for place in range(8))]
    rows[-1] = ("y", 1, 2, 3, 6)
    Path("h.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    line = ("estimate", "h.csv", "--column", "a", "--epsilon", "1", "--domain", "x,y", "--group", "y")
    for flags, column, words in (
        (("--strata", "h"), "h", "'2' has a single report"),
        (("--strata", "h", "--clusters", "c"), "c", "cluster '3' is in stratum"),
        (("--population-size", "n"), "n", "two sizes"),
        (("--clusters", "none"), "none", "none"),
        (("--weights", "h", "--by", "none"), "none", "none"),
    ):
        assert words in invoke.said(3, *line, *flags), flags
        assert invoke.error.column == column
    usual = len(invoke.json(*line)["warnings"])
    for flags in (("--weights", "w"), ("--clusters", "c")):  # weights of zero, and few clusters
        assert len(invoke.json(*line, *flags)["warnings"]) == usual + 1
    assert invoke("estimate", "w.csv", "--column", "a", "--epsilon", "1", "--mean")[0] == 2
    assert (invoke.error.flag, invoke.error.value) == ("--mean", "x")


@pytest.mark.full
def test_levels_and_labels_are_shown_not_obeyed(invoke):
    """Levels without reports are left out; labels with commas, and names that look like markup, are names."""
    answers = np.asarray(["a,b", "[/red]", "c=d"] * 40 + ["", ""], object)
    places = np.asarray(["we[/red]st", "east"] * 60 + ["nowhere", "nowhere"], object)
    io.write_table("odd.csv", {"answer": answers, "place": places, "w": np.r_[np.ones(120), 1, 1]})
    read = ("--column", "answer", "--epsilon", "3")
    groups = ("--group", "a,b", "--group", "[red]n[/red]=[/red]", "--group", "c=d")
    for flags in ((), ("--weights", "w")):
        out = invoke.done("estimate", "odd.csv", *read, *groups, "--by", "place", *flags)
        assert "we[/red]st" in out
        assert "[red]n[/red]" in out
        assert "nowhere" not in out
    assert "--counts" in invoke.said(
        2, "estimate", "odd.csv", *read, "--by", "place", "--group", "x=a,b", "--counts", "w"
    )


@pytest.mark.full
def test_an_impossible_estimate_has_an_error_and_a_sentence(invoke):
    """Nobody of three says yes: −50 % by inversion."""
    io.write_table(
        "s.csv", {"answer": np.array(["no", "no", "no", "yes", "yes", "no"]), "city": np.array(list("AAABBB"))}
    )
    Path("d.txt").write_text("yes\nno\n")
    line = ("estimate", "s.csv", "--column", "answer", "--domain", "d.txt", "--group", "yes=yes", "--by", "city")
    warner = ("--mechanism", "warner", "--parameter", "truth_probability=0.75")
    for how in (("--epsilon", np.log(3)), warner, (*warner, "--normal"), ("--epsilon", np.log(3), "--normal")):
        found = invoke.json(*line, *how)
        rows = {row["of"]: row for row in found["statements"]}
        row = rows["A"]
        assert found["num_impossible"] == 2  # and the difference of −133 %
        assert row["value"] == pytest.approx(-0.5)
        assert row["standard_error"] == pytest.approx(np.sqrt(3 / 16 / 3) / 0.5)
        assert (row["lower"], row["upper"] > 0.3) == (0, True)
    assert invoke.json(*line[:-2], "--epsilon", np.log(3))["num_impossible"] == 0
