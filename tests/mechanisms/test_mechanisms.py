"""What every mechanism promises: against its channel written out, by its law, and by the table of the literature."""

import importlib.util
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, ULP, X64
from channels import CHANNELS, channel, exact_channel
from jax.extend.random import threefry_2x32
from laws import check_covariance, check_frequencies
from mixtures import solved
from refusals import refused

import rrjax
from rrjax import inference, mechanisms
from rrjax.mechanisms import MECHANISMS, BinaryLocalHashing, LocalHashing
from rrjax.mechanisms.columns import incident_sums
from rrjax.mechanisms.mechanism import Reordered
from rrjax.numerics.threefry import buckets_of, threefry

SIMPLE = ("randomized-response", "symmetric-unary-encoding", "binary-local-hashing", "hadamard-response")
"""Those that are like another one, whose tests are run later, because programs are compiled for each."""


def kinds(names):
    """The mechanisms of these names."""
    marks = {name: (pytest.mark.long,) if name in SIMPLE else () for name in names}
    return pytest.mark.parametrize("kind", [pytest.param(MECHANISMS[n], id=n, marks=marks[n]) for n in names])


every, enumerable = kinds(MECHANISMS), kinds(CHANNELS)
DOCS = pathlib.Path(__file__).parents[2] / "docs"
CHOSEN = ("subset_size", "num_buckets", "field_order")
"""What ε chooses."""


def reports_of(mechanism, number, seed=0):
    values = np.random.default_rng(seed).choice(mechanism.num_categories, number, p=shares(mechanism.num_categories))
    return mechanism.randomize(jax.random.key(seed), values)


def shares(size):
    weights = 1 / np.arange(1.0, size + 1)
    weights[-1] = 0
    return weights / weights.sum()


@pytest.mark.long
@enumerable
@pytest.mark.parametrize(("size", "epsilon"), [(2, 0.5), (5, 1.0), (8, 3.0)])
def test_rates_and_epsilon_are_those_of_the_channel(kind, size, epsilon):
    mechanism = kind(size, epsilon)
    reports, law, there = exact_channel(mechanism)
    supported = (law @ there).astype(float)
    np.testing.assert_allclose(np.diag(supported), float(mechanism.rates.p), rtol=4 * ULP)
    np.testing.assert_allclose(supported[~np.eye(size, dtype=bool)], float(mechanism.rates.q), rtol=4 * ULP)
    ratio = (law.max(0) / law.min(0)).max()
    assert math.log(ratio) == pytest.approx(epsilon, rel=1e-12)
    np.testing.assert_array_equal(mechanism.supports(reports), there)
    plain = mechanism.rates_by(math.expm1)
    assert (plain.p, plain.q) == pytest.approx((supported[0, 0], supported[0, 1]), rel=1e-14)


@pytest.mark.parametrize("kind", [LocalHashing, BinaryLocalHashing])
def test_rates_of_local_hashing_are_the_published_ones(kind):
    for epsilon in (0.1, 1.0, 5.0):
        mechanism = kind(9, epsilon)
        number = round(math.exp(epsilon)) + 1 if kind is LocalHashing else 2
        assert mechanism.num_buckets == number
        p = math.exp(epsilon) / (math.exp(epsilon) + number - 1)
        assert float(mechanism.rates.p) == pytest.approx(p, rel=4 * ULP)
        assert float(mechanism.rates.q) == pytest.approx(1 / number, rel=4 * ULP)
        # Given its seed a report is one of randomized response over the buckets.
        assert math.log(p / ((1 - p) / (number - 1))) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.once
