"""Survey designs, and other randomizations whose likelihood has its maximum in closed form or nearly.

A design is the law by which answers are randomized. `mle` and `inv` estimate the true distribution from the counts of
its answers. `groups` has the same functions for users who randomized with different ε.
"""

from rrjax.mechanisms.surveys import groups
from rrjax.mechanisms.surveys.design import Design
from rrjax.mechanisms.surveys.designs import (
    ForcedResponse,
    MirroredQuestion,
    NegativeQuestion,
    NonCompliance,
    UnrelatedQuestion,
)
from rrjax.mechanisms.surveys.estimators import inv, mixture, mle

__all__ = [
    "Design",
    "ForcedResponse",
    "MirroredQuestion",
    "NegativeQuestion",
    "NonCompliance",
    "UnrelatedQuestion",
    "groups",
    "inv",
    "mixture",
    "mle",
]
