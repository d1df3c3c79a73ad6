"""Many devices: `shard_map`, meshes with explicit axes, and categories spread over devices."""

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import rrjax
from rrjax import RandomizedResponse, inference, models, surveys
from rrjax.data.linear_maps import Scaling
from rrjax.mechanisms import Channel, SquareWave, SubsetSelection
from rrjax.numerics.sharding import by_platform, one_by_one, repeat, take_at, with_sharding_of
from rrjax.simulate.sampling.multinomials import FEW_CATEGORIES

# Each way starts a process that traces every public function for four devices, and compiles some: half a minute.
pytestmark = pytest.mark.once


# The sizes are on both sides of each switch of a program: 64 terms, 1,024 cells, 4,096 users, 2¹⁶ sorted numbers.
@pytest.mark.full
@pytest.mark.parametrize(
    ("way", "size", "x64"),
    [*((way, 8, "0") for way in meshes.WAYS), ("shard_map, vmap", 100, "1"), ("shard_map, vmap", 70_000, "0")],
)
def test_every_public_function_works_on_a_mesh(way, size, x64):
    found = meshes.problems(way, size, x64)
    assert size > meshes.K or set(found) == set(meshes.names(way))
    wrong = {name: problem for name, problem in found.items() if problem}
    refused = {name for among, name in meshes.REFUSED if among == way}
    assert set(wrong) == refused, wrong
    # A sentence of ours, not one from deep inside; a function that has a solver too few says which.
    assert all(problem.startswith("refused: ") for problem in wrong.values()), wrong


@pytest.mark.full
def test_many_categories_are_simulated_in_shard_map():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))
    keys, theta = jax.random.split(jax.random.key(0), 1), jnp.full(FEW_CATEGORIES + 1, 1 / (FEW_CATEGORIES + 1))
    for size in (FEW_CATEGORIES, FEW_CATEGORIES + 1):

        def draw(keys, theta=theta[:size]):
            return rrjax.simulate.counts(keys[0], theta / jnp.sum(theta), 10_000, 2.0)[None]

        split = jax.shard_map(draw, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"))
        assert jax.jit(split)(keys)[0].tolist() == draw(keys)[0].tolist()


def test_alone_nothing_happens():
    state = (jnp.int32(0), jnp.arange(3), 2.0)
    assert with_sharding_of(state) is state
    assert with_sharding_of(state, jnp.ones(2)) is state
    # … nor is anything added to the program.
    assert not jax.make_jaxpr(lambda x: with_sharding_of((x, x), x))(1.0).eqns


def test_looking_up_and_repeating():
    table = jnp.arange(5) ** 2
    assert take_at(table, jnp.array([[4, 0], [1, 2]])).tolist() == [[16, 0], [1, 4]]
    assert int(take_at(table, jnp.int32(3))) == 9
    assert int(repeat(jnp.int32(4), lambda i, s: s + i, jnp.int32(1))) == 7


def test_the_platform_that_is_compiled_for_decides(monkeypatch):
    def program():  # a new function each time, because compiled ones are remembered
        return jax.jit(lambda x: by_platform(x, cpu=jnp.sin, elsewhere=jnp.cos))

    def lowered(platform):
        return program().trace(1.0).lower(lowering_platforms=(platform,)).as_text()

    assert float(program()(0.0)) == 0.0
    assert "cos" not in str(jax.make_jaxpr(program())(0.0))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert float(program()(0.0)) == 0.0
    assert "cosine" in lowered("cuda")
    assert "sine" not in lowered("cuda").replace("cosine", "")
    assert "cosine" not in lowered("cpu")


@pytest.mark.long
def test_one_by_one_is_the_function_itself():
    solve = one_by_one(lambda matrix, right: jnp.linalg.solve(matrix, right))
    matrices = jnp.eye(3) * jnp.arange(1.0, 9).reshape(2, 4, 1, 1)
    right = jnp.arange(3.0)
    expected = right / jnp.arange(1.0, 9).reshape(2, 4, 1)
    np.testing.assert_allclose(solve(matrices[0, 0], right), expected[0, 0])
    # Over some arguments, within another, and with the order turned.
    np.testing.assert_allclose(jax.vmap(jax.vmap(solve, (0, None)), (0, None))(matrices, right), expected)
    turned = jax.vmap(jax.vmap(lambda m, r: solve(m, r), (0, None)), (1, None))(matrices, right)
    np.testing.assert_allclose(turned, expected.swapaxes(0, 1))
    text = jax.jit(jax.vmap(solve, (0, None))).lower(matrices[0], right).as_text()
    assert "while" in text


def explicit():
    """A mesh of one device: types are checked there as on any other one."""
    mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Explicit,))
    return lambda values: jax.device_put(values, NamedSharding(mesh, PartitionSpec("x")))


