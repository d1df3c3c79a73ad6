"""The functions of a study: mechanisms, estimators and metrics, traced before any work, and what tells them apart."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import hashlib
import importlib
import importlib.util
import inspect
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from rrjax.data.arguments import float_dtype
from rrjax.data.errors import StudyError
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import METRICS
from rrjax.estimators.in_rows import Collections, own_in_rows
from rrjax.mechanisms import MechanismFactory
from rrjax.numerics.rows import WIDTH, Rows
from rrjax.study.arguments import refusal, shape_in_words
from rrjax.study.mechanisms import Collecting, JointCounts, estimate

if TYPE_CHECKING:
    from rrjax.study.study import Study

_LIBRARIES = {"builtins", "jax", "jaxlib", "numpy", "rrjax", *sys.stdlib_module_names}
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


def decomposes(study: Study) -> bool:
    """Whether the study needs the errors of single categories."""
    return not {"bias2", "variance"}.isdisjoint(study.metrics)


def metrics_of_seeds(study: Study) -> list[str]:
    """The metrics of single seeds; including the squared error if the decomposition needs it."""
    names = [name for name in study.metrics if name not in ("bias2", "variance")]
    return names if not decomposes(study) or "mse" in names else [*names, "mse"]


def measures_of(study: Study) -> list[Callable[..., Any]]:
    """The functions `f(estimate, truth, counts, epsilon)` of the metrics of single seeds."""

    def own(function):
        return lambda estimate, truth, counts, epsilon: function(estimate, truth)

    known = {name: metric.measure for name, metric in METRICS.items() if metric.measure is not None}
    return [known.get(name) or own(study.metrics[name]) for name in metrics_of_seeds(study)]


def known_epsilon(
    label: str, factory: MechanismFactory, num_categories: int, epsilons: tuple[float, ...]
) -> float | None:
    """The only ε, which determines a mechanism's parameters if a traced one cannot; else None."""
    try:
        abstract_tally(factory, num_categories, None)
        return None
    except Exception as error:
        failure = error
    if len(epsilons) == 1:
        try:
            abstract_tally(factory, num_categories, epsilons[0])
            return epsilons[0]
        except Exception as error:
            failure = error
    hint = ""
    if len(epsilons) > 1 and isinstance(failure, ValueError):
        name = getattr(factory, "__name__", "TheMechanism")
        hint = (
            f". One program serves all ε of a study: settle its parameters, as in mechanism={{'mine': "
            f"functools.partial({name}, …)}}, or study each ε alone"
        )
    raise StudyError.about(
        "mechanism", f"{label!r} failed for K = {num_categories} under jax.jit: {_words_of(failure)}{hint}", value=label
    ) from failure


def build_mechanism(
    factory: MechanismFactory, num_categories: int, epsilon: ArrayLike, known: float | None
) -> Collecting:
    """The mechanism at ε, its parameters chosen by the known ε if there is one."""
    mechanism = factory(num_categories, epsilon if known is None else known)
    if not isinstance(mechanism, Collecting):
        raise TypeError(f"it must return a SupportMechanism, got a {type(mechanism).__name__}")
    return mechanism if known is None else dataclasses.replace(cast("Any", mechanism), epsilon=epsilon)


def abstract_tally(factory: MechanismFactory, num_categories: int, known: float | None) -> Tally | JointCounts:
    """The tally (or joint counts) of a mechanism's collections, with abstract arrays; a ValueError if not of K."""

    def collect(key, true_counts, epsilon):
        return build_mechanism(factory, num_categories, epsilon, known).collect(key, true_counts)

    true_counts = jax.ShapeDtypeStruct((num_categories,), jnp.int32)
    key = jax.eval_shape(jax.random.key, 0)
    tally = jax.eval_shape(collect, key, true_counts, jax.ShapeDtypeStruct((), float_dtype()))
    if isinstance(tally, JointCounts):
        return tally
    if not isinstance(tally, Tally) or tally.support.shape != (num_categories,):
        came = f"one of {tally.support.shape}" if isinstance(tally, Tally) else f"a {type(tally).__name__}"
        raise ValueError(f"`collect` must return a Tally of {num_categories} categories, got {came}")
    return tally


