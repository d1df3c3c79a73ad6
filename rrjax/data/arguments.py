"""Checks of arguments: shapes and dtypes at trace time, values if they are known; and counts of reports."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.categories import check_epsilon, check_in_domain, check_integers
from rrjax.data.errors import ArgumentError
from rrjax.numerics.sharding import with_sharding_of, with_whole_axis
from rrjax.numerics.sums import accurate_sum

Estimand: TypeAlias = Literal["distribution", "users"]
"""The estimand: the distribution from which the users are independent draws, or the shares among these users."""


def check_estimand(estimand: Estimand) -> None:
    """Raises `ValueError` unless the estimand is "distribution" or "users"."""
    if estimand not in get_args(Estimand):
        raise ArgumentError.about(
            "estimand",
            f"must be 'distribution' (that the users are drawn from) or 'users' (these very ones), got {estimand!r}",
            value=estimand,
        )


def float_dtype() -> np.dtype:
    """The default floating dtype: float64 if the user enabled x64, else float32."""
    return jnp.result_type(float)


def int_dtype() -> np.dtype:
    """The default integer dtype: int64 if the user enabled x64, else int32."""
    return jnp.result_type(int)


def float_of(counts: Shaped[Array, "*s"]) -> np.dtype:
    """The floating dtype of results from `counts`."""
    return counts.dtype if jnp.issubdtype(counts.dtype, jnp.floating) else float_dtype()


def as_array(given: Any, name: str) -> np.ndarray | Shaped[Array, "*s"]:
    """A JAX array unchanged, anything else as a NumPy array; `ValueError` for lists of different lengths.

    An array of another library on an accelerator, which NumPy cannot read, becomes a JAX array there, without a copy.
    """
    if isinstance(given, jax.Array):
        return given
    try:
        return np.asarray(given)
    except ValueError:
        raise ArgumentError.about(name, "must be numbers, not lists of different lengths") from None
    except TypeError:
        if not hasattr(given, "__dlpack__"):
            raise
        return jnp.from_dlpack(given)


def is_real(array: np.ndarray | Shaped[Array, "*s"]) -> bool:
    """Whether the dtype is floating or integer, including bfloat16 (for which NumPy has no kind)."""
    return jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)


def as_real(array: Any, dtype: jax.typing.DTypeLike) -> Array:
    """Real numbers, cast; from the host through float64, because wide integers would wrap in JAX's default."""
    return array.astype(dtype) if isinstance(array, jax.Array) else jnp.asarray(array.astype(np.float64), dtype)


def as_scalar(value: ArrayLike | None, dtype: jax.typing.DTypeLike, name: str = "epsilon") -> Float[Array, ""]:
    """One real number, cast; `ValueError` unless it is a real scalar."""
    if value is None:
        raise ArgumentError.about(name, "is missing: counts say nothing without it (a Tally has its own rates)")
    array = as_array(value, name)
    if array.ndim != 0:
        raise ArgumentError.about(
            name, f"must be a scalar (use jax.vmap or jax.lax.map for a sweep), got shape {array.shape}"
        )
    if not is_real(array):
        raise ArgumentError.about(name, f"must be a real number, got dtype {array.dtype}")
    return as_real(array, dtype)


def as_one_or_each(given: ArrayLike | None, number: int, noun: str, name: str = "epsilon") -> Float[Array, "*n"]:
    """One real number or one for each of several, cast; `ValueError` for anything else."""
    if given is None:
        return as_scalar(given, float_dtype(), name)  # which says what is missing
    array = as_array(given, name)
    if not is_real(array) or array.shape not in ((), (number,)):
        raise ArgumentError.about(
            name,
            f"must be one real number or one for each of {number} {noun}, got dtype {array.dtype} of shape "
            f"{tuple(array.shape)}",
        )
    return as_real(array, float_dtype())


def as_probability(value: ArrayLike, name: str, example: float) -> Float[Array, ""]:
    """A scalar, cast; `ValueError` if it is known and not strictly between 0 and 1.

    A number on the host is checked in double precision, in which 1 − 1e-9 is not one.
    """
    scalar = as_scalar(value, float_dtype(), name)
    if not isinstance(scalar, Tracer):
        known = float(np.asarray(value, np.float64))
        # XLA flushes numbers below the smallest normal one to zero.
        if not np.finfo(scalar.dtype).tiny <= known < 1:
            raise ArgumentError.about(name, f"must lie between 0 and 1, such as {example:g}, got {known:g}")
    return scalar


