"""The association of all pairs of columns that were randomized separately."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rrjax import inference
from rrjax.data.arguments import as_probability
from rrjax.mechanisms import Product
from rrjax.reports import form
from rrjax.reports.answer import SHOWN, Answer, Cells
from rrjax.reports.reading import in_float64
from rrjax.reports.separate_columns import MOST_CELLS, SeparateColumns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NUM_DRAWS = 9999
"""Number of simulated tables of a test of independence."""
MOST_DRAWN_CELLS = 1 << 25
"""Limit of the number of cells × draws of the intervals of an association, which are in memory together."""
INTERVAL_DRAWS, LEAST_DRAWS = 1999, 99
SIGNIFICANT = 0.05
"""Level of the p-values, corrected for all pairs, of the pairs that are significant."""
MEASURES = {"Cramér's V": ("cramers_v", 3), "mutual information": ("mutual_information", 4)}
"""The measures of association by their titles: the name of their fact, and the number of their decimals."""


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
    def facts(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.stated}
        return {**self.reports.facts(), "level": self.level, **found}


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
        measures = ("cramers_v", "mutual_information", "odds_ratio")
        numbers = [f"{name}{end}" for name in measures for end in ("", "_lower", "_upper")]
        numbers += ["p_value", "adjusted_p_value"]
        return named | {name: np.asarray([pair[name] for pair in self.pairs], np.float64) for name in numbers}

    @property
    def significant(self) -> list[dict[str, Any]]:
        """The pairs that go together significantly, corrected for all pairs."""
        return [pair for pair in self.pairs if pair["adjusted_p_value"] <= SIGNIFICANT]

    @property
    def conclusion(self) -> str:
        """How many pairs go together significantly, and which one most of all."""
        number, found = len(self.pairs), self.significant
        if not found:
            return "No two columns go together significantly."
        return (
            f"{len(found):,} of {form.number(number, 'pair', 'pairs')} of columns "
            f"{'goes' if len(found) == 1 else 'go'} together significantly; most of all {named(found[0])} "
            f"(Cramér's V {measured(found[0], 'cramers_v', 3)[0]})."
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
        if not left_out:
            return self.reports.warnings
        said = f"Left out, because their tables have more than {MOST_CELLS:,} cells: {', '.join(left_out)}."
        return [said, *self.reports.warnings]

    @property
    def words(self) -> dict[str, str]:
        return words_of_association(self.level) | {
            "p": "probability that independent columns seem to go together as much as these, or more; ≤ where none of "
            f"the {NUM_DRAWS:,} simulated tables does",
            "p of all": f"p, corrected for all pairs (Holm); a pair goes together significantly if it is at most "
            f"{SIGNIFICANT:g}",
        }

    def cells(self, top: int = SHOWN) -> Cells:
        both = ("p_value", "adjusted_p_value")
        rows = [[*cells_of_pair(pair), *(p_of_independence(pair, p) for p in both)] for pair in self.pairs[:top]]
        left = len(self.pairs) - len(rows)
        rest = f"… and {form.number(left, 'more pair', 'more pairs')}" if left else ""
        return Cells([*headings(self.level), "p", "p of all"], rows, rest, width=None)

    def figure(self, ax: Axes | None = None) -> Figure:
        """Cramér's V of all pairs as a triangle of cells; significant pairs are marked."""
        from rrjax.figures import association_figure

        known = [pair for pair in self.pairs if not math.isnan(pair["cramers_v"])]
        return association_figure(
            self.reports.names,
            {tuple(pair["columns"]): pair["cramers_v"] for pair in known},
            significant=[tuple(pair["columns"]) for pair in self.significant],
            title=figure_title(self.reports),
            ax=ax,
        )


@in_float64
def pairs_of(columns: SeparateColumns, level: float) -> Pairs:
    """See `SeparateColumns.pairs`."""
    as_probability(level, "level", 0.95)
    pairs = [association(*pair, level) for pair in all_pairs(columns) if pair[1].num_categories <= MOST_CELLS]
    # Holm: the smallest of m p-values times m, the next one times m − 1, and so on, not decreasing.
    largest = 0.0
    for rank, pair in enumerate(sorted(pairs, key=lambda pair: (math.isnan(pair["p_value"]), pair["p_value"]))):
        largest = max(largest, min(1.0, pair["p_value"] * (len(pairs) - rank)))
        pair["adjusted_p_value"] = largest
    pairs.sort(key=lambda pair: math.inf if math.isnan(pair["cramers_v"]) else -pair["cramers_v"])
    return Pairs(columns, level, pairs)


