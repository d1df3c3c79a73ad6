"""Labels that a data frame holds, counted over a domain."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from rrjax.data.errors import DataError, number
from rrjax.io.domain import Domain
from rrjax.io.expressions import integer_of

if TYPE_CHECKING:
    pass


def check_labels(kind, column) -> None:
    """Refuses a column whose values are no labels."""
    import narwhals.stable.v2 as nw

    if kind.is_numeric() or kind == nw.Boolean or is_text(kind):
        return
    advice = "cast it to integers or text."
    if kind == nw.Binary:
        advice = "count it from the Parquet files (read_tally, rrjax estimate)."
    elif kind in (nw.List, nw.Array):
        advice = "lists are reports of unary encodings and of subset selection."
    raise DataError(
        f"Column {column!r} holds {kind}, and reports that are labels are integers or text: {advice}", column=column
    )


def is_text(kind: Any) -> bool:
    """Whether a type of narwhals is one of texts."""
    import narwhals.stable.v2 as nw

    return kind in (nw.String, nw.Categorical, nw.Enum)


def placed(labels: Counter[str | int], domain: Domain, column: str) -> np.ndarray:
    """Counts over a domain, which must hold all labels; of one in two spellings they are added up."""
    if domain.is_range:
        first, last = domain.ends
        numbers = ((label, integer_of(label)) for label in labels)
        places = {label: n - first for label, n in numbers if n is not None and first <= n <= last}
    else:
        places = {label: place for place, label in enumerate(domain.listed or ())}
        places |= {label: places[str(label)] for label in labels if isinstance(label, int) and str(label) in places}
    outside = {label: amount for label, amount in labels.items() if label not in places}
    if outside:
        _refuse_outside(outside, domain, column)
    counts = np.zeros(domain.num_categories, np.int64)
    where = np.fromiter((places[label] for label in labels), np.int64, len(labels))
    np.add.at(counts, where, np.fromiter(labels.values(), np.int64, len(labels)))
    return counts


def _refuse_outside(outside: dict[str | int, int], domain: Domain, column: str) -> NoReturn:
    total = sum(outside.values())
    often = sorted(outside, key=lambda label: (-outside[label], str(label)))[:4]
    shown = ", ".join(repr(str(label)[:60]) for label in often)
    raise DataError(
        f"Column {column!r}: {number(total, 'report is', 'reports are')} not in the domain {domain.describe()}: "
        f"{shown}{', …' * (len(outside) > 4)}. Give a domain that holds every possible answer (domain=), or correct "
        "the data.",
        column=column,
    )


def domain_of(labels: Counter[str | int], column: str) -> Domain:
    """The different labels as a domain, in numeric order if all are integers."""
    numeric = all(isinstance(label, int) or re.fullmatch("-?[0-9]{1,18}", label) for label in labels)
    found = {str(label): None for label in labels}
    if len(found) < 2:
        raise DataError(
            f"Column {column!r}: every report is {next(iter(found))!r}, which does not tell the domain. Give all "
            "answers that were possible (domain=): a range such as 0:99 or a file of labels.",
            column=column,
        )
    return Domain.of(sorted(found, key=lambda label: (int(label), label)) if numeric else sorted(found))
