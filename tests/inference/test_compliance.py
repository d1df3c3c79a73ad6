"""Surveys of which an unknown share does not follow the rules: exact estimates, coverage, what identifies nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, special, stats

from rrjax.inference import compliance
from rrjax.mechanisms import AnchoredCrosswise, CheatingDetection, SelfProtection, StochasticLieDetector

DESIGNS = {
    "cheating": CheatingDetection([0.25, 0.75]),
    "lies": StochasticLieDetector([0.8, 0.4]),
    "anchor": AnchoredCrosswise(0.15, 0.2, 0.1),
    "protection": SelfProtection([0.8, 0.4], 0.4),
}
every_design = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "anchor" else pytest.mark.long) for name in DESIGNS]
)


def share_of(design, kinds):
    if design.share == "all":
        return kinds[0] + kinds[2]
    return kinds[0] if design.share == "least" else kinds[0] / (kinds[0] + kinds[1])


def value(design, kinds, counts):
    chance = np.asarray(design.yes, float) @ kinds
    return float(np.sum(counts * np.log(np.maximum(np.column_stack([chance, 1 - chance]), 1e-300))))


@every_design
def test_the_maximum_and_the_limits_are_those_of_a_solver(name):
    design = DESIGNS[name]
    counts = np.array([[380, 620], [290, 310]]) if name != "anchor" else np.array([[610, 390], [430, 170]])
    found = compliance(counts, design, level=0.9)
    kinds = np.asarray(found.kinds, float)
    assert abs(kinds.sum() - 1) < 1e-5
    assert kinds.min() >= 0
    constraint = {"type": "eq", "fun": lambda kinds: kinds.sum() - 1}

    def solved(*more):
        best = optimize.minimize(
            lambda kinds: -value(design, kinds, counts), [0.3, 0.5, 0.2], method="SLSQP", tol=1e-12,
            bounds=[(1e-9, 1)] * 3, constraints=[constraint, *more],
        )  # fmt: skip
        return -best.fun

    top = solved()
    assert value(design, kinds, counts) == pytest.approx(top, abs=1e-4 if X64 else 5e-3)
    for limit in (float(found.lower), float(found.upper)):
        if not 0 < limit < 1:
            continue
        at = {"type": "eq", "fun": lambda kinds, limit=limit: share_of(design, kinds) - limit}
        lost = top - solved(at)
        assert lost == pytest.approx(stats.chi2.ppf(0.9, 1) / 2, abs=1e-3 if X64 else 0.02)


SETTINGS = [
    ("cheating", (0.1, 0.7, 0.2), 1000),
    ("cheating", (0.02, 0.9, 0.08), 600),
    ("lies", (0.2, 0.7, 0.1), 1500),
    ("anchor", (0.1, 0.7, 0.2), 2000),
    ("protection", (0.25, 0.6, 0.15), 1000),
    ("protection", (0.05, 0.75, 0.2), 2000),
]


@pytest.mark.long  # 2,000 surveys in each of six settings
@pytest.mark.once
@pytest.mark.parametrize(("name", "kinds", "number"), SETTINGS)
def test_estimates_are_unbiased_and_intervals_cover(name, kinds, number):
    design, kinds = DESIGNS[name], np.asarray(kinds)
    chance = np.asarray(design.yes, float) @ kinds
    said = np.random.default_rng(number).binomial(number, chance, (2000, 2))
    counts = np.stack([said, number - said], axis=-1)
    found = jax.jit(jax.vmap(lambda counts: compliance(counts, design)))(counts)
    truth = share_of(design, kinds)
    covered = np.mean((found.lower <= truth) & (truth <= found.upper))
    assert covered >= 0.94
    inside = np.isfinite(found.standard_error)
    error = np.asarray(found.share, float) - truth
    if inside.mean() > 0.995:  # else the boundary biases
        assert abs(error.mean()) < 3 * error.std() / np.sqrt(2000) + np.square(error.std())
        assert np.sqrt(np.mean(np.square(found.standard_error[inside]))) == pytest.approx(error.std(), rel=0.1)


def every_outcome(numbers, design, *fields):
    """Numbers of yes of all outcomes, fields of each estimate, and their chances as a function of those of a yes."""
    said = np.indices([number + 1 for number in numbers]).reshape(2, -1).T
    counts = np.stack([said, numbers - said], axis=-1).astype(np.int32)
    found = jax.jit(jax.vmap(lambda counts: [getattr(compliance(counts, design), field) for field in fields]))(counts)
    found = [np.asarray(each, float) for each in found]
    return said, found, lambda chance: np.prod(stats.binom.pmf(said, numbers, chance), axis=1)


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("name", DESIGNS)
def test_the_tests_have_their_exact_sizes(name):
    """By all outcomes; half of a χ²₁ alone has sizes of 0.08 where nobody has the attribute."""
    design = DESIGNS[name]
    yes, corners = np.asarray(design.yes, float), np.eye(3)
    _, (comply, fit), weights = every_outcome((60, 40), design, "p_value", "fit_p_value")
    for share in (0, 0.01, 0.03, 0.1, 0.2, 0.5, 0.9, 0.99):
        chances = weights(yes @ np.array([share, 1 - share, 0]))
        for level in (0.05, 0.01):
            assert chances @ (comply <= level) < 1.1 * level
    for first, second in ((0, 1), (0, 2), (1, 2)):
        for part in (0, 0.03, 0.25, 0.75, 0.97, 1):
            chances = weights(yes @ (part * corners[first] + (1 - part) * corners[second]))
            for level in (0.05, 0.01):
                assert chances @ (fit <= level) <= level


@pytest.mark.long
@pytest.mark.once
def test_where_few_answers_of_a_kind_are_expected_is_as_the_docstring_says():
    """Profile intervals and the test keep their level only with some expected yes and no in each sample."""
    design = CheatingDetection([0.25, 0.75])
    _, (lower, upper), weights = every_outcome((80, 80), design, "lower", "upper")
    covered = (lower <= 0.975 + 1e-6) & (upper >= 0.975 - 1e-6)
    assert weights(np.asarray(design.yes, float) @ [0.975, 0.025, 0])[..., covered].sum() == pytest.approx(
        0.863, abs=1e-3
    )
    design = SelfProtection([0.95, 0.3], 0.1)
    _, (comply,), weights = every_outcome((25, 25), design, "p_value")
    chances = weights(np.asarray(design.yes, float) @ [0.05, 0.95, 0])
    assert chances @ (comply <= 0.05) == pytest.approx(0.080, abs=1e-3)
    design = SelfProtection([0.8, 0.4], 0.5)
    _, (comply,), weights = every_outcome((200, 25), design, "p_value")
    chances = weights(np.asarray(design.yes, float) @ [0, 1, 0])
    assert chances @ (comply <= 0.05) == pytest.approx(0.062, abs=1e-3)


@pytest.mark.long
@pytest.mark.once
def test_who_does_not_comply_is_found_as_often_as_without_the_corner():
    """At a share of a fifth the plain test has no advantage but the one of a size that is too large."""
    design = DESIGNS["cheating"]
    said, (p_value, kinds, naive), weights = every_outcome((120, 120), design, "p_value", "kinds", "naive")

    def loglik(kinds):
        chance = np.clip(kinds @ np.asarray(design.yes, float).T, 0, 1)
        return (special.xlogy(said, chance) + special.xlog1py(120 - said, -chance)).sum(1)

    ratio = 2 * (loglik(kinds) - loglik(np.stack([naive, 1 - naive, 0 * naive], axis=1)))
    plain = stats.norm.sf(np.sqrt(np.maximum(ratio, 0)))
    chances = weights(np.asarray(design.yes, float) @ np.array([0.2, 0.7, 0.1]))
    power = [chances @ (each <= 0.05) for each in (p_value, plain)]
    assert power[1] - 0.03 < power[0] <= power[1]


def test_exchanged_samples_do_not_fit_the_design():
    design = CheatingDetection([0.25, 0.75])
    wrong, right = (compliance(counts, design) for counts in ([[550, 450], [400, 600]], [[400, 600], [550, 450]]))
    # Twice the log-likelihood that is lost where both samples have one share of yes.
    best = stats.binom.logpmf([550, 400], 1000, [0.55, 0.4]).sum() - stats.binom.logpmf([550, 400], 1000, 0.475).sum()
    assert float(wrong.misfit) == pytest.approx(2 * best, rel=1e-4)
    assert wrong.fit_p_value < 1e-9
    assert wrong.swapped_p_value == right.fit_p_value == 1
    assert right.swapped_p_value == pytest.approx(float(wrong.fit_p_value), rel=1e-3)
    assert right.misfit == 0
    assert np.isnan(wrong.standard_error)
    # Large samples do not cancel: 10⁷ times as many have 10⁴ times the statistic, not noise of 10.
    many = compliance(jnp.asarray([[550, 450], [400, 600]]) * 10_000, design)
    assert float(many.misfit) == pytest.approx(2e4 * best, rel=1e-4)
    fits = compliance(jnp.asarray([[475, 525], [475, 525]]) * 40_000, design)
    assert float(fits.misfit) < 1e-3
    assert float(fits.fit_p_value) > 0.9


@every_design
def test_the_share_if_all_complied_is_the_maximum_of_both_samples(name):
    design = DESIGNS[name]
    counts = np.array([[12, 88], [71, 129]])
    found = compliance(counts, design)
    shares = np.linspace(0, 1, 100_001)
    chance = np.asarray(design.yes, float)[:, :2] @ np.stack([shares, 1 - shares])
    values = (special.xlogy(counts[:, :1], chance) + special.xlog1py(counts[:, 1:], -chance)).sum(0)
    assert float(found.naive) == pytest.approx(shares[values.argmax()], abs=2e-5 if X64 else 1e-4)


def test_the_published_survey():
    design = AnchoredCrosswise(0.15, 0.15)
    counts = [[1427, 573], [1541, 459]]
    apart, same = (compliance(counts, design, same_people=each) for each in (False, True))
    assert f"{float(apart.share):.4f} {1 - float(apart.not_complying):.4f}" == "0.1054 0.7729"
    assert f"{float(apart.standard_error):.4f} {float(same.standard_error):.4f}" == "0.0232 0.0222"
    # Where half of them left out one answer, the covariance is that of the smaller sample within the larger one.
    counts = [[1427, 573], [771, 229]]
    apart, same = (compliance(counts, design, same_people=each) for each in (False, True))
    yes, number = np.asarray(design.yes, float), np.sum(counts, axis=1)  # [sample, kind]
    rates = np.divide(counts, number[:, None])[:, 0]

    def kinds(rates):
        return np.linalg.solve(np.vstack([yes, np.ones(3)]), [*rates, 1])

    def share(rates):
        return kinds(rates)[0] / (kinds(rates)[:2].sum())

    slope = np.array([(share(rates + step) - share(rates - step)) / 2e-5 for step in 1e-5 * np.eye(2)])
    spread = np.diag(rates * (1 - rates) / number)
    spread[[0, 1], [1, 0]] = (kinds(rates) @ (yes[0] * yes[1]) - rates.prod()) / number.max()
    assert float(same.standard_error) == pytest.approx(np.sqrt(slope @ spread @ slope), rel=1e-3)


@pytest.mark.once
def test_what_identifies_nothing_is_refused():
    for make in (CheatingDetection, StochasticLieDetector, lambda truth: SelfProtection(truth, 0.5)):
        for given in ([0.5, 0.5], [0.5], 0.5, [0.2, 1.2], [0.1, 0.2, 0.3], ["a", "b"]):
            with refused():
                make(given)
    for innocuous, anchor, share in ((0.5, 0.2, 0), (0.2, 0.5, 0), (0.2, 0.2, 1.5)):
        with refused():
            AnchoredCrosswise(innocuous, anchor, share)
    with refused("parameters"):  # the anchor question is answered yes as often as at random
        compliance([[10, 10], [10, 10]], AnchoredCrosswise(0.2, 0.3, 0.5))
    design = DESIGNS["lies"]
    for counts in ([10, 20], [[1, 2, 3], [4, 5, 6]], [[1.5, 2], [3, 4]]):
        with refused("counts"):
            compliance(counts, design)
    with refused("level"):
        compliance([[1, 2], [3, 4]], design, level=95)
    with refused("design"):
        compliance([[1, 2], [3, 4]], 0.5)


def test_unusable_counts_give_nan_and_extremes_do_not():
    design = DESIGNS["protection"]
    for counts in ([[-1, 5], [2, 2]], [[0, 0], [2, 2]]):
        assert np.isnan(compliance(jnp.asarray(counts), design).kinds).all()
    for counts in ([[0, 50], [0, 50]], [[50, 0], [50, 0]], [[0, 50], [50, 0]], [[1, 0], [0, 1]]):
        found = compliance(counts, design)
        assert np.isfinite(found.kinds).all()
        assert float(found.lower) <= float(found.share) + 1e-6 <= float(found.upper) + 2e-6 or np.isnan(found.share)
    assert found.kinds.dtype == FLOAT
