"""Estimates from surveys in which an unknown share of the respondents does not follow the rules."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, ArrayLike, Float

from rrjax.inference.two_samples import as_samples, fitted, if_usable, is_at
from rrjax.mechanisms.surveys.compliance import Compliance
from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import exportable


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
        p_value: Of the hypothesis that all comply.
        naive: The share as if all complied: its maximum likelihood estimate from both samples.
        misfit: G², the statistic of the test of fit: twice the log-likelihood of the two counted shares of yes, less
            that of the estimate.
        fit_p_value: Of the hypothesis that the design, with any shares, made the answers.
        swapped_p_value: The same, with the two samples exchanged.
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
    misfit: Float[Array, ""]
    fit_p_value: Float[Array, ""]
    swapped_p_value: Float[Array, ""]
    kinds: Float[Array, " 3"]


def compliance(
    counts: ArrayLike, design: Compliance, *, level: ArrayLike = 0.95, same_people: bool = False
) -> ComplianceEstimate:
    """Estimates a sensitive share and the share of respondents who do not comply, from two samples.

    The answers of a sample are binomial, with P(yes) a mean over the three kinds of respondents. Two samples with
    different parameters identify the kinds' shares; the maximum likelihood is on the simplex of these. The limits are
    those of the profile likelihood.

    The test that all comply is a likelihood ratio test. The share of those who do not comply cannot be negative, so the
    null law is half that of χ²₁ if the best point without them has both other kinds. If it has one kind only, both
    shares are at the boundary, and the law depends on the angle ω between the sides that meet there, in the metric of
    the information: P(T ≥ t) = ½·P(χ²₁ ≥ t) + max(ω − π/2, 0)/π·P(χ²₂ ≥ t). Given which of the two it is, this is an
    upper bound of the tail wherever the truth lies. T is corrected for continuity by half of the smallest step that one
    report can make. The size is at most 0.053 at 0.05, and 0.011 at 0.01, for 25 respondents or more in each sample of
    the designs in `validation/two_samples.py`, also if nobody or few have the attribute. It is larger with a second
    sample of 25 to 40 beside a first one that is several times larger, 0.062 at 0.05 for `SelfProtection([0.8, 0.4],
    0.5)`, a share of zero, 200 and 25 respondents; and if fewer than five yes, or no, are expected in a sample, 0.080
    at 0.05 for `SelfProtection([0.95, 0.3], 0.1)`, a share of 0.05 and 25 in each sample. The test of fit is that of
    `rrjax.inference.unrelated_question`. Both tests are conservative for the same people, whose answers are positively
    correlated.

    The 95 % intervals cover 0.934 or more there, with one exception: 0.92 for `StochasticLieDetector` if nobody has the
    attribute. They cover less for shares near one and if most do not comply: 0.863 for `CheatingDetection([0.25,
    0.75])` if 97.5 % have the attribute, with 80 in each sample.

    Args:
        counts: `[2, 2]`, integers: the numbers of yes and no in each sample, in the order of the design's parameters.
        design: Such as `AnchoredCrosswise` or `CheatingDetection`, of `rrjax.mechanisms`.
        level: Scalar in (0, 1), of the interval.
        same_people: Whether both samples are the same respondents, answering independently given their kind; where
            some left out one answer, all of the smaller sample are taken to be in the larger one. It changes the
            standard errors; the interval is that of two samples.

    Returns:
        A `ComplianceEstimate`. All NaN for unusable counts; the share is NaN if nobody complies. `jit`, `vmap`.

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
        nonstandard conditions", 1987, and Susko, "Likelihood ratio tests with boundary constraints using data-dependent
        degrees of freedom", Biometrika 100, 2013, for the tests.
    """
    rows = as_samples(counts, design, Compliance, "AnchoredCrosswise")
    return _result(rows, design.yes, fitted(rows, design, level), same_people)


@partial(jax.jit, static_argnums=3)
def _result(counts, yes, fit, same_people):
    kinds, number = fit.point, jnp.sum(counts, axis=1)
    spread = fit.covariance
    if same_people:
        chance = matmul(yes, kinds)
        shared = jnp.sum(kinds * yes[0] * yes[1]) - chance[0] * chance[1]
        both = (1 - jnp.eye(2, dtype=yes.dtype)) * shared / jnp.max(number)
        spread = spread + matmul(fit.inverse[:, :2], both, fit.inverse[:, :2].T)
    errors = jnp.sqrt(jnp.stack([matmul(fit.slope, spread, fit.slope), spread[2, 2]]))
    p_value = jnp.where(kinds[2] > 0, _all_comply(number, yes, fit), 1)
    shares = fit.share, errors[0], fit.lower, fit.upper, kinds[2], errors[1]
    tests = fit.misfit, fit.fit_p_value, fit.swapped_p_value
    return if_usable(ComplianceEstimate(*shares, p_value, fit.edges[0, 0], *tests, kinds), fit.usable)


def _all_comply(number, yes, fit):
    """The p-value of the hypothesis that there is no kind 2, from the likelihood ratio."""
    without = fit.edges[0]  # the estimate without kind 2
    chance = matmul(yes, without)
    variance = chance * (1 - chance) / number
    variance = jnp.where(variance > 0, variance, 1)
    root = jnp.sqrt(jnp.maximum(-2 * fit.values[0] - fit.misfit, 0))
    # The share of kind 2 that solves both equations is a weighted sum of the shares of yes. One report moves it by a
    # weight / N; half of the smallest such step is the correction for continuity. A weight of zero has rounding.
    weights = jnp.abs(fit.inverse[2, :2])
    steps = jnp.where(weights > 1e-4 * jnp.max(weights), weights / number, jnp.inf)
    root = jnp.maximum(root - jnp.min(steps) / 2 / jnp.sqrt(matmul(weights**2, variance)), 0)
    # At a corner, `along` leads to the other end of the side, and `away` to kind 2.
    along, away = yes[:, 0] + yes[:, 1] - 2 * chance, yes[:, 2] - chance
    lengths = jnp.sqrt(jnp.sum(along**2 / variance) * jnp.sum(away**2 / variance))
    beyond = jnp.arcsin(jnp.clip(-jnp.sum(along * away / variance) / lengths, 0, 1))  # angle above 90°
    at_corner = jnp.any(is_at(without, jnp.eye(3, dtype=yes.dtype)))
    return ndtr(-root) + jnp.where(at_corner, beyond / jnp.pi * jnp.exp(-(root**2) / 2), 0)
