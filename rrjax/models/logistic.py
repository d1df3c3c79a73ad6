"""The likelihood of a multinomial logistic regression with a randomized outcome, and its maximum.

log(π_k/π_0) = Σ_j x_j·β_jk for the categories k = 1 … K − 1, and a report of a user with shares π has the likelihood of
the mechanism. With w the posterior of the value given report and covariates, a report's slope in the logits is w − π,
and its information is (diag π − ππᵀ) − (diag w − wwᵀ): the information of the value, less the part that the report does
not reveal.

The maximum is found by Newton's method, or by L-BFGS or Adam of optax, which need no matrix of all coefficients.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.errors import check_installed
from rrjax.mechanisms.mechanism import LogRows
from rrjax.models.loss import MechanismOrEpsilon, rows_of
from rrjax.models.results import Units, as_covariates, as_weights, covariates_dtype, standardized
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.sharding import on_many_devices, unsharded, with_sharding_of
from rrjax.numerics.solvers import View, added_up, ascended, blocks_of, without_derivative
from rrjax.numerics.sums import log_sum

LEARNING_RATE = 0.02
"""Learning rate of Adam's first steps, on standardized covariates."""
NO_DERIVATIVES = (
    "models.fit and models.fit_outcome have no derivatives: take differences of two fits, or models.fit_family where "
    "there are no covariates"
)


class Data(NamedTuple):
    """Standardized covariates `[N, D]`, likelihoods of reports, and weights `[N]`."""

    covariates: Float[Array, "N D"]
    rows: LogRows
    weights: Float[Array, " N"]

    @property
    def shape(self) -> tuple[int, int]:
        """D and K − 1, the shape of the coefficients."""
        return self.covariates.shape[1], self.rows.lift.shape[1] - 1


class Posteriors(NamedTuple):
    """Log π and w − π of each user, `[N, K]`, accurate relative to itself, and log-probabilities of reports, `[N]`."""

    log_shares: Float[Array, "N K"]
    moved: Float[Array, "N K"]
    log_probabilities: Float[Array, " N"]


class Solution(NamedTuple):
    """The result of a solver: coefficients `[D, k]`, and its own estimate of the distance from the maximum, nats."""

    coefficients: Float[Array, "D k"]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]


def as_data(
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    num_categories: int | None,
    weights: ArrayLike | None,
    intercept: bool,
) -> tuple[Data, Units]:
    """The arguments of `fit`, checked, with standardized covariates."""
    given = unsharded(as_covariates(covariates))
    dtype, number = covariates_dtype(given), given.shape[0]
    rows = rows_of(reports, mechanism_or_epsilon, num_categories, number, dtype)
    weights = unsharded(as_weights(weights, number, dtype))
    standard, units = standardized(given, intercept)
    return without_derivative(Data(standard, LogRows(*map(unsharded, rows)), weights), NO_DERIVATIVES), units


def posteriors(coefficients: Float[Array, "D k"], covariates: Float[Array, "N D"], rows: LogRows) -> Posteriors:
    """The distribution of each user's value, before and after the report."""
    logits = matmul(covariates, coefficients)
    logits = jnp.concatenate([jnp.zeros_like(logits[:, :1]), logits], axis=1)
    log_shares = logits - log_sum(logits)[:, None]
    terms = rows.lift + log_shares
    total = jnp.logaddexp(rows.base, log_sum(terms))
    lifted = jnp.exp(terms - total[:, None])
    # Not by w itself: the difference of w and π loses its digits if ε is small.
    moved = lifted - jnp.sum(lifted, axis=1, keepdims=True) * jnp.exp(log_shares)
    return Posteriors(log_shares, moved, rows.scale + total)


def curvatures(posterior: Posteriors) -> tuple[Float[Array, "N k k"], Float[Array, "N k k"]]:
    """Observed and complete information of each report on the logits of the categories but the first."""
    pi, g = jnp.exp(posterior.log_shares[:, 1:]), posterior.moved[:, 1:]
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
    blocks = einsum("nij,nd,ne->diej", weighted, data.covariates, data.covariates)
    # Two pairs of axes, each by itself: on a mesh with explicit axes both at a time have no known sharding.
    return blocks.reshape(size, *blocks.shape[2:]).reshape(size, size)


