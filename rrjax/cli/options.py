"""The flags that the commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Format = Literal["csv", "tsv", "parquet", "jsonl", "transactions"]
Items = Literal["first", "all"]
Name = Literal["mle-star", "inv-p", "inv-n", "inv", "ibu"]

READ, RESULT = "Reading", "Results"
Column = Annotated[
    str | None,
    typer.Option(
        help="Column to read: its name, or its number (from 1) where there is no header.", rich_help_panel=READ
    ),
]
DomainOption = Annotated[
    str | None,
    typer.Option(
        "--domain",
        help="All categories: a range such as 0:99, both ends included, or a file of labels, one a line.",
        rich_help_panel=READ,
    ),
]
Epsilon = Annotated[
    float | None, typer.Option(help="Privacy parameter of the collection, in nats.", rich_help_panel=READ)
]
Counts = Annotated[
    str | None,
    typer.Option(help="The file holds counts already: the column they are in.", rich_help_panel=READ),
]
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", help="Format, where the file's name does not tell.", rich_help_panel=READ),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether a CSV starts with column names.", rich_help_panel=READ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(help="What separates the columns of a CSV (one character, or 'tab').", rich_help_panel=READ),
]
ItemsOption = Annotated[
    Items, typer.Option("--items", help="Which items of a transaction count.", rich_help_panel=READ)
]
Missing = Annotated[
    list[str] | None,
    typer.Option(help="A text that stands for a missing value, such as '?'. Repeatable.", rich_help_panel=READ),
]
Out = Annotated[
    Path | None,
    typer.Option(help="Write all categories to this .csv, .tsv, .parquet or .jsonl.", rich_help_panel=RESULT),
]
Plot = Annotated[Path | None, typer.Option(help="Draw a figure: .png, .pdf or .svg.", rich_help_panel=RESULT)]
Top = Annotated[int, typer.Option(min=1, help="How many of the largest categories to show.", rich_help_panel=RESULT)]
Level = Annotated[float, typer.Option(help="Confidence level of the intervals, in (0, 1).", rich_help_panel=RESULT)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.", rich_help_panel=RESULT)]
Reports = Annotated[list[str], typer.Argument(metavar="REPORTS...", help="Files of randomized reports; globs work.")]
