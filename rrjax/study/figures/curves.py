"""Metrics against users and ε, bias and variance, and data sets: Figs. 1–3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rrjax.plots import shortened
from rrjax.study.figures.axes import draw_histogram, new_figure
from rrjax.study.figures.panels import Legend, draw_panel, grid_of_panels
from rrjax.study.figures.selection import fix, only_users, prepared
from rrjax.study.figures.styles import AXES
from rrjax.study.figures.words import metric_label, words_for

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


def against_users(
    dataset: xr.Dataset,
    metrics: Sequence[str] = ("mse", "nll"),
    *,
    num_categories: int | None = None,
    epsilon: float | None = None,
) -> Figure:
    """Draws metrics against the number of users (the paper's Fig. 1): a row each, a panel for every population.

    Args:
        dataset: Of a study.
        metrics: Names of its variables.
        num_categories: Which K; may be left out where there is only one.
        epsilon: Which ε, nats; may be left out where there is only one.

    Returns:
        The figure.

    Raises:
        ValueError: A metric or a value is not in the dataset; says which are.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from rrjax.study.figures import against_users
        >>> dims = ("estimator", "num_categories", "num_users", "epsilon", "zipf")
        >>> dataset = xr.Dataset(
        ...     {"mse": (dims, np.reshape([0.2, 0.1, 0.3, 0.1], (2, 1, 2, 1, 1)))},
        ...     {
        ...         "estimator": ["mle_star", "inv_n"],
        ...         "num_categories": [50],
        ...         "num_users": [100, 1000],
        ...         "epsilon": [1.0],
        ...         "zipf": [1.3],
        ...     },
        ... )
        >>> len(against_users(dataset, ["mse"], epsilon=1.0).axes)
        1
    """
    return grid_of_panels(dataset, metrics, "num_users", num_categories=num_categories, epsilon=epsilon)


def against_epsilon(
    dataset: xr.Dataset,
    metrics: Sequence[str] = ("mse", "nll"),
    *,
    num_categories: int | None = None,
    num_users: int | None = None,
) -> Figure:
    """Draws metrics against ε (the paper's Fig. 2): a row each, a panel for every population.

    Args:
        dataset: Of a study.
        metrics: Names of its variables.
        num_categories: Which K; may be left out where there is only one.
        num_users: Which N; may be left out where there is only one.

    Returns:
        The figure.

    Raises:
        ValueError: A metric or a value is not in the dataset; says which are.
    """
    return grid_of_panels(dataset, metrics, "epsilon", num_categories=num_categories, num_users=num_users)


def decomposition(
    dataset: xr.Dataset,
    *,
    num_categories: int | None = None,
    epsilon: float | None = None,
    num_users: int | None = None,
) -> Figure:
    """Draws squared bias and variance, on one scale per population, against N (ε is given) or ε (N is given).

    Squared biases that are not positive, as those corrected for the seeds can be, have no place on the logarithmic
    axis and are left out.

    Args:
        dataset: Of a study, with the variables bias2 and variance.
        num_categories: Which K; may be left out where there is only one.
        epsilon: Which ε, nats: draws against the number of users.
        num_users: Which N: draws against ε.

    Returns:
        The figure.

    Raises:
        ValueError: Both or none of epsilon and num_users, or what is not in the dataset.
    """
    if (epsilon is None) == (num_users is None):
        raise ValueError("either epsilon or num_users, please: the other one is what is drawn against")
    x = "num_users" if num_users is None else "epsilon"
    fixed = {"epsilon": epsilon} if num_users is None else {"num_users": num_users}
    return grid_of_panels(dataset, ("bias2", "variance"), x, sharey="col", num_categories=num_categories, **fixed)


def real_data(
    dataset: xr.Dataset,
    histograms: Mapping[str, np.ndarray],
    metric: str = "mse",
    *,
    num_users: int | None = None,
) -> Figure:
    """Draws a row for every data set (the paper's Fig. 3): its true histogram, and a metric against ε.

    Args:
        dataset: Of a study with the dimension distribution. Where num_categories is a dimension as well, each data set
            has as many as its histogram.
        histograms: Name → `[K]`, shares of the categories in their order; where one is missing, so is its panel.
        metric: The name of a variable.
        num_users: Which N; may be left out where a data set has only one.

    Returns:
        The figure.

    Raises:
        ValueError: The dataset has no dimension distribution, or not the metric or num_users.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from rrjax.study.figures import real_data
        >>> dims = ("estimator", "epsilon", "distribution")
        >>> dataset = xr.Dataset(
        ...     {"mse": (dims, np.full((1, 2, 1), 0.1))},
        ...     {
        ...         "estimator": ["inv_n"],
        ...         "epsilon": [1.0, 2.0],
        ...         "distribution": ["kosarak"],
        ...         "num_categories": 3,
        ...         "num_users": 10,
        ...     },
        ... )
        >>> len(real_data(dataset, {"kosarak": np.array([0.5, 0.3, 0.2])}).axes)
        2
    """
    dataset = prepared(dataset, [metric])
    if "distribution" not in dataset.dims:
        raise ValueError("data sets are along a dimension distribution, which this dataset lacks")
    figure = new_figure(10.5, 2.7 * dataset.sizes["distribution"] + 0.9)
    panels = figure.subplots(dataset.sizes["distribution"], 2, squeeze=False)
    legend = Legend(dataset)
    for (left, right), name in zip(panels, dataset["distribution"].values, strict=True):
        here = dataset.sel(distribution=name)
        shares = None if name not in histograms else np.asarray(histograms[name])
        size = len(shares) if shares is not None and here.sizes.get("num_categories", 1) > 1 else None
        here, at = fix(here, num_categories=size)
        here, users = fix(here, num_users=num_users if num_users is not None else only_users(here, metric))
        if shares is None:
            left.set_axis_off()
        else:
            draw_histogram(left, shares)
            left.set_xlabel("category")
        if right is not panels[-1, 1]:
            right.tick_params(labelbottom=False)
        sizes = ", ".join(words_for(key, value) for key, value in {**at, **users}.items())
        left.set_title(f"{shortened(name)}: {sizes}" if sizes else shortened(name), fontsize=10)
        draw_panel(right, here, metric, "epsilon", legend)
        right.set_ylabel(metric_label(metric), fontsize=9)
    panels[-1, 1].set_xlabel(AXES["epsilon"])
    legend.draw(figure)
    return figure
