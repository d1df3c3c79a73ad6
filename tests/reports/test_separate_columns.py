"""Columns of the same users that were randomized separately: what a notebook and the command line say of them."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal

import rrjax
from rrjax import io
from rrjax.data.errors import ArgumentError
from rrjax.reports.kind import NoSuchQuestion

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting


@pytest.fixture
def survey(invoke):
    """900 users: smoking and drinking, which go together, and a coin; `sampled` has two of them of each user."""
    rng = np.random.default_rng(1)
    smokes = rng.integers(0, 2, 900)
    drinks = np.where(rng.random(900) < 0.7, smokes, rng.integers(0, 3, 900))
    io.write_table("v.csv", {"smokes": smokes, "drinks": drinks, "coin": rng.integers(0, 2, 900)})
    line = ["randomize", "v.csv", "--apart", "--epsilon", 9]
    for name, top in (("smokes", 1), ("drinks", 2), ("coin", 1)):
        line += ["--column", name, "--domain", f"0:{top}"]
    for name, more in (
        ("all", ()),
        ("sampled", ("--columns-per-user", 2, "--seed", 1)),
        ("single", ("--columns-per-user", 1)),
    ):
        assert invoke(*line, *more, "--out", f"{name}.parquet")[0] == 0
    return invoke


@pytest.mark.long
def test_a_file_of_several_columns_is_one_kind_of_reports(survey):
    reports = rrjax.read("all.parquet")
    assert isinstance(reports, rrjax.reports.SeparateColumns)
    assert reports.names == ("smokes", "drinks", "coin")
    assert (reports.num_users, reports.num_complete, reports.mechanism.shape) == (900, 900, (2, 3, 2))
    assert reports.epsilon == pytest.approx(9)
    one = rrjax.read("all.parquet", column="drinks")
    assert isinstance(one, rrjax.Reports)
    assert one.counts.tolist() == reports.column("drinks").counts.tolist()
    assert reports.warnings == []
    sampled = rrjax.read("sampled.parquet")
    assert (sampled.num_users, sampled.num_complete, sampled.sampled) == (900, 0, 2)
    assert sampled.epsilon == pytest.approx(9)
    assert len(sampled.warnings) == 1  # of the simulation, once


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "ask"),
    [
        (("--joint", "smokes,drinks", "--level", 0.9), lambda reports: reports.joint(["smokes", "drinks"], 0.9)),
        (("--joint", "coin,drinks,smokes"), lambda reports: reports.joint(["coin", "drinks", "smokes"])),
        (("--all-pairs",), lambda reports: reports.pairs()),
        (("--tree",), lambda reports: reports.tree()),
        (("--tree", "--joint", "coin,smokes"), lambda reports: reports.tree(["coin", "smokes"])),
    ],
    ids=lambda given: "_".join(map(str, given)) if isinstance(given, tuple) else "",
)
def test_the_command_line_says_what_the_answer_says(survey, flags, ask):
    answer = ask(rrjax.read("all.parquet"))
    check_outlets(answer, survey, "estimate", "all.parquet", *flags, "--top", 10)


@pytest.mark.long
def test_answers_are_shown_and_are_tables(survey):
    reports = rrjax.read("all.parquet")
    joint, pairs, tree = reports.joint(["smokes", "drinks"]), reports.pairs(), reports.tree()
    table = joint.to_xarray()
    assert table.closest.dims == ("smokes", "drinks")
    assert table.likeliest.shape == (2, 3)
    assert float(table.closest.sel(smokes=1, drinks=0)) == joint.columns["closest"][3]
    first = max(pairs.pairs, key=lambda pair: pair["cramers_v"])
    assert pairs.pairs[0] is first
    for name in ("columns", "cramers_v", "mutual_information_upper", "p_value"):
        assert first[name] == joint.association[name]
    assert first["p_value"] == 1e-4  # the smallest that the simulation can give
    assert pairs.cells().rows[0][-2].startswith("≤")
    assert not pairs.cells().rows[-1][-2].startswith("≤")
    assert pairs.significant[0] == first
    assert tree.edges[0]["columns"] == ["smokes", "drinks"]
    assert tree.to_polars()["share"].sum() == pytest.approx(2)
    assert tree.tree.table([0, 2]).sum() == pytest.approx(1)  # in the precision at hand
    for answer in (joint, pairs, tree):
        assert len(repr(answer).splitlines()) < 30
        assert "<table>" in answer._repr_html_()
        assert set(answer.words) >= {"Cramér's V"}
    assert len(reports.joint().cells(5).rows) == 5


@pytest.mark.long
def test_answers_are_drawn(survey):
    pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")
    reports = rrjax.read("all.parquet")
    for answer in (reports.pairs(), reports.tree(), reports.joint(["smokes", "drinks"])):
        assert answer.figure().axes
    with pytest.raises(ArgumentError) as caught:
        reports.joint().figure()
    assert caught.value.argument == "plot"
    code, _, error = survey("estimate", "all.parquet", "--tree", "--plot", "tree.png")
    assert code == 0, error
    assert Path("tree.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_a_column_that_contradicts_its_mechanism_is_warned_of(survey):
    import duckdb

    connection = duckdb.connect()
    ((key, text),) = connection.execute(
        "SELECT decode(key), decode(value) FROM parquet_kv_metadata('all.parquet') WHERE decode(key) LIKE 'rrjax%'"
    ).fetchall()
    query = "SELECT smokes, 0 AS drinks, coin FROM 'all.parquet'"
    connection.execute(f"COPY ({query}) TO 'odd.parquet' (FORMAT parquet, KV_METADATA {{{key}: ?}})", [text])
    warnings = rrjax.read("odd.parquet").joint(["drinks", "coin"]).warnings
    assert [each.startswith("drinks: ") for each in warnings] == [True]


@pytest.mark.parametrize(
    ("argument", "ask"),
    [
        ("columns", lambda: rrjax.read("all.parquet").joint(["smokes"])),
        ("columns", lambda: rrjax.read("all.parquet").joint(["smokes", "job"])),
        ("columns", lambda: rrjax.read("all.parquet").tree(["smokes", "smokes"])),
        ("columns", lambda: rrjax.read("sampled.parquet").joint()),
        ("columns", lambda: rrjax.read("single.parquet").pairs()),
        ("level", lambda: rrjax.read("all.parquet").joint(level=95)),
        ("level", lambda: rrjax.read("all.parquet").tree(level=0)),
        ("epsilon", lambda: rrjax.read("all.parquet", epsilon=1.0)),
        ("domain", lambda: rrjax.read("all.parquet", domain=["a", "b"])),
        ("column", lambda: rrjax.read("all.parquet").column("job")),
    ],
)
def test_errors_name_the_argument(survey, argument, ask):
    check_refusal(argument, ask)


def test_shares_are_those_of_one_column(survey):
    with pytest.raises(NoSuchQuestion):
        rrjax.read("all.parquet").shares()
