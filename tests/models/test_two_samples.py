"""Regressions from two samples: against another solver, published figures, the boundary, and what is refused."""

import jax
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, special, stats

from rrjax import inference, mechanisms
from rrjax.models import fit, likelihood_ratio_test, predict, wald_test

pytestmark = pytest.mark.long  # every fit compiles for a second or more

TRUE = np.asarray([-0.4, 0.8, -0.5])
"""Log-odds of a yes."""


def complying(share, second, have, lack, other):
    return (1 - second) * (share * have + (1 - share) * lack) + second * other


def lying(share, second, have, lack, other):
    return share * ((1 - second) * have + second * other) + (1 - share) * lack


def unrelated(share, second, have, lack, _):
    return have * share + lack * second


DESIGNS = {
    "cheating": (mechanisms.CheatingDetection([0.25, 0.75]), complying, [[1, 0.25, 0], [1, 0.75, 0]]),
    "symmetric": (
        mechanisms.CheatingDetection([0.2, 0.6], forced_no=[0.3, 0.1]),
        complying,
        [[0.7, 0.2, 0], [0.9, 0.6, 0]],
    ),
    "lies": (mechanisms.StochasticLieDetector([0.8, 0.3]), lying, [[1, 0.2, 0], [1, 0.7, 0]]),
    "anchor": (mechanisms.AnchoredCrosswise(0.15, 0.2, 0.1), complying, [[0.15, 0.85, 0.5], [0.74, 0.74, 0.5]]),
    "protection": (mechanisms.SelfProtection([0.8, 0.4], 0.6), complying, [[0.92, 0.12, 0], [0.76, 0.36, 0]]),
    "unrelated": (mechanisms.UnrelatedQuestionTwoSamples([0.8, 0.3]), unrelated, [[0.8, 0.2, 0], [0.3, 0.7, 0]]),
}


def population(name, number=3000, second=(-1.2, 0.5), seed=0):
    """Covariates, answers, samples, and P(yes) at other log-odds, as it is told to respondents."""
    rng = np.random.default_rng(seed)
    covariates = np.column_stack([rng.normal(size=number), rng.random(number) < 0.4]).astype(FLOAT)
    sample = (np.arange(number) % 2).astype(int)
    _, law, yes = DESIGNS[name]
    design = np.c_[np.ones(number), covariates]

    def chance(first, other):
        return law(expit(design @ first), expit(design[:, : len(other)] @ other), *np.asarray(yes)[sample].T)

    return covariates, (rng.random(number) >= chance(TRUE, np.asarray(second))).astype(int), sample, chance


def expit(values):
    """The logistic function, of complex numbers too."""
    return 1 / (1 + np.exp(-values))


def maximum(chance, answers, width):
    """Log-odds of both shares by SciPy, and the log-likelihood; the slope is that of a complex step."""

    def minus(flat):
        yes = chance(flat[:3], flat[3:])
        return -np.log(np.where(answers == 0, yes, 1 - yes)).mean()

    def slope(flat):
        return np.asarray([minus(flat + 1e-30j * each).imag for each in np.eye(3 + width)]) / 1e-30

    start = np.r_[TRUE, [-1.2, 0.0][:width]]
    near = optimize.minimize(lambda flat: minus(flat).real, start, jac=slope, method="BFGS", options={"gtol": 1e-7}).x
    found = optimize.root(slope, near, tol=1e-13).x
    return found, -minus(found) * len(answers)


@pytest.mark.full
@pytest.mark.parametrize(("name", "width"), list(zip(DESIGNS, [1, 2, 2, 1, 2, 1], strict=True)))
def test_the_maximum_is_that_of_another_solver(name, width):
    covariates, answers, sample, chance = population(name)
    found = fit(covariates, answers, DESIGNS[name][0], sample=sample, nuisance=covariates[:, : width - 1])
    wanted, log_likelihood = maximum(chance, answers, width)
    ours = np.r_[-found.coefficients[:, 0], found.nuisance_coefficients]
    np.testing.assert_allclose(ours, wanted, atol=1e-6 if X64 else 0.02)
    np.testing.assert_allclose(found.log_likelihood, log_likelihood, rtol=1e-12 if X64 else 1e-6)
    # The truth lies within four standard errors.
    truth = np.r_[TRUE, -1.2, 0.5]
    errors = np.r_[found.standard_errors[:, 0], found.nuisance_standard_errors]
    if width == 2:
        assert (abs(ours - truth) < 4 * errors).all()
    assert found.num_parameters == 3 + width


