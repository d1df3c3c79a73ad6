"""Figures of a study: the paper's Figs. 1–10, and others. Needs matplotlib (`pip install 'rrjax[plots]'`).

Every function takes the `xarray.Dataset` of a study, with the dimensions estimator, num_categories, num_users, epsilon
and zipf (or distribution, with names), in any order and of any length, and returns a `matplotlib.figure.Figure`; none
shows or changes anything. An estimator has one colour, dash and marker in all of them, told apart in grey as well.
Bands are ±2 standard errors of the mean over the seeds. What is NaN or infinite is left out.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.plots import _shortened as _text
from rrjax.study.panels import (
    AXES,
    METRICS,
    SYMBOLS,
    TITLES,
    Legend,
    draw_histogram,
    draw_panel,
    estimator_title,
    fix,
    grid_of_panels,
    legend_below,
    listed_values,
    measured,
    metric_label,
    new_figure,
    only_users,
    panel_title,
    population_of,
    power_label,
    prepared,
    seeds_note,
    set_heading,
    set_limits,
    short_label,
    spread_over,
    words_for,
    zipf_shares,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = [
    "METRICS",
    "TITLES",
    "against_epsilon",
    "against_users",
    "by_categories",
    "convergence",
    "cv_wins",
    "decomposition",
    "estimator_title",
    "measured",
    "overview",
    "real_data",
    "save",
]


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
        left.set_title(f"{_text(name)}: {sizes}" if sizes else _text(name), fontsize=10)
        draw_panel(right, here, metric, "epsilon", legend)
        right.set_ylabel(metric_label(metric), fontsize=9)
    panels[-1, 1].set_xlabel(AXES["epsilon"])
    legend.draw(figure)
    return figure


def convergence(dataset: xr.Dataset) -> Figure:
    """Draws how EM iterates approach the exact estimate (the paper's Fig. 4): a panel for every population and N.

    A curve for every ε (shade) and variant (dash and marker); a marker ends it where the variant stopped. Distances of
    exactly zero, and those more than 20 decades below the first, leave the panel.

    Args:
        dataset: With the variable distance, `Σ(θ_t − MLE*)²`, over the dimensions variant, zipf (or distribution),
            num_users, epsilon and iteration; NaN after a variant has stopped.

    Returns:
        The figure.

    Raises:
        ValueError: A variable or dimension is missing.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from rrjax.study.figures import convergence
        >>> distance = np.reshape([0.1, 0.05, 0.01, 0.1, 0.001, np.nan], (2, 1, 1, 1, 3))
        >>> dataset = xr.Dataset(
        ...     {"distance": (("variant", "zipf", "num_users", "epsilon", "iteration"), distance)},
        ...     {
        ...         "variant": ["ibu", "anderson"],
        ...         "zipf": [1.3],
        ...         "num_users": [10_000],
        ...         "epsilon": [1.0],
        ...         "iteration": [0, 1, 10],
        ...     },
        ... )
        >>> len(convergence(dataset).axes)
        1
    """
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    if "distance" not in dataset:
        raise ValueError(f"there is no variable distance; there are: {listed_values(dataset.data_vars)}")
    population = population_of(dataset)
    distance = dataset["distance"]
    for name in ("variant", population, "num_users", "epsilon", "iteration"):
        if name not in distance.dims and name in distance.coords and distance[name].ndim == 0:
            distance = distance.expand_dims(name)
        if name not in distance.dims:
            raise ValueError(f"distance has no dimension {name}; it has: {listed_values(distance.dims)}")
    populations, users = distance[population].values, distance["num_users"].values
    figure = new_figure(max(4.2 * len(users), 5.5) + 1, 2.9 * len(populations) + 1.3)
    panels = figure.subplots(len(populations), len(users), squeeze=False, sharex=True)
    iteration = np.asarray(distance["iteration"].values)
    looks: dict[str, tuple[Any, str]] = {
        str(name): look
        for name, look in zip(
            distance["variant"].values,
            (("-", "o"), ("--", "s"), ((0, (1.5, 1)), "^"), ("-.", "D"), ((0, (5, 1, 1, 1)), "v")) * 4,
            strict=False,
        )
    }
    shades = colormaps["plasma"](np.linspace(0, 0.8, max(distance.sizes["epsilon"], 2)))
    for row, which in enumerate(populations):
        for column, many in enumerate(users):
            axes, seen = panels[row, column], [np.empty(0)]
            cell = distance.sel({population: which, "num_users": many})
            for shade, epsilon in zip(shades, cell["epsilon"].values, strict=False):
                for variant, (dash, marker) in looks.items():
                    y = np.asarray(cell.sel(epsilon=epsilon, variant=variant).transpose("iteration").values, float)
                    shown = np.nonzero(np.isfinite(y) & (y > 0))[0]
                    if not len(shown):
                        continue
                    style: dict[str, Any] = {"color": shade, "linestyle": dash, "marker": marker}
                    width = 1.3 if dash == "-" else 1.7
                    axes.plot(
                        iteration[shown], y[shown], **style, linewidth=width, markersize=5, markevery=[len(shown) - 1]
                    )
                    seen.append(y[shown])
            axes.set_xscale("symlog", linthresh=1, linscale=0.4)
            axes.set_yscale("log")
            values = np.concatenate(seen)
            values = values[values >= 1e-20 * values.max(initial=0)]
            set_limits(axes, values, log=True)
            axes.set_xlim(-0.15 if iteration.min() == 0 else 0.9 * iteration.min(), 1.6 * max(iteration.max(), 1))
            axes.set_title(f"{panel_title(dataset, population, which)}, N = {many:,.0f}", fontsize=10)
            axes.grid(color="0.93")
            axes.set_axisbelow(True)
    for axes in panels[-1]:
        axes.set_xlabel("iteration t")
    for axes in panels[:, 0]:
        axes.set_ylabel("squared distance from MLE*\n$\\Sigma_i\\,(\\theta_{t,i} - \\hat\\theta_i)^2$", fontsize=9)
    names = {"ibu": "IBU (plain EM)", "deflated": "deflated EM", "anderson": "Anderson acceleration"}
    handles = [
        Line2D([], [], color=shade, linewidth=3, label=f"ε = {epsilon:g}")
        for shade, epsilon in zip(shades, distance["epsilon"].values, strict=False)
    ] + [
        Line2D([], [], color="0.25", linestyle=dash, marker=marker, markersize=5, label=names.get(name, _text(name)))
        for name, (dash, marker) in looks.items()
    ]
    legend_below(figure, handles)
    if "num_categories" in dataset.attrs or dataset.coords.get("num_categories", distance).ndim == 0:
        size = dataset.attrs.get("num_categories", None) or dataset.coords["num_categories"].item()
        set_heading(figure, f"{words_for('num_categories', size)}; a marker ends the curve at its last iteration")
    return figure


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
        dataset: Of a study.
        metric: The name of a variable.
        zipf: Which population: its exponent, or its name where the dimension is distribution; may be left out where
            there is only one.
        epsilons: Which ε, nats. None: the paper's 1, 2, 4 and 10 where the dataset has them, else four of its own.
        histograms: K → `[K]`, the true shares, for the first column. None: computed where the population is Zipf.

    Returns:
        The figure.

    Raises:
        ValueError: The metric or a value is not in the dataset; says which are.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from rrjax.study.figures import by_categories
        >>> dims = ("estimator", "num_categories", "num_users", "epsilon", "zipf")
        >>> dataset = xr.Dataset(
        ...     {"mse": (dims, np.full((1, 2, 2, 3, 1), 0.1))},
        ...     {
        ...         "estimator": ["inv_n"],
        ...         "num_categories": [50, 100],
        ...         "num_users": [100, 1000],
        ...         "epsilon": [1.0, 2.0, 3.0],
        ...         "zipf": [1.3],
        ...     },
        ... )
        >>> len(by_categories(dataset, zipf=1.3).axes)
        8
    """
    dataset = prepared(dataset, [metric])
    population = population_of(dataset)
    here, at = fix(dataset, **{population: zipf})
    if epsilons is None:
        own = here["epsilon"].values
        epsilons = [e for e in (1, 2, 4, 10) if np.isclose(own, e).any()]
        epsilons = epsilons if len(epsilons) == 4 else spread_over(own, 4)
    if "num_categories" not in here.dims:
        raise ValueError("a row for every num_categories, which is no dimension of this dataset")
    sizes = here["num_categories"].values
    which = at[population]
    if histograms is None:
        histograms = {int(size): zipf_shares(int(size), float(which)) for size in sizes} if population == "zipf" else {}
    first = int(bool(histograms))
    columns = len(epsilons) + first
    figure = new_figure(2.55 * columns + 0.6, 1.75 * len(sizes) + 1.2)
    panels = figure.subplots(len(sizes), columns, squeeze=False)
    legend = Legend(dataset)
    for row, size in zip(panels, sizes, strict=True):
        here_k, _ = fix(here, num_categories=size)
        if first and (shares := histograms.get(int(size))) is not None:
            draw_histogram(row[0], np.asarray(shares), ranked=population == "zipf")
            row[0].set_ylabel(f"K = {size:,.0f}\n\nshare", fontsize=9)
        elif first:
            row[0].set_axis_off()
        for axes, epsilon in zip(row[first:], epsilons, strict=True):
            draw_panel(axes, fix(here_k, epsilon=epsilon)[0], metric, "num_users", legend)
        row[first].set_ylabel(("" if first else f"K = {size:,.0f}\n\n") + short_label(metric), fontsize=9)
    for axes, epsilon in zip(panels[0, first:], epsilons, strict=True):
        axes.set_title(words_for("epsilon", epsilon), fontsize=10)
    for axes in panels[-1, first:]:
        axes.set_xlabel(AXES["num_users"], fontsize=9)
    if first:
        panels[0, 0].set_title("true distribution", fontsize=10)
        panels[-1, 0].set_xlabel("rank" if population == "zipf" else "category", fontsize=9)
    for axes in panels[:-1].flat:
        ranks = bool(first) and axes in panels[:, 0]
        axes.tick_params(labelbottom=ranks)
        axes.tick_params(which="minor", bottom=ranks)
    for axes in panels.flat:
        axes.tick_params(labelsize=8)
    label = metric_label(metric).replace("\n", " ")
    set_heading(figure, f"{panel_title(dataset, population, which)}: {label}{seeds_note(dataset)}")
    legend.draw(figure)
    return figure


def overview(dataset: xr.Dataset, metric: str | None = None) -> Figure:
    """Draws any study: against its longest dimension, in small multiples over the next two.

    Where there is at most one next dimension, the rows are the metrics. At most four rows and columns are drawn,
    evenly spread over their dimension, and the middle of what is left; a note says so.

    Args:
        dataset: Of a study.
        metric: The name of a variable. None: all that there are, where they have room, else the first.

    Returns:
        The figure.

    Raises:
        ValueError: The dataset is not one of a study, or has not the metric; says which there are.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from rrjax.study.figures import overview
        >>> dims = ("estimator", "num_categories", "num_users", "epsilon", "zipf")
        >>> dataset = xr.Dataset(
        ...     {"mse": (dims, np.full((1, 1, 3, 2, 1), 0.1)), "tv": (dims, np.full((1, 1, 3, 2, 1), 0.2))},
        ...     {
        ...         "estimator": ["mine"],
        ...         "num_categories": [50],
        ...         "num_users": [10, 100, 1000],
        ...         "epsilon": [1.0, 2.0],
        ...         "zipf": [1.3],
        ...     },
        ... )
        >>> [axes.get_title() for axes in overview(dataset).axes[:2]]
        ['ε = 1', 'ε = 2']
    """
    metrics = [metric] if metric is not None else measured(dataset)
    if not metrics:
        raise ValueError(f"there is no metric in the dataset, only: {listed_values(dataset.data_vars)}")
    dataset = prepared(dataset, metrics)
    population = population_of(dataset)
    names = [name for name in ("num_users", "epsilon", "num_categories", population) if name in dataset.dims]
    names.sort(key=lambda name: -dataset.sizes[name])
    x = next(name for name in names if name != "distribution")
    names.remove(x)
    columns_by, *others = names
    others = [name for name in others if dataset.sizes[name] > 1]
    rows_by = others.pop(0) if others else None
    notes = []
    fixed: dict[str, Any] = {}
    for name in names:
        if name not in (columns_by, rows_by):
            values = dataset[name].values
            fixed[name] = values[len(values) // 2]
            if len(values) > 1:
                notes.append(f"{words_for(name, fixed[name])} is one of {len(values)}")
    chosen: dict[str, list[Any]] = {}
    for name in filter(None, (columns_by, rows_by)):
        values = dataset[name].values
        chosen[name] = spread_over(values, 4)
        if len(chosen[name]) < len(values):
            notes.append(f"{len(chosen[name])} of {len(values)} values of {SYMBOLS.get(name, name)}")
    if rows_by and metric is None and len(metrics) > 1:
        notes.append(f"{short_label(metrics[0])} alone of {len(metrics)} metrics")
    elif len(metrics) > 4:
        notes.append(f"4 of {len(metrics)} metrics")
    here, _ = fix(dataset, **fixed)
    rows: list[Any] = chosen[rows_by] if rows_by else metrics[:4]
    figure = new_figure(max(2.75 * len(chosen[columns_by]), 5.5) + 0.7, 2.2 * len(rows) + 1.4)
    panels = figure.subplots(len(rows), len(chosen[columns_by]), squeeze=False)
    legend = Legend(dataset)
    for row, what in zip(panels, rows, strict=True):
        drawn = metrics[0] if rows_by else what
        for axes, value in zip(row, chosen[columns_by], strict=True):
            cell, _ = fix(here, **({columns_by: value} | ({rows_by: what} if rows_by else {})))
            draw_panel(axes, cell, drawn, x, legend)
            axes.tick_params(labelsize=8)
        label = metric_label(drawn)
        row[0].set_ylabel(f"{words_for(rows_by, what)}\n\n{short_label(drawn)}" if rows_by else label, fontsize=9)
    for axes, value in zip(panels[0], chosen[columns_by], strict=True):
        axes.set_title(panel_title(dataset, columns_by, value), fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel(AXES[x], fontsize=9)
    for axes in panels[:-1].flat:
        axes.tick_params(labelbottom=False)
    head = ", ".join(words_for(name, value) for name, value in fixed.items()) + seeds_note(dataset)
    if rows_by:
        head = metric_label(metrics[0]).replace("\n", " ") + ("; " if head[:1].strip("; ") else "") + head
    note = f"\n(drawn: {'; '.join(notes)})" if notes else ""
    set_heading(figure, head.removeprefix("; ") + note)
    legend.draw(figure)
    return figure


def cv_wins(dataset: xr.Dataset, metric: str = "mse", *, estimator: str = "cv_threshold") -> Figure:
    """Draws where one estimator wins or loses against the best of the others: a map for every population and K.

    The colour is log₂ of the ratio of its metric to the smallest of the others'. A sign survives grey printing: − where
    its metric is lower (it wins), + where it is higher; a cell has none where the two are within 2 standard errors of
    their paired difference. The others' best is chosen after the fact, which is hard on the one compared.

    Args:
        dataset: Of a study.
        metric: The name of a variable, with its paired differences if signs are to wait for significance.
        estimator: The name of the one compared.

    Returns:
        The figure.

    Raises:
        ValueError: The estimator or the metric is not in the dataset, or there is no other one.

    Example:
        >>> import numpy as np, xarray as xr
        >>> from rrjax.study.figures import cv_wins
        >>> dims = ("estimator", "num_categories", "num_users", "epsilon", "zipf")
        >>> dataset = xr.Dataset(
        ...     {"mse": (dims, np.reshape([0.2, 0.1, 0.1, 0.4], (2, 1, 2, 1, 1)))},
        ...     {
        ...         "estimator": ["cv_threshold", "inv_n"],
        ...         "num_categories": [50],
        ...         "num_users": [100, 1000],
        ...         "epsilon": [1.0],
        ...         "zipf": [1.3],
        ...     },
        ... )
        >>> sorted(text.get_text() for text in cv_wins(dataset).axes[0].texts)
        ['+', '−']
    """
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    dataset = prepared(dataset, [metric])
    population = population_of(dataset)
    names = [str(name) for name in dataset["estimator"].values]
    if estimator not in names:
        raise ValueError(f"estimator {estimator} is not in the dataset, which has: {listed_values(names)}")
    if len(names) < 2:
        raise ValueError(f"{estimator} is the only estimator: there is no other one to compare it with")
    kept = [name for name in (population, "num_categories", "num_users", "epsilon") if name in dataset.dims]
    order = ["estimator", *kept]
    mean = np.asarray(dataset[metric].transpose(*order).values, float)
    mean = np.where(np.isfinite(mean), mean, np.nan)
    mine = names.index(estimator)
    others = [index for index in range(len(names)) if index != mine]
    reachable = np.where(np.isnan(mean[others]), np.inf, mean[others])
    best = np.asarray(others)[np.argmin(reachable, axis=0)]
    rival = np.min(reachable, axis=0)
    known = np.isfinite(rival) & np.isfinite(mean[mine]) & (rival > 0) & (mean[mine] > 0)
    ratio = np.log2(np.where(known, mean[mine], 1) / np.where(known, rival, 1))
    sign = np.sign(ratio)
    tested = f"{metric}_difference" in dataset and f"{metric}_difference_se" in dataset
    if tested:
        pairs = [
            np.take_along_axis(
                np.asarray(
                    dataset[name].sel(estimator=estimator).transpose("versus", *kept).sel(versus=names).values, float
                ),
                best[None],
                axis=0,
            )[0]
            for name in (f"{metric}_difference", f"{metric}_difference_se")
        ]
        with np.errstate(invalid="ignore"):
            sign = np.where(np.abs(pairs[0]) > 2 * pairs[1], np.sign(pairs[0]), 0)
    layout = (population, "num_categories", "num_users", "epsilon")
    shape = [dataset.sizes[name] if name in kept else 1 for name in layout]
    ratio, sign, known = ratio.reshape(shape), sign.reshape(shape), known.reshape(shape)
    labels = [dataset[name].values if name in kept else np.array([np.nan]) for name in layout]
    columns, rows = (spread_over(np.arange(shape[axis]), 5) for axis in (0, 1))
    figure = new_figure(max(0.3 * shape[3] * len(columns) + 2.6, 6), max(0.27 * shape[2] + 0.45, 0.9) * len(rows) + 1.6)
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    largest = float(np.clip(np.abs(ratio[known]).max(initial=0), 0.1, 3))
    colours = LinearSegmentedColormap.from_list("wins", ["#1b4f8a", "#ffffff", "#c4572f"])
    image = None
    for row, size in enumerate(rows):
        for column, which in enumerate(columns):
            axes = panels[row, column]
            cell = np.ma.masked_array(ratio[which, size], ~known[which, size])
            axes.set_facecolor("0.85")
            image = axes.imshow(cell, cmap=colours, norm=Normalize(-largest, largest), origin="lower", aspect="auto")
            for down, across in np.argwhere(known[which, size] & (sign[which, size] != 0)):
                axes.text(
                    across,
                    down,
                    "+" if sign[which, size, down, across] > 0 else "−",
                    ha="center",
                    va="center_baseline",
                    fontsize=9,
                    fontweight="bold",
                    color="white" if abs(ratio[which, size, down, across]) > 0.55 * largest else "black",
                )
            axes.set_xticks(range(shape[3]), [f"{value:g}" for value in labels[3]], fontsize=8)
            axes.set_yticks(range(shape[2]), [power_label(value) for value in labels[2]], fontsize=8)
            axes.tick_params(length=0, labelbottom=row == len(rows) - 1, labelleft=column == 0)
            if row == 0:
                axes.set_title(panel_title(dataset, population, labels[0][which]), fontsize=10)
            if column == 0:
                said = f"K = {labels[1][size]:,.0f}\n" if "num_categories" in kept else ""
                axes.set_ylabel(f"{said}users N", fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel(AXES["epsilon"], fontsize=9)
    title, short = _text(estimator_title(estimator)), short_label(metric)
    assert image is not None
    clipped = known.any() and np.abs(ratio[known]).max() > largest
    bar = figure.colorbar(image, ax=panels, extend="both" if clipped else "neither", fraction=0.04, pad=0.02)
    bar.set_label(f"log$_2$ of {short} of {title}\nover that of the best other estimator", fontsize=9)
    signs = f"−: lower than the best other one, {title} wins; +: higher, loses"
    signs += "; none: within 2 standard errors" if tested else ""
    wins, losses = int((known & (sign < 0)).sum()), int((known & (sign > 0)).sum())
    signs += f"\n{wins:,} wins and {losses:,} losses in {int(known.sum()):,} configurations"
    left = sum(a - len(b) for a, b in zip(shape, (columns, rows), strict=False))
    set_heading(figure, signs + ("; up to five populations and K are drawn" if left else ""))
    return figure


def save(figure: Figure, path: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Writes a figure as PNG (130 dpi) and PDF, each whole or not at all; the same figure gives the same bytes.

    Args:
        figure: To be written.
        path: Without suffix: "fig1" makes fig1.png and fig1.pdf.

    Returns:
        The two paths.

    Raises:
        DataError: They cannot be written; says why.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from rrjax.study.figures import save
        >>> save(Figure(), "figure")  # doctest: +SKIP
        (PosixPath('figure.png'), PosixPath('figure.pdf'))
    """
    from matplotlib import rc_context

    from rrjax.io import replacing

    png, pdf = Path(f"{os.fspath(path)}.png"), Path(f"{os.fspath(path)}.pdf")
    with warnings.catch_warnings(), rc_context({"pdf.fonttype": 42}):
        # A name in a script that the font lacks is drawn as boxes; the tables have it whole.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        with replacing(png) as aside:
            figure.savefig(aside, format="png", dpi=130)
        with replacing(pdf) as aside:
            figure.savefig(aside, format="pdf", metadata={"CreationDate": None})
    return png, pdf
