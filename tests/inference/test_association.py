"""Cramér's V, the mutual information and odds ratios, beside their definitions; intervals from reports."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused
from scipy import stats

import rrjax
from rrjax.inference import association, cramers_v, mutual_information, odds_ratios
from rrjax.inference.two_columns import channel_of
from rrjax.mechanisms import Direct, Product


@pytest.mark.long
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


TABLE = np.array([[0.3, 0.1, 0.05], [0.1, 0.15, 0.3]])
RESPONSES = [rrjax.RandomizedResponse(2, 1.0), rrjax.RandomizedResponse(3, 2.0)]


def law(theta, epsilons):
    first, second = (
        (np.eye(size) * np.expm1(epsilon) + 1) / (np.exp(epsilon) + size - 1)
        for size, epsilon in zip(theta.shape, epsilons, strict=True)
    )
    return first @ theta @ second.T


@pytest.mark.full
def test_expected_reports_give_the_true_association():
    counts = np.rint(law(TABLE, (1.0, 2.0)) * 400_000).astype(np.int32)
    v, nats = float(cramers_v(TABLE)), float(mutual_information(TABLE))
    found = association(jax.random.key(0), counts, Product(RESPONSES), num_draws=499)
    for limits, true, near in ((found.cramers_v, v, 0.02), (found.mutual_information, nats, 0.01)):
        assert float(limits.value) == pytest.approx(true, abs=near)
        assert true - 4 * near < float(limits.lower) < true < float(limits.upper) < true + 4 * near
    # Users with a missing report are not used.
    wider = np.pad(counts, ((0, 1), (0, 1)), constant_values=99)
    again = association(jax.random.key(0), wider, Product(RESPONSES), num_draws=499)
    assert float(again.cramers_v.value) == float(found.cramers_v.value)
    # A larger level, a longer interval.
    wide = association(jax.random.key(0), counts, Product(RESPONSES), level=0.999, num_draws=499)
    assert wide.cramers_v.lower < found.cramers_v.lower
    assert wide.cramers_v.upper > found.cramers_v.upper


@pytest.mark.full
@pytest.mark.parametrize("epsilon", [44.0, np.inf])
def test_hardly_any_noise_is_none(epsilon):
    """The lower limits were zero where the odds of both columns are beyond the range of the dtype."""
    counts = np.array([[2000, 1000, 500], [500, 2000, 1000], [1000, 500, 1500]])
    direct, noisy = (
        association(jax.random.key(0), counts, Product([column] * 2), num_draws=199)
        for column in (Direct(3), rrjax.RandomizedResponse(3, epsilon))
    )
    for ours, theirs in zip(jax.tree.leaves(noisy), jax.tree.leaves(direct), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3)
    assert float(noisy.cramers_v.lower) > 0.3


@pytest.mark.full
def test_columns_with_more_kinds_of_reports_than_values():
    channel = np.array([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]])
    theta = np.array([[0.35, 0.15], [0.1, 0.4]])
    mechanism = rrjax.mechanisms.Channel(channel)
    counts = np.rint(channel.T @ theta @ channel * 400_000).astype(np.int32)
    found = association(jax.random.key(0), counts, Product([mechanism, mechanism]), num_draws=199)
    assert float(found.cramers_v.value) == pytest.approx(float(cramers_v(theta)), abs=0.02)
    ratio = odds_ratios(counts, Product([mechanism, mechanism]))
    assert float(ratio.value[1, 1]) == pytest.approx(0.35 * 0.4 / 0.015, rel=0.02)


@pytest.mark.full
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_intervals_cover(weight):
    """Of 200 collections at 95 %, four standard errors of 0.0154 below; `validation/association.py` has more."""
    theta = (1 - weight) * np.outer(TABLE.sum(axis=1), TABLE.sum(axis=0)) + weight * TABLE
    drawn = np.random.default_rng(0).multinomial(3000, law(theta, (1.0, 2.0)).ravel(), size=200).reshape(-1, 2, 3)
    keys = jax.random.split(jax.random.key(0), 200)
    product = Product(RESPONSES)
    found = jax.jit(jax.vmap(lambda key, counts: association(key, counts, product, num_draws=199)))(
        keys, drawn.astype(np.int32)
    )
    for limits, true in (
        (found.cramers_v, float(cramers_v(theta))),
        (found.mutual_information, float(mutual_information(theta))),
    ):
        assert np.mean((limits.lower <= true + 1e-6) & (true <= limits.upper)) >= 0.95 - 4 * 0.0154
        assert bool((limits.lower <= limits.value).all())
        assert bool((limits.value <= limits.upper).all())
    ratios = jax.vmap(lambda counts: odds_ratios(counts, product))(drawn.astype(np.int32))
    true = theta * theta[0, 0] / (theta[:, :1] * theta[0])
    inside = (ratios.lower <= true * (1 + 1e-5)) & (true * (1 - 1e-5) <= ratios.upper)
    assert np.asarray(inside).mean(axis=0).min() >= 0.95 - 4 * 0.0154


EMPTY_CELLS = {
    "last": [[0.4, 0.3], [0.3, 0]],
    "first": [[0, 0.4], [0.3, 0.3]],
    "below": [[0.4, 0.3], [0, 0.3]],
    "rare": [[0.4, 0.3], [0.29, 0.01]],
    "band": [[0.3, 0.1, 0], [0.1, 0.2, 0.1], [0, 0.1, 0.1]],
}


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("name", EMPTY_CELLS)
def test_odds_ratios_with_empty_cells_cover(name, epsilon):
    """Of 2,000 collections, four standard errors of 0.0049 below 95 %; no interval is empty."""
    theta = np.array(EMPTY_CELLS[name])
    with np.errstate(divide="ignore", invalid="ignore"):  # an infinite ratio; the cells of the reference
        odds = (theta * theta[0, 0] / (theta[:, :1] * theta[0]))[1:, 1:]
    mechanism = rrjax.RandomizedResponse(len(theta), epsilon)
    channel, product = np.asarray(mechanism.channel(), float), Product([mechanism, mechanism])
    law = channel.T @ theta @ channel
    cover = jax.jit(jax.vmap(lambda counts: odds_ratios(counts, product)))
    for number in (200, 1000, 10_000):
        drawn = np.random.default_rng(number).multinomial(number, (law / law.sum()).ravel(), 2000)
        found = cover(drawn.reshape(-1, *theta.shape).astype(np.int32))
        lower, upper = np.asarray(found.lower)[:, 1:, 1:], np.asarray(found.upper)[:, 1:, 1:]
        assert not np.isnan(lower).any()
        assert ((lower <= odds) & (odds <= upper)).mean(axis=0).min() > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 2000)


RARE = np.array([[0.2475, 0.2475, 0], [0.2475, 0.2475, 0], [0, 0, 0.01]])
"""1 % of the users carry V = 1/√2; the noise hides them."""


@pytest.mark.full
def test_a_rare_cell_that_noise_hides_may_carry_the_association():
    """Of 60 collections at 95 %, four standard errors of 0.028 below."""
    drawn = np.random.default_rng(0).multinomial(1000, law(RARE, (2.0, 2.0)).ravel(), size=60).reshape(-1, 3, 3)
    product = Product((rrjax.RandomizedResponse(3, 2.0),) * 2)

    def one(counts):
        return association(jax.random.key(0), counts, product, num_draws=499)

    found = jax.jit(lambda counts: jax.lax.map(one, counts))(drawn)
    for limits, true in (
        (found.cramers_v, 0.5**0.5),
        (found.mutual_information, float(mutual_information(RARE))),
    ):
        assert np.mean((limits.lower <= true + 1e-6) & (true - 1e-6 <= limits.upper)) >= 0.95 - 4 * 0.028
    # Few are so wide that they say nothing.
    assert np.median(found.cramers_v.upper) < 0.9
    assert np.median(found.mutual_information.upper) < 0.2


@pytest.mark.long
@pytest.mark.parametrize("second", [rrjax.mechanisms.Direct(2), rrjax.RandomizedResponse(2, 3.0)])
def test_a_category_without_reports_changes_nothing(second):
    """V was .25, from 0 to 1: a report of an empty row would have weighed more than all others."""
    counts = np.array([[1500, 1000], [500, 2000]])
    known = Product([rrjax.mechanisms.Direct(2), second])
    wider = Product([rrjax.mechanisms.Direct(3), second])
    plain = association(jax.random.key(0), counts, known, num_draws=499)
    found = association(jax.random.key(0), np.insert(counts, 1, 0, axis=0), wider, num_draws=499)
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=0.03)


@pytest.mark.full
@pytest.mark.parametrize("size", [3, 4, 8, 13])
def test_categories_without_reports_in_both_columns(size):
    """A search for tables ended at once where a row and a column were empty, so that every table had every V."""
    counts = np.zeros((size, size), int)
    counts[:2, :2] = [[1500, 1000], [500, 2000]]
    found = association(jax.random.key(0), counts, Product([rrjax.mechanisms.Direct(size)] * 2), num_draws=199)
    v, nats = float(cramers_v(counts / 5000)), float(mutual_information(counts[:2, :2] / 5000))
    assert float(found.cramers_v.value) == pytest.approx(v, rel=0.05)
    assert 0.9 * v < float(found.cramers_v.lower) < v < float(found.cramers_v.upper)
    assert float(found.mutual_information.value) == pytest.approx(nats, rel=0.03)
    # Above 64 cells these are bounds: 1.29 to 1.37 times it with four keys in each precision.
    most = (1.3 if size < 9 else 1.5) * nats
    assert float(found.mutual_information.lower) < nats < float(found.mutual_information.upper) < most


@pytest.mark.long
def test_a_single_user_says_nothing():
    found = association(jax.random.key(0), [[1, 0], [0, 0]], Product([rrjax.RandomizedResponse(2, 1.0)] * 2))
    for limits, most in zip(found, (1, np.log(2)), strict=True):
        assert float(limits.lower) == 0
        assert float(limits.upper) == pytest.approx(most)


@pytest.mark.long
def test_without_rare_categories_no_rare_cell_widens_an_interval():
    product = Product((rrjax.RandomizedResponse(3, 2.0),) * 2)
    theta = 0.7 * np.outer([0.4, 0.35, 0.25], [0.4, 0.35, 0.25]) + 0.3 * np.diag([0.4, 0.35, 0.25])
    counts = np.rint(law(theta, (2.0, 2.0)) * 1000).astype(np.int32)
    found = association(jax.random.key(0), counts, product).cramers_v
    assert float(found.lower) == pytest.approx(0.2, abs=0.03)
    assert float(found.upper) == pytest.approx(0.4, abs=0.03)


@pytest.mark.full
@pytest.mark.parametrize("width", [12, 13])
def test_tables_on_both_sides_of_the_size_that_is_searched(width):
    theta = np.full((12, width), 0.5 / (12 * width))
    theta[np.arange(12), np.arange(12)] += 0.5 / 12
    product = Product((rrjax.RandomizedResponse(12, 4.0), rrjax.RandomizedResponse(width, 4.0)))
    counts = np.rint(law(theta, (4.0, 4.0)) * 100_000).astype(np.int32)
    found = association(jax.random.key(0), counts, product, num_draws=99)
    for limits, true in (
        (found.cramers_v, float(cramers_v(theta))),
        (found.mutual_information, float(mutual_information(theta))),
    ):
        assert float(limits.lower) < true < float(limits.upper)
        assert float(limits.value) == pytest.approx(true, rel=0.05)
        assert float(limits.upper) - float(limits.lower) < 0.15 * true


@pytest.mark.long
def test_odds_ratios_of_true_values_are_those_of_the_table():
    counts = np.array([[900, 600], [500, 1000]])
    product = Product([rrjax.RandomizedResponse(2, 12.0), rrjax.RandomizedResponse(2, 12.0)])
    found = odds_ratios(counts, product)
    assert float(found.value[1, 1]) == pytest.approx(3.0, rel=0.005)
    # Woolf's interval, by the logarithm.
    half = 1.96 * np.sqrt((1 / counts).sum())
    assert float(found.lower[1, 1]) == pytest.approx(3 * np.exp(-half), rel=0.02)
    assert float(found.upper[1, 1]) == pytest.approx(3 * np.exp(half), rel=0.02)
    np.testing.assert_array_equal(np.asarray(found.value)[[0, 0, 1], [0, 1, 0]], 1)
    other = odds_ratios(counts, product, reference=(0, 1))
    assert float(other.value[1, 0]) == pytest.approx(1 / 3, rel=0.005)
    # A cell that nobody may hold.
    rare = odds_ratios([[500, 0], [500, 500]], product)
    assert not np.isfinite(float(rare.upper[1, 1]))
    assert float(rare.lower[1, 1]) > 1


@pytest.mark.full
def test_counts_that_cannot_be_are_nan_under_tracing():
    product = Product(RESPONSES)
    bad = np.array([[5, -1, 3], [2, 2, 2]])
    found = jax.jit(lambda counts: association(jax.random.key(0), counts, product, num_draws=19))(bad)
    assert all(bool(np.isnan(leaf)) for leaf in jax.tree.leaves(found))
    ratios = jax.jit(lambda counts: odds_ratios(counts, product))(bad)
    assert all(bool(np.isnan(leaf).all()) for leaf in jax.tree.leaves(ratios))
    good = np.array([[50, 10, 30], [20, 20, 20]])
    of_level = jax.jit(lambda level: association(jax.random.key(0), good, product, level=level, num_draws=19))
    for level in (1.5, np.nan, -0.5):
        assert all(bool(np.isnan(leaf)) for leaf in jax.tree.leaves(of_level(level)))


@pytest.mark.long
def test_reports_without_any_association_have_an_interval():
    """Where no direction shows, the interval is as short as beside it."""
    product = Product((rrjax.RandomizedResponse(2, 2.0),) * 2)
    counts = np.full((2, 2), 25_000)
    found = association(jax.random.key(0), counts, product).cramers_v
    beside = association(jax.random.key(0), counts + np.eye(2, dtype=int), product).cramers_v
    assert float(found.lower) == 0
    assert float(found.upper) == pytest.approx(float(beside.upper), abs=0.01)
    assert float(found.upper) < 0.05


def test_what_is_refused():
    key, counts, product = jax.random.key(0), np.ones((2, 3), int), Product(RESPONSES)
    with refused("mechanism"):
        association(key, counts, Product(RESPONSES[:1]))
    with refused("mechanism"):
        association(key, counts, RESPONSES[0])
    with refused("counts"):
        association(key, counts.T, product)
    with refused("level"):
        association(key, counts, product, level=1.0)
    with refused("num_draws"):
        association(key, counts, product, num_draws=3)
    with refused("reference"):
        odds_ratios(counts, product, reference=(0, 3))


@pytest.mark.long
@pytest.mark.once
def test_a_large_odds_ratio_is_covered_as_rarely_as_the_docstring_says():
    one = rrjax.RandomizedResponse(2, 1.2)
    product, channel = rrjax.mechanisms.Product([one, one]), np.asarray(one.channel(), float)
    law = channel.T @ np.array([[0.45, 0.05], [0.05, 0.45]]) @ channel
    counts = np.random.default_rng(0).multinomial(1000, law.ravel(), 10_000).reshape(-1, 2, 2).astype(np.int32)
    lower, upper = (
        np.asarray(each)[:, 1, 1] for each in jax.jit(jax.vmap(lambda table: odds_ratios(table, product)[1:]))(counts)
    )
    error = np.sqrt(0.93 * 0.07 / 10_000)
    assert np.mean((lower <= 81) & (upper >= 81)) == pytest.approx(0.93, abs=4 * error)
    assert np.mean(lower > 81) == pytest.approx(0.07, abs=4 * error)


BILLIONS = [
    ([[799607558, 200383972], [200397367, 799611103]], 8.0),
    ([[1939995686, 20002733], [20000588, 20000993]], 20.0),
]


@pytest.mark.parametrize(("counts", "epsilon"), BILLIONS)
def test_odds_ratios_of_billions_of_users_in_float32(counts, epsilon):
    """Fieller's equation in float64, for the unbiased shares and their covariances to the first order."""
    product = Product([rrjax.RandomizedResponse(2, epsilon)] * 2)
    with jax.enable_x64(False):
        found = odds_ratios(np.asarray(counts), product)
    p = 1 / (1 + np.exp(-epsilon))
    inverse = np.linalg.inv(np.array([[p, 1 - p], [1 - p, p]]))
    reports = np.asarray(counts) / np.sum(counts)
    both = np.einsum("ku,lw->kluw", inverse, inverse)
    theta = np.einsum("kluw,uw->kl", both, reports)
    cells = both.reshape(4, 4)
    spread = (cells * reports.ravel()) @ cells.T - np.outer(theta, theta)
    slope = np.array([1, -1, -1, 1]) / theta.ravel()
    ratio = theta[0, 0] * theta[1, 1] / theta[0, 1] / theta[1, 0]
    width = 2 * 1.959964 * ratio * np.sqrt(slope @ spread @ slope / np.sum(counts))
    assert float(found.upper[1, 1] - found.lower[1, 1]) == pytest.approx(width, rel=0.01)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(("share", "ratio", "covered"), [(0.4, 16, 0.865), (0.45, 81, 0.825)])
