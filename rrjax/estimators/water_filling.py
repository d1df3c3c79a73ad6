"""Water filling: the kernel that InvN, MLE* and InvP share.

Each of the three is one function of a threshold τ on the counts c, F(τ)_i = (c_i − τ)₊ / Σ_j (c_j − τ)₊, and they
differ in τ alone. With S and m the sum and the number of the active counts (those above τ), e1 = expm1(ε) and d = p −
q:

    InvN   τ = N / (e1 + K)            no search
    MLE*   τ = S / (e1 + m)            a fixed point
    InvP   τ = (S − N·d) / m           a fixed point

For integer counts the threshold is kept as an integer `level` (the smallest count above τ that can be active)
and a `rise` = level − τ in (0, 1]. Then θ_i = ((c_i − level) + rise) / ((S − m·level) + m·rise): every term is
exact or positive, nothing cancels, and the support is decided in integers. S − m·level is at most N, so
wrap-around arithmetic is exact up to the largest integer of the dtype.

Two solvers find the fixed point: `sort` (sort, cumulative sums, one count of true values) and `newton` (a few passes of
compare-and-sum). They end in the same integers, hence in the same bits.

The start of `newton` depends on the platform. Its result does not, because every start is a lower bound. On a CPU a
turn of the loop costs little, so it starts from a bound that does not read the counts. Elsewhere a pass reads a whole
batch from memory, with arithmetic to spare, and by default XLA's GPU backend waits for the host after every turn. So
where there are many categories several levels are looked at in one pass. The first ones come from some of the counts,
not from their sum, so that one pass takes both. For integers a second pass looks at levels that follow each other: the
threshold is nearly always among them, and then it is known, and the loop has no turn.
"""

from __future__ import annotations

import functools
from typing import Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from rrjax.data.arguments import float_of
from rrjax.numerics.sharding import by_platform, take_at, with_sharding_of
from rrjax.numerics.sums import accurate_sum, corrected, split_product, two_sum

Solver: TypeAlias = Literal["auto", "newton", "sort"]

MANY_CATEGORIES = 512
"""From here on several levels are tried at once. A short row has few turns, and there a GPU takes the longer for a
reduction the more sums it has."""
LOOKAHEAD = (0.0, 0.7, 1.5, 2.5)
"""Levels tried first, in deviations of the counts of empty categories above their mean."""
PARTS, PART = 8, 16
"""Runs of neighbouring counts, and their length, of which the least mean is taken for that of empty categories.

A GPU reads 32 bytes at once. The largest categories are in few of the runs, in whatever order the categories are.
"""
FOLLOWING = 6
"""Levels from the best bound on, one after the other, that are tried next.

In nine of ten problems the fixed point is among them, and in nearly all among those that follow the next bound: a test
draws them, with K of 100 and 10,000, N from 10³ to 10⁸, Zipf from 0 to 2 and ε from 0.1 to 12. On a GPU more levels
take longer than the turns that they save.
"""


class Threshold(NamedTuple):
    """A threshold τ = level − rise.

    For integer counts `level` is an integer and `rise` in (0, 1]; for weights `level` is the mean of the active
    ones or zero, whichever is nearer to τ. Either way `rise` is known to full relative precision, however small.
    """

    level: Shaped[Array, ""]
    rise: Float[Array, ""]


