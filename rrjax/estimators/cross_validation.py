"""The threshold chosen by the data: cross-validation over the family that InvN, MLE* and InvP belong to.

The three estimators are one function of a threshold τ, F(τ)_i = (c_i − τ)₊ / Σ_j (c_j − τ)₊, and which of them is
closest to the truth depends on the truth: a dense one wants a low threshold, a sparse one a high one, and none at all a
negative one, which shrinks towards the uniform distribution. The reports themselves tell: deal them out to folds, fit
on all folds but one, and ask the one, whose inversion is unbiased and independent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_survey, check_key
from rrjax.data.tally import Rates, Tally, as_tally, of_tally
from rrjax.estimators.closed_form import inv_p, mle_star
from rrjax.numerics.sharding import aligned, looked_up
from rrjax.numerics.sums import accurate_sum, expm1_epsilon
from rrjax.simulate.sampling import Stream, binomial, marked

NUM_FOLDS = 5
SCORES = (-10, -7, -5, -4, -3, -2, -1, -0.5, *(0.5 * step for step in range(13)))
"""Thresholds in standard deviations of an empty category's count.

From −10 on the shrinkage would exceed what the randomization can explain, and smooth away the population's own
irregularities. Beyond 6 a category of 10⁶ empty ones stands out by chance once in a thousand collections.
"""
STANDARD_ERRORS = 2
"""What a higher threshold must win by. The best of so many risks is lucky by more than one standard error."""
_SITES = 1 << 20  # of the random words, for each fold of counts
_SITES_OF_TALLY = 1 << 22


def cv_threshold(key: Array, counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Fills from a threshold that 5-fold cross-validation of the reports chooses.

    θ = F(τ), F(τ)_i = (c_i − τ)₊ / Σ_j (c_j − τ)₊, with τ = N·q + z·sqrt(N·q·(1−q)) + max(z, 0)²/6 for z on a grid from
    −10 to 6, or the τ of MLE* (for counts), or that of InvP. (The last term keeps the upper end a tail of a Poisson
    count where N·q is small, by Bernstein's inequality.) Each report goes to one of five folds, by exact binomial
    thinning (for a tally, where one report supports many categories: to folds of equal sizes, by exact hypergeometric
    thinning, which makes the counts of the folds independent); the risk of a candidate is the mean over the folds of
    ‖F_train‖² − 2⟨F_train, Inv_test⟩, where the training counts have the threshold of the same z at their own size. The
    smallest τ is taken whose risk is within two standard errors of the least, 2·2‖F_z − F*‖·sqrt(q/N)/d.

    Args:
        key: A typed key, `jax.random.key(seed)`: it deals out the reports. Another key may choose another threshold,
            most of all where the risks are close.
        counts: `[K]`, integers, the reports per category; each below 2³¹, with 64-bit mode too. Or a `Tally`, of fewer
            than 2³¹ users.
        epsilon: Scalar, nats; not beside a tally.

    Returns:
        `[K]` on the simplex, F(τ) of the chosen τ to a few units in the last place; deterministic given the key
        (the words of float64 differ from those of float32, and a near tie may fall otherwise under `jax.vmap`).
        All NaN where `mle_star` is, and where a count is 2³¹ or more. Memory O(K), time O(K) for each of 23 candidates
        in each fold.
        Derivatives in epsilon are those at the chosen z (or of MLE*, InvP); the choice itself jumps and has none.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers (thinning needs whole reports), or an ε beside a
            tally.

    Example:
        >>> import jax, rrjax
        >>> theta = rrjax.cv_threshold(jax.random.key(0), [5000, 3000, 1000, 1000], epsilon=1.0)
        >>> bool(abs(theta.sum() - 1) < 1e-6)
        True

    Note:
        Over the paper's grid its squared error was 0.85 times that of the best of InvN, MLE* and InvP in each setting
        (in the geometric mean; at most 1.64 times it in nine settings of ten), and nobody knows beforehand which is
        best (`validation/results/accuracy-cpu.md`); that of `empirical_bayes` was 0.57 times. It wins most where the
        truth is near-uniform, which it shrinks to what the reports support. It loses where they carry almost no signal:
        there InvN happens to be close to uniform, and an unlucky high threshold makes the error of a few keys large (in
        the worst setting the mean is 93 ± 70 times that of the best). The choice looks at the data, so intervals and
        tests that take τ as given are not valid after it. What it minimizes is the expected squared error from the
        population that the users were drawn from, not from the users' own shares.

    References:
        Pinzón et al., "Estimating the True Distribution of Data Collected with Randomized Response", AAAI 2026,
        arXiv:2601.08603: its future work asks how to choose among the estimators.
        Breiman, Friedman, Olshen and Stone, "Classification and Regression Trees", 1984, §3.4.3: the rule of standard
        errors.
    """
    check_key(key)
    if isinstance(counts, Tally):
        return _of_tally(key, as_tally(counts, epsilon, whole=True))
    return _of_counts(key, *as_survey(counts, epsilon, whole=True))


