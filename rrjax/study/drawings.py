"""Figures of a study's dataset with their captions, drawn in several processes."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context, parent_process
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rrjax import figures
from rrjax.estimators.catalogue import METRICS
from rrjax.figures.curves import left_over, real_data
from rrjax.figures.files import as_bytes
from rrjax.figures.selection import measured, spread_over
from rrjax.figures.style import SYMBOLS, estimator_title, words_for
from rrjax.numerics.programs import num_cores
from rrjax.study.paper import BY_CATEGORIES, CONVERGENCE, EPSILON, FIGURES, SHOWN_EPSILONS, K, N

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

_FIGURES_PER_METRIC = 6
_DPI = 130
_DRAWINGS_PER_PROCESS = 3
"""Smallest number of figures for several processes: fewer are drawn before another process has its imports."""
_PLURALS = {
    "num_categories": "numbers of categories",
    "num_users": "numbers of users",
    "epsilon": "values of ε",
    "zipf": "Zipf exponents",
    "distribution": "populations",
}
_ADAPTING = {"empirical_bayes": "empirical Bayes"}
_BANDS = "Means over the seeds; bands are two standard errors."


class Drawing(NamedTuple):
    """A figure of a report, not yet drawn."""

    name: str
    """Name of its file, without suffix."""
    title: str
    caption: str
    draw: Callable[[], Figure]
    """Function that draws it; picklable, for other processes."""
    number: float = float("inf")
    """Number of the paper's figure; infinite for others."""


def of_paper(dataset: xr.Dataset, wanted: Iterable[int] = FIGURES) -> list[Drawing]:
    """The paper's figures of the grid, and bias and variance, as far as the dataset has the values."""
    both = f"Mean squared error and negative log-likelihood by Zipf exponent. {_BANDS}"
    parts = (
        "Their sum is the mean squared error. With n seeds, an unbiased estimator shows a squared bias of about a "
        "share 1/n of its variance."
    )
    cuts: list[tuple[str, str, Callable[..., Figure], dict[str, Any]]] = [
        ("users", f"the number of users (K = {K:,}, ε = {EPSILON:g})", figures.against_users, {"epsilon": EPSILON}),
        ("epsilon", f"ε (K = {K:,}, N = {N:,})", figures.against_epsilon, {"num_users": N}),
    ]
    drawings, parted = [], []
    for number, (name, x, draw, at) in enumerate(cuts, 1):
        given = {"num_categories": K, **at}
        title = f"Figure {number}: against {x}"
        drawings.append(Drawing(f"figure-{number}", title, both, partial(draw, dataset, **given), number))
        draw, title = partial(figures.decomposition, dataset, **given), f"Bias and variance against {x}"
        parted.append(Drawing(f"decomposition-{name}", title, parts, draw))
    for number, (exponent, metric) in BY_CATEGORIES.items():
        draw = partial(figures.by_categories, dataset, metric, zipf=exponent, epsilons=SHOWN_EPSILONS)
        what = METRICS[metric].label.split("\n")[0].rstrip(",")
        caption = f"The true histogram on the left, then the metric against the number of users for four ε. {_BANDS}"
        title = f"Figure {number}: {what}, Zipf exponent {exponent:g}"
        drawings.append(Drawing(f"figure-{number}", title, caption, draw, number))
    wanted = set(wanted)
    return [drawing for drawing in drawings if drawing.number in wanted] + (parted if wanted >= {1, 2} else [])


