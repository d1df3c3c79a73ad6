"""What the command line says by itself, what waits for --explain, how its help is ordered, and what shells complete."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from cases import READ, TRUTH

from rrjax import io
from rrjax.cli import show
from rrjax.estimators.catalogue import ESTIMATORS

pytestmark = pytest.mark.once  # nothing here depends on the precision

HINT = "--explain says more."
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def files(beside_files, monkeypatch):
    """`beside_files`; tables are between brackets in what it returns."""
    printed = show.show_table

    def marked(table, **options):
        print("\N{START OF TEXT}")
        printed(table, **options)
        print("\N{END OF TEXT}")

    monkeypatch.setattr(show, "show_table", marked)
    return beside_files


def sentences_under_tables(out):
    """Below each table, without the lines that are no sentences: what is left out, what is written where, the hint."""
    below = re.sub("\N{START OF TEXT}.*?\N{END OF TEXT}", "\0", out, flags=re.DOTALL).split("\0")[1:]
    for text in below:
        lines = [line for line in text.splitlines() if not re.match(r"… and |(Computing|Results|Report): |! ", line)]
        yield re.findall(r"\S[^.!?]*(?:[.!?](?!\s|$)[^.!?]*)*[.!?](?=\s|$)", "\n".join(lines).replace(HINT, ""))


def test_sentences_are_counted():
    table = "\N{START OF TEXT}\na 0.5\n\N{END OF TEXT}\n"
    said = f"Head.\n{table}One of 0.5 %. Two! (Three?)\nfour.\n{HINT}\n! Not this one.\nResults: x.y\n"
    assert [len(below) for below in sentences_under_tables(said + table + "No sentence")] == [3, 0]


@pytest.mark.parametrize("columns", range(30, 90, 7))
def test_numbers_stay_with_their_units_however_narrow_the_terminal(monkeypatch, capsys, columns):
    """The blanks are those that were given; names in a sentence are shown, whatever they mean to rich."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = (
        "36,683 reports in column ':smile: [red]x[/red]'; domain: 1:17034 (17,034 integers); ε = 6 nats asked for, 5.9 "
        "delivered; p = 0.005 (± 0.003 from 199 draws), 95\N{NO-BREAK SPACE}% of 12 categories, 0 – 7\N{NO-BREAK SPACE}"
        "%."
    )
    for say, start in ((show.say, ""), (lambda sentence: show.warn([sentence]), "Warning: "), (show.beware, "! ")):
        say(text)
        printed = capsys.readouterr()
        lines = (printed.out + printed.err).splitlines()
        assert " ".join(lines) == start + text
        assert max(map(len, lines)) <= columns
        assert len(lines) > 1
        assert not re.search(r"\d\n\w|[=±–]\n|\n[=±–%]", "\n".join(lines)), lines


@pytest.mark.parametrize("columns", [5, 12, 20, 30])
@pytest.mark.parametrize("name", ["yes", "a name that is longer than a terminal"])
def test_no_digit_is_left_out_however_narrow_the_terminal(monkeypatch, capsys, columns, name):
    monkeypatch.setenv("COLUMNS", str(columns))
    made = show.table("category", "count", "95 % interval", max_width=20)
    made.add_row(name, "300", "84.09 – 98.62 %")
    show.show_table(made)
    printed = capsys.readouterr().out
    for text in ("300", "84.09 – 98.62 %", "count", "95 % interval"):
        assert text in printed


