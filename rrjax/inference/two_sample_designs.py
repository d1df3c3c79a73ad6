"""Estimates from two samples that identify two unknown shares, by maximum likelihood on the region of the design.

Test of fit: given the side or corner of the region at which the estimate lies, the law of G² is at most that of χ² with
one or two degrees of freedom, wherever the true point lies and however small the region is (Susko, 2013). Each count is
moved by at most half a report towards its expectation (Yates), because the counts of small samples are discrete.
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
from rrjax.mechanisms.surveys.two_sample_designs import Compliance, Region, TwoSamples, UnrelatedQuestionTwoSamples
from rrjax.numerics.products import matmul
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import refuse_spread, with_sharding_of
from rrjax.numerics.solvers import bisected, without_derivative

NO_DERIVATIVES = "an estimate from two samples has no derivatives, because it is searched for: take differences of two"
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
    at 0.05 for `SelfProtection([0.95, 0.3], 0.1)`, a share of 0.05 and 25 in each sample. Where both hold it was 0.133:
    the same design, a share of 0.02, 200 and 25. The test of fit is that of `rrjax.inference.unrelated_question`. Both
    tests are conservative for the same people, whose answers are positively correlated.

    The 95 % intervals cover 0.934 or more there, with one exception: 0.914 to 0.922 for `StochasticLieDetector` if
    nobody has the attribute. They cover less for shares near one and if most do not comply: 0.863 for
    `CheatingDetection([0.25, 0.75])` if 97.5 % have the attribute, with 80 in each sample.

    Args:
        counts: `[2, 2]`, integers: the numbers of yes and no in each sample, in the order of the design's parameters.
        design: Such as `AnchoredCrosswise` or `CheatingDetection`, of `rrjax.mechanisms`.
        level: Scalar in (0, 1), of the interval.
        same_people: Whether both samples are the same respondents, answering independently given their kind; where
            some left out one answer, all of the smaller sample are taken to be in the larger one. It changes the
            standard errors; the interval is that of two samples.

    Returns:
        A `ComplianceEstimate`. All NaN for unusable counts; the share is NaN if nobody complies. In float32, shares of
            a kind below 1e-6 are rounding, and are taken for zero, and more where the two designs are nearly equal;
            where those who do not comply always say no, only their own is. `jit`, `vmap`.

    Raises:
        ValueError: A wrong shape, counts that are not integers, a level outside (0, 1), or a design whose parameters do
            not identify who complies.
        NotImplementedError: A derivative is taken.

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
    rows, yes, level = _checked(counts, design, level, Compliance, "AnchoredCrosswise")
    return _result(rows, yes, _fitted(rows, yes, level, design.region), same_people)


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
        misfit: G², the statistic of the test of fit, as in `ComplianceEstimate`.
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
    The p-value is that of χ² with as many degrees of freedom as sides meet at the estimate, which is valid wherever the
    truth lies. Counts are corrected for continuity (Yates): the size is at most 0.04 at 0.05
    (`validation/two_samples.py`).

    For 25 to 200 respondents in each sample the 95 % intervals cover 0.931 or more if five yes and five no are expected
    in each of them, and as few as 0.84 if fewer are in one: where no yes at all is likely, no interval can cover more.

    Args:
        counts: `[2, 2]`, integers: the numbers of yes and no in each sample, in the order of the design's `truth`.
        design: The probabilities of the sensitive question.
        level: Scalar in (0, 1), of the interval.

    Returns:
        An `UnrelatedQuestionEstimate`. All NaN for unusable counts. In float32, shares within 1e-6 of zero or one are
            taken for these, and more where the two designs are nearly equal. `jit`, `vmap`.

    Raises:
        ValueError: A wrong shape, counts that are not integers, a level outside (0, 1), or nearly equal `truth`.
        NotImplementedError: A derivative is taken.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.UnrelatedQuestionTwoSamples(truth=[0.7, 0.3])
        >>> fit = rrjax.inference.unrelated_question([[260, 740], [340, 660]], design)
        >>> f"{fit.share:.3f} ± {fit.standard_error:.3f}, {fit.lower:.3f} to {fit.upper:.3f}"
        '0.200 ± 0.027, 0.148 to 0.253'

    References:
        Greenberg, Abul-Ela, Simmons and Horvitz, "The unrelated question randomized response model: theoretical
        framework", Journal of the American Statistical Association 64, 1969; Susko, "Likelihood ratio tests with
        boundary constraints using data-dependent degrees of freedom", Biometrika 100, 2013.
    """
    rows, yes, level = _checked(counts, design, level, UnrelatedQuestionTwoSamples, "UnrelatedQuestionTwoSamples")
    # With yes and no exchanged both shares are those of the others: rare answers keep their digits as yes.
    mostly = jnp.sum(rows[:, 0]) > jnp.sum(rows[:, 1])
    fit = _fitted(jnp.where(mostly, rows[:, ::-1], rows), yes, level, design.region)
    found = jnp.stack([fit.share, fit.lower, fit.upper, jnp.clip(fit.best.point[1], 0, 1)])
    share, lower, upper, unrelated = jnp.where(mostly, 1 - found[jnp.asarray([0, 2, 1, 3])], found)
    errors = jnp.sqrt(jnp.diag(fit.covariance))
    return _if_usable(
        UnrelatedQuestionEstimate(share, errors[0], lower, upper, unrelated, errors[1], *fit.tests), fit.usable
    )


