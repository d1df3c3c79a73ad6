"""The cache of compiled programs: it is used, it is bounded, and whatever is wrong with it, the run goes on."""

import errno
import os
import subprocess
import sys
import time

import jax
import pytest

pytest.importorskip("typer", reason="the command line needs rrjax[cli]")

from rrjax.cli import cache

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
    return sorted(place.glob("*.program"))


def test_a_second_run_takes_what_the_first_has_kept(place, run):
    assert run() == (0, "")
    kept = {file: file.read_bytes() for file in programs(place)}
    assert len(kept) == 2
    assert run() == (2, "")
    assert {file: file.read_bytes() for file in programs(place)} == kept
    assert {entry.suffix for entry in place.iterdir()} == {".program"}
    for made in (place, place.parent):
        assert made.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_folder_that_takes_nothing_more(place, run, monkeypatch, number):
    attempts = []

    def refuse(**options):
        attempts.append(options)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)
    taken, said = run()
    assert taken == 0
    assert os.strerror(number) in said
    assert said.count("Warning") == 1
    assert len(attempts) == 1
    assert not list(place.iterdir())


@pytest.mark.parametrize("name", ["compilation_cache", "compilation_cache.reset_cache"])
def test_a_jax_that_takes_no_cache_of_ours(place, run, monkeypatch, name):
    monkeypatch.delattr(f"jax._src.{name}")
    monkeypatch.setitem(sys.modules, f"jax._src.{name}", None)
    taken, said = run()
    assert taken == 0
    assert jax.__version__ in said
    assert said.count("Warning") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is full is simulated by /dev/full")
def test_a_disk_that_is_full_leaves_no_half_of_a_program(place, run, monkeypatch):
    def full(dir, suffix):  # noqa: A002
        aside = dir / f"half{suffix}"
        aside.touch()
        return os.open("/dev/full", os.O_WRONLY), str(aside)

    monkeypatch.setattr(cache.tempfile, "mkstemp", full)
    taken, said = run()
    assert taken == 0
    assert said.count("Warning") == 1
    assert not list(place.iterdir())


def test_what_is_there_can_be_used_where_nothing_can_be_written(place, run, monkeypatch):
    run()
    kept = len(programs(place))

    def refuse(*given, **options):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)
    monkeypatch.setattr(cache.os, "utime", refuse)
    assert run() == (kept, "")


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


def _flipped(content):
    return content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]


@pytest.mark.parametrize(
    "damage",
    [lambda content: b"", lambda content: content[:20], lambda content: content[:-1], _flipped],
    ids=["empty", "begun", "cut short", "a bit flipped"],
)
def test_damaged_programs_are_removed_and_made_anew(place, run, damage):
    run()
    kept = {file: file.read_bytes() for file in programs(place)}
    for file, content in kept.items():
        file.write_bytes(damage(content))
    taken, said = run()
    assert taken == 0
    assert "damaged" in said
    assert said.count("Warning") == 1
    assert set(programs(place)) == set(kept)
    assert run() == (len(kept), "")


def test_a_program_under_the_name_of_another_is_not_run(place, run):
    run()
    first, second, *_ = programs(place)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    taken, said = run()
    assert taken == len(programs(place)) - 2
    assert "damaged" in said


def test_a_whole_program_that_cannot_be_loaded_is_replaced(place, run):
    run()
    kept = programs(place)
    for file in kept:
        name = file.name.removesuffix(".program")
        file.write_bytes(cache._digest(name, b"of another time") + b"of another time")
    taken, said = run()
    assert taken == 0
    assert "could not be used" in said
    assert said.count("Warning") == 1
    assert run() == (len(kept), "")


def test_another_machine_or_version_has_another_folder(monkeypatch):
    key = cache.key()
    assert key == cache.key()
    for module, name, value in (
        (cache.rrjax, "__version__", "0"),
        (cache.jax, "__version__", "0"),
        (cache.jaxlib.version, "__version__", "0"),
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


def test_the_cache_is_bounded_over_all_machines(place, run, monkeypatch):
    run()
    kept = programs(place)
    other = place.parent / "another machine"
    other.mkdir()
    (other / "old.program").write_bytes(bytes(1_000_000))
    os.utime(other / "old.program", (1, 1))
    for name, age in (("left.aside", 2 * cache.STALE_AFTER_SECONDS), ("now.aside", 0)):
        (place / name).touch()
        os.utime(place / name, (time.time() - age,) * 2)
    (place.parent / "notes.txt").write_text("not ours")
    monkeypatch.setattr(cache, "MOST_BYTES", 500_000)
    kept[0].unlink()  # so that something is added
    assert run() == (1, "")
    assert not other.exists()
    assert (place / "now.aside").exists()
    assert not (place / "left.aside").exists()
    assert (place.parent / "notes.txt").exists()
    assert programs(place) == kept


def test_what_was_not_used_for_longest_goes_first(place, run, monkeypatch):
    run()
    used = programs(place)
    for name, age in (("longest ago", 30), ("long ago", 20)):
        (place / f"{name}.program").write_bytes(bytes(100_000))
        os.utime(place / f"{name}.program", (time.time() - age,) * 2)
    for file in used:
        os.utime(file, (1, 1))
    used[0].unlink()
    monkeypatch.setattr(cache, "MOST_BYTES", 200_000)
    assert run() == (1, "")  # which is used, and young again
    assert programs(place) == sorted([*used, place / "long ago.program"])


def test_what_jax_was_told_is_left_to_it(place, run, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "told"))
    run()
    assert not place.exists()
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        assert run() == (0, "")
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert not place.exists()


@pytest.mark.parametrize("off", ["flag", "environment", None])
def test_a_flag_and_the_environment_turn_it_off(place, invoke, monkeypatch, off):
    monkeypatch.delenv("RRJAX_NO_CACHE")
    if off == "environment":
        monkeypatch.setenv("RRJAX_NO_CACHE", "1")
    code, _, said = invoke(*["--no-cache"] * (off == "flag"), "estimate", "there is none.parquet")
    assert code == 3
    assert "there is none.parquet" in said
    assert place.exists() == (off is None)


@pytest.mark.long
def test_two_processes_at_once_do_not_meet_halves(tmp_path, quick_processes):
    told = {name: os.environ[name] for name in os.environ if not name.startswith(("JAX_", "RRJAX_"))}
    command = [sys.executable, "-m", "rrjax", "plan", "--epsilon", "2", "--categories", "5", "--users", "1000"]
    environment = told | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}

    def started():
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    both = [started(), started()]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0] == said[1]
    assert said[0][1] == ""
    kept = list(tmp_path.rglob("*.program"))
    assert kept
    for file in kept:
        content = file.read_bytes()
        assert content[:32] == cache._digest(file.name.removesuffix(".program"), content[32:])
    third = started()
    assert third.communicate(timeout=300) == said[0]
    assert set(tmp_path.rglob("*.program")) == set(kept)
