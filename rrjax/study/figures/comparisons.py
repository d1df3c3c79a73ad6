"""Many configurations at once: Figs. 5–10, an overview, and where an estimator wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.plots import shortened
from rrjax.study.figures.axes import draw_histogram, new_figure, power_label, set_heading, zipf_shares
from rrjax.study.figures.panels import Legend, draw_panel
from rrjax.study.figures.selection import fix, measured, population_of, prepared, spread_over
from rrjax.study.figures.styles import AXES, SYMBOLS, estimator_title
from rrjax.study.figures.words import listed_values, metric_label, panel_title, seeds_note, short_label, words_for

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


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
    title, short = shortened(estimator_title(estimator)), short_label(metric)
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
