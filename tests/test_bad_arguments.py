"""What is no number, no category, no key: refused by name of the argument, before JAX sees it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

import rrjax
from rrjax import inference

KEY = jax.random.key(0)
COUNTS = [50, 30, 20]
TWO = [COUNTS, [40, 40, 20]]
TALLY = rrjax.RandomizedResponse(3, 2.0).tally(np.array([0, 1, 2, 0]))


@pytest.mark.parametrize("number", [1.5, np.nan, np.inf, jnp.float32(5), -1, 2**70, None, "abc", True, [5], {}])
def test_numbers_of_users(number):
    with refused("num_users"):
        rrjax.simulate.values(KEY, [0.5, 0.5], number)


@pytest.mark.parametrize("number", [0, 5, np.int64(5), jnp.int32(5)])
def test_numbers_of_users_of_any_integer_type(number):
    assert rrjax.simulate.values(KEY, [0.5, 0.5], number).shape == (int(number),)


@pytest.mark.parametrize("given", [None, "abc", {}, TALLY, True, [1.0, 2.0, 3.0, 4.0], [[1.0]], np.array([1.0, None])])
def test_one_number_or_one_for_each(given):
    with refused("epsilon"):
        inference.equality_test(KEY, TWO, given)
    with refused("epsilon"):
        inference.trend_test(KEY, TWO, given)
    with refused("epsilon"):
        inference.stratified(TWO, given, shares=[0.5, 0.5], values=[0, 1, 2])
    with refused("prior"):
        inference.posterior(KEY, COUNTS, 2.0, prior=given)


@pytest.mark.parametrize("category", ["abc", [1], object(), 1.0, True, 3, -1, 2**70])
def test_categories(category):
    with refused("category"):
        inference.trend_test(KEY, TWO, 2.0, category=category)
    with refused("category"):
        inference.profile(COUNTS, 2.0, category=category)
