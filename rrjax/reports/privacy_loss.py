"""The privacy loss of the users of a longitudinal protocol, as far as files of their reports and a memo tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rrjax.data.errors import DataError, option
from rrjax.io.metadata import Metadata
from rrjax.io.rounds import MemoFile, head_of
from rrjax.mechanisms import PROTOCOLS
from rrjax.reports import form


@dataclasses.dataclass(frozen=True)
class PrivacyLoss:
    """The reports of each user, and what they spend.

    Attributes:
        metadata: Of the files of reports.
        numbers: `[N]`, the number of reports of each user.
        answers: The number of permanent answers of each user, from a memo; None without.
        memo_rounds: The number of rounds in that memo.
    """

    metadata: Metadata
    numbers: np.ndarray
    answers: np.ndarray | None = None
    memo_rounds: int = 0

    def with_memo(self, memo: Path, rounds: Collection[int]) -> PrivacyLoss:
        """With the numbers of permanent answers, the only thing that is taken from a memo.

        Raises:
            DataError: A file that is not there, cannot be read, is the memo of another collection, or lacks one of the
                rounds of the reports.
        """
        of, simulated = self.metadata, self.metadata.simulated
        memos = MemoFile(memo, head_of(of.mechanism, of.column, of.domain, simulated, of.user)).read()
        lacking = [number for number in rounds if number not in memos.rounds]
        if lacking:
            raise DataError(
                f"{option('memo')} {memo}: it has the rounds {', '.join(map(str, memos.rounds))}, and the reports are "
                f"of round {lacking[0]}, too: it is an old copy. Give the memo that was written last.",
                file=str(memo),
                argument="memo",
            )
        return dataclasses.replace(self, answers=memos.numbers, memo_rounds=len(memos.rounds))

    @property
    def one_report(self) -> float:
        """ε₁, of a single report."""
        return float(self.metadata.mechanism.parameters["first_epsilon"])

    @property
    def one_value(self) -> float:
        """ε∞, of any number of reports of one value."""
        return self.metadata.epsilon

    def after(self, number: int) -> float:
        """The exact ε of this number of reports of one value."""
        record: Any = self.metadata.mechanism
        with jax.enable_x64(True):
            return float(PROTOCOLS[record.name](**record.parameters).epsilon_after(number))

    @property
    def median(self) -> int:
        """The median number of reports of a user; of two medians the larger one."""
        return _median(self.numbers)

    @property
    def most(self) -> int:
        """The largest number of reports of a user."""
        return int(self.numbers.max())

    @property
    def answers_per_user(self) -> tuple[int, int] | None:
        """The median and the largest number of permanent answers of a user, if a memo was given."""
        return None if self.answers is None else (_median(self.answers), int(self.answers.max()))

    def facts(self) -> dict[str, Any]:
        """As fields of a JSON object."""
        return {
            "num_users": len(self.numbers),
            "reports_per_user": {"median": self.median, "most": self.most},
            "one_report": self.one_report,
            "unchanged": {"median": self.after(self.median), "most": self.after(self.most)},
            "one_value": self.one_value,
        }

    def sentence(self) -> str:
        """What users have spent, for a line under a table."""
        often, least = form.number(self.median, "report", "reports"), f"{self.after(self.median):.4g}"
        gave = (
            f"{often} (median), at most {self.most:,}; of one value these spend {least} and {self.after(self.most):.4g}"
        )
        if self.median == self.most:
            gave = f"{often} (median and maximum); of one value these spend {least}"
        return f"Spent: a user gave {gave} nats. A user whose value changed has spent up to {self.one_value:g} a value."


def _median(numbers: np.ndarray) -> int:
    return int(np.quantile(numbers, 0.5, method="higher"))
