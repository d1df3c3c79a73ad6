"""Survey designs: mechanisms by which respondents randomize their answers themselves, with dice, cards or questions.

`groups` estimates from users who randomized with different ε.
"""

from rrjax.mechanisms.surveys import groups
from rrjax.mechanisms.surveys.design import Design
from rrjax.mechanisms.surveys.negative_question import NegativeQuestion
from rrjax.mechanisms.surveys.non_compliance import NonCompliance
from rrjax.mechanisms.surveys.replacing import ForcedResponse, UnrelatedQuestion
from rrjax.mechanisms.surveys.yes_or_no import Crosswise, Kuk, Mangat, Triangular, Warner

__all__ = [
    "Crosswise",
    "Design",
    "ForcedResponse",
    "Kuk",
    "Mangat",
    "NegativeQuestion",
    "NonCompliance",
    "Triangular",
    "UnrelatedQuestion",
    "Warner",
    "groups",
]
