"""`rrjax estimate --tree`: the Chow–Liu tree of columns that were randomized apart, and the test of its fit."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np

from rrjax import inference, io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once
from rrjax.cli.joint import (
    MOST_CELLS,
    Columns,
    Joint,
    association_facts,
    chosen_columns,
    read_columns,
    show_head,
    warnings_of,
    written,
)
from rrjax.cli.options import Output
from rrjax.cli.reading import Files
from rrjax.data.errors import UsageError
from rrjax.reports import form

MOST_FIT_DRAWS, LEAST_FIT_DRAWS = 499, 99
MOST_DRAWN_VALUES = 1 << 29
"""Limit of the number of users × columns × draws of the test of fit, some 50 ns each, above the least draws."""


@ending_at_once()
def run(files: Files, joint: Joint, level: float, output: Output) -> None:
    """Estimates the tree and prints it."""
    chosen = chosen_columns(files, joint)
    with show.status("Counting …") as status:
        columns = read_columns(files, chosen)
        for place in itertools.combinations(range(len(chosen)), 2):
            _check_size(columns.pair(place))
        status.update("Estimating …")
        tree = inference.chow_liu_tree(columns.reports, columns.product)
        tables = {
            tuple(sorted(edge)): _upright(edge, table) for edge, table in zip(tree.edges, tree.tables, strict=True)
        }
        tables = dict(sorted(tables.items(), key=lambda each: -float(inference.mutual_information(each[1]))))
        pairs = map(columns.pair, tables)
        edges = [association_facts(pair, pair.product.count(pair.reports), level) for pair in pairs]
        status.update("Testing …")
        fit = _fit(columns, tree)
    if output.out is not None:
        io.write_table(output.out, _rows(columns, tables))
    if output.json:
        facts = {"command": "estimate", **columns.numbers, "level": level, "edges": edges, "fit": fit}
        show.record(facts | output.files)
        return
    show_head(columns, warnings_of(columns))
    table = show.table("columns", "Cramér's V", form.interval(level), "mutual information")
    for edge in edges:
        value, limits = written(edge, "cramers_v", 3)
        table.add_row(_named(edge), value, limits.replace("to", "–"), written(edge, "mutual_information", 4)[0])
    show.show_table(table)
    show.out.print()
    show.say(
        "The tree of the strongest pairs (Chow–Liu): other columns depend on each other only through the columns "
        "between them."
    )
    for sentence in _of_fit(fit):
        show.say(sentence)
    show.show_files({"Tables of the pairs": output.out})


def _upright(edge: tuple[int, int], table: Any) -> np.ndarray:
    """The table of an edge, the column that comes first in the file first."""
    return np.asarray(table) if edge[0] < edge[1] else np.asarray(table).T


def _check_size(pair: Columns) -> None:
    cells = pair.product.num_categories
    if cells > MOST_CELLS:
        raise UsageError(
            f"--tree: the table of {' × '.join(map(repr, pair.names))} has {cells:,} cells, and the limit is "
            f"{MOST_CELLS:,}: name the other columns with --joint",
            flag="--tree",
        )


def _fit(columns: Columns, tree: inference.ChowLiuTree) -> dict[str, Any] | None:
    """The test of fit, and its pairs, the one that fits least first; None for two columns."""
    number = len(columns.names)
    if number < 3:
        return None
    draws = MOST_DRAWN_VALUES // (len(columns.reports[0]) * number)
    draws = min(MOST_FIT_DRAWS, max(LEAST_FIT_DRAWS, draws))
    found = inference.tree_fit_test(jax.random.key(0), columns.reports, tree, columns.product, num_draws=draws)
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
    return {
        "p_value": float(found.p_value),
        "statistic": float(found.statistic),
        "num_draws": draws,
        "pairs": pairs,
    }


def _of_fit(fit: dict[str, Any] | None) -> list[str]:
    if fit is None or not fit["pairs"]:
        return []
    least = fit["pairs"][0]
    return [
        f"p of the fit {fit['p_value']:.2g}: how likely so large a deviation of the other pairs would be if the tree "
        "were true; a small p says that the tree lacks something.",
        f"It fits {_named(least)} least (p of this pair {least['p_value']:.2g}, not corrected for the number of "
        "pairs).",
    ]


def _named(pair: dict[str, Any]) -> str:
    return " × ".join(map(form.printable, pair["columns"]))


def _rows(columns: Columns, tables: dict[tuple[int, ...], np.ndarray]) -> dict[str, np.ndarray]:
    """A row for each cell of each edge."""
    labels = [np.asarray([str(each) for each in own.domain.labels()], object) for own in columns.metadata]
    found: dict[str, list[np.ndarray]] = {}
    for edge, shares in tables.items():
        places = np.indices(shares.shape).reshape(2, -1)
        own = {f"column_{k + 1}": np.full(shares.size, columns.names[edge[k]], object) for k in (0, 1)}
        own |= {f"label_{k + 1}": labels[edge[k]][places[k]] for k in (0, 1)}
        for name, each in (own | {"share": shares.ravel()}).items():
            found.setdefault(name, []).append(each)
    return {name: np.concatenate(parts) for name, parts in found.items()}
