"""Functions of one's own are told apart by what they hold."""

import importlib
import os
import shutil
import subprocess
import sys
import types
from collections import defaultdict
from enum import Enum
from functools import partial, partialmethod, singledispatch, wraps
from operator import itemgetter
from typing import ClassVar

import jax
import numpy as np
import pytest

pytest.importorskip("xarray", reason="studies need xarray")

from refusals import refused

import rrjax
from rrjax.study import Study, StudyError
from rrjax.study.identity import identity_of

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


def without_attributes(value):
    class Own:
        def __call__(self, counts, epsilon):
            return rrjax.inv(counts, epsilon) * value

    return Own()


def jitted(value):
    class Own:
        @jax.jit
        def __call__(self, counts, epsilon):
            return rrjax.inv(counts, epsilon) * value

    return Own()


def with_a_part(value):
    class Own:
        def scaled(self, factor, counts, epsilon):
            return rrjax.inv(counts, epsilon) * factor

        own = partialmethod(scaled, value)

    return Own().own


def private(value):
    class Own:
        __slots__ = ("__factor",)

        def __init__(self):
            self.__factor = value

        def __call__(self, counts, epsilon):
            return rrjax.inv(counts, epsilon) * self.__factor

    return Own()


def described(value):
    class Own:
        __slots__ = {"factor": "with its meaning"}

        def __call__(self, counts, epsilon):
            return rrjax.inv(counts, epsilon) * self.factor

    own = Own()
    own.factor = value
    return own


def decorated(value):
    def scaled(function):
        @wraps(function)
        def inner(counts, epsilon):
            return function(counts, epsilon) * value

        return inner

    return scaled(rrjax.inv)


def dispatched(value):
    @singledispatch
    def of(counts):
        return counts

    of.register(int)(lambda counts: counts * value)
    return lambda counts, epsilon: of(counts)


def by_default_factory(value):
    factors = defaultdict(lambda: value)
    return lambda counts, epsilon: rrjax.inv(counts, epsilon) * factors["a"]


def item(value):
    get = itemgetter(int(value))
    return lambda counts, epsilon: get(counts)


def of_a_class_method(value):
    class Own:
        _weights: ClassVar[list[float]] = [value, 2.0]

        @classmethod
        def scaled(cls, factor, counts):
            return counts * factor

        own = partialmethod(scaled, 1.0)

        def __call__(self, counts, epsilon):
            return rrjax.inv(counts, epsilon) * self._weights[0]

    return Own()


def of_a_member(value):
    class Way(Enum):
        ONE = 1

        def factor(self):
            return value

    way = Way.ONE
    return lambda counts, epsilon: rrjax.inv(counts, epsilon) * way.factor()


def built_in(value):
    get = {"a": value}.get
    return lambda counts, epsilon: rrjax.inv(counts, epsilon) * get("a")


KINDS = [without_attributes, jitted, with_a_part, private, described, decorated, dispatched, by_default_factory, item]
KINDS += [of_a_class_method, of_a_member, built_in]


def test_long_functions_and_objects_that_hold_themselves():
    """Many names have longer instructions."""
    held = {}
    exec(f"def f(x):\n    {'; '.join(f'x.a{number}' for number in range(300))}\n    import math as m", held)
    assert identity_of(held["f"])
    assert identity_of(len) != identity_of(sum)
    assert identity_of(len) == "builtins.len"
    itself = []
    itself.append(itself)
    with refused("estimators", error=StudyError):
        identity_of(lambda counts: itself)


STABLE = """
import enum
from collections import deque
import numpy as np
from rrjax.study.identity import identity_of

class Way(enum.Enum):
    A, B, C = "abc"

NAMES = np.array(["a", "b", "c"], object)
SETS = deque([{"a", "b", "c"}]), {frozenset("abc"): 1}, {Way.A, Way.B, Way.C}
def of(counts): return counts
WITH = {of: 1}, {object: len}

def own(counts): return counts * len(NAMES) * len(SETS) * len(WITH)
print(identity_of(own))
"""


@pytest.mark.long
def test_another_process_knows_a_function(tmp_path):
    (tmp_path / "own.py").write_text(STABLE)
    said = [
        subprocess.run([sys.executable, "own.py"], cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                       capture_output=True, text=True).stdout
        for seed in "12"
    ]  # fmt: skip
    assert said[0] == said[1] != ""


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
        *[tuple(kind(value) for value in (1.0, 2.0)) for kind in KINDS],
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


SMOOTHER = """
class Smoother:
    weight = 1.0
    __slots__ = ("share",)

    def __init__(self, share):
        self.share = share

    def smooth(self, counts):
        return counts * FACTOR

    @staticmethod
    def plain(counts):
        return counts * FACTOR

    @property
    def doubled(self):
        return FACTOR

smoother = Smoother(FACTOR)
"""
USES = {
    "a module of a package": "import own_package.core\ndef f(counts): return own_package.core.f(counts)",
    "a module by another name": "import own_package.core as core\ndef f(counts): return core.f(counts)",
    "a module of a module": "import own_package.other\ndef f(counts): return own_package.other.core.f(counts)",
    "a local import": "def f(counts):\n    from own_package.core import f\n    return f(counts)",
    "a local module": "def f(counts):\n    import own_package.core as core\n    return core.f(counts)",
    "a relative import": "def f(counts):\n    from .core import f\n    return f(counts)",
    "a relative module": "def f(counts):\n    from . import core\n    return (lambda: core.f(counts))()",
    "a method": "from .core import Smoother\ndef f(counts): return Smoother(0.1).smooth(counts)",
    "a static method": "from .core import Smoother\ndef f(counts): return Smoother.plain(counts)",
    "a property": "from .core import Smoother\ndef f(counts): return Smoother(0.1).doubled * counts",
    "a method of an object": "from .core import Smoother\nof = Smoother(0.1)\ndef f(counts): return of.smooth(counts)",
    "a slot of an object": "from .core import smoother\ndef f(counts): return smoother.share * counts",
    "a value of a class": "from .core import Smoother\ndef f(counts): return Smoother.weight * counts",
    "a module as a default": "from . import core\ndef f(counts, of=core): return of.f(counts)",
    "an attribute by its name": "from . import core\ndef f(counts): return getattr(core, 'weight_of') * counts",
    "an array of a class": "from .core import Held\ndef f(counts): return Held.array * counts",
}


@pytest.mark.parametrize("uses", USES)
def test_what_a_function_uses_of_other_modules_and_classes_counts(uses, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    folder = tmp_path / "own_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "other.py").write_text("from own_package import core")
    (folder / "study.py").write_text(USES[uses])

    def identity(factor):
        text = f"import numpy as np\n\ndef f(counts):\n    return counts * FACTOR\n{SMOOTHER}\nFACTOR = 1\n"
        text += "weight_of = FACTOR\nclass Held:\n    array = np.asarray([FACTOR])\n"
        (folder / "core.py").write_text(text.replace("FACTOR", str(factor)).replace(f"{factor} = 1\n", ""))
        for name in [name for name in sys.modules if name.startswith("own_package")]:
            monkeypatch.delitem(sys.modules, name)
        importlib.invalidate_caches()
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        return identity_of(importlib.import_module("own_package.study").f)

    one, other = identity(11), identity(22)
    assert one != other
    assert identity(11) == one
    assert one.startswith("own_package.study.f#")


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
