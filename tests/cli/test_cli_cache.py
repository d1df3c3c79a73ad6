"""The cache of compiled programs: it is used, it is bounded, and whatever is wrong with it, the run goes on."""

import os
import sys

import jax
import pytest

from rrjax.cli import cache
from rrjax.numerics.programs import num_cores

pytestmark = pytest.mark.once


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
def run(capsys):
    """Compiles a program anew, and another, as a run would; returns how many were taken from the cache, and stderr."""
    events = []

    def listen(event, **more):
        del more
        if event == "/jax/compilation_cache/cache_hits":
            events.append(event)

    def go():
        events.clear()

        def cube(x):
            return x**3 + 1

        def root(x):
            return jax.numpy.sqrt(x) - 1

        with cache.keeping_programs():
            # As numbers of Python: a comparison would be one more program, of the first run alone.
            assert float(jax.jit(cube)(2.0)) == 9
            assert float(jax.jit(root)(4.0)) == 1
        return len(events), " ".join(capsys.readouterr().err.split())

    jax.monitoring.register_event_listener(listen)
    yield go
    jax.monitoring.unregister_event_listener(listen)


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
    monkeypatch.setattr(cache, "MOST_BYTES", 2 * max(file.stat().st_size for file in programs(place)) + 2000)
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
        (cache, "num_cores", lambda: 1000),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            assert cache.key() != key


def test_the_cores_are_those_that_the_process_may_use(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1000)
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {3, 5}, raising=False)
    assert num_cores() == 2
    monkeypatch.delattr("os.sched_getaffinity")  # as on systems that have none
    assert num_cores() == 1000


@pytest.mark.skipif(sys.platform != "linux", reason="where the folder is depends on the system")
def test_the_folder_is_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert cache.folder().parent == tmp_path / "own" / "rrjax"
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache.folder().parent == tmp_path / "home" / ".cache" / "rrjax"
