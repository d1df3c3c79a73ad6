"""Finished work on disk, one file for each batch, written under another name and renamed; and who writes it.

Of several processes only the first one reads and writes the folder.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from rrjax.data.errors import PeerError, StudyError
from rrjax.study.identity import calling_python

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

_T = TypeVar("_T")
_ABANDONED_AFTER_SECONDS = 600.0
"""Age from which on an unfinished file counts as left by a killed process."""
_RUNS = "runs.json"
_NAME = re.compile(r"(k\d+(?:-m[0-9a-f]{16})?)-(\d+)-(\d+)\.npz")
_CALLED = {"order": "the order of the labels"}
"""What fields of a description are called in messages, where not by their names."""
_ADVICE = "choose another folder, or delete this one"


class BatchResult(NamedTuple):
    """The results of a batch of tiles."""

    start: int
    stop: int
    measures: np.ndarray
    """`[tiles, configurations, seeds, estimators, metrics]`"""
    squares: np.ndarray
    """Squared sums of the errors of the configurations that the batch completed, `[_, configurations, estimators]`."""
    pending: np.ndarray
    """Sums of the errors of the configurations that it did not complete, `[configurations, estimators, K]`."""


class Timing(NamedTuple):
    """The computing time of all runs of a study together."""

    seconds: float
    runs: int


def name_of_group(num_categories: int, mechanism: str | None) -> str:
    """The prefix of the files of one K and one mechanism; labels are hashed, because they may have any character."""
    if mechanism is None:
        return f"k{num_categories}"
    return f"k{num_categories}-m{hashlib.sha256(mechanism.encode()).hexdigest()[:16]}"


def computing_time(attributes: Iterable[Mapping[str, Any]], more: float = 0.0) -> str:
    """The computing time of studies, in words, from the attributes of their datasets, with `more` seconds.

    Example:
        >>> from rrjax.study.checkpoint import computing_time
        >>> computing_time([{"seconds": 12.5, "runs": 2}, {"seconds": 3.0, "runs": 1}])
        '15.5 s, in 2 runs'
    """
    attributes = list(attributes)
    seconds = sum(float(one.get("seconds", 0)) for one in attributes) + more
    runs = [int(one.get("runs", 1)) for one in attributes]
    if 0 in runs:  # the file of times is missing
        return "not known"
    return f"{seconds:,.1f} s" + (f", in {max(runs):,} runs" if max(runs, default=1) > 1 else "")


class Checkpoint:
    """The folder of one study."""

    def __init__(self, folder: Path, description: dict[str, Any], begin: float | None = None) -> None:
        """Opens or creates the folder, which may hold no other study; the run began at `begin`, or now."""
        from rrjax.io.write import make_folder, sweep

        self.begin = time.perf_counter() if begin is None else begin
        self.computed = False
        self.folder = folder / "checkpoint"
        # Arrays of parts are in this order, which JSON with sorted keys does not keep.
        order = [list(description.get(name) or ()) for name in ("estimators", "metrics")]
        populations = [*(description.get("distributions") or description.get("users") or ())]
        description = description | {"order": order + [populations] * (len(populations) > 1)}
        self.study = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
        make_folder(self.folder)
        sweep(self.folder, _ABANDONED_AFTER_SECONDS)
        self._lock = _Lock(self.folder / "study.lock")
        try:
            self._claim(folder, description)
        except BaseException:
            self.close()
            raise

    def _claim(self, folder: Path, description: dict[str, Any]) -> None:
        file = self.folder / "study.json"
        has_parts = any(_NAME.fullmatch(part.name) for part in self.folder.iterdir())
        self.seconds_before = _seconds_of_runs(self.folder / _RUNS) if has_parts else []
        if file.exists() and (has_parts or not self._lock.alone):
            _compare(folder, file, description)
            of_functions = {each: description.get(each, {}) for each in ("estimators", "metrics", "mechanism")}
            if has_parts and (labels := calling_python(of_functions)):
                raise StudyError(
                    f"{folder} holds results of {', '.join(map(repr, labels))}, which call Python when they run, so "
                    f"whether they are the same functions is unknown: {_ADVICE}",
                    argument="folder",
                    file=folder,
                )
        elif has_parts:
            raise StudyError(
                f"{self.folder} holds results, but {file.name}, which says of which study, is gone: {_ADVICE}",
                argument="folder",
                file=file,
            )
        else:
            self._check_own()
            _write(file, lambda path: path.write_text(json.dumps(description, indent=1, sort_keys=True)))
        if self._lock.share():
            _compare(folder, file, description)

    def _check_own(self) -> None:
        """Refuses a folder whose files have the names of those of a study, and are of something else."""
        for file, field in ((self.folder / "study.json", "order"), (self.folder / _RUNS, "seconds")):
            text = _content(file) if file.exists() else None
            try:
                foreign = text is not None and field not in dict(json.loads(text))
            except (ValueError, TypeError, RecursionError):
                foreign = True
            if foreign:
                raise StudyError(
                    f"{file} is not of a study, or is damaged, and would be replaced: choose another folder, or rename "
                    "the file",
                    argument="folder",
                    file=file,
                )

    def close(self) -> None:
        """Ends the claim of this process to a folder without results."""
        self._lock.close()

    def save(self, group: str, part: BatchResult) -> None:
        """Saves a batch of a group."""
        file = self.folder / f"{group}-{part.start}-{part.stop}.npz"

        def write(path: Path) -> None:
            measures, squares, pending = part[2:]
            with path.open("wb") as stream:  # given a name, NumPy would add a suffix
                np.savez(stream, measures=measures, squares=squares, pending=pending, study=self.study, batch=file.stem)

        # The time first: a process that is killed between the two leaves no part whose time nobody knows.
        self.computed = True
        self.timing()
        _write(file, write)

    def timing(self) -> Timing:
        """The time of this run so far and of earlier runs; a run without computation does not count."""
        if self.seconds_before is None:
            return Timing(0.0, 0)
        seconds = [*self.seconds_before]
        if self.computed:
            seconds.append(round(time.perf_counter() - self.begin, 3))
            _write(self.folder / _RUNS, lambda path: path.write_text(json.dumps({"seconds": seconds})))
        return Timing(round(sum(seconds), 3), len(seconds))

    def load(self, group: str, shapes: Callable[[int, int], tuple[tuple[int, ...], ...]]) -> dict[int, BatchResult]:
        """The saved batches of a group, by their first tile. A damaged one is renamed, with a warning.

        `shapes(start, stop)` are those of the three arrays of a part.
        """
        parts = {}
        for file in sorted(self.folder.iterdir()):
            match = _NAME.fullmatch(file.name)
            if not match or match[1] != group:
                continue
            start, stop = int(match[2]), int(match[3])
            try:
                with io.BytesIO(_content(file)) as stream, np.load(stream) as arrays:
                    study = str(arrays["study"])
                    part = BatchResult(start, stop, arrays["measures"], arrays["squares"], arrays["pending"])
                    batch = str(arrays["batch"]) if "batch" in arrays else file.stem  # of an earlier version
                numbers = part.measures, part.squares, part.pending
                if tuple(array.shape for array in numbers) != shapes(start, stop):
                    raise ValueError("arrays of other shapes")
                if any(array.dtype.kind != "f" for array in numbers):
                    raise ValueError("arrays that hold no numbers")
            except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
                _set_aside(file, "is damaged")
                continue
            if study != self.study:
                raise StudyError(
                    f"{file} is of another study, which used this folder at the same time: {_ADVICE}",
                    argument="folder",
                    file=file,
                )
            if batch != file.stem:
                _set_aside(file, f"is a copy of {batch}.npz")
                continue
            parts[start] = part
        return parts


class _Lock:
    """Whether others compute in a folder: a lock that ends with its process, where the system has such locks.

    The description of a folder without results is that of the runs that hold its lock.
    """

    def __init__(self, file: Path) -> None:
        self._file, self.alone = None, True
        if fcntl is None:
            return
        with suppress(OSError):  # a file system without locks
            self._file = file.open("a+")  # network file systems share locks of readers only
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.alone = False
                fcntl.flock(self._file, fcntl.LOCK_SH)  # once the other one has written

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def share(self) -> bool:
        """Lets others share the folder; whether one of them may have been faster."""
        if fcntl is None or self._file is None:
            return False
        with suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_SH)
        return True


def _set_aside(file: Path, why: str) -> None:
    aside = file.with_suffix(f".{time.time_ns()}.damaged")
    file.replace(aside)
    warnings.warn(f"{file} {why}. It was renamed to {aside.name}, and its batch is computed again.", stacklevel=3)


def _content(file: Path) -> bytes:
    from rrjax.io import DataError

    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}", file=file) from error


def _write(file: Path, write: Callable[[Path], object]) -> None:
    from rrjax.io.write import replacing

    with replacing(file) as path:
        write(path)


def _seconds_of_runs(file: Path) -> list[float] | None:
    """The times of earlier runs; None if the file is missing or damaged."""
    try:
        return [float(one) for one in json.loads(file.read_text())["seconds"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compare(folder: Path, file: Path, description: dict[str, Any]) -> None:
    """Refuses a folder with another description, with the names of the differences."""
    try:
        saved = json.loads(file.read_text())
        differences = {
            name: f"{_CALLED.get(name, name)} is {_short(description.get(name))}, there {_short(saved.get(name))}"
            for name in sorted({*saved, *description})
            if saved.get(name) != description.get(name)
        }
    except OSError as error:
        raise StudyError(
            f"{file} cannot be read ({error.strerror}): choose another folder", argument="folder", file=file
        ) from error
    except (ValueError, AttributeError) as error:
        raise StudyError(
            f"{file} is damaged, so whether {folder} holds this study is unknown: {_ADVICE}",
            argument="folder",
            file=file,
        ) from error
    if differences:
        raise StudyError(
            f"{folder} holds another study: {'; '.join(differences.values())}. {_ADVICE.capitalize()}",
            argument="folder",
            file=folder,
            value=list(differences),
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:199] + "…"


def check_agreement(description: dict[str, Any]) -> None:
    """Refuses processes with different studies, seeds or batch sizes."""
    if jax.process_count() == 1:
        return
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).digest()
    with _answering():
        digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    if (digests != digests[0]).any():
        raise StudyError(
            "the processes were given different studies, seeds or batch sizes: start all of them with the same "
            "arguments, except the number of the process"
        )


def on_first(make: Callable[[], _T]) -> _T | None:
    """The result of a function that only process 0 calls, on process 0; if it fails, all processes stop."""
    made, failure = None, None
    if jax.process_index() == 0:
        try:
            made = make()
        except Exception as error:
            failure = error
    if jax.process_count() > 1:
        with _answering():
            failed = bool(multihost_utils.broadcast_one_to_all(np.int32(failure is not None)))
        if failed and failure is None:
            raise StudyError("process 0 stopped; its message says why")
    if failure is not None:
        raise failure
    return made


def shared(value: _T) -> _T:
    """The value of process 0, on every process."""
    if jax.process_count() == 1:
        return value
    packed = np.frombuffer(pickle.dumps(value), np.uint8)
    with _answering():
        size = int(multihost_utils.broadcast_one_to_all(np.int32(packed.size)))
        padded = np.zeros(size, np.uint8)
        if jax.process_index() == 0:
            padded[:] = packed
        return pickle.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())


def from_all_processes(arrays: _T) -> _T:
    """Arrays spread over the devices of all processes, gathered on every process."""
    if jax.process_count() == 1:
        return arrays
    with _answering():
        return multihost_utils.process_allgather(arrays, tiled=True)


@contextmanager
def _answering() -> Iterator[None]:
    """Raises a `PeerError` if an exchange fails. The error of JAX depends on the transport."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        raise PeerError(
            f"another process ended, or cannot be reached: start all of them again. ({str(error).splitlines()[0]})"
        ) from error
