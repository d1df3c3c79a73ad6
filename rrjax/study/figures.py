"""Figures of a study: the paper's Figs. 1–10, and others. Needs matplotlib (`pip install 'rrjax[plots]'`).

Every function takes the `xarray.Dataset` of a study, with the dimensions estimator, num_categories, num_users, epsilon
and zipf (or distribution, with names), in any order and of any length, and returns a `matplotlib.figure.Figure`; none
shows or changes anything. An estimator has one colour, dash and marker in all of them, told apart in grey as well.
Bands are ±2 standard errors of the mean over the seeds. What is NaN or infinite is left out.
"""

from __future__ import annotations

import os
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rrjax.plots import _shortened as _text

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
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

TITLES = {
    "mle_star": "MLE*",
    "inv_p": "InvP",
    "inv_n": "InvN",
    "inv": "Inv",
    "cv_threshold": "CV threshold",
    "ibu": "IBU",
}
METRICS = {
    "mse": "mean squared error,\nsummed over categories",
    "nll": "negative log-likelihood\n(nats per report)",
    "tv": "total variation",
    "max_error": "largest error of a category",
    "kl": "Kullback–Leibler divergence\n(nats)",
    "bias2": "squared bias,\nsummed over categories",
    "variance": "variance,\nsummed over categories",
}
_SYMBOLS = {"num_users": "N", "epsilon": "ε", "num_categories": "K", "zipf": "s"}
_SHORT = {"mse": "MSE", "nll": "NLL", "tv": "total variation", "max_error": "largest error", "kl": "KL divergence"}
_AXES = {
    "num_users": "users N",
    "epsilon": "privacy ε (nats)",
    "num_categories": "categories K",
    "zipf": "Zipf exponent s",
}


class _Style(NamedTuple):
    colour: str
    dash: Any
    marker: str
    size: float
    filled: bool = False


# Large and hollow to small and filled: where estimates coincide, each one still shows.
_STYLES = {
    "mle_star": _Style("#1b4f8a", "-", "s", 7.5),
    "inv_p": _Style("#d9702b", "--", "o", 5),
    "inv_n": _Style("#3d8b57", "-.", "D", 3.2, filled=True),
    "inv": _Style("#808080", ":", "x", 5),
    "cv_threshold": _Style("#8a3f8f", (0, (5, 1, 1, 1, 1, 1)), "^", 5),
    "ibu": _Style("#7a6a2f", (0, (8, 2)), "v", 5),
}
_OWN = (
    _Style("#000000", (0, (1, 1)), "*", 6),
    _Style("#c23b6e", (0, (3, 1, 1, 1)), "P", 5),
    _Style("#2a9aa8", (0, (6, 1, 2, 1)), "<", 5),
    _Style("#9c6b3c", (0, (4, 2)), ">", 5),
)


def estimator_title(name: object) -> str:
    """How an estimator is called in figures and tables; one without a title of its own keeps its name.

    Args:
        name: As in the coordinate `estimator`.

    Returns:
        The title, unescaped.

    Example:
        >>> from rrjax.study.figures import estimator_title
        >>> estimator_title("inv_p"), estimator_title("mine")
        ('InvP', 'mine')
    """
    return TITLES.get(str(name), str(name))


