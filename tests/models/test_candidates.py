"""Randomized response among candidates: its law by enumeration, the best k by brute force, and its likelihood."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP, X64
from jax.test_util import check_grads
from refusals import refused

from rrjax.models import CandidateResponse, backward_loss, fit, rr_loss, rr_with_prior
from rrjax.models.loss import _kept

MASKS = np.asarray([[1, 1, 0, 0, 1], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 1, 1]], bool)
EPSILONS = [1e-3, 0.5, 2.0, 8.0, 40.0]


def law(mask, epsilon):
    """P(report | label), `[K, K]`, written out in float64; row = label."""
    number, size = int(mask.sum()), len(mask)
    others = math.exp(-epsilon) / (1 + (number - 1) * math.exp(-epsilon))
    own = 1 / (1 + (number - 1) * math.exp(-epsilon))
    rows = [
        np.where(np.arange(size) == label, own, others) if mask[label] else np.full(size, 1 / number)
        for label in range(size)
    ]
    return np.where(mask, rows, 0)


def softmax(logits):
    power = np.exp(np.asarray(logits, float))
    return power / power.sum(-1, keepdims=True)


def logits_of(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(FLOAT)


def priors(number, size, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(size, 0.4), number).astype(FLOAT)


@pytest.mark.full
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_report_tells_labels_apart_by_more_than_epsilon(epsilon):
    """What the likelihood says of each label, by enumeration: a law, and a private one."""
    for mask in MASKS:
        reports = np.flatnonzero(mask)
        rows = CandidateResponse(np.tile(mask, (len(reports), 1)), epsilon).log_rows(reports)
        written = np.asarray(rows.log_probability(jnp.log(jnp.eye(5, dtype=FLOAT))[:, None]), float)  # [label, report]
        np.testing.assert_allclose(np.exp(written), law(mask, epsilon)[:, reports], rtol=20 * ULP, atol=1e-30)
        spread = written.max(axis=0) - written.min(axis=0)
        assert (spread <= epsilon * (1 + 4 * ULP) + 4 * ULP).all()
        assert (spread > 0.99 * epsilon).all() or mask.sum() == 1


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_reports_have_that_law(epsilon):
    """Of every label, 20,000 simulated reports each: Pearson's statistic over its degrees, in standard errors."""
    number = 20_000
    for mask in MASKS:
        labels = np.arange(5).repeat(number)
        mechanism = CandidateResponse(np.broadcast_to(mask, (len(labels), 5)), epsilon)
        reports = np.asarray(mechanism.randomize(jax.random.key(3), labels)).reshape(5, number)
        found = np.stack([np.bincount(row, minlength=5) for row in reports])
        wanted = number * law(mask, epsilon)
        assert not found[:, ~mask].any()
        if mask.sum() > 1:
            error = np.sqrt(wanted * (1 - wanted / number))[:, mask]
            assert np.abs((found - wanted)[:, mask] / error).max() < 4.5  # of 15 numbers at the most


@pytest.mark.parametrize("epsilon", [1e-3, 0.7, 3.0, 12.0])
@pytest.mark.parametrize("number", [2, 3, 1000, 100_000])
def test_rounding_never_weakens_epsilon(number, epsilon):
    """Of the integer that a draw of 64 bits is compared with, in rational arithmetic."""
    epsilon = FLOAT.type(epsilon)
    high, low = _kept(jnp.uint32(number), jnp.asarray(epsilon))
    kept = Fraction(int(high) * 2**32 + int(low), 2**64)
    # Other words choose among n − 1 others, none of which is rarer by more than 2⁻⁶⁴.
    other = (1 - kept) * (Fraction(1, number - 1) - Fraction(1, 2**64))
    delivered = math.log(kept / other)
    assert 0.99 * epsilon < delivered <= epsilon


