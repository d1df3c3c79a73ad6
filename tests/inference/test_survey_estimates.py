"""Sample surveys: against definitions, all samples of small populations, and other packages' formulas."""

import itertools
import math

import jax
import numpy as np
import pytest
from cases import X64
from refusals import refused
from scipy import stats

from rrjax import mechanisms
from rrjax.inference import linear_functional, survey_estimate
from rrjax.inference.surveys import Scores

RTOL = 1e-9 if X64 else 2e-5
EPSILON = 3.0
NUMBERS = np.asarray([0.0, 1.0, 2.0, 5.0])
DICE = mechanisms.ForcedResponse(truth=2 / 3, forced=[1 / 2, 1 / 2])
CARDS = np.stack([stats.binom.pmf(np.arange(4), 3, chance) for chance in (0.7, 0.2)])
"""Kuk's two decks, of which three cards are drawn."""
BY_NAME = {
    "randomized response": mechanisms.RandomizedResponse(4, 1.0),
    "forced": mechanisms.ForcedResponse(truth=0.5, forced=[0.1, 0.2, 0.3, 0.4]),
    "negative": mechanisms.NegativeQuestion(4),
    "direct": mechanisms.Direct(4),
    "cards": mechanisms.Channel(CARDS),
    "unary": mechanisms.OptimizedUnaryEncoding(4, 1.0),
    "subsets": mechanisms.SubsetSelection(4, 0.5, subset_size=2),
    "hashing": mechanisms.LocalHashing(4, 1.0),
    "hadamard": mechanisms.HadamardResponse(4, 1.0),
    "planes": mechanisms.ProjectiveGeometry(4, 1.0),
    "mixed": mechanisms.ByRespondent([mechanisms.Direct(4), mechanisms.NegativeQuestion(4)], np.arange(300) % 2),
}


def test_weights_by_their_definition():
    rng = np.random.default_rng(0)
    reports, weights = rng.integers(0, 4, 300), rng.exponential(size=300) * (rng.random(300) < 0.9)
    found = survey_estimate(reports, EPSILON, values=NUMBERS, weights=weights, level=0.9)
    q = 1 / (math.exp(EPSILON) + 3)
    debiased = (NUMBERS[reports] - q * NUMBERS.sum()) / (1 - 4 * q)
    ratio, number = (weights @ debiased) / weights.sum(), weights.sum() ** 2 / (weights**2).sum()
    variance = number / (number - 1) * (weights**2 @ (debiased - ratio) ** 2) / weights.sum() ** 2
    assert float(found.value) == pytest.approx(ratio, rel=RTOL)
    assert float(found.standard_error) == pytest.approx(math.sqrt(variance), rel=RTOL)
    # Of 0 and 1 in place of the numbers: as many reports as have the variance.
    assert float(found.upper) == pytest.approx(min(ratio + stats.norm.ppf(0.95) * math.sqrt(variance), 5), rel=0.05)
    assert float(found.effective_size) == pytest.approx(number, rel=RTOL)
    shares = survey_estimate(reports, EPSILON, values=np.eye(4), weights=weights, level=0.9)
    named = np.bincount(reports, weights, 4) / weights.sum()
    spread = np.asarray([weights**2 @ ((reports == each) - named[each]) ** 2 for each in range(4)]) / weights.sum() ** 2
    alike = np.floor(np.minimum(named * (1 - named) / spread * (number - 1) / number, number))
    low = stats.beta.ppf(0.05, named * alike, alike * (1 - named) + 1)
    high = stats.beta.ppf(0.95, named * alike + 1, alike * (1 - named))
    for limit, ends in ((low, shares.lower), (high, shares.upper)):
        np.testing.assert_allclose(ends, np.clip((limit - q) / (1 - 4 * q), 0, 1), atol=1e-3)
    for category in range(4):
        one = survey_estimate(reports, EPSILON, values=np.eye(4)[category], weights=weights, level=0.9)
        np.testing.assert_allclose([leaf[category] for leaf in shares], np.asarray(one), rtol=RTOL)
    # Equal weights, of any size, are none.
    plain = linear_functional(np.bincount(reports), EPSILON, values=NUMBERS, method="normal")
    equal = survey_estimate(reports, EPSILON, values=NUMBERS, weights=np.full(300, 7e40))
    np.testing.assert_allclose(equal[:2], plain[:2], rtol=10 * RTOL)
    np.testing.assert_allclose(equal[2:4], plain[2:], rtol=0.03)


