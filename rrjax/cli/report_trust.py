"""The rest of the page of `rrjax report`: whether to believe the shares, what ε means, how the page was made."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import typer

from rrjax.cli.findings import Findings
from rrjax.cli.report_shares import label
from rrjax.figures.html import Markup, details, joined, listing, pairs, paragraph, table, versions
from rrjax.io.source import Source
from rrjax.reports import form
from rrjax.reports.estimates import too_large
from rrjax.reports.reports import Reports
from rrjax.reports.yes_or_no import said

_PACKAGES = ("rrjax", "jax", "numpy", "duckdb")
_PRIORS = (0.01, 0.1, 0.5)


def believed(findings: Findings) -> list[Markup]:
    """The test of fit, contradictions, and the noise of the reports."""
    collection, intervals, fit = findings.collection, findings.intervals, findings.fit
    points: list[object] = [fit]
    if not isinstance(fit, str):
        points = [f"{each.question} {said}" for each, said in zip(fit.outcomes, fit.sentences, strict=True)]
    contradicted = int(intervals.contradicted.sum())
    if contradicted:
        words = collection.without_interval(
            contradicted, "category", "categories", 1 - intervals.level, "in any category"
        )
        points.append(words)
    if collection.design is None:
        by_chance = collection.num_reports * collection.rates.q
        kind = "named" if collection.tallied is None else "supported"
        points.append(
            f"Chance: an empty category would be {kind} by about {_count(by_chance)} of the {collection.num_reports:,} "
            "reports."
        )
    points.append(
        "The standard error of the estimated share of an empty category is "
        f"{form.percent(collection.standard_error)}; with four times as many people it would be half of that."
    )
    points.append(
        "Where the intervals of two categories do not overlap, the one with the higher interval has the larger share, "
        f"with {form.in_full(intervals.level)} confidence for all such pairs at once."
    )
    return [listing(points)]


def likeliest(findings: Findings) -> list[Markup]:
    """The maximum likelihood estimate beside the leading one, and its certificate in words."""
    collection, shown = findings.collection, findings.estimates
    if len(shown) == 1:
        return [
            paragraph(
                f"The likeliest distribution is not computed: {too_large(collection)}.",
                kind="note",
            )
        ]
    found, best = shown[0], shown[1]
    rows = [
        [label(collection.labels[place]), *(form.share(each.theta[place]) for each in shown)]
        for place in findings.largest
    ]
    words = [
        f"The estimate above, {found.title}, is made to be close to the truth. The maximum likelihood estimate "
        f"({best.title}) is the distribution under which these reports are most probable. Where chance dominates the "
        "reports, it follows the chance, and is farther from the truth."
    ]
    gap, near = best.certificate["gap"], best.certificate["l1_bound"] / 2
    if math.isfinite(gap):
        words.append(
            "Certificate: no distribution has a log-likelihood that is higher by more than "
            f"{form.at_most(max(gap, 0.0))} nats per report"
            + (
                f", and the exact maximum differs from the column {best.title} by a total variation of at most "
                f"{form.at_most(min(near, 1))}."
                if math.isfinite(near)
                else "."
            )
        )
    columns = ["Category", *(each.title for each in shown)]
    return [
        details(
            "The likeliest distribution, and its certificate", paragraph(*words), table(columns, rows, "Both estimates")
        )
    ]


def meaning(findings: Findings) -> list[Markup]:
    """The meaning of ε for the users, in numbers of this collection."""
    collection = findings.collection
    size, epsilon = collection.num_categories, collection.epsilon
    factor, p, q = math.exp(epsilon), collection.rates.p, collection.rates.q
    if collection.design is not None:
        first = f"Every answer was randomized by the respondent, by the design {collection.design.name}."
    elif collection.tallied is None:
        others = f"each of the {size - 1:,} other categories" if size > 2 else "the other category"
        first = (
            f"Every report was randomized: it is the truth with probability {_chance(p)}, and {others} "
            f"with probability {_chance(q)}. About {_count(collection.num_reports * p)} of the "
            f"{collection.num_reports:,} reports are true; nobody can tell which."
        )
    else:
        first = (
            f"Every report was randomized by {collection.mechanism.name}: it supports the category that its sender "
            f"holds with probability {_chance(p)}, and each other category with probability {_chance(q)}."
        )
    if not math.isfinite(factor):
        return [
            paragraph(first),
            paragraph(
                "ε is infinite: some answer is impossible for some people, so it proves something about who gives it. "
                "The design protects only those who give other answers."
            ),
        ]
    words = (
        f"What a report discloses is bounded by ε = {epsilon:.4g}. Whatever somebody believed about a person before, "
        f"seeing that person's report changes the odds by a factor of at most e^ε = {change_of_odds(factor)}. Example: "
        f"somebody who believed with {form.in_full(_PRIORS[0])} probability that a person holds a category believes it "
        f"with at most {after_at_most(_PRIORS[0], factor)} after seeing the report. ε = 0 would disclose nothing."
    )
    top = float(findings.found.theta[findings.largest[0]])
    name = label(collection.labels[findings.largest[0]])
    priors = [(f"1 in {size:,} (nothing is known)", 1 / size)]
    priors += [(form.in_full(prior), prior) for prior in _PRIORS if prior * size != 1]
    if 0 < top < 1 and not findings.flat:
        priors.append((joined(form.percent(top), ", the estimated share of ", name), top))
    rows = [[prior, after_at_most(share, factor), after_at_most(share, 1 / factor)] for prior, share in priors]
    caption = (
        "What a report discloses about one person: the probability that the person holds a category, before and after "
        "seeing the report"
    )
    metadata = collection.counted.metadata
    many = (
        f"For a person who gave two reports the factor is {change_of_odds(factor**2)}."
        if metadata is None or metadata.round is None
        else "Several reports: see \N{LEFT DOUBLE QUOTATION MARK}What users have spent\N{RIGHT DOUBLE QUOTATION MARK}."
    )
    many = (
        f"This holds for one report from each person. {many} The shares on this page are about the whole group; "
        "computing them from the reports does not weaken the protection."
    )
    if metadata is not None and metadata.simulated:
        first = f"These reports are a simulation and protect nobody; this is what ε would mean for real ones. {first}"
    elif metadata is None:
        first = f"If the reports were made as stated: {first[0].lower()}{first[1:]}"
    return [
        paragraph(first),
        paragraph(words),
        table(["Before", "After, at most", "After, at least"], rows, caption),
        paragraph(many),
    ]


def after_at_most(prior: float, factor: float) -> str:
    """A probability after its odds changed by a factor, in words."""
    after = factor * prior / (factor * prior + 1 - prior)
    if after > 0.9999:
        return "≥ 99.99\N{NO-BREAK SPACE}%"
    return form.percent(after) if after > 1e-5 else "≤ 0.001\N{NO-BREAK SPACE}%"


def _chance(probability: float) -> str:
    """A probability in percent, or as 1 in a number if it is very small."""
    return form.percent(probability) if probability > 1e-5 else f"1 in {1 / probability:,.0f}"


def how_made(findings: Findings, context: typer.Context, made: datetime) -> list[Markup]:
    """The command, what was read, the mechanism, versions and date."""
    collection, intervals = findings.collection, findings.intervals
    counted = collection.counted
    reports = f"{collection.num_reports:,}"
    if counted.num_missing:
        reports += f"; {counted.num_missing:,} of {counted.num_rows:,} rows hold none"
    estimate = (
        f"{findings.found.estimator.name}; intervals: Clopper–Pearson, simultaneous (Bonferroni), "
        f"{form.in_full(intervals.level)}; false discovery rate {form.in_full(intervals.fdr)}"
    )
    return [provenance(collection, collection.files, context, made, reports=reports, estimate=estimate)]


def provenance(
    collection: Reports, source: Source, context: typer.Context, made: datetime, *, reports: str, estimate: str
) -> Markup:
    """A table of the command, the files, the mechanism, versions and date."""
    counted, mechanism, metadata = collection.counted, collection.mechanism, collection.counted.metadata
    names = [form.printable(Path(file).name) for file in source.files()]
    listed = ", ".join(names[:5]) + (f" … ({len(names):,} files)" if len(names) > 5 else "")
    made_by, epsilon = mechanism.name, f"{collection.epsilon:.12g} nats"
    if metadata is not None and metadata.round is not None:
        made_by = f"{metadata.mechanism.name}, one round of which is {mechanism.name}"
        epsilon += f" a report, {metadata.epsilon:g} for all reports of one value"
    elif metadata is not None:
        epsilon += f" delivered, {metadata.epsilon:g} asked for"
    rows: dict[str, object] = {
        "Command": _typed(command_line(context)),
        "Read": listed,
        "Column": form.printable(counted.column),
        "Reports": reports,
        "Categories": form.printable(counted.domain.describe()) + said(counted.domain, collection.yes),
        "Mechanism": made_by + (f" ({mechanism.note})" if mechanism.note else ""),
        "ε": epsilon,
        "Known from": "the file, which says how its reports were made"
        if metadata is not None
        else "the command; the file does not say how its reports were made",
    }
    if metadata is not None:
        rows["Randomness"] = (
            "simulated from a seed, which protects nobody" if metadata.simulated else "of the system's secure source"
        )
        rows["Reports by"] = f"rrjax {metadata.version}"
    rows |= {
        "Estimate": estimate,
        "Versions": versions(*_PACKAGES),
        "Made on": made.strftime("%Y-%m-%d %H:%M %Z"),
    }
    return pairs(rows, "Command, data, mechanism and versions")


def _typed(words: list[str]) -> Markup:
    """A command line as markup, with line breaks only between its words."""
    whole = (joined(Markup("<span>"), form.printable(word), Markup("</span>")) for word in words)
    return joined(Markup("<code>"), *(part for word in whole for part in (" ", word)), Markup("</code>"))


def command_line(context: typer.Context) -> list[str]:
    """The command as it was given, quoted, with file names in place of paths."""
    return [shlex.quote(word) for word in ("rrjax", str(context.info_name), *_words_of(context))]


def _words_of(context: typer.Context) -> Iterator[str]:
    for parameter in context.command.params:
        value: Any = context.params.get(parameter.name or "")
        source = context.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE":
            continue
        is_argument = parameter.param_type_name == "argument"
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, bool):
                yield (parameter.opts if each else parameter.secondary_opts)[-1]
                continue
            text = f"{each:.12g}" if isinstance(each, float) else str(each)
            is_path = is_argument or isinstance(each, Path) or (os.sep in text and os.path.lexists(text))
            yield from ([] if is_argument else [parameter.opts[-1]])
            yield Path(text).name if is_path else text


def cautions(findings: Findings) -> list[Markup]:
    """Warnings that precede the page."""
    warnings = list(findings.collection.warnings)
    if findings.collection.contradicted:
        warnings.append(
            "The reports contradict the mechanism and ε that are stated: see \N{LEFT DOUBLE QUOTATION MARK}How far to "
            "believe it\N{RIGHT DOUBLE QUOTATION MARK} below."
        )
    if findings.misfit:
        warnings.append(
            "The reports do not fit the mechanism and ε that are stated: see \N{LEFT DOUBLE QUOTATION MARK}How far to "
            "believe it\N{RIGHT DOUBLE QUOTATION MARK} below."
        )
    return card(warnings)


def quoted(text: str) -> str:
    """A text in quotation marks."""
    return f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"


def card(warnings: list[str]) -> list[Markup]:
    """A box of warnings, if there are any."""
    if not warnings:
        return []
    body = listing(warnings)
    return [Markup(f'<div class="card">{paragraph("Before you believe this:")}{body}</div>')]


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def change_of_odds(factor: float) -> str:
    """A factor of odds, in words."""
    if factor >= 1e6:
        power = math.floor(math.log10(factor))
        return f"{factor / 10.0**power:.1f}\N{NO-BREAK SPACE}× 10^{power}"
    return f"{factor:,.0f}" if factor >= 100 else f"{factor:.3g}"
