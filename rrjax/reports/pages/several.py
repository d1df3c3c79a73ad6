"""The pages about columns that were randomized apart, and about rounds of a longitudinal protocol."""

from __future__ import annotations

from pathlib import Path

from rrjax.figures.html import Markup, details, joined, listing, paragraph, table
from rrjax.reports import form
from rrjax.reports.association import SIGNIFICANT, Pairs, measured
from rrjax.reports.pages.column import answers_of
from rrjax.reports.pages.parts import Page, caption_of, explained, how_made, in_words, label, limits_of, quoted, shown
from rrjax.reports.pages.privacy import meaning_of_columns, spent
from rrjax.reports.parts import Rounds
from rrjax.reports.separate_columns import SeparateColumns


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
