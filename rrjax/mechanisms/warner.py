"""Warner's spinner: randomized response of two categories, by how often the spinner asks for the truth."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_scalar, as_values, float_dtype
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

    It is randomized response with ε = |log(p/(1 − p))|. Below ½ reports name the other category more often than not,
    which says as much: a report then supports the category that it does not name. `rrjax.surveys` has the other designs
    of surveys, and estimates from counts of their answers.

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
        """Checks what can be checked."""
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
        # p/(1 − p) and its inverse, whichever is above one, less one: nothing cancels near ½.
        return jnp.where(usable, jnp.log1p(jnp.abs(2 * safe - 1) / jnp.minimum(safe, 1 - safe)), jnp.nan)

    @property
    def response(self) -> RandomizedResponse:
        """Randomized response with the same ε."""
        return RandomizedResponse(2, self.epsilon)

    def weights(self, expm1: Callable[[Any], Any]) -> Rates:
        """Those of randomized response."""
        return Rates(1, 1, expm1(self.epsilon))

    @property
    def bits(self) -> float:
        """Of a report."""
        return 1.0

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        """As `RandomizedResponse.randomize`; exchanged where p is below ½."""
        return self._turned(self.response.randomize(key, values))

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s 2"]:
        """Which category each report supports: the one that it names, or does not name where p is below ½."""
        return self.response.supports(self._own(reports))

    def is_report(self, reports: Array) -> Bool[Array, "*s"]:
        """As `Mechanism`; those that are 0 or 1."""
        return self.response.is_report(reports)

    def log_probability(self, reports: Array) -> Float[Array, ""]:
        """As `Mechanism`."""
        return self.response.log_probability(reports)

    def tally(self, reports: ArrayLike) -> Tally:
        """As `RandomizedResponse.tally`, of the categories that are supported."""
        return self.response.tally(self._own(reports))

    def mixture(self, reports: ArrayLike) -> Mixture:
        """As `RandomizedResponse.mixture`, of the categories that are supported."""
        return self.response.mixture(self._own(reports))

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """As `RandomizedResponse.collect`."""
        return self.response.collect(key, true_counts)

    def _own(self, reports):
        return self._turned(as_values(reports, 2, "reports"))

    def _turned(self, reports):
        """Exchanged where p is below ½; what is no category stays none."""
        seldom = jnp.asarray(self.truth_probability) < 0.5
        return jnp.where(seldom & (reports >= 0) & (reports <= 1), 1 - reports, reports)
