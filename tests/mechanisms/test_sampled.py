"""Columns of which each user reports some: the law, the ε of a record, what a column is alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax.mechanisms import OptimizedUnaryEncoding, Product, RandomizedResponse, Sampled, SampledWithFakes, Warner

COLUMNS = (RandomizedResponse(2, 1.0), RandomizedResponse(3, 1.5), RandomizedResponse(4, 0.5))
USERS = 30_000


def matrix_of(column):
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
            part = np.kron(part, matrix_of(column) if other == place else np.full((size, size), 1 / size))
        found = found + part / len(product.columns)
    return found


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
        check_frequencies(np.bincount(own[own >= 0], minlength=column.num_categories), matrix_of(column)[:, value])
    assert float(product.epsilon) == pytest.approx({1: 1.5, 2: 2.5, 3: 3.0}[number])


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
def test_a_column_among_fakes_is_randomized_response():
    product = SampledWithFakes(COLUMNS)
    law = law_with_fakes(product).reshape(*product.shape, *product.shape)
    alone = law.sum(axis=(0, 2))[:, 1, :, 0]  # reports of column 1, for its values beside others
    np.testing.assert_allclose(matrix_of(product.column(1)), alone, rtol=1e-5)
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
