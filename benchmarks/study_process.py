"""What the parts of `study.py` share, and the process that each of them runs in.

`study.py` stays small and imports neither JAX nor NumPy before the end: on Linux a child's peak memory includes what
its parent held when it started. So nothing here, in `study_grid.py`, `study_samplers.py` and `study_scaling.py` imports
them at the top. In each part `run` is the parent's, and `measure` the child's.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report

GOALS = {
    "seconds": 12,
    "kept": 7,
    "again": 5,
    "numpy": 2.5,
    "paper": 60,
    "memory": 4e9,
    "counts": 5,
    "collect": 4,
}
METRICS = ("mse", "nll", "bias2", "variance")
ESTIMATORS = ("mle_star", "inv_p", "inv_n", "inv")


def child(name: str, given: dict[str, Any], words: str, kept: str | None = None) -> Any:
    """What `measure(given)` of `study_NAME.py` answers in another process, which counts from here, `since`.

    It starts cold, or with the programs in `kept`, a folder that takes the place of the user's cache folder.
    """
    print(f"timing {words}", file=sys.stderr, flush=True)
    environment = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    if kept is None:
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    else:
        environment |= {"XDG_CACHE_HOME": kept, "JAX_ENABLE_COMPILATION_CACHE": "true"}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, __file__, name, str(answer), json.dumps(given | {"since": time.time()})]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code != 0:
            sys.exit(f"the process for {words} ended with {code}")
        return json.loads(answer.read_text())


def start_jax(devices: int) -> Any:
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    return jax


def verdict(reached: bool | None) -> str:
    return "" if reached is None else "yes" if reached else "no"


if __name__ == "__main__":
    _, name, answer, given = sys.argv
    found = importlib.import_module(f"study_{name}").measure(json.loads(given))
    Path(answer).write_text(json.dumps(found, default=report.plain))