def check_functions(study: Study, num_categories: int) -> None:
    """Checks the mechanisms, estimators and metrics of a study by tracing them."""
    counts = jax.ShapeDtypeStruct((num_categories,), jnp.int32)
    epsilon = jax.ShapeDtypeStruct((), float_dtype())
    key = jax.eval_shape(jax.random.key, 0)
    collections: dict[str, tuple[Any, Any]] = {f"counts [{num_categories}]": (counts, epsilon)}
    if study.mechanism is not None:
        tallies = {
            label: abstract_tally(factory, num_categories, known_epsilon(label, factory, num_categories, study.epsilon))
            for label, factory in study.mechanism.items()
        }
        # Most mechanisms have tallies of the same abstract arrays, which are traced once.
        distinct = {str(jax.tree.flatten(tally)): (label, tally) for label, tally in reversed(tallies.items())}
        collections = {f"a tally of {label}, without epsilon,": (tally, None) for label, tally in distinct.values()}
    for words, given in collections.items():
        for label, estimator in study.estimators.items():
            _check_estimator(label, partial(estimate, estimator), (num_categories,), words, (key, *given))
        theta = jax.ShapeDtypeStruct((num_categories,), float_dtype())
        for label, measure in zip(metrics_of_seeds(study), measures_of(study), strict=True):
            try:
                value = jax.eval_shape(measure, theta, theta, *given)
            except Exception as error:
                raise refusal("metrics", f"metric {label!r} failed under jax.jit: {_words_of(error)}", label) from error
            if getattr(value, "shape", None) != ():
                raise refusal(
                    "metrics", f"metric {label!r} must return a scalar, it returned {_returned(value)}", label
                )


def check_in_rows(study: Study) -> None:
    """Checks what estimators of one's own say that they are in rows, in the same way."""
    of_each = jax.ShapeDtypeStruct((4,), jnp.int32), jax.ShapeDtypeStruct((4,), float_dtype())
    for label, estimator in study.estimators.items():
        own = own_in_rows(estimator)
        if own is None:
            continue

        def computed(counts, num_users, epsilon, own=own):
            return own(Collections.of(Rows(4, jnp.int32(2), jnp.int32(3)), counts, num_users, epsilon))

        counts = jax.ShapeDtypeStruct((4, WIDTH), jnp.int32)
        _check_estimator(f"{label}.in_rows", computed, counts.shape, "counts in rows", (counts, *of_each))


def _check_estimator(
    label: str, function: Callable[..., Any], shape: tuple[int, ...], words: str, given: tuple[Any, ...]
) -> None:
    try:
        theta = jax.eval_shape(function, *given)
    except Exception as error:
        hint = ""
        if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
            hint = " It must be made of jax.numpy, and choose by jnp.where instead of if"
        raise refusal(
            "estimators", f"estimator {label!r} failed on {words} under jax.jit: {_words_of(error)}{hint}", label
        ) from error
    if getattr(theta, "shape", None) != shape or not jnp.issubdtype(theta.dtype, jnp.floating):
        size = " × ".join(map(str, shape))
        raise refusal(
            "estimators",
            f"estimator {label!r} must return the estimate, {size} floats, for {size} counts; "
            f"it returned {_returned(theta)}",
            label,
        )


