"""Two unknown shares from two samples: exact estimates, coverage, sizes of tests, what identifies nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, special, stats

from rrjax.inference import compliance, unrelated_question
from rrjax.mechanisms import (
    AnchoredCrosswise,
    CheatingDetection,
    SelfProtection,
    StochasticLieDetector,
    UnrelatedQuestionTwoSamples,
)

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


@pytest.mark.long
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


@pytest.mark.full  # 2,000 surveys in each of six settings
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
    estimate = unrelated_question if isinstance(design, UnrelatedQuestionTwoSamples) else compliance
    found = jax.jit(jax.vmap(lambda counts: [getattr(estimate(counts, design), field) for field in fields]))(counts)
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


@pytest.mark.full
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


@pytest.mark.long
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


@pytest.mark.long
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


ASKED = np.array([0.7, 0.2])
UNRELATED = UnrelatedQuestionTwoSamples(ASKED)
INSIDE = [[260, 740], [340, 460]]
OUTSIDE = [  # on each side of the square and at a corner
    [[90, 910], [300, 700]],
    [[300, 700], [40, 960]],
    [[850, 150], [500, 500]],
    [[600, 400], [950, 50]],
    [[0, 50], [0, 60]],
    [[50, 0], [60, 0]],
    [[50, 0], [0, 50]],
]


def value_of_square(share, unrelated, counts):
    chance = ASKED[:, None] * np.ravel(share) + (1 - ASKED[:, None]) * np.ravel(unrelated)
    said, denied = np.asarray(counts, float).T
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(chance, 1e-300)), np.log(np.maximum(1 - chance, 1e-300))
    return said @ logs[0] + denied @ logs[1]


@pytest.mark.long
def test_inside_the_square_the_estimate_solves_both_equations():
    found = unrelated_question(INSIDE, UNRELATED)
    counts = np.asarray(INSIDE, float)
    said, number = counts[:, 0] / counts.sum(1), counts.sum(1)
    # Greenberg et al., equations for π and its variance.
    share = (said[0] * (1 - ASKED[1]) - said[1] * (1 - ASKED[0])) / (ASKED[0] - ASKED[1])
    unrelated = (said[1] * ASKED[0] - said[0] * ASKED[1]) / (ASKED[0] - ASKED[1])
    spread = said * (1 - said) / number
    error = np.sqrt((1 - ASKED[1]) ** 2 * spread[0] + (1 - ASKED[0]) ** 2 * spread[1]) / (ASKED[0] - ASKED[1])
    other = np.sqrt(ASKED[1] ** 2 * spread[0] + ASKED[0] ** 2 * spread[1]) / (ASKED[0] - ASKED[1])
    assert [float(each) for each in (found.share, found.unrelated)] == pytest.approx([share, unrelated], rel=1e-5)
    assert [float(each) for each in (found.standard_error, found.unrelated_error)] == pytest.approx(
        [error, other], rel=1e-5
    )
    assert found.share.dtype == FLOAT


@pytest.mark.long
@pytest.mark.parametrize("counts", OUTSIDE)
def test_outside_the_maximum_is_on_the_boundary(counts):
    found = unrelated_question(counts, UNRELATED)
    grid = np.linspace(0, 1, 1001)
    values = value_of_square(*np.meshgrid(grid, grid), counts)
    assert value_of_square(float(found.share), float(found.unrelated), counts)[0] >= values.max() - (
        1e-6 if X64 else 1e-3
    )
    at = np.array([found.share, found.unrelated], float)
    assert np.isclose(at, 0, atol=1e-6).any() or np.isclose(at, 1, atol=1e-6).any()
    assert np.isnan(found.standard_error)
    assert 0 <= found.lower <= found.share + 1e-6 <= found.upper + 2e-6 <= 1 + 2e-6


@pytest.mark.long
@pytest.mark.parametrize("counts", [INSIDE, *OUTSIDE])
def test_the_limits_are_those_of_the_profile_by_brute_force(counts):
    found = unrelated_question(counts, UNRELATED, level=0.9)
    top = value_of_square(float(found.share), float(found.unrelated), counts)[0]

    def lost(share):
        best = optimize.minimize_scalar(
            lambda unrelated: -value_of_square(share, unrelated, counts)[0], bounds=(0, 1), method="bounded",
            options={"xatol": 1e-10},
        ).fun  # fmt: skip
        return top + min(best, *(-value_of_square(share, end, counts)[0] for end in (0, 1)))

    half = stats.chi2.ppf(0.9, 1) / 2
    for limit, end in ((float(found.lower), 0), (float(found.upper), 1)):
        if limit == end:
            assert lost(end) <= half + (1e-6 if X64 else 0.01)
        else:
            assert lost(limit) == pytest.approx(half, abs=1e-5 if X64 else 0.01)


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize(("share", "unrelated"), [(0.2, 0.4), (0.02, 0.6), (0.0, 0.3)])
def test_intervals_cover_and_the_estimate_is_unbiased(share, unrelated):
    chance = ASKED * share + (1 - ASKED) * unrelated
    said = np.random.default_rng(7).binomial(1500, chance, (2000, 2))
    found = jax.jit(jax.vmap(lambda counts: unrelated_question(counts, UNRELATED)))(np.stack([said, 1500 - said], -1))
    covered = np.mean((found.lower <= share) & (share <= found.upper))
    assert covered >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / 2000)
    if share == 0.2:  # elsewhere the boundary biases
        assert covered <= 0.95 + 4 * np.sqrt(0.95 * 0.05 / 2000)
        error = np.asarray(found.share, float) - share
        assert abs(error.mean()) < 4 * error.std() / np.sqrt(2000)
        assert np.mean(found.standard_error) == pytest.approx(error.std(), rel=0.08)


@pytest.mark.parametrize("counts", OUTSIDE)
def test_the_test_of_fit_compares_with_the_counted_shares(counts):
    found = unrelated_question(counts, UNRELATED)
    said, number = np.asarray(counts, float)[:, 0], np.asarray(counts, float).sum(1)
    chance = ASKED * float(found.share) + (1 - ASKED) * float(found.unrelated)
    best, here = (stats.binom.logpmf(said, number, each).sum() for each in (said / number, np.clip(chance, 0, 1)))
    assert float(found.misfit) == pytest.approx(2 * (best - here), rel=1e-3, abs=1e-3)
    # At a corner two shares are at their bounds, on a side one; counts are moved by half a report towards the law.
    bounds = sum(min(each, 1 - each) < 1e-6 for each in (float(found.share), float(found.unrelated)))
    chance = np.clip(chance, 1e-12, 1 - 1e-12)
    moved = said + np.clip(number * chance - said, -0.5, 0.5)
    terms = special.rel_entr(moved, number * chance) + special.rel_entr(number - moved, number * (1 - chance))
    assert float(found.fit_p_value) == pytest.approx(stats.chi2.sf(2 * np.sum(terms), bounds), rel=1e-2)


def test_inside_the_square_every_answer_fits():
    found = unrelated_question(INSIDE, UNRELATED)
    assert found.misfit == 0
    assert found.fit_p_value == 1


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("truth", [[0.7, 0.2], [0.9, 0.6]])
def test_the_test_of_fit_has_its_exact_size(truth):
    _, (p_values,), weights = every_outcome((60, 60), UnrelatedQuestionTwoSamples(truth), "fit_p_value")
    for share, unrelated in [(x, y) for x in (0, 1) for y in (0, 0.03, 0.5, 1)] + [
        (x, y) for x in (0.03, 0.5) for y in (0, 1)
    ]:
        chances = weights(np.array(truth) * share + (1 - np.array(truth)) * unrelated)
        for level in (0.05, 0.01):
            assert chances @ (p_values <= level) <= level


@pytest.mark.long
@pytest.mark.once
def test_where_hardly_a_yes_is_expected_intervals_cover_less_as_the_docstring_says():
    """By all outcomes: without any yes the upper limit is below a share of 5 % in a seventh of them."""
    truth, numbers = [0.2, 0.95], np.array([40, 40])
    said = np.indices(numbers + 1).reshape(2, -1).T
    counts = np.stack([said, numbers - said], axis=-1).astype(np.int32)
    design = UnrelatedQuestionTwoSamples(truth)
    lower, upper = (
        np.asarray(each, float)
        for each in jax.jit(jax.vmap(lambda each: unrelated_question(each, design)[2:4]))(counts)
    )
    covered = (lower <= 0.05 + 1e-6) & (upper >= 0.05 - 1e-6)
    chances = np.prod(stats.binom.pmf(said, numbers, 0.05 * np.array(truth)), axis=1)
    assert chances[covered].sum() == pytest.approx(0.846, abs=1e-3)


@pytest.mark.once
def test_what_identifies_nothing_is_refused():
    whole = (CheatingDetection, StochasticLieDetector, UnrelatedQuestionTwoSamples)
    for make in (*whole, lambda truth: SelfProtection(truth, 0.5)):
        name = "forced" if make is CheatingDetection else "truth"
        for given in (
            [0.5, 0.5], [0.5], 0.5, [0.2, 1.2], [0.1, 0.2, 0.3], ["a", "b"], [0.0, 0.5], [0.5, 1.0], [0.5, np.nan],
        ):  # fmt: skip
            with refused(name):
                make(given)
    for innocuous, anchor, share in ((0.5, 0.2, 0), (0.2, 0.5, 0), (0.2, 0.2, 1.5)):
        with refused():
            AnchoredCrosswise(innocuous, anchor, share)
    with refused("parameters"):  # the anchor question is answered yes as often as at random
        compliance([[10, 10], [10, 10]], AnchoredCrosswise(0.2, 0.3, 0.5))
    with refused("parameters"):  # nearly equal
        unrelated_question(INSIDE, UnrelatedQuestionTwoSamples([0.5, 0.5 + 1e-7]))
    for estimate, design, other in (
        (compliance, DESIGNS["lies"], UNRELATED),
        (unrelated_question, UNRELATED, DESIGNS["lies"]),
    ):
        for counts in ([10, 20], [[1, 2, 3], [4, 5, 6]], [[1.5, 2], [3, 4]]):
            with refused("counts"):
                estimate(counts, design)
        with refused("level"):
            estimate(INSIDE, design, level=95)
        for wrong in (0.5, other):
            with refused("design"):
                estimate(INSIDE, wrong)


def test_unusable_counts_give_nan_and_extremes_do_not():
    design = DESIGNS["protection"]
    for counts in ([[-1, 5], [2, 2]], [[0, 0], [2, 2]]):
        assert np.isnan(compliance(jnp.asarray(counts), design).kinds).all()
        assert all(np.isnan(each) for each in unrelated_question(jnp.asarray(counts), UNRELATED))
    for counts in ([[0, 50], [0, 50]], [[50, 0], [50, 0]], [[0, 50], [50, 0]], [[1, 0], [0, 1]]):
        found = compliance(counts, design)
        assert np.isfinite(found.kinds).all()
        assert float(found.lower) <= float(found.share) + 1e-6 <= float(found.upper) + 2e-6 or np.isnan(found.share)
    assert found.kinds.dtype == FLOAT


@pytest.mark.long
def test_a_sample_that_is_exactly_the_law_of_one_kind_is_on_the_boundary():
    """35 of 50 anchors are the anchor's law, so nobody is said not to comply; rounding must not say otherwise."""
    found = compliance([[46, 53], [35, 15]], AnchoredCrosswise(0.15, 0.25, 0.1))
    assert float(found.not_complying) == 0
    assert np.isnan(found.standard_error)
    assert float(found.p_value) == 1


