"""Functions of one's own are told apart by the values of objects of any class, and by what is wrapped in wrappers."""

import functools
import importlib
import os
import subprocess
import sys
from collections import namedtuple

import jax
import numpy as np
import optax
import pytest

pytest.importorskip("xarray", reason="studies need xarray")

import rrjax
from rrjax.study import Study
from rrjax.study.identity import identity_of


def weighted(counts, epsilon, weight=1.0):
    return rrjax.inv(counts, epsilon) * weight


def holding(value):
    return lambda counts, epsilon: rrjax.inv(counts, epsilon) * value


class Shrinking:
    def __init__(self, weight):
        self.weight = weight

    @functools.cached_property
    def doubled(self):
        return 2 * self.weight

    def estimate(self, counts, epsilon):
        return rrjax.inv(counts, epsilon) * self.weight


class OwnDict(dict):
    pass


class OwnList(list):
    pass


class OwnSet(set):
    pass


class OwnFloat(float):
    pass


class OwnText(str):
    pass


Pair = namedtuple("Pair", "one other")


def a_method_of_a_tuple(value):
    class Own(namedtuple("Own", "one")):
        def scaled(self, counts):
            return counts * value

    own = Own(1)
    return lambda counts, epsilon: own.scaled(counts)


def a_rule_of_a_derivative(value):
    @jax.custom_jvp
    def own(x):
        return x

    own.defjvp(lambda primals, tangents: (primals[0], tangents[0] * value))
    return lambda counts, epsilon: own(counts)


def a_dispatched_method(value):
    class Own:
        @functools.singledispatchmethod
        def of(self, counts):
            return counts

        @of.register
        def _(self, counts: int):
            return counts * value

        def __call__(self, counts, epsilon):
            return self.of(counts)

    return Own()


def a_call_with_a_part(value):
    class Own:
        def scaled(self, weight, counts, epsilon):
            return counts * weight

        __call__ = functools.partialmethod(scaled, value)

    return Own()


def a_metaclass(value):
    class Kind(type):
        @property
        def weight(cls):
            return value

    class Own(metaclass=Kind):
        pass

    return lambda counts, epsilon: counts * Own.weight


def a_frame(value):
    frames = pytest.importorskip("pandas")
    return holding(frames.DataFrame({"a": [value, 1.0]}))


def a_frame_of_polars(value):
    frames = pytest.importorskip("polars")
    return holding(frames.DataFrame({"a": [0.0] * 50 + [value] + [0.0] * 49}))


