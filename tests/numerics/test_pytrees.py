"""Registration: instances pass through transformations, and no class is ever taken for another one."""

import dataclasses
import importlib
import inspect
import itertools
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT

import rrjax
from rrjax.numerics.pytrees import pytree


def line(name):
    @pytree("number")
    class Line:
        number: int
        start: float
        slope: float

    Line.__name__ = name
    return Line


def test_an_instance_passes_through_transformations():
    kind = line("Line")
    given = kind(3, 1.0, 2.0)
    doubled = jax.jit(lambda tree: jax.tree.map(lambda leaf: 2 * leaf, tree))(given)
    assert (doubled.number, float(doubled.start), float(doubled.slope)) == (3, 2.0, 4.0)
    assert jax.tree.leaves(given) == [1.0, 2.0]
    (path, _), _ = jax.tree_util.tree_leaves_with_path(given)
    assert jax.tree_util.keystr(path) == ".start"
    many = jax.vmap(lambda start: kind(3, start, start))(jnp.arange(4.0))
    assert many.start.shape == (4,)
    assert jax.tree.structure(given) == jax.tree.structure(doubled) != jax.tree.structure(kind(4, 1.0, 2.0))


@pytest.mark.full
@pytest.mark.once
def test_a_program_is_never_run_for_another_class():
    """Of 300 classes with the same fields, in one cache: those of `register_dataclass` are mixed up."""
    kinds = [line(str(number)) for number in range(300)]
    number = jax.jit(lambda tree: jnp.asarray(int(type(tree).__name__)))
    found = [int(number(kind(3, 1.0, 2.0))) for kind in kinds]
    assert found == list(range(300))


def registered_classes():
    """All of the library whose instances are pytrees, found by asking JAX to take one apart."""
    names = [module.name for module in pkgutil.walk_packages(rrjax.__path__, "rrjax.") if ".cli" not in module.name]
    modules = [importlib.import_module(name) for name in names]
    classes = {cls for module in modules for _, cls in inspect.getmembers(module, inspect.isclass)}
    own = [cls for cls in classes if cls.__module__.startswith("rrjax.") and dataclasses.is_dataclass(cls)]
    own.sort(key=lambda cls: (cls.__module__, cls.__name__))  # parallel workers must agree
    empty = {cls: object.__new__(cls) for cls in own if not inspect.isabstract(cls)}
    for cls, instance in empty.items():
        for field in dataclasses.fields(cls):
            if not isinstance(getattr(cls, field.name, None), property):  # a subclass may derive what its base stores
                object.__setattr__(instance, field.name, 1.0)
    # Direct questioning has no parameters, and so no leaves.
    return {cls: tree for cls, tree in empty.items() if not jax.tree_util.all_leaves([tree]) and jax.tree.leaves(tree)}


CLASSES = registered_classes()


