"""What is said of MLE*, tested on the paper's whole grid: 750 configurations with 100 collections each.

Every claim is about two means over the same collections; it counts as violated where their difference is beyond three
of its standard errors.
"""

from __future__ import annotations

from typing import Any

import runner

from rrjax.study import check_claims, paper


def study(options: Any) -> tuple[list[runner.Table], dict[str, Any]]:
    made = paper.study(num_seeds=4, figures=[1]) if options.quick else paper.study()
    assert made is not None
    claims = check_claims(made.run(seed=0))
    table = runner.Table(
        f"{len(made.configurations()):,} configurations × {made.num_seeds} collections",
        ["claim", "whose", "configurations", "violated", "the most blatant violation"],
        [[each.claim, each.source, f"{each.configurations:,}", f"{each.violated:,}", each.worst] for each in claims],
        "Violated: beyond three standard errors of the paired difference, and beyond what float32 rounds.",
    )
    return [table], {"seeds": made.num_seeds, "claims": [each._asdict() for each in claims]}


if __name__ == "__main__":
    runner.run(study, "What is said of the estimators")
