"""Survey designs: laws by which the answers of respondents are randomized."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int

from rrjax.data.arguments import as_values, check_key, complement
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.surveys.design import (
    Affine,
    Design,
    as_known_distribution,
    check_probability,
    check_real,
    check_scalar,
    is_known,
    mixed,
    together,
    with_probability,
    within,
)
from rrjax.numerics.pytrees import register


@register(data_fields=["truth"])
@dataclasses.dataclass(frozen=True)
class MirroredQuestion(Design):
    """Warner's design: the respondent answers a statement with probability `truth`, else its denial. A pytree.

    A device picks one of the two; the respondent answers whether it is true. The answer names the own one of two
    categories with probability `truth`: μ_j = (1 − truth) + (2·truth − 1)·θ_j, and ε = |log(truth/(1 − truth))|. Below
    ½ most answers name the other category, which is as informative. `rrjax.mechanisms.Warner` is the same law as a
    mechanism, with tallies and studies.

    Args:
        truth: Scalar in (0, 1) and not ½, the probability that the device picks the statement "I belong to category 0"
            and not its denial. "Yes" to the statement and "no" to the denial count as reports of category 0.

    Raises:
        ValueError: (Not in JAX's arrays) a `truth` outside (0, 1), or ½, at which answers have no information.

    Example:
        >>> import rrjax
        >>> design = rrjax.surveys.MirroredQuestion(truth=0.7)
        >>> print(f"{design.epsilon:.3f}")
        0.847
        >>> [round(t, 2) for t in rrjax.surveys.mle([380, 620], design).tolist()]
        [0.2, 0.8]

    References:
        Warner, "Randomized response: a survey technique for eliminating evasive answer bias", 1965;
        Blair, Imai and Zhou, "Design and analysis of the randomized response technique", 2015, under the name "mirrored
        question".
    """

    denies: ClassVar[bool] = True
    truth: ArrayLike

    def __post_init__(self) -> None:
        check_probability(self.truth, "truth", 0.7)
        if is_known(self.truth) and np.ndim(self.truth) == 0 and float(self.truth) == 0.5:  # pyright: ignore[reportArgumentType]
            raise ArgumentError(
                "truth must not be 1/2, at which answers say nothing; give another value, such as 0.7",
                argument="truth",
            )

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K, which is 2."""
        return 2

    @property
    def affine(self) -> Affine:
        check_scalar(self.truth, "truth")
        (truth,) = together(self.truth)
        always, kept = (1 - truth) * np.ones(2, truth.dtype), 2 * truth - 1
        if isinstance(truth, jax.Array):
            kept = jnp.where((truth > 0) & (truth < 1) & (kept != 0), kept, jnp.nan)
        return Affine(always, kept)

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        values = as_values(values, 2, "values")
        own = with_probability(key, self.truth, values.shape)
        reports = values.astype(jnp.int32)
        return within(jnp.where(own, reports, 1 - reports), values, self)


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
        >>> design = rrjax.surveys.UnrelatedQuestion(truth=0.7, unrelated=[0.25, 0.75])
        >>> print(f"{design.epsilon:.3f}")
        2.335
        >>> [round(t, 2) for t in rrjax.surveys.mle([215, 785], design).tolist()]
        [0.2, 0.8]

    References:
        Greenberg, Abul-Ela, Simmons and Horvitz, "The unrelated question randomized response model: theoretical
        framework", 1969.
    """

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
        >>> design = rrjax.surveys.ForcedResponse(truth=4 / 6, forced=[1 / 2, 1 / 2])
        >>> print(f"{design.epsilon:.3f}")
        1.609
        >>> [round(t, 2) for t in rrjax.surveys.mle([300, 700], design).tolist()]
        [0.2, 0.8]

    References:
        Boruch, "Assuring confidentiality of responses in social research: a note on strategies", 1971; Fox, "Randomized
        Response and Related Methods", 2nd ed., 2016, ch. 2.
    """

    distribution: ClassVar[str] = "forced"
    forced: ArrayLike


@register(data_fields=["own"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class NegativeQuestion(Design):
    """The negative question: the answer names the own category with probability `own`, the smallest. A pytree.

    K-ary randomized response with p = own below q = (1 − own)/(K − 1): μ_j = q − (q − p)·θ_j, ε = log(q/p). At own = 0,
    "name any category but yours", ε is infinite: an answer proves that the respondent is not in that category.

    Args:
        num_categories: K, an integer, at least 2.
        own: Scalar, from 0 to below 1/K.

    Raises:
        ValueError: K < 2, or (not in JAX's arrays) an `own` outside [0, 1/K).

    Example:
        >>> import rrjax
        >>> design = rrjax.surveys.NegativeQuestion(num_categories=3)
        >>> [round(t, 2) for t in rrjax.surveys.mle([200, 350, 450], design).tolist()]
        [0.6, 0.3, 0.1]

    References:
        Esponda and Guerrero, "Surveys with negative questions for sensitive items", Statistics and Probability Letters,
        2009.
    """

    denies: ClassVar[bool] = True
    num_categories: int
    own: ArrayLike = 0.0

    def __post_init__(self) -> None:
        check_num_categories(self.num_categories)
        check_real(self.own, "own")
        if not is_known(self.own) or np.ndim(self.own) > 0:
            return
        own = float(self.own)  # pyright: ignore[reportArgumentType]
        if not 0 <= own * self.num_categories < 1:
            raise ArgumentError(
                f"own must be from 0 to below 1/K = {1 / self.num_categories:g}, as one's own category is named less "
                f"often than any other; got {own:g}. Above 1/K it is RandomizedResponse; at 1/K answers say nothing",
                argument="own",
                value=own,
            )

    @property
    def affine(self) -> Affine:
        check_scalar(self.own, "own")
        (own,) = together(self.own)
        others = self.num_categories - 1
        always = (1 - own) / others * np.ones(self.num_categories, own.dtype)
        truth = (own * self.num_categories - 1) / others
        if isinstance(own, jax.Array):
            truth = jnp.where((own >= 0) & (truth < 0), truth, jnp.nan)
        return Affine(always, truth)

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        for_own, for_others = jax.random.split(key)
        named = with_probability(for_own, self.own, values.shape)
        reports = values.astype(jnp.int32)
        other = jax.random.randint(for_others, values.shape, 0, self.num_categories - 1, jnp.int32)
        other = other + (other >= reports).astype(jnp.int32)
        return within(jnp.where(named, reports, other), values, self)


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
        >>> design = rrjax.surveys.NonCompliance(mechanism, ignoring=0.1, answers=[0.0, 1.0])  # a tenth says no
        >>> counts = [244, 756]
        >>> [round(t, 2) for t in rrjax.surveys.mle(counts, design).tolist()]
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
            raise ArgumentError(
                f"answers must have shape [{self.num_categories}], as the mechanism's K; got {shape}",
                argument="answers",
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
