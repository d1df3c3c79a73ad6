"""The memo of one user on file, for a real collection by longitudinal randomized response.

No JAX here, and the operating system's random numbers: what a device needs that reports again and again for its user.
The answers are drawn once and kept; who loses the file, and answers anew, spends ε∞ again.
"""

from __future__ import annotations

import json
import math
import os
import pathlib

import numpy as np

from rrjax.checks import check_num_categories
from rrjax.secure import client

VERSION = 1
"""Of the file."""


def second_epsilon(num_categories: int, epsilon: float, first_epsilon: float) -> float:
    """The ε₂ at which the memo is randomized again, so that one report delivers ε₁.

    With E = e^ε − 1, E₂ = E₁(E∞ + K)/(E∞ − E₁), exactly and for any K.

    Args:
        num_categories: K, at least 2.
        epsilon: ε∞, nats, of any number of reports of one value.
        first_epsilon: ε₁, nats, of a single report; less than ε∞.

    Returns:
        Nats.

    Raises:
        ValueError: K < 2, or not 0 < ε₁ < ε∞.

    Example:
        >>> print(f"{second_epsilon(3, epsilon=3.0, first_epsilon=1.0):.4f}")
        1.1585
    """
    check_num_categories(num_categories)
    if not 0 < first_epsilon < epsilon < math.inf:
        raise ValueError(
            f"first_epsilon, of one report, must be positive and below epsilon, of all of them; got {first_epsilon} "
            f"and {epsilon}"
        )
    # ε₂ − ε₁ is that of R₂/R₁ = 1 + (1 − e^−ε₁)((K − 1) + e^ε₁)/(e^ε∞ − e^ε₁): nothing overflows, nothing cancels.
    apart = -math.expm1(first_epsilon - epsilon)
    more = (num_categories - 1) * math.exp(-epsilon) + math.exp(first_epsilon - epsilon)
    return first_epsilon + math.log1p(-math.expm1(-first_epsilon) * more / apart)


class Memo:
    """The permanent answers of one user, on file, and the reports that are made of them.

    An answer is drawn when its value is first held, by `rrjax.secure` at ε∞, and is on disk before anything is reported
    of it: written aside, then renamed, so that no interruption leaves half a file. The file is the user's secret, and
    readable by its owner alone. One process at a time.

    Which values the user had is hidden, by ε∞ each; that a value changed, and when, may be learned from many reports
    (`rrjax.longitudinal.Protocol`).

    Args:
        path: Of the file; where there is none, it is made with the first report.
        user: Whose memo it is, a name of the collection and the user.
        num_categories: K, at least 2.
        epsilon: ε∞, nats, of any number of reports of one value.
        first_epsilon: ε₁, nats, of a single report; less than ε∞.

    Raises:
        ValueError: As `second_epsilon`, an ε∞ or ε₂ that 64 random bits cannot deliver, or a file that is no memo, of
            another version, another user, or other parameters.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     memo = Memo(pathlib.Path(folder) / "memo.json", "survey/17", 4, epsilon=3.0, first_epsilon=1.0)
        ...     reports = [memo.report(2) for _ in range(10)]
        >>> len(reports), set(reports) <= {0, 1, 2, 3}, memo.spent
        (10, True, 3.0)
    """

    def __init__(
        self, path: str | os.PathLike[str], user: str, num_categories: int, epsilon: float, first_epsilon: float
    ) -> None:
        """Reads the file, if there is one."""
        between = second_epsilon(num_categories, epsilon, first_epsilon)
        self._first, self._second = (client("randomized-response", num_categories, each) for each in (epsilon, between))
        self._path = pathlib.Path(path)
        self._head = {
            "format": "rrjax memo of longitudinal randomized response",
            "version": VERSION,
            "user": user,
            "num_categories": int(num_categories),
            "epsilon": float(epsilon),
            "first_epsilon": float(first_epsilon),
        }
        self._answers: dict[int, int] = self._read() if self._path.exists() else {}

    @property
    def spent(self) -> float:
        """ε∞ for each value that the user had, nats.

        By no more are the reports apart from those of any other values that came and went at the same times; at which
        times they did is not in it.
        """
        return len(self._answers) * self._head["epsilon"]

    def report(self, value: int) -> int:
        """Reports a value.

        Args:
            value: In 0 … K − 1, the one that the user has now.

        Returns:
            The report, in 0 … K − 1.

        Raises:
            ValueError: A value outside the domain.
        """
        size = self._head["num_categories"]
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < size:
            raise ValueError(f"value must be an integer from 0 to {size - 1}, got {value!r}")
        value = int(value)
        if value not in self._answers:
            answers = self._answers | {value: int(self._first.randomize(value))}
            self._write(answers)
            self._answers = answers
        return int(self._second.randomize(self._answers[value]))

    def _read(self):
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            answers = {int(value): answer for value, answer in content.pop("answers").items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{self._path} is no memo, or a damaged one ({error}); nothing was changed") from error
        for name, wanted in self._head.items():
            if content.get(name) != wanted:
                raise ValueError(
                    f"{self._path} has {name} = {content.get(name)!r}, not {wanted!r}: it is another memo, and answers "
                    "must not be mixed; nothing was changed"
                )
        size = self._head["num_categories"]
        for number in (*answers, *answers.values()):
            if not isinstance(number, int) or not 0 <= number < size:
                raise ValueError(f"{self._path} holds {number!r}, which is no category; nothing was changed")
        return answers

    def _write(self, answers):
        aside = self._path.with_name(self._path.name + ".new")
        aside.unlink(missing_ok=True)
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(self._head | {"answers": answers}, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._path)
        if hasattr(os, "O_DIRECTORY"):  # elsewhere no directory can be opened
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)  # the new name too is to outlast a power cut
            finally:
                os.close(folder)
