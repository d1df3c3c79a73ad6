"""Whether reports contradict their metadata: against exact laws, and of files that were made otherwise."""

import json

import jax
import numpy as np
import pytest
from cases import FLOAT, INT
from refusals import refused
from scipy import stats

import rrjax
from rrjax.data.tally import support_data
from rrjax.inference import contradiction_test, repeated_seed_test
from rrjax.inference.contradiction import log_above, log_below
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.mechanisms import (
    ForcedResponse,
    HadamardResponse,
    LocalHashing,
    OptimizedUnaryEncoding,
    ProjectiveGeometry,
    RandomizedResponse,
    SubsetSelection,
)

SIZE = 6
PARTS = {"single", "sum_of_shares", "rare", "even", "frequent"}


def spread(total, size=SIZE):
    """Support counts with this total, as even as can be."""
    return np.asarray([total // size + (place < total % size) for place in range(size)], INT)


def totals(mechanism, number):
    """The exact law of how many supports reports have, for each category that their users might hold: `[K, n]`."""
    if isinstance(mechanism, OptimizedUnaryEncoding | LocalHashing):
        p, q = float(mechanism.rates.p), float(mechanism.rates.q)
        own = stats.binom.pmf(np.arange(number + 1), number, p)
        return np.convolve(own, stats.binom.pmf(np.arange(number * (SIZE - 1) + 1), number * (SIZE - 1), q))[None]
    supports = np.asarray(mechanism.supports(np.arange(mechanism.num_columns)))
    laws = []
    for value in range(SIZE):
        p, held = float(mechanism.rates.p), supports[:, value]
        chance = np.where(held, p / held.sum(), (1 - p) / (~held).sum())
        one = np.bincount(supports.sum(1), chance, SIZE + 1)
        law = np.ones(1)
        for _ in range(number):
            law = np.convolve(law, one)
        laws.append(law)
    return np.stack(laws)


@pytest.mark.full
@pytest.mark.parametrize("kind", [OptimizedUnaryEncoding, LocalHashing, HadamardResponse, ProjectiveGeometry])
@pytest.mark.parametrize("known", [True, False])
def test_p_values_bound_the_exact_tails(kind, known):
    number, mechanism = 30, kind(SIZE, 1.5)
    laws = totals(mechanism, number)
    possible = np.arange(laws.shape[1])
    supports = np.stack([spread(total) for total in possible])

    def p_value(support):
        tally = rrjax.Tally(support, np.int32(number), rates=mechanism.rates)
        return contradiction_test(tally, mechanism if known else None).p_value

    found = np.asarray(jax.jit(jax.vmap(p_value))(supports), float)
    mean = number * (float(mechanism.rates.p) + (SIZE - 1) * float(mechanism.rates.q))
    above, below = laws[:, ::-1].cumsum(1)[:, ::-1], laws.cumsum(1)
    tails = np.where(possible < mean, below, above).max(0)
    assert (found >= np.where(tails > 1e-30, tails, 0) * (1 - 1e-3)).all()
    if known:  # Chernoff's bound is larger by the root of the number, about
        likely = tails > 1e-25
        assert (found[likely] <= np.minimum(300 * tails[likely] ** 0.95, 1)).all()
        assert found[0] < 1e-6


@pytest.mark.long
def test_what_supports_equally_many_says_nothing():
    for kind in (RandomizedResponse, SubsetSelection):
        tally = kind(SIZE, 1.0).collect(jax.random.key(0), np.full(SIZE, 50, INT))
        assert float(contradiction_test(tally, kind(SIZE, 1.0)).p_value) == 1


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0])
def test_extreme_epsilons_stay_finite(epsilon):
    for kind in (OptimizedUnaryEncoding, LocalHashing, HadamardResponse):
        mechanism = kind(SIZE, epsilon) if kind is not LocalHashing else kind(SIZE, epsilon, num_buckets=4)
        tally = mechanism.collect(jax.random.key(1), np.full(SIZE, 50, INT))
        assert 0.01 < float(contradiction_test(tally, mechanism).p_value) <= 1
        far = rrjax.Tally(np.full(SIZE, 290, INT), 300, rates=mechanism.rates)
        assert float(contradiction_test(far, mechanism).p_value) < 1e-6


TOGETHER = ("p_value", "single", "rare", "even", "frequent")


def p_values_of(tallies, mechanism):
    """The p-value of each part, and of all together, `[R]` each."""
    found = jax.jit(jax.vmap(lambda tally: contradiction_test(tally, mechanism)))(tallies)
    parts = {name: getattr(found, name) for name in TOGETHER}
    return {name: np.asarray(getattr(part, "p_value", part), float) for name, part in parts.items()}


