"""The statements of `rrjax estimate`: means, groups and quantiles, of all users and of subgroups."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from rich.text import Text

from rrjax import inference, io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.normal import normal_estimate, normal_sum
from rrjax.cli.options import Asked, Output, listed_in
from rrjax.cli.public_columns import Part, parts_of, shares_of
from rrjax.data.errors import UsageError
from rrjax.reports import form
from rrjax.reports.contradictions import check_contradictions
from rrjax.reports.reports import Reports

About: TypeAlias = Literal["users", "difference", "population"]
LONGEST_LEVEL = 24
"""Characters of a level of --by in a table."""


@dataclasses.dataclass(frozen=True, eq=False)
class Statement:
    """A functional of a distribution: c·θ, or a quantile."""

    name: str
    kind: str
    """One of mean, share and quantile."""
    values: np.ndarray | None
    probability: float = math.nan


@dataclasses.dataclass(frozen=True)
class Row:
    """The estimate of a statement, for some users."""

    statement: Statement
    level: str
    num_reports: int
    value: Any
    standard_error: float
    lower: Any
    upper: Any
    about: About = "users"

    @property
    def impossible(self) -> bool:
        """Whether the estimate is one that no users have, such as a negative share."""
        if self.statement.values is None:
            return False
        least, most = float(self.statement.values.min()), float(self.statement.values.max())
        return abs(self.value) > most - least if self.about == "difference" else not least <= self.value <= most

    @property
    def contradicted(self) -> bool:
        """Whether there is no interval, because no distribution explains the reports."""
        return self.lower is None or self.lower != self.lower

    def facts(self) -> dict[str, Any]:
        """As fields of a JSON object."""
        kept = {name: getattr(self, name) for name in ("value", "standard_error", "lower", "upper")}
        name, kind = self.statement.name, self.statement.kind
        return {"statement": name, "kind": kind, "of": self.level, "num_reports": self.num_reports} | kept


def run(collection: Reports, asked: Asked, level: float, output: Output) -> None:
    """Estimates the statements, writes, draws and prints them."""
    rows, num_left_out = rows_of(collection, asked, level, output.top)
    check_contradictions(collection)
    if output.out is not None:
        facts = [row.facts() for row in rows]
        columns = {name: [fact[name] for fact in facts] for name in facts[0]}
        texts = ("statement", "kind", "of", "value", "lower", "upper")  # quantiles are labels, and labels may be texts
        table = {
            name: np.asarray(["" if each is None else str(each) for each in column], object)
            if name in texts
            else np.asarray(column)
            for name, column in columns.items()
        }
        io.write_table(output.out, collection.table(table))
    if output.plot is not None:
        _draw(output.plot, rows, collection, level)
    if output.json:
        facts = {"level": level, "by": asked.by, "weights": asked.weights, "num_without_level": num_left_out}
        facts |= {f"num_{name}": sum(getattr(row, name) for row in rows) for name in ("contradicted", "impossible")}
        facts |= {"statements": [row.facts() for row in rows]} | output.files
        show.record({"command": "estimate"} | collection.facts() | facts)
        return
    show.say(collection.summary())
    show.warn(collection.warnings)
    if num_left_out:
        rows_are = form.number(num_left_out, "row is", "rows are")
        show.warn([f"{rows_are} left out: a column named by a flag has no value there."])
    _show(rows, asked, level, collection)
    show.explain(_explanations(rows, asked, level), output.explain, "inference")
    show.show_files({"Statements": output.out, "Figure": output.plot})


def rows_of(collection: Reports, asked: Asked, level: float, top: int) -> tuple[list[Row], int]:
    """Estimates the statements; returns the estimates and the number of reports that were left out."""
    statements = _statements(collection, asked, top)
    parts, num_left_out = parts_of(collection, asked.by, asked.weights, asked.normal)
    shares = None if asked.population is None else shares_of(asked.population, parts[1:])
    return [
        row for statement in statements for row in _rows(collection, statement, parts, asked, level, shares)
    ], num_left_out


def _statements(collection: Reports, asked: Asked, top: int) -> list[Statement]:
    labels = collection.labels
    statements = []
    if asked.mean:
        statements.append(Statement("mean", "mean", _numbers(collection)))
    for probability in asked.quantile or []:
        name = "median" if probability == 0.5 else f"{100 * probability:.4g} % quantile"
        statements.append(Statement(name, "quantile", None, probability))
    for text in asked.group or []:
        name, members = _members(collection, text)
        statements.append(Statement(name, "share", members))
    if not statements:  # without a statement, the shares of the most frequent categories
        largest, every = np.argsort(-collection.counts, kind="stable")[:top], np.arange(len(labels))
        statements = [Statement(form.printable(labels[place]), "share", every == place) for place in largest]
    names = [statement.name for statement in statements]
    if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
        flag = {"mean": "--mean", "quantile": "--quantile", "share": "--group"}[statements[names.index(twice)].kind]
        raise UsageError(
            f"{twice!r} is asked for twice: leave one out, or give groups names, such as --group NAME=LABEL",
            flag=flag,
            value=twice,
        )
    return statements


def _numbers(collection: Reports) -> np.ndarray:
    numbers = []
    for label in collection.labels:
        try:
            numbers.append(float(label))
        except ValueError:
            raise UsageError(
                f"--mean needs labels that are numbers, and the label {form.printable(label)!r} is not a number: ask "
                "for --group instead",
                flag="--mean",
                value=label,
            ) from None
        if not math.isfinite(numbers[-1]):
            raise UsageError(
                f"--mean needs labels that are finite numbers, and the label {form.printable(label)!r} is not: if it "
                "stands for a missing answer, name it with --missing",
                flag="--mean",
                value=label,
            )
    if not math.isfinite(max(numbers) - min(numbers)):
        raise UsageError(
            f"--mean: labels from {min(numbers):g} to {max(numbers):g} are too far apart to be averaged",
            flag="--mean",
            value=max(numbers),
        )
    if len(set(numbers)) == 1:
        raise UsageError(
            f"--mean: all labels are the number {numbers[0]:g}, so the mean is known", flag="--mean", value=numbers[0]
        )
    return np.asarray(numbers)


def _members(collection: Reports, text: str) -> tuple[str, np.ndarray]:
    """The name of a group, and which categories are in it."""
    labels = collection.labels
    name, found, listed = text.partition("=")
    listed, name = (listed.strip(), name.strip()) if found else (text.strip(), text.strip())
    for whole in (listed, text.strip()):  # labels may hold commas, colons and equals signs
        if (members := np.asarray([str(label) == whole for label in labels])).any():
            return (name if whole == listed else whole), members
    first, colon, last = listed.partition(":")
    if colon:
        try:
            low, high, numbers = float(first), float(last), [float(label) for label in labels]
        except ValueError:
            pass  # a label with a colon, among others
        else:
            members = (np.asarray(numbers) >= low) & (np.asarray(numbers) <= high)
            return name, _checked(name, members, listed)
    wanted = listed_in("--group", listed)
    known = {str(label): place for place, label in enumerate(labels)}
    members = np.zeros(len(labels), bool)
    for label in wanted:
        if label not in known:
            raise UsageError(
                f"--group {text!r}: {label!r} is not a category; the domain is {collection.counted.domain.describe()}",
                flag="--group",
                value=label,
            )
        members[known[label]] = True
    return name, _checked(name, members, listed)


def _checked(name: str, members: np.ndarray, listed: str) -> np.ndarray:
    if not members.any() or members.all():
        what, share = ("none", 0) if not members.any() else ("all", 100)
        raise UsageError(
            f"--group {name!r}: {listed} holds {what} of the categories, so its share is {share}\N{NO-BREAK SPACE}%",
            flag="--group",
            value=listed,
        )
    return members


@ending_at_once()
def _rows(
    collection: Reports,
    statement: Statement,
    parts: list[Part],
    asked: Asked,
    level: float,
    shares: np.ndarray | None,
) -> list[Row]:
    epsilon, how = collection.epsilon, "normal" if asked.normal else None
    given, mechanism = epsilon if collection.tallied is None else None, collection.mechanism
    whole = asked.normal and not mechanism.names_one  # from single reports
    kind = None if collection.tallied is None else mechanism
    if statement.kind == "quantile":
        data = [part.data if collection.tallied is not None else jnp.asarray(part.data) for part in parts]
        together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
        found = jax.vmap(
            lambda each: inference.quantile(each, given, statement.probability, mechanism=kind, level=level)
        )(together)
        labels = np.full(collection.num_categories + 1, None)  # −1 stands for no quantile
        labels[:-1] = collection.labels
        ends = [labels[np.asarray(each)] for each in found]
        return [
            Row(statement, part.level, part.num_reports, value, math.nan, lower, upper)
            for part, value, lower, upper in zip(parts, *(each.tolist() for each in ends), strict=True)
        ]
    values = np.asarray(statement.values, np.float64)
    if asked.weights is not None:
        found = [inference.weighted_functional(part.data, epsilon, values=values, level=level) for part in parts]
    elif whole:
        found = [normal_estimate(collection, part, values, level) for part in parts]
    elif collection.tallied is not None:
        found = [
            inference.linear_functional(each.data, values=values, level=level, method=how, mechanism=kind)
            for each in parts
        ]
    else:
        counts = jnp.stack([jnp.asarray(part.data) for part in parts])
        batch = jax.vmap(
            lambda each: inference.linear_functional(each, epsilon, values=values, level=level, method=how)
        )(counts)
        found = [jax.tree.map(lambda leaf, place=place: leaf[place], batch) for place in range(len(parts))]
    rows = [_row(statement, part.level, part.num_reports, each) for part, each in zip(parts, found, strict=True)]
    if asked.by is not None and asked.weights is None:
        if len(parts) == 3:
            first, second = parts[1:]
            if whole:
                each = normal_sum(found[1:], np.array([1, -1]), values, level)
            else:
                each = inference.difference(
                    first.data, second.data, given, values=values, level=level, method=how, mechanism=kind
                )
            title = f"{first.level} less {second.level}"
            rows.append(_row(statement, title, first.num_reports + second.num_reports, each, "difference"))
        if shares is not None:
            if whole:
                each = normal_sum(found[1:], shares, values, level)
            else:
                strata = [part.data for part in parts[1:]]
                strata = np.stack(strata) if collection.tallied is None else strata
                each = inference.stratified(
                    strata, given, shares=shares, values=values, level=level, method=how, mechanism=kind
                )
            rows.append(_row(statement, "population", parts[0].num_reports, each, "population"))
    return rows


def _row(statement: Statement, level: str, number: int, found: inference.Estimate, about: About = "users") -> Row:
    value, error, lower, upper = (float(each) for each in found)
    return Row(statement, level, number, value, error, lower, upper, about)


def _show(rows: list[Row], asked: Asked, level: float, collection: Reports) -> None:
    show.out.print()
    several = asked.by is not None
    names = ["statement", *([form.printable(asked.by)] if several else [])]
    titles = "reports", "estimate", "std. error", form.interval(level)
    table = show.table(*map(Text, names), *titles, names=len(names), max_width=30)
    for row in rows:  # each row has its name, because a narrow terminal shows the columns in several blocks
        place = [Text(_short(row.level))] if several else []
        table.add_row(Text(form.printable(row.statement.name)), *place, f"{row.num_reports:,}", *written(row))
    show.show_table(table)
    show.out.print()
    show.say(told(rows, asked, exact=collection.mechanism.names_one))
    if words := contradicted(rows, level, collection):
        show.beware(words)


def contradicted(rows: list[Row], level: float, collection: Reports) -> str:
    """A sentence about the rows without an interval, if there are any."""
    number = sum(row.contradicted for row in rows)
    return collection.without_interval(number, "row", "rows", 1 - level, "for each row") if number else ""


def told(rows: list[Row], asked: Asked, *, exact: bool) -> str:
    """Sentences about the kinds of the intervals, for how many users they are valid, and impossible estimates."""
    number = form.number(count := sum(row.impossible for row in rows), "estimate is", "estimates are")
    beyond = f" {number} impossible, as unbiased ones may be: believe the interval."
    return _validity(rows, asked, exact=exact) + beyond * (count > 0)


def _validity(rows: list[Row], asked: Asked, *, exact: bool) -> str:
    """A sentence about the kinds of the intervals, and the numbers of users for which they are valid."""
    if asked.weights is not None:
        return (
            "The intervals are of as many reports of equal weight as say as much. They hold where weights do not "
            "depend on the values."
        )
    kinds = {row.statement.kind for row in rows}
    if asked.normal:
        kept = "are exact" if exact else "hold for any number of users"
        also = f"; intervals of quantiles {kept}" * ("quantile" in kinds)
        return f"The intervals use the normal approximation, which needs thousands of users{also}."
    bounded = [f"{kind}s" for kind in ("mean", "share", "quantile") if kind in kinds and (kind == "mean" or not exact)]
    bounded += [f"{about}s" for about in ("difference", "population") if any(row.about == about for row in rows)]
    words = []
    if kinds & {"share", "quantile"} and exact:
        named = [f"{kind}s" for kind in ("share", "quantile") if kind in kinds]
        words.append(f"intervals of {' and '.join(named)} are exact")
    if bounded:
        listed = ", ".join(bounded[:-1]) + " and " * (len(bounded) > 1) + bounded[-1]
        shorter = "; --normal gives shorter ones" if exact else ""
        words.append(f"intervals of {listed} hold for any number of users{shorter}")
    return "; ".join(words)[:1].upper() + "; ".join(words)[1:] + "."


def _explanations(rows: list[Row], asked: Asked, level: float) -> dict[str, str]:
    """Explains each column and row."""
    kinds, abouts = {row.statement.kind for row in rows}, {row.about for row in rows}
    quantiles = "quantile" in kinds
    words = {
        "reports": "number of reports of these users",
        "estimate": "unbiased: the randomization is undone, on average" if kinds != {"quantile"} else "",
        "quantile": "the first category, in the order of the domain, at which the cumulative share reaches the "
        "quantile, by the likeliest distribution (of other mechanisms: by InvP), or the nearer end of the interval"
        if quantiles
        else "",
        "std. error": "standard error of the estimate" + "; quantiles have none" * quantiles,
        form.interval(level): "holds the true value with this confidence, each row for itself",
        "all": "the users of all levels together" if asked.by is not None else "",
    }
    if "difference" in abouts:
        words["… less …"] = "the difference between two levels"
    if "population" in abouts:
        words["population"] = "all levels together, each weighted by its size in --population"
    return words


def _short(level: str) -> str:
    level = form.printable(level)
    return level if len(level) <= LONGEST_LEVEL else level[: LONGEST_LEVEL - 1] + "…"


def _draw(plot: Path, rows: list[Row], collection: Reports, level: float) -> None:
    """Draws a panel for each statement, but for quantiles of labels that are no numbers."""
    with show.drawing():
        from rrjax.figures import forest_figure, save
        from rrjax.figures.estimates import Statements

        panels = {}
        for statement in dict.fromkeys(row.statement for row in rows):
            # A difference has another scale than the shares.
            own = [row for row in rows if row.statement is statement and row.about != "difference"]
            try:
                value, lower, upper = (
                    [math.nan if (each := getattr(row, name)) is None else float(each) for row in own]
                    for name in ("value", "lower", "upper")
                )
            except ValueError:
                continue
            levels = [row.level for row in own]
            panels[statement.name] = Statements(levels, value, lower, upper, statement.kind == "share")
        if not panels:
            raise UsageError.about(
                "--plot", "draws numbers, and quantiles of these labels are not numbers: ask for --mean or --group"
            )
        title = f"{collection.called} in column {collection.counted.column}, ε = {collection.epsilon:.4g}"
        save(forest_figure(panels, level=level, title=title), plot)


def written(row: Row) -> tuple[str, str, str]:
    """A value, its standard error and its interval, as texts."""
    if row.statement.kind == "quantile":
        if row.contradicted:
            return "–", "", "–"
        return form.printable(row.value), "", f"{form.printable(row.lower)} – {form.printable(row.upper)}"
    known = math.isfinite(row.standard_error)
    if row.statement.kind == "share":
        error = form.percent(row.standard_error) if known else ""
        return form.percent(row.value), error, form.between(row.lower, row.upper)
    digits = form.decimals(row.standard_error)
    limits = "–" if row.contradicted else f"{row.lower:,.{digits}f} – {row.upper:,.{digits}f}"
    return f"{row.value:,.{digits}f}", f"{row.standard_error:,.{digits}f}" if known else "", limits
