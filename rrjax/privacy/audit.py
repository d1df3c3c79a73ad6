"""Does a client keep its word? An empirical lower bound of ε from nothing but reports.

Whatever a client does, ε is at least log P(E | a)/P(E | b) for any event E of its reports and any two values a and b.
Half of the reports choose the values and the event, the other half bounds the two probabilities by Clopper–Pearson; so
the bound holds at its level whatever was chosen, and by whatever way. A bound above the ε that is claimed proves the
client wrong. One below proves nothing: other values, other events and more reports may tell more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from rrjax.data.arguments import as_probability, check_key, float_dtype
from rrjax.data.checks import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.mechanism import CELLS, Mechanism
from rrjax.numerics.special import odds_of_tail
from rrjax.privacy import audit_events as events
from rrjax.privacy.clients import Client

__all__ = ["Audit", "audit", "audit_mechanism", "draws_needed", "lower_bound"]

_BATCH = 1 << 16
"""Reports drawn at a time."""

_FEWEST = 16
"""Reports of each value by which two of many are chosen; of few reports, fewer values are looked at."""


class Audit(NamedTuple):
    """What reports prove about a client.

    Attributes:
        lower: ε is at least this, nats.
        claimed: The ε that the client claims, nats; None where it is not known.
        likelier: The value that makes the event likelier.
        other: The other one.
        event: The reports (or what the given `event` makes of them) that it consists of. Where reports had different
            forms (dtypes, shapes, lengths), pairs of form and report; where reports were too many as well, forms.
        counts: How many reports of the two values, in this order, were in the event, of those that bound it.
        num_draws: Of how many each.
        level: At which the bound holds.
        num_values: How many values were looked at before these two were chosen.
        draws_needed: The smallest `num_draws` with which the claim could be disproved at all, of a client that hides
            nothing; without a claim, with which anything could be proved.
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
        """Whether the reports were too few to find anything, whatever the client does."""
        return 2 * self.num_draws < self.draws_needed


def audit(
    draw: Callable[[np.ndarray], Any] | Client | Mechanism,
    value_a: int | None = None,
    value_b: int | None = None,
    *,
    values: Sequence[int] | None = None,
    num_categories: int | None = None,
    num_draws: int = 1_000_000,
    event: Callable[[Any], Any] | None = None,
    claimed: float | None = None,
    level: float = 0.999,
    batch_size: int = _BATCH,
) -> Audit:
    """Bounds the ε of any client from below, by what it reports of two values, which it finds among many.

    Half of the reports choose: first two values among all that are looked at, then an event of their reports. Of all
    unions of reports those are looked at that a likelihood ratio test would reject by, in both directions: some reports
    rank them by their ratio, others say how many of the first ranks promise the largest bound. The other half bounds
    it, so the level holds whatever was looked at. Reports that differ in dtype, shape or length are different reports.

    Args:
        draw: The client: takes `[n]` values and returns n reports, an array of any shape and dtype or a list of
            whatever a report is. Also a mechanism or a client of `rrjax.secure`, as `audit_mechanism`.
        value_a: A value; None looks for the two values that reports tell apart the most.
        value_b: Another one.
        values: Those that are looked at; None takes all of 0 … K − 1, or 128 of them: both ends, powers of two and
            their neighbours, and evenly between. A client that gives away another value alone is not found.
        num_categories: K, where the values are not given.
        num_draws: Half as many reports as are drawn in all; half of these are of the two values and bound the event.
        event: What to look at: takes n reports and returns an integer or a boolean of each, or a few. None takes the
            reports as they are, where there are at most 65,536 different ones, else their dtypes, shapes and lengths.
        claimed: The ε that the client claims, nats.
        level: At which the bound holds.
        batch_size: Reports drawn at a time, which bounds the memory.

    Returns:
        `Audit`; `powerless` says that the reports were too few for any client to be found, `draws_needed` how many it
        takes.

    Raises:
        ArgumentError: Equal values, one of two, no values and no K, fewer than four draws, a level out of (0, 1),
            another number of reports than of values, or too many different ones.

    Example:
        >>> import numpy as np, rrjax
        >>> random = np.random.default_rng(0)
        >>> def broken(values):  # a coin that is fair, but for the value 6
        ...     return np.where(random.random(values.size) < np.where(values == 6, 0.9, 0.5), 1, 0)
        >>> result = rrjax.audit.audit(broken, num_categories=10, num_draws=20_000, claimed=1.0)
        >>> result.violated, result.event, 6 in (result.likelier, result.other), result.lower < 1.609  # log 5
        (True, [0], True, True)

    References:
        Jagielski, Ullman and Oprea, "Auditing differentially private machine learning", 2020; Clopper and Pearson, "The
        use of confidence or fiducial limits", 1934.
    """
    if isinstance(draw, Client | Mechanism):
        for given, name in ((event, "event"), (claimed, "claimed"), (num_categories, "num_categories")):
            if given is not None:
                raise ArgumentError(
                    f"a mechanism and its client have their own {name}: leave it out, or give the function that draws "
                    "their reports",
                    argument=name,
                    value=given,
                )
        pair = None if value_a is None or value_b is None else (value_a, value_b)
        return audit_mechanism(draw, num_draws, values=pair or values, level=level)
    if (value_a is None) != (value_b is None):
        raise ArgumentError("give value_a and value_b, or neither of them", argument="value_b")
    if value_a is not None:
        looked_at = [value_a, value_b]
    elif values is not None:
        looked_at = list(values)
    elif num_categories is not None:
        check_num_categories(num_categories)
        looked_at = events.spread(int(num_categories), _num_values(num_draws))
    else:
        raise ArgumentError("give num_categories, or the values to look at", argument="num_categories")

    batch_size = max(1, min(batch_size, _part(num_draws, looked_at)))

    def count(value, number, pair=None, only=None):
        del pair
        return _counted(_batches(draw, value, number, batch_size), event, only)

    def screen(number):
        return _screened([count(value, number) for value in looked_at])

    return _audit(looked_at, count, screen, num_draws, claimed, level)


