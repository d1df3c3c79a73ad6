"""Functions that the file of a study names as "module:function", of modules in its folder.

Python keeps one module of a name in a process, and functions may import it when they run. So a study whose modules have
the names of those of another one is refused.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from rrjax.data.errors import StudyError
from rrjax.study.arguments import refusal

_folders: set[Path] = set()
"""Those of the studies that were read."""
_lock = threading.RLock()
_SUFFIXES = tuple(all_suffixes())
"""Of the names of modules' files: sources and compiled ones."""


def function_named(value: str, argument: str, path: Path) -> Any:
    """The function that "module:function" in the study file `path` names; a module is imported once in a process."""
    module, _, name = value.partition(":")
    try:
        with _modules_of(path.resolve().parent, module.partition(".")[0], argument):
            function = getattr(importlib.import_module(module), name)
    except StudyError:
        raise
    except Exception as error:
        raise refusal(argument, f"{value!r} cannot be imported: {type(error).__name__}: {error}", value) from error
    if not callable(function):
        raise refusal(argument, f"{value!r} is not a function", value)
    return function


@contextmanager
def _modules_of(folder: Path, asked: str, argument: str) -> Iterator[None]:
    """Imports find the modules of a folder first; refuses them if others of their names are there already.

    These are modules of other studies, and of the name that is `asked` for from elsewhere. They are set aside
    meanwhile: only names that are imported are refused.
    """
    with _lock:
        _folders.add(folder)
        here = {
            each.name.partition(".")[0] for each in folder.iterdir() if each.name.endswith(_SUFFIXES) or each.is_dir()
        }
        named = [(name, name.partition(".")[0], module) for name, module in list(sys.modules.items())]
        hiding = {
            top: module
            for name, top, module in named
            if top in here and _hides_one(module, name, folder, is_asked=top == asked)
        }
        aside = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in hiding}
        for name in aside:
            del sys.modules[name]
        sys.path[:] = [str(folder), *(each for each in sys.path if each != str(folder))]
        importlib.invalidate_caches()
        before = {*sys.modules}
        try:
            yield
        finally:
            imported = [name for name in sys.modules if name.partition(".")[0] in hiding]
            # Also those that have imported them.
            new = [name for name in {*sys.modules} - before if _is_below(sys.modules[name], folder)]
            for name in {*imported, *(new if imported else ())}:
                del sys.modules[name]
            sys.modules.update(aside)
        if imported:
            top = imported[0].partition(".")[0]
            other = _places_of(hiding[top])[0]
            raise refusal(
                argument,
                f"the module {top!r} is in {folder}, and one of its name is imported from {other}: "
                "rename one of them, or read the study in a process of its own",
                top,
            )


def _is_below(module: Any, folder: Path) -> bool:
    places = _places_of(module)  # not of a package that is installed there: some cannot be imported twice
    return any(each.is_relative_to(folder) and "site-packages" not in each.parts for each in places)


def _places_of(module: Any) -> list[Path]:
    """The file of a module, or the folders of one that has none; empty without either."""
    try:
        return [Path(module.__file__)] if module.__file__ else [Path(each) for each in module.__path__]
    except Exception:  # built in, or anything that somebody has put there
        return []


def _hides_one(module: Any, name: str, folder: Path, is_asked: bool) -> bool:
    """Whether a module of another study, or one that is asked for, has the name of one in this folder."""
    if not (places := _places_of(module)):
        return False
    top, _, below = name.partition(".")
    own = [folder / f"{stem}{suffix}" for stem in (top, f"{top}/__init__") for suffix in _SUFFIXES]
    # A folder without __init__.py is a module, too, where no other one has its name.
    is_module, is_folder = any(each.is_file() for each in own), getattr(module, "__file__", None) is None
    if not (is_module or is_folder or below):
        return False
    real = {each.resolve() for each in places}
    if below:
        is_own = any(each.is_relative_to((folder / top).resolve()) for each in real)
    else:  # a module in a folder of that name is another one
        is_own = not real.isdisjoint(each.resolve() for each in ([folder / top] if is_folder else own))
    if is_own:
        return False
    others = _folders - {folder} if "site-packages" not in places[0].parts else ()
    return (is_asked and is_module) or any(each.is_relative_to(other) for each in {*places, *real} for other in others)