def measured(dataset: xr.Dataset) -> list[str]:
    """The metrics of a dataset, without bias2 and variance: those known here, then one's own, which have a `_se`.

    Args:
        dataset: Of a study.

    Returns:
        Names of variables.
    """
    known = [name for name in METRICS if name in dataset and name not in ("bias2", "variance")]
    own = [str(name) for name in dataset.data_vars if f"{name}_se" in dataset and not str(name).endswith("_difference")]
    return known + [name for name in own if name not in METRICS]


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
    return _grid(dataset, metrics, "num_users", num_categories=num_categories, epsilon=epsilon)


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
    return _grid(dataset, metrics, "epsilon", num_categories=num_categories, num_users=num_users)


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
    return _grid(dataset, ("bias2", "variance"), x, sharey="col", num_categories=num_categories, **fixed)


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
    dataset = _prepared(dataset, [metric])
    if "distribution" not in dataset.dims:
        raise ValueError("data sets are along a dimension distribution, which this dataset lacks")
    figure = _figure(10.5, 2.7 * dataset.sizes["distribution"] + 0.9)
    panels = figure.subplots(dataset.sizes["distribution"], 2, squeeze=False)
    legend = _Legend(dataset)
    for (left, right), name in zip(panels, dataset["distribution"].values, strict=True):
        here = dataset.sel(distribution=name)
        shares = None if name not in histograms else np.asarray(histograms[name])
        size = len(shares) if shares is not None and here.sizes.get("num_categories", 1) > 1 else None
        here, at = _fixed(here, num_categories=size)
        here, users = _fixed(here, num_users=num_users if num_users is not None else _only_users(here, metric))
        if shares is None:
            left.set_axis_off()
        else:
            _histogram(left, shares)
            left.set_xlabel("category")
        if right is not panels[-1, 1]:
            right.tick_params(labelbottom=False)
        sizes = ", ".join(_said(key, value) for key, value in {**at, **users}.items())
        left.set_title(f"{_text(name)}: {sizes}" if sizes else _text(name), fontsize=10)
        _panel(right, here, metric, "epsilon", legend)
        right.set_ylabel(_label(metric), fontsize=9)
    panels[-1, 1].set_xlabel(_AXES["epsilon"])
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
        raise ValueError(f"there is no variable distance; there are: {_listed(dataset.data_vars)}")
    population = _population(dataset)
    distance = dataset["distance"]
    for name in ("variant", population, "num_users", "epsilon", "iteration"):
        if name not in distance.dims and name in distance.coords and distance[name].ndim == 0:
            distance = distance.expand_dims(name)
        if name not in distance.dims:
            raise ValueError(f"distance has no dimension {name}; it has: {_listed(distance.dims)}")
    populations, users = distance[population].values, distance["num_users"].values
    figure = _figure(max(4.2 * len(users), 5.5) + 1, 2.9 * len(populations) + 1.3)
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
            _set_limits(axes, values, log=True)
            axes.set_xlim(-0.15 if iteration.min() == 0 else 0.9 * iteration.min(), 1.6 * max(iteration.max(), 1))
            axes.set_title(f"{_panel_title(dataset, population, which)}, N = {many:,.0f}", fontsize=10)
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
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), 7),
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )
    if "num_categories" in dataset.attrs or dataset.coords.get("num_categories", distance).ndim == 0:
        size = dataset.attrs.get("num_categories", None) or dataset.coords["num_categories"].item()
        _head(figure, f"{_said('num_categories', size)}; a marker ends the curve at its last iteration")
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
    dataset = _prepared(dataset, [metric])
    population = _population(dataset)
    here, at = _fixed(dataset, **{population: zipf})
    if epsilons is None:
        own = here["epsilon"].values
        epsilons = [e for e in (1, 2, 4, 10) if np.isclose(own, e).any()]
        epsilons = epsilons if len(epsilons) == 4 else _spread(own, 4)
    if "num_categories" not in here.dims:
        raise ValueError("a row for every num_categories, which is no dimension of this dataset")
    sizes = here["num_categories"].values
    which = at[population]
    if histograms is None:
        histograms = {int(size): _zipf(int(size), float(which)) for size in sizes} if population == "zipf" else {}
    first = int(bool(histograms))
    columns = len(epsilons) + first
    figure = _figure(2.55 * columns + 0.6, 1.75 * len(sizes) + 1.2)
    panels = figure.subplots(len(sizes), columns, squeeze=False)
    legend = _Legend(dataset)
    for row, size in zip(panels, sizes, strict=True):
        here_k, _ = _fixed(here, num_categories=size)
        if first and (shares := histograms.get(int(size))) is not None:
            _histogram(row[0], np.asarray(shares), ranked=population == "zipf")
            row[0].set_ylabel(f"K = {size:,.0f}\n\nshare", fontsize=9)
        elif first:
            row[0].set_axis_off()
        for axes, epsilon in zip(row[first:], epsilons, strict=True):
            _panel(axes, _fixed(here_k, epsilon=epsilon)[0], metric, "num_users", legend)
        row[first].set_ylabel(("" if first else f"K = {size:,.0f}\n\n") + _short(metric), fontsize=9)
    for axes, epsilon in zip(panels[0, first:], epsilons, strict=True):
        axes.set_title(_said("epsilon", epsilon), fontsize=10)
    for axes in panels[-1, first:]:
        axes.set_xlabel(_AXES["num_users"], fontsize=9)
    if first:
        panels[0, 0].set_title("true distribution", fontsize=10)
        panels[-1, 0].set_xlabel("rank" if population == "zipf" else "category", fontsize=9)
    for axes in panels[:-1].flat:
        ranks = bool(first) and axes in panels[:, 0]
        axes.tick_params(labelbottom=ranks)
        axes.tick_params(which="minor", bottom=ranks)
    for axes in panels.flat:
        axes.tick_params(labelsize=8)
    label = _label(metric).replace("\n", " ")
    _head(figure, f"{_panel_title(dataset, population, which)}: {label}{_seeds(dataset)}")
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
        raise ValueError(f"there is no metric in the dataset, only: {_listed(dataset.data_vars)}")
    dataset = _prepared(dataset, metrics)
    population = _population(dataset)
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
                notes.append(f"{_said(name, fixed[name])} is one of {len(values)}")
    chosen: dict[str, list[Any]] = {}
    for name in filter(None, (columns_by, rows_by)):
        values = dataset[name].values
        chosen[name] = _spread(values, 4)
        if len(chosen[name]) < len(values):
            notes.append(f"{len(chosen[name])} of {len(values)} values of {_SYMBOLS.get(name, name)}")
    if rows_by and metric is None and len(metrics) > 1:
        notes.append(f"{_short(metrics[0])} alone of {len(metrics)} metrics")
    elif len(metrics) > 4:
        notes.append(f"4 of {len(metrics)} metrics")
    here, _ = _fixed(dataset, **fixed)
    rows: list[Any] = chosen[rows_by] if rows_by else metrics[:4]
    figure = _figure(max(2.75 * len(chosen[columns_by]), 5.5) + 0.7, 2.2 * len(rows) + 1.4)
    panels = figure.subplots(len(rows), len(chosen[columns_by]), squeeze=False)
    legend = _Legend(dataset)
    for row, what in zip(panels, rows, strict=True):
        drawn = metrics[0] if rows_by else what
        for axes, value in zip(row, chosen[columns_by], strict=True):
            cell, _ = _fixed(here, **({columns_by: value} | ({rows_by: what} if rows_by else {})))
            _panel(axes, cell, drawn, x, legend)
            axes.tick_params(labelsize=8)
        label = _label(drawn)
        row[0].set_ylabel(f"{_said(rows_by, what)}\n\n{_short(drawn)}" if rows_by else label, fontsize=9)
    for axes, value in zip(panels[0], chosen[columns_by], strict=True):
        axes.set_title(_panel_title(dataset, columns_by, value), fontsize=10)
    for axes in panels[-1]:
        axes.set_xlabel(_AXES[x], fontsize=9)
    for axes in panels[:-1].flat:
        axes.tick_params(labelbottom=False)
    head = ", ".join(_said(name, value) for name, value in fixed.items()) + _seeds(dataset)
    if rows_by:
        head = _label(metrics[0]).replace("\n", " ") + ("; " if head[:1].strip("; ") else "") + head
    note = f"\n(drawn: {'; '.join(notes)})" if notes else ""
    _head(figure, head.removeprefix("; ") + note)
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

    dataset = _prepared(dataset, [metric])
    population = _population(dataset)
    names = [str(name) for name in dataset["estimator"].values]
    if estimator not in names:
        raise ValueError(f"estimator {estimator} is not in the dataset, which has: {_listed(names)}")
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
    columns, rows = (_spread(np.arange(shape[axis]), 5) for axis in (0, 1))
    figure = _figure(max(0.3 * shape[3] * len(columns) + 2.6, 6), max(0.27 * shape[2] + 0.45, 0.9) * len(rows) + 1.6)
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
            axes.set_yticks(range(shape[2]), [_power(value) for value in labels[2]], fontsize=8)
            axes.tick_params(length=0, labelbottom=row == len(rows) - 1, labelleft=column == 0)
            if row == 0:
                axes.set_title(_panel_title(dataset, population, labels[0][which]), fontsize=10)
            if column == 0:
                said = f"K = {labels[1][size]:,.0f}\n" if "num_categories" in kept else ""
                axes.set_ylabel(f"{said}users N", fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel(_AXES["epsilon"], fontsize=9)
    title, short = _text(estimator_title(estimator)), _short(metric)
    assert image is not None
    clipped = known.any() and np.abs(ratio[known]).max() > largest
    bar = figure.colorbar(image, ax=panels, extend="both" if clipped else "neither", fraction=0.04, pad=0.02)
    bar.set_label(f"log$_2$ of {short} of {title}\nover that of the best other estimator", fontsize=9)
    signs = f"−: lower than the best other one, {title} wins; +: higher, loses"
    signs += "; none: within 2 standard errors" if tested else ""
    wins, losses = int((known & (sign < 0)).sum()), int((known & (sign > 0)).sum())
    signs += f"\n{wins:,} wins and {losses:,} losses in {int(known.sum()):,} configurations"
    left = sum(a - len(b) for a, b in zip(shape, (columns, rows), strict=False))
    _head(figure, signs + ("; up to five populations and K are drawn" if left else ""))
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


class _Legend:
    """Which estimators were drawn, and how; one legend for all panels."""

    def __init__(self, dataset: xr.Dataset):
        self.styles = _styles(dataset)
        self.drawn: set[str] = set()
        self.bands = False
        self.leaves = False

    def draw(self, figure: Figure) -> None:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Any] = [
            Line2D([], [], **_line(style), label=_text(estimator_title(name)))
            for name, style in self.styles.items()
            if name in self.drawn
        ]
        if self.bands:
            handles.append(Patch(facecolor="0.5", alpha=0.3, label="±2 standard errors"))
        if not handles:
            return
        figure.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(len(handles), 7),
            frameon=False,
            fontsize=9,
            title="Inv, which is no distribution, may leave a panel" if self.leaves else None,
            title_fontsize=8,
            handlelength=3.2,
        )


