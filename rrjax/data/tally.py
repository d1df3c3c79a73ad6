"""What marginal statements need of a collection: how many reports support each category, of how many, at which rates.

Under a pure mechanism a report *supports* the category that its user holds with probability p, and any other one with
probability q. Whatever is said about one category at a time (the inversion and its repairs, variances, intervals,
p-values, plans) needs the support counts, N, p and q, and nothing else of the mechanism. The support counts of k-ary
randomized response are the counts of its reports and sum to N; those of other mechanisms do not.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.arguments import as_counts, as_scalar, as_survey, float_dtype, is_real
from rrjax.data.counts import survey
from rrjax.data.errors import ArgumentError
from rrjax.data.fingerprint import Fingerprint, as_fingerprint, difference
from rrjax.data.rates import Rates
from rrjax.numerics.pytrees import exportable, register, short
from rrjax.numerics.sharding import aligned, gathered
from rrjax.numerics.sums import expm1_epsilon, split_product

exportable(Rates)


@register(data_fields=["support", "num_users", "rates"], meta_fields=["domain"])
@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Tally:
    """Support counts of a collection, with the rates that they were made at. A pytree; tallies of parts add up.

    A tally that was read from files or a data frame knows the labels of its categories, by their fingerprint, which
    sums and transformations of JAX keep. Tallies of other labels, or of the same labels in another order, do not add
    up. One without adds to any. The fingerprint is static: a function is compiled once for each, and the branches of a
    condition, or the state of a loop before and after a step, must have the same, so begin a loop with a tally of the
    same domain.

    `==` says whether supports, users, rates and fingerprints are equal, as one bool: the weights of the rates too, so
    that a tally made of `p` and `q` of another one may differ from it, and still adds up. A tally has no hash.

    Args:
        support: `[K]`, how many reports support each category, from 0 to N: integers (exact), or floats (weights).
        num_users: Scalar, N.
        p: Scalar, how often a report supports the category that its user holds.
        q: Scalar, how often it supports any other one; less than p.
        rates: `Rates` in place of p and q, where a mechanism knows them better than as two rounded numbers.
        domain: The labels of the categories in their order, an `rrjax.io.Domain` or a list; None says nothing of them.
            As an attribute, a `Fingerprint`, with `labels`.

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
        """Checks what a person gives, which p and q are; rates come from a mechanism, with counts of its own."""
        if p is not None and q is not None:
            rates = Rates.of(*_as_probabilities(p, q))
            support, num_users = _as_support(support, num_users)
        elif p is not None or q is not None:
            raise ArgumentError(
                "a tally has both probabilities: p, of the category that a user holds, and q, of others", argument="p"
            )
        elif isinstance(support, list | tuple):
            support, num_users = _as_support(support, num_users)
        known = as_fingerprint(domain)
        labels = getattr(known, "labels", None)
        if labels is not None and len(labels) != np.shape(support)[-1]:
            message = f"domain must have a label for each of {np.shape(support)[-1]:,} categories, got {len(labels):,}"
            raise ArgumentError(message, argument="domain", value=labels)
        fields = {"support": support, "num_users": num_users, "rates": rates, "domain": known}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """The first numbers; of more than six, how many there are."""
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
        """How often a report supports the category that its user holds. Scalar."""
        return self.rates.p

    @property
    def q(self) -> Float[Array, ""]:
        """How often a report supports any one other category. Scalar."""
        return self.rates.q

    @property
    def d(self) -> Float[Array, ""]:
        """P − q, without cancellation. Scalar."""
        return self.rates.d

    def __add__(self, other: Tally) -> Tally:
        """The tally of both collections together, at the rates of the first.

        Rates are equal here where p and q are, to eight machine epsilons of the dtype that they are computed in: p is a
        quotient of sums of three weights, at most five roundings of half an epsilon, and so is what was stored of it,
        and what is computed of that again.

        Raises:
            ValueError: Other categories or labels, or (not under tracing) other rates, or more users than the dtype can
                count.
        """
        if not isinstance(other, Tally):
            return NotImplemented
        if self.support.shape != other.support.shape:
            raise ArgumentError(
                f"tallies of {self.num_categories} and of {other.num_categories} categories cannot be added",
                argument="other",
            )
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
        # Where it cannot be refused, it is unusable.
        domain = other.domain if self.domain is None else self.domain
        number = jnp.where(alike, number, -1)
        return Tally(self.support + other.support, number, rates=self.rates, domain=domain)

    def __radd__(self, other: Any) -> Tally:
        """So that `sum` works."""
        return self if isinstance(other, int) and other == 0 else NotImplemented