@pytest.mark.once
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_whatever_takes_the_place_of_leaves_passes(cls):
    tree = CLASSES[cls]
    structure = jax.tree.structure(tree)
    for leaf in (0, -1.0, None, "text", object(), np.zeros((2, 3))):
        assert type(jax.tree.map(lambda _, leaf=leaf: leaf, tree)) is cls
    assert jax.tree.structure(jax.tree.map(jnp.zeros_like, tree)) == structure
    whole = jax.tree.map(lambda _: jnp.arange(3), tree)

    def total(tree):
        return sum(jnp.sum(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(tree))

    floats = jax.tree.map(lambda _: jnp.ones(3, jnp.float32), tree)
    slopes = jax.grad(total)(floats)
    assert slopes == floats
    assert jax.tree.leaves(jax.grad(total, allow_int=True)(whole))[0].dtype == jax.dtypes.float0
    _, change = jax.jvp(lambda tree: tree, (floats,), (slopes,))
    assert change == floats
    axes = jax.tree.map(lambda _: 0, tree)
    out = jax.vmap(lambda tree: tree, in_axes=(axes,), out_axes=axes)(floats)
    assert type(out) is cls
    assert jax.tree.structure(out) == structure
    (first,) = jax.tree.leaves(jax.eval_shape(lambda tree: tree, floats))[:1]
    assert first.shape == (3,)


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_equality_is_one_bool_and_large_leaves_are_shown_by_their_shape(cls):
    tree = CLASSES[cls]
    large, other = (jax.tree.map(lambda _, n=n: np.full((40, 50), n), tree) for n in (1, 2))
    assert (large == jax.tree.map(jnp.asarray, large)) is True
    assert (large == other) is False
    assert (large != other) is True
    assert (large == 1) is False
    for leaf in (None, object(), jax.ShapeDtypeStruct((3,), jnp.float32), jax.random.key(0)):
        assert repr(jax.tree.map(lambda _, leaf=leaf: leaf, tree)).startswith(cls.__name__)
    jax.jit(lambda tree: [repr(tree), tree][1])(large)
    assert len(repr(large)) < 60 * len(dataclasses.fields(cls)) + 60
    assert "[40, 50]" in repr(jax.tree.map(jnp.asarray, large)) or cls is rrjax.Tally
    with pytest.raises(TypeError):
        hash(large)


@pytest.mark.once
def test_plain_mechanisms_have_a_hash_that_goes_with_equality():
    one, same, other = (rrjax.RandomizedResponse(3, epsilon) for epsilon in (1.0, 1, 2.0))
    assert one == same != other
    assert hash(one) == hash(same)
    assert (one == rrjax.RandomizedResponse(3, jnp.asarray(1.0))) is True
    assert (rrjax.RandomizedResponse(3, jnp.ones(4)) == one) is False
    assert hash(rrjax.mechanisms.Warner(0.3)) == hash(rrjax.mechanisms.Warner(0.3))
    assert repr(one) == "RandomizedResponse(num_categories=3, epsilon=1.0)"


def test_a_likelihood_has_derivatives_and_zeros():
    mixture = rrjax.RandomizedResponse(3, 1.0).mixture([0, 1, 1, 2])
    theta = np.full(3, 1 / 3, FLOAT)
    slopes = jax.grad(lambda mixture: rrjax.nll(theta, mixture), allow_int=True)(mixture)
    assert slopes.weights.dtype == jax.dtypes.float0
    assert float(slopes.lift.scale) < 0
    assert type(jax.tree.map(jnp.zeros_like, mixture)) is rrjax.Mixture
    _, change = jax.jvp(lambda mixture: rrjax.nll(theta, mixture), (mixture,), (slopes,))
    assert float(change) > 0


@pytest.mark.long
@pytest.mark.once
def test_exported_functions_take_and_return_them():
    pytest.importorskip("flatbuffers")
    mechanism = rrjax.mechanisms.OptimizedUnaryEncoding(3, 1.0)
    tally = dataclasses.replace(mechanism.tally(np.eye(3, dtype=int)), domain=["red", "green", "blue"])
    for function, given in (
        (lambda reports: mechanism.tally(reports), np.eye(3, dtype=np.int32)),
        (lambda tally: tally + tally, tally),
        (lambda mixture: mixture, mechanism.mixture(np.eye(3, dtype=int))),
        (lambda law: law, rrjax.mechanisms.LocalHashing(3, jnp.asarray(1.0))),
    ):
        exported = jax.export.export(jax.jit(function))(given)
        found = jax.export.deserialize(exported.serialize()).call(given)
        assert found == function(given)


HOST = {"Audit", "Estimator", "MechanismErrors", "Metric", "Overlap", "Pair", "SplitErrors", "Style"}
"""NamedTuples of texts, functions or plain numbers, which no compiled function returns."""


def public_results():
    """All NamedTuples that are public, but for those of the host."""
    found = {}
    for name in rrjax.__all__:
        home = getattr(rrjax, name)
        named = getattr(home, "__all__", ())
        members = inspect.getmembers(home) if inspect.ismodule(home) else ()
        own = [
            kind
            for each, kind in members
            if each in named or f"{getattr(kind, '__module__', '')}.".startswith(f"{home.__name__}.")
        ]
        for value in (home, *own):
            if inspect.isclass(value) and issubclass(value, tuple) and not value.__name__.startswith("_"):
                found[value.__name__] = value
    assert set(found) > HOST
    return [found[name] for name in sorted(set(found) - HOST)]


@pytest.mark.once
@pytest.mark.parametrize("cls", public_results(), ids=lambda cls: cls.__name__)
def test_exported_functions_return_every_named_tuple(cls):
    pytest.importorskip("flatbuffers")
    exported = jax.export.export(jax.jit(lambda number: cls(*[number] * len(cls._fields))))(1.0)
    found = jax.export.deserialize(exported.serialize()).call(1.0)
    assert type(found) is cls
    assert all(float(field) == 1 for field in found)


@pytest.mark.once
def test_the_structures_of_all_classes_differ():
    structures = {cls: jax.tree.structure(tree) for cls, tree in registered_classes().items()}
    assert {rrjax.Tally, rrjax.Mixture, rrjax.RandomizedResponse} <= set(structures)
    assert len(structures) > 25
    for (one, first), (other, second) in itertools.combinations(structures.items(), 2):
        assert first != second, f"{one.__name__} and {other.__name__}"
