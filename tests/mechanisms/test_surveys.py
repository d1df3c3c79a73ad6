"""Survey designs: their laws by enumeration, their estimates by exact rationals, solvers and simulation."""

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, LARGEST, ULP, X64, collect
from jax.test_util import check_grads
from reference import total_variation
from refusals import refused
from scipy import optimize, stats

import rrjax
from rrjax import inference
from rrjax.estimators.maximum_likelihood import maximum
from rrjax.mechanisms import (
    Coin,
    Crosswise,
    Direct,
    ForcedResponse,
    Kuk,
    Mangat,
    NegativeQuestion,
    NonCompliance,
    Triangular,
    UnrelatedQuestion,
    Warner,
)
from rrjax.models import rr_loss
from rrjax.numerics.sums import expm1_epsilon

E1 = np.expm1(1.0)
RR = (np.ones((3, 3)) + E1 * np.eye(3)) / (E1 + 3)
SHRUG = np.array([0.0, 0.1, 0.9])
EYE = np.eye(3)

# The designs, and their channels (row = true category) written down from what happens to a respondent.
DESIGNS = {
    "forced": (ForcedResponse(0.6, [0.5, 0.3, 0.2]), 0.6 * EYE + 0.4 * np.array([0.5, 0.3, 0.2])),
    "unrelated": (UnrelatedQuestion(0.3, [0.2, 0.7, 0.1]), 0.3 * EYE + 0.7 * np.array([0.2, 0.7, 0.1])),
    "unforced": (ForcedResponse(0.5, [0.7, 0.3, 0.0]), 0.5 * EYE + 0.5 * np.array([0.7, 0.3, 0.0])),
    "warner": (Warner(0.8), np.array([[0.8, 0.2], [0.2, 0.8]])),
    "warner-exchanged": (Warner(0.3), np.array([[0.3, 0.7], [0.7, 0.3]])),
    "warner-rare": (Warner(0.01), np.array([[0.01, 0.99], [0.99, 0.01]])),
    "not-yours": (NegativeQuestion(3), (1 - EYE) / 2),
    "seldom-yours": (NegativeQuestion(3, 0.1), 0.1 * EYE + 0.45 * (1 - EYE)),
    "crosswise": (Crosswise(0.15), np.array([[0.15, 0.85], [0.85, 0.15]])),
    "triangular": (Triangular(0.25), np.array([[1, 0], [0.25, 0.75]])),
    "kuk": (Kuk(0.2, 0.7), np.array([[0.2, 0.8], [0.7, 0.3]])),
    "kuk-yes-last": (Kuk(0.2, 0.7, yes_category=1), np.array([[0.3, 0.7], [0.8, 0.2]])),
    "mangat": (Mangat(0.7), np.array([[1, 0], [0.3, 0.7]])),
    "coin": (Coin(3, 0.4), 0.6 * EYE + 0.4 / 3),
    "direct": (Direct(3), EYE),
    "non-compliance": (NonCompliance(rrjax.RandomizedResponse(3, 1.0), 0.15, SHRUG), 0.85 * RR + 0.15 * SHRUG),
}


def mle(counts, design):
    return rrjax.mle(design.mixture_of_counts(counts))


def inv(counts, design):
    return rrjax.inv(design.tally_of_counts(counts))


def standard_errors(counts, design):
    return inference.standard_errors(design.mixture_of_counts(counts))


QUICK = ("forced", "warner-exchanged", "not-yours")
every_design = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in DESIGNS]
)


def draw(seed, name, number=1000):
    """Counts of the answers of users from an uneven distribution."""
    channel = DESIGNS[name][1]
    theta = np.random.default_rng(seed).dirichlet(np.full(len(channel), 0.6))
    return np.random.default_rng(seed + 100).multinomial(number, theta @ channel)


def smooth(name):
    """Weights whose estimate has all categories in, well away from a kink."""
    channel = DESIGNS[name][1]
    return 100 * np.linspace(1.2, 0.8, len(channel)) / len(channel) @ channel