def equal_rates(first: Rates, second: Rates) -> Bool[Array, ""]:
    """Whether p and q are equal, but for rounding: see `Tally.__add__`."""
    dtypes = [jnp.result_type(weight) for weight in (*first, *second)]
    eps = max(jnp.finfo(dtype).eps for dtype in (*dtypes, float_dtype()) if jnp.issubdtype(dtype, jnp.floating))
    ours, theirs = (
        jnp.stack([jnp.asarray(x).astype(float_dtype()) for x in (each.p, each.q)]) for each in (first, second)
    )
    return jnp.all(jnp.abs(ours - theirs) <= 8 * eps * jnp.maximum(ours, theirs))


def _is_number(weight):
    """Whether p can be computed of it, and looked at: JAX puts anything in the place of a leaf."""
    if isinstance(weight, Tracer):
        return False
    return (
        isinstance(weight, int | float | np.generic | np.ndarray | jax.Array) and jnp.result_type(weight).kind in "iuf"
    )


def _apart(name, first, second):
    """Two numbers with as many digits as show that they differ."""
    pairs = [(f"{float(first):.{digits}g}", f"{float(second):.{digits}g}") for digits in range(6, 18)]
    ours, theirs = next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])
    return f"{name} is {ours} in one and {theirs} in the other"


def _as_probabilities(p, q):
    known = not (isinstance(p, Tracer) or isinstance(q, Tracer))
    for name, value in (("p", p), ("q", q)):
        if np.ndim(value) != 0:
            raise ArgumentError(
                f"{name} must be a scalar (use jax.vmap for several tallies), got shape {np.shape(value)}",
                argument=name,
            )
    if not known:
        return as_scalar(p, float_dtype(), "p"), as_scalar(q, float_dtype(), "q")
    # On the host in double precision, so that p − q and 1 − p keep their digits.
    p, q = float(np.asarray(p)), float(np.asarray(q))
    if not 0 <= q < p <= 1:
        raise ArgumentError(
            f"p and q must be probabilities with p above q, got p = {p:g}, q = {q:g}; a mechanism that names a user's "
            "own category less often than others is the one with the answers exchanged",
            argument="p",
            value=p,
        )
    return p, q


def _as_support(support, num_users):
    support = _as_weights(support)
    given = num_users if isinstance(num_users, jax.Array) else np.asarray(num_users)
    if given.ndim != 0 or not is_real(given):
        raise ArgumentError(
            f"num_users must be one number, got {given.dtype.name} of shape {given.shape}", argument="num_users"
        )
    if jnp.issubdtype(support.dtype, jnp.integer):
        if jnp.issubdtype(given.dtype, jnp.floating):
            raise ArgumentError(
                f"num_users must be an integer, as support is, got {given.dtype.name}", argument="num_users"
            )
        if not isinstance(given, jax.Array) and not 0 <= int(given) <= jnp.iinfo(support.dtype).max:
            raise ArgumentError(
                f"num_users must be from 0 to {jnp.iinfo(support.dtype).max}, got {int(given)}; 64-bit mode "
                "(JAX_ENABLE_X64=1) counts further",
                argument="num_users",
            )
    number = jnp.asarray(given).astype(support.dtype)
    if not isinstance(support, Tracer) and not isinstance(number, Tracer):
        known = np.asarray(support)
        low, high = float(known.min()), float(known.max())
        if not (low >= 0 and high <= float(np.asarray(number))):
            raise ArgumentError(
                f"support must be from 0 to num_users = {number}, got values from {low:g} to {high:g}: a report "
                "supports a category once, or not at all",
                argument="support",
            )
    return support, number


def _as_weights(support):
    """As `as_counts`, but floats keep the scale that they share with the number of users."""
    if not isinstance(support, jax.Array):
        support = np.asarray(support)
    if support.ndim == 1 and jnp.issubdtype(support.dtype, jnp.floating) and support.shape[0] >= 2:
        dtype = jax.dtypes.canonicalize_dtype(np.promote_types(np.float32, support.dtype))
        return gathered(jnp.asarray(support, dtype))
    return as_counts(support, "support", summed=False)


