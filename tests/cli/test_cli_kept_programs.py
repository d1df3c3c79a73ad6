"""Whole executables: a second process loads them untraced, and nothing that does not fit is run."""

import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rrjax.cli import cache, kept_programs
from rrjax.cli.kept_programs import KeptPrograms
from rrjax.numerics.programs import compiling_by, program
from rrjax.study import Study, runner

pytestmark = pytest.mark.once
traced = []


@partial(program, static_argnums=(1,))
def power(x, exponent):
    traced.append(exponent)
    return {"power": x**exponent, "sum": jnp.sum(x)}


@pytest.fixture
def place(tmp_path):
    traced.clear()
    yield tmp_path
    kept_programs._loaded.clear()


def cubes(place, most_bytes=2**20, exponent=3):
    """As a process that starts: nothing is compiled, and nothing loaded."""
    kept_programs._loaded.clear()
    jax.clear_caches()
    with compiling_by(KeptPrograms(place, most_bytes)):
        found = power(np.arange(4.0), exponent)
        power(np.arange(4.0), exponent)
    assert found["power"].tolist() == [number**exponent for number in range(4)]
    assert float(found["sum"]) == 6


def files(place):
    return sorted(place.iterdir())


@pytest.mark.long
def test_a_second_process_loads_without_tracing_or_compiling(place, compilations):
    cubes(place)
    assert len(files(place)) == len(traced) == 1
    before = len(compilations)
    cubes(place)
    assert (len(files(place)), len(traced), len(compilations)) == (1, 1, before)
    cubes(place, exponent=2)
    assert (len(files(place)), traced) == (2, [3, 2])


@pytest.mark.parametrize("damage", [lambda content: content[:50], lambda content: b"", lambda content: content[::-1]])
def test_a_damaged_program_is_compiled_and_written_again(place, damage):
    cubes(place)
    (file,) = files(place)
    file.write_bytes(damage(file.read_bytes()))
    cubes(place)
    assert files(place) == [file]
    assert len(traced) == 2
    cubes(place)
    assert len(traced) == 2


def test_other_code_and_another_environment_have_other_programs(place, monkeypatch):
    cubes(place)
    with monkeypatch.context() as changed:
        changed.setattr(kept_programs, "code", lambda: "changed")
        cubes(place)
    with monkeypatch.context() as changed:
        changed.setenv("JAX_DEFAULT_MATMUL_PRECISION", "high")
        cubes(place)
    assert len(files(place)) == len(traced) == 3


def test_the_folder_is_bounded(place):
    cubes(place)
    size = files(place)[0].stat().st_size
    cubes(place, exponent=2, most_bytes=size + 1000)
    cubes(place, exponent=2)
    assert len(files(place)) == 1
    assert traced == [3, 2]


def test_without_a_cache_nothing_is_written_and_programs_compile_once(place, monkeypatch):
    monkeypatch.setattr(cache, "folder", lambda: place / "rrjax" / "this machine")
    with cache.keeping_programs(keep=False):
        for _ in range(2):
            assert power(np.arange(4.0), 3)["power"].tolist() == [0, 1, 8, 27]
    assert files(place) == []
    assert len(traced) == 1


def test_transformations_and_large_arrays_compile_as_ever(place):
    def cube(x):
        return power(x, 3)["power"]

    numbers = jnp.arange(4.0)
    with compiling_by(KeptPrograms(place, 2**20)):
        for transformed in (jax.jit(cube), jax.vmap(cube)):
            assert transformed(numbers).tolist() == [0, 1, 8, 27]
        assert jax.grad(cube)(2.0) == 12
        cube(jnp.arange(2.0**13))
    assert files(place) == []


PROCESS = """
import sys, pathlib, jax, numpy as np, jax.numpy as jnp
from rrjax.cli.kept_programs import KeptPrograms
from rrjax.numerics.programs import compiling_by, program

def factor(x):
    print("traced")
    return jnp.linalg.cholesky(x)

def told(x):
    return jax.pure_callback(lambda x: np.asarray(x) + 1, jax.ShapeDtypeStruct((), "float32"), x)

with compiling_by(KeptPrograms(pathlib.Path(sys.argv[1]), 2**20)):
    print(program(factor)(np.eye(2, dtype="float32") * 4).tolist(), program(told)(np.float32(1)))
"""


@pytest.mark.full
def test_functions_outside_of_xla_are_found_or_the_program_is_not_kept(place):
    # LAPACK's functions are looked up when a program is lowered; a callback belongs to its process.
    said = [
        subprocess.run([sys.executable, "-c", PROCESS, place], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["traced\n[[2.0, 0.0], [0.0, 2.0]] 2.0\n", "[[2.0, 0.0], [0.0, 2.0]] 2.0\n"]
    assert len(files(place)) == 1


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="where the folder is depends on the system")
def test_a_second_estimate_compiles_nothing(place):
    reports = place / "reports.csv"
    reports.write_text("answer\n" + "a\na\na\nb\nc\n" * 20)
    # Without the cache of the tests.
    told = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "RRJAX_NO"))}
    told |= {"XDG_CACHE_HOME": str(place / "own"), "JAX_LOG_COMPILES": "1"}
    command = [sys.executable, "-m", "rrjax", "estimate", str(reports), "--epsilon", "1", "--json"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True, env=told) for _ in range(2))
    assert first.stdout == second.stdout
    compiled = [run.stderr.count("Finished XLA compilation") for run in (first, second)]
    assert compiled[0] > compiled[1] == 0


@pytest.mark.full
def test_a_study_of_the_catalogue_is_kept_and_one_of_own_functions_is_not(place, compilations):
    def own(counts, epsilon):
        return counts / counts.sum()

    def run(estimator, compiling=compiling_by):
        kept_programs._loaded.clear()
        runner._programs.clear()
        with compiling(KeptPrograms(place, 2**20)):
            return Study(estimators=estimator, num_categories=3, num_users=50, epsilon=1.0, zipf=1.0, num_seeds=3).run(
                keep_seeds=True
            )

    first = run("inv_p")
    assert run("inv_p", nullcontext).mse_seeds.equals(first.mse_seeds)
    assert len(files(place)) == 1
    before = len(compilations)
    assert run("inv_p").mse_seeds.equals(first.mse_seeds)
    assert len(compilations) == before
    run({"mine": own})
    assert len(files(place)) == 1
