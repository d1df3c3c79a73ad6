"""Runs a study: batches of tiles on all devices, kept on disk as they finish, and the labelled dataset of all."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import threading
import time
import warnings
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import rrjax
from rrjax.data.errors import check_installed
from rrjax.estimators.catalogue import METRICS
from rrjax.numerics import programs
from rrjax.numerics.settings import carried, unusual_settings
from rrjax.study import tile
from rrjax.study.arguments import Progress, RunOptions, refusal
from rrjax.study.checkpoint import (
    BatchResult,
    Checkpoint,
    Timing,
    check_agreement,
    from_all_processes,
    name_of_group,
    on_first,
    shared,
)
from rrjax.study.functions import check_functions, check_in_rows, decomposes, metrics_of_seeds
from rrjax.study.row_tile import UNOPTIMIZED_TILES, RowTile, shapes_in_rows, sizes_of
from rrjax.study.tile import Outputs, Shape, Tile

if TYPE_CHECKING:
    import xarray as xr

    from rrjax.study.study import Study

_BATCH = 2**24
"""Collections × categories that a device computes in a batch: about a second on a CPU."""

_MAX_PROGRAMS = 32
_programs: dict[Any, Any] = {}
"""Compiled programs, so that the same study with other seeds or users starts at once."""
_locks: defaultdict[Any, threading.Lock] = defaultdict(threading.Lock)
"""One for each program, while it is compiled."""


class _Run(NamedTuple):
    """Data that all groups of a run share."""

    study: Study
    seed: int
    mesh: Mesh
    batch_size: int | None
    memory: int
    checkpoint: Checkpoint | None
    pool: ThreadPoolExecutor
    """Compiles."""
    device: ThreadPoolExecutor
    """Computes, one batch after the other."""


def run(study: Study, options: RunOptions) -> xr.Dataset:
    """See `Study.run`."""
    check_installed("study", "A study", "xarray")
    begin = time.perf_counter()
    mesh = Mesh(np.array(jax.devices() if options.devices is None else options.devices), ("devices",))
    memory = _memory(mesh) if options.memory is None else int(options.memory)
    check_in_rows(study)
    in_rows = shapes_in_rows(study, mesh.devices.flat[0].platform)  # of functions that are known, or checked now
    for num_categories in set(study.num_categories) - set(in_rows):
        check_functions(study, num_categories)
    _check_results(study, memory)
    description = _description(study, options.seed, mesh.devices.flat[0].platform)
    check_agreement(description | {"batch_size": options.batch_size})
    # Only process 0 needs the folder: no disk has to be shared.
    folder = options.folder
    checkpoint = on_first(lambda: None if folder is None else Checkpoint(folder, description, begin))

    held = nullcontext() if checkpoint is None else closing(checkpoint)
    with held, ThreadPoolExecutor(max_workers=os.cpu_count()) as pool, ThreadPoolExecutor(max_workers=1) as device:
        common = _Run(study, options.seed, mesh, options.batch_size, memory, checkpoint, pool, device)
        groups = [_Group(common, *group) for group in itertools.product(study.labels, study.num_categories)]
        for group in groups:
            group.compile(max(each.length for each in groups), sum(each.total for each in groups))
        total, resumed = sum(group.total for group in groups), sum(group.done for group in groups)

        def report():
            if options.progress is not None:
                seconds = time.perf_counter() - begin
                options.progress(Progress(sum(group.done for group in groups), total, resumed, seconds))

        def batches():
            # The first batch of every group before the second of any: an estimator that fails does so early.
            yield from (group for group in groups if group.has_batches)
            for group in groups:
                while group.has_batches:
                    yield group

        def finish(group, batch):
            group.finish(batch)
            report()

        report()
        try:
            begun: deque[tuple[_Group, _Batch]] = deque()
            for group in batches():
                begun.append((group, group.begin()))
                if len(begun) > _ahead(mesh):
                    finish(*begun.popleft())
            for each in begun:
                finish(*each)
        finally:
            for each in (pool, device):
                each.shutdown(wait=False, cancel_futures=True)
    alone = Timing(round(time.perf_counter() - begin, 3), 1)
    timing = shared(on_first(lambda: alone if checkpoint is None else checkpoint.timing()))
    assert timing is not None
    attributes = description | {"devices": f"{mesh.size} × {mesh.devices.flat[0].device_kind}", **timing._asdict()}
    return dataset(study, [group.result() for group in groups], options, attributes)


def _ahead(mesh: Mesh) -> int:
    """How many batches begin before one is fetched: an accelerator need not wait for the host, a CPU is the host.

    Several processes must begin all they compute together in one order, which two threads do not have.
    """
    return int(mesh.devices.flat[0].platform != "cpu" and jax.process_count() == 1)


def _description(study: Study, seed: int, platform: str) -> dict[str, Any]:
    """All settings that determine the results."""
    return study.describe() | {
        **unusual_settings(),
        "seed": seed,
        "precision": tile.float_dtype().name,
        "platform": platform,
        "rrjax": rrjax.__version__,
        "jax": jax.__version__,
        "jaxlib": importlib.metadata.version("jaxlib"),
    }


def _memory(mesh: Mesh) -> int:
    limits = [int((device.memory_stats() or {}).get("bytes_limit") or 0) for device in mesh.local_devices]
    if mesh.devices.flat[0].platform == "cpu" or not all(limits):
        return 4 * 2**30
    return sum(limits) // 2


def _size_of_results(study: Study) -> int:
    """The size of the results, bytes."""
    return 8 * len(study.configurations()) * study.num_seeds * len(study.estimators) * len(metrics_of_seeds(study))


def _check_results(study: Study, memory: int) -> None:
    """Refuses a grid whose results alone exceed the memory."""
    number, needed = len(study.configurations()), _size_of_results(study)
    if needed > memory:
        raise refusal(
            "memory",
            f"the metrics of {number:,} configurations × {study.num_seeds:,} seeds take {_bytes(needed)}, and "
            f"the memory budget is {_bytes(memory)}: split the grid, or raise `memory`",
            memory,
        )


def _bytes(number: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number} bytes"


class Result(NamedTuple):
    """The results of all configurations of one K and one mechanism."""

    num_categories: int
    measures: np.ndarray
    """`[configurations, seeds, estimators, metrics]`"""
    bias2: np.ndarray | None
    """`[configurations, estimators]`"""


class _Batch(NamedTuple):
    """Tiles that a device computes, or has computed."""

    start: int
    stop: int
    outputs: Future[Outputs]


class _Group:
    """The finished and the remaining batches of one K and one mechanism."""

    def __init__(self, run: _Run, mechanism: str | None, num_categories: int) -> None:
        self.study, self.seed, mesh, batch_size, self.memory, checkpoint, pool, self.device = run
        self.mesh, self.checkpoint = mesh, checkpoint
        self.platform = mesh.devices.flat[0].platform
        self.tile = tile_of(self.study, num_categories, self.platform, mechanism)
        self.shape = self.tile.shape
        self.parts: list[BatchResult] = []
        self.name = name_of_group(num_categories, mechanism)
        loaded = on_first(lambda: {} if checkpoint is None else checkpoint.load(self.name, self._shapes))
        self.known = shared(loaded or {})
        self.next = self.begun = 0
        """The first tiles that are not finished, and not begun."""
        self._use_known()
        share = -(-self.shape.num_tiles // mesh.size)
        self.batch = min(share, max(1, _BATCH // self.tile.cells) if batch_size is None else batch_size)
        # Without an axis of length one XLA may round differently.
        self.length = max(2, self.batch)
        self.pool = pool
        self.compiled: Future | None = None

    @property
    def has_batches(self) -> bool:
        """Whether there are any to begin."""
        return self.begun < self.shape.num_tiles

    @property
    def done(self) -> int:
        return self.next * self.tile.cells

    @property
    def total(self) -> int:
        return self.shape.num_tiles * self.tile.cells

    def _shapes(self, start: int, stop: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of the arrays of a part."""
        shape, estimators = self.shape, len(self.study.estimators)
        per_tile = shape.configurations, shape.seeds, estimators, len(metrics_of_seeds(self.study))
        errors = shape.num_categories if decomposes(self.study) else 0
        completed = stop // shape.parts - start // shape.parts
        pending = shape.configurations if stop % shape.parts else 0
        return (stop - start, *per_tile), (completed, shape.configurations, estimators), (pending, estimators, errors)

    def _use_known(self) -> None:
        while self.next in self.known:
            self.parts.append(self.known[self.next])
            self.next = self.parts[-1].stop
        while self.begun in self.known:
            self.begun = self.known[self.begun].stop

    def _sharding(self, *axes):
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def compile(self, longest: int, work: int) -> None:
        """Starts to compile, unless there is nothing to do; for a program of all K, for all of their batches."""
        if isinstance(self.tile, RowTile):
            self.length = 1 << (longest - 1).bit_length()
            work //= UNOPTIMIZED_TILES
        else:
            work = self.total
        if self.has_batches:
            self.compiled = self.pool.submit(carried(self._compile), work)

    def _compile(self, work):
        study, shape = self.study, self.shape
        self.tables = jax.tree.map(lambda array: self._put(array, self._sharding()), self.tile.tables())
        arguments = self._arguments(0, 1)
        known = (
            self.tile.identity(),
            tuple(programs.options_of(work).items()),
            self.mesh,
            tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(arguments)),
            tuple(unusual_settings().items()),
        )
        with _locks[known]:  # the groups of a program for all K wait for the first one
            compiled, on_each = _programs.get(known, (None, 0))
            if compiled is None:
                function = tile.program(self.tile.function(), self.mesh)
                devices = list(self.mesh.devices.flat)
                compiled = programs.compiled(self.tile.kept_identity(), function, arguments, work, devices)
                if len(_programs) >= _MAX_PROGRAMS:
                    _programs.pop(next(iter(_programs)), None)
                on_each = self._needed(compiled)
                _programs[known] = compiled, on_each
        needed = on_each * len(self.mesh.local_devices)
        results = _size_of_results(study)
        if results + needed > self.memory:
            place = f"K = {shape.num_categories:,}"
            place += "" if shape.mechanism is None else f", {shape.mechanism}"
            raise refusal(
                "memory",
                f"{place}: a batch of {self.batch} tiles on each of {self.mesh.size} devices "
                f"takes {_bytes(needed)} beside the results' {_bytes(results)}, and the memory budget is "
                f"{_bytes(self.memory)}: raise `memory`, use fewer devices, or leave this K out",
                self.memory,
            )
        return compiled

    def _needed(self, compiled):
        """Bytes of a batch on each device: its results, those of the one before, and what it takes beside."""
        analysis = compiled.memory_analysis()  # None on some platforms
        results = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(compiled.out_info)) // self.mesh.size
        return results * (1 + _ahead(self.mesh)) + (0 if analysis is None else analysis.temp_size_in_bytes)

    def _put(self, array, sharding):
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def _shares(self, number: int) -> np.ndarray:
        """The numbers of tiles of the devices, in order; fewer or none on the last devices."""
        return np.clip(number - self.batch * np.arange(self.mesh.size), 0, self.batch).astype(np.int32)

    def _arguments(self, start, stop):
        counts = self._shares(stop - start)
        first = start + self.batch * np.arange(self.mesh.size)
        tiles = np.minimum(first[:, None] + np.arange(self.length), stop - 1).ravel()
        inputs = self.tile.inputs(self.seed, tiles)
        split = self._sharding("devices")
        return (
            self._put(counts, split),
            self.tables,
            jax.tree.map(lambda array: self._put(array, split), inputs),
        )

    def begin(self) -> _Batch:
        """Begins to compute the next batch."""
        assert self.compiled is not None
        start = self.begun
        self.begun = min(
            start + self.batch * self.mesh.size, self.shape.num_tiles, *(at for at in self.known if at > start)
        )
        # In a thread: programs with loops whose turns depend on data return when they end, not when they begin.
        outputs = self.device.submit(self.compiled.result(), *self._arguments(start, self.begun))
        batch = _Batch(start, self.begun, outputs)
        self._use_known()
        return batch

    def finish(self, batch: _Batch) -> None:
        """Waits for a batch, the first one that is not finished, and saves it."""
        start, stop, outputs = batch
        computed = (np.arange(self.length) < self._shares(stop - start)[:, None]).ravel()
        arrays = from_all_processes(outputs.result())
        outputs = self.tile.outputs(jax.tree.map(lambda array: np.asarray(array)[computed], arrays))
        self._check_finite(outputs)
        part = self._part(start, stop, outputs)
        checkpoint = self.checkpoint
        on_first(lambda: None if checkpoint is None else checkpoint.save(self.name, part))
        self.parts.append(part)
        self.next = stop
        self._use_known()

    def _check_finite(self, outputs: Outputs) -> None:
        wrong = np.argwhere(~outputs.finite)
        if len(wrong) == 0:
            return
        index, configuration, seed, estimator = wrong[0]
        block, part = divmod(self.next + int(index), self.shape.parts)
        configurations = self.study.configurations(self.shape.num_categories, self.shape.mechanism)
        place = configurations[min(block * self.shape.configurations + int(configuration), len(configurations) - 1)]
        label = list(self.study.estimators)[estimator]
        raise refusal(
            "estimators",
            f"estimator {label!r} returned NaN or infinity for {place.describe()}, "
            f"collection {part * self.shape.seeds + int(seed)} of seed {self.seed}",
            label,
        )

    def _part(self, start: int, stop: int, outputs: Outputs) -> BatchResult:
        """Sums errors in the order of the tiles, and squares the sums of finished configurations."""
        errors = outputs.errors.astype(np.float64)
        pending = self.parts[-1].pending if self.parts else np.zeros((0, *errors.shape[2:]))
        squares = []
        for index, tile_number in enumerate(range(start, stop)):
            pending = errors[index] if tile_number % self.shape.parts == 0 else pending + errors[index]
            if (tile_number + 1) % self.shape.parts == 0:
                squares.append(np.sum(np.square(pending), axis=-1))
        if stop % self.shape.parts == 0:
            pending = np.zeros((0, *errors.shape[2:]))
        return BatchResult(start, stop, outputs.measures, np.reshape(squares, (-1, *errors.shape[1:3])), pending)

    def result(self) -> Result:
        """The result of the finished group."""
        shape, study = self.shape, self.study
        measures = np.concatenate([part.measures for part in self.parts])
        # [block, part, configuration, seed, …] → [configuration, seed, …]
        measures = measures.reshape(-1, shape.parts, *measures.shape[1:]).swapaxes(1, 2)
        measures = measures.reshape(-1, shape.parts * shape.seeds, *measures.shape[4:])
        bias2 = None
        if decomposes(study):
            squares = np.concatenate([part.squares for part in self.parts])
            bias2 = squares.reshape(-1, squares.shape[-1])[: shape.num_configurations] / study.num_seeds**2
        return Result(shape.num_categories, measures[: shape.num_configurations, : study.num_seeds], bias2)


