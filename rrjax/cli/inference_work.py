"""What `rrjax test` and `rrjax plan` do, without a word on the terminal."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rrjax import inference, io
from rrjax.cli import work
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.work import Collection, Reading, UsageError

MOST_DRAWS = 10_000_000
MOST_USERS = 10**15
"""More than there are people, and exact in float64."""


@dataclasses.dataclass(frozen=True)
class Draws:
    """How a test is simulated, and what its p-value is compared with."""

    number: int
    level: float
    seed: int

    @property
    def key(self) -> jax.Array:
        """Of the random numbers."""
        return jax.random.key(self.seed)

    @property
    def options(self) -> dict[str, Any]:
        """For the functions of `rrjax.inference`."""
        return {"num_draws": self.number, "level": self.level}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One test that was done: the question, the result, and the answer in words."""

    question: str
    statistic: float
    p_value: float
    standard_error: float
    method: str
    rejected: bool
    answer: str


def check_draws(draws: Draws) -> None:
    """Refuses a level that is none, and too few draws for it."""
    work.check_rate("--significance", draws.level, small=True)
    if draws.level > 0.5:
        raise UsageError(
            f"--significance {draws.level:g} is the chance to be wrong where there is nothing, so it is small; did you "
            f"mean {1 - draws.level:g}?"
        )
    if draws.level < 1 / MOST_DRAWS:
        raise UsageError(f"--significance {draws.level:g} is below what {MOST_DRAWS:,} draws can tell")
    if draws.number > MOST_DRAWS:
        raise UsageError(f"--draws must be at most {MOST_DRAWS:,}, got {draws.number:,}")
    least = math.ceil(1 / draws.level) - 1
    if draws.number < least:
        raise UsageError(
            f"--draws {draws.number} is too few for --significance {draws.level:g}: the least p-value would be "
            f"{1 / (max(draws.number, 0) + 1):.2g}; take at least {least}"
        )


def _verdict(question: str, result: inference.HypothesisTest, draws: Draws, if_so: str, if_not: str) -> Verdict:
    p_value = float(result.p_value)
    if math.isnan(p_value):
        raise io.DataError("the test came out as NaN: these counts are beyond what it can compute")
    rejected = p_value <= draws.level
    return Verdict(
        question,
        float(result.statistic),
        p_value,
        float(result.standard_error),
        result.method,
        rejected,
        if_so if rejected else if_not,
    )


@ending_at_once()
def fits_any(collection: Collection, draws: Draws) -> Verdict:
    """Whether the reports can come from randomized response at this ε at all."""
    result = inference.goodness_of_fit_test(draws.key, collection.counted.counts, collection.epsilon, **draws.options)
    return _verdict(
        "Can randomized response at this ε have made these reports, of any distribution?",
        result,
        draws,
        "No: some categories are named less often than chance alone would name them. Is ε right, are reports missing, "
        "was another mechanism used?",
        "Nothing speaks against it.",
    )


@ending_at_once()
def fits(collection: Collection, theta: np.ndarray, draws: Draws) -> list[Verdict]:
    """Whether the users come from a given distribution."""
    counts, epsilon = collection.counted.counts, collection.epsilon
    if_so, if_not = "No: the users come from another distribution.", "Nothing speaks against it."
    ratio = inference.likelihood_ratio_test(draws.key, counts, epsilon, theta, **draws.options)
    pearson = inference.goodness_of_fit_test(draws.key, counts, epsilon, theta, **draws.options)
    question = "Do the users come from the given distribution?"
    return [
        _verdict(question, ratio, draws, if_so, if_not),
        _verdict("Do the reports look like it?", pearson, draws, "No.", if_not),
    ]


def collect_all(readings: Sequence[Reading], epsilons: Sequence[float]) -> list[Collection]:
    """Counts several collections, which must be of one domain."""
    if len(readings) < 2:
        raise UsageError("give two files of reports or more, one for each collection")
    if len(epsilons) not in (0, 1, len(readings)):
        raise UsageError(
            f"--epsilon was given {len(epsilons)} times for {len(readings)} collections; give it once, or once for each"
        )
    given = list(epsilons) * (len(readings) if len(epsilons) == 1 else 1) or [None] * len(readings)
    collections = [work.collect(reading, epsilon) for reading, epsilon in zip(readings, given, strict=True)]
    first, name = collections[0].counted.domain, Path(readings[0].paths[0]).name
    for reading, collection in zip(readings, collections, strict=True):
        check_size(collection.num_reports)
        if collection.counted.domain != first:
            difference = _difference(first, collection.counted.domain, name, Path(reading.paths[0]).name)
            raise UsageError(f"collections must be of the same categories: {difference}")
    check_size(sum(collection.num_reports for collection in collections))
    return collections


