"""Functions of one's own are told apart by what they hold."""

import sys
import types
from functools import partial

import jax
import numpy as np
import pytest

pytest.importorskip("xarray", reason="studies need xarray")

from refusals import refused

import rrjax
from rrjax.study import Study, StudyError
from rrjax.study.functions import identity_of

_FACTOR = 1.0


def _uses_a_global(counts, epsilon):
    return rrjax.inv(counts, epsilon) * _FACTOR


def _uses_a_module(counts, epsilon):
    return rrjax.inv(counts, epsilon) * helpers.factor()  # noqa: F821 - which the test brings


class Scaled:
    __hash__ = None  # as of a plain dataclass

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, counts, epsilon):
        return rrjax.inv(counts, epsilon) * self.factor

    def method(self, counts, epsilon):
        return self(counts, epsilon)


class Inherits(Scaled):
    def extra(self):
        """A method of its own, which `__call__` might use."""


def test_functions_are_told_apart_by_what_they_hold(monkeypatch):
    def holding(value):
        return lambda counts, epsilon: rrjax.inv(counts, epsilon) * value

    def by_default(value):
        def function(counts, epsilon, value=value):
            return rrjax.inv(counts, epsilon) * value

        return function

    def nested(value):
        inner = holding(value)
        return lambda counts, epsilon: inner(counts, epsilon)

    def recursive(counts, epsilon):
        return rrjax.inv(counts, epsilon) if counts.shape else recursive(counts, epsilon)

    pairs = [
        (holding(1.0), holding(2.0)),
        (holding(np.ones(3)), holding(np.zeros(3))),
        (by_default(1.0), by_default(2.0)),
        (nested(1.0), nested(2.0)),
        (partial(rrjax.mle_star, solver="sort"), partial(rrjax.mle_star, solver="newton")),
        (partial(holding(1.0)), partial(holding(2.0))),
        (Scaled(1.0), Scaled(2.0)),
        (Scaled(1.0).method, Scaled(2.0).method),
        (jax.jit(holding(1.0)), jax.jit(holding(2.0))),
        (holding(types.SimpleNamespace(value=1.0)), holding(types.SimpleNamespace(value=2.0))),
        (holding(types.SimpleNamespace(value=np.zeros(2000))), holding(types.SimpleNamespace(value=np.ones(2000)))),
        (Inherits(1.0), Scaled(1.0)),
    ]
    for one, other in pairs:
        assert identity_of(one) != identity_of(other)
    assert identity_of(holding(1.0)) == identity_of(holding(1.0))
    assert identity_of(recursive) == identity_of(recursive)
    assert " at 0x" not in identity_of(Scaled(object()))
    helpers = types.ModuleType("helpers")
    helpers.factor = lambda: 1.0
    monkeypatch.setattr(sys.modules[__name__], "helpers", helpers, raising=False)
    before = identity_of(_uses_a_module)
    helpers.factor = lambda: 2.0
    assert identity_of(_uses_a_module) != before
    before = identity_of(_uses_a_global)
    monkeypatch.setattr(sys.modules[__name__], "_FACTOR", 2.0)
    assert identity_of(_uses_a_global) != before


@pytest.mark.full
@pytest.mark.once
def test_a_changed_estimator_is_computed_anew(tmp_path, monkeypatch):
    def small(estimator, **arguments):
        study = Study(estimators={"own": estimator}, num_categories=3, num_users=10, epsilon=1.0, zipf=1.0, num_seeds=2)
        return float(study.run(**arguments).mse.squeeze())

    one = small(Scaled(1.0), folder=tmp_path)
    assert small(Scaled(1.0), folder=tmp_path) == one
    with refused("folder", error=StudyError, value=["estimators"]):
        small(Scaled(0.0), folder=tmp_path)
    with_global = small(_uses_a_global)
    monkeypatch.setattr(sys.modules[__name__], "_FACTOR", 0.0)
    assert small(_uses_a_global) != with_global
