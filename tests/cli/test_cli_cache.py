"""The cache of compiled programs: it is used, it is bounded, and whatever is wrong with it, the run goes on."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line needs rrjax[cli]")

from rrjax.cli import cache
from rrjax.numerics.programs import compiling_quickly, program
from rrjax.study import Study, runner

pytestmark = pytest.mark.once
traced = []


@partial(program, static_argnums=(1,))
def power(x, exponent):
    traced.append(exponent)
    return {"power": x**exponent, "sum": jnp.sum(x)}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where programs are kept, and JAX as a user has it, who has told it nothing."""
    place = tmp_path / "cache" / "rrjax" / "this machine"
    monkeypatch.setattr(cache, "folder", lambda: place)
    told = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield place
    jax.config.update("jax_compilation_cache_dir", told)


@pytest.fixture
def taken():
    """A list that grows by one with every program that is taken from the cache."""
    events = []

    def listen(event, **more):
        del more
        if event == "/jax/compilation_cache/cache_hits":
            events.append(event)

    jax.monitoring.register_event_listener(listen)
    yield events
    jax.monitoring.unregister_event_listener(listen)


@pytest.fixture
def run(capsys, taken):
    """Compiles a program anew, and another, as a run would; returns how many were taken from the cache, and stderr."""

    def go():
        taken.clear()

        def cube(x):
            return x**3 + 1

        def root(x):
            return jax.numpy.sqrt(x) - 1

        with cache.keeping_programs():
            # As numbers of Python: a comparison would be one more program, of the first run alone.
            assert float(jax.jit(cube)(2.0)) == 9
            assert float(jax.jit(root)(4.0)) == 1
        return len(taken), " ".join(capsys.readouterr().err.split())

    return go


def programs(place):
    return sorted(place.glob("*-cache"))


def test_a_second_run_takes_what_the_first_has_kept(place, run):
    assert run() == (0, "")
    kept = {file: file.read_bytes() for file in programs(place)}
    assert len(kept) == 2
    assert run() == (2, "")
    assert {file: file.read_bytes() for file in programs(place)} == kept
    for made in (place, place.parent):
        assert made.stat().st_mode & 0o077 == 0
    assert jax.config.jax_compilation_cache_max_size == -1


def test_what_cannot_be_written_or_read_is_compiled(place, run):
    run()
    for file in programs(place):
        file.write_bytes(file.read_bytes()[:20])
    assert run() == (0, "")


def test_the_cache_is_bounded(place, run, monkeypatch):
    run()
    monkeypatch.setattr(cache, "MOST_BYTES", max(file.stat().st_size for file in programs(place)) + 1000)
    for file in programs(place):
        file.unlink()
    run()
    assert len(programs(place)) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users to tell apart")
def test_a_folder_of_another_user_is_not_trusted(place, run, monkeypatch):
    run()
    monkeypatch.setattr(cache.os, "geteuid", lambda: place.stat().st_uid + 1)
    taken, said = run()
    assert taken == 0
    assert "another user's" in said
    assert said.count("Warning") == 1


@pytest.mark.skipif(os.name == "nt", reason="no modes")
@pytest.mark.parametrize("mode", [0o770, 0o707])
@pytest.mark.parametrize("outer", [False, True])
def test_a_folder_that_others_may_write_in_is_not_trusted(place, run, mode, outer):
    run()
    (place.parent if outer else place).chmod(mode)
    taken, said = run()
    assert taken == 0
    assert "others may write" in said
    assert said.count("Warning") == 1


@pytest.mark.parametrize("outer", [False, True])
def test_a_folder_that_is_a_file(place, run, outer):
    blocked = place.parent if outer else place
    blocked.parent.mkdir(parents=True)
    blocked.touch()
    taken, said = run()
    assert taken == 0
    assert said.count("Warning") == 1
    assert blocked.is_file()


def test_a_user_without_a_home(place, run, monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache, "folder", nowhere)
    taken, said = run()
    assert taken == 0
    assert said.count("Warning") == 1


def test_another_machine_or_version_has_another_folder(monkeypatch):
    key = cache.key()
    assert key == cache.key()
    for module, name, value in (
        (cache.rrjax, "__version__", "0"),
        (cache.jax, "__version__", "0"),
        (cache.jaxlib.version, "__version__", "0"),
        (cache.np, "__version__", "0"),
        (cache.sys, "version", "0"),
        (cache.platform, "machine", lambda: "another"),
        (cache, "_processor", lambda: ["flags : none"]),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            assert cache.key() != key


@pytest.mark.skipif(sys.platform != "linux", reason="where the folder is depends on the system")
def test_the_folder_is_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert cache.folder().parent == tmp_path / "own" / "rrjax"
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache.folder().parent == tmp_path / "home" / ".cache" / "rrjax"


def test_without_a_cache_nothing_is_written_and_programs_compile_once(place):
    traced.clear()
    with cache.keeping_programs(keep=False):
        for _ in range(2):
            assert power(np.arange(4.0), 3)["power"].tolist() == [0, 1, 8, 27]
    assert not place.exists()
    assert len(traced) == 1


def test_transformations_and_large_arrays_compile_as_ever():
    def cube(x):
        return power(x, 3)["power"]

    numbers = jnp.arange(4.0)
    with compiling_quickly():
        for transformed in (jax.jit(cube), jax.vmap(cube)):
            assert transformed(numbers).tolist() == [0, 1, 8, 27]
        assert jax.grad(cube)(2.0) == 12
        assert cube(jnp.arange(2.0**13))[3] == 27


@pytest.mark.long
def test_a_study_takes_its_programs_from_the_cache_without_another_bit(place, taken):
    def run(keep):
        runner._programs.clear()
        jax.clear_caches()
        taken.clear()
        with cache.keeping_programs(keep=keep):
            study = Study(estimators="inv_p", num_categories=3, num_users=50, epsilon=1.0, zipf=1.0, num_seeds=3)
            return study.run(keep_seeds=True).mse_seeds

    first = run(keep=True)
    assert not taken
    assert run(keep=True).equals(first)
    assert len(taken) == len(programs(place)) > 0
    assert run(keep=False).equals(first)
    assert not taken


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="where the folder is depends on the system")
def test_a_second_estimate_compiles_nothing(tmp_path):
    reports = tmp_path / "reports.csv"
    reports.write_text("answer\n" + "a\na\na\nb\nc\n" * 20)
    # Without the cache of the tests.
    told = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "RRJAX_NO"))}
    told |= {"XDG_CACHE_HOME": str(tmp_path / "own"), "JAX_LOG_COMPILES": "1"}
    command = [sys.executable, "-m", "rrjax", "estimate", str(reports), "--epsilon", "1", "--json"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True, env=told) for _ in range(2))
    assert first.stdout == second.stdout
    needed, hits = (
        [run.stderr.count(said) for run in (first, second)]
        for said in ("Finished XLA compilation", "Persistent compilation cache hit")
    )
    assert needed[0] == needed[1] == hits[1] > hits[0] == 0
