"""Writes the section of `reference/outputs.md` about questions and answers from the code: `python docs/outputs.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rrjax import reports

PAGE = Path(__file__).parent / "reference" / "outputs.md"
TITLE = "## Questions and answers\n"
KINDS = (
    reports.Reports,
    reports.Rounds,
    reports.Groups,
    reports.ByRespondentReports,
    reports.TwoSampleReports,
    reports.Numbers,
    reports.SeparateColumns,
)
ALONE = ("plan", "plan_columns", "test_equal", "test_difference", "test_trend", "test_independence")
"""Functions that return answers, too."""
HEAD = """
In Python an [answer](reports.rst) has the same in `to_dict()` as `--json` prints, but for `command`, `out` and
`plot`, and in `columns` what `--out` writes. `python docs/outputs.py` writes this table from the code.

| of | question | answer | its table, `columns` |
|---|---|---|---|
"""


def section() -> str:
    """The section as it should be."""
    rows = []
    for kind in KINDS:
        answers: dict[str, list[str]] = {}
        for question in kind.questions():
            answers.setdefault(_answer_of(getattr(kind, question)), []).append(question)
        rows += [_row(kind.called_kind, [f".{name}" for name in names], answer) for answer, names in answers.items()]
    found: dict[str, list[str]] = {}
    for name in ALONE:
        found.setdefault(_answer_of(getattr(reports, name)), []).append(f"reports.{name}")
    rows += [_row("–", names, answer) for answer, names in found.items()]
    return f"{TITLE}{HEAD}" + "\n".join(rows) + "\n\n"


def with_section(text: str) -> str:
    """A page with the section as it should be."""
    return re.sub(rf"{TITLE}.*?(?=^## )", lambda _: section(), text, flags=re.DOTALL | re.MULTILINE)


def _answer_of(question: Callable[..., Any]) -> str:
    return inspect.signature(question).return_annotation


def _row(kind: str, questions: list[str], answer: str) -> str:
    return f"| {kind} | {', '.join(f'`{name}`' for name in questions)} | `{answer}` | {_columns(answer)} |"


def _columns(answer: str) -> str:
    """What the class of an answer says of its columns, or the property where it has one of its own."""
    for owner in getattr(reports, answer).__mro__:
        said = re.search(
            r"^`columns` (?:are|has|have) (.*?)(?:\n\n|\Z)", inspect.getdoc(owner) or "", re.DOTALL | re.MULTILINE
        )
        text = said[1] if said else inspect.getdoc(owner.columns) if "columns" in vars(owner) else None
        if text:
            text = " ".join(text.split())
            return text[0].upper() + text[1:]
    raise LookupError(f"{answer} says nothing of its columns")


if __name__ == "__main__":
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
