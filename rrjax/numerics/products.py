"""Matrix products that keep the precision of float32: by default a GPU multiplies it as TF32, with 10 bits."""

from __future__ import annotations

from functools import partial, reduce

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Shaped

einsum = partial(jnp.einsum, precision=lax.Precision.HIGHEST)
tensordot = partial(jnp.tensordot, precision=lax.Precision.HIGHEST)
_matmul = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def matmul(first: ArrayLike, second: ArrayLike, *others: ArrayLike) -> Shaped[Array, "*shape"]:
    """The product of vectors and matrices, from left to right."""
    return reduce(_matmul, others, _matmul(first, second))
