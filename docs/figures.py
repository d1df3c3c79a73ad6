"""Makes the figures of this folder: `python docs/figures.py`.

It copies the stored figures of the notebooks. `statements.png` is drawn by `rrjax estimate` from Adult's years of
education, randomized in a simulation; it needs the data in the folder RRJAX_DATA.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np

import rrjax

HERE = Path(__file__).parent
FIGURES = {
    "04": ("plan.png", 4),
    "05": ("which-mechanism.png", 0),
    "06": ("regression.png", 0),
    "07": ("labels.png", 0),
    "08": ("tuning.png", 0),
}
"""Of each notebook: what to call a figure, and which one it is."""


def figures_of(notebook: Path) -> list[bytes]:
    """All figures of a notebook, in order."""
    cells = json.loads(notebook.read_text())["cells"]
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    return [base64.b64decode(data["image/png"]) for data in outputs if "image/png" in data]


def statements(data: Path) -> None:
    """Education by sex, by the command that the page shows."""
    with gzip.open(data / "adult.data.gz", "rt") as stream:
        rows = [row for row in csv.reader(stream, skipinitialspace=True) if row]
    years = np.asarray([int(row[4]) for row in rows])
    reports = np.asarray(rrjax.RandomizedResponse(16, 2.0).randomize(jax.random.key(0), years - 1)) + 1
    with tempfile.TemporaryDirectory() as folder:
        survey = Path(folder) / "survey.csv"
        lines = [f"{report},{row[9]}" for report, row in zip(reports, rows, strict=True)]
        survey.write_text("\n".join(["education,sex", *lines]))
        flags = ["--column", "education", "--epsilon", "2", "--domain", "1:16", "--mean", "--by", "sex"]
        groups = ["--group", "a degree=13:16", "--group", "no high school=1:8", "--plot", str(HERE / "statements.png")]
        subprocess.run([sys.executable, "-m", "rrjax", "estimate", str(survey), *flags, *groups], check=True)


def main() -> None:
    """Writes all of them."""
    for number, (name, place) in FIGURES.items():
        (notebook,) = (HERE.parent / "notebooks").glob(f"{number}-*.ipynb")
        (HERE / name).write_bytes(figures_of(notebook)[place])
    if "RRJAX_DATA" in os.environ:
        statements(Path(os.environ["RRJAX_DATA"]))


if __name__ == "__main__":
    main()
