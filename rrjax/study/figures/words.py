"""Words for coordinates, metrics and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.plots import shortened
from rrjax.study.figures.styles import METRICS, SHORT

if TYPE_CHECKING:
    import xarray as xr


def panel_title(dataset: xr.Dataset, name: str, value: Any) -> str:
    """What a panel shows; a data set with its own K says so."""
    title = words_for(name, value)
    if name == "distribution" and "num_categories" in dataset.coords:
        size = dataset["num_categories"]
        title += f", K = {size.sel(distribution=value).item():,.0f}" if size.dims == ("distribution",) else ""
    return title


def words_for(name: str, value: Any) -> str:
    """A coordinate and its value, in words."""
    if name == "distribution":
        return shortened(value)
    if name == "zipf":
        return f"Zipf exponent s = {value:g}".replace("inf", "∞")
    if name == "epsilon":
        return f"ε = {value:g}".replace("inf", "∞")
    return f"{'K' if name == 'num_categories' else 'N'} = {value:,.0f}"


def metric_label(metric: str) -> str:
    """What an axis calls a metric."""
    return METRICS.get(metric) or shortened(metric)


def short_label(metric: str) -> str:
    """What a title calls a metric."""
    return SHORT.get(metric) or shortened(metric)


def seeds_note(dataset: xr.Dataset) -> str:
    """How many seeds, in words."""
    seeds = dataset.attrs.get("num_seeds")
    return "" if seeds is None else f"; {int(seeds):,} seed{'' if seeds == 1 else 's'}"


def listed_values(values: Any) -> str:
    """Values in a row, for a message."""
    shown = [f"{value:g}" if isinstance(value, float | np.floating) else str(value) for value in values]
    return ", ".join(shown[:20]) + (" …" if len(shown) > 20 else "") if shown else "none"
