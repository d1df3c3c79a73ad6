"""What tells the functions of a study apart, so that results are never those of another function.

A function is its code and all objects that the code refers to. Objects are read as pickle writes them (by
`__reduce_ex__`), which knows the values of every class, also of those in C; unlike pickle it reads code, and needs no
object to be importable. Of libraries, which are the modules that come with Python, JAX, NumPy, rrjax and what is
installed, a function or class that can be imported is its name; another one, such as a closure of optax or what
`jax.grad` returns, is read, too.
"""

from __future__ import annotations

import contextlib
import dis
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property, partial, partialmethod, singledispatchmethod
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rrjax.data.errors import StudyError
from rrjax.estimators.in_rows import own_in_rows

_CORE = {"jax", "jaxlib", "numpy", "rrjax"}
_STANDARD = {"builtins", *sys.stdlib_module_names}
_INSTALLED = ("site-packages", "dist-packages")
_PLAIN = bool, int, float, complex, str, bytes, type(None)
_BUILT_IN: tuple[Any, ...] = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)
_BY_TEXT = {"getattr", "globals", "vars", "attrgetter", "methodcaller", "__dict__"}
"""What finds objects by a text that is their name."""
_PROTOCOL = 4
"""Of pickle; in later ones some objects hand out memory instead of values."""


def identity_of(function: Any) -> str:
    """The name of a function or class, with a hash of its code and of all objects that it contains or uses.

    Those are what its code names: in its module, in modules that it imports, and in classes. Not what it reads when it
    runs, such as files and the environment.
    """
    try:
        return _Reader().function(function)
    except RecursionError as error:
        problem = f"{function!r} refers to objects in too many levels, or to itself, to be told from another one"
        raise StudyError.about("estimators", problem) from error


class _Reader:
    """Reads a function and all objects that it refers to, each once."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        self.alive: list[Any] = []
        """Keeps the objects of `known`, whose ids could otherwise be reused."""

    def function(self, function: Any) -> str:
        """The name and hash of whatever can be called."""
        if function is None:
            return ""
        if id(function) in self.known:
            return self.known[id(function)]
        self.alive.append(function)
        in_rows = own_in_rows(function)
        given: list[Any] = [] if in_rows is None else [in_rows]
        inner = function
        while (layer := _layer(inner)) is not None:
            inner, held = layer
            given += held
        named = inner if isinstance(inner, (types.FunctionType, type, *_BUILT_IN)) else type(inner)
        module = _module_of(named)
        name = f"{module}.{named.__qualname__}"
        self.known[id(function)] = name  # for references back to it
        if isinstance(inner, _BUILT_IN):
            owner = getattr(inner, "__self__", None)
            given += [] if owner is None or isinstance(owner, types.ModuleType) else [owner]
        elif isinstance(inner, types.FunctionType):
            given += _of_function(inner)
        elif isinstance(inner, type):
            given += _of_class(inner)
        else:
            given += self.parts_of(inner)
        given += _version_of(module)
        if given:
            name += f"#{_hash_of(self.content(given))}"
        self.known[id(function)] = name
        return name

    def content(self, value: Any) -> Any:
        """A representation of a value that is the same in every process."""
        kind = type(value)
        if kind in _PLAIN:
            return repr(value)
        if kind in (list, tuple):
            return [self.content(one) for one in value]
        if kind in (dict, types.MappingProxyType):
            return [(self.content(key), self.content(one)) for key, one in value.items()]
        if isinstance(value, types.ModuleType):  # that is held as a value: all of it
            return value.__name__, _digest_of(value)
        if kind is np.ndarray and value.dtype == object:
            return value.shape, self.content(value.ravel().tolist())
        if kind is np.ndarray or isinstance(value, jax.Array):
            return _of_array(value)
        if callable(value):
            return self.function(value)
        if id(value) not in self.known:
            self.alive.append(value)
            self.known[id(value)] = kind.__qualname__  # for references back to it
            self.known[id(value)] = f"{kind.__qualname__} {_hash_of(self.content(self.parts_of(value)))}"
        return self.known[id(value)]

    def parts_of(self, value: Any) -> list[Any]:
        """The class of an object, and its values."""
        kind = type(value)
        if isinstance(value, Enum):  # which refers to its class, and that to all members
            methods = [each for each in _attributes(kind) if inspect.isfunction(each[1])]
            return [kind.__qualname__, value.name, value.value, *methods]
        if isinstance(value, set | frozenset):
            return [kind, sorted(str(self.content(one)) for one in value), _state(value)]
        try:
            reduced = value.__reduce_ex__(_PROTOCOL)
        except Exception:  # it cannot be pickled
            state = _state(value)
            return [kind, _text_of(value) if state is None else state]
        if isinstance(reduced, str):
            return [kind, reduced]
        made_by, arguments, state, *more = (*reduced, None, None, None)[:5]
        return [kind, made_by, arguments, _without_caches(kind, state), *(None if it is None else [*it] for it in more)]


def _hash_of(content: Any) -> str:
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]


def _layer(function: Any) -> tuple[Any, list[Any]] | None:
    """What a partial, a bound method or a wrapper is around, and what else it holds; None for another function.

    A wrapper of one's own is no layer: it is read itself, and refers to what it wraps.
    """
    if isinstance(function, partial):
        return function.func, [function.args, sorted(function.keywords.items())]
    if isinstance(function, types.MethodType):
        return function.__func__, [function.__self__]
    inner = getattr(function, "__wrapped__", None)
    if isinstance(function, type) or inner is None or not _of_library(_home_of(function)):
        return None
    if hasattr(function, "registry"):  # of `functools.singledispatch`, beside a cache
        return inner, [function.registry]
    if not isinstance(function, types.FunctionType):  # such as `jax.jit` and `jax.custom_jvp`
        state = {name: value for name, value in (_state(function) or {}).items() if not name.startswith("__")}
        return inner, [type(function).__qualname__, state]
    if _home_of(function).split(".")[0] in _STANDARD or _can_be_imported(function):
        return inner, []
    return inner, [function.__code__.co_qualname, list(_held(function))]  # such as `jax.grad`


def _of_function(function: types.FunctionType) -> list[Any]:
    """What a function holds; of one that a library has under its name nothing."""
    code = function.__code__
    own = not _of_library(_home_of(function))
    if not own and _can_be_imported(function):
        return []
    parts = [list(_instructions(code)), function.__defaults__, function.__kwdefaults__, list(_held(function))]
    return [*parts, list(_used(function, code)), vars(function)] if own else parts


def _of_class(kind: type) -> list[Any]:
    """The attributes of a class, and of a metaclass of one's own."""
    return [*_attributes(kind), *_attributes(type(kind))]


