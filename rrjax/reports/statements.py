"""Means, quantiles and shares of groups: of all users, of the levels of a public column, of a population."""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from rrjax.data.errors import check_rate, for_callers, for_commands, option, refusal
from rrjax.data.number_text import plain
from rrjax.io.labels import label_text, listed_in
from rrjax.io.source import Source, sources_in
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells
from rrjax.reports.functionals import (
    ALL,
    Functional,
    FunctionalEstimate,
    estimates_of,
    parts_of,
    population_shares,
    rows_left_out,
)
from rrjax.reports.intervals import ANY_TIME, tuned_of
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import Reports, levels_alike, of_order, of_thousands
from rrjax.reports.shares import largest_of
from rrjax.reports.surveys import Sample, survey_estimates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups: TypeAlias = str | Mapping[Any, Any] | Iterable[str | Mapping[Any, Any]]
"""Groups of categories: texts such as "young=0:29" or "north=Oslo,Rome", and labels, or such texts, by name."""
Population: TypeAlias = str | os.PathLike[str] | Mapping[Any, float]
"""Sizes of levels in a population: a file of two columns, or sizes by level."""
LONGEST_LEVEL = 40
"""Characters of a level in a table."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Statements(Answer):
    """Means, quantiles and shares of groups with intervals: of all users and, with a public column, of each level."""

    written: ClassVar[str] = "Statements"

    reports: Any
    estimates: list[FunctionalEstimate]
    level: float
    by: str | None
    sample: Sample | None
    normal: bool
    tuned_to: float | None
    """Of intervals that hold at any time, the number of users for which they are narrow; None for a single look."""
    num_left_out: int
    """Number of reports without a level, a weight, a stratum, a cluster or a population size."""
    notes: Sequence[str] = ()
    """What is odd about the question: rows that are left out, groups that reach beyond the domain."""
    sources: Sequence[Source] = ()

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A row for each estimate: statement, kind, of, num_reports, value, standard_error, lower, upper.

        The value and the limits are numbers, or texts where some of them are labels.
        """
        rows, columns = [each.facts() for each in self.estimates], {}
        for name in rows[0]:
            values = [None if row[name] != row[name] else row[name] for row in rows]  # NaN
            if name in ("statement", "kind", "of") or any(isinstance(each, str) for each in values):
                columns[name] = np.asarray(["" if each is None else str(each) for each in values], object)
            else:
                columns[name] = np.asarray([math.nan if each is None else each for each in values])
        return self.reports.table(columns)

    @property
    def _results(self):
        return {
            "level": self.level,
            "by": self.by,
            "tuned_to": self.tuned_to,
            **({"weights": None} if self.sample is None else dataclasses.asdict(self.sample)),
            "num_without_level": self.num_left_out,
            "num_contradicted": sum(each.contradicted for each in self.estimates),
            "num_impossible": sum(each.impossible for each in self.estimates),
        }

    @property
    def sentences(self) -> list[str]:
        count = sum(each.impossible for each in self.estimates)
        number = form.number(count, "estimate is", "estimates are")
        beyond = f" {number} impossible, as unbiased ones may be: believe the interval."
        return [self._validity + beyond * (count > 0)]

    @property
    def cautions(self) -> list[str]:
        number = sum(each.contradicted for each in self.estimates)
        how = 1 - self.level, "for each row"
        return [self.reports.without_interval(number, "row", "rows", *how)] if number else []

    @property
    def words(self) -> dict[str, str]:
        kinds, abouts = self._kinds, {each.about for each in self.estimates}
        quantiles = "quantile" in kinds
        words = {
            "reports": "number of reports of these users",
            "estimate": self.reports.estimate_is if kinds != {"quantile"} else "",
            "quantile": "the first category, in the order of the domain, at which the cumulative share reaches the "
            "quantile, by the likeliest distribution (of other mechanisms: by InvP), or the nearer end of the interval"
            if quantiles
            else "",
            "std. error": "standard error of the estimate" + "; quantiles have none" * quantiles,
            form.interval(self.level): "holds the true value with this confidence, each row for itself"
            + ("" if self.tuned_to is None else f"; for any number of looks, narrow at {self.tuned_to:,.0f} users"),
            "all": "the users of all levels together" if self.by is not None else "",
        }
        if "difference" in abouts:
            words["… less …"] = "the difference between two levels"
        if "population" in abouts:
            words["population"] = f"all levels together, each weighted by its size in {option('population')}"
        return words

    @property
    def _kinds(self):
        return {each.functional.kind for each in self.estimates}

    @property
    def _validity(self):
        """A sentence about the kinds of the intervals, and the numbers of users for which they are valid."""
        if self.sample is not None:
            return self._of_sample
        if self.tuned_to is not None:
            return f"Each interval holds {ANY_TIME}"
        kinds, exact = self._kinds, getattr(self.reports.mechanism, "names_one", False)
        if self.normal:
            kept = "are exact" if exact else "hold for any number of users"
            also = f"; intervals of quantiles {kept}" * ("quantile" in kinds)
            return f"The intervals use the normal approximation, which needs thousands of users{also}."
        in_order = [f"{kind}s" for kind in ("mean", "share", "quantile") if kind in kinds]
        abouts = {each.about for each in self.estimates}
        bounded = [each for each in in_order if each == "means" or not exact]
        bounded += [f"{about}s" for about in ("difference", "population") if about in abouts]
        words = []
        if exact and (named := [each for each in in_order if each != "means"]):
            words.append(f"intervals of {' and '.join(named)} are exact")
        if bounded:
            listed = ", ".join(bounded[:-1]) + " and " * (len(bounded) > 1) + bounded[-1]
            shorter = f"; {option('normal=True', '--normal')} gives shorter ones" if exact else ""
            words.append(f"intervals of {listed} hold for any number of users{shorter}")
        return "; ".join(words)[:1].upper() + "; ".join(words)[1:] + "."

    @property
    def _of_sample(self):
        """How intervals of a sample survey are made."""
        first, sample = self.estimates[0], self.sample or Sample()
        sentence = "Intervals are those of Student's t"
        if not (self.normal or sample.total):
            effective, of = f"{first.sampled['effective_size']:,.0f}", f"{first.num_reports:,}"
            sentence = f"Intervals use the effective number of reports ({first.functional.name}: {effective} of {of})"
        if sample.given != ["weights"]:
            sentence += f", with {first.sampled['degrees']:,.0f} degrees of freedom"
            sentence += " (clusters less strata)" * bool(sample.strata or sample.clusters)
        sentence += ". They hold where weights do not depend on the values" * (sample.weights is not None)
        return (
            f"{sentence}. Totals are numbers of people if the weights add up to them."
            if sample.total
            else f"{sentence}."
        )

    def cells(self, top: int = SHOWN) -> Cells:
        rows = []
        for each in self.estimates:  # each row has its name, because a narrow terminal shows the columns in blocks
            level = form.printable(each.level)
            level = level if len(level) <= LONGEST_LEVEL else level[: LONGEST_LEVEL - 1] + "…"
            place = [level] * (self.by is not None)
            rows.append([form.printable(each.functional.name), *place, f"{each.num_reports:,}", *each.texts()])
        levels = [] if self.by is None else [form.printable(self.by)]
        numbers = ["reports", "estimate", "std. error", form.interval(self.level)]
        return Cells(["statement", *levels, *numbers], rows, names=1 + len(levels), width=30)

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"statements": [each.facts() for each in self.estimates]}

    def figure(self, ax: Axes | None = None) -> Figure:
        """A panel for each statement, but for quantiles of labels that are no numbers.

        Raises:
            ArgumentError, UsageError: There are only such quantiles.
        """
        from rrjax.figures import forest_figure
        from rrjax.figures.estimates import Statements as Panel

        panels = {}
        for functional in dict.fromkeys(each.functional for each in self.estimates):
            # A difference has another scale than the shares.
            own = [each for each in self.estimates if each.functional is functional and each.about != "difference"]
            try:
                value, lower, upper = (
                    [math.nan if (number := getattr(each, name)) is None else float(number) for each in own]
                    for name in ("value", "lower", "upper")
                )
            except ValueError:
                continue
            levels = [each.level for each in own]
            panels[functional.name] = Panel(levels, value, lower, upper, functional.kind == "share")
        if not panels:
            raise refusal(
                "plot",
                f"{for_callers('the figure')}{for_commands('--plot')} draws numbers, and quantiles of these labels are "
                f"not numbers: ask for {option('mean')} or {option('group')}",
            )
        reports = self.reports
        column = getattr(reports.counted, "column", None)
        of = "" if column is None else f" in column {column}"
        title = f"{reports.called}{of}, ε = {reports.epsilon:.4g}"
        return forest_figure(panels, level=self.level, title=title, ax=ax)


