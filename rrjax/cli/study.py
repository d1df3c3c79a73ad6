"""`rrjax study`: its flags, the studies that they ask for, their run, and what it writes."""

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

import typer
from rich.text import Text

from rrjax import io
from rrjax.cli import show
from rrjax.cli.design import Randomizer
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Explain, Json, estimator_names, flags
from rrjax.cli.paths import FILLS, READS, check_own_files, remembering
from rrjax.cli.reading import PANEL, Files, Reading
from rrjax.cli.running import Bar, Machine, progress_bar
from rrjax.data.errors import PeerError, UsageError, check_installed
from rrjax.io.read import CountedReports
from rrjax.io.write import check_writable, make_folder
from rrjax.reports import form

if TYPE_CHECKING:
    import xarray as xr
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
    num_seeds: Annotated[
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
        Path | None,
        typer.Option(help="Kosarak, for Figure 3 of the paper: kosarak.dat.gz.", rich_help_panel=GRID),
        READS,
    ] = None
    acs_income: Annotated[
        Path | None,
        typer.Option(help="ACSIncome, for Figure 3: the folder of its files.", rich_help_panel=GRID),
        READS,
    ] = None

    @property
    def changes(self) -> dict[str, Any]:
        """Arguments of a study that the flags replace."""
        estimators = {"estimators": list(self.estimator)} if self.estimator else {}
        return estimators | ({} if self.num_seeds is None else {"num_seeds": self.num_seeds})


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


@flags(without=("probability", "num_users"), panels={"column": PANEL, "domain": PANEL})
def study(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="paper, quick, data (then files of true values), or a .toml file of your own.",
            autocompletion=lambda: list(PRESETS),
        ),
        READS,
    ],
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILES", help="Of true values, after data."), READS
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results; a run that was stopped goes on from there. By default rrjax-study-NAME, "
            "where NAME is paper, quick, or that of the file."
        ),
        FILLS,
    ] = None,
    explain: Explain = False,
    json: Json = False,
    wish: Wish,
    randomizer: Randomizer,
    reading: Reading,
    machine: Machine,
) -> None:
    """Run a Monte Carlo study: compare estimators on simulated collections, with standard errors.

    rrjax study quick

    rrjax study paper --out paper

    rrjax study paper --figure 1 --num-seeds 20

    rrjax study data visits.csv --column page --domain pages.txt

    rrjax study data visits.csv --column page --domain pages.txt --mechanism subset-selection

    rrjax study my-study.toml --out my-study

    It writes a dataset (NetCDF), tidy tables (Parquet), figures (PNG, PDF) and one report.html.
    """
    check_installed("study", "A study", "xarray", "h5netcdf", "h5py", "duckdb", "matplotlib")
    from rrjax.study import StudyError

    paths = files or []
    folder = out or Path(f"rrjax-study-{_name_of((*paths, what)[0])}")
    with machine.together():
        try:
            check_wish(what, paths, wish, randomizer, reading)
            machine.settle()
            jobs = jobs_of(what, Files(paths, reading, true_values=True), wish, randomizer)
            _run(Evaluation(what, wish, folder, jobs), machine, json, explain)
        except PeerError:
            raise
        except StudyError as error:
            flag = _flag_of(error.argument, wish, machine)
            message = str(error) if flag in (None, "--out") else f"{flag}: {error}"
            raise UsageError(message, argument=error.argument, flag=flag, file=error.file, value=error.value) from error


def _name_of(path: str) -> str:
    """The name of a file up to a point, but for one that hides it."""
    return Path(path).name.strip(".").split(".")[0]


def check_wish(what: str, paths: list[str], wish: Wish, randomizer: Randomizer, reading: Reading) -> None:
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
        raise UsageError.about("--epsilon", "belongs to `rrjax study data`; a grid of your own goes into a TOML file")
    if what != "data" and randomizer.mechanism is not None:
        raise UsageError(
            "--mechanism belongs to `rrjax study data`; the mechanisms of a grid of your own go into a TOML file",
            flag="--mechanism",
            value=randomizer.mechanism,
        )
    randomizer.check_categories()
    if wish.epsilon and randomizer.is_design:
        randomizer.check_epsilon(wish.epsilon[0])
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


