"""Audits: a lower bound of a client's ε from its reports alone.

For any event E of reports and any two values a and b, ε is at least log P(E | a)/P(E | b). Half of the reports choose
the values and the event. The other half bounds the two probabilities by Clopper–Pearson, so the bound holds at its
level for any choice of the event. A bound above the claimed ε proves the client wrong. A bound below it proves nothing:
other values, other events or more reports may give a larger bound.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rrjax.data.arguments import as_probability, as_scalar, float_dtype
from rrjax.data.categories import as_integer, check_in_domain, check_integers, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.mechanism import CELLS, SupportMechanism
from rrjax.numerics.special import odds_of_tail
from rrjax.privacy.clients import Client

__all__ = ["Audit", "audit", "draws_needed", "lower_bound"]

BATCH_SIZE = 1 << 16
"""Number of reports drawn at a time."""

MAX_DRAWS = 2**53
"""Largest number of draws: more are not whole numbers in float64."""

MIN_SCREENING_REPORTS = 16
"""Number of reports of each value in the search for two values. With fewer reports, fewer values are tried."""


class Audit(NamedTuple):
    """The result of an audit.

    Attributes:
        lower: Lower bound of ε, nats.
        claimed: The ε that the client claims, nats; None if it is unknown.
        likelier: The value that makes the event likelier.
        other: The other value.
        event: The reports in the event, or the results of the given `event`. If reports have several forms (dtypes,
            shapes, lengths), pairs of form and report; if there are also too many different reports, forms.
        counts: Numbers of reports in the event, of `likelier` and of `other`, among the reports that bound ε.
        num_draws: Number of reports of each of the two values that bound ε.
        level: Confidence level of the bound.
        num_values: Number of values among which the two were chosen.
        draws_needed: The smallest `num_draws` that can disprove the claim of a client that reports the value itself;
            without a claim, the smallest with a positive bound.
    """

    lower: float
    claimed: float | None
    likelier: int
    other: int
    event: list[Any]
    counts: tuple[int, int]
    num_draws: int
    level: float
    num_values: int
    draws_needed: int

    @property
    def violated(self) -> bool:
        """Whether the claim is disproved."""
        return self.claimed is not None and self.lower > self.claimed

    @property
    def powerless(self) -> bool:
        """Whether there were too few reports to disprove the claim for any client."""
        return 2 * self.num_draws < self.draws_needed


def audit(
    draw: Callable[[np.ndarray], Any] | Client | SupportMechanism,
    *,
    values: Sequence[int] | None = None,
    num_categories: int | None = None,
    num_draws: int = 1_000_000,
    event: Callable[[Any], Any] | None = None,
    claimed: float | None = None,
    level: float = 0.999,
) -> Audit:
    """A lower bound of the ε of any client, from its reports of two values chosen among many.

    Half of the reports choose first two of the tried values, then an event. The events are the rejection regions of
    likelihood ratio tests in both directions: some of these reports rank the different reports by their ratio, others
    choose the number of ranks with the largest bound. The other half of the reports bounds ε, so the level holds for
    any choice. Reports that differ in dtype, shape or length are different reports.

    Args:
        draw: The client: takes `[n]` values and returns n reports, as an array of any shape and dtype or as a list of
            any objects. Or a client of `rrjax.secure`, which cannot be seeded, or a `SupportMechanism`, whose
            `randomize` gets keys made from `jax.random.key(0)`; `claimed` is then their own ε, and the event consists
            of 0 (reports that support neither of the two values), 1 (the larger one alone), 2 (the smaller one alone)
            and 3 (both). With `values` of two, 1 is the second one and 2 the first.
        values: Two values, or more, of which those two are taken whose reports differ most. None is all of 0 … K − 1,
            or 128 of them: both ends, powers of two and their neighbours, and evenly spaced ones. A leak of a value
            outside these is not found.
        num_categories: K, if no values are given.
        num_draws: Number of reports of each half: twice as many are drawn in all.
        event: A function of n reports that returns one or more integers or booleans for each. None takes the reports
            themselves; if more than 65,536 are different, their dtypes, shapes and lengths.
        claimed: The ε that the client claims, nats.
        level: Confidence level of the bound.

    Returns:
        `Audit`; `powerless` is whether there were too few reports to disprove any claim, `draws_needed` the number that
        suffices.

    Raises:
        ArgumentError: Equal values, one value alone, neither values nor K, fewer than four draws, a level outside
            (0, 1), an argument of another type, a number of reports other than that of the values, or too many
            different reports.

    Example:
        >>> import numpy as np, rrjax
        >>> random = np.random.default_rng(0)
        >>> def broken(values):  # a fair coin, except for the value 6
        ...     return np.where(random.random(values.size) < np.where(values == 6, 0.9, 0.5), 1, 0)
        >>> result = rrjax.audit.audit(broken, num_categories=10, num_draws=20_000, claimed=1.0)
        >>> result.violated, result.event, 6 in (result.likelier, result.other), result.lower < 1.609  # log 5
        (True, [0], True, True)
        >>> mechanism = rrjax.mechanisms.HadamardResponse(num_categories=4, epsilon=1.0)
        >>> rrjax.audit.audit(mechanism, num_draws=200_000).violated
        False

    References:
        Jagielski, Ullman and Oprea, "Auditing differentially private machine learning", 2020; Clopper and Pearson, "The
        use of confidence or fiducial limits", 1934.
    """
    if isinstance(draw, Client | SupportMechanism):
        for name, given in (("event", event), ("claimed", claimed), ("num_categories", num_categories)):
            if given is not None:
                raise ArgumentError(
                    f"a mechanism and its client have their own {name}: leave it out, or give the function that draws "
                    "their reports",
                    argument=name,
                    value=given,
                )
        return _audit_mechanism(draw, num_draws, values, level)
    for name, given in (("draw", draw), ("event", event)):
        if not callable(given) and (given is not None or name == "draw"):
            raise ArgumentError(f"{name} must be a function, got {given!r}", argument=name, value=given)
    num_draws = as_integer(num_draws, "num_draws", 4, MAX_DRAWS)  # four, so that every part has a report
    if values is None and num_categories is None:
        raise ArgumentError("give num_categories, or the values to choose from", argument="num_categories")
    tried = _values_to_try(num_categories, num_draws) if values is None else _checked_values(values)
    batches = partial(_batches, draw, min(BATCH_SIZE, _part(num_draws, tried)))

    def count(value, number, _pair=None, only=None):
        return _counted(batches(value, number), event, only)

    def screen(number):
        return _screening_features([count(value, number) for value in tried])

    return _audit(tried, count, screen, num_draws, claimed, level)


def _audit_mechanism(mechanism, num_draws, values, level):
    """An audit of a mechanism or of its client for real collection, from the values that reports support."""
    num_draws, num_categories = as_integer(num_draws, "num_draws", 4, MAX_DRAWS), mechanism.num_categories
    if values is None:
        tried = _values_to_try(num_categories, num_draws)
    else:
        given = check_integers(np.asarray(values), num_categories, "values")
        check_in_domain(given, num_categories, "values")
        tried = _checked_values(given.tolist())
    stream, turns = jax.random.key(0), itertools.count()

    def draw(values):
        if isinstance(mechanism, Client):
            return mechanism.randomize(values)
        return mechanism.randomize(jax.random.fold_in(stream, next(turns)), values)

    def supports(reports, values):
        if isinstance(mechanism, Client):
            return np.stack([mechanism.supports(reports, value) for value in values])
        return np.asarray(mechanism.supports(reports)[:, np.asarray(values)]).T

    report_size = math.prod(mechanism.shape) if isinstance(mechanism, Client) else num_categories
    batch_size = min(BATCH_SIZE, CELLS // max(report_size, len(tried)), _part(num_draws, tried))
    batches = partial(_batches, draw, max(1, batch_size))

    def count(value, number, pair, only=None):
        def event(reports):
            first, second = supports(reports, pair)
            return 2 * first.astype(np.int8) + second

        return _counted(batches(value, number), event, only)

    def screen(number):
        support, counts = np.zeros((len(tried), len(tried))), [Counter() for _ in tried]
        for row, forms, value in zip(support, counts, tried, strict=True):
            for reports, size, used in batches(value, number):
                row += supports(reports, tried)[:, :used].sum(axis=1)
                forms.update(_count_batch(reports, size, used, event=lambda each: np.zeros(len(each), np.int8)))
        return np.concatenate([support, _screening_features(counts)], axis=1)

    claimed = mechanism.effective_epsilon if isinstance(mechanism, Client) else float(np.asarray(mechanism.epsilon))
    return _audit(tried, count, screen, num_draws, claimed, level)


def _checked_values(values):
    try:
        values, num_distinct = list(values), len(set(values))
    except TypeError:
        raise ArgumentError(f"values must be a list of values, got {values!r}", argument="values") from None
    if num_distinct != len(values) or num_distinct < 2:
        raise ArgumentError(
            f"the values must be two or more that differ, got {values[:4]}",
            argument="values",
            value=values[-1] if values else None,
        )
    return values


def _values_to_try(num_categories, num_draws):
    check_num_categories(num_categories)
    affordable = num_draws // 2 // MIN_SCREENING_REPORTS
    return values_to_try(int(num_categories), max(2, min(MAX_VALUES, affordable)))


def _part(num_draws, values):
    """Number of reports of each of two values that rank the labels; as many choose the event."""
    return max(1, num_draws // (4 if len(values) == 2 else 8))


def _batches(draw, batch_size, value, number):
    """Batches of reports of one value, the size of each, and its number of used reports."""
    size = min(batch_size, number)
    for begin in range(0, number, size):
        yield draw(np.full(size, value)), size, min(size, number - begin)


def _counted(batches, event, only):
    return _merged(_count_batch(*batch, event=event, only=only) for batch in batches)


def _audit(values, count, screen, num_draws, claimed, level):
    """The audit; `count` draws reports of a value, `screen` makes features `[V, F]` of reports of each value."""
    needed = draws_needed(0.0 if claimed is None else claimed, level)
    half, part, pair = num_draws // 2, _part(num_draws, values), tuple(values)
    if len(values) > 2:
        each = max(1, half // len(values))
        pair = tuple(values[place] for place in _most_different_rows(screen(each), each))
    for_ranks, for_choice = ([count(value, part, pair) for value in pair] for _ in range(2))
    choosing = _merged([*for_ranks, *for_choice])
    labels, only_forms = _labels_of(choosing)
    ranking, counts = (_table(each, labels, only_forms) for each in (for_ranks, for_choice))
    members, likelier = _best_event(ranking, counts, labels, part, level)
    bounding = [count(value, half, pair, set(members)) for value in pair]
    inside = [int(number) for number in _table(bounding, members, only_forms).sum(axis=1)]
    several_forms = len({form for form, _ in choosing}) > 1
    event = [label if several_forms or only_forms else label[1] for label in labels if label in members]
    return Audit(
        lower=lower_bound((inside[likelier], inside[1 - likelier]), half, level),
        claimed=claimed,
        likelier=pair[likelier],
        other=pair[1 - likelier],
        event=event,
        counts=(inside[likelier], inside[1 - likelier]),
        num_draws=half,
        level=level,
        num_values=len(values),
        draws_needed=needed,
    )


def draws_needed(claimed: float, level: float) -> int:
    """The smallest `num_draws` with which an audit can disprove the claim of a client that reports the value itself.

    With n reports of each value, all of one and none of the other in the event, the bound is the logarithm of the odds
    of ((1 − level)/2)^{1/n}.

    Args:
        claimed: ε, nats.
        level: Confidence level of the bound.

    Returns:
        An even number, at least 4.

    Raises:
        ArgumentError: A claim that is not a number from 0 on, or a level outside (0, 1).

    Example:
        >>> import rrjax
        >>> rrjax.audit.draws_needed(1.0, level=0.999)
        50
    """
    as_probability(level, "level", 0.999)
    as_scalar(claimed, float_dtype(), "claimed")
    if not claimed >= 0:
        raise ArgumentError(f"claimed must be an ε in nats, got {claimed}", argument="claimed", value=claimed)
    # A little more than the claim, because a bound in float32 is moved down.
    number = math.log(2 / (1 - level)) / math.log1p(math.exp(-min(claimed, 600.0) - 1e-4))
    return max(4, 2 * math.ceil(number))


def lower_bound(counts: tuple[int, int], num_draws: int, level: float) -> float:
    """A lower bound of log P(E | a)/P(E | b), from counts of reports in E.

    Each of the two probabilities is bounded with an error probability of (1 − level)/2.

    Args:
        counts: Numbers of reports in E: of a, and of b.
        num_draws: Number of reports of each.
        level: Confidence level of the bound.

    Returns:
        Nats; zero if nothing is proved.

    Raises:
        ArgumentError: Counts that are not two numbers, fewer than one report, or a level outside (0, 1).

    Example:
        >>> import rrjax
        >>> f"{rrjax.audit.lower_bound((7300, 2700), 10_000, level=0.99):.2f}"
        '0.94'
    """
    as_probability(level, "level", 0.999)
    as_integer(num_draws, "num_draws", 1, MAX_DRAWS)
    if np.shape(counts) != (2,) or np.asarray(counts).dtype.kind not in "iuf":
        raise ArgumentError(f"counts must be two numbers of reports, got {counts!r}", argument="counts")
    dtype = float_dtype()
    successes = np.asarray([counts[0], num_draws - counts[1]], dtype)  # E of a, and not E of b
    failures = np.asarray([num_draws - counts[0], counts[1]], dtype)
    limits = _odds_of_tail(successes, failures, jnp.asarray(math.log((1 - level) / 2), dtype))
    error = 2e-5 if dtype == np.float32 else 1e-9  # relative rounding of a limit
    odds_of_a, odds_not_of_b = (float(limit) * (1 - error) for limit in limits)
    if odds_of_a == 0:
        return 0.0
    return max(0.0, math.log(odds_of_a) - math.log1p(odds_of_a) + math.log1p(odds_not_of_b))


_odds_of_tail = jax.jit(odds_of_tail)


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


def _merged(parts: Iterable[Counter[Label]]) -> Counter[Label]:
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


def _count_batch(
    reports: Any, size: int, used: int, *, event: Callable[[Any], Any] | None, only: Collection[Any] | None = None
) -> Counter[Label]:
    """Counts of the first `used` reports of a batch; if `only` is given, of those whose label or form is in it."""
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


def _labels_of(counts: Counter[Label]) -> tuple[list[Any], bool]:
    """The sorted labels of reports, and whether they are forms alone, because there are too many contents."""
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


def _table(counts: Sequence[Counter[Label]], labels: Sequence[Any], only_forms: bool) -> np.ndarray:
    """Numbers of reports `[V, L]` of each value and label."""
    counters = map(_forms, counts) if only_forms else counts
    return np.asarray([[counter[label] for label in labels] for counter in counters], float)


def _screening_features(seen: Sequence[Counter[Label]]) -> np.ndarray:
    """Numbers of reports `[V, F]` of each label, of each form, and, if reports are rows, of each value of an entry."""
    labels, only_forms = _labels_of(_merged(seen))
    counts = _table(seen, labels, only_forms)
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


def _most_different_rows(counts: np.ndarray, number: int) -> tuple[int, int]:
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


def _best_event(
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
