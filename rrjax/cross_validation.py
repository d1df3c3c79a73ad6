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

from rrjax.estimators import inv_p, mle_star
from rrjax.numerics import accurate_sum, as_counts, as_scalar, float_dtype, odds
from rrjax.sampling import Stream, binomial

NUM_FOLDS = 5
SCORES = (-10, -7, -5, -4, -3, -2, -1, -0.5, *(0.5 * step for step in range(13)))
"""Thresholds in standard deviations of an empty category's count.

From −10 on the shrinkage would exceed what the randomization can explain, and smooth away the population's own
irregularities. Beyond 6 a category of 10⁶ empty ones stands out by chance once in a thousand collections.
"""
STANDARD_ERRORS = 2
"""What a higher threshold must win by. The best of so many risks is lucky by more than one standard error."""
_SITES = 1 << 20  # of the random words, for each fold


def cv_threshold(key: Array, counts: ArrayLike, epsilon: ArrayLike) -> Float[Array, " K"]:
    """Fills from a threshold that 5-fold cross-validation of the reports chooses.

    θ = F(τ), F(τ)_i = (c_i − τ)₊ / Σ_j (c_j − τ)₊, with τ = N·q + z·sqrt(N·q·(1−q)) + max(z, 0)²/6 for z on a grid from
    −10 to 6, or the τ of MLE*, or that of InvP. (The last term keeps the upper end a tail of a Poisson count where N·q
    is small, by Bernstein's inequality.) Each report goes to one of five folds, by exact binomial thinning; the risk of
    a candidate is the mean over the folds of ‖F_train‖² − 2⟨F_train, Inv_test⟩, where the training counts have the
    threshold of the same z at their own size. The smallest τ is taken whose risk is within two standard errors of the
    least, 2·2‖F_z − F*‖·sqrt(q/N)/d.

    Args:
        key: A typed key, `jax.random.key(seed)`: it deals out the reports. Another key may choose another threshold,
            most of all where the risks are close.
        counts: `[K]`, integers, the reports per category; each below 2³¹, with 64-bit mode too.
        epsilon: Scalar, nats.

    Returns:
        `[K]` on the simplex, F(τ) of the chosen τ to a few units in the last place; deterministic given the key
        (the words of float64 differ from those of float32, and a near tie may fall otherwise under `jax.vmap`).
        All NaN where `mle_star` is, and where a count is 2³¹ or more. Memory O(K), time O(K) for each of 23 candidates
        in each fold.
        Derivatives in epsilon are those at the chosen z (or of MLE*, InvP); the choice itself jumps and has none.

    Raises:
        ValueError: A wrong shape, K < 2, or counts that are not integers: thinning needs whole reports.

    Example:
        >>> import jax, rrjax
        >>> theta = rrjax.cv_threshold(jax.random.key(0), [5000, 3000, 1000, 1000], epsilon=1.0)
        >>> bool(abs(theta.sum() - 1) < 1e-6)
        True

    Note:
        Over 300 settings its squared error was half of that of the best of InvN, MLE* and InvP in each setting (in the
        geometric mean; at most 1.5 times it in nine settings of ten), and nobody knows beforehand which is best
        (`benchmarks/results/cv-threshold-cpu.md`). It wins most where the truth is near-uniform, which it shrinks to
        what the reports support. It loses where they carry almost no signal: there InvN happens to be close to
        uniform, and an unlucky high threshold, for one key in some twenty, makes the mean error a hundred times as
        large. The choice looks at the data, so intervals and tests that take τ as given are not valid after it. What it
        minimizes is the expected squared error from the population that the users were drawn from, not from the users'
        own shares.

    References:
        Pinzón et al., "Estimating the True Distribution of Data Collected with Randomized Response", AAAI 2026,
        arXiv:2601.08603: its future work asks how to choose among the estimators.
        Breiman, Friedman, Olshen and Stone, "Classification and Regression Trees", 1984, §3.4.3: the rule of standard
        errors.
    """
    counts = as_counts(counts, whole=True)
    return _cross_validated(key, counts, as_scalar(epsilon, float_dtype()))


class _Law(NamedTuple):
    """What ε says about a report."""

    epsilon: Float[Array, ""]
    e1: Float[Array, ""]
    q: Float[Array, ""]
    d: Float[Array, ""]

    @classmethod
    def of(cls, epsilon, num_categories):
        e1 = odds(epsilon)
        return cls(epsilon, e1, 1 / (e1 + num_categories), e1 / (e1 + num_categories))

    def threshold(self, score, total):
        """The τ of z for so many reports."""
        mean = total.astype(self.q.dtype) * self.q
        upper = jnp.maximum(score, 0)
        return mean + score * jnp.sqrt(mean * (1 - self.q)) + upper * upper / 6


