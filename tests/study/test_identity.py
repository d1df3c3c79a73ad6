"""Functions of one's own are told apart by what they compute, however they come to it."""

import contextlib
import importlib
import os
import subprocess
import sys
from functools import partial, wraps

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("xarray", reason="studies need xarray")

from refusals import refused

import rrjax
from rrjax.study import Study, StudyError

_FACTOR = 1.0
MANY = np.random.default_rng(0).random(5000)
ANSWER = "import rrjax\n\ndef own(*given):\n    return rrjax.inv(*given) * "


def study_of(estimator, **changes):
    given = {"num_categories": 3, "num_users": 10, "epsilon": 1.0, "zipf": 1.0, "num_seeds": 2}
    return Study(estimators={"own": estimator}, **{**given, **changes})


def identity_of(estimator, **changes):
    return study_of(estimator, **changes).describe()["estimators"]["own"]


def weighted(counts, epsilon, weight=1.0):
    return rrjax.inv(counts, epsilon) * weight


def uses_a_global(counts, epsilon):
    return rrjax.inv(counts, epsilon) * _FACTOR


class Weighted:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, counts, epsilon):
        return rrjax.inv(counts, epsilon) * self.weight

    def method(self, counts, epsilon):
        return self(counts, epsilon)


def decorated(value):
    def scaled(function):
        @wraps(function)
        def inner(counts, epsilon):
            return function(counts, epsilon) * value

        return inner

    return scaled(rrjax.inv)


def in_a_context(value):
    @contextlib.contextmanager
    def mixing():
        before = Held.value
        Held.value = value
        yield
        Held.value = before

    @mixing()
    def own(counts, epsilon):
        return rrjax.inv(counts, epsilon) * Held.value

    return own


class Held:
    value = 0.0


def derivative(value):
    @partial(jax.grad, argnums=int(value) - 1)
    def slope(one, other):
        return one * one + 3 * other

    return lambda counts, epsilon: jax.vmap(slope)(rrjax.inv(counts, epsilon), rrjax.inv_n(counts, epsilon))


def batched(value):
    """What is computed of several collections at once, as in a study."""

    @jax.custom_batching.custom_vmap
    def own(theta):
        return theta

    own.def_vmap(lambda size, given, theta: (theta * value, True))
    return lambda counts, epsilon: own(rrjax.inv(counts, epsilon))


def a_long_array(value):
    held = np.append(MANY, value)
    return lambda counts, epsilon: rrjax.inv(counts, epsilon) * jnp.sum(held)


def random_numbers(value):
    return lambda key, counts, epsilon: rrjax.inv(counts, epsilon) * jax.random.uniform(key) * value


def a_frame(value):
    frame = pytest.importorskip("pandas").DataFrame({"a": [value, 1.0, 2.0]})
    return lambda counts, epsilon: rrjax.inv(counts, epsilon) * frame["a"].to_numpy()


