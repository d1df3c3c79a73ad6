"""The unit of work: a tile of collections, simulated, estimated and measured in one compiled program.

Every tile of one K has the same shape, the last one padded, and is computed by the same loop body whatever the number
of tiles, batches or devices around it. XLA's results depend on shapes in their last bits; so the tile's must not vary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from rrjax import simulate
from rrjax.arguments import float_dtype
from rrjax.catalogue import METRICS, takes_key
from rrjax.sampling import Stream
from rrjax.study.errors import StudyError
from rrjax.study.grid import Grid
from rrjax.study.identity import identity_of

# Collections × categories that a tile holds: enough to fill vector units and caches, or a GPU.
_CELLS = {"cpu": 2**18}
_CELLS_ELSEWHERE = 2**23


@dataclasses.dataclass(frozen=True)
class Shape:
    """What is fixed about the tiles of one K."""

    num_categories: int
    num_configurations: int
    configurations: int
    """In a tile."""
    seeds: int
    """In a tile, of each of its configurations."""
    parts: int
    """Tiles that the seeds of a configuration are spread over."""

    @classmethod
    def of(cls, study: Grid, num_categories: int, platform: str) -> Shape:
        """The shape for a study; it depends on nothing that may vary between runs of it on one kind of device."""
        cells = _CELLS.get(platform, _CELLS_ELSEWHERE)
        number = len(study.configurations(num_categories))
        parts = -(-study.num_seeds // max(1, min(cells // num_categories, study.num_seeds)))
        seeds = -(-study.num_seeds // parts)
        # On a CPU, common rates and true branches are worth more than width.
        configurations = 1 if platform == "cpu" else max(1, min(cells // (num_categories * seeds), number))
        return cls(num_categories, number, configurations, seeds, parts)

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
        configurations = study.configurations(shape.num_categories)
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
    return tuple(functions), len(study.estimators), study.estimand, study.users is None, sizes


def decomposes(study: Grid) -> bool:
    """Whether the study needs the errors category by category."""
    return not {"bias2", "variance"}.isdisjoint(study.metrics)


def measured(study: Grid) -> list[str]:
    """The metrics that single seeds have. The squared error is among them where the decomposition needs it."""
    names = [name for name in study.metrics if name not in ("bias2", "variance")]
    return names if not decomposes(study) or "mse" in names else [*names, "mse"]


def _measures(study: Grid) -> list[Callable[..., Any]]:
    def own(function):
        return lambda estimate, truth, counts, epsilon: function(estimate, truth)

    known = {name: metric.measure for name, metric in METRICS.items() if metric.measure is not None}
    return [known.get(name) or own(study.metrics[name]) for name in measured(study)]


def check_functions(study: Grid, num_categories: int) -> None:
    """Traces estimators and metrics of the user on abstract values: what fails, fails before any work is done."""
    counts = jax.ShapeDtypeStruct((num_categories,), jnp.int32)
    epsilon = jax.ShapeDtypeStruct((), float_dtype())
    theta = jax.ShapeDtypeStruct((num_categories,), float_dtype())
    estimators = study.estimators
    for label, estimator in estimators.items():
        given = [jax.random.key(0), counts, epsilon] if takes_key(estimator) else [counts, epsilon]
        try:
            shape = jax.eval_shape(estimator, *given)
        except Exception as error:
            hint = ""
            if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
                hint = " It must be made of jax.numpy, and choose by jnp.where instead of if"
            raise StudyError(
                f"estimator {label!r} failed on counts [{num_categories}] under jax.jit: "
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{hint}"
            ) from error
        found = getattr(shape, "shape", None)
        if found != (num_categories,) or not jnp.issubdtype(shape.dtype, jnp.floating):
            what = f"shape {found} of {shape.dtype}" if found is not None else f"a {type(shape).__name__}"
            raise StudyError(
                f"estimator {label!r} must return the estimate, floats of shape ({num_categories},), for counts of "
                f"that shape; it returned {what}"
            )
    for label, measure in zip(measured(study), _measures(study), strict=True):
        try:
            shape = jax.eval_shape(measure, theta, theta, counts, epsilon)
        except Exception as error:
            raise StudyError(f"metric {label!r} failed under jax.jit: {type(error).__name__}: {error}") from error
        if getattr(shape, "shape", None) != ():
            found = getattr(shape, "shape", None)
            what = f"a {type(shape).__name__}" if found is None else f"an array of shape {found}"
            raise StudyError(f"metric {label!r} must return a scalar, it returned {what}")


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
    study: Grid, words: Array, seed: Array, population: Array, num_users: Array, epsilon: Array
) -> tuple[Array, Array, Array]:
    """Draws collection number `seed` of the configuration that `words` stand for: truth, counts, and a key to spare."""
    stream = Stream(words[0], words[1])
    key, spare = (jax.random.wrap_key_data(jnp.stack(stream.pair(seed, site)), impl="threefry2x32") for site in (0, 1))
    if study.estimand == "distribution":
        return population, simulate.counts(key, population, num_users, epsilon), spare
    if study.users is None:
        true_counts, counts = simulate.collect(key, population, num_users, epsilon)
    else:
        true_counts, counts = population, simulate.randomized(key, population, epsilon)
    dtype = float_dtype()
    return true_counts.astype(dtype) / num_users.astype(dtype), counts, spare


def _tile(study: Grid, shape: Shape):
    estimators = study.estimators
    measures = _measures(study)
    dtype = float_dtype()
    keep_errors = decomposes(study)
    each = 0 if study.estimand == "users" and study.users is None else None  # whether every seed has a truth of its own

    def estimated(words, seed, population, num_users, epsilon):
        truth, counts, key = draw(study, words, seed, population, num_users, epsilon)
        given = [
            (key, counts, epsilon) if takes_key(estimator) else (counts, epsilon) for estimator in estimators.values()
        ]
        estimates = [f(*arguments).astype(dtype) for f, arguments in zip(estimators.values(), given, strict=True)]
        return truth, counts, estimates

    def measured(theta, truth, counts, epsilon):
        values = [jnp.asarray(measure(theta, truth, counts, epsilon), dtype) for measure in measures]
        errors = theta - truth if keep_errors else theta[:0]
        return jnp.stack(values) if values else theta[:0], errors, jnp.all(jnp.isfinite(theta))

    def configuration(first_seed, words, population, num_users, epsilon):
        seeds = first_seed + jnp.arange(shape.seeds, dtype=jnp.uint32)
        truth, counts, estimates = jax.vmap(estimated, (None, 0, None, None, None), (each, 0, 0))(
            words, seeds, population, num_users, epsilon
        )
        real = seeds < study.num_seeds

        def of_estimator(theta):
            values, errors, finite = jax.vmap(measured, (0, each, 0, None))(theta, truth, counts, epsilon)
            return values, jnp.sum(jnp.where(real[:, None], errors, 0), axis=0), finite | ~real

        # In turns: one copy of the metrics to compile, not one for each estimator.
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
