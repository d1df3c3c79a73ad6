"""Copies figures of the notebooks, as they were last run, to this folder. `python docs/figures.py`."""

from __future__ import annotations

import base64
import json
from pathlib import Path

HERE = Path(__file__).parent
FIGURES = {"06": ("regression.png", 0), "07": ("labels.png", 0), "08": ("tuning.png", 0)}
"""Of each notebook: what to call a figure, and which one it is."""


def figures_of(notebook: Path) -> list[bytes]:
    """All figures of a notebook, in order."""
    cells = json.loads(notebook.read_text())["cells"]
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    return [base64.b64decode(data["image/png"]) for data in outputs if "image/png" in data]


def main() -> None:
    """Writes all of them."""
    for number, (name, place) in FIGURES.items():
        (notebook,) = (HERE.parent / "notebooks").glob(f"{number}-*.ipynb")
        (HERE / name).write_bytes(figures_of(notebook)[place])


if __name__ == "__main__":
    main()
