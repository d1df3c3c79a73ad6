"""Counts of reports, and tallies: the support counts of a collection, N, and the rates p and q.

Under a pure mechanism a report *supports* its user's category with probability p, and any other category with
probability q. Results for one category at a time (the inversion and its repairs, variances, intervals, p-values, plans)
depend only on the support counts, N, p and q. The support counts of k-ary randomized response are the counts of its
reports and sum to N; those of other mechanisms do not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import (
    as_array,
    as_counts,
    as_counts_and_epsilon,
    as_values,
    as_weights,
    count_summary,
    float_dtype,
    float_of,
    is_real,
)
from rrjax.data.categories import Fingerprint, as_fingerprint, check_num_categories, difference
from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import Rates
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable, pytree, short
from rrjax.numerics.sharding import unsharded, with_sharding_of
from rrjax.numerics.sums import odds_of_rates, split_product

exportable(Rates)


def count(reports: ArrayLike, num_categories: int) -> Int[Array, " K"]:
    """The number of reports that name each category.

    Counts of parts, with the same K, add up to the counts of the whole. So a stream or many files can be counted part
    by part and summed.

    Args:
        reports: Integers in 0 … K − 1, any shape.
        num_categories: K, at least 2. Static.

    Returns:
        `[K]`, in the default integer dtype. Under tracing a report outside the domain cannot be refused: it makes all
        counts −1, so that every estimate is NaN.

    Raises:
        ValueError: K < 2, reports that are not integers, or (not under tracing) one outside the domain.

    Example:
        >>> import rrjax
        >>> rrjax.count([0, 2, 2, 1, 2], num_categories=4)
        Array([1, 1, 3, 0], dtype=int32)
    """
    check_num_categories(num_categories)
    return _count(as_values(reports, num_categories, "reports"), num_categories)


def _count(reports, num_categories):
    reports = unsharded(reports).ravel()
    inside = (reports >= 0) & (reports < num_categories)
    counts = jnp.bincount(jnp.where(inside, reports, 0), length=num_categories)
    return jnp.where(jnp.all(inside), counts, -1)


_count = jax.jit(_count, static_argnums=1)


@pytree("domain", init=False, repr=False)
class Tally:
    """The support counts of a collection, N, and the rates p and q. A pytree; tallies of parts add up.

    A tally of files or of a data frame has a fingerprint of the labels of its categories, which sums and
    transformations of JAX keep. Tallies of different labels, or of the same labels in another order, do not add up.
    A tally without a fingerprint adds to any. The fingerprint is static: a function is compiled once for each, and the
    branches of a condition, or the state of a loop before and after a step, must have the same one.

    `==` compares supports, users, fingerprints and the weights of the rates, and returns one bool. A tally made from
    `p` and `q` of another one may therefore differ from it, and still adds up. A tally has no hash.

    Args:
        support: `[K]`, the number of reports that support each category, from 0 to N: integers (exact), or floats
            (weights).
        num_users: Scalar, N.
        p: Scalar, probability that a report supports the category of its user; `[K]` if it differs by category.
        q: Scalar or `[K]`, probability that a report supports a given other category; less than p.
        rates: `Rates` in place of p and q, which are rounded.
        domain: The labels of the categories in their order, an `rrjax.io.domain.Domain` or a list; None if unknown. As
            an attribute, a `Fingerprint`, with `labels`.

    Raises:
        ValueError: Shapes, dtypes or (not under tracing) values that no collection has, or other than K labels.

    Example:
        >>> import rrjax
        >>> monday = rrjax.Tally([60, 35, 30], num_users=100, p=0.5, q=0.25)
        >>> tuesday = rrjax.Tally([50, 40, 25], num_users=100, p=0.5, q=0.25)
        >>> [round(t, 2) for t in rrjax.inv(monday + tuesday).tolist()]
        [1.2, 0.5, 0.1]
        >>> [round(t, 2) for t in rrjax.inv_p(monday + tuesday).tolist()]
        [0.85, 0.15, 0.0]
    """

    support: Shaped[Array, " K"]
    num_users: Shaped[Array, ""]
    rates: Rates
    domain: Fingerprint | None

    def __init__(
        self,
        support: ArrayLike,
        num_users: ArrayLike,
        p: ArrayLike | None = None,
        q: ArrayLike | None = None,
        *,
        rates: Rates | None = None,
        domain: Any = None,
    ) -> None:
        """Checks the numbers if p and q are given; numbers with rates are from a mechanism, and are not checked."""
        if p is not None and q is not None:
            rates = Rates.of(*_as_probabilities(p, q, np.shape(support)[-1]))
            support, num_users = _as_support(support, num_users)
        elif p is not None or q is not None:
            message = "a tally has both probabilities: p, of the category that a user holds, and q, of others"
            raise ArgumentError(message, argument="p")
        elif isinstance(support, list | tuple):
            support, num_users = _as_support(support, num_users)
        known = as_fingerprint(domain)
        labels = getattr(known, "labels", None)
        if labels is not None and len(labels) != np.shape(support)[-1]:
            problem = f"must have a label for each of {np.shape(support)[-1]:,} categories, got {len(labels):,}"
            raise ArgumentError.about("domain", problem, value=labels)
        vars(self).update(support=support, num_users=num_users, rates=rates, domain=known)

    def __repr__(self) -> str:
        """A text with the numbers, or with only the shape of more than six."""
        domain = "" if self.domain is None else f", domain={short(getattr(self.domain, 'labels', None) or self.domain)}"
        known = isinstance(self.rates, Rates) and all(map(_is_number, self.rates))
        rates = f"p={short(self.p)}, q={short(self.q)}" if known else f"rates={short(self.rates)}"
        return f"Tally(support={short(self.support)}, num_users={short(self.num_users)}, {rates}{domain})"

    @property
    def num_categories(self) -> int:
        """K."""
        return self.support.shape[-1]

    @property
    def p(self) -> Float[Array, ""]:
        """Probability that a report supports the category of its user. Scalar."""
        return self.rates.p

    @property
    def q(self) -> Float[Array, ""]:
        """Probability that a report supports a given other category. Scalar."""
        return self.rates.q

    @property
    def d(self) -> Float[Array, ""]:
        """Difference p − q, without cancellation. Scalar."""
        return self.rates.d

    def __add__(self, other: Tally) -> Tally:
        """The tally of both collections together, at the rates of the first.

        Rates are equal if p and q are, to eight machine epsilons of the dtype of their computation: p is a quotient of
        sums of three weights, with at most five roundings of half an epsilon. The same holds for its stored value, and
        for the value computed from the stored one.

        Raises:
            ValueError: Other categories or labels, or (not under tracing) other rates, or more users than the dtype can
                count.
        """
        if not isinstance(other, Tally):
            return NotImplemented
        if self.support.shape != other.support.shape:
            sizes = f"{self.num_categories} and of {other.num_categories}"
            raise ArgumentError(f"tallies of {sizes} categories cannot be added", argument="other")
        if self.domain is not None and other.domain is not None and self.domain != other.domain:
            raise ArgumentError(
                f"tallies of other labels cannot be added: {difference(self.domain, other.domain)}. Count both with "
                "one domain",
                argument="domain",
            )
        number = self.num_users + other.num_users
        alike = equal_rates(self.rates, other.rates) & (number >= self.num_users)
        if not isinstance(alike, Tracer):
            if not number >= self.num_users:
                raise ArgumentError(
                    f"{self.num_users} and {other.num_users} users are more than {number.dtype.name} can count: "
                    "enable 64-bit mode (JAX_ENABLE_X64=1)",
                    argument="num_users",
                )
            if not alike:
                raise ArgumentError(
                    f"tallies of other rates cannot be added: {_apart('p', self.p, other.p)}, "
                    f"{_apart('q', self.q, other.q)}; estimate them apart",
                    argument="rates",
                )
        # Under tracing a mismatch cannot be refused: a negative N makes every result NaN.
        domain = other.domain if self.domain is None else self.domain
        number = jnp.where(alike, number, -1)
        return Tally(self.support + other.support, number, rates=self.rates, domain=domain)

    def __radd__(self, other: Any) -> Tally:
        """The tally for `sum`, which starts at 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented


