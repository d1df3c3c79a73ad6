"""Functions that the file of a study names as "module:function", of modules in its folder.

Python keeps one module of a name in a process. Those of two studies may have the same names, so while the modules of
one are imported, those of the other are set aside.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from rrjax.data.errors import StudyError
from rrjax.study.arguments import refusal

_own: dict[Path, dict[str, ModuleType]] = {}
"""The modules of the folder of each study that was read, by name, as they were left."""
_lock = threading.RLock()


def function_named(value: str, argument: str, path: Path) -> Any:
    """The function that "module:function" in the study file `path` names; a module is imported once in a process."""
    module, _, name = value.partition(":")
    try:
        with _modules_of(path.resolve().parent, module.partition(".")[0]):
            function = getattr(importlib.import_module(module), name)
    except StudyError:
        raise
    except Exception as error:
        raise refusal(argument, f"{value!r} cannot be imported: {type(error).__name__}: {error}", value) from error
    if not callable(function):
        raise refusal(argument, f"{value!r} is not a function", value)
    return function


@contextmanager
def _modules_of(folder: Path, asked: str) -> Iterator[None]:
    """Imports find the modules of a folder first.

    Modules of other studies that have the name of one in this folder are set aside meanwhile, and so is one of the name
    that is `asked` for, wherever it is from.
    """
    with _lock:
        own = _own.setdefault(folder, {})
        others = [each for each in _own if each != folder]
        tops = {name.partition(".")[0] for name in own}
        for name, module in list(sys.modules.items()):
            if _hides_one(module, top := name.partition(".")[0], folder, others, asked):
                tops.add(top)
        aside = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in tops}
        for name in aside:
            del sys.modules[name]
        sys.modules.update(own)
        sys.path[:] = [str(folder), *(each for each in sys.path if each != str(folder))]
        importlib.invalidate_caches()
        try:
            yield
        finally:
            own.update((name, each) for name, each in sys.modules.items() if name.partition(".")[0] in tops)
            for name in own:
                sys.modules.pop(name, None)
            sys.modules.update(aside)


def _hides_one(module: ModuleType, top: str, folder: Path, others: list[Path], asked: str) -> bool:
    """Whether a module of other studies, or of the name that is asked for, hides one in this folder."""
    file = getattr(module, "__file__", None)
    path = file or next(iter(getattr(module, "__path__", ())), None)
    if not isinstance(path, str) or "site-packages" in (place := Path(path)).parts:
        return False
    # A folder without __init__.py is a module, too, where no other one has its name.
    is_module = any((folder / each).is_file() for each in (f"{top}.py", f"{top}/__init__.py"))
    if not (is_module or (file is None and (folder / top).is_dir())):
        return False
    places = place, place.resolve()
    if any(each.is_relative_to(folder / top) or each == folder / f"{top}.py" for each in places):
        return False
    return top == asked or any(each.is_relative_to(other) for each in places for other in others)