def _words_of(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _returned(value: Any) -> str:
    if not hasattr(value, "shape"):
        return "nothing" if value is None else f"a {type(value).__name__}"
    return f"{shape_in_words(value.shape)} of {value.dtype}" if value.shape else f"a scalar of {value.dtype}"


def identity_of(function: Any) -> str:
    """The name of a function or class, with a hash of its code and of all objects that it contains or uses.

    Those are what its code names: in its module, in modules that it imports, and in classes. Of libraries, which are
    the modules that come with Python, rrjax and what is installed, it is the name alone.
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
            given += [inner.__self__, _attributes(type(inner.__self__))]
            inner = inner.__func__
        # A wrapper of one's own is read itself, and refers to what it wraps; of those of libraries, what they wrap.
        while hasattr(inner, "__wrapped__") and _of_library(_home_of(inner)):
            given += [inner.registry] if hasattr(inner, "registry") else []  # of `functools.singledispatch`
            inner = inner.__wrapped__
        code = getattr(inner, "__code__", None)
        if isinstance(inner, _BUILT_IN):
            owner = getattr(inner, "__self__", None)
            given += [] if owner is None or isinstance(owner, types.ModuleType) else [owner]
        elif code is None and not isinstance(inner, type):  # a callable object
            state = _state(inner)
            given += [_text_of(inner)] if state is None else [state, _attributes(type(inner))]
            inner = type(inner)
        module = getattr(inner, "__module__", None) or ""
        name = f"{module}.{getattr(inner, '__qualname__', type(inner).__qualname__)}"
        self.known[id(function)] = name  # for references back to it
        if code is not None and not _of_library(_home_of(inner)):
            given += [list(_instructions(code)), inner.__defaults__, inner.__kwdefaults__]
            given += [list(_held(inner)), list(_used(inner, code)), vars(inner)]
        if isinstance(inner, type):
            given += _attributes(inner)
        if given:
            name += f"#{hashlib.sha256(repr(self.content(given)).encode()).hexdigest()[:12]}"
        self.known[id(function)] = name
        return name

    def content(self, value: Any) -> Any:
        """A representation of a value that is the same in every process."""
        if type(value) in _PLAIN:
            return repr(value)
        if isinstance(value, list | tuple | deque):
            return [self.content(one) for one in value]
        if isinstance(value, Mapping):
            factory = getattr(value, "default_factory", None)
            return [self.content(factory), *((self.content(key), self.content(one)) for key, one in value.items())]
        if isinstance(value, set | frozenset):
            return sorted(str(self.content(one)) for one in value)
        if isinstance(value, Enum):  # which refers to its class, and that to all members
            methods = [each for each in _attributes(type(value)) if inspect.isfunction(each[1])]
            return type(value).__qualname__, value.name, self.content([value.value, *methods])
        if isinstance(value, np.ndarray) and value.dtype == object:
            return value.shape, self.content(value.ravel().tolist())
        if isinstance(value, np.ndarray | jax.Array) and not jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            return str(value.dtype), value.shape, hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        if isinstance(value, types.ModuleType):  # that is held as a value: all of it
            return value.__name__, _digest_of(value)
        if callable(value):
            return self.function(value)
        if (state := _state(value)) is None:
            return _text_of(value)
        if id(value) not in self.known:
            self.alive.append(value)
            self.known[id(value)] = name = type(value).__qualname__
            self.known[id(value)] = f"{name} {self.content([state, *_attributes(type(value))])}"
        return self.known[id(value)]


def _text_of(value: Any) -> str:
    """A text that is the same in every process."""
    text = " at 0x"  # of an object that cannot be written
    with contextlib.suppress(Exception):
        text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text


def _digest_of(module: types.ModuleType) -> str:
    """A digest of the file of a module; of a library, and without a file, nothing."""
    file = getattr(module, "__file__", None)
    if file is None or _of_library(module.__name__):
        return ""
    with contextlib.suppress(OSError):
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return ""


def _instructions(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code
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
    own = (one for one in kind.__mro__ if not _of_library(one.__module__))
    members = ((name, _function_in(value)) for one in own for name, value in sorted(vars(one).items()))
    return [(name, value) for name, value in members if _counts(name, value)]


def _counts(name: str, value: Any) -> bool:
    """Whether a class says something by a value: of those with two underscores only functions, also decorated ones."""
    return not name.startswith("__") or (callable(value) and inspect.isfunction(inspect.unwrap(value)))


def _function_in(member: Any) -> Any:
    """The function of a property, a cached one, a static or class method; else the member itself."""
    if isinstance(member, partialmethod):
        return _function_in(member.func), member.args, member.keywords
    functions = (getattr(member, name, None) for name in ("fget", "func", "__func__"))
    return next((each for each in functions if inspect.isfunction(each)), member)


def _state(value: Any) -> dict[str, Any] | None:
    """The attributes of an object; None for one without any, such as a number."""
    names = []
    for one in type(value).__mro__:
        own = vars(one).get("__slots__", ())
        own = [own] if isinstance(own, str) else sorted(own)
        # Python writes the class before the name of a private one.
        names += [f"_{one.__name__.lstrip('_')}{name}" if name.startswith("__") else name for name in own]
    slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {**getattr(value, "__dict__", {}), **slots} if hasattr(value, "__dict__") or slots else None


def _home_of(function: Any) -> str:
    """The module of a function's code or of an object's class; a wrapper has the name of what it wraps."""
    own = getattr(function, "__globals__", None)
    return type(function).__module__ if own is None else str(own.get("__name__", ""))


def _of_library(module: str) -> bool:
    top = module.split(".")[0]
    if top in _LIBRARIES:
        return True
    file = getattr(sys.modules.get(top), "__file__", None)
    if top not in sys.modules:
        with contextlib.suppress(ImportError, ValueError):  # of what is no name of a module
            file = getattr(importlib.util.find_spec(top), "origin", None)
    return any(folder in (file or "") for folder in _INSTALLED)


def _held(function: Any) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            yield None


def _used(function: Any, code: types.CodeType) -> Iterator[tuple[str, Any]]:
    """Globals, by name, and attributes of modules that are no libraries, also of those that the function imports."""
    known = {name for each in _codes(code) for name in each.co_names}
    if not known.isdisjoint(_BY_TEXT):
        texts = {text for each in _codes(code) for text in each.co_consts if isinstance(text, str)}
        known |= {text for text in texts if text.isidentifier()}
    names = sorted(known)
    modules = {module.__name__: module for module in _imported(function, code)}
    for name in names:
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
        for name in names:
            value = getattr(module, name, None)
            if not isinstance(value, types.ModuleType):
                yield f"{module.__name__}.{name}", value
            elif value.__name__ not in seen:
                modules[value.__name__] = value


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
