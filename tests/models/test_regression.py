"""Regression of randomized answers: against another solver, the binary model's formulas, and what is refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, stats

import rrjax
from rrjax.mechanisms import Channel, OptimizedUnaryEncoding, RandomizedResponse, SubsetSelection
from rrjax.models import (
    CandidateResponse,
    fit,
    fit_in_batches,
    goodness_of_fit_test,
    likelihood_ratio_test,
    predict,
    rr_loss,
    score_test,
    summary,
    wald_test,
)

TRUE = np.asarray([[0.5, 0.0, -0.3], [0.4, -0.5, 0.3], [-0.2, 0.6, 0.1]])


def population(number, coefficients=TRUE, seed=0):
    """Covariates and values."""
    rng = np.random.default_rng(seed)
    covariates = rng.normal(size=(number, len(coefficients) - 1))
    values = drawn(covariates, coefficients, rng)
    return covariates.astype(FLOAT), values


def shares(covariates, coefficients):
    logits = np.c_[np.zeros(len(covariates)), np.c_[np.ones(len(covariates)), covariates] @ coefficients]
    power = np.exp(logits)
    return power / power.sum(1, keepdims=True)


def drawn(covariates, coefficients, rng):
    return (shares(covariates, coefficients).cumsum(1) < rng.random(len(covariates))[:, None]).sum(1)


def solved(covariates, law):
    """The maximum by another solver, in float64: coefficients, Hessian by differences, log-likelihood.

    Args:
        covariates: `[N, D]`.
        law: `[N, K]`, P(report | value).
    """
    number = law.shape[1] - 1

    def minus(flat):
        return -np.log((shares(covariates, flat.reshape(-1, number)) * law).sum(1)).sum()

    found = optimize.minimize(
        minus, np.zeros((covariates.shape[1] + 1) * number), method="BFGS", options={"gtol": 1e-6}
    )
    at, step = found.x, 1e-4
    size = len(at)
    hessian = np.zeros((size, size))
    for i in range(size):
        for j in range(size):
            a, b = step * np.eye(size)[i], step * np.eye(size)[j]
            hessian[i, j] = (
                (minus(at + a + b) - minus(at + a - b) - minus(at - a + b) + minus(at - a - b)) / 4 / step**2
            )
    return at.reshape(-1, number), hessian, -found.fun


@pytest.mark.long
@pytest.mark.parametrize("name", ["randomized-response", "optimized-unary-encoding", "channel", "epsilons"])
def test_the_maximum_is_that_of_another_solver(name):
    covariates, values = population(400)
    epsilon, given, rng = 3.0, {}, np.random.default_rng(5)
    if name == "epsilons":
        epsilons = rng.uniform(2, 4, 400).astype(FLOAT)
        reports = np.asarray([
            RandomizedResponse(4, float(e)).randomize(jax.random.key(i), v)
            for i, (e, v) in enumerate(zip(epsilons, values, strict=True))
        ])  # fmt: skip
        mechanism, given = epsilons, {"num_categories": 4}
        wide = np.exp(epsilons.astype(float))[:, None]
        law = np.where(np.eye(4, dtype=bool)[reports], wide, 1) / (wide + 3)
    elif name == "optimized-unary-encoding":
        mechanism = OptimizedUnaryEncoding(4, epsilon)
        reports = mechanism.randomize(jax.random.key(0), values)
        q = 1 / (math.exp(epsilon) + 1)
        bits = np.asarray(reports)[:, None]
        law = np.where(np.eye(4, dtype=bool), 0.5, np.where(bits, q, 1 - q)).prod(2)
    else:
        response = RandomizedResponse(4, epsilon)
        reports = response.randomize(jax.random.key(0), values)
        matrix = np.asarray(response.channel(), float)
        law = matrix[:, np.asarray(reports)].T
        mechanism = response if name == "randomized-response" else Channel(matrix / matrix.sum(1, keepdims=True))
    found = fit(covariates, reports, mechanism, **given)
    coefficients, hessian, log_likelihood = solved(covariates.astype(float), law)
    errors = np.sqrt(np.diag(np.linalg.inv(hessian))).reshape(coefficients.shape)
    assert bool(found.converged)
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-4 if X64 else 1e-3)
    assert (np.abs(np.asarray(found.coefficients) - coefficients) <= (1e-4 if X64 else 1e-3) * errors).all()
    assert float(found.log_likelihood) == pytest.approx(log_likelihood, rel=1e-9 if X64 else 1e-6)
    assert found.num_parameters == 9
    assert float(found.aic) == pytest.approx(-2 * log_likelihood + 18, rel=1e-9 if X64 else 1e-6)
    if name == "randomized-response":  # the same likelihood as the loss
        ones = np.concatenate([np.ones((400, 1), FLOAT), covariates], axis=1)
        logits = jnp.concatenate([jnp.zeros((400, 1), FLOAT), ones @ np.asarray(found.coefficients)], axis=1)
        assert float(rr_loss(logits, reports, mechanism).sum()) == pytest.approx(-log_likelihood, rel=1e-5)


@pytest.mark.long
def test_two_categories_agree_with_the_formulas_of_the_binary_model():
    """Score and information of logistic regression through randomized response, derived for a report of yes or no."""
    covariates, values = population(2000, TRUE[:, :1])
    reports = np.asarray(RandomizedResponse(2, 1.5).randomize(jax.random.key(0), values))
    found = fit(covariates, reports, 1.5, num_categories=2)
    design = np.c_[np.ones(2000), covariates.astype(float)]
    p = math.exp(1.5) / (math.exp(1.5) + 1)
    pi = 1 / (1 + np.exp(-design @ np.asarray(found.coefficients, float)[:, 0]))
    mu = (1 - p) + (2 * p - 1) * pi  # of the report "1"
    slope = (2 * p - 1) * pi * (1 - pi)
    score = design.T @ ((reports - mu) / (mu * (1 - mu)) * slope)
    bend = (reports - mu) * (slope * (1 - 2 * pi) - slope**2 * (1 - 2 * mu) / (mu * (1 - mu))) / (mu * (1 - mu))
    information = (design * (slope**2 / (mu * (1 - mu)) - bend)[:, None]).T @ design
    inverse = np.linalg.inv(information)
    np.testing.assert_allclose(found.covariance, inverse, rtol=1e-6 if X64 else 1e-3, atol=1e-9 if X64 else 1e-6)
    assert score @ inverse @ score < (1e-9 if X64 else 1e-5)


@pytest.mark.long
def test_without_noise_it_is_plain_logistic_regression():
    covariates, values = population(1000)
    found = fit(covariates, values, 200.0, num_categories=4)
    coefficients, _, _ = solved(covariates.astype(float), np.eye(4)[values])
    np.testing.assert_allclose(found.coefficients, coefficients, atol=1e-4)


@pytest.mark.long
def test_units_of_the_covariates_do_not_matter():
    covariates, values = population(500)
    reports = RandomizedResponse(4, 3.0).randomize(jax.random.key(0), values)
    plain = fit(covariates, reports, 3.0, num_categories=4)
    scaled = fit(1000 + 50 * covariates, reports, 3.0, num_categories=4)
    rtol = 1e-6 if X64 else 2e-3
    np.testing.assert_allclose(50 * scaled.coefficients[1:], plain.coefficients[1:], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(50 * scaled.standard_errors[1:], plain.standard_errors[1:], rtol=rtol)
    there = scaled.coefficients[0] + 1000 * scaled.coefficients[1:].sum(0)
    np.testing.assert_allclose(there, plain.coefficients[0], atol=1e-5 if X64 else 0.02)


@pytest.mark.long
def test_weights_are_numbers_of_users():
    covariates, values = population(300)
    reports = np.asarray(RandomizedResponse(4, 3.0).randomize(jax.random.key(0), values))
    times = np.random.default_rng(1).integers(0, 4, 300)
    weighted = fit(covariates, reports, 3.0, num_categories=4, weights=times)
    repeated = fit(covariates.repeat(times, 0), reports.repeat(times), 3.0, num_categories=4)
    np.testing.assert_allclose(weighted.coefficients, repeated.coefficients, atol=1e-5 if X64 else 2e-3)
    np.testing.assert_allclose(weighted.standard_errors, repeated.standard_errors, rtol=1e-5 if X64 else 1e-3)
    assert float(weighted.num_users) == times.sum()


@pytest.mark.long
def test_sandwiches_by_their_definition():
    covariates, values = population(400)
    mechanism = RandomizedResponse(4, 3.0)
    reports = mechanism.randomize(jax.random.key(0), values)
    clusters = np.arange(400) // 5
    found = fit(covariates, reports, mechanism, clusters=clusters)
    plain = fit(covariates, reports, mechanism, covariance="sandwich")
    ones = np.concatenate([np.ones((400, 1), FLOAT), covariates], axis=1)

    def loss(coefficients, row, report):
        return rr_loss(jnp.concatenate([jnp.zeros(1, FLOAT), row @ coefficients]), report, 3.0)

    scores = np.asarray(jax.vmap(jax.grad(loss), (None, 0, 0))(found.coefficients, ones, reports), float)
    scores = scores.reshape(400, -1)
    inverse = np.asarray(fit(covariates, reports, mechanism).covariance, float)
    grouped = scores.reshape(80, 5, -1).sum(1)
    rtol = 1e-6 if X64 else 5e-3
    for result, rows, factor in ((plain, scores, 1), (found, grouped, 80 / 79 * 399 / (400 - 9))):
        wanted = factor * inverse @ (rows.T @ rows) @ inverse
        np.testing.assert_allclose(result.standard_errors.ravel(), np.sqrt(np.diag(wanted)), rtol=rtol)


@pytest.mark.long
def test_solvers_agree():
    covariates, values = population(1000)
    covariates = 10 + 3 * covariates
    reports = RandomizedResponse(4, 3.0).randomize(jax.random.key(0), values)
    given = {"mechanism_or_epsilon": 3.0, "num_categories": 4, "ridge": 0.5}
    newton = fit(covariates, reports, **given)
    lbfgs = fit(covariates, reports, **given, solver="l-bfgs")
    errors = np.asarray(newton.standard_errors)
    assert lbfgs.converged
    assert lbfgs.num_iters > newton.num_iters
    assert (np.abs(lbfgs.coefficients - newton.coefficients) < (1e-4 if X64 else 5e-3) * errors).all()
    np.testing.assert_allclose(lbfgs.standard_errors, errors, rtol=1e-4 if X64 else 1e-3)
    bare = fit(covariates, reports, **given, solver="l-bfgs", covariance="none")
    np.testing.assert_array_equal(bare.coefficients, lbfgs.coefficients)
    assert float(bare.log_likelihood) == pytest.approx(float(newton.log_likelihood), rel=1e-6)
    with pytest.raises(ValueError, match='fitted with covariance="none"'):
        bare.standard_errors  # noqa: B018
    batches = fit_in_batches(jax.random.key(0), covariates, reports, **given, batch_size=100, num_epochs=40)
    assert batches.converged
    assert (np.abs(batches.coefficients - newton.coefficients) < 0.2 * errors).all()
    assert float(newton.log_likelihood - batches.log_likelihood) < 0.1
    for more, message in (
        ({"solver": "bfgs"}, '"newton" or "l-bfgs"'),
        ({"covariance": "none", "reduce_bias": True}, "reduce_bias needs a covariance"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(covariates, reports, **given, **more)
    with refused("batch_size", value=0):
        fit_in_batches(jax.random.key(0), covariates, reports, **given, batch_size=0)


@pytest.mark.long
def test_the_bias_is_that_of_cox_and_snell():
    """Without noise and with one category against another it is the published one of logistic regression."""
    covariates, values = population(200, TRUE[:, :1])
    found, reduced = (fit(covariates, values, 200.0, num_categories=2, reduce_bias=each) for each in (False, True))
    design = np.c_[np.ones(200), covariates.astype(float)]
    pi = 1 / (1 + np.exp(-design @ np.asarray(found.coefficients, float)[:, 0]))
    weight = pi * (1 - pi)
    inverse = np.linalg.inv(design.T * weight @ design)
    leverage = np.einsum("nd,de,ne->n", design, inverse, design)
    # Cordeiro and McCullagh: (XᵀWX)⁻¹XᵀWξ with ξ = h·(π − ½). Observed squares in place of expected ones add more.
    expected = inverse @ (design.T @ (weight * leverage * (pi - 0.5)))
    expected += inverse @ (design.T @ (-weight * leverage * (values - pi)))
    bias = np.asarray(found.coefficients - reduced.coefficients, float)[:, 0]
    np.testing.assert_allclose(bias, expected, rtol=1e-5 if X64 else 1e-2, atol=1e-6)
    assert float(found.log_likelihood) == float(reduced.log_likelihood)


@pytest.mark.full
def test_reduced_estimates_are_nearer_on_average():
    """Over 4,000 fits, compiled and made, of which twelve seconds are gone."""
    covariates, _ = population(200, TRUE[:, :1])
    logits = np.c_[np.ones(200), covariates] @ TRUE[:, :1]
    logits = jnp.asarray(np.c_[np.zeros(200), logits], FLOAT)

    def one(key):
        of_values, of_reports = jax.random.split(key)
        reports = RandomizedResponse(2, 2.0).randomize(of_reports, jax.random.categorical(of_values, logits))
        return [
            fit(covariates, reports, 2.0, num_categories=2, reduce_bias=each).coefficients for each in (False, True)
        ]

    found = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=200))(jax.random.split(jax.random.key(0), 4000))
    outward = [(np.asarray(each, float)[:, :, 0] - TRUE[:, 0]) @ np.sign(TRUE[:, 0]) for each in found]
    likeliest, reduced = (each.mean() / (each.std(ddof=1) / np.sqrt(4000)) for each in outward)
    assert likeliest > 5
    assert abs(reduced) < 3


@pytest.mark.long
def test_batches_are_loops():
    covariates, values = population(300)
    reports = np.stack([RandomizedResponse(4, 3.0).randomize(jax.random.key(i), values) for i in range(3)])
    together = jax.jit(jax.vmap(lambda y, e: fit(covariates, y, e, num_categories=4), (0, None)))(reports, 3.0)
    assert together.converged.all()
    for i in range(3):
        alone = fit(covariates, reports[i], 3.0, num_categories=4)
        np.testing.assert_allclose(together.coefficients[i], alone.coefficients, atol=1e-6 if X64 else 5e-3)


@pytest.mark.long
def test_a_prior_makes_a_maximum_where_there_is_none():
    covariates = np.linspace(-1, 1, 200, dtype=FLOAT)
    separated = (covariates > 0).astype(int)
    with refused(reason="unbounded"):
        fit(covariates, separated, 5.0, num_categories=2)
    found = fit(covariates, separated, 5.0, num_categories=2, ridge=0.1)
    assert bool(found.converged)
    assert 1 < float(found.coefficients[1, 0]) < 20
    covariates, values = population(400, TRUE[:, :2])
    assert values.max() == 2  # fewer reports of the last one than noise alone would bring
    with refused(reason="unbounded", category=3):
        fit(covariates, values[:, None], SubsetSelection(4, 4.0, subset_size=1))
    traced = jax.jit(lambda y: fit(covariates, y, 4.0, num_categories=4))(values)
    assert not np.asarray(traced.standard_errors).max() < 20


@pytest.mark.long
def test_what_is_wrong_is_named():
    covariates, values = population(50)
    missing = covariates.copy()
    missing[7, 1] = np.nan
    with refused("covariates", row=7, columns=(1,)):
        fit(missing, values, 1.0, num_categories=4)
    with refused(reason="constant", columns=(2,)):
        fit(np.c_[covariates, np.ones(50)], values, 1.0, num_categories=4)
    with refused(reason="dependent", columns=(0, 2)):
        fit(np.c_[covariates, 2 * covariates[:, 0]], values, 1.0, num_categories=4)
    with refused("reports"):
        fit(covariates, values, 1.0, num_categories=2)
    with refused("num_categories"):
        fit(covariates, values, 1.0)
    with refused("num_categories"):
        fit(covariates, values, RandomizedResponse(4, 1.0), num_categories=3)
    with refused("epsilon"):
        fit(covariates, values, np.where(np.arange(50) == 3, 0.0, 1.0), num_categories=4)
    with refused(reason="weights", row=4, value=-1):
        fit(covariates, values, 1.0, num_categories=4, weights=np.where(np.arange(50) == 4, -1, 1))
    with refused(reason="weights", number=0):
        fit(covariates, values, 1.0, num_categories=4, weights=np.zeros(50))
    with refused("reports"):
        fit(covariates, values[:40], 1.0, num_categories=4)
    with refused("covariance"):
        fit(covariates, values, 1.0, num_categories=4, covariance="robust")
    with refused("covariates"):
        fit(np.asarray([["a"]] * 50), values, 1.0, num_categories=4)


@pytest.mark.full
def test_tests_compare_regressions():
    covariates, values = population(2000)
    reports = RandomizedResponse(4, 3.0).randomize(jax.random.key(0), values)
    whole, first = (fit(x, reports, 3.0, num_categories=4) for x in (covariates, covariates[:, :1]))
    wald, ratio = wald_test(whole, 1), likelihood_ratio_test(whole, first)
    assert wald.degrees == ratio.degrees == 3
    tested = np.asarray(whole.coefficients[2], float)
    block = np.asarray(whole.covariance, float)[6:, 6:]
    statistic = tested @ np.linalg.inv(block) @ tested
    assert float(wald.statistic) == pytest.approx(statistic, rel=1e-9 if X64 else 1e-3)
    assert float(wald.p_value) == pytest.approx(stats.chi2.sf(float(wald.statistic), 3), rel=1e-9 if X64 else 1e-3)
    assert float(ratio.statistic) == pytest.approx(2 * float(whole.log_likelihood - first.log_likelihood), abs=1e-3)
    assert float(ratio.p_value) == pytest.approx(stats.chi2.sf(float(ratio.statistic), 3), rel=1e-9 if X64 else 1e-3)
    assert wald_test(whole, [0, 1]).degrees == 6
    for columns in (2, [], [1, 1], -1):
        with refused("covariates"):
            wald_test(whole, columns)
    with refused("within"):
        likelihood_ratio_test(first, whole)
    with refused("within"):
        likelihood_ratio_test(whole, fit(covariates[:1000, :1], reports[:1000], 3.0, num_categories=4))


@pytest.mark.full
def test_score_tests_see_what_was_left_out():
    """Ten seconds of compilation: two mechanisms, each fitted with both numbers of covariates."""
    covariates, values = population(5000)
    square = covariates[:, 0] * covariates[:, 1]
    candidates = CandidateResponse(np.arange(4) != np.random.default_rng(3).integers(0, 8, 5000)[:, None], 3.0)
    for mechanism in (RandomizedResponse(4, 3.0), candidates, OptimizedUnaryEncoding(4, 3.0)):
        reports = mechanism.randomize(jax.random.key(0), values)
        first, whole = (fit(x, reports, mechanism) for x in (covariates[:, :1], covariates))
        missing = score_test(first, covariates[:, :1], covariates[:, 1], reports, mechanism)
        ratio = likelihood_ratio_test(whole, first)
        assert missing.degrees == ratio.degrees == 3
        assert float(missing.statistic) == pytest.approx(float(ratio.statistic), rel=0.25)  # near, for many users
        assert float(missing.p_value) < 1e-6
        nothing = score_test(whole, covariates, square, reports, mechanism)
        assert float(nothing.p_value) > 0.01
    assert goodness_of_fit_test(whole, covariates, reports, mechanism).p_value > 0.01
    groups = np.digitize(covariates[:, 1], [-0.5, 0.5])
    found = goodness_of_fit_test(first, covariates[:, :1], reports, mechanism, groups=groups)
    assert found.degrees == 6
    assert float(found.p_value) < 1e-6
    binary = (covariates[:, :1] > 0).astype(FLOAT)
    result = fit(binary, reports, mechanism)
    with refused(reason="groups", number=2):
        goodness_of_fit_test(result, binary, reports, mechanism, groups=binary[:, 0])
    with refused("covariates"):
        score_test(whole, covariates[:, 0], square, reports, mechanism)


@pytest.mark.full
def test_predictions_are_the_shares_of_the_model():
    covariates, values = population(2000)
    reports = RandomizedResponse(4, 3.0).randomize(jax.random.key(0), values)
    result = fit(covariates, reports, 3.0, num_categories=4)
    found = predict(result, covariates[:5], confidence=0.9)
    flat, step = np.asarray(result.coefficients, float).ravel(), 1e-5
    np.testing.assert_allclose(found.shares, shares(covariates[:5].astype(float), flat.reshape(3, 3)), atol=1e-6)
    # Errors by differences in each coefficient.
    ends = [
        [shares(covariates[:5].astype(float), (flat + side * step * e).reshape(3, 3)) for side in (-1, 1)]
        for e in np.eye(9)
    ]
    moved = np.stack([(high - low) / (2 * step) for low, high in ends], -1)
    errors = np.sqrt(np.einsum("nki,ij,nkj->nk", moved, np.asarray(result.covariance, float), moved))
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-3)
    high, middle = (np.asarray(each, float) for each in (found.upper, found.shares))
    width = np.log(high / (1 - high)) - np.log(middle / (1 - middle))
    np.testing.assert_allclose(width, 1.6448536 * errors / (middle * (1 - middle)), rtol=2e-3)
    assert (found.lower < found.shares).all()
    with refused("covariates"):
        predict(result, covariates[:, 0])
    with refused("confidence"):
        predict(result, covariates, confidence=95)


@pytest.mark.long
def test_the_table_says_what_was_found():
    covariates, values = population(500)
    result = fit(covariates, values, 200.0, num_categories=4)
    lines = summary(result, ["age", "sex"], ["a", "b", "c", "d"]).splitlines()
    assert [line for line in lines if line.endswith(":")] == [f"{name}, compared with a:" for name in "bcd"]
    name, estimate, error, score, chance = lines[3].replace("< ", "<").split()
    assert name == "age"
    assert float(estimate) == pytest.approx(float(result.coefficients[1, 0]), abs=1e-4)
    assert float(error) == pytest.approx(float(result.standard_errors[1, 0]), abs=1e-4)
    assert float(score) == pytest.approx(float(estimate) / float(error), abs=0.01)
    assert chance == "<1e-4" or float(chance) == pytest.approx(2 * stats.norm.sf(abs(float(score))), rel=0.05)
    with refused("names"):
        summary(result, ["age"])


@pytest.mark.long
@pytest.mark.parametrize("solver", ["newton", pytest.param("l-bfgs", marks=pytest.mark.full)])
def test_without_covariates_the_intercepts_are_the_maximum_of_the_counts(solver):
    mechanism = RandomizedResponse(3, 2.0)
    counts = np.array([700, 400, 300])
    reports, nothing = np.repeat([0, 1, 2], counts), np.zeros((1400, 0), FLOAT)
    found = fit(nothing, reports, mechanism, solver=solver)
    theta = np.asarray(rrjax.mle_star(counts, 2.0), float)
    near = math.sqrt(2 * (1e-10 if X64 else 1e-6)) * float(found.standard_errors.max())  # at the tolerance of the gap
    np.testing.assert_allclose(found.coefficients, np.log(theta[1:] / theta[0])[None], rtol=1e-6, atol=near)
    predicted = predict(found, nothing[:2])
    np.testing.assert_allclose(predicted.shares, np.stack([theta, theta]), rtol=1e-6, atol=near)
    expected = np.asarray(rrjax.inference.standard_errors(counts, 2.0), float)
    np.testing.assert_allclose(predicted.standard_errors[0], expected, rtol=1e-3)
    assert "(intercept)" in summary(found)
    with refused("covariates"):
        fit(nothing, reports, mechanism, intercept=False)


@pytest.mark.full
def test_the_model_without_covariates_lies_within_those_with_some():
    covariates, values = population(3000)
    reports = np.asarray(RandomizedResponse(4, 2.0).randomize(jax.random.key(0), values))
    nothing = covariates[:, :0]
    whole, within = (fit(each, reports, 2.0, num_categories=4) for each in (covariates, nothing))
    ratio = likelihood_ratio_test(whole, within)
    assert ratio.degrees == 6
    score = score_test(within, nothing, covariates, reports, 2.0)
    assert float(score.statistic) == pytest.approx(float(ratio.statistic), rel=0.1)
    traced = jax.jit(lambda x, r: fit(x, r, 2.0, num_categories=4).coefficients)(nothing, reports)
    np.testing.assert_allclose(traced, within.coefficients, rtol=1e-4)
