"""What is differentiated through estimators and plans: against finite differences, and what is built on it."""

import math
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, special, stats

import rrjax
from rrjax.inference import (
    detectable_share,
    epsilon_for_error,
    expected_rmse,
    expected_width,
    users_for_error,
    users_for_width,
)
from rrjax.mechanisms import Channel, HadamardResponse, OptimizedUnaryEncoding, SubsetSelection
from rrjax.models import (
    delta_method,
    family_test,
    fit_dirichlet,
    fit_family,
    geometric_logits,
    poisson_logits,
    split_budget,
    zipf_logits,
)

pytestmark = pytest.mark.long  # every fit compiles for a second or more

# Central differences of float32 lose what those of float64 keep.
ONLY_X64 = pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
ZIPF = partial(zipf_logits, num_categories=20)


def difference(function, x, step):
    return (np.asarray(function(x + step), float) - np.asarray(function(x - step), float)) / (2 * step)


def agree(function, x, *, step=1e-5, rtol=1e-6):
    """Both modes, and central differences with a relative step."""
    x = FLOAT.type(x)
    forth, back = (float(mode(function)(x)) for mode in (jax.jacfwd, jax.jacrev))
    assert forth == pytest.approx(back, rel=1e-9 if X64 else 1e-4)
    assert forth == pytest.approx(float(difference(function, x, step * float(x))), rel=rtol)


# Pipelines: a loss of an estimate whose counts are those of a model at some ε.


