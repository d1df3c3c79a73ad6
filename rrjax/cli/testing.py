"""How `rrjax test` simulates a test, judges it and prints the answer."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.text import Text

from rrjax import inference, io
from rrjax.cli import show
from rrjax.cli.options import Explain, Json, check_rate
from rrjax.data.errors import UsageError
from rrjax.data.tally import Tally
from rrjax.inference.contradiction import ONE_NUMBER_SUPPORTED
from rrjax.inference.marginal_tests import CategoryTest, alike, num_tests_of
from rrjax.io.source import copies
from rrjax.io.tallies import as_jax_integers
from rrjax.reports import form
from rrjax.reports.reports import Reports

MOST_DRAWS = 10_000_000
USUAL_DRAWS = 9999
MOST_CELLS = 200_000_000
"""Limit of categories × collections of a simulation, unless --draws asks for more: about ten seconds."""
FEWEST_REJECTIONS = 5
"""Number of simulated collections that are at least as extreme where the p-value is the significance, at least."""
_flag = partial(typer.Option, rich_help_panel="The test")


@dataclasses.dataclass(frozen=True)
class SimulatedTest:
    """The flags of a simulated test."""

    explain: Explain = False
    json: Json = False
    draws: Annotated[
        int | None,
        _flag(
            help="How many collections to simulate in which there is nothing to find; by default 9999, or as many as "
            "take about ten seconds."
        ),
    ] = None
    significance: Annotated[
        float, _flag(help="What the p-value is compared with: the chance of an alarm where there is nothing.")
    ] = 0.05
    seed: Annotated[int, _flag(min=0, max=2**63 - 1, help="Of the simulations.")] = 0

    def __post_init__(self) -> None:
        """Refuses a significance outside of (0, 0.5], and too few draws for it."""
        check_rate("--significance", self.significance, small=True)
        if self.significance > 0.5:
            raise UsageError(
                f"--significance {self.significance:g} is the chance to be wrong where there is nothing, so it is "
                f"small; did you mean {1 - self.significance:g}?",
                flag="--significance",
                value=self.significance,
            )
        if self.significance < 1 / MOST_DRAWS:
            raise UsageError(
                f"--significance {self.significance:g} is below what {MOST_DRAWS:,} draws can tell",
                flag="--significance",
                value=self.significance,
            )
        draws, least = self.most_draws, math.ceil(1 / self.significance) - 1
        if draws > MOST_DRAWS:
            raise UsageError.about("--draws", f"must be at most {MOST_DRAWS:,}, got {draws:,}", value=draws)
        if draws < least:
            raise UsageError(
                f"--draws {draws} is too few for --significance {self.significance:g}: the least p-value would be "
                f"{1 / (max(draws, 0) + 1):.2g}; take at least {least}",
                flag="--draws",
                value=draws,
            )

    def check_draws(self, num_tests: int) -> None:
        """Refuses too few draws for a significance that is divided among several tests."""
        least = math.ceil(num_tests / self.significance) - 1
        if self.most_draws < least:
            raise UsageError(
                f"--draws {self.most_draws:,} is too few for {num_tests:,} categories at --significance "
                f"{self.significance:g}: give at least {least:,}, or one --category",
                flag="--draws",
                value=self.most_draws,
            )

    @property
    def most_draws(self) -> int:
        """The number of collections to simulate, unless that takes too long and the flag was not given."""
        return USUAL_DRAWS if self.draws is None else self.draws

    def bounded(self, num_cells: int, warnings: list[str]) -> SimulatedTest:
        """The same flags with a known number of draws, of `num_cells` numbers each; a warning says if it is less."""
        fewest = math.ceil(FEWEST_REJECTIONS / self.significance)
        draws = self.draws or min(USUAL_DRAWS, max(MOST_CELLS // num_cells, fewest))
        if self.draws is None and draws < USUAL_DRAWS:
            warnings.append(
                f"{draws:,} collections are simulated in place of {USUAL_DRAWS:,}, because one has {num_cells:,} "
                "numbers; --draws asks for more."
            )
        return dataclasses.replace(self, draws=draws)

    @property
    def key(self) -> jax.Array:
        """The key of the random numbers."""
        return jax.random.key(self.seed)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the tests of `rrjax.inference`."""
        return {"num_draws": self.most_draws, "level": self.significance}

    def outcome(
        self, question: str, result: inference.HypothesisTest, if_so: str, if_not: str, log_least: float
    ) -> dict[str, Any]:
        """The outcome of a test: the question, the result, and the answer in words.

        `log_least` is the logarithm of the least p-value that any reports of this number could have: where that is
        above the significance, the test cannot find anything, and says so.
        """
        p_value = float(result.p_value)
        if math.isnan(p_value):
            raise io.DataError("the test came out as NaN: these counts are beyond what it can compute")
        rejected, least = p_value <= self.significance, math.exp(min(log_least, 0.0))
        if least > self.significance:
            if_not = (
                f"It cannot be found out: with so few reports, or at so large an ε, p is {least:.2g} or more whatever "
                "they say."
            )
        answer = {"rejected": rejected, "answer": if_so if rejected else if_not, "least_p_value": least}
        of_result = {name: value for name, value in vars(result).items() if name not in ("category", "p_values")}
        return {"question": question} | of_result | answer | {"category": None, "simulated": True}


