"""The base classes of survey designs, for any number of answers and for yes and no, and checks of their parameters."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax import simulate
from rrjax.data.arguments import (
    as_array,
    as_counts_of,
    as_distribution,
    as_true_counts,
    as_values,
    check_key,
    count_summary,
    float_dtype,
    float_of,
    int_dtype,
    is_real,
)
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Scaling
from rrjax.data.mechanism_parameters import Rates
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Tally, count
from rrjax.mechanisms.draws import below, threshold
from rrjax.mechanisms.mechanism import LogRows, SupportMechanism, numbers_if, tally_if
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of
from rrjax.simulate.sampling import Stream, binomial, multinomial

SUM_TOLERANCE = 1e-6
"""Allowed distance of the sum of known probabilities from one."""


@exportable
class Affine(NamedTuple):
    """The law of a report: it names category j with probability always_j + truth·θ_j.

    Attributes:
        always: `[K]`, the part that does not depend on the user.
        truth: Scalar, d; negative if reports name other categories than the user's more often. NaN for an impossible
            traced design.
    """

    always: Any
    truth: Any

    @property
    def library(self) -> Any:
        """NumPy if the law is known on the host, else `jax.numpy`."""
        return jnp if isinstance(self.truth, jax.Array) else np

    def astype(self, dtype: Any) -> Affine:
        """The law as JAX arrays of a floating dtype."""
        return Affine(jnp.asarray(self.always).astype(dtype), jnp.asarray(self.truth).astype(dtype))

    @property
    def least(self) -> Any:
        """`[K]`, the smaller probability of each report: of users without its category, or with it if d < 0."""
        return self.library.maximum(self.always + self.library.minimum(self.truth, 0), 0)

    @property
    def most(self) -> Any:
        """`[K]`, the larger probability of each report."""
        return self.always + self.library.maximum(self.truth, 0)


class Design(SupportMechanism):
    """A survey design: a frozen dataclass of probabilities that is a pytree. A subclass defines K and `affine`.

    Parameters outside their range raise `ValueError`; in JAX's arrays, which may be traced, they lead to NaN. An answer
    names one category. If it names the own one less often than others (d < 0), it counts as support for all the others.
    """

    names_one: ClassVar[bool] = True
    same_size: ClassVar[bool] = True
    examples: ClassVar[Mapping[str, float]] = {}
    """The parameters that are probabilities, and a usual value of each."""
    closed: ClassVar[bool] = False
    """Whether these may be 0 and 1."""
    symmetric: ClassVar[bool] = False
    """Whether the law is the same if yes and no are exchanged, both as answers and as categories."""
    yes_category: int | None = None
    """The category of the respondents with the sensitive attribute; None for other designs than of yes and no."""

    def __post_init__(self) -> None:
        for name, example in self.examples.items():
            check_probability(getattr(self, name), name, example, closed=self.closed)

    @property
    def note(self) -> str:
        others = ("num_categories", "yes_category")
        names = [field.name for field in dataclasses.fields(cast("Any", self)) if field.name not in others]
        numbers = {name: np.ravel(np.asarray(getattr(self, name))) for name in names}
        return ", ".join(
            f"{name.replace('_', ' ')} {' : '.join(f'{number:.4g}' for number in each)}"
            for name, each in numbers.items()
        )

    @property
    @abc.abstractmethod
    def affine(self) -> Affine:
        """The law of a report, in double precision on the host if the probabilities are known there."""

    @property
    def epsilon(self) -> Float[Array, ""]:
        """The ε delivered, scalar, nats: the largest log-ratio of the probabilities of any one report.

        log(1 + |d|/min least). Infinite if an answer can reveal a user.
        """
        law = self.affine
        with np.errstate(divide="ignore"):
            delivered = law.library.log1p(abs(law.truth) / law.library.min(law.least))
        return jnp.asarray(delivered).astype(float_dtype())

    def rates_by(self, expm1: Callable[[Any], Any]) -> Rates:
        """The rates by category, `[K]`: a report supports the one that it names or, if d < 0, all others."""
        law = self.affine
        q = law.library.where(law.truth < 0, 1 - law.always, law.always)
        return Rates(q, law.library.maximum(1 - q - abs(law.truth), 0), abs(law.truth) + 0 * q)

    def channel(self) -> Float[Array, "K K"]:
        """The probabilities of all answers, row = value, column = answer."""
        law = self.affine
        own = law.library.eye(self.num_categories, dtype=law.always.dtype)
        return law.library.maximum(law.always + law.truth * own, 0)

    def probabilities(self, theta: ArrayLike) -> Float[Array, " K"]:
        """The probabilities `[K]` of the reports of a user drawn from θ, `[K]`: a_j + d·θ_j."""
        theta = as_distribution(theta, self.num_categories)
        always, truth = self.affine.astype(theta.dtype)
        return always + truth * theta

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        """Randomized answers of respondents, for simulations; int32."""
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        law = self.affine
        for_keeping, for_others = jax.random.split(key)
        drawn = simulate.values(for_others, law.always, values.size).reshape(values.shape)
        kept = with_probability(for_keeping, law.truth, values.shape)
        return self._within(jnp.where(kept, values.astype(jnp.int32), drawn), values)

    def _within(self, reports: Array, values: Array) -> Int[Array, "*s"]:
        """The reports; −1 for a value outside the domain or an impossible design."""
        inside = (values >= 0) & (values < self.num_categories)
        return jnp.where(inside & ~jnp.isnan(jnp.asarray(self.affine.truth)), reports, -1)

    def tally(self, reports: ArrayLike) -> Tally:
        return self._tally(count(reports, self.num_categories))

    def mixture(self, reports: ArrayLike) -> Mixture:
        return self.mixture_of_counts(count(reports, self.num_categories))

    def tally_of_counts(self, counts: ArrayLike) -> Tally:
        """The tally of counted answers, `[K]` integers; its rates differ by category.

        Estimates are NaN for unusable counts and for an impossible traced design. Raises `ValueError` for a wrong shape
        or dtype.

        Example:
            >>> import rrjax
            >>> design = rrjax.mechanisms.UnrelatedQuestion(truth=0.7, unrelated=[0.25, 0.75])
            >>> tally = design.tally_of_counts([50, 950])
            >>> [round(t, 3) for t in rrjax.inv(tally).tolist()]
            [-0.036, 1.036]
        """
        return self._tally(as_counts_of(counts, self.num_categories, "category of the design", whole=True))

    def _tally(self, counts):
        seen, truth = count_summary(counts), jnp.asarray(self.affine.truth)
        support = jnp.where(truth < 0, seen.total - counts, counts) if self.denies else counts
        return tally_if(seen.usable & ~jnp.isnan(truth), support, seen.total, self.rates)

    def mixture_of_counts(self, counts: ArrayLike) -> Mixture:
        """The likelihood of counted answers, `[K]` integers or floats, for `mle`, `nll`, `certificate` and others.

        One row for each category: a_j, and d for the named one; for d < 0 a_j − |d|, and |d| for the others. Raises
        `ValueError` for a wrong shape or dtype, or (not under tracing) unusable counts.

        Example:
            >>> import rrjax
            >>> design = rrjax.mechanisms.ForcedResponse(truth=0.6, forced=[0.5, 0.3, 0.2])
            >>> mixture = design.mixture_of_counts([500, 430, 70])
            >>> [round(t, 2) for t in rrjax.mle(mixture).tolist()]
            [0.49, 0.51, 0.0]
        """
        counts = as_counts_of(counts, self.num_categories, "category of the design")
        law, dtype = self.affine, float_of(counts)
        least, most = (jnp.asarray(x).astype(dtype) for x in (law.least, abs(law.truth)))
        counts = numbers_if(jnp.isfinite(most), counts)
        counts, least, most, others = with_sharding_of((counts, least, most, jnp.asarray(law.truth < 0)))
        size = self.num_categories
        return Mixture(counts, least, Scaling(most, size, others if self.denies else None))

    def log_rows(self, reports: ArrayLike) -> LogRows:
        reports, named, inside = self._named(reports)
        law, place = self.affine, jnp.where(inside, reports, 0)
        most, least = (jnp.asarray(x).astype(float_dtype())[place] for x in (law.most, law.least))
        truth = jnp.asarray(law.truth).astype(float_dtype())
        lifted = jnp.log(jnp.abs(truth) / most)[..., None]
        rows = LogRows(jnp.log(most), jnp.log(least / most), jnp.where(named == (truth > 0), lifted, -jnp.inf))
        return rows.where(inside & ~jnp.isnan(truth), jnp.nan)

    def supports(self, reports: ArrayLike) -> Bool[Array, "*s K"]:
        _, named, _ = self._named(reports)
        return jnp.where(jnp.asarray(self.affine.truth) < 0, ~named, named)

    def debias(self, reports: ArrayLike) -> Float[Array, "*s K"]:
        _, named, inside = self._named(reports)
        always, truth = self.affine.astype(float_dtype())
        vectors = (named.astype(always.dtype) - always) / truth
        return jnp.where(inside[..., None], vectors, jnp.nan)

    def _named(self, reports):
        """The reports, the category that each names `[*s, K]`, and which are reports."""
        reports = as_values(reports, self.num_categories, "reports")
        named = jnp.arange(self.num_categories, dtype=reports.dtype) == reports[..., None]
        return reports, named, (reports >= 0) & (reports < self.num_categories)

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        check_key(key)
        true_counts = as_true_counts(true_counts, self.num_categories)
        counts = _collected(key, true_counts, *self.affine.astype(float_dtype()), self.denies)
        return self._tally(counts.astype(int_dtype()))


@partial(jax.jit, static_argnums=4)
def _collected(key, true_counts, always, truth, denies):
    key, true_counts, always, truth = with_sharding_of((key, true_counts, always, truth))
    seen = count_summary(true_counts)
    usable = seen.drawable & ~jnp.isnan(truth)
    numbers = jnp.where(usable, true_counts, 0).astype(jnp.int32)
    truth, size = jnp.where(usable, truth, 0.5), numbers.shape[0]
    if denies:
        law = jnp.clip(always + truth * jnp.eye(size, dtype=always.dtype), 0, 1)
        keys = jax.random.split(key, size)
        drawn = jax.vmap(lambda key, number, row: multinomial(Stream.of(key), number, row[None])[0])(keys, numbers, law)
        return jnp.where(usable, jnp.sum(drawn, axis=0, dtype=jnp.int32), -1)
    keep_key, other_key = jax.random.split(key)
    kept = binomial(Stream.of(keep_key), 0, numbers, truth)
    total = jnp.sum(numbers, dtype=jnp.int32)
    law = always / jnp.sum(always)
    expected = total.astype(truth.dtype) * (1 - truth)
    (others,) = multinomial(Stream.of(other_key), total - jnp.sum(kept, dtype=jnp.int32), law[None], expected=expected)
    return jnp.where(usable, kept + others, -1)


@dataclasses.dataclass(frozen=True)
class YesOrNo(Design):
    """A design of two answers, yes and no: the respondents of `yes_category`, 0 or 1, have the sensitive attribute."""

    denies: ClassVar[bool] = True

    yes_category: int = dataclasses.field(default=0, kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride]

    def __post_init__(self) -> None:
        if self.yes_category not in (0, 1):
            raise ArgumentError.about("yes_category", f"must be 0 or 1, got {self.yes_category}")
        super().__post_init__()

    @property
    @abc.abstractmethod
    def yes(self) -> tuple[Any, Any]:
        """The probabilities of a yes from a respondent with the attribute, and from one without."""

    @property
    def num_categories(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """K, which is 2."""
        return 2

    @property
    def affine(self) -> Affine:
        for value in self.yes:
            check_scalar(value, "parameters")
        have, lack = together(*self.yes)
        always = [lack, 1 - have] if self.yes_category == 0 else [1 - have, lack]
        if isinstance(have, jax.Array):
            sound = (have >= 0) & (have <= 1) & (lack >= 0) & (lack <= 1) & (have != lack)
            return Affine(jnp.stack(always), jnp.where(sound, have - lack, jnp.nan))
        return Affine(np.stack(always), have - lack)

    def randomize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        check_key(key)
        values = as_values(values, 2, "values")
        have, lack = (jnp.asarray(x).astype(float_dtype()) for x in together(*self.yes))
        yes = self.yes_category
        said = with_probability(key, jnp.where(values == yes, have, lack), values.shape)
        return self._within(jnp.where(said, jnp.int32(yes), jnp.int32(1 - yes)), values)


def mixed(truth: Any, otherwise: Any, names: tuple[str, str]) -> Affine:
    """The law of a report: the value with probability `truth`, else a draw from a known distribution `[K]`."""
    check_scalar(truth, names[0])
    if np.ndim(otherwise) != 1:
        raise ArgumentError(
            f"{names[1]} must have shape [K] (use jax.vmap for several designs), got shape {np.shape(otherwise)}",
            argument=names[1],
        )
    truth, otherwise = together(truth, otherwise)
    always = (1 - truth) * otherwise
    if isinstance(truth, jax.Array):
        sound = (truth > 0) & (truth < 1) & (jnp.min(otherwise) >= 0) & (jnp.abs(jnp.sum(otherwise) - 1) < 1e-4)
        truth = jnp.where(sound, truth, jnp.nan)
    return Affine(always, truth)


def with_probability(key: Array, probability: Any, shape: tuple[int, ...]) -> Bool[Array, "*s"]:
    """Events of a probability, by 64 random bits each."""
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
    return below((high, low), threshold(jnp.asarray(probability).astype(float_dtype()), 0.0))


def together(*values: Any) -> tuple[Any, ...]:
    """Numbers ready for arithmetic: NumPy float64 if all are known on the host, else JAX arrays."""
    if any(isinstance(value, jax.Array) for value in values):
        return tuple(jnp.asarray(value).astype(float_dtype()) for value in values)
    return tuple(np.asarray(value, np.float64) for value in values)


def is_known(value: Any) -> bool:
    """Whether a value is on the host. A JAX array may be traced; impossible values in it give NaN."""
    return isinstance(value, int | float | np.number | np.ndarray)


def check_real(value: Any, name: str) -> None:
    """Raises `ValueError` unless a value is a real number, or an array of them (a batch, for `jax.vmap`)."""
    if not (is_known(value) or isinstance(value, jax.Array)) or not is_real(as_array(value, name)):
        raise ArgumentError(f"{name} must be a real number, or an array of them, got {value!r}", argument=name)


def check_probability(value: Any, name: str, example: float, *, closed: bool = False) -> None:
    """Raises `ValueError` unless a value is a real number, between 0 and 1 if it is known; `closed` allows both."""
    check_real(value, name)
    if not is_known(value) or np.ndim(value) > 0:  # a batch, for jax.vmap
        return
    inside = 0 <= float(value) <= 1 if closed else 0 < float(value) < 1
    if not inside:
        raise ArgumentError.about(name, f"must lie between 0 and 1, such as {example:g}, got {float(value):g}")


def check_different(first: Any, second: Any, name: str, why: str) -> None:
    """Raises `ValueError` if two known probabilities are equal, so that answers say nothing."""
    known = is_known(first) and is_known(second) and np.ndim(first) == np.ndim(second) == 0
    if known and float(first) == float(second):
        raise ArgumentError(f"{name} must not be {float(first):g}{why}: answers say nothing then", argument=name)


def strictly_inside(value: Any) -> Any:
    """A probability; NaN in JAX's arrays unless it is strictly between 0 and 1."""
    return jnp.where((value > 0) & (value < 1), value, jnp.nan) if isinstance(value, jax.Array) else value