def _checked(
    counts: ArrayLike, design: Any, level: ArrayLike, kind: type[TwoSamples], example: str
) -> tuple[Float[Array, "2 2"], Float[Array, "2 3"], ArrayLike]:
    """The numbers of yes and no in both samples, chances of yes, and the level; refuses designs not of the kind."""
    if not isinstance(design, kind):
        message = f"design must be one of two samples, such as {example}, got {design!r}"
        raise ArgumentError(message, argument="design")
    given = refuse_spread(jnp.asarray(counts), "the maximum likelihood of two samples")
    if given.shape != (2, 2):
        raise ArgumentError.about(
            "counts", f"must have shape [2, 2], the numbers of yes and no in both samples, got {given.shape}"
        )
    rows = jnp.stack([as_counts(row, "counts", whole=True) for row in given]).astype(float_dtype())
    return rows, *without_derivative((design.yes, as_probability(level, "level", 0.95)), NO_DERIVATIVES)


class _Chances(NamedTuple):
    """The chances of yes and of no in both samples, each with all its digits."""

    yes: Float[Array, " 2"]
    no: Float[Array, " 2"]


class _Survey(NamedTuple):
    """Numbers of yes and no `[2]` each, and the probabilities of yes `[2, 3]`."""

    said: Float[Array, " 2"]
    denied: Float[Array, " 2"]
    yes: Float[Array, "2 3"]

    def off(self, chances):
        """By how much chances of yes are above the counted shares of yes."""
        number = self.said + self.denied
        return jnp.where(chances.yes < 0.5, chances.yes - self.said / number, self.denied / number - chances.no)

    def value(self, chances):
        """The log-likelihood, less that of the counted shares of yes: so large samples do not cancel."""
        number, off = self.said + self.denied, self.off(chances)

        def gain(count, off, chance):
            some = count > 0
            share = jnp.where(some, count, 1) / number
            # A chance far below the counted share is lost in their difference.
            logs = jnp.where(off < -share / 2, jnp.log(chance / share), jnp.log1p(jnp.maximum(off / share, -1)))
            return jnp.where(some, count * logs, 0)

        return jnp.sum(gain(self.said, off, chances.yes) + gain(self.denied, -off, chances.no))

    def along(self, start, end):
        """The point of the segment with the largest log-likelihood, which is concave, and its chances."""
        first, last = matmul(self.yes, start), matmul(self.yes, end)

        def chances(part, rest):
            return _Chances(rest * first + part * last, rest * (1 - first) + part * (1 - last))

        def rising(part, rest):
            yes, no = chances(part, rest)
            slope = jnp.where(self.said > 0, self.said * (last - first) / yes, 0)
            return jnp.sum(slope - jnp.where(self.denied > 0, self.denied * (last - first) / no, 0)) > 0

        start, end = with_sharding_of((start, end), self)
        one = jnp.ones_like(start[0])
        # From the nearer end: among millions one yes is a chance that is lost beside one.
        turned = rising(one / 2, one / 2)

        def parts(near):
            return jnp.where(turned, 1 - near, near), jnp.where(turned, near, 1 - near)

        low, high = bisected(lambda near: rising(*parts(near)) != turned, 0 * one, one / 2, STEPS)
        near = (low + high) / 2
        # So near an end that no chance differs, its distance is that of the last bisection, or rounding.
        rounding = 4 * jnp.finfo(near.dtype).eps + 4 * 0.5**STEPS
        here, there = (jnp.stack(chances(*parts(each))) for each in (near, 0 * near))
        near = jnp.where(jnp.all(jnp.abs(here - there) <= rounding * here), 0, near)
        part, rest = parts(near)
        # An end that is the maximum is met exactly.
        at_last, at_first = rising(one, 0 * one), ~rising(0 * one, one)
        part, rest = (
            jnp.where(at_last, whole, jnp.where(at_first, 1 - whole, inner)) for whole, inner in ((1, part), (0, rest))
        )
        return rest * start + part * end, chances(part, rest)


