"""The outputs of the command line as they were recorded: tables, sentences, JSON, files and pages.

`RRJAX_RECORD_GOLDEN=1 pytest -m "" tests/cli/test_cli_golden.py` records anew, into `tests/cli/golden/`: a file for
each command line. A record is kept where only the rounding of numbers differs. Read `git diff` afterwards: each
difference must be one that was wanted.
"""

import json
import os

import golden
import jax
import pytest

from rrjax.cli import show

pytestmark = pytest.mark.once  # recorded with the precision that users have

RECORDING = bool(os.environ.get("RRJAX_RECORD_GOLDEN"))
CITY = "--column city --domain cities.txt"
REPORTS = f"reports.csv {CITY} --epsilon 1"
VISITS = "reports.csv --column visits --epsilon 1 --domain 0:5"
COUNTED = "counts.csv --column city --counts n --epsilon 1"
ODD = "contradicted.csv --column visits --counts n --epsilon 1 --domain 0:5"
SMOKES = "reports.csv --outcome smokes --domain yesno.txt --epsilon 1"
WITHIN = "reports.csv --column smokes --domain yesno.txt --epsilon 1 --within age"
ANSWER = "--column answer --domain yesno.txt"
WARNER = "--mechanism warner --parameter truth_probability=0.3"
FORCED = f"forced-response.csv {ANSWER} {golden.DICE}"
UNEVEN = "--parameter truth=0.7 --parameter unrelated=yes:1/4,no:3/4"
TWO = "--column said --domain yesno.txt --sample die=a,b --mechanism"
CHEATING = f"{TWO} cheating-detection --parameter forced=0.25,0.75"
ANCHORED = f"{TWO} anchored-crosswise --parameter innocuous=0.15 --parameter anchor=0.15"
CARDS = CHEATING.replace("column", "outcome")
UNRELATED = f"{TWO} unrelated-question-two-samples --parameter truth=0.7,0.3"