@ONLY_X64
@pytest.mark.parametrize("name", ["mle_star", "inv_p", "ibu", "ibu of a mixture"])
def test_a_loss_through_a_model_and_an_estimator(name):
    """Counts made by a smooth model of ε and an exponent, as in the tuning of a collection, in one derivative."""
    seen, later = np.asarray(rrjax.simulate.zipf(6, 0.7)), np.asarray([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])

    def loss(x):
        exponent, epsilon = x[0], x[1]
        theta = jax.nn.softmax(zipf_logits(exponent, 6))
        e1 = jnp.expm1(epsilon)
        counts = 1000 * (1 + e1 * theta) / (e1 + 6) + jnp.asarray([0, 3.0, -20, 5, 16, -4])
        if name == "ibu of a mixture":
            channel = (jnp.eye(6) * e1 + 1) / (e1 + 6)
            estimate = rrjax.ibu(Channel(channel).mixture_of_counts(counts), accelerate="newton", tol=1e-14).theta
        elif name == "ibu":
            estimate = rrjax.ibu(counts, epsilon, tol=1e-13).theta
        else:
            estimate = getattr(rrjax, name)(counts, epsilon)
        return jnp.sum((estimate - later) ** 2) + estimate @ seen

    at = np.asarray([0.9, 1.1])
    found = jax.jit(jax.grad(loss))(at)
    value = jax.jit(loss)
    wanted = [difference(lambda step, i=i: value(at + step * np.eye(2)[i]), 0.0, 1e-5) for i in range(2)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


# Plans.


@ONLY_X64
def test_plans_of_errors_have_their_slopes():
    for mechanism in (rrjax.RandomizedResponse, HadamardResponse):
        plan = partial(expected_rmse, mechanism=mechanism)
        agree(lambda e, plan=plan: plan(10, 10_000, e), 1.3)
        agree(lambda n, plan=plan: plan(10, n, 1.3), 10_000)
        # Found by bisection for all but the first: never zero.
        inverse = partial(epsilon_for_error, mechanism=mechanism)
        agree(lambda n, inverse=inverse: inverse(10, n, 0.01), 10_000)
        # Of Hadamard response that is next to the least error there is, where wide differences are no derivatives.
        agree(lambda r, inverse=inverse: inverse(10, 10_000, r), 0.01, step=1e-6 if X64 else 1e-5)


@pytest.mark.parametrize("mechanism", [rrjax.RandomizedResponse, OptimizedUnaryEncoding])
def test_epsilon_for_an_error_undoes_the_error(mechanism):
    def there_and_back(epsilon):
        return epsilon_for_error(
            10, 10_000, expected_rmse(10, 10_000, epsilon, mechanism=mechanism), mechanism=mechanism
        )

    slope = jax.jit(jax.grad(there_and_back))(FLOAT.type(1.3))
    assert float(slope) == pytest.approx(1, rel=1e-9 if X64 else 1e-3)


def test_an_error_beyond_reach_has_no_slope():
    # With so few users no ε up to 80 brings optimized unary encoding, which keeps p = ½, there.
    plan = partial(epsilon_for_error, 10, mechanism=OptimizedUnaryEncoding)
    assert plan(5, 0.01) == math.inf
    assert np.isnan(jax.grad(lambda r: plan(5, r))(FLOAT.type(0.01)))


def test_users_have_the_slope_of_what_is_rounded_up():
    found = jax.grad(lambda e, r: users_for_error(10, e, r), argnums=(0, 1))(FLOAT.type(1.0), FLOAT.type(0.01))
    ratio = math.e
    of_users = 9 * (8 + 2 * ratio) / (10 * (ratio - 1) ** 2 * 1e-4)
    by_epsilon = of_users * (2 * ratio / (8 + 2 * ratio) - 2 * ratio / (ratio - 1))
    number = of_users + 0.9 / (10 * 1e-4)
    np.testing.assert_allclose(found, [by_epsilon, -2 * number / 0.01], rtol=1e-9 if X64 else 1e-5)
    assert float(users_for_error(10, 1.0, 0.01)) == math.ceil(number)


@ONLY_X64
@pytest.mark.long
def test_widths_have_their_slopes():
    """Between the steps of whole users and counts: these are what a wide difference sees. Long: much is compiled."""
    for share in (0.0, 0.3):
        agree(lambda e, s=share: expected_width(10, 10_000, e, s), 1.0, step=1e-2, rtol=1e-3)
        agree(lambda n, s=share: expected_width(10, n, 1.0, s), 10_000, step=1e-2, rtol=1e-3)
        agree(lambda e, s=share: users_for_width(10, e, 0.01, s), 1.0, step=1e-2, rtol=2e-3)
        agree(lambda w, s=share: users_for_width(10, 1.0, w, s), 0.01, step=1e-2, rtol=2e-3)
    agree(lambda s: expected_width(10, 10_000, 1.0, s), 0.3, step=1e-2, rtol=1e-3)
    agree(lambda level: users_for_width(10, 1.0, 0.01, 0.3, level=level), 0.9, step=1e-3, rtol=2e-3)
    # Counts so few that Stirling's errors come from a table.
    agree(lambda n: expected_width(1000, n, 6.0, 0.05), 120, step=5e-2, rtol=1e-2)


@pytest.mark.full
def test_users_and_width_are_each_others_inverse_in_their_slopes():
    """Long: as above."""
    epsilon, width = FLOAT.type(1.0), FLOAT.type(0.05)
    users = users_for_width(10, epsilon, width, 0.3)
    by_users = jax.grad(lambda n: expected_width(10, n, epsilon, 0.3))(users)
    by_width = jax.grad(lambda w: users_for_width(10, epsilon, w, 0.3))(width)
    assert float(by_users * by_width) == pytest.approx(1, rel=1e-6 if X64 else 1e-3)
    assert np.isnan(jax.grad(lambda w: users_for_width(10, 1e-6, w))(FLOAT.type(1e-6)))


def unrounded_share(epsilon, users, level, power):
    """The detectable share with a critical count that need not be whole, by beta laws of scipy."""
    e1 = math.expm1(epsilon)
    q, d = 1 / (e1 + 10), e1 / (e1 + 10)
    critical = optimize.brentq(
        lambda c: special.betainc(c, users - c + 1, q) - level,
        users * q,
        users * q + 20 * math.sqrt(users * q),
        xtol=1e-9,
    )
    return (special.betaincinv(critical, users - critical + 1, power) - q) / d


@pytest.mark.full
def test_the_detectable_share_has_the_slope_of_its_trend():
    """With the count kept that is significant now, its derivative in ε would even have the other sign.

    Long: tails of the binomial law are compiled over and over.
    """
    at = np.asarray([1.0, 10_000, 0.05, 0.8])
    found = jax.jit(jax.grad(lambda e, n, a, b: detectable_share(10, n, e, level=a, power=b), argnums=(0, 1, 2, 3)))(
        *at.astype(FLOAT)
    )
    wanted = [
        difference(lambda x, i=i: unrounded_share(*np.where(np.arange(4) == i, x, at)), at[i], 1e-3 * at[i])
        for i in range(4)
    ]
    assert wanted[0] < 0
    # At the exact solution less than one count away.
    np.testing.assert_allclose(found, wanted, rtol=5e-3)


# Budgets.


def test_a_budget_of_two_questions_against_a_fine_grid():
    weights = np.asarray([1.0, 3.0])
    found = split_budget(2.0, [3, 40], 5000, weights=weights.astype(FLOAT))
    grid = np.linspace(0.001, 1.999, 3997)

    def error(size, epsilon):
        ratio = np.exp(epsilon)
        return (size - 1) * (size - 2 + 2 * ratio) / (5000 * (ratio - 1) ** 2)

    losses = weights[0] * error(3, grid) + weights[1] * error(40, 2 - grid)
    best = grid[losses.argmin()]
    assert float(found.epsilons[0]) == pytest.approx(best, abs=5e-4)
    assert float(found.objective) == pytest.approx(losses.min(), rel=1e-6)
    assert float(found.objective) <= losses.min() * (1 + 1e-6)
    np.testing.assert_allclose(found.errors, [error(3, best), error(40, 2 - best)], rtol=2e-3)
    equal = weights[0] * error(3, 1) + weights[1] * error(40, 1)
    assert float(found.gain) == pytest.approx(equal / losses.min(), rel=1e-5)
    assert bool(found.converged)


@pytest.mark.parametrize("total", [0.03, 4.0, 12.0])
def test_a_budget_satisfies_the_conditions_of_the_least(total):
    """One more nat is worth as much to every question; and convexity then bounds what is left to gain."""
    designs = [rrjax.RandomizedResponse, OptimizedUnaryEncoding, partial(SubsetSelection, subset_size=3)]
    found = split_budget(total, [2, 50, 20], 1000, mechanism=designs, weights=[5.0, 1.0, 2.0])
    assert bool(found.converged)
    assert float(found.epsilons.sum()) == pytest.approx(total, rel=1e-6)
    np.testing.assert_allclose(found.marginals, found.marginals[0], rtol=1e-6 if X64 else 5e-3)
    assert float(found.gap) >= -1e-6 * float(found.objective)
    assert float(found.gap) <= (1e-6 if X64 else 1e-2) * float(found.objective)
    assert float(found.gain) >= 1


@pytest.mark.full
def test_a_budget_is_never_exceeded():
    """In exact fractions, of the numbers that mechanisms are made with and of the budget that was given."""
    for total in (0.1, 0.7, 1.0, 1 / 3, 3.3):
        for sizes in ([5], [2, 7], [4, 4, 4]):
            spent = sum(Fraction(each) for each in np.asarray(split_budget(total, sizes, 1000).epsilons).tolist())
            assert Fraction(total) * (1 - Fraction(1e-6)) <= spent <= Fraction(total)


def test_equal_questions_get_equal_shares():
    found = split_budget(3.0, [7, 7, 7], 100)
    np.testing.assert_allclose(found.epsilons, 1, rtol=1e-5)
    assert float(found.gain) == pytest.approx(1, rel=1e-6)
    alone = split_budget(3.0, [7], 100)
    np.testing.assert_allclose(alone.epsilons, [3.0], rtol=1e-6)
    assert float(alone.objective) == pytest.approx(float(rrjax.RandomizedResponse(7, 3.0).expected_squared_error(100)))


def test_a_budget_for_another_objective():
    """The product of the errors: for small ε, where each is as 1/ε², the equal split."""

    def product(epsilons):
        return jnp.exp(sum(jnp.log(expected_rmse(k, 100, e)) for k, e in zip((2, 30), epsilons, strict=True)))

    found = split_budget(0.02, [2, 30], 100, objective=product)
    assert bool(found.converged)
    np.testing.assert_allclose(found.epsilons, 0.01, rtol=5e-3)
    np.testing.assert_allclose(found.marginals, found.marginals[0], rtol=1e-3)


@pytest.mark.full
def test_budgets_batch_and_have_slopes():
    def first(total, weight):
        weights = jnp.stack([weight, jnp.ones_like(weight)])
        return split_budget(total, [3, 40], 1000, weights=weights).epsilons[0]

    totals = np.asarray([0.5, 2.0, 5.0], FLOAT)
    one = FLOAT.type(1)
    batch = jax.jit(jax.vmap(first, (0, None)))(totals, one)
    np.testing.assert_allclose(batch, [first(total, one) for total in totals], rtol=1e-5)
    for mode in (jax.jacfwd, jax.jacrev):
        found = jax.jit(mode(first, argnums=(0, 1)))(FLOAT.type(2), one)
        step = 1e-4 if X64 else 2e-2
        wanted = (
            difference(lambda t: first(t, one), FLOAT.type(2), step),
            difference(lambda w: first(FLOAT.type(2), w), one, step),
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-5 if X64 else 1e-2)
    assert np.isnan(jax.jit(first)(FLOAT.type(-1), one))


# Families.


def likelihood_of(exponent, counts, epsilon):
    theta = np.arange(1, 21) ** -float(exponent)
    e1 = math.expm1(epsilon)
    return counts @ np.log((1 + e1 * theta / theta.sum()) / (e1 + 20))


@pytest.mark.full
def test_a_family_against_a_search_by_scipy():
    counts = np.random.default_rng(0).multinomial(5000, (1 + math.expm1(1) / np.arange(1, 21) / 3.6) / 20 / 1.086)
    found = fit_family(ZIPF, 0.5, counts, 1.0)
    best = optimize.minimize_scalar(lambda s: -likelihood_of(s, counts, 1.0), (0.5, 1.5), options={"xtol": 1e-10}).x
    error = float(found.standard_errors)
    assert float(found.parameters) == pytest.approx(best, abs=(1e-5 if X64 else 1e-3) * error)
    bend = (
        likelihood_of(best + 1e-3, counts, 1.0)
        + likelihood_of(best - 1e-3, counts, 1.0)
        - 2 * likelihood_of(best, counts, 1.0)
    )
    assert error == pytest.approx(1 / math.sqrt(-bend / 1e-6), rel=1e-4)
    assert float(found.log_likelihood) == pytest.approx(likelihood_of(best, counts, 1.0), rel=1e-9 if X64 else 1e-6)
    assert float(found.aic) == pytest.approx(2 - 2 * likelihood_of(best, counts, 1.0), rel=1e-9 if X64 else 1e-6)
    assert float(found.num_users) == 5000
    np.testing.assert_allclose(found.shares, rrjax.simulate.zipf(20, FLOAT.type(best)), rtol=1e-4)
    # The same reports as those of a channel.
    channel = Channel(np.asarray(rrjax.RandomizedResponse(20, 1.0).channel(), float))
    mixed = fit_family(ZIPF, 0.5, channel.mixture_of_counts(counts))
    assert float(mixed.parameters) == pytest.approx(best, abs=(1e-5 if X64 else 5e-3) * error)
    assert float(mixed.standard_errors) == pytest.approx(error, rel=1e-5 if X64 else 1e-3)


def test_families_are_found_again_and_their_intervals_cover():
    """500 collections: mean within 3 standard errors of it, coverage of Wald's intervals as binomial."""
    truth, number = 1.3, 500
    theta = rrjax.simulate.zipf(20, FLOAT.type(truth))

    @jax.jit
    @jax.vmap
    def fitted(key):
        counts = rrjax.simulate.counts(key, theta, 20_000, 2.0)
        found = fit_family(ZIPF, 1.0, counts, 2.0)
        return found.parameters, found.standard_errors, found.converged

    found, errors, converged = map(np.asarray, fitted(jax.random.split(jax.random.key(0), number)))
    assert converged.all()
    assert abs(found.mean() - truth) <= 3 * found.std() / math.sqrt(number)
    assert errors.mean() == pytest.approx(found.std(), rel=0.1)  # three of its own errors, 1/√(2·500)
    covered = (np.abs(found - truth) <= 1.96 * errors).sum()
    low, high = stats.binom.ppf([0.001, 0.999], number, 0.95)
    assert low <= covered <= high


def test_a_family_of_several_parameters():
    """A pytree of parameters, of a function that anybody could have written."""
    place = np.arange(20, dtype=FLOAT)

    def bell(parameters):
        return -(((place - parameters["middle"]) / jnp.exp(parameters["log width"])) ** 2) / 2

    theta = jax.nn.softmax(bell({"middle": FLOAT.type(8), "log width": FLOAT.type(1)}))
    counts = rrjax.simulate.counts(jax.random.key(0), theta, 20_000, 2.0)
    found = fit_family(bell, {"middle": 5.0, "log width": 0.5}, counts, 2.0)
    for name, truth in (("middle", 8), ("log width", 1)):
        assert abs(float(found.parameters[name]) - truth) <= 4 * float(found.standard_errors[name])
    assert found.covariance.shape == (2, 2)
    for family, truth in ((geometric_logits, 0.4), (poisson_logits, 1.2)):
        logits = partial(family, num_categories=20)
        counts = rrjax.simulate.counts(jax.random.key(1), jax.nn.softmax(logits(FLOAT.type(truth))), 20_000, 2.0)
        found = fit_family(logits, 1.0, counts, 2.0)
        assert abs(float(found.parameters) - truth) <= 4 * float(found.standard_errors)


@pytest.mark.full
def test_unusable_collections_have_no_family():
    counts = np.full(20, 100)
    found = jax.jit(lambda epsilon: fit_family(ZIPF, 1.0, counts, epsilon))(-1.0)
    assert np.isnan(found.parameters)
    assert np.isnan(found.shares).all()
    assert not found.converged
    assert np.isnan(family_test(jax.random.key(0), ZIPF, 1.0, counts, -1.0, num_draws=19).p_value)


@ONLY_X64
def test_families_have_slopes():
    counts = np.round(2000 * np.asarray(rrjax.simulate.zipf(20, 0.4))) + np.arange(20)[::-1]

    @jax.jit
    def exponent(counts, epsilon):
        return fit_family(ZIPF, 1.0, counts, epsilon).parameters

    for mode in (jax.jacfwd, jax.jacrev):
        by_counts, by_epsilon = jax.jit(mode(exponent, argnums=(0, 1)))(counts, 1.5)
        assert float(by_epsilon) == pytest.approx(difference(lambda e: exponent(counts, e), 1.5, 1e-4), rel=1e-5)
        for place in (0, 19):
            step = np.eye(20)[place]
            wanted = difference(lambda x, step=step: exponent(counts + x * step, 1.5), 0.0, 0.1)
            assert float(by_counts[place]) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.full
def test_the_test_of_a_family_keeps_its_level_and_finds_another():
    """Long: each test fits a hundred collections."""
    theta = rrjax.simulate.zipf(20, FLOAT.type(1.0))
    other = jax.nn.softmax(geometric_logits(FLOAT.type(0.15), 20))

    @partial(jax.jit, static_argnums=1)
    def p_values(keys, draws):
        def one(key):
            first, second = jax.random.split(key)
            laws = jnp.stack([theta, other])
            counts = rrjax.simulate.counts(first, laws[draws], 20_000, 2.0)
            return family_test(second, ZIPF, 1.0, counts, 2.0, num_draws=99).p_value

        return jax.lax.map(one, keys)

    right = np.asarray(p_values(jax.random.split(jax.random.key(0), 100), 0))
    assert (right <= 0.1).sum() <= stats.binom.ppf(0.999, 100, 0.1)
    assert stats.kstest(right, "uniform").pvalue > 0.001
    wrong = np.asarray(p_values(jax.random.split(jax.random.key(1), 20), 1))
    assert (wrong <= 0.05).mean() > 0.9


# Dirichlet laws.


def collections(key, alpha, number, users):
    first, second = jax.random.split(key)
    theta = jax.random.dirichlet(first, alpha, (number,))
    return jax.vmap(lambda k, t: rrjax.simulate.counts(k, t, users, 2.0))(jax.random.split(second, number), theta)


@pytest.mark.full
def test_a_dirichlet_law_is_found_again():
    """Long: 40 laws, each with the posteriors of 60 collections."""
    alpha = np.asarray([4.0, 2.0, 1.0], FLOAT)

    @jax.jit
    def fitted(key):
        first, second = jax.random.split(key)
        found = fit_dirichlet(second, collections(first, alpha, 60, 2000), 2.0, num_draws=512)
        return found.alpha, found.log_covariance, found.converged, found.change

    found, covariance, converged, change = map(np.asarray, jax.lax.map(fitted, jax.random.split(jax.random.key(3), 40)))
    assert converged.all()
    assert change.max() < 0.01
    away = np.log(found / alpha)
    spread = away.std(0) / math.sqrt(40)
    assert (np.abs(away.mean(0)) <= 3.5 * spread).all()
    scores = away / np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    covered = (np.abs(scores) <= 1.96).sum(0)
    assert (covered >= stats.binom.ppf(0.001, 40, 0.95)).all()


@pytest.mark.full
def test_a_dirichlet_likelihood_of_two_categories_against_an_integral():
    counts = np.asarray([[300, 200], [420, 80], [250, 250], [350, 150], [200, 300]])
    found = fit_dirichlet(jax.random.key(0), counts, 1.5, num_draws=2048)
    e1 = math.expm1(1.5)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    shares = (nodes + 1) / 2

    def minus(log_alpha):
        a, b = np.exp(log_alpha)
        total = 0
        for one, two in counts:
            logs = one * np.log1p(e1 * shares) + two * np.log1p(e1 * (1 - shares))
            logs += stats.beta.logpdf(shares, a, b) + np.log(weights / 2)
            total += special.logsumexp(logs)
        return -total

    best = optimize.minimize(minus, np.log(found.alpha), method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-7})
    errors = np.sqrt(np.diagonal(found.log_covariance))
    assert (np.abs(np.log(found.alpha) - best.x) <= 0.05 * errors).all()
    rounding = 0 if X64 else 1e-6 * -best.fun
    assert float(found.log_likelihood) == pytest.approx(-best.fun, abs=4 * float(found.standard_error) + rounding)
    assert float(found.effective_draws.min()) > 1000
    np.testing.assert_allclose(found.mean.sum(), 1, rtol=1e-6)


