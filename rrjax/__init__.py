"""Exact estimation for randomized response and local differential privacy, on JAX."""

from rrjax import metrics, secure, simulate
from rrjax.counts import count
from rrjax.em import EMResult, ibu, ibu_path
from rrjax.estimators import inv, inv_n, inv_p, mle_star
from rrjax.likelihood import Certificate, certificate, nll, score
from rrjax.mechanism import RandomizedResponse

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "EMResult",
    "RandomizedResponse",
    "certificate",
    "count",
    "ibu",
    "ibu_path",
    "inv",
    "inv_n",
    "inv_p",
    "metrics",
    "mle_star",
    "nll",
    "score",
    "secure",
    "simulate",
]
