"""Survey designs of two samples: two answers and different parameters identify two unknown shares."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float

from rrjax.data.arguments import float_dtype, is_real
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.surveys.checks import check_probability, check_scalar
from rrjax.numerics.pytrees import register, short

LEAST_DETERMINANT = 1e-6
"""Smallest determinant of the probabilities of yes that identifies the shares."""

Row = tuple[int, int, int]


class Region(NamedTuple):
    """The points k that a design allows: a polygon in the plane k_0 + k_1 + k_2 = 1. Static.

    Attributes:
        corners: The corners.
        sides: The numbers of the corners of each side.
        walls: Sums of coordinates that are positive inside.
        share: Two sums of coordinates: the share with the attribute is the first divided by the second.
        ends: The points with one share are a segment. The numbers of the corners between which each of its ends moves
            while the share grows from 0 to 1.
    """

    corners: tuple[Row, ...]
    sides: tuple[tuple[int, int], ...]
    walls: tuple[Row, ...]
    share: tuple[Row, Row]
    ends: tuple[tuple[int, int], tuple[int, int]]


class TwoSamples(abc.ABC):
    """A design of two samples. A pytree.

    P(yes) in sample s is Σ_j yes_sj·k_j for a point k of its region.
    """

    name: ClassVar[str]
    """Name on the command line."""
    region: ClassVar[Region]
    """The points k."""

    @property
    @abc.abstractmethod
    def yes(self) -> Float[Array, "2 3"]:
        """The probability of a yes in each sample, at each coordinate of k."""

    def _checked(self, yes: Any) -> Float[Array, "2 3"]:
        for each in itertools.chain(*yes):
            check_scalar(each, "parameters")
        known = not any(isinstance(each, Tracer) for row in yes for each in row)
        if known:
            rows = np.asarray([[float(each) for each in row] for row in yes])
            if abs(np.linalg.det(np.vstack([rows, np.ones(3)]))) < LEAST_DETERMINANT:
                raise ArgumentError(
                    f"the parameters of {type(self).__name__} do not identify both unknown shares: the two samples "
                    "need different ones, and none at which answers say nothing",
                    argument="parameters",
                )
        return jnp.stack([jnp.stack([jnp.asarray(each, float_dtype()) for each in row]) for row in yes])


def of_both(value: Any, name: str, example: float) -> Any:
    """The parameter of both samples, checked.

    Raises:
        ValueError: Other than two different probabilities.
    """
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


@register(data_fields=["truth"])
@dataclasses.dataclass(frozen=True)
class UnrelatedQuestionTwoSamples(TwoSamples):
    """The unrelated question whose share of a yes is not known: two samples estimate both shares. A pytree.

    P(yes) = truth·π + (1 − truth)·u in each sample, for the share π with the attribute and the share u that says yes to
    the unrelated question. k = (π, u, 1 − π − u), and the region is the square of π and u. The samples must be of
    different respondents.

    Args:
        truth: `[2]`, in (0, 1) and different: the probability of the sensitive question, in each sample.

    Raises:
        ValueError: No two different probabilities.

    Example:
        >>> import rrjax
        >>> design = rrjax.mechanisms.UnrelatedQuestionTwoSamples(truth=[0.7, 0.3])
        >>> found = rrjax.inference.unrelated_question([[260, 740], [340, 660]], design)
        >>> f"{found.share:.2f} {found.unrelated:.2f}"
        '0.20 0.40'

    References:
        Greenberg, Abul-Ela, Simmons and Horvitz, "The unrelated question randomized response model: theoretical
        framework", Journal of the American Statistical Association 64, 1969.
    """

    name: ClassVar[str] = "unrelated-question-two-samples"
    region: ClassVar[Region] = Region(
        corners=((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, -1)),
        sides=((2, 0), (2, 1), (0, 3), (1, 3)),
        walls=((1, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 1)),
        share=((1, 0, 0), (1, 1, 1)),
        ends=((2, 0), (1, 3)),
    )
    truth: ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "truth", of_both(self.truth, "truth", 0.7))

    @property
    def yes(self) -> Float[Array, "2 3"]:
        return self._checked([[each, 1 - each, 0.0] for each in jnp.asarray(self.truth, float_dtype())])