def slope_of(posterior: Posteriors, data: Data) -> Float[Array, " P"]:
    """The slope of the log-likelihood in the coefficients."""
    return einsum("n,nd,nk->dk", data.weights, data.covariates, posterior.moved[:, 1:]).ravel()


def evaluated(coefficients: Float[Array, "D k"], blocks: Data, ridge: Float[Array, ""]) -> View:
    """The log-likelihood and its derivatives at some coefficients."""

    def of_block(data):
        posterior = posteriors(coefficients, data.covariates, data.rows)
        information = [on_coefficients(each, data) for each in curvatures(posterior)]
        return (slope_of(posterior, data), *information), data.weights * posterior.log_probabilities

    (slope, observed, complete), log_probabilities = added_up(of_block, blocks, coefficients)
    prior = ridge * jnp.eye(coefficients.size, dtype=coefficients.dtype)
    return View(
        log_probabilities,
        -ridge / 2 * jnp.sum(coefficients**2),
        slope - ridge * coefficients.ravel(),
        observed + prior,
        complete + prior,
    )


def bias(coefficients: Float[Array, "D k"], data: Data, inverse: Float[Array, "P P"]) -> Float[Array, "D k"]:
    """The expected error of the maximum-likelihood coefficients, to the order of 1/N.

    With V the inverse information and l a user's log-likelihood, the bias of coefficient r is
    Σ_s V_rs·Σ_jk V_jk·(½·E[l_sjk] + E[l_sj·l_k]), expectations being taken over the users of the data. Coefficients act
    only through the logits η = Bᵀx. With C = (x ⊗ 1)ᵀ V (x ⊗ 1) of each user, k × k, J(η) the user's observed
    information on the logits and g the score, the sums need only the slope of ⟨J(η), C⟩ and J·C·g: no array has three
    indices of coefficients.
    Cox and Snell, "A general definition of residuals", 1968; Firth, "Bias reduction of maximum likelihood estimates",
    1993.
    """
    size, width = coefficients.shape
    split = inverse.reshape(size, width, -1).reshape(size, width, size, width)

    def of_user(logits, rows, spread):
        # A batch of one, with the logits as the coefficients of a single covariate.
        one = jnp.ones((1, 1), logits.dtype)
        observed, _ = curvatures(posteriors(logits[None], one, LogRows(*(leaf[None] for leaf in rows))))
        return jnp.sum(observed[0] * spread)

    def of_block(block):
        spread = einsum("nd,diej,ne->nij", block.covariates, split, block.covariates)
        logits = matmul(block.covariates, coefficients)
        third = jax.vmap(jax.grad(of_user))(logits, block.rows, spread)
        posterior = posteriors(coefficients, block.covariates, block.rows)
        observed, _ = curvatures(posterior)
        product = einsum("nij,njk,nk->ni", observed, spread, posterior.moved[:, 1:])
        return einsum("n,nd,ni->di", block.weights, block.covariates, -third / 2 - product), ()

    total, _ = added_up(of_block, blocks_of(data), coefficients)
    return matmul(inverse, total.ravel()).reshape(size, width)


@partial(jax.jit, static_argnums=(3,))
def newton(data: Data, ridge: Float[Array, ""], tol: Float[Array, ""], max_iters: int) -> Solution:
    """Newton's method, from coefficients of zero."""
    blocks = blocks_of(data)
    start = jnp.zeros(data.shape, data.weights.dtype)
    state = ascended(lambda flat: evaluated(flat.reshape(data.shape), blocks, ridge), start.ravel(), tol, max_iters)
    return Solution(state.parameters.reshape(data.shape), state.gap, state.num_iters)


def _optax() -> Any:
    check_installed("models", "This solver", "optax")
    import optax

    return optax


