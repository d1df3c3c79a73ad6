"""Writes `mechanisms.md`: what every mechanism is and costs, taken from the code. `python docs/mechanisms.py`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import rrjax
from rrjax import longitudinal, mechanisms
from rrjax.io.write import CODINGS
from rrjax.mechanisms import MECHANISMS, PureMechanism
from rrjax.mechanisms.longitudinal.protocol import Protocol, TwoStages
from rrjax.mechanisms.table import ABBREVIATIONS, IN_R, TABLE
from rrjax.reports.two_sample_designs import AMONG

PAGE = Path(__file__).with_suffix(".md")
SIZE, EPSILONS = 1000, (0.5, 1.0, 2.0, 4.0)
USERS = 1_000_000
REPORTS = {
    "labels": "a category",
    "numbers": "the number of a column",
    "bits": "a set of categories",
    "hashes": "a seed and a bucket",
}
HEAD = """# Mechanisms

Every report *supports* some categories: its user's own category with probability p, any other one with probability q.
The support counts of a collection form a tally, `mechanism.tally(reports)`. `inv`, `inv_n`, `inv_p`,
`empirical_bayes`, `rrjax.postprocessing`, intervals, p-values, discoveries and plans need nothing else. The likelihood
of whole reports is a mixture, `mechanism.mixture(reports)`; `ibu` maximizes it with a certificate. For randomized
response `mle_star` is the maximum in closed form. `rrjax randomize --mechanism NAME` takes every
mechanism of the first table, by its name or its abbreviation; `rrjax estimate` reads the mechanism from its files.

