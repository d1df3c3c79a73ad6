"""Losses of randomized reports: against channels written out, against float64, and against plain cross-entropy."""

import functools
import math

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import FLOAT, ULP, X64
from channels import CHANNELS, channel
from jax.test_util import check_grads
from refusals import refused

import rrjax
from rrjax.mechanisms import MECHANISMS, Channel, RandomizedResponse, SubsetSelection
from rrjax.mechanisms.longitudinal.bit_flipping import BitFlipping
from rrjax.models import backward_loss, rr_loss


def logits_of(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(FLOAT)


def softmax(logits):
    power = np.exp(np.asarray(logits, float))
    return power / power.sum(-1, keepdims=True)


@pytest.mark.long
@pytest.mark.parametrize("name", CHANNELS)
def test_the_loss_is_the_likelihood_of_the_whole_report(name):
    """With nothing left out, by the law of the channel; and as that channel."""
    mechanism = MECHANISMS[name](8, 3.0)
    reports, law, _ = channel(mechanism)
    logits = logits_of(len(reports), 8)
    wanted = -np.log((softmax(logits) * law.T).sum(1))
    np.testing.assert_allclose(rr_loss(logits, reports, mechanism), wanted, rtol=8 * ULP, atol=8 * ULP)
    as_channel = rr_loss(logits, np.arange(len(reports)), Channel(law / law.sum(1, keepdims=True)))
    np.testing.assert_allclose(as_channel, wanted, rtol=8 * ULP, atol=8 * ULP)


@pytest.mark.long
@pytest.mark.parametrize("name", ["optimized-local-hashing", "binary-local-hashing"])
def test_the_loss_of_a_hash_is_the_likelihood_of_its_bucket(name):
    mechanism = MECHANISMS[name](5, 1.5)
    reports = mechanism.randomize(jax.random.key(0), np.arange(5).repeat(20))
    logits = logits_of(100, 5)
    there = np.asarray(mechanism.supports(reports))
    p, other = float(mechanism.rates.p), float(mechanism.rates.not_p) / (mechanism.num_buckets - 1)
    wanted = -np.log((softmax(logits) * np.where(there, p, other)).sum(1))
    np.testing.assert_allclose(rr_loss(logits, reports, mechanism), wanted, rtol=8 * ULP)


@pytest.mark.long
def test_the_loss_of_flipped_bits_is_the_likelihood_of_the_whole_report():
    size, asked, epsilon = 4, 2, 1.3
    mechanism = BitFlipping(size, epsilon, num_bits=asked)
    rows = np.stack(np.meshgrid(*[[-1, 0, 1]] * size), -1).reshape(-1, size)
    rows = rows[(rows >= 0).sum(1) == asked].astype(np.int8)
    p = 1 / (1 + math.exp(-epsilon / 2))
    right = np.where(rows[:, None] == np.eye(size, dtype=int), p, 1 - p)  # of report, value, and bit
    law = np.where(rows[:, None] >= 0, right, 1).prod(2) / math.comb(size, asked)
    np.testing.assert_allclose(law.sum(0), 1)
    logits = logits_of(len(rows), size)
    wanted = -np.log((softmax(logits) * law).sum(1))
    np.testing.assert_allclose(rr_loss(logits, rows, mechanism), wanted, rtol=8 * ULP)


@functools.cache
def reference():
    """In float64, in steps of NumPy that need not be fast."""
    size = 100_000
    rng = np.random.default_rng(1)
    logits = np.concatenate([rng.normal(size=(3, size)), 20 * rng.normal(size=(3, size))]).astype(np.float32)
    reports = np.concatenate([rng.integers(0, size, 3), logits[3:].argmax(1)[:2], [7]])
    wide = logits.astype(np.float64)
    peak = wide.max(1)
    log_share = wide[np.arange(6), reports] - peak - np.log(np.exp(wide - peak[:, None]).sum(1))
    return logits, reports, log_share


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 11.5, 30.0, 100.0])
def test_float32_is_close_to_float64_for_every_epsilon(epsilon):
    logits, reports, log_share = reference()
    size = logits.shape[1]
    # q + d·s over p, which is at most one.
    wanted = math.log1p((size - 1) * math.exp(-epsilon)) - np.log(
        math.exp(-epsilon) - math.expm1(-epsilon) * np.exp(log_share)
    )
    found = rr_loss(logits, reports, np.float32(epsilon))
    assert found.dtype == np.float32
    np.testing.assert_array_less(np.abs(np.asarray(found, float) - wanted), 1e-6 * np.maximum(1, wanted))


