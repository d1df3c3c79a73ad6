"""Maps of a grid: the wins of an estimator, and the estimator with the smallest error."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError, number
from rrjax.figures import axes as canvas
from rrjax.figures import style
from rrjax.figures.panels import Facets
from rrjax.figures.selection import population_of, prepared, rounding, spread_over

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


@canvas.no_axes
def wins(dataset: xr.Dataset, metric: str = "mse", *, estimator: str) -> Figure:
    """Draws maps of the wins and losses of one estimator against the best of the others, for every population and K.

    The colour is log₂ of the ratio of its metric to the smallest of the others'. Signs are for grey printing: − if its
    metric is lower (it wins), + if it is higher, none if the two are within 2 standard errors of their paired
    difference, or within the rounding of the study's floats. The best of the others is chosen after the fact, a
    disadvantage for the estimator.

    Args:
        dataset: Dataset of a study.
        metric: The name of a variable, with its paired differences, if signs should need significance.
        estimator: The name of the compared estimator.

    Returns:
        The figure.

    Raises:
        ArgumentError: The estimator or the metric is not in the dataset, or there is no other estimator.

    Example:
        >>> from rrjax.figures import wins
        >>> from rrjax.study import Study
        >>> grid = {"num_categories": 20, "num_users": [100, 1000], "epsilon": [1.0, 2.0], "zipf": 1.3}
        >>> result = Study(estimators=["mle_star", "inv_n"], **grid, num_seeds=2).run()
        >>> wins(result, estimator="mle_star").axes[0].get_title()
        'Zipf exponent s = 1.3'
    """
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    dataset = prepared(dataset, [metric])
    names = [str(name) for name in dataset["estimator"].values]
    if estimator not in names:
        raise ArgumentError.about(
            "estimator", f"{estimator} is not in the dataset, which has: {style.listed_values(names)}", value=estimator
        )
    maps = _Maps(dataset, metric)
    mine = names.index(estimator)
    others = np.where(np.isfinite(maps.mean), maps.mean, np.inf)
    others[mine] = np.inf
    best = others.argmin(axis=0)[None]
    known = maps.known[mine] & np.take_along_axis(maps.known, best, 0)[0]
    sign = np.where(known, np.take_along_axis(maps.signs[mine], best, 0)[0], 0)
    ratio = np.log2(np.where(known, maps.mean[mine], 1) / np.where(known, others.min(axis=0), 1))
    most = float(np.abs(ratio).max())
    largest = float(np.clip(most, 0.1, 3))
    colours = LinearSegmentedColormap.from_list("wins", [style.BLUE, "#ffffff", style.RED])
    bold: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 9, "fontweight": "bold"}
    image = None
    for axes, place in maps.places:
        cell = np.ma.masked_array(ratio[place], ~known[place])
        image = axes.imshow(cell, cmap=colours, norm=Normalize(-largest, largest), origin="lower", aspect="auto")
        for down, across in np.argwhere(sign[place] != 0):
            colour = "white" if abs(cell[down, across]) > 0.55 * largest else "black"
            axes.text(across, down, "+" if sign[place][down, across] > 0 else "−", color=colour, **bold)
    title = style.shortened(style.estimator_title(estimator))
    assert image is not None
    extend = "both" if most > largest else "neither"
    bar = maps.figure.colorbar(image, ax=maps.panels, extend=extend, fraction=0.04, pad=0.02)
    what = f"{style.short_label(metric)} of {title}"
    bar.set_label(f"log$_2$ of {what}\nover that of the best other estimator", fontsize=9)
    won, lost = int((sign < 0).sum()), int((sign > 0).sum())
    heading = f"{title} against the best other estimator: {number(won, 'win', 'wins')} and "
    heading += f"{number(lost, 'loss', 'losses')} in {number(int(known.sum()), 'configuration', 'configurations')}"
    canvas.set_heading(maps.figure, heading)
    canvas.legend_below(maps.figure, [], f"−: {title} wins; +: it loses; no sign: {maps.tie}{maps.left_out}")
    return maps.figure


@canvas.no_axes
def closest(dataset: xr.Dataset, metric: str = "mse") -> Figure:
    """Draws maps of the estimator with the smallest error, for every population and K.

    A cell has the colour and the marker of the best estimator. It is pale if another one is within 2 standard errors of
    their paired difference, or within the rounding of the study's floats: then the best may be another.

    Args:
        dataset: Dataset of a study.
        metric: The name of a variable, with its paired differences, if cells should need significance.

    Returns:
        The figure.

    Raises:
        ArgumentError: The metric is not in the dataset, or there are not two estimators.

    Example:
        >>> from rrjax.figures import closest
        >>> from rrjax.study import Study
        >>> grid = {"num_categories": 20, "num_users": [100, 1000], "epsilon": [1.0, 2.0], "zipf": 1.3}
        >>> result = Study(estimators=["mle_star", "empirical_bayes"], **grid, num_seeds=2).run()
        >>> [text.get_text().split(":")[0] for text in closest(result).legends[0].get_texts()]
        ['MLE*', 'Emp. Bayes']
    """
    from matplotlib.colors import to_rgb
    from matplotlib.lines import Line2D

    maps = _Maps(prepared(dataset, [metric]), metric)
    best = np.where(np.isfinite(maps.mean), maps.mean, np.inf).argmin(axis=0)
    known = np.asarray(np.isfinite(maps.mean).any(axis=0))
    # The best must differ from every other one: the second best may have a smaller standard error than the third.
    unknown = ~(maps.known[:, None] & maps.known)
    clear = np.take_along_axis(((maps.signs < 0) | unknown).sum(axis=1), best[None], 0)[0] >= len(maps.mean) - 1
    for axes, place in maps.places:
        cells = np.full((*known[place].shape, 3), 0.85)
        for index, look in enumerate(maps.styles.values()):
            colour = np.array(to_rgb(look.colour))
            here = known[place] & (best[place] == index)
            cells[here & clear[place]] = colour
            cells[here & ~clear[place]] = 0.35 * colour + 0.65
            down, across = np.nonzero(here)
            ink = np.where(clear[place][here], 1.0, 0.0)[:, None].repeat(3, axis=1)
            axes.scatter(across, down, marker=look.marker, s=14, c=ink, linewidths=1)
        axes.imshow(cells, origin="lower", aspect="auto")
    handles, titles = [], []
    for index, (name, look) in enumerate(maps.styles.items()):
        cell = Line2D([], [], marker="s", markersize=11, color=look.colour, linestyle="")
        handles.append((cell, Line2D([], [], marker=look.marker, markersize=4, color="white", linestyle="")))
        titles.append(f"{style.shortened(style.estimator_title(name))}: {(known & (best == index)).sum()}")
    shape: dict[str, Any] = {"ncols": min(len(handles), 4), "frameon": False, "fontsize": 9, "title_fontsize": 8}
    note = f"pale: another one is {maps.tie}{maps.left_out}"
    maps.figure.legend(handles, titles, loc="outside lower center", title=note, **shape)
    number_of_all = number(int(known.sum()), "configuration", "configurations")
    canvas.set_heading(maps.figure, f"Smallest {style.short_label(metric)} in {number_of_all}, by estimator")
    return maps.figure


class _Maps(Facets):
    """Maps of a metric, N over ε: a column for each population, a row for each K.

    Arrays are `[estimator, population, K, N, ε]`, of size one along a dimension that the dataset lacks.
    """

    def __init__(self, dataset: xr.Dataset, metric: str):
        """Empty maps, with all texts around them."""
        if dataset.sizes["estimator"] < 2:
            alone = dataset["estimator"].values[0]
            raise ArgumentError(f"{alone} is the only estimator: there is no other to compare with", argument="dataset")
        super().__init__(dataset)
        self.layout = (population_of(dataset), "num_categories", "num_users", "epsilon")
        self.mean = self._values(dataset[metric], "estimator")
        self.known = np.isfinite(self.mean) & (self.mean > 0)
        self._compare(metric)
        _, *shape = self.mean.shape
        labels = [dataset[name].values if name in dataset.dims else np.array([np.nan]) for name in self.layout]
        columns, rows = (spread_over(range(size), 5) for size in shape[:2])
        # The width is that of the ticks, or of a title.
        cell = max(0.3 * shape[3], 1.8), max(0.27 * shape[2] + 0.45, 0.9)
        self.add_panels(len(rows), len(columns), cell, (2.6, 1.6), 3.4)
        self.places = list(
            zip(self.panels.flat, ((which, size) for size, which in product(rows, columns)), strict=True)
        )
        for axes, (which, size) in self.places:
            is_first, is_top, is_last = which == columns[0], size == rows[0], size == rows[-1]
            axes.set_facecolor("0.85")
            axes.set_xticks(range(shape[3]), [canvas.in_words(value) for value in labels[3]], fontsize=8)
            axes.set_yticks(range(shape[2]), [canvas.in_words(value, " ") for value in labels[2]], fontsize=8)
            axes.tick_params(length=0, labelbottom=is_last, labelleft=is_first)
            if is_top:
                axes.set_title(style.panel_title(dataset, self.layout[0], labels[0][which]), fontsize=10)
            if is_first:
                known = "num_categories" in dataset.dims
                words = f"{style.words_for('num_categories', labels[1][size])}\n" if known else ""
                axes.set_ylabel(f"{words}{style.AXES['num_users']}", fontsize=9)
            if is_last:
                axes.set_xlabel(style.AXES["epsilon"], fontsize=9)
        left = style.shares_drawn((len(columns), shape[0], "populations"), (len(rows), shape[1], "K"))
        self.left_out = f"\ndrawn: {' and '.join(left)}; counted are all, and the dataset has them all" if left else ""

    def _compare(self, metric: str) -> None:
        """Compares all pairs: −1 where the first is better, 0 in a tie."""
        mean, names = np.where(self.known, self.mean, 0), self.dataset["estimator"].values
        difference, error = mean[:, None] - mean, 0.0
        apart = np.abs(difference) > rounding(self.dataset, metric, mean)
        self.tie = "equal up to rounding"
        if {f"{metric}_difference", f"{metric}_difference_se"} <= set(self.dataset):
            self.tie = f"within 2 standard errors, or {self.tie}"
            paired = self.dataset.sel(versus=names)
            difference = self._values(paired[f"{metric}_difference"], "estimator", "versus")
            error = self._values(paired[f"{metric}_difference_se"], "estimator", "versus")
        with np.errstate(invalid="ignore"):
            self.signs = np.where(apart & (np.abs(difference) > 2 * error), np.sign(difference), 0)

    def _values(self, array: xr.DataArray, *first: str) -> np.ndarray:
        missing = [name for name in self.layout if name not in array.dims]
        whole = array.drop_vars(missing, errors="ignore").expand_dims(missing)
        return np.asarray(whole.transpose(*first, *self.layout).values, float)
