"""Tests against a given distribution, against all distributions, and of designs against each other."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.scipy.special import gammaincc
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from rrjax import simulate
from rrjax.data.arguments import as_counts_and_epsilon, as_distribution, check_key, float_dtype, is_distribution
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Tally
from rrjax.estimators.closed_form import mle_star
from rrjax.estimators.em import ibu
from rrjax.estimators.maximum_likelihood import mle as maximum_likelihood
from rrjax.inference.marginal_tests import ROUNDING_OF_SUM, fit_of_tally
from rrjax.inference.monte_carlo import HypothesisTest, Null, check_draws, monte_carlo_test, pearson_rounding, simulable
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.special import deviance, log1p_minus
from rrjax.numerics.sums import accurate_sum, expm1_epsilon, ratio

if TYPE_CHECKING:
    from rrjax.mechanisms import ByRespondent

COST_OF_ZERO = 0.01
"""What G² gains by a share of zero in place of the estimate, below which the share is estimated as zero."""
MOST_NUMBERS = 2**23
"""Largest number of answers × categories of all designs whose estimate is by Newton's method in float32."""
NullLaw: TypeAlias = Literal["simulated", "chi-bar-square"]


def likelihood_ratio_test(
    key: Array,
    counts: ArrayLike,
    epsilon: ArrayLike,
    theta: ArrayLike,
    *,
    null: NullLaw = "simulated",
    num_draws: int = 9999,
    level: float = 0.05,
) -> HypothesisTest:
    r"""Tests whether the users are drawn from a given θ₀.

    The statistic is 2·Σ c_i·log(μ̂_i/μ₀_i), μ = q + d·θ, with μ̂ at the maximum of the likelihood (`mle_star`). Its null
    distribution is one of

    * "simulated": statistics of collections of N users drawn under θ₀: a Monte Carlo test, whose size is at most its
        level for all N, K, ε and θ₀. The default.
    * "chi-bar-square": the limit for many users, the squared length of a normal vector projected on the cone of
      directions that keep the zeros of θ₀ from becoming negative. It draws no counts, which is faster. Every share of
      θ₀ must be zero or many standard errors away from zero: for small shares it rejects too rarely.

    The χ² law with K − 1 degrees of freedom is refused: if θ₀ has zeros it rejects much less often than its level.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        counts: `[K]`, integers, the reports per category.
        epsilon: Scalar, nats.
        theta: `[K]`, the hypothesis θ₀, a distribution.
        null: As above.
        num_draws: Simulated statistics. Static.
        level: The level that the p-value will be compared with, in (0, 1), at least 1/(num_draws + 1). Static.

    Returns:
        `HypothesisTest`, the statistic to some machine epsilons of itself. All NaN for unusable counts or ε, for 2³¹
        reports or more, and (under tracing) for a θ₀ that is no distribution.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, a θ₀ off the simplex, an unknown null, a level outside (0, 1), or too
            few draws for it.

    Example:
        >>> import jax, rrjax
        >>> counts = [5_200, 2_900, 1_000, 900]
        >>> result = rrjax.inference.likelihood_ratio_test(jax.random.key(0), counts, 2.0, [0.7, 0.3, 0.0, 0.0])
        >>> bool(0.07 < result.p_value < 0.11)
        True

    References:
        Dwass, "Modified randomization tests for nonparametric hypotheses", 1957, for the p-value; Self and Liang,
        "Asymptotic properties of maximum likelihood estimators and likelihood ratio tests under nonstandard
        conditions", 1987, for the limit.
    """
    check_key(key)
    if null == "chi-square":
        raise ArgumentError(
            "null = 'chi-square' is refused: on the boundary of the simplex the statistic has no χ² law, and the test "
            "would reject much less often than it says; use 'simulated', or 'chi-bar-square'",
            argument="null",
        )
    if null not in ("simulated", "chi-bar-square"):
        raise ArgumentError(f"null must be 'simulated' or 'chi-bar-square', got {null!r}", argument="null")
    check_draws(num_draws, level)
    counts, epsilon = as_counts_and_epsilon(counts, epsilon, whole=True)
    theta = _as_hypothesis(theta, counts.shape[0])
    return _test_ratio(key, counts, epsilon, theta, null, num_draws)


