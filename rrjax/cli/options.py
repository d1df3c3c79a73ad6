"""Flags that several commands share, their checks, and how several flags become one argument."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import ArgumentInfo, OptionInfo

from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.paths import DRAWS, READS, WRITES, guarding
from rrjax.data.errors import DataError, UsageError, check_rate, did_you_mean, naming_flags
from rrjax.estimators.names import NAMES
from rrjax.io.labels import listed_in as listed_in
from rrjax.io.write import table_suffix

if TYPE_CHECKING:
    from rrjax.reports.answer import Answer
    from rrjax.reports.kind import Kind

WHICH, CONFIDENCE, STATEMENTS = "Which estimate", "How sure", "Statements"
"""Panels of less common flags. Flags without a panel are listed first, in the order of the parameters."""

FORMATS = ".csv, .tsv, .parquet, .jsonl or .xlsx; or the printed table to a .tex"
"""Formats of --out."""
Out = Annotated[Path | None, typer.Option(help=f"Write all categories to this {FORMATS}."), WRITES]
Plot = Annotated[Path | None, typer.Option(help="Draw a figure: .png, .pdf or .svg."), DRAWS]
Top = Annotated[int, typer.Option(min=1, help="How many of the largest categories to show.")]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals, in (0, 1).", rich_help_panel=CONFIDENCE)]
Ordered = Annotated[
    bool,
    typer.Option(
        "--ordered",
        help="The order of the domain means something (ages, hours): the estimate assumes that neighbours are similar, "
        "as far as the reports confirm it.",
        rich_help_panel=WHICH,
    ),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say more under the tables: what each column is, certificates, noise.")
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object instead of tables; null stands for what is infinite or undefined."
    ),
]


@dataclasses.dataclass(frozen=True)
class Output:
    """Files of results, and the form in which they are printed."""

    out: Out = None
    plot: Plot = None
    top: Top = 20
    explain: Explain = False
    json: Json = False

    def __post_init__(self) -> None:
        """Refuses file names without a known format, before any work is done."""
        if self.plot is not None and self.plot.suffix.lower() not in (".png", ".pdf", ".svg"):
            raise UsageError.about("--plot", f"{self.plot}: figures are written as .png, .pdf or .svg", value=self.plot)
        if self.out is not None:
            try:
                table_suffix(self.out, people=True)
            except DataError as error:
                raise UsageError.about("--out", f"{error}", value=self.out) from error

    @property
    def files(self) -> dict[str, Path | None]:
        """The files as fields of a JSON object."""
        return {"out": self.out, "plot": self.plot}


@dataclasses.dataclass(frozen=True)
class Confidence:
    """The confidence level of intervals, and the false discovery rate."""

    level: Level = 0.95
    at_once: Annotated[
        bool,
        typer.Option(
            "--at-once",
            help="Simultaneous intervals: all of them hold the true shares with the confidence of --level, not each.",
            rich_help_panel=CONFIDENCE,
        ),
    ] = False
    at_any_time: Annotated[
        bool,
        typer.Option(
            "--at-any-time",
            help="Intervals and marks for reports that are read again and again while they grow, such as every day: "
            "wider.",
            rich_help_panel=CONFIDENCE,
        ),
    ] = False
    tuned_to: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="USERS",
            help="With --at-any-time: where its intervals are narrow. Choose it before you look. By default 10,000.",
            rich_help_panel=CONFIDENCE,
        ),
    ] = None
    fakes: Annotated[
        bool,
        typer.Option(
            "--fakes",
            help="A column: how many fake reports would overturn the mark ● of a category, or its absence.",
            rich_help_panel=CONFIDENCE,
        ),
    ] = False
    fdr: Annotated[
        float,
        typer.Option(
            help="False discovery rate: the share of categories marked ● that are empty in truth, on average at most.",
            rich_help_panel=CONFIDENCE,
        ),
    ] = 0.05

    def __post_init__(self) -> None:
        """Refuses levels and rates outside of (0, 1)."""
        check_rate("level", self.level)
        check_rate("fdr", self.fdr, small=True)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of questions that were given."""
        level, fdr = (None if value == default else value for value, default in ((self.level, 0.95), (self.fdr, 0.05)))
        looks = {"looks": "any" if self.at_any_time else None, "tuned_to": self.tuned_to}
        return {"level": level, "simultaneous": self.at_once, "fdr": fdr, "fakes": self.fakes, **looks}


_statement = partial(typer.Option, rich_help_panel=STATEMENTS)


