"""Registration: instances pass through transformations, and no class is ever taken for another one."""

import dataclasses
import importlib
import inspect
import itertools
import pkgutil

import jax
import jax.numpy as jnp
import pytest

import rrjax
from rrjax.pytrees import register


def line(name):
    @register(data_fields=["slope", "start"], meta_fields=["number"])
    @dataclasses.dataclass(frozen=True)
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
    assert jax.tree.leaves(given) == [2.0, 1.0]
    (path, _), _ = jax.tree_util.tree_leaves_with_path(given)
    assert jax.tree_util.keystr(path) == ".slope"
    many = jax.vmap(lambda start: kind(3, start, start))(jnp.arange(4.0))
    assert many.start.shape == (4,)
    assert jax.tree.structure(given) == jax.tree.structure(doubled) != jax.tree.structure(kind(4, 1.0, 2.0))


@pytest.mark.long
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
    empty = {cls: object.__new__(cls) for cls in own if not inspect.isabstract(cls)}
    for cls, instance in empty.items():
        for field in dataclasses.fields(cls):
            if not isinstance(getattr(cls, field.name, None), property):  # a subclass may derive what its base stores
                object.__setattr__(instance, field.name, 1.0)
    return {cls: tree for cls, tree in empty.items() if not jax.tree_util.all_leaves([tree])}


@pytest.mark.once
def test_the_structures_of_all_classes_differ():
    structures = {cls: jax.tree.structure(tree) for cls, tree in registered_classes().items()}
    assert {rrjax.Tally, rrjax.Mixture, rrjax.RandomizedResponse} <= set(structures)
    assert len(structures) > 25
    for (one, first), (other, second) in itertools.combinations(structures.items(), 2):
        assert first != second, f"{one.__name__} and {other.__name__}"
