"""Compiled programs: options that compile quickly, and a place where a process may keep programs from run to run.

A process that runs once, as a command does, compiles for longer than it computes. With `compiling_by` it may compile
small programs quickly, and load them as a run before has compiled them, without tracing. Everywhere else `program` is
`jax.jit`.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding
from jax.stages import Compiled, Lowered

R = TypeVar("R")

LARGEST_SIZE = 2**12
"""Largest size of an array in the arguments of a program that is compiled quickly: it computes for less time."""
_LITTLE_WORK, _MUCH_WORK = 2**19, 2**23
"""Work (in a study collections × categories) below, and from, which a program is compiled in less, and more, time."""


def num_cores() -> int:
    """How many cores this process may use: XLA divides work by it when it compiles, which can change last bits."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@runtime_checkable
class Compiler(Protocol):
    """Compiles programs, or finds those that are compiled."""

    def __call__(
        self, key: tuple[Any, ...], lower: Callable[[str], Lowered], work: int, devices: Sequence[Any]
    ) -> Compiled:
        """The program with this key; `lower` makes it, its name followed by a text.

        The key, the devices and the code of rrjax determine the program; `repr(key)` is the same in every process.
        """
        ...


_compilers: list[Compiler] = []


@contextmanager
def compiling_by(compiler: Compiler) -> Iterator[None]:
    """Lets a compiler compile, or find, the programs of all threads of this process."""
    _compilers.append(compiler)
    try:
        yield
    finally:
        _compilers.remove(compiler)


def compiled(
    key: tuple[Any, ...] | None,
    function: Callable[..., Any],
    given: tuple[Any, ...],
    work: int,
    devices: Sequence[Any],
) -> Compiled:
    """A function, compiled for arguments of these types: by the compiler of this process, if there is one.

    The key names the function, and all that it contains, in every process alike; without one it is not kept.
    """

    def lower(suffix: str) -> Lowered:
        def named(*given):
            return function(*given)

        named.__name__ = f"{getattr(function, '__name__', 'program')}{suffix}"
        return jax.jit(named).lower(*given)

    if key is None or not _compilers:
        return compile_(lower(""), devices[0].platform, work)
    leaves, structure = jax.tree.flatten(given)
    types = [(kind.shape, kind.dtype.name, kind.weak_type) for kind in map(jax.typeof, leaves)]
    return _compilers[-1]((*key, pickle.dumps(structure), *types), lower, work, devices)


def program(function: Callable[..., R], static_argnums: tuple[int, ...] = ()) -> Callable[..., R]:
    """`jax.jit`, but outside of transformations the compiler of this process, if any, compiles small programs.

    The function is one of a module, or a `partial` of one. Static arguments, and those of the `partial`, must be
    numbers or texts, after all others.
    """
    jitted: Any = jax.jit(function, static_argnums=static_argnums)
    name = _name_of(function)

    @wraps(function)
    def call(*given: Any, **named: Any) -> R:
        if not _compilers or named:
            return jitted(*given, **named)
        device = jax.local_devices()[0]
        traced = given[: min(static_argnums, default=None)]
        if any(_elsewhere(leaf, device) or np.size(leaf) > LARGEST_SIZE for leaf in jax.tree.leaves(traced)):
            return jitted(*given)
        static = given[len(traced) :]

        def bound(*new):
            return jitted(*new, *static)

        bound.__name__ = name[1]
        return compiled((*name, static), bound, traced, 0, [device])(*traced)

    return call


def _name_of(function: Any) -> tuple[Any, ...]:
    if isinstance(function, partial):
        return *_name_of(function.func), function.args, sorted(function.keywords.items())
    return function.__module__, function.__qualname__


def _elsewhere(leaf: Any, device: Any) -> bool:
    """Whether a leaf is traced, or not just on this device."""
    if not isinstance(leaf, jax.Array):
        return False
    return isinstance(leaf, Tracer) or leaf.sharding != SingleDeviceSharding(device)


def options_of(work: int) -> dict[str, bool | int]:
    """XLA's options on a CPU: the older emitters compile in half the time, unoptimized code in a third.

    Programs of the newer emitters at level 1 are up to 50 % faster; the default level compiles longer, to no gain.
    """
    options: dict[str, bool | int] = {"xla_backend_optimization_level": 0 if work < _LITTLE_WORK else 1}
    return options if work >= _MUCH_WORK else options | {"xla_cpu_use_fusion_emitters": False}


def compile_(lowered: Any, platform: str, work: int) -> Any:
    """Compiles a lowered program; on a CPU, in less time if it has less work."""
    if platform != "cpu":
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=options_of(work))
    except jax.errors.JaxRuntimeError:
        # This version of XLA may lack an option. Any other error is raised again.
        return lowered.compile()
