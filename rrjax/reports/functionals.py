"""Estimates of means, quantiles and shares of groups: of all users, of levels of a public column, of a population."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rrjax import inference, io
from rrjax.data.errors import for_callers, for_commands, option, refusal
from rrjax.inference.surveys import MOST_WEIGHT
from rrjax.io.database import spelling
from rrjax.io.labels import by_label
from rrjax.io.rows import Covariate, read_cells, read_covariate
from rrjax.io.scan import THOUSANDS, column_names
from rrjax.reports import form
from rrjax.reports.reports import Reports, likeness

About: TypeAlias = Literal["users", "difference", "population"]
MOST_LEVELS = 100
ALL, POPULATION = "all", "population"
"""The names of the rows of all users, and of a population, beside those of levels."""
SIZES = "sizes are numbers, none of them missing, negative or too large to add up"


@dataclasses.dataclass(frozen=True, eq=False)
class Functional:
    """A number of a distribution: c·θ, or a quantile."""

    name: str
    kind: str
    """One of mean, share, total and quantile."""
    values: np.ndarray | None
    """`[K]`, c; None for a quantile."""
    probability: float = math.nan


@dataclasses.dataclass(frozen=True)
class LevelCounts:
    """The users of one level of the public column, or all users: their counts or tally."""

    level: str
    num_reports: int
    data: Any


@dataclasses.dataclass(frozen=True)
class FunctionalEstimate:
    """The estimate of a functional, for some users."""

    functional: Functional
    level: str
    """Whose it is: all, a level of the public column, a difference of two, or the population."""
    num_reports: int
    value: Any
    standard_error: float
    lower: Any
    upper: Any
    about: About = "users"
    sampled: dict[str, float] = dataclasses.field(default_factory=dict)
    """Of sample surveys: the effective number of reports, NaN of totals and differences; the degrees of freedom."""

    @property
    def impossible(self) -> bool:
        """Whether the estimate is one that no users have, such as a negative share."""
        if self.functional.values is None:
            return False
        least, most = float(self.functional.values.min()), float(self.functional.values.max())
        if self.functional.kind == "total":
            return self.about == "users" and (self.value < min(least, 0) or (self.value > 0 and most <= 0))
        return abs(self.value) > most - least if self.about == "difference" else not least <= self.value <= most

    @property
    def contradicted(self) -> bool:
        """Whether there is no interval, because no distribution explains the reports."""
        return self.lower is None or self.lower != self.lower

    def facts(self) -> dict[str, Any]:
        names = ("num_reports", "value", "standard_error", "lower", "upper")
        facts = {"statement": self.functional.name, "kind": self.functional.kind, "of": self.level}
        return facts | {name: getattr(self, name) for name in names} | self.sampled

    def texts(self) -> tuple[str, str, str]:
        """The value, its standard error and its interval, for people."""
        kind, digits = self.functional.kind, form.decimals(self.standard_error)
        writers: dict[str, Any] = {"quantile": form.printable, "share": form.percent}
        text = writers.get(kind, lambda number: f"{number:,.{digits}f}")
        error = text(self.standard_error) if math.isfinite(self.standard_error) else ""
        value = "–" if kind == "quantile" and self.contradicted else text(self.value)
        limits = "–" if self.contradicted else f"{text(self.lower)} – {text(self.upper)}"
        return value, error, form.between(self.lower, self.upper) if kind == "share" else limits


def estimates_of(
    reports: Reports,
    functional: Functional,
    parts: list[LevelCounts],
    level: float,
    *,
    normal: bool = False,
    shares: np.ndarray | None = None,
    tuned_to: float | None = None,
) -> list[FunctionalEstimate]:
    """Estimates a functional for all users and for each level; of two levels also their difference."""
    tallied, mechanism = reports.tallied is not None, reports.mechanism
    epsilon, kind = (None, mechanism) if tallied else (reports.epsilon, None)
    if functional.kind == "quantile":
        return _quantiles(reports, functional, parts, epsilon, kind, level)
    values = np.asarray(functional.values, np.float64)
    how: dict[str, Any] = {"values": values, "level": level}

    def row(part, each, about: About = "users"):
        return FunctionalEstimate(functional, part.level, part.num_reports, *map(float, each), about=about)

    how |= {"method": "normal" if normal else None, "mechanism": kind}
    how |= {} if tuned_to is None else {"looks": "any", "tuned_to": tuned_to}
    if tallied:
        estimates = [inference.linear_functional(part.data, **how) for part in parts]
    else:
        counts = jnp.stack([jnp.asarray(part.data) for part in parts])
        batch = jax.vmap(lambda each: inference.linear_functional(each, epsilon, **how))(counts)
        estimates = [jax.tree.map(lambda leaf, place=place: leaf[place], batch) for place in range(len(parts))]
    rows, levels = [row(*each) for each in zip(parts, estimates, strict=True)], parts[1:]
    if len(levels) == 2:
        first, second = levels
        each = inference.difference(first.data, second.data, epsilon, **how)
        both = LevelCounts(f"{first.level} less {second.level}", first.num_reports + second.num_reports, None)
        rows.append(row(both, each, "difference"))
    if shares is not None:
        strata = [part.data for part in levels]
        each = inference.stratified(strata if tallied else np.stack(strata), epsilon, shares=shares, **how)
        rows.append(row(dataclasses.replace(parts[0], level=POPULATION), each, "population"))
    return rows


def _quantiles(reports, functional, parts, epsilon, mechanism, level):
    data = [part.data if mechanism is not None else jnp.asarray(part.data) for part in parts]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
    quantiles = jax.vmap(
        lambda each: inference.quantile(each, epsilon, functional.probability, mechanism=mechanism, level=level)
    )(together)
    labels = np.full(reports.num_categories + 1, None)  # −1 stands for no quantile
    labels[:-1] = reports.labels
    ends = [labels[np.asarray(each)].tolist() for each in quantiles]
    return [
        FunctionalEstimate(functional, part.level, part.num_reports, value, math.nan, lower, upper)
        for part, value, lower, upper in zip(parts, *ends, strict=True)
    ]


def check_public(reports: Any, columns: Mapping[str, Any]) -> None:
    """Refuses columns, by their arguments, that are the reports, or that were randomized."""
    for argument, name in columns.items():
        if not isinstance(name, str | int):
            raise refusal(argument, f"{option(argument)} takes the name of one column", value=name)
        given = f"{option(argument)} {name!r}"
        if name == reports.counted.column:
            raise refusal(argument, f"{given} is the column of reports; it takes a public one", value=name)
        if name in reports.files.columns():  # by reports the shares of levels would look more alike than they are
            raise refusal(
                argument,
                f"{given} is randomized, too, and {option(argument)} takes a public column: "
                f"{for_commands('`rrjax estimate --joint` and `rrjax regress` relate')}{for_callers('regress relates')}"
                " columns of reports",
                value=name,
            )


def parts_of(reports: Reports, by: str | None) -> tuple[list[LevelCounts], int]:
    """Returns all users, then those of each level; and the number of rows without a level."""
    if by is None:
        return [LevelCounts(ALL, reports.num_reports, reports.support_arguments[0])], 0
    check_public(reports, {"by": by})
    values, public = reports.reports(option("by")), read_levels(reports.files, by)
    reports.files.check_unchanged()
    answered = answered_in(values)
    levels = rows_of_levels(public, answered & ~public.missing)
    parts = [LevelCounts(name, len(rows), _counted(reports, values[rows])) for name, rows in levels if len(rows)]
    if not parts:
        raise io.DataError.at(reports.files.files()[0], "no row has a level and a report", column=by)
    return parts, int((answered & public.missing).sum())


def answered_in(values: np.ndarray) -> np.ndarray:
    """Which rows have a report, `[N]`."""
    return values >= 0 if values.ndim == 1 else np.ones(len(values), bool)


def rows_left_out(number: int, columns: Sequence[str]) -> list[str]:
    """A note of rows with a report and without a value in one of the columns; none without such rows."""
    where = f"column {' or '.join(map(repr, columns))} has no value there"
    return [f"{form.number(number, 'row is', 'rows are')} left out: {where}."] * (number > 0)


def rows_of_levels(public: Covariate | None, there: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The rows of all users that are there, and of those of each level."""
    chosen = [(ALL, np.flatnonzero(there))]
    if public is not None:  # one sort takes half as long as a comparison for each of 60 levels
        levels, codes = public.levels or (), np.where(there, public.values + 1, 0).astype(np.uint8)
        ends = np.cumsum(np.bincount(codes, minlength=len(levels) + 1))
        chosen += zip(levels, np.split(np.argsort(codes, kind="stable"), ends)[1:], strict=False)
    return chosen


