"""The unit of work: a tile of collections, simulated, estimated and measured in one compiled program.

Every tile of one K (of one mechanism) has the same shape, the last one padded, and is computed by the same loop body
whatever the number of tiles, batches or devices around it. XLA's results depend on shapes in their last bits; so the
tile's must not vary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from rrjax import simulate
from rrjax.data.arguments import float_dtype
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import METRICS, takes_key
from rrjax.mechanisms import Mechanism, MechanismFactory
from rrjax.mechanisms.mechanism import CELLS
from rrjax.simulate.sampling import Stream
from rrjax.study.designs import chosen_by, made
from rrjax.study.grid import Grid
from rrjax.study.identity import identity_of

# Collections × categories that a tile holds: enough to fill vector units and caches, or a GPU.
_CELLS = {"cpu": 2**18}
_CELLS_ELSEWHERE = 2**23
# Of mechanisms that simulate single users: a mechanism takes so many at a time, and a tile so many of its cells.
_USERS = 2**12
_USERS_AND_CELLS = 2**6


@dataclasses.dataclass(frozen=True)
class Shape:
    """What is fixed about the tiles of one K, of one mechanism."""

    num_categories: int
    num_configurations: int
    configurations: int
    """In a tile."""
    seeds: int
    """In a tile, of each of its configurations."""
    parts: int
    """Tiles that the seeds of a configuration are spread over."""
    mechanism: str | None = None
    """Its label, where the study has mechanisms."""
    known_epsilon: float | None = None
    """That its parameters are chosen by, where it has to be known."""
    drawn: int = 0
    """Seeds of a tile that are drawn at a time, where the study has mechanisms."""

    @classmethod
    def of(cls, study: Grid, num_categories: int, platform: str, mechanism: str | None = None) -> Shape:
        """The shape for a study; it depends on nothing that may vary between runs of it on one kind of device."""
        cells = _CELLS.get(platform, _CELLS_ELSEWHERE)
        number = len(study.configurations(num_categories, mechanism))
        parts = -(-study.num_seeds // max(1, min(cells // num_categories, study.num_seeds)))
        seeds = -(-study.num_seeds // parts)
        # On a CPU, common rates and true branches are worth more than width.
        configurations = 1 if platform == "cpu" else max(1, min(cells // (num_categories * seeds), number))
        if mechanism is None:
            return cls(num_categories, number, configurations, seeds, parts)
        # A mechanism may look at all categories of each of its users.
        most = max(1, cells * _USERS_AND_CELLS // (min(_USERS * num_categories, CELLS) * configurations))
        drawn = -(-seeds // -(-seeds // most))
        known = chosen_by(mechanism, _designs(study)[mechanism], num_categories, study.epsilon)
        return cls(num_categories, number, configurations, seeds, parts, mechanism, known, drawn)

    @property
    def num_tiles(self) -> int:
        """Of this K in all: the parts of its first configurations, then those of the next."""
        return -(-self.num_configurations // self.configurations) * self.parts


class Inputs(NamedTuple):
    """Tiles to compute, `[tiles]` and `[tiles, configurations]`."""

    first_seed: np.ndarray
    words: np.ndarray
    population: np.ndarray
    num_users: np.ndarray
    epsilon: np.ndarray

    @classmethod
    def of(cls, study: Grid, shape: Shape, seed: int, tiles: np.ndarray) -> Inputs:
        """The tiles of these numbers."""
        configurations = study.configurations(shape.num_categories, shape.mechanism)
        populations = list(study.populations)
        block, part = np.divmod(tiles, shape.parts)
        rows = block[:, None] * shape.configurations + np.arange(shape.configurations)
        rows = np.minimum(rows, len(configurations) - 1)

        def table(value, dtype):
            return np.array([value(configuration) for configuration in configurations], dtype)[rows]

        return cls(
            (part * shape.seeds).astype(np.uint32),
            table(lambda c: c.words(seed), np.uint32),
            table(lambda c: populations.index(c.population), np.int32),
            table(lambda c: c.num_users, np.int32),
            table(lambda c: c.epsilon, float_dtype()),
        )


class Outputs(NamedTuple):
    """What tiles bring; all arrays have a leading axis of tiles."""

    measures: Any
    """`[configurations, seeds, estimators, metrics]`"""
    errors: Any
    """Sums of the errors over the seeds, `[configurations, estimators, K]`; K = 0 where nobody asked."""
    finite: Any
    """Whether estimates are finite, `[configurations, seeds, estimators]`."""


def identity(study: Grid, shape: Shape) -> tuple[Any, ...]:
    """What a compiled program depends on, but for its devices and the sizes of its arguments."""
    # The functions themselves, by id because not all can be hashed, and what they hold, which may change.
    functions = [(label, id(f), identity_of(f)) for label, f in (*study.estimators.items(), *study.metrics.items())]
    sizes = study.num_seeds, shape.num_categories, shape.configurations, shape.seeds
    common = tuple(functions), len(study.estimators), study.estimand, study.users is None, sizes
    if shape.mechanism is None:
        return common
    design = _designs(study)[shape.mechanism]
    return *common, id(design), identity_of(design, classes=True), shape.known_epsilon, shape.drawn


def _designs(study: Grid) -> Mapping[str, MechanismFactory]:
    assert study.mechanism is not None
    return study.mechanism


def mechanism_at(study: Grid, shape: Shape, epsilon: Array) -> Mechanism:
    """The mechanism of a shape, which has one, at a traced ε."""
    assert shape.mechanism is not None
    return made(_designs(study)[shape.mechanism], shape.num_categories, epsilon, shape.known_epsilon)


def decomposes(study: Grid) -> bool:
    """Whether the study needs the errors category by category."""
    return not {"bias2", "variance"}.isdisjoint(study.metrics)


def measured(study: Grid) -> list[str]:
    """The metrics that single seeds have. The squared error is among them where the decomposition needs it."""
    names = [name for name in study.metrics if name not in ("bias2", "variance")]
    return names if not decomposes(study) or "mse" in names else [*names, "mse"]


def measures_of(study: Grid) -> list[Callable[..., Any]]:
    """The functions `f(estimate, truth, counts, epsilon)` of those metrics."""

    def own(function):
        return lambda estimate, truth, counts, epsilon: function(estimate, truth)

    known = {name: metric.measure for name, metric in METRICS.items() if metric.measure is not None}
    return [known.get(name) or own(study.metrics[name]) for name in measured(study)]


def program(study: Grid, shape: Shape, mesh: Mesh) -> Any:
    """The jitted function `(number, populations, inputs) -> outputs` of a batch of tiles, spread over the devices.

    `number` `[devices]` says how many of a device's tiles are to be computed; `populations` is `[_, K]`.
    """
    compute = jax.jit(_tile(study, shape))  # so that it is traced once, though used twice

    def on_device(number, populations, inputs):
        outputs = jax.eval_shape(compute, populations, jax.tree.map(lambda x: x[0], inputs))
        size = inputs.first_seed.shape[0]
        empty = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), outputs)

        def body(index, results):
            result = compute(populations, jax.tree.map(lambda x: x[index], inputs))
            return jax.tree.map(lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, index, 0), results, result)

        # The number of turns is not known to the compiler, which therefore cannot unroll the loop into another program.
        return lax.fori_loop(0, number[0], body, empty)

    split = PartitionSpec("devices")
    sharded = jax.shard_map(
        on_device, mesh=mesh, in_specs=(split, PartitionSpec(), split), out_specs=split, check_vma=False
    )
    return jax.jit(sharded)


def draw(
    study: Grid,
    words: Array,
    seed: Array,
    population: Array,
    num_users: Array,
    epsilon: Array,
    mechanism: Mechanism | None = None,
) -> tuple[Array, Array | Tally, Array]:
    """Draws collection number `seed` of the configuration that `words` stand for: truth, counts, and a key to spare.

    Of a mechanism it is a tally: of users who are drawn first, by words of their own.
    """
    stream = Stream(words[0], words[1])
    key, spare = (_key(stream, seed, site) for site in (0, 1))
    if mechanism is not None:
        users = population if study.users is not None else simulate.true_counts(key, population, num_users)
        tally = mechanism.collect(_key(Stream(words[2], words[3]), seed, 0), users)
        return population if study.estimand == "distribution" else _shares(users, num_users), tally, spare
    if study.estimand == "distribution":
        return population, simulate.counts(key, population, num_users, epsilon), spare
    if study.users is None:
        true_counts, counts = simulate.collect(key, population, num_users, epsilon)
    else:
        true_counts, counts = population, simulate.randomized(key, population, epsilon)
    return _shares(true_counts, num_users), counts, spare


def _key(stream, seed, site):
    return jax.random.wrap_key_data(jnp.stack(stream.pair(seed, site)), impl="threefry2x32")


def _shares(true_counts, num_users):
    dtype = float_dtype()
    return true_counts.astype(dtype) / num_users.astype(dtype)


def _in_turns(function: Callable[[Array], Any], size: int, seeds: Array) -> Any:
    """`function` of all seeds, `size` at a time."""
    number = seeds.shape[0]
    if size >= number:
        return jax.vmap(function)(seeds)
    blocks = -(-number // size)
    padded = seeds[0] + jnp.arange(blocks * size, dtype=seeds.dtype)
    results = lax.map(jax.vmap(function), padded.reshape(blocks, size))
    return jax.tree.map(lambda leaf: leaf.reshape(blocks * size, *leaf.shape[2:])[:number], results)


def _tile(study: Grid, shape: Shape):
    estimators = study.estimators
    measures = measures_of(study)
    dtype = float_dtype()
    keep_errors = decomposes(study)
    each = 0 if study.estimand == "users" and study.users is None else None  # whether every seed has a truth of its own
    alike: Any = 0 if study.mechanism is None else Tally(0, 0, rates=None)  # collections but for their rates

    def estimated(counts, key, epsilon):
        given = [
            (key, counts, epsilon) if takes_key(estimator) else (counts, epsilon) for estimator in estimators.values()
        ]
        return [f(*arguments).astype(dtype) for f, arguments in zip(estimators.values(), given, strict=True)]

    def collected(words, seed, population, num_users, epsilon):
        truth, counts, key = draw(study, words, seed, population, num_users, epsilon)
        return truth, counts, estimated(counts, key, epsilon)

    def tallied(words, seeds, population, num_users, epsilon):
        mechanism = mechanism_at(study, shape, epsilon)
        truth, tally, keys = _in_turns(
            lambda seed: draw(study, words, seed, population, num_users, epsilon, mechanism), shape.drawn, seeds
        )
        tally = Tally(tally.support, tally.num_users, rates=mechanism.rates)  # which are the same for all
        return truth if each == 0 else truth[0], tally, jax.vmap(estimated, (alike, 0, None))(tally, keys, None)

    def measured(theta, truth, counts, epsilon):
        values = [jnp.asarray(measure(theta, truth, counts, epsilon), dtype) for measure in measures]
        errors = theta - truth if keep_errors else theta[:0]
        return jnp.stack(values) if values else theta[:0], errors, jnp.all(jnp.isfinite(theta))

    def configuration(first_seed, words, population, num_users, epsilon):
        seeds = first_seed + jnp.arange(shape.seeds, dtype=jnp.uint32)
        if study.mechanism is None:
            all_seeds = jax.vmap(collected, (None, 0, None, None, None), (each, 0, 0))
            truth, counts, estimates = all_seeds(words, seeds, population, num_users, epsilon)
        else:
            truth, counts, estimates = tallied(words, seeds, population, num_users, epsilon)
            epsilon = None  # a tally knows its rates
        real = seeds < study.num_seeds

        def of_estimator(theta):
            values, errors, finite = jax.vmap(measured, (0, each, alike, None))(theta, truth, counts, epsilon)
            return values, jnp.sum(jnp.where(real[:, None], errors, 0), axis=0), finite | ~real

        # One copy of the metrics to compile, not one for each estimator; what they share is computed once.
        values, errors, finite = lax.map(of_estimator, jnp.stack(estimates))
        return Outputs(jnp.moveaxis(values, 0, 1), errors, finite.T)

    def tile(populations, inputs):
        if shape.configurations == 1:  # not batched, so that branches stay branches
            words, index, num_users, epsilon = (x[0] for x in inputs[1:])
            result = configuration(inputs.first_seed, words, populations[index], num_users, epsilon)
            return jax.tree.map(lambda leaf: leaf[None], result)
        return jax.vmap(configuration, (None, 0, 0, 0, 0))(
            inputs.first_seed, inputs.words, populations[inputs.population], inputs.num_users, inputs.epsilon
        )

    return tile
