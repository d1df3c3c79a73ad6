"""Statistical tests: of fit, of equality and of a trend of collections, of independence."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rrjax import inference
from rrjax.data.errors import did_you_mean, for_commands, option, refusal
from rrjax.inference.marginal_tests import alike, num_tests_of
from rrjax.io.labels import as_domain, label_text
from rrjax.io.rows import Pairs, count_pairs
from rrjax.io.source import Source, copies, sources_in
from rrjax.reports import form
from rrjax.reports.comparison import read_truth, true_shares, with_source
from rrjax.reports.kind import Kind
from rrjax.reports.reading import check_round, in_float64, read_source
from rrjax.reports.reports import Reports
from rrjax.reports.reports import simulation as simulation_note
from rrjax.reports.separate_columns import SeparateColumns
from rrjax.reports.testing import (
    UNSUSPICIOUS,
    Outcome,
    Simulation,
    Test,
    check_contradictions,
    check_domains,
    check_size,
    label_of,
    least_of_any,
    least_of_fit,
    least_of_one,
    least_of_shuffles,
    least_of_tables,
)

if TYPE_CHECKING:
    from rrjax.io.domain import Domain
    from rrjax.io.labels import Labels
    from rrjax.io.source import Paths
    from rrjax.reports.comparison import Truth

MOST_PAIRS = 2**14
"""Limit of the number of pairs of categories, because the test is simulated."""


@in_float64
def fit_of(reports: Reports, theta: Truth | None, simulation: Simulation) -> Test:
    """See `Reports.test_fit`."""
    check_size(reports.num_reports)
    check_contradictions(reports)
    given: Any = with_source(theta)
    sources = sources_in(given)
    if theta is not None:
        read = partial(read_truth, counts=None, reports=reports, argument="theta")
        theta = true_shares(given, reports.counted.domain, read, "theta")
    if reports.tallied is not None:
        return Test([_of_tally(reports, theta, simulation)], simulation, [reports], sources=sources)
    simulation, notes = simulation.bounded(reports.num_categories)
    counts, key, arguments = (reports.counts, reports.epsilon), simulation.key, simulation.arguments
    pearson = inference.goodness_of_fit_test(key, *counts, theta, **arguments)
    if theta is None:
        outcome = simulation.outcome(
            "Can randomized response at this ε have made these reports, of any distribution?",
            pearson,
            "No: some categories are named less often than chance alone would name them. Is ε right, are reports "
            "missing, was another mechanism used?",
            f"{UNSUSPICIOUS} (An ε that is too large makes no category too rare, and is not noticed.)",
            least_of_any(reports),
        )
        return Test([outcome], simulation, [reports], notes)
    ratio, least = inference.likelihood_ratio_test(key, *counts, theta, **arguments), least_of_one(reports, theta)
    asked = "Do the users come from the given distribution?", "No: the users come from another distribution."
    looked = "Do the reports look like it?", "No."
    outcomes = [
        simulation.outcome(question, result, if_so, UNSUSPICIOUS, least)
        for (question, if_so), result in ((asked, ratio), (looked, pearson))
    ]
    return Test(outcomes, simulation, [reports], notes, sources=sources)


def _of_tally(reports: Reports, theta: np.ndarray | None, simulation: Simulation) -> Outcome:
    result = inference.goodness_of_fit_test(
        simulation.key, reports.tally(), theta=theta, mechanism=reports.mechanism, **simulation.arguments
    )
    label = label_of(reports, result)
    if theta is None:
        question = f"Can {reports.mechanism.name} have made these reports, of any distribution?"
        way = "fewer" if float(result.statistic) < 0 else "more"
        statement = f"{label} has {way} supporting reports than"
        if label is None:
            statement = "all categories together are farther from any distribution than"
        if_so = f"No: {statement} chance allows. {reports.possible_causes}"
    else:
        question = "Do the users come from the given distribution?"
        if_so = f"No: the users come from another distribution; most different is {label}."
    least = least_of_fit(reports, theta)
    return simulation.outcome(question, result, if_so, UNSUSPICIOUS, least, category=label, simulated=False)


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
    collections = _listed(collections)
    simulation, notes = _checked(collections, Simulation(significance, draws, seed))
    question = "Do the collections come from the same distribution?"
    if_not = "Nothing speaks against it (which does not show that they are equal)."
    if (data := _stacked(collections)) is not None:
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
    collections = _listed(collections)
    simulation, notes = _checked(collections, Simulation(significance, draws, seed))
    notes += _of_names(collections) if times is None else []
    when = None if times is None else _checked_times(times, len(collections))
    number = None
    if category is not None:
        labels, category = [str(label) for label in collections[0].labels], label_text(category)
        if category not in labels:
            known = collections[0].counted.domain.describe()
            problem = f"{category} is none of {known}{did_you_mean(category, labels)}"
            raise refusal("category", f"{option('category')} {problem}", value=category)
        number = labels.index(category)
    asked = "any share" if category is None else f"the share of {category}"
    question, if_not = f"Does {asked} move with time?", "The reports do not show it."
    facts = {"category": category, "times": None if times is None else list(times)}
    given = {"category": number, **simulation.arguments}
    if (data := _stacked(collections)) is not None:
        counts, epsilon = data
        result = inference.trend_test(simulation.key, counts, epsilon, when, **given)
        told = counts if number is None else _apart(counts[:, number], counts.sum(axis=1))
        if_so = f"Yes{'' if category is None else _way_of(result)}."
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
    return ", upwards" if float(result.statistic) > 0 else ", downwards"


def _apart(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Counts of one category and of all others, `[G, 2]`."""
    return np.stack([counts, totals - counts], axis=1)


