"""What is drawn of a study's dataset, and what a report says of each figure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rrjax import figures
from rrjax.estimators.catalogue import METRICS
from rrjax.figures.overview import left_over
from rrjax.figures.selection import measured, spread_over
from rrjax.figures.style import SYMBOLS, estimator_title, words_for
from rrjax.study.paper import BY_CATEGORIES, CONVERGENCE, EPSILON, FIGURES, SHOWN_EPSILONS, K, N

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

_MOST = 6
"""Figures of one metric."""
_PLURALS = {
    "num_categories": "numbers of categories",
    "num_users": "numbers of users",
    "epsilon": "values of ε",
    "zipf": "Zipf exponents",
    "distribution": "populations",
}
_ADAPTING = {"cv_threshold": "the cross-validated threshold", "empirical_bayes": "empirical Bayes"}
_BANDS = "Means over the seeds; bands are two standard errors."


class Drawing(NamedTuple):
    """A figure to be drawn, here or in another process, and what a report says of it."""

    name: str
    """Of its file, without suffix."""
    title: str
    caption: str
    draw: Callable[[], Figure]
    """Picklable, for other processes."""
    number: float = float("inf")
    """Of the paper's figure; infinite where it has none."""


def of_paper(dataset: xr.Dataset, wanted: Iterable[int] = FIGURES) -> list[Drawing]:
    """The paper's figures that are drawn from the grid, and bias and variance, as far as the dataset goes.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study import drawings
        >>> [drawing.name for drawing in drawings.of_paper(xr.Dataset(), [1, 9])]
        ['figure-1', 'figure-9']
    """
    wanted = set(wanted)
    against_users = f"against the number of users (K = {K:,}, ε = {EPSILON:g})"
    against_epsilon = f"against ε (K = {K:,}, N = {N:,})"
    both = f"Mean squared error and negative log-likelihood by Zipf exponent. {_BANDS}"
    found = [
        Drawing(
            "figure-1",
            f"Figure 1: {against_users}",
            both,
            partial(figures.against_users, dataset, num_categories=K, epsilon=EPSILON),
            1,
        ),
        Drawing(
            "figure-2",
            f"Figure 2: {against_epsilon}",
            both,
            partial(figures.against_epsilon, dataset, num_categories=K, num_users=N),
            2,
        ),
    ]
    for number, (exponent, metric) in BY_CATEGORIES.items():
        draw = partial(figures.by_categories, dataset, metric, zipf=exponent, epsilons=SHOWN_EPSILONS)
        what = METRICS[metric].label.split("\n")[0].rstrip(",")
        caption = f"The true histogram on the left, then the metric against the number of users for four ε. {_BANDS}"
        title = f"Figure {number}: {what}, Zipf exponent {exponent:g}"
        found.append(Drawing(f"figure-{number}", title, caption, draw, number))
    found = [drawing for drawing in found if drawing.number in wanted]
    cuts: list[tuple[str, str, dict[str, Any]]] = [
        ("users", against_users, {"epsilon": EPSILON}),
        ("epsilon", against_epsilon, {"num_users": N}),
    ]
    for name, words, at in cuts if wanted >= {1, 2} else ():
        caption = (
            "Their sum is the mean squared error. With n seeds, an unbiased estimator shows a squared bias of "
            "about a share 1/n of its variance."
        )
        found.append(
            Drawing(
                f"decomposition-{name}",
                f"Bias and variance {words}",
                caption,
                partial(figures.decomposition, dataset, num_categories=K, **at),
            )
        )
    return found


def of_study(dataset: xr.Dataset) -> list[Drawing]:
    """An overview for every metric, which estimator is closest where, and where those that adapt win.

    Where a figure has no room for a dimension, there is one for each of its values (of many, for six). Every mechanism
    has its own.

    Example:
        >>> from rrjax.study import Study, drawings
        >>> grid = {"num_categories": 20, "num_users": [100, 1000], "epsilon": [1.0, 2.0], "zipf": 1.3}
        >>> result = Study(estimators=["mle_star", "inv_n"], **grid, num_seeds=2).run()
        >>> [drawing.title for drawing in drawings.of_study(result)]
        ['Overview: MSE', 'Overview: NLL', 'Which estimator is closest where']
    """
    if dataset.sizes.get("mechanism", 1) > 1:
        labels = [str(label) for label in dataset["mechanism"].values]
        of_each = [(label, of_study(dataset.sel(mechanism=label))) for label in labels]
        slugs = [_slug(place, label) for place, label in enumerate(labels, 1)]
        return [
            drawing._replace(name=f"{slug}-{drawing.name}", title=f"{label}: {drawing.title}")
            for slug, (label, drawings) in zip(slugs, of_each, strict=True)
            for drawing in drawings
        ]
    found = []
    for metric in measured(dataset):
        found += _overviews(dataset, metric, METRICS[metric].short if metric in METRICS else metric)
    return found + _maps(dataset)


