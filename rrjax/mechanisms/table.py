"""The mechanisms by name, for files, studies and the command line; without JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

Coding: TypeAlias = Literal["labels", "numbers", "bits", "hashes"]
"""Form of a report in a file: a label of the domain, the number of a column, K bits, or a seed and a bucket."""


class Entry(NamedTuple):
    """The entry of a mechanism.

    Attributes:
        file: The name of its file in `rrjax/mechanisms`.
        class_name: The name of its class there.
        coding: The form of its reports in files; None for a mechanism without a file format.
        abbreviations: Its names in papers, accepted in place of its name.
        parameters: Of a survey design, what it is made from in place of K and ε; None for a mechanism of K and ε.
        samples: The number of samples of a survey design; two for those that estimate two unknown shares.
        vectors: Those of its parameters that are several numbers: a distribution of answers or, of two samples, one
            number for each. All others are single numbers.
        ordered: Whether it is for numbers: its values are integers or bins in order, and its reports support none.
        rounds: Whether it is a longitudinal protocol, whose users report in many rounds. A round is the file of
            reports of a mechanism of K and ε.
    """

    file: str
    class_name: str
    coding: Coding | None = None
    abbreviations: tuple[str, ...] = ()
    parameters: tuple[str, ...] | None = None
    samples: int = 1
    vectors: tuple[str, ...] = ()
    ordered: bool = False
    rounds: bool = False


TABLE: dict[str, Entry] = {
    "randomized-response": Entry("randomized_response", "RandomizedResponse", "labels", ("rr", "krr", "grr")),
    "symmetric-unary-encoding": Entry("unary", "SymmetricUnaryEncoding", "bits", ("sue",)),
    "optimized-unary-encoding": Entry("unary", "OptimizedUnaryEncoding", "bits", ("oue",)),
    "binary-local-hashing": Entry("local_hashing", "BinaryLocalHashing", "hashes", ("blh",)),
    "optimized-local-hashing": Entry("local_hashing", "LocalHashing", "hashes", ("olh",)),
    "subset-selection": Entry("subset_selection", "SubsetSelection", "bits", ("ss",)),
    "hadamard-response": Entry("columns", "HadamardResponse", "numbers", ("hr",)),
    "projective-geometry-response": Entry("columns", "ProjectiveGeometry", "numbers", ("pgr",)),
    "square-wave": Entry("ordered", "DiscreteSquareWave", "numbers", ("sw",), ordered=True),
    "geometric": Entry("ordered", "Geometric", "labels", ordered=True),
    "warner": Entry("surveys.one_sample", "Warner", "labels", ("mirrored-question",), ("truth_probability",)),
    "forced-response": Entry(
        "surveys.one_sample", "ForcedResponse", "labels", (), ("truth", "forced"), vectors=("forced",)
    ),
    "unrelated-question": Entry(
        "surveys.one_sample", "UnrelatedQuestion", "labels", (), ("truth", "unrelated"), vectors=("unrelated",)
    ),
    "negative-question": Entry("surveys.one_sample", "NegativeQuestion", "labels", (), ("own",)),
    "crosswise": Entry("surveys.one_sample", "Crosswise", "labels", (), ("innocuous",)),
    "triangular": Entry("surveys.one_sample", "Triangular", "labels", (), ("innocuous",)),
    "kuk": Entry("surveys.one_sample", "Kuk", "labels", (), ("have", "lack")),
    "mangat": Entry("surveys.one_sample", "Mangat", "labels", (), ("truth",)),
    "coin": Entry("surveys.one_sample", "Coin", "labels", (), ("rate",)),
    "direct": Entry("surveys.one_sample", "Direct", "labels", (), ()),
    "cheating-detection": Entry(
        "surveys.two_sample_designs",
        "CheatingDetection",
        None,
        (),
        ("forced", "forced_no"),
        2,
        vectors=("forced", "forced_no"),
    ),
    "stochastic-lie-detector": Entry(
        "surveys.two_sample_designs", "StochasticLieDetector", None, (), ("truth",), 2, vectors=("truth",)
    ),
    "anchored-crosswise": Entry(
        "surveys.two_sample_designs", "AnchoredCrosswise", None, (), ("innocuous", "anchor", "anchor_share"), 2
    ),
    "self-protection": Entry(
        "surveys.two_sample_designs", "SelfProtection", None, (), ("truth", "forced"), 2, vectors=("truth",)
    ),
    "unrelated-question-two-samples": Entry(
        "surveys.two_sample_designs", "UnrelatedQuestionTwoSamples", None, (), ("truth",), 2, vectors=("truth",)
    ),
    "longitudinal-randomized-response": Entry(
        "longitudinal.two_stages", "LongitudinalRandomizedResponse", "labels", ("lgrr", "l-grr"), rounds=True
    ),
    "longitudinal-local-hashing": Entry(
        "longitudinal.two_stages", "LongitudinalLocalHashing", "hashes", ("loloha",), rounds=True
    ),
    "longitudinal-unary-encoding": Entry(
        "longitudinal.two_stages", "LongitudinalUnaryEncoding", "bits", ("losue", "l-osue"), rounds=True
    ),
    "longitudinal-symmetric-unary-encoding": Entry(
        "longitudinal.two_stages",
        "LongitudinalSymmetricUnaryEncoding",
        "bits",
        ("lsue", "l-sue", "basic-rappor"),
        rounds=True,
    ),
}
"""All mechanisms, by their names in files and on the command line."""

IN_R = {
    "warner": '"Warner", p',
    "forced-response": '"FR", p = c(no, yes) of all respondents',
    "unrelated-question": '"UQTknown", p = c(truth, yes)',
    "crosswise": '"Crosswise", p',
    "triangular": '"Triangular", p',
    "kuk": '"Kuk", p = c(have, lack)',
    "mangat": '"Mangat", p',
    "cheating-detection": '"CDM", p = c(first, second); "CDMsym", p = c(yes, no, yes, no)',
    "stochastic-lie-detector": '"SLD", p = c(first, second)',
    "unrelated-question-two-samples": '"UQTunknown", p = c(first, second)',
}
"""Survey designs as R's package RRreg writes them: its model, and its p as the parameters here."""

PARTS: dict[str, Callable[[Entry], bool]] = {
    "MECHANISMS": lambda entry: entry.parameters is None and not (entry.rounds or entry.ordered),
    "ORDERED": lambda entry: entry.ordered,
    "DESIGNS": lambda entry: entry.parameters is not None and entry.samples == 1,
    "TWO_SAMPLES": lambda entry: entry.samples == 2,
    "PROTOCOLS": lambda entry: entry.rounds,
}
"""The parts of the table, by their names."""


def names_in(*parts: str) -> list[str]:
    """The names of the mechanisms in parts of the table."""
    return [name for part in parts for name, entry in TABLE.items() if PARTS[part](entry)]


RANDOMIZED_RESPONSE = next(iter(TABLE))

ABBREVIATIONS = {short: name for name, entry in TABLE.items() for short in entry.abbreviations}


def full_name(text: str) -> str:
    """The name of a mechanism in files; `text` may have capitals, underscores, or be an abbreviation."""
    name = text.lower().replace("_", "-")
    return ABBREVIATIONS.get(name, name)
