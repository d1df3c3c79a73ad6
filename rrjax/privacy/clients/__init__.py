"""Randomization for real collection: exact integer probabilities and the operating system's random numbers.

NumPy alone, no JAX, and no floating point between the random bits and the report. Every mechanism has a client, made
by its name; the thresholds that its random words are compared with are rounded so that the ε delivered never exceeds
the ε asked for, and uniform choices are exactly uniform.
"""

from rrjax.privacy.clients.base import Client
from rrjax.privacy.clients.memo import Memo
from rrjax.privacy.clients.randomized_response import effective_epsilon, keep_threshold
from rrjax.privacy.clients.table import client, randomize

__all__ = ["Client", "Memo", "client", "effective_epsilon", "keep_threshold", "randomize"]