def tile_of(study: Study, num_categories: int, platform: str, mechanism: str | None) -> Tile | RowTile:
    """The tiles of one K and mechanism: in rows, if one program can serve all K of the study."""
    shapes = shapes_in_rows(study, platform)
    if num_categories in shapes:
        return RowTile(study, shapes[num_categories], sizes_of(study, shapes.values(), platform))
    return Tile(study, Shape.of(study, num_categories, platform, mechanism))


def dataset(study: Study, results: Sequence[Result], options: RunOptions, attributes: Mapping[str, Any]) -> xr.Dataset:
    """The dataset of a finished study: see `Study.run`."""
    import xarray as xr

    estimators, metrics, quantiles = list(study.estimators), list(study.metrics), options.quantiles
    coordinates: dict[str, list[Any]] = {} if study.mechanism is None else {"mechanism": list(study.mechanism)}
    coordinates |= {
        "num_categories": list(study.num_categories),
        "num_users": list(study.num_users),
        "epsilon": list(study.epsilon),
        study.dimension: list(study.populations),
    }
    grid = tuple(len(values) for values in coordinates.values())
    dims = ("estimator", *coordinates)

    def on_grid(array, *, leading):
        """`[configurations, *leading, …]` → `[*leading, *grid, …]`."""
        array = np.moveaxis(array, 0, leading)
        return array.reshape(*array.shape[:leading], *grid, *array.shape[leading + 1 :])

    variables: dict[str, Any] = {}

    def put(name, dims, values, metric):
        known = METRICS.get(metric)
        label, unit = (known.label.replace("\n", " "), known.unit) if known else (metric, "")
        variables[name] = (dims, values, {"long_name": label, "units": unit})

    number = study.num_seeds
    with warnings.catch_warnings():
        # Infinite divergences have an infinite mean and a NaN standard error.
        warnings.simplefilter("ignore", RuntimeWarning)
        for place, name in enumerate(metrics_of_seeds(study)):
            # [configurations, seeds, estimators]; averages are always in float64
            values = np.concatenate([result.measures[..., place] for result in results]).astype(np.float64)
            mean, error = values.mean(1), values.std(1, ddof=1) / np.sqrt(number)
            if name not in metrics:
                variables["mse"] = (dims, on_grid(mean, leading=1), {})
                continue
            put(name, dims, on_grid(mean, leading=1), name)
            put(f"{name}_se", dims, on_grid(error, leading=1), name)
            means, errors = _paired(values)
            put(f"{name}_difference", ("estimator", "versus", *dims[1:]), on_grid(means, leading=2), name)
            put(f"{name}_difference_se", ("estimator", "versus", *dims[1:]), on_grid(errors, leading=2), name)
            if len(quantiles):
                at_quantiles = np.moveaxis(np.quantile(values, list(quantiles), axis=1), 0, -1)
                put(f"{name}_quantile", (*dims, "quantile"), on_grid(at_quantiles, leading=1), name)
            if options.keep_seeds:
                put(f"{name}_seeds", (*dims, "seed"), on_grid(values.swapaxes(1, 2), leading=1), name)
    if any(result.bias2 is not None for result in results):
        bias2 = on_grid(np.concatenate([np.asarray(result.bias2) for result in results]), leading=1)
        if "bias2" in metrics:
            put("bias2", dims, bias2, "bias2")
        if "variance" in metrics:
            put("variance", dims, np.maximum(variables["mse"][1] - bias2, 0), "variance")
        if "mse" not in metrics:
            del variables["mse"]

    labels: dict[str, Any] = {"estimator": estimators, **coordinates}
    if any("difference" in name for name in variables):
        labels["versus"] = estimators
    if len(quantiles):
        labels["quantile"] = list(quantiles)
    if options.keep_seeds:
        labels["seed"] = np.arange(number)
    # NetCDF has no nested attributes.
    flat = {
        name: value if isinstance(value, str | int | float) else json.dumps(value)
        for name, value in attributes.items()
        if value is not None
    }
    return xr.Dataset(variables, labels, flat)


def _paired(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean differences between estimators over the seeds, and their standard errors, `[configurations, E, E]`."""
    number = values.shape[-1]
    means = np.zeros((len(values), number, number))
    errors = np.zeros_like(means)
    for first in range(number):
        for second in range(first):
            difference = values[..., first] - values[..., second]
            mean, error = difference.mean(1), difference.std(1, ddof=1) / np.sqrt(values.shape[1])
            means[:, first, second], means[:, second, first] = mean, -mean
            errors[:, first, second] = errors[:, second, first] = error
    return means, errors
