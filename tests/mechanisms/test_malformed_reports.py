"""What is no report of a mechanism, where tracing hides it: tallies of −1, likelihoods and losses of NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, X64
from refusals import refused

import rrjax
from rrjax import longitudinal
from rrjax.mechanisms import MECHANISMS, BinaryLocalHashing, Channel, Geometric, LocalHashing, SquareWave, Warner
from rrjax.mechanisms.longitudinal.bit_flipping import BitFlipping
from rrjax.models import CandidateResponse, backward_loss, rr_loss

K = 4
CHOSEN = {"projective-geometry-response": {"field_order": 2}}
MADE = {name: kind(K, 1.0, **CHOSEN.get(name, {})) for name, kind in MECHANISMS.items()} | {
    "warner": Warner(0.3),
    "bit-flipping": BitFlipping(K, 1.0, num_bits=2),
    "two subsets": rrjax.mechanisms.SubsetSelection(K, 1.0, subset_size=2),
}
NUMBERS = [-1, 2**31 - 1]
BITS = [[2, 0, 0, 0], [-1, -1, -1, -1], [0, 1, 0, 255]]
HASHES = [[0, -1], [0, 2**31 - 1], [-5, 0]]
MALFORMED = {
    "symmetric-unary-encoding": BITS,
    "optimized-unary-encoding": BITS,
    "binary-local-hashing": [*HASHES, [0, 2]],
    "optimized-local-hashing": [*HASHES, [0, 4]],
    "subset-selection": [[-1], [K]],
    "two subsets": [[1, 1], [-1, 2], [0, K], [-1, -1]],
    "randomized-response": [*NUMBERS, K],
    "hadamard-response": [*NUMBERS, 8],
    "projective-geometry-response": [*NUMBERS, 7],
    "warner": [*NUMBERS, 2],
    "bit-flipping": [[1, 1, 1, -1], [0, 1, 2, -1], [-1, -1, -1, -1], [-2, -2, 0, 1]],
}
every = pytest.mark.parametrize("name", MADE)


def given(name):
    """Three reports of the mechanism, and a list of such with one more that is none."""
    mechanism = MADE[name]
    reports = np.asarray(mechanism.randomize(jax.random.key(0), np.arange(3) % mechanism.num_categories))
    if "hashing" in name:
        reports = reports >> np.asarray([1, 0], np.uint32)  # so that int32 holds the seeds
    reports = reports.astype(INT)
    return mechanism, reports, [np.concatenate([reports, np.asarray([wrong], INT)]) for wrong in MALFORMED[name]]


def test_every_mechanism_is_here():
    assert set(MALFORMED) == set(MADE) >= set(MECHANISMS)


@pytest.mark.full
@every
def test_a_tally_and_a_likelihood_with_what_is_no_report_are_unusable(name):
    mechanism, reports, broken = given(name)
    theta = np.full(mechanism.num_categories, 1 / mechanism.num_categories, FLOAT)

    @jax.jit
    def found(reports):
        tally = mechanism.tally(reports)
        return tally.support, tally.num_users, rrjax.nll(theta, mechanism.mixture(reports))

    _, number, loss = found(np.concatenate([reports, reports[:1]]))
    assert int(number) == 4
    assert np.isfinite(loss)
    for wrong in broken:
        support, number, loss = found(wrong)
        assert (np.asarray(support) < 0).all()
        assert number < 0
        assert np.isnan(loss)
        for refuses in (mechanism.tally, mechanism.mixture):
            with pytest.raises(ValueError):  # noqa: PT011
                refuses(wrong)


@pytest.mark.long
@every
def test_the_loss_of_what_is_no_report_is_nan_with_its_derivatives_unless_it_is_masked(name):
    mechanism, reports, broken = given(name)
    logits = jnp.linspace(-1, 1, 4 * mechanism.num_categories).reshape(4, -1)

    @jax.jit
    def found(reports, there):
        def total(logits):
            losses = rr_loss(logits, reports, mechanism, where=there[:, None])
            return losses.sum(), losses

        slopes, losses = jax.grad(total, has_aux=True)(logits)
        return losses, slopes, mechanism.debias(reports)

    everybody, without = np.ones(4, bool), np.arange(4) < 3
    wanted, expected, _ = found(np.concatenate([reports, reports[:1]]), without)
    for wrong in broken:
        losses, slopes, vectors = found(wrong, everybody)
        assert np.isfinite(losses).tolist() == [True] * 3 + [False]
        assert np.isfinite(slopes).all(axis=1).tolist() == [True] * 3 + [False]
        for rows in (slopes, vectors):
            assert np.isnan(rows).all(axis=1).tolist() == [False] * 3 + [True]
        losses, slopes, _ = found(wrong, without)
        np.testing.assert_array_equal(losses, wanted)
        np.testing.assert_array_equal(slopes, expected)
        with pytest.raises(ValueError):  # noqa: PT011
            rr_loss(logits, wrong, mechanism)


@pytest.mark.parametrize("law", [1.5, MADE["randomized-response"], MADE["optimized-unary-encoding"]])
def test_the_backward_loss_of_what_is_no_report_is_nan_with_its_derivatives(law):
    logits = jnp.sin(jnp.arange(2.0 * K)).reshape(2, K)
    slopes = jax.jit(jax.grad(lambda logits, given: backward_loss(logits, given, law).sum()))
    bits = isinstance(law, rrjax.mechanisms.OptimizedUnaryEncoding)
    wrong = BITS if bits else [-1, K, 9, np.uint8(200)]
    for each in wrong:
        reports = np.asarray([[0, 1, 0, 0], each]) if bits else np.asarray([0, each], getattr(each, "dtype", INT))
        assert np.isnan(slopes(logits, reports)).all(axis=1).tolist() == [False, True]


def test_booleans_are_bits():
    mechanism = MADE["optimized-unary-encoding"]
    assert jax.jit(mechanism.is_report)(np.asarray([[True, False, False, True]])).all()


@pytest.mark.skipif(not X64, reason="integers of 32 bits wrap to nothing else")
def test_no_wide_integer_wraps_to_a_report():
    wide = 2**32
    for name, wrong in (
        ("randomized-response", [wide + 1]),
        ("hadamard-response", [wide + 1]),
        ("binary-local-hashing", [[wide + 7, 1], [7, wide + 1]]),
        ("two subsets", [[1, wide + 2]]),
        ("optimized-unary-encoding", [[wide + 1, 0, 0, 0]]),
    ):
        assert not jax.jit(MADE[name].is_report)(np.asarray(wrong)).any(), name


@pytest.mark.long
def test_other_laws_say_so_too():
    theta = np.full(K, 1 / K)
    logits = jnp.zeros((2, K))
    channel = Channel(rrjax.RandomizedResponse(K, 1.0).channel())
    for wrong in (-1, K):
        reports = jnp.asarray([0, wrong])
        for law in (channel, Geometric(K, 1.0)):
            assert np.isnan(jax.jit(lambda given, law=law: rrjax.nll(theta, law.mixture(given)))(reports))
        for law in (channel, CandidateResponse(np.ones((2, K), bool), 1.0)):
            slopes = jax.jit(jax.grad(lambda logits, given, law=law: rr_loss(logits, given, law).sum()))
            assert np.isnan(slopes(logits, reports)).all(axis=1).tolist() == [False, True]
    for wrong in (-1.0, 2.0, np.nan):
        assert np.isnan(jax.jit(lambda x: rrjax.nll(theta, SquareWave(K, 1.0).mixture(x)))(jnp.asarray([0.5, wrong])))
    weights = jnp.asarray([[1.0, 0, 0, 0], [1.0, -1.0, 0, 0]])
    with refused("reports"):
        rr_loss(logits, weights, 1.0)
    assert np.isnan(jax.jit(lambda given: rr_loss(logits, given, 1.0))(weights)).tolist() == [False, True]


FILTERS = longitudinal.bloom_filters(["red", "green", "blue"], 8, 2, num_cohorts=2)
PROTOCOLS = {
    "randomized response": (longitudinal.LongitudinalRandomizedResponse(3, 2.0, 1.0), [[0, 1], [2, -1]]),
    "unary encoding": (
        longitudinal.LongitudinalUnaryEncoding(3, 2.0, 0.5, instantaneous_encoding="optimized"),
        [[[0, 1, 0]] * 2, [[0, 2, 1]] * 2],
    ),
    "local hashing": (longitudinal.LongitudinalLocalHashing(3, 2.0, 1.0), [[[7, 1]] * 2, [[7, 1], [7, 2**31 - 1]]]),
    "two seeds": (longitudinal.LongitudinalLocalHashing(3, 2.0, 1.0), [[[7, 1]] * 2, [[7, 1], [8, 1]]]),
    "bit flipping": (longitudinal.LongitudinalBitFlipping(3, 2.0, num_bits=2), [[[1, 0, -1]] * 2, [[1, 2, -1]] * 2]),
    "bits that differ": (
        longitudinal.LongitudinalBitFlipping(3, 2.0, num_bits=2),
        [[[1, 0, -1]] * 2, [[1, 0, -1], [1, 1, -1]]],
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_likelihood_of_all_rounds_is_nan_with_what_is_no_report(name):
    protocol, reports = PROTOCOLS[name]
    theta, reports = np.full(3, 1 / 3), np.asarray(reports, INT)
    loss = jax.jit(lambda given: rrjax.nll(theta, protocol.mixture(given)))
    assert np.isfinite(loss(reports[:1]))
    assert np.isnan(loss(reports))
    with pytest.raises(ValueError):  # noqa: PT011
        protocol.mixture(reports)


@pytest.mark.long
def test_rappor_with_what_is_no_bit():
    rappor = longitudinal.Rappor(FILTERS, 2)
    theta, bits = np.full(3, 1 / 3), np.zeros((3, 8), INT)
    loss = jax.jit(lambda cohorts, bits: rrjax.nll(theta, rappor.mixture(longitudinal.CohortBits(cohorts, bits))))
    found = jax.jit(lambda cohorts, bits: rappor.regression(longitudinal.CohortBits(cohorts, bits), num_steps=2).theta)
    cohorts = np.asarray([0, 1, 0], INT)
    assert np.isfinite(loss(cohorts, bits))
    for wrong in (2, -1):
        broken = bits.copy()
        broken[1, 3] = wrong
        assert np.isnan(loss(cohorts, broken))
        assert np.isnan(found(cohorts, broken)).all()
    assert np.isnan(loss(np.asarray([0, 1, 2], INT), bits))


def hashed(*buckets):
    """The reports of three users, with the seeds 0, 1 and 2."""
    return jnp.stack([jnp.arange(3, dtype=jnp.uint32), jnp.asarray(buckets, jnp.uint32)], axis=-1)


@pytest.mark.full
@pytest.mark.parametrize("law", [LocalHashing(3, 1.5, num_buckets=5), BinaryLocalHashing(3, 1.5)])
def test_hashes_that_a_compiled_function_holds_are_looked_at(law):
    reports = hashed(0, 1, 1)
    logits = jnp.zeros((3, 3))
    for function in (
        lambda scale: rrjax.inv_p(law.tally(reports)) * scale,
        lambda scale: rrjax.nll(scale * jnp.full(3, 1 / 3), law.mixture(reports)),
        lambda scale: law.debias(reports) * scale,
        lambda scale: rr_loss(logits, reports, law) * scale,
    ):
        np.testing.assert_allclose(jax.jit(function)(1.0), function(1.0), rtol=1e-6)
    wrong = hashed(0, 1, 5)
    with refused("buckets"):
        jax.jit(lambda scale: rrjax.inv_p(law.tally(wrong)) * scale)(1.0)


@pytest.mark.long
def test_rounds_that_a_compiled_function_holds_are_looked_at():
    hashing, flipping = PROTOCOLS["local hashing"][0], PROTOCOLS["bit flipping"][0]
    hashes, bits = jnp.stack([hashed(0, 1, 1)] * 2, axis=1), jnp.asarray([[[1, 0, -1]] * 2], jnp.int32)
    for protocol, reports, wrong in (
        (hashing, hashes, hashes.at[0, 0, 0].set(9)),
        (flipping, bits, bits.at[0, 0, 0].set(0)),
    ):

        def loss(scale, protocol=protocol, reports=reports):
            return rrjax.nll(scale * jnp.full(3, 1 / 3), protocol.mixture(reports))

        np.testing.assert_allclose(jax.jit(loss)(1.0), loss(1.0), rtol=1e-6)
        with refused("reports"):
            jax.jit(lambda scale, loss=loss, wrong=wrong: loss(scale, reports=wrong))(1.0)
