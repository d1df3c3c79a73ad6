"""The maximum likelihood estimate of a design of two samples, on its region, and profile likelihood intervals."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_counts, as_probability, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.surveys.two_samples import Region, TwoSamples
from rrjax.numerics.bisection import bisected

STEPS = 44
"""Bisection steps; more than the bits of a float32, and as precise as the statistics need in float64."""


class Fit(NamedTuple):
    """The result of `fitted`.

    Attributes:
        point: `[3]`, the maximum k.
        share: The share with the attribute there.
        slope: `[3]`, its gradient in k.
        covariance: `[3, 3]`, of k for two independent samples; NaN at the boundary.
        lower: Limit of the profile likelihood interval of the share.
        upper: The other limit.
        top: The log-likelihood at the maximum.
        sides: The largest log-likelihood on each side of the region.
        inverse: `[3, 3]`, of the matrix of the probabilities of yes and the sum.
        usable: Whether the counts and the level are.
    """

    point: Float[Array, " 3"]
    share: Float[Array, ""]
    slope: Float[Array, " 3"]
    covariance: Float[Array, "3 3"]
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    top: Float[Array, ""]
    sides: Float[Array, " S"]
    inverse: Float[Array, "3 3"]
    usable: Bool[Array, ""]


class _Survey(NamedTuple):
    """Numbers of yes and no `[2]` each, and the probabilities of yes `[2, 3]`."""

    said: Float[Array, " 2"]
    denied: Float[Array, " 2"]
    yes: Float[Array, "2 3"]

    def value(self, kinds):
        """The log-likelihood."""
        chance = self.yes @ kinds
        terms = jnp.where(self.said > 0, self.said * jnp.log(chance), 0)
        return jnp.sum(terms + jnp.where(self.denied > 0, self.denied * jnp.log1p(-chance), 0))

    def along(self, start, end):
        """The point of the segment with the largest log-likelihood, which is concave."""
        step = self.yes @ (end - start)

        def rising(part):
            chance = self.yes @ (start + part * (end - start))
            slope = jnp.where(self.said > 0, self.said * step / chance, 0)
            return jnp.sum(slope - jnp.where(self.denied > 0, self.denied * step / (1 - chance), 0)) > 0

        one = jnp.ones((), start.dtype)
        low, high = bisected(rising, 0 * one, one, STEPS)
        part = (low + high) / 2
        # An end that is the maximum is met exactly.
        part = jnp.where(rising(one), 1, jnp.where(rising(0 * one), part, 0))
        return start + part * (end - start)


def as_samples(counts: ArrayLike, design: Any, kind: type[TwoSamples], example: str) -> Float[Array, "2 2"]:
    """The numbers of yes and no in both samples.

    Raises:
        ValueError: Another design than one of this kind, a wrong shape, or counts that are not integers.
    """
    if not isinstance(design, kind):
        message = f"design must be one of two samples, such as {example}, got {design!r}"
        raise ArgumentError(message, argument="design")
    given = jnp.asarray(counts)
    if given.shape != (2, 2):
        raise ArgumentError.about(
            "counts", f"must have shape [2, 2], the numbers of yes and no in both samples, got {given.shape}"
        )
    return jnp.stack([as_counts(row, "counts", whole=True) for row in given]).astype(float_dtype())


def fitted(counts: Float[Array, "2 2"], design: TwoSamples, level: ArrayLike) -> Fit:
    """The maximum likelihood estimate and the interval of the share at a level.

    Raises:
        ValueError: A level outside (0, 1), or a design whose parameters do not identify the shares.
    """
    return _fitted(counts, design.yes, as_probability(level, "level", 0.95), design.region)


@partial(jax.jit, static_argnums=3)
def _fitted(counts, yes, level, region: Region):
    usable = jnp.all(counts >= 0) & jnp.all(jnp.sum(counts, axis=1) > 0) & (level > 0) & (level < 1)
    counts = jnp.where(usable, counts, 1)
    survey = _Survey(counts[:, 0], counts[:, 1], yes)
    number = jnp.sum(counts, axis=1)
    corners, walls, sums = (jnp.asarray(part, yes.dtype) for part in (region.corners, region.walls, region.share))
    inverse = jnp.linalg.inv(jnp.concatenate([yes, jnp.ones_like(yes[:1])]))
    inner = inverse @ jnp.append(survey.said / number, 1)
    edges = jnp.stack([survey.along(corners[first], corners[second]) for first, second in region.sides])
    values = jax.vmap(survey.value)(edges)
    inside = jnp.all(walls @ inner > 0)
    point = jnp.where(inside, inner, edges[jnp.argmax(values)])
    top = survey.value(point)

    def share_of(point):
        part, whole = sums @ point
        return part / whole

    chance = yes @ point
    spread = inverse[:, :2] @ jnp.diag(chance * (1 - chance) / number) @ inverse[:, :2].T
    half = ndtri((1 + level) / 2) ** 2 / 2

    def below(share):
        start, end = ((1 - share) * corners[first] + share * corners[last] for first, last in region.ends)
        return survey.value(survey.along(start, end)) < top - half

    share, slope = jax.value_and_grad(share_of)(point)
    none, all_ = jnp.zeros_like(share), jnp.ones_like(share)
    lowest, _ = bisected(below, none, share, STEPS)
    _, highest = bisected(lambda x: ~below(x), share, all_, STEPS)
    lower, upper = jnp.where(below(none), lowest, 0), jnp.where(below(all_), highest, 1)
    spread = jnp.where(inside, spread, jnp.nan)
    return Fit(point, share, slope, spread, lower, upper, top, values, inverse, usable)


def if_usable(result: Any, usable: Bool[Array, ""]) -> Any:
    """A result, all NaN unless the counts are usable."""
    return jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), result)
