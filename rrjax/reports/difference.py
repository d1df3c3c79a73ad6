"""The difference of two collections: last year and this year, two groups, direct and indirect questioning."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeAlias

import numpy as np

from rrjax.data.errors import check_rate, option, refusal
from rrjax.data.tally import Tally
from rrjax.inference.marginal_tests import num_tests_of
from rrjax.inference.share_differences import DifferenceTest, PartCounts, share_differences
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells, rest_of, rows_of_table, table_of
from rrjax.reports.by_respondent import ByRespondentReports
from rrjax.reports.functionals import parts_of, rows_left_out
from rrjax.reports.hypotheses import check_alike
from rrjax.reports.parts import Groups, text_of_p
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import Reports, left_out, levels_alike
from rrjax.reports.surveys import Sample, Surveyed, survey_differences

FEW_REPORTS = 30
"""Number of reports of a group below which the error of a sample survey is hardly known."""
Side: TypeAlias = Reports | Groups
"""A collection, or several groups of one population."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Difference(Answer):
    """The shares of one collection less those of another, whatever their mechanisms.

    `columns` are `[K]` each: label, first, second, difference, standard_error, lower, upper, p_value.
    """

    page: ClassVar[str] = "inference"

    first: Side
    second: Side
    names: tuple[str, str]
    """What the two are called."""
    sizes: tuple[int, int]
    """The number of reports of both."""
    estimates: np.ndarray
    """Unbiased shares and their standard errors of both, `[2, 2, K]`; shares may be negative."""
    errors: np.ndarray
    """Standard errors of the differences, `[K]`; zero where no answer tells it."""
    test: DifferenceTest
    """Limits and p-values, simultaneous for `num_tests` categories."""
    degrees: float
    """The smallest degrees of freedom of sample surveys; else infinite."""
    num_tests: int
    """The number of different questions: one for two categories whose estimates add up to one."""
    level: float
    by: str | None
    """The column whose levels are compared."""
    sample: Sample
    notes: list[str]  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def sides(self) -> tuple[list[Reports], list[Reports]]:
        """The collections of both."""
        first, second = map(_parts, (self.first, self.second))
        return first, second

    @property
    def reports(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The first collection."""
        return self.sides[0][0]

    @property
    def _asked(self):
        return [each for side in self.sides for each in side]

    @property
    def _table(self):
        first, second = self.estimates[:, 0]
        error = np.where(self.errors > 0, self.errors, np.nan)
        columns = {"first": first, "second": second, "difference": first - second, "standard_error": error}
        return {"label": self.reports.labels, **columns, **self.test._asdict()}

    @property
    def _ranks(self):
        """What the rows are sorted by; the two of a yes and a no are equal."""
        table = self._table
        return np.round(-np.abs(table["difference"] / table["standard_error"]), 9)

    @property
    def title(self) -> str:
        if self.by is not None:
            return self.first.summary()
        titles = zip(self.names, self.sides, strict=True)
        return "\n".join(each.summary(name) for name, side in titles for each in side)

    @property
    def warnings(self) -> list[str]:
        if self.by is not None:
            return [*self.first.warnings, *self.notes]
        sides = zip(self.names, (self.first, self.second), strict=True)
        return [*(f"{name}: {warning}" for name, side in sides for warning in side.warnings), *self.notes]

    @property
    def facts(self) -> dict[str, Any]:
        sides = zip(("first", "second"), self.names, self.sides, self.sizes, strict=True)
        facts = {
            place: {
                "name": name,
                "num_reports": number,
                "mechanisms": [each.mechanism.name for each in side],
                "reports": side[0].paths,
            }
            for place, name, side, number in sides
        }
        facts |= {"by": self.by, **dataclasses.asdict(self.sample), "degrees": self.degrees}
        p_value = float(np.nanmin(self._table["p_value"], initial=1))
        return {**facts, "warnings": self.warnings, "level": self.level, "p_value": p_value}

    @property
    def sentences(self) -> list[str]:
        table = self._table
        with np.errstate(divide="ignore"):
            chances = np.round(np.log(np.nan_to_num(table["p_value"], nan=2)), 9)
        place = int(np.lexsort((self._ranks, chances))[0])  # of several with one p-value, such as 1, the first row
        place = place if self.reports.yes is None else self.reports.yes
        label, (first, second) = form.printable(self.reports.labels[place]), self.names
        points, error = (100 * table[key][place] for key in ("difference", "standard_error"))
        told = (
            f"{label}: {first} less {second} is {points:+.2f} ± {error:.2f} percentage points (standard error), "
            f"p {text_of_p(table['p_value'][place])}."
        )
        if not error > 0:
            told = f"{label}: these answers do not tell how large the error of {first} less {second} is."
        law = "Intervals and p-values are those of a score test of independent counts, by a saddlepoint approximation"
        if math.isfinite(self.degrees):
            law = f"Intervals and p-values are those of Student's t with {self.degrees:,.0f} degrees of freedom"
            law += " (Welch's, at most clusters less strata)" * bool(self.sample.strata or self.sample.clusters)
        more = f", simultaneous for all {self.num_tests:,} categories (Bonferroni)" if self.num_tests > 1 else ""
        return [told, f"{law}{more}."]

    @property
    def words(self) -> dict[str, str]:
        return {
            f"{self.names[0]}, {self.names[1]}": "unbiased shares, which may be negative",
            "difference": f"the share among {self.names[0]} less that among {self.names[1]}",
            "p": "how likely so large a difference would be if there were none",
        }

    def cells(self, top: int = SHOWN) -> Cells:
        table = self._table
        places = np.argsort(self._ranks, kind="stable")[:top]
        headings = [*self.names, "difference", "std. error"]
        keys = ("first", "second", "difference", "standard_error")
        columns: list[Any] = [("category", table["label"], form.printable)]
        columns += [(heading, table[key], _or_dash(form.percent)) for heading, key in zip(headings, keys, strict=True)]
        limits = np.transpose((table["lower"], table["upper"]))
        columns += [(form.interval(self.level), limits, lambda each: form.between(*each))]
        columns += [("p", table["p_value"], _or_dash(lambda each: text_of_p(each).removeprefix("= ")))]
        rest = rest_of(len(table["label"]) - len(places), "category", "categories")
        return table_of(columns, places, rest=rest)

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"categories": rows_of_table({name: each[:top] for name, each in self._table.items()})}


def _or_dash(text: Callable[[float], str]) -> Callable[[float], str]:
    return lambda each: text(each) if each == each else "–"


def _parts(side: Side) -> list[Reports]:
    return list(side.parts.values()) if isinstance(side, Groups) else [side]


def _counted(parts: list[Reports]) -> list[PartCounts]:
    """The support counts of the parts of a side; their estimates are weighted by their precision."""
    weight = np.asarray([each.precision for each in parts])
    return [
        _part(np.asarray(each.tally().support), each.num_reports, each.rates, own)
        for each, own in zip(parts, weight / weight.sum(), strict=True)
    ]


def _support_of(data: Any) -> np.ndarray:
    return np.asarray(data.support if isinstance(data, Tally) else data)


def _part(support: np.ndarray, number: int, rates: Any, weight: float = 1.0) -> PartCounts:
    q, d = (np.broadcast_to(np.asarray(each, np.float64), support.shape) for each in (rates.q, rates.d))
    return PartCounts(support.astype(np.float64), float(number), q, d, weight)


def _unbiased(parts: list[PartCounts]) -> np.ndarray:
    """The weighted mean of the inversions of parts, and its standard errors, `[2, K]`."""
    shares, variances = [], []
    for support, number, q, d, weight in parts:
        shares.append(weight * (support / number - q) / d)
        # A count of zero, or of all, does not show how it varies: half an answer more does.
        edge = (support == 0) | (support == number)
        seen = np.where(edge, (support + 0.5) / (number + 1), support / number)
        variances.append(weight**2 * seen * (1 - seen) / number / d**2)
    return np.stack([np.sum(shares, axis=0), np.sqrt(np.sum(variances, axis=0))])


def _of_sample(
    estimates: np.ndarray, errors: np.ndarray, degrees: np.ndarray, level: float, num_tests: int
) -> DifferenceTest:
    """Student's limits and p-values."""
    from scipy.special import stdtr, stdtrit

    difference, error = estimates[0, 0] - estimates[1, 0], np.where(errors > 0, errors, np.nan)
    half = -stdtrit(degrees, (1 - level) / 2 / num_tests) * error
    chances = 2 * stdtr(degrees, -np.abs(difference / error))
    lower, upper = (np.clip(end, -1, 1) for end in (difference - half, difference + half))
    return DifferenceTest(lower, upper, np.minimum(chances * num_tests, 1))


@in_float64
def test_difference(
    first: Side,
    second: Side | None = None,
    *,
    by: str | None = None,
    weights: str | None = None,
    strata: str | None = None,
    clusters: str | None = None,
    population_size: str | float | None = None,
    names: Iterable[str] | None = None,
    level: float = 0.95,
) -> Difference:
    """Estimates how the shares of two collections, or of two groups of one, differ, with a test that they do not.

    The respondents of two collections must be different ones, drawn independently; mechanisms, designs and ε may
    differ.

    Args:
        first: Reports; or groups of one population, which are pooled. Alone: with `by` its two levels are compared,
            else, of answers by respondent, those of the two designs, or of the two groups.
        second: As `first`, of the same categories.
        by: A public column of `first`, of two levels.
        weights: A column of survey weights. With it, or with one of the next three, the shares are those of the
            populations that the samples represent; see `Reports.statements`. Two collections are two independent
            surveys, with columns of the same names.
        strata: A column of strata, which were sampled independently.
        clusters: A column of clusters, which were sampled whole. Groups of one collection may share them: the errors
            have their covariance.
        population_size: The number of clusters, or of people where there are none, in the population of the stratum: a
            column, or a number where there are no strata.
        names: What the two are called; None is the levels, the names of their files or designs, or "first" and
            "second".
        level: Confidence level, in (0, 1); of all categories together, if there are more than two.

    Returns:
        `Difference`, of unbiased estimates, in float64. Each difference is tested at the pair of shares that is
        likeliest with it, by a saddlepoint approximation of the tail of the counts, which holds the level of small
        counts, too. With columns of a sample, and for levels of answers by respondent, by linearization and Student's
        t, as `inference.survey_estimate`, with Welch's degrees of freedom; groups of few reports have a warning.

    Raises:
        ArgumentError: Other than two collections or groups, the same twice, other categories, arguments that contradict
            each other, or a level outside of (0, 1).
        DataError: A file or a column that cannot be used.

    Example:
        Did more people admit plagiarism in the crosswise model than when they were asked directly?

        >>> import rrjax
        >>> crosswise, direct = rrjax.mechanisms.Crosswise(0.25), rrjax.mechanisms.Direct(2)
        >>> indirect = rrjax.Reports.of_counts([198, 112], crosswise, ["yes", "no"])
        >>> asked = rrjax.Reports.of_counts([7, 89], direct, ["yes", "no"])
        >>> found = rrjax.reports.test_difference(indirect, asked).columns
        >>> [round(float(found[name][0]), 4) for name in ("difference", "standard_error", "p_value")]
        [0.1497, 0.0607, 0.0189]
    """
    check_rate("level", level)
    sample = Sample(weights, strata, clusters, population_size)
    if first is second:
        raise refusal("second", "these are the same reports twice, which do not differ", flag="REPORTS", value=second)
    if by is not None and second is not None:
        problem = f"{option('by')} compares two levels of one collection, and there are two: leave one of them out"
        raise refusal("by", problem, value=by)
    given: list[Any] = [first] if second is None else [first, second]
    notes: list[str] = []
    # Independent respondents in two groups are two collections.
    counted = not sample.given and isinstance(first, Reports)
    asked = ["by"] * (by is not None and not counted) + sample.given
    if asked and (odd := next((each for each in given if not hasattr(each, "files")), None)) is not None:
        problem = f"{option(asked[0])} needs single reports of one collection: {odd.instead}"
        raise refusal(asked[0], problem)
    surveys = [Surveyed.of(each, by, sample) for each in given if asked]
    masks: list[Any] = [each.levels[0][2] for each in surveys]
    counts: list[list[PartCounts]] = []
    if by is not None:
        levels: list[tuple[str, Any]] = [(each[0], each[2]) for each in surveys[0].levels[1:]] if surveys else []
        if isinstance(first, Reports) and not surveys:
            of_levels, number = parts_of(first, by)
            notes, rates = rows_left_out(number, [by]), first.rates
            levels = [(each.level, [_part(_support_of(each.data), each.num_reports, rates)]) for each in of_levels[1:]]
        if len(levels) != 2:
            problem = f"has {form.number(len(levels), 'level', 'levels')} with reports, and two are compared"
            raise refusal("by", f"{option('by')} {by!r} {problem}", value=by)
        told, both = (list(each) for each in zip(*levels, strict=True))
        notes += levels_alike(by, told)
        counts, masks = ([], both) if surveys else (both, [])
        _, second = given[0].contradicted, first  # which warns
    elif second is None:
        notes = left_out(first.counted) if isinstance(first, ByRespondentReports) else []
        first, second, told = _halves(first)
        masks = [masks[0] & given[0].in_groups(each.parts)[surveys[0].kept] for each in (first, second) if surveys]
    else:
        told = [each.name for each in given if isinstance(each, Reports) and each.source is not None]
    called = list(map(str, names or (told if len(set(told)) == 2 else ("first", "second"))))
    if len(called) != 2:
        raise refusal("names", f"{option('names')} are two, got {len(called)}", value=called)
    sides = _parts(first), _parts(second)
    notes += check_alike([*sides[0], *sides[1]]) if by is None else []
    num_tests, degrees = int(num_tests_of([each.tally() for side in sides for each in side])), math.inf
    if surveys:
        sizes = [int(each.sum()) for each in masks]
        estimates, errors, freedom = survey_differences([*zip((surveys[0], surveys[-1]), masks, strict=True)])
        test, degrees = _of_sample(estimates, errors, freedom, level, num_tests), float(freedom.min())
        for each in surveys:
            notes += [*each.notes, *rows_left_out(each.num_left_out, each.lacking)]
        for name, size in zip(called, sizes, strict=True):
            if size < FEW_REPORTS:
                few = f"{name} has {form.number(size, 'report', 'reports')}: errors of so few are hardly known"
                notes.append(f"{few}, and intervals may be too short.")
    else:
        counts = counts or [_counted(each) for each in sides]
        sizes = [sum(int(part.num_users) for part in side) for side in counts]
        estimates = np.stack([_unbiased(each) for each in counts])
        errors, test = np.hypot(*estimates[:, 1]), share_differences(counts[0], counts[1], level, num_tests)
    numbers, two = (sizes[0], sizes[1]), (called[0], called[1])
    return Difference(
        first, second, two, numbers, estimates, errors, test, degrees, num_tests, level, by, sample, notes
    )


def _halves(reports: Any) -> tuple[Groups, Groups, tuple[str, str]]:
    """The groups of two designs, or two groups."""
    groups = reports.parts if isinstance(reports, Groups) else {}
    designs = list(dict.fromkeys(each.mechanism.name for each in groups.values()))
    if len(designs) != 2 and len(groups) != 2:
        problem = f"give two collections, {option('by')}, or answers of two designs or groups; got {len(groups) or 1}"
        raise refusal("second", problem, flag="REPORTS", value=reports)
    kinds = {number: each.mechanism.name if len(designs) == 2 else number for number, each in groups.items()}
    halves = [
        {number: groups[number] for number in groups if kinds[number] == kind} for kind in dict.fromkeys(kinds.values())
    ]
    notes = [each.mechanism.note for each in groups.values()]
    names = designs if len(designs) == 2 else notes if all(notes) else ("group 1", "group 2")
    return Groups(halves[0]), Groups(halves[1]), (names[0], names[1])
