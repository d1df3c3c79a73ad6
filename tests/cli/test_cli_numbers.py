"""The command line on numbers: from values to quantiles and their limits, and refusals."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from refusals import blames

from rrjax import io
from rrjax.data.errors import DataError

pytestmark = pytest.mark.once
WAVE = ("--mechanism", "square-wave", "--range", "0,100", "--bins", 10)


@pytest.fixture
def ages(invoke):
    """Files of 5,000 ages, one with decimals and one with integers, two without a value."""
    values = np.round(100 * np.random.default_rng(0).beta(2, 3, 5000), 1)
    Path("ages.csv").write_text("age,region\n" + "".join(f"{value},north\n" for value in values) + ",south\n,south\n")
    Path("integers.csv").write_text("age\n" + "".join(f"{int(value) // 5}\n" for value in values))
    return invoke


def randomized(invoke, *flags, file="ages.csv"):
    return invoke("randomize", file, "--column", "age", "--epsilon", 2, "--out", "r.parquet", "--force", *flags)


@pytest.mark.long
def test_from_numbers_to_quantiles(ages):
    code, out, error = randomized(ages, *WAVE, "--keep", "region", "--json")
    assert code == 0, error
    made = json.loads(out)
    assert (made["num_reports"], made["num_missing"], made["range"], made["p"]) == (5000, 2, [0, 100], None)
    assert made["parameters"] == {"num_categories": 10, "epsilon": 2.0, "half_width": 1}
    assert made["effective_epsilon"] <= 2
    metadata = io.read_metadata("r.parquet")
    assert (metadata.range, metadata.domain.listed[1]) == ((0, 100), "10 to 20")
    found = ages.json("estimate", "r.parquet", "--out", "all.csv")
    assert found["feasible"]
    assert found["num_outside_band"] == 0
    assert [each["probability"] for each in found["quantiles"]] == [0.1, 0.25, 0.5, 0.75, 0.9]
    values = np.genfromtxt("ages.csv", delimiter=",", skip_header=1, usecols=0)
    values = values[~np.isnan(values)]
    for each in (*found["quantiles"], found["mean"]):
        truth = values.mean() if "probability" not in each else np.quantile(values, each["probability"])
        assert each["lower"] <= truth <= each["upper"]
        assert abs(each["estimate"] - truth) < 5
    with open("all.csv") as file:
        assert file.readline().strip() == "from,to,share,cdf,lower,upper"
    out = ages.done("estimate", "r.parquet", "--quantile", 0.5, "--level", 0.8)
    assert "median" in out
    assert "80\N{NO-BREAK SPACE}% limits" in out
    assert "mean" not in out


@pytest.mark.parametrize(
    ("flags", "flag"),
    [
        (("--mechanism", "square-wave"), "--range"),
        (("--mechanism", "square-wave", "--range", "100,0"), "--range"),
        (("--mechanism", "square-wave", "--range", "0"), "--range"),
        (("--mechanism", "square-wave", "--range", "0,inf"), "--range"),
        (("--mechanism", "square-wave", "--range=-1e308,1e308"), "--range"),
        (("--mechanism", "square-wave", "--range", "0,1", "--bins", "1"), "--bins"),
        (("--mechanism", "square-wave", "--range", "0,1", "--bins", "5000"), "--bins"),
        (("--mechanism", "square-wave", "--range", "1,1.0000000000000002", "--bins", "9"), "--bins"),
        (("--mechanism", "square-wave", "--range", "0,1", "--domain", "0:9"), "--domain"),
        (("--mechanism", "square-wave", "--range", "0,1", "--column", "region"), "--column"),
        (("--mechanism", "geometric"), "--domain"),
        (("--mechanism", "geometric", "--domain", "0:5000"), "--domain"),
        (("--mechanism", "geometric", "--domain", "0:9", "--bins", "3"), "--bins"),
        (("--range", "0,1"), "--range"),
    ],
)
def test_flags_that_make_no_numbers(flags, flag, ages):
    assert randomized(ages, *flags)[0] == 2
    assert blames(ages.error, flag)


def test_values_outside_the_range_are_named_by_their_row_and_not_shown(ages):
    with open("ages.csv", "a") as file:
        file.write("137.25,north\nold,north\n")
    code, _, error = randomized(ages, *WAVE)
    assert code == 3
    assert isinstance(ages.error, DataError)
    assert (ages.error.row, ages.error.column) == (5003, "age")
    assert "137" not in error
    assert "137.25" in randomized(ages, *WAVE, "--show-values")[2]
    Path("none.csv").write_text("age\n\n\n")
    assert randomized(ages, *WAVE, file="none.csv")[0] == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (("estimate", "r.parquet", "--by", "region"), "--by"),
        (("estimate", "r.parquet", "--group", "a=1"), "--group"),
        (("estimate", "r.parquet", "--ordered"), "--ordered"),
        (("estimate", "r.parquet", "--estimator", "inv"), "--estimator"),
        (("estimate", "r.parquet", "--at-once"), "--at-once"),
        (("estimate", "r.parquet", "--fdr", "0.1"), "--fdr"),
        (("estimate", "r.parquet", "--top", "3"), "--top"),
        (("estimate", "r.parquet", "--epsilon", "1"), "--epsilon"),
        (("estimate", "r.parquet", "--domain", "0:9"), "--domain"),
        (("estimate", "r.parquet", "--missing", "x"), "--missing"),
        (("compare", "r.parquet", "--plot", "x.png"), "--plot"),
        (("compare", "r.parquet", "--truth", "r.parquet"), "--truth"),
        (("test", "fit", "r.parquet"), "REPORTS"),
        (("report", "r.parquet", "--out", "r.html"), "REPORTS"),
        (("regress", "r.parquet", "--outcome", "age", "--covariates", "region"), "REPORTS"),
    ],
)
def test_what_reports_of_numbers_do_not_take(command, flag, ages):
    assert randomized(ages, *WAVE, "--keep", "region", "--seed", "1")[0] == 0
    ages.refuses(flag, *command)


@pytest.mark.long
def test_files_of_other_mechanisms_and_reports_that_theirs_cannot_make(ages):
    assert randomized(ages, file="integers.csv")[0] == 0
    with pytest.raises(DataError, match="randomized-response"):
        io.read_number_reports("r.parquet")
    assert randomized(ages, *WAVE, "--seed", "1")[0] == 0
    with pytest.raises(DataError, match="no tally"):
        io.read_tally("r.parquet")
    metadata = io.read_metadata("r.parquet")
    io.write_reports("wrong.parquet", np.full(5, 12, np.int32), metadata)
    assert ages("estimate", "wrong.parquet")[0] == 3
    assert (ages.error.value, ages.error.column) == (12, "age")


@pytest.mark.full
def test_numbers_of_any_size_are_readable(invoke):
    for high in ("1e300", "1e-300"):
        io.write_table("v.csv", {"x": np.full(9, float(high))})
        line = ("randomize", "v.csv", "--mechanism", "square-wave", f"--range=0,{high}", "--epsilon", 1, "--seed", 1)
        assert invoke(*line, "--out", "r.parquet", "--force")[0] == 0
        out = invoke.done("estimate", "r.parquet")
        assert not re.search(r"\d{20}", out)
