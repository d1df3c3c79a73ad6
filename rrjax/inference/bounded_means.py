r"""Limits for means of bounded values from randomized reports, valid for every number of users.

Each category has a value x from 0 to 1; the mean is m = x·θ. A report is the user's value with probability d, else any
of K categories by a known law, which is uniform for randomized response. So the sum T of x over the reports of N users
has N independent terms. Each is the user's x with probability d, else a random one. Among all laws of the user's x with
mean m, the law on 0 and 1 alone is largest in the convex order. Mixing with the same weights, adding independent terms
and adding noise keep that order. So with T* the sum where the users' x are 0 or 1, plus normal noise, E f(T) ≤ E f(T*)
for convex f.

**One collection** (`conservative_limits`). By Markov's inequality for (T − h)₊,

    P(T ≥ t) ≤ p  wherever  t ≥ min over h of h + E(T* − h)₊/p,

the superquantile of T*. It rises with m, so if one m is refused, all smaller m are refused too. The same holds for
given users with mean m: the expectation of a convex function of a sum over the number of users with x = 1 is convex in
that number, so it is largest where the number is binomial (Hoeffding, 1956).

E(T* − h)₊ = 1/(2π) ∫ E e^(s·(T* − h))/s² dφ on any line s = λ + iφ, λ > 0. The trapezoidal rule adds the integrand at
h ± multiples of its period, which is not negative; the noise, a fifth of the standard deviation of T*, cuts the
integral off. With more than 33 categories each x is split onto the two nearest points of a grid of 33, with the same
mean, which is larger in that order, too.

**Several collections** (`combined_limits`). D = Σ_s W_s·m_s is estimated by D̂ = Σ_s W_s·m̂_s without bias. With
λ_s = λ·W_s/(N_s·d_s) and M_s(m) the generating function at λ_s of a report's x, less its expectation under m̂_s,
Markov's inequality bounds the probability of an estimate at least as large as D̂:

    log p ≤ max over m with Σ W_s·m_s = D of Σ_s N_s·log M_s(m_s).

The users' x are set to 0 or 1, which makes M_s largest and linear in m_s. The maximum is that of a concave function, so
with any multiplier κ it is at most

    Σ_s max over m of [N_s·log M_s(m) − κ·W_s·(m − m̂_s)] + κ·(D − D̂).

Each maximum has a closed form, and the bound is linear in D: with F its sum, all D below D̂ − (F − log p)/κ are refused.
Any λ and κ give a valid bound; a search finds the best. For given users log M_s is averaged over them, which is at most
as large.

The maximum is taken over the m_s inside intervals of their own, of a high level (Berger and Boos). Without them the
bound would give rare values the spread of frequent ones, since D does not determine the m_s.

References:
    Bentkus, "On Hoeffding's inequalities", 2004; Pinelis, "An optimal three-way stable and monotonic spectrum of bounds
    on quantiles", 2014; Hoeffding, "On the distribution of the number of successes in independent trials", 1956, and
    "Probability inequalities for sums of bounded random variables", 1963; Berger and Boos, "P values maximized over a
    confidence set for the nuisance parameter", 1994.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from rrjax.numerics.products import matmul
from rrjax.numerics.sharding import stacked, with_sharding_of
from rrjax.numerics.solvers import with_derivative_of_root
from rrjax.numerics.special import exp_minus, log1p_minus
from rrjax.numerics.sums import accurate_sum

GRID_POINTS = 33
NODES, STEP, NOISE = 72, 0.3, 0.2
"""Nodes, step and noise of the trapezoidal rule; step and noise in standard deviations of T*."""
PLACES_OF_H = np.arange(8) * 0.4 - 1.2
"""Places around the normal quantile, in standard deviations."""
ERROR_OF_EXPECTATION = 1e-3
"""Upper bound of the relative error of an expectation, from rounding and from cutting the integral off."""
BISECTIONS, NORMAL_BISECTIONS = 14, 31
"""Numbers of halvings for the exact limit, and for the normal limit where it starts."""
SEARCH_PLACES, SEARCH_PASSES = 4, 8
"""Places that a search for a minimum evaluates at a time, and number of times."""


class Spread(NamedTuple):
    """The law of x for a report that is independent of its user: its points, from 0 to 1, and their mass."""

    points: Float[Array, " G"]
    mass: Float[Array, " G"]
    mean: Float[Array, ""]
    variance: Float[Array, ""]

    def of_reports(self, mean: Float[Array, "*s"], kept: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """The largest variance of a report's x, given the users' mean m and kept = d; it has users' x of 0 or 1."""
        lost = 1 - kept
        return lost * self.variance + kept * (mean * (1 - mean) + lost * (mean - self.mean) ** 2)


