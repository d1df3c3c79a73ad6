"""The folder that a study leaves: dataset, tidy tables, figures, report."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rrjax.figures.html import versions
from rrjax.io import write_table
from rrjax.io.write import make_folder, replacing
from rrjax.study.drawings import Drawing
from rrjax.study.pictures import Picture, pictures

if TYPE_CHECKING:
    import xarray as xr

_PACKAGES = ("rrjax", "jax", "jaxlib", "numpy", "xarray")


def write_dataset(folder: Path, name: str, dataset: xr.Dataset) -> list[Path]:
    """Writes NAME.nc (NetCDF), and NAME.parquet, a row a configuration and estimator; paired differences apart.

    Raises:
        DataError: A file cannot be written.
    """
    files = [folder / f"{name}.nc"]
    with replacing(files[0]) as aside:
        dataset.to_netcdf(aside, engine="h5netcdf")
    plain = [variable for variable in dataset.data_vars if "versus" not in dataset[variable].dims]
    for suffix, variables in (("", plain), ("-differences", [v for v in dataset.data_vars if v not in plain])):
        variables = [v for v in variables if not {"seed", "quantile"} & set(dataset[v].dims)]
        if variables:
            frame = dataset[variables].to_dataframe().dropna(how="all", subset=variables).reset_index()
            file = folder / f"{name}{suffix}.parquet"
            write_table(file, {str(column): np.asarray(frame[column]) for column in frame})
            files.append(file)
    return files


def write_figures(
    folder: Path, drawings: Sequence[Drawing], begun: Callable[[int, Drawing], None] | None = None
) -> Generator[tuple[str, str, Picture]]:
    """Draws the figures, several at once, writes each as PNG and PDF, and yields what `write_report` takes."""
    make_folder(folder)
    with closing(pictures(drawings, begun)) as drawn:
        for drawing, picture in zip(drawings, drawn, strict=True):
            for suffix, content in picture.files.items():
                with replacing(folder / f"{drawing.name}.{suffix}") as aside:
                    aside.write_bytes(content)
            yield drawing.title, drawing.caption, picture


def provenance() -> dict[str, str]:
    """Versions and hardware, in words."""
    return {
        "versions": versions(*_PACKAGES),
        "hardware": f"{_processor()}, {os.cpu_count()} cores; {platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )
