"""Bounds of shuffled reports against enumerated collections, the dominating pair in rationals, and closed forms."""

import decimal
import functools
import itertools
import math
from fractions import Fraction

import channels
import numpy as np
import pytest
from refusals import refused
from scipy import stats

import rrjax
from rrjax.mechanisms import MECHANISMS, Geometric, RandomizedResponse
from rrjax.privacy.binomial_tails import cells, excess, upper_tail
from rrjax.privacy.shuffling import (
    OVERLAPS,
    central_delta,
    central_epsilon,
    divergence,
    local_epsilon,
    lower_pairs,
    upper_pair,
)

pytestmark = pytest.mark.once  # all in float64 on the host

CASES = {"any": {}} | {name: {"mechanism": kind, "num_categories": 5} for name, kind in MECHANISMS.items()}


def built(case, epsilon):
    return case["mechanism"](case["num_categories"], epsilon) if case else None


def channel(mechanism):
    """The laws of reports, [K, reports], from the definition of the mechanism."""
    size, ratio = mechanism.num_categories, math.exp(mechanism.epsilon)
    if mechanism.name == "randomized-response":
        supports = np.eye(size, dtype=bool)
        return np.where(supports, ratio, 1) / (ratio + size - 1)
    if mechanism.name == "hadamard-response":
        columns = 1 << size.bit_length()
        even = [[bin((i + 1) & z).count("1") % 2 == 0 for z in range(columns)] for i in range(size)]
        return np.where(even, ratio, 1) * 2 / columns / (ratio + 1)
    if mechanism.name in ("subset-selection", "projective-geometry-response"):
        return channels.channel(mechanism)[1]
    root = math.exp(mechanism.epsilon / 2)
    p, q = (root / (root + 1), 1 / (root + 1)) if "symmetric" in mechanism.name else (0.5, 1 / (ratio + 1))
    bits = np.array(list(itertools.product([0, 1], repeat=size)))
    chance = np.where(np.eye(size, dtype=bool)[:, None, :], p, q)
    return np.prod(np.where(bits[None], chance, 1 - chance), axis=-1)


def shuffled(laws):
    """The law of the histogram of reports with these laws, by multiplying one by one."""
    found = {(0,) * len(laws[0]): 1}
    for law in laws:
        new = {}
        for histogram, probability in found.items():
            for report, chance in enumerate(law):
                after = (*histogram[:report], histogram[report] + 1, *histogram[report + 1 :])
                new[after] = new.get(after, 0) + probability * chance
        found = new
    return found


def hockey_stick(one, other, epsilon):
    return math.fsum(max(p - math.exp(epsilon) * other[key], 0) for key, p in one.items())


def worst(laws, num_users, epsilon):
    """The divergence of the worst of all neighbouring collections."""
    size, found = len(laws), 0.0
    collected = functools.cache(lambda values: shuffled([laws[value] for value in values]))
    for rest in itertools.combinations_with_replacement(range(size), num_users - 1):
        for one, other in itertools.permutations(range(size), 2):
            pair = (collected(tuple(sorted((value, *rest)))) for value in (one, other))
            found = max(found, hockey_stick(*pair, epsilon))
    return found


@pytest.mark.parametrize("epsilon", [0.4, 2.0])
@pytest.mark.parametrize(
    ("name", "num_categories", "num_users"),
    [
        ("randomized-response", 2, 9),
        ("randomized-response", 3, 5),
        ("randomized-response", 4, 4),
        ("symmetric-unary-encoding", 2, 5),
        ("optimized-unary-encoding", 2, 5),
        ("optimized-unary-encoding", 3, 3),
        ("hadamard-response", 2, 5),
        ("hadamard-response", 3, 5),
        ("subset-selection", 3, 5),
        ("subset-selection", 4, 3),
        ("projective-geometry-response", 2, 5),
        pytest.param("projective-geometry-response", 4, 3, marks=pytest.mark.long),
    ],
)
def test_bounds_enclose_the_worst_collection(name, num_categories, num_users, epsilon):
    mechanism = MECHANISMS[name](num_categories, epsilon)
    laws = channel(mechanism)
    assert np.allclose(laws.sum(axis=1), 1)
    for central in (0.0, 0.3 * epsilon, 0.7 * epsilon):
        truth = worst(laws.tolist(), num_users, central)
        assert truth > 0
        options = {"num_categories": num_categories, "mechanism": MECHANISMS[name]}
        known = central_delta(num_users, epsilon, central, **options)
        assert truth <= known * (1 + 1e-12) + 1e-15
        assert known <= central_delta(num_users, epsilon, central) * (1 + 1e-8)
        leaks = [divergence(num_users, pair, central, upper=False) for pair in lower_pairs(epsilon, mechanism)]
        assert max(leaks) > 0.3 * truth or central > 0
        assert max(leaks) == central_delta(num_users, epsilon, central, side="lower", **options)
        assert max(leaks) <= truth * (1 + 1e-12) + 1e-15
        unknown = [divergence(num_users, pair, central, upper=False) for pair in support_only(mechanism)]
        assert max(unknown) <= truth * (1 + 1e-12) + 1e-15


