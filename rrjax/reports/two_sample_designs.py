"""Answers of two samples to a survey design with two unknown shares: that of yes, and that of who breaks the rule."""

from __future__ import annotations

import csv
import dataclasses
import math
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from rrjax import inference
from rrjax.data.errors import check_rate, option, refusal
from rrjax.io.database import spelling
from rrjax.io.domain import Domain
from rrjax.io.read import CountedReports, count_by
from rrjax.io.rows import read_cells, read_rows
from rrjax.io.source import Source
from rrjax.mechanisms import Compliance, TwoSamples
from rrjax.models.results import normal_interval
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells
from rrjax.reports.kind import ColumnQuestions, Kind
from rrjax.reports.parameters import place_of_yes, said
from rrjax.reports.reading import check_design

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AMONG = {"complying": "among those who follow the rule", "all": "among all", "least": "among all (lower bound)"}
"""Of whom the share of yes is, by the design."""
MISFIT = 0.01
"""Largest p-value at which the answers are said not to fit the design."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class TwoSampleReports(Kind):
    """Counted answers of two samples to a survey design with two unknown shares.

    `rrjax.read` makes them with the name of such a design and `sample=`.

    Example:
        >>> import numpy as np, rrjax
        >>> from rrjax.io.domain import Domain
        >>> design = rrjax.mechanisms.CheatingDetection(forced=[0.25, 0.75])
        >>> counts, answers = np.array([[400, 600], [550, 450]]), Domain.of(["yes", "no"])
        >>> rrjax.reports.TwoSampleReports(design, counts, answers, 0, ("die", "a", "b"), num_missing=0)
        1,000 and 1,000 answers of two samples, by cheating-detection; yes: yes, no: no
    """

    called_kind: ClassVar[str] = "answers of two samples"

    design: TwoSamples
    counts: np.ndarray
    """`[2, 2]`, the numbers of yes and no in each sample."""
    domain: Domain
    """The two answers."""
    yes: int
    """The number of the answer that is yes, 0 or 1."""
    sample: tuple[str, str, str]
    """The column that says which sample a row is of, and its two levels in the order of the design's parameters."""
    num_missing: int
    """Rows without an answer or a sample, which do not count."""
    source: Source | None = None
    """Their files; None for a table of counts."""

    @property
    def inputs(self) -> list[Source]:
        return [*super().inputs, *self.domain.sources]

    @property
    def warnings(self) -> list[str]:
        said = f"{form.number(self.num_missing, 'row has', 'rows have')} no answer or no sample, and are left out."
        return [said] * bool(self.num_missing)

    @property
    def numbers(self) -> str:
        """The numbers of answers in both samples, in words."""
        return " and ".join(f"{number:,}" for number in self.counts.sum(axis=1))

    def facts(self) -> dict[str, Any]:
        return {
            "mechanism": self.design.name,
            "counts": self.counts.tolist(),
            "num_missing": self.num_missing,
            "yes": str(self.domain.labels()[self.yes]),
            "warnings": self.warnings,
        }

    def summary(self) -> str:
        return f"{self.numbers} answers of two samples, by {self.design.name}{said(self.domain, self.yes)}"

    # What a regression asks of reports; see `regression_of`.
    @property
    def files(self) -> Source:
        """The files."""
        if self.source is None:
            raise refusal("counts", f"{option('counts')}: a regression needs a row for each answer")
        return self.source

    counted = files  # which has the column of the answers
    contradicted, tallied, num_categories = False, True, 2

    @property
    def labels(self) -> np.ndarray:
        """The two answers."""
        return self.domain.labels()

    @cached_property
    def samples(self) -> np.ndarray:
        """The sample of each row, 0 or 1; −1 without one."""
        column, *levels = self.sample
        places = {spelling(level): place for place, level in enumerate(levels)}
        return np.asarray([places.get(spelling(cell), -1) for (cell,) in read_cells(self.files, [column])])

    def reports(self, what: str) -> np.ndarray:
        """All answers in the order of their rows; −1 for a missing one."""
        return np.where(self.samples >= 0, read_rows(self.files, self.domain).indices, -1)

    regress = ColumnQuestions.regress

    def regression(self, result: Any, columns: list[str], others: list[str], labels: list[str], level: float) -> Any:
        """A regression compared with `labels[0]`, its table, the second share, and what is said of a misfit.

        `columns` are those of the covariates, and `others` those of the covariates of the second share.
        """
        from rrjax.reports.regression import coefficient_table

        called, size = self._second, len(columns) + 1
        has_profile = not (result.robust or np.any(result.state[2]))
        limits = np.array(result.profile_intervals(level)) if has_profile else np.zeros((size, 2))
        if labels[0] != str(self.labels[self.yes]):  # coefficients of the model are log-odds of a no
            flipped = {name: -getattr(result, name) for name in ("standard_coefficients", "naive")}
            result, limits[:size] = dataclasses.replace(result, **flipped), -limits[:size, ::-1]
        clusters = result.num_clusters
        table = coefficient_table(result.coefficients, result.standard_errors, clusters, columns, labels, level)
        share, error = float(result.nuisance), float(result.nuisance_error)
        lower, upper = map(float, normal_interval(share, error, level, clusters))
        if others:
            own = result.nuisance_coefficients, result.nuisance_standard_errors
            added = coefficient_table(*own, clusters, others, ["", called], level)
            table = {name: np.concatenate([each, added[name]]) for name, each in table.items()}
        elif has_profile:
            lower, upper = map(float, jax.nn.sigmoid(limits[-1]))
        if has_profile:
            table |= {"lower": limits[: len(table["term"]), 0], "upper": limits[: len(table["term"]), 1]}
        second = {"called": called, "share": share, "standard_error": error, "lower": lower, "upper": upper}
        second |= {"p_value": float(result.p_value), "naive": result.naive[:, 0].tolist(), "profile": has_profile}
        tests = self.shares(level).numbers
        return result, table, second, self.misfit(tests["fit_p_value"], tests["swapped_p_value"])

    @property
    def _second(self):
        """The second share of a regression."""
        if not isinstance(self.design, Compliance):
            return "share of yes to the unrelated question"
        of_carriers = self.design.share == "all"
        return "share of no among those with the attribute" if of_carriers else "share who do not follow the rule"

    def second_blocks(self, second: dict[str, Any], level: float) -> list[Any]:
        """The second share of a regression, the test that there is none, and of whom the coefficients are."""
        known = [
            form.percent(second[name]) if math.isfinite(second[name]) else "" for name in ("share", "standard_error")
        ]
        limits = form.between(second["lower"], second["upper"]) if math.isfinite(second["lower"]) else ""
        blocks: list[Any] = [
            Cells(["", "estimate", "std. error", form.interval(level)], [[second["called"], *known, limits]])
        ]
        if math.isfinite(second["p_value"]):
            blocks.append(f"Test that everybody follows the rule: {_p(second['p_value'])}.")
        if self.design.share != "all":
            blocks.append("The log-odds above are among those who follow the rule.")
        return blocks

    def misfit(self, fit: float, swapped: float) -> list[str]:
        """What is said of answers that do not fit the design, by the p-values of its tests."""
        if fit > MISFIT:
            return []
        said = [
            f"No shares explain these answers ({_p(fit)}): do not use the estimates. Check "
            f"{option('parameters', '--parameter')}, which answer is yes, and {option('sample')}."
        ]
        if swapped > MISFIT:
            column, first, second = self.sample
            said.append(
                f"With the two samples exchanged they fit ({_p(swapped)}): give {option('sample')} "
                f"{column}={second},{first} if the parameters are in that order."
            )
        return said

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
        design: Any = self.design
        with jax.enable_x64(True):
            if isinstance(design, Compliance):
                fit: Any = inference.compliance(self.counts, design, level=level, same_people=same_people)
            elif not same_people:
                fit = inference.unrelated_question(self.counts, design, level=level)
            else:
                flag = "--same-people"
                problem = (
                    f"the samples of {option('mechanism')} {design.name} must be of different people: leave it out"
                )
                raise refusal("same_people", f"{option('same_people', flag)}: {problem}", flag=flag)
        numbers = {name: np.asarray(value).tolist() for name, value in fit._asdict().items()}
        return TwoSampleShares(self, level, same_people, numbers)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class TwoSampleShares(Answer):
    """Two unknown shares from two samples: that of yes, and of who does not follow the rule, or says yes anyway.

    `columns` have one row: the mechanism, and all numbers.
    """

    written: ClassVar[str] = "Estimates"
    page: ClassVar[str] = "mechanisms"

    reports: TwoSampleReports
    level: float
    same_people: bool
    """Whether both samples are answers of the same people."""
    numbers: dict[str, Any]
    """The fields of `rrjax.inference.compliance`, or of `rrjax.inference.unrelated_question`."""

    @cached_property
    def fields(self) -> dict[str, Any]:
        """`numbers`, of whom the share is, and limits of the other share by the normal approximation."""
        second = "not_complying" if "not_complying" in self.numbers else "unrelated"
        share, error = (np.asarray(self.numbers[name]) for name in (second, f"{second}_error"))
        lower, upper = map(float, normal_interval(share, error, self.level))
        among = AMONG[self.reports.design.share]
        return self.numbers | {"share_is": among, f"{second}_lower": lower, f"{second}_upper": upper}

    @property
    def shares(self) -> dict[str, tuple[float, ...]]:
        """Share, standard error and limits by title; NaN for what is not known."""
        return {title: tuple(self.fields.get(each, math.nan) for each in names) for title, _, *names in self._rows}

    @property
    def _rows(self):
        """Title, meaning, and the fields of share, standard error and limits."""
        yes, limits = f"share of yes {self.fields['share_is']}", ("lower", "upper")
        rows = [
            (yes, "yes to the sensitive question, by maximum likelihood", "share", "standard_error", *limits),
            ("share who do not follow the rule", "whatever their true answer is", *_named("not_complying")),
            ("share of yes to the unrelated question", "as if it were put to everybody", *_named("unrelated")),
            ("share of yes if everybody followed the rule", "the maximum likelihood estimate if so", *_named("naive")),
        ]
        return [row for row in rows if row[2] in self.fields]

    @property
    def _table(self):
        numbers = {name: np.asarray([value]) for name, value in self.fields.items() if isinstance(value, float)}
        return {"mechanism": np.asarray([self.reports.design.name]), **numbers}

    @property
    def _results(self):
        return {"level": self.level, "same_people": self.same_people, **self.fields}

    @property
    def warnings(self) -> list[str]:
        numbers = self.numbers
        sentences = [*self.reports.warnings, *self.reports.misfit(numbers["fit_p_value"], numbers["swapped_p_value"])]
        if not math.isfinite(numbers["share"]):
            sentences.append("By these answers nobody follows the rule, so they say nothing of those who do.")
        elif not math.isfinite(numbers["standard_error"]):
            sentences.append("The estimate is at the boundary of possible shares, and has no standard errors.")
        return sentences

    @property
    def sentences(self) -> list[str]:
        complies, inside = "p_value" in self.numbers, math.isfinite(self.numbers["standard_error"])
        return [
            *([f"Test that everybody follows the rule: {_p(self.numbers['p_value'])}."] if complies else []),
            f"Test that the answers fit the design: {_p(self.numbers['fit_p_value'])}.",
            "The interval of the share of yes is that of the profile likelihood"
            f"{', the other one that of the normal approximation' if inside else ''}.",
        ]

    @property
    def words(self) -> dict[str, str]:
        words = {title: meaning for title, meaning, *_ in self._rows}
        return words | {form.interval(self.level): "of one share; the two intervals are not simultaneous"}

    def cells(self, top: int = SHOWN) -> Cells:
        rows = []
        for title, (share, error, lower, upper) in self.shares.items():
            known = [form.percent(each) if math.isfinite(each) else "" for each in (share, error)]
            rows.append([title, *known, form.between(lower, upper) if math.isfinite(lower) else ""])
        return Cells(["", "estimate", "std. error", form.interval(self.level)], rows, width=60)

    def figure(self, ax: Axes | None = None) -> Figure:
        """Both unknown shares with their intervals."""
        from rrjax.figures import forest_figure

        names = "share of yes", "do not follow the rule" if "naive" in self.fields else "yes, unrelated question"
        share, _, lower, upper = zip(*list(self.shares.values())[:2], strict=True)
        title = f"{self.reports.numbers} answers of two samples\nshare of yes: {self.fields['share_is']}"
        panel = (names, share, lower, upper, True)
        return forest_figure({self.reports.design.name.replace("-", " "): panel}, level=self.level, title=title, ax=ax)


