"""How programs are compiled: a process that runs once, as a command does, compiles for longer than it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import SingleDeviceSharding
from jax.stages import Compiled

R = TypeVar("R")

LARGEST_SIZE = 2**12
"""Largest size of an array in the arguments of a program that is compiled quickly: it computes for less time."""
_LITTLE_WORK, _MUCH_WORK = 2**19, 2**23
"""Work (in a study collections × categories) below, and from, which a program is compiled in less, and more, time."""
_quickly: list[None] = []


@contextmanager
def compiling_quickly() -> Iterator[None]:
    """Lets all threads of this process compile small programs quickly."""
    _quickly.append(None)
    try:
        yield
    finally:
        _quickly.pop()


def options_of(work: int) -> dict[str, Any]:
    """XLA's options on a CPU: the older emitters compile in half the time, unoptimized code in a third.

    Programs of the newer emitters at level 1 are up to 50 % faster; the default level compiles longer, to no gain.
    """
    options: dict[str, Any] = {"xla_backend_optimization_level": 0 if work < _LITTLE_WORK else 1}
    return options if work >= _MUCH_WORK else options | {"xla_cpu_use_fusion_emitters": False}


def compiled(function: Callable[..., Any], given: tuple[Any, ...], work: int, platform: str) -> Compiled:
    """A function, compiled for arguments of these types; on a CPU, in less time if it has less work."""
    lowered = jax.jit(function).lower(*given)
    if platform != "cpu":
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=options_of(work))
    except jax.errors.JaxRuntimeError:
        # This version of XLA may lack an option. Any other error is raised again.
        return lowered.compile()


def program(function: Callable[..., R], static_argnums: tuple[int, ...] = ()) -> Callable[..., R]:
    """`jax.jit`, but outside of transformations small programs are compiled quickly on a CPU where the process says so.

    Static arguments come after all others.
    """
    jitted: Any = jax.jit(function, static_argnums=static_argnums)
    quick: Any = jax.jit(function, static_argnums=static_argnums, compiler_options=options_of(0))

    @wraps(function)
    def call(*given: Any, **named: Any) -> R:
        device = jax.local_devices()[0]
        traced = given[: min(static_argnums, default=None)]
        if not _quickly or named or device.platform != "cpu":
            return jitted(*given, **named)
        if any(_elsewhere(leaf, device) or np.size(leaf) > LARGEST_SIZE for leaf in jax.tree.leaves(traced)):
            return jitted(*given)
        try:
            return quick(*given)
        except jax.errors.JaxRuntimeError:  # as above
            return jitted(*given)

    return call


def _elsewhere(leaf: Any, device: Any) -> bool:
    """Whether a leaf is traced, or not just on this device."""
    if not isinstance(leaf, jax.Array):
        return False
    return isinstance(leaf, Tracer) or leaf.sharding != SingleDeviceSharding(device)
