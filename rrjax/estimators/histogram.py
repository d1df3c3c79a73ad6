"""What the counts of all categories say of their shares, on a grid.

Each count is taken as Binomial(N, q + d·θ) on its own. If every report supports the same number of categories, the sum
of the counts is known, and the counts are taken as independent given that sum: of k-ary randomized response they are
then Poisson, which is exact; of others the log-likelihood is (K−1)/K of the binomial one, which has their variance.

On the scale x (2·√N·arcsin √μ, or 2·√(N·μ) for Poisson counts) a count has a standard deviation of about one. The grid
has atoms less than one standard deviation apart where counts are dense: around the counts of empty categories and of
equal shares. Farther out they lie farther apart, and each stands for the interval around it.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import Estimand
from rrjax.data.errors import ArgumentError
from rrjax.data.tally import SupportData
from rrjax.numerics.sharding import take_at, with_sharding_of
from rrjax.numerics.solvers import bisected
from rrjax.numerics.special import deviance
from rrjax.numerics.sums import accurate_sum

NUM_CELLS = 192
NUM_ATOMS = 128
NUM_LARGEST = 64
"""Number of largest counts with cells of their own."""
SORTED_IN_ROWS_FROM = 2**16
"""Number of categories from which on the largest counts are found without sorting all."""
EVEN_WITHIN = 8.0
"""Standard deviations around a centre within which the warped scale is nearly even."""
NARROWEST_CELL = 0.25
"""Smallest width of a cell on the warped scale."""
MARGIN = 3.0
"""Distance of the outermost atom beyond the counts, in standard deviations."""
NO_NOISE = 1e-18
"""Smallest expected number of reports; less noise than that makes no difference, and would overflow."""


class Noise(NamedTuple):
    """The noise of the counts of a collection."""

    data: SupportData
    poisson: Bool[Array, ""]
    power: Float[Array, ""]  # the factor of log-likelihoods
    known: Bool[Array, ""]  # whether the sum of the counts is known
    q: Float[Array, ""]
    never: Float[Array, ""]  # 1 − p

    @classmethod
    def of(cls, data: SupportData) -> Noise:
        """The noise by the rates; whether the sum of the counts is known is seen from the rates and the sum itself."""
        size, number, rates = data.support.shape[0], data.num_users, data.rates
        # In units of q: of k-ary randomized response, p + (K−1)·q = 1.
        d = jnp.mean(rates.d)
        per_report = size * jnp.mean(data.q) + d
        whole = jnp.round(per_report)
        known = jnp.abs(per_report - whole) < 1e-4 * whole
        # Both rates of symmetric unary encoding add up to one, too: with two categories the sum must be exact.
        rounding = 8 * jnp.finfo(d.dtype).eps * (jnp.sum(jnp.maximum(jnp.abs(data.excess), 1)) + number * d)
        slack = rounding if size == 2 else 1e-3 * number * d
        known = known & (jnp.abs(accurate_sum(data.excess) - number * d) < slack)
        poisson = known & (whole == 1)
        power = jnp.where(known & ~poisson, 1 - 1 / size, 1).astype(d.dtype)
        least = NO_NOISE / number
        return cls(data, poisson, power, known, jnp.maximum(data.q, least), jnp.maximum(rates.not_p, least))

    @property
    def varies(self) -> bool:
        """Whether the rates differ by category."""
        return self.q.ndim > 0

    def _with_rates(self, change) -> Noise:
        if not self.varies:
            return self
        rates = type(self.data.rates)(*map(change, self.data.rates))
        return self._replace(data=self.data._replace(rates=rates), q=change(self.q), never=change(self.never))

    @property
    def by_row(self) -> Noise:
        """The noise for tables with a row for each category."""
        return self._with_rates(lambda rate: rate[:, None])

    @property
    def typical(self) -> Noise:
        """The noise of a category with the mean rates, for a grid that all share."""
        return self._with_rates(jnp.mean)

    @property
    def number(self) -> Float[Array, ""]:
        """N."""
        return self.data.num_users

    @property
    def d(self) -> Float[Array, ""]:
        """The difference p − q."""
        return self.data.rates.d

    def x_of_share(self, share: ArrayLike) -> Float[Array, "*s"]:
        """The x of the expected count of a share, less that of an empty category."""
        return self._x(self.d * share, self.never + self.d * (1 - share))

    def x_of_excess(self, excess: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """The x of a count, from count − N·q, less that of the expected count of an empty category."""
        part = excess / self.number
        return self._x(part, self.data.rates.not_q - part)

    def _x(self, change, complement):
        tiny = jnp.finfo(change.dtype).tiny  # a root has no slope at zero
        root, start = jnp.sqrt(jnp.maximum(self.q + change, tiny)), jnp.sqrt(self.q)
        other, beside = jnp.sqrt(jnp.maximum(complement, tiny)), jnp.sqrt(self.data.rates.not_q)
        change = jnp.maximum(change, -self.q)
        sine = change / (root * beside + other * start)
        angle = jnp.arctan2(sine, other * beside + root * start)
        return 2 * jnp.sqrt(self.number) * jnp.where(self.poisson, change / (root + start), angle)

    def share_of_x(self, x: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """The share in [0, 1] whose expected count has this x."""
        half = x / (2 * jnp.sqrt(self.number))
        start = jnp.sqrt(self.q)
        least = jnp.arctan2(start, jnp.sqrt(self.data.rates.not_q))
        angle = jnp.clip(half, -least, jnp.pi / 2 - least)
        half = jnp.maximum(half, -start)
        change = jnp.where(self.poisson, half * (half + 2 * start), jnp.sin(angle + 2 * least) * jnp.sin(angle))
        return jnp.clip(change / self.d, 0, 1)

    def chances(self, share: Float[Array, "*s"]) -> tuple[Float[Array, "*s"], Float[Array, "*s"]]:
        """The probabilities that a report supports a category of this share, and that it does not."""
        return self.q + self.d * share, self.never + self.d * (1 - share)

    def variance(self, share: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """The variance of a share that is estimated from its count alone; at most ¼, that of anything in [0, 1]."""
        chance, complement = self.chances(share)
        part = jnp.where(self.poisson, 1, complement) / self.power
        return jnp.minimum((chance / self.d) * (part / self.d) / self.number, 0.25)

    def variance_of_draws(self, share: Float[Array, "*s"]) -> Float[Array, "*s"]:
        """The part of the variance of a share of the distribution that comes from who was drawn from it."""
        return share * (1 - share) / self.number


def among(
    noise: Noise,
    estimand: Estimand,
    excess: Float[Array, "*#s"],
    share: Float[Array, "*#s"],
    variance: Float[Array, "*#s"],
) -> tuple[Float[Array, "*s"], Float[Array, "*s"], Float[Array, "*s"]]:
    """Mean and variance of the estimand, from the mean and variance of the share in the users' distribution.

    The share among these users counts the holders among the reports that support the category, and among the others.
    The last result is the part of the variance that adds nothing to that of the sum of all, given the counts.
    """
    if estimand == "distribution":
        return share, variance, jnp.zeros_like(variance)
    rates, number = noise.data.rates, noise.number
    chance, complement = noise.chances(share)
    supporting = excess / number + noise.data.q
    of_these = jnp.minimum(share * (rates.p / chance), 1)
    of_others = jnp.minimum(share * (noise.never / complement), 1)
    slope = supporting * (noise.q / chance) * (rates.p / chance)
    slope = slope + (1 - supporting) * (noise.never / complement) * (rates.not_q / complement)
    drawn = (supporting * of_these * (1 - of_these) + (1 - supporting) * of_others * (1 - of_others)) / number
    mean, of_share = supporting * of_these + (1 - supporting) * of_others, (slope * jnp.sqrt(variance)) ** 2
    return mean, of_share + drawn, jnp.where(noise.known, drawn, 0)


def warped(*distances: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The scale on which cells and atoms are even, from the distances to its centres; logarithmic far from them."""
    return EVEN_WITHIN * reduce(jnp.add, [jnp.arcsinh(distance / EVEN_WITHIN) for distance in distances])


