"""Estimators in closed form of the true distribution, from the counts of randomized reports.

All have the signature `f(counts, epsilon, **options) -> theta` and solve one problem; a batch is `jax.vmap`, a gradient
`jax.grad`. They share a contract:

* **counts** `[K]`: how many reports named each category. Integers are treated exactly, at any size (totals up to 2³¹ −
  1 over fewer than 2²⁴ categories; with x64, up to 2⁶³ − 1). Floats are weights, with derivatives.
* **epsilon**: the privacy parameter in nats, a scalar, traced, so that a sweep compiles once.
* In place of both, some functions take a `Tally` of any pure mechanism: `inv(tally)`. Counts and ε stand for the tally
  of k-ary randomized response.
* **Result** `[K]`, in the dtype of float counts, else in the default float dtype.
* Errors that tracing cannot check (a negative count, no reports at all, a total beyond the integer dtype, ε ≤ 0, NaN)
  give all NaN, never a plausible number. Shapes and K ≥ 2 are checked at trace time (`ValueError`).
* Results are finite for ε from 1e-30 to infinity: e^ε − 1 is never computed as a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Shaped

from rrjax.data.arguments import as_counts_and_epsilon, count_summary
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Tally, as_tally, of_tally
from rrjax.estimators import water_filling
from rrjax.estimators.water_filling import Solver
from rrjax.numerics.programs import program
from rrjax.numerics.sums import accurate_sum, expm1_epsilon, ratio, reciprocal


def inv(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    r"""Estimates the shares by inverting the randomization (Inv): unbiased, often negative.

    θ_i = (c_i/N − q) / (p − q); for k-ary randomized response p = e^ε/(e^ε+K−1) and q = 1/(e^ε+K−1), and the estimate
    sums to one.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]`, not confined to [0, 1]. Accurate to a few units in the last place of max(φ_i, q)/(p − q).
        Derivatives: smooth in floats, in epsilon and in rates.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.inv([50, 30, 10, 10], epsilon=1.0).tolist()]
        [1.08, 0.42, -0.25, -0.25]

    References:
        Kairouz, Bonawitz and Ramage, "Discrete distribution estimation under local privacy", 2016, §2.
    """
    if isinstance(counts, Tally):
        return _inverted(as_tally(counts, epsilon))
    return _inv(*as_counts_and_epsilon(counts, epsilon))


def inv_n(counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares by inversion, with negative values set to zero and the rest renormalized (InvN).

    Water filling with the threshold τ = N·q; no search.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]` on the simplex. Derivatives of every order. For a count equal to τ, the one-sided derivatives with the
        category absent. If no category of a tally is above τ (impossible for counts of randomized response), the limit
        as τ rises to the largest count: equal shares for the largest counts.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, or an ε with a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.inv_n([50, 30, 10, 10], epsilon=1.0).tolist()]
        [0.72, 0.28, 0.0, 0.0]
    """
    if isinstance(counts, Tally):
        return _clipped_shares(_inverted(as_tally(counts, epsilon)))
    return _clipped(*as_counts_and_epsilon(counts, epsilon))


def mle_star(counts: ArrayLike, epsilon: ArrayLike, *, solver: Solver = "auto") -> Float[Array, " K"]:
    """Maximum likelihood estimate for k-ary randomized response, exact and in closed form (MLE*).

    The maximum drops every category whose share of the reports is below q *for the categories still in*, and inverts
    randomized response on the m active categories that stay: with f = c/S, θ = f + (m·f − 1)/expm1(ε).

    Args:
        counts: `[K]`, integers or floats, the reports per category.
        epsilon: Scalar, nats.
        solver: "sort" (sort and cumulative sums), "newton" (passes of compare-and-sum), or "auto", the faster one by
            `benchmarks/results/`: "newton", at every size measured.

    Returns:
        `[K]` on the simplex. For integer counts the support is that of exact arithmetic with the dtype's
        expm1(ε), θ is positive exactly there, within 1e-7 (float32) or 1e-14 (float64) of exact arithmetic in
        total variation at K = 1,423,000, and both solvers return the same bits. For floats they may differ in
        categories at the threshold up to rounding, where θ vanishes. Derivatives as of `inv_n`.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an unknown solver, or a tally. For another mechanism the maximum is
            `ibu(mechanism.mixture(reports))`.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.mle_star([50, 30, 10, 10], epsilon=1.0).tolist()]
        [0.77, 0.23, 0.0, 0.0]

    References:
        Pinzón et al., "Estimating the True Distribution of Data Collected with Randomized Response", AAAI 2026,
        arXiv:2601.08603, Algorithm 1, here without its loop.
    """
    return _mle[_pick(solver)](*as_counts_and_epsilon(counts, epsilon))


def inv_p(
    counts: ArrayLike | Tally, epsilon: ArrayLike | None = None, *, solver: Solver = "auto"
) -> Float[Array, " K"]:
    """Estimates the shares by the Euclidean projection of the inversion on the simplex (InvP).

    Water filling with τ = (S − N·d)/m, d = p − q. For a tally τ may be negative: then every category gains.

    Args:
        counts: `[K]`, integers or floats, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; not with a tally.
        solver: As in `mle_star`.

    Returns:
        `[K]` on the simplex. Both solvers return the same bits for integer counts; N·d carries a few roundings of the
        dtype, all else is exact. For a tally, the projection of `inv`, which is rounded. Derivatives as of `inv_n`.

    Raises:
        ValueError: A wrong shape or dtype, K < 2, an unknown solver, or an ε with a tally.

    Example:
        >>> import rrjax
        >>> [round(t, 2) for t in rrjax.inv_p([50, 30, 10, 10], epsilon=1.0).tolist()]
        [0.83, 0.17, 0.0, 0.0]

    References:
        Duchi et al., "Efficient projections onto the l1-ball for learning in high dimensions", 2008, Fig. 1.
    """
    if isinstance(counts, Tally):
        return projected_shares[_pick(solver)](_inverted(as_tally(counts, epsilon)))
    return _projected[_pick(solver)](*as_counts_and_epsilon(counts, epsilon))


def _pick(solver: Solver) -> Solver:
    if solver not in ("auto", "newton", "sort"):
        raise ArgumentError.about("solver", f"must be 'auto', 'newton' or 'sort', got {solver!r}", value=solver)
    return "newton" if solver == "auto" else solver


def _usable(counts, epsilon):
    """N, a lower bound of the largest count, e^ε − 1 (one if unusable), and whether counts and ε are usable."""
    seen, e1 = count_summary(counts), expm1_epsilon(epsilon)
    usable = seen.usable & (e1 > 0)
    return seen.total, seen.bound, jnp.where(usable, e1, 1), usable


def differentiable(solve: Callable[..., Array], closed_form: Callable[..., Array]) -> Callable[..., Array]:
    """`solve(*given)` with the derivatives of `closed_form(*given, active)`.

    The active set is piecewise constant, so the closed form on it has derivatives of every order, in both modes. The
    value stays that of `solve`.
    """
    estimator = jax.custom_jvp(program(solve))

    @estimator.defjvp
    def _(primals, tangents):
        theta = estimator(*primals)
        active = lax.stop_gradient(theta) > 0
        _, tangent = jax.jvp(lambda *given: closed_form(*given, active), primals, tangents)
        return theta, tangent

    return estimator


def _filled(counts, epsilon, solver, rule_of):
    """The estimate at the threshold of the rule for N and e1."""
    total, bound, e1, usable = _usable(counts, epsilon)
    rule, start = rule_of(total, e1), total
    if jnp.issubdtype(counts.dtype, jnp.integer):
        # Any subset of the categories bounds the threshold from below: all, or the largest alone.
        of_all = rule.below(total, jnp.asarray(counts.shape[0], counts.dtype))
        start = jnp.maximum(of_all, rule.below(bound, jnp.ones_like(total)))
        # Unusable counts could take K passes; from here they stop at once.
        start = jnp.where(usable, start, jnp.iinfo(counts.dtype).max)
    return jnp.where(usable, water_filling.solve(counts, rule, start, solver), jnp.nan)


def _solve_clipped(counts, epsilon):
    _, _, e1, usable = _usable(counts, epsilon)
    # With every category active the threshold of the likelihood is N·q.
    return jnp.where(usable, water_filling.clip(counts, water_filling.Likelihood(e1)), jnp.nan)


def _solve_mle(counts, epsilon, solver):
    return _filled(counts, epsilon, solver, lambda total, e1: water_filling.Likelihood(e1))


def _solve_projected(counts, epsilon, solver):
    return _filled(counts, epsilon, solver, lambda total, e1: water_filling.Projection.of(total, counts.shape[0], e1))


@program
def _inv(counts, epsilon):
    total, _, e1, usable = _usable(counts, epsilon)
    if jnp.issubdtype(counts.dtype, jnp.floating):
        total = accurate_sum(counts)
    share = counts.astype(e1.dtype) * reciprocal(total.astype(e1.dtype))
    return jnp.where(usable, share + (counts.shape[0] * share - 1) * reciprocal(e1), jnp.nan)


@program
def _inverted(tally):
    data = of_tally(tally)
    return jnp.where(data.usable, data.excess / (data.num_users * data.rates.d), jnp.nan)


def _solve_clipped_shares(shares):
    above = jnp.maximum(shares, 0)
    total = accurate_sum(above)
    largest = (shares == jnp.max(shares)).astype(shares.dtype)
    positive = ~(total <= 0)  # or NaN
    return jnp.where(positive, above / jnp.where(positive, total, 1), largest / jnp.sum(largest))


def _solve_projected_shares(shares, solver):
    one = jnp.ones((), shares.dtype)
    return water_filling.solve(shares, water_filling.Projection(one, jnp.int32(1), 0 * one), jnp.min(shares), solver)


def _active_weights(counts, epsilon, active):
    """S, m, the active counts (zero elsewhere), and e1, all in floating point."""
    weights = jnp.where(active, counts.astype(epsilon.dtype), 0)
    return accurate_sum(weights), jnp.sum(active, dtype=epsilon.dtype), weights, expm1_epsilon(epsilon)


def _clipped_form(counts, epsilon, active):
    weights, e1 = counts.astype(epsilon.dtype), expm1_epsilon(epsilon)
    mean = accurate_sum(weights) / counts.shape[0]
    above = jnp.where(active, (weights - mean) + mean * ratio(e1, e1 + counts.shape[0]), 0)
    return above / accurate_sum(above)


def mle_on_support(
    counts: Shaped[Array, " K"], epsilon: Float[Array, ""], active: Bool[Array, " K"]
) -> Float[Array, " K"]:
    """MLE* in closed form on a given support, with all derivatives in counts and epsilon."""
    total, number, weights, e1 = _active_weights(counts, epsilon, active)
    share = weights / total
    return jnp.where(active, share + (number * share - 1) / e1, 0)


def _projected_form(counts, epsilon, active):
    total, number, weights, e1 = _active_weights(counts, epsilon, active)
    kept = accurate_sum(counts.astype(epsilon.dtype)) * ratio(e1, e1 + counts.shape[0])
    return jnp.where(active, 1 / number + (weights - total / number) / kept, 0)


def _clipped_shares_form(shares, active):
    kept = jnp.where(active & (shares > 0), shares, 0)
    total = accurate_sum(kept)
    return kept / jnp.where(total > 0, total, 1)


def _projected_shares_form(shares, active):
    kept = jnp.where(active, shares, 0)
    number = jnp.sum(active, dtype=shares.dtype)
    return jnp.where(active, shares + (1 - accurate_sum(kept)) / number, 0)


def _by_solver(solve, closed_form):
    return {name: differentiable(partial(solve, solver=name), closed_form) for name in ("newton", "sort")}


_clipped = differentiable(_solve_clipped, _clipped_form)
_mle = _by_solver(_solve_mle, mle_on_support)
_projected = _by_solver(_solve_projected, _projected_form)
_clipped_shares = differentiable(_solve_clipped_shares, _clipped_shares_form)
projected_shares = _by_solver(_solve_projected_shares, _projected_shares_form)
"""The Euclidean projection of any `[K]` on the simplex, by solver."""