def _as_hypothesis(theta: ArrayLike, num_categories: int) -> Float[Array, " K"]:
    """θ₀ as an array, checked to be a distribution unless it is traced."""
    theta = as_distribution(theta, num_categories)
    if not isinstance(theta, Tracer):
        known = np.asarray(theta, np.float64)
        total, least = known.sum(), known.min()
        if not (least >= 0 and abs(total - 1) <= ROUNDING_OF_SUM):
            raise ArgumentError.about(
                "theta", f"must be a distribution; it sums to {total:.6g}, and its least entry is {least:.3g}"
            )
    return theta.astype(float_dtype())


@partial(jax.jit, static_argnums=(4, 5))
def _test_ratio(key, counts, epsilon, theta, null, num_draws):
    number, usable = simulable(counts)
    usable = usable & is_distribution(theta, ROUNDING_OF_SUM)  # a traced one was not refused
    theta = theta / accurate_sum(theta)

    def draw(key):
        if null == "chi-bar-square":
            return chi_bar_square(key, epsilon, theta)
        drawn = simulate.counts(key, theta, number, epsilon)
        return likelihood_ratio(drawn.astype(counts.dtype), epsilon, theta)

    statistic = jnp.where(usable, likelihood_ratio(counts, epsilon, theta), jnp.nan)
    return monte_carlo_test(key, statistic, Null(draw, num_draws, theta.shape[0], f"likelihood ratio, {null} null"))


def likelihood_ratio(
    counts: Shaped[Array, " K"], epsilon: Float[Array, ""], theta: Float[Array, " K"]
) -> Float[Array, ""]:
    """Twice the logarithm of the likelihood at its maximum over that at θ.

    With y = μ/μ̂ − 1 it is −2·Σ c·log(1 + y). On active categories c = τ·(1 + e1·θ̂), so the linear part Σ c·y is
    Σ (c − τ)·e1·θ over the other categories alone. All terms are positive, so none cancels.
    """
    estimate = mle_star(counts, epsilon)
    e1 = expm1_epsilon(epsilon)
    active = estimate > 0
    weights = counts.astype(epsilon.dtype)
    kept = jnp.sum(jnp.where(active, counts, 0)).astype(epsilon.dtype)
    threshold = ratio(kept, e1 + jnp.sum(active, dtype=epsilon.dtype))
    change = ratio(e1 * (theta - estimate), 1 + e1 * estimate)
    # If μ is far below μ̂, their quotient rounds to zero, but the logarithms keep their digits.
    log_far_below = jnp.log(1 + e1 * theta) - jnp.log(1 + e1 * estimate) - change
    near = change >= -0.5
    curved = jnp.where(near, log1p_minus(jnp.where(near, change, 0)), log_far_below)
    curved = jnp.where(weights > 0, -weights * curved, 0)
    terms = curved + jnp.where(active, 0, (threshold - weights) * (e1 * theta))
    return jnp.where(jnp.any(active), 2 * accurate_sum(terms), jnp.nan)


