"""The labelled dataset of a study, from the metrics of single seeds."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rrjax.estimators.catalogue import METRICS
from rrjax.study.functions import metrics_of_seeds

if TYPE_CHECKING:
    import xarray as xr

    from rrjax.study.arguments import RunOptions
    from rrjax.study.grid import Grid


class Result(NamedTuple):
    """The results of all configurations of one K and one mechanism."""

    num_categories: int
    measures: np.ndarray
    """`[configurations, seeds, estimators, metrics]`"""
    bias2: np.ndarray | None
    """`[configurations, estimators]`"""


def dataset(study: Grid, results: Sequence[Result], options: RunOptions, attributes: Mapping[str, Any]) -> xr.Dataset:
    """The dataset of a finished study: see `Study.run`."""
    import xarray as xr

    estimators, metrics, quantiles = list(study.estimators), list(study.metrics), options.quantiles
    coordinates: dict[str, list[Any]] = {} if study.mechanism is None else {"mechanism": list(study.mechanism)}
    coordinates |= {
        "num_categories": list(study.num_categories),
        "num_users": list(study.num_users),
        "epsilon": list(study.epsilon),
        study.dimension: list(study.populations),
    }
    grid = tuple(len(values) for values in coordinates.values())
    dims = ("estimator", *coordinates)

    def on_grid(array, *, leading):
        """`[configurations, *leading, …]` → `[*leading, *grid, …]`."""
        array = np.moveaxis(array, 0, leading)
        return array.reshape(*array.shape[:leading], *grid, *array.shape[leading + 1 :])

    variables: dict[str, Any] = {}

    def put(name, dims, values, metric):
        known = METRICS.get(metric)
        label, unit = (known.label.replace("\n", " "), known.unit) if known else (metric, "")
        variables[name] = (dims, values, {"long_name": label, "units": unit})

    number = study.num_seeds
    with warnings.catch_warnings():
        # Infinite divergences have an infinite mean and a NaN standard error.
        warnings.simplefilter("ignore", RuntimeWarning)
        for place, name in enumerate(metrics_of_seeds(study)):
            # [configurations, seeds, estimators]; averages are always in float64
            values = np.concatenate([result.measures[..., place] for result in results]).astype(np.float64)
            mean, error = values.mean(1), values.std(1, ddof=1) / np.sqrt(number)
            if name not in metrics:
                variables["mse"] = (dims, on_grid(mean, leading=1), {})
                continue
            put(name, dims, on_grid(mean, leading=1), name)
            put(f"{name}_se", dims, on_grid(error, leading=1), name)
            means, errors = _paired(values)
            put(f"{name}_difference", ("estimator", "versus", *dims[1:]), on_grid(means, leading=2), name)
            put(f"{name}_difference_se", ("estimator", "versus", *dims[1:]), on_grid(errors, leading=2), name)
            if len(quantiles):
                found = np.moveaxis(np.quantile(values, list(quantiles), axis=1), 0, -1)
                put(f"{name}_quantile", (*dims, "quantile"), on_grid(found, leading=1), name)
            if options.keep_seeds:
                put(f"{name}_seeds", (*dims, "seed"), on_grid(values.swapaxes(1, 2), leading=1), name)
    if any(result.bias2 is not None for result in results):
        bias2 = on_grid(np.concatenate([np.asarray(result.bias2) for result in results]), leading=1)
        if "bias2" in metrics:
            put("bias2", dims, bias2, "bias2")
        if "variance" in metrics:
            put("variance", dims, np.maximum(variables["mse"][1] - bias2, 0), "variance")
        if "mse" not in metrics:
            del variables["mse"]

    labels: dict[str, Any] = {"estimator": estimators, **coordinates}
    if any("difference" in name for name in variables):
        labels["versus"] = estimators
    if len(quantiles):
        labels["quantile"] = list(quantiles)
    if options.keep_seeds:
        labels["seed"] = np.arange(number)
    # NetCDF has no nested attributes.
    flat = {
        name: value if isinstance(value, str | int | float) else json.dumps(value)
        for name, value in attributes.items()
        if value is not None
    }
    return xr.Dataset(variables, labels, flat)


def _paired(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean differences between estimators over the seeds, and their standard errors, `[configurations, E, E]`."""
    number = values.shape[-1]
    means = np.zeros((len(values), number, number))
    errors = np.zeros_like(means)
    for first in range(number):
        for second in range(first):
            difference = values[..., first] - values[..., second]
            mean, error = difference.mean(1), difference.std(1, ddof=1) / np.sqrt(values.shape[1])
            means[:, first, second], means[:, second, first] = mean, -mean
            errors[:, first, second] = errors[:, second, first] = error
    return means, errors
