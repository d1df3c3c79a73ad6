"""Tests whether reports contradict their metadata, for any values of the users."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from rrjax.data.categories import as_integer
from rrjax.data.tally import SupportData, Tally, num_tests, support_data
from rrjax.inference.monte_carlo import HypothesisTest
from rrjax.mechanisms.columns import ColumnResponse
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable, pytree
from rrjax.numerics.sharding import refuse_spread
from rrjax.numerics.special import deviance, exp_minus, log1p_minus, log_survival
from rrjax.numerics.sums import accurate_sum

SEED_BITS = 32
MOST_COLUMNS = 1 << 18
"""Largest number of columns whose law is summed, which takes a second."""
NUM_TILTS = 128
"""Number of exponents at which the bound is evaluated. It holds at each; the best exponent would be 1 % better."""
DISTANCES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Distances of the limits of rare counts below the mean of an empty category, in its standard deviations."""
LARGEST_EXACT = 2.0**20
"""Mean of a support count up to which whole limits are compared exactly in float32."""
ERROR_OF_TAIL = 1e-4
"""Upper bound of the relative error of a binomial tail, from rounding."""
ROUNDINGS_OF_SUM = 64
"""Upper bound of the error of a cumulative sum of counts, in machine epsilons of N."""


@exportable
class Excess(NamedTuple):
    """One part of `contradiction_test`: a number that is out of the range that every θ gives, but for chance.

    Attributes:
        p_value: Scalar, an upper bound.
        size: Scalar: of `single` the number of the category; of `rare` and `even` the limit up to which a support count
            is rare; of `frequent` the number of categories taken together; of `sum_of_shares` K.
        observed: Scalar: the support count of the single category; the number of rare categories; the support counts of
            the frequent ones together; of `sum_of_shares` the sum of the unbiased shares.
        expected: Scalar: the expectation of `observed` at the θ for which it is nearest, or a bound beyond it.
    """

    p_value: Float[Array, ""]
    size: Float[Array, ""]
    observed: Float[Array, ""]
    expected: Float[Array, ""]


@pytree("method", "parts")
class ContradictionTest(HypothesisTest):
    """The result of `contradiction_test`. A pytree; `method` and `parts` are static.

    Attributes:
        statistic: Scalar: the sum of the unbiased shares.
        p_value: Scalar: the smallest one of the parts that apply, times their number, at most one.
        standard_error: Scalar: zero.
        method: The bounds.
        parts: The names of the parts that apply to the mechanism.
        single: `Excess` of the category with the least likely count.
        sum_of_shares: `Excess` of the sum of the unbiased shares.
        rare: `Excess`: too many categories with few supporting reports.
        even: `Excess`: too few of them.
        frequent: `Excess`: too many reports support the most frequent categories.
    """

    single: Excess
    sum_of_shares: Excess
    rare: Excess
    even: Excess
    frequent: Excess
    parts: tuple[str, ...]