def chi_bar_square(key: Array, epsilon: Float[Array, ""], theta: Float[Array, " K"]) -> Float[Array, ""]:
    """One draw from the limit of the likelihood ratio at θ for many users.

    The scaled shares of the reports have the limit x ~ N(0, diag(μ) − μμᵀ). Its projection δ on the cone {Σδ = 0,
    δ_i ≥ 0 where θ_i = 0} in the metric 1/μ is x − λμ, cut at zero where θ_i = 0, and Σδ²/μ is the draw. λ solves a
    convex piecewise linear equation, by finitely many Newton steps from below.
    """
    e1 = expm1_epsilon(epsilon)
    law = (1 + e1 * theta) / (e1 + theta.shape[0])
    normal = jax.random.normal(key, theta.shape, theta.dtype)
    # x/√μ: a standard normal vector less its component along √μ.
    root = jnp.sqrt(law)
    standard = normal - root * jnp.sum(root * normal)
    free = theta > 0

    def step(state):
        level, _, _ = state
        kept = free | (standard > level * root)
        rise = jnp.sum(jnp.where(kept, root * standard, 0)) / jnp.sum(jnp.where(kept, law, 0))
        return rise, level, jnp.sum(kept, dtype=jnp.int32)

    # With every direction kept, λ is zero: a lower bound of the solution.
    zero = jnp.zeros((), theta.dtype)
    start = with_sharding_of((zero, zero - 1, jnp.int32(0)), standard)
    level, *_ = lax.while_loop(lambda state: state[0] > state[1], step, start)
    length = standard - level * root
    return jnp.sum(jnp.where(free | (length > 0), length, 0) ** 2)


def goodness_of_fit_test(
    key: Array,
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None = None,
    theta: ArrayLike | None = None,
    *,
    mechanism: Mechanism | None = None,
    num_draws: int = 9999,
    level: float = 0.05,
) -> HypothesisTest:
    r"""Tests whether reports fit a given distribution, or any distribution at all.

    * With θ₀: Pearson's Σ (c_i − N·μ_i)²/(N·μ_i) with μ = q + d·θ₀, against collections drawn under θ₀. It also detects
      deviations that no θ explains. `likelihood_ratio_test` detects other distributions only, with more power.
    * Without: twice the logarithm of the likelihood of the reports' own shares over the largest one that randomized
      response allows. It is zero if the unbiased inversion has no negative share. It is large if categories are named
      less often than by chance: at a wrong ε, by another mechanism, with reports lost. The null is drawn at a point
      mass, where the statistic is largest for large counts, so the size is at most the level at any θ.

    Of a `Tally` every support count is tested by its exact binomial law, at q + d·θ₀ or, without θ₀, against the
    smallest and the largest probability q and p. The smallest p-value is multiplied by K; this holds for any dependence
    between the support counts, at any N, and nothing is simulated. Without θ₀ all categories together are tested too
    (`contradiction_test`), if the mechanism is known.

    Args:
        key: A typed key, `jax.random.key(seed)`.
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        theta: `[K]`, the hypothesis θ₀, or None.
        mechanism: The mechanism of a tally, if known: for the sum of the shares, and because two categories are one
            test if every report supports one of the two.
        num_draws: Simulated collections; none for a tally. Static.
        level: The level that the p-value will be compared with, in (0, 1). Static.

    Returns:
        `HypothesisTest`; of a tally a `CategoryTest`, which says which category differs most. With θ₀ its size is at
        most its level for all N, K and ε, and of a tally without θ₀ too. Of counts without θ₀ this holds for large
        counts, and simulations of small ones found no exception (`validation/results/sizes-cpu.md`). All NaN for
        unusable counts or ε, 2³¹ reports or more (of counts), and (under tracing) for a θ₀ that is no distribution.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, a θ₀ off the simplex, a level outside (0, 1), or too few draws for
            it.

    Example:
        >>> import jax, rrjax
        >>> counts = [5_200, 3_900, 500, 400]  # at ε = 2 every category is named by 961 of 10,000 on average, or more
        >>> result = rrjax.inference.goodness_of_fit_test(jax.random.key(0), counts, epsilon=2.0)
        >>> bool(result.p_value < 0.001)
        True
        >>> design = rrjax.mechanisms.ForcedResponse(4 / 6, [1 / 2, 1 / 2])
        >>> tally = design.tally_of_counts([300, 700])
        >>> result = rrjax.inference.goodness_of_fit_test(
        ...     jax.random.key(0), tally, theta=[0.15, 0.85], mechanism=design
        ... )
        >>> print(f"{result.p_value:.3f}")
        0.020

    References:
        Pearson, "On the criterion …", 1900; Perlman, "One-sided testing problems in multivariate analysis", 1969, for
        the least favourable point of a cone.
    """
    check_key(key)
    check_draws(num_draws, level)
    if isinstance(counts, Tally):
        given = None if theta is None else _as_hypothesis(theta, counts.num_categories)
        return fit_of_tally(counts, epsilon, given, mechanism)
    counts, epsilon = as_counts_and_epsilon(counts, epsilon, whole=True)
    if theta is None:
        return _test_any(key, counts, epsilon, num_draws)
    return _test_pearson(key, counts, epsilon, _as_hypothesis(theta, counts.shape[0]), num_draws)