def support_only(mechanism):
    class Unnamed:
        name = "of somebody else"
        num_categories = mechanism.num_categories
        rates_by = mechanism.rates_by

    return lower_pairs(mechanism.epsilon, Unnamed)


def test_with_two_categories_the_lower_bound_is_that_of_the_worse_direction():
    """Others hold the second value: who holds the first one is told by its reports, who does not by their lack."""
    laws = channel(rrjax.RandomizedResponse(2, 1.0)).tolist()
    options = {"num_categories": 2, "mechanism": rrjax.RandomizedResponse}
    first, second = (shuffled([laws[own]] + [laws[1]] * 6) for own in (0, 1))
    for central in (0.2, 0.5):
        both = hockey_stick(first, second, central), hockey_stick(second, first, central)
        assert min(both) < 0.9 * max(both)
        lower = central_delta(7, 1.0, central, side="lower", **options)
        assert lower == pytest.approx(max(both), rel=3e-9)


@pytest.mark.parametrize("seed", range(20))
def test_no_randomizer_is_worse_than_the_one_that_stands_for_all(seed):
    # Any two laws within a ratio of e^ε, all others at the least probability that they may have.
    random = np.random.default_rng(seed)
    epsilon, users, reports = random.uniform(0.2, 3), 3, 3
    ratio = math.exp(epsilon)
    low = random.dirichlet(np.ones(reports))
    high = low * ratio ** random.uniform(0, 1, reports)
    one, other = (low, high / high.sum()) if seed % 2 else (high / high.sum(), low)
    assert np.all(np.maximum(one, other) <= ratio * np.minimum(one, other))
    floor = np.maximum(one, other) / ratio
    # Users who spread the rest over reports of their own.
    rest = [np.concatenate((floor, np.eye(users - 1)[i] * (1 - floor.sum()))) for i in range(users - 1)]
    pair = (shuffled([[*law, *[0] * (users - 1)], *(r.tolist() for r in rest)]) for law in (one, other))
    one_law, other_law = pair
    for central in (0.05 * epsilon, 0.5 * epsilon):
        assert hockey_stick(one_law, other_law, central) <= central_delta(users, epsilon, central)


def test_two_counts_do_not_bound_what_four_categories_leak():
    # The pair that sees but the counts of two values is exact for three categories; with four, others who hold a third
    # one leave a trace in the fourth. So it bounds from below, and the blanket from above.
    epsilon, central, users = 1.0, 0.6, 7
    for size, hidden in ((3, True), (4, False)):
        mechanism = rrjax.RandomizedResponse(size, epsilon)
        laws = channel(mechanism).tolist()
        truth = hockey_stick(*(shuffled([laws[first]] + [laws[2]] * (users - 1)) for first in (0, 1)), central)
        seen = divergence(users, lower_pairs(epsilon, mechanism)[-1], central, upper=False)
        assert seen == pytest.approx(truth, rel=1e-7) if hidden else seen < 0.95 * truth
        assert truth <= divergence(users, upper_pair(epsilon, mechanism), central, upper=True)