@pytest.mark.full
def test_the_slope_in_an_epsilon_that_no_device_has():
    slope = jax.grad(lambda epsilon, counts: rrjax.mle_star(counts, epsilon) @ jnp.asarray(meshes.SHARES[0], float))
    found = jax.jit(jax.vmap(lambda counts: slope(1.5, counts)))(explicit()(meshes.COUNTS))
    expected = jax.vmap(lambda counts: slope(1.5, counts))(meshes.COUNTS)
    np.testing.assert_allclose(found, expected, rtol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("loss", [models.rr_loss, models.backward_loss])
@pytest.mark.parametrize("size", [5, 64, 300])
def test_losses_whose_examples_or_categories_are_spread(loss, size):
    logits = np.random.default_rng(0).normal(size=(3, size)).astype(np.float32)
    reports, place = np.arange(3), explicit()
    expected = loss(logits, reports, 1.5)
    np.testing.assert_allclose(
        jax.jit(lambda x, r: loss(x, r, 1.5))(place(logits), place(reports)), expected, rtol=1e-5
    )
    each = jax.jit(jax.vmap(lambda x, r: loss(x, r, 1.5)))(place(logits), place(reports))
    np.testing.assert_allclose(each, expected, rtol=1e-5)
    of_one = place(logits[0])
    assert jax.typeof(of_one).sharding.spec[0] == "x"
    np.testing.assert_allclose(loss(of_one, 0, 1.5), expected[0], rtol=1e-5)


@pytest.mark.full
def test_values_of_categories_that_are_spread():
    place, values = explicit(), np.arange(8.0, dtype=np.float32)
    expected = inference.linear_functional(meshes.COUNTS[0], 1.5, values=values)
    found = inference.linear_functional(meshes.COUNTS[0], 1.5, values=place(values))
    of_both = inference.linear_functional(place(meshes.COUNTS[0]), 1.5, values=place(values))
    np.testing.assert_allclose([found, of_both], [expected, expected], rtol=1e-5)


@pytest.mark.full
def test_the_delta_method_of_a_mixture_on_each_device():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(AxisType.Auto,))

    def error(counts):
        return models.delta_method(lambda t: t[:1], rrjax.Mixture(counts, 1.0, Scaling(3.0, 8))).standard_error

    split = jax.shard_map(error, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec())
    batch = jax.shard_map(jax.vmap(error), mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"))
    counts = meshes.COUNTS[0]
    np.testing.assert_allclose(jax.jit(split)(counts), error(counts), rtol=1e-5)
    np.testing.assert_allclose(jax.jit(batch)(counts[None])[0], error(counts), rtol=1e-5)


def test_what_cannot_be_spread_says_so():
    place = explicit()
    keys, counts = place(jax.random.split(jax.random.key(0), 4)), place(meshes.COUNTS)
    draw = jax.vmap(lambda key, counts: inference.posterior(key, counts, 1.5, num_draws=4, num_warmup=1).mean)
    with pytest.raises(NotImplementedError) as error:
        jax.jit(draw).trace(keys, counts)
    assert "posterior" in str(error.value)
    assert "shard_map" in str(error.value)


@pytest.mark.full
@pytest.mark.parametrize(
    "law",
    [
        RandomizedResponse(4, 1.5),
        SubsetSelection(4, 1.5, subset_size=2),
        Channel([[0.75, 0.25], [0.25, 0.75]]),
        SquareWave(4, 1.5),
    ],
)
def test_reports_of_users_that_are_spread(law):
    place, values = explicit(), np.arange(8) % 2
    reports = np.asarray(law.randomize(jax.random.key(0), values))
    theta = np.full(law.num_categories, 1 / law.num_categories)

    def loss(reports):
        return rrjax.nll(theta, law.mixture(reports))

    expected = loss(reports)
    np.testing.assert_allclose([loss(place(reports)), jax.jit(loss)(place(reports))], expected, rtol=1e-5)


@pytest.mark.long
def test_counts_of_users_or_categories_that_are_spread():
    place, reports, weights = explicit(), np.arange(8) % 3, np.arange(1.0, 9, dtype=np.float32)
    for function, given in (
        (lambda reports: rrjax.count(reports, 3), (reports,)),
        (lambda counts: surveys.groups.inv(counts, jnp.ones(4)), (meshes.COUNTS,)),
        (lambda prior: models.rr_with_prior(prior, 1.5).num_candidates, (weights / 36,)),
    ):
        found = jax.jit(function)(*map(place, given))
        np.testing.assert_allclose(found, function(*given), rtol=1e-5)


@pytest.mark.long
def test_a_regression_of_users_that_are_spread():
    place, reports = explicit(), np.arange(64) % 2
    ages = np.random.default_rng(0).normal(size=(64, 1)).astype(np.float32)

    def fitted(ages, reports):
        return models.fit(ages, reports, 3.0, num_categories=2, ridge=0.1).coefficients

    np.testing.assert_allclose(jax.jit(fitted)(place(ages), place(reports)), fitted(ages, reports), rtol=1e-3)
