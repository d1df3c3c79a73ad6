"""Numbers within classes that were randomized: what the command line, a notebook and the page say of them."""

from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from outlets import check_outlets, check_refusal
from refusals import refused

import rrjax
from rrjax import inference
from rrjax.data.errors import DataError
from rrjax.mechanisms import ByRespondent, Coin

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
RATES = (0.25, 0.5)
NAMES = ["low", "high"]
READ = ("t.csv", "--column", "confidence", "--domain", "low,high", "--mechanism", "coin")
BY_RECORD = (*READ, "--parameter", "rate=@rate")
GIVEN = {"column": "confidence", "domain": NAMES, "mechanism": "coin"}
COUNTRIES = ["Chile", "India"]


@pytest.fixture
def timings(invoke):
    """800 records with a number; one more without a number, and one without a report."""
    random = np.random.default_rng(0)
    low, which, india = random.random(800) < 0.4, random.integers(0, 2, 800), random.integers(0, 2, 800)
    times = np.round(random.lognormal(np.where(low, 8.0, 7.0), 0.5))
    design = ByRespondent([Coin(2, rate) for rate in RATES], which)
    labels = np.asarray(design.randomize(jax.random.key(0), (~low).astype(int)))
    rows = zip(labels, which, times, india, strict=True)
    lines = [f"{NAMES[label]},{RATES[each]},{time},{COUNTRIES[place]}" for label, each, time, place in rows]
    Path("t.csv").write_text("\n".join(["confidence,rate,time,country", *lines, "low,0.5,,India", ",0.5,1,India"]))
    return times, labels, design, india


def read_one():
    return rrjax.read("t.csv", **GIVEN, parameters={"rate": 0.4})


def read(**more):
    return rrjax.read("t.csv", **GIVEN, parameters={"rate": "@rate"}, **more)


@pytest.mark.full
def test_a_file_says_what_the_functions_say(timings, invoke):
    times, labels, design, india = timings
    answer = read().within("time", quantile=[0.75], mean=True, by="country")
    assert answer.num_left_out == 1
    assert [each[:5] for each in answer.notes] == ["1 row"]
    columns = answer.columns
    assert columns["statement"].tolist() == ["mean"] * 9 + ["75 % quantile"] * 9
    assert columns["of"].tolist() == 2 * [each for each in ("all", *COUNTRIES) for _ in range(3)]
    assert columns["class"].tolist() == 6 * [*NAMES, "low less high"]
    with jax.enable_x64(True):
        for place, rows in enumerate([india >= 0, india == 0, india == 1]):
            each = ByRespondent(design.designs, np.asarray(design.which)[rows])
            given = times[rows], labels[rows], each
            functions = inference.class_means, partial(inference.class_quantiles, quantile=0.75)
            found = [each(*given) for each in functions]
            for number, numbers in enumerate(found):
                start = 9 * number + 3 * place
                at, apart = (
                    slice(start, start + 2),
                    functions[number](*given, reference=1),
                )
                for name in ("value", "lower", "upper"):
                    np.testing.assert_allclose(columns[name][at], getattr(numbers, name), rtol=1e-9)
                    np.testing.assert_allclose(columns[name][start + 2], getattr(apart, name)[0], rtol=1e-9)
                assert (columns["num_reports"][start : start + 3] == rows.sum()).all()
                assert np.isnan(columns["share"][start + 2])
                shares = np.asarray(each.debias(labels[rows])).mean(axis=0)
                np.testing.assert_allclose(columns["share"][at], shares, rtol=1e-9)
    flags = ("--within", "time", "--quantile", "0.75", "--mean", "--by", "country")
    check_outlets(answer, invoke, "estimate", *BY_RECORD, *flags)
    assert len(answer.figure().axes) == 2
    assert {"share", "all"} <= answer.words.keys()
    assert answer.words["… less …"]


@pytest.mark.full
def test_frames_and_one_rate_for_all(timings, invoke):
    polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")
    answer = read_one().within("time", simultaneous=True)
    of_frame = rrjax.read(polars.read_csv("t.csv"), **GIVEN, parameters={"rate": 0.4}).within("time", simultaneous=True)
    for name, column in answer.columns.items():
        np.testing.assert_array_equal(of_frame.columns[name], column)
    assert answer.columns["statement"].tolist() == ["median"] * 3
    times, labels, *_ = timings
    with jax.enable_x64(True):
        wanted = inference.class_quantiles(times, labels, Coin(2, 0.4), level=1 - 0.05 / 3)  # with the difference
    np.testing.assert_allclose(answer.columns["upper"][:2], wanted.upper, rtol=1e-12)
    flags = ("--parameter", "rate=0.4", "--within", "time", "--at-once")
    found = invoke.json("estimate", *READ, *flags)["statements"]
    assert [row["lower"] for row in found] == pytest.approx(answer.columns["lower"].tolist())
    other = rrjax.read("t.csv", column="confidence", epsilon=float(Coin(2, 0.4).epsilon), domain=NAMES).within("time")
    np.testing.assert_allclose(other.columns["value"], answer.columns["value"])


