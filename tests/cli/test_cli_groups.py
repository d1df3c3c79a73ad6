"""`rrjax estimate` of files that were randomized differently, beside the truth."""

from pathlib import Path

import numpy as np
import pytest

from rrjax import io

TRUE = {"red": 3000, "green": 1500, "blue": 500}
NUMBER = sum(TRUE.values())
DICE = ["--mechanism", "forced-response", "--parameter", "forced=1/3,1/3,1/3", "--parameter"]
WAYS = {"low": ["--epsilon", "1"], "dice": [*DICE, "truth=0.5"], "bits": ["--epsilon", "2", "--mechanism", "oue"]}


@pytest.fixture
def collected(invoke):
    Path("colors.txt").write_text("\n".join(TRUE) + "\n")
    io.write_table("true.csv", {"color": np.repeat(list(TRUE), list(TRUE.values()))})
    for seed, (name, flags) in enumerate(WAYS.items()):
        line = ["true.csv", "--column", "color", "--domain", "colors.txt", "--seed", str(seed)]
        invoke.done("randomize", *line, *flags, "--out", f"{name}.parquet")
    return invoke


@pytest.mark.full  # estimates of three mechanisms and of all together
def test_files_that_were_randomized_differently_are_estimated_together(collected):
    files = [f"{name}.parquet" for name in WAYS]
    found = collected.json("estimate", *files, "--out", "all.csv")
    assert [each["num_reports"] for each in found["groups"]] == [NUMBER] * 3
    assert found["groups"][1]["mechanism"] == "forced-response"
    assert found["gap"] < 1e-4
    for row in found["top"]:
        truth = TRUE[row["label"]] / NUMBER
        assert abs(row["all_groups"] - truth) < 4 * row["all_groups_standard_error"]
        assert abs(row["likeliest"] - row["all_groups"]) < row["all_groups_standard_error"]
    assert max(row["all_groups_standard_error"] for row in found["top"]) < 0.012
    with open("all.csv") as file:
        assert file.readline().strip().split(",")[:2] == ["label", "group_1"]
    out = collected.done("estimate", *files)
    assert "group 2 (dice.parquet)" in out


@pytest.mark.full  # two collections of 30 categories
def test_a_small_noisy_group_does_not_move_a_large_precise_one(invoke):
    shares = 1 / np.arange(1, 31) ** 2.0
    shares /= shares.sum()
    for name, number, epsilon in (("few", 500, "0.3"), ("many", 50_000, "4")):
        values = np.random.default_rng(number).choice(30, number, p=shares)
        io.write_table(f"{name}.csv", {"x": values})
        line = [f"{name}.csv", "--column", "x", "--domain", "0:29", "--epsilon", epsilon, "--seed", "1"]
        assert invoke("randomize", *line, "--out", f"{name}.parquet")[0] == 0
    found = invoke.json("estimate", "few.parquet", "many.parquet")
    for row in found["top"]:
        assert abs(row["all_groups"] - row["group_2"]) < row["all_groups_standard_error"]
        assert abs(row["all_groups"] - shares[int(row["label"])]) < 4 * row["all_groups_standard_error"]


@pytest.mark.full
def test_what_does_not_apply_to_groups_is_refused(collected):
    for flags in (("--counts", "n"), ("--epsilon", "1"), ("--estimator", "mle")):
        collected.refuses(flags[0], "estimate", "low.parquet", "dice.parquet", *flags)
    Path("other.txt").write_text("\n".join([*TRUE, "black"]) + "\n")
    line = ["true.csv", "--column", "color", "--domain", "other.txt", "--seed", "9", "--epsilon", "2"]
    assert collected("randomize", *line, "--out", "other.parquet")[0] == 0
    code, _, error = collected("estimate", "low.parquet", "other.parquet")
    assert code != 0
    assert "domains" in error
    assert collected.error.argument == "domain"
