"""`rrjax test`: fit, equal, trend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import typer

from rrjax import inference
from rrjax.cli import show
from rrjax.cli.design import SurveyDesign
from rrjax.cli.independent import independent
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Command, did_you_mean, flags
from rrjax.cli.paths import READS
from rrjax.cli.reading import PANEL, Epsilon, Files, Format, Reading, ReportFiles, other_files, read_collection
from rrjax.cli.testing import (
    SimulatedTest,
    check_size,
    label_of,
    least_of_any,
    least_of_fit,
    least_of_one,
    least_of_shuffles,
    least_of_tables,
    show_outcomes,
    tally_of,
)
from rrjax.data.errors import UsageError
from rrjax.inference.marginal_tests import alike, num_tests_of
from rrjax.reports import form
from rrjax.reports.reports import Reports
from rrjax.reports.truth import read_truth

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def test() -> None:
    """Ask yes-or-no questions of the true distribution, from files of randomized reports: statistical tests.

    They keep their level at the boundary too: for randomized response they are simulated; for other mechanisms and
    survey designs every category is tested exactly, and the smallest p-value is multiplied by their number.
    """


Epsilons = Annotated[
    list[float] | None,
    typer.Option("--epsilon", help="Privacy parameter ε, in nats: once for all collections, or once for each."),
]
Collections = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORTS",
        help="Files of randomized reports: each argument is a collection (a glob in quotes is one). The flags that say "
        "how to read hold for all.",
    ),
    READS,
]


@app.command(cls=Command)
@flags()
def fit(
    reports: ReportFiles,
    *,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="The distribution to test: a file of true values, or of how many hold each category. Repeatable. "
            "Read with the flags --header, --delimiter, --items and --missing too."
        ),
        READS,
    ] = None,
    epsilon: Epsilon = None,
    design: SurveyDesign,
    reading: Reading,
    options: SimulatedTest,
    against_column: Annotated[
        str | None, typer.Option(help="Column of the file of --against.", rich_help_panel=PANEL)
    ] = None,
    against_format: Annotated[
        Format | None, typer.Option(help="Format of the file of --against.", rich_help_panel=PANEL)
    ] = None,
    against_counts: Annotated[
        str | None,
        typer.Option(
            help="The file of --against holds counts, whole numbers: the column they are in.", rich_help_panel=PANEL
        ),
    ] = None,
) -> None:
    """Do the users come from a given distribution? Without one: can any have made these reports?

    rrjax test fit reports.parquet

    rrjax test fit reports.parquet --against census.csv --against-column city --against-counts people

    rrjax test fit dice.csv --domain yesno.txt --mechanism forced-response --parameter truth=2/3
    --parameter forced=1/2,1/2
    """
    other = other_files(reading, against, against_column, against_format, against_counts, "--against")
    with show.status("Counting …") as status:
        collection = read_collection(Files(reports, reading), epsilon, design)
        check_size(collection.num_reports)
        theta = None if other is None else read_truth(other.source, other.reading.counts, collection, "against")
        if collection.tallied is None:
            options = options.bounded(collection.num_categories, collection.warnings)
        status.update("Testing …")
        outcomes = fits_any(collection, options) if theta is None else _fits(collection, theta, options)
    show_outcomes("fit", [collection], outcomes, options)


@app.command(cls=Command)
@flags()
def equal(
    reports: Collections,
    *,
    epsilon: Epsilons = None,
    design: SurveyDesign,
    reading: Reading,
    options: SimulatedTest,
) -> None:
    """Do two collections, or more, come from the same distribution? Their ε, and their mechanisms, may differ.

    rrjax test equal before.parquet after.parquet
    """
    with show.status("Counting …") as status:
        collections = _read_collections(reports, reading, epsilon or [], design)
        options = _bounded(collections, options)
        status.update("Testing …")
        outcome = _equal(collections, options)
    show_outcomes("equal", collections, [outcome], options)


@app.command(cls=Command)
@flags()
def trend(
    reports: Collections,
    *,
    category: Annotated[str | None, typer.Option(help="The label of one category; all by default.")] = None,
    time: Annotated[
        list[float] | None,
        typer.Option(help="When each was collected, in their order; 0, 1, … by default. Repeatable."),
    ] = None,
    epsilon: Epsilons = None,
    design: SurveyDesign,
    reading: Reading,
    options: SimulatedTest,
) -> None:
    """Do shares rise or fall over collections, given in their order?

    rrjax test trend 2023.parquet 2024.parquet 2025.parquet --category Rome
    """
    with show.status("Counting …") as status:
        collections = _read_collections(reports, reading, epsilon or [], design)
        options = _bounded(collections, options)
        status.update("Testing …")
        outcome = _trend(collections, time or [], category, options)
    show_outcomes("trend", collections, [outcome], options, category=category, times=time)


@ending_at_once()
def fits_any(collection: Reports, options: SimulatedTest) -> list[dict[str, Any]]:
    """Tests whether the mechanism at this ε can have made the reports, from any distribution."""
    if collection.tallied is not None:
        name = collection.mechanism.name
        question = f"Can {name} have made these reports, of any distribution?"
        if_so = f"No: {{}} chance allows. {collection.possible_causes}"
        return [_fit_of_tally(collection, None, options, question, if_so)]
    result = inference.goodness_of_fit_test(options.key, collection.counts, collection.epsilon, **options.arguments)
    outcome = options.outcome(
        "Can randomized response at this ε have made these reports, of any distribution?",
        result,
        "No: some categories are named less often than chance alone would name them. Is ε right, are reports missing, "
        "was another mechanism used?",
        "Nothing speaks against it. (An ε that is too large makes no category too rare, and is not noticed.)",
        least_of_any(collection),
    )
    return [outcome]


@ending_at_once()
def _fits(collection: Reports, theta: np.ndarray, options: SimulatedTest) -> list[dict[str, Any]]:
    """Tests whether the users come from a given distribution."""
    question, if_not = "Do the users come from the given distribution?", "Nothing speaks against it."
    if collection.tallied is not None:
        if_so = "No: the users come from another distribution; most different is {}."
        return [_fit_of_tally(collection, theta, options, question, if_so)]
    counts, epsilon = collection.counts, collection.epsilon
    if_so = "No: the users come from another distribution."
    ratio = inference.likelihood_ratio_test(options.key, counts, epsilon, theta, **options.arguments)
    pearson = inference.goodness_of_fit_test(options.key, counts, epsilon, theta, **options.arguments)
    least = least_of_one(collection, np.asarray(theta, np.float64))
    return [
        options.outcome(question, ratio, if_so, if_not, least),
        options.outcome("Do the reports look like it?", pearson, "No.", if_not, least),
    ]


def _fit_of_tally(
    collection: Reports, theta: np.ndarray | None, options: SimulatedTest, question: str, if_so: str
) -> dict[str, Any]:
    """Tests every support count; `if_so` has a place for the category that differs most."""
    tally, mechanism = tally_of(collection), collection.mechanism
    result = inference.goodness_of_fit_test(options.key, tally, theta=theta, mechanism=mechanism, **options.arguments)
    label = label_of(collection, result)
    if theta is None:
        way = "fewer" if float(result.statistic) < 0 else "more"
        found = (
            "all categories together are farther from any distribution than"
            if label is None
            else f"{label} has {way} supporting reports than"
        )
    else:
        found = str(label)
    least = least_of_fit(collection, theta)
    outcome = options.outcome(question, result, if_so.format(found), "Nothing speaks against it.", least)
    return outcome | {"category": label, "simulated": False}


@ending_at_once()
def _equal(collections: Sequence[Reports], options: SimulatedTest) -> dict[str, Any]:
    """Tests whether collections come from one distribution."""
    question = "Do the collections come from the same distribution?"
    if_not = "Nothing speaks against it (which does not show that they are equal)."
    if _all_counts(collections):
        counts, epsilon = _stacked(collections)
        result = inference.equality_test(options.key, counts, epsilon, **options.arguments)
        return options.outcome(question, result, "No: they differ.", if_not, least_of_shuffles(counts, epsilon))
    tallies = [tally_of(each) for each in collections]
    result = inference.equality_test(options.key, tallies, **options.arguments)
    label = label_of(collections[0], result)
    if_so = f"No: they differ, most in {label}."
    outcome = options.outcome(question, result, if_so, if_not, least_of_tables(tallies))
    return outcome | {"category": label, "simulated": False}


@ending_at_once()
def _trend(
    collections: Sequence[Reports], times: Sequence[float], category: str | None, options: SimulatedTest
) -> dict[str, Any]:
    """Tests whether shares rise or fall over collections."""
    if times and len(times) != len(collections):
        raise UsageError(
            f"--time was given {form.number(len(times), 'time', 'times')} for {len(collections)} collections; give it "
            "once for each",
            flag="--time",
        )
    if not all(math.isfinite(time) for time in times):
        raise UsageError.about("--time", f"must be finite numbers, got {', '.join(f'{time:g}' for time in times)}")
    if times and len(set(times)) == 1:
        raise UsageError("--time: all are the same, so there is nothing to go by", flag="--time")
    number = None
    if category is not None:
        labels = [str(label) for label in collections[0].labels]
        if category not in labels:
            hint = did_you_mean(category, labels)
            raise UsageError.about(
                "--category", f"{category} is none of {collections[0].counted.domain.describe()}{hint}", value=category
            )
        number = labels.index(category)
    when, who = np.array(times) if times else None, "any share" if category is None else f"the share of {category}"
    question, if_not = f"Does {who} move with time?", "The reports do not show it."
    if _all_counts(collections):
        counts, epsilon = _stacked(collections)
        result = inference.trend_test(options.key, counts, epsilon, when, category=number, **options.arguments)
        told = counts if number is None else _apart(counts[:, number], counts.sum(axis=1))
        way = "" if category is None else way_of(result)
        return options.outcome(question, result, f"Yes{way}.", if_not, least_of_shuffles(told, epsilon))
    tallies = [tally_of(each) for each in collections]
    tests = 1 if number is not None else int(num_tests_of(tallies))
    options.check_draws(tests)
    result = inference.trend_test(options.key, tallies, None, when, category=number, **options.arguments)
    label = category if number is not None else label_of(collections[0], result)
    most = "" if number is not None else f", most of all {label}"
    sizes = np.array([int(each.num_users) for each in tallies])
    least = least_of_shuffles(_apart(sizes // 2, sizes)) if alike(tallies) else -math.inf
    outcome = options.outcome(question, result, f"Yes{most}{way_of(result)}.", if_not, math.log(tests) + least)
    return outcome | {"category": label}


def way_of(result: inference.HypothesisTest) -> str:
    """The direction of a trend."""
    return ", upwards" if float(result.statistic) > 0 else ", downwards"


def _apart(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Counts of one category and of all others, `[G, 2]`."""
    return np.stack([counts, totals - counts], axis=1)