def _grid(dataset, metrics, x, *, sharey="none", **fixed) -> Figure:
    """Rows of metrics, a panel for every population, against x."""
    dataset = _prepared(dataset, metrics)
    population = _population(dataset)
    here, at = _fixed(dataset, **fixed)
    values = _spread(here[population].values, 6)
    figure = _figure(max(3.3 * len(values), 4.5) + 0.6, 2.5 * len(metrics) + 1.1)
    panels = figure.subplots(len(metrics), len(values), squeeze=False, sharex=True)
    legend = _Legend(dataset)
    for column, value in enumerate(values):
        cell = here.sel({population: value})
        seen = [_panel(panels[row, column], cell, metric, x, legend) for row, metric in enumerate(metrics)]
        if "nll" in metrics:
            _magnify(panels[list(metrics).index("nll"), column], cell, "nll", x, legend)
        if sharey == "col":
            for axes in panels[:, column]:
                _set_limits(axes, np.concatenate(seen), log=True)
        panels[0, column].set_title(_panel_title(dataset, population, value), fontsize=10)
        panels[-1, column].set_xlabel(_AXES[x])
    for metric, row in zip(metrics, panels, strict=True):
        row[0].set_ylabel(_label(metric), fontsize=9)
    left = dataset.sizes[population] - len(values)
    note = f"\n({len(values)} of {len(values) + left} populations are drawn)" if left else ""
    head = ", ".join(_said(name, value) for name, value in at.items()) + _seeds(dataset)
    _head(figure, head.removeprefix("; ") + note)
    legend.draw(figure)
    return figure


