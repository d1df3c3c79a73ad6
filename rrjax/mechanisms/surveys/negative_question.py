"""The negative question: the answer names the own category less often than any other."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Int

from rrjax.data.arguments import as_values, check_key
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.surveys.checks import check_real, check_scalar, is_known, together
from rrjax.mechanisms.surveys.design import Affine, Design, with_probability
from rrjax.numerics.pytrees import register


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
