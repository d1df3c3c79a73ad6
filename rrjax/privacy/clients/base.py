"""What clients for real collection share: values are checked, and randomized so many at a time."""

from __future__ import annotations

import abc
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from rrjax.data.categories import check_in_domain, check_integers, check_num_categories
from rrjax.privacy.clients.random_words import words
from rrjax.privacy.clients.thresholds import as_epsilon, log_down

CHUNK = 1 << 20
"""Words drawn at a time: 8 MiB of random bits."""


class Client(abc.ABC):
    """What makes reports of true values: made by `rrjax.secure.client`.

    Attributes:
        num_categories: K.
        epsilon: What was asked for, nats. What is delivered is at most 2⁻³⁰ of it less, so that estimates may take it.
        likelihood_ratio: What is delivered, as an exact fraction: by how much one value can make a report likelier than
            another.
    """

    name: ClassVar[str]
    """Of the mechanism."""

    parameter: ClassVar[str | None] = None
    """What it has beside K and ε."""

    dtype: ClassVar[type] = np.int32
    """Of reports."""

    likelihood_ratio: Fraction

    def __init__(self, num_categories: int, epsilon: float) -> None:
        """Checks K and ε."""
        check_num_categories(num_categories)
        self.num_categories, self.epsilon = int(num_categories), as_epsilon(epsilon)

    @property
    def parameters(self) -> dict[str, Any]:
        """All that it takes to make the mechanism again."""
        chosen = {} if self.parameter is None else {self.parameter: getattr(self, self.parameter)}
        return {"num_categories": self.num_categories, "epsilon": self.epsilon, **chosen}

    @property
    def effective_epsilon(self) -> float:
        """The ε delivered, nats, rounded down: never more than `epsilon`."""
        return log_down(self.likelihood_ratio)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a report."""
        return ()

    @property
    def num_words(self) -> int:
        """How many words a report takes."""
        return 2

    def randomize(self, values: np.typing.ArrayLike) -> np.ndarray:
        """Randomizes true values with the operating system's cryptographic random numbers.

        Cannot be seeded, on purpose; for simulations the mechanisms of `rrjax.mechanisms` have their own.

        Args:
            values: Integers in 0 … K − 1, any shape.

        Returns:
            Reports, coded as those of the mechanism's `randomize`: the shape of `values` and of a report.

        Raises:
            ArgumentError: Values that are not integers or lie outside the domain. The message shows none of them.
        """
        values = self._checked(values)
        reports = np.empty((values.size, *self.shape), self.dtype)
        self._fill(values.reshape(-1), reports)
        return reports.reshape((*values.shape, *self.shape))

    def _checked(self, given):
        values = check_integers(np.asarray(given), self.num_categories, "values")
        check_in_domain(values, self.num_categories, "values")
        return values

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
            reports[part] = self._made(some, words(some.size, self.num_words))
