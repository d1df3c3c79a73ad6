"""The pages about reports: of one column, of separate columns, of rounds; what ε means, and what users have spent."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rrjax import inference
from rrjax.data.errors import ArgumentError, DataError, UsageError, option
from rrjax.figures import html
from rrjax.figures.html import Markup
from rrjax.io.rounds import MemoFile, head_of, memos_of, read_users
from rrjax.io.source import Source
from rrjax.reports import form
from rrjax.reports.answer import Caution
from rrjax.reports.association import SIGNIFICANT, Pairs, measured
from rrjax.reports.pages.in_order import in_order
from rrjax.reports.pages.parts import Page, caption_of, explained, how_made, in_words, label, limits_of, quoted, shown
from rrjax.reports.reports import Reports
from rrjax.reports.rounds import PrivacyLoss, Rounds, median
from rrjax.reports.separate_columns import SeparateColumns
from rrjax.reports.shares import Shares, side_by_side
from rrjax.reports.testing import USUAL_DRAWS, Test

MOST_FIT_CELLS = 20_000_000
"""Limit of categories × draws of a test of fit in a page: about a second."""
FEWEST_FIT_DRAWS = 199
PRIORS = (0.01, 0.1, 0.5)
"""Probabilities before a report, for examples."""


@dataclasses.dataclass(frozen=True)
class ColumnAnswers:
    """What a page says about one column."""

    shares: Shares
    """With simultaneous intervals, because the page lists the largest categories."""
    fit: Test | str
    """A test of fit, or the reason why there is none."""

    @property
    def tested(self) -> list[str]:
        """The question of the test of fit with its answer, or why there is no test."""
        if isinstance(self.fit, str):
            return [self.fit]
        return [f"{each.question} {said}" for each, said in zip(self.fit.outcomes, self.fit.sentences, strict=True)]

    @property
    def misfit(self) -> list[str]:
        """A warning where the reports hardly pass the test of fit, and do not contradict their mechanism already."""
        doubtful = isinstance(self.fit, Test) and self.fit.outcomes[0].p_value <= 0.01
        return self.tested if doubtful and not self.shares.reports.contradicted else []

    def limits(self, top: int) -> list[list[float]]:
        """The estimates of the largest categories, and their limits."""
        return limits_of(self.shares, top, self.shares.names[0], "lower", "upper")

    def table(self, top: int, end: float = 0.0) -> list[Markup]:
        """The largest categories, drawn up to `end` at least, and how to read their table."""
        answer = self.shares
        blocks = [answer.cells(top), *map(Caution, answer.cautions)]
        if answer.intervals.num_tests > 1:
            beforehand = "For a category that was chosen before looking at the reports"
            blocks.append(f"{beforehand}, `rrjax estimate` gives a shorter interval.")
        caption = caption_of(answer.reports.num_categories, top)
        return [*shown(blocks, caption, self.limits(top), end=end), explained(answer.words)]

    @property
    def believed(self) -> Markup:
        """The test of fit, and the noise of the reports."""
        reports, words, chance = self.shares.reports, self.shares.words, []
        if reports.design is None:
            kind, number = "named" if reports.tallied is None else "supported", reports.num_reports
            by = f"{number * reports.rates.q:,.1f} of the {number:,} reports"
            chance = [f"Chance: an empty category would be {kind} by about {by}."]
        return html.listing(
            [
                *self.tested,
                *chance,
                f"Noise: {words['noise']}; with four times as many people it would be half of that.",
                *([form.sentence(f"Fakes: {words['fakes']}")] if words["fakes"] else []),
                "Where the intervals of two categories do not overlap, the one with the higher interval has the larger "
                f"share, with {form.in_full(self.shares.intervals.level)} confidence for all such pairs at once.",
            ]
        )


def answers_of(reports: Reports, level: float, ordered: bool = False) -> ColumnAnswers:
    """Asks reports of one column what a page says about them."""
    shares = partial(reports.shares, level, simultaneous=True, ordered=ordered)
    return ColumnAnswers(*side_by_side([shares, partial(fit_of, reports)]))


def fit_of(reports: Reports) -> Test | str:
    """Tests whether the mechanism at this ε can have made the reports; a text says why there is no test."""
    draws, size = USUAL_DRAWS, reports.num_categories
    if reports.tallied is None:
        draws = min(draws, MOST_FIT_CELLS // size)
    if draws < FEWEST_FIT_DRAWS:
        long = f"its simulation takes long for {size:,} categories; `rrjax test fit` makes it."
        return f"There is no test of fit here, because {long}"
    try:
        return reports.test_fit(draws=draws)
    except (ArgumentError, UsageError, DataError) as error:
        return form.sentence(f"There is no test of fit of these reports: {error}")


def column_page(
    reports: Reports, level: float, top: int, ordered: bool, asked: Mapping[str, Any], memo: Path | None
) -> Page:
    """The page about reports of one column; `asked` has arguments of `statements` or `within`, or none."""
    most = None if asked.keys() & {"mean", "quantile", "group"} else top
    asked_for = []
    if "within" in asked:
        numbers = reports.within(**asked, level=level)
        caption = f"{quoted(numbers.within)} within each class of {quoted(reports.counted.column)}."
        asked_for = [*shown([*numbers.blocks(), *numbers.notes], caption), explained(numbers.words)]
    elif asked:
        statements = reports.statements(**asked, level=level, top=most)
        drawn = all(each.functional.kind == "share" and each.about != "difference" for each in statements.estimates)
        limits = limits_of(statements, 0, "value", "lower", "upper") if drawn else []
        caption = f"Groups and means of {quoted(reports.counted.column)}."
        blocks = shown([*statements.blocks(), *statements.notes], caption, limits)
        asked_for = [*blocks, explained(statements.words)]
    answers, detectable = side_by_side([partial(answers_of, reports, level, ordered), partial(_detectable, reports)])
    shares, theta, metadata, users_spent = answers.shares, answers.shares.estimate.theta, reports.counted.metadata, []
    if metadata is not None and metadata.round is not None:
        loss = PrivacyLoss(metadata, np.ones(reports.num_reports, np.int64))
        users_spent = spent(loss, {metadata.round: reports.files}, memo)
    points = [*shares.sentences, detectable, *([f"To publish: {shares.to_publish}"] if shares.to_publish else [])]
    largest = None
    if shares.intervals.discovered.any() and not reports.contradicted:
        points.insert(0, html.joined("The largest shares: ", in_words(reports.labels, theta, shares.limits), "."))
        largest = reports.labels[np.argmax(theta)], float(theta.max())
    parts = {
        "In short": [html.listing(points)],
        "The largest shares": answers.table(top),
        "Groups and means": asked_for,
        "All categories in order": in_order(shares, ordered),
        "How far to believe it": [answers.believed],
        f"What ε = {reports.epsilon:.4g} means": meaning(reports, largest),
        "What users have spent": users_spent,
    }
    about, number = quoted(reports.counted.column), f"{reports.num_reports:,}"
    lead = (
        f"{number} people gave one report each on {about}, one of {reports.num_categories:,} categories. Each report "
        "was made partly at random, which protects who gave it (how far, is said below); from all of them together the "
        "shares can be estimated."
    )
    title = f"What {number} randomized reports say about {about}"
    return Page(title, lead, [*shares.warnings, *answers.misfit], parts, _made(shares))


def _detectable(reports: Reports) -> Markup | str:
    """A sentence about the detectable shares, of the yes, or of a category chosen beforehand and of any."""
    size, number = reports.num_categories, reports.num_reports
    given = {"mechanism": lambda size, epsilon: reports.mechanism, "category": reports.yes}
    # Of two categories at most one is empty, so no test of both is needed.
    levels = (0.05, 0.05 / (size if size > 2 else 1))
    shares = [inference.detectable_share(size, number, reports.epsilon, level=each, **given) for each in levels]
    named, picked = map(float, shares)
    if named >= 1:
        return "There are too few reports to detect any category, even one that everybody holds."
    words = f"Smallest share that these reports detect (with a probability of {form.in_full(0.8)}): "
    words += f"{form.percent(named)} for "
    if reports.yes is not None:
        return html.joined(words, label(reports.labels[reports.yes]), ".")
    any_of_them = "none" if picked >= 1 else form.percent(picked)
    return f"{words}a category chosen beforehand, {any_of_them} for one picked out of all."


def _made(shares: Shares) -> dict[str, object]:
    reports, intervals, counted = shares.reports, shares.intervals, shares.reports.counted
    mechanism, metadata = reports.mechanism, counted.metadata
    made_by, epsilon = mechanism.name + f" ({mechanism.note})" * bool(mechanism.note), f"{reports.epsilon:.12g} nats"
    if metadata is not None and metadata.round is not None:
        made_by = f"{metadata.mechanism.name}, one round of which is {made_by}"
    elif metadata is not None:
        epsilon += f" delivered, {metadata.epsilon:g} asked for"
    missing = f"; {counted.num_missing:,} of {counted.num_rows:,} rows hold none" * bool(counted.num_missing)
    estimate = (
        f"{shares.estimate.estimator.name}; intervals: Clopper–Pearson, simultaneous (Bonferroni), "
        f"{form.in_full(intervals.level)}; false discovery rate {form.in_full(intervals.fdr)}"
    )
    own = {"Mechanism": made_by, "ε": epsilon, "Estimate": estimate}
    return how_made(reports.files.files(), reports.summary() + missing, metadata, own)


def columns_page(columns: SeparateColumns, level: float, top: int) -> Page:
    """The page about columns that were randomized apart: their shares, and how they go together."""
    points, of_columns, own, warnings = [], {}, {}, []
    answers = [answers_of(columns.column(each.column), level) for each in columns.metadata]
    end = max(number for answer in answers for row in answer.limits(top) for number in row if number == number)
    for each, answer in zip(columns.metadata, answers, strict=True):
        name = form.printable(each.column)
        shares = answer.shares
        largest = in_words(shares.reports.labels, shares.estimate.theta, shares.limits, 1)
        points.append(html.joined("The largest share of ", label(name), ": ", largest, "."))
        believed = html.details("How far to believe it", answer.believed)
        of_columns[f"The column {quoted(name)}"] = [html.listing(shares.sentences), *answer.table(top, end), believed]
        own[name] = f"{each.mechanism.name}, ε = {each.effective_epsilon:.12g} nats, {each.domain.describe()}"
        warnings += [f"{name}: {warning}" for warning in answer.misfit]
    together = [html.paragraph("Each person answered one question, so how they go together is not in the reports.")]
    said = columns.warnings
    if columns.sampled != 1:
        pairs = columns.pairs(level=level)
        points.append(pairs.conclusion)
        together, said = _together(pairs), pairs.warnings
    parts = {"In short": [html.listing(points)], "Which columns go together": together, **of_columns}
    parts[f"What ε = {columns.epsilon:.4g} means"] = meaning_of_columns(columns)
    number, names = f"{columns.num_users:,}", [quoted(name) for name in columns.names[:3]]
    listed = f"{', '.join(names)} …" if len(columns.names) > 3 else f"{', '.join(names[:-1])} and {names[-1]}"
    lead = (
        f"{number} people gave reports on {len(columns.names):,} columns. Each report was made partly at random, apart "
        "from the others, which protects who gave it (how far, is said below); from all of them together the shares "
        f"can be estimated{', and which columns go together' * (columns.sampled != 1)}."
    )
    summary = f"{columns.summary()}; {columns.num_complete:,} users have a report in every column"
    made = how_made(columns.source.files(), summary, columns.metadata[0], own)
    return Page(f"What {number} people say about {listed}", lead, [*said, *warnings], parts, made)


def _together(pairs: Pairs) -> list[Markup]:
    """The matrix of associations, and a table of all pairs."""
    names, number = pairs.reports.names, len(pairs.pairs)
    by_names = {frozenset(pair["columns"]): pair for pair in pairs.pairs}

    def cell(one: str, other: str) -> Markup | str:
        pair = by_names.get(frozenset((one, other)))
        if pair is None:  # its table is too large
            return ""
        # Markup is aligned to the left, as the empty cells above it are.
        mark = " ●" * (pair["adjusted_p_value"] <= SIGNIFICANT)
        return Markup(f"<span>{measured(pair, 'cramers_v', 2)[0]}{mark}</span>")

    matrix = [
        [label(row), *(cell(row, column) if place > before else "" for before, column in enumerate(names[:-1]))]
        for place, row in enumerate(names)
        if place
    ]
    caption = f"Cramér's V of all pairs; ● marks those with p of all of at most {SIGNIFICANT:g}."
    limits = [[pair[f"cramers_v{end}"] for end in ("", "_lower", "_upper")] for pair in pairs.pairs]
    whole = shown(pairs.blocks(number), "All pairs, the strongest first.", limits, "{:.2f}".format)
    return [html.table(["", *map(label, names[:-1])], matrix, caption), *whole, explained(pairs.words)]


def rounds_page(rounds: Rounds, level: float, top: int, memo: Path | None) -> Page:
    """The page about rounds of a longitudinal protocol: the shares, and what users have spent."""
    shares = rounds.shares(level, simultaneous=True)
    size, number, main = len(shares.theta), f"{len(rounds.parts):,}", rounds.main
    of, drawn = f"round {max(rounds.parts)}", []
    if shares.limits is not None:
        of = "all rounds together, if values did not change"
        drawn = limits_of(shares, top, "all_rounds", "lower", "upper")
    short = [
        html.joined(f"The largest shares, of {of}: ", in_words(rounds.labels, shares.theta, shares.limits), "."),
        "If many values changed between the rounds, use the estimate of each round. A page about the file of one "
        "round, by `rrjax report`, also tests its reports and has exact intervals.",
    ]
    of_rounds = [*shown(shares.blocks(top), caption_of(size, top), drawn), explained(shares.words)]
    parts = {
        "In short": [html.listing(short)],
        "The shares in each round": of_rounds,
        "What users have spent": spent(
            shares.loss, {number: each.files for number, each in rounds.parts.items()}, memo
        ),
    }
    title = f"What {number} rounds of randomized reports say about {quoted(main.counted.column)}"
    lead = (
        f"{len(shares.loss.numbers):,} people gave {rounds.num_reports:,} reports in {number} rounds, each on one of "
        f"{size:,} categories. The value of a person was made partly random once and kept, and every report was made "
        "partly random again; from all reports together the shares can be estimated."
    )
    files = [file for each in rounds.parts.values() for file in each.files.files()]
    own = {"Mechanism": f"{rounds.metadata.mechanism.name}, one round of which is {main.mechanism.name}"}
    return Page(title, lead, shares.warnings, parts, how_made(files, shares.title, rounds.metadata, own))


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


def spent(loss: PrivacyLoss, rounds: Mapping[int, Source], memo: Path | None) -> list[Markup]:
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
        if memos.collection is not None and {*memos_of(rounds.values()).values()} - {memos.collection}:
            raise DataError(
                f"{option('memo')} {memo}: it is the memo of another collection. Give that of these rounds.",
                file=str(memo),
                argument="memo",
            )
        lacking = [number for number in rounds if number not in memos.rounds]
        if lacking:
            raise DataError(
                f"{option('memo')} {memo}: it has the rounds {', '.join(map(str, memos.rounds))}, and the reports are "
                f"of round {lacking[0]}, too: it is an old copy. Give the memo that was written last.",
                file=str(memo),
                argument="memo",
            )
        known = set(memos.users.tolist())
        for source in rounds.values() if of.user else ():
            users = read_users(dataclasses.replace(source, missing=()), str(of.user))
            if strangers := sum(user not in known for user in users.tolist()):
                raise DataError(
                    f"{option('memo')} {memo}: {strangers:,} of {form.number(len(users), 'user', 'users')} of "
                    f"{source.files()[0]} are not in it: it is the memo of other users. Give that of these rounds.",
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
