"""The joint distribution of columns that were randomized separately."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

import rrjax
from rrjax.data.arguments import as_probability
from rrjax.data.errors import check_installed, for_callers, for_commands, option, refusal
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Cells
from rrjax.reports.estimates import largest_of
from rrjax.reports.pairs import (
    MEASURES,
    OfColumns,
    association,
    figure_title,
    measured,
    p_of_independence,
    words_of_association,
)
from rrjax.reports.reading import in_float64
from rrjax.reports.separate_columns import MOST_CELLS, SeparateColumns

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DENSE_CELLS = 512
"""Number of cells up to which there is a closest estimate, and the maximum is found with a matrix of them."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class JointShares(OfColumns):
    """The joint distribution of columns: the closest, the likeliest and the unbiased estimate of each cell."""

    written = "All cells"
    stated = ("num_cells", "gap", "converged", "association")

    shares: dict[str, np.ndarray]
    """The estimates that are distributions, by name: closest, up to 512 cells, and likeliest; the first column varies
    slowest."""
    unbiased: np.ndarray
    """The unbiased estimate of each cell."""
    standard_error: np.ndarray
    """Its standard error, NaN where the reports do not tell it."""
    gap: float
    """The certified distance of the likeliest estimate from the largest log-likelihood, nats per report."""
    converged: bool
    """Whether the gap reached the tolerance."""
    association: dict[str, Any] | None
    """Of two columns: the association, its intervals and the p-value of independence, as in JSON."""

    @property
    def num_cells(self) -> int:
        """The number of cells of the table."""
        return self.unbiased.size

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of categories of each column."""
        return tuple(each.num_categories for each in self.reports.metadata)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A row for each cell: its label in each column, the estimates, and a standard error."""
        return self.reports.table(self._labels(np.arange(self.num_cells)) | self._numbers)

    @property
    def _numbers(self):
        return self.shares | {"unbiased": self.unbiased, "standard_error": self.standard_error}

    @property
    def _leading(self):
        return next(iter(self.shares.values()))

    def _labels(self, cells):
        """The labels of some cells, by column."""
        places = np.unravel_index(cells, self.shape)
        return {
            each.column: np.asarray([*map(str, each.domain.labels()[place])], object)
            for each, place in zip(self.reports.metadata, places, strict=True)
        }

    @property
    def _notes(self):
        notes = {
            "closest": "how much the columns interact is estimated, too; it has no standard error",
            "likeliest": f"within {form.at_most(self.gap)} nats per report of the maximum",
        }
        of = ", from those who report all" * self.reports.is_partial
        return {name: notes[name] for name in self.shares} | {"unbiased": f"by inversion{of}, with its standard error"}

    @property
    def sentences(self) -> list[str]:
        said = ["; ".join(f"{name}: {note}" for name, note in self._notes.items()) + "."]
        if self.association is not None:
            measures = MEASURES | ({"odds ratio": ("odds_ratio", 2)} if self.shape == (2, 2) else {})
            found = {title: measured(self.association, *each) for title, each in measures.items()}
            listed = [f"{title} {value} ({limits.replace('–', 'to')})" for title, (value, limits) in found.items()]
            said.append(
                f"{', '.join(listed)}, corrected for noise, with {form.in_full(self.level)} intervals; p of "
                f"independence {p_of_independence(self.association)}."
            )
        return said

    @property
    def cautions(self) -> list[str]:
        return [] if self.converged else ["The likeliest table did not converge; believe the unbiased one."]

    @property
    def words(self) -> dict[str, str]:
        return self._notes | ({} if self.association is None else words_of_association(self.level))

    def cells(self, top: int = SHOWN) -> Cells:
        largest = largest_of(self._leading, top)
        labels, rows = self._labels(largest), []
        for row, cell in enumerate(largest):
            found = [form.share(each[cell]) for each in self.shares.values()]
            error = self.standard_error[cell]
            found += [form.percent(self.unbiased[cell]), "" if np.isnan(error) else form.percent(error)]
            rows.append([*(form.printable(own[row]) for own in labels.values()), *found])
        titles = [*map(form.printable, labels), *self.shares, "unbiased", "std. error"]
        left = self.num_cells - len(largest)
        rest = f"… and {form.number(left, 'more cell', 'more cells')} with "
        rest += f"{form.percent(1 - float(self._leading[largest].sum()))} together"
        return Cells(titles, rows, rest if left else "", names=len(labels), width=None)

    def rows(self, top: int = SHOWN) -> dict[str, list[dict[str, Any]]]:
        largest = largest_of(self._leading, top)
        labels = zip(*self._labels(largest).values(), strict=True)
        return {
            "top": [
                {"labels": list(own), "closest": None} | {name: each[cell] for name, each in self._numbers.items()}
                for own, cell in zip(labels, largest, strict=True)
            ]
        }

    def figure(self, ax: Axes | None = None) -> Figure:
        """The joint table of two columns as a heat map of the leading estimate.

        Raises:
            ArgumentError, UsageError: There are more columns.
        """
        from rrjax.figures import joint_figure

        if len(self.shape) > 2:
            raise refusal("plot", f"{option('plot', '--plot')}: a joint table is drawn of two columns; these are more")
        labels = [each.domain.labels().tolist() for each in self.reports.metadata]
        title = f"{figure_title(self.reports)}; {next(iter(self.shares))} estimate"
        return joint_figure(self.reports.names, labels, self._leading.reshape(self.shape), title=title, ax=ax)

    def to_xarray(self) -> xarray.Dataset:
        """The joint table as a dataset of xarray, with a dimension for each column.

        Raises:
            MissingPackage: xarray is not installed.
        """
        check_installed("study", "A dataset of xarray", "xarray")
        import xarray

        names = self.reports.names
        variables = {name: (names, each.reshape(self.shape)) for name, each in self._numbers.items()}
        return xarray.Dataset(variables, {each.column: each.domain.labels() for each in self.reports.metadata})


@in_float64
def joint_of(columns: SeparateColumns, level: float) -> JointShares:
    """See `SeparateColumns.joint`."""
    as_probability(level, "level", 0.95)
    product = columns.mechanism
    if product.num_categories > MOST_CELLS:
        raise refusal(
            "columns",
            f"{option('columns', '--joint')}: the joint table of {' × '.join(f'{size:,}' for size in product.shape)} "
            f"categories has {product.num_categories:,} cells, and the limit is {MOST_CELLS:,}: name fewer columns, or "
            f"{for_commands('add --tree')}{for_callers('ask for the tree')}, which takes tables of two columns",
            flag="--joint",
        )
    counts, dense = product.count(columns.reports), product.num_categories <= MOST_DENSE_CELLS
    mixture = product.mixture_of_counts(counts)
    likeliest = rrjax.ibu(mixture, accelerate="newton" if dense else "anderson")
    shares = {"closest": rrjax.joint_bayes(mixture, product.shape)} if dense else {}
    association_of_two = None
    if len(columns.names) == 2:
        association_of_two = association(columns.names, product, columns.reports, level)
    return JointShares(
        columns,
        level,
        {name: np.asarray(found.theta) for name, found in [*shares.items(), ("likeliest", likeliest)]},
        unbiased=np.asarray(product.inv(counts)),
        standard_error=np.sqrt(np.asarray(product.inv_variances(counts))),
        gap=float(likeliest.gap),
        converged=bool(likeliest.converged),
        association=association_of_two,
    )