def _log_likelihood(coefficients, data):
    return jnp.sum(data.weights * posteriors(coefficients, data.covariates, data.rows).log_probabilities)


@partial(jax.jit, static_argnums=(3,))
def lbfgs(data: Data, ridge: Float[Array, ""], tol: Float[Array, ""], max_iters: int) -> Solution:
    """L-BFGS with a line search, on all data: memory for N·K numbers and a few times D·K."""
    optax = _optax()
    if on_many_devices(data):  # optax's line search does not work on several devices
        raise NotImplementedError(
            "fit with solver 'l-bfgs' runs on one device: use solver 'newton' in shard_map and on meshes"
        )
    blocks, number = blocks_of(data), jnp.sum(data.weights)

    def loss(coefficients):
        # Only coefficients and data are kept for the backward pass; the rest is computed again.
        part = jax.checkpoint(lambda block: (-_log_likelihood(coefficients, block), ()))
        return (added_up(part, blocks, coefficients)[0] + ridge / 2 * jnp.sum(coefficients**2)) / number

    direction, search = optax.scale_by_lbfgs(), optax.scale_by_zoom_linesearch(max_linesearch_steps=30)
    start = jnp.zeros(data.shape, data.weights.dtype)

    def step(carry):
        point, memory, lines, _, num_iters = carry
        value, slope = optax.value_and_grad_from_state(loss)(point, state=lines)
        with jax.numpy_dtype_promotion("standard"):  # optax's own
            ahead, memory = direction.update(slope, memory, point)
            move, lines = search.update(-ahead, lines, point, value=value, grad=slope, value_fn=loss)
        gap = number * jnp.sum(slope * ahead) / 2
        return point + jnp.where(gap > tol, move, 0), memory, lines, gap, num_iters + 1

    def is_unfinished(carry):
        *_, gap, num_iters = carry
        # At its first step L-BFGS has no estimate of curvature, so that its gap is meaningless.
        return ((gap > tol) | (num_iters < 3)) & (num_iters < max_iters)

    first = start, direction.init(start), search.init(start), jnp.full((), jnp.inf, start.dtype), jnp.int32(0)
    point, _, _, gap, num_iters = lax.while_loop(is_unfinished, step, with_sharding_of(first, data))
    return Solution(point, gap, num_iters)


@partial(jax.jit, static_argnums=(3, 4))
def adam(key: Array, data: Data, ridge: Float[Array, ""], batch_size: int, num_epochs: int) -> Solution:
    """Adam on batches of users drawn without replacement; its rate falls to zero along a cosine."""
    optax = _optax()
    users = data.weights.shape[0]
    num_batches = users // batch_size
    total = jnp.sum(data.weights)
    start = jnp.zeros(data.shape, data.weights.dtype)
    adam = optax.scale_by_adam()

    def loss(coefficients, batch):
        # An unbiased estimate of the loss of all users.
        part = _log_likelihood(coefficients, batch) * (users / batch_size)
        return (ridge / 2 * jnp.sum(coefficients**2) - part) / total

    def step(carry, places):
        point, memory, num_iters = carry
        batch = jax.tree.map(lambda leaf: leaf[places], data)
        with jax.numpy_dtype_promotion("standard"):  # optax's own
            ahead, memory = adam.update(jax.grad(loss)(point, batch), memory, point)
        done = num_iters.astype(point.dtype) / (num_batches * num_epochs)
        rate = LEARNING_RATE * (1 + jnp.cos(jnp.pi * done)) / 2
        return (point - rate * ahead, memory, num_iters + 1), None

    def epoch(carry, key):
        order = jax.random.permutation(key, users)[: num_batches * batch_size].reshape(num_batches, batch_size)
        return lax.scan(step, carry, order)

    first = with_sharding_of((start, adam.init(start), jnp.int32(0)), data, key)
    (point, _, num_iters), _ = lax.scan(epoch, first, jax.random.split(key, num_epochs))
    return Solution(point, jnp.full((), jnp.nan, start.dtype), num_iters)
