"""What is no number, no category, no key: refused by name of the argument, before JAX sees it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

import rrjax

KEY = jax.random.key(0)


@pytest.mark.parametrize("number", [1.5, np.nan, np.inf, jnp.float32(5), -1, 2**70, None, "abc", True, [5], {}])
def test_numbers_of_users(number):
    with refused("num_users"):
        rrjax.simulate.values(KEY, [0.5, 0.5], number)


@pytest.mark.parametrize("number", [0, 5, np.int64(5), jnp.int32(5)])
def test_numbers_of_users_of_any_integer_type(number):
    assert rrjax.simulate.values(KEY, [0.5, 0.5], number).shape == (int(number),)