@pytest.mark.full
def test_the_loss_is_cross_entropy_where_nothing_is_randomized():
    logits, labels = logits_of(20, 6), np.arange(20) % 6
    plain = optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(logits), jnp.asarray(labels))
    for epsilon in (800.0, math.inf):
        np.testing.assert_allclose(rr_loss(logits, labels, epsilon), plain, rtol=4 * ULP)
    slopes = jax.grad(lambda z: rr_loss(z, labels, math.inf).sum())(jnp.asarray(logits))
    wanted = jax.grad(lambda z: optax.softmax_cross_entropy_with_integer_labels(z, jnp.asarray(labels)).sum())(
        jnp.asarray(logits)
    )
    np.testing.assert_allclose(slopes, wanted, atol=8 * ULP)


@pytest.mark.full
def test_every_example_may_have_an_epsilon_of_its_own():
    logits, reports = logits_of(4, 3, 5), np.arange(12).reshape(4, 3) % 5
    epsilon = np.linspace(0.3, 4, 12, dtype=FLOAT).reshape(4, 3)
    for loss in (rr_loss, backward_loss):
        together = loss(logits, reports, epsilon)
        alone = [loss(logits[i], reports[i], e) for i, e in np.ndenumerate(epsilon)]
        np.testing.assert_allclose(together.ravel(), alone, rtol=4 * ULP, atol=4 * ULP)
        one_each_row = loss(logits, reports, epsilon[:, :1])
        np.testing.assert_allclose(one_each_row[:, 0], together[:, 0], rtol=4 * ULP, atol=4 * ULP)


@pytest.mark.long
def test_weights_of_reports_are_sums_of_reports():
    logits = logits_of(6, 5)
    weights = np.random.default_rng(0).integers(0, 4, (6, 5)).astype(FLOAT)
    for loss in (rr_loss, backward_loss):
        each = np.stack([loss(logits, np.full(6, j), 1.2) for j in range(5)], -1)
        np.testing.assert_allclose(loss(logits, weights, 1.2), (weights * each).sum(-1), rtol=20 * ULP)


@pytest.mark.full
def test_masks_take_away_categories_and_examples():
    logits, reports = logits_of(4, 5), np.asarray([0, 1, -1, 4])
    where = np.ones((4, 5), bool)
    where[2] = False
    where[:, 3] = False
    rest = np.delete(np.arange(5), 3)
    slope = jax.grad(lambda z: rr_loss(z, reports, 1.0, where=where).sum())(jnp.asarray(logits))
    assert np.isfinite(slope).all()
    assert not slope[2].any()
    assert not slope[:, 3].any()
    found = rr_loss(logits, reports, 1.0, where=where)
    assert float(found[2]) == 0
    # K stays that of the randomizer, whatever the model leaves possible.
    share = softmax(logits[:, rest])
    q = 1 / (math.e + 4)
    wanted = -np.log(q + (math.e - 1) * q * np.stack([share[0, 0], share[1, 1], share[3, 3]]))
    np.testing.assert_allclose(np.asarray(found)[[0, 1, 3]], wanted, rtol=8 * ULP)
    # What the model leaves out may be reported all the same.
    assert float(rr_loss(logits[0], 3, 1.0, where=where[0])) == pytest.approx(-math.log(q), rel=8 * ULP)
    # The reports of masked examples need not be any.
    subsets = SubsetSelection(5, 1.0, subset_size=2)
    pairs = np.asarray([[0, 1], [1, 4], [-1, -1], [2, 3]])
    masked = rr_loss(logits, pairs, subsets, where=where.any(1)[:, None])
    np.testing.assert_allclose(
        np.delete(masked, 2), rr_loss(np.delete(logits, 2, 0), np.delete(pairs, 2, 0), subsets), rtol=4 * ULP
    )
    traced = jax.jit(lambda z, y, w: rr_loss(z, y, 1.0, where=w))(logits, jnp.asarray(reports), where)
    np.testing.assert_allclose(traced, found, rtol=4 * ULP)


@pytest.mark.long
@pytest.mark.parametrize("name", ["randomized-response", "optimized-unary-encoding", "subset-selection"])
def test_backward_correction_has_the_mean_of_the_cross_entropy_of_the_truth(name):
    """By enumeration: over the reports of each value."""
    mechanism = MECHANISMS[name](4, 1.2)
    reports, law, _ = channel(mechanism)
    logits = logits_of(4)
    losses = backward_loss(np.broadcast_to(logits, (len(reports), 4)), reports, mechanism)
    np.testing.assert_allclose(law @ np.asarray(losses, float), -np.log(softmax(logits)), rtol=50 * ULP)


