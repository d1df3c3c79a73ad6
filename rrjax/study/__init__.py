"""Monte Carlo studies: estimators compared over a grid of configurations, on every device, to the bit reproducible."""

from rrjax.study.errors import StudyError
from rrjax.study.grid import Configuration
from rrjax.study.runner import Progress
from rrjax.study.study import Study

__all__ = ["Configuration", "Progress", "Study", "StudyError"]