class _Law(NamedTuple):
    """What the mechanism says about a report."""

    q: Float[Array, ""]
    d: Float[Array, ""]

    def terms(self, score, total):
        """What τ of z is the sum of, for so many reports; the first one is N·q."""
        mean = total.astype(self.q.dtype) * self.q
        upper = jnp.maximum(score, 0)
        return mean, score * jnp.sqrt(mean * (1 - self.q)), upper * upper / 6

    def threshold(self, score, total):
        """τ of z."""
        mean, step, extra = self.terms(score, total)
        return mean + step + extra

    def above(self, score, total):
        """τ − N·q of z."""
        _, step, extra = self.terms(score, total)
        return step + extra


class _Part(NamedTuple):
    """The reports, or the training part of them, as candidates see them.

    Attributes:
        fill: A threshold → `[K]`, on the simplex.
        thresholds: `[scores]`.
        others: The candidates that have a threshold of their own, `[K]` each.
    """

    fill: Callable[[Float[Array, ""]], Float[Array, " K"]]
    thresholds: Float[Array, " scores"]
    others: tuple[Float[Array, " K"], ...]


class _Fold(NamedTuple):
    """One fold to test on, and the rest to fit on."""

    train: _Part
    signal: Float[Array, " K"]
    """2·d times the inversion of the fold, `[K]`."""


@jax.jit
def _of_counts(key, counts, epsilon):
    likely = mle_star(counts, epsilon)
    # Whatever is wrong with the input, MLE* has noticed; what follows must then only come to an end.
    usable = ~jnp.isnan(lax.stop_gradient(likely[0])) & (jnp.max(counts) <= jnp.iinfo(jnp.int32).max)
    counts = jnp.where(usable, counts, 1)
    epsilon = jnp.where(usable, epsilon, 1)
    e1 = expm1_epsilon(epsilon)
    law = _Law(1 / (e1 + counts.shape[0]), e1 / (e1 + counts.shape[0]))
    projected = inv_p(counts, epsilon)
    fixed, fixed_epsilon, others = lax.stop_gradient((law, epsilon, (likely, projected)))
    scores = _scores(law.q.dtype)
    total = jnp.sum(counts)
    stream = Stream.of(key)
    split = _splitter(stream, counts, fixed_epsilon, fixed, scores)

    def own_thresholds():
        """The τ of MLE* and of InvP from their supports, good enough to sort them in."""
        (sum_l, number_l), (sum_p, number_p) = (_active(counts, theta) for theta in others)
        kept = total.astype(law.q.dtype) * fixed.d
        return jnp.stack([sum_l / (lax.stop_gradient(e1) + number_l), (sum_p - kept) / number_p])

    whole = _Part(_filler(counts), fixed.threshold(scores, total), others)
    chosen = _choose(
        whole, own_thresholds(), _risks(split, aligned(counts.astype(jnp.int32), stream), fixed.d), fixed, total
    )
    theta = _filler(counts)(law.threshold(looked_up(scores, jnp.minimum(chosen, len(SCORES) - 1)), total))
    theta = _taken(theta, chosen, (likely, projected))
    return jnp.where(usable, theta, jnp.nan)


def _splitter(stream, counts, epsilon, law, scores):
    """How to take the next fold from the reports that are left, of counted reports."""
    total = jnp.sum(counts)

    def split(left, index):
        # A report is in this fold, given that it is in none before, with probability 1, ½, ⅓, … from the last one on.
        test = binomial(stream, index * _SITES, left, 1 / (NUM_FOLDS - index).astype(law.q.dtype))
        train = counts - test.astype(counts.dtype)
        train_total = jnp.sum(train)
        estimates = [
            # The only report may be the one to test on.
            jnp.where(train_total > 0, estimator(train, epsilon), 1 / counts.shape[0])
            for estimator in (mle_star, inv_p)
        ]
        # Over the expected number of reports, not over those that the fold got: unbiased, and never 0/0.
        signal = 2 * (test.astype(law.q.dtype) * (NUM_FOLDS / total.astype(law.q.dtype)) - law.q)
        part = _Part(_filler(train), law.threshold(scores, train_total), tuple(estimates))
        return left - test, _Fold(part, signal)

    return split


