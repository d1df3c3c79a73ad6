"""`rrjax estimate` of several columns that were randomized apart: their joint distribution, and all pairs."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import typer

import rrjax
from rrjax import inference, io
from rrjax.cli import show
from rrjax.cli.apart import of_a_user
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output, refuse_flags, split
from rrjax.cli.reading import Files
from rrjax.data.errors import UsageError
from rrjax.io.metadata import Metadata
from rrjax.io.rows import read_rows
from rrjax.io.tallies import mechanism_of
from rrjax.mechanisms import Product
from rrjax.reports import form

PANEL = "Several columns"
MOST_CELLS = 1 << 21
"""Limit of the number of cells of a joint table."""
MOST_DENSE_CELLS = 512
"""Number of cells up to which there is a closest estimate, and the maximum is found with a matrix of them."""
NUM_DRAWS = 9999
MOST_DRAWN_CELLS = 1 << 25
"""Limit of the number of cells × draws of the intervals of an association, which are in memory together."""
INTERVAL_DRAWS, LEAST_DRAWS = 1999, 99
SIGNIFICANT = 0.05
"""Level of the p-values, corrected for all pairs, of the pairs that a figure marks."""


@dataclasses.dataclass(frozen=True)
class Joint:
    """The flags of several columns."""

    joint: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,COLUMN,…",
            help="The joint distribution of columns of `rrjax randomize --apart`.",
            rich_help_panel=PANEL,
        ),
    ] = None
    all_pairs: Annotated[
        bool,
        typer.Option(
            "--all-pairs", help="Which columns go together: the association of all pairs.", rich_help_panel=PANEL
        ),
    ] = False
    tree: Annotated[
        bool,
        typer.Option(
            "--tree",
            help="A tree of the strongest pairs (Chow–Liu), without the joint table: of all columns, or those of "
            "--joint.",
            rich_help_panel=PANEL,
        ),
    ] = False

    def check(self, others: dict[str, Any]) -> bool:
        """Whether several columns are to be estimated; `UsageError` for flags that do not apply."""
        if self.joint is None and not self.all_pairs and not self.tree:
            return False
        if self.all_pairs and self.flag != "--all-pairs":
            raise UsageError(f"{self.flag} and --all-pairs are two questions: give one of them", flag="--all-pairs")
        refuse_flags(others, self.flag)
        return True

    @property
    def flag(self) -> str:
        """The flag that asks for several columns."""
        return "--tree" if self.tree else "--joint" if self.joint is not None else "--all-pairs"


@dataclasses.dataclass(frozen=True)
class Columns:
    """The reports of several columns of the same users."""

    metadata: list[Metadata]
    product: Product
    reports: list[np.ndarray]
    """The reports of each column, −1 where one is missing."""

    @property
    def num_users(self) -> int:
        """The number of users with a report in any column."""
        return int(np.logical_or.reduce([each >= 0 for each in self.reports]).sum())

    @property
    def num_complete(self) -> int:
        """The number of users with a report in every column."""
        return int(np.logical_and.reduce([each >= 0 for each in self.reports]).sum())

    @property
    def is_partial(self) -> bool:
        """Whether some users have a report in some of the columns only."""
        return self.num_complete < self.num_users

    @property
    def numbers(self) -> dict[str, int]:
        """Both, as fields of a JSON object."""
        return {"num_reports": self.num_users, "num_complete": self.num_complete}

    @property
    def epsilon(self) -> float:
        """The ε of all reports of a user in these columns, nats."""
        return of_a_user([each.epsilon for each in self.metadata], self.metadata[0].sampled)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [each.column for each in self.metadata]

    def pair(self, places: Sequence[int]) -> Columns:
        """Some of the columns."""
        product = self.product.part(places)
        return Columns([self.metadata[k] for k in places], product, [self.reports[k] for k in places])


@ending_at_once()
def run(files: Files, joint: Joint, level: float, output: Output) -> None:
    """Estimates the joint distribution, or all pairs, and prints it."""
    chosen = chosen_columns(files, joint)
    with show.status("Counting …") as status:
        columns = read_columns(files, chosen)
        status.update("Estimating …")
        if joint.all_pairs:
            _pairs(columns, level, output)
        else:
            _joint(columns, level, output)


def chosen_columns(files: Files, joint: Joint) -> list[Metadata]:
    """The columns that are to be estimated; `UsageError` if they do not go together."""
    known = files.source.columns()
    if len(known) < 2:
        raise UsageError(
            f"{files.name} has no columns that were randomized apart: `rrjax randomize --apart` makes such files",
            flag=joint.flag,
        )
    names = list(known) if joint.joint is None else split("--joint", joint.joint)
    lacking = next((name for name in names if name not in known), None)
    if lacking is not None or len(names) < 2:
        problem = f"{lacking!r} is none of {', '.join(map(repr, known))}" if lacking else "name two columns or more"
        raise UsageError(f"--joint: {problem}", flag="--joint", value=joint.joint)
    chosen = [known[name] for name in names]
    together = chosen[0].sampled or len(names)
    if together < (len(names) if joint.flag == "--joint" else 2):
        raise UsageError(
            f"each user of {files.name} reports {form.number(together, 'column', 'columns')}, drawn at random: how "
            "more of them go together is not in the reports. Estimate "
            + (
                "each with --column"
                if together == 1
                else f"the joint distribution of {together}, a --tree, or --all-pairs"
            ),
            flag=joint.flag,
            value=joint.joint,
        )
    return chosen


def read_columns(files: Files, metadata: list[Metadata]) -> Columns:
    """Reads the reports of some columns of the same users."""
    mechanisms = [mechanism_of(each, files.name) for each in metadata]
    reports = [
        read_rows(dataclasses.replace(files.source, column=each.column), each.domain).indices for each in metadata
    ]
    return Columns(metadata, Product(tuple(mechanisms)), reports)


def _counted(columns: Columns) -> Any:
    """The counts of the reports, if their table is not too large."""
    product = columns.product
    if product.num_categories > MOST_CELLS:
        raise UsageError(
            f"--joint: the joint table of {' × '.join(f'{size:,}' for size in product.shape)} categories has "
            f"{product.num_categories:,} cells, and the limit is {MOST_CELLS:,}: name fewer columns, or add "
            "--tree, which takes tables of two columns",
            flag="--joint",
        )
    return product.count(columns.reports)


def _association(columns: Columns, level: float) -> dict[str, Any]:
    """The association of two columns with its intervals, and the test of independence."""
    counts, (rows, width) = _counted(columns), columns.product.shape
    facts = association_facts(columns, counts, level)
    # The reports are independent exactly if the values are, so the test needs no ε. It takes users who report both.
    complete = counts[:rows, :width]
    test = inference.independence_test(jax.random.split(jax.random.key(0))[1], complete, num_draws=NUM_DRAWS)
    ratio = inference.Limits(*[jnp.asarray(jnp.nan)] * 3)
    if (rows, width) == (2, 2):
        ratio = jax.tree.map(lambda each: each[1, 1], inference.odds_ratios(counts, columns.product, level=level))
    facts |= _fields("odds_ratio", ratio)
    return facts | {"p_value": float(test.p_value)}


def association_facts(columns: Columns, counts: Any, level: float) -> dict[str, Any]:
    """The association of two columns with its intervals."""
    key, _ = jax.random.split(jax.random.key(0))
    draws = min(INTERVAL_DRAWS, max(LEAST_DRAWS, MOST_DRAWN_CELLS // columns.product.num_categories))
    found = inference.association(key, counts, columns.product, level=level, num_draws=draws)
    facts = {"columns": columns.names} | _fields("cramers_v", found.cramers_v)
    return facts | _fields("mutual_information", found.mutual_information)


def _fields(name: str, limits: inference.Limits) -> dict[str, float]:
    return {name: float(limits.value), f"{name}_lower": float(limits.lower), f"{name}_upper": float(limits.upper)}


def associations(columns: Columns, level: float) -> list[dict[str, Any]]:
    """The association of all pairs, the largest first, with p-values corrected for all of them."""
    places = itertools.combinations(range(len(columns.names)), 2)
    pairs = [_association(own, level) for own in map(columns.pair, places) if own.product.num_categories <= MOST_CELLS]
    # Holm: the smallest of m p-values times m, the next one times m − 1, and so on, not decreasing.
    largest = 0.0
    for rank, pair in enumerate(sorted(pairs, key=lambda pair: (math.isnan(pair["p_value"]), pair["p_value"]))):
        largest = max(largest, min(1.0, pair["p_value"] * (len(pairs) - rank)))
        pair["adjusted_p_value"] = largest
    return sorted(pairs, key=lambda pair: math.inf if math.isnan(pair["cramers_v"]) else -pair["cramers_v"])


def _pairs(columns: Columns, level: float, output: Output) -> None:
    pairs = associations(columns, level)
    if output.out is not None:
        texts = {f"column_{k + 1}": np.asarray([pair["columns"][k] for pair in pairs], object) for k in (0, 1)}
        numbers = {name: np.asarray([pair[name] for pair in pairs]) for name in pairs[0] if name != "columns"}
        io.write_table(output.out, texts | numbers)
    if output.plot is not None:
        _draw(output.plot, columns, pairs)
    if output.json:
        facts = {"command": "estimate", **columns.numbers, "level": level}
        show.record(facts | {"pairs": pairs} | output.files)
        return
    show_head(columns, warnings_of(columns))
    table = show.table("columns", "Cramér's V", form.interval(level), "mutual information", "p", "p of all")
    for pair in pairs[: output.top]:
        names = " × ".join(map(form.printable, pair["columns"]))
        value, limits = written(pair, "cramers_v", 3)
        cells = [value, limits.replace("to", "–"), written(pair, "mutual_information", 4)[0]]
        p_values = [pair["p_value"], pair["adjusted_p_value"]]
        table.add_row(names, *cells, *("unknown" if math.isnan(p) else f"{p:.2g}" for p in p_values))
    show.show_table(table)
    left = len(pairs) - output.top
    if left > 0:
        show.say(f"… and {form.number(left, 'more pair', 'more pairs')}", style="dim")
    show.out.print()
    show.say(
        "Cramér's V: 0 for independent columns, 1 where one determines the other. The estimates of V and of the mutual "
        "information (nats) are corrected for noise."
    )
    show.say("p: of independence, exact up to its simulation; p of all: corrected for all pairs (Holm).")
    show.show_files({"Pairs": output.out, "Figure": output.plot})


def written(pair: dict[str, Any], name: str, digits: int) -> tuple[str, str]:
    """A measure and its interval as texts."""
    if math.isnan(pair[f"{name}_lower"]):
        return "unknown", ""
    value, lower, upper = (f"{pair[name + end]:.{digits}f}".replace("inf", "∞") for end in ("", "_lower", "_upper"))
    return value, f"{lower} to {upper}"


def _draw(plot: Path, columns: Columns, pairs: list[dict[str, Any]]) -> None:
    simulated = "; simulated, so nobody is protected" if any(each.simulated for each in columns.metadata) else ""
    with show.drawing():
        from rrjax.figures import association_figure, save

        figure = association_figure(
            columns.names,
            {tuple(pair["columns"]): pair["cramers_v"] for pair in pairs if not math.isnan(pair["cramers_v"])},
            significant=[tuple(pair["columns"]) for pair in pairs if pair["adjusted_p_value"] <= SIGNIFICANT],
            title=f"{columns.num_users:,} users, randomized apart{simulated}",
        )
        save(figure, plot)


def _joint(columns: Columns, level: float, output: Output) -> None:
    counts, product = _counted(columns), columns.product
    how = "newton" if product.num_categories <= MOST_DENSE_CELLS else "anderson"
    found = rrjax.ibu(product.mixture_of_counts(counts), accelerate=how)
    theta = np.asarray(found.theta)
    shares = {"likeliest": theta}
    if product.num_categories <= MOST_DENSE_CELLS:
        closest = np.asarray(rrjax.joint_bayes(product.mixture_of_counts(counts), product.shape).theta)
        shares = {"closest": closest} | shares
    numbers = {"unbiased": product.inv(counts), "standard_error": np.sqrt(product.inv_variances(counts))}
    numbers = shares | {name: np.asarray(each) for name, each in numbers.items()}
    labels = [each.domain.labels() for each in columns.metadata]
    leading = next(iter(shares.values()))
    order = np.argsort(-leading, kind="stable")

    def named(cells: np.ndarray) -> dict[str, np.ndarray]:
        places = np.unravel_index(cells, product.shape)
        return {
            name: np.asarray([str(each) for each in own[place]], object)
            for name, own, place in zip(columns.names, labels, places, strict=True)
        }

    if output.out is not None:
        everything = named(np.arange(theta.size))
        io.write_table(output.out, everything | numbers)
    association = _association(columns, level) if len(columns.names) == 2 else None
    top = order[: output.top]
    texts = named(top)
    if output.json:
        rows = [
            {
                "labels": [own[0] for own in named(np.array([place])).values()],
                "closest": None,
            }
            | {name: float(each[place]) for name, each in numbers.items()}
            for place in top.tolist()
        ]
        facts = {"level": level, "num_cells": theta.size, "gap": float(found.gap), "converged": bool(found.converged)}
        record = {"command": "estimate", "columns": columns.names, **columns.numbers}
        show.record(record | facts | {"association": association, "top": rows} | output.files)
        return
    show_head(columns, warnings_of(columns))
    names = map(form.printable, columns.names)
    table = show.table(*names, *shares, "unbiased", "std. error", names=len(columns.names))
    for row, place in enumerate(top.tolist()):
        cells = [form.printable(texts[name][row]) for name in columns.names]
        found_shares = [form.share(each[place]) for each in shares.values()]
        error = numbers["standard_error"][place]
        rest = [form.percent(numbers["unbiased"][place]), "" if np.isnan(error) else form.percent(error)]
        table.add_row(*cells, *found_shares, *rest)
    show.show_table(table)
    left = theta.size - len(top)
    if left:
        rest = form.percent(1 - float(leading[top].sum()))
        show.say(f"… and {form.number(left, 'more cell', 'more cells')} with {rest} together", style="dim")
    show.out.print()
    show.say(
        "closest: how much the columns interact is estimated, too; it has no standard error; "
        * ("closest" in shares)
        + f"likeliest: within {form.at_most(float(found.gap))} nats per report of the maximum; unbiased: by inversion"
        f"{', from those who report all' * columns.is_partial}, with its standard error."
    )
    if association is not None:
        measures = [("Cramér's V", "cramers_v", 3), ("mutual information", "mutual_information", 4)]
        measures += [("odds ratio", "odds_ratio", 2)] * (columns.product.shape == (2, 2))
        listed = ["{} {} ({})".format(title, *written(association, name, digits)) for title, name, digits in measures]
        show.say(
            f"{', '.join(listed)}, corrected for noise, with {form.in_full(level)} intervals; p of independence "
            f"{association['p_value']:.2g}."
        )
    if not bool(found.converged):
        show.beware("The likeliest table did not converge; believe the unbiased one.")
    show.show_files({"All cells": output.out})


def show_head(columns: Columns, warnings: list[str]) -> None:
    """Prints which columns these are, of how many users, their ε, and warnings."""
    sampled, complete = columns.metadata[0].sampled, columns.num_complete
    some = f", {complete:,} of them in all of these" if columns.is_partial and complete else ""
    if sampled is not None and not complete:
        some = f", each in {sampled:,} columns, drawn at random"
    each = ", ".join(f"{name!r} ({size:,})" for name, size in zip(columns.names, columns.product.shape, strict=True))
    show.say(
        f"Reports of {columns.num_users:,} users in the columns {each}, randomized apart{some}; ε = "
        f"{columns.epsilon:.6g} nats for these columns together"
    )
    show.warn(warnings)
    show.out.print()


def warnings_of(columns: Columns) -> list[str]:
    """Warnings about pairs that are left out, and simulated reports."""
    simulated = any(metadata.simulated for metadata in columns.metadata)
    large = [
        " × ".join(own.names)
        for own in map(columns.pair, itertools.combinations(range(len(columns.names)), 2))
        if own.product.num_categories > MOST_CELLS
    ]
    warnings = (
        [f"Left out, because their tables have more than {MOST_CELLS:,} cells: {', '.join(large)}."] if large else []
    )
    if simulated:
        warnings.append("The reports are a simulation (made with --seed); they protect nobody.")
    return warnings
