"""An ε whose e^ε, or its square, is beyond the dtype: values are those of no noise, and so are derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64

import rrjax
from rrjax.mechanisms import MECHANISMS
from rrjax.mechanisms.longitudinal import (
    CohortBits,
    LongitudinalBitFlipping,
    LongitudinalLocalHashing,
    LongitudinalRandomizedResponse,
    LongitudinalUnaryEncoding,
    Rappor,
)

LARGEST = 706.3 if X64 else 85.2
"""ε from which on rates do not change."""
PAIRS = [(first, second) for first in ("optimized", "symmetric") for second in ("symmetric", "optimized")]
COUNTS = np.array([60, 20, 10, 10])
BITS = np.repeat([[1, 0], [0, 1], [0, 0], [1, 1]], [50, 20, 60, 20], axis=0).astype(bool)


def unary(epsilon, encodings, first_epsilon=1.0):
    first, second = encodings
    return LongitudinalUnaryEncoding(2, epsilon, first_epsilon, permanent_encoding=first, instantaneous_encoding=second)


@pytest.mark.long
@pytest.mark.parametrize("share", [0.99, 1.0, 1.03, 2.0, 2.4])
@pytest.mark.parametrize("encodings", PAIRS, ids="-".join)
def test_bits_without_noise_in_the_memo_have_the_likelihood_of_one_round(encodings, share):
    """From an ε∞ of 86 on it was another one, or that of equal shares, and said to have converged."""
    protocol = unary(share * LARGEST, encodings)
    whole = rrjax.ibu(protocol.mixture(BITS[:, None]), accelerate="newton")
    single = rrjax.ibu(protocol.single_round.mixture(BITS), accelerate="newton")
    assert bool(whole.converged)
    np.testing.assert_allclose(whole.theta, single.theta, atol=1e-9 if X64 else 1e-3)
    traced = jax.jit(lambda epsilon: unary(epsilon, encodings).mixture(BITS[:, None]))(share * LARGEST)
    np.testing.assert_allclose(rrjax.mle(traced), single.theta, atol=1e-9 if X64 else 1e-3)


@pytest.mark.long
@pytest.mark.parametrize("apart", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("buckets", [None, 2])
def test_two_large_epsilons_that_are_near_leave_a_likelihood(buckets, apart):
    """It was no number, and the estimate of equal shares: the odds of the second randomization were infinite."""
    reports = np.repeat([0, 1, 2], [50, 30, 20])[:, None]
    given = LARGEST + 3.5 + apart, LARGEST + 3.5
    if buckets is None:
        protocol = LongitudinalRandomizedResponse(3, *given)
        np.testing.assert_allclose(rrjax.mle(protocol.mixture(reports)), [0.5, 0.3, 0.2], atol=1e-5)
    else:
        protocol = LongitudinalLocalHashing(3, *given, buckets)
        memo = protocol.memoize(jax.random.key(0), reports[:, 0])
        certain = rrjax.ibu(protocol.mixture(protocol.report(jax.random.key(1), memo)[:, None]))
        assert bool(certain.converged)
        np.testing.assert_allclose(certain.theta, rrjax.mle(protocol.single_round.mixture(memo)), atol=2e-3)
    assert jnp.isfinite(protocol.epsilon_after(5))


@pytest.mark.long
def test_a_report_of_unset_bits_has_a_likelihood():
    """e^−ε was zero, and the likelihood zero by zero."""
    reports = np.repeat([[1, 0, 0], [0, 1, 0], [0, 0, 0]], [50, 20, 1], axis=0).astype(np.int8)
    mixture = LongitudinalBitFlipping(3, 1.2 * LARGEST, num_bits=3).mixture(reports[:, None])
    np.testing.assert_allclose(rrjax.mle(mixture)[:2], [5 / 7, 2 / 7], atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("f", [1e-3, 1e-18, 1e-20, 1e-30])
def test_nearly_no_permanent_noise_is_nearly_none(f):
    """Below an f of 1e-19 the likelihood was refused, and ε was no number."""
    bits = np.stack([np.pad(BITS, [(0, 0), (0, 1)])] * 2, axis=1)
    reports = CohortBits(np.zeros(len(bits), int), bits)
    noisy, bare = (Rappor(np.eye(3, dtype=bool)[None], 1, f=each, p=0.25, q=0.75) for each in (f, 0))
    found, wanted = (rrjax.mle(each.mixture(reports)) for each in (noisy, bare))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert float(noisy.epsilon_after(2)) == pytest.approx(float(bare.epsilon_after(2)), rel=3e-3)
    assert float(noisy.epsilon_after(1000)) == pytest.approx(float(noisy.epsilon), rel=1e-5)
    assert float(noisy.epsilon) == pytest.approx(2 * np.log((1 - f / 2) / (f / 2)), rel=1e-6)


def rates(name):
    chosen = {"subset-selection": {"subset_size": 2}, "optimized-local-hashing": {"num_buckets": 4}}.get(name, {})

    def of(epsilon):
        made = MECHANISMS[name](4, epsilon, **chosen).rates
        tally = rrjax.Tally(COUNTS, num_users=100, rates=made)
        numbers = [made.p, made.q, made.d, made.not_p, made.not_q, made.share(0.6), made.variance(0.3)]
        return jnp.stack([*numbers, made.total_variance(4), *rrjax.inv(tally), *rrjax.inv_p(tally)])

    return of


def estimates(epsilon):
    counts, theta = jnp.asarray(COUNTS), jnp.array([0.5, 0.3, 0.1, 0.1])
    certificate = rrjax.certificate(theta, counts, epsilon)
    shares = [each(counts, epsilon) for each in (rrjax.inv, rrjax.inv_n, rrjax.inv_p, rrjax.mle_star)]
    return jnp.stack([*jnp.concatenate(shares), *rrjax.score(theta, counts, epsilon), *certificate])


def protocols(epsilon):
    answers = LongitudinalRandomizedResponse(4, epsilon, 3.0)
    numbers = [answers.instantaneous.p, answers.instantaneous.q, answers.epsilon_after(2)]
    for encodings in PAIRS:
        bits = unary(epsilon, encodings, 3.0)
        numbers += [bits.instantaneous.p, bits.instantaneous.q, bits.single_round.rates.p, bits.epsilon_after(3)]
    return jnp.stack(numbers)


def likeliest(epsilon):
    return jnp.stack([rrjax.mle(unary(epsilon, each, 3.0).mixture(BITS[:, None]))[0] for each in PAIRS[:2]])


KINDS = {name: rates(name) for name in MECHANISMS}
KINDS |= {"estimates": estimates, "protocols": protocols, "likeliest": likeliest}


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_depends_on_a_large_epsilon(kind):
    """JAX's 1/y² of y = e^ε + … was zero from an ε of 44 on, and one of two terms that cancel was left: 1, −0.35, …"""
    numbers = jax.jit(KINDS[kind])
    derivatives = jax.jit(jax.jacfwd(numbers))
    for share in (0.49, 0.51, 0.55, 0.75, 0.9, 0.99, 1.03, 1.5):
        epsilon = FLOAT.type(share * LARGEST)
        np.testing.assert_allclose(derivatives(epsilon), 0, atol=1e-9 if X64 else 1e-5)
        assert np.isfinite(numbers(epsilon)).all()


