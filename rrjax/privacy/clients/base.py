"""The base of all clients: probabilities as integers out of 2¹²⁸, the ε that they deliver, and random words.

e^ε is computed to 120 digits, and every rounding goes towards less ε. The ε delivered is never more than the requested
one, and less by at most 2⁻³⁰ of it; other ε are refused.

Randomized response compares one 128-bit integer u with the threshold `keep`:

    report = value                 if u < keep,
             (u − keep) mod K      otherwise,

where 2¹²⁸ − keep is a multiple of K, so that the second line is exactly uniform, and d = p − q = keep/2¹²⁸ exactly. (64
bits are not enough: at K = 2³¹ and ε = 0.1 the multiple of K alone takes more than `keep`.)
"""

from __future__ import annotations

import abc
import math
import os
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from rrjax.data.categories import check_in_domain, check_integers, check_num_categories
from rrjax.data.errors import ArgumentError

CHUNK = 1 << 20
"""Number of words drawn at a time: 8 MiB of random bits."""
LARGEST_WORD = np.uint64(2**64 - 1)
BITS = 128
"""Number of bits of the uniform numbers that are compared with thresholds: two words."""
DENOMINATOR = 2**BITS
"""Scale of thresholds: a threshold is a probability times this."""
SMALLEST_THRESHOLD = 2**76
"""Smallest probability that a report differs from its value: below once in 2⁵² there is no protection."""
LARGEST_LOSS = Fraction(1, 2**30)
"""Largest relative loss of ε by rounding."""
DOWN, UP = (Context(prec=120, rounding=rounding) for rounding in (ROUND_FLOOR, ROUND_CEILING))
"""Decimal arithmetic of intermediate results."""


