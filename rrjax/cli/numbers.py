"""`rrjax estimate` and `rrjax compare` of files of reports of numbers."""

from __future__ import annotations

from collections.abc import Mapping

from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Asked, Output, refuse_flags
from rrjax.cli.outlets import deliver
from rrjax.cli.reading import Files
from rrjax.reports import numbers
from rrjax.reports.numbers import Numbers


def refuse_others(files: Files, given: Mapping[str, object]) -> None:
    """Refuses flags that do not apply to reports of numbers; `given` has their values."""
    refuse_flags(given, f"{files.name}, which holds reports of numbers")


def read_numbers(files: Files, epsilon: float | None) -> Numbers:
    """Counts the reports of a file of numbers; flags that contradict it are refused."""
    return numbers.read_numbers(files.source, epsilon, files.domain, {"counts": files.reading.counts})


def run(reports: Numbers, asked: Asked, level: float, output: Output) -> None:
    """Estimates the distribution, its quantiles and its mean, writes and prints them."""
    with show.status("Estimating …"), ending_at_once():
        answer = reports.statements(mean=asked.mean, quantile=asked.quantile or (), level=level)
    deliver(answer, "estimate", output)


def compare(reports: Numbers, true: Files | None, output: Output) -> None:
    """Runs all estimators of numbers, measures them against the truth, writes and prints the results."""
    with show.status("Estimating …"):
        shares = None if true is None else reports.shares_in(true.source)
        with ending_at_once():
            answer = reports.compare(shares)
    deliver(answer, "compare", output)
