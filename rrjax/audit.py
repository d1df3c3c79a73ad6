"""Does a client keep its word? An empirical lower bound of ε from nothing but reports.

Whatever a client does, ε is at least log P(E | a)/P(E | b) for any event E of its reports and any two values a and b.
Half of the reports choose an event, the other half bounds the two probabilities by Clopper–Pearson; so the bound holds
at its level whatever was chosen, and by whatever way. A bound above the ε that is claimed proves the client wrong. One
below proves nothing: other values, other events and more reports may tell more.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from rrjax.arguments import as_probability, float_dtype
from rrjax.checks import check_num_categories
from rrjax.inference.binomial import odds_of_tail
from rrjax.mechanisms.mechanism import CELLS, Mechanism
from rrjax.secure import Client

_BATCH = 1 << 16
"""Reports drawn at a time."""

_MOST = 1 << 16
"""Different reports that an event is chosen among."""


class Audit(NamedTuple):
    """What reports prove about a client.

    Attributes:
        lower: ε is at least this, nats.
        claimed: The ε that the client claims, nats; None where it is not known.
        likelier: The value that makes the event likelier.
        other: The other one.
        event: The reports (or what the given `event` makes of them) that it consists of.
        counts: How many reports of the two values, in this order, were in the event, of those that bound it.
        num_draws: Of how many each.
        level: At which the bound holds.
    """

    lower: float
    claimed: float | None
    likelier: int
    other: int
    event: list[Any]
    counts: tuple[int, int]
    num_draws: int
    level: float

    @property
    def violated(self) -> bool:
        """Whether the claim is disproved."""
        return self.claimed is not None and self.lower > self.claimed


def audit(
    draw: Callable[[np.ndarray], Any],
    value_a: int,
    value_b: int,
    *,
    num_draws: int = 1_000_000,
    event: Callable[[Any], Any] | None = None,
    claimed: float | None = None,
    level: float = 0.999,
    batch_size: int = _BATCH,
) -> Audit:
    """Bounds the ε of any client from below, by what it reports of two values.

    Of all unions of reports those are looked at that a likelihood ratio test would reject by, in both directions: a
    quarter of the reports ranks them by their ratio, another one says how many of the first ranks promise the largest
    bound, and the other half bounds it.

    Args:
        draw: The client: takes `[n]` values and returns n reports, arrays of any shape and dtype.
        value_a: A value.
        value_b: Another one.
        num_draws: Reports of each value, half of which choose the event.
        event: What to look at: takes n reports and returns an integer or a boolean of each, or a few. None takes the
            reports as they are, where there are at most 65,536 different ones.
        claimed: The ε that the client claims, nats.
        level: At which the bound holds.
        batch_size: Reports drawn at a time, which bounds the memory.

    Returns:
        `Audit`.

    Raises:
        ValueError: Equal values, fewer than four draws, a level out of (0, 1), another number of reports than of
            values, or too many different ones.

    Example:
        >>> import numpy as np, rrjax
        >>> random = np.random.default_rng(0)
        >>> def broken(values):  # a coin that is fair only for the value 0
        ...     return np.where(random.random(values.size) < 0.5 + 0.4 * values, 1, 0)
        >>> result = rrjax.audit.audit(broken, 0, 1, num_draws=20_000, claimed=1.0)
        >>> result.violated, result.event, result.lower < 1.609  # log 5
        (True, [0], True)

    References:
        Jagielski, Ullman and Oprea, "Auditing differentially private machine learning", 2020; Clopper and Pearson, "The
        use of confidence or fiducial limits", 1934.
    """
    if value_a == value_b:
        raise ValueError(f"value_a and value_b must differ, got {value_a} twice")
    if num_draws < 4:
        raise ValueError(f"num_draws must be at least 4, so that every part has a report; got {num_draws}")
    as_probability(level, "level", 0.999)
    pair, half, quarter = (value_a, value_b), num_draws // 2, num_draws // 4
    batch = max(1, min(batch_size, quarter))

    def counted(number):
        return [_counted(draw, value, number, event, batch) for value in pair]

    members, likelier = _chosen(counted(quarter), counted(quarter), quarter, level)
    order = (likelier, 1 - likelier)
    fresh = counted(half)
    first, second = (sum(fresh[place][member] for member in members) for place in order)
    inside = first, second
    lower = lower_bound(inside, half, level)
    return Audit(lower, claimed, pair[order[0]], pair[order[1]], sorted(members), inside, half, level)


def audit_mechanism(
    mechanism: Mechanism | Client,
    num_draws: int = 1_000_000,
    *,
    values: tuple[int, int] | None = None,
    level: float = 0.999,
    key: Array | None = None,
) -> Audit:
    """Bounds the ε of a mechanism, or of its client for real collection, from below, by which values reports support.

    Args:
        mechanism: A `Mechanism`, whose `randomize` is looked at, or a client of `rrjax.secure`.
        num_draws: Reports of each value, half of which choose the event.
        values: Two of them; None takes the first and the last one.
        level: At which the bound holds.
        key: A typed key for a mechanism; None takes `jax.random.key(0)`. Clients cannot be seeded.

    Returns:
        `Audit`. Its event consists of 0 (reports that support neither of the values), 1 (the second one alone), 2 (the
        first one alone) and 3 (both). `claimed` is the `effective_epsilon` of a client, and the ε of a mechanism.

    Raises:
        ValueError: As `audit`.

    Example:
        >>> import rrjax
        >>> mechanism = rrjax.mechanisms.HadamardResponse(num_categories=4, epsilon=1.0)
        >>> result = rrjax.audit.audit_mechanism(mechanism, num_draws=200_000)
        >>> result.violated, f"{result.lower:.1f}"
        (False, '1.0')
    """
    check_num_categories(mechanism.num_categories)
    first, second = values or (0, mechanism.num_categories - 1)
    collected = isinstance(mechanism, Client)
    draw, supported = _collected(mechanism) if collected else _simulated(mechanism, key)
    cells = math.prod(mechanism.shape) if collected else mechanism.num_categories

    def event(reports):
        there = supported(reports, np.asarray([first, second]))
        return 2 * there[0].astype(np.int8) + there[1]

    return audit(
        draw,
        first,
        second,
        num_draws=num_draws,
        event=event,
        claimed=mechanism.effective_epsilon if collected else float(np.asarray(mechanism.epsilon)),
        level=level,
        batch_size=max(1, min(_BATCH, CELLS // cells)),
    )


def _collected(client):
    """What draws reports, and says which values `[2]` they support: `[2, n]`."""

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


def _counted(draw, value, number, event, batch):
    """How many of some reports of a value are what."""
    counts = Counter()
    for begin in range(0, number, batch):
        reports = draw(np.full(batch, value))
        labels = np.asarray(reports if event is None else event(reports))
        if labels.shape[:1] != (batch,):
            raise ValueError(f"{batch} values made {labels.shape} reports or events: one of each is wanted")
        labels = labels[: number - begin]
        flat = labels if labels.ndim == 1 else labels.reshape(len(labels), -1)
        found, times = np.unique(flat, axis=0, return_counts=True)
        rows = found.tolist() if flat.ndim == 1 else map(tuple, found.tolist())
        counts.update(dict(zip(rows, times.tolist(), strict=True)))
        if len(counts) > _MOST:
            raise ValueError(f"there are more than {_MOST:,} different reports: give event, which says what to look at")
    return counts


def _chosen(ranked, counts, number, level):
    """The union of reports with the largest bound, roughly, and which of the two values makes it likelier.

    They are ranked by some reports, and it is by others that is said how many of the ranks to take: by the same ones
    the few would win whose ratio chance had raised.
    """
    labels = sorted(set().union(*ranked, *counts))
    ranking, seen = (
        np.asarray([[each[label] for label in labels] for each in pair], float) + 0.5 for pair in (ranked, counts)
    )
    z = NormalDist().inv_cdf((1 + level) / 2)
    best = (-math.inf, [], 0)
    for likelier in (0, 1):
        order = np.argsort(-ranking[likelier] / ranking[1 - likelier], kind="stable")
        one, other = np.cumsum(seen[likelier][order]), np.cumsum(seen[1 - likelier][order])
        scores = np.log(one / other) - z * np.sqrt(np.maximum(1 / one + 1 / other - 2 / number, 0))
        last = int(np.argmax(scores))
        if scores[last] > best[0]:
            best = (float(scores[last]), [labels[place] for place in order[: last + 1]], likelier)
    return best[1:]
