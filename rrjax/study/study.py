"""A study: its arguments, checked, its grid of configurations, and its run."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args

import jax
import numpy as np
from jaxtyping import ArrayLike

from rrjax import simulate
from rrjax.data.arguments import Estimand, float_dtype
from rrjax.data.errors import StudyError
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import ENTRIES, METRICS
from rrjax.mechanisms import MECHANISMS, ByRespondent, Design, MechanismFactory
from rrjax.mechanisms.table import full_name
from rrjax.study.arguments import (
    Configuration,
    Progress,
    RunOptions,
    as_texts,
    as_toml,
    categories_of,
    check_labels,
    check_metrics,
    exponent,
    integer,
    named,
    positive,
    refusal,
    several,
    shape_in_words,
)
from rrjax.study.identity import identities_of
from rrjax.study.mechanisms import (
    JointCounts,
    OneDesign,
    check_estimators,
    check_rounds,
    check_sizes,
    with_parameters,
)
from rrjax.study.modules import function_named
from rrjax.study.row_tile import height_of_tile
from rrjax.study.runner import run
from rrjax.study.tile import draw_again

if TYPE_CHECKING:
    import xarray as xr

_STUDY_KEYS = (
    *("estimators", "mechanism", "num_categories", "num_users", "epsilon", "zipf", "distributions", "users"),
    *("num_seeds", "estimand", "metrics"),
)
_RUN_KEYS = ("seed", "quantiles", "keep_seeds", "batch_size")

Estimator: TypeAlias = Callable[..., Any]
Metric: TypeAlias = Callable[[Any, Any], Any]
Distribution: TypeAlias = ArrayLike | Callable[[int], ArrayLike]
MechanismOption: TypeAlias = str | MechanismFactory | Design | ByRespondent | Mapping[str, Any]


@dataclasses.dataclass(frozen=True, init=False)
class Study:
    """A Monte Carlo study: every estimator on the same simulated collections, over a grid of configurations.

    Args:
        estimators: Names of `rrjax.catalogue.ESTIMATORS` or "joint_bayes", functions `f(counts, epsilon) -> theta` (or
            `f(key, counts, epsilon)`) that `jax.jit` and `jax.vmap` can transform, or a mapping of labels to either.
            With mechanisms they are called as `f(tally, None)`.
        mechanism: None is randomized response, collected as counts. Or names of `rrjax.mechanisms.MECHANISMS` (or those
            of the papers, such as "oue"), functions of K and ε that return a `Mechanism`, such as
            `functools.partial(SubsetSelection, subset_size=5)`, or a mapping of labels to either; survey designs, or
            tables of their parameters, such as {"mechanism": "warner", "truth_probability": 0.7}; a `ByRespondent`, or
            a table such as {"mechanism": "by-respondent", "designs": [{"mechanism": "direct"}, {"mechanism":
            "crosswise", "innocuous": 0.2}], "shares": [96, 310]}, by whose shares the N users are divided, at random,
            among the designs, with estimators as of columns below; tables of longitudinal protocols, such as
            {"mechanism": "longitudinal-randomized-response", "first_epsilon": 1.0, "rounds": 7}, which collect `rounds`
            reports of each user, as their method `collect`, and have the study's ε as ε∞; tables of columns that are
            randomized apart by randomized response, such as {"mechanism": "product", "columns": [4, 3]}, which split
            the study's ε equally, or by the weights in "split". K is then the number of cells, the first column
            slowest; estimators are inv, inv_n, inv_p, base_pos, ibu, mle, joint_bayes, and functions `f(counts, None)`
            of `JointCounts`. Other mechanisms collect tallies. All collect from the same users, and are the values of
            the dimension `mechanism` of the result. ε is traced: a parameter that needs a known ε (`field_order`) must
            be given if the study has several ε.
        num_categories: K, one or several. May be omitted if `distributions` or `users` are arrays.
        num_users: N, one or several; omitted if `users` are given.
        epsilon: ε in nats, one or several; survey designs have their own. If all mechanisms are designs it may be
            omitted, and is the largest that they deliver.
        zipf: Exponents of Zipf populations, one or several; infinity is the point mass.
        distributions: In place of `zipf`, label → `[K]` (or a function of K that returns it).
        users: In place of either, label → `[K]`, integers: the number of users in each category. Then only the
            randomization is random.
        num_seeds: Number of simulated collections of every configuration, at least 2.
        estimand: The truth that estimates are compared with: "users", the histogram of the N users drawn (or given), as
            in the paper; or "distribution", the one from which they are drawn.
        metrics: Names of `rrjax.catalogue.METRICS`, or functions `f(estimate, truth) -> scalar`. By default mse, and
            without mechanisms nll, which needs whole reports.

    Raises:
        StudyError: An invalid argument; the error has `argument` and `value`.

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

    estimators: Mapping[str, Estimator]
    mechanism: Mapping[str, MechanismFactory] | None
    num_categories: tuple[int, ...]
    num_users: tuple[int, ...]
    epsilon: tuple[float, ...]
    zipf: tuple[float, ...] | None
    distributions: Mapping[str, Distribution] | None
    users: Mapping[str, Distribution] | None
    num_seeds: int
    estimand: Estimand
    metrics: Mapping[str, Metric | None]

    def __init__(
        self,
        *,
        estimators: str | Estimator | Sequence[str | Estimator] | Mapping[str, str | Estimator],
        epsilon: float | Sequence[float] | None = None,
        mechanism: MechanismOption | Sequence[MechanismOption] | Mapping[str, MechanismOption] | None = None,
        num_categories: int | Sequence[int] | None = None,
        num_users: int | Sequence[int] | None = None,
        zipf: float | Sequence[float] | None = None,
        distributions: Mapping[str, Distribution] | None = None,
        users: Mapping[str, Distribution] | None = None,
        num_seeds: int = 100,
        estimand: Estimand = "users",
        metrics: str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric | None] | None = None,
    ) -> None:
        """Checks the arguments and converts their types."""
        if estimand not in get_args(Estimand):
            raise StudyError.about(
                "estimand", f"must be 'users' or 'distribution', got {as_toml(estimand)}", value=estimand
            )
        if sum(given is not None for given in (zipf, distributions, users)) != 1:
            raise refusal("zipf", "give zipf, distributions or users, one of them", zipf)
        if users is not None and estimand != "users":
            raise refusal(
                "estimand", "with users there is no distribution that they are drawn from: leave estimand out", estimand
            )
        labelled = distributions if users is None else users
        if labelled is not None:
            num_categories = categories_of(labelled, num_categories, "distributions" if users is None else "users")
        if num_categories is None:
            raise refusal("num_categories", "num_categories is missing")

        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        known = {entry.name: entry.function for entry in ENTRIES if entry.needs != "numbers"}
        put("estimators", named(estimators, known, "estimators"))
        mechanism = with_parameters(mechanism)
        put("mechanism", None if mechanism is None else named(mechanism, MECHANISMS, "mechanism", full_name))
        if metrics is None:
            metrics = ("mse", "nll") if mechanism is None else "mse"
        put("metrics", named(metrics, dict.fromkeys(METRICS), "metrics"))
        check_labels(self.metrics)
        if self.mechanism is not None:
            check_metrics(self.metrics)
        put("estimand", estimand)
        put("num_seeds", integer("num_seeds", num_seeds, 2, 2**31 - 1))
        put("num_categories", several("num_categories", num_categories, partial(integer, low=2, high=2**24 - 1)))
        check_estimators(self.mechanism, self.estimators)
        check_sizes(self.mechanism or {}, self.num_categories)
        if epsilon is None:
            designs = [each for each in (self.mechanism or {}).values() if isinstance(each, OneDesign)]
            if not designs or len(designs) < len(self.mechanism or ()):
                raise refusal("epsilon", "epsilon is missing")
            epsilon = max(float(design(self.num_categories[-1]).epsilon) for design in designs)
        put("epsilon", several("epsilon", epsilon, positive))
        for value in self.epsilon:
            if not np.asarray(value, float_dtype()) > 0:
                raise StudyError.about(
                    "epsilon", f"{value:g} is zero in {float_dtype().name}; the smallest is about 1e-38", value=value
                )
        put("zipf", None if zipf is None else several("zipf", zipf, exponent))
        put("distributions", None if distributions is None else _as_given(distributions, "distributions"))
        put("users", None if users is None else _as_given(users, "users"))
        for name, value in (self.distributions or {}).items():
            if not callable(value):
                self.shares(name, self.num_categories[0])
        if self.users is not None:
            given, num_users = num_users, self._total_users(self.users)
            if given is not None and several("num_users", given, integer) != (num_users,):
                raise refusal(
                    "num_users",
                    f"num_users is {as_toml(given)}, the users given are {num_users:,}; leave num_users out",
                    given,
                )
        if num_users is None:
            raise refusal("num_users", "num_users is missing")
        put("num_users", several("num_users", num_users, integer))
        check_rounds(self.mechanism or {}, self.num_categories, self.epsilon, max(self.num_users))

    def _total_users(self, users: Mapping[str, Distribution]) -> int:
        """The number of users, if they are given: the same for every K."""
        totals = {}
        for name, size in itertools.product(users, self.num_categories):
            held = self.shares(name, size)
            if held.dtype.kind not in "iu":
                raise StudyError.about(
                    "users", f"{name!r} must be integers, the number of users in each category", value=name
                )
            where = f"{name} with {size} categories" if len(self.num_categories) > 1 else name
            totals[where] = sum(map(int, held))
        if len(set(totals.values())) > 1:
            listed = ", ".join(f"{where}: {total:,}" for where, total in totals.items())
            raise refusal("users", f"populations with different numbers of users ({listed}): study each alone")
        return next(iter(totals.values()))

    def shares(self, population: float | str, num_categories: int) -> np.ndarray:
        """The distribution of a population, `[K]`, normalized; if users are given, their number in each category."""
        labelled = self.distributions if self.users is None else self.users
        argument = "distributions" if self.users is None else "users"
        if labelled is None:
            return np.asarray(simulate.zipf(num_categories, float(population)))
        value = labelled[str(population)]
        try:
            array = np.asarray(value(num_categories) if callable(value) else value)
        except Exception as error:
            raise refusal(
                argument,
                f"distribution {population!r} failed for K = {num_categories}: {type(error).__name__}: {error}",
                population,
            ) from error
        if array.shape != (num_categories,):
            raise refusal(
                argument,
                f"distribution {population!r} has {shape_in_words(array.shape)} for K = {num_categories}",
                population,
            )
        if array.dtype.kind not in "iuf" or not np.isfinite(array).all() or (array < 0).any() or not array.any():
            raise refusal(
                argument,
                f"distribution {population!r} must hold finite numbers, none negative and not all zero "
                f"(K = {num_categories})",
                population,
            )
        if self.users is not None:
            return array
        array = array.astype(np.float64)
        array /= array.max()  # no sum overflows then
        return (array / array.sum()).astype(float_dtype())

    @property
    def populations(self) -> tuple[float | str, ...]:
        """The Zipf exponents, or the labels of the distributions or users."""
        return tuple(self.zipf or self.distributions or self.users or ())

    @property
    def dimension(self) -> str:
        """The dimension of the populations in the dataset."""
        return "distribution" if self.zipf is None else "zipf"

    def configurations(self, num_categories: int | None = None, mechanism: str | None = None) -> list[Configuration]:
        """All points of the grid, or only of one K and mechanism, in the order of the result's dimensions."""
        sizes = self.num_categories if num_categories is None else (num_categories,)
        labels = self.labels if mechanism is None else (mechanism,)
        points = list(itertools.product(sizes, self.num_users, self.epsilon, self.populations))
        return [Configuration(*point, mechanism=label) for label in labels for point in points]

    @property
    def labels(self) -> tuple[str | None, ...]:
        """The labels of the mechanisms; `(None,)` if there are none."""
        return (None,) if self.mechanism is None else tuple(self.mechanism)

    def describe(self) -> dict[str, Any]:
        """The study in JSON's types, different for different studies."""

        def digests(labelled: Mapping[str, Any] | None) -> dict[str, list[str]] | None:
            if labelled is None:
                return None
            return {
                name: [
                    hashlib.sha256(np.ascontiguousarray(self.shares(name, size)).tobytes()).hexdigest()[:16]
                    for size in self.num_categories
                ]
                for name in labelled
            }

        functions = identities_of(self, self.num_categories, height=height_of_tile(jax.default_backend()))
        description = {
            "estimators": functions["estimators"],
            "num_categories": self.num_categories,
            "num_users": self.num_users,
            "epsilon": self.epsilon,
            "zipf": self.zipf,
            "distributions": digests(self.distributions),
            "users": digests(self.users),
            "num_seeds": self.num_seeds,
            "estimand": self.estimand,
            "metrics": functions["metrics"],
        }
        if self.mechanism is not None:
            description["mechanism"] = functions["mechanism"]
        return json.loads(json.dumps(description))

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

        Every simulated collection has its own key, made from `seed`, its configuration and its number, and all
        computation runs in tiles of one shape. So the result is the same to the last bit for any batches, devices,
        processes and interruptions. The random numbers of a configuration do not depend on the rest of the grid.

        Args:
            seed: The study's random seed, an integer from 0.
            folder: Folder for finished batches (created if missing). After an interruption, a run continues from there.
                Other settings, or functions that compute something else, are another study. One whose functions call
                Python for a value when they run, as by `jax.pure_callback`, is not continued.
            batch_size: Number of tiles of a device between two saves; by default about a second of work.
            memory: Limit for the results and the arrays of a batch on all devices together, bytes; by default 4 GiB on
                a CPU, half of the memory of a GPU.
            devices: Devices; by default all of `jax.devices()`, of every process that `jax.distributed` joined (then
                all processes call this function, and all get the result).
            quantiles: Quantiles over the seeds for every metric, in [0, 1].
            keep_seeds: Whether to return also the metrics of every single seed.
            progress: A function that is called after every batch.

        Returns:
            A dataset with the dimensions `(estimator, num_categories, num_users, epsilon, zipf)` (`distribution` in
            place of `zipf`; `mechanism` after `estimator` if the study has mechanisms), labelled by the given values.
            For every metric: its mean over the seeds (`mse`), the standard error of the mean (`mse_se`), and the mean
            of the paired differences between estimators with its standard error (`mse_difference`, `mse_difference_se`,
            with a dimension `versus`). On request, `mse_quantile` and `mse_seeds`. `bias2` and `variance` sum over the
            categories to the mean squared error: Σ (mean error)², and Σ of the variances over the seeds; both divide by
            num_seeds, so that an unbiased estimator has a `bias2` of about `variance` / num_seeds. The attribute
            `seconds` is the computing time of all `runs` in the folder together.

        Raises:
            MissingPackage: xarray is not installed; nothing was computed.
            StudyError: An estimator returns a wrong shape or NaN, or fails; a batch exceeds the memory; the folder
                contains another study. Finished batches remain in the folder.
        """
        folder = None if folder is None else Path(folder)
        return run(self, RunOptions(seed, folder, batch_size, memory, devices, quantiles, keep_seeds, progress))

    def collection(
        self, configuration: Configuration, number: int, *, seed: int = 0
    ) -> tuple[jax.Array, jax.Array | Tally | JointCounts]:
        """One collection of the study, drawn again.

        Args:
            configuration: One of `configurations()`.
            number: The number of the collection, from 0.
            seed: The seed of the run.

        Returns:
            The truth that estimates are compared with, `[K]`, and the counts of the reports, `[K]`, or for a mechanism
            their tally (`JointCounts` for columns that are randomized apart).
        """
        number = integer("number", number, 0, 2**32 - 1)
        return draw_again(self, configuration, seed, number)


_drawing = threading.RLock()


@dataclasses.dataclass(frozen=True)
class _Drawn:
    """A function of K that may draw: it is called once for each K and precision, so that all see the same."""

    function: Callable[[int], ArrayLike]
    returned: dict[tuple[int, str], np.ndarray] = dataclasses.field(default_factory=dict, repr=False, compare=False)

    def __call__(self, num_categories: int) -> np.ndarray:
        place = num_categories, float_dtype().name
        with _drawing:
            if place not in self.returned:
                self.returned[place] = _frozen(np.asarray(self.function(num_categories)))
            return self.returned[place]


def _frozen(array: ArrayLike) -> Any:
    """A copy that nobody can change: a tuple of a list, which compares as one, else an array."""
    if isinstance(array, list | tuple):
        return tuple(array)
    copy = np.array(array)
    copy.setflags(write=False)
    return copy


def _as_given(labelled: Mapping[Any, Distribution], argument: str) -> dict[str, Distribution]:
    """Distributions or users by their labels, as they are now: later changes of arrays are no part of a study."""
    return {
        label: value if isinstance(value, _Drawn) else _Drawn(cast("Any", value)) if callable(value) else _frozen(value)
        for label, value in as_texts(labelled, argument).items()
    }


def read_study(path: str | Path) -> tuple[Study, dict[str, Any]]:
    """A study from a TOML file, with the arguments of its run.

    Its keys are the arguments of `Study`, and `seed`, `quantiles`, `keep_seeds` and `batch_size` of `Study.run`.
    Your own estimators, mechanisms, metrics and distributions are given as "module:function"; modules may be in the
    folder of the file, and are imported once in a process, as by Python.

    Args:
        path: The file.

    Returns:
        The study, and the arguments for `Study.run`.

    Raises:
        StudyError: The file cannot be read, is not TOML, or has an invalid key or value; the error has `file`,
            `argument` and `value`.

    Example:
        A function of your own would be `mine = "my_module:my_estimator"` among the estimators.

        >>> import pathlib, tempfile
        >>> from rrjax.study import read_study
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "study.toml"
        >>> _ = file.write_text('''
        ... num_categories = [100, 1000]
        ... num_users = [10_000, 1_000_000]
        ... epsilon = [1, 2, 4]
        ... zipf = [0.01, 1.3]
        ... num_seeds = 50
        ... [estimators]
        ... mle_star = "mle_star"
        ... ''')
        >>> study, arguments = read_study(file)
        >>> len(study.configurations()), arguments
        (24, {})
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}", file=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} is not TOML: {error}", file=path) from error
    unknown = sorted(set(table) - {*_STUDY_KEYS, *_RUN_KEYS})
    if unknown:
        raise StudyError(
            f"{path}: unknown {', '.join(unknown)}; known are {', '.join((*_STUDY_KEYS, *_RUN_KEYS))}",
            argument=unknown[0],
            file=path,
        )
    try:
        given = {name: _with_functions(value, name, path) for name, value in table.items()}
        arguments = {name: given.pop(name) for name in _RUN_KEYS if name in given}
        if "estimators" not in given:
            raise refusal("estimators", "estimators is missing")
        RunOptions(**arguments)
        return Study(**given), arguments
    except StudyError as error:
        name = error.argument or ""
        place = f"[{name}] " if isinstance(table.get(name), dict) else "" if name in str(error) else f"{name}: "
        raise StudyError(f"{path}: {place}{error}", argument=error.argument, file=path, value=error.value) from error


def _with_functions(value: Any, argument: str, path: Path) -> Any:
    """The value with the function in place of each "module:function", where functions are allowed."""
    if argument not in ("estimators", "mechanism", "metrics", "distributions", "users"):
        return value
    if isinstance(value, dict):
        return {label: _settled(one, argument, path) for label, one in value.items()}
    return (
        [_settled(one, argument, path) for one in value]
        if isinstance(value, list)
        else (_settled(value, argument, path))
    )


def _settled(value: Any, argument: str, path: Path) -> Any:
    return function_named(value, argument, path) if isinstance(value, str) and ":" in value else value
