"""Exact draws of the support counts of several rounds of the same users, whose values do not change."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Int

from rrjax import simulate
from rrjax.data.tally import Rates
from rrjax.mechanisms.draws import gathered
from rrjax.mechanisms.mechanism import CELLS
from rrjax.mechanisms.unary import UnaryEncoding, sum_of_bits
from rrjax.numerics.sharding import refuse_spread

MOST_REPORTS = 2**31 - 1
"""Largest number of reports of all rounds together, N·T."""


def of_answers(
    key: Array, true_counts: Array, epsilon: ArrayLike, second_epsilon: ArrayLike, num_rounds: int
) -> tuple[Int[Array, " K"], Int[Array, ""]]:
    """Counts of all rounds of two randomized responses in a row, and their number; −1 if they cannot be drawn.

    Given the memos, the reports are independent: T rounds are one round of T users with each memo. O(K).
    """
    of_memos, of_reports = jax.random.split(key)
    memos = simulate.randomized(of_memos, true_counts, epsilon)
    fits = _fits(memos, jnp.sum(memos), num_rounds)
    counts = simulate.randomized(of_reports, jnp.where(fits, memos * num_rounds, -1), second_epsilon)
    return counts, jnp.where(counts[0] < 0, -1, jnp.sum(counts))


def of_bits(
    key: Array, true_counts: Array, memo_mechanism: UnaryEncoding, instantaneous: Rates, num_rounds: int
) -> tuple[Int[Array, " K"], Int[Array, ""]]:
    """Support counts of all rounds of unary encodings, and the number of reports; −1 if they cannot be drawn.

    Given the memos, bit i of the reports is set Binomial(T·m_i, p2) + Binomial(T·(N − m_i), q2) times; it is set in m_i
    memos. O(K).
    """
    of_memos, of_reports = jax.random.split(key)
    memos = memo_mechanism.collect(of_memos, true_counts)
    usable = _fits(memos.support, memos.num_users, num_rounds) & (instantaneous.truth > 0)
    held = jnp.where(usable, memos.support, 0).astype(jnp.int32) * num_rounds
    number = jnp.where(usable, memos.num_users, 0).astype(jnp.int32) * num_rounds
    support = sum_of_bits(of_reports, held, number, instantaneous, usable)
    return jnp.where(usable, support, -1), jnp.where(usable, number, -1)


@jax.jit
def of_users(protocol: Any, key: Array, true_counts: Array, num_rounds: int) -> tuple[Int[Array, " K"], Int[Array, ""]]:
    """Support counts of all rounds, and the number of reports, from simulated users; −1 if they cannot be drawn."""
    single = protocol.single_round
    key, true_counts = refuse_spread((key, true_counts), f"{type(protocol).__name__}.collect")

    def add(total, key, values, exists):
        of_memo, of_rounds = jax.random.split(key)
        memo = protocol.memoize(of_memo, values)

        def add_round(number, total):
            reports = protocol.report(jax.random.fold_in(of_rounds, number), memo)
            supported = single.supports(reports) & exists[:, None]
            return total + jnp.sum(supported, axis=0, dtype=total.dtype)

        return lax.fori_loop(0, num_rounds, add_round, total)

    size = protocol.num_categories
    users = max(1, min(1 << 12, CELLS // size))
    support, number, usable = gathered(add, key, true_counts, users, jnp.zeros(size, jnp.int32))
    usable = usable & _fits(support, number, num_rounds) & (single.rates.truth > 0)
    return jnp.where(usable, support, -1), jnp.where(usable, number * num_rounds, -1)


def _fits(support, number, num_rounds) -> Bool[Array, ""]:
    return jnp.all(support >= 0) & (number >= 0) & (number <= MOST_REPORTS // num_rounds)
