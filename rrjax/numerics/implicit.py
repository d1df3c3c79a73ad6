"""Derivatives of a solution found by iteration, by the implicit function theorem."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
from jax import Array

T = TypeVar("T")


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def with_derivative(rule: Callable[[Array, Any, Any], Array], solution: Array, given: Any) -> Array:
    """The solution itself, with the derivative in `given` by a rule.

    `rule(solution, given, given_tangent)` returns the tangent of the solution. It solves the linear system of the
    implicit function theorem and is itself differentiable, so derivatives of every order exist, forward and reverse.
    """
    del rule, given
    return solution


@with_derivative.defjvp
def _jvp(rule, primals, tangents):
    solution, given = with_derivative(rule, *primals), primals[1]
    return solution, rule(solution, given, tangents[1])


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def without_derivative(values: T, message: str) -> T:
    """The values themselves; a NotImplementedError with the message if a derivative is taken."""
    del message
    return values


@without_derivative.defjvp
def _refuse(message, primals, tangents):
    del primals, tangents
    raise NotImplementedError(message)
