"""What a collection is made with: ε, numbers of a survey design, the answer that is yes; without JAX."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rrjax.data.errors import option, refusal
from rrjax.data.number_text import plain
from rrjax.io.domain import Domain
from rrjax.io.labels import label_text, listed_in
from rrjax.reports import form

if TYPE_CHECKING:
    from rrjax.io.source import Source
    from rrjax.mechanisms import Design

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 36.0
"""Limits of the ε of a collection, nats."""
MEANINGS = {
    "kuk": "the colour whose shares in the two decks are have and lack",
    "triangular": 'the answer "at least one"',
    "anchored-crosswise": 'the answer "both or neither"',
}
"""What a yes is, where it is not the answer yes to one question."""


def check_epsilon(epsilon: float, argument: str = "epsilon") -> float:
    """Returns ε, which an argument gave; refuses one that no collection can have."""
    try:
        given = plain(epsilon) if isinstance(epsilon, str) else epsilon
        number = None if isinstance(given, bool | np.bool_) else float(given)
    except (TypeError, ValueError):
        number = None
    except OverflowError:  # an integer beyond the floats
        number = math.copysign(math.inf, 1 if epsilon > 0 else -1)
    problem = None
    if number is None:
        problem = f"must be a number of nats, got {epsilon!r}"
    elif not number > 0:
        problem = f"must be a positive number of nats, got {number:g}"
    elif number < SMALLEST_EPSILON:
        problem = (
            f"{number:g} is below {SMALLEST_EPSILON:g}: reports say nothing about the values then, not "
            "even those of two billion users. Is it in nats?"
        )
    elif number > LARGEST_EPSILON:
        problem = (
            f"{number:g} is above {LARGEST_EPSILON:g}: no report would differ from its value, and nothing "
            "would be private. Is it in nats? (A common choice is 0.5 to 8.)"
        )
    if problem is not None or number is None:
        raise refusal(argument, f"{option(argument)} {problem}", value=epsilon)
    return number


def epsilon_of(probability: float, num_categories: int | None, **others: Any) -> float:
    """ε of randomized response from the probability of a true report: log(p·(K − 1) / (1 − p)), nats.

    `others` are arguments beside which no probability is taken: `epsilon`, `mechanism`, and `data` with metadata.
    """
    name = option("probability")
    problems = {
        "epsilon": f"and {option('epsilon')} say the same: give one of them",
        "mechanism": f"is of randomized response, and {option('mechanism')} names another mechanism, whose numbers are "
        f"given by {option('parameters', '--parameter')}: leave {name} out",
        "data": f"is for reports that do not say how they were randomized, and these do: leave {name} out",
    }
    problem = next((problems[other] for other, value in others.items() if value), None)
    if problem is None and num_categories is None:
        problem = f"needs {option('domain')}, all categories that are possible: ε follows from p and their number"
    if problem is None:
        smallest = 1 / (num_categories or 1)
        try:
            within = not isinstance(probability, bool | np.bool_) and smallest < float(probability) < 1
        except (TypeError, ValueError):
            within = False
        if not within:
            problem = (
                f"must lie between 1/K = {smallest:.4g}, where reports say nothing about the values, and 1, where "
                f"nothing is private; got {probability}"
            )
    if problem is not None or num_categories is None:
        raise refusal("probability", f"{name} {problem}", value=probability)
    return math.log(probability * (num_categories - 1) / (1 - probability))


def check_true(source: Source, argument: str = "truth", flag: str | None = None) -> None:
    """Refuses files of randomized reports where true values are wanted."""
    if source.columns():
        file = source.files()[0]
        named = option(argument, flag)
        problem = f"{named} {file} holds randomized reports, not true values: give those that were randomized"
        raise refusal(argument, problem, flag=flag, value=file)


def in_order(name: str, given: str | Mapping[str, Any], domain: Domain | None) -> str:
    """The numbers of a parameter, one for each answer, in the order of the domain.

    They come in this order, such as "1/6,5/6", or with their answers, such as "no:5/6,yes:1/6" or a mapping. Labels
    that mean yes and no stand for those of the domain; without a domain the order is that of the text, but yes first.
    """
    text = given if isinstance(given, str) else ",".join(f'"{label_text(key)}":{given[key]}' for key in given)
    parts = [part.rpartition(":") for part in listed_in("--parameter", text)]
    if not any(colon for _, colon, _ in parts):
        _check_order(name, text, domain)
        return text
    numbers = {label.strip(): number.strip() for label, _, number in parts}
    if "" in numbers or len(numbers) < max(len(parts), 2):
        problem = "name the answer of every number, and each once, such as yes:1/6,no:5/6"
        raise _refused(name, text, problem)
    named = Domain.of(numbers)
    if domain is None:
        ordered = [*numbers][:: -1 if named.place_of_yes == 1 else 1]
    else:
        ordered = [] if domain.num_categories != len(numbers) else [str(label) for label in domain.labels()]
        if domain.place_of_yes is not None and named.place_of_yes is not None:
            ordered = [*numbers][:: 1 if domain.place_of_yes == named.place_of_yes else -1]
        if set(ordered) != set(numbers):
            raise _refused(name, text, f"the numbers must be of all answers, and the domain is {domain.describe()}")
    return ",".join(numbers[label] for label in ordered)


def names_yes(text: str) -> bool:
    """Whether the numbers of a parameter are named, and one of two names means yes."""
    labels = [part.rpartition(":")[0].strip() for part in listed_in("--parameter", text)]
    return all(labels) and Domain.of(labels).place_of_yes is not None


def _check_order(name: str, text: str, domain: Domain | None) -> None:
    """Refuses two numbers of which it is not known which is of the yes.

    In the order of the domain it is clear for yes and no, and for equal numbers. R's packages have no first, and
    numbers that sum to one with the truth only.
    """
    from rrjax.mechanisms.surveys.design import SUM_TOLERANCE
    from rrjax.mechanisms.surveys.named import as_numbers

    numbers = as_numbers(name, text, several=True)
    place = None if domain is None else domain.place_of_yes
    if domain is None or place is None or len(numbers) != 2 or numbers[0] == numbers[1]:
        return
    if place == 1 or abs(numbers.sum() - 1) > SUM_TOLERANCE:
        yes, no = (form.printable(domain.labels()[each]) for each in (place, 1 - place))
        first, second = (part.strip() for part in text.split(","))
        which = f"which number is that of the yes, {yes!r}? Name them: {name}={yes}:{first},{no}:{second} or "
        raise _refused(name, text, f"{which}{name}={yes}:{second},{no}:{first}")


def _refused(name: str, text: str, problem: str) -> Exception:
    flag = option("parameters", "--parameter")
    return refusal("parameters", f"{flag} {name}={text}: {problem}", flag="--parameter", value=text)


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
    """The category number of yes among two answers: of the given label, or of the one that means yes."""
    labels = [form.printable(each) for each in domain.labels()]
    if label is not None:
        if (label := label_text(label)) not in labels:
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
    """The design with the yes that is given, or that the domain tells; of a symmetric one it may be unknown."""
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
