"""Reports of numbers, in a notebook and at the command line."""

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal  # noqa: E402

import rrjax  # noqa: E402
from rrjax import io  # noqa: E402
from rrjax.data.errors import ArgumentError, Contradiction, DataError  # noqa: E402
from rrjax.reports.kind import NoSuchQuestion  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
WAVE = ("--mechanism", "square-wave", "--range", "0,100", "--bins", "10")
ROUNDED = {"tolerance": 1e-6, "absolute": 1e-9, "skipped": ("certificate",), "spelt": ("warnings",)}
"""One warning is about a seed, which is a flag or an argument."""
INTEGERS = ("--mechanism", "geometric", "--domain", "0:3")


@pytest.fixture
def randomized(tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    ages = 100 * np.random.default_rng(0).beta(2, 3, 600)
    polars.DataFrame({"age": ages.round(1), "tens": ages.astype(int) // 25}).write_csv("v.csv")

    def made(*flags):
        column = "tens" if "geometric" in flags else "age"
        line = ("randomize", "v.csv", "--column", column, "--epsilon", "2", "--seed", "1", "--out", "r.parquet")
        code, _, error = invoke(*line, *flags)
        assert code == 0, error
        return rrjax.read("r.parquet")

    return made


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [WAVE, INTEGERS])
def test_the_command_line_says_what_the_answer_says(randomized, invoke, mechanism):
    numbers = randomized(*mechanism)
    check_outlets(numbers.statements(), invoke, "estimate", "r.parquet", **ROUNDED)
    asked = ("--quantile", "0.5", "--mean", "--level", "0.8")
    check_outlets(numbers.quantile(0.5, mean=True, level=0.8), invoke, "estimate", "r.parquet", *asked, **ROUNDED)
    column = "age" if mechanism == WAVE else "tens"
    polars.read_csv("v.csv").select(column).write_csv("truth.csv")
    found = numbers.compare("truth.csv")
    check_outlets(found, invoke, "compare", "r.parquet", "--truth", "truth.csv", **ROUNDED)
    width = 10 if column == "age" else 1
    counts = np.bincount(
        polars.read_csv("v.csv")[column].to_numpy().astype(int) // width, minlength=10 if width > 1 else 4
    )
    assert numbers.compare(counts).to_dict() == found.to_dict()
    assert "errors" not in numbers.compare().to_dict()["estimators"][0]


@pytest.mark.long
def test_questions_and_what_they_refuse(randomized):
    numbers = randomized(*INTEGERS)
    assert [each.name for each in numbers.mean().statements] == ["mean"]
    assert [each.probability for each in numbers.quantile(0.5, 0.9).statements] == [0.5, 0.9]
    assert len(numbers.quantile().statements) == 5
    assert len(numbers.statements().statements) == 6
    assert len(repr(numbers.statements()).splitlines()) < 20
    assert "<table>" in numbers.compare()._repr_html_()
    for argument, ask in (
        ("level", lambda: numbers.mean(95)),
        ("quantile", lambda: numbers.quantile(50)),
        ("truth", lambda: numbers.compare([1, 2])),
        ("truth", lambda: numbers.compare("r.parquet")),
        ("counts", lambda: rrjax.read("r.parquet", counts="n")),
        ("mechanism", lambda: rrjax.read("r.parquet", mechanism="kuk", parameters={"have": 0.8, "lack": 0.2})),
        ("missing", lambda: rrjax.read("r.parquet", missing=["NA"])),
    ):
        check_refusal(argument, ask)
    with pytest.raises(Contradiction):
        rrjax.read("r.parquet", epsilon=3.0)
    with pytest.raises(NoSuchQuestion):
        numbers.shares()


@pytest.mark.long
def test_reports_that_no_distribution_explains_say_so(randomized):
    metadata = randomized(*WAVE).counted.metadata
    io.write_reports("all.parquet", np.full(5000, 11, np.int32), metadata)  # each in the last place
    numbers = rrjax.read("all.parquet")
    assert numbers.contradicted
    statements = numbers.statements()
    assert not statements.facts["feasible"]
    assert np.isnan(statements.columns["lower"]).all()
    for answer in (statements, numbers.compare()):
        assert len(answer.warnings) == len(answer.to_dict()["warnings"]) == len(numbers.warnings) + 1


@pytest.mark.long
def test_the_figure_of_numbers(randomized):
    pytest.importorskip("matplotlib")
    numbers = randomized(*WAVE)
    assert len(numbers.mean().figure().axes) == 2
    with pytest.raises(ArgumentError):
        numbers.compare().figure()


def test_a_file_that_holds_no_numbers(tmp_path):
    (tmp_path / "r.csv").write_text("age\n1\n2\n")
    with pytest.raises(DataError):
        io.read_number_reports(str(tmp_path / "r.csv"))
