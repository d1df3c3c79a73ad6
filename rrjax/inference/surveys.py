r"""Estimates of a population from a sample survey: weights, strata, clusters, finite populations; of any mechanism.

Each report has a score s_u, the unbiased number m + `debias(report) @ (c − m)` of its user; a constant m among the c_j
need not be estimated. A survey treats the score as any variable.
The mean is Hájek's ratio r = Σ w_u·s_u / Σ w_u, the total T = Σ w_u·s_u. With the influence e_u = w_u·(s_u − r)/Σ w, of
a total w_u·s_u, summed to e_hi over cluster i of the n_h clusters of stratum h, of which the population has N_h,

    variance = Σ_h (1 − f_h)·n_h/(n_h − 1)·Σ_i (e_hi − ē_h)²  +  Σ_u f_h·(∂/∂s_u)²·v_u,    f_h = n_h/N_h.

The second sum is the randomization, which a census has, too: v_u = s_u² − (the score of c²) is unbiased for the
variance of the score given the user's value. Without population sizes f = 0 (sampling with replacement).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import as_probability, as_values, float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.inference.functionals import as_numbers
from rrjax.mechanisms import ByRespondent, Design, Mechanism, RandomizedResponse
from rrjax.numerics.pytrees import exportable

SurveyMethod: TypeAlias = Literal["binomial", "normal"]
Coded: TypeAlias = tuple[np.ndarray, np.ndarray]
"""Labels, and the number of the label of each report."""

SMALLEST_EFFECTIVE_SIZE = 2.0
"""Smallest effective sample size for a standard error; below it one report has nearly all the weight."""
MOST_WEIGHT = 1e100
"""Limit of the weight of one user: sums of squares of weights stay finite."""
LARGEST_EPSILON = 700.0
"""The ε beyond which reports of randomized response are the values, to double precision."""
MOST_CELLS = 1 << 24
"""Most entries of unbiased vectors that are held at once."""


@exportable
class SurveyEstimate(NamedTuple):
    """An estimated number of a population with its standard error and interval; `[J]` each for J numbers.

    Attributes:
        value: The estimate, not cut to any range.
        standard_error: By linearization; NaN where the effective size is below two or no degree of freedom is left.
        lower: Confidence limit; NaN if no distribution explains the reports.
        upper: Confidence limit, not below `lower`; NaN as `lower`.
        effective_size: How many reports of a simple random sample have the same error. With weights alone Kish's
            (Σ w)²/Σ w².
        degrees: Degrees of freedom: clusters less strata, of those with a weight above zero.
    """

    value: Float[Array, "*s"]
    standard_error: Float[Array, "*s"]
    lower: Float[Array, "*s"]
    upper: Float[Array, "*s"]
    effective_size: Float[Array, "*s"]
    degrees: Float[Array, "*s"]


def survey_estimate(
    reports: ArrayLike,
    epsilon_or_mechanism: ArrayLike | Mechanism | None,
    *,
    values: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    population_size: ArrayLike | None = None,
    domain: ArrayLike | None = None,
    less: ArrayLike | None = None,
    total: bool = False,
    level: float = 0.95,
    method: SurveyMethod = "binomial",
) -> SurveyEstimate:
    r"""Estimates Σ_i c_i·θ_i of the population that a sample represents, or its total, from reports of any mechanism.

    The estimate is the weighted mean of the scores of the reports, Hájek's ratio; its variance is the linearized one of
    ultimate clusters, as of `svymean` in R (see the module). Of weights alone n/(n − 1) is taken at Kish's effective
    size, which is larger.

    * "binomial": Clopper and Pearson's limits for a mean of n' numbers at the two ends of the range of the scores, with
      n' such that its variance is the estimated one, times (t of n − 1 / t of the degrees of freedom)² (Korn and
      Graubard). n' is at most that of the effective size, after adding −log((1 − level)/2) reports with the most
      extreme value, because as many may be missing by chance. So it covers where few reports have most of the weight,
      few name a category, or few users have an extreme value.
    * "normal": estimate ± Student's t · standard error; always of totals, differences and numbers without a mechanism.

    Neither covers if only users of unusually large weight hold a category.

    Args:
        reports: The N reports, `[N]`, or as the mechanism takes them; unbiased numbers `[N]` without a mechanism.
        epsilon_or_mechanism: ε in nats, of k-ary randomized response; a mechanism whose reports have unbiased vectors
            (`debias`), such as `ByRespondent`; or None: the reports are unbiased numbers themselves, such as those of a
            known scrambling distribution divided by its mean.
        values: `[K]`, c; for a group ones and zeros; `[J, K]` for J numbers at once, such as `np.eye(K)` for all
            shares. Only with a mechanism.
        weights: `[N]`, not negative: one over the probability that the user was sampled, or any other survey weight, of
            which only ratios count, but for totals. None is N_h/n_h with population sizes, else one for each.
        strata: `[N]`, labels. Each stratum has two clusters or more, or all clusters of its population.
        clusters: `[N]`, labels; each cluster is in one stratum. None: every report is a cluster.
        population_size: Scalar, or `[N]`, equal within strata: the number of clusters (without clusters, of people) in
            the population of the stratum. All people of a sampled cluster must be in the sample; else leave it out.
        domain: `[N]`, booleans: the users whom the estimate is about. Others count in the design only.
        less: `[N]`, booleans: a second domain, whose estimate is subtracted.
        total: Whether to estimate the sum over the population, Σ w_u·s_u, in place of the mean.
        level: In (0, 1), of the interval.
        method: As above.

    Returns:
        `SurveyEstimate`; means are in the unit of the values, with limits cut to their range. The standard error of a
        mean, or of a difference, is at least the least noise of users with these means, where each report names one
        category. Computed on the host in double precision; no argument may be traced.

    Raises:
        ValueError: Shapes that do not fit, an invalid report, weight or size, with its row or stratum; a cluster in two
            strata, a stratum with a single cluster, or a population that is smaller than its sample.

    Example:
        >>> import numpy as np, rrjax
        >>> design = rrjax.mechanisms.ForcedResponse(truth=0.6, forced=[0.5, 0.5])
        >>> answers = np.tile([0, 1, 1, 0, 1, 1, 1, 0], 50)  # 0 is yes
        >>> school, region = np.repeat(np.arange(40), 10), np.repeat(["north", "south"], 200)
        >>> estimate = rrjax.inference.survey_estimate(
        ...     answers, design, values=[1, 0], weights=np.repeat([3, 1], 200), strata=region, clusters=school
        ... )
        >>> print(f"{estimate.value:.3f} ± {estimate.standard_error:.3f}, {estimate.degrees:.0f} degrees of freedom")
        0.292 ± 0.031, 38 degrees of freedom

    References:
        Särndal, Swensson and Wretman, "Model assisted survey sampling", 1992, sections 5.7, 4.5 and 2.9; Chaudhuri,
        "Randomized response and indirect questioning techniques in surveys", 2011, chapter 4, for v; Korn and Graubard,
        "Confidence intervals for proportions with small expected number of positive counts estimated from survey data",
        1998.
    """
    given = (reports, weights, strata, clusters, population_size, domain, less, values)
    if any(isinstance(each, Tracer) for each in given):
        raise ArgumentError("survey_estimate computes on the host: no argument may be traced", argument="reports")
    as_probability(level, "level", 0.95)
    if method not in ("binomial", "normal"):
        raise ArgumentError.about("method", f"must be 'binomial' or 'normal', got {method!r}")
    reports = np.asarray(reports)
    if epsilon_or_mechanism is None:
        if values is not None or population_size is not None:
            problem = "without a mechanism, reports are numbers whose noise is not known: leave it out"
            raise ArgumentError(problem, argument="population_size" if values is None else "values")
        if reports.ndim != 1 or not is_real(reports) or not np.isfinite(reports).all():
            raise ArgumentError.about("reports", "must be finite numbers, [N], where there is no mechanism")
        every = [Scores(reports.astype(np.float64))]
    else:
        rows = np.atleast_2d(np.asarray(() if values is None else values, np.float64))
        if rows.ndim != 2 or not rows.size:
            raise ArgumentError.about("values", f"must be [K] or [J, K], got shape {np.shape(rows)}")
        mechanism = epsilon_or_mechanism
        if not isinstance(mechanism, Mechanism):
            mechanism = RandomizedResponse(rows.shape[1], mechanism)
        every = [Scores.of(reports, mechanism, row) for row in rows]
    number = len(every[0].scores)
    coded = _coded(strata, number, "strata"), _coded(clusters, number, "clusters")
    sampling = Sampling.of(number, weights, *coded, population_size)
    parts = [(1, _mask(domain, number, "domain")), (-1, _mask(less, number, "less"))][: 1 if less is None else 2]
    estimates = [estimated(each, sampling, parts, total, float(level), method == "normal") for each in every]
    columns = [jnp.asarray(each, float_dtype()) for each in zip(*estimates, strict=True)]
    return SurveyEstimate(*(columns if np.asarray(values).ndim == 2 else [each[0] for each in columns]))


def _coded(given: Any, number: int, name: str) -> Coded | None:
    if given is None:
        return None
    labels = np.asarray(given)
    if labels.shape != (number,):
        raise ArgumentError.about(name, f"must be a label for each of {number} reports, got shape {labels.shape}")
    missing = [each is None or each != each for each in labels] if labels.dtype.kind in "fO" else []
    if any(missing):
        row = missing.index(True)
        raise ArgumentError(f"row {row} of {name} is missing: fill it in, or drop the row", argument=name, row=row)
    return np.unique(labels.astype(str) if labels.dtype == object else labels, return_inverse=True)


def _mask(given: Any, number: int, name: str) -> np.ndarray | None:
    mask = None if given is None else np.asarray(given)
    if mask is not None and (mask.shape != (number,) or mask.dtype != bool):
        problem = f"must be booleans, one for each of {number} reports, got {mask.dtype} of shape {mask.shape}"
        raise ArgumentError.about(name, problem)
    return mask


@dataclasses.dataclass(frozen=True)
class Scores:
    """Unbiased numbers of single reports for c·θ, and what their mechanism tells about them."""

    scores: np.ndarray
    """`[N]`."""
    noise: np.ndarray | None = None
    """`[N]`, unbiased for the variance of each score given its user's value; None if the mechanism is not known."""
    span: tuple[float, float] = (-math.inf, math.inf)
    """The range of c."""
    ends: tuple[float, float] = (math.nan, math.nan)
    """The range of the scores; NaN if it is not known."""
    laws: np.ndarray | None = None
    """`[3, N]`: d, and the mean and the variance of c under the law at which a report names another category."""

    def least_noise(self, slope: np.ndarray, mean: float) -> float:
        """The least variance of slope · scores of users with this mean, zero if it is not known.

        All hold the mean or, where d is below zero, all hold one of the ends.
        """
        if self.laws is None:
            return 0.0
        (d, mean_of_law, spread_of_law), (least, most) = self.laws, self.span
        held = min(max(mean, least), most)
        apart = np.where(d < 0, (held - least) * (most - held), 0)
        floor = (1 - d) * (spread_of_law + d * ((held - mean_of_law) ** 2 + apart)) / d**2
        return max(float(slope**2 @ floor), 0.0)

    @classmethod
    def of(cls, reports: np.ndarray, mechanism: Any, values: ArrayLike) -> Scores:
        """The scores of the reports of a mechanism for the values `[K]`."""
        _ = as_numbers(values, mechanism.num_categories)  # which refuses others
        c = np.asarray(values, np.float64)
        span = float(c.min()), float(c.max())
        if not mechanism.names_one:
            scores, squares, ends = *(_debiased(reports, mechanism, each) for each in (c, c**2)), _ends(mechanism, c)
            ends = [float(each) for each in (*ends, scores.min(), scores.max())]
            return cls(scores, scores**2 - squares, span, (min(ends), max(ends)))
        mixed = isinstance(mechanism, ByRespondent)
        named = np.asarray(as_values(reports, len(c), "reports"))
        which = np.asarray(mechanism.which if mixed else np.zeros(len(named), int))
        if named.shape != which.shape:
            raise ArgumentError.about("reports", f"must be one for each of {len(which)} respondents, got {named.shape}")
        known = np.asarray([_law(each, c) for each in (mechanism.designs if mixed else [mechanism])])
        d, mean, spread = laws = known.T[:, which]
        scores, squares = (
            (c[named] ** power - (1 - d) * other) / d for power, other in ((1, mean), (2, spread + mean**2))
        )
        ends = [float((end - (1 - d) * mean) / d) for d, mean, _ in known for end in span]
        return cls(scores, scores**2 - squares, span, (min(ends), max(ends)), laws)


