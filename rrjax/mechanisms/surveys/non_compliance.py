"""Randomized response that a known share of the respondents ignores."""

from __future__ import annotations

import dataclasses

from jaxtyping import ArrayLike

from rrjax.data.arguments import complement
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.surveys.checks import as_known_distribution, check_probability
from rrjax.mechanisms.surveys.design import Affine, Design, mixed
from rrjax.numerics.pytrees import register


@register(data_fields=["mechanism", "ignoring", "answers"])
@dataclasses.dataclass(frozen=True)
class NonCompliance(Design):
    """Randomized response that a known share of the respondents, independent of their values, ignores. A pytree.

    Their answers have a known distribution: the "no" of self-protection, or any answer at random. With q and d of the
    mechanism, μ_j = (1 − ignoring)·q + ignoring·answers_j + (1 − ignoring)·d·θ_j. ε is at most the mechanism's.

    Args:
        mechanism: `RandomizedResponse`, K ≥ 2.
        ignoring: Scalar in (0, 1), the share of respondents who ignore the mechanism.
        answers: `[K]`, the distribution of their answers.

    Raises:
        ValueError: Another mechanism, no numbers, or (not in JAX's arrays) an `ignoring` outside (0, 1), or
            probabilities that are invalid or not K.

    Example:
        >>> import rrjax
        >>> mechanism = rrjax.RandomizedResponse(num_categories=2, epsilon=2.0)
        >>> design = rrjax.mechanisms.NonCompliance(mechanism, ignoring=0.1, answers=[0.0, 1.0])  # a tenth says no
        >>> counts = [244, 756]
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts(counts)).tolist()]
        [0.2, 0.8]
        >>> [round(t, 2) for t in rrjax.mle_star(counts, 2.0).tolist()]  # as if all had complied
        [0.16, 0.84]

    References:
        Böckenholt and van der Heijden, "Item randomized-response models for measuring noncompliance", 2007; here the
        share is known.
    """

    mechanism: RandomizedResponse
    ignoring: ArrayLike
    answers: ArrayLike

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, RandomizedResponse):
            raise ArgumentError(f"mechanism must be a RandomizedResponse, got {self.mechanism!r}", argument="mechanism")
        check_probability(self.ignoring, "ignoring", 0.1)
        object.__setattr__(self, "answers", as_known_distribution(self.answers, "answers"))
        shape = getattr(self.answers, "shape", ())
        if len(shape) == 1 and shape[0] != self.num_categories:
            raise ArgumentError.about(
                "answers", f"must have shape [{self.num_categories}], as the mechanism's K; got {shape}"
            )

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K."""
        return self.mechanism.num_categories

    @property
    def affine(self) -> Affine:
        rates = self.mechanism.rates
        final = mixed(complement(self.ignoring), self.answers, ("ignoring", "answers"))
        return Affine(final.truth * rates.q + final.always, final.truth * rates.d)
