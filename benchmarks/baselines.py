"""The competitors: what one would write or install without rrjax.

All are our own code from published descriptions. Histograms come as int32 `[R, K]`, estimates go
out in the dtype that is said. With e1 = expm1(ε), S the sum of the m largest counts and c the
smallest of them, the maximum likelihood estimate keeps c if S ≤ c·(e1 + m), and its threshold is
τ = S/(e1 + m).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

Estimator: TypeAlias = Callable[[np.ndarray, float], np.ndarray]


def zipf(num_categories: int, exponent: float) -> np.ndarray:
    weights = np.arange(1, num_categories + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def zipf_counts(
    num_histograms: int, num_categories: int, epsilon: float, num_users: int, exponent: float
) -> np.ndarray:
    """Histograms of randomized reports of a Zipf population, `[R, K]`, int32."""
    law = 1 + math.expm1(epsilon) * zipf(num_categories, exponent)
    rng = np.random.default_rng(0)
    return rng.multinomial(num_users, law / law.sum(), size=num_histograms).astype(np.int32)


def paper_loop(counts: np.ndarray, epsilon: float) -> np.ndarray:
    """Algorithm 1 as published: float64, one sort, one category dropped per turn of a Python loop."""
    return np.stack([_paper_row(row, epsilon) for row in counts])


def _paper_row(counts: np.ndarray, epsilon: float) -> np.ndarray:
    phi = counts / counts.sum()
    q = 1 / (math.exp(epsilon) + len(phi) - 1)
    p = math.exp(epsilon) * q
    order = np.argsort(phi)
    dropped, share = 0, 1.0
    while dropped < len(phi) and q * share > (1 - dropped * q) * phi[order[dropped]]:
        share -= phi[order[dropped]]
        dropped += 1
    theta = np.zeros(len(phi))
    kept = order[dropped:]
    theta[kept] = ((1 - dropped * q) * phi[kept] / share - q) / (p - q)
    return theta


def _filled(
    counts: np.ndarray, tau: np.ndarray, height: np.ndarray | None, dtype: Any, clip: bool = True
) -> np.ndarray:
    """(c − τ)₊ / height in one new array and three passes; without a height, normalized."""
    theta = np.subtract(counts, tau.astype(dtype)[:, None], dtype=dtype, casting="unsafe")
    if clip:
        np.maximum(theta, 0, out=theta)
    theta *= (1 / (theta.sum(axis=1) if height is None else height)).astype(dtype)[:, None]
    return theta


def _numpy(counts: np.ndarray, epsilon: float, dtype: Any) -> np.ndarray:
    e1 = math.expm1(epsilon)
    rows, num_categories = counts.shape
    ordered = counts.astype(dtype)
    ordered.sort(axis=1)
    sums = np.cumsum(ordered, axis=1)
    np.subtract(sums[:, -1:].copy(), sums, out=sums)
    sums += ordered  # of this count and all larger ones
    weights = np.arange(num_categories, 0, -1, dtype=dtype)
    weights += dtype(e1)
    ordered *= weights
    dropped = np.count_nonzero(sums > ordered, axis=1)
    np.minimum(dropped, num_categories - 1, out=dropped)
    total = sums[np.arange(rows), dropped].astype(np.float64)
    number = num_categories - dropped
    tau = total / (e1 + number)
    return _filled(counts, tau, total - number * tau, dtype)


def numpy_float32(counts: np.ndarray, epsilon: float) -> np.ndarray:
    """Sort, cumulative sums and a count of true values, all rows at once, in place, in float32."""
    return _numpy(counts, epsilon, np.float32)


def numpy_float64(counts: np.ndarray, epsilon: float) -> np.ndarray:
    """The same in float64: the reference of all results, exact up to the last division."""
    return _numpy(counts, epsilon, np.float64)


def numpy_int32(counts: np.ndarray, epsilon: float, dtype: Any = np.float32) -> np.ndarray:
    """The fastest NumPy that we found: integers sorted and summed, then bisection."""
    return next(numpy_estimates(counts, epsilon, dtype))


def numpy_estimates(counts: np.ndarray, epsilon: float, dtype: Any = np.float32) -> Iterator[np.ndarray]:
    """MLE*, InvP, InvN and inversion, one after the other, in new arrays; one sort and one cumulative sum for all.

    NumPy sums int32 ten times faster than float32 (whose additions wait for each other), and
    bisection reads log₂ K entries of a row where the count of true values takes three passes.
    Totals must stay below 2³¹.
    """
    e1 = math.expm1(epsilon)
    num_rows, num_categories = counts.shape
    ordered = np.sort(counts, axis=1)
    sums = np.cumsum(ordered, axis=1, dtype=np.int32)
    rows, total = np.arange(num_rows), sums[:, -1]

    def support(drop: Callable[[Any, Any, Any], Any]) -> tuple[Any, Any]:
        """The number of counts that are not dropped, and their sum."""
        low, high = np.zeros(num_rows, np.int64), np.full(num_rows, num_categories - 1)
        for _ in range((num_categories - 1).bit_length()):
            middle = (low + high) >> 1
            count = ordered[rows, middle]
            dropped = drop(total - sums[rows, middle] + count, count, num_categories - middle)
            low = np.where(dropped, middle + 1, low)
            high = np.where(dropped, high, middle)
        np.minimum(low, num_categories - 1, out=low)
        return num_categories - low, total - sums[rows, low] + ordered[rows, low]

    size, mass = support(lambda mass, count, size: mass > count * (e1 + size))
    tau = mass / (e1 + size)
    yield _filled(counts, tau, mass - size * tau, dtype)
    kept = total * (e1 / (e1 + num_categories))
    size, mass = support(lambda mass, count, size: mass - size * count > kept)
    yield _filled(counts, (mass - kept) / size, kept, dtype)
    tau = total / (e1 + num_categories)
    yield _filled(counts, tau, None, dtype)
    yield _filled(counts, tau, kept, dtype, clip=False)


def numba_loop(dtype: Any = np.float32) -> Estimator | None:
    """Sort and loop compiled by numba, one histogram per thread; None where numba is missing.

    Compiles at its first call.
    """
    try:
        import numba
    except ImportError:
        return None

    @numba.njit(parallel=True)
    def solve(counts, e1, theta):  # pyright: ignore[reportMissingParameterType]
        rows, num_categories = counts.shape
        for row in numba.prange(rows):
            ordered = np.sort(counts[row])
            kept = 0
            for count in ordered:
                kept += count
            number = num_categories
            for count in ordered:
                if number == 1 or kept <= count * (e1 + number):
                    break
                kept -= count
                number -= 1
            tau = kept / (e1 + number)
            scale = 1 / (kept - number * tau)
            for i in range(num_categories):
                theta[row, i] = max(counts[row, i] - tau, 0.0) * scale
        return theta

    return lambda counts, epsilon: solve(counts, math.expm1(epsilon), np.empty(counts.shape, dtype))


def projected_float64(counts: np.ndarray, epsilon: float) -> np.ndarray:
    """InvP in float64, the reference: τ = (S − N·d)/m on the categories it keeps."""
    num_categories = counts.shape[1]
    e1 = math.expm1(epsilon)
    ordered = np.sort(counts, axis=1).astype(np.float64)
    sums = np.cumsum(ordered[:, ::-1], axis=1)[:, ::-1]
    kept = sums[:, :1] * (e1 / (e1 + num_categories))
    number = np.arange(num_categories, 0, -1)
    dropped = np.count_nonzero(sums - number * ordered > kept, axis=1)
    dropped = np.minimum(dropped, num_categories - 1)
    total = sums[np.arange(len(sums)), dropped]
    tau = (total - kept[:, 0]) / (num_categories - dropped)
    return _filled(counts, tau, kept[:, 0], np.float64)


def clipped(counts: np.ndarray, epsilon: float, dtype: Any = np.float32, clip: bool = True) -> np.ndarray:
    """InvN in NumPy: clip at τ = N·q and normalize; Inv where nothing is clipped."""
    total = np.sum(counts, axis=1, dtype=np.int64)
    return _filled(counts, total / (math.expm1(epsilon) + counts.shape[1]), None, dtype, clip)


def optax_projection() -> Callable[[Any, Any], Any] | None:
    """InvP as optax's projection of the inversion, one histogram; None without optax."""
    try:
        from optax.projections import projection_simplex
    except ImportError:
        return None

    import rrjax

    return lambda counts, epsilon: projection_simplex(rrjax.inv(counts, epsilon))