def _panel(axes: Axes, here: xr.Dataset, metric: str, x: str, legend: _Legend) -> np.ndarray:
    """Draws all estimators of a dataset that has only estimator and x left; returns what the limits must hold."""
    if x not in here.dims:
        raise ValueError(f"nothing to draw against: {x} is no dimension of this dataset")
    # An own metric may be negative.
    log = metric != "nll" and (metric in METRICS or not bool((here[metric] < 0).any()))
    along = np.asarray(here[x].values, float)
    seen, apart, bands = [np.empty(0)], [np.empty(0)], []
    for name in here["estimator"].values:
        at = here.sel(estimator=name)
        rest = [dim for dim in at[metric].dims if dim != x]
        if rest:
            raise ValueError(f"too much for one curve: choose a value of {_listed(rest)}")
        mean = np.asarray(at[metric].values, float)
        error = np.asarray(at[f"{metric}_se"].values, float) if f"{metric}_se" in at else np.full(mean.shape, np.nan)
        style = legend.styles[str(name)]
        good = np.isfinite(along) & np.isfinite(mean) & ((mean > 0) | (not log))
        if not good.any():
            continue
        legend.drawn.add(str(name))
        axes.plot(along[good], mean[good], **_line(style))
        band = good & np.isfinite(error) & (error > 0)
        half = 2 * np.where(band, error, 0)
        low, high = mean - half, mean + half
        (apart if str(name) == "inv" else seen).extend([mean[good], high[band], low[band & ((low > 0) | (not log))]])
        if band.any():
            bands.append((band, low, high, style.colour))
    values, raw = np.concatenate(seen), np.concatenate(apart)
    # Raw inversion is no distribution: its errors, and its likelihood, can hide what separates the others.
    if not len(values) or (len(raw) and _span(np.concatenate([values, raw]), log) <= 2 * _span(values, log)):
        values = np.concatenate([values, raw])
    elif len(raw):
        legend.leaves = True
    if log:
        axes.set_yscale("log")
    _set_limits(axes, values, log=log)
    _set_x(axes, along[np.isfinite(along)], x)
    for band, low, high, colour in bands:
        legend.bands = True
        if log:  # where the band reaches zero, to the edge of the panel
            low = np.where(low > 0, low, min(axes.get_ylim()[0], np.nanmin(high[band])))
        if band.sum() > 1:
            axes.fill_between(along, low, high, where=band, color=colour, alpha=0.16, linewidth=0, zorder=1)
        else:
            axes.vlines(along[band], low[band], high[band], color=colour, linewidth=1, zorder=1)
    axes.grid(color="0.93")
    axes.set_axisbelow(True)
    return values


