"""Monte Carlo studies: estimators compared over a grid of configurations, reproducible to the bit on any devices."""

from rrjax.data.errors import StudyError
from rrjax.study import paper
from rrjax.study.mechanisms import JointCounts
from rrjax.study.paper import convergence
from rrjax.study.report import ranking, ranking_rows, write_report
from rrjax.study.study import Study, read_study

__all__ = [
    "JointCounts",
    "Study",
    "StudyError",
    "convergence",
    "paper",
    "ranking",
    "ranking_rows",
    "read_study",
    "write_report",
]
