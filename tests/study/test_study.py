"""The study engine: right numbers, the same numbers however they are computed, and clear complaints."""

import errno
import json
import os
import socket
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import X64
from refusals import refused

import rrjax
from rrjax.study import Study, StudyError
from rrjax.study.checkpoint import BatchResult, Checkpoint

xr = pytest.importorskip("xarray")

ALL = ["mle_star", "inv_p", "inv_n", "inv"]
SMALL = {"estimators": ALL, "num_categories": [5, 20], "num_users": [50, 3000], "epsilon": [1, 3.0], "num_seeds": 30}


def run(**changes):
    given = SMALL | {"zipf": [0.01, 1.3]} | changes
    arguments = {name: given.pop(name) for name in ("seed", "folder", "batch_size", "quantiles", "keep_seeds", "memory",
                                                    "devices", "progress") if name in given}  # fmt: skip
    return Study(**given).run(**arguments)


def same(a, b):
    """Whether two results are equal to the last bit."""
    return set(a.data_vars) == set(b.data_vars) and all(
        np.array_equal(a[name].values, b[name].values, equal_nan=True) for name in a.data_vars
    )


@pytest.mark.full
@pytest.mark.once
def test_labels_and_dimensions():
    result = run(metrics=["mse", "nll", "tv", "max_error", "kl", "bias2", "variance"])
    assert result.mse.dims == ("estimator", "num_categories", "num_users", "epsilon", "zipf")
    assert result.estimator.values.tolist() == ALL
    assert result.num_users.values.tolist() == [50, 3000]
    assert result.epsilon.values.tolist() == [1.0, 3.0]
    assert result.zipf.values.tolist() == [0.01, 1.3]
    for name in ("mse", "nll", "tv", "max_error", "kl"):
        assert f"{name}_se" in result
        assert result[f"{name}_difference"].dims[:2] == ("estimator", "versus")
    assert "bias2_se" not in result
    assert result.attrs["num_seeds"] == 30
    assert result.attrs["jax"] == jax.__version__
    assert json.loads(result.attrs["estimators"])["mle_star"] == "rrjax.estimators.closed_form.mle_star"