LINES = {
    # One column
    "estimate": f"estimate {REPORTS} --out all.csv",
    "estimate-explain": f"estimate {REPORTS} --explain",
    "estimate-top": f"estimate {REPORTS} --top 2 --out all.tsv",
    "estimate-at-once": f"estimate {REPORTS} --at-once --level 0.9 --fdr 0.2 --out all.jsonl",
    "estimate-at-any-time": f"estimate {REPORTS} --at-any-time --tuned-to 1000 --explain",
    "estimate-fakes": f"estimate {REPORTS} --fakes --out all.csv",
    "estimate-counts": f"estimate {COUNTED} --domain cities.txt --out all.parquet",
    "estimate-counts-no-domain": f"estimate {COUNTED}",
    "estimate-parquet": "estimate city.parquet --out all.csv",
    "estimate-simulated": "estimate simulated.parquet --out all.csv",
    "estimate-ordered": f"estimate {VISITS} --ordered --explain --out all.csv",
    "estimate-inv": f"estimate {REPORTS} --estimator inv --out all.csv",
    "estimate-mle-star": f"estimate {REPORTS} --estimator mle_star --explain",
    "estimate-tiny": f"estimate tiny.csv {CITY} --epsilon 1 --out all.csv",
    "estimate-noisy": f"estimate tiny.csv {CITY} --epsilon 0.001",
    "estimate-missing": f"estimate missing.csv {CITY} --epsilon 1 --missing NA --out all.csv",
    "estimate-missing-in-domain": "estimate missing.csv --column city --epsilon 1",
    "estimate-contradicted": f"estimate {ODD} --out all.csv",
    "estimate-contradicted-statements": f"estimate {ODD} --mean --quantile 0.5 --group few=0:1 --out all.csv",
    "estimate-transactions": "estimate baskets.dat --format transactions --items all --epsilon 1 --domain 0:5",
    "estimate-narrow": f"estimate {REPORTS}",
    "estimate-explain-narrow": f"estimate {REPORTS} --explain",
    # Mechanisms
    "estimate-oue": "estimate oue.parquet --out all.csv",
    "estimate-oue-explain": "estimate oue.parquet --explain",
    "estimate-subset": "estimate subset.parquet --out all.csv",
    "estimate-hadamard": "estimate hadamard.parquet --out all.csv",
    # Survey designs
    "estimate-warner": f"estimate warner.csv {ANSWER} {WARNER} --out all.csv",
    "estimate-forced-response": f"estimate {FORCED} --explain",
    "estimate-design-file": f"estimate forced-response.csv {ANSWER} --design design.toml",
    "estimate-crosswise": f"estimate crosswise.csv {ANSWER} --mechanism crosswise --parameter innocuous=0.15",
    "estimate-kuk": f"estimate kuk.csv {ANSWER} --mechanism kuk --parameter have=0.8 --parameter lack=0.2",
    "estimate-unrelated-question": f"estimate unrelated-question.csv {ANSWER} --mechanism unrelated-question {UNEVEN}",
    "estimate-design-by": f"estimate {FORCED} --group yes=yes --by region --out all.csv",
    "estimate-design-parquet": "estimate dice.parquet --out all.csv",
    # Two samples
    "samples-cheating-detection": f"estimate cheating.csv {CHEATING} --explain --out all.csv",
    "samples-exchanged": f"estimate exchanged.csv {CHEATING}",
    "samples-anchored-crosswise": f"estimate anchor.csv {ANCHORED} --same-people --explain --out all.csv",
    "samples-unrelated-question": f"estimate unrelated.csv {UNRELATED} --out all.csv",
    # Statements
    "statements": f"estimate {VISITS} --mean --quantile 0.5 --group often=3:5 --explain --out all.csv",
    "statements-normal": f"estimate {VISITS} --mean --group often=3:5 --normal --explain",
    "statements-by": f"estimate {VISITS} --mean --quantile 0.25 --group often=3:5 --by region --out all.csv",
    "statements-population": f"estimate {VISITS} --mean --by region --population population.csv",
    "statements-weights": f"estimate {VISITS} --mean --group often=3:5 --weights weight",
    "statements-by-weights": f"estimate {VISITS} --group often=3:5 --by region --weights weight --explain",
    "statements-by-shares": "estimate city.parquet --by region --top 2 --out all.csv",
    "statements-survey": f"estimate {VISITS} --group often=3:5 --weights weight --clusters house --population-size 900",
    "statements-weighted-shares": "estimate city.parquet --weights weight --top 3",
    "statements-narrow": f"estimate {VISITS} --mean --group often=3:5 --by region",
    "within": f"estimate {WITHIN} --mean --quantile 0.9 --by region --explain --out all.csv",
    # Columns apart
    "apart-column": "estimate sampled.parquet --column smokes",
    "joint": "estimate levels.parquet --joint smokes,visits --out all.csv",
    "joint-explain": "estimate levels.parquet --joint smokes,visits --top 2 --explain",
    "all-pairs": "estimate apart.parquet --all-pairs --out all.csv",
    "all-pairs-explain": "estimate apart.parquet --all-pairs --explain --level 0.9",
    "tree": "estimate related.parquet --tree --out all.csv",
    "tree-explain": "estimate apart.parquet --tree --joint coin,smokes --explain",
    # Rounds
    "round": "estimate round-1.parquet --out all.csv",
    "rounds": "estimate round-1.parquet round-2.parquet round-3.parquet --out all.csv",
    "rounds-explain": "estimate round-1.parquet round-2.parquet --explain",
    # Files that were randomized differently
    "groups": "estimate city.parquet low.parquet oue.parquet --out all.csv",
    "groups-explain": "estimate city.parquet low.parquet oue.parquet --explain --top 3",
    # Numbers
    "numbers": "estimate wave.parquet --out all.csv",
    "numbers-explain": "estimate wave.parquet --quantile 0.5 --mean --level 0.8 --explain",
    "numbers-geometric": "estimate geometric.parquet --mean --out all.csv",
    # Comparisons
    "compare": f"compare {REPORTS} --out all.csv",
    "compare-truth": "compare city.parquet --truth values.csv --truth-column city --explain --out all.csv",
    "compare-one": f"compare {REPORTS} --estimator inv_p --top 2",
    "compare-subset": "compare clear.parquet --truth values.csv --truth-column city",
    "compare-contradicted": f"compare {ODD}",
    "compare-numbers": "compare wave.parquet --truth ages.csv --truth-column age --out all.csv",
    "compare-narrow": f"compare {REPORTS}",
    # Tests
    "test-fit": f"test fit {VISITS} --draws 999 --explain",
    "test-fit-against": "test fit city.parquet --against census.csv --against-column city --against-counts people",
    "test-fit-contradicted": f"test fit {ODD} --draws 999",
    "test-fit-design": f"test fit {FORCED}",
    "test-equal": "test equal city.parquet low.parquet --draws 999",
    "test-difference": "test difference city.parquet low.parquet --explain --out all.csv",
    "test-difference-by": f"test difference {SMOKES.replace('outcome', 'column')} --by region --weights weight",
    "test-trend": f"test trend reports.csv later.csv {CITY} --epsilon 1 --category Rome --draws 999 --explain",
    "test-independent": "test independent pairs.parquet --draws 999 --explain",
    # Regression
    "regress": f"regress {SMOKES} --covariates age,region --out all.csv",
    "regress-explain": "regress city.parquet --outcome city --covariates age --weights weight --reference Lima",
    "regress-design": f"regress {FORCED.replace('column', 'outcome')} --covariates region --robust",
    "regress-samples": f"regress cards.csv {CARDS} --covariates age --nuisance age --explain",
    "regress-randomized": "regress apart.parquet --outcome smokes --covariates age,coin",
    # Before a collection
    "randomize": f"{golden.OF_CITIES} --epsilon 1 --keep region --out made.parquet",
    "randomize-subset": f"{golden.OF_CITIES} --epsilon 1 --mechanism ss --out made.parquet",
    "randomize-apart": f"{golden.THREE} --split 2,1,1 --out made.parquet",
    "randomize-apart-sampled": f"{golden.THREE} --columns-per-user 2 --out made.parquet",
    "randomize-numbers": f"{golden.WAVE} --out made.parquet",
    "randomize-design": f"{golden.OF_SMOKING} {golden.DICE} --seed 1 --out made.parquet",
    "randomize-pairs": f"{golden.PAIRS} --out made.parquet",
    "randomize-round": golden.ROUND.format(1).replace("memo.parquet", "new.parquet"),
    "plan": "plan --categories 50 --epsilon 1 --target-rmse 0.01 --explain",
    "plan-width": "plan --categories 10 --users 50000 --target-width 0.02",
    "plan-known": "plan --categories 10 --users 50000 --epsilon 1.5 --mechanism subset-selection",
    "plan-design": f"plan {golden.DICE} --target-rmse 0.02",
    "plan-columns": "plan --columns 2,3 --epsilon 2 --users 10000 --explain",
    "audit": "audit --mechanism subset-selection --categories 6 --epsilon 1 --draws 20000 --level 0.999999 --explain",
    "audit-design": "audit --mechanism warner --parameter truth_probability=0.7 --draws 20000 --level 0.999999",
    # Pages
    "report": f"report {REPORTS} --title 'Where people live' --out page.html",
    "report-within": f"report {WITHIN} --quantile 0.75 --out page.html",
    "report-statements": "report city.parquet --group 'south=Rome,Lima' --by region --top 3 --out page.html",
    "report-ordered": f"report {VISITS} --ordered --mean --quantile 0.5 --out page.html",
    "report-contradicted": f"report {ODD} --out page.html",
    "report-tiny": f"report tiny.csv {CITY} --epsilon 1 --out page.html",
    "report-subset": "report subset.parquet --out page.html",
    "report-design": f"report {FORCED} --out page.html",
    "report-apart": "report apart.parquet --out page.html",
    "report-rounds": "report round-1.parquet round-2.parquet round-3.parquet --memo memo.parquet --out page.html",
    # Refusals
    "refused-no-epsilon": "estimate reports.csv --column city",
    "refused-other-epsilon": "estimate city.parquet --epsilon 2",
    "refused-column": "estimate reports.csv --column town --epsilon 1",
    "refused-label": "estimate reports.csv --column city --domain yesno.txt --epsilon 1",
    "refused-joint": "estimate city.parquet --joint smokes,coin",
    "refused-rounds-mean": "estimate round-1.parquet round-2.parquet --mean",
    "refused-numbers-report": "report wave.parquet --out page.html",
    "refused-samples-epsilon": f"estimate cheating.csv {CHEATING} --epsilon 1",
    "refused-design-parameter": f"estimate kuk.csv {ANSWER} --mechanism kuk --parameter have=0.8",
    "refused-group": f"estimate {VISITS} --group often=7:9",
    "refused-level": f"estimate {REPORTS} --level 95",
    # Help
    "help": "--help",
    **{
        f"help-{name}": f"{name.replace('-', ' ')} --help"
        for name in (
            *("estimate", "report", "compare", "regress", "randomize", "plan", "audit", "demo", "study"),
            *("test", "test-fit", "test-equal", "test-difference", "test-trend", "test-independent"),
        )
    },
}
"""Command lines, by the name of their record."""
QUICK = ("help", "refused-", "randomize", "audit", "plan-columns")
"""Beginnings of the names of those that take less than a second, whatever ran before."""