def enumerated(num_users, pair, ratio):
    """E(ΣZ)₊/N in rationals, the laws as the floats that they are, over all multinomial counts."""
    masses, values = [], []
    for sign, least, common in ((1, pair.q[0], pair.common[0]), (-1, pair.q[1], pair.common[1])):
        gain = sign * Fraction(pair.gain)
        masses.append(Fraction(common))
        values.append((gain + Fraction(least) * (1 - ratio)) / Fraction(common))
    for probability, common in pair.silent:
        masses.append(Fraction(common))
        values.append(Fraction(probability) * (1 - ratio) / Fraction(common))
    masses.append(max(1 - sum(masses), Fraction(0)))
    values.append(Fraction(0))
    total = Fraction(0)
    for counts in itertools.product(range(num_users + 1), repeat=len(masses) - 1):
        rest = num_users - sum(counts)
        if rest < 0:
            continue
        score = sum(count * value for count, value in zip(counts, values, strict=False))
        if score > 0:
            ways = math.factorial(num_users) // math.prod(map(math.factorial, (*counts, rest)))
            total += ways * math.prod(m**c for m, c in zip(masses, (*counts, rest), strict=True)) * score
    return float(total / num_users)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_divergence_is_that_of_the_enumerated_counts(name, epsilon):
    mechanism = built(CASES[name], epsilon)
    for pair in (upper_pair(epsilon, mechanism), *lower_pairs(epsilon, mechanism)):
        users = 5 if len(pair.silent) == 2 else 11
        for ratio in (Fraction(1), Fraction(9, 8), Fraction(5, 4)):
            exact = enumerated(users, pair, ratio)
            central = math.log(ratio)
            above, below = (divergence(users, pair, central, upper=upper) for upper in (True, False))
            assert below <= exact <= above
            assert above - below <= 3e-9 * exact


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("num_users", "epsilon", "cost"), [(10_000, 1.0, 0.01), (10**8, 3.0, 0.001)])
def test_cells_cost_little(name, num_users, epsilon, cost):
    # The same pair bounded from either side: what is between is the rounding to cells.
    pair = upper_pair(epsilon, built(CASES[name], epsilon))
    deviation = pair.gain * math.sqrt((1 / pair.common[0] + 1 / pair.common[1]) / num_users)
    above, below = (divergence(num_users, pair, 4 * deviation, upper=upper) for upper in (True, False))
    assert 0 < below <= above
    assert divergence(num_users, pair, 4 * deviation * (1 + cost), upper=True) <= below


def closed_form(num_users, epsilon, delta):
    """Theorem III.1 of Feldman, McMillan and Talwar, where it holds; else nothing is promised."""
    if epsilon > math.log(num_users / (16 * math.log(2 / delta))):
        return epsilon
    ratio = math.exp(epsilon)
    spread = 8 * math.sqrt(ratio * math.log(4 / delta) / num_users) + 8 * ratio / num_users
    return math.log1p(math.tanh(epsilon / 2) * spread)


