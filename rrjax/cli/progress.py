"""How far a study is, on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
from rich.text import Text

from rrjax.cli import show

if TYPE_CHECKING:
    from rich.progress import Task

    from rrjax.study.runner import Progress as Done


def progress_bar() -> Progress:
    """An empty bar, on process 0."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        _Share(),
        TextColumn("{task.fields[rate]}"),
        _Times(),
        console=show.err,
        disable=jax.process_index() > 0,
        transient=True,
    )


class Bar:
    """One study's line.

    Until its first batch is done it compiles, and nothing is known of its speed: there is no time left to tell. What
    an earlier run finished took none of this one's.
    """

    def __init__(self, progress: Progress, name: str, doing: str) -> None:
        """Begins with `name`, compiling; then shows what it is `doing`."""
        self.progress, self.doing = progress, doing
        self.task = progress.add_task(f"{name}: compiling …", total=None, rate="", left=None)
        self.first: tuple[float, int] | None = None

    def __call__(self, done: Done) -> None:
        """Shows how far it is."""
        fresh = done.done - done.resumed
        if not fresh and done.done < done.total:
            # A part that is known shows; without one the bar runs, for nothing has begun.
            if done.resumed:
                self.progress.update(self.task, total=done.total, completed=done.done)
            return
        left = None
        if self.first is None or done.done >= done.total:
            self.first = done.seconds, fresh
        elif done.seconds > self.first[0]:
            # Without the first batch, which waited for its compilation.
            left = (done.total - done.done) * (done.seconds - self.first[0]) / (fresh - self.first[1])
        rate = f"{fresh / max(done.seconds, 1e-9) / 1e6:,.1f} million categories/s" if fresh else ""
        whole, now = done.total, done.done
        self.progress.update(self.task, description=self.doing, total=whole, completed=now, rate=rate, left=left)


class _Share(ProgressColumn):
    """Per cent, where there is a whole."""

    def render(self, task: Task) -> Text:
        return Text("" if task.total is None else f"{task.percentage:>3.0f} %")


class _Times(ProgressColumn):
    """How long it has run, and, once that is known, how long it will."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left")
        passed = _clock(task.finished_time if task.finished_time is not None else task.elapsed or 0)
        return Text(passed if left is None else f"{passed}, {_clock(left)} left")


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
