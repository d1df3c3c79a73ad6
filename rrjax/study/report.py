"""The report of a study: one HTML file that needs no other."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.catalogue import ESTIMATORS, METRICS
from rrjax.figures import estimator_title, measured
from rrjax.figures.style import AXES
from rrjax.mechanisms import MECHANISMS
from rrjax.study.checkpoint import Timing, computing_time
from rrjax.study.pictures import Picture, picture_of
from rrjax.study.rankings import ranking, ranking_note, ranking_rows

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = ["write_report"]

_DIMENSIONS = {
    "estimator": "estimators",
    "mechanism": "mechanisms",
    **AXES,
    "distribution": "populations",
    "quantile": "quantiles over the seeds",
}
_ATTRIBUTES = {
    "num_seeds": "seeds per configuration",
    "seed": "random seed",
    "users": "digests of the users given",
    "distributions": "digests of the distributions",
}
_RANKING = (
    "Rankings: in how many configurations an estimator is the best, is within 10 % of the best, and is the worst; the "
    "geometric mean over the configurations of its ratio to the best, ± the standard error; how many of its paired "
    "differences to the best, where that is another, are beyond three standard errors. Estimators that are no further "
    "apart than rounding share a win, and each has it counted. The smallest ratio comes first."
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


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    summary: Mapping[str, object],
    datasets: xr.Dataset | Mapping[str, xr.Dataset],
    figures: Iterable[tuple[str, str, Figure | Picture]] = (),
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
            keeps one in memory at a time. Of one that is drawn already, a `Picture`, the PNG is taken as it is.
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
        picture = figure if isinstance(figure, Picture) else picture_of(lambda figure=figure: figure)
        png = base64.b64encode(picture.files["png"]).decode("ascii")
        drawn.append(
            f'<figure id="figure-{number}"><img src="data:image/png;base64,{png}" '
            f'alt="{_html(". ".join([heading, *picture.words]))}.">\n'
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
    name = str(ranked.attrs["metric"])
    what = _metric(name)
    caption = f"Ranking by {what}, over {ranked.attrs['num_configurations']:,} configurations"
    caption = f"{caption}. {note}" if (note := ranking_note(ranked)) else caption
    return _table(list(rows[0]) if rows else [], rows, caption)


def _described(dataset: xr.Dataset) -> dict[str, str]:
    """The settings of a study: what was compared, over which grid, and how it was computed."""
    attributes = dict(dataset.attrs)
    described = {}
    for name, title in _DIMENSIONS.items():
        if name in dataset.coords:
            values = np.atleast_1d(dataset[name].values)
            texts = [estimator_title(value) if name == "estimator" else _cell(value) for value in values]
            more = f" … ({len(texts)} in all)" if len(texts) > 30 else ""
            # Thousands are set off by commas, so values are not.
            described[title] = ("; " if name != "estimator" else ", ").join(texts[:30]) + more
            if name != "mechanism":
                attributes.pop(name, None)
    own = {
        label: function
        for kind, known in (("estimators", ESTIMATORS), ("mechanism", MECHANISMS), ("metrics", METRICS))
        for label, function in _unpacked(attributes.pop(kind, {})).items()
        if label not in known
    }
    if own:
        described["names of one's own"] = "; ".join(f"{label} ({where})" for label, where in own.items())
    shown = [*measured(dataset), *(name for name in ("bias2", "variance") if name in dataset)]
    if shown:
        described["metrics"] = "; ".join(map(_metric, shown))
    estimand = attributes.pop("estimand", None)
    given = "users" in attributes
    if estimand is not None:
        drawn = "the users given" if given else "the users drawn, who vary from seed to seed"
        described["estimates are compared with"] = (
            f"the histogram of {drawn}" if estimand == "users" else "the distribution that users are drawn from"
        )
    if {"jax", "rrjax"} <= set(attributes):
        attributes["computed with"] = ", ".join(
            f"{name} {attributes.pop(name)}" for name in ("rrjax", "jax", "jaxlib") if name in attributes
        )
    if "devices" in attributes:
        attributes.pop("platform", None)
    if "seconds" in attributes:
        attributes["computing time"] = computing_time([attributes])
        for name in Timing._fields:
            attributes.pop(name, None)
    for name, value in attributes.items():
        text = _words(value)
        if text:
            text = text if len(text) <= 400 else text[:400] + " …"
            described[_ATTRIBUTES.get(str(name), str(name).replace("_", " "))] = text
    return described


def _metric(name: str) -> str:
    return METRICS[name].label.replace("\n", " ") if name in METRICS else name


def _unpacked(value: Any) -> dict[str, Any]:
    """What JSON holds, where an attribute is such a text (NetCDF knows nothing deeper); else nothing."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _words(value: Any) -> str:
    """An attribute for a person: what JSON holds as a list, without brackets and without what is empty."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    if isinstance(value, dict):
        pairs = ((name, _words(one)) for name, one in value.items())
        return "; ".join(f"{name}: {text}" if text else str(name) for name, text in pairs)
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(_words, value)))
    return "" if value is None else _cell(value)


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


def _html(value: object) -> str:
    return escape(str(value), quote=True)


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