def _stacked(collections: Sequence[Reports]) -> tuple[np.ndarray, Any] | None:
    """Counts and ε of randomized response, whose tests are of all categories together; None of other mechanisms."""
    if any(each.tallied is not None for each in collections):
        return None
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
    elif not all(hasattr(time, "__float__") and math.isfinite(time) for time in times):
        problem = f"must be finite numbers, such as years, got {', '.join(map(str, times))}"
    elif len(set(times)) == 1:
        problem = "has one value for all collections, so that nothing can move with it"
    if problem is not None:
        raise refusal("times", f"{option('times', '--time')} {problem}", flag="--time", value=times)
    return np.array(times, np.float64)


def _listed(collections: Any) -> list[Reports]:
    """The collections; of one alone a list of it, which is refused."""
    return cast("Any", [collections]) if isinstance(collections, Kind | str) else [*collections]


def _of_names(collections: Sequence[Reports]) -> list[str]:
    """A warning about files whose order in time is not that of a shell, where 10 comes before 2."""
    names = [each.source.files()[0] if each.source is not None else "" for each in collections]
    numbered = [[int(part) if part.isdigit() else part for part in re.split("([0-9]+)", name)] for name in names]
    if names != sorted(names) or numbered == sorted(numbered):
        return []
    place = next(place for place, each in enumerate(numbered[1:]) if each < numbered[place])
    first, second = (Path(name).name for name in names[place : place + 2])
    return [
        f"{second} comes after {first}, as in the order of a shell: if their numbers are times, give the collections "
        f"in that order, or {option('times', '--time')}."
    ]


def _checked(collections: Sequence[Reports], simulation: Simulation) -> tuple[Simulation, list[str]]:
    """The simulation, bounded for its time, and warnings; refuses collections that cannot be compared."""
    notes = check_alike(collections)
    bounded: list[str] = []
    if _stacked(collections) is not None:  # of tallies one category is simulated at most
        simulation, bounded = simulation.bounded(len(collections) * collections[0].num_categories)
    return simulation, [*bounded, *notes]