def _counted(reports: Reports, rows: np.ndarray) -> Any:
    """The counts of some reports, or their tally."""
    if reports.tallied is not None and reports.design is None:
        return reports.mechanism.tally(rows)
    counts = np.bincount(rows, minlength=reports.num_categories)
    return counts if reports.design is None else reports.design.tally_of_counts(counts)


def read_levels(source: io.Source, by: str) -> Covariate:
    """The levels of a public column."""
    public = read_covariate(dataclasses.replace(source, column=by), factor=True, most_levels=None)
    number = len(public.levels or ())
    if number > MOST_LEVELS:
        problem = f"has {number:,} levels, more than {MOST_LEVELS}: give a column of fewer, such as regions"
        raise refusal("by", f"{option('by')} {by!r} {problem}", value=by)
    if ALL in (public.levels or ()):  # two rows of one name, of different users
        problem = f"has a level {ALL!r}, which is the name of the row of all users: rename it"
        raise refusal("by", f"{option('by')} {by!r} {problem}", value=by)
    return public


def population_shares(population: io.Source | Mapping[Any, float], levels: Sequence[str]) -> np.ndarray:
    """The shares of the levels in the population, in their order, from a table of sizes or from sizes by level."""
    of_file = isinstance(population, io.Source)
    name = population.files()[0] if of_file else option("population")
    sizes, problem, value = _sizes_in(population) if of_file else _sizes_of(population), None, None
    alike = {spelling(level): level for level in levels}
    named = {alike.get(spelling(label)) for label in sizes}
    # A table has 0.10 where a level is 0.1.
    values = Counter(map(likeness, levels))
    of_value = {likeness(level): level for level in levels if values[likeness(level)] == 1 and level not in named}

    def level_of(label: str) -> str:
        return alike[spelling(label)] if spelling(label) in alike else of_value.get(likeness(label), label)

    known = {level_of(label): size for label, size in sizes.items()}
    if len(known) < len(sizes):
        problem = " names a level twice, in two spellings: give each level one size"
    elif not of_file and _impossible(np.asarray([*known.values()])):
        problem = f": {SIZES}"
    elif POPULATION in levels:
        problem = f" has a row of its own, {POPULATION!r}, which is the name of a level: rename the level"
    elif (value := next((level for level in levels if level not in known), None)) is not None:
        problem = f" does not say how large {value!r} is in the population"
    elif (value := next((level for level in known if level not in levels and known[level]), None)) is not None:
        problem = f" names {value!r}, of which there are no reports: nothing is known of that part of the population"
    if problem is not None and of_file:
        raise io.DataError(name + problem, file=name, value=value)
    if problem is not None:
        raise refusal("population", name + problem, value=value)
    shares = np.asarray([known[level] for level in levels])
    return shares / shares.sum()


