"""Registration of classes whose instances are arguments of compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from jax import tree_util

_Class = TypeVar("_Class", bound=type)


def register(*, data_fields: Sequence[str], meta_fields: Sequence[str] = ()) -> Callable[[_Class], _Class]:
    """Makes a dataclass a pytree: a decorator.

    `jax.tree_util.register_dataclass` would do, were it not that two classes which it has registered, with equal meta
    fields, have *equal* tree structures (jaxlib up to 0.10 at least; only their hashes differ). Once in some hundred
    cases the hashes collide, and `jax.jit` runs for the one class what it has compiled for the other.

    Args:
        data_fields: The leaves, in order.
        meta_fields: What is static.

    Returns:
        What registers the class, and returns it.

    Example:
        >>> import dataclasses, jax
        >>> @register(data_fields=["length"], meta_fields=["name"])
        ... @dataclasses.dataclass(frozen=True)
        ... class Rope:
        ...     length: float
        ...     name: str
        >>> jax.tree.leaves(Rope(2.0, "long"))
        [2.0]
    """
    data, meta = tuple(data_fields), tuple(meta_fields)
    keys = tuple(tree_util.GetAttrKey(name) for name in data)

    def register_class(cls: _Class) -> _Class:
        def flatten(tree: Any):
            return tuple([getattr(tree, name) for name in data]), tuple([getattr(tree, name) for name in meta])

        def flatten_with_keys(tree: Any):
            leaves, static = flatten(tree)
            return tuple(zip(keys, leaves, strict=True)), static

        def unflatten(static: tuple[Any, ...], leaves: Iterable[Any]):
            return cls(**dict(zip(data, leaves, strict=True)), **dict(zip(meta, static, strict=True)))

        tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
        return cls

    return register_class
