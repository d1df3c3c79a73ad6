"""The functions of a study: mechanisms, estimators and metrics, how it calls them, traced before any work."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import ArrayLike

from rrjax.data.arguments import float_dtype
from rrjax.data.errors import StudyError
from rrjax.data.tally import Tally
from rrjax.estimators.catalogue import METRICS
from rrjax.estimators.in_rows import Collections, own_in_rows
from rrjax.mechanisms import MechanismFactory
from rrjax.numerics.rows import WIDTH, Rows
from rrjax.study.arguments import refusal, shape_in_words
from rrjax.study.mechanisms import Collecting, JointCounts, estimate

if TYPE_CHECKING:
    from rrjax.study.study import Study

KIND_OF_KEYS = "threefry2x32"
"""The generator of random numbers of a run, whatever JAX's default is."""


def decomposes(study: Study) -> bool:
    """Whether the study needs the errors of single categories."""
    return not {"bias2", "variance"}.isdisjoint(study.metrics)


def metrics_of_seeds(study: Study) -> list[str]:
    """The metrics of single seeds; including the squared error if the decomposition needs it."""
    names = [name for name in study.metrics if name not in ("bias2", "variance")]
    return names if not decomposes(study) or "mse" in names else [*names, "mse"]


def measures_of(study: Study) -> list[Callable[..., Any]]:
    """The functions `f(estimate, truth, counts, epsilon)` of the metrics of single seeds."""

    def own(function):
        return lambda estimate, truth, counts, epsilon: function(estimate, truth)

    known = {name: metric.measure for name, metric in METRICS.items() if metric.measure is not None}
    return [known.get(name) or own(study.metrics[name]) for name in metrics_of_seeds(study)]


def known_epsilon(
    label: str, factory: MechanismFactory, num_categories: int, epsilons: tuple[float, ...]
) -> float | None:
    """The only ε, which determines a mechanism's parameters if a traced one cannot; else None."""
    try:
        abstract_tally(factory, num_categories, None)
        return None
    except Exception as error:
        failure = error
    if len(epsilons) == 1:
        try:
            abstract_tally(factory, num_categories, epsilons[0])
            return epsilons[0]
        except Exception as error:
            failure = error
    hint = ""
    if len(epsilons) > 1 and isinstance(failure, ValueError):
        name = getattr(factory, "__name__", "TheMechanism")
        hint = (
            f". One program serves all ε of a study: settle its parameters, as in mechanism={{'mine': "
            f"functools.partial({name}, …)}}, or study each ε alone"
        )
    raise StudyError.about(
        "mechanism", f"{label!r} failed for K = {num_categories} under jax.jit: {_words_of(failure)}{hint}", value=label
    ) from failure


def build_mechanism(
    factory: MechanismFactory, num_categories: int, epsilon: ArrayLike, known: float | None
) -> Collecting:
    """The mechanism at ε, its parameters chosen by the known ε if there is one."""
    mechanism = factory(num_categories, epsilon if known is None else known)
    if not isinstance(mechanism, Collecting):
        raise TypeError(f"it must return a SupportMechanism, got a {type(mechanism).__name__}")
    own = getattr(mechanism, "epsilon", None)  # which may be a part of the study's
    if known is None or isinstance(own, Tracer) or own != known:
        return mechanism
    return dataclasses.replace(cast("Any", mechanism), epsilon=epsilon)


def abstract_tally(factory: MechanismFactory, num_categories: int, known: float | None) -> Tally | JointCounts:
    """The tally (or joint counts) of a mechanism's collections, with abstract arrays; a ValueError if not of K."""
    true_counts = jax.ShapeDtypeStruct((num_categories,), jnp.int32)
    collect = partial(_collected, factory, num_categories, known)
    tally = jax.eval_shape(collect, abstract_key(), true_counts, jax.ShapeDtypeStruct((), float_dtype()))
    if isinstance(tally, JointCounts):
        return tally
    if not isinstance(tally, Tally) or tally.support.shape != (num_categories,):
        came = f"one of {tally.support.shape}" if isinstance(tally, Tally) else f"a {type(tally).__name__}"
        raise ValueError(f"`collect` must return a Tally of {num_categories} categories, got {came}")
    return tally


def abstract_key() -> jax.ShapeDtypeStruct:
    """A key such as those of a run."""
    return jax.eval_shape(partial(jax.random.key, impl=KIND_OF_KEYS), 0)


class Call(NamedTuple):
    """How a study calls a function, with abstract arguments."""

    argument: str
    """`"estimators"`, `"metrics"` or `"mechanism"`."""
    label: str
    function: Callable[..., Any]
    given: tuple[Any, ...]
    words: str = ""
    """What it is given, for a message."""
    in_rows: bool = False


