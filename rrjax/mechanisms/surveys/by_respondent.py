"""A design for each respondent: answers of one survey that were randomized by different designs or parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_values, check_key
from rrjax.data.errors import ArgumentError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Tally, count
from rrjax.mechanisms.mechanism import LogRows, Mechanism
from rrjax.mechanisms.surveys import groups
from rrjax.numerics.pytrees import pytree


@pytree()
class ByRespondent(Mechanism):
    """Designs of which each respondent has one, such as direct questioning beside the crosswise model. A pytree.

    The groups must be samples of one population, such as random halves of it: all answers are about one θ. Then the
    likelihood of all answers has one factor for each respondent, by the respondent's own design.

    Args:
        designs: G survey designs or `RandomizedResponse`, of the same K: their answers name one category each.
        which: `[N]`, integers in 0 … G − 1: the design of each respondent, in the order of the reports. None is for
            answers that are counted already (`mixture_of_counts`).

    Raises:
        ValueError: Designs of different K, other mechanisms, or (not under tracing) a number of no design.

    Example:
        >>> import numpy as np, rrjax
        >>> designs = rrjax.mechanisms.Direct(2), rrjax.mechanisms.Crosswise(0.25)
        >>> mixed = rrjax.mechanisms.ByRespondent(designs, np.repeat([0, 1], [96, 310]))
        >>> answers = np.repeat([0, 1, 0, 1], [7, 89, 198, 112])  # 0 is yes, or "both or neither"
        >>> mixture = mixed.mixture(answers)
        >>> [round(t, 2) for t in rrjax.mle(mixture).tolist()]
        [0.11, 0.89]
        >>> rrjax.inference.standard_errors(mixture).shape
        (2,)
    """

    name: ClassVar[str] = "by-respondent"
    names_one: ClassVar[bool] = True

    designs: Sequence[Any]
    which: Int[ArrayLike, " N"] = dataclasses.field(default_factory=partial(np.zeros, 0, int))

    def __post_init__(self) -> None:
        designs = tuple(self.designs)
        object.__setattr__(self, "designs", designs)
        odd = next((each for each in designs if not (each.names_one and hasattr(each, "tally_of_counts"))), None)
        if odd is not None or not designs:
            got = "none" if odd is None else odd.name
            raise ArgumentError.about("designs", f"must be designs whose answers name one category each, got {got}")
        if len(sizes := {each.num_categories for each in designs}) > 1:
            raise ArgumentError.about("designs", f"must have the same categories, got K = {sorted(sizes)}")
        if isinstance(self.which, list | tuple):
            object.__setattr__(self, "which", np.asarray(self.which))
        if np.ndim(self.which) != 1:
            problem = f"must have shape [N], the design of each respondent; got {np.shape(self.which)}"
            raise ArgumentError.about("which", problem)
        as_values(self.which, len(designs), "which")

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K."""
        return self.designs[0].num_categories

    @property
    def epsilon(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The largest ε of the designs, nats: what the respondents who are protected least have spent."""
        return jnp.max(jnp.stack([jnp.asarray(each.epsilon) for each in self.designs]))

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, " N"]:
        check_key(key)
        values = self._of_respondents(values, "values")
        keys = jax.random.split(key, len(self.designs))
        which, reports = jnp.asarray(self.which), jnp.full_like(values, -1, jnp.int32)
        for number, (design, each) in enumerate(zip(self.designs, keys, strict=True)):
            reports = jnp.where(which == number, design.randomize(each, values), reports)
        return reports

    def counts(self, reports: ArrayLike) -> Int[Array, "G K"]:
        """The number of answers of each kind in each group, `[G, K]`; all −1 under tracing for an invalid entry."""
        which, reports, sound = self._placed(reports)
        number, size = len(self.designs), self.num_categories
        return count(jnp.where(sound, which * size + reports, -1), number * size).reshape(number, size)

    def tallies(self, reports: ArrayLike) -> tuple[Tally, ...]:
        """The tally of each group, with the rates of its design; `surveys.groups.inv` takes their list."""
        return tuple(each.tally_of_counts(row) for each, row in zip(self.designs, self.counts(reports), strict=True))

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.mixture_of_counts(self.counts(reports))

    def mixture_of_counts(self, counts: ArrayLike) -> Mixture:
        """The likelihood of counted answers, `[G, K]`; groups without answers are left out, unless counts are traced.

        Raises:
            ValueError: Another shape, or (not under tracing) unusable counts, or no answers at all.
        """
        self._check_shape(counts, "counts")
        rows = counts if isinstance(counts, Tracer) else np.asarray(counts)
        parts = [
            each.mixture_of_counts(row)
            for each, row in zip(self.designs, rows, strict=True)
            if isinstance(row, Tracer) or row.any()
        ]
        if not parts:
            raise ArgumentError.about("counts", "must have an answer")
        return groups.mixture(parts)

    def inv(self, counts: ArrayLike) -> Float[Array, " K"]:
        """The unbiased estimate from counted answers, `[G, K]`, which may be negative: see `surveys.groups.inv`."""
        self._check_shape(counts, "counts")
        rows = zip(self.designs, jnp.asarray(counts), strict=True)
        return groups.inv([each.tally_of_counts(row) for each, row in rows])

    def debias(self, reports: ArrayLike) -> Float[Array, "N K"]:
        """Unbiased vectors from single answers, each by its respondent's design; NaN under tracing for no answer."""
        reports, size = self._of_respondents(reports, "reports"), self.num_categories
        which = jnp.asarray(self.which)
        sound = (reports >= 0) & (reports < size) & (which >= 0) & (which < len(self.designs))
        vectors = jnp.stack([each.debias(jnp.arange(size)) for each in self.designs])
        vectors = vectors[jnp.where(sound, which, 0), jnp.where(sound, reports, 0)]
        return jnp.where(sound[:, None], vectors, jnp.nan)

    def log_rows(self, reports: ArrayLike) -> LogRows:
        which, reports, sound = self._placed(reports)
        kinds = [each.log_rows(jnp.arange(self.num_categories)) for each in self.designs]
        rows = LogRows(*(jnp.stack(parts)[which, reports] for parts in zip(*kinds, strict=True)))
        return rows.where(sound, jnp.nan)

    def collect(self, key: Array, true_counts: ArrayLike) -> tuple[Tally, ...]:
        """Draws the tally of each group from its given users, `[G, K]` integers, by its exact law; `which` is unused.

        Raises:
            ValueError: Another shape, or counts that are not integers.
        """
        check_key(key)
        self._check_shape(true_counts, "true_counts")
        keys, rows = jax.random.split(key, len(self.designs)), jnp.asarray(true_counts)
        return tuple(each.collect(own, row) for each, own, row in zip(self.designs, keys, rows, strict=True))

    def _placed(self, reports):
        """The design and the answer of each respondent, zero where one is impossible, and where both are possible."""
        reports, which = self._of_respondents(reports, "reports"), jnp.asarray(self.which)
        sound = (reports >= 0) & (reports < self.num_categories) & (which >= 0) & (which < len(self.designs))
        return *(jnp.where(sound, each, 0).astype(jnp.int32) for each in (which, reports)), sound

    def _check_shape(self, counts, name):
        shape = len(self.designs), self.num_categories
        if np.shape(counts) != shape:
            raise ArgumentError.about(name, f"must have shape {shape}, a row a design; got {np.shape(counts)}")

    def _of_respondents(self, values: ArrayLike, name: str) -> Array:
        values = as_values(values, self.num_categories, name)
        if values.shape != np.shape(self.which):
            problem = f"must have shape {np.shape(self.which)}, one for each respondent of which; got {values.shape}"
            raise ArgumentError.about(name, problem)
        return values
