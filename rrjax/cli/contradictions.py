"""Whether a file's reports contradict what the file says of how they were made: other mechanisms than k-RR."""

from __future__ import annotations

from rrjax import inference
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.reading import Collection

_LEVEL = 0.01
"""The chance of a false alarm, at most."""


@ending_at_once()
def contradictions(collection: Collection) -> list[str]:
    """Sentences of warning, none where nothing speaks against the metadata."""
    tallied, said = collection.tallied, []
    if tallied is None:
        return said
    total = inference.contradiction_test(tallied.tally, collection.mechanism)
    collection.metadata_tests["sum_of_shares"] = _facts(total)
    if float(total.p_value) <= _LEVEL:
        said.append(
            "The reports contradict their metadata: the unbiased shares sum to "
            f"{show.percent(float(total.statistic))}, and should sum to 100\N{NO-BREAK SPACE}% but for chance (p at "
            f"most {show.at_most(max(float(total.p_value), 1e-300))}). Do not use these estimates. {collection.doubt}"
        )
    if tallied.seeds is not None:
        most, number = tallied.seeds
        repeated = inference.repeated_seed_test(most, number)
        collection.metadata_tests["repeated_seed"] = _facts(repeated)
        if float(repeated.p_value) <= _LEVEL:
            said.append(
                f"{most:,} of {number:,} reports have the same hash seed. Each user must draw a seed, or categories "
                "that meet in a bucket are not told apart. Do not use these estimates."
            )
    return said


def _facts(test):
    return {"statistic": float(test.statistic), "p_value": float(test.p_value)}
