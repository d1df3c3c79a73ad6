"""Forced response: a device tells a respondent to tell the truth, or which answer to give."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxtyping import Array, ArrayLike, Float

from rrjax.mechanisms.surveys import design
from rrjax.mechanisms.surveys.design import Affine, as_known_distribution, check_probability, mixed
from rrjax.numerics.pytrees import register


@register(data_fields=["truth", "forced"])
@dataclasses.dataclass(frozen=True)
class ForcedResponse:
    """Forced response: with probability `truth` the answer is truthful, otherwise a die says what to answer. A pytree.

    μ_j = (1 − truth)·forced_j + truth·θ_j. An answer that is never forced gives away whoever gives it: ε is infinite.

    Args:
        truth: Scalar in (0, 1).
        forced: `[K]`, how often each answer is the forced one, given that one is forced; it sums to one.

    Raises:
        ValueError: No numbers, or (not in JAX's arrays) a `truth` outside (0, 1), or probabilities that are none.

    Example:
        One die: 1 forces "yes", 6 forces "no", anything else asks for the truth.

        >>> import rrjax
        >>> design = rrjax.surveys.ForcedResponse(truth=4 / 6, forced=[1 / 2, 1 / 2])
        >>> print(f"{design.epsilon:.3f}")
        1.609
        >>> [round(t, 2) for t in rrjax.surveys.mle([300, 700], design).tolist()]
        [0.2, 0.8]

    References:
        Boruch, "Assuring confidentiality of responses in social research: a note on strategies", 1971; Fox, "Randomized
        Response and Related Methods", 2nd ed., 2016, ch. 2.
    """

    denies: ClassVar[bool] = False
    truth: ArrayLike
    forced: ArrayLike

    def __post_init__(self):
        """Checks what can be checked of the probabilities."""
        check_probability(self.truth, "truth", 0.75)
        object.__setattr__(self, "forced", as_known_distribution(self.forced, "forced"))

    @property
    def num_categories(self) -> int:
        """K."""
        return self.forced.shape[-1]  # pyright: ignore[reportAttributeAccessIssue, reportGeneralTypeIssues]

    @property
    def affine(self) -> Affine:
        """The law of a report."""
        return mixed(self.truth, self.forced, ("truth", "forced"))

    @property
    def epsilon(self) -> Float[Array, ""]:
        """The privacy parameter that the design delivers, nats."""
        return design.epsilon(self)

    probabilities, randomize = design.probabilities, design.randomize