def complement(value: ArrayLike) -> Float[Array | np.ndarray, ""]:
    """1 − value; for a host number in double precision, because a float32 near one has few digits."""
    dtype = float_dtype()
    if isinstance(value, jax.Array):
        return 1 - value.astype(dtype)
    # A number below one remains below one: a level of 1e-12 is valid.
    # It stays on the host, where operations on it need no programs.
    return np.asarray(np.minimum(1 - np.asarray(value, np.float64), 1 - jnp.finfo(dtype).epsneg), dtype)


def largest_gap(number: Float[Array, ""]) -> Float[Array, ""]:
    """The largest gap that ends a maximization, in nats of N reports: the rounding of the dtype."""
    return jnp.float64(1e-10) if number.dtype == jnp.float64 else jnp.maximum(jnp.float32(1e-6), 1e-12 * number)


def check_positive(epsilon: Float[Array, ""]) -> None:
    """Raises `ValueError` for an ε that is known and not positive."""
    if not isinstance(epsilon, Tracer):
        check_epsilon(float(epsilon))


def as_epsilons(
    epsilon: ArrayLike, batch: tuple[int, ...], dtype: jax.typing.DTypeLike, used: Bool[ArrayLike, "*s"] | bool = True
) -> Float[Array, "*s"]:
    """ε for each example of a batch; NaN if it is traced and not positive, `ValueError` if it is known and used."""
    epsilon = as_array(epsilon, "epsilon")
    if not is_real(epsilon):
        raise ArgumentError.about("epsilon", f"must be real numbers, got dtype {epsilon.dtype}")
    fits = epsilon.ndim <= len(batch) and all(
        one in (1, other) for one, other in zip(epsilon.shape[::-1], batch[::-1], strict=False)
    )
    if not fits:
        message = f"must be a scalar or one for each example, {batch}; got shape {epsilon.shape}"
        raise ArgumentError.about("epsilon", message)
    if not isinstance(epsilon, Tracer) and not isinstance(used, Tracer):
        known = np.broadcast_to(np.asarray(epsilon), batch)
        wrong = np.argwhere(~(known > 0) & np.asarray(used))
        if len(wrong):  # the place of a single example has no numbers
            where = f"example {', '.join(map(str, wrong[0]))} has" if epsilon.ndim else "got"
            value = float(known[tuple(wrong[0])])
            raise ArgumentError.about("epsilon", f"must be a positive number of nats: {where} {value:g}")
    epsilon = jnp.broadcast_to(jnp.asarray(epsilon, dtype), batch)
    usable = epsilon > 0
    return jnp.where(usable, jnp.where(usable, epsilon, 1), jnp.nan)


def check_key(key: Any) -> None:
    """Raises `ValueError` unless given one typed key or the words of one: JAX's error names no argument."""
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            valid = key.ndim == 0
        else:  # as from jax.random.PRNGKey: two words, or four
            valid = key.dtype == np.uint32 and key.shape in ((2,), (4,))
        came = f"dtype {key.dtype} of shape {tuple(key.shape)}"
    else:
        valid, came = False, repr(key)
    if not valid:
        raise ArgumentError.about(
            "key", f"must be one typed key, as jax.random.key(0) makes (use jax.vmap for several); got {came}"
        )


def as_category(category: ArrayLike, num_categories: int) -> Int[Array, ""]:
    """The number of a category, cast; `ValueError` unless it is one integer, if known from 0 to K − 1."""
    category = as_array(category, "category")
    if category.ndim != 0 or not jnp.issubdtype(category.dtype, jnp.integer):
        raise ArgumentError.about("category", f"must be one integer (use jax.vmap for several), got {category!r}")
    if not isinstance(category, Tracer) and not 0 <= int(category) < num_categories:
        raise ArgumentError.about("category", f"must be from 0 to {num_categories - 1}, got {int(category)}")
    return jnp.asarray(category).astype(int_dtype())


def as_values(values: ArrayLike, num_categories: int, name: str) -> Array:
    """Category numbers; `ValueError` unless they are integers, if known from 0 to K − 1."""
    array = check_integers(as_array(values, name), num_categories, name)
    if not isinstance(array, Tracer):
        with jax.ensure_compile_time_eval():  # known values may occur while something else is traced
            check_in_domain(array, num_categories, name)
    return jnp.asarray(array)


def as_distribution(theta: ArrayLike, num_categories: int | None = None, name: str = "theta") -> Float[Array, " K"]:
    """A distribution, cast to floats; `ValueError` unless it is real of shape `[num_categories]`."""
    theta = as_array(theta, name)
    if num_categories is None and (theta.ndim != 1 or theta.shape[0] < 2):
        raise ArgumentError.about(name, f"must have shape [K] with K >= 2, got {theta.shape}")
    if num_categories is not None and theta.shape != (num_categories,):
        raise ArgumentError.about(name, f"must have shape [{num_categories}], got {theta.shape}")
    if not is_real(theta):
        raise ArgumentError.about(name, f"must be real numbers, got dtype {theta.dtype}")
    return with_whole_axis(jnp.asarray(theta, _float32_or_wider(theta.dtype)))


