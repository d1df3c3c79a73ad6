"""Flags to questions: reports are asked what the flags ask, and refuse the flags that do not apply."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.data.errors import UsageError

if TYPE_CHECKING:
    from rrjax.reports.answer import Answer
    from rrjax.reports.kind import Kind

QUESTIONS = {
    "statements": "--mean, --quantile, --group, --by and --weights",
    "joint": "--joint",
    "pairs": "--all-pairs",
    "tree": "--tree",
}
"""Questions by the flags that ask them; the others are asked by commands."""
FLAGS = {"simultaneous": "--at-once", "estimators": "--estimator", "columns": "--joint"}
"""Flags of arguments with other names."""


def ask(reports: Kind, question: str, **given: Any) -> Answer:
    """Asks reports a question.

    Args:
        reports: Of any kind.
        question: The name of a method of some kind of reports.
        given: Arguments of the question; those that are None or False were not given.

    Returns:
        `Answer`.

    Raises:
        UsageError: These reports cannot answer the question, or it does not take one of the arguments.
    """
    asked = QUESTIONS.get(question)
    if question not in reports.questions():
        raise _refused(asked, reports.called_kind, reports) if asked else _without(question, reports)
    method = getattr(reports, question)
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    odd = next((name for name in given if name not in inspect.signature(method).parameters), None)
    if odd is not None:
        what = asked if asked and "shares" in reports.questions() else reports.called_kind
        raise _refused(FLAGS.get(odd, f"--{odd.replace('_', '-')}"), what, reports)
    with show.status("Estimating …"), ending_at_once():
        return method(**given)


def _refused(flag: str, what: str, reports: Kind) -> UsageError:
    """The error about a flag that does not apply."""
    verb, pronoun = ("do", "them") if "," in flag else ("does", "it")
    instead = f"{reports.instead}, or " if reports.instead else ""
    return UsageError(f"{flag} {verb} not apply to {what}: {instead}leave {pronoun} out", flag=flag)


def _without(command: str, reports: Kind) -> UsageError:
    """The error about reports that a command does not take as they are."""
    flags = ", ".join(QUESTIONS[each] for each in reports.questions() if each in QUESTIONS)
    instead = " or ".join(filter(None, [reports.instead, flags and f"ask for {flags}"]))
    name = {"shares": "table of all categories", "compare": "comparison"}[command]
    return UsageError(f"{reports.called_kind} have no {name}: {instead}", flag="REPORTS")