def _difference(first: io.Domain, second: io.Domain, name: str, other: str) -> str:
    """Where two domains differ, and what to do."""
    hint = "Give --domain, which holds for all files, or for Parquet of rrjax collect them with one domain"
    if first.num_categories != second.num_categories:
        return f"{name} has {first.describe()}, {other} has {second.describe()}. {hint}"
    labels = [str(label) for label in first.labels()], [str(label) for label in second.labels()]
    only = sorted(set(labels[1]) - set(labels[0]))
    if only:
        return f"{only[0]!r} is a category of {other} and not of {name}. {hint}"
    place = next(index for index, (a, b) in enumerate(zip(*labels, strict=True)) if a != b)
    return (
        f"{name} and {other} have the same labels in another order (at place {place + 1}: {labels[0][place]!r} and "
        f"{labels[1][place]!r}). {hint}"
    )


def check_size(number: int) -> None:
    """Refuses more reports than tests can simulate."""
    if number >= 2**31:
        raise UsageError(f"tests are simulated, of at most 2,147,483,647 reports in all; these are {number:,}")


def names(readings: Sequence[Reading]) -> list[str]:
    """What to call the files of several collections."""
    return [", ".join(Path(path).name for path in reading.paths) for reading in readings]


def repeated(readings: Sequence[Reading]) -> list[str]:
    """Warnings of files that are given more than once."""
    seen: set[str] = set()
    twice = []
    for reading in readings:
        for file in reading.source().files():
            real = os.path.realpath(file)
            if real in seen:
                twice.append(f"{Path(file).name} is given more than once: its reports are compared with themselves.")
            seen.add(real)
    return twice


def _stacked(collections: Sequence[Collection]) -> tuple[np.ndarray, Any]:
    epsilons = np.array([collection.epsilon for collection in collections])
    # One ε for all spares the further randomization, and its compilation.
    epsilon = float(epsilons[0]) if (epsilons == epsilons[0]).all() else epsilons
    return np.stack([collection.counted.counts for collection in collections]), epsilon


@ending_at_once()
def equal(collections: Sequence[Collection], draws: Draws) -> Verdict:
    """Whether collections come from one distribution."""
    counts, epsilon = _stacked(collections)
    result = inference.equality_test(draws.key, counts, epsilon, **draws.options)
    return _verdict(
        "Do the collections come from the same distribution?",
        result,
        draws,
        "No: they differ.",
        "Nothing speaks against it (which does not show that they are equal).",
    )


@ending_at_once()
def trend(collections: Sequence[Collection], times: Sequence[float], category: str | None, draws: Draws) -> Verdict:
    """Whether shares move in one direction over collections."""
    if times and len(times) != len(collections):
        raise UsageError(f"--time was given {len(times)} times for {len(collections)} collections")
    if not all(math.isfinite(time) for time in times):
        raise UsageError(f"--time must be finite numbers, got {', '.join(f'{time:g}' for time in times)}")
    if times and len(set(times)) == 1:
        raise UsageError("--time: all are the same, so there is nothing to go by")
    number = None
    if category is not None:
        labels = [str(label) for label in collections[0].counted.domain.labels()]
        if category not in labels:
            near = get_close_matches(category, labels, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"--category {category} is none of {collections[0].counted.domain.describe()}{hint}")
        number = labels.index(category)
    counts, epsilon = _stacked(collections)
    result = inference.trend_test(
        draws.key, counts, epsilon, np.array(times) if times else None, category=number, **draws.options
    )
    who = "any share" if category is None else f"the share of {category}"
    way = "" if category is None else ", upwards" if float(result.statistic) > 0 else ", downwards"
    return _verdict(f"Does {who} move with time?", result, draws, f"Yes{way}.", "The reports do not show it.")


