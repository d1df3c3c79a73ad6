"""The unit of work: a tile of collections, simulated, estimated and measured in one compiled program.

Every tile of one K (of one mechanism) has the same shape, the last one padded, and is computed by the same loop body
whatever the number of tiles, batches or devices around it. XLA's results depend on shapes in their last bits; so the
tile's must not vary.

This program is for one K and any functions. `row_tile` has the one for all K, of estimators that know rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, UInt

from rrjax import simulate
from rrjax.data.arguments import Estimand, float_dtype
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import ESTIMATORS
from rrjax.mechanisms import MECHANISMS, MechanismFactory
from rrjax.mechanisms.mechanism import CELLS
from rrjax.numerics.rows import Rows, num_parts
from rrjax.numerics.sharding import take_at
from rrjax.numerics.sums import expm1_epsilon
from rrjax.simulate.sampling import Stream
from rrjax.simulate.sampling.in_rows import TOGETHER, Laws, Users, collect_in_rows
from rrjax.study.arguments import Configuration
from rrjax.study.functions import KIND_OF_KEYS, build_mechanism, decomposes, known_epsilon, measures_of
from rrjax.study.identity import identities_of, unlike_others
from rrjax.study.mechanisms import Collecting, JointCounts, estimate, of_seeds

if TYPE_CHECKING:
    from rrjax.study.study import Study

# Collections × categories that a tile holds: enough to fill vector units and caches, or a GPU.
_CELLS = {"cpu": 2**18}
_CELLS_ELSEWHERE = 2**23
# Mechanisms that simulate single users: users at a time, and (user, category) pairs of a tile for each of its cells.
_USERS = 2**12
_PAIRS_PER_CELL = 2**6


def cells_of_tile(platform: str) -> int:
    """Collections × categories that a tile holds at most, unless one collection is larger."""
    return _CELLS.get(platform, _CELLS_ELSEWHERE)


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape of all tiles of one K and one mechanism."""

    num_categories: int
    num_configurations: int
    configurations: int
    """Per tile."""
    seeds: int
    """Per configuration of a tile."""
    parts: int
    """Tiles per configuration, over which its seeds are spread."""
    mechanism: str | None = None
    """Its label, where the study has mechanisms."""
    known_epsilon: float | None = None
    """Chooses the mechanism's parameters, where a traced ε cannot."""
    drawn: int = 0
    """Seeds drawn at a time, where the study has mechanisms."""

    @classmethod
    def of(cls, study: Study, num_categories: int, platform: str, mechanism: str | None = None) -> Shape:
        """The shape for a study; it is the same in all its runs on one kind of device."""
        cells = cells_of_tile(platform)
        number = len(study.configurations(num_categories, mechanism))
        parts = -(-study.num_seeds // max(1, min(cells // num_categories, study.num_seeds)))
        seeds = -(-study.num_seeds // parts)
        # On a CPU, one configuration a tile: shared rates and real branches save more than wide tiles.
        configurations = 1 if platform == "cpu" else max(1, min(cells // (num_categories * seeds), number))
        if mechanism is None:
            return cls(num_categories, number, configurations, seeds, parts)
        # A mechanism may look at all categories of each of its users.
        limit = max(1, cells * _PAIRS_PER_CELL // (min(_USERS * num_categories, CELLS) * configurations))
        drawn = -(-seeds // -(-seeds // limit))
        known = known_epsilon(mechanism, _mechanisms(study)[mechanism], num_categories, study.epsilon)
        return cls(num_categories, number, configurations, seeds, parts, mechanism, known, drawn)

    @property
    def num_tiles(self) -> int:
        """Number of tiles of this K: the parts of its first configurations, then those of the next."""
        return -(-self.num_configurations // self.configurations) * self.parts


class Inputs(NamedTuple):
    """Tiles to compute, `[tiles]` and `[tiles, configurations]`."""

    first_seed: np.ndarray
    words: np.ndarray
    population: np.ndarray
    num_users: np.ndarray
    epsilon: np.ndarray

    @classmethod
    def of(cls, study: Study, shape: Shape, seed: int, tiles: np.ndarray) -> Inputs:
        """The inputs of the tiles with these numbers."""
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
    """Results of tiles; all arrays have a leading axis of tiles."""

    measures: Any
    """`[configurations, seeds, estimators, metrics]`"""
    errors: Any
    """Sums of the errors over the seeds, `[configurations, estimators, K]`; K = 0 without a decomposition."""
    finite: Any
    """Whether estimates are finite, `[configurations, seeds, estimators]`."""


def _mechanisms(study: Study) -> Mapping[str, MechanismFactory]:
    assert study.mechanism is not None
    return study.mechanism


def mechanism_at(study: Study, shape: Shape, epsilon: Array) -> Collecting:
    """The mechanism of a shape, which has one, at a traced ε."""
    assert shape.mechanism is not None
    return build_mechanism(_mechanisms(study)[shape.mechanism], shape.num_categories, epsilon, shape.known_epsilon)


class Point(NamedTuple):
    """The arrays of one configuration, or with a further axis of several."""

    words: Any
    """That seed its random numbers, `[2]` or `[4]`."""
    population: Any
    """`[K]`; where collections are drawn in rows, the number of its law."""
    num_users: Any
    epsilon: Any


def key_of(words: Array, seed: Array, site: int) -> Array:
    """A key of collection number `seed`."""
    return jax.random.wrap_key_data(jnp.stack(Stream(words[0], words[1]).pair(seed, site)), impl=KIND_OF_KEYS)


def shares_of(users: Array, num_users: Array) -> Array:
    """The shares of N users."""
    dtype = float_dtype()
    return users.astype(dtype) / num_users.astype(dtype)


def draw_randomized(point: Point, seed: Array) -> tuple[Array, Array]:
    """Collection number `seed` of given users: the truth and the counts of their reports."""
    counts = simulate.randomized(key_of(point.words, seed, 0), point.population, point.epsilon)
    return shares_of(point.population, point.num_users), counts


def draw_tallied(study: Study, point: Point, seed: Array, mechanism: Collecting) -> tuple[Array, Tally | JointCounts]:
    """Collection number `seed` of a mechanism: the truth and the tally."""
    words, population, num_users, _ = point
    users = population
    if study.users is None:
        users = simulate.true_counts(key_of(words, seed, 0), population, num_users)
    tally = mechanism.collect(key_of(words[2:], seed, 0), users)
    return population if study.estimand == "distribution" else shares_of(users, num_users), tally


def draw_in_rows(
    rows: Rows,
    laws: Laws,
    points: Point,
    seeds: UInt[Array, " R"],
    at: Int[Array, " R"],
    of_users: Bool[Array, ""],
    most: int = TOGETHER,
) -> tuple[Float[Array, "R W"], Int[Array, "R W"]]:
    """The collections of k-ary randomized response whose users are drawn: truths and counts of the reports, in rows.

    The laws have `rows.parts` rows each. Collection number `seeds` is of configuration `at` of the points `[F]`; its
    truth is the histogram of the users, or their distribution. `most` is a small number of collections, where known.
    """
    e1 = expm1_epsilon(points.epsilon)
    size = e1 + rows.length.astype(e1.dtype)
    stream = Stream(*(take_at(points.words[:, each], at) for each in (0, 1)))
    first = take_at(points.population, at) * rows.parts
    number = take_at(points.num_users, at)
    keep, drop = take_at(e1 / size, at), take_at(rows.length.astype(e1.dtype) / size, at)
    users = Users(Stream(*stream.pair(seeds, 0)), first, number, keep, drop)
    true_counts, counts = collect_in_rows(rows, laws, users, most)
    # Not a division of the rows: XLA would multiply them by the reciprocal in some programs, and not in others.
    shares = true_counts.astype(e1.dtype) * rows.spread(1 / number.astype(e1.dtype))
    return jnp.where(of_users, shares, laws.in_rows(rows, first)), counts


def draw_separately(
    laws: Laws, num_categories: int, points: Point, seeds: UInt[Array, " S"], estimand: Estimand
) -> tuple[Float[Array, "F S K"], Int[Array, "F S K"]]:
    """The collections of `draw_in_rows`, for each configuration and seed, as vectors of K."""
    configurations, number = points.epsilon.shape[0], seeds.shape[0]
    total = configurations * number
    height = total * num_parts(num_categories)
    rows = Rows(height, jnp.int32(num_categories), jnp.int32(total), num_parts(num_categories))
    collection = jnp.arange(height, dtype=jnp.int32) % total
    at, seeds = collection // number, take_at(seeds, collection % number)
    collections = draw_in_rows(rows, laws, points, seeds, at, jnp.bool_(estimand == "users"), total)
    truth, counts = (rows.separate(each, total, num_categories) for each in collections)
    shape = configurations, number, num_categories
    return truth.reshape(shape), counts.reshape(shape)


def program(function: Callable[[Any, Any], Any], mesh: Mesh) -> Any:
    """The jitted function `(number, tables, inputs) -> outputs` of a batch of tiles, spread over the devices.

    `number` `[devices]`: the tiles to compute on each device; `function(tables, inputs)` computes one tile.
    """
    compute = jax.jit(function)  # traced once for both uses

    def on_device(number, tables, inputs):
        outputs = jax.eval_shape(compute, tables, jax.tree.map(lambda x: x[0], inputs))
        size = inputs.first_seed.shape[0]
        empty = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), outputs)

        def body(index, results):
            result = compute(tables, jax.tree.map(lambda x: x[index], inputs))
            return jax.tree.map(lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, index, 0), results, result)

        # The compiler does not know the number of iterations, so it cannot unroll the loop into another program.
        return lax.fori_loop(0, number[0], body, empty)

    split = PartitionSpec("devices")
    sharded = jax.shard_map(
        on_device, mesh=mesh, in_specs=(split, PartitionSpec(), split), out_specs=split, check_vma=False
    )
    return jax.jit(sharded)


def draw_again(
    study: Study, configuration: Configuration, seed: int, number: int
) -> tuple[Array, Array | Tally | JointCounts]:
    """One collection, drawn outside of a run: see `Study.collection`."""
    size, users = configuration.num_categories, configuration.num_users
    population = study.shares(configuration.population, size)
    words = np.asarray(configuration.words(seed), np.uint32)
    point = Point(words, population, np.int32(users), np.asarray(configuration.epsilon, float_dtype()))
    if configuration.mechanism is None and study.users is None:
        points = jax.tree.map(lambda each: each[None], point._replace(population=np.int32(0)))
        numbers = np.array([number], np.uint32)
        drawn = _drawn_separately(Laws.of(population[None]), size, points, numbers, study.estimand)
        return drawn[0][0, 0], drawn[1][0, 0]
    point = jax.tree.map(jnp.asarray, point._replace(population=population))
    if configuration.mechanism is None:
        return draw_randomized(point, jnp.uint32(number))
    shape = Shape.of(study, size, jax.default_backend(), configuration.mechanism)
    drawn = identities_of(study, [size], (configuration.mechanism,), ("mechanism",))["mechanism"]
    settings = study.estimand, study.users is None, size, shape.known_epsilon
    identity = *settings, drawn[configuration.mechanism], unlike_others({"mechanism": drawn})
    return _draw_traced(_Program(identity, study, shape), point, jnp.uint32(number))


_drawn_separately = jax.jit(draw_separately, static_argnums=(1, 4))


@dataclasses.dataclass(frozen=True)
class _Program:
    """A static argument of `jax.jit`: equal for studies with the same computation."""

    identity: tuple[Any, ...]
    study: Study = dataclasses.field(compare=False)
    shape: Shape = dataclasses.field(compare=False)


@partial(jax.jit, static_argnums=0)  # ε is traced as in a run: a known one might choose other parameters
def _draw_traced(program, point, seed):
    mechanism = mechanism_at(program.study, program.shape, point.epsilon)
    return draw_tallied(program.study, point, seed, mechanism)


def _in_turns(function: Callable[[Array], Any], size: int, seeds: Array) -> Any:
    """The results of a function for all seeds, `size` at a time."""
    number = seeds.shape[0]
    if size >= number:
        return jax.vmap(function)(seeds)
    blocks = -(-number // size)
    padded = seeds[0] + jnp.arange(blocks * size, dtype=seeds.dtype)
    results = lax.map(jax.vmap(function), padded.reshape(blocks, size))
    return jax.tree.map(lambda leaf: leaf.reshape(blocks * size, *leaf.shape[2:])[:number], results)


@dataclasses.dataclass(frozen=True)
class Tile:
    """The program of one K and mechanism."""

    study: Study
    shape: Shape

    @property
    def cells(self) -> int:
        """Collections × categories that a tile computes."""
        return self.shape.configurations * self.shape.seeds * self.shape.num_categories

    @property
    def in_rows(self) -> bool:
        """Whether collections are drawn in rows, as those of `row_tile` are."""
        return self.study.mechanism is None and self.study.users is None

    def identity(self) -> tuple[Any, ...]:
        """All settings that determine the program, except its devices and the sizes of its arguments."""
        mechanism = () if self.shape.mechanism is None else (self.shape.mechanism,)
        functions = identities_of(self.study, [self.shape.num_categories], mechanism)
        # Labels of mechanisms do not matter, and those of the catalogue's metrics do.
        common = tuple(functions["estimators"].values()), tuple(functions["metrics"].items()), *self._settings
        return *common, *(functions["mechanism"][label] for label in mechanism), unlike_others(functions)

    def kept_identity(self) -> tuple[Any, ...] | None:
        """The same for other processes with the same code of rrjax; None if functions are not of its catalogues.

        The contents of other functions are not known for sure: they may call any package.
        """
        study, mechanism = self.study, self.shape.mechanism
        functions = [(ESTIMATORS.get(label), f) for label, f in study.estimators.items()]
        if any(entry is None or entry.function is not f for entry, f in functions) or any(study.metrics.values()):
            return None
        if mechanism is not None and MECHANISMS.get(mechanism) is not _mechanisms(study)[mechanism]:
            return None
        return "study", tuple(study.estimators), tuple(study.metrics), mechanism, *self._settings

    @property
    def _settings(self) -> tuple[Any, ...]:
        study, shape = self.study, self.shape
        sizes = study.num_seeds, shape.num_categories, shape.configurations, shape.seeds
        return len(study.estimators), study.estimand, study.users is None, *sizes, shape.known_epsilon, shape.drawn

    def tables(self) -> Any:
        """The arrays that all tiles share: the populations."""
        study, size = self.study, self.shape.num_categories
        populations = np.stack([study.shares(name, size) for name in study.populations])
        # Without an axis of length one XLA may round differently.
        populations = np.resize(populations, (max(2, len(populations)), size))
        if study.users is not None:
            return populations.astype(np.int32)
        return Laws.of(populations) if self.in_rows else populations

    def inputs(self, seed: int, tiles: np.ndarray) -> Inputs:
        """The inputs of the tiles with these numbers."""
        return Inputs.of(self.study, self.shape, seed, tiles)

    def outputs(self, raw: Outputs) -> Outputs:
        """The results of tiles, from those of the program."""
        return raw

    def function(self) -> Callable[[Any, Inputs], Outputs]:
        """The function of the tables and the inputs of one tile."""
        return _tile(self)


def _tile(tile: Tile) -> Callable[[Any, Inputs], Outputs]:
    study, shape = tile.study, tile.shape
    estimators = study.estimators
    measures = measures_of(study)
    dtype = float_dtype()
    keep_errors = decomposes(study)
    each = 0 if study.estimand == "users" and study.users is None else None  # the axis of seeds in the truth, if any

    def estimated(counts, key, epsilon):
        return [estimate(estimator, key, counts, epsilon).astype(dtype) for estimator in estimators.values()]

    def spare(point, seed):
        return key_of(point.words, seed, 1)

    def tallied(point, seeds):
        mechanism = mechanism_at(study, shape, point.epsilon)
        truth, tally = _in_turns(lambda seed: draw_tallied(study, point, seed, mechanism), shape.drawn, seeds)
        tally, alike = of_seeds(tally, mechanism)
        keys = jax.vmap(partial(spare, point))(seeds)
        return truth, tally, jax.vmap(estimated, (alike, 0, None))(tally, keys, None), alike

    def counted(point, seeds, drawn):
        truth, counts = jax.vmap(draw_randomized, (None, 0))(point, seeds) if drawn is None else drawn

        def of_seed(seed, counts):
            return estimated(counts, spare(point, seed), point.epsilon)

        return truth, counts, jax.vmap(of_seed)(seeds, counts), 0

    def measured(theta, truth, counts, epsilon):
        values = [jnp.asarray(measure(theta, truth, counts, epsilon), dtype) for measure in measures]
        errors = theta - truth if keep_errors else theta[:0]
        return jnp.stack(values) if values else theta[:0], errors, jnp.all(jnp.isfinite(theta))

    def configuration(first_seed, point, drawn):
        seeds = _seeds(first_seed)
        epsilon = point.epsilon
        if study.mechanism is None:
            truth, counts, estimates, alike = counted(point, seeds, drawn)
        else:
            truth, counts, estimates, alike = tallied(point, seeds)
            epsilon = None  # a tally holds its rates
        truth = truth if each == 0 else truth[0]
        real = seeds < study.num_seeds

        def of_estimator(theta):
            values, errors, finite = jax.vmap(measured, (0, each, alike, None))(theta, truth, counts, epsilon)
            return values, jnp.sum(jnp.where(real[:, None], errors, 0), axis=0), finite | ~real

        # `map` compiles the metrics once, not once for each estimator.
        values, errors, finite = lax.map(of_estimator, jnp.stack(estimates))
        return Outputs(jnp.moveaxis(values, 0, 1), errors, finite.T)

    def _seeds(first_seed):
        return first_seed + jnp.arange(shape.seeds, dtype=jnp.uint32)

    def of_all(tables, inputs):
        points = Point(inputs.words, inputs.population, inputs.num_users, inputs.epsilon)
        drawn = None
        if tile.in_rows:
            drawn = draw_separately(tables, shape.num_categories, points, _seeds(inputs.first_seed), study.estimand)
        else:
            points = points._replace(population=tables[inputs.population])
        if shape.configurations == 1:  # vmap would turn branches into selects
            point, drawn = jax.tree.map(lambda leaf: leaf[0], (points, drawn))
            return jax.tree.map(lambda leaf: leaf[None], configuration(inputs.first_seed, point, drawn))
        return jax.vmap(configuration, (None, 0, 0))(inputs.first_seed, points, drawn)

    return of_all
