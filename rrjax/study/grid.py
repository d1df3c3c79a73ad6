"""The settings of a study: estimators, a grid of configurations, populations."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, get_args

import numpy as np
from jaxtyping import ArrayLike

from rrjax import simulate
from rrjax.data.arguments import Estimand, float_dtype
from rrjax.data.errors import StudyError
from rrjax.estimators.catalogue import ENTRIES, METRICS
from rrjax.mechanisms import MECHANISMS, Design, MechanismFactory
from rrjax.mechanisms.table import full_name
from rrjax.study.arguments import (
    as_texts,
    as_toml,
    categories_of,
    check_labels,
    check_metrics,
    exponent,
    integer,
    named,
    positive,
    several,
    shape_in_words,
)
from rrjax.study.designs import designs_of, with_designs
from rrjax.study.identity import Configuration, identity_of
from rrjax.study.products import check_products
from rrjax.study.rounds import check_rounds

Estimator: TypeAlias = Callable[..., Any]
Metric: TypeAlias = Callable[[Any, Any], Any]
Distribution: TypeAlias = ArrayLike | Callable[[int], ArrayLike]
MechanismOption: TypeAlias = str | MechanismFactory | Design | Mapping[str, Any]


@dataclasses.dataclass(frozen=True, init=False)
class Grid:
    """The settings of a study, checked; see `Study`."""

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
            raise StudyError("give zipf, distributions or users, one of them", argument="zipf", value=zipf)
        if users is not None and estimand != "users":
            raise StudyError(
                "with users there is no distribution that they are drawn from: leave estimand out",
                argument="estimand",
                value=estimand,
            )
        labelled = distributions if users is None else users
        if labelled is not None:
            num_categories = categories_of(labelled, num_categories, "distributions" if users is None else "users")
        if num_categories is None:
            raise StudyError("num_categories is missing", argument="num_categories")

        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        known = {entry.name: entry.function for entry in ENTRIES if entry.needs != "numbers"}
        put("estimators", named(estimators, known, "estimators"))
        mechanism = with_designs(mechanism)
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
        check_products(self.mechanism, self.num_categories, self.estimators)
        designs = designs_of(self.mechanism, self.num_categories)
        if epsilon is None:
            if not designs or len(designs) < len(self.mechanism or ()):
                raise StudyError("epsilon is missing", argument="epsilon")
            epsilon = max(float(design.epsilon) for design in designs.values())
        put("epsilon", several("epsilon", epsilon, positive))
        for value in self.epsilon:
            if not np.asarray(value, float_dtype()) > 0:
                raise StudyError.about(
                    "epsilon", f"{value:g} is zero in {float_dtype().name}; the smallest is about 1e-38", value=value
                )
        put("zipf", None if zipf is None else several("zipf", zipf, exponent))
        put("distributions", None if distributions is None else as_texts(distributions, "distributions"))
        put("users", None if users is None else as_texts(users, "users"))
        for name, value in (self.distributions or {}).items():
            if not callable(value):
                self.shares(name, self.num_categories[0])
        if self.users is not None:
            given, num_users = num_users, self._total_users(self.users)
            if given is not None and several("num_users", given, integer) != (num_users,):
                raise StudyError(
                    f"num_users is {as_toml(given)}, the users given are {num_users:,}; leave num_users out",
                    argument="num_users",
                    value=given,
                )
        if num_users is None:
            raise StudyError("num_users is missing", argument="num_users")
        put("num_users", several("num_users", num_users, integer))
        check_rounds(self.mechanism, self.num_categories, self.epsilon, max(self.num_users))

    def _total_users(self, users: Mapping[str, Distribution]) -> int:
        """The number of users, if they are given."""
        totals = {}
        for name in users:
            held = self.shares(name, self.num_categories[0])
            if held.dtype.kind not in "iu":
                raise StudyError.about(
                    "users", f"{name!r} must be integers, the number of users in each category", value=name
                )
            totals[name] = int(held.sum())
        if len(set(totals.values())) > 1:
            found = ", ".join(f"{name}: {total:,}" for name, total in totals.items())
            raise StudyError(
                f"populations with different numbers of users ({found}): study each alone", argument="users"
            )
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
            raise StudyError(
                f"distribution {population!r} failed for K = {num_categories}: {type(error).__name__}: {error}",
                argument=argument,
                value=population,
            ) from error
        if array.shape != (num_categories,):
            raise StudyError(
                f"distribution {population!r} has {shape_in_words(array.shape)} for K = {num_categories}",
                argument=argument,
                value=population,
            )
        if array.dtype.kind not in "iuf" or not np.isfinite(array).all() or (array < 0).any() or not array.any():
            raise StudyError(
                f"distribution {population!r} must hold finite numbers, none negative and not all zero "
                f"(K = {num_categories})",
                argument=argument,
                value=population,
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

        description = {
            "estimators": {label: identity_of(f) for label, f in self.estimators.items()},
            "num_categories": self.num_categories,
            "num_users": self.num_users,
            "epsilon": self.epsilon,
            "zipf": self.zipf,
            "distributions": digests(self.distributions),
            "users": digests(self.users),
            "num_seeds": self.num_seeds,
            "estimand": self.estimand,
            "metrics": {label: identity_of(f) for label, f in self.metrics.items()},
        }
        if self.mechanism is not None:
            description["mechanism"] = {label: identity_of(f, classes=True) for label, f in self.mechanism.items()}
        return json.loads(json.dumps(description))