def jobs_of(what: str, files: Files, wish: Wish, randomizer: Randomizer) -> list[Job]:
    """The studies to run."""
    from rrjax.study import StudyError, paper, read_study

    if what == "paper":
        study = paper.study(figures=wish.figure or paper.FIGURES, **wish.changes)
        jobs = [] if study is None else [Job("study", study, wish.seed or 0)]
        return jobs + [_of_users(label, users, wish, paper.ESTIMATORS) for label, users in _paper_data(wish)]
    if what == "quick":
        return [Job("study", dataclasses.replace(paper.quick(), **wish.changes), wish.seed or 0)]
    if what == "data":
        label = _name_of(files.paths[0])
        chosen = randomizer if randomizer.mechanism is not None else None
        from rrjax.reports.parameters import check_true
        from rrjax.reports.reading import count_source

        check_true(files.source, "files", "FILES")
        counted = count_source(files.source, files.domain, files.reading.counts)
        return [_of_users(label, counted, wish, (*paper.ESTIMATORS, *paper.ADAPTING), chosen)]
    try:
        study, arguments = read_study(what)
    except StudyError as error:
        raise io.DataError(str(error), argument=error.argument, file=error.file, value=error.value) from error
    kept = arguments.pop("seed", 0)
    study = dataclasses.replace(study, **wish.changes) if wish.changes else study
    return [Job("study", study, kept if wish.seed is None else wish.seed, arguments)]


def _paper_data(wish: Wish) -> list[tuple[str, CountedReports]]:
    """Reads the data sets of the paper that were given."""
    from rrjax.cli.datasets import acs_income, kosarak

    data = [] if wish.kosarak is None else [("Kosarak", kosarak(wish.kosarak))]
    if wish.acs_income is not None:
        data += [(f"ACSIncome {column}", counted) for column, counted in acs_income(wish.acs_income)]
    return data


def _of_users(
    label: str, users: CountedReports, wish: Wish, estimators: Sequence[str], randomizer: Randomizer | None = None
) -> Job:
    """The study of Figure 3 on one data set: its users are fixed, only their reports are random."""
    from rrjax.estimators.catalogue import ESTIMATORS, METRICS
    from rrjax.study import Study, paper

    given: dict[str, Any] = {"estimators": list(estimators), "metrics": paper.METRICS}
    epsilons: list[float] | None = list(wish.epsilon or paper.EPSILONS)
    if randomizer is not None:
        design = randomizer.is_design
        epsilons = None if design else epsilons
        # Studies of mechanisms collect tallies; the rates of survey designs may differ by category.
        entries = [(name, ESTIMATORS[name]) for name in estimators]
        kept = [name for name, entry in entries if entry.needs == "tally" and not (design and entry.equal_rates)]
        metrics = [name for name in paper.METRICS if not METRICS[name].whole_reports]
        mechanism = randomizer.made(users.domain) if design else randomizer.name
        given |= {"estimators": kept, "metrics": metrics, "mechanism": {randomizer.name: mechanism}}
    study = Study(users={label: users.counts}, epsilon=epsilons, **given | wish.changes)
    return Job(label.lower().replace(" ", "-"), study, wish.seed or 0, users=(label, users))


def _flag_of(argument: str | None, wish: Wish, machine: Machine) -> str | None:
    """The flag that gave an argument of a study, if any."""
    if argument == "folder":
        return "--out"
    given = {
        "estimators": ("--estimator", wish.estimator),
        "num_seeds": ("--num-seeds", wish.num_seeds),
        "seed": ("--seed", wish.seed),
        "epsilon": ("--epsilon", wish.epsilon),
        "batch_size": ("--batch-size", machine.batch_size),
        "memory": ("--memory", machine.memory),
    }
    flag, value = given.get(argument or "", (None, None))
    return None if value is None else flag


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
    def has_em(self) -> bool:
        """Whether the convergence of EM is among the results."""
        from rrjax.study import paper

        return self.what == "paper" and paper.CONVERGENCE in (self.wish.figure or paper.FIGURES)

    def files(self) -> list[Path]:
        """The files that will be written, and all figures that are there."""
        names = [job.name for job in self.jobs] + ["convergence"] * self.has_em
        tables = [self.folder / f"{name}{end}" for name in names for end in (".nc", ".parquet", "-differences.parquet")]
        # Not the hidden, unfinished ones of a run that was killed.
        figures = [each for each in (self.folder / "figures").glob("[!.]*") if each.suffix in (".png", ".pdf")]
        return [self.folder / "report.html", *tables, *sorted(figures)]

    @property
    def computing(self) -> str:
        """The computing time of all studies, in words."""
        from rrjax.study.checkpoint import computing_time

        return computing_time([job.dataset.attrs for job in self.jobs], self.em_seconds)