def _module_of(named: Any) -> str:
    module = getattr(named, "__module__", None)
    return module if isinstance(module, str) else ""  # classes of Cython have a descriptor


def _of_array(value: Any) -> tuple[str, tuple[int, ...], str]:
    kind = str(value.dtype)
    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return kind, value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()


def _text_of(value: Any) -> str:
    """A text that is the same in every process."""
    text = " at 0x"  # of an object that cannot be written
    with contextlib.suppress(Exception):
        text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text


def _digest_of(module: types.ModuleType) -> str:
    """A digest of the file of a module; of a library, and without a file, nothing."""
    return "" if _of_library(module.__name__) else _digest_of_file(module)


def _digest_of_file(module: types.ModuleType | None) -> str:
    with contextlib.suppress(OSError, TypeError):
        return hashlib.sha256(Path(getattr(module, "__file__", None)).read_bytes()).hexdigest()  # pyright: ignore
    return ""


def _version_of(module: str) -> list[Any]:
    """The version of an installed module: that of its package, and a digest of its file."""
    top = module.split(".")[0]
    if top in _CORE or not _of_library(module) or _is_standard(top):
        return []
    return [getattr(sys.modules.get(top), "__version__", None), _digest_of_file(sys.modules.get(module))]


def _instructions(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code
    yield code.co_exceptiontable
    yield code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield list(_instructions(constant))
        else:
            yield constant


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _attributes(kind: type) -> list[tuple[str, Any]]:
    """The functions, properties and values of a class, inherited ones included."""
    own = (one for one in kind.__mro__ if not _of_library(_module_of(one)))
    members = ((name, value) for one in own for name, value in sorted(vars(one).items()))
    return [(name, _function_in(value)) for name, value in members if _counts(name, value)]


def _counts(name: str, value: Any) -> bool:
    """Whether a class says something by a value: of those with two underscores only functions, also decorated ones."""
    inner = _function_in(value)
    return (
        not name.startswith("__")
        or isinstance(inner, partialmethod | singledispatchmethod)
        or (callable(inner) and inspect.isfunction(inspect.unwrap(inner)))
    )


def _function_in(member: Any) -> Any:
    """The function of a property, a cached one, a static or class method; else the member itself."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


def _state(value: Any) -> dict[str, Any] | None:
    """The attributes of an object; None for one without any, such as a number."""
    names = []
    for one in type(value).__mro__:
        own = vars(one).get("__slots__", ())
        own = [own] if isinstance(own, str) else sorted(own)
        # Python writes the class before the name of a private one.
        names += [f"_{one.__name__.lstrip('_')}{name}" if name.startswith("__") else name for name in own]
    slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    if not hasattr(value, "__dict__") and not slots:
        return None
    return {**_without_caches(type(value), getattr(value, "__dict__", {})), **slots}


def _without_caches(kind: type, state: Any) -> Any:
    """A state without the values of cached properties, which come with their first use."""
    if not isinstance(state, Mapping):
        return state
    return {name: one for name, one in state.items() if not isinstance(_member(kind, name), cached_property)}


def _member(kind: type, name: Any) -> Any:
    return next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)


def _home_of(function: Any) -> str:
    """The module of a function's code or of an object's class; a wrapper has the name of what it wraps."""
    own = getattr(function, "__globals__", None)
    return _module_of(type(function)) if own is None else str(own.get("__name__", ""))


def _can_be_imported(function: Any) -> bool:
    """Whether a module has a function under its name."""
    found: Any = sys.modules.get(_module_of(function))
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return getattr(found, "__func__", found) is function


def _of_library(module: str) -> bool:
    top = module.split(".")[0]
    if top in _CORE or _is_standard(top):
        return True
    return any(folder in (_file_of(top) or "") for folder in _INSTALLED)


def _is_standard(top: str) -> bool:
    """Whether a module comes with Python; one of one's own may have the same name."""
    if top not in _STANDARD:
        return False
    file = _file_of(top)
    return file is None or not os.path.isabs(file) or file.startswith(os.path.dirname(os.__file__))


def _file_of(top: str) -> str | None:
    if top in sys.modules:
        return getattr(sys.modules[top], "__file__", None)
    with contextlib.suppress(ImportError, ValueError):  # of what is no name of a module
        return getattr(importlib.util.find_spec(top), "origin", None)
    return None


def _held(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            yield None


def _used(function: Any, code: types.CodeType) -> Iterator[tuple[str, Any]]:
    """Globals, by name, and attributes of modules that are no libraries, also of those that the function imports."""
    names = {name for each in _codes(code) for name in each.co_names}
    globals_of = {name for each in _codes(code) for name in _globals_in(each)}
    if not names.isdisjoint(_BY_TEXT):
        texts = {text for each in _codes(code) for text in each.co_consts if isinstance(text, str)}
        texts = {text for text in texts if text.isidentifier()}
        names, globals_of = names | texts, globals_of | texts
    modules = {module.__name__: module for module in _imported(function, code)}
    for name in sorted(globals_of):
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            modules[value.__name__] = value
        elif value is not None:
            yield name, value
    seen: set[str] = set()
    while modules:
        module = modules.pop(min(modules))
        seen.add(module.__name__)
        if _of_library(module.__name__):
            continue
        for name in sorted(names):
            value = getattr(module, name, None)
            if not isinstance(value, types.ModuleType):
                yield f"{module.__name__}.{name}", value
            elif value.__name__ not in seen:
                modules[value.__name__] = value


def _globals_in(code: types.CodeType) -> set[str]:
    """The names that code looks up in its module; others are of attributes."""
    found = (each for each in dis.get_instructions(code) if each.opname.startswith("LOAD_"))
    return {each.argval for each in found if "GLOBAL" in each.opname or each.opname == "LOAD_NAME"}


def _imported(function: Any, code: types.CodeType) -> Iterator[types.ModuleType]:
    """The modules that the code of a function imports, which it would import at its first call."""
    names: set[str] = set()
    for one in _codes(code):
        instructions = [each for each in dis.get_instructions(one) if each.opname != "EXTENDED_ARG"]
        for level, listed, each in zip(instructions, instructions[1:], instructions[2:], strict=False):
            if each.opname == "IMPORT_NAME":
                package = function.__globals__.get("__package__")
                with contextlib.suppress(ImportError):  # the package is not known: the function's own error says more
                    name = importlib.util.resolve_name("." * level.argval + each.argval, package)
                    names |= {name, *(f"{name}.{what}" for what in listed.argval or ())}  # which may be modules, too
    for name in sorted(names):
        if not _of_library(name):
            with contextlib.suppress(Exception, SystemExit):
                importlib.import_module(name)
            if name in sys.modules:
                yield sys.modules[name]