def _span(values: np.ndarray, log: bool) -> float:
    low, high = float(values.min()), float(values.max())
    return float(np.log(high / low)) if log else high - low


def _magnify(axes: Axes, here: xr.Dataset, metric: str, x: str, legend: _Legend) -> None:
    """Where no limits of the panel can separate the curves: one x, at a scale of its own."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    names = [str(name) for name in here["estimator"].values if str(name) != "inv"]
    mean = np.asarray(here[metric].sel(estimator=names).transpose("estimator", x).values, float)
    whole = np.isfinite(mean).all(axis=0)
    mean, along = mean[:, whole], np.asarray(here[x].values, float)[whole]
    low, high = axes.get_ylim()
    if len(names) < 2 or mean.shape[1] < 2:
        return
    apart = mean.max(axis=0) - mean.min(axis=0)
    most = int(np.argmax(apart))
    if not 1e-9 * abs(high) < apart[most] < 0.06 * (high - low):
        return
    steps = np.linspace(0, mean.shape[1] - 1, 200)
    to_panel = (axes.transScale + axes.transLimits).transform
    corners = to_panel(np.column_stack([np.tile(along, len(names)), mean.ravel()])).reshape(len(names), -1, 2)
    across, up = (
        np.concatenate([np.interp(steps, range(mean.shape[1]), line[:, axis]) for line in corners]) for axis in (0, 1)
    )
    for left, bottom in ((0.2, 0.1), (0.57, 0.1), (0.57, 0.46), (0.2, 0.46)):
        # With its title above and the numbers on its left.
        inside = (across > left - 0.19) & (across < left + 0.42) & (up > bottom - 0.04) & (up < bottom + 0.54)
        if not inside.any():
            break
    else:
        return
    inset = axes.inset_axes((left, bottom, 0.4, 0.4))
    for place, name in enumerate(names):
        inset.plot([place], [mean[place, most]], **_line(legend.styles[name]))
    inset.set_xlim(-0.6, len(names) - 0.4)
    pad = 0.25 * apart[most]
    inset.set_ylim(mean[:, most].min() - pad, mean[:, most].max() + pad)
    inset.set_xticks([])
    inset.yaxis.set_major_locator(MaxNLocator(3))
    inset.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}"))
    inset.tick_params(labelsize=7, length=2)
    inset.set_title(f"magnified, at {_said(x, along[most])}", fontsize=7, pad=2)


def _line(style: _Style) -> dict[str, Any]:
    return {
        "color": style.colour,
        "linestyle": style.dash,
        "linewidth": 1.5,
        "marker": style.marker,
        "markersize": style.size,
        "markerfacecolor": style.colour if style.filled else "none",
        "markeredgewidth": 1.2,
    }


def _set_limits(axes: Axes, values: np.ndarray, *, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    if not len(values):
        axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center", va="center", color="0.5")
        axes.yaxis.set_major_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        return
    low, high = float(values.min()), float(values.max())
    if log:
        pad = 10 ** max(0.07 * np.log10(high / low), 0.04)
        axes.set_ylim(low / pad, high * pad)
        _log_ticks(axes.yaxis, low / pad, high * pad)
    else:
        pad = 0.07 * (high - low) or 0.01 * abs(high) or 0.01
        axes.set_ylim(low - pad, high + pad)
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.10g}".replace("-", "−")))


def _set_x(axes: Axes, along: np.ndarray, name: str) -> None:
    from matplotlib.ticker import MaxNLocator, NullFormatter

    if not len(along):
        return
    low, high = along.min(), along.max()
    if low > 0 and (name in ("num_users", "num_categories") or high / low > 30) and name != "zipf":
        pad = max((high / low) ** 0.05, 1.15)
        axes.set_xscale("log")
        axes.set_xlim(low / pad, high * pad)
        _log_ticks(axes.xaxis, low / pad, high * pad)
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        pad = 0.05 * (high - low) or 0.5
        axes.set_xlim(low - pad, high + pad)
        if len(along) <= 10 and len(along) > 1 and np.diff(along).min() > 0.07 * (high - low):
            axes.set_xticks(along, [f"{value:g}" for value in along])
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6))


def _log_ticks(axis, low: float, high: float) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    decades = np.log10(high / low)
    first, last = int(np.ceil(np.log10(low))), int(np.floor(np.log10(high)))
    if last - first >= 1 and decades >= 1.5:
        step = -(-(last - first + 1) // 7)
        axis.set_major_locator(FixedLocator([10.0**power for power in range(first, last + 1, step)]))
        axis.set_minor_locator(LogLocator(subs=range(2, 10)) if decades <= 8 and step == 1 else NullLocator())
    elif decades >= 0.6:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    axis.set_minor_formatter(NullFormatter())


def _power(value: float) -> str:
    """A number as a power of ten, times something if need be."""
    if not value > 0:
        return f"{value:g}"
    power = int(np.floor(np.log10(value) + 1e-9))
    factor = value / 10.0**power
    if abs(factor - 1) < 1e-6:
        return f"$10^{{{power}}}$"
    return f"{value:g}" if -2 <= power <= 2 else f"${factor:.4g}{{\\times}}10^{{{power}}}$"


def _histogram(axes: Axes, shares: np.ndarray, *, ranked: bool = False) -> None:
    """Bars of all categories; of many, the tallest of each bin, so that none is lost to the eye."""
    size = len(shares)
    if ranked:
        rank = np.unique(np.geomspace(1, size, 500).astype(int))
        rank = rank[shares[rank - 1] > 0]
        single = {"marker": "o", "markersize": 4} if len(rank) == 1 else {}
        axes.plot(rank, shares[rank - 1], color="0.35", linewidth=1.5, **single)
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = float(shares[shares > 0].min()), float(shares.max())
        pad = 10 ** max(0.07 * np.log10(high / low), 0.3)
        axes.set_ylim(low / pad, high * pad)
        axes.set_xlim(0.9, size * 1.1)
        _log_ticks(axes.xaxis, 0.9, size * 1.1)
        _log_ticks(axes.yaxis, low / pad, high * pad)
        axes.grid(color="0.93")
        return
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

    edges = np.linspace(0, size, min(size, 1000) + 1).astype(int)
    axes.stairs(np.maximum.reduceat(shares, edges[:-1]), edges, fill=True, color="0.35", edgecolor="0.35")
    axes.set_xlim(-0.01 * size, 1.01 * size)
    axes.set_ylim(0, 1.06 * float(shares.max()))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    many = f"\n(the largest in each of {len(edges) - 1:,} bins)" if len(edges) - 1 < size else ""
    axes.set_ylabel(f"true share of users{many}", fontsize=9)


def _zipf(num_categories: int, exponent: float) -> np.ndarray:
    shares = np.arange(1, num_categories + 1) ** -float(exponent)
    return shares / shares.sum()


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _head(figure: Figure, text: str) -> None:
    """Above all panels, in as many lines as its width needs."""
    lines = [textwrap.fill(line, int(11 * figure.get_figwidth())) for line in text.split("\n")]
    figure.suptitle("\n".join(lines), fontsize=10.5)


def _styles(dataset: xr.Dataset) -> dict[str, _Style]:
    """Fixed by the name; an own estimator's by its place among those of the dataset."""
    names = [str(name) for name in dataset["estimator"].values]
    own = [name for name in names if name not in _STYLES]
    styles = {name: _STYLES.get(name) or _OWN[own.index(name) % len(_OWN)] for name in names}
    # The large and hollow are drawn first.
    return {name: styles[name] for name in sorted(names, key=lambda name: (name not in _STYLES, _rank(name)))}