def of_study(dataset: xr.Dataset) -> list[Drawing]:
    """Overviews of every metric, and maps of the closest estimator and of the wins of the adaptive estimators.

    There is an overview for each value of a fourth dimension (at most six), and all figures for each mechanism.
    """
    if dataset.sizes.get("mechanism", 1) > 1:
        return [
            drawing._replace(name=f"{_slug(place, label)}-{drawing.name}", title=f"{label}: {drawing.title}")
            for place, label in enumerate(map(str, dataset["mechanism"].values), 1)
            for drawing in of_study(dataset.sel(mechanism=label))
        ]
    drawings = [drawing for metric in measured(dataset) for drawing in _overviews(dataset, metric)]
    if dataset.sizes["estimator"] < 2 or "mse" not in dataset:
        return drawings
    caption = "The one with the smallest mean squared error."
    drawings.append(Drawing("closest", "Closest estimators", caption, partial(figures.closest, dataset)))
    caption = "Its mean squared error relative to that of the best of the other estimators."
    for name, words in _ADAPTING.items():
        if name in dataset["estimator"].values:
            draw = partial(figures.wins, dataset, estimator=name)
            drawings.append(Drawing(name.replace("_", "-"), f"Wins and losses of {words}", caption, draw))
    return drawings


def _overviews(dataset: xr.Dataset, metric: str) -> list[Drawing]:
    """The overviews of a metric: one for every value of a fourth dimension."""
    name, title = f"overview-{metric}", f"Overview: {METRICS[metric].short if metric in METRICS else metric}"
    left, draw = left_over(dataset), partial(figures.overview, dataset, metric)
    if left is None:
        return [Drawing(name, title, _BANDS, draw)]
    values = dataset[left].values
    drawn = spread_over(values, _FIGURES_PER_METRIC)
    each = f"{len(values):,} {_PLURALS[left]}"
    if len(drawn) < len(values):
        each = f"{len(drawn)} of {each}; the dataset has all"
    caption, drawings = f"{_BANDS} One figure for each of {each}.", []
    for place, value in enumerate(drawn, 1):
        symbol = "epsilon" if left == "epsilon" else SYMBOLS.get(left)
        slug = _slug(place, value) if symbol is None else f"{symbol}-{value:.15g}"
        heading = f"{title}, {words_for(left, value)}"
        drawings.append(Drawing(f"{name}-{slug}", heading, caption, partial(draw, **{left: value})))
    return drawings


def _slug(place: int, label: Any) -> str:
    """The part of a file's name for a label, which may have any character; a dot would begin a suffix."""
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
    """The figure of a data set whose users are given: its histogram, and the mean squared error by ε (Figure 3)."""
    counts = np.asarray(counts)
    title = f"{label}, N = {int(counts.sum()):,}, K = {len(counts):,}"
    caption = (
        "The true histogram, and the mean squared error by ε; the users are given, and only their randomization is "
        "random. Bands are two standard errors."
    )
    draw = partial(_draw_users, dataset, label, counts, labels)
    if number is None:
        return [Drawing(f"data-{name}", title, caption, draw)]
    return [Drawing(f"figure-{number}-{name}", f"Figure {number}: {title}", caption, draw, number)]


def _draw_users(dataset: xr.Dataset, label: str, counts: np.ndarray, labels: np.ndarray | None) -> Figure:
    here = dataset.sel(distribution=[label], num_categories=len(counts))
    return real_data(here, {label: counts / counts.sum()}, labels=None if labels is None else {label: labels})


def of_em(dataset: xr.Dataset) -> list[Drawing]:
    """The figure of EM's convergence to the exact maximum (Figure 4)."""
    size, exact = dataset.attrs["num_categories"], estimator_title("mle_star")
    title = f"Figure {CONVERGENCE}: Convergence of EM to {exact} (K = {size})"
    caption = (
        "Squared distance of the iterates to the exact maximum, one simulated collection a panel and ε. The paper "
        "follows IBU alone; deflated EM and its acceleration are ours."
    )
    return [Drawing(f"figure-{CONVERGENCE}", title, caption, partial(figures.convergence, dataset), CONVERGENCE)]


def ordered(drawings: Iterable[Drawing]) -> list[Drawing]:
    """The paper's figures by their numbers, then the others in their order."""
    return sorted(drawings, key=lambda drawing: drawing.number)


