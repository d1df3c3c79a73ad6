"""`rrjax audit`."""

from __future__ import annotations

from typing import Annotated

import typer

import rrjax
from rrjax.audit import Audit, audit_mechanism
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Explain, Json, MechanismName, flags
from rrjax.cli.reading import check_epsilon, check_rate
from rrjax.errors import UsageError


@flags()
def audit(
    categories: Annotated[int, typer.Option(help="K, how many categories there are.")],
    epsilon: Annotated[float, typer.Option(help="Privacy parameter ε that is claimed, in nats.")],
    mechanism: MechanismName = rrjax.RandomizedResponse.name,
    draws: Annotated[int, typer.Option(min=4, help="Reports of each of two values.")] = 1_000_000,
    level: Annotated[float, typer.Option(help="Confidence level of the bound, in (0, 1).")] = 0.999,
    explain: Explain = False,
    json: Json = False,
) -> None:
    """Check the ε of the clients that `rrjax randomize` uses: a bound from below, by nothing but their reports.

    rrjax audit --mechanism subset-selection --categories 100 --epsilon 1

    A bound above the ε that is claimed proves a client wrong. In Python, rrjax.audit takes any client.
    """
    check_epsilon(epsilon)
    check_rate("--level", level)
    try:
        client = rrjax.secure.client(mechanism, categories, epsilon)
    except ValueError as error:
        raise UsageError(str(error)) from error
    with show.err.status("Drawing reports …"), ending_at_once():
        found = audit_mechanism(client, draws, level=level)
    if json:
        show.record({"command": "audit", "mechanism": client.name, "parameters": client.parameters} | facts(found))
        return
    confidence = f"{show.in_full(level)} confidence"
    show.say(
        f"{client.name}, K = {categories:,}: ε = {epsilon:g} nats asked for, {client.effective_epsilon:.12g} delivered "
        "by its integers."
    )
    show.say(
        f"The reports prove that ε is at least {found.lower:.4f}, with {confidence}: "
        + (
            f"more than the {found.claimed:.12g} that is claimed. The client is wrong."
            if found.violated
            else "no more than is claimed, and nothing speaks against the client."
        )
    )
    # By the numbers of events: which of the first and the last value their reports support.
    names = ("neither of them", f"{categories - 1} alone", "0 alone", "both")
    event = " or ".join(names[int(number)] for number in found.event)
    first, second = found.counts
    words = {
        "proof": f"of {found.num_draws:,} reports each of the values {found.likelier} and {found.other}, {first:,} and "
        f"{second:,} support {event}; the larger the ratio of their chances, the more a report tells, and ε bounds it",
        "limits": "a bound far below the claim shows nothing: other values, or events, may tell more",
    }
    show.explain(words, explain, "mechanisms")


def facts(found: Audit) -> dict[str, object]:
    """As fields of a JSON object."""
    return found._asdict() | {"event": [int(number) for number in found.event], "violated": found.violated}