@ending_at_once()
def independent(pairs: io.Pairs, draws: Draws) -> Verdict:
    """Whether two attributes are independent."""
    try:
        result = inference.independence_test(draws.key, pairs.counts, **draws.options)
    except ValueError as error:
        raise UsageError(f"--column: {error}") from error
    first, second = pairs.columns
    return _verdict(
        f"Are {first} and {second} independent?",
        result,
        draws,
        "No: they go together.",
        "Nothing speaks against it.",
    )


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a collection would know."""

    num_categories: int
    epsilon: float
    num_users: int
    solved: str
    """Which of users, epsilon and target was asked for."""
    target_rmse: float | None
    target_width: float | None
    rmse: float
    level: float
    width: float
    """Of the interval of a category that nobody holds."""
    share: float
    share_width: float
    """Of the interval of a category with that share."""
    detectable: float
    """Found with 80 % power by a p-value at 0.05."""
    detectable_among_all: float
    """The same at 0.05 ÷ K."""
    mechanisms: list[inference.MechanismErrors]


@ending_at_once()
def plan(
    categories: int,
    epsilon: float | None,
    users: int | None,
    rmse: float | None,
    width: float | None,
    share: float,
    level: float,
) -> Plan:
    """Solves for whichever of ε, N and target was left out."""
    work.check_rate("--level", level)
    if not 2 <= categories < 2**31:
        raise UsageError(f"--categories must be from 2 to 2147483647, got {_short(categories)}")
    if epsilon is not None:
        work.check_epsilon(epsilon)
    if users is not None and not 1 <= users <= MOST_USERS:
        raise UsageError(f"--users must be at least 1 and at most {MOST_USERS:,}, got {_short(users)}")
    for flag, value in (("--target-rmse", rmse), ("--target-width", width)):
        if value is not None:
            work.check_rate(flag, value)
    if not 0 <= share <= 1:
        raise UsageError(f"--share must lie between 0 and 1, got {share:g}")
    if rmse is not None and width is not None:
        raise UsageError("--target-rmse and --target-width are two targets; give one")
    targets = rmse is not None or width is not None
    if (epsilon is not None) + (users is not None) + targets != 2:
        raise UsageError(
            "give two of --epsilon, --users and a target (--target-rmse or --target-width); the third is computed"
        )
    number, solved = float(users or 1), "target"
    if epsilon is not None and users is None:
        solved = "users"
        if width is not None:
            number = float(inference.users_for_width(categories, epsilon, width, share, level=level))
        elif rmse is not None:
            number = float(inference.users_for_error(categories, epsilon, rmse))
        number = max(number, 1.0)
        if not number <= MOST_USERS:
            raise UsageError(f"the target takes more than {MOST_USERS:,} users: widen it, or raise ε")
    elif epsilon is None:
        solved, epsilon = "epsilon", math.inf
        if width is not None:
            epsilon = _epsilon_for_width(categories, number, width, share, level)
        elif rmse is not None:
            epsilon = float(inference.epsilon_for_error(categories, number, rmse))
        if epsilon > work.LARGEST_EPSILON:
            raise UsageError(
                f"with {number:,.0f} users no ε reaches the target: it takes more of them, or a wider target"
            )
        if epsilon < work.SMALLEST_EPSILON:
            raise UsageError(f"with {number:,.0f} users any ε down to {work.SMALLEST_EPSILON:g} reaches the target")
    return Plan(
        categories,
        float(epsilon),
        round(number),
        solved,
        rmse,
        width,
        float(inference.expected_rmse(categories, number, epsilon)),
        level,
        float(inference.expected_width(categories, number, epsilon, level=level)),
        share,
        float(inference.expected_width(categories, number, epsilon, share, level=level)),
        float(inference.detectable_share(categories, number, epsilon)),
        float(inference.detectable_share(categories, number, epsilon, level=0.05 / categories)),
        inference.compare_mechanisms(categories, max(round(number), 1), epsilon),
    )


def _short(number: int) -> str:
    return f"{number:,}" if abs(number) < 10**18 else "a number of more than 18 digits"


def _epsilon_for_width(categories: int, number: float, width: float, share: float, level: float) -> float:
    """The smallest ε with which an interval is so narrow; infinite where none is."""
    low, high = work.SMALLEST_EPSILON, 2 * work.LARGEST_EPSILON

    def narrow(epsilon: float) -> bool:
        return float(inference.expected_width(categories, number, epsilon, share, level=level)) <= width

    if not narrow(high):
        return math.inf
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if narrow(middle) else (middle, high)
    return high
