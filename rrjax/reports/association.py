"""How columns that were randomized separately go together: all pairs, their joint distribution, the Chow–Liu tree."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

import rrjax
from rrjax import inference
from rrjax.data.errors import for_callers, for_commands, option, refusal
from rrjax.mechanisms import Product, RandomizedResponse
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells, rest_of, table_of
from rrjax.reports.reading import in_float64
from rrjax.reports.reports import FALSE_ALARM
from rrjax.reports.separate_columns import MOST_CELLS, SeparateColumns
from rrjax.reports.shares import largest_of

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONTRADICTION_DRAWS = 999
NO_DOUBT = -1.5
"""An estimate above so many standard errors contradicts nothing."""
NUM_DRAWS = 9999
"""Number of simulated tables of a test of independence."""
MOST_DRAWN_CELLS = 1 << 25
"""Limit of the number of cells × draws of the intervals of an association, which are in memory together."""
INTERVAL_DRAWS, LEAST_DRAWS = 1999, 99
SIGNIFICANT = 0.05
"""Level of the p-values, corrected for all pairs, of the pairs that are significant."""
MEASURES = {"Cramér's V": ("cramers_v", 3), "mutual information": ("mutual_information", 4)}
"""The measures of association by their titles: the name of their fact, and the number of their decimals."""
ENDS = ("", "_lower", "_upper")
"""What the names of a measure and of its limits end with."""
MOST_DENSE_CELLS = 512
"""Number of cells up to which there is a closest estimate, and the maximum is found with a matrix of them."""
MOST_FIT_DRAWS, LEAST_FIT_DRAWS = 499, 99
MOST_DRAWN_VALUES = 1 << 29
"""Limit of the number of users × columns × draws of the test of fit, some 50 ns each, above the least draws."""


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class OfColumns(Answer):
    """An answer of columns that were randomized separately."""

    page = "tutorials/several-questions"
    stated: ClassVar[tuple[str, ...]]
    """The attributes that are facts."""

    reports: SeparateColumns
    level: float
    """Confidence level of the intervals."""

    @property
    def _results(self):
        return {name: getattr(self, name) for name in ("level", *self.stated)}

    @property
    def words(self) -> dict[str, str]:
        return {
            "Cramér's V": "0 if two columns are independent, 1 if one determines the other; corrected for the noise of "
            "the reports, which looks like association",
            form.interval(self.level): f"holds the true V of its pair with {form.in_full(self.level)} confidence; an "
            "interval from zero on says that the two columns may be independent; of users who report both columns, by "
            "inversion of simulated tests",
            "mutual information": "how much one column says about the other, nats; 0 if they are independent; "
            "corrected for noise, too",
        }

    def _cells_of(self, pairs: Iterable[dict[str, Any]], more: Sequence[str] = (), rest: str = "") -> Cells:
        """Each pair with Cramér's V, its interval and the mutual information; and p-values of independence."""
        first, *others = MEASURES
        rows = []
        for pair in pairs:
            with_limits, *further = (measured(pair, *each) for each in MEASURES.values())
            p_values = [p_text(pair["p_value"], NUM_DRAWS, pair[name]) for name in more]
            rows.append([named(pair), *with_limits, *(value for value, _ in further), *p_values])
        titles = ["columns", first, form.interval(self.level), *others, *("p", "p of all")[: len(more)]]
        return Cells(titles, rows, rest, width=None)

    @property
    def _figure_title(self):
        simulated = "; simulated, so nobody is protected" if self.reports.simulated else ""
        return f"{self.reports.num_users:,} users, randomized apart{simulated}"


def measured(pair: dict[str, Any], name: str, digits: int) -> tuple[str, str]:
    """A measure and its interval as texts."""
    if math.isnan(pair[f"{name}_lower"]):
        return "unknown", ""
    value, lower, upper = (f"{pair[name + end]:.{digits}f}".replace("inf", "∞") for end in ENDS)
    return value, f"{lower} – {upper}"


