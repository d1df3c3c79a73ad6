"""Exact estimation for randomized response and local differential privacy, on JAX.

Names are loaded when they are first used, so that `rrjax.secure` and `rrjax.io` work where JAX is not loaded: a client
that randomizes its own value needs NumPy alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrjax import (
        audit,
        catalogue,
        figures,
        inference,
        io,
        longitudinal,
        mechanisms,
        metrics,
        models,
        postprocessing,
        secure,
        shuffling,
        simulate,
        study,
        surveys,
    )
    from rrjax.counts import count
    from rrjax.cross_validation import cv_threshold
    from rrjax.em import EMResult, ibu, ibu_path
    from rrjax.estimators import inv, inv_n, inv_p, mle_star
    from rrjax.likelihood import Certificate, certificate, nll, score
    from rrjax.mechanisms import RandomizedResponse
    from rrjax.mixture import Mixture
    from rrjax.ordered import OrderedBayes, ordered_bayes
    from rrjax.shrinkage import EmpiricalBayes, empirical_bayes
    from rrjax.tally import Tally

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "EMResult",
    "EmpiricalBayes",
    "Mixture",
    "OrderedBayes",
    "RandomizedResponse",
    "Tally",
    "audit",
    "catalogue",
    "certificate",
    "count",
    "cv_threshold",
    "empirical_bayes",
    "figures",
    "ibu",
    "ibu_path",
    "inference",
    "inv",
    "inv_n",
    "inv_p",
    "io",
    "longitudinal",
    "mechanisms",
    "metrics",
    "mle_star",
    "models",
    "nll",
    "ordered_bayes",
    "postprocessing",
    "score",
    "secure",
    "shuffling",
    "simulate",
    "study",
    "surveys",
]

_HOME = {
    "Certificate": "likelihood",
    "EMResult": "em",
    "Mixture": "mixture",
    "RandomizedResponse": "mechanisms",
    "Tally": "tally",
    "certificate": "likelihood",
    "count": "counts",
    "cv_threshold": "cross_validation",
    "EmpiricalBayes": "shrinkage",
    "empirical_bayes": "shrinkage",
    "ibu": "em",
    "ibu_path": "em",
    "inv": "estimators",
    "inv_n": "estimators",
    "inv_p": "estimators",
    "OrderedBayes": "ordered",
    "mle_star": "estimators",
    "nll": "likelihood",
    "ordered_bayes": "ordered",
    "score": "likelihood",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"rrjax.{_HOME[name]}"), name)
    elif name in (*__all__, "plots"):
        value = import_module(f"rrjax.{name}")
    else:
        raise AttributeError(f"module 'rrjax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
