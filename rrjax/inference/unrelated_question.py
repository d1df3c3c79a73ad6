"""Estimates from two samples that answer a sensitive or an unrelated question, both of unknown shares."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from rrjax.inference.two_samples import as_samples, fitted, if_usable
from rrjax.mechanisms.surveys.two_samples import UnrelatedQuestionTwoSamples
from rrjax.numerics.pytrees import exportable


@exportable
class UnrelatedQuestionEstimate(NamedTuple):
    """The result of `unrelated_question`; all scalars.

    Attributes:
        share: The share π with the sensitive attribute.
        standard_error: Its standard error; NaN at the boundary.
        lower: Limit of its profile likelihood interval.
        upper: The other limit.
        unrelated: The share u that says yes to the unrelated question.
        unrelated_error: Its standard error; NaN at the boundary.
        misfit: G², the statistic of the test of fit: twice the log-likelihood of the two counted shares of yes, less
            that of the estimate.
        fit_p_value: Of the hypothesis that the design, with any shares, made the answers.
        swapped_p_value: The same, with the two samples exchanged.
    """

    share: Float[Array, ""]
    standard_error: Float[Array, ""]
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    unrelated: Float[Array, ""]
    unrelated_error: Float[Array, ""]
    misfit: Float[Array, ""]
    fit_p_value: Float[Array, ""]
    swapped_p_value: Float[Array, ""]


def unrelated_question(
    counts: ArrayLike, design: UnrelatedQuestionTwoSamples, *, level: ArrayLike = 0.95
) -> UnrelatedQuestionEstimate:
    """Estimates a sensitive share and the unknown share of a yes to the unrelated question, from two samples.

    The answers of a sample are binomial with P(yes) = truth·π + (1 − truth)·u. The maximum likelihood is on the square
    of π and u. The limits are those of the profile likelihood. The samples must be of different respondents: the
    covariance of two answers of one respondent needs the share with both attributes, which these answers do not
    identify.

    The test of fit compares the likelihood of the two counted shares of yes with that of the estimate. Its statistic is
    zero inside of the square; on a side its null law is ½·χ²₀ + ½·χ²₁, and at a corner a mixture of χ²₀, χ²₁ and χ²₂.
    The p-value is that of χ² with as many degrees of freedom as sides meet at the estimate. Given these, it is valid
    wherever the truth lies. Counts are corrected for continuity (Yates), so it is conservative: the size is at most
    0.04 at 0.05 (`validation/two_samples.py`).

    The 95 % intervals cover 0.929 or more for 25 to 200 respondents in each sample, but 0.84 to 0.93 if fewer than four
    yes, or few no, are expected in both samples together: where no yes at all is likely, no interval can cover more.

    Args:
        counts: `[2, 2]`, integers: the numbers of yes and no in each sample, in the order of the design's `truth`.
        design: The probabilities of the sensitive question.
        level: Scalar in (0, 1), of the interval.

    Returns:
        An `UnrelatedQuestionEstimate`. All NaN for unusable counts. `jit`, `vmap`.

    Raises:
        ValueError: A wrong shape, counts that are not integers, a level outside (0, 1), or nearly equal `truth`.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.UnrelatedQuestionTwoSamples(truth=[0.7, 0.3])
        >>> found = rrjax.inference.unrelated_question([[260, 740], [340, 660]], design)
        >>> f"{found.share:.3f} ± {found.standard_error:.3f}, {found.lower:.3f} to {found.upper:.3f}"
        '0.200 ± 0.027, 0.148 to 0.253'

    References:
        Greenberg, Abul-Ela, Simmons and Horvitz, "The unrelated question randomized response model: theoretical
        framework", Journal of the American Statistical Association 64, 1969; Susko, "Likelihood ratio tests with
        boundary constraints using data-dependent degrees of freedom", Biometrika 100, 2013.
    """
    fit = fitted(as_samples(counts, design, UnrelatedQuestionTwoSamples, "UnrelatedQuestionTwoSamples"), design, level)
    errors = jnp.sqrt(jnp.diag(fit.covariance))
    shares = fit.share, errors[0], fit.lower, fit.upper, fit.point[1], errors[1]
    tests = fit.misfit, fit.fit_p_value, fit.swapped_p_value
    return if_usable(UnrelatedQuestionEstimate(*shares, *tests), fit.usable)