def _impossible(sizes: np.ndarray) -> bool:
    return not (sizes >= 0).all() or not 0 < sizes.sum() < np.inf


def _sizes_of(population: Any) -> dict[str, float]:
    """The sizes of the levels of a mapping or a series; NaN for those that are no numbers."""
    if (named := by_label(population)) is None:
        wanted = "is a file, or the size of each level: a mapping, or a series with the levels as its labels"
        raise refusal("population", f"{option('population')} {wanted}", value=population)
    return {level: math.nan if isinstance(size, str) else float(size) for level, size in named.items()}


def _sizes_in(source: io.Source) -> dict[str, float]:
    path = source.files()[0]
    try:
        names = column_names(source)
    except io.DataError as error:
        if error.argument == "header":
            problem = "name both columns in the first line: the level, and its size in the population"
            raise io.DataError(f"{path}: {problem}", file=path, row=1) from error
        if error.argument != "delimiter":  # a flag that says how the reports are delimited
            raise
        names = ("",)
    if len(names) != 2:
        raise io.DataError(
            f"{path} has {form.number(len(names), 'column', 'columns')}; two are wanted, under a line with their names "
            "and with commas between them: the level, and its size in the population",
            file=path,
        )
    sizes = read_covariate(dataclasses.replace(source, column=names[1]), most_levels=None)
    if sizes.levels is not None or _impossible(sizes.values):
        raise io.DataError.at(path, SIZES, column=names[1])
    if len(sizes.values) == 1:  # which is no factor
        ((level,),) = read_cells(dataclasses.replace(source, column=names[0]), names[:1])
        if not level:
            raise io.DataError(f"{path}, column {names[0]!r}, row 1: no level", file=path, column=names[0], row=1)
        return {level: float(sizes.values[0])}
    levels = read_covariate(dataclasses.replace(source, column=names[0]), factor=True, most_levels=None)
    if levels.missing.any():
        row = int(np.argmax(levels.missing)) + 1
        raise io.DataError(f"{path}, column {names[0]!r}, row {row}: no level", file=path, column=names[0], row=row)
    listed = [(levels.levels or ())[int(code)] for code in levels.values]
    twice = next((name for name in listed if listed.count(name) > 1), None)
    if twice is not None:
        raise io.DataError(f"{path} names {twice!r} twice: give each level one size", file=path, value=twice)
    return dict(zip(listed, sizes.values.tolist(), strict=True))