@pytest.mark.full
def test_the_metrics_are_those_of_their_definitions():
    # One configuration again, seed by seed, through the public functions.
    names = ["mse", "nll", "tv", "max_error", "bias2", "variance"]
    study = Study(estimators=ALL, num_categories=20, num_users=3000, epsilon=2.0, zipf=1.3, num_seeds=25, metrics=names)
    result = study.run(seed=3, keep_seeds=True, quantiles=[0.5]).squeeze()
    collections = [study.collection(study.configurations()[0], number, seed=3) for number in range(25)]
    for estimator in ALL:
        function, here = getattr(rrjax, estimator), result.sel(estimator=estimator)
        estimates = [np.asarray(function(counts, 2.0), float) for _, counts in collections]
        truths = [np.asarray(truth, float) for truth, _ in collections]
        pairs = list(zip(estimates, truths, collections, strict=True))
        expected = {
            "mse": [np.sum((e - t) ** 2) for e, t, _ in pairs],
            "nll": [
                float(rrjax.nll(jnp.asarray(e, rrjax.data.arguments.float_dtype()), c, 2.0)) for e, _, (_, c) in pairs
            ],
            "tv": [np.abs(e - t).sum() / 2 for e, t, _ in pairs],
            "max_error": [np.abs(e - t).max() for e, t, _ in pairs],
        }
        for name, values in expected.items():
            np.testing.assert_allclose(here[f"{name}_seeds"], values, rtol=1e-10 if X64 else 1e-4)
            np.testing.assert_allclose(here[name], here[f"{name}_seeds"].values.mean(), rtol=1e-12)
            error = np.std(here[f"{name}_seeds"].values, ddof=1) / 5
            np.testing.assert_allclose(here[f"{name}_se"], error, rtol=1e-12)
            np.testing.assert_allclose(here[f"{name}_quantile"].squeeze(), np.median(here[f"{name}_seeds"].values))
        errors = np.array([e - t for e, t, _ in pairs])
        np.testing.assert_allclose(here.bias2, np.sum(errors.mean(0) ** 2), rtol=1e-10 if X64 else 1e-4)
        np.testing.assert_allclose(here.variance, np.sum(errors.var(0)), rtol=1e-10 if X64 else 1e-4)
    first, second = (result.mse_seeds.sel(estimator=name).values for name in ("mle_star", "inv_p"))
    pair = {"estimator": "mle_star", "versus": "inv_p"}
    np.testing.assert_allclose(result.mse_difference.sel(pair), np.mean(first - second), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(result.mse_difference_se.sel(pair), np.std(first - second, ddof=1) / 5, rtol=1e-9)


def numpy_study(K, N, epsilon, exponent, num_seeds, seed):
    """The paper's study by NumPy: users drawn one by one, randomized one by one."""
    rng = np.random.default_rng(seed)
    theta = 1 / np.arange(1, K + 1) ** exponent
    theta /= theta.sum()
    p = np.exp(epsilon) / (np.exp(epsilon) + K - 1)
    errors = []
    for _ in range(num_seeds):
        values = rng.choice(K, N, p=theta)
        truth = np.bincount(values, minlength=K) / N
        lie = (values + rng.integers(1, K, N)) % K
        counts = np.bincount(np.where(rng.random(N) < p, values, lie), minlength=K)
        estimates = [np.asarray(getattr(rrjax, name)(counts, epsilon), float) for name in ALL]
        errors.append([np.sum((e - truth) ** 2) for e in estimates])
    errors = np.array(errors)
    return errors.mean(0), errors.std(0, ddof=1) / np.sqrt(num_seeds)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(
    ("K", "N", "epsilon", "exponent"),
    [(5, 50, 1.0, 1.3), (50, 1000, 3.0, 0.01), (100, 20_000, 2.0, 2.5), (400, 100, 4.0, 1.0)],
)
def test_means_agree_with_a_simulation_of_users(K, N, epsilon, exponent):
    ours = run(num_categories=K, num_users=N, epsilon=epsilon, zipf=exponent, num_seeds=200, metrics=["mse"]).squeeze()
    mean, error = numpy_study(K, N, epsilon, exponent, 200, seed=1)
    assert (np.abs(ours.mse.values - mean) < 4 * np.hypot(error, ours.mse_se.values)).all()


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("truth", ["users", "distribution", "given users"])
def test_the_inversion_has_its_known_error(truth):
    K, N, epsilon = 20, 5000, 1.5
    theta = np.asarray(rrjax.simulate.zipf(K, 1.0), float)
    users = np.round(N * theta).astype(int)
    users[0] += N - users.sum()
    place = {"users": {"one": users}}
    if truth != "given users":
        place = {"distributions": {"one": users / N}, "estimand": truth, "num_users": N}
    study = Study(estimators="inv", epsilon=epsilon, num_seeds=400, metrics=["mse", "bias2", "variance"], **place)
    result = study.run().squeeze()
    r = np.exp(epsilon)
    q = 1 / (r + K - 1)
    d = (r - 1) * q
    shares = users / N
    expected = np.sum(q * (1 - q) + shares * d * (1 - 2 * q - d)) / (N * d**2)
    if truth == "distribution":
        expected += np.sum(shares * (1 - shares)) / N
    assert abs(float(result.mse) - expected) < 5 * float(result.mse_se)
    assert result.num_users == N
    # Unbiased: what remains of the squared bias is a share 1/n of the variance.
    assert float(result.bias2) < 2 * float(result.variance) / 400
    np.testing.assert_allclose(result.bias2 + result.variance, result.mse, rtol=1e-12)


@pytest.mark.full
def test_own_estimators_metrics_and_distributions():
    def half(counts, epsilon):
        return (rrjax.inv_n(counts, epsilon) + rrjax.inv_p(counts, epsilon)) / 2

    def noisy(key, counts, epsilon):
        del epsilon
        return jax.random.dirichlet(key, jnp.ones(counts.shape, rrjax.data.arguments.float_dtype()))

    def first(estimate, truth):
        return jnp.abs(estimate[0] - truth[0])

    result = run(
        estimators={"half": half, "noisy": noisy, "best": "mle_star"},
        metrics=["mse", first],
        zipf=None,
        distributions={"point": lambda K: np.eye(K)[0], "flat": np.ones},
    )
    assert result.mse.dims[-1] == "distribution"
    assert result.distribution.values.tolist() == ["point", "flat"]
    assert (result["first"] <= np.sqrt(result.mse) + 1e-6).all()
    mle = result.mse.sel(estimator="best")
    assert float(result.mse.sel(estimator="noisy").mean()) > float(mle.mean())
    again = run(estimators={"noisy": noisy}, zipf=None, distributions={"flat": np.ones}, metrics=["mse"])
    # The same collections and keys; another program may round differently.
    before = result.mse.sel(estimator="noisy", distribution="flat")
    np.testing.assert_allclose(again.mse.squeeze(), before, rtol=1e-12 if X64 else 1e-5)


@pytest.mark.full
@pytest.mark.once
def test_a_configuration_does_not_depend_on_the_rest_of_the_grid():
    whole = run()
    alone = run(num_categories=[20], num_users=[3000], epsilon=[3.0], zipf=[1.3])
    at = {"num_categories": [20], "num_users": [3000], "epsilon": [3.0], "zipf": [1.3]}
    assert same(whole.sel(at), alone)
    assert not same(run(seed=1), whole)


METRICS = ["mse", "nll", "bias2", "variance"]


@pytest.fixture(scope="module")
def uninterrupted():
    """The study of METRICS in one go, with small tiles: seeds are spread over several, and the last one is padded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rrjax.study.tile._CELLS, "cpu", 2**11)
        yield run(metrics=METRICS)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(("batch_size", "ahead"), [(1, 0), (3, 1), (7, 0)])
def test_batches_do_not_change_a_bit(batch_size, ahead, monkeypatch, uninterrupted):
    monkeypatch.setitem(rrjax.study.tile._CELLS, "cpu", 2**11)
    monkeypatch.setattr(rrjax.study.runner, "_ahead", lambda mesh: ahead)
    assert same(uninterrupted, run(metrics=METRICS, batch_size=batch_size))


SCRIPT = """
import sys, warnings
import jax
if sys.argv[2] != "-":
    jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[3]))
