r"""Limits for a mean of bounded values, from randomized reports, that hold for every number of users.

A report of randomized response is the user's value with probability d and else any of K categories. With x from 0 to 1
for each category, N users and the mean m = x·θ, the sum T of x over the reports has N independent terms, each of which
is the user's x with probability d and else one of all x. Of all laws of the user's x with mean m, the one on 0 and 1
alone is largest in the convex order, and mixing with the same weights, adding independent terms and adding noise keep
that order. So with T* the sum where the users' x are 0 or 1, plus normal noise, E f(T) ≤ E f(T*) for convex f, and

    P(T ≥ t) ≤ p  wherever  t ≥ min over h of h + E(T* − h)₊/p,

the superquantile of T* (by Markov's inequality for (T − h)₊). It rises with m, so all m below one that is refused are
refused too. For given users with mean m the same holds: the convex expectation is that of a sum over the number of
users with x = 1, is convex in that number, and is so largest where it is binomial (Hoeffding, 1956).

E(T* − h)₊ = 1/(2π) ∫ E e^(s·(T* − h))/s² dφ on any line s = λ + iφ, λ > 0. The trapezoidal rule adds what belongs to
h ± multiples of its period, which is not negative; the noise, a fifth of the standard deviation of T*, cuts the
integral off. With more than 33 categories each x is split onto the two nearest points of a grid of 33, with the same
mean, which is larger in that order, too.

References:
    Bentkus, "On Hoeffding's inequalities", 2004; Pinelis, "An optimal three-way stable and monotonic spectrum of bounds
    on quantiles", 2014; Hoeffding, "On the distribution of the number of successes in independent trials", 1956.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from rrjax.numerics.sharding import aligned, stacked
from rrjax.numerics.special import exp_minus
from rrjax.numerics.sums import accurate_sum

_GRID = 33
_NODES, _STEP, _NOISE = 72, 0.3, 0.2
"""Of the trapezoidal rule; its step and the noise in standard deviations of T*."""
_PLACES = np.arange(8) * 0.4 - 1.2
"""Of h, in standard deviations, about the normal quantile."""
_ROUNDING = 1e-3
"""By which an expectation is taken to be larger than was found: more than rounding and the cut take away."""
_PASSES = 14
_product = partial(jnp.matmul, precision="highest")


class Spread(NamedTuple):
    """The law of x where a report says nothing of its user.

    Attributes:
        points: `[G]`, from 0 to 1.
        mass: `[G]`, adds up to one.
        mean: Scalar.
        variance: Scalar.
    """

    points: Float[Array, " G"]
    mass: Float[Array, " G"]
    mean: Float[Array, ""]
    variance: Float[Array, ""]

    def of_reports(self, mean: Float[Array, "*s"], kept: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """The largest variance of a report's x where the users' mean is given: theirs are 0 or 1.

        Args:
            mean: `[*s]`, m, from 0 to 1.
            kept: `[*s]`, d.
        """
        lost = 1 - kept
        return lost * self.variance + kept * (mean * (1 - mean) + lost * (mean - self.mean) ** 2)


def spread_of(x: Float[Array, " K"]) -> Spread:
    """The uniform law of x, or one on a grid that is larger in the convex order."""
    size = x.shape[0]
    mean = accurate_sum(x) / size
    if size <= _GRID:
        points, mass = x, jnp.full_like(x, 1 / size)
    else:
        last = _GRID - 1
        points = jnp.arange(_GRID, dtype=x.dtype) / last
        left = jnp.clip(jnp.floor(x * last), 0, last - 1)
        right_share = x * last - left
        place = left.astype(jnp.int32)
        mass = jnp.zeros(_GRID, x.dtype).at[place].add(1 - right_share).at[place + 1].add(right_share) / size
    return Spread(points, mass, mean, jnp.sum(mass * (points - mean) ** 2))


def mirrored(spread: Spread) -> Spread:
    """The law of 1 − x."""
    return spread._replace(points=1 - spread.points, mean=1 - spread.mean)


@jax.jit
def conservative_limits(
    spread: Spread,
    estimate: Float[Array, ""],
    num_users: Float[Array, ""],
    kept: Float[Array, ""],
    log_tail: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The m such that all below are refused, and all above."""
    both = jax.tree.map(lambda *each: jnp.stack(each), spread, mirrored(spread))
    estimates = jnp.stack([estimate, 1 - estimate])
    # Both at once, because they take long to compile.
    limits = jax.vmap(_lower_limit, (0, 0, None, None, None))(both, estimates, num_users, kept, log_tail)
    return limits[0], 1 - limits[1]