def test_small_tables_are_covered_as_rarely_as_the_docstring_says(share, ratio, covered):
    """All tables of 30 users in columns that are not randomized."""
    tables = np.array([each for each in itertools.product(range(31), repeat=3) if sum(each) <= 30])
    tables = np.column_stack([tables, 30 - tables.sum(axis=1)])
    product = Product([rrjax.mechanisms.Direct(2)] * 2)
    found = jax.jit(jax.vmap(lambda table: odds_ratios(table, product)[1:]))(tables.reshape(-1, 2, 2).astype(np.int32))
    lower, upper = (np.asarray(each)[:, 1, 1] for each in found)
    law = stats.multinomial(30, [share, 0.5 - share, 0.5 - share, share]).pmf(tables)
    assert law[(lower <= ratio) & (upper >= ratio)].sum() == pytest.approx(covered, abs=1e-3)


ALONE = [  # what is reported, the share of the cell that is alone in its row and column, users
    (rrjax.mechanisms.Direct(3), 0.5, 10**7),
    (rrjax.mechanisms.Direct(3), 0.3, 3 * 10**6),
    (rrjax.RandomizedResponse(3, 10.0), 0.3, 10**6),
    (rrjax.RandomizedResponse(3, 6.0), 0.1, 10**8),
]


@pytest.mark.full  # two programs
@pytest.mark.parametrize(("mechanism", "share", "users"), ALONE)
def test_v_where_a_row_and_a_column_occur_only_together(mechanism, share, users):
    """There V = 1/√2, whatever the share, and has no slope in the other cells, whose columns are independent."""
    theta = np.pad((1 - share) * np.outer([0.4, 0.6], [0.45, 0.55]), (0, 1))
    theta[2, 2] = share
    channel = np.asarray(mechanism.channel(), float)
    counts = np.round(users * channel.T @ theta @ channel).astype(np.int32)
    found = association(jax.random.key(1), counts, Product([mechanism, mechanism]), num_draws=199).cramers_v
    assert float(found.value) == pytest.approx(np.sqrt(0.5), abs=2e-4)
    assert found.lower <= np.sqrt(0.5) <= found.upper
    assert found.upper - found.lower < 0.01


