"""Tests whether reports contradict their metadata, for any values of the users."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rrjax.data.categories import as_integer
from rrjax.data.tally import Evidence, Tally, evidence
from rrjax.inference.monte_carlo import HypothesisTest
from rrjax.mechanisms.columns import ColumnResponse
from rrjax.mechanisms.local_hashing import Hashing
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.subset_selection import SubsetSelection
from rrjax.mechanisms.surveys.design import Design
from rrjax.mechanisms.unary import UnaryEncoding
from rrjax.numerics.special import exp_minus, log1p_minus, log_survival
from rrjax.numerics.sums import accurate_sum

MOST_COLUMNS = 1 << 18
"""Largest number of columns whose law is summed, which takes a second."""
ONE_NUMBER_SUPPORTED = (RandomizedResponse, SubsetSelection, Design)
"""Mechanisms of which every report supports the same number of categories."""
INDEPENDENT_AT_MOST = (UnaryEncoding, Hashing, SubsetSelection)
"""Mechanisms whose supports of different categories are independent or negatively associated, for given users."""
NUM_TILTS = 128
"""Number of exponents at which the bound is evaluated. It holds at each; the best exponent would be 1 % better."""


def contradiction_test(tally: Tally, mechanism: Mechanism | None = None) -> HypothesisTest:
    r"""Tests whether a tally can come from its mechanism: the unbiased shares must sum to one, up to noise.

    The sum of the unbiased shares (`inv`) is (Σc/N − K·q)/d, with Σc the number of categories that all reports support.
    Its expectation is one for any values of the users. It differs for reports made at another ε, by another mechanism,
    or with one hash function for all users; their estimates and intervals are meaningless.

    The p-value is twice Chernoff's bound of the tail: with M(s) the largest generating function of the number of
    categories that a report supports, about its mean m, P(Σc − N·m ≥ x) ≤ exp(N·log M(s) − s·x) for every s. M is known
    exactly for unary encoding and local hashing (whose supports are independent: one of probability p, K − 1 of q), and
    for Hadamard and projective geometry response (a category of its columns at a time). The p-value is 1 if all reports
    support equally many categories, as for randomized response, subset selection and survey designs. For other
    mechanisms, and for None, the bound assumes that a report supports all categories or none: valid, but weak.

    Args:
        tally: `Tally`.
        mechanism: The mechanism in the metadata, with the ε in the metadata.

    Returns:
        `HypothesisTest`: the statistic is the sum of the unbiased shares; the p-value is an upper bound for all N, K, ε
            and θ, and its standard error is zero. All NaN for an unusable tally.

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
        Hoeffding, "Probability inequalities for sums of bounded random variables", 1963 (for None).
    """
    return _test_sum(evidence(tally, None), mechanism)


@jax.jit
def _test_sum(data: Evidence, mechanism):
    rates, size, number = data.rates, data.support.shape[0], data.num_users
    d = jnp.mean(rates.d)
    excess = accurate_sum(data.excess) - number * d  # of Σc over its expectation
    statistic = 1 + excess / (number * d)
    if isinstance(mechanism, ONE_NUMBER_SUPPORTED) or rates.d.ndim:
        p_value, method = jnp.ones_like(statistic), "every report supports as many categories"
    else:
        log_bound, method = _law(mechanism, rates, size, jnp.where(excess < 0, -1, 1).astype(statistic.dtype))
        tilts = jnp.geomspace(1e-7, 80, NUM_TILTS, dtype=statistic.dtype)
        found = lax.map(lambda tilt: number * log_bound(tilt) - tilt * jnp.abs(excess), tilts)
        # If the generating function overflows, the bound is one.
        p_value = jnp.minimum(2 * jnp.exp(jnp.min(jnp.where(jnp.isfinite(found), found, 0))), 1)
    found = HypothesisTest(statistic, p_value, jnp.zeros_like(statistic), method)
    return jax.tree.map(lambda leaf: jnp.where(data.usable, leaf, jnp.nan), found)


def _law(mechanism, rates, size, sign):
    """Log M, a function of the tilt, and the name of the bound."""
    if isinstance(mechanism, UnaryEncoding | Hashing):

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


def standardized(data: Evidence, share: Any) -> tuple[Float[Array, " K"], Float[Array, " K"], Float[Array, " K"]]:
    """The probability of support at a share, that of none, and the distance from the expected count in its units."""
    rates, tiny = data.rates, jnp.finfo(data.excess.dtype).tiny
    law = jnp.maximum((rates.always + rates.truth * share) / rates.total, tiny)
    rest = jnp.maximum((rates.never + rates.truth * (1 - share)) / rates.total, tiny)
    excess = data.excess - data.num_users * (rates.d * share)
    return law, rest, excess / jnp.sqrt(data.num_users * law * rest)


def log_above(data: Evidence, share: Any) -> Float[Array, " K"]:
    """Logarithm of the probability of the support count or a larger one."""
    excess = data.excess - data.num_users * (data.rates.d * share)
    return log_survival(data.support, data.others, excess, standardized(data, share)[0])


def log_below(data: Evidence, share: Any) -> Float[Array, " K"]:
    """Logarithm of the probability of the support count or a smaller one."""
    excess = data.num_users * (data.rates.d * share) - data.excess
    return log_survival(data.others, data.support, excess, standardized(data, share)[1])


def log_generator(chance: Float[Array, ""], tilt: Float[Array, ""]) -> Float[Array, ""]:
    """Logarithm of the generating function of a Bernoulli variable about its mean."""
    x = chance * jnp.expm1(tilt)
    # Each form is used where its terms do not cancel.
    return jnp.where(jnp.abs(tilt) < 1, chance * exp_minus(tilt) + log1p_minus(x), jnp.log1p(x) - chance * tilt)


def repeated_seed_test(most: int, num_reports: int, *, seed_bits: int = 32) -> HypothesisTest:
    """Tests whether each user drew a seed, by the number of reports with the commonest seed.

    In local hashing every user draws a hash function. With one function for all users, categories with equal hashes
    cannot be distinguished, and neither estimates nor intervals hold. Among N independent seeds of S bits, m are equal
    with probability at most C(N, m)/2^(S·(m − 1)), by the union bound.

    Args:
        most: m, the number of reports with the commonest seed.
        num_reports: N.
        seed_bits: S.

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
    seed_bits = as_integer(seed_bits, "seed_bits", 1)
    ways = math.lgamma(num_reports + 1) - math.lgamma(most + 1) - math.lgamma(num_reports - most + 1)
    p_value = math.exp(min(ways - (most - 1) * seed_bits * math.log(2), 0.0))
    statistic, p_value, error = (jnp.asarray(value, float) for value in (most, p_value, 0.0))
    return HypothesisTest(statistic, p_value, error, "the commonest seed, union bound")
