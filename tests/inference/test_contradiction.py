"""Whether reports contradict their metadata: against exact laws, and of files that were made otherwise."""

import json

import jax
import numpy as np
import pytest
from cases import FLOAT, INT
from refusals import refused
from scipy import stats

import rrjax
from rrjax.inference import contradiction_test, repeated_seed_test
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.mechanisms import (
    HadamardResponse,
    LocalHashing,
    OptimizedUnaryEncoding,
    ProjectiveGeometry,
    RandomizedResponse,
    SubsetSelection,
)

SIZE = 6


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


@pytest.mark.long
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


def test_an_unusable_tally_gives_nan():
    mechanism = OptimizedUnaryEncoding(SIZE, 1.0)
    tally = rrjax.Tally(np.full(SIZE, -1, INT), np.asarray(5, INT), rates=mechanism.rates)
    assert np.isnan(contradiction_test(tally, mechanism).p_value)
    with refused("support"):
        contradiction_test(rrjax.Tally(np.ones(SIZE, FLOAT), FLOAT.type(3), rates=mechanism.rates), mechanism)


def test_equal_seeds():
    # Two of N by the birthday problem, of seeds of eight bits.
    chance = 1 - np.prod(1 - np.arange(5) / 256)
    assert chance <= float(repeated_seed_test(2, 5, seed_bits=8).p_value) == pytest.approx(10 / 256)
    assert float(repeated_seed_test(1, 10**6).p_value) == 1
    assert float(repeated_seed_test(10**6, 10**6).p_value) == 0
    with refused("most", value=9):
        repeated_seed_test(9, 8)


@pytest.mark.long  # four estimates, each compiled
@pytest.mark.once
def test_files_that_were_made_otherwise_are_warned_of(invoke):
    """Made at ε = 1 and read as 4, and hashed by one function for all; the same as they are pass."""
    pytest.importorskip("duckdb", reason="files need rrjax[cli]")
    from rrjax import io
    from rrjax.io.codings import CODINGS

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
        assert set(tests) == {"sum_of_shares"} | ({"repeated_seed"} if "hashing" in name else set())
        said = (out + error).count("Do not use these estimates")
        assert said == sum(test["p_value"] <= 0.01 for test in tests.values())
        return said

    made = OptimizedUnaryEncoding(SIZE, 1.0)
    reports = np.asarray(made.randomize(jax.random.key(0), values))
    for epsilon, number in ((1.0, 0), (4.0, 1)):
        assert warned(made, epsilon, reports, made.name) == number
    hashing = LocalHashing(SIZE, 1.0)
    reports = np.array(hashing.randomize(jax.random.key(0), values))
    buckets = {"num_buckets": hashing.num_buckets}
    assert warned(hashing, 1.0, reports, hashing.name, **buckets) == 0
    reports[:, 0] = 7
    assert warned(hashing, 1.0, reports, hashing.name, **buckets) >= 1