def _maps(dataset: xr.Dataset) -> list[Drawing]:
    """Which estimator is closest where, and where those that adapt win."""
    if dataset.sizes["estimator"] < 2 or "mse" not in dataset:
        return []
    found = [
        Drawing(
            "closest",
            "Which estimator is closest where",
            "The one with the smallest mean squared error.",
            partial(figures.closest, dataset),
        )
    ]
    return found + [
        Drawing(
            name.replace("_", "-"),
            f"Where {_ADAPTING[name]} wins",
            "Its mean squared error relative to that of the best of the other estimators.",
            partial(figures.wins, dataset, estimator=name),
        )
        for name in _ADAPTING
        if name in dataset["estimator"].values
    ]


def _overviews(dataset: xr.Dataset, metric: str, short: str) -> list[Drawing]:
    """One for every value of what has no room in a figure."""
    name, title = f"overview-{metric}", f"Overview: {short}"
    left = left_over(dataset)
    if left is None:
        return [Drawing(name, title, _BANDS, partial(figures.overview, dataset, metric))]
    values = dataset[left].values
    drawn = spread_over(values, _MOST)
    each = f"One figure for each of {len(values):,} {_PLURALS[left]}"
    if len(drawn) < len(values):
        each = f"One figure for each of {len(drawn)} of {len(values):,} {_PLURALS[left]}; the dataset has all"
    return [
        Drawing(
            f"{name}-{slug}",
            f"{title}, {words_for(left, value)}",
            f"{_BANDS} {each}.",
            partial(figures.overview, dataset, metric, **{left: value}),
        )
        for value, slug in zip(drawn, _slugs(left, drawn), strict=True)
    ]


def _slugs(dimension: str, values: Iterable[Any]) -> list[str]:
    """What tells the files of values apart. In a label there may be anything; a dot would begin a suffix."""
    if dimension != "distribution":
        symbol = "epsilon" if dimension == "epsilon" else SYMBOLS[dimension]
        return [f"{symbol}-{value:.15g}" for value in values]
    return [_slug(place, value) for place, value in enumerate(values, 1)]


def _slug(place: int, label: Any) -> str:
    return f"{place}-{re.sub(r'[^a-zA-Z0-9]+', '-', str(label))[:40]}".strip("-")


def of_users(
    dataset: xr.Dataset,
    label: str,
    counts: np.ndarray,
    name: str,
    number: int | None = None,
    *,
    labels: np.ndarray | None = None,
) -> list[Drawing]:
    """A data set whose users are given: its histogram, and the mean squared error by ε (the paper's Figure 3).

    Example:
        >>> import numpy as np, xarray as xr
        >>> from rrjax.study import drawings
        >>> drawings.of_users(xr.Dataset(), "Page visits", np.array([50, 30, 20]), "visits")[0].title
        'Page visits, N = 100, K = 3'
    """
    counts = np.asarray(counts)
    return [
        Drawing(
            f"figure-{number}-{name}" if number else f"data-{name}",
            f"{f'Figure {number}: ' if number else ''}{label}, N = {int(counts.sum()):,}, K = {len(counts):,}",
            "The true histogram, and the mean squared error by ε; the users are given, and only their randomization "
            "is random. Bands are two standard errors.",
            partial(_draw_users, dataset, label, counts, labels),
            number or float("inf"),
        )
    ]


def _draw_users(dataset: xr.Dataset, label: str, counts: np.ndarray, labels: np.ndarray | None) -> Figure:
    here = dataset.sel(distribution=[label], num_categories=len(counts))
    named = None if labels is None else {label: labels}
    return figures.real_data(here, {label: counts / counts.sum()}, labels=named)


def of_em(dataset: xr.Dataset) -> list[Drawing]:
    """EM on its way to the exact maximum (the paper's Figure 4).

    Example:
        >>> import xarray as xr
        >>> from rrjax.study import drawings
        >>> drawings.of_em(xr.Dataset(attrs={"num_categories": 500}))[0].title
        'Figure 4: EM on its way to MLE* (K = 500)'
    """
    exact = estimator_title("mle_star")
    return [
        Drawing(
            f"figure-{CONVERGENCE}",
            f"Figure {CONVERGENCE}: EM on its way to {exact} (K = {dataset.attrs['num_categories']})",
            "Squared distance of the iterates to the exact maximum, one simulated collection a panel and ε. "
            "The paper follows IBU alone; deflated EM and its acceleration are ours.",
            partial(figures.convergence, dataset),
            CONVERGENCE,
        )
    ]


def ordered(drawings: Iterable[Drawing]) -> list[Drawing]:
    """The paper's figures by their numbers, then the others as they come.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study import drawings
        >>> em = drawings.of_em(xr.Dataset(attrs={"num_categories": 500}))
        >>> [drawing.name for drawing in drawings.ordered([*drawings.of_paper(xr.Dataset(), [1, 9]), *em])]
        ['figure-1', 'figure-4', 'figure-9']
    """
    return sorted(drawings, key=lambda drawing: drawing.number)
