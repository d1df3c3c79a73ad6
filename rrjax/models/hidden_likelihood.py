"""The likelihood of a regression whose outcome and some covariates are randomized, and its derivatives.

A user has known covariates x, beginning with a one, and hidden covariates. Their values are one cell c of a joint
table; z_c are its dummies. The model has two parts:

    log P(c | x) = a_c + Σ_{j>0} x_j·(G z_c)_j + constant,        log(P(y = k | x, c)/P(y = 0 | x, c)) = (x, z_c)·β_k.

The reports of a user are independent given (c, y). Their likelihood is the sum over all cells and outcomes of the two
probabilities and of the likelihood of each report.

With q the posterior of (c, y), g_ck = q_ck − q_c·π_ck is the slope in the logits of the outcome, and m_c = q_c −
P(c | x) that in the logits of the cells. The observed information is the complete one less the covariance of the
complete scores under q (Louis). All of it is sums of products of g, m, x and z: no user has a matrix of all parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rrjax.numerics.newton import View, added_up
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.sums import log_sum


class Data(NamedTuple):
    """Standardized covariates `[N, D]`, log-likelihoods `[N, K]` of outcome and hidden columns, and weights `[N]`."""

    covariates: Float[Array, "N D"]
    outcome: Float[Array, "N K"]
    hidden: tuple[Float[Array, "N K_j"], ...]
    weights: Float[Array, " N"]


class Parameters(NamedTuple):
    """Coefficients of the outcome, `[D + E, k]`; logits of the cells but the first, `[H − 1]`, and slopes, `[D, E]`."""

    coefficients: Float[Array, "M k"]
    cells: Float[Array, " h"]
    slopes: Float[Array, "d E"]


class Design(NamedTuple):
    """Dummies of each cell `[H, E]`, and the columns of x and of z with a coefficient."""

    dummies: Float[Array, "H E"]
    of_known: np.ndarray
    of_hidden: np.ndarray


def dummies_of(sizes: Sequence[int], dtype: np.dtype) -> Float[Array, "H E"]:
    """The dummies of each cell of a table of these sizes."""
    values = np.indices(sizes).reshape(len(sizes), -1)
    dummies = [own[:, None] == np.arange(1, size) for own, size in zip(values, sizes, strict=True)]
    return jnp.asarray(np.concatenate(dummies, axis=1), dtype)


def designed(dummies: Float[Array, "H E"], kept: tuple[int, ...], num_known: int) -> Design:
    """The dummies, and the columns `kept` of (x, z)."""
    known = np.asarray([place for place in kept if place < num_known], int)
    hidden = np.asarray([place - num_known for place in kept if place >= num_known], int)
    return Design(dummies, known, hidden)


class Posteriors(NamedTuple):
    """Shares of outcomes π `[N, H, K]` and cells `[N, H]`, slopes in their logits, and the log-likelihood of a user."""

    shares: Float[Array, "N H K"]
    of_cells: Float[Array, "N H"]
    slope: Float[Array, "N H k"]
    slope_of_cells: Float[Array, "N H"]
    log_probabilities: Float[Array, " N"]


def posteriors(parameters: Parameters, data: Data, design: Design) -> Posteriors:
    """The distribution of each user's cell and outcome, before and after the reports."""
    x, z = data.covariates, design.dummies
    by_known, by_hidden = jnp.split(parameters.coefficients, [len(design.of_known)])
    logits = matmul(x[:, design.of_known], by_known)[:, None] + matmul(z[:, design.of_hidden], by_hidden)
    logits = jnp.concatenate([jnp.zeros_like(logits[..., :1]), logits], axis=-1)
    log_shares = logits - log_sum(logits)[..., None]
    cells = jnp.concatenate([jnp.zeros_like(parameters.cells[:1]), parameters.cells])
    cells = cells + matmul(x[:, 1:], parameters.slopes, z.T)
    log_cells = cells - log_sum(cells)[:, None]
    of_reports = jnp.zeros_like(x[:, :1])
    for rows in data.hidden:
        of_reports = (of_reports[:, :, None] + rows[:, None, :]).reshape(x.shape[0], -1)
    terms = (log_cells + of_reports)[:, :, None] + log_shares + data.outcome[:, None, :]
    total = log_sum(terms.reshape(x.shape[0], -1))
    posterior = jnp.exp(terms - total[:, None, None])
    shares, of_cells, whole = jnp.exp(log_shares), jnp.exp(log_cells), jnp.sum(posterior, axis=2)
    slope = (posterior - whole[..., None] * shares)[..., 1:]
    return Posteriors(shares, of_cells, slope, whole - of_cells, total)


def _of_cells(numbers: Float[Array, "N H"], data: Data, design: Design) -> Float[Array, "N A"]:
    """Σ_c numbers_c times the features of the cells' logits: one for each cell but the first, and x ⊗ z_c."""
    slopes = data.covariates[:, 1:, None] * matmul(numbers, design.dummies)[:, None, :]
    return jnp.concatenate([numbers[:, 1:], slopes.reshape(slopes.shape[0], -1)], axis=1)


