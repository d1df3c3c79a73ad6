"""Designs of two answers, yes and no: those of Warner, Kuk and Mangat, the crosswise and the triangular model.

The respondents of category `yes_category`, by default 0, have the sensitive attribute, and the answer of this number is
a yes (crosswise: "both or neither"; triangular: "at least one"; Kuk: a red card).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike, Float

from rrjax.data.arguments import as_scalar, float_dtype
from rrjax.mechanisms.surveys.checks import check_different, check_probability, strictly_inside
from rrjax.mechanisms.surveys.design import YesOrNo
from rrjax.numerics.pytrees import register


class _Mirrored(YesOrNo):
    """A design that names the own one of two categories with one probability, whatever the category."""

    symmetric: ClassVar[bool] = True
    own: ClassVar[str]
    """The name of the field with that probability."""

    def __post_init__(self) -> None:
        super().__post_init__()
        probability = getattr(self, self.own)
        check_probability(probability, self.own, 0.7)
        check_different(probability, 0.5, self.own, "")

    @property
    def yes(self) -> tuple[Any, Any]:
        own = strictly_inside(getattr(self, self.own))
        return own, 1 - own

    @property
    def epsilon(self) -> Float[jax.Array, ""]:
        """|log(p/(1 − p))|, nats, without cancellation near ½; NaN for a traced p that is no such probability."""
        p = as_scalar(getattr(self, self.own), float_dtype(), self.own)
        usable = (p > 0) & (p < 1) & (p != 0.5)
        safe = jnp.where(usable, p, 0.75)
        return jnp.where(usable, jnp.log1p(jnp.abs(2 * safe - 1) / jnp.minimum(safe, 1 - safe)), jnp.nan)


@register(data_fields=["truth_probability"], meta_fields=["yes_category"])
@dataclasses.dataclass(frozen=True)
class Warner(_Mirrored):
    """Warner's design: the respondent answers a statement with probability p, else its denial. A pytree.

    A spinner picks one of the two; the respondent says whether it is true. "Yes" to the statement and "no" to the
    denial name the category of yes. An answer names the own one of two categories with probability p; below ½ most
    answers name the other one, which is as informative.

    Args:
        truth_probability: p, scalar in (0, 1) and not ½.
        yes_category: 0 or 1, the category of yes. Static.

    Raises:
        ValueError: (Not in JAX's arrays) a probability outside (0, 1), or ½, at which answers have no information.

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
    own: ClassVar[str] = "truth_probability"
    truth_probability: ArrayLike


@register(data_fields=["innocuous"], meta_fields=["yes_category"])
@dataclasses.dataclass(frozen=True)
class Crosswise(_Mirrored):
    """The crosswise model: whether the answers to a sensitive and to an innocuous question are the same. A pytree.

    A yes is "both or neither", whose probability is innocuous·π + (1 − innocuous)·(1 − π), π the share with the
    attribute.

    Args:
        innocuous: Scalar in (0, 1) and not ½, the probability of a yes to the innocuous question, such as a birthday in
            January or February.
        yes_category: 0 or 1, the category of yes. Static.

    Raises:
        ValueError: (Not in JAX's arrays) a probability outside (0, 1), or ½, at which answers have no information.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Crosswise(innocuous=0.15)
        >>> [round(t, 3) for t in rrjax.mle(design.mixture_of_counts([1427, 573])).tolist()]
        [0.195, 0.805]

    References:
        Yu, Tian and Tang, "Two new models for survey sampling with sensitive characteristic", Metrika 67, 2008.
    """

    name: ClassVar[str] = "crosswise"
    own: ClassVar[str] = "innocuous"
    innocuous: ArrayLike


@register(data_fields=["innocuous"], meta_fields=["yes_category"])
@dataclasses.dataclass(frozen=True)
class Triangular(YesOrNo):
    """The triangular model: whether the answer to a sensitive or to an innocuous question is yes. A pytree.

    A yes is "at least one", which a respondent with the attribute always gives; a no, "neither", clears the respondent.
    So ε is infinite.

    Args:
        innocuous: Scalar in (0, 1), the probability of a yes to the innocuous question.
        yes_category: 0 or 1, the category of yes. Static.

    Raises:
        ValueError: (Not in JAX's arrays) a probability outside (0, 1).

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Triangular(innocuous=0.5)
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([600, 400])).tolist()]
        [0.2, 0.8]

    References:
        Yu, Tian and Tang, "Two new models for survey sampling with sensitive characteristic", Metrika 67, 2008.
    """

    name: ClassVar[str] = "triangular"
    innocuous: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.innocuous, "innocuous", 0.25)

    @property
    def yes(self) -> tuple[Any, Any]:
        return 1.0, strictly_inside(self.innocuous)


@register(data_fields=["have", "lack"], meta_fields=["yes_category"])
@dataclasses.dataclass(frozen=True)
class Kuk(YesOrNo):
    """Kuk's cards: the respondent draws from one of two decks, by the attribute, and names the colour. A pytree.

    Args:
        have: Scalar in [0, 1], the share of red cards in the deck of respondents with the attribute.
        lack: Scalar in [0, 1], the share in the deck of the others.
        yes_category: 0 or 1, the category of yes. Static.

    Raises:
        ValueError: (Not in JAX's arrays) a share outside [0, 1], or equal shares, at which answers have no information.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Kuk(have=0.8, lack=0.2)
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([320, 680])).tolist()]
        [0.2, 0.8]

    References:
        Kuk, "Asking sensitive questions indirectly", Biometrika 77, 1990.
    """

    name: ClassVar[str] = "kuk"
    have: ArrayLike
    lack: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.have, "have", 0.8, closed=True)
        check_probability(self.lack, "lack", 0.2, closed=True)
        check_different(self.have, self.lack, "have", ", as lack is")

    @property
    def yes(self) -> tuple[Any, Any]:
        return self.have, self.lack


@register(data_fields=["truth"], meta_fields=["yes_category"])
@dataclasses.dataclass(frozen=True)
class Mangat(YesOrNo):
    """Mangat's design: respondents with the attribute say so; the others use Warner's spinner. A pytree.

    A respondent without the attribute says yes with probability 1 − truth. A no clears the respondent, so ε is
    infinite.

    Args:
        truth: Scalar in (0, 1), the probability that the spinner asks the others for the truth.
        yes_category: 0 or 1, the category of yes. Static.

    Raises:
        ValueError: (Not in JAX's arrays) a probability outside (0, 1).

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.Mangat(truth=0.7)
        >>> [round(t, 2) for t in rrjax.mle(design.mixture_of_counts([440, 560])).tolist()]
        [0.2, 0.8]

    References:
        Mangat, "An improved randomized response strategy", JRSS B 56, 1994.
    """

    name: ClassVar[str] = "mangat"
    truth: ArrayLike

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(self.truth, "truth", 0.7)

    @property
    def yes(self) -> tuple[Any, Any]:
        return 1.0, 1 - strictly_inside(self.truth)
