"""Figures. They need matplotlib (the extra `plots`), and are returned, not shown.

Figures of a study (the paper's Figs. 1–10, and others) take its `xarray.Dataset`, with the dimensions estimator,
num_categories, num_users, epsilon and zipf (or distribution, with names), in any order and of any length, and do not
change it. With several mechanisms, select one: `result.sel(mechanism=…)`. Bands are ±2 standard errors of the mean over
the seeds. NaN and infinite values are omitted.

An estimator has one colour, dash and marker in all figures, different in grey as well: those of `rrjax.catalogue`, or,
for other estimators, those of its place among them. So has a mechanism (`rrjax.figures.style.mechanism_line`).

A figure of one panel takes `ax`, axes to draw into, and returns their figure; a figure of several panels refuses it.
"""

from rrjax.figures.association import association_figure, joint_figure, tree_figure
from rrjax.figures.curves import against_epsilon, against_users, by_categories, convergence, decomposition, overview
from rrjax.figures.estimates import cdf_figure, distributions_figure, estimate_figure, forest_figure
from rrjax.figures.files import save
from rrjax.figures.inference import likelihood_figure, plan_figure, profile_figure, splits_figure
from rrjax.figures.wins import closest, wins

__all__ = [
    "against_epsilon",
    "against_users",
    "association_figure",
    "by_categories",
    "cdf_figure",
    "closest",
    "convergence",
    "decomposition",
    "distributions_figure",
    "estimate_figure",
    "forest_figure",
    "joint_figure",
    "likelihood_figure",
    "overview",
    "plan_figure",
    "profile_figure",
    "save",
    "splits_figure",
    "tree_figure",
    "wins",
]