def dense_ibu(
    counts: np.ndarray, epsilon: float, num_iters: int = 10_000, tol: float = 1e-12
) -> tuple[np.ndarray, int]:
    """IBU as multi-freq-ldpy describes it, one histogram `[K]`, float64, on a dense K×K channel.

    Two products with the channel a step. Stops when no entry changes by `tol`, or after `num_iters`
    steps (its defaults). Returns θ and the steps made.
    """
    num_categories = len(counts)
    q = 1 / (math.exp(epsilon) + num_categories - 1)
    channel = np.full((num_categories, num_categories), q)
    np.fill_diagonal(channel, math.exp(epsilon) * q)
    phi = counts / counts.sum()
    theta = np.full(num_categories, 1 / num_categories)
    for step in range(1, num_iters + 1):
        after = theta * (channel.T @ (phi / (channel @ theta)))
        change = np.max(np.abs(after - theta))
        theta = after
        if change < tol:
            return theta, step
    return theta, num_iters


def project(theta: np.ndarray) -> np.ndarray:
    """The closest point of the simplex, by a sort."""
    ordered = np.sort(theta)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(theta) + 1)
    return np.maximum(theta - excess[np.flatnonzero(ordered > excess)[-1]], 0)


def paper_procedure(
    rng: np.random.Generator, law: np.ndarray, num_users: int, epsilon: float, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Collection by collection and user by user, in float64: values, reports, histograms, estimates, metrics.

    Arrays hold the users, each of whom draws a value and randomizes it. MSE and NLL come as `[number, 4]`, in the order
    of `numpy_estimates`, as from `numpy_pipeline`.
    """
    num_categories = len(law)
    q = 1 / (math.exp(epsilon) + num_categories - 1)
    p = math.exp(epsilon) * q
    mse, nll = np.zeros((2, number, 4))
    for row in range(number):
        values = rng.choice(num_categories, size=num_users, p=law)
        truthful = rng.random(num_users) < p
        others = rng.integers(0, num_categories - 1, num_users)
        others += others >= values
        reports = np.where(truthful, values, others)
        truth = np.bincount(values, minlength=num_categories) / num_users
        counts = np.bincount(reports, minlength=num_categories)
        phi = counts / num_users
        inversion = (phi - q) / (p - q)
        positive = np.maximum(inversion, 0)
        estimates = _paper_row(counts, epsilon), project(inversion), positive / positive.sum(), inversion
        seen = phi > 0
        for column, theta in enumerate(estimates):
            mse[row, column] = np.sum((theta - truth) ** 2)
            nll[row, column] = -np.sum(phi[seen] * np.log(q + (p - q) * theta[seen]))
    return mse, nll


def collect(
    rng: np.random.Generator, law: np.ndarray, num_users: int, epsilon: float, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of values and of reports, `[number, K]`, from sufficient statistics: three multinomials."""
    e1, num_categories = math.expm1(epsilon), len(law)
    kappa = rng.binomial(num_users, e1 / (e1 + num_categories), size=number)
    kept = rng.multinomial(kappa, law)
    true_counts = rng.multinomial(num_users - kappa, law)
    true_counts += kept
    kept += rng.multinomial(num_users - kappa, np.full(num_categories, 1 / num_categories))
    return true_counts, kept


def numpy_pipeline(
    rng: np.random.Generator, law: np.ndarray, num_users: int, epsilon: float, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """All collections of a configuration at once, in float32 as rrjax."""
    e1, num_categories = math.expm1(epsilon), len(law)
    d = e1 / (e1 + num_categories)
    q = np.float32((1 - d) / num_categories)
    true_counts, counts = collect(rng, law, num_users, epsilon, number)
    truth = true_counts.astype(np.float32)
    truth *= np.float32(1 / num_users)
    counts = counts.astype(np.int32)
    phi = counts * np.float32(1 / num_users)
    mse, nll = np.zeros((2, number, 4))
    for column, theta in enumerate(numpy_estimates(counts, epsilon)):
        difference = theta - truth
        mse[:, column] = np.einsum("ij,ij->i", difference, difference)
        theta *= np.float32(d)
        theta += q
        np.maximum(theta, np.float32(1e-30), out=theta)  # the inversion's are zero where nobody reports
        nll[:, column] = -np.einsum("ij,ij->i", phi, np.log(theta, out=theta))
    return mse, nll
