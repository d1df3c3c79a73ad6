"""Functions of one number that lose no digits to cancellation. Nothing here knows about randomized response.

They are what binomial probabilities are made of in their saddle-point form: for whole n, k and p = k/n,
log pmf = −½·log(2πnp(1−p)) + a sum of `stirling_error` − n·(what `deviance` or `log1p_minus` is).
"""

from __future__ import annotations

import decimal
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from rrjax.numerics.sharding import looked_up

_NEAR = 0.4
"""Below it a series, else the difference itself, which then loses a digit at most."""


def log1p_minus(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """log(1 + x) − x without cancellation, for x > −1."""
    s = x / (2 + x)
    square = s * s
    # log(1 + x) = 2·artanh(s), of which −x takes the first term to −x·s exactly.
    tail = jnp.zeros_like(x)
    for degree in range(13 if x.dtype == jnp.float32 else 27, 1, -2):
        tail = (tail + 1 / degree) * square
    near = 2 * s * tail - x * s
    # Not log1p, which XLA vectorizes with an error of a hundred units in the last place.
    return jnp.where(jnp.abs(x) < _NEAR, near, jnp.log(jnp.maximum(1 + x, 0)) - x)


def exp_minus(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """e^x − 1 − x without cancellation."""
    series = jnp.zeros_like(x)
    for degree in range(9 if x.dtype == jnp.float32 else 17, 1, -1):
        series = (series + 1 / math.factorial(degree)) * x
    return jnp.where(jnp.abs(x) < 0.5, series * x, jnp.expm1(x) - x)


def deviance(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """(1 + x)·log(1 + x) − x without cancellation, for x > −1; one at −1, infinite below."""
    s = x / (2 + x)
    square = s * s
    # log(1 + x) = 2·artanh(s); the first term of its series combines with −x to x·s exactly.
    tail = square * (1 / 3 + square * (1 / 5 + square * (1 / 7 + square * (1 / 9 + square * (1 / 11 + square / 13)))))
    near = x * s + 2 * (1 + x) * s * tail
    far = (1 + x) * jnp.log1p(jnp.maximum(x, -1)) - x
    return jnp.where(jnp.abs(x) < _NEAR, near, jnp.where(x > -1, far, jnp.where(x == -1, 1, jnp.inf)))


def stirling_error(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Log x! − [½ log(2πx) + x log x − x], for whole x ≥ 1."""
    inverse = 1 / x
    return inverse * stirling_series(inverse * inverse)


def stirling_series(inverse_square: Any) -> Any:
    """The product x · `stirling_error(x)` by its series in 1/x², for arrays of NumPy or JAX."""
    return 1 / 12 - inverse_square * (1 / 360 - inverse_square * (1 / 1260 - inverse_square / 1680))


_PI = "3.14159265358979323846264338327950288419717"


def _stirling_errors(number: int) -> list[float]:
    """Of 1 … number − 1, after a zero; in decimals, because lgamma in doubles loses a digit to the difference."""
    with decimal.localcontext() as context:
        context.prec = 40
        errors = [0.0]
        for n in map(decimal.Decimal, range(1, number)):
            shape = (2 * decimal.Decimal(_PI) * n).ln() / 2 + n * n.ln() - n
            errors.append(float(decimal.Decimal(math.factorial(int(n))).ln() - shape))
    return errors


_SMALL = np.array(_stirling_errors(32))


def stirling_error_of_whole(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """`stirling_error` to the dtype, by a table where x is small."""
    table = jnp.asarray(_SMALL, x.dtype)
    series = stirling_error(jnp.maximum(x, 1))
    small = looked_up(table, jnp.clip(x, 0, 31).astype(jnp.int32)) + (series - lax.stop_gradient(series))
    return jnp.where(x < 32, small, series)
