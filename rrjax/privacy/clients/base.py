"""The base of all clients, and random words from the operating system."""

from __future__ import annotations

import abc
import os
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from rrjax.data.categories import check_in_domain, check_integers, check_num_categories
from rrjax.privacy.clients.thresholds import as_epsilon, log_down

CHUNK = 1 << 20
"""Number of words drawn at a time: 8 MiB of random bits."""

LARGEST_WORD = np.uint64(2**64 - 1)


class Client(abc.ABC):
    """Randomizes true values for a real collection: made by `rrjax.secure.client`.

    Attributes:
        num_categories: K.
        epsilon: The requested ε, nats. The ε delivered is less by at most 2⁻³⁰ of it, so estimates may use the
            requested one.
        likelihood_ratio: The largest ratio of a report's probabilities under two values, e^ε delivered, as an exact
            fraction.
        shape: The shape of a report.
        num_words: Number of random words for a report.
    """

    name: ClassVar[str]
    """The name of the mechanism."""

    parameter: ClassVar[str | None] = None
    """The mechanism's parameter besides K and ε."""

    dtype: ClassVar[type] = np.int32
    """The dtype of reports."""

    likelihood_ratio: Fraction
    shape: tuple[int, ...] = ()
    num_words: int = 2

    def __init__(self, num_categories: int, epsilon: float) -> None:
        """Checks K and ε."""
        check_num_categories(num_categories)
        self.num_categories, self.epsilon = int(num_categories), as_epsilon(epsilon)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that recreate the mechanism."""
        chosen = {} if self.parameter is None else {self.parameter: getattr(self, self.parameter)}
        return {"num_categories": self.num_categories, "epsilon": self.epsilon, **chosen}

    @property
    def effective_epsilon(self) -> float:
        """The ε delivered, nats, rounded down: never more than `epsilon`."""
        return log_down(self.likelihood_ratio)

    def randomize(self, values: np.typing.ArrayLike) -> np.ndarray:
        """Randomized reports of true values, by the operating system's cryptographic random numbers.

        They cannot be seeded, on purpose; for simulations use `randomize` of `rrjax.mechanisms`.

        Args:
            values: Integers in 0 … K − 1, any shape.

        Returns:
            Reports, coded as by the mechanism's `randomize`: the shape of `values`, then of a report.

        Raises:
            ArgumentError: Values that are not integers or lie outside the domain. The message shows none of them.
        """
        values = check_integers(np.asarray(values), self.num_categories, "values")
        check_in_domain(values, self.num_categories, "values")
        reports = np.empty((values.size, *self.shape), self.dtype)
        self._fill(values.reshape(-1), reports)
        return reports.reshape((*values.shape, *self.shape))

    @abc.abstractmethod
    def supports(self, reports: np.ndarray, value: int) -> np.ndarray:
        """Whether each report supports one value, as booleans."""

    @abc.abstractmethod
    def _made(self, values: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Reports of values `[N]`, int32, by words `[N, num_words]`."""

    def _fill(self, values, reports):
        rows = max(1, CHUNK // self.num_words)
        for begin in range(0, values.size, rows):
            part = slice(begin, begin + rows)
            some = values[part].astype(np.int32)
            reports[part] = self._made(some, random_words(some.size, self.num_words))


def random_words(rows: int, columns: int) -> np.ndarray:
    """Words `[rows, columns]` of the operating system's cryptographic random numbers, uint64, not writable."""
    return np.frombuffer(os.urandom(8 * rows * columns), np.uint64).reshape(rows, columns)


def below(draws: np.ndarray, threshold: int) -> np.ndarray:
    """Whether uniform numbers of 128 bits, given by their high words, are below a threshold."""
    high, low = (np.uint64(word) for word in divmod(threshold, 2**64))
    found = draws < high
    tied = draws == high
    if tied.any():  # only for ties is the low word drawn
        found[tied] = random_words(int(tied.sum()), 1)[:, 0] < low
    return found


def numbers_below(draws: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Numbers from 0 to bound − 1, exactly uniform: words beyond the last whole multiple are redrawn."""
    draws = draws.copy()
    last = LARGEST_WORD - (LARGEST_WORD % bounds + np.uint64(1)) % bounds  # 2⁶⁴ modulo the bound, without 2⁶⁴
    while (again := draws > last).any():
        draws[again] = random_words(int(again.sum()), 1)[:, 0]
    return draws % bounds
