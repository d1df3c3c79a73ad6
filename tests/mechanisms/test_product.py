"""Columns: their joint likelihood beside the dense channel, the inversion; columns of which each user reports some."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax.data.arguments import float_dtype
from rrjax.mechanisms import (
    Channel,
    Direct,
    ForcedResponse,
    Geometric,
    HadamardResponse,
    NegativeQuestion,
    OptimizedUnaryEncoding,
    Product,
    RandomizedResponse,
    Sampled,
    SampledWithFakes,
    SubsetSelection,
    Warner,
)

DICE = ForcedResponse(2 / 3, [0.5, 0.3, 0.2])
OF_COLUMNS = {
    "two": (RandomizedResponse(3, 1.0), RandomizedResponse(4, 2.0)),
    "three": (RandomizedResponse(2, 1.5), DICE, HadamardResponse(4, 2.0)),
    "designs": (Warner(0.3), NegativeQuestion(3, 0.1), Channel([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])),
    "ordered": (Geometric(5, 2.0), Warner(0.8)),
}
COLUMNS = (RandomizedResponse(2, 1.0), RandomizedResponse(3, 1.5), RandomizedResponse(4, 0.5))
USERS = 30_000


def matrix_of(mechanism):
    """The probabilities of all kinds of reports, `[U, K]`, float64."""
    rows = mechanism.log_rows(np.arange(mechanism.num_kinds, dtype=np.int32))
    scale, base, lift = (np.asarray(part, np.float64) for part in rows)
    found = np.exp(scale)[..., None] * (np.exp(base)[..., None] + np.exp(lift))
    return found / found.sum(axis=0)


def dense(product):
    found = np.ones((1, 1))
    for column in product.columns:
        found = np.kron(found, matrix_of(column))
    return found


def drawn(product, number, seed=0):
    """Values that go together, and their reports."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(product.num_categories, 0.4))
    cells = rng.choice(product.num_categories, size=number, p=shares).astype(np.int32)
    values = product.values(cells)
    return shares, cells, product.randomize(jax.random.key(seed), values)


@pytest.fixture(params=["two", *(pytest.param(name, marks=pytest.mark.long) for name in OF_COLUMNS if name != "two")])
def product(request):
    return Product(OF_COLUMNS[request.param])


@pytest.mark.full
def test_the_lift_is_the_product_of_the_channels(product):
    mixture = product.mixture_of_counts(np.ones(product.num_kinds, int))
    eye = jnp.eye(product.num_categories)
    found = np.asarray(jax.vmap(mixture.lift, out_axes=1)(eye), np.float64)
    assert found.min() >= 0
    base = np.broadcast_to(np.asarray(mixture.base, np.float64), found.shape[0])
    ratio = (found + base[:, None]) / dense(product)
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones_like(ratio), rtol=2e-6)
    back = jax.vmap(mixture.lift.transpose)(jnp.eye(found.shape[0]))
    np.testing.assert_allclose(np.asarray(back), found, rtol=2e-6, atol=1e-7)


@pytest.mark.full
@pytest.mark.parametrize("name", ["two", "three"])
def test_the_joint_maximum_is_that_of_the_dense_channel(name):
    product = Product(OF_COLUMNS[name])
    _, _, reports = drawn(product, 20_000)
    counts = product.count(reports)
    found = rrjax.ibu(product.mixture_of_counts(counts), accelerate="newton")
    channel = Channel(dense(product).T)
    mixture = channel.mixture_of_counts(np.asarray(counts).ravel())
    other = rrjax.ibu(mixture, accelerate="newton")
    assert bool(found.converged)
    assert float(found.gap) < (1e-10 if found.theta.dtype == np.float64 else 3e-5)
    own, dense_one = (float(rrjax.nll(theta, mixture)) for theta in (found.theta, other.theta))
    assert own == pytest.approx(dense_one, abs=1e-6)
    slow = rrjax.ibu(product.mixture_of_counts(counts))
    assert float(rrjax.nll(slow.theta, mixture)) == pytest.approx(dense_one, abs=1e-5)


@pytest.mark.long
def test_reports_have_the_joint_law(product):
    place = product.num_categories - 2
    values = [np.full(30_000, int(value)) for value in product.values(place)]
    counts = np.asarray(product.count(product.randomize(jax.random.key(3), values))).ravel()
    check_frequencies(counts, dense(product)[:, place])


