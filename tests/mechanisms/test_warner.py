"""Warner's spinner, with any probability of the truth."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, ULP
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax.mechanisms import Warner
from rrjax.models import rr_loss

BOTH = pytest.mark.parametrize("truth", [0.7, 0.3, 0.01])


@BOTH
def test_reports_have_the_law_of_the_spinner(truth):
    mechanism = Warner(truth)
    for value in (0, 1):
        reports = np.asarray(mechanism.randomize(jax.random.key(value), np.full(20_000, value)))
        law = np.asarray([truth, 1 - truth])
        check_frequencies(np.bincount(reports, minlength=2), law if value == 0 else law[::-1])


@BOTH
def test_it_is_randomized_response_or_its_exchange(truth):
    mechanism = Warner(truth)
    assert float(mechanism.epsilon) == pytest.approx(abs(math.log(truth / (1 - truth))), rel=4 * ULP)
    counts = np.asarray([600, 400])
    reports = np.repeat([0, 1], counts)
    tally = mechanism.tally(reports)
    # That of randomized response with the same ε, with answers exchanged below ½.
    response = rrjax.RandomizedResponse(2, mechanism.epsilon)
    same = response.tally(reports if truth > 0.5 else 1 - reports)
    np.testing.assert_allclose(rrjax.inv(tally), rrjax.inv(same), atol=20 * ULP)
    np.testing.assert_allclose(mechanism.debias(reports).mean(0), rrjax.inv(tally), atol=2e-5)
    np.testing.assert_allclose(
        rrjax.mle(mechanism.mixture(reports)), rrjax.mle_star(same.support, response.epsilon), atol=1e-5
    )
    logits = jnp.log(jnp.asarray([[0.3, 0.7], [0.6, 0.4]], FLOAT))
    wanted = [-math.log(share * truth + (1 - share) * (1 - truth)) for share in (0.3, 0.4)]
    np.testing.assert_allclose(rr_loss(logits, [0, 1], mechanism), wanted, rtol=8 * ULP)


@BOTH
def test_collections_have_the_law_of_their_reports(truth):
    mechanism = Warner(truth)
    tally = mechanism.collect(jax.random.key(0), np.asarray([70_000, 30_000]))
    assert int(tally.num_users) == 100_000
    likely = max(truth, 1 - truth)
    error = math.sqrt(likely * (1 - likely) * 100_000)
    assert abs(int(tally.support[0]) - (70_000 * likely + 30_000 * (1 - likely))) < 4 * error


def test_it_is_a_pytree_and_knows_a_traced_probability():
    reports = np.asarray([0, 0, 1])

    @jax.jit
    def estimate(mechanism):
        return rrjax.inv(mechanism.tally(reports))

    np.testing.assert_allclose(estimate(Warner(0.3)), rrjax.inv(Warner(0.3).tally(reports)), atol=8 * ULP)
    swept = jax.vmap(lambda p: Warner(p).epsilon)(jnp.asarray([0.3, 0.5, 0.7, 1.0], FLOAT))
    np.testing.assert_array_equal(np.isnan(swept), [False, True, False, True])


@pytest.mark.parametrize("truth", [0, 1, 0.5, -0.2, math.nan])
def test_what_is_no_spinner_is_refused(truth):
    with refused("truth_probability"):
        Warner(truth)


def test_what_is_no_report_is_refused():
    with refused("reports"):
        Warner(0.3).tally([0, 1, 2])
    assert np.isnan(jax.jit(lambda r: rrjax.inv(Warner(0.3).tally(r)))(jnp.asarray([0, 1, 2]))).all()
