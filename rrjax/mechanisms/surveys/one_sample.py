"""The survey designs of one sample.

Of yes and no: the designs of Warner, Kuk and Mangat, the crosswise and the triangular model. The respondents of
`yes_category`, by default 0, have the sensitive attribute, and the answer of this number is a yes (crosswise: "both or
neither"; triangular: "at least one"; Kuk: a red card). Of any number of answers: forced response, the coin, the
unrelated and the negative question, direct questioning, and randomized response that a known share ignores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_scalar, as_true_counts, as_values, check_key, complement, float_dtype
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Tally
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.mechanisms.surveys.design import (
    Affine,
    Design,
    YesOrNo,
    as_known_distribution,
    check_different,
    check_real,
    check_scalar,
    is_known,
    mixed,
    strictly_inside,
    together,
    with_probability,
)
from rrjax.numerics.pytrees import pytree


class _Mirrored(YesOrNo):
    """A design that names the own one of two categories with one probability, whatever the category."""

    symmetric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_different(self._own[1], 0.5, self._own[0], "")

    @property
    def _own(self):
        """The name of the probability, and its value."""
        (name,) = self.examples
        return name, getattr(self, name)

    @property
    def yes(self) -> tuple[Any, Any]:
        own = strictly_inside(self._own[1])
        return own, 1 - own

    @property
    def epsilon(self) -> Float[Array, ""]:
        """|log(p/(1 − p))|, nats, without cancellation near ½; NaN for a traced p that is no such probability."""
        p = as_scalar(self._own[1], float_dtype(), self._own[0])
        usable = (p > 0) & (p < 1) & (p != 0.5)
        safe = jnp.where(usable, p, 0.75)
        return jnp.where(usable, jnp.log1p(jnp.abs(2 * safe - 1) / jnp.minimum(safe, 1 - safe)), jnp.nan)


@pytree("yes_category")
class Warner(_Mirrored):
    """Warner's design: the respondent answers a statement with probability p, else its denial. A pytree.

    A spinner picks one of the two; the respondent says whether it is true. "Yes" to the statement and "no" to the
    denial name the category of yes. An answer names the own one of two categories with probability p; below ½ most
    answers name the other one, which is as informative.

    Args:
        truth_probability: p, scalar in (0, 1) and not ½, at which answers have no information.
        yes_category: 0 or 1, the category of yes. Static.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Warner(0.7)
        >>> print(f"{design.epsilon:.3f}")
        0.847
        >>> [round(t, 2) for t in rrjax.inv(design.tally_of_counts([380, 620])).tolist()]
        [0.2, 0.8]

    References:
        Warner, "Randomized response: a survey technique for eliminating evasive answer bias", 1965;
        Blair, Imai and Zhou, "Design and analysis of the randomized response technique", 2015 ("mirrored question").
    """

    name: ClassVar[str] = "warner"
    examples: ClassVar[Mapping[str, float]] = {"truth_probability": 0.7}
    truth_probability: ArrayLike


@pytree("yes_category")
class Crosswise(_Mirrored):
    """The crosswise model: whether the answers to a sensitive and to an innocuous question are the same. A pytree.

    A yes is "both or neither", whose probability is innocuous·π + (1 − innocuous)·(1 − π), π the share with the
    attribute.

    Args:
        innocuous: Scalar in (0, 1) and not ½, at which answers have no information: the probability of a yes to the
            innocuous question, such as a birthday in January or February.
        yes_category: 0 or 1, the category of yes. Static.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Crosswise(innocuous=0.15)
        >>> [round(t, 3) for t in rrjax.mle(design.mixture_of_counts([1427, 573])).tolist()]
        [0.195, 0.805]

    References:
        Yu, Tian and Tang, "Two new models for survey sampling with sensitive characteristic", Metrika 67, 2008.
    """

    name: ClassVar[str] = "crosswise"
    examples: ClassVar[Mapping[str, float]] = {"innocuous": 0.7}
    innocuous: ArrayLike


@pytree("yes_category")
class Triangular(YesOrNo):
    """The triangular model: whether the answer to a sensitive or to an innocuous question is yes. A pytree.

    A yes is "at least one", which a respondent with the attribute always gives; a no, "neither", clears the respondent.
    So ε is infinite.

    Args:
        innocuous: Scalar in (0, 1), the probability of a yes to the innocuous question.
        yes_category: 0 or 1, the category of yes. Static.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Triangular(innocuous=0.5)
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([600, 400])).tolist()]
        [0.2, 0.8]

    References:
        Yu, Tian and Tang, "Two new models for survey sampling with sensitive characteristic", Metrika 67, 2008.
    """

    name: ClassVar[str] = "triangular"
    examples: ClassVar[Mapping[str, float]] = {"innocuous": 0.25}
    innocuous: ArrayLike

    @property
    def yes(self) -> tuple[Any, Any]:
        return 1.0, strictly_inside(self.innocuous)


@pytree("yes_category")
class Kuk(YesOrNo):
    """Kuk's cards: the respondent draws from one of two decks, by the attribute, and names the colour. A pytree.

    Args:
        have: Scalar in [0, 1], the share of red cards in the deck of respondents with the attribute.
        lack: Scalar in [0, 1], the share in the deck of the others; not that of `have`.
        yes_category: 0 or 1, the category of yes. Static.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Kuk(have=0.8, lack=0.2)
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([320, 680])).tolist()]
        [0.2, 0.8]

    References:
        Kuk, "Asking sensitive questions indirectly", Biometrika 77, 1990.
    """

    name: ClassVar[str] = "kuk"
    examples: ClassVar[Mapping[str, float]] = {"have": 0.8, "lack": 0.2}
    closed: ClassVar[bool] = True
    have: ArrayLike
    lack: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        check_different(self.have, self.lack, "have", ", as lack is")

    @property
    def yes(self) -> tuple[Any, Any]:
        return self.have, self.lack


@pytree("yes_category")
class Mangat(YesOrNo):
    """Mangat's design: respondents with the attribute say so; the others use Warner's spinner. A pytree.

    A respondent without the attribute says yes with probability 1 − truth. A no clears the respondent, so ε is
    infinite.

    Args:
        truth: Scalar in (0, 1), the probability that the spinner asks the others for the truth.
        yes_category: 0 or 1, the category of yes. Static.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Mangat(truth=0.7)
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([440, 560])).tolist()]
        [0.2, 0.8]

    References:
        Mangat, "An improved randomized response strategy", JRSS B 56, 1994.
    """

    name: ClassVar[str] = "mangat"
    examples: ClassVar[Mapping[str, float]] = {"truth": 0.7}
    truth: ArrayLike

    @property
    def yes(self) -> tuple[Any, Any]:
        return 1.0, 1 - strictly_inside(self.truth)


@dataclasses.dataclass(frozen=True)
class _Replacing(Design):
    """A design whose answer is the value with probability `truth`, else a draw from a known distribution."""

    examples: ClassVar[Mapping[str, float]] = {"truth": 0.75}
    distribution: ClassVar[str]
    """The name of the field that holds the distribution."""

    truth: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        known = as_known_distribution(getattr(self, self.distribution), self.distribution)
        object.__setattr__(self, self.distribution, known)

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K."""
        return getattr(self, self.distribution).shape[-1]

    @property
    def affine(self) -> Affine:
        return mixed(self.truth, getattr(self, self.distribution), ("truth", self.distribution))


