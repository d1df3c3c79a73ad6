"""Curves of a study: its metrics (Figs. 1–3 and 5–10, and others), and the convergence of EM (Fig. 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, product
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures import axes as canvas
from rrjax.figures import style
from rrjax.figures.panels import Facets, draw_histogram, draw_ranked
from rrjax.figures.selection import (
    check_metrics,
    fix,
    measured,
    only_users,
    population_of,
    prepared,
    restored,
    spread_over,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


_LOOKS: tuple[Any, ...] = (("-", "o"), ("--", "s"), ((0, (1.5, 1)), "^"), ("-.", "D"), ((0, (5, 1, 1, 1)), "v"))
_VARIANTS = {"ibu": "IBU (plain EM)", "deflated": "deflated EM", "anderson": "Anderson acceleration"}


@canvas.no_axes
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
        metrics: One or several of its variables. None: those of mse and nll that it has, else all of its metrics.
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


@canvas.no_axes
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
        metrics: One or several of its variables. None: those of mse and nll that it has, else all of its metrics.
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


@canvas.no_axes
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


@canvas.no_axes
def real_data(
    dataset: xr.Dataset,
    histograms: Mapping[str, np.ndarray],
    metric: str = "mse",
    *,
    labels: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """Draws a row for every data set (the paper's Fig. 3): its true histogram, and a metric against ε.

    Args:
        dataset: Dataset of a study with the dimension distribution. If num_categories is a dimension as well, each data
            set has the K of its histogram.
        histograms: Name → `[K]`, shares of the categories in their order; a missing one has no panel.
        metric: The name of a variable.
        labels: Name → `[K]`, names of the categories; by default their numbers from 0.

    Returns:
        The figure.

    Raises:
        ArgumentError: The dataset does not have the dimension distribution or the metric, or a data set has several N.

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
    facets = Facets(dataset)
    facets.add_panels(dataset.sizes["distribution"], 2, (5.25, 2.7), (0, 0.9))
    for (left, right), name in zip(facets.panels, dataset["distribution"].values, strict=True):
        part = dataset.sel(distribution=name)
        shares = None if name not in histograms else np.asarray(histograms[name])
        size = len(shares) if shares is not None and part.sizes.get("num_categories", 1) > 1 else None
        part, chosen = fix(part, num_categories=size)
        part, users = fix(part, num_users=only_users(part, metric))
        if shares is None:
            left.set_axis_off()
        else:
            below = draw_histogram(left, shares, (labels or {}).get(str(name)))
            facets.figure.set_figheight(facets.figure.get_figheight() + below)
        if right is not facets.panels[-1, 1]:
            right.tick_params(labelbottom=False)
        sizes = style.listed_words(chosen | users)
        left.set_title(f"{style.shortened(name)}: {sizes}" if sizes else style.shortened(name), fontsize=10)
        facets.draw_curves(right, part, metric, "epsilon")
        facets.set_scale([right])
        right.set_ylabel(style.metric_label(metric), fontsize=9)
    facets.panels[-1, 1].set_xlabel(style.AXES["epsilon"])
    return facets.add_legend()


@canvas.no_axes
def by_categories(
    dataset: xr.Dataset,
    metric: str = "mse",
    *,
    zipf: float | str | None = None,
    epsilons: Sequence[float] | None = None,
) -> Figure:
    """Draws one metric of one population (the paper's Figs. 5–10): a row for every K, a column for every ε, against N.

    The first column has the true shares, if the population is Zipf.

    Args:
        dataset: Dataset of a study.
        metric: The name of a variable.
        zipf: The population: its exponent, or its name if the dimension is distribution; may be omitted if there is
            only one.
        epsilons: Values of ε, nats. None: the paper's 1, 2, 4 and 10 if the dataset has them, else four of its values.

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
    which = chosen[population]
    if epsilons is None:
        own = part["epsilon"].values
        epsilons = [e for e in (1, 2, 4, 10) if np.isclose(own, e).any()]
        epsilons = epsilons if len(epsilons) == 4 else spread_over(own, 4)
    if "num_categories" not in part.dims:
        raise ArgumentError("a row for every num_categories, which is no dimension of this dataset", argument="dataset")
    sizes = [int(size) for size in part["num_categories"].values]
    first = int(population == "zipf")
    facets, look = Facets(part), {"cell": (2.55, 1.75), "margin": (0.6, 1.2), "first": first}
    facets.draw("num_users", [metric], ("epsilon", epsilons), ("num_categories", sizes), **look)
    for axes in facets.panels[:-1, first:].flat:
        axes.tick_params(which="minor", bottom=False)
    for (axes, beside, *_), size in zip(facets.panels, sizes, strict=True) if first else ():
        weights = np.arange(1.0, size + 1) ** -float(which)
        draw_ranked(axes, weights / weights.sum())
        axes.set_ylabel(f"{style.words_for('num_categories', size)}\n\nshare", fontsize=9)
        axes.tick_params(labelsize=8)
        beside.set_ylabel(style.short_label(metric), fontsize=9)
    if first:
        facets.panels[0, 0].set_title("true distribution", fontsize=10)
        facets.panels[-1, 0].set_xlabel("rank", fontsize=9)
    heading = f"{style.panel_title(dataset, population, which)}: {style.metric_title(metric)}"
    notes = style.shares_drawn(
        (len(epsilons), part["epsilon"].size, "values of ε"), (1, dataset.sizes[population], "populations")
    )
    return facets.finish(heading, drawn=notes)


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
    facets, look = Facets(part), {"cell": (3.3, 2.5), "margin": (0.6, 1.1), "least": 4.5, "small": False}
    facets.draw(x, metrics, (population, values), one_scale=one_scale, **look)
    for axes, value in zip(facets.panels[metrics.index("nll")], values, strict=True) if "nll" in metrics else ():
        facets.magnify(axes, fix(part, **{population: value})[0], "nll", x)
    drawn = style.shares_drawn((len(values), dataset.sizes[population], "populations"))
    return facets.finish(style.listed_words(chosen), drawn=drawn)


@canvas.no_axes
def overview(dataset: xr.Dataset, metric: str | None = None, **fixed: Any) -> Figure:
    """Draws any study in small multiples: against its longest dimension, with panels over the next two.

    If there is at most one next dimension, the rows are the metrics. At most four rows and columns are drawn, evenly
    spread over their dimension, and one value of a fourth dimension (`left_over`); a note names the part.

    Args:
        dataset: Dataset of a study.
        metric: The name of a variable. None: all, if rows are free for them, else the first.
        fixed: A value of a fourth dimension, such as `zipf=1.3`; by default its middle one.

    Returns:
        The figure.

    Raises:
        ArgumentError: The dataset is not one of a study, or lacks the metric; the message lists the available ones.

    Example:
        >>> from rrjax.figures import overview
        >>> from rrjax.study import Study
        >>> grid = {"num_categories": 20, "num_users": [100, 1000], "epsilon": [1.0, 2.0], "zipf": 1.3}
        >>> result = Study(estimators=["mle_star", "inv_n"], **grid, num_seeds=2).run()
        >>> [axes.get_title() for axes in overview(result).axes[:2]]
        ['ε = 1', 'ε = 2']
    """
    check_metrics(dataset, [] if metric is None else [metric])
    metrics = [metric] if metric is not None else measured(dataset)
    if not metrics:
        raise ArgumentError(
            f"there is no metric in the dataset, only: {style.listed_values(dataset.data_vars)}", argument="dataset"
        )
    dataset = prepared(dataset, metrics)
    population = population_of(dataset)
    x, columns_by, rows_by, *others = _layout(dataset, population)
    wrong = [name for name in fixed if name not in others]
    if wrong:
        raise ArgumentError(
            f"{wrong[0]} is drawn, not held fixed; held fixed are: {style.listed_values(others)}",
            argument=wrong[0],
            value=fixed[wrong[0]],
        )
    values = {name: dataset[name].values for name in (columns_by, rows_by, *others) if name is not None}
    middle = {name: values[name][len(values[name]) // 2] for name in others}
    dataset, fixed = fix(dataset, **(middle | fixed))
    chosen = {name: spread_over(values[name], 4) for name in (columns_by, rows_by) if name is not None}
    notes = [
        f"{style.words_for(name, value)} is one of {_values_in_words(name, values[name])}"
        for name, value in fixed.items()
        if len(values[name]) > 1
    ]
    notes += style.shares_drawn(
        *(
            (len(drawn), len(values[name]), f"values of {style.SYMBOLS.get(name, name)}")
            for name, drawn in chosen.items()
        )
    )
    rows = None if rows_by is None else (rows_by, chosen[rows_by])
    if rows is None:
        notes += style.shares_drawn((4, len(metrics), "metrics"))
    elif len(metrics) > 1:
        notes.append(f"{style.short_label(metrics[0])} alone of {len(metrics)} metrics")
    facets, look = Facets(dataset), {"cell": (2.75, 2.2), "margin": (0.7, 1.4), "least": 5.5}
    facets.draw(x, metrics[: 4 if rows is None else 1], (columns_by, chosen[columns_by]), rows, **look)
    what = "" if rows is None else style.metric_title(metrics[0])
    return facets.finish(what, style.listed_words(fixed), drawn=notes)


def left_over(dataset: xr.Dataset) -> str | None:
    """The dimension with several values that `overview` fixes, or None."""
    _, _, _, *others = _layout(dataset, population_of(dataset))
    return next((name for name in others if dataset.sizes[name] > 1), None)


def _layout(dataset: xr.Dataset, population: str) -> tuple[Any, ...]:
    """The dimensions of the horizontal axis, of the columns and of the rows (or None), then the others."""
    names = [name for name in ("num_users", "epsilon", "num_categories", population) if name in dataset.dims]
    names.sort(key=lambda name: -dataset.sizes[name])
    x = next(name for name in names if name != "distribution")
    names.remove(x)
    columns_by, *others = names
    rows_by = next((name for name in others if dataset.sizes[name] > 1), None)
    return x, columns_by, rows_by, *(name for name in others if name != rows_by)


def _values_in_words(name: str, values: np.ndarray) -> str:
    """The number of values of a dimension, and, if they are few numbers, the values themselves."""
    if len(values) > 6 or name == "distribution":
        return f"{len(values):,}"
    texts = (f"{value:,}" if name.startswith("num") else f"{value:g}".replace("inf", "∞") for value in values)
    return f"{len(values)} ({', '.join(texts)})"


@canvas.no_axes
def convergence(dataset: xr.Dataset) -> Figure:
    """Draws how EM iterates approach the exact estimate (the paper's Fig. 4): a panel for every population and N.

    A curve for every ε (shade) and variant (dash and marker); a marker is at its end, if the variant stopped. Distances
    of exactly zero, and those more than 20 decades below the first, are outside the panel.

    Args:
        dataset: With the variable distance, `Σ(θ_t − MLE*)²`, over the dimensions variant, zipf (or distribution),
            num_users, epsilon and iteration; NaN after a variant has stopped.

    Returns:
        The figure.

    Raises:
        ArgumentError: A variable or dimension is missing.

    Example:
        >>> from rrjax import figures
        >>> from rrjax.study import convergence
        >>> paths = convergence(num_users=[1000], epsilon=[1.0], zipf=[1.3], steps={"none": 10})
        >>> len(figures.convergence(paths).axes)
        1
    """
    from matplotlib import colormaps
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator

    if "distance" not in dataset:
        raise ArgumentError(
            f"there is no variable distance; there are: {style.listed_values(dataset.data_vars)}", argument="dataset"
        )
    population = population_of(dataset)
    needed = ("variant", population, "num_users", "epsilon", "iteration")
    distance = restored(dataset["distance"], *needed)
    for name in needed:
        if name not in distance.dims:
            raise ArgumentError(
                f"distance has no dimension {name}; it has: {style.listed_values(distance.dims)}",
                argument="dataset",
                value=name,
            )
    populations, users = distance[population].values, distance["num_users"].values
    figure = canvas.new_figure(max(4.2 * len(users), 5.5) + 1, 2.9 * len(populations) + 1.3)
    panels = figure.subplots(len(populations), len(users), squeeze=False, sharex=True)
    iteration = np.asarray(distance["iteration"].values)
    looks = dict(zip(map(str, distance["variant"].values), cycle(_LOOKS), strict=False))
    epsilons = distance["epsilon"].values
    shades = colormaps["plasma"](np.linspace(0, 0.8, max(len(epsilons), 2)))[: len(epsilons)]
    last, drawn = max(int(iteration.max()), 1), {axes: [np.empty(0)] for axes in panels.flat}
    ticks = [0, *(10**power for power in range(len(str(last))))]
    for axes, (which, num_users) in zip(panels.flat, product(populations, users), strict=True):
        cell = distance.sel({population: which, "num_users": num_users})
        for shade, epsilon in zip(shades, epsilons, strict=True):
            for variant, (dash, marker) in looks.items():
                y = np.asarray(cell.sel(epsilon=epsilon, variant=variant).transpose("iteration").values, float)
                shown = np.nonzero(np.isfinite(y) & (y > 0))[0]
                if not len(shown):
                    continue
                look = {"color": shade, "linestyle": dash, "linewidth": 1.3 if dash == "-" else 1.7, "marker": marker}
                axes.plot(iteration[shown], y[shown], **look, markersize=5, markevery=[len(shown) - 1])
                drawn[axes].append(y[shown])
        axes.set_xscale("symlog", linthresh=1, linscale=0.4)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // 8)]))
        canvas.set_ticks(axes.xaxis, canvas.in_words)
        axes.set_xlim(-0.15 if iteration.min() == 0 else 0.9 * iteration.min(), 1.6 * last)
        axes.set_title(
            f"{style.panel_title(dataset, population, which)}, {style.words_for('num_users', num_users)}", fontsize=10
        )
        canvas.set_grid(axes)
    what = f"squared distance from {style.estimator_title('mle_star')}"
    for line in panels:
        values = np.concatenate([part for axes in line for part in drawn[axes]])
        for axes in line:
            canvas.set_limits(axes, values[values >= 1e-20 * values.max(initial=0)], log=True)
            axes.tick_params(labelleft=axes is line[0])
        line[0].set_ylabel(f"{what}\n$\\Sigma_i\\,(\\theta_{{t,i}} - \\hat\\theta_i)^2$", fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel("iteration t")
    handles = [
        Line2D([], [], color=shade, linewidth=3, label=style.words_for("epsilon", epsilon))
        for shade, epsilon in zip(shades, epsilons, strict=True)
    ]
    for name, (dash, mark) in looks.items():
        label = _VARIANTS.get(name, style.shortened(name))
        handles.append(Line2D([], [], color="0.25", linestyle=dash, marker=mark, markersize=5, label=label))
    canvas.legend_below(figure, handles, "a marker ends a curve at its last iteration")
    if "num_categories" in dataset.attrs or dataset.coords.get("num_categories", distance).ndim == 0:
        size = dataset.attrs.get("num_categories", None) or dataset.coords["num_categories"].item()
        canvas.set_heading(figure, style.words_for("num_categories", size))
    return figure
