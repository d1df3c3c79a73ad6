"""A study, as its users see it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from rrjax.data.arguments import float_dtype
from rrjax.data.tally import Tally
from rrjax.study.arguments import integer
from rrjax.study.grid import Configuration, Grid
from rrjax.study.runner import Progress, run
from rrjax.study.tile import Shape, draw, identity, mechanism_at

if TYPE_CHECKING:
    import xarray as xr


@dataclasses.dataclass(frozen=True, init=False)
class Study(Grid):
    """A Monte Carlo study: every estimator on the same simulated collections, over a grid of configurations.

    Args:
        estimators: Names of `rrjax.catalogue.ESTIMATORS`, functions `f(counts, epsilon) -> theta` (or `f(key, counts,
            epsilon)`) that `jax.jit` and `jax.vmap` can transform, or a mapping of labels to either. With mechanisms
            they are called `f(tally, None)`, as those of rrjax can be.
        mechanism: None is randomized response, collected as counts. Or names of `rrjax.mechanisms.MECHANISMS` (or what
            papers call them, such as "oue"), designs (functions of K and ε that return a `Mechanism`, such as
            `functools.partial(SubsetSelection, subset_size=5)`), or a mapping of labels to either: each collects
            tallies, from the same users for all of them, and has its place in the dimension `mechanism` of the result.
            ε is traced: a parameter that must be known (`field_order`) is chosen by ε where there is one, and to be
            given where there are several.
        num_categories: K, one or several. May be left out where `distributions` or `users` hold arrays.
        num_users: N, one or several; left out where `users` are given.
        epsilon: ε in nats, one or several.
        zipf: Exponents of Zipf populations, one or several; infinity is the point mass.
        distributions: In place of `zipf`, label → `[K]` (or a function of K that returns it).
        users: In place of either, label → `[K]`, integers: the users themselves, how many hold each category. Then only
            their randomization is random.
        num_seeds: Simulated collections of every configuration, at least 2.
        estimand: What estimates are compared with: "users", the histogram of the N users drawn (or given), as in the
            paper; or "distribution", the one that they are drawn from.
        metrics: Names of `rrjax.catalogue.METRICS`, or functions `f(estimate, truth) -> scalar`. By default mse, and,
            where there are no mechanisms, nll, which is of whole reports.

    Raises:
        StudyError: Anything that makes no sense, before any work is done; its `argument` and `value` say what.

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

        Mechanisms, compared on the same users:

        >>> study = Study(
        ...     estimators="inv_p",
        ...     mechanism=["randomized-response", "optimized-unary-encoding"],
        ...     num_categories=50,
        ...     num_users=10_000,
        ...     epsilon=1.0,
        ...     zipf=1.3,
        ...     num_seeds=20,
        ... )
        >>> result = study.run(seed=0)
        >>> result.mse.dims
        ('estimator', 'mechanism', 'num_categories', 'num_users', 'epsilon', 'zipf')
        >>> result.mse.squeeze().idxmin().item()
        'optimized-unary-encoding'
    """

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
            memory: Bytes that the results and the arrays of a batch may take on all devices together; by default 4 GiB
                on a CPU, half of the memory of a GPU.
            devices: Those to use; by default all of `jax.devices()`, of every process that `jax.distributed` joined
                (then all of them call this function, and all get the result).
            quantiles: Quantiles over the seeds to report with every metric, in [0, 1].
            keep_seeds: Whether to return the metrics of every single seed too.
            progress: Called after every batch.

        Returns:
            A dataset with the dimensions `(estimator, num_categories, num_users, epsilon, zipf)` (`distribution` in
            place of `zipf`; `mechanism` after `estimator` where the study has mechanisms), labelled by the values
            given. For every metric: its mean over the seeds (`mse`), the
            standard error of that (`mse_se`), and the mean of the paired differences between estimators with its
            standard error (`mse_difference`, `mse_difference_se`, with a dimension `versus`). Where asked,
            `mse_quantile` and `mse_seeds`. `bias2` and `variance` sum over the categories to the mean squared error:
            Σ (mean error)², and Σ of the variances over the seeds; both divide by num_seeds, so that an unbiased
            estimator shows a `bias2` of about `variance` / num_seeds. Of its attributes, `seconds` is what all `runs`
            in the folder took together; `untimed` is 1 where there were others, of which that is not known.

        Raises:
            StudyError: An estimator that returns a wrong shape or NaN, or fails; a batch beyond the memory; a folder of
                another study. What was finished stays in the folder.
        """
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

    def collection(
        self, configuration: Configuration, number: int, *, seed: int = 0
    ) -> tuple[jax.Array, jax.Array | Tally]:
        """Draws one collection of the study again, to look at it.

        Args:
            configuration: One of `configurations()`.
            number: Which of its collections, from 0.
            seed: As given to `run`.

        Returns:
            The truth that estimates are compared with, `[K]`, and the counts of the reports, `[K]`; of a mechanism,
            their tally.
        """
        number = integer("number", number, 0, 2**32 - 1)
        population = self.shares(configuration.population, configuration.num_categories)
        given = (
            jax.numpy.asarray(configuration.words(seed), jax.numpy.uint32),
            jax.numpy.uint32(number),
            jax.numpy.asarray(population),
            jax.numpy.int32(configuration.num_users),
            jax.numpy.asarray(configuration.epsilon, float_dtype()),
        )
        if configuration.mechanism is None:
            truth, counts, _ = draw(self, *given)
            return truth, counts
        shape = Shape.of(self, configuration.num_categories, jax.default_backend(), configuration.mechanism)
        return _tally(_Program(identity(self, shape), self, shape), *given)


@dataclasses.dataclass(frozen=True)
class _Program:
    """What the draws of a study's mechanism depend on; two that compute the same are equal."""

    identity: tuple[Any, ...]
    study: Study = dataclasses.field(compare=False)
    shape: Shape = dataclasses.field(compare=False)


@partial(jax.jit, static_argnums=0)  # as in a run: by a known ε a mechanism might choose otherwise than by a traced one
def _tally(program, words, number, population, num_users, epsilon):
    mechanism = mechanism_at(program.study, program.shape, epsilon)
    return draw(program.study, words, number, population, num_users, epsilon, mechanism)[:2]
