"""The notebooks run from beginning to end, and find what they say."""

import os
import re
import runpy
import sys
from pathlib import Path

import pytest
from cases import X64

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbformat and nbclient (the group test)")
nbclient = pytest.importorskip("nbclient", reason="notebooks need nbclient (the group test)")

pytestmark = pytest.mark.once  # nothing here depends on the precision
for _name in ("ipykernel", "matplotlib", "xarray", "h5netcdf", "duckdb", "typer", "sklearn", "optax"):
    pytest.importorskip(_name, reason=f"notebooks need {_name} (rrjax[cli] and the group test)")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
# Run in the notebook's kernel after its last cell.
CHECKS = {
    "01": """
assert claims[0].holds and not claims[4].holds, claims
assert float(ratio.sel(place)) > 10, ratio.sel(place)
for row in eq8:
    assert abs(row["simulated, total"] - row["with (p−q)²"]) < 5 * row["± s.e."], row
    assert row["with (p−q), as reported"] < 0.5 * row["simulated, total"], row
""",
    "02": """
assert set(result["estimator"].values) >= {"shrunken", "halfway", "unbiased"} and "largest_gap_se" in result
assert again.equals(short.run(seed=0, batch_size=1))
assert path[-1][1] < path[0][1] and abs(path[-1][1] / on_grid.min() - 1) < 0.01, (path[-1], on_grid.min())
assert on < 1e-6 and off < 1e-6 and difference < 1e-4 * largest
""",
    "03": """
assert all(taken > 0 for row in rows for taken in row) and abs(together[0] - alone[0]).max() < 1e-6
assert float(gaps.max()) < 2e-6
""",
    "04": """
assert fits.p_value > 0.05 and wrong.p_value < 0.01, (fits, wrong)
assert covered.all() and int(discovered.sum()) >= 9 and false_found == 0 and false_support > 5
p_values = [float(test.p_value) for test in tests.values()]
assert p_values[0] < 0.01 and p_values[1] < 0.01 < p_values[2], p_values
assert float(posterior.r_hat.max()) < 1.05
""",
    "05": """
assert set(closest) == set(MECHANISMS) and max(closest.values()) < 0.02
expected = ProjectiveGeometry(K, 2.0).expected_squared_error(N)
assert float(mse.sel(mechanism="projective-geometry-response", epsilon=2.0)) < float(expected)
assert float(relative.sel(mechanism="projective-geometry-response").max()) < 2, relative
assert str(mse.sel(epsilon=1.0).idxmax("mechanism").item()) == "randomized-response"
assert float(means[2]) < 0.6 * float(means[1]) < float(means[0]) and float(gaps.max()) <= 1e-5
""",
    "06": """
assert float(fits.p_value) < 1e-6 and float(square.p_value) < 1e-6 and float(better.p_value) > 0.01
assert covered > 0.9 and missed < 0.5, (covered, missed)
away = (np.asarray(through.coefficients[3:]) - [-2, -6]) / np.asarray(through.standard_errors[3:])
assert abs(away).max() < 3 and plain[1] > -4, (away, plain)
assert min(results.values()) > 0.95 - 4 * noise, results
""",
    "07": """
def clear(margin, least=0.0):
    return margin[0] > max(least, 2 * margin[1])

# What depends little on how a setting is chosen shows with few seeds.
assert clear(by_choice["no weight decay, all 40 epochs"], 0.05), by_choice
assert clear(own_margins["naive, all users"]) and own_margins["naive, those of ε = 4"][0] > 0, own_margins
assert public.mean() > 0.97 and abs(margins[4.0][0]) < 0.03, (public.mean(), margins)
if NUM_SEEDS >= 20:
    assert all(clear(one) for one in by_choice.values()) and clear(margins[2.0]), (by_choice, margins)
    assert not clear(margins[0.5]) and clear(second[2.0]) and not clear(second[0.5]), (margins, second)
    for epsilon in EPSILONS[1:]:
        assert clear(margin(*(accuracy(runs[name, epsilon]) for name in ("naive", "backward_loss"))))
    for epsilon in (1.0, 2.0):
        assert clear(margin(*(accuracy(runs[f"two stages, {name}", epsilon]) for name in ("rr_loss", "naive"))))
""",
    "08": """
assert float(split.objective) <= on_grid * (1 + 1e-5) and float(split.gain) > 1.5
assert test.p_value > 0.05 and abs(fitted.parameters - 1.1) < 3 * fitted.standard_errors
assert errors["Zipf"] < 0.1 * errors["empirical Bayes"] < 0.1 * errors["MLE*"], errors
assert abs(found.value - diversity(ages)) < 3 * found.standard_error
assert covered_ages > 0.92 and covered_towns < 0.8, (covered_ages, covered_towns)
# As many as in the family, as far as these reports know it.
likely = [int((jax.nn.softmax(zipf(exponent + step * of_exponent)) > 0.01).sum()) for step in (3, -3)]
assert likely[0] - 0.5 < tuned < likely[1] + 0.5 < plain - 2, (tuned, plain, likely)
assert abs(slope / difference - 1) < 0.05 and abs(reached / target - 1) < 0.01, (slope, difference, reached)
""",
    "09": """
assert inside.all() and wrong.contradicted and not reports.contradicted and not fits.outcomes[0].rejected
low, high = (float(mean.columns[name][0]) for name in ("lower", "upper"))
assert low < days.mean() < high, (low, days.mean(), high)
south = by_region.columns["value"][2]
assert abs(south - (true_answers[region == "south"] > 0).mean()) < 4 * by_region.columns["standard_error"][2]
assert abs(regression.columns["estimate"][-1] - 0.8) < 4 * regression.columns["standard_error"][-1]
""",
    "10": """
assert (abs(sampled[0] - likeliest[0]) < 0.3 * likeliest[1]).all(), (sampled, likeliest)
assert (abs(sampled[1] / likeliest[1] - 1) < 0.25).all() and (abs(likeliest[0][:2] - BETA) < 4 * likeliest[1][:2]).all()
assert abs(likeliest[0][2] - TAU) < 4 * likeliest[1][2]
assert root_mean_square["posterior mean"] < root_mean_square["each school alone"], root_mean_square
""",
}