class Picture(NamedTuple):
    """A figure as bytes of files."""

    files: dict[str, bytes]
    """Suffix → contents; always with "png"."""
    words: list[str]
    """The texts of the figure, for readers who cannot see it."""
    warnings: list[tuple[str, type[Warning]]]
    """Warnings of its drawing."""


def picture_of(draw: Callable[[], Figure], *suffixes: str, dpi: float = 150) -> Picture:
    """A drawn figure as PNG, and in other formats of the same layout."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        figure = draw()
        files = dict(zip(("png", *suffixes), as_bytes(figure, "png", *suffixes, dpi=dpi), strict=True))
    return Picture(files, _texts(figure), [(str(warning.message), warning.category) for warning in caught])


def pictures(
    drawings: Sequence[Drawing], begun: Callable[[int, Drawing], None] | None = None, processes: int | None = None
) -> Generator[Picture]:
    """The figures as PNG and PDF, drawn in this process and others; the bytes do not depend on the process.

    The other processes draw from the first on, this one from the last, and also all that they fail to draw. `begun` is
    called with a number, from one on, and the drawing.
    """
    if processes is None:
        processes = min(num_cores(), len(drawings) // _DRAWINGS_PER_PROCESS) - 1
    # Spawned, since a fork of a process in which JAX runs may hang.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _end_with_parent) if processes > 0 else None
    left, own = deque(range(len(drawings))), dict[int, Picture]()
    futures: dict[int, Future[Picture]] = {}

    def share() -> None:
        while pool and left and sum(not future.done() for future in futures.values()) < 2 * processes:
            try:
                futures[left[0]] = _submit(pool, drawings[left[0]])
            except (OSError, BrokenExecutor):  # no process can be started
                return
            left.popleft()

    try:
        for place, drawing in enumerate(drawings):
            while place not in own and not (place in futures and futures[place].done()):
                share()
                if not left:
                    break
                mine = left.pop() if futures else left.popleft()
                if begun is not None:
                    begun(place + len(own) + 1, drawings[mine])
                own[mine] = _draw(drawings[mine])
            if place not in own:
                try:
                    own[place] = futures[place].result()
                except Exception:  # an error of the drawing itself occurs here too
                    own[place] = _draw(drawing)
            for message, category in own[place].warnings:
                warnings.warn(message, category, stacklevel=2)
            yield own.pop(place)
    finally:
        if pool:
            pool.shutdown(cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, drawing: Drawing) -> Future[Picture]:
    """Submits a drawing to another process; a process started for it ignores Ctrl-C and the main script."""
    main = vars(sys.modules["__main__"])
    names = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    try:
        # By these two names a spawned process would import the user's script, which may run the study again.
        main.pop("__file__", None)
        main["__spec__"] = None
        return pool.submit(_draw, drawing)
    finally:
        main.update(names)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end_with_parent() -> None:
    """Ends this process when its parent is killed."""

    def wait() -> None:
        parent = parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _draw(drawing: Drawing) -> Picture:
    # Without garbage collection, which takes a sixth of the time: a figure's many artists are in use until the end.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return picture_of(drawing.draw, "pdf", dpi=_DPI)
    finally:
        if collecting:
            gc.enable()


def _texts(figure: Figure) -> list[str]:
    def listed(texts: Iterable[str]) -> str:
        # Formulas are removed; an escaped dollar is kept.
        plain = (re.sub(r"(?<!\\)\$[^$]*\\[^$]*\$", "", str(text or "")) for text in texts)
        cleaned = (" ".join(text.replace("\\$", "\0").replace("$", "").replace("\0", "$").split()) for text in plain)
        return "; ".join(dict.fromkeys(text for text in cleaned if text))

    parts = {
        "panels": listed(axes.get_title() for axes in figure.axes),
        "horizontal": listed(axes.get_xlabel() for axes in figure.axes),
        "vertical": listed(axes.get_ylabel() for axes in figure.axes),
        "curves": listed(text.get_text() for legend in figure.legends for text in legend.get_texts()),
    }
    return [f"{name.capitalize()}: {text}" for name, text in parts.items() if text]
