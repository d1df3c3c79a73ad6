"""Kinds of reports: each answers the questions that it can, and refuses the others in one way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

QUESTIONS = (
    "shares",
    "mean",
    "quantile",
    "group",
    "by",
    "statements",
    "joint",
    "pairs",
    "tree",
    "compare",
    "test_fit",
    "regress",
)
"""All questions, each a method of the kinds of reports that can answer it."""


class Kind:
    """Reports of one kind: one column, columns randomized separately, rounds, groups, numbers, two samples.

    A question is a method that returns an `Answer`. A kind has the methods of the questions that it can answer.
    """

    called_kind: ClassVar[str] = "reports"
    """The kind in words, for messages."""
    instead: ClassVar[str] = ""
    """What to do where a question does not apply to this kind, for messages of the command line."""
    warnings: Any
    """What is odd about the reports."""

    def summary(self) -> str:
        """A sentence about the reports."""
        raise NotImplementedError

    @property
    def simulated(self) -> bool:
        """Whether the reports were made from a seed, which protects nobody."""
        raise NotImplementedError

    def table(self, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The columns of a table to write, with one more if the reports are simulated."""
        number = len(next(iter(columns.values())))
        return {**columns, **({"simulated": np.full(number, True)} if self.simulated else {})}

    def __repr__(self) -> str:
        """The sentence about the reports, and what is odd about them."""
        return "\n".join([self.summary(), *(f"Warning: {warning}" for warning in self.warnings)])

    @classmethod
    def questions(cls) -> list[str]:
        """The questions that these reports can answer."""
        return [name for name in QUESTIONS if hasattr(cls, name)]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuses a question that these reports cannot answer."""
            if name in QUESTIONS:
                raise _refused(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class NoSuchQuestion(AttributeError):  # noqa: N818
    """A question that reports of this kind cannot answer."""


def _refused(reports: Kind, question: str) -> Exception:
    message = f"{reports.called_kind} cannot answer {question!r}; they answer {', '.join(reports.questions())}"
    return NoSuchQuestion(message)