def named(pair: dict[str, Any]) -> str:
    """The columns of a pair, for people."""
    return " × ".join(map(form.printable, pair["columns"]))


def p_text(p_value: float, num_draws: int, shown: float | None = None) -> str:
    """A p-value, or what is made of it; an upper bound where no simulated collection deviates as much."""
    if math.isnan(p_value):
        return "unknown"
    return "≤ " * (p_value * (num_draws + 1) < 1.5) + f"{p_value if shown is None else shown:.2g}"


def pair_of(columns: SeparateColumns, places: Sequence[int]) -> tuple[list[str], Product, list[np.ndarray]]:
    """The names, mechanisms and reports of two columns."""
    names, reports = [columns.names[place] for place in places], [columns.reports[place] for place in places]
    return names, columns.mechanism.part(places), reports


def all_pairs(columns: SeparateColumns) -> Iterator[tuple[list[str], Product, list[np.ndarray]]]:
    """The names, mechanisms and reports of all pairs of columns."""
    return (pair_of(columns, places) for places in itertools.combinations(range(len(columns.names)), 2))


def association(
    names: Sequence[str],
    product: Product,
    reports: Sequence[np.ndarray],
    level: float,
    *,
    tested: bool = True,
    theta: ArrayLike | None = None,
) -> dict[str, Any]:
    """The association of two columns with its intervals, as fields of a JSON object.

    `theta` is the likeliest table, `[K·L]`, if it is known already. `tested` adds the odds ratio, NaN for more than two
    categories, and the p-value of independence.
    """
    counts, (rows, width) = product.count(reports), product.shape
    key, key_of_test = jax.random.split(jax.random.key(0))
    draws = min(INTERVAL_DRAWS, max(LEAST_DRAWS, MOST_DRAWN_CELLS // product.num_categories))
    if is_contradicted(product, counts, theta):
        measures = ("cramers_v", "mutual_information", *(["odds_ratio"] * tested))
        unknown = dict.fromkeys((name + end for name in measures for end in ENDS), math.nan)
        return {"columns": list(names)} | unknown | ({"p_value": math.nan} if tested else {}) | {"contradicted": True}
    associated = inference.association(key, counts, product, level=level, num_draws=draws)

    def limits(name, each):
        return dict(zip((name + end for end in ENDS), map(float, (each.value, each.lower, each.upper)), strict=True))

    facts = {"columns": list(names)} | limits("cramers_v", associated.cramers_v)
    facts |= limits("mutual_information", associated.mutual_information)
    if not tested:
        return facts
    ratio = inference.Limits(*[jnp.asarray(jnp.nan)] * 3)
    if (rows, width) == (2, 2):
        ratio = jax.tree.map(lambda each: each[1, 1], inference.odds_ratios(counts, product, level=level))
    # The reports are independent exactly if the values are, so the test needs no ε. It takes users who report both.
    test = inference.independence_test(key_of_test, counts[:rows, :width], num_draws=NUM_DRAWS)
    return facts | limits("odds_ratio", ratio) | {"p_value": float(test.p_value)}


def is_contradicted(product: Product, counts: ArrayLike, theta: ArrayLike | None = None) -> bool:
    """Whether the unbiased estimate of a cell is further below zero than the reports of any users' values allow.

    `counts` are those of the reports, an axis for each column, `theta` is the likeliest table, which is found if it is
    not given. The statistic is the smallest estimate over its standard error, simulated at the likeliest table. Each
    column alone may look sound: reports that are copied from another one, or randomized with its random numbers.
    """
    columns = [each for each in product.columns if isinstance(each, RandomizedResponse)]
    if product.num_categories > MOST_DENSE_CELLS or len(columns) < len(product.columns):
        return False
    shape = product.shape
    whole = np.asarray(counts)[tuple(map(slice, shape))].astype(np.float64)
    number = int(whole.sum())
    if number == 0:
        return False
    rates = [each.rates_by(math.expm1) for each in columns]
    laws = [law.q + law.d * np.eye(size) for law, size in zip(rates, shape, strict=True)]
    if theta is None:
        theta = rrjax.ibu(product.mixture_of_counts(counts), accelerate="newton").theta
    law = _along(laws, np.asarray(theta, np.float64).reshape(shape)[None])[0]
    inverses = [(np.eye(size) - law.q) / law.d for law, size in zip(rates, shape, strict=True)]
    squares = _along([each**2 for each in inverses], law[None])[0]
    error = np.sqrt((squares - _along(inverses, law[None])[0] ** 2) / number)
    least = (_along(inverses, whole[None] / number)[0] / error).min()
    if least > NO_DOUBT:
        return False
    drawn = np.random.default_rng(0).multinomial(number, np.maximum(law, 0).ravel() / law.sum(), CONTRADICTION_DRAWS)
    simulated = _along(inverses, drawn.reshape(-1, *shape) / number) / error
    below = (simulated.min(axis=tuple(range(1, len(shape) + 1))) <= least).sum()
    return bool((below + 1) / (CONTRADICTION_DRAWS + 1) <= FALSE_ALARM)


def _along(matrices: Sequence[np.ndarray], tables: np.ndarray) -> np.ndarray:
    """The tables `[B, K, L, …]` times a matrix along each axis."""
    for axis, matrix in enumerate(matrices, 1):
        tables = np.moveaxis(np.tensordot(tables, matrix, (axis, 1)), -1, axis)
    return tables


def _contradictions(pairs: Iterable[dict[str, Any]]) -> list[str]:
    """A warning about pairs of columns whose reports contradict their mechanisms together."""
    odd = [named(pair) for pair in pairs if pair.get("contradicted")]
    said = (
        f"The reports of {', '.join(odd)} contradict their mechanisms together: some pairs of values come less often "
        "than any users allow. Was each column randomized by itself? Do not use their joint estimates."
    )
    return [said] * bool(odd)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Pairs(OfColumns):
    """The association of all pairs of columns, the strongest first, with p-values of independence."""

    written = "Pairs"
    stated = ("pairs",)

    pairs: list[dict[str, Any]]
    """Of each pair its columns, association, intervals and p-values, as in JSON."""

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A row for each pair: column_1, column_2, its association with limits, and p-values."""
        named = {
            f"column_{place + 1}": np.asarray([pair["columns"][place] for pair in self.pairs], object)
            for place in (0, 1)
        }
        numbers = [name + end for name in ("cramers_v", "mutual_information", "odds_ratio") for end in ENDS]
        numbers += ["p_value", "adjusted_p_value"]
        return named | {name: np.asarray([pair[name] for pair in self.pairs], np.float64) for name in numbers}

    @property
    def significant(self) -> list[dict[str, Any]]:
        """The pairs that go together significantly, corrected for all pairs."""
        return [pair for pair in self.pairs if pair["adjusted_p_value"] <= SIGNIFICANT]

    @property
    def conclusion(self) -> str:
        """How many pairs go together significantly, and which one most of all."""
        number, significant = len(self.pairs), self.significant
        if not significant:
            return "No two columns go together significantly."
        return (
            f"{len(significant):,} of {form.number(number, 'pair', 'pairs')} of columns "
            f"{'goes' if len(significant) == 1 else 'go'} together significantly; most of all {named(significant[0])} "
            f"(Cramér's V {measured(significant[0], 'cramers_v', 3)[0]})."
        )

    @property
    def sentences(self) -> list[str]:
        return [
            self.conclusion,
            "Cramér's V: 0 for independent columns, 1 where one determines the other. The estimates of V and of the "
            "mutual information (nats) are corrected for noise.",
            "p: of independence, exact up to its simulation; p of all: corrected for all pairs (Holm).",
        ]

    @property
    def warnings(self) -> list[str]:
        left_out = [
            " × ".join(names) for names, product, _ in all_pairs(self.reports) if product.num_categories > MOST_CELLS
        ]
        said = f"Left out, because their tables have more than {MOST_CELLS:,} cells: {', '.join(left_out)}."
        return [*[said] * bool(left_out), *_contradictions(self.pairs), *self.reports.warnings]

    @property
    def words(self) -> dict[str, str]:
        return super().words | {
            "p": "probability that independent columns seem to go together as much as these, or more; ≤ where none of "
            f"the {NUM_DRAWS:,} simulated tables does",
            "p of all": f"p, corrected for all pairs (Holm); a pair goes together significantly if it is at most "
            f"{SIGNIFICANT:g}",
        }

    def cells(self, top: int = SHOWN) -> Cells:
        rest = rest_of(max(len(self.pairs) - top, 0), "pair", "pairs")
        return self._cells_of(self.pairs[:top], ("p_value", "adjusted_p_value"), rest)

    def figure(self, ax: Axes | None = None) -> Figure:
        """Cramér's V of all pairs as a triangle of cells; significant pairs are marked."""
        from rrjax.figures import association_figure

        known = [pair for pair in self.pairs if not math.isnan(pair["cramers_v"])]
        return association_figure(
            self.reports.names,
            {tuple(pair["columns"]): pair["cramers_v"] for pair in known},
            significant=[tuple(pair["columns"]) for pair in self.significant],
            title=self._figure_title,
            ax=ax,
        )


@in_float64
def pairs_of(columns: SeparateColumns, level: float) -> Pairs:
    """See `SeparateColumns.pairs`."""
    pairs = [association(*pair, level) for pair in all_pairs(columns) if pair[1].num_categories <= MOST_CELLS]
    # Holm: the smallest of m p-values times m, the next one times m − 1, and so on, not decreasing.
    largest = 0.0
    for rank, pair in enumerate(sorted(pairs, key=lambda pair: (math.isnan(pair["p_value"]), pair["p_value"]))):
        own = pair["p_value"] * (len(pairs) - rank)
        largest = largest if math.isnan(own) else max(largest, min(1.0, own))
        pair["adjusted_p_value"] = math.nan if math.isnan(own) else largest
    pairs.sort(key=lambda pair: math.inf if math.isnan(pair["cramers_v"]) else -pair["cramers_v"])
    return Pairs(columns, level, pairs)


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
    contradicted: bool
    """Whether the reports contradict their mechanisms together."""

    @property
    def warnings(self) -> list[str]:
        pair = {"columns": self.reports.names, "contradicted": self.contradicted}
        return [*_contradictions([pair]), *super().warnings]

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
        labels = self._labels(np.arange(self.num_cells))
        if (taken := next((name for name in labels if name in {*self._numbers, "simulated"}), None)) is not None:
            problem = (
                f"column {taken!r} has the name of a column of the estimates, and a table cannot hold both: rename it"
            )
            raise refusal("columns", problem, value=taken)
        return self.reports.table(labels | self._numbers)

    @property
    def _numbers(self):
        return self.shares | {"unbiased": self.unbiased, "standard_error": self.standard_error}

    @property
    def _leading(self):
        return next(iter(self.shares.values()))

    def _labels(self, cells):
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
            texts = {title: measured(self.association, *each) for title, each in measures.items()}
            listed = [
                f"{title} {value}" + f" ({limits.replace('–', 'to')})" * bool(limits)
                for title, (value, limits) in texts.items()
            ]
            said.append(
                f"{', '.join(listed)}, corrected for noise, with {form.in_full(self.level)} intervals; p of "
                f"independence {p_text(self.association['p_value'], NUM_DRAWS)}."
            )
        return said

    @property
    def cautions(self) -> list[str]:
        return [] if self.converged else ["The likeliest table did not converge; believe the unbiased one."]

    @property
    def words(self) -> dict[str, str]:
        return self._notes | ({} if self.association is None else super().words)

    def cells(self, top: int = SHOWN) -> Cells:
        largest = largest_of(self._leading, top)
        rest = rest_of(self.num_cells - len(largest), "cell", "cells", 1 - float(self._leading[largest].sum()))
        labels = [(form.printable(name), own, form.printable) for name, own in self._labels(largest).items()]
        numbers = [(name, each[largest], form.share) for name, each in self.shares.items()]
        numbers += [("unbiased", self.unbiased[largest], form.percent)]
        error = self.standard_error[largest], lambda each: "" if np.isnan(each) else form.percent(each)
        columns = [*labels, *numbers, ("std. error", *error)]
        return table_of(columns, range(len(largest)), rest=rest, names=len(labels), width=None)

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
        title = f"{self._figure_title}; {next(iter(self.shares))} estimate"
        return joint_figure(self.reports.names, labels, self._leading.reshape(self.shape), title=title, ax=ax)

    def to_xarray(self) -> xarray.Dataset:
        """The joint table as a dataset of xarray, with a dimension for each column.

        Raises:
            MissingPackage: xarray is not installed.
        """
        names = self.reports.names
        variables = {name: (names, each.reshape(self.shape)) for name, each in self._numbers.items()}
        return self._dataset(variables, {each.column: each.domain.labels() for each in self.reports.metadata})


@in_float64
def joint_of(columns: SeparateColumns, level: float) -> JointShares:
    """See `SeparateColumns.joint`."""
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
    of_two = None
    if len(columns.names) == 2:
        of_two = association(columns.names, product, columns.reports, level, theta=likeliest.theta)
    odd = is_contradicted(product, counts, likeliest.theta) if of_two is None else "contradicted" in of_two
    return JointShares(
        columns,
        level,
        {name: np.asarray(each.theta) for name, each in [*shares.items(), ("likeliest", likeliest)]},
        unbiased=np.asarray(product.inv(counts)),
        standard_error=np.sqrt(np.asarray(product.inv_variances(counts))),
        gap=float(likeliest.gap),
        converged=bool(likeliest.converged),
        association=of_two,
        contradicted=odd,
    )


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
    def warnings(self) -> list[str]:
        return [*_contradictions(self.edges), *super().warnings]

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """A row for each cell of each edge: column_1, column_2, label_1, label_2, share."""
        known, parts = self.reports.metadata, []
        for edge, shares in self.tables.items():
            places = np.indices(shares.shape).reshape(2, -1)
            ends = [known[place] for place in edge]
            labels = [[str(each) for each in own.domain.labels()[at]] for own, at in zip(ends, places, strict=True)]
            parts.append([*(np.full(shares.size, own.column, object) for own in ends), *labels, shares.ravel()])
        *texts, shares = (np.concatenate(part) for part in zip(*parts, strict=True))
        names = ("column_1", "column_2", "label_1", "label_2")
        columns = {name: np.asarray(each, object) for name, each in zip(names, texts, strict=True)}
        return self.reports.table(columns | {"share": shares})

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

    def cells(self, top: int = SHOWN) -> Cells:
        del top  # some of the edges are no tree
        return self._cells_of(self.edges)

    def figure(self, ax: Axes | None = None) -> Figure:
        """The tree: columns joined by edges with their Cramér's V."""
        from rrjax.figures import tree_figure

        edges = {tuple(edge["columns"]): edge["cramers_v"] for edge in self.edges}
        return tree_figure(self.reports.names, edges, title=self._figure_title, ax=ax)


@in_float64
def tree_of(columns: SeparateColumns, level: float) -> Tree:
    """See `SeparateColumns.tree`."""
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
    draws = min(MOST_FIT_DRAWS, max(LEAST_FIT_DRAWS, MOST_DRAWN_VALUES // (len(reports[0]) * number)))
    test = inference.tree_fit_test(jax.random.key(0), reports, tree, columns.mechanism, num_draws=draws)
    statistics, p_values = (np.asarray(each) for each in (test.pair_statistics, test.pair_p_values))
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
    totals = {"p_value": float(test.p_value), "statistic": float(test.statistic)}
    return totals | {"num_draws": draws, "pairs": pairs}
