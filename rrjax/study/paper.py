"""The paper's evaluation: its grid, the EM of its Fig. 4, and its claims (`rrjax.study.drawings` draws its figures).

References:
    Pinzón et al., "Estimating the True Distribution of Data Collected with Randomized Response", AAAI 2026,
    arXiv:2601.08603, §6.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import rrjax
from rrjax import simulate
from rrjax.data.arguments import float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.estimators import metrics
from rrjax.estimators.em import Acceleration
from rrjax.numerics.programs import compiled
from rrjax.study.arguments import integer
from rrjax.study.study import Study

if TYPE_CHECKING:
    import xarray as xr

ESTIMATORS = ("mle_star", "inv_p", "inv_n", "inv")
ADAPTING = ("cv_threshold", "empirical_bayes")
"""Adaptive estimators of rrjax, not of the paper: the reports determine their shrinkage."""
CATEGORIES = (50, 100, 1000, 5000, 10_000)
USERS = (100, 1000, 10_000, 100_000, 1_000_000)
EPSILONS = tuple(float(epsilon) for epsilon in range(1, 11))
EXPONENTS = (0.01, 1.3, 2.5)
SHOWN_EPSILONS = (1.0, 2.0, 4.0, 10.0)
METRICS = ("mse", "nll", "bias2", "variance")
K, N, EPSILON = 10_000, 1_000_000, 4.0
"""The values of Figs. 1 and 2."""

REAL_DATA, CONVERGENCE = 3, 4
"""The figures that do not use the grid."""
FIGURES = tuple(range(1, 11))
BY_CATEGORIES = {
    5: (0.01, "mse"),
    6: (1.3, "mse"),
    7: (2.5, "mse"),
    8: (0.01, "nll"),
    9: (1.3, "nll"),
    10: (2.5, "nll"),
}
"""Figs. 5–10: exponent and metric."""


def study(num_seeds: int = 100, figures: Iterable[int] = FIGURES, estimators: Any = ESTIMATORS) -> Study | None:
    """The paper's study, or the part of its grid for some figures; None for Figs. 3 and 4 alone."""
    wanted = set(figures) - {REAL_DATA, CONVERGENCE}
    if not wanted:
        return None
    if wanted >= set(FIGURES) - {REAL_DATA, CONVERGENCE}:
        categories, users, epsilons, exponents = CATEGORIES, USERS, EPSILONS, EXPONENTS
    else:
        grids = wanted & set(BY_CATEGORIES)
        overviews = wanted & {1, 2}
        categories = CATEGORIES if grids else (K,)
        users = USERS if grids or 1 in wanted else (N,)
        epsilons = EPSILONS if 2 in wanted else SHOWN_EPSILONS if grids else (EPSILON,)
        exponents = EXPONENTS if overviews else tuple(sorted({BY_CATEGORIES[number][0] for number in grids}))
    return Study(
        estimators=estimators,
        num_categories=categories,
        num_users=users,
        epsilon=epsilons,
        zipf=exponents,
        num_seeds=num_seeds,
        metrics=METRICS,
    )


def quick(num_seeds: int = 20) -> Study:
    """A small study of the same kind, with `ADAPTING`: under a minute from a cold start."""
    return Study(
        estimators=(*ESTIMATORS, *ADAPTING),
        num_categories=(1000,),
        num_users=(100, 1000, 10_000, 100_000, 1_000_000),
        epsilon=(1.0, 2.0, 4.0, 8.0),
        zipf=EXPONENTS,
        num_seeds=num_seeds,
        metrics=METRICS,
    )


EM_STEPS: Mapping[Acceleration, int] = {"none": 40_000, "deflated": 4_000, "anderson": 400}
"""Acceleration of `ibu` → number of steps. The paper has 40,000 steps of plain EM."""


