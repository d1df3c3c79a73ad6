"""Ctrl-C while a module is imported, where an exception would crash extension modules."""

import importlib
import sys
import time

import pytest

from rrjax.cli.interrupt import unwinding

pytestmark = pytest.mark.once  # nothing here depends on the precision

IMPORTED_WHILE_INTERRUPTED = """
import signal
signal.raise_signal(signal.SIGINT)
sum(range(1000))
COMPLETE = True
"""


@pytest.mark.long
def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path, monkeypatch):
    (tmp_path / "imported_while_interrupted.py").write_text(IMPORTED_WHILE_INTERRUPTED)
    monkeypatch.syspath_prepend(tmp_path)

    def interrupted():
        importlib.import_module("imported_while_interrupted")
        time.sleep(10)

    with pytest.raises(KeyboardInterrupt), unwinding():
        interrupted()
    assert sys.modules.pop("imported_while_interrupted").COMPLETE
