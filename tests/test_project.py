"""What the files around the code say agrees with the code, and with each other."""

import ast
import os
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import rrjax

pytestmark = pytest.mark.once  # nothing here depends on the precision

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = ROOT / ".github" / "workflows"
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
    *(ROOT / name / "README.md" for name in ("benchmarks", "validation")),
]


ASSERTED_WORDS = 150
"""Assertions of words that the tests may hold: words change, so tests hold errors and results to their data."""


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def locked(name, python="3.11"):
    """Versions by package, as a file of constraints has them for this version of Python."""
    lines = [Requirement(line) for line in text(name).splitlines() if not line.startswith("#")]
    versions = {}
    for each in lines:
        if each.marker is None or each.marker.evaluate({"python_version": python}):
            package = each.name.lower().replace("_", "-")
            assert package not in versions, f"{package} twice for Python {python}"
            (specifier,) = each.specifier
            assert specifier.operator == "==", each
            versions[package] = Version(specifier.version)
    return versions


def bounds(*groups):
    """The highest lower bound of each package that rrjax, its extras or these groups name."""
    project = PROJECT["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    lines += [line for group in groups for line in PROJECT["dependency-groups"][group] if isinstance(line, str)]
    found = {}
    for line in lines:
        requirement = Requirement(line)
        if requirement.name != "rrjax":
            (specifier,) = requirement.specifier
            assert specifier.operator == ">=", line
            version = Version(specifier.version)
            found[requirement.name] = max(version, found.get(requirement.name, version))
    return found


def anchors(page):
    """Of the headings of a page, as they are linked to."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_one_version_everywhere():
    version = PROJECT["project"]["version"]
    assert rrjax.__version__ == version
    assert f"\nversion: {version}\n" in text("CITATION.cff")
    assert re.search(rf"^## {re.escape(version)}( \(unreleased\))?$", text("CHANGELOG.md"), re.MULTILINE)


def test_the_oldest_versions_are_the_lower_bounds():
    oldest, wanted = locked("lock-oldest.txt"), bounds("test")
    assert len(wanted) > 20
    assert {name: oldest[name] for name in wanted} == wanted


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_versions_that_passed_are_allowed(python):
    versions = locked("lock.txt", python)
    for name, bound in bounds(*PROJECT["dependency-groups"]).items():
        assert versions[name] >= bound, name


def test_the_lock_has_the_newest_jax_that_each_python_can_have():
    """JAX after 0.10 needs Python 3.12, so people on 3.11 and people on 3.13 get different versions."""
    assert locked("lock.txt", "3.11")["jax"] < Version("0.11") < locked("lock.txt", "3.13")["jax"]


def test_hooks_have_the_versions_of_the_lock():
    versions = locked("lock.txt")
    pinned = re.findall(r"additional_dependencies: \[(.+)==(.+)\]", text(".pre-commit-config.yaml"))
    assert {name for name, _ in pinned} == {"ruff", "typos"}
    for name, version in pinned:
        assert versions[name] == Version(version), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    without_code = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target


def test_what_newcomers_are_told_exists():
    contributing = text("CONTRIBUTING.md")
    named = set(re.findall(r"`((?:rrjax|tests|docs|\.ci|\.github)/[\w./-]+)`", contributing))
    assert {"rrjax/estimators/catalogue.py", "tests/cases.py", "tests/channels.py", ".ci/run", ".ci/build"} <= named
    for name in named | {"lock.txt", "lock-oldest.txt"}:
        assert (ROOT / name).exists(), name
    for title in ("Set up", "Run the tests", "Add an estimator", "Add a metric", "Add a mechanism", "Style"):
        assert f"\n## {title}\n" in contributing


def test_what_is_run_elsewhere_can_be_run():
    run = [line for path in sorted(WORKFLOWS.glob("*.yml")) for line in path.read_text(encoding="utf-8").splitlines()]
    scripts = {found[1] for line in run if (found := re.search(r"run: (\.ci/\w+)", line))}
    assert scripts == {".ci/run", ".ci/build"}
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)


def test_yaml_is_read_as_it_was_meant():
    yaml = pytest.importorskip("yaml", reason="needs PyYAML (the group test)")
    files = [*ROOT.glob(".github/**/*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]
    assert len(files) >= 8
    read = {path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in files}
    pythons = [row["python"] for row in read["ci.yml"]["jobs"]["run"]["strategy"]["matrix"]["include"]]
    assert f">={pythons[0]}" == PROJECT["project"]["requires-python"]
    assert len(set(pythons)) == 2
    assert all(isinstance(python, str) for python in pythons)  # 3.10 would be 3.1
    for form in ("wrong-result.yml", "error.yml", "question.yml", "feature.yml"):
        assert {"name", "description", "body"} <= set(read[form])
        ids = [item["id"] for item in read[form]["body"] if item["type"] != "markdown"]
        assert len(set(ids)) == len(ids) >= 2
    citation = read["CITATION.cff"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["authors"] == PROJECT["project"]["authors"]
    assert citation["references"][0]["title"] in re.sub(r"\s+", " ", text("README.md"))


def literal(node):
    """The text of a string in code, without what is put into it when it runs."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(literal, node.values))
    return literal(node.left) + literal(node.right) if isinstance(node, ast.BinOp) else ""


def asserted_words(code):
    """The lines that assert words: any `match=` for an error, or a text of two words that is to be `in` an output."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.keyword) and node.arg == "match":
            found.append(node.value)
        elif isinstance(node, ast.Assert):
            compared = [each for each in ast.walk(node) if isinstance(each, ast.Compare)]
            texts = [each.left for each in compared if isinstance(each.ops[0], ast.In | ast.NotIn)]
            found += [text for text in texts if re.search(r"[^\W\d_]{2,} [^\W\d_]{2,}", literal(text))]
    return sorted(node.lineno for node in found)


def test_asserted_words_are_counted():
    code = """
assert "two words" in out
assert f"{number} or words" not in out and "one" in out and "10 %" in out
assert all("some words" in each for each in (out, error))
assert "no words" == out
with pytest.raises(ValueError, match="of words" + " and more"):
    pass
with pytest.raises(ValueError, match=words):
    pass
"""
    assert asserted_words(code) == [2, 3, 4, 6, 8]


@pytest.mark.long
def test_few_assertions_are_of_words():
    """An error says as data what is wrong (tests/refusals.py), a command as JSON what it found."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    counts = {file.name: len(asserted_words(file.read_text(encoding="utf-8"))) for file in files}
    assert sum(counts.values()) <= ASSERTED_WORDS, {name: number for name, number in counts.items() if number}
