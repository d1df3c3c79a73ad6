"""The estimators and the metrics that rrjax knows by name: what the command line, studies, figures and reports share.

To add one is one entry here; its name is the same everywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from rrjax import em, metrics
from rrjax.cross_validation import cv_threshold
from rrjax.estimators import inv, inv_n, inv_p, mle_star
from rrjax.likelihood import nll
from rrjax.ordered import ordered_bayes
from rrjax.shrinkage import empirical_bayes


class Style(NamedTuple):
    """How the curve of an estimator is drawn."""

    colour: str
    dash: Any
    marker: str
    size: float
    filled: bool = False


class Estimator(NamedTuple):
    """An estimator with a name.

    Attributes:
        name: In files, datasets and on the command line.
        function: `f(counts, epsilon) -> theta`, or `f(key, counts, epsilon) -> theta`.
        title: In tables and figures.
        style: In figures.
        note: What a person should know of its estimates, a sentence.
        ordered: Whether it is for categories in order, whose neighbours are alike.
    """

    name: str
    function: Callable[..., Array]
    title: str
    style: Style
    note: str = ""
    ordered: bool = False

    def __call__(self, counts: Any, epsilon: Any, *, key: Array | None = None) -> Array:
        """Runs it, with the key 0 where it needs one and none is given."""
        if not takes_key(self.function):
            return self.function(counts, epsilon)
        return self.function(jax.random.key(0) if key is None else key, counts, epsilon)


class Metric(NamedTuple):
    """A metric with a name; smaller is better.

    Attributes:
        name: In files, datasets and on the command line.
        measure: `f(estimate, truth, counts, epsilon) -> scalar`; None for what needs all seeds of a study at once.
        label: On axes; its mean over collections.
        short: In titles and tables.
        unit: In words.
    """

    name: str
    measure: Callable[..., Array] | None
    label: str
    short: str
    unit: str


def takes_key(estimator: Callable[..., Any]) -> bool:
    """Whether an estimator draws random numbers: its first argument is called `key`.

    Args:
        estimator: A function.

    Returns:
        True or false.

    Example:
        >>> import rrjax
        >>> rrjax.catalogue.takes_key(rrjax.mle_star), rrjax.catalogue.takes_key(rrjax.cv_threshold)
        (False, True)
    """
    try:
        parameters = list(inspect.signature(estimator).parameters)
    except (TypeError, ValueError):
        return False
    return bool(parameters) and parameters[0] == "key"


def _ibu(counts, epsilon):
    return em.ibu(counts, epsilon).theta


def _empirical_bayes(counts, epsilon):
    return empirical_bayes(counts, epsilon).theta


def _ordered_bayes(counts, epsilon):
    return ordered_bayes(counts, epsilon).theta


def _of(measure):
    return lambda estimate, truth, counts, epsilon: measure(estimate, truth)


# In figures large and hollow to small and filled: where estimates coincide, each one still shows.
ESTIMATORS: dict[str, Estimator] = {
    entry.name: entry
    for entry in (
        Estimator("mle_star", mle_star, "MLE*", Style("#1b4f8a", "-", "s", 7.5)),
        Estimator("inv_p", inv_p, "InvP", Style("#d9702b", "--", "o", 5)),
        Estimator("inv_n", inv_n, "InvN", Style("#3d8b57", "-.", "D", 3.2, filled=True)),
        Estimator("inv", inv, "Inv", Style("#808080", ":", "x", 5)),
        Estimator("cv_threshold", cv_threshold, "CV threshold", Style("#8a3f8f", (0, (5, 1, 1, 1, 1, 1)), "^", 5)),
        Estimator(
            "empirical_bayes",
            _empirical_bayes,
            "Emp. Bayes",
            Style("#b3353f", (0, (3, 1)), "p", 4.5, filled=True),
            "Empirical Bayes is made for a small squared error, MLE* for the largest likelihood.",
        ),
        Estimator(
            "ordered_bayes",
            _ordered_bayes,
            "Ordered Bayes",
            Style("#c08a1e", (0, (3, 1, 1, 1)), "h", 4, filled=True),
            "Ordered Bayes takes neighbours to be alike as far as the reports bear it out.",
            ordered=True,
        ),
        Estimator(
            "ibu",
            _ibu,
            "IBU",
            Style("#7a6a2f", (0, (8, 2)), "v", 5),
            "IBU has no exact zeros: small shares are what its last step left.",
        ),
    )
}
"""By name."""

LIKELIEST, CLOSEST, CLOSEST_IN_ORDER = "mle_star", "empirical_bayes", "ordered_bayes"
"""What an estimate leads with, by what is asked for."""

METRICS: dict[str, Metric] = {
    entry.name: entry
    for entry in (
        Metric(
            "mse",
            _of(metrics.squared_error),
            "mean squared error,\nsummed over categories",
            "MSE",
            "squared probability",
        ),
        Metric(
            "nll",
            lambda estimate, truth, counts, epsilon: nll(estimate, counts, epsilon),
            "negative log-likelihood\n(nats per report)",
            "NLL",
            "nats per report",
        ),
        Metric("tv", _of(metrics.total_variation), "total variation", "total variation", "probability"),
        Metric("max_error", _of(metrics.max_error), "largest error of a category", "largest error", "probability"),
        Metric("kl", _of(metrics.kl_divergence), "Kullback–Leibler divergence\n(nats)", "KL divergence", "nats"),
        Metric("bias2", None, "squared bias,\nsummed over categories", "squared bias", "squared probability"),
        Metric("variance", None, "variance,\nsummed over categories", "variance", "squared probability"),
    )
}
"""By name."""