@pytest.mark.full
def test_the_published_estimate_of_the_minarets():
    """RRreg's figures, from counts that follow from them: π .870695, t .635806, and .3691 if nobody lied."""
    counts = np.asarray([[373, 191], [398, 294]])
    answers, sample = np.repeat([0, 1, 0, 1], counts.ravel()), np.repeat([0, 1], counts.sum(1))
    design = mechanisms.StochasticLieDetector([2 / 12, 10 / 12])
    found = fit(np.zeros((1256, 0), FLOAT), answers, design, sample=sample)
    share = predict(found, np.zeros((1, 0), FLOAT))
    tolerance = 6e-7 if X64 else 1e-4
    assert abs(share.shares[0, 0] - 0.870695) < tolerance
    # RRreg divides by n − 1 in each sample: .041118.
    assert abs(share.standard_errors[0, 0] - 0.041085) < tolerance
    assert abs(1 - found.nuisance - 0.635806) < tolerance
    assert abs(special.expit(-float(found.naive[0, 0])) - 0.3691) < 5e-5
    plain = inference.compliance(counts, design)
    limits = special.expit(-np.asarray(found.profile_intervals(), float))[0, ::-1]
    np.testing.assert_allclose(limits, [plain.lower, plain.upper], atol=1e-5)
    assert found.p_value < 1e-50 if X64 else found.p_value < 1e-30


@pytest.mark.full
def test_profiles_are_those_of_another_solver():
    covariates, answers, sample, chance = population("cheating", number=1000)
    found = fit(covariates, answers, DESIGNS["cheating"][0], sample=sample)
    lower, upper = np.asarray(found.profile_intervals(0.9)).T
    for place in range(4):
        for limit in (lower[place], upper[place]):

            def minus(others, place=place, limit=limit):
                flat = np.insert(others, place, limit)
                yes = chance(-flat[:3], flat[3:])
                return -np.log(np.where(answers == 0, yes, 1 - yes)).sum()

            start = np.delete(np.r_[found.coefficients[:, 0], found.nuisance_coefficients].astype(float), place)
            drop = 2 * (optimize.minimize(minus, start, method="BFGS").fun + float(found.log_likelihood))
            assert abs(drop - 2.705543) < (1e-3 if X64 else 0.05)


@pytest.mark.full
def test_where_everybody_follows_the_rule_there_is_no_second_share():
    """The maximum is that of the one-sample model, and the share that is held has no error."""
    for seed in range(5):
        covariates, answers, sample, _ = population("cheating", 1000, second=(-60.0,), seed=seed)
        found = fit(covariates, answers, DESIGNS["cheating"][0], sample=sample)
        if found.nuisance < 1e-5:
            break
    designs = [mechanisms.Channel(np.asarray([[1, 0], [forced, 1 - forced]])) for forced in (0.25, 0.75)]
    plain = [fit(covariates, answers, each, weights=sample == place) for place, each in enumerate(designs)]
    assert np.isfinite(found.standard_errors).all()
    assert np.isnan(found.nuisance_error)
    np.testing.assert_allclose(found.naive, found.coefficients, atol=1e-4)
    assert found.p_value == 1
    assert (found.standard_errors < np.minimum(*(each.standard_errors for each in plain))).all()
    limits = np.asarray(found.profile_intervals())
    assert np.isneginf(limits[3, 0])
    assert -6 < limits[3, 1] < 0


@pytest.mark.full
def test_units_weights_and_prior():
    covariates, answers, sample, _ = population("lies")
    design = DESIGNS["lies"][0]
    found = fit(covariates, answers, design, sample=sample)
    other = fit(10 * covariates + 40, answers, design, sample=sample)
    np.testing.assert_allclose(other.coefficients[1:] * 10, found.coefficients[1:], rtol=1e-3)
    limits, others = (np.asarray(each.profile_intervals()) for each in (found, other))
    np.testing.assert_allclose(10 * others[1:3], limits[1:3], rtol=1e-2, atol=1e-3)
    twice = fit(covariates, answers, design, sample=sample, weights=np.full(len(answers), 2))
    np.testing.assert_allclose(twice.standard_errors * np.sqrt(2), found.standard_errors, rtol=1e-3)
    robust = fit(covariates, answers, design, sample=sample, covariance="sandwich")
    np.testing.assert_allclose(robust.standard_errors, found.standard_errors, rtol=0.2)
    alone = fit(covariates, answers, design, sample=sample, clusters=np.arange(len(answers)))
    np.testing.assert_allclose(alone.standard_errors, robust.standard_errors, rtol=2e-3)
    prior = fit(covariates, answers, design, sample=sample, ridge=100.0)
    assert abs(prior.coefficients[1, 0]) < abs(found.coefficients[1, 0])
    for each in (robust, prior):
        with refused("level"):
            each.profile_intervals()