@jax.jit
def _cross_validated(key, counts, epsilon):
    likely = mle_star(counts, epsilon)
    # Whatever is wrong with the input, MLE* has noticed; what follows must then only come to an end.
    usable = ~jnp.isnan(lax.stop_gradient(likely[0])) & (jnp.max(counts) <= jnp.iinfo(jnp.int32).max)
    counts = jnp.where(usable, counts, 1)
    law = _Law.of(jnp.where(usable, epsilon, 1), counts.shape[0])
    projected = inv_p(counts, law.epsilon)
    fixed, others = lax.stop_gradient((law, (likely, projected)))
    scores = jnp.asarray(np.array(SCORES), law.q.dtype)
    total = jnp.sum(counts)

    chosen = _choose(Stream.of(key), counts, total, scores, fixed, others)
    score = scores[jnp.minimum(chosen, len(SCORES) - 1)]
    theta = _filler(counts)(law.threshold(score, total))
    theta = jnp.where(chosen == len(SCORES), likely, theta)
    theta = jnp.where(chosen == len(SCORES) + 1, projected, theta)
    return jnp.where(usable, theta, jnp.nan)


def _choose(stream, counts, total, scores, law, others):
    """The index of the candidate to take: scores first, then MLE* and InvP."""
    risk = _risks(stream, counts, total, scores, law)
    best = jnp.argmin(risk)
    fill, thresholds = _filler(counts), law.threshold(scores, total)
    winner = fill(thresholds[jnp.minimum(best, len(SCORES) - 1)])
    for index, other in enumerate(others, len(SCORES)):
        winner = jnp.where(best == index, other, winner)

    def distance(theta):
        return jnp.sqrt(accurate_sum((theta - winner) ** 2))

    distances = lax.map(lambda threshold: distance(fill(threshold)), thresholds)
    distances = jnp.concatenate([distances, jnp.stack([distance(other) for other in others])])
    # As the risks, times d.
    error = 2 * distances * jnp.sqrt(law.q / total.astype(law.q.dtype))

    allowed = risk <= risk[best] + STANDARD_ERRORS * error
    thresholds = jnp.concatenate([thresholds, _thresholds_of(counts, total, law, *others)])
    return jnp.argmin(jnp.where(allowed, thresholds, jnp.inf))


def _thresholds_of(counts, total, law, likely, projected):
    """The τ of MLE* and of InvP from their supports, good enough to sort them in."""

    def survey(theta):
        active = theta > 0
        number = jnp.sum(active, dtype=law.q.dtype)
        return jnp.sum(jnp.where(active, counts, 0)).astype(law.q.dtype), number

    (sum_l, number_l), (sum_p, number_p) = survey(likely), survey(projected)
    kept = total.astype(law.q.dtype) * law.d
    return jnp.stack([sum_l / (law.e1 + number_l), (sum_p - kept) / number_p])


def _risks(stream, counts, total, scores, law):
    """The cross-validated risk of every candidate, times d (so that no ε is too small) and up to a constant."""
    dtype = law.q.dtype

    def fold(left, index):
        # A report is in this fold, given that it is in none before, with probability 1, ½, ⅓, … from the last one on.
        probability = 1 / (NUM_FOLDS - index).astype(dtype)
        test = binomial(stream, index * _SITES, left, probability)
        train = counts - test.astype(counts.dtype)
        train_total = jnp.sum(train)
        others = [
            # The only report may be the one to test on.
            jnp.where(train_total > 0, estimator(train, law.epsilon), 1 / counts.shape[0])
            for estimator in (mle_star, inv_p)
        ]
        # Over the expected number of reports, not over those that the fold got: unbiased, and never 0/0.
        signal = 2 * (test.astype(dtype) * (NUM_FOLDS / total.astype(dtype)) - law.q)
        # Relative to an estimate that is near all good candidates, term by term: what they share would drown what they
        # differ in, in rounding.
        near = others[0]
        against = law.d * near - signal

        def risk(theta):
            return accurate_sum((theta - near) * (law.d * theta + against))

        fill = _filler(train)
        risks = lax.map(lambda threshold: risk(fill(threshold)), law.threshold(scores, train_total))
        return left - test, jnp.concatenate([risks, jnp.stack([risk(other) for other in others])])

    _, risks = lax.scan(fold, counts.astype(jnp.int32), jnp.arange(NUM_FOLDS, dtype=jnp.int32))
    return jnp.sum(risks, axis=0) / NUM_FOLDS


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
