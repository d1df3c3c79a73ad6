"""The devices and processes of `rrjax study`, and its progress bar."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from rrjax.cli import show
from rrjax.data.errors import PeerError, UsageError

if TYPE_CHECKING:
    from rrjax.study.arguments import Progress as Done

PEER_LOST = 4
"""The exit code where another process was lost: the same commands may be started again."""
FAREWELL_SECONDS = 5.0
"""A process that fails leaves the others this long to fail with messages of their own."""
REGISTRATION_SECONDS = 5
"""JAX waits for other processes this much longer than it is told."""
_flag = partial(typer.Option, rich_help_panel="Running")


@dataclasses.dataclass(frozen=True)
class Machine:
    """The flags for devices, memory and processes."""

    x64: Annotated[bool, _flag("--x64", help="Compute in double precision.")] = False
    devices: Annotated[int | None, _flag(help="Number of devices; by default all GPUs, or all cores.")] = None
    batch_size: Annotated[
        int | None,
        _flag(min=1, help="Number of tiles that a device computes between checkpoints."),
    ] = None
    memory: Annotated[
        float | None,
        _flag(help="Memory for arrays, in GiB; by default 4, or half of each GPU's."),
    ] = None
    coordinator: Annotated[
        str | None,
        _flag(
            help="HOST:PORT of process 0, to run on several processes or hosts (or auto, under a cluster's scheduler).",
        ),
    ] = None
    processes: Annotated[int | None, _flag(help="Number of processes.")] = None
    process: Annotated[int | None, _flag(help="Number of this process, from 0.")] = None
    timeout: Annotated[
        int | None,
        _flag(
            min=2,
            help="Seconds without a sign of life of another process after which this one ends, by default 25; "
            "twice as many at the start.",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Checks the flags."""
        if self.devices is not None and self.devices < 1:
            raise UsageError(f"--devices must be at least 1, got {self.devices}", flag="--devices", value=self.devices)
        if self.memory is not None and not 0 < self.memory < math.inf:
            raise UsageError(
                f"--memory must be a positive number of GiB, got {self.memory:g}", flag="--memory", value=self.memory
            )
        port = re.fullmatch(r".+:([0-9]{1,5})", self.coordinator or "")
        if self.coordinator not in (None, "auto") and not (port and 0 < int(port[1]) < 1 << 16):
            raise UsageError(
                f"--coordinator must be HOST:PORT, the address of process 0, or auto, got {self.coordinator!r}",
                flag="--coordinator",
                value=self.coordinator,
            )
        alone = (self.processes, self.process, self.timeout) == (None, None, None)
        if self.coordinator is None and not alone:
            given = {"--processes": self.processes, "--process": self.process, "--timeout": self.timeout}
            raise UsageError(
                "--processes, --process and --timeout go with --coordinator, the address of process 0",
                flag=next(flag for flag, value in given.items() if value is not None),
            )

    @property
    def patience(self) -> int:
        """Seconds without a heartbeat after which a process counts as lost."""
        return self.timeout or 25

    def together(self) -> AbstractContextManager[None]:
        """The context in which a process shares its study with others."""
        return nullcontext() if self.coordinator is None else ending_together()

    def settle(self) -> None:
        """Configures JAX, before it initializes its devices."""
        import jax

        # Single precision takes half the time and is exact enough; JAX_ENABLE_X64 of the environment is respected.
        wished = os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "yes", "on")
        jax.config.update("jax_enable_x64", self.x64 or wished)
        # Each core of a CPU becomes a device, which computes tiles of its own. GPUs are not affected.
        jax.config.update("jax_num_cpu_devices", self.devices or os.cpu_count() or 1)
        if self.coordinator is not None:
            join(self.coordinator, self.processes, self.process, self.patience)

    def arguments(self) -> dict[str, Any]:
        """Arguments of `Study.run`."""
        import jax

        devices = jax.devices()
        if self.devices is not None and self.devices > len(devices):
            raise UsageError(
                f"--devices {self.devices}: there {'is' if len(devices) == 1 else 'are'} only {len(devices)}",
                flag="--devices",
                value=self.devices,
            )
        given = {
            "devices": devices[: self.devices] if jax.process_count() == 1 else None,
            "batch_size": self.batch_size,
            "memory": None if self.memory is None else int(self.memory * 2**30),
        }
        return {name: value for name, value in given.items() if value is not None}


def join(coordinator: str, processes: int | None, process: int | None, seconds: int) -> None:
    """Meets the other processes."""
    import jax

    # Otherwise JAX would note a SIGTERM, and the process would go on.
    jax.config.update("jax_enable_preemption_service", False)
    given: dict[str, Any] = {}
    if coordinator != "auto":
        given = {"coordinator_address": coordinator, "num_processes": processes, "process_id": process}
    waiting = max(1, 2 * seconds - REGISTRATION_SECONDS)
    try:
        jax.distributed.initialize(**given, initialization_timeout=waiting, heartbeat_timeout_seconds=seconds)
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else repr(error)
        raise UsageError(f"--coordinator {coordinator}: {said}") from error


@contextmanager
def ending_together() -> Iterator[None]:
    """Ends a process a few seconds after it failed; JAX would let it wait for the others, which wait for it."""
    try:
        with show.reporting():
            try:
                yield
            except PeerError as error:
                show.fail(str(error), PEER_LOST)
    except BaseException as failure:
        code = failure.code if isinstance(failure, SystemExit) and isinstance(failure.code, int) else 1
        timer = threading.Timer(FAREWELL_SECONDS, os._exit, [code])
        timer.daemon = True
        timer.start()
        raise


def progress_bar() -> Progress:
    """An empty progress bar, shown on process 0 only."""
    import jax

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
        console=show.err,
        disable=jax.process_index() > 0,
        transient=True,
    )


class Bar:
    """One study's line in the bar, and on stderr if that is no terminal.

    The first batch includes the compilation, so the remaining time is estimated from later batches. Batches of an
    earlier run do not count.
    """

    def __init__(self, progress: Progress, lines: show.Lines, name: str, doing: str) -> None:
        """Shows `name` while the study compiles, then `doing`."""
        self.progress, self.lines, self.doing = progress, lines, doing
        lines.update(f"{name}: compiling …")
        self.task = progress.add_task(f"{name}: compiling …", total=None, rate="")
        self.first: tuple[float, int] | None = None

    def __call__(self, done: Done) -> None:
        """Shows the progress."""
        fresh = done.done - done.resumed
        if not fresh and done.done < done.total:
            # A resumed study shows its finished part; a new one shows a moving bar.
            if done.resumed:
                self.progress.update(self.task, total=done.total, completed=done.done)
            return
        left = []
        if self.first is None or done.done >= done.total:
            self.first = done.seconds, fresh
        elif done.seconds > self.first[0]:
            # Without the first batch, which includes the compilation.
            seconds = (done.total - done.done) * (done.seconds - self.first[0]) / (fresh - self.first[1])
            left = [f"{timedelta(seconds=round(seconds))} left"]
        rate = [f"{fresh / max(done.seconds, 1e-9) / 1e6:,.1f} million categories/s"] if fresh else []
        whole, now = done.total, done.done
        self.lines.update(", ".join([f"{self.doing}: {100 * now / whole:.0f}\N{NO-BREAK SPACE}%", *left]))
        self.progress.update(
            self.task, description=self.doing, total=whole, completed=now, rate=", ".join([*left, *rate])
        )
