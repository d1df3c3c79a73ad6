"""Studies from TOML files."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rrjax.data.errors import StudyError
from rrjax.study.arguments import check_run
from rrjax.study.study import Study

_STUDY = (
    "estimators",
    "mechanism",
    "num_categories",
    "num_users",
    "epsilon",
    "zipf",
    "distributions",
    "users",
    "num_seeds",
    "estimand",
    "metrics",
)
_RUN = ("seed", "quantiles", "keep_seeds", "batch_size")


def read_study(path: str | Path) -> tuple[Study, dict[str, Any]]:
    """Reads a study from a TOML file.

    Its keys are the arguments of `Study`, and `seed`, `quantiles`, `keep_seeds` and `batch_size` of `Study.run`.
    Estimators, mechanisms, metrics and distributions of one's own are written "module:function"; modules beside the
    file are found.

    Args:
        path: The file.

    Returns:
        The study, and the arguments for `Study.run`.

    Raises:
        StudyError: The file cannot be read, is not TOML, or says something that makes no sense; its `file`, `argument`
            and `value` say where and what.

    Example:
        A function of one's own would be `mine = "my_module:my_estimator"` among the estimators.

        >>> import pathlib, tempfile
        >>> from rrjax.study import read_study
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "study.toml"
        >>> _ = file.write_text('''
        ... num_categories = [100, 1000]
        ... num_users = [10_000, 1_000_000]
        ... epsilon = [1, 2, 4]
        ... zipf = [0.01, 1.3]
        ... num_seeds = 50
        ... [estimators]
        ... mle_star = "mle_star"
        ... ''')
        >>> study, arguments = read_study(file)
        >>> len(study.configurations()), arguments
        (24, {})
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}", file=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} is not TOML: {error}", file=path) from error
    unknown = sorted(set(table) - {*_STUDY, *_RUN})
    if unknown:
        raise StudyError(
            f"{path}: unknown {', '.join(unknown)}; known are {', '.join((*_STUDY, *_RUN))}",
            argument=unknown[0],
            file=path,
        )
    try:
        table = {name: _resolved(value, name, path) for name, value in table.items()}
        arguments = {name: table.pop(name) for name in _RUN if name in table}
        for required in ("estimators", "epsilon"):
            if required not in table:
                raise StudyError(f"{required} is missing", argument=required)
        check_run(**arguments)
        return Study(**table), arguments
    except StudyError as error:
        raise StudyError(f"{path}: {error}", argument=error.argument, file=path, value=error.value) from error


def _resolved(value: Any, name: str, path: Path) -> Any:
    if name not in ("estimators", "mechanism", "metrics", "distributions", "users"):
        return value
    if isinstance(value, dict):
        return {label: _function(one, name, path) for label, one in value.items()}
    if isinstance(value, list):
        return [_function(one, name, path) for one in value]
    return _function(value, name, path)


def _function(value: Any, argument: str, path: Path) -> Any | Callable[..., Any]:
    """What "module:function" names; anything else as it is."""
    if not isinstance(value, str) or ":" not in value:
        return value
    module, _, name = value.partition(":")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise StudyError(
            f"{value!r} cannot be imported: {type(error).__name__}: {error}", argument=argument, value=value
        ) from error
    if not callable(function):
        raise StudyError(f"{value!r} is not a function", argument=argument, value=value)
    return function
