"""Which answer to a survey is yes, in whatever order the domain has them, and parameters with the names of answers."""

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import blames

import rrjax
from rrjax import io
from rrjax.cli.design import Randomizer
from rrjax.cli.reading import Files, Reading
from rrjax.cli.study import Wish, jobs_of
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.tallies import mechanism_of
from rrjax.mechanisms import DESIGNS, TWO_SAMPLES, Kuk, Mangat, UnrelatedQuestion
from rrjax.mechanisms.table import TABLE
from rrjax.reports.parameters import known_yes

pytestmark = pytest.mark.once
COUNTED = ("--column", "answer", "--counts", "n", "--json")
KUK = {"have": "0.7", "lack": "0.1"}
UNRELATED = {"truth": "1/2", "unrelated": "1/12,11/12"}


def flags_of(name, **parameters):
    return [
        "--mechanism",
        name,
        *(part for key, value in parameters.items() for part in ("--parameter", f"{key}={value}")),
    ]


@pytest.fixture
def table(invoke):
    """Makes a table of 462 answers of one label and 538 of another, and a file of both in an order."""

    def make(yes, no, *listed):
        io.write_table("c.csv", {"answer": np.array([yes, no]), "n": np.array([462, 538])})
        Path("domain.txt").write_text("\n".join(listed or (yes, no)))
        return invoke

    return make


def estimated(invoke, *flags, domain="domain.txt", command="compare"):
    return json.loads(invoke.done(command, "c.csv", *COUNTED, "--domain", domain, *flags))


def share(found, label, estimator="mle"):
    return next(row[estimator] for row in found["top"] if str(row["label"]) == label)


def test_words_for_yes_and_no():
    for labels, place in (
        (["Ja", "NEIN"], 0),
        (["non", "oui"], 1),
        (["FALSE", "true"], 1),
        (["1", "0"], 0),
        (["yes", "0"], 0),
        (["1", "2"], None),
        (["yes", "no", "maybe"], None),
        (["yes", "y"], None),
    ):
        assert Domain.of(labels).place_of_yes == place
    assert Domain.range(0, 1).place_of_yes == 1
    assert Domain.range(0, 2**31 - 2).place_of_yes is None


@pytest.mark.full  # several commands
def test_the_yes_is_known_by_its_label_in_any_order(table):
    expected = float(rrjax.mle(Kuk(0.7, 0.1).mixture_of_counts([462, 538]))[0])
    for labels, listed in (
        (("yes", "no"), ("no", "yes")),
        (("yes", "no"), ("yes", "no")),
        (("Oui", "Non"), ("Non", "Oui")),
    ):
        found = estimated(table(*labels, *listed), *flags_of("kuk", **KUK))
        assert found["yes"] == labels[0]
        assert share(found, labels[0]) == pytest.approx(expected, abs=1e-5)
    invoke = table("1", "0")
    found = estimated(invoke, *flags_of("kuk", **KUK), domain="0:1")
    assert (found["yes"], found["domain"]) == ("1", "0:1 (2 integers)")
    assert share(found, "1") == pytest.approx(expected, abs=1e-5)
    out = invoke.done("estimate", "c.csv", *COUNTED[:-1], "--domain", "0:1", *flags_of("kuk", **KUK))
    assert "; yes: 1, no: 0;" in out.splitlines()[0]
    # Where the law is the same for both answers, nothing needs to be known.
    for labels, yes in ((("1", "0"), "1"), (("left", "right"), None)):
        found = estimated(table(*labels, *labels[::-1]), *flags_of("warner", truth_probability=0.3))
        assert found["yes"] == yes
        assert share(found, labels[0]) == pytest.approx((0.462 - 0.7) / (0.3 - 0.7), abs=1e-5)


def test_a_yes_that_no_word_tells_is_asked_for(table):
    invoke = table("red", "black", "black", "red")
    for name, parameters in (("kuk", KUK), ("mangat", {"truth": 0.9}), ("triangular", {"innocuous": 0.1})):
        invoke.refuses(
            "--domain", "compare", "c.csv", *COUNTED, "--domain", "domain.txt", *flags_of(name, **parameters)
        )
    line = ("compare", "c.csv", *COUNTED, "--domain", "domain.txt", *flags_of("kuk", **KUK))
    invoke.refuses("--parameter", *line, "--parameter", "yes=green")
    named = (*flags_of("forced-response", truth=0.5, forced="0.5,0.5"), "--parameter", "yes=red")
    invoke.refuses("--parameter", "compare", "c.csv", *COUNTED, "--domain", "domain.txt", *named)