def is_distribution(theta: Float[Array, " K"], tolerance: float) -> Bool[Array, ""]:
    """Whether no share is negative and their sum is one, to within a tolerance."""
    return (jnp.min(theta) >= 0) & (jnp.abs(accurate_sum(theta) - 1) <= tolerance)


def _float32_or_wider(dtype):
    if not jnp.issubdtype(dtype, jnp.floating):
        return float_dtype()
    # NumPy promotes float16, which JAX refuses under strict promotion.
    return jax.dtypes.canonicalize_dtype(np.promote_types(np.float32, dtype))


def as_weights(counts: np.ndarray | Array) -> Float[Array, " K"]:
    """Floating counts in at least float32, not scaled."""
    return with_whole_axis(jnp.asarray(counts, _float32_or_wider(counts.dtype)))


def as_counts(counts: Any, name: str = "counts", *, whole: bool = False, summed: bool = True) -> Shaped[Array, " K"]:
    """Counts in their final dtype; `ValueError` for a wrong shape or dtype, and for integers that would wrap in it."""
    if dataclasses.is_dataclass(counts):
        raise ArgumentError.about(
            name,
            f"must be those of k-ary randomized response, not a {type(counts).__name__}: the likelihood has a "
            "maximum in closed form for that mechanism alone, and so have the tests and profiles made of it. inv, "
            "inv_n, inv_p, intervals, quantile, goodness_of_fit_test, equality_test and trend_test take "
            "a Tally; nll, score, certificate and ibu take a Mixture",
        )
    counts = as_array(counts, name)
    if counts.ndim != 1:
        raise ArgumentError.about(
            name, f"must have shape [K], one problem a call (use jax.vmap for a batch); got shape {counts.shape}"
        )
    if counts.shape[0] < 2:
        raise ArgumentError.about(name, f"must cover K >= 2 categories, got K = {counts.shape[0]}")
    if jnp.issubdtype(counts.dtype, jnp.integer):
        wraps = not isinstance(counts, Tracer) and jnp.iinfo(counts.dtype).max > jnp.iinfo(int_dtype()).max
        if isinstance(counts, np.ndarray) or wraps:
            _check_overflow(np.asarray(counts), name, "" if whole else " or pass floats", summed=summed)
        return with_whole_axis(jnp.asarray(counts, int_dtype()))
    if whole:
        raise ArgumentError.about(
            name,
            f"must be integers, numbers of users, got dtype {counts.dtype}. For weights of single reports "
            "there is inference.survey_estimate; inv, inv_n, inv_p, mle_star, ibu and nll take their sums, without "
            "standard errors",
            value=str(counts.dtype),
        )
    if jnp.issubdtype(counts.dtype, jnp.floating):
        return _scaled(as_weights(counts))
    raise ArgumentError.about(name, f"must be integers or floats, got dtype {counts.dtype}")


def _check_overflow(counts, name, advice, *, summed):
    """Raises for counts beyond the default integer dtype: a negative one would wrap to a plausible count."""
    limit = jnp.iinfo(int_dtype())
    extreme = max(int(counts.min()), int(counts.max()), key=abs)
    total = 0
    if summed:
        fits = abs(extreme) * counts.shape[0] < 2**63
        total = int(counts.sum(dtype=np.int64)) if fits else sum(counts.tolist())
    if max(abs(extreme), total) > limit.max:
        excess = f"hold {extreme}" if abs(extreme) > limit.max else f"add up to {total}"
        raise ArgumentError.about(
            name,
            f"{excess}, more than {limit.dtype.name} can ({limit.max}): enable 64-bit mode (JAX_ENABLE_X64=1){advice}",
        )


def _scaled(weights):
    """Weights times a power of two, exactly, with the largest near one: no total overflows, no reciprocal underflows.

    No estimate depends on the scale, so derivatives omit it.
    """
    most = lax.stop_gradient(jnp.max(weights))
    # One product: XLA's GPU backend would write the weights if there were two numbers to multiply by.
    most_negative = jnp.finfo(weights.dtype).minexp
    exponent = with_sharding_of(jnp.clip(jnp.frexp(most)[1], most_negative, -most_negative), most)
    return weights * jnp.ldexp(jnp.ones_like(weights[0]), -exponent)


