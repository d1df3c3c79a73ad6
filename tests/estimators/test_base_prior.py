"""The base prior: its members' masses against SciPy's, its means, and what it prefers."""

import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from scipy import special, stats

from rrjax.estimators.base_prior import LEAST_MASS, SHAPES, base_prior, masses, members_of


@pytest.mark.long
def test_masses_against_scipy():
    edges = np.geomspace(1e-5, 1e3, 60)
    for place, shape in enumerate(SHAPES):
        near = np.sort(np.append(edges, np.linspace(1 - 4 / shape**0.5, 1 + 4 / shape**0.5, 9).clip(1e-5)))
        found = masses(jnp.asarray(np.log(near), FLOAT), np.array([place]), np.array([0.0]))[0]
        # The same edges as the function has, which rounding moves.
        near = np.exp(np.asarray(jnp.asarray(np.log(near), FLOAT), float))
        below, above = special.gammainc(shape, shape * near), special.gammaincc(shape, shape * near)
        inner = np.where(below[:-1] < 0.5, np.diff(below), -np.diff(above))
        expected = np.concatenate([below[:1], inner, above[-1:]])
        kept = expected > 1e-15
        # A mass of the narrowest distributions moves with the rounding of its edges.
        slack = 0.02 + 4 * shape**0.5 * 16 * np.finfo(FLOAT).eps
        least = 1e-4 if shape > 2000 else 0
        np.testing.assert_allclose(np.asarray(found)[kept], expected[kept], rtol=slack, atol=least)


@pytest.mark.parametrize("size", [2, 5, 20, 1000, 1_423_000])
def test_all_members_have_mean_one_over_k(size):
    members = members_of(size)
    below = np.where(np.isneginf(members.log_mean_below), 0, np.exp(members.log_mean_below))
    mean = members.upper * np.exp(members.log_mean) + (1 - members.upper) * below
    np.testing.assert_allclose(mean, 1 / size, rtol=1e-9)
    assert np.logaddexp.reduce(members.log_prior) < np.log(8)
    assert len(members.upper) < 1000


@pytest.mark.long
def test_it_is_the_truth_where_counts_are_clear():
    """A tenth of 500 categories has ten times the share of the others: two atoms get nearly all mass."""
    size, rng = 500, np.random.default_rng(0)
    low = 1 / (0.9 * size + 10 * 0.1 * size)
    share = np.where(np.arange(size) < size // 10, 10 * low, low)
    number = 1_000_000
    counts = rng.poisson(number * share)
    grid = np.concatenate([[0.0], np.geomspace(1e-5, 0.1, 100)])
    table = stats.poisson.logpmf(counts[:, None], number * np.maximum(grid, 1e-12))
    table = np.exp(table - table.max(1, keepdims=True))
    edges = np.log((grid[1:] + grid[:-1]) / 2)
    found = base_prior(*(jnp.asarray(x, FLOAT) for x in (table, np.ones(size), edges)), size)
    weights = np.asarray(found, float)
    assert weights.sum() == pytest.approx(1, abs=1e-5)
    assert weights.min() >= 0.9 * LEAST_MASS / len(grid)
    near = np.abs(np.log(np.maximum(grid, 1e-9) / low)) < 0.3
    far = np.abs(np.log(np.maximum(grid, 1e-9) / (10 * low))) < 0.3
    assert weights[near].sum() == pytest.approx(0.9, abs=0.05)
    assert weights[far].sum() == pytest.approx(0.1, abs=0.05)