class _Maximum(NamedTuple):
    """The point k of the maximum, and the test of fit.

    `edges` are the maxima on the sides of the region, and `values` the log-likelihoods there, less that of the counted
    shares of yes.
    """

    point: Float[Array, " 3"]
    inside: Bool[Array, ""]
    misfit: Float[Array, ""]
    p_value: Float[Array, ""]
    edges: Float[Array, "S 3"]
    values: Float[Array, " S"]


class _TwoSampleFit(NamedTuple):
    """The maximum and what follows from it: the gradient of the share, the covariance of the point, the limits.

    `inverse` is that of the matrix of the probabilities of yes and the sum.
    """

    best: _Maximum
    share: Float[Array, ""]
    slope: Float[Array, " 3"]
    covariance: Float[Array, "3 3"]
    lower: Float[Array, ""]
    upper: Float[Array, ""]
    swapped_p_value: Float[Array, ""]
    inverse: Float[Array, "3 3"]
    usable: Bool[Array, ""]

    @property
    def tests(self) -> tuple[Array, Array, Array]:
        return self.best.misfit, self.best.p_value, self.swapped_p_value


def _is_at(point: Float[Array, " 3"], corners: Float[Array, "*s 3"]) -> Bool[Array, "*s"]:
    """Whether a maximum is at a corner, which `along` meets exactly; the p-values there are the larger ones."""
    return jnp.all(point == corners, axis=-1)


def _inverse(yes):
    """By cofactors: where the third kind never says yes, the first two are sums of the shares of yes alone, exactly."""
    first, second, both = yes[0], yes[1], jnp.ones_like(yes[0])
    cofactors = jnp.stack([jnp.cross(second, both), jnp.cross(both, first), jnp.cross(first, second)], axis=1)
    return cofactors / jnp.sum(first * cofactors[:, 0])


