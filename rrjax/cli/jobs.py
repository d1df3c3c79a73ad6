"""What `rrjax study` studies: flags, their checks, and the studies that they ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rrjax import io
from rrjax.cli.design import Randomizer
from rrjax.cli.options import estimator_names
from rrjax.cli.paths import READS
from rrjax.cli.reading import Files, Reading
from rrjax.data.errors import UsageError
from rrjax.io.read import CountedReports

if TYPE_CHECKING:
    from rrjax.study import Study

GRID = "What is studied"
PRESETS = ("paper", "quick", "data")


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
        return estimators | ({} if self.seeds is None else {"num_seeds": self.seeds})


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
        found = paper.study(figures=wish.figure or paper.FIGURES, **wish.changes)
        jobs = [] if found is None else [Job("study", found, wish.seed or 0)]
        return jobs + [_of_users(label, users, wish, paper.ESTIMATORS) for label, users in _paper_data(wish)]
    if what == "quick":
        return [Job("study", dataclasses.replace(paper.quick(), **wish.changes), wish.seed or 0)]
    if what == "data":
        label = Path(files.paths[0]).name.split(".")[0]
        chosen = randomizer if randomizer.mechanism is not None else None
        from rrjax.reports.reading import count_source

        counted = count_source(files.source, files.domain, files.reading.counts)
        return [_of_users(label, counted, wish, (*paper.ESTIMATORS, *paper.ADAPTING), chosen)]
    try:
        found, arguments = read_study(what)
    except StudyError as error:
        raise io.DataError(str(error), argument=error.argument, file=error.file, value=error.value) from error
    kept = arguments.pop("seed", 0)
    found = dataclasses.replace(found, **wish.changes) if wish.changes else found
    return [Job("study", found, kept if wish.seed is None else wish.seed, arguments)]


def _paper_data(wish: Wish) -> list[tuple[str, CountedReports]]:
    """Reads the data sets of the paper that were given."""
    from rrjax.cli.datasets import acs_income, kosarak

    found = [] if wish.kosarak is None else [("Kosarak", kosarak(wish.kosarak))]
    if wish.acs_income is not None:
        found += [(f"ACSIncome {column}", counted) for column, counted in acs_income(wish.acs_income)]
    return found


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
    found = Study(users={label: users.counts}, epsilon=epsilons, **given | wish.changes)
    return Job(label.lower().replace(" ", "-"), found, wish.seed or 0, users=(label, users))
