"""Ways to the maximum of a regression's likelihood by its slopes alone, of optax: where matrices would be too large."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from rrjax.models.logistic import Data, posteriors
from rrjax.numerics.newton import added_up, blocks_of
from rrjax.numerics.sharding import aligned, on_many_devices


class Arrival(NamedTuple):
    """Where a solver stopped: coefficients `[D, k]`, and nats that are missing by its own account."""

    coefficients: Float[Array, "D k"]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]


def needed() -> Any:
    """Optax, which is wanted only here.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    try:
        import optax
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('this solver needs optax: pip install "rrjax[models]"') from error
    return optax


def _log_likelihood(coefficients, data):
    return jnp.sum(data.weights * posteriors(coefficients, data.covariates, data.rows).log_probabilities)


@partial(jax.jit, static_argnums=(3,))
def lbfgs(data: Data, ridge: Float[Array, ""], tol: Float[Array, ""], max_iters: int) -> Arrival:
    """L-BFGS with a line search, of all data: memory for N·K numbers and a few times D·K."""
    optax = needed()
    if on_many_devices(data):  # optax's line search knows nothing of them
        raise NotImplementedError(
            "fit with solver 'l-bfgs' runs on one device: use solver 'newton' in shard_map and on meshes"
        )
    blocks, number = blocks_of(data), jnp.sum(data.weights)

    def loss(coefficients):
        # Remembered are coefficients and data alone: what lies between is made again on the way back.
        part = jax.checkpoint(lambda block: (-_log_likelihood(coefficients, block), ()))
        return (added_up(part, blocks, coefficients)[0] + ridge / 2 * jnp.sum(coefficients**2)) / number

    direction, search = optax.scale_by_lbfgs(), optax.scale_by_zoom_linesearch(max_linesearch_steps=30)
    start = jnp.zeros((data.covariates.shape[1], data.rows.lift.shape[1] - 1), data.weights.dtype)

    def step(carry):
        at, memory, lines, _, number_of_steps = carry
        value, slope = optax.value_and_grad_from_state(loss)(at, state=lines)
        with jax.numpy_dtype_promotion("standard"):  # optax's own
            ahead, memory = direction.update(slope, memory, at)
            move, lines = search.update(-ahead, lines, at, value=value, grad=slope, value_fn=loss)
        gap = number * jnp.sum(slope * ahead) / 2
        return at + jnp.where(gap > tol, move, 0), memory, lines, gap, number_of_steps + 1

    def more(carry):
        *_, gap, number_of_steps = carry
        # Its first step knows nothing of the curvature.
        return ((gap > tol) | (number_of_steps < 3)) & (number_of_steps < max_iters)

    first = start, direction.init(start), search.init(start), jnp.full((), jnp.inf, start.dtype), jnp.int32(0)
    at, _, _, gap, number_of_steps = lax.while_loop(more, step, aligned(first, data))
    return Arrival(at, gap, number_of_steps)


@partial(jax.jit, static_argnums=(4, 5))
def adam(
    key: Array, data: Data, ridge: Float[Array, ""], learning_rate: Float[Array, ""], batch_size: int, num_epochs: int
) -> Arrival:
    """Adam on batches of users drawn without replacement, its rate falling to nothing along a cosine."""
    optax = needed()
    users = data.weights.shape[0]
    number = users // batch_size
    total = jnp.sum(data.weights)
    start = jnp.zeros((data.covariates.shape[1], data.rows.lift.shape[1] - 1), data.weights.dtype)
    adam = optax.scale_by_adam()

    def loss(coefficients, batch):
        # Of all users, as the batch lets it be estimated.
        part = _log_likelihood(coefficients, batch) * (users / batch_size)
        return (ridge / 2 * jnp.sum(coefficients**2) - part) / total

    def step(carry, places):
        at, memory, number_of_steps = carry
        batch = jax.tree.map(lambda leaf: leaf[places], data)
        with jax.numpy_dtype_promotion("standard"):  # optax's own
            ahead, memory = adam.update(jax.grad(loss)(at, batch), memory, at)
        done = number_of_steps.astype(at.dtype) / (number * num_epochs)
        rate = learning_rate * (1 + jnp.cos(jnp.pi * done)) / 2
        return (at - rate * ahead, memory, number_of_steps + 1), None

    def epoch(carry, key):
        order = jax.random.permutation(key, users)[: number * batch_size].reshape(number, batch_size)
        return lax.scan(step, carry, order)

    first = start, adam.init(start), jnp.int32(0)
    first = aligned(first, data, key)
    (at, _, number_of_steps), _ = lax.scan(epoch, first, jax.random.split(key, num_epochs))
    return Arrival(at, jnp.full((), jnp.nan, start.dtype), number_of_steps)