@pytest.mark.full
def test_a_label_is_said_to_be_yes(table):
    invoke = table("red", "black", "black", "red")
    shares = []
    for label, counts in (("red", [462, 538]), ("black", [538, 462])):
        found = estimated(invoke, *flags_of("kuk", **KUK), "--parameter", f"yes={label}")
        assert found["yes"] == label
        shares.append(share(found, label))
        assert shares[-1] == pytest.approx(float(rrjax.mle(Kuk(0.7, 0.1).mixture_of_counts(counts))[0]), abs=1e-5)
    assert abs(shares[0] - (1 - shares[1])) > 0.1  # or it would not matter


@pytest.mark.full  # several commands
def test_numbers_with_the_names_of_answers(table):
    design = UnrelatedQuestion(0.5, [1 / 12, 11 / 12])
    expected = float(rrjax.mle(design.mixture_of_counts([462, 538]))[0])
    assert expected == pytest.approx(0.8407, abs=5e-5)
    invoke = table("1", "0")
    for numbers in ("yes:1/12,no:11/12", "0:11/12,1:1/12", "no:11/24, yes:1/24"):
        found = estimated(invoke, *flags_of("unrelated-question", truth="1/2", unrelated=numbers), domain="0:1")
        assert share(found, "1") == pytest.approx(expected, abs=1e-5)
    # The truth is the remainder; a file has a table of names.
    Path("u.toml").write_text('mechanism = "unrelated-question"\nunrelated = {no = "11/24", yes = "1/24"}\n')
    found = estimated(invoke, "--design", "u.toml", domain="0:1")
    assert share(found, "1") == pytest.approx(expected, abs=1e-5)
    # In the order of the domain where that is yes and no, or does not matter.
    table("yes", "no")
    assert share(estimated(invoke, *flags_of("unrelated-question", **UNRELATED)), "yes") == pytest.approx(
        expected, abs=1e-5
    )
    Path("domain.txt").write_text("no\nyes\n")
    even = estimated(invoke, *flags_of("unrelated-question", truth="1/2", unrelated="1/2,1/2"))
    assert share(even, "yes") == pytest.approx(2 * (0.462 - 0.25), abs=1e-5)


def test_numbers_that_may_be_of_either_answer_are_asked_about(table):
    invoke = table("yes", "no", "no", "yes")

    def refused(**parameters):
        line = ("compare", "c.csv", *COUNTED, "--domain", "domain.txt", *flags_of("unrelated-question", **parameters))
        invoke.refuses("--parameter", *line)

    refused(**UNRELATED)
    Path("domain.txt").write_text("yes\nno\n")
    refused(truth="1/2", unrelated="1/24,11/24")  # the form of R's packages, which have no first
    refused(truth="1/2", unrelated="yes:1/12,maybe:11/12")
    refused(truth="1/2", unrelated="yes:1/12,11/12")
    refused(truth="1/2", unrelated="yes:1/12,yes:11/12")
    refused(truth="1/2", unrelated="yes:1/12,no:1/12")


@pytest.mark.long
def test_plans_have_yes_first(invoke):
    for numbers in ("yes:1/3,no:1/6", "no:1/6,yes:1/3"):
        line = ("plan", *flags_of("forced-response", forced=numbers), "--users", 1000, "--json")
        assert json.loads(invoke(*line)[1])["design"] == "truth 0.5, forced 0.6667 : 0.3333"


@pytest.mark.long  # a collection, an estimate
def test_files_say_which_answer_was_yes(invoke):
    io.write_table("v.csv", {"answer": (np.arange(8000) % 4 == 0).astype(int)})
    line = ("randomize", "v.csv", "--domain", "0:1", *flags_of("kuk", **KUK), "--seed", 1, "--out", "r.parquet")
    out = invoke.done(*line)
    assert "yes: 1, no: 0" in out
    for domain in ((), ("--domain", "0:1")):
        found = invoke.json("estimate", "r.parquet", *domain)
        assert found["yes"] == "1"
        assert abs(share(found, "1", "likeliest") - 0.25) < 4 * found["standard_error"]


def test_files_without_the_number_of_yes_have_it_first():
    """Files of earlier versions, whose first label was the yes by definition."""
    record = MechanismRecord("kuk", {"have": 0.7, "lack": 0.1})
    domain = Domain.of(["nee", "ja"])
    metadata = Metadata(record, float(Kuk(0.7, 0.1).epsilon), domain, "answer", False, "0.1.0", False)
    mechanism = mechanism_of(metadata, "old.parquet")
    assert isinstance(mechanism, Kuk)
    assert known_yes(domain, mechanism) == mechanism.yes_category == 0


