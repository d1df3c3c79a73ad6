"""Columns that are randomized apart: their joint likelihood beside the dense channel, its maximum, the inversion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax.mechanisms import (
    Channel,
    ForcedResponse,
    Geometric,
    HadamardResponse,
    NegativeQuestion,
    OptimizedUnaryEncoding,
    Product,
    RandomizedResponse,
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


@pytest.mark.long
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


@pytest.mark.long
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


def test_reports_have_the_joint_law(product):
    place = product.num_categories - 2
    values = [np.full(30_000, int(value)) for value in product.values(place)]
    counts = np.asarray(product.count(product.randomize(jax.random.key(3), values))).ravel()
    check_frequencies(counts, dense(product)[:, place])


@pytest.mark.long
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


@pytest.mark.long  # Newton steps for rows of three columns
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


@pytest.mark.long  # a likelihood for each kind of gap
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