@pytest.mark.parametrize("counts", [[[50, 50], [30, 30]], [[400, 405], [100, 105]], [[4, 5], [0, 1]]])
def test_the_share_of_nobody_is_nan(counts):
    found = compliance(counts, AnchoredCrosswise(0.15, 0.15))
    assert float(found.not_complying) == pytest.approx(1, abs=1e-6)
    assert np.isnan(found.share)


@pytest.mark.long
@pytest.mark.parametrize("number", [10**6, 10**8])
@pytest.mark.parametrize(
    ("estimator", "design", "kinds"),
    [
        (unrelated_question, UnrelatedQuestionTwoSamples([0.9, 0.6]), [5e-6, 2e-4]),
        (compliance, SelfProtection([0.5, 0.9], 0.5), [3e-6, 2e-5]),
        (compliance, CheatingDetection([0.02, 0.05]), [6e-6, 2e-4]),
        # The third kind is rare, and the matrix nearly singular.
        (compliance, CheatingDetection([0.25, 0.3]), [0.3, 0.69995]),
        (compliance, AnchoredCrosswise(0.4, 0.4), [4e-5, 0.5]),
    ],
)
def test_rare_shares_of_many_respondents_are_no_boundary_in_float32(estimator, design, kinds, number):
    """If the rest always says no, rounding is relative to the shares of yes. These counts are those expected."""
    said = np.round(number * np.asarray(design.yes, float) @ [*kinds, 1 - sum(kinds)]).astype(int)
    counts = np.column_stack([said, number - said])
    with jax.enable_x64(False):
        found = estimator(counts, design)
    with jax.enable_x64(True):
        expected = estimator(counts, design)
    assert (float(found.misfit), float(found.fit_p_value)) == (0, 1)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-3)
    for name in ("share", "lower", "upper"):  # within hundredths of the standard error
        error = 0.02 * float(expected.standard_error)
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=error, err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("apart", [1e-5, 1e-4, 1e-3, 0.1])
def test_where_all_say_yes_nearly_equal_designs_are_at_a_corner(apart):
    for truth in np.random.default_rng(0).uniform(0.2, 0.8, size=20):
        design = UnrelatedQuestionTwoSamples([truth, truth + apart])
        found = unrelated_question([[1000, 0], [1000, 0]], design)
        assert (float(found.share), float(found.unrelated), float(found.upper)) == (1, 1, 1)
        assert np.isnan([found.standard_error, found.unrelated_error]).all()


