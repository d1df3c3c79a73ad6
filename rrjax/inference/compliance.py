"""Estimates from surveys in which an unknown share of the respondents does not follow the rules."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, ArrayLike, Float

from rrjax.inference.two_samples import as_samples, fitted, if_usable
from rrjax.mechanisms.surveys.compliance import Compliance
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
    rows = as_samples(counts, design, Compliance, "AnchoredCrosswise")
    return _result(rows, design.yes, fitted(rows, design, level), same_people)


@partial(jax.jit, static_argnums=3)
def _result(counts, yes, fit, same_people):
    kinds, number = fit.point, jnp.sum(counts, axis=1)
    spread = fit.covariance
    if same_people:
        chance = yes @ kinds
        shared = jnp.sum(kinds * yes[0] * yes[1]) - chance[0] * chance[1]
        both = (1 - jnp.eye(2, dtype=yes.dtype)) * shared / jnp.sqrt(number[0] * number[1])
        spread = spread + fit.inverse[:, :2] @ both @ fit.inverse[:, :2].T
    errors = jnp.sqrt(jnp.stack([fit.slope @ spread @ fit.slope, spread[2, 2]]))
    ratio = jnp.maximum(2 * (fit.top - fit.sides[0]), 0)  # the side without kind 2
    p_value = jnp.where(kinds[2] > 0, ndtr(-jnp.sqrt(ratio)), 1)
    naive = (counts[0, 0] / number[0] - yes[0, 1]) / (yes[0, 0] - yes[0, 1])
    found = ComplianceEstimate(fit.share, errors[0], fit.lower, fit.upper, kinds[2], errors[1], p_value, naive, kinds)
    return if_usable(found, fit.usable)