import rrjax.study.tile
if sys.argv[6] == "one":
    rrjax.study.tile._CELLS["cpu"] = 2**11
from rrjax.study import Study
estimators, size = (["inv_n"], 20) if sys.argv[6] == "one" else (["mle_star", "inv_p", "inv_n", "inv"], 200)
study = Study(estimators=estimators, num_categories=size, num_users=[50, 3000], epsilon=[1, 3.0],
              zipf=[0.01, 1.3], num_seeds=30, metrics=["mse", "nll", "bias2", "variance"])
folder = None if sys.argv[4] == "-" else sys.argv[4]
result = study.run(folder=folder, batch_size=2)
assert jax.device_count() == int(sys.argv[5]), jax.devices()
result.drop_attrs().to_netcdf(sys.argv[1], engine="h5netcdf")
"""


def elsewhere(tmp_path, name, devices, address="-", process=0, folder="-", total=None, estimators="one"):
    """Starts the study of SCRIPT in a process of its own."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    output = tmp_path / f"{name}.nc"
    command = [sys.executable, "-c", SCRIPT, str(output), address, str(process), folder, str(total or devices)]
    command.append(estimators)
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    return process, output


def finished(started):
    results = []
    for process, output in started:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        with xr.open_dataset(output, engine="h5netcdf") as result:
            results.append(result.load())
    return results


@pytest.mark.full
@pytest.mark.once
def test_devices_and_processes_do_not_change_a_bit(tmp_path):
    pytest.importorskip("h5netcdf")
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    one, four = finished([elsewhere(tmp_path, "one", 1), elsewhere(tmp_path, "four", 4)])
    pair = [
        elsewhere(tmp_path, f"pair{i}", 1, address, i, str(tmp_path / "kept") if i == 0 else "-", total=2)
        for i in (0, 1)
    ]
    first, second = finished(pair)
    assert same(one, four)
    assert same(one, first)
    assert same(one, second)
    # What two processes began, one may finish.
    sorted((tmp_path / "kept" / "checkpoint").glob("k20-*.npz"))[-1].unlink()
    (resumed,) = finished([elsewhere(tmp_path, "resumed", 1, folder=str(tmp_path / "kept"))])
    assert same(one, resumed)


@pytest.mark.full
@pytest.mark.once
def test_nor_do_devices_for_several_estimators_in_one_program(tmp_path):
    # XLA may divide by a scalar on one and multiply by its reciprocal on two.
    pytest.importorskip("h5netcdf")
    one, two = finished([elsewhere(tmp_path, str(devices), devices, estimators="all") for devices in (1, 2)])
    assert same(one, two)


