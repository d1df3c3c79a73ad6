"""What a study reports: rankings, and a folder with its dataset, tidy tables, figures, and one HTML report."""

from __future__ import annotations

import base64
import errno
import json
import math
import os
import platform
import shutil
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
from rrjax.figures.selection import check_metrics, measured, restored, rounding
from rrjax.figures.style import AXES, estimator_title
from rrjax.mechanisms import MECHANISMS
from rrjax.study.checkpoint import Timing, computing_time
from rrjax.study.drawings import Drawing, Picture, picture_of, pictures

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
SPARE_BYTES = 1 << 20
"""Room for what a file of NetCDF has beside its numbers."""
_RANKING = (
    "Rankings: in how many configurations an estimator is the best, is within 10 % of the best, and is the worst; the "
    "geometric mean over the configurations of its ratio to the best, ± the standard error; how many of its paired "
    "differences to the best, where that is another, are beyond three standard errors. Estimators that are no further "
    "apart than rounding share a win, and each has it counted. The smallest ratio comes first."
)


COLUMNS = {
    "best": "in how many configurations its mean is the smallest; ties count for each",
    "within 10 %": "in how many its mean is at most a tenth above the smallest",
    "worst": "in how many its mean is the largest",
    "ratio to the best": "of its mean to the smallest one: geometric mean over the configurations, ± a standard error",
    "clearly worse": "of the configurations where it is not the best and the difference has a standard error: in "
    "how many the difference is beyond three of them",
}
"""Column of `ranking_rows` → its meaning."""


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    summary: Mapping[str, object],
    datasets: xr.Dataset | Mapping[str, xr.Dataset],
    figures: Iterable[tuple[str, str, Figure | Picture]] = (),
) -> Path:
    """Writes a study as one HTML file, with its figures inside: nothing is loaded from elsewhere.

    Args:
        path: The file; if writing fails, it is unchanged.
        title: Heading.
        summary: Name → text, such as command, versions, seed, hardware and times.
        datasets: The dataset of a study, or name → dataset. Each is described, and ranked by its metrics
            except nll, whose ratios are near one and whose best is MLE* by definition.
        figures: `(title, caption, figure)`, numbered only if the titles are; a `Picture` is used without another
            drawing. Figures are drawn one after the other: a generator keeps one in memory at a time.

    Returns:
        The path.

    Raises:
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
        ranked = [name for name in measured(dataset) if name != "nll" and "estimator" in dataset[name].dims]
        body += [paragraph(_RANKING, kind="note")] if ranked else []
        body += [_ranking_table(ranking(dataset, metric)) for metric in ranked]
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
        if shutil.disk_usage(folder).free < dataset.nbytes + SPARE_BYTES:  # HDF5 on a full disk crashes at the end
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
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
    what, number = _metric(str(ranked.attrs["metric"])), ranked.attrs["num_configurations"]
    caption = f"Ranking by {what}, over {number:,} configurations"
    caption = f"{caption}. {note}" if (note := ranking_note(ranked)) else caption
    return table(list(rows[0]) if rows else [], [list(row.values()) for row in rows], caption)


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
        unpacked = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        unpacked = None
    return unpacked if isinstance(unpacked, dict) else {}


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


def ranking(dataset: xr.Dataset, metric: str = "mse") -> xr.Dataset:
    r"""A ranking of the estimators over all configurations of a study.

    In every configuration the best is the estimator with the smallest mean; ratios are to this mean. Means whose
    difference is within the rounding of the study's floats (`precision`) are ties, and share the win: eight units in
    the last place of the mean, and because the shares themselves are rounded, eps·√m more for squared errors m, eps for
    distances of shares. NaN is missing, infinity is a value. Configurations are omitted if fewer than two of several
    estimators have a value, or none has a finite value.

    Args:
        dataset: Dataset of a study: the metric over (estimator, …), and, if any, `<metric>_se` over the same
            dimensions, `<metric>_difference` and `<metric>_difference_se` over (estimator, versus, …).
        metric: The name of a variable; smaller is better.

    Returns:
        A dataset over `estimator`:

        * `configurations`: number of configurations in which it has a value;
        * `best`, `worst`: number in which it has the smallest, the largest mean (ties count for each, so wins may sum
          to more than the configurations; if all are equal, none is worst);
        * `shared`: number of its wins that are ties;
        * `near`: number in which it is within 10 % of the best, the best included;
        * `ratio`: geometric mean of its ratio to the best;
        * `ratio_se`: its standard error by the delta method, ratio·√(Σ_c Var log r_c)/C, with
          Var log r = (s_e/m_e)² + (s_b/m_b)² − 2 cov/(m_e m_b) and cov = (s_e² + s_b² − s_d²)/2 from the paired
          differences (0 without them). It assumes independent configurations and a given best: if several are about
          equal, the smallest is smallest by chance, and ratios are a little too large;
        * `compared`, `beyond`: number of paired differences to the best (in configurations without its win) that have a
            standard error, and of those beyond three standard errors.

        Attributes: `metric`, `precision`, `num_configurations`, and `num_shared`, the number of those with a tie.

    Raises:
        ArgumentError: The metric is not in the dataset; the message lists the available ones.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study import ranking
        >>> dataset = xr.Dataset(
        ...     {"mse": (("estimator", "num_users"), [[0.2, 0.1], [0.1, 0.4]])}, {"estimator": ["mle_star", "inv_n"]}
        ... )
        >>> ranking(dataset)["ratio"].round(3).values.tolist()
        [1.414, 2.0]
    """
    import xarray as xr

    check_metrics(dataset, [metric])
    dataset = restored(dataset, "estimator")
    if "estimator" not in dataset[metric].dims:
        raise ArgumentError(f"{metric} is not over a dimension estimator", argument="metric", value=metric)
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
    wins = known & (mean <= smallest + rounding(dataset, metric, smallest))
    tied = wins.sum(axis=0) > 1

    def table(name: str, *dims: str) -> np.ndarray | None:
        if name not in dataset:
            return None
        values = np.asarray(dataset[name].transpose(*dims, *others).values, float)
        return values.reshape(*values.shape[: len(dims)], -1)[..., used]

    def against_best(name: str) -> np.ndarray | None:
        if (pairs := table(name, "estimator", "versus")) is None:
            return None
        order = [list(dataset["versus"].values).index(label) for label in dataset["estimator"].values]
        return np.take_along_axis(pairs[:, order], best[None, None], axis=1)[:, 0]

    error = table(f"{metric}_se", "estimator")
    difference, difference_error = (against_best(f"{metric}_{name}") for name in ("difference", "difference_se"))

    with np.errstate(all="ignore"):
        log_ratio = np.where(wins, 0.0, np.log(mean) - np.log(smallest))
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
            compared = known & ~wins & np.isfinite(difference) & np.isfinite(difference_error)
            beyond = compared & (np.abs(difference) > 3 * difference_error)
        # Infinity less infinity is NaN, so equality is tested too.
        loses = known & ~wins & ((mean == largest) | (mean >= largest - rounding(dataset, metric, largest)))
    columns = {
        "configurations": configurations,
        "best": wins.sum(axis=1),
        "shared": (wins & tied).sum(axis=1),
        "worst": loses.sum(axis=1),
        "near": (known & (log_ratio <= math.log(1.1))).sum(axis=1),
        "ratio": ratio,
        "ratio_se": np.where(np.isfinite(ratio), ratio_error, np.nan),
        "compared": compared.sum(axis=1),
        "beyond": beyond.sum(axis=1),
    }
    return xr.Dataset(
        {name: ("estimator", values) for name, values in columns.items()},
        {"estimator": dataset["estimator"].values},
        {
            "metric": metric,
            "precision": str(dataset.attrs.get("precision", "float64")),
            "num_configurations": int(used.sum()),
            "num_shared": int(tied.sum()),
        },
    )


def ranking_rows(ranked: xr.Dataset) -> list[dict[str, str]]:
    """A ranking as rows of text, for a terminal or a page, the smallest ratio first.

    Args:
        ranked: From `ranking`.

    Returns:
        A row for every estimator, column title → text. There is a column "shared" if any win is shared.

    Raises:
        ArgumentError: The argument is not from `ranking`, but for example the dataset of a study.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study import ranking, ranking_rows
        >>> dataset = xr.Dataset(
        ...     {"mse": (("estimator", "num_users"), [[0.2, 0.1], [0.1, 0.4]])}, {"estimator": ["mle_star", "inv_n"]}
        ... )
        >>> [row["estimator"] + " " + row["ratio to the best"] for row in ranking_rows(ranking(dataset))]
        ['MLE* 1.414', 'InvN 2.000']
    """
    check_metrics(ranked, [])
    if "ratio" not in ranked:
        raise ArgumentError(
            "`ranking_rows` takes the result of `ranking`, not the dataset of a study", argument="ranked"
        )
    ratios = np.where(np.isnan(ranked["ratio"].values), np.inf, ranked["ratio"].values)
    rows = []
    for index in np.argsort(ratios, kind="stable"):
        row = ranked.isel(estimator=int(index))
        number = int(row["configurations"])
        compared = int(row["compared"])
        shared = {"shared": f"{int(row['shared']):,}"} if ranked.attrs.get("num_shared") else {}
        rows.append(
            {
                "estimator": estimator_title(row["estimator"].item()),
                "best": _of(int(row["best"]), number),
                **shared,
                "within 10 %": _of(int(row["near"]), number),
                "worst": _of(int(row["worst"]), number),
                "ratio to the best": _with_error(float(row["ratio"]), float(row["ratio_se"])),
                "clearly worse": _of(int(row["beyond"]), compared) if compared else "–",
            }
        )
    return rows


def ranking_note(ranked: xr.Dataset) -> str:
    """A sentence on the ties of a ranking; empty if there are none.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study.report import ranking, ranking_note
        >>> dataset = xr.Dataset(
        ...     {"mse": (("estimator", "num_users"), [[0.2, 0.1], [0.2, 0.4]])}, {"estimator": ["mle_star", "inv_n"]}
        ... )
        >>> ranking_note(ranking(dataset))
        'In 1 of 2 configurations the best share the win: no further apart than float64 rounds.'
    """
    shared, number = ranked.attrs["num_shared"], ranked.attrs["num_configurations"]
    if not shared:
        return ""
    return (
        f"In {_of(shared, number)} configuration{'s' * (number != 1)} the best share the win: no further apart than "
        f"{ranked.attrs['precision']} rounds."
    )


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
