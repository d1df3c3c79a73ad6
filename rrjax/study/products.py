"""Columns that are randomized apart among the mechanisms of a study: counts of their joint reports."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError, StudyError
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import ENTRIES, entry_of, takes_key
from rrjax.mechanisms import Product, RandomizedResponse
from rrjax.numerics.pytrees import register
from rrjax.study.arguments import check_tallies_suffice


@register(data_fields=["counts", "product"])
@dataclasses.dataclass(frozen=True)
class JointCounts:
    """The reports of a study's collection of columns that are randomized apart. A pytree.

    Attributes:
        counts: `[K_1, …, K_d]`, integers, the users with each combination of reports.
        product: The `Product` that they come from.

    Example:
        >>> from rrjax.study import JointCounts, Study
        >>> def clipped(counts: JointCounts, epsilon: None):
        ...     return counts.unbiased.clip(0)
        >>> columns = {"mechanism": "product", "columns": [2, 3]}
        >>> grid = {"num_categories": 6, "num_users": 100, "epsilon": 2.0, "zipf": 1.0}
        >>> Study(estimators=clipped, mechanism={"apart": columns}, **grid).labels
        ('apart',)
    """

    counts: Int[Array, "*K"]
    product: Product

    @property
    def mixture(self) -> Mixture:
        """The joint likelihood."""
        return self.product.mixture_of_counts(self.counts)

    @property
    def unbiased(self) -> Float[Array, " K"]:
        """The unbiased estimate of the joint shares, `[∏K]`."""
        return self.product.inv(self.counts)


@dataclasses.dataclass(frozen=True)
class Apart:
    """A `Product` whose users are the histogram of the cells."""

    product: Product

    def collect(self, key: Array, true_counts: ArrayLike) -> JointCounts:
        """Draws the counts of the reports by their exact law: the users of each cell, a column after the other."""
        table = jnp.asarray(true_counts).reshape(self.product.shape)
        for place, column in enumerate(self.product.columns):
            assert isinstance(column, RandomizedResponse)
            rows = jnp.moveaxis(table, place, -1)
            keys = jax.random.split(jax.random.fold_in(key, place), rows.size // column.num_categories)
            drawn = jax.vmap(column.collect)(keys, rows.reshape(-1, column.num_categories)).support
            table = jnp.moveaxis(drawn.reshape(rows.shape), -1, place)
        return JointCounts(table, self.product)


@dataclasses.dataclass(frozen=True)
class ProductFactory:
    """A function of ∏K and ε that returns columns of randomized response; ε is of all columns together."""

    columns: tuple[int, ...]
    split: tuple[float, ...]
    """Weights of the columns in ε."""

    def __call__(self, num_categories: int, epsilon: Any) -> Apart:
        """The columns; the number of cells is their own."""
        del num_categories
        total = math.fsum(self.split)
        parts = zip(self.columns, self.split, strict=True)
        return Apart(Product(tuple(RandomizedResponse(size, epsilon * (weight / total)) for size, weight in parts)))

    @property
    def __name__(self) -> str:
        """The name of the mechanism."""
        return Product.name


def product_of(table: Mapping[str, Any], of: str, label: str | None) -> ProductFactory:
    """The factory of a table with `columns`, the numbers of categories, and `split`, by default equal.

    Raises:
        StudyError: Other keys or values.
    """

    def refuse(message: str) -> StudyError:
        return StudyError(f"{of}: {message}", argument="mechanism", value=label)

    odd = sorted(set(table) - {"mechanism", "columns", "split"})
    sizes = table.get("columns")
    if odd or not isinstance(sizes, list | tuple) or len(sizes) < 2:
        wrong = f"has no {odd[0]}" if odd else "needs columns, the numbers of categories of two columns or more"
        raise refuse(f"{Product.name} {wrong}; its keys are columns, and split, the weights of the columns in epsilon")
    split = table.get("split", [1] * len(sizes))
    numbers = isinstance(split, list | tuple) and all(
        isinstance(weight, int | float) and 0 < weight < math.inf for weight in split
    )
    if not numbers or len(split) != len(sizes):
        raise refuse(f"split must be {len(sizes)} positive numbers, one for each column, got {split}")
    try:
        return ProductFactory(tuple(as_integer(size, "columns", 2) for size in sizes), tuple(map(float, split)))
    except ArgumentError as error:
        raise refuse(str(error)) from error


def check_products(
    mechanisms: Mapping[str, Any] | None, sizes: Iterable[int], estimators: Mapping[str, Callable[..., Any]]
) -> None:
    """Refuses tables of columns that have not K cells, and estimators that a mechanism of the study has not.

    Raises:
        StudyError: There is one.
    """
    products = {label: each for label, each in (mechanisms or {}).items() if isinstance(each, ProductFactory)}
    for label, factory in products.items():
        cells = math.prod(factory.columns)
        if odd := [size for size in sizes if size != cells]:
            raise StudyError(
                f"mechanism {label!r} has {' × '.join(map(str, factory.columns))} = {cells:,} cells, and "
                f"num_categories is {odd[0]:,}",
                argument="num_categories",
                value=odd[0],
            )
    if mechanisms is not None and len(products) < len(mechanisms):
        check_tallies_suffice(estimators)
    for label, function in estimators.items():
        wrong, entry = "", entry_of(function)
        if products and entry is not None and entry.of_columns is None:
            able = ", ".join(each.name for each in ENTRIES if each.of_columns is not None)
            wrong = f"is not for columns that are randomized apart; there are {able}"
        if entry is not None and entry.needs == "columns" and len(products) < len(mechanisms or [None]):
            wrong = "is for columns that are randomized apart: mechanism = {mechanism = 'product', columns = […]}"
        if wrong:
            raise StudyError(f"estimator {label!r} {wrong}", argument="estimators", value=label)


def of_seeds(collected: Any, mechanism: Any) -> tuple[Any, Any]:
    """Collections of many seeds with what all of them share, and the axes of seeds in them."""
    if isinstance(mechanism, Apart):
        return JointCounts(collected.counts, mechanism.product), JointCounts(0, None)  # pyright: ignore[reportArgumentType]
    return Tally(collected.support, collected.num_users, rates=mechanism.rates), Tally(0, 0, rates=None)


def estimate(estimator: Callable[..., Any], key: Array, counts: Any, epsilon: Any) -> Any:
    """The estimate; of joint counts the estimators of the catalogue have functions of their own."""
    entry = entry_of(estimator) if isinstance(counts, JointCounts) else None
    if entry is not None and entry.of_columns is not None:
        return entry.of_columns(counts)
    return estimator(key, counts, epsilon) if takes_key(estimator) else estimator(counts, epsilon)
