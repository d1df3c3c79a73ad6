"""Clients for real collection, one for each mechanism: reports as by `rrjax.mechanisms`, in integer arithmetic.

Those for numbers, the square wave and geometric noise, report integers, too: noise in floating point shows more of the
value than its real law does, by its last bits (Mironov, "On significance of the least significant bits for differential
privacy", CCS 2012).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import field_order_of, half_width_of, num_buckets_of, subset_size_of, two_buckets
from rrjax.mechanisms.table import full_name
from rrjax.numerics.projective_geometry import dimension_of, num_points, plane_of, product_of, vectors_of
from rrjax.numerics.threefry import buckets_of
from rrjax.privacy.clients import base
from rrjax.privacy.clients.base import DENOMINATOR, Client, below, kept, numbers_below, random_words, threshold

MOST_INTEGERS = 1 << 20
"""Largest number of integers of geometric noise; each has a threshold."""
MARGIN = Fraction(1, 2**36)
"""Part of ε that geometric noise leaves unused, for the rounding of its thresholds."""
WORDS = 2**64
"""Number of random words; a probability of an answer of a survey is a number of them."""


class _RandomizedResponse(Client):
    name = "randomized-response"

    def __init__(self, num_categories, epsilon):
        super().__init__(num_categories, epsilon)
        self._keep = base.keep_threshold(self.num_categories, self.epsilon)
        self.likelihood_ratio = base.likelihood_ratio(self.num_categories, self._keep)

    def _made(self, values, draws):
        return kept(draws, values, self._keep, self.num_categories)


class _UnaryEncoding(Client):
    """Bits set by draws below a threshold, one for the user's category and another for the other categories."""

    dtype = np.bool_
    _own: int
    _other: int

    def __init__(self, num_categories, epsilon):
        super().__init__(num_categories, epsilon)
        self.shape, self.num_words = (self.num_categories,), self.num_categories

    def _fill(self, values, reports):
        # Bit by bit, because one user may have more bits than the words drawn at a time.
        cells = reports.reshape(-1)
        for begin in range(0, cells.size, base.CHUNK):
            place = np.arange(begin, min(begin + base.CHUNK, cells.size))
            user, category = np.divmod(place, self.num_categories)
            cells[place] = self._made(values[user].astype(np.int64) == category, random_words(place.size, 1))

    def _made(self, values, draws):  # here values are booleans: bits of the user's category
        return np.where(values, below(draws[:, 0], self._own), below(draws[:, 0], self._other))

    def supports(self, reports, value):
        return reports[..., value]


class _SymmetricUnaryEncoding(_UnaryEncoding):
    name = "symmetric-unary-encoding"

    def __init__(self, num_categories, epsilon):
        super().__init__(num_categories, epsilon)
        self._own = threshold(1, 1, self.epsilon, self.num_categories, draws=2)
        self._other = DENOMINATOR - self._own
        self.likelihood_ratio = Fraction(self._own, self._other) ** 2


class _OptimizedUnaryEncoding(_UnaryEncoding):
    name = "optimized-unary-encoding"

    def __init__(self, num_categories, epsilon):
        super().__init__(num_categories, epsilon)
        unset = threshold(1, 1, self.epsilon, self.num_categories)
        self._own, self._other = DENOMINATOR // 2, DENOMINATOR - unset
        self.likelihood_ratio = Fraction(unset, self._other)


class _OptimizedLocalHashing(Client):
    name = "optimized-local-hashing"
    parameter = "num_buckets"
    dtype = np.uint32
    shape = (2,)
    num_words = 3

    def __init__(self, num_categories, epsilon, num_buckets=None):
        super().__init__(num_categories, epsilon)
        self.num_buckets = self._number(num_buckets)
        self._keep = base.keep_threshold(self.num_buckets, self.epsilon)
        self.likelihood_ratio = base.likelihood_ratio(self.num_buckets, self._keep)

    def _number(self, given):
        return num_buckets_of(given, self.epsilon)

    def _buckets(self, seeds, categories):
        return buckets_of(seeds, categories.astype(np.uint32), np.uint32(self.num_buckets), np)

    def _made(self, values, draws):
        seeds = draws[:, 0].astype(np.uint32)  # its low bits
        bucket = kept(draws[:, 1:], self._buckets(seeds, values), self._keep, self.num_buckets)
        return np.stack([seeds, bucket], axis=-1)

    def supports(self, reports, value):
        return self._buckets(reports[..., 0], np.full(1, value)) == reports[..., 1]


class _BinaryLocalHashing(_OptimizedLocalHashing):
    name = "binary-local-hashing"

    def _number(self, given):
        return two_buckets(given)


