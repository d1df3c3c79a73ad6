"""Mechanisms of a study that are given as parameters: survey designs, also by respondent, protocols, columns apart.

In a study a mechanism is a function of K and ε that returns an object with `collect(key, true_counts)`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import float_dtype, int_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError, StudyError
from rrjax.data.mechanism_parameters import Rates
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import ENTRIES, entry_of, takes_key
from rrjax.mechanisms import DESIGNS, PROTOCOLS, ByRespondent, Design, Product, RandomizedResponse, SupportMechanism
from rrjax.mechanisms.longitudinal import Protocol
from rrjax.mechanisms.longitudinal.protocol import MOST_REPORTS
from rrjax.mechanisms.surveys.named import make_design
from rrjax.mechanisms.table import TABLE, full_name
from rrjax.numerics.pytrees import pytree
from rrjax.simulate import sampling
from rrjax.study.arguments import check_tallies_suffice, refusal


@pytree()
class JointCounts:
    """The reports of a study's collection of columns that are randomized apart, or of designs by respondent. A pytree.

    Attributes:
        counts: `[K_1, …, K_d]`, integers, the users with each combination of reports; or `[G, K]`, the answers to each
            design.
        mechanism: The `Product` or `ByRespondent` that they come from.

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
    mechanism: Product | ByRespondent

    @property
    def product(self) -> Product:
        """The columns."""
        assert isinstance(self.mechanism, Product)
        return self.mechanism

    @property
    def mixture(self) -> Mixture:
        """The joint likelihood."""
        return self.mechanism.mixture_of_counts(self.counts)

    @property
    def unbiased(self) -> Float[Array, " K"]:
        """The unbiased estimate of the (joint) shares, `[∏K]` or `[K]`."""
        return self.mechanism.inv(self.counts)


@dataclasses.dataclass(frozen=True)
class SeveralRounds:
    """T rounds of a protocol, of users whose values do not change: their tallies, added up."""

    protocol: Protocol
    num_rounds: int

    @property
    def rates(self) -> Rates:
        """The rates of one report."""
        return self.protocol.single_round.rates

    def collect(self, key: Array, true_counts: ArrayLike) -> Tally:
        """Draws the tally of all rounds."""
        return self.protocol.collect(key, true_counts, self.num_rounds)


