"""Parameters and rates of mechanisms; JAX is not imported.

Mechanisms and clients for real collection use the same defaults of parameters, from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Number
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from rrjax.data.categories import as_integer, is_integer
from rrjax.data.errors import ArgumentError
from rrjax.numerics.projective_geometry import PRIMES, design_of, num_cells

DEFAULT_CELLS = 1 << 27
"""Largest decoding table of projective geometry response, in numbers, if the field is chosen by default."""
MOST_BUCKETS = 1 << 30
"""Largest number of buckets of local hashing. It is the best number at ε = 20."""


def _over(x: Any, y: Any) -> Any:
    """x/y of numbers of any kind; of JAX with the derivatives of `ratio`."""
    if isinstance(y, Number | np.ndarray):
        return x / y
    import jax.numpy as jnp  # here, because clients use rates without JAX

    from rrjax.numerics.sums import ratio

    if getattr(x, "dtype", None) != y.dtype or y.dtype.kind != "f" or isinstance(x, np.ndarray):
        dtype = jnp.result_type(x, y, float)
        x, y = jnp.asarray(x, dtype), jnp.asarray(y, dtype)
    return ratio(x, y)


class Rates(NamedTuple):
    """The two probabilities p and q of a pure mechanism, as three weights without cancellation.

    A report supports a given category with probability q for every user, for no user with 1 − p, and only for users
    with this category with d = p − q. The weights are these three up to a common factor: 1, K − 1 and e^ε − 1 for k-ary
    randomized response. They are numbers, scalars of JAX or, for a survey design, `[K]`: its rates differ by category.

    Attributes:
        always: q.
        never: 1 − p.
        truth: d.
    """

    always: Any
    never: Any
    truth: Any

    @classmethod
    def of(cls, p: Any, q: Any) -> Rates:
        """The rates of two probabilities."""
        return cls(q, 1 - p, p - q)

    @classmethod
    def of_design(cls, e1: Any, size: Any, pairs: Any) -> Rates:
        """The rates of a block design: blocks with the user's category are e^ε times as likely as others.

        Args:
            e1: e^ε − 1.
            size: b/r, the number of blocks over the number of blocks with a given category.
            pairs: λ/r, the share of blocks with a given other category among the blocks with a given one.

        References:
            Nam and Lee, "Optimal private discrete distribution estimation with one-bit communication", 2024;
            arXiv:2508.05110.
        """
        return cls(1 + pairs * e1, size - 1, (1 - pairs) * e1)

    def check_equal(self, estimator: str) -> None:
        """Raises `ValueError` for rates that differ by category."""
        if np.ndim(self.truth):
            raise ArgumentError(
                f"{estimator} is for mechanisms with one p and one q; the rates of this tally differ by category: use "
                "empirical_bayes, inv_p or inv_n",
                argument="counts",
            )

    @property
    def total(self) -> Any:
        """Common factor of the three weights."""
        return self.truth + (self.always + self.never)

    @property
    def p(self) -> Any:
        """Probability that a report supports the category of its user."""
        return _over(self.always + self.truth, self.total)

    @property
    def q(self) -> Any:
        """Probability that a report supports a given other category."""
        return _over(self.always, self.total)

    @property
    def d(self) -> Any:
        """The difference p − q, without cancellation."""
        return _over(self.truth, self.total)

    @property
    def not_p(self) -> Any:
        """1 − p, without cancellation."""
        return _over(self.never, self.total)

    @property
    def not_q(self) -> Any:
        """1 − q, without cancellation."""
        return _over(self.truth + self.never, self.total)

    def share(self, reported: Any) -> Any:
        """The share of users with a category, from the probability of its support; it may be negative."""
        return reported + _over((self.always + self.never) * reported - self.always, self.truth)

    def variance(self, share: Any) -> Any:
        """N times the variance of the unbiased estimate: [q(1−q) + θ(p(1−p) − q(1−q))]/d², for given users."""
        noise = self.always * (1 + _over(self.never, self.truth))
        return _over(noise + (self.never - self.always) * share, self.truth)

    def variance_of_drawn(self, num_categories: int) -> Any:
        """As `variance`, of users who are drawn from equal shares: their values vary, too. Scalar, or `[K]` as q is."""
        return self.variance(1 / num_categories) + (1 - 1 / num_categories) / num_categories

    def total_variance(self, num_categories: int) -> Any:
        """The sum of `variance` over the categories, of equal rates: [p(1−p) + (K−1)·q(1−q)]/d², for any shares."""
        spread = 1 + (num_categories - 1) * (self.always / self.never)
        return self.never * _over(_over(num_categories * self.always, self.truth) + spread, self.truth)

    def astype(self, dtype: Any) -> Rates:
        """The rates as scalars of JAX in a floating dtype."""
        import jax.numpy as jnp  # here, because clients use rates without JAX

        return Rates(*(jnp.asarray(weight, dtype) for weight in self))


def _expm1(epsilon):
    """e^ε − 1 for an ε that is cut so that its square and inverse are floats; the best parameter is the same."""
    return math.expm1(min(max(epsilon, 1e-100), 300.0))


def best_subset_size(num_categories: int, e1: Any, xp: ModuleType = np) -> Any:
    """ω, at least one: K/(e^ε + 1), rounded down or up to the integer of smaller error."""

    def error(size):
        return subset_rates(num_categories, size, e1).total_variance(num_categories)

    size = xp.maximum(num_categories / (e1 + 2) // 1, 1)
    above = xp.minimum(size + 1, num_categories - 1)
    return xp.where(error(above) < error(size), above, size)


def subset_rates(num_categories: int, size: Any, e1: Any) -> Rates:
    """The rates of the block design of all sets of ω categories."""
    return Rates.of_design(e1, num_categories / size, (size - 1) / (num_categories - 1))


def subset_size_of(given: int | None, num_categories: int, epsilon: float | None) -> Any:
    """The ω of subset selection: the given one (`ValueError` if out of range), the best for a known ε, or None."""
    if given is None:
        return None if epsilon is None else int(best_subset_size(num_categories, _expm1(epsilon)))
    return as_integer(given, "subset_size", 1, num_categories - 1, "K - 1 = ")


def best_num_buckets(e1: Any, smallest: Callable[[Any, int], Any] = min) -> Any:
    """The g of optimized local hashing, round(e^ε) + 1."""
    return smallest((e1 + 1.5) // 1 + 1, MOST_BUCKETS)


def num_buckets_of(given: int | None, epsilon: float | None) -> Any:
    """The g of local hashing: the given one (`ValueError` if out of range), the best for a known ε, or None."""
    if given is None:
        return None if epsilon is None else int(best_num_buckets(_expm1(epsilon)))
    return as_integer(given, "num_buckets", 2, MOST_BUCKETS)


def two_buckets(given: int | None) -> int:
    """The g of binary local hashing; `ValueError` if another one is given."""
    if given not in (None, 2):
        raise ArgumentError(f"binary local hashing has num_buckets = 2, got {given!r}", argument="num_buckets")
    return 2


def half_width_of(given: int | None, num_categories: int, epsilon: float | None) -> Any:
    """The h of the square wave on K bins: the given one (`ValueError` if out of range), ⌊b·K⌋ for a known ε, or None.

    b = (εe^ε − e^ε + 1)/(2e^ε(e^ε − 1 − ε)) is the half-width of the continuous mechanism on [0, 1].
    """
    if given is not None:
        return as_integer(given, "half_width", 0, 2**30 - num_categories // 2)
    if epsilon is None:
        return None
    epsilon = min(epsilon, 300.0)
    if epsilon < 1e-2:  # where the closed form cancels; the next term is below ε³
        near = (1 - epsilon / 3 + epsilon**2 / 12) / (1 - 2 * epsilon / 3 + epsilon**2 / 4)
    else:
        near = (math.expm1(-epsilon) + epsilon) / (1 - (1 + epsilon) * math.exp(-epsilon))
    return math.floor(near * math.exp(-epsilon) / 2 * num_categories)


def field_designs(num_categories: int) -> tuple[np.ndarray, np.ndarray]:
    """b/r and λ/r (see `Rates.of_design`) of the planes over each field; NaN if decoding exceeds memory."""
    sizes, pairs = zip(*(design_of(num_categories, order) for order in PRIMES), strict=True)
    cells = np.asarray([num_cells(num_categories, order) for order in PRIMES])
    fits = cells <= max(DEFAULT_CELLS, min(cells))
    return np.where(fits, sizes, np.nan), np.where(fits, pairs, np.nan)


def field_order_of(given: int | None, num_categories: int, epsilon: float | None) -> Any:
    """The s of projective geometry response: the given one, the prime of least error for a known ε, or None.

    Raises:
        ValueError: s is not a prime below 1000, or its table takes too much memory.
    """
    if given is None:
        if epsilon is None:
            return None
        designs = Rates.of_design(_expm1(epsilon), *field_designs(num_categories))
        given = PRIMES[int(np.nanargmin(designs.total_variance(num_categories)))]
    if not is_integer(given, 2, 1000) or given not in PRIMES:
        raise ArgumentError(f"field_order must be a prime number below 1000, got {given!r}", argument="field_order")
    cells = num_cells(num_categories, int(given))
    if cells > 8 * DEFAULT_CELLS:
        raise ArgumentError(
            f"num_categories = {num_categories} over a field of {given} elements takes a table of {cells:.1e} numbers "
            "to decode, more than fits: give a smaller field_order, or use another mechanism",
            argument="num_categories",
            value=num_categories,
        )
    return int(given)
