"""The mechanisms of a study: of each K one, its ε put in when it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike

from rrjax.data.arguments import float_dtype
from rrjax.data.errors import StudyError
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import ESTIMATORS, METRICS
from rrjax.mechanisms import Mechanism, MechanismFactory


def chosen_by(label: str, design: MechanismFactory, num_categories: int, epsilons: tuple[float, ...]) -> float | None:
    """The ε that a mechanism's parameters are chosen by before it is traced: None where a traced one is enough.

    Raises:
        StudyError: The mechanism cannot be made or collects nothing, or there are several ε where it must know its own.
    """
    try:
        tally_of(design, num_categories, None)
        return None
    except Exception as error:
        failure = error
    if len(epsilons) == 1:
        try:
            tally_of(design, num_categories, epsilons[0])
            return epsilons[0]
        except Exception as error:
            failure = error
    said = str(failure).splitlines()[0] if str(failure) else ""
    hint = ""
    if len(epsilons) > 1 and isinstance(failure, ValueError):
        name = getattr(design, "__name__", "TheMechanism")
        hint = (
            f". One program serves all ε of a study: settle its parameters, as in mechanism={{'mine': "
            f"functools.partial({name}, …)}}, or study each ε alone"
        )
    raise StudyError(
        f"mechanism {label!r} failed for K = {num_categories} under jax.jit: {type(failure).__name__}: {said}{hint}",
        argument="mechanism",
        value=label,
    ) from failure


def made(design: MechanismFactory, num_categories: int, epsilon: ArrayLike, known: float | None) -> Mechanism:
    """The mechanism at ε, its parameters chosen by `known` if that is not None.

    Raises:
        TypeError: What the design returns is none.
    """
    mechanism = design(num_categories, epsilon if known is None else known)
    if not isinstance(mechanism, Mechanism):
        raise TypeError(f"it must return a Mechanism, got a {type(mechanism).__name__}")
    return mechanism if known is None else dataclasses.replace(mechanism, epsilon=epsilon)


def tally_of(design: MechanismFactory, num_categories: int, known: float | None) -> Tally:
    """What its collections are, of abstract arrays.

    Raises:
        ValueError: What it cannot choose by a traced ε, or has not K categories.
    """

    def collect(key, true_counts, epsilon):
        return made(design, num_categories, epsilon, known).collect(key, true_counts)

    true_counts = jax.ShapeDtypeStruct((num_categories,), jnp.int32)
    key = jax.eval_shape(jax.random.key, 0)
    tally = jax.eval_shape(collect, key, true_counts, jax.ShapeDtypeStruct((), float_dtype()))
    if not isinstance(tally, Tally) or tally.support.shape != (num_categories,):
        came = f"one of {tally.support.shape}" if isinstance(tally, Tally) else f"a {type(tally).__name__}"
        raise ValueError(f"`collect` must return a Tally of {num_categories} categories, got {came}")
    return tally


def check_whole_reports(estimators: Mapping[str, Callable[..., Any]], metrics: Mapping[str, Any]) -> None:
    """Refuses what needs more than tallies.

    Raises:
        StudyError: Names those that do not.
    """
    needs = {entry.function for entry in ESTIMATORS.values() if entry.needs != "tally"}
    for label, function in estimators.items():
        if any(function is one for one in needs):
            enough = ", ".join(name for name, entry in ESTIMATORS.items() if entry.needs == "tally")
            raise StudyError(
                f"estimator {label!r} needs the likelihood of whole reports, and studies of mechanisms collect "
                f"tallies: leave it out, or leave `mechanism` out, which is randomized response; a tally is enough "
                f"for {enough}",
                argument="estimators",
                value=label,
            )
    for label in metrics:
        if label in METRICS and METRICS[label].whole_reports:
            enough = ", ".join(name for name, entry in METRICS.items() if not entry.whole_reports)
            raise StudyError(
                f"metric {label!r} is of whole reports, and studies of mechanisms collect tallies; there are {enough}",
                argument="metrics",
                value=label,
            )