def convergence(
    *,
    num_categories: int = 500,
    num_users: Sequence[int] = (10_000, 500_000),
    epsilon: Sequence[float] = (0.5, 1.0, 2.0),
    zipf: Sequence[float] = (0.01, 1.3),
    steps: Mapping[Acceleration, int] = EM_STEPS,
    seed: int = 0,
) -> xr.Dataset:
    """Distances of IBU and its accelerated variants from MLE*, on one simulated collection for each setting.

    Args:
        num_categories: K.
        num_users: Values of N.
        epsilon: Values of ε in nats.
        zipf: Exponents of the Zipf populations.
        steps: Acceleration of `rrjax.ibu` → number of steps.
        seed: The random seed of the collections.

    Returns:
        `distance` with the dimensions `(variant, zipf, num_users, epsilon, iteration)`: Σ_i (θ_i − MLE*_i)² after each
        number of steps (0, then evenly spaced on a logarithmic scale). NaN beyond the steps of a variant. The variant
        "none" is called "ibu".

    Raises:
        StudyError: A number of users that is no positive integer.

    Example:
        >>> from rrjax.study import convergence
        >>> short = convergence(num_users=[1000], epsilon=[1.0], zipf=[1.3], steps={"none": 10, "anderson": 10})
        >>> short.distance.dims
        ('variant', 'zipf', 'num_users', 'epsilon', 'iteration')
    """
    import xarray as xr

    settings = [(s, integer("num_users", n), e) for s in zipf for n in num_users for e in epsilon]
    key, dtype = jax.random.key(seed), float_dtype()
    cells, longest = len(settings) * num_categories, max(steps.values())
    shares = {s: simulate.zipf(num_categories, s) for s in zipf}
    epsilons = np.array([e for _, _, e in settings], dtype)
    grid = len(settings), num_categories
    counts, exact = np.zeros(grid, np.int32), np.zeros(grid, dtype)
    # All programs compile at the same time.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:

        def program(work: int, function: Callable[..., Any], *given: Any) -> Callable[..., Any]:
            found = pool.submit(compiled, function, given, work, jax.default_backend())
            return lambda *given: found.result()(*given)

        draw = program(cells, simulate.counts, key, shares[zipf[0]], np.int32(1), epsilons[0])
        maximize = program(longest * cells, jax.vmap(rrjax.mle_star), counts, epsilons)
        paths = [
            program(number * cells, jax.vmap(partial(_distances, way, number)), counts, epsilons, exact)
            for way, number in steps.items()
        ]
        counts = jnp.stack([
            draw(jax.random.fold_in(key, place), shares[s], np.int32(n), e)
            for place, ((s, n, _), e) in enumerate(zip(settings, epsilons, strict=True))
        ])  # fmt: skip
        exact = maximize(counts, epsilons)
        followed = [path(counts, epsilons, exact) for path in paths]
    iterations = np.unique([0, *np.round(np.geomspace(1, longest, 400)).astype(int)])
    distance = np.full((len(steps), len(settings), len(iterations)), np.nan)
    for row, (number, path) in enumerate(zip(steps.values(), followed, strict=True)):
        within = iterations <= number
        distance[row][:, within] = np.asarray(path)[:, iterations[within]]
    return xr.Dataset(
        {
            "distance": (
                ("variant", "zipf", "num_users", "epsilon", "iteration"),
                distance.reshape(-1, len(zipf), len(num_users), len(epsilon), len(iterations)),
            )
        },
        {
            "variant": ["ibu" if name == "none" else name for name in steps],
            "zipf": list(zipf),
            "num_users": list(num_users),
            "epsilon": list(epsilon),
            "iteration": iterations,
        },
        {"num_categories": num_categories, "seed": seed},
    )


def _distances(acceleration: Acceleration, number: int, counts: Array, epsilon: Array, exact: Array) -> Array:
    return rrjax.ibu_path(
        counts, epsilon, number, accelerate=acceleration, observe=lambda theta: metrics.squared_error(theta, exact)
    )


SIGMAS = 3.0
"""Standard errors of the paired difference beyond which a claim is violated."""


class Claim(NamedTuple):
    """A claim, and the number of configurations that violate it."""

    claim: str
    source: str
    configurations: int
    """Number of configurations."""
    violated: int
    """Number of configurations that violate it by more than `SIGMAS` standard errors."""
    worst: str
    """The largest violation, in words."""

    @property
    def holds(self) -> bool:
        """Whether no configuration violates it."""
        return self.violated == 0