def _repeated(collections: Sequence[Reports]) -> list[str]:
    """Warnings about files that are given more than once, or are copies."""
    files = [file for collection in collections for file in collection.files.files()]
    return [
        f"{Path(file).name} is given more than once: its reports are compared with themselves."
        if os.path.samefile(first, file)
        else f"{first} and {file} hold the same rows in the same order: are they copies? Then reports are compared "
        "with themselves."
        for first, file in copies(files)
    ]


def show_outcomes(
    name: str,
    collections: list[Reports],
    outcomes: list[dict[str, Any]],
    options: SimulatedTest,
    **more: Any,
) -> None:
    """Prints the collections and the outcomes of tests; JSON also holds the facts in `more`."""
    if options.json:
        show.record(
            {
                "command": f"test {name}",
                "significance": options.significance,
                "num_draws": options.most_draws,
                "seed": options.seed,
                "collections": [collection.facts() for collection in collections],
                **more,
                "tests": outcomes,
            }
        )
        return
    several = len(collections) > 1
    for collection in collections:
        file = form.printable(collection.name) if several else ""
        show.say(collection.summary(file))
        show.warn([f"{file}: {warning}" if several else warning for warning in collection.warnings])
    show.warn(_repeated(collections))
    for outcome in outcomes:
        show.out.print()
        show.out.print(Text(form.printable(outcome["question"]), style="bold"))
        error = (
            f"± {outcome['standard_error']:.1g} from {options.most_draws:,} draws" if outcome["simulated"] else "exact"
        )
        show.say(f"{outcome['answer']} p = {outcome['p_value']:.2g} ({error}), significance {options.significance:g}.")
    words = {
        "p": "p-value: how often collections that are simulated under the hypothesis are at least as extreme as "
        "this one"
        if all(outcome["simulated"] for outcome in outcomes)
        else "p-value: each category is tested exactly, by both tails of its support count under the hypothesis; the "
        "smallest p-value is multiplied by the number of tests (Bonferroni), which holds however the support counts "
        "depend on each other. Collections of different rates are first randomized further (--seed)",
        "significance": "the hypothesis is rejected where p is at most this; the probability of a false alarm "
        "(--significance)",
    }
    words["statistic"] = "; ".join(f"{outcome['statistic']:.4g} ({outcome['method']})" for outcome in outcomes)
    show.explain(words, options.explain, "inference")


def least_of_any(collection: Reports) -> float:
    """Logarithm of the smallest p-value of the test whether any distribution fits.

    It is reached where all reports name one category, which a point mass makes with p^N.
    """
    rates, size, number = collection.rates, collection.num_categories, collection.num_reports
    held, other = math.log1p(-float(rates.not_p)), math.log(max(float(rates.q), 1e-300))
    return float(np.logaddexp(number * held, math.log(size - 1) + number * other))


