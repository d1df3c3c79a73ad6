"""Several processes of one study, of which some are killed or stand still.

The tests are long because every process imports JAX and compiles, and because a loss is noticed only after a time.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

pytest.importorskip("xarray")

from rrjax.cli import running as running_module

pytestmark = pytest.mark.once  # nothing here depends on the precision

TIMEOUT = 6
TOML = """
num_categories = [10, 20, 30]
num_users = [100, 1000]
epsilon = [1, 2]
zipf = [0.5, 1.5]
num_seeds = 20

[estimators]
mine = "mine:slow"
"""
MODULE = """
import jax, rrjax

def slow(counts, epsilon):
    theta = rrjax.inv_n(counts, epsilon)
    return theta + 0 * jax.lax.fori_loop(0, 1_000_000, lambda _, x: jax.numpy.sin(x), theta[0])
"""


@pytest.fixture
def start(tmp_path, quick_processes):
    """Starts one of two processes of a study in which every collection takes some hundredths of a second."""
    (tmp_path / "own.toml").write_text(TOML)
    (tmp_path / "mine.py").write_text(MODULE)
    started = []

    def call(port, number, *more):
        command = [sys.executable, "-m", "rrjax", "study", "own.toml", "--out", "out", "--devices", 1]
        command += ["--coordinator", f"localhost:{port}", "--processes", 2, "--process", number, "--timeout", TIMEOUT]
        environment = os.environ | {"COLUMNS": "400", "NO_COLOR": "1"}
        # A session of its own, so that whatever is left of it can be ended.
        given = {"cwd": tmp_path, "env": environment, "start_new_session": True, "text": True}
        command = [*map(str, command), *map(str, more)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)
        started.append(process)
        return process

    yield call
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def ended(process, *codes):
    """What a process says that ends with one of some codes within a minute."""
    _, errors = process.communicate(timeout=60)
    assert process.returncode in codes, errors
    return errors


def told_of_a_loss(process):
    """Ends because another one is lost: Python says so, or jaxlib, which then ends the process itself."""
    errors = ended(process, running_module.PEER_LOST, -signal.SIGABRT)
    if process.returncode == running_module.PEER_LOST:
        assert "another process ended, or cannot be reached: start all of them again." in errors
    else:
        assert re.search("heartbeat|CoordinationService|coordination service", errors), errors


def parts(folder):
    return set(folder.glob("out/study/checkpoint/k*.npz"))


def running(started, folder):
    """Waits until they have finished something."""
    before = parts(folder)
    while parts(folder) <= before:
        assert all(process.poll() is None for process in started), [process.communicate() for process in started]
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "standing"])
@pytest.mark.parametrize("lost", [0, 1])
def test_the_others_end_when_a_process_is_lost_and_all_go_on(start, tmp_path, lost, number):
    port = free_port()
    pair = [start(port, i) for i in (0, 1)]
    running(pair, tmp_path)
    kept = parts(tmp_path)
    begin = time.monotonic()
    pair[lost].send_signal(number)
    told_of_a_loss(pair[1 - lost])
    assert time.monotonic() - begin < 60
    if number == signal.SIGSTOP:
        pair[lost].send_signal(signal.SIGCONT)
        told_of_a_loss(pair[lost])
    else:
        ended(pair[lost], -signal.SIGKILL)
    pair = [start(port, i, "--json") for i in (0, 1)]
    for process in pair[::-1]:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert json.loads(output[output.index("{") :])["what"] == "own.toml"
    assert kept < parts(tmp_path)
    assert len(json.loads((tmp_path / "out/study/checkpoint/runs.json").read_text())["seconds"]) == 2


@pytest.mark.full
def test_a_process_that_is_terminated_ends(start, tmp_path):
    port = free_port()
    pair = [start(port, i) for i in (0, 1)]
    running(pair, tmp_path)
    pair[1].terminate()
    ended(pair[1], -signal.SIGTERM)
    told_of_a_loss(pair[0])


@pytest.mark.full
def test_a_process_that_fails_alone_does_not_wait_for_the_others(start):
    port = free_port()
    first, second = start(port, 0), start(port, 1, "--memory", 1e-9)
    assert "the memory budget is 1 bytes" in ended(second, 2)
    told_of_a_loss(first)


@pytest.mark.full
@pytest.mark.parametrize("process", [0, 1])
def test_nobody_else_comes(start, process):
    errors = ended(start(free_port(), process), 2, -signal.SIGABRT)
    assert "DEADLINE_EXCEEDED" in errors


SCRIPT = """
import os, sys
import jax
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
from rrjax.study import Study, StudyError
study = Study(estimators="inv", num_categories=[20, 30], num_users=50, epsilon=1.0, zipf=1.0, num_seeds=20)
def progress(now):
    if now.done and jax.process_index() == 1:
        os._exit(7)
try:
    study.run(progress=progress)
except StudyError as error:
    print(error)
    sys.stdout.flush()
    os._exit(8)
"""


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_a_run_in_python_raises_where_a_process_ended():
    address = f"localhost:{free_port()}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    first, second = (
        subprocess.Popen([sys.executable, "-c", SCRIPT, address, str(i)], env=environment, stdout=subprocess.PIPE)
        for i in (0, 1)
    )
    output, _ = first.communicate(timeout=120)
    second.communicate()
    assert (first.returncode, second.returncode) == (8, 7)
    assert b"another process ended, or cannot be reached: start all of them again. (" in output
