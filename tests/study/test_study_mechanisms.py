"""Studies over mechanisms: the same users for all of them, tallies with the error of their rates, clear refusals."""

import hashlib
import json
import math
import os
import subprocess
import sys
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT
from laws import chi_square_bound
from refusals import refused

import rrjax
from rrjax.cli.design import randomizer_name
from rrjax.data.tally import Rates, Tally
from rrjax.figures.curves import real_data
from rrjax.mechanisms import MECHANISMS, ProjectiveGeometry, SubsetSelection
from rrjax.numerics.pytrees import pytree
from rrjax.study import Study, StudyError, drawings, ranking, ranking_rows, read_study
from rrjax.study.arguments import Configuration
from rrjax.study.checkpoint import name_of_group
from rrjax.study.functions import build_mechanism, check_functions, known_epsilon

pytest.importorskip("xarray")

PLANES = {"planes": partial(ProjectiveGeometry, field_order=3)}
UNARY, SUBSETS, HADAMARD = "optimized-unary-encoding", "subset-selection", "hadamard-response"
GRID = {"estimators": "inv", "num_categories": 6, "num_users": 70, "epsilon": [1.0, 2.0], "zipf": 1.3, "num_seeds": 12}


def study(mechanism, **changes):
    return Study(**(GRID | {"mechanism": mechanism} | changes))


def same(a, b):
    return set(a.data_vars) == set(b.data_vars) and all(
        np.array_equal(a[name].values, b[name].values, equal_nan=True) for name in a.data_vars
    )


def first(estimate, truth):
    """A metric that tells of the users alone."""
    del estimate
    return truth[0]


PAIR = {"mechanism": [SUBSETS, HADAMARD], "metrics": ["mse", first]}


@pytest.fixture(scope="module")
def two():
    return study(**PAIR).run(keep_seeds=True)


@pytest.mark.long  # programs that compile for seconds
def test_without_mechanisms_all_is_as_it_was():
    # What folders and random numbers of earlier studies are known by.
    plain = Study(**GRID, metrics=["mse", "nll"])
    assert plain.configurations()[0] == Configuration(6, 70, 1.0, 1.3)
    assert plain.configurations()[0].describe() == "K = 6, N = 70, epsilon = 1, zipf = 1.3"
    assert plain.configurations()[0].words(0) == (2559422940, 3458802299)
    assert list(plain.metrics) == list(Study(**GRID).metrics)
    description = json.dumps(plain.describe(), sort_keys=True).encode()
    assert hashlib.sha256(description).hexdigest()[:16] == "3ad46bc433f78cd3"
    assert name_of_group(6, None) == "k6"
    truth, counts = plain.collection(plain.configurations()[0], 3)
    assert np.asarray(counts).tolist() == [12, 11, 13, 15, 8, 11]
    np.testing.assert_allclose(truth.sum(), 1, rtol=1e-6)


@pytest.mark.long
def test_the_dimension(two):
    assert two.mse.dims == ("estimator", "mechanism", "num_categories", "num_users", "epsilon", "zipf")
    assert two.mse_difference.dims[:3] == ("estimator", "versus", "mechanism")
    assert two.mechanism.values.tolist() == [SUBSETS, HADAMARD]
    assert list(study(UNARY).metrics) == ["mse"]
    assert json.loads(two.attrs["mechanism"])[HADAMARD].endswith("HadamardResponse")


@pytest.mark.long
def test_mechanisms_have_the_same_users(two):
    subsets, hadamard = (two.sel(mechanism=label) for label in (SUBSETS, HADAMARD))
    users = subsets.first_seeds.values
    np.testing.assert_array_equal(users, hadamard.first_seeds.values)
    np.testing.assert_allclose(users * 70, np.round(users * 70), atol=1e-4)
    assert len(set(users.ravel().tolist())) > 5
    assert (subsets.mse_seeds.values != hadamard.mse_seeds.values).all()


