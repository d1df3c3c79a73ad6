"""`rrjax report`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

import rrjax
from rrjax.cli import report_shares, report_trust, show
from rrjax.cli.collection import read_collection
from rrjax.cli.design import SurveyDesign
from rrjax.cli.findings import Findings, find
from rrjax.cli.options import Asked, Level, Ordered, check_rate, flags
from rrjax.cli.reading import Epsilon, Files, Reading, Reports, check_outputs
from rrjax.data.errors import UsageError
from rrjax.figures.html import Markup, contents, heading, is_page, paragraph, write_page

MOST_ROWS = 5000


@flags()
def report(
    context: typer.Context,
    reports: Reports,
    *,
    epsilon: Epsilon = None,
    design: SurveyDesign,
    reading: Reading,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write (.html). By default NAME-report.html in the current folder, where NAME is that of "
            "the first file."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file of --out even where it is no page of rrjax.")
    ] = False,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    top: Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="How many of the largest categories to list.")] = 20,
    asked: Asked,
    ordered: Ordered = False,
    level: Level = 0.95,
) -> None:
    """Make one HTML page about a file of reports, for readers who do not use the command line.

    rrjax report reports.parquet

    rrjax report survey.csv --column age --epsilon 1 --domain 0:99 --ordered --group "young=0:29" --title "How old?"

    The page shows shares with intervals, a test of the reports, the meaning of ε, and how it was made. It is readable
    on screens, phones and paper.
    """
    check_rate("--level", level)
    files = Files(reports, reading)
    name = files.name.split(".")[0] or "rrjax"
    out = Path(f"{name}-report.html") if out is None else out
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {out}: a page is written as .html", flag="--out", value=out)
    others = [] if asked.population is None else [Files([str(asked.population)])]
    check_outputs([files, *others], out)
    if not force and out.exists() and not is_page(out):
        raise UsageError(
            f"--out {out} is there already, and rrjax did not make it: write to another file, or replace it with "
            "--force",
            flag="--out",
            value=out,
        )
    with show.err.status("Counting …") as status:
        collection = read_collection(files, epsilon, design)
        status.update("Estimating …")
        findings = find(collection, asked, level, top, ordered)
        status.update("Writing …")
        _write(out, findings, context, title)
    show.say(collection.summary())
    show.warn(collection.warnings)
    show.show_files({"Page": out})


def _write(out: Path, findings: Findings, context: typer.Context, title: str | None) -> None:
    """Writes the page from its parts."""
    collection = findings.collection
    about = f"\N{LEFT DOUBLE QUOTATION MARK}{show.printable(collection.counted.column)}\N{RIGHT DOUBLE QUOTATION MARK}"
    parts = {
        "In short": report_shares.in_short(findings),
        "The largest shares": report_shares.largest(findings),
        "Groups and means": report_shares.asked_for(findings),
        "All categories in order": report_shares.in_order(findings),
        "How far to believe it": [*report_trust.believed(findings), *report_trust.likeliest(findings)],
        f"What ε = {collection.epsilon:.4g} means": report_trust.meaning(findings),
        "How this page was made": report_trust.how_made(findings, context, datetime.now().astimezone()),
    }
    given = [(f"part-{place}", name, part) for place, (name, part) in enumerate(parts.items(), 1) if part]
    body = [Markup("\n".join(["<section>", heading(name, place), *part, "</section>"])) for place, name, part in given]
    lead = paragraph(
        f"{collection.num_reports:,} people gave one report each on {about}, one of "
        f"{collection.num_categories:,} categories. Each report was made partly at random, which protects who gave it "
        "(how far, is said below); from all of them together the shares can be estimated.",
        kind="lead",
    )
    links = contents("On this page", [(place, name) for place, name, _ in given])
    write_page(
        out,
        title or f"What {collection.num_reports:,} randomized reports say about {about}",
        body,
        head=[lead, *report_trust.cautions(findings), links],
        foot=f"Made by rrjax {rrjax.__version__}. Nothing on this page is loaded from elsewhere.",
    )
