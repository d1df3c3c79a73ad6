"""`rrjax estimate` of files that were randomized differently: each group of users, and all of them together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from rrjax import io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Output
from rrjax.cli.reading import Files, read_collection
from rrjax.cli.together import Together, estimated_together, show_side_by_side, top_rows
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import CLOSEST
from rrjax.estimators.em import EMResult
from rrjax.estimators.whole_reports import MAX_CATEGORIES
from rrjax.io.numbers import of_numbers
from rrjax.mechanisms.surveys import groups
from rrjax.reports.contradictions import check_contradictions
from rrjax.reports.estimates import estimated
from rrjax.reports.reports import Reports

MOST_GROUPS = 4
"""Groups that a table shows, the first ones."""


def groups_in(files: Files) -> list[Files]:
    """The files of each group, if they hold reports of one column and domain that were randomized differently.

    Empty for files that were randomized alike, and for rounds, numbers and files without metadata.

    Raises:
        DataError: Files that were randomized differently have different columns or domains.
    """
    try:
        files.source.columns()
    except io.DataError:
        pass
    else:
        return []
    found: dict[Any, list[str]] = {}
    meanings = set()
    for file in files.source.files():
        metadata = Files([file], files.reading).source.metadata()
        if metadata is None or metadata.round is not None or of_numbers(metadata):
            return []
        mechanism = metadata.mechanism
        key = (mechanism.name, repr(sorted(mechanism.parameters.items())), metadata.effective_epsilon)
        found.setdefault(key, []).append(file)
        meanings.add((metadata.column, metadata.columns, tuple(map(str, metadata.domain.labels()))))
    if len(found) < 2:
        return []
    if len(meanings) > 1:
        paths = [each[0] for each in found.values()]
        raise io.DataError(
            f"{', '.join(paths[:3])}{' …' * (len(paths) > 3)} were randomized differently, and have different columns "
            "or domains. Files with one column and one domain are estimated together; estimate these apart.",
            file=paths[1],
            argument="domain",
        )
    return [Files(paths, files.reading) for paths in found.values()]


def run(parts: list[Files], level: float, output: Output) -> None:
    """Estimates every group and all of them together, writes and prints the estimates."""
    with show.status("Estimating …"):
        collections = [read_collection(each, None) for each in parts]
        estimates = [estimated(each, CLOSEST) for each in collections]
        for each in collections:
            check_contradictions(each)
        together, likeliest = _together(collections)
    first = next((each for each in collections if each.simulated), collections[0])
    columns = {f"group_{place}": each.theta for place, each in enumerate(estimates, 1)}
    if together is not None and likeliest is not None:
        columns |= {"all_groups": together.theta, "all_groups_standard_error": together.standard_error}
        columns |= {"mle": np.asarray(likeliest.theta)}
    leading = estimates[0].theta if together is None else together.theta
    warnings = list(dict.fromkeys(warning for each in collections for warning in each.warnings))
    if output.out is not None:
        io.write_table(output.out, first.table({"label": first.labels} | columns))
    if output.json:
        show.record(
            {
                "command": "estimate",
                "domain": first.counted.domain.describe(),
                "groups": [_facts(each) for each in collections],
                "gap": None if likeliest is None else float(likeliest.gap),
                "top": top_rows(first.labels, columns, leading, output.top),
                "warnings": warnings,
            }
            | output.files
        )
        return
    for place, each in enumerate(collections, 1):
        show.say(each.summary(f"group {place} ({each.name})"))
    show.warn(warnings)
    show.out.print()
    parts_shown = {f"group {place}": each.theta for place, each in enumerate(estimates[:MOST_GROUPS], 1)}
    of_all = {} if together is None else {"all groups": together}
    beside = {} if together is None else {"likeliest": columns["mle"]}
    show_side_by_side(first.labels, parts_shown, of_all, beside, leading, level, output.top)
    show.out.print()
    if together is None:
        show.say("The likelihood of all groups together is too large to be computed for these reports.")
    else:
        show.say(
            f"All groups: from all {sum(each.num_reports for each in collections):,} reports, by their own "
            "probabilities. It holds if the groups are samples of one population; its interval is that of the normal "
            "approximation."
        )
    show.show_files({"All categories": output.out})


def _facts(collection: Reports) -> dict[str, Any]:
    metadata = collection.counted.metadata
    assert metadata is not None
    return {
        "reports": collection.paths,
        "mechanism": metadata.mechanism.name,
        "parameters": metadata.mechanism.parameters,
        "epsilon": collection.epsilon,
        "num_reports": collection.num_reports,
    }


@ending_at_once()
def _together(collections: list[Reports]) -> tuple[Together, EMResult] | tuple[None, None]:
    """The closest and the likeliest estimate from all groups; None if their likelihood is too large."""
    size = collections[0].num_categories
    mixtures, tallies = [], []
    for each in collections:
        if each.tallied is None:
            mixtures.append(groups.mixture(each.counts[None], np.asarray([each.epsilon])))
            tallies.append(Tally(each.counts, each.num_reports, rates=each.mechanism.rates))
        else:
            mixtures.append(each.tallied.mixture)
            tallies.append(dataclasses.replace(each.tallied.tally, domain=None))
    if size > MAX_CATEGORIES or any(each is None for each in mixtures):
        return None, None
    mixture = groups.mixture(mixtures)
    number = sum(each.num_reports for each in collections)
    # The precisions of the groups add up.
    precision = sum(each.num_reports / float(np.mean(each.rates.variance(1 / size))) for each in collections)
    shares = np.asarray(groups.inv(tallies), float)
    return estimated_together(mixture, shares, number / precision, number), groups.mle(mixtures)