def tallies_of(supports, number, mechanism):
    """Tallies `[R]` of support counts `[R, K]`."""

    def of_all(leaf):
        return np.broadcast_to(np.asarray(leaf), (len(supports), *np.shape(leaf)))

    rates = jax.tree.map(of_all, mechanism.rates)
    return rrjax.Tally(np.asarray(supports, INT), of_all(np.asarray(number, INT)), rates=rates)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_the_size_is_at_most_the_level_for_all_given_users(epsilon):
    """Of three categories and eight users, by the exact law of all reports of every population."""
    number, size = 8, 3
    every = [(a, b, number - a - b) for a in range(number + 1) for b in range(number + 1 - a)]
    place = {counts: index for index, counts in enumerate(every)}
    mechanism = RandomizedResponse(size, epsilon)
    q, d = float(mechanism.rates.q), float(mechanism.rates.d)
    found = p_values_of(tallies_of(np.asarray(every), number, mechanism), mechanism)
    for users in every:
        law = {(0, 0, 0): 1.0}
        for held in np.repeat(np.arange(size), users):
            after = {}
            for counts, chance in law.items():
                for named in range(size):
                    new = tuple(np.asarray(counts) + (np.arange(size) == named))
                    after[new] = after.get(new, 0.0) + chance * (q + d * (named == held))
            law = after
        chances = np.zeros(len(every))
        for counts, chance in law.items():
            chances[place[counts]] = chance
        for name, p_values in found.items():
            for level in np.unique(p_values):
                assert chances[p_values <= level].sum() <= level * (1 + 1e-5), (users, name)


@pytest.mark.full
@pytest.mark.parametrize("shares", ["one", "equal", "zipf"])
@pytest.mark.parametrize("kind", [RandomizedResponse, OptimizedUnaryEncoding, ForcedResponse])
def test_honest_reports_are_not_rejected(kind, shares):
    """Of given users, who vary least, and at the populations that reach the bounds."""
    size, number, draws, rng = 50, 100, 1000, np.random.default_rng(0)
    theta = {"one": np.arange(size) == 0, "equal": np.ones(size), "zipf": 1 / np.arange(1, size + 1)}[shares]
    users = rng.multinomial(number, theta / theta.sum()) if shares == "zipf" else theta * number // theta.sum()
    users = users.astype(int)
    for epsilon in (1.0, 4.0, 12.0):
        mechanism = (
            ForcedResponse(0.08 * epsilon, np.full(size, 1 / size)) if kind is ForcedResponse else kind(size, epsilon)
        )
        q, p = (np.broadcast_to(np.asarray(each, float), (size,)) for each in (mechanism.rates.q, mechanism.rates.p))
        if kind is OptimizedUnaryEncoding:
            supports = rng.binomial(users, p, (draws, size)) + rng.binomial(number - users, q, (draws, size))
        else:
            kept = rng.binomial(users, p - q, (draws, size))
            law = q / q.sum()
            supports = kept + np.stack([rng.multinomial(each, law) for each in number - kept.sum(1)])
        for name, p_values in p_values_of(tallies_of(supports, number, mechanism), mechanism).items():
            for level in (0.05, 0.01):
                assert (p_values <= level).mean() <= level + 3 * np.sqrt(level / draws), (epsilon, name, level)


@pytest.mark.work  # compiled as users do it: only optimized programs round so
@pytest.mark.parametrize("size", [3, 5])
def test_categories_that_are_all_rare_are_possible(size):
    """The p-value is at least the largest probability that all are, with users who hold none of them."""
    mechanism = LocalHashing(size, 0.5)
    numbers, q = np.arange(10, 60), float(mechanism.rates.q)
    few = np.floor((numbers - 2) * q + 1e-6).astype(INT)
    for count, number in zip(few, numbers, strict=True):
        # Alone, because in a batch the same program rounds otherwise.
        tally = rrjax.Tally(np.full(size, count), INT.type(number), rates=mechanism.rates)
        least = stats.binom.cdf(count, number, q) ** size
        assert float(contradiction_test(tally, mechanism).rare.p_value) >= least, number