def _all_counts(collections: Sequence[Reports]) -> bool:
    """Whether all collections are of randomized response, whose tests are of all categories together."""
    return all(collection.tallied is None for collection in collections)


def _bounded(collections: Sequence[Reports], options: SimulatedTest) -> SimulatedTest:
    """The options with a number of draws that does not take long; of tallies one category is simulated at most."""
    if not _all_counts(collections):
        return options
    return options.bounded(len(collections) * collections[0].num_categories, collections[0].warnings)


def _stacked(collections: Sequence[Reports]) -> tuple[np.ndarray, Any]:
    epsilons = np.array([collection.epsilon for collection in collections])
    # With one ε for all, no further randomization is needed.
    epsilon = float(epsilons[0]) if (epsilons == epsilons[0]).all() else epsilons
    return np.stack([collection.counts for collection in collections]), epsilon


def _read_collections(
    paths: Sequence[str], reading: Reading, epsilons: Sequence[float], design: SurveyDesign
) -> list[Reports]:
    """Counts several collections, which must have the same domain."""
    if len(paths) < 2:
        raise UsageError("give two files of reports or more, one for each collection", flag="REPORTS")
    if len(epsilons) not in (0, 1, len(paths)):
        raise UsageError.about(
            "--epsilon", f"was given {len(epsilons)} times for {len(paths)} collections; give it once, or once for each"
        )
    given = list(epsilons) * (len(paths) if len(epsilons) == 1 else 1) or [None] * len(paths)
    collections = [
        read_collection(Files([path], reading), epsilon, design) for path, epsilon in zip(paths, given, strict=True)
    ]
    first = collections[0]
    for collection in collections:
        check_size(collection.num_reports)
        domain, other = first.counted.domain, collection.counted.domain
        if other != domain:
            difference = domain.difference(other, first.name, collection.name)
            raise UsageError(
                f"collections must be of the same categories: {difference}. Give --domain, which holds for all files; "
                "those of `rrjax randomize` carry their own: randomize all with the same --domain",
                flag="--domain",
            )
    check_size(sum(collection.num_reports for collection in collections))
    of_rounds = [each for each in collections if each.counted.metadata and each.counted.metadata.round]
    if len(of_rounds) > 1:
        of_rounds[-1].warnings.append(
            "Reports of the same users in several rounds depend on each other, and this test assumes that they do not: "
            "it finds a difference less often than it could."
        )
    return collections


app.command(cls=Command)(independent)
