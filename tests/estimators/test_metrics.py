"""Metrics against long doubles."""

import jax
import numpy as np
import pytest
from cases import FLOAT, ULP, X64
from jax.test_util import check_grads

from rrjax import metrics

LD = np.longdouble
BIG = 1_000_000


def kl(e, t):
    present = t > 0
    return (t[present] * np.log(t[present] / e[present])).sum()


METRICS = {
    "squared_error": (metrics.squared_error, lambda e, t: ((e - t) ** 2).sum()),
    "total_variation": (metrics.total_variation, lambda e, t: abs(e - t).sum() / 2),
    "max_error": (metrics.max_error, lambda e, t: abs(e - t).max()),
    "kl_divergence": (metrics.kl_divergence, kl),
    "wasserstein": (metrics.wasserstein, lambda e, t: abs(np.cumsum(e - t))[:-1].sum()),
    "kolmogorov": (metrics.kolmogorov, lambda e, t: abs(np.cumsum(e - t))[:-1].max()),
}
every_metric = pytest.mark.parametrize("name", METRICS)


def pair(num_categories, seed=0):
    rng = np.random.default_rng(seed)
    estimate, theta = (rng.dirichlet(np.ones(num_categories)).astype(FLOAT) for _ in range(2))
    theta[::7] = 0
    return estimate, theta


@pytest.mark.long
@every_metric
@pytest.mark.parametrize("num_categories", [2, 7, BIG])
def test_metrics_are_accurate_at_any_number_of_categories(name, num_categories):
    function, reference = METRICS[name]
    estimate, theta = pair(num_categories)
    exact = reference(estimate.astype(LD), theta.astype(LD))
    # Each term rounds twice or three times; the terms of KL are as large as θ·log θ.
    size = np.log(num_categories) + 5 if name == "kl_divergence" else abs(float(exact))
    assert abs(float(function(estimate, theta)) - exact) <= 4 * ULP * size


@every_metric
def test_metrics_vanish_at_the_truth_and_only_there(name):
    function, _ = METRICS[name]
    estimate, theta = pair(7)
    assert function(theta, theta) == 0
    assert function(estimate, theta) > 0


@every_metric
def test_metrics_take_any_numbers_and_give_floats(name):
    function, _ = METRICS[name]
    expected = float(function([0.75, 0.25], [1, 0]))
    for dtype in ("float16", "float32", "float64"):
        for other in (np.array([1, 0]), np.array([1, 0], "float16"), np.array([1.0, 0.0])):
            value = function(np.array([0.75, 0.25], dtype), other)
            assert value.shape == ()
            assert value.dtype in (np.float32, np.float64)
            assert float(value) == pytest.approx(expected, rel=1e-6)


@every_metric
def test_bad_shapes_are_refused(name):
    function, _ = METRICS[name]
    for estimate, theta in (
        ([0.5, 0.5], [0.5, 0.25, 0.25]),
        ([1.0], [1.0]),
        ([[0.5, 0.5]], [0.5, 0.5]),
        ([[0.5, 0.5]], [[0.5, 0.5]]),
        (0.5, [0.5, 0.5]),
    ):
        with pytest.raises(ValueError, match=r"shape|K >= 2"):
            function(estimate, theta)


@pytest.mark.long
@every_metric
def test_nan_in_nan_out(name):
    function, _ = METRICS[name]
    assert np.isnan(function([np.nan, 0.5], [0.5, 0.5]))
    assert np.isnan(function([0.5, 0.5], [0.5, np.nan]))
    # XLA's maximum of so many numbers drops those that are none, in batches of short rows, too.
    many = np.full(10_000, 1e-4, FLOAT)
    assert np.isnan(function(np.append(many[:-1], np.nan).astype(FLOAT), many))
    rows = np.full((3_000, 50), 0.02, FLOAT)
    odd = rows.copy()
    odd[1_000, 3] = np.nan
    assert np.flatnonzero(np.isnan(jax.vmap(function)(odd, rows))).tolist() == [1_000]


@every_metric
def test_jit_and_vmap_change_nothing(name):
    function, _ = METRICS[name]
    estimates, thetas = (np.stack(x) for x in zip(*(pair(7, s) for s in range(4)), strict=True))
    loop = np.array([function(e, t) for e, t in zip(estimates, thetas, strict=True)])
    jitted = np.array([jax.jit(function)(e, t) for e, t in zip(estimates, thetas, strict=True)])
    # Fused differently, each of the few operations may keep one rounding more.
    np.testing.assert_allclose(jitted, loop, rtol=8 * ULP)
    np.testing.assert_allclose(jax.vmap(function)(estimates, thetas), loop, rtol=8 * ULP)


def test_divergence_at_its_edges():
    assert metrics.kl_divergence([1.0, 0.0], [0.5, 0.5]) == np.inf
    assert metrics.kl_divergence([0.5, 0.5], [1.0, 0.0]) == pytest.approx(np.log(2), rel=4 * ULP)
    assert metrics.kl_divergence([1.0, 0.0], [1.0, 0.0]) == 0
    assert np.isnan(metrics.kl_divergence([1.5, -0.5], [0.5, 0.5]))
    assert np.isnan(metrics.kl_divergence([1.5, -0.5], [1.0, 0.0]))  # it would be −0.4


def test_the_divergence_has_a_derivative_where_both_vanish():
    estimate, theta = np.array([0.75, 0.25, 0, 0], FLOAT), np.array([0.5, 0.5, 0, 0], FLOAT)
    by_estimate, by_theta = jax.grad(metrics.kl_divergence, argnums=(0, 1))(estimate, theta)
    np.testing.assert_allclose(by_estimate, [-2 / 3, -2, 0, 0], rtol=4 * ULP)
    assert np.isfinite(by_theta).all()
    if X64:
        positive = np.array([0.3, 0.3, 0.4])
        check_grads(metrics.kl_divergence, (positive[::-1], positive), order=2)
