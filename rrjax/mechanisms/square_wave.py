"""The square wave mechanism: a number from 0 to 1, reported with an error that is most likely small."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_scalar, check_key, float_dtype, int_dtype, is_real
from rrjax.data.checks import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.channel import Channel
from rrjax.mechanisms.draws import below, rounded_down
from rrjax.mechanisms.mechanism import check_epsilon, known_epsilon
from rrjax.numerics.pytrees import register
from rrjax.numerics.sharding import together
from rrjax.numerics.special import exp_minus

_MOST = 1e4
"""Nats, more of which change nothing that a float32 shows."""


@register(data_fields=["epsilon"], meta_fields=["num_categories", "num_reports"])
@dataclasses.dataclass(frozen=True)
class SquareWave:
    """The square wave mechanism for numbers in [0, 1]. A pytree, ε its leaf.

    A report is a number in [−b, 1 + b], with density p within b of the value and q = p·e^−ε elsewhere, where
    b = (εe^ε − e^ε + 1)/(2e^ε(e^ε − 1 − ε)) tells most about the value. Values are estimated in K bins of [0, 1], from
    the counts of reports in M bins of [−b, 1 + b], by the exact probabilities of these for a value that is anywhere
    in its bin.

    The maximum of the likelihood (`rrjax.ibu` of the `mixture`) is on few bins, spikes with nothing between them. EM
    that is smoothed after every step (`rrjax.estimators.em.ems`), with which the mechanism was published, ends
    elsewhere.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats; a float or a traced array.
        num_reports: M, an integer, at least 2; None is K.

    Raises:
        ValueError: K or M below 2, or ε a number that is not positive.

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

    num_categories: int
    epsilon: ArrayLike
    num_reports: int | None = None

    def __post_init__(self) -> None:
        """Checks what can be checked of K, M and ε."""
        check_num_categories(self.num_categories)
        check_epsilon(self.epsilon)
        if self.num_reports is None:
            object.__setattr__(self, "num_reports", self.num_categories)
        elif not isinstance(self.num_reports, int) or not 2 <= self.num_reports < 2**31:
            raise ArgumentError(
                f"num_reports must be an integer, at least 2, got {self.num_reports!r}", argument="num_reports"
            )

    @property
    def reach(self) -> Float[Array, ""]:
        """The b by which a report may be off and still be likely. Scalar; from ½ down to 0 as ε grows."""
        return self._near() * jnp.exp(-self._capped()) / 2

    @property
    def truth(self) -> Float[Array, ""]:
        """The probability 2bp that a report is within b of the value. Scalar; from ½ to 1, about ε/(ε + 1)."""
        near = self._near()
        return near / (near + 1)

    def channel(self) -> Channel:
        """The probabilities of the M bins for the K bins of values, `[K, M]`.

        q·δ + (p − q)·(the mean length of what the window of a value has in common with the bin of reports), δ the
        width of the latter. What these deliver is at most ε, since averages of what is apart by at most e^ε are too.
        """
        if known_epsilon(self.epsilon) is None:
            return Channel(_channel(jnp, self.reach, self.truth, self.num_categories, self._number()))
        with jax.ensure_compile_time_eval():  # known values may be met while something else is traced
            reach, truth = float(self.reach), float(self.truth)
        # In double precision, because what windows have in common is a difference of places.
        return Channel(_channel(np, reach, truth, self.num_categories, self._number()))

    def randomize(self, key: Array, values: ArrayLike) -> Float[Array, "*s"]:
        """Randomizes values for a simulation: near the value where one 64-bit draw is below 2bp, else elsewhere.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: Numbers in [0, 1], any shape.

        Returns:
            Reports, floats in [−b, 1 + b], the shape of `values`. NaN where a value is outside [0, 1] or ε impossible,
            under tracing.

        Raises:
            ValueError: Values that are no real numbers, or (not under tracing) outside [0, 1].
        """
        check_key(key)
        values = _as_numbers(values, "values", 0.0, 1.0)
        return _randomize(self, key, values)

    def count(self, reports: ArrayLike) -> Int[Array, " M"]:
        """Counts how many reports are in each of the M bins of [−b, 1 + b].

        Args:
            reports: Numbers in [−b, 1 + b], any shape.

        Returns:
            `[M]`, in the default integer dtype; under tracing all −1 where a report is outside.

        Raises:
            ValueError: Reports that are no real numbers, or (not under tracing) outside [−b, 1 + b].
        """
        reach = self.reach
        bounds = (None, None) if isinstance(reach, Tracer) else (-float(reach), 1 + float(reach))
        return _count(self, _as_numbers(reports, "reports", *bounds))

    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of reports.

        Args:
            reports: Numbers in [−b, 1 + b], any shape.

        Returns:
            `Mixture`, a row for every bin of reports, over the K bins of values.

        Raises:
            ValueError: As `count`, or no reports.
        """
        return self.channel().mixture_of_counts(self.count(reports))

    def _capped(self):
        epsilon = as_scalar(self.epsilon, float_dtype())
        return jnp.where(epsilon > 0, jnp.minimum(epsilon, _MOST), jnp.nan)

    def _near(self):
        """2be^ε = (e^−ε − 1 + ε)/(1 − (1 + ε)e^−ε), in which nothing overflows or cancels."""
        epsilon = self._capped()
        small = jnp.minimum(epsilon, 1)
        below = jnp.where(epsilon < 1, jnp.exp(-small) * exp_minus(small), 1 - (1 + epsilon) * jnp.exp(-epsilon))
        return exp_minus(-epsilon) / below

    def _number(self):
        assert self.num_reports is not None
        return self.num_reports


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
            # Logs keep messages, and a value is a user's true one; a report is randomized.
            came = f"{known.ravel()[first]:.6g}" if name == "reports" else "another number"
            raise ArgumentError(
                f"{name} must be from {least:.6g} to {most:.6g}, got {came} at position {first}",
                argument=name,
                row=first,
                value=float(known.ravel()[first]) if name == "reports" else None,
            )
    return array


def _channel(xp: Any, reach, truth, size, number):
    width = (1 + 2 * reach) / number
    starts = xp.arange(size, dtype=float)[:, None] / size
    edges = xp.arange(number, dtype=float) * width - reach

    def mean_overlap(window_end):
        """The mean over a bin of values v of how much of a bin of reports is below v + window_end."""
        low = starts + (window_end - edges)
        high = low + 1 / size
        partly = xp.clip(low, 0, width), xp.clip(high, 0, width)
        wholly = xp.maximum(high, width) - xp.maximum(low, width)
        return ((partly[1] - partly[0]) * (partly[1] + partly[0]) / 2 + width * wholly) * size

    # Of a window that is far smaller than any bin the difference would keep no digits; what it is a part of, does.
    window = xp.maximum(reach, np.sqrt(np.finfo(starts.dtype).eps) / max(size, number))
    common = xp.clip(mean_overlap(window) - mean_overlap(-window), 0, width)
    # q = 1 − 2bp, because all places that are not near add up to a length of one; p = 2bp/2b.
    matrix = (1 - truth) * (width - common) + truth * common / (2 * window)
    return matrix / matrix.sum(axis=1, keepdims=True)


@jax.jit
def _randomize(mechanism, key, values):
    reach, truth = mechanism.reach, mechanism.truth
    given = values.ravel()
    slack = 4 * jnp.finfo(given.dtype).eps
    flat = jnp.clip(given, 0, 1)
    high, low, place = jax.random.bits(key, (3, flat.shape[0]), jnp.uint32)
    uniform = (place.astype(flat.dtype) + 0.5) * 2.0**-32
    near = below((high, low), rounded_down(truth))
    # What is not near is as long as [0, 1], in two parts.
    far = jnp.where(uniform < flat, uniform - reach, uniform + reach)
    report = jnp.where(near, flat + reach * (2 * uniform - 1), far)
    usable = (given >= -slack) & (given <= 1 + slack) & (truth > 0)
    return jnp.where(usable, jnp.clip(report, -reach, 1 + reach), jnp.nan).reshape(values.shape)


@jax.jit
def _count(mechanism, reports):
    reach, number = mechanism.reach, mechanism._number()
    flat = together(reports).ravel()
    slack = 4 * jnp.finfo(flat.dtype).eps
    inside = (flat >= -reach - slack) & (flat <= 1 + reach + slack)
    place = jnp.clip(jnp.floor((flat + reach) / (1 + 2 * reach) * number), 0, number - 1).astype(jnp.int32)
    counts = jnp.bincount(jnp.where(inside, place, 0), length=number).astype(int_dtype())
    return jnp.where(jnp.all(inside), counts, -1)