AT_AN_END = [  # a design, counts, and the share, the share of the second kind, the limits of the first
    (CheatingDetection([0.25, 0.75]), [[0, 10], [1, None]], (0, 1, 0, None)),
    (StochasticLieDetector([0.8, 0.4]), [[0, 10], [1, None]], (1, 1, 1, 1)),
    (SelfProtection([0.8, 0.4], 0.5), [[1, None], [1, None]], (0.5, 1, 0, 1)),
    (UnrelatedQuestionTwoSamples([0.7, 0.3]), [[10, 0], [None, 1]], (1, 1, 1, 1)),
    (UnrelatedQuestionTwoSamples([0.7, 0.3]), [[None, 1], [None, 1]], (1, 1, 1, 1)),
]


@pytest.mark.long
@pytest.mark.parametrize("many", [10**6, 3 * 10**7, 10**9])
@pytest.mark.parametrize(("design", "counts", "expected"), AT_AN_END)
def test_one_yes_or_no_among_millions_is_not_lost(design, counts, expected, many):
    """A chance of 1e-8 is not zero, for which the answer would be impossible; nor is one of no lost beside one."""
    counts = np.asarray([[many if each is None else each for each in row] for row in counts], np.int32)
    unrelated = isinstance(design, UnrelatedQuestionTwoSamples)
    found = (unrelated_question if unrelated else compliance)(counts, design)
    second = found.unrelated if unrelated else found.not_complying
    upper = 10 / many if expected[3] is None else expected[3]
    came = [float(each) for each in (found.share, second, found.lower, found.upper)]
    np.testing.assert_allclose(came, [*expected[:3], upper], atol=1e-4)
    assert float(found.fit_p_value) > 0.99
    assert float(found.misfit) < 0.5