@pytest.mark.full
@pytest.mark.parametrize("second", [(-60.0,), (-1.2,)])
def test_weights_and_clusters_do_not_change_whether_everybody_follows_the_rule(second):
    """With all weights 100 the test of a true hypothesis rejected .41 at .05; with clusters of copies, too."""
    covariates, answers, sample, _ = population("cheating", 600, second=second, seed=1)
    design, more = DESIGNS["cheating"][0], {"sample": sample}
    plain = fit(covariates, answers, design, **more)
    assert 0 < float(plain.p_value) < 1
    weighted = fit(covariates, answers, design, weights=np.full(600, 100.0), covariance="sandwich", **more)
    assert bool(weighted.converged)
    np.testing.assert_allclose(weighted.statistic, plain.statistic, rtol=0.01)
    np.testing.assert_allclose(weighted.p_value, plain.p_value, rtol=0.05)
    copies = [np.repeat(each, 5, axis=0) for each in (covariates, answers, sample)]
    clustered = fit(*copies[:2], design, sample=copies[2], clusters=np.repeat(np.arange(600), 5))
    np.testing.assert_allclose(clustered.statistic, plain.statistic, rtol=0.01)
    np.testing.assert_allclose(clustered.p_value, stats.t.sf(np.sqrt(clustered.statistic), 599), rtol=1e-3)


@pytest.mark.full
def test_a_second_share_near_zero_is_no_obstacle():
    """Of 1,600 surveys without cheating 33 were not fitted: log-odds with an error of 30 are a share of .001 ± .03."""
    designs = [population("cheating", 1000, second=(-60.0,), seed=seed)[:3] for seed in range(200)]
    stacked = (np.stack(each) for each in zip(*designs, strict=True))
    one = jax.vmap(lambda x, y, s: fit(x, y, DESIGNS["cheating"][0], sample=s))
    found = jax.jit(lambda *each: jax.lax.map(lambda part: one(*part), [x.reshape(4, 50, *x.shape[1:]) for x in each]))(
        *stacked
    )
    share, errors = (np.asarray(each).ravel() for each in (found.nuisance, found.nuisance_standard_errors))
    near = (share > 1e-5) & (errors > 15)
    assert near.sum() >= 3
    assert np.asarray(found.converged).all()
    assert np.asarray(found.nuisance_error).ravel()[near].max() < 0.1
    covariates, answers, sample = designs[int(np.flatnonzero(near)[0])]
    assert fit(covariates, answers, DESIGNS["cheating"][0], sample=sample).converged  # it refuses what is not


@pytest.mark.full
@pytest.mark.parametrize("seed", [43, 94, 182, 219])
def test_a_small_second_share_is_not_taken_for_zero(seed):
    """One long step ended the search at a share of zero, with p = 1."""
    rng, number = np.random.default_rng(seed), 3000
    x, sample = rng.normal(size=2 * number), np.repeat([0, 1], number)
    yes = complying(expit(-0.5 + 0.7 * x), 0.036, np.where(sample == 0, 0.15, 0.85), 0.85, 0.5)
    answers = (rng.random(2 * number) >= yes).astype(int)
    design = mechanisms.AnchoredCrosswise(0.15, 0.15)
    found = fit(x, answers, design, sample=sample)
    assert 0.03 < float(found.nuisance) < 0.05
    assert float(found.p_value) < 0.05
    own = fit(x, answers, design, sample=sample, nuisance=x)  # its test is of a constant share
    np.testing.assert_allclose(own.p_value, found.p_value, rtol=0.05)
    if not X64:  # rounding moves the statistic by more than one
        many = fit(x, answers, design, sample=sample, weights=np.full(2 * number, 1e5))
        assert np.isnan(many.p_value)


