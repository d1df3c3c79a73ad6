"""The page of `rrjax report` about several rounds of a longitudinal protocol, and what its users have spent."""

from __future__ import annotations

import math
from datetime import datetime

import typer

from rrjax.cli.reading import Files
from rrjax.cli.report_shares import label
from rrjax.cli.report_trust import after_at_most, change_of_odds, provenance
from rrjax.cli.rounds import FoundRounds
from rrjax.cli.spending import Spending
from rrjax.figures.html import Markup, joined, listing, paragraph, strip, table
from rrjax.reports import form
from rrjax.reports.estimates import largest_of

_PRIOR = 0.1


def parts_of(
    found: FoundRounds, files: Files, level: float, top: int, context: typer.Context, made: datetime
) -> dict[str, list[Markup]]:
    """The parts of the page, by their headings."""
    size = found.last.num_categories
    each = level if found.together is None or size == 2 else 1 - (1 - level) / size  # two shares add up to one
    limits = None if found.together is None else found.together.interval(each)
    estimate = "each round by posterior means (empirical Bayes)"
    if limits is not None:
        estimate += (
            ", and all reports of each user together; intervals: normal approximation, simultaneous (Bonferroni), "
            f"{form.in_full(level)}"
        )
    return {
        "In short": _in_short(found, limits, top),
        "The shares in each round": _shares(found, limits, level, top),
        "What users have spent": spent(found.spending, list(found.collections)),
        "How this page was made": [
            provenance(
                found.last,
                files.source,
                context,
                made,
                estimate=estimate,
                reports=f"{found.spending.numbers.sum():,} in {len(found.collections):,} rounds",
            )
        ],
    }


def lead(found: FoundRounds) -> str:
    """A sentence below the title."""
    spending = found.spending
    return (
        f"{len(spending.numbers):,} people gave {spending.numbers.sum():,} reports in {len(found.collections):,} "
        f"rounds, each on one of {found.last.num_categories:,} categories. The value of a person was made partly "
        "random once and kept, and every report was made partly random again; from all reports together the shares "
        "can be estimated."
    )


def _in_short(found, limits, top) -> list[Markup]:
    named: list[object] = []
    for place in largest_of(found.theta, min(top, 3)):
        between = "" if limits is None else f" ({form.between(limits[0][place], limits[1][place])})"
        name = joined(Markup("<strong>"), label(found.last.labels[place]), Markup("</strong>"))
        named += [", ", name, f" with about {form.share(found.theta[place])}{between}"]
    of = "all rounds together, if values did not change" if limits is not None else f"round {max(found.collections)}"
    return [
        listing(
            [
                joined(f"The largest shares, of {of}: ", *named[1:], "."),
                "If many values changed between the rounds, use the estimate of each round. A page about the file of "
                "one round, by `rrjax report`, also tests its reports and has exact intervals.",
            ]
        )
    ]


def _shares(found, limits, level, top) -> list[Markup]:
    places, size = largest_of(found.theta, top), found.last.num_categories
    columns: list[object] = ["Category", *(f"Round {number}" for number in found.shown)]
    end = 1.0
    if limits is not None:
        end = float(limits[1][places].max())
        ends = Markup(f'Drawn<span class="ends"><span>0</span><span>{form.percent(end)}</span></span>')
        columns += ["All rounds", f"{form.in_full(level)} interval, simultaneous", ends]
    rows = []
    for place in places:
        row = [label(found.last.labels[place])]
        row += [form.share(found.estimates[number].theta[place]) for number in found.shown]
        if limits is not None:
            value, lower, upper = (float(each[place]) for each in (found.theta, *limits))
            row += [form.share(value), form.between(lower, upper), strip(value, lower, upper, end)]
        rows.append(row)
    which = f"All {size:,} categories" if len(places) == size else f"The {len(places)} largest of {size:,} categories"
    left = len(found.collections) - len(found.shown)
    points = [
        "Round: estimated from the reports of that round alone. Reports of one user in two rounds depend on each "
        "other.",
        *([f"{form.number(left, 'earlier round is', 'earlier rounds are')} not shown here."] if left else []),
    ]
    if found.together is None:
        points.append("All reports of each user together are not estimated, because there are too many.")
    else:
        points += [
            "All rounds: estimated from all reports of each user together. It holds for users whose value did not "
            "change.",
            f"Interval: of all rounds, by the normal approximation. The intervals are simultaneous, with "
            f"{form.in_full(level)} confidence.",
        ]
    return [table(columns, rows, f"{which}. Estimated shares of all people who hold the category."), listing(points)]


def spent(spending: Spending, rounds: list[int]) -> list[Markup]:
    """What users have spent, as far as the files tell it."""
    median, most = spending.median, spending.most
    numbers = {1: "One report"}
    if most > 1:
        if median > 1:
            numbers[median] = f"{median:,} reports, the median of the users"
        numbers[most] = f"{most:,} reports, the most of any user"
        if median == most:
            numbers[most] = f"{most:,} reports, the median and the most of any user"
    losses = [(name, spending.after(number)) for number, name in numbers.items()]
    losses.append(("Any number of reports", spending.one_value))
    rows = []
    for name, epsilon in losses:
        factor = math.exp(epsilon)
        rows.append([name, f"{epsilon:.4g}", change_of_odds(factor), after_at_most(_PRIOR, factor)])
    before = f"{form.in_full(_PRIOR)} before, at most"
    one = f"{spending.one_value:g}"
    points = [
        f"A user whose value changed spends up to ε∞ = {one} again with every new value. The reports do not tell who "
        "changed; the memo of the collector does.",
        "The times of changes are not protected: many reports show that a value changed, when, and whether it "
        "returned.",
    ]
    named = f"round {rounds[0]}" if len(rounds) == 1 else f"the rounds {', '.join(map(str, rounds))}"
    points.append(f"This page is about {named}: what users spend with reports in other rounds is not counted.")
    if spending.answers is not None and spending.answers_per_user is not None:
        middle, largest = spending.answers_per_user
        points.insert(
            1,
            f"The memo, after {form.number(spending.memo_rounds, 'round', 'rounds')}, holds "
            f"{form.number(int(spending.answers.sum()), 'permanent answer', 'permanent answers')} of "
            f"{form.number(len(spending.answers), 'user', 'users')}, each of which spends up to {one}: a user has "
            f"spent at most {middle * spending.one_value:g} (median), no user more than "
            f"{largest * spending.one_value:g}, the times of changes apart.",
        )
    made = "Each value was randomized once, for all rounds, and this permanent answer again for every report."
    if spending.metadata.simulated:
        made = f"These reports are a simulation and protect nobody; this is what real ones would spend. {made}"
    return [
        paragraph(made),
        table(
            ["Reports of one value", "ε, nats", "Odds change by at most", before],
            rows,
            "What reports of one value disclose about a user, exactly",
        ),
        listing(points),
    ]
