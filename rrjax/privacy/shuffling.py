r"""Privacy amplification by shuffling: the central (ε, δ) of the reports of N users who randomize with a local ε.

One of the N users has the law P or Q, the only difference between two neighbouring collections. Every other user may be
taken to report, with the same probability, a draw from a law that all of them have in common; the rest of their reports
is revealed. With ω that law times that probability, the divergence of order e^ε_c is (Balle et al., Lemma 5.3)

    δ(ε_c) = E(Z_1 + … + Z_N)₊ / N,    Z = (P − e^ε_c·Q)(y)/ω(y) at a report y drawn from ω, else 0.

A report is of one of two kinds that differ between P and Q ("telling"), or of a kind that does not ("silent"). So S = Σ
Z is linear in the counts, A and B of the telling kinds and C of each silent one. Given T = A + B and C, A is binomial,
and S is a number times A less a threshold. T and C are divided into cells, tails included, in which S is made larger
(or, for the bound from below, smaller):

* A binomial count less its mean is the smaller in the convex order, the fewer the trials: A has the cell's most.
* C is stochastically the smaller, the larger T is, and S falls in it: in a cell it has the law of the cell's most T.
* S is then linear in T and in C, so its positive part is convex: the cell's mass is moved to its two ends, its mean
  kept. For the bound from below, the fewest trials instead of the most, and the mass is moved to the mean.

So no mass is cut off, and no tail bound is needed. Binomial tails above the mean are as in `rrjax.numerics.special`,
with k successes of n trials of chance θ:

    P(X ≥ k) = pmf(k) · k · ∫₀^∞ exp(g(v)) dv,    g(v) = −k·v + (n−k)·log(1 + o·(1 − e^−v)),    o = θ/(1−θ),
    E[(X − nθ)·1{X ≥ k}] = pmf(k) · k · (1 − θ).

All is computed by NumPy in float64, not by JAX, whose default is float32: δ = 1e-8 and less need all digits. Bounds
include their own rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from rrjax.data.categories import as_integer, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import MechanismFactory, SupportMechanism
from rrjax.privacy.binomial_tails import cells, excess

__all__ = ["central_delta", "central_epsilon", "local_epsilon"]

Side: TypeAlias = Literal["upper", "lower"]

MAX_EPSILON, MAX_USERS = 100.0, 10**12
TOLERANCE = 1e-6
"""Relative width of the interval of an ε."""


def central_epsilon(
    num_users: int,
    epsilon: float,
    delta: float,
    *,
    side: Side = "upper",
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """A bound of the central ε of shuffled reports: from above for promises to users, or from below.

    Every user randomizes a value with the local ε, and a shuffler forwards the reports without their senders in random
    order. Then every result computed from them is (ε_c, δ) differentially private for the replacement of one user's
    value.

    * "upper": the bound of the privacy blanket, of the given mechanism or of the worst randomizer with this ε.
    * "lower": no proof can give a smaller ε. Two collections, different in one user, can be distinguished better than a
      smaller ε_c allows at this δ: one user has either of two values, all others have one value, a third or the second,
      and the reports that support each of the two values are counted.

    Args:
        num_users: N, from 1 to 10¹².
        epsilon: The local ε, nats, above 0 and at most 100.
        delta: δ in (0, 1).
        side: As above.
        num_categories: K, needed with a mechanism.
        mechanism: A class, or a function of K and ε, such as `rrjax.RandomizedResponse`. None, or for "upper" an
            unknown one, is the worst randomizer; for "lower" the worst that is known, randomized response with K = 3.

    Returns:
        ε_c, nats, a plain float: at most the local ε, and 0 if δ alone covers the loss. Rounding is included. From
        1,000 users on and for ε_c below one the upper bound is within 0.3 % of the method's exact value, without a
        mechanism and for randomized response, and within 3 % for other mechanisms; with little amplification it can be
        a multiple.

    Raises:
        ValueError: An argument of another type or out of its range.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.shuffling.central_epsilon(100_000, 2.0, 1e-8):.3f}")
        0.044
        >>> print(f"{rrjax.shuffling.central_epsilon(100_000, 2.0, 1e-8, side='lower'):.3f}")
        0.041
        >>> rr = rrjax.RandomizedResponse
        >>> print(f"{rrjax.shuffling.central_epsilon(100_000, 2.0, 1e-8, num_categories=100, mechanism=rr):.3f}")
        0.012

    References:
        Balle, Bell, Gascón and Nissim, "The privacy blanket of the shuffle model", 2019: Lemma 5.3. Su, Cheng and Wang,
        "Decomposition-based optimal bounds for privacy amplification via shuffling", arXiv:2504.07414: no other
        decomposition does better. Feldman, McMillan and Talwar, "Hiding among the clones", 2021: a closed form that is
        larger. From below, the pair of Wang et al., "Privacy amplification via shuffling: unified, simplified, and
        tightened", arXiv:2304.05007, which is exact for these counts.
    """
    num_users, epsilon, delta = _as_users(num_users), _as_epsilon(epsilon), _as_delta(delta)
    upper, pairs = _pairs(side, mechanism, num_categories, epsilon)
    return max(_central_epsilons(num_users, epsilon, delta, pair, upper)[upper] for pair in pairs)


def central_delta(
    num_users: int,
    epsilon: float,
    central_epsilon: float,
    *,
    side: Side = "upper",
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """A bound of the central δ of shuffled reports at a central ε.

    Args:
        num_users: N, from 1 to 10¹².
        epsilon: The local ε, nats, above 0 and at most 100.
        central_epsilon: ε_c, nats, at least 0.
        side: As in `central_epsilon`.
        num_categories: As in `central_epsilon`.
        mechanism: As in `central_epsilon`.

    Returns:
        δ, a plain float; 0 if ε_c is at least the local ε.

    Raises:
        ValueError: An argument of another type or out of its range.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.shuffling.central_delta(100_000, 2.0, 0.05):.0e}")
        4e-10

    References:
        As of `central_epsilon`.
    """
    num_users, epsilon = _as_users(num_users), _as_epsilon(epsilon)
    at_least_zero = "a number of nats, at least 0"
    central_epsilon = _as_float(central_epsilon, "central_epsilon", lambda number: number >= 0, at_least_zero)
    upper, pairs = _pairs(side, mechanism, num_categories, epsilon)
    if central_epsilon >= epsilon:
        return 0.0
    return max(divergence(num_users, pair, central_epsilon, upper=upper) for pair in pairs)


def local_epsilon(
    num_users: int,
    central_epsilon: float,
    delta: float,
    *,
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """The largest local ε whose shuffled reports keep a central budget (ε_c, δ): the inverse of `central_epsilon`.

    Args:
        num_users: N, from 1 to 10¹².
        central_epsilon: ε_c, nats, above 0 and at most 100.
        delta: δ in (0, 1).
        num_categories: As in `central_epsilon`.
        mechanism: As in `central_epsilon`.

    Returns:
        The local ε, nats, a plain float: at least ε_c, at most 100. The bound of `central_delta` is at most δ here, and
        above δ at an ε larger by a millionth. (With little amplification the bounds of encodings and of Hadamard
        response do not always grow with ε; then this is one such ε of several.)

    Raises:
        ValueError: An argument of another type or out of its range.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.shuffling.local_epsilon(100_000, 0.1, 1e-8):.2f}")
        3.28

    References:
        As of `central_epsilon`.
    """
    num_users, delta = _as_users(num_users), _as_delta(delta)
    central_epsilon = _as_epsilon(central_epsilon, "central_epsilon")

    def pair(epsilon: float) -> Pair:
        return upper_pair(epsilon, _built(mechanism, num_categories, epsilon))

    def delta_at(epsilon: float) -> float:
        return divergence(num_users, pair(epsilon), central_epsilon, upper=True)

    pair(central_epsilon)  # refuses a wrong mechanism
    if delta_at(MAX_EPSILON) <= delta:
        return MAX_EPSILON
    low, high = central_epsilon, MAX_EPSILON
    for _ in range(40):
        middle = (low + high) / 2
        too_low = _normal_approximation(num_users, delta, pair(middle)) < central_epsilon
        low, high = (middle, high) if too_low else (low, middle)
    return _crossing(delta_at, delta, low, (central_epsilon, 0.0), (MAX_EPSILON, 1.0))[0]


def _pairs(side: Side, mechanism, num_categories, epsilon) -> tuple[bool, list[Pair]]:
    """Whether the bound is from above, and the pairs whose largest divergence it is."""
    if side not in get_args(Side):
        raise ArgumentError.about("side", f"must be 'upper' or 'lower', got {side!r}")
    built = _built(mechanism, num_categories, epsilon)
    return side == "upper", [upper_pair(epsilon, built)] if side == "upper" else lower_pairs(epsilon, built)


def _central_epsilons(num_users: int, epsilon: float, delta: float, pair: Pair, upper: bool) -> tuple[float, float]:
    """Two neighbouring ε_c: at the smaller one the divergence is above δ, at the larger one at most δ."""

    def delta_at(central_epsilon: float) -> float:
        return divergence(num_users, pair, central_epsilon, upper=upper)

    delta_at_zero = delta_at(0.0)
    if delta_at_zero <= delta:
        return 0.0, 0.0
    start = _normal_approximation(num_users, delta, pair)
    keeps, breaks = _crossing(delta_at, delta, start, (epsilon, 0.0), (0.0, delta_at_zero))
    return breaks, keeps


def _normal_approximation(num_users: int, delta: float, pair: Pair) -> float:
    """The approximate central ε, by the normal law of the sum."""
    deviation = pair.gain * math.sqrt((1 / pair.common[0] + 1 / pair.common[1]) / num_users)
    return deviation * math.sqrt(2 * max(math.log(deviation / delta), 1))


def _crossing(delta_at, delta, point, keeps, breaks):
    """The interval from a point that keeps δ to one that does not, narrowed; both are given with their divergences.

    Regula falsi (Illinois) in √(−log δ), which is almost linear; bisection while the divergence at an end is zero.
    """

    def height(divergence: float) -> float:
        return math.sqrt(-math.log(divergence)) - level if divergence > 0 else math.inf

    level = math.sqrt(-math.log(delta))
    (good, above), (bad, below) = (keeps[0], height(keeps[1])), (breaks[0], height(breaks[1]))
    for _ in range(100):
        low, high = min(good, bad), max(good, bad)
        if high - low <= TOLERANCE * high:
            break
        if not low < point < high:
            point = (low + high) / 2
        here = delta_at(point)
        if here <= delta:
            good, above, below = point, height(here), below / 2
        else:
            bad, below, above = point, height(here), above / 2
        if math.isfinite(above):
            # A part of the tolerance away from both ends, or the other end would not move.
            part = min(max(above / (above - below), TOLERANCE / 4), 1 - TOLERANCE / 4)
            point = good + (bad - good) * part
        else:
            point = math.sqrt(good * bad) if bad > 0 else good / 4
    return good, bad


def _built(mechanism: MechanismFactory | None, num_categories: int | None, epsilon: float) -> SupportMechanism | None:
    if num_categories is not None:
        check_num_categories(num_categories)
    if mechanism is None:
        return None
    if num_categories is None:
        raise ArgumentError("num_categories is missing: the bound of a mechanism needs it", argument="num_categories")
    if not callable(mechanism):
        raise ArgumentError.about("mechanism", f"must be a class or a function of K and ε, got {mechanism}")
    built = mechanism(num_categories, epsilon)
    own = getattr(built, "epsilon", None)
    if own is None or np.ndim(own) != 0 or not math.isclose(float(own), epsilon, rel_tol=1e-9):
        raise ArgumentError(
            f"mechanism must make one of the ε that it is given: at epsilon = {epsilon:g} it made "
            + ("one that has no epsilon" if own is None else f"one of epsilon = {own}"),
            argument="mechanism",
        )
    return built


def _as_users(num_users: Any) -> int:
    number = np.asarray(num_users)
    whole = number.ndim == 0 and number.dtype.kind in "iu"
    return as_integer(int(number) if whole else num_users, "num_users", 1, MAX_USERS)


def _as_epsilon(epsilon: Any, name: str = "epsilon") -> float:
    wanted = f"a number of nats above 0 and at most {MAX_EPSILON:g}"
    return _as_float(epsilon, name, lambda number: 0 < number <= MAX_EPSILON, wanted)


def _as_delta(delta: Any) -> float:
    return _as_float(delta, "delta", lambda number: 0 < number < 1, "a number between 0 and 1, such as 1e-8")


def _as_float(given: Any, name: str, is_valid: Callable[[float], bool], wanted: str) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not is_valid(number):
        raise ArgumentError(f"{name} must be {wanted}, got {given}", argument=name, value=given)
    return number


class Overlap(NamedTuple):
    """The overlap of the reports of users with different values, for a mechanism whose reports support values.

    Any report has one of two probabilities, whose ratio is e^ε: the larger one for users whose value it supports.
    """

    one: float
    """Probability that a report of a user with value b supports a and not b."""
    both: float
    """Probability that a report of a user with a or b supports both."""
    neither: float
    """Probability that a report of a user with a or b supports neither; 1 less the others would cancel."""
    bystander: float
    """As `one`, for a user with a third value, the least informative one."""


def _randomized_response(mechanism: SupportMechanism) -> Overlap:
    q = mechanism.rates_by(math.expm1).q
    return Overlap(q, 0.0, (mechanism.num_categories - 2) * q, q)


def _unary_encoding(mechanism: SupportMechanism) -> Overlap:
    rates = mechanism.rates_by(math.expm1)
    return Overlap(rates.q * rates.not_p, rates.p * rates.q, rates.not_p * rates.not_q, rates.q * rates.not_q)


def _hadamard_response(mechanism: SupportMechanism) -> Overlap:
    # Categories 0, 1 and 2 are the columns' bits 1, 2 and 1 + 2: no column supports one of them and not the other two.
    rates = mechanism.rates_by(math.expm1)
    return Overlap(rates.not_p / 2, rates.p / 2, rates.not_p / 2, rates.not_p / 2)


def _subset_selection(mechanism: SupportMechanism) -> Overlap:
    rates, others = mechanism.rates_by(math.expm1), mechanism.num_categories - 1
    size = round(rates.p + others * rates.q)  # members of any report
    # For a user with a third value: reports that support it, and reports that do not.
    with_it, without_it = rates.p * (size - 1) * (others + 1 - size), rates.not_p * size * (others - size)
    both, neither = rates.p * (size - 1) / others, rates.not_p * (others - size) / others
    bystander = (with_it + without_it) / (others * max(others - 1, 1))
    return Overlap(_one_of_design(mechanism), both, neither, bystander)


def _projective_geometry(mechanism: SupportMechanism) -> Overlap:
    # Points 0, 1 and 2 are on one line: a plane contains at most one of them, or all three.
    rates, one = mechanism.rates_by(math.expm1), _one_of_design(mechanism)
    return Overlap(one, max(rates.q - one, 0.0), max(rates.not_p - one, 0.0), one)


def _one_of_design(mechanism: SupportMechanism) -> float:
    """`one` of any block design, with p − q = (e^ε − 1)·one and q = one + both."""
    return mechanism.rates_by(math.expm1).d / math.expm1(mechanism.epsilon)  # pyright: ignore[reportArgumentType]


OVERLAPS: dict[str, Callable[[SupportMechanism], Overlap]] = {
    "randomized-response": _randomized_response,
    "symmetric-unary-encoding": _unary_encoding,
    "optimized-unary-encoding": _unary_encoding,
    "hadamard-response": _hadamard_response,
    "subset-selection": _subset_selection,
    "projective-geometry-response": _projective_geometry,
}
"""The overlaps by mechanism name. For other mechanisms only ε is known.