def spread_of(x: Float[Array, " K"], law: Float[Array, " K"] | None = None) -> Spread:
    """The law of x of a random category, uniform by default, or one on a grid that is larger in the convex order."""
    size = x.shape[0]
    weights = jnp.ones_like(x) if law is None else law
    whole = accurate_sum(weights)
    mean = accurate_sum(weights * x) / whole
    if size <= GRID_POINTS:
        points, mass = x, weights / whole
    else:
        last = GRID_POINTS - 1
        points = jnp.arange(GRID_POINTS, dtype=x.dtype) / last
        left = jnp.clip(jnp.floor(x * last), 0, last - 1)
        right_share = x * last - left
        place = left.astype(jnp.int32)
        shares = weights / whole
        mass = jnp.zeros(GRID_POINTS, x.dtype).at[place].add(shares * (1 - right_share))
        mass = mass.at[place + 1].add(shares * right_share)
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
    """The limits of m: values below the first and above the second are refused.

    If all values are, both are above one, or both below zero.
    """
    both = jax.tree.map(lambda *each: jnp.stack(each), spread, mirrored(spread))
    estimates = jnp.stack([estimate, 1 - estimate])
    # Both in one batch, because they take long to compile.
    limits = jax.vmap(_superquantile_limit, (0, 0, None, None, None))(both, estimates, num_users, kept, log_tail)
    return limits[0], 1 - limits[1]


def _superquantile_limit(spread, estimate, num_users, kept, log_tail):
    given = spread, estimate, num_users, kept, log_tail
    # The distance of m from the estimate keeps its digits at any number of users.
    least, most = lax.stop_gradient((jnp.maximum(estimate - 1, 0), jnp.maximum(estimate, 0)))

    def nearest(excess, near, far, passes):
        """The smallest refused distance, `least` if it is positive and refused, and whether there is one."""

        def halve(index, state):
            near, far, some = state
            middle = jnp.where((index == 0) & (least > 0), least, jnp.where(index < 2, far, (near + far) / 2))
            refuse = excess(middle) >= 0
            near, far = (
                jnp.where(refuse, near, jnp.maximum(near, middle)),
                jnp.where(refuse, jnp.minimum(far, middle), far),
            )
            return near, far, some | refuse

        state = with_sharding_of((near, far, far < near), spread, num_users, kept, log_tail)
        return lax.fori_loop(0, passes + 1, halve, state)[1:]

    fixed = lax.stop_gradient(given)
    start, _ = nearest(_excess_over_normal(fixed), least, most, NORMAL_BISECTIONS)
    near, far = jnp.maximum(0.3 * start, least), jnp.minimum(2.5 * start, most)
    found, some = nearest(_excess_over_superquantile((*fixed, start)), near, far, BISECTIONS)
    # Elsewhere the limit is an end of the range, and derivatives are taken at a harmless place.
    inside = (estimate > 0) & some
    given = spread, jnp.where(inside, estimate, 0.5), num_users, kept, log_tail
    start, found = (jnp.where(inside, place, 0.25) for place in (start, found))
    begun = with_derivative_of_root(lambda distance, given: _excess_over_normal(given)(distance), start, given)
    distance = with_derivative_of_root(
        lambda distance, given: _excess_over_superquantile(given)(distance), found, (*given, begun)
    )
    limit = jnp.where(inside, jnp.clip(estimate - distance, 0, 1), 0)
    return jnp.where((estimate > 1) & inside & (found <= least), 2, limit)