@pytest.mark.long
def test_as_many_records_and_classes_as_there_is_memory_for(timings, monkeypatch):
    monkeypatch.setattr("rrjax.reports.classes.MOST_CELLS", 1_600)  # of 800 records and 2 classes
    assert read_one().within("time").num_left_out == 1
    monkeypatch.setattr("rrjax.reports.classes.MOST_CELLS", 1_599)
    check_refusal("within", lambda: read_one().within("time"))


@pytest.mark.long
def test_distributions_of_few_classes_are_drawn_with_bands(timings, monkeypatch):
    times, labels, *_ = timings
    for simultaneous in (False, True):
        (axes,) = read_one().within("time", quantile=[0.75, 0.9], simultaneous=simultaneous).figure().axes
        places, drawn = axes.lines[0].get_data()
        with jax.enable_x64(True):
            how = {"simultaneous": "bonferroni" if simultaneous else None}
            wanted = inference.class_cdf(times, labels, Coin(2, 0.4), places, **how)
        np.testing.assert_allclose(drawn, np.maximum.accumulate(np.clip(wanted.value[:, 0], 0, 1)), rtol=1e-9)
        band = axes.collections[0].get_paths()[0].vertices
        np.testing.assert_allclose(band[1 : len(places) + 1, 1], wanted.lower[:, 0], rtol=1e-9, atol=1e-12)
    assert len(axes.lines) == 4
    monkeypatch.setattr("rrjax.reports.classes.MOST_CURVES", 2)
    assert read_one().within("time").figure().axes[0].collections
    monkeypatch.setattr("rrjax.reports.classes.MOST_CURVES", 1)
    for answer in (read_one().within("time"), read_one().within("time", mean=True)):
        assert answer.figure().axes[0].get_xlabel() == ""


@pytest.mark.long
def test_limits_that_are_infinite_are_said_in_words(timings, invoke):
    flags = (*READ, "--parameter", "rate=0.98", "--within", "time", "--quantile", "0.9")
    found = invoke.json("estimate", *flags)
    name, apart = (row["class"] for row in found["statements"] if row["upper"] is None or row["lower"] is None)
    assert (found["num_unlimited"], apart) == (2, "low less high")
    said = invoke.done("estimate", *flags)
    assert "-∞ – ∞" in said
    assert f"({name})" in said.split("! ∞: ")[1]


@pytest.mark.long
def test_the_page_shows_them(timings, invoke):
    invoke.done("report", *READ, "--parameter", "rate=0.4", "--within", "time", "--mean", "--out", "p.html")
    page = Path("p.html").read_text()
    figures = [f"{value:,.0f}" for value in read_one().within("time", mean=True).columns["value"]]
    assert all(each in page for each in figures)


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (("--within", "time", "--group", "a=low"), "--group"),
        (("--within", "time", "--weights", "rate"), "--weights"),
        (("--within", "confidence"), "--within"),
        (("--within", "time", "--by", "confidence"), "--by"),
        (("--within", "time", "--quantile", "75"), "--quantile"),
        (("--within", "time", "--fdr", "0.1"), "--fdr"),
        (("--within", "time", "--at-any-time"), "--at-any-time"),
        (("--group", "a=low", "--fakes"), "--fakes"),
        (("--tuned-to", "500"), "--tuned-to"),
    ],
)
def test_what_does_not_fit_is_refused(timings, invoke, flags, flag):
    invoke.refuses(flag, "estimate", *READ, "--parameter", "rate=0.4", *flags)


@pytest.mark.long
def test_columns_that_are_no_numbers_are_refused(timings, invoke):
    Path("odd.csv").write_text("confidence,time\nlow,1\nhigh,inf\nlow,3\n")
    Path("few.csv").write_text("confidence,time\nlow,1\nhigh,\n")
    own = {**GIVEN, "parameters": {"rate": 0.4}}
    reports = rrjax.read("odd.csv", **own)
    with refused(error=DataError, column="time", row=2):
        reports.within("time")
    with refused(error=DataError, column="nothing"):
        reports.within("nothing")
    with refused(error=DataError, column="country"):
        rrjax.read("t.csv", **own).within("country")
    with refused(error=DataError, column="time"):
        rrjax.read("few.csv", **own).within("time")
    Path("three.csv").write_text("answer,time\n" + "\n".join(f"{each % 3},{each}" for each in range(60)))
    three = rrjax.read("three.csv", column="answer", epsilon=3.0, domain=["0", "1", "2"]).within("time")
    assert three.columns["class"].tolist() == ["0", "1", "2"]  # of three classes no difference
    assert "" in three.words.values()
    with refused("data"):
        rrjax.Reports.of_counts([6, 4], Coin(2, 0.4), NAMES).within("time")
    check_refusal("within", lambda: reports.within("confidence"))
    check_refusal("looks", lambda: read().statements(group="low", looks="any"))
    check_refusal("level", lambda: reports.within("time", level=95))
