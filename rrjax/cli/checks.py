"""Numbers: what makes sense of flags, and what to say of codes."""

from __future__ import annotations

from rrjax.data.errors import UsageError

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 36.0


def check_epsilon(epsilon: float) -> float:
    """Returns ε, or raises `UsageError` where it makes no sense for a collection."""
    refusal = None
    if not epsilon > 0:
        refusal = f"must be a positive number of nats, got {epsilon:g}"
    elif epsilon < SMALLEST_EPSILON:
        refusal = (
            f"{epsilon:g} is below {SMALLEST_EPSILON:g}: reports say nothing about the values then, not "
            "even those of two billion users. Is it in nats?"
        )
    elif epsilon > LARGEST_EPSILON:
        refusal = (
            f"{epsilon:g} is above {LARGEST_EPSILON:g}: no report would differ from its value, and nothing "
            "would be private. Is it in nats? (A common choice is 0.5 to 8.)"
        )
    if refusal is not None:
        raise UsageError(f"--epsilon {refusal}", flag="--epsilon", value=epsilon)
    return float(epsilon)


def check_rate(flag: str, value: float, *, small: bool = False) -> None:
    """Refuses a level or a rate that is no probability; a small one is the chance of an error."""
    if not 0 < value < 1:
        meant = 1 - value / 100 if small and value >= 50 else value / 100
        hint = f"; did you mean {meant:g}?" if (1 if small else 50) <= value < 100 else ""
        raise UsageError(f"{flag} must lie between 0 and 1, got {value:g}{hint}", flag=flag, value=value)


def padded(number: int, what: str) -> list[str]:
    """What to say of codes that are read as integers."""
    if not number:
        return []
    return [
        f"{number:,} {what}{'s are' if number > 1 else ' is'} written with leading zeros, as 007, and the domain is of "
        "integers, so that 007 counts as 7. Where zeros tell codes apart, give --domain a file of labels."
    ]
