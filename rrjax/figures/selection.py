"""Parts of a study's dataset, for figures and rankings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.estimators.catalogue import METRICS
from rrjax.figures.style import listed_values, styles_of

if TYPE_CHECKING:
    import xarray as xr

    Data = TypeVar("Data", xr.Dataset, xr.DataArray)


def measured(dataset: xr.Dataset) -> list[str]:
    """The metrics of a dataset except bias2 and variance: the catalogue's, then the user's, which have a `_se`."""
    known = [name for name, metric in METRICS.items() if name in dataset and metric.measure is not None]
    own = [str(name) for name in dataset.data_vars if f"{name}_se" in dataset and not str(name).endswith("_difference")]
    return known + [name for name in own if name not in METRICS]


def population_of(dataset: xr.Dataset) -> str:
    """The dimension of the populations: zipf or distribution."""
    for name in ("zipf", "distribution"):
        if name in dataset.dims or name in dataset.coords:
            return name
    raise ArgumentError(
        f"there is no dimension zipf or distribution; there are: {listed_values(dataset.dims)}", argument="dataset"
    )


def check_metrics(dataset: xr.Dataset, metrics: Sequence[str]) -> None:
    """Refuses an argument that is not a dataset, and metrics that the dataset does not have."""
    variables = getattr(dataset, "data_vars", None)
    if variables is None:
        raise ArgumentError(
            f"this takes the whole dataset of a study, and metrics by their names; got a {type(dataset).__name__}",
            argument="dataset",
        )
    for metric in metrics:
        if metric not in variables:
            there = [name for name in METRICS if name in variables]
            raise ArgumentError(
                f"{metric} is not in the dataset, which has: {listed_values(there or variables)}",
                argument="metric",
                value=metric,
            )


def prepared(dataset: xr.Dataset, metrics: Sequence[str]) -> xr.Dataset:
    """The dataset of one mechanism, with the dimensions that a selection dropped, and estimators in drawing order."""
    check_metrics(dataset, metrics)
    if "mechanism" in dataset.dims:
        labels = [str(label) for label in dataset["mechanism"].values]
        if len(labels) > 1:
            raise ArgumentError(
                f"a figure is of one mechanism, the dataset has {listed_values(labels)}: select one, as in "
                f"result.sel(mechanism={labels[0]!r})",
                argument="mechanism",
                value=labels,
            )
        dataset = dataset.isel(mechanism=0)
    dataset = restored(dataset, "estimator", "num_categories", "num_users", "epsilon", population_of(dataset))
    if "estimator" not in dataset.dims:
        raise ArgumentError(
            f"there is no dimension estimator; there are: {listed_values(dataset.dims)}", argument="dataset"
        )
    names = {str(name): index for index, name in enumerate(dataset["estimator"].values)}
    return dataset.isel(estimator=[names[name] for name in styles_of(names)])


def restored(data: Data, *names: str) -> Data:
    """The data with these dimensions, restored if a selection dropped them."""
    for name in names:
        if name not in data.dims and name in data.coords and data[name].ndim == 0:
            data = data.expand_dims(name)
    return data


def fix(dataset: xr.Dataset, **values: Any) -> tuple[xr.Dataset, dict[str, Any]]:
    """The dataset at given values, and the values; None is the only value of a dimension."""
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name not in dataset.dims and not (name in dataset.coords and dataset[name].ndim == 0):
            if value is not None:
                raise ArgumentError.about(
                    name, f"is no dimension of this dataset; there are: {listed_values(dataset.dims)}", value=value
                )
            continue
        known = np.atleast_1d(dataset[name].values)
        if value is None and len(known) != 1:
            raise ArgumentError(f"which {name}? The dataset has: {listed_values(known)}", argument=name)
        place = 0 if value is None else _place_of(known, value)
        if place is None:
            raise ArgumentError(
                f"{name} {value} is not in the dataset, which has: {listed_values(known)}", argument=name, value=value
            )
        chosen[name] = known[place]
        if name in dataset.dims:
            dataset = dataset.isel({name: place})
    return dataset, chosen


def _place_of(known: np.ndarray, value: Any) -> int | None:
    """The index of a value."""
    same = known.astype(str) == str(value)
    if known.dtype.kind in "iuf":
        try:
            same = np.isclose(known.astype(float), float(value), rtol=1e-9, atol=0)
        except ValueError:
            return None
    return int(np.argmax(same)) if same.any() else None


def only_users(here: xr.Dataset, metric: str) -> Any:
    """The number of users of a data set: the only one with values, or None."""
    if here.sizes.get("num_users", 1) == 1:
        return None
    others = [name for name in here[metric].dims if name != "num_users"]
    held = here["num_users"].values[here[metric].notnull().any(others).values]
    return held[0] if len(held) == 1 else None


def spread_over(values: Any, limit: int) -> list[Any]:
    """At most `limit` of the values, evenly spread."""
    places = np.unique(np.linspace(0, len(values) - 1, min(limit, len(values))).round().astype(int))
    return [values[place] for place in places]


def rounding(dataset: xr.Dataset, metric: str, mean: np.ndarray) -> np.ndarray:
    """The largest difference of two means of a metric that the rounding of the study's floats can cause.

    Eight units in the last place of each mean. Equal estimates differ by half a unit in each share, which changes a
    squared error m by up to 2·√m·‖θ‖·eps/2 ≤ eps·√m, and distances that are linear in the shares by up to eps.
    """
    eps = float(np.finfo(str(dataset.attrs.get("precision", "float64"))).eps)
    size = np.abs(mean)
    shares = {"mse": np.sqrt(size), "bias2": np.sqrt(size), "variance": np.sqrt(size)}
    return eps * (8 * size + shares.get(metric, 1.0 if metric in ("tv", "max_error", "kl") else 0.0))
