"""What pages say about privacy: the meaning of ε, and what users of several rounds have spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rrjax.data.errors import DataError, option
from rrjax.figures import html
from rrjax.figures.html import Markup
from rrjax.io.memos import MemoFile, head_of
from rrjax.reports import form
from rrjax.reports.pages.parts import label, quoted
from rrjax.reports.parts import PrivacyLoss, median
from rrjax.reports.reports import Reports
from rrjax.reports.separate_columns import SeparateColumns

PRIORS = (0.01, 0.1, 0.5)
"""Probabilities before a report, for examples."""


def meaning(reports: Reports, largest: tuple[object, float] | None) -> list[Markup]:
    """What one report discloses about one person; the largest category and its share are an example, if known."""
    size, epsilon, metadata = reports.num_categories, reports.epsilon, reports.counted.metadata
    first = f"Every report was randomized by {reports.mechanism.name}."
    if reports.tallied is None:
        p, q = reports.rates.p, reports.rates.q
        others = f"each of the {size - 1:,} other categories" if size > 2 else "the other category"
        first = (
            f"Every report was randomized: it is the truth with probability {form.percent(p)}, and {others} with "
            f"probability {form.percent(q)}. About {reports.num_reports * p:,.1f} of the {reports.num_reports:,} "
            "reports are true; nobody can tell which."
        )
    if metadata is None:
        first = f"If the reports were made as stated: {first[0].lower()}{first[1:]}"
    elif metadata.simulated:
        first = f"These reports are a simulation and protect nobody; this is what ε would mean for real ones. {first}"
    if not math.isfinite(epsilon):
        words = (
            "ε is infinite: some answer is impossible for some people, so it proves something about who gives it. The "
            "design protects only those who give other answers."
        )
        return [html.paragraph(first, words)]
    priors: list[tuple[object, float]] = [(f"1 in {size:,} (nothing is known)", 1 / size)]
    priors += [(form.in_full(prior), prior) for prior in PRIORS if prior * size != 1]
    if largest is not None and 0 < largest[1] < 1:
        name, share = largest
        priors.append((html.joined(form.percent(share), ", the estimated share of ", label(name)), share))
    rows = [[name, after(prior, epsilon), after(prior, -epsilon)] for name, prior in priors]
    several = f"For a person who gave two reports the factor is {odds(2 * epsilon)}."
    if metadata is not None and metadata.round is not None:
        several = f"Several reports: see {quoted('What users have spent')}."
    caption = "The probability that a person holds a category, before and after seeing the report of that person"
    return [
        html.paragraph(first),
        html.paragraph(_bound(epsilon, "a report")),
        html.table(["Before", "After, at most", "After, at least"], rows, caption),
        html.paragraph(
            f"This holds for one report from each person. {several} The shares on this page are about the whole group; "
            "computing them from the reports does not weaken the protection."
        ),
    ]


def meaning_of_columns(columns: SeparateColumns) -> list[Markup]:
    """What the reports of one person in several columns disclose."""
    epsilons = [(label(each.column), each.effective_epsilon) for each in columns.metadata]
    several = "all reports" if columns.sampled is None else form.number(columns.sampled, "report", "reports")
    rows = [[name, f"{epsilon:.4g}", odds(epsilon)] for name, epsilon in epsilons]
    return [
        html.paragraph(_bound(columns.epsilon, several), "Who gave no answer to a question is not protected."),
        html.table(["Column", "ε of its report", "Largest factor"], rows, "What one report discloses at most"),
    ]


def _bound(epsilon: float, given: str) -> str:
    return (
        f"The protection of a person who gave {given} is bounded by ε = {epsilon:.4g}: whatever somebody believed "
        "about that person before, seeing what the person gave changes the odds by a factor of at most e^ε = "
        f"{odds(epsilon)}. ε = 0 would disclose nothing."
    )


def spent(loss: PrivacyLoss, rounds: Sequence[int], memo: Path | None) -> list[Markup]:
    """What users have spent, as far as the files of rounds and a memo tell it."""
    losses = [
        (form.number(each, "report", "reports"), loss.after(each)) for each in sorted({1, loss.median, loss.most})
    ]
    losses.append(("any number of reports", loss.one_value))
    rows = [[name, f"{each:.4g}", odds(each), after(PRIORS[1], each)] for name, each in losses]
    one, about = f"{loss.one_value:g}", f"round{'s' * (len(rounds) > 1)} {', '.join(map(str, rounds))}"
    points = [
        f"A user whose value changed spends up to {one} again with every new value. The reports do not tell who "
        "changed; the memo of the collector does.",
        "The times of changes are not protected: many reports show that a value changed, when, and whether it "
        "returned.",
        f"This page is about {about}: what users spend with reports in other rounds is not counted.",
    ]
    if memo is not None:
        of = loss.metadata
        memos = MemoFile(memo, head_of(of.mechanism, of.column, of.domain, of.simulated, of.user)).read()
        lacking = [number for number in rounds if number not in memos.rounds]
        if lacking:
            raise DataError(
                f"{option('memo')} {memo}: it has the rounds {', '.join(map(str, memos.rounds))}, and the reports are "
                f"of round {lacking[0]}, too: it is an old copy. Give the memo that was written last.",
                file=str(memo),
                argument="memo",
            )
        answers = memos.numbers  # nothing else is taken from a memo
        middle, largest = (number * loss.one_value for number in (median(answers), int(answers.max())))
        points.append(
            f"The memo, after {form.number(len(memos.rounds), 'round', 'rounds')}, holds "
            f"{form.number(int(answers.sum()), 'permanent answer', 'permanent answers')} of "
            f"{form.number(len(answers), 'user', 'users')}, each of which spends up to {one}: a user has spent at "
            f"most {middle:g} (median), no user more than {largest:g}, the times of changes apart."
        )
    made = "Each value was randomized once, for all rounds, and this permanent answer again for every report."
    columns = [
        "Reports of one value",
        "ε, nats",
        "Odds change by at most",
        f"{form.in_full(PRIORS[1])} before, at most",
    ]
    whole = html.table(columns, rows, "What reports of one value disclose about a user, exactly")
    return [html.paragraph(made), whole, html.listing(points)]


def after(prior: float, epsilon: float) -> str:
    """A probability whose odds changed by e^ε, in words."""
    return form.percent(1 / (1 + (1 - prior) / prior * math.exp(-epsilon)))


def odds(epsilon: float) -> str:
    """e^ε, a factor of odds, in words."""
    factor = math.exp(epsilon)
    return f"{factor:,.0f}" if 100 <= factor < 1e9 else f"{factor:.3g}"
