"""What is studied: estimators, a grid of configurations, populations."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import jax
import numpy as np
from jaxtyping import ArrayLike

import rrjax
from rrjax import simulate
from rrjax.numerics import float_dtype
from rrjax.study.arguments import as_texts, categories_of, exponent, integer, named, positive, several, variables
from rrjax.study.errors import StudyError
from rrjax.study.identity import identity_of

if TYPE_CHECKING:
    import xarray as xr

    from rrjax.study.runner import Progress

Estimator: TypeAlias = Callable[..., Any]
Population: TypeAlias = Literal["realised", "iid", "fixed"]
Metric: TypeAlias = Callable[[Any, Any], Any]
Distribution: TypeAlias = ArrayLike | Callable[[int], ArrayLike]

METRICS = ("mse", "nll", "tv", "max_error", "kl", "bias2", "variance")
"""What can be measured by name; the last two need all seeds at once."""


def _ibu(counts, epsilon):
    return rrjax.ibu(counts, epsilon).theta


ESTIMATORS: dict[str, Estimator] = {
    "mle_star": rrjax.mle_star,
    "inv_p": rrjax.inv_p,
    "inv_n": rrjax.inv_n,
    "inv": rrjax.inv,
    "cv_threshold": rrjax.cv_threshold,
    "ibu": _ibu,
}
"""The estimators that a study knows by name."""


@dataclasses.dataclass(frozen=True)
class Configuration:
    """One point of the grid."""

    num_categories: int
    num_users: int
    epsilon: float
    population: float | str
    """The Zipf exponent, or the name of the distribution."""

    def describe(self) -> str:
        """In words, for a message."""
        kind = f"zipf = {self.population:g}" if isinstance(self.population, float) else f"{self.population!r}"
        return f"K = {self.num_categories:,}, N = {self.num_users:,}, epsilon = {self.epsilon:g}, {kind}"

    def words(self, seed: int) -> tuple[int, int]:
        """Two words that tell this configuration's random numbers from all others', whatever else is in the grid."""
        digest = hashlib.sha256(repr((seed, *dataclasses.astuple(self))).encode()).digest()
        return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


@dataclasses.dataclass(frozen=True, init=False)
class Study:
    """A Monte Carlo study: every estimator on the same simulated collections, over a grid of configurations.

    Args:
        estimators: Names of `ESTIMATORS`, functions `f(counts, epsilon) -> theta` (or `f(key, counts, epsilon)`) that
            `jax.jit` and `jax.vmap` can transform, or a mapping of labels to either.
        num_categories: K, one or several. May be left out where `distributions` holds arrays.
        num_users: N, one or several; left out for the population "fixed".
        epsilon: ε in nats, one or several.
        zipf: Exponents of Zipf populations, one or several; infinity is the point mass.
        distributions: In place of `zipf`, label → `[K]` (or a function of K that returns it). For the population
            "fixed", integers: how many users hold each category.
        num_seeds: Simulated collections of every configuration, at least 2.
        population: "realised": N users are drawn, and estimates are compared with their histogram, as in the paper;
            "iid": they are compared with the distribution that users are drawn from; "fixed": the users are given
            (`distributions`), and only their randomization is random.
        metrics: Names of `METRICS`, or functions `f(estimate, truth) -> scalar`.

    Raises:
        StudyError: Anything that makes no sense, before any work is done.

    Example:
        >>> from rrjax.study import Study
        >>> study = Study(
        ...     estimators=["mle_star", "inv_p"],
        ...     num_categories=50,
        ...     num_users=[1000, 10_000],
        ...     epsilon=2.0,
        ...     zipf=[0.01, 1.3],
        ...     num_seeds=20,
        ... )
        >>> result = study.run(seed=0)
        >>> result.mse.dims
        ('estimator', 'num_categories', 'num_users', 'epsilon', 'zipf')
        >>> bool((result.mse_se < result.mse).all())
        True
    """

    estimators: Mapping[str, Estimator]
    num_categories: tuple[int, ...]
    num_users: tuple[int, ...]
    epsilon: tuple[float, ...]
    zipf: tuple[float, ...] | None
    distributions: Mapping[str, Distribution] | None
    num_seeds: int
    population: Population
    metrics: Mapping[str, Metric | None]

    def __init__(
        self,
        *,
        estimators: str | Estimator | Sequence[str | Estimator] | Mapping[str, str | Estimator],
        epsilon: float | Sequence[float],
        num_categories: int | Sequence[int] | None = None,
        num_users: int | Sequence[int] | None = None,
        zipf: float | Sequence[float] | None = None,
        distributions: Mapping[str, Distribution] | None = None,
        num_seeds: int = 100,
        population: Population = "realised",
        metrics: str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric | None] = ("mse", "nll"),
    ) -> None:
        """Checks everything and settles the types."""
        if population not in ("realised", "iid", "fixed"):
            raise StudyError(f"population must be 'realised', 'iid' or 'fixed', got {population!r}")
        if (zipf is None) == (distributions is None):
            raise StudyError("give zipf or distributions, one of them")
        if distributions is not None:
            num_categories = categories_of(distributions, num_categories)
        if num_categories is None:
            raise StudyError("num_categories is missing")

        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("estimators", named(estimators, ESTIMATORS, "estimator"))
        put("metrics", variables(named(metrics, dict.fromkeys(METRICS), "metric")))
        put("population", population)
        put("num_seeds", integer("num_seeds", num_seeds, 2, 2**31 - 1))
        put("epsilon", several("epsilon", epsilon, positive))
        for value in self.epsilon:
            if not np.asarray(value, float_dtype()) > 0:
                raise StudyError(f"epsilon {value:g} is zero in {float_dtype().name}; the smallest is about 1e-38")
        put("zipf", None if zipf is None else several("zipf", zipf, exponent))
        put("distributions", None if distributions is None else as_texts(distributions, "distribution"))
        put("num_categories", several("num_categories", num_categories, partial(integer, low=2, high=2**24 - 1)))
        if population == "fixed":
            given, num_users = num_users, self._fixed_users()
            if given is not None and several("num_users", given, integer) != (num_users,):
                raise StudyError(f"num_users is {given}, the users in distributions are {num_users:,}; leave it out")
        if num_users is None:
            raise StudyError("num_users is missing")
        put("num_users", several("num_users", num_users, integer))

    def _fixed_users(self) -> int:
        """How many users the distributions of the population "fixed" hold."""
        if self.distributions is None:
            raise StudyError("the population 'fixed' takes its users from distributions, which is missing")
        totals = {}
        for name in self.distributions:
            users = self.shares(name, self.num_categories[0])
            if users.dtype.kind not in "iu":
                raise StudyError(
                    f"distribution {name!r}: for the population 'fixed' it must hold integers, the number of users in "
                    f"each category; got {users.dtype}"
                )
            totals[name] = int(users.sum())
        if len(set(totals.values())) > 1:
            found = ", ".join(f"{name}: {total:,}" for name, total in totals.items())
            raise StudyError(f"distributions with different numbers of users ({found}): study each alone")
        return next(iter(totals.values()))

    def shares(self, population: float | str, num_categories: int) -> np.ndarray:
        """The distribution of one population: `[K]`, normalized (counts for the population "fixed")."""
        if self.distributions is None:
            return np.asarray(simulate.zipf(num_categories, float(population)))
        value = self.distributions[str(population)]
        try:
            array = np.asarray(value(num_categories) if callable(value) else value)
        except Exception as error:
            raise StudyError(f"distribution {population!r} failed for K = {num_categories}: {error}") from error
        if array.shape != (num_categories,):
            raise StudyError(f"distribution {population!r} has shape {array.shape} for K = {num_categories}")
        if array.dtype.kind not in "iuf" or not np.isfinite(array).all() or (array < 0).any() or not array.any():
            raise StudyError(
                f"distribution {population!r} must hold finite numbers, none negative and not all zero "
                f"(K = {num_categories})"
            )
        if self.population == "fixed":
            return array
        array = array.astype(np.float64)
        array /= array.max()  # so that no sum is infinite
        return (array / array.sum()).astype(float_dtype())

    @property
    def populations(self) -> tuple[float | str, ...]:
        """The Zipf exponents, or the labels of the distributions."""
        if self.distributions is not None:
            return tuple(self.distributions)
        assert self.zipf is not None
        return self.zipf

    def configurations(self, num_categories: int | None = None) -> list[Configuration]:
        """All points of the grid (those with this K), in the order of the result's dimensions."""
        sizes = self.num_categories if num_categories is None else (num_categories,)
        return [
            Configuration(*point) for point in itertools.product(sizes, self.num_users, self.epsilon, self.populations)
        ]

    def run(
        self,
        seed: int = 0,
        *,
        folder: str | Path | None = None,
        batch_size: int | None = None,
        memory: int | None = None,
        devices: Sequence[Any] | None = None,
        quantiles: Sequence[float] = (),
        keep_seeds: bool = False,
        progress: Callable[[Progress], None] | None = None,
    ) -> xr.Dataset:
        """Runs the study.

        Every simulated collection has a key of its own, made of `seed`, its configuration and its number, and all that
        is computed runs in tiles of one shape. So the result is the same to the last bit whatever the batches,
        devices, processes and interruptions; the random numbers of a configuration do not depend on the rest of the
        grid either.

        Args:
            seed: The study's random seed, an integer from 0.
            folder: Where to keep what is finished (made if missing). A run that was killed goes on from there.
            batch_size: Tiles that a device computes before the results are fetched and kept; by default about a
                second of work.
            memory: Bytes that the arrays of a batch may take on all devices together; by default 4 GiB on a CPU, half
                of the memory of a GPU.
            devices: Those to use; by default all of `jax.devices()`, of every process that `jax.distributed` joined
                (then all of them call this function, and all get the result).
            quantiles: Quantiles over the seeds to report with every metric, in [0, 1].
            keep_seeds: Whether to return the metrics of every single seed too.
            progress: Called after every batch.

        Returns:
            A dataset with the dimensions `(estimator, num_categories, num_users, epsilon, zipf)` (`distribution` in
            place of `zipf`), labelled by the values given. For every metric: its mean over the seeds (`mse`), the
            standard error of that (`mse_se`), and the mean of the paired differences between estimators with its
            standard error (`mse_difference`, `mse_difference_se`, with a dimension `versus`). Where asked,
            `mse_quantile` and `mse_seeds`. `bias2` and `variance` sum over the categories to the mean squared error:
            Σ (mean error)², and Σ of the variances over the seeds; both divide by num_seeds, so that an unbiased
            estimator shows a `bias2` of about `variance` / num_seeds.

        Raises:
            StudyError: An estimator that returns a wrong shape or NaN, or fails; a batch beyond the memory; a folder of
                another study. What was finished stays in the folder.
        """
        from rrjax.study.runner import run

        return run(
            self,
            seed=seed,
            folder=None if folder is None else Path(folder),
            batch_size=batch_size,
            memory=memory,
            devices=devices,
            quantiles=quantiles,
            keep_seeds=keep_seeds,
            progress=progress,
        )

    def collection(self, configuration: Configuration, number: int, *, seed: int = 0) -> tuple[jax.Array, jax.Array]:
        """Draws one collection of the study again, to look at it.

        Args:
            configuration: One of `configurations()`.
            number: Which of its collections, from 0.
            seed: As given to `run`.

        Returns:
            The truth that estimates are compared with, `[K]`, and the counts of the reports, `[K]`.
        """
        from rrjax.study.tile import collect

        if not 0 <= number < 2**32:
            raise StudyError(f"number must be from 0 to {2**32 - 1}, got {number}")
        population = self.shares(configuration.population, configuration.num_categories)
        words = jax.numpy.asarray(configuration.words(seed), jax.numpy.uint32)
        truth, counts, _ = collect(
            self.population,
            words,
            jax.numpy.uint32(number),
            jax.numpy.asarray(population),
            jax.numpy.int32(configuration.num_users),
            jax.numpy.asarray(configuration.epsilon, float_dtype()),
        )
        return truth, counts

    def describe(self) -> dict[str, Any]:
        """What the study is, as JSON holds it: it tells one study from another."""
        distributions = None
        if self.distributions is not None:
            distributions = {
                name: [hashlib.sha256(np.ascontiguousarray(self.shares(name, k)).tobytes()).hexdigest()[:16]
                       for k in self.num_categories]
                for name in self.distributions
            }  # fmt: skip
        description = {
            "estimators": {label: identity_of(f) for label, f in self.estimators.items()},
            "num_categories": self.num_categories,
            "num_users": self.num_users,
            "epsilon": self.epsilon,
            "zipf": self.zipf,
            "distributions": distributions,
            "num_seeds": self.num_seeds,
            "population": self.population,
            "metrics": {label: identity_of(f) for label, f in self.metrics.items()},
        }
        return json.loads(json.dumps(description))


def takes_key(estimator: Estimator) -> bool:
    """Whether an estimator draws random numbers: its first argument is called `key`."""
    try:
        parameters = list(inspect.signature(estimator).parameters)
    except (TypeError, ValueError):
        return False
    return bool(parameters) and parameters[0] == "key"
