"""Lifts: their products against NumPy in double precision, whatever the sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64
from refusals import refused

import rrjax
from rrjax import Mixture
from rrjax.data.linear_maps import Decay, Dense, Sparse, incidence
from rrjax.mechanisms import LocalHashing, SubsetSelection


def table_of(supports, size):
    table = np.zeros((len(supports), size))
    for row, support in zip(table, supports, strict=True):
        row[list(support)] = 1
    return table


products = jax.jit(lambda lift, theta, weights: (lift(theta), lift.transpose(weights)))


def check_products(lift, table, seed=0, factor=30):
    """Both products, each entry to a few machine epsilons of itself."""
    rng = np.random.default_rng(seed)
    assert lift.shape == table.shape
    theta, weights = (rng.random(n).astype(FLOAT) ** 8 for n in (table.shape[1], table.shape[0]))
    forth, back = products(lift, theta, weights)
    table = table.astype(np.longdouble)  # or the sums of NumPy would be no better than ours
    np.testing.assert_allclose(forth, table @ theta, rtol=factor * ULP)
    np.testing.assert_allclose(back, table.T @ weights, rtol=factor * ULP)


@pytest.mark.parametrize("size", [5, 700])
def test_lists_of_any_length(size):
    rng = np.random.default_rng(size)
    lengths = [0, 1, 7, 8, 9, 64, 65, size]
    supports = [rng.permutation(size)[: min(n, size)].tolist() for n in lengths]
    check_products(Sparse.of(supports, size, 2.5), 2.5 * table_of(supports, size))


def test_long_lists_are_added_up_accurately():
    # One category that all of 40,000 reports support: plain float32 sums would be off by some 1e-4.
    number = 40_000
    lift = Sparse.of(np.stack([np.zeros(number, int), np.arange(number) % 9 + 1], axis=1), 10)
    weights = np.random.default_rng(0).random(number).astype(FLOAT)
    _, back = products(lift, np.ones(10, FLOAT), weights)
    np.testing.assert_allclose(back[0], weights.astype(float).sum(), rtol=15 * ULP)


@pytest.mark.parametrize("shape", [(40_000, 3), (3, 40_000), (1041, 65), (1, 64)])
@pytest.mark.parametrize("kind", ["booleans", "numbers"])
def test_dense_products_of_any_length(shape, kind):
    # Of 40,000 terms a plain float32 sum on a CPU, one after the other, would be off by some 1e-4.
    table = np.random.default_rng(0).random(shape).astype(FLOAT)
    table = table < 0.5 if kind == "booleans" else table
    # A half for a term, one for each level of the tree of sums.
    check_products(Dense(table, 0.5), table / np.float64(2), factor=(1 + np.ceil(np.log2(max(shape)))) / 2)


def test_dense_products_of_a_batch_are_those_of_each():
    rng = np.random.default_rng(0)
    lift = Dense(jnp.asarray(rng.random((300, 70)) < 0.5), 0.5)
    theta, weights = (jnp.asarray(rng.random((3, size)), FLOAT) for size in (70, 300))
    found = jax.jit(jax.vmap(products, (None, 0, 0)))(lift, theta, weights)
    for row in range(3):
        for batched, alone in zip(found, products(lift, theta[row], weights[row]), strict=True):
            np.testing.assert_array_equal(batched[row], alone)


def test_dense_products_of_no_reports():
    forth, back = products(Dense(np.zeros((0, 3), bool)), np.ones(3, FLOAT), np.ones(0, FLOAT))
    assert forth.shape == (0,)
    np.testing.assert_array_equal(back, np.zeros(3))


def test_infinite_terms_of_dense_products_stay_infinite():
    forth, back = products(Dense(np.eye(40, 3)), np.array([np.inf, 1, 0], FLOAT), np.array([np.inf, *[1] * 39], FLOAT))
    assert forth[1] == 1 or np.isnan(forth[1])  # 0 · ∞
    assert np.isinf(back[0])
    assert np.isnan(products(Dense(np.ones((40, 3))), np.array([np.nan, 1, 0], FLOAT), np.ones(40, FLOAT))[0]).all()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["booleans", "numbers"])
def test_derivatives_of_dense_products(kind):
    table = np.random.default_rng(0).random((530, 35))
    table = jnp.asarray(table < 0.5) if kind == "booleans" else jnp.asarray(table, FLOAT)
    rng = np.random.default_rng(1)
    theta, weights = (jnp.asarray(rng.random(n), FLOAT) for n in table.shape[::-1])

    def of(theta, weights):
        lift = Dense(table, 0.5)
        return lift(theta) @ weights**2 + lift.transpose(weights) @ theta**2

    slopes = jax.grad(of, argnums=(0, 1))(theta, weights)
    half = np.asarray(table, float) / 2
    t, w = np.asarray(theta, float), np.asarray(weights, float)
    np.testing.assert_allclose(slopes[0], half.T @ w**2 + 2 * t * (half.T @ w), rtol=1e-5)
    np.testing.assert_allclose(slopes[1], 2 * w * (half @ t) + half @ t**2, rtol=1e-5)
    forward = jax.jvp(of, (theta, weights), (theta, weights))[1]
    np.testing.assert_allclose(forward, 3 * of(theta, weights), rtol=1e-5)
    if kind == "numbers":
        of_matrix = jax.grad(lambda m: Dense(m)(theta) @ weights)(table)
        np.testing.assert_allclose(of_matrix, np.outer(w, t), rtol=1e-6)


def test_what_is_smaller_is_taken():
    rng = np.random.default_rng(0)
    for share, kind in ((0.02, Sparse), (0.5, Dense)):
        table = rng.random((40, 200)) < share
        lift = incidence(table, 1.5)
        assert isinstance(lift, kind)
        check_products(lift, 1.5 * table)


@pytest.mark.parametrize(
    ("supports", "message"),
    [
        ([[0, 1], [2, 5]], "supports"),
        ([[0, -1]], "supports"),
        ([[0, 1], [1, 3, 1]], "supports"),
    ],
)
@pytest.mark.once
def test_bad_lists_are_named(supports, message):
    with refused(message):
        Sparse.of(supports, 4)


@pytest.mark.parametrize(("size", "rate"), [(2, 0.5), (37, 0.3), (37, 0.0), (1000, 1e-3), (1000, 50.0)])
def test_decay_against_its_matrix(size, rate):
    places = np.arange(size)
    table = np.exp(-float(FLOAT.type(rate)) * np.abs(places[:, None] - places))
    lift = Decay(rate, size)
    assert lift.shape == (size, size)
    theta = np.random.default_rng(0).random(size).astype(FLOAT) ** 8
    # exp(−rate·distance) is the product of up to log2 K rounded powers.
    forth, back = products(lift, theta, theta)
    np.testing.assert_allclose(forth, table @ theta.astype(float), rtol=200 * ULP, atol=1e-30)
    np.testing.assert_array_equal(forth, back)


@pytest.mark.full
def test_a_lift_is_what_it_does():
    rng = np.random.default_rng(1)
    supports = [rng.permutation(40)[:2] for _ in range(60)]
    weights = rng.integers(1, 30, 60)
    results = [
        rrjax.ibu(Mixture(weights, 1.0, lift), accelerate="newton")
        for lift in (Sparse.of(supports, 40, 3.0), Dense(table_of(supports, 40).astype(FLOAT), 3.0))
    ]
    assert all(bool(result.converged) for result in results)
    mixture = Mixture(weights, 1.0, Sparse.of(supports, 40, 3.0))
    losses = [float(rrjax.nll(result.theta, mixture)) for result in results]
    assert losses[0] == pytest.approx(losses[1], abs=1e-10 if X64 else 2e-5)


@pytest.mark.full
def test_few_members_make_a_sparse_mixture():
    mechanism = SubsetSelection(60, 3.0)
    reports = np.array(mechanism.randomize(jax.random.key(0), np.arange(300) % 60))
    lists = mechanism.mixture(reports[:, ::-1])  # in whatever order members come
    assert isinstance(lists.lift, Sparse)
    dense = super(SubsetSelection, mechanism).mixture(reports)
    wanted = Mixture(np.ones(300, int), 1.0, Dense(mechanism.supports(reports), mechanism.expm1_epsilon))
    theta = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(60)), FLOAT)
    for mixture in (lists, dense):
        assert int(np.sum(mixture.weights)) == 300
        assert rrjax.nll(theta, mixture) == pytest.approx(float(rrjax.nll(theta, wanted)), abs=20 * ULP)
    hashing = LocalHashing(40, 4.0)
    reports = hashing.randomize(jax.random.key(1), np.arange(100) % 40)
    mixture = hashing.mixture(reports)
    assert isinstance(mixture.lift, Sparse)
    wanted = Mixture(np.ones(100, int), 1.0, Dense(hashing.supports(reports), hashing.expm1_epsilon))
    theta = theta[:40] / theta[:40].sum()
    assert rrjax.nll(theta, mixture) == pytest.approx(float(rrjax.nll(theta, wanted)), abs=20 * ULP)
    # Under tracing, where reports cannot be looked at, there is a row for each.
    traced = jax.jit(lambda r: rrjax.nll(theta, hashing.mixture(r)))(reports)
    assert traced == pytest.approx(float(rrjax.nll(theta, wanted)), abs=20 * ULP)
