"""Survey designs: their laws by enumeration, their estimates by exact rationals, solvers and simulation."""

from fractions import Fraction

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
from rrjax import inference, surveys
from rrjax.estimators.affine_mle import maximum
from rrjax.mechanisms.surveys import (
    ForcedResponse,
    MirroredQuestion,
    NegativeQuestion,
    NonCompliance,
    UnrelatedQuestion,
)
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
    "warner": (MirroredQuestion(0.8), np.array([[0.8, 0.2], [0.2, 0.8]])),
    "warner-exchanged": (MirroredQuestion(0.3), np.array([[0.3, 0.7], [0.7, 0.3]])),
    "not-yours": (NegativeQuestion(3), (1 - EYE) / 2),
    "seldom-yours": (NegativeQuestion(3, 0.1), 0.1 * EYE + 0.45 * (1 - EYE)),
    "non-compliance": (NonCompliance(rrjax.RandomizedResponse(3, 1.0), 0.15, SHRUG), 0.85 * RR + 0.15 * SHRUG),
}
every_design = pytest.mark.parametrize("name", DESIGNS)


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
        assert stats.chisquare(seen[row > 0], row[row > 0] * true[value]).pvalue > 1e-3
    estimate = surveys.inv(rrjax.count(reports, len(true)), design)
    spread = np.sqrt((true[:, None] * channel * (1 - channel)).sum(0)) / 100_000
    slope = abs(channel[0, 0] - channel[1, 0])
    assert (np.abs(estimate - true / 100_000) < 4 * spread / slope + 4 * ULP / slope).all()


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


def test_equal_noise_is_randomized_response():
    counts = np.append(collect(0, 999, 100_000, 0.5), 0)
    weights = jnp.full(1000, 1 / expm1_epsilon(jnp.asarray(0.5, FLOAT)))
    found = maximum(jnp.asarray(counts, INT), weights, jnp.ones((), FLOAT))
    wanted = rrjax.mle_star(counts, 0.5)
    np.testing.assert_array_equal(found > 0, wanted > 0)
    # 1/e1 has a rounding of its own, which moves θ by 1/e1 times as much as the shares are from even.
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4 * ULP)
    huge = np.array([LARGEST - 30, 20, 10], INT)
    assert float(surveys.mle(huge, DESIGNS["forced"][0])[0]) == 1


@pytest.mark.long
@every_design
def test_the_maximum_is_that_of_solvers(name):
    design, channel = DESIGNS[name]
    size = len(channel)
    for counts in (draw(0, name), draw(1, name, 60), draw(2, name, 9)):
        theta = np.asarray(surveys.mle(counts, design), float)
        likelihood = surveys.mixture(counts, design)
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


def test_warner_is_the_clipped_inversion_either_way():
    for counts in ([380, 620], [100, 900], [0, 7], [500, 500]):
        for truth in (0.8, 0.55):
            wanted = np.clip((counts[0] / sum(counts) - (1 - truth)) / (2 * truth - 1), 0, 1)
            for design, given in ((MirroredQuestion(truth), counts), (MirroredQuestion(1 - truth), counts[::-1])):
                np.testing.assert_allclose(surveys.mle(given, design), [wanted, 1 - wanted], atol=20 * ULP)


jacobian = jax.jit(jax.jacobian(maximum))


def slopes(counts, design):
    """The derivatives of `mle` in float counts."""
    return np.asarray(jacobian(jnp.asarray(counts, FLOAT), *design.affine.noise(FLOAT)), float)


def test_categories_that_nobody_denied_have_everything():
    design = NegativeQuestion(3, 0.05)
    np.testing.assert_array_equal(surveys.mle([0, 4, 5], design), [1, 0, 0])
    np.testing.assert_array_equal(surveys.mle([0, 4, 0], design), [0.5, 0, 0.5])
    np.testing.assert_array_equal(slopes([0, 4, 5], design), np.zeros((3, 3)))


@pytest.mark.skipif(not X64, reason="finite differences of float32 show nothing")
@pytest.mark.parametrize("name", ["forced", "warner-exchanged", "seldom-yours", "non-compliance"])
def test_derivatives_match_finite_differences(name):
    design, _ = DESIGNS[name]
    leaves, tree = jax.tree.flatten(design)
    assert (surveys.mle(smooth(name), design) > 0).all()

    def changed(counts, first):
        """In weights, and in the probability that the design begins with."""
        return estimates(counts, jax.tree.unflatten(tree, [first, *(jnp.asarray(leaf) for leaf in leaves[1:])]))

    check_grads(changed, (smooth(name), jnp.asarray(leaves[0])), order=2, modes=("fwd", "rev"))


def test_derivatives_on_the_boundary_are_those_of_the_support():
    design = ForcedResponse(0.6, [0.5, 0.3, 0.2])
    # Two survivors: θ = f(1 + A/d) − a/d.
    slope = (1 + 0.4 * 0.8 / 0.6) * 50 * 43 / 93**2
    wanted = slope * np.array([[1 / 50, -1 / 43, 0], [-1 / 50, 1 / 43, 0], [0, 0, 0]])
    np.testing.assert_allclose(slopes([50, 43, 7], design), wanted, atol=20 * ULP)


