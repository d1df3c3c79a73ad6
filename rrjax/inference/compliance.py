"""Estimates from surveys in which an unknown share of the respondents does not follow the rules."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_counts, as_probability, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.surveys.compliance import Compliance
from rrjax.numerics.bisection import bisected
from rrjax.numerics.pytrees import exportable

STEPS = 44
"""Bisection steps; more than the bits of a float32, and as precise as the statistics need in float64."""


@exportable
class ComplianceEstimate(NamedTuple):
    """The result of `compliance`; all scalars but `kinds`.

    Attributes:
        share: The share with the sensitive attribute: of those who comply, or of all, as the design says.
        standard_error: Its standard error by the delta method; NaN at the boundary.
        lower: Limit of its profile likelihood interval.
        upper: The other limit.
        not_complying: The share of respondents who do not comply.
        not_complying_error: Its standard error; NaN at the boundary.
        p_value: Of the hypothesis that all comply: half the tail of χ² with one degree of freedom, because the share
            cannot be negative.
        naive: The share as if all complied, from the first sample alone; not confined to [0, 1].
        kinds: `[3]`, the shares of the three kinds of respondents.
    """

    share: Float[Array, ""]
    standard_error: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    not_complying: Float[Array, ""]
    not_complying_error: Float[Array, ""]
    p_value: Float[Array, ""]
    naive: Float[Array, ""]
    kinds: Float[Array, " 3"]


def compliance(
    counts: ArrayLike, design: Compliance, *, level: ArrayLike = 0.95, same_people: bool = False
) -> ComplianceEstimate:
    """Estimates a sensitive share and the share of respondents who do not comply, from two samples.

    The answers of a sample are binomial, with P(yes) a mean over the three kinds of respondents. Two samples with
    different parameters identify the kinds' shares; the maximum likelihood is on the simplex of these. The limits are
    those of the profile likelihood.

    Args:
        counts: `[2, 2]`, integers: the numbers of yes and no in each sample, in the order of the design's parameters.
        design: Such as `AnchoredCrosswise` or `CheatingDetection`, of `rrjax.mechanisms`.
        level: Scalar in (0, 1), of the interval.
        same_people: Whether both samples are the same respondents, answering independently given their kind. It changes
            the standard errors; the interval is that of two samples.

    Returns:
        A `ComplianceEstimate`. All NaN for unusable counts. `jit`, `vmap`.

    Raises:
        ValueError: A wrong shape, counts that are not integers, a level outside (0, 1), or a design whose parameters do
            not identify who complies.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.AnchoredCrosswise(innocuous=0.15, anchor=0.15)
        >>> counts = [[1427, 573], [1541, 459]]  # "both or neither" and others; sensitive and anchor question
        >>> apart, same = (rrjax.inference.compliance(counts, design, same_people=each) for each in (False, True))
        >>> f"{apart.share:.4f} ± {apart.standard_error:.4f}, or ± {same.standard_error:.4f}"
        '0.1054 ± 0.0232, or ± 0.0222'

    References:
        Self and Liang, "Asymptotic properties of maximum likelihood estimators and likelihood ratio tests under
        nonstandard conditions", 1987, for the test.
    """
    if not isinstance(design, Compliance):
        message = f"design must be one of two samples, such as AnchoredCrosswise, got {design!r}"
        raise ArgumentError(message, argument="design")
    given = jnp.asarray(counts)
    if given.shape != (2, 2):
        raise ArgumentError(
            f"counts must have shape [2, 2], the numbers of yes and no in both samples, got {given.shape}",
            argument="counts",
        )
    rows = jnp.stack([as_counts(row, "counts", whole=True) for row in given])
    level = as_probability(level, "level", 0.95)
    return _fitted(rows.astype(float_dtype()), design.yes, level, design.share, same_people)


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


def _segment(share, kind):
    """The ends of the kinds' shares with a given share of the attribute."""
    one = jnp.ones_like(share)
    if kind == "all":  # kind 2 has the attribute
        return jnp.stack([share, one - share, 0 * one]), jnp.stack([0 * one, one - share, share])
    if kind == "least":  # kind 0 is the share
        return jnp.stack([share, one - share, 0 * one]), jnp.stack([share, 0 * one, one - share])
    return jnp.stack([share, one - share, 0 * one]), jnp.stack([0 * one, 0 * one, one])


def _share_of(kinds, kind):
    if kind == "all":
        return kinds[0] + kinds[2]
    return kinds[0] if kind == "least" else kinds[0] / (kinds[0] + kinds[1])


@partial(jax.jit, static_argnums=(3, 4))
def _fitted(counts, yes, level, kind, same_people):
    usable = jnp.all(counts >= 0) & jnp.all(jnp.sum(counts, axis=1) > 0) & (level > 0) & (level < 1)
    counts = jnp.where(usable, counts, 1)
    survey = _Survey(counts[:, 0], counts[:, 1], yes)
    number = jnp.sum(counts, axis=1)
    matrix = jnp.concatenate([yes, jnp.ones_like(yes[:1])])
    inverse = jnp.linalg.inv(matrix)
    inner = inverse @ jnp.append(survey.said / number, 1)
    corners = jnp.eye(3, dtype=yes.dtype)
    edges = jnp.stack([survey.along(corners[first], corners[second]) for first, second in ((0, 1), (0, 2), (1, 2))])
    values = jax.vmap(survey.value)(edges)
    best = edges[jnp.argmax(values)]
    inside = jnp.all(inner > 0)
    kinds = jnp.where(inside, inner, best)
    top = survey.value(kinds)

    def covariance():
        chance = yes @ kinds
        both = jnp.diag(chance * (1 - chance) / number)
        if same_people:
            shared = jnp.sum(kinds * yes[0] * yes[1]) - chance[0] * chance[1]
            both = both + (1 - jnp.eye(2, dtype=yes.dtype)) * shared / jnp.sqrt(number[0] * number[1])
        return inverse[:, :2] @ both @ inverse[:, :2].T

    spread, slope = covariance(), jax.grad(_share_of)(kinds, kind)
    errors = jnp.sqrt(jnp.stack([slope @ spread @ slope, spread[2, 2]]))
    errors = jnp.where(inside, errors, jnp.nan)

    half = ndtri((1 + level) / 2) ** 2 / 2

    def below(share):
        return survey.value(survey.along(*_segment(share, kind))) < top - half

    share = _share_of(kinds, kind)
    lowest, _ = bisected(below, jnp.zeros_like(share), share, STEPS)
    _, highest = bisected(lambda x: ~below(x), share, jnp.ones_like(share), STEPS)
    lower = jnp.where(below(jnp.zeros_like(share)), lowest, 0)
    upper = jnp.where(below(jnp.ones_like(share)), highest, 1)
    ratio = jnp.maximum(2 * (top - values[0]), 0)  # the edge without kind 2
    p_value = jnp.where(kinds[2] > 0, ndtr(-jnp.sqrt(ratio)), 1)
    naive = (survey.said[0] / number[0] - yes[0, 1]) / (yes[0, 0] - yes[0, 1])
    found = ComplianceEstimate(share, errors[0], lower, upper, kinds[2], errors[1], p_value, naive, kinds)
    return jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), found)
