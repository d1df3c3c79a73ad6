"""The Chow–Liu tree of columns that were randomized separately, and the test of its fit."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rrjax import inference
from rrjax.data.arguments import as_probability
from rrjax.data.errors import for_commands, option, refusal
from rrjax.reports.answer import SHOWN, Cells
from rrjax.reports.pairs import (
    OfColumns,
    all_pairs,
    association,
    cells_of_pair,
    figure_title,
    headings,
    named,
    p_text,
    pair_of,
    words_of_association,
)
from rrjax.reports.reading import in_float64
from rrjax.reports.separate_columns import MOST_CELLS, SeparateColumns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FIT_DRAWS, LEAST_FIT_DRAWS = 499, 99
MOST_DRAWN_VALUES = 1 << 29
"""Limit of the number of users × columns × draws of the test of fit, some 50 ns each, above the least draws."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Tree(OfColumns):
    """The tree of the strongest pairs of columns (Chow–Liu), its edges with their association, and the test of fit."""

    written = "Tables of the pairs"
    stated = ("edges", "fit")

    tree: inference.ChowLiuTree
    """The distribution of all columns."""
    edges: list[dict[str, Any]]
    """Of each edge, the strongest first, its columns, their association and intervals, as in JSON."""
    tables: dict[tuple[int, int], np.ndarray]
    """The joint table of each edge, by the numbers of its columns."""
    fit: dict[str, Any] | None
    """The test of the tree by the other pairs, as in JSON; None for two columns."""

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A row for each cell of each edge: column_1, column_2, label_1, label_2, share."""
        known, parts = self.reports.metadata, []
        for edge, shares in self.tables.items():
            places = np.indices(shares.shape).reshape(2, -1)
            ends = [known[place] for place in edge]
            labels = [[str(each) for each in own.domain.labels()[at]] for own, at in zip(ends, places, strict=True)]
            parts.append([*(np.full(shares.size, own.column, object) for own in ends), *labels, shares.ravel()])
        one, two, *labels, shares = (np.concatenate(part) for part in zip(*parts, strict=True))
        first, second = (np.asarray(each, object) for each in labels)
        found = {"column_1": one, "column_2": two, "label_1": first, "label_2": second, "share": shares}
        return self.reports.table(found)

    @property
    def sentences(self) -> list[str]:
        said = [
            "The tree of the strongest pairs (Chow–Liu): other columns depend on each other only through the columns "
            "between them."
        ]
        if self.fit is not None and self.fit["pairs"]:
            least, draws = self.fit["pairs"][0], self.fit["num_draws"]
            p, p_least = (p_text(each["p_value"], draws) for each in (self.fit, least))
            said += [
                f"p of the fit {p}: how likely so large a deviation of the other pairs would be if the tree were true; "
                "a small p says that the tree lacks something.",
                f"It fits {named(least)} least (p of this pair {p_least}, not corrected for the number of pairs).",
            ]
        return said

    @property
    def words(self) -> dict[str, str]:
        return words_of_association(self.level)

    def cells(self, top: int = SHOWN) -> Cells:
        del top
        return Cells(headings(self.level), [*map(cells_of_pair, self.edges)], width=None)

    def figure(self, ax: Axes | None = None) -> Figure:
        """The tree: columns joined by edges with their Cramér's V."""
        from rrjax.figures import tree_figure

        edges = {tuple(edge["columns"]): edge["cramers_v"] for edge in self.edges}
        return tree_figure(self.reports.names, edges, title=figure_title(self.reports), ax=ax)


@in_float64
def tree_of(columns: SeparateColumns, level: float) -> Tree:
    """See `SeparateColumns.tree`."""
    as_probability(level, "level", 0.95)
    for names, product, _ in all_pairs(columns):
        if product.num_categories > MOST_CELLS:
            raise refusal(
                "columns",
                f"{for_commands('--tree: ')}the table of {' × '.join(map(repr, names))} has "
                f"{product.num_categories:,} cells, and the limit is {MOST_CELLS:,}: name the other columns with "
                f"{option('columns', '--joint')}",
                flag="--tree",
            )
    tree = inference.chow_liu_tree(columns.reports, columns.mechanism)
    tables = {}
    for edge, table in zip(tree.edges, tree.tables, strict=True):
        # The column that comes first in the file first.
        tables[tuple(sorted(edge))] = np.asarray(table) if edge[0] < edge[1] else np.asarray(table).T
    tables = dict(sorted(tables.items(), key=lambda each: -float(inference.mutual_information(each[1]))))
    edges = [association(*pair_of(columns, edge), level, tested=False) for edge in tables]
    fit = _fit(columns, tree)
    # Arrays of NumPy, which callers can use in another precision.
    return Tree(columns, level, jax.tree.map(np.asarray, tree), edges, tables, fit)


def _fit(columns: SeparateColumns, tree: inference.ChowLiuTree) -> dict[str, Any] | None:
    """The test of fit, and its pairs, the one that fits least first; None for two columns."""
    number, reports = len(columns.names), columns.reports
    if number < 3:
        return None
    draws = MOST_DRAWN_VALUES // (len(reports[0]) * number)
    draws = min(MOST_FIT_DRAWS, max(LEAST_FIT_DRAWS, draws))
    found = inference.tree_fit_test(jax.random.key(0), reports, tree, columns.mechanism, num_draws=draws)
    statistics, p_values = (np.asarray(each) for each in (found.pair_statistics, found.pair_p_values))
    pairs = [
        {
            "columns": [columns.names[place] for place in pair],
            "statistic": float(statistics[pair]),
            "p_value": float(p_values[pair]),
        }
        for pair in itertools.combinations(range(number), 2)
        if not np.isnan(p_values[pair])
    ]
    pairs.sort(key=lambda pair: (pair["p_value"], -pair["statistic"]))
    totals = {"p_value": float(found.p_value), "statistic": float(found.statistic)}
    return totals | {"num_draws": draws, "pairs": pairs}
