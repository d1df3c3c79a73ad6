"""Parameters of survey designs with a number for each answer, in the order of the answers; without JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrjax.data.errors import option, refusal
from rrjax.io.domain import Domain
from rrjax.io.labels import listed_in
from rrjax.reports import form


def in_order(name: str, given: str | Mapping[str, Any], domain: Domain | None) -> str:
    """The numbers of a parameter, one for each answer, in the order of the domain.

    Args:
        name: Name of the parameter.
        given: Numbers in this order, such as "1/6,5/6", or numbers with their answers, such as "no:5/6,yes:1/6" or a
            mapping. Labels that mean yes and no stand for those of the domain.
        domain: The answers; None if they are not known: then the order is that of the text, but yes first.

    Raises:
        ArgumentError, UsageError: Answers that are not those of the domain; or numbers without answers, where either
            may be that of yes.
    """
    text = given if isinstance(given, str) else ",".join(f'"{label}":{number}' for label, number in given.items())
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