WITH_TABLES = {
    "estimate": ("estimate", *READ),
    "estimate at once": ("estimate", *READ, "--at-once"),
    "estimate inv": ("estimate", *READ, "--estimator", "inv"),
    "estimate in order": ("estimate", *READ, "--ordered"),
    "statements": ("estimate", *READ, "--mean", "--quantile", "0.5", "--group", "few=2:3", "--by", "region"),
    "normal statements": ("estimate", *READ, "--mean", "--normal"),
    "compare": ("compare", *READ),
    "compare with truth": ("compare", *READ, *TRUTH),
    "regress": ("regress", "r.csv", "--outcome", "answer", *READ[3:], "--covariates", "age,region"),
    "plan": ("plan", "--categories", "50", "--epsilon", "1", "--target-rmse", "0.01"),
    "study": ("study", "own.toml", "--out", "s"),
}
"""A line for every kind of table."""
EXPLAINED = {
    "estimate": ["raw share", "closest (Emp. Bayes)", "likeliest (MLE*)", "certificate", "noise", "to publish"],
    "estimate at once": ["● "],
    "estimate inv": ["Inv ", "certificate"],
    "estimate in order": ["closest (Ordered Bayes)"],
    "statements": ["std. error", "… less …", "quantile"],
    "normal statements": ["std. error"],
    "compare": [*(entry.title for entry in ESTIMATORS.values() if not (entry.by_name or entry.ordered)), "gap "],
    "compare with truth": ["KL ", "TV "],
    "regress": [
        "(intercept)",
        "deviance",
        "AIC",
        "nothing speaks against the model",
        "nats of its maximum",
        "docs/models.md",
    ],
    "plan": ["detected", "p-value", "docs/choose/mechanism.md"],
    "study": ["ratio to the best", "geometric mean"],
}
"""What waits for --explain: labels in the margin, and words beside them."""


@pytest.mark.full
@pytest.mark.parametrize("name", WITH_TABLES)
def test_three_sentences_under_a_table_and_the_rest_for_the_asking(files, name):
    out = files.done(*WITH_TABLES[name])
    below = list(sentences_under_tables(out))
    assert below, "no table"
    assert max(map(len, below)) <= 3, below
    assert max([len(sentence.split()) for said in below for sentence in said], default=0) <= 40, below
    assert out.count(HINT) == 1
    code, more, error = files(*WITH_TABLES[name], "--explain")
    assert code == 0, error
    assert HINT not in more
    # What was said is still said; --explain adds to it.
    assert [said[: len(shown)] for said, shown in zip(sentences_under_tables(more), below, strict=True)] == below
    assert not re.search(r"[^.]\.\.(?!\.)", more + error)
    rest = "\n".join(line for line in more.splitlines() if line not in out.splitlines())
    for words in EXPLAINED[name]:
        assert words in rest, words


def commands():
    """Every command by its name, as its parser."""
    from rrjax.cli.app import app

    found = {name: each.loaded for name, each in typer.main.get_command(app).commands.items()}
    tests = found.pop("test").commands
    return found | {f"test {name}": each for name, each in tests.items()}


def test_every_command_with_a_table_can_explain_itself():
    silent = {name for name, each in commands().items() if "explain" not in {flag.name for flag in each.params}}
    assert silent == {"randomize", "report"}


@pytest.mark.full
def test_what_protects_from_a_wrong_reading_is_said_unasked(files):
    for counts, words in (
        ([9000, 900, 10, 950], "! 4 categories (marked !) have no interval"),
        (np.random.default_rng(0).multinomial(400, [1 / 40] * 40), "! The reports hardly distinguish the categories"),
    ):
        io.write_table("c.csv", {"label": np.arange(len(counts)), "n": np.asarray(counts)})
        out = files("estimate", "c.csv", "--column", "label", "--counts", "n", "--epsilon", "1")[1]
        assert words in out
        assert "believe" not in out  # what means nothing
    out = files.done("estimate", *READ, "--estimator", "base-pos")
    assert "! The shares of Base-Pos do not sum to one." in out


@pytest.mark.long
def test_nothing_is_marked_where_nothing_is_known(files):
    io.write_table("c.csv", {"label": np.arange(4), "n": np.asarray([26, 24, 25, 25])})
    line = ("estimate", "c.csv", "--column", "label", "--counts", "n", "--epsilon", "0.1")
    assert "No category is significantly above zero" in files(*line)[1]


def test_explanations_are_for_people(files):
    files.refuses("--explain", "estimate", *READ, "--explain", "--json")