@pytest.mark.full
@pytest.mark.parametrize("share", [1e-7, 3e-6, 9e-6, 2e-5])
def test_a_second_share_that_is_held_may_have_its_maximum_inside(share):
    """The slope at zero says that there is more to gain: what was gained already."""
    forced, carriers = np.array([0.25, 0.75]), 0.3
    yes = (1 - share) * (carriers + (1 - carriers) * forced)
    weights = 1e6 * np.stack([yes, 1 - yes], axis=1).ravel()
    found = fit(
        np.zeros((4, 0)), [0, 1, 0, 1], mechanisms.CheatingDetection(forced), sample=[0, 0, 1, 1], weights=weights
    )
    assert bool(found.converged)
    assert float(found.nuisance) < 1e-3


@pytest.mark.full
def test_tests_of_covariates():
    covariates, answers, sample, _ = population("protection")
    noise = np.random.default_rng(9).normal(size=(len(answers), 1)).astype(FLOAT)
    full = fit(np.c_[covariates, noise], answers, DESIGNS["protection"][0], sample=sample)
    within = fit(covariates, answers, DESIGNS["protection"][0], sample=sample)
    assert likelihood_ratio_test(full, within).degrees == 1
    one, other = likelihood_ratio_test(full, within).p_value, wald_test(full, 2).p_value
    assert abs(one - other) < 0.02
    assert one > 0.01
    assert wald_test(full, 0).p_value < 0.01
    second = fit(covariates, answers, DESIGNS["protection"][0], sample=sample, nuisance=covariates)
    assert likelihood_ratio_test(second, within).degrees == 2


@pytest.mark.full
def test_a_batch_is_a_loop():
    designs = [population("anchor", 600, seed=seed)[:3] for seed in range(3)]
    covariates, answers, sample = (np.stack(each) for each in zip(*designs, strict=True))
    design = DESIGNS["anchor"][0]
    together = jax.jit(jax.vmap(lambda x, y, s: fit(x, y, design, sample=s)))(covariates, answers, sample)
    for place in range(3):
        alone = fit(covariates[place], answers[place], design, sample=sample[place])
        np.testing.assert_allclose(together.coefficients[place], alone.coefficients, atol=1e-8 if X64 else 0.02)
    assert together.nuisance_coefficients.shape == (3, 1)


@pytest.mark.full
def test_what_is_wrong_is_named():
    covariates, answers, sample, _ = population("cheating", 400)
    design = DESIGNS["cheating"][0]
    lies = mechanisms.StochasticLieDetector([0.99, 0.01])
    # The sample that is forced less often says yes more often.
    odd = np.where(sample == 0, np.arange(400) % 10 >= 8, np.arange(400) % 10 >= 2).astype(int)
    separated = (covariates[:, 0] > 0).astype(int)
    for argument, said, law, how in [
        ("sample", answers, design, {}),
        ("sample", answers, mechanisms.Crosswise(0.2), {"sample": sample}),
        ("sample", answers, design, {"sample": sample + 1}),
        ("sample", answers, design, {"sample": sample[1:]}),
        ("sample", answers, design, {"sample": 0 * sample}),  # nobody is in the other one
        ("reports", answers + 1, design, {"sample": sample}),
        ("nuisance", answers, design, {"sample": sample, "nuisance": covariates[1:]}),
        ("nuisance", answers, 1.0, {"num_categories": 2, "nuisance": covariates}),
        ("reduce_bias", answers, design, {"sample": sample, "reduce_bias": True}),
        ("covariance", answers, design, {"sample": sample, "covariance": "none"}),
        ("sample", odd, design, {"sample": sample}),
    ]:
        with refused(argument):
            fit(covariates, said, law, **how)
    with refused(reason="unbounded"):
        fit(covariates, separated, lies, sample=sample)
    for wrong in ([0.3, 0.3], None), ([0.3, 0.6], [0.1, 0.5]), ([0.3, 0.6], [-0.1, 0.2]):
        with refused("forced" if wrong[1] is None else "forced_no"):
            mechanisms.CheatingDetection(*(each for each in wrong if each is not None))
    with refused("parameters"):
        _ = mechanisms.CheatingDetection([0.3, 0.6], [0.5, 0.0]).yes
