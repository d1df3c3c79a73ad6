"""Reports with everything that is needed to use them, and what they answer.

`rrjax.read` makes `Reports` of files and data frames; their methods are questions, and an answer is a table, facts and
sentences for a notebook, a file or the terminal.

Names are loaded when they are first used, so that `rrjax.reports.form` and the flags of the command line need no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrjax.reports.answer import Answer
    from rrjax.reports.by_respondent import ByRespondentReports
    from rrjax.reports.difference import test_difference
    from rrjax.reports.hypotheses import test_equal, test_independence, test_trend
    from rrjax.reports.numbers import Numbers
    from rrjax.reports.parts import Groups, Rounds
    from rrjax.reports.plans import plan as plan
    from rrjax.reports.plans import plan_columns
    from rrjax.reports.reading import read as read
    from rrjax.reports.reports import Reports as Reports
    from rrjax.reports.separate_columns import SeparateColumns
    from rrjax.reports.two_samples import TwoSampleReports

__all__ = [
    "Answer",
    "ByRespondentReports",
    "Groups",
    "Numbers",
    "Rounds",
    "SeparateColumns",
    "TwoSampleReports",
    "plan_columns",
    "test_difference",
    "test_equal",
    "test_independence",
    "test_trend",
]

_NAMES = {
    "answer": ("Answer",),
    "by_respondent": ("ByRespondentReports",),
    "difference": ("test_difference",),
    "hypotheses": ("test_equal", "test_independence", "test_trend"),
    "numbers": ("Numbers",),
    "parts": ("Groups", "Rounds"),
    "plans": ("plan", "plan_columns"),
    "reading": ("read",),
    "reports": ("Reports",),
    "separate_columns": ("SeparateColumns",),
    "two_samples": ("TwoSampleReports",),
}
"""The names of each module."""


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _NAMES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'rrjax.reports' has no attribute {name!r}")
    value = getattr(import_module(f"rrjax.reports.{module}"), name)
    globals()[name] = value
    return value
