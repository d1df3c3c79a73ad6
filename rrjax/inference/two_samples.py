r"""The maximum likelihood estimate of a design of two samples, on its region, and profile likelihood intervals.

Test of fit: the statistic is G², twice the log-likelihood of the two counted shares of yes less that of the best point
of the region. At a point inside of the region G² tends to zero, on a side to ½·χ²₀ + ½·χ²₁, and at a corner to a
mixture of χ²₀, χ²₁ and χ²₂ whose weights depend on its angle. Given the side or corner at which the estimate lies, the
law of G² is at most that of χ² with one or two degrees of freedom, wherever the true point lies and however small the
region is. So this p-value has at most its nominal size. Each count is moved by at most half a report towards its
expectation (Yates), because the counts of small samples are discrete.

References:
    Susko, "Likelihood ratio tests with boundary constraints using data-dependent degrees of freedom", Biometrika 100,
    2013.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_counts, as_probability, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.surveys.two_samples import Region, TwoSamples
from rrjax.numerics.bisection import bisected
from rrjax.numerics.products import matmul
from rrjax.numerics.sharding import aligned, refuse_spread

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
        edges: `[S, 3]`, the maximum on each side of the region.
        values: `[S]`, the log-likelihoods there, less that of the counted shares of yes.
        misfit: G², the statistic of the test of fit.
        fit_p_value: Its p-value.
        swapped_p_value: That of the samples in the other order.
        inverse: `[3, 3]`, of the matrix of the probabilities of yes and the sum.
        usable: Whether the counts and the level are.
    """

    point: Float[Array, " 3"]
    share: Float[Array, ""]
    slope: Float[Array, " 3"]
    covariance: Float[Array, "3 3"]
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    edges: Float[Array, "S 3"]
    values: Float[Array, " S"]
    misfit: Float[Array, ""]
    fit_p_value: Float[Array, ""]
    swapped_p_value: Float[Array, ""]
    inverse: Float[Array, "3 3"]
    usable: Bool[Array, ""]


class _Survey(NamedTuple):
    """Numbers of yes and no `[2]` each, and the probabilities of yes `[2, 3]`."""

    said: Float[Array, " 2"]
    denied: Float[Array, " 2"]
    yes: Float[Array, "2 3"]

    def value(self, kinds):
        """The log-likelihood, less that of the counted shares of yes: so large samples do not cancel."""
        number = self.said + self.denied
        off = matmul(self.yes, kinds) - self.said / number

        def gain(count, off):
            some = count > 0
            return jnp.where(some, count * jnp.log1p(jnp.maximum(off * number / jnp.where(some, count, 1), -1)), 0)

        return jnp.sum(gain(self.said, off) + gain(self.denied, -off))

    def along(self, start, end):
        """The point of the segment with the largest log-likelihood, which is concave."""
        step = matmul(self.yes, end - start)

        def rising(part):
            chance = matmul(self.yes, start + part * (end - start))
            slope = jnp.where(self.said > 0, self.said * step / chance, 0)
            return jnp.sum(slope - jnp.where(self.denied > 0, self.denied * step / (1 - chance), 0)) > 0

        start, end = aligned((start, end), self)
        one = jnp.ones_like(start[0])
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
    given = refuse_spread(jnp.asarray(counts), "the maximum likelihood of two samples")
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


class _Maximum(NamedTuple):
    """The maximum, whether it is inside of the region, and the test of fit; edges and values as in `Fit`."""

    point: Float[Array, " 3"]
    inside: Bool[Array, ""]
    misfit: Float[Array, ""]
    p_value: Float[Array, ""]
    edges: Float[Array, "S 3"]
    values: Float[Array, " S"]


def is_at(point: Float[Array, " 3"], corners: Float[Array, "*s 3"]) -> Bool[Array, "*s"]:
    """Whether a maximum is at a corner, up to rounding; the p-values there are the larger ones."""
    return jnp.all(jnp.abs(point - corners) < 64 * jnp.finfo(point.dtype).eps + 4 * 0.5**STEPS, axis=-1)


def _inverse(yes):
    return jnp.linalg.inv(jnp.concatenate([yes, jnp.ones_like(yes[:1])]))


def _maximum(survey: _Survey, region: Region) -> _Maximum:
    corners, walls = (jnp.asarray(part, survey.yes.dtype) for part in (region.corners, region.walls))
    number = survey.said + survey.denied
    inner = matmul(_inverse(survey.yes), jnp.append(survey.said / number, 1))
    edges = jnp.stack([survey.along(corners[first], corners[second]) for first, second in region.sides])
    values = jax.vmap(survey.value)(edges)
    inside = jnp.all(matmul(walls, inner) > 0)
    point = jnp.where(inside, inner, edges[jnp.argmax(values)])
    misfit = jnp.where(inside, 0, jnp.maximum(-2 * jnp.max(values), 0))
    said = survey.said + jnp.clip(number * matmul(survey.yes, point) - survey.said, -0.5, 0.5)
    moved = jnp.maximum(-2 * survey._replace(said=said, denied=number - said).value(point), 0)
    p_value = jnp.where(jnp.any(is_at(point, corners)), jnp.exp(-moved / 2), 2 * ndtr(-jnp.sqrt(moved)))
    return _Maximum(point, inside, misfit, jnp.where(inside, 1, p_value), edges, values)


@partial(jax.jit, static_argnums=3)
def _fitted(counts, yes, level, region: Region):
    usable = jnp.all(counts >= 0) & jnp.all(jnp.sum(counts, axis=1) > 0) & (level > 0) & (level < 1)
    counts = jnp.where(usable, counts, 1)
    survey = _Survey(counts[:, 0], counts[:, 1], yes)
    best, swapped = _maximum(survey, region), _maximum(survey._replace(yes=yes[::-1]), region)
    point, number, inverse = best.point, jnp.sum(counts, axis=1), _inverse(yes)
    corners, sums = (jnp.asarray(part, yes.dtype) for part in (region.corners, region.share))

    def share_of(point):
        part, whole = matmul(sums, point)
        return part / whole

    chance = matmul(yes, point)
    spread = matmul(inverse[:, :2], jnp.diag(chance * (1 - chance) / number), inverse[:, :2].T)
    lost = (best.misfit + ndtri((1 + level) / 2) ** 2) / 2

    def below(share):
        start, end = ((1 - share) * corners[first] + share * corners[last] for first, last in region.ends)
        return survey.value(survey.along(start, end)) < -lost

    share, slope = jax.value_and_grad(share_of)(point)
    none, all_ = jnp.zeros_like(share), jnp.ones_like(share)
    lowest, _ = bisected(below, none, share, STEPS)
    _, highest = bisected(lambda x: ~below(x), share, all_, STEPS)
    lower, upper = jnp.where(below(none), lowest, 0), jnp.where(below(all_), highest, 1)
    spread = jnp.where(best.inside, spread, jnp.nan)
    tests = best.misfit, best.p_value, swapped.p_value
    return Fit(point, share, slope, spread, lower, upper, best.edges, best.values, *tests, inverse, usable)


def if_usable(result: Any, usable: Bool[Array, ""]) -> Any:
    """A result, all NaN unless the counts are usable."""
    return jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), result)