def scores_of(found: Posteriors, data: Data, design: Design) -> tuple[Float[Array, "N B"], Float[Array, "N A"]]:
    """Each user's slope in the coefficients, and in the parameters of the cells; without weights."""
    number = data.weights.shape[0]
    known = data.covariates[:, design.of_known, None] * jnp.sum(found.slope, axis=1)[:, None, :]
    hidden = einsum("nck,ce->nek", found.slope, design.dummies[:, design.of_hidden])
    of_outcome = jnp.concatenate([known, hidden], axis=1).reshape(number, -1)
    return of_outcome, _of_cells(found.slope_of_cells, data, design)


def _of_outcome(each: Float[Array, "N H k k"], data: Data, design: Design) -> Float[Array, "B B"]:
    """Information on the logits of the outcome, as information on the coefficients."""
    x, z = data.covariates[:, design.of_known], design.dummies[:, design.of_hidden]
    each = data.weights[:, None, None, None] * each
    first = einsum("nij,nd,ne->diej", jnp.sum(each, axis=1), x, x)
    cross = einsum("neij,nd->diej", einsum("ncij,ce->neij", each, z), x)
    last = einsum("cij,cd,ce->diej", jnp.sum(each, axis=0), z, z)
    upper = jnp.concatenate([first, cross], axis=2)
    lower = jnp.concatenate([cross.transpose(2, 3, 0, 1), last], axis=2)
    whole = jnp.concatenate([upper, lower])
    return whole.reshape(whole.shape[0] * whole.shape[1], -1)


def _squares(numbers: Float[Array, "N H"], data: Data, design: Design) -> Float[Array, "A A"]:
    """Σ_n w Σ_c numbers_nc times the outer product of the features of cell c."""
    x, z, numbers = data.covariates[:, 1:], design.dummies, data.weights[:, None] * numbers
    size = x.shape[1] * z.shape[1]
    cross = einsum("cd,ce->cde", matmul(numbers.T, x), z).reshape(z.shape[0], size)[1:]
    pairs = einsum("nc,ce,cg->neg", numbers, z, z)
    last = einsum("nd,nf,neg->defg", x, x, pairs).reshape(size, size)
    return jnp.block([[jnp.diag(jnp.sum(numbers, axis=0)[1:]), cross], [cross.T, last]])


def _products(found: Posteriors, data: Data, design: Design) -> Float[Array, "B A"]:
    """Σ_n w Σ_c (x, z_c) ⊗ g_c ⊗ the features of cell c."""
    x, rest = data.covariates[:, design.of_known], data.covariates[:, 1:]
    z, kept = design.dummies, design.dummies[:, design.of_hidden]
    slope = data.weights[:, None, None] * found.slope
    width = z.shape[1] * rest.shape[1]
    with_cells = jnp.concatenate([
        einsum("nck,nd->dkc", slope, x), einsum("ck,ce->ekc", jnp.sum(slope, axis=0), kept)
    ])  # fmt: skip
    on_known = einsum("nkh,nd,nf->dkfh", einsum("nck,ch->nkh", slope, z), x, rest)
    on_hidden = einsum("nekh,nf->ekfh", einsum("nck,ce,ch->nekh", slope, kept, z), rest)
    with_slopes = jnp.concatenate([on_known, on_hidden]).reshape(*with_cells.shape[:2], width)
    whole = jnp.concatenate([with_cells[..., 1:], with_slopes], axis=2)
    return whole.reshape(-1, whole.shape[2])


def evaluated(flat, unravel, blocks: Data, design: Design, log_prior) -> View:
    """The log-likelihood and its derivatives at some parameters."""
    parameters = unravel(flat)

    def of_block(data):
        found = posteriors(parameters, data, design)
        weights = data.weights[:, None]
        pi, g, p, m = found.shares[..., 1:], found.slope, found.of_cells, found.slope_of_cells
        diagonal = jnp.eye(pi.shape[2], dtype=pi.dtype)
        cross = g[..., :, None] * pi[..., None, :]
        missing = cross + cross.swapaxes(2, 3) - g[..., :, None] * diagonal
        complete = (p + m)[..., None, None] * (pi[..., :, None] * diagonal - pi[..., :, None] * pi[..., None, :])
        score, score_of_cells = scores_of(found, data, design)
        expected = _of_cells(p, data, design)
        first = _of_outcome(missing, data, design) + matmul(score.T, weights * score)
        corner = matmul(score.T, weights * (expected + score_of_cells)) - _products(found, data, design)
        mixed = matmul(expected.T, weights * score_of_cells)
        last = mixed + mixed.T + matmul(score_of_cells.T, weights * score_of_cells) - _squares(m, data, design)
        known = _squares(p, data, design) - matmul(expected.T, weights * expected)
        sums = (
            jnp.sum(weights * jnp.concatenate([score, score_of_cells], axis=1), axis=0),
            jnp.block([[first, corner], [corner.T, last]]),
            jax.scipy.linalg.block_diag(_of_outcome(complete, data, design), known),
        )
        return sums, data.weights * found.log_probabilities

    (slope, observed, complete), each = added_up(of_block, blocks, flat)
    more = -jax.hessian(log_prior)(flat)
    return View(each, log_prior(flat), slope + jax.grad(log_prior)(flat), observed + more, complete + more)