def check_alike(collections: Sequence[Reports]) -> list[str]:
    """Warnings about collections that depend on each other; refuses those that cannot be compared."""
    odd = next((each for each in collections if not isinstance(each, Reports)), None)
    if odd is not None:
        what = odd.called_kind if isinstance(odd, Kind) else f"a {type(odd).__name__}"
        problem = f"are reports of one column each, as rrjax.read makes of a file, and one is {what}"
        raise refusal("collections", f"{option('collections', 'REPORTS')} {problem}", flag="REPORTS", value=odd)
    if len(collections) < 2:
        each = for_commands(", each a file of reports, or a glob in quotes")
        raise refusal("collections", f"give two collections or more{each}", flag="REPORTS", value=len(collections))
    check_domains(collections)
    check_size(sum(each.num_reports for each in collections))
    for each in collections:
        check_contradictions(each)
    notes: list[str] = []
    if sum(bool(each.counted.metadata and each.counted.metadata.round) for each in collections) > 1:
        notes.append(
            "Reports of the same users in several rounds depend on each other, and this test assumes that they do not: "
            "it finds a difference less often than it could."
        )
    files = [file for each in collections if each.source is not None for file in each.source.files()]
    notes += [
        f"{Path(file).name} is given more than once: its reports are compared with themselves."
        if os.path.samefile(first, file)
        else f"{first} and {file} hold the same rows in the same order: are they copies? Then reports are compared "
        "with themselves."
        for first, file in copies(files)
    ]
    return notes


def test_independence(
    data: Reports | SeparateColumns | Paths | Source,
    columns: Sequence[str] = (),
    domains: Sequence[Labels | None] = (),
    *,
    significance: float = 0.05,
    draws: int | None = None,
    seed: int = 0,
) -> Test:
    """Tests whether two attributes of the same users are independent.

    Reports that were randomized separately are independent exactly if the values are, so no ε is needed for them; that
    holds for answers to survey designs too.

    Args:
        data: Reports of pairs that were randomized as one value; or files of them; or files of two columns that were
            randomized separately.
        columns: The names of the two columns; files of pairs name their own.
        domains: The categories of each; none are those in the data or the metadata.
        significance: The hypothesis is rejected where the p-value is at most this.
        draws: Number of simulated collections; None is 9999, or as many as take about ten seconds.
        seed: Seed of the simulation.

    Returns:
        `Test`, computed in float64 by `rrjax.inference.independence_test`.

    Raises:
        DataError: A file, a column or a row that cannot be used.
        ArgumentError: Columns or domains that contradict the data, or a significance or draws that tell nothing.

    Example:
        >>> import rrjax
        >>> from rrjax.io.domain import Domain
        >>> answers = Domain.of(["no", "yes"])
        >>> pairs = rrjax.Reports.of_counts([500, 150, 150, 200], 2.0, Domain.product(answers, answers))
        >>> rrjax.reports.test_independence(pairs, ["smokes", "drinks"], draws=999).outcomes[0].answer
        'No: they go together.'
    """
    simulation = Simulation(significance, draws, seed)
    if isinstance(data, SeparateColumns):
        data = data.source
    if isinstance(data, Reports):
        return independence_of(data, simulation, columns)
    if not isinstance(data, Source | str | os.PathLike | Sequence):
        problem = f"is reports of pairs, or files, not a {type(data).__name__}"
        raise refusal("data", f"{option('data')} {problem}", value=type(data).__name__)
    source, known = data if isinstance(data, Source) else Source(data), [as_domain(domain) for domain in domains]
    test = independence_of(paired(source, columns, known), simulation)
    labels = [each for domain in known if domain is not None for each in domain.sources]
    return dataclasses.replace(test, sources=[source, *labels])


