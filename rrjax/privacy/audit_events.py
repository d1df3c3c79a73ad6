"""What an audit counts: the forms and contents of reports, and which values and events they tell apart. No JAX."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from rrjax.data.errors import ArgumentError

MOST_CONTENTS = 1 << 16
"""Different reports that an event is chosen among."""

MOST_VALUES = 128
"""Values that are looked at where nobody names them."""

_MOST_PLACES, _MOST_LEVELS = 64, 16
"""Of reports that are rows: so many places, with so many different entries each, are looked at one by one."""


@dataclasses.dataclass
class Seen:
    """How often reports of one value had which form and content.

    Attributes:
        labels: Of forms and contents; None where there were too many contents.
        forms: Of forms: dtype and shape, or kind and length.
    """

    labels: Counter[tuple[str, Any]] | None = dataclasses.field(default_factory=Counter)
    forms: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, labels: dict[tuple[str, Any], int], only: Collection[Any] | None) -> None:
        """Adds reports, of all labels or of some of them."""
        for (form, _), times in labels.items():
            self.forms[form] += times
        if self.labels is not None:
            self.labels.update(
                labels if only is None else {label: times for label, times in labels.items() if label in only}
            )
            if len(self.labels) > MOST_CONTENTS:
                self.labels = None


def described(
    reports: Any, number: int, used: int, *, event: Callable[[Any], Any] | None, only: Collection[Any] | None = None
) -> Seen:
    """Counts the first reports of a batch.

    Raises:
        ArgumentError: There are more reports than there should be, or fewer.
    """
    seen = Seen()
    kind = "O" if isinstance(reports, list | tuple) else np.asarray(reports).dtype.kind
    single = kind in "OSU" and hasattr(reports, "__len__")  # reports whose forms may differ from each other
    if event is None and single:
        if len(reports) != number:
            raise _wrong(number, len(reports))
        seen.add(Counter(_form_and_content(report) for report in list(reports)[:used]), only)
        return seen
    labels = np.asarray(reports if event is None else event(reports))
    if labels.shape[:1] != (number,):
        raise _wrong(number, labels.shape)
    form = "" if single else f"{np.asarray(reports).dtype} {np.shape(reports)[1:]}"
    flat = labels[:used] if labels.ndim == 1 else labels[:used].reshape(used, -1)
    found, times = np.unique(flat, axis=0, return_counts=True)
    counts = Counter()
    for content, number in zip(found.tolist(), times.tolist(), strict=True):
        counts[form, _comparable(content)] += number
    seen.add(counts, only)
    return seen


def _wrong(number, came):
    return ArgumentError(
        f"{number} values made {came} reports or events: one of each is wanted", argument="draw", value=came
    )


def _form_and_content(report):
    if isinstance(report, str | bytes):
        return f"{type(report).__name__} of length {len(report)}", report
    if isinstance(report, bool | int | float):
        return type(report).__name__, _comparable(report)
    array = np.asarray(report) if isinstance(report, list | tuple | np.ndarray | np.generic) else None
    if array is None or array.dtype.kind == "O":
        return type(report).__name__, repr(report)
    return f"{array.dtype} {array.shape}", _comparable(array.reshape(-1).tolist())


def _comparable(content):
    """What equals itself and can be counted: rows as tuples, and what is no number by its name."""
    if isinstance(content, list):
        return tuple(map(_comparable, content))
    return content if content == content else "nan"


def together(parts: Iterable[Seen]) -> Seen:
    """Puts the counts of batches together."""
    total = Seen()
    for part in parts:
        total.forms.update(part.forms)
        if part.labels is None or total.labels is None:
            total.labels = None
        else:
            total.labels.update(part.labels)
            if len(total.labels) > MOST_CONTENTS:
                total.labels = None
    return total


def labels_of(seen: Sequence[Seen]) -> tuple[list[Any], bool]:
    """All that reports are told apart by, in order: forms and contents, or forms alone where contents are too many.

    Returns:
        The labels, and whether they are forms alone.

    Raises:
        ArgumentError: Contents are too many, and there is one form.
    """
    whole = together(seen)
    if whole.labels is not None:
        try:
            return sorted(whole.labels), False
        except TypeError:  # contents of different kinds
            return sorted(whole.labels, key=repr), False
    if len(whole.forms) < 2:
        raise ArgumentError(
            f"there are more than {MOST_CONTENTS:,} different reports: give event, which says what to look at",
            argument="event",
        )
    return sorted(whole.forms), True


def table(seen: Sequence[Seen], labels: Sequence[Any], forms_alone: bool) -> np.ndarray:
    """`[V, L]`, how often each label came."""
    counters = [each.forms if forms_alone else each.labels or Counter() for each in seen]
    return np.asarray([[counter[label] for label in labels] for counter in counters], float)


def features(counts: np.ndarray, labels: Sequence[Any], forms_alone: bool) -> np.ndarray:
    """`[V, F]`: how often each label came, each form, and each entry in each place of a report that is a row."""
    if forms_alone:
        return counts
    columns = [counts]

    def add(keys):
        _, numbers = np.unique(np.asarray(keys), return_inverse=True)
        columns.append(counts @ (numbers[:, None] == np.arange(numbers.max() + 1)))

    add([form for form, _ in labels])
    contents = [content for _, content in labels]
    if all(isinstance(content, tuple) for content in contents) and len({len(content) for content in contents}) == 1:
        for place in range(min(len(contents[0]), _MOST_PLACES)):
            entries = [content[place] for content in contents]
            if len(set(entries)) <= _MOST_LEVELS:
                add(entries)
    return np.concatenate(columns, axis=1)


def most_apart(counts: np.ndarray, number: int) -> tuple[int, int]:
    """The two rows with the largest log ratio of some feature, or of its absence, less three standard errors."""
    best, pair = -math.inf, (0, len(counts) - 1)
    for times in (counts, number - counts):
        logs = np.log((times + 0.5) / (number + 1))
        error = 3 * np.sqrt(np.maximum(1 / (times + 0.5) - 1 / (number + 1), 0))
        low, high = logs - error, logs + error
        score = low.max(axis=0) - high.min(axis=0)
        place = int(np.argmax(score))
        one, other = int(low[:, place].argmax()), int(high[:, place].argmin())
        if one != other and score[place] > best:
            best, pair = float(score[place]), (one, other)
    return min(pair), max(pair)


def chosen(ranking: np.ndarray, counts: np.ndarray, labels: Sequence[Any], number: int, level: float):
    """The union of labels with the largest bound, roughly, and which of the two values makes it likelier.

    They are ranked by some reports, and it is by others that is said how many of the ranks to take: by the same ones
    the few would win whose ratio chance had raised.
    """
    ranking, seen = ranking + 0.5, counts + 0.5
    z = NormalDist().inv_cdf((1 + level) / 2)
    best = (-math.inf, [], 0)
    for likelier in (0, 1):
        order = np.argsort(-ranking[likelier] / ranking[1 - likelier], kind="stable")
        one, other = np.cumsum(seen[likelier][order]), np.cumsum(seen[1 - likelier][order])
        scores = np.log(one / other) - z * np.sqrt(np.maximum(1 / one + 1 / other - 2 / number, 0))
        if len(labels) > 1:
            scores[-1] = -math.inf  # all labels prove nothing
        last = int(np.argmax(scores))
        if scores[last] > best[0]:
            best = (float(scores[last]), [labels[place] for place in order[: last + 1]], likelier)
    return best[1:]


def spread(num_categories: int, most: int) -> list[int]:
    """At most so many values of 0 … K − 1: all of them, or both ends, powers of two, their neighbours, and evenly."""
    if num_categories <= most:
        return list(range(num_categories))
    last = num_categories - 1
    ends = [0, last, 1, last - 1]
    powers = [power + step for power in (1 << bit for bit in range(1, last.bit_length())) for step in (0, -1)]
    even = [(2 * place + 1) * last // (2 * most) for place in range(most)]
    return sorted(list(dict.fromkeys([*ends, *powers, *even]))[:most])