class _Blocks(Client):
    """One draw decides whether the report supports the value; then the report is uniform among such reports."""

    def _settle(self, own, others):
        """Sets the threshold from the numbers of reports that support a value and that do not, or their ratio."""
        if own + others >= 2**31:
            raise ArgumentError(
                f"num_categories = {self.num_categories} makes {own + others} columns, more than int32 can number",
                argument="num_categories",
                value=self.num_categories,
            )
        self._threshold = threshold(own, others, self.epsilon, self.num_categories)
        self.likelihood_ratio = Fraction(self._threshold * others, (DENOMINATOR - self._threshold) * own)

    def _own(self, draws):
        return below(draws[:, 0], self._threshold)


class _SubsetSelection(_Blocks):
    name = "subset-selection"
    parameter = "subset_size"

    def __init__(self, num_categories, epsilon, subset_size=None):
        super().__init__(num_categories, epsilon)
        self.subset_size = subset_size_of(subset_size, self.num_categories, self.epsilon)
        self.shape, self.num_words = (self.subset_size,), 1 + self.num_categories
        self._settle(self.subset_size, self.num_categories - self.subset_size)

    def _made(self, values, draws):
        own, keys = self._own(draws), draws[:, 1:].copy()
        rows, size = np.arange(values.size), self.subset_size
        while True:
            # The members have the ω smallest keys, of which the user's category has the smallest or the largest of all.
            # If the last member ties with the next category, all keys are redrawn, which favours no set.
            keys[rows, values] = np.where(own, np.uint64(0), base.LARGEST_WORD)
            edge = np.partition(keys, (size - 1, size), axis=1)[:, size - 1 : size + 1]
            tied = edge[:, 0] == edge[:, 1]
            if not tied.any():
                break
            keys[tied] = random_words(int(tied.sum()), self.num_categories)
        return np.nonzero(keys <= edge[:, :1])[1].reshape(-1, size)

    def supports(self, reports, value):
        return (reports == value).any(-1)