def cell_of(scale: Float[Array, " K"], start: Array, end: Array, number: int) -> Int[Array, " K"]:
    """The cell of each warped value, of `number` equal cells from start to end."""
    width = jnp.maximum(NARROWEST_CELL, (end - start) / (number - 1) * (1 + 1e-5))
    return jnp.clip(((scale - start) / width).astype(jnp.int32), 0, number - 1)


def variances_of(x: Float[Array, " M"]) -> Float[Array, " M"]:
    """The variance around each atom of a rising grid, of a density that falls linearly to zero at its neighbours.

    Together they make an even density even. With the variance of an interval up to halfway, w²/12, it would have gaps
    of a third between the atoms, and pull shares towards them. Zero if atoms are closer than the noise of a count.
    """
    step = jnp.diff(x)
    width = (jnp.append(step, step[-1]) + jnp.append(step[0], step)) / 2
    return jnp.where(width > 1, width**2 / 6, 0)


def widened_normal_loglik(negative_square: Float[Array, "*s"], variance: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The log-likelihood of unit noise around an atom with a variance, from minus the squared distance."""
    return negative_square / (2 * (1 + variance)) - jnp.log1p(variance) / 2


def reliability(variance: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The part of a deviation that is signal, with this variance and noise of variance one."""
    return variance / (1 + variance)


class Atoms(NamedTuple):
    """The grid of shares."""

    share: Float[Array, " M"]  # θ, rising from zero; one of them is 1/K
    x: Float[Array, " M"]
    variance: Float[Array, " M"]  # of x around an atom, if atoms are farther apart than the noise of a count; else zero

    @classmethod
    def of(cls, noise: Noise, largest: Float[Array, ""]) -> Atoms:
        """Even on the warped scale, from no share to beyond the largest count, with equal shares among them."""
        size = noise.data.support.shape[0]
        most, middle = noise.x_of_share(1.0), noise.x_of_share(1 / size)
        high = jnp.minimum(jnp.maximum(noise.x_of_excess(largest), middle) + MARGIN, most)
        end = _warped(noise, jnp.zeros_like(high)), _warped(noise, high)
        wanted = end[0] + (end[1] - end[0]) * jnp.asarray(np.linspace(0, 1, NUM_ATOMS - 1)[1:], high.dtype)
        span = with_sharding_of((jnp.zeros_like(wanted), jnp.full_like(wanted, high)), wanted)
        below, above = bisected(lambda x: _warped(noise, x) < wanted, *span, jnp.finfo(high.dtype).nmant + 1)
        grid = below + (above - below) / 2
        x = jnp.concatenate(with_sharding_of((jnp.zeros_like(grid[:1]), jnp.sort(jnp.append(grid, middle)))))
        share = jnp.where(x == middle, 1 / size, noise.share_of_x(x)).at[0].set(0)
        return cls(share, x, variances_of(x))


class Histogram(NamedTuple):
    """The support counts, less N·q, in cells, and what they say of shares on atoms."""

    noise: Noise
    mean: Float[Array, " B"]  # the mean of the counts in a cell
    weight: Float[Array, " B"]  # the number of counts
    cell: Int[Array, " K"]  # the cell of each category
    atoms: Atoms
    log_likelihood: Float[Array, "B M"]  # of a count at an atom, less the largest at any
    table: Float[Array, "B M"]  # the likelihood
    value: Float[Array, "B M"]  # the mean of a share, given its count and atom
    variance: Float[Array, "B M"]  # its variance
    drawn: Float[Array, "B M"]  # the part of it that adds nothing to the variance of the sum of all
    sampled: Bool[Array, ""]  # whether who was drawn adds nothing to the variance of the sum of all counts

    @classmethod
    def of(
        cls, data: SupportData, estimand: Estimand, atoms: Atoms | None = None, num_cells: int = NUM_CELLS
    ) -> Histogram:
        """The histogram of a collection, on a grid of its own unless atoms are given."""
        noise, (largest, category) = Noise.of(data), largest_of(data)
        mean, weight, cell = _cells(noise, largest, category, num_cells)
        atoms = Atoms.of(noise.typical, largest[0]) if atoms is None else atoms
        likelihood = log_likelihoods(noise, mean, atoms)
        of_shares = within_atoms(noise, estimand, mean, atoms)
        sampled = ~noise.known & (estimand == "distribution")
        return cls(noise, mean, weight, cell, atoms, likelihood, jnp.exp(likelihood), *of_shares, sampled)

    def means(self, known: Float[Array, "B M"]) -> Float[Array, " B"]:
        """Posterior means of the shares, from the probability of each atom."""
        return jnp.sum(known * self.value, axis=1)

    def moments(self, known: Float[Array, "B M"]) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        """Posterior means and variances of the shares."""
        mean = self.means(known)
        return mean, jnp.sum(known * (self.variance + (self.value - mean[:, None]) ** 2), axis=1)

    def of_sum(
        self, known: Float[Array, "B M"], mean: Float[Array, " B"], variance: Float[Array, " B"]
    ) -> Float[Array, " B"]:
        """What posterior variances add to that of the sum of all shares."""
        part = self.noise.variance_of_draws(mean) / self.noise.variance(mean)
        return (variance - jnp.sum(known * self.drawn, axis=1)) * (1 - jnp.where(self.sampled, part, 0))

    def posterior(self, prior: Float[Array, " M"]) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        """Posterior means and variances of the shares in each cell, under the weights of a prior."""
        return self.moments(posteriors(self.table, prior))

    def read(self, *values: Float[Array, " B"]) -> tuple[Float[Array, " K"], ...]:
        """Values of all categories, interpolated between the means of their cells and of the neighbouring ones."""
        excess = self.noise.data.excess
        if self.mean.shape == excess.shape:  # each has its own
            return values
        order = jnp.argsort(jnp.where(self.weight > 0, self.mean, jnp.inf))
        rank = jnp.zeros_like(order).at[order].set(jnp.arange(order.shape[0]))
        mean = take_at(self.mean, order)
        above = jnp.minimum(jnp.arange(order.shape[0]) + 1, jnp.sum(self.weight > 0) - 1)
        step = take_at(mean, above) - mean
        # The segment from one mean to the next: one formula for all its counts, so that rounding keeps their order.
        below = excess < take_at(self.mean, self.cell)
        segment = jnp.maximum(take_at(rank, self.cell) - below.astype(rank.dtype), 0)
        beyond = excess - take_at(mean, segment)

        def between(value):
            value = take_at(value, order)
            end = take_at(value, above)
            slope = jnp.where(step > 0, (end - value) / jnp.where(step > 0, step, 1), 0)
            start, end, slope = (take_at(each, segment) for each in (value, end, slope))
            inside = jnp.clip(start + beyond * slope, jnp.minimum(start, end), jnp.maximum(start, end))
            return jnp.where(beyond < take_at(step, segment), inside, end)

        return tuple(between(value) for value in values)


def _cells(noise: Noise, largest: Float[Array, " L"], category: Int[Array, " L"], number: int):
    """Mean and number of the counts in each cell, and the cell of each: one a count if there are enough.

    Else the largest have cells of their own, and the others share the rest.
    """
    excess = noise.data.excess
    size, dtype = excess.shape[0], excess.dtype
    if noise.varies and size > number:
        raise ArgumentError.about(
            "counts", f"whose rates differ by category are estimated for K up to {number}, got K = {size}"
        )
    if size <= number:
        return excess, jnp.ones_like(excess), jnp.arange(size, dtype=jnp.int32)
    shared = number - category.shape[0]
    scale = _warped(noise, noise.x_of_excess(excess))
    end = _warped(noise, noise.x_of_excess(largest[-1]))
    index = cell_of(scale, jnp.min(scale), end, shared)
    index = index.at[category].set(jnp.arange(shared, number, dtype=jnp.int32))
    weight = jnp.zeros(number, dtype).at[index].add(1)
    low = jnp.full(number, jnp.inf, dtype).at[index].min(excess)
    low = jnp.where(weight > 0, low, 0)
    beyond = jnp.zeros(number, dtype).at[index].add(excess - take_at(low, index))  # sums of small numbers
    return low + beyond / jnp.maximum(weight, 1), weight, index


def posteriors(table: Float[Array, "B M"], weights: Float[Array, " M"]) -> Float[Array, "B M"]:
    """The probability of each atom, given a count."""
    joint = table * weights
    return joint / jnp.sum(joint, axis=1, keepdims=True)


def largest_of(data: SupportData) -> tuple[Float[Array, " L"], Int[Array, " L"]]:
    """The 64 largest counts less N·q, or all if there are fewer, falling; and their categories."""
    excess, category = _top(data.excess, min(NUM_LARGEST, data.support.shape[0]))
    # Fused with the uses of its results, XLA would sort all categories. One barrier each: a barrier over both does not
    # compile for many devices.
    return lax.optimization_barrier(excess), lax.optimization_barrier(category)


def _top(values, number):
    """As `lax.top_k`, but may choose others among equal values. `top_k` is slow for millions of categories."""
    size = values.shape[0]
    if size < SORTED_IN_ROWS_FROM or AxisType.Explicit in jax.typeof(values).sharding.mesh.axis_types:
        return lax.top_k(values, number)
    width = 1 << (size.bit_length() // 2)
    padding = with_sharding_of(jnp.full(-size % width, -jnp.inf, values.dtype), values)
    rows = jnp.concatenate([values, padding]).reshape(-1, width)
    # The rows with the largest maxima hold the largest values.
    _, best = lax.top_k(jnp.max(rows, axis=1), number)
    best = jnp.sort(best)  # so that equal values stay in order within these rows
    largest, place = lax.top_k(rows[best].ravel(), number)
    return largest, best[place // width] * width + place % width


def _warped(noise: Noise, x):
    """The scale around the x of an empty category and of equal shares."""
    return warped(x, x - noise.x_of_share(1 / noise.data.support.shape[0]))


def log_likelihoods(noise: Noise, excess: Float[Array, " B"], atoms: Atoms) -> Float[Array, "B M"]:
    """Log-likelihood of a count at an atom, less the largest at any: never a difference of large numbers.

    With θ̂ the likeliest share, N·q + N·d·θ̂ is the count unless θ̂ is 0 or 1. The difference is a deviance between the
    expectations under θ̂ and under θ, and the rest of the count times a difference of logits.
    """
    noise, excess = noise.by_row, excess[:, None]
    number, d = noise.number, noise.d
    likeliest = jnp.clip(excess / (number * d), 0, 1)
    remainder = jnp.minimum(excess, 0) + jnp.maximum(excess - number * d, 0)
    (named, other), (named_best, other_best) = noise.chances(atoms.share), noise.chances(likeliest)
    difference = d * (likeliest - atoms.share)
    least = -1 + jnp.finfo(d.dtype).eps  # not −1, which rounding may miss on either side

    def lost(mean, difference):
        return mean * deviance(jnp.maximum(difference / mean, least))

    named_logit = jnp.log1p(jnp.maximum(-difference / named_best, least))
    other_logit = jnp.log1p(jnp.maximum(difference / other_best, least))
    exact = remainder * named_logit - number * lost(named, difference)
    exact = exact - jnp.where(noise.poisson, 0, remainder * other_logit + number * lost(other, -difference))
    x = noise.x_of_excess(excess)
    nearest = jnp.clip(x, 0, noise.x_of_share(1.0))
    wide = widened_normal_loglik((x - nearest) ** 2 - (x - _own_x(noise, atoms)) ** 2, atoms.variance)
    log_likelihood = noise.power * jnp.where(atoms.variance > 0, wide, exact)
    return log_likelihood - jnp.max(log_likelihood, axis=1, keepdims=True)


def _own_x(noise: Noise, atoms: Atoms):
    """The x of the atoms, on the scale of each category if the rates differ."""
    return noise.x_of_share(atoms.share) if noise.varies else atoms.x


def within_atoms(
    noise: Noise, estimand: Estimand, excess: Float[Array, " B"], atoms: Atoms
) -> tuple[Float[Array, "B M"], Float[Array, "B M"], Float[Array, "B M"]]:
    """As `among`, of a category's share, given its count and that its share is in the interval of an atom."""
    # Within the interval of an atom, the count itself determines the share.
    noise, part = noise.by_row, reliability(atoms.variance)
    own = _own_x(noise, atoms)
    x = own + part * (noise.x_of_excess(excess[:, None]) - own)
    share = jnp.where(atoms.variance > 0, noise.share_of_x(x), atoms.share)
    return among(noise, estimand, excess[:, None], share, part * noise.variance(share))