def equal_rates(first: Rates, second: Rates) -> Bool[Array, ""]:
    """Whether p and q are equal up to rounding (see `Tally.__add__`)."""
    dtypes = [jnp.result_type(weight) for weight in (*first, *second)]
    eps = max(jnp.finfo(dtype).eps for dtype in (*dtypes, float_dtype()) if jnp.issubdtype(dtype, jnp.floating))
    ours, theirs = (
        jnp.stack([jnp.asarray(x).astype(float_dtype()) for x in (each.p, each.q)]) for each in (first, second)
    )
    return jnp.all(jnp.abs(ours - theirs) <= 8 * eps * jnp.maximum(ours, theirs))


def _is_number(weight):
    """Whether a leaf is a known number: JAX may put other objects in place of a leaf."""
    number = isinstance(weight, int | float | np.generic | np.ndarray | jax.Array) and not isinstance(weight, Tracer)
    return number and jnp.result_type(weight).kind in "iuf"


def _apart(name, first, second):
    """A text that two numbers differ, with enough digits."""
    pairs = [(f"{float(first):.{digits}g}", f"{float(second):.{digits}g}") for digits in range(6, 18)]
    ours, theirs = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    return f"{name} is {ours} in one and {theirs} in the other"


def _as_probabilities(p, q, size):
    for name, value in (("p", p), ("q", q)):
        if np.shape(value) not in ((), (size,)):
            shapes = f"a scalar or have shape [{size}] (use jax.vmap for several tallies)"
            problem = f"must be {shapes}, got shape {np.shape(value)}"
            raise ArgumentError.about(name, problem)
    if isinstance(p, Tracer) or isinstance(q, Tracer):
        return tuple(as_array(x, name).astype(float_dtype()) for x, name in ((p, "p"), (q, "q")))
    # On the host in double precision, so that p − q and 1 − p keep their digits.
    p, q = np.broadcast_arrays(np.asarray(p, float), np.asarray(q, float))
    for own, other in zip(p.ravel(), q.ravel(), strict=True):
        if not 0 <= other < own <= 1:
            raise ArgumentError(
                f"p and q must be probabilities with p above q, got p = {own:g}, q = {other:g}; a mechanism that names "
                "a user's own category less often than others is the one with the answers exchanged",
                argument="p",
                value=own,
            )
    return (p, q) if p.ndim else (float(p), float(q))


