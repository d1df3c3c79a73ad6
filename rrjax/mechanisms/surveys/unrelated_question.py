"""The unrelated question: a device picks which of two questions a respondent answers, and nobody else knows which."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxtyping import Array, ArrayLike, Float

from rrjax.mechanisms.surveys import design
from rrjax.mechanisms.surveys.design import Affine, as_known_distribution, check_probability, mixed
from rrjax.numerics.pytrees import register


@register(data_fields=["truth", "unrelated"])
@dataclasses.dataclass(frozen=True)
class UnrelatedQuestion:
    """The unrelated question: asked with probability 1 − `truth` in place of the sensitive one. A pytree.

    μ_j = (1 − truth)·unrelated_j + truth·θ_j, if the answers to both questions are independent. The design with the
    distribution of the unrelated answers known, such as that of the months of birth.

    Args:
        truth: Scalar in (0, 1), the probability of the sensitive question.
        unrelated: `[K]`, the distribution of the answers to the unrelated question.

    Raises:
        ValueError: No numbers, or (not in JAX's arrays) a `truth` outside (0, 1), or probabilities that are none.

    Example:
        Of ten cards seven ask "did you?", three "were you born in the first quarter of the year?".

        >>> import rrjax
        >>> design = rrjax.surveys.UnrelatedQuestion(truth=0.7, unrelated=[0.25, 0.75])
        >>> print(f"{design.epsilon:.3f}")
        2.335
        >>> [round(t, 2) for t in rrjax.surveys.mle([215, 785], design).tolist()]
        [0.2, 0.8]

    References:
        Greenberg, Abul-Ela, Simmons and Horvitz, "The unrelated question randomized response model: theoretical
        framework", 1969.
    """

    denies: ClassVar[bool] = False
    truth: ArrayLike
    unrelated: ArrayLike

    def __post_init__(self):
        """Checks what can be checked of the probabilities."""
        check_probability(self.truth, "truth", 0.75)
        object.__setattr__(self, "unrelated", as_known_distribution(self.unrelated, "unrelated"))

    @property
    def num_categories(self) -> int:
        """K."""
        return self.unrelated.shape[-1]  # pyright: ignore[reportAttributeAccessIssue, reportGeneralTypeIssues]

    @property
    def affine(self) -> Affine:
        """The law of a report."""
        return mixed(self.truth, self.unrelated, ("truth", "unrelated"))

    @property
    def epsilon(self) -> Float[Array, ""]:
        """The privacy parameter that the design delivers, nats."""
        return design.epsilon(self)

    probabilities, randomize = design.probabilities, design.randomize
