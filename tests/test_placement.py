"""Many devices: `shard_map`, meshes with explicit axes, and categories spread over devices."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import meshes
import numpy as np
import pytest

from rrjax.placement import aligned, by_platform, looked_up, one_by_one, repeat

FLAGS = "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0"
# Each way starts a process that traces every public function for four devices, and compiles some: half a minute.
pytestmark = pytest.mark.once


@functools.cache
def problems(way):
    """What `meshes.py` found wrong, per function."""
    environment = os.environ | {"XLA_FLAGS": FLAGS, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "0"}
    script = pathlib.Path(meshes.__file__)
    found = subprocess.run(
        [sys.executable, str(script), way], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    return dict(json.loads(line) for line in found.stdout.splitlines())


@pytest.mark.long
@pytest.mark.parametrize("way", meshes.WAYS)
def test_every_public_function_works_on_a_mesh(way):
    found = problems(way)
    assert set(found) == set(meshes.FUNCTIONS)
    wrong = {name: problem for name, problem in found.items() if problem}
    refused = {name for among, name in meshes.REFUSED if among == way}
    assert set(wrong) == refused, wrong


def test_alone_nothing_happens():
    state = (jnp.int32(0), jnp.arange(3), 2.0)
    assert aligned(state) is state
    assert aligned(state, jnp.ones(2)) is state
    # … nor is anything added to the program.
    assert not jax.make_jaxpr(lambda x: aligned((x, x), x))(1.0).eqns


def test_looking_up_and_repeating():
    table = jnp.arange(5) ** 2
    assert looked_up(table, jnp.array([[4, 0], [1, 2]])).tolist() == [[16, 0], [1, 4]]
    assert int(looked_up(table, jnp.int32(3))) == 9
    assert int(repeat(jnp.int32(4), lambda i, s: s + i, jnp.int32(1))) == 7


def test_the_platform_that_is_compiled_for_decides(monkeypatch):
    def program():  # a new function each time, because compiled ones are remembered
        return jax.jit(lambda x: by_platform(x, cpu=jnp.sin, elsewhere=jnp.cos))

    def lowered(platform):
        return program().trace(1.0).lower(lowering_platforms=(platform,)).as_text()

    assert float(program()(0.0)) == 0.0
    assert "cos" not in str(jax.make_jaxpr(program())(0.0))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert float(program()(0.0)) == 0.0
    assert "cosine" in lowered("cuda")
    assert "sine" not in lowered("cuda").replace("cosine", "")
    assert "cosine" not in lowered("cpu")


def test_one_by_one_is_the_function_itself():
    solve = one_by_one(lambda matrix, right: jnp.linalg.solve(matrix, right))
    matrices = jnp.eye(3) * jnp.arange(1.0, 9).reshape(2, 4, 1, 1)
    right = jnp.arange(3.0)
    expected = right / jnp.arange(1.0, 9).reshape(2, 4, 1)
    np.testing.assert_allclose(solve(matrices[0, 0], right), expected[0, 0])
    # Over some arguments, within another, and with the order turned.
    np.testing.assert_allclose(jax.vmap(jax.vmap(solve, (0, None)), (0, None))(matrices, right), expected)
    turned = jax.vmap(jax.vmap(lambda m, r: solve(m, r), (0, None)), (1, None))(matrices, right)
    np.testing.assert_allclose(turned, expected.swapaxes(0, 1))
    text = jax.jit(jax.vmap(solve, (0, None))).lower(matrices[0], right).as_text()
    assert "while" in text
