"""The packages of rrjax import one way, as `docs/design.md` says."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.once  # nothing here depends on the precision

ROOT = Path(__file__).parents[1]
PACKAGES = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), re.MULTILINE)


def name_of(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): file for file in sorted((ROOT / "rrjax").rglob("*.py"))}


def imported(file, everywhere=True):
    """The modules of rrjax that a file imports; those of functions and of types only where everywhere."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def test_every_package_is_in_the_table():
    found = {path.name for path in (ROOT / "rrjax").iterdir() if path.name != "__pycache__"}
    assert found == {*PACKAGES, "__init__.py", "__main__.py", "py.typed"}


@pytest.mark.long
def test_imports_go_one_way():
    against = [
        f"{name} imports {other}"
        for name, file in MODULES.items()
        for other in imported(file)
        if name.split(".")[1:2] != ["__main__"] and name.count(".") and other.count(".")
        if PACKAGES.index(other.split(".")[1]) > PACKAGES.index(name.split(".")[1])
    ]
    assert not against


@pytest.mark.long
def test_no_imports_circle():
    graph = {name: {*imported(file, everywhere=False)} - {name} for name, file in MODULES.items()}
    # A package's own names come of its modules, which may import the package.
    graph = {name: {other for other in others if not name.startswith(f"{other}.")} for name, others in graph.items()}
    TopologicalSorter(graph).prepare()


def test_files_fit_in_the_head():
    long = {name: lines for name, file in MODULES.items() if (lines := len(file.read_text().splitlines())) > 600}
    assert not long