@pytest.mark.full
def test_a_collection_is_drawn_again(two):
    mine = study(**PAIR)
    for configuration in mine.configurations():
        truth, tally = mine.collection(configuration, 11)
        rates = MECHANISMS[configuration.mechanism](6, configuration.epsilon).rates
        np.testing.assert_allclose(tally.q, rates.q, rtol=1e-6)
        error = np.sum((np.asarray(rrjax.inv(tally), float) - np.asarray(truth, float)) ** 2)
        here = two.mse_seeds.sel(mechanism=configuration.mechanism, epsilon=configuration.epsilon).isel(seed=11)
        np.testing.assert_allclose(here.item(), error, rtol=1e-4)


@pytest.mark.long
def test_the_same_design_under_two_labels_is_drawn_twice():
    twice = study({"one": HADAMARD, "other": HADAMARD})
    (_, one), (_, other) = (twice.collection(twice.configurations()[place], 0) for place in (0, 2))
    assert (np.asarray(one.support) != np.asarray(other.support)).any()


@pytest.mark.long
def test_a_mechanism_does_not_depend_on_the_others(two):
    alone = study(**PAIR | {"mechanism": HADAMARD}).run(keep_seeds=True)
    assert alone.sizes["mechanism"] == 1
    assert same(alone, two.sel(mechanism=[HADAMARD]))


@pytest.mark.long  # programs that compile for seconds
def test_users_are_a_multinomial_draw():
    theta, number = np.array([0.5, 0.3, 0.2, 0.0]), 1000
    keys = jax.random.split(jax.random.key(3), 400)
    users = np.stack([rrjax.simulate.true_counts(key, theta.astype(FLOAT), number) for key in keys])
    assert (users.sum(axis=1) == number).all()
    covariance = number * (np.diag(theta) - np.outer(theta, theta))
    assert (np.abs(users.mean(0) - number * theta) <= 4 * np.sqrt(np.diag(covariance) / 400)).all()
    spread = np.cov(users.T)
    bound = 4 * np.sqrt((covariance**2 + np.outer(np.diag(covariance), np.diag(covariance))) / 399)
    assert (np.abs(spread - covariance) <= bound).all()
    assert (np.asarray(rrjax.simulate.true_counts(keys[0], [0.5, -0.5, 0.5, 0.5], 10)) == -1).all()
    with refused("num_users"):
        rrjax.simulate.true_counts(keys[0], [0.5, 0.5], -1)


@pytest.mark.long
def test_a_traced_epsilon_chooses_the_size_that_a_known_one_does():
    counts = np.array([30, 20, 10, 0, 5, 5])
    collect = jax.jit(lambda epsilon: SubsetSelection(6, epsilon).collect(jax.random.key(0), counts))
    for epsilon in (0.5, 1.0, 9.0):
        known = SubsetSelection(6, epsilon)
        traced, expected = collect(epsilon), known.collect(jax.random.key(0), counts)
        np.testing.assert_array_equal(traced.support, expected.support)
        assert int(traced.support.sum()) == 70 * known.subset_size
    assert (np.asarray(collect(-1.0).support) == -1).all()


def _needs_epsilon(counts, epsilon):
    return rrjax.inv(counts, epsilon) * jnp.exp(epsilon)


