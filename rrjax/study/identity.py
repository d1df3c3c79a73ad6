"""Identities of configurations, for random numbers, and of functions, to recognize their finished work."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import sys
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from rrjax.estimators.in_rows import own_in_rows

_LIBRARIES = {"builtins", "jax", "jaxlib", "numpy", "rrjax", *sys.stdlib_module_names}
_INSTALLED = ("site-packages", "dist-packages")


@dataclasses.dataclass(frozen=True)
class Configuration:
    """One point of the grid."""

    num_categories: int
    num_users: int
    epsilon: float
    population: float | str
    """The Zipf exponent, or the label of the distribution or of the users."""
    mechanism: str | None = None
    """Label of the mechanism, if the study has mechanisms."""

    def describe(self) -> str:
        """The configuration in words, for a message."""
        kind = f"zipf = {self.population:g}" if isinstance(self.population, float) else f"{self.population!r}"
        words = f"K = {self.num_categories:,}, N = {self.num_users:,}, epsilon = {self.epsilon:g}, {kind}"
        return words if self.mechanism is None else f"{self.mechanism}, {words}"

    def words(self, seed: int) -> tuple[int, ...]:
        """Two 32-bit words that seed this configuration's random numbers, independent of the rest of the grid.

        With a mechanism they seed its users, the same for all mechanisms; two more words seed their randomization.
        """
        # These values must never change. A new field of a configuration may enter only with values other than its
        # default.
        key = seed, self.num_categories, self.num_users, self.epsilon, self.population
        return _words(key) if self.mechanism is None else _words(key) + _words((*key, self.mechanism))


def _words(key: tuple[Any, ...]) -> tuple[int, int]:
    digest = hashlib.sha256(repr(key).encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def identity_of(function: Any, *, classes: bool = False) -> str:
    """The name of a function, with a hash of its code and of all objects that it contains or uses from its module.

    For functions of libraries it is the name alone. With `classes`, the methods of a class count too.
    """
    return _Reader(classes).function(function)


class _Reader:
    """Reads a function and all objects that it refers to, each once."""

    def __init__(self, classes: bool) -> None:
        self.classes = classes
        self.known: dict[int, str] = {}
        self.alive: list[Any] = []
        """Keeps the objects of `known`, whose ids could otherwise be reused."""

    def function(self, function: Any) -> str:
        if function is None:
            return ""
        if id(function) in self.known:
            return self.known[id(function)]
        self.alive.append(function)
        in_rows = own_in_rows(function)
        given: list[Any] = [] if in_rows is None else [in_rows]
        inner: Any = function
        while isinstance(inner, partial):
            given += [inner.args, sorted(inner.keywords.items())]
            inner = inner.func
        if isinstance(inner, types.MethodType):
            given += [inner.__self__, _methods(type(inner.__self__))]
            inner = inner.__func__
        inner = inspect.unwrap(inner)
        code = getattr(inner, "__code__", None)
        if code is None and not isinstance(inner, type) and hasattr(inner, "__dict__"):  # a callable object
            given += [vars(inner), _methods(type(inner))]
            inner = type(inner)
        module = getattr(inner, "__module__", None) or ""
        name = f"{module}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
        self.known[id(function)] = name  # for references back to it
        if code is not None and not _of_library(module):
            given += [list(_instructions(code)), inner.__defaults__, inner.__kwdefaults__]
            given += [list(_held(inner)), list(_used(inner, code))]
        if self.classes and isinstance(inner, type):
            given += _attributes(inner)
        if given:
            name += f"#{hashlib.sha256(repr(self.content(given)).encode()).hexdigest()[:12]}"
        self.known[id(function)] = name
        return name

    def content(self, value: Any) -> Any:
        """A representation of a value that is the same in every process."""
        if isinstance(value, list | tuple):
            return [self.content(one) for one in value]
        if isinstance(value, dict):
            return [(str(key), self.content(one)) for key, one in value.items()]
        if isinstance(value, set | frozenset):
            return sorted(str(self.content(one)) for one in value)
        if isinstance(value, np.ndarray | jax.Array) and not jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        if isinstance(value, types.ModuleType):
            return value.__name__
        if callable(value):
            return self.function(value)
        if not hasattr(value, "__dict__"):
            text = repr(value)
            return type(value).__qualname__ if " at 0x" in text else text
        if id(value) not in self.known:
            self.alive.append(value)
            self.known[id(value)] = name = type(value).__qualname__
            self.known[id(value)] = f"{name} {self.content(vars(value))}"
        return self.known[id(value)]


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
    """The functions of a class, inherited ones included."""
    own = (one for one in kind.__mro__ if not _of_library(one.__module__))
    return [(name, value) for one in own for name, value in sorted(vars(one).items()) if inspect.isfunction(value)]


def _attributes(kind: type) -> list[Any]:
    """The functions, properties and plain values of a class, inherited ones included."""
    own = (one for one in kind.__mro__ if not _of_library(one.__module__))
    found = ((name, getattr(value, "fget", value)) for one in own for name, value in sorted(vars(one).items()))
    plain = bool, int, float, str, tuple
    return [
        (name, value)
        for name, value in found
        if inspect.isfunction(value) or (isinstance(value, plain) and not name.startswith("__"))
    ]


def _of_library(module: str) -> bool:
    top = module.split(".")[0]
    if top in _LIBRARIES:
        return True
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    return any(folder in file for folder in _INSTALLED)


def _held(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            yield None


def _used(function: Any, code: types.CodeType) -> Iterator[Any]:
    """Globals, by name, and attributes of modules that are no libraries."""
    names = sorted(_names(code))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            if not _of_library(value.__name__):
                yield name, [(one, getattr(value, one)) for one in names if hasattr(value, one)]
        elif value is not None:
            yield name, value