@pytest.mark.parametrize("share", [0.5, 0.99, 1.06, 1.4, 1.99])
def test_symmetric_bits_deliver_their_epsilon(share):
    """At an ε∞ of 200 in float32 it was 0 after one report, and 88 after any number."""
    for first in (1.0, 0.4 * share * LARGEST):
        protocol = unary(share * LARGEST, ("symmetric", "symmetric"), first)
        assert float(protocol.epsilon_after(1)) == pytest.approx(first, rel=1e-5)
        assert float(protocol.epsilon_after(10_000)) == pytest.approx(share * LARGEST, rel=1e-5)


@pytest.mark.long
def test_the_second_randomization_keeps_its_derivative():
    """With no noise in the memo p2 is e^ε₁/(e^ε₁ + 2): its derivative was twice as large."""
    for epsilon in (0.4 * LARGEST, 0.55 * LARGEST, 0.9 * LARGEST):
        found = jax.grad(lambda first, last: LongitudinalRandomizedResponse(3, last, first).instantaneous.p)(
            3.0, epsilon
        )
        assert float(found) == pytest.approx(2 * np.exp(3) / (np.exp(3) + 2) ** 2, rel=1e-5)


@pytest.mark.long
def test_a_likelihood_that_is_no_number_has_no_estimate():
    """It was the start, equal shares."""
    protocol = jax.jit(lambda first: LongitudinalRandomizedResponse(3, 2.0, first).mixture(np.array([[0], [1]])))(3.0)
    for accelerate in ("newton", "anderson", "none"):
        result = rrjax.ibu(protocol, accelerate=accelerate)
        assert np.isnan(result.theta).all()
        assert not result.converged