def calls_of(study: Study, num_categories: int, mechanisms: Iterable[str] | None = None) -> Iterator[Call]:
    """All calls of the study's functions for one K; of its mechanisms, by default all."""
    counts = jax.ShapeDtypeStruct((num_categories,), jnp.int32)
    theta = jax.ShapeDtypeStruct((num_categories,), float_dtype())
    epsilon = jax.ShapeDtypeStruct((), float_dtype())
    key = abstract_key()
    collections: dict[str, tuple[Any, Any]] = {f"counts [{num_categories}]": (counts, epsilon)}
    if study.mechanism is not None:
        tallies = {}
        for label in study.mechanism if mechanisms is None else mechanisms:
            factory = study.mechanism[label]
            known = known_epsilon(label, factory, num_categories, study.epsilon)
            tallies[label] = abstract_tally(factory, num_categories, known)
            collect = partial(_collected_and_rates, factory, num_categories, known)
            yield Call("mechanism", label, collect, (key, counts, epsilon))
        # Most mechanisms have tallies of the same abstract arrays, which are traced once.
        distinct = {str(jax.tree.flatten(tally)): (label, tally) for label, tally in reversed(tallies.items())}
        collections = {f"a tally of {label}, without epsilon,": (tally, None) for label, tally in distinct.values()}
    for words, given in collections.items():
        for label, estimator in study.estimators.items():
            yield Call("estimators", label, partial(estimate, estimator), (key, *given), words)
        for label, measure in zip(metrics_of_seeds(study), measures_of(study), strict=True):
            yield Call("metrics", label, measure, (theta, theta, *given), words)


def calls_in_rows(study: Study, height: int = 4) -> Iterator[Call]:
    """The calls of what estimators of one's own say that they are in rows, of a tile of this height."""
    of_each = jax.ShapeDtypeStruct((height,), jnp.int32), jax.ShapeDtypeStruct((height,), float_dtype())
    counts = jax.ShapeDtypeStruct((height, WIDTH), jnp.int32)
    for label, estimator in study.estimators.items():
        if (own := own_in_rows(estimator)) is not None:
            yield Call("estimators", label, partial(_in_rows, own), (counts, *of_each), "counts in rows", in_rows=True)


def _collected(factory, num_categories, known, key, true_counts, epsilon):
    return build_mechanism(factory, num_categories, epsilon, known).collect(key, true_counts)


def _collected_and_rates(factory, num_categories, known, key, true_counts, epsilon):
    mechanism = build_mechanism(factory, num_categories, epsilon, known)
    return mechanism.collect(key, true_counts), getattr(mechanism, "rates", None)


def _in_rows(own, counts, num_users, epsilon):
    return own(Collections.of(Rows(counts.shape[0], jnp.int32(2), jnp.int32(3)), counts, num_users, epsilon))


def check_functions(study: Study, num_categories: int) -> None:
    """Checks the mechanisms, estimators and metrics of a study by tracing them."""
    for argument, label, function, given, words, _ in calls_of(study, num_categories):
        if argument == "estimators":
            _check_estimator(label, function, (num_categories,), words, given)
        elif argument == "metrics":
            _check_metric(label, function, given)


def check_in_rows(study: Study) -> None:
    """Checks what estimators of one's own say that they are in rows, in the same way."""
    for _, label, function, given, words, _ in calls_in_rows(study):
        _check_estimator(f"{label}.in_rows", function, given[0].shape, words, given)


def _check_metric(label: str, function: Callable[..., Any], given: tuple[Any, ...]) -> None:
    try:
        value = jax.eval_shape(function, *given)
    except Exception as error:
        raise refusal("metrics", f"metric {label!r} failed under jax.jit: {_words_of(error)}", label) from error
    if getattr(value, "shape", None) != ():
        raise refusal("metrics", f"metric {label!r} must return a scalar, it returned {_returned(value)}", label)


def _check_estimator(
    label: str, function: Callable[..., Any], shape: tuple[int, ...], words: str, given: tuple[Any, ...]
) -> None:
    try:
        theta = jax.eval_shape(function, *given)
    except Exception as error:
        hint = ""
        if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
            hint = " It must be made of jax.numpy, and choose by jnp.where instead of if"
        raise refusal(
            "estimators", f"estimator {label!r} failed on {words} under jax.jit: {_words_of(error)}{hint}", label
        ) from error
    if getattr(theta, "shape", None) != shape or not jnp.issubdtype(theta.dtype, jnp.floating):
        size = " × ".join(map(str, shape))
        raise refusal(
            "estimators",
            f"estimator {label!r} must return the estimate, {size} floats, for {size} counts; "
            f"it returned {_returned(theta)}",
            label,
        )


def _words_of(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _returned(value: Any) -> str:
    if not hasattr(value, "shape"):
        return "nothing" if value is None else f"a {type(value).__name__}"
    return f"{shape_in_words(value.shape)} of {value.dtype}" if value.shape else f"a scalar of {value.dtype}"
