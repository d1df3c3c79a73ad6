"""Cramér's V and the mutual information, beside their definitions."""

import jax
import numpy as np
import pytest
from refusals import refused

from rrjax.inference import cramers_v, mutual_information


def test_they_are_what_they_are_defined_as():
    theta = np.random.default_rng(0).dirichlet(np.full(12, 0.5)).reshape(3, 4)
    a, b = theta.sum(axis=1), theta.sum(axis=0)
    expected = np.outer(a, b)
    assert float(cramers_v(theta)) == pytest.approx(np.sqrt(((theta - expected) ** 2 / expected).sum() / 2), rel=1e-5)
    assert float(mutual_information(theta)) == pytest.approx((theta * np.log(theta / expected)).sum(), rel=1e-4)
    assert float(cramers_v(expected)) == pytest.approx(0, abs=1e-6)
    assert float(mutual_information(expected)) == pytest.approx(0, abs=1e-6)
    assert float(cramers_v(np.eye(3) / 3)) == pytest.approx(1, rel=1e-6)
    assert float(mutual_information(np.eye(3) / 3)) == pytest.approx(np.log(3), rel=1e-6)
    batch = jax.vmap(cramers_v)(np.stack([theta, expected]).astype(np.float32))
    assert batch.shape == (2,)
    assert bool(np.isnan(mutual_information([[0.6, -0.1], [0.3, 0.2]])))
    # An empty category changes neither.
    wider = np.concatenate([theta, np.zeros((3, 1))], axis=1)
    assert float(cramers_v(wider)) == pytest.approx(float(cramers_v(theta)), rel=1e-6)


@pytest.mark.parametrize("theta", [[0.5, 0.5], [[0.5], [0.5]]])
def test_other_shapes_are_refused(theta):
    with refused("theta"):
        cramers_v(theta)