def least_of_one(collection: Reports, theta: np.ndarray) -> float:
    """Logarithm of the smallest p-value of the test of one distribution: all reports name its rarest category."""
    law = float(collection.rates.q) + float(collection.rates.d) * theta / theta.sum()
    rarest = max(float(law.min()), 1e-300)
    return math.log(np.sum(law <= rarest * (1 + 1e-9))) + collection.num_reports * math.log(rarest)


def least_of_shuffles(counts: np.ndarray, epsilon: Any = None) -> float:
    """Logarithm of the smallest p-value of a shuffle of reports among collections `[G, K]`.

    Each way to share them out is equally likely. Where the ε differ, reports are randomized further, and there is no
    bound.
    """
    if np.ndim(epsilon):
        return -math.inf
    if np.count_nonzero(counts.sum(axis=0)) < 2 or np.count_nonzero(counts.sum(axis=1)) < 2:
        return 0.0  # every shuffle is the same
    sizes = counts.sum(axis=1)
    return sum(math.lgamma(size + 1) for size in sizes) - math.lgamma(sizes.sum() + 1)


def tally_of(collection: Reports) -> Tally:
    """The tally of a collection, of randomized response too."""
    if collection.tallied is not None:
        return collection.tallied.tally
    counts, number = as_jax_integers(collection.counts), as_jax_integers(np.int64(collection.num_reports))
    return Tally(counts, number, rates=collection.mechanism.rates)


def label_of(collection: Reports, result: inference.HypothesisTest) -> str | None:
    """The label of the category that differs most; None if there is none."""
    place = int(result.category) if isinstance(result, CategoryTest) else -1
    return form.printable(collection.labels[place]) if place >= 0 else None


def least_of_fit(collection: Reports, theta: np.ndarray | None) -> float:
    """Logarithm of the smallest p-value of an exact test of fit: all reports support a category, or none does."""
    rates = collection.rates
    if theta is None and not (
        collection.num_categories == 2 and isinstance(collection.mechanism, ONE_NUMBER_SUPPORTED)
    ):
        return -math.inf  # all categories together are tested too
    if theta is None:
        law = np.minimum(rates.p, rates.not_q)
    else:
        reported = np.asarray(rates.q + rates.d * (theta / theta.sum()))
        law = np.minimum(reported, 1 - reported)
    return math.log(2 * int(num_tests_of([tally_of(collection)]))) + collection.num_reports * math.log(
        max(float(np.min(law)), 1e-300)
    )


def least_of_tables(tallies: Sequence[Tally]) -> float:
    """Logarithm of the smallest p-value of the exact test of collections, given the support of all of them.

    Where the rates differ, supports are randomized further, and there is no bound.
    """
    from scipy.special import gammaln

    if not alike(tallies):
        return -math.inf
    support = np.stack([np.asarray(each.support, np.float64) for each in tallies])
    number = np.asarray([[float(each.num_users)] for each in tallies])
    marked, total = support.sum(axis=0), number.sum()

    def log_ways(of, chosen):
        return gammaln(of + 1) - gammaln(chosen + 1) - gammaln(of - chosen + 1)

    fewest, most = np.maximum(0, number + marked - total), np.minimum(number, marked)
    mass = [log_ways(marked, x) + log_ways(total - marked, number - x) for x in (fewest, most)]
    least = np.where(fewest < most, np.minimum(*mass) - log_ways(total, number), 0)
    groups = len(tallies)
    tests = int(num_tests_of(tallies)) * (1 if groups == 2 else groups)
    return math.log(2 * tests) + float(least.min())


def check_size(number: int) -> None:
    """Refuses more reports than tests can simulate."""
    if number >= 2**31:
        raise UsageError(
            f"tests are simulated, of at most 2,147,483,647 reports in all; these are {number:,}",
            flag="REPORTS",
            value=number,
        )