class Likelihood(NamedTuple):
    """τ = S / (e1 + m): the KKT conditions of the likelihood on the active set."""

    e1: Float[Array, ""]

    def below(self, total: Int[Array, ""], number: Int[Array, ""]) -> Int[Array, ""]:
        """A cheap integer level, never above the exact one, from sum and number of the active counts."""
        return self._whole_below(total, number) + 1

    def _whole_below(self, total, number):
        """The floor of τ, or a little less: the margin covers the rounding errors of τ."""
        tau = total.astype(self.e1.dtype) / (self.e1 + number.astype(self.e1.dtype))
        margin = 1 - 8 * jnp.finfo(tau.dtype).eps
        return jnp.floor(tau * margin).astype(total.dtype)

    def exact(self, total: Int[Array, ""], number: Int[Array, ""]) -> Threshold:
        """The exact threshold, from sum and number of the active counts."""
        divisor = self.e1 + number.astype(self.e1.dtype)
        # A start just below τ, one Newton step from its exact residual, then the first of four neighbours above τ. The
        # residual is as large as the rounding error of the start, so one step is enough.
        start = self._whole_below(total, number)
        _, residual, _, _ = self._excess(start, total, number)
        step = jnp.floor(-residual.astype(total.dtype).astype(self.e1.dtype) / divisor)
        first = jnp.maximum(start + step.astype(total.dtype) - 1, 0)
        candidates = first + jnp.arange(4, dtype=total.dtype)
        more, whole, fraction, saturated = self._excess(candidates, total, number)
        # Beyond a machine word level·e1 dwarfs S, so rounding it is harmless.
        above = jnp.where(
            saturated,
            candidates.astype(self.e1.dtype) * self.e1 - (total - number * candidates).astype(self.e1.dtype),
            whole.astype(self.e1.dtype) + fraction,
        )
        chosen = jnp.arange(4) == jnp.argmax(more)
        level = jnp.sum(jnp.where(chosen, candidates, 0))
        # Chosen first, divided last: XLA divides a vector by a broadcast scalar through its reciprocal when batched.
        rise = jnp.minimum(jnp.sum(jnp.where(chosen, above, 0)) / divisor, 1)
        return Threshold(level, rise)

    def exceeded(self, level: Int[Array, "*s"], total: Int[Array, "*s"], number: Int[Array, "*s"]) -> Bool[Array, "*s"]:
        """Whether levels are above τ, from sum and number of the active counts of each."""
        return self._excess(level, total, number)[0]

    def _excess(self, level, total, number):
        """Whether level·(e1 + m) > S, the difference rounded down to an integer, its fraction, and saturation."""
        whole, fraction, saturated = split_product(level, self.e1)
        short = total - number * level  # exact by wrap-around: it lies within ±N
        unsigned = short.astype(whole.dtype)
        more = (short < 0) | (unsigned < whole) | ((unsigned == whole) & (fraction > 0))
        return more, whole - unsigned, fraction, saturated

    def keeps(self, count: Int[Array, " K"], excess: Int[Array, " K"]) -> Bool[Array, " K"]:
        """Whether a count is above τ; the counts at least as large exceed it by `excess` = S − m·count in total."""
        whole, fraction, _ = split_product(count, self.e1)
        unsigned = excess.astype(whole.dtype)
        return (unsigned < whole) | ((unsigned == whole) & (fraction > 0))

    def weigh(self, total: Float[Array, "*s"], number: Float[Array, "*s"], largest: Float[Array, ""]) -> Threshold:
        """The threshold of active weights of this sum and number, none above `largest`."""
        # Relative to 0 or the mean, whichever is nearer to τ, so that the difference is accurate.
        near_mean = self.e1 <= number
        rise = total / number * (self.e1 / (self.e1 + number))
        mean = _mean(total, number, largest)
        return Threshold(jnp.where(near_mean, mean, 0), jnp.where(near_mean, rise, -total / (self.e1 + number)))


