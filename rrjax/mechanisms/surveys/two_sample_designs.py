"""Survey designs of two samples: two answers and different parameters identify two unknown shares.

The respondents are of three kinds. Each design has the probability of a yes in each sample, from each kind, and the
region of the kinds' shares. Either the third kind does not follow the rules (`Compliance`), or the two shares are those
of a yes to the sensitive and to an unrelated question.
"""

from __future__ import annotations

import abc
import itertools
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.surveys.design import check_different, check_probability, check_scalar
from rrjax.numerics.pytrees import pytree, short

LEAST_DETERMINANT = 1e-6
"""Smallest determinant of the probabilities of yes that identifies the shares."""

Row: TypeAlias = tuple[int, int, int]
Share: TypeAlias = Literal["complying", "all", "least"]


class Region(NamedTuple):
    """The points k that a design allows: a polygon in the plane k_0 + k_1 + k_2 = 1. Static.

    Attributes:
        share: Two sums of coordinates: the share with the attribute is the first divided by the second.
        ends: The points with one share are a segment. The numbers of the corners between which each of its ends moves
            while the share grows from 0 to 1.
        corners: The corners.
        sides: The numbers of the corners of each side. Of two sides as likely, the first is taken.
        walls: Sums of coordinates that are positive inside.
    """

    share: tuple[Row, Row]
    ends: tuple[tuple[int, int], tuple[int, int]]
    corners: tuple[Row, ...] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    sides: tuple[tuple[int, int], ...] = ((0, 1), (0, 2), (1, 2))
    walls: tuple[Row, ...] = ((1, 0, 0), (0, 1, 0), (0, 0, 1))


class TwoSamples(abc.ABC):
    """A design of two samples. A pytree. Parameters outside their range raise `ValueError` if they are not traced.

    P(yes) in sample s is Σ_j yes_sj·k_j for a point k of its region.
    """

    name: ClassVar[str]
    """Name on the command line."""
    region: ClassVar[Region]
    """The points k."""
    share: ClassVar[Share] = "all"
    """Of whom the estimated share is: of all; of those who comply; or the least share of all, because nothing is known
    of those who do not comply."""
    by_sample: ClassVar[tuple[str, float] | None] = None
    """The parameter with a probability for each sample, and a usual value; None where there is none."""

    def __post_init__(self) -> None:
        if self.by_sample is not None:
            name, example = self.by_sample
            object.__setattr__(self, name, _of_both(getattr(self, name), name, example))

    @abc.abstractmethod
    def _rows(self) -> list[list[Any]]:
        """`yes`, as numbers."""

    @property
    def yes(self) -> Float[Array, "2 3"]:
        """The probability of a yes in each sample, at each coordinate of k.

        Raises:
            ValueError: Parameters that are no scalars, or do not identify the shares.
        """
        yes = self._rows()
        for each in itertools.chain(*yes):
            check_scalar(each, "parameters")
        if not any(isinstance(each, Tracer) for each in itertools.chain(*yes)):
            rows = np.asarray([[float(each) for each in row] for row in yes])
            if abs(np.linalg.det(np.vstack([rows, np.ones(3)]))) < LEAST_DETERMINANT:
                raise ArgumentError(
                    f"the parameters of {type(self).__name__} do not identify both unknown shares: the two samples "
                    "need different ones, and none at which answers say nothing",
                    argument="parameters",
                )
        return jnp.stack([jnp.stack([jnp.asarray(each, float_dtype()) for each in row]) for row in yes])


class Compliance(TwoSamples):
    """A design of two samples with respondents who do not follow the rules. A pytree.

    Kinds 0 and 1 follow the rules, with and without the sensitive attribute; kind 2 does not. k are their shares.
    """


