"""The geometric mechanism: values on a range, reported with an error whose probability falls with its size."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_scalar, check_key, float_dtype
from rrjax.data.checks import check_num_categories
from rrjax.data.counts import as_values, count
from rrjax.data.linear_maps import Decay
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.channel import Channel
from rrjax.mechanisms.mechanism import check_epsilon, known_epsilon
from rrjax.numerics.pytrees import register
from rrjax.simulate.sampling.streams import unit


@register(data_fields=["epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class Geometric:
    """The geometric mechanism on 0 … K − 1, for ordered values with distances. A pytree, ε its leaf.

    Discrete Laplace noise, P(z) = (1 − r)/(1 + r)·r^|z|, is added to the value; a sum beyond an end is reported as that
    end. ε protects the whole range: any two values are ε-indistinguishable, r = e^(−ε/(K−1)), and the two ends reach ε
    exactly. Neighbours differ by ε/(K − 1) only. For metric privacy (geo-indistinguishability), ε₁ for each step of
    distance, give ε = ε₁·(K − 1).

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: Scalar, nats, for the whole range; a float or a traced array.

    Raises:
        ValueError: K < 2, or ε a number that is not positive.

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

    num_categories: int
    epsilon: ArrayLike

    def __post_init__(self) -> None:
        check_num_categories(self.num_categories)
        check_epsilon(self.epsilon)

    @property
    def rate(self) -> Float[Array, ""]:
        """−log r, nats for each step of distance: ε/(K − 1). Scalar; NaN where ε is not positive."""
        epsilon = as_scalar(self.epsilon, float_dtype())
        return jnp.where(epsilon > 0, epsilon / (self.num_categories - 1), jnp.nan)

    def channel(self) -> Channel:
        """The probabilities of all reports, K × K numbers, for checks and small K."""
        if known_epsilon(self.epsilon) is None:
            return Channel(_probabilities(jnp, self.rate, self.num_categories))
        # In double precision, because neighbouring rows differ little.
        rate = float(np.asarray(self.epsilon)) / (self.num_categories - 1)
        return Channel(_probabilities(np, rate, self.num_categories))

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        """Randomizes values for a simulation, at the precision of the dtype.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: Integers in 0 … K − 1, any shape.

        Returns:
            Reports, int32 in 0 … K − 1, the shape of `values`. Under tracing, −1 for a value outside the domain and for
            any value at an impossible ε.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        check_key(key)
        return _randomize(self, key, as_values(values, self.num_categories, "values"))

    def count(self, reports: ArrayLike) -> Int[Array, " K"]:
        """Counts the reports of each value, as `rrjax.count`.

        Args:
            reports: Integers in 0 … K − 1, any shape.

        Returns:
            `[K]`.

        Raises:
            ValueError: As `rrjax.count`.
        """
        return count(reports, self.num_categories)

    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of reports: a = 0 and B = r^|u − i|, whose products take O(K·log K).

        Args:
            reports: Integers in 0 … K − 1, any shape.

        Returns:
            `Mixture`, up to a factor that θ does not change.

        Raises:
            ValueError: As `count`, or no reports.
        """
        return Mixture(self.count(reports), 0.0, Decay(self.rate, self.num_categories))


def _probabilities(xp: Any, rate, size):
    places = xp.arange(size, dtype=float)
    ends = (places == 0) | (places == size - 1)
    # (1 − r)/(1 + r), and 1/(1 + r) at the ends, which take all sums beyond them.
    level = xp.where(ends, 1, -xp.expm1(-rate)) / (1 + xp.exp(-rate))
    return level * xp.exp(-rate * xp.abs(places[:, None] - places))


@jax.jit
def _randomize(mechanism, key, values):
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
