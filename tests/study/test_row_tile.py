"""One program for all numbers of categories, and the same collections for functions that need one for each."""

import itertools

import jax
import numpy as np
import pytest
from cases import X64, elsewhere

import rrjax
from rrjax.data.errors import StudyError
from rrjax.estimators.catalogue import estimator_in_rows
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


@pytest.mark.full
@pytest.mark.once
def test_one_program_serves_all_numbers_of_categories(programs):
    study(metrics="mse").run()
    assert len(programs) == 1
    # Of about the same sizes, so does another study.
    study(metrics="mse", num_categories=[7, 140], num_users=[100, 900], num_seeds=11).run(seed=1)
    assert len(programs) == 1
    study(metrics="tv").run()
    assert len(programs) == 2


@pytest.mark.full  # four programs
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


@pytest.mark.full  # two programs
def test_an_accelerator_has_the_same_collections_and_results(monkeypatch):
    # N on both sides of rounds and of rates that are drawn by rejection; the last tile of 12 seeds in twos is not full.
    given = study(num_users=[60, 5000, 10**6], num_categories=[5, 150, 1000])
    monkeypatch.setattr(tile, "_CELLS_ELSEWHERE", 2**18)
    tiles = [runner.tile_of(given, size, "gpu", None) for size in given.num_categories]
    ways = [jax.jit(way(tiles[0].function())) for way in (lambda function: function, elsewhere)]
    for each in tiles:
        inputs = jax.tree.map(lambda array: array[0], each.inputs(3, np.array([each.shape.num_tiles - 1])))
        here, there = (way(each.tables(), inputs) for way in ways)
        np.testing.assert_array_equal(here.finite, there.finite)
        # The same but for roundings of shares: XLA orders and fuses operations otherwise.
        np.testing.assert_allclose(here.measures, there.measures, rtol=1e-5, atol=1e-15 if X64 else 2e-7)
        used = slice(len(given.configurations(each.shape.num_categories)) * -(-each.shape.num_categories // 128))
        np.testing.assert_allclose(here.errors[:, used], there.errors[:, used], rtol=1e-5, atol=1e-6)


def of_rows(given):
    """InvN, mixed with the uniform distribution, in rows."""
    return 0.75 * estimator_in_rows(rrjax.inv_n)(given) + 0.25 / given.num_categories


def own(in_rows):
    """The same for one collection; it says what it is in rows."""

    def mixed(counts, epsilon):
        return 0.75 * rrjax.inv_n(counts, epsilon) + 0.25 / counts.shape[0]

    if in_rows is not None:
        mixed.in_rows = in_rows
    return mixed


@pytest.mark.full  # four programs
def test_an_estimator_of_ones_own_may_say_what_it_is_in_rows(programs):
    together = study(estimators=["mle_star", own(of_rows)], metrics=METRICS).run(keep_seeds=True)
    assert len(programs) == 1
    apart = study(estimators=["mle_star", own(None)], metrics=METRICS).run(keep_seeds=True)
    for name in ("mse_seeds", "nll_seeds", "tv_seeds", "max_error_seeds", "bias2", "variance"):
        np.testing.assert_allclose(together[name], apart[name], rtol=1e-9 if X64 else 2e-4, atol=1e-10)
    # Other processes may not have its code.
    assert runner.tile_of(study(estimators=own(of_rows)), 5, "cpu", None).kept_identity() is None
    assert runner.tile_of(study(), 5, "cpu", None).kept_identity() is not None


def fewer_cells(given):
    return of_rows(given)[:, 1:]


def asking(given):
    return of_rows(given) if given.epsilon[0] > 1 else 0


@pytest.mark.once
@pytest.mark.parametrize("in_rows", [fewer_cells, asking])
def test_what_it_is_in_rows_is_checked(in_rows):
    with pytest.raises(StudyError) as caught:
        study(estimators=own(in_rows)).run()
    assert (caught.value.argument, caught.value.value) == ("estimators", "mixed.in_rows")


@pytest.mark.long
@pytest.mark.once
def test_what_it_is_in_rows_is_part_of_what_it_is():
    others = [
        study(estimators=own(each)).describe()["estimators"]
        for each in (None, of_rows, lambda given: 1.5 * of_rows(given))
    ]
    assert all(one != other for one, other in itertools.combinations(others, 2))


@pytest.mark.full
@pytest.mark.once
def test_a_collection_larger_than_a_tile_has_its_own_program(programs, monkeypatch):
    monkeypatch.setitem(tile._CELLS, "cpu", 2**13)
    study(num_categories=[5, 20_000], num_users=500, metrics="mse").run()
    assert len(programs) == 2
    assert {known[0][0] == "study in rows" for known in programs} == {True, False}