def _law(design: Any, c: np.ndarray) -> tuple[float, float, float]:
    """d, and the mean and the variance of c under the part of the law of a report that does not depend on the user."""
    if isinstance(design, Design):
        always, d = (np.asarray(each, np.float64) for each in design.affine)
    else:
        e1 = math.expm1(min(float(design.epsilon), LARGEST_EPSILON))
        always, d = np.ones(len(c)), e1 / (e1 + len(c))
    law = always / always.sum() if always.any() else np.full(len(c), 1 / len(c))
    return float(d), float(law @ c), float(law @ (c - law @ c) ** 2)


def _centre(c: np.ndarray) -> float:
    """A constant that is not estimated, because unbiased shares need not add up to one: of all categories but one."""
    lone = [end for end in (c.min(), c.max()) if (c == end).sum() == len(c) - 1]
    return float(lone[0] if lone else c.mean())


def _ends(mechanism: Any, c: np.ndarray) -> list[float]:
    """The scores of reports that support one category, or none; nothing for mechanisms without equal rates."""
    if not hasattr(mechanism, "rates"):
        return []
    q, d, away = float(mechanism.rates.q), float(mechanism.rates.d), c - _centre(c)
    return list(_centre(c) + (np.append(away, 0) - q * away.sum()) / d)