@pytree()
class CheatingDetection(Compliance):
    """Cheating detection: a die forces some to say yes, others answer truthfully; cheaters always say no. A pytree.

    P(yes) = (1 − forced_no)·θ_0 + forced·θ_1 in each sample: of honest respondents with and without the attribute.
    Whether cheaters have it is not known. So the share is that of honest respondents with the attribute among all, a
    lower bound; with the cheaters it is an upper one.

    Args:
        forced: `[2]`, in (0, 1) and different: the probability of being told to say yes, in each sample.
        forced_no: Scalar or `[2]`, in [0, 1) and with `forced` below one: that of being told to say no. In the
            symmetric design no answer is safe; forced/(1 − forced_no) must differ between the samples.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.CheatingDetection(forced=[0.25, 0.75])
        >>> fit = rrjax.inference.compliance([[250, 750], [450, 550]], design)
        >>> f"{fit.share:.2f} {fit.not_complying:.2f}"
        '0.15 0.45'

    References:
        Clark and Desharnais, "Honest answers to embarrassing questions: detecting cheating in the randomized response
        model", Psychological Methods 3, 1998; Ostapczuk, Moshagen, Zhao and Musch, "Assessing sensitive attributes
        using the randomized response technique: evidence for the importance of response symmetry", Journal of
        Educational and Behavioral Statistics 34, 2009 (`forced_no`).
    """

    name: ClassVar[str] = "cheating-detection"
    share: ClassVar[Share] = "least"
    region: ClassVar[Region] = Region(share=((1, 0, 0), (1, 1, 1)), ends=((1, 0), (2, 0)))
    by_sample: ClassVar[tuple[str, float] | None] = "forced", 0.25
    forced: ArrayLike
    forced_no: ArrayLike = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.forced_no, jax.Array):
            no = np.asarray(self.forced_no)
            is_wrong = not is_real(no) or no.shape not in ((), (2,)) or not (no >= 0).all()
            if is_wrong or (isinstance(self.forced, np.ndarray) and not (self.forced + no < 1).all()):
                problem = "must be one number or two, not negative, and below one with those of forced"
                raise ArgumentError.about("forced_no", f"{problem}; got {short(no)}", value=self.forced_no)

    def _rows(self) -> list[list[Any]]:
        forced = jnp.asarray(self.forced, float_dtype())
        kept = 1 - jnp.broadcast_to(jnp.asarray(self.forced_no, float_dtype()), 2)
        return [[kept[place], forced[place], 0.0] for place in range(2)]


@pytree()
class StochasticLieDetector(Compliance):
    """The stochastic lie detector: those with the attribute are asked for the truth, and some say no. A pytree.

    Those without are told to say the truth with probability `truth`, else to lie. P(yes) = θ_0 + (1 − truth)·θ_1; kind
    2 has the attribute, and says no.

    Args:
        truth: `[2]`, in (0, 1) and different: the probability of being told to say the truth, in each sample.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.StochasticLieDetector(truth=[0.8, 0.4])
        >>> fit = rrjax.inference.compliance([[310, 690], [590, 410]], design)
        >>> f"{fit.share:.2f} {fit.not_complying:.2f}"
        '0.30 0.13'

    References:
        Moshagen, Musch and Erdfelder, "A stochastic lie detector", Behavior Research Methods 44, 2012.
    """

    name: ClassVar[str] = "stochastic-lie-detector"
    region: ClassVar[Region] = Region(share=((1, 0, 1), (1, 1, 1)), ends=((1, 0), (1, 2)))
    by_sample: ClassVar[tuple[str, float] | None] = "truth", 0.8
    truth: ArrayLike

    def _rows(self) -> list[list[Any]]:
        return [[1.0, 1 - each, 0.0] for each in jnp.asarray(self.truth, float_dtype())]


@pytree()
class AnchoredCrosswise(Compliance):
    """The crosswise model with an anchor question, whose true share is known; inattentive respondents answer at random.

    A pytree. The answer yes is "both or neither". Sample 0 answers the sensitive question, sample 1 the anchor
    question; both may be the same respondents. Attention is taken as independent of the attribute.

    Args:
        innocuous: Scalar in (0, 1) and not ½, the probability of a yes to the innocuous question.
        anchor: Scalar in (0, 1) and not ½, the same for the innocuous question beside the anchor question.
        anchor_share: Scalar in [0, 1], the share of a true yes to the anchor question, such as 0.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.AnchoredCrosswise(innocuous=0.15, anchor=0.15)
        >>> fit = rrjax.inference.compliance([[1427, 573], [1541, 459]], design)
        >>> f"{fit.share:.4f} {1 - fit.not_complying:.4f}"
        '0.1054 0.7729'

    References:
        Atsusaka and Stevenson, "A bias-corrected estimator for the crosswise model with inattentive respondents",
        Political Analysis 31, 2023.
    """

    name: ClassVar[str] = "anchored-crosswise"
    share: ClassVar[Share] = "complying"
    region: ClassVar[Region] = Region(share=((1, 0, 0), (1, 1, 0)), ends=((1, 0), (2, 2)))
    innocuous: ArrayLike
    anchor: ArrayLike
    anchor_share: ArrayLike = 0.0

    def __post_init__(self) -> None:
        for name in ("innocuous", "anchor"):
            check_probability(getattr(self, name), name, 0.15)
            check_different(getattr(self, name), 0.5, name, "")
        check_probability(self.anchor_share, "anchor_share", 0.0, closed=True)

    def _rows(self) -> list[list[Any]]:
        both = self.anchor_share * self.anchor + (1 - self.anchor_share) * (1 - self.anchor)  # pyright: ignore[reportOperatorIssue]
        return [[self.innocuous, 1 - self.innocuous, 0.5], [both, both, 0.5]]  # pyright: ignore[reportOperatorIssue]


