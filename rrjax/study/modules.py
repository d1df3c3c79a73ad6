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
from pathlib import Path
from typing import Any

from rrjax.data.errors import StudyError
from rrjax.study.arguments import refusal

_folders: set[Path] = set()
"""Those of the studies that were read."""
_lock = threading.RLock()


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
        here = {each.stem for each in folder.iterdir() if each.suffix == ".py" or each.is_dir()}
        named = [(name.partition(".")[0], module) for name, module in list(sys.modules.items())]
        hiding = {top: module for top, module in named if top in here and _hides_one(module, top, folder, top == asked)}
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
            raise refusal(
                argument,
                f"the module {top!r} is in {folder}, and one of its name is imported from {_place_of(hiding[top])}: "
                "rename one of them, or read the study in a process of its own",
                top,
            )


def _is_below(module: Any, folder: Path) -> bool:
    place = _place_of(module)  # not of a package that is installed there: some cannot be imported twice
    return place is not None and place.is_relative_to(folder) and "site-packages" not in place.parts


def _place_of(module: Any) -> Path | None:
    """The file of a module, or the first folder of one that is several; None without one."""
    try:
        place = module.__file__ or next(iter(module.__path__))
        return Path(place)
    except Exception:  # built in, or anything that somebody has put there
        return None


def _hides_one(module: Any, top: str, folder: Path, is_asked: bool) -> bool:
    """Whether a module of another study, or one that is asked for, has the name of one in this folder."""
    if (place := _place_of(module)) is None:
        return False
    # A folder without __init__.py is a module, too, where no other one has its name.
    is_module = any((folder / each).is_file() for each in (f"{top}.py", f"{top}/__init__.py"))
    if not is_module and getattr(module, "__file__", None) is not None:
        return False
    places = place, place.resolve()
    bases = folder / top, (folder / top).resolve(), (folder / f"{top}.py").resolve()
    compiled = place.parent == folder and place.name.partition(".")[0] == top
    if compiled or any(each.is_relative_to(base) for each in places for base in bases):
        return False
    others = [each for each in _folders if each != folder and "site-packages" not in place.parts]
    return (is_asked and is_module) or any(each.is_relative_to(other) for each in places for other in others)
