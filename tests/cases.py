"""The tables that drive the tests of the estimators, and helpers that the test files share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial, wraps
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import exact_inv_n, exact_inv_p, exact_mle, exact_odds

import rrjax
from rrjax.numerics.sharding import by_platform
from rrjax.numerics.sums import expm1_epsilon

X64 = bool(jax.config.jax_enable_x64)
FLOAT = np.dtype(np.float64 if X64 else np.float32)
INT = np.dtype(np.int64 if X64 else np.int32)
LARGEST = int(np.iinfo(INT).max)
ULP = float(np.finfo(FLOAT).eps)


READ = ("r.csv", "--column", "answer", "--epsilon", "2", "--domain", "0:3")
TRUTH = ("--truth", "t.csv", "--truth-column", "label", "--truth-counts", "n")
"""Flags for the files of `beside_files`."""


def elsewhere(function):
    """The function as traced for an accelerator; what is jitted already, for this platform, is left alone."""

    @wraps(function)
    def forced(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            for name, module in list(sys.modules.items()):
                if name.startswith("rrjax.") and getattr(module, "by_platform", None) is by_platform:
                    patch.setattr(
                        module, "by_platform", lambda *given, cpu, elsewhere, exported=False: elsewhere(*given)
                    )
            return function(*arguments)

    return forced


class Estimator(NamedTuple):
    name: str
    function: Callable
    exact: Callable
    """The reference: active categories, τ and height in rational numbers."""
    bound: float
    """Total variation from exact arithmetic, in this dtype."""
    exact_support: bool
    """Whether the support of integer counts is promised to be that of exact arithmetic."""


# The bounds are what the docstrings promise. InvP rounds N·d, which is one more error of a relative ulp.
_BOUND, _BOUND_P = (1e-14, 1e-14) if X64 else (1e-7, 1.5e-7)
ESTIMATORS = [
    Estimator("inv_n", rrjax.inv_n, exact_inv_n, _BOUND, True),
    Estimator("mle_star-newton", partial(rrjax.mle_star, solver="newton"), exact_mle, _BOUND, True),
    Estimator("mle_star-sort", partial(rrjax.mle_star, solver="sort"), exact_mle, _BOUND, True),
    Estimator("inv_p-newton", partial(rrjax.inv_p, solver="newton"), exact_inv_p, _BOUND_P, False),
    Estimator("inv_p-sort", partial(rrjax.inv_p, solver="sort"), exact_inv_p, _BOUND_P, False),
]
NAMES = [row.name for row in ESTIMATORS]

# Everything that takes (counts, epsilon): the invalid values and the shape errors are the same for all.
FUNCTIONS = {row.name: row.function for row in ESTIMATORS} | {
    "inv": rrjax.inv,
    "nll": lambda counts, epsilon: rrjax.nll(_uniform(counts), counts, epsilon),
    "score": lambda counts, epsilon: rrjax.score(_uniform(counts), counts, epsilon),
    "gap": lambda counts, epsilon: rrjax.certificate(_uniform(counts), counts, epsilon).gap,
    "ibu": lambda counts, epsilon: rrjax.ibu(counts, epsilon, max_iters=50).theta,
    "ibu-none": lambda counts, epsilon: rrjax.ibu(counts, epsilon, max_iters=50, accelerate="none").theta,
}


def _uniform(counts):
    number = np.shape(counts)[-1] if np.size(counts) and np.ndim(counts) else 1
    return np.full(number, 1 / number, FLOAT)


def collect(seed: int, num_categories: int, num_users: int, epsilon: float, skew: float = 1.3):
    """A histogram of reports from a Zipf population, drawn by NumPy."""
    theta = 1 / np.arange(1, num_categories + 1) ** skew
    theta /= theta.sum()
    e1 = float(np.expm1(min(float(epsilon), 700)))
    return np.random.default_rng(seed).multinomial(num_users, (1 + e1 * theta) / (e1 + num_categories))


def own_odds(epsilon) -> Fraction:
    """The e^ε − 1 that the library computes with, as an exact number."""
    return Fraction(float(expm1_epsilon(jnp.asarray(epsilon, FLOAT))))


def true_odds(epsilon) -> Fraction:
    """e^ε − 1 of the ε that the dtype holds."""
    epsilon = FLOAT.type(epsilon)
    return Fraction(10) ** 400 if np.isinf(epsilon) else exact_odds(float(epsilon))


def bits(x) -> np.ndarray:
    """The array as unsigned integers, to compare to the last bit (NaN included)."""
    x = np.asarray(x)
    return x.view(f"uint{8 * x.itemsize}")