@every_design
def test_intervals_are_clopper_and_pearson_of_each_count(name):
    design, channel = DESIGNS[name]
    counts = draw(3, name)
    number, level = counts.sum(), 0.9
    for simultaneous, miss in ((None, 0.1), ("bonferroni", 0.1 / len(counts))):
        p_low = np.where(counts > 0, stats.beta.ppf(miss / 2, counts, number - counts + 1), 0)
        p_high = np.where(counts < number, stats.beta.ppf(1 - miss / 2, counts + 1, number - counts), 1)
        always = np.array([channel[(j + 1) % len(channel), j] for j in range(len(channel))])
        ends = np.sort([(p - always) / (channel[0, 0] - always[0]) for p in (p_low, p_high)], axis=0).clip(0, 1)
        found = inference.intervals(counts, design, level, simultaneous=simultaneous)
        np.testing.assert_allclose(found, ends, atol=2e-5)


def test_standard_errors_are_those_of_the_delta_method():
    for name, counts in (("forced", [50, 43, 7]), ("forced", [50, 30, 20]), ("seldom-yours", [30, 35, 40])):
        design, _ = DESIGNS[name]
        counts, number = np.array(counts), sum(counts)
        shares = counts / number
        moved = slopes(counts, design) * number
        variance = np.diag(moved @ (np.diag(shares) - np.outer(shares, shares)) @ moved.T) / number
        wanted = np.where(np.asarray(surveys.mle(counts, design)) > 0, np.sqrt(variance), np.nan)
        np.testing.assert_allclose(inference.standard_errors(counts, design), wanted, rtol=1e-5)
    assert np.isnan(inference.standard_errors([1, 0, 0], NegativeQuestion(3))).all()
    assert np.isnan(inference.standard_errors([100, 0, 0], DESIGNS["forced"][0])).all()  # a point mass


def test_jit_and_vmap_change_nothing():
    name = "non-compliance"
    design = DESIGNS[name][0]
    counts = np.stack([draw(seed, name) for seed in range(4)])
    functions = (surveys.mle, surveys.inv, inference.standard_errors)

    @jax.jit
    def batched(counts, design):
        return [jax.vmap(lambda c, f=f: f(c, design))(counts) for f in functions]

    for function, found in zip(functions, batched(counts, design), strict=True):
        wanted = np.stack([function(row, design) for row in counts])
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    several = jax.vmap(lambda design: surveys.mle(np.array([380, 620]), design))(
        MirroredQuestion(jnp.array([0.3, 0.7], FLOAT))
    )
    np.testing.assert_allclose(several, [[0.8, 0.2], [0.2, 0.8]], atol=1e-6)


def estimates(counts, design):
    return jnp.concatenate([surveys.mle(counts, design), surveys.inv(counts, design)])


def test_unusable_counts_give_nan():
    design = DESIGNS["forced"][0]
    for counts in ([-1, 5, 5], [0, 0, 0], [LARGEST, 1, 1]):
        counts = jnp.array(counts, INT)
        assert np.isnan(estimates(counts, design)).all()
        assert np.isnan(inference.standard_errors(counts, design)).all()
        assert np.isnan(inference.intervals(counts, design)).all()
    for counts in ([-1, 5, 5], [np.nan, 1, 1], [np.inf, 1, 1]):
        assert np.isnan(estimates(np.array(counts, FLOAT), design)).all()


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda truth: ForcedResponse(truth, jnp.array([0.5, 0.3, 0.2])), [0.0, 1.0, -0.1, np.nan]),
        (lambda share: ForcedResponse(0.5, jnp.array([0.5, 0.3, 0.0]) + share * EYE[2].astype(FLOAT)), [0.1, -0.2]),
        (MirroredQuestion, [0.0, 0.5, 1.0, np.nan]),
        (lambda own: NegativeQuestion(3, own), [-0.1, 0.34, np.nan]),
        (lambda share: NonCompliance(rrjax.RandomizedResponse(3, 1.0), share, SHRUG), [0.0, 1.0]),
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


def test_traced_values_outside_the_domain_are_marked():
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
        (lambda: MirroredQuestion(0.5), "truth"),
        (lambda: MirroredQuestion(0.0), "truth"),
        (lambda: MirroredQuestion(np.array([0.3, 0.4])).affine, "truth"),
        (lambda: NegativeQuestion(3, 0.4), "own"),
        (lambda: NegativeQuestion(1), "num_categories"),
        (lambda: NonCompliance(rrjax.RandomizedResponse(3, 1.0), 0.1, [0.5, 0.5]), "answers"),
        (lambda: NonCompliance(rrjax.RandomizedResponse(2, 1.0), 1.5, [0.5, 0.5]), "ignoring"),
        (
            lambda: surveys.mle([1, 2], ForcedResponse(0.5, np.array([[0.5, 0.5]]))),
            "forced",
        ),
        (
            lambda: NonCompliance(rrjax.RandomizedResponse(2, 1.0), 0.1, np.array([[0.5, 0.5]])).affine,
            "answers",
        ),
        (lambda: surveys.mle([1, 2, 3], MirroredQuestion(0.7)), "counts"),
        (lambda: inference.standard_errors([1.0, 2.0], MirroredQuestion(0.7)), "counts"),
        (lambda: inference.intervals([1, 2], MirroredQuestion(0.7), 1.5), "level"),
        (lambda: surveys.mixture([0, 0], MirroredQuestion(0.7)), "weights"),
        (lambda: MirroredQuestion(0.7).randomize(jax.random.key(0), [0, 2]), "values"),
        (lambda: MirroredQuestion(0.7).probabilities([0.2, 0.3, 0.5]), "theta"),
    ],
)
def test_bad_input_is_named(make, message):
    with refused(message):
        make()