@pytest.mark.full
def test_a_prior_chooses_as_many_as_brute_force_does():
    prior = priors(60, 7)
    for epsilon in EPSILONS:
        ordered = -np.sort(-prior.astype(float), axis=1)
        heard = ordered.cumsum(1) / (1 + np.arange(7) * math.exp(-epsilon))
        mechanism = rr_with_prior(prior, FLOAT.type(epsilon))
        number = np.asarray(mechanism.num_candidates)
        np.testing.assert_allclose(heard[np.arange(60), number - 1], heard.max(1), rtol=8 * ULP)
        # They are the likeliest ones.
        candidates = np.asarray(mechanism.candidates)
        least = np.where(candidates, prior, np.inf).min(1)
        assert (least >= np.where(candidates, 0, prior).max(1)).all()
    assert len(set(np.asarray(rr_with_prior(prior, 2.0).num_candidates).tolist())) >= 3
    each = rr_with_prior(prior.reshape(3, 20, 7), np.linspace(0.2, 4, 20, dtype=FLOAT))
    alone = rr_with_prior(prior[25], np.linspace(0.2, 4, 20)[5])
    np.testing.assert_array_equal(each.candidates[1, 5], alone.candidates)


@pytest.mark.long
def test_no_private_mechanism_has_a_report_that_is_the_label_more_often():
    """Against linear programming over all mechanisms of that ε."""
    from scipy.optimize import linprog

    for prior in priors(4, 4, seed=5).astype(float):
        for epsilon in (0.5, 2.0):
            # P(report j | label i) ≤ e^ε·P(report j | label h), rows add up to one.
            rows = []
            for j in range(4):
                for i in range(4):
                    for h in range(4):
                        row = np.zeros((4, 4))
                        row[i, j] += 1
                        row[h, j] -= math.exp(epsilon)
                        rows += [row.ravel()] * (i != h)
            best = linprog(
                -(prior[:, None] * np.eye(4)).ravel(),
                A_ub=np.asarray(rows),
                b_ub=np.zeros(len(rows)),
                A_eq=np.kron(np.eye(4), np.ones(4)),
                b_eq=np.ones(4),
            )
            mask = np.asarray(rr_with_prior(prior.astype(FLOAT), epsilon).candidates)
            assert prior @ np.diag(law(mask, epsilon)) == pytest.approx(-best.fun, rel=1e-6)


@pytest.mark.long
def test_how_many_candidates_may_be_given():
    prior = priors(6, 5)
    for number in (1, 3, 5):
        assert (np.asarray(rr_with_prior(prior, 1.0, num_candidates=number).num_candidates) == number).all()
    each = np.asarray([1, 2, 3, 4, 5, 1])
    np.testing.assert_array_equal(rr_with_prior(prior, 1.0, num_candidates=each).num_candidates, each)
    ties = rr_with_prior(np.full(4, 0.25, FLOAT), 1.0, num_candidates=2)
    assert ties.candidates.tolist() == [True, True, False, False]


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [*EPSILONS, math.inf])
def test_the_loss_is_the_likelihood_by_enumeration(epsilon):
    logits, reports = logits_of(4, 5), np.asarray([4, 1, 2, 3])
    wanted = [
        -math.log(row @ law(mask, epsilon)[:, report])
        for row, mask, report in zip(softmax(logits), MASKS, reports, strict=True)
    ]
    found = rr_loss(logits, reports, CandidateResponse(MASKS, epsilon))
    np.testing.assert_allclose(found, wanted, rtol=8 * ULP, atol=8 * ULP)
    assert abs(float(found[1])) < 8 * ULP  # the only candidate says nothing
    slope = jax.grad(lambda z: rr_loss(z, reports, CandidateResponse(MASKS, epsilon)).sum())(jnp.asarray(logits))
    np.testing.assert_allclose(slope[1], 0, atol=8 * ULP)
    assert float(jnp.abs(slope[0]).max()) > 1e-4 * min(epsilon, 1)


