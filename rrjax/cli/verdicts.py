"""How the results of `rrjax test` are printed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from rrjax.cli import show
from rrjax.cli.draws import Draws
from rrjax.cli.reading import Collection


def _repeated(collections: Sequence[Collection]) -> list[str]:
    """Warnings about files that are given more than once."""
    files = [file for collection in collections for file in collection.files.source.files()]
    twice = [file for place, file in enumerate(files) if any(os.path.samefile(file, other) for other in files[:place])]
    return [f"{Path(file).name} is given more than once: its reports are compared with themselves." for file in twice]


def say(
    name: str,
    collections: list[Collection],
    verdicts: list[dict[str, Any]],
    draws: Draws,
    json: bool,
    explain: bool,
    **more: Any,
) -> None:
    """Prints what was tested, and the answers; in JSON also the facts in `more`."""
    if json:
        show.record(
            {
                "command": f"test {name}",
                "significance": draws.significance,
                "num_draws": draws.draws,
                "seed": draws.seed,
                "collections": [collection.facts() for collection in collections],
                **more,
                "tests": verdicts,
            }
        )
        return
    several = len(collections) > 1
    for collection in collections:
        file = show.printable(collection.files.name) if several else ""
        show.say(collection.summary(file))
        show.warn([f"{file}: {warning}" if several else warning for warning in collection.warnings])
    show.warn(_repeated(collections))
    for verdict in verdicts:
        show.out.print()
        show.out.print(Text(show.printable(verdict["question"]), style="bold"))
        show.say(
            f"{verdict['answer']} p = {verdict['p_value']:.2g} (± {verdict['standard_error']:.1g} from {draws.draws:,} "
            f"draws), significance {draws.significance:g}."
        )
    words = {
        "p": "p-value: how often collections that are simulated under the hypothesis are at least as extreme as "
        "this one",
        "significance": "the hypothesis is rejected where p is at most this; the probability of a false alarm "
        "(--significance)",
    }
    words["statistic"] = "; ".join(f"{verdict['statistic']:.4g} ({verdict['method']})" for verdict in verdicts)
    show.explain(words, explain, "inference")
