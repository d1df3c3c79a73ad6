"""What tells the functions of a study apart, so that results are never those of another function: their programs.

A study calls its functions under `jax.jit`, so all that they compute is in the programs that JAX makes of them: their
code, and the values of all objects, files and settings that this code read. The texts of these programs hold all
constants, and are the same in every process.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from rrjax.study.functions import Call, calls_in_rows, calls_of

if TYPE_CHECKING:
    from rrjax.study.study import Study

_CALLBACK = re.compile(r"custom_call @\S*callback")
"""What a program has in place of a function of Python that it calls when it runs."""


def identities_of(
    study: Study,
    sizes: Iterable[int],
    mechanisms: Iterable[str] | None = None,
    arguments: Iterable[str] = ("estimators", "metrics", "mechanism"),
) -> dict[str, dict[str, str]]:
    """The name of each estimator, metric and mechanism, with a hash of its programs for these K; by argument and label.

    Of functions that rrjax has under their names it is the name alone, and of metrics by name nothing. A function that
    calls Python when it runs (`jax.pure_callback`) is another one each time: its program does not say what it calls.
    """
    functions = {argument: getattr(study, argument) or {} for argument in arguments}
    own = {
        (argument, label): hashlib.sha256()
        for argument, labelled in functions.items()
        for label, function in labelled.items()
        if function is not None and not _is_of_rrjax(function)
    }

    def add(call: Call, program: Any) -> None:
        own[call.argument, call.label].update(_text_of(program, call.given).encode())

    for size in sizes if own else ():
        for call in calls_of(study, size, mechanisms):
            if (call.argument, call.label) in own:
                batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape), leaf.dtype), call.given)
                add(call._replace(given=batch), jax.vmap(call.function))  # as tiles do
    for call in calls_in_rows(study) if "estimators" in functions else ():
        add(call, call.function)
    hashes = {place: f"#{digest.hexdigest()[:12]}" for place, digest in own.items()}
    return {
        argument: {label: _name_of(each) + hashes.get((argument, label), "") for label, each in labelled.items()}
        for argument, labelled in functions.items()
    }


def _text_of(function: Any, given: tuple[Any, ...]) -> str:
    # JAX remembers what it traced of a function, so that a global that was replaced would not count.
    text = jax.jit(lambda *arguments: function(*arguments)).lower(*given).as_text()
    return text + secrets.token_hex(8) if _CALLBACK.search(text) else text


def _name_of(function: Any) -> str:
    if function is None:
        return ""
    while isinstance(function, partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, partial) else function.__wrapped__
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _is_of_rrjax(function: Any) -> bool:
    """Whether rrjax has a function or class under its name."""
    module, name = getattr(function, "__module__", None) or "", getattr(function, "__qualname__", "")
    return module.split(".")[0] == "rrjax" and getattr(sys.modules.get(module), name, None) is function
