"""Compiled programs, kept from run to run in the user's cache folder: whole, or by JAX's persistent cache.

Compilation takes most of the time of a short run. Cached programs are machine code that runs unchecked, so the folder
must belong to the user alone; each set of versions, kind of processor and number of cores has its own. If the folder
cannot be used, the run goes on without it, with one warning.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import stat
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any

import jax
import jaxlib.version
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

import rrjax
from rrjax.cli.kept_programs import KeptPrograms
from rrjax.numerics.programs import compiling_by, num_cores
from rrjax.reports import form

MOST_BYTES = 64 * 2**20
"""Limit of the size of all programs, half of it for those that JAX keeps; the least recently used are removed first."""
_OF_PROCESSORS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision"),
)
"""Lines of /proc/cpuinfo that describe the kind of the processor, not its present state."""


@contextmanager
def keeping_programs(*, keep: bool = True) -> Iterator[None]:
    """Compiles small programs quickly; keeps and reuses all, unless JAX is configured to use its own cache, or none."""
    place = _usable_folder() if keep else None
    with compiling_by(KeptPrograms(place, MOST_BYTES // 2)), nullcontext() if place is None else _cache_of_jax(place):
        yield


def _usable_folder() -> Path | None:
    """The folder for programs; None if JAX's configuration says so or, with a warning, if it cannot be used."""
    told: Any = jax.config
    if told.jax_compilation_cache_dir or not told.jax_enable_compilation_cache:
        return None
    try:
        return _own(folder())
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}")
    except RuntimeError as error:  # the user has no home folder
        _say(str(error))
    return None


@contextmanager
def _cache_of_jax(place: Path) -> Iterator[None]:
    told: Any = jax.config
    ours = {
        "jax_compilation_cache_dir": str(place),
        "jax_compilation_cache_max_size": MOST_BYTES // 2,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(told, name) for name in ours}
    _configure(ours)
    try:
        with warnings.catch_warnings():
            # A damaged program, or a full disk: the program is compiled again.
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache", UserWarning)
            yield
    finally:
        _configure(before)


def _configure(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def folder() -> Path:
    """Where programs of these versions on this machine are kept."""
    home = Path.home()
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = home / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME", ""))
        if not root.is_absolute():  # the specification of the variable says to ignore it
            root = home / ".cache"
    return root / "rrjax" / key()


def key() -> str:
    """A digest of the versions and the machine that a program is made by and for."""
    versions = (rrjax.__version__, jax.__version__, jaxlib.version.__version__, np.__version__, sys.version)
    machine = (platform.system(), platform.machine(), str(num_cores()), *_processor())
    return hashlib.sha256("\n".join((*versions, *machine)).encode()).hexdigest()[:32]


def _processor() -> list[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            first = list(takewhile(str.strip, lines))
    except OSError:
        return [platform.processor()]
    return [line for line in first if line.partition(":")[0].strip() in _OF_PROCESSORS]


def _own(place: Path) -> Path:
    """Makes a folder and its parent for this user alone; an `OSError` if others may write in them."""
    place.parent.parent.mkdir(parents=True, exist_ok=True)
    for each in (place.parent, place):
        each.mkdir(mode=0o700, exist_ok=True)
        about = each.stat()
        if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the folder is another user's", str(each))
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and os.name != "nt":
            raise PermissionError(errno.EPERM, "others may write in the folder (chmod go-w)", str(each))
    return place


def _say(reason: str) -> None:
    from rrjax.cli import show

    show.warn(
        [
            f"Compiled programs are not kept, or not all: {form.sentence(reason)} They are compiled again, which takes "
            "longer. --no-cache or RRJAX_NO_CACHE=1 turns this cache off."
        ]
    )
