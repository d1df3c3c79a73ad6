"""Checks of arguments: shapes and dtypes at trace time, and values as far as they are known."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Shaped

from rrjax.data.errors import ArgumentError
from rrjax.numerics.sharding import aligned, gathered

Estimand: TypeAlias = Literal["distribution", "users"]
"""What shares are of: the distribution that the users are independent draws from, or these very users."""


def check_estimand(estimand: Estimand) -> None:
    """Raises `ValueError` for another word."""
    if estimand not in get_args(Estimand):
        raise ArgumentError(
            f"estimand must be 'distribution' (that the users are drawn from) or 'users' (these very ones), "
            f"got {estimand!r}",
            argument="estimand",
            value=estimand,
        )


def float_dtype() -> np.dtype:
    """Returns the default floating dtype: float64 when the user enabled x64, else float32."""
    return jnp.result_type(float)


def int_dtype() -> np.dtype:
    """Returns the default integer dtype: int64 when the user enabled x64, else int32."""
    return jnp.result_type(int)


def as_counts(counts: Any, name: str = "counts", *, whole: bool = False, summed: bool = True) -> Shaped[Array, " K"]:
    """Checks what can be checked of a histogram without its values, and settles its dtype.

    Raises:
        ValueError: Not one-dimensional, K < 2, not real numbers, integers on the host that, or whose total, the
            default integer dtype cannot hold, or a tally or mixture of another mechanism.
    """
    if dataclasses.is_dataclass(counts):
        raise ArgumentError(
            f"{name} must be those of k-ary randomized response, not a {type(counts).__name__}: the likelihood has a "
            "maximum in closed form for that mechanism alone, and so have the tests and profiles made of it. inv, "
            "inv_n, inv_p, cv_threshold and intervals take a Tally; nll, score, certificate and ibu take a Mixture",
            argument=name,
        )
    counts = as_array(counts, name)
    if counts.ndim != 1:
        raise ArgumentError(
            f"{name} must have shape [K], one problem a call (use jax.vmap for a batch); got shape {counts.shape}",
            argument=name,
        )
    if counts.shape[0] < 2:
        raise ArgumentError(f"{name} must cover K >= 2 categories, got K = {counts.shape[0]}", argument=name)
    if jnp.issubdtype(counts.dtype, jnp.integer):
        dtype = int_dtype()
        if isinstance(counts, np.ndarray):
            # A negative one would wrap to a plausible count.
            extreme = max(int(counts.min()), int(counts.max()), key=abs)
            total = 0
            if summed:
                bounded = abs(extreme) * counts.shape[0] < 2**63
                total = int(counts.sum(dtype=np.int64)) if bounded else sum(counts.tolist())
            said = f"hold {extreme}" if abs(extreme) > jnp.iinfo(dtype).max else f"add up to {total}"
            if max(abs(extreme), total) > jnp.iinfo(dtype).max:
                raise ValueError(
                    f"{name} {said}, more than {jnp.dtype(dtype).name} can ({jnp.iinfo(dtype).max}): "
                    f"enable 64-bit mode (JAX_ENABLE_X64=1){'' if whole else ' or pass floats'}"
                )
        return gathered(jnp.asarray(counts, dtype))
    if whole:
        raise ArgumentError(
            f"{name} must be integers, numbers of users, got dtype {counts.dtype}. Weights are taken by "
            "inference.weighted_shares and weighted_functional, of inference.weighted_counts(reports, weights, K); and "
            "where no standard error is asked for by inv, inv_n, inv_p, mle_star, ibu and nll",
            argument=name,
            value=str(counts.dtype),
        )
    if jnp.issubdtype(counts.dtype, jnp.floating):
        return _scaled(gathered(jnp.asarray(counts, _at_least_float32(counts.dtype))))
    raise ArgumentError(f"{name} must be integers or floats, got dtype {counts.dtype}", argument=name)


def _scaled(weights):
    """Brings the largest weight near one by a power of two, exactly: no total overflows, no reciprocal underflows.

    Nothing that is estimated depends on the scale, so the derivatives need not know of it either.
    """
    _, exponent = jnp.frexp(lax.stop_gradient(jnp.max(weights)))
    half = exponent // 2  # in two steps, since 2^−exponent itself may not be a float
    return weights * jnp.ldexp(jnp.ones_like(weights[0]), -half) * jnp.ldexp(jnp.ones_like(weights[0]), half - exponent)


def unscaled(given: Any, counts: Shaped[Array, " K"]) -> Shaped[Array, " K"]:
    """Counts that `as_counts` has settled, in their own scale: for what depends on how many reports there are."""
    return counts if jnp.issubdtype(counts.dtype, jnp.integer) else jnp.asarray(given, counts.dtype)


def as_distribution(theta: ArrayLike, num_categories: int | None = None, name: str = "theta") -> Float[Array, " K"]:
    """Checks the shape of a distribution (over `num_categories`, where they are known) and makes it floating.

    Raises:
        ValueError: The shape is not `[num_categories]`, or the entries are not real numbers.
    """
    theta = as_array(theta, name)
    if num_categories is None and (theta.ndim != 1 or theta.shape[0] < 2):
        raise ArgumentError(f"{name} must have shape [K] with K >= 2, got {theta.shape}", argument=name)
    if num_categories is not None and theta.shape != (num_categories,):
        raise ArgumentError(f"{name} must have shape [{num_categories}], got {theta.shape}", argument=name)
    if jnp.issubdtype(theta.dtype, jnp.floating):
        return gathered(jnp.asarray(theta, _at_least_float32(theta.dtype)))
    if not jnp.issubdtype(theta.dtype, jnp.integer):
        raise ArgumentError(f"{name} must be real numbers, got dtype {theta.dtype}", argument=name)
    return gathered(jnp.asarray(theta, float_dtype()))


def _at_least_float32(dtype):
    # NumPy's table, because JAX's knows no way from float16 to float32 under strict promotion.
    return jax.dtypes.canonicalize_dtype(np.promote_types(np.float32, dtype))


def as_array(given: Any, name: str) -> np.ndarray | Shaped[Array, "*s"]:
    """An array of JAX as it is, anything else as one of NumPy.

    Raises:
        ValueError: Lists of different lengths.
    """
    if isinstance(given, jax.Array):
        return given
    try:
        return np.asarray(given)
    except ValueError:
        raise ArgumentError(f"{name} must be numbers, not lists of different lengths", argument=name) from None


def is_real(array: np.ndarray | Shaped[Array, "*s"]) -> bool:
    """Whether the dtype is floating or integer: neither of booleans nor of complex numbers, objects or texts.

    NumPy's own letters of kinds do not know bfloat16.
    """
    return jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)


def as_scalar(value: ArrayLike | None, dtype: jax.typing.DTypeLike, name: str = "epsilon") -> Float[Array, ""]:
    """Checks that `value` is one real number and casts it.

    Raises:
        ValueError: `value` is not a scalar, or not real.
    """
    if value is None:
        raise ArgumentError(
            f"{name} is missing: counts say nothing without it (a Tally has its own rates)", argument=name
        )
    array = as_array(value, name)
    if array.ndim != 0:
        raise ArgumentError(
            f"{name} must be a scalar (use jax.vmap or jax.lax.map for a sweep), got shape {array.shape}", argument=name
        )
    if not is_real(array):
        raise ArgumentError(f"{name} must be a real number, got dtype {array.dtype}", argument=name)
    # Through float64 on the host: a wide integer would wrap in JAX's narrower default.
    return array.astype(dtype) if isinstance(array, jax.Array) else jnp.asarray(array.astype(np.float64), dtype)


def check_key(key: Any) -> None:
    """Refuses what is no random key: what JAX says of it names no argument.

    Raises:
        ValueError: Neither one typed key nor the words of one.
    """
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            good = key.ndim == 0
        else:  # as jax.random.PRNGKey makes them: of two words, or four
            good = key.dtype == np.uint32 and key.shape in ((2,), (4,))
        came = f"dtype {key.dtype} of shape {tuple(key.shape)}"
    else:
        good, came = False, repr(key)
    if not good:
        raise ArgumentError(
            f"key must be one typed key, as jax.random.key(0) makes (use jax.vmap for several); got {came}",
            argument="key",
        )


def as_one_or_each(given: ArrayLike, number: int, what: str, name: str = "epsilon") -> Float[Array, "*n"]:
    """Checks that these are one real number, or one for each of several.

    Raises:
        ValueError: Another shape, or not real numbers.
    """
    array = as_array(given, name)
    if not is_real(array) or array.shape not in ((), (number,)):
        raise ArgumentError(
            f"{name} must be one real number or one for each of {number} {what}, got dtype {array.dtype} of shape "
            f"{tuple(array.shape)}",
            argument=name,
        )
    # Through float64 on the host, as in `as_scalar`.
    return jnp.asarray(array if isinstance(array, jax.Array) else array.astype(np.float64)).astype(float_dtype())


def as_category(category: ArrayLike, num_categories: int) -> Int[Array, ""]:
    """Checks that this is the number of a category, as far as it is known.

    Raises:
        ValueError: It is not one integer, or (not under tracing) not from 0 to K − 1.
    """
    category = as_array(category, "category")
    if category.ndim != 0 or not jnp.issubdtype(category.dtype, jnp.integer):
        raise ArgumentError(
            f"category must be one integer (use jax.vmap for several), got {category!r}", argument="category"
        )
    if not isinstance(category, Tracer) and not 0 <= int(category) < num_categories:
        raise ArgumentError(
            f"category must be from 0 to {num_categories - 1}, got {int(category)}", argument="category"
        )
    return jnp.asarray(category).astype(int_dtype())


def as_tolerance(tol: float | None, number: Float[Array, ""]) -> Float[Array, ""]:
    """Settles the largest gap that ends a maximization, in nats of N reports; None is what rounding may hide."""
    if tol is not None:
        return as_scalar(tol, number.dtype, "tol")
    return jnp.float64(1e-10) if number.dtype == jnp.float64 else jnp.maximum(jnp.float32(1e-6), 1e-12 * number)


def check_positive(epsilon: Float[Array, ""]) -> None:
    """Refuses an ε that is known, and is none.

    Raises:
        ValueError: It is not positive.
    """
    if not isinstance(epsilon, Tracer) and not epsilon > 0:
        raise ArgumentError(f"epsilon must be positive, nats; got {float(epsilon):g}", argument="epsilon")


def as_epsilons(
    epsilon: ArrayLike, batch: tuple[int, ...], dtype: jax.typing.DTypeLike, used: Bool[ArrayLike, "*s"] | bool = True
) -> Float[Array, "*s"]:
    """Checks ε for each example of a batch, or one for all.

    Raises:
        ValueError: Not real numbers, another shape, or (not under tracing) one that is not positive.
    """
    epsilon = epsilon if isinstance(epsilon, jax.Array) else np.asarray(epsilon)
    if not is_real(epsilon):
        raise ArgumentError(f"epsilon must be real numbers, got dtype {epsilon.dtype}", argument="epsilon")
    fits = epsilon.ndim <= len(batch) and all(
        one in (1, other) for one, other in zip(epsilon.shape[::-1], batch[::-1], strict=False)
    )
    if not fits:
        raise ArgumentError(
            f"epsilon must be a scalar or one for each example, {batch}; got shape {epsilon.shape}", argument="epsilon"
        )
    if not isinstance(epsilon, Tracer) and not isinstance(used, Tracer):
        wrong = np.argwhere(~(np.broadcast_to(np.asarray(epsilon), batch) > 0) & np.asarray(used))
        if len(wrong):  # the place of a single example has no numbers
            value = float(np.broadcast_to(np.asarray(epsilon), batch)[tuple(wrong[0])])
            where = f"example {', '.join(map(str, wrong[0]))} has" if epsilon.ndim else "got"
            raise ArgumentError(f"epsilon must be positive, nats: {where} {value:g}", argument="epsilon")
    epsilon = jnp.broadcast_to(jnp.asarray(epsilon, dtype), batch)
    usable = epsilon > 0
    return jnp.where(usable, jnp.where(usable, epsilon, 1), jnp.nan)


def as_survey(
    counts: Any, epsilon: ArrayLike | None, *, whole: bool = False
) -> tuple[Shaped[Array, " K"], Float[Array, ""]]:
    """Checks counts of k-ary randomized response and the ε they were collected with.

    Raises:
        ValueError: As `as_counts` and `as_scalar` do.
    """
    counts = as_counts(counts, whole=whole)
    if isinstance(epsilon, jax.Array):
        _, epsilon = aligned((counts, epsilon))  # before its cast, which a batch of cotangents could not undo
    return aligned((counts, as_scalar(epsilon, float_of(counts))))


def float_of(counts: Shaped[Array, "*s"]) -> np.dtype:
    """Returns the floating dtype in which results about `counts` are given."""
    return counts.dtype if jnp.issubdtype(counts.dtype, jnp.floating) else float_dtype()


def as_probability(value: ArrayLike, name: str, example: float) -> Float[Array, ""]:
    """Checks that a scalar lies strictly between 0 and 1, as far as it is known.

    What the host knows is checked in double precision, where 1 − 1e-9 is not one.

    Raises:
        ValueError: It does not, or is no scalar.
    """
    scalar = as_scalar(value, float_dtype(), name)
    if not isinstance(scalar, Tracer):
        known = float(np.asarray(value, np.float64))
        # XLA takes what is below the smallest normal number for zero.
        if not np.finfo(scalar.dtype).tiny <= known < 1:
            raise ArgumentError(f"{name} must lie between 0 and 1, such as {example:g}, got {known:g}", argument=name)
    return scalar


def complement(value: ArrayLike) -> Float[Array, ""]:
    """1 − value; of what the host knows in double precision, because a float32 near one has few digits."""
    if isinstance(value, jax.Array):
        return 1 - value.astype(float_dtype())
    dtype = float_dtype()
    # What is below one stays so: a level of 1e-12 is one, if an odd one.
    return jnp.asarray(np.minimum(1 - np.asarray(value, np.float64), 1 - jnp.finfo(dtype).epsneg), dtype)