@pytest.mark.full
def test_the_inversion_is_unbiased(product):
    shares, _, reports = drawn(product, 40_000, seed=1)
    counts = product.count(reports)
    found, variances = (np.asarray(f(counts), np.float64) for f in (product.inv, product.inv_variances))
    assert (np.abs(found - shares) < 4 * np.sqrt(variances)).all()
    mean = np.asarray(product.debias(reports), np.float64).mean(axis=0)
    np.testing.assert_allclose(mean, found, atol=3e-4)
    # The expectation over the law of the reports is the truth itself.
    expected = np.asarray(product.inv((dense(product) @ shares).reshape(product.num_kinds) * 1e6), np.float64)
    np.testing.assert_allclose(expected, shares, atol=2e-5)


def test_reports_that_are_all_the_same_do_not_tell_their_error():
    product = Product(OF_COLUMNS["two"])
    counts = np.zeros(product.num_kinds, int)
    counts[0, 1] = 3
    assert np.isnan(product.inv_variances(counts)).all()
    counts[1, 0] = 1
    assert np.isfinite(product.inv_variances(counts)).any()


@pytest.mark.long
def test_marginals_of_the_inversion_are_those_of_the_columns():
    product = Product(OF_COLUMNS["two"])
    _, _, reports = drawn(product, 5000)
    found = product.inv(product.count(reports))
    for place, column in enumerate(product.columns):
        alone = rrjax.inv(column.tally(reports[place]))
        np.testing.assert_allclose(product.marginal(found, [place]), alone, atol=2e-6)
    table = product.marginal(found, [1, 0])
    np.testing.assert_allclose(table, np.asarray(found).reshape(product.shape).T, atol=1e-7)
    assert product.part([1]).shape == (4,)


LARGEST = {jnp.dtype(jnp.float32): 88.0, jnp.dtype(jnp.float64): 709.0}
"""ε from which e^ε is that of the largest number."""


@pytest.mark.long
@pytest.mark.parametrize("accelerate", ["none", "newton"])
@pytest.mark.parametrize("kind", ["columns", "two", "direct", "infinite", "one"])
def test_a_large_sum_of_epsilons_leaves_no_range(kind, accelerate):
    """From a sum of 86 on in float32 shares were those of no reports, and said to have converged."""
    largest = LARGEST[float_dtype()]
    columns = {
        "columns": [RandomizedResponse(2, 0.11 * largest)] * 10,
        "two": [RandomizedResponse(3, largest / 2), RandomizedResponse(3, largest - 1)],
        "direct": [Direct(3), RandomizedResponse(3, largest)],
        "infinite": [RandomizedResponse(3, jnp.inf), DICE],
        "one": [RandomizedResponse(3, jnp.inf)],
    }[kind]
    product = Product(columns)
    counts = np.zeros(product.shape, int)
    counts[0, ...], counts[-1, ...] = 1, 2
    counts.flat[0], counts.flat[-1] = 50_000, 30_000
    result = rrjax.ibu(product.mixture_of_counts(counts), accelerate=accelerate)
    assert bool(result.converged)
    assert float(result.gap) <= 1e-3
    if kind == "infinite":  # the second column keeps its noise
        np.testing.assert_allclose(result.theta.reshape(3, 3).sum(axis=1), counts.sum(axis=1) / counts.sum(), atol=1e-4)
    else:
        # Ten columns have some noise: three users a cell that differs in one.
        np.testing.assert_allclose(result.theta, counts.ravel() / counts.sum(), atol=1e-3)


@pytest.mark.full  # Newton steps for rows of three columns
def test_reports_that_cannot_be_counted_are_rows():
    columns = (RandomizedResponse(3, 1.0), SubsetSelection(4, 1.0), OptimizedUnaryEncoding(2, 1.0))
    product = Product(columns)
    assert product.num_kinds is None
    _, _, reports = drawn(product, 3000)
    found = rrjax.ibu(product.mixture(reports), accelerate="newton")
    assert bool(found.converged)
    rows = product.log_rows(reports)
    log_theta = jnp.log(jnp.maximum(found.theta, 1e-30))
    of_rows = float(jnp.mean(rows.log_probability(jnp.broadcast_to(log_theta, rows.lift.shape))))
    uniform = jnp.full(24, -np.log(24), rows.lift.dtype)
    gained = of_rows - float(jnp.mean(rows.log_probability(jnp.broadcast_to(uniform, rows.lift.shape))))
    mixture = product.mixture(reports)
    flat = jnp.full(24, 1 / 24, found.theta.dtype)
    assert gained == pytest.approx(float(rrjax.nll(flat, mixture) - rrjax.nll(found.theta, mixture)), abs=1e-5)
    # A column that can be counted has the same likelihood either way.
    alone = Product(columns[:1])
    both = Product((columns[0], RandomizedResponse(2, 1.0)))
    assert float(both.epsilon) == pytest.approx(2.0)
    assert alone.num_categories == 3


