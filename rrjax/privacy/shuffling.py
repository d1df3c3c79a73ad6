"""Privacy amplification by shuffling: the central (ε, δ) of the reports of N users who randomize with a local ε.

Computed by NumPy in float64, not by JAX, whose default is float32: δ = 1e-8 and less need all digits. Bounds include
their own rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rrjax.data.categories import as_integer, check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import MechanismFactory, SupportMechanism
from rrjax.privacy.shuffling_divergence import Pair, divergence
from rrjax.privacy.shuffling_pairs import lower_pairs, upper_pair

__all__ = ["central_delta", "central_epsilon", "leaked_epsilon", "local_epsilon"]

MAX_EPSILON, MAX_USERS = 100.0, 10**12
TOLERANCE = 1e-6
"""Relative width of the interval of an ε."""


def central_epsilon(
    num_users: int,
    epsilon: float,
    delta: float,
    *,
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """An upper bound of the central ε of shuffled reports, for promises to users.

    Every user randomizes a value with the local ε, and a shuffler forwards the reports without their senders in random
    order. Then every result computed from them is (ε_c, δ) differentially private for the replacement of one user's
    value. The bound is that of the privacy blanket: of the given mechanism, or of the worst randomizer with this ε.

    Args:
        num_users: N, from 1 to 10¹².
        epsilon: The local ε, nats, above 0 and at most 100.
        delta: δ in (0, 1).
        num_categories: K, needed with a mechanism.
        mechanism: A class, or a function of K and ε, such as `rrjax.RandomizedResponse`. None, or an unknown one, is
            bounded as the worst randomizer.

    Returns:
        ε_c, nats, a plain float: at most the local ε, and 0 if δ alone covers the loss. An upper bound, rounding
        included. From 1,000 users on and for ε_c below one it is within 0.3 % of the method's exact value, without a
        mechanism and for randomized response, and within 3 % for other mechanisms; with little amplification it can be
        a multiple.

    Raises:
        ValueError: An argument of another type or out of its range.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.shuffling.central_epsilon(100_000, 2.0, 1e-8):.3f}")
        0.044
        >>> rr = rrjax.RandomizedResponse
        >>> print(f"{rrjax.shuffling.central_epsilon(100_000, 2.0, 1e-8, num_categories=100, mechanism=rr):.3f}")
        0.012

    References:
        Balle, Bell, Gascón and Nissim, "The privacy blanket of the shuffle model", 2019: Lemma 5.3. Su, Cheng and Wang,
        "Decomposition-based optimal bounds for privacy amplification via shuffling", arXiv:2504.07414: no other
        decomposition does better. Feldman, McMillan and Talwar, "Hiding among the clones", 2021: a closed form that is
        larger.
    """
    num_users, epsilon, delta = _as_users(num_users), _as_epsilon(epsilon), _as_delta(delta)
    pair = upper_pair(epsilon, _built(mechanism, num_categories, epsilon))
    return _central_epsilons(num_users, epsilon, delta, pair, upper=True)[1]


def central_delta(
    num_users: int,
    epsilon: float,
    central_epsilon: float,
    *,
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """An upper bound of the central δ of shuffled reports at a central ε.

    Args:
        num_users: N, from 1 to 10¹².
        epsilon: The local ε, nats, above 0 and at most 100.
        central_epsilon: ε_c, nats, at least 0.
        num_categories: As in `central_epsilon`.
        mechanism: As in `central_epsilon`.

    Returns:
        δ, a plain float: an upper bound, 0 if ε_c is at least the local ε.

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
    if central_epsilon >= epsilon:
        return 0.0
    pair = upper_pair(epsilon, _built(mechanism, num_categories, epsilon))
    return divergence(num_users, pair, central_epsilon, upper=True)


def leaked_epsilon(
    num_users: int,
    epsilon: float,
    delta: float,
    *,
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """A lower bound of the central ε of shuffled reports: no proof can give a smaller ε.

    There are two collections, different in one user, that can be distinguished better than a smaller ε_c allows at this
    δ: one user has either of two values, all others have one value, a third or the second, and the reports that support
    each of the two values are counted. The difference to `central_epsilon` is the most that a better proof could gain.

    Args:
        num_users: N, from 1 to 10¹².
        epsilon: The local ε, nats, above 0 and at most 100.
        delta: δ in (0, 1).
        num_categories: As in `central_epsilon`.
        mechanism: As in `central_epsilon`. None takes the worst randomizer known: randomized response with K = 3.

    Returns:
        ε_c, nats, a plain float: a lower bound.

    Raises:
        ValueError: An argument of another type or out of its range.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.shuffling.leaked_epsilon(100_000, 2.0, 1e-8):.3f}")
        0.041

    References:
        The pair of Wang et al., "Privacy amplification via shuffling: unified, simplified, and tightened",
        arXiv:2304.05007, which is exact for these counts.
    """
    num_users, epsilon, delta = _as_users(num_users), _as_epsilon(epsilon), _as_delta(delta)
    pairs = lower_pairs(epsilon, _built(mechanism, num_categories, epsilon))
    return max(_central_epsilons(num_users, epsilon, delta, pair, upper=False)[0] for pair in pairs)


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


def _central_epsilons(num_users: int, epsilon: float, delta: float, pair: Pair, *, upper: bool) -> tuple[float, float]:
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
        found = delta_at(point)
        if found <= delta:
            good, above, below = point, height(found), below / 2
        else:
            bad, below, above = point, height(found), above / 2
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
    found = getattr(built, "epsilon", None)
    if found is None or np.ndim(found) != 0 or not math.isclose(float(found), epsilon, rel_tol=1e-9):
        raise ArgumentError(
            f"mechanism must make one of the ε that it is given: at epsilon = {epsilon:g} it made "
            + ("one that has no epsilon" if found is None else f"one of epsilon = {found}"),
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