class Client(abc.ABC):
    """Randomizes true values for a real collection: made by `rrjax.secure.client`.

    Attributes:
        num_categories: K.
        epsilon: The requested ε, nats. The ε delivered is less by at most 2⁻³⁰ of it, so estimates may use the
            requested one.
        likelihood_ratio: The largest ratio of a report's probabilities under two values, e^ε delivered, as an exact
            fraction.
        shape: The shape of a report.
        num_words: Number of random words for a report.
    """

    name: ClassVar[str]
    """The name of the mechanism."""

    parameter: ClassVar[str | None] = None
    """The mechanism's parameter besides K and ε."""

    dtype: ClassVar[type] = np.int32
    """The dtype of reports."""

    likelihood_ratio: Fraction
    shape: tuple[int, ...] = ()
    num_words: int = 2

    def __init__(self, num_categories: int, epsilon: float) -> None:
        """Checks K and ε."""
        check_num_categories(num_categories)
        self.num_categories, self.epsilon = int(num_categories), as_epsilon(epsilon)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that recreate the mechanism."""
        chosen = {} if self.parameter is None else {self.parameter: getattr(self, self.parameter)}
        return {"num_categories": self.num_categories, "epsilon": self.epsilon, **chosen}

    @property
    def effective_epsilon(self) -> float:
        """The ε delivered, nats, rounded down: never more than `epsilon`."""
        return log_down(self.likelihood_ratio)

    def randomize(self, values: np.typing.ArrayLike) -> np.ndarray:
        """Randomized reports of true values, by the operating system's cryptographic random numbers.

        They cannot be seeded, on purpose; for simulations use `randomize` of `rrjax.mechanisms`.

        Args:
            values: Integers in 0 … K − 1, any shape.

        Returns:
            Reports, coded as by the mechanism's `randomize`: the shape of `values`, then of a report.

        Raises:
            ArgumentError: Values that are not integers or lie outside the domain. The message shows none of them.
        """
        values = check_integers(np.asarray(values), self.num_categories, "values")
        check_in_domain(values, self.num_categories, "values")
        reports = np.empty((values.size, *self.shape), self.dtype)
        self._fill(values.reshape(-1), reports)
        return reports.reshape((*values.shape, *self.shape))

    def supports(self, reports: np.ndarray, value: int) -> np.ndarray:
        """Whether each report supports one value, as booleans; by default the report that names it."""
        return reports == value

    @abc.abstractmethod
    def _made(self, values: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Reports of values `[N]`, int32, by words `[N, num_words]`."""

    def _fill(self, values, reports):
        rows = max(1, CHUNK // self.num_words)
        for begin in range(0, values.size, rows):
            part = slice(begin, begin + rows)
            some = values[part].astype(np.int32)
            reports[part] = self._made(some, random_words(some.size, self.num_words))


def random_words(rows: int, columns: int) -> np.ndarray:
    """Words `[rows, columns]` of the operating system's cryptographic random numbers, uint64, not writable."""
    return np.frombuffer(os.urandom(8 * rows * columns), np.uint64).reshape(rows, columns)


def below(draws: np.ndarray, threshold: int) -> np.ndarray:
    """Whether uniform numbers of 128 bits, given by their high words, are below a threshold."""
    high, low = (np.uint64(word) for word in divmod(threshold, 2**64))
    is_below = draws < high
    tied = draws == high
    if tied.any():  # only for ties is the low word drawn
        is_below[tied] = random_words(int(tied.sum()), 1)[:, 0] < low
    return is_below


def numbers_below(draws: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Numbers from 0 to bound − 1, exactly uniform: words beyond the last whole multiple are redrawn."""
    draws = draws.copy()
    last = LARGEST_WORD - (LARGEST_WORD % bounds + np.uint64(1)) % bounds  # 2⁶⁴ modulo the bound, without 2⁶⁴
    while (again := draws > last).any():
        draws[again] = random_words(int(again.sum()), 1)[:, 0]
    return draws % bounds


def as_epsilon(epsilon: Any, name: str = "epsilon") -> float:
    """An ε as a float that is not above it.

    Raises:
        ArgumentError: It is not a positive number.
    """
    try:
        if isinstance(epsilon, str | bytes | bool | np.bool_):
            raise TypeError
        nearest = float(epsilon)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError.about(name, f"must be a positive number of nats, got {epsilon!r}", value=epsilon) from error
    if not nearest > 0:
        raise ArgumentError(f"{name} must be a positive number of nats, got {nearest}", argument=name, value=epsilon)
    # A decimal or a fraction may lie between two floats.
    return math.nextafter(nearest, 0.0) if nearest > epsilon else nearest


def float_down(number: Decimal) -> float:
    """The largest float that is not above a number."""
    nearest = float(number)
    return nearest if Decimal(nearest) <= number else math.nextafter(nearest, -math.inf)


def log_down(ratio: Fraction) -> float:
    """The logarithm of a ratio above one, rounded down: the ε delivered by a ratio of likelihoods."""
    quotient = DOWN.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    # Decimals round logarithms and exponentials to nearest in every context: one step is taken down.
    return max(0.0, float_down(DOWN.next_minus(DOWN.ln(quotient))))


def threshold(own: int, others: int, epsilon: float, num_categories: int, draws: int = 1) -> int:
    """The threshold of reports that support the user's value: 2¹²⁸·own·e^ε/(own·e^ε + others), rounded down.

    `own` reports support the value and `others` do not; within each of the two kinds reports are uniform. ε is split
    over `draws`.

    Raises:
        ArgumentError: An ε that 128 random bits cannot deliver, too large or too small.
    """
    noise = _rounded_up(others, own, others, epsilon / draws)
    largest = draws * math.log((DENOMINATOR // SMALLEST_THRESHOLD - 1) * others / own)
    check_delivered(
        epsilon,
        num_categories,
        ratio=Fraction((DENOMINATOR - noise) * others, noise * own),
        draws=draws,
        largest=None if noise >= SMALLEST_THRESHOLD else largest,
    )
    return DENOMINATOR - noise


def keep_threshold(num_categories: int, epsilon: float) -> int:
    """The threshold `keep` in (0, 2¹²⁸), which delivers ε or a little less and leaves a multiple of K."""
    check_num_categories(num_categories)
    num_categories, epsilon = int(num_categories), as_epsilon(epsilon)
    noise = _rounded_up(num_categories, 1, num_categories - 1, epsilon)
    noise += -noise % num_categories
    keep = DENOMINATOR - noise
    largest = math.log(max(DENOMINATOR // SMALLEST_THRESHOLD - num_categories + 1, 2))
    enough = noise >= num_categories * SMALLEST_THRESHOLD  # of each category, q·2¹²⁸
    ratio = likelihood_ratio(num_categories, keep)
    check_delivered(epsilon, num_categories, ratio=ratio, draws=1, largest=None if enough else largest)
    return keep


def likelihood_ratio(num_categories: int, keep: int) -> Fraction:
    """p/q of randomized response with a threshold."""
    return 1 + Fraction(int(num_categories) * keep, DENOMINATOR - keep)


def kept(draws: np.ndarray, own: np.ndarray, keep: int, number: int) -> np.ndarray:
    """The own number if the draw, two words, is below the threshold, else a uniform one of 0 … number − 1."""
    high, low = draws[:, 0], draws[:, 1]
    first, second = (np.uint64(word) for word in divmod(keep, 2**64))
    below = (high < first) | ((high == first) & (low < second))
    # (u − keep) modulo the number, by words; no term reaches 2⁶⁴.
    modulus = np.uint64(number)
    whole = high % modulus * np.uint64(2**64 % number) + low % modulus + np.uint64(-keep % number)
    return np.where(below, own, (whole % modulus).astype(own.dtype))


def _rounded_up(part, own, others, epsilon):
    """2¹²⁸·part/(own·e^ε + others), rounded up."""
    power = max(DOWN.next_minus(DOWN.exp(Decimal(min(epsilon, 1000.0)))), Decimal(1))
    total = DOWN.add(DOWN.multiply(Decimal(own), power), Decimal(others))
    return math.ceil(UP.divide(Decimal(part * DENOMINATOR), total))


def check_delivered(epsilon, num_categories, *, ratio, draws, largest):
    """Refuses an ε above the largest one that random bits deliver, if given, and a ratio too near to one."""
    if largest is not None:
        raise ArgumentError(
            f"epsilon = {epsilon:g} is too large: no report would differ from its value, and nothing would be "
            f"private. The largest that {BITS} random bits deliver well is {math.floor(10 * largest) / 10:g}",
            argument="epsilon",
            value=epsilon,
        )
    if ratio <= 1 or draws * Fraction(log_down(ratio)) < (1 - LARGEST_LOSS) * Fraction(epsilon):
        raise ArgumentError(
            f"epsilon = {epsilon:g} is too small for K = {num_categories}: {BITS} random bits deliver less than that",
            argument="epsilon",
            value=epsilon,
        )
