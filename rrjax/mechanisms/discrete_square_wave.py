"""The square wave on bins: integers only, so that clients keep its law and its ε exactly."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int

from rrjax.data.arguments import as_scalar, float_dtype
from rrjax.data.categories import check_num_categories
from rrjax.data.mechanism_parameters import half_width_of
from rrjax.data.mixture import Mixture
from rrjax.data.tally import count
from rrjax.mechanisms.channel import Channel
from rrjax.mechanisms.mechanism import Mechanism, check_epsilon, known_epsilon, settled
from rrjax.mechanisms.rows import LogRows
from rrjax.numerics.pytrees import register


@register(data_fields=["epsilon"], meta_fields=["num_categories", "half_width"])
@dataclasses.dataclass(frozen=True)
class DiscreteSquareWave(Mechanism):
    """The square wave on bins: values are bins 0 … K − 1, and reports are bins 0 … K + 2h − 1. A pytree, ε its leaf.

    A value v reports each of the 2h + 1 bins from v to v + 2h with probability p = e^ε/((2h + 1)e^ε + K − 1), and each
    of the other K − 1 bins with q = p·e^−ε. Report u stands for the place u − h, so places reach h bins beyond both
    ends. A report depends on a number through its bin alone: estimates of the shares of bins assume nothing about the
    places of numbers within their bins. `SquareWave` is the continuous mechanism; h = ⌊b·K⌋ with its half-width b.

    `rrjax.secure.client("square-wave", …)` draws the same reports for real collections, and `rrjax randomize
    --mechanism square-wave` writes them to files.

    Args:
        num_categories: K, the number of bins, at least 2.
        epsilon: Scalar, nats; a float or a traced array.
        half_width: h, an integer from 0; None chooses by K and ε.

    Raises:
        ValueError: K < 2, ε a number that is not positive, or h out of range.

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

    num_categories: int
    epsilon: ArrayLike
    half_width: int | None = None

    def __post_init__(self) -> None:
        check_num_categories(self.num_categories)
        object.__setattr__(self, "num_categories", int(self.num_categories))
        check_epsilon(self.epsilon)
        chosen = half_width_of(self.half_width, self.num_categories, known_epsilon(self.epsilon))
        object.__setattr__(self, "half_width", chosen)

    @property
    def note(self) -> str:
        return f"half-width {self._half_width():,}"

    @property
    def num_reports(self) -> int:
        """K + 2h, the number of kinds of reports."""
        return self.num_categories + 2 * self._half_width()

    def channel(self) -> Channel:
        """The probabilities of the reports for each bin, `[K, K + 2h]`."""
        number, window = self.num_categories, 2 * self._half_width() + 1
        offset = np.arange(self.num_reports) - np.arange(number)[:, None]
        near = (offset >= 0) & (offset < window)
        known = known_epsilon(self.epsilon)
        xp: Any = jnp if known is None else np
        ratio = xp.exp(-(as_scalar(self.epsilon, float_dtype()) if known is None else known))
        p = 1 / (window + (number - 1) * ratio)
        matrix = xp.where(near, p, p * ratio)
        return Channel(xp.where(ratio < 1, matrix, xp.nan) if known is None else matrix)

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        return self.channel().randomize(key, values)

    def count(self, reports: ArrayLike) -> Int[Array, " M"]:
        """The number of reports of each kind, `[K + 2h]`, as `rrjax.count`."""
        return count(reports, self.num_reports)

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.channel().mixture(reports)

    def log_rows(self, reports: ArrayLike) -> LogRows:
        return self.channel().log_rows(reports)

    def _half_width(self) -> int:
        return settled(self.half_width, "half_width")
