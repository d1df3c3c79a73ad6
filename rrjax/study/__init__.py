"""Monte Carlo studies: estimators compared over a grid of configurations, on every device, to the bit reproducible."""

from rrjax.study.errors import StudyError
from rrjax.study.grid import ESTIMATORS, METRICS, Configuration, Study
from rrjax.study.runner import Progress

__all__ = ["ESTIMATORS", "METRICS", "Configuration", "Progress", "Study", "StudyError"]
