"""Registration of classes whose instances are arguments of compiled functions."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, tree_util
from jax.core import Tracer

_Class = TypeVar("_Class", bound=type)

SHOWN_NUMBERS = 6
"""Largest size of an array whose numbers `repr` prints."""


@dataclass_transform(frozen_default=True)
def pytree(*meta_fields: str, **options: bool) -> Callable[[_Class], _Class]:
    """A decorator that makes a class a frozen dataclass and a pytree, whose leaves are its fields but `meta_fields`.

    Two classes that `jax.tree_util.register_dataclass` has registered, with equal meta fields, have *equal* tree
    structures (jaxlib up to 0.10 at least; only their hashes differ). If the hashes collide, which happens once in some
    hundred cases, `jax.jit` runs for one class the program compiled for the other.

    JAX may put other objects in place of a leaf: a tracer, a batch, a zero without a dtype, a number of an axis. So an
    instance is made of leaves without `__init__` and `__post_init__`, which check the arguments of users.

    Functions that take or return an instance can be exported: `jax.export` stores the full name of the class, and its
    meta fields as JSON. `==` is one bool, see `equal`; `repr` is short. An instance has a hash if all its fields have
    one: numbers and texts do, arrays do not (`TypeError`).

    Example:
        >>> import jax
        >>> @pytree("name")
        ... class Rope:
        ...     length: float
        ...     name: str
        >>> jax.tree.leaves(Rope(2.0, "long"))
        [2.0]
        >>> jax.tree.map(lambda length: jax.numpy.full(1000, length), Rope(2.0, "long"))
        Rope(length=float32[1000], name='long')
    """

    def register_class(cls: _Class) -> _Class:
        cls = dataclasses.dataclass(frozen=True, **options)(cls)
        in_order = [field.name for field in dataclasses.fields(cls)]
        data = tuple(name for name in in_order if name not in meta_fields)
        keys = tuple(map(tree_util.GetAttrKey, data))

        def flatten(tree: Any):
            return tuple([getattr(tree, name) for name in data]), tuple([getattr(tree, name) for name in meta_fields])

        def flatten_with_keys(tree: Any):
            leaves, static = flatten(tree)
            return tuple(zip(keys, leaves, strict=True)), static

        def unflatten(static: tuple[Any, ...], leaves: Iterable[Any]):
            tree = object.__new__(cls)
            for names, values in ((data, leaves), (meta_fields, static)):
                for name, value in zip(names, values, strict=True):
                    object.__setattr__(tree, name, value)
            return tree

        def shown(tree: Any) -> str:
            fields = ", ".join(f"{name}={short(getattr(tree, name))}" for name in in_order)
            return f"{type(tree).__name__}({fields})"

        tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
        # A class defined again under its name, as in a notebook, cannot and need not be registered again.
        with contextlib.suppress(ValueError):
            export.register_pytree_node_serialization(
                cls,
                serialized_name=f"{cls.__module__}.{cls.__qualname__}",
                serialize_auxdata=lambda static: json.dumps(static).encode(),
                deserialize_auxdata=lambda text: _as_tuples(json.loads(text)),
            )
        methods: dict[str, Any] = {"__eq__": equal, "__hash__": lambda tree: hash((cls, *flatten(tree)))}
        if options.get("repr", True):  # it has none of its own
            methods["__repr__"] = shown
        for name, method in methods.items():
            setattr(cls, name, method)
        return cls

    return register_class


def exportable(cls: _Class) -> _Class:
    """A decorator that lets exported functions (`jax.export`) take and return a NamedTuple."""
    with contextlib.suppress(ValueError):  # as above
        export.register_namedtuple_serialization(cls, serialized_name=f"{cls.__module__}.{cls.__qualname__}")
    return cls


def equal(tree: Any, other: Any) -> Any:
    """Whether two instances of a registered class have the same static fields and the same numbers: their `==`.

    Raises:
        jax.errors.TracerArrayConversionError: A leaf is traced: compare leaves with `jax.tree.map`.
    """
    if type(tree) is not type(other):
        return NotImplemented
    (ours, structure), (theirs, another) = tree_util.tree_flatten(tree), tree_util.tree_flatten(other)
    # As arrays first: array_equal returns false, not an error, for values that cannot become arrays.
    return structure == another and all(map(np.array_equal, map(np.asarray, ours), map(np.asarray, theirs)))


def short(value: Any) -> str:
    """The text of a field; an array of more than six numbers is its dtype and shape."""
    if isinstance(value, tuple):
        return f"{getattr(type(value), '__name__', '').removeprefix('tuple')}({', '.join(map(short, value))})"
    if not isinstance(value, np.ndarray | jax.Array):
        return repr(value)
    hidden = isinstance(value, Tracer) or (isinstance(value, jax.Array) and not _readable(value))
    if hidden or value.ndim > 1 or value.size > SHOWN_NUMBERS:
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    known = np.asarray(value)
    return str(known) if known.ndim == 0 else f"[{', '.join(map(str, known))}]"


def _as_tuples(value):
    """Lists as tuples, at every depth: JSON has no tuples, and static fields need a hash."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _readable(array):
    """Whether this process can read the numbers: not those of keys, donated arrays, or other processes."""
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return not is_key and not array.is_deleted() and array.is_fully_addressable