# Statistics.


def gini(theta):
    return 1 - jnp.sum(theta**2)


def test_a_linear_statistic_has_the_error_that_is_known():
    """Of a share: what `standard_errors` says by its own formula, and no bias but that of the estimator."""
    counts = np.asarray([5200, 2900, 1500, 900])
    shares = delta_method(lambda theta: theta, counts, 2.0)
    np.testing.assert_allclose(shares.value, rrjax.mle_star(counts, 2.0))
    np.testing.assert_allclose(
        shares.standard_error[:3], rrjax.inference.standard_errors(counts, 2.0)[:3], rtol=1e-9 if X64 else 1e-4
    )
    plain = delta_method(lambda theta: theta[0], counts, 2.0, estimator=rrjax.inv)
    theta = np.asarray(rrjax.inv(counts, 2.0), float)
    wanted = math.sqrt(float(rrjax.inference.covariance(theta.astype(FLOAT), 10_500, 2.0)[0, 0]))
    assert float(plain.standard_error) == pytest.approx(wanted, rel=1e-9 if X64 else 1e-4)
    assert abs(float(plain.bias)) < 1e-3 * wanted
    low, high = float(plain.lower), float(plain.upper)
    assert (high - low) / 2 == pytest.approx(1.959964 * wanted, rel=1e-4)


