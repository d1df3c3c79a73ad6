"""Numbers within a randomized class: against the published arithmetic, definitions in float64, and by simulation."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import X64
from refusals import refused
from scipy import stats

import rrjax
from rrjax.inference import class_cdf, class_means, class_quantiles
from rrjax.mechanisms import ByRespondent, Coin, Direct, ForcedResponse, OptimizedUnaryEncoding, SquareWave

RTOL = 1e-9 if X64 else 2e-5
RATES = (0.2, 0.5, 0.8)
Z = stats.norm.isf(0.025)


def records(number, share, design, seed=0, shift=0.5):
    """Values, reports and classes; class 1 has larger values."""
    random = np.random.default_rng(seed)
    classes = (random.random(number) < share).astype(np.int64)
    values = np.round(random.lognormal(shift * classes, 0.5), 3)  # with ties
    return values, np.asarray(design.randomize(jax.random.key(seed), classes)), classes


def by_record(number, seed=1):
    """A coin of another rate for each record."""
    return ByRespondent([Coin(2, rate) for rate in RATES], np.random.default_rng(seed).integers(0, 3, number))


def published(values, labels, rates, which, quantile):
    """The debiased mean and percentile of MDN's page on `PerformanceTimingConfidence`, as loops."""
    high, low = (labels == 1).astype(float), (labels == 0).astype(float)
    weights = ((high if which else low) - rates / 2) / (1 - rates)
    total, running = sum(weights), 0.0
    for place in sorted(range(len(values)), key=lambda each: values[each]):
        running += weights[place]
        if running >= quantile * total:
            return sum(weights * values) / total, values[place]
    raise AssertionError


@pytest.mark.long
def test_the_estimates_are_those_of_the_published_arithmetic():
    design = by_record(2_000)
    values, labels, _ = records(2_000, 0.3, design)
    values = np.unique(np.random.default_rng(0).lognormal(size=3_000))[:2_000]  # no ties, in which order would matter
    values = np.random.default_rng(1).permutation(values)
    rates = np.asarray(RATES)[design.which]
    means = class_means(values, labels, design).value
    for quantile in (0.5, 0.75, 0.95):
        found = class_quantiles(values, labels, design, quantile).value
        for which in (0, 1):
            mean, percentile = published(values, labels, rates, which, quantile)
            assert float(found[which]) == pytest.approx(percentile, rel=RTOL / 100)
            assert float(means[which]) == pytest.approx(mean, rel=20 * RTOL)


