"""`rrjax study`: flags, and the order of things."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rrjax.cli import show, work
from rrjax.cli.options import (
    Column,
    Counts,
    Delimiter,
    DomainOption,
    FormatOption,
    Header,
    ItemsOption,
    Json,
    Missing,
)

RUN, GRID = "Running", "What is studied"


def study(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT", help="paper, quick, data (then files of true values), or a .toml file of your own."
        ),
    ],
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILES]...", help="Of true values, after data.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results; a run that was stopped goes on from there. By default rrjax-study-NAME, "
            "where NAME is paper, quick, or that of the file."
        ),
    ] = None,
    figure: Annotated[
        list[int] | None,
        typer.Option(help="Of the paper only this figure, 1 to 10. Repeatable.", rich_help_panel=GRID),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Simulated collections of every configuration.", rich_help_panel=GRID)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the random numbers; by default 0.", rich_help_panel=GRID)
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            help="mle_star, inv_p, inv_n, inv, cv_threshold or ibu, in place of the usual. Repeatable.",
            rich_help_panel=GRID,
        ),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="With data: ε in nats; by default 1 to 10. Repeatable.", rich_help_panel=GRID),
    ] = None,
    kosarak: Annotated[
        Path | None, typer.Option(help="Kosarak, for Figure 3 of the paper: kosarak.dat.gz.", rich_help_panel=GRID)
    ] = None,
    acs_income: Annotated[
        Path | None, typer.Option(help="ACSIncome, for Figure 3: the folder of its files.", rich_help_panel=GRID)
    ] = None,
    column: Column = None,
    domain: DomainOption = None,
    counts: Counts = None,
    format: FormatOption = None,  # noqa: A002
    header: Header = None,
    delimiter: Delimiter = None,
    items: ItemsOption = "first",
    missing: Missing = None,
    x64: Annotated[bool, typer.Option("--x64", help="Compute in double precision.", rich_help_panel=RUN)] = False,
    devices: Annotated[
        int | None, typer.Option(help="How many to use; by default all GPUs, or all cores.", rich_help_panel=RUN)
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Tiles a device computes between checkpoints.", rich_help_panel=RUN)
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(help="GiB that arrays may take; by default 4, or half of the GPUs'.", rich_help_panel=RUN),
    ] = None,
    coordinator: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of process 0, to run on several processes or hosts (or auto, under a cluster's scheduler).",
            rich_help_panel=RUN,
        ),
    ] = None,
    processes: Annotated[int | None, typer.Option(help="How many there are.", rich_help_panel=RUN)] = None,
    process: Annotated[int | None, typer.Option(help="Which one this is, from 0.", rich_help_panel=RUN)] = None,
    json: Json = False,
) -> None:
    """Run a Monte Carlo study: estimators compared on simulated collections, with standard errors.

    rrjax study quick

    rrjax study paper --out paper

    rrjax study paper --figure 1 --seeds 20

    rrjax study data visits.csv --column page --domain pages.txt

    rrjax study my-study.toml --out my-study

    Leaves a dataset (NetCDF), tidy tables (Parquet), figures (PNG, PDF) and one report.html.
    """
    reading = work.Reading(files or [], column, domain, counts, format, header, delimiter, items, missing or [])
    with show.reporting():
        try:
            from rrjax.cli import study_work
        except ImportError as error:
            raise work.UsageError(f"studies need {error.name}: pip install 'rrjax[study]'") from error
        machine = study_work.Machine(x64, devices, batch_size, memory, coordinator, processes, process)
        with study_work.complaining():
            machine.settle()
            _study(study_work, machine, what, files or [], out, figure or [], seeds, seed, estimator or [],
                   epsilon or [], reading, kosarak, acs_income, json)  # fmt: skip


def _study(study_work, machine, what, files, out, figures, num_seeds, seed, estimators, epsilons, reading, kosarak,
           acs_income, json):  # fmt: skip
    import jax

    begin = time.perf_counter()
    found = study_work.jobs(
        what,
        files,
        figures=figures,
        num_seeds=num_seeds,
        seed=seed,
        estimators=estimators,
        epsilons=epsilons,
        reading=reading,
        kosarak=kosarak,
        acs_income=acs_income,
    )
    out = out or Path(f"rrjax-study-{Path(files[0] if what == 'data' else what).name.split('.')[0]}")
    work.make_folder(out)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=show.err,
        disable=jax.process_index() > 0,
        transient=True,
    )
    em = None
    with bar:
        for job in found:
            task = bar.add_task(f"{job.name}: compiling", total=None, rate="")

            def show_progress(progress, task=task, name=job.name):
                fresh = progress.done - progress.resumed
                rate = f"{fresh / max(progress.seconds, 1e-9) / 1e6:,.1f} million categories/s" if fresh else ""
                doing = f"{name}: {len(found)} studies" if len(found) > 1 else name
                bar.update(
                    task,
                    description=doing if fresh else f"{name}: compiling",
                    total=progress.total,
                    completed=progress.done,
                    rate=rate,
                )

            study_work.run(job, out, machine, show_progress)
        if what == "paper" and (not figures or 4 in figures):
            bar.add_task("Figure 4: EM", total=None, rate="")
            em = study_work.follow_em(seed or 0)
    seconds = time.perf_counter() - begin
    if jax.process_index() > 0:
        return
    with show.err.status("Drawing …"):
        listed = study_work.drawings(what, figures, found, em)
        title = {"paper": "The paper's evaluation", "quick": "A quick study"}.get(what, f"Study: {what}")
        if what == "data":
            title = f"Study of {', '.join(Path(file).name for file in files)}"
        written = study_work.write(out, title, what, found, em, listed, seconds)
    if json:
        show.record(
            {"command": "study", "what": what, "seconds": round(seconds, 3), "files": [str(f) for f in written]}
        )
        return
    _summarize(found, seconds)
    if what == "paper" and not figures and kosarak is None and acs_income is None:
        show.out.print(
            "Figure 3 (real data) was left out: give --kosarak and --acs-income, or use `rrjax study data`.",
            markup=False,
        )
    show.written("Results", out)
    show.written("Report", written[-1])


def _summarize(found, seconds) -> None:
    from rrjax.study.report import ranking, ranking_rows

    for job in found:
        number, attributes = len(job.study.configurations()), job.dataset.attrs
        show.out.print(
            f"{job.name}: {number:,} configurations × {job.study.num_seeds:,} seeds, "
            f"{', '.join(job.study.estimators)}; {attributes['seconds']:.1f} s on {attributes['devices']}, "
            f"{attributes['precision']}",
            markup=False,
        )
        if "mse" in job.dataset and job.dataset.sizes["estimator"] > 1:
            rows = ranking_rows(ranking(job.dataset, "mse"))
            table = Table(box=None, pad_edge=False, title="By mean squared error", title_justify="left")
            for name in rows[0]:
                table.add_column(name, justify="left" if name == "estimator" else "right")
            for row in rows:
                table.add_row(*row.values())
            show.out.print(table)
    show.out.print(f"{seconds:.1f} s of computing.", markup=False)
