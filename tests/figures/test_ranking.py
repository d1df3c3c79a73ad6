"""The ranking of a study's estimators, and its report."""

import re

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")
pytest.importorskip("xarray", reason="studies need xarray")

import xarray as xr
from matplotlib.figure import Figure
from studies import iterates, study

from rrjax import figures
from rrjax.io import DataError
from rrjax.study.report import ranking, ranking_rows, write_report

pytestmark = pytest.mark.once  # nothing here depends on the precision

AT = {"num_categories": 50, "epsilon": 4.0}


# Three configurations of three estimators, by hand: the bests are a, b, and b and c together.
MEANS = np.array([[1.0, 4.0, 3.0], [2.0, 2.0, 1.0], [1.05, np.nan, 1.0]])
ERRORS = np.array([[0.1, 0.2, 0.3], [0.2, 0.1, 0.1], [0.1, np.nan, 0.1]])


def by_hand():
    difference = MEANS[:, None] - MEANS[None]
    error = np.full((3, 3, 3), 0.1)
    error[1, 0] = 0.2
    error[0, 1] = [9, 1.0, 0.5]  # a against b: (4 − 2)/1 and (3 − 1)/0.5 standard errors
    pairs = ("estimator", "versus", "num_users")
    return xr.Dataset(
        {
            "mse": (pairs[::2], MEANS),
            "mse_se": (pairs[::2], ERRORS),
            "mse_difference": (pairs, difference),
            "mse_difference_se": (pairs, error),
        },
        {"estimator": ["a", "b", "c"], "versus": ["a", "b", "c"], "num_users": [1, 2, 3]},
    )


def test_ranking_by_hand():
    ranked = ranking(by_hand())
    assert ranked.attrs == {"metric": "mse", "precision": "float64", "num_configurations": 3, "num_shared": 1}
    for name, expected in {
        "configurations": [3, 3, 2],
        "best": [1, 2, 1],
        "shared": [0, 1, 1],
        "worst": [2, 1, 0],
        "near": [1, 2, 2],
        "compared": [2, 1, 1],  # c shares the third with b: nothing is to be compared there
        "beyond": [1, 1, 0],
    }.items():
        assert ranked[name].values.tolist() == expected, name
    np.testing.assert_allclose(ranked["ratio"], [(1 * 2 * 3) ** (1 / 3), 2 ** (1 / 3), 1.05**0.5], rtol=1e-12)
    # a against b, second configuration: cov = (0.2² + 0.1² − 1²)/2; third: (0.3² + 0.1² − 0.5²)/2.
    second = (0.2 / 4) ** 2 + (0.1 / 2) ** 2 - (0.05 - 1) / (4 * 2)
    third = (0.3 / 3) ** 2 + (0.1 / 1) ** 2 - (0.1 - 0.25) / (3 * 1)
    first = (0.2 / 2) ** 2 + (0.1 / 1) ** 2 - (0.05 - 0.04) / (2 * 1)  # b against a
    np.testing.assert_allclose(ranked["ratio_se"][0], 6 ** (1 / 3) * np.sqrt(second + third) / 3, rtol=1e-12)
    np.testing.assert_allclose(ranked["ratio_se"][1], 2 ** (1 / 3) * np.sqrt(first) / 3, rtol=1e-12)


def test_ranking_without_pairs_or_errors():
    dataset = by_hand().drop_vars(["mse_difference", "mse_difference_se"])
    independent = ranking(dataset)
    assert independent["compared"].values.tolist() == [0, 0, 0]
    variance = (0.2 / 2) ** 2 + (0.1 / 1) ** 2
    np.testing.assert_allclose(independent["ratio_se"][1], 2 ** (1 / 3) * np.sqrt(variance) / 3, rtol=1e-12)
    assert np.isnan(ranking(dataset.drop_vars("mse_se"))["ratio_se"]).all()


def test_ranking_of_infinite_and_missing_values():
    mean = [[np.inf, 1.0, np.inf, np.nan], [2.0, 1.0, np.inf, 1.0]]
    ranked = ranking(xr.Dataset({"kl": (("estimator", "num_users"), mean)}, {"estimator": ["mle_star", "inv_n"]}), "kl")
    assert ranked.attrs["num_configurations"] == 2  # all infinite, or only one has a value: no comparison
    assert ranked["best"].values.tolist() == [1, 2]
    assert ranked["worst"].values.tolist() == [1, 0]
    assert ranked["ratio"].values.tolist() == [np.inf, 1]
    rows = ranking_rows(ranked)
    assert [row["estimator"] for row in rows] == ["InvN", "MLE*"]
    assert [row["ratio to the best"] for row in rows] == ["1.000", "∞"]


