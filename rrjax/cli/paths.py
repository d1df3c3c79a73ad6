"""Flags whose values are paths: what a command reads is registered before it runs, what it writes is checked.

A flag says so itself, in its annotation: `Annotated[Path, typer.Option(…), READS]`.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, Literal

from typer.models import OptionInfo

from rrjax.data.errors import Contradiction, DataError, UsageError, check_installed, reworded
from rrjax.io.write import check_writable, protecting, telling


@dataclass(frozen=True)
class Paths:
    """The mark of a flag, or of an argument, whose values are paths that the command reads or writes.

    "fills" is a folder, of whose files it checks each itself; `over` are kinds of files that it may replace, as in
    `rrjax.io.write.check_writable`; `draws` says that figures are written, which need the extra of plots.
    """

    use: Literal["reads", "writes", "fills"]
    over: tuple[str, ...] = ()
    draws: bool = False


READS, WRITES, FILLS, DRAWS = Paths("reads"), Paths("writes"), Paths("fills"), Paths("writes", draws=True)


@contextlib.contextmanager
def guarding(parameters: Iterable[inspect.Parameter], given: Mapping[str, Any]) -> Iterator[None]:
    """A context in which no file is written over one that the flags name as an input.

    A file to write is refused if it is an input, under whatever name, cannot be made again, or is named twice.
    """
    inputs: dict[str, str] = {}
    outputs: list[tuple[str, Path, Paths]] = []
    for parameter in parameters:
        value, marks = given.get(parameter.name), getattr(parameter.annotation, "__metadata__", ())
        flag = f"--{parameter.name.replace('_', '-')}"
        for mark in marks:
            if not isinstance(mark, Paths) or value is None:
                continue
            if mark.use == "reads":
                is_flag = any(isinstance(other, OptionInfo) for other in marks)
                read_as = flag if is_flag else parameter.name.upper()
                inputs |= dict.fromkeys(_files_of(value), f"is read by this command ({read_as})")
            elif mark.use == "writes":
                if mark.draws:
                    check_installed("plots", flag, "matplotlib")
                outputs.append((flag, value, mark))
    with protecting(inputs):
        taken: dict[Path, str] = {}
        for flag, path, mark in outputs:
            try:
                place = check_writable(path, over=mark.over)
            except Contradiction as error:
                raise reworded(error, f"{flag} {error}", UsageError, flag=flag, value=path) from error
            if place in taken:
                raise UsageError(
                    f"{flag} {path} is the file of {taken[place]}, too: write to another file", flag=flag, value=path
                )
            taken[place] = flag
        yield


def _files_of(value: Any) -> Iterator[str]:
    """The files that texts name, by themselves or by patterns; none for other texts."""
    for text in [value] if isinstance(value, str | os.PathLike) else value:
        path = os.fspath(text)
        if "\0" not in path:
            yield from [path] if os.path.lexists(path) else glob(path, recursive=True)


def check_own_files(folder: Path, name: str, files: Iterable[Path], flag: str) -> None:
    """Refuses a folder that has one of these files, unless the command made it, and it is as it was.

    `flag` is that of the folder. A command knows its files by their digests, which it is `remembering`.
    """
    known, record = set(), _record(folder, name)

    def is_own(file: Path) -> bool:
        digest = _digest(file)
        if digest not in known:  # another process may have made it since the record was read
            known.update(_known(record))
        return digest in known

    odd = next((file for file in files if os.path.lexists(file) and not is_own(file)), None)
    if odd is not None:
        raise UsageError.about(
            flag,
            f"{folder} has a file {odd.relative_to(folder)} that `rrjax {name}` did not make, or that was changed "
            "since: give another folder, or rename the file",
            value=folder,
        )


@contextlib.contextmanager
def remembering(folder: Path, name: str) -> Iterator[None]:
    """A context in which a command writes files; the folder remembers the digest of each before it has its name.

    So a command that was ended at any time knows its files. The digests are in a hidden file of the command's name, to
    which lines are added only: what one process adds while another one does so is not lost.
    """
    record = _record(folder, name)

    def remember(aside: Path, place: Path) -> None:
        del place
        digest = _digest(aside)
        if digest is not None and digest not in _known(record):
            # Where it cannot be written, or is another file by a link, the next run needs another folder.
            with contextlib.suppress(OSError, Contradiction, DataError):
                if record.is_symlink() or (record.exists() and record.stat().st_nlink > 1):
                    return
                check_writable(record)
                with open(record, "a", encoding="utf-8") as stream:
                    stream.write(f"\n{digest}\n")  # a line that a killed process began stays apart
                    stream.flush()
                    os.fsync(stream.fileno())

    with telling(remember):
        yield


def _record(folder: Path, name: str) -> Path:
    return folder / f".rrjax-{name}.digests"


def _known(record: Path) -> set[str]:
    try:
        return set(record.read_text("utf-8", errors="replace").split())
    except OSError:
        return set()


def _digest(file: Path) -> str | None:
    """A digest of what is in a file; None without one that can be read."""
    try:
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
