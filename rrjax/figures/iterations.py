"""Figures of EM against its iterations: the paper's Fig. 4."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.axes import in_words, new_figure, no_axes, set_grid, set_heading, set_limits, set_ticks
from rrjax.figures.panels import legend_below
from rrjax.figures.selection import population_of, restored
from rrjax.figures.style import estimator_title, listed_values, panel_title, shortened, words_for

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

_LOOKS: tuple[Any, ...] = (("-", "o"), ("--", "s"), ((0, (1.5, 1)), "^"), ("-.", "D"), ((0, (5, 1, 1, 1)), "v"))
_VARIANTS = {"ibu": "IBU (plain EM)", "deflated": "deflated EM", "anderson": "Anderson acceleration"}


@no_axes
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
            f"there is no variable distance; there are: {listed_values(dataset.data_vars)}", argument="dataset"
        )
    population = population_of(dataset)
    needed = ("variant", population, "num_users", "epsilon", "iteration")
    distance = restored(dataset["distance"], *needed)
    for name in needed:
        if name not in distance.dims:
            raise ArgumentError(
                f"distance has no dimension {name}; it has: {listed_values(distance.dims)}",
                argument="dataset",
                value=name,
            )
    populations, users = distance[population].values, distance["num_users"].values
    figure = new_figure(max(4.2 * len(users), 5.5) + 1, 2.9 * len(populations) + 1.3)
    panels = figure.subplots(len(populations), len(users), squeeze=False, sharex=True)
    iteration = np.asarray(distance["iteration"].values)
    looks = dict(zip(map(str, distance["variant"].values), cycle(_LOOKS), strict=False))
    epsilons = distance["epsilon"].values
    shades = colormaps["plasma"](np.linspace(0, 0.8, max(len(epsilons), 2)))[: len(epsilons)]
    of_rows: list[list[np.ndarray]] = [[np.empty(0)] for _ in populations]
    for (row, column), axes in np.ndenumerate(panels):
        which, num_users = populations[row], users[column]
        cell = distance.sel({population: which, "num_users": num_users})
        for shade, epsilon in zip(shades, epsilons, strict=True):
            for variant, (dash, marker) in looks.items():
                y = np.asarray(cell.sel(epsilon=epsilon, variant=variant).transpose("iteration").values, float)
                shown = np.nonzero(np.isfinite(y) & (y > 0))[0]
                if not len(shown):
                    continue
                look = {"color": shade, "linestyle": dash, "linewidth": 1.3 if dash == "-" else 1.7, "marker": marker}
                axes.plot(iteration[shown], y[shown], **look, markersize=5, markevery=[len(shown) - 1])
                of_rows[row].append(y[shown])
        axes.set_xscale("symlog", linthresh=1, linscale=0.4)
        axes.set_yscale("log")
        last = max(int(iteration.max()), 1)
        ticks = [0, *(10**power for power in range(len(str(last))))]
        axes.xaxis.set_major_locator(FixedLocator(ticks[:: -(-len(ticks) // 8)]))
        set_ticks(axes.xaxis, in_words)
        axes.set_xlim(-0.15 if iteration.min() == 0 else 0.9 * iteration.min(), 1.6 * last)
        axes.set_title(f"{panel_title(dataset, population, which)}, {words_for('num_users', num_users)}", fontsize=10)
        set_grid(axes)
    for line, drawn in zip(panels, of_rows, strict=True):
        values = np.concatenate(drawn)
        for axes in line:
            set_limits(axes, values[values >= 1e-20 * values.max(initial=0)], log=True)
            axes.tick_params(labelleft=axes is line[0])
    for axes in panels[-1]:
        axes.set_xlabel("iteration t")
    what = f"squared distance from {estimator_title('mle_star')}"
    for axes in panels[:, 0]:
        axes.set_ylabel(f"{what}\n$\\Sigma_i\\,(\\theta_{{t,i}} - \\hat\\theta_i)^2$", fontsize=9)
    handles = [
        Line2D([], [], color=shade, linewidth=3, label=words_for("epsilon", epsilon))
        for shade, epsilon in zip(shades, epsilons, strict=True)
    ]
    for name, (dash, mark) in looks.items():
        label = _VARIANTS.get(name, shortened(name))
        handles.append(Line2D([], [], color="0.25", linestyle=dash, marker=mark, markersize=5, label=label))
    legend_below(figure, handles, "a marker ends a curve at its last iteration")
    if "num_categories" in dataset.attrs or dataset.coords.get("num_categories", distance).ndim == 0:
        size = dataset.attrs.get("num_categories", None) or dataset.coords["num_categories"].item()
        set_heading(figure, words_for("num_categories", size))
    return figure
