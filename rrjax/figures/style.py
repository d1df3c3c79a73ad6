"""Colours, dashes and words of all figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.estimators.catalogue import ESTIMATORS, METRICS, Style

if TYPE_CHECKING:
    import xarray as xr

BLUE, RED, PALE_BLUE = "#1b4f8a", "#c4572f", "#dde8f5"
COLOURS = (BLUE, RED, "#4a8f5b", "#8a5a9e", "#7a6a2f", "#444444", "#2a9aa8", "#c23b6e")
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 2, 2, 2)), (0, (3, 1)))
SPARE_STYLES = (
    Style("#000000", (0, (1, 1)), "*", 6),
    Style("#c23b6e", (0, (3, 1, 1, 1)), "P", 5),
    Style("#2a9aa8", (0, (6, 1, 2, 1)), "<", 5),
    Style("#9c6b3c", (0, (4, 2)), ">", 5),
)
"""Styles of estimators that are not in the catalogue, in their order."""
SYMBOLS = {"num_users": "N", "epsilon": "ε", "num_categories": "K", "zipf": "s"}
AXES = {
    "num_categories": "categories K",
    "num_users": "users N",
    "epsilon": "privacy ε (nats)",
    "zipf": "Zipf exponent s",
}


def styles_of(names: Iterable[object]) -> dict[str, Style]:
    """Name → style, in drawing order: the estimators of the catalogue, then others, styled by their place."""
    given = [str(name) for name in names]
    others = [name for name in given if name not in ESTIMATORS]
    styles = {name: entry.style for name, entry in ESTIMATORS.items() if name in given}
    number = len(SPARE_STYLES)
    for place, name in enumerate(others):
        marker = SPARE_STYLES[(place + place // number) % number].marker
        styles[name] = SPARE_STYLES[place % number]._replace(marker=marker)
    return styles


def line_of(style: Style) -> dict[str, Any]:
    """A style as keywords of matplotlib's `plot`."""
    face = style.colour if style.filled else "none"
    marker = {"marker": style.marker, "markersize": style.size, "markerfacecolor": face, "markeredgewidth": 1.2}
    return {"color": style.colour, "linestyle": style.dash, "linewidth": 1.5, **marker}


def line_at(place: int) -> dict[str, Any]:
    """Colour and dash of the n-th curve; 64 are different."""
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": DASHES[(place + place // len(COLOURS)) % len(DASHES)]}


def mechanism_line(name: str) -> dict[str, Any]:
    """Colour, dash and marker of a mechanism of K and ε, the same in all figures."""
    from rrjax.mechanisms import MECHANISMS

    place = list(MECHANISMS).index(name.replace(" ", "-"))
    return line_at(place) | {"marker": "osD^vP*X"[place % 8], "markersize": 5}


def shortened(label: object, width: int = 24) -> str:
    """A label for figures: printable, escaped, and at most `width` characters."""
    # Variation selectors are invisible.
    plain = (c for c in str(label) if not "\ufe00" <= c <= "\ufe0f")
    text = "".join(c if c.isprintable() else "?" for c in plain)
    return (text if len(text) <= width else text[: width - 1] + "…").replace("$", r"\$")


def estimator_title(name: object) -> str:
    """The title of an estimator in figures and tables; its name if it is not in the catalogue."""
    known = ESTIMATORS.get(str(name))
    return str(name) if known is None else known.title


def metric_label(metric: str) -> str:
    """The label of a metric at an axis."""
    return METRICS[metric].label if metric in METRICS else shortened(metric)


def metric_title(metric: str) -> str:
    """The label of a metric, on one line."""
    return metric_label(metric).replace("\n", " ")


def short_label(metric: str) -> str:
    """The short name of a metric, for titles."""
    return METRICS[metric].short if metric in METRICS else shortened(metric)


def panel_title(dataset: xr.Dataset, name: str, value: Any) -> str:
    """The title of a panel; for a data set with its K, if each has its own."""
    title = words_for(name, value)
    if name == "distribution" and "num_categories" in dataset.coords:
        size = dataset["num_categories"]
        title += f", K = {size.sel(distribution=value).item():,.0f}" if size.dims == ("distribution",) else ""
    return title


def words_for(name: str, value: Any) -> str:
    """A coordinate and its value, in words."""
    if name == "distribution":
        return shortened(value)
    if name in ("zipf", "epsilon"):
        return f"{'Zipf exponent ' if name == 'zipf' else ''}{SYMBOLS[name]} = {value:g}".replace("inf", "∞")
    return f"{SYMBOLS[name]} = {value:,.0f}"


def listed_words(coordinates: Mapping[str, Any]) -> str:
    """Coordinates and their values, in words."""
    return ", ".join(words_for(name, value) for name, value in coordinates.items())


def seeds_note(dataset: xr.Dataset) -> str:
    """The number of seeds, in words."""
    seeds = dataset.attrs.get("num_seeds")
    return "" if seeds is None else f"{int(seeds):,} seed{'' if seeds == 1 else 's'}"


def shares_drawn(*parts: tuple[int, int, str]) -> list[str]:
    """Words such as "4 of 10 populations" for each (drawn, all, name), if not all are drawn."""
    return [f"{drawn} of {number} {name}" for drawn, number, name in parts if drawn < number]


def listed_values(values: Any) -> str:
    """Values, separated by commas, for a message."""
    shown = [f"{value:g}" if isinstance(value, float | np.floating) else str(value) for value in values]
    return ", ".join(shown[:20]) + (" …" if len(shown) > 20 else "") if shown else "none"
