"""Warner's spinner: randomized response of two categories, given the probability of a truthful report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_scalar, float_dtype
from rrjax.data.counts import as_values
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates, Tally
from rrjax.mechanisms.mechanism import Mechanism
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.numerics.pytrees import register


@register(data_fields=["truth_probability"])
@dataclasses.dataclass(frozen=True, init=False)
class Warner(Mechanism):
    """Warner's spinner: a report names the own one of two categories with the given probability. A pytree.

    Randomized response with ε = |log(p/(1 − p))|. For p below ½ most reports name the other category, which is as
    informative: a report then supports the category that it does not name. `rrjax.surveys.MirroredQuestion` is the same
    design for a survey, with estimates from the counts of its answers.

    Args:
        truth_probability: p, scalar in (0, 1) and not ½; a float or a traced array.

    Raises:
        ValueError: (Not under tracing) a probability outside (0, 1), or ½, at which reports say nothing.

    Example:
        >>> import jax, rrjax
        >>> mechanism = rrjax.mechanisms.Warner(0.3)
        >>> print(f"{mechanism.epsilon:.3f}")
        0.847
        >>> tally = mechanism.tally(mechanism.randomize(jax.random.key(0), [0] * 8000 + [1] * 2000))
        >>> [round(t, 1) for t in rrjax.inv(tally).tolist()]
        [0.8, 0.2]

    References:
        Warner, "Randomized response: a survey technique for eliminating evasive answer bias", 1965.
    """

    name: ClassVar[str] = "warner"
    truth_probability: ArrayLike

    def __init__(self, truth_probability: ArrayLike) -> None:
        given = truth_probability
        known = not isinstance(given, Tracer) and np.ndim(given) == 0
        if known and not (0 < float(given) < 1 and float(given) != 0.5):  # pyright: ignore[reportArgumentType]
            raise ArgumentError(
                f"truth_probability must be between 0 and 1 and not 1/2, at which reports say nothing; got {given}",
                argument="truth_probability",
            )
        object.__setattr__(self, "truth_probability", given)

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K, which is 2."""
        return 2

    @property
    def epsilon(self) -> Float[Array, ""]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """|log(p/(1 − p))|, nats. Scalar; NaN for a traced p that is no such probability."""
        p = as_scalar(self.truth_probability, float_dtype(), "truth_probability")
        usable = (p > 0) & (p < 1) & (p != 0.5)
        safe = jnp.where(usable, p, 0.75)
        # max(p/(1 − p), (1 − p)/p) − 1, without cancellation near ½.
        return jnp.where(usable, jnp.log1p(jnp.abs(2 * safe - 1) / jnp.minimum(safe, 1 - safe)), jnp.nan)

    @property
    def response(self) -> RandomizedResponse:
        """Randomized response with the same ε."""
        return RandomizedResponse(2, self.epsilon)

    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
        return Rates(1, 1, expm1(self.epsilon))

    @property
    def bits(self) -> float:
        return 1.0

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        return self._exchanged(self.response.randomize(key, values))

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s 2"]:
        return self.response.supports(self._supported(reports))

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        return self.response.is_report(reports)

    def log_probability(self, reports: Array) -> Float[Array, ""]:
        return self.response.log_probability(reports)

    def tally(self, reports: ArrayLike) -> Tally:
        return self.response.tally(self._supported(reports))

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.response.mixture(self._supported(reports))

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        return self.response.collect(key, true_counts)

    def _supported(self, reports):
        return self._exchanged(as_values(reports, 2, "reports"))

    def _exchanged(self, reports):
        """Exchanges 0 and 1 for p below ½, and keeps all other numbers."""
        exchanged = jnp.asarray(self.truth_probability) < 0.5
        return jnp.where(exchanged & (reports >= 0) & (reports <= 1), 1 - reports, reports)
