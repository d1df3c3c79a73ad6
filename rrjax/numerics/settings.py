"""JAX's settings, which belong to a thread: carried to other threads, and those that change what rrjax computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax

R = TypeVar("R")

_SETTINGS: dict[str, Callable[[Any], contextlib.AbstractContextManager[Any]]] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_threefry_partitionable": jax.threefry_partitionable,
}
_OF_RESULTS = {"jax_threefry_partitionable": True, "jax_default_matmul_precision": None}
"""Those that change the results of rrjax's own functions, and JAX's defaults."""


def carried(function: Callable[..., R]) -> Callable[..., R]:
    """A function that another thread calls under the settings that this thread has now, as by `with jax.enable_x64`."""
    values = {name: getattr(jax.config, name) for name in _SETTINGS}

    def call(*given: Any) -> R:
        with contextlib.ExitStack() as stack:
            for name, value in values.items():
                if getattr(jax.config, name) != value:
                    stack.enter_context(_SETTINGS[name](value))
            return function(*given)

    return call


def unusual_settings() -> dict[str, str]:
    """The settings of this thread that change what rrjax's own functions compute, where they are not JAX's defaults."""
    values = {name: (getattr(jax.config, name), usual) for name, usual in _OF_RESULTS.items()}
    return {name: str(value) for name, (value, usual) in values.items() if value != usual}
