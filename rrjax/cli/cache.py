"""Compiled programs, kept from run to run in the user's cache folder.

Compilation is most of a short run. JAX looks a program up by what it computes; here it is said where, and seen to that
what is found is whole, made by these versions for this machine, and written by nobody else: it is machine code, and
run as it is. Whatever is the matter with the folder, the run goes on without it, and one line says so.
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
"""Of all programs together; those that were not used for longest go first."""
_SUFFIX, _ASIDE = ".program", ".aside"
_FORGOTTEN = 3600
"""Seconds after which nobody is writing a file any more."""
_DIGEST = hashlib.sha256().digest_size
_OF_PROCESSORS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
)
"""What /proc/cpuinfo says of a kind of processor, and not of a moment."""


@contextmanager
def keeping_programs() -> Iterator[None]:
    """Keeps what JAX compiles, and takes what was kept, unless JAX has been told where to keep it, or not to."""
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
    except RuntimeError as error:  # nobody's home
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
    """A folder of compiled programs, as JAX asks for one.

    A file is a digest and what it is of: the name of the program and the program. It is put in place whole.

    Attributes:
        trouble: What was the matter with the folder, a sentence; empty where nothing was.
    """

    def __init__(self, path: Path) -> None:
        """Takes a folder that is there."""
        self.trouble = ""
        self._path = path  # under this name JAX looks for it
        self._taken: set[str] = set()
        self._added = self._refused = False

    def get(self, name: str) -> bytes | None:
        """The program, None where there is none that is whole."""
        file = self._file(name)
        try:
            content = file.read_bytes()
            digest, program = content[:_DIGEST], content[_DIGEST:]
            if digest != _digest(name, program):
                file.unlink()
                self.trouble = f"{self._path}: a damaged program was there; it was removed"
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
            self.trouble = f"{self._path}: a program that was there could not be used; it was replaced"
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
        """Removes what was not used for longest where there is too much, of all versions and machines."""
        if not self._added:
            return
        found: list[tuple[float, int, Path]] = []
        now = time.time()
        for file in self._path.parent.glob("*/*"):
            with contextlib.suppress(OSError):  # another process was faster
                about = file.stat()
                if file.suffix == _SUFFIX:
                    found.append((about.st_mtime, about.st_size, file))
                elif file.suffix == _ASIDE and now - about.st_mtime > _FORGOTTEN:
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
        _say(f"JAX {jax.__version__} takes no cache of ours")
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

    show.warn([f"{reason}. Programs are compiled anew; --no-cache, or RRJAX_NO_CACHE=1, does without the folder."])