def _excess_over_normal(given):
    """The function of the distance of m from its estimate: how far that is above the superquantile of a normal law."""
    spread, estimate, num_users, kept, log_tail = given
    z = -ndtri(jnp.exp(log_tail))
    normal = jnp.exp(-(z**2) / 2 - log_tail) / math.sqrt(2 * math.pi)

    def excess(distance):
        share = jnp.clip(estimate - distance, 0, 1)
        # A root has no derivative at zero.
        variance = jnp.maximum(spread.of_reports(share, kept) / num_users, jnp.finfo(share.dtype).tiny)
        return kept * distance - normal * jnp.sqrt(variance)

    return excess


def _excess_over_superquantile(given):
    """The function of the distance of m from its estimate: how far that is above the superquantile of T*."""
    spread, estimate, num_users, kept, log_tail, start = given
    share = jnp.clip(estimate - start, 0, 1)
    scale = jnp.sqrt(jnp.maximum(num_users * spread.of_reports(share, kept), 0.25))
    places, excesses = _expected_excesses(spread, num_users, kept, -ndtri(jnp.exp(log_tail)), scale)

    def excess(distance):
        expected = excesses(jnp.clip(estimate - distance, 0, 1)) * (1 + ERROR_OF_EXPECTATION) / jnp.exp(log_tail)
        bounds = places + expected
        return num_users * kept * distance - bounds[jnp.argmin(bounds)]  # the derivative of a minimum compares bits

    return excess


def _expected_excesses(spread, num_users, kept, z, scale):
    """Places h `[H]`, from the mean of T*, and the function of m that returns E(T* − h)₊ there.

    Complex numbers are pairs of a real and an imaginary part.
    """
    dtype = scale.dtype
    # The mean of the tilted law is near h: exactly so for a Poisson law and for a normal law.
    tilt = jnp.log1p(jnp.maximum(z, 1) / scale)  # λ
    angles = jnp.arange(NODES, dtype=dtype) * STEP / scale  # φ
    deviations = spread.points - spread.mean
    real, imaginary = _exp_minus(tilt * deviations, angles[:, None] * deviations)
    # Σ mass·(e^(s·(x − mean)) − 1 − s·(x − mean)), `[J]`
    noise = matmul(real, spread.mass), matmul(imaginary, spread.mass)
    places = scale * (z + jnp.asarray(PLACES_OF_H, dtype))
    ends = jnp.where(jnp.arange(NODES) == 0, 0.5, 1.0).astype(dtype) * (STEP / scale / math.pi)
    variance = (NOISE * scale) ** 2
    # The weights of the rule, with the noise on T*, times e^(−iφh)/s², `[J, H]`
    modulus = ends * jnp.exp((tilt**2 - angles**2) * (variance / 2)) / (tilt**2 + angles**2)
    phase = (angles * tilt * variance - 2 * jnp.arctan2(angles, tilt))[:, None] - angles[:, None] * places
    rule = modulus[:, None] * jnp.cos(phase), modulus[:, None] * jnp.sin(phase)

    def excesses(share):
        lost = 1 - kept
        mean = kept * share + lost * spread.mean
        # The generating function of a report's x less its mean, less one: of second order.
        points = stacked(spread.mean, jnp.ones_like(mean), jnp.zeros_like(mean)) - mean
        chances = stacked(lost, kept * share, kept * (1 - share))
        kinds = _exp_minus(tilt * points, angles[:, None] * points)
        real, imaginary = (matmul(part, chances) for part in kinds)
        modulus, phase = lost * jnp.exp(tilt * points[0]), angles * points[0]
        cosine, sine = modulus * jnp.cos(phase), modulus * jnp.sin(phase)
        real = real + noise[0] * cosine - noise[1] * sine
        imaginary = imaginary + noise[0] * sine + noise[1] * cosine
        log_modulus = num_users * jnp.log1p(jnp.maximum(2 * real + real**2 + imaginary**2, -1)) / 2
        phase = num_users * jnp.arctan2(imaginary, 1 + real)
        modulus = jnp.exp(log_modulus - log_modulus[0])
        total = matmul(modulus * jnp.cos(phase), rule[0]) - matmul(modulus * jnp.sin(phase), rule[1])
        return jnp.maximum(total, 0) * jnp.exp(log_modulus[0] - tilt * places)

    return places, excesses