class StopError(Exception):
    pass


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_run_that_stopped_goes_on(tmp_path, after, monkeypatch, uninterrupted):
    monkeypatch.setitem(rrjax.study.tile._CELLS, "cpu", 2**11)
    seen = []

    def stop(progress):
        seen.append(progress)
        if len(seen) > after:
            raise StopError

    with pytest.raises(StopError):
        run(metrics=METRICS, folder=tmp_path, batch_size=2, progress=stop)
    assert 0 < seen[-1].done < seen[-1].total
    again = []
    result = run(metrics=METRICS, folder=tmp_path, batch_size=5, progress=again.append)
    assert again[0].done == again[0].resumed == seen[-1].done
    assert again[-1].done == again[-1].total
    assert same(result, uninterrupted)
    # A third time there is nothing left to do.
    last = []
    assert same(result, run(metrics=METRICS, folder=tmp_path, progress=last.append))
    assert len(last) == 1
    assert last[0].resumed == last[0].total


@pytest.mark.full
@pytest.mark.once
def test_a_killed_process_leaves_a_folder_that_goes_on(tmp_path):
    pytest.importorskip("h5netcdf")
    folder = tmp_path / "kept"
    started = elsewhere(tmp_path, "killed", 1, folder=str(folder))
    while started[0].poll() is None and not list(folder.glob("checkpoint/*.npz")):
        pass
    started[0].kill()
    started[0].communicate()
    resumed, whole = finished([elsewhere(tmp_path, "again", 1, folder=str(folder)), elsewhere(tmp_path, "whole", 1)])
    assert same(resumed, whole)


@pytest.mark.full
@pytest.mark.once
def test_a_damaged_checkpoint_is_computed_again(tmp_path, monkeypatch):
    monkeypatch.setitem(rrjax.study.tile._CELLS, "cpu", 2**11)
    whole = run(metrics=METRICS, folder=tmp_path, batch_size=4)
    parts = sorted((tmp_path / "checkpoint").glob("k20-*.npz"))
    assert len(parts) > 3
    parts[1].write_bytes(parts[1].read_bytes()[:-40])
    parts[2].write_bytes(b"")
    parts[-1].write_bytes(parts[0].read_bytes())  # whole, but of another batch
    monkeypatch.setattr(rrjax.study.runner, "_ahead", lambda mesh: 1)  # a batch begins where a known part ends
    with pytest.warns(UserWarning, match="damaged") as caught:
        result = run(metrics=METRICS, folder=tmp_path, batch_size=3)
    assert len(caught) == 3
    assert same(result, whole)
    assert len(list((tmp_path / "checkpoint").glob("*.damaged"))) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(run(metrics=METRICS, folder=tmp_path), whole)


@pytest.mark.once
@pytest.mark.parametrize("name", ["study.json", "runs.json"])
@pytest.mark.parametrize("content", ["mine", "[1]", '{"mine": 1}'])
def test_files_in_the_folder_that_are_of_no_study_are_kept(tmp_path, name, content):
    file = tmp_path / "checkpoint" / name
    file.parent.mkdir()
    file.write_text(content)
    with refused("folder", error=StudyError, file=file):
        run(folder=tmp_path)
    assert file.read_text() == content


