"""Clients of longitudinal protocols for real collection: permanent answers, and reports made from them.

A collector who holds the true values keeps the permanent answers of all users (`LongitudinalClient`). A device that
reports many times for its user keeps those of one user in a file (`Memo`); it needs NumPy and the operating system's
random numbers, not JAX. If the file is lost, new answers are drawn, which spends ε∞ again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pathlib
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError, DataError
from rrjax.numerics.threefry import buckets_of
from rrjax.privacy.clients.base import DOWN, UP, as_epsilon, float_down, random_words
from rrjax.privacy.clients.locking import locked, sync_folder
from rrjax.privacy.clients.table import client

VERSION = 1
"""Version of the file format."""


def second_epsilon(num_categories: int, epsilon: float, first_epsilon: float) -> float:
    """The ε₂ of the second randomization, so that one report delivers at most ε₁.

    With E = e^ε − 1, E₂ = E₁(E∞ + K)/(E∞ − E₁), exactly and for any K. It is computed to 120 digits and rounded down
    to a float.

    Raises:
        ValueError: K < 2, or not 0 < ε₁ < ε∞.

    Example:
        >>> print(f"{second_epsilon(3, epsilon=3.0, first_epsilon=1.0):.4f}")
        1.1585
    """
    check_num_categories(num_categories)
    last, first = as_epsilon(epsilon), as_epsilon(first_epsilon, "first_epsilon")
    if not first < last < math.inf:
        raise ArgumentError(
            f"first_epsilon, of one report, must be below epsilon, of all of them, and both finite; got {first} and "
            f"{last}",
            argument="first_epsilon",
            value=first_epsilon,
        )
    # ε₂ − ε₁ = log R, R = 1 + (1 − e^−ε₁)((K − 1)·e^−ε∞ + e^(ε₁ − ε∞))/(1 − e^(ε₁ − ε∞)): nothing overflows or cancels.
    # Every step is rounded towards a smaller ε₂; exponentials and logarithms, rounded to nearest, by one step more.
    one, permanent, zero = Decimal(first), Decimal(last), Decimal(0)
    between = max(DOWN.next_minus(DOWN.exp(DOWN.subtract(one, permanent))), zero)  # e^(ε₁ − ε∞)
    smallest = max(DOWN.next_minus(DOWN.exp(permanent.copy_negate())), zero)
    numerator = DOWN.fma(Decimal(int(num_categories) - 1), smallest, between)
    factor = DOWN.subtract(1, min(UP.next_plus(UP.exp(one.copy_negate())), Decimal(1)))
    gain = DOWN.divide(DOWN.multiply(factor, numerator), UP.subtract(1, between))
    return float_down(DOWN.add(one, max(DOWN.next_minus(DOWN.ln(DOWN.add(1, gain))), zero)))


_PERMANENT = {
    "longitudinal-randomized-response": "randomized-response",
    "longitudinal-local-hashing": "randomized-response",
    "longitudinal-unary-encoding": "optimized-unary-encoding",
    "longitudinal-symmetric-unary-encoding": "symmetric-unary-encoding",
}
"""The mechanism of the permanent answers of each protocol; reports randomize them again by randomized response."""


class LongitudinalClient:
    """Makes the permanent answers and the reports of users by a longitudinal protocol.

    A permanent answer is drawn once for each *key* of a user: for each value or, with local hashing, for each bucket of
    the user's hash function. Whoever draws it keeps it; every report is made from it.

    Args:
        name: "longitudinal-randomized-response", "longitudinal-local-hashing", "longitudinal-unary-encoding" (the
            permanent answer by optimized, the report by symmetric unary encoding), or
            "longitudinal-symmetric-unary-encoding" (both by symmetric unary encoding: basic RAPPOR).
        num_categories: K, at least 2.
        epsilon: ε∞, nats, for any number of reports of one value.
        first_epsilon: ε₁, nats, for a single report; less than ε∞.
        make: A function of the name of a mechanism, K and ε that returns an object with `randomize(values)`. By default
            the clients of `rrjax.secure`.
        words: A function of N that returns N random words of 32 bits, the seeds of hash functions.

    Attributes:
        parameters: The arguments that recreate the protocol in `rrjax.mechanisms.PROTOCOLS`; the number of buckets of
            local hashing is the best one for a single round.

    Raises:
        ArgumentError: Another name, or parameters that make no protocol.

    Example:
        >>> import numpy as np
        >>> device = LongitudinalClient("longitudinal-randomized-response", 4, epsilon=3.0, first_epsilon=1.0)
        >>> seeds, values = device.seeds(3), np.array([0, 3, 2])
        >>> answers = device.memoize(device.keys(seeds, values))  # once
        >>> device.report(seeds, answers).shape  # in every round
        (3,)
    """

    def __init__(
        self,
        name: str,
        num_categories: int,
        epsilon: float,
        first_epsilon: float,
        *,
        make: Callable[[str, int, float], Any] = client,
        words: Callable[[int], np.ndarray] | None = None,
    ) -> None:
        """Checks the parameters."""
        if name not in _PERMANENT:
            raise ArgumentError(f"no client for {name!r}", argument="name", value=name)
        self.name, self.num_categories, permanent = name, num_categories, _PERMANENT[name]
        self.parameters: dict[str, Any] = {
            "num_categories": num_categories,
            "epsilon": epsilon,
            "first_epsilon": first_epsilon,
        }
        if name == "longitudinal-local-hashing":
            known = client("optimized-local-hashing", num_categories, first_epsilon)
            num_categories = self.parameters["num_buckets"] = known.parameters["num_buckets"]
        self._num_answers = num_categories if permanent == "randomized-response" else 2  # each bit by itself
        between = second_epsilon(self._num_answers, epsilon, first_epsilon)
        if permanent == "symmetric-unary-encoding":  # each of its bits is a randomized response at half of ε
            between = second_epsilon(2, epsilon / 2, first_epsilon / 2)
        self._permanent = make(permanent, num_categories, epsilon)
        self._instant = make("randomized-response", self._num_answers, between)
        self._words = words or (lambda number: random_words(number, 1)[:, 0].astype(np.uint32))

    @property
    def effective_epsilon(self) -> float:
        """The ε∞ delivered, nats: at most the one asked for. NaN for a simulation."""
        return getattr(self._permanent, "effective_epsilon", math.nan)

    @property
    def hashes(self) -> bool:
        """Whether users have hash functions."""
        return "num_buckets" in self.parameters

    def seeds(self, number: int) -> np.ndarray:
        """The seeds of the hash functions of new users, uint32 `[N]`; zero for other protocols."""
        return self._words(number) if self.hashes else np.zeros(number, np.uint32)

    def keys(self, seeds: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The key of each user's value, int32 `[N]`; the answer of a key is permanent."""
        if not self.hashes:
            return values.astype(np.int32)
        return buckets_of(seeds, values.astype(np.uint32), np.uint32(self._num_answers), np).astype(np.int32)

    def memoize(self, keys: np.ndarray) -> np.ndarray:
        """Permanent answers of new keys: integers `[N]`, or bits `[N, K]`."""
        return np.asarray(self._permanent.randomize(keys))

    def report(self, seeds: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Reports of one round from permanent answers: integers `[N]`, bits `[N, K]`, or seeds and buckets `[N, 2]`."""
        made = np.asarray(self._instant.randomize(answers.astype(np.int32)))
        if self.hashes:
            return np.stack([seeds, made.astype(np.uint32)], axis=1)
        return made.astype(bool) if answers.ndim == 2 else made


class Memo:
    """The permanent answers of one user, in a file, and the reports made from them.

    The answer for a value is drawn with its first report, by `rrjax.secure` at ε∞. It is on disk before the report is
    made: it is written to another file, which is then renamed, so that no interruption leaves half a file. The file is
    the user's secret, readable by its owner alone. Any number of memos and processes may share it: a value has one
    answer, which is drawn under a lock (a file `.lock` next to it).

    Each value that the user had is protected by ε∞. Many reports may show that a value changed, when, and whether it
    changed back (`rrjax.longitudinal.Protocol`).

    Args:
        path: Path of the file; it is created with the first report.
        user: A name of the collection and the user.
        num_categories: K, at least 2.
        epsilon: ε∞, nats, for any number of reports of one value.
        first_epsilon: ε₁, nats, for a single report; less than ε∞. The ε delivered is this or a little less.

    Raises:
        ArgumentError: As `second_epsilon`, or an ε∞ or ε₂ that random bits cannot deliver.
        DataError: A file that cannot be read, is no memo or is damaged, or has another version, user or parameters.
            `file` is its path. Nothing is changed.

    Warns:
        UserWarning: A file that other users of the machine may read.

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
        self._permanent, self._instant = (
            client("randomized-response", num_categories, each) for each in (epsilon, between)
        )
        if not isinstance(user, str):
            raise ArgumentError(f"user must be a name, got a {type(user).__name__}", argument="user")
        self._given = path
        # If the path is a link, its target is locked and replaced, not the link.
        self._path = pathlib.Path(os.path.realpath(path))
        self._head = {
            "format": "rrjax memo of longitudinal randomized response",
            "version": VERSION,
            "user": user,
            "num_categories": int(num_categories),
            "epsilon": as_epsilon(epsilon),
            "first_epsilon": as_epsilon(first_epsilon),
        }
        self._answers: dict[int, int] = self._read()

    @property
    def spent(self) -> float:
        """ε∞ for each value that the user had, nats: an upper bound of the loss between histories with one pattern.

        In these, values change at the same times, to a new value or back to the same old one. Other histories that
        differ in n reports lose at most n·ε₂, which can be far more (`LongitudinalRandomizedResponse.history_loss`).
        """
        spent = len(self._answers) * self._head["epsilon"]
        exact = len(self._answers) * Fraction(self._head["epsilon"])
        return spent if spent >= exact else math.nextafter(spent, math.inf)

    def report(self, value: int) -> int:
        """The report of a value.

        Args:
            value: The user's present value, in 0 … K − 1.

        Returns:
            The report, in 0 … K − 1.

        Raises:
            ArgumentError: A value outside the domain.
            DataError: A file that cannot be written, is no longer this memo, holds another answer than before, or stays
                locked. Then nothing was reported.
        """
        size = self._head["num_categories"]
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < size:
            raise ArgumentError(f"value must be an integer from 0 to {size - 1}", argument="value")
        value = int(value)
        if value not in self._answers:
            try:
                with locked(self._path, self._given):
                    on_file = self._read()
                    if any(on_file.get(each, answer) != answer for each, answer in self._answers.items()):
                        raise self._refused(
                            "holds another answer than it did, so that a value would have two; nothing was changed"
                        )
                    answers = self._answers | on_file  # both, because the file may have been removed
                    if value not in answers:
                        if self._path.exists() and os.stat(self._path).st_nlink > 1:
                            problem = "has a second name (a hard link), under which the answer would be missing"
                            raise self._refused(f"{problem}: delete that name; nothing was changed")
                        answers |= {value: int(self._permanent.randomize(value))}
                        self._write(answers)
            except OSError as error:
                raise self._refused(f"cannot be written ({error.strerror or error}); nothing was reported") from error
            self._answers = answers
        return int(self._instant.randomize(self._answers[value]))

    def _refused(self, message: str) -> DataError:
        return DataError(f"{self._given} {message}", file=self._given)

    def _read(self) -> dict[int, int]:
        try:
            with open(self._path, encoding="utf-8") as file:
                exposed = os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077
                content = json.load(file)
            answers = {int(value): answer for value, answer in content.pop("answers").items()}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._refused(f"cannot be read ({error.strerror}); nothing was changed") from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            # Without the message of the original error, which might show an answer.
            raise self._refused("is no memo, or a damaged one; nothing was changed") from None
        for name, wanted in self._head.items():
            if content.get(name) != wanted:
                raise DataError(
                    f"{self._given} has {name} = {content.get(name)!r}, not {wanted!r}: it is another memo, and "
                    "answers must not be mixed; nothing was changed",
                    file=self._given,
                    column=name,
                    value=content.get(name),
                )
        size = self._head["num_categories"]
        if not all(type(each) is int and 0 <= each < size for each in (*answers, *answers.values())):
            raise self._refused(f"holds numbers that are no category from 0 to {size - 1}; nothing was changed")
        if exposed:
            # Only a warning, because there are file systems without permissions.
            warnings.warn(
                f"{self._given} is a secret, and other users of this machine may read it: take their permissions away "
                "(chmod 600)",
                stacklevel=3,
            )
        return answers

    def _write(self, answers: dict[int, int]) -> None:
        # Of this memo alone, and not its name with an ending, which may be that of another memo.
        name = hashlib.sha256(os.fsencode(self._path.name)).hexdigest()[:16]
        aside = self._path.with_name(f".rrjax-{name}.new")
        aside.unlink(missing_ok=True)  # of a process that was killed
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(self._head | {"answers": answers}, file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._path)
        sync_folder(self._path.parent)
