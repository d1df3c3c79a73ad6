"""Warner's design: a spinner picks a statement or its denial, and the respondent says whether it is true."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_values, check_key
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.surveys import design
from rrjax.mechanisms.surveys.design import (
    Affine,
    check_probability,
    check_scalar,
    is_known,
    together,
    with_probability,
    within,
)
from rrjax.numerics.pytrees import register


@register(data_fields=["truth"])
@dataclasses.dataclass(frozen=True)
class Warner:
    """Warner's design: two categories, and with probability `truth` the answer names one's own. A pytree.

    μ_j = (1 − truth) + (2·truth − 1)·θ_j, and ε = |log(truth/(1 − truth))|. Below ½ answers are exchanged more often
    than not, which says as much.

    Args:
        truth: Scalar in (0, 1) and not ½, how often the spinner points to "I belong to category 0" rather than to "I do
            not"; "yes" to the first and "no" to the second are counted as reports of category 0.

    Raises:
        ValueError: (Not in JAX's arrays) a `truth` outside (0, 1), or ½, at which answers say nothing.

    Example:
        >>> import rrjax
        >>> design = rrjax.surveys.Warner(truth=0.7)
        >>> print(f"{design.epsilon:.3f}")
        0.847
        >>> [round(t, 2) for t in rrjax.surveys.mle([380, 620], design).tolist()]
        [0.2, 0.8]

    References:
        Warner, "Randomized response: a survey technique for eliminating evasive answer bias", 1965.
    """

    denies: ClassVar[bool] = True
    truth: ArrayLike

    def __post_init__(self):
        """Checks what can be checked of the probability."""
        check_probability(self.truth, "truth", 0.7)
        if is_known(self.truth) and np.ndim(self.truth) == 0 and float(self.truth) == 0.5:  # pyright: ignore[reportArgumentType]
            raise ArgumentError(
                "truth must not be 1/2: both answers would be as likely from everybody and say nothing; such as 0.7",
                argument="truth",
            )

    @property
    def num_categories(self) -> int:
        """K, which is 2."""
        return 2

    @property
    def affine(self) -> Affine:
        """The law of a report."""
        check_scalar(self.truth, "truth")
        (truth,) = together(self.truth)
        always, kept = (1 - truth) * np.ones(2, truth.dtype), 2 * truth - 1
        if isinstance(truth, jax.Array):
            kept = jnp.where((truth > 0) & (truth < 1) & (kept != 0), kept, jnp.nan)
        return Affine(always, kept)

    @property
    def epsilon(self) -> Float[Array, ""]:
        """The privacy parameter that the design delivers, nats."""
        return design.epsilon(self)

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        """Simulates the answers of respondents.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            values: Integers, 0 or 1, any shape.

        Returns:
            Reports, int32, the shape of `values`; −1 where, under tracing, a value is outside the domain or the design
            none.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        check_key(key)
        values = as_values(values, 2, "values")
        own = with_probability(key, self.truth, values.shape)
        reports = values.astype(jnp.int32)
        return within(jnp.where(own, reports, 1 - reports), values, self)

    probabilities = design.probabilities
