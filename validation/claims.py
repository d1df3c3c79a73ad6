"""What is said of MLE*, tested on the paper's whole grid: 750 configurations with 100 collections each.

Every claim is about two means over the same collections; it counts as violated where their difference is beyond three
of its standard errors.
"""

from __future__ import annotations

from benchmarks import report
from benchmarks.report import Table
from rrjax.study import check_claims, paper


def main() -> None:
    options = report.parser(__doc__).parse_args()
    study = paper.study(num_seeds=4, figures=[1]) if options.quick else paper.study()
    assert study is not None
    claims = check_claims(study.run(seed=0))
    table = Table(
        f"{len(study.configurations()):,} configurations × {study.num_seeds} collections",
        ["claim", "whose", "configurations", "violated", "the most blatant violation"],
        [[each.claim, each.source, f"{each.configurations:,}", f"{each.violated:,}", each.worst] for each in claims],
        "Violated: beyond three standard errors of the paired difference, and beyond what float32 rounds.",
    )
    record = {"seeds": study.num_seeds, "claims": [each._asdict() for each in claims]}
    report.publish(options, "claims", "What is said of the estimators", [table], record)


if __name__ == "__main__":
    main()
