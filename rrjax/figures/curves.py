"""Figures of metrics against users and ε: Figs. 1–3 and 5–10, and bias and variance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures import style
from rrjax.figures.axes import new_figure, no_axes
from rrjax.figures.panels import (
    Layout,
    Legend,
    draw_histogram,
    draw_panel,
    draw_panels,
    draw_ranked,
    finish,
    listed,
    magnify,
    set_scale,
)
from rrjax.figures.selection import check_metrics, fix, measured, only_users, population_of, prepared, spread_over

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


@no_axes
def against_users(
    dataset: xr.Dataset,
    metrics: str | Sequence[str] | None = None,
    *,
    num_categories: int | None = None,
    epsilon: float | None = None,
) -> Figure:
    """Draws metrics against the number of users (the paper's Fig. 1): a row each, a panel for every population.

    Args:
        dataset: Dataset of a study.
        metrics: A name of its variables, or several. None: mse and nll, if the dataset has them, else all of its
            metrics.
        num_categories: K; may be omitted if there is only one.
        epsilon: ε, nats; may be omitted if there is only one.

    Returns:
        The figure.

    Raises:
        ArgumentError: A metric or a value is not in the dataset; the message lists the available ones.

    Example:
        >>> from rrjax.figures import against_users
        >>> from rrjax.study import Study
        >>> grid = {"num_categories": 20, "num_users": [100, 1000], "epsilon": [1.0, 2.0], "zipf": 1.3}
        >>> result = Study(estimators=["mle_star", "inv_n"], **grid, num_seeds=2).run()
        >>> len(against_users(result, epsilon=1.0).axes)
        2
    """
    return _by_population(dataset, metrics, "num_users", num_categories=num_categories, epsilon=epsilon)


@no_axes
def against_epsilon(
    dataset: xr.Dataset,
    metrics: str | Sequence[str] | None = None,
    *,
    num_categories: int | None = None,
    num_users: int | None = None,
) -> Figure:
    """Draws metrics against ε (the paper's Fig. 2): a row each, a panel for every population.

    Args:
        dataset: Dataset of a study.
        metrics: A name of its variables, or several. None: mse and nll, if the dataset has them, else all of its
            metrics.
        num_categories: K; may be omitted if there is only one.
        num_users: N; may be omitted if there is only one.

    Returns:
        The figure.

    Raises:
        ArgumentError: A metric or a value is not in the dataset; the message lists the available ones.

    Example:
        >>> from rrjax.figures import against_epsilon
        >>> from rrjax.study import Study
        >>> grid = {"num_categories": 20, "num_users": [100, 1000], "epsilon": [1.0, 2.0], "zipf": 1.3}
        >>> result = Study(estimators=["mle_star", "inv_n"], **grid, num_seeds=2).run()
        >>> len(against_epsilon(result, ["mse"], num_users=1000).axes)
        1
    """
    return _by_population(dataset, metrics, "epsilon", num_categories=num_categories, num_users=num_users)


@no_axes
def decomposition(
    dataset: xr.Dataset,
    *,
    num_categories: int | None = None,
    epsilon: float | None = None,
    num_users: int | None = None,
) -> Figure:
    """Draws squared bias and variance, on one scale, against N (ε is given) or ε (N is given).

    Squared biases that are not positive are omitted: the axis is logarithmic.

    Args:
        dataset: Dataset of a study, with the variables bias2 and variance.
        num_categories: K; may be omitted if there is only one.
        epsilon: ε, nats, for a figure against the number of users.
        num_users: N, for a figure against ε.

    Returns:
        The figure.

    Raises:
        ArgumentError: Both or none of epsilon and num_users, or a value that is not in the dataset.

    Example:
        >>> from rrjax.figures import decomposition
        >>> from rrjax.study import Study
        >>> grid = {"num_categories": 20, "num_users": [100, 1000], "epsilon": 1.0, "zipf": 1.3}
        >>> result = Study(estimators="inv_n", **grid, num_seeds=2, metrics=["bias2", "variance"]).run()
        >>> [axes.get_ylabel().split(",")[0] for axes in decomposition(result, epsilon=1.0).axes]
        ['squared bias', 'variance']
    """
    if (epsilon is None) == (num_users is None):
        raise ArgumentError(
            "give either epsilon or num_users: the other one is what is drawn against",
            argument="epsilon",
            value=epsilon,
        )
    x = "num_users" if num_users is None else "epsilon"
    fixed = {"epsilon": epsilon} if num_users is None else {"num_users": num_users}
    return _by_population(dataset, ("bias2", "variance"), x, one_scale=True, num_categories=num_categories, **fixed)


@no_axes
def real_data(
    dataset: xr.Dataset,
    histograms: Mapping[str, np.ndarray],
    metric: str = "mse",
    *,
    num_users: int | None = None,
    labels: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """Draws a row for every data set (the paper's Fig. 3): its true histogram, and a metric against ε.

    Args:
        dataset: Dataset of a study with the dimension distribution. If num_categories is a dimension as well, each data
            set has the K of its histogram.
        histograms: Name → `[K]`, shares of the categories in their order; a missing one has no panel.
        metric: The name of a variable.
        num_users: N; may be omitted if a data set has only one.
        labels: Name → `[K]`, names of the categories; by default their numbers from 0.

    Returns:
        The figure.

    Raises:
        ArgumentError: The dataset does not have the dimension distribution, the metric or num_users.

    Example:
        >>> import numpy as np
        >>> from rrjax.figures.curves import real_data
        >>> from rrjax.study import Study
        >>> counts = np.array([50, 30, 20])
        >>> result = Study(estimators="inv_n", users={"visits": counts}, epsilon=[1.0, 2.0], num_seeds=2).run()
        >>> len(real_data(result, {"visits": counts / counts.sum()}).axes)
        2
    """
    dataset = prepared(dataset, [metric])
    if "distribution" not in dataset.dims:
        raise ArgumentError(
            "data sets are along a dimension distribution, which this dataset lacks", argument="dataset"
        )
    figure = new_figure(10.5, 2.7 * dataset.sizes["distribution"] + 0.9)
    panels = figure.subplots(dataset.sizes["distribution"], 2, squeeze=False)
    legend = Legend(dataset)
    for (left, right), name in zip(panels, dataset["distribution"].values, strict=True):
        part = dataset.sel(distribution=name)
        shares = None if name not in histograms else np.asarray(histograms[name])
        size = len(shares) if shares is not None and part.sizes.get("num_categories", 1) > 1 else None
        part, chosen = fix(part, num_categories=size)
        part, users = fix(part, num_users=num_users if num_users is not None else only_users(part, metric))
        if shares is None:
            left.set_axis_off()
        else:
            below = draw_histogram(left, shares, (labels or {}).get(str(name)))
            figure.set_figheight(figure.get_figheight() + below)
        if right is not panels[-1, 1]:
            right.tick_params(labelbottom=False)
        sizes = listed({**chosen, **users})
        left.set_title(f"{style.shortened(name)}: {sizes}" if sizes else style.shortened(name), fontsize=10)
        set_scale([right], [draw_panel(right, part, metric, "epsilon", legend)], legend)
        right.set_ylabel(style.metric_label(metric), fontsize=9)
    panels[-1, 1].set_xlabel(style.AXES["epsilon"])
    legend.draw(figure)
    return figure


@no_axes
def by_categories(
    dataset: xr.Dataset,
    metric: str = "mse",
    *,
    zipf: float | str | None = None,
    epsilons: Sequence[float] | None = None,
    histograms: Mapping[int, np.ndarray] | None = None,
) -> Figure:
    """Draws one metric of one population (the paper's Figs. 5–10): a row for every K, a column for every ε, against N.

    Args:
        dataset: Dataset of a study.
        metric: The name of a variable.
        zipf: The population: its exponent, or its name if the dimension is distribution; may be omitted if there is
            only one.
        epsilons: Values of ε, nats. None: the paper's 1, 2, 4 and 10 if the dataset has them, else four of its values.
        histograms: K → `[K]`, the true shares, for the first column. None: computed if the population is Zipf.

    Returns:
        The figure.

    Raises:
        ArgumentError: The metric or a value is not in the dataset; the message lists the available ones.

    Example:
        >>> from rrjax.figures import by_categories
        >>> from rrjax.study import Study
        >>> grid = {"num_categories": 20, "num_users": [100, 1000], "epsilon": [1.0, 2.0], "zipf": 1.3}
        >>> result = Study(estimators=["mle_star", "inv_n"], **grid, num_seeds=2).run()
        >>> [axes.get_title() for axes in by_categories(result).axes]
        ['true distribution', 'ε = 1', 'ε = 2']
    """
    dataset = prepared(dataset, [metric])
    population = population_of(dataset)
    part, chosen = fix(dataset, **{population: zipf})
    which, is_zipf = chosen[population], population == "zipf"
    if epsilons is None:
        own = part["epsilon"].values
        epsilons = [e for e in (1, 2, 4, 10) if np.isclose(own, e).any()]
        epsilons = epsilons if len(epsilons) == 4 else spread_over(own, 4)
    if "num_categories" not in part.dims:
        raise ArgumentError("a row for every num_categories, which is no dimension of this dataset", argument="dataset")
    sizes = {int(size): f"{style.words_for('num_categories', size)}\n\n" for size in part["num_categories"].values}
    if histograms is None:
        histograms = {k: (w := np.arange(1.0, k + 1) ** -float(which)) / w.sum() for k in sizes} if is_zipf else {}
    first = int(bool(histograms))
    columns = [(style.words_for("epsilon", epsilon), {"epsilon": epsilon}) for epsilon in epsilons]
    rows = [
        (("" if first else words) + style.short_label(metric), metric, {"num_categories": size})
        for size, words in sizes.items()
    ]
    figure = new_figure(2.55 * (len(columns) + first) + 0.6, 1.75 * len(rows) + 1.2)
    panels = figure.subplots(len(rows), len(columns) + first, squeeze=False)
    legend = Legend(dataset)
    for axes, (size, words) in zip(panels[:, 0], sizes.items() if first else (), strict=False):
        if (shares := histograms.get(size)) is None:
            axes.set_axis_off()
            continue
        (draw_ranked if is_zipf else draw_histogram)(axes, np.asarray(shares))
        axes.set_xlabel("")
        axes.set_ylabel(f"{words}share", fontsize=9)
        axes.tick_params(labelsize=8)
    draw_panels(panels[:, first:], part, Layout(rows, columns, "num_users"), legend)
    for axes in panels[:-1, first:].flat:
        axes.tick_params(which="minor", bottom=False)
    if first:
        panels[0, 0].set_title("true distribution", fontsize=10)
        panels[-1, 0].set_xlabel("rank" if is_zipf else "category", fontsize=9)
    heading = f"{style.panel_title(dataset, population, which)}: {style.metric_title(metric)}"
    notes = style.shares_drawn(
        (len(epsilons), part["epsilon"].size, "values of ε"), (1, dataset.sizes[population], "populations")
    )
    finish(figure, legend, dataset, heading, drawn=notes)
    return figure


def _by_population(
    dataset: xr.Dataset, metrics: str | Sequence[str] | None, x: str, *, one_scale: bool = False, **fixed: Any
) -> Figure:
    """Draws a row for every metric and a panel for every population, against x; if asked, one scale per column."""
    if metrics is None:
        check_metrics(dataset, [])
        metrics = [name for name in ("mse", "nll") if name in dataset] or measured(dataset)
    metrics = [metrics] if isinstance(metrics, str) else list(metrics)
    if not metrics:
        raise ArgumentError("there is no metric to draw", argument="metrics", value=metrics)
    dataset = prepared(dataset, metrics)
    population = population_of(dataset)
    part, chosen = fix(dataset, **fixed)
    values = spread_over(part[population].values, 6)
    figure = new_figure(max(3.3 * len(values), 4.5) + 0.6, 2.5 * len(metrics) + 1.1)
    panels = figure.subplots(len(metrics), len(values), squeeze=False, sharex=True)
    legend = Legend(dataset)
    rows = [(style.metric_label(metric), metric, {}) for metric in metrics]
    columns = [(style.panel_title(dataset, population, value), {population: value}) for value in values]
    draw_panels(panels, part, Layout(rows, columns, x), legend, small=False, shared=one_scale)
    for column, (_, cell) in enumerate(columns if "nll" in metrics else ()):
        magnify(panels[list(metrics).index("nll"), column], fix(part, **cell)[0], "nll", x, legend)
    drawn = style.shares_drawn((len(values), dataset.sizes[population], "populations"))
    finish(figure, legend, dataset, listed(chosen), drawn=drawn)
    return figure
