"""Simultaneous bands of distribution functions: coverage, small exact cases, contradictions, bad input."""

import jax
import numpy as np
import pytest
from refusals import refused

from rrjax.inference import cdf_band, mean_limits, quantile_limits
from rrjax.inference.quantiles import clopper_pearson
from rrjax.mechanisms import Channel, DiscreteSquareWave, Geometric, SquareWave

pytestmark = pytest.mark.once  # on the host, in double precision


def drawn(mechanism, shares, number, seed=0):
    law = np.asarray(shares) @ np.asarray(mechanism.channel().matrix, float)
    return np.random.default_rng(seed).multinomial(number, law / law.sum())


def test_two_values_have_the_limits_of_a_probability():
    """The reports of two values are binomial, so that the set of distributions is an interval."""
    channel = Channel([[0.75, 0.25], [0.25, 0.75]])
    band = cdf_band([600, 400], channel, level=0.9)
    lower, upper = clopper_pearson(np.array([600, 400]), 1000, 0.05 / 2)  # two single reports, half of the error
    low, high = max(lower[0], 1 - upper[1]), min(upper[0], 1 - lower[1])
    limits = [max(low, 0.6 - band.radius), min(high, 0.6 + band.radius)]
    np.testing.assert_allclose([band.lower[0], band.upper[0]], [(each - 0.25) / 0.5 for each in limits], atol=2e-6)
    assert band.lower[1] == band.upper[1] == 1
    assert band.radius == pytest.approx(np.sqrt(np.log(2 / 0.05) / 2000))


def test_few_reports_say_little_and_no_reports_are_refused():
    band = cdf_band([1, 0], Channel([[0.75, 0.25], [0.25, 0.75]]))
    assert band.lower.tolist() == [0, 1]
    assert band.upper.tolist() == [1, 1]
    for counts in ([0, 0], [1, 2, 3], [-1, 2], [0.5, 2.0]):
        with refused("counts"):
            cdf_band(counts, Channel([[0.75, 0.25], [0.25, 0.75]]))
    with refused("level"):
        cdf_band([1, 2], Channel([[0.75, 0.25], [0.25, 0.75]]), level=1.5)


def test_reports_that_no_distribution_explains():
    mechanism = Geometric(4, 3.0)
    band = cdf_band([0, 0, 10_000, 0], mechanism)
    assert not band.feasible
    assert np.isnan(band.lower).all()
    assert [limit.tolist() for limit in quantile_limits(band, [0.5])] == [[-1], [-1]]
    assert np.isnan(mean_limits([0, 0, 10_000, 0], mechanism, range(4))).all()


@pytest.mark.parametrize("mechanism", [DiscreteSquareWave(6, 1.0), Geometric(6, 4.0), SquareWave(6, 1.0, 9)])
def test_limits_hold_the_truth_and_agree(mechanism):
    shares = np.array([0.05, 0.1, 0.3, 0.3, 0.2, 0.05])
    counts = drawn(mechanism, shares, 50_000)
    band, function = cdf_band(counts, mechanism), np.cumsum(shares)
    assert (band.lower <= function + 1e-9).all()
    assert (function <= band.upper + 1e-9).all()
    assert (np.diff(band.lower) >= 0).all()
    assert (np.diff(band.upper) >= 0).all()
    low, high = mean_limits(counts, mechanism, np.arange(6))
    assert low <= shares @ np.arange(6) <= high
    # The mean is the sum of the probabilities above each value, so its limits are no wider than theirs together.
    assert 5 - band.upper[:-1].sum() - 1e-5 <= low
    assert high <= 5 - band.lower[:-1].sum() + 1e-5
    first, last = quantile_limits(band, [0.1, 0.5, 0.9])
    truth = np.searchsorted(function, [0.1 + 1e-9, 0.5, 0.9])
    assert (first <= truth).all()
    assert (truth <= last).all()
    with refused("probabilities"):
        quantile_limits(band, [0.5, 1.0])
    with refused("lower"):
        mean_limits(counts, mechanism, np.arange(5))


@pytest.mark.full
def test_many_values_are_grouped_and_the_band_stays_valid():
    mechanism = DiscreteSquareWave(150, 2.0)
    shares = np.random.default_rng(1).dirichlet(np.full(150, 0.3))
    band = cdf_band(drawn(mechanism, shares, 20_000), mechanism)
    assert (band.lower <= np.cumsum(shares) + 1e-9).all()
    assert (np.cumsum(shares) <= band.upper + 1e-9).all()
    assert (band.upper - band.lower).mean() < 0.5


def test_chances_of_the_square_wave_average_to_its_channel():
    mechanism = SquareWave(5, 1.5, 8)
    values = (np.arange(5000) + 0.5)[:, None] / 5000
    starts, ends = np.arange(8), np.arange(1, 9)
    found = mechanism.chances(values, starts, ends)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    channel = np.asarray(mechanism.channel().matrix)
    np.testing.assert_allclose(found.reshape(5, 1000, 8).mean(axis=1), channel, atol=1e-5)


def test_the_square_wave_holds_values_at_one_end_of_their_bins():
    """A channel of uniform values would place them wrongly, by more than these many reports allow."""
    mechanism = SquareWave(4, 5.0, 32)
    values = np.repeat([0.001, 0.2499, 0.501, 0.7499], [40_000, 20_000, 30_000, 10_000])
    counts = np.asarray(mechanism.count(mechanism.randomize(jax.random.key(0), values)))
    band = cdf_band(counts, mechanism)
    assert band.feasible
    assert not cdf_band(counts, mechanism.channel()).feasible
    truth = np.array([0.6, 0.6, 1.0, 1.0])
    assert (band.lower <= truth + 1e-9).all()
    assert (truth <= band.upper + 1e-9).all()


@pytest.mark.full
@pytest.mark.parametrize("number", [30, 1000])
@pytest.mark.parametrize("mechanism", [DiscreteSquareWave(5, 2.0), Geometric(5, 3.0)])
def test_the_band_covers_with_its_level(mechanism, number):
    rng, missed, times = np.random.default_rng(7), 0, 150
    for seed in range(times):
        shares = rng.dirichlet(np.full(5, 0.5))
        band = cdf_band(drawn(mechanism, shares, number, seed), mechanism, level=0.8)
        function = np.cumsum(shares)
        inside = (band.lower <= function + 1e-9) & (function <= band.upper + 1e-9)
        missed += not (band.feasible and inside.all())
    assert missed <= 0.2 * times + 3 * np.sqrt(0.16 * times)
