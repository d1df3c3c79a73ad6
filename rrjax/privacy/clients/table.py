"""Clients for real collection, one for each mechanism: reports as by `rrjax.mechanisms`, in integer arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.data.mechanism_parameters import field_order_of, num_buckets_of, subset_size_of, two_buckets
from rrjax.mechanisms.table import full_name
from rrjax.numerics.projective_geometry import dimension_of, num_points, plane_of, product_of, vectors_of
from rrjax.numerics.threefry import buckets_of
from rrjax.privacy.clients import base
from rrjax.privacy.clients.base import LARGEST_WORD, Client, below, numbers_below, random_words
from rrjax.privacy.clients.ordered import ORDERED_CLIENTS
from rrjax.privacy.clients.thresholds import (
    DENOMINATOR,
    as_epsilon,
    keep_threshold,
    kept,
    likelihood_ratio,
    threshold,
)


class _RandomizedResponse(Client):
    name = "randomized-response"

    def __init__(self, num_categories, epsilon):
        super().__init__(num_categories, epsilon)
        self._keep = keep_threshold(self.num_categories, self.epsilon)
        self.likelihood_ratio = likelihood_ratio(self.num_categories, self._keep)

    def _made(self, values, draws):
        return kept(draws, values, self._keep, self.num_categories)

    def supports(self, reports, value):
        return reports == value


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


class _LocalHashing(Client):
    parameter = "num_buckets"
    dtype = np.uint32
    shape = (2,)
    num_words = 3

    def __init__(self, num_categories, epsilon, num_buckets):
        super().__init__(num_categories, epsilon)
        self.num_buckets = num_buckets
        self._keep = keep_threshold(num_buckets, self.epsilon)
        self.likelihood_ratio = likelihood_ratio(num_buckets, self._keep)

    def _buckets(self, seeds, categories):
        return buckets_of(seeds, categories.astype(np.uint32), np.uint32(self.num_buckets), np)

    def _made(self, values, draws):
        seeds = draws[:, 0].astype(np.uint32)  # its low bits
        bucket = kept(draws[:, 1:], self._buckets(seeds, values), self._keep, self.num_buckets)
        return np.stack([seeds, bucket], axis=-1)

    def supports(self, reports, value):
        return self._buckets(reports[..., 0], np.full(1, value)) == reports[..., 1]


class _OptimizedLocalHashing(_LocalHashing):
    name = "optimized-local-hashing"

    def __init__(self, num_categories, epsilon, num_buckets=None):
        super().__init__(num_categories, epsilon, num_buckets_of(num_buckets, as_epsilon(epsilon)))


class _BinaryLocalHashing(_LocalHashing):
    name = "binary-local-hashing"

    def __init__(self, num_categories, epsilon, num_buckets=None):
        super().__init__(num_categories, epsilon, two_buckets(num_buckets))


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
            keys[rows, values] = np.where(own, np.uint64(0), LARGEST_WORD)
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
        *ORDERED_CLIENTS,
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


def randomize(values: np.typing.ArrayLike, num_categories: int, epsilon: float) -> np.ndarray:
    """Reports by k-ary randomized response, from the operating system's cryptographic random numbers.

    They cannot be seeded, on purpose; for simulations use `RandomizedResponse.randomize`.

    Args:
        values: Integers in 0 … K − 1, any shape.
        num_categories: K, at least 2.
        epsilon: Nats.

    Returns:
        Reports, int32, the shape of `values`. Each satisfies ε-local differential privacy, with the ε of
        `effective_epsilon(num_categories, keep_threshold(num_categories, epsilon))`, never more than requested.

    Raises:
        ValueError: As `keep_threshold`; values that are not integers or lie outside the domain, which are not shown.

    Example:
        >>> reports = randomize([0, 3, 2], num_categories=4, epsilon=1.0)
        >>> reports.shape, bool((reports < 4).all())
        ((3,), True)
    """
    return _RandomizedResponse(num_categories, epsilon).randomize(values)
