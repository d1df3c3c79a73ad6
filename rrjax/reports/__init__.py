"""Reports with everything that is needed to use them, and what they answer.

`rrjax.read` makes `Reports` of files and data frames; their methods are questions, and an answer is a table, facts and
sentences for a notebook, a file or the terminal.
"""

from rrjax.reports.answer import Answer, Cells
from rrjax.reports.joint import JointShares
from rrjax.reports.pairs import Pairs
from rrjax.reports.reading import read as read
from rrjax.reports.reports import Reports as Reports
from rrjax.reports.separate_columns import SeparateColumns
from rrjax.reports.shares import Shares
from rrjax.reports.tree import Tree

__all__ = ["Answer", "Cells", "JointShares", "Pairs", "SeparateColumns", "Shares", "Tree"]