Local hashing is missing: the number of its 2³² seeds that hash two categories to one bucket is not known exactly.
"""


def upper_pair(epsilon: float, mechanism: SupportMechanism | None) -> Pair:
    """The pair whose divergence is an upper bound for any two neighbouring collections.

    The probability of a report of any user is at least its probability under either law of the pair, over e^ε. For an
    unknown mechanism the worst pair has only telling reports, as in randomized response with two values: a silent
    report with P = Q = τ has ω ≥ τ/e^ε, so Z is (1 − e^ε_c)·e^ε with probability τ/e^ε, and 0 with the rest of τ. Given
    that, Z is smaller in the convex order than the Z of randomized response, which has the same mean and varies in both
    directions; and the order carries over to mixtures of kinds and to the sum of N.
    """
    e1 = math.expm1(epsilon)
    overlap = _overlap(mechanism)
    if overlap is None:
        return _pair(e1, 1 / (e1 + 2), (1 / (e1 + 2), 1 / (e1 + 2)), (), e1 / (e1 + 2))
    kinds = ((overlap.both, overlap.both / (e1 + 1)), (overlap.neither, overlap.neither))
    return _pair(e1, overlap.one, (overlap.one, overlap.one), kinds, 1 - 2 * overlap.one)


def lower_pairs(epsilon: float, mechanism: SupportMechanism | None) -> list[Pair]:
    """Pairs whose divergence is a lower bound for some two neighbouring collections.

    One user has either of two values, and all others one and the same value, so ω is the law of their reports. Where
    that is one of the two values, it matters which of them is P's.
    """
    e1 = math.expm1(epsilon)
    if mechanism is None:  # randomized response with three categories, all others have the third
        return [_bystanders(e1, 1 / (e1 + 3), 1 / (e1 + 3), 1 / (e1 + 3))]
    overlap = _overlap(mechanism)
    if overlap is None:  # whether a report supports the first value; all others have the second
        if not callable(getattr(mechanism, "rates_by", None)):
            raise ArgumentError(
                f"mechanism must be one whose reports support values, with p and q, such as RandomizedResponse; of "
                f"{type(mechanism).__name__} it is not known what it leaks",
                argument="mechanism",
            )
        rates = mechanism.rates_by(math.expm1)
        either = (rates.q, rates.not_q)
        reverse = Pair(rates.d, (rates.not_p, rates.p), (rates.not_q, rates.q), (), 0.0)
        return [Pair(rates.d, either, either, (), 0.0), reverse]
    one, other = overlap.one, overlap.one * (e1 + 1)
    silent = overlap.both + overlap.neither
    pairs = [_pair(e1, one, of_others, ((silent, silent),), silent) for of_others in ((one, other), (other, one))]
    if mechanism.num_categories > 2:
        pairs.append(_bystanders(e1, one, silent, overlap.bystander))
    return pairs


def _overlap(mechanism: SupportMechanism | None) -> Overlap | None:
    overlap_of = OVERLAPS.get(getattr(mechanism, "name", ""))
    return None if mechanism is None or overlap_of is None else overlap_of(mechanism)


def _bystanders(e1: float, one: float, silent: float, common: float) -> Pair:
    of_others = 1 - (common + common)
    return _pair(e1, one, (common, common), ((silent, of_others),), of_others)


def _pair(e1, one, common, silent, remainder):
    return Pair(e1 * one, (one, (e1 + 1) * one), common, tuple(kind for kind in silent if min(kind) > 0), remainder)


NUM_CELLS = {0: (512,), 1: (96, 24), 2: (40, 12, 6)}
"""Numbers of cells of T and of each C, by the number of silent kinds. With fewer users nothing is rounded."""


class Pair(NamedTuple):
    """Two laws of a report, P and Q, and the common law ω of all other users."""

    gain: float
    """P − Q of the first telling kind, Q − P of the second one: the total variation between P and Q."""
    q: tuple[float, float]
    """Q of either telling kind."""
    common: tuple[float, float]
    """ω of either telling kind."""
    silent: tuple[tuple[float, float], ...]
    """P = Q and ω of every silent kind with P > 0 and ω > 0."""
    remainder: float
    """1 − ω of the telling kinds, given because the difference loses digits if it is small."""


def divergence(num_users: int, pair: Pair, central_epsilon: float, *, upper: bool) -> float:
    """The hockey-stick divergence of order e^ε_c, from above or from below."""
    margin = 1e-9 + 1e-13 * math.sqrt(num_users)
    e1 = math.expm1(central_epsilon)
    first_z = (pair.gain - pair.q[0] * e1) / pair.common[0]
    if first_z <= 0:
        return 0.0
    slope = first_z + (pair.gain + pair.q[1] * e1) / pair.common[1]
    telling = sum(pair.common)
    share, rest = (one / telling for one in pair.common)  # of which the smaller one keeps its digits
    num_cells = NUM_CELLS[len(pair.silent)]

    value, bound, mass = _count_nodes(np.array(float(num_users)), telling, pair.remainder, num_cells[0], upper)
    # S = slope·(A − trials) + slack. If e^ε_c is large, one report of the second kind outweighs all of the first kind,
    # and slack/slope is less than a rounding of the trials.
    trials, slack = bound, bound * first_z + (bound - value) * (sum(pair.q) * e1 / telling)
    left, remainder = np.maximum(num_users - bound, 0), pair.remainder
    for (probability, common), number in zip(pair.silent, num_cells[1:], strict=True):
        value, bound, mass_of_kind = _count_nodes(left, common, remainder - common, number, upper)
        slack = slack[..., None] - probability * e1 / common * value
        left, remainder = np.maximum(left[..., None] - bound, 0), max(remainder - common, 0.0)
        mass, trials = mass[..., None] * mass_of_kind, trials[..., None]

    used = mass > 0
    trials, slack = np.broadcast_to(trials, mass.shape)[used], slack[used] / slope
    above_mean = np.floor(trials * share) + 1  # the threshold may be the mean itself
    above_mean = np.minimum(above_mean, np.maximum(trials, 1))  # where a share of one less little was rounded
    k = np.maximum(trials - np.floor(slack), above_mean)
    expected = float(slope * np.sum(mass[used] * excess(k, trials, (share, rest), slack - (trials - k))) / num_users)
    if not upper:  # at least the divergence of one report alone
        return max(min(expected * (1 - margin), pair.gain - pair.q[0] * e1), 0.0)
    return min(expected * (1 + margin), pair.gain)  # at most the total variation


def _count_nodes(trials, weight, other, number, upper):
    """A few values in place of all of a binomial count: values, the counts of their cells, and masses."""
    whole = weight + max(other, 0.0)
    if weight <= other:
        low, high, mass, mean = cells(trials, weight / whole, number)
    else:  # by the complement, which keeps its digits if it is rare
        fewest, most, mass, mean_other = cells(trials, max(other, 0.0) / whole, number)
        low, high, mean = (trials[..., None] - each for each in (most, fewest, mean_other))
    if not upper:
        return mean, low, mass
    width = high - low
    at_high = mass * np.where(width > 0, (mean - low) / np.where(width > 0, width, 1), 0)
    return tuple(np.concatenate(each, axis=-1) for each in ((low, high), (high, high), (mass - at_high, at_high)))