def test_errors_over_the_bound_are_those_of_the_table():
    """Total squared errors over 4e^εK/(N(e^ε − 1)²) at K = 1000, ε = 3."""
    unit = 4 * math.exp(3) * 1000 / math.expm1(3) ** 2
    table = {
        "subset-selection": 0.994,
        "optimized-unary-encoding": 1.005,
        "optimized-local-hashing": 1.005,
        "projective-geometry-response": 1.006,
        "symmetric-unary-encoding": 1.68,
        "hadamard-response": 5.5,
        "binary-local-hashing": 5.5,
        "randomized-response": 12.9,
    }
    assert set(table) <= set(MECHANISMS)
    for name, wanted in table.items():
        found = MECHANISMS[name](1000, 3.0).rates_by(math.expm1).total_variance(1000) / unit
        digits = len(str(wanted).split(".")[1])
        assert found == pytest.approx(wanted, abs=0.6 * 10**-digits), name


@pytest.mark.long
@every
def test_rates_stay_finite_and_know_a_traced_epsilon(kind):
    for epsilon in (1e-6, 1.0, 30.0, 800.0):
        rates = kind(50, epsilon).rates_by(lambda x: math.expm1(min(x, 300)))
        assert 0 < rates.d <= 1
        assert rates.q >= 0
        assert math.isfinite(rates.total_variance(50))
    swept = jax.vmap(lambda e: kind(50, e).rates.d)(jnp.asarray([0.5, 1.0, 2.0], FLOAT))
    for found, epsilon in zip(swept.tolist(), (0.5, 1.0, 2.0), strict=True):
        assert found == pytest.approx(float(kind(50, epsilon).rates.d), rel=8 * ULP)
    parameter = next((name for name in CHOSEN if hasattr(kind(50, 1.0), name)), None)
    if parameter is None or kind is BinaryLocalHashing:
        return
    with pytest.raises(ValueError, match=f"epsilon is traced, .* so it cannot choose {parameter}"):
        jax.jit(lambda e: kind(50, e).randomize(jax.random.key(0), jnp.zeros(3, jnp.int32)))(1.0)
    given = {parameter: getattr(kind(50, 1.0), parameter)}
    reports = jax.jit(lambda e: kind(50, e, **given).randomize(jax.random.key(0), jnp.zeros(3, jnp.int32)))(1.0)
    np.testing.assert_array_equal(reports, kind(50, 1.0).randomize(jax.random.key(0), np.zeros(3, int)))


@every
def test_names_and_pytrees(kind):
    mechanism = kind(5, 1.5)
    assert MECHANISMS[mechanism.name] is kind
    leaves, structure = jax.tree.flatten(mechanism)
    assert leaves == [1.5]
    assert jax.tree.unflatten(structure, leaves) == mechanism
    assert math.log2(5) <= mechanism.bits < 40
    for epsilon in (-1.0, 0.0, np.nan):
        with refused("epsilon"):
            kind(5, epsilon)
    with refused("num_categories"):
        kind(1, 1.0)


@enumerable
def test_reports_have_the_law_of_the_channel(kind):
    mechanism = kind(5, 1.2)
    reports, law, _ = channel(mechanism)
    drawn = np.asarray(mechanism.randomize(jax.random.key(0), np.repeat(np.arange(5), 20_000).reshape(5, -1)))
    whole = reports.reshape(len(reports), -1)
    for value in range(5):
        rows = drawn[value].reshape(20_000, -1)
        seen = np.concatenate([whole, rows]) @ (8 ** np.arange(whole.shape[1]))  # one number for each report
        numbers, index, times = np.unique(seen, return_inverse=True, return_counts=True)
        assert len(numbers) == len(whole)
        check_frequencies(times[index[: len(whole)]] - 1, law[value])


@pytest.mark.parametrize("kind", [LocalHashing, BinaryLocalHashing])
def test_reports_of_local_hashing_name_their_bucket_by_randomized_response(kind):
    mechanism = kind(6, 1.2)
    number, users = mechanism.num_buckets, 60_000
    reports = np.asarray(mechanism.randomize(jax.random.key(0), np.full(users, 4)))
    supported = np.asarray(mechanism.supports(reports)).mean(0)
    p, q = float(mechanism.rates.p), 1 / number
    wanted = np.where(np.arange(6) == 4, p, q)
    assert (np.abs(supported - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / users)).all()
    # Seeds fill their words, buckets are all there, and another bucket is any other one.
    assert abs(reports[:, 0].mean() / 2**32 - 0.5) < 4 / math.sqrt(12 * users)
    check_frequencies(np.bincount(reports[:, 1], minlength=number), np.full(number, 1 / number))


