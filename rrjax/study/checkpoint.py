"""Finished work on disk: one file a batch, written aside and renamed."""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rrjax.data.errors import StudyError

_STALE = 600.0
"""Seconds after which a file that is being written has been given up."""
_RUNS = "runs.json"
_NAME = re.compile(r"(k\d+(?:-m[0-9a-f]{16})?)-(\d+)-(\d+)\.npz")


class Part(NamedTuple):
    """What a batch of tiles brought."""

    start: int
    stop: int
    measures: np.ndarray
    """`[tiles, configurations, seeds, estimators, metrics]`"""
    squares: np.ndarray
    """Squared sums of the errors of the configurations that it completed, `[_, configurations, estimators]`."""
    pending: np.ndarray
    """Sums of the errors of those that it did not complete, `[configurations, estimators, K]`."""


class Timing(NamedTuple):
    """What all runs of a study took together."""

    seconds: float
    runs: int
    untimed: bool
    """Whether there were others before, of which it is not known."""


def name_of_group(num_categories: int, mechanism: str | None) -> str:
    """What the files of one K, of one mechanism, begin with; in a label there may be anything."""
    if mechanism is None:
        return f"k{num_categories}"
    return f"k{num_categories}-m{hashlib.sha256(mechanism.encode()).hexdigest()[:16]}"


def computing_time(attributes: Iterable[Mapping[str, Any]], more: float = 0.0) -> str:
    """What studies took together, over all the runs that it needed, in words.

    Example:
        >>> from rrjax.study.checkpoint import computing_time
        >>> computing_time([{"seconds": 12.5, "runs": 2}, {"seconds": 3.0, "runs": 1}])
        '15.5 s, in 2 runs'
    """
    attributes = list(attributes)
    seconds = sum(float(one.get("seconds", 0)) for one in attributes) + more
    runs = max((int(one.get("runs", 1)) for one in attributes), default=1)
    untimed = any(one.get("untimed") for one in attributes)
    text = f"{seconds:,.1f} s" + (f", in {runs:,} runs" if runs > 1 else "")
    if not untimed:
        return text
    return f"{text}; earlier runs were not timed" if seconds else "not known: earlier runs were not timed"


class Checkpoint:
    """The folder of one study."""

    def __init__(self, folder: Path, description: dict[str, Any], begin: float | None = None) -> None:
        """Opens the folder, or makes it; the run began at `begin` of `time.perf_counter`, or now.

        Raises:
            StudyError: It holds another study.
            DataError: It cannot be made or written.
        """
        from rrjax.io.write import make_folder

        self.begin = time.perf_counter() if begin is None else begin
        self.computed = False
        self.folder = folder / "checkpoint"
        self.study = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
        # The arrays of a batch go by it. It is no part of what was hashed before it was looked at.
        self.order = [list(description.get(name) or ()) for name in ("estimators", "metrics")]
        description = description | {"order": self.order}
        make_folder(self.folder)
        self._sweep()
        file = self.folder / "study.json"
        kept = any(_NAME.fullmatch(part.name) for part in self.folder.iterdir())
        self.before = _seconds_of_runs(self.folder / _RUNS) if kept else []
        if file.exists() and kept:
            _compare(folder, file, description)
            return
        if kept:
            raise StudyError(
                f"{self.folder} holds results, but {file.name}, which says of which study, is gone: choose another "
                "folder, or delete this one",
                argument="folder",
                file=file,
            )
        _write(file, lambda path: path.write_text(json.dumps(description, indent=1, sort_keys=True)))

    def _sweep(self) -> None:
        """Deletes what a process left that was killed while it wrote, but not what another one writes now."""
        for stray in self.folder.glob(".rrjax-*"):
            try:
                if time.time() - stray.stat().st_mtime > _STALE:
                    stray.unlink(missing_ok=True)
            except OSError:
                continue

    def save(self, group: str, part: Part) -> None:
        """Keeps a batch of a group."""
        file = self.folder / f"{group}-{part.start}-{part.stop}.npz"

        def write(path: Path) -> None:
            with path.open("wb") as stream:  # NumPy would add a suffix to a name
                np.savez(
                    stream,
                    measures=part.measures,
                    squares=part.squares,
                    pending=part.pending,
                    study=self.study,
                    order=json.dumps(self.order),
                )

        _write(file, write)
        self.computed = True
        self.timing()

    def timing(self) -> Timing:
        """How long this run took so far and those before it; a run that computes nothing takes no part."""
        runs = [*self.before, *([round(time.perf_counter() - self.begin, 3)] if self.computed else [])]
        if self.computed:
            _write(self.folder / _RUNS, lambda path: path.write_text(json.dumps({"seconds": runs})))
        known = [seconds for seconds in runs if seconds is not None]
        return Timing(round(sum(known), 3), len(known), len(known) < len(runs))

    def load(self, group: str, shapes: Callable[[int, int], tuple[tuple[int, ...], ...]]) -> dict[int, Part]:
        """The batches of a group that are there, by their first tile. A damaged one is set aside, with a warning.

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
                    order = (
                        json.loads(str(arrays["order"])) if "order" in arrays else self.order
                    )  # older ones do not tell
                    part = Part(start, stop, arrays["measures"], arrays["squares"], arrays["pending"])
                held = part.measures, part.squares, part.pending
                if tuple(array.shape for array in held) != shapes(start, stop):
                    raise ValueError("arrays of other shapes")
                if any(array.dtype.kind != "f" for array in held):
                    raise ValueError("arrays of what are no numbers")
            except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
                aside = file.with_suffix(f".{time.time_ns()}.damaged")
                file.replace(aside)
                warnings.warn(
                    f"{file} is damaged. It was renamed to {aside.name}, and its batch is computed again.",
                    stacklevel=2,
                )
                continue
            if study != self.study:
                raise StudyError(
                    f"{file} is of another study, which used this folder at the same time: choose another folder, or "
                    "delete this one",
                    argument="folder",
                    file=file,
                )
            if order != self.order:
                raise StudyError(
                    f"{file} holds the estimators and metrics in another order: {_short(order)}, not "
                    f"{_short(self.order)}. Give them in that order, choose another folder, or delete this one",
                    argument="folder",
                    file=file,
                    value=order,
                )
            parts[start] = part
        return parts


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


def _seconds_of_runs(file: Path) -> list[float | None]:
    """What the runs so far took; None stands for those that nothing is known of, as in folders made before."""
    try:
        seconds = json.loads(file.read_text())["seconds"]
        return [None if one is None else float(one) for one in seconds]
    except (OSError, ValueError, KeyError, TypeError):
        return [None]


def _compare(folder: Path, file: Path, description: dict[str, Any]) -> None:
    try:
        kept = json.loads(file.read_text())
        kept.setdefault("order", description["order"])  # folders made before do not tell
        differences = {
            name: f"{name} is {_short(description.get(name))}, there {_short(kept.get(name))}"
            for name in sorted({*kept, *description})
            if kept.get(name) != description.get(name)
        }
    except OSError as error:
        raise StudyError(
            f"{file} cannot be read ({error.strerror}): choose another folder", argument="folder", file=file
        ) from error
    except (ValueError, AttributeError) as error:
        raise StudyError(
            f"{file} is damaged, so it cannot be told whether {folder} holds this study: choose another folder, or "
            "delete this one",
            argument="folder",
            file=file,
        ) from error
    if differences:
        raise StudyError(
            f"{folder} holds another study: {'; '.join(differences.values())}. Choose another folder, or delete this "
            "one",
            argument="folder",
            file=folder,
            value=list(differences),
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:199] + "…"
