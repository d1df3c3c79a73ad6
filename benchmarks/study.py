"""Times the study engine: the paper's whole grid from a cold start, the samplers alone, and how the engine scales.

Every part runs in processes of its own (`study_process.py`).
"""

from __future__ import annotations

import os
from typing import Any

import report
import study_grid
import study_samplers
import study_scaling
from study_process import GOALS

PARTS = {"grid": study_grid, "samplers": study_samplers, "scaling": study_scaling}


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--full", action="store_true", help="run the NumPy pipeline on the whole grid")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="which parts to run")
    parser.add_argument("--rounds", type=int, default=3, help="cold starts, with a share of the competitors after each")
    parser.add_argument("--paper-seconds", type=float, default=60, help="budget of the paper's procedure, in all")
    parser.add_argument("--stride", type=int, default=7, help="competitors: every which pair (ε, s); no multiple of 3")
    parser.add_argument("--devices", type=int, default=os.cpu_count() or 1, help="CPU devices of the study")
    options = parser.parse_args()
    if options.stride < 1 or options.rounds < 1 or options.devices < 1:
        parser.error("--stride, --rounds and --devices must be at least 1")
    tables: list[report.Table] = []
    record: dict[str, Any] = {"goals": GOALS, "quick": options.quick}
    for name, part in PARTS.items():
        if name in options.parts:
            record[name], found = part.run(options)
            tables += found
    some = set(options.parts) != set(PARTS)
    report.publish(
        options,
        "study",
        "The study engine",
        tables,
        record,
        "".join(f"-{part}" for part in record if some and part in PARTS),
    )


if __name__ == "__main__":
    main()
