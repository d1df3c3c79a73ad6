"""The Gibbs sampler against quadrature, and its diagnostics against known chains."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from refusals import refused
from scipy import integrate

from rrjax.inference import posterior
from rrjax.inference.posterior import diagnostics

KEY = jax.random.key(0)


def moments(counts, epsilon, prior):
    """Mean, standard deviation and distribution function of the first of two shares, by quadrature."""
    e1 = math.expm1(epsilon)
    grid = np.linspace(0, 1, 20_001)[1:-1]
    log = counts[0] * np.log1p(e1 * grid) + counts[1] * np.log1p(e1 * (1 - grid))
    log += (prior[0] - 1) * np.log(grid) + (prior[1] - 1) * np.log1p(-grid)
    density = np.exp(log - log.max())
    mass = integrate.trapezoid(density, grid)
    mean = integrate.trapezoid(grid * density, grid) / mass
    variance = integrate.trapezoid((grid - mean) ** 2 * density, grid) / mass
    return mean, math.sqrt(variance), lambda x: np.interp(x, grid, np.cumsum(density) / density.sum())


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(("counts", "epsilon", "prior"), [((62, 38), 1.0, (2.0, 3.0)), ((30, 0), 2.0, (1.0, 1.0))])
def test_two_categories_against_quadrature(counts, epsilon, prior):
    mean, deviation, distribution = moments(counts, epsilon, prior)
    result = posterior(KEY, counts, epsilon, prior=jnp.array(prior, FLOAT), num_draws=2500)
    size = float(result.effective_sample_size[0])
    assert size > 800
    assert abs(float(result.mean[0]) - mean) <= 4 * deviation / math.sqrt(size)
    assert float(result.standard_deviation[0]) == pytest.approx(deviation, rel=5 / math.sqrt(size))
    assert float(result.r_hat.max()) < 1.02
    lower, upper = result.credible_intervals(0.9)
    for limit, level in ((lower[0], 0.05), (upper[0], 0.95)):
        assert abs(distribution(float(limit)) - level) <= 5 * math.sqrt(level * (1 - level) / size)
    np.testing.assert_allclose(result.draws.sum(2), 1, rtol=1e-5)


@pytest.mark.full
@pytest.mark.once
def test_a_strong_prior_is_what_comes_out():
    result = posterior(KEY, [1, 1, 1], 0.1, prior=np.array([600.0, 300.0, 100.0]), num_draws=2500)
    error = np.sqrt(np.asarray(result.mean) / 1000 / 2000)
    assert (np.abs(np.asarray(result.mean) - [0.6, 0.3, 0.1]) <= 5 * error + 1e-3).all()


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
def test_the_effective_size_of_an_autoregression(correlation):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4, 8000))
    chains = np.zeros_like(noise)
    chains[:, 0] = noise[:, 0] / math.sqrt(1 - correlation**2)
    for step in range(1, 8000):
        chains[:, step] = correlation * chains[:, step - 1] + noise[:, step]
    size, r_hat = diagnostics(jnp.asarray(chains, FLOAT))
    assert float(size) == pytest.approx(32_000 * (1 - correlation) / (1 + correlation), rel=0.2)
    assert 0.999 < float(r_hat) < 1.03


@pytest.mark.full
@pytest.mark.once
def test_chains_apart_are_noticed():
    rng = np.random.default_rng(0)
    chains = rng.normal(size=(4, 1000))
    chains[0] += 2
    size, r_hat = diagnostics(jnp.asarray(chains, FLOAT))
    assert float(r_hat) > 1.3
    assert float(size) < 20
    drifting = rng.normal(size=(1, 1000)) + np.linspace(0, 3, 1000)
    assert float(diagnostics(jnp.asarray(drifting, FLOAT))[1]) > 1.2
    size, r_hat = diagnostics(jnp.ones((2, 100), FLOAT))
    assert (float(size), float(r_hat)) == (200, 1)


@pytest.mark.full
@pytest.mark.once
def test_chains_that_have_not_mixed_warn():
    with pytest.warns(UserWarning, match="the chains have not mixed: R̂ is .* raise num_warmup and thin"):
        posterior(KEY, [520, 290, 100, 90], 0.05, num_draws=20, num_warmup=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_draws": 3}, "num_draws"),
        ({"thin": 0}, "thin"),
        ({"prior": [1.0, 1.0, 1.0]}, "prior"),
        ({"counts": [0.5, 1.0]}, "counts"),
    ],
)  # fmt: skip
def test_bad_arguments(arguments, message):
    given = {"counts": [5, 6], "epsilon": 1.0} | arguments
    with refused(message):
        posterior(KEY, **given)


@pytest.mark.full
def test_what_cannot_be_refused_gives_nan():
    for arguments in (([-1, 5], 1.0, 1.0), ([5, 6], -1.0, 1.0), ([5, 6], 1.0, 0.0)):
        result = posterior(KEY, *arguments[:2], prior=arguments[2], num_draws=4, num_warmup=0)
        assert np.isnan(result.mean).all()
        assert np.isnan(result.draws).all()


@pytest.mark.long
@pytest.mark.once
@pytest.mark.filterwarnings("ignore:the chains have not mixed")
def test_levels_that_are_none_under_tracing_give_nan():
    result = posterior(KEY, [30, 10], 1.0, num_draws=4, num_warmup=0)
    limits = jax.jit(lambda level: result.credible_intervals(level))
    assert np.isfinite(limits(0.5).lower).all()
    assert np.isnan(limits(1.5).lower).all()


@pytest.mark.long
def test_diagnostics_of_tiny_shares():
    rng = np.random.default_rng(0)
    chains = rng.normal(size=(4, 100))
    chains[0] += 3
    plain = diagnostics(jnp.asarray(chains, FLOAT))
    tiny = diagnostics(jnp.asarray(chains * 1e-25, FLOAT))
    np.testing.assert_allclose(plain, tiny, rtol=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("place", ["epsilon", "prior"])
def test_a_derivative_is_refused(place):
    """It would be zero, or that of the prior's part alone: the number of true reports is drawn."""

    def mean(x):
        given = {"epsilon": 1.0, "prior": 1.0} | {place: x}
        return posterior(KEY, [620, 380], **given, num_draws=4, num_warmup=1).mean[0]

    for derivative in (jax.grad(mean), jax.jacfwd(mean), jax.jit(jax.grad(mean))):
        with pytest.raises(NotImplementedError):
            derivative(1.5)
    assert np.isfinite(jax.jit(mean)(1.5))