@every_design
def test_the_law_is_that_of_the_channel(name):
    design, channel = DESIGNS[name]
    assert design.num_categories == len(channel)
    theta = np.linspace(0.7, 0, len(channel)) / np.linspace(0.7, 0, len(channel)).sum()
    np.testing.assert_allclose(design.probabilities(theta.astype(FLOAT)), theta @ channel, rtol=1e-6, atol=ULP)
    least, most = channel.min(0), channel.max(0)
    wanted = np.inf if (least == 0).any() else np.log(most / least).max()
    assert float(design.epsilon) == pytest.approx(wanted, rel=1e-12 if X64 else 1e-6)


@pytest.mark.long
@every_design
def test_simulated_answers_have_the_law_of_the_channel_and_inv_is_unbiased(name):
    design, channel = DESIGNS[name]
    true = np.array([50_000, 40_000, 10_000]) if len(channel) == 3 else np.array([70_000, 30_000])
    values = np.repeat(np.arange(len(true)), true).reshape(2, -1)
    reports = np.asarray(design.randomize(jax.random.key(1), values))
    assert reports.shape == values.shape
    for value, row in enumerate(channel):
        seen = np.bincount(reports[values == value], minlength=len(row))
        assert not seen[row == 0].any()
        if (row > 0).sum() > 1:
            assert stats.chisquare(seen[row > 0], row[row > 0] * true[value]).pvalue > 1e-3
    estimate = inv(rrjax.count(reports, len(true)), design)
    spread = np.sqrt((true[:, None] * channel * (1 - channel)).sum(0)) / 100_000
    slope = abs(channel[0, 0] - channel[1, 0])
    assert (np.abs(estimate - true / 100_000) < 4 * spread / slope + 4 * ULP / slope).all()


@pytest.mark.long
@every_design
def test_every_view_of_the_answers_has_the_law_of_the_channel(name):
    design, channel = DESIGNS[name]
    size = len(channel)
    reports = np.arange(size)
    rows = design.log_rows(reports)
    with np.errstate(divide="ignore"):
        wanted = np.log(channel.T)
    log_unit = jnp.where(jnp.eye(size, dtype=bool), 0.0, -jnp.inf).astype(FLOAT)
    found = jax.vmap(lambda unit: rows.log_probability(jnp.broadcast_to(unit, (size, size))))(log_unit).T
    np.testing.assert_allclose(found, wanted, atol=1e-12 if X64 else 1e-5)
    # The mean of debiased answers, under each value, is its indicator.
    np.testing.assert_allclose(channel @ np.asarray(design.debias(reports)), np.eye(size), atol=1e-12 if X64 else 1e-5)
    answers = np.repeat(reports, draw(5, name))
    tally = design.tally(answers)
    np.testing.assert_allclose(np.asarray(design.debias(answers)).mean(0), rrjax.inv(tally), atol=20 * ULP / 0.1)
    np.testing.assert_allclose(rrjax.inv(tally), inv(draw(5, name), design), atol=4 * ULP)


@pytest.mark.full
@every_design
def test_collections_have_the_law_of_the_answers(name):
    design, channel = DESIGNS[name]
    true = np.array([50_000, 40_000, 10_000])[: len(channel)]
    drawn = jax.vmap(lambda key: design.collect(key, true))(jax.random.split(jax.random.key(3), 40))
    assert (drawn.num_users == true.sum()).all()
    denied = channel[0, 0] < channel[1, 0]
    named = np.asarray(true.sum() - drawn.support if denied else drawn.support, float)
    mean, variance = true @ channel, (true[:, None] * channel * (1 - channel)).sum(0)
    assert (np.abs(named.mean(0) - mean) <= 4 * np.sqrt(variance / 40)).all()
    ratio = named.var(0, ddof=1)[variance > 0] / variance[variance > 0]
    assert (np.abs(ratio - 1) < 4 * np.sqrt(2 / 39)).all()


@pytest.mark.long
@pytest.mark.once
def test_the_published_surveys():
    """Blair, Imai and Zhou's forced response, and Atsusaka and Stevenson's naive crosswise estimate."""
    forced, counts = ForcedResponse(2 / 3, [1 / 2, 1 / 2]), [831, 1604]
    assert round(100 * float(rrjax.inv(forced.tally_of_counts(counts))[0]), 2) == 26.19
    assert round(100 * float(standard_errors(counts, forced)[0]), 2) == 1.44
    assert f"{float(mle([1427, 573], Crosswise(0.15))[0]):.4f}" == "0.1950"


