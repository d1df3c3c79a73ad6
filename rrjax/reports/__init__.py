"""Reports with everything that is needed to use them, and what they answer.

`rrjax.read` makes `Reports` of files and data frames; their methods are questions, and an answer is a table, facts and
sentences for a notebook, a file or the terminal.

Names are loaded when they are first used, so that `rrjax.reports.form` and the flags of the command line need no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrjax.reports.answer import Answer, Cells
    from rrjax.reports.association import JointShares, Pairs, Tree
    from rrjax.reports.by_respondent import ByRespondentReports
    from rrjax.reports.classes import ClassStatements
    from rrjax.reports.comparison import Comparison
    from rrjax.reports.difference import Difference, test_difference
    from rrjax.reports.hypotheses import test_equal, test_independence, test_trend
    from rrjax.reports.numbers import NumberComparison, Numbers, NumberStatements
    from rrjax.reports.parts import Groups, GroupShares
    from rrjax.reports.plans import ColumnPlan, Plan, plan_columns
    from rrjax.reports.plans import plan as plan
    from rrjax.reports.reading import read as read
    from rrjax.reports.regression import Regression
    from rrjax.reports.reports import Reports as Reports
    from rrjax.reports.rounds import Rounds, RoundShares
    from rrjax.reports.separate_columns import SeparateColumns
    from rrjax.reports.shares import Shares
    from rrjax.reports.statements import Statements
    from rrjax.reports.testing import Test
    from rrjax.reports.two_sample_designs import TwoSampleReports, TwoSampleShares

__all__ = [
    "Answer",
    "ByRespondentReports",
    "Cells",
    "ClassStatements",
    "ColumnPlan",
    "Comparison",
    "Difference",
    "GroupShares",
    "Groups",
    "JointShares",
    "NumberComparison",
    "NumberStatements",
    "Numbers",
    "Pairs",
    "Plan",
    "Regression",
    "RoundShares",
    "Rounds",
    "SeparateColumns",
    "Shares",
    "Statements",
    "Test",
    "Tree",
    "TwoSampleReports",
    "TwoSampleShares",
    "plan_columns",
    "test_difference",
    "test_equal",
    "test_independence",
    "test_trend",
]

_NAMES = {
    "answer": ("Answer", "Cells"),
    "association": ("JointShares", "Pairs", "Tree"),
    "by_respondent": ("ByRespondentReports",),
    "classes": ("ClassStatements",),
    "comparison": ("Comparison",),
    "difference": ("Difference", "test_difference"),
    "hypotheses": ("test_equal", "test_independence", "test_trend"),
    "numbers": ("NumberComparison", "NumberStatements", "Numbers"),
    "parts": ("GroupShares", "Groups"),
    "plans": ("ColumnPlan", "Plan", "plan", "plan_columns"),
    "reading": ("read",),
    "regression": ("Regression",),
    "reports": ("Reports",),
    "rounds": ("RoundShares", "Rounds"),
    "separate_columns": ("SeparateColumns",),
    "shares": ("Shares",),
    "statements": ("Statements",),
    "testing": ("Test",),
    "two_sample_designs": ("TwoSampleReports", "TwoSampleShares"),
}
"""The names of each module."""


def __getattr__(name: str) -> Any:
    module = next((module for module, names in _NAMES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'rrjax.reports' has no attribute {name!r}")
    value = getattr(import_module(f"rrjax.reports.{module}"), name)
    globals()[name] = value
    return value
