"""One program for all numbers of categories, and the same collections for functions that need one for each."""

import numpy as np
import pytest
from cases import X64

import rrjax
from rrjax.study import Study, runner, tile

ALL = ["mle_star", "inv_p", "inv_n", "inv"]
SMALL = {"num_users": [60, 5000], "epsilon": [1, 3.0], "zipf": [0.01, 1.3], "num_seeds": 12}
METRICS = ["mse", "nll", "tv", "max_error", "bias2", "variance"]


def study(**changes):
    return Study(**(SMALL | {"estimators": ALL, "num_categories": [5, 150], "metrics": METRICS} | changes))


@pytest.fixture
def programs(monkeypatch):
    monkeypatch.setattr(runner, "_programs", {})
    return runner._programs


@pytest.mark.once
def test_one_program_serves_all_numbers_of_categories(programs):
    study(metrics="mse").run()
    assert len(programs) == 1
    # Of about the same sizes, so does another study.
    study(metrics="mse", num_categories=[7, 140], num_users=[100, 900], num_seeds=11).run(seed=1)
    assert len(programs) == 1
    study(metrics="tv").run()
    assert len(programs) == 2


@pytest.mark.long  # four programs
@pytest.mark.parametrize("estimand", ["users", "distribution"])
def test_other_functions_see_the_same_collections(estimand, programs):
    def own(counts, epsilon):
        return rrjax.mle_star(counts, epsilon)

    together = study(estimand=estimand).run(keep_seeds=True)
    assert len(programs) == 1
    apart = study(estimand=estimand, estimators=[*ALL, own]).run(keep_seeds=True)
    assert len(programs) == 3
    for name in ("mse_seeds", "nll_seeds", "tv_seeds", "max_error_seeds", "bias2", "variance"):
        expected = apart[name].sel(estimator=ALL)
        np.testing.assert_allclose(together[name], expected, rtol=1e-9 if X64 else 2e-4, atol=1e-10)
    np.testing.assert_array_equal(apart.mse_seeds.sel(estimator="own"), apart.mse_seeds.sel(estimator="mle_star"))


@pytest.mark.once
def test_a_collection_larger_than_a_tile_has_its_own_program(programs, monkeypatch):
    monkeypatch.setitem(tile._CELLS, "cpu", 2**13)
    study(num_categories=[5, 20_000], num_users=500, metrics="mse").run()
    assert len(programs) == 2
    assert {known[0][0] == "study in rows" for known in programs} == {True, False}