def test_errors_and_biases_are_those_of_simulated_collections():
    """Far from the boundary: spread, bias and coverage over 2000 collections."""
    theta, number = np.asarray([0.4, 0.3, 0.2, 0.1], FLOAT), 2000

    @jax.jit
    @jax.vmap
    def found(key):
        return delta_method(gini, rrjax.simulate.counts(key, theta, 4000, 1.5), 1.5)

    result = found(jax.random.split(jax.random.key(0), number))
    away = np.asarray(result.value, float) - float(gini(theta))
    spread = away.std()
    assert np.asarray(result.standard_error).mean() == pytest.approx(spread, rel=4 / math.sqrt(2 * number))
    bias = float(np.mean(np.asarray(result.bias, float)))
    assert bias < -4 * spread / math.sqrt(number)  # it is there
    assert abs(away.mean() - bias) <= 3.5 * spread / math.sqrt(number)
    covered = ((result.lower <= gini(theta)) & (gini(theta) <= result.upper)).sum()
    # The bias costs a little.
    assert stats.binom.ppf(0.001, number, 0.935) <= int(covered) <= stats.binom.ppf(0.999, number, 0.95)


@pytest.mark.full
def test_reports_of_another_mechanism():
    """Through EM's implicit derivative; and of the same reports in either form the same."""
    counts = np.asarray([520, 290, 150, 90])
    channel = Channel(np.asarray(rrjax.RandomizedResponse(4, 2.0).channel(), float))
    mixed = delta_method(gini, channel.mixture_of_counts(counts))
    plain = delta_method(gini, counts, 2.0)
    for one, other in zip(mixed, plain, strict=True):
        assert float(one) == pytest.approx(float(other), rel=1e-6 if X64 else 5e-3)
    first = delta_method(gini, counts, 2.0, second_order=False)
    assert np.isnan(first.bias)
    assert float(first.standard_error) == pytest.approx(float(plain.standard_error), rel=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: split_budget(1.0, [], 10), "num_categories"),
        (lambda: split_budget(1.0, [1, 2], 10), "num_categories"),
        (lambda: split_budget(0.0, [2, 2], 10), "total_epsilon"),
        (lambda: split_budget(1.0, [2, 2], 10, weights=[1.0]), "weights"),
        (lambda: split_budget(1.0, [2, 2], 10, weights=[1.0, 0.0]), "weights"),
        (lambda: split_budget(1.0, [2, 2], 10, mechanism=[OptimizedUnaryEncoding]), "mechanism"),
        (lambda: split_budget(1.0, [2], 10, weights=[1.0], objective=jnp.sum), "weights"),
        (lambda: fit_family(ZIPF, 1.0, [1, 2, 3], 1.0), "log_shares"),
        (lambda: fit_family(lambda p: jnp.zeros(3, FLOAT), (), [1, 2, 3], 1.0), "start"),
        (lambda: fit_family(lambda p: 0 * p * jnp.arange(3, dtype=FLOAT), 1.0, [1, 2, 3], 1.0), "start"),
        (lambda: fit_family(ZIPF, 1.0, [1] * 20), "epsilon"),
        (lambda: family_test(jax.random.key(0), ZIPF, 1.0, [1] * 20, 1.0, num_draws=3), "num_draws"),
        (lambda: fit_dirichlet(jax.random.key(0), [1, 2], 1.0), "counts"),
        (lambda: fit_dirichlet(jax.random.key(0), [[1, 2], [0, 0]], 1.0), "counts"),
        (lambda: fit_dirichlet(jax.random.key(0), [[1, 2], [3, 4]], 1.0, num_draws=1), "num_draws"),
        (lambda: delta_method(gini, [1, 2, 3], 1.0, level=1.5), "level"),
        (lambda: delta_method(gini, [[1, 2, 3]], 1.0), "counts"),
    ],
)
@pytest.mark.once
def test_bad_arguments(call, message):
    with refused(message):
        call()


@pytest.mark.parametrize(("counts", "epsilon"), [([5, 3, 2], -1.0), ([0, 0, 0], 1.0), ([5, -3, 2], 1.0)])
def test_no_part_of_the_delta_method_is_a_number_where_the_estimate_is_none(counts, epsilon):
    found = delta_method(lambda theta: theta, counts, epsilon)
    assert all(np.isnan(part).all() for part in found)