@pytest.mark.long
@pytest.mark.parametrize(("num_users", "delta"), [(1, 1e-5), (1000, 1e-12), (10**5, 1e-5), (10**8, 1e-12)])
def test_below_the_closed_form_and_in_order(num_users, delta):
    before = 0.0
    for epsilon in (0.01, 1.0, 4.0, 10.0):
        found = central_epsilon(num_users, epsilon, delta)
        assert found <= min(epsilon, closed_form(num_users, epsilon, delta))
        assert central_epsilon(num_users, epsilon, delta, side="lower") <= found
        assert before < found
        assert found <= central_epsilon(max(num_users // 2, 1), epsilon, delta)
        assert found <= central_epsilon(num_users, epsilon, delta / 10)
        before = found


@pytest.mark.long
@pytest.mark.parametrize("name", ["any", "randomized-response", "optimized-unary-encoding"])
def test_each_inverts_the_other(name):
    num_users, epsilon, options, delta = 10**6, 3.0, CASES[name], 1e-7
    central = central_epsilon(num_users, epsilon, delta, **options)
    assert central_epsilon(num_users, epsilon, delta, **options, side="lower") <= central < 0.3 * epsilon
    assert central_delta(num_users, epsilon, central, **options) <= delta
    assert central_delta(num_users, epsilon, central * (1 - 1e-5), **options) > delta
    local = local_epsilon(num_users, central, delta, **options)
    assert local == pytest.approx(epsilon, rel=1e-5)
    assert central_delta(num_users, local, central, **options) <= delta


@pytest.mark.long
def test_how_tight_the_bounds_are():
    for epsilon, num_categories in ((0.5, 10), (4.0, 1000)):
        options = {"num_categories": num_categories, "mechanism": rrjax.RandomizedResponse}
        above = central_epsilon(10**6, epsilon, 1e-8, **options)
        assert above <= 1.003 * central_epsilon(10**6, epsilon, 1e-8, **options, side="lower")
        assert above < 0.7 * central_epsilon(10**6, epsilon, 1e-8)


@pytest.mark.long
def test_a_mechanism_that_is_not_known_is_any_randomizer():
    class Unnamed(rrjax.mechanisms.OptimizedUnaryEncoding):
        name = "of somebody else"

    options = {"num_categories": 5, "mechanism": Unnamed}
    assert central_epsilon(10_000, 1.0, 1e-6, **options) == central_epsilon(10_000, 1.0, 1e-6)
    assert 0 < central_epsilon(10_000, 1.0, 1e-6, **options, side="lower") < central_epsilon(10_000, 1.0, 1e-6)
    options["mechanism"] = Geometric  # which has no name
    assert central_epsilon(10_000, 1.0, 1e-6, **options) == central_epsilon(10_000, 1.0, 1e-6)


@pytest.mark.parametrize("name", ["subset-selection", "projective-geometry-response", "hadamard-response"])
@pytest.mark.parametrize(("num_categories", "epsilon"), [(4, 0.4), (5, 1.0), (6, 2.0)])
def test_the_overlap_is_that_of_all_reports(name, num_categories, epsilon):
    mechanism = MECHANISMS[name](num_categories, epsilon)
    _, law, there = channels.channel(mechanism)
    one, both = there[:, 0] & ~there[:, 1], there[:, 0] & there[:, 1]
    found = OVERLAPS[name](mechanism)
    assert found.one == pytest.approx(law[1, one].sum(), rel=1e-12)
    assert found.both == pytest.approx(law[1, both].sum(), rel=1e-12, abs=1e-15)
    assert found.bystander == pytest.approx(law[2, one].sum(), rel=1e-12)


@pytest.mark.parametrize("num_categories", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [3.0, 20.0, 38.0, 50.0, 100.0])
@pytest.mark.parametrize("num_users", [1, 2, 3])
def test_bounds_of_few_who_hardly_randomize_enclose_the_truth(num_categories, epsilon, num_users):
    """Of randomized response, with sixty digits: a kind of report as rare as 1e-40 still counts e^ε_c times."""
    with decimal.localcontext(prec=150):
        power = decimal.Decimal(epsilon).exp()
        law = [[power if i == j else decimal.Decimal(1) for j in range(num_categories)] for i in range(num_categories)]
        law = [[weight / (power + num_categories - 1) for weight in row] for row in law]
        mechanism = RandomizedResponse(num_categories, epsilon)
        for central in (0.0, 0.3 * epsilon, 0.7 * epsilon, epsilon - 0.5):
            truths = []
            for other in {1, num_categories - 1}:  # all others hold the second value, or a third one
                laws = [shuffled([law[value]] + [law[other]] * (num_users - 1)) for value in (0, 1)]
                factor = decimal.Decimal(central).exp()
                for one, two in (laws, laws[::-1]):
                    truths.append(sum(max(p - factor * two[key], 0) for key, p in one.items()))
            for pair in lower_pairs(epsilon, mechanism):
                assert divergence(num_users, pair, central, upper=False) <= max(truths) * (1 + decimal.Decimal("1e-14"))
            above = divergence(num_users, upper_pair(epsilon, mechanism), central, upper=True)
            assert max(truths) <= decimal.Decimal(above) * (1 + decimal.Decimal("1e-14"))


@pytest.mark.parametrize(("num_users", "epsilon", "delta"), [(1, 38.0, 1e-6), (5, 50.0, 0.99), (10**9, 100.0, 1e-30)])
def test_what_leaks_where_hardly_anything_is_randomized(num_users, epsilon, delta):
    leaked, promised = (central_epsilon(num_users, epsilon, delta, side=side) for side in ("lower", "upper"))
    assert 0.85 * epsilon < leaked <= promised <= epsilon


def test_extremes_have_answers():
    assert central_epsilon(10, 3.0, 1e-250) == pytest.approx(3.0, rel=1e-5)  # nothing is amplified
    assert central_epsilon(1, 0.5, 1e-9) <= 0.5
    assert central_epsilon(10**12, 0.01, 0.4) == 0.0
    assert central_delta(5, 1.0, 1.0) == 0.0
    assert central_delta(10**12, 0.01, 0.0) < 0.01
    assert central_delta(1, 1.0, 0.0) == pytest.approx(math.tanh(0.5))  # alone, the total variation
    assert central_epsilon(1000, 100.0, 1e-9) == pytest.approx(100.0)
    assert local_epsilon(1, 0.25, 1e-12) == pytest.approx(0.25, rel=1e-5)
    assert local_epsilon(10, 50.0, 0.9999999) <= 100.0
    assert isinstance(central_epsilon(np.int64(100), np.float32(1.0), 1e-6), float)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: central_epsilon(0, 1.0, 1e-6), "num_users"),
        (lambda: central_epsilon(10**13, 1.0, 1e-6), "num_users"),
        (lambda: central_epsilon(1e6, 1.0, 1e-6), "num_users"),
        (lambda: central_epsilon("abc", 1.0, 1e-6), "num_users"),
        (lambda: central_epsilon(10, "abc", 1e-6), "epsilon"),
        (lambda: central_epsilon(10, 1.0, None), "delta"),
        (lambda: central_epsilon(10, 1.0, 1e-6, side="least"), "side"),
        (lambda: central_delta(10, 1.0, [0.5, 0.6]), "central_epsilon"),
        (lambda: central_epsilon(10, 1.0, 1e-6, num_categories=5, mechanism="abc"), "mechanism"),
        (lambda: central_epsilon(10, 0.0, 1e-6), "epsilon"),
        (lambda: central_epsilon(10, math.nan, 1e-6), "epsilon"),
        (lambda: central_epsilon(10, 101.0, 1e-6, side="lower"), "epsilon"),
        (lambda: central_epsilon(10, 1.0, 0.0), "delta"),
        (lambda: central_epsilon(10, 1.0, 1.0, side="lower"), "delta"),
        (lambda: central_delta(10, 1.0, -0.1), "central_epsilon"),
        (lambda: local_epsilon(10, 0.0, 1e-6), "central_epsilon"),
        (lambda: local_epsilon(10, 1.0, 2.0), "delta"),
        (lambda: central_epsilon(10, 1.0, 1e-6, mechanism=rrjax.RandomizedResponse), "num_categories"),
        (
            lambda: central_epsilon(10, 1.0, 1e-6, num_categories=5, mechanism=lambda k, _: Geometric(k, 2.0)),
            "mechanism",
        ),
        (
            lambda: central_epsilon(10, 1.0, 1e-6, num_categories=5, mechanism=lambda k, _: object()),
            "mechanism",
        ),
        (
            lambda: central_epsilon(10, 1.0, 1e-6, num_categories=5, mechanism=Geometric, side="lower"),
            "mechanism",
        ),
    ],
)
def test_bad_arguments_are_named(call, said):
    with refused(said):
        call()