def test_reports_that_are_all_alike_have_the_error_of_their_noise():
    counts, d = np.asarray([0, 5, 0]), 1 - 3 / (math.exp(EPSILON) + 2)
    for values in ([0, 1, 2], [1, 0, 0]):
        found = survey_estimate(np.ones(5, int), EPSILON, values=values)
        wanted = linear_functional(counts, EPSILON, values=values, method="normal")
        assert float(found.standard_error) == pytest.approx(float(wanted.standard_error), rel=10 * RTOL)
    assert d * float(found.value) == pytest.approx(-(1 - d) / 3, rel=RTOL)
    bits, unary = np.zeros((5, 3), int), mechanisms.SymmetricUnaryEncoding(3, 2.0)
    found = survey_estimate(bits, unary, values=[1, 0, 0], method="normal")
    assert np.isnan(found.standard_error)
    assert (float(found.lower), float(found.upper)) == (0, 1)
    p = float(unary.rates.p)
    upper = (1 - 0.025**0.2 - (1 - p)) / (2 * p - 1)  # Clopper and Pearson's, of no bit in five
    assert float(survey_estimate(bits, unary, values=[1, 0, 0]).upper) == pytest.approx(upper, rel=1e-4)


@pytest.mark.parametrize(
    ("design", "slope"),
    [(mechanisms.Crosswise(0.25), -0.5), (mechanisms.Warner(0.2), -0.6), (mechanisms.NegativeQuestion(3), -0.5)],
)
def test_the_standard_error_of_designs_whose_holders_rarely_name_their_category(design, slope):
    """P·(1 − P)/d² of P = 40 % named, which the error of the noise alone must not exceed."""
    answers = np.repeat([0, 1], [40, 60])
    for weights in (None, np.full(100, 3)):
        found = survey_estimate(answers, design, values=np.eye(design.num_categories)[0], weights=weights)
        assert float(found.standard_error) == pytest.approx(math.sqrt(0.4 * 0.6 / 99) / abs(slope), rel=RTOL)


def test_who_has_all_the_weight_is_no_crowd():
    reports, weights = np.repeat([0, 1], [31, 20]), np.asarray([1e9] + [1.0] * 50)
    found = survey_estimate(reports, 1.0, values=np.eye(3), weights=weights)
    assert np.isnan(found.standard_error).all()
    np.testing.assert_array_equal(found.lower, 0)
    np.testing.assert_array_equal(found.upper, 1)


@pytest.mark.parametrize(("other", "is_known"), [(1.0, True), (0.99, False)])
def test_an_effective_size_of_two_has_an_error(other, is_known):
    found = survey_estimate([0, 1], 1.0, values=[0, 1], weights=[1.0, other])
    assert bool(np.isfinite(found.standard_error)) is is_known


def clusters_of(population, strata, rng):
    """Clusters of one or two people in each of `strata`, their stratum, and the yes of everybody."""
    sizes = rng.integers(1, 3, population)
    cluster = np.repeat(np.arange(population), sizes)
    return cluster, (np.arange(population) % strata)[cluster], rng.integers(0, 2, len(cluster))