def contradiction_test(tally: Tally, mechanism: Mechanism | None = None) -> ContradictionTest:
    r"""Tests whether a tally can come from its mechanism, for any values of the users.

    Reports made at another ε, by another mechanism, or never randomized have meaningless estimates and intervals. Each
    category alone may look possible. So five numbers are compared with all that any given users can cause, who include
    any draw from any θ. With n_j holders of category j, c_j = Binomial(n_j, p) + Binomial(N − n_j, q), q = q_j:

    * `single`: every support count with Binomial(N, q_j) and Binomial(N, p_j), between which all laws are; exact, times
      2K (2 for two categories of which each report supports one).
    * `sum_of_shares`: the sum of the unbiased shares (`inv`), (Σc/N − K·q)/d, has the expectation one. For unary
      encoding and local hashing (supports are independent: one of probability p, K − 1 of q), and for Hadamard and
      projective geometry response (a category of its columns at a time), its law is known. For other mechanisms, and
      None, the bound assumes that a report supports all categories or none: valid, but weak. It does not apply if all
      reports support equally many categories: randomized response, subset selection, survey designs; another total is
      impossible there, and has the p-value zero (in float32, if it is off by 8·10⁻⁶·N or more).
    * `rare`: the number R of categories with c_j ≤ t_j, such as those without any report. c_j is stochastically
      smallest if nobody holds j. So E R ≤ Σ_j P(Binomial(N, q_j) ≤ t_j) = K·π for all n; users who all hold one
      category reach it, but for that one.
    * `even`: R for any n is no smaller than for equal n_j = N/K, if p and q are the same for all categories: with
      f(m) = P(Binomial(m, p) + Binomial(N − m, q) ≤ t), f(m + 2) − 2f(m + 1) + f(m) = d²·(P(S = t) − P(S = t − 1)), S
      of N − 2 users of whom m hold j. This is not negative for t ≤ (N − 2)·q, because the law of S rises up to its mode
      (Darroch). So f is convex, and Σ_j f(n_j) ≥ K·f(N/K).
    * `frequent`: s categories together are supported by N·Σ_S q_j + d·n_S ≤ N·(Σ_S q_j + d) reports on average. The
      bound holds for all sets of s categories at once, by the union bound with log C(K, s) ≤ K·H(s/K), s = 1, 2, 4, ….
      It finds what simultaneous lower limits with a sum above one find, and many categories together that are each
      possible.

    The last three need support counts that are negatively associated given the users (`dependence` of the mechanism):
    then the moment generating function of R, or of a sum of c_j, is at most that of independent ones, and Chernoff's
    bound for equal probabilities holds, exp(−K·KL(R/K, π)). Some t and s are tried, with Bonferroni's correction, which
    also joins the five parts. So the size is at most the level for all N, K, ε, θ and given users.

    Args:
        tally: `Tally`; of randomized response `Tally(counts, N, rates=mechanism.rates)`.
        mechanism: The mechanism in the metadata, with the ε in the metadata.

    Returns:
        `ContradictionTest`; p-values are upper bounds. All NaN for an unusable tally; a part that does not apply has
        the p-value one.

    Raises:
        ValueError: Floats in place of integers.

    Example:
        >>> import jax, rrjax
        >>> from rrjax.mechanisms import OptimizedUnaryEncoding
        >>> made, said = OptimizedUnaryEncoding(20, 1.0), OptimizedUnaryEncoding(20, 4.0)
        >>> tally = made.collect(jax.random.key(0), [100] * 20)
        >>> bool(rrjax.inference.contradiction_test(tally, made).p_value > 0.05)
        True
        >>> wrong = rrjax.Tally(tally.support, tally.num_users, rates=said.rates)
        >>> result = rrjax.inference.contradiction_test(wrong, said)
        >>> f"{result.statistic:.0f}", bool(result.p_value < 1e-9)
        ('11', True)

    References:
        Chernoff, "A measure of asymptotic efficiency for tests of a hypothesis based on the sum of observations", 1952;
        Hoeffding, "Probability inequalities for sums of bounded random variables", 1963; Joag-Dev and Proschan,
        "Negative association of random variables with applications", 1983; Darroch, "On the distribution of the number
        of successes in independent trials", 1964.
    """
    return _test(refuse_spread(support_data(tally, None), "contradiction_test"), mechanism)


@program
def _test(data: SupportData, mechanism: Mechanism | None) -> ContradictionTest:
    zero = jnp.zeros_like(data.num_users)
    none = Excess(zero + 1, zero, zero, zero)
    summed, method = _test_sum(data, mechanism)
    parts, names = {"single": _test_single(data)}, ["exact binomial bounds of every category"]
    if method:
        parts["sum_of_shares"] = summed
        names.append(method)
    if mechanism is not None and mechanism.dependence == "negative":
        parts["rare"], even = _test_rare(data)
        parts |= {"even": even} if data.rates.d.ndim == 0 else {}
        parts["frequent"] = _test_frequent(data)
        names.append("Chernoff's bounds of rare and of frequent categories")
    least = jnp.min(jnp.stack([summed.p_value, *(part.p_value for part in parts.values())]))
    every = dict.fromkeys(("rare", "even", "frequent"), none) | {"sum_of_shares": summed} | parts
    test = ContradictionTest(
        summed.observed, jnp.minimum(len(parts) * least, 1), zero, "; ".join(names), parts=tuple(parts), **every
    )
    return jax.tree.map(lambda leaf: jnp.where(data.usable, leaf, jnp.nan), test)


def _test_single(data: SupportData) -> Excess:
    """The part `single`."""
    few, many = log_below(data, 0), log_above(data, 1)
    tails = jnp.minimum(few, many)
    place, size = jnp.argmin(tails), data.support.shape[0]
    least, most = (jnp.broadcast_to(data.num_users * each, (size,))[place] for each in (data.rates.q, data.rates.p))
    p_value = jnp.minimum(2 * num_tests(data) * jnp.exp(tails[place]), 1)
    expected = jnp.where(few[place] < many[place], least, most)
    return Excess(p_value, place.astype(p_value.dtype), data.support[place], expected)


