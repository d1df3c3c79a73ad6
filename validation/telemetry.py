"""Numbers within a randomized class, intervals that are read every day: coverage and width, by simulation.

Classes: values are log-normal, of median 1 and log-deviation 0.7 in class 0, e^0.3 and 1 in class 1; the class of each
record is randomized by a coin. Looks: randomized response of 200 users a day for 90 days, shares in proportion to the
category number; an interval is wrong if it misses at any look, of any category, with Bonferroni's correction, or the
mean of the category numbers; of one look that is the normal interval.
"""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from rrjax import inference
from rrjax.mechanisms import Coin
from validation.runner import Table, error, run, settings

GOAL = 0.945
GRID = {"N": (300, 1_000, 10_000), "share": (0.2, 0.5), "rate": (0.5, 0.8)}
QUICK = {"N": (300,), "share": (0.2,), "rate": (0.5,)}
PARTS = (0.5, 0.75, 0.95)
MEDIANS, DEVIATIONS = np.array([1.0, math.exp(0.3)]), np.array([0.7, 1.0])
QUANTILE, CDF, QUANTILES_APART, MEANS_APART = "quantile", "cdf", "difference of quantiles", "difference of means"
TRUE = MEDIANS * np.exp(stats.norm.ppf(PARTS)[:, None] * DEVIATIONS)
MEANS = MEDIANS * np.exp(DEVIATIONS**2 / 2)
DAYS, USERS = 90, 200
SIZES = (2, 5, 20)
SIMULATED_LOOKS = 400
"""Collections of each K, of 90 looks each."""


@partial(jax.jit, static_argnums=1)
def found_in(keys: jax.Array, number: int, share: jax.Array, rate: jax.Array) -> dict[str, inference.ClassEstimates]:
    """Of simulated records: quantiles, their distribution at the true ones `[size, Q, K]`, and differences."""

    def one(key: jax.Array) -> dict[str, inference.ClassEstimates]:
        for_class, for_value, for_label = jax.random.split(key, 3)
        classes = jax.random.bernoulli(for_class, share, (number,)).astype(jnp.int32)
        scale, deviation = jnp.asarray(MEDIANS, jnp.float32)[classes], jnp.asarray(DEVIATIONS, jnp.float32)[classes]
        values = scale * jnp.exp(deviation * jax.random.normal(for_value, (number,)))
        design = Coin(2, rate)
        labels = design.randomize(for_label, classes)
        given, parts, points = (values, labels, design), jnp.asarray(PARTS), jnp.asarray(TRUE, jnp.float32)
        at_true = [inference.class_cdf(*given, points[:, each]) for each in (0, 1)]
        return {
            QUANTILE: inference.class_quantiles(*given, parts),
            CDF: jax.tree.map(lambda *each: jnp.stack([each[k][:, k] for k in (0, 1)], axis=1), *at_true),
            QUANTILES_APART: inference.class_quantiles(*given, parts, reference=0),
            MEANS_APART: inference.class_means(*given, reference=0),
        }

    return jax.lax.map(one, keys, batch_size=50)


def measured(found: inference.ClassEstimates, true: float, *place: int) -> dict[str, float]:
    """Coverage of a true number, part without limits, and width of intervals."""
    value, lower, upper = (np.asarray(each, np.float64)[:, *place] for each in found)
    inside, rmse = (lower <= true) & (true <= upper), math.sqrt(np.nanmean((value - true) ** 2))
    width = float(np.median(upper - lower)) / (3.92 * rmse)
    return {"coverage": inside.mean(), "unbounded": 1 - np.isfinite(upper - lower).mean(), "width": width}