@pytest.mark.full  # a likelihood for each kind of gap
def test_missing_reports_count_by_the_other_columns(product):
    """The likelihood is that of whatever was reported, report by report."""
    _, _, reports = drawn(product, 500)
    rng = np.random.default_rng(7)
    holed = [np.where(rng.random(500) < 0.3, -1, each) for each in map(np.asarray, reports)]
    theta = rng.dirichlet(np.ones(product.num_categories))
    table = theta.reshape(product.shape)
    expected = np.ones((500, *product.shape))
    for place, (column, own) in enumerate(zip(product.columns, holed, strict=True)):
        rows = np.where((own < 0)[:, None], 1, matrix_of(column)[own])
        shape = [500] + [1] * len(product.shape)
        shape[place + 1] = column.num_categories
        expected = expected * rows.reshape(shape)
    one, two = theta, np.full_like(theta, 1 / theta.size)
    gained = np.log((expected * table).sum(axis=tuple(range(1, table.ndim + 1))))
    gained = gained - np.log(expected.mean(axis=tuple(range(1, table.ndim + 1))))
    mixture = product.mixture(holed)
    found = float(rrjax.nll(two, mixture) - rrjax.nll(one, mixture))
    assert found == pytest.approx(gained.mean(), abs=1e-5)
    rows = product.log_rows(holed)
    logs = jnp.broadcast_to(jnp.log(jnp.asarray([one, two], rows.lift.dtype))[:, None], (2, *rows.lift.shape))
    own = np.asarray([rows.log_probability(each) for each in logs])
    np.testing.assert_allclose(own[0] - own[1], gained, atol=2e-5)
    with refused("reports of column 0"):
        product.count([np.where(np.arange(500) == 0, 99, each) for each in holed])
    # The inversion takes the users who reported everything.
    whole = np.logical_and.reduce([each >= 0 for each in holed])
    complete = product.count([each[whole] for each in holed])
    np.testing.assert_allclose(product.inv(product.count(holed)), product.inv(complete), atol=1e-6)


def test_products_that_cannot_be():
    with refused("columns"):
        Product([])
    with refused("columns"):
        Product([RandomizedResponse(3, 1.0), 3])
    product = Product(OF_COLUMNS["two"])
    key = jax.random.key(0)
    for values in ([[0, 1]], ([0], [1], [2]), ([0, 1], [1]), ([0], [4])):
        with pytest.raises(ValueError, match=r"column|values"):
            product.randomize(key, values)
    with refused("counts"):
        product.inv(np.ones(12))
    with refused("counts"):
        product.mixture_of_counts(np.ones((4, 3)))
    with refused("columns"):
        Product([SubsetSelection(4, 1.0)]).count(([[0]],))
    with refused("columns"):
        Product([RandomizedResponse(20_000, 1.0)] * 2).mixture(([0], [0]))


def channel_of(column):
    """The channel `[K, K]`, a row for each report."""
    p, q = float(column.p), float(column.q)
    return np.full((column.num_categories,) * 2, q) + (p - q) * np.eye(column.num_categories)


def law_with_fakes(product):
    """The probability of each record of reports, for each cell `[U, ∏K]`."""
    found = 0.0
    for place in range(len(product.columns)):
        part = np.ones((1, 1))
        for other, column in enumerate(product.columns):
            size = column.num_categories
            part = np.kron(part, channel_of(column) if other == place else np.full((size, size), 1 / size))
        found = found + part / len(product.columns)
    return found


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_user_reports_so_many_columns(number):
    product = Sampled(COLUMNS, number=number)
    values = (np.full(USERS, 1), np.full(USERS, 2), np.full(USERS, 0))
    reports = [np.asarray(each) for each in product.randomize(jax.random.key(4), values)]
    known = np.stack([each >= 0 for each in reports])
    assert (known.sum(axis=0) == number).all()
    choices = list(itertools.combinations(range(3), number))
    counts = [int(np.all(known[list(choice)], axis=0).sum()) for choice in choices]
    check_frequencies(np.asarray(counts), np.full(len(choices), 1 / len(choices)))
    for column, value, own in zip(COLUMNS, (1, 2, 0), reports, strict=True):
        check_frequencies(np.bincount(own[own >= 0], minlength=column.num_categories), channel_of(column)[:, value])
    assert float(product.epsilon) == pytest.approx({1: 1.5, 2: 2.5, 3: 3.0}[number])


