"""Collections in rows have the law of single users, whatever lies beside them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, elsewhere
from laws import binomial_masses, check_covariance, check_joint, check_sample, joint_law, report_law

import rrjax
from rrjax.numerics.rows import WIDTH, Rows, num_parts
from rrjax.simulate.sampling import Stream
from rrjax.simulate.sampling.in_rows import (
    BLOCK,
    TRIALS_PER_CELL,
    Laws,
    Users,
    _alias,
    collect_in_rows,
)


def drawn(height, number, size, laws, first, law, num_users, keep, drop):
    rows = Rows(height, jnp.int32(size), jnp.int32(number))
    place = jnp.arange(height, dtype=jnp.int32) % number
    stream = Stream(first[place], jnp.uint32(7) * first[place])
    found = collect_in_rows(rows, laws, Users(stream, law[place], num_users[place], keep[place], drop[place]))
    return [rows.separate(each, number, size) for each in found]


accelerated = jax.jit(elsewhere(drawn), static_argnums=(0, 1, 2))
drawn = jax.jit(drawn, static_argnums=(0, 1, 2))


def collections(theta, num_users, epsilon, number, start=0):
    """`[number, K]` twice: true counts and counts of the reports."""
    theta = np.asarray(theta, FLOAT)
    size = len(theta)
    e1 = math.expm1(epsilon)
    keep = np.full(number, e1 / (e1 + size), FLOAT)
    drop = np.full(number, size / (e1 + size), FLOAT)
    first = (start + np.arange(number)).astype(np.uint32)
    users, law = np.full(number, num_users, np.int32), np.zeros(number, np.int32)
    found = drawn(number * num_parts(size), number, size, Laws.of(theta[None]), first, law, users, keep, drop)
    return [np.asarray(each) for each in found]


LAWS = [
    *(np.ones(size) / size for size in (2, 3, 7, 49, 999)),
    np.eye(9)[3],
    [0.5, 0.5],
    [0, 0, 0, 1 / 3, 2 / 3, 0, 0],
    *(1 / np.arange(1, size + 1) ** exponent for size in (2, 5, 100, 10_000) for exponent in (0.01, 1.3, 2.5)),
    *(np.random.default_rng(size).dirichlet(np.full(size, part)) for size in (3, 50, 1000) for part in (0.1, 1, 10)),
]


@pytest.mark.once
@pytest.mark.parametrize("shares", LAWS)
def test_alias_tables_hold_their_law(shares):
    shares = (np.asarray(shares, np.float64) / np.sum(shares)).astype(FLOAT)
    own, other = _alias(shares)
    shares = shares / shares.sum(dtype=np.float64)
    size = len(shares)
    mass = own / 2.0**32 / size
    np.add.at(mass, other, (1 - own / 2.0**32) / size)
    np.testing.assert_allclose(mass, shares, atol=2.0**-32)
    assert not np.asarray(mass)[shares == 0].any()


@pytest.mark.full
@pytest.mark.once
def test_few_users_have_their_joint_law():
    theta, epsilon = np.array([0.5, 0.3, 0.2]), 1.0
    law = report_law(theta, epsilon)
    place = np.eye(3, dtype=int)
    one = {(*place[i], *place[j]): float(law[i, j]) for i in range(3) for j in range(3)}
    sample = np.concatenate(collections(theta, 4, epsilon, 1 << 16), axis=1)
    check_joint(sample, joint_law([one] * 4))


LIMIT = TRIALS_PER_CELL * WIDTH
"""Trials from which on a collection of one row is drawn in rounds."""
SEAMS = [
    (3, LIMIT, 1.0),
    (3, LIMIT + 1, 1.0),
    (1000, 8 * LIMIT, 2.0),
    (1000, 8 * LIMIT + 1, 2.0),
    (129, 40_000, 30.0),
    *(
        pytest.param(*each, marks=pytest.mark.full)
        for each in [(5, 10**4, 0.1), (5, 10**6, 10.0), (40, 2**31 - 1, 3.0), (128, 2000, 5.0), (300, 200_000, 4.0)]
    ),
]


@pytest.mark.once
@pytest.mark.full  # ten programs
@pytest.mark.parametrize(("size", "num_users", "epsilon"), SEAMS)
def test_counts_have_their_laws_at_the_seams(size, num_users, epsilon):
    theta = np.asarray(rrjax.simulate.zipf(size, 1.2), float)
    number = (1 << 13) // num_parts(size)
    turns = [collections(theta, num_users, epsilon, number, turn * number) for turn in range(8)]
    true_counts, counts = (np.concatenate([turn[kind] for turn in turns]) for kind in (0, 1))
    assert (true_counts.sum(1) == num_users).all()
    assert (counts.sum(1) == num_users).all()
    e1 = math.expm1(epsilon)
    law = (1 + e1 * theta) / (e1 + size)
    chosen = np.unique(np.geomspace(1, size, 6).astype(int)) - 1
    for place in chosen if num_users < 10**8 else ():
        check_sample(true_counts[:, place], *binomial_masses(num_users, float(theta[place])))
        check_sample(counts[:, place], *binomial_masses(num_users, float(law[place])))
    # Means and covariances of some true and some reported counts together.
    both = np.concatenate([true_counts[:, chosen], counts[:, chosen]], axis=1)
    mean = np.concatenate([theta[chosen], law[chosen]])
    joint = report_law(theta, epsilon)[np.ix_(chosen, chosen)]
    moment = np.block([[np.diag(theta[chosen]), joint], [joint.T, np.diag(law[chosen])]])
    check_covariance(both, num_users * mean, num_users * (moment - np.outer(mean, mean)))


@pytest.mark.full
@pytest.mark.once
def test_neighbours_do_not_matter():
    size = 200
    laws = Laws.of(np.stack([np.asarray(rrjax.simulate.zipf(size, each)) for each in (0.01, 2.0)]))
    number = 24
    users = np.resize([0, 10, 5000, 10**6], number).astype(np.int32)
    law = (np.resize([0, 1], number) * num_parts(size)).astype(np.int32)
    keep = np.resize([0.9, 0.01, 0.3], number).astype(FLOAT)
    first = np.arange(number, dtype=np.uint32) // 2
    given = first, law, users, keep, 1 - keep
    together = drawn(number * num_parts(size) + BLOCK, number, size, laws, *given)
    np.testing.assert_array_equal(together[0].sum(1), users)
    for start in range(0, number, 3):
        alone = drawn(3 * num_parts(size), 3, size, laws, *(each[start : start + 3] for each in given))
        np.testing.assert_array_equal(alone, [each[start : start + 3] for each in together])
    # Nor does the platform, but for the rounding of its functions.
    np.testing.assert_array_equal(accelerated(number * num_parts(size) + BLOCK, number, size, laws, *given), together)
