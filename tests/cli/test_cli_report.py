"""`rrjax report`: the page says what the library finds, of any labels, and what it cannot say."""

import math
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from pages import check_page
from refusals import blames

import rrjax
from rrjax import inference, io
from rrjax.io.domain import Domain
from rrjax.io.read import CountedReports
from rrjax.reports import form
from rrjax.reports.pages.kinds import fit_of
from rrjax.reports.reports import Reports

pytestmark = pytest.mark.once  # nothing here depends on the precision

LABELS = [
    "Zürich",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "a & b",
    "right\u202eto left",
    "escape\x1b[31m",
    "שלום",
    "`typed`",
    "x" * 300,
    "50 %",
]
COUNTS = [3800, 1500, 900, 640, 630, 620, 640, 650, 625, 645]


def made(invoke, *line, code=0):
    """The page that a command makes, and what it says."""
    found, said, complaint = invoke("report", *line)
    assert found == code, complaint
    return said, complaint


def text_of(name):
    return check_page(Path(name).read_text("utf-8")).text.replace("\N{NO-BREAK SPACE}", " ")


def check_answer(text, answer):
    """Checks that a page has the sentences, the cautions and the numbers of an answer."""
    cells = [cell for row in answer.cells(20).rows for cell in row[answer.cells().names :] if "█" not in cell]
    for said in [*answer.sentences, *answer.cautions, *cells]:
        said = said.replace("`", "").replace("\N{NO-BREAK SPACE}", " ").replace("normal=True", "--normal")
        assert said in text


def percent(share):
    return form.percent(share).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.full
def test_a_page_says_what_the_library_finds_whatever_the_labels(invoke):
    """Ten seconds and more: the estimators, two kinds of intervals and a test of fit, each compiled."""
    io.write_table("c.csv", {"city": np.array(LABELS, object), "n": np.array(COUNTS)})
    Path("labels.txt").write_text("\n".join(LABELS) + "\n", encoding="utf-8")
    read = ("c.csv", "--column", "city", "--counts", "n", "--epsilon", "2", "--domain", Path("labels.txt").resolve())
    said, complaint = made(
        invoke, Path("c.csv").resolve(), *read[1:], "--group", "two=Zürich,a & b", "--title", "Where <they> live"
    )
    assert "c-report.html" in said
    assert not [line for line in complaint.splitlines() if "so far" not in line]  # how long it takes
    source = Path("c-report.html").read_text("utf-8")
    page = check_page(source)
    text = text_of("c-report.html")
    # Nothing that a label holds is obeyed.
    assert not page.all("script")
    assert not page.all("img")
    assert not re.search(r"[\u202e\x1b]", source)
    for shown in ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', r"right\u202eto left", r"\x1b[31m"):
        assert shown in text
    assert "`typed`" in text
    assert "x" * 99 + "…" in text
    assert "x" * 100 not in text
    # The largest share, its interval among all, and what ε means, as the library has them.
    with jax.enable_x64(True):
        theta = rrjax.empirical_bayes(COUNTS, 2.0).theta
    lower, upper = inference.intervals(COUNTS, 2.0, simultaneous="bonferroni")
    interval = form.between(lower[0], upper[0]).replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(rf"Zürich\D+{re.escape(percent(theta[0]))} \({re.escape(interval)}\)", text)
    check_answer(text, rrjax.Reports.of_counts(COUNTS, 2.0, LABELS).shares(simultaneous=True, ordered=False))
    mechanism = rrjax.RandomizedResponse(10, 2.0)
    assert f"the truth with probability {percent(mechanism.p)}" in text
    assert re.search(rf"1 in 10 \([^)]*\){re.escape(percent(mechanism.p))}", text)
    after = math.exp(2) * 0.01 / (math.exp(2) * 0.01 + 0.99)
    assert f"1 %{percent(after)}" in text
    fit = inference.goodness_of_fit_test(jax.random.key(0), COUNTS, 2.0)
    assert f" p = {float(fit.p_value):.2g} (" in text
    named, picked = (float(inference.detectable_share(10, sum(COUNTS), 2.0, level=level)) for level in (0.05, 0.005))
    assert f" {percent(named)} for a category chosen beforehand, {percent(picked)} for one picked out of all." in text
    members = np.isin(LABELS, ["Zürich", "a & b"])
    check_answer(text, rrjax.Reports.of_counts(COUNTS, 2.0, LABELS).group({"two": np.array(LABELS)[members].tolist()}))
    assert "Where <they> live" in text
    line = "rrjax report c.csv --epsilon 2 --column city --domain labels.txt --counts n"
    assert line in text
    assert "--group 'two=Zürich,a & b'" in text
    assert "If the reports were made as stated" in text  # no file says so, so that ε is a claim
    assert str(Path.cwd()) not in source
    assert not [each for each in page.all("figure") if each["id"] == "in-order"]  # cities have no order


@pytest.mark.full
def test_the_detectable_share_of_a_survey_is_that_of_the_yes(invoke):
    """Kuk's design distinguishes carriers from others much better than others from carriers."""
    io.write_table("c.csv", {"red": np.array(["no", "yes"], object), "n": np.array([900, 100])})
    Path("labels.txt").write_text("no\nyes\n", encoding="utf-8")
    design = ("--mechanism", "kuk", "--parameter", "have=0.5", "--parameter", "lack=0.05")
    made(invoke, Path("c.csv").resolve(), "--column", "red", "--counts", "n", "--domain", "labels.txt", *design)
    share = inference.detectable_share(2, 1000, 1.0, mechanism=lambda *_: rrjax.mechanisms.Kuk(0.5, 0.05), category=0)
    assert f"{percent(share)} for yes." in text_of("c-report.html")