@jax.jit
def _of_tally(key, tally):
    projected = inv_p(tally)
    number = tally.num_users.astype(jnp.int32)
    usable = ~jnp.isnan(lax.stop_gradient(projected[0])) & (number >= NUM_FOLDS)
    usable = usable & (number.astype(tally.num_users.dtype) == tally.num_users)
    tally = Tally(
        jnp.where(usable, tally.support, 1).astype(jnp.int32),
        jnp.where(usable, number, NUM_FOLDS),
        rates=Rates(*(jnp.where(usable, weight, 1) for weight in tally.rates)),
    )
    law = _Law(tally.rates.q, tally.rates.d)
    fixed, fixed_rates, other = lax.stop_gradient((law, tally.rates, projected))
    scores = _scores(law.q.dtype)
    stream = Stream.of(key)

    def part_of(support, number):
        part = Tally(support, number, rates=fixed_rates)
        return _Part(_filler_of_excess(of_tally(part).excess), fixed.above(scores, number), (inv_p(part),))

    def split(left, index):
        # The users of the folds before are gone; of those left, so many of its supporters are in this one.
        support, users = left
        size = users // (NUM_FOLDS - index)
        test = marked(stream, index * _SITES_OF_TALLY, support, users, size)
        fold = of_tally(Tally(test, size, rates=fixed_rates))
        part = part_of(tally.support - test, tally.num_users - size)
        return (support - test, users - size), _Fold(part, 2 * fold.excess / size.astype(law.q.dtype))

    whole = part_of(tally.support, tally.num_users)
    total, active = _active(tally.support, other)
    # τ − N·q of InvP, from its support.
    own = jnp.stack([(total - tally.num_users.astype(total.dtype) * (fixed.d + active * fixed.q)) / active])
    risks = _risks(split, aligned((tally.support, tally.num_users), stream, law), fixed.d)
    chosen = _choose(whole, own, risks, fixed, tally.num_users)
    above = law.above(looked_up(scores, jnp.minimum(chosen, len(SCORES) - 1)), tally.num_users)
    theta = _taken(_filler_of_excess(of_tally(tally).excess)(above), chosen, (projected,))
    return jnp.where(usable, theta, jnp.nan)


def _scores(dtype):
    return jnp.asarray(np.array(SCORES), dtype)


def _active(counts, theta):
    """Sum and number of the counts in the support of an estimate."""
    active = theta > 0
    number = jnp.sum(active, dtype=theta.dtype)
    return jnp.sum(jnp.where(active, counts, 0)).astype(theta.dtype), number


def _taken(theta, chosen, others):
    for index, other in enumerate(others, len(SCORES)):
        theta = jnp.where(chosen == index, other, theta)
    return theta


def _choose(whole, own_thresholds, risk, law, total):
    """The index of the candidate to take: scores first, then those with a threshold of their own."""
    best = jnp.argmin(risk)
    winner = _taken(whole.fill(whole.thresholds[jnp.minimum(best, len(SCORES) - 1)]), best, whole.others)

    def distance(theta):
        return jnp.sqrt(accurate_sum((theta - winner) ** 2))

    distances = lax.map(lambda threshold: distance(whole.fill(threshold)), whole.thresholds)
    distances = jnp.concatenate([distances, jnp.stack([distance(other) for other in whole.others])])
    # As the risks, times d.
    error = 2 * distances * jnp.sqrt(law.q / total.astype(law.q.dtype))

    allowed = risk <= risk[best] + STANDARD_ERRORS * error
    thresholds = jnp.concatenate([whole.thresholds, own_thresholds])
    return jnp.argmin(jnp.where(allowed, thresholds, jnp.inf))


def _risks(split, left, d):
    """The cross-validated risk of every candidate, times d (so that no ε is too small) and up to a constant."""

    def fold(left, index):
        left, (train, signal) = split(left, index)
        # Relative to an estimate that is near all good candidates, term by term: what they share would drown what they
        # differ in, in rounding.
        near = train.others[0]
        against = d * near - signal

        def risk(theta):
            return accurate_sum((theta - near) * (d * theta + against))

        risks = lax.map(lambda threshold: risk(train.fill(threshold)), train.thresholds)
        return left, jnp.concatenate([risks, jnp.stack([risk(other) for other in train.others])])

    _, risks = lax.scan(fold, left, jnp.arange(NUM_FOLDS, dtype=jnp.int32))
    return jnp.sum(risks, axis=0) / NUM_FOLDS


def _filler_of_excess(excess: Float[Array, " K"]) -> Callable[[Float[Array, ""]], Float[Array, " K"]]:
    """τ − N·q → F(τ), as `_filler`, from the excess over N·q."""
    top = jnp.max(excess)

    def fill(above):
        beyond = above >= top
        height = jnp.where(beyond, (excess == top).astype(excess.dtype), jnp.maximum(excess - above, 0))
        return height / accurate_sum(height)

    return fill


def _filler(counts: Int[Array, " K"]) -> Callable[[Float[Array, ""]], Float[Array, " K"]]:
    """τ → F(τ); from the largest count on, what is left of it: equal shares of the largest counts."""
    top = jnp.max(counts)

    def fill(threshold):
        whole = jnp.floor(threshold)
        beyond = whole.astype(counts.dtype) >= top
        level = jnp.clip(whole.astype(counts.dtype) + 1, 0, top)
        # Never level − τ in floats, where the integers may be too large for them.
        rise = jnp.where(whole < 0, -threshold, jnp.where(beyond, 1, 1 - (threshold - whole)))
        # The sum over the active counts in integers, hence exact; one reduction, because XLA vectorizes it on a CPU.
        active = counts >= level
        zero = jnp.zeros((), counts.dtype)
        pairs = jnp.where(active, counts - level, 0), active.astype(counts.dtype)
        excess, number = lax.reduce(pairs, (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), (0,))
        height = excess.astype(rise.dtype) + number.astype(rise.dtype) * rise
        return jnp.where(active, ((counts - level).astype(rise.dtype) + rise) / height, 0)

    return fill