@pytest.mark.long
def test_the_likelihood_has_its_maximum_at_mle_star():
    counts = np.asarray([500, 300, 150, 50])
    theta = rrjax.mle_star(counts, 3.0)
    assert float(jnp.min(theta)) > 0  # else the slope in the logits says nothing of the shares that are zero
    slope = jax.grad(lambda z: rr_loss(z, (counts / 1000).astype(FLOAT), 3.0))
    np.testing.assert_allclose(slope(jnp.log(theta)), 0, atol=4 * ULP)
    assert float(jnp.abs(slope(jnp.log(theta[::-1]))).max()) > 0.1


@pytest.mark.long  # second derivatives of four mechanisms
@pytest.mark.skipif(not X64, reason="finite differences need float64")
@pytest.mark.parametrize("loss", [rr_loss, backward_loss])
def test_derivatives_are_those_of_finite_differences(loss):
    logits, reports = logits_of(3, 5), np.asarray([0, 2, 4])
    check_grads(lambda z, e: loss(z, reports, e), (logits, np.asarray([0.5, 1.0, 3.0])), order=2)
    bits = np.asarray([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    for name in ("optimized-unary-encoding", "symmetric-unary-encoding"):
        check_grads(lambda z, e, n=name: loss(z, bits, MECHANISMS[n](5, e)), (logits, 1.0), order=2)
    matrix = np.asarray(RandomizedResponse(5, 1.0).channel())
    check_grads(lambda z: loss(z, reports, Channel(matrix)), (logits,), order=2)


@pytest.mark.long
def test_the_slope_keeps_its_digits_at_a_small_epsilon():
    """It is of the size of ε: a difference of numbers that are not would lose it."""
    logits, report, epsilon = logits_of(6), 2, 1e-3
    share = softmax(logits)
    odds = math.expm1(epsilon)
    wanted = -odds / (1 + odds * share[report]) * share[report] * (np.eye(6)[report] - share)
    found = jax.grad(lambda z: rr_loss(z, report, epsilon))(jnp.asarray(logits))
    np.testing.assert_allclose(found, wanted, rtol=50 * ULP)


def test_what_is_wrong_is_named():
    logits = logits_of(3, 4)
    with refused("reports"):
        rr_loss(logits, [0, 1, 4], 1.0)
    with refused("epsilon"):
        rr_loss(logits, [0, 1, 2], np.asarray([1.0, 0.0, 2.0]))
    with refused("epsilon"):
        rr_loss(logits, [0, 1, 2], -1.0)
    with refused("epsilon"):
        rr_loss(logits[0], 0, 0.0)
    with refused("epsilon"):
        rr_loss(logits, [0, 1, 2], np.ones(2))
    with refused("reports"):
        rr_loss(logits, [0, 1], 1.0)
    with refused("mechanism_or_epsilon"):
        rr_loss(logits, [0, 1, 2], RandomizedResponse(5, 1.0))
    with refused("logits"):
        rr_loss(np.ones((3, 4), int), [0, 1, 2], 1.0)
    with refused("reports"):
        rr_loss(logits, np.ones(3), 1.0)
    with refused("where"):
        rr_loss(logits, [0, 1, 2], 1.0, where=np.ones((3, 4)))
    traced = jax.jit(lambda y, e: rr_loss(logits, y, e))(jnp.asarray([0, 9, 2]), jnp.asarray([1.0, 1.0, -1.0], FLOAT))
    np.testing.assert_array_equal(np.isnan(traced), [False, True, True])


@pytest.mark.long
@pytest.mark.parametrize("loss", [rr_loss, backward_loss])
def test_a_loss_is_exported_for_any_number_of_examples(loss):
    number = jax.export.symbolic_shape("b")
    logits, reports = (
        jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in (((*number, 6), FLOAT), (number, np.int32))
    )
    exported = jax.export.export(jax.jit(lambda logits, reports: loss(logits, reports, 1.5)))(logits, reports)
    for size in (1, 7):
        given = logits_of(size, 6), np.arange(size, dtype=np.int32) % 6
        np.testing.assert_allclose(exported.call(*given), loss(*given, 1.5), rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
def test_a_fit_has_no_derivative_and_says_so(derivative):
    ages, reports = np.asarray([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), np.asarray([0, 1, 0, 1, 0, 1])

    def gap(epsilon):
        return rrjax.models.fit(ages, reports, epsilon, num_categories=2).gap

    with pytest.raises(NotImplementedError):
        derivative(gap)(1.0)
