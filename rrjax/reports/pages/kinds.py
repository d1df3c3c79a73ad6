"""The pages about reports of one column, about columns that were randomized apart, and about rounds of a protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rrjax import inference
from rrjax.data.errors import ArgumentError, DataError, UsageError
from rrjax.figures.html import Markup, details, joined, listing, paragraph, table
from rrjax.reports import form
from rrjax.reports.answer import Caution
from rrjax.reports.association import SIGNIFICANT, Pairs, measured
from rrjax.reports.pages.in_order import in_order
from rrjax.reports.pages.parts import Page, caption_of, explained, how_made, in_words, label, limits_of, quoted, shown
from rrjax.reports.pages.privacy import meaning, meaning_of_columns, spent
from rrjax.reports.parts import PrivacyLoss, Rounds
from rrjax.reports.reports import Reports
from rrjax.reports.separate_columns import SeparateColumns
from rrjax.reports.shares import Shares, side_by_side
from rrjax.reports.testing import USUAL_DRAWS, Test

MOST_FIT_CELLS = 20_000_000
"""Limit of categories × draws of a test of fit in a page: about a second."""
FEWEST_FIT_DRAWS = 199


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

    def table(self, top: int) -> list[Markup]:
        """The largest categories, and how to read their table."""
        answer = self.shares
        blocks = [answer.cells(top), *map(Caution, answer.cautions)]
        if answer.intervals.num_tests > 1:
            beforehand = "For a category that was chosen before looking at the reports"
            blocks.append(f"{beforehand}, `rrjax estimate` gives a shorter interval.")
        limits = limits_of(answer, top, answer.names[0], "lower", "upper")
        caption = caption_of(answer.reports.num_categories, top)
        return [*shown(blocks, caption, limits), explained(answer.words)]

    @property
    def believed(self) -> Markup:
        """The test of fit, and the noise of the reports."""
        reports, chance = self.shares.reports, []
        if reports.design is None:
            kind, number = "named" if reports.tallied is None else "supported", reports.num_reports
            by = f"{number * reports.rates.q:,.1f} of the {number:,} reports"
            chance = [f"Chance: an empty category would be {kind} by about {by}."]
        return listing(
            [
                *self.tested,
                *chance,
                f"Noise: {self.shares.words['noise']}; with four times as many people it would be half of that.",
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
    """The page about reports of one column; `asked` has arguments of `Reports.statements`, or none."""
    most = None if asked.keys() & {"mean", "quantile", "group"} else top
    asked_for = []
    if asked:
        statements = reports.statements(**asked, level=level, top=most)
        drawn = all(each.functional.kind == "share" and each.about != "difference" for each in statements.estimates)
        limits = limits_of(statements, 0, "value", "lower", "upper") if drawn else []
        blocks = shown([*statements.blocks(), *statements.notes], "Groups and means.", limits)
        asked_for = [*blocks, explained(statements.words)]
    found, detectable = side_by_side([partial(answers_of, reports, level, ordered), partial(_detectable, reports)])
    shares, theta, metadata, users_spent = found.shares, found.shares.estimate.theta, reports.counted.metadata, []
    if metadata is not None and metadata.round is not None:
        loss = PrivacyLoss(metadata, np.ones(reports.num_reports, np.int64))
        users_spent = spent(loss, [metadata.round], memo)
    points = [*shares.sentences, detectable, *([f"To publish: {shares.to_publish}"] if shares.to_publish else [])]
    largest = None
    if shares.intervals.discovered.any() and not reports.contradicted:
        points.insert(0, joined("The largest shares: ", in_words(reports.labels, theta, shares.limits), "."))
        largest = reports.labels[np.argmax(theta)], float(theta.max())
    parts = {
        "In short": [listing(points)],
        "The largest shares": found.table(top),
        "Groups and means": asked_for,
        "All categories in order": in_order(shares, ordered),
        "How far to believe it": [found.believed],
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
    return Page(title, lead, [*shares.warnings, *found.misfit], parts, _made(shares))


def _detectable(reports: Reports) -> Markup | str:
    """A sentence about the detectable shares, of the yes, or of a category chosen beforehand and of any."""
    size, number = reports.num_categories, reports.num_reports
    given = {"mechanism": lambda size, epsilon: reports.mechanism, "category": reports.yes}
    # Of two categories at most one is empty, so no test of both is needed.
    levels = (0.05, 0.05 / (size if size > 2 else 1))
    found = [inference.detectable_share(size, number, reports.epsilon, level=each, **given) for each in levels]
    named, picked = map(float, found)
    if named >= 1:
        return "There are too few reports to detect any category, even one that everybody holds."
    words = f"Smallest share that these reports detect (with a probability of {form.in_full(0.8)}): "
    words += f"{form.percent(named)} for "
    if reports.yes is not None:
        return joined(words, label(reports.labels[reports.yes]), ".")
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
    for each in columns.metadata:
        found, name = answers_of(columns.column(each.column), level), form.printable(each.column)
        shares = found.shares
        largest = in_words(shares.reports.labels, shares.estimate.theta, shares.limits, 1)
        points.append(joined("The largest share of ", label(name), ": ", largest, "."))
        believed = details("How far to believe it", found.believed)
        of_columns[f"The column {quoted(name)}"] = [listing(shares.sentences), *found.table(top), believed]
        own[name] = f"{each.mechanism.name}, ε = {each.effective_epsilon:.12g} nats, {each.domain.describe()}"
        warnings += [f"{name}: {warning}" for warning in found.misfit]
    together = [paragraph("Each person answered one question, so how they go together is not in the reports.")]
    said = columns.warnings
    if columns.sampled != 1:
        pairs = columns.pairs(level=level)
        points.append(pairs.conclusion)
        together, said = _together(pairs), pairs.warnings
    parts = {"In short": [listing(points)], "Which columns go together": together, **of_columns}
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
    return [table(["", *map(label, names[:-1])], matrix, caption), *whole, explained(pairs.words)]


def rounds_page(rounds: Rounds, level: float, top: int, memo: Path | None) -> Page:
    """The page about rounds of a longitudinal protocol: the shares, and what users have spent."""
    shares = rounds.shares(level, simultaneous=True)
    size, number, main = len(shares.theta), f"{len(rounds.parts):,}", rounds.main
    of, drawn = f"round {max(rounds.parts)}", []
    if shares.limits is not None:
        of = "all rounds together, if values did not change"
        drawn = limits_of(shares, top, "all_rounds", "lower", "upper")
    short = [
        joined(f"The largest shares, of {of}: ", in_words(rounds.labels, shares.theta, shares.limits), "."),
        "If many values changed between the rounds, use the estimate of each round. A page about the file of one "
        "round, by `rrjax report`, also tests its reports and has exact intervals.",
    ]
    of_rounds = [*shown(shares.blocks(top), caption_of(size, top), drawn), explained(shares.words)]
    parts = {
        "In short": [listing(short)],
        "The shares in each round": of_rounds,
        "What users have spent": spent(shares.loss, list(rounds.parts), memo),
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