def _rank(name: str) -> int:
    return list(_STYLES).index(name) if name in _STYLES else 0


def _population(dataset: xr.Dataset) -> str:
    for name in ("zipf", "distribution"):
        if name in dataset.dims or name in dataset.coords:
            return name
    raise ValueError(f"there is no dimension zipf or distribution; there are: {_listed(dataset.dims)}")


def _prepared(dataset: xr.Dataset, metrics: Sequence[str]) -> xr.Dataset:
    """The dataset, with dimensions that a selection had dropped, and estimators in drawing order."""
    for metric in metrics:
        if metric not in dataset:
            there = [name for name in METRICS if name in dataset]
            raise ValueError(f"{metric} is not in the dataset, which has: {_listed(there or dataset.data_vars)}")
    for name in ("estimator", "num_categories", "num_users", "epsilon", _population(dataset)):
        if name not in dataset.dims and name in dataset.coords and dataset[name].ndim == 0:
            dataset = dataset.expand_dims(name)
    if "estimator" not in dataset.dims:
        raise ValueError(f"there is no dimension estimator; there are: {_listed(dataset.dims)}")
    names = {str(name): index for index, name in enumerate(dataset["estimator"].values)}
    return dataset.isel(estimator=[names[name] for name in _styles(dataset)])


def _fixed(dataset: xr.Dataset, **values: Any) -> tuple[xr.Dataset, dict[str, Any]]:
    """The dataset at given values, and the values; None stands for the only one."""
    at: dict[str, Any] = {}
    for name, value in values.items():
        if name not in dataset.dims:
            if name in dataset.coords and dataset[name].ndim == 0:
                at[name] = dataset[name].item()
                there = np.atleast_1d(dataset[name].values)
                if value is not None and not _found(there, value).any():
                    raise ValueError(f"{name} {value} is not in the dataset, which has: {_listed(there)}")
            elif value is not None:
                raise ValueError(f"{name} is no dimension of this dataset; there are: {_listed(dataset.dims)}")
            continue
        there = dataset[name].values
        if value is None:
            if len(there) != 1:
                raise ValueError(f"which {name}? The dataset has: {_listed(there)}")
            value = there[0]
        found = np.nonzero(_found(there, value))[0]
        if not len(found):
            raise ValueError(f"{name} {value} is not in the dataset, which has: {_listed(there)}")
        dataset = dataset.isel({name: int(found[0])})
        at[name] = there[found[0]]
    return dataset, at


