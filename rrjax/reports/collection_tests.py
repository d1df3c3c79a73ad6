"""Tests whether several collections come from one distribution, and whether shares rise or fall over them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from rrjax import inference
from rrjax.data.errors import did_you_mean, for_commands, option, refusal
from rrjax.inference.marginal_tests import alike, num_tests_of
from rrjax.io.source import copies
from rrjax.reports import form
from rrjax.reports.contradictions import check_contradictions
from rrjax.reports.kind import Kind
from rrjax.reports.least_p_values import least_of_shuffles, least_of_tables
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import Reports
from rrjax.reports.testing import Simulation, Test, check_size, label_of, names_of


@in_float64
def test_equal(
    collections: Sequence[Reports], *, significance: float = 0.05, draws: int | None = None, seed: int = 0
) -> Test:
    """Tests whether collections come from the same distribution. Their ε, and their mechanisms, may differ.

    Args:
        collections: Two or more, of the same categories.
        significance: The hypothesis is rejected where the p-value is at most this.
        draws: Number of simulated collections; None is 9999, or as many as take about ten seconds.
        seed: Seed of the simulation.

    Returns:
        `Test`, computed in float64 by `rrjax.inference.equality_test`.

    Raises:
        ArgumentError: Collections of different categories, or a significance or a number of draws that tells nothing.

    Example:
        >>> import rrjax
        >>> last_year = rrjax.Reports.of_counts([520, 290, 190], 2.0)
        >>> this_year = rrjax.Reports.of_counts([440, 350, 210], 1.5)
        >>> rrjax.reports.test_equal([last_year, this_year], draws=999).outcomes[0].rejected
        True
    """
    simulation, notes = _checked(collections, Simulation(significance, draws, seed))
    question = "Do the collections come from the same distribution?"
    if_not = "Nothing speaks against it (which does not show that they are equal)."
    if _all_counts(collections):
        data = _stacked(collections)
        result = inference.equality_test(simulation.key, *data, **simulation.arguments)
        outcome = simulation.outcome(question, result, "No: they differ.", if_not, least_of_shuffles(*data))
        return Test([outcome], simulation, list(collections), notes)
    tallies = [each.tally() for each in collections]
    result = inference.equality_test(simulation.key, tallies, **simulation.arguments)
    label = label_of(collections[0], result)
    if_so, more = f"No: they differ, most in {label}.", {"category": label, "simulated": False}
    outcome = simulation.outcome(question, result, if_so, if_not, least_of_tables(tallies), **more)
    return Test([outcome], simulation, list(collections), notes)


@in_float64
def test_trend(
    collections: Sequence[Reports],
    times: Sequence[float] | None = None,
    category: str | int | None = None,
    *,
    significance: float = 0.05,
    draws: int | None = None,
    seed: int = 0,
) -> Test:
    """Tests whether shares rise or fall over collections in their order.

    Args:
        collections: Two or more, of the same categories.
        times: When each was collected; None is 0, 1, ….
        category: The label of one category; None for all.
        significance: As for `test_equal`.
        draws: As for `test_equal`.
        seed: As for `test_equal`.

    Returns:
        `Test`, computed in float64 by `rrjax.inference.trend_test`.

    Raises:
        ArgumentError: As for `test_equal`; or times that are no order, or a category that is none.

    Example:
        >>> import rrjax
        >>> years = [rrjax.Reports.of_counts([yes, 1000 - yes], 1.0, ["yes", "no"]) for yes in (440, 470, 530)]
        >>> rrjax.reports.test_trend(years, category="yes", draws=999).outcomes[0].answer
        'Yes, upwards.'
    """
    simulation, notes = _checked(collections, Simulation(significance, draws, seed))
    when = None if times is None else _checked_times(times, len(collections))
    number = None if category is None else _number_of(category, collections[0])
    asked = "any share" if category is None else f"the share of {category}"
    question, if_not = f"Does {asked} move with time?", "The reports do not show it."
    facts = {"category": None if category is None else str(category), "times": None if times is None else list(times)}
    given = {"category": number, **simulation.arguments}
    if _all_counts(collections):
        counts, epsilon = _stacked(collections)
        result = inference.trend_test(simulation.key, counts, epsilon, when, **given)
        told = counts if number is None else _apart(counts[:, number], counts.sum(axis=1))
        if_so = "Yes." if category is None else f"Yes{_way_of(result)}."
        outcome = simulation.outcome(question, result, if_so, if_not, least_of_shuffles(told, epsilon))
        return Test([outcome], simulation, list(collections), notes, more=facts)
    tallies = [each.tally() for each in collections]
    tests = 1 if number is not None else int(num_tests_of(tallies))
    simulation.check_draws(tests)
    result = inference.trend_test(simulation.key, tallies, None, when, **given)
    label = facts["category"] if number is not None else label_of(collections[0], result)
    most = "" if number is not None else f", most of all {label}"
    sizes = np.array([each.num_reports for each in collections])
    least = math.log(tests) + (least_of_shuffles(_apart(sizes // 2, sizes)) if alike(tallies) else -math.inf)
    if_so = f"Yes{most}{_way_of(result)}."
    outcome = simulation.outcome(question, result, if_so, if_not, least, category=label)
    return Test([outcome], simulation, list(collections), notes, more=facts)


def _way_of(result: inference.HypothesisTest) -> str:
    """The direction of a trend."""
    return ", upwards" if float(result.statistic) > 0 else ", downwards"


def _apart(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Counts of one category and of all others, `[G, 2]`."""
    return np.stack([counts, totals - counts], axis=1)


