"""Randomized covariates of a randomized outcome: against another solver, against other models, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, special

from rrjax.mechanisms import Channel, OptimizedUnaryEncoding, RandomizedResponse
from rrjax.models import FitError, fit, fit_randomized_covariates, likelihood_ratio_test, predict, summary, wald_test

COEFFICIENTS = np.asarray([[0.2, -0.3], [0.5, -0.4], [0.8, 0.1], [-0.5, 0.6], [0.3, 0.9]])
"""Intercept, the known covariate, and dummies of two randomized ones of two and three values."""
LAWS = (RandomizedResponse(2, 2.0), RandomizedResponse(3, 2.5), RandomizedResponse(3, 3.0))


def survey(number, seed=0, missing=0.1):
    rng = np.random.default_rng(seed)
    known = 3 + 2 * rng.normal(size=number)
    first = (rng.random(number) < special.expit(0.25 * known - 1)).astype(int)
    second = (first + rng.integers(0, 2, number)) * (rng.random(number) < 0.8)
    design = np.c_[np.ones(number), (known - 3) / 2, first, second == 1, second == 2]
    shares = special.softmax(np.c_[np.zeros(number), design @ COEFFICIENTS], axis=1)
    outcome = (shares.cumsum(1) < rng.random(number)[:, None]).sum(1)
    keys = jax.random.split(jax.random.key(seed), 3)
    values = first, second, outcome
    reports = [np.array(law.randomize(key, each)) for law, key, each in zip(LAWS, keys, values, strict=True)]
    for each in reports:
        each[rng.random(number) < missing] = -1
    return known.astype(FLOAT), reports, values


def fitted(known, reports, **options):
    pairs = list(zip(reports[:2], LAWS[:2], strict=True))
    return fit_randomized_covariates(known, pairs, reports[2], LAWS[2], **options)


@pytest.mark.full
def test_the_maximum_and_its_information_are_those_of_the_dense_likelihood():
    known, reports, _ = survey(800)
    found = fitted(known, reports)
    x = (known.astype(float) - known.mean(dtype=float)) / known.std(dtype=float)
    z = np.asarray([[i == 1, j == 1, j == 2] for i in range(2) for j in range(3)], float)
    rows = [
        np.where(each[:, None] >= 0, np.asarray(law.channel(), float)[:, each].T, 1)
        for law, each in zip(LAWS, reports, strict=True)
    ]
    of_randomized = (rows[0][:, :, None] * rows[1][:, None, :]).reshape(-1, 6)

    def log_likelihood(flat):
        coefficients, cells, slopes = flat[:10].reshape(5, 2), np.r_[0, flat[10:15]], flat[15:]
        of_cells = special.softmax(cells + x[:, None] * (z @ slopes), axis=1)
        logits = (np.c_[np.ones_like(x), x] @ coefficients[:2])[:, None] + z @ coefficients[2:]
        shares = special.softmax(np.concatenate([np.zeros((*logits.shape[:2], 1)), logits], axis=2), axis=2)
        return np.log(np.einsum("nc,nc,nck,nk->n", of_cells, of_randomized, shares, rows[2])).sum()

    def minus(flat):
        return -log_likelihood(flat) - special.log_softmax(np.r_[0, flat[10:15]]).mean() + (flat[15:] ** 2).sum() / 2

    wanted = optimize.minimize(minus, np.zeros(18), method="BFGS", options={"gtol": 1e-6}).x
    step = 1e-3 * np.eye(18)
    hessian = np.asarray([
        [sum(s * t * minus(wanted + s * a + t * b) for s in (1, -1) for t in (1, -1)) / 4e-6 for b in step]
        for a in step
    ])  # fmt: skip
    # The solver stops at its gradient's rounding; one more step of Newton's method goes to the maximum.
    slope = np.asarray([minus(wanted + a) - minus(wanted - a) for a in 1e-2 * step]) / 2e-5
    wanted = wanted - np.linalg.solve(hessian, slope)
    errors = np.sqrt(np.diag(np.linalg.inv(hessian)))[:10]
    assert found.converged
    np.testing.assert_allclose(found.standard_coefficients.ravel(), wanted[:10], atol=1e-6 if X64 else 2e-3)
    own = np.sqrt(np.diag(np.asarray(found.standard_covariance, float)))
    np.testing.assert_allclose(own, errors, rtol=1e-4 if X64 else 5e-3)
    assert float(found.log_likelihood) == pytest.approx(log_likelihood(wanted), rel=1e-9 if X64 else 1e-5)
    back = found.coefficients[1] * known.std(dtype=float)
    np.testing.assert_allclose(back, found.standard_coefficients[1], rtol=1e-4)


@pytest.mark.full
def test_without_noise_it_is_the_regression_on_the_values():
    known, _, values = survey(1000)
    exact = [RandomizedResponse(law.num_categories, 60.0) for law in LAWS]
    pairs = list(zip(values[:2], exact[:2], strict=True))
    found = fit_randomized_covariates(known, pairs, values[2], exact[2], clusters=np.arange(1000) // 2)
    covariates = np.c_[known, values[0], values[1] == 1, values[1] == 2]
    plain = fit(covariates, values[2], 60.0, num_categories=3, clusters=np.arange(1000) // 2)
    np.testing.assert_allclose(found.coefficients, plain.coefficients, atol=1e-6 if X64 else 2e-3)
    # Only the factor for a few clusters differs: it counts the parameters of the cells, too.
    np.testing.assert_allclose(found.standard_errors, plain.standard_errors, rtol=0.01)
    np.testing.assert_allclose(predict(found, covariates[:3]).shares, predict(plain, covariates[:3]).shares, atol=1e-3)
    assert "x3" in summary(found)


@pytest.mark.full
def test_reports_taken_as_values_give_too_small_effects():
    known, reports, _ = survey(30_000, missing=0)
    found = fitted(known, reports)
    as_if_true = fit(np.c_[known, reports[0], reports[1] == 1, reports[1] == 2], reports[2], LAWS[2])
    true = COEFFICIENTS[2:]
    own, naive = found.coefficients[2:], as_if_true.coefficients[2:]
    assert (np.abs(own - true) < 3.5 * found.standard_errors[2:]).all()
    assert (np.abs(naive - true)[np.abs(true) > 0.4] > 4 * found.standard_errors[2:][np.abs(true) > 0.4]).any()
    assert np.abs(naive[0, 0]) < 0.85 * np.abs(own[0, 0])
    # Without the randomized covariates the model is the regression on the known one: the gains compare the two.
    within = fit(known, reports[2], LAWS[2])
    left_out = fitted(known, reports, left_out=[1, 2, 3])
    np.testing.assert_allclose(left_out.coefficients, within.coefficients, atol=1e-5 if X64 else 1e-3)
    wanted = likelihood_ratio_test(found, left_out)
    test = likelihood_ratio_test(found, within)
    assert test.degrees == wanted.degrees == 6
    assert float(test.statistic) == pytest.approx(float(wanted.statistic), rel=1e-6 if X64 else 1e-2)
    assert float(test.statistic) == pytest.approx(float(wald_test(found, [1, 2, 3]).statistic), rel=0.2)


@pytest.mark.full
def test_users_with_equal_reports_are_one_row_and_other_mechanisms_are_taken():
    _, reports, values = survey(500)
    law = OptimizedUnaryEncoding(3, 3.0)
    channel = Channel(np.asarray(LAWS[0].channel()))
    bits = law.randomize(jax.random.key(1), values[2])
    one = fit_randomized_covariates(None, [(reports[0], LAWS[0])], bits, law)
    other = fit_randomized_covariates(
        None, [(reports[0], channel)], jnp.asarray(bits), law, covariance="sandwich"
    )  # not merged
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=1e-5 if X64 else 1e-2)
    np.testing.assert_allclose(one.standard_errors, other.standard_errors, rtol=0.3)
    assert float(one.log_likelihood) == pytest.approx(float(other.log_likelihood), rel=1e-5)
    assert float(one.num_users) == 500
    weighted = fit_randomized_covariates(
        None, [(np.r_[reports[0], 0], LAWS[0])], np.r_[bits, bits[:1]], law, weights=np.r_[[2.0] * 500, 0]
    )
    np.testing.assert_allclose(weighted.standard_errors, one.standard_errors / np.sqrt(2), rtol=0.02)


@pytest.mark.long
def test_what_is_wrong_is_named():
    known, reports, _ = survey(60)
    pair = (reports[0], LAWS[0])
    given = reports[2], LAWS[2]
    with refused("randomized"):
        fit_randomized_covariates(known, [], *given)
    with refused("randomized"):
        fit_randomized_covariates(known, [reports[0]], *given)
    with refused("randomized", value=600):
        fit_randomized_covariates(known, [(reports[0], RandomizedResponse(600, 2.0))], *given)
    with refused("randomized[1]"):
        fit_randomized_covariates(known, [pair, (reports[1][:50], LAWS[1])], *given)
    with refused("randomized[1]"):
        fit_randomized_covariates(known, [pair, (np.full(60, -1), LAWS[1])], *given)
    with refused("reports"):
        fit_randomized_covariates(known, [pair], np.full(60, -1), LAWS[2])
    with refused("reports"):
        fit_randomized_covariates(known, [pair], reports[2][:50], LAWS[2])
    apart = np.where(np.arange(60) < 30, np.abs(reports[0]), -1), np.where(np.arange(60) < 30, -1, np.abs(reports[2]))
    with refused("randomized", value=0):
        fit_randomized_covariates(known, [(apart[0], LAWS[0])], apart[1], LAWS[2])
    with refused("left_out"):
        fit_randomized_covariates(known, [pair], *given, left_out=[2])
    with refused("covariance"):
        fit_randomized_covariates(known, [pair], *given, covariance="none")
    with refused("prior", value=-1):
        fit_randomized_covariates(known, [pair], *given, prior=-1)
    with refused("ridge"):
        fit_randomized_covariates(known, [pair], *given, ridge=np.inf)
    with refused(error=FitError, reason="missing", row=3):
        fit_randomized_covariates(np.where(np.arange(60) == 3, np.nan, known), [pair], *given)
    with refused(error=FitError, reason="clusters"):
        fit_randomized_covariates(known, [pair], *given, clusters=np.arange(60) // 20)


@pytest.mark.full
def test_what_says_too_little_is_refused():
    known, reports, _ = survey(60)
    with refused(error=FitError, reason="steps"):
        fit_randomized_covariates(known, [(reports[0], RandomizedResponse(2, 1e-2))], reports[2], LAWS[2])
    with refused(error=FitError, reason="unbounded", category=2):  # nobody reports it
        fit_randomized_covariates(None, [(reports[0], LAWS[0])], reports[2] % 2, 60.0, num_categories=3)