@pytest.mark.full
def test_the_standard_error_is_that_of_repetitions():
    """Over many repetitions of a study, the ratio scatters by its standard error."""
    rng = np.random.default_rng(5)
    level = np.array([[1.0, 5.0], [1.5, 9.0]])[..., None, None]
    repetitions = 2000
    shared, own = rng.normal(size=(1, 2, repetitions, 50)), rng.normal(size=(2, 2, repetitions, 50))
    samples = level * (1 + 0.3 * shared + 0.2 * own)
    pair = samples[:, None] - samples[None]
    ratios, errors = [], []
    for index in range(repetitions):
        here, paired = samples[:, :, index], pair[:, :, :, index]
        dims = ("estimator", "versus", "num_users")
        dataset = xr.Dataset(
            {
                "mse": (dims[::2], here.mean(-1)),
                "mse_se": (dims[::2], here.std(-1, ddof=1) / 50**0.5),
                "mse_difference": (dims, paired.mean(-1)),
                "mse_difference_se": (dims, paired.std(-1, ddof=1) / 50**0.5),
            },
            {"estimator": ["a", "b"], "versus": ["a", "b"]},
        )
        ranked = ranking(dataset)
        ratios.append(ranked["ratio"].values[1])
        errors.append(ranked["ratio_se"].values[1])
    # A standard deviation from 2000 values is good to 1.6 %; five times that, and a little for the delta method.
    assert np.std(ratios) == pytest.approx(np.mean(errors), rel=0.1)


@pytest.mark.long
def test_the_report_stands_alone_and_escapes(tmp_path):
    dataset = study(("mse", "kl"), estimator=["mle_star", "<b>mine</b>"])
    dataset.attrs["note"] = 'a "quote" & <tag>'
    drawn = [
        ("By <users>", "Caption & more", figures.against_users(dataset, ["mse"], **AT)),
        ("EM", "", figures.convergence(iterates())),
    ]
    path = write_report(
        tmp_path / "report.html",
        title="Study <script>alert(1)</script>",
        summary={"command": "rrjax study --out 'a&b'", "seed": 0, "time": 1.5, "undecodable": "\udcff"},
        datasets={"one": dataset, "EM": iterates()},
        figures=(item for item in drawn),
    )
    page = path.read_text("utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"<(script|link|iframe|object|embed)\b", page)
    assert re.findall(r'(?:src|href)="(?!data:image/png;base64,|#figure-\d)', page) == []
    assert page.count('src="data:image/png;base64,iVBOR') == 2
    alternatives = re.findall(r'alt="([^"]*)"', page)
    assert len(alternatives) == 2
    assert alternatives[0].startswith("By &lt;users&gt;. Panels: Zipf exponent s = 0.01; ")
    assert "MLE*; &lt;b&gt;mine&lt;/b&gt;" in alternatives[0]
    assert "\\" not in alternatives[1]
    for text in (
        "Study &lt;script&gt;alert(1)&lt;/script&gt;",
        "a &quot;quote&quot; &amp; &lt;tag&gt;",
        "&lt;b&gt;mine&lt;/b&gt;",
        "Caption &amp; more",
        "Ranking by mean squared error",
        "Ranking by Kullback–Leibler",
        "seeds per configuration",
        "within 10 %",
        "\\udcff",
    ):
        assert text in page, text
    assert page.count("<caption>") == 2  # the study of EM has nothing to rank
    assert len(re.findall(r"<table", page)) == len(re.findall(r"</table>", page))
    ranked = ranking_rows(ranking(dataset))[0]
    assert ranked["ratio to the best"] in page


def test_a_report_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")

    def stops():
        yield "a", "", Figure()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(path, title="x", summary={}, datasets=study(), figures=stops())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(DataError, match="is a folder"):
        write_report(tmp_path, title="x", summary={}, datasets=study())


def test_rows_of_a_ranking_round_to_their_error():
    ranked = xr.Dataset(
        {
            name: ("estimator", values)
            for name, values in {
                "configurations": [1500, 1500, 1500],
                "best": [1000, 500, 0],
                "worst": [0, 0, 1500],
                "near": [1200, 700, 0],
                "ratio": [1.01234, 1.5, 12345.6],
                "ratio_se": [0.000123, np.nan, 210.0],
                "compared": [500, 0, 1500],
                "beyond": [3, 0, 1500],
            }.items()
        },
        {"estimator": ["mle_star", "empirical_bayes", "inv"]},
        {"num_shared": 0},
    )
    rows = ranking_rows(ranked)
    assert rows[0] == {
        "estimator": "MLE*",
        "best": "1,000 of 1,500",
        "within 10 %": "1,200 of 1,500",
        "worst": "0 of 1,500",
        "ratio to the best": "1.01234 ± 0.00012",
        "clearly worse": "3 of 500",
    }
    assert [row["ratio to the best"] for row in rows[1:]] == ["1.500", "12,346 ± 210"]
    assert rows[1]["clearly worse"] == "–"
