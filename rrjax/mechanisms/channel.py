"""Any channel: a matrix of report probabilities for each value."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from rrjax.data.arguments import as_counts_of, as_values, check_key, float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Dense
from rrjax.data.mixture import Mixture
from rrjax.data.tally import count
from rrjax.mechanisms.draws import below, threshold
from rrjax.mechanisms.mechanism import LogRows, Mechanism
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import refuse_spread, take_at, unsharded
from rrjax.numerics.sums import accurate_sum

SUM_TOLERANCE = 1e-6
"""Allowed distance of the sum of a row from one; more than float32 rounding."""


@pytree()
class Channel(Mechanism):
    """A mechanism given by the probabilities C_ij that a user with value i reports j. A pytree, C its leaf.

    Rows must sum to one; nothing else is required. The channel may treat values unequally, may have more or fewer
    reports than values, and need not be private. `mixture` is the likelihood of its reports; `inv` is an unbiased
    estimate if the rows are linearly independent. Reports are int32 in 0 … M − 1, by one 64-bit draw compared with the
    cumulative row in the dtype; under tracing, −1 for a value outside the domain.

    Args:
        matrix: `[K, M]`, row = value, column = report, probabilities; K ≥ 2. Other entries, rows that do not sum to one
            and columns of zeros raise `ValueError` (not under tracing).

    Example:
        >>> import rrjax
        >>> channel = rrjax.mechanisms.Channel([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
        >>> print(f"{channel.epsilon:.2f} {channel.condition:.1f}")
        1.95 2.5
        >>> result = rrjax.ibu(channel.mixture_of_counts([50, 30, 20]), accelerate="newton")
        >>> [round(t, 3) for t in result.theta.tolist()]
        [0.625, 0.25, 0.125]

    References:
        Agrawal and Aggarwal, "On the design and quantification of privacy preserving data mining algorithms", 2001.
    """

    matrix: Shaped[Array, "K M"]

    def __post_init__(self) -> None:
        if not isinstance(self.matrix, jax.Array):
            object.__setattr__(self, "matrix", np.asarray(self.matrix))
        _check(self.matrix)

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K."""
        return self.matrix.shape[-2]

    @property
    def num_reports(self) -> int:
        """M, the number of kinds of reports."""
        return self.matrix.shape[-1]

    @property
    def num_kinds(self) -> int:
        return self.num_reports

    @property
    def epsilon(self) -> Float[Array, ""]:
        """The ε delivered: the largest log-ratio of two probabilities of one report, nats; infinite if one is zero."""
        matrix = jnp.asarray(self.matrix, float_dtype())
        return jnp.max(jnp.log(jnp.max(matrix, axis=0)) - jnp.log(jnp.min(matrix, axis=0)))

    @property
    def condition(self) -> float:
        """The condition number, the ratio of the extreme singular values: how much inversion amplifies relative errors.

        Infinite if the rows are linearly dependent, as for M < K or two equal rows. Then different distributions have
        the same likelihood for any number of reports, and `confused` names the values.
        """
        sizes = np.linalg.svd(self._known(), compute_uv=False)
        return float(sizes[0] / sizes[-1]) if self._rank(sizes) == self.num_categories else float("inf")

    @property
    def confused(self) -> tuple[int, ...]:
        """The values whose shares no number of reports determines; empty for a finite `condition`."""
        # All K left singular vectors are needed, but few of the M right ones.
        left, sizes, _ = np.linalg.svd(self._known(), full_matrices=self.num_reports < self.num_categories)
        lost = np.linalg.norm(left[:, self._rank(sizes) :], axis=1)
        return tuple(np.flatnonzero(lost > 1e-6).tolist())

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        return _randomize(self, key, as_values(values, self.num_categories, "values"))

    def count(self, reports: ArrayLike) -> Int[Array, " M"]:
        """The number of reports of each kind, `[M]`, as `rrjax.count`."""
        return count(reports, self.num_reports)

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.mixture_of_counts(self.count(reports))

    def mixture_of_counts(self, counts: ArrayLike) -> Mixture:
        """The likelihood of reports, `[M]` integers or floats of each kind: a_j = min_i C_ij, and B_ji = C_ij − a_j.

        Raises:
            ValueError: Another shape, or (not under tracing) numbers that are negative, or no reports.
        """
        matrix = self.matrix if isinstance(self.matrix, jax.Array) else np.asarray(self.matrix, np.float64)
        base = matrix.min(axis=0)
        lift = Dense(jnp.asarray((matrix - base).T, float_dtype()))
        return Mixture(as_counts_of(counts, self.num_reports, "kind of report"), jnp.asarray(base, float_dtype()), lift)

    def log_rows(self, reports: ArrayLike) -> LogRows:
        reports = as_values(reports, self.num_reports, "reports")
        inside = (reports >= 0) & (reports < self.num_reports)
        columns = jnp.asarray(self.matrix, float_dtype()).T[jnp.where(inside, reports, 0)]
        most, least = jnp.max(columns, axis=-1), jnp.min(columns, axis=-1)
        lift = jnp.log((columns - least[..., None]) / most[..., None])
        return LogRows(jnp.log(most), jnp.log(least / most), lift).where(inside, jnp.nan)

    def inv(self, counts: ArrayLike) -> Float[Array, " K"]:
        """The unbiased estimate of the shares with the least squared error at a uniform distribution.

        θ = (C D Cᵀ)⁻¹ C D φ, D the inverse of the mean report probabilities; the inverse of the channel for M = K. It
        sums to one, and may be negative. The counts are `[M]`, integers or floats; NaN if they are unusable.

        Raises:
            ValueError: Another shape, or an infinite `condition`. The channel itself may not be traced.
        """
        counts = as_counts_of(counts, self.num_reports, "kind of report")
        return _inverted(jnp.asarray(self._inverse(), float_dtype()), counts)

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        """As `PureMechanism.debias`: unbiased vectors whose mean is `inv` of the counts. Raises as `inv`."""
        reports = as_values(reports, self.num_reports, "reports")
        reports = refuse_spread(unsharded(reports), "debias of a Channel")
        inside = (reports >= 0) & (reports < self.num_reports)
        vectors = jnp.asarray(self._inverse().T, float_dtype())[jnp.where(inside, reports, 0)]
        return jnp.where(inside[..., None], vectors, jnp.nan)

    def _known(self):
        if isinstance(self.matrix, Tracer):
            raise ArgumentError(
                "the channel is traced, but its inverse and rank are computed on the host: close over it",
                argument="matrix",
            )
        return np.asarray(self.matrix, np.float64)

    def _rank(self, sizes):
        dtype = np.asarray(self.matrix).dtype
        rounding = float(jnp.finfo(dtype if jnp.issubdtype(dtype, jnp.floating) else np.float64).eps)
        # An error of two ulps in each entry moves a singular value by at most the root of their squares; the second
        # bound is the usual one of the decomposition in double precision.
        of_entries, of_sizes = 2 * rounding * np.linalg.norm(sizes), np.finfo(np.float64).eps * sizes[0]
        return int((sizes > max(of_entries, max(self.matrix.shape) * of_sizes)).sum())

    def _inverse(self):
        matrix, confused = self._known(), self.confused
        if confused:
            raise ValueError(
                f"reports of this channel do not tell values {_listed(confused)} apart ({_why(matrix, confused)}): "
                "merge values, or use the likelihood, whose maximum is not unique"
            )
        weights = np.sqrt(matrix.mean(axis=0))
        return np.linalg.pinv((matrix / weights).T) / weights


def _why(matrix, confused):
    for i, j in itertools.combinations(confused, 2):
        if np.allclose(matrix[i], matrix[j], rtol=SUM_TOLERANCE, atol=0):
            return f"rows {i} and {j} are equal"
    kinds = matrix.shape[1]
    few = f"{kinds} kinds of reports for {len(matrix)} values"
    return few if kinds < len(matrix) else "a mixture of some of their rows equals one of the others"


def _listed(numbers):
    return ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")


def _check(matrix):
    if matrix.ndim != 2 or matrix.shape[0] < 2 or matrix.shape[1] < 1:
        raise ArgumentError.about("matrix", f"must have shape [K, M], a row a value, K >= 2; got {tuple(matrix.shape)}")
    if not is_real(matrix):
        raise ArgumentError(f"matrix must hold probabilities, got dtype {matrix.dtype}", argument="matrix")
    if isinstance(matrix, Tracer):
        return
    known = np.asarray(matrix, np.float64)
    wrong = np.argwhere(~((known >= 0) & (known <= 1 + SUM_TOLERANCE)))
    if wrong.size:
        row, column = wrong[0]
        raise ArgumentError(
            f"row {row}, column {column} of matrix is {known[row, column]:g}, not a probability",
            argument="matrix",
        )
    sums = known.sum(axis=1)
    off = np.flatnonzero(np.abs(sums - 1) > SUM_TOLERANCE)
    if off.size:
        raise ArgumentError(
            f"row {off[0]} of matrix sums to {sums[off[0]]:.8g}, not to one: rows are values, columns are reports"
            + (" (its columns do sum to one: give its transpose)" if np.allclose(known.sum(axis=0), 1) else ""),
            argument="matrix",
        )
    never = np.flatnonzero(~known.any(axis=0))
    if never.size:
        raise ArgumentError(
            f"column {never[0]} of matrix is zero: no value makes that report; leave it out", argument="matrix"
        )


@jax.jit
def _inverted(inverse, counts):
    weights = counts.astype(inverse.dtype)
    total = accurate_sum(weights)
    usable = (jnp.min(weights) >= 0) & (total > 0) & jnp.isfinite(total)
    return jnp.where(usable, Dense(inverse)(weights / jnp.where(total > 0, total, 1)), jnp.nan)


@jax.jit
def _randomize(channel, key, values):
    flat = values.ravel()
    number = channel.num_reports
    sums = jnp.cumsum(jnp.asarray(channel.matrix, float_dtype()), axis=1)
    highs, lows = (word.ravel() for word in threshold(sums / sums[:, -1:], 0.0))
    inside = (flat >= 0) & (flat < channel.num_categories)
    row = jnp.where(inside, flat, 0).astype(jnp.int32) * number
    words = jax.random.bits(key, (2, flat.shape[0]), jnp.uint32)
    low, high = jnp.zeros_like(row), jnp.full_like(row, number - 1)
    for _ in range((number - 1).bit_length()):  # bisection for the first cumulative probability above the draw
        middle = (low + high) // 2
        left = below((words[0], words[1]), (take_at(highs, row + middle), take_at(lows, row + middle)))
        low, high = jnp.where(left, low, jnp.minimum(middle + 1, high)), jnp.where(left, middle, high)
    return jnp.where(inside, low, -1).reshape(values.shape)
