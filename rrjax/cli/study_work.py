"""`rrjax study`: Monte Carlo studies from the command line."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rrjax import io
from rrjax.cli import work
from rrjax.cli.interrupt import ending_at_once

if TYPE_CHECKING:
    import xarray as xr

    from rrjax.study import Progress, Study
    from rrjax.study.paper import Drawing

RESUME = "interrupted; what is finished is kept, and the same command goes on from there"
SHOWN = range(1, 11)


@dataclasses.dataclass(frozen=True)
class Machine:
    """The flags that say where to compute."""

    x64: bool
    devices: int | None
    batch_size: int | None
    memory: float | None
    coordinator: str | None
    processes: int | None
    process: int | None

    def settle(self) -> None:
        """Configures JAX, before it looks for devices."""
        # Half the time of double precision, and exact enough; the environment's own wish is kept.
        wished = os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "yes", "on")
        jax.config.update("jax_enable_x64", self.x64 or wished)
        if self.devices is not None and self.devices < 1:
            raise work.UsageError(f"--devices must be at least 1, got {self.devices}")
        if self.memory is not None and not self.memory > 0:
            raise work.UsageError(f"--memory must be a positive number of GiB, got {self.memory:g}")
        if self.coordinator is None and (self.processes is not None or self.process is not None):
            raise work.UsageError("--processes and --process go with --coordinator")
        # A CPU counts as one device a core: each computes tiles of its own. GPUs are not affected.
        jax.config.update("jax_num_cpu_devices", self.devices or os.cpu_count() or 1)
        if self.coordinator is not None:
            given = (
                {}
                if self.coordinator == "auto"
                else {
                    "coordinator_address": self.coordinator,
                    "num_processes": self.processes,
                    "process_id": self.process,
                }
            )
            try:
                jax.distributed.initialize(**given)
            except Exception as error:
                raise work.UsageError(
                    f"--coordinator {self.coordinator}: {str(error).splitlines()[0] if str(error) else error!r}"
                ) from error

    def arguments(self) -> dict[str, Any]:
        """For `Study.run`."""
        devices = jax.devices()
        if self.devices is not None and self.devices > len(devices):
            raise work.UsageError(f"--devices {self.devices}: there are {len(devices)}")
        return {
            "devices": devices[: self.devices] if jax.process_count() == 1 else None,
            "batch_size": self.batch_size,
            "memory": None if self.memory is None else int(self.memory * 2**30),
        }


@dataclasses.dataclass
class Job:
    """A study to run, and what to draw of it."""

    name: str
    study: Study
    seed: int
    arguments: dict[str, Any]
    dataset: xr.Dataset | None = None


@contextmanager
def complaining() -> Iterator[None]:
    """Turns what a study complains about into the command line's own errors."""
    from rrjax.study import StudyError

    try:
        yield
    except StudyError as error:
        raise work.UsageError(str(error)) from error


