"""Statistical tests of reports: whether they contradict their mechanism; how a test is simulated, judged and told."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from threading import Lock
from typing import Any, ClassVar

import jax
import numpy as np

from rrjax import inference
from rrjax.data.errors import DataError, check_rate, for_commands, option, refusal
from rrjax.data.tally import Tally
from rrjax.inference.marginal_tests import CategoryTest, alike, num_tests_of
from rrjax.io.source import Source
from rrjax.io.tallies import as_jax_integers
from rrjax.numerics.programs import program
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Block, Heading
from rrjax.reports.reports import FALSE_ALARM, Reports

MOST_DRAWS = 10_000_000
USUAL_DRAWS = 9999
MOST_CELLS = 200_000_000
"""Limit of categories × collections of a simulation, unless more draws are asked for: about ten seconds."""
FEWEST_REJECTIONS = 5
"""Number of simulated collections that are at least as extreme where the p-value is the significance, at least."""
UNSUSPICIOUS = "Nothing speaks against it."
_ADDING = Lock()
"""Two questions that run side by side may test the same reports, and warn of them once."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one test."""

    question: str
    statistic: float
    p_value: float
    standard_error: float
    """Of the p-value, from the number of draws; zero of an exact test."""
    method: str
    rejected: bool
    answer: str
    least_p_value: float
    """The smallest p-value that any reports of this number could have."""
    category: str | None = None
    """The label of the category that differs most, where there is one."""
    simulated: bool = True
    """Whether the p-value is of draws."""


@dataclasses.dataclass(frozen=True)
class Simulation:
    """How p-values are simulated, and what they are compared with."""

    significance: float = 0.05
    draws: int | None = None
    """Number of simulated collections; None is 9999, or as many as take about ten seconds."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses a significance outside of (0, 0.5], and too few draws for it."""
        check_rate("significance", self.significance, small=True)
        rate, problem = f"{option('significance')} {self.significance:g}", None
        if self.significance > 0.5:
            problem = (
                "is the chance to be wrong where there is nothing, so it is small; did you mean "
                f"{1 - self.significance:g}?"
            )
        elif self.significance < 1 / MOST_DRAWS:
            problem = f"is below what {MOST_DRAWS:,} draws can tell"
        if problem:
            raise refusal("significance", f"{rate} {problem}", value=self.significance)
        draws, least = self.most_draws, math.ceil(1 / self.significance) - 1
        if draws > MOST_DRAWS:
            problem = f"must be at most {MOST_DRAWS:,}, got {draws:,}"
        elif draws < least:
            problem = (
                f"{draws} is too few for {rate}: the least p-value would be {1 / (max(draws, 0) + 1):.2g}; take at "
                f"least {least}"
            )
        if problem:
            raise refusal("draws", f"{option('draws')} {problem}", value=draws)
        if not 0 <= self.seed < 2**63:
            raise refusal("seed", f"{option('seed')} must be from 0 to 2⁶³ − 1, got {self.seed}", value=self.seed)

    @property
    def most_draws(self) -> int:
        """The number of draws, if it is not bounded for its time."""
        return USUAL_DRAWS if self.draws is None else self.draws

    def check_draws(self, num_tests: int) -> None:
        """Refuses too few draws for a significance that is divided among several tests."""
        least = math.ceil(num_tests / self.significance) - 1
        if self.most_draws < least:
            raise refusal(
                "draws",
                f"{option('draws')} {self.most_draws:,} is too few for {num_tests:,} categories at "
                f"{option('significance')} {self.significance:g}: give at least {least:,}, or one {option('category')}",
                value=self.most_draws,
            )

    def bounded(self, num_cells: int) -> tuple[Simulation, list[str]]:
        """The same with a known number of draws, of `num_cells` numbers each; a warning says if it is less."""
        fewest = math.ceil(FEWEST_REJECTIONS / self.significance)
        draws = self.draws or min(USUAL_DRAWS, max(MOST_CELLS // num_cells, fewest))
        warning = (
            f"{draws:,} collections are simulated in place of {USUAL_DRAWS:,}, because one has {num_cells:,} numbers; "
            f"{option('draws')} asks for more."
        )
        return dataclasses.replace(self, draws=draws), [warning] * (self.draws is None and draws < USUAL_DRAWS)

    @property
    def key(self) -> jax.Array:
        """The key of the random numbers."""
        return jax.random.key(self.seed)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the tests of `rrjax.inference`."""
        return {"num_draws": self.most_draws, "level": self.significance}

    def outcome(
        self, question: str, result: inference.HypothesisTest, if_so: str, if_not: str, log_least: float, **more: Any
    ) -> Outcome:
        """The outcome of a test: the question, the result, and the answer in words.

        `log_least` is the logarithm of the least p-value that any reports of this number could have: where that is
        above the significance, the test cannot find anything, and says so.
        """
        p_value = float(result.p_value)
        if math.isnan(p_value):
            raise DataError("the test came out as NaN: these counts are beyond what it can compute")
        rejected, least = p_value <= self.significance, math.exp(min(log_least, 0.0))
        if least > self.significance:
            if_not = (
                f"It cannot be found out: with so few reports, or at so large an ε, p is {least:.2g} or more whatever "
                "they say."
            )
        numbers = float(result.statistic), p_value, float(result.standard_error)
        answer = if_so if rejected else if_not
        return Outcome(question, *numbers, result.method, rejected, answer, least, **more)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Test(Answer):
    """The outcomes of statistical tests: questions, p-values, and answers in words."""

    __test__: ClassVar[bool] = False  # pytest takes classes with this name for tests
    written: ClassVar[str] = "All tests"

    outcomes: list[Outcome]
    simulation: Simulation
    collections: list[Reports] = dataclasses.field(default_factory=list)
    notes: Sequence[str] = ()
    about: str = ""
    """What was tested, in a sentence, where there are no collections."""
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    sources: Sequence[Source] = ()

    @property
    def title(self) -> str:
        return "\n".join(self._of_each(lambda each, name: [each.summary(form.printable(name))])) or self.about

    def _of_each(self, lines):
        names = [""] if len(self.collections) == 1 else names_of(self.collections)
        return [line for name, each in zip(names, self.collections, strict=True) for line in lines(each, name)]

    @property
    def warnings(self) -> list[str]:
        own = self._of_each(lambda each, name: [f"{name}: {text}" if name else text for text in each.warnings])
        return [*own, *self.notes]

    @property
    def _asked(self):
        return self.collections

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A row for each test: the fields of an `Outcome`; an empty text where no category differs most."""
        rows = [{**vars(each), "category": each.category or ""} for each in self.outcomes]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "significance": self.simulation.significance,
            "num_draws": self.simulation.most_draws,
            "seed": self.simulation.seed,
            "collections": [each.facts() for each in self.collections],
            **self.more,
            "warnings": self.warnings,
        }

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"tests": [vars(each) for each in self.outcomes]}

    @property
    def sentences(self) -> list[str]:
        level, sentences = f"significance {self.simulation.significance:g}", []
        for each in self.outcomes:
            draws = f"± {each.standard_error:.1g} from {self.simulation.most_draws:,} draws"
            sentences.append(f"{each.answer} p = {each.p_value:.2g} ({draws if each.simulated else 'exact'}), {level}.")
        return sentences

    def blocks(self, top: int = SHOWN) -> list[Block]:
        questions = [Heading(form.printable(each.question)) for each in self.outcomes]
        return [block for both in zip(questions, self.sentences, strict=True) for block in both]

    @property
    def words(self) -> dict[str, str]:
        return {
            "p": "p-value: how often collections that are simulated under the hypothesis are at least as extreme as "
            "this one"
            if all(each.simulated for each in self.outcomes)
            else "p-value: each category is tested exactly, by both tails of its support count under the hypothesis; "
            "the smallest p-value is multiplied by the number of tests (Bonferroni), which holds however the support "
            f"counts depend on each other. Collections of different rates are first randomized further "
            f"({option('seed')})",
            "significance": "the hypothesis is rejected where p is at most this; the probability of a false alarm "
            f"({option('significance')})",
            "statistic": "; ".join(f"{each.statistic:.4g} ({each.method})" for each in self.outcomes),
        }


