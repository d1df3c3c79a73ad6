"""Products of float32 keep its precision on every platform; the default on a GPU is TF32, of 10 bits."""

import ast
from pathlib import Path

import jax.numpy as jnp
import meshes
import numpy as np
import pytest

import rrjax
from rrjax.numerics.products import matmul

pytestmark = pytest.mark.once
SOURCES = Path(rrjax.__file__).parent
NUMPY = {
    "cli", "figures", "reports", "inference/surveys.py", "models/results.py",
    "mechanisms/longitudinal/histories.py", "privacy/audit.py",
}  # fmt: skip
"""Files and folders whose `@` multiplies arrays of NumPy."""
DEFAULT = {
    "dot", "matmul", "vecdot", "matvec", "vecmat", "einsum", "tensordot", "vdot", "inner", "convolve", "correlate",
    "conv", "dot_general",
}  # fmt: skip
"""Functions of jnp and lax that take a precision."""


@pytest.mark.full
@pytest.mark.parametrize("size", [8, 70_000])
def test_no_public_function_multiplies_float32_below_its_precision(size):
    found = meshes.problems("products", size)
    wrong = {name: problem for name, problem in found.items() if problem}
    assert not wrong
    assert size > meshes.K or set(found) == set(meshes.names("products"))


def multiplies_by_default(node):
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.MatMult)
    called = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"jnp", "lax"}
    return called and node.attr in DEFAULT


@pytest.mark.long
def test_arrays_of_jax_are_multiplied_by_one_module():
    # Also where no test traces a program: functions on the host, and branches that few sizes take.
    found = {
        path.relative_to(SOURCES)
        for path in SOURCES.rglob("*.py")
        if any(map(multiplies_by_default, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    wrong = {each for each in found if not NUMPY & {each.as_posix(), each.parts[0]}}
    assert wrong == {Path("numerics/products.py")}


def test_a_product_of_three():
    first, second, third = (np.arange(6.0).reshape(shape) for shape in ((2, 3), (3, 2), (2, 3)))
    assert matmul(first, second, third).tolist() == (first @ second @ third).tolist()
    assert matmul(jnp.arange(3.0), jnp.arange(3.0)).shape == ()