@partial(jax.jit, static_argnums=4)
def _test_pearson(key, counts, epsilon, theta, num_draws):
    number, usable = simulable(counts)
    usable = usable & is_distribution(theta, ROUNDING_OF_SUM)  # a traced one was not refused
    theta = theta / accurate_sum(theta)
    expected = _expected(theta, epsilon, number)

    def pearson(counts):
        excess = counts.astype(theta.dtype) - expected
        return accurate_sum(excess / expected * excess)

    def draw(key):
        return pearson(simulate.counts(key, theta, number, epsilon))

    statistic = jnp.where(usable, pearson(counts), jnp.nan)
    null = Null(draw, num_draws, theta.shape[0], "Pearson, simulated null")
    return monte_carlo_test(key, statistic, null, rounding=pearson_rounding(statistic, number))


@partial(jax.jit, static_argnums=3)
def _test_any(key, counts, epsilon, num_draws):
    number, usable = simulable(counts)
    vertex = (jnp.arange(counts.shape[0]) == 0).astype(epsilon.dtype)

    def draw(key):
        return lack_of_fit(simulate.counts(key, vertex, number, epsilon).astype(counts.dtype), epsilon)

    statistic = jnp.where(usable, lack_of_fit(counts, epsilon), jnp.nan)
    method = "likelihood ratio of the unrestricted shares, null simulated at a point mass"
    return monte_carlo_test(key, statistic, Null(draw, num_draws, counts.shape[0], method))


def lack_of_fit(counts: Int[Array, " K"], epsilon: Float[Array, ""]) -> Float[Array, ""]:
    """Twice the logarithm of the likelihood of the reports' own shares over that of MLE*; NaN if MLE* is NaN."""
    theta = mle_star(counts, epsilon)
    expected = _expected(theta, epsilon, jnp.sum(counts))
    # Σ m·deviance(c/m) has the same total as Σ c·log(c/m), but positive terms: none cancels.
    change = (counts.astype(theta.dtype) - expected) / expected
    return 2 * accurate_sum(expected * deviance(change))


def _expected(theta, epsilon, number):
    e1 = expm1_epsilon(epsilon)
    law = 1 / (e1 + theta.shape[0]) + e1 / (e1 + theta.shape[0]) * theta
    # At least the smallest normal number, if q underflows.
    return jnp.maximum(law, jnp.finfo(theta.dtype).tiny) * number.astype(theta.dtype)


@exportable
class DesignFit(NamedTuple):
    """The test whether designs tell of one distribution; `statistic` and `p_value` are NaN for unusable counts.

    Attributes:
        theta: `[K]`, the maximum likelihood estimate from the answers to all designs.
        statistic: Scalar, G² = 2·Σ_gj c_gj·log(c_gj/(N_g·μ_gj)), μ_g the law of an answer to design g at `theta`.
        degrees: Scalar, (G − 1)·(K − 1), G the number of designs with answers, and one more for each estimated zero.
        p_value: Scalar, of χ² with these degrees of freedom.
    """

    theta: Float[Array, " K"]
    statistic: Float[Array, ""]
    degrees: Int[Array, ""]
    p_value: Float[Array, ""]