@in_float64
def statements_of(
    reports: Reports,
    mean: bool,
    quantile: float | Iterable[float],
    group: Groups,
    by: str | None,
    population: Population | None,
    normal: bool,
    level: float,
    top: int | None,
    sample: Sample,
    looks: str | None,
    tuned_to: float | None,
) -> Statements:
    """See `Reports.statements`."""
    check_rate("level", level)
    sizes: Any = Source(population) if isinstance(population, str | os.PathLike) else population
    quantiles = [quantile] if isinstance(quantile, int | float) else list(quantile)
    others = {"normal": normal, "quantile": quantiles, "population": population is not None}
    tuned_to = tuned_of(looks, tuned_to, others | dict.fromkeys(sample.given, True))
    groups, notes = _groups(reports, group)
    functionals = [Functional("mean", "mean", _numbers(reports))] if mean else []
    functionals += [*map(_quantile, quantiles), *groups]
    notes += of_order(reports, "quantiles") if quantiles else []
    notes += of_thousands(reports) if mean or quantiles else []
    one_design = isinstance(reports, Reports)
    _check_together(functionals, by, sample, one_design, population, normal, top, tuned_to)
    if not functionals:  # the shares of the most frequent categories
        every, number = np.arange(reports.num_categories), SHOWN if top is None else top
        largest = largest_of(reports.counted.counts, number)
        functionals = [Functional(form.printable(reports.labels[place]), "share", every == place) for place in largest]
    names = [each.name for each in functionals]
    twice = next((each for each in functionals if names.count(each.name) > 1), None)
    if twice is not None:
        of_groups = twice.kind == "share"
        advice = f", or give groups names, such as {option('group=NAME=LABEL', '--group NAME=LABEL')}" * of_groups
        problem = f"{twice.name!r} is asked for twice: leave one out{advice}"
        raise refusal("group" if of_groups else twice.kind, problem, value=twice.name)
    surveyed = bool(sample.given) or not one_design
    if sample.total:
        functionals = [dataclasses.replace(each, kind="total") for each in functionals]
    # The tallies of other mechanisms do not tell how supports depend on each other, their single reports do.
    single = surveyed or (normal and not reports.mechanism.names_one)
    by_score = [each for each in functionals if single and each.values is not None]
    by_functional, num_left_out, lacking = {}, 0, [] if by is None else [by]
    if by_score:
        by_functional, num_left_out, lacking, more = survey_estimates(
            reports, by_score, by, sample, level, normal, sizes
        )
        notes += more
    if len(by_score) < len(functionals):
        parts, num_left_out = parts_of(reports, by)
        shares = None if sizes is None else population_shares(sizes, [part.level for part in parts[1:]])
        how: dict[str, Any] = {"normal": normal, "shares": shares, "tuned_to": tuned_to}
        rest = [each for each in functionals if each not in by_functional]
        by_functional |= {each: estimates_of(reports, each, parts, level, **how) for each in rest}
    estimates = [row for each in functionals for row in by_functional[each]]
    notes += rows_left_out(num_left_out, lacking)
    notes += levels_alike(by, [row.level for row in estimates if row.about == "users" and row.level != ALL])
    _ = reports.contradicted  # which warns
    about = level, by, sample if surveyed else None, normal, tuned_to
    return Statements(reports, estimates, *about, num_left_out, notes, sources_in(sizes))


