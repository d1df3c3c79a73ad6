"""Files that several processes share, and that must outlast a power cut: locks, and folders on disk."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from rrjax.data.errors import DataError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None

LOCK_TIMEOUT_SECONDS = 10.0
"""Time to wait for another process, if the operating system has no locks that end with their process."""
_NOTE_BYTES = 128
NOTE = b'{"generation": '
"""The first bytes of the note in a lock."""


def sync_folder(folder: pathlib.Path) -> None:
    """Makes a new name in a folder outlast a power cut, where the operating system can."""
    if not hasattr(os, "O_DIRECTORY"):  # elsewhere a directory cannot be opened
        return
    with contextlib.suppress(OSError):  # of file systems that cannot; the file is in its place
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


@dataclasses.dataclass(frozen=True)
class Lock:
    """A lock that is held, and a note in its file: what was last written under it, as far as it is known."""

    path: pathlib.Path
    descriptor: int

    def note(self) -> dict[str, Any]:
        """The note; empty without one, and for one that is damaged, as by a power cut."""
        try:
            os.lseek(self.descriptor, 0, os.SEEK_SET)
            note = dict(json.loads(os.read(self.descriptor, _NOTE_BYTES)))
            return note if type(note.get("generation", 0)) is int else {}
        except (OSError, ValueError, TypeError):
            return {}

    def is_own(self) -> bool:
        """Whether the file is a lock: empty, a note, or what a power cut left of one."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        start = os.read(self.descriptor, _NOTE_BYTES + 1)
        text = start.strip(b"\0 ")
        return len(start) <= _NOTE_BYTES and (text.startswith(NOTE) or NOTE.startswith(text))

    def write(self, **note: Any) -> None:
        """Replaces the note. It stays as it was if there is no room: it is a safeguard, and no reason to stop."""
        with contextlib.suppress(OSError):
            os.lseek(self.descriptor, 0, os.SEEK_SET)
            # Of one length, so that one call replaces all of it.
            os.write(self.descriptor, json.dumps(note).ljust(_NOTE_BYTES).encode())


def _foreign(lock: pathlib.Path, shown: str | os.PathLike[str]) -> DataError:
    return DataError(
        f"{lock} is no lock, and it is where that of {shown} is kept: rename one of the two; nothing was changed",
        file=str(lock),
    )


@contextlib.contextmanager
def locked(path: pathlib.Path, shown: str | os.PathLike[str]) -> Iterator[Lock]:
    """Locks a file against other processes and threads, by a file `.lock` next to it; `shown` names it in messages.

    Yields:
        The lock, whose note outlasts it where the operating system has locks that end with their process.

    Raises:
        DataError: It stays locked, or the file of its name is no lock.
        OSError: The lock cannot be created.
    """
    lock = path.with_name(path.name + ".lock")
    if fcntl is not None:
        # The file is kept: after a removal, a third process could lock a new file of the same name.
        try:
            held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _foreign(lock, shown) from error
            raise
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            own = Lock(lock, held)
            if not own.is_own():
                raise _foreign(lock, shown)
            yield own
        finally:
            os.close(held)
        return
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                raise DataError(
                    f"{lock} is held by another process, or was left by one that was ended: remove it if none uses "
                    f"{shown}; nothing was changed",
                    file=str(lock),
                ) from None
            time.sleep(0.01)
    try:
        yield Lock(lock, held)
    finally:
        os.close(held)
        lock.unlink()
