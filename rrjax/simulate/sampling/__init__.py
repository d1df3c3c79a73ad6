"""Exact draws of integer vectors in O(length), for `rrjax.simulate`.

Exact means: up to the rounding of the probabilities to the dtype, and of random words to 2⁻³². JAX's own samplers are
not exact enough: in float32 `jax.random.binomial` has a standard deviation off by a third at 10⁹ trials, and
`jax.random.multinomial` misses its total and scans the categories one by one.
"""

from rrjax.simulate.sampling.multinomials import hypergeometric, multinomial, table
from rrjax.simulate.sampling.streams import Stream, binomial, poisson

__all__ = ["Stream", "binomial", "hypergeometric", "multinomial", "poisson", "table"]
