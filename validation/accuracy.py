"""How close every estimator comes: squared error and total variation over grids of settings, beside an oracle.

The first grid is the paper's (Zipf with three exponents); the second has populations of other kinds, with two real ones
where the data are there; the third has few categories, some of them real; in the fourth one or a few of very many
categories hold all or half of the users; the fifth has many users: noise is small beside differences of shares. Every
seed draws the users and their reports exactly. An error is that of the mean over the seeds, against the shares of the
users who reported or the population they were drawn from, and is related to the best of InvN, MLE* and InvP in the
setting, which nobody knows who holds one collection. Where the best has less than 2 % of the inversion's error, we
divide by 2 %. The oracle is told the shares, but not who holds which: no estimate of one category from its own count
alone does better.
"""

from __future__ import annotations

import gzip
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

import rrjax
from rrjax import io
from rrjax.data.tally import support_data
from rrjax.estimators.histogram import Atoms, Histogram, Noise
from rrjax.study import paper
from validation.runner import FOLDER, WHERE, Table, chosen, geometric_mean, progress, run, where

NAMES = ("InvN", "MLE*", "InvP", "Emp. Bayes", "oracle")
OTHERS = 3
"""So many are what the best is taken of; empirical Bayes follows."""
TARGETS = ("users", "distribution")
WORDS = {"users": "the shares of the users who reported", "distribution": "the population they were drawn from"}
METRICS = {
    "squared error": rrjax.metrics.squared_error,
    "total variation": rrjax.metrics.total_variation,
    "KL divergence": rrjax.metrics.kl_divergence,
}
FLOOR = 0.02
"""Smaller errors count as this part of the inversion's: a point mass can be found exactly, with an error of zero."""
LEAST = 0.01
"""Smaller ratios count as this much in the mean."""
LISTED = 10
FEW, MANY = 20, 1000
KNOWN = 512
"""Shares that the oracle is told; of more categories, as many means of neighbours."""


def zipf(exponent: float) -> Callable[[int], np.ndarray]:
    return lambda size: np.asarray(rrjax.simulate.zipf(size, exponent), float)


def dirichlet(concentration: float) -> Callable[[int], np.ndarray]:
    return lambda size: np.random.default_rng(size).dirichlet(np.full(size, concentration))


