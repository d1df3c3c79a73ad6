"""Answers of two samples to a survey design with two unknown shares: that of yes, and that of who breaks the rule."""

from __future__ import annotations

import csv
import dataclasses
import math
import os
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import jax
import numpy as np

from rrjax import inference
from rrjax.data.errors import option, refusal
from rrjax.io.domain import Domain
from rrjax.io.rows import count_pairs
from rrjax.io.source import Source
from rrjax.mechanisms import Compliance, TwoSamples, UnrelatedQuestionTwoSamples
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Block, Cells
from rrjax.reports.kind import Kind, check_rate
from rrjax.reports.pooled import normal_interval
from rrjax.reports.reading import check_design
from rrjax.reports.yes_or_no import place_of_yes, said

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AMONG = {"complying": "among those who follow the rule", "all": "among all", "least": "among all (lower bound)"}
"""Of whom the share of yes is, by the design."""
MISFIT = 0.01
"""Largest p-value at which the answers are said not to fit the design."""


class Sample(NamedTuple):
    """The column that says which sample a row is of, and its two levels in the order of the design's parameters."""

    column: str
    first: str
    second: str

    @classmethod
    def of(cls, text: str) -> Sample:
        """Reads COLUMN=FIRST,SECOND; a level with a comma is in quotes.

        Raises:
            ArgumentError, UsageError: The text is none.
        """
        column, _, listed = text.partition("=")
        try:
            levels = [each.strip() for each in next(csv.reader([listed], skipinitialspace=True), [])]
        except csv.Error:  # several lines
            levels = []
        if not column or len(set(levels)) != 2 or len(levels) != 2:
            problem = f"{option('sample')} {text}: give COLUMN=FIRST,SECOND, such as question=sensitive,anchor"
            raise refusal("sample", problem, value=text)
        return cls(column, *levels)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class TwoSampleReports(Kind):
    """Counted answers of two samples to a survey design with two unknown shares.

    `rrjax.read` makes them with the name of such a design and `sample=`.
    """

    called_kind: ClassVar[str] = "answers of two samples"

    design: TwoSamples
    counts: np.ndarray
    """`[2, 2]`, the numbers of yes and no in each sample."""
    domain: Domain
    """The two answers."""
    yes: int
    """The number of the answer that is yes, 0 or 1."""
    sample: Sample
    num_missing: int
    """Rows without an answer or a sample, which do not count."""

    @property
    def warnings(self) -> list[str]:
        """Whether rows are left out."""
        if not self.num_missing:
            return []
        return [f"{form.number(self.num_missing, 'row has', 'rows have')} no answer or no sample, and are left out."]

    def summary(self) -> str:
        """A sentence about the answers."""
        numbers = " and ".join(f"{number:,}" for number in self.counts.sum(axis=1))
        return f"{numbers} answers of two samples, by {self.design.name}{said(self.domain, self.yes)}"

    def shares(self, level: float = 0.95, *, same_people: bool = False) -> TwoSampleShares:
        """Estimates both unknown shares.

        Args:
            level: Confidence level of the intervals, in (0, 1).
            same_people: Whether both samples are answers of the same people, such as to a sensitive and an anchor
                question.

        Returns:
            `TwoSampleShares`, computed in float64.

        Raises:
            ArgumentError: A level outside of (0, 1), or the same people for a design of different ones.
        """
        check_rate("level", level)
        flag = "--same-people"
        if same_people and not isinstance(self.design, Compliance):
            problem = f"the samples of {option('mechanism')} {self.design.name} must be of different people"
            message = f"{option('same_people', flag)}: {problem}: leave it out"
            raise refusal("same_people", message, flag=flag)
        with jax.enable_x64(True):
            if isinstance(self.design, Compliance):
                found: Any = inference.compliance(self.counts, self.design, level=level, same_people=same_people)
            else:
                design = cast("UnrelatedQuestionTwoSamples", self.design)
                found = inference.unrelated_question(self.counts, design, level=level)
        numbers = {name: np.asarray(value).tolist() for name, value in found._asdict().items()}
        return TwoSampleShares(self, level, same_people, numbers)

    def __repr__(self) -> str:
        """The sentence about the answers, and what is odd about them."""
        return "\n".join([self.summary(), *(f"Warning: {warning}" for warning in self.warnings)])


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class TwoSampleShares(Answer):
    """Two unknown shares from two samples: that of yes, and of who does not follow the rule, or says yes anyway."""

    written: ClassVar[str] = "Estimates"

    reports: TwoSampleReports
    level: float
    """The confidence level of the intervals."""
    same_people: bool
    """Whether both samples are answers of the same people."""
    numbers: dict[str, Any]
    """The fields of `rrjax.inference.compliance`, or of `rrjax.inference.unrelated_question`."""

    @property
    def title(self) -> str:
        """The numbers of answers, their design, and which answer is yes."""
        return self.reports.summary()

    @property
    def among(self) -> str:
        """Of whom the share of yes is."""
        design = self.reports.design
        return AMONG[design.share if isinstance(design, Compliance) else "all"]

    @property
    def second(self) -> str:
        """The field of the second unknown share."""
        return "not_complying" if "not_complying" in self.numbers else "unrelated"

    @property
    def second_limits(self) -> tuple[float, float]:
        """The limits of the second unknown share, by the normal approximation; NaN at the boundary."""
        share, error = self.numbers[self.second], self.numbers[f"{self.second}_error"]
        lower, upper = normal_interval(np.asarray(share), np.asarray(error), self.level)
        return float(lower), float(upper)

    @property
    def shares(self) -> dict[str, tuple[float, float, float, float]]:
        """Share, standard error and limits by title; NaN for what is not known."""
        numbers = self.numbers
        other = {
            "not_complying": "share who do not follow the rule",
            "unrelated": "share of yes to the unrelated question",
        }[self.second]
        found = {
            f"share of yes {self.among}": (*(numbers[each] for each in ("share", "standard_error", "lower", "upper")),),
            other: (numbers[self.second], numbers[f"{self.second}_error"], *self.second_limits),
        }
        if "naive" in numbers:
            found["share of yes if everybody followed the rule"] = (numbers["naive"], math.nan, math.nan, math.nan)
        return found

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """One row: the mechanism, and all numbers."""
        numbers = {name: value for name, value in self._limits().items() if isinstance(value, float)}
        return {name: np.asarray([value]) for name, value in {"mechanism": self.reports.design.name, **numbers}.items()}

    def _limits(self):
        return self.numbers | dict(
            zip((f"{self.second}_lower", f"{self.second}_upper"), self.second_limits, strict=True)
        )

    @property
    def facts(self) -> dict[str, Any]:
        """The design, the counts and all numbers."""
        reports = self.reports
        return {
            "mechanism": reports.design.name,
            "counts": reports.counts.tolist(),
            "num_missing": reports.num_missing,
            "yes": str(reports.domain.labels()[reports.yes]),
            "warnings": self.warnings,
            "level": self.level,
            "same_people": self.same_people,
            "share_is": self.among,
            **self._limits(),
        }

    @property
    def warnings(self) -> list[str]:
        """Rows that are left out, answers that do not fit the design, and an estimate at the boundary."""
        numbers, sample, sentences = self.numbers, self.reports.sample, list(self.reports.warnings)
        if numbers["fit_p_value"] <= MISFIT:
            sentences.append(
                f"No shares explain these answers ({_p(numbers['fit_p_value'])}): do not use the estimates. Check "
                f"{option('parameters', '--parameter')}, which answer is yes, and {option('sample')}."
            )
            if numbers["swapped_p_value"] > MISFIT:
                exchanged = f"{sample.column}={sample.second},{sample.first}"
                sentences.append(
                    f"With the two samples exchanged they fit ({_p(numbers['swapped_p_value'])}): give "
                    f"{option('sample')} {exchanged} if the parameters are in that order."
                )
        if not math.isfinite(numbers["share"]):
            sentences.append("By these answers nobody follows the rule, so they say nothing of those who do.")
        elif not math.isfinite(numbers["standard_error"]):
            sentences.append("The estimate is at the boundary of possible shares, and has no standard errors.")
        return sentences

    @property
    def sentences(self) -> list[str]:
        """The tests, and which intervals these are."""
        complies = "p_value" in self.numbers
        return [
            *([f"Test that everybody follows the rule: {_p(self.numbers['p_value'])}."] if complies else []),
            f"Test that the answers fit the design: {_p(self.numbers['fit_p_value'])}.",
            "The interval of the share of yes is that of the profile likelihood, the other one that of the normal "
            "approximation.",
        ]

    @property
    def words(self) -> dict[str, str]:
        """What each row is, and the interval."""
        yes, other, *naive = self.shares
        meant = {"not_complying": "whatever they hold", "unrelated": "as if it were put to everybody"}
        found = {yes: "yes to the sensitive question, by maximum likelihood", other: meant[self.second]}
        found |= dict.fromkeys(naive, "the maximum likelihood estimate of who trusts all answers")
        return found | {form.interval(self.level): "of one share; the two intervals are not simultaneous"}

    def cells(self, top: int = SHOWN) -> Cells:
        """A row for each share."""
        del top
        rows = []
        for title, (share, error, lower, upper) in self.shares.items():
            known = [form.percent(each) if math.isfinite(each) else "" for each in (share, error)]
            rows.append([title, *known, form.between(lower, upper) if math.isfinite(lower) else ""])
        return Cells(["", "estimate", "std. error", form.interval(self.level)], rows, width=60)

    def blocks(self, top: int = SHOWN) -> list[Block]:
        """The table, and the sentences as one paragraph."""
        return [self.cells(top), " ".join(self.sentences)]

    def figure(self) -> Figure:
        """Both unknown shares with their intervals."""
        from rrjax.figures import forest_figure

        titles, found = zip(*list(self.shares.items())[:2], strict=True)
        share, _, lower, upper = zip(*found, strict=True)
        return forest_figure({"": (titles, share, lower, upper, True)}, level=self.level, title=self.title)