@pytest.mark.parametrize("trials", [1, 2, 31, 32, 1000, 10**8])
@pytest.mark.parametrize("chance", [1e-9, 0.01, 0.5, 0.9])
def test_tails_against_scipy(trials, chance):
    deviation = math.sqrt(trials * chance * (1 - chance))
    k = np.floor(trials * chance + deviation * np.array([0, 0.1, 1, 3, 6, 12])) + 1
    number = np.full_like(k, trials)
    tail = stats.binom.sf(k - 1, trials, chance)
    np.testing.assert_allclose(upper_tail(k, number, (chance, 1 - chance)), tail, rtol=1e-10)
    if trials < 2000:
        values = np.arange(trials + 1)
        law = stats.binom.pmf(values, trials, chance)
        for gap in (0.0, 1e-20, 0.3):
            expected = [math.fsum(law * np.where(values >= each, (values - each) + gap, 0)) for each in k]
            np.testing.assert_allclose(
                excess(k, number, (chance, 1 - chance), 0 * k + gap), expected, rtol=1e-9, atol=1e-15
            )
    least, most, mass, mean = cells(np.array(float(trials)), chance, 64)
    used = mass > 0
    expected = stats.binom.cdf(most, trials, chance) - stats.binom.cdf(least - 1, trials, chance)
    np.testing.assert_allclose(mass[used], expected[used], rtol=1e-7, atol=1e-14)
    assert math.fsum(mass * mean) == pytest.approx(trials * chance, rel=1e-9)
    assert least[used][0] == 0
    assert stats.binom.sf(most[used][-1], trials, chance) < 1e-300  # what a float does not hold
    assert np.all(least[used][1:] == most[used][:-1] + 1)
