"""Survey designs by flags: what the answers in a table were made by."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import typer

from rrjax.cli.options import did_you_mean
from rrjax.data.errors import ArgumentError, UsageError
from rrjax.io.domain import Domain
from rrjax.mechanisms import COMPLIANCE, DESIGNS, MECHANISMS, Compliance, Design
from rrjax.mechanisms.table import TABLE, full_name

PANEL = "Which survey design"
KNOWN = [*DESIGNS, *COMPLIANCE]
Made = TypeVar("Made")
EXAMPLES = {"forced": "1/2,1/2", "unrelated": "1/4,3/4"}
"""Values of parameters that are distributions; those of the others are single numbers."""


def design_name(text: str) -> str:
    """The name of a survey design.

    Raises:
        BadParameter: There is none of that name.
    """
    name = full_name(text)
    if name in MECHANISMS:
        raise typer.BadParameter(
            f"reports of {name} are read with their metadata (`rrjax randomize` writes them), and those of "
            "randomized response with --epsilon alone; --mechanism names a survey design"
        )
    if name not in KNOWN:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(KNOWN)}{did_you_mean(name, KNOWN)}")
    return name


@dataclasses.dataclass(frozen=True)
class SurveyDesign:
    """The flags of a survey design."""

    mechanism: Annotated[
        str | None,
        typer.Option(
            parser=design_name,
            autocompletion=lambda: KNOWN,
            metavar="NAME",
            help=f"How respondents randomized their answers, in place of --epsilon: {', '.join(DESIGNS)}. `rrjax "
            f"estimate` with --sample also takes {', '.join(COMPLIANCE)}.",
            rich_help_panel=PANEL,
        ),
    ] = None
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A parameter of --mechanism, such as truth=2/3 or forced=1/2,1/2 (in the order of --domain). "
            "Repeatable.",
            rich_help_panel=PANEL,
        ),
    ] = None

    design: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="A file with the mechanism and its parameters, in place of --mechanism and --parameter.",
            rich_help_panel=PANEL,
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuses parameters that the design does not have, or that are missing."""
        if self.design is not None:
            self._read(self.design)
        if self.mechanism is None:
            if self.parameter:
                raise UsageError(
                    f"--parameter {self.parameter[0]} is one of a survey design: name it with --mechanism",
                    flag="--parameter",
                    value=self.parameter[0],
                )
            return
        given, known = self._given, TABLE[self.mechanism].parameters or ()
        odd = next((name for name in given if name not in known), None)
        optional = {field.name for field in _fields(self.mechanism) if field.default is not dataclasses.MISSING}
        lacking = [name for name in known if name not in given and name not in optional]
        if odd is not None or lacking:
            wanted = " ".join(f"--parameter {name}={EXAMPLES.get(name, '2/3')}" for name in known)
            problem = f"has no parameter {odd!r}" if odd is not None else f"lacks its parameter {lacking[0]!r}"
            raise UsageError(
                f"--mechanism {self.mechanism} {problem}: give {wanted}", flag="--parameter", value=odd or lacking[0]
            )

    def _read(self, path: Path) -> None:
        """Takes mechanism and parameters from a file."""
        if self.mechanism is not None or self.parameter:
            raise UsageError(
                "--design holds the mechanism and its parameters: leave --mechanism and --parameter out",
                flag="--design",
                value=path,
            )
        try:
            record = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"--design {path} cannot be read: {error}", flag="--design", value=path) from error
        try:
            name = design_name(str(record.pop("mechanism", "")))
        except typer.BadParameter as error:
            raise UsageError(f"--design {path}, mechanism: {error.message}", flag="--design", value=path) from error
        texts = [
            f"{key}={','.join(map(str, value)) if isinstance(value, list) else value}" for key, value in record.items()
        ]
        object.__setattr__(self, "mechanism", name)
        object.__setattr__(self, "parameter", texts)

    @property
    def _given(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for text in self.parameter or []:
            name, equals, value = text.partition("=")
            name = name.strip().replace("-", "_")
            if not equals or name in found:
                problem = "is given twice" if equals else "wants NAME=VALUE, such as truth=2/3"
                raise UsageError(f"--parameter {text}: {problem}", flag="--parameter", value=text)
            found[name] = value
        return found

    def _made(self, kind: Callable[..., Made], values: dict[str, Any]) -> Made:
        try:
            return kind(**values)
        except ArgumentError as error:
            raise UsageError(f"--parameter: {error}", flag="--parameter", value=self.parameter) from error

    @property
    def of_two_samples(self) -> bool:
        """Whether it is a design that estimates who complies."""
        return self.mechanism in COMPLIANCE

    def compliance(self) -> Compliance:
        """The design of two samples; errors as of `made`."""
        assert self.mechanism is not None
        values = {name: _numbers(name, value) for name, value in self._given.items()}
        return self._made(COMPLIANCE[self.mechanism], values)

    def made(self, domain: Domain) -> Design:
        """The design for these answers.

        Raises:
            UsageError: Parameters that make no design, or one of another number of answers.
        """
        assert self.mechanism is not None
        values: dict[str, Any] = {name: _numbers(name, value) for name, value in self._given.items()}
        if any(field.name == "num_categories" for field in _fields(self.mechanism)):
            values["num_categories"] = domain.num_categories
        if self.mechanism in COMPLIANCE:
            raise UsageError(
                f"--mechanism {self.mechanism} has two samples: `rrjax estimate` takes it, with --sample",
                flag="--mechanism",
                value=self.mechanism,
            )
        design = self._made(DESIGNS[self.mechanism], values)
        if design.num_categories != domain.num_categories:
            raise UsageError(
                f"--mechanism {self.mechanism} with these parameters has {design.num_categories} answers, and --domain "
                f"{domain.num_categories}: they must be the same, in the same order",
                flag="--mechanism",
                value=self.mechanism,
            )
        return design


def _fields(name: str) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cast("Any", COMPLIANCE.get(name) or DESIGNS[name]))


def _numbers(name: str, text: str) -> float | np.ndarray:
    """The number of a parameter or, with commas, several; each may be a fraction."""
    numbers = []
    for part in text.split(","):
        try:
            numbers.append(float(Fraction(part.strip())))
        except (ValueError, ZeroDivisionError):
            numbers.append(math.nan)
    if not np.isfinite(numbers).all():
        raise UsageError(
            f"--parameter {name}={text}: give numbers such as 0.25 or 1/4, with commas between several",
            flag="--parameter",
            value=text,
        )
    return np.asarray(numbers) if len(numbers) > 1 else numbers[0]
