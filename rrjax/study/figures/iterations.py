"""EM against its iterations: Fig. 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.plots import shortened
from rrjax.study.figures.axes import new_figure, set_heading, set_limits
from rrjax.study.figures.panels import legend_below
from rrjax.study.figures.selection import population_of
from rrjax.study.figures.words import listed_values, panel_title, words_for

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


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
        Line2D([], [], color="0.25", linestyle=dash, marker=mark, markersize=5, label=names.get(name, shortened(name)))
        for name, (dash, mark) in looks.items()
    ]
    legend_below(figure, handles)
    if "num_categories" in dataset.attrs or dataset.coords.get("num_categories", distance).ndim == 0:
        size = dataset.attrs.get("num_categories", None) or dataset.coords["num_categories"].item()
        set_heading(figure, f"{words_for('num_categories', size)}; a marker ends the curve at its last iteration")
    return figure
