"""Which answer to a survey is yes."""

from __future__ import annotations

from rrjax.io.domain import Domain
from rrjax.mechanisms import Design
from rrjax.mechanisms.surveys.design import YesOrNo
from rrjax.reports import form


def known_yes(domain: Domain, design: Design | None) -> int | None:
    """The category number of yes among the answers to a design; None where no answer is the yes."""
    if isinstance(design, YesOrNo) and not design.symmetric:
        return design.yes_category
    return None if design is None else domain.place_of_yes


def said(domain: Domain, yes: int | None) -> str:
    """Which answer is yes, and which is no, to follow a sentence; empty for None."""
    if yes is None:
        return ""
    labels = [form.printable(each) for each in domain.labels()]
    return f"; yes: {labels[yes]}, no: {labels[1 - yes]}"