def check_scalar(value: Any, name: str) -> None:
    """Raises `ValueError` for several numbers."""
    if np.ndim(value) != 0:
        raise ArgumentError(
            f"{name} must be a scalar (use jax.vmap for several designs), got shape {np.shape(value)}", argument=name
        )


def as_known_distribution(value: Any, name: str) -> Any:
    """A distribution over the categories, checked as far as its values are known."""
    if isinstance(value, list | tuple):
        value = as_array(value, name)
    if not isinstance(value, np.ndarray | jax.Array):
        raise ArgumentError(f"{name} must have shape [K], one probability a category, got {value!r}", argument=name)
    if np.ndim(value) == 0 or (np.ndim(value) == 1 and len(value) < 2):
        raise ArgumentError(
            f"{name} must have shape [K] with K >= 2, one probability a category, got {np.shape(value)}", argument=name
        )
    if not is_real(value):
        raise ArgumentError(f"{name} must be probabilities, got dtype {value.dtype}", argument=name)
    if is_known(value) and value.ndim == 1:
        entries = np.asarray(value, np.float64)
        if not (entries >= 0).all():
            raise ArgumentError.about(name, f"must be probabilities, none negative or NaN, got {entries.min():g}")
        if not abs(entries.sum() - 1) <= SUM_TOLERANCE:
            raise ArgumentError(
                f"{name} must be probabilities that sum to one, got a sum of {entries.sum():.6g}: give the "
                "distribution of the answers that are not truthful",
                argument=name,
            )
    return value