def _num_values(num_draws):
    return max(2, min(events.MOST_VALUES, num_draws // 2 // _FEWEST))


def _part(num_draws, values):
    """Reports of each of two values by which events are ranked, and as many by which one is chosen."""
    return max(1, num_draws // (4 if len(values) == 2 else 8))


def _audit(values, count, screen, num_draws, claimed, level):
    """The audit of whatever counts reports."""
    if len(set(values)) != len(values) or len(values) < 2:
        raise ArgumentError(
            f"the values must be two or more that differ, got {list(values)[:4]}",
            argument="value_b" if len(values) == 2 else "values",
            value=values[-1] if len(values) else None,
        )
    if num_draws < 4:
        raise ArgumentError(
            f"num_draws must be at least 4, so that every part has a report; got {num_draws}",
            argument="num_draws",
            value=num_draws,
        )
    as_probability(level, "level", 0.999)
    if claimed is not None and not claimed >= 0:
        raise ArgumentError(f"claimed must be an ε in nats, got {claimed}", argument="claimed", value=claimed)
    half, part, pair = num_draws // 2, _part(num_draws, values), tuple(values)
    if len(values) > 2:
        each = max(1, half // len(values))
        pair = tuple(values[place] for place in events.most_apart(screen(each), each))
    ranked, seen = ([count(value, part, pair) for value in pair] for _ in range(2))
    labels, forms_alone = events.labels_of([*ranked, *seen])
    ranking, counts = (events.table(each, labels, forms_alone) for each in (ranked, seen))
    members, likelier = events.chosen(ranking, counts, labels, part, level)
    fresh = [count(value, half, pair, set(members)) for value in pair]
    inside = [sum((found.forms if forms_alone else found.labels)[member] for member in members) for found in fresh]
    order = (likelier, 1 - likelier)
    first, second = (inside[place] for place in order)
    several = len(events.together([*ranked, *seen]).forms) > 1
    event = sorted(members) if forms_alone else [label if several else label[1] for label in labels if label in members]
    return Audit(
        lower=lower_bound((first, second), half, level),
        claimed=claimed,
        likelier=pair[order[0]],
        other=pair[order[1]],
        event=event,
        counts=(first, second),
        num_draws=half,
        level=level,
        num_values=len(values),
        draws_needed=draws_needed(claimed or 0.0, level),
    )


def _screened(seen):
    labels, forms_alone = events.labels_of(seen)
    return events.features(events.table(seen, labels, forms_alone), labels, forms_alone)


def audit_mechanism(
    mechanism: Mechanism | Client,
    num_draws: int = 1_000_000,
    *,
    values: Sequence[int] | None = None,
    level: float = 0.999,
    key: Array | None = None,
) -> Audit:
    """Bounds the ε of a mechanism, or of its client for real collection, from below, by which values reports support.

    Args:
        mechanism: A `Mechanism`, whose `randomize` is looked at, or a client of `rrjax.secure`.
        num_draws: As `audit`.
        values: Two of them, or more to choose from; None chooses from all or from 128 of them, as `audit`.
        level: At which the bound holds.
        key: A typed key for a mechanism; None takes `jax.random.key(0)`. Clients cannot be seeded.

    Returns:
        `Audit`. Its event consists of 0 (reports that support neither of the values), 1 (the larger one alone), 2 (the
        smaller one alone) and 3 (both); with `values` of two, 1 is the second one and 2 the first. `claimed` is the
        `effective_epsilon` of a client, and the ε of a mechanism.

    Raises:
        ArgumentError: As `audit`.

    Example:
        >>> import rrjax
        >>> mechanism = rrjax.mechanisms.HadamardResponse(num_categories=4, epsilon=1.0)
        >>> result = rrjax.audit.audit_mechanism(mechanism, num_draws=200_000)
        >>> result.violated, result.num_values, result.lower > 0.9
        (False, 4, True)
    """
    if key is not None:
        check_key(key)
    check_num_categories(mechanism.num_categories)
    size = mechanism.num_categories
    looked_at = events.spread(size, _num_values(num_draws)) if values is None else [int(value) for value in values]
    if any(not 0 <= value < size for value in looked_at):
        raise ArgumentError(f"values must be from 0 to {size - 1}", argument="values", value=values)
    collected = isinstance(mechanism, Client)
    draw, supported = _collected(mechanism) if collected else _simulated(mechanism, key)
    cells = math.prod(mechanism.shape) if collected else size
    batch_size = max(1, min(_BATCH, CELLS // max(cells, len(looked_at)), _part(num_draws, looked_at)))

    def count(value, number, pair, only=None):
        def event(reports):
            there = supported(reports, np.asarray(pair))
            return 2 * there[0].astype(np.int8) + there[1]

        return _counted(_batches(draw, value, number, batch_size), event, only)

    def screen(number):
        rows, forms = [], []
        for value in looked_at:
            row, seen = np.zeros(len(looked_at)), events.Seen()
            for reports, made, used in _batches(draw, value, number, batch_size):
                there = supported(reports, np.asarray(looked_at))
                row += there[:, :used].sum(axis=1)
                seen = events.together([seen, events.described(reports, made, used, event=_nothing)])
            rows.append(row)
            forms.append(seen)
        return np.concatenate([rows, _screened(forms)], axis=1)

    claimed = mechanism.effective_epsilon if collected else float(np.asarray(mechanism.epsilon))
    return _audit(looked_at, count, screen, num_draws, claimed, level)


def _collected(client):
    """What draws reports, and says which values `[V]` they support: `[V, n]`."""

    def supported(reports, values):
        return np.stack([client.supports(reports, int(value)) for value in values])

    return client.randomize, supported


def _simulated(mechanism, key):
    stream, turns = jax.random.key(0) if key is None else key, itertools.count()

    def draw(values):
        return mechanism.randomize(jax.random.fold_in(stream, next(turns)), values)

    def supported(reports, values):
        return np.asarray(mechanism.supports(reports)[:, values]).T

    return draw, supported


def draws_needed(claimed: float, level: float) -> int:
    """The smallest `num_draws` with which an audit can prove more than a claim, of a client that hides nothing.

    With n reports of each value, all of the one and none of the other in the event, the bound is the logarithm of the
    odds of ((1 − level)/2)^{1/n}.

    Args:
        claimed: ε, nats.
        level: At which the bound holds.

    Returns:
        An even number, at least 4.

    Example:
        >>> import rrjax
        >>> rrjax.audit.draws_needed(1.0, level=0.999)
        50
    """
    # By a little more than what a bound in float32 is moved down.
    number = math.log(2 / (1 - level)) / math.log1p(math.exp(-min(claimed, 600.0) - 1e-4))
    return max(4, 2 * math.ceil(number))


def lower_bound(counts: tuple[int, int], num_draws: int, level: float) -> float:
    """A lower bound of log P(E | a)/P(E | b), from how often E came.

    Each of the two probabilities is bounded at half of what the level leaves.

    Args:
        counts: Of reports in E: of a, and of b.
        num_draws: Reports of each.
        level: At which the bound holds.

    Returns:
        Nats; zero where nothing is proved.

    Example:
        >>> import rrjax
        >>> f"{rrjax.audit.lower_bound((7300, 2700), 10_000, level=0.99):.2f}"
        '0.94'
    """
    dtype = float_dtype()
    inside = np.asarray([counts[0], num_draws - counts[1]], dtype)  # E of a, and not E of b
    outside = np.asarray([num_draws - counts[0], counts[1]], dtype)
    log_level = jnp.asarray(math.log((1 - level) / 2), dtype)
    # By as much as the limits may be off.
    margin = 2e-5 if dtype == np.float32 else 1e-9
    likelier, not_other = (float(odds) * (1 - margin) for odds in _limits(inside, outside, log_level))
    if likelier == 0:
        return 0.0
    return max(0.0, math.log(likelier) - math.log1p(likelier) + math.log1p(not_other))


_limits = jax.jit(odds_of_tail)


def _nothing(reports):
    """An event that looks at the form of reports alone."""
    return np.zeros(len(reports), np.int8)


def _batches(draw, value, number, batch_size):
    """Reports of one value, so many at a time: reports, how many there should be, and how many of them are wanted."""
    batch = max(1, min(batch_size, number))
    for begin in range(0, number, batch):
        yield draw(np.full(batch, value)), batch, min(batch, number - begin)


def _counted(batches, event, only):
    """How many of some reports of a value are what."""
    return events.together(events.described(*each, event=event, only=only) for each in batches)