@pytest.mark.parametrize("strata", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_variance_of_a_total_is_unbiased_over_all_samples_and_answers(strata):
    """Two of three or more clusters in each stratum, all samples, and all answers with their probabilities."""
    cluster, stratum, yes = clusters_of(3 * strata + 1, strata, np.random.default_rng(3))
    sizes = np.bincount(np.arange(3 * strata + 1) % strata)
    chance = np.asarray(DICE.channel(), float)[1 - yes, 0]
    drawn = [itertools.combinations(np.flatnonzero(np.arange(3 * strata + 1) % strata == h), 2) for h in range(strata)]
    weight, first, second, variances = 0.0, 0.0, 0.0, 0.0
    samples = list(itertools.product(*drawn))
    for sample in samples:
        chosen = np.flatnonzero(np.isin(cluster, np.concatenate(sample)))
        for answers in itertools.product((0, 1), repeat=len(chosen)):  # 0 is yes
            each = np.asarray(answers)
            probability = np.where(each == 0, chance[chosen], 1 - chance[chosen]).prod() / len(samples)
            found = survey_estimate(
                each, DICE, values=[1, 0], strata=stratum[chosen], clusters=cluster[chosen],
                population_size=sizes[stratum[chosen]], total=True,
            )  # fmt: skip
            weight, first = weight + probability, first + probability * float(found.value)
            second += probability * float(found.value) ** 2
            variances += probability * float(found.standard_error) ** 2
    assert weight == pytest.approx(1)
    assert first == pytest.approx(yes.sum(), rel=1e-6)
    assert variances == pytest.approx(second - first**2, rel=1e-5)


def test_a_sample_without_replacement_is_that_of_rrtcs():
    """Its forced response: r = (z − p₁)/(1 − p₁ − p₂), v = r·(r − 1), Deville's variance of equal probabilities."""
    rng = np.random.default_rng(4)
    z, chance = rng.integers(0, 2, 442), 442 / 5_000
    r = (z - 0.2) / (1 - 0.2 - 0.2)
    a = np.full(442, 1 / 442)
    deville = ((1 - chance) * (r / chance - a @ (r / chance)) ** 2).sum() / (1 - (a**2).sum())
    total, variance = (r / chance).sum(), (r * (r - 1) / chance).sum() + deville
    design = mechanisms.ForcedResponse(truth=0.6, forced=[1 / 2, 1 / 2])
    found = survey_estimate(1 - z, design, values=[1, 0], population_size=5_000, total=True)
    assert float(found.value) == pytest.approx(total, rel=RTOL)
    assert float(found.standard_error) == pytest.approx(math.sqrt(variance), rel=RTOL)
    half = stats.t.ppf(0.975, 441) * math.sqrt(variance)
    np.testing.assert_allclose([found.lower, found.upper], [max(total - half, 0), total + half], rtol=RTOL)
    mean = survey_estimate(1 - z, design, values=[1, 0], population_size=5_000)
    np.testing.assert_allclose([mean.value, mean.standard_error], np.asarray(found[:2]) / 5_000, rtol=RTOL)
    assert float(mean.effective_size) > 442  # the sample is a part of the population
    women = rng.random(442) < 0.5
    both = [
        survey_estimate(1 - z, design, values=[1, 0], population_size=5_000, total=True, domain=part)
        for part in (women, ~women)
    ]
    less = survey_estimate(1 - z, design, values=[1, 0], population_size=5_000, total=True, domain=women, less=~women)
    assert float(less.value) == pytest.approx(float(both[0].value) - float(both[1].value), rel=10 * RTOL)
    half = stats.t.ppf(0.975, 441) * float(less.standard_error)
    np.testing.assert_allclose([less.lower, less.upper], float(less.value) + np.asarray([-half, half]), rtol=10 * RTOL)


@pytest.mark.parametrize("less", [False, True])
def test_strata_and_clusters_by_their_definition(less):
    """The linearized variance of ultimate clusters, cluster by cluster: that of `svymean` and `svyby` in R."""
    rng = np.random.default_rng(5)
    stratum = np.repeat(np.arange(5), 60)
    cluster, weights = np.asarray([f"c{place // 7}" for place in np.arange(300) + 10 * stratum]), rng.uniform(1, 4, 300)
    crosswise = mechanisms.Crosswise(0.2)
    answers, women = rng.integers(0, 2, 300), rng.random(300) < 0.5
    cluster = np.char.add(cluster, stratum.astype(str))
    scores = (1 - answers - (1 - 0.2)) / (2 * 0.2 - 1)  # 0 is "both or neither"
    influence, value = np.zeros(300), 0.0
    for sign, domain in ((1, women), (-1, ~women))[: 1 + less]:
        w = weights * domain
        mean = (w @ scores) / w.sum()
        influence, value = influence + sign * w * (scores - mean) / w.sum(), value + sign * mean
    variance, degrees = 0.0, 0
    for each in range(5):
        sums = [influence[(stratum == each) & (cluster == name)].sum() for name in np.unique(cluster[stratum == each])]
        variance += len(sums) * np.var(sums, ddof=1)
    used = weights * (women | less) > 0
    degrees = len(np.unique(cluster[used])) - 5
    found = survey_estimate(
        answers, crosswise, values=[1, 0], weights=weights, strata=stratum, clusters=cluster, domain=women,
        less=~women if less else None, method="normal",
    )  # fmt: skip
    assert float(found.value) == pytest.approx(value, rel=RTOL)
    assert float(found.standard_error) == pytest.approx(math.sqrt(variance), rel=RTOL)
    assert int(found.degrees) == degrees
    half = stats.t.ppf(0.975, degrees) * math.sqrt(variance)
    low = -1 if less else 0
    np.testing.assert_allclose([found.lower, found.upper], np.clip([value - half, value + half], low, 1), rtol=RTOL)
    if not less:
        binomial = survey_estimate(
            answers, crosswise, values=[1, 0], weights=weights, strata=stratum, clusters=cluster, domain=women
        )
        np.testing.assert_allclose(binomial[2:4], found[2:4], rtol=0.02, atol=0.01)


@pytest.mark.long  # programs of eleven mechanisms
@pytest.mark.parametrize("name", BY_NAME)
def test_scores_of_every_mechanism_are_its_unbiased_vectors(name):
    mechanism = BY_NAME[name]
    size = mechanism.num_categories
    values = np.asarray([1.0, 4.0, 0.0, 2.0])[:size]
    reports = np.asarray(mechanism.randomize(jax.random.key(0), np.arange(300) % size))
    found = survey_estimate(reports, mechanism, values=values, method="normal")
    away = values if mechanism.names_one else values - values.mean()
    away = values - 1 if size == 2 else away  # of two, one is apart
    each = np.asarray(mechanism.debias(reports), float) @ away + (values - away)[0]
    assert float(found.value) == pytest.approx(each.mean(), rel=1e-5)
    assert float(found.standard_error) == pytest.approx(each.std(ddof=1) / math.sqrt(300), rel=1e-5)
    one = survey_estimate(reports, mechanism, values=np.eye(size)[0], level=0.99)
    assert float(one.lower) <= 1 / size <= float(one.upper)
    assert float(one.upper) - float(one.lower) < 12 * float(one.standard_error)


@pytest.mark.parametrize("name", ["randomized response", "forced", "negative", "direct", "cards"])
def test_the_noise_of_scores_is_unbiased_for_their_variance(name):
    mechanism = BY_NAME[name]
    channel = np.asarray(mechanism.matrix if name == "cards" else mechanism.channel(), float)
    values = np.asarray([1.0, 4.0, 0.0, 2.0])[: len(channel)]
    found = Scores.of(np.arange(channel.shape[1]), mechanism, values)
    np.testing.assert_allclose(channel @ found.scores, values, atol=1e-5)
    np.testing.assert_allclose(channel @ found.noise, channel @ found.scores**2 - values**2, rtol=1e-4, atol=1e-5)
    assert min(found.scores) >= found.ends[0] - 1e-6
    assert max(found.scores) <= found.ends[1] + 1e-6


def test_numbers_that_were_scrambled_are_a_moment():
    """Eichhorn and Hayre's z = y·S: z over the mean of S."""
    rng = np.random.default_rng(6)
    income = rng.gamma(4, 500, 4_000)
    z = income * rng.uniform(0.5, 1.5, 4_000)
    school = np.arange(4_000) // 20
    found = survey_estimate(z / 1.0, None, weights=np.full(4_000, 3.0), clusters=school)
    assert abs(float(found.value) - income.mean()) < 4 * float(found.standard_error)
    half = stats.t.ppf(0.975, 199) * float(found.standard_error)
    assert float(found.upper) == pytest.approx(z.mean() + half, rel=1e-5)
    total = survey_estimate(z, None, weights=np.full(4_000, 3.0), clusters=school, total=True)
    assert float(total.value) == pytest.approx(3 * z.sum(), rel=1e-5)


def test_population_sizes_make_weights_and_a_census_keeps_its_noise():
    rng = np.random.default_rng(7)
    answers, stratum = rng.integers(0, 2, 90), np.repeat([0, 1, 2], 30)
    sizes = np.asarray([30, 300, 60])[stratum]
    given = survey_estimate(answers, DICE, values=[1, 0], weights=sizes / 30, strata=stratum, population_size=sizes)
    alone = survey_estimate(answers, DICE, values=[1, 0], strata=stratum, population_size=sizes)
    np.testing.assert_array_equal(given, alone)
    census = survey_estimate(answers, DICE, values=[1, 0], population_size=90)
    scores = (1 - answers - 1 / 6) / (2 / 3)
    assert float(census.standard_error) == pytest.approx(math.sqrt((scores * (scores - 1)).sum()) / 90, rel=RTOL)


@pytest.mark.full
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_intervals_cover_where_few_name_a_category(spread):
    """Effective sizes of about 1,000; shares of 0.05 %, and of nobody, at an ε that hides little."""
    theta, rng = np.asarray([0.9, 0.0995, 0.0005, 0.0]), np.random.default_rng(8)
    number, draws, covered = round(1000 * math.exp(spread**2)), 1000, np.zeros(4)
    law = (1 + math.expm1(8.0) * np.eye(4)) / (math.expm1(8.0) + 4)
    for _ in range(draws):
        reports, weights = rng.choice(4, number, p=theta @ law), np.exp(spread * rng.standard_normal(number))
        found = survey_estimate(reports, 8.0, values=np.eye(4), weights=weights)
        covered += (np.asarray(found.lower) <= theta) & (theta <= np.asarray(found.upper))
    assert (covered / draws >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / draws)).all()


