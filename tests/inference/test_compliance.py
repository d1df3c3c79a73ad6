"""Surveys of which an unknown share does not follow the rules: exact estimates, coverage, what identifies nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, X64
from refusals import refused
from scipy import optimize, stats

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


@pytest.mark.long
@pytest.mark.once
def test_when_all_comply_the_test_keeps_its_level():
    design = DESIGNS["cheating"]
    chance = np.asarray(design.yes, float) @ np.array([0.2, 0.8, 0.0])
    said = np.random.default_rng(5).binomial(800, chance, (2000, 2))
    p_values = jax.jit(jax.vmap(lambda counts: compliance(counts, design).p_value))(np.stack([said, 800 - said], -1))
    assert abs(np.mean(p_values <= 0.05) - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 2000)
    strong = compliance([[150, 850], [250, 750]], design)
    assert float(strong.p_value) < 1e-6


def test_the_published_survey():
    design = AnchoredCrosswise(0.15, 0.15)
    counts = [[1427, 573], [1541, 459]]
    apart, same = (compliance(counts, design, same_people=each) for each in (False, True))
    assert f"{float(apart.share):.4f} {1 - float(apart.not_complying):.4f}" == "0.1054 0.7729"
    assert f"{float(apart.standard_error):.4f} {float(same.standard_error):.4f}" == "0.0232 0.0222"


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
