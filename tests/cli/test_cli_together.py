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
from pathlib import Path

import pytest

pytest.importorskip("xarray")
pytest.importorskip("typer")

from rrjax.cli import together

pytestmark = [
    pytest.mark.once,  # nothing here depends on the precision
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are watched where they can be forked"),
]

AGAIN = "Start all of them again with the same commands: what is finished is kept, and they go on from there."
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
import os, time
import jax, rrjax

def wait(theta):
    time.sleep(float(os.environ.get("SECONDS", 0)))
    return theta

def slow(counts, epsilon):
    return jax.pure_callback(wait, *[rrjax.inv_n(counts, epsilon)] * 2, vmap_method="sequential")
"""


@pytest.fixture
def start(tmp_path, quick_processes):
    """Starts one of two processes of a study in which every collection takes so many seconds."""
    (tmp_path / "own.toml").write_text(TOML)
    (tmp_path / "mine.py").write_text(MODULE)
    started = []

    def call(port, number, *more, seconds=0.0):
        command = [sys.executable, "-m", "rrjax", "study", "own.toml", "--out", "out", "--devices", 1]
        command += ["--coordinator", f"localhost:{port}", "--processes", 2, "--process", number, "--timeout", TIMEOUT]
        environment = os.environ | {"COLUMNS": "400", "NO_COLOR": "1", "SECONDS": str(seconds)}
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


def ended(process, code):
    """The message of a process that ends with a code within a minute: the last line, and the only one."""
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    return errors.strip()


def parts(folder):
    return set(folder.glob("out/study/checkpoint/k*.npz"))


def running(started, folder):
    """Waits until they have finished something."""
    before = parts(folder)
    while parts(folder) <= before:
        assert all(process.poll() is None for process in started), [process.communicate() for process in started]
        time.sleep(0.05)


@pytest.mark.full
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "standing"])
@pytest.mark.parametrize("lost", [0, 1])
def test_the_others_end_when_a_process_is_lost(start, tmp_path, lost, number):
    port = free_port()
    pair = [start(port, i, seconds=0.05) for i in (0, 1)]
    running(pair, tmp_path)
    begin = time.monotonic()
    # The working one, below the one that was started: what befalls the latter comes in the next test.
    worker = int(Path(f"/proc/{pair[lost].pid}/task/{pair[lost].pid}/children").read_text())
    os.kill(worker, number)
    message = ended(pair[1 - lost], together.LOST)
    assert time.monotonic() - begin < 60
    if lost == 0:
        assert message == f"rrjax: process 0, by which the others hold, ended, hangs or cannot be reached. {AGAIN}"
    else:
        why = f"no sign of process 1 for {TIMEOUT} s: it ended, or hangs; its own output may say why."
        assert message == f"rrjax: {why} {AGAIN}"
    if number == signal.SIGSTOP:
        os.kill(worker, signal.SIGCONT)
        assert ended(pair[lost], together.LOST).endswith(AGAIN)
    else:
        ended(pair[lost], 128 + signal.SIGKILL)


@pytest.mark.full
@pytest.mark.long
@pytest.mark.parametrize(
    ("lost", "number", "code"),
    [(0, signal.SIGKILL, -signal.SIGKILL), (1, signal.SIGTERM, 128 + signal.SIGTERM)],
    ids=["killed", "terminated"],
)
def test_what_befalls_the_process_that_was_started_befalls_its_work_and_all_go_on(start, tmp_path, lost, number, code):
    port = free_port()
    pair = [start(port, i, seconds=0.05) for i in (0, 1)]
    running(pair, tmp_path)
    kept = parts(tmp_path)
    pair[lost].send_signal(number)
    assert ended(pair[1 - lost], together.LOST).endswith(AGAIN)
    ended(pair[lost], code)
    pair = [start(port, i, "--json") for i in (0, 1)]
    for process in pair[::-1]:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert json.loads(output)["what"] == "own.toml"  # with nothing of Gloo's before
    assert kept < parts(tmp_path)
    assert len(json.loads((tmp_path / "out/study/checkpoint/runs.json").read_text())["seconds"]) == 2


@pytest.mark.long
def test_a_process_that_fails_alone_does_not_wait_for_the_others(start):
    port = free_port()
    first, second = start(port, 0), start(port, 1, "--memory", 1e-9)
    assert "the memory budget is 1 bytes" in ended(second, 2)
    assert "no sign of process 1" in ended(first, together.LOST)


@pytest.mark.long
@pytest.mark.parametrize(("process", "who"), [(0, "another process"), (1, "process 0, or another one,")])
def test_nobody_else_comes(start, process, who):
    message = ended(start(free_port(), process), together.LOST)
    assert message.startswith(f"rrjax: {who} did not come within {2 * TIMEOUT} s: start all of them")


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


@pytest.mark.long
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


POLLED = """The following tasks are unhealthy (stopped sending heartbeats):
2
5
The tasks have crashed. Check the task logs, for 12 of them. RPC: /xla.coordination.CoordinationService/PollForError
"""


@pytest.mark.parametrize(
    ("words", "process", "message"),
    [
        (POLLED, 0, "no sign of processes 2, 5 for 9 s"),
        (POLLED, None, "no sign of processes 2, 5 for 9 s"),
        (POLLED, 5, "this process, 5, gave no sign for 9 s"),
        ("UNAVAILABLE: Task 1 heartbeat timeout. This", 0, "no sign of process 1 for 9 s"),
        ("DEADLINE_EXCEEDED RPC: /xla.coordination.CoordinationService/Heartbeat", 1, "process 0, by which"),
        ("nothing that is known", 1, "another process ended or hangs"),
    ],
)
def test_the_words_of_jaxlib_tell_who_is_lost(words, process, message):
    said = together.loss(words, 9, process)
    assert re.match(message, said)
    assert said.endswith(AGAIN)
