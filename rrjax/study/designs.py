"""Survey designs, and the tables of other parameters, among the mechanisms of a study."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from rrjax.data.errors import ArgumentError, StudyError
from rrjax.mechanisms import DESIGNS, PROTOCOLS, Design, Product
from rrjax.mechanisms.surveys.named import make_design
from rrjax.mechanisms.table import TABLE, full_name
from rrjax.study.products import product_of
from rrjax.study.rounds import rounds_of


@dataclasses.dataclass(frozen=True)
class DesignFactory:
    """A function of K and ε that returns a survey design; the design has its own ε, and often its own K."""

    name: str
    parameters: Mapping[str, Any]
    design: Design | None = None
    """The design, if it was given as one."""

    def __call__(self, num_categories: int | None, epsilon: Any = None) -> Design:
        """The design for K answers."""
        del epsilon
        return self.design or make_design(self.name, self.parameters, num_categories)

    @property
    def __name__(self) -> str:
        """The name of the design."""
        return self.name


def with_designs(mechanisms: Any) -> Any:
    """The mechanisms of a study, with a factory in place of each survey design and each table of parameters."""
    if isinstance(mechanisms, Mapping):
        return {label: _factory(each, str(label)) for label, each in mechanisms.items()}
    if isinstance(mechanisms, str) or not isinstance(mechanisms, Iterable):
        return _factory(mechanisms, None)
    return [_factory(each, None) for each in mechanisms]


def _factory(given: Any, label: str | None) -> Any:
    if isinstance(given, Design):
        return DesignFactory(given.name, {}, given)
    of = "mechanism" if label is None else f"mechanism {label!r}"
    if isinstance(given, Mapping):
        name = full_name(str(given.get("mechanism", "")))
        if name in PROTOCOLS:
            return rounds_of(name, given, of, label)
        if name == Product.name:
            return product_of(given, of, label)
        if name not in DESIGNS:
            known = ", ".join([*DESIGNS, *PROTOCOLS, Product.name])
            raise StudyError(
                f"{of}: a table holds a survey design, a longitudinal protocol or a product of columns, mechanism = "
                f"one of {known}, and its parameters; got mechanism = {given.get('mechanism')!r}",
                argument="mechanism",
                value=label,
            )
        return DesignFactory(name, {key: value for key, value in given.items() if key != "mechanism"})
    if isinstance(given, str) and (name := full_name(given)) in PROTOCOLS:
        return rounds_of(name, {}, of, label)  # which says what is missing
    if isinstance(given, str) and (name := full_name(given)) in DESIGNS:
        wanted = ", ".join(f"{parameter} = …" for parameter in TABLE[name].parameters or ())
        raise StudyError(
            f"{of}: {name} is a survey design and needs its parameters: give a table, {{mechanism = {name!r}, "
            f"{wanted}}}",
            argument="mechanism",
            value=given,
        )
    return given


def designs_of(mechanisms: Mapping[str, Any] | None, num_categories: Iterable[int]) -> dict[str, Design]:
    """The survey designs among the mechanisms, each made for all numbers of categories of the study.

    Raises:
        StudyError: Parameters that make no design, or a design of another number of answers.
    """
    found: dict[str, Design] = {}
    for label, factory in (mechanisms or {}).items():
        if not isinstance(factory, DesignFactory):
            continue
        for size in num_categories:
            try:
                found[label] = factory(size)
            except ArgumentError as error:
                raise StudyError(f"mechanism {label!r}: {error}", argument="mechanism", value=label) from error
            if found[label].num_categories != size:
                raise StudyError(
                    f"mechanism {label!r} has {found[label].num_categories} answers, and num_categories is {size}",
                    argument="num_categories",
                    value=size,
                )
    return found
