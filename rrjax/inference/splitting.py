"""How to spend ε on several columns: the errors of splitting it, of sampling columns, and of fake answers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from rrjax.data.categories import check_epsilon, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.inference.planning import LARGEST_COMPARED_EPSILON
from rrjax.mechanisms import RandomizedResponse


class SplitErrors(NamedTuple):
    """Expected errors of one way to spend ε on several columns.

    Attributes:
        name: The way: "all", "sampled", or "among fakes".
        number: How many columns a user reports.
        epsilon: ε of each reported column, nats.
        share: Root mean squared error of a share in a column, over categories and columns.
        cell: The same of a cell in the table of two columns, over cells and pairs; infinite where nothing is known of
            pairs.
    """

    name: str
    number: int
    epsilon: float
    share: float
    cell: float


def compare_splits(num_categories: Sequence[int], num_users: int, epsilon: float) -> list[SplitErrors]:
    """Expected errors of the ways to spend ε on several columns, by randomized response, the smallest of shares first.

    A user reports g of d columns, each at ε/g: all of them, or a few, drawn at random. A column is then estimated from
    N·g/d users, and a table of two columns from N·g·(g − 1)/(d·(d − 1)). Or one column is reported, with fake answers
    in the others (`rrjax.mechanisms.SampledWithFakes`). Errors are those of the unbiased estimates, of the population
    that the users are drawn from, where all shares are equal and columns are independent. So the error of drawing the
    users, and those of them who report a column, is a part. It computes on the host.

    Args:
        num_categories: `[d]`, K of each column, at least two columns.
        num_users: N, at least 1.
        epsilon: Of everything that a user reports, nats.

    Returns:
        A `SplitErrors` for each g, and one for fake answers.

    Raises:
        ValueError: Fewer than two columns, or an argument out of range.

    Example:
        >>> import rrjax
        >>> rows = rrjax.inference.compare_splits([4, 10, 16], 50_000, 2.0)
        >>> [(row.name, row.number, f"{row.share:.4f}", f"{row.cell:.4f}") for row in rows]
        [('sampled', 1, '0.0060', 'inf'), ('among fakes', 1, '0.0104', 'inf'), ('sampled', 2, '0.0112', '0.0311'), \
('all', 3, '0.0155', '0.0506')]

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, "Random sampling plus fake data", 2021: arXiv:2109.07269, which compares
        them at another ε (see `rrjax.mechanisms.SampledWithFakes`).
    """
    sizes = list(num_categories)
    for size in sizes:
        check_num_categories(size)
    if len(sizes) < 2:
        raise ArgumentError(f"num_categories must be of two columns or more, got {sizes}", argument="num_categories")
    if not num_users >= 1:
        raise ArgumentError(f"num_users must be at least 1, got {num_users}", argument="num_users", value=num_users)
    check_epsilon(epsilon)
    epsilon, d = min(float(epsilon), LARGEST_COMPARED_EPSILON), len(sizes)
    rows = []
    for g in range(1, d + 1):
        own = epsilon / g
        noise = [_variance(size, own) for size in sizes]
        pairs = num_users * g * (g - 1) / (d * (d - 1))
        # The square of a product of independent numbers is expected to be the product of their squares.
        squares = [(variance + 1 / size**2, size) for variance, size in zip(noise, sizes, strict=True)]
        cells = [a * b - 1 / (k * m) ** 2 for (a, k), (b, m) in itertools.combinations(squares, 2)]
        share = math.sqrt(math.fsum(noise) / d / (num_users * g / d))
        cell = math.sqrt(math.fsum(cells) / len(cells) / pairs) if pairs else math.inf
        rows.append(SplitErrors("all" if g == d else "sampled", g, own, share, cell))
    odds = math.expm1(epsilon)
    noise = [_variance(size, math.log1p(odds / (d + (d - 1) / size * odds))) for size in sizes]
    rows.append(SplitErrors("among fakes", 1, epsilon, math.sqrt(math.fsum(noise) / d / num_users), math.inf))
    return sorted(rows, key=lambda row: row.share)


def _variance(size: int, epsilon: float) -> float:
    """The variance of the unbiased estimate of a share of 1/K from the report of one user, who is drawn at random."""
    rates = RandomizedResponse(size, epsilon).weights(math.expm1)
    return float(rates.variance(1 / size)) + (1 - 1 / size) / size
