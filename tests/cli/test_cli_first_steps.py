"""What a newcomer types first: labels as a domain, ε as a logarithm, parameters under R's names, a design in a file."""

import json
import math
import subprocess
import sys

import pytest
import typer
from refusals import refused

import rrjax
from rrjax.cli.app import COMMANDS
from rrjax.cli.reading import nats
from rrjax.data.errors import DataError
from rrjax.estimators.catalogue import ESTIMATORS
from rrjax.estimators.names import BY_NAME, NAMES
from rrjax.io.labels import read_domain
from rrjax.mechanisms import DESIGNS, TWO_SAMPLES
from rrjax.mechanisms.surveys.named import parameters_of
from rrjax.mechanisms.table import IN_R

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.1", 1.1), ("3/2", 1.5), ("log(3)", math.log(3)), ("ln 3", math.log(3)), ("LOG( 19/3 )", math.log(19 / 3))],
)
def test_epsilon_is_a_number_a_fraction_or_a_logarithm(text, expected):
    assert nats(text) == expected


@pytest.mark.parametrize("text", ["", "x", "log", "log()", "log(0)", "log(-1)", "1/0", "nan", "inf", "exp(1)", "1e999"])
def test_other_texts_are_no_epsilon(text):
    with pytest.raises(typer.BadParameter):
        nats(text)


@pytest.mark.parametrize(
    ("text", "labels"),
    [("yes,no", ["yes", "no"]), (' yes , no,"a, b"', ["yes", "no", "a, b"]), ("1,2,3", ["1", "2", "3"])],
)
def test_a_domain_is_labels_with_commas(tmp_path, monkeypatch, text, labels):
    monkeypatch.chdir(tmp_path)
    assert [str(label) for label in read_domain(text).labels()] == labels
    (tmp_path / "yes,no").write_text("a\nb\nc\n")  # a file that is there is read
    assert read_domain("yes,no").num_categories == 3


@pytest.mark.parametrize("text", ["yes,", "yes,yes", "a,b.txt", "a,b.csv.gz", "yes"])
def test_other_texts_are_no_domain(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError):
        read_domain(text)


@pytest.mark.full
def test_labels_and_a_logarithm_at_the_command_line(tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("a\n" + "yes\n" * 60 + "no\n" * 40)
    out = invoke.done("estimate", "r.csv", "--epsilon", "log(3)", "--domain", "yes,no", "--json")
    expected = rrjax.read("r.csv", epsilon=math.log(3), domain=["yes", "no"]).shares()
    assert json.loads(out)["top"] == json.loads(json.dumps(expected.to_dict()))["top"]
    assert invoke("estimate", "r.csv", "--epsilon", "1", "--domain", "yes,yes")[0] == 2  # a flag, not a file


@pytest.mark.full
def test_the_probability_of_the_truth_in_place_of_epsilon(tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("a\n" + "yes\n" * 60 + "no\n" * 30 + "?\n" * 10)
    polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")
    domain = ["yes", "no", "?"]
    ready = rrjax.Reports.of_counts([60, 30, 10], domain=domain, probability=0.7, column="a")
    assert float(rrjax.RandomizedResponse(3, ready.epsilon).p) == pytest.approx(0.7, rel=1e-6)
    frame = rrjax.read(polars.read_csv("r.csv"), probability=0.7, domain=domain)
    flags = ("--probability", "7/10", "--domain", "yes,no,?")
    for found in (frame, rrjax.read("r.csv", probability=0.7, domain=domain)):
        assert found.epsilon == ready.epsilon
        assert found.counts.tolist() == ready.counts.tolist()
    assert invoke.json("estimate", "r.csv", *flags)["epsilon"] == ready.epsilon
    fit = ("test", "fit", "r.csv", "--domain", "yes,no,?", "--draws", 99)
    by_name = [invoke.json(*fit, *how) for how in (("--probability", 0.7), ("--epsilon", ready.epsilon))]
    assert by_name[0] == by_name[1]
    invoke.refuses("--probability", "estimate", "r.csv", "--probability", "0.7")
    invoke.refuses("--probability", "estimate", "r.csv", *flags, "--epsilon", 1)
    design = ("--mechanism", "mangat", "--parameter", "truth=0.7")
    invoke.refuses("--probability", "estimate", "r.csv", "--probability", "0.7", "--domain", "yes,no", *design)
    invoke.refuses("--probability", "estimate", "r.csv", "--probability", "0.7x", "--domain", "yes,no")
    invoke.done("randomize", "r.csv", "--epsilon", 1, "--domain", "yes,no,?", "--out", "r.parquet")
    invoke.refuses("--probability", "estimate", "r.parquet", *flags)


@pytest.mark.parametrize("value", [0.5, 1, 0, math.nan, "much", True, 70])
def test_a_probability_of_no_randomized_response_is_refused(value):
    with refused("probability"):
        rrjax.Reports.of_counts([60, 40], probability=value)


def test_a_probability_beside_a_mechanism_is_refused():
    for other in (1.0, DESIGNS["warner"](0.7)):
        with refused("probability"):
            rrjax.Reports.of_counts([60, 40], other, probability=0.7)


def test_categories_that_look_like_missing_answers_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("city\n" + "Rome\nLima\n" * 30 + "NA\n?\n")

    def looks(**more):
        return [each for each in rrjax.read("r.csv", epsilon=2.0, **more).warnings if "missing=" in each]

    (warning,) = looks()
    assert "missing=['?', 'NA']" in warning
    assert not looks(missing=["NA", "?"])
    assert not looks(domain=["Rome", "Lima", "NA", "?"])  # named by whoever knows the categories


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('mechanism = "warner"\ntruth_probability = 2/3\n', 'truth_probability = "2/3"'),
        ('mechanism = "warner"\np = 0.7\n', IN_R["warner"]),
        ('mechanism = "warner"\ntruth_probability = 1.5\n', "1.5"),
        ('mechanism = "warner"\n', "truth_probability"),
    ],
)
def test_an_error_in_a_design_file_is_about_the_file(tmp_path, monkeypatch, invoke, text, wanted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text("a\nyes\nno\n")
    (tmp_path / "d.toml").write_text(text)
    code, _, error = invoke("estimate", "r.csv", "--design", "d.toml", "--domain", "yes,no")
    said = " ".join(error.split())
    assert code == 3
    assert {"d.toml" in said, wanted in said, "--parameter" not in said} == {True}


def test_every_design_of_rrreg_is_named():
    for name in IN_R:
        assert name in DESIGNS or name in TWO_SAMPLES
        with pytest.raises(ValueError, match="RRreg"):
            parameters_of(name, {"p": 0.7})


@pytest.mark.long
def test_help_comes_without_jax():
    commands = ["", *(name for names in COMMANDS.values() for name in names)]
    script = f"""
import contextlib, io, sys, rrjax.cli
for command in {commands}:
    sys.argv = ["rrjax", *command.split(), "--help"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())) as said:
        rrjax.cli.main()
    said.flush()
    print(command, b"Usage" in said.buffer.getvalue(), "jax" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{command} True False" for command in commands], done.stderr


def test_the_names_of_estimators_are_those_of_the_catalogue():
    assert tuple(ESTIMATORS) == NAMES
    assert [name for name, entry in ESTIMATORS.items() if entry.by_name] == [*BY_NAME]