@pytest.mark.once
def test_the_hash_never_changes():
    """Known words of Threefry-2x32 with 20 rounds: those of the publication, and those of JAX."""
    zero, ones = jnp.uint32(0), jnp.uint32(2**32 - 1)
    assert [hex(int(x)) for x in threefry(zero, zero, zero, zero)] == ["0x6b200159", "0x99ba4efe"]
    assert [hex(int(x)) for x in threefry(ones, ones, ones, ones)] == ["0x1cb996fc", "0xbb002be7"]
    seeds = np.asarray([12345, 2**32 - 1, 0], np.uint32)
    words = [
        [threefry_2x32((seed, np.uint32(0)), np.asarray([c // 2, 0], np.uint32))[c % 2] for c in range(7)]
        for seed in seeds
    ]
    buckets = np.asarray(words).astype(np.uint64) * np.uint64(8) >> np.uint64(32)
    for bucket in range(8):
        reports = np.stack([seeds, np.full(3, bucket, np.uint32)], axis=1)
        np.testing.assert_array_equal(LocalHashing(7, 2.0).supports(reports), buckets == bucket)


@pytest.mark.once
@pytest.mark.parametrize("number", [3, 2**16 + 1, 2**30])
def test_buckets_of_any_number_are_those_of_the_hash(number):
    seeds, values = np.arange(50, dtype=np.uint32) * np.uint32(85_899_345), np.arange(9, dtype=np.uint32)
    buckets = np.asarray(buckets_of(seeds[:, None], values, np.uint32(number), np))
    bucket = np.append(buckets[np.arange(48), np.arange(48) % 9], [0, number - 1])
    supported = LocalHashing(9, 2.0, num_buckets=number).supports(np.stack([seeds, bucket], axis=1))
    np.testing.assert_array_equal(supported, buckets == bucket[:, None])


@pytest.mark.long
def test_equal_reports_are_counted_together():
    mechanism = LocalHashing(1025, 1.0)
    kinds = np.asarray([[7, 0], [7, 3], [2**32 - 1, 1], [12, 2]], np.uint32)
    numbers = np.asarray([3000, 1, 1023, 1024])
    reports = np.random.default_rng(0).permutation(np.repeat(kinds, numbers, axis=0))
    tally = mechanism.tally(reports)
    assert tally.support.dtype == INT
    np.testing.assert_array_equal(tally.support, numbers @ np.asarray(mechanism.supports(kinds)))
    assert int(tally.num_users) == numbers.sum()


@every
def test_a_collection_may_have_no_reports(kind):
    tally = kind(5, 1.0).tally(reports_of(kind(5, 1.0), 0))
    np.testing.assert_array_equal(tally.support, np.zeros(5))
    assert int(tally.num_users) == 0


@pytest.mark.full
@every
def test_tallies_and_unbiased_vectors_are_sums_of_supports(kind):
    mechanism = kind(6, 1.0)
    reports = reports_of(mechanism, 300)
    tally = mechanism.tally(reports)
    supported = np.asarray(mechanism.supports(reports))
    np.testing.assert_array_equal(tally.support, supported.sum(0))
    assert int(tally.num_users) == 300
    parts = mechanism.tally(reports[:100]) + mechanism.tally(reports[100:])
    np.testing.assert_array_equal(parts.support, tally.support)
    vectors = np.asarray(mechanism.debias(reports), float)
    p, q = float(mechanism.rates.p), float(mechanism.rates.q)
    np.testing.assert_allclose(vectors, (supported - q) / (p - q), rtol=50 * ULP, atol=50 * ULP)
    np.testing.assert_allclose(vectors.mean(0), rrjax.inv(tally), rtol=1e-4, atol=1e-5)


@pytest.mark.long
@every
def test_the_inversion_of_many_reports_is_unbiased(kind):
    """10⁵ users, randomized one by one: each category within four standard errors."""
    mechanism, users = kind(6, 1.0), 100_000
    values = np.repeat(np.arange(6), np.round(users * shares(6)).astype(int))
    truth = np.bincount(values, minlength=6) / len(values)
    found = np.asarray(rrjax.inv(mechanism.tally(mechanism.randomize(jax.random.key(5), values))), float)
    errors = np.sqrt(np.asarray(mechanism.rates.variance(truth.astype(FLOAT)), float) / len(values))
    assert (np.abs(found - truth) < 4 * errors).all()


@pytest.mark.full  # two thousand collections of ten thousand users of each mechanism
@pytest.mark.work
@pytest.mark.once
@every
def test_the_error_of_whole_collections(kind):
    size, users, turns = 20, 10_000, 2000
    mechanism = kind(size, 2.0)
    true_counts = np.asarray([4000, 3000, 2000, 1000] + [0] * 16)
    draw = jax.jit(lambda key: rrjax.inv(mechanism.collect(key, true_counts)))
    found = np.asarray(jax.lax.map(draw, jax.random.split(jax.random.key(5), turns)), float)
    wanted = float(mechanism.rates.total_variance(size)) / users
    totals = ((found - true_counts / users) ** 2).sum(1)
    assert abs(totals.mean() - wanted) <= 4 * totals.std() / math.sqrt(turns)
    assert totals.mean() == pytest.approx(wanted, rel=0.03)


@pytest.mark.work  # two thousand collections of a thousand users of each mechanism
@pytest.mark.once
@every
def test_the_error_of_users_one_by_one(kind):
    """As above, of reports that each user makes, and that are counted: what `collect` draws by its law is not that."""
    size, users, turns = 20, 1000, 2000
    mechanism = kind(size, 2.0)
    values = np.repeat(np.arange(4), [400, 300, 200, 100])
    draw = jax.jit(lambda key: rrjax.inv(mechanism.tally(mechanism.randomize(key, values))))
    found = np.asarray(jax.lax.map(draw, jax.random.split(jax.random.key(7), turns)), float)
    wanted = float(mechanism.expected_squared_error(users))
    totals = ((found - np.bincount(values, minlength=size) / users) ** 2).sum(1)
    assert abs(totals.mean() - wanted) <= 4 * totals.std() / math.sqrt(turns)
    assert totals.mean() == pytest.approx(wanted, rel=0.03)


@pytest.mark.full  # four thousand collections of each mechanism
@pytest.mark.work
@pytest.mark.once
@enumerable
def test_collections_have_the_law_of_their_reports(kind):
    """Means, variances and covariances of support counts, which are not independent but for unary encodings."""
    mechanism, true = kind(6, 1.0), np.asarray([50, 20, 10, 5, 5, 0], INT)
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = np.asarray(jax.lax.map(lambda key: mechanism.collect(key, true).support, keys), float)
    _, law, there = channel(mechanism)
    each = [there.T @ (np.diag(row) - np.outer(row, row)) @ there for row in law]
    check_covariance(drawn, true @ law @ there, np.einsum("v,vij->ij", true.astype(float), np.asarray(each)))


@pytest.mark.work  # four thousand collections, in both ways
@pytest.mark.once
def test_collections_of_local_hashing_have_the_law_of_their_reports():
    mechanism, true = LocalHashing(4, 1.0), np.asarray([20, 10, 0, 0], INT)
    keys = jax.random.split(jax.random.key(1), 4000)
    values = np.repeat(np.arange(4), true)
    p, q = float(mechanism.rates.p), float(mechanism.rates.q)
    mean, variance = true * p + (30 - true) * q, true * p * (1 - p) + (30 - true) * q * (1 - q)
    together = jax.vmap(lambda key: mechanism.collect(key, true).support)(keys)
    one_by_one = jax.vmap(lambda key: mechanism.tally(mechanism.randomize(key, values)).support)(keys)
    for drawn in (together, one_by_one):
        check_covariance(drawn, mean, np.diag(variance))


@pytest.mark.full
@every
def test_the_likelihood_is_that_of_the_channel(kind):
    """Differences of Σ log P(report | θ), with the channel written out; and its maximum, by another solver."""
    mechanism = kind(5, 1.2)
    reports = reports_of(mechanism, 60, seed=3)
    epsilon = float(FLOAT.type(1.2))
    supported = np.asarray(mechanism.supports(reports), float)
    matrix = math.expm1(epsilon) * supported
    mixture = mechanism.mixture(reports)
    first, second = np.asarray([0.5, 0.2, 0.1, 0.1, 0.1]), np.asarray([0.1, 0.1, 0.1, 0.2, 0.5])
    wanted = np.log((1 + matrix @ first) / (1 + matrix @ second)).mean()
    found = rrjax.nll(second.astype(FLOAT), mixture) - rrjax.nll(first.astype(FLOAT), mixture)
    assert float(found) == pytest.approx(wanted, abs=20 * ULP)
    result = rrjax.ibu(mixture)
    best = solved(np.ones(len(matrix)), 1.0, matrix)
    # Up to a constant that θ does not change: randomized response keeps it, others may not.
    uniform = np.full(5, 0.2)
    gained = float(rrjax.nll(uniform.astype(FLOAT), mixture)) - float(rrjax.nll(result.theta, mixture))
    possible = best - np.log(1 + matrix @ uniform).mean()
    assert abs(possible - gained) <= (1e-6 if X64 else 2e-5)
    assert possible - gained <= float(result.gap) + 20 * ULP


@pytest.mark.parametrize("name", CHANNELS)
def test_supports_are_what_makes_a_value_more_likely(name):
    mechanism = MECHANISMS[name](5, 1.2)
    _, law, there = channel(mechanism)
    np.testing.assert_allclose(law / law.min(0), np.where(there.T | (law == law.min(0)), law / law.min(0), 1))
    ratios = law / np.where(there.any(1) & ~there.all(1), law.min(0), law.max(0))
    np.testing.assert_allclose(ratios, np.where(there.T & ~there.all(1), math.exp(1.2), 1), rtol=1e-12)


@pytest.mark.full  # it compiles all that takes tallies, for each mechanism
@pytest.mark.once
@every
def test_everything_of_a_tally_serves(kind):
    tally = kind(40, 1.5).collect(jax.random.key(0), np.asarray([30_000, *[500] * 39], INT))
    share = 30_000 / 49_500
    error = 5 * math.sqrt(float(tally.rates.variance(FLOAT.type(share))) / 49_500)
    for theta in (rrjax.inv_n(tally), rrjax.inv_p(tally), rrjax.empirical_bayes(tally).theta):
        assert float(theta[0]) == pytest.approx(share, abs=error)
    limits = inference.intervals(tally)
    assert float(limits.lower[0]) < share < float(limits.upper[0])
    assert bool(inference.discoveries(tally, dependence="any")[0])


@pytest.mark.full
@every
def test_what_makes_no_sense_and_cannot_be_refused_is_marked(kind):
    mechanism = kind(6, 1.0)
    for counts in ([-1, 5, 5, 1, 1, 1], [0] * 6):
        tally = mechanism.collect(jax.random.key(0), np.asarray(counts, INT))
        assert np.sign(tally.num_users) == np.sign(min(counts))
        assert np.isnan(rrjax.inv(tally)).all()
    given = {name: getattr(mechanism, name) for name in CHOSEN if hasattr(mechanism, name)}
    impossible = kind(6, jnp.asarray(-1.0, FLOAT), **given)  # an array may be traced
    assert np.isnan(rrjax.inv(impossible.collect(jax.random.key(0), np.ones(6, INT)))).all()
    if mechanism.randomize(jax.random.key(0), [0]).dtype == bool:
        return  # bits have no number that says that they are none
    support = jax.jit(lambda v: mechanism.tally(mechanism.randomize(jax.random.key(0), v)).support)
    assert (np.asarray(support(jnp.asarray([0, 6, 1]))) == -1).all()
    assert (np.asarray(support(jnp.asarray([0, 5, 1]))) >= 0).all()


@every
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.randomize(jax.random.key(0), [0, 6]), "values"),
        (lambda m: m.randomize(jax.random.key(0), [0.5]), "values"),
        (lambda m: m.collect(jax.random.key(0), [1, 2]), "true_counts"),
        (lambda m: m.collect(jax.random.key(0), [0.5] * 6), "true_counts"),
        (lambda m: m.tally(np.full((3, 6), 0.5)), "reports"),
        (lambda m: m.mixture(m.randomize(jax.random.key(0), np.zeros(0, int))), "weights"),
    ],
)
def test_bad_input_is_named(kind, call, message):
    with refused(message):
        call(kind(6, 1.0))


@pytest.mark.parametrize(
    ("name", "options", "reports", "message"),
    [
        ("subset-selection", {"subset_size": 6}, None, "subset_size"),
        ("subset-selection", {}, [[0, 0]], "reports"),
        ("subset-selection", {}, [[0, 6]], "reports"),
        ("subset-selection", {}, [[0, 1, 2]], "reports"),
        ("optimized-local-hashing", {"num_buckets": 1}, None, "num_buckets"),
        ("binary-local-hashing", {"num_buckets": 4}, None, "num_buckets"),
        ("optimized-local-hashing", {}, [[0, 4]], "buckets"),
        ("optimized-local-hashing", {}, [[-1, 0]], "seeds"),
        ("optimized-local-hashing", {}, [[0, 0, 1]], "reports"),
        ("projective-geometry-response", {"field_order": 4}, None, "field_order"),
        ("projective-geometry-response", {}, [6], "reports"),
        ("hadamard-response", {}, [8], "reports"),
        ("randomized-response", {}, [6], "reports"),
    ],
)
def test_reports_and_parameters_that_are_none(name, options, reports, message):
    def counted():
        return MECHANISMS[name](6, 1.0, **options).tally(reports)

    with refused(message):
        counted()


@pytest.mark.long
@pytest.mark.parametrize("order", [2, 3, pytest.param(7, marks=pytest.mark.full)])
def test_sums_over_a_projective_space(order):
    """By the coordinates, against the matrix of who lies on whom."""
    for dimension in (2, 3, 4):
        number = (order**dimension - 1) // (order - 1)
        mechanism = MECHANISMS["projective-geometry-response"](max(number, 2), 1.0, field_order=order)
        if mechanism.num_columns != number:
            continue  # a line, which two coordinates give already
        _, _, there = channel(mechanism)
        values = np.random.default_rng(0).integers(0, 100, number)
        np.testing.assert_array_equal(incident_sums(jnp.asarray(values), order, dimension), there @ values)


@pytest.mark.once
def test_the_page_about_mechanisms_is_what_the_code_says():
    spec = importlib.util.spec_from_file_location("page", DOCS / "mechanisms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (DOCS / "mechanisms.md").read_text(encoding="utf-8") == module.page(), "run python docs/mechanisms.py"


@pytest.mark.full
@pytest.mark.once
def test_a_reordered_mechanism_has_the_same_law_in_another_order():
    order = (2, 0, 1)
    for inner in (mechanisms.OptimizedUnaryEncoding(3, 1.0), mechanisms.ForcedResponse(0.6, [0.5, 0.3, 0.2])):
        outer = Reordered(inner, order)
        reports = inner.randomize(jax.random.key(0), np.arange(300) % 3)
        theirs, ours = (rrjax.mle(each.mixture(reports)) for each in (inner, outer))
        np.testing.assert_allclose(ours, theirs[np.asarray(order)], atol=1e-4)
        rows, plain = outer.log_rows(reports), inner.log_rows(reports)
        np.testing.assert_array_equal(rows.lift, plain.lift[:, np.asarray(order)])
        assert (outer.randomize(jax.random.key(1), [0, 1, 2]) == inner.randomize(jax.random.key(1), order)).all()
        assert float(outer.epsilon) == float(inner.epsilon)