KINDS = {
    "a closure": lambda value: lambda counts, epsilon: rrjax.inv(counts, epsilon) * value,
    "a small difference": lambda value: lambda counts, epsilon: rrjax.inv(counts, epsilon) * (1 + 2e-7 * value),
    "a long array": a_long_array,
    "a part": lambda value: partial(weighted, weight=value),
    "a part, compiled": lambda value: jax.jit(partial(jax.jit(weighted), weight=value)),
    "an object": Weighted,
    "a method": lambda value: Weighted(value).method,
    "a decorator": decorated,
    "a context": in_a_context,
    "a derivative": derivative,
    "several at once": batched,
    "a frame": a_frame,
    "a solver": lambda value: partial(rrjax.mle_star, solver="sort" if value == 1 else "newton"),
    "random numbers": lambda value: (
        lambda key, counts, epsilon: rrjax.inv(counts, epsilon) * jax.random.uniform(key) * value
    ),
    "a precision": lambda value: (
        lambda counts, epsilon: jnp.matmul(
            jnp.eye(3), rrjax.inv(counts, epsilon), precision="highest" if value == 1 else "default"
        )
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_functions_are_told_apart_by_what_they_compute(kind):
    one, other, again = (identity_of(KINDS[kind](value)) for value in (1.0, 2.0, 1.0))
    assert one != other
    assert one == again


@pytest.mark.long
def test_a_difference_for_one_number_of_categories_counts():
    def own(value):
        return lambda counts, epsilon: rrjax.inv(counts, epsilon) * (value if len(counts) == 4 else 1.0)

    assert identity_of(own(1.0)) == identity_of(own(2.0))
    assert identity_of(own(1.0), num_categories=(3, 4)) != identity_of(own(2.0), num_categories=(3, 4))


@pytest.mark.long
def test_metrics_mechanisms_and_rows_are_told_apart_alike():
    def described(weight):
        def metric(estimate, truth):
            return jnp.max(estimate) * weight

        def mechanism(num_categories, epsilon):
            return rrjax.RandomizedResponse(num_categories, epsilon * weight)

        def own(counts, epsilon):
            return rrjax.inv(counts, epsilon)

        own.in_rows = lambda given: given.counts.astype(given.epsilon.dtype) * weight
        by_mechanism = study_of(lambda tally, epsilon: rrjax.inv(tally), mechanism={"own": mechanism}).describe()
        return [
            study_of(rrjax.inv, metrics={"own": metric}).describe()["metrics"],
            by_mechanism["mechanism"],
            identity_of(own),
        ]

    one, other = described(1.0), described(0.5)
    assert all(first != second for first, second in zip(one, other, strict=True))
    assert one == described(1.0)


def test_functions_of_rrjax_are_their_names():
    assert identity_of(rrjax.mle_star) == "rrjax.estimators.closed_form.mle_star"
    assert identity_of(jax.jit(partial(weighted))).startswith("test_identity.weighted#")


@pytest.mark.long
def test_what_a_function_reads_counts(tmp_path, monkeypatch):
    file = tmp_path / "prior.npy"

    def of_a_file(counts, epsilon):
        return rrjax.inv(counts, epsilon) * np.load(file)

    def of_the_environment(counts, epsilon):
        return rrjax.inv(counts, epsilon) * float(os.environ["OWN_WEIGHT"])

    identities = []
    for value in (1.0, 2.0):
        np.save(file, np.full(3, value))
        monkeypatch.setenv("OWN_WEIGHT", str(value))
        monkeypatch.setattr(sys.modules[__name__], "_FACTOR", value)
        identities.append([identity_of(each) for each in (of_a_file, of_the_environment, uses_a_global)])
    assert all(one != other for one, other in zip(*identities, strict=True))


def test_other_modules_count(tmp_path, monkeypatch):
    """Also one with the name of a standard one."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("own_module", "this"):
        identities = []
        for factor in (1.5, 22.5):
            (tmp_path / f"{name}.py").write_text(
                f"import rrjax\n\ndef own(*given):\n    return rrjax.inv(*given) * {factor}\n"
            )
            monkeypatch.delitem(sys.modules, name, raising=False)
            importlib.invalidate_caches()
            identities.append(identity_of(importlib.import_module(name).own))
        monkeypatch.delitem(sys.modules, name)
        assert identities[0] != identities[1]


@pytest.mark.full
@pytest.mark.once
def test_functions_that_call_python_for_a_value_go_on_in_no_folder(tmp_path):
    """Their programs do not say what they call; one that only prints is no other for it."""
    kind = jax.ShapeDtypeStruct((3,), np.float32)

    def called(counts, epsilon, value=1.0):
        def own(counts):
            return np.float32(counts) * np.float32(value)

        return jax.pure_callback(own, kind, counts, vmap_method="sequential")

    def prints(counts, epsilon):
        jax.debug.callback(lambda *_: None, counts)
        return rrjax.inv(counts, epsilon)

    one, other = (float(study_of(each).run().mse.squeeze()) for each in (called, partial(called, value=2.0)))
    assert one != other
    for function, refuses in ((called, True), (prints, False)):
        folder = tmp_path / function.__name__
        first = study_of(function).run(folder=folder)
        with refused("folder", error=StudyError) if refuses else contextlib.nullcontext():
            assert study_of(function).run(folder=folder).mse.equals(first.mse)


@pytest.mark.long
def test_rates_that_are_not_those_of_the_tallies_count():
    def mechanism(scale):
        class Own(rrjax.RandomizedResponse):
            def collect(self, key, true_counts):
                return rrjax.RandomizedResponse(self.num_categories, self.epsilon).collect(key, true_counts)

            @property
            def rates(self):
                rates = rrjax.RandomizedResponse(self.num_categories, self.epsilon).rates
                return rates._replace(truth=rates.truth * scale)

        return study_of(rrjax.inv, mechanism={"own": Own}).describe()["mechanism"]

    assert mechanism(1.0) != mechanism(0.5)


def test_an_estimator_that_is_there_in_rows_alone():
    def own(counts, epsilon):
        raise NotImplementedError

    def described(last):
        many = np.append(np.ones(2**15), last).astype(np.float32)

        def in_rows(given):
            height = given.counts.shape[0]
            return given.counts.astype(np.float32) * given.rows.spread(jnp.asarray(many[-height:]))

        own.in_rows = in_rows
        return identity_of(own)

    assert described(1.0) != described(2.0)


STABLE = """
import jax, numpy as np, rrjax
from rrjax.study import Study

NAMES = {"a", "b", "c"}
PRIOR = np.random.default_rng(1).random(4)

@jax.jit
def own(key, counts, epsilon):
    return jax.grad(lambda x: (x**2).sum())(PRIOR) * len(NAMES) + jax.random.normal(key, 4) + rrjax.inv(counts, epsilon)

study = Study(estimators={"own": own}, num_categories=4, num_users=10, epsilon=1.0, zipf=1.0, num_seeds=2)
print(study.describe()["estimators"])
"""


@pytest.mark.full
def test_another_process_knows_a_function(tmp_path):
    (tmp_path / "own.py").write_text(STABLE)
    said = [
        subprocess.run([sys.executable, "own.py"], cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                       capture_output=True, text=True).stdout
        for seed in "12"
    ]  # fmt: skip
    assert said[0] == said[1] != ""


@pytest.mark.full
@pytest.mark.once
def test_a_changed_estimator_is_computed_anew(tmp_path, monkeypatch):
    def small(estimator, **arguments):
        return float(study_of(estimator).run(**arguments).mse.squeeze())

    one = small(Weighted(1.0), folder=tmp_path)
    assert small(Weighted(1.0), folder=tmp_path) == one
    with refused("folder", error=StudyError, value=["estimators"]):
        small(Weighted(0.0), folder=tmp_path)
    before = small(uses_a_global)
    monkeypatch.setattr(sys.modules[__name__], "_FACTOR", 0.0)
    assert small(uses_a_global) != before
    monkeypatch.setattr(sys.modules[__name__], "_FACTOR", 1.0)
    compiled = partial(jax.jit(uses_a_global))
    assert small(compiled) == one
    monkeypatch.setattr(sys.modules[__name__], "_FACTOR", 0.0)
    assert small(compiled) != one
    changing = Weighted(1.0)
    assert small(changing) == one
    changing.weight = 0.0
    assert small(changing) != one