FEWER_SEEDS = {"07": "4"}
"""Of notebooks that train networks for each."""


def test_every_notebook_is_checked():
    assert [path.name[:2] for path in NOTEBOOKS] == sorted(CHECKS)


@pytest.mark.full
@pytest.mark.skipif(X64, reason="the notebooks are run without x64, as they are written")
@pytest.mark.usefixtures("quick_processes")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # those of Jupyter's own machinery; the kernel is a process of its own
def test_notebook_runs(path, tmp_path, monkeypatch):
    if path.name.startswith("10"):
        pytest.importorskip("numpyro", reason="this notebook needs numpyro (the group notebooks)")
    seeds = FEWER_SEEDS.get(path.name[:2], "20")
    monkeypatch.setenv("RRJAX_NOTEBOOK_SEEDS", os.environ.get("RRJAX_NOTEBOOK_SEEDS", seeds))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS[path.name[:2]]))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_name_no_machine(path):
    notebook = nbformat.read(path, as_version=4)
    outputs = str([cell.outputs for cell in notebook.cells if cell.cell_type == "code"])
    assert not any(place in outputs for place in ("/home/", "/root/", "/tmp/", "/work/", "/Users/", "Traceback"))
    assert path.stat().st_size < 600_000


RULE = re.compile(r"^[ |:-]*---[ |:-]*$", re.MULTILINE)
"""What stands under the titles of a table in Markdown."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_tables_are_tables_on_the_site_too(path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which the settings add
    settings = runpy.run_path(str(path.parents[1] / "docs" / "conf.py"))
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    for output in (output for cell in cells for output in cell.outputs):
        shown = output.get("data", {})
        for text in (output.get("text", ""), shown.get("text/plain", "")):
            assert not RULE.search(text), f"a table is printed: display it as Markdown\n{text}"
        table = shown.get("text/markdown", "")
        if RULE.search(table):
            assert settings.get("nb_render_markdown_format") in ("gfm", "myst")  # "commonmark" has no tables
            lines = [line.strip().strip("|").replace(r"\|", "") for line in table.strip().split("\n")]
            assert len({line.count("|") for line in lines}) == 1, table
