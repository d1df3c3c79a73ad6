"""Which answer to a survey is yes."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from rrjax.data.errors import option, refusal
from rrjax.io.domain import Domain
from rrjax.mechanisms import Design
from rrjax.reports import form

MEANINGS = {
    "kuk": "the colour whose shares in the two decks are have and lack",
    "triangular": 'the answer "at least one"',
    "anchored-crosswise": 'the answer "both or neither"',
}
"""What a yes is, where it is not the answer yes to one question."""


def known_yes(domain: Domain, design: Design | None) -> int | None:
    """The category number of yes among the answers to a design; None where no answer is the yes."""
    if design is not None and design.yes_category is not None and not design.symmetric:
        return design.yes_category
    return None if design is None else domain.place_of_yes


def said(domain: Domain, yes: int | None) -> str:
    """Which answer is yes, and which is no, to follow a sentence; empty for None."""
    if yes is None:
        return ""
    labels = [form.printable(each) for each in domain.labels()]
    return f"; yes: {labels[yes]}, no: {labels[1 - yes]}"


def place_of_yes(domain: Domain, design: str, label: str | None) -> int:
    """The category number of yes among two answers: of the given label, or of the one that means yes.

    Raises:
        ArgumentError, UsageError: A label that is none of them, or none was given and none means yes.
    """
    labels = [form.printable(each) for each in domain.labels()]
    if label is not None:
        if label not in labels:
            problem = f"{_yes(label)}: the answers are {' and '.join(map(repr, labels))}"
            raise refusal("parameters", problem, flag="--parameter", value=f"yes={label}")
        return labels.index(label)
    if (place := domain.place_of_yes) is None:
        one, other = labels
        meaning = MEANINGS.get(design, "the answer that those with the attribute give")
        raise refusal(
            "domain",
            f"{option('domain')}: which answer is the yes of {design}, {one!r} or {other!r}? It is {meaning}. Add "
            f"{_yes(one)} or {_yes(other)}. Answers such as 1 and 0, yes and no, true and false need none",
            value=domain,
        )
    return place


def with_yes(design: Design, domain: Domain, label: str | None) -> Design:
    """The design with the yes that is given, or that the domain tells; of a symmetric one it may be unknown.

    Raises:
        ArgumentError, UsageError: As `place_of_yes`, or a yes for a design that has none.
    """
    if design.yes_category is not None:
        known = not design.symmetric or label is not None or domain.place_of_yes is not None
        place = place_of_yes(domain, design.name, label) if known else 0
        return dataclasses.replace(cast("Any", design), yes_category=place)
    if label is not None:
        problem = f"{_yes(label)}: {design.name} has no yes; its numbers may be named, such as LABEL:1/6"
        raise refusal("parameters", problem, flag="--parameter", value=label)
    return design


def _yes(label: str) -> str:
    return option(f"parameters={{'yes': {label!r}}}", f"--parameter yes={label}")