def _lower_limit(spread, estimate, num_users, kept, log_tail):
    z = -ndtri(jnp.exp(log_tail))
    wide = jnp.exp(-(z**2) / 2 - log_tail) / math.sqrt(2 * math.pi)  # the superquantile of a normal law
    # All by the distance of m from the estimate, which keeps its digits at any number of users.
    least, most = jnp.maximum(estimate - 1, 0), jnp.maximum(estimate, 0)

    def share(distance):
        return jnp.clip(estimate - distance, 0, 1)

    def nearest(refused, near, far, passes):
        """The least distance that is refused, and whether there is one."""

        def halve(index, state):
            near, far, some = state
            middle = jnp.where(index == 0, far, (near + far) / 2)
            refuse = refused(middle)
            return jnp.where(refuse, near, middle), jnp.where(refuse, middle, far), some | refuse

        state = aligned((near, far, far < near), spread, num_users, kept, log_tail)
        return lax.fori_loop(0, passes, halve, state)[1:]

    def refused_by_normal(distance):
        return kept * distance >= wide * jnp.sqrt(spread.of_reports(share(distance), kept) / num_users)

    start, _ = nearest(refused_by_normal, least, most, 31)
    scale = jnp.maximum(jnp.sqrt(num_users * spread.of_reports(share(start), kept)), 0.5)
    law = _Law.of(spread, num_users, kept, z, scale)

    def refused(distance):
        beyond = law.excesses(share(distance)) * (1 + _ROUNDING) / jnp.exp(log_tail)
        return num_users * kept * distance >= jnp.min(law.places + beyond)

    near, far = jnp.maximum(0.3 * start, least), jnp.minimum(2.5 * start, most)
    distance, some = nearest(refused, near, far, _PASSES)
    return jnp.where((estimate > 0) & some, share(distance), 0)


class _Law(NamedTuple):
    """What the integrals of all m share; complex numbers are pairs of a real and an imaginary part.

    Attributes:
        tilt: Scalar, λ.
        angles: `[J]`, φ.
        noise: `[J]` each: Σ mass·(e^(s·(x − mean)) − 1 − s·(x − mean)).
        rule: `[J, H]` each: the weights, with the smoothing, times e^(−iφh)/s².
        places: `[H]`, h, from the mean of T*.
        spread, num_users, kept: As in `conservative_limits`.
    """

    tilt: Float[Array, ""]
    angles: Float[Array, " J"]
    noise: tuple[Float[Array, " J"], Float[Array, " J"]]
    rule: tuple[Float[Array, "J H"], Float[Array, "J H"]]
    places: Float[Array, " H"]
    spread: Spread
    num_users: Float[Array, ""]
    kept: Float[Array, ""]

    @classmethod
    def of(cls, spread, num_users, kept, z, scale):
        dtype = scale.dtype
        # Where the mean of the tilted law is near h: exactly so for a Poisson law, and for a normal one.
        tilt = jnp.log1p(jnp.maximum(z, 1) / scale)
        angles = jnp.arange(_NODES, dtype=dtype) * _STEP / scale
        away = spread.points - spread.mean
        real, imaginary = _exp_minus(tilt * away, angles[:, None] * away)
        noise = _product(real, spread.mass), _product(imaginary, spread.mass)
        places = scale * (z + jnp.asarray(_PLACES, dtype))
        ends = jnp.where(jnp.arange(_NODES) == 0, 0.5, 1.0).astype(dtype) * (_STEP / scale / math.pi)
        variance = (_NOISE * scale) ** 2
        size = ends * jnp.exp((tilt**2 - angles**2) * (variance / 2)) / (tilt**2 + angles**2)
        turn = (angles * tilt * variance - 2 * jnp.arctan2(angles, tilt))[:, None] - angles[:, None] * places
        rule = size[:, None] * jnp.cos(turn), size[:, None] * jnp.sin(turn)
        return cls(tilt, angles, noise, rule, places, spread, num_users, kept)

    def excesses(self, share):
        """E(T* − h)₊ at all h, where the mean is `share`."""
        kept, lost = self.kept, 1 - self.kept
        mean = kept * share + lost * self.spread.mean
        # The generating function of a report's x less its mean, less one: of second order.
        points = stacked(self.spread.mean, jnp.ones_like(mean), jnp.zeros_like(mean)) - mean
        chances = stacked(lost, kept * share, kept * (1 - share))
        kinds = _exp_minus(self.tilt * points, self.angles[:, None] * points)
        real, imaginary = (_product(part, chances) for part in kinds)
        grown, turn = lost * jnp.exp(self.tilt * points[0]), self.angles * points[0]
        cosine, sine = grown * jnp.cos(turn), grown * jnp.sin(turn)
        real = real + self.noise[0] * cosine - self.noise[1] * sine
        imaginary = imaginary + self.noise[0] * sine + self.noise[1] * cosine
        size = self.num_users * jnp.log1p(jnp.maximum(2 * real + real**2 + imaginary**2, -1)) / 2
        turn = self.num_users * jnp.arctan2(imaginary, 1 + real)
        power = jnp.exp(size - size[0])
        total = _product(power * jnp.cos(turn), self.rule[0]) - _product(power * jnp.sin(turn), self.rule[1])
        return jnp.maximum(total, 0) * jnp.exp(size[0] - self.tilt * self.places)


def _exp_minus(a, b):
    """Real and imaginary part of e^z − 1 − z without cancellation, z = a + ib."""
    half = b / 2
    sine, cosine = jnp.sin(half), jnp.cos(half)
    square = b * b
    near = -b * square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72 * (1 - square / 110))))
    sine_minus = jnp.where(square < 1, near, 2 * sine * cosine - b)
    real = exp_minus(a) - (jnp.exp(a) * 2) * sine**2
    return real, jnp.expm1(a) * (2 * sine * cosine) + sine_minus
