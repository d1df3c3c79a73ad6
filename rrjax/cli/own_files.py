"""Folders whose files a command may replace: those that it made itself, and that nobody changed since."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rrjax.data.errors import DataError, UsageError
from rrjax.io.write import replacing


@contextlib.contextmanager
def own_files(
    folder: Path, name: str, files: Callable[[], Iterable[Path]], flag: str, *, records: bool = True
) -> Iterator[None]:
    """A context in which a command writes files into a folder, which then remembers their digests.

    Args:
        folder: The folder.
        name: Name of the command; the folder has their digests in a hidden file of this name.
        files: The files that the command writes, or all that may be among them; asked before and after.
        flag: The flag of the folder, for the message.
        records: Whether this process records the digests.

    Raises:
        UsageError: One of them is there, and the command did not make it, or it was changed since.
    """
    record = folder / f".rrjax-{name}.json"
    try:
        known = set(json.loads(record.read_text("utf-8"))) - {None}
    except (OSError, ValueError, TypeError):
        known = set()
    odd = next((file for file in files() if os.path.lexists(file) and _digest(file) not in known), None)
    if odd is not None:
        raise UsageError.about(
            flag,
            f"{folder} has a file {odd.relative_to(folder)} that `rrjax {name}` did not make, or that was changed "
            "since: give another folder",
            value=folder,
        )
    try:
        yield
    finally:
        if records and folder.is_dir():
            known |= {digest for file in files() if (digest := _digest(file)) is not None}
            # Where it cannot be written, the next run needs another folder.
            with contextlib.suppress(DataError), replacing(record) as aside:
                aside.write_text(json.dumps(sorted(known)), "utf-8")


def _digest(file: Path) -> str | None:
    """A digest of what is in a file; None without one that can be read."""
    try:
        with open(file, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
