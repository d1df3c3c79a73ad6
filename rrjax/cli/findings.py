"""The contents of a page of `rrjax report`: estimates, intervals, a test of fit, bands of ordered categories."""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial

import jax.numpy as jnp
import numpy as np

from rrjax import inference, io
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Asked
from rrjax.data.errors import ArgumentError, UsageError
from rrjax.data.tally import Tally
from rrjax.figures.html import round_step
from rrjax.inference.functionals import group_rates
from rrjax.io.domain import Domain
from rrjax.reports import form
from rrjax.reports.estimates import Estimate, ShareIntervals, estimated, largest_of, share_intervals, side_by_side
from rrjax.reports.reports import Reports
from rrjax.reports.shares import leading
from rrjax.reports.statements import Statements
from rrjax.reports.testing import USUAL_DRAWS, Test

MOST_SINGLE = 120
"""Limit of the number of ordered categories that are drawn one by one; more are drawn in bands."""
NUM_BANDS = 40
MOST_FIT_CELLS = 20_000_000
"""Limit of categories × draws of a test of fit in a page: about a second."""
FEWEST_FIT_DRAWS = 199


@dataclasses.dataclass(frozen=True)
class Bands:
    """Bands of ordered categories: the estimated share of each band, and exact simultaneous intervals.

    The intervals are None for mechanisms other than randomized response.
    """

    edges: np.ndarray
    """`[n + 1]`, the first category of each band, and K."""
    values: np.ndarray
    limits: tuple[np.ndarray, np.ndarray] | None


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything that the page shows."""

    collection: Reports
    estimates: list[Estimate]
    intervals: ShareIntervals
    """Simultaneous intervals, because the page lists the largest categories."""
    fit: Test | str
    """A test of fit, or the reason why there is none."""
    detectable: tuple[float, float]
    """Shares that are detected with probability 0.8: of a category chosen beforehand, and of any.

    Of a survey with a known yes, both are of the yes. Else, if rates differ by category, of the noisiest one.
    """
    statements: Statements | None
    """Means, quantiles and groups, if any were asked for."""
    top: int
    ordered: bool

    @property
    def found(self) -> Estimate:
        """The leading estimate."""
        return self.estimates[0]

    @cached_property
    def largest(self) -> np.ndarray:
        """Numbers of the listed categories."""
        return largest_of(self.found.theta, self.top)

    @property
    def num_found(self) -> int:
        """Number of categories that are significantly above zero."""
        return int(self.intervals.discovered.sum())

    @property
    def misfit(self) -> bool:
        """Whether the reports hardly fit their mechanism."""
        return isinstance(self.fit, Test) and self.fit.outcomes[0].p_value <= 0.01

    @property
    def flat(self) -> bool:
        """Whether no category is significant, and the intervals of all hold equal shares."""
        equal = 1 / self.collection.num_categories
        inside = (self.intervals.lower <= equal) & (equal <= self.intervals.upper)
        return not self.num_found and bool(inside.all())

    @cached_property
    def bands(self) -> Bands:
        """Bands, for more ordered categories than are drawn one by one."""
        return _bands(self.collection, self.intervals.level)


def find(collection: Reports, asked: Asked, level: float, top: int, ordered: bool) -> Findings:
    """Computes the contents of the page."""
    statements = None
    if asked.any():
        with ending_at_once():
            statements = collection.statements(**asked.given, level=level, top=top)
    tasks = [partial(estimated, collection, name) for name in leading(collection, ordered)]
    more = [
        partial(share_intervals, collection, level, at_once=True),
        partial(fit_of, collection),
        partial(_detectable, collection),
    ]
    *estimates, intervals, fit, detectable = side_by_side([*tasks, *more])
    return Findings(collection, estimates, intervals, fit, detectable, statements, top, ordered)


def fit_of(collection: Reports) -> Test | str:
    """Tests whether the mechanism at this ε can have made the reports; a text says why there is no test."""
    draws = USUAL_DRAWS
    if collection.tallied is None:
        draws = min(draws, MOST_FIT_CELLS // collection.num_categories)
    if draws < FEWEST_FIT_DRAWS:
        return (
            "There is no test of fit here, because its simulation takes long for "
            f"{collection.num_categories:,} categories; `rrjax test fit` makes it."
        )
    try:
        return collection.test_fit(draws=draws)
    except (ArgumentError, UsageError, io.DataError) as error:
        return form.sentence(f"There is no test of fit of these reports: {error}")


@ending_at_once()
def _detectable(collection: Reports) -> tuple[float, float]:
    size, number = collection.num_categories, collection.num_reports

    def share(level: float) -> float:
        given = {"level": level, "mechanism": lambda size, epsilon: collection.mechanism, "category": collection.yes}
        return float(inference.detectable_share(size, number, collection.epsilon, **given))

    # Of two categories at most one is empty, so no test of both is needed.
    return share(0.05), share(0.05 / size if size > 2 else 0.05)


@ending_at_once()
def _bands(collection: Reports, level: float) -> Bands:
    edges = _edges(collection.counted.domain)
    sizes, number, rates = np.diff(edges), collection.num_reports, collection.rates
    support = np.add.reduceat(np.asarray(collection.counts, np.int64), edges[:-1])
    values = np.clip((support / number - sizes * rates.q) / rates.d, 0, 1)
    if collection.tallied is not None:
        return Bands(edges, values, None)
    # Bands of one size have equal rates, which are arguments: one compiled program serves bands of all sizes.
    lower, upper = np.zeros(len(sizes)), np.zeros(len(sizes))
    for size in np.unique(sizes):
        tally = Tally(
            jnp.asarray(support), jnp.asarray(number), rates=group_rates(collection.mechanism.rates, jnp.asarray(size))
        )
        limits = inference.intervals(tally, level=level, simultaneous="bonferroni")
        for ends, limit in zip((lower, upper), limits, strict=True):
            ends[sizes == size] = np.asarray(limit)[sizes == size]
    return Bands(edges, values, (lower, upper))


def _edges(domain: Domain) -> np.ndarray:
    """The first categories of the bands, and K; bands of integers begin at round numbers."""
    size = domain.num_categories
    if not domain.is_range:
        return np.linspace(0, size, NUM_BANDS + 1).astype(int)
    first, last = domain.ends
    width = int(round_step(size, NUM_BANDS))
    return np.unique([0, *(edge - first for edge in range(width * (first // width + 1), last + 1, width)), size])