def names_of(collections: Sequence[Reports]) -> list[str]:
    """Names of collections: those of their files; numbers from one where they have none."""
    return [
        each.name if each.source is not None else f"collection {place}" for place, each in enumerate(collections, 1)
    ]


def check_domains(collections: Sequence[Reports]) -> None:
    """Refuses collections of different categories, or of the same in another order."""
    names, first = names_of(collections), collections[0].counted.domain
    for name, other in zip(names, collections, strict=True):
        domain = other.counted.domain
        if domain != first and domain.fingerprint != first.fingerprint:  # which takes longer; 0:1 is 0,1
            more = for_commands(
                ", which holds for all files; those of `rrjax randomize` carry their own: randomize all with the same "
                "--domain"
            )
            raise refusal(
                "domain",
                "collections must be of the same categories: "
                f"{first.difference(domain, names[0], name)}. Give {option('domain')}{more}",
            )


def check_size(number: int) -> None:
    """Refuses more reports than tests can simulate."""
    if number >= 2**31:
        raise refusal(
            "reports",
            f"tests are simulated, of at most 2,147,483,647 reports in all; these are {number:,}",
            flag="REPORTS",
            value=number,
        )


def label_of(reports: Reports, result: inference.HypothesisTest) -> str | None:
    """The label of the category that differs most; None if there is none."""
    place = int(result.category) if isinstance(result, CategoryTest) else -1
    return form.printable(reports.labels[place]) if place >= 0 else None


def check_contradictions(reports: Reports) -> None:
    """Tests reports against their mechanism and ε, once; adds the tests to them, and a warning if they reject."""
    if reports.metadata_tests:
        return
    with jax.enable_x64(True):
        tests, warnings = _contradictions(reports)
    with _ADDING:
        if not reports.metadata_tests:
            reports.metadata_tests.update(tests)
            reports.warnings.extend(warnings)


