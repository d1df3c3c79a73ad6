"""Several columns of the same users that were randomized separately, as one kind of reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rrjax.data.errors import check_rate, for_callers, for_commands, option, refusal
from rrjax.io.labels import listed_in
from rrjax.io.metadata import Metadata
from rrjax.io.source import Source
from rrjax.mechanisms import Product
from rrjax.reports import form
from rrjax.reports.kind import Kind
from rrjax.reports.reading import in_float64, read_source
from rrjax.reports.reports import Reports

if TYPE_CHECKING:
    from rrjax.reports.association import JointShares, Pairs, Tree

MOST_CELLS = 1 << 21
"""Limit of the number of cells of a joint table."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class SeparateColumns(Kind):
    """Reports of several columns of the same users, each column randomized separately.

    `rrjax.read` makes them of a file of `rrjax randomize --apart`, and reads a column when a question needs it. Methods
    are questions, which compute in float64 and change no setting.

    Example:
        >>> import rrjax
        >>> rrjax.reports.SeparateColumns.questions()
        ['joint', 'pairs', 'tree']
    """

    called_kind: ClassVar[str] = "reports of columns that were randomized apart"
    instead: ClassVar[str] = "name one with --column"

    source: Source
    names: tuple[str, ...]
    """The columns, in the order of the file or of the question."""
    loaded: dict[str, Reports] = dataclasses.field(default_factory=dict)
    """The reports of the single columns that were read already."""

    @classmethod
    def of_source(cls, source: Source, flag: str = "REPORTS") -> SeparateColumns:
        """All columns of reports that files have."""
        known = source.columns()
        if len(known) < 2:
            raise refusal(
                "data",
                f"{Path(source.files()[0]).name} has no columns that were randomized apart: `rrjax randomize --apart` "
                "makes such files",
                flag=flag,
            )
        return cls(source, tuple(known))

    @in_float64
    def column(self, name: str) -> Reports:
        """The reports of one column.

        Raises:
            DataError: There is no such column, or it cannot be used.
        """
        if name not in self.loaded:
            self.loaded[name] = read_source(dataclasses.replace(self.source, column=name), None, None)
            self.source.check_unchanged()  # its metadata were read with the first column
        return self.loaded[name]

    def about(self, columns: str | Sequence[str] | None, flag: str) -> SeparateColumns:
        """The columns that a question is about; None are all."""
        given = listed_in("--joint", columns) if isinstance(columns, str) else columns
        names = self.names if given is None else tuple(given)
        odd = next((name for name in names if name not in self.names or names.count(name) > 1), None)
        if odd is not None or len(names) < 2:
            problem = "name two columns or more"
            if odd is not None:
                known = f"none of {', '.join(map(repr, self.names))}"
                problem = f"{odd!r} is {'named twice' if odd in self.names else known}"
            raise refusal("columns", f"{option('columns', '--joint')}: {problem}", flag="--joint", value=columns)
        each = self.sampled or len(names)
        if each < (len(names) if flag == "--joint" else 2):
            others = f"a {for_commands('--')}tree, or {for_commands('--all-pairs')}{for_callers('all pairs')}"
            raise refusal(
                "columns",
                f"each user of {self.name} reports {form.number(each, 'column', 'columns')}, drawn at random: how more "
                "of them go together is not in the reports. Estimate "
                + (f"each with {option('column')}" if each == 1 else f"the joint distribution of {each}, {others}"),
                flag=flag,
                value=columns,
            )
        chosen = self if names == self.names else SeparateColumns(self.source, names, self.loaded)
        _ = chosen.warnings  # tested with the question, not where the answer is shown
        return chosen

    @property
    def metadata(self) -> list[Metadata]:
        """How each column was randomized."""
        known = self.source.columns()
        return [known[name] for name in self.names]

    @cached_property
    def reports(self) -> list[np.ndarray]:
        """For each column `[N]`, the reports of all users, −1 where one is missing."""
        return [self.column(name).reports("a joint distribution") for name in self.names]

    @property
    def mechanism(self) -> Product:
        """The mechanisms of the columns."""
        return Product(tuple(self.column(name).mechanism for name in self.names))

    @cached_property
    def num_users(self) -> int:
        """The number of users with a report in any column."""
        return int(np.logical_or.reduce([each >= 0 for each in self.reports]).sum())

    @cached_property
    def num_complete(self) -> int:
        """The number of users with a report in every column."""
        return int(np.logical_and.reduce([each >= 0 for each in self.reports]).sum())

    @property
    def is_partial(self) -> bool:
        """Whether some users have a report in some of the columns only."""
        return self.num_complete < self.num_users

    @property
    def sampled(self) -> int | None:
        """How many columns, drawn at random, each user reports; None if all."""
        return self.metadata[0].sampled

    @property
    def simulated(self) -> bool:
        return any(each.simulated for each in self.metadata)

    @property
    def epsilon(self) -> float:
        """The ε of all reports of a user in these columns, nats."""
        return epsilon_of_user([each.epsilon for each in self.metadata], self.sampled)

    @cached_property
    def warnings(self) -> list[str]:
        """Those that all columns have once, among them whether they contradict their mechanisms; others by column."""
        own = {name: self.column(name) for name in self.names}
        for each in own.values():
            _ = each.contradicted  # tested once, and warned of
        first, *others = (each.warnings for each in own.values())
        common = [warning for warning in first if all(warning in each for each in others)]
        return common + [
            f"{form.printable(name)}: {warning}"
            for name, each in own.items()
            for warning in each.warnings
            if warning not in common
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "reports": self.paths,
            "columns": list(self.names),
            "num_reports": self.num_users,
            "num_complete": self.num_complete,
            "epsilon": self.epsilon,
            "simulated": self.simulated,
            "warnings": self.warnings,
        }

    def joint(self, columns: str | Sequence[str] | None = None, level: float = 0.95) -> JointShares:
        """Estimates the joint distribution of columns; of two also their association.

        Args:
            columns: Their names, also in one text with commas; None are all.
            level: Confidence level of the intervals of the association, in (0, 1).

        Returns:
            `JointShares`, computed in float64.

        Raises:
            ArgumentError, UsageError: Columns that there are not, that no user reports together, or with too large a
                joint table; a level outside of (0, 1).
        """
        from rrjax.reports.association import joint_of

        check_rate("level", level)
        return joint_of(self.about(columns, "--joint"), level)

    def pairs(self, *, level: float = 0.95) -> Pairs:
        """Estimates the association of all pairs of columns, and tests their independence.

        Args:
            level: Confidence level of the intervals, in (0, 1).

        Returns:
            `Pairs`, computed in float64.

        Raises:
            ArgumentError, UsageError: Each user reports one column; a level outside of (0, 1).
        """
        from rrjax.reports.association import pairs_of

        check_rate("level", level)
        return pairs_of(self.about(None, "--all-pairs"), level)

    def tree(self, columns: str | Sequence[str] | None = None, level: float = 0.95) -> Tree:
        """Estimates a tree of the strongest pairs (Chow–Liu), without the joint table.

        Args:
            columns: Their names, also in one text with commas; None are all.
            level: Confidence level of the intervals of the association of its edges, in (0, 1).

        Returns:
            `Tree`, computed in float64.

        Raises:
            ArgumentError, UsageError: Columns that there are not, or a pair with too large a table; each user reports
                one column; a level outside of (0, 1).
        """
        from rrjax.reports.association import tree_of

        check_rate("level", level)
        return tree_of(self.about(columns, "--tree"), level)

    def summary(self) -> str:
        complete = self.num_complete
        some = f", {complete:,} of them in all of these" if self.is_partial and complete else ""
        if self.sampled is not None and not complete:
            some = f", each in {self.sampled:,} columns, drawn at random"
        named = ", ".join(f"{each.column!r} ({each.num_categories:,})" for each in self.metadata)
        return (
            f"Reports of {self.num_users:,} users in the columns {named}, randomized apart{some}; ε = "
            f"{self.epsilon:.6g} nats for these columns together"
        )


def epsilon_of_user(epsilons: Sequence[float], sampled: int | None) -> float:
    """The ε of what a user reports in some columns: of all, or of the `sampled` largest."""
    return math.fsum(sorted(epsilons)[-(sampled or len(epsilons)) :])