Each report of a user costs ε again: a user who reports the same value m times is protected by m·ε only, unless a
protocol of `rrjax.longitudinal` keeps the first answer ([below](#users-who-report-again)). `python docs/mechanisms.py`
writes this page from the code. `tests/channels.py` states each law by its definition, and three files of tests compare
with it: `tests/mechanisms/test_mechanisms.py`, `tests/privacy/test_clients.py` (clients for real collections) and
`tests/privacy/test_audit.py` (lower bounds on ε).
"""
FOREVER, FIRST, FEW = 2.0, 1.0, 100
"""ε∞, ε₁ and K of the protocols."""
AGAIN = (1, 2, 5, 100)
"""Reports of one value."""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The page as it should be."""
    return "\n".join(
        [HEAD, *_laws(), "", *_costs(), "", *_protocols(), "", *_others(), "", *_two_samples(), "", *_parameters(), ""]
    )


def _laws() -> list[str]:
    rows = [
        "| class in `mechanisms` | name, short names | law | a report is | parameter | likeliest | in `longitudinal` |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, kind in MECHANISMS.items():
        names = ", ".join(
            f"`{each}`" for each in (name, *(short for short, full in ABBREVIATIONS.items() if full == name))
        )
        note = kind(SIZE, 1.0).note or "–"
        maximum = "`mle_star`" if kind is rrjax.RandomizedResponse else "`ibu`"
        again = ", ".join(dict.fromkeys(f"`{type(one).__name__}`" for one in PROTOCOLS if _first(one) is kind)) or "–"
        report = REPORTS[CODINGS[name]]
        rows.append(f"| `{kind.__name__}` | {names} | {_law(kind)} | {report} | {note} | {maximum} | {again} |")
    rows += ["", f"Parameters: chosen by ε = 1 at K = {SIZE:,}."]
    return rows


def _costs() -> list[str]:
    columns = " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS)
    rows = [
        f"| K = {SIZE:,} | bits, ε = 1 | server operations, N = {USERS:,} | {columns} | simulation of a collection |",
        f"|---|---:|---:|{'---:|' * len(EPSILONS)}---|",
    ]
    for name, kind in MECHANISMS.items():
        errors = " | ".join(f"{_error(kind(SIZE, epsilon), epsilon):.3g}" for epsilon in EPSILONS)
        drawn = "O(N·K)" if kind.collect is PureMechanism.collect else "O(N)" if CODINGS[name] == "numbers" else "O(K)"
        own = kind(SIZE, 1.0)
        counted = f"{own.server_operations(USERS):.2g}"
        rows.append(f"| `{kind.__name__}` | {own.bits:,.0f} | {counted} | {errors} | {drawn} |")
    rows += [
        "",
        "The columns of ε hold the expected squared error of the unbiased estimate, summed over the categories and "
        "divided by 4e^ε·K/(N(e^ε−1)²), the value of the best mechanisms for large K. Server operations are the "
        "approximate additions and hashes to count all reports at ε = 1; they are not times. "
        f"`rrjax plan --categories {SIZE} --users 100000 --epsilon 1` ranks the mechanisms for your own numbers.",
    ]
    return rows


def _law(kind: type) -> str:
    """The first line of its docstring."""
    return " ".join((kind.__doc__ or "").split("\n\n")[0].split()).removesuffix(".").split(". A pytree")[0]


UNARY: dict[str, dict] = {
    "L-OSUE": {},
    "L-SUE, basic RAPPOR": {"permanent_encoding": "symmetric"},
    "L-OUE": {"instantaneous_encoding": "optimized"},
    "L-SOUE": {"permanent_encoding": "symmetric", "instantaneous_encoding": "optimized"},
}
"""The longitudinal unary encodings: their encodings other than the defaults."""


def _made(kind: type[Protocol]) -> list[Protocol]:
    if kind is longitudinal.LongitudinalBitFlipping:
        return [longitudinal.LongitudinalBitFlipping(FEW, FOREVER, num_bits=16)]
    chosen: list[dict] = [{}]
    if kind is longitudinal.LongitudinalUnaryEncoding:  # both symmetric have a class of their own
        chosen = [given for name, given in UNARY.items() if not name.startswith("L-SUE")]
    return [kind(FEW, FOREVER, FIRST, **given) for given in chosen]  # pyright: ignore[reportCallIssue]


PROTOCOLS = [
    protocol
    for name in longitudinal.__all__
    if isinstance(kind := getattr(longitudinal, name), type) and issubclass(kind, Protocol) and kind is not Protocol
    for protocol in _made(kind)
]


def _in_files(protocol: Protocol) -> bool:
    """Whether `rrjax randomize` makes it: by name, with the default encodings."""
    return protocol.name in mechanisms.PROTOCOLS and (
        type(protocol) is not longitudinal.LongitudinalUnaryEncoding or _law_of(protocol).endswith("(L-OSUE)")
    )


def _first(protocol: Protocol) -> type[PureMechanism]:
    """The mechanism that makes the memo, or the hash and the memo."""
    hashes = isinstance(protocol, longitudinal.LongitudinalLocalHashing)
    return type(protocol.memo_mechanism if isinstance(protocol, TwoStages) and not hashes else protocol.single_round)


def _law_of(protocol: Protocol) -> str:
    if not isinstance(protocol, longitudinal.LongitudinalUnaryEncoding):
        return _law(type(protocol))
    encodings = protocol.permanent_encoding, protocol.instantaneous_encoding
    ours = dict(zip(("permanent_encoding", "instantaneous_encoding"), encodings, strict=True))
    defaults = {"permanent_encoding": "optimized", "instantaneous_encoding": "symmetric"}
    name = next(name for name, given in UNARY.items() if defaults | given == ours)
    return f"{encodings[0].capitalize()}, then {encodings[1]} ({name})"


def _protocols() -> list[str]:
    columns = " | ".join(f"ε, T = {number:,}" for number in AGAIN)
    rows = [
        "## Users who report again",
        "",
        f"A value is randomized permanently at ε∞ = {FOREVER:g}; the permanent answer is randomized again for each "
        f"report, so that one report has ε₁ = {FIRST:g}. (d-bit flipping, here with 16 bits per user, repeats its "
        "permanent answer.) `mixture(reports)` is the likelihood of all reports of each user together, `single_round` "
        "the mechanism of one round. Tests: `tests/mechanisms/test_longitudinal.py`, by enumeration of all histories; "
        "`tests/mechanisms/test_rappor.py`.",
        "",
        f"| class in `longitudinal`, name | law | error of a round, K = {FEW} | {columns} | permanent answers |",
        f"|---|---|---:|{'---:|' * len(AGAIN)}---:|",
    ]
    for protocol in PROTOCOLS:
        once = protocol.single_round
        error = float(once.expected_squared_error(1)) / _bound(float(np.asarray(once.epsilon)), FEW)
        spent = " | ".join(f"{float(protocol.epsilon_after(number)):.3g}" for number in AGAIN)
        name = "" if not _in_files(protocol) else f", `{protocol.name}`"
        rows.append(
            f"| `{type(protocol).__name__}`{name} | {_law_of(protocol)} | {error:.3g} | {spent} | "
            f"{protocol.num_memos} |"
        )
    words = [str(number) for number in range(FEW)]
    rappor = longitudinal.Rappor(longitudinal.bloom_filters(words, 16, 2, num_cohorts=8), 2)
    spent = " | ".join(f"{float(rappor.epsilon_after(number)):.3g}" for number in AGAIN)
    rows += [
        f"| `Rappor` | {_law(longitudinal.Rappor)}; f = ½, p = ½, q = ¾, 16 bits, 2 hashes, "
        f"8 cohorts | – | {spent} | {FEW} |",
        "",
        "The columns of T hold the ε of T reports of one value. Errors are as above, at the ε of a round. The number "
        "of permanent answers times ε∞ bounds the loss for two histories whose values change at the same times, to a "
        "new or an old value alike; the times of changes are not hidden. `history_loss(history, other)` is the exact "
        "loss of two histories. `rrjax randomize --memo FILE` takes the protocols with a name "
        "([privacy engineer](guides/privacy-engineer.md#users-who-report-again)).",
    ]
    return rows


def _others() -> list[str]:
    coin = rrjax.RandomizedResponse(2, 1.0)
    examples = (
        mechanisms.Warner(0.7),
        mechanisms.ForcedResponse(0.7, [0.5, 0.5]),
        mechanisms.UnrelatedQuestion(0.7, [0.5, 0.5]),
        mechanisms.Crosswise(0.15),
        mechanisms.Triangular(0.25),
        mechanisms.Kuk(0.8, 0.2),
        mechanisms.Mangat(0.7),
        mechanisms.Coin(2, 0.5),
        mechanisms.Direct(2),
        mechanisms.ByRespondent([mechanisms.Crosswise(0.25), mechanisms.Crosswise(0.75)]),
        mechanisms.NegativeQuestion(4, 0.1),
        mechanisms.NonCompliance(coin, 0.1, [0.5, 0.5]),
        mechanisms.Geometric(10, 1.0),
        mechanisms.DiscreteSquareWave(10, 1.0),
        mechanisms.SquareWave(10, 1.0),
        mechanisms.Channel([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]),
    )
    rows = [
        "## Surveys, ordered values, any channel",
        "",
        "| class | law | ε of the example | likeliest estimate | tests |",
        "|---|---|---:|---|---|",
    ]
    for example in examples:
        kind = type(example)
        survey = issubclass(kind, mechanisms.Design)
        maximum = "`mle`, in closed form" if survey else '`ibu(…, accelerate="newton")`'
        file = "surveys" if survey else kind.__module__.rpartition(".")[2]
        epsilon = f"{float(np.asarray(example.epsilon)):.3g}"
        law = _law(kind).replace("|", "\\|")
        rows.append(f"| `{kind.__name__}` | {law} | {epsilon} | {maximum} | `tests/mechanisms/test_{file}.py` |")
    return [
        *rows,
        "",
        "`rrjax randomize --mechanism square-wave` writes reports of `DiscreteSquareWave`, `--mechanism geometric` "
        "those of `Geometric`, by clients in integers; `rrjax estimate` reads both ([numbers](guides/numbers.md)).",
    ]


def _two_samples() -> list[str]:
    rows = [
        "## Surveys in which some do not follow the rules",
        "",
        "Two samples with different parameters identify an unknown share of respondents who do not comply: "
        "`inference.compliance(counts, design)`, or `rrjax estimate --mechanism NAME --sample COLUMN=FIRST,SECOND`. "
        "Tests: `tests/inference/test_two_sample_designs.py`.",
        "",
        "| class | name | law | the share is |",
        "|---|---|---|---|",
    ]
    return (
        rows
        + [
            f"| `{kind.__name__}` | `{name}` | {_law(kind)} | {AMONG[kind.share]} |"
            for name, kind in mechanisms.TWO_SAMPLES.items()
            if issubclass(kind, mechanisms.Compliance)
        ]
        + [
            "",
            "Two samples also estimate both shares of an unrelated question whose share of a yes is not known: "
            "`UnrelatedQuestionTwoSamples` (`unrelated-question-two-samples`) with "
            "`inference.unrelated_question(counts, design)`, or the same flags. The samples are of different "
            "respondents. Tests: `tests/inference/test_two_sample_designs.py`.",
            "",
            "All estimates from two samples have a test that the answers fit the design, as they are (`fit_p_value`) "
            "and with the samples exchanged (`swapped_p_value`). Sizes and coverage: `validation/two_samples.py`. All "
            "take covariates: [regressions](models.md#a-sensitive-answer-that-depends-on-covariates).",
        ]
    )


def _parameters() -> list[str]:
    rows = [
        "## Parameters on the command line and in R",
        "",
        '`--mechanism NAME --parameter NAME=VALUE`, in Python `parameters={"NAME": VALUE}` or the arguments of the '
        "class. Numbers may be fractions such as 2/3. Parameters of several numbers take one for each answer "
        "(`forced=yes:1/6,no:1/6`) or, with two samples, one for each sample (`truth=0.8,0.4`).",
        "",
        "| name | parameters | of several numbers | RRreg |",
        "|---|---|---|---|",
    ]
    for name, entry in TABLE.items():
        if entry.parameters is not None:
            listed = ", ".join(f"`{each}`" for each in entry.parameters) or "–"
            several = ", ".join(f"`{each}`" for each in entry.vectors) or "–"
            rows.append(f"| `{name}` | {listed} | {several} | {f'`{IN_R[name]}`' if name in IN_R else '–'} |")
    return rows


def _error(mechanism: PureMechanism, epsilon: float) -> float:
    return mechanism.rates_by(math.expm1).total_variance(SIZE) / _bound(epsilon, SIZE)


def _bound(epsilon: float, size: int) -> float:
    return 4 * math.exp(epsilon) * size / math.expm1(epsilon) ** 2


if __name__ == "__main__":
    main()
