"""Clients for real collection: exact integer probabilities and the operating system's random numbers.

Clients need NumPy alone, no JAX, and use no floating point between the random bits and the report. Every mechanism has
a client, made by its name. Thresholds of the random words are rounded so that the ε delivered never exceeds the
requested ε, and uniform choices are exactly uniform.
"""

from rrjax.privacy.clients.base import Client
from rrjax.privacy.clients.longitudinal import Memo
from rrjax.privacy.clients.table import client

__all__ = ["Client", "Memo", "client"]