def marks(name):
    return () if name.startswith(QUICK) else (pytest.mark.long,)


def unlike_the_recording():
    """Why outputs cannot be compared here; "" where they can."""
    recorded, here = json.loads(golden.VERSIONS.read_text(encoding="utf-8")), golden.versions()
    if other := [f"{name} {version}" for name, version in recorded.items() if here[name] != version]:
        return f"recorded with {', '.join(other)}"
    if os.environ.get("RRJAX_TESTS_OPTIMIZED"):
        return "recorded with programs that are not optimized"
    if jax.config.jax_enable_x64:
        return "recorded without x64"
    return "" if jax.default_backend() == "cpu" else "recorded on a CPU"


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in LINES])
def test_outputs_are_as_recorded(name, invoke, tmp_path, monkeypatch):
    if not RECORDING and (reason := unlike_the_recording()):
        pytest.skip(reason)
    narrow = name.endswith("-narrow")
    width = 40 if narrow else 100
    monkeypatch.setenv("COLUMNS", str(width))
    for console in (show.out, show.err):  # which may have asked for the width before
        monkeypatch.setattr(console, "_width", width)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def enter(place):
        folder = tmp_path / place
        folder.mkdir()
        monkeypatch.chdir(folder)
        return folder

    as_json = not narrow and not name.startswith(("report", "help")) and "-explain" not in name
    found = golden.record(LINES[name], invoke, enter, as_json=as_json)
    file = golden.FOLDER / f"{name}.txt"
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    changed = golden.difference(before, found, file.name)
    if RECORDING:
        golden.FOLDER.mkdir(exist_ok=True)
        if changed:
            file.write_text(found, encoding="utf-8")
        golden.VERSIONS.write_text(json.dumps(golden.versions(), indent=2) + "\n", encoding="utf-8")
    elif changed:
        pytest.fail(f"{changed}\nIf this was wanted, RRJAX_RECORD_GOLDEN=1 records it.", pytrace=False)