def levels(size: int) -> np.ndarray:
    """A tenth of the categories have ten times the share of the others."""
    shares = np.where(np.arange(size) < max(1, size // 10), 10.0, 1.0)
    return shares / shares.sum()


def spikes(size: int) -> np.ndarray:
    """√K / 2 categories share all."""
    number = max(1, math.isqrt(size) // 2)
    return np.where(np.arange(size) < number, 1 / number, 0.0)


def geometric(size: int) -> np.ndarray:
    shares = 0.8 ** np.arange(size, dtype=float)
    return shares / shares.sum()


def real(folder: Path) -> dict[str, np.ndarray]:
    """Shares of real attributes, where the files are there."""
    found = {}
    if (folder / "kosarak-head.dat.gz").exists():
        found["Kosarak's head"] = io.count_reports(
            io.Source(folder / "kosarak-head.dat.gz", format="transactions"), "1:41270"
        ).counts
    if (folder / "adult.data.gz").exists():
        for name, column, domain in (("age", "1", "17:90"), ("hours per week", "13", "1:99")):
            source = io.Source(folder / "adult.data.gz", format="csv", header=False, column=column)
            found[f"Adult's {name}"] = io.count_reports(source, io.read_domain(domain)).counts
    return {name: np.asarray(counts, float) / np.sum(counts) for name, counts in found.items()}


def holders(number: int) -> Callable[[int], np.ndarray]:
    """So many categories hold all users."""
    return lambda size: np.where(np.arange(size) < number, 1 / number, 0.0)


def half(size: int) -> np.ndarray:
    """One category holds half of the users."""
    return np.append(0.5, np.full(size - 1, 0.5 / (size - 1)))


def few(folder: Path) -> dict[str, np.ndarray]:
    """Shares of few categories; Adult's where the file is there."""
    found = {
        "four, one of them rare": np.array([0.45, 0.35, 0.19, 0.01]),
        "five as in Nursery": np.array([0.3333, 0.0002, 0.0253, 0.3121, 0.3291]),
        "Dirichlet 0.1, K = 8": dirichlet(0.1)(8),
        "Dirichlet 1, K = 8": dirichlet(1.0)(8),
        "Zipf 1, K = 20": zipf(1.0)(20),
        "two levels, K = 14": levels(14),
    }
    if (folder / "adult.data.gz").exists():
        with gzip.open(folder / "adult.data.gz", "rt") as lines:
            rows = [line.split(",") for line in lines if line.count(",") >= 14]
        for name, column in (("education", 3), ("occupation", 6)):
            values = [row[column].strip() for row in rows if row[column].strip() != "?"]
            found[f"Adult's {name}"] = np.unique(values, return_counts=True)[1] / len(values)
    return {name: shares / shares.sum() for name, shares in found.items()}


def quantiles(law: Callable[[np.ndarray], np.ndarray]) -> Callable[[int], np.ndarray]:
    """Shares at even quantiles of a law."""

    def make(size: int) -> np.ndarray:
        shares = law((np.arange(size) + 0.5) / size)
        return shares / shares.sum()

    return make


OF_MANY_USERS = {
    "exponential": quantiles(lambda part: -np.log1p(-part)),
    "log-normal 1": quantiles(lambda part: np.exp(special.ndtri(part))),
    "log-normal 2": quantiles(lambda part: np.exp(2 * special.ndtri(part))),
    "arithmetic": quantiles(lambda part: part),
    "Dirichlet 2": dirichlet(2.0),
    "Zipf 1 from the third": quantiles(lambda part: 1 / (part + 3 / len(part))),
    "words": quantiles(lambda part: (part + 2.7 / len(part)) ** -1.1),
    "file sizes": quantiles(lambda part: np.exp(1.5 * special.ndtri(part)) / np.sqrt(1 - part)),
    "3 : 1 in turn": quantiles(lambda part: np.where(np.arange(len(part)) % 2, 3.0, 1.0)),
}
POPULATIONS = {
    "Dirichlet 0.1": dirichlet(0.1),
    "Dirichlet 1": dirichlet(1.0),
    "two levels": levels,
    "spikes": spikes,
    "geometric": geometric,
    "uniform": zipf(0.0),
}
PAPER = {f"Zipf {exponent:g}": zipf(exponent) for exponent in paper.EXPONENTS}


def grids(folder: Path, quick: bool) -> dict[str, list[tuple[str, np.ndarray, list[tuple[int, float]]]]]:
    """Per grid: populations, and the N and ε of their settings."""
    categories = paper.CATEGORIES[:2] if quick else paper.CATEGORIES
    users, epsilons = ((1000, 100_000), (1.0, 4.0)) if quick else (paper.USERS, paper.EPSILONS)
    settings = list(itertools.product(users, epsilons))
    first = [(name, make(size), settings) for size in categories for name, make in PAPER.items()]
    sizes = (5, 100) if quick else (5, 10, 20, 100, 1000, 10_000)
    users, epsilons = ((1000,), (1.0, 4.0)) if quick else ((1000, 30_000, 1_000_000), (0.5, 1.0, 2.0, 4.0, 6.0))
    settings = list(itertools.product(users, epsilons))
    second = [(name, make(size), settings) for size in sizes for name, make in POPULATIONS.items()]
    if not quick:
        second += [(name, shares, settings) for name, shares in real(folder).items()]
    third = [(name, shares, settings) for name, shares in few(folder).items()]
    sizes = (1000,) if quick else (1000, 30_000)
    settings = list(itertools.product((1000,) if quick else (1000, 100_000), epsilons))
    makers = {f"{number} hold all": holders(number) for number in (1, 3, 10, 40)} | {"one holds half": half}
    fourth = [(name, make(size), settings) for size in sizes for name, make in makers.items()]
    sizes, users = ((50,), (1_000_000,)) if quick else ((30, 100, 400), (1_000_000, 100_000_000))
    settings = list(itertools.product(users, (2.0, 4.0)))
    fifth = [(name, make(size), settings) for size in sizes for name, make in OF_MANY_USERS.items()]
    found: Any = {"the paper's grid": first, "other populations": second}
    return found | {"few categories": third, "few holders": fourth, "many users": fifth}


@jax.jit
def errors(keys: jax.Array, shares: jax.Array, num_users: jax.Array, epsilon: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`[seeds, targets, metrics, estimators and the inversion]`, and `[seeds, targets, claims]` of empirical Bayes.

    Claims are the sum of the variances, whether the prior was undetermined, whether the counts' order is kept, and the
    parts of all and of the present categories within 1.96 standard deviations of the estimate.
    """

    def one(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        true, counts = rrjax.simulate.collect(jax.random.split(key)[0], shares, num_users, epsilon)
        plain = [estimator(counts, epsilon) for estimator in (rrjax.inv_n, rrjax.mle_star, rrjax.inv_p)]
        rows, claims = [], []
        for target, truth in zip(TARGETS, (true / num_users, shares), strict=True):
            closest = rrjax.empirical_bayes(counts, epsilon, estimand=target)
            estimates = [*plain, closest.theta, oracle(counts, epsilon, shares, target), rrjax.inv(counts, epsilon)]
            rows.append(jnp.stack([jnp.stack([f(x, truth) for x in estimates]) for f in METRICS.values()]))
            claims.append(claims_of(closest, counts, truth))
        return jnp.stack(rows), jnp.stack(claims)

    # In chunks of one: under vmap the samplers' branches are all taken, which is slower on a CPU.
    return jax.lax.map(one, keys)


def claims_of(found: rrjax.EmpiricalBayes, counts: jax.Array, truth: jax.Array) -> jax.Array:
    covered = (jnp.abs(found.theta - truth) <= 1.96 * jnp.sqrt(found.variances)).astype(found.theta.dtype)
    present = (truth > 0).astype(covered.dtype)
    kept = jnp.all(jnp.diff(found.theta[jnp.argsort(counts)]) >= 0)
    dtype = found.theta.dtype
    about = [jnp.sum(found.variances), found.undetermined.astype(dtype), kept.astype(dtype)]
    return jnp.stack([*about, jnp.mean(covered), jnp.sum(covered * present) / jnp.sum(present)])


def oracle(counts: jax.Array, epsilon: jax.Array, shares: jax.Array, target: Any) -> jax.Array:
    """Posterior means for whoever knows the shares, but not whose they are."""
    size = shares.shape[0]
    data = support_data(counts, epsilon)
    groups = jnp.sort(shares)
    known, weights = groups, jnp.full(size, 1 / size)
    if size > KNOWN:
        # The largest as they are, the others in groups of about one size.
        group = jnp.maximum(jnp.arange(size) * (KNOWN // 2) // (size - KNOWN // 2), 0)
        group = jnp.where(jnp.arange(size) < size - KNOWN // 2, group, jnp.arange(size) - size + KNOWN)
        number = jax.ops.segment_sum(jnp.ones(size), group, KNOWN)
        known, weights = jax.ops.segment_sum(groups, group, KNOWN) / number, number / size
    atoms = Atoms(known, Noise.of(data).x_of_share(known), jnp.zeros_like(known))
    histogram = Histogram.of(data, target, atoms, num_cells=1024)
    return histogram.read(histogram.posterior(weights)[0])[0]


def measure(grid: list[tuple[str, np.ndarray, list[tuple[int, float]]]], num_seeds: int) -> list[dict[str, Any]]:
    """A row for each setting, with its `errors`."""
    rows = []
    for name, shares, settings in grid:
        progress(f"{name}, K = {len(shares):,}")
        keys = jax.random.split(jax.random.key(len(shares)), num_seeds)
        for num_users, epsilon in settings:
            found = errors(keys, jnp.asarray(shares, jnp.float32), jnp.int32(num_users), jnp.float32(epsilon))
            setting = {"K": len(shares), "N": num_users, "epsilon": epsilon, "population": name}
            measured, claimed = (np.asarray(each, float) for each in found)
            rows.append(setting | {"errors": measured, "claims": claimed})
    return rows


def relate(errors: np.ndarray, floored: bool = True) -> dict[str, Any]:
    """Of errors `[seeds, estimators and the inversion]`: means, and the ratios to the best of the three.

    Standard errors of the ratios are paired over the seeds.
    """
    mean = errors.mean(0)
    best = int(np.nanargmin(mean[:OTHERS]))
    # What is exact up to rounding is no better than what is exact.
    scale = max(mean[best], FLOOR * mean[-1] if floored else 0, 1e-13)
    mean, errors = mean[:-1], errors[:, :-1]
    ratio = np.maximum(mean, 1e-13) / scale
    with np.errstate(invalid="ignore"):
        rest = errors - ratio * errors[:, [best]]
        deviation = rest.std(0, ddof=1) / math.sqrt(len(errors)) / scale
    return {"mean": mean, "best": best, "ratio": ratio, "standard_error": deviation}


def realized(errors: np.ndarray, claims: np.ndarray) -> list[str]:
    """Median and 95 % quantile of squared errors `[settings, seeds]` over the sums of variances, `claims[..., 0]`.

    First where the prior is determined, then where it is not (`claims[..., 1]`).
    """
    cells = []
    for weak in (False, True):
        chosen = (claims[:, :, 1] > 0.5) == weak
        some = chosen.any(1)
        sums = [np.where(chosen, each, 0).sum(1)[some] for each in (errors, claims[:, :, 0])]
        ratio = sums[0] / np.maximum(sums[1], 1e-30)
        cells += [f"{np.median(ratio):.2f}", f"{np.quantile(ratio, 0.95):.2f}"] if some.any() else ["–", "–"]
    return cells


REALIZED = ("median", "95 % quantile", "undetermined: median", "95 % quantile")


def over(ratios: np.ndarray) -> float:
    return geometric_mean(np.maximum(ratios, LEAST))


def summary(rows: list[dict[str, Any]], grid: str, target: int, metric: int) -> Table:
    related = [relate(row["errors"][:, target, metric], metric == 0) for row in rows]
    ratios = np.array([each["ratio"] for each in related])
    few, many = np.array([row["K"] <= FEW for row in rows]), np.array([row["K"] >= MANY for row in rows])
    lines = []
    for index, name in enumerate(NAMES):
        one = ratios[:, index]
        worst = related[int(one.argmax())]["standard_error"][index]
        small = f"{over(one[few]):.2f}, {one[few].max():.3g}" if few.any() else "–"
        large = np.maximum(one, LEAST)[many] / np.maximum(ratios[many, -1], LEAST)
        lines.append([
            name, f"{over(one):.3f}", f"{np.median(one):.2f}", f"{np.quantile(one, 0.9):.2f}",
            f"{one.max():.3g} ± {worst:.1g}", f"{(one <= 1.05).mean():.0%}", small,
            f"{over(large):.2f}" if many.any() else "–",
        ])  # fmt: skip
    title = ["", "geometric mean", "median", "90 % quantile", "max ± standard error", "within 5 % of the best"]
    return Table(
        f"{grid}: {list(METRICS)[metric]} relative to the best of the three, against {WORDS[TARGETS[target]]}",
        [*title, f"K ≤ {FEW}: mean, max", f"K ≥ {MANY}: over the oracle's"],
        lines,
        f"Over {len(rows)} settings; means over the seeds, then ratios. Ratios below {LEAST} enter geometric means as "
        f"{LEAST}.",
    )


def divergences(parts: dict[str, list[dict[str, Any]]]) -> Table:
    lines = []
    for grid, rows in parts.items():
        mean = np.array([row["errors"][:, 0, 2, :-1].mean(0) for row in rows])
        finite = np.isfinite(mean).mean(0)
        lines.append([grid, *(f"{share:.0%}" for share in finite)])
    return Table(
        "KL divergence of the users' shares from the estimate",
        ["finite in all seeds", *NAMES],
        lines,
        "In so many of the settings.",
    )


def claims(parts: dict[str, list[dict[str, Any]]]) -> Table:
    lines = []
    for grid, rows in parts.items():
        for target, name in enumerate(TARGETS):
            error = np.array([row["errors"][:, target, 0, OTHERS] for row in rows])
            claim = np.array([row["claims"][:, target] for row in rows])
            covers = claim[claim[:, :, 1] < 0.5][:, 3:].mean(0)
            lines.append(
                [grid, name, *realized(error, claim), *(f"{x:.3f}" for x in covers), f"{claim[:, :, 2].mean():.1%}"]
            )
    return Table(
        "What empirical Bayes claims: realized squared errors over the sums of its variances",
        ["", "against", *REALIZED, "within 1.96 deviations, all", "present categories", "order of the counts kept"],
        lines,
        "Per setting, over its seeds; a prior is undetermined where the counts hardly distinguish the categories. "
        "Parts within 1.96 standard deviations are means over all collections with a determined prior.",
    )


def extremes(rows: list[dict[str, Any]], grid: str, target: int) -> Table:
    related = [relate(row["errors"][:, target, 0]) for row in rows]
    order = np.argsort([-found["ratio"][OTHERS] for found in related])[:LISTED]
    lines = []
    for index in order:
        row, found = rows[index], related[index]
        ratio = f"{found['ratio'][OTHERS]:.3g} ± {found['standard_error'][OTHERS]:.2g}"
        lines.append([where(row), *(f"{x:.2g}" for x in found["mean"]), NAMES[found["best"]], ratio])
    return Table(
        f"{grid}: where empirical Bayes loses most, against {WORDS[TARGETS[target]]}",
        [WHERE, *NAMES, "best of three", "ratio ± standard error"],
        lines,
        "Mean squared errors, summed over the categories.",
    )


def kept(row: dict[str, Any], *names: str) -> dict[str, Any]:
    """The setting of a row and its mean errors, as the result keeps them; −1 is one that is not finite."""
    mean = row["errors"].mean(0)
    return chosen(row, *names) | {"mean": np.where(np.isfinite(mean), mean, -1).round(12)}


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    parts = {grid: measure(some, options.number) for grid, some in grids(FOLDER, options.quick).items()}
    tables = []
    for metric, target in ((0, 0), (0, 1), (1, 0)):
        tables.extend(summary(rows, grid, target, metric) for grid, rows in parts.items())
    tables += [divergences(parts), claims(parts)]
    tables.extend(extremes(rows, grid, target) for target in range(2) for grid, rows in parts.items())
    rows = {grid: [kept(row, "K", "N", "epsilon", "population") for row in rows] for grid, rows in parts.items()}
    facts = {"num_seeds": options.number, "estimators": NAMES, "targets": TARGETS, "metrics": list(METRICS)}
    return tables, facts | {"rows": rows}


if __name__ == "__main__":
    run(study, "How close every estimator comes", ("num_seeds", 20, 4))
