"""Tests whether two attributes of the same users are independent."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rrjax import inference
from rrjax.data.errors import for_commands, option, refusal
from rrjax.io.labels import as_domain
from rrjax.io.rows import Pairs, count_pairs
from rrjax.io.source import Source
from rrjax.reports import form
from rrjax.reports.contradictions import check_contradictions
from rrjax.reports.least_p_values import least_of_shuffles
from rrjax.reports.reading import check_round, in_float64, read_source
from rrjax.reports.reports import Reports
from rrjax.reports.separate_columns import SeparateColumns
from rrjax.reports.testing import UNSUSPICIOUS, Simulation, Test, check_size

if TYPE_CHECKING:
    from rrjax.io.domain import Domain
    from rrjax.io.labels import Labels
    from rrjax.io.metadata import Metadata
    from rrjax.io.source import Paths

MOST_PAIRS = 2**14
"""Limit of the number of pairs of categories, because the test is simulated."""


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
    if not isinstance(data, Reports | Source | str | os.PathLike | Sequence):
        problem = f"is reports of pairs, or files, not a {type(data).__name__}"
        raise refusal("data", f"{option('data')} {problem}", value=type(data).__name__)
    if not isinstance(data, Reports):
        return independence_of(paired(data if isinstance(data, Source) else Source(data), columns, domains), simulation)
    return independence_of(data, simulation, columns)


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
        _check(name, metadata, columns, (first, second))
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
        return dataclasses.replace(pairs, from_data=(False, False))  # the metadata have all categories
    if metadata is not None and metadata.round is not None:
        check_round(source, metadata)
    return count_pairs(source, (columns[0], columns[1]), (first, second))


def _check(name: str, metadata: Metadata, columns: Sequence[str], domains: Sequence[Any]) -> None:
    """Refuses columns and domains that contradict a file of pairs."""
    own = metadata.columns or ()
    if columns and tuple(columns) != own:
        named = option("columns", "--column")
        problem = f"contradicts {name}, which holds pairs of {' and '.join(map(repr, own))}; leave it out"
        raise refusal("columns", f"{named} {', '.join(columns)} {problem}", flag="--column", value=columns)
    _check_domains(name, metadata.domain.factors or (), domains)


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
        notes = [
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