@pytest.mark.skipif(RECORDING, reason="records are being made")
def test_every_record_has_a_command_line():
    assert {file.stem for file in golden.FOLDER.glob("*.txt")} == set(LINES)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Rome 338 22.53 %", "Rome 338 22.54 %", True),
        ("Rome 338 22.53 %", "Rome 338 22.55 %", False),
        ("Rome 338 22.53 %", "Rome 339 22.53 %", False),
        ("Rome 338 22.53 %", "Oslo 338 22.53 %", False),
        ("p = 0.04", "p = 0.05", False),
        ("0.0617005", "0.0616794", True),
        ("0.0617005", "0.0618794", False),
        ("0.5", "0.500001", True),
        ("4982.64", "4983.64", False),
        ("0.5", "0.6", False),
        ("2.8e-12", "5.41e-12", True),
        ("within 5e-7", "within 4e-7", True),
        ("within 5e-3", "within 4e-3", False),
    ],
)
def test_only_rounding_may_differ(one, other, same):
    assert (golden.difference(f"a\n{one}\nb", f"a\n{other}\nb", "x.txt") == "") == same


def test_a_difference_is_shown_without_rounding():
    shown = golden.difference("a\n1.234 %\nb\nold", "a\n1.235 %\nb\nnew\nmore", "x.txt").splitlines()
    assert [line for line in shown[2:] if line[0] in "+-"] == ["-old", "+new", "+more"]