def exact(counts, weights, sign):
    """The maximum in rationals, by dropping what its own level excludes until nothing is."""
    counts, weights = [Fraction(float(c)) for c in counts], [Fraction(float(w)) for w in weights]
    if sign < 0 and 0 in counts:
        return [Fraction(int(c == 0), counts.count(0)) for c in counts]
    kept = [j for j, c in enumerate(counts) if c > 0]
    while True:
        level = sum(counts[j] for j in kept) / (sum(weights[j] for j in kept) + sign)
        left = [j for j in kept if sign * (counts[j] - weights[j] * level) > 0]
        if left == kept:
            shares = [sign * (c / level - w) for c, w in zip(counts, weights, strict=True)]
            return [share if j in kept else Fraction(0) for j, share in enumerate(shares)]
        kept = left


@pytest.mark.long
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [INT, FLOAT])
def test_the_closed_form_is_that_of_exact_rationals(sign, dtype):
    rng = np.random.default_rng(10 + sign)
    for trial in range(40):
        size = (3, 40)[trial % 2]
        kept = 10 ** rng.uniform(-5, -0.02)
        theta = rng.dirichlet(np.full(size, 0.3))
        if sign > 0:
            always = (1 - kept) * (rng.dirichlet(np.full(size, 0.5)) if trial % 4 < 2 else np.full(size, 1 / size))
            always[rng.integers(size)] *= trial % 3 > 0
        else:
            own = (1 - kept) / size * (trial % 3 > 0)
            always, kept = np.full(size, (1 - own) / (size - 1)), (1 - own * size) / (size - 1)
        law = np.maximum(always + sign * kept * theta, 0)
        counts = rng.multinomial(10 ** rng.integers(1, 10), law / law.sum()).astype(dtype)
        weights = (always / kept).astype(FLOAT)
        wanted = exact(counts, weights, sign)
        found = maximum(jnp.asarray(counts), jnp.asarray(weights), jnp.asarray(sign, FLOAT))
        assert np.flatnonzero(found).tolist() == [j for j, share in enumerate(wanted) if share > 0]
        assert total_variation(found, wanted) < (1e-15 if X64 else 1e-7)


def test_near_ties_are_settled_as_exact_arithmetic_does():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        weights = rng.uniform(0.5, 2, 40).astype(FLOAT)
        counts = rng.integers(10**7, 2 * 10**7, 40)
        # Most lie within one of the threshold that the others make: sums that round put some on the wrong side.
        level = counts[:10].sum() / (weights[:10].astype(float).sum() + 1)
        counts[10:] = np.floor(weights[10:] * level) + rng.integers(0, 2, 30)
        found = maximum(jnp.asarray(counts, INT), jnp.asarray(weights), jnp.ones((), FLOAT))
        wanted = exact(counts, weights, 1)
        assert np.flatnonzero(found).tolist() == [j for j, share in enumerate(wanted) if share > 0]
        assert total_variation(found, wanted) < (1e-15 if X64 else 1e-7)


@pytest.mark.long
def test_equal_noise_is_randomized_response():
    counts = np.append(collect(0, 999, 100_000, 0.5), 0)
    weights = jnp.full(1000, 1 / expm1_epsilon(jnp.asarray(0.5, FLOAT)))
    found = maximum(jnp.asarray(counts, INT), weights, jnp.ones((), FLOAT))
    wanted = rrjax.mle_star(counts, 0.5)
    np.testing.assert_array_equal(found > 0, wanted > 0)
    # 1/e1 has a rounding of its own, which moves θ by 1/e1 times as much as the shares are from even.
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4 * ULP)
    huge = np.array([LARGEST - 30, 20, 10], INT)
    assert float(mle(huge, DESIGNS["forced"][0])[0]) == 1


