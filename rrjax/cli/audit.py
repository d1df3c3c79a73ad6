"""`rrjax audit`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from rrjax.cli import show
from rrjax.cli.design import Randomizer
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.options import Explain, Json, flags
from rrjax.cli.randomization import client_of, client_of_design
from rrjax.data.errors import UsageError, check_rate
from rrjax.privacy.clients import Client
from rrjax.reports import form

if TYPE_CHECKING:
    from rrjax.privacy.audit import Audit

WORDS_AN_HOUR = 36_000_000_000
"""Random words that clients use in about an hour: 100 ns each, on one core."""


@flags()
def audit(
    categories: Annotated[
        int | None, typer.Option(help="K, how many categories there are; a survey design may say so itself.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy parameter ε that is claimed, in nats.")] = None,
    draws: Annotated[int, typer.Option(min=4, help="Half of the reports that are drawn.")] = 1_000_000,
    level: Annotated[float, typer.Option(help="Confidence level of the bound, in (0, 1).")] = 0.999,
    explain: Explain = False,
    json: Json = False,
    *,
    randomizer: Randomizer,
) -> None:
    """Check the ε of the clients that `rrjax randomize` uses: a lower bound of ε, from their reports alone.

    rrjax audit --mechanism subset-selection --categories 100 --epsilon 1

    rrjax audit --mechanism warner --parameter truth_probability=0.7

    The audit searches for the two values whose reports differ most. A lower bound above the claimed ε proves that the
    client is wrong. In Python, rrjax.audit takes any client.
    """
    from rrjax.privacy.audit import audit as audit_client

    check_rate("level", level)
    client = _client(randomizer, categories, epsilon)
    _check_work(client, draws)
    with show.status("Drawing reports …"), ending_at_once():
        audit = audit_client(client, num_draws=draws, level=level)
    if json:
        show.record({"command": "audit", "mechanism": client.name, "parameters": client.parameters} | facts(audit))
        return
    confidence = f"{form.in_full(level)} confidence"
    asked = "" if epsilon is None else f"{epsilon:g} nats asked for, "
    show.say(
        f"{client.name}, K = {client.num_categories:,}: ε = {asked}{client.effective_epsilon:.12g} delivered by its "
        "integers."
    )
    if audit.powerless:
        show.say(
            f"{draws:,} draws are too few to find anything: at least {audit.draws_needed:,} are needed before a client "
            f"that hides nothing could be told from one of ε = {client.epsilon:g}, with {confidence}."
        )
    else:
        show.say(
            f"The reports prove that ε is at least {audit.lower:.4f}, with {confidence}: "
            + (
                f"more than the {audit.claimed:.12g} that is claimed. The client is wrong."
                if audit.violated
                else "no more than is claimed, and nothing speaks against the client."
            )
        )
    # Names of the events 0 to 3: which of the smaller and the larger value a report supports.
    small, large = sorted((audit.likelier, audit.other))
    names = ("neither of them", f"{large} alone", f"{small} alone", "both")
    event = " or ".join(names[number] if isinstance(number, int) else str(number) for number in audit.event)
    first, second = audit.counts
    size = client.num_categories
    searched = f"all {size:,}" if audit.num_values == size else f"{audit.num_values:,} of {size:,}"
    words = {
        "search": f"of {searched} values, reports tell {small} and {large} apart the most, by a quarter of all reports",
        "proof": f"of {audit.num_draws:,} reports each of the values {audit.likelier} and {audit.other}, {first:,} and "
        f"{second:,} support {event}; the larger the ratio of their chances, the more a report tells, and ε bounds it",
        "limits": "a bound far below the claim shows nothing: other values, or events, may tell more",
    }
    show.explain(words, explain, "mechanisms")


def _client(randomizer: Randomizer, categories: int | None, epsilon: float | None) -> Client:
    """The client to audit."""
    randomizer.check_no_rounds()
    randomizer.check_epsilon(epsilon)
    if randomizer.is_design:
        client = client_of_design(randomizer.of_size(categories))
        if math.isinf(client.effective_epsilon):
            raise UsageError.about(
                "--mechanism",
                f"{randomizer.name}: its ε is infinite, because some answer is never given by some "
                "respondents: there is no bound to audit",
                value=randomizer.name,
            )
        return client
    if categories is None:
        raise UsageError.about("--categories", "is missing: K, how many categories there are")
    return client_of(randomizer.name, categories, epsilon, "--categories")


def _check_work(client: Client, draws: int) -> None:
    """Refuses more than an hour of work; warns of more than a minute."""
    hours = 2 * draws * client.num_words / WORDS_AN_HOUR
    size = f"{2 * draws:,} reports that take {client.num_words:,} random words each"
    if hours > 1:
        fewer = WORDS_AN_HOUR // (2 * client.num_words)
        raise UsageError.about(
            "--draws",
            f"{draws} makes {size}, which is some {hours:,.0f} hours of work. An hour is enough for --draws "
            f"{fewer}, and fewer --categories take less. Of the other mechanisms, those whose reports do not grow with "
            "K are quicker, such as --mechanism optimized-local-hashing. In Python, rrjax.audit.audit has no "
            "limit",
            value=draws,
        )
    if hours > 1 / 60:
        show.warn([f"{size}: this takes some {60 * hours:,.0f} minutes."])


def facts(audit: Audit) -> dict[str, object]:
    """The audit as fields of a JSON object."""
    events = [int(number) if isinstance(number, int) else str(number) for number in audit.event]
    return audit._asdict() | {"event": events, "violated": audit.violated, "powerless": audit.powerless}
