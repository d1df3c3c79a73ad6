"""The report of a study: one HTML file that needs no other, and the ranking of its estimators."""

from __future__ import annotations

import base64
import io
import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.study.figures import METRICS, estimator_title, measured

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = ["ranking", "ranking_rows", "write_report"]

_DIMENSIONS = {
    "estimator": "estimators",
    "num_categories": "categories K",
    "num_users": "users N",
    "epsilon": "privacy ε (nats)",
    "zipf": "Zipf exponent s",
    "distribution": "distributions",
}
_RANKING = (
    "Rankings: in how many configurations an estimator is the best, is within 10 % of the best, and is the worst; the "
    "geometric mean over the configurations of its ratio to the best, ± the standard error; how many of its paired "
    "differences to the best, where that is another, are beyond three standard errors. The smallest ratio comes first."
)
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 72rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
a { color: #1b4f8a; } p.note, figcaption, caption { color: #333; font-size: .92rem; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; margin: 1rem 0; }
caption { text-align: left; padding-bottom: .4rem; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #ccc; text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid #555; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
td { overflow-wrap: anywhere; }
figure { margin: 1.5rem 0 2.5rem; break-inside: avoid; } img { max-width: 100%; height: auto; }
@media print { body { font-size: 10pt; margin: 0; max-width: none; } h2 { break-after: avoid; }
  table { break-inside: avoid; } div.wide { overflow: visible; } nav { display: none; } }
@page { margin: 1.5cm; }
"""


def ranking(dataset: xr.Dataset, metric: str = "mse") -> xr.Dataset:
    r"""Ranks estimators over all configurations of a study.

    In every configuration the best is the estimator with the smallest mean; ratios are to it. NaN is missing, infinity
    is a value. Left out are configurations where fewer than two of several estimators have a value, or none a
    finite one.

    Args:
        dataset: Of a study: the metric over (estimator, …), and, where there are, `<metric>_se`,
            `<metric>_difference` and `<metric>_difference_se` over (estimator, versus, …).
        metric: The name of a variable; smaller is better.

    Returns:
        A dataset over `estimator`:

        * `configurations`: in how many it has a value;
        * `best`, `worst`: in how many it has the smallest, the largest mean (ties count for each; where all are equal,
          none is worst);
        * `near`: in how many it is within 10 % of the best, the best included;
        * `ratio`: geometric mean of its ratio to the best;
        * `ratio_se`: its standard error by the delta method, ratio·√(Σ_c Var log r_c)/C, with
          Var log r = (s_e/m_e)² + (s_b/m_b)² − 2 cov/(m_e m_b) and cov = (s_e² + s_b² − s_d²)/2 from the paired
          differences (0 without them). Takes the configurations as independent and the best as given: where several
          are about equal, the smallest is so by chance, and ratios are a little too large.
        * `compared`, `beyond`: how many paired differences to a best other than itself have a standard error, and how
          many of them are larger than three.

    Raises:
        ValueError: The metric is not in the dataset; says which are.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study.report import ranking
        >>> dataset = xr.Dataset(
        ...     {"mse": (("estimator", "num_users"), [[0.2, 0.1], [0.1, 0.4]])}, {"estimator": ["mle_star", "inv_n"]}
        ... )
        >>> ranking(dataset)["ratio"].round(3).values.tolist()
        [1.414, 2.0]
    """
    import xarray as xr

    if metric not in dataset:
        there = [name for name in METRICS if name in dataset] or list(map(str, dataset.data_vars))
        raise ValueError(f"{metric} is not in the dataset, which has: {', '.join(there)}")
    if "estimator" not in dataset[metric].dims:
        raise ValueError(f"{metric} is not over a dimension estimator")
    others = [name for name in dataset[metric].dims if name != "estimator"]
    count = dataset.sizes["estimator"]
    mean = np.asarray(dataset[metric].transpose("estimator", *others).values, float).reshape(count, -1)
    used = ((~np.isnan(mean)).sum(axis=0) >= min(2, count)) & np.isfinite(mean).any(axis=0)
    mean = mean[:, used]
    known = ~np.isnan(mean)
    filled = np.where(known, mean, np.inf)
    best = np.argmin(filled, axis=0)
    smallest = filled.min(axis=0, initial=np.inf)
    largest = np.where(known, mean, -np.inf).max(axis=0, initial=-np.inf)

    def table(name: str, *dims: str) -> np.ndarray | None:
        if name not in dataset:
            return None
        values = np.asarray(dataset[name].transpose(*dims, *others).values, float)
        return values.reshape(*values.shape[: len(dims)], -1)[..., used]

    error = table(f"{metric}_se", "estimator")
    against_best: list[np.ndarray | None] = []
    for name in (f"{metric}_difference", f"{metric}_difference_se"):
        if name in dataset:
            order = [list(dataset["versus"].values).index(label) for label in dataset["estimator"].values]
            pairs = table(name, "estimator", "versus")
            assert pairs is not None
            against_best.append(np.take_along_axis(pairs[:, order], best[None, None], axis=1)[:, 0])
        else:
            against_best.append(None)
    difference, difference_error = against_best

    with np.errstate(all="ignore"):
        log_ratio = np.where(mean == smallest, 0.0, np.log(mean) - np.log(smallest))
        itself = np.arange(count)[:, None] == best
        variance = np.full(mean.shape, np.nan)
        if error is not None:
            best_error = np.take_along_axis(error, best[None], axis=0)
            covariance = 0.0 if difference_error is None else (error**2 + best_error**2 - difference_error**2) / 2
            variance = (error / mean) ** 2 + (best_error / smallest) ** 2 - 2 * covariance / (mean * smallest)
            variance = np.maximum(variance, 0)
        variance = np.where(itself, 0, variance)
        configurations = known.sum(axis=1)
        ratio = np.exp(np.where(known, log_ratio, 0).sum(axis=1) / configurations)
        ratio_error = ratio * np.sqrt(np.where(known, variance, 0).sum(axis=1)) / configurations
        compared = np.zeros(mean.shape, bool)
        beyond = np.zeros(mean.shape, bool)
        if difference is not None and difference_error is not None:
            compared = known & ~itself & np.isfinite(difference) & np.isfinite(difference_error)
            beyond = compared & (np.abs(difference) > 3 * difference_error)
    columns = {
        "configurations": configurations,
        "best": (known & (mean == smallest)).sum(axis=1),
        "worst": (known & (mean == largest) & (largest > smallest)).sum(axis=1),
        "near": (known & (log_ratio <= math.log(1.1))).sum(axis=1),
        "ratio": ratio,
        "ratio_se": np.where(np.isfinite(ratio), ratio_error, np.nan),
        "compared": compared.sum(axis=1),
        "beyond": beyond.sum(axis=1),
    }
    return xr.Dataset(
        {name: ("estimator", values) for name, values in columns.items()},
        {"estimator": dataset["estimator"].values},
        {"metric": metric, "num_configurations": int(used.sum())},
    )


def ranking_rows(ranked: xr.Dataset) -> list[dict[str, str]]:
    """A ranking in words and rounded numbers, for a terminal or a page; the smallest ratio comes first.

    Args:
        ranked: From `ranking`.

    Returns:
        A row for every estimator: column title → text.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study.report import ranking, ranking_rows
        >>> dataset = xr.Dataset(
        ...     {"mse": (("estimator", "num_users"), [[0.2, 0.1], [0.1, 0.4]])}, {"estimator": ["mle_star", "inv_n"]}
        ... )
        >>> [row["estimator"] + " " + row["ratio to the best"] for row in ranking_rows(ranking(dataset))]
        ['MLE* 1.414', 'InvN 2.000']
    """
    ratios = np.where(np.isnan(ranked["ratio"].values), np.inf, ranked["ratio"].values)
    rows = []
    for index in np.argsort(ratios, kind="stable"):
        row = ranked.isel(estimator=int(index))
        many = int(row["configurations"])
        compared = int(row["compared"])
        rows.append(
            {
                "estimator": estimator_title(row["estimator"].item()),
                "best": _of(int(row["best"]), many),
                "within 10 %": _of(int(row["near"]), many),
                "worst": _of(int(row["worst"]), many),
                "ratio to the best": _with_error(float(row["ratio"]), float(row["ratio_se"])),
                "behind by > 3 s.e.": _of(int(row["beyond"]), compared) if compared else "–",
            }
        )
    return rows


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    summary: Mapping[str, object],
    datasets: xr.Dataset | Mapping[str, xr.Dataset],
    figures: Iterable[tuple[str, str, Figure]] = (),
    extra_tables: Sequence[tuple[str, str, Mapping[str, Sequence[object]]]] = (),
    metrics: Sequence[str] | None = None,
) -> Path:
    """Writes a study as one HTML file, with its figures inside: nothing is loaded from elsewhere.

    Args:
        path: The file; whole at the end, or untouched.
        title: Heading.
        summary: Name → text, such as command, versions, seed, hardware and times.
        datasets: One of a study, or name → dataset. Each is described, and ranked by those metrics that it has.
        figures: `(title, caption, figure)`, numbered only if the titles are. Drawn one after the other: a generator
            keeps one in memory at a time.
        extra_tables: `(title, caption, {column: values})`.
        metrics: What to rank by. None: all but nll, where the ratio says little and MLE* is best by construction.

    Returns:
        The path.

    Raises:
        ValueError: The columns of an extra table are not of one length.
        DataError: The file cannot be written; says why.

    Example:
        >>> import tempfile, xarray as xr
        >>> from pathlib import Path
        >>> from rrjax.study.report import write_report
        >>> dataset = xr.Dataset(
        ...     {"mse": (("estimator", "num_users"), [[0.2, 0.1], [0.1, 0.4]])}, {"estimator": ["mle_star", "inv_n"]}
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_report(Path(folder) / "report.html", title="Two", summary={"seed": "0"}, datasets=dataset)
        ...     print(path.read_text()[:15])
        <!DOCTYPE html>
    """
    import xarray as xr

    from rrjax.io import replacing

    named = {"": datasets} if isinstance(datasets, xr.Dataset) else dict(datasets)
    body = [f"<h1>{_html(title)}</h1>"]
    if summary:
        body += ["<h2>Summary</h2>", _pairs(summary)]
    for name, dataset in named.items():
        body += [f"<h2>{_html(f'Study: {name}' if name else 'Study')}</h2>", _pairs(_described(dataset))]
        wanted = [name for name in measured(dataset) if name != "nll"] if metrics is None else metrics
        ranked = [name for name in wanted if name in dataset and "estimator" in dataset[name].dims]
        body += [f'<p class="note">{_html(_RANKING)}</p>'] if ranked else []
        body += [_ranking_table(ranking(dataset, metric)) for metric in ranked]
    for heading, caption, columns in extra_tables:
        lengths = {column: len(values) for column, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns of the table {heading!r} are not of one length: {lengths}")
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        body += [f"<h2>{_html(heading)}</h2>", _table(list(columns), rows, caption)]
    contents, drawn = [], []
    for number, (heading, caption, figure) in enumerate(figures, 1):
        contents.append(f'<li><a href="#figure-{number}">{_html(heading)}</a></li>')
        drawn.append(
            f'<figure id="figure-{number}"><img src="data:image/png;base64,{_png(figure)}" '
            f'alt="{_html(_alternative(heading, figure))}">\n'
            f"<figcaption><strong>{_html(heading)}.</strong> {_html(caption)}</figcaption></figure>"
        )
    if drawn:
        body += ["<h2>Figures</h2>", f"<nav><ul>{''.join(contents)}</ul></nav>", *drawn]
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_html(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )
    with replacing(path) as aside:
        # A name from a file system may hold what is no text.
        aside.write_bytes(page.encode("utf-8", errors="backslashreplace"))
    return Path(path)


def _ranking_table(ranked: xr.Dataset) -> str:
    rows = ranking_rows(ranked)
    what = METRICS.get(ranked.attrs["metric"], str(ranked.attrs["metric"])).replace("\n", " ")
    caption = f"Ranking by {what}, over {ranked.attrs['num_configurations']:,} configurations"
    return _table(list(rows[0]) if rows else [], rows, caption)


def _described(dataset: xr.Dataset) -> dict[str, str]:
    described = {}
    for name, title in _DIMENSIONS.items():
        if name in dataset.coords:
            values = np.atleast_1d(dataset[name].values)
            texts = [estimator_title(value) if name == "estimator" else _cell(value) for value in values]
            more = f" … ({len(texts)} in all)" if len(texts) > 30 else ""
            # Thousands are set off by commas, so values are not.
            described[title] = ("; " if name != "estimator" else ", ").join(texts[:30]) + more
    attributes = {"num_seeds": "seeds per configuration", "seed": "seed", "estimand": "estimand"}
    for name, value in dataset.attrs.items():
        if name in dataset.coords and name != "seed":
            continue
        text = _cell(value)
        described[attributes.get(str(name), str(name))] = text if len(text) <= 400 else text[:400] + " …"
    return described


def _pairs(pairs: Mapping[str, object]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{_html(name)}</th><td>{_html(_cell(value))}</td></tr>' for name, value in pairs.items()
    )
    return f'<div class="wide"><table><tbody>\n{rows}\n</tbody></table></div>'


def _table(columns: list[str], rows: Sequence[Mapping[str, object]], caption: str) -> str:
    """The first column names the row; the others are numbers where all of their cells look so."""
    texts = [[_cell(row[column]) for column in columns] for row in rows]
    numeric = [index > 0 and all(_looks_numeric(row[index]) for row in texts) for index in range(len(columns))]
    marks = [' class="number"' if number else "" for number in numeric]
    head = "".join(f'<th scope="col"{mark}>{_html(column)}</th>' for column, mark in zip(columns, marks, strict=True))
    lines = []
    for row in texts:
        cells = "".join(f"<td{mark}>{_html(text)}</td>" for text, mark in zip(row[1:], marks[1:], strict=True))
        lines.append(f'<tr><th scope="row">{_html(row[0])}</th>{cells}</tr>')
    inside = "\n".join(lines)
    return (
        f'<div class="wide"><table><caption>{_html(caption)}</caption>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{inside}\n</tbody></table></div>"
    )


def _png(figure: Figure) -> str:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(stream, format="png", dpi=150)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _alternative(heading: str, figure: Figure) -> str:
    """What the figure shows, from what is written in it."""

    def listed(texts: Iterable[str]) -> str:
        # Formulas are left out; a dollar that was meant as one stays.
        plain = (re.sub(r"(?<!\\)\$[^$]*\\[^$]*\$", "", str(text or "")) for text in texts)
        cleaned = (" ".join(text.replace("\\$", "\0").replace("$", "").replace("\0", "$").split()) for text in plain)
        return "; ".join(dict.fromkeys(text for text in cleaned if text))

    parts = {
        "panels": listed(axes.get_title() for axes in figure.axes),
        "horizontal": listed(axes.get_xlabel() for axes in figure.axes),
        "vertical": listed(axes.get_ylabel() for axes in figure.axes),
        "curves": listed(text.get_text() for legend in figure.legends for text in legend.get_texts()),
    }
    return ". ".join([heading, *(f"{name.capitalize()}: {text}" for name, text in parts.items() if text)]) + "."


def _html(value: object) -> str:
    return escape(str(value), quote=True)


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,}"


def _with_error(value: float, error: float) -> str:
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if not math.isfinite(error) or error <= 0:
        return f"{value:.3f}" if value < 100 else f"{value:,.4g}"
    digits = min(max(1 - math.floor(math.log10(error)), 0), 12)
    return f"{value:,.{digits}f} ± {error:,.{digits}f}"


def _cell(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return (f"{value:,}" if abs(value) >= 10_000 else str(value)).replace("-", "−")
    if isinstance(value, float | np.floating):
        if math.isnan(value):
            return "–"
        return ("−" if value < 0 else "") + "∞" if math.isinf(value) else f"{value:.6g}".replace("-", "−")
    return str(value)


def _looks_numeric(text: str) -> bool:
    return bool(text) and text[0] in "0123456789−–∞+.-"
