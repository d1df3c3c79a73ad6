"""Results for programs and files: JSON records, tables, figures."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rrjax import io
from rrjax.cli import show, work
from rrjax.cli.confidence import Confidence
from rrjax.cli.inference_work import Plan


def facts(collection: work.Collection, reading: work.Reading, out: Path | None, plot: Path | None) -> dict:
    """The collection as a JSON object's fields."""
    counted = collection.counted
    return {
        "reports": reading.paths,
        "column": counted.column,
        "num_reports": collection.num_reports,
        "num_missing": counted.num_missing,
        "num_categories": collection.num_categories,
        "domain": counted.domain.describe(),
        "epsilon": collection.epsilon,
        "standard_error": collection.standard_error,
        "warnings": collection.warnings,
        "out": None if out is None else str(out),
        "plot": None if plot is None else str(plot),
    }


def judged(estimate: work.Estimate) -> dict:
    """An estimate and its certificate as a JSON object's fields."""
    return {
        "estimator": estimate.name,
        "num_positive": estimate.num_positive,
        "nll": estimate.nll,
        "certificate": estimate.certificate,
    }


def certain(estimate: work.Estimate, sure: Confidence) -> dict:
    """Levels, and how many categories are there, as a JSON object's fields."""
    return {
        "level": sure.level,
        "at_once": sure.at_once,
        "fdr": sure.fdr,
        "num_found": int(sure.found.sum()),
        "num_outside_interval": int(sure.misses(estimate.theta).sum()),
    }


def top_rows(
    collection: work.Collection,
    estimates: list[work.Estimate],
    top: int,
    truth: np.ndarray | None,
    sure: Confidence | None = None,
) -> list[dict]:
    """The largest categories, a JSON object each."""
    labels, counts = collection.counted.domain.labels(), collection.counted.counts
    rows = []
    for index in show.order(estimates[0].theta)[:top]:
        row = {"label": labels[index], "count": counts[index]}
        if len(estimates) == 1:
            row["estimate"] = estimates[0].theta[index]
        else:
            row |= {estimate.name: estimate.theta[index] for estimate in estimates}
        if sure is not None:
            row |= {"lower": sure.lower[index], "upper": sure.upper[index], "found": bool(sure.found[index])}
        if truth is not None:
            row["truth"] = truth[index]
        rows.append(row)
    return rows


def interval_title(sure: Confidence) -> str:
    """What the intervals are called."""
    return f"{100 * sure.level:.12g} % interval" + (", all at once" if sure.at_once else "")


def write(out: Path, collection: work.Collection, columns: dict[str, np.ndarray]) -> None:
    """Writes all categories: label, count, and the columns given."""
    counted = collection.counted
    io.write_table(out, {"label": counted.domain.labels(), "count": counted.counts} | columns)


def draw(
    plot: Path,
    collection: work.Collection,
    estimates: list[work.Estimate],
    truth: np.ndarray | None,
    sure: Confidence | None = None,
) -> None:
    """Draws the figure of estimates."""
    try:
        from rrjax.plots import estimate_figure

        figure = estimate_figure(
            collection.counted.domain.labels(),
            {work.TITLES[estimate.name]: estimate.theta for estimate in estimates},
            standard_error=collection.standard_error,
            truth=truth,
            limits=None if sure is None else (sure.lower, sure.upper),
            limits_label="" if sure is None else interval_title(sure),
            found=None if sure is None else sure.found,
            title=f"{collection.num_reports:,} reports in column {collection.counted.column}, "
            f"K = {collection.num_categories:,}, ε = {collection.epsilon:.4g}",
        )
    except ImportError as error:
        raise work.UsageError(f"--plot needs {error.name}: pip install 'rrjax[plots]'") from error
    save(figure, plot)


def draw_plan(plot: Path, plan: Plan) -> None:
    """Draws what a collection would know."""
    try:
        from rrjax.plots import plan_figure

        figure = plan_figure(
            plan.num_categories,
            plan.epsilon,
            plan.num_users,
            target=plan.target_rmse,
            title=f"K = {plan.num_categories:,}, ε = {plan.epsilon:.4g}, {plan.num_users:,.0f} users",
        )
    except ImportError as error:
        raise work.UsageError(f"--plot needs {error.name}: pip install 'rrjax[plots]'") from error
    save(figure, plot)


def save(figure: Any, plot: Path) -> None:
    """Writes a figure aside, and puts it in its place."""
    with io.replacing(plot) as aside, warnings.catch_warnings():
        # A label in a script that the font lacks is drawn as boxes; the table has it whole.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(aside, dpi=150)