@pytree()
class UnrelatedQuestion(_Replacing):
    """The unrelated question: the sensitive question with probability `truth`, else an unrelated one. A pytree.

    A device picks the question, and only the respondent sees it. μ_j = (1 − truth)·unrelated_j + truth·θ_j, if the
    answers to both questions are independent. The distribution of the unrelated answers must be known, such as that of
    months of birth.

    Args:
        truth: Scalar in (0, 1), the probability of the sensitive question.
        unrelated: `[K]`, the distribution of the answers to the unrelated question.

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


@pytree()
class ForcedResponse(_Replacing):
    """Forced response: a truthful answer with probability `truth`, else an answer drawn by a die. A pytree.

    μ_j = (1 − truth)·forced_j + truth·θ_j. An answer that is never forced reveals the respondent: ε is infinite.

    Args:
        truth: Scalar in (0, 1).
        forced: `[K]`, the probabilities of the answers, given that the answer is forced; they sum to one.

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


@pytree("num_categories")
class Coin(Design):
    """The coin: with probability `rate` a fair draw from all categories, else the truth. A pytree.

    μ_j = rate/K + (1 − rate)·θ_j. It is k-ary randomized response with ε = log(1 + K·(1 − rate)/rate), told by its
    rate, as browsers do.

    Args:
        num_categories: K, an integer, at least 2. Static.
        rate: Scalar in (0, 1): the probability of a fair draw.

    Example:
        The label of `PerformanceTimingConfidence`, low or high, with its `randomizedTriggerRate`.

        >>> import rrjax
        >>> design = rrjax.mechanisms.Coin(2, rate=0.4)
        >>> print(f"{design.epsilon:.3f}")
        1.386
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([320, 680])).tolist()]
        [0.2, 0.8]

    References:
        W3C, Navigation Timing Level 2, `PerformanceTimingConfidence`, 2026.
    """

    name: ClassVar[str] = "coin"
    examples: ClassVar[Mapping[str, float]] = {"rate": 0.5}
    num_categories: int
    rate: ArrayLike

    def __post_init__(self) -> None:
        check_num_categories(self.num_categories)
        super().__post_init__()

    @property
    def affine(self) -> Affine:
        size = self.num_categories
        return mixed(1 - self.rate, np.full(size, 1 / size), ("rate", "num_categories"))


