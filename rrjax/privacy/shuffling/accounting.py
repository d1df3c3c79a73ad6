"""What central privacy the shuffled reports of users have who each randomize with a local ε, and the inverse."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import Mechanism, MechanismFactory
from rrjax.privacy.shuffling.divergence import Pair, divergence
from rrjax.privacy.shuffling.pairs import certain, promised

_MOST_EPSILON, _MOST_USERS = 100.0, 10**12
_TOLERANCE = 1e-6


def central_epsilon(
    num_users: int,
    epsilon: float,
    delta: float,
    *,
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """The central ε of shuffled reports, from above: what may be promised.

    Every user randomizes a value with the local ε, and a shuffler passes on the reports without their senders and in
    random order. Then whatever is made of them is (ε_c, δ) differentially private for the replacement of one user's
    value, and it needs no trust in whoever makes it. The bound is that of the privacy blanket: without a mechanism, for
    the worst randomizer of that ε; with one, of its own.

    Args:
        num_users: N, from 1 to 10¹².
        epsilon: The local ε, nats, above 0 and at most 100.
        delta: δ in (0, 1).
        num_categories: K, needed with a mechanism.
        mechanism: Its class, or a function of K and ε, such as `rrjax.RandomizedResponse`. One that is not known here
            is bounded as any other randomizer.

    Returns:
        ε_c, nats, a plain float: at most the local ε, and 0 where δ alone covers all that shuffling leaves. An upper
        bound, rounding included. From 1,000 users on and for ε_c below one it is within 0.3 % of what the method gives
        exactly, without a mechanism and for randomized response, and within 3 % for the other ones; where hardly
        anything is amplified it can be a multiple.

    Raises:
        ValueError: An argument that is not as said.

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
    num_users, epsilon, delta = _users(num_users), _epsilon(epsilon), _delta(delta)
    pair = promised(epsilon, _built(mechanism, num_categories, epsilon))
    return _spent(num_users, epsilon, delta, pair, upper=True)[1]


