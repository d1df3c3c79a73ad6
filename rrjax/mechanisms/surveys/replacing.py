"""The designs whose answers are the truth or a draw from a known distribution: forced response, unrelated question."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxtyping import ArrayLike

from rrjax.mechanisms.surveys.checks import as_known_distribution, check_probability
from rrjax.mechanisms.surveys.design import Affine, Design, mixed
from rrjax.numerics.pytrees import register


@dataclasses.dataclass(frozen=True)
class _Replacing(Design):
    """A design whose answer is the value with probability `truth`, else a draw from a known distribution."""

    distribution: ClassVar[str]
    """The name of the field that holds the distribution."""

    truth: ArrayLike

    def __post_init__(self) -> None:
        check_probability(self.truth, "truth", 0.75)
        known = as_known_distribution(getattr(self, self.distribution), self.distribution)
        object.__setattr__(self, self.distribution, known)

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K."""
        return getattr(self, self.distribution).shape[-1]

    @property
    def affine(self) -> Affine:
        return mixed(self.truth, getattr(self, self.distribution), ("truth", self.distribution))


@register(data_fields=["truth", "unrelated"])
@dataclasses.dataclass(frozen=True)
class UnrelatedQuestion(_Replacing):
    """The unrelated question: the sensitive question with probability `truth`, else an unrelated one. A pytree.

    A device picks the question, and only the respondent sees it. μ_j = (1 − truth)·unrelated_j + truth·θ_j, if the
    answers to both questions are independent. The distribution of the unrelated answers must be known, such as that of
    months of birth.

    Args:
        truth: Scalar in (0, 1), the probability of the sensitive question.
        unrelated: `[K]`, the distribution of the answers to the unrelated question.

    Raises:
        ValueError: No numbers, or (not in JAX's arrays) a `truth` outside (0, 1), or invalid probabilities.

    Example:
        Of ten cards seven ask "did you?", three "were you born in the first quarter of the year?".

        >>> import rrjax
        >>> design = rrjax.mechanisms.UnrelatedQuestion(truth=0.7, unrelated=[0.25, 0.75])
        >>> print(f"{design.epsilon:.3f}")
        2.335
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([215, 785])).tolist()]
        [0.2, 0.8]

    References:
        Greenberg, Abul-Ela, Simmons and Horvitz, "The unrelated question randomized response model: theoretical
        framework", 1969.
    """

    name: ClassVar[str] = "unrelated-question"
    distribution: ClassVar[str] = "unrelated"
    unrelated: ArrayLike


@register(data_fields=["truth", "forced"])
@dataclasses.dataclass(frozen=True)
class ForcedResponse(_Replacing):
    """Forced response: a truthful answer with probability `truth`, else an answer drawn by a die. A pytree.

    μ_j = (1 − truth)·forced_j + truth·θ_j. An answer that is never forced reveals the respondent: ε is infinite.

    Args:
        truth: Scalar in (0, 1).
        forced: `[K]`, the probabilities of the answers, given that the answer is forced; they sum to one.

    Raises:
        ValueError: No numbers, or (not in JAX's arrays) a `truth` outside (0, 1), or invalid probabilities.

    Example:
        One die: 1 forces "yes", 6 forces "no", anything else asks for the truth.

        >>> import rrjax
        >>> design = rrjax.mechanisms.ForcedResponse(truth=4 / 6, forced=[1 / 2, 1 / 2])
        >>> print(f"{design.epsilon:.3f}")
        1.609
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([300, 700])).tolist()]
        [0.2, 0.8]

    References:
        Boruch, "Assuring confidentiality of responses in social research: a note on strategies", 1971; Fox, "Randomized
        Response and Related Methods", 2nd ed., 2016, ch. 2.
    """

    name: ClassVar[str] = "forced-response"
    distribution: ClassVar[str] = "forced"
    forced: ArrayLike
