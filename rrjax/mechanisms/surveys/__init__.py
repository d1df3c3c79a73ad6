"""Survey designs, and other randomizations whose likelihood has its maximum in closed form or nearly.

A design says how answers are randomized; counts of its answers give the true distribution back.
"""

from rrjax.mechanisms.surveys.design import Design
from rrjax.mechanisms.surveys.estimators import inv, mixture, mle
from rrjax.mechanisms.surveys.forced_response import ForcedResponse
from rrjax.mechanisms.surveys.groups import inv_groups, mixture_groups, mle_groups
from rrjax.mechanisms.surveys.negative_question import NegativeQuestion
from rrjax.mechanisms.surveys.non_compliance import NonCompliance
from rrjax.mechanisms.surveys.unrelated_question import UnrelatedQuestion
from rrjax.mechanisms.surveys.warner import Warner

__all__ = [
    "Design",
    "ForcedResponse",
    "NegativeQuestion",
    "NonCompliance",
    "UnrelatedQuestion",
    "Warner",
    "inv",
    "inv_groups",
    "mixture",
    "mixture_groups",
    "mle",
    "mle_groups",
]