@pytree()
class SelfProtection(Compliance):
    """Forced response of which some say no whatever the die shows, to protect themselves. A pytree.

    Those who comply say yes with probability truth + (1 − truth)·forced if they have the attribute, else (1 −
    truth)·forced. Compliance is taken as independent of the attribute.

    Args:
        truth: `[2]`, in (0, 1): the probability of being asked for the truth, in each sample.
        forced: Scalar in (0, 1): the probability of yes among forced answers.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.SelfProtection(truth=[0.8, 0.4], forced=0.5)
        >>> fit = rrjax.inference.compliance([[234, 766], [342, 658]], design)
        >>> f"{fit.share:.2f} {fit.not_complying:.2f}"
        '0.20 0.10'

    References:
        Böckenholt and van der Heijden, "Item randomized-response models for measuring noncompliance", Psychometrika 72,
        2007; there several questions, here two samples identify the share.
    """

    name: ClassVar[str] = "self-protection"
    share: ClassVar[Share] = "complying"
    region: ClassVar[Region] = AnchoredCrosswise.region
    by_sample: ClassVar[tuple[str, float] | None] = "truth", 0.8
    truth: ArrayLike
    forced: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.forced, "forced", 0.5)

    def _rows(self) -> list[list[Any]]:
        truth = jnp.asarray(self.truth, float_dtype())
        forced = (1 - truth) * jnp.asarray(self.forced, float_dtype())
        return [[truth[place] + forced[place], forced[place], 0.0] for place in range(2)]


@pytree()
class UnrelatedQuestionTwoSamples(TwoSamples):
    """The unrelated question whose share of a yes is not known: two samples estimate both shares. A pytree.

    P(yes) = truth·π + (1 − truth)·u in each sample, for the share π with the attribute and the share u that says yes to
    the unrelated question. k = (π, u, 1 − π − u), and the region is the square of π and u. The samples must be of
    different respondents.

    Args:
        truth: `[2]`, in (0, 1) and different: the probability of the sensitive question, in each sample.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.UnrelatedQuestionTwoSamples(truth=[0.7, 0.3])
        >>> fit = rrjax.inference.unrelated_question([[260, 740], [340, 660]], design)
        >>> f"{fit.share:.2f} {fit.unrelated:.2f}"
        '0.20 0.40'

    References:
        Greenberg, Abul-Ela, Simmons and Horvitz, "The unrelated question randomized response model: theoretical
        framework", Journal of the American Statistical Association 64, 1969.
    """

    name: ClassVar[str] = "unrelated-question-two-samples"
    region: ClassVar[Region] = Region(
        share=((1, 0, 0), (1, 1, 1)),
        ends=((2, 0), (1, 3)),
        corners=((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, -1)),
        sides=((2, 0), (2, 1), (0, 3), (1, 3)),
        walls=((1, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 1)),
    )
    by_sample: ClassVar[tuple[str, float] | None] = "truth", 0.7
    truth: ArrayLike

    def _rows(self) -> list[list[Any]]:
        return [[each, 1 - each, 0.0] for each in jnp.asarray(self.truth, float_dtype())]


def _of_both(value: Any, name: str, example: float) -> Any:
    """Two different probabilities, checked as far as they are known."""
    value = value if isinstance(value, jax.Array) else np.asarray(value)
    if not is_real(value) or value.shape != (2,):
        raise ArgumentError.about(name, f"must be two numbers, one for each sample, got {short(value)}")
    if isinstance(value, np.ndarray):
        for each in value:
            check_probability(float(each), name, example)
        if value[0] == value[1]:
            raise ArgumentError(
                f"{name} must differ between the samples, got {value[0]:g} for both: answers at one parameter do not "
                "identify both unknown shares",
                argument=name,
            )
    return value
