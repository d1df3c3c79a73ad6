"""Reports with everything that is needed to use them, and what they answer.

`rrjax.read` makes `Reports` of files and data frames; their methods are questions, and an answer is a table, facts and
sentences for a notebook, a file or the terminal.

Names are loaded when they are first used, so that `rrjax.reports.form` and the flags of the command line need no JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrjax.reports.answer import Answer, Cells
    from rrjax.reports.collection_tests import test_equal, test_trend
    from rrjax.reports.column_plans import ColumnPlan, plan_columns
    from rrjax.reports.comparison import Comparison
    from rrjax.reports.groups import Groups, GroupShares
    from rrjax.reports.independence import test_independence
    from rrjax.reports.joint import JointShares
    from rrjax.reports.numbers import NumberComparison, Numbers, NumberStatements
    from rrjax.reports.pairs import Pairs
    from rrjax.reports.plans import Plan
    from rrjax.reports.plans import plan as plan
    from rrjax.reports.reading import read as read
    from rrjax.reports.regression import Regression
    from rrjax.reports.reports import Reports as Reports
    from rrjax.reports.rounds import Rounds, RoundShares
    from rrjax.reports.separate_columns import SeparateColumns
    from rrjax.reports.shares import Shares
    from rrjax.reports.statements import Statements
    from rrjax.reports.testing import Test
    from rrjax.reports.tree import Tree
    from rrjax.reports.two_samples import TwoSampleReports, TwoSampleShares

__all__ = [
    "Answer",
    "Cells",
    "ColumnPlan",
    "Comparison",
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
    "test_equal",
    "test_independence",
    "test_trend",
]

_FILES = {
    "Answer": "answer",
    "Cells": "answer",
    "ColumnPlan": "column_plans",
    "Comparison": "comparison",
    "GroupShares": "groups",
    "Groups": "groups",
    "JointShares": "joint",
    "NumberComparison": "numbers",
    "NumberStatements": "numbers",
    "Numbers": "numbers",
    "Pairs": "pairs",
    "Plan": "plans",
    "Regression": "regression",
    "Reports": "reports",
    "RoundShares": "rounds",
    "Rounds": "rounds",
    "SeparateColumns": "separate_columns",
    "Shares": "shares",
    "Statements": "statements",
    "Test": "testing",
    "Tree": "tree",
    "TwoSampleReports": "two_samples",
    "TwoSampleShares": "two_samples",
    "plan": "plans",
    "plan_columns": "column_plans",
    "read": "reading",
    "test_equal": "collection_tests",
    "test_independence": "independence",
    "test_trend": "collection_tests",
}
"""The module of each name."""


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module 'rrjax.reports' has no attribute {name!r}")
    value = getattr(import_module(f"rrjax.reports.{_FILES[name]}"), name)
    globals()[name] = value
    return value
