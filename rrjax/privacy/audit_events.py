"""Counts of the forms and contents of reports, and the values and events that differ most. No JAX."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

from rrjax.data.errors import ArgumentError

MAX_CONTENTS = 1 << 16
"""Largest number of different reports among which an event is chosen."""

MAX_VALUES = 128
"""Number of values that are tried if none are given."""

MAX_ENTRIES, MAX_ENTRY_VALUES = 64, 16
"""Largest number of entries of a row, and of different values of an entry, that are separate features."""


ALL_CONTENTS = object()
"""The content in a label that stands for all contents of a form, if there are too many."""

Label: TypeAlias = tuple[str, Any]
"""The form of a report (dtype and shape, or type and length), and its content."""


def merged(parts: Iterable[Counter[Label]]) -> Counter[Label]:
    """The sum of counts of reports; by form alone if there are too many contents."""
    total = Counter()
    for part in parts:
        total.update(part)
        if len(total) > MAX_CONTENTS:
            total = Counter({(form, ALL_CONTENTS): number for form, number in _forms(total).items()})
    return total


def _forms(counts):
    forms = Counter()
    for (form, _), number in counts.items():
        forms[form] += number
    return forms


def count_batch(
    reports: Any, size: int, used: int, *, event: Callable[[Any], Any] | None, only: Collection[Any] | None = None
) -> Counter[Label]:
    """Counts of the first `used` reports of a batch; if `only` is given, of those whose label or form is in it.

    Raises:
        ArgumentError: The number of reports is not the size of the batch.
    """
    kind = "O" if isinstance(reports, list | tuple) else np.asarray(reports).dtype.kind
    may_differ = kind in "OSU" and hasattr(reports, "__len__")  # in form, from report to report
    if event is None and may_differ:
        _check_number(len(reports), size)
        counts = Counter(_form_and_content(report) for report in list(reports)[:used])
    else:
        contents = np.asarray(reports if event is None else event(reports))
        _check_number(len(contents) if contents.ndim else "no", size)
        form = "" if may_differ else f"{np.asarray(reports).dtype} {np.shape(reports)[1:]}"
        rows = contents[:used] if contents.ndim == 1 else contents[:used].reshape(used, -1)
        counts = Counter()
        distinct, numbers = np.unique(rows, axis=0, return_counts=True)
        for content, number in zip(distinct.tolist(), numbers.tolist(), strict=True):
            counts[form, _comparable(content)] += number
    if only is not None:
        counts = Counter({label: number for label, number in counts.items() if label in only or label[0] in only})
    return counts


def _check_number(number, size):
    if number != size:
        raise ArgumentError(
            f"{size} values made {number} reports or events: one of each is wanted", argument="draw", value=number
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
    """The content as something hashable that equals itself: rows as tuples, NaN as a word."""
    if isinstance(content, list):
        return tuple(map(_comparable, content))
    return content if content == content else "nan"


def labels_of(counts: Counter[Label]) -> tuple[list[Any], bool]:
    """The sorted labels of reports, and whether they are forms alone, because there are too many contents.

    Raises:
        ArgumentError: There are too many contents, and there is one form.
    """
    if all(content is not ALL_CONTENTS for _, content in counts):
        try:
            return sorted(counts), False
        except TypeError:  # contents of different types
            return sorted(counts, key=repr), False
    forms = sorted(_forms(counts))
    if len(forms) < 2:
        raise ArgumentError(
            f"there are more than {MAX_CONTENTS:,} different reports: give event, a function of reports with fewer "
            "different results",
            argument="event",
        )
    return forms, True


def table(counts: Sequence[Counter[Label]], labels: Sequence[Any], only_forms: bool) -> np.ndarray:
    """Numbers of reports `[V, L]` of each value and label."""
    counters = map(_forms, counts) if only_forms else counts
    return np.asarray([[counter[label] for label in labels] for counter in counters], float)


def screening_features(seen: Sequence[Counter[Label]]) -> np.ndarray:
    """Numbers of reports `[V, F]` of each label, of each form, and, if reports are rows, of each value of an entry."""
    labels, only_forms = labels_of(merged(seen))
    counts = table(seen, labels, only_forms)
    if only_forms:
        return counts
    groupings = [[form for form, _ in labels]]
    contents = [content for _, content in labels]
    if all(isinstance(content, tuple) for content in contents) and len({len(content) for content in contents}) == 1:
        for place in range(min(len(contents[0]), MAX_ENTRIES)):
            entries = [content[place] for content in contents]
            if len(set(entries)) <= MAX_ENTRY_VALUES:
                groupings.append(entries)
    columns = [counts]
    for grouping in groupings:
        _, numbers = np.unique(np.asarray(grouping), return_inverse=True)
        columns.append(counts @ (numbers[:, None] == np.arange(numbers.max() + 1)))
    return np.concatenate(columns, axis=1)


def most_different_rows(counts: np.ndarray, number: int) -> tuple[int, int]:
    """The two rows with the largest log ratio of a feature, or of its absence, less three standard errors."""
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


def best_event(
    ranking: np.ndarray, counts: np.ndarray, labels: Sequence[Any], number: int, level: float
) -> tuple[list[Any], int]:
    """The union of labels with about the largest bound, and the row that makes it likelier.

    Some reports rank the labels, others choose the number of ranks. If the same reports did both, labels whose ratio is
    large by chance would be chosen.
    """
    ranking, counts = ranking + 0.5, counts + 0.5
    z = NormalDist().inv_cdf((1 + level) / 2)
    best, members, row = -math.inf, [], 0
    for likelier in (0, 1):
        order = np.argsort(-ranking[likelier] / ranking[1 - likelier], kind="stable")
        one, other = np.cumsum(counts[likelier][order]), np.cumsum(counts[1 - likelier][order])
        scores = np.log(one / other) - z * np.sqrt(np.maximum(1 / one + 1 / other - 2 / number, 0))
        if len(labels) > 1:
            scores[-1] = -math.inf  # all labels together prove nothing
        last = int(np.argmax(scores))
        if scores[last] > best:
            best, members, row = float(scores[last]), [labels[place] for place in order[: last + 1]], likelier
    return members, row


def values_to_try(num_categories: int, number: int) -> list[int]:
    """At most `number` values of 0 … K − 1: all, or both ends, powers of two, their neighbours, and evenly spaced."""
    if num_categories <= number:
        return list(range(num_categories))
    last = num_categories - 1
    ends = [0, last, 1, last - 1]
    powers = [power + step for power in (1 << bit for bit in range(1, last.bit_length())) for step in (0, -1)]
    even = [(2 * place + 1) * last // (2 * number) for place in range(number)]
    return sorted(list(dict.fromkeys([*ends, *powers, *even]))[:number])