@pytest.mark.long
@every_design
def test_the_maximum_is_that_of_solvers(name):
    design, channel = DESIGNS[name]
    size = len(channel)
    for counts in (draw(0, name), draw(1, name, 60), draw(2, name, 9)):
        theta = np.asarray(mle(counts, design), float)
        likelihood = design.mixture_of_counts(counts)
        result = rrjax.ibu(likelihood)
        assert result.converged
        reached, other = (float(rrjax.nll(t, likelihood)) for t in (theta, result.theta))
        assert -8 * ULP <= other - reached <= float(result.gap) + 8 * ULP
        assert float(rrjax.certificate(theta.astype(FLOAT), likelihood).gap) < 400 * ULP

        def loss(theta, counts=counts):
            return -(counts * np.log(np.maximum(theta @ channel, 1e-12))).sum() / counts.sum()

        simplex = {"type": "eq", "fun": lambda theta: theta.sum() - 1}
        start = np.full(size, 1 / size)
        solved = optimize.minimize(loss, start, method="SLSQP", bounds=[(0, 1)] * size, constraints=simplex, tol=1e-12)
        assert loss(theta) == pytest.approx(solved.fun, abs=1e-6)
        assert reached == pytest.approx(loss(theta), abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("truth", [0.7, 0.3, 0.01])
def test_warner_is_randomized_response_or_its_exchange(truth):
    mechanism, reports = Warner(truth), np.repeat([0, 1], [600, 400])
    assert float(mechanism.epsilon) == pytest.approx(abs(np.log(truth / (1 - truth))), rel=4 * ULP)
    tally = mechanism.tally(reports)
    # That of randomized response with the same ε, with answers exchanged below ½.
    response = rrjax.RandomizedResponse(2, mechanism.epsilon)
    same = response.tally(reports if truth > 0.5 else 1 - reports)
    np.testing.assert_allclose(rrjax.inv(tally), rrjax.inv(same), atol=20 * ULP)
    np.testing.assert_allclose(
        rrjax.mle(mechanism.mixture(reports)), rrjax.mle_star(same.support, response.epsilon), atol=1e-5
    )
    logits = jnp.log(jnp.asarray([[0.3, 0.7], [0.6, 0.4]], FLOAT))
    wanted = [-np.log(share * truth + (1 - share) * (1 - truth)) for share in (0.3, 0.4)]
    np.testing.assert_allclose(rr_loss(logits, [0, 1], mechanism), wanted, rtol=8 * ULP)


@pytest.mark.long
def test_a_traced_probability_of_warner():
    reports = np.asarray([0, 0, 1])
    estimate = jax.jit(lambda mechanism: rrjax.inv(mechanism.tally(reports)))
    np.testing.assert_allclose(estimate(Warner(0.3)), rrjax.inv(Warner(0.3).tally(reports)), atol=8 * ULP)
    swept = jax.vmap(lambda p: Warner(p).epsilon)(jnp.asarray([0.3, 0.5, 0.7, 1.0], FLOAT))
    np.testing.assert_array_equal(np.isnan(swept), [False, True, False, True])


def test_warner_is_the_clipped_inversion_either_way():
    for counts in ([380, 620], [100, 900], [0, 7], [500, 500]):
        for truth in (0.8, 0.55):
            wanted = np.clip((counts[0] / sum(counts) - (1 - truth)) / (2 * truth - 1), 0, 1)
            for design, given in ((Warner(truth), counts), (Warner(1 - truth), counts[::-1])):
                np.testing.assert_allclose(mle(given, design), [wanted, 1 - wanted], atol=20 * ULP)


jacobian = jax.jit(jax.jacobian(mle))


def slopes(counts, design):
    """The derivatives of `mle` in float counts."""
    return np.asarray(jacobian(jnp.asarray(counts, FLOAT), design), float)


@pytest.mark.long
def test_categories_that_nobody_denied_have_everything():
    design = NegativeQuestion(3, 0.05)
    np.testing.assert_array_equal(mle([0, 4, 5], design), [1, 0, 0])
    np.testing.assert_array_equal(mle([0, 4, 0], design), [0.5, 0, 0.5])
    np.testing.assert_array_equal(slopes([0, 4, 5], design), np.zeros((3, 3)))


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
@pytest.mark.parametrize("name", ["forced", "warner-exchanged", "seldom-yours", "non-compliance"])
def test_derivatives_match_finite_differences(name):
    design, _ = DESIGNS[name]
    leaves, tree = jax.tree.flatten(design)
    assert (mle(smooth(name), design) > 0).all()

    def changed(counts, first):
        """In weights, and in the probability that the design begins with."""
        return mle(counts, jax.tree.unflatten(tree, [first, *(jnp.asarray(leaf) for leaf in leaves[1:])]))

    check_grads(changed, (smooth(name), jnp.asarray(leaves[0])), order=2, modes=("fwd", "rev"))


def test_derivatives_on_the_boundary_are_those_of_the_support():
    design = ForcedResponse(0.6, [0.5, 0.3, 0.2])
    # Two survivors: θ = f(1 + A/d) − a/d.
    slope = (1 + 0.4 * 0.8 / 0.6) * 50 * 43 / 93**2
    wanted = slope * np.array([[1 / 50, -1 / 43, 0], [-1 / 50, 1 / 43, 0], [0, 0, 0]])
    np.testing.assert_allclose(slopes([50, 43, 7], design), wanted, atol=20 * ULP)


@pytest.mark.long
@every_design
def test_intervals_are_clopper_and_pearson_of_each_count(name):
    design, channel = DESIGNS[name]
    counts = draw(3, name)
    number, level = counts.sum(), 0.9
    tests = 1 if len(counts) == 2 else len(counts)  # two shares with the sum one have one interval
    for simultaneous, miss in ((None, 0.1), ("bonferroni", 0.1 / tests)):
        p_low = np.where(counts > 0, stats.beta.ppf(miss / 2, counts, number - counts + 1), 0)
        p_high = np.where(counts < number, stats.beta.ppf(1 - miss / 2, counts + 1, number - counts), 1)
        always = np.array([channel[(j + 1) % len(channel), j] for j in range(len(channel))])
        ends = np.sort([(p - always) / (channel[0, 0] - always[0]) for p in (p_low, p_high)], axis=0).clip(0, 1)
        found = inference.intervals(design.tally_of_counts(counts), None, level, simultaneous=simultaneous)
        np.testing.assert_allclose(found, ends, atol=2e-5)


def test_standard_errors_are_those_of_the_delta_method():
    for name, counts in (("forced", [50, 43, 7]), ("forced", [50, 30, 20]), ("seldom-yours", [30, 35, 40])):
        design, _ = DESIGNS[name]
        counts, number = np.array(counts), sum(counts)
        shares = counts / number
        moved = slopes(counts, design) * number
        variance = np.diag(moved @ (np.diag(shares) - np.outer(shares, shares)) @ moved.T) / number
        wanted = np.where(np.asarray(mle(counts, design)) > 0, np.sqrt(variance), np.nan)
        np.testing.assert_allclose(standard_errors(counts, design), wanted, rtol=1e-5)
    assert np.isnan(standard_errors([1, 0, 0], NegativeQuestion(3))).all()
    assert np.isnan(standard_errors([100, 0, 0], DESIGNS["forced"][0])).all()  # a point mass


@pytest.mark.long
def test_jit_and_vmap_change_nothing():
    name = "non-compliance"
    design = DESIGNS[name][0]
    counts = np.stack([draw(seed, name) for seed in range(4)])
    functions = (mle, inv, standard_errors)

    @jax.jit
    def batched(counts, design):
        return [jax.vmap(lambda c, f=f: f(c, design))(counts) for f in functions]

    for function, found in zip(functions, batched(counts, design), strict=True):
        wanted = np.stack([function(row, design) for row in counts])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    several = jax.vmap(lambda design: mle(np.array([380, 620]), design))(Warner(jnp.array([0.3, 0.7], FLOAT)))
    np.testing.assert_allclose(several, [[0.8, 0.2], [0.2, 0.8]], atol=1e-6)


def estimates(counts, design):
    return jnp.concatenate([mle(counts, design), inv(counts, design)])


@pytest.mark.long
def test_unusable_counts_give_nan():
    design = DESIGNS["forced"][0]
    for counts in ([-1, 5, 5], [0, 0, 0], [LARGEST, 1, 1]):
        counts = jnp.array(counts, INT)
        assert np.isnan(jax.jit(estimates)(counts, design)).all()
        assert np.isnan(jax.jit(standard_errors)(counts, design)).all()
        assert np.isnan(inference.intervals(design.tally_of_counts(counts))).all()
    for counts in ([-1, 5, 5], [np.nan, 1, 1], [np.inf, 1, 1]):
        assert np.isnan(jax.jit(mle)(np.array(counts, FLOAT), design)).all()


@pytest.mark.full
@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda truth: ForcedResponse(truth, jnp.array([0.5, 0.3, 0.2])), [0.0, 1.0, -0.1, np.nan]),
        (lambda share: ForcedResponse(0.5, jnp.array([0.5, 0.3, 0.0]) + share * EYE[2].astype(FLOAT)), [0.1, -0.2]),
        (Warner, [0.0, 0.5, 1.0, np.nan]),
        (lambda own: NegativeQuestion(3, own), [-0.1, 0.34, np.nan]),
        (lambda share: NonCompliance(rrjax.RandomizedResponse(3, 1.0), share, SHRUG), [0.0, 1.0]),
        (partial(Coin, 3), [0.0, 1.0, np.nan]),
        (lambda epsilon: NonCompliance(rrjax.RandomizedResponse(3, epsilon), 0.1, SHRUG), [0.0, -1.0]),
    ],
)
def test_traced_designs_that_are_none_give_nan_and_no_reports(make, values):
    @jax.jit
    def run(value):
        design = make(value)
        counts = jnp.arange(design.num_categories) + 3
        return estimates(counts, design), design.epsilon, design.randomize(jax.random.key(0), counts - 3)

    for value in values:
        found, epsilon, reports = run(FLOAT.type(value))
        assert np.isnan(found).all()
        assert np.isnan(epsilon)
        assert (np.asarray(reports) == -1).all()


