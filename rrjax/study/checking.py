"""What a study is refused for before any work is done: functions that fail, or return what they should not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rrjax.data.arguments import float_dtype
from rrjax.data.errors import StudyError
from rrjax.estimators.catalogue import takes_key
from rrjax.study.designs import chosen_by, tally_of
from rrjax.study.grid import Grid
from rrjax.study.tile import measured, measures_of


def check_functions(study: Grid, num_categories: int) -> None:
    """Traces mechanisms, estimators and metrics of the user on abstract values.

    Raises:
        StudyError: One that fails.
    """
    counts = jax.ShapeDtypeStruct((num_categories,), jnp.int32)
    epsilon = jax.ShapeDtypeStruct((), float_dtype())
    collections: dict[str, tuple[Any, Any]] = {f"counts [{num_categories}]": (counts, epsilon)}
    if study.mechanism is not None:
        tallies = {
            label: tally_of(design, num_categories, chosen_by(label, design, num_categories, study.epsilon))
            for label, design in study.mechanism.items()
        }
        # Nearly all are alike, and traced once.
        collections = {str(jax.tree.flatten(tally)): (label, tally) for label, tally in reversed(tallies.items())}
        collections = {f"a tally of {label}, without epsilon,": (tally, None) for label, tally in collections.values()}
    for what, given in collections.items():
        _check_estimators(study, num_categories, what, given)
        _check_metrics(study, num_categories, given)


def _check_estimators(study: Grid, num_categories: int, what: str, given: tuple[Any, Any]) -> None:
    for label, estimator in study.estimators.items():
        arguments = (jax.random.key(0), *given) if takes_key(estimator) else given
        try:
            shape = jax.eval_shape(estimator, *arguments)
        except Exception as error:
            hint = ""
            if isinstance(error, jax.errors.ConcretizationTypeError | jax.errors.TracerArrayConversionError):
                hint = " It must be made of jax.numpy, and choose by jnp.where instead of if"
            raise StudyError(
                f"estimator {label!r} failed on {what} under jax.jit: "
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}{hint}",
                argument="estimators",
                value=label,
            ) from error
        found = getattr(shape, "shape", None)
        if found != (num_categories,) or not jnp.issubdtype(shape.dtype, jnp.floating):
            what = f"shape {found} of {shape.dtype}" if found is not None else f"a {type(shape).__name__}"
            raise StudyError(
                f"estimator {label!r} must return the estimate, floats of shape ({num_categories},), for counts of "
                f"that shape; it returned {what}",
                argument="estimators",
                value=label,
            )


def _check_metrics(study: Grid, num_categories: int, given: tuple[Any, Any]) -> None:
    theta = jax.ShapeDtypeStruct((num_categories,), float_dtype())
    for label, measure in zip(measured(study), measures_of(study), strict=True):
        try:
            shape = jax.eval_shape(measure, theta, theta, *given)
        except Exception as error:
            raise StudyError(
                f"metric {label!r} failed under jax.jit: {type(error).__name__}: {error}",
                argument="metrics",
                value=label,
            ) from error
        if getattr(shape, "shape", None) != ():
            found = getattr(shape, "shape", None)
            what = f"a {type(shape).__name__}" if found is None else f"an array of shape {found}"
            raise StudyError(
                f"metric {label!r} must return a scalar, it returned {what}", argument="metrics", value=label
            )