def read_two_samples(
    source: Source,
    domain: Domain | None,
    design: TwoSamples,
    yes: str | None,
    sample: str | None,
    epsilon: float | None = None,
    counts: str | None = None,
) -> TwoSampleReports:
    """Counts the answers of two samples.

    Args:
        source: The files, with the column of the answers.
        domain: The two answers.
        design: The design.
        yes: The answer that is yes; None for the one that means it.
        sample: The column that says which sample a row is of, and its levels: COLUMN=FIRST,SECOND.
        epsilon: ε, which does not apply.
        counts: Name of a column of counts, which does not apply.

    Returns:
        `TwoSampleReports`.

    Raises:
        DataError: Files that cannot be used.
        ArgumentError, UsageError: Another number of answers, no column, other levels than those of the column, or
            files that say themselves how they were randomized.
    """
    if sample is None:
        wanted = option('sample="COLUMN=FIRST,SECOND"', "--sample COLUMN=FIRST,SECOND")
        has = f"{option('mechanism')} {design.name} has two samples"
        raise refusal("sample", f"{has}: say with {wanted} which sample a row is of")
    chosen, name = Sample.of(sample), os.path.basename(source.files()[0])
    if counts is not None:
        raise refusal("counts", f"{option('counts')} does not apply to {design.name}: leave it out", value=counts)
    if domain is None or domain.num_categories != 2:
        raise refusal(
            "domain",
            f"{option('mechanism')} {design.name} needs {option('domain')}, its two answers: give 0:1 or a file of "
            "labels, one a line",
        )
    place = place_of_yes(domain, design.name, yes)
    check_design(source, name, epsilon, domain, design.name)
    if source.column is None:
        raise refusal("column", f"{option('sample')} needs {option('column')}, the column of the answers")
    pairs = count_pairs(source, (source.column, chosen.column), (domain, None))
    known = [str(label) for label in pairs.domains[1].labels()]
    levels = chosen.first, chosen.second
    lacking = next((level for level in levels if level not in known), None)
    if lacking is not None or len(known) != 2:
        shown = ", ".join(map(repr, known[:5])) + " …" * (len(known) > 5)
        problem = f"two are wanted, and it has {len(known):,}" if lacking is None else f"no row has {lacking!r}"
        where = f"{option('sample')} {sample}: {name}, column {chosen.column!r}"
        raise refusal("sample", f"{where}: {problem}; its levels are {shown}", value=sample)
    said_by_sample = pairs.counts.T[[known.index(level) for level in levels]][:, [place, 1 - place]]
    return TwoSampleReports(design, said_by_sample, domain, place, chosen, pairs.num_missing)


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value > 1e-99 else "p < 1e-99"
