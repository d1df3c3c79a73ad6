"""Several processes run one study: where one of them is lost, the others end with a sentence.

JAX's heartbeats notice it, and then jaxlib ends the process itself, with a page of C++ and SIGABRT; Python is not
asked. So the work is done in a child, and the process that was started waits, knows that page when it sees it, and says
what to do. Either ends soon after the other, and one that stands still counts as ended: what befalls the process that
was started befalls its work.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import jax

from rrjax.cli import show
from rrjax.data.errors import PeerError, UsageError

LOST = 4
"""The exit code where a process was lost: the same command may be started again."""
_ALONE = 5
"""With which a child ends whose parent is gone; one that stood still sees it, and says so."""
AGAIN = "Start all of them again with the same commands: what is finished is kept, and they go on from there."
START = 2
"""Processes take longer to start than to give a sign: the seconds for it are so many times as long."""
_REGISTRATION = 5
"""Seconds that jaxlib takes longer to give up than it is told."""
_GRACE = 5.0
"""Seconds that a process which failed leaves the others to fail alike, each with its own message."""
_PULSE = 0.1


def join(coordinator: str, processes: int | None, process: int | None, seconds: int) -> None:
    """Meets the other processes, in a child: the process that was started ends here, when the child does.

    Raises:
        UsageError: JAX does not accept them, or they cannot be had.
    """
    # Else a SIGTERM would be noted, and no more.
    jax.config.update("jax_enable_preemption_service", False)
    _continue_in_child(seconds, process)
    given: dict[str, Any] = {}
    if coordinator != "auto":
        given = {"coordinator_address": coordinator, "num_processes": processes, "process_id": process}
    try:
        jax.distributed.initialize(
            **given,
            initialization_timeout=max(1, START * seconds - _REGISTRATION),
            heartbeat_timeout_seconds=seconds,
        )
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else repr(error)
        raise UsageError(f"--coordinator {coordinator}: {said}") from error


@contextmanager
def ending(seconds: int) -> Iterator[None]:
    """Ends a process that fails soon, even where JAX would have it wait for the others, which wait for it."""
    try:
        with show.reporting():
            yield
    except PeerError:
        # By then jaxlib has ended this process, and named the one that is lost.
        time.sleep(seconds + _GRACE)
        os._exit(LOST)
    except BaseException as failure:
        code = failure.code if isinstance(failure, SystemExit) and isinstance(failure.code, int) else 1
        timer = threading.Timer(_GRACE, os._exit, [code])
        timer.daemon = True
        timer.start()
        raise


def _continue_in_child(seconds: int, process: int | None) -> None:
    """Returns in a child, and in the process that was started never: it ends as the child does, with fewer words."""
    if not hasattr(os, "fork"):
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with tempfile.TemporaryFile() as said:
        listening, speaking = os.pipe()
        child = os.fork()
        if child:
            os.close(listening)
            sys.exit(_end(_wait(child, speaking), said, seconds, process))
        os.close(speaking)
        _keep_aside(said)
    threading.Thread(target=_live_with_parent, args=(listening, seconds), daemon=True).start()


def _keep_aside(said: IO[bytes]) -> None:
    """Lets C++ write into a file, greetings and all; Python goes on where it was."""
    streams = {1: sys.stdout, 2: sys.stderr}
    ours = [
        os.fdopen(os.dup(number), "w", buffering=1, encoding=stream.encoding, errors="replace")
        for number, stream in streams.items()
    ]
    for number in streams:
        os.dup2(said.fileno(), number)
    sys.stdout, sys.stderr = ours


def _live_with_parent(pipe: int, seconds: float) -> None:
    # Half the time: the others, too, need theirs to notice.
    while select.select([pipe], [], [], seconds / 2)[0] and os.read(pipe, 4096):
        pass
    os._exit(_ALONE)


def _wait(child: int, pipe: int) -> int:
    """Waits for the end of the child, and shows it every now and then that this process lives."""
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: asked.append(number))
    os.set_blocking(pipe, False)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        # Ctrl-C reaches the child too, and before; what was sent to this process alone is handed on.
        while asked:
            os.kill(child, asked.pop())
        with suppress(BlockingIOError, BrokenPipeError):  # it stands still, or is about to end
            os.write(pipe, b".")
        time.sleep(_PULSE)


def _end(code: int, said: IO[bytes], seconds: int, process: int | None) -> int:
    """Says what the child did not; returns the exit code."""
    said.seek(0)
    words = said.read().decode(errors="replace")
    if code == _ALONE:
        show.fail(f"this process stood still, and was given up. {AGAIN}", LOST)
    if code == LOST or (code == -signal.SIGABRT and "JAX distributed service" in words):
        show.fail(loss(words, seconds, process), LOST)
    if code < 0 or code == 1:  # a crash; else there was nothing to say, or it is said
        os.write(2, words.encode())
    return code if code >= 0 else 128 - code


def loss(words: str, seconds: int, process: int | None = None) -> str:
    """Which process is lost, by what jaxlib says at its end, and what to do."""
    if "CoordinationService/RegisterTask" in words:
        missing = "another process" if process == 0 else "process 0, or another one,"
        return (
            f"{missing} did not come within {START * seconds} s: start all of them within that time, with the same "
            "--coordinator, or give them longer by --timeout"
        )
    silent = {int(number) for number in re.findall(r"Task (\d+) heartbeat timeout", words)}
    for numbers in re.findall(r"stopped sending heartbeats\):\s*([\d,\s]+)", words):
        silent |= {int(number) for number in re.findall(r"\d+", numbers)}
    if process in silent:
        return f"this process, {process}, gave no sign for {seconds} s, and the others gave it up. {AGAIN}"
    if silent:
        which = "process " + str(*silent) if len(silent) == 1 else "processes " + ", ".join(map(str, sorted(silent)))
        return f"no sign of {which} for {seconds} s: it ended, or hangs; its own output may say why. {AGAIN}"
    if "coordination service" in words or "CoordinationService" in words:
        return f"process 0, by which the others hold, ended, hangs or cannot be reached. {AGAIN}"
    return f"another process ended or hangs. {AGAIN}"
