"""Accurate arithmetic: e^ε − 1, sums and exact products.

A sum of K floats is accurate to the dtype, not merely computed in it (`accurate_sum`). An integer times a float is
split into an exact whole and a fraction (`split_product`), so that no comparison of counts depends on rounding.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt

from rrjax.numerics.sharding import by_platform, spread_over_devices, with_sharding_of


@jax.custom_jvp
def expm1_epsilon(epsilon: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """e1 = e^ε − 1 to about one unit in the last place, capped where the dtype ends.

    XLA's own expm1 is off by up to three units in float32, which would be the largest error of an estimate.
    The argument is reduced by a multiple of log 2 held in two parts, and the rest is a Taylor series.
    """
    # The smaller of this and that of 2ε: XLA would otherwise compute and compile the scalar anew in every loop that
    # uses it. A reduction prevents this.
    return jnp.min(_expm1(epsilon[..., None] * jnp.array([1, 2], epsilon.dtype)), axis=-1)


def _expm1(epsilon):
    dtype = epsilon.dtype
    small = dtype == jnp.float32
    # log 2 cut after 16 or 40 bits, so that its product with the multiple is exact, and the remainder.
    high, low = (45426 / 2**16, 1.4286068203094173e-06) if small else (762123384785 / 2**40, 7.371002565167799e-13)
    capped = jnp.clip(epsilon, 0, 88 if small else 709)
    multiple = jnp.round(capped * (1 / math.log(2)))
    remainder = (capped - multiple * high) - multiple * low
    series = jnp.zeros_like(remainder)
    for degree in range(10 if small else 17, 1, -1):
        series = (series + 1 / math.factorial(degree)) * remainder
    series = remainder + remainder * series
    power = jnp.ldexp(jnp.ones_like(remainder), multiple.astype(jnp.int32))
    return jnp.where(epsilon > 0, (power - 1) + power * series, jnp.nan)


def odds_of_rates(epsilon: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """e^ε − 1 for rates: above an ε of 85.2 (float32) or 706.3 (float64), that of these.

    Up to eight times that are in the range of the dtype, and so is their reciprocal: a subnormal number is zero to XLA.
    """
    largest = 85.2 if epsilon.dtype == jnp.float32 else 706.3
    return expm1_epsilon(jnp.where(epsilon > largest, largest, epsilon))


def scaled_odds(
    odds: Float[Array, "*shape"], largest: int = 62
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """One and e^ε − 1, both over a power of two if e^ε − 1 is above 2^`largest`; none is subnormal.

    Of a likelihood only their ratio matters. Shares are divided by them, and those of columns multiplied: they would
    leave the range of the dtype.
    """
    _, exponent = jnp.frexp(lax.stop_gradient(odds))
    power = jnp.where(exponent > largest, jnp.minimum(exponent, -jnp.finfo(odds.dtype).minexp), 0)
    one = jnp.ldexp(jnp.ones_like(odds), -power)
    return one, odds * one


@expm1_epsilon.defjvp
def _expm1_epsilon_jvp(primals, tangents):
    (epsilon,), (tangent,) = primals, tangents
    return expm1_epsilon(epsilon), (expm1_epsilon(epsilon) + 1) * tangent


@partial(jax.jit, inline=True)
def ratio(x: Float[Array, "*s"], y: Float[Array, "*#s"]) -> Float[Array, "*s"]:
    """x/y, with derivatives that need no 1/y²: of an e^ε above 10¹⁹ that is zero in float32, and JAX takes it."""
    return _ratio(x, y)


@jax.custom_jvp
def _ratio(x, y):
    return x / y


@_ratio.defjvp
def _ratio_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return _ratio(x, y), _ratio(dx, y) - _ratio(x, y) * _ratio(dy, y)


def reciprocal(x: Float[Array, ""]) -> Float[Array, ""]:
    """1/x of a positive scalar, the same bits in every program.

    XLA divides by a scalar in some programs and multiplies by its reciprocal in others, whichever is written. A
    reduction prevents this.
    """
    return jnp.max(1 / (x * jnp.array([1, 2], x.dtype)))


ROW = 1024
"""Number of terms in one compensated sum."""
FEW = 64
"""Number of terms below which they are not first summed by fours."""
RUNS = range(512, 31, -1)
"""Lengths of plain sums in `short_sum`, the preferred first."""


def two_sum(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
    """Adds two sums, each with the rounding errors of its additions so far (Knuth's TwoSum)."""
    # Not a closure, which XLA would compile anew for every eager sum.
    total = one[0] + other[0]
    virtual = total - one[0]
    error = (one[0] - (total - virtual)) + (other[0] - virtual)
    return total, error + (one[1] + other[1])


def _compensated(terms, errors):
    """Sums along the last axis, and the errors of the sums."""
    zero = jnp.zeros((), terms.dtype)
    return lax.reduce((terms, errors), (zero, zero), two_sum, (terms.ndim - 1,))


def corrected(total: Float[Array, "*s"], error: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """A sum of `two_sum` with its rounding errors added; among infinite terms these are inf − inf, and left out."""
    return jnp.where(jnp.isfinite(error), total + error, total)


def _quarters(x):
    """The sums of four terms each, so that fewer scalar TwoSums remain, which are most of the cost on a CPU."""
    size = -(-x.shape[0] // 4)
    first, second, third, last = (x[start : start + size] for start in range(0, 4 * size, size))
    if len(last) < size:
        last = jnp.pad(last, (0, size - len(last)))
    return (first + second) + (third + last)


def filled_up(x: Shaped[Array, "n ..."], run: int) -> Shaped[Array, "m ..."]:
    """The array, filled with zeros to a multiple of `run` rows; also for a symbolic size of `jax.export`."""
    size = (x.shape[0] // run + 1) * run
    return jnp.pad(x, ((0, size - x.shape[0]), *((0, 0),) * (x.ndim - 1)))


@jax.custom_jvp
def accurate_sum(x: Float[Array, " n"]) -> Float[Array, ""]:
    """The sum of a vector, to about one unit in the last place of the sum of magnitudes, at any length.

    A reduction also sums the rounding errors of its additions, in any order of the backend, and adds them in the end;
    on a CPU four terms at a time are added plainly before, which costs a unit at most. Plain `jnp.sum` of 10,000
    float32 on a CPU can lose four digits.
    """
    if not isinstance(x.shape[0], int):  # a symbol of `jax.export`
        rows = filled_up(x, ROW)
        rows = rows.reshape(rows.shape[0] // ROW, ROW)
        total, error = _compensated(*_compensated(rows, jnp.zeros_like(rows)))
        return corrected(total, error)
    return by_platform(x, cpu=_sum_of_quarters, elsewhere=_sum_at_once)


def _sum_at_once(x):
    """In the shape of x, so that a GPU computes its terms and other sums of them in the same pass."""
    total, error = _compensated(x, jnp.zeros_like(x))
    return corrected(total, error)


def _sum_of_quarters(x):
    x = x if x.shape[0] < FEW else _quarters(x)
    if x.shape[0] <= 16 * ROW:
        return _sum_at_once(x)
    # The errors are added plainly, so their runs must be short: many small terms and a large one give errors of one
    # sign. Rows and remainder are slices, because a padded copy is slow on a CPU.
    rows = x.shape[0] // ROW
    whole, remainder = x[: rows * ROW].reshape(rows, ROW), x[rows * ROW :]
    total, error = _compensated(*_compensated(whole, jnp.zeros_like(whole)))
    total, error = two_sum((total, error), _compensated(remainder, jnp.zeros_like(remainder)))
    return corrected(total, error)


@accurate_sum.defjvp
def _accurate_sum_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    # A plain sum, because reverse mode must transpose it, and a derivative does not need the last digits. In
    # `shard_map` a tangent of zeros does not differ along the axes of its value.
    return accurate_sum(x), jnp.sum(with_sharding_of(tangent, x))


def largest(x: Float[Array, "*s n"]) -> Float[Array, "*s"]:
    """The maximum along the last axis, NaN if any number is.

    On a CPU, XLA's own drops NaN in arrays of some thousand numbers, also in batches of short rows (JAX 0.10).
    """
    return jnp.where(jnp.any(jnp.isnan(x), axis=-1), jnp.nan, jnp.max(x, axis=-1))


def short_sum(x: Float[Array, "*s n"]) -> Float[Array, "*s"]:
    """The sums along the last axis, in short runs: some digits better than `jnp.sum` on a CPU, and as fast.

    For batches of rows, where `accurate_sum` costs too much. float32 keeps six digits of 10⁵ terms.
    """
    return _added_up(x, lambda part: part)


@jax.custom_jvp
def log_sum(x: Float[Array, "*s n"]) -> Float[Array, "*s"]:
    """The log of Σ exp(x) along the last axis, summed as in `short_sum`; −∞, with zero derivatives, if all x are −∞."""
    peak = jnp.max(x, axis=-1)
    peak = jnp.where(peak > -jnp.inf, peak, 0)
    return jnp.log(_added_up(x, lambda part: jnp.exp(part - jnp.expand_dims(peak, range(peak.ndim, part.ndim))))) + peak


def _added_up(x, function):
    """The sum of a function of x, applied within each part's sum, which keeps its values out of memory."""
    # Blocks of a length that divides the size are not copied.
    run = next((run for run in RUNS if x.shape[-1] % run == 0), 256)
    whole = x.shape[-1] // run * run
    if whole == 0 or spread_over_devices(x, -1):  # a sharded axis is not split
        return jnp.sum(function(x), axis=-1)
    blocks = jnp.sum(function(x[..., :whole].reshape(*x.shape[:-1], whole // run, run)), axis=-1)
    total = jnp.sum(blocks, axis=-1)
    return total if whole == x.shape[-1] else total + jnp.sum(function(x[..., whole:]), axis=-1)


@log_sum.defjvp
def _log_sum_jvp(primals, tangents):
    (x,), (tangent,) = primals, tangents
    result = log_sum(x)
    level = jnp.where(result > -jnp.inf, result, 0)
    return result, jnp.sum(jnp.exp(x - level[..., None]) * tangent, axis=-1)


def split_product(
    integer: Int[Array, "*s"], factor: Float[Array, ""]
) -> tuple[UInt[Array, "*s"], Float[Array, "*s"], Bool[Array, "*s"]]:
    """The whole and the fraction of `integer * factor`, exactly; the third array marks wholes that are too large.

    The mantissa of `factor` times the integer is formed in two machine words and shifted. Nothing is rounded before the
    fraction becomes a float.
    """
    bits = jnp.iinfo(integer.dtype).bits
    word = jnp.dtype(f"uint{bits}")
    info = jnp.finfo(factor.dtype)
    ones = jnp.iinfo(word).max

    def right(x, by):
        return jnp.where(by < bits, x >> jnp.minimum(by, bits - 1).astype(word), word.type(0))

    def left(x, by):
        return jnp.where(by < bits, x << jnp.minimum(by, bits - 1).astype(word), word.type(0))

    pattern = lax.bitcast_convert_type(factor, word)
    mantissa = (pattern & word.type((1 << info.nmant) - 1)) | word.type(1 << info.nmant)
    bias = 2 ** (info.bits - info.nmant - 2) - 1
    # integer * factor = integer * mantissa / 2**shift
    shift = bias + info.nmant - (pattern >> word.type(info.nmant)).astype(jnp.int32)

    # Not `threefry.product`: with that, XLA fused `inv` of a study differently on one and on two devices.
    half = word.type(bits // 2)
    low_half = word.type((1 << (bits // 2)) - 1)
    a = integer.astype(word)
    a_low, a_high, b_low, b_high = a & low_half, a >> half, mantissa & low_half, mantissa >> half
    low_low, low_high, high_low = a_low * b_low, a_low * b_high, a_high * b_low
    middle = (low_low >> half) + (low_high & low_half) + (high_low & low_half)
    low = (low_low & low_half) | (middle << half)
    high = a_high * b_high + (low_high >> half) + (high_low >> half) + (middle >> half)
    up, down = jnp.maximum(-shift, 0), jnp.maximum(shift, 0)
    over = jnp.maximum(down - bits, 0)  # how far the shift reaches into the high word
    whole = jnp.where(
        shift <= 0,
        left(low, up),
        jnp.where(down < bits, right(low, down) | left(high, bits - down), right(high, over)),
    )
    saturated = jnp.where(
        shift <= 0,
        (high != 0) | (right(low, bits - up) != 0) | ((up >= bits) & (low != 0)),
        (down < bits) & (right(high, down) != 0),
    )
    low_left = jnp.where(down < bits, low & ~left(word.type(ones), down), low)
    high_left = jnp.where(down < bits, word.type(0), high & ~left(word.type(ones), over))
    # The bits shifted out, as a float. If the whole is zero they are the rounded product itself, which also serves
    # factors too small for this power of two.
    power = lax.bitcast_convert_type(
        left(jnp.maximum(bias - jnp.minimum(down, 2 * bits), 1).astype(word), jnp.int32(info.nmant)),
        factor.dtype,
    )
    fraction = (low_left.astype(factor.dtype) + high_left.astype(factor.dtype) * factor.dtype.type(2.0**bits)) * power
    fraction = jnp.where(whole == 0, integer.astype(factor.dtype) * factor, fraction)
    return jnp.where(saturated, word.type(ones), whole), jnp.where(saturated, 0, fraction), saturated