@pytest.mark.full
@pytest.mark.once
def test_a_folder_of_another_study_is_refused(tmp_path):
    run(folder=tmp_path)

    def other(value, file=tmp_path):
        return refused("folder", error=StudyError, value=value, file=file)

    with other(["num_seeds"]):
        run(folder=tmp_path, num_seeds=31)
    with other(["seed"]):
        run(folder=tmp_path, seed=1)

    def inv(counts, epsilon):
        return rrjax.inv(counts, epsilon)

    with other(["estimators", "order"]):
        run(folder=tmp_path, estimators={"one": inv})
    # The same ones in another order would be taken for each other.
    with other(["order"]):
        run(folder=tmp_path, estimators=ALL[::-1])
    file = tmp_path / "checkpoint" / "study.json"
    file.write_text(file.read_text()[:30])
    with other(None, file):
        run(folder=tmp_path)
    file.unlink()
    with other(None, file):
        run(folder=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(rrjax.io.DataError, match="cannot be made"):
        run(folder=tmp_path / "file")


def _raising(counts, epsilon):
    raise RuntimeError("no such luck")


def _concrete(counts, epsilon):
    return rrjax.inv(counts, epsilon) if counts[0] > 0 else rrjax.inv_n(counts, epsilon)


def _one_short(counts, epsilon):
    return rrjax.inv(counts, epsilon)[1:]


def _nan(counts, epsilon):
    theta = rrjax.inv_n(counts, epsilon)
    return jnp.where(counts[0] == jnp.max(counts), theta, jnp.nan)


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"estimators": []}, "estimators"),
        ({"estimators": ["mly"]}, "estimators"),
        ({"estimators": [lambda c, e: c]}, "estimators"),
        ({"estimators": {"mle_star": _one_short}}, "estimators"),
        ({"estimators": {"bad": 3}}, "estimators"),
        ({"estimators": {"bad": _one_short}}, "estimators"),
        ({"estimators": {"bad": _raising}}, "estimators"),
        ({"estimators": {"bad": _concrete}}, "estimators"),
        ({"estimators": {"bad": lambda c, e: c}}, "estimators"),
        ({"estimators": {"bad": lambda c, e: None}}, "estimators"),
        ({"estimators": {"bad": _nan}}, "estimators"),
        ({"num_categories": []}, "num_categories"),
        ({"num_categories": [1]}, "num_categories"),
        ({"num_categories": 2.5}, "num_categories"),
        ({"num_categories": None}, "num_categories"),
        ({"num_users": [0]}, "num_users"),
        ({"num_users": [2**31]}, "num_users"),
        ({"num_users": None}, "num_users"),
        ({"num_users": [50, 50]}, "num_users"),
        ({"epsilon": [0.0]}, "epsilon"),
        ({"epsilon": [float("nan")]}, "epsilon"),
        ({"zipf": [-1.0]}, "zipf"),
        ({"zipf": None}, "zipf"),
        ({"distributions": {"a": [0.5, 0.5]}}, "zipf"),
        ({"zipf": None, "distributions": {}}, "distributions"),
        ({"zipf": None, "distributions": {"a": np.ones(5)}}, "num_categories"),
        ({"zipf": None, "num_categories": 2, "distributions": {"a": [-1, 2]}}, "distributions"),
        ({"zipf": None, "distributions": {"a": lambda K: np.ones(3)}}, "distributions"),
        ({"zipf": None, "distributions": {"a": lambda K: 1 / 0}}, "distributions"),
        ({"zipf": None, "distributions": {"a": np.ones(5), "b": np.ones(4)}}, "distributions"),
        ({"zipf": None, "users": {}}, "users"),
        ({"zipf": None, "users": {"a": [3, 4]}, "estimand": "distribution"}, "estimand"),
        ({"estimand": "other"}, "estimand"),
        ({"num_seeds": 1}, "num_seeds"),
        ({"metrics": ["rmse"]}, "metrics"),
        ({"metrics": {"both": lambda a, b: a - b}}, "metrics"),
        ({"seed": -1}, "seed"),
        ({"batch_size": 0}, "batch_size"),
        ({"memory": 35_000}, "memory"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(changes, argument):
    with refused(argument, error=StudyError):
        run(**changes)


@pytest.mark.full
@pytest.mark.once
def test_what_was_finished_stays_when_an_estimator_fails(tmp_path):
    def sometimes(counts, epsilon):
        return jnp.where(counts.shape[0] == 20, jnp.nan, 1.0) * rrjax.inv_n(counts, epsilon)

    with refused("estimators", error=StudyError, value="sometimes"):
        run(estimators={"sometimes": sometimes}, folder=tmp_path)
    assert list((tmp_path / "checkpoint").glob("k5-*.npz"))


@pytest.mark.full
@pytest.mark.once
def test_infinite_divergences_have_infinite_means():
    result = run(metrics=["kl"], num_users=[50])
    assert np.isinf(result.kl.sel(estimator="mle_star").values).any()
    assert not np.isnan(result.kl.sel(estimator="mle_star").values).any()
    improper = run(
        metrics=["kl"], estimators=["mle_star", "inv", "base_pos"], num_users=50, num_categories=20, epsilon=1
    )
    assert np.isnan(improper.kl.sel(estimator=["inv", "base_pos"]).values).all()  # no distributions


@pytest.mark.full
@pytest.mark.once
def test_a_folder_where_nothing_was_finished_can_be_used_again(tmp_path):
    def wrong(counts, epsilon):
        return rrjax.inv(counts, epsilon) * jnp.nan

    with refused("estimators", error=StudyError, value="own"):
        run(estimators={"own": wrong}, folder=tmp_path)
    run(estimators={"own": rrjax.inv}, folder=tmp_path)


@pytest.mark.once
def test_a_folder_without_results_is_that_of_the_studies_that_compute_there(tmp_path):
    """Of two different studies that began at once, the second one replaced the tables of the first."""
    pytest.importorskip("fcntl", reason="this system has no locks that end with their process")
    one = Checkpoint(tmp_path, {"seed": 1})
    with refused("folder", error=StudyError):
        Checkpoint(tmp_path, {"seed": 2})
    same = Checkpoint(tmp_path, {"seed": 1})
    one.close()
    with refused("folder", error=StudyError):
        Checkpoint(tmp_path, {"seed": 2})
    same.close()
    Checkpoint(tmp_path, {"seed": 2}).close()


@pytest.mark.once
def test_a_folder_of_a_network_is_claimed_too(tmp_path, monkeypatch):
    """There a lock that is shared wants a file that can be read."""
    fcntl = pytest.importorskip("fcntl", reason="this system has no locks that end with their process")
    flock = fcntl.flock

    def of_network(file, operation):
        if operation == fcntl.LOCK_SH and not file.readable():
            raise OSError(errno.EBADF, "no lock")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", of_network)
    one = Checkpoint(tmp_path, {"seed": 1})
    with refused("folder", error=StudyError):
        Checkpoint(tmp_path, {"seed": 2})
    one.close()


@pytest.mark.once
def test_batches_of_what_are_no_numbers_are_set_aside(tmp_path):
    checkpoint = Checkpoint(tmp_path, {"estimators": {"inv": ""}, "metrics": {"mse": ""}})
    part = BatchResult(0, 1, np.zeros((1, 2)), np.zeros(0), np.zeros(0))

    def load():
        return checkpoint.load("k4", lambda start, stop: ((1, 2), (0,), (0,)))

    checkpoint.save("k4", part)
    (file,) = (tmp_path / "checkpoint").glob("k4-*.npz")
    assert list(load()) == [0]
    with np.load(file) as arrays:
        kept = dict(arrays)
    for wrong in (
        kept | {"measures": kept["measures"].astype(str)},
        kept | {"measures": kept["measures"].astype(object)},
        kept | {"measures": kept["measures"][:, :1]},
        kept | {"pending": np.zeros(1)},
        {name: kept[name] for name in ("measures", "squares")},
    ):
        np.savez(file, **wrong)
        with pytest.warns(UserWarning, match="is damaged"):
            assert load() == {}
        assert not file.exists()
    assert len(list((tmp_path / "checkpoint").glob("k4-*.damaged"))) == 5
    checkpoint.close()


@pytest.mark.long
@pytest.mark.once
def test_a_part_of_another_study_is_not_taken(tmp_path):
    run(folder=tmp_path / "one")
    run(folder=tmp_path / "other", seed=1)
    for part in (tmp_path / "other" / "checkpoint").glob("k*.npz"):
        (tmp_path / "one" / "checkpoint" / part.name).write_bytes(part.read_bytes())
    with refused("folder", error=StudyError):
        run(folder=tmp_path / "one")


@pytest.mark.long
@pytest.mark.once
def test_a_part_tells_the_order_of_its_estimators(tmp_path):
    run(folder=tmp_path)
    # Another process writes the description of its study, with another order, into the folder.
    file = tmp_path / "checkpoint" / "study.json"
    description = json.loads(file.read_text())
    description["order"] = [ALL[::-1], ["mse", "nll"]]
    file.write_text(json.dumps(description))
    with refused("folder", error=StudyError):
        run(folder=tmp_path, estimators=ALL[::-1])
    with refused("folder", error=StudyError, value=["order"]):
        run(folder=tmp_path)


@pytest.mark.long
def test_what_another_process_writes_is_left_alone(tmp_path):
    run(folder=tmp_path)
    names = (".rrjax-00000000000000aa.npz", ".rrjax-00000000000000bb.npz", ".rrjax-mine")
    fresh, old, other = (tmp_path / "checkpoint" / name for name in names)
    for file in (fresh, old, other):
        file.write_text("")
    for file in (old, other):
        os.utime(file, (0, 0))
    run(folder=tmp_path)
    assert fresh.exists()
    assert not old.exists()
    assert other.exists()  # which rrjax has not written


@pytest.mark.long
def test_one_quantile_is_enough():
    assert run(quantiles=0.5)["mse_quantile"].sizes["quantile"] == 1


@pytest.mark.full
def test_weights_whose_sum_overflows_are_a_distribution():
    result = run(zipf=None, distributions={"huge": lambda size: np.full(size, 1e308)}, metrics=["mse"])
    assert np.isfinite(result.mse).all()
