"""Limits at any number of looks: against the ratio in exact form, crossing probabilities, and how wide they are."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, special

from rrjax.inference import difference, intervals, linear_functional
from rrjax.inference.any_time import log_ratio
from rrjax.mechanisms import Direct, ForcedResponse, OptimizedUnaryEncoding, RandomizedResponse

RTOL = 1e-9 if X64 else 1e-4
COUNTS = [(0, 10), (1, 9), (2, 300), (40, 60), (5_000, 5_000), (30, 99_970), (123_456, 876_544), (7, 0)]


def tuned(alpha, users):
    """The concentration of the beta mixture."""
    bound = 2 * math.log(1 / alpha)
    return users / optimize.brentq(lambda r: r - bound - math.log1p(r), bound, 10 * bound + 10)


def ratio(count, number, law, concentration):
    """Its logarithm, of the beta functions themselves, in float64."""
    a, b = concentration * law, concentration * (1 - law)
    mixed = special.betaln(count + a, number - count + b) - special.betaln(a, b)
    return mixed - special.xlogy(count, law) - special.xlog1py(number - count, -law)


@pytest.mark.long
@pytest.mark.parametrize(("count", "other"), [each for each in COUNTS if each[0]])
def test_the_ratio_is_that_of_the_beta_functions(count, other):
    below = np.asarray([0.001, 0.03, 0.2, 0.7, 0.99], FLOAT)
    for concentration in (0.7, 12.0, 1_200.0):
        found = log_ratio(FLOAT.type(count), FLOAT.type(other), below, FLOAT.type(concentration))
        number = count + other
        expected = ratio(count, number, count / number * (1 - below.astype(float)), concentration)
        np.testing.assert_allclose(found, expected, rtol=30 * RTOL, atol=1e-5 if not X64 else 3e-8)


@pytest.mark.long
def test_limits_are_where_the_ratio_reaches_its_bound():
    for count, other in COUNTS:
        counts, number = np.asarray([count, other]), count + other
        for users, level in ((10_000, 0.95), (50, 0.8)):
            limits = intervals(Direct(2).tally_of_counts(counts), looks="any", tuned_to=users, level=level)
            concentration = tuned(1 - level, users)
            for limit, edge in ((float(limits.lower[0]), 0.0), (float(limits.upper[0]), 1.0)):
                if edge < limit < 1 - edge or (edge and limit < 1):
                    # As a distance from the estimate: limits are wider by rounding only.
                    step = (count / number - limit) * 1e-3
                    inside, outside = (ratio(count, number, limit + sign * step, concentration) for sign in (1, -1))
                    assert inside < -math.log(1 - level) < outside
                else:
                    assert limit == edge or abs(limit - edge) < 1e-6


def test_accepted_probabilities_are_an_interval():
    """The ratio falls up to c/n and rises from there, so that the limits enclose all accepted ones."""
    laws = np.linspace(1e-6, 1 - 1e-6, 4_001)
    for number in (1, 2, 3, 10, 57, 1_000):
        for count in {0, 1, 2, number // 3, number - 1, number} - {-1}:
            if count <= number:
                for concentration in (0.5, 6.0, 1_200.0):
                    accepted = np.flatnonzero(ratio(count, number, laws, concentration) < math.log(20))
                    assert (np.diff(accepted) == 1).all()


@pytest.mark.long
@pytest.mark.parametrize(
    ("law", "users", "level"), [(0.5, 30, 0.95), (0.1, 30, 0.95), (0.02, 100, 0.8), (0.3, 400, 0.8)]
)
def test_the_probability_to_ever_miss_is_at_most_the_error(law, users, level):
    """Exactly, by the law of the count at all numbers of users up to 200 that have not missed yet."""
    most = 200
    numbers, counts = (each.ravel() for each in np.meshgrid(np.arange(1, most + 1), np.arange(most + 1), indexing="ij"))
    kept = counts <= numbers
    support = np.stack([counts, numbers - counts], axis=1)[kept]
    run = jax.jit(jax.vmap(lambda c: intervals(Direct(2).tally_of_counts(c), looks="any", tuned_to=users, level=level)))
    limits = run(support)
    missed = np.zeros((most + 1, most + 1), bool)
    missed[numbers[kept], counts[kept]] = (np.asarray(limits.lower)[:, 0] > law) | (
        np.asarray(limits.upper)[:, 0] < law
    )
    chance, ever = np.zeros(most + 2), 0.0
    chance[0] = 1.0
    for number in range(1, most + 1):
        chance[1:] = chance[1:] * (1 - law) + chance[:-1] * law
        chance[0] *= 1 - law
        out = missed[number, : most + 1]
        ever += chance[:-1][out].sum()
        chance[:-1][out] = 0
    assert ever <= 1 - level
    assert ever > 0.05 * (1 - level)  # it can miss: the limits are not all of [0, 1]


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 4])
def test_daily_reading(size):
    """Of 90 looks none misses in at least 95 % of collections; an interval for one look misses often."""
    runs, days, theta = 300, 90, np.arange(1, size + 1) / (size * (size + 1) / 2)
    q, d = 1 / (math.e + size - 1), (math.e - 1) / (math.e + size - 1)
    daily = np.random.default_rng(0).multinomial(200, q + d * theta, (runs, days)).cumsum(axis=1)
    wrong = {}
    for looks in (None, "any"):
        run = jax.jit(jax.vmap(lambda c, looks=looks: intervals(c, 1.0, looks=looks, simultaneous="bonferroni")))
        found = [np.asarray(each).reshape(runs, days, size) for each in run(daily.reshape(-1, size))]
        missed = ~((found[0] <= theta) & (theta <= found[1]))
        wrong[looks] = missed.any(axis=(1, 2)).mean()
    assert wrong["any"] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert wrong[None] > 0.1


@pytest.mark.long
@pytest.mark.parametrize("law", [0.5, 0.1, 0.01])
def test_width_against_a_single_look(law):
    for number, most in ((10_000, 1.8), (2_500, 2.2), (40_000, 2.2)):
        tally = Direct(2).tally_of_counts([round(law * number), number - round(law * number)])
        once, always = intervals(tally), intervals(tally, looks="any")
        relative = (always.upper - always.lower) / (once.upper - once.lower)
        assert (relative[0] > 1.3) & (relative[0] < most)


@pytest.mark.long
def test_limits_are_mapped_and_shared():
    counts = [5_200, 2_900, 1_000, 900]
    q, d = 1 / (math.e**2 + 3), (math.e**2 - 1) / (math.e**2 + 3)
    found = intervals(counts, 2.0, looks="any", simultaneous="bonferroni")
    for place, count in enumerate(counts):
        alone = intervals(Direct(2).tally_of_counts([count, 10_000 - count]), looks="any", level=1 - 0.05 / 4)
        for one, other in zip(found, alone, strict=True):
            assert float(one[place]) == pytest.approx(np.clip((float(other[0]) - q) / d, 0, 1), abs=5 * RTOL)
    mechanism = OptimizedUnaryEncoding(4, 2.0)
    tally = mechanism.collect(jax.random.key(0), [5_000, 3_000, 1_000, 1_000])
    lower, upper = intervals(tally, looks="any")
    assert ((lower < np.asarray([0.5, 0.3, 0.1, 0.1])) & (np.asarray([0.5, 0.3, 0.1, 0.1]) < upper)).all()


@pytest.mark.long
def test_transformations_and_unusable_counts():
    counts = jnp.asarray([520, 290, 100, 90])
    run = jax.jit(partial(intervals, looks="any"))
    np.testing.assert_allclose(run(counts, 2.0), intervals(counts, 2.0, looks="any"), rtol=RTOL)
    for bad in (counts.at[0].set(-1), counts * 0):
        assert np.isnan(run(bad, 2.0)).all()
    assert np.isnan(run(counts, 2.0, tuned_to=jnp.zeros(()))).all()
    many = np.tile([40, 60, 51, 49], 500)
    np.testing.assert_allclose(
        intervals(many, 1.0, looks="any"), run(jnp.asarray(many), 1.0), rtol=RTOL, atol=RTOL / 100
    )


def mixture(m, estimate, number, points, mass, kept, tail, users):
    """Its logarithm at a mean m, of the generating functions themselves, in float64."""
    lost, octaves, share = 1 - kept, np.arange(-10, 5), np.linspace(0, 1, 65)
    centre = mass @ points
    variance = lost * (mass @ (points - centre) ** 2) + kept * (share * (1 - share) + lost * (share - centre) ** 2)
    tilts = math.sqrt(-2 * math.log(tail) / (users * variance.max())) * 2.0**octaves
    of_report = lost * np.exp(np.outer(tilts, points)) @ mass + kept * (m * np.exp(tilts) + 1 - m)
    total, weights = number * (kept * estimate + lost * centre), 1 / (1 + abs(octaves)) ** 2
    return special.logsumexp(tilts * total - number * np.log(of_report), b=weights / weights.sum())


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("counts", [[520, 290, 190], [60_000, 30_000, 30_000], [3, 4, 1]])
def test_limits_of_means_are_where_the_mixture_reaches_its_bound(counts, named):
    values, number = np.asarray([2.0, 3.0, 6.0]), sum(counts)
    design = ForcedResponse(0.6, [0.5, 0.3, 0.2]) if named else RandomizedResponse(3, 1.0)
    law = np.asarray(design.rates.q) * np.ones(3)
    kept, mass, points = 1 - law.sum(), law / law.sum(), (values - 2) / 4
    for users, level in ((10_000, 0.95), (50, 0.8)):
        given = (design.tally_of_counts(counts), None) if named else (counts, 1.0)
        how = {"mechanism": design if named else None, "looks": "any", "tuned_to": users, "level": level}
        found = linear_functional(*given, values=values, **how)
        estimate, lower, upper = ((float(each) - 2) / 4 for each in (found.value, found.lower, found.upper))
        for limit, end, xs in ((lower, estimate, points), (1 - upper, 1 - estimate, 1 - points)):
            step = 1e-3 * (end - limit)
            given = end, number, xs, mass, kept, (1 - level) / 2, users
            inside, outside = (mixture(limit + sign * step, *given) for sign in (1, -1))
            assert inside < -math.log((1 - level) / 2)
            assert limit <= 1e-6 or outside > -math.log((1 - level) / 2)


@pytest.mark.long
@pytest.mark.parametrize(("theta", "users", "level"), [((0.5, 0, 0.5), 30, 0.8), ((0.9, 0.1, 0), 60, 0.9)])
def test_the_probability_that_a_mean_is_ever_missed_is_at_most_the_error(theta, users, level):
    """Exact, by the law of the sum of the reports among runs without a miss."""
    most, (d, q), mean = 2 * users, (0.5, 0.5 / 3), theta[1] + 2 * theta[2]
    law = q + d * np.asarray(theta)
    numbers, sums = (each.ravel() for each in np.indices((most // 2 + 1, most + 1)))
    kept = (sums <= 2 * numbers) & (numbers > 0)
    many, few = sums[kept] // 2, sums[kept] % 2
    counts = jnp.asarray(np.stack([numbers[kept] - many - few, few, many], axis=1))
    how = {"values": jnp.arange(3.0), "looks": "any", "tuned_to": users, "level": level}
    run = jax.jit(jax.vmap(lambda c: linear_functional(c, math.log((d + q) / q), **how)))
    found = run(counts)
    missed = np.zeros((users + 1, most + 1), bool)
    missed[numbers[kept], sums[kept]] = ~((np.asarray(found.lower) <= mean) & (mean <= np.asarray(found.upper)))
    chance, ever = np.zeros(most + 3), 0.0
    chance[0] = 1.0
    for number in range(1, users + 1):
        chance[2:] = chance[2:] * law[0] + chance[1:-1] * law[1] + chance[:-2] * law[2]
        chance[1], chance[0] = chance[1] * law[0] + chance[0] * law[1], chance[0] * law[0]
        out = missed[number]
        ever += chance[: most + 1][out].sum()
        chance[: most + 1][out] = 0
    assert 0.02 * (1 - level) < ever <= 1 - level


@pytest.mark.full
@pytest.mark.once
def test_daily_reading_of_means_and_differences():
    runs, days, size = 200, 90, 4
    thetas, values = np.asarray([[0.1, 0.2, 0.3, 0.4], [0.3, 0.3, 0.3, 0.1]]), np.arange(size)
    q, d = 1 / (math.e + size - 1), (math.e - 1) / (math.e + size - 1)
    random = np.random.default_rng(0)
    first, second = (random.multinomial(200, q + d * each, (runs, days)).cumsum(axis=1) for each in thetas)
    true, wrong = thetas @ values, {}
    for looks, method in ((None, "normal"), ("any", None)):
        how = {"values": values, "looks": looks, "method": method}
        run = jax.jit(jax.vmap(lambda c, how=how: linear_functional(c, 1.0, **how)))
        apart = jax.jit(jax.vmap(lambda a, b, how=how: difference(a, b, 1.0, **how)))
        pair = [each.reshape(-1, size) for each in (first, second)]
        for name, found, truth in (("mean", run(pair[0]), true[0]), ("difference", apart(*pair), true[0] - true[1])):
            missed = ~((found.lower <= truth) & (truth <= found.upper))
            wrong[name, looks] = np.asarray(missed).reshape(runs, days).any(axis=1).mean()
    for name in ("mean", "difference"):
        assert wrong[name, "any"] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
        assert wrong[name, None] > 0.2


@pytest.mark.long
@pytest.mark.parametrize(("size", "epsilon"), [(4, 0.5), (4, 4.0), (100, 1.0)])
def test_width_of_means_against_a_single_look(size, epsilon):
    counts = np.ones(size) * 100_000 // size
    for users, most in ((100_000, 1.3), (25_000, 1.5), (400_000, 1.5)):
        once, always = (
            linear_functional(counts.astype(int), epsilon, values=np.arange(size), looks=looks, tuned_to=users)
            for looks in (None, "any")
        )
        assert (always.value, always.standard_error) == (once.value, once.standard_error)
        assert 1.1 < float((always.upper - always.lower) / (once.upper - once.lower)) < most


@pytest.mark.long
def test_groups_and_other_tallies_have_the_limits_of_shares():
    counts = [5_200, 2_900, 1_000, 900]
    encoding = OptimizedUnaryEncoding(4, 2.0)
    tally = encoding.collect(jax.random.key(0), [500, 300, 100, 100])
    for given in ((counts, 2.0), (tally, None)):
        found = linear_functional(*given, values=[0, 1, 0, 0], looks="any")
        wanted = intervals(*given, looks="any")
        np.testing.assert_allclose([found.lower, found.upper], [each[1] for each in wanted], rtol=20 * RTOL)
    limits = intervals(tally, looks="any", simultaneous="bonferroni")
    bounds, values = np.transpose([np.asarray(each, float) for each in limits]), np.asarray([0.0, 1.0, 5.0, 2.0])
    found = linear_functional(tally, values=values, looks="any")
    for sign, limit in ((1, found.lower), (-1, found.upper)):
        best = optimize.linprog(sign * values, A_eq=np.ones((1, 4)), b_eq=[1.0], bounds=bounds)
        assert float(limit) == pytest.approx(sign * best.fun, rel=100 * RTOL)
    apart = difference(tally, counts, (None, 2.0), values=values, looks="any")
    each = [
        linear_functional(*one, values=values, looks="any", level=math.sqrt(0.95)) for one in ((tally,), (counts, 2.0))
    ]
    assert float(apart.lower) == pytest.approx(float(each[0].lower - each[1].upper), rel=100 * RTOL)


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"looks": "daily"}, "looks"),
        ({"looks": "any", "method": "normal"}, "looks"),
        ({"looks": "any", "estimand": "users"}, "looks"),
        ({"looks": "any", "tuned_to": 0.9}, "tuned_to"),
    ],
)
def test_impossible_options_of_means_are_refused(options, argument):
    with refused(argument):
        linear_functional([5, 5, 5], 1.0, values=[0, 1, 2], **options)
    with refused(argument):
        difference([5, 5, 5], [5, 5, 4], 1.0, values=[0, 1, 2], **options)
    assert linear_functional([5, 5, 5], 1.0, values=[0, 1, 2], looks="any", tuned_to=1).lower >= 0


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"looks": "daily"}, "looks"),
        ({"looks": "any", "method": "wilson"}, "looks"),
        ({"looks": "any", "estimand": "users"}, "looks"),
        ({"looks": "any", "fakes": 1}, "looks"),
        ({"looks": "any", "tuned_to": 0}, "tuned_to"),
        ({"looks": "any", "tuned_to": math.nan}, "tuned_to"),
        ({"looks": "any", "tuned_to": [1, 2]}, "tuned_to"),
    ],
)
def test_impossible_options_are_refused(options, argument):
    with refused(argument):
        intervals([5, 5], 1.0, **options)


@pytest.mark.once
@pytest.mark.long
@pytest.mark.parametrize(
    ("total", "num_categories", "epsilon", "count"),
    [
        (10**9, 10, 20.0, 2),
        (2 * 10**9, 10, 15.0, 612),
        (10**8, 10, 16.0, 11),
        (10**9, 1000, 12.0, 6107),
        (10**6, 10, 16.0, 0),
    ],
)
def test_limits_of_a_rare_category_among_many_users(total, num_categories, epsilon, count):
    """They are far below the rounding of one: the upper one was zero at N = 10⁹."""
    histogram = np.full(num_categories, (total - count) // (num_categories - 1))
    histogram[0] = count
    histogram[-1] += total - histogram.sum()
    upper = float(intervals(histogram.astype(np.int32), epsilon, looks="any").upper[0])
    with jax.enable_x64(True):
        assert upper == pytest.approx(float(intervals(histogram, epsilon, looks="any").upper[0]), rel=1e-4)
        # That of one look, of which either side may have the whole error.
        assert upper > (1 - 1e-6) * float(intervals(histogram, epsilon, 0.9).upper[0])
