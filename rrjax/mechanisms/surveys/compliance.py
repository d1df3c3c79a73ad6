"""Designs for respondents of whom an unknown share does not follow the rules: two samples, three kinds of respondents.

With two answers, two samples with different parameters identify the shares of three kinds. Each design names its kinds,
and their probabilities of the answer yes in each sample.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import float_dtype
from rrjax.mechanisms.surveys.checks import check_different, check_probability
from rrjax.mechanisms.surveys.two_samples import Region, Row, TwoSamples, of_both
from rrjax.numerics.pytrees import register

Share: TypeAlias = Literal["complying", "all", "least"]


def _region(share: tuple[Row, Row], ends: tuple[tuple[int, int], tuple[int, int]]) -> Region:
    """The simplex of the shares of the three kinds; of two points as likely, the one without kind 2 is taken."""
    corners = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    return Region(corners, ((0, 1), (0, 2), (1, 2)), corners, share, ends)


REGIONS: dict[Share, Region] = {
    "complying": _region(((1, 0, 0), (1, 1, 0)), ((1, 0), (2, 2))),
    "all": _region(((1, 0, 1), (1, 1, 1)), ((1, 0), (1, 2))),
    "least": _region(((1, 0, 0), (1, 1, 1)), ((1, 0), (2, 0))),
}
"""The simplex of the three kinds, with each share."""


class Compliance(TwoSamples):
    """A design of two samples with respondents who do not follow the rules. A pytree.

    Kinds 0 and 1 follow the rules, with and without the sensitive attribute; kind 2 does not. k are their shares.
    """

    share: ClassVar[Share] = "complying"
    """Of whom the estimated share is: of those who comply; of all, because all of kind 2 have the attribute; or the
    least share of all, because nothing is known of kind 2."""
    region: ClassVar[Region] = REGIONS["complying"]


@register(data_fields=["forced"])
@dataclasses.dataclass(frozen=True)
class CheatingDetection(Compliance):
    """Cheating detection: a die forces some to say yes, others answer truthfully; cheaters always say no. A pytree.

    P(yes) = θ_0 + forced·θ_1 in each sample: of honest respondents with and without the attribute. Whether cheaters
    have it is not known. So the share is that of honest respondents with the attribute among all, a lower bound; with
    the cheaters it is an upper one.

    Args:
        forced: `[2]`, in (0, 1) and different: the probability of being told to say yes, in each sample.

    Raises:
        ValueError: No two different probabilities.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.CheatingDetection(forced=[0.25, 0.75])
        >>> found = rrjax.inference.compliance([[250, 750], [450, 550]], design)
        >>> f"{found.share:.2f} {found.not_complying:.2f}"
        '0.15 0.45'

    References:
        Clark and Desharnais, "Honest answers to embarrassing questions: detecting cheating in the randomized response
        model", Psychological Methods 3, 1998.
    """

    name: ClassVar[str] = "cheating-detection"
    share: ClassVar[Share] = "least"
    region: ClassVar[Region] = REGIONS["least"]
    forced: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "forced", of_both(self.forced, "forced", 0.25))

    @property
    def yes(self) -> Float[Array, "2 3"]:
        return self._checked([[1.0, each, 0.0] for each in jnp.asarray(self.forced, float_dtype())])


@register(data_fields=["truth"])
@dataclasses.dataclass(frozen=True)
class StochasticLieDetector(Compliance):
    """The stochastic lie detector: those with the attribute are asked for the truth, and some say no. A pytree.

    Those without are told to say the truth with probability `truth`, else to lie. P(yes) = θ_0 + (1 − truth)·θ_1; kind
    2 has the attribute, and says no.

    Args:
        truth: `[2]`, in (0, 1) and different: the probability of being told to say the truth, in each sample.

    Raises:
        ValueError: No two different probabilities.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.StochasticLieDetector(truth=[0.8, 0.4])
        >>> found = rrjax.inference.compliance([[310, 690], [590, 410]], design)
        >>> f"{found.share:.2f} {found.not_complying:.2f}"
        '0.30 0.13'

    References:
        Moshagen, Musch and Erdfelder, "A stochastic lie detector", Behavior Research Methods 44, 2012.
    """

    name: ClassVar[str] = "stochastic-lie-detector"
    share: ClassVar[Share] = "all"
    region: ClassVar[Region] = REGIONS["all"]
    truth: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "truth", of_both(self.truth, "truth", 0.8))

    @property
    def yes(self) -> Float[Array, "2 3"]:
        return self._checked([[1.0, 1 - each, 0.0] for each in jnp.asarray(self.truth, float_dtype())])


@register(data_fields=["innocuous", "anchor", "anchor_share"])
@dataclasses.dataclass(frozen=True)
class AnchoredCrosswise(Compliance):
    """The crosswise model with an anchor question, whose true share is known; inattentive respondents answer at random.

    A pytree. The answer yes is "both or neither". Sample 0 answers the sensitive question, sample 1 the anchor
    question; both may be the same respondents. Attention is taken as independent of the attribute.

    Args:
        innocuous: Scalar in (0, 1) and not ½, the probability of a yes to the innocuous question.
        anchor: Scalar in (0, 1) and not ½, the same for the innocuous question beside the anchor question.
        anchor_share: Scalar in [0, 1], the share of a true yes to the anchor question, such as 0.

    Raises:
        ValueError: No probabilities, or ½.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.AnchoredCrosswise(innocuous=0.15, anchor=0.15)
        >>> found = rrjax.inference.compliance([[1427, 573], [1541, 459]], design)
        >>> f"{found.share:.4f} {1 - found.not_complying:.4f}"
        '0.1054 0.7729'

    References:
        Atsusaka and Stevenson, "A bias-corrected estimator for the crosswise model with inattentive respondents",
        Political Analysis 31, 2023.
    """

    name: ClassVar[str] = "anchored-crosswise"
    innocuous: ArrayLike
    anchor: ArrayLike
    anchor_share: ArrayLike = 0.0

    def __post_init__(self) -> None:
        for name in ("innocuous", "anchor"):
            check_probability(getattr(self, name), name, 0.15)
            check_different(getattr(self, name), 0.5, name, "")
        check_probability(self.anchor_share, "anchor_share", 0.0, closed=True)

    @property
    def yes(self) -> Float[Array, "2 3"]:
        both = self.anchor_share * self.anchor + (1 - self.anchor_share) * (1 - self.anchor)  # pyright: ignore[reportOperatorIssue]
        return self._checked([[self.innocuous, 1 - self.innocuous, 0.5], [both, both, 0.5]])


@register(data_fields=["truth", "forced"])
@dataclasses.dataclass(frozen=True)
class SelfProtection(Compliance):
    """Forced response of which some say no whatever the die shows, to protect themselves. A pytree.

    Those who comply say yes with probability truth + (1 − truth)·forced if they have the attribute, else (1 −
    truth)·forced. Compliance is taken as independent of the attribute.

    Args:
        truth: `[2]`, in (0, 1): the probability of being asked for the truth, in each sample.
        forced: Scalar in (0, 1): the probability of yes among forced answers.

    Raises:
        ValueError: No two different probabilities.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.SelfProtection(truth=[0.8, 0.4], forced=0.5)
        >>> found = rrjax.inference.compliance([[234, 766], [342, 658]], design)
        >>> f"{found.share:.2f} {found.not_complying:.2f}"
        '0.20 0.10'

    References:
        Böckenholt and van der Heijden, "Item randomized-response models for measuring noncompliance", Psychometrika 72,
        2007; there several questions, here two samples identify the share.
    """

    name: ClassVar[str] = "self-protection"
    truth: ArrayLike
    forced: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "truth", of_both(self.truth, "truth", 0.8))
        check_probability(self.forced, "forced", 0.5)

    @property
    def yes(self) -> Float[Array, "2 3"]:
        truth = jnp.asarray(self.truth, float_dtype())
        forced = (1 - truth) * jnp.asarray(self.forced, float_dtype())
        return self._checked([[truth[place] + forced[place], forced[place], 0.0] for place in range(2)])