def panels(out):
    """The flags in each panel of a help, in order, and how many lines it has."""
    found = {}
    for line in out.splitlines():
        if title := re.match(r"╭─ (.*?) ─", line):
            panel = found[title[1]] = []
        elif line.startswith("│"):
            panel.append(line)
    flag = re.compile(r"^│ (?:\*  |   )?(--[\w-]+)", re.MULTILINE)
    return {name: (flag.findall("\n".join(lines)), len(lines)) for name, lines in found.items()}


COMMON = {
    "estimate": ["--epsilon", "--column", "--domain", "--out", "--plot", "--top", "--explain", "--json"],
    "compare": ["--truth", "--epsilon", "--column", "--domain", "--out", "--plot", "--top", "--explain", "--json"],
    "regress": ["--outcome", "--covariates", "--epsilon", "--domain", "--out", "--plot", "--explain", "--json"],
    "randomize": ["--epsilon", "--out", "--column", "--domain", "--json"],
    "study": ["--out", "--explain", "--json"],
    "plan": [
        "--categories",
        "--epsilon",
        "--users",
        "--target-rmse",
        "--target-width",
        "--plot",
        "--explain",
        "--json",
    ],
    "report": ["--epsilon", "--column", "--domain", "--out", "--force", "--title", "--top"],
    "audit": ["--categories", "--epsilon", "--draws", "--level", "--explain", "--json"],
    "demo": ["--folder", "--categories", "--users", "--epsilon", "--exponent", "--explain"],
    "test fit": ["--against", "--epsilon", "--column", "--domain", "--explain", "--json"],
    "test equal": ["--epsilon", "--column", "--domain", "--explain", "--json"],
    "test difference": ["--epsilon", "--column", "--domain", "--out", "--top", "--explain", "--json"],
    "test trend": ["--category", "--time", "--epsilon", "--column", "--domain", "--explain", "--json"],
    "test independent": ["--column", "--domain", "--explain", "--json"],
}


def test_every_command_has_common_flags_and_its_help_in_the_reference():
    headings = re.findall(r"^## (.*)$", (DOCS / "reference" / "flags.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(commands())
    assert set(COMMON) == set(commands())


@pytest.mark.parametrize("command", COMMON)
def test_help_lists_the_common_flags_first(invoke, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    out = invoke.done(*command.split(), "--help")
    found = panels(out)
    names = list(found)
    assert names[0] == "Options" or names[:2] == ["Arguments", "Options"]
    flags, lines = found["Options"]
    assert flags == [*COMMON[command], "--help"]
    assert lines <= 24  # a terminal that nobody made larger
    assert f"rrjax {command} " in re.sub(r" Usage: .*", "", out)  # an example
    rare = {flag for name in names for flag in found[name][0] if name != "Options"}
    assert rare
    assert not rare & set(flags)


def test_help_of_all_begins_with_reports(invoke, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = invoke.done("--help")
    assert list(panels(out)) == ["Options", "From reports to answers", "For a collection", "More"]
    assert "rrjax demo" in out


@pytest.mark.full  # starts a process, as a shell does at every Tab
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rrjax est", {"estimate"}),
        ("rrjax estimate --estimator inv", {name for name in ESTIMATORS if name.startswith("inv")}),
        ("rrjax plan --mechanism sub", {"subset-selection"}),
        ("rrjax test f", {"fit"}),
        ("rrjax plan --users 10.000 --top 2 --top 3 --tar", {"--target-rmse", "--target-width"}),
    ],
)
def test_a_shell_completes_commands_flags_and_names(words, expected):
    asked = {"_RRJAX_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", "from rrjax.cli import main; main()"],
        env=os.environ | asked,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert set(done.stdout.split()) == expected, done.stderr


@pytest.mark.skipif(not (DOCS / "index.md").exists(), reason="the pages of the documentation are not here")
def test_pages_that_are_named_exist():
    sources = "".join(file.read_text(encoding="utf-8") for file in Path(show.__file__).parents[1].rglob("*.py"))
    pages = set(re.findall(r'(?:show\.explain\(.*, |page: ClassVar\[str\] = )"([\w/-]+)"', sources))
    assert {"inference", "models"} <= pages
    for page in pages:
        assert (DOCS / f"{page}.md").exists(), page