def _maximum(survey: _Survey, region: Region) -> _Maximum:
    corners, walls = (jnp.asarray(part, survey.yes.dtype) for part in (region.corners, region.walls))
    number = survey.said + survey.denied
    inverse, shares = _inverse(survey.yes), jnp.append(survey.said / number, 1)
    inner, size = matmul(inverse, shares), matmul(jnp.abs(walls), matmul(jnp.abs(inverse), shares))
    sides = [survey.along(corners[first], corners[second]) for first, second in region.sides]
    edges, chances = jax.tree.map(lambda *each: jnp.stack(each), *sides)
    values = jax.vmap(survey.value)(chances)
    # Up to what rounding makes of a point on a side.
    inside = jnp.all(matmul(walls, inner) > 8 * jnp.finfo(inner.dtype).eps * size)
    nearest = jnp.argmax(values)
    point = jnp.where(inside, inner, edges[nearest])
    misfit = jnp.where(inside, 0, jnp.maximum(-2 * jnp.max(values), 0))
    there = jax.tree.map(lambda each: each[nearest], chances)
    shift = jnp.clip(number * survey.off(there), -0.5, 0.5)
    moved = survey._replace(said=survey.said + shift, denied=survey.denied - shift)
    statistic = jnp.maximum(-2 * moved.value(there), 0)
    p_value = jnp.where(jnp.any(_is_at(point, corners)), jnp.exp(-statistic / 2), 2 * ndtr(-jnp.sqrt(statistic)))
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
        _, chances = survey.along(start, end)
        return survey.value(chances) < -lost

    share, slope = jax.value_and_grad(share_of)(point)
    share = jnp.clip(share, 0, 1)  # rounding
    none, all_ = jnp.zeros_like(share), jnp.ones_like(share)
    lowest, _ = bisected(below, none, share, STEPS)
    _, highest = bisected(lambda x: ~below(x), share, all_, STEPS)
    lower, upper = jnp.where(below(none), lowest, 0), jnp.where(below(all_), highest, 1)
    spread = jnp.where(best.inside, spread, jnp.nan)
    return _TwoSampleFit(best, share, slope, spread, lower, upper, swapped.p_value, inverse, usable)


@partial(jax.jit, static_argnums=3)
def _result(counts, yes, fit: _TwoSampleFit, same_people):
    kinds, number = fit.best.point, jnp.sum(counts, axis=1)
    spread = fit.covariance
    if same_people:
        chance = matmul(yes, kinds)
        shared = jnp.sum(kinds * yes[0] * yes[1]) - chance[0] * chance[1]
        both = (1 - jnp.eye(2, dtype=yes.dtype)) * shared / jnp.max(number)
        spread = spread + matmul(fit.inverse[:, :2], both, fit.inverse[:, :2].T)
    errors = jnp.sqrt(jnp.stack([matmul(fit.slope, spread, fit.slope), spread[2, 2]]))
    p_value = jnp.where(kinds[2] > 0, _all_comply(number, yes, fit), 1)
    shares = fit.share, errors[0], fit.lower, fit.upper, kinds[2], errors[1]
    return _if_usable(ComplianceEstimate(*shares, p_value, fit.best.edges[0, 0], *fit.tests, kinds), fit.usable)


def _all_comply(number, yes, fit):
    """The p-value of the hypothesis that there is no kind 2, from the likelihood ratio."""
    without = fit.best.edges[0]  # the estimate without kind 2
    chance = matmul(yes, without)
    variance = chance * (1 - chance) / number
    variance = jnp.where(variance > 0, variance, 1)
    root = jnp.sqrt(jnp.maximum(-2 * fit.best.values[0] - fit.best.misfit, 0))
    # The share of kind 2 that solves both equations is a weighted sum of the shares of yes. One report moves it by a
    # weight / N; half of the smallest such step is the correction for continuity. A weight of zero has rounding.
    weights = jnp.abs(fit.inverse[2, :2])
    steps = jnp.where(weights > 1e-4 * jnp.max(weights), weights / number, jnp.inf)
    root = jnp.maximum(root - jnp.min(steps) / 2 / jnp.sqrt(matmul(weights**2, variance)), 0)
    # At a corner, `along` leads to the other end of the side, and `away` to kind 2.
    along, away = yes[:, 0] + yes[:, 1] - 2 * chance, yes[:, 2] - chance
    lengths = jnp.sqrt(jnp.sum(along**2 / variance) * jnp.sum(away**2 / variance))
    beyond = jnp.arcsin(jnp.clip(-jnp.sum(along * away / variance) / lengths, 0, 1))  # angle above 90°
    at_corner = jnp.any(_is_at(without, jnp.eye(3, dtype=yes.dtype)))
    return ndtr(-root) + jnp.where(at_corner, beyond / jnp.pi * jnp.exp(-(root**2) / 2), 0)


def _if_usable(result: Any, usable: Bool[Array, ""]) -> Any:
    """A result, all NaN unless the counts are usable."""
    return jax.tree.map(lambda leaf: jnp.where(usable, leaf, jnp.nan), result)
