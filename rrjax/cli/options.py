"""The flags on results that commands share, and how several flags become one argument."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from typer.core import TyperCommand

from rrjax.data.errors import UsageError
from rrjax.estimators.catalogue import ESTIMATORS
from rrjax.io.errors import naming_flags
from rrjax.mechanisms import MECHANISMS
from rrjax.mechanisms.table import full_name

WHICH, SURE = "Which estimate", "How sure"
"""Panels of flags that are wanted more rarely. Those without one are listed first, in the order of the parameters."""

Out = Annotated[Path | None, typer.Option(help="Write all categories to this .csv, .tsv, .parquet or .jsonl.")]
Plot = Annotated[Path | None, typer.Option(help="Draw a figure: .png, .pdf or .svg.")]
Top = Annotated[int, typer.Option(min=1, help="How many of the largest categories to show.")]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals, in (0, 1).", rich_help_panel=SURE)]
Ordered = Annotated[
    bool,
    typer.Option(
        "--ordered",
        help="The order of the domain means something (ages, hours): neighbours are taken to be alike, as far as the "
        "reports bear it out.",
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


def estimator_names() -> list[str]:
    """What may be an estimator, for a shell that completes it."""
    return list(ESTIMATORS)


def mechanism_names() -> list[str]:
    """What may be a mechanism, for a shell that completes it."""
    return list(MECHANISMS)


def estimator_name(text: str) -> str:
    """The name of an estimator; hyphens are as good as underscores.

    Raises:
        BadParameter: There is none of that name.
    """
    name = text.replace("-", "_")
    if name not in ESTIMATORS:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(ESTIMATORS)}")
    return name


def mechanism_name(text: str) -> str:
    """The name of a mechanism; underscores are as good as hyphens, and so are the usual abbreviations.

    Raises:
        BadParameter: There is none of that name.
    """
    name = full_name(text)
    if name not in MECHANISMS:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(MECHANISMS)}")
    return name


MechanismName = Annotated[
    str,
    typer.Option(
        parser=mechanism_name,
        autocompletion=mechanism_names,
        metavar="NAME",
        help=f"One of {', '.join(MECHANISMS)}.",
        rich_help_panel="Which mechanism",
    ),
]


class Command(TyperCommand):
    """A command that refuses an option given twice, unless it is one that takes several, and repeats a bad value.

    The parser would keep the last and drop the others without a word, and says of a bad value only what it is not.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses as any command does, after a look at what is there more than once."""
        values, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(given).items():
            single = parameter.param_type_name == "option" and not parameter.multiple and not parameter.is_eager
            if times > 1 and single:
                from rrjax.cli import show

                with show.reporting():
                    raise UsageError(
                        f"{parameter.opts[0]} was given {times} times, and takes one value: give it once",
                        flag=parameter.opts[0],
                    )
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            came = values.get(getattr(error.param, "name", None) or "") or []
            texts = [came] if isinstance(came, str) else came
            said = error.message.split()
            if texts and not any(text in said or repr(text) in error.message for text in texts):
                error.message += f"; got {', '.join(map(repr, texts))}"
            raise


def flags(
    *, without: tuple[str, ...] = (), panels: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command a flag for every field of those of its parameters that are dataclasses, but for some.

    The fields are annotated as Typer wants parameters to be. What a dataclass refuses is reported as other errors are.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters, groups = [], {}
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            kind = parameter.annotation
            if not dataclasses.is_dataclass(kind):
                parameters.append(parameter)
                continue
            hints = inspect.get_annotations(cast(type, kind), eval_str=True)
            hints |= {name: _placed(hints[name], panel) for name, panel in (panels or {}).items() if name in hints}
            fields = [field for field in dataclasses.fields(kind) if field.name not in without]
            groups[parameter.name] = kind, [field.name for field in fields]
            parameters += [
                parameter.replace(name=field.name, annotation=hints[field.name], default=field.default)
                for field in fields
            ]
        # Typer calls by keyword, so a flag without default may follow one that has one.
        parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters]

        @wraps(command)
        def run(**given: Any) -> None:
            from rrjax.cli import show

            with show.reporting(), naming_flags():
                if given.get("explain") and given.get("json"):
                    raise UsageError(
                        "--explain is about tables, and --json prints none: give one of the two", flag="--explain"
                    )
                grouped = {
                    name: cast(Any, kind)(**{field: given.pop(field) for field in fields})
                    for name, (kind, fields) in groups.items()
                }
                command(**given, **grouped)

        cast(Any, run).__signature__ = inspect.Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _placed(hint: Any, panel: str) -> Any:
    """The annotation of a flag, in another panel."""
    kind, option = get_args(hint)
    option = copy.copy(option)
    option.rich_help_panel = panel
    return Annotated[kind, option]