@dataclasses.dataclass(frozen=True)
class StatementFlags:
    """The statements to estimate: means, quantiles, shares of groups."""

    mean: Annotated[bool, _statement("--mean", help="The mean, if the labels are numbers.")] = False
    quantile: Annotated[
        list[float] | None, _statement(help="A quantile in the order of the domain, such as 0.5. Repeatable.")
    ] = None
    group: Annotated[
        list[str] | None,
        _statement(help="The share of some categories together: NAME=LABEL,LABEL or NAME=FIRST:LAST. Repeatable."),
    ] = None
    within: Annotated[
        str | None,
        _statement(
            help="A column of numbers that were not randomized: --mean and --quantile are of these, within each class "
            "of --column."
        ),
    ] = None
    normal: Annotated[
        bool,
        _statement(
            "--normal", help="Intervals by the normal approximation: shorter, and valid for thousands of users."
        ),
    ] = False
    by: Annotated[str | None, _statement(help="A public column: the statements for each of its levels.")] = None
    weights: Annotated[str | None, _statement(help="A column of survey weights.")] = None
    strata: Annotated[str | None, _statement(help="A column of the strata of a sample survey.")] = None
    clusters: Annotated[
        str | None, _statement(help="A column of the clusters of a sample survey, such as schools.")
    ] = None
    population_size: Annotated[
        str | None,
        _statement(
            metavar="COLUMN|NUMBER",
            help="How many clusters (without --clusters: people) the population of each stratum has: a column, or a "
            "number for all.",
        ),
    ] = None
    total: Annotated[bool, _statement("--total", help="Numbers of people, and sums, in place of shares and means.")] = (
        False
    )
    population: Annotated[
        Path | None,
        _statement(
            help="A table of two columns, the levels of --by and their sizes in the population: adds an estimate for "
            "the population."
        ),
        READS,
    ] = None

    def __post_init__(self) -> None:
        """Refuses --normal where nothing is asked that it applies to."""
        if self.normal and not self.any():
            raise UsageError.about("--normal", "applies to --mean, --group, --by and --weights: ask for one of them")
        other = next((name for name in self.given if name not in {"within", "mean", "quantile", "by"}), None)
        if self.within is not None and other is not None:
            flag = f"--{other.replace('_', '-')}"
            raise UsageError.about(flag, "does not apply to --within, numbers within classes: leave it out")
        if (size := self.population_size) and re.fullmatch("[1-9][0-9]{0,2}[.][0-9]{3}", size):
            problem = f"{size} may be {float(size):g} or {size.replace('.', ',')}: write it without a point"
            raise UsageError.about("--population-size", problem, value=size)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of `Reports.statements` or `Reports.within` that were given."""
        given = {name: value for name, value in vars(self).items() if value}
        with suppress(ValueError):  # the name of a column
            given |= {"population_size": float(self.population_size)} if self.population_size else {}
        return given

    def any(self) -> bool:
        """Whether any statement is to be estimated."""
        return bool(self.given.keys() - {"normal"})


def estimator_names() -> list[str]:
    """Names of estimators, for completion in the shell."""
    return list(NAMES)


def estimator_name(text: str) -> str:
    """The name of an estimator; hyphens are as good as underscores."""
    name = text.replace("-", "_")
    if name not in NAMES:
        from rrjax.estimators.catalogue import ESTIMATORS  # with JAX: only for an added or a wrong name

        if name in ESTIMATORS:
            return name
        raise typer.BadParameter(f"{text!r} is none of {', '.join(NAMES)}{did_you_mean(name, NAMES)}")
    return name


class Command(TyperCommand):
    """A command that refuses a repeated option that takes one value, and a whole number with a point or "_".

    Typer's own parser keeps the last of repeated values silently, takes 10.000 for ten, and its message about a bad
    value may leave that out.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; `UsageError` for a repeated option, or a whole number that is not in digits alone."""
        if ctx.resilient_parsing:  # the shell completes what is not whole yet
            return super().parse_args(ctx, args)
        values, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(given).items():
            single = parameter.param_type_name == "option" and not parameter.multiple and not parameter.is_eager
            if times > 1 and single:
                with show.reporting():
                    problem = f"{parameter.opts[0]} was given {times} times, and takes one value: give it once"
                    raise UsageError(problem, flag=parameter.opts[0])
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            came = values.get(getattr(error.param, "name", None) or "") or []
            texts = [came] if isinstance(came, str) else came
            said = error.message.split()
            if texts and not any(text in said or repr(text) in error.message for text in texts):
                error.message += f"; got {', '.join(map(repr, texts))}"
            raise
        for parameter in given:
            came, known = values.get(parameter.name or ""), ctx.params.get(parameter.name or "")
            texts, numbers = (each if isinstance(each, list) else [each] for each in (came, known))
            pairs = zip(map(str, texts), numbers, strict=False)
            odd = next((text for text, each in pairs if type(each) is int and not text.strip(" +-").isdigit()), None)
            if odd is not None:
                with show.reporting():
                    problem = f"takes a whole number, in digits alone, got {odd!r}"
                    raise UsageError.about(parameter.opts[0], problem, value=odd)
        return rest


def flags(
    *, without: tuple[str, ...] = (), panels: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replaces each parameter of a command that is a dataclass by flags, one for each of its fields.

    The fields have Typer's annotations. Fields named in `without` get no flag; `panels` moves flags to other panels.
    Errors of the dataclasses are reported like all others. Files are guarded as the marks of their flags say
    (`rrjax.cli.paths`).
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters, groups = [], {}
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            kind = parameter.annotation
            if not dataclasses.is_dataclass(kind):
                parameters.append(parameter)
                continue
            hints = get_type_hints(kind, include_extras=True)
            hints |= {name: _placed(hints[name], panel) for name, panel in (panels or {}).items() if name in hints}
            fields = [field for field in dataclasses.fields(kind) if field.name not in without]
            groups[parameter.name] = kind, [field.name for field in fields]
            parameters += [
                parameter.replace(name=field.name, annotation=hints[field.name], default=field.default)
                for field in fields
            ]
        # Typer calls by keyword, so a flag without default may follow one that has one.
        parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters]
        for parameter in parameters:
            for mark in getattr(parameter.annotation, "__metadata__", ()):
                if isinstance(mark, OptionInfo | ArgumentInfo):
                    mark.readable = False  # said where a file is read, as other faults of files are

        @wraps(command)
        def run(**given: Any) -> None:
            from rrjax.cli.app import started

            with show.reporting(), naming_flags(), started():
                paths = guarding(parameters, given.copy())
                if given.get("explain") and given.get("json"):
                    raise UsageError.about("--explain", "is about tables, and --json prints none: give one of the two")
                grouped = {
                    name: cast(Any, kind)(**{field: given.pop(field) for field in fields})
                    for name, (kind, fields) in groups.items()
                }
                with paths:
                    command(**given, **grouped)

        cast(Any, run).__signature__ = inspect.Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _placed(hint: Any, panel: str) -> Any:
    """The annotation of a flag, moved to another panel."""
    kind, option, *marks = get_args(hint)
    option = copy.copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option, *marks]


def split(flag: str, text: str) -> list[str]:
    """The names of columns in a flag, separated by commas."""
    names = listed_in(flag, text)
    if not names or not all(names):
        raise UsageError(f"{flag} wants names of columns with commas between them, got {text!r}", flag=flag, value=text)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{flag} names column {twice!r} twice", flag=flag, value=text)
    return names


QUESTIONS = {
    "statements": "--mean, --quantile, --group, --by and --weights",
    "within": "--within",
    "joint": "--joint",
    "pairs": "--all-pairs",
    "tree": "--tree",
}
"""Questions by the flags that ask them; the others are asked by commands."""
FLAGS = {
    "simultaneous": "--at-once",
    "estimators": "--estimator",
    "columns": "--joint",
    "looks": "--at-any-time",
    "asked": QUESTIONS["statements"],
}
"""Flags of arguments with other names."""


def ask(reports: Kind, question: str, **given: Any) -> Answer:
    """Asks reports of any kind a question, the name of a method; arguments that are None or False were not given."""
    asked = QUESTIONS.get(question)
    if question not in reports.questions():
        raise _refused(asked, reports.called_kind, reports.instead) if asked else _without(question, reports)
    method = getattr(reports, question)
    given = {name: value for name, value in given.items() if value is not None and value is not False}
    of_flags = asked if asked and "shares" in reports.questions() else None
    given = taken(method, of_flags or reports.called_kind, "" if of_flags else reports.instead, **given)
    with show.status("Estimating …"), ending_at_once():
        return method(**given)


def taken(function: Callable[..., Any], what: str, instead: str = "", **given: Any) -> dict[str, Any]:
    """The arguments that a function takes; others that are given are refused by their flags."""
    known = inspect.signature(function).parameters
    odd = next((name for name, value in given.items() if name not in known and _was_given(value)), None)
    if odd is not None:
        raise _refused(FLAGS.get(odd, f"--{odd.replace('_', '-')}"), what, instead)
    return {name: value for name, value in given.items() if name in known}


def _was_given(value: Any) -> bool:
    """Whether the value of a flag came from its user; zero and an empty text did."""
    return value is not None and value is not False and value not in ([], (), {})


def _refused(flag: str, what: str, instead: str) -> UsageError:
    """The error about a flag that does not apply."""
    verb, pronoun = ("do", "them") if "," in flag else ("does", "it")
    other = f"{instead}, or " if instead else ""
    return UsageError(f"{flag} {verb} not apply to {what}: {other}leave {pronoun} out", flag=flag)


def _without(command: str, reports: Kind) -> UsageError:
    """The error about reports that a command does not take as they are."""
    flags = ", ".join(QUESTIONS[each] for each in reports.questions() if each in QUESTIONS)
    instead = " or ".join(filter(None, [reports.instead, flags and f"ask for {flags}"]))
    name = {"shares": "table of all categories", "compare": "comparison"}.get(command, command)
    return UsageError(f"{reports.called_kind} have no {name}: {instead}", flag="REPORTS")