def _debiased(reports: np.ndarray, mechanism: Any, c: np.ndarray) -> np.ndarray:
    if not hasattr(mechanism, "debias"):
        problem = f"is {type(mechanism).__name__}, whose reports have no unbiased vectors (debias)"
        raise ArgumentError.about("epsilon_or_mechanism", problem)
    step, away = max(1, MOST_CELLS // len(c)), c - _centre(c)
    chunks = [reports[start : start + step] for start in range(0, len(reports), step)]
    return _centre(c) + np.concatenate([np.asarray(mechanism.debias(each), np.float64) @ away for each in chunks])


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the users were sampled, checked."""

    weights: np.ndarray
    """`[N]`."""
    clusters: np.ndarray
    """`[N]`, the number of the cluster of each report."""
    strata: np.ndarray
    """The number of the stratum of each cluster."""
    fractions: np.ndarray
    """The part of the clusters of each stratum that was sampled."""
    weighted_only: bool
    """Whether there are no strata, clusters and population sizes."""

    @classmethod
    def of(
        cls,
        number: int,
        weights: ArrayLike | None = None,
        strata: Coded | None = None,
        clusters: Coded | None = None,
        sizes: ArrayLike | None = None,
    ) -> Sampling:
        """Checks weights `[N]`, strata and clusters by their labels and numbers, and sizes, scalar or `[N]`."""
        labels, of_report = (None, np.zeros(number, int)) if strata is None else strata
        names, own = (None, np.arange(number)) if clusters is None else clusters
        things = "report" if names is None else "cluster"

        def stratum(place: Any) -> str:
            return "the sample" if labels is None else f"stratum {str(labels[place])!r}"

        of_cluster = np.zeros(number if names is None else len(names), int)
        of_cluster[own] = of_report
        if names is not None and (odd := np.flatnonzero(of_cluster[own] != of_report)).size:
            name, both = str(names[own[odd[0]]]), (of_report[odd[0]], of_cluster[own[odd[0]]])
            problem = f"cluster {name!r} is in {stratum(both[0])} and in {stratum(both[1])}: clusters of different "
            raise ArgumentError(problem + "strata need different names", argument="clusters", value=name)
        sampled = np.bincount(of_cluster)
        population = np.full(len(sampled), np.inf)
        if sizes is not None:
            each = np.broadcast_to(np.asarray(sizes, np.float64), number)
            population[of_report] = each
            if (odd := np.flatnonzero(~np.isclose(each, population[of_report], 0, 0, equal_nan=True))).size:
                both = f"{each[odd[0]]:g} and {population[of_report[odd[0]]]:g}"
                problem = f"the population of {stratum(of_report[odd[0]])} has two sizes, {both}: give one"
                raise ArgumentError(problem, argument="population_size", value=float(each[odd[0]]))
            if (odd := np.flatnonzero(~(np.isfinite(population) & (population >= sampled)))).size:
                size, many = population[odd[0]], f"{sampled[odd[0]]:,} {things}s"
                problem = f"the population of {stratum(odd[0])} is {size:g}, and the sample has {many} of it: give the "
                problem += f"number of {'people' if names is None else 'clusters'} in the population"
                raise ArgumentError(problem, argument="population_size", value=float(size))
        plain = strata is None and clusters is None and sizes is None
        if not plain and (odd := np.flatnonzero((sampled == 1) & (population > 1))).size:
            more = f" ({odd.size:,} strata have)" * (odd.size > 1)
            problem = f"{stratum(odd[0])} has a single {things}{more}, which does not tell how {things}s vary: "
            advice = "there must be two or more" if labels is None else "merge it with a similar stratum"
            raise ArgumentError(problem + advice, argument="clusters" if labels is None else "strata")
        known = np.ones(number) if sizes is None else (population / sampled)[of_report]
        known = known if weights is None else _checked(weights, number)
        return cls(known, own, of_cluster, sampled / population, plain)

    def variance(self, influence: np.ndarray, slope: np.ndarray, noise: np.ndarray | None) -> float:
        """The variance of a sum of influences `[N]`; `slope` is their derivative in the scores."""
        sums, number = np.bincount(self.clusters, influence, len(self.strata)), np.bincount(self.strata)
        away = sums - (np.bincount(self.strata, sums) / number)[self.strata]
        squares = np.bincount(self.strata, away**2) * number / np.maximum(number - 1, 1)
        variance = float((1 - self.fractions) @ squares)
        if noise is None or not self.fractions.any():
            return variance
        return variance + max(float((self.fractions[self.strata[self.clusters]] * slope**2) @ noise), 0.0)

    def degrees(self, used: np.ndarray) -> int:
        """The number of clusters less that of strata, of the reports that are used."""
        clusters = np.unique(self.clusters[used])
        return len(clusters) - len(np.unique(self.strata[clusters]))


def _checked(weights: ArrayLike, number: int) -> np.ndarray:
    """The weights `[N]` in double precision."""
    given = np.asarray(weights)
    if given.shape != (number,) or not (is_real(given) or given.dtype == bool):
        problem = f"must be numbers, one for each of {number} reports; got {given.dtype} of shape {given.shape}"
        raise ArgumentError.about("weights", problem)
    known = given.astype(np.float64)
    if (odd := np.flatnonzero(~(np.isfinite(known) & (known >= 0)))).size:
        problem = f"row {odd[0]} of weights is {known[odd[0]]:g}: weights are finite and not negative "
        problem += f"({odd.size} {'row is' if odd.size == 1 else 'rows are'} not)"
        raise ArgumentError(problem, argument="weights", row=int(odd[0]), value=float(known[odd[0]]))
    largest = known.max()
    if largest > MOST_WEIGHT or 0 < largest < 1 / MOST_WEIGHT:
        problem = f"the largest of the weights is {largest:g}, and sums of squares are no numbers: multiply all by one "
        raise ArgumentError(problem + "number, so that it is near one", argument="weights", value=float(largest))
    return known


def estimated(
    scores: Scores,
    sampling: Sampling,
    parts: Sequence[tuple[float, np.ndarray | None]],
    total: bool,
    level: float,
    normal: bool,
) -> tuple[float, ...]:
    """The numbers of a `SurveyEstimate` of a sum of domains, each with its coefficient; see `survey_estimate`."""
    from scipy.special import stdtrit

    s, known = scores.scores, sampling.weights
    alone, single = sampling.weighted_only and not total, len(parts) == 1
    influence, slope, used, value = np.zeros(len(s)), np.zeros(len(s)), np.zeros(len(s), bool), 0.0
    w, size, kish, floor = known, 1.0, math.nan, 0.0
    for coefficient, mask in parts:
        w = known if mask is None else np.where(mask, known, 0)
        size = float(w.sum())
        if not size > 0:
            problem = "all weights are zero, or nobody is in the domain: no report is left to estimate from"
            raise ArgumentError(problem, argument="weights")
        kish, mean, scale = size**2 / float(w @ w), float(w @ s) / size, coefficient / (1 if total else size)
        own = w * scale * (s if total else s - mean)
        if alone:
            # Scores that are all alike do not tell their error, unless their law is known.
            enough = kish >= SMALLEST_EFFECTIVE_SIZE and (scores.laws is not None or np.ptp(s[w > 0]) > 0)
            own = own / math.sqrt(1 - 1 / kish) if enough else own * math.nan
        influence, slope, used, value = influence + own, slope + w * scale, used | (w > 0), value + scale * float(w @ s)
        floor += 0 if total else scores.least_noise(w * scale, mean)
    variance = float(influence @ influence) if alone else sampling.variance(influence, slope, scores.noise)
    degrees = sampling.degrees(used)
    error, tail = math.sqrt(variance) if degrees > 0 else math.nan, (1 - level) / 2
    told = error if math.isnan(error) else max(error, math.sqrt(floor))
    (least, most), student = scores.span, -float(stdtrit(degrees, tail)) if degrees > 0 else math.inf
    if not single or total or normal or math.isnan(scores.ends[0]):
        half = math.inf if math.isnan(told) else student * told
        if total:
            # Sums of values of one sign have it, differences do not.
            least, most = 0.0 if single and least >= 0 else -math.inf, 0.0 if single and most <= 0 else math.inf
        else:
            ends = [sorted((coefficient * least, coefficient * most)) for coefficient, _ in parts]
            least, most = map(sum, zip(*ends, strict=True))
        limits, effective = (value - half, value + half), kish if single and not total else math.nan
    else:
        low, high = scores.ends
        x = (s - low) / (high - low) if high > low else np.full(len(s), 0.5)
        centre, one = float(w @ x) / size, 0.0 if math.isnan(error) or not high > low else error / (high - low)
        spread, binary = float(w @ (x - centre) ** 2) / size, centre * (1 - centre)
        effective = kish if alone or not (one > 0 and spread > 0) else 1 + spread / one**2
        # The smaller of two. One has the estimated error. The other assumes that weights and values are independent;
        # few reports estimate the variance poorly, so `unseen` more get an extreme value (three to four at 95 %). Where
        # a report supports several categories, the range of the scores is mostly noise: the extreme is one of c.
        unseen, number = -math.log(tail), max(effective, 1)
        unseen *= 1 if scores.laws is not None or not high > low else ((most - least) / (high - low)) ** 2
        equal = number * (number * binary + unseen) / (number * spread + unseen)
        equal = min(equal, binary / one**2 if one > 0 and binary > 0 else math.inf)
        if not alone:
            equal *= (float(stdtrit(max(used.sum() - 1, 1), tail)) / student) ** 2
        limits = [low + (high - low) * each for each in _binomial_limits(centre, math.floor(max(equal, 1)), tail)]
    lower, upper = limits
    some = lower <= upper and lower <= most and upper >= least
    cut = [min(max(each, least), most) if some else math.nan for each in (lower, upper)]
    return value, told, *cut, effective, degrees


def _binomial_limits(mean: float, size: int, tail: float) -> Sequence[float]:
    """Clopper and Pearson's limits of a mean of `size` reports, 0 or 1; interpolated between whole counts."""
    from scipy.special import betaincinv

    below = min(math.floor(mean * size), size)
    whole = np.minimum(np.asarray([below, below + 1.0]), size)
    lower = np.where(whole > 0, betaincinv(np.maximum(whole, 1), size - whole + 1, tail), 0)
    upper = np.where(whole < size, 1 - betaincinv(np.maximum(size - whole, 1), whole + 1, tail), 1)
    part = mean * size - below
    return [float(each[0] + part * (each[1] - each[0])) for each in (lower, upper)]