class Projection(NamedTuple):
    """τ = (S − N·d) / m: the Euclidean projection of the inversion on the simplex.

    `kept` = N·d carries a few roundings of the dtype. It is split into a whole and a fraction; the rest is exact.
    """

    kept: Float[Array, ""]
    whole: Int[Array, ""]
    fraction: Float[Array, ""]

    @classmethod
    def of(cls, total: Shaped[Array, ""], num_categories: int, e1: Float[Array, ""]) -> Projection:
        """The rule for counts that sum to `total`."""
        size = total.astype(e1.dtype)
        kept = size * (e1 / (e1 + num_categories))
        # Near d = 1 the noise N·(1 − d) is the number that a float holds well.
        noise = size * (num_categories / (e1 + num_categories))
        few = noise < kept
        up, down = jnp.ceil(noise), jnp.floor(kept)
        integer = total.dtype if jnp.issubdtype(total.dtype, jnp.integer) else jnp.int32
        whole = jnp.where(few, total.astype(integer) - up.astype(integer), down.astype(integer))
        return cls(kept, whole, jnp.where(few, up - noise, kept - down))

    def below(self, total, number):
        return self.exact(total, number).level

    def exact(self, total, number):
        level = -((self._largest_excess() - total) // number)
        short = (self.whole - (total - number * level)).astype(self.fraction.dtype)
        return Threshold(level, jnp.minimum((short + self.fraction) / number.astype(short.dtype), 1))

    def exceeded(self, level, total, number):
        return total - number * level <= self._largest_excess()

    def keeps(self, count, excess):
        del count
        return excess <= self._largest_excess()

    def weigh(self, total, number, largest):
        return Threshold(_mean(total, number, largest), self.kept / number)

    def _largest_excess(self):
        return jnp.where(self.fraction > 0, self.whole, self.whole - 1)


Rule: TypeAlias = Likelihood | Projection


def solve(counts: Shaped[Array, " K"], rule: Rule, start: Shaped[Array, ""], solver: Solver) -> Float[Array, " K"]:
    """The estimate F(τ) with τ the fixed point of `rule`."""
    if jnp.issubdtype(counts.dtype, jnp.integer):
        level, total, number = (_sort_integers if solver == "sort" else _newton_integers)(counts, rule, start)
        return _fill_integers(counts, level, total, number)
    return _fill_floats(counts, (_sort_floats if solver == "sort" else _newton_floats)(counts, rule))


def clip(counts: Shaped[Array, " K"], rule: Rule) -> Float[Array, " K"]:
    """The estimate F(τ) with the τ that `rule` gives if every category counts as active, without a search."""
    number = jnp.asarray(counts.shape[0], counts.dtype)
    if jnp.issubdtype(counts.dtype, jnp.integer):
        level = rule.exact(jnp.sum(counts), number)
        return _fill_integers(counts, level, *_active(counts, level.level))
    return _fill_floats(counts, rule.weigh(accurate_sum(counts), number, jnp.max(counts)))


def _fill_integers(counts, level, total, number):
    dtype = level.rise.dtype
    # Σ (c − τ) over the active counts, as two positive terms.
    height = (total - number * level.level).astype(dtype) + number.astype(dtype) * level.rise
    above = (counts - level.level).astype(dtype) + level.rise
    return jnp.where(counts >= level.level, above / height, 0)


def _fill_floats(counts, level):
    above = jnp.maximum((counts - level.level) + level.rise, 0)
    return above / accurate_sum(above)


def _active(counts, level):
    """Sum and number of the counts that reach a level."""
    mask = counts >= level
    return _summed(jnp.where(mask, counts, 0), mask.astype(counts.dtype))


def _summed(*terms):
    """The sums of vectors, all in one reduction.

    XLA vectorizes it on a CPU; two separate reductions would take four times as long there. On a GPU it is one kernel
    that reads the counts once.
    """
    zeros = [jnp.zeros((), term.dtype) for term in terms]
    return lax.reduce(list(terms), zeros, lambda a, b: [x + y for x, y in zip(a, b, strict=True)], (0,))


def _newton_integers(counts, rule, start):
    start = with_sharding_of(start, counts, rule)
    zeros = with_sharding_of((start, jnp.zeros((), float_of(counts)), jnp.zeros_like(start)), counts, rule)[1:]
    given = counts, rule, from_below(start, *zeros)
    if counts.shape[0] < MANY_CATEGORIES:
        return _turn_by_turn(*given)
    return by_platform(*given, cpu=_turn_by_turn, elsewhere=_many_levels, exported=True)


def _turn_by_turn(counts, rule, state):
    return fixed_point(functools.partial(_active, counts), rule.exact, state)


def _many_levels(counts, rule, state):
    level, rise = state[1]
    state = from_below(_raised(counts, rule, level), rise, state[2])
    look = functools.partial(_ahead, counts, rule)
    return lax.while_loop(_unsettled, look, look(state))[1:]


def _first_levels(counts):
    """Levels about the counts of empty categories, guessed from few of them."""
    length = min(PART, counts.shape[0])
    starts = [place * (counts.shape[0] - length) // (PARTS - 1) for place in range(PARTS)]
    parts = jnp.stack([counts[start : start + length] for start in starts]).astype(float_of(counts))
    means = jnp.mean(parts, axis=1)
    least = jnp.min(means)
    spread = jnp.sqrt(least)
    if jnp.issubdtype(counts.dtype, jnp.floating):
        deviations = jnp.std(parts, axis=1)
        spread = jnp.min(jnp.where(means == least, deviations, jnp.inf))
    # The least of as many means of so many is below their own mean by this.
    middle = least + 1.42 / length**0.5 * spread
    return [middle + width * spread for width in LOOKAHEAD]


def from_below(start, rise, zero):
    """The state of a search that knows a lower bound of the level and nothing more; `rise` and `zero` are zeros."""
    return start - 1, Threshold(start, rise), zero, zero


def fixed_point(active, exact, state):
    """The threshold that its active counts reproduce, with their sum and number.

    Every level is a lower bound of the fixed point, so no active count is ever dropped, and a level that reproduces
    itself is the fixed point. `active(level)` are sum and number of the counts that reach a level, and `exact` makes a
    threshold of them; for one vector or several. The state is a level, the threshold that it leads to, and its sums.
    """

    def body(state):
        _, level, _, _ = state
        total, number = active(level.level)
        after = exact(total, number)
        return level.level, Threshold(jnp.maximum(after.level, level.level), after.rise), total, number

    return lax.while_loop(_unsettled, body, state)[1:]


def _unsettled(state):
    return jnp.any(state[1].level > state[0])


def _ahead(counts, rule, state):
    """The state at the fixed point, if it is among the levels that follow, or below it."""
    least = state[1].level
    levels, total, number = _following(counts, least)
    # The first level that its active counts put the threshold below, else the last one.
    place = jnp.arange(FOLLOWING)
    exceeded = (number > 0) & rule.exceeded(levels, total, number)
    chosen = place == jnp.min(jnp.where(exceeded, place, FOLLOWING - 1))
    level, total, number = (jnp.sum(jnp.where(chosen, each, 0), dtype=each.dtype) for each in (levels, total, number))
    level = jnp.maximum(level, least)  # beyond the largest integer it wraps around
    after = rule.exact(total, jnp.maximum(number, 1))
    return level, Threshold(jnp.maximum(after.level, level), after.rise), total, number


def _following(counts, level):
    """Levels from this one on, one after the other, and sum and number of the counts that reach each."""
    last = FOLLOWING - 1
    place = counts - level
    beyond = place >= last
    total, numbers = _sums_and_numbers(
        [jnp.where(beyond, counts, 0)], [*(place == at for at in range(last)), beyond], counts
    )
    levels, totals, numbers = [level + last], list(total), numbers[::-1]
    for at in reversed(range(last)):
        exactly = numbers[last - at]
        levels.append(level + at)
        totals.append(totals[-1] + exactly * (level + at))
        numbers[last - at] = numbers[last - at - 1] + exactly
    return tuple(jnp.stack(values[::-1]) for values in (levels, totals, numbers))


def _sums_and_numbers(terms, masks, counts):
    """Sums of terms, and numbers of true values of masks, in the dtype of the counts and in one reduction."""
    # Two numbers share a word where they fit: the more sums, the longer a GPU takes.
    bits = 16 if counts.shape[0] < 2**16 else 32
    each = range(len(masks))
    units = [jnp.where(masks[at], jnp.uint32(1 << bits * at % 32), 0) for at in each]
    words = [functools.reduce(jnp.add, units[first : first + 32 // bits]) for first in each[:: 32 // bits]]
    sums = _summed(*terms, *words)
    words = sums[len(terms) :]
    numbers = (words[at * bits // 32] >> (at * bits % 32) & jnp.uint32(2**bits - 1) for at in each)
    return sums[: len(terms)], [number.astype(counts.dtype) for number in numbers]


def _raised(counts, rule, level):
    """A level nearer to the fixed point, and not above it.

    The counts above any level bound the fixed point from below. The error of the best bound is the square of the error
    of its level.
    """
    total, number = _looked(counts, [1 + jnp.floor(each).astype(counts.dtype) for each in _first_levels(counts)])
    bounds = jnp.where(number > 0, rule.below(total, jnp.maximum(number, 1)), level)
    return jnp.maximum(level, jnp.max(bounds))


def _looked(counts, levels):
    """Sums and numbers of the counts that reach each level."""
    masks = [counts >= level for level in levels]
    sums, numbers = _sums_and_numbers([jnp.where(mask, counts, 0) for mask in masks], masks, counts)
    return jnp.stack(sums), jnp.stack(numbers)


def _sort_integers(counts, rule, start):
    del start
    ordered = jnp.sort(counts)
    sums = jnp.sum(counts) - jnp.cumsum(ordered) + ordered  # of this count and all larger ones
    number = jnp.arange(counts.shape[0], 0, -1, dtype=counts.dtype)
    dropped = jnp.sum(~rule.keeps(ordered, sums - number * ordered), dtype=jnp.int32)
    dropped = jnp.minimum(dropped, counts.shape[0] - 1)
    total, number = take_at(sums, dropped), take_at(number, dropped)
    return rule.exact(total, number), total, number


def _mean(total, number, largest):
    # Rounding must not lift the mean above the largest weight, or nothing would be left.
    return jnp.minimum(total / number, largest)


def _newton_floats(counts, rule):
    largest = jnp.max(counts)

    def turns(step, first, after):
        def body(state):
            level, number, _ = state
            return *step(after(level)), number

        state = with_sharding_of((*step(first), jnp.asarray(jnp.inf, counts.dtype)), counts, rule)
        return lax.while_loop(lambda state: state[1] < state[2], body, state)[0]

    def apart():
        def step(mask):
            number = jnp.sum(mask, dtype=counts.dtype)
            total = accurate_sum(jnp.where(mask, counts, 0))
            return rule.weigh(total, number, largest), number

        return turns(step, jnp.ones_like(counts, bool), lambda level: (counts - level.level) + level.rise > 0)

    def at_once():
        zero = jnp.zeros((), counts.dtype)

        def step(cut):
            # XLA's GPU backend would write a mask that compares with two numbers.
            mask = counts > cut
            terms = jnp.where(mask, counts, 0), jnp.zeros_like(counts), mask.astype(counts.dtype)
            total, error, number = lax.reduce(terms, (zero, zero, zero), _sum_and_number, (0,))
            level = rule.weigh(corrected(total, error), number, largest)
            # A part of the state, or it might be computed for every count.
            return (level, _largest_outside(level)), number

        return turns(step, _below_threshold(counts, rule, largest), lambda level: level[1])[0]

    return by_platform(cpu=apart, elsewhere=at_once, exported=True)


def _largest_outside(threshold):
    """The largest float at or below τ. A rise that is less than the rounding of the level keeps the weight there."""
    tau = threshold.level - threshold.rise
    below, above = (jnp.nextafter(tau, jnp.asarray(end, tau.dtype)) for end in (-jnp.inf, jnp.inf))
    for each in (tau, above):
        below = jnp.where((each - threshold.level) + threshold.rise <= 0, each, below)
    return below


def _sum_and_number(a, b):
    return *two_sum(a[:2], b[:2]), a[2] + b[2]


def _below_threshold(counts, rule, largest):
    """A lower bound of the threshold, from a look at several levels where there are many categories."""
    if not isinstance(counts.shape[0], int) or counts.shape[0] < MANY_CATEGORIES:  # or a symbol of `jax.export`
        return jnp.full_like(largest, -jnp.inf)
    total, number = _looked(counts, _first_levels(counts))
    weighed = rule.weigh(total, jnp.maximum(number, 1), largest)
    # The margin covers plain sums; without any number there is no bound.
    margin = 64 * jnp.finfo(counts.dtype).eps * (jnp.abs(weighed.level) + jnp.abs(weighed.rise))
    return jnp.max(jnp.where(number > 0, weighed.level - weighed.rise - margin, -jnp.inf))


def _sort_floats(counts, rule):
    ordered = jnp.sort(counts)
    sums = jnp.cumsum(ordered[::-1])[::-1]
    number = jnp.arange(counts.shape[0], 0, -1, dtype=counts.dtype)
    level = rule.weigh(sums, number, ordered[-1])
    dropped = jnp.sum((ordered - level.level) + level.rise <= 0, dtype=jnp.int32)
    mask = counts >= take_at(ordered, jnp.minimum(dropped, counts.shape[0] - 1))
    total = accurate_sum(jnp.where(mask, counts, 0))
    return rule.weigh(total, jnp.sum(mask, dtype=counts.dtype), ordered[-1])