@pytest.mark.once
@pytest.mark.parametrize(
    ("mechanism", "changes", "argument", "value"),
    [
        ("uoe", {}, "mechanism", "uoe"),
        ([], {}, "mechanism", {}),
        ([UNARY, UNARY], {}, "mechanism", [UNARY, UNARY]),
        ([UNARY, "OUE"], {}, "mechanism", [UNARY, "OUE"]),
        ({UNARY: SubsetSelection}, {}, "mechanism", UNARY),
        (3, {}, "mechanism", 3),
        (UNARY, {"estimators": ["inv", "mle_star"]}, "estimators", "mle_star"),
        (UNARY, {"estimators": {"best": "ibu"}}, "estimators", "best"),
        (UNARY, {"metrics": ["mse", "nll"]}, "metrics", "nll"),
        (UNARY, {"metrics": {"mechanism": rrjax.metrics.squared_error}}, "metrics", "mechanism"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(mechanism, changes, argument, value):
    with refused(argument, error=StudyError, value=value):
        study(mechanism, **changes)


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize(
    ("mechanism", "changes", "argument", "value"),
    [
        ("projective-geometry-response", {}, "mechanism", "projective-geometry-response"),
        ({"mine": lambda size, epsilon: None}, {}, "mechanism", "mine"),
        ({"mine": lambda size, epsilon: SubsetSelection(5, epsilon)}, {}, "mechanism", "mine"),
        (UNARY, {"estimators": {"mine": _needs_epsilon}}, "estimators", "mine"),
        (UNARY, {"estimators": {"mine": partial(rrjax.mle_star, solver="sort")}}, "estimators", "mine"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_work(mechanism, changes, argument, value, compilations):
    with refused(argument, error=StudyError, value=value):
        study(mechanism, zipf=None, distributions={"a": np.ones(6)}, **changes).run()
    assert not compilations


@pytest.mark.once
def test_names_are_read_as_the_command_line_reads_them():
    assert list(study(["optimized_unary_encoding", "subset-selection"]).mechanism) == [UNARY, SUBSETS]
    assert list(study(["oue", "SS", "KRR"]).mechanism) == [UNARY, SUBSETS, "randomized-response"]
    assert list(study({"mine": "oue"}).mechanism) == ["mine"]
    for text in ("oue", "Subset_Selection"):
        assert list(study(text).mechanism) == [randomizer_name(text)]
    assert list(study("oue", estimators=["Inv-P", "INV"]).estimators) == ["inv_p", "inv"]
    assert list(study(partial(SubsetSelection, subset_size=2)).mechanism) == ["SubsetSelection"]


@pytest.mark.long
@pytest.mark.once
def test_a_single_epsilon_chooses_what_must_be_known():
    name, label = ProjectiveGeometry, "planes"
    assert known_epsilon(label, name, 30, (1.0,)) == 1.0
    assert known_epsilon(label, PLANES[label], 30, (1.0,)) is None
    assert known_epsilon(label, SubsetSelection, 30, (1.0,)) is None
    traced = jax.jit(lambda epsilon: build_mechanism(name, 30, epsilon, 1.0))(2.0)
    assert (traced.field_order, float(traced.epsilon)) == (ProjectiveGeometry(30, 1.0).field_order, 2.0)


@pytest.mark.once
def test_files_name_mechanisms(tmp_path):
    file = tmp_path / "study.toml"
    text = 'estimators = "inv"\nnum_categories = 5\nnum_users = 9\nepsilon = [1, 2]\nzipf = 1\nnum_seeds = 2\n'
    file.write_text(text + f'mechanism = ["{UNARY}", "{SUBSETS}"]\n')
    found, _ = read_study(file)
    assert [one.mechanism for one in found.configurations()] == [UNARY, UNARY, SUBSETS, SUBSETS]
    assert list(found.metrics) == ["mse"]
    (tmp_path / "my_designs.py").write_text(
        "import rrjax\ndef pairs(K, epsilon):\n    return rrjax.mechanisms.SubsetSelection(K, epsilon, subset_size=2)\n"
    )
    file.write_text(text + f'[mechanism]\npairs = "my_designs:pairs"\n"{UNARY}" = "{UNARY}"\n')
    found, _ = read_study(file)
    assert found.mechanism["pairs"](5, 1.0).subset_size == 2
    file.write_text(text + 'mechanism = "oue"\n')
    assert list(read_study(file)[0].mechanism) == [UNARY]
    file.write_text(text + 'mechanism = "uoe"\n')
    with refused("mechanism", error=StudyError, value="uoe", file=file):
        read_study(file)


@pytest.mark.long
@pytest.mark.once
def test_figures_are_of_one_mechanism(two):
    pytest.importorskip("matplotlib")
    figures = rrjax.figures
    for draw, more in (
        (figures.overview, {}),
        (figures.closest, {}),
        (figures.by_categories, {}),
        (figures.against_epsilon, {}),
        (figures.against_users, {"metrics": "mse", "epsilon": 1.0}),
        (real_data, {"histograms": {}}),
        (figures.wins, {"estimator": "inv"}),
    ):
        with refused("mechanism", value=[SUBSETS, HADAMARD]):
            draw(two, **more)
    for one in (two.sel(mechanism=HADAMARD), two.sel(mechanism=[HADAMARD])):
        for metrics in (["mse"], "mse", None):  # there is no nll
            assert len(figures.against_epsilon(one, metrics).axes) == 1
        (row,) = ranking_rows(ranking(one))
        assert row["best"] == "2 of 2"
    # Mechanisms are configurations: the estimators are ranked over all of them.
    (row,) = ranking_rows(ranking(two))
    assert row["best"] == "4 of 4"
    found = drawings.of_study(two)
    assert [one.name for one in found] == [
        f"{slug}-overview-{metric}"
        for slug in ("1-subset-selection", "2-hadamard-response")
        for metric in ("mse", "first")
    ]
    assert found[2].title == "hadamard-response: Overview: MSE"
    assert found[2].draw().axes


@pytree("num_categories")
class Half(rrjax.mechanisms.RandomizedResponse):
    """Randomized response at a share of ε."""

    name: ClassVar[str] = "half"
    share: ClassVar[float] = 0.5

    def rates_by(self, expm1):
        return Rates(1, self.num_categories - 1, expm1(self.epsilon * self.share))

    def collect(self, key, true_counts):
        counts = rrjax.simulate.randomized(key, true_counts, self.epsilon * self.share)
        return Tally(counts, jnp.sum(counts), rates=self.rates)


@pytest.mark.long
def test_own_mechanisms_are_told_apart_by_what_they_compute(monkeypatch):
    before = study({"half": Half}).describe()["mechanism"]["half"]
    assert study({"half": Half}).describe()["mechanism"]["half"] == before
    monkeypatch.setattr(Half, "share", 0.25)
    assert study({"half": Half}).describe()["mechanism"]["half"] != before


@pytest.mark.full
def test_the_inversion_has_the_error_of_the_rates():
    K, N, seeds = 6, 70, 300
    every = {name: name for name in MECHANISMS if name != "projective-geometry-response"} | PLANES
    result = study(every | {"half": Half}, num_seeds=seeds).run()
    for label, design in (MECHANISMS | PLANES | {"half": Half}).items():
        if label not in result.mechanism:
            continue
        for epsilon in (1.0, 2.0):
            expected = float(design(K, epsilon).rates_by(math.expm1).total_variance(K)) / N
            here = result.sel(mechanism=label, epsilon=epsilon).squeeze()
            assert abs(float(here.mse) - expected) < 4 * float(here.mse_se), label


@pytest.mark.full
@pytest.mark.parametrize("truth", ["distribution", "given users"])
def test_other_truths_have_their_error_too(truth):
    K, N = 6, 70
    users = np.array([30, 20, 10, 5, 5, 0])
    place = {"users": {"one": users}, "num_users": None}
    if truth == "distribution":
        place = {"distributions": {"one": users / N}, "estimand": truth}
    result = study([UNARY, SUBSETS], zipf=None, num_seeds=300, metrics=["mse", "bias2", "variance"], **place).run()
    for label in (UNARY, SUBSETS):
        for epsilon in (1.0, 2.0):
            expected = float(MECHANISMS[label](K, epsilon).rates_by(math.expm1).total_variance(K)) / N
            if truth == "distribution":
                expected += np.sum(users / N * (1 - users / N)) / N
            here = result.sel(mechanism=label, epsilon=epsilon).squeeze()
            assert abs(float(here.mse) - expected) < 4 * float(here.mse_se)
            np.testing.assert_allclose(here.bias2 + here.variance, here.mse, rtol=1e-12)
            # The squared mean error of 300 seeds has about the law of chi-square, K − 1 degrees.
            assert float(here.bias2) < chi_square_bound(K - 1) / (K - 1) * float(here.variance) / 300
    if truth == "given users":
        mine = study([UNARY, SUBSETS], zipf=None, **place)
        np.testing.assert_allclose(mine.collection(mine.configurations()[0], 0)[0], users / N, rtol=1e-6)


@pytest.mark.full
@pytest.mark.once
def test_every_estimator_that_a_tally_is_enough_for():
    names = [name for name, entry in rrjax.catalogue.ESTIMATORS.items() if entry.needs == "tally"]
    assert {"empirical_bayes", "ordered_bayes", "power_ns"} <= set(names)
    check_functions(study([UNARY, "randomized-response"], estimators=names), 6)
    mine = study("randomized-response", estimators=["inv_p", "base_pos"], epsilon=1.0)
    result = mine.run(keep_seeds=True)
    assert np.isfinite(result.mse).all()
    truth, tally = mine.collection(mine.configurations()[0], 1)
    assert isinstance(tally, Tally)
    error = np.sum((np.asarray(rrjax.inv_p(tally)) - np.asarray(truth)) ** 2)
    np.testing.assert_allclose(result.mse_seeds.sel(estimator="inv_p").isel(seed=1).item(), error, rtol=1e-3)


class StopError(Exception):
    pass


@pytest.mark.full
@pytest.mark.once
def test_a_run_that_stopped_goes_on_whatever_the_order(tmp_path, monkeypatch):
    monkeypatch.setitem(rrjax.study.tile._CELLS, "cpu", 30)  # five seeds a tile
    order = {"a/b": UNARY, "planes": PLANES["planes"]}
    metrics = ["mse", "bias2", "variance"]
    whole = study(order, metrics=metrics).run()
    seen = []

    def stop(progress):
        seen.append(progress)
        if len(seen) > 3:
            raise StopError

    with pytest.raises(StopError):
        study(order, metrics=metrics).run(folder=tmp_path, batch_size=1, progress=stop)
    groups = {file.name.rsplit("-", 2)[0] for file in (tmp_path / "checkpoint").glob("*.npz")}
    assert groups == {name_of_group(6, label) for label in order}
    turned = dict(reversed(order.items()))
    again = []
    result = study(turned, metrics=metrics).run(folder=tmp_path, progress=again.append)
    assert again[0].done == seen[-1].done > 0
    assert result.mechanism.values.tolist() == ["planes", "a/b"]
    assert same(result.sel(mechanism=["a/b", "planes"]), whole)
    with refused("folder", error=StudyError, value=["mechanism"]):
        study({"a/b": SUBSETS, "planes": PLANES["planes"]}, metrics=metrics).run(folder=tmp_path)
    with refused("folder", error=StudyError, value=["mechanism"]):
        Study(**GRID, metrics=metrics).run(folder=tmp_path)


@pytest.mark.full
@pytest.mark.once
def test_draws_do_not_depend_on_how_many_are_made_at_a_time(monkeypatch):
    at_once = study([SUBSETS, PLANES["planes"]]).run()
    monkeypatch.setattr(rrjax.study.tile, "CELLS", 2**40)
    monkeypatch.setattr(rrjax.study.tile, "_USERS", 2**19)
    assert rrjax.study.tile.Shape.of(study(SUBSETS), 6, "cpu", SUBSETS).drawn == 4
    in_turns = study([SUBSETS, PLANES["planes"]]).run()
    np.testing.assert_allclose(in_turns.mse, at_once.mse, rtol=1e-5)


SCRIPT = """
import sys, jax, numpy as np
import rrjax.study.tile
rrjax.study.tile._CELLS["cpu"] = 30
from rrjax.study import Study
study = Study(estimators=["inv"], mechanism=["subset-selection", "hadamard-response"],
              num_categories=6, num_users=[70, 90], epsilon=[1.0, 2.0], zipf=1.3, num_seeds=12)
result = study.run(keep_seeds=True)
assert jax.device_count() == int(sys.argv[2])
np.save(sys.argv[1], result.mse_seeds.values)
"""


@pytest.mark.full
@pytest.mark.once
def test_devices_do_not_change_a_bit(tmp_path):
    found = []
    for devices in (1, 3):
        file = tmp_path / f"{devices}.npy"
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", SCRIPT, str(file), str(devices)]
        subprocess.run(command, env=os.environ | flags, check=True, timeout=300)
        found.append(np.load(file))
    assert found[0].shape == (1, 2, 1, 2, 2, 1, 12)
    np.testing.assert_array_equal(*found)
