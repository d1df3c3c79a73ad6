"""Ctrl-C while a module is imported, where an exception would crash extension modules."""

import importlib
import signal
import subprocess
import sys
import time

import pytest

from rrjax.cli.interrupt import INTERRUPTED, SECONDS_BETWEEN_TRIES, unwinding

pytestmark = pytest.mark.once  # nothing here depends on the precision

SECONDS = 30.0
"""What nobody waits for: an interrupt ends it."""
INTERRUPTS = """
import signal
signal.raise_signal(signal.SIGINT)
sum(range(1000))
"""


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Imports a module with this source, once."""
    monkeypatch.syspath_prepend(tmp_path)
    name = "imported_while_interrupted"

    def load(source):
        (tmp_path / f"{name}.py").write_text(source)
        importlib.import_module(name)

    yield load
    assert sys.modules.pop(name).COMPLETE


def test_an_interrupt_waits_for_the_end_of_an_import_and_wakes_who_waits(imported):
    def interrupted():
        imported(f"{INTERRUPTS}COMPLETE = True")
        time.sleep(SECONDS)

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), unwinding():
        interrupted()
    assert time.monotonic() - begin < SECONDS / 2


def test_an_interrupt_after_the_import_is_the_only_one(imported):
    def interrupted():
        imported(f"{INTERRUPTS}COMPLETE = True")
        try:
            signal.raise_signal(signal.SIGINT)
        finally:  # what cleans up is not interrupted again
            time.sleep(5 * SECONDS_BETWEEN_TRIES)

    with pytest.raises(KeyboardInterrupt) as caught, unwinding():
        interrupted()
    assert caught.value.__context__ is None


def test_a_second_interrupt_ends_an_import_that_does_not_end(tmp_path):
    (tmp_path / "endless.py").write_text(f"{INTERRUPTS}{INTERRUPTS}import time\ntime.sleep({SECONDS})")
    program = "from rrjax.cli.interrupt import unwinding\nwith unwinding():\n    import endless"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert ended.returncode == INTERRUPTED
    assert ended.stderr.startswith("\nrrjax: interrupted twice")