def paired(source: Source, columns: Sequence[str] = (), domains: Sequence[Labels | None] = ()) -> Reports | Pairs:
    """Reads the reports of two attributes, which were randomized as one value or separately."""
    named, name = option("columns", "--column"), source.files()[0]
    twice = for_commands(": give it twice")
    if columns and (len(columns) != 2 or columns[0] == columns[1]):
        problem = f"must name two columns, one for each attribute{twice}; got {', '.join(columns)}"
        raise refusal("columns", f"{named} {problem}", flag="--column", value=columns)
    if domains and len(domains) != 2:
        problem = f"must be two, in the order of the columns, or none{twice}"
        raise refusal("domains", f"{option('domains', '--domain')} {problem}", flag="--domain", value=domains)
    first, second = [as_domain(domain) for domain in domains or (None, None)]
    apart = source.columns()
    metadata = None if len(apart) > 1 else source.metadata()
    if metadata is not None and metadata.columns is not None:
        if columns and tuple(columns) != metadata.columns:
            own = " and ".join(map(repr, metadata.columns))
            problem = f"contradicts {name}, which holds pairs of {own}; leave it out"
            raise refusal("columns", f"{named} {', '.join(columns)} {problem}", flag="--column", value=columns)
        _check_domains(name, metadata.domain.factors or (), (first, second))
        return read_source(source, None, None)
    if not columns:
        problem = (
            f"is missing: {name} is no file of pairs, as `rrjax randomize` makes of two columns, so two columns are to "
            f"be named{twice}"
        )
        raise refusal("columns", f"{named} {problem}", flag="--column")
    if len(apart) > 1:
        lacking = next((each for each in columns if each not in apart), None)
        if lacking is not None:
            problem = f"{lacking}: {name} has reports in {', '.join(map(repr, apart))}"
            raise refusal("columns", f"{named} {problem}", flag="--column", value=lacking)
        own = [apart[each].domain for each in columns]
        _check_domains(name, own, (first, second))
        pairs = count_pairs(source, (columns[0], columns[1]), (own[0], own[1]))
        simulated = any(apart[each].simulated for each in columns)
        # The metadata have all categories.
        return dataclasses.replace(pairs, from_data=(False, False), simulated=simulated)
    if metadata is not None and metadata.round is not None:
        check_round(source, metadata)
    return count_pairs(source, (columns[0], columns[1]), (first, second))


def _check_domains(name: str, own: Sequence[Domain], domains: Sequence[Domain | None]) -> None:
    """Refuses domains that are not those of the file."""
    for known, given in zip(own, domains, strict=True):
        if given not in (None, known):
            problem = (
                f"contradicts {name}, which was collected with the domain {known.describe()}, not {given.describe()}; "
                "leave it out"
            )
            raise refusal("domains", f"{option('domains', '--domain')} {problem}", flag="--domain", value=given)


@in_float64
def independence_of(data: Reports | Pairs, simulation: Simulation, columns: Sequence[str] = ()) -> Test:
    """See `test_independence`; `columns` name the attributes of reports of pairs that do not name them."""
    epsilon, reports, notes, more, about = None, [], [], {}, ""
    if isinstance(data, Pairs):
        columns, counts, number = data.columns, data.counts, int(data.counts.sum())
        notes = simulation_note(data.simulated)
        notes += [
            f"The categories of {name!r} were taken from the data; {option('domains', '--domain')} names them."
            for name, from_data in zip(columns, data.from_data, strict=True)
            if from_data
        ]
        users = form.number(number, "user", "users")
        both = (
            f"{name!r} ({form.number(size, 'category', 'categories')})"
            for name, size in zip(columns, counts.shape, strict=True)
        )
        missing = form.number(data.num_missing, "row without is", "rows without are")
        about = f"{users} with reports in both {' and '.join(both)}; {missing} left out"
        more = {"num_reports": number, "num_missing": data.num_missing}
    else:
        data.check_counts("a test of pairs")
        factors, metadata = data.counted.domain.factors, data.counted.metadata
        if factors is None:
            raise refusal("data", f"{data.name} holds no pairs, but one attribute", flag="REPORTS")
        columns = (metadata and metadata.columns) or columns or ("the first attribute", "the second")
        counts = data.counts.reshape([factor.num_categories for factor in factors])
        if counts.size > MOST_PAIRS:
            raise refusal(
                "data",
                f"the test is simulated, of at most {MOST_PAIRS:,} pairs of categories; these are "
                f"{' × '.join(f'{size:,}' for size in counts.shape)}: coarser categories are needed",
                flag="REPORTS",
                value=counts.size,
            )
        check_contradictions(data)
        epsilon, reports = data.epsilon, [data]
    check_size(int(counts.sum()))
    simulation, bounded = simulation.bounded(counts.size)
    try:
        result = inference.independence_test(simulation.key, counts, epsilon, **simulation.arguments)
    except ValueError as error:
        raise refusal("columns", f"{option('columns', '--column')}: {error}", flag="--column") from error
    question, if_so = f"Are {columns[0]} and {columns[1]} independent?", "No: they go together."
    outcome = simulation.outcome(question, result, if_so, UNSUSPICIOUS, least_of_shuffles(counts))
    more |= {"columns": list(columns), "num_categories": list(counts.shape)}
    return Test([outcome], simulation, reports, bounded + notes, about, more)
