"""Values that meet in a computation are made to live in the same place, where devices are many.

Inside `shard_map` every value has a type that says along which axes of the mesh it differs, and the state of a loop
must keep that type from turn to turn: a zero that the data are added to must differ along the axes of the data from
the start. On a mesh with explicit axes a value also knows its mesh, and one that does not (a constant, an ε from
outside) must be put on it before `vmap` can spread it. Everywhere else nothing happens here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Shaped

T = TypeVar("T")


def aligned(values: T, *others: object) -> T:
    """Makes values differ along the same axes, on the same mesh.

    Args:
        values: A pytree of arrays that meet, such as the state of a loop.
        *others: Pytrees that they will meet, and that stay as they are.

    Returns:
        `values`, unchanged outside of `shard_map` and of meshes with explicit axes.
    """
    types = [jax.typeof(leaf) for leaf in jax.tree.leaves((values, others))]
    axes = frozenset().union(*map(_varying, types))
    meshes = [kind.sharding.mesh for kind in types if AxisType.Explicit in kind.sharding.mesh.axis_types]
    if not axes and not meshes:
        return values

    def place(leaf):
        if not isinstance(leaf, jax.Array):
            return leaf  # a literal goes anywhere
        kind = jax.typeof(leaf)
        if meshes and kind.sharding.mesh.empty:
            everywhere = NamedSharding(meshes[0], PartitionSpec(*[None] * leaf.ndim))
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                # A product in place of a move, because a batch of cotangents cannot be moved back.
                leaf = leaf * jnp.ones(leaf.shape, leaf.dtype, device=everywhere)
            else:
                leaf = jax.sharding.reshard(leaf, everywhere)
        missing = tuple(sorted(axes - _varying(kind)))
        return lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(place, values)


def _varying(kind):
    # Its name until jax 0.10.1, and since.
    return kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying


def repeat(number: Int[Array, ""], body: Callable[[Int[Array, ""], T], T], state: T) -> T:
    """`fori_loop` from zero to a number that is data, such as a batch of numbers under `vmap`."""
    start, state = aligned((jnp.int32(0), state), number)
    return lax.fori_loop(start, number, body, state)


def looked_up(table: Shaped[Array, " n"], places: Int[Array, "*s"]) -> Shaped[Array, "*s"]:
    """table[places], for places within it, wherever the places are."""
    sharding = jax.typeof(places).sharding
    if AxisType.Explicit not in sharding.mesh.axis_types:
        return table.at[places].get(mode="promise_in_bounds")
    if places.ndim == 0:  # for which JAX has another way, that knows no sharding
        return looked_up(table, places[None])[0]
    return aligned(table, places).at[places].get(mode="promise_in_bounds", out_sharding=sharding)


def by_platform(*arguments: Any, cpu: Callable[..., T], elsewhere: Callable[..., T]) -> T:
    """Computes in one way on CPUs and in another on GPUs and TPUs: of two programs for the same values the faster one.

    Where JAX finds an accelerator, what decides is the platform that a program is compiled for, not the default device.

    Args:
        *arguments: Pytrees of arrays.
        cpu: Of the arguments.
        elsewhere: Of the same, to a result of the same type.

    Returns:
        The result.
    """
    if jax.default_backend() == "cpu":  # tracing a way that nobody goes takes tens of milliseconds of a first call
        return cpu(*arguments)
    return lax.platform_dependent(*arguments, cpu=cpu, default=elsewhere)


def one_by_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """Makes a function of arrays run for one example after the other under `vmap`, on CPUs.

    For calls into LAPACK: jaxlib spreads a batch of them over the threads that run programs, and waits. Where several
    devices compute at once, every thread waits for another, for ever.

    Args:
        function: Of arrays, to an array. It is given no derivative here.

    Returns:
        The same function; elsewhere than on CPUs, and on a mesh with explicit axes, it is batched as ever.
    """
    alone = jax.custom_batching.custom_vmap(function)

    def batched(size, given, *arguments):
        together = jax.vmap(function, in_axes=tuple(0 if each else None for each in given))

        def in_turn(*arguments):
            whole = [
                argument if each else jnp.broadcast_to(argument, (size, *argument.shape))
                for argument, each in zip(arguments, given, strict=True)
            ]
            return lax.map(lambda one: alone(*one), whole)

        if any(AxisType.Explicit in jax.typeof(each).sharding.mesh.axis_types for each in arguments):
            return together(*arguments), True  # a loop over what several devices hold cannot be
        return by_platform(*arguments, cpu=in_turn, elsewhere=together), True

    alone.def_vmap(batched)
    return alone
