"""Fake reports: how many would overturn a finding, and what counts say if so many are."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_counts_and_epsilon, as_probability, as_values, complement, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import Tally, as_tally, of_tally, support_data
from rrjax.inference.contradiction import log_above
from rrjax.mechanisms import RandomizedResponse
from rrjax.numerics.programs import program
from rrjax.numerics.pytrees import exportable
from rrjax.numerics.sharding import with_sharding_of


@exportable
class Fakes(NamedTuple):
    """The smallest number of fake reports that overturns a finding.

    Attributes:
        number: As `category`: integer; −1 for unusable counts, or if no number below 2³¹ − N would do.
        share: `number` ÷ N, the number of reports.
        significant: Whether the share of the category is significantly above the hypothesis.
    """

    number: Int[Array, "*s"]
    share: Float[Array, "*s"]
    significant: Bool[Array, "*s"]


def fakes_to_overturn(
    counts: ArrayLike | Tally,
    epsilon: ArrayLike | None,
    category: ArrayLike,
    *,
    share: ArrayLike = 0.0,
    level: ArrayLike = 0.95,
) -> Fakes:
    r"""The smallest number of fake reports with which the finding "θ_i is above a share" would be another one.

    The finding is that of the exact one-sided test of θ_i ≤ share: significant if P(Binomial(N, q + d·share) ≥ c_i) is
    at most 1 − level. A fake says anything, and in most mechanisms supports a category at will.

    * A significant finding is made by m fakes if without them, c_i − m of N − m reports, it is not significant: the
      smallest such m. If at most m − 1 of the reports are fakes, whatever they say, the other reports show it alone.
    * A finding that is not significant becomes so by m further reports, c_i + m of N + m: the smallest such m.

    The tail is monotone in m, so both are exact for all attacks.

    Args:
        counts: `[K]`, integers, the reports per category; or a `Tally`.
        epsilon: Scalar, nats; None with a tally.
        category: Integers in 0 … K − 1, any shape.
        share: Scalar in [0, 1): the largest share of the hypothesis; 0 for "the category is empty".
        level: Scalar in (0, 1). For findings about K categories at once, 1 − 0.05/K; for the lower limit of
            `intervals`, whose both sides share the error, 0.975.

    Returns:
        `Fakes`, of the shape of `category`.

    Raises:
        ValueError: A wrong shape or dtype, a category outside the domain, or a level or share outside its range.

    Example:
        >>> import rrjax
        >>> fakes = rrjax.inference.fakes_to_overturn([5_200, 2_900, 1_000, 900], 2.0, category=[0, 2, 3])
        >>> fakes.number.tolist(), fakes.significant.tolist()
        ([4649, 14, 125], [True, False, False])
        >>> print(f"{fakes.share[1]:.2%}")
        0.14%

    References:
        Cheu, Smith and Ullman, "Manipulation attacks in local differential privacy", 2021; Cao, Jia and Gong, "Data
        poisoning attacks to local differential privacy protocols", 2021.
    """
    as_probability(level, "level", 0.95)
    tally = _tally(counts, epsilon)
    category = as_values(category, tally.num_categories, "category")
    zero = np.ndim(share) == 0 and not isinstance(share, jax.Array) and share == 0
    share = jnp.zeros((), float_dtype()) if zero else as_probability(share, "share", 0.1)
    log_level = jnp.log(jnp.asarray(complement(level)))
    places = jnp.ravel(category)
    support = tally.support[places]
    rates: Any = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, tally.support.shape)[places], tally.rates)
    usable = support_data(tally, None).usable
    fakes = _overturned(*with_sharding_of((support, tally.num_users, rates, usable, share, log_level)))
    return Fakes(*(each.reshape(category.shape) for each in fakes))


def without_fakes(
    counts: ArrayLike | Tally, epsilon: ArrayLike | None, fakes: int
) -> tuple[tuple[Tally, None], tuple[Tally, None]]:
    """The tallies with the least and the most support that the other reports may have, if so many are fakes."""
    tally = _tally(counts, epsilon)
    support, honest = tally.support, tally.num_users - fakes
    if not isinstance(honest, Tracer) and int(tally.num_users) > 0 and int(honest) < 1:
        raise ArgumentError.about("fakes", f"must be below the number of reports, {tally.num_users:,}; got {fakes:,}")
    least, most = jnp.maximum(support - fakes, jnp.minimum(support, 0)), jnp.minimum(support, honest)
    return (Tally(least, honest, rates=tally.rates), None), (Tally(most, honest, rates=tally.rates), None)


def _tally(counts: ArrayLike | Tally, epsilon: ArrayLike | None) -> Tally:
    if isinstance(counts, Tally):
        return as_tally(counts, epsilon, whole=True)
    counts, epsilon = as_counts_and_epsilon(counts, epsilon, whole=True)
    return RandomizedResponse(len(counts), epsilon).tally_of_counts(counts)


@program
def _overturned(support, num_users, rates, usable, share, log_level):
    word = support.dtype

    def tail(count, number, rates):
        alone = jax.tree.map(lambda leaf: leaf[None], rates)
        return log_above(of_tally(Tally(count[None], number, rates=alone)), share)[0]

    def one(count, rates):
        room = jnp.iinfo(word).max - num_users  # for reports that are added

        def looking(state):
            first, significant, low, high = state
            return first | jnp.where(high < 0, significant | (low < room), high - low > 1)

        def look(state):
            # One tail for all: of no fakes first; then twice as many until the finding is another one; then halves.
            first, significant, low, high = state
            start = jnp.where(significant, jnp.maximum(count, 1), 1)
            more = jnp.where(low == 0, start, jnp.where(low > room // 2, room, 2 * low))
            m = jnp.where(first, 0, jnp.where(high < 0, more, low + (high - low) // 2))
            moved = jnp.where(significant, -m, m)
            below = tail(count + moved, num_users + moved, rates) <= log_level
            significant = jnp.where(first, below, significant)
            # Without all its supporting reports a category is not significant, even if no other report is left.
            overturned = ~first & ((below != significant) | (significant & (m >= count)))
            return jnp.zeros_like(first), significant, jnp.where(overturned, low, m), jnp.where(overturned, m, high)

        none = jnp.zeros((), word)
        yes = jnp.ones((), bool)
        _, significant, _, high = lax.while_loop(looking, look, (yes, ~yes, none, none - 1))
        return jnp.where(usable, high, -1), significant & usable

    support, num_users = jnp.where(usable, support, 0), jnp.where(usable, num_users, 1)
    number, significant = jax.vmap(one)(support, rates)
    return number, jnp.where(number >= 0, number / num_users, jnp.nan), significant