def jobs(
    what: str,
    files: Sequence[str],
    *,
    figures: Sequence[int],
    num_seeds: int | None,
    seed: int | None,
    estimators: Sequence[str],
    epsilons: Sequence[float],
    reading: work.Reading,
    kosarak: Path | None,
    acs_income: Path | None,
) -> list[Job]:
    """What is to be run."""
    from rrjax.study import paper
    from rrjax.study.config import read_study

    chosen: dict[str, Any] = {"estimators": list(estimators)} if estimators else {}
    seeds: dict[str, Any] = {} if num_seeds is None else {"num_seeds": num_seeds}
    if what not in ("paper",) and (figures or kosarak or acs_income):
        raise work.UsageError("--figure, --kosarak and --acs-income belong to `rrjax study paper`")
    if what != "data" and files:
        raise work.UsageError(f"unexpected {files[0]!r}: only `rrjax study data` takes files")
    if what != "data" and (flag := reading.first_flag()):
        raise work.UsageError(f"{flag} says how to read files, and belongs to `rrjax study data`")
    if what != "data" and epsilons:
        raise work.UsageError("--epsilon belongs to `rrjax study data`; a grid of your own goes into a TOML file")
    found = []
    if what == "paper":
        for number in figures:
            if number not in SHOWN:
                raise work.UsageError(f"--figure {number}: the paper's figures are 1 to 10")
        if figures and paper.REAL_DATA not in figures and (kosarak or acs_income):
            raise work.UsageError("--kosarak and --acs-income are for Figure 3: add --figure 3, or leave --figure out")
        wanted = list(figures) or list(SHOWN)
        if paper.REAL_DATA in figures and kosarak is None and acs_income is None:
            raise work.UsageError(
                "--figure 3 needs the data sets: --kosarak FILE, --acs-income FOLDER; or see `rrjax study data`"
            )
        study = paper.study(figures=wanted, **chosen, **seeds)
        if study is not None:
            found.append(Job("study", study, seed or 0, {}))
        if paper.REAL_DATA in wanted:
            found += _paper_data(kosarak, acs_income, epsilons, chosen, seeds, seed or 0)
        return found
    if what == "quick":
        study = paper.quick(**seeds)
        return [Job("study", dataclasses.replace(study, **chosen) if chosen else study, seed or 0, {})]
    if what == "data":
        if not files:
            raise work.UsageError("`rrjax study data` needs a file of true values")
        reading = dataclasses.replace(reading, paths=list(files))
        counted = reading.count(work.parse_domain(reading.domain))
        label = Path(files[0]).name.split(".")[0]
        return [_data_job(label, counted.counts, epsilons, chosen, seeds, seed or 0)]
    if not what.endswith(".toml"):
        raise work.UsageError(f"{what!r} is none of paper, quick and data, nor a .toml file")
    study, arguments = read_study(what)
    kept = arguments.pop("seed", 0)
    changes = chosen | seeds
    if changes:
        study = dataclasses.replace(study, **changes)
    return [Job("study", study, kept if seed is None else seed, arguments)]


def _paper_data(kosarak, acs_income, epsilons, chosen, seeds, seed) -> list[Job]:
    sets: list[tuple[str, Callable[[], io.CountedReports]]] = []
    if kosarak is not None:
        sets.append(("Kosarak", lambda: io.load_kosarak(kosarak)))
    if acs_income is not None:
        sets += [
            ("ACSIncome PUMA", lambda: io.load_acs_income(acs_income, "PUMA")),
            ("ACSIncome PINCP", lambda: io.load_acs_income(acs_income, "PINCP")),
        ]
    return [_data_job(label, load().counts, epsilons, chosen, seeds, seed) for label, load in sets]


def _data_job(label, counts, epsilons, chosen, seeds, seed) -> Job:
    """Figure 3 on one data set: its users are given, only their randomization is random."""
    from rrjax.study import Study, paper

    study = Study(
        users={label: np.asarray(counts)},
        epsilon=list(epsilons) or list(paper.EPSILONS),
        metrics=paper.METRICS,
        **({"estimators": list(paper.ESTIMATORS)} | chosen),
        **seeds,
    )
    return Job(label.lower().replace(" ", "-"), study, seed, {})


def run(job: Job, folder: Path, machine: Machine, progress: Callable[[Progress], None]) -> None:
    """Runs one job; what was finished before is taken from the folder."""
    with ending_at_once(RESUME):
        # A flag of the command line comes before what a file says.
        given = {name: value for name, value in machine.arguments().items() if value is not None}
        arguments: dict[str, Any] = {"seed": job.seed} | job.arguments | given
        job.dataset = job.study.run(folder=folder / job.name, progress=progress, **arguments)


def follow_em(seed: int) -> xr.Dataset:
    """Figure 4."""
    from rrjax.study.convergence import convergence

    with ending_at_once(RESUME):
        return convergence(seed=seed)


