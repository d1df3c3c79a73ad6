"""The square wave on bins: its law, its half-width, and its client's."""

import jax
import numpy as np
import pytest
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax.mechanisms import ORDERED, DiscreteSquareWave, SquareWave


def test_the_law_is_its_definition():
    mechanism = DiscreteSquareWave(5, 1.2, half_width=1)
    matrix, ratio = np.asarray(mechanism.channel().matrix), np.exp(1.2)
    for value in range(5):
        for report in range(7):
            near = value <= report <= value + 2
            assert matrix[value, report] == pytest.approx((ratio if near else 1) / (3 * ratio + 4))
    assert float(mechanism.channel().epsilon) == pytest.approx(1.2, rel=1e-5)
    assert mechanism.note == "half-width 1"
    traced = jax.jit(lambda epsilon: DiscreteSquareWave(5, epsilon, half_width=1).channel().matrix)(1.2)
    np.testing.assert_allclose(traced, matrix, rtol=1e-5)


@pytest.mark.long
def test_reports_have_the_law():
    mechanism = DiscreteSquareWave(4, 1.0)
    reports = mechanism.randomize(jax.random.key(0), np.repeat(np.arange(4), 20_000)).reshape(4, -1)
    for value in range(4):
        check_frequencies(np.asarray(mechanism.count(reports[value])), np.asarray(mechanism.channel().matrix)[value])
    mixture = mechanism.mixture(reports.ravel())
    np.testing.assert_allclose(rrjax.ibu(mixture, accelerate="newton").theta, 0.25, atol=0.03)


@pytest.mark.parametrize("epsilon", [1e-6, 0.0099, 0.0101, 0.5, 1.0, 3.0, 8.0])
def test_the_half_width_is_that_of_the_continuous_mechanism(epsilon):
    wanted = np.floor(float(SquareWave(4, epsilon).reach) * 1000)
    assert abs(DiscreteSquareWave(1000, epsilon).half_width - wanted) <= 1  # float32 may round over an integer


def test_what_it_refuses():
    for wrong in (-1, 0.5, 2**31):
        with refused("half_width"):
            DiscreteSquareWave(4, 1.0, half_width=wrong)
    with pytest.raises(ValueError, match="half_width"):
        jax.jit(lambda epsilon: DiscreteSquareWave(4, epsilon).channel().matrix)(1.0)
    assert set(ORDERED) == {"square-wave", "geometric"}
