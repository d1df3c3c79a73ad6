"""Whole executables of a run before: loaded without tracing and compiling.

JAX's cache spares XLA's compilation, but a program is traced and lowered again, which takes longer than to load it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import re
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Any

import jax
from jax.stages import Compiled, Lowered

import rrjax
from rrjax.numerics.programs import compile_

_MOST_LOADED = 64
"""Largest number of programs in the memory of a process."""
_loaded: dict[str, Compiled] = {}
_CALLS, _LAPACK = re.compile(r"custom_call @(\w+)"), re.compile(r"lapack_\w+")
_OF_XLA = {"Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"}
"""Calls that XLA replaces. Other functions than LAPACK's may not be there where a program is loaded: it would crash."""


@dataclasses.dataclass(frozen=True)
class KeptPrograms:
    """Programs of this process and, if there is a folder, of processes before it (a `programs.Compiler`)."""

    place: Path | None
    """The folder, which belongs to the user alone: an executable is machine code that runs unchecked."""
    most_bytes: int
    """Limit of the size of all programs in it; the least recently used are removed first."""
    locks: dict[str, Lock] = dataclasses.field(default_factory=dict)

    def __call__(
        self, key: tuple[Any, ...], lower: Callable[[str], Lowered], work: int, devices: Sequence[Any]
    ) -> Compiled:
        """The program of the key: loaded, or compiled and kept."""
        name = _name(key, work, devices)
        with self.locks.setdefault(name, Lock()):  # threads that need the same program wait for the first one
            program = _loaded.get(name)
            if program is None:
                program = self._program(self._file(name, devices), lower, work, devices)
                if len(_loaded) >= _MOST_LOADED:
                    _loaded.pop(next(iter(_loaded)), None)
                _loaded[name] = program
            return program

    def _file(self, name: str, devices: Sequence[Any]) -> Path | None:
        """The file of a program; none if it is not kept: only those of one process on a CPU are known to be sound."""
        if self.place is None or devices[0].platform != "cpu" or jax.process_count() > 1:
            return None
        return self.place / f"{name}-program"

    def _program(
        self, file: Path | None, lower: Callable[[str], Lowered], work: int, devices: Sequence[Any]
    ) -> Compiled:
        if file is None:
            return compile_(lower(""), devices[0].platform, work)
        with suppress(Exception):  # there is none, it is damaged, or of no use here: anything may be raised
            return _read(file, devices)
        # An executable from JAX's cache cannot be serialized again: there is none of a new name.
        lowered = lower(f"_{token_hex(8)}")
        program = compile_(lowered, devices[0].platform, work)
        content = None
        with suppress(Exception):  # this version of JAX or XLA, or this program, cannot be serialized
            content = _serialized(lowered, program)
        if content is not None:
            with suppress(OSError):  # a full disk: it is compiled again
                _write(file, content)
                _trim(file.parent, self.most_bytes)
        return program


def _read(file: Path, devices: Sequence[Any]) -> Compiled:
    from jax.experimental.serialize_executable import deserialize_and_load

    uses_lapack, *content = pickle.loads(zlib.decompress(file.read_bytes()))
    if uses_lapack:
        # JAX looks LAPACK's functions up when it lowers the first call of one.
        jax.jit(jax.lax.linalg.cholesky).lower(jax.ShapeDtypeStruct((1, 1), "float32"))
    program = deserialize_and_load(*content, execution_devices=list(devices))
    os.utime(file)
    return program


def _serialized(lowered: Lowered, program: Compiled) -> bytes | None:
    """The content of a file, made before the first run, after which XLA serializes no sort; None if it cannot be."""
    from jax.experimental.serialize_executable import serialize

    calls = set(_CALLS.findall(lowered.as_text())) - _OF_XLA
    if not all(map(_LAPACK.fullmatch, calls)):
        return None
    return zlib.compress(pickle.dumps((bool(calls), *serialize(program))), 1)


def _write(file: Path, content: bytes) -> None:
    number, aside = tempfile.mkstemp(dir=file.parent, suffix="-program")
    try:
        with open(number, "wb") as open_file:
            open_file.write(content)
        Path(aside).replace(file)
    finally:
        Path(aside).unlink(missing_ok=True)


def _trim(folder: Path, most_bytes: int) -> None:
    about = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in folder.glob("*-program"))
    excess = sum(size for _, size, _ in about) - most_bytes
    for _, size, file in about:
        if excess <= 0:
            return
        file.unlink(missing_ok=True)
        excess -= size


def _name(key: tuple[Any, ...], work: int, devices: Sequence[Any]) -> str:
    """A digest of all that determines a program, beside the versions and the processor of its folder."""
    kinds = [(device.platform, device.device_kind, device.id) for device in devices]
    told = sorted((name, value) for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_")))
    text = repr((key, work, kinds, jax.device_count(), told, jax.dtypes.canonicalize_dtype(float).name, code()))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def code() -> str:
    """A digest of the code of rrjax: an editable installation changes without its version."""
    root, digest = Path(rrjax.__file__).parent, hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()