EMPTY = [  # ε, counts of collections of users who nearly all hold one pair
    (1.0, [[202, 537], [62, 199]], 1e-6),
    (1.0, [[180, 566], [76, 178]], 1e-6),
    (8.0, [[2, 934, 0], [0, 1, 49], [0, 0, 14]], 0.7),
]


@pytest.mark.full  # two programs
@pytest.mark.parametrize(("epsilon", "counts", "lower"), EMPTY)
def test_empty_rows_and_columns_may_carry_any_association(epsilon, counts, lower):
    """The search once found no table of some lengths, which was taken for a sign against these."""
    product = Product([rrjax.RandomizedResponse(len(counts), epsilon)] * 2)
    found = association(jax.random.key(0), counts, product, num_draws=499).cramers_v
    assert found.lower < lower
    assert found.upper > 0.95


@pytest.mark.full  # a program of its own
@pytest.mark.once
def test_in_noise_the_information_is_not_estimated_as_the_largest():
    """Its own statistic alone was as large at any information there: the median was 1.05 nats."""
    product = Product([rrjax.RandomizedResponse(4, 1.0)] * 2)
    counts = np.random.default_rng(3).multinomial(30, np.full(16, 1 / 16), size=40).reshape(-1, 4, 4)
    keys = jax.random.split(jax.random.key(0), len(counts))
    found = jax.jit(
        lambda *given: jax.lax.map(lambda each: association(*each, product, num_draws=99).mutual_information, given)
    )(keys, jnp.asarray(counts, jnp.int32))
    assert np.median(found.value) < 0.1


@pytest.mark.full  # a program of its own
@pytest.mark.once
def test_collections_whose_unbiased_tables_have_no_positive_cell():
    """Hadamard's vectors do not sum to one: 0/0 in one of the draws gave intervals of one number, in 56 % of them."""
    theta = np.array([[0.25, 0.05, 0.03], [0.05, 0.2, 0.05], [0.02, 0.1, 0.25]])
    product = Product([rrjax.mechanisms.HadamardResponse(3, 2.0)] * 2)
    chances = np.asarray(channel_of(product.columns[0], product.num_kinds[0]), float)
    law = chances @ theta @ chances.T
    counts = np.random.default_rng(0).multinomial(300, (law / law.sum()).ravel(), size=40).reshape(-1, *law.shape)
    found = jax.jit(
        lambda *given: jax.lax.map(lambda each: association(*each, product, num_draws=499).mutual_information, given)
    )(jax.random.split(jax.random.key(0), 40), jnp.asarray(counts, jnp.int32))
    true = float(mutual_information(theta))
    assert np.mean((found.lower <= true) & (true <= found.upper)) >= 0.9
    assert (found.lower < found.upper).all()
