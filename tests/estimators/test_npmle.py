"""The mixing weights: constraints, certificate, and the maximum, against long runs of plain EM."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64

from rrjax.estimators.empirical_bayes import npmle


def problem(seed, observations, atoms, mean, spread=1.0):
    """Normal observations of two groups, atoms around them, and what has mean zero."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(0, spread, observations), rng.normal(8, spread, observations // 10)])
    at = np.linspace(x.min() - 1, x.max() + 1, atoms)
    cells, weight = np.unique(np.round(4 * x) / 4, return_counts=True)
    likelihoods = -((cells[:, None] - at) ** 2) / 2
    return likelihoods.astype(FLOAT), weight.astype(FLOAT), (at - mean).astype(FLOAT)


def climbed(likelihoods, weight, t, passes):
    """Weights after many passes of EM in float64, each with the multiplier that keeps the mean."""
    table, w = np.exp(likelihoods.astype(float)), weight / weight.sum(dtype=float)
    g = np.full(len(t), 1 / len(t))
    for turn in range(passes + 1):
        n = g * (table.T @ (w / (table @ g))) if turn else g
        low, high = -1 / t.max(), -1 / t.min()
        for _ in range(45):
            level = (low + high) / 2
            low, high = (level, high) if (n * t / (1 + level * t)).sum() > 0 else (low, level)
        g = n / (1 + level * t)
        g /= g.sum()
    return g


def value(likelihoods, weight, g):
    return float(weight.astype(float) @ np.log(np.exp(likelihoods.astype(float)) @ np.asarray(g, float)))


CASES = [(0, 200, 40, 0.9), (1, 5000, 60, 0.7), (2, 30, 25, 1.5), (3, 2000, 80, 0.0), (4, 3, 30, 0.5)]


@pytest.mark.long
@pytest.mark.parametrize("case", [CASES[0], *CASES[1:]])
def test_the_maximum_and_its_certificate(case):
    likelihoods, weight, t = problem(*case)
    found = npmle(likelihoods, weight, t, 40)
    g = np.asarray(found.weights, float)
    assert g.min() > 0
    assert g.sum() == pytest.approx(1, abs=2e-6)
    assert abs(g @ t) <= 2e-4 * np.abs(t).max()
    reached = value(likelihoods, weight, g)
    assert float(found.log_likelihood) == pytest.approx(reached, rel=1e-5)
    # Nothing beats the bound, and EM comes near: the bound is near what is missing.
    best = value(likelihoods, weight, climbed(likelihoods, weight, t, 4000))
    assert best <= reached + float(found.gap) + 1e-3
    rounding = 0 if X64 else 6 * np.finfo(np.float32).eps * len(t) * weight.sum()
    assert 0 <= float(found.gap) <= 0.75 + rounding
    assert best - reached <= float(found.gap) + 1e-3


@pytest.mark.long
def test_the_certificate_holds_before_the_end():
    likelihoods, weight, t = problem(1, 5000, 60, 0.7)
    best = value(likelihoods, weight, climbed(likelihoods, weight, t, 4000))
    for steps in (1, 2, 4):
        found = npmle(likelihoods, weight, t, steps)
        assert best <= float(found.log_likelihood) + float(found.gap) + 0.01
        assert abs(float(found.weights @ t)) <= 1e-3


@pytest.mark.long
def test_both_precisions_agree():
    likelihoods, weight, t = problem(0, 2000, 40, 0.9)
    single = npmle(*(jnp.asarray(x, jnp.float32) for x in (likelihoods, weight, t)), 40)
    double = npmle(*(jnp.asarray(x, FLOAT) for x in (likelihoods, weight, t)), 40)
    # Single weights next to each other are hardly determined; what they say of an observation is.
    table = np.exp(likelihoods.astype(float))
    np.testing.assert_allclose(table @ np.asarray(single.weights), table @ np.asarray(double.weights), atol=3e-4)


@pytest.mark.long
def test_batches_are_loops():
    problems = [problem(seed, 300, 30, 0.8) for seed in range(3)]
    size = min(len(weight) for _, weight, _ in problems)
    problems = [(likelihoods[:size], weight[:size], t) for likelihoods, weight, t in problems]
    together = jax.vmap(lambda *each: npmle(*each, 40))(*map(np.stack, zip(*problems, strict=True)))
    for number, each in enumerate(problems):
        alone = npmle(*each, 40)
        np.testing.assert_allclose(together.weights[number], alone.weights, atol=2e-5)
        assert float(together.gap[number]) == pytest.approx(float(alone.gap), abs=0.02)