def _check_together(
    functionals: list[Functional],
    by: str | None,
    sample: Sample,
    one_design: bool,
    population: Population | None,
    normal: bool,
    top: int | None,
    tuned_to: float | None,
) -> None:
    """Refuses arguments that contradict each other, or would change nothing."""
    quantiles = [each.probability for each in functionals if each.kind == "quantile"]
    alone, others = functionals and len(quantiles) == len(functionals), f"{option('mean=True', '--mean')} or "
    others += option("group")
    argument, problem, value = "population", None, None
    if population is not None and by is None:
        problem = f"gives the sizes of the levels of {option('by')}: name that column with {option('by')}"
    elif population is not None and sample.given:
        problem = f"and {option(sample.given[0])} are two ways to weigh the users: give one of the two"
    elif population is not None and alone:
        problem = f"weighs means and groups, not quantiles: ask for {others}"
    elif tuned_to is not None and not one_design:
        argument, problem = "looks", "does not apply to means and groups of several designs: leave it out"
    elif quantiles and (sample.given or not one_design):
        argument, value = "quantile", quantiles[0]
        instead = f"leave out {option(sample.given[0])}, or " if sample.given else ""
        of = "weighted reports" if sample.given else "several designs"
        problem = f"has no interval for {of}: {instead}ask for {option('group')}"
    elif sample.total and sample.weights is None and sample.population_size is None:
        argument, value = "total", True
        problem = f"needs to know whom a report stands for: give {option('weights')} or {option('population_size')}"
    elif normal and alone:
        argument, value = "normal", normal
        problem = f"does not apply to quantiles, which have no normal intervals: leave it out, or ask for {others}"
    elif top is not None and functionals:
        argument, value = "top", top
        problem = f"is the number of the most frequent categories, and {functionals[0].name!r} is asked for instead: "
        problem += "leave it out"
    if problem is not None:
        raise refusal(argument, f"{option(argument)} {problem}", value=value)