@pytest.mark.long
def test_all_labels_as_candidates_are_randomized_response():
    logits, reports = logits_of(6, 5), np.arange(6) % 5
    epsilon = np.linspace(0.3, 3, 6, dtype=FLOAT)
    found = rr_loss(logits, reports, CandidateResponse(np.ones((6, 5), bool), epsilon))
    np.testing.assert_allclose(found, rr_loss(logits, reports, epsilon), rtol=8 * ULP)


@pytest.mark.skipif(not X64, reason="finite differences need float64")
def test_derivatives_are_those_of_finite_differences():
    reports = np.asarray([4, 1, 2, 3])

    def loss(logits, epsilon):
        return rr_loss(logits, reports, CandidateResponse(MASKS, epsilon))

    check_grads(loss, (logits_of(4, 5), np.asarray([0.5, 1.0, 3.0, 6.0])), order=1)


@pytest.mark.long
def test_many_labels_in_float32():
    """A hundred thousand of them: against float64 on the host."""
    size, number = 100_000, 30
    rng = np.random.default_rng(0)
    logits = (3 * rng.normal(size=(2, size))).astype(np.float32)
    for epsilon in (1e-3, 1.0, 30.0):
        mechanism = rr_with_prior(softmax(logits).astype(np.float32), epsilon, num_candidates=number)
        mask = np.asarray(mechanism.candidates)
        reports = mask.argmax(1)
        share = softmax(logits)
        heard = share[[0, 1], reports] + np.where(mask, 0, share).sum(1) / number
        wanted = math.log1p((number - 1) * math.exp(-epsilon)) - np.log(
            math.exp(-epsilon) - math.expm1(-epsilon) * heard
        )
        found = np.asarray(rr_loss(logits, reports, mechanism), float)
        np.testing.assert_array_less(np.abs(found - wanted), 2e-6 * np.maximum(1, wanted))


@pytest.mark.full
def test_masks_minibatches_and_batches_of_problems():
    logits, reports = logits_of(4, 5), np.asarray([4, 1, 2, 3])
    mechanism = CandidateResponse(MASKS, 1.5)
    whole = rr_loss(logits, reports, mechanism)
    rows = np.asarray([2, 0])
    np.testing.assert_allclose(rr_loss(logits[rows], reports[rows], mechanism[rows]), whole[rows], rtol=4 * ULP)
    # The reports of masked examples need not be any.
    where = np.asarray([True, True, False, True])[:, None]
    spoilt = np.where(where[:, 0], reports, -1)
    for loss in (rr_loss, jax.jit(rr_loss)):
        found = loss(logits, spoilt, mechanism, where=where)
        np.testing.assert_allclose(found, np.where(where[:, 0], whole, 0), rtol=4 * ULP)
    slope = jax.jit(jax.grad(lambda z, y: rr_loss(z, y, mechanism, where=where).sum()))(logits, spoilt)
    assert np.isfinite(slope).all()
    assert not slope[2].any()
    # As an argument of vmap, and made and used within it.
    prior = softmax(logits_of(3, 4, 5, seed=1)).astype(FLOAT)
    keys = jax.random.split(jax.random.key(0), 3)

    def one(key, prior):
        mechanism = rr_with_prior(prior, 1.0)
        return mechanism, rr_loss(logits, mechanism.randomize(key, np.asarray([0, 1, 2, 3])), mechanism)

    made, losses = jax.jit(jax.vmap(one))(keys, prior)
    assert made.candidates.shape == (3, 4, 5)
    assert made.epsilon.shape == (3, 4)
    for i, key in enumerate(keys):
        np.testing.assert_allclose(losses[i], one(key, prior[i])[1], rtol=8 * ULP)


