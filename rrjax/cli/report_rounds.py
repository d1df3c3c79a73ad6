"""The page of `rrjax report` about several rounds of a longitudinal protocol, and what its users have spent."""

from __future__ import annotations

import math
from datetime import datetime

import typer

from rrjax.cli.reading import Files
from rrjax.cli.report_shares import label
from rrjax.cli.report_trust import after_at_most, change_of_odds, provenance
from rrjax.figures.html import Markup, joined, listing, paragraph, strip, table
from rrjax.reports import form
from rrjax.reports.estimates import largest_of
from rrjax.reports.privacy_loss import PrivacyLoss
from rrjax.reports.rounds import RoundShares

_PRIOR = 0.1


def parts_of(
    found: RoundShares, files: Files, top: int, context: typer.Context, made: datetime
) -> dict[str, list[Markup]]:
    """The parts of the page, by their headings."""
    rounds = found.reports
    estimate = "each round by posterior means (empirical Bayes)"
    if found.pooled is not None:
        estimate += (
            ", and all reports of each user together; intervals: normal approximation, simultaneous (Bonferroni), "
            f"{form.in_full(found.level)}"
        )
    return {
        "In short": _in_short(found, top),
        "The shares in each round": _shares(found, top),
        "What users have spent": spent(found.loss, list(rounds.parts)),
        "How this page was made": [
            provenance(
                rounds.main,
                files.source,
                context,
                made,
                estimate=estimate,
                reports=f"{rounds.num_reports:,} in {len(rounds.parts):,} rounds",
            )
        ],
    }


def lead(found: RoundShares) -> str:
    """A sentence below the title."""
    rounds = found.reports
    return (
        f"{len(found.loss.numbers):,} people gave {rounds.num_reports:,} reports in {len(rounds.parts):,} rounds, each "
        f"on one of {len(rounds.labels):,} categories. The value of a person was made partly random once and kept, and "
        "every report was made partly random again; from all reports together the shares can be estimated."
    )


def _in_short(found: RoundShares, top: int) -> list[Markup]:
    named: list[object] = []
    for place in largest_of(found.theta, min(top, 3)):
        between = "" if found.limits is None else f" ({form.between(*(each[place] for each in found.limits))})"
        name = joined(Markup("<strong>"), label(found.reports.labels[place]), Markup("</strong>"))
        named += [", ", name, f" with about {form.share(found.theta[place])}{between}"]
    of = "all rounds together, if values did not change"
    if found.pooled is None:
        of = f"round {max(found.estimates)}"
    return [
        listing(
            [
                joined(f"The largest shares, of {of}: ", *named[1:], "."),
                "If many values changed between the rounds, use the estimate of each round. A page about the file of "
                "one round, by `rrjax report`, also tests its reports and has exact intervals.",
            ]
        )
    ]


def _shares(found: RoundShares, top: int) -> list[Markup]:
    cells, places, size = found.cells(top), largest_of(found.theta, top), len(found.theta)
    headings: list[object] = [heading.capitalize() for heading in cells.headings]
    rows = [[label(found.reports.labels[place]), *row[1:]] for place, row in zip(places, cells.rows, strict=True)]
    if found.limits is not None:
        lower, upper = (each[places] for each in found.limits)
        end = float(upper.max())
        headings.append(Markup(f'Drawn<span class="ends"><span>0</span><span>{form.percent(end)}</span></span>'))
        for row, share, low, high in zip(rows, found.theta[places], lower, upper, strict=True):
            row.append(strip(float(share), float(low), float(high), end))
    which = f"All {size:,} categories" if len(places) == size else f"The {len(places)} largest of {size:,} categories"
    return [
        table(headings, rows, f"{which}. Estimated shares of all people who hold the category."),
        listing(found.about_shares),
    ]


def spent(loss: PrivacyLoss, rounds: list[int]) -> list[Markup]:
    """What users have spent, as far as the files tell it."""
    median, most = loss.median, loss.most
    numbers = {1: "One report"}
    if most > 1:
        if median > 1:
            numbers[median] = f"{median:,} reports, the median of the users"
        numbers[most] = f"{most:,} reports, the most of any user"
        if median == most:
            numbers[most] = f"{most:,} reports, the median and the most of any user"
    losses = [(name, loss.after(number)) for number, name in numbers.items()]
    losses.append(("Any number of reports", loss.one_value))
    rows = []
    for name, epsilon in losses:
        factor = math.exp(epsilon)
        rows.append([name, f"{epsilon:.4g}", change_of_odds(factor), after_at_most(_PRIOR, factor)])
    before = f"{form.in_full(_PRIOR)} before, at most"
    one = f"{loss.one_value:g}"
    points = [
        f"A user whose value changed spends up to ε∞ = {one} again with every new value. The reports do not tell who "
        "changed; the memo of the collector does.",
        "The times of changes are not protected: many reports show that a value changed, when, and whether it "
        "returned.",
    ]
    named = f"round {rounds[0]}" if len(rounds) == 1 else f"the rounds {', '.join(map(str, rounds))}"
    points.append(f"This page is about {named}: what users spend with reports in other rounds is not counted.")
    if loss.answers is not None and loss.answers_per_user is not None:
        middle, largest = loss.answers_per_user
        points.insert(
            1,
            f"The memo, after {form.number(loss.memo_rounds, 'round', 'rounds')}, holds "
            f"{form.number(int(loss.answers.sum()), 'permanent answer', 'permanent answers')} of "
            f"{form.number(len(loss.answers), 'user', 'users')}, each of which spends up to {one}: a user has "
            f"spent at most {middle * loss.one_value:g} (median), no user more than "
            f"{largest * loss.one_value:g}, the times of changes apart.",
        )
    made = "Each value was randomized once, for all rounds, and this permanent answer again for every report."
    if loss.metadata.simulated:
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
