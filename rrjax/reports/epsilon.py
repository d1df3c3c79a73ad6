"""Which ε a collection can have."""

from __future__ import annotations

from rrjax.data.errors import option, refusal

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 36.0
"""Limits of the ε of a collection, nats."""


def check_epsilon(epsilon: float) -> float:
    """Returns ε; refuses one that no collection can have."""
    problem = None
    try:
        epsilon = float(epsilon)
    except (TypeError, ValueError):
        raise refusal(
            "epsilon", f"{option('epsilon')} must be a number of nats, got {epsilon!r}", value=epsilon
        ) from None
    if not epsilon > 0:
        problem = f"must be a positive number of nats, got {epsilon:g}"
    elif epsilon < SMALLEST_EPSILON:
        problem = (
            f"{epsilon:g} is below {SMALLEST_EPSILON:g}: reports say nothing about the values then, not "
            "even those of two billion users. Is it in nats?"
        )
    elif epsilon > LARGEST_EPSILON:
        problem = (
            f"{epsilon:g} is above {LARGEST_EPSILON:g}: no report would differ from its value, and nothing "
            "would be private. Is it in nats? (A common choice is 0.5 to 8.)"
        )
    if problem is not None:
        raise refusal("epsilon", f"{option('epsilon')} {problem}", value=epsilon)
    return float(epsilon)