@pytest.mark.full
def test_pairs_of_sampled_columns():
    """With two of three columns, the table of each pair is found from those who reported both."""
    product = Sampled(COLUMNS, number=2)
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 60_000)
    values = (first, first + (rng.random(60_000) < 0.1), rng.integers(0, 4, 60_000))
    reports = product.randomize(jax.random.key(1), values)
    pair = product.part([0, 1])
    counts = pair.count(reports[:2])
    assert counts.shape == (3, 4)
    truth = np.bincount(np.asarray(pair.cells(values[:2])), minlength=6) / 60_000
    found, variances = (np.asarray(each(counts)) for each in (pair.inv, pair.inv_variances))
    assert (np.abs(found - truth) < 4 * np.sqrt(variances)).all()
    likeliest = rrjax.ibu(pair.mixture_of_counts(counts), accelerate="newton")
    assert bool(likeliest.converged)
    # Users with one report of the two tell the columns: better than those with both alone.
    alone = rrjax.ibu(pair.mixture_of_counts(counts[:2, :3]), accelerate="newton")
    error = [float(np.abs(np.asarray(each.theta) - truth).sum()) for each in (likeliest, alone)]
    assert error[0] < error[1]
    with refused("columns"):
        product.inv(product.count(reports))


@pytest.mark.full
def test_records_among_fakes_have_their_law():
    product = SampledWithFakes(COLUMNS)
    law = law_with_fakes(product)
    place = 13
    values = [np.full(USERS, int(value)) for value in product.values(place)]
    counts = np.asarray(product.count(product.randomize(jax.random.key(2), values))).ravel()
    check_frequencies(counts, law[:, place])
    rows = product.log_rows(product.values(np.arange(24)))
    found = np.exp(np.asarray(rows.scale))[:, None] * (np.exp(rows.base)[:, None] + np.exp(np.asarray(rows.lift)))
    np.testing.assert_allclose(found, law, rtol=2e-5)
    mixture = product.mixture_of_counts(np.ones(product.shape, int))
    matrix = np.asarray(jax.vmap(mixture.lift, out_axes=1)(jnp.eye(24))) + float(mixture.base)
    np.testing.assert_allclose(matrix / matrix.sum(axis=0), law, rtol=2e-6)
    np.testing.assert_allclose(jax.vmap(mixture.lift.transpose)(jnp.eye(24)), matrix - float(mixture.base), atol=1e-6)


@pytest.mark.long
def test_the_epsilon_of_a_record_among_fakes():
    product = SampledWithFakes(COLUMNS)
    law = np.log(law_with_fakes(product))
    assert float(product.epsilon) == pytest.approx((law.max(axis=1) - law.min(axis=1)).max(), rel=1e-6)
    cells = np.stack(np.unravel_index(np.arange(24), product.shape))
    for place in range(3):
        others = [each for each in range(3) if each != place]
        alike = (cells[others][:, :, None] == cells[others][:, None, :]).all(axis=0)
        largest = max(np.abs(law[:, one] - law[:, other]).max() for one, other in np.argwhere(alike))
        assert float(product.column_epsilon(place)) == pytest.approx(largest, rel=1e-6)
    # What the literature calls amplified is the ε of a record, whatever the number of columns.
    assert float(SampledWithFakes([RandomizedResponse(5, 2.0)] * 7).epsilon) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.full
def test_a_column_among_fakes_is_randomized_response():
    product = SampledWithFakes(COLUMNS)
    law = law_with_fakes(product).reshape(*product.shape, *product.shape)
    alone = law.sum(axis=(0, 2))[:, 1, :, 0]  # reports of column 1, for its values beside others
    np.testing.assert_allclose(channel_of(product.column(1)), alone, rtol=1e-5)
    rng = np.random.default_rng(5)
    values = [rng.choice(size, p=rng.dirichlet(np.ones(size)), size=200_000) for size in product.shape]
    reports = product.randomize(jax.random.key(0), values)
    together = rrjax.ibu(product.mixture(reports)).theta
    for place, (own, value) in enumerate(zip(reports, values, strict=True)):
        truth = np.bincount(value, minlength=product.shape[place]) / value.size
        column = product.column(place)
        error = np.sqrt(float(column.rates.variance(0.5)) / value.size)
        assert np.abs(np.asarray(rrjax.inv(column.tally(own))) - truth).max() < 4 * error
        assert np.abs(np.asarray(product.marginal(together, [place])) - truth).max() < 4 * error


def test_columns_that_cannot_be_sampled():
    with refused("number"):
        Sampled(COLUMNS, number=4)
    with refused("number"):
        Sampled(COLUMNS, number=0)
    with refused("columns"):
        Sampled([COLUMNS[0], OptimizedUnaryEncoding(3, 1.0)])
    with refused("columns"):
        SampledWithFakes([COLUMNS[0], Warner(0.3)])
    with refused("counts"):
        SampledWithFakes(COLUMNS).mixture_of_counts(np.ones((3, 4, 5), int))
    with refused("counts"):
        Product(COLUMNS).mixture_of_counts(np.ones((4, 3, 4), int))