def as_tally(tally: Tally, epsilon: ArrayLike | None, *, whole: bool = False) -> Tally:
    """Settles shapes and dtypes of a tally that a function was given.

    Raises:
        ValueError: An ε beside it, several tallies at once, or floats where integers are needed.
    """
    if epsilon is not None:
        raise ArgumentError(
            f"a tally has its own rates, p and q: leave epsilon out (got {epsilon})", argument="epsilon"
        )
    support = _as_weights(tally.support)
    dtype = support.dtype if jnp.issubdtype(support.dtype, jnp.floating) else float_dtype()
    if whole and jnp.issubdtype(support.dtype, jnp.floating):
        raise ArgumentError(
            f"support must be integers, numbers of reports, got dtype {support.dtype}", argument="support"
        )
    number = jnp.asarray(tally.num_users).astype(support.dtype)
    return aligned(Tally(support, number, rates=tally.rates.astype(dtype)))


class Evidence(NamedTuple):
    """A tally ready for statements about one category at a time.

    Attributes:
        support: `[K]`, floats.
        others: `[K]`, floats: the reports that do not support the category.
        excess: `[K]`: support − N·q, to a few units in the last place of the larger of one and itself.
        rates: The mechanism's.
        usable: Scalar: whether all of it makes sense; harmless numbers stand in where it does not.
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
        """What a category that nobody holds gets of the reports; a little more where the dtype ends."""
        return jnp.maximum(self.rates.q, jnp.finfo(self.excess.dtype).tiny)


def evidence(counts: ArrayLike | Tally, epsilon: ArrayLike | None) -> Evidence:
    """Checks a tally, or counts of randomized response at ε, which must be integers here, and prepares them.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an ε beside a tally, or none beside counts.
    """
    if isinstance(counts, Tally):
        return of_tally(as_tally(counts, epsilon, whole=True))
    return _of_counts(*as_survey(counts, epsilon, whole=True))


@jax.jit
def of_tally(tally: Tally) -> Evidence:
    """Prepares a settled tally, of floats too."""
    support, number, rates = tally.support, tally.num_users, tally.rates
    dtype = rates.truth.dtype
    if jnp.issubdtype(support.dtype, jnp.integer):  # at least as wide as the rates, for the exact product
        word = np.promote_types(support.dtype, f"int{jnp.finfo(dtype).bits}")
        support, number = support.astype(word), number.astype(word)
    usable = (jnp.min(support) >= 0) & (jnp.max(support) <= number) & (number > 0)
    usable = usable & (rates.always >= 0) & (rates.never >= 0) & (rates.truth > 0) & jnp.isfinite(rates.total)
    support, number = jnp.where(usable, support, 1), jnp.where(usable, number, 2)
    rates = Rates(*(jnp.where(usable, weight, 1) for weight in rates))
    rough = support.astype(dtype) - number.astype(dtype) * rates.q
    excess = rough
    if jnp.issubdtype(support.dtype, jnp.integer):
        whole, fraction, _ = split_product(number, jnp.maximum(rates.q, jnp.finfo(dtype).tiny))
        exact = (support - whole.astype(support.dtype)).astype(dtype) - fraction
        # The rough one has the derivatives in the rates; it differs from the exact one by rounding alone.
        excess = rough + lax.stop_gradient(exact - rough)
    return Evidence(support.astype(dtype), (number - support).astype(dtype), excess, rates, usable)


@jax.jit
def _of_counts(counts, epsilon):
    seen, e1 = survey(counts), expm1_epsilon(epsilon)
    usable = seen.usable & (e1 > 0)
    e1 = jnp.where(usable, e1, 1)
    counts, total = jnp.where(usable, counts, 1), jnp.where(usable, seen.total, counts.shape[0])
    other = (total - counts).astype(e1.dtype)
    rates = Rates(jnp.ones_like(e1), jnp.full_like(e1, counts.shape[0] - 1), e1)
    return Evidence(counts.astype(e1.dtype), other, _excess(counts, total, e1), rates, usable)


def _excess(counts: Int[Array, " K"], total: Int[Array, ""], e1: Float[Array, ""]) -> Float[Array, " K"]:
    """(c·e1 + c·K − N) / (e1 + K)."""
    num_categories = counts.shape[0]
    noise = total.astype(e1.dtype) / (e1 + num_categories)
    rough = counts.astype(e1.dtype) - noise
    # Where the difference is smaller than its terms, it lies within an integer, and wrap-around arithmetic is exact.
    whole, fraction, _ = split_product(counts, e1)
    integer = whole.astype(total.dtype) + (counts * jnp.asarray(num_categories, counts.dtype) - total)
    exact = (integer.astype(e1.dtype) + fraction) / (e1 + num_categories)
    # The rough one has the derivative in ε; it differs from the exact one by rounding alone.
    return rough + lax.stop_gradient(jnp.where(jnp.abs(rough) < noise / 2, exact - rough, 0))
