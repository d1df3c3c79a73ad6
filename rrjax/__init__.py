"""Exact estimation for randomized response and local differential privacy, on JAX.

Names are loaded when they are first used, so that `rrjax.secure` and `rrjax.io` work where JAX is not loaded: a client
that randomizes its own value needs NumPy alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrjax import figures, inference, io, mechanisms, models, reports, simulate, study
    from rrjax.data import errors
    from rrjax.data.mixture import Mixture
    from rrjax.data.tally import Tally, count
    from rrjax.estimators import catalogue, metrics, postprocessing
    from rrjax.estimators.closed_form import inv, inv_n, inv_p, mle_star
    from rrjax.estimators.em import EMResult, ibu, ibu_path
    from rrjax.estimators.empirical_bayes import EmpiricalBayes, OrderedBayes, empirical_bayes, ordered_bayes
    from rrjax.estimators.laplace import JointBayes, SmoothBayes, joint_bayes, smooth_bayes
    from rrjax.estimators.likelihood import Certificate, certificate, nll, score
    from rrjax.estimators.maximum_likelihood import mle
    from rrjax.mechanisms import RandomizedResponse, longitudinal, surveys
    from rrjax.privacy import audit, shuffling
    from rrjax.privacy import clients as secure
    from rrjax.reports import Reports, plan, read

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "EMResult",
    "EmpiricalBayes",
    "JointBayes",
    "Mixture",
    "OrderedBayes",
    "RandomizedResponse",
    "Reports",
    "SmoothBayes",
    "Tally",
    "audit",
    "catalogue",
    "certificate",
    "count",
    "empirical_bayes",
    "errors",
    "figures",
    "ibu",
    "ibu_path",
    "inference",
    "inv",
    "inv_n",
    "inv_p",
    "io",
    "joint_bayes",
    "longitudinal",
    "mechanisms",
    "metrics",
    "mle",
    "mle_star",
    "models",
    "nll",
    "ordered_bayes",
    "plan",
    "postprocessing",
    "read",
    "reports",
    "score",
    "secure",
    "shuffling",
    "simulate",
    "smooth_bayes",
    "study",
    "surveys",
]

_NAMES = {
    "data.mixture": ("Mixture",),
    "data.tally": ("Tally", "count"),
    "estimators.closed_form": ("inv", "inv_n", "inv_p", "mle_star"),
    "estimators.em": ("EMResult", "ibu", "ibu_path"),
    "estimators.empirical_bayes": ("EmpiricalBayes", "OrderedBayes", "empirical_bayes", "ordered_bayes"),
    "estimators.laplace": ("JointBayes", "SmoothBayes", "joint_bayes", "smooth_bayes"),
    "estimators.likelihood": ("Certificate", "certificate", "nll", "score"),
    "estimators.maximum_likelihood": ("mle",),
    "mechanisms": ("RandomizedResponse",),
    "reports": ("Reports", "plan", "read"),
}
"""The names of each module."""
_MODULES = {
    "audit": "privacy.audit",
    "catalogue": "estimators.catalogue",
    "errors": "data.errors",
    "longitudinal": "mechanisms.longitudinal",
    "metrics": "estimators.metrics",
    "postprocessing": "estimators.postprocessing",
    "secure": "privacy.clients",
    "shuffling": "privacy.shuffling",
    "surveys": "mechanisms.surveys",
}
"""What is called by a shorter name than that of its file."""


def __getattr__(name: str) -> Any:
    if module := next((module for module, names in _NAMES.items() if name in names), None):
        value = getattr(import_module(f"rrjax.{module}"), name)
    elif name in __all__:
        value = import_module(f"rrjax.{_MODULES.get(name, name)}")
    else:
        raise AttributeError(f"module 'rrjax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__version__"])