def read_two_samples(
    source: Source,
    domain: Domain | None,
    design: TwoSamples,
    yes: str | None,
    sample: str | None,
    epsilon: float | None = None,
    counts: str | None = None,
) -> TwoSampleReports:
    """Counts the answers of two samples; `yes` is the label of the yes, arguments and errors are as of `rrjax.read`."""
    if sample is None:
        wanted = option('sample="COLUMN=FIRST,SECOND"', "--sample COLUMN=FIRST,SECOND")
        has = f"{option('mechanism')} {design.name} has two samples"
        raise refusal("sample", f"{has}: say with {wanted} which sample a row is of")
    column, *levels = _parsed(sample)
    if domain is None or domain.num_categories != 2:
        needs = f"{option('mechanism')} {design.name} needs {option('domain')}, its two answers"
        raise refusal("domain", f"{needs}: give 0:1 or a file of labels, one a line")
    place, name = place_of_yes(domain, design.name, yes), os.path.basename(source.files()[0])
    check_design(source, name, epsilon, domain, design.name)
    if source.column is None:
        raise refusal("column", f"{option('sample')} needs {option('column')}, the column of the answers")
    samples: dict[str, list[CountedReports]] = {}
    for (cell,), each in count_by(source, (column,), domain, counts).items():  # cells such as 1 and 1.0 are one level
        samples.setdefault(spelling(cell), []).append(each)
    known = [level for level, parts in samples.items() if level and any(_answers_in(part) for part in parts)]
    lacking = next((level for level in levels if spelling(level) not in known), None)
    if lacking is not None or len(known) != 2:
        shown = ", ".join(map(repr, known[:5])) + " …" * (len(known) > 5)
        problem = f"two are wanted, and it has {len(known):,}" if lacking is None else f"no row has {lacking!r}"
        where = f"{option('sample')} {sample}: {name}, column {column!r}"
        raise refusal("sample", f"{where}: {problem}; its levels are {shown}", value=sample)
    totals = [np.sum([part.counts for part in samples[spelling(level)]], axis=0) for level in levels]
    by_sample = np.stack(totals)[:, [place, 1 - place]]
    num_missing = sum(part.num_rows for parts in samples.values() for part in parts) - int(by_sample.sum())
    named, files = (column, levels[0], levels[1]), source if counts is None else None
    return TwoSampleReports(design, by_sample, domain, place, named, num_missing, files)


def _answers_in(counts: CountedReports) -> int:
    return counts.num_rows - counts.num_missing


def _parsed(text: str) -> tuple[str, str, str]:
    """The column and its two levels; a level with a comma is in quotes."""
    column, _, listed = text.partition("=")
    try:
        levels = [each.strip() for each in next(csv.reader([listed], skipinitialspace=True), [])]
    except csv.Error:  # several lines
        levels = []
    if not column or len(levels) != 2 or spelling(levels[0]) == spelling(levels[1]):
        problem = f"{option('sample')} {text}: give COLUMN=FIRST,SECOND, such as question=sensitive,anchor"
        raise refusal("sample", problem, value=text)
    return column, levels[0], levels[1]


def _named(share: str) -> tuple[str, ...]:
    return share, f"{share}_error", f"{share}_lower", f"{share}_upper"


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value > 1e-99 else "p < 1e-99"
