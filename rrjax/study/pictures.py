"""Drawings as bytes: drawn here, and by processes beside this one."""

from __future__ import annotations

import gc
import os
import pickle
import re
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from rrjax.figures.files import as_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rrjax.study.drawings import Drawing

_DPI = 130
_EACH = 3
"""Figures for a process: with fewer, this one has drawn them before the other has loaded what it needs."""
_SERVE = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from rrjax.study.pictures import serve
serve()
"""


class Picture(NamedTuple):
    """A figure that is drawn."""

    files: dict[str, bytes]
    """Suffix → what the file holds; "png" is among them."""
    words: list[str]
    """What the figure shows, from what is written in it."""
    said: list[tuple[str, type[Warning]]]
    """Warnings of its drawing."""


def picture_of(draw: Callable[[], Figure], *suffixes: str, dpi: float = 150) -> Picture:
    """Draws a figure as PNG, and in other formats of the same layout."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        figure = draw()
        files = dict(zip(("png", *suffixes), as_bytes(figure, "png", *suffixes, dpi=dpi), strict=True))
    return Picture(files, _words(figure), [(str(warning.message), warning.category) for warning in caught])


def pictures(
    drawings: Sequence[Drawing], begun: Callable[[int, Drawing], None] | None = None, processes: int | None = None
) -> Generator[Picture]:
    """Draws each as PNG and PDF, in this process and in others that do nothing else.

    The bytes are the same wherever they were made. What another process does not bring is drawn here, so it costs
    time alone where none can be started.
    """
    if processes is None:
        processes = min(_cores(), len(drawings) // _EACH) - 1
    work, helpers = _Work(drawings, begun), []
    try:
        with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):  # nobody is there to help, then
            packed = pickle.dumps(sys.path) + pickle.dumps(drawings) if processes > 0 else b""
            for _ in range(processes):
                helpers.append(_Helper(work, packed))  # noqa: PERF401 - one that fails leaves those before it
        for place in range(len(drawings)):
            picture = work.result(place)
            for message, category in picture.said:
                warnings.warn(message, category, stacklevel=2)
            yield picture
    finally:
        for helper in helpers:
            helper.stop()


class _Work:
    """Which drawings are left, and what came of the others."""

    def __init__(self, drawings: Sequence[Drawing], begun: Callable[[int, Drawing], None] | None) -> None:
        self.drawings, self.begun = drawings, begun
        self.left, self.number = deque(range(len(drawings))), 0
        self.drawn: dict[int, Picture] = {}
        self.changed = threading.Condition()

    def take(self) -> int | None:
        """The place of one that nobody has begun."""
        with self.changed:
            if not self.left:
                return None
            self.number += 1
            if self.begun is not None:
                self.begun(self.number, self.drawings[self.left[0]])
            return self.left.popleft()

    def bring(self, place: int, picture: Picture) -> None:
        with self.changed:
            self.drawn[place] = picture
            self.changed.notify_all()

    def return_(self, place: int) -> None:
        """Lets another one draw it."""
        with self.changed:
            self.number -= 1
            self.left.appendleft(place)
            self.changed.notify_all()

    def result(self, place: int) -> Picture:
        """One of them; until it is there, this thread draws what is left."""
        while True:
            with self.changed:
                while place not in self.drawn and not self.left:
                    self.changed.wait(1)  # a wait without an end cannot be interrupted everywhere
                if place in self.drawn:
                    return self.drawn.pop(place)
            mine = self.take()
            if mine is not None:
                self.bring(mine, _draw(self.drawings[mine]))


class _Helper:
    """A process that draws, and the thread that speaks with it.

    It is a program of its own, since a fork of a process in which JAX runs may hang. It writes no files, so it can be
    ended at any time; it sees no Ctrl-C, and ends when its input does, however this process ended.
    """

    def __init__(self, work: _Work, packed: bytes) -> None:
        pipe, command = subprocess.PIPE, [sys.executable, "-P", "-c", _SERVE]
        self.process: Any = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.work, self.packed = work, packed
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        place = None
        try:
            self.process.stdin.write(self.packed)
            self.process.stdin.flush()
            pickle.load(self.process.stdout)  # it is ready; before that it is given nothing to be late with
            while (place := self.work.take()) is not None:
                pickle.dump(place, self.process.stdin)
                self.process.stdin.flush()
                self.work.bring(place, pickle.load(self.process.stdout))
        except Exception:  # whatever ended it: what it was to draw is drawn by another, who fails for a reason
            if place is not None:
                self.work.return_(place)

    def stop(self) -> None:
        self.process.kill()
        self.thread.join()
        self.process.communicate()


def serve() -> None:
    """Draws what the process that started this one asks for."""
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what anybody prints is no answer
    drawings = pickle.load(given)
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_pdf  # noqa: F401

    answer: Any = None
    with suppress(EOFError):
        while True:
            pickle.dump(answer, answers)
            answers.flush()
            answer = _draw(drawings[pickle.load(given)])


def _draw(drawing: Drawing) -> Picture:
    # A figure's many artists live until it is done, and looking for garbage among them takes a sixth of the time; nor
    # would a KeyboardInterrupt come through what JAX does whenever that begins.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return picture_of(drawing.draw, "pdf", dpi=_DPI)
    finally:
        if collecting:
            gc.enable()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _words(figure: Figure) -> list[str]:
    def listed(texts: Iterable[str]) -> str:
        # Formulas are left out; a dollar that was meant as one stays.
        plain = (re.sub(r"(?<!\\)\$[^$]*\\[^$]*\$", "", str(text or "")) for text in texts)
        cleaned = (" ".join(text.replace("\\$", "\0").replace("$", "").replace("\0", "$").split()) for text in plain)
        return "; ".join(dict.fromkeys(text for text in cleaned if text))

    parts = {
        "panels": listed(axes.get_title() for axes in figure.axes),
        "horizontal": listed(axes.get_xlabel() for axes in figure.axes),
        "vertical": listed(axes.get_ylabel() for axes in figure.axes),
        "curves": listed(text.get_text() for legend in figure.legends for text in legend.get_texts()),
    }
    return [f"{name.capitalize()}: {text}" for name, text in parts.items() if text]
