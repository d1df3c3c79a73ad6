"""Compiled programs, kept from run to run in the user's cache folder.

Compilation takes most of the time of a short run. JAX finds a program by what it computes. This module says in which
folder, and checks that a program is whole, was made by these versions for this machine, and was written by this user:
it is machine code, and runs as it is. Where the folder cannot be used, the run goes on without it, with one warning.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import jax
import jaxlib.version

import rrjax

MOST_BYTES = 64 * 2**20
"""Limit of the size of all programs; the least recently used are removed first."""
_SUFFIX, _ASIDE = ".program", ".aside"
STALE_AFTER_SECONDS = 3600
"""Age from which on a file that was not put in place is removed."""
_DIGEST = hashlib.sha256().digest_size
_OF_PROCESSORS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
)
"""Lines of /proc/cpuinfo that describe the kind of the processor, not its present state."""


@contextmanager
def keeping_programs() -> Iterator[None]:
    """Keeps and reuses compiled programs, unless JAX is configured to use a cache of its own, or none."""
    told: Any = jax.config
    if told.jax_compilation_cache_dir or not told.jax_enable_compilation_cache:
        yield
        return
    try:
        shelf = Shelf(_own(folder()))
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}")
        yield
        return
    except RuntimeError as error:  # the user has no home folder
        _say(str(error))
        yield
        return
    try:
        with _serving(shelf):
            yield
    finally:
        with contextlib.suppress(OSError):
            shelf.prune()
        if shelf.trouble:
            _say(shelf.trouble)


def folder() -> Path:
    """Where programs of these versions on this machine are kept."""
    home = Path.home()
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = home / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if not root.is_absolute():  # which is to be ignored, as if it were not set
            root = home / ".cache"
    return root / "rrjax" / key()


def key() -> str:
    """A digest of the versions and the machine that a program is made by and for."""
    versions = (rrjax.__version__, jax.__version__, jaxlib.version.__version__, sys.version)
    machine = (platform.system(), platform.machine(), *_processor())
    return hashlib.sha256("\n".join((*versions, *machine)).encode()).hexdigest()[:32]


def _processor() -> list[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            first = list(takewhile(str.strip, lines))
    except OSError:
        return [platform.processor()]
    return [line for line in first if line.partition(":")[0].strip() in _OF_PROCESSORS]


def _own(place: Path) -> Path:
    """Makes a folder, and the one that it is in, for this user alone.

    Raises:
        OSError: They cannot be made, or others may write in them.
    """
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (place.parent, place):
        each.mkdir(mode=0o700, exist_ok=True)
        about = each.stat()
        if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the folder is another user's", str(each))
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and os.name != "nt":
            raise PermissionError(errno.EPERM, "others may write in the folder (chmod go-w)", str(each))
    return place


class Shelf:
    """A folder of compiled programs, with the interface that JAX expects of a cache.

    A file holds a digest of the program's name and the program, and then the program. It is put in place whole.

    Attributes:
        trouble: What was wrong with the folder, a sentence; empty where nothing was.
    """

    def __init__(self, path: Path) -> None:
        """Takes a folder that exists."""
        self.trouble = ""
        self._path = path  # under this name JAX looks for it
        self._taken: set[str] = set()
        self._added = self._refused = False

    def get(self, name: str) -> bytes | None:
        """Returns the program; None where there is none, or a damaged one."""
        file = self._file(name)
        try:
            content = file.read_bytes()
            digest, program = content[:_DIGEST], content[_DIGEST:]
            if digest != _digest(name, program):
                file.unlink()
                self.trouble = f"{self._path}: a damaged program was removed"
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            self.trouble = f"{self._path}: {error.strerror}"
            return None
        with contextlib.suppress(OSError):
            os.utime(file)
        self._taken.add(name)
        return program

    def put(self, name: str, program: bytes) -> None:
        """Keeps a program; after one that could not be written, no other."""
        if self._refused:
            return
        if name in self._taken:
            self.trouble = f"{self._path}: a program could not be used; it was replaced"
        aside = None
        try:
            number, aside = tempfile.mkstemp(dir=self._path, suffix=_ASIDE)
            with open(number, "wb") as stream:
                stream.write(_digest(name, program) + program)
            os.replace(aside, self._file(name))
        except OSError as error:
            self._refused = True
            self.trouble = f"{self._path}: {error.strerror}"
            if aside is not None:
                with contextlib.suppress(OSError):
                    os.unlink(aside)
        self._added = True

    def prune(self) -> None:
        """Removes the least recently used programs where there are too many, of all versions and machines."""
        if not self._added:
            return
        found: list[tuple[float, int, Path]] = []
        now = time.time()
        for file in self._path.parent.glob("*/*"):
            with contextlib.suppress(OSError):  # another process was faster
                about = file.stat()
                if file.suffix == _SUFFIX:
                    found.append((about.st_mtime, about.st_size, file))
                elif file.suffix == _ASIDE and now - about.st_mtime > STALE_AFTER_SECONDS:
                    file.unlink()
        total = sum(size for _, size, _ in found)
        if total <= MOST_BYTES:
            return
        for _, size, file in sorted(found):
            if total <= MOST_BYTES * 3 / 4:  # not again at the next program
                break
            with contextlib.suppress(OSError):
                file.unlink()
            total -= size
        for other in self._path.parent.iterdir():
            with contextlib.suppress(OSError):
                other.rmdir()  # where it is empty

    def _file(self, name: str) -> Path:
        return self._path / f"{name}{_SUFFIX}"


def _digest(name: str, program: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + program).digest()


@contextmanager
def _serving(shelf: Shelf) -> Iterator[None]:
    """Makes JAX keep its programs on the shelf.

    Its own cache writes in place, so that half an entry is found by whoever reads it then, or after a full disk; it
    never replaces one, and checks none.
    """
    try:
        from jax._src import compilation_cache

        _ = compilation_cache._cache, compilation_cache._cache_initialized, compilation_cache.reset_cache
    except (ImportError, AttributeError):  # no part of JAX's interface, and another version may have none
        _say(f"this version of JAX, {jax.__version__}, does not accept rrjax's cache")
        yield
        return
    told: Any = jax.config
    quick = told.jax_persistent_cache_min_compile_time_secs
    compilation_cache.reset_cache()
    compilation_cache._cache, compilation_cache._cache_initialized = shelf, True  # pyright: ignore
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    try:
        with warnings.catch_warnings():
            # Of a program that is whole and cannot be loaded; it is compiled, put, and said then.
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache", UserWarning)
            yield
    finally:
        compilation_cache.reset_cache()
        jax.config.update("jax_persistent_cache_min_compile_time_secs", quick)


def _say(reason: str) -> None:
    from rrjax.cli import show

    show.warn(
        [
            f"Compiled programs are not kept, or not all: {show.sentence(reason)} They are compiled again, which takes "
            "longer. --no-cache or RRJAX_NO_CACHE=1 turns this cache off."
        ]
    )
