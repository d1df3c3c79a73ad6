"""Mechanisms for values in order: the geometric one for integers, the square wave for bins, and for [0, 1]."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_scalar, as_values, check_key, float_dtype, int_dtype, is_real
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Decay
from rrjax.data.mechanism_parameters import half_width_of
from rrjax.data.mixture import Mixture
from rrjax.data.tally import count
from rrjax.mechanisms.channel import Channel
from rrjax.mechanisms.draws import below, rounded_down
from rrjax.mechanisms.mechanism import LogRows, OfEpsilon, known_epsilon, settled
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import unsharded
from rrjax.numerics.special import exp_minus
from rrjax.simulate.sampling.streams import unit

LARGEST_EPSILON = 1e4
"""Largest ε, nats; a larger ε changes no result in float32."""


class _Binned(OfEpsilon):
    """A mechanism for values in order whose reports are numbers from 0; by default by its channel."""

    @property
    @abc.abstractmethod
    def num_reports(self) -> int:
        """The number of kinds of reports."""

    @property
    def num_kinds(self) -> int:
        return self.num_reports

    @abc.abstractmethod
    def channel(self) -> Channel:
        """The probabilities of the reports for each value."""

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        return self.channel().randomize(key, values)

    def count(self, reports: ArrayLike) -> Int[Array, " M"]:
        """The number of reports of each kind, as `rrjax.count`."""
        return count(reports, self.num_reports)

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.channel().mixture(reports)

    def log_rows(self, reports: ArrayLike) -> LogRows:
        return self.channel().log_rows(reports)

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        """As `Channel.debias`."""
        return self.channel().debias(reports)


@pytree("num_categories")
class Geometric(_Binned):
    """The geometric mechanism on 0 … K − 1, for ordered values with distances. A pytree, ε its leaf.

    Discrete Laplace noise, P(z) = (1 − r)/(1 + r)·r^|z|, is added to the value; a sum beyond an end is reported as that
    end. ε protects the whole range: any two values are ε-indistinguishable, r = e^(−ε/(K−1)), and the two ends reach ε
    exactly. The loss between neighbours is ε/(K − 1). For metric privacy (geo-indistinguishability), ε₁ for each step
    of distance, give ε = ε₁·(K − 1).

    Reports are int32 in 0 … K − 1, drawn at the precision of the dtype; under tracing, −1 for a value outside the
    domain and for an impossible ε. `mixture` has a = 0 and B = r^|u − i|, with products in O(K·log K).

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive, for the whole range; a float or a traced array.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.Geometric(num_categories=50, epsilon=20.0)
        >>> reports = mechanism.randomize(jax.random.key(0), [10] * 30_000 + [40] * 10_000)
        >>> result = rrjax.ibu(mechanism.mixture(reports), accelerate="newton")
        >>> [round(t, 1) for t in result.theta[jax.numpy.asarray([9, 10, 11, 40])].tolist()]
        [0.0, 0.7, 0.0, 0.2]

    References:
        Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", 2012;
        Chatzikokolakis et al., "Broadening the scope of differential privacy using metrics", 2013.
    """

    name: ClassVar[str] = "geometric"

    @property
    def num_reports(self) -> int:
        """K, the number of kinds of reports."""
        return self.num_categories

    @property
    def rate(self) -> Float[Array, ""]:
        """−log r, nats for each step of distance: ε/(K − 1). Scalar; NaN if ε is not positive."""
        epsilon = as_scalar(self.epsilon, float_dtype())
        return jnp.where(epsilon > 0, epsilon / (self.num_categories - 1), jnp.nan)

    def channel(self) -> Channel:
        """The K × K probabilities of all reports, for checks and small K."""
        if known_epsilon(self.epsilon) is None:
            return Channel(_geometric_matrix(jnp, self.rate, self.num_categories))
        # In double precision, because neighbouring rows differ little.
        rate = float(np.asarray(self.epsilon)) / (self.num_categories - 1)
        return Channel(_geometric_matrix(np, rate, self.num_categories))

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        return _randomize_geometric(self, key, as_values(values, self.num_categories, "values"))

    def mixture(self, reports: ArrayLike) -> Mixture:
        return Mixture(self.count(reports), 0.0, Decay(self.rate, self.num_categories))


def _geometric_matrix(xp: Any, rate, size):
    places = xp.arange(size, dtype=float)
    ends = (places == 0) | (places == size - 1)
    # (1 − r)/(1 + r), and 1/(1 + r) at the ends, which include all sums beyond them.
    level = xp.where(ends, 1, -xp.expm1(-rate)) / (1 + xp.exp(-rate))
    return level * xp.exp(-rate * xp.abs(places[:, None] - places))


@jax.jit
def _randomize_geometric(mechanism, key, values):
    rate, size = mechanism.rate, mechanism.num_categories
    flat = values.ravel()
    side, distance = jax.random.bits(key, (2, flat.shape[0]), jnp.uint32)
    # Upwards or no error with probability 1/(1 + r); the distance is geometric in both directions.
    upwards = unit(side, rate.dtype) * (1 + jnp.exp(-rate)) < 1
    steps = jnp.minimum(jnp.floor(-jnp.log(unit(distance, rate.dtype)) / rate), size).astype(jnp.int32)
    inside = (flat >= 0) & (flat < size)
    value = jnp.where(inside, flat, 0).astype(jnp.int32)
    report = jnp.where(upwards, jnp.minimum(steps, size - 1 - value), -jnp.minimum(steps + 1, value)) + value
    return jnp.where(inside & (rate > 0), report, -1).reshape(values.shape)


@pytree("num_categories", "half_width")
class DiscreteSquareWave(_Binned):
    """The square wave on bins: values are bins 0 … K − 1, and reports are bins 0 … K + 2h − 1. A pytree, ε its leaf.

    A value v reports each of the 2h + 1 bins from v to v + 2h with probability p = e^ε/((2h + 1)e^ε + K − 1), and each
    of the other K − 1 bins with q = p·e^−ε. Report u stands for the place u − h, so places reach h bins beyond both
    ends. A report depends on a number through its bin alone: estimates of the shares of bins assume nothing about the
    places of numbers within their bins. `SquareWave` is the continuous mechanism; h = ⌊b·K⌋ with its half-width b.

    `rrjax.secure.client("square-wave", …)` draws the same reports for real collections, and `rrjax randomize
    --mechanism square-wave` writes them to files.

    Args:
        num_categories: K, the number of bins, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.
        half_width: h, an integer from 0; None chooses by K and ε.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.DiscreteSquareWave(num_categories=8, epsilon=1.0)
        >>> mechanism.half_width, mechanism.num_reports, mechanism.channel().matrix.shape
        (2, 12, (8, 12))
        >>> print(f"{mechanism.channel().epsilon:.4f}")
        1.0000

    References:
        Li, Wang, Lopuhaä-Zwakenberg, Skoric and Li, "Estimating numerical distributions under local differential
        privacy", SIGMOD 2020, §5.4: arXiv:1912.01051.
    """

    name: ClassVar[str] = "square-wave"

    half_width: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = half_width_of(self.half_width, self.num_categories, known_epsilon(self.epsilon))
        object.__setattr__(self, "half_width", chosen)

    @property
    def note(self) -> str:
        return f"half-width {self._half_width:,}"

    @property
    def num_reports(self) -> int:
        """K + 2h, the number of kinds of reports."""
        return self.num_categories + 2 * self._half_width

    def channel(self) -> Channel:
        """The probabilities of the reports for each bin, `[K, K + 2h]`."""
        number, window = self.num_categories, 2 * self._half_width + 1
        offset = np.arange(self.num_reports) - np.arange(number)[:, None]
        near = (offset >= 0) & (offset < window)
        known = known_epsilon(self.epsilon)
        xp: Any = jnp if known is None else np
        ratio = xp.exp(-(as_scalar(self.epsilon, float_dtype()) if known is None else known))
        p = 1 / (window + (number - 1) * ratio)
        matrix = xp.where(near, p, p * ratio)
        return Channel(xp.where(ratio < 1, matrix, xp.nan) if known is None else matrix)

    @property
    def _half_width(self) -> int:
        return settled(self.half_width, "half_width")


@pytree("num_categories", "num_reports")
class SquareWave(OfEpsilon):
    """The square wave mechanism for numbers in [0, 1]. A pytree, ε its leaf.

    A report is a number in [−b, 1 + b], with density p within b of the value and q = p·e^−ε elsewhere. The window
    b = (εe^ε − e^ε + 1)/(2e^ε(e^ε − 1 − ε)) maximizes the mutual information. The distribution is estimated in K bins
    of [0, 1], from the counts of reports in M bins of [−b, 1 + b], with their exact probabilities for values that are
    uniform within their bin.

    The maximum of the likelihood (`rrjax.ibu` of the `mixture`) consists of few isolated spikes. The published
    estimator, EM smoothed after every step, is `rrjax.estimators.em.ems`; its limit is another one.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, positive; a float or a traced array.
        num_reports: M, an integer, at least 2; None is K.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.SquareWave(num_categories=4, epsilon=3.0, num_reports=64)
        >>> values = jax.random.beta(jax.random.key(0), 2.0, 5.0, (20_000,))
        >>> mixture = mechanism.mixture(mechanism.randomize(jax.random.key(1), values))
        >>> [round(t, 1) for t in rrjax.ibu(mixture, accelerate="newton").theta.tolist()]
        [0.5, 0.4, 0.1, 0.0]

    References:
        Li, Wang, Lopuhaä-Zwakenberg, Skoric and Li, "Estimating numerical distributions under local differential
        privacy", SIGMOD 2020: arXiv:1912.01051.
    """

    num_reports: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        chosen = self.num_categories if self.num_reports is None else as_integer(self.num_reports, "num_reports", 2)
        object.__setattr__(self, "num_reports", chosen)

    @property
    def reach(self) -> Float[Array, ""]:
        """The half-width b of the window around the value with the high density. Scalar; from ½ to 0 as ε grows."""
        return self._near() * jnp.exp(-self._capped()) / 2

    @property
    def truth(self) -> Float[Array, ""]:
        """The probability 2bp that a report is within b of the value. Scalar; from ½ to 1, about ε/(ε + 1)."""
        near = self._near()
        return near / (near + 1)

    def channel(self) -> Channel:
        """The probabilities of the M bins for the K bins of values, `[K, M]`, which deliver at most ε.

        q·δ + (p − q)·(the mean overlap of the window of a value with the bin of reports), δ the width of that bin.
        """
        if known_epsilon(self.epsilon) is None:
            return Channel(_square_wave_matrix(jnp, self.reach, self.truth, self.num_categories, self._number))
        with jax.ensure_compile_time_eval():  # a known ε inside a traced function
            reach, truth = float(self.reach), float(self.truth)
        # In double precision, because an overlap is a difference of positions.
        return Channel(_square_wave_matrix(np, reach, truth, self.num_categories, self._number))

    def chances(self, values: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """P(start < report ≤ end | value), in double precision; starts and ends are edges of the M bins, from 0 to M.

        It rises with the value up to the middle of start and end, and falls beyond, by the same law. A known ε.
        """
        reach, truth = float(self.reach), float(self.truth)
        low, high = (np.asarray(edge) * (1 + 2 * reach) / self._number - reach for edge in (starts, ends))
        window = max(reach, float(np.finfo(float).tiny))
        overlap = np.minimum(high, values + window) - np.maximum(low, values - window)
        part = np.clip(overlap / (2 * window), 0, 1)
        return np.clip((1 - truth) * (high - low - 2 * reach * part) + truth * part, 0, 1)

    def randomize(self, key: Array, values: ArrayLike) -> Float[Array, "*s"]:
        """Randomized reports for simulations: within b of the value if a 64-bit draw is below 2bp, else elsewhere.

        Values are numbers in [0, 1]; others raise `ValueError`. Reports are floats in [−b, 1 + b]; under tracing NaN
        for another value or an impossible ε.
        """
        check_key(key)
        return _randomize_square_wave(self, key, _as_numbers(values, "values", 0.0, 1.0))

    def count(self, reports: ArrayLike) -> Int[Array, " M"]:
        """The number of reports in each of the M bins of [−b, 1 + b], `[M]`; all −1 under tracing if one is outside."""
        return _count_bins(self, self._as_reports(reports))

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.channel().mixture_of_counts(self.count(reports))

    def log_rows(self, reports: ArrayLike) -> LogRows:
        return self.channel().log_rows(_bins(self, self._as_reports(reports)))

    def _as_reports(self, reports):
        reach = self.reach
        bounds = (None, None) if isinstance(reach, Tracer) else (-float(reach), 1 + float(reach))
        return _as_numbers(reports, "reports", *bounds)

    def _capped(self):
        epsilon = as_scalar(self.epsilon, float_dtype())
        return jnp.where(epsilon > 0, jnp.minimum(epsilon, LARGEST_EPSILON), jnp.nan)

    def _near(self):
        """2be^ε = (e^−ε − 1 + ε)/(1 − (1 + ε)e^−ε), without overflow or cancellation."""
        epsilon = self._capped()
        small = jnp.minimum(epsilon, 1)
        below = jnp.where(epsilon < 1, jnp.exp(-small) * exp_minus(small), 1 - (1 + epsilon) * jnp.exp(-epsilon))
        return exp_minus(-epsilon) / below

    @property
    def _number(self) -> int:
        return settled(self.num_reports, "num_reports")


def _as_numbers(values, name, least, most):
    values = values if isinstance(values, jax.Array) else np.asarray(values)
    if not is_real(values):
        raise ArgumentError(f"{name} must be real numbers, got dtype {values.dtype}", argument=name)
    array = jnp.asarray(values).astype(float_dtype())
    if least is not None and values.size and not isinstance(values, Tracer):
        known = np.asarray(array)
        slack = 4 * np.finfo(known.dtype).eps
        inside = ((known >= least - slack) & (known <= most + slack)).ravel()
        if not inside.all():
            first = int(np.argmin(inside))
            # Logs keep messages, so they contain no true values, only randomized reports.
            shown = f"{known.ravel()[first]:.6g}" if name == "reports" else "another number"
            raise ArgumentError(
                f"{name} must be from {least:.6g} to {most:.6g}, got {shown} at position {first}",
                argument=name,
                row=first,
                value=float(known.ravel()[first]) if name == "reports" else None,
            )
    return array


def _square_wave_matrix(xp: Any, reach, truth, size, number):
    width = (1 + 2 * reach) / number
    starts = xp.arange(size, dtype=float)[:, None] / size
    edges = xp.arange(number, dtype=float) * width - reach

    def mean_overlap(window_end):
        """The mean over a bin of values v of the length of a bin of reports below v + window_end."""
        low = starts + (window_end - edges)
        high = low + 1 / size
        partly = xp.clip(low, 0, width), xp.clip(high, 0, width)
        wholly = xp.maximum(high, width) - xp.maximum(low, width)
        return ((partly[1] - partly[0]) * (partly[1] + partly[0]) / 2 + width * wholly) * size

    # The difference cancels for a window far smaller than any bin, so the window has a lower bound.
    window = xp.maximum(reach, np.sqrt(np.finfo(starts.dtype).eps) / max(size, number))
    common = xp.clip(mean_overlap(window) - mean_overlap(-window), 0, width)
    # q = 1 − 2bp, because the range outside the window has length one; p = 2bp/2b.
    matrix = (1 - truth) * (width - common) + truth * common / (2 * window)
    return matrix / matrix.sum(axis=1, keepdims=True)


@jax.jit
def _randomize_square_wave(mechanism, key, values):
    reach, truth = mechanism.reach, mechanism.truth
    flat = values.ravel()
    slack = 4 * jnp.finfo(flat.dtype).eps
    value = jnp.clip(flat, 0, 1)
    high, low, place = jax.random.bits(key, (3, flat.shape[0]), jnp.uint32)
    uniform = (place.astype(value.dtype) + 0.5) * 2.0**-32
    near = below((high, low), rounded_down(truth))
    # The range outside the window has length one, in two parts.
    outside = jnp.where(uniform < value, uniform - reach, uniform + reach)
    report = jnp.where(near, value + reach * (2 * uniform - 1), outside)
    usable = (flat >= -slack) & (flat <= 1 + slack) & (truth > 0)
    return jnp.where(usable, jnp.clip(report, -reach, 1 + reach), jnp.nan).reshape(values.shape)


@jax.jit
def _bins(mechanism, reports):
    """The bin of each report, −1 outside."""
    reach, number = mechanism.reach, mechanism._number
    slack = 4 * jnp.finfo(reports.dtype).eps
    inside = (reports >= -reach - slack) & (reports <= 1 + reach + slack)
    place = jnp.clip(jnp.floor((reports + reach) / (1 + 2 * reach) * number), 0, number - 1).astype(jnp.int32)
    return jnp.where(inside, place, -1)


@jax.jit
def _count_bins(mechanism, reports):
    place = _bins(mechanism, unsharded(reports).ravel())
    counts = jnp.bincount(jnp.maximum(place, 0), length=mechanism._number).astype(int_dtype())
    return jnp.where(jnp.all(place >= 0), counts, -1)
