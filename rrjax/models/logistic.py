"""The likelihood of a multinomial logistic regression whose outcome is seen through a mechanism.

log(π_k/π_0) = Σ_j x_j·β_jk for the categories k = 1 … K − 1, and a report of a user with such a π has the likelihood of
the mechanism. With w the posterior of the value given report and covariates, a report's slope in the logits is w − π,
and its information (diag π − ππᵀ) − (diag w − wwᵀ): what the value would tell, less what the report leaves open.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from rrjax.mechanisms.rows import LogRows
from rrjax.numerics.newton import State, View, added_up, ascended, blocks_of
from rrjax.numerics.sums import log_sum


class Data(NamedTuple):
    """Standardized covariates `[N, D]`, reports, and weights `[N]`."""

    covariates: Float[Array, "N D"]
    rows: LogRows
    weights: Float[Array, " N"]


class Posteriors(NamedTuple):
    """Of each user.

    Attributes:
        log_shares: `[N, K]`, log π.
        moved: `[N, K]`, w − π, accurate relative to itself.
        log_probabilities: `[N]`, of the report.
    """

    log_shares: Float[Array, "N K"]
    moved: Float[Array, "N K"]
    log_probabilities: Float[Array, " N"]


def posteriors(coefficients: Float[Array, "D k"], covariates: Float[Array, "N D"], rows: LogRows) -> Posteriors:
    """What users hold, before and after their reports were seen."""
    logits = covariates @ coefficients
    logits = jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1)
    log_shares = logits - log_sum(logits)[:, None]
    terms = rows.lift + log_shares
    total = jnp.logaddexp(rows.base, log_sum(terms))
    lifted = jnp.exp(terms - total[:, None])
    # Not w itself, which would take the digits of the difference where ε is small.
    moved = lifted - jnp.sum(lifted, axis=1, keepdims=True) * jnp.exp(log_shares)
    return Posteriors(log_shares, moved, rows.scale + total)


def curvatures(seen: Posteriors) -> tuple[Float[Array, "N k k"], Float[Array, "N k k"]]:
    """Observed and complete information of each report on the logits of the categories but the first."""
    pi, g = jnp.exp(seen.log_shares[:, 1:]), seen.moved[:, 1:]
    diagonal = jnp.eye(pi.shape[1], dtype=pi.dtype)
    outer = pi[:, :, None] * pi[:, None, :]
    cross = g[:, :, None] * pi[:, None, :]
    complete = pi[:, :, None] * diagonal - outer
    observed = cross + cross.transpose(0, 2, 1) + g[:, :, None] * g[:, None, :] - g[:, :, None] * diagonal
    return observed, complete


def on_coefficients(each: Float[Array, "N k k"], data: Data) -> Float[Array, "P P"]:
    """The sum of informations on the logits, as information on the coefficients."""
    size = data.covariates.shape[1] * each.shape[1]
    weighted = data.weights[:, None, None] * each
    return jnp.einsum("nij,nd,ne->diej", weighted, data.covariates, data.covariates).reshape(size, size)


def look(coefficients: Float[Array, "D k"], blocks: Data, ridge: Float[Array, ""]) -> View:
    """What there is to see at some coefficients."""

    def seen(data):
        found = posteriors(coefficients, data.covariates, data.rows)
        slope = jnp.einsum("n,nd,nk->dk", data.weights, data.covariates, found.moved[:, 1:]).ravel()
        information = [on_coefficients(each, data) for each in curvatures(found)]
        return (slope, *information), data.weights * found.log_probabilities

    (slope, observed, complete), log_probabilities = added_up(seen, blocks, coefficients)
    prior = ridge * jnp.eye(coefficients.size, dtype=coefficients.dtype)
    return View(
        log_probabilities,
        -ridge / 2 * jnp.sum(coefficients**2),
        slope - ridge * coefficients.ravel(),
        observed + prior,
        complete + prior,
    )


@partial(jax.jit, static_argnums=(3,))
def maximum(data: Data, ridge: Float[Array, ""], tol: Float[Array, ""], max_iters: int) -> State:
    """The maximum by Newton's method, from coefficients of zero."""
    blocks = blocks_of(data)
    shape = data.covariates.shape[1], data.rows.lift.shape[1] - 1
    start = jnp.zeros(shape, data.weights.dtype)
    return ascended(lambda flat: look(flat.reshape(shape), blocks, ridge), start.ravel(), tol, max_iters)
