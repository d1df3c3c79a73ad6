"""Exact draws of integer vectors in O(length): what `rrjax.simulate` and the cross-validated estimator are made of.

Exact means: up to the rounding of the probabilities to the dtype, and of random words to 2⁻³². JAX's own samplers are
no base for this: in float32 `jax.random.binomial` has a standard deviation off by a third at 10⁹ trials, and
`jax.random.multinomial` misses its total and scans the categories one by one.
"""

from rrjax.simulate.sampling.binomial import binomial
from rrjax.simulate.sampling.hypergeometric import hypergeometric, marked, table
from rrjax.simulate.sampling.multinomial import multinomial
from rrjax.simulate.sampling.poisson import poisson
from rrjax.simulate.sampling.streams import Stream

__all__ = ["Stream", "binomial", "hypergeometric", "marked", "multinomial", "poisson", "table"]
