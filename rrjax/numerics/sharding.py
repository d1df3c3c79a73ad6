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
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, Shaped

T = TypeVar("T")


def aligned(values: T, *others: object) -> T:
    """Makes values differ along the same axes, on the same mesh."""
    leaves = jax.tree.leaves((values, others))
    types = [jax.typeof(leaf) for leaf in leaves]
    axes = frozenset().union(*map(_varying, types))
    found = [at for at, kind in enumerate(types) if AxisType.Explicit in kind.sharding.mesh.axis_types]
    if not axes and not found:
        return values
    # What is computed at once needs the devices themselves, which an array knows and its type does not.
    known = not any(isinstance(leaf, Tracer) for leaf in leaves)
    meshes = [leaves[at].sharding.mesh if known else types[at].sharding.mesh for at in found]

    def place(leaf):
        if not isinstance(leaf, jax.Array):
            return leaf  # a literal goes anywhere
        kind = jax.typeof(leaf)
        if meshes and kind.sharding.mesh.empty:
            everywhere = NamedSharding(meshes[0], PartitionSpec(*[None] * leaf.ndim))
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                # A product in place of a move, because a batch of cotangents cannot be moved back; by `lax`, because
                # `*` converts the type of what `jax.grad` makes of a Python number, which cannot be taken back either.
                leaf = lax.mul(leaf, jnp.ones(leaf.shape, leaf.dtype, device=everywhere))
            else:
                leaf = jax.sharding.reshard(leaf, everywhere)
        missing = tuple(sorted(axes - _varying(kind)))
        return lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(place, values)


def spread_over_devices(array: Array, axis: int) -> bool:
    """Whether an axis of an array is spread over devices, on a mesh with explicit axes."""
    sharding = jax.typeof(array).sharding
    return AxisType.Explicit in sharding.mesh.axis_types and array.ndim > 0 and sharding.spec[axis] is not None


def on_many_devices(*values: object) -> bool:
    """Whether `shard_map` or a mesh with explicit axes has any of the values on several devices."""
    kinds = [jax.typeof(leaf) for leaf in jax.tree.leaves(values)]
    return any(_varying(kind) or AxisType.Explicit in kind.sharding.mesh.axis_types for kind in kinds)


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


def gathered(array: Array, axis: int = -1) -> Array:
    """Brings an axis together that a mesh with explicit axes spreads over devices: each of them has all of it.

    A sum over such an axis, a slice of it or a product with it each need to be told where their result belongs. One
    problem is small: every device solves it. On other meshes XLA decides, and nothing happens here.
    """
    if not spread_over_devices(array, axis):
        return array
    sharding: Any = jax.typeof(array).sharding if isinstance(array, Tracer) else array.sharding
    places = list(sharding.spec)
    places[axis] = None
    return jax.sharding.reshard(array, NamedSharding(sharding.mesh, PartitionSpec(*places)))


def together(array: T) -> T:
    """All axes `gathered`: of reports that are counted, because a scatter cannot be told where its result belongs."""
    whole: Any = array
    for axis in range(whole.ndim) if isinstance(array, jax.Array) else ():
        whole = gathered(whole, axis)
    return whole


def stacked(*scalars: Shaped[Array, ""]) -> Shaped[Array, " n"]:
    """`jnp.stack` of scalars, which cannot be where `vmap` spreads only some of them over a mesh with explicit axes."""
    if not any(AxisType.Explicit in jax.typeof(each).sharding.mesh.axis_types for each in scalars):
        return jnp.stack(scalars)
    numbers = jnp.arange(len(scalars))
    whole = jnp.zeros_like(numbers, scalars[0].dtype)
    for number, each in enumerate(scalars):
        whole = jnp.where(numbers == number, each, whole)
    return whole


def searched(edges: Shaped[Array, " n"], values: Shaped[Array, "*s"]) -> Int[Array, "*s"]:
    """`jnp.searchsorted` from the right; on a mesh with explicit axes by sorting, because its loop cannot be spread."""
    explicit = AxisType.Explicit in jax.typeof(values).sharding.mesh.axis_types
    return jnp.searchsorted(aligned(edges, values), values, side="right", method="sort" if explicit else "scan")


def refuse_spread(value: T, name: str) -> T:
    """The value itself; under a `vmap` that spreads it over a mesh with explicit axes an error.

    For functions made of what JAX or optax cannot spread, which would fail deep inside, or as late as they are lowered.

    Raises:
        NotImplementedError: Says what to use instead.
    """
    if not isinstance(value, Tracer):
        return value
    same = jax.custom_batching.custom_vmap(lambda value: value)

    @same.def_vmap
    def _(size, given, value):
        del size, given
        if spread_over_devices(value, 0):
            raise NotImplementedError(
                f"{name} cannot be spread by jax.vmap over a mesh with explicit axes: call it in jax.shard_map, one "
                "problem on each device"
            )
        return same(value), True

    return same(value)


def by_platform(*arguments: Any, cpu: Callable[..., T], elsewhere: Callable[..., T]) -> T:
    """Computes in one way on CPUs and in another on GPUs and TPUs: of two programs for the same values the faster one.

    Where JAX finds an accelerator, what decides is the platform that a program is compiled for, not the default device.
    """
    if jax.default_backend() == "cpu":  # tracing a way that nobody goes takes tens of milliseconds of a first call
        return cpu(*arguments)
    return lax.platform_dependent(*arguments, cpu=cpu, default=elsewhere)


def one_by_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """Makes a function of arrays run for one example after the other under `vmap`, on CPUs.

    For calls into LAPACK: jaxlib spreads a batch of them over the threads that run programs, and waits. Where several
    devices compute at once, every thread waits for another, for ever.
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

        explicit = [
            jax.typeof(argument).sharding
            for argument, each in zip(arguments, given, strict=True)
            if each and AxisType.Explicit in jax.typeof(argument).sharding.mesh.axis_types
        ]
        if explicit:  # a loop over what several devices hold cannot be, nor LAPACK of what some of them have alone
            mesh, axis = explicit[0].mesh, explicit[0].spec[0]
            spread = [
                argument
                if each
                else lax.broadcast(
                    argument, (size,), out_sharding=NamedSharding(mesh, PartitionSpec(axis, *[None] * argument.ndim))
                )
                for argument, each in zip(arguments, given, strict=True)
            ]
            return jax.vmap(function)(*spread), True
        return by_platform(*arguments, cpu=in_turn, elsewhere=together), True

    alone.def_vmap(batched)
    return alone
