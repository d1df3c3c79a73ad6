"""A randomized answer as a covariate: against another solver, against knowing the answer, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, special, stats

from rrjax.mechanisms import RandomizedResponse
from rrjax.models import fit_outcome, summary

pytestmark = pytest.mark.long  # every fit compiles for a second or more

ANSWERS = np.asarray([[0.2, -0.1], [0.5, -0.4]])
EFFECTS = np.asarray([0.3, 0.4, 0.8, -0.7])
"""Intercept, covariate, categories 1 and 2."""


def population(number, family, seed=0):
    rng = np.random.default_rng(seed)
    covariates = rng.normal(size=(number, 1))
    logits = np.c_[np.zeros(number), np.c_[np.ones(number), covariates] @ ANSWERS]
    values = (special.softmax(logits, axis=1).cumsum(1) < rng.random(number)[:, None]).sum(1)
    eta = EFFECTS[0] + EFFECTS[1] * covariates[:, 0] + np.r_[0, EFFECTS[2:]][values]
    outcome = {
        "normal": lambda: eta + 0.7 * rng.normal(size=number),
        "binary": lambda: (rng.random(number) < special.expit(eta)).astype(int),
        "counts": lambda: rng.poisson(np.exp(eta)),
    }[family]()
    return covariates.astype(FLOAT), values, outcome


def minus(flat, family, covariates, outcome, law):
    """The negative log-likelihood, written once more."""
    design = np.c_[np.ones(len(covariates)), covariates]
    linear, answers, log_scale, coefficients = flat[:2], flat[2:4], flat[4], flat[5:].reshape(2, 2)
    log_shares = special.log_softmax(np.c_[np.zeros(len(design)), design @ coefficients], axis=1)
    eta = (design @ linear)[:, None] + np.r_[0, answers]
    y = outcome[:, None]
    density = {
        "normal": lambda: stats.norm.logpdf(y, eta, np.exp(log_scale)),
        "binary": lambda: stats.bernoulli.logpmf(y, special.expit(eta)),
        "counts": lambda: stats.poisson.logpmf(y, np.exp(eta)),
    }[family]()
    return -special.logsumexp(log_shares + density + np.log(law), axis=1).sum()


@pytest.mark.full
@pytest.mark.parametrize("family", ["normal", "binary", "counts"])
def test_the_maximum_is_that_of_another_solver(family):
    covariates, values, outcome = population(600, family)
    mechanism = RandomizedResponse(3, 2.5)
    reports = np.asarray(mechanism.randomize(jax.random.key(0), values))
    found = fit_outcome(outcome, covariates, reports, mechanism, family=family)
    law = np.asarray(mechanism.channel(), float)[:, reports].T
    start = np.r_[EFFECTS, 0, ANSWERS.ravel()]
    wanted = optimize.minimize(minus, start, (family, covariates, outcome, law), method="BFGS", options={"gtol": 1e-5})
    assert found.converged
    errors = np.asarray(found.standard_errors, float)
    assert (np.abs(found.coefficients - wanted.x[:4]) < (1e-3 if X64 else 1e-2) * errors).all()
    np.testing.assert_allclose(found.answer_coefficients, wanted.x[5:].reshape(2, 2), atol=1e-3 if X64 else 1e-2)
    assert float(found.log_likelihood) == pytest.approx(-wanted.fun, rel=1e-7 if X64 else 1e-5)
    if family == "normal":
        assert float(found.scale) == pytest.approx(np.exp(wanted.x[4]), rel=1e-4 if X64 else 1e-3)
    else:
        assert float(found.scale) == 1
    # The information by differences of the likelihood; a fixed scale is left out.
    kept = np.r_[0:5, 5:9] if family == "normal" else np.r_[0:4, 5:9]
    step = 1e-3
    hessian = np.zeros((len(kept), len(kept)))
    for a, i in enumerate(kept):
        for b, j in enumerate(kept):
            one, two = step * np.eye(9)[i], step * np.eye(9)[j]
            corners = [
                minus(wanted.x + s * one + t * two, family, covariates, outcome, law) for s in (1, -1) for t in (1, -1)
            ]
            hessian[a, b] = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * step**2)
    expected = np.sqrt(np.diag(np.linalg.inv(hessian)))[:4]
    np.testing.assert_allclose(errors, expected, rtol=1e-3 if X64 else 5e-3)


@pytest.mark.full
def test_without_noise_it_is_plain_regression():
    covariates, values, outcome = population(500, "normal")
    found = fit_outcome(outcome, covariates, values, 60.0, num_categories=3)
    design = np.c_[np.ones(500), covariates.astype(float), values == 1, values == 2]
    coefficients, residual, *_ = np.linalg.lstsq(design, outcome)
    np.testing.assert_allclose(found.coefficients, coefficients, atol=1e-6 if X64 else 1e-3)
    assert float(found.scale) == pytest.approx(np.sqrt(residual[0] / 500), rel=1e-6 if X64 else 1e-3)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * residual[0] / 500)
    np.testing.assert_allclose(found.standard_errors, errors, rtol=1e-5 if X64 else 1e-3)


@pytest.mark.full
def test_without_covariates_the_means_of_the_answers_differ():
    _, values, outcome = population(500, "normal")
    found = fit_outcome(outcome, np.zeros((500, 0), FLOAT), values, 60.0, num_categories=3)
    means = np.array([outcome[values == place].mean() for place in range(3)])
    expected = [means[0], *(means[1:] - means[0])]
    np.testing.assert_allclose(found.coefficients, expected, atol=1e-6 if X64 else 1e-3)
    shares = np.bincount(values) / 500
    np.testing.assert_allclose(found.answer_coefficients, np.log(shares[1:] / shares[0])[None], atol=1e-3)
    with refused("covariates"):
        fit_outcome(outcome, np.zeros((500, 0), FLOAT), values, 60.0, num_categories=3, intercept=False)


@pytest.mark.full
def test_effects_are_found_and_their_intervals_cover():
    """Over 400 fits, a dozen seconds of compilation and work."""
    true = jnp.asarray(EFFECTS, FLOAT)

    def one(key):
        keys = jax.random.split(key, 4)
        covariate = jax.random.normal(keys[0], (1500, 1), FLOAT)
        logits = jnp.asarray(ANSWERS[0], FLOAT) + covariate @ jnp.asarray(ANSWERS[1:], FLOAT)
        values = jax.random.categorical(keys[1], jnp.concatenate([jnp.zeros((1500, 1), FLOAT), logits], 1))
        eta = true[0] + true[1] * covariate[:, 0] + jnp.concatenate([jnp.zeros(1, FLOAT), true[2:]])[values]
        outcome = eta + 0.7 * jax.random.normal(keys[2], (1500,), FLOAT)
        reports = RandomizedResponse(3, 2.0).randomize(keys[3], values)
        found = fit_outcome(outcome, covariate, reports, 2.0, num_categories=3)
        return found.coefficients, found.standard_errors, found.converged

    found = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=40))(jax.random.split(jax.random.key(0), 400))
    coefficients, errors, converged = (np.asarray(each, float) for each in found)
    assert converged.all()
    away = (coefficients.mean(0) - EFFECTS) / (coefficients.std(0, ddof=1) / 20)
    assert np.abs(away).max() < 3.5
    covered = (np.abs(coefficients - EFFECTS) < 1.96 * errors).mean(0)
    assert np.abs(covered - 0.95).max() < 3.5 * np.sqrt(0.95 * 0.05 / 400)


@pytest.mark.full
def test_what_is_wrong_is_named():
    covariates, values, outcome = population(50, "normal")
    given = (covariates, values, RandomizedResponse(3, 2.0))
    with refused("family", value="gamma"):
        fit_outcome(outcome, *given, family="gamma")
    with refused("outcome", row=3):
        fit_outcome(np.where(np.arange(50) == 3, np.nan, outcome), *given)
    with refused("outcome", row=2, value=0.5):
        fit_outcome(np.where(np.arange(50) == 2, 0.5, 0), *given, family="binary")
    with refused("outcome", row=0, value=-1):
        fit_outcome(np.arange(50) - 1, *given, family="counts")
    with refused("outcome", value=1):
        fit_outcome(np.ones(50), *given)
    with refused("outcome"):
        fit_outcome(outcome[:40], *given)
    with pytest.raises(
        ValueError, match=r"no maximum was found in \d+ steps \(.*\)\. The reports may say next to nothing"
    ):
        fit_outcome((np.arange(50) % 2), *given[:2], 1e-3, num_categories=3, family="binary")


@pytest.mark.full
def test_the_table_names_answers():
    covariates, values, outcome = population(200, "normal")
    found = fit_outcome(outcome, covariates, values, 60.0, num_categories=3)
    text = summary(found, ["age"], ["never", "once", "often"])
    rows = {line.split("  ")[1].strip(): line.split() for line in text.splitlines() if line.startswith("  ")}
    names = ["(intercept)", "age", "answer: once", "answer: often"]
    for name, value in zip(names, np.asarray(found.coefficients, float), strict=True):
        assert float(rows[name][len(name.split())]) == pytest.approx(value, abs=1e-4)
    assert text.startswith("the outcome (normal), its answers compared with never:")
    assert f"standard deviation {float(found.scale):.4g}" in text.splitlines()[-1]