@pytest.mark.long
@pytest.mark.parametrize("each", [False, True], ids=["one coin", "noisier coins of larger values"])
def test_the_limits_are_those_of_the_definition(each):
    values, labels, classes = records(400, 0.4, Coin(2, 0.5))
    design, rates = Coin(2, 0.5), np.full(400, 0.5)
    if each:
        which = (values > 1).astype(int) + (values > 1.5)
        design, rates = ByRespondent([Coin(2, rate) for rate in RATES], which), np.asarray(RATES)[which]
        random = np.random.default_rng(2)
        labels = np.where(random.random(400) < rates, random.integers(0, 2, 400), classes)
    found = class_quantiles(values, labels, design, [0.25, 0.75])
    assert found.value.shape == (2, 2)
    ends = np.concatenate([[-np.inf], np.unique(values), [np.inf]])
    for row, part in enumerate((0.25, 0.75)):
        for which in (0, 1):
            weights = ((labels == which) - rates / 2) / (1 - rates)
            size, own = weights.sum(), rates / 2 * (1 - rates / 2) / (1 - rates) ** 2
            kept = []
            for place, t in enumerate(ends[:-1]):
                below = values <= t
                s = weights[below].sum() - part * size
                # By hand: w² = c₁·w + c₀ with c₁ = (1 − 2q)/d and c₀ = q(1 − q)/d².
                noise = part**2 * own[~below].sum() + (1 - part) ** 2 * own[below].sum()
                reach = Z * math.sqrt(1.0 * size * part * (1 - part) + noise)
                kept.append((ends[place], ends[place + 1], s, reach))
            lower = next(a for a, _, s, reach in kept if s >= -reach)
            upper = next(b for _, b, s, reach in reversed(kept) if s <= reach)
            value = next(a for a, _, s, _ in kept if s >= -1e-9)
            expected = [value, lower, upper]
            assert [float(each[row, which]) for each in found] == pytest.approx(expected, rel=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("number", [5, 40])
def test_without_randomization_the_distribution_has_wilsons_interval(number):
    values, labels, classes = records(number * 3, 0.4, Direct(2))
    found = class_cdf(values, labels, Direct(2), [0.8, 1.5])
    for row, point in enumerate((0.8, 1.5)):
        for which in (0, 1):
            own = values[classes == which]
            exact = stats.binomtest(int((own <= point).sum()), len(own)).proportion_ci(method="wilson")
            assert float(found.value[row, which]) == pytest.approx((own <= point).mean(), rel=RTOL)
            assert float(found.lower[row, which]) == pytest.approx(exact.low, abs=10 * RTOL)
            assert float(found.upper[row, which]) == pytest.approx(exact.high, abs=10 * RTOL)


@pytest.mark.long
def test_quantiles_and_distribution_invert_one_test():
    values, labels, _ = records(3_000, 0.4, Coin(2, 0.5))
    for part in (0.25, 0.9):
        lower, upper = (np.asarray(each) for each in class_quantiles(values, labels, Coin(2, 0.5), part)[1:])
        for which in (0, 1):
            at_lower, inside, at_upper = np.asarray(
                [
                    class_cdf(values, labels, Coin(2, 0.5), [t])[2][0, which]
                    for t in (lower[which] - 0.002, lower[which])
                ]
                + [class_cdf(values, labels, Coin(2, 0.5), [upper[which] + 0.002])[1][0, which]]
            )
            assert at_lower < part <= inside + RTOL
            assert at_upper > part


@pytest.mark.full
def test_records_of_other_noise_that_are_slower_too_are_covered():
    """With the mean noise of all records .8 of these intervals covered."""
    number, share, runs, random = 4_000, 0.2, 200, np.random.default_rng(5)
    designs, rates = [Coin(2, rate) for rate in (0.2, 0.8)], np.array([0.2, 0.8])
    law = [stats.gamma(4, scale=scale) for scale in (0.5, 1.0)]
    grid = np.linspace(0, 30, 30_001)
    true = grid[np.searchsorted((1 - share) * law[0].cdf(grid) + share * law[1].cdf(grid), 0.95)]
    covered = np.zeros(2)
    for _ in range(runs):
        release = (random.random(number) < share).astype(int)
        values, classes = random.gamma(4, np.where(release, 1.0, 0.5)), random.integers(0, 2, number)
        labels = np.where(random.random(number) < rates[release], random.integers(0, 2, number), classes)
        found = class_quantiles(values, labels, ByRespondent(designs, release), 0.95)
        at = class_cdf(values, labels, ByRespondent(designs, release), true)
        covered += np.array([at.lower[1] <= 0.95 <= at.upper[1], found.lower[0] <= true <= found.upper[0]]) / runs
    assert (covered > 0.95 - 3 * np.sqrt(0.05 * 0.95 / runs)).all()


@pytest.mark.long
@pytest.mark.parametrize(("share", "rate", "bounded"), [(0.4, 0.5, True), (0.05, 0.8, False)])
def test_the_limits_of_the_distribution_are_those_of_the_definition(share, rate, bounded):
    values, _, classes = records(300, share, Coin(2, rate))
    random = np.random.default_rng(1)  # the same labels in both precisions
    labels = np.where(random.random(300) < rate, random.integers(0, 2, 300), classes)
    assert np.isfinite(class_means(values, labels, Coin(2, rate)).lower).all() == bounded
    fractions, narrower = np.linspace(0, 1, 20_001), 0
    for point in (0.4, 0.7, 1.0, 1.5, 4.0):
        found = class_cdf(values, labels, Coin(2, rate), point)
        for which in (0, 1):
            weights, q, d = ((labels == which) - rate / 2) / (1 - rate), rate / 2, 1 - rate
            size, below = weights.sum(), values <= point
            noise = q * (1 - q) / d**2 * (fractions**2 * (~below).sum() + (1 - fractions) ** 2 * below.sum())
            variance = (1 - 2 * q) / d * max(size, 0) * fractions * (1 - fractions) + noise
            kept = fractions[np.abs(weights[below].sum() - fractions * size) <= Z * np.sqrt(variance)]
            wanted = (kept.min(), kept.max()) if len(kept) else (0, 1)
            assert [float(found.lower[which]), float(found.upper[which])] == pytest.approx(wanted, abs=1.01e-4)
            narrower += which * (wanted[0] > 0 or wanted[1] < 1)
    # Without a limit of the mean a class may still have limits of its distribution.
    assert narrower


@pytest.mark.long
@pytest.mark.parametrize("quantile", [0.75, None])
def test_differences_are_those_of_the_definition(quantile):
    design, number = rrjax.RandomizedResponse(3, 1.5), 3_000
    random = np.random.default_rng(0)
    classes = random.integers(0, 3, number)
    values = random.normal(classes, 1.0).astype(np.float32)
    reports = np.asarray(design.randomize(jax.random.key(0), classes))
    function = class_means if quantile is None else partial(class_quantiles, quantile=quantile)
    found, own = function(values, reports, design, reference=2), function(values, reports, design)
    value, lower, upper = (np.asarray(each, np.float64) for each in own)
    weights = np.asarray(design.debias(reports), np.float64)
    terms = values[:, None] - value if quantile is None else (values[:, None] <= value) - quantile
    products = (weights * terms).T @ (weights * terms)  # the sums are zero, but for the one step at a quantile
    correlation = products / np.sqrt(np.outer(products.diagonal(), products.diagonal()))
    assert np.abs(correlation[2, :2]).max() > 0.05  # independent classes would not do
    for which in (0, 1):
        for limit, one, other in ((found.lower, lower, upper), (found.upper, upper, lower)):
            sides = np.asarray([abs(value[which] - one[which]), abs(value[2] - other[2])])
            square = (sides**2).sum() - 2 * correlation[which, 2] * sides.prod()
            far = abs(float(limit[which]) - (value[which] - value[2]))
            assert far == pytest.approx(math.sqrt(square), rel=50 * RTOL, abs=50 * RTOL)
    assert [float(each[2]) for each in found] == [0, 0, 0]
    assert (found.lower < found.upper)[:2].all()


@pytest.mark.long
def test_a_difference_has_a_limit_where_both_classes_have():
    for share, design, finite in ((0.0, Coin(2, 0.8), False), (0.5, Coin(2, 0.4), True)):
        values, labels, _ = records(300, share, design, seed=4)
        for function in (class_quantiles, class_means):
            found = function(values, labels, design, reference=0)
            assert np.isfinite([found.lower[1], found.upper[1]]).tolist() == [finite, finite]
            assert float(found.lower[0]) == 0


@pytest.mark.long
def test_limits_of_means_lie_where_the_test_changes():
    values, labels, _ = records(500, 0.4, Coin(2, 0.5))
    found = class_means(values, labels, Coin(2, 0.5))
    for which in (0, 1):
        weights = ((labels == which) - 0.25) / 0.5
        for limit in (found.lower, found.upper):
            terms = weights * (values - float(limit[which]))
            spread = (terms**2).sum() - terms.sum() ** 2 / len(terms)
            assert abs(terms.sum()) / math.sqrt(spread) == pytest.approx(Z, rel=50 * RTOL)


@pytest.mark.long
@pytest.mark.parametrize(
    "mechanism",
    [rrjax.RandomizedResponse(3, 2.0), OptimizedUnaryEncoding(3, 2.0), ForcedResponse(0.6, [0.5, 0.3, 0.2])],
)
def test_every_mechanism_with_unbiased_vectors(mechanism):
    random = np.random.default_rng(0)
    classes = random.integers(0, 3, 6_000)
    values = random.normal(classes, 1.0)
    reports = mechanism.randomize(jax.random.key(0), classes)
    for found in (class_quantiles(values, reports, mechanism), class_means(values, reports, mechanism)):
        assert ((found.lower <= found.value) & (found.value <= found.upper)).all()
        # Fixed keys: each true number lies within twice its own interval.
        half = (found.upper - found.lower) / 2
        assert (np.abs(np.asarray(found.value) - np.arange(3)) <= 2 * half).all()
        assert (half < 0.4).all()


@pytest.mark.long
def test_epsilon_is_that_of_randomized_response():
    values, labels, _ = records(200, 0.4, Coin(2, 0.4))
    one = class_quantiles(values, labels, math.log(4), num_categories=2)
    other = class_quantiles(values, labels, Coin(2, 0.4))
    np.testing.assert_allclose(one, other, rtol=RTOL)


@pytest.mark.long
def test_order_and_transformations_do_not_matter():
    values, labels, _ = records(300, 0.4, Coin(2, 0.4))
    turned = np.random.default_rng(3).permutation(300)
    apart = [partial(each, reference=0) for each in (class_quantiles, class_means)]
    for function in (class_quantiles, class_means, lambda *given: class_cdf(*given, 1.0), *apart):
        plain = function(values, labels, Coin(2, 0.4))
        np.testing.assert_allclose(function(values[turned], labels[turned], Coin(2, 0.4)), plain, rtol=10 * RTOL)
        traced = jax.jit(lambda v, r, f=function: f(v, r, Coin(2, 0.4)))
        np.testing.assert_allclose(traced(values, labels), plain, rtol=10 * RTOL)
        assert np.isnan(np.asarray(traced(np.append(values[1:], np.nan), labels))).all()
        assert np.isnan(np.asarray(traced(values, np.append(labels[1:], 2)))).all()
        batch = jax.vmap(lambda v, f=function: f(v, labels, Coin(2, 0.4)))(jnp.stack([values, values]))
        np.testing.assert_allclose(batch.value[1], plain.value, rtol=10 * RTOL)


@pytest.mark.long
def test_records_that_do_not_count_change_nothing():
    design = by_record(400)
    values, labels, _ = records(400, 0.4, design)
    where = np.random.default_rng(5).random(400) < 0.6
    some = ByRespondent(design.designs, np.asarray(design.which)[where])
    for function in (
        lambda *given, **more: class_quantiles(*given, [0.1, 0.75], **more),
        class_means,
        lambda *given, **more: class_cdf(*given, [0.5, 1.0], **more),
    ):
        wanted = function(values[where], labels[where], some)
        np.testing.assert_allclose(function(values, labels, design, where=where), wanted, rtol=20 * RTOL)


@pytest.mark.long
def test_a_class_that_may_have_no_records_has_no_limits():
    values, labels, _ = records(300, 0.0, Coin(2, 0.8), seed=4)
    for found in (class_quantiles(values, labels, Coin(2, 0.8)), class_means(values, labels, Coin(2, 0.8))):
        assert np.isinf(found.lower[1])
        assert np.isinf(found.upper[1])
        assert np.isfinite([found.lower[0], found.upper[0]]).all()
    found = class_cdf(values, labels, Coin(2, 0.8), 1.0)
    assert (found.lower[1], found.upper[1]) == (0, 1)


@pytest.mark.full
def test_simultaneous_intervals_share_the_error():
    values, labels, _ = records(800, 0.4, Coin(2, 0.4))
    for function, number in (
        (lambda **given: class_quantiles(values, labels, Coin(2, 0.4), [0.5, 0.75], **given), 4),
        (lambda **given: class_means(values, labels, Coin(2, 0.4), **given), 2),
        (lambda **given: class_cdf(values, labels, Coin(2, 0.4), [0.5, 1.0, 2.0], **given), 6),
        (lambda **given: class_quantiles(values, labels, Coin(2, 0.4), [0.5, 0.75], reference=1, **given), 2),
    ):
        np.testing.assert_allclose(
            function(simultaneous="bonferroni"), function(level=1 - 0.05 / number), rtol=20 * RTOL
        )


@pytest.mark.once
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: class_quantiles([1.0, np.nan], [0, 1], Coin(2, 0.4)), "values"),
        (lambda: class_means([1.0, np.inf], [0, 1], Coin(2, 0.4)), "values"),
        (lambda: class_means([[1.0, 2.0]], [0, 1], Coin(2, 0.4)), "values"),
        (lambda: class_means([1.0], [0], Coin(2, 0.4)), "values"),
        (lambda: class_means([1.0, 2.0], [0, 1, 1], Coin(2, 0.4)), "reports"),
        (lambda: class_means([1.0, 2.0], [0, 2], Coin(2, 0.4)), "reports"),
        (lambda: class_means([1.0, 2.0], [0, 1], 1.0), "num_categories"),
        (lambda: class_means([1.0, 2.0], [0, 1], Coin(2, 0.4), num_categories=2), "num_categories"),
        (lambda: class_means([1.0, 2.0], [0, 1], SquareWave(2, 1.0)), "epsilon_or_mechanism"),
        (lambda: class_quantiles([1.0, 2.0], [0, 1], Coin(2, 0.4), 1.0), "quantile"),
        (lambda: class_quantiles([1.0, 2.0], [0, 1], Coin(2, 0.4), [[0.5]]), "quantile"),
        (lambda: class_cdf([1.0, 2.0], [0, 1], Coin(2, 0.4), "a"), "points"),
        (lambda: class_means([1.0, 2.0], [0, 1], Coin(2, 0.4), reference=2), "reference"),
        (lambda: class_quantiles([1.0, 2.0], [0, 1], Coin(2, 0.4), reference=-1), "reference"),
        (lambda: class_quantiles([1.0, 2.0], [0, 1], Coin(2, 0.4), level=1.0), "level"),
        (lambda: class_means([1.0, 2.0], [0, 1], Coin(2, 0.4), simultaneous="holm"), "simultaneous"),
        (lambda: class_means([1.0, 2.0], [0, 1], Coin(2, 0.4), where=[True]), "where"),
        (lambda: class_cdf([1.0, 2.0], [0, 1], Coin(2, 0.4), 1.0, where=[1, 0]), "where"),
    ],
)
def test_impossible_arguments_are_refused(call, argument):
    with refused(argument):
        call()


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(("share", "rate"), [(0.2, 0.5), (0.5, 0.8), (0.4, None)], ids=["rare", "noisy", "by-record"])
def test_intervals_cover(share, rate):
    number, runs = 300, 2_000
    design = by_record(number) if rate is None else Coin(2, rate)

    def one(key):
        for_class, for_value, for_label = jax.random.split(key, 3)
        classes = jax.random.bernoulli(for_class, share, (number,)).astype(jnp.int32)
        normal = jax.random.normal(for_value, (number,))
        values = jnp.where(classes == 1, jnp.exp(0.3 + normal), jnp.exp(0.7 * normal))
        labels = design.randomize(for_label, classes)
        given = values, labels, design
        apart = class_quantiles(*given, jnp.asarray(PARTS), reference=0)
        return class_quantiles(*given, jnp.asarray(PARTS)), class_cdf(*given, 3.0), apart

    quantiles, fractions, apart = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=100))(
        jax.random.split(jax.random.key(0), runs)
    )
    deviations = stats.norm.ppf(PARTS)[:, None] * [0.7, 1.0]
    true = np.exp(np.asarray([0.0, 0.3]) + deviations)
    below = stats.norm.cdf((math.log(3.0) - np.asarray([0.0, 0.3])) / [0.7, 1.0])
    for found, truth in ((quantiles, true), (fractions, below), (apart, true - true[:, :1])):
        covered = ((found.lower <= truth) & (truth <= found.upper)).mean(axis=0)
        # Three standard errors of the simulation.
        assert (covered >= 0.945 - 3 * math.sqrt(0.95 * 0.05 / runs)).all(), covered


PARTS = (0.5, 0.75, 0.95)
