"""One program for all numbers of categories: a tile whose collections lie in rows.

Compilation is half of a short study's time, and a program for each K would have to be compiled. Here K, the number of
collections, of seeds and of configurations are data. It serves studies of k-ary randomized response whose users are
drawn, of estimators and metrics that rows have; all others have a program for each K, with the same collections.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from rrjax.estimators.catalogue import METRICS, estimator_in_rows
from rrjax.estimators.in_rows import Collections, Errors, own_in_rows
from rrjax.numerics.rows import WIDTH, Rows, num_parts
from rrjax.numerics.sharding import by_platform, if_needed, repeat, take_at
from rrjax.simulate.sampling.in_rows import Laws
from rrjax.study.functions import decomposes, metrics_of_seeds
from rrjax.study.identity import identities_of, unlike_others
from rrjax.study.tile import Inputs, Outputs, Point, Shape, cells_of_tile, draw_in_rows

if TYPE_CHECKING:
    from rrjax.study.study import Study

LEAST_COLLECTIONS = 16
"""Fewer in a tile leave the program's lanes empty; then a program for that K alone is faster."""
UNOPTIMIZED_TILES = 2
"""The program compiles a second longer than others, so that it takes this many times their work to pay."""
SEEDS = 8
"""Seeds whose errors are added together, elsewhere than on a CPU."""