def design_fit_test(counts: ArrayLike, mechanism: ByRespondent) -> DesignFit:
    """Tests whether answers to several designs come from one distribution, answered as each design says: G².

    It compares all answers with those of one θ: respondents who do not follow the instructions of one design (as the
    extended crosswise model asks), groups that are no samples of one population, and wrong parameters make it large.

    Args:
        counts: `[G, K]`, integers: the answers to each design; `mechanism.counts` counts them.
        mechanism: The designs.

    Returns:
        `DesignFit`. The law of χ² holds for many answers of each kind. Each estimated share of zero adds a degree of
        freedom: given which are zero, G² has this law, whether the true shares are zero or not. In float32 this
        takes 2²³ answers × categories at most (two designs of 2,048 categories), or fewer than 10⁶ reports.

    Raises:
        ValueError: Another shape, or (not under tracing) unusable counts.

    Example:
        >>> import rrjax
        >>> designs = [rrjax.mechanisms.Crosswise(p) for p in (1 / 6, 1 / 4, 3 / 4, 5 / 6)]
        >>> counts = [[114, 58], [104, 68], [72, 98], [71, 121]]
        >>> test = rrjax.inference.design_fit_test(counts, rrjax.mechanisms.ByRespondent(designs))
        >>> print(f"{test.theta[0]:.3f}, G² = {test.statistic:.2f} on {test.degrees}, p = {test.p_value:.2f}")
        0.294, G² = 1.03 on 3, p = 0.79

    References:
        Heck, Hoffmann and Moshagen, "Detecting nonadherence without loss in efficiency: a simple extension of the
        crosswise model", Behavior Research Methods 50, 2018. Susko, "Likelihood ratio tests with boundary constraints
        using data-dependent degrees of freedom", Biometrika 100, 2013.
    """
    mixture = mechanism.mixture_of_counts(counts)
    by_newton = float_dtype() == jnp.float32 and math.prod(np.shape(counts)) * mechanism.num_categories <= MOST_NUMBERS
    theta = ibu(mixture, accelerate="newton").theta if by_newton else maximum_likelihood(mixture)
    numbers, ones = jnp.asarray(counts).astype(theta.dtype), np.ones(mechanism.num_categories, int)
    rows = [each.mixture_of_counts(ones) for each in mechanism.designs]  # each is a multiple of the law of an answer
    totals = jnp.sum(numbers, axis=1, keepdims=True)

    def statistic_of(theta):
        laws = jnp.stack([each.base + each.lift(theta) for each in rows])
        laws = jnp.maximum(laws / jnp.sum(laws, axis=1, keepdims=True), jnp.finfo(theta.dtype).tiny)
        expected = jnp.where(totals > 0, totals, 1) * laws
        # As in `lack_of_fit`: positive terms with the same total.
        terms = jnp.where(totals > 0, expected * deviance((numbers - expected) / expected), 0)
        return jnp.where(jnp.isnan(theta[0]), jnp.nan, 2 * accurate_sum(terms.ravel()))

    statistic = statistic_of(theta)
    # Elsewhere an iteration ends near a zero, so a zero is told by what it costs.
    without = jnp.where(jnp.eye(theta.shape[0], dtype=bool), 0, theta)
    without = without / jnp.sum(without, axis=1, keepdims=True)
    zero = lax.map(statistic_of, without) - statistic < COST_OF_ZERO
    degrees = (jnp.sum(totals > 0) - 1) * (mechanism.num_categories - 1)
    degrees = jnp.where(degrees > 0, degrees + jnp.sum(zero), 0)
    chance = jnp.where(degrees > 0, gammaincc(jnp.maximum(degrees, 1) / 2, statistic / 2), 1)
    return DesignFit(theta, statistic, degrees, jnp.where(jnp.isnan(statistic), jnp.nan, chance))
