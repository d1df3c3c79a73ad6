"""The unrelated question of an unknown share, from two samples: exact estimates, coverage, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, special, stats

from rrjax.inference import compliance, unrelated_question
from rrjax.mechanisms import CheatingDetection, UnrelatedQuestionTwoSamples

TRUTH = np.array([0.7, 0.2])
DESIGN = UnrelatedQuestionTwoSamples(TRUTH)
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


def value(share, unrelated, counts):
    chance = TRUTH[:, None] * np.ravel(share) + (1 - TRUTH[:, None]) * np.ravel(unrelated)
    said, denied = np.asarray(counts, float).T
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(chance, 1e-300)), np.log(np.maximum(1 - chance, 1e-300))
    return said @ logs[0] + denied @ logs[1]


def test_inside_the_square_the_estimate_solves_both_equations():
    found = unrelated_question(INSIDE, DESIGN)
    counts = np.asarray(INSIDE, float)
    said, number = counts[:, 0] / counts.sum(1), counts.sum(1)
    # Greenberg et al., equations for π and its variance.
    share = (said[0] * (1 - TRUTH[1]) - said[1] * (1 - TRUTH[0])) / (TRUTH[0] - TRUTH[1])
    unrelated = (said[1] * TRUTH[0] - said[0] * TRUTH[1]) / (TRUTH[0] - TRUTH[1])
    spread = said * (1 - said) / number
    error = np.sqrt((1 - TRUTH[1]) ** 2 * spread[0] + (1 - TRUTH[0]) ** 2 * spread[1]) / (TRUTH[0] - TRUTH[1])
    other = np.sqrt(TRUTH[1] ** 2 * spread[0] + TRUTH[0] ** 2 * spread[1]) / (TRUTH[0] - TRUTH[1])
    assert [float(each) for each in (found.share, found.unrelated)] == pytest.approx([share, unrelated], rel=1e-5)
    assert [float(each) for each in (found.standard_error, found.unrelated_error)] == pytest.approx(
        [error, other], rel=1e-5
    )
    assert found.share.dtype == FLOAT


@pytest.mark.parametrize("counts", OUTSIDE)
def test_outside_the_maximum_is_on_the_boundary(counts):
    found = unrelated_question(counts, DESIGN)
    grid = np.linspace(0, 1, 1001)
    values = value(*np.meshgrid(grid, grid), counts)
    assert value(float(found.share), float(found.unrelated), counts)[0] >= values.max() - (1e-6 if X64 else 1e-3)
    at = np.array([found.share, found.unrelated], float)
    assert np.isclose(at, 0, atol=1e-6).any() or np.isclose(at, 1, atol=1e-6).any()
    assert np.isnan(found.standard_error)
    assert 0 <= found.lower <= found.share + 1e-6 <= found.upper + 2e-6 <= 1 + 2e-6


@pytest.mark.parametrize("counts", [INSIDE, *OUTSIDE])
def test_the_limits_are_those_of_the_profile_by_brute_force(counts):
    found = unrelated_question(counts, DESIGN, level=0.9)
    top = value(float(found.share), float(found.unrelated), counts)[0]

    def lost(share):
        best = optimize.minimize_scalar(
            lambda unrelated: -value(share, unrelated, counts)[0], bounds=(0, 1), method="bounded",
            options={"xatol": 1e-10},
        ).fun  # fmt: skip
        return top + min(best, *(-value(share, end, counts)[0] for end in (0, 1)))

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
    chance = TRUTH * share + (1 - TRUTH) * unrelated
    said = np.random.default_rng(7).binomial(1500, chance, (2000, 2))
    found = jax.jit(jax.vmap(lambda counts: unrelated_question(counts, DESIGN)))(np.stack([said, 1500 - said], -1))
    covered = np.mean((found.lower <= share) & (share <= found.upper))
    assert covered >= 0.95 - 4 * np.sqrt(0.95 * 0.05 / 2000)
    if share == 0.2:  # elsewhere the boundary biases
        assert covered <= 0.95 + 4 * np.sqrt(0.95 * 0.05 / 2000)
        error = np.asarray(found.share, float) - share
        assert abs(error.mean()) < 4 * error.std() / np.sqrt(2000)
        assert np.mean(found.standard_error) == pytest.approx(error.std(), rel=0.08)


@pytest.mark.parametrize("counts", OUTSIDE)
def test_the_test_of_fit_compares_with_the_counted_shares(counts):
    found = unrelated_question(counts, DESIGN)
    said, number = np.asarray(counts, float)[:, 0], np.asarray(counts, float).sum(1)
    chance = TRUTH * float(found.share) + (1 - TRUTH) * float(found.unrelated)
    best, here = (stats.binom.logpmf(said, number, each).sum() for each in (said / number, np.clip(chance, 0, 1)))
    assert float(found.misfit) == pytest.approx(2 * (best - here), rel=1e-3, abs=1e-3)
    # At a corner two shares are at their bounds, on a side one; counts are moved by half a report towards the law.
    bounds = sum(min(each, 1 - each) < 1e-6 for each in (float(found.share), float(found.unrelated)))
    chance = np.clip(chance, 1e-12, 1 - 1e-12)
    moved = said + np.clip(number * chance - said, -0.5, 0.5)
    terms = special.rel_entr(moved, number * chance) + special.rel_entr(number - moved, number * (1 - chance))
    assert float(found.fit_p_value) == pytest.approx(stats.chi2.sf(2 * np.sum(terms), bounds), rel=1e-2)


def test_inside_the_square_every_answer_fits():
    found = unrelated_question(INSIDE, DESIGN)
    assert found.misfit == 0
    assert found.fit_p_value == 1


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("truth", [[0.7, 0.2], [0.9, 0.6]])
def test_the_test_of_fit_has_its_exact_size(truth):
    design, number = UnrelatedQuestionTwoSamples(truth), 60
    said = np.indices((number + 1, number + 1)).reshape(2, -1).T
    counts = np.stack([said, number - said], axis=-1).astype(np.int32)
    p_values = np.asarray(jax.jit(jax.vmap(lambda counts: unrelated_question(counts, design).fit_p_value))(counts))
    for share, unrelated in [(x, y) for x in (0, 1) for y in (0, 0.03, 0.5, 1)] + [
        (x, y) for x in (0.03, 0.5) for y in (0, 1)
    ]:
        chance = np.array(truth) * share + (1 - np.array(truth)) * unrelated
        weights = np.prod(stats.binom.pmf(said, number, chance), axis=1)
        for level in (0.05, 0.01):
            assert weights @ (p_values <= level) <= level


@pytest.mark.once
def test_other_designs_and_counts_are_refused():
    for truth in ([0.5, 0.5], 0.7, [0.7], [0.7, 0.3, 0.2], [0.0, 0.5], [0.5, 1.0], [0.5, np.nan], ["a", "b"]):
        with refused("truth"):
            UnrelatedQuestionTwoSamples(truth)
    for counts in ([10, 20], [[1, 2, 3], [4, 5, 6]], [[1.5, 2], [3, 4]]):
        with refused("counts"):
            unrelated_question(counts, DESIGN)
    with refused("level"):
        unrelated_question(INSIDE, DESIGN, level=95)
    with refused("design"):
        unrelated_question(INSIDE, CheatingDetection([0.25, 0.75]))
    with refused("design"):
        compliance(INSIDE, DESIGN)
    with refused("parameters"):  # nearly equal
        unrelated_question(INSIDE, UnrelatedQuestionTwoSamples([0.5, 0.5 + 1e-7]))


def test_unusable_counts_give_nan():
    for counts in ([[-1, 5], [2, 2]], [[0, 0], [2, 2]]):
        assert all(np.isnan(each) for each in unrelated_question(jnp.asarray(counts), DESIGN))


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