def drawings(what: str, figures: Sequence[int], found: list[Job], em: xr.Dataset | None) -> list[Drawing]:
    """What is drawn of the results."""
    from rrjax.study import figures as draw
    from rrjax.study import paper
    from rrjax.study.paper import Drawing

    wanted = list(figures) or list(SHOWN)
    by_name = {job.name: job.dataset for job in found}
    main, listed = by_name.get("study"), []
    if what == "paper" and main is not None:
        listed += paper.drawings(main, wanted)
    elif main is not None:
        for metric in draw.measured(main):
            listed.append(
                Drawing(
                    f"overview-{metric}",
                    f"Overview: {metric.upper()}",
                    "Means over the seeds; bands are two standard errors.",
                    lambda metric=metric: draw.overview(main, metric),
                )
            )
        if "cv_threshold" in main["estimator"].values and main.sizes["estimator"] > 1 and "mse" in main:
            listed.append(
                Drawing(
                    "cv-threshold",
                    "Where the cross-validated threshold wins",
                    "Its mean squared error relative to that of the best of the other estimators.",
                    lambda: draw.cv_wins(main),
                )
            )
    for job in found:
        if job.study.users is not None and job.dataset is not None:
            listed.append(_real_data(job, draw, paper.REAL_DATA if what == "paper" else None))
    if em is not None:
        listed.append(
            Drawing(
                "figure-4",
                f"Figure 4: EM on its way to MLE* (K = {em.attrs['num_categories']})",
                "Squared distance of the iterates to the exact maximum, one simulated collection a panel and ε. "
                "The paper follows IBU alone; deflated EM and its acceleration are ours.",
                lambda: draw.convergence(em),
            )
        )
    return sorted(listed, key=lambda drawing: _number(drawing.name))


def _number(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if name.startswith("figure-") and tail.isdigit() else 3 if name.startswith("figure-3") else 99


def _real_data(job: Job, draw, number: int | None) -> Drawing:
    from rrjax.study.paper import Drawing

    dataset = job.dataset
    assert dataset is not None
    label = str(job.study.populations[0])
    counts = job.study.shares(label, job.study.num_categories[0])  # pyright: ignore[reportIndexIssue, reportOptionalSubscript]
    squeezed = dataset.squeeze(["num_categories", "num_users"])
    return Drawing(
        f"figure-3-{job.name}" if number else f"data-{job.name}",
        f"{'Figure 3: ' if number else ''}{label}, N = {int(counts.sum()):,}, K = {len(counts):,}",
        "The true histogram, and the mean squared error by ε; the users are given, and only their randomization is "
        "random. Bands are two standard errors.",
        lambda: draw.real_data(squeezed, {label: counts / counts.sum()}),
    )


def write(
    folder: Path, title: str, what: str, found: list[Job], em: xr.Dataset | None, listed: list[Drawing], seconds: float
) -> list[Path]:
    """Writes datasets, tables, figures and the report."""
    from rrjax.study import output
    from rrjax.study.claims import check_claims
    from rrjax.study.report import write_report

    files = []
    datasets = {}
    for job in found:
        assert job.dataset is not None
        files += output.write_dataset(folder, job.name, job.dataset)
        datasets[job.name] = job.dataset
    if em is not None:
        files += output.write_dataset(folder, "convergence", em)
    tables = []
    if (
        what == "paper"
        and "study" in datasets
        and {"mle_star", "inv_p", "inv_n"} <= set(datasets["study"]["estimator"].values.tolist())
    ):
        claims = check_claims(datasets["study"])
        tables.append(
            (
                "Claims",
                "What is said of the estimators, tested with paired standard errors: violated where a difference is "
                "beyond three of them.",
                {
                    "claim": [claim.claim for claim in claims],
                    "source": [claim.source for claim in claims],
                    "holds": ["yes" if claim.holds else "no" for claim in claims],
                    "violated": [f"{claim.violated} of {claim.configurations}" for claim in claims],
                    "worst": [claim.worst for claim in claims],
                },
            )
        )
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    summary = {"command": command, "computing": f"{seconds:.1f} s"} | output.provenance()
    if found:
        summary |= output.facts(found[0].dataset)  # pyright: ignore[reportArgumentType]
    report = folder / "report.html"
    write_report(
        report,
        title=title,
        summary=summary,
        datasets=datasets,
        figures=output.write_figures(folder / "figures", listed),
        extra_tables=tables,
    )
    return [*files, folder / "figures", report]