def _quantile(probability: float) -> Functional:
    if not sys.float_info.min <= probability < 1:
        problem = f"must lie between 0 and 1 (0.5 is the median), got {probability:g}"
        raise refusal("quantile", f"{option('quantile')} {problem}", value=probability)
    return Functional(form.quantile(probability), "quantile", None, probability)


def _numbers(reports: Reports) -> np.ndarray:
    asked, numbers = option("mean"), []
    for label in reports.labels:
        problem, named = None, form.printable(label)
        try:
            numbers.append(float(plain(str(label))))
        except ValueError:
            problem = f"that are numbers, and the label {named!r} is not a number: ask for {option('group')} instead"
        else:
            if not math.isfinite(numbers[-1]):
                problem = (
                    f"that are finite numbers, and the label {named!r} is not: if it stands for a missing answer, "
                    f"name it with {option('missing')}"
                )
        if problem is not None:
            raise refusal("mean", f"{asked} needs labels {problem}", value=label)
    least, most = min(numbers), max(numbers)
    if not math.isfinite(most - least):
        problem = f"labels from {least:g} to {most:g} are too far apart to be averaged"
        raise refusal("mean", f"{asked}: {problem}", value=most)
    if least == most:
        raise refusal("mean", f"{asked}: all labels are the number {least:g}, so the mean is known", value=least)
    return np.asarray(numbers)


def _groups(reports: Reports, group: Groups) -> tuple[list[Functional], list[str]]:
    """The groups, and a sentence about each that reaches beyond the domain."""
    places = {str(label): place for place, label in enumerate(reports.labels)} if group else {}
    named: list[tuple[str, Any]] = []
    given: Any = [group] if isinstance(group, str | Mapping) or not isinstance(group, Iterable) else group
    for each in given:
        if isinstance(each, Mapping):
            named += [(str(name), held) for name, held in each.items()]
        elif isinstance(each, str) or not isinstance(each, Iterable):
            whole = label_text(each).strip()
            name, equals, held = (part.strip() for part in whole.partition("="))
            # Labels may hold equals signs.
            by_name = bool(equals) and (whole not in places or (bool(name) and held in places))
            named.append((name, held) if by_name else (whole, whole))
        else:
            labels = [*map(label_text, each)]
            named.append((", ".join(labels), labels))
    groups, notes, domain = [], [], reports.counted.domain.describe()
    for name, held in named:
        if not name.strip():
            problem = "a group has no name: write it as NAME=LABELS, or without an equals sign"
            raise refusal("group", f"{option('group')}: {problem}", value=held)
        if (limits := _range_in(held, places)) is not None:
            (first, last), numbers = limits, np.asarray([*map(float, places)])
            if first > last:
                problem = f"{held} has its larger number first: write the smaller one first"
                raise refusal("group", f"{option('group')} {name!r}: {problem}", value=held)
            members = (numbers >= first) & (numbers <= last)
            within = np.flatnonzero(members)
            if len(within) and (-np.inf < first < np.nanmin(numbers) or np.nanmax(numbers) < last < np.inf):
                low, high = (reports.labels[within[place(numbers[within])]] for place in (np.argmin, np.argmax))
                which = f"the categories from {low} to {high}" if len(within) > 1 else f"the category {low}"
                notes.append(f"The group {name!r} holds {which}: {held} reaches beyond the domain, which is {domain}.")
        else:
            wanted = [*map(label_text, held)] if isinstance(held, Iterable) else [label_text(held)]
            if isinstance(held, str):
                wanted = [held] if held in places else listed_in("--group", held)
            odd = next((label for label in wanted if label not in places), None)
            if odd is not None:
                problem = f"{odd!r} is not a category; the domain is {domain}"
                raise refusal("group", f"{option('group')} {name!r}: {problem}", value=odd)
            members = np.isin(np.arange(len(places)), [places[label] for label in wanted])
        if not members.any() or members.all():
            what, share = ("all", 100) if members.any() else ("none", 0)
            raise refusal(
                "group",
                f"{option('group')} {name!r}: {held} holds {what} of the categories, so its share is "
                f"{share}\N{NO-BREAK SPACE}%; the domain is {domain}",
                value=held,
            )
        groups.append(Functional(name, "share", members))
    return groups, notes


def _range_in(held: Any, places: Mapping[str, int]) -> tuple[float, float] | None:
    """The ends of a range of numbers; None for labels, which may hold colons."""
    if not isinstance(held, str) or held in places or ":" not in held:
        return None
    try:
        first, last = map(float, plain(held).split(":"))
        for label in places:
            float(plain(label))
    except ValueError:
        return None
    return first, last