@pytree("num_categories")
class Direct(Design):
    """Direct questioning: the answer is the value. A pytree. Nothing protects the respondents: ε is infinite.

    It is for groups of a survey that were asked directly, beside others that randomized (`ByRespondent`).

    Args:
        num_categories: K, an integer, at least 2. Static.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Direct(2)
        >>> [round(t, 3) for t in rrjax.mle(design.mixture_of_counts([7, 89])).tolist()]
        [0.073, 0.927]
    """

    name: ClassVar[str] = "direct"
    num_categories: int

    def __post_init__(self) -> None:
        check_num_categories(self.num_categories)

    @property
    def affine(self) -> Affine:
        return Affine(np.zeros(self.num_categories), np.asarray(1.0))

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        return self._within(values.astype(jnp.int32), values)

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        check_key(key)
        return self._tally(as_true_counts(true_counts, self.num_categories))


@pytree("num_categories")
class NegativeQuestion(Design):
    """The negative question: the answer names the own category with probability `own`, the smallest. A pytree.

    K-ary randomized response with p = own below q = (1 − own)/(K − 1): μ_j = q − (q − p)·θ_j, ε = log(q/p). At own = 0,
    "name any category but yours", ε is infinite: an answer proves that the respondent is not in that category.

    Args:
        num_categories: K, an integer, at least 2.
        own: Scalar, from 0 to below 1/K.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.NegativeQuestion(num_categories=3)
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([200, 350, 450])).tolist()]
        [0.6, 0.3, 0.1]

    References:
        Esponda and Guerrero, "Surveys with negative questions for sensitive items", Statistics and Probability Letters,
        2009.
    """

    name: ClassVar[str] = "negative-question"
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
        return self._within(jnp.where(named, reports, other), values)


@pytree()
class NonCompliance(Design):
    """Randomized response that a known share of the respondents, independent of their values, ignores. A pytree.

    Their answers have a known distribution: the "no" of self-protection, or any answer at random. With q and d of the
    mechanism, μ_j = (1 − ignoring)·q + ignoring·answers_j + (1 − ignoring)·d·θ_j. ε is at most the mechanism's.

    Args:
        mechanism: `RandomizedResponse`, K ≥ 2.
        ignoring: Scalar in (0, 1), the share of respondents who ignore the mechanism.
        answers: `[K]`, the distribution of their answers.

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

    examples: ClassVar[Mapping[str, float]] = {"ignoring": 0.1}
    mechanism: RandomizedResponse
    ignoring: ArrayLike
    answers: ArrayLike

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, RandomizedResponse):
            raise ArgumentError(f"mechanism must be a RandomizedResponse, got {self.mechanism!r}", argument="mechanism")
        super().__post_init__()
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
