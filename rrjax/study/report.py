"""The output folder of a study: dataset, tidy tables, figures, and one HTML report."""

from __future__ import annotations

import base64
import json
import math
import os
import platform
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.estimators.catalogue import ESTIMATORS, METRICS
from rrjax.figures.html import (
    Markup,
    contents,
    figure,
    heading,
    joined,
    markup,
    pairs,
    paragraph,
    table,
    versions,
    write_page,
)
from rrjax.figures.selection import measured
from rrjax.figures.style import AXES, estimator_title
from rrjax.mechanisms import MECHANISMS
from rrjax.study.checkpoint import Timing, computing_time
from rrjax.study.drawings import Drawing, Picture, picture_of, pictures
from rrjax.study.rankings import ranking, ranking_note, ranking_rows

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

_PACKAGES = ("rrjax", "jax", "jaxlib", "numpy", "xarray")
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
        path: The file; if writing fails, it is unchanged.
        title: Heading.
        summary: Name → text, such as command, versions, seed, hardware and times.
        datasets: The dataset of a study, or name → dataset. Each is described, and ranked by its metrics.
        figures: `(title, caption, figure)`, numbered only if the titles are; a `Picture` is used without another
            drawing. Figures are drawn one after the other: a generator keeps one in memory at a time.
        extra_tables: `(title, caption, {column: values})`.
        metrics: Metrics to rank by. None: all except nll, whose ratios are near one and whose best is MLE* by
            definition.

    Returns:
        The path.

    Raises:
        ArgumentError: The columns of an extra table are not of one length.
        DataError: The file cannot be written; the message has the reason.

    Example:
        >>> import tempfile, xarray as xr
        >>> from pathlib import Path
        >>> from rrjax.study import write_report
        >>> dataset = xr.Dataset(
        ...     {"mse": (("estimator", "num_users"), [[0.2, 0.1], [0.1, 0.4]])}, {"estimator": ["mle_star", "inv_n"]}
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_report(Path(folder) / "report.html", title="Two", summary={"seed": "0"}, datasets=dataset)
        ...     print(path.read_text()[:15])
        <!DOCTYPE html>
    """
    import xarray as xr

    named = {"": datasets} if isinstance(datasets, xr.Dataset) else dict(datasets)
    body = []
    if summary:
        body += [heading("Summary"), _pairs(summary)]
    for name, dataset in named.items():
        body += [heading(f"Study: {name}" if name else "Study"), _pairs(_described(dataset))]
        wanted = [name for name in measured(dataset) if name != "nll"] if metrics is None else metrics
        ranked = [name for name in wanted if name in dataset and "estimator" in dataset[name].dims]
        body += [paragraph(_RANKING, kind="note")] if ranked else []
        body += [_ranking_table(ranking(dataset, metric)) for metric in ranked]
    for title_of, caption, columns in extra_tables:
        lengths = {column: len(values) for column, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ArgumentError(
                f"the columns of the table {title_of!r} are not of one length: {lengths}",
                argument="extra_tables",
                value=title_of,
            )
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        body += [heading(title_of), _table(list(columns), rows, caption or title_of)]
    links, drawn = [], []
    for number, (title_of, caption, given) in enumerate(figures, 1):
        links.append((f"figure-{number}", title_of))
        picture = given if isinstance(given, Picture) else picture_of(lambda given=given: given)
        png = base64.b64encode(picture.files["png"]).decode("ascii")
        words = markup(". ".join([title_of, *picture.words]))
        image = Markup(f'<img src="data:image/png;base64,{png}" alt="{words}.">')
        drawn.append(
            figure(f"figure-{number}", image, joined(Markup(f"<strong>{markup(title_of)}.</strong> "), caption))
        )
    if drawn:
        body += [heading("Figures"), contents("Figures", links), *drawn]
    return write_page(path, title, body)


def write_dataset(folder: Path, name: str, dataset: xr.Dataset) -> list[Path]:
    """Writes NAME.nc (NetCDF), NAME.parquet (a row for each configuration and estimator), and paired differences."""
    from rrjax.io import write_table
    from rrjax.io.write import replacing

    files = [folder / f"{name}.nc"]
    with replacing(files[0]) as aside:
        dataset.to_netcdf(aside, engine="h5netcdf")
    plain = [variable for variable in dataset.data_vars if "versus" not in dataset[variable].dims]
    for suffix, variables in (("", plain), ("-differences", [v for v in dataset.data_vars if v not in plain])):
        variables = [v for v in variables if not {"seed", "quantile"} & set(dataset[v].dims)]
        if variables:
            frame = dataset[variables].to_dataframe().dropna(how="all", subset=variables).reset_index()
            file = folder / f"{name}{suffix}.parquet"
            write_table(file, {str(column): np.asarray(frame[column]) for column in frame})
            files.append(file)
    return files


def write_figures(
    folder: Path, drawings: Sequence[Drawing], begun: Callable[[int, Drawing], None] | None = None
) -> Generator[tuple[str, str, Picture]]:
    """Draws the figures, writes each as PNG and PDF, and yields the `figures` of `write_report`."""
    from rrjax.io.write import make_folder, replacing

    make_folder(folder)
    with closing(pictures(drawings, begun)) as drawn:
        for drawing, picture in zip(drawings, drawn, strict=True):
            for suffix, content in picture.files.items():
                with replacing(folder / f"{drawing.name}.{suffix}") as aside:
                    aside.write_bytes(content)
            yield drawing.title, drawing.caption, picture


def provenance() -> dict[str, str]:
    """Versions and hardware, in words."""
    return {
        "versions": versions(*_PACKAGES),
        "hardware": f"{_processor()}, {os.cpu_count()} cores; {platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )


def _ranking_table(ranked: xr.Dataset) -> Markup:
    rows = ranking_rows(ranked)
    name = str(ranked.attrs["metric"])
    what = _metric(name)
    caption = f"Ranking by {what}, over {ranked.attrs['num_configurations']:,} configurations"
    caption = f"{caption}. {note}" if (note := ranking_note(ranked)) else caption
    return _table(list(rows[0]) if rows else [], rows, caption)


def _described(dataset: xr.Dataset) -> dict[str, str]:
    """The settings of a study in words: estimators, grid, and how it was computed."""
    attributes = dict(dataset.attrs)
    described = {}
    for name, title in _DIMENSIONS.items():
        if name in dataset.coords:
            values = np.atleast_1d(dataset[name].values)
            texts = [estimator_title(value) if name == "estimator" else _cell(value) for value in values]
            more = f" … ({len(texts)} in all)" if len(texts) > 30 else ""
            # Numbers have commas, so semicolons separate them.
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
    """The dictionary in an attribute with JSON, or an empty one."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def _words(value: Any) -> str:
    """An attribute in words: JSON without brackets and empty values."""
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


def _pairs(rows: Mapping[str, object]) -> Markup:
    return pairs({name: _cell(value) for name, value in rows.items()})


def _table(columns: list[str], rows: Sequence[Mapping[str, object]], caption: str) -> Markup:
    return table(columns, [[_cell(row[column]) for column in columns] for row in rows], caption)


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
