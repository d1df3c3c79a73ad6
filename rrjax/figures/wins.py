"""Maps of a grid: the wins of an estimator, and the estimator with the smallest error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rrjax.data.errors import ArgumentError, number
from rrjax.figures import style
from rrjax.figures.axes import in_words, new_figure, no_axes, set_heading
from rrjax.figures.panels import legend_below
from rrjax.figures.selection import population_of, prepared, rounding, spread_over

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@no_axes
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
    maps = _Maps.of(dataset)
    ratio, sign, known, tested = _compared(dataset, metric, estimator, names, maps.kept)
    ratio, sign, known = (values.reshape(maps.shape) for values in (ratio, sign, known))
    largest = float(np.clip(np.abs(ratio[known]).max(initial=0), 0.1, 3))
    colours = LinearSegmentedColormap.from_list("wins", [style.BLUE, "#ffffff", style.RED])
    bold: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 9, "fontweight": "bold"}
    image = None
    for axes, place in maps.panels():
        shown, marked = known[place], sign[place]
        cell = np.ma.masked_array(ratio[place], ~shown)
        image = axes.imshow(cell, cmap=colours, norm=Normalize(-largest, largest), origin="lower", aspect="auto")
        for down, across in np.argwhere(shown & (marked != 0)):
            colour = "white" if abs(cell[down, across]) > 0.55 * largest else "black"
            axes.text(across, down, "+" if marked[down, across] > 0 else "−", color=colour, **bold)
    title = style.shortened(style.estimator_title(estimator))
    assert image is not None
    clipped = known.any() and np.abs(ratio[known]).max() > largest
    bar = maps.figure.colorbar(image, ax=maps.axes, extend="both" if clipped else "neither", fraction=0.04, pad=0.02)
    what = f"{style.short_label(metric)} of {title}"
    bar.set_label(f"log$_2$ of {what}\nover that of the best other estimator", fontsize=9)
    won, lost = int((known & (sign < 0)).sum()), int((known & (sign > 0)).sum())
    heading = f"{title} against the best other estimator: {number(won, 'win', 'wins')} and "
    heading += f"{number(lost, 'loss', 'losses')} in {number(int(known.sum()), 'configuration', 'configurations')}"
    set_heading(maps.figure, heading)
    tie = "within 2 standard errors, or equal up to rounding" if tested else "equal up to rounding"
    legend_below(maps.figure, [], f"−: {title} wins; +: it loses; no sign: {tie}{maps.left_out}")
    return maps.figure


@no_axes
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

    dataset = prepared(dataset, [metric])
    names = [str(name) for name in dataset["estimator"].values]
    maps = _Maps.of(dataset)
    mean = _values(dataset[metric], "estimator", maps.kept)
    best = np.where(np.isfinite(mean), mean, np.inf).argmin(axis=0).reshape(maps.shape)
    known = np.asarray(np.isfinite(mean).any(axis=0)).reshape(maps.shape)
    # The best must differ from every other one: the second best may have a smaller standard error than the third.
    pairs = [[name, other] for name in names for other in names if name != other]
    signs = {tuple(pair): _compared(dataset.sel(estimator=pair), metric, pair[0], pair, maps.kept) for pair in pairs}
    tested = all(compared[3] for compared in signs.values())
    clear = np.zeros(maps.shape, bool)
    for index, name in enumerate(names):
        beaten = [(compared[1] < 0) | ~compared[2] for (one, _), compared in signs.items() if one == name]
        clear |= (best == index) & np.all(beaten, axis=0).reshape(maps.shape)
    styles = style.styles_of(names)
    for axes, place in maps.panels():
        cells = np.full((*known[place].shape, 3), 0.85)
        for index, name in enumerate(names):
            colour = np.array(to_rgb(styles[name].colour))
            here = known[place] & (best[place] == index)
            cells[here & clear[place]] = colour
            cells[here & ~clear[place]] = 0.35 * colour + 0.65
            down, across = np.nonzero(here)
            ink = np.where(clear[place][here], 1.0, 0.0)[:, None].repeat(3, axis=1)
            axes.scatter(across, down, marker=styles[name].marker, s=14, c=ink, linewidths=1)
        axes.imshow(cells, origin="lower", aspect="auto")
    won = {name: int((known & (best == names.index(name))).sum()) for name in styles}
    titles = [f"{style.shortened(style.estimator_title(name))}: {number}" for name, number in won.items()]
    handles = [_handle(entry) for entry in styles.values()]
    columns = min(len(handles), 4)
    tie = "within 2 standard errors, or equal up to rounding" if tested else "equal up to rounding"
    look: dict[str, Any] = {"ncols": columns, "frameon": False, "fontsize": 9, "title_fontsize": 8}
    note = f"pale: another one is {tie}{maps.left_out}"
    maps.figure.legend(handles, titles, loc="outside lower center", title=note, **look)
    number_of_all = number(int(known.sum()), "configuration", "configurations")
    set_heading(maps.figure, f"Smallest {style.short_label(metric)} in {number_of_all}, by estimator")
    return maps.figure


def _handle(entry: style.Style) -> Any:
    from matplotlib.lines import Line2D

    cell: dict[str, Any] = {"marker": "s", "markersize": 11, "color": entry.colour, "linestyle": ""}
    marker: dict[str, Any] = {"marker": entry.marker, "markersize": 4, "color": "white", "linestyle": ""}
    return Line2D([], [], **cell), Line2D([], [], **marker)


class _Maps(NamedTuple):
    """A figure of maps, N over ε: a column for each population, a row for each K."""

    figure: Figure
    axes: np.ndarray
    """The panels, `[rows, columns]`."""
    kept: list[str]
    """The dimensions among population, K, N and ε that the dataset has."""
    shape: list[int]
    """The shape of an array over population, K, N and ε."""
    places: list[tuple[int, int]]
    """Indices of the population and the K of each panel."""
    left_out: str
    """Populations and K that are not drawn, in words."""

    @classmethod
    def of(cls, dataset: xr.Dataset) -> _Maps:
        """The figure, with all texts around the panels."""
        if dataset.sizes["estimator"] < 2:
            alone = dataset["estimator"].values[0]
            raise ArgumentError(f"{alone} is the only estimator: there is no other to compare with", argument="dataset")
        population = population_of(dataset)
        layout = (population, "num_categories", "num_users", "epsilon")
        kept = [name for name in layout if name in dataset.dims]
        labels = [dataset[name].values if name in kept else np.array([np.nan]) for name in layout]
        shape = [len(values) for values in labels]
        columns, rows = (spread_over(np.arange(size), 5) for size in shape[:2])
        width = max(0.3 * shape[3], 1.8)  # that of the ticks, or of a title
        figure = new_figure(max(width * len(columns) + 2.6, 6), max(0.27 * shape[2] + 0.45, 0.9) * len(rows) + 1.6)
        panels = figure.subplots(len(rows), len(columns), squeeze=False)
        for row, size in enumerate(rows):
            for column, which in enumerate(columns):
                axes = panels[row, column]
                axes.set_facecolor("0.85")
                axes.set_xticks(range(shape[3]), [in_words(value) for value in labels[3]], fontsize=8)
                axes.set_yticks(range(shape[2]), [in_words(value, " ") for value in labels[2]], fontsize=8)
                axes.tick_params(length=0, labelbottom=row == len(rows) - 1, labelleft=column == 0)
                if row == 0:
                    axes.set_title(style.panel_title(dataset, population, labels[0][which]), fontsize=10)
            words = f"{style.words_for('num_categories', labels[1][size])}\n" if "num_categories" in kept else ""
            panels[row, 0].set_ylabel(f"{words}{style.AXES['num_users']}", fontsize=9)
        for axes in panels[-1]:
            axes.set_xlabel(style.AXES["epsilon"], fontsize=9)
        left = style.shares_drawn((len(columns), shape[0], "populations"), (len(rows), shape[1], "K"))
        note = f"\ndrawn: {' and '.join(left)}; counted are all, and the dataset has them all" if left else ""
        places = [(int(which), int(size)) for size in rows for which in columns]
        return cls(figure, panels, kept, shape, places, note)

    def panels(self) -> Iterator[tuple[Axes, tuple[int, int]]]:
        """Each panel, and the index of its map in an array."""
        return zip(self.axes.flat, self.places, strict=True)


def _compared(
    dataset: xr.Dataset, metric: str, estimator: str, names: list[str], kept: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """log₂ of the ratio to the best of the others, its sign (or 0), a mask of known ones, whether signs were tested."""
    mean = _values(dataset[metric], "estimator", kept)
    mine = mean[names.index(estimator)]
    others = np.where(np.isfinite(mean), mean, np.inf)
    others[names.index(estimator)] = np.inf
    best, rival = others.argmin(axis=0), others.min(axis=0)
    known = np.isfinite(rival) & np.isfinite(mine) & (rival > 0) & (mine > 0)
    ratio = np.log2(np.where(known, mine, 1) / np.where(known, rival, 1))
    pair = [f"{metric}_difference", f"{metric}_difference_se"]
    # If unknown, infinity less infinity would be NaN.
    apart = known & (np.abs(np.where(known, mine, 0) - np.where(known, rival, 0)) > rounding(dataset, metric, rival))
    if any(name not in dataset for name in pair):
        return ratio, np.where(apart, np.sign(ratio), 0), known, False
    against = (_values(dataset[name].sel(estimator=estimator, versus=names), "versus", kept) for name in pair)
    difference, error = (np.take_along_axis(each, best[None], axis=0)[0] for each in against)
    with np.errstate(invalid="ignore"):
        return ratio, np.where(apart & (np.abs(difference) > 2 * error), np.sign(difference), 0), known, True


def _values(array: xr.DataArray, along: str, kept: list[str]) -> np.ndarray:
    return np.asarray(array.transpose(along, *kept).values, float)