@pytest.mark.long
def test_traced_values_outside_the_domain_are_marked():
    run = jax.jit(lambda reports: rrjax.inv(Warner(0.3).tally(reports)))
    assert np.isnan(run(jnp.array([0, 1, 2]))).all()
    for name in ("forced", "not-yours", "non-compliance"):
        run = jax.jit(lambda values, design=DESIGNS[name][0]: design.randomize(jax.random.key(0), values))
        assert run(jnp.array([-1, 0, 3])).tolist()[::2] == [-1, -1]


@pytest.mark.once
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ForcedResponse(1.0, [0.5, 0.5]), "truth"),
        (lambda: ForcedResponse(0.5, [0.5, 0.4]), "forced"),
        (lambda: ForcedResponse(0.5, [1.5, -0.5]), "forced"),
        (lambda: ForcedResponse(0.5, [1.0]), "forced"),
        (lambda: ForcedResponse(0.5, ["a", "b"]), "forced"),
        (lambda: UnrelatedQuestion(0.0, [0.5, 0.5]), "truth"),
        (lambda: UnrelatedQuestion(0.5, [0.2, 0.2]), "unrelated"),
        *[(partial(Warner, truth), "truth_probability") for truth in (0, 0.0, 1, 0.5, -0.2, np.nan)],
        (lambda: Warner(0.3).tally([0, 1, 2]), "reports"),
        (lambda: Warner(np.array([0.3, 0.4])).affine, "parameters"),
        (lambda: NegativeQuestion(3, 0.4), "own"),
        (lambda: NegativeQuestion(1), "num_categories"),
        (lambda: Coin(1, 0.5), "num_categories"),
        *[(partial(Coin, 2, rate), "rate") for rate in (0.0, 1.0, -0.1, np.nan)],
        (lambda: NonCompliance(rrjax.RandomizedResponse(3, 1.0), 0.1, [0.5, 0.5]), "answers"),
        (lambda: NonCompliance(rrjax.RandomizedResponse(2, 1.0), 1.5, [0.5, 0.5]), "ignoring"),
        (
            lambda: mle([1, 2], ForcedResponse(0.5, np.array([[0.5, 0.5]]))),
            "forced",
        ),
        (
            lambda: NonCompliance(rrjax.RandomizedResponse(2, 1.0), 0.1, np.array([[0.5, 0.5]])).affine,
            "answers",
        ),
        (lambda: mle([1, 2, 3], Warner(0.7)), "counts"),
        (lambda: inv([1.0, 2.0], Warner(0.7)), "counts"),
        (lambda: inference.intervals(Warner(0.7).tally_of_counts([1, 2]), level=1.5), "level"),
        (lambda: Warner(0.7).mixture_of_counts([0, 0]), "weights"),
        (lambda: Warner(0.7).randomize(jax.random.key(0), [0, 2]), "values"),
        (lambda: Warner(0.7).probabilities([0.2, 0.3, 0.5]), "theta"),
    ],
)
def test_bad_input_is_named(make, message):
    with refused(message):
        make()
