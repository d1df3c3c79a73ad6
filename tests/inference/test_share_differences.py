"""Differences of two counts: level and coverage by all outcomes, and what is known of large counts."""

import numpy as np
import pytest
from scipy import stats

from rrjax.inference.share_differences import PartCounts, share_differences

CASES = {
    "few beside many": ((6, 0.269, 0.462), (300, 0.269, 0.462)),
    "crosswise and direct": ((20, 0.75, -0.5), (30, 0.0, 1.0)),
    "direct": ((10, 0.0, 1.0), (10, 0.0, 1.0)),
    "other rates": ((40, 0.1, 0.3), (15, 0.2, 0.6)),
    "little noise": ((5, 0.02, 0.9), (80, 0.001, 0.5)),
    "ends": ((10, 0.0, 1.0), (30, 0.0, 1.0)),
    "ends of two designs": ((5, 0.25, 0.5), (5, 0.0, 1.0)),
    "noise beside certain counts": ((10, 0.1, 0.8), (4, 0.0, 1.0)),
    "few beside certain counts": ((3, 0.25, 0.5), (20, 0.0, 1.0)),
    "much noise beside certain counts": ((5, 0.45, 0.1), (12, 0.0, 1.0)),
}


def part(support, number, q, d, weight=1.0):
    support = np.asarray(support, float)
    return PartCounts(support, float(number), np.full(support.shape, q), np.full(support.shape, d), weight)


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), CASES.values(), ids=CASES)
def test_small_counts_keep_their_level_and_their_coverage(first, second):
    counts = [np.arange(each[0] + 1) for each in (first, second)]
    one, other = (each.ravel() for each in np.meshgrid(*counts, indexing="ij"))
    found = share_differences([part(one, *first)], [part(other, *second)], 0.95, 1)

    def chances(*shares):
        laws = (
            stats.binom.pmf(count, number, q + d * share)
            for count, (number, q, d), share in zip(counts, (first, second), shares, strict=True)
        )
        return np.outer(*laws).ravel()

    for share in np.linspace(0, 1, 11):
        assert chances(share, share) @ (found.p_value <= 0.05) <= 0.05
        for less in (*np.linspace(0, 1, 11), 0.15, 0.85, 0.965):
            covered = (found.lower <= share - less + 1e-9) & (found.upper >= share - less - 1e-9)
            assert chances(share, less) @ covered >= 0.95
    # Nothing where the counts are explained by no shares, which is unlikely for all shares.
    assert all(chances(a, b) @ np.isnan(found.lower) <= 0.05 for a in (0, 0.5, 1) for b in (0, 0.5, 1))


def test_large_counts_have_the_normal_limits():
    rng = np.random.default_rng(0)
    q, d, theta = 0.2, 0.3, np.array([0.1, 0.5, 0.9])
    one, other = rng.binomial(10**7, q + d * theta), rng.binomial(4 * 10**6, q + d * theta)
    found = share_differences([part(one, 10**7, q, d)], [part(other, 4 * 10**6, q, d)], 0.95, 3)
    rates = one / 1e7, other / 4e6
    error = np.sqrt(rates[0] * (1 - rates[0]) / 1e7 + rates[1] * (1 - rates[1]) / 4e6) / d
    value = (rates[0] - rates[1]) / d
    half = stats.norm.isf(0.025 / 3) * error
    np.testing.assert_allclose(found.lower, value - half, atol=2e-3 * error.max())
    np.testing.assert_allclose(found.upper, value + half, atol=2e-3 * error.max())
    np.testing.assert_allclose(found.p_value, np.minimum(6 * stats.norm.sf(np.abs(value / error)), 1), atol=5e-3)


def test_parts_of_one_mechanism_are_one_collection():
    whole = share_differences([part([45, 20], 90, 0.25, 0.5)], [part([60, 11], 100, 0.1, 0.7)], 0.9, 2)
    parts = [part([25, 12], 60, 0.25, 0.5, 60 / 90), part([20, 8], 30, 0.25, 0.5, 30 / 90)]
    for one, other in zip(whole, share_differences(parts, [part([60, 11], 100, 0.1, 0.7)], 0.9, 2), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    turned = share_differences([part([60, 11], 100, 0.1, 0.7)], parts, 0.9, 2)
    np.testing.assert_allclose(turned.lower, -whole.upper, rtol=1e-9)
    np.testing.assert_allclose(turned.p_value, whole.p_value, rtol=1e-9)


def test_counts_that_no_shares_explain_have_no_limits():
    found = share_differences([part([1000], 1000, 0.25, 0.5)], [part([0], 1000, 0.25, 0.5)], 0.95, 1)
    assert np.isnan(found.lower).all()
    assert np.isnan(found.upper).all()
    assert found.p_value[0] < 1e-100


@pytest.mark.full
def test_many_categories_of_one_law_and_different_epsilons_are_not_called_different():
    """Standard errors of the counts' own variances called every one of such pairs different."""
    size, number = 400, 2000
    theta = np.arange(1.0, size + 1) ** -1.5
    theta /= theta.sum()
    rng, rejected = np.random.default_rng(3), 0
    for _ in range(12):
        sides = []
        for epsilon in (4.0, 3.0):
            e1 = np.expm1(epsilon)
            q, d = 1 / (e1 + size), e1 / (e1 + size)
            sides.append([part(rng.multinomial(number, q + d * theta), number, q, d)])
        rejected += share_differences(*sides, 0.95, size).p_value.min() <= 0.05
    assert rejected <= 3  # of 12 at .05 or below, four or more come once in 400


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0, 12, 0.0, 1.0), (77, 80, 0.0, 1.0)),
        ((0, 20, 0.0, 1.0), (98, 100, 0.0, 1.0)),
        ((0, 10, 0.0, 1.0), (29, 30, 0.0, 1.0)),
        ((50, 50, 0.0, 1.0), (2, 200, 0.0, 1.0)),
        ((10, 10, 0.25, 0.5), (3, 30, 0.0, 1.0)),
    ],
)
def test_limits_near_the_largest_difference_are_on_their_sides(first, second):
    """Beyond the ends of the sum the saddlepoint does not exist; limits came on the wrong side of the estimate."""
    values = [(count / number - q) / d for count, number, q, d in (first, second)]
    estimate = np.clip(values[0] - values[1], -1, 1)
    for one, other, sign in ((first, second, 1), (second, first, -1)):
        limits = share_differences([part(*([one[0]], *one[1:]))], [part(*([other[0]], *other[1:]))], 0.95, 1)
        assert limits.lower[0] <= sign * estimate + 1e-9
        assert limits.upper[0] >= sign * estimate - 1e-9
        assert (limits.lower if sign * estimate < 0 else -limits.upper)[0] == -1