def central_delta(
    num_users: int,
    epsilon: float,
    central_epsilon: float,
    *,
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """The central δ of shuffled reports at a central ε, from above.

    Args:
        num_users: N, from 1 to 10¹².
        epsilon: The local ε, nats, above 0 and at most 100.
        central_epsilon: ε_c, nats, at least 0.
        num_categories: As in `central_epsilon`.
        mechanism: As in `central_epsilon`.

    Returns:
        δ, a plain float: an upper bound, 0 where ε_c is no less than the local ε.

    Raises:
        ValueError: An argument that is not as said.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.shuffling.central_delta(100_000, 2.0, 0.05):.0e}")
        4e-10

    References:
        As of `central_epsilon`.
    """
    num_users, epsilon = _users(num_users), _epsilon(epsilon)
    central_epsilon = float(central_epsilon)
    if not central_epsilon >= 0:
        raise ArgumentError(
            f"central_epsilon must be a number of nats, at least 0, got {central_epsilon:g}",
            argument="central_epsilon",
            value=central_epsilon,
        )
    if central_epsilon >= epsilon:
        return 0.0
    pair = promised(epsilon, _built(mechanism, num_categories, epsilon))
    return divergence(num_users, pair, central_epsilon, upper=True)


def leaked_epsilon(
    num_users: int,
    epsilon: float,
    delta: float,
    *,
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """The central ε of shuffled reports, from below: what no proof can undercut.

    There are two collections that differ in one user, and a way to tell their reports apart, that break any smaller ε_c
    at this δ: one user holds either of two values, all others the same one, a third or the second, and it is counted
    how many reports support the two. Beside `central_epsilon` it shows how much a better proof could gain.

    Args:
        num_users: N, from 1 to 10¹².
        epsilon: The local ε, nats, above 0 and at most 100.
        delta: δ in (0, 1).
        num_categories: As in `central_epsilon`.
        mechanism: As in `central_epsilon`. Without one it is of the worst randomizer that was looked at: randomized
            response of three categories.

    Returns:
        ε_c, nats, a plain float: a lower bound.

    Raises:
        ValueError: An argument that is not as said.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.shuffling.leaked_epsilon(100_000, 2.0, 1e-8):.3f}")
        0.041

    References:
        The pair of Wang et al., "Privacy amplification via shuffling: unified, simplified, and tightened",
        arXiv:2304.05007, which is exact for this way to look at them.
    """
    num_users, epsilon, delta = _users(num_users), _epsilon(epsilon), _delta(delta)
    pairs = certain(epsilon, _built(mechanism, num_categories, epsilon))
    return max(_spent(num_users, epsilon, delta, pair, upper=False)[0] for pair in pairs)


def local_epsilon(
    num_users: int,
    central_epsilon: float,
    delta: float,
    *,
    num_categories: int | None = None,
    mechanism: MechanismFactory | None = None,
) -> float:
    """The local ε whose shuffled reports just keep a central budget (ε_c, δ): the inverse of `central_epsilon`.

    Args:
        num_users: N, from 1 to 10¹².
        central_epsilon: ε_c, nats, above 0 and at most 100.
        delta: δ in (0, 1).
        num_categories: As in `central_epsilon`.
        mechanism: As in `central_epsilon`.

    Returns:
        The local ε, nats, a plain float: at least ε_c, at most 100. The bound of `central_delta` is at most δ at it,
        and no longer at an ε larger by a millionth. (Where hardly anything is amplified the bounds of encodings and of
        Hadamard response do not grow with ε throughout. Then it is one ε of several.)

    Raises:
        ValueError: An argument that is not as said.

    Example:
        >>> import rrjax
        >>> print(f"{rrjax.shuffling.local_epsilon(100_000, 0.1, 1e-8):.2f}")
        3.28

    References:
        As of `central_epsilon`.
    """
    num_users, delta = _users(num_users), _delta(delta)
    central_epsilon = _epsilon(central_epsilon, "central_epsilon")

    def pair(epsilon: float) -> Pair:
        return promised(epsilon, _built(mechanism, num_categories, epsilon))

    def delta_at(epsilon: float) -> float:
        return divergence(num_users, pair(epsilon), central_epsilon, upper=True)

    pair(central_epsilon)  # a wrong mechanism is one at any ε
    if delta_at(_MOST_EPSILON) <= delta:
        return _MOST_EPSILON
    low, high = central_epsilon, _MOST_EPSILON
    for _ in range(40):
        guess = (low + high) / 2
        low, high = (guess, high) if _scale(num_users, delta, pair(guess)) < central_epsilon else (low, guess)
    return _crossing(delta_at, delta, low, (central_epsilon, 0.0), (_MOST_EPSILON, 1.0))[0]


def _spent(num_users: int, epsilon: float, delta: float, pair: Pair, *, upper: bool) -> tuple[float, float]:
    """Two ε_c close to each other: at the smaller one the divergence is above δ, at the larger one at most δ."""

    def delta_at(central_epsilon: float) -> float:
        return divergence(num_users, pair, central_epsilon, upper=upper)

    alone = delta_at(0.0)
    if alone <= delta:
        return 0.0, 0.0
    keeps, breaks = _crossing(delta_at, delta, _scale(num_users, delta, pair), (epsilon, 0.0), (0.0, alone))
    return breaks, keeps


def _scale(num_users: int, delta: float, pair: Pair) -> float:
    """About the central ε, from the normal law of the sum."""
    deviation = pair.gain * math.sqrt((1 / pair.common[0] + 1 / pair.common[1]) / num_users)
    return deviation * math.sqrt(2 * max(math.log(deviation / delta), 1))


def _crossing(
    delta_at: Callable[[float], float],
    delta: float,
    guess: float,
    keeps: tuple[float, float],
    breaks: tuple[float, float],
) -> tuple[float, float]:
    """Narrows the interval from a point where δ is kept to one where it is not, given with the divergences there.

    Regula falsi (Illinois) in √(−log δ), which is almost linear; bisection while the divergence at an end is zero.
    """

    def height(divergence: float) -> float:
        return math.sqrt(-math.log(divergence)) - level if divergence > 0 else math.inf

    level = math.sqrt(-math.log(delta))
    (good, above), (bad, below) = (keeps[0], height(keeps[1])), (breaks[0], height(breaks[1]))
    point = guess
    for _ in range(100):
        low, high = min(good, bad), max(good, bad)
        if high - low <= _TOLERANCE * high:
            break
        if not low < point < high:
            point = (low + high) / 2
        found = delta_at(point)
        if found <= delta:
            good, above, below = point, height(found), below / 2
        else:
            bad, below, above = point, height(found), above / 2
        if math.isfinite(above):
            # Not nearer to either end than a part of the tolerance, or the other end would stay where it is.
            part = min(max(above / (above - below), _TOLERANCE / 4), 1 - _TOLERANCE / 4)
            point = good + (bad - good) * part
        else:
            point = math.sqrt(good * bad) if bad > 0 else good / 4
    return good, bad


def _built(mechanism: MechanismFactory | None, num_categories: int | None, epsilon: float) -> Mechanism | None:
    if num_categories is not None:
        check_num_categories(num_categories)
    if mechanism is None:
        return None
    if num_categories is None:
        raise ArgumentError(
            "num_categories is missing: what a mechanism hides depends on how many there are", argument="num_categories"
        )
    built = mechanism(num_categories, epsilon)
    found = getattr(built, "epsilon", None)
    if found is None or np.ndim(found) != 0 or not math.isclose(float(found), epsilon, rel_tol=1e-9):
        raise ArgumentError(
            f"mechanism must make one of the ε that it is given: at epsilon = {epsilon:g} it made "
            + ("one that has no epsilon" if found is None else f"one of epsilon = {found}"),
            argument="mechanism",
        )
    return built


def _users(num_users: int) -> int:
    number = np.asarray(num_users)
    if number.ndim != 0 or number.dtype.kind not in "iu":
        raise ArgumentError(f"num_users must be an integer, got {num_users!r}", argument="num_users", value=num_users)
    if not 1 <= int(number) <= _MOST_USERS:
        raise ArgumentError(f"num_users must be from 1 to {_MOST_USERS}, got {int(number)}", argument="num_users")
    return int(number)


def _epsilon(epsilon: float, name: str = "epsilon") -> float:
    epsilon = float(epsilon)
    if not 0 < epsilon <= _MOST_EPSILON:
        raise ArgumentError(
            f"{name} must be a number of nats above 0 and at most {_MOST_EPSILON:g}, got {epsilon:g}", argument=name
        )
    return epsilon


def _delta(delta: float) -> float:
    delta = float(delta)
    if not 0 < delta < 1:
        raise ArgumentError(
            f"delta must lie between 0 and 1, such as 1e-8, got {delta:g}", argument="delta", value=delta
        )
    return delta
