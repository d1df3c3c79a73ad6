"""Independence of two attributes whose pairs were randomized as one."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rrjax.data.arguments import survey
from rrjax.data.tally import Rates, Tally
from rrjax.estimators.closed_form import inv_p
from rrjax.inference.monte_carlo import HypothesisTest, compared
from rrjax.numerics.sums import accurate_sum, expm1_epsilon
from rrjax.simulate.sampling import Stream, multinomial


@partial(jax.jit, static_argnums=3)
def pairs_tested(key: Array, counts: Int[Array, "K L"], epsilon: Float[Array, ""], num_draws: int) -> HypothesisTest:
    """Pearson's statistic of reported pairs against independent values, simulated at the margins that were estimated.

    Independent values make dependent reports here, because a report is the truth in both attributes or in none: with
    margins a and b the pair (i, j) is reported with probability d·a_i·b_j + (1 − d)/KL.
    """
    seen, e1 = survey(counts.ravel()), expm1_epsilon(epsilon)
    usable = seen.simulable & (e1 > 0)
    counts = jnp.where(usable, counts, 1)
    # Beyond, a pair that nobody holds is reported less often than any float: its weight would be infinite.
    e1 = jnp.where(usable, jnp.minimum(e1, jnp.finfo(e1.dtype).max ** 0.5), 1)
    number = jnp.where(usable, seen.total, counts.size).astype(jnp.int32)
    statistic, law = _pearson(counts, number, e1)
    law = (law / accurate_sum(law.ravel())).ravel()

    def draw(key):
        (cells,) = multinomial(Stream.of(key), number, law[None])
        return _pearson(cells.reshape(counts.shape), number, e1)[0]

    return compared(
        key,
        jnp.where(usable, statistic, jnp.nan),
        draw,
        num_draws,
        counts.size,
        "Pearson's statistic against independent values, simulated at their estimated margins",
    )


def _pearson(table, number, e1):
    """Pearson's statistic against independent values, and the law `[K, L]` that these follow.

    Of the difference to the law with unbiased margins, of any sign, all that other margins could explain is taken away
    (one Gauss–Newton step towards the most likely ones). What is left has (K − 1)(L − 1) degrees of freedom whatever
    the margins are, at zero too; so a simulation at estimated margins keeps its level.
    """
    num_rows, num_columns = table.shape
    size = table.size
    d, noise = e1 / (e1 + size), 1 / (e1 + size)
    users = number.astype(e1.dtype)
    # Of one attribute alone: a report names its value with d more than any other's probability of L, or of K, pairs.
    of_rows = Tally(jnp.sum(table, axis=1), number, rates=Rates(num_columns, size - num_columns, e1).astype(e1.dtype))
    of_columns = Tally(jnp.sum(table, axis=0), number, rates=Rates(num_rows, size - num_rows, e1).astype(e1.dtype))
    plain = [_inverted(tally, users, d) for tally in (of_rows, of_columns)]
    difference = table.astype(e1.dtype) / users - (d * jnp.outer(*plain) + noise)
    rows, columns = inv_p(of_rows), inv_p(of_columns)
    law = d * jnp.outer(rows, columns) + noise
    # Least squares of x·columns + rows·y, weighted by 1/law, over changes x and y that sum to 0 each: x is eliminated.
    weights = 1 / law
    x_wanted, y_wanted = (difference * weights) @ columns, rows @ (difference * weights)
    across = jnp.outer(rows, columns) * weights
    inverse = 1 / (weights @ columns**2)

    def eliminated(right):
        """The changes x `[K, M]` that sum to 0 and explain each column of the right side best."""
        raw = inverse[:, None] * right
        return raw - inverse[:, None] * (jnp.sum(raw, axis=0) / jnp.sum(inverse))

    square = jnp.diag(rows**2 @ weights) - across.T @ eliminated(across)
    one = jnp.ones((num_columns, 1), square.dtype)
    bordered = jnp.block([[square, one], [one.T, jnp.zeros((1, 1), square.dtype)]])
    x = eliminated(x_wanted[:, None])
    y_left = jnp.append(y_wanted - (across.T @ x)[:, 0], 0)
    explained = x_wanted @ x[:, 0] + y_left @ jnp.linalg.solve(bordered, y_left)
    return users * (jnp.sum(difference**2 * weights) - explained), law


def _inverted(tally, users, d):
    """The unbiased share of every category, of any sign."""
    return (tally.support.astype(users.dtype) / users - tally.rates.q) / d