class RowInputs(NamedTuple):
    """Tiles to compute, `[tiles]` and `[tiles, configurations]`."""

    each: Inputs
    num_categories: np.ndarray
    configurations: np.ndarray
    """How many of the configurations are in use."""
    seeds: np.ndarray
    """Per configuration."""
    num_seeds: np.ndarray
    """Of the study."""
    of_users: np.ndarray
    """Whether the truth is the histogram of the users."""

    @property
    def first_seed(self) -> np.ndarray:
        """The first seed of each tile."""
        return self.each.first_seed


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What all K of a study have in common: the program depends on nothing else."""

    height: int
    configurations: int
    """Of a tile, at most."""
    error_rows: int
    """Rows of the sums of the errors, at most; none without a decomposition."""
    table_rows: int
    """Rows of all laws of one K, at most."""
    seeds: int
    """Of a configuration of a tile, at most; as the next one, zero on a CPU, where it may depend on the data."""
    parts: int
    """Rows of a collection, at most."""


def shapes_in_rows(study: Study, platform: str) -> dict[int, Shape]:
    """The shapes of the K that one program can serve; none for studies with other functions."""
    if study.mechanism is not None or study.users is not None or any(study.metrics.values()):
        return {}
    known = {name for name, metric in METRICS.items() if metric.measure is None or metric.in_rows is not None}
    if not known.issuperset(study.metrics) or not all(map(estimator_in_rows, study.estimators.values())):
        return {}
    height = height_of_tile(platform)
    shapes = {}
    for size in study.num_categories:
        if LEAST_COLLECTIONS * num_parts(size) <= height:
            number = len(study.configurations(size))
            room = height // num_parts(size)
            parts = -(-study.num_seeds // min(room, study.num_seeds))
            seeds = -(-study.num_seeds // parts)
            shapes[size] = Shape(size, number, min(room // seeds, number), seeds, parts)
    return shapes


def height_of_tile(platform: str) -> int:
    """The number of rows of a tile."""
    return cells_of_tile(platform) // WIDTH


def sizes_of(study: Study, shapes: Iterable[Shape], platform: str) -> Sizes:
    """The sizes of the program for these shapes; powers of two, so that other studies may have the same program."""
    shapes = list(shapes)

    def largest(number):
        # Without an axis of length one XLA may round differently.
        return 1 << max(1, (max(map(number, shapes)) - 1).bit_length())

    return Sizes(
        height_of_tile(platform),
        largest(lambda shape: shape.configurations),
        largest(lambda shape: shape.configurations * num_parts(shape.num_categories)) if decomposes(study) else 0,
        largest(lambda shape: len(study.populations) * num_parts(shape.num_categories)),
        0 if platform == "cpu" else largest(lambda shape: shape.seeds),
        0 if platform == "cpu" else largest(lambda shape: num_parts(shape.num_categories)),
    )


@dataclasses.dataclass(frozen=True)
class RowTile:
    """The tiles of one K, computed by the program of all K."""

    study: Study
    shape: Shape
    sizes: Sizes

    @property
    def cells(self) -> int:
        """Cells of a tile, used or not."""
        return self.sizes.height * WIDTH

    def identity(self) -> tuple[Any, ...]:
        """All settings that determine the program, except its devices and the sizes of its arguments."""
        functions = identities_of(self.study, (), arguments=("estimators",), height=self.sizes.height)
        names, metrics = tuple(functions["estimators"].values()), tuple(metrics_of_seeds(self.study))
        return "study in rows", names, metrics, dataclasses.astuple(self.sizes), unlike_others(functions)

    def kept_identity(self) -> tuple[Any, ...] | None:
        """The same for other processes; None if functions are not of rrjax."""
        return None if any(map(own_in_rows, self._functions)) else self.identity()

    @property
    def _functions(self) -> Collection[Any]:
        return self.study.estimators.values()

    def tables(self) -> Laws:
        """The arrays that all tiles of this K share: the laws."""
        study, size = self.study, self.shape.num_categories
        laws = Laws.of(np.stack([study.shares(name, size) for name in study.populations]))
        rows = self.sizes.table_rows
        return Laws(*(np.resize(each, (rows, WIDTH) if each.ndim == 2 else rows * WIDTH) for each in laws))

    def inputs(self, seed: int, tiles: np.ndarray) -> RowInputs:
        """The inputs of the tiles with these numbers."""
        each, shape = Inputs.of(self.study, self.shape, seed, tiles), self.shape
        places = np.minimum(np.arange(self.sizes.configurations), shape.configurations - 1)
        filled = [field if field.ndim == 1 else field[:, places] for field in each]

        def of_all(value: Any, dtype: Any = np.int32) -> np.ndarray:
            return np.full(len(tiles), value, dtype)

        return RowInputs(
            Inputs(*filled),
            of_all(shape.num_categories),
            of_all(shape.configurations),
            of_all(shape.seeds),
            of_all(self.study.num_seeds, np.uint32),
            of_all(self.study.estimand == "users", bool),
        )

    def outputs(self, raw: Outputs) -> Outputs:
        """The results of tiles, from those of the program."""
        shape, number = self.shape, len(raw.measures)
        collections = shape.configurations * shape.seeds
        parts = num_parts(shape.num_categories)

        def split(array):
            return array[:, :collections].reshape(number, shape.configurations, shape.seeds, *array.shape[2:])

        errors = np.zeros((number, shape.configurations, len(self.study.estimators), 0), raw.errors.dtype)
        if decomposes(self.study):
            errors = raw.errors[:, :, : parts * shape.configurations]
            errors = errors.reshape(number, -1, parts, shape.configurations, WIDTH).transpose(0, 3, 1, 2, 4)
            errors = errors.reshape(number, shape.configurations, -1, parts * WIDTH)[..., : shape.num_categories]
        return Outputs(split(raw.measures), errors, split(raw.finite))

    def function(self) -> Callable[[Laws, RowInputs], Outputs]:
        """The function of the tables and the inputs of one tile."""
        estimators = [each for each in map(estimator_in_rows, self.study.estimators.values()) if each]
        names = metrics_of_seeds(self.study)
        metrics = [metric for metric in (METRICS[name].in_rows for name in names) if metric]
        sizes = self.sizes

        def of_tile(laws, inputs):
            points = Point(inputs.each.words, inputs.each.population, inputs.each.num_users, inputs.each.epsilon)
            rows = Rows(sizes.height, inputs.num_categories, inputs.configurations * inputs.seeds, sizes.parts)
            collection = jnp.arange(sizes.height, dtype=jnp.int32)
            at = jnp.minimum(collection // inputs.seeds, inputs.configurations - 1)
            seeds = inputs.first_seed + (collection % inputs.seeds).astype(jnp.uint32)
            truth, counts = draw_in_rows(rows, laws, points, seeds, at, inputs.of_users)
            given = Collections.of(rows, counts, take_at(points.num_users, at), take_at(points.epsilon, at))
            real = seeds < inputs.num_seeds

            def of_estimator(theta):
                errors = Errors(given, theta, truth)
                values = jnp.stack([metric(errors) for metric in metrics], axis=-1) if metrics else theta[:, :0]
                sums = _over_seeds(errors.difference, inputs, sizes)
                squared = values[..., names.index("mse")] if "mse" in names else None
                return values, sums, _finite(rows, theta, squared) | ~real

            # `map` compiles the metrics once, not once for each estimator.
            values, errors, finite = lax.map(of_estimator, jnp.stack([estimate(given) for estimate in estimators]))
            return Outputs(jnp.moveaxis(values, 0, 1), errors, finite.T)

        return of_tile


def _finite(rows, theta, squared_error):
    """Whether all shares of each collection are finite; where the squared error is, they are."""

    def looked_at():
        (nothing,) = rows.sum(theta * 0)  # NaN if one is not finite
        return nothing == 0

    if squared_error is None:
        return looked_at()
    finite = jnp.isfinite(squared_error)
    return if_needed(~jnp.all(finite), looked_at, finite)


def _over_seeds(errors, inputs, sizes):
    """Sums over the seeds of each configuration, `[number, W]`: row r·F + f holds part r of configuration f."""
    number, dtype = sizes.error_rows, errors.dtype
    # Row r·F·S + f·S + s of the errors is of seed s.
    first = jnp.arange(number, dtype=jnp.int32) * inputs.seeds
    seeds = jnp.minimum(inputs.seeds, inputs.num_seeds.astype(jnp.int32) - inputs.first_seed.astype(jnp.int32))

    def of_seeds(seed):
        place = jnp.minimum(first + seed, errors.shape[0] - 1)
        return errors.at[place].get(mode="promise_in_bounds")

    def add_some(turn, sums):
        some = turn * SEEDS + jnp.arange(SEEDS, dtype=jnp.int32)[:, None]
        return sums + jnp.sum(jnp.where((some < seeds)[..., None], of_seeds(some), 0), axis=0)

    def one_by_one():
        return repeat(seeds, lambda seed, sums: sums + of_seeds(seed), jnp.zeros((number, WIDTH), dtype))

    def in_turns():  # of a fixed number, as the host would wait for one that is data
        return lax.fori_loop(0, -(-sizes.seeds // SEEDS), add_some, jnp.zeros((number, WIDTH), dtype))

    return by_platform(cpu=one_by_one, elsewhere=in_turns)