@pytest.mark.full
def test_a_regression_of_reports_among_candidates():
    """Of 20,000 users: the coefficients, within four of their own standard errors."""
    rng = np.random.default_rng(2)
    covariates = rng.normal(size=20_000).astype(FLOAT)
    true = np.asarray([[0.3, -0.4], [1.0, -0.7]])
    shares = softmax(np.c_[np.zeros(20_000), np.c_[np.ones(20_000), covariates] @ true])
    labels = (shares.cumsum(1) < rng.random(20_000)[:, None]).sum(1)
    mechanism = rr_with_prior((0.8 * shares + 0.2 / 3).astype(FLOAT), 1.0)
    assert len(set(np.asarray(mechanism.num_candidates).tolist())) >= 2
    result = fit(covariates, mechanism.randomize(jax.random.key(1), labels), mechanism)
    assert np.abs((result.coefficients - true) / result.standard_errors).max() < 4


@pytest.mark.long
def test_what_is_wrong_is_named():
    prior, logits = priors(3, 4), logits_of(3, 4)
    mechanism = CandidateResponse(MASKS[:3, :4], 1.0)
    for bad in (
        [[0.5, 0.5], [-0.5, 1.5]],
        [[0.5, np.nan]],
        [[0.5, 0.5], [0.5, 0.4]],
        [0.5, 0.4],
        np.ones((2, 4), int),
    ):
        with refused("prior"):
            rr_with_prior(np.asarray(bad), 1.0)
    for epsilon in (0.0, -1.0, math.nan):
        with refused("epsilon"):
            rr_with_prior(prior, epsilon)
        with refused("epsilon"):
            CandidateResponse(MASKS, epsilon)
    with refused("epsilon"):
        rr_with_prior(prior, np.ones(2))
    with refused("num_candidates"):
        rr_with_prior(prior, 1.0, num_candidates=5)
    with refused("num_candidates"):
        rr_with_prior(prior, 1.0, num_candidates=2.0)
    with refused("candidates"):
        CandidateResponse([[True, False], [False, False]], 1.0)
    with refused("candidates"):
        CandidateResponse([False, False], 1.0)
    with refused("reports"):
        rr_loss(logits[0], 0, CandidateResponse([False, True, True, True], 1.0))
    with refused("candidates"):
        CandidateResponse(np.ones((3, 4)), 1.0)
    with refused("labels", row=1, value=None):
        mechanism.randomize(jax.random.key(0), [0, 4, 1])
    with refused("labels"):
        mechanism.randomize(jax.random.key(0), [0, 1])
    with refused("reports"):
        rr_loss(logits, [3, 1, 0], mechanism)
    with refused("mechanism_or_epsilon"):
        rr_loss(logits[:2], [0, 1], mechanism)
    with refused("mechanism_or_epsilon"):
        rr_loss(logits_of(3, 5), [0, 1, 0], mechanism)
    with refused("reports"):
        backward_loss(logits, [0, 1, 0], mechanism)


@pytest.mark.long
def test_what_is_wrong_is_nan_under_tracing():
    logits, labels = jnp.asarray(logits_of(5, 4)), jnp.asarray([0, 1, 2, 3, 9])
    prior = np.full((5, 4), 0.25, FLOAT)
    prior[1, 0], prior[2] = np.nan, 0.1
    epsilon = jnp.asarray([1.0, 1.0, 1.0, -1.0, 1.0], FLOAT)

    @jax.jit
    def through(prior, epsilon, labels, logits):
        mechanism = rr_with_prior(prior, epsilon)
        reports = mechanism.randomize(jax.random.key(0), labels)
        loss, back = jax.vjp(lambda z: rr_loss(z, reports, mechanism), logits)
        return reports, loss, back(jnp.ones_like(loss))[0]

    reports, loss, slope = through(prior, epsilon, labels, logits)
    wrong = np.arange(5) > 0
    np.testing.assert_array_equal(np.asarray(reports) < 0, wrong)
    np.testing.assert_array_equal(np.isnan(loss), wrong)
    np.testing.assert_array_equal(np.isnan(slope).all(1), wrong)
    assert np.isfinite(np.asarray(slope)[0]).all()
