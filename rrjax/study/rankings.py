"""Rankings of estimators: numbers of wins, and mean ratios to the best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.figures.selection import check_metrics, restored, rounding
from rrjax.figures.style import estimator_title

if TYPE_CHECKING:
    import xarray as xr

COLUMNS = {
    "best": "in how many configurations its mean is the smallest; ties count for each",
    "within 10 %": "in how many its mean is at most a tenth above the smallest",
    "worst": "in how many its mean is the largest",
    "ratio to the best": "of its mean to the smallest one: geometric mean over the configurations, ± a standard error",
    "behind by > 3 s.e.": "of the configurations where it is not the best and the difference has a standard error: in "
    "how many the difference is beyond three of them",
}
"""Column of `ranking_rows` → its meaning."""


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
                "behind by > 3 s.e.": _of(int(row["beyond"]), compared) if compared else "–",
            }
        )
    return rows


def ranking_note(ranked: xr.Dataset) -> str:
    """A sentence on the ties of a ranking; empty if there are none.

    Example:
        >>> import xarray as xr
        >>> from rrjax.study.rankings import ranking, ranking_note
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
