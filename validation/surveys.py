"""Whether intervals of survey samples cover: weights, strata, clusters and finite populations, of several mechanisms.

Each setting has one finite population. Every survey samples users of it, without replacement but for the first setting,
and randomizes their values anew. Coverage is that of the population's own number; the width is the median one, over
3.92 standard deviations of the estimate.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import stdtrit

from rrjax import inference, mechanisms
from rrjax.inference.surveys import Sampling
from rrjax.reports.surveys import Surveyed, survey_differences
from validation.runner import Table, error, population, progress, run

LEVEL, HIGHEST_RATIO, LOWEST = 0.95, 1.15, 0.93
YES = np.asarray([1, 0])
WEIGHTED = {"K": (5, 20), "N": (200, 2_000), "epsilon": (1.0, 3.0), "spread": (0.3, 1.0)}


class Population(NamedTuple):
    """A finite population: the value, stratum, cluster and domain of everybody."""

    values: np.ndarray
    strata: np.ndarray
    clusters: np.ndarray


class Setting(NamedTuple):
    words: str
    mechanism: str
    population: Population
    true: float
    survey: Callable[[np.random.Generator], tuple[Any, ...]]


def answers(rng: np.random.Generator, design: Any, values: np.ndarray) -> np.ndarray:
    """Answers by a channel, drawn by NumPy, which takes a millisecond."""
    steps = np.asarray(design.channel(), np.float64).cumsum(1)
    return np.minimum((rng.random(len(values))[:, None] > steps[values]).sum(1), steps.shape[1] - 1)


def clustered(rng: np.random.Generator, sizes: np.ndarray, per_stratum: int, shares: np.ndarray) -> Population:
    """Clusters whose distributions differ: Dirichlet about the shares of their stratum."""
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    own = np.stack([rng.dirichlet(12 * shares[place // per_stratum % len(shares)]) for place in range(len(sizes))])
    steps = own.cumsum(1)[clusters]
    values = np.minimum((rng.random(len(clusters))[:, None] > steps).sum(1), shares.shape[1] - 1)
    return Population(values, clusters // per_stratum, clusters)


def chosen_clusters(rng: np.random.Generator, people: Population, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
    """Users of so many clusters of each stratum, drawn without replacement; strata have clusters in equal numbers."""
    kept = np.zeros((len(numbers), (people.clusters[-1] + 1) // len(numbers)), bool)
    for row, number in zip(kept, numbers, strict=True):
        row[rng.choice(len(row), number, replace=False)] = True
    return np.flatnonzero(kept.ravel()[people.clusters])


def settings() -> list[Setting]:
    rng = np.random.default_rng(48)
    found = []

    # 1. Weights alone: odd categories are sampled half as often, and users at log-normal rates beside.
    values = rng.choice(5, 20_000, p=np.asarray([60, 30, 20, 15, 12]) / 137)
    rates = np.exp(0.6 * rng.standard_normal(20_000)) / (1 + values % 2)
    rates /= rates.sum()
    five, numbers = mechanisms.RandomizedResponse(5, 1.0), np.arange(5.0)

    def weighted(rng):
        chosen = rng.choice(20_000, 500, p=rates)
        reports = answers(rng, five, values[chosen])
        return inference.survey_estimate(reports, five, values=numbers, weights=1 / rates[chosen])

    people = Population(values, np.zeros(20_000, int), np.arange(20_000))
    words = "unequal weights, 500 of 20,000"
    found.append(Setting(f"{words}: mean", "5-ary randomized response, ε = 1", people, values.mean(), weighted))

    # 2. Strata of 5 to 50 %, sampled at different rates.
    sizes, samples = np.asarray([4000, 2000, 800, 400]), np.asarray([200, 100, 200, 200])
    strata = np.repeat(np.arange(4), sizes)
    yes = (rng.random(len(strata)) > np.asarray([0.05, 0.15, 0.3, 0.5])[strata]).astype(int)
    dice = mechanisms.ForcedResponse(truth=2 / 3, forced=np.full(2, 1 / 2))

    def stratified(rng):
        chosen = np.concatenate([
            rng.choice(np.flatnonzero(strata == each), samples[each], replace=False) for each in range(4)
        ])  # fmt: skip
        of = strata[chosen]
        return inference.survey_estimate(
            answers(rng, dice, yes[chosen]), dice, values=YES, strata=of, population_size=sizes[of]
        )

    people = Population(yes, strata, np.arange(len(strata)))
    words = "4 strata, 700 of 7,200, finite population"
    found.append(Setting(f"{words}: share of yes", "forced response, 2/3", people, (yes == 0).mean(), stratified))

    # 3. A rare answer, half of the population, a design for each respondent.
    rare = (rng.random(1_000) > 0.04).astype(int)
    designs = [mechanisms.Direct(2), mechanisms.Crosswise(0.2)]

    def half(rng):
        chosen, which = rng.choice(1_000, 500, replace=False), rng.integers(0, 2, 500)
        each = [answers(rng, design, rare[chosen]) for design in designs]
        mixed = mechanisms.ByRespondent(designs, which)
        reports = np.where(which == 0, *each)
        return inference.survey_estimate(reports, mixed, values=YES, population_size=1_000)

    people = Population(rare, np.zeros(1_000, int), np.arange(1_000))
    words = "500 of 1,000, finite population"
    found.append(Setting(f"{words}: share of 4 %", "direct and crosswise, halves", people, (rare == 0).mean(), half))

    # 4. Clusters of unequal sizes.
    shares = np.asarray([[0.3, 0.7]])
    people = clustered(rng, rng.integers(10, 50, 600), 600, shares)
    crosswise = mechanisms.Crosswise(0.15)

    def schools(rng, people=people):
        chosen = chosen_clusters(rng, people, [30])
        reports = answers(rng, crosswise, people.values[chosen])
        return inference.survey_estimate(reports, crosswise, values=YES, clusters=people.clusters[chosen])

    words = "30 of 600 clusters of 10 to 49"
    found.append(Setting(f"{words}: share of yes", "crosswise, 0.15", people, (people.values == 0).mean(), schools))

    # 5. Two clusters in each of 25 strata.
    shares = rng.dirichlet(np.ones(8), 25)
    people = clustered(rng, np.full(1_000, 12), 40, shares)
    unary, eight = mechanisms.OptimizedUnaryEncoding(8, 2.0), np.arange(8.0)
    p, q = (float(each) for each in (unary.rates.p, unary.rates.q))

    def pairs(rng, people=people):
        chosen = chosen_clusters(rng, people, [2] * 25)
        held = people.values[chosen][:, None] == np.arange(8)
        reports = rng.random(held.shape) < np.where(held, p, q)
        return inference.survey_estimate(
            reports, unary, values=eight, strata=people.strata[chosen], clusters=people.clusters[chosen]
        )

    words = "2 of 40 clusters in each of 25 strata"
    found.append(Setting(f"{words}: mean", "optimized unary encoding, ε = 2", people, people.values.mean(), pairs))

    # 6. The difference of two domains that share clusters, with weights.
    shares = np.asarray([[0.25, 0.75], [0.45, 0.55], [0.6, 0.4]])
    people = clustered(rng, rng.integers(20, 40, 240), 80, shares)
    women = rng.random(len(people.values)) < 0.5
    lowered = np.where(women & (rng.random(len(women)) < 0.2), 1, people.values)
    people = people._replace(values=lowered)
    take = np.asarray([8, 16, 24])

    def domains(rng, people=people):
        chosen = chosen_clusters(rng, people, take)
        strata, own = people.strata[chosen], women[chosen]
        return inference.survey_estimate(
            answers(rng, dice, people.values[chosen]), dice, values=YES, weights=80 / take[strata], strata=strata,
            clusters=people.clusters[chosen], population_size=np.full(len(chosen), 80), domain=own, less=~own,
        )  # fmt: skip

    held = people.values == 0
    words = "48 of 240 clusters in 3 strata, weights, finite population"
    true = held[women].mean() - held[~women].mean()
    found.append(Setting(f"{words}: difference of women and men", "forced response, 2/3", people, true, domains))

    # 7. Two designs in random halves of clusters that they share.
    shares = np.asarray([[0.3, 0.7], [0.5, 0.5]])
    people = clustered(rng, rng.integers(15, 35, 300), 150, shares)

    def halves(rng, people=people):
        chosen = chosen_clusters(rng, people, [15, 25])
        direct, clusters, strata = rng.random(len(chosen)) < 0.5, people.clusters[chosen], people.strata[chosen]
        reports = np.where(direct, *(answers(rng, design, people.values[chosen]) for design in designs))
        mixed = mechanisms.ByRespondent(designs, 1 - direct)
        return inference.survey_estimate(
            reports, mixed, values=YES, weights=150 / np.asarray([15, 25])[strata], strata=strata, clusters=clusters,
            domain=direct, less=~direct,
        )  # fmt: skip

    words = "40 of 300 clusters in 2 strata, weights"
    found.append(Setting(f"{words}: direct less crosswise", "direct and crosswise, halves", people, 0.0, halves))

    # 8. and 9. Two surveys, of many clusters and of few.
    shares = np.asarray([[0.35, 0.65]])
    for number, other in ((40, 30), (12, 20)):
        one = clustered(rng, rng.integers(10, 50, 600), 600, shares)
        two = clustered(rng, rng.integers(20, 40, 400), 200, np.asarray([[0.2, 0.8], [0.4, 0.6]]))

        def surveys(rng, one=one, two=two, number=number, other=other):
            chosen, own = chosen_clusters(rng, one, [number]), chosen_clusters(rng, two, [other // 2] * 2)
            sides = [
                sampled(answers(rng, crosswise, one.values[chosen]), crosswise, clusters=one.clusters[chosen]),
                sampled(answers(rng, dice, two.values[own]), dice, clusters=two.clusters[own], strata=two.strata[own]),
            ]
            shares, errors, degrees = survey_differences(sides)
            value, half = shares[0, 0, 0] - shares[1, 0, 0], -stdtrit(degrees[0], (1 - LEVEL) / 2) * errors[0]
            return value, errors[0], value - half, value + half

        true = (one.values == 0).mean() - (two.values == 0).mean()
        words = f"two surveys, of {number} and of {other} clusters in 2 strata: difference"
        found.append(Setting(words, "crosswise, 0.15, and forced response, 2/3", one, true, surveys))
    return found


def sampled(reports: np.ndarray, design: Any, **coded: np.ndarray) -> tuple[Surveyed, np.ndarray]:
    """A survey of clusters and strata, as `test_difference` reads it from a file, and all of its respondents."""
    columns: Any = {name: np.unique(each, return_inverse=True) for name, each in coded.items()}
    every = np.ones(len(reports), bool)
    return Surveyed(reports, every, design, Sampling.of(len(reports), **columns), [], 0, [], []), every


def weights_alone(number: int) -> tuple[Table, list[dict[str, Any]]]:
    """Odd categories are sampled half as often, and users at log-normal rates beside; with the weights and without."""
    rows = []
    for place, (size, users, epsilon, spread) in enumerate(itertools.product(*WEIGHTED.values())):
        rng, design = np.random.default_rng(place), mechanisms.RandomizedResponse(size, epsilon)
        theta, odd, values = np.asarray(population("Zipf", size), float), np.arange(size) % 2, np.arange(float(size))
        sampled, channel = theta / (1 + odd) / (theta / (1 + odd)).sum(), np.asarray(design.channel(), float)
        covered = {"weighted": 0, "plain": 0}
        for _ in range(number):
            held = rng.choice(size, users, p=sampled)
            # What is sampled with a probability over the weight has a log-normal weight of a mean less by the variance.
            weights = np.exp(spread * rng.standard_normal(users) - spread**2) * (1 + odd[held])
            reports = (rng.random(users)[:, None] > channel.cumsum(1)[held, :-1]).sum(1)
            for name, given in (("weighted", weights), ("plain", None)):
                found = inference.survey_estimate(reports, design, values=values, weights=given)
                covered[name] += bool(found.lower <= theta @ values <= found.upper)
        rows.append({"K": size, "N": users, "epsilon": epsilon, "spread": spread,
                     **{name: each / number for name, each in covered.items()}})  # fmt: skip
    lines = [[f"{row['K']}, {row['N']:,}, {row['epsilon']:g}, {row['spread']:g}", f"{row['weighted']:.4f}",
              f"{error(row['weighted'], number):.4f}", f"{row['plain']:.4f}"] for row in rows]  # fmt: skip
    note = (
        f"The mean of a Zipf population by randomized response, {number:,} surveys each: odd categories are sampled "
        "half as often as even ones, and users at log-normal rates beside; without weights the interval is in the "
        "wrong place."
    )
    header = ["K, N, ε, spread of log weights", "coverage", "s.e.", "without weights"]
    return Table("weights alone", header, lines, note), rows


def study(options: Any) -> tuple[list[Table], dict[str, Any]]:
    rows, lines, begin = [], [], time.process_time()
    with jax.enable_x64(True):
        for place, each in enumerate(settings()):
            progress(each.words)
            rng = np.random.default_rng(place)
            draws = np.asarray([[float(x) for x in each.survey(rng)[:4]] for _ in range(options.number)])
            value, errors, lower, upper = draws.T
            deviation = value.std(ddof=1)
            rows.append({
                "setting": each.words, "mechanism": each.mechanism, "true": each.true,
                "coverage": float(((lower <= each.true) & (each.true <= upper)).mean()),
                "width": float(np.median(upper - lower) / (3.919928 * deviation)),
                "errors": float(np.sqrt((errors**2).mean()) / deviation),
                "bias": float((value.mean() - each.true) / (deviation / np.sqrt(options.number))),
            })  # fmt: skip
        progress("weights alone")
        weights, weighted = weights_alone(options.number)
    for row in rows:
        coverage = row["coverage"]
        lines.append([row["setting"], row["mechanism"], f"{coverage:.4f}", f"{error(coverage, options.number):.4f}",
                      f"{row['width']:.3f}", f"{row['errors']:.3f}", f"{row['bias']:+.1f}"])  # fmt: skip
    note = (
        f"{options.number:,} surveys each. Goals: coverage at least {LOWEST:g}, width at most {HIGHEST_RATIO:g}. "
        "Standard errors: root mean square over the deviation of the estimates. Bias: in their standard errors. "
        f"CPU time: {time.process_time() - begin:.0f} s."
    )
    header = ["sample: estimate", "mechanism", "coverage", "s.e.", "width ÷ 3.92 deviations", "standard errors", "bias"]
    tables = [Table("coverage and width", header, lines, note), weights]
    return tables, {"level": LEVEL, "surveys": options.number, "rows": rows, "weighted": weighted}


if __name__ == "__main__":
    run(study, "Survey samples", ("surveys", 2_000, 200))