def _exp_minus(a, b):
    """Real and imaginary part of e^z − 1 − z without cancellation, z = a + ib."""
    half = b / 2
    sine, cosine = jnp.sin(half), jnp.cos(half)
    square = b * b
    series = -b * square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72 * (1 - square / 110))))
    sine_minus = jnp.where(square < 1, series, 2 * sine * cosine - b)
    real = exp_minus(a) - (jnp.exp(a) * 2) * sine**2
    return real, jnp.expm1(a) * (2 * sine * cosine) + sine_minus


class Collections(NamedTuple):
    """Independent collections of the same values: m̂, N, d, W of either sign, and limits of m from 0 to 1."""

    estimates: Float[Array, " S"]
    num_users: Float[Array, " S"]
    kept: Float[Array, " S"]
    weights: Float[Array, " S"]
    lower: Float[Array, " S"]
    upper: Float[Array, " S"]

    def mirrored(self) -> Collections:
        """The same collections with 1 − x in place of x."""
        return self._replace(estimates=1 - self.estimates, lower=1 - self.upper, upper=1 - self.lower)


@jax.jit
def combined_limits(
    spread: Spread, data: Collections, log_tail: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The limits of D: values below the first and above the second are refused; not cut to the range of D."""
    sides = (spread, data), (mirrored(spread), data.mirrored())
    spreads, both = jax.tree.map(lambda *each: jnp.stack(each), *sides)
    limits = jax.vmap(_chernoff_limit, (0, 0, None))(spreads, both, log_tail)
    return limits[0], jnp.sum(data.weights) - limits[1]


def _chernoff_limit(spread, data, log_tail):
    estimates, number, kept, weights = data[:4]
    each = weights / (number * kept)
    variance = spread.of_reports(jnp.clip(estimates, 0, 1), kept)
    # If the largest weight of one user dominates, λ_s is of the order of one.
    scale = jnp.sqrt(-2 * log_tail / (jnp.sum(each**2 * number * variance) + jnp.max(jnp.abs(each)) ** 2))

    def at(tilt):
        """The distance of the limit below the estimate, with the best multiplier for this λ."""
        s = tilt * each  # λ_s
        means = kept * estimates + (1 - kept) * spread.mean
        noise = jnp.sum(spread.mass * exp_minus(s[:, None] * (spread.points - means[:, None])), axis=1)
        low, high = (
            (1 - kept) * noise + kept * exp_minus(s * (end - means)) for end in (jnp.zeros_like(s), jnp.ones_like(s))
        )
        # M − 1 = s·d·(m − m̂) + low + m·(high − low)
        rise = s * kept
        still = rise == 0
        safe = jnp.where(still, 1, rise)
        slope = (high - low) / safe

        def of_multiplier(log_ratio):
            excess = jnp.expm1(log_ratio)  # κ = λ·(1 + excess)
            best = (1 + slope) / (1 + excess) - 1
            moved = (best - (low + estimates * (high - low))) / (1 + slope)
            share = jnp.clip(estimates + moved / safe, data.lower, data.upper)
            first = rise * (share - estimates)
            second = low + share * (high - low)
            value = number * (log1p_minus(first + second) + second - excess * first)
            return (jnp.sum(jnp.where(still, 0, value)) - log_tail) / (tilt * (1 + excess))

        reach = 2 * jnp.minimum(jnp.max(jnp.abs(s)), 1)
        return _least(of_multiplier, -reach, reach)

    distance = _least(lambda log_tilt: at(jnp.exp(log_tilt)), jnp.log(scale) - 4, jnp.log(scale) + 1)
    return jnp.sum(weights * estimates) - distance


def _least(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The least value of a function that falls and then rises, by search."""
    inner = jnp.arange(1, SEARCH_PLACES + 1, dtype=low.dtype) / (SEARCH_PLACES + 1)

    def narrow(_, state):
        low, high, least = state
        values = jax.vmap(function)(low + (high - low) * inner)
        best, step = jnp.argmin(values), (high - low) / (SEARCH_PLACES + 1)
        return (
            low + best.astype(low.dtype) * step,
            low + (best + 2).astype(low.dtype) * step,
            jnp.fmin(least, values[best]),
        )

    # At the least value its place has no effect on its derivatives.
    low, high = lax.stop_gradient((low, high))
    state = (low, high, jnp.full_like(low, jnp.inf))
    return lax.fori_loop(0, SEARCH_PASSES, narrow, state)[-1]
