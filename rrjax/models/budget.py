"""A privacy budget, split between several questions to the same users."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_array, as_scalar, float_dtype, is_real
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.inference.precision import squared_error_of_one
from rrjax.mechanisms import MechanismFactory, RandomizedResponse
from rrjax.models.results import as_list, require
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of
from rrjax.numerics.solvers import ascend


@exportable
class BudgetSplit(NamedTuple):
    """A split of a budget, with its errors and a certificate.

    Attributes:
        epsilons: `[J]`, nats, the ε of each question. Their exact sum is at most the budget, less only by rounding.
        errors: `[J]`, the expected squared error of each question's unbiased estimate, summed over its categories.
        objective: Scalar, the minimized weighted sum of the errors, or the given function.
        gain: Scalar, the objective of equal ε over this one.
        marginals: `[J]`, the decrease of the objective for one more nat of a question: equal at the minimum.
        gap: Scalar: an upper bound of the distance from the minimum, if the objective is convex.
        num_iters: Scalar, the number of steps.
        converged: Scalar: whether Newton's method ended.
    """

    epsilons: Float[Array, " J"]
    errors: Float[Array, " J"]
    objective: Float[Array, ""]
    gain: Float[Array, ""]
    marginals: Float[Array, " J"]
    gap: Float[Array, ""]
    num_iters: Int[Array, ""]
    converged: Bool[Array, ""]


def split_budget(
    total_epsilon: ArrayLike,
    num_categories: Sequence[int],
    num_users: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    mechanism: MechanismFactory | Sequence[MechanismFactory] = RandomizedResponse,
    objective: Callable[[Float[Array, " J"]], ArrayLike] | None = None,
) -> BudgetSplit:
    r"""The split of ε between J questions that every user answers with the least error.

    By sequential composition the reports of one user spend Σ ε_j at most. The minimum of

        Σ_j w_j·E_j(ε_j),    Σ_j ε_j = ε,

    with E_j the expected squared error of `inv` (`mechanism.expected_squared_error`), has equal w_j·E_j'(ε_j). It is
    found by damped Newton steps in the logarithms of the ratios ε_j/ε_1, from ε_j ∝ (w_j·E_j)^⅓, the limit for small ε.
    E_j is convex for randomized response, and for every mechanism without a parameter chosen by ε. Then the objective
    is at most

        gap = ε·max_j m_j − Σ_j ε_j·m_j,    m_j = −w_j·E_j'(ε_j),

    above the minimum: a certificate. The error of a mechanism that chooses a parameter by ε (subset size, field order)
    is convex only between changes of the parameter; then the result is a local minimum.

    In another design every user answers only one of the questions, with all of ε. If question j has the share π_j of
    the users, the least Σ w_j·E_j(ε)/π_j is (Σ sqrt(w_j·E_j(ε)))²: for J equal questions and small ε a J-th of the
    error of splitting. (The error of sampling is added, at most w_j/(N·π_j).) Split if the answers of one user are
    needed together.

    Args:
        total_epsilon: Scalar, ε, nats.
        num_categories: J numbers, each at least 2. Static.
        num_users: Scalar, N.
        weights: `[J]`, positive. None is one for each.
        mechanism: Class of the mechanism, or a function of K and ε, for all questions or one for each. Static.
        objective: A function in place of the weighted sum, from ε_j `[J]` to a positive scalar, in JAX, such as the
            largest error or the sum of `jnp.log` of the errors. It should decrease in each ε_j. Static.

    Returns:
        `BudgetSplit`. ε_j have first derivatives in the budget and the weights. NaN if the budget, a weight or N is not
        positive.

    Raises:
        ValueError: No questions, K < 2, shapes that do not fit, weights with an objective, or (not under tracing) a
            weight or a budget that is not positive.

    Example:
        >>> from rrjax.models import split_budget
        >>> split = split_budget(3.0, [2, 10, 100], 10_000)
        >>> [round(e, 2) for e in split.epsilons.tolist()], round(float(split.gain), 2)
        ([0.21, 0.67, 2.12], 9.39)

    References:
        Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, theorem 3.16 (composition).
    """
    sizes = tuple(as_list(num_categories))
    if not sizes:
        raise ArgumentError.about(
            "num_categories", f"must be a sequence, the K of each question, got {num_categories!r}"
        )
    for size in sizes:
        check_num_categories(size)
    sizes = tuple(int(size) for size in sizes)
    designs = tuple(mechanism) if isinstance(mechanism, Sequence) else (mechanism,) * len(sizes)
    if len(designs) != len(sizes):
        raise ArgumentError(
            f"there are {len(sizes)} questions and {len(designs)} mechanisms: give one, or one for each",
            argument="mechanism",
        )
    dtype = float_dtype()
    total, number = as_scalar(total_epsilon, dtype, "total_epsilon"), as_scalar(num_users, dtype, "num_users")
    if not isinstance(total, Tracer) and not (total > 0 and jnp.isfinite(total)):
        raise ArgumentError.about("total_epsilon", f"must be positive and finite, got {float(total):g}")
    if objective is not None and weights is not None:
        raise ArgumentError("weights are for the weighted sum: leave them out beside an objective", argument="weights")
    weights = _weights(weights, len(sizes), dtype)
    total = jnp.where(jnp.isfinite(total) & (total > 0) & (number > 0) & jnp.all(weights > 0), total, jnp.nan)
    loss = _Loss(sizes, designs, objective)
    given = total, weights
    equal = jnp.full(len(sizes), 1, dtype) * (total / len(sizes))
    if objective is None:
        share = jnp.cbrt(weights * _errors(sizes, designs, equal))
        start = jnp.log(share[1:] / share[0])
    else:
        start = jnp.zeros(len(sizes) - 1, dtype)
    # Relative to the objective; smaller differences are rounding.
    tol = jnp.asarray(1e-14 if dtype == jnp.float64 else 2e-7, dtype)
    if len(sizes) > 1:
        state = ascend(loss, start, given, tol, 100)
        point, num_iters, converged = state.point, state.num_iters, state.converged
    else:
        point, num_iters, converged = start, jnp.int32(0), jnp.isfinite(total)
    epsilons = _split(point, total)
    minimum, slope = jax.value_and_grad(loss)(epsilons, weights)
    marginals = -slope
    scale = jnp.ones_like(number) if objective is not None else number
    # Rounding may add half a machine epsilon for each question in the sum of shares, and for each of four steps.
    margin = (len(sizes) + 6) / 2 * float(jnp.finfo(dtype).eps)
    return BudgetSplit(
        epsilons=epsilons * (1 - margin),
        errors=_errors(sizes, designs, epsilons) / number,
        objective=minimum / scale,
        gain=loss(equal, weights) / minimum,
        marginals=marginals / scale,
        gap=(total * jnp.max(marginals) - jnp.sum(epsilons * marginals)) / scale,
        num_iters=num_iters,
        converged=converged,
    )


def _weights(weights, number, dtype):
    if weights is None:
        return jnp.ones(number, dtype)
    weights = as_array(weights, "weights")
    is_per_question = weights.shape == (number,) and is_real(weights)
    require(is_per_question, "weights", f"{number} numbers, one for each question", weights)
    if not isinstance(weights, Tracer):
        wrong = np.flatnonzero(~(np.isfinite(np.asarray(weights)) & (np.asarray(weights) > 0)))
        if wrong.size:
            raise ArgumentError(
                f"weight {wrong[0]} is {weights[wrong[0]]:g}: weights are positive; leave out a question instead",
                argument="weights",
            )
    return jnp.asarray(weights, dtype)


def _errors(sizes, designs, epsilons):
    """Expected squared error of each question, times N."""
    each = zip(sizes, designs, epsilons, strict=True)
    return jnp.stack([squared_error_of_one(size, epsilon, design) for size, design, epsilon in each])


def _split(point, total):
    """The ε of each question, from the logarithms of their ratios to the first."""
    return total * jax.nn.softmax(jnp.concatenate(with_sharding_of([jnp.zeros(1, point.dtype), point])))


@dataclasses.dataclass(frozen=True)
class _Loss:
    """The objective. Its logarithm is minimized, so that the tolerance is relative."""

    sizes: tuple[int, ...]
    designs: tuple[MechanismFactory, ...]
    objective: Callable[[Any], Any] | None

    def __call__(self, epsilons, weights):
        if self.objective is not None:
            return jnp.asarray(self.objective(epsilons), epsilons.dtype)
        return jnp.sum(weights * _errors(self.sizes, self.designs, epsilons))

    def value(self, point, given):
        total, weights = given
        return -jnp.log(self(_split(point, total), weights))

    def gain(self, new, old, given):
        return self.value(new, given) - self.value(old, given)
