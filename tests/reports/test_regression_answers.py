"""Regressions in a notebook: the numbers and words of the command line, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal  # noqa: E402

import rrjax  # noqa: E402
from rrjax.data.errors import ArgumentError, DataError  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
READ = ("--epsilon", "2", "--domain", "answers.txt")


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """Reports of three answers, covariates, of which one value is missing, weights and clusters."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    age, region = rng.integers(18, 80, 1200), rng.choice(["north", "south"], 1200)
    answer = np.where(rng.random(1200) < age / 90, 1, 2 * (rng.random(1200) < 0.4))
    income = rng.normal(3, 1, 1200).round(3).tolist()
    income[4] = None
    columns = {
        "uses": np.asarray(["never", "once", "often"])[answer],
        "age": age,
        "region": region,
        "income": income,
        "weight": rng.uniform(0.5, 2, 1200),
        "house": np.arange(1200) // 40,
    }
    polars.DataFrame(columns).write_csv("s.csv")
    Path("answers.txt").write_text("never\nonce\noften\n")
    return rrjax.read("s.csv", column="uses", epsilon=2.0, domain="answers.txt")


@pytest.mark.long
@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        ({"covariates": ["age", "region"], "reference": "often"}, ("age,region", "--reference", "often")),
        (
            {"covariates": "income", "weights": "weight", "clusters": "house", "drop_missing": True, "level": 0.9},
            *[("income", "--weights", "weight", "--clusters", "house", "--drop-missing", "--level", "0.9")],
        ),
    ],
)
def test_the_command_line_says_what_the_answer_says(survey, invoke, asked, flags):
    answer = survey.regress(**asked)
    line = ("regress", "s.csv", "--outcome", "uses", *READ, "--covariates", *flags)
    check_outlets(answer, invoke, *line, tolerance=1e-6)
    assert answer.title in repr(answer)
    assert answer.num_dropped == ("drop_missing" in asked)
    assert len(answer.notes) == 0


@pytest.mark.long
def test_a_covariate_that_is_randomized_too(survey, invoke):
    del survey
    rng = np.random.default_rng(4)
    income = rng.integers(0, 2, 3000)
    smokes = (rng.random(3000) < 0.2 + 0.5 * income).astype(int)
    polars.DataFrame({"smokes": smokes, "income": income, "age": rng.integers(18, 80, 3000)}).write_csv("v.csv")
    line = ("randomize", "v.csv", "--column", "smokes", "--column", "income", "--apart", "--epsilon", "6")
    assert invoke(*line, "--keep", "age", "--out", "s.parquet")[0] == 0
    reports = rrjax.read("s.parquet", column="smokes")
    answer = reports.regress(["income", "age"])
    assert answer.hidden == ["income"]
    line = ("regress", "s.parquet", "--outcome", "smokes", "--covariates", "income,age")
    check_outlets(answer, invoke, *line, tolerance=1e-5)
    for argument, asked in (("weights", {"weights": "income"}), ("factors", {"factors": ["income"]})):
        check_refusal(argument, lambda asked=asked: reports.regress(["income", "age"], **asked))


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("covariates", {"covariates": []}),
        ("covariates", {"covariates": ["age", "age"]}),
        ("covariates", {"covariates": "uses"}),
        ("clusters", {"covariates": "age", "clusters": "uses"}),
        ("factors", {"covariates": "age", "factors": ["region"]}),
        ("reference", {"covariates": "age", "reference": "ever"}),
        ("ridge", {"covariates": "age", "ridge": -1.0}),
        ("level", {"covariates": "age", "level": 95}),
    ],
)
def test_errors_name_the_argument(survey, argument, asked):
    check_refusal(argument, lambda: survey.regress(**asked))


def test_rows_that_lack_something_and_reports_without_rows_are_refused(survey):
    with pytest.raises(DataError) as caught:
        survey.regress("income")
    assert (caught.value.column, caught.value.row) == ("income", 5)
    with pytest.raises(ArgumentError):
        rrjax.Reports.of_counts([600, 400], 1.0).regress("age")
