"""The page on extending rrjax, followed word by word in a copy: what it promises is there, and its tests pass."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from test_docs import ROOT, record

pytestmark = [pytest.mark.once, pytest.mark.long]
PAGE = ROOT / "docs" / "extending.md"

OF_ALL = "all_mechanisms or every_mechanism or of_the_table or there_are_not or takes_the_names or one_shell"
OF_ALL += " or those_of_the_catalogue"
"""Tests that look at all mechanisms or estimators at once."""

PROMISES = """
import json
from pathlib import Path

import jax
import numpy as np
from typer.testing import CliRunner

import rrjax
from rrjax import figures, inference, io
from rrjax.cli.app import app
from rrjax.mechanisms import Pairs
from rrjax.study import Study, ranking

grid = {"num_categories": 4, "num_users": 1000, "epsilon": [1.0, 2.0], "zipf": 1.0, "num_seeds": 2}
given = {"estimators": ["tempered", "inv_p"], "metrics": ["mse", "hellinger"]}
for more in ({}, {"mechanism": ["pairs", "oue"]}):
    result = Study(**given, **grid, **more).run()
    assert (result.hellinger > 0).all()
    assert set(ranking(result, "hellinger")["estimator"].values) == {"tempered", "inv_p"}
    figure = figures.against_epsilon(result.isel(mechanism=0) if more else result, ["hellinger"])
    assert figure.axes[0].get_ylabel() == "Hellinger distance"

mechanism = Pairs(6, 2.0)
values = np.random.default_rng(0).choice(6, 3000, p=[0.5, 0.2, 0.1, 0.1, 0.1, 0])
reports = mechanism.randomize(jax.random.key(0), values)
tally, mixture = mechanism.tally(reports), mechanism.mixture(reports)
found = [rrjax.inv_p(tally), rrjax.inv_n(tally)]
found += [rrjax.empirical_bayes(tally).theta, rrjax.ibu(mixture).theta]
assert all(abs(theta[0] - 0.5) < 0.1 for theta in found), found
assert float(rrjax.ibu(mixture).gap) < 1e-4
assert inference.intervals(tally).lower[0] < 0.5 < inference.intervals(tally).upper[0]
assert inference.p_values(tally)[0] < 0.01 and inference.discoveries(tally)[0]
assert np.isfinite(rrjax.models.rr_loss(np.zeros((3000, 6), np.float32), reports, mechanism)).all()
assert 0 < float(inference.expected_rmse(6, 1000, 2.0, mechanism=Pairs)) < 1
assert "pairs" in [row.name for row in inference.compare_mechanisms(6, 2.0, 1000)]

Path("v.csv").write_text("answer\\n" + "\\n".join(map(str, values)))
Path("own.toml").write_text('''
estimators = "inv"
mechanism = "pairs"
num_categories = 4
num_users = 100
epsilon = 1
zipf = 1.0
num_seeds = 2
metrics = ["mse", "hellinger"]
''')


def rrjax_(*words):
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, (words, done.output, done.exception)
    return " ".join(done.output.split())


domain = ("--domain", "0:5")
rrjax_("randomize", "v.csv", "--out", "r.parquet", "--mechanism", "pairs", "--epsilon", "2", *domain)
rrjax_("randomize", "v.csv", "--out", "k.parquet", "--epsilon", "2", *domain)
for file in ("r.parquet", "k.parquet"):
    assert len(json.loads(rrjax_("estimate", file, "--estimator", "tempered", "--json"))["top"]) == 6
    assert "Tempered" in rrjax_("compare", file)
    assert "InvN, mixed with a tenth" in rrjax_("estimate", file, "--estimator", "tempered", "--explain")
assert "pairs" in rrjax_("plan", "--mechanism", "pairs", "--categories", "6", "--epsilon", "2", "--users", "1000")
assert "pairs" in rrjax_("audit", "--mechanism", "pairs", "--categories", "4", "--epsilon", "1", "--draws", "20000")
"""


def inserted(text, block, where):
    """The file with a block put after its imports, before a name, or last among what a name holds."""
    lines, tree = text.split("\n"), ast.parse(text)
    if where == "after the imports":
        last = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)][-1]
        return "\n".join([*lines[: last.end_lineno], *block, *lines[last.end_lineno :]])
    place, name = re.fullmatch(r"(last in|before) (\w+)", where).groups()
    node = next(
        node
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and name
        in {getattr(target, "id", None) for target in getattr(node, "targets", [getattr(node, "target", None)])}
    )
    if place == "before":
        return "\n".join([*lines[: node.lineno - 1], *block, "", "", *lines[node.lineno - 1 :]])
    held = node.value
    while isinstance(held, ast.BinOp):  # of a table and what is added to it
        held = held.right
    held = held.generators[0].iter if isinstance(held, ast.DictComp) else held
    last = (held.values if isinstance(held, ast.Dict) else held.elts)[-1]
    end, column = last.end_lineno, last.end_col_offset
    line = lines[end - 1]
    if not line.endswith(","):  # all on one line
        return "\n".join([*lines[: end - 1], f"{line[:column]}, {' '.join(block)}{line[column:]}", *lines[end:]])
    return "\n".join([*lines[:end], *block[:-1], f"{block[-1]},", *lines[end:]])


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A copy of the project, changed as the page says; and what runs there."""
    folder = tmp_path_factory.mktemp("extended") / "project"
    unwanted = shutil.ignore_patterns("__pycache__", "_build", ".*")
    for name in ("rrjax", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for block in record.blocks(PAGE.read_text(encoding="utf-8")):
        if block.language != "python" or block.part_of is None:
            continue
        file, where = block.part_of
        path = folder / file
        if where is None:
            assert not path.exists()
            path.write_text("\n".join(block.lines[1:]) + "\n", encoding="utf-8")
        else:
            path.write_text(inserted(path.read_text(encoding="utf-8"), block.lines[1:], where), encoding="utf-8")

    def run(*command, cwd=folder):
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    run("docs/mechanisms.py")
    return run


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_what_the_page_promises_is_there(followed, tmp_path):
    for name in ("duckdb", "matplotlib", "typer", "xarray"):
        pytest.importorskip(name)
    followed("-c", PROMISES, cwd=tmp_path)
    chosen = ("--estimator", "tempered", "--estimator", "inv_p")
    out = followed("-m", "rrjax", "study", "own.toml", *chosen, "--out", "study", cwd=tmp_path)
    assert "Tempered" in out
    assert "Hellinger distance" in (tmp_path / "study" / "report.html").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.usefixtures("quick_processes")
def test_the_tests_that_the_page_names_pass(followed):
    named = re.findall(r"`\.venv/bin/pytest (.+?)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) == 2
    words = [word for command in named for word in shlex.split(command)]
    files = sorted({word for word in words if word.startswith("tests/")})
    assert {words[place + 1] for place, word in enumerate(words) if word == "-k"} == {"tempered", "pairs"}
    files += ["tests/cli/test_cli_mechanisms.py", "tests/cli/test_cli_words.py", "tests/cli/test_cli_first_steps.py"]
    files += ["tests/test_docs_outputs.py", "tests/estimators/test_postprocessing.py"]
    out = followed("-m", "pytest", "-n", "0", "-q", "-k", f"tempered or pairs or {OF_ALL}", *files)
    assert int(re.search(r"(\d+) passed", out)[1]) > 40, out