def _contradictions(reports: Reports) -> tuple[dict[str, dict[str, float]], list[str]]:
    if reports.tallied is not None:
        tally = reports.tallied.tally
    else:
        number = as_jax_integers(np.asarray(reports.num_reports))
        tally = _tally_of_counts(as_jax_integers(reports.counts), number, reports.mechanism)
    tested, names = inference.contradiction_test(tally, reports.mechanism), ("p_value", "size", "statistic", "expected")
    tests = {each: dict(zip(names, map(float, getattr(tested, each)), strict=True)) for each in tested.parts}
    if reports.tallied is not None and reports.tallied.seeds is not None:
        result = inference.repeated_seed_test(*reports.tallied.seeds)
        tests["repeated_seed"] = {"statistic": float(result.statistic), "p_value": float(result.p_value)}
    p_values = {name: test["p_value"] * len(tests) for name, test in tests.items()}
    rejected = [name for name, p_value in p_values.items() if p_value <= FALSE_ALARM]
    if not rejected:
        return tests, []
    # A category that is impossible alone says enough.
    told = rejected[:1] if rejected[0] == "single" else rejected
    said, least = [_contradiction(reports, tally, name, tests) for name in told], min(p_values.values())
    bound = form.at_most(least) if least > 1e-99 else "1e-99"
    warning = (
        f"The reports contradict their mechanism: {'; '.join(said)}. Whatever the users hold, this happens by "
        f"chance with probability {bound} at most. Do not use these estimates. {reports.possible_causes}"
    )
    return tests, [warning]


@program
def _tally_of_counts(counts: Any, number: Any, mechanism: Any) -> Tally:
    return Tally(counts, number, rates=mechanism.rates)


def _contradiction(reports: Reports, tally: Tally, name: str, tests: dict[str, dict[str, float]]) -> str:
    """What one of the tests rejected, in words."""
    test, number = tests[name], reports.num_reports
    named = "named" if reports.tallied is None or reports.design is not None else "supported"
    if name == "single":
        level = 1 - FALSE_ALARM / len(tests)
        odd = np.isnan(inference.intervals(*reports.support_arguments, level, simultaneous="bonferroni").lower)
        few = odd & (np.asarray(tally.support) < number * np.asarray(tally.q))
        words = [
            (few, "less often than chance alone allows"),
            (odd & ~few, "more often than if all users held that one"),
        ]
        return " and ".join(
            f"{form.number(int(which.sum()), 'category is', 'categories are')} {named} {how}"
            for which, how in words
            if which.any()
        )
    if name == "sum_of_shares":
        shares = form.percent(test["statistic"])
        return f"the unbiased shares sum to {shares}, and should sum to 100\N{NO-BREAK SPACE}% but for chance"
    if name == "repeated_seed":
        return (
            f"{test['statistic']:,.0f} reports have the same hash seed, and each user must draw one, or categories "
            "that meet in a bucket are not told apart"
        )
    observed, expected, size = (f"{test[key]:,.0f}" for key in ("statistic", "expected", "size"))
    if name == "frequent":
        most = "most frequent category is" if size == "1" else f"{size} most frequent categories are"
        return f"the {most} {named} {observed} times (expected of any distribution: {expected} or fewer)"
    few = "by few reports" if np.ndim(tally.q) else f"by {'no report' if size == '0' else f'{size} or fewer reports'}"
    bound = "or fewer" if name == "rare" else "or more"
    return (
        f"{observed} of {reports.num_categories:,} categories are {named} {few} (expected of any distribution: "
        f"{expected} {bound})"
    )


def least_of_any(reports: Reports) -> float:
    """Logarithm of the smallest p-value of the test whether any distribution fits.

    It is reached where all reports name one category, which a point mass makes with p^N.
    """
    rates, size, number = reports.rates, reports.num_categories, reports.num_reports
    held, other = math.log1p(-float(rates.not_p)), math.log(max(float(rates.q), 1e-300))
    return float(np.logaddexp(number * held, math.log(size - 1) + number * other))


def least_of_one(reports: Reports, theta: np.ndarray) -> float:
    """Logarithm of the smallest p-value of the test of one distribution: all reports name its rarest category."""
    law = float(reports.rates.q) + float(reports.rates.d) * theta / theta.sum()
    rarest = max(float(law.min()), 1e-300)
    return math.log(np.sum(law <= rarest * (1 + 1e-9))) + reports.num_reports * math.log(rarest)


def least_of_fit(reports: Reports, theta: np.ndarray | None) -> float:
    """Logarithm of the smallest p-value of an exact test of fit: all reports support a category, or none does."""
    rates = reports.rates
    if theta is None and not (reports.num_categories == 2 and reports.mechanism.same_size):
        return -math.inf  # all categories together are tested too
    if theta is None:
        law = np.minimum(rates.p, rates.not_q)
    else:
        reported = np.asarray(rates.q + rates.d * (theta / theta.sum()))
        law = np.minimum(reported, 1 - reported)
    return math.log(2 * int(num_tests_of([reports.tally()]))) + reports.num_reports * math.log(
        max(float(np.min(law)), 1e-300)
    )


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