@pytest.mark.long
@pytest.mark.parametrize(
    ("design", "counts"),
    [
        (UnrelatedQuestionTwoSamples([0.9999, 0.0001]), [[1999999, 1], [1999999, 1]]),
        (UnrelatedQuestionTwoSamples([0.9999, 0.0001]), [[999, 1], [999999, 1]]),
        (UnrelatedQuestionTwoSamples([0.8, 0.1]), [[999999, 1], [999999, 1]]),
        # Shares of some 1e-6 are no corner: the test has one degree of freedom.
        (UnrelatedQuestionTwoSamples([0.7, 0.3]), [[1, 999], [1, 999999]]),
        (UnrelatedQuestionTwoSamples([0.7, 0.3]), [[2, 1999998], [0, 2000000]]),
        (CheatingDetection([0.25, 0.75]), [[1, 999], [0, 1000000]]),
        (UnrelatedQuestionTwoSamples([0.7, 0.3]), [[1, 0], [0, 2 * 10**9]]),  # 1e-8 in place of a counted share of 1
    ],
)
def test_rare_answers_are_tested_in_float32_as_in_float64(design, counts):
    estimator = unrelated_question if isinstance(design, UnrelatedQuestionTwoSamples) else compliance
    found, expected = [], []
    for each, exact in ((found, False), (expected, True)):
        with jax.enable_x64(exact):
            fit = estimator(counts, design)
            each += [fit.misfit, fit.fit_p_value, fit.swapped_p_value, fit.share, fit.lower, fit.upper]
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=2e-3, atol=1e-6)


def test_yes_and_no_exchanged_are_the_other_shares():
    """On both sides of half of the answers."""
    design = UnrelatedQuestionTwoSamples([0.7, 0.3])
    for counts in ([[260, 740], [340, 660]], [[490, 510], [500, 500]], [[3, 97], [10, 190]]):
        counts = np.asarray(counts)
        one, other = unrelated_question(counts, design), unrelated_question(counts[:, ::-1], design)
        for name, opposite in (("share", "share"), ("lower", "upper"), ("upper", "lower"), ("unrelated", "unrelated")):
            assert float(getattr(one, name)) == pytest.approx(1 - float(getattr(other, opposite)), abs=1e-6)
        for name in ("standard_error", "unrelated_error", "misfit", "fit_p_value", "swapped_p_value"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-5)


@pytest.mark.long
def test_shares_are_within_their_limits_in_float32():
    """Rounding of a point of the square made shares of -1e-7, and of 1 + 1e-7."""
    design = UnrelatedQuestionTwoSamples([0.8, 0.2])
    counts = np.asarray([[[11, 49], [101, 29]], [[49, 11], [29, 101]]])
    with jax.enable_x64(False):
        found = jax.vmap(lambda each: unrelated_question(each, design))(counts)
        assert ((found.lower <= found.share) & (found.share <= found.upper)).all()
        assert ((found.share >= 0) & (found.share <= 1) & (found.unrelated >= 0) & (found.unrelated <= 1)).all()