def unscaled(given: Any, counts: Shaped[Array, " K"]) -> Shaped[Array, " K"]:
    """Counts of `as_counts` without the scaling, for results that depend on the number of reports."""
    return counts if jnp.issubdtype(counts.dtype, jnp.integer) else jnp.asarray(given, counts.dtype)


def as_counts_of(
    counts: ArrayLike, size: int, unit: str, name: str = "counts", *, whole: bool = False
) -> Shaped[Array, " M"]:
    """Counts `[size]`, one for each `unit`, checked by `as_counts`."""
    counts = as_counts(counts, name, whole=whole)
    if counts.shape != (size,):
        raise ArgumentError(f"{name} must have shape [{size}], one a {unit}; got {counts.shape}", argument=name)
    return counts


def as_true_counts(true_counts: ArrayLike, num_categories: int) -> Int[Array, " K"]:
    """The numbers of users with each category, checked as by `as_counts_of`."""
    return as_counts_of(true_counts, num_categories, "category", "true_counts", whole=True)


def as_counts_and_epsilon(
    counts: Any, epsilon: ArrayLike | None, *, whole: bool = False
) -> tuple[Shaped[Array, " K"], Float[Array, ""]]:
    """Counts of k-ary randomized response and ε, checked by `as_counts` and `as_scalar`."""
    counts = as_counts(counts, whole=whole)
    if isinstance(epsilon, jax.Array):
        _, epsilon = with_sharding_of((counts, epsilon))  # before its cast, which a batch of cotangents could not undo
    return with_sharding_of((counts, as_scalar(epsilon, float_of(counts))))


class CountSummary(NamedTuple):
    """Total and validity of counts.

    Attributes:
        total: Scalar, the sum of the counts.
        bound: Scalar: a lower bound of the largest count, at least half of it; zero for floats.
        valid: Scalar: whether no count is negative or NaN, and the sum did not wrap.
    """

    total: Shaped[Array, ""]
    bound: Shaped[Array, ""]
    valid: Bool[Array, ""]

    @property
    def usable(self) -> Bool[Array, ""]:
        """Whether the counts are valid and not all zero."""
        return self.valid & (self.total > 0)

    @property
    def simulable(self) -> Bool[Array, ""]:
        """Whether collections with this number of reports can be drawn."""
        return self.usable & (self.total <= jnp.iinfo(jnp.int32).max)

    @property
    def drawable(self) -> Bool[Array, ""]:
        """Whether reports of this number of users, or of zero users, can be drawn."""
        return self.simulable | (self.valid & (self.total == 0))


def _sums_and_union(a, b):
    """Of `count_summary`; a function made at each call would be compiled at each call."""
    return *(x + y for x, y in zip(a[:-1], b[:-1], strict=True)), a[-1] | b[-1]


def count_summary(counts: Shaped[Array, " K"]) -> CountSummary:
    """Total and validity of counts, in one pass, also under tracing; `ValueError` if a wrap could be missed."""
    if jnp.issubdtype(counts.dtype, jnp.floating):
        total = jnp.sum(counts)
        return CountSummary(total, jnp.zeros_like(total), (jnp.min(counts) >= 0) & jnp.isfinite(total))
    bits = jnp.iinfo(counts.dtype).bits
    if counts.shape[0] >= 2 ** (bits - 8):
        raise ArgumentError(
            f"K = {counts.shape[0]} is too many categories for {counts.dtype.name} counts: "
            "enable 64-bit mode (JAX_ENABLE_X64=1)",
            argument="counts",
        )
    # A wrapped total differs from the sums of the counts' high parts. For any total, one of these sums does not wrap
    # and is too large, because the low parts of so few categories cannot compensate a wrap; that of the upper halves
    # never wraps where the number of categories fits into a lower half. One OR shows whether any count is negative, and
    # the largest one to within a factor of two.
    shifts = (bits // 2,) if counts.shape[0] < 2 ** (bits // 2) else (8, 16, 24)
    terms = (counts, *(counts >> shift for shift in shifts), counts)
    total, *high, union = lax.reduce(terms, (jnp.zeros((), counts.dtype),) * len(terms), _sums_and_union, (0,))
    largest = jnp.iinfo(counts.dtype).max
    lag = (total >> shifts[0]) - high[0]
    valid = (union >= 0) & (total >= 0) & (lag >= 0) & (lag <= counts.shape[0])
    for part, shift in zip(high, shifts, strict=True):
        valid = valid & (part >= 0) & (part <= largest >> shift)
    bound = counts.dtype.type(1) << (bits - 1 - lax.clz(jnp.maximum(union, 1)))
    return CountSummary(total, bound, valid)
