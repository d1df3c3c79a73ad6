"""What people try first in a notebook: it works, or an error of the library says what to do."""

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
pytest.importorskip("polars", reason="frames need rrjax[frames]")

import rrjax
from rrjax import reports as answers
from rrjax.data.errors import ArgumentError
from rrjax.reports.kind import NoSuchQuestion

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting


@pytest.fixture(scope="module")
def colours():
    return rrjax.Reports.of_counts([600, 250, 150], 2.0, ["red", "green", "blue"])


def values(answer):
    return answer.columns["value"].tolist()


@pytest.mark.long
def test_groups_and_quantiles_come_as_texts_lists_and_mappings(colours):
    one = colours.group("warm=red,green")
    assert values(one) == values(colours.group(["red", "green"])) == values(colours.group({"warm": ["red", "green"]}))
    assert values(colours.quantile(0.5, 0.9)) == values(colours.quantile([0.5, 0.9]))


@pytest.mark.long
def test_a_distribution_to_test_comes_in_all_forms_of_a_truth(colours):
    given = [0.5, 0.3, 0.2], [500, 300, 200], {"red": 50, "green": 30, "blue": 20}
    tests = [colours.test_fit(each, draws=99).outcomes for each in given]
    assert tests[0] == tests[1] == tests[2]


def test_an_answer_does_not_depend_on_the_questions_before():
    first, second = (rrjax.Reports.of_counts([400, 300, 300], 1.0) for _ in range(2))
    assert not second.contradicted
    assert first.test_fit(draws=19).to_dict() == second.test_fit(draws=19).to_dict()


@pytest.mark.long
@pytest.mark.parametrize("forced", ["yes:1/4,no:3/4", {"yes": 0.25, "no": 0.75}, {"no": "3/4", "yes": "1/4"}])
def test_numbers_of_a_design_may_name_their_answers(tmp_path, forced):
    (tmp_path / "a.csv").write_text("a\n" + "yes\n" * 40 + "no\n" * 60)

    def shares(forced):
        given = {"mechanism": "forced-response", "parameters": {"truth": "2/3", "forced": forced}}
        return rrjax.read(tmp_path / "a.csv", domain=["no", "yes"], **given).shares().columns["likeliest"]

    np.testing.assert_array_equal(shares(forced), shares([0.75, 0.25]))
    with pytest.raises(ArgumentError):
        shares({"yes": 0.25, "maybe": 0.75})


@pytest.mark.parametrize(
    "ask",
    [
        lambda one: one.shares(level="a"),
        lambda one: one.shares(level=None),
        lambda one: one.shares(level=True),
        lambda one: one.group(3),
        lambda one: one.test_fit({"pink": 1}),
        lambda one: one.test_fit(draws=19).figure(),
        lambda one: answers.test_equal(one),
        lambda one: answers.test_equal(["a.parquet", "b.parquet"]),
        lambda one: answers.test_equal([one, 3]),
        lambda one: answers.test_independence(3),
        lambda one: answers.test_independence(one),
        lambda one: rrjax.read(None),
        lambda one: rrjax.read([1, 2, 0]),
        lambda one: rrjax.read({"a": [1]}),
        lambda one: rrjax.read(np.arange(3)),
        lambda one: rrjax.read("a.csv", mechanism="randomized-response"),
        lambda one: rrjax.read("a.csv", mechanism=rrjax.mechanisms.OptimizedUnaryEncoding(2, epsilon=1.0)),
        lambda one: rrjax.read("a.csv", epsilon=1.0, sample="q=A,B"),
        lambda one: rrjax.read("a.csv", mechanism="cheating-detection", parameters={"forced": [0.2, 0.7]}),
    ],
)
def test_what_cannot_be_is_an_error_of_an_argument(colours, ask):
    with pytest.raises(ArgumentError) as caught:
        ask(colours)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("question", ["tree", "joint", "pairs"])
def test_a_question_of_another_kind_names_those_that_can_be_asked(colours, question):
    with pytest.raises(NoSuchQuestion, match="shares, mean"):
        getattr(colours, question)


@pytest.mark.long
def test_columns_that_were_randomized_separately(tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    rows = ["a,b", *(f"{'yes' if place % 3 else 'no'},{place % 4}" for place in range(400))]
    (tmp_path / "v.csv").write_text("\n".join(rows) + "\n")
    made = ("randomize", "v.csv", "--apart", "--column", "a", "--column", "b", "--epsilon", "4", "--seed", "1")
    assert invoke(*made, "--out", "r.parquet")[0] == 0
    found = rrjax.read("r.parquet")
    assert "simulation" in repr(found)
    joint, named = found.joint("a,b"), found.joint(["a", "b"])
    assert joint.to_dict() == named.to_dict()
    assert joint.columns["simulated"].all()
    assert found.tree().columns["simulated"].all()
    test = answers.test_independence(found, ["a", "b"], draws=99)
    assert not [warning for warning in test.warnings if "domains=" in warning]
    with pytest.raises(ArgumentError):
        answers.test_independence(found, ["a", "b"], [["no", "yes"], ["0", "1"]], draws=99)
    with pytest.raises(ArgumentError):
        found.pairs(level=3)