@pytest.mark.long
def test_intervals_of_means_cover_where_few_have_an_extreme_value():
    """Two of 1,000 users have a value a hundred times that of the others, at an ε that hides nothing: 85 % before."""
    rng, draws, covered = np.random.default_rng(9), 1000, 0
    for _ in range(draws):
        reports, weights = rng.choice(3, 1000, p=[0.498, 0.5, 0.002]), np.exp(0.3 * rng.standard_normal(1000))
        found = survey_estimate(reports, 12.0, values=[0, 1, 100.0], weights=weights)
        covered += float(found.lower) <= 0.7 <= float(found.upper)
    assert covered / draws >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / draws)


GOOD = {"reports": np.asarray([0, 1, 1, 0]), "epsilon_or_mechanism": 1.0, "values": [0, 1]}
PAIRS, STRATA = [0, 0, 1, 1], ["a", "a", "b", "b"]


@pytest.mark.once
@pytest.mark.parametrize(
    ("argument", "given", "words"),
    [
        ("weights", {"weights": [1, 1, 1, -1]}, "row 3"),
        ("weights", {"weights": [1, np.nan, 1, 1]}, "row 1"),
        ("weights", {"weights": [0, 0, 0, 0]}, "zero"),
        ("weights", {"weights": [1, 1]}, "4 reports"),
        ("weights", {"weights": [1e200, 1, 1, 1]}, "1e+200"),
        ("weights", {"weights": [1, 1, 1, 1], "domain": np.zeros(4, bool)}, "nobody"),
        ("strata", {"strata": ["a", "a", "a", "b"]}, "'b' has a single report"),
        ("strata", {"strata": STRATA, "clusters": [0, 1, 2, 2]}, "'b' has a single cluster"),
        ("strata", {"strata": ["a", None, "b", "b"]}, "row 1"),
        ("strata", {"strata": ["a"]}, "4 reports"),
        ("clusters", {"clusters": [0, 0, 0, 0]}, "single cluster"),
        ("clusters", {"strata": ["a", "a", "a", "b"], "clusters": PAIRS}, "'1' is in stratum 'a' and in stratum 'b'"),
        ("clusters", {"clusters": [0.0, np.nan, 1, 1]}, "row 1"),
        ("population_size", {"population_size": 3}, "the sample is 3, and the sample has 4 reports"),
        ("population_size", {"population_size": [5, 5, 6, 6]}, "two sizes"),
        ("population_size", {"population_size": np.nan}, "nan"),
        ("population_size", {"population_size": [9, np.nan, 9, 9]}, "nan"),
        ("population_size", {"population_size": 1, "clusters": PAIRS}, "2 clusters"),
        ("population_size", {"population_size": 9, "epsilon_or_mechanism": None, "values": None}, "noise"),
        ("values", {"epsilon_or_mechanism": None}, "noise"),
        ("values", {"values": None}, "[K]"),
        ("values", {"values": [1, 1]}, "all values"),
        ("reports", {"reports": [0, 1, 2, 3]}, ""),
        ("reports", {"reports": [0.0, np.inf], "epsilon_or_mechanism": None, "values": None}, "finite"),
        ("reports", {"epsilon_or_mechanism": mechanisms.ByRespondent([DICE, DICE], [0, 1])}, "2 respondents"),
        ("domain", {"domain": [1, 0, 1, 1]}, "booleans"),
        ("less", {"less": np.ones(3, bool)}, "booleans"),
        ("level", {"level": 95}, ""),
        ("method", {"method": "exact"}, ""),
    ],
)
def test_what_is_wrong_is_named(argument, given, words):
    with refused(argument) as error:
        survey_estimate(**{**GOOD, **given})
    assert words in str(error.value)


def test_arguments_that_are_traced_are_refused():
    with refused("reports"):
        jax.jit(lambda w: survey_estimate([0, 1], 1.0, values=[0, 1], weights=w))(np.ones(2))
