"""Sharding of the values of one computation, for several devices.

Inside `shard_map` every value has a type that names the mesh axes along which it differs, and the state of a loop must
keep that type from turn to turn: a zero to which data are added must differ along their axes from the start. On a mesh
with explicit axes a value also has its mesh, and a value without a mesh (a constant, an ε from outside) must be put on
it before `vmap` can spread it. Without such a mesh these functions change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Int, Shaped

T = TypeVar("T")


def is_explicit(value: Array) -> bool:
    """Whether a value is on a mesh with explicit axes."""
    return AxisType.Explicit in jax.typeof(value).sharding.mesh.axis_types


def with_sharding_of(values: T, *others: object) -> T:
    """The values with the sharding of the arguments: varying along their mesh axes, and on their mesh."""
    leaves = jax.tree.leaves((values, others))
    axes = frozenset().union(*map(_varying, leaves))
    explicit = [leaf for leaf in leaves if is_explicit(leaf)]
    if not axes and not explicit:
        return values
    # An eager computation needs the devices themselves, which an array has and its type has not.
    eager = not any(isinstance(leaf, Tracer) for leaf in leaves)
    meshes = [leaf.sharding.mesh if eager else jax.typeof(leaf).sharding.mesh for leaf in explicit]

    def place(leaf):
        if not isinstance(leaf, jax.Array):
            return leaf  # a literal has no device
        missing = tuple(sorted(axes - _varying(leaf)))
        if meshes and jax.typeof(leaf).sharding.mesh.empty:
            everywhere = NamedSharding(meshes[0], PartitionSpec(*[None] * leaf.ndim))
            if jnp.issubdtype(leaf.dtype, jnp.inexact):
                # A product in place of a move, because a batch of cotangents cannot be moved back. By `lax`, because
                # `*` converts the type of what `jax.grad` makes of a Python number, which cannot be undone either.
                leaf = lax.mul(leaf, jnp.ones(leaf.shape, leaf.dtype, device=everywhere))
            else:
                leaf = jax.sharding.reshard(leaf, everywhere)
        return lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(place, values)


def spread_over_devices(array: Array, axis: int) -> bool:
    """Whether an axis of an array is spread over devices, on a mesh with explicit axes."""
    return is_explicit(array) and array.ndim > 0 and jax.typeof(array).sharding.spec[axis] is not None


def on_many_devices(*values: object) -> bool:
    """Whether `shard_map` or a mesh with explicit axes has any of the values on several devices."""
    return any(_varying(leaf) or is_explicit(leaf) for leaf in jax.tree.leaves(values))


def _varying(value):
    kind = jax.typeof(value)
    # The first name is in use until jax 0.10.1.
    return kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying


def repeat(number: Int[Array, ""], body: Callable[[Int[Array, ""], T], T], state: T) -> T:
    """`fori_loop` from zero to a number that is data, such as a batch of numbers under `vmap`."""
    start, state = with_sharding_of((jnp.int32(0), state), number)
    return lax.fori_loop(start, number, body, state)


def take_at(table: Shaped[Array, " n"], places: Int[Array, "*s"]) -> Shaped[Array, "*s"]:
    """table[places], for places within it, with any sharding."""
    if not is_explicit(places):
        return table.at[places].get(mode="promise_in_bounds")
    if places.ndim == 0:  # JAX handles a scalar place differently, without sharding
        return take_at(table, places[None])[0]
    return (
        with_sharding_of(table, places)
        .at[places]
        .get(mode="promise_in_bounds", out_sharding=jax.typeof(places).sharding)
    )


def with_whole_axis(array: Array, axis: int = -1) -> Array:
    """The array with one axis whole on every device, if a mesh with explicit axes spreads it.

    On such a mesh a sum, slice or product along a spread axis would need the sharding of its result. One problem is
    small, so every device solves it. On other meshes XLA decides, and the array stays as it is.
    """
    if not spread_over_devices(array, axis):
        return array
    sharding: Any = jax.typeof(array).sharding if isinstance(array, Tracer) else array.sharding
    places = list(sharding.spec)
    places[axis] = None
    return jax.sharding.reshard(array, NamedSharding(sharding.mesh, PartitionSpec(*places)))


def unsharded(array: T) -> T:
    """The array with all axes whole on every device: for reports to be counted, because a scatter takes no sharding."""
    whole: Any = array
    for axis in range(whole.ndim) if isinstance(array, jax.Array) else ():
        whole = with_whole_axis(whole, axis)
    return whole


def stacked(*scalars: Shaped[Array, ""]) -> Shaped[Array, " n"]:
    """`jnp.stack` of scalars, even if `vmap` spreads only some of them over a mesh with explicit axes."""
    if not any(map(is_explicit, scalars)):
        return jnp.stack(scalars)
    numbers = jnp.arange(len(scalars))
    whole = jnp.zeros_like(numbers, scalars[0].dtype)
    for number, each in enumerate(scalars):
        whole = jnp.where(numbers == number, each, whole)
    return whole


def searched(edges: Shaped[Array, " n"], values: Shaped[Array, "*s"]) -> Int[Array, "*s"]:
    """`jnp.searchsorted` from the right; by sorting on a mesh with explicit axes, where its loop cannot be spread."""
    method = "sort" if is_explicit(values) else "scan"
    return jnp.searchsorted(with_sharding_of(edges, values), values, side="right", method=method)


def refuse_spread(values: T, name: str) -> T:
    """The arrays themselves; under a `vmap` that spreads one over a mesh with explicit axes an error.

    For functions with parts that JAX or optax cannot spread, which would fail deep inside, or only when lowered.
    """
    return jax.tree.map(partial(_refuse_spread, name=name), values)


def _refuse_spread(value, name):
    if not isinstance(value, Tracer):
        return value
    same = jax.custom_batching.custom_vmap(lambda value: value)

    @same.def_vmap
    def _(size, batched, value):
        del size, batched
        if spread_over_devices(value, 0):
            raise NotImplementedError(
                f"{name} cannot be spread by jax.vmap over a mesh with explicit axes: call it in jax.shard_map, one "
                "problem on each device"
            )
        return same(value), True

    return same(value)


def by_platform(*arguments: Any, cpu: Callable[..., T], elsewhere: Callable[..., T], exported: bool = False) -> T:
    """The result of the faster of two programs for the same values: one for CPUs, another for GPUs and TPUs.

    If JAX finds an accelerator, the platform of the compiled program decides, not the default device; and without one,
    if the program may be `exported` for an accelerator by a host that has none.
    """
    # Tracing an unused branch takes tens of milliseconds of a first call, and 15 % of a study's.
    if jax.default_backend() == "cpu" and not exported:
        return cpu(*arguments)
    return lax.platform_dependent(*arguments, cpu=cpu, default=elsewhere)


def if_needed(needed: Bool[Array, ""], compute: Callable[[], T], otherwise: T | None = None) -> T:
    """What `compute` returns; on a CPU `otherwise`, by default zeros, where it is not needed and does not matter.

    Elsewhere all is computed: the host waits for the condition of a branch, longer than the branch would take. On a CPU
    XLA computes anew, in every loop that uses them, values that it can fuse with it, and does not vectorize loops that
    look up. It fuses nothing across a branch; so some are branches whose condition is always true.
    """

    def branch():
        spare = otherwise
        if spare is None:
            spare = jax.tree.map(jnp.zeros_like, jax.eval_shape(compute))  # with the same sharding
        return lax.cond(needed, compute, lambda: spare)

    return by_platform(cpu=branch, elsewhere=compute)


def one_by_one(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function of arrays, which under `vmap` on CPUs takes one example after the other.

    For calls into LAPACK: jaxlib spreads a batch of them over the threads that run programs, and waits. If several
    devices compute at once, the threads wait for each other without end.
    """
    alone = jax.custom_batching.custom_vmap(function)

    def batched(size, given, *arguments):
        examples = [argument for argument, each in zip(arguments, given, strict=True) if each]
        spread = next((jax.typeof(example).sharding for example in examples if is_explicit(example)), None)

        def in_all(*arguments):
            """The arguments; those without a batch are repeated."""
            for argument, each in zip(arguments, given, strict=True):
                place = spread and NamedSharding(spread.mesh, PartitionSpec(spread.spec[0], *[None] * argument.ndim))
                yield argument if each else lax.broadcast(argument, (size,), out_sharding=place)

        if spread:  # neither a loop over examples of several devices nor LAPACK for those of one device can be
            return jax.vmap(function)(*in_all(*arguments)), True

        def in_turn(*arguments):
            return lax.map(lambda one: alone(*one), tuple(in_all(*arguments)))

        batched = jax.vmap(function, in_axes=tuple(0 if each else None for each in given))
        return by_platform(*arguments, cpu=in_turn, elsewhere=batched), True

    alone.def_vmap(batched)
    return alone
