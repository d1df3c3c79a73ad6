"""Figures of a study: the paper's Figs. 1–10, and others. Needs matplotlib (`pip install 'rrjax[plots]'`).

Every function takes the `xarray.Dataset` of a study, with the dimensions estimator, num_categories, num_users, epsilon
and zipf (or distribution, with names), in any order and of any length, and returns a `matplotlib.figure.Figure`; none
shows or changes anything. An estimator has one colour, dash and marker in all of them, told apart in grey as well.
Bands are ±2 standard errors of the mean over the seeds. What is NaN or infinite is left out.
"""

from rrjax.study.figures.comparisons import by_categories, cv_wins, overview
from rrjax.study.figures.curves import against_epsilon, against_users, decomposition, real_data
from rrjax.study.figures.files import save
from rrjax.study.figures.iterations import convergence
from rrjax.study.figures.selection import measured
from rrjax.study.figures.styles import METRICS, TITLES, estimator_title

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
