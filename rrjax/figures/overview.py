"""An overview of any study, in small multiples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures import style
from rrjax.figures.axes import new_figure, no_axes
from rrjax.figures.panels import Layout, Legend, draw_panels, finish, listed
from rrjax.figures.selection import check_metrics, fix, measured, population_of, prepared, spread_over

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


@no_axes
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
    columns = [(style.panel_title(dataset, columns_by, value), {columns_by: value}) for value in chosen[columns_by]]
    if rows_by is None:
        rows = [(style.metric_label(name), name, {}) for name in metrics[:4]]
        notes += style.shares_drawn((4, len(metrics), "metrics"))
    else:
        short = style.short_label(metrics[0])
        rows = [
            (f"{style.words_for(rows_by, value)}\n\n{short}", metrics[0], {rows_by: value}) for value in chosen[rows_by]
        ]
        notes += [f"{short} alone of {len(metrics)} metrics"] if len(metrics) > 1 else []
    figure = new_figure(max(2.75 * len(columns), 5.5) + 0.7, 2.2 * len(rows) + 1.4)
    legend = Legend(dataset)
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    draw_panels(panels, dataset, Layout(rows, columns, x), legend)
    what = "" if rows_by is None else style.metric_title(metrics[0])
    finish(figure, legend, dataset, what, listed(fixed), drawn=notes)
    return figure


def left_over(dataset: xr.Dataset) -> str | None:
    """The dimension with several values that `overview` fixes, or None.

    Example:
        >>> import xarray as xr
        >>> from rrjax.figures.overview import left_over
        >>> grid = {
        ...     "num_categories": [2, 3],
        ...     "num_users": [1, 2, 3],
        ...     "epsilon": [1.0, 2.0, 3.0],
        ...     "zipf": [0.0, 1.0, 2.0],
        ... }
        >>> left_over(xr.Dataset(coords={"estimator": ["inv"], **grid}))
        'num_categories'
    """
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