def _as_support(support, num_users):
    support = _settled(support)
    given = as_array(num_users, "num_users")
    if given.ndim != 0 or not is_real(given):
        raise ArgumentError.about("num_users", f"must be one number, got {given.dtype.name} of shape {given.shape}")
    if jnp.issubdtype(support.dtype, jnp.integer):
        if jnp.issubdtype(given.dtype, jnp.floating):
            raise ArgumentError.about("num_users", f"must be an integer, as support is, got {given.dtype.name}")
        limit = jnp.iinfo(support.dtype).max
        if not isinstance(given, jax.Array) and not 0 <= int(given) <= limit:
            problem = f"must be from 0 to {limit}, got {int(given)}; 64-bit mode (JAX_ENABLE_X64=1) counts further"
            raise ArgumentError.about("num_users", problem)
    number = jnp.asarray(given).astype(support.dtype)
    if not isinstance(support, Tracer) and not isinstance(number, Tracer):
        known = np.asarray(support)
        low, high = float(known.min()), float(known.max())
        if not (low >= 0 and high <= float(np.asarray(number))):
            raise ArgumentError.about(
                "support",
                f"must be from 0 to num_users = {number}, got values from {low:g} to {high:g}: a report supports a "
                "category once, or not at all",
            )
    return support, number


def _settled(support):
    """Support counts in their final dtype, as by `as_counts`, but with the scale of floats kept."""
    support = as_array(support, "support")
    if support.ndim == 1 and jnp.issubdtype(support.dtype, jnp.floating) and support.shape[0] >= 2:
        return as_weights(support)
    return as_counts(support, "support", summed=False)


def as_tally(tally: Tally, epsilon: ArrayLike | None, *, whole: bool = False) -> Tally:
    """A tally with checked shapes and final dtypes, of integers if `whole`; `ValueError` for an ε with it."""
    if epsilon is not None:
        message = f"a tally has its own rates, p and q: leave epsilon out (got {epsilon})"
        raise ArgumentError(message, argument="epsilon")
    support = _settled(tally.support)
    if whole and jnp.issubdtype(support.dtype, jnp.floating):
        raise ArgumentError.about("support", f"must be integers, numbers of reports, got dtype {support.dtype}")
    number = jnp.asarray(tally.num_users).astype(support.dtype)
    return with_sharding_of(Tally(support, number, rates=tally.rates.astype(float_of(support))))


class SupportData(NamedTuple):
    """The numbers of a tally, for inference on one category at a time.

    Attributes:
        support: `[K]`, floats.
        others: `[K]`, floats: the reports that do not support the category.
        excess: `[K]`: support − N·q, to a few units in the last place of the larger of one and itself.
        rates: Rates of the mechanism.
        usable: Scalar: whether the tally is valid; the numbers of an invalid one are replaced by valid numbers.
    """

    support: Float[Array, " K"]
    others: Float[Array, " K"]
    excess: Float[Array, " K"]
    rates: Rates
    usable: Bool[Array, ""]

    @property
    def num_users(self) -> Float[Array, ""]:
        """N."""
        return self.support[0] + self.others[0]

    @property
    def q(self) -> Float[Array, ""]:
        """Probability that a report supports an empty category, at least the smallest normal number of the dtype."""
        return jnp.maximum(self.rates.q, jnp.finfo(self.excess.dtype).tiny)


