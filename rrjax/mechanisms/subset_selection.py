"""Subset selection: a report names ω categories, and the user's own category is among them with probability p."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_values, check_key, int_dtype
from rrjax.data.categories import check_in_domain, check_integers
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import SPARSE_RATIO, Sparse
from rrjax.data.mechanism_parameters import best_subset_size, subset_rates, subset_size_of
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.draws import below, number_below, rounded_down
from rrjax.mechanisms.mechanism import PureMechanism, known_epsilon, log_probability_of_block, settled, tally_if
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import refuse_spread, unsharded, with_sharding_of
from rrjax.numerics.sums import scaled_odds
from rrjax.simulate.sampling import Stream


@pytree("num_categories", "subset_size")
class SubsetSelection(PureMechanism):
    """Subset selection: ω of the K categories, the own one among them with p = ωe^ε/(ωe^ε+K−ω). A pytree, ε its leaf.

    The other members are drawn uniformly, so q = (ω − p)/(K − 1). No mechanism that is symmetric in the categories has
    a smaller squared error. A report takes log₂ C(K, ω) bits. ω = 1 is randomized response.

    Reports are int32, the shape of the values and a last axis of ω categories, increasing. Under tracing, all are −1
    for a value outside the domain and for an impossible ε. `randomize` takes O(K) for each value: a 64-bit draw,
    compared with p·2⁶⁴ rounded down, decides on the own category; then each other category is a member with probability
    (members still missing)/(categories still left).

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.
        subset_size: ω, from 1 to K − 1. None chooses the size of least error, near K/(e^ε+1). For a traced ε, rates and
            `collect` work with None, but reports need ω.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.SubsetSelection(num_categories=8, epsilon=1.0)
        >>> mechanism.subset_size, f"{mechanism.rates.p:.3f} {mechanism.rates.q:.3f}"
        (2, '0.475 0.218')
        >>> reports = mechanism.randomize(jax.random.key(0), [0, 0, 5, 7])
        >>> reports.shape, int(mechanism.tally(reports).num_users)
        ((4, 2), 4)

    References:
        Ye and Barg, "Optimal schemes for discrete distribution estimation under locally differential privacy", 2018:
        arXiv:1702.00610; Wang et al., "Mutual information optimally local private discrete distribution estimation",
        2016: arXiv:1607.08025.
    """

    name: ClassVar[str] = "subset-selection"
    same_size: ClassVar[bool] = True
    subset_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        size = subset_size_of(self.subset_size, self.num_categories, known_epsilon(self.epsilon))
        object.__setattr__(self, "subset_size", size)

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        e1 = expm1(self.epsilon)
        return subset_rates(self.num_categories, self._size(e1), e1)

    @property
    def _settled(self) -> int:
        return settled(self.subset_size, "subset_size")

    @property
    def bits(self) -> float:
        number, size = self.num_categories, self._settled
        return (math.lgamma(number + 1) - math.lgamma(size + 1) - math.lgamma(number - size + 1)) / math.log(2)

    @property
    def note(self) -> str:
        return f"subsets of {self._settled:,}"

    def server_operations(self, num_users: float) -> float:
        return num_users * self._settled + self.num_categories

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s w"]:
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        return _randomize(self, key, unsharded(values), self._settled)

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        return _members(self._checked(reports), self.num_categories)

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        ordered = jnp.sort(reports, axis=-1)
        different = jnp.all(ordered[..., 1:] != ordered[..., :-1], axis=-1)
        return different & (ordered[..., 0] >= 0) & (ordered[..., -1] < self.num_categories)

    def log_probability(self, reports: Array) -> Float[Array, ""]:
        del reports
        number, size = self.num_categories, self._settled
        holding = math.lgamma(number) - math.lgamma(size) - math.lgamma(number - size + 1)
        return log_probability_of_block(self.epsilon, number / size, holding)

    def tally(self, reports: ArrayLike) -> Tally:
        sound, reports = self._sound(reports), self._checked(reports)
        counts = jnp.bincount(reports.ravel(), length=self.num_categories).astype(int_dtype())
        number = jnp.asarray(reports.size // reports.shape[-1], int_dtype())
        return tally_if(sound, counts, number, self.rates)

    def mixture(self, reports: ArrayLike) -> Mixture:
        reports = self._checked(reports)
        if isinstance(reports, Tracer) or not SPARSE_RATIO * reports.shape[-1] <= self.num_categories:
            return super().mixture(reports)
        members = np.sort(np.asarray(reports).reshape(-1, reports.shape[-1]), axis=1)
        different, weights = np.unique(members, axis=0, return_counts=True)
        one, odds = scaled_odds(self.expm1_epsilon)
        return Mixture(jnp.asarray(weights, int_dtype()), one, Sparse.of(different, self.num_categories, odds))

    def simulated(self, key: Array, values: Int[Array, " N"]) -> Bool[Array, "N K"]:
        wanted, member = _steps(self, key, values, self._size(self.expm1_epsilon))
        return lax.scan(member, wanted, jnp.arange(self.num_categories, dtype=jnp.int32))[1].T

    def _size(self, e1):
        """ω: the given one, or the best for e^ε − 1, which may be traced."""
        if self.subset_size is not None:
            return self.subset_size
        return best_subset_size(self.num_categories, e1, jnp if isinstance(e1, jax.Array) else np)

    def _checked(self, reports):
        size = self._settled
        reports = reports if isinstance(reports, jax.Array) else np.asarray(reports)
        reports = check_integers(reports, self.num_categories, "reports")
        if reports.ndim == 0 or reports.shape[-1] != size:
            raise ArgumentError.about(
                "reports", f"must have shape [N, {size}], the members of a subset each; got {tuple(reports.shape)}"
            )
        if not isinstance(reports, Tracer) and reports.size:
            with jax.ensure_compile_time_eval():
                check_in_domain(reports, self.num_categories, "reports")
                ordered = np.sort(np.asarray(reports).reshape(-1, size), axis=1)
            twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
            if twice.size:
                raise ArgumentError(
                    f"report {twice[0]} names a category twice: {ordered[twice[0]].tolist()}; a subset has {size} "
                    "different members",
                    argument="reports",
                )
        return unsharded(jnp.asarray(reports))


def _members(reports, number):
    flat = reports.reshape(-1, reports.shape[-1])
    rows = jnp.arange(flat.shape[0], dtype=jnp.int32)[:, None]
    there = jnp.zeros((flat.shape[0], number), bool).at[rows, flat].set(True, mode="drop", wrap_negative_indices=False)
    return there.reshape(*reports.shape[:-1], number)


def _steps(mechanism, key, values, size):
    """A scan over the categories: the number of members to draw, and the step that decides on one category."""
    number = mechanism.num_categories
    key, values = refuse_spread((key, values), "SubsetSelection")
    first, others = jax.random.split(key)
    high, low = jax.random.bits(first, (2, values.shape[0]), jnp.uint32)
    own = below((high, low), rounded_down(mechanism.rates.p))
    wanted = jnp.asarray(size).astype(jnp.uint32) - own.astype(jnp.uint32)
    stream, place = Stream.of(others), jnp.arange(values.shape[0], dtype=jnp.uint32)
    values = values.astype(jnp.int32)  # the caller marks values outside the domain

    def member(wanted, category):
        holds = values == category
        remaining = jnp.uint32(number - 1) - category.astype(jnp.uint32) + (values < category).astype(jnp.uint32)
        there = jnp.where(holds, own, number_below(stream.pair(place, category), remaining) < wanted)
        return wanted - (there & ~holds).astype(jnp.uint32), there

    return wanted, member


@partial(jax.jit, static_argnums=3)
def _randomize(mechanism, key, values, size):
    flat = values.ravel()
    wanted, member = _steps(mechanism, key, flat.astype(jnp.int32), size)
    place = jnp.arange(flat.shape[0], dtype=jnp.int32)

    def step(state, category):
        wanted, taken, reports = state
        wanted, there = member(wanted, category)
        slot = jnp.where(there, taken, size)  # the slot beyond the end is dropped
        return (wanted, taken + there.astype(jnp.int32), reports.at[place, slot].set(category, mode="drop")), None

    start = wanted, jnp.zeros_like(place), jnp.full((flat.shape[0], size), -1, jnp.int32)
    categories = jnp.arange(mechanism.num_categories, dtype=jnp.int32)
    (_, _, reports), _ = lax.scan(step, with_sharding_of(start, flat, key), categories)
    usable = (flat >= 0) & (flat < mechanism.num_categories) & (mechanism.rates.truth > 0)
    return jnp.where(usable[:, None], reports, -1).reshape(*values.shape, size)
