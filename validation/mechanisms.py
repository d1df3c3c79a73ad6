"""How close empirical Bayes comes for every mechanism, with the likelihood of whole reports and without; in float64.

Every seed draws the users, and their reports through the mechanism itself. An error is that of the mean over the seeds,
against the shares of the users who reported, and is related to the best of InvP, InvN and the maximum likelihood of
whole reports (up to 100 categories, by Newton's method to its certificate), of which nobody knows the best who holds
one collection. Where the best has less than 2 % of the inversion's error, we divide by 2 %. One collection in both
precisions: the same counts, so the errors differ by the precision alone.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import accuracy
import jax
import jax.numpy as jnp
import numpy as np

import rrjax
from rrjax.data.linear_maps import Dense
from rrjax.mechanisms import MECHANISMS
from validation.runner import FOLDER, Table, progress, run

NAMES = ("InvN", "InvP", "MLE, whole reports", "support counts", "whole reports")
WHOLE = 100
"""The largest K with the likelihood of whole reports here."""
LISTED = 12


def populations(folder: Path, quick: bool) -> dict[str, np.ndarray]:
    found = accuracy.few(folder)
    if quick:
        return {name: found[name] for name in ("five as in Nursery", "two levels, K = 14")}
    made = {"spikes, K = 16": accuracy.spikes(16), "one holds all, K = 12": accuracy.holders(1)(12)}
    large = {
        f"{name}, K = {size:,}": make(size)
        for size in (100, 1000)
        for name, make in (("Zipf 1", accuracy.zipf(1.0)), ("one holds all", accuracy.holders(1)))
    }
    return found | made | large


@jax.jit
def mixture_of(supports: jax.Array, epsilon: jax.Array) -> rrjax.Mixture:
    """One row a report: one compiled program for all collections of a size, where different rows would vary."""
    return rrjax.Mixture(jnp.ones(len(supports), jnp.int32), 1.0, Dense(supports, jnp.expm1(epsilon)))


def errors(name: str, shares: np.ndarray, num_users: int, epsilon: float, num_seeds: int) -> dict[str, Any]:
    """`[seeds, estimators and the inversion]`, and `[seeds, 2]`: the sums of the variances, whether undetermined."""
    size = len(shares)
    mechanism = MECHANISMS[name](size, epsilon)
    rows, claims = [], []
    for seed in range(num_seeds):
        draw, deal = jax.random.split(jax.random.fold_in(jax.random.key(size), seed))
        values = jax.random.choice(draw, size, (num_users,), p=jnp.asarray(shares, jnp.float32))
        truth = jnp.bincount(values, length=size) / num_users
        reports = mechanism.randomize(deal, values)
        tally = mechanism.tally(reports)
        whole, likeliest = None, None
        if size <= WHOLE:
            whole = mixture_of(mechanism.supports(reports), jnp.float32(epsilon))
            likeliest = rrjax.ibu(whole, accelerate="newton").theta
        closest = rrjax.empirical_bayes(tally, mixture=whole)
        estimates = [rrjax.inv_n(tally), rrjax.inv_p(tally), likeliest, rrjax.empirical_bayes(tally).theta]
        estimates += [closest.theta, rrjax.inv(tally)]
        rows.append([np.nan if each is None else float(jnp.sum((each - truth) ** 2)) for each in estimates])
        claims.append([float(jnp.sum(closest.variances)), float(closest.undetermined)])
    return {"errors": np.array(rows), "claims": np.array(claims)}


def summary(rows: list[dict[str, Any]], title: str, note: str) -> Table:
    lines = []
    for name in dict.fromkeys(row["mechanism"] for row in rows):
        some = [accuracy.relate(row["errors"]) for row in rows if row["mechanism"] == name]
        cells = [name]
        for place in range(1, len(NAMES)):
            one = np.array([found["ratio"][place] for found in some])
            if np.isnan(one).any():
                cells.append("–")
                continue
            worst = some[int(one.argmax())]["standard_error"][place]
            cells.append(f"{accuracy.over(one):.2f}, {np.quantile(one, 0.9):.2f}, {one.max():.2f} ± {worst:.1g}")
        lines.append(cells)
    return Table(
        title, ["", "InvP", NAMES[2], "empirical Bayes, support counts", "empirical Bayes, whole"], lines, note
    )


def by_size(rows: list[dict[str, Any]], note: str) -> Table:
    """Geometric means over all mechanisms and populations of a number of categories."""
    lines = []
    for size in sorted({row["K"] for row in rows}):
        some = [accuracy.relate(row["errors"])["ratio"] for row in rows if row["K"] == size]
        ratios = np.array(some)[:, 2 : len(NAMES)]
        lines.append([
            f"{size:,}", str(len(some)),
            *("–" if np.isnan(one).any() else f"{accuracy.over(one):.2f}" for one in ratios.T),
        ])  # fmt: skip
    return Table(
        "All mechanisms by the number of categories, against the best of three: geometric means",
        ["K", "settings", NAMES[2], "empirical Bayes, support counts", "empirical Bayes, whole"],
        lines,
        note,
    )


def losses(rows: list[dict[str, Any]]) -> Table:
    ordered = sorted(((accuracy.relate(row["errors"]), row) for row in rows), key=lambda pair: -pair[0]["ratio"][-1])
    lines = []
    for found, row in ordered[:LISTED]:
        name = f"{row['mechanism']}: {row['population']}, N = {row['N']:,}, ε = {row['epsilon']:g}"
        whole = f"{found['ratio'][-1]:.2f} ± {found['standard_error'][-1]:.1g}"
        lines.append([name, NAMES[found["best"]], f"{found['ratio'][-2]:.2f}", whole])
    return Table("Where empirical Bayes loses most", ["", "best of three", "support counts", "whole reports"], lines)


def claims(rows: list[dict[str, Any]]) -> Table:
    lines = []
    for name in dict.fromkeys(row["mechanism"] for row in rows):
        some = [row for row in rows if row["mechanism"] == name]
        errors = np.array([row["errors"][:, len(NAMES) - 1] for row in some])
        lines.append([name, *accuracy.realized(errors, np.array([row["claims"] for row in some]))])
    title = "Realized squared errors over the sums of its variances"
    return Table(title, ["", *accuracy.REALIZED], lines, "Per setting, over its seeds.")


def precisions(folder: Path, num_seeds: int, quick: bool) -> tuple[Table, list[dict[str, Any]]]:
    """Errors of k-ary randomized response in float32 over those in float64, of the same counts."""
    settings: list[tuple[str, np.ndarray, int, float]] = [
        (name, shares, number, epsilon)
        for name, shares in accuracy.few(folder).items()
        for number, epsilon in ((1000, 2.0), (30_000, 1.0))
    ]
    for size in (1000,) if quick else (1000, 30_000):
        makers = {f"{name} all": accuracy.holders(n) for name, n in (("one holds", 1), ("ten hold", 10))}
        makers["Zipf 1"] = accuracy.zipf(1)
        settings += [(f"{name}, K = {size:,}", make(size), 100_000, 4.0) for name, make in makers.items()]
    lines, record = [], []
    for name, shares, number, epsilon in settings:
        found = []
        for seed in range(num_seeds):
            key = jax.random.fold_in(jax.random.key(number), seed)
            true, counts = (np.asarray(x) for x in rrjax.simulate.collect(key, shares, number, epsilon))
            errors = []
            for wide in (False, True):
                with jax.enable_x64(wide):
                    theta = np.asarray(rrjax.empirical_bayes(counts, epsilon).theta, float)
                errors.append(float(((theta - true / number) ** 2).sum()))
            found.append(errors)
        one, other = np.mean(found, axis=0)
        record.append({"population": name, "N": number, "epsilon": epsilon, "float32": one, "float64": other})
        lines.append([f"{name}, N = {number:,}, ε = {epsilon:g}", f"{one:.4g}", f"{other:.4g}", f"{one / other:.4f}"])
    title = "k-ary randomized response: mean squared errors of empirical Bayes in both precisions"
    return Table(title, ["", "float32", "float64", "ratio"], lines), record


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    names = list(MECHANISMS)[1:3] if options.quick else [name for name in MECHANISMS if name != "randomized-response"]
    rows = []
    for name in names:
        progress(name)
        settings = itertools.product(populations(FOLDER, options.quick).items(), (1000, 20_000), (1.0, 3.0))
        for (population, shares), number, epsilon in settings:
            setting = {"mechanism": name, "population": population, "K": len(shares), "N": number, "epsilon": epsilon}
            rows.append(setting | errors(name, shares, number, epsilon, options.number))
    few, many = ([row for row in rows if (row["K"] <= accuracy.FEW) == small] for small in (True, False))
    words = "geometric mean, 90 % quantile, maximum ± standard error"
    tables = [summary(few, f"Up to {accuracy.FEW} categories, against the best of three: {words}", "")]
    note = f"From {WHOLE + 1} categories on without the likelihood of whole reports here."
    tables += [
        summary(part, f"{size:,} categories, against the best of three: {words}", note)
        for size in (100, 1000)
        if (part := [row for row in many if row["K"] == size])
    ]
    table, precision = precisions(FOLDER, options.number, options.quick)
    tables += [by_size(rows, note), losses(rows), claims(rows), table]
    record = [accuracy.kept(row, "mechanism", "population", "K", "N", "epsilon") for row in rows]
    return tables, {"num_seeds": options.number, "estimators": NAMES, "rows": record, "precisions": precision}


if __name__ == "__main__":
    run(study, "How close empirical Bayes comes for every mechanism", ("num_seeds", 20, 2))
