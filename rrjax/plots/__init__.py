"""Figures. Needs matplotlib (`pip install 'rrjax[plots]'`); returns figures, shows nothing."""

from rrjax.plots.estimates import estimate_figure, shortened
from rrjax.plots.likelihood import likelihood_figure, profile_figure
from rrjax.plots.planning import plan_figure, two_category_figure

__all__ = [
    "estimate_figure",
    "likelihood_figure",
    "plan_figure",
    "profile_figure",
    "shortened",
    "two_category_figure",
]
