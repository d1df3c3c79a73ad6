"""The simulated collections of a study, for one or several configurations at a time."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from rrjax import simulate
from rrjax.data.arguments import Estimand, float_dtype
from rrjax.data.tally import Tally
from rrjax.mechanisms import SupportMechanism
from rrjax.numerics.rows import Rows, num_parts
from rrjax.numerics.sharding import looked_up
from rrjax.numerics.sums import expm1_epsilon
from rrjax.simulate.sampling import Stream
from rrjax.simulate.sampling.in_rows import TOGETHER, Laws, Users, collect_in_rows
from rrjax.study.products import Apart, JointCounts
from rrjax.study.rounds import SeveralRounds


class Point(NamedTuple):
    """The arrays of one configuration, or with a further axis of several."""

    words: Any
    """That seed its random numbers, `[2]` or `[4]`."""
    population: Any
    """`[K]`; where collections are drawn in rows, the number of its law."""
    num_users: Any
    epsilon: Any


def key_of(words: Array, seed: Array, site: int) -> Array:
    """A key of collection number `seed`."""
    return jax.random.wrap_key_data(jnp.stack(Stream(words[0], words[1]).pair(seed, site)), impl="threefry2x32")


def shares_of(users: Array, num_users: Array) -> Array:
    """The shares of N users."""
    dtype = float_dtype()
    return users.astype(dtype) / num_users.astype(dtype)


def randomized(point: Point, seed: Array) -> tuple[Array, Array]:
    """Collection number `seed` of given users: the truth and the counts of their reports."""
    counts = simulate.randomized(key_of(point.words, seed, 0), point.population, point.epsilon)
    return shares_of(point.population, point.num_users), counts


def tallied(
    point: Point,
    seed: Array,
    mechanism: SupportMechanism | SeveralRounds | Apart,
    given_users: bool,
    estimand: Estimand,
) -> tuple[Array, Tally | JointCounts]:
    """Collection number `seed` of a mechanism: the truth and the tally."""
    words, population, num_users, _ = point
    users = population if given_users else simulate.true_counts(key_of(words, seed, 0), population, num_users)
    tally = mechanism.collect(key_of(words[2:], seed, 0), users)
    return population if estimand == "distribution" else shares_of(users, num_users), tally


def in_rows(
    rows: Rows,
    laws: Laws,
    points: Point,
    seeds: UInt[Array, " R"],
    at: Int[Array, " R"],
    of_users: Bool[Array, ""],
    most: int = TOGETHER,
) -> tuple[Float[Array, "R W"], Int[Array, "R W"]]:
    """The collections of k-ary randomized response whose users are drawn: truths and counts of the reports, in rows.

    Args:
        rows: Their arrangement.
        laws: The distributions, each in `rows.parts` rows.
        points: `[F]`, configurations.
        seeds: The number of each collection.
        at: The configuration of each.
        of_users: Whether the truth is the histogram of the users, and not their distribution.
        most: Number of collections, where it is known and small.
    """
    e1 = expm1_epsilon(points.epsilon)
    size = e1 + rows.length.astype(e1.dtype)
    stream = Stream(*(looked_up(points.words[:, each], at) for each in (0, 1)))
    first = looked_up(points.population, at) * rows.parts
    number = looked_up(points.num_users, at)
    keep, drop = looked_up(e1 / size, at), looked_up(rows.length.astype(e1.dtype) / size, at)
    users = Users(Stream(*stream.pair(seeds, 0)), first, number, keep, drop)
    true_counts, counts = collect_in_rows(rows, laws, users, most)
    # Not a division of the rows: XLA would multiply them by the reciprocal in some programs, and not in others.
    shares = true_counts.astype(e1.dtype) * rows.spread(1 / number.astype(e1.dtype))
    return jnp.where(of_users, shares, laws.in_rows(rows, first)), counts


def separate(
    laws: Laws, num_categories: int, points: Point, seeds: UInt[Array, " S"], estimand: Estimand
) -> tuple[Float[Array, "F S K"], Int[Array, "F S K"]]:
    """The collections of `in_rows`, for each configuration and seed, as vectors of K."""
    configurations, number = points.epsilon.shape[0], seeds.shape[0]
    total = configurations * number
    height = total * num_parts(num_categories)
    rows = Rows(height, jnp.int32(num_categories), jnp.int32(total), num_parts(num_categories))
    collection = jnp.arange(height, dtype=jnp.int32) % total
    at, seeds = collection // number, looked_up(seeds, collection % number)
    found = in_rows(rows, laws, points, seeds, at, jnp.bool_(estimand == "users"), total)
    truth, counts = (rows.separate(each, total, num_categories) for each in found)
    shape = configurations, number, num_categories
    return truth.reshape(shape), counts.reshape(shape)


@partial(jax.jit, static_argnums=(3, 4))
def again(laws: Laws, points: Point, seeds: Array, num_categories: int, estimand: Estimand) -> tuple[Array, Array]:
    """`separate`, as a program of its own."""
    return separate(laws, num_categories, points, seeds, estimand)
