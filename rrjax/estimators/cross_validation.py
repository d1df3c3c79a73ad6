"""Cross-validation of the threshold, over the family that InvN, MLE* and InvP belong to.

The three estimators are one function of a threshold τ, F(τ)_i = (c_i − τ)₊ / Σ_j (c_j − τ)₊. The best threshold depends
on the truth: low for dense shares, high for sparse shares, and negative for uniform shares, which shrinks towards equal
shares. So the reports are split into folds. Each fold in turn is the test set: its inversion is unbiased, and
independent of the fit on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import as_survey, check_key
from rrjax.data.tally import Rates, Tally, as_tally, of_tally
from rrjax.estimators import water_filling
from rrjax.estimators.closed_form import inv_p, mle_star
from rrjax.numerics.programs import program
from rrjax.numerics.sharding import aligned, looked_up
from rrjax.numerics.sums import accurate_sum, expm1_epsilon
from rrjax.simulate.sampling import Stream, binomial, marked

NUM_FOLDS = 5
Z_SCORES = (-10, -7, -5, -4, -3, -2, -1, -0.5, *(0.5 * step for step in range(13)))
"""Candidate thresholds, in standard deviations of an empty category's count.

Below −10 the shrinkage would exceed the noise of the randomization, and remove real differences of shares. At 6, one of
10⁶ empty categories is above by chance once in a thousand collections.
"""
REQUIRED_STANDARD_ERRORS = 2
"""Standard errors by which a higher threshold must win. The least of many risks is too low by more than one."""
WORDS_PER_FOLD = 1 << 20
"""Number of places in the stream of random words for one fold of counts."""
WORDS_PER_FOLD_OF_TALLY = 1 << 22


def cv_threshold(key: Array, counts: ArrayLike | Tally, epsilon: ArrayLike | None = None) -> Float[Array, " K"]:
    """Estimates the shares with a threshold that 5-fold cross-validation of the reports chooses.

    θ = F(τ), F(τ)_i = (c_i − τ)₊ / Σ_j (c_j − τ)₊, with τ = N·q + z·sqrt(N·q·(1−q)) + max(z, 0)²/6 for z on a grid from
    −10 to 6, or the τ of MLE* (for counts), or that of InvP. (The last term, from Bernstein's inequality, covers the
    tail of a Poisson count if N·q is small.) Each report goes to one of five folds by exact binomial thinning. (A
    report of a tally may support many categories. Its folds have equal sizes, by exact hypergeometric thinning, which
    makes their counts independent.) The risk of a candidate is the mean over the folds of ‖F_train‖² − 2⟨F_train,
    Inv_test⟩, with the threshold of the same z at the size of the training counts. The result has the smallest τ whose
    risk is within two standard errors of the least, 2·2‖F_z − F*‖·sqrt(q/N)/d.

    Args:
        key: A typed key, `jax.random.key(seed)`, which splits the reports. Another key may choose another threshold,
            above all if the risks are close.
        counts: `[K]`, integers, the reports per category; each below 2³¹, with 64-bit mode too. Or a `Tally`, of fewer
            than 2³¹ users.
        epsilon: Scalar, nats; not with a tally.

    Returns:
        `[K]` on the simplex, F(τ) of the chosen τ to a few units in the last place; deterministic given the key
        (the words of float64 differ from those of float32, and a near tie may fall otherwise under `jax.vmap`).
        All NaN if `mle_star` is, or if a count is 2³¹ or more. Memory O(K), time O(K) for each of 23 candidates in each
        fold. Derivatives in epsilon are those at the chosen z (or of MLE*, InvP); the choice has none.

    Raises:
        ValueError: A wrong shape, K < 2, counts that are not integers (thinning needs whole reports), or an ε with a
            tally, or a tally whose rates differ by category.

    Example:
        >>> import jax, rrjax
        >>> theta = rrjax.cv_threshold(jax.random.key(0), [5000, 3000, 1000, 1000], epsilon=1.0)
        >>> bool(abs(theta.sum() - 1) < 1e-6)
        True

    Note:
        Over the paper's grid its squared error was 0.46 times that of the best of InvN, MLE* and InvP in each setting
        (the geometric mean; at most 1.5 times in nine settings of ten; `validation/results/accuracy-cpu.md`, where a
        best below 2 % of the inversion's error counts as that), and that of `empirical_bayes` 0.35 times. It gains most
        if the truth is near-uniform. It loses if the reports carry almost no signal: then InvN is close to uniform by
        chance, and a high threshold makes the error of a few keys large (in the worst setting the mean is 21 ± 10 times
        that of the best). The choice depends on the data, so intervals and tests that take τ as given are not valid
        after it. It minimizes the expected squared error from the shares of the population, not of these users.

    References:
        Pinzón et al., "Estimating the True Distribution of Data Collected with Randomized Response", AAAI 2026,
        arXiv:2601.08603: its future work asks how to choose among the estimators.
        Breiman, Friedman, Olshen and Stone, "Classification and Regression Trees", 1984, §3.4.3: the rule of standard
        errors.
    """
    check_key(key)
    if isinstance(counts, Tally):
        counts.rates.check_equal("cv_threshold")
        return _of_tally(key, as_tally(counts, epsilon, whole=True))
    return _of_counts(key, *as_survey(counts, epsilon, whole=True))


class _Law(NamedTuple):
    """The rates of the mechanism, q and p − q."""

    q: Float[Array, ""]
    d: Float[Array, ""]

    def threshold(self, score, total, *, above_mean: bool = False):
        """τ of z for `total` reports, or τ − N·q if `above_mean`."""
        mean, upper = total.astype(self.q.dtype) * self.q, jnp.maximum(score, 0)
        step, extra = score * jnp.sqrt(mean * (1 - self.q)), upper * upper / 6
        return step + extra if above_mean else mean + step + extra


class _Part(NamedTuple):
    """The candidates fitted to all reports, or to a training part."""

    fill: Callable[[Float[Array, ""]], Float[Array, " K"]]  # a threshold → its estimate
    thresholds: Float[Array, " scores"]
    others: tuple[Float[Array, " K"], ...]  # estimates with their own thresholds: MLE* (for counts), InvP


class _Fold(NamedTuple):
    """One fold as test, 2·d times its inversion `[K]`, and the fit on the others."""

    train: _Part
    signal: Float[Array, " K"]


@program
def _of_counts(key, counts, epsilon):
    likely = mle_star(counts, epsilon)
    # For unusable input MLE* is NaN; the rest need only terminate.
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
        """The τ of MLE* and of InvP from their supports, accurate enough to sort them among the scores."""
        (sum_l, number_l), (sum_p, number_p) = (_active(counts, theta) for theta in others)
        kept = total.astype(law.q.dtype) * fixed.d
        return jnp.stack([sum_l / (lax.stop_gradient(e1) + number_l), (sum_p - kept) / number_p])

    whole = _Part(_filler(counts), fixed.threshold(scores, total), others)
    chosen = _choose(
        whole, own_thresholds(), _risks(split, aligned(counts.astype(jnp.int32), stream), fixed.d), fixed, total
    )
    theta = _filler(counts)(law.threshold(looked_up(scores, jnp.minimum(chosen, len(Z_SCORES) - 1)), total))
    return jnp.where(usable, _taken(theta, chosen, (likely, projected)), jnp.nan)


def _splitter(stream, counts, epsilon, law, scores):
    """The function that takes the next fold from the counts that are left."""
    total = jnp.sum(counts)

    def split(left, index):
        # A report in no earlier fold is in this one with probability 1, ½, ⅓, …, from the last fold backwards.
        test = binomial(stream, index * WORDS_PER_FOLD, left, 1 / (NUM_FOLDS - index).astype(law.q.dtype))
        train = counts - test.astype(counts.dtype)
        train_total = jnp.sum(train)
        estimates = [
            # A single report may be in the test fold.
            jnp.where(train_total > 0, estimator(train, epsilon), 1 / counts.shape[0])
            for estimator in (mle_star, inv_p)
        ]
        # Divided by the expected number of reports of the fold, not by its own: unbiased, and never 0/0.
        signal = 2 * (test.astype(law.q.dtype) * (NUM_FOLDS / total.astype(law.q.dtype)) - law.q)
        part = _Part(_filler(train), law.threshold(scores, train_total), tuple(estimates))
        return left - test, _Fold(part, signal)

    return split


@program
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
        return _Part(
            _filler_of_excess(of_tally(part).excess), fixed.threshold(scores, number, above_mean=True), (inv_p(part),)
        )

    def split(left, index):
        # From the users left after the earlier folds, and from the supporters of a category among them.
        support, users = left
        size = users // (NUM_FOLDS - index)
        test = marked(stream, index * WORDS_PER_FOLD_OF_TALLY, support, users, size)
        fold = of_tally(Tally(test, size, rates=fixed_rates))
        part = part_of(tally.support - test, tally.num_users - size)
        return (support - test, users - size), _Fold(part, 2 * fold.excess / size.astype(law.q.dtype))

    whole = part_of(tally.support, tally.num_users)
    total, active = _active(tally.support, other)
    # τ − N·q of InvP, from its support.
    own = jnp.stack([(total - tally.num_users.astype(total.dtype) * (fixed.d + active * fixed.q)) / active])
    risks = _risks(split, aligned((tally.support, tally.num_users), stream, law), fixed.d)
    chosen = _choose(whole, own, risks, fixed, tally.num_users)
    score = looked_up(scores, jnp.minimum(chosen, len(Z_SCORES) - 1))
    above = law.threshold(score, tally.num_users, above_mean=True)
    theta = _taken(_filler_of_excess(of_tally(tally).excess)(above), chosen, (projected,))
    return jnp.where(usable, theta, jnp.nan)


def _scores(dtype):
    return jnp.asarray(np.array(Z_SCORES), dtype)


def _active(counts, theta):
    """Sum and number of the counts in the support of an estimate."""
    active = theta > 0
    number = jnp.sum(active, dtype=theta.dtype)
    return jnp.sum(jnp.where(active, counts, 0)).astype(theta.dtype), number


def _taken(theta, chosen, others):
    for index, other in enumerate(others, len(Z_SCORES)):
        theta = jnp.where(chosen == index, other, theta)
    return theta


def _choose(whole, own_thresholds, risk, law, total):
    """The index of the chosen candidate: first the scores, then `others`."""
    best = jnp.argmin(risk)
    winner = _taken(whole.fill(whole.thresholds[jnp.minimum(best, len(Z_SCORES) - 1)]), best, whole.others)

    def distance(theta):
        return jnp.sqrt(accurate_sum((theta - winner) ** 2))

    distances = lax.map(lambda threshold: distance(whole.fill(threshold)), whole.thresholds)
    distances = jnp.concatenate([distances, jnp.stack([distance(other) for other in whole.others])])
    # Times d, as the risks are.
    error = 2 * distances * jnp.sqrt(law.q / total.astype(law.q.dtype))

    allowed = risk <= risk[best] + REQUIRED_STANDARD_ERRORS * error
    thresholds = jnp.concatenate([whole.thresholds, own_thresholds])
    return jnp.argmin(jnp.where(allowed, thresholds, jnp.inf))


def _risks(split, left, d):
    """The cross-validated risk of every candidate, times d (so that no ε is too small) and up to a constant."""

    def fold(left, index):
        left, (train, signal) = split(left, index)
        # Relative to an estimate close to all good candidates, term by term: the rounding of their common part would
        # exceed their differences.
        reference = train.others[0]
        offset = d * reference - signal

        def risk(theta):
            return accurate_sum((theta - reference) * (d * theta + offset))

        risks = lax.map(lambda threshold: risk(train.fill(threshold)), train.thresholds)
        return left, jnp.concatenate([risks, jnp.stack([risk(other) for other in train.others])])

    _, risks = lax.scan(fold, left, jnp.arange(NUM_FOLDS, dtype=jnp.int32))
    return jnp.sum(risks, axis=0) / NUM_FOLDS


def _filler_of_excess(excess: Float[Array, " K"]) -> Callable[[Float[Array, ""]], Float[Array, " K"]]:
    """τ − N·q → F(τ), as `_filler`, from the excess over N·q."""
    top = jnp.max(excess)

    def fill(above):
        height = jnp.where(above >= top, (excess == top).astype(excess.dtype), jnp.maximum(excess - above, 0))
        return height / accurate_sum(height)

    return fill


def _filler(counts: Int[Array, " K"]) -> Callable[[Float[Array, ""]], Float[Array, " K"]]:
    """τ → F(τ). From the largest count on, its limit there: equal shares for the largest counts."""
    top = jnp.max(counts)

    def fill(threshold):
        whole = jnp.floor(threshold)
        beyond = whole.astype(counts.dtype) >= top
        level = jnp.clip(whole.astype(counts.dtype) + 1, 0, top)
        # Never level − τ in floats: the integers may be too large for them.
        rise = jnp.where(whole < 0, -threshold, jnp.where(beyond, 1, 1 - (threshold - whole)))
        return water_filling.fill(counts, water_filling.Threshold(level, rise))

    return fill