def support_data(counts: ArrayLike | Tally, epsilon: ArrayLike | None) -> SupportData:
    """The numbers of a tally, or of counts of randomized response at ε; the counts must be integers."""
    if isinstance(counts, Tally):
        return of_tally(as_tally(counts, epsilon, whole=True))
    return _of_counts(*as_counts_and_epsilon(counts, epsilon, whole=True))


def num_tests(*collections: SupportData) -> int | Int[Array, ""]:
    """The number of categories whose support counts say something of their own, in collections of the same categories.

    K; but one of two categories, if each report supports exactly one of both: the shares add up to one, and the test
    and the interval of one category are those of the other. Then support counts add up to N, and each category's q is
    the other's 1 − p. Support counts of unary encoding and hashing are separate data. If by chance they add up to N,
    both say the same, and their intervals and p-values are conservative: each is the other's independent copy.
    """
    size = collections[0].support.shape[0]
    if size != 2:
        return size
    one = jnp.all(jnp.stack([_complementary(each) for each in collections]))
    return jnp.where(one, 1, 2) if isinstance(one, Tracer) else 2 - int(one)


def _complementary(data: SupportData) -> Bool[Array, ""]:
    q, not_p = (jnp.broadcast_to(each, (2,)) for each in (data.rates.q, data.rates.not_p))
    rounding = 8 * jnp.finfo(q.dtype).eps * jnp.maximum(q, not_p[::-1])
    return (data.support[0] == data.others[1]) & jnp.all(jnp.abs(q - not_p[::-1]) <= rounding)


@program
def of_tally(tally: Tally) -> SupportData:
    """The numbers of a checked tally of integers or floats."""
    support, number, rates = tally.support, tally.num_users, tally.rates
    dtype = rates.truth.dtype
    if jnp.issubdtype(support.dtype, jnp.integer):  # at least as wide as the rates, for the exact product
        word = np.promote_types(support.dtype, f"int{jnp.finfo(dtype).bits}")
        support, number = support.astype(word), number.astype(word)
    usable = (jnp.min(support) >= 0) & (jnp.max(support) <= number) & (number > 0)
    each = (rates.always >= 0) & (rates.never >= 0) & (rates.truth > 0) & jnp.isfinite(rates.total)
    usable = usable & jnp.all(each)
    support, number = jnp.where(usable, support, 1), jnp.where(usable, number, 2)
    rates = Rates(*(jnp.where(usable, weight, 1) for weight in rates))
    rough = support.astype(dtype) - number.astype(dtype) * rates.q
    excess = rough
    if jnp.issubdtype(support.dtype, jnp.integer):
        whole, fraction, _ = split_product(number, jnp.maximum(rates.q, jnp.finfo(dtype).tiny))
        exact = (support - whole.astype(support.dtype)).astype(dtype) - fraction
        # The rough value has the derivatives in the rates, and differs from the exact one only by rounding.
        excess = rough + lax.stop_gradient(exact - rough)
    return SupportData(support.astype(dtype), (number - support).astype(dtype), excess, rates, usable)


@program
def _of_counts(counts, epsilon):
    seen, e1 = count_summary(counts), odds_of_rates(epsilon)
    usable = seen.usable & (e1 > 0)
    e1 = jnp.where(usable, e1, 1)
    counts, total = jnp.where(usable, counts, 1), jnp.where(usable, seen.total, counts.shape[0])
    other = (total - counts).astype(e1.dtype)
    rates = Rates(jnp.ones_like(e1), jnp.full_like(e1, counts.shape[0] - 1), e1)
    return SupportData(counts.astype(e1.dtype), other, _excess(counts, total, e1), rates, usable)


def _excess(counts: Int[Array, " K"], total: Int[Array, ""], e1: Float[Array, ""]) -> Float[Array, " K"]:
    """(c·e1 + c·K − N) / (e1 + K)."""
    num_categories = counts.shape[0]
    noise = total.astype(e1.dtype) / (e1 + num_categories)
    rough = counts.astype(e1.dtype) - noise
    # If the difference is smaller than its terms, it fits an integer, and wrap-around arithmetic is exact.
    whole, fraction, _ = split_product(counts, e1)
    integer = whole.astype(total.dtype) + (counts * jnp.asarray(num_categories, counts.dtype) - total)
    exact = (integer.astype(e1.dtype) + fraction) / (e1 + num_categories)
    # The rough value has the derivative in ε, and differs from the exact one only by rounding.
    return rough + lax.stop_gradient(jnp.where(jnp.abs(rough) < noise / 2, exact - rough, 0))