def pair_of(columns: SeparateColumns, places: Sequence[int]) -> tuple[list[str], Product, list[np.ndarray]]:
    """The names, mechanisms and reports of two columns."""
    names, reports = [columns.names[place] for place in places], [columns.reports[place] for place in places]
    return names, columns.mechanism.part(places), reports


def all_pairs(columns: SeparateColumns) -> Iterator[tuple[list[str], Product, list[np.ndarray]]]:
    """The names, mechanisms and reports of all pairs of columns."""
    return (pair_of(columns, places) for places in itertools.combinations(range(len(columns.names)), 2))


def association(
    names: Sequence[str], product: Product, reports: Sequence[np.ndarray], level: float, *, tested: bool = True
) -> dict[str, Any]:
    """The association of two columns with its intervals, as fields of a JSON object.

    `tested` adds the odds ratio, NaN for more than two categories, and the p-value of independence.
    """
    counts, (rows, width) = product.count(reports), product.shape
    key, key_of_test = jax.random.split(jax.random.key(0))
    draws = min(INTERVAL_DRAWS, max(LEAST_DRAWS, MOST_DRAWN_CELLS // product.num_categories))
    found = inference.association(key, counts, product, level=level, num_draws=draws)
    facts = {"columns": list(names)} | _fields("cramers_v", found.cramers_v)
    facts |= _fields("mutual_information", found.mutual_information)
    if not tested:
        return facts
    ratio = inference.Limits(*[jnp.asarray(jnp.nan)] * 3)
    if (rows, width) == (2, 2):
        ratio = jax.tree.map(lambda each: each[1, 1], inference.odds_ratios(counts, product, level=level))
    # The reports are independent exactly if the values are, so the test needs no ε. It takes users who report both.
    test = inference.independence_test(key_of_test, counts[:rows, :width], num_draws=NUM_DRAWS)
    return facts | _fields("odds_ratio", ratio) | {"p_value": float(test.p_value)}


def _fields(name: str, limits: inference.Limits) -> dict[str, float]:
    return {name: float(limits.value), f"{name}_lower": float(limits.lower), f"{name}_upper": float(limits.upper)}


def measured(pair: dict[str, Any], name: str, digits: int) -> tuple[str, str]:
    """A measure and its interval as texts."""
    if math.isnan(pair[f"{name}_lower"]):
        return "unknown", ""
    value, lower, upper = (f"{pair[name + end]:.{digits}f}".replace("inf", "∞") for end in ("", "_lower", "_upper"))
    return value, f"{lower} – {upper}"


def p_text(p_value: float, num_draws: int, shown: float | None = None) -> str:
    """A p-value, or what is made of it; an upper bound where no simulated collection deviates as much."""
    if math.isnan(p_value):
        return "unknown"
    return "≤ " * (p_value * (num_draws + 1) < 1.5) + f"{p_value if shown is None else shown:.2g}"


def p_of_independence(pair: dict[str, Any], name: str = "p_value") -> str:
    """The p-value of independence of a pair, or the one that is corrected for all pairs, as a text."""
    return p_text(pair["p_value"], NUM_DRAWS, pair[name])


def named(pair: dict[str, Any]) -> str:
    """The columns of a pair, for people."""
    return " × ".join(map(form.printable, pair["columns"]))


def headings(level: float) -> list[str]:
    """The headings of `cells_of_pair`."""
    first, *others = MEASURES
    return ["columns", first, form.interval(level), *others]


def cells_of_pair(pair: dict[str, Any]) -> list[str]:
    """The columns of a pair, Cramér's V with its interval, and the mutual information, as texts."""
    first, *others = (measured(pair, *each) for each in MEASURES.values())
    return [named(pair), *first, *(value for value, _ in others)]


def words_of_association(level: float) -> dict[str, str]:
    """Explains the columns of `cells_of_pair`."""
    return {
        "Cramér's V": "0 if two columns are independent, 1 if one determines the other; corrected for the noise of the "
        "reports, which looks like association",
        form.interval(level): f"holds the true V of its pair with {form.in_full(level)} confidence; an interval from "
        "zero on says that the two columns may be independent; of users who report both columns, by inversion of "
        "simulated tests",
        "mutual information": "how much one column says about the other, nats; 0 if they are independent; corrected "
        "for noise, too",
    }


def figure_title(columns: SeparateColumns) -> str:
    """The title of figures of these columns."""
    simulated = "; simulated, so nobody is protected" if columns.simulated else ""
    return f"{columns.num_users:,} users, randomized apart{simulated}"
