"""What may be asked of reports, and a row of the answers."""

from __future__ import annotations

import dataclasses
import math
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import typer

from rrjax.data.errors import UsageError

PANEL = "Statements"
About: TypeAlias = Literal["users", "difference", "population"]
_flag = partial(typer.Option, rich_help_panel=PANEL)


@dataclasses.dataclass(frozen=True)
class Asked:
    """The flags that ask for statements, for `options.flags`."""

    mean: Annotated[bool, _flag("--mean", help="The mean, where the labels are numbers.")] = False
    quantile: Annotated[
        list[float] | None, _flag(help="A quantile in the order of the domain, such as 0.5. Repeatable.")
    ] = None
    group: Annotated[
        list[str] | None,
        _flag(help="The share of some categories together: NAME=LABEL,LABEL or NAME=FIRST:LAST. Repeatable."),
    ] = None
    normal: Annotated[
        bool,
        _flag("--normal", help="Intervals by the normal approximation: shorter, and valid for thousands of users."),
    ] = False
    by: Annotated[str | None, _flag(help="A public column: the same for each of its levels.")] = None
    weights: Annotated[str | None, _flag(help="A column of survey weights.")] = None
    population: Annotated[
        Path | None,
        _flag(
            help="A table of two columns, the levels of --by and their sizes in the population: adds an estimate for "
            "the population."
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuses what does not go together."""
        if self.population is not None and self.by is None:
            raise UsageError(
                "--population gives the sizes of the levels of --by: name that column with --by", flag="--population"
            )
        if self.population is not None and self.weights is not None:
            raise UsageError(
                "--population and --weights are two ways to weigh the users: give one of the two", flag="--population"
            )
        if self.population is not None and self.quantile and not (self.mean or self.group):
            raise UsageError(
                "--population weighs means and groups, not quantiles: ask for --mean or --group", flag="--population"
            )
        if self.weights is not None and self.quantile:
            raise UsageError(
                "--quantile has no interval for weighted reports: leave out --weights, or ask for --group",
                flag="--quantile",
            )
        if self.normal and not self.any():
            raise UsageError(
                "--normal applies to --mean, --quantile, --group, --by and --weights: ask for one of them",
                flag="--normal",
            )
        for probability in self.quantile or []:
            if not sys.float_info.min <= probability < 1:
                raise UsageError(
                    f"--quantile must lie between 0 and 1 (0.5 is the median), got {probability:g}",
                    flag="--quantile",
                    value=probability,
                )

    def any(self) -> bool:
        """Whether anything was asked for."""
        return any(getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "normal")


@dataclasses.dataclass(frozen=True, eq=False)
class Statement:
    """One thing to say of a distribution: c·θ, or a quantile."""

    name: str
    kind: str
    """mean, share or quantile."""
    values: np.ndarray | None
    probability: float = math.nan


@dataclasses.dataclass(frozen=True)
class Row:
    """A statement about some users."""

    statement: Statement
    level: str
    num_reports: int
    value: Any
    standard_error: float
    lower: Any
    upper: Any
    about: About = "users"

    @property
    def contradicted(self) -> bool:
        """Whether the interval of a mean or share is a single point, because no distribution explains the reports."""
        return self.statement.kind != "quantile" and bool(self.lower == self.upper)

    def facts(self) -> dict[str, Any]:
        """As fields of a JSON object."""
        kept = {name: getattr(self, name) for name in ("value", "standard_error", "lower", "upper")}
        name, kind = self.statement.name, self.statement.kind
        return {"statement": name, "kind": kind, "of": self.level, "num_reports": self.num_reports} | kept
