"""The shares on the page of `rrjax report`: a summary, the largest, all in order, and statements."""

from __future__ import annotations

import numpy as np

from rrjax.cli.findings import MOST_SINGLE, Findings
from rrjax.figures.html import (
    Markup,
    Tick,
    details,
    figure,
    joined,
    listing,
    markup,
    paragraph,
    profile,
    round_step,
    strip,
    table,
)
from rrjax.reports import form
from rrjax.reports.shares import publication

MOST_IN_TABLE, MOST_IN_DRAWING = 100, 14
"""Limits of the number of characters of a name."""


def label(name: object, longest: int = MOST_IN_TABLE) -> Markup:
    """A name as markup: escaped, with its own text direction, and cut if it is too long."""
    return Markup(f"<bdi>{markup(_cut(name, longest))}</bdi>")


def _cut(name: object, longest: int) -> str:
    text = form.printable(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def in_short(findings: Findings) -> list[Markup]:
    """The summary: a few sentences."""
    collection, intervals = findings.collection, findings.intervals
    size, number = collection.num_categories, findings.num_found
    points: list[object] = []
    if collection.contradicted:
        points.append(
            "The reports contradict the mechanism and ε that are stated (see \N{LEFT DOUBLE QUOTATION MARK}How far to "
            "believe it\N{RIGHT DOUBLE QUOTATION MARK}): do not use these numbers before that is resolved."
        )
    if findings.flat:
        points.append(
            "These reports hardly distinguish the categories. Either all shares are about equal, or more people are "
            "needed to see how they differ: read the estimates below as \N{LEFT DOUBLE QUOTATION MARK}nothing is "
            "known\N{RIGHT DOUBLE QUOTATION MARK}."
        )
    else:
        named = [
            joined(
                *(Markup("<strong>"), label(collection.labels[place]), Markup("</strong>")),
                f" with about {form.share(findings.found.theta[place])} "
                f"({form.between(intervals.lower[place], intervals.upper[place])})",
            )
            for place in findings.largest[:3]
        ]
        points.append(joined("The largest shares: ", *_listed(named), "."))
    rest = "" if number == size else " The others may be rare or empty."
    points.append(
        f"{number:,} of {size:,} categories {'is' if number == 1 else 'are'} significantly above zero: somebody holds "
        f"{'it' if number == 1 else 'them'}. On average at most {form.in_full(intervals.fdr)} of such a list is wrong."
        f"{rest}"
        if number
        else f"None of the {size:,} categories is significantly above zero."
    )
    points.append(_shown(findings))
    if not collection.contradicted:
        points.append(f"To publish: {publication(collection, findings.found, intervals)}")
    return [listing(points)]


def _shown(findings: Findings) -> Markup | str:
    """A sentence about the detectable shares, of the yes, or of a category chosen beforehand and of any."""
    (named, any_of_them), collection = findings.detectable, findings.collection
    if named >= 1:
        return "There are too few reports to detect any category, even one that everybody holds."
    words = (
        "Smallest share that these reports detect (with a probability of 80\N{NO-BREAK SPACE}%): "
        f"{form.percent(named)} for "
    )
    if collection.yes is not None:
        return joined(words, label(collection.labels[collection.yes]), ".")
    words += "a category chosen beforehand"
    if any_of_them >= 1:
        return f"{words}; none for a category picked out of all."
    return f"{words}, {form.percent(any_of_them)} for one picked out of all."


def _listed(names: list[Markup]) -> list[Markup | str]:
    """Names with commas between them."""
    return [part for name in names for part in (", ", name)][1:]


def largest(findings: Findings) -> list[Markup]:
    """A table of the largest categories, with drawn intervals."""
    collection, intervals, theta = findings.collection, findings.intervals, findings.found.theta
    places, size = findings.largest, collection.num_categories
    end = float(max(np.nanmax(intervals.upper[places], initial=0), np.max(theta[places])))
    scale = Markup(f'Drawn<span class="ends"><span>0</span><span>{form.percent(end)}</span></span>')
    named = "Reports that name it" if collection.tallied is None else "Reports that support it"
    interval = f"{form.in_full(intervals.level)} interval, simultaneous"
    columns = ["Category", "Estimated share", interval, scale, named, "Above zero"]
    rows = [
        [
            label(collection.labels[place]),
            form.share(theta[place]),
            form.between(intervals.lower[place], intervals.upper[place]),
            strip(float(theta[place]), float(intervals.lower[place]), float(intervals.upper[place]), end),
            f"{collection.counts[place]:,}",
            "contradicted"
            if intervals.contradicted[place]
            else "yes"
            if intervals.discovered[place]
            else "cannot tell",
        ]
        for place in places
    ]
    left, foot = size - len(places), None
    if left:
        others = collection.num_reports - int(collection.counts[places].sum())
        share = form.percent(max(1 - float(theta[places].sum()), 0.0))
        name = form.number(left, "other category", "other categories")
        foot = [name, share, "", "", f"{others:,}" if collection.tallied is None else "", ""]
    which = f"The {len(places)} largest of {size:,} categories" if left else f"All {size:,} categories"
    return [
        table(columns, rows, f"{which}. A stroke is an estimate, the bar behind it the interval.", foot=foot),
        listing(_reading(findings)),
    ]


def _reading(findings: Findings) -> list[object]:
    """Sentences about how to read the table."""
    intervals, places = findings.intervals, findings.largest
    level = form.in_full(intervals.level)
    points: list[object] = [
        "Estimated share: the share of all people who hold the category. It is not the share of the reports, most of "
        "which may be random. Each share is estimated by its posterior mean; the prior is estimated from the same "
        "reports.",
        f"Interval: it holds the true share. The intervals are simultaneous, with {level} confidence: in at most "
        f"{form.in_full(1 - intervals.level)} of such collections any of them is wrong."
        + (
            " For a category that was chosen before looking at the reports, `rrjax estimate` gives a shorter interval."
            if intervals.num_tests > 1
            else ""
        ),
        "Above zero: yes where the share is significantly above zero, which means that somebody holds the category. "
        f"On average at most {form.in_full(intervals.fdr)} of all yes are wrong (false discovery rate). "
        "\N{LEFT DOUBLE QUOTATION MARK}Cannot tell\N{RIGHT DOUBLE QUOTATION MARK}: so many reports may come from "
        "chance alone.",
    ]
    if (intervals.discovered[places] & (intervals.lower[places] == 0)).any():
        points.append(
            "A yes may stand beside an interval that begins at zero, because the intervals promise more: that none of "
            "them is wrong."
        )
    if intervals.contradicted[places].any():
        points.append("Contradicted: no share explains so few or so many reports, so there is no interval.")
    outside = int(intervals.misses(findings.found.theta)[places].sum())
    if outside:
        points.append(
            f"{form.number(outside, 'estimate in the table lies', 'estimates in the table lie')} outside the interval: "
            "an estimate makes all shares fit together, an interval is about one share. For a single share, believe "
            "the interval."
        )
    return points


def in_order(findings: Findings) -> list[Markup]:
    """All categories in order, or bands if there are many; nothing if the order means nothing."""
    collection, intervals = findings.collection, findings.intervals
    domain, size = collection.counted.domain, collection.num_categories
    if not (domain.is_range or findings.ordered):
        return []
    labels, level = collection.labels, form.in_full(intervals.level)
    ends_named = " to ".join(_cut(labels[place], MOST_IN_DRAWING) for place in (0, -1))
    if size <= MOST_SINGLE:
        values, limits = findings.found.theta, (intervals.lower, intervals.upper)
        ends = [(each,) for each in labels]
        first_column, what = "Category", "category"
        caption = f"Every category, from {ends_named}. "
    else:
        bands = findings.bands
        values, limits = bands.values, bands.limits
        ends = [(labels[first], labels[after - 1]) for first, after in zip(bands.edges, bands.edges[1:], strict=False)]
        first_column, what = "Categories", "band"
        caption = (
            f"All {size:,} categories, from {ends_named}, in {len(values)} bands. Each band is estimated by itself. "
        )
    caption += "A stroke is an estimate" + (
        f", the bar behind it its interval; the intervals are simultaneous, with {level} confidence."
        if limits is not None
        else "; for this mechanism there are no exact intervals of bands."
    )
    most = int(np.argmax(values))
    name = " – ".join(_cut(each, MOST_IN_TABLE) for each in ends[most])
    words = f"{caption} The largest {what}: {name}, {form.percent(values[most])}"
    words += "." if limits is None else f" ({form.between(limits[0][most], limits[1][most])})."
    drawing = profile(np.asarray(values), limits, _across(findings), f"{words} All numbers are in the table below.")
    columns = [first_column, "Estimated share", *([] if limits is None else [f"{level} interval"])]
    rows = [
        [
            joined(label(name[0]), *(joined(" – ", label(last)) for last in name[1:])),
            form.share(value),
            *([] if limits is None else [form.between(limits[0][row], limits[1][row])]),
        ]
        for row, (name, value) in enumerate(zip(ends, values, strict=True))
    ]
    return [
        figure("in-order", drawing, caption),
        details("The numbers of this figure", table(columns, rows, f"Shares by {what}, in their order")),
    ]


def _across(findings: Findings) -> list[Tick]:
    """A few labels below the drawing; at round numbers if the categories are integers."""
    collection = findings.collection
    domain, size = collection.counted.domain, collection.num_categories
    if not domain.is_range:
        step = -(-size // 4)
        return [
            Tick((place + 0.5) / size, _cut(collection.labels[place], MOST_IN_DRAWING))
            for place in range(0, size, step)
        ]
    first, last = domain.ends
    step = max(int(round_step(size, 6 if len(str(last)) < 6 else 3)), 1)
    start = -(-first // step) * step
    return [Tick((value - first + 0.5) / size, str(value)) for value in range(start, last + 1, step)]


def asked_for(findings: Findings) -> list[Markup]:
    """A table of means, quantiles and shares of groups, of all users and of subgroups."""
    found = findings.statements
    if found is None:
        return []
    shares = all(each.functional.kind == "share" and each.about != "difference" for each in found.estimates)
    end = float(np.nanmax([each.upper for each in found.estimates], initial=0)) if shares else 1.0
    columns: list[object] = ["What", *([] if found.by is None else [label(found.by)]), "Estimate"]
    columns += [form.interval(found.level)]
    columns += [Markup(f'Drawn<span class="ends"><span>0</span><span>{form.percent(end)}</span></span>')] * shares
    cells = []
    for each in found.estimates:
        value, _, interval = each.texts()
        if each.functional.kind != "quantile":  # quantiles are labels
            value, interval = (text.replace("-", "−") for text in (value, interval))
        drawn = [strip(float(each.value), float(each.lower), float(each.upper), end)] if shares else []
        level = [] if found.by is None else [label(each.level)]
        cells.append([label(each.functional.name), *level, value, interval, *drawn, f"{each.num_reports:,}"])
    return [
        table([*columns, "Reports"], cells, "Groups and means. Each interval holds for its row, not for all at once."),
        *(paragraph(sentence, kind="note") for sentence in found.sentences),
        *map(paragraph, found.cautions),
        *(paragraph(note, kind="note") for note in found.notes),
    ]
