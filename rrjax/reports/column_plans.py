"""Plans of several columns: how to spend ε on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rrjax import inference
from rrjax.data.errors import option, refusal
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells
from rrjax.reports.epsilon import check_epsilon
from rrjax.reports.plans import check_users
from rrjax.reports.reading import in_float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WAYS = {"all": "all columns", "sampled": "{}, drawn at random", "among fakes": "1, among fake answers"}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class ColumnPlan(Answer):
    """The expected errors of each way to spend ε on several columns."""

    written: ClassVar[str] = "All ways"
    page: ClassVar[str] = "choose/mechanism"

    num_categories: list[int]
    """K of each column."""
    epsilon: float
    num_users: int
    ways: list[inference.SplitErrors]
    """The ways, the one with the smallest error of a share first."""

    @property
    def title(self) -> str:
        return (
            f"Errors of {len(self.num_categories)} columns: {self._sizes}, ε = {self.epsilon:.4g} nats for all of "
            f"them, N = {self.num_users:,}"
        )

    @property
    def _sizes(self):
        return f"K = {', '.join(f'{size:,}' for size in self.num_categories)}"

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A row for each way: name, number of columns a user reports, ε of each, errors of a share and of a cell."""
        return {name: np.array([getattr(way, name) for way in self.ways]) for name in self.ways[0]._fields}

    @property
    def facts(self) -> dict[str, Any]:
        return {"columns": self.num_categories, "epsilon": self.epsilon, "num_users": self.num_users}

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        return {"ways": [way._asdict() for way in self.ways]}

    @property
    def warnings(self) -> list[str]:
        return []

    def cells(self, top: int = SHOWN) -> Cells:
        rows = [
            [
                WAYS[way.name].format(way.number),
                f"{way.epsilon:.4g}",
                form.percent(way.share),
                form.percent(way.cell) if np.isfinite(way.cell) else "unknown",
            ]
            for way in self.ways
        ]
        return Cells(["a user reports", "ε of each", "error of a share", "error of a cell"], rows)

    @property
    def sentences(self) -> list[str]:
        alone, together = self.ways[0], min(self.ways, key=lambda way: way.cell)
        return [
            "Errors: root mean squared, of unbiased estimates of the population, where shares are equal and columns "
            "independent; a cell is one in the table of two columns.",
            f"`rrjax randomize --apart`: for single columns {_flag(alone)}; to see how columns go together "
            f"{_flag(together)}.",
        ]

    @property
    def words(self) -> dict[str, str]:
        return {
            "all columns": "every user reports every column, each with an equal part of ε",
            "at random": "every user reports some of the columns, drawn at random, each with an equal part of ε",
            "fake answers": "every user reports one column, drawn at random, with all of ε; the answers in the other "
            "columns are made up, so that the report does not tell which column it is (RS+FD)",
        }

    def figure(self, ax: Axes | None = None) -> Figure:
        """The errors of each way against ε."""
        from rrjax.figures import splits_figure
        from rrjax.figures.axes import refuse_axes

        refuse_axes(ax)
        title = f"{self._sizes}; {form.number(self.num_users, 'user', 'users')}"
        return splits_figure(self.num_categories, self.epsilon, self.num_users, title=title)


def _flag(way: inference.SplitErrors) -> str:
    return f"--columns-per-user {way.number}" if way.name == "sampled" else "all of them from each user"


@in_float64
def plan_columns(num_categories: Sequence[int], epsilon: float, num_users: int) -> ColumnPlan:
    """Compares the ways to spend ε on several columns.

    Args:
        num_categories: K of each column, two columns or more.
        epsilon: ε of everything that a user reports, nats.
        num_users: N.

    Returns:
        `ColumnPlan`, computed by `rrjax.inference.compare_splits`.

    Raises:
        ArgumentError: Fewer than two columns, or K, ε or N that no collection can have.

    Example:
        >>> import rrjax
        >>> best = rrjax.reports.plan_columns([4, 10, 16], 2.0, 50_000).ways[0]
        >>> best.name, best.number
        ('sampled', 1)
    """
    sizes = list(num_categories)
    if len(sizes) < 2 or not all(isinstance(size, int) and 2 <= size < 2**31 for size in sizes):
        problem = "give the number of categories of each of two columns or more, at least 2, such as 4,10,16"
        given = ",".join(map(str, sizes))
        named = option("num_categories", "--columns")
        raise refusal("num_categories", f"{named} {given}: {problem}", flag="--columns", value=given)
    check_users(num_users)
    epsilon = check_epsilon(epsilon)
    return ColumnPlan(sizes, epsilon, num_users, inference.compare_splits(sizes, num_users, epsilon))
