"""Mechanisms of local differential privacy: how reports are made, counted, and what they say."""

from rrjax.mechanisms.protocol import Design, Mechanism
from rrjax.mechanisms.randomized_response import RandomizedResponse

MECHANISMS: dict[str, type[Mechanism]] = {kind.name: kind for kind in (RandomizedResponse,)}
"""All of them, by the names that files and the command line use."""

__all__ = ["MECHANISMS", "Design", "Mechanism", "RandomizedResponse"]
