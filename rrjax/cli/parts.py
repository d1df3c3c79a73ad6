"""`rrjax estimate` of several rounds, or of files that were randomized differently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from rrjax import io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output
from rrjax.cli.outlets import deliver
from rrjax.cli.reading import Files
from rrjax.reports.groups import Groups
from rrjax.reports.reading import read_source
from rrjax.reports.rounds import Rounds

KindOfParts = TypeVar("KindOfParts", Rounds, Groups)


def read_parts(kind: type[KindOfParts], sources: Mapping[int, io.Source], files: Files) -> KindOfParts:
    """Counts the reports of each part, whose ε is in its metadata."""
    flags = files.domain, files.reading.counts
    return kind({number: read_source(each, None, *flags) for number, each in sources.items()})


def run(kind: type[KindOfParts], sources: Mapping[int, io.Source], files: Files, level: float, output: Output) -> None:
    """Estimates the shares from every part, and from all of them together."""
    with show.status("Estimating …"), ending_at_once():
        answer = read_parts(kind, sources, files).shares(level)
    deliver(answer, "estimate", output)
