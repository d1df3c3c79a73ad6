"""The client of a survey design: answers by the matrix of their probabilities, in integers out of 2⁶⁴."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.privacy.clients.base import Client

WORDS = 2**64
"""Number of random words; a probability is a number of them."""


class Answers(Client):
    """Answers of respondents by a survey design: one random word is compared with the cumulative probabilities.

    Args:
        name: Name of the design.
        channel: `[K, K]`, float64: the probabilities of all answers, row = value, column = answer.
        parameters: The arguments that recreate the design.

    Attributes:
        likelihood_ratio: The largest ratio of the probabilities of one answer, as an exact fraction; infinite if an
            answer is impossible for some values only.

    Raises:
        ArgumentError: A matrix that is not square, or rows that are no probabilities.

    Example:
        >>> client = Answers("warner", np.array([[0.75, 0.25], [0.25, 0.75]]), {"truth_probability": 0.75})
        >>> client.randomize([0, 1, 1]).shape, f"{client.effective_epsilon:.4f}"
        ((3,), '1.0986')
    """

    num_words = 1

    def __init__(self, name: str, channel: np.ndarray, parameters: Mapping[str, Any]) -> None:
        """Computes the cumulative probabilities as integers."""
        channel = np.asarray(channel, np.float64)
        if channel.ndim != 2 or channel.shape[0] != channel.shape[1] or not (channel >= 0).all():
            raise ArgumentError(f"channel must be probabilities [K, K], got {channel.shape}", argument="channel")
        check_num_categories(channel.shape[0])
        self.name, self.num_categories = name, channel.shape[0]  # pyright: ignore[reportAttributeAccessIssue]
        self._parameters = dict(parameters)
        rows = [_cumulative([Fraction(each) for each in row]) for row in channel.tolist()]
        ends = np.asarray([row[:-1] for row in rows], object)
        # 2⁶⁴ is no word: no draw is beyond the last answer that is possible.
        self._beyond = ends < WORDS
        self._ends = np.where(self._beyond, ends, 0).astype(np.uint64)
        widths = np.asarray([[end - start for start, end in itertools.pairwise([0, *row])] for row in rows], object)
        ratios = [(max(column), min(column)) for column in widths.T.tolist()]
        self._reveals = any(most and not least for most, least in ratios)
        self.likelihood_ratio = max(Fraction(most, least or 1) for most, least in ratios)
        self.epsilon = math.inf if self._reveals else float(super().effective_epsilon)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that recreate the design."""
        return self._parameters

    @property
    def effective_epsilon(self) -> float:
        """The ε delivered, nats, rounded down; infinite if an answer can give its user away."""
        return math.inf if self._reveals else super().effective_epsilon

    def supports(self, reports: np.ndarray, value: int) -> np.ndarray:
        """Whether each report is the answer of this value."""
        return reports == value

    def _made(self, values: np.ndarray, draws: np.ndarray) -> np.ndarray:
        answers, word = np.zeros(len(values), np.int32), draws[:, 0]
        for ends, beyond in zip(self._ends.T, self._beyond.T, strict=True):
            answers += beyond[values] & (word >= ends[values])
        return answers


def _cumulative(row: list[Fraction]) -> list[int]:
    """Cumulative probabilities, rounded to integers out of 2⁶⁴; the last answer that is possible ends there."""
    total = sum(row)
    if not total > 0:
        raise ArgumentError("channel must have rows that sum to one", argument="channel")
    ends = [round(each / total * WORDS) for each in itertools.accumulate(row)]
    last = max(place for place, each in enumerate(row) if each > 0)
    return [min(end, WORDS) if place < last else WORDS for place, end in enumerate(ends)]