def read_weights(source: io.Source, argument: str = "weights") -> Covariate:
    """Reads a column of survey weights, or of population sizes, row by row; missing ones are NaN."""
    one, several = ("weight", "weights") if argument == "weights" else ("size", "population sizes")
    weights = read_covariate(source, most_levels=None)
    file = source.files()[0]
    if weights.all_thousands and argument != "weights":
        raise io.DataError.at(file, f"{several} {THOUSANDS}", column=weights.name)
    if weights.levels is not None:
        raise io.DataError.at(file, f"{several} are numbers, and there is none", column=weights.name)
    wrong = np.flatnonzero(weights.values < 0)
    if wrong.size:
        row = int(wrong[0]) + 1 if len(source.files()) == 1 else None
        where = f"{file}, column {weights.name!r}" + ("" if row is None else f", row {row:,}")
        problem = f"{where}: a {one} is negative; {several} are not"
        raise io.DataError(problem, file=file, column=weights.name, row=row)
    # Variances are sums of squares of weights.
    largest = np.nanmax(weights.values, initial=0)
    if largest > MOST_WEIGHT or 0 < largest < 1 / MOST_WEIGHT:
        advice = "they are numbers of clusters or people"
        if argument == "weights":
            advice = "multiply all weights by one number, so that it is near one: shares and means depend on ratios"
        problem = f"the largest {one} is {largest:g}, and sums of squares would be no numbers: {advice}"
        raise io.DataError.at(file, problem, column=weights.name)
    return weights
