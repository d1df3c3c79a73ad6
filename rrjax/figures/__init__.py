"""Figures. Needs matplotlib (`pip install 'rrjax[plots]'`); returns figures, shows nothing.

Those of a study (the paper's Figs. 1–10, and others) take its `xarray.Dataset`, with the dimensions estimator,
num_categories, num_users, epsilon and zipf (or distribution, with names), in any order and of any length, and leave it
as it is; of several mechanisms they draw one, `result.sel(mechanism=…)`. Bands are ±2 standard errors of the mean over
the seeds. What is NaN or infinite is left out.

An estimator has one colour, dash and marker in all figures, told apart in grey as well: those of `rrjax.catalogue`, or,
where it is not there, those of its place among the others.
"""

from rrjax.figures.curves import against_epsilon, against_users, by_categories, decomposition
from rrjax.figures.estimates import estimate_figure, forest_figure
from rrjax.figures.files import save
from rrjax.figures.inference import likelihood_figure, plan_figure, profile_figure
from rrjax.figures.iterations import convergence
from rrjax.figures.overview import overview
from rrjax.figures.wins import closest, wins

__all__ = [
    "against_epsilon",
    "against_users",
    "by_categories",
    "closest",
    "convergence",
    "decomposition",
    "estimate_figure",
    "forest_figure",
    "likelihood_figure",
    "overview",
    "plan_figure",
    "profile_figure",
    "save",
    "wins",
]
