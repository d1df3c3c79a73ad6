"""Monte Carlo studies: estimators compared over a grid of configurations, on every device, to the bit reproducible."""

from rrjax.data.errors import StudyError
from rrjax.study import paper
from rrjax.study.claims import Claim, check_claims
from rrjax.study.config import read_study
from rrjax.study.em_convergence import convergence
from rrjax.study.grid import Configuration
from rrjax.study.rankings import ranking, ranking_rows
from rrjax.study.report import write_report
from rrjax.study.runner import Progress
from rrjax.study.study import Study

__all__ = [
    "Claim",
    "Configuration",
    "Progress",
    "Study",
    "StudyError",
    "check_claims",
    "convergence",
    "paper",
    "ranking",
    "ranking_rows",
    "read_study",
    "write_report",
]
