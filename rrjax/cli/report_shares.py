"""What the page of `rrjax report` says of shares: in short, the largest, all in order, and what was asked for."""

from __future__ import annotations

import numpy as np

from rrjax.cli import show
from rrjax.cli.findings import MOST_SINGLE, Findings
from rrjax.cli.statements import told, written
from rrjax.pages import (
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

_LONGEST, _SHORT = 100, 14
"""Characters of a name in a table, and below a drawing."""


def label(name: object, longest: int = _LONGEST) -> Markup:
    """A name, whatever it holds: shown and not obeyed, in its own direction, and not too long."""
    return Markup(f"<bdi>{markup(_cut(name, longest))}</bdi>")


def _cut(name: object, longest: int) -> str:
    text = show.printable(name)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def in_short(findings: Findings) -> list[Markup]:
    """The few sentences that most readers want."""
    collection, sure = findings.collection, findings.sure
    size, number = collection.num_categories, findings.num_found
    points: list[object] = []
    if sure.contradicted.any():
        points.append(
            "The reports contradict how they are said to have been made (see how far to believe it): these numbers "
            "mean nothing before that is settled."
        )
    if findings.flat:
        points.append(
            "These reports hardly tell the categories apart. Either all shares are about equal, or it takes more "
            "people to see that they are not: read the estimates below as \N{LEFT DOUBLE QUOTATION MARK}nothing is "
            "known\N{RIGHT DOUBLE QUOTATION MARK}."
        )
    else:
        named = [
            joined(
                *(Markup("<strong>"), label(collection.labels[place]), Markup("</strong>")),
                f" with about {show.share(findings.found.theta[place])} "
                f"({show.between(sure.lower[place], sure.upper[place])})",
            )
            for place in findings.largest[:3]
        ]
        points.append(joined("The largest shares: ", *_listed(named), "."))
    rest = "" if number == size else " Of the others the reports do not tell: they may be rare, or nobody's."
    points.append(
        f"That somebody holds them is shown for {number:,} of {size:,} categories; of such a list at most "
        f"{show.in_full(sure.fdr)} is wrong on average.{rest}"
        if number
        else f"Of none of the {size:,} categories do the reports show that anybody holds it."
    )
    points.append(_shown(*findings.detectable))
    return [listing(points)]


def _shown(named: float, any_of_them: float) -> str:
    """Which shares the reports are enough for, of a category named beforehand and of any."""
    if named >= 1:
        return "These reports would hardly show even a category that everybody holds."
    words = (
        "To be shown by these reports (4 times in 5), a category must be held by at least "
        f"{show.percent(named)} of all people if it was named beforehand"
    )
    if any_of_them >= 1:
        return f"{words}; picked out of all, hardly even one that everybody holds is."
    return f"{words}, and by at least {show.percent(any_of_them)} if it is picked out of all."


def _listed(names: list[Markup]) -> list[Markup | str]:
    """Names with commas between them."""
    return [part for name in names for part in (", ", name)][1:]


def largest(findings: Findings) -> list[Markup]:
    """The largest categories, with their intervals drawn."""
    collection, sure, theta = findings.collection, findings.sure, findings.found.theta
    places, size = findings.largest, collection.num_categories
    end = float(max(np.max(sure.upper[places]), np.max(theta[places])))
    scale = Markup(f'Drawn<span class="ends"><span>0</span><span>{show.percent(end)}</span></span>')
    named = "Reports that name it" if collection.tallied is None else "Reports that support it"
    interval = f"{show.in_full(sure.level)} interval, all at once"
    columns = ["Category", "Estimated share", interval, scale, named, "Somebody holds it"]
    rows = [
        [
            label(collection.labels[place]),
            show.share(theta[place]),
            show.between(sure.lower[place], sure.upper[place]),
            strip(float(theta[place]), float(sure.lower[place]), float(sure.upper[place]), end),
            f"{collection.counts[place]:,}",
            "contradicted" if sure.contradicted[place] else "yes" if sure.found[place] else "cannot tell",
        ]
        for place in places
    ]
    left, foot = size - len(places), None
    if left:
        others = collection.num_reports - int(collection.counts[places].sum())
        share = show.percent(max(1 - float(theta[places].sum()), 0.0))
        name = show.number(left, "other category", "other categories")
        foot = [name, share, "", "", f"{others:,}" if collection.tallied is None else "", ""]
    which = f"The {len(places)} largest of {size:,} categories" if left else f"All {size:,} categories"
    return [
        table(columns, rows, f"{which}. A stroke is an estimate, the bar behind it the interval.", foot=foot),
        listing(_reading(findings)),
    ]


def _reading(findings: Findings) -> list[object]:
    """How to read the table."""
    sure, places = findings.sure, findings.largest
    level = show.in_full(sure.level)
    points: list[object] = [
        "Estimated share: of all people, not of the reports, most of which may be chance. Undoing the chance alone "
        "would give negative shares; this estimate learns from the same reports how shares are spread, and reads each "
        "number of reports in that light.",
        f"Interval: where the share is. All intervals hold together, with {level} confidence: in at most "
        f"{show.in_full(1 - sure.level)} of such collections is any of them wrong. Of a category that somebody named "
        "before looking at the reports, `rrjax estimate` gives a shorter one.",
        f"Somebody holds it: yes where the reports show it; of all yes at most {show.in_full(sure.fdr)} are wrong on "
        "average. \N{LEFT DOUBLE QUOTATION MARK}Cannot tell\N{RIGHT DOUBLE QUOTATION MARK}: so many reports could be "
        "chance alone.",
    ]
    if (sure.found[places] & (sure.lower[places] == 0)).any():
        points.append(
            "A yes may stand beside an interval that begins at zero: the intervals promise more, namely that none of "
            "them is wrong."
        )
    if sure.contradicted[places].any():
        points.append("Contradicted: no share explains so few reports, or so many; the interval means nothing.")
    outside = int((sure.misses(findings.found.theta) & ~sure.contradicted)[places].sum())
    if outside:
        points.append(
            f"{show.number(outside, 'estimate in the table lies', 'estimates in the table lie')} outside the interval: "
            "an estimate makes all shares fit together, an interval is about one. Of a single share believe the "
            "interval."
        )
    return points


def in_order(findings: Findings) -> list[Markup]:
    """All categories in their order, or in bands where they are many; nothing where their order means nothing."""
    collection, sure = findings.collection, findings.sure
    domain, size = collection.counted.domain, collection.num_categories
    if not (domain.is_range or findings.ordered):
        return []
    labels, level = collection.labels, show.in_full(sure.level)
    if size <= MOST_SINGLE:
        values, limits = findings.found.theta, (sure.lower, sure.upper)
        ends = [(each,) for each in labels]
        first_column, what = "Category", "category"
        caption = f"Every category, from {_cut(labels[0], _SHORT)} to {_cut(labels[-1], _SHORT)}. "
    else:
        bands = findings.bands
        values, limits = bands.values, bands.limits
        ends = [(labels[first], labels[after - 1]) for first, after in zip(bands.edges, bands.edges[1:], strict=False)]
        first_column, what = "Categories", "band"
        caption = (
            f"All {size:,} categories, from {_cut(labels[0], _SHORT)} to {_cut(labels[-1], _SHORT)}, in {len(values)} "
            "bands, of which each is estimated for itself. "
        )
    caption += "A stroke is an estimate" + (
        f", the bar behind it its interval; all hold together with {level} confidence."
        if limits is not None
        else "; of these reports there are no exact intervals for several categories together."
    )
    most = int(np.argmax(values))
    name = " – ".join(_cut(each, _LONGEST) for each in ends[most])
    words = f"{caption} The largest {what}: {name}, {show.percent(values[most])}"
    words += "." if limits is None else f" ({show.between(limits[0][most], limits[1][most])})."
    drawing = profile(np.asarray(values), limits, _across(findings), f"{words} All numbers are in the table below.")
    columns = [first_column, "Estimated share", *([] if limits is None else [f"{level} interval"])]
    rows = [
        [
            joined(label(name[0]), *(joined(" – ", label(last)) for last in name[1:])),
            show.share(value),
            *([] if limits is None else [show.between(limits[0][row], limits[1][row])]),
        ]
        for row, (name, value) in enumerate(zip(ends, values, strict=True))
    ]
    return [
        figure("in-order", drawing, caption),
        details("The numbers of this figure", table(columns, rows, f"Shares by {what}, in their order")),
    ]


def _across(findings: Findings) -> list[Tick]:
    """Labels below the categories in their order: a few, of round numbers where they are integers."""
    collection = findings.collection
    domain, size = collection.counted.domain, collection.num_categories
    if not domain.is_range:
        step = -(-size // 4)
        return [Tick((place + 0.5) / size, _cut(collection.labels[place], _SHORT)) for place in range(0, size, step)]
    first, last = domain.ends
    step = max(int(round_step(size, 6 if len(str(last)) < 6 else 3)), 1)
    start = -(-first // step) * step
    return [Tick((value - first + 0.5) / size, str(value)) for value in range(start, last + 1, step)]


def asked_for(findings: Findings) -> list[Markup]:
    """Means, quantiles and groups, of everybody and of subgroups."""
    rows, asked, collection = findings.rows, findings.asked, findings.collection
    if not rows:
        return []
    several = asked.by is not None
    shares = all(row.statement.kind == "share" and row.about != "difference" for row in rows)
    end = max((float(row.upper) for row in rows), default=1.0) if shares else 1.0
    columns: list[object] = ["What", *([label(asked.by)] if several else []), "Estimate"]
    columns += [f"{show.in_full(findings.sure.level)} interval"]
    columns += [Markup(f'Drawn<span class="ends"><span>0</span><span>{show.percent(end)}</span></span>')] * shares
    cells = []
    for row in rows:
        value, _, interval = written(row)
        if row.statement.kind != "quantile":  # which are labels
            value, interval = (text.replace("-", "−") for text in (value, interval))
        drawn = [strip(float(row.value), float(row.lower), float(row.upper), end)] if shares else []
        level = [label(row.level)] if several else []
        cells.append([label(row.statement.name), *level, value, interval, *drawn, f"{row.num_reports:,}"])
    parts = [
        table([*columns, "Reports"], cells, "What was asked for: each for itself, not all at once"),
        paragraph(told(rows, asked, exact=collection.tallied is None), kind="note"),
    ]
    if findings.num_left_out:
        number = show.number(findings.num_left_out, "row is", "rows are")
        parts.append(paragraph(f"{number} left out: no value in a column that was asked for.", kind="note"))
    return parts
