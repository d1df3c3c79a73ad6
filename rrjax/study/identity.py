"""What a function of the user is: the finished work of another one must not be taken for its own."""

from __future__ import annotations

import hashlib
import inspect
import sys
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

_LIBRARIES = ("builtins", "jax", "jaxlib", "jaxtyping", "numpy", "optax", "rrjax", "scipy")
"""Packages whose functions are known by their names; results are not kept across versions of what matters of them."""
_DEPTH = 6
"""So far are functions followed that functions hold."""


def identity_of(function: Any, depth: int = _DEPTH) -> str:
    """A name for a function, with a hash of its code and of all that it holds or uses of its module.

    Args:
        function: A function, a partial one, or any callable; None has no name.
        depth: How far functions that it holds are followed.

    Returns:
        The same text in every process.
    """
    if function is None:
        return ""
    given: list[Any] = []
    while isinstance(function, partial):
        given += [function.args, sorted(function.keywords.items())]
        function = function.func
    if isinstance(function, types.MethodType):
        given += [function.__self__, _methods(type(function.__self__))]
        function = function.__func__
    inner: Any = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    if code is None and not isinstance(inner, type) and hasattr(inner, "__dict__"):  # an object that can be called
        given += [vars(inner), _methods(type(inner))]
        inner = type(inner)
    module = getattr(inner, "__module__", None) or ""
    name = f"{module}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
    if code is not None and not _of_library(module):
        given += [list(_instructions(code)), inner.__defaults__, inner.__kwdefaults__]
        given += [list(_held(inner)), list(_used(inner, code))]
    if not given or not depth:  # what holds itself has an end too
        return name
    return f"{name}#{hashlib.sha256(repr(_content(given, depth - 1)).encode()).hexdigest()[:12]}"


def _instructions(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code
    yield code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield list(_instructions(constant))
        else:
            yield constant


def _names(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _methods(kind: type) -> list[Any]:
    """The functions of a class and those that it inherits."""
    own = (one for one in kind.__mro__ if not _of_library(one.__module__))
    return [(name, value) for one in own for name, value in sorted(vars(one).items()) if inspect.isfunction(value)]


def _of_library(module: str) -> bool:
    return module.split(".")[0] in _LIBRARIES


def _held(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            yield None


def _used(function: Any, code: types.CodeType) -> Iterator[Any]:
    """Globals, by name, and what is taken of modules that are no libraries."""
    names = sorted(_names(code))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            if not _of_library(value.__name__) and value.__name__.split(".")[0] not in sys.stdlib_module_names:
                yield name, [(one, getattr(value, one)) for one in names if hasattr(value, one)]
        elif value is not None:
            yield name, value


def _content(value: Any, depth: int) -> Any:
    """What stands for a value, the same in every process."""
    if isinstance(value, list | tuple):
        return [_content(one, depth) for one in value]
    if isinstance(value, dict):
        return [(str(key), _content(one, depth)) for key, one in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(str(_content(one, depth)) for one in value)
    if isinstance(value, np.ndarray | jax.Array) and not jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    if isinstance(value, types.ModuleType):
        return value.__name__
    if callable(value):
        return identity_of(value, depth)
    if hasattr(value, "__dict__"):
        return type(value).__qualname__, _content(vars(value), depth - 1) if depth > 0 else ""
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text