KINDS = {
    "a part, compiled": lambda value: jax.jit(functools.partial(weighted, weight=value)),
    "a part of what is compiled": lambda value: jax.jit(functools.partial(jax.jit(weighted), weight=value)),
    "a part, vectorized": lambda value: jax.vmap(functools.partial(weighted, weight=value)),
    "a part, computed again": lambda value: jax.checkpoint(functools.partial(weighted, weight=value)),
    "a method, compiled": lambda value: jax.jit(Shrinking(value).estimate),
    "a derivative": lambda value: jax.grad(weighted) if value == 1 else weighted,
    "which derivative": lambda value: jax.grad(weighted, argnums=int(value) - 1),
    "an axis": lambda value: jax.vmap(weighted, in_axes=(0, None) if value == 1 else (None, 0)),
    "a rule of a derivative": a_rule_of_a_derivative,
    "an optimizer": lambda value: holding(optax.adam(value / 10)),
    "a schedule": lambda value: holding(optax.sgd(optax.cosine_decay_schedule(value, 10))),
    "a dispatched method": a_dispatched_method,
    "a call with a part": a_call_with_a_part,
    "a metaclass": a_metaclass,
    "a frame": a_frame,
    "a frame of Polars": a_frame_of_polars,
    "a method of a tuple": a_method_of_a_tuple,
    "a long field of a tuple": lambda value: holding(Pair(np.r_[np.zeros(1000), value, np.zeros(1000)], 1)),
    "an own dict": lambda value: holding(OwnDict(a=value)),
    "an own list": lambda value: holding(OwnList([value])),
    "an own set": lambda value: holding(OwnSet([value])),
    "an own float": lambda value: holding(OwnFloat(value)),
    "an own text": lambda value: holding(OwnText(value)),
    "a number of NumPy": lambda value: holding(np.float32(value)),
    "a generator": lambda value: holding(np.random.default_rng(int(value))),
    "a mask": lambda value: holding(np.ma.array([1, 2], mask=[value == 1, False])),
    "a key": lambda value: holding(jax.random.key(int(value))),
    "a mechanism": lambda value: holding(rrjax.RandomizedResponse(4, value)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_functions_are_told_apart_by_their_objects(kind):
    one, other = KINDS[kind](1.0), KINDS[kind](2.0)
    assert identity_of(one) != identity_of(other)
    assert identity_of(KINDS[kind](1.0)) == identity_of(one)


def test_a_branch_that_catches_errors_counts():
    functions = []
    for text in ("  one(c)\n  two(c)\n except Exception: pass\n", "  one(c)\n except Exception: pass\n else: two(c)\n"):
        exec(f"def own(c, e):\n try:\n{text} return c", held := {})
        functions.append(held["own"])
    assert identity_of(functions[0]) != identity_of(functions[1])


def test_a_value_that_is_kept_is_no_change():
    own = Shrinking(1.0)
    before = identity_of(holding(own))
    assert own.doubled == 2
    assert identity_of(holding(own)) == before


def test_the_name_of_an_attribute_is_no_global(monkeypatch):
    function = Shrinking(1.0).estimate
    before = identity_of(function)
    monkeypatch.setitem(Shrinking.estimate.__globals__, "weight", 3)
    assert identity_of(function) == before


def test_functions_of_libraries_are_their_names():
    assert identity_of(rrjax.mle_star) == "rrjax.estimators.closed_form.mle_star"
    assert "#" not in identity_of(jax.nn.softmax)


def test_a_module_may_have_the_name_of_a_standard_one(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "this", raising=False)
    identities = []
    for factor in (1, 22):
        (tmp_path / "this.py").write_text(f"def own(counts, epsilon):\n    return counts * {factor}\n")
        monkeypatch.delitem(sys.modules, "this", raising=False)
        importlib.invalidate_caches()
        identities.append(identity_of(importlib.import_module("this").own))
    monkeypatch.delitem(sys.modules, "this")
    assert identities[0] != identities[1]


def test_a_new_version_of_an_installed_package_counts(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    identities = []
    for factor in (1, 22):
        (folder / "own_installed.py").write_text(f"def own(counts, epsilon):\n    return counts * {factor}\n")
        monkeypatch.delitem(sys.modules, "own_installed", raising=False)
        importlib.invalidate_caches()
        identities.append(identity_of(importlib.import_module("own_installed").own))
    monkeypatch.delitem(sys.modules, "own_installed")
    assert identities[0] != identities[1]


STABLE = """
import jax, numpy as np, optax, re, logging, threading
from rrjax.study.identity import identity_of

class Own(set): pass
VALUES = Own("abc"), optax.adam(0.1), np.random.default_rng(1), re.compile("a"), threading.Lock()
LOG = logging.getLogger("own")
def own(counts): return VALUES, LOG, jax.grad(own)(counts)
print(identity_of(own), identity_of(jax.vmap(own)))
"""


@pytest.mark.long
def test_another_process_knows_objects(tmp_path):
    (tmp_path / "own.py").write_text(STABLE)
    said = [
        subprocess.run([sys.executable, "own.py"], cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                       capture_output=True, text=True).stdout
        for seed in "12"
    ]  # fmt: skip
    assert said[0] == said[1] != ""


@pytest.mark.full
@pytest.mark.once
def test_a_frame_that_was_replaced_is_computed_with(monkeypatch):
    frames = pytest.importorskip("pandas")

    def run():
        study = Study(estimators={"own": own}, num_categories=3, num_users=10, epsilon=1.0, zipf=1.0, num_seeds=2)
        return float(study.run().mse.squeeze())

    def own(counts, epsilon):
        return jax.numpy.asarray(prior.to_numpy())  # noqa: F821 - which the test brings

    held = own.__globals__
    monkeypatch.setitem(held, "prior", frames.Series([1.0, 0.0, 0.0]))
    before = run()
    monkeypatch.setitem(held, "prior", frames.Series([0.0, 0.0, 1.0]))
    assert run() != before