def _test_sum(data, mechanism):
    rates, size, number = data.rates, data.support.shape[0], data.num_users
    d = jnp.mean(rates.d)
    excess = accurate_sum(data.excess) - number * d  # of Σc over its expectation
    one, size_ = jnp.ones_like(number), jnp.full_like(number, size)
    statistic = 1 + excess / (number * d)
    if mechanism is not None and mechanism.same_size:  # another total is impossible
        off = accurate_sum(data.excess - number * rates.d / size)
        right = jnp.abs(off) <= 0.5 + ROUNDINGS_OF_SUM * jnp.finfo(number.dtype).eps * number
        return Excess(jnp.where(right, one, 0), size_, statistic, one), ""
    if rates.d.ndim:
        return Excess(one, size_, statistic, one), ""
    log_bound, method = _law(mechanism, rates, size, jnp.where(excess < 0, -1, 1).astype(statistic.dtype))
    tilts = jnp.geomspace(1e-7, 80, NUM_TILTS, dtype=statistic.dtype)
    bounds = lax.map(lambda tilt: number * log_bound(tilt) - tilt * jnp.abs(excess), tilts)
    # If the generating function overflows, the bound is one.
    p_value = jnp.minimum(2 * jnp.exp(jnp.min(jnp.where(jnp.isfinite(bounds), bounds, 0))), 1)
    return Excess(p_value, size_, statistic, one), method


def _test_rare(data: SupportData) -> tuple[Excess, Excess]:
    """The parts `rare` and `even`."""
    number, size, rates = data.num_users, data.support.shape[0], data.rates
    distances = jnp.asarray(DISTANCES, number.dtype)[:, None]
    q, not_q, p, not_p = (jnp.atleast_1d(each) for each in (data.q, rates.not_q, rates.p, rates.not_p))
    mean = number * q
    limits = jnp.floor(jnp.maximum((number - 2) * q - distances * jnp.sqrt(mean * not_q), 0))  # t, `[Z, K]` or `[Z, 1]`
    few = data.excess <= limits - mean + jnp.where(mean < LARGEST_EXACT, 0.25, 0)
    observed = jnp.sum(few, axis=1, dtype=number.dtype)
    # At most x of the m ≥ N/K holders of a category support it with probability 0.9 or more, by Cantelli's inequality,
    # if x is three standard deviations above its mean.
    holders = number / size
    some = jnp.ceil(holders)
    moved = jnp.floor(some * p + 3 * jnp.sqrt(some * p * not_p))
    both = jnp.stack([limits, limits - moved])
    tails = log_survival(number - both, both, mean - both, not_q)
    tails = jnp.exp(jnp.where(both < 0, -jnp.inf, jnp.where(both == 0, number * jnp.log1p(-q), tails)))
    none = jnp.exp(holders * jnp.log(not_p) + (number - holders) * jnp.log1p(-q))
    most, least = tails[0], jnp.where(limits == 0, none, 0.9 * tails[1])  # π, and at most f(N/K)

    def bounded(chances, sign):
        """The part for R above (sign 1) or below (−1) K times a chance; of all limits the best one."""
        chance = jnp.maximum(jnp.mean(chances, axis=1) * (1 + sign * ERROR_OF_TAIL), 1e-30)
        apart = observed / size - chance
        # If all or no categories are rare, one is −1; rounded to less, its deviance would be infinite.
        own, others = (deviance(jnp.maximum(each, -1)) for each in (apart / chance, -apart / (1 - chance)))
        log_p = -size * (chance * own + (1 - chance) * others)
        log_p = jnp.where((sign * apart > 0) & (chance < 1), log_p, 0)
        best = jnp.argmin(log_p)
        p_value = jnp.minimum(len(DISTANCES) * jnp.exp(log_p[best]), 1)
        return Excess(p_value, jnp.mean(limits[best]), observed[best], size * chance[best])

    return bounded(most, 1), bounded(least, -1)


