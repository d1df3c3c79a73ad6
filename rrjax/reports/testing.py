"""Statistical tests of reports: how a test is simulated and judged, and the answer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from rrjax import inference
from rrjax.data.errors import DataError, check_rate, option, refusal
from rrjax.inference.marginal_tests import CategoryTest
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Block, Heading
from rrjax.reports.reports import Reports

MOST_DRAWS = 10_000_000
USUAL_DRAWS = 9999
MOST_CELLS = 200_000_000
"""Limit of categories × collections of a simulation, unless more draws are asked for: about ten seconds."""
FEWEST_REJECTIONS = 5
"""Number of simulated collections that are at least as extreme where the p-value is the significance, at least."""
UNSUSPICIOUS = "Nothing speaks against it."


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
    """Whether the p-value is at most the significance."""
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
    """Warnings about the test."""
    about: str = ""
    """What was tested, in a sentence, where there are no collections."""
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further facts."""

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
        level, found = f"significance {self.simulation.significance:g}", []
        for each in self.outcomes:
            draws = f"± {each.standard_error:.1g} from {self.simulation.most_draws:,} draws"
            found.append(f"{each.answer} p = {each.p_value:.2g} ({draws if each.simulated else 'exact'}), {level}.")
        return found

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