def _all_counts(collections: Sequence[Reports]) -> bool:
    """Whether all collections are of randomized response, whose tests are of all categories together."""
    return all(each.tallied is None for each in collections)


def _stacked(collections: Sequence[Reports]) -> tuple[np.ndarray, Any]:
    epsilons = np.array([each.epsilon for each in collections])
    # With one ε for all, no further randomization is needed.
    epsilon = float(epsilons[0]) if (epsilons == epsilons[0]).all() else epsilons
    return np.stack([each.counts for each in collections]), epsilon


def _checked_times(times: Sequence[float], number: int) -> np.ndarray:
    """Refuses times that are not one for each collection, finite and different."""
    problem = None
    if len(times) != number:
        given = form.number(len(times), "time", "times")
        problem = f"was given {given} for {number} collections; give it once for each"
    elif not all(math.isfinite(time) for time in times):
        problem = f"must be finite numbers, got {', '.join(f'{time:g}' for time in times)}"
    elif len(set(times)) == 1:
        problem = "has one value for all collections, so that nothing can move with it"
    if problem is not None:
        raise refusal("times", f"{option('times', '--time')} {problem}", flag="--time", value=times)
    return np.array(times, np.float64)


def _number_of(category: str | int, reports: Reports) -> int:
    """The number of the category with a label."""
    labels = [str(label) for label in reports.labels]
    if str(category) not in labels:
        hint = did_you_mean(str(category), labels)
        problem = f"{category} is none of {reports.counted.domain.describe()}{hint}"
        raise refusal("category", f"{option('category')} {problem}", value=category)
    return labels.index(str(category))


def _checked(collections: Sequence[Reports], simulation: Simulation) -> tuple[Simulation, list[str]]:
    """The simulation, bounded for its time, and warnings; refuses collections that cannot be compared."""
    if isinstance(alone := collections, Kind | str):
        collections = cast("list[Reports]", [alone])
    odd = next((each for each in collections if not isinstance(each, Reports)), None)
    if odd is not None:
        what = odd.called_kind if isinstance(odd, Kind) else f"a {type(odd).__name__}"
        problem = f"are reports of one column each, as rrjax.read makes of a file, and one is {what}"
        raise refusal("collections", f"{option('collections', 'REPORTS')} {problem}", flag="REPORTS", value=odd)
    if len(collections) < 2:
        each = for_commands(", each a file of reports, or a glob in quotes")
        raise refusal("collections", f"give two collections or more{each}", flag="REPORTS", value=len(collections))
    names, first = names_of(collections), collections[0].counted.domain
    for name, other in zip(names, collections, strict=True):
        if other.counted.domain != first:
            more = for_commands(
                ", which holds for all files; those of `rrjax randomize` carry their own: randomize all with the same "
                "--domain"
            )
            raise refusal(
                "domain",
                "collections must be of the same categories: "
                f"{first.difference(other.counted.domain, names[0], name)}. Give {option('domain')}{more}",
            )
    check_size(sum(each.num_reports for each in collections))
    for each in collections:
        check_contradictions(each)
    notes: list[str] = []
    if _all_counts(collections):  # of tallies one category is simulated at most
        simulation, notes = simulation.bounded(len(collections) * first.num_categories)
    if sum(bool(each.counted.metadata and each.counted.metadata.round) for each in collections) > 1:
        notes.append(
            "Reports of the same users in several rounds depend on each other, and this test assumes that they do not: "
            "it finds a difference less often than it could."
        )
    return simulation, notes + _repeated(collections)


def _repeated(collections: Sequence[Reports]) -> list[str]:
    """Warnings about files that are given more than once, or are copies."""
    files = [file for each in collections if each.source is not None for file in each.source.files()]
    return [
        f"{Path(file).name} is given more than once: its reports are compared with themselves."
        if os.path.samefile(first, file)
        else f"{first} and {file} hold the same rows in the same order: are they copies? Then reports are compared "
        "with themselves."
        for first, file in copies(files)
    ]