@pytest.mark.parametrize("chances", [(0.3, 0.05), (0.9, 0.2), (0.51, 0.5)])
def test_the_chance_of_few_reports_is_convex_in_the_holders(chances):
    """Up to (N − 2)·q, and beyond it not always."""
    number, (p, q) = 40, chances
    laws = [
        np.convolve(
            stats.binom.pmf(np.arange(held + 1), held, p),
            stats.binom.pmf(np.arange(number - held + 1), number - held, q),
        )
        for held in range(number + 1)
    ]
    curves = np.diff(np.cumsum(laws, axis=1), 2, axis=0)
    limit = int((number - 2) * q)
    assert (curves[:, : limit + 1] >= -1e-15).all()
    assert (curves[:, limit + 2] < 0).any()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("rare", np.repeat([0, 24], [600, 600])),
        ("even", np.full(1200, 12)),
        ("frequent", np.repeat([80, 10], [60, 1140])),
    ],
)
def test_each_part_finds_its_own(name, counts):
    """Counts in which no category alone is impossible at this ε."""
    counts = counts.astype(INT)
    mechanism = RandomizedResponse(len(counts), 4.5 if name != "even" else 3.0)
    found = contradiction_test(rrjax.Tally(counts, counts.sum(), rates=mechanism.rates), mechanism)
    assert float(getattr(found, name).p_value) < 1e-9
    assert float(found.single.p_value) > 0.01 or name != "even"
    assert set(found.parts) == PARTS - {"sum_of_shares"}


def with_total(supports, total, rng):
    """Support counts moved by a few at random, so that they have a total that all reports together must have."""
    excess = int(supports.sum() - total)
    places = rng.choice(np.flatnonzero((supports > 0) | (excess < 0)), abs(excess), replace=False)
    supports[places] -= np.sign(excess)
    return supports


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "size", "epsilon"),
    [
        (RandomizedResponse, 10**6, 10.0),
        (ForcedResponse, 20_000, 6.0),
        (SubsetSelection, 20_000, 9.0),  # subsets of two
        (OptimizedUnaryEncoding, 20_000, 6.0),
        (LocalHashing, 20_000, 6.0),
    ],
)
def test_many_categories_that_were_never_randomized(kind, size, epsilon):
    """Three reports a category; the same users, randomized, are not rejected."""
    number, rng = 3 * size, np.random.default_rng(0)
    shares = 1 / np.arange(1, size + 1)
    users = rng.multinomial(number, shares / shares.sum())
    mechanism = ForcedResponse(0.02, np.full(size, 1 / size)) if kind is ForcedResponse else kind(size, epsilon)
    p, q = (float(np.ravel(each)[0]) for each in (mechanism.rates.p, mechanism.rates.q))
    honest = rng.binomial(users, p) + rng.binomial(number - users, q)
    named = kind in (RandomizedResponse, ForcedResponse)
    others = (mechanism.subset_size - 1) / (size - 1) if kind is SubsetSelection else q
    never = users if named else users + rng.binomial(number - users, others)  # every report supports the truth
    if named or kind is SubsetSelection:
        total = number if named else number * mechanism.subset_size
        honest, never = (with_total(each, total, rng) for each in (honest, never))
    for supports, wrong in ((never, True), (honest, False)):
        tally = rrjax.Tally(supports.astype(INT), np.asarray(number, INT), rates=mechanism.rates)
        assert (float(contradiction_test(tally, mechanism).p_value) < 1e-9) == wrong


@pytest.mark.long
def test_reports_of_one_number_of_categories_have_a_known_total():
    mechanism = SubsetSelection(SIZE, 1.0)
    tally = mechanism.collect(jax.random.key(0), np.full(SIZE, 50, INT))
    support = np.asarray(tally.support)
    for more, p_value in ((0, 1), (1, 0)):
        moved = rrjax.Tally(support + more * (np.arange(SIZE) == 0), tally.num_users, rates=mechanism.rates)
        assert float(contradiction_test(moved, mechanism).p_value) == p_value


@pytest.mark.long
def test_an_unusable_tally_gives_nan():
    mechanism = OptimizedUnaryEncoding(SIZE, 1.0)
    tally = rrjax.Tally(np.full(SIZE, -1, INT), np.asarray(5, INT), rates=mechanism.rates)
    assert np.isnan(contradiction_test(tally, mechanism).p_value)
    with refused("support"):
        contradiction_test(rrjax.Tally(np.ones(SIZE, FLOAT), FLOAT.type(3), rates=mechanism.rates), mechanism)


def test_equal_seeds(monkeypatch):
    # Two of N by the birthday problem, of seeds of eight bits.
    monkeypatch.setattr("rrjax.inference.contradiction.SEED_BITS", 8)
    chance = 1 - np.prod(1 - np.arange(5) / 256)
    assert chance <= float(repeated_seed_test(2, 5).p_value) == pytest.approx(10 / 256)
    assert float(repeated_seed_test(1, 10**6).p_value) == 1
    assert float(repeated_seed_test(10**6, 10**6).p_value) == 0
    with refused("most", value=9):
        repeated_seed_test(9, 8)


