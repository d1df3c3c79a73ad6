"""Estimators and metrics in rows are those of single collections."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from layout import laid

import rrjax
from rrjax.estimators.catalogue import METRICS, estimator_in_rows
from rrjax.estimators.in_rows import Collections, Errors
from rrjax.numerics.rows import Rows

HEIGHT = 64
EPS = float(np.finfo(FLOAT).eps)


@partial(jax.jit, static_argnums=(0, 1))
def computed(estimator, metrics, length, number, counts, truth, users, epsilon):
    rows = Rows(HEIGHT, length, number)
    given = Collections.of(rows, counts, users, epsilon)
    in_rows_of_it = estimator_in_rows(estimator)
    assert in_rows_of_it is not None
    theta = in_rows_of_it(given)
    return theta, [METRICS[name].in_rows(Errors(given, theta, truth)) for name in metrics]


def case(length, number, largest):
    rng = np.random.default_rng(length)
    counts = rng.integers(0, largest + 1, (number, length)) * (rng.random((number, length)) < 0.6)
    counts[:, 0] += 1
    counts[0] = counts[0, 0]  # all equal
    epsilon = np.resize(np.array([1e-6, 0.1, 1, 3, 10, 30, 100], FLOAT), number)
    truth = rng.dirichlet(np.ones(length), number).astype(FLOAT)
    return counts.astype(np.int32), epsilon, truth


@pytest.mark.full
@pytest.mark.parametrize(
    "estimator", [rrjax.inv, rrjax.inv_n, rrjax.inv_p, rrjax.mle_star], ids=lambda each: each.__name__
)
def test_estimators_and_metrics_are_those_of_single_collections(estimator):
    names = tuple(name for name, metric in METRICS.items() if metric.in_rows)
    assert len(names) == 4
    single = jax.jit(jax.vmap(estimator))
    # One program for all sizes.
    for length, number, largest in ((2, 40, 3), (128, 21, 10**6), (300, 20, 50), (5000, 1, 10**5), (1000, 7, 2)):
        counts, epsilon, truth = case(length, number, largest)
        users = counts.sum(1)
        fill = HEIGHT - number
        theta, found = computed(
            estimator,
            names,
            jnp.int32(length),
            jnp.int32(number),
            laid(HEIGHT, counts),
            laid(HEIGHT, truth),
            np.pad(users, (0, fill), constant_values=1).astype(np.int32),
            np.pad(epsilon, (0, fill), constant_values=1),
        )
        rows = Rows(HEIGHT, jnp.int32(length), jnp.int32(number))
        assert not np.asarray(theta)[~np.asarray(rows.used)].any()
        theta = np.asarray(rows.separate(theta, number, length))
        expected = np.asarray(single(counts, epsilon))
        if estimator is not rrjax.inv:
            np.testing.assert_array_equal(theta > 0, expected > 0)
        scale = np.maximum(np.abs(expected), np.abs(expected).max(1, keepdims=True) * (estimator is rrjax.inv))
        assert (np.abs(theta - expected) <= 8 * EPS * scale).all()
        for name, values in zip(names, found, strict=True):
            measure = METRICS[name].measure
            assert measure is not None
            one = [measure(theta[i], truth[i], counts[i], epsilon[i]) for i in range(number)]
            np.testing.assert_allclose(values[:number], one, rtol=32 * EPS, atol=2 * EPS)
