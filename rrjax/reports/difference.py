"""The difference of two collections: last year and this year, two groups, direct and indirect questioning."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any, ClassVar, TypeAlias

import numpy as np

from rrjax.data.errors import check_rate, option, refusal
from rrjax.inference.marginal_tests import num_tests_of
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells, rest_of, rows_of_table, table_of
from rrjax.reports.by_respondent import ByRespondentReports
from rrjax.reports.hypotheses import check_alike
from rrjax.reports.parts import Groups, text_of_p
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import Reports, left_out

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
    estimates: np.ndarray
    """Unbiased shares and their standard errors of both, `[2, 2, K]`; shares may be negative."""
    num_tests: int
    """The number of different questions: one for two categories whose estimates add up to one."""
    level: float
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
    def _table(self):
        (first, one), (second, other) = self.estimates
        difference, error = first - second, np.hypot(one, other)
        half = NormalDist().inv_cdf(1 - (1 - self.level) / 2 / self.num_tests) * error
        chances = [math.erfc(abs(each) / math.sqrt(2)) for each in difference / error]
        return {
            "label": self.reports.labels,
            "first": first,
            "second": second,
            "difference": difference,
            "standard_error": error,
            "lower": np.clip(difference - half, -1, 1),
            "upper": np.clip(difference + half, -1, 1),
            "p_value": np.minimum(np.asarray(chances) * self.num_tests, 1),
        }

    @property
    def title(self) -> str:
        titles = zip(self.names, self.sides, strict=True)
        return "\n".join(each.summary(name) for name, side in titles for each in side)

    @property
    def warnings(self) -> list[str]:
        sides = zip(self.names, (self.first, self.second), strict=True)
        return [*(f"{name}: {warning}" for name, side in sides for warning in side.warnings), *self.notes]

    @property
    def facts(self) -> dict[str, Any]:
        sides = zip(("first", "second"), self.names, self.sides, strict=True)
        found = {
            place: {
                "name": name,
                "num_reports": sum(each.num_reports for each in side),
                "mechanisms": [each.mechanism.name for each in side],
                "reports": side[0].paths,
            }
            for place, name, side in sides
        }
        p_value = float(self._table["p_value"].min())
        return {**found, "warnings": self.warnings, "level": self.level, "p_value": p_value}

    @property
    def sentences(self) -> list[str]:
        table = self._table
        place = int(np.argmin(table["p_value"]))
        place = place if self.reports.yes is None else self.reports.yes
        label, (first, second) = form.printable(self.reports.labels[place]), self.names
        points, error = (100 * table[key][place] for key in ("difference", "standard_error"))
        told = (
            f"{label}: {first} less {second} is {points:+.2f} ± {error:.2f} percentage points (standard error), "
            f"p {text_of_p(table['p_value'][place])}."
        )
        law = "Intervals and p-values are those of the normal approximation, of independent respondents"
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
        places = np.argsort(-np.abs(table["difference"] / table["standard_error"]), kind="stable")[:top]
        headings = [*self.names, "difference", "std. error"]
        keys = ("first", "second", "difference", "standard_error")
        columns: list[Any] = [("category", table["label"], form.printable)]
        columns += [(heading, table[key], form.percent) for heading, key in zip(headings, keys, strict=True)]
        limits = np.transpose((table["lower"], table["upper"]))
        columns += [(form.interval(self.level), limits, lambda each: form.between(*each))]
        columns += [("p", table["p_value"], lambda each: text_of_p(each).removeprefix("= "))]
        rest = rest_of(len(table["label"]) - len(places), "category", "categories")
        return table_of(columns, places, rest=rest)

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"categories": rows_of_table({name: each[:top] for name, each in self._table.items()})}


def _parts(side: Side) -> list[Reports]:
    return list(side.parts.values()) if isinstance(side, Groups) else [side]


def _unbiased(parts: list[Reports]) -> np.ndarray:
    """The mean of the inversions of groups, weighted by their precision, and its standard errors, `[2, K]`."""
    shares, variances, weight = [], [], np.asarray([each.precision for each in parts])
    for each in parts:
        number, rates = each.num_reports, each.rates
        support = np.asarray(each.tally().support, np.float64)
        shares.append(rates.share(support / number))
        # A count of zero, or of all, does not show how it varies: half an answer more does.
        edge = (support == 0) | (support == number)
        seen = np.where(edge, (support + 0.5) / (number + 1), support / number)
        variances.append(seen * (1 - seen) / number / np.asarray(rates.d, np.float64) ** 2)
    weight /= weight.sum()
    return np.stack([weight @ np.stack(shares), np.sqrt(weight**2 @ np.stack(variances))])


@in_float64
def test_difference(
    first: Side,
    second: Side | None = None,
    *,
    names: Iterable[str] | None = None,
    level: float = 0.95,
) -> Difference:
    """Estimates how the shares of two collections differ, with a test that they do not.

    The respondents must be different ones, drawn independently; mechanisms, designs and ε may differ.

    Args:
        first: Reports; or groups of one population, which are pooled. Alone, answers by respondent: those of its two
            designs, or of its two groups, are compared.
        second: As `first`, of the same categories.
        names: What the two are called; None is the names of their files or designs, or "first" and "second".
        level: Confidence level, in (0, 1); of all categories together, if there are more than two.

    Returns:
        `Difference`, of unbiased estimates by the normal approximation, in float64.

    Raises:
        ArgumentError: Other than two collections, the same twice, other categories, or a level outside of (0, 1).

    Example:
        Did more people admit plagiarism in the crosswise model than when they were asked directly?

        >>> import rrjax
        >>> crosswise, direct = rrjax.mechanisms.Crosswise(0.25), rrjax.mechanisms.Direct(2)
        >>> indirect = rrjax.Reports.of_counts([198, 112], crosswise, ["yes", "no"])
        >>> asked = rrjax.Reports.of_counts([7, 89], direct, ["yes", "no"])
        >>> found = rrjax.reports.test_difference(indirect, asked).columns
        >>> [round(float(found[name][0]), 4) for name in ("difference", "standard_error", "p_value")]
        [0.1497, 0.0607, 0.0136]
    """
    check_rate("level", level)
    if first is second:
        raise refusal("second", "these are the same reports twice, which do not differ", flag="REPORTS", value=second)
    notes = left_out(first.counted) if second is None and isinstance(first, ByRespondentReports) else []
    if second is None:
        first, second, told = _halves(first)
    else:
        told = [each.name for each in (first, second) if isinstance(each, Reports) and each.source is not None]
    called = list(map(str, names or (told if len(set(told)) == 2 else ("first", "second"))))
    if len(called) != 2:
        raise refusal("names", f"{option('names')} are two, got {len(called)}", value=called)
    sides = _parts(first), _parts(second)
    notes += check_alike([*sides[0], *sides[1]])
    estimates = np.stack([_unbiased(each) for each in sides])
    num_tests = int(num_tests_of([each.tally() for side in sides for each in side]))
    return Difference(first, second, (called[0], called[1]), estimates, num_tests, level, notes)


def _halves(reports: Any) -> tuple[Groups, Groups, tuple[str, str]]:
    """The groups of two designs, or two groups."""
    parts = _parts(reports) if isinstance(reports, Groups) else []
    designs = list(dict.fromkeys(each.mechanism.name for each in parts))
    if len(designs) == 2:
        groups = reports.parts.items()
        found = [{number: each for number, each in groups if each.mechanism.name == name} for name in designs]
        return Groups(found[0]), Groups(found[1]), (designs[0], designs[1])
    if len(parts) != 2:
        problem = f"give two collections, or answers of two designs or groups; got {len(parts) or 1}"
        raise refusal("second", problem, flag="REPORTS", value=reports)
    names = parts[0].mechanism.note, parts[1].mechanism.note
    return Groups({1: parts[0]}), Groups({2: parts[1]}), names if all(names) else ("group 1", "group 2")
