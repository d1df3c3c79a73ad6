"""The flags of `rrjax study` that say where to compute."""

from __future__ import annotations

import dataclasses
import math
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

import jax
import typer

from rrjax.cli import together
from rrjax.data.errors import UsageError

RUN = "Running"


@dataclasses.dataclass(frozen=True)
class Machine:
    """The flags that say where to compute."""

    x64: Annotated[bool, typer.Option("--x64", help="Compute in double precision.", rich_help_panel=RUN)] = False
    devices: Annotated[
        int | None, typer.Option(help="Number of devices; by default all GPUs, or all cores.", rich_help_panel=RUN)
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Number of tiles that a device computes between checkpoints.", rich_help_panel=RUN),
    ] = None
    memory: Annotated[
        float | None,
        typer.Option(help="Memory for arrays, in GiB; by default 4, or half of each GPU's.", rich_help_panel=RUN),
    ] = None
    coordinator: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of process 0, to run on several processes or hosts (or auto, under a cluster's scheduler).",
            rich_help_panel=RUN,
        ),
    ] = None
    processes: Annotated[int | None, typer.Option(help="Number of processes.", rich_help_panel=RUN)] = None
    process: Annotated[int | None, typer.Option(help="Number of this process, from 0.", rich_help_panel=RUN)] = None
    timeout: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Seconds without a sign of life of another process after which this one ends, by default 25; "
            "twice as many at the start.",
            rich_help_panel=RUN,
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
        alone = (self.processes, self.process, self.timeout) == (None, None, None)
        if self.coordinator is None and not alone:
            given = {"--processes": self.processes, "--process": self.process, "--timeout": self.timeout}
            raise UsageError(
                "--processes, --process and --timeout go with --coordinator, the address of process 0",
                flag=next(flag for flag, value in given.items() if value is not None),
            )

    @property
    def patience(self) -> int:
        """Seconds without a sign of life after which a process counts as lost; each loss is noticed within a minute."""
        return self.timeout or 25

    def together(self) -> AbstractContextManager[None]:
        """The context of a process that shares its study with others."""
        return nullcontext() if self.coordinator is None else together.ending(self.patience)

    def settle(self) -> None:
        """Configures JAX, before it looks for devices."""
        # Half the time of double precision, and exact enough; the environment's own wish is kept.
        wished = os.environ.get("JAX_ENABLE_X64", "").lower() in ("1", "true", "yes", "on")
        jax.config.update("jax_enable_x64", self.x64 or wished)
        # A CPU counts as one device a core: each computes tiles of its own. GPUs are not affected.
        jax.config.update("jax_num_cpu_devices", self.devices or os.cpu_count() or 1)
        if self.coordinator is not None:
            together.join(self.coordinator, self.processes, self.process, self.patience)

    def arguments(self) -> dict[str, Any]:
        """For `Study.run`."""
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
