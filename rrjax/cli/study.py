"""`rrjax study`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import jax
import typer
from rich.text import Text

from rrjax import io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Explain, Json, estimator_names, flags
from rrjax.cli.reading import PANEL, Files, Reading
from rrjax.cli.running import Bar, Machine, progress_bar
from rrjax.data.errors import PeerError, UsageError
from rrjax.figures.html import is_page
from rrjax.io.read import CountedReports
from rrjax.io.write import make_folder

if TYPE_CHECKING:
    import xarray as xr
    from rich.progress import Progress
    from rich.status import Status

    from rrjax.study import Study
    from rrjax.study.drawings import Drawing

GRID = "What is studied"
PRESETS = ("paper", "quick", "data")
RESUME = "interrupted; what is finished is kept, and the same command goes on from there"


@dataclasses.dataclass(frozen=True)
class Wish:
    """The flags for the contents of a study."""

    figure: Annotated[
        list[int] | None,
        typer.Option(help="Of the paper only this figure, 1 to 10. Repeatable.", rich_help_panel=GRID),
    ] = None
    seeds: Annotated[
        int | None, typer.Option(help="Simulated collections of every configuration.", rich_help_panel=GRID)
    ] = None
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the random numbers; by default 0.", rich_help_panel=GRID)
    ] = None
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            help="In place of the usual ones, by name: those of `rrjax compare`. Repeatable.",
            autocompletion=estimator_names,
            rich_help_panel=GRID,
        ),
    ] = None
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="With data: ε in nats; by default 1 to 10. Repeatable.", rich_help_panel=GRID),
    ] = None
    kosarak: Annotated[
        Path | None, typer.Option(help="Kosarak, for Figure 3 of the paper: kosarak.dat.gz.", rich_help_panel=GRID)
    ] = None
    acs_income: Annotated[
        Path | None, typer.Option(help="ACSIncome, for Figure 3: the folder of its files.", rich_help_panel=GRID)
    ] = None

    @property
    def changes(self) -> dict[str, Any]:
        """Arguments of a study that the flags replace."""
        estimators = {"estimators": list(self.estimator)} if self.estimator else {}
        return estimators | ({} if self.seeds is None else {"num_seeds": self.seeds})


@flags(panels={"column": PANEL, "domain": PANEL})
def study(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="paper, quick, data (then files of true values), or a .toml file of your own.",
            autocompletion=lambda: list(PRESETS),
        ),
    ],
    files: Annotated[list[str] | None, typer.Argument(metavar="FILES", help="Of true values, after data.")] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results; a run that was stopped goes on from there. By default rrjax-study-NAME, "
            "where NAME is paper, quick, or that of the file."
        ),
    ] = None,
    explain: Explain = False,
    json: Json = False,
    wish: Wish,
    reading: Reading,
    machine: Machine,
) -> None:
    """Run a Monte Carlo study: compare estimators on simulated collections, with standard errors.

    rrjax study quick

    rrjax study paper --out paper

    rrjax study paper --figure 1 --seeds 20

    rrjax study data visits.csv --column page --domain pages.txt

    rrjax study my-study.toml --out my-study

    It writes a dataset (NetCDF), tidy tables (Parquet), figures (PNG, PDF) and one report.html.
    """
    try:
        from rrjax.study import StudyError
    except ImportError as error:
        raise UsageError(f"studies need {error.name}: pip install 'rrjax[study]'") from error
    paths = files or []
    folder = out or Path(f"rrjax-study-{Path((*paths, what)[0]).name.split('.')[0]}")
    with machine.together():
        try:
            _check(what, paths, wish, reading)
            machine.settle()
            jobs = _jobs(what, Files(paths, reading, true_values=True), wish)
            _run(Evaluation(what, wish, folder, jobs), machine, json, explain)
        except PeerError:
            raise
        except StudyError as error:
            flag = _flag_of(error.argument, wish, machine)
            message = str(error) if flag in (None, "--out") else f"{flag}: {error}"
            raise UsageError(message, argument=error.argument, flag=flag, file=error.file, value=error.value) from error


def _flag_of(argument: str | None, wish: Wish, machine: Machine) -> str | None:
    """The flag that gave an argument of a study, if any."""
    if argument == "folder":
        return "--out"
    given = {
        "estimators": ("--estimator", wish.estimator),
        "num_seeds": ("--seeds", wish.seeds),
        "seed": ("--seed", wish.seed),
        "epsilon": ("--epsilon", wish.epsilon),
        "batch_size": ("--batch-size", machine.batch_size),
        "memory": ("--memory", machine.memory),
    }
    flag, value = given.get(argument or "", (None, None))
    return None if value is None else flag


@dataclasses.dataclass
class Job:
    """A study to run."""

    name: str
    study: Study
    seed: int
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    dataset: Any = None
    """The results, an xarray.Dataset."""
    users: tuple[str, CountedReports] | None = None
    """A label and the true counts, for a study of given users."""


@dataclasses.dataclass
class Evaluation:
    """The studies of one command, and where their results go."""

    what: str
    wish: Wish
    folder: Path
    jobs: list[Job]
    em: xr.Dataset | None = None
    """The convergence of EM, Figure 4 of the paper."""
    em_seconds: float = 0.0

    @property
    def computing(self) -> str:
        """The computing time of all studies, in words."""
        from rrjax.study.checkpoint import computing_time

        return computing_time([job.dataset.attrs for job in self.jobs], self.em_seconds)


def _check(what: str, paths: list[str], wish: Wish, reading: Reading) -> None:
    """Refuses flags that contradict each other."""
    from rrjax.study import paper

    if what != "paper" and (wish.figure or wish.kosarak or wish.acs_income):
        flag = "--figure" if wish.figure else "--kosarak" if wish.kosarak else "--acs-income"
        raise UsageError(f"{flag} belongs to `rrjax study paper`", flag=flag)
    if what != "data" and paths:
        raise UsageError(f"unexpected {paths[0]!r}: only `rrjax study data` takes files", value=paths[0])
    if what == "data" and not paths:
        raise UsageError("`rrjax study data` needs a file of true values")
    if what != "data" and (flag := reading.first_flag()):
        raise UsageError(f"{flag} says how to read files, and belongs to `rrjax study data`", flag=flag)
    if what != "data" and wish.epsilon:
        raise UsageError(
            "--epsilon belongs to `rrjax study data`; a grid of your own goes into a TOML file", flag="--epsilon"
        )
    if what not in PRESETS and not what.endswith(".toml"):
        raise UsageError(f"{what!r} is none of paper, quick and data, nor a .toml file", value=what)
    for number in wish.figure or ():
        if number not in paper.FIGURES:
            raise UsageError(f"--figure {number}: the paper's figures are 1 to 10", flag="--figure", value=number)
    if wish.figure:
        data = wish.kosarak or wish.acs_income
        if paper.REAL_DATA not in wish.figure and data:
            flag = "--kosarak" if wish.kosarak else "--acs-income"
            raise UsageError(f"{flag} is for Figure 3: add --figure 3, or leave --figure out", flag=flag)
        if paper.REAL_DATA in wish.figure and not data:
            raise UsageError(
                "--figure 3 needs the data sets: --kosarak FILE, --acs-income FOLDER; or see `rrjax study data`",
                flag="--figure",
                value=paper.REAL_DATA,
            )


def _jobs(what: str, files: Files, wish: Wish) -> list[Job]:
    """The studies to run."""
    from rrjax.study import StudyError, paper, read_study

    if what == "paper":
        found = paper.study(figures=wish.figure or paper.FIGURES, **wish.changes)
        jobs = [] if found is None else [Job("study", found, wish.seed or 0)]
        return jobs + [_of_users(label, users, wish, paper.ESTIMATORS) for label, users in _paper_data(wish)]
    if what == "quick":
        return [Job("study", dataclasses.replace(paper.quick(), **wish.changes), wish.seed or 0)]
    if what == "data":
        label = Path(files.paths[0]).name.split(".")[0]
        return [_of_users(label, files.count(files.domain), wish, (*paper.ESTIMATORS, *paper.ADAPTING))]
    try:
        found, arguments = read_study(what)
    except StudyError as error:
        raise io.DataError(str(error), argument=error.argument, file=error.file, value=error.value) from error
    kept = arguments.pop("seed", 0)
    found = dataclasses.replace(found, **wish.changes) if wish.changes else found
    return [Job("study", found, kept if wish.seed is None else wish.seed, arguments)]


def _paper_data(wish: Wish) -> list[tuple[str, CountedReports]]:
    """Reads the data sets of the paper that were given."""
    found = [] if wish.kosarak is None else [("Kosarak", io.load_kosarak(wish.kosarak))]
    if wish.acs_income is not None:
        found += [(f"ACSIncome {column}", io.load_acs_income(wish.acs_income, column)) for column in ("PUMA", "PINCP")]
    return found


def _of_users(label: str, users: CountedReports, wish: Wish, estimators: Sequence[str]) -> Job:
    """The study of Figure 3 on one data set: its users are fixed, only their reports are random."""
    from rrjax.study import Study, paper

    given: dict[str, Any] = {"estimators": list(estimators), "metrics": paper.METRICS} | wish.changes
    found = Study(users={label: users.counts}, epsilon=list(wish.epsilon or paper.EPSILONS), **given)
    return Job(label.lower().replace(" ", "-"), found, wish.seed or 0, users=(label, users))


def _run(evaluation: Evaluation, machine: Machine, json: bool, explain: bool) -> None:
    """Runs the studies, writes and prints their results."""
    from rrjax.study import convergence, paper

    what, wish, folder, jobs = evaluation.what, evaluation.wish, evaluation.folder, evaluation.jobs
    make_folder(folder)
    page = folder / "report.html"
    if page.exists() and not is_page(page):
        raise UsageError(
            f"--out {folder}: there is a report.html already that rrjax did not make; give another folder",
            flag="--out",
            value=folder,
        )
    with progress_bar() as bar:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                for job in jobs:
                    _run_job(job, len(jobs), folder, machine, bar)
            finally:
                show.warn(list(dict.fromkeys(str(warning.message) for warning in caught)))
        if what == "paper" and paper.CONVERGENCE in (wish.figure or paper.FIGURES):
            bar.add_task("Figure 4: EM", total=None, rate="")
            begin = time.perf_counter()
            with ending_at_once(RESUME):
                evaluation.em = convergence(seed=wish.seed or 0)
            evaluation.em_seconds = time.perf_counter() - begin
    if jax.process_index() > 0:
        return
    try:
        with show.err.status("Writing tables …") as status, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            written = _write(evaluation, status)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(RESUME) from error
    show.warn(list(dict.fromkeys(str(warning.message) for warning in caught)))
    if json:
        seconds = evaluation.em_seconds + sum(job.dataset.attrs["seconds"] for job in jobs)
        show.record({"command": "study", "what": what, "seconds": round(seconds, 3), "files": written})
        return
    ranked = _summarize(jobs)
    if what == "paper" and not (wish.figure or wish.kosarak or wish.acs_income):
        show.say("Figure 3 (real data) was left out: give --kosarak and --acs-income, or use `rrjax study data`.")
    if ranked:
        from rrjax.study.rankings import COLUMNS

        show.explain(COLUMNS, explain)
    show.show_files({"Computing": evaluation.computing, "Results": folder, "Report": written[-1]})


def _run_job(job: Job, number: int, folder: Path, machine: Machine, bar: Progress) -> None:
    """Runs one study; finished parts are taken from the folder."""
    line = Bar(bar, job.name, f"{job.name}: {number} studies" if number > 1 else job.name)
    with ending_at_once(RESUME):
        # Flags override the file of the study.
        arguments: dict[str, Any] = {"seed": job.seed} | job.arguments | machine.arguments()
        job.dataset = job.study.run(folder=folder / job.name, progress=line, **arguments)


def _write(evaluation: Evaluation, status: Status) -> list[Path]:
    """Writes datasets, tables, figures and the report."""
    from rrjax.study import drawings, paper
    from rrjax.study.paper import claims_table
    from rrjax.study.report import provenance, write_dataset, write_figures, write_report

    what, folder, jobs, em = evaluation.what, evaluation.folder, evaluation.jobs, evaluation.em
    datasets = {job.name: job.dataset for job in jobs}
    files = []
    for name, dataset in [*datasets.items(), *([("convergence", em)] if em is not None else [])]:
        files += write_dataset(folder, name, dataset)
    listed: list[Drawing] = []
    for job in jobs:
        if job.users is not None:
            number = paper.REAL_DATA if what == "paper" else None
            label, users = job.users
            labels = users.domain.labels()
            listed += drawings.of_users(job.dataset, label, users.counts, job.name, number=number, labels=labels)
        elif what == "paper":
            listed += drawings.of_paper(job.dataset, evaluation.wish.figure or paper.FIGURES)
        else:
            listed += drawings.of_study(job.dataset)
    listed += [] if em is None else drawings.of_em(em)
    title = {"paper": "The paper's evaluation", "quick": "A quick study"}.get(what, f"Study: {what}")
    if what == "data":
        title = f"Study of {', '.join(job.users[0] for job in jobs if job.users)}"
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    summary: dict[str, Any] = {"command": command, "computing time": evaluation.computing} | provenance()
    report = folder / "report.html"
    listed = drawings.ordered(listed)

    def begun(number: int, drawing: Drawing) -> None:
        status.update(Text(f"Drawing {number} of {len(listed)}: {drawing.title} …"))

    with closing(write_figures(folder / "figures", listed, begun)) as drawn:
        write_report(
            report,
            title=title,
            summary=summary,
            datasets=datasets,
            figures=drawn,
            extra_tables=claims_table(datasets["study"]) if what in ("paper", "quick") and "study" in datasets else (),
        )
    return [*files, folder / "figures", report]


def _summarize(jobs: list[Job]) -> bool:
    """Prints what was run and the ranking of the estimators; returns whether there was a ranking."""
    from rrjax.study.checkpoint import computing_time
    from rrjax.study.rankings import ranking, ranking_note, ranking_rows

    any_ranked = False
    for job in jobs:
        number, attributes = len(job.study.configurations()), job.dataset.attrs
        show.say(
            f"{job.name}: {show.number(number, 'configuration', 'configurations')} × {job.study.num_seeds:,} seeds, "
            f"{', '.join(job.study.estimators)}; on {attributes['devices']}, {attributes['precision']}: "
            f"{computing_time([job.dataset.attrs])}"
        )
        if "mse" in job.dataset and job.dataset.sizes["estimator"] > 1:
            any_ranked = True
            ranked = ranking(job.dataset, "mse")
            # The report shows the column of shared wins; here a sentence mentions it.
            rows = [{name: text for name, text in row.items() if name != "shared"} for row in ranking_rows(ranked)]
            table = show.table(title="By mean squared error; the best first", title_justify="left")
            for name in rows[0]:
                table.add_column(name, justify="left" if name == "estimator" else "right", no_wrap=True)
            for row in rows:
                table.add_row(*row.values())
            show.show_table(table)
            if note := ranking_note(ranked):
                show.say(note)
    return any_ranked