class _HadamardResponse(_Blocks):
    name = "hadamard-response"

    def __init__(self, num_categories, epsilon):
        super().__init__(num_categories, epsilon)
        self._num_columns = 1 << self.num_categories.bit_length()
        self._settle(self._num_columns // 2, self._num_columns // 2)

    def _made(self, values, draws):
        column = (draws[:, 1] & np.uint64(self._num_columns - 1)).astype(np.int32)
        row = values + 1
        fits = self._own(draws) == self._incident(column, row)
        return np.where(fits, column, column ^ (row & -row))  # a flip of the row's lowest bit changes the incidence

    def _incident(self, columns, row):
        return np.bitwise_count(columns & row) % 2 == 0

    def supports(self, reports, value):
        return self._incident(reports, np.int32(value + 1))


class _ProjectiveGeometryResponse(_Blocks):
    name = "projective-geometry-response"
    parameter = "field_order"

    def __init__(self, num_categories, epsilon, field_order=None):
        super().__init__(num_categories, epsilon)
        self.field_order = field_order_of(field_order, self.num_categories, self.epsilon)
        self._dimension = dimension_of(self.num_categories, self.field_order)
        own = num_points(self.field_order, self._dimension - 1)
        self._settle(own, num_points(self.field_order, self._dimension) - own)

    def _made(self, values, draws):
        through = self._own(draws)
        smallest = through.astype(np.uint64)  # the zero vector is no plane
        num_vectors = np.uint64(self.field_order ** (self._dimension - 1))
        free = numbers_below(draws[:, 1], num_vectors - smallest) + smallest
        return plane_of(values + 1, through, free.astype(np.int32), self.field_order, self._dimension, np) - 1

    def supports(self, reports, value):
        plane, point = (
            vectors_of(numbers, self.field_order, self._dimension, np)
            for numbers in (reports + 1, np.asarray(value + 1, np.int32))
        )
        return product_of(plane, point, self.field_order, np) == 0


class _SquareWave(_Blocks):
    """One draw decides whether the report is in the window of the value, another one which place it has there."""

    name = "square-wave"
    parameter = "half_width"

    def __init__(self, num_categories, epsilon, half_width=None):
        super().__init__(num_categories, epsilon)
        self.half_width = half_width_of(half_width, self.num_categories, self.epsilon)
        self._window = 2 * self.half_width + 1
        self._settle(self._window, self.num_categories - 1)

    def _made(self, values, draws):
        near = self._own(draws)
        bounds = np.where(near, np.uint64(self._window), np.uint64(self.num_categories - 1))
        place = numbers_below(draws[:, 1], bounds).astype(np.int32)
        outside = np.where(place < values, place, place + np.int32(self._window))
        return np.where(near, values + place, outside)

    def supports(self, reports, value):
        return (reports >= value) & (reports <= value + 2 * self.half_width)


class _Geometric(Client):
    """One number of 128 bits is compared with the tail of the noise, by bisection; one bit is the side.

    P(noise ≥ k) = P(noise ≤ −k) = t_k/2¹²⁸ for k ≥ 1, with integers t_k: r^k/(1 + r), r = e^(−ε/(K−1)), rounded.
    """

    name = "geometric"
    num_words = 3

    def __init__(self, num_categories, epsilon):
        super().__init__(num_categories, epsilon)
        if self.num_categories > MOST_INTEGERS:
            raise ArgumentError(
                f"num_categories = {self.num_categories} is more than geometric noise takes, {MOST_INTEGERS}: report "
                "wider bins by the square wave",
                argument="num_categories",
                value=self.num_categories,
            )
        tails = _tails(self.num_categories, self.epsilon)
        self.likelihood_ratio = _largest_ratio(tails)
        quotient = base.UP.divide(Decimal(self.likelihood_ratio.numerator), Decimal(self.likelihood_ratio.denominator))
        kept = base.UP.next_plus(base.UP.ln(quotient)) <= Decimal(self.epsilon)
        largest = math.log(DENOMINATOR // base.SMALLEST_THRESHOLD / (1 + math.exp(-36 / (self.num_categories - 1))))
        base.check_delivered(
            self.epsilon,
            self.num_categories,
            ratio=self.likelihood_ratio if kept else Fraction(1),
            draws=1,
            largest=None if tails[-1] >= base.SMALLEST_THRESHOLD else largest,
        )
        words = [divmod(2 * tail, 2**64) for tail in tails]
        self._tails = tails
        self._high, self._low = (np.asarray(each, np.uint64) for each in zip(*words, strict=True))

    def _made(self, values, draws):
        high, low = draws[:, 0], draws[:, 1]
        steps, most = np.zeros(len(draws), np.int32), np.full(len(draws), len(self._high), np.int32)
        for _ in range(len(self._high).bit_length()):  # the number of tails above the draw
            middle = (steps + most + 1) // 2
            place = np.maximum(middle - 1, 0)
            above = (high < self._high[place]) | ((high == self._high[place]) & (low < self._low[place]))
            steps, most = np.where(above, middle, steps), np.where(above, most, np.maximum(middle - 1, steps))
        upwards = (draws[:, 2] & np.uint64(1)).astype(bool)
        last = np.int32(self.num_categories - 1)
        return np.where(upwards, np.minimum(values + steps, last), np.maximum(values - steps, 0)).astype(np.int32)


def _tails(num_categories, epsilon):
    """The integers t_1 … t_(K−1)."""
    used = base.DOWN.multiply(Decimal(epsilon), Decimal(1) - Decimal(1) / Decimal(MARGIN.denominator))
    ratio = base.DOWN.exp(base.DOWN.divide(used, Decimal(num_categories - 1)).copy_negate())
    level = base.DOWN.divide(Decimal(DENOMINATOR), base.DOWN.add(ratio, Decimal(1)))
    tails = []
    for _ in range(num_categories - 1):
        level = base.DOWN.multiply(level, ratio)
        tails.append(int(level))
    return tails


def _largest_ratio(tails):
    """The largest ratio of the probabilities of one report under two values, exactly.

    An inner report is at all distances up to K − 2 from values; a report at an end has the probabilities of all tails.
    """
    steps = [DENOMINATOR - 2 * tails[0], *(tail - beyond for tail, beyond in itertools.pairwise(tails))]
    ends = Fraction(DENOMINATOR - tails[0], max(tails[-1], 1))
    inner = Fraction(max(steps), max(min(steps), 1)) if len(tails) > 1 else ends
    return max(ends, inner)


CLIENTS: dict[str, type[Client]] = {
    kind.name: kind
    for kind in (
        _RandomizedResponse,
        _SymmetricUnaryEncoding,
        _OptimizedUnaryEncoding,
        _BinaryLocalHashing,
        _OptimizedLocalHashing,
        _SubsetSelection,
        _HadamardResponse,
        _ProjectiveGeometryResponse,
        _SquareWave,
        _Geometric,
    )
}
"""The clients, by the names of `rrjax.mechanisms.MECHANISMS` and `ORDERED`."""


def client(
    name: str,
    num_categories: int,
    epsilon: float,
    *,
    subset_size: int | None = None,
    num_buckets: int | None = None,
    field_order: int | None = None,
    half_width: int | None = None,
) -> Client:
    """The client of a mechanism, with probabilities that are integers out of 2¹²⁸.

    Args:
        name: The name of the mechanism, such as "subset-selection", or its abbreviation, "ss".
        num_categories: K, at least 2.
        epsilon: Nats. The ε delivered is this or less, by at most 2⁻³⁰ of it.
        subset_size: ω of subset selection. None chooses by K and ε, as in the mechanism.
        num_buckets: g of local hashing.
        field_order: s of projective geometry response.
        half_width: h of the square wave.

    Returns:
        `Client`: `randomize(values)` makes reports, `effective_epsilon` is their ε, and
            `MECHANISMS[client.name](**client.parameters)` counts them; for numbers, `ORDERED` in its place.

    Raises:
        ArgumentError: An unknown mechanism, a parameter of another mechanism, or an ε that is not a positive number or
            that 128 random bits cannot deliver.
        ValueError: K or a parameter out of range.

    Example:
        >>> import rrjax
        >>> client = rrjax.secure.client("subset-selection", num_categories=100, epsilon=1.0)
        >>> client.parameters
        {'num_categories': 100, 'epsilon': 1.0, 'subset_size': 27}
        >>> client.randomize([17, 4]).shape
        (2, 27)
        >>> 1 - 1e-15 < client.effective_epsilon <= 1
        True
    """
    kind = CLIENTS.get(full_name(name)) if isinstance(name, str) else None
    if kind is None:
        raise ArgumentError(
            f"no mechanism is called {name!r}: there are {', '.join(CLIENTS)}", argument="name", value=name
        )
    chosen = {
        "subset_size": subset_size,
        "num_buckets": num_buckets,
        "field_order": field_order,
        "half_width": half_width,
    }
    given = {parameter: value for parameter, value in chosen.items() if value is not None}
    for parameter in given:
        if parameter != kind.parameter:
            raise ArgumentError(
                f"{name} has no {parameter}: leave it out (got {given[parameter]!r})",
                argument=parameter,
                value=given[parameter],
            )
    return kind(num_categories, epsilon, **given)


class Answers(Client):
    """Answers of respondents by a survey design: one random word is compared with the cumulative probabilities.

    Args:
        name: Name of the design.
        channel: `[K, K]`, float64: the probabilities of all answers, row = value, column = answer.
        parameters: The arguments that recreate the design.

    Raises:
        ArgumentError: A matrix that is not square, or rows that are no probabilities.

    Example:
        >>> client = Answers("warner", np.array([[0.75, 0.25], [0.25, 0.75]]), {"truth_probability": 0.75})
        >>> client.randomize([0, 1, 1]).shape, f"{client.effective_epsilon:.4f}"
        ((3,), '1.0986')
    """

    num_words = 1

    def __init__(self, name: str, channel: np.ndarray, parameters: Mapping[str, Any]) -> None:
        """Computes the cumulative probabilities as integers."""
        channel = np.asarray(channel, np.float64)
        if channel.ndim != 2 or channel.shape[0] != channel.shape[1] or not (channel >= 0).all():
            raise ArgumentError(f"channel must be probabilities [K, K], got {channel.shape}", argument="channel")
        check_num_categories(channel.shape[0])
        self.name, self.num_categories = name, channel.shape[0]  # pyright: ignore[reportAttributeAccessIssue]
        self._parameters = dict(parameters)
        rows = [_cumulative([Fraction(each) for each in row]) for row in channel.tolist()]
        ends = np.asarray([row[:-1] for row in rows], object)
        # 2⁶⁴ is no word: no draw is beyond the last answer that is possible.
        self._beyond = ends < WORDS
        self._ends = np.where(self._beyond, ends, 0).astype(np.uint64)
        widths = np.asarray([[end - start for start, end in itertools.pairwise([0, *row])] for row in rows], object)
        ratios = [(max(column), min(column)) for column in widths.T.tolist()]
        self._reveals = any(most and not least for most, least in ratios)
        self.likelihood_ratio = max(Fraction(most, least or 1) for most, least in ratios)
        self.epsilon = math.inf if self._reveals else float(super().effective_epsilon)

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments that recreate the design."""
        return self._parameters

    @property
    def effective_epsilon(self) -> float:
        """The ε delivered, nats, rounded down; infinite if an answer can give its user away."""
        return math.inf if self._reveals else super().effective_epsilon

    def _made(self, values: np.ndarray, draws: np.ndarray) -> np.ndarray:
        answers, word = np.zeros(len(values), np.int32), draws[:, 0]
        for ends, beyond in zip(self._ends.T, self._beyond.T, strict=True):
            answers += beyond[values] & (word >= ends[values])
        return answers


def _cumulative(row: list[Fraction]) -> list[int]:
    """Cumulative probabilities, rounded to integers out of 2⁶⁴; the last answer that is possible ends there."""
    total = sum(row)
    if not total > 0:
        raise ArgumentError("channel must have rows that sum to one", argument="channel")
    ends = [round(each / total * WORDS) for each in itertools.accumulate(row)]
    last = max(place for place, each in enumerate(row) if each > 0)
    return [min(end, WORDS) if place < last else WORDS for place, end in enumerate(ends)]