def check_claims(dataset: xr.Dataset) -> list[Claim]:
    """Tests of the claims of the paper and its repository on MLE*, InvP and InvN, and of ours on empirical Bayes.

    A claim is violated in a configuration where the paired difference of two means is beyond three of its standard
    errors (and beyond what float32 rounds). The squared bias has no standard error; a bound takes its place.

    Args:
        dataset: Dataset of a study of (at least) "mle_star", "inv_p" and "inv_n" with the metrics "mse" and "nll";
            "bias2" and "variance" add the claim on the bias, "empirical_bayes" the claim that it is the closest.

    Returns:
        The claims that can be tested.

    Raises:
        ArgumentError: An estimator or metric is missing.

    Example:
        >>> from rrjax.study import Study
        >>> from rrjax.study import check_claims
        >>> result = Study(
        ...     estimators=["mle_star", "inv_p", "inv_n"],
        ...     num_categories=20,
        ...     num_users=1000,
        ...     epsilon=1.0,
        ...     zipf=1.3,
        ...     num_seeds=20,
        ... ).run()
        >>> check_claims(result)[0].holds
        True
    """
    if not _testable(dataset):
        raise ArgumentError(
            "the claims are about mle_star, inv_p and inv_n, and take the metrics mse and nll", argument="dataset"
        )
    resolution = 1e-5  # relative: smaller differences do not count

    def difference(metric, first, second):
        pair = {"estimator": first, "versus": second}
        scale = np.abs(dataset[metric].sel(estimator=first)) * resolution
        return dataset[f"{metric}_difference"].sel(pair), SIGMAS * dataset[f"{metric}_difference_se"].sel(pair) + scale

    def above(metric, first, second):
        mean, margin = difference(metric, first, second)
        return mean > margin

    def above_times(limit, other, name="mle_star"):
        """Whether the MSE of one is above limit times that of another, by the paired variance of one − limit·other."""
        error_one, error_other = (dataset["mse_se"].sel(estimator=each, drop=True) for each in (name, other))
        paired = dataset["mse_difference_se"].sel({"estimator": name, "versus": other}, drop=True)
        covariance = (error_one**2 + error_other**2 - paired**2) / 2
        error = np.sqrt(np.maximum(error_one**2 + limit**2 * error_other**2 - 2 * limit * covariance, 0))
        first, second = (dataset["mse"].sel(estimator=each, drop=True) for each in (name, other))
        return first - limit * second > SIGMAS * error + resolution * first

    def report(claim, source, violated, ratio):
        violated, ratio = violated.reset_coords(drop=True), ratio.where(violated).reset_coords(drop=True)
        worst = ""
        if bool(violated.any()):
            at = ratio.argmax(...)
            point = ratio.isel(at)
            place = ", ".join(f"{ratio[name].dims[0]} = {ratio[name].values[index]}" for name, index in at.items())
            worst = f"{float(point):.4g} times, at {place}"
        return Claim(claim, source, int(violated.size), int(violated.sum()), worst)

    mse = dataset["mse"]
    mle, inv_p, inv_n = (mse.sel(estimator=name, drop=True) for name in ("mle_star", "inv_p", "inv_n"))
    best = np.minimum(np.minimum(inv_p, inv_n), mle)
    claims = [
        report(
            "MLE* has the least NLL of the three",
            "its definition",
            above("nll", "mle_star", "inv_p") | above("nll", "mle_star", "inv_n"),
            dataset["nll"].sel(estimator="mle_star", drop=True) / dataset["nll"].sel(estimator="inv_p", drop=True),
        ),
        report(
            "The MSE of MLE* is never above those of both InvP and InvN",
            "the paper's repository",
            above("mse", "mle_star", "inv_p") & above("mse", "mle_star", "inv_n"),
            mle / np.maximum(inv_p, inv_n),
        ),
        report(
            "The MSE of MLE* is never below those of both InvP and InvN",
            "the paper's repository: it lies between them",
            above("mse", "inv_p", "mle_star") & above("mse", "inv_n", "mle_star"),
            np.minimum(inv_p, inv_n) / mle,
        ),
    ]
    for limit in (1.5, 10.0):
        clear = above_times(limit, "inv_p") | above_times(limit, "inv_n")
        text = f"MLE* is close to the best everywhere: its MSE is at most {limit:g} times the least of the three"
        claims.append(report(text, "reported of the paper; what 'close' means is our reading", clear, mle / best))
    if "empirical_bayes" in dataset["estimator"].values:
        ratio = mse.sel(estimator="empirical_bayes", drop=True) / best
        for limit in (1.0, 1.5):
            clear = above_times(limit, "mle_star", "empirical_bayes")
            for other in ("inv_p", "inv_n"):
                clear = clear | above_times(limit, other, "empirical_bayes")
            most = "at most" if limit == 1 else f"at most {limit:g} times"
            text = f"The MSE of empirical Bayes is {most} the least of MLE*, InvP and InvN"
            claims.append(report(text, "ours: it is the closest", clear, ratio))
    if {"bias2", "variance"} <= set(dataset.data_vars):
        number = int(dataset.attrs["num_seeds"])
        # The plug-in squared bias contains a share 1/n of the variance.
        bias2 = dataset["bias2"] - dataset["variance"] / (number - 1)
        noise = dataset["variance"] / number
        b, p, n = (bias2.sel(estimator=name, drop=True) for name in ("mle_star", "inv_p", "inv_n"))
        # Of |b + e|², with a mean error b and noise e of total variance `noise`, the deviation is at most 2·|b|·√noise
        # and about `noise`.
        slack = SIGMAS * (noise + 2 * np.sqrt(np.maximum(bias2, 0) * noise)).max("estimator")
        outside = (b > np.maximum(p, n) + slack) | (b < np.minimum(p, n) - slack)
        claims.append(
            report(
                "The squared bias of MLE* lies between those of InvP and InvN",
                "the paper's repository; here beyond three times a bound of the error of the squared biases",
                outside,
                b / np.maximum(np.maximum(p, n), 1e-300),
            )
        )
    return claims


def claims_table(dataset: xr.Dataset) -> list[tuple[str, str, dict[str, list[str]]]]:
    """The claims as a table of `write_report`.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study.paper import claims_table
        >>> claims_table(xr.Dataset(coords={"estimator": ["mle_star"]}))
        []
    """
    if not _testable(dataset):
        return []
    claims = check_claims(dataset)
    columns = {
        "claim": [claim.claim for claim in claims],
        "source": [claim.source for claim in claims],
        "holds": ["yes" if claim.holds else "no" for claim in claims],
        "violated": [f"{claim.violated} of {claim.configurations}" for claim in claims],
        "worst": [claim.worst for claim in claims],
    }
    caption = "What is said of the estimators, tested with paired standard errors: violated where a difference is "
    return [("Claims", f"{caption}beyond three of them.", columns)]


def _testable(dataset: xr.Dataset) -> bool:
    estimators = set(dataset["estimator"].values.tolist())
    return {"mle_star", "inv_p", "inv_n"} <= estimators and {"mse", "nll"} <= set(dataset.data_vars)
