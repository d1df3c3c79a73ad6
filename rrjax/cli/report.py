"""`rrjax report`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import rrjax
from rrjax.cli import report_columns, report_rounds, report_shares, report_trust, show
from rrjax.cli.design import SurveyDesign
from rrjax.cli.findings import Findings, find
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Asked, Level, Ordered, check_rate, flags, refuse_flags
from rrjax.cli.paths import READS, WRITES
from rrjax.cli.reading import Epsilon, Files, Reading, ReportFiles, read_collection
from rrjax.data.errors import UsageError, check_installed
from rrjax.figures.html import Markup, contents, heading, is_page, paragraph, write_page
from rrjax.io.write import check_writable
from rrjax.reports import form
from rrjax.reports.privacy_loss import PrivacyLoss
from rrjax.reports.reading import kind_of
from rrjax.reports.rounds import RoundShares, several_rounds

MOST_ROWS = 5000


@flags()
def report(
    context: typer.Context,
    reports: ReportFiles,
    *,
    epsilon: Epsilon = None,
    design: SurveyDesign,
    reading: Reading,
    memo: Annotated[
        Path | None,
        typer.Option(
            help="The memo of a longitudinal protocol: the page then says how many permanent answers users have. "
            "Nothing else of it is shown.",
        ),
        READS,
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page to write (.html). By default NAME-report.html in the current folder, where NAME is that of "
            "the first file."
        ),
        WRITES,
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

    rrjax report monday.parquet tuesday.parquet --memo memo.parquet

    The page shows shares with intervals, a test of the reports, the meaning of ε, and how it was made. Of several
    columns that were randomized apart it shows the shares of each, and which go together. It is readable on screens,
    phones and paper.
    """
    check_installed("plots", "A page with figures", "matplotlib")
    check_rate("--level", level)
    files = Files(reports, reading)
    name = files.name.split(".")[0] or "rrjax"
    out = Path(f"{name}-report.html") if out is None else out
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {out}: a page is written as .html", flag="--out", value=out)
    check_writable(out)  # also where it has the default name
    if not force and out.exists() and not is_page(out):
        raise UsageError.about(
            "--out",
            f"{out} is there already, and rrjax did not make it: write to another file, or replace it with --force",
            value=out,
        )
    with show.status("Counting …") as status:
        given = {
            "--epsilon": epsilon,
            "--mechanism": design.mechanism,
            "--domain": reading.domain,
            "--ordered": ordered,
            "--memo": memo,
        }
        given |= {"--counts": reading.counts} | asked.flags
        if several := report_columns.find_columns(files, given, level, top, status):
            _write_columns(out, several, context, title)
            report_columns.say_columns(several)
            show.show_files({"Page": out})
            return
    metadata = files.source.metadata()
    if memo is not None and (metadata is None or metadata.round is None):
        raise UsageError(
            f"--memo {memo} is of a longitudinal protocol, and {files.name} holds other reports: leave it out",
            flag="--memo",
            value=memo,
        )
    if rounds := several_rounds(files.source):
        chosen = {"--epsilon": epsilon, "--mechanism": design.mechanism, "--ordered": ordered}
        refuse_flags(chosen | asked.flags, "several rounds", "give the file of one, or ")
        with show.status("Estimating …") as status:
            with ending_at_once():
                found = kind_of(files.source, epsilon, files.domain).shares(level, simultaneous=True)
            found = dataclasses.replace(found, loss=_with_memo(found.loss, memo, rounds))
            status.update("Writing …")
            _write_rounds(out, found, files, context, title, top)
        show.say(found.title)
        show.warn(found.warnings)
        show.say(found.loss.sentence())
        show.show_files({"Page": out})
        return
    with show.status("Counting …") as status:
        collection = read_collection(files, epsilon, design)
        loss = None
        if metadata is not None and metadata.round is not None:
            loss = _with_memo(PrivacyLoss(metadata, np.ones(collection.num_reports, np.int64)), memo, [metadata.round])
        status.update("Estimating …")
        findings = find(collection, asked, level, top, ordered)
        status.update("Writing …")
        _write(out, findings, context, title, loss)
    show.say(collection.summary())
    show.warn(collection.warnings)
    show.show_files({"Page": out})


def _with_memo(loss: PrivacyLoss, memo: Path | None, rounds: Collection[int]) -> PrivacyLoss:
    return loss if memo is None else loss.with_memo(memo, rounds)


def _write(out: Path, findings: Findings, context: typer.Context, title: str | None, loss: PrivacyLoss | None) -> None:
    """Writes the page about one collection from its parts."""
    collection = findings.collection
    about, metadata = report_trust.quoted(form.printable(collection.counted.column)), collection.counted.metadata
    of_round = [] if metadata is None or metadata.round is None else [metadata.round]
    parts = {
        "In short": report_shares.in_short(findings),
        "The largest shares": report_shares.largest(findings),
        "Groups and means": report_shares.asked_for(findings),
        "All categories in order": report_shares.in_order(findings),
        "How far to believe it": [*report_trust.believed(findings), *report_trust.likeliest(findings)],
        f"What ε = {collection.epsilon:.4g} means": report_trust.meaning(findings),
        "What users have spent": [] if loss is None else report_rounds.spent(loss, of_round),
        "How this page was made": report_trust.how_made(findings, context, datetime.now().astimezone()),
    }
    lead = paragraph(
        f"{collection.num_reports:,} people gave one report each on {about}, one of "
        f"{collection.num_categories:,} categories. Each report was made partly at random, which protects who gave it "
        "(how far, is said below); from all of them together the shares can be estimated.",
        kind="lead",
    )
    title = title or f"What {collection.num_reports:,} randomized reports say about {about}"
    _write_parts(out, title, parts, [lead, *report_trust.cautions(findings)])


def _write_columns(out: Path, found: report_columns.ColumnFindings, context: typer.Context, title: str | None) -> None:
    """Writes the page of several columns."""
    head = [paragraph(report_columns.lead_of(found), kind="lead"), *report_columns.cautions_of(found)]
    _write_parts(out, title or report_columns.title_of(found), report_columns.parts_of(found, context), head)


def _write_rounds(
    out: Path, found: RoundShares, files: Files, context: typer.Context, title: str | None, top: int
) -> None:
    """Writes the page about several rounds."""
    about, number = report_trust.quoted(form.printable(found.reports.main.counted.column)), len(found.estimates)
    title = title or f"What {number:,} rounds of randomized reports say about {about}"
    parts = report_rounds.parts_of(found, files, top, context, datetime.now().astimezone())
    head = [paragraph(report_rounds.lead(found), kind="lead"), *report_trust.card(found.warnings)]
    _write_parts(out, title, parts, head)


def _write_parts(out: Path, title: str, parts: Mapping[str, list[Markup]], head: list[Markup]) -> None:
    given = [(f"part-{place}", name, part) for place, (name, part) in enumerate(parts.items(), 1) if part]
    body = [Markup("\n".join(["<section>", heading(name, place), *part, "</section>"])) for place, name, part in given]
    links = contents("On this page", [(place, name) for place, name, _ in given])
    foot = f"Made by rrjax {rrjax.__version__}. Nothing on this page is loaded from elsewhere."
    write_page(out, title, body, head=[*head, links], foot=foot)