@pytest.mark.full
def test_reports_that_contradict_their_mechanism_are_called_so_first(invoke):
    """Nobody's mechanism at ε = 3 lets 3,000 reports in a row say the same; long for what is compiled."""
    io.write_table("c.csv", {"answer": np.array(["yes", "no"], object), "n": np.array([3000, 0])})
    made(invoke, "c.csv", "--column", "answer", "--counts", "n", "--epsilon", "3")
    text = text_of("c-report.html")
    shares = rrjax.Reports.of_counts([0, 3000], 3.0, ["no", "yes"], column="answer").shares(simultaneous=True)
    assert shares.reports.contradicted
    assert text.index("The reports contradict their mechanism") < text.index("In short")
    check_answer(text, shares)


def test_shares_next_to_zero_have_no_digits():
    assert [form.share(each) for each in (0.0, 2e-7, 1e-6, -2e-7)] == [
        "0\N{NO-BREAK SPACE}%",
        "< 0.0001\N{NO-BREAK SPACE}%",
        "0.0001\N{NO-BREAK SPACE}%",
        "-2e-05\N{NO-BREAK SPACE}%",
    ]


@pytest.mark.full
def test_categories_in_order_are_drawn_one_by_one_or_in_bands(invoke):
    rng = np.random.default_rng(0)
    ages = np.clip(rng.normal(40, 9, 20_000), 0, 999).astype(int)
    reports = np.asarray(rrjax.RandomizedResponse(1000, 5.0).randomize(jax.random.key(1), ages))
    io.write_table("ages.csv", {"age": reports})
    read = ("ages.csv", "--column", "age", "--epsilon", "5", "--domain", "0:999")
    made(invoke, *read, "--out", "bands.html")
    text = text_of("bands.html")
    assert len(re.findall(r'scope="row"><bdi>\d+</bdi> – ', Path("bands.html").read_text("utf-8"))) == 20
    members = np.arange(1000) < 50
    band = inference.linear_functional(np.bincount(reports, minlength=1000), 5.0, values=members, level=1 - 0.05 / 20)
    assert f"0 – 49{percent(band.value)}{form.between(band.lower, band.upper)}".replace("\xa0", " ") in text
    assert "The largest band: 0 – 49" in Path("bands.html").read_text("utf-8")  # for who does not see the figure
    # So few that each has a bar, in whatever order a list has.
    Path("ten.txt").write_text("\n".join("abcdefghij"))
    io.write_table("ten.csv", {"grade": np.array(list("abcdefghij"))[np.minimum(reports // 10, 9)]})
    read = ("ten.csv", "--epsilon", "5", "--domain", "ten.txt")
    made(invoke, *read, "--out", "list.html")
    assert 'id="in-order"' not in Path("list.html").read_text()
    made(invoke, *read, "--ordered", "--out", "ordered.html")
    text = text_of("ordered.html")
    assert "ordered_bayes" in text
    drawn = re.search(r'class="mark" d="(M[^"]*H[^"]*)"/></svg><div class="across"', Path("ordered.html").read_text())
    assert drawn.group(1).count("M") == 10


@pytest.mark.full
def test_a_test_that_cannot_be_made_is_no_failure():
    def fit(counts, epsilon=1.0):
        counts = np.asarray(counts, np.int64)
        domain = Domain.range(0, len(counts) - 1)
        counted = CountedReports(counts, domain, "x", int(counts.sum()), 0, domain_from_data=False)
        return fit_of(Reports(counted, epsilon))

    known = fit([60, 20, 10, 10])
    assert known.simulation.draws == 9999
    p_value = inference.goodness_of_fit_test(jax.random.key(0), [60, 20, 10, 10], 1.0).p_value
    assert known.outcomes[0].p_value == pytest.approx(float(p_value))
    for counts, reason in (([3 * 10**9, 10**9, 10**9, 10**9], "2,147,483,647"), (np.ones(200_000), "200,000")):
        found = fit(counts)
        assert reason in found
        assert found.endswith(".")
        assert not found.endswith("..")
    powerless = fit([3, 1, 0, 0], epsilon=8.0)  # whatever four such reports say, they are likely
    assert powerless.outcomes[0].least_p_value > 0.05


@pytest.mark.full
def test_what_cannot_be_read_is_refused_as_an_estimate_is(invoke):
    for content, flags in (
        ("x\n", ()),
        ("x\n1\n", ()),
        ("x\n1\n9\n", ("--domain", "1:3")),
        ("x\n1\n2\n", ("--column", "y")),
        (None, ()),
    ):
        if content is None:
            Path("r.csv").unlink()
        else:
            Path("r.csv").write_text(content)
        line = ("r.csv", "--epsilon", "1", *flags)
        assert made(invoke, *line, code=3)[1] == invoke.said(3, "estimate", *line)
        assert not Path("r-report.html").exists()
    Path("r.csv").write_text("x\n1\n2\n")
    for flag, *flags in (
        ("--epsilon",),
        ("--out", "page.pdf", "--epsilon", "1"),
        ("--level", "95", "--epsilon", "1"),
        ("--quantile", "2", "--epsilon", "1"),
    ):
        made(invoke, "r.csv", *([flag, *flags] if flags else []), code=2)
        assert blames(invoke.error, flag)
    Path("r.html").write_text("x\n1\n2\n")
    line = ("r.html", "--format", "csv", "--epsilon", "1", "--out", "r.html")
    assert "r.html" in made(invoke, *line, code=2)[1]
    assert Path("r.html").read_text() == "x\n1\n2\n"