def test_studies_have_the_yes_of_their_data(invoke):
    io.write_table("v.csv", {"answer": np.array([0, 1, 1, 0])})
    files = Files(["v.csv"], Reading(domain="0:1"), true_values=True)
    randomizer = Randomizer(mechanism="mangat", parameter=["truth=0.7"])
    (job,) = jobs_of("data", files, Wish(), randomizer)
    assert job.study.mechanism["mangat"](2) == Mangat(0.7, yes_category=1)


@pytest.mark.long
def test_two_samples_in_any_order(invoke):
    said = {"A": (400, 600), "B": (550, 450)}
    answers = [label for yes, no in said.values() for label in [1] * yes + [0] * no]
    io.write_table("two.csv", {"said": np.array(answers), "card": np.repeat(["A", "B"], 1000)})
    Path("yes.txt").write_text("1\n0\n")
    flags = flags_of("cheating-detection", forced="0.25,0.75")
    found = []
    for domain in ("0:1", "yes.txt"):
        line = ("estimate", "two.csv", "--column", "said", "--domain", domain, *flags, "--sample", "card=A,B", "--json")
        found.append(json.loads(invoke.done(*line)))
    assert found[0] == found[1]
    assert found[0]["counts"] == [[400, 600], [550, 450]]


@pytest.mark.long
@pytest.mark.parametrize(
    "value", ["0,7", "0.2,0.3,0.5", "1e400", "nan", "", "1/0", "0.5;0.7", "yes:1/4,no:3/4,maybe:0"]
)
def test_values_that_a_parameter_cannot_have(invoke, value):
    """Each parameter of each design, planned or estimated: a flag is blamed, and the message has no Python in it."""
    io.write_table("two.csv", {"said": np.array(["yes", "no"] * 4), "card": np.repeat(["A", "B"], 4)})
    Path("yes.txt").write_text("yes\nno\n")
    for name in (*DESIGNS, *TWO_SAMPLES):
        entry = TABLE[name]
        for odd in entry.parameters:
            good = {key: "0.3,0.7" if key in entry.vectors else "0.4" for key in entry.parameters}
            flags = flags_of(name, **good | {odd: value})
            lines = [
                ("plan", "--users", 9, "--categories", 2, *flags),
                ("estimate", "two.csv", "--column", "said", "--domain", "yes.txt", *flags),
            ]
            if name in TWO_SAMPLES:
                lines = [(*lines[1], "--sample", "card=A,B")]
            for line in lines:
                error = invoke.said(2, *line)
                assert blames(invoke.error, "--parameter") or blames(invoke.error, "--mechanism"), line
                assert not any(word in error for word in ("np.", "array(", "shape", "jax.")), error


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("cheating-detection", {"forced": "0.5,0.500000001"}),
        ("self-protection", {"truth": "0.8,0.4", "forced": "1e-9"}),
        ("mangat", {"truth": "1e-9"}),
        ("warner", {"truth_probability": "0.500000001"}),
        ("warner", {"truth_probability": "1e-320"}),
        ("negative-question", {"own": "0.4999999999"}),
    ],
)
def test_answers_that_say_nothing(invoke, name, parameters):
    io.write_table("two.csv", {"said": np.array(["yes", "no"] * 4), "card": np.repeat(["A", "B"], 4)})
    Path("yes.txt").write_text("yes\nno\n")
    sample = ("--sample", "card=A,B") if name in TWO_SAMPLES else ()
    line = ("estimate", "two.csv", "--column", "said", "--domain", "yes.txt", *sample, *flags_of(name, **parameters))
    invoke.refuses("--parameter", *line)


@pytest.mark.long
def test_a_yes_that_is_said_goes_before_what_a_label_means(invoke):
    Path("r.csv").write_text("answer\n" + "yes\n" * 462 + "no\n" * 538)
    Path("d.txt").write_text("no\nyes\n")
    line = ("estimate", "r.csv", "--column", "answer", "--domain", "d.txt", *flags_of("kuk", **KUK), "--json")
    shares = []
    for label, number in (("yes", 462), ("no", 538)):
        found = json.loads(invoke.done(*line, "--parameter", f"yes={label}"))
        expected = float(rrjax.mle(Kuk(0.7, 0.1).mixture_of_counts([number, 1000 - number]))[0])
        assert found["yes"] == label
        shares.append(share(found, label, "likeliest"))
        assert shares[-1] == pytest.approx(expected, abs=1e-5)
    assert shares[0] != pytest.approx(shares[1], abs=0.1)
