"""What tells the functions of a study apart, so that results are never those of another function: their programs.

A study calls its functions under `jax.jit`, so all that they compute is in the programs that JAX makes of them: their
code, and the values of all objects, files and settings that this code read. The texts of these programs hold all
constants, and are the same in every process.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, cast

import jax

from rrjax.estimators.in_rows import own_in_rows
from rrjax.study.functions import Call, calls_in_rows, calls_of

if TYPE_CHECKING:
    from rrjax.study.study import Study

CALLS_PYTHON = "+python"
"""The end of what tells functions apart that call Python for a value when they run: their program does not say how."""
_CALLBACK = re.compile(r"custom_call @\S*callback.* -> (?!\(\)$)", re.MULTILINE)
"""Such a call in the text of a program; `jax.debug.print` has no value."""


def identities_of(
    study: Study,
    sizes: Iterable[int],
    mechanisms: Iterable[str] | None = None,
    arguments: Iterable[str] = ("estimators", "metrics", "mechanism"),
    height: int | None = None,
) -> dict[str, dict[str, str]]:
    """The name of each estimator, metric and mechanism, with a hash of its programs; by argument and label.

    These are for each of the sizes K; and, if the height of a tile is given, in its rows. Of functions that rrjax has
    under their names it is the name alone, and of metrics by name nothing. It ends in `CALLS_PYTHON` for functions that
    call Python for a value when they run, as by `jax.pure_callback`.
    """
    functions = {argument: getattr(study, argument) or {} for argument in arguments}
    own = {
        (argument, label): hashlib.sha256()
        for argument, labelled in functions.items()
        for label, function in labelled.items()
        if function is not None and not _is_of_rrjax(function)
    }

    for argument, label in own:
        _trace_anew(functions[argument][label])
    calls = [each for size in sizes if own for each in calls_of(study, size, mechanisms)]
    calls += [] if height is None else calls_in_rows(study, height)
    unknown = set()
    for call in calls:
        if (place := (call.argument, call.label)) in own:
            text = _text_of(call)
            if not text and own_in_rows(functions[call.argument][call.label]) is None:
                text = token_hex(8)  # nothing is known of it; the study's check says why
            own[place].update(text.encode())
            unknown |= {place} if _CALLBACK.search(text) else set()
    hashes = {
        place: f"#{digest.hexdigest()[:12]}{CALLS_PYTHON if place in unknown else ''}" for place, digest in own.items()
    }
    return {
        argument: {label: _name_of(each) + hashes.get((argument, label), "") for label, each in labelled.items()}
        for argument, labelled in functions.items()
    }


def calling_python(functions: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The labels of the functions that call Python for a value."""
    return [label for each in functions.values() for label, name in each.items() if name.endswith(CALLS_PYTHON)]


def unlike_others(functions: Mapping[str, Mapping[str, str]]) -> object:
    """Equal to itself alone if one of the functions calls Python for a value: no other program may be taken for it."""
    return object() if calling_python(functions) else None


def _text_of(call: Call) -> str:
    """The text of a call's program, of several collections at once, as in tiles; empty if it cannot be traced."""
    several = jax.tree.map(lambda leaf: _abstract((2, *leaf.shape), leaf), call.given)
    alone = call.function, call.given
    for function, given in [alone] if call.in_rows else [(jax.vmap(call.function), several), alone]:
        with contextlib.suppress(Exception):
            # JAX remembers what it traced of a function, and would not read globals anew: this one is new.
            return jax.jit(lambda *arguments, of=function: of(*arguments)).lower(*given).as_text()
    return ""


def _abstract(shape: tuple[int, ...], leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, leaf.dtype, weak_type=getattr(leaf, "weak_type", False))


def _trace_anew(function: Any) -> None:
    """What `jax.jit` knows of a function would hide that a global, or an object that it holds, is another one now."""
    for layer in _layers(function):
        for each in (layer, type(layer).__call__):
            # Not those of rrjax, whose compiled programs others use.
            if isinstance(each, jax.stages.Wrapped) and hasattr(each, "clear_cache") and not _is_of_rrjax(each):
                cast("Any", each).clear_cache()


def _layers(function: Any) -> Iterator[Any]:
    """A function, what it is a part, a method or a wrapper of, and so on."""
    while function is not None:
        yield function
        inner = function.func if isinstance(function, partial) else getattr(function, "__wrapped__", None)
        function = getattr(function, "__func__", None) if inner is None else inner


def _name_of(function: Any) -> str:
    if function is None:
        return ""
    *_, function = _layers(function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _is_of_rrjax(function: Any) -> bool:
    """Whether rrjax has a function or class under its name."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    return module.split(".")[0] == "rrjax" and getattr(sys.modules.get(module), name, None) is function