@pytest.mark.full  # four estimates, each compiled
@pytest.mark.once
def test_files_that_were_made_otherwise_are_warned_of(invoke):
    """Made at ε = 1 and read as 4, and hashed by one function for all; the same as they are pass."""
    pytest.importorskip("duckdb", reason="files need rrjax[cli]")
    from rrjax import io
    from rrjax.io.write import CODINGS

    values = np.repeat(np.arange(SIZE), [900, 500, 300, 200, 100, 0])
    domain = Domain.of(list("abcdef"))

    def warned(mechanism, epsilon, reports, name, **parameters):
        given = {"num_categories": SIZE, "epsilon": epsilon, **parameters}
        io.write_reports(
            "r.parquet",
            io.coded(CODINGS[name], reports, SIZE),
            Metadata(MechanismRecord(name, given), epsilon, domain, "x", True, "0"),
        )
        code, out, error = invoke("estimate", "r.parquet")
        assert code == 0, error
        tests = json.loads(invoke("estimate", "r.parquet", "--json")[1])["metadata_tests"]
        assert set(tests) == PARTS | ({"repeated_seed"} if "hashing" in name else set())
        said = "Do not use these estimates" in out + error
        assert said == any(test["p_value"] * len(tests) <= 0.01 for test in tests.values())
        return said

    made = OptimizedUnaryEncoding(SIZE, 1.0)
    reports = np.asarray(made.randomize(jax.random.key(0), values))
    for epsilon, wrong in ((1.0, False), (4.0, True)):
        assert warned(made, epsilon, reports, made.name) == wrong
    hashing = LocalHashing(SIZE, 1.0)
    reports = np.array(hashing.randomize(jax.random.key(0), values))
    buckets = {"num_buckets": hashing.num_buckets}
    assert not warned(hashing, 1.0, reports, hashing.name, **buckets)
    reports[:, 0] = 7
    assert warned(hashing, 1.0, reports, hashing.name, **buckets)


@pytest.mark.full
@pytest.mark.once
def test_counts_that_were_never_randomized_are_warned_of(invoke):
    """No category alone is impossible; together they are, and nothing is to be reported or published."""
    pytest.importorskip("duckdb", reason="files need rrjax[cli]")
    from rrjax import io

    size, epsilon = 2000, 6.0
    shares = 1 / np.arange(1, size + 1) ** 0.3
    true = np.round(6 * size * shares / shares.sum()).astype(int)
    honest = np.asarray(rrjax.simulate.collect(jax.random.key(0), true / true.sum(), true.sum(), epsilon)[1])
    for counts, wrong in ((true, True), (honest, False)):
        io.write_table("r.parquet", {"label": np.arange(size), "n": counts})
        line = ("--column", "label", "--counts", "n", "--epsilon", epsilon)
        for command in (("estimate", "r.parquet"), ("estimate", "r.parquet", "--mean"), ("compare", "r.parquet")):
            if command[0] == "compare":
                line += ("--estimator", "mle-star")
            code, out, error = invoke(*command, *line)
            assert code == 0, error
            assert ("The reports contradict their mechanism" in error) == wrong
            assert ("\nReport " in out) == (not wrong and len(command) == 2 and command[0] == "estimate")
        found = json.loads(invoke("estimate", "r.parquet", *line[:-2], "--json")[1])
        assert set(found["metadata_tests"]) == PARTS - {"sum_of_shares"}
        assert (found["advice"] is None) == (found["to_publish"] == "") == wrong
        assert found["metadata_tests"]["single"]["p_value"] > 0.01


@pytest.mark.long
@pytest.mark.parametrize(("count", "number"), [(9, 10), (18, 20), (8, 10), (15, 20)])
def test_tails_of_a_count_that_is_its_mean(count, number):
    """XLA computes the distance from the mean twice, and may round it to two sides of zero."""
    p = count / number
    data = support_data(rrjax.Tally(np.array([count, number - count], INT), number, p=p, q=1 - p), None)
    below, above = (np.exp(jax.jit(tail, static_argnums=1)(data, 1.0)) for tail in (log_below, log_above))
    np.testing.assert_allclose(below[0], stats.binom.cdf(count, number, p), rtol=1e-4)
    np.testing.assert_allclose(above[0], stats.binom.sf(count - 1, number, p), rtol=1e-4)