@dataclasses.dataclass(frozen=True)
class CollectedProduct:
    """A `Product` whose users are the histogram of the cells."""

    mechanism: Product

    def collect(self, key: Array, true_counts: ArrayLike) -> JointCounts:
        """Draws the counts of the reports by their exact law: the users of each cell, a column after the other."""
        table = jnp.asarray(true_counts).reshape(self.mechanism.shape)
        for place, column in enumerate(self.mechanism.columns):
            assert isinstance(column, RandomizedResponse)
            rows = jnp.moveaxis(table, place, -1)
            keys = jax.random.split(jax.random.fold_in(key, place), rows.size // column.num_categories)
            drawn = jax.vmap(column.collect)(keys, rows.reshape(-1, column.num_categories)).support
            table = jnp.moveaxis(drawn.reshape(rows.shape), -1, place)
        return JointCounts(table, self.mechanism)


@dataclasses.dataclass(frozen=True)
class ByShares:
    """Designs by respondent, of whom each design has a fixed share; who they are is drawn."""

    mechanism: ByRespondent
    shares: np.ndarray
    """`[G]`, with the sum one."""

    @property
    def num_categories(self) -> int:
        """K."""
        return self.mechanism.num_categories

    @property
    def epsilon(self) -> Any:
        """The largest ε of the designs."""
        return self.mechanism.epsilon

    def collect(self, key: Array, true_counts: ArrayLike) -> JointCounts:
        """Draws the counts of the answers to each design, of numbers of users that are rounded to add up to N."""
        for_groups, own = jax.random.split(key)
        users = jnp.asarray(true_counts)
        # Whole numbers of N users come back exactly, in float32 of up to five million: the error of a product is below
        # one half. Of more it is at most N/10⁷.
        ends = jnp.round(jnp.sum(users).astype(float_dtype()) * self.shares.cumsum().astype(float_dtype()))
        rows = sampling.table(
            sampling.Stream.of(for_groups), jnp.diff(ends.astype(jnp.int32), prepend=0), users.astype(jnp.int32)
        )
        answers = []
        for design, tally in zip(self.mechanism.designs, self.mechanism.collect(own, rows), strict=True):
            # The support of a design that denies its category is the number of the other answers.
            denies = getattr(design, "denies", False) and design.affine.truth < 0
            support, number = (jnp.asarray(each).astype(int_dtype()) for each in (tally.support, tally.num_users))
            answers.append(jnp.where(denies, number - support, support))
        return JointCounts(jnp.stack(answers), self.mechanism)


Collecting: TypeAlias = SupportMechanism | SeveralRounds | CollectedProduct | ByShares


@dataclasses.dataclass(frozen=True)
class FromParameters:
    """A function of K and ε that makes the mechanism of a name from its parameters."""

    name: str
    parameters: Mapping[str, Any]

    @property
    def __name__(self) -> str:
        """The name of the mechanism."""
        return self.name

    def __call__(self, num_categories: int, epsilon: Any) -> Collecting:
        """The mechanism."""
        raise NotImplementedError

    def size(self, num_categories: int) -> tuple[int, str]:
        """The number of categories of the mechanism for K, and the same in words."""
        return num_categories, ""


@dataclasses.dataclass(frozen=True)
class OneDesign(FromParameters):
    """A survey design, which has its own ε, and often its own K."""

    design: Any = None
    """The design, if it was given as one."""

    def __call__(self, num_categories: int, epsilon: Any = None) -> Any:
        """The design for K answers."""
        del epsilon
        return self.design or make_design(self.name, self.parameters, num_categories)

    def size(self, num_categories: int) -> tuple[int, str]:
        """The number of answers."""
        number = self(num_categories).num_categories
        return number, f"{number} answers"


@dataclasses.dataclass(frozen=True)
class DesignsByShare(OneDesign):
    """Survey designs, each for a share of the respondents: designs, and weights of the shares."""

    def __call__(self, num_categories: int, epsilon: Any = None) -> ByShares:
        """The designs for K answers."""
        shares = np.asarray(self.parameters["shares"], np.float64)
        designs = [each(num_categories) for each in self.parameters["designs"]]
        return ByShares(ByRespondent(designs), shares / shares.sum())


@dataclasses.dataclass(frozen=True)
class RoundsOfProtocol(FromParameters):
    """A protocol with ε∞, over several rounds; its parameters are those besides K and ε∞: `first_epsilon`, …."""

    num_rounds: int

    def __call__(self, num_categories: int, epsilon: Any) -> SeveralRounds:
        """The rounds for K categories and ε∞."""
        return SeveralRounds(PROTOCOLS[self.name](num_categories, epsilon, **self.parameters), self.num_rounds)


@dataclasses.dataclass(frozen=True)
class ColumnsApart(FromParameters):
    """Columns of randomized response: numbers of categories, and weights of the columns in the ε of all together."""

    def __call__(self, num_categories: int, epsilon: Any) -> CollectedProduct:
        """The columns; the number of cells is their own."""
        del num_categories
        columns, split = self.parameters["columns"], self.parameters["split"]
        total, parts = math.fsum(split), zip(columns, split, strict=True)
        return CollectedProduct(
            Product(tuple(RandomizedResponse(size, epsilon * (weight / total)) for size, weight in parts))
        )

    def size(self, num_categories: int) -> tuple[int, str]:
        """The number of cells."""
        del num_categories
        columns = self.parameters["columns"]
        return math.prod(columns), f"{' × '.join(map(str, columns))} = {math.prod(columns):,} cells"


def with_parameters(mechanisms: Any) -> Any:
    """The mechanisms of a study, with a function in place of each survey design and each table of parameters."""
    if isinstance(mechanisms, Mapping):
        return {label: _function(each, str(label)) for label, each in mechanisms.items()}
    if isinstance(mechanisms, str) or not isinstance(mechanisms, Iterable):
        return _function(mechanisms, None)
    return [_function(each, None) for each in mechanisms]


def _function(given: Any, label: str | None) -> Any:
    if isinstance(given, Design):
        return OneDesign(given.name, {}, given)
    if isinstance(given, ByRespondent):
        given = {"mechanism": given.name, "designs": given.designs, "shares": np.bincount(given.which).tolist()}
    if not isinstance(given, Mapping | str):
        return given
    table = {} if isinstance(given, str) else {key: value for key, value in given.items() if key != "mechanism"}
    name = full_name(given if isinstance(given, str) else str(given.get("mechanism", "")))

    def refuse(message: str, value: Any = label) -> StudyError:
        of = "mechanism" if label is None else f"mechanism {label!r}"
        return refusal("mechanism", f"{of}: {message}", value)

    try:
        if name in PROTOCOLS:  # of a name alone this says what is missing
            return _rounds(name, table, refuse)
        if isinstance(given, Mapping) and name == Product.name:
            return _columns(table, refuse)
        if isinstance(given, Mapping) and name == ByRespondent.name:
            return _by_share(table, label, refuse)
    except ArgumentError as error:
        raise refuse(str(error)) from error
    if isinstance(given, str):
        if name not in DESIGNS:
            return given
        wanted = ", ".join(f"{parameter} = …" for parameter in TABLE[name].parameters or ())
        raise refuse(
            f"{name} is a survey design and needs its parameters: give a table, {{mechanism = {name!r}, {wanted}}}",
            given,
        )
    if name not in DESIGNS:
        raise refuse(
            "a table holds a survey design, a longitudinal protocol or a product of columns, mechanism = one of "
            f"{', '.join([*DESIGNS, ByRespondent.name, *PROTOCOLS, Product.name])}, and its parameters; "
            f"got mechanism = {given.get('mechanism')!r}"
        )
    return OneDesign(name, table)


def _rounds(name: str, table: Mapping[str, Any], refuse: Callable[[str], StudyError]) -> RoundsOfProtocol:
    fields = [each.name for each in dataclasses.fields(PROTOCOLS[name]) if each.init]
    known = [each for each in fields if each not in ("num_categories", "epsilon")]
    given = {key: value for key, value in table.items() if key != "rounds"}
    odd = next((key for key in given if key not in known), None)
    if odd is not None or "first_epsilon" not in given:
        wrong = f"has no {odd}" if odd is not None else "needs first_epsilon, the ε of one report"
        raise refuse(
            f"{name} {wrong}; its parameters are {', '.join(known)}, and rounds; epsilon, of all reports of one "
            "value, is that of the study"
        )
    return RoundsOfProtocol(name, given, as_integer(table.get("rounds", 1), "rounds", 1))


def _columns(table: Mapping[str, Any], refuse: Callable[[str], StudyError]) -> ColumnsApart:
    odd, sizes = sorted(set(table) - {"columns", "split"}), table.get("columns")
    if odd or not isinstance(sizes, list | tuple) or len(sizes) < 2:
        wrong = f"has no {odd[0]}" if odd else "needs columns, the numbers of categories of two columns or more"
        raise refuse(f"{Product.name} {wrong}; its keys are columns, and split, the weights of the columns in epsilon")
    split = _weights(table, "split", len(sizes), "column", refuse)
    columns = tuple(as_integer(size, "columns", 2) for size in sizes)
    return ColumnsApart(Product.name, {"columns": columns, "split": tuple(map(float, split))})


def _by_share(table: Mapping[str, Any], label: str | None, refuse: Callable[[str], StudyError]) -> DesignsByShare:
    odd, given = sorted(set(table) - {"designs", "shares"}), table.get("designs")
    designs = [_function(each, label) for each in given] if isinstance(given, list | tuple) else []
    designs = [OneDesign(each.name, {}, each) if isinstance(each, RandomizedResponse) else each for each in designs]
    if odd or not designs or not all(type(each) is OneDesign for each in designs):
        wrong = f"has no {odd[0]}" if odd else "needs designs, a list of survey designs"
        raise refuse(
            f"{ByRespondent.name} {wrong}; its keys are designs, and shares, their weights or numbers of users"
        )
    shares = _weights(table, "shares", len(designs), "design", refuse)
    return DesignsByShare(ByRespondent.name, {"designs": tuple(designs), "shares": shares})


def _weights(table: Mapping[str, Any], name: str, number: int, of: str, refuse: Callable[[str], StudyError]) -> Any:
    weights = table.get(name, [1] * number)
    numbers = isinstance(weights, list | tuple) and all(
        isinstance(weight, int | float) and 0 < weight < math.inf for weight in weights
    )
    if not numbers or len(weights) != number:
        raise refuse(f"{name} must be {number} positive numbers, one for each {of}, got {weights}")
    return weights


def check_sizes(mechanisms: Mapping[str, Any], num_categories: Iterable[int]) -> None:
    """Refuses parameters that make no design, and designs or columns that do not have K categories."""
    for label, factory in _with_parameters(mechanisms).items():
        for size in num_categories:
            try:
                number, words = factory.size(size)
            except ArgumentError as error:
                raise refusal("mechanism", f"mechanism {label!r}: {error}", label) from error
            if number != size:
                raise refusal(
                    "num_categories", f"mechanism {label!r} has {words}, and num_categories is {size:,}", size
                )


def check_rounds(
    mechanisms: Mapping[str, Any], sizes: Iterable[int], epsilons: Iterable[float], most_users: int
) -> None:
    """Refuses protocols that cannot be made for a K and ε of the study, and too many reports."""
    for label, factory in _with_parameters(mechanisms).items():
        if not isinstance(factory, RoundsOfProtocol):
            continue
        try:
            for size, epsilon in itertools.product(sizes, epsilons):
                factory(size, epsilon)
        except (ArgumentError, TypeError) as error:
            raise refusal("mechanism", f"mechanism {label!r}: {error}", label) from error
        if most_users * factory.num_rounds > MOST_REPORTS:
            raise refusal(
                "num_users",
                f"mechanism {label!r}: {factory.num_rounds:,} rounds of {most_users:,} users are more than "
                f"{MOST_REPORTS:,} reports",
                most_users,
            )


def check_estimators(mechanisms: Mapping[str, Any] | None, estimators: Mapping[str, Callable[..., Any]]) -> None:
    """Refuses estimators that a mechanism of the study has not."""
    factories = [*(mechanisms or {}).values()]
    number, columns = (
        sum(isinstance(each, kinds) for each in factories) for kinds in ((ColumnsApart, DesignsByShare), ColumnsApart)
    )
    if mechanisms is not None and number < len(mechanisms):
        check_tallies_suffice(estimators)
    for label, function in estimators.items():
        wrong, entry = "", entry_of(function)
        if number and entry is not None and entry.of_columns is None:
            able = ", ".join(each.name for each in ENTRIES if each.of_columns is not None)
            wrong = f"is not for columns that are randomized apart, or designs by respondent; there are {able}"
        if entry is not None and entry.needs == "columns" and columns < len(mechanisms or [None]):
            wrong = "is for columns that are randomized apart: mechanism = {mechanism = 'product', columns = […]}"
        if wrong:
            raise refusal("estimators", f"estimator {label!r} {wrong}", label)


def _with_parameters(mechanisms: Mapping[str, Any]) -> dict[str, FromParameters]:
    return {label: factory for label, factory in mechanisms.items() if isinstance(factory, FromParameters)}


def of_seeds(collected: Any, mechanism: Any) -> tuple[Any, Any]:
    """Collections of many seeds with what all of them share, and the axes of seeds in them."""
    if isinstance(mechanism, CollectedProduct | ByShares):
        return JointCounts(collected.counts, mechanism.mechanism), JointCounts(0, None)  # pyright: ignore[reportArgumentType]
    return Tally(collected.support, collected.num_users, rates=mechanism.rates), Tally(0, 0, rates=None)


def estimate(estimator: Callable[..., Any], key: Array, counts: Any, epsilon: Any) -> Any:
    """The estimate; of joint counts the estimators of the catalogue have functions of their own."""
    entry = entry_of(estimator) if isinstance(counts, JointCounts) else None
    if entry is not None and entry.of_columns is not None:
        return entry.of_columns(counts)
    return estimator(key, counts, epsilon) if takes_key(estimator) else estimator(counts, epsilon)