def _found(there: np.ndarray, value: Any) -> np.ndarray:
    if there.dtype.kind in "iuf":
        try:
            return np.isclose(there.astype(float), float(value), rtol=1e-9, atol=0)
        except ValueError:
            return np.zeros(len(there), bool)
    return there.astype(str) == str(value)


def _only_users(here: xr.Dataset, metric: str) -> Any:
    """The number of users of a data set: the one that has values."""
    if here.sizes.get("num_users", 1) == 1:
        return None
    others = [name for name in here[metric].dims if name != "num_users"]
    held = here["num_users"].values[here[metric].notnull().any(others).values]
    return held[0] if len(held) == 1 else None


def _spread(values: Any, most: int) -> list[Any]:
    places = np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int))
    return [values[place] for place in places]


def _panel_title(dataset: xr.Dataset, name: str, value: Any) -> str:
    """What a panel shows; a data set with its own K says so."""
    title = _said(name, value)
    if name == "distribution" and "num_categories" in dataset.coords:
        size = dataset["num_categories"]
        title += f", K = {size.sel(distribution=value).item():,.0f}" if size.dims == ("distribution",) else ""
    return title


def _said(name: str, value: Any) -> str:
    if name == "distribution":
        return _text(value)
    if name == "zipf":
        return f"Zipf exponent s = {value:g}".replace("inf", "∞")
    if name == "epsilon":
        return f"ε = {value:g}".replace("inf", "∞")
    return f"{'K' if name == 'num_categories' else 'N'} = {value:,.0f}"


def _label(metric: str) -> str:
    return METRICS.get(metric) or _text(metric)


def _short(metric: str) -> str:
    return _SHORT.get(metric) or _text(metric)


def _seeds(dataset: xr.Dataset) -> str:
    seeds = dataset.attrs.get("num_seeds")
    return "" if seeds is None else f"; {int(seeds):,} seed{'' if seeds == 1 else 's'}"


def _listed(values: Any) -> str:
    shown = [f"{value:g}" if isinstance(value, float | np.floating) else str(value) for value in values]
    return ", ".join(shown[:20]) + (" …" if len(shown) > 20 else "") if shown else "none"
