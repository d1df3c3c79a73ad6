"""Survey designs, and other randomizations whose likelihood has its maximum in closed form or nearly.

A design says how answers are randomized; counts of its answers give the true distribution back.
"""

from rrjax.surveys.design import Design
from rrjax.surveys.estimators import inv, mixture, mle
from rrjax.surveys.forced_response import ForcedResponse
from rrjax.surveys.groups import inv_groups, mixture_groups, mle_groups
from rrjax.surveys.inference import intervals, standard_errors
from rrjax.surveys.negative_question import NegativeQuestion
from rrjax.surveys.non_compliance import NonCompliance
from rrjax.surveys.unrelated_question import UnrelatedQuestion
from rrjax.surveys.warner import Warner

__all__ = [
    "Design",
    "ForcedResponse",
    "NegativeQuestion",
    "NonCompliance",
    "UnrelatedQuestion",
    "Warner",
    "intervals",
    "inv",
    "inv_groups",
    "mixture",
    "mixture_groups",
    "mle",
    "mle_groups",
    "standard_errors",
]
