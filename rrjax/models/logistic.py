"""The maximum of the likelihood of a multinomial logistic regression whose outcome is seen through a mechanism.

log(π_k/π_0) = Σ_j x_j·β_jk for the categories k = 1 … K − 1, and a report of a user with such a π has the likelihood of
the mechanism. With w the posterior of the value given report and covariates, a report's slope in the logits is w − π,
and its information (diag π − ππᵀ) − (diag w − wwᵀ): what the value would tell, less what the report leaves open. The
first part alone is EM's; Newton's steps, of both, are quick near the maximum, and lean towards EM's where they do not
gain.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rrjax.arithmetic import accurate_sum, log_sum
from rrjax.interior import factored, solved
from rrjax.mechanisms.rows import LogRows

_BLOCK = 4096
"""Users whose information is added up at a time."""


class Data(NamedTuple):
    """Standardized covariates `[N, D]`, reports, and weights `[N]`."""

    covariates: Float[Array, "N D"]
    rows: LogRows
    weights: Float[Array, " N"]


class View(NamedTuple):
    """What there is to see at some coefficients `[D, k]`."""

    log_probabilities: Float[Array, " N"]
    slope: Float[Array, " P"]
    observed: Float[Array, "P P"]
    complete: Float[Array, "P P"]


class State(NamedTuple):
    """Where the iteration is: coefficients `[D, k]`; damping 0 is Newton's step, 1 is EM's, above it is shorter.

    The gap is half of Newton's decrement, nats of all reports.
    """

    coefficients: Float[Array, "D k"]
    view: View
    damping: Float[Array, ""]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]


def posteriors(coefficients: Float[Array, "D k"], data: Data) -> tuple[Array, Array, Array]:
    """Of each user: π `[N, K]`, w − π `[N, K]`, and the log-probability of the report."""
    logits = data.covariates @ coefficients
    logits = jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1)
    log_shares = logits - log_sum(logits)[:, None]
    terms = data.rows.lift + log_shares
    total = jnp.logaddexp(data.rows.base, log_sum(terms))
    lifted, shares = jnp.exp(terms - total[:, None]), jnp.exp(log_shares)
    # Not w itself, which would take the digits of the difference where ε is small.
    moved = lifted - jnp.sum(lifted, axis=1, keepdims=True) * shares
    return shares, moved, data.rows.scale + total


def _information(shares, moved, data):
    """Observed and complete information of a block of users, `[P, P]` each; of the categories but the first."""
    pi, g = shares[:, 1:], moved[:, 1:]
    diagonal = jnp.eye(pi.shape[1], dtype=pi.dtype)
    outer = pi[:, :, None] * pi[:, None, :]
    cross = g[:, :, None] * pi[:, None, :]
    complete = pi[:, :, None] * diagonal - outer
    observed = cross + cross.transpose(0, 2, 1) + g[:, :, None] * g[:, None, :] - g[:, :, None] * diagonal
    size = data.covariates.shape[1] * pi.shape[1]

    def added(each):
        weighted = data.weights[:, None, None] * each
        return jnp.einsum("nij,nd,ne->diej", weighted, data.covariates, data.covariates).reshape(size, size)

    return added(observed), added(complete)


def _blocks(data):
    """The data in blocks, the last one filled up with users of weight zero."""
    number = data.weights.shape[0]
    block = min(number, _BLOCK)

    def cut(leaf):
        padded = jnp.pad(leaf, ((0, -number % block), *((0, 0),) * (leaf.ndim - 1)))
        return padded.reshape(-1, block, *leaf.shape[1:])

    return jax.tree.map(cut, data)


def _look(coefficients, blocks, ridge):
    dimension = coefficients.size

    def look(total, data):
        shares, moved, log_probabilities = posteriors(coefficients, data)
        slope = jnp.einsum("n,nd,nk->dk", data.weights, data.covariates, moved[:, 1:]).ravel()
        part = slope, *_information(shares, moved, data)
        return jax.tree.map(jnp.add, total, part), log_probabilities

    zeros = jnp.zeros((dimension, dimension), coefficients.dtype)
    (slope, observed, complete), log_probabilities = lax.scan(look, (zeros[0], zeros, zeros), blocks)
    prior = ridge * jnp.eye(dimension, dtype=coefficients.dtype)
    slope = slope - ridge * coefficients.ravel()
    return View(log_probabilities.ravel(), slope, observed + prior, complete + prior)


@partial(jax.jit, static_argnums=(3,))
def maximum(data: Data, ridge: Float[Array, ""], tol: Float[Array, ""], max_iters: int) -> State:
    """Newton's method, damped towards EM's steps where it does not gain.

    Args:
        data: Of N users.
        ridge: Precision of a normal prior on each coefficient.
        tol: Nats of all reports that may be missing.
        max_iters: Most steps, those that are not taken among them. Static.

    Returns:
        The last state; `converged` where the gap of an undamped step is at most `tol`.
    """
    blocks = _blocks(data)
    weights = blocks.weights.ravel()
    dtype = weights.dtype
    number = data.rows.lift.shape[1] - 1
    start = jnp.zeros((data.covariates.shape[1], number), dtype)

    def penalty(coefficients):
        return ridge / 2 * jnp.sum(coefficients**2)

    def step(state):
        view, damping = state.view, state.damping
        mixed = (1 - damping) * view.observed + damping * view.complete
        system = jnp.where(damping < 1, mixed, damping * view.complete)
        change = solved(factored(system), view.slope[:, None])[:, 0]
        gap = view.slope @ change / 2
        usable = jnp.all(jnp.isfinite(change)) & (gap >= 0)
        moved = state.coefficients + jnp.where(usable, change, 0).reshape(start.shape)
        there = _look(moved, blocks, ridge)
        gain = accurate_sum(weights * (there.log_probabilities - view.log_probabilities))
        gain = gain - penalty(moved) + penalty(state.coefficients)
        better = usable & ((gain > 0) | (gap <= tol)) & jnp.isfinite(gain)
        view = jax.tree.map(lambda new, old: jnp.where(better, new, old), there, view)
        return State(
            jnp.where(better, moved, state.coefficients),
            view,
            jnp.where(better, jnp.where(damping < 0.01, 0, damping / 8), jnp.maximum(8 * damping, 1 / 64)),
            jnp.where(usable, gap, jnp.inf),
            state.num_iters + 1,
            better & (damping == 0) & (gap <= tol),
        )

    zero = jnp.zeros((), dtype)
    state = State(start, _look(start, blocks, ridge), zero, zero + jnp.inf, jnp.int32(0), jnp.asarray(False))
    return lax.while_loop(lambda state: ~state.converged & (state.num_iters < max_iters), step, state)