def _run(evaluation: Evaluation, machine: Machine, json: bool, explain: bool) -> None:
    """Runs the studies, writes and prints their results."""
    import jax

    from rrjax.study import convergence

    what, wish, jobs = evaluation.what, evaluation.wish, evaluation.jobs
    make_folder(evaluation.folder)
    files = evaluation.files()
    for file in files:  # before any work
        check_writable(file)
    check_own_files(evaluation.folder, "study", files, "--out")
    with progress_bar() as bar, show.lines("Computing …") as lines:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                for job in jobs:
                    _run_job(job, evaluation.folder, machine, Bar(bar, lines, job.name, _title(job, len(jobs))))
            finally:
                show.warn(list(dict.fromkeys(str(warning.message) for warning in caught)))
        if evaluation.has_em:
            bar.add_task("Figure 4: EM", total=None, rate="")
            lines.update("Figure 4: EM")
            begin = time.perf_counter()
            with ending_at_once(RESUME):
                evaluation.em = convergence(seed=wish.seed or 0)
            evaluation.em_seconds = time.perf_counter() - begin
    if jax.process_index() > 0:
        return
    try:
        with show.status("Writing tables …") as status, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            with remembering(evaluation.folder, "study"):
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
        from rrjax.study.report import COLUMNS

        show.explain(COLUMNS, explain)
    show.show_files({"Computing": evaluation.computing, "Results": evaluation.folder, "Report": written[-1]})


def _title(job: Job, number: int) -> str:
    return f"{job.name}: {number} studies" if number > 1 else job.name


def _run_job(job: Job, folder: Path, machine: Machine, line: Bar) -> None:
    """Runs one study; finished parts are taken from the folder."""
    with ending_at_once(RESUME):
        # Flags override the file of the study.
        arguments: dict[str, Any] = {"seed": job.seed} | job.arguments | machine.arguments()
        job.dataset = job.study.run(folder=folder / job.name, progress=line, **arguments)


def _write(evaluation: Evaluation, status: Status) -> list[Path]:
    """Writes datasets, tables, figures and the report."""
    from rrjax.study import drawings, paper
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
        write_report(report, title=title, summary=summary, datasets=datasets, figures=drawn)
    return [*files, folder / "figures", report]


def _summarize(jobs: list[Job]) -> bool:
    """Prints what was run and the ranking of the estimators; returns whether there was a ranking."""
    from rrjax.study.checkpoint import computing_time
    from rrjax.study.report import ranking, ranking_note, ranking_rows

    any_ranked = False
    for job in jobs:
        number, attributes = len(job.study.configurations()), job.dataset.attrs
        show.say(
            f"{job.name}: {form.number(number, 'configuration', 'configurations')} × {job.study.num_seeds:,} seeds, "
            f"{', '.join(job.study.estimators)}; on {attributes['devices']}, {attributes['precision']}: "
            f"{computing_time([job.dataset.attrs])}"
        )
        if "mse" in job.dataset and job.dataset.sizes["estimator"] > 1:
            any_ranked = True
            ranked = ranking(job.dataset, "mse")
            # The report shows the column of shared wins; here a sentence mentions it.
            rows = [{name: text for name, text in row.items() if name != "shared"} for row in ranking_rows(ranked)]
            table = show.table(*rows[0], title="By mean squared error; the best first", title_justify="left")
            for row in rows:
                table.add_row(*row.values())
            show.show_table(table)
            if note := ranking_note(ranked):
                show.say(note)
    return any_ranked