def of_classes(grid: dict[str, Any], number: int) -> tuple[list[Table], list[dict[str, Any]]]:
    every: list[dict[str, Any]] = []
    for setting in settings(grid):
        keys = jax.random.split(jax.random.key(setting["N"]), number)
        found = found_in(keys, setting["N"], jnp.float32(setting["share"]), jnp.float32(setting["rate"]))
        for place, part in enumerate(PARTS):
            apart = TRUE[place, 1] - TRUE[place, 0]
            for which in (0, 1):
                row = {**setting, "class": which, "quantile": part}
                every.append({**row, "of": QUANTILE} | measured(found[QUANTILE], TRUE[place, which], place, which))
                every.append({**row, "of": CDF} | measured(found[CDF], part, place, which))
            every.append(row | {"of": QUANTILES_APART} | measured(found[QUANTILES_APART], apart, place, 1))
        row = {**setting, "class": 1, "quantile": math.nan, "of": MEANS_APART}
        every.append(row | measured(found[MEANS_APART], MEANS[1] - MEANS[0], 1))
    rows = [row for row in every if row["of"] == QUANTILE]
    order = sorted(rows, key=lambda row: row["coverage"])
    lines = [
        [_setting(row), f"{row['coverage']:.4f}", f"{row['unbounded']:.3f}", f"{row['width']:.2f}"] for row in order
    ]
    low = sum(row["coverage"] < GOAL for row in rows)
    note = (
        f"{number:,} collections in each of {len(rows)} settings (standard error of a coverage of 0.95: "
        f"{error(0.95, number):.4f}); {low} below {GOAL:g}. Unbounded: of 60 records whose class is known, all lie "
        "below their 95 % quantile with probability 0.046, so that every valid upper limit is infinite then. Width: "
        "the median, as a multiple of 3.92 times the root mean squared error of the estimate. The share is that of "
        "class 1."
    )
    head = ["N, share, rate, class, quantile", "coverage", "unbounded", "width"]
    tables = [Table("class_quantiles, 0.95", head, lines, note)]
    lines = []
    for of in (CDF, QUANTILES_APART, MEANS_APART):
        rows = sorted((row for row in every if row["of"] == of), key=lambda row: row["coverage"])
        low = sum(row["coverage"] < GOAL for row in rows)
        width = np.median([row["width"] for row in rows if row["N"] >= 1_000 or len(grid["N"]) == 1])
        lines.append([of, f"{len(rows)}", f"{rows[0]['coverage']:.4f}", _setting(rows[0]), f"{low}", f"{width:.2f}"])
    note = (
        "Of the same collections. The distribution of a class is taken at its true quantiles; its limits are cut to "
        "[0, 1]. Differences are class 1 less class 0; the means are of long-tailed values. Width: the median of the "
        "settings with N ≥ 1,000."
    )
    head = ["", "settings", "lowest coverage", "N, share, rate, class, quantile", f"below {GOAL:g}", "width"]
    return [*tables, Table("class_cdf and differences of classes, 0.95", head, lines, note)], every


def _setting(row: dict[str, Any]) -> str:
    return f"{row['N']:,}, {row['share']:g}, {row['rate']:g}, {row['class']}, {row['quantile']:g}"


@partial(jax.jit, static_argnums=(1, 2))
def looked(counts: jax.Array, looks: Any, mean: bool) -> Any:
    """Intervals of the shares, `[size, K]`, or of the mean, `[size, 1]`."""

    def one(count: jax.Array) -> Any:
        if not mean:
            return inference.intervals(count, 1.0, looks=looks, simultaneous="bonferroni")
        method = None if looks else "normal"
        values = jnp.arange(float(len(count)))
        found = inference.linear_functional(count, 1.0, values=values, method=method, looks=looks)
        return found.lower[None], found.upper[None]

    return jax.lax.map(one, counts, batch_size=90)


def of_looks(number: int) -> tuple[Table, list[dict[str, Any]]]:
    rows = []
    for size, mean in itertools.product(SIZES, (False, True)):
        theta = np.arange(1, size + 1) / (size * (size + 1) / 2)
        law = (1 + math.expm1(1.0) * theta) / (math.expm1(1.0) + size)
        daily = np.random.default_rng(size).multinomial(USERS, law, (number, DAYS)).cumsum(axis=1)
        wrong, width, true = {}, {}, np.asarray([theta @ np.arange(size)]) if mean else theta
        for looks in (None, "any"):
            found = looked(jnp.asarray(daily.reshape(-1, size), jnp.int32), looks, mean)
            lower, upper = (np.asarray(each).reshape(number, DAYS, -1) for each in found)
            covered = (lower <= true + 1e-6) & (true - 1e-6 <= upper)
            wrong[looks] = float((~covered).any(axis=(1, 2)).mean())
            width[looks] = float(np.nanmean((upper - lower)[:, DAYS // 2]))
        of = "the mean" if mean else "all shares"
        rows.append(
            {"of": of, "K": size, "once": wrong[None], "any": wrong["any"], "width": width["any"] / width[None]}
        )
    lines = [
        [row["of"], f"{row['K']}", f"{row['once']:.3f}", f"{row['any']:.3f}", f"{row['width']:.2f}"] for row in rows
    ]
    note = f"{number:,} collections of each K. Width: mean on day {DAYS // 2}, over that of one look; cut to [0, 1]."
    head = ["of", "K", "wrong at some look, one look", 'the same, looks="any"', "width ÷ one look"]
    return Table("intervals on 90 days, 0.95", head, lines, note), rows


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    tables, rows = of_classes(QUICK if options.quick else GRID, options.number)
    looks, days = of_looks(min(options.number, 50 if options.quick else SIMULATED_LOOKS))
    return [*tables, looks], {"classes": rows, "looks": days}


if __name__ == "__main__":
    run(study, "Telemetry", ("collections", 1_000, 100))