def _test_frequent(data: SupportData) -> Excess:
    """The part `frequent`."""
    number, size = data.num_users, data.support.shape[0]
    order = jnp.argsort(-data.excess)
    sums, chances = (jnp.cumsum(jnp.broadcast_to(each, (size,))[order]) for each in (data.excess, data.q))
    sizes = 2 ** np.arange(int(np.log2(max(size // 2, 1))) + 1)
    ways = sizes * np.log(size / sizes) - (size - sizes) * np.log1p(-sizes / size)  # K·H(s/K)
    signal = number * jnp.max(data.rates.d)
    noise = number * chances[sizes - 1]
    means, observed = noise + signal, jnp.round(noise + sums[sizes - 1])
    above = sums[sizes - 1] - signal - ROUNDINGS_OF_SUM * jnp.finfo(number.dtype).eps * number
    # The bound of a Poisson law of this mean, which is the largest for independent supports.
    log_p = jnp.where(above > 0, jnp.asarray(ways, number.dtype) - means * deviance(jnp.maximum(above, 0) / means), 0)
    best = jnp.argmin(log_p)
    p_value = jnp.minimum(len(sizes) * jnp.exp(log_p[best]), 1)
    return Excess(p_value, jnp.asarray(sizes, number.dtype)[best], observed[best], means[best])


def _law(mechanism, rates, size, sign):
    """Log M, a function of the tilt, and the name of the bound."""
    if mechanism is not None and mechanism.independent:

        def independent(tilt):
            return log_generator(rates.p, sign * tilt) + (size - 1) * log_generator(rates.q, sign * tilt)

        return independent, "Chernoff's bound, independent supports"
    if isinstance(mechanism, ColumnResponse) and mechanism.num_columns <= MOST_COLUMNS:
        supports = mechanism.sums_of_categories(jnp.ones(size, rates.q.dtype)) - (rates.p + (size - 1) * rates.q)
        holding = mechanism.num_holding
        least, most = rates.not_p / (mechanism.num_columns - holding), rates.p / holding  # of one column

        def of_columns(tilt):
            terms = exp_minus(sign * tilt * supports)
            return jnp.log1p(least * jnp.sum(terms) + (most - least) * jnp.max(mechanism.sums_of_columns(terms)))

        return of_columns, "Chernoff's bound, columns"
    mean = (rates.p + (size - 1) * rates.q) / size
    return lambda tilt: log_generator(mean, sign * tilt * size), "Chernoff's bound, supports of any dependence"


def standardized(data: SupportData, share: Any) -> tuple[Float[Array, " K"], Float[Array, " K"], Float[Array, " K"]]:
    """The probability of support at a share, that of none, and the distance from the expected count in its units."""
    rates, tiny = data.rates, jnp.finfo(data.excess.dtype).tiny
    law = jnp.maximum((rates.always + rates.truth * share) / rates.total, tiny)
    rest = jnp.maximum((rates.never + rates.truth * (1 - share)) / rates.total, tiny)
    excess = data.excess - data.num_users * (rates.d * share)
    return law, rest, excess / jnp.sqrt(data.num_users * law * rest)


def log_above(data: SupportData, share: Any) -> Float[Array, " K"]:
    """Logarithm of the probability of the support count or a larger one."""
    law, rest, _ = standardized(data, share)
    excess = data.excess - data.num_users * (data.rates.d * share)
    tail = log_survival(data.support, data.others, excess, law)
    # Not the logarithm of 1 − rest, which rounds.
    return jnp.where(data.others == 0, data.num_users * jnp.log1p(-rest), tail)


def log_below(data: SupportData, share: Any) -> Float[Array, " K"]:
    """Logarithm of the probability of the support count or a smaller one."""
    law, rest, _ = standardized(data, share)
    excess = data.num_users * (data.rates.d * share) - data.excess
    tail = log_survival(data.others, data.support, excess, rest)
    return jnp.where(data.support == 0, data.num_users * jnp.log1p(-law), tail)


def log_generator(chance: Float[Array, ""], tilt: Float[Array, ""]) -> Float[Array, ""]:
    """Logarithm of the generating function of a Bernoulli variable about its mean."""
    x = chance * jnp.expm1(tilt)
    # Each form is used where its terms do not cancel.
    return jnp.where(jnp.abs(tilt) < 1, chance * exp_minus(tilt) + log1p_minus(x), jnp.log1p(x) - chance * tilt)


def repeated_seed_test(most: int, num_reports: int) -> HypothesisTest:
    """Tests whether each user drew a seed, by the number of reports with the commonest seed.

    In local hashing every user draws a hash function. With one function for all users, categories with equal hashes
    cannot be distinguished, and neither estimates nor intervals hold. Among N independent seeds of 32 bits, m are equal
    with probability at most C(N, m)/2^(32·(m − 1)), by the union bound.

    Args:
        most: m, the number of reports with the commonest seed.
        num_reports: N.

    Returns:
        `HypothesisTest`: the statistic is m; the p-value is an upper bound.

    Raises:
        ValueError: m is not from 1 to N, or an argument is not a positive integer.

    Example:
        >>> import rrjax
        >>> test = rrjax.inference.repeated_seed_test
        >>> float(test(2, 100_000).p_value), float(test(50, 100_000).p_value) < 1e-6
        (1.0, True)
    """
    num_reports = as_integer(num_reports, "num_reports", 1, 2**53)
    most = as_integer(most, "most", 1, num_reports, "num_reports = ")
    ways = math.lgamma(num_reports + 1) - math.lgamma(most + 1) - math.lgamma(num_reports - most + 1)
    p_value = math.exp(min(ways - (most - 1) * SEED_BITS * math.log(2), 0.0))
    statistic, p_value, error = (jnp.asarray(value, float) for value in (most, p_value, 0.0))
    return HypothesisTest(statistic, p_value, error, "the commonest seed, union bound")
