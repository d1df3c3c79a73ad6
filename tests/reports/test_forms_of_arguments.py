"""What is given to a question, in all its forms; and what cannot be."""

import unicodedata

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")

from refusals import refused

import rrjax
from rrjax import reports as answers
from rrjax.data.errors import ArgumentError, DataError
from rrjax.reports.kind import NoSuchQuestion
from rrjax.reports.reports import levels_alike

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting


@pytest.fixture(scope="module")
def colours():
    return rrjax.Reports.of_counts([600, 250, 150], 2.0, ["red", "green", "blue"])


def values(answer):
    return answer.columns["value"].tolist()


@pytest.mark.full
def test_groups_and_quantiles_come_as_texts_lists_and_mappings(colours):
    one = colours.group("warm=red,green")
    assert values(one) == values(colours.group(["red", "green"])) == values(colours.group({"warm": ["red", "green"]}))
    assert values(colours.quantile(0.5, 0.9)) == values(colours.quantile([0.5, 0.9]))


@pytest.mark.full
def test_a_distribution_to_test_comes_in_all_forms_of_a_truth(colours):
    given = [0.5, 0.3, 0.2], [500, 300, 200], {"red": 50, "green": 30, "blue": 20}
    tests = [colours.test_fit(each, draws=99).outcomes for each in given]
    assert tests[0] == tests[1] == tests[2]


@pytest.mark.full
def test_a_series_is_taken_by_its_labels(colours):
    """Those of `value_counts` are in the order of the counts."""
    pandas = pytest.importorskip("pandas")
    counts = dict(zip(colours.labels.tolist(), colours.counts.tolist(), strict=True))
    answers = pandas.Series([*reversed(counts)]).repeat([*reversed(counts.values())])
    for made in (counts, answers.value_counts(), answers.astype("category").value_counts()):
        again = rrjax.Reports.of_counts(made, colours.epsilon, [*counts])
        assert again.counts.tolist() == colours.counts.tolist()
        with refused("counts"):
            rrjax.Reports.of_counts(made, 1.0)
        with refused("counts"):
            rrjax.Reports.of_counts(made, 1.0, [*counts][1:])
    truth = pandas.Series([3.0, 2.0, 1.0], index=[*reversed(counts)])
    for given in (truth, truth / 6, {**truth}, [1, 2, 3], pandas.Series([1, 2, 3]), pandas.Series([1, 2, 3]) / 6):
        found = colours.compare(given, estimators="inv_p").columns["truth"]
        np.testing.assert_allclose(found, [1 / 6, 1 / 3, 1 / 2])
    p_values = [colours.test_fit(given, draws=199).outcomes[0].p_value for given in (truth, [1, 2, 3])]
    assert p_values[0] == p_values[1]
    ages = rrjax.Reports.of_counts([5, 9, 7], 1.0, "1:3")
    for labels in ([3, 2, 1], [3.0, 2.0, 1.0], ["3", "2", "1"]):
        found = ages.compare(pandas.Series([3, 2, 1], index=labels), estimators="inv_p").columns["truth"]
        np.testing.assert_allclose(found, [1 / 6, 1 / 3, 1 / 2])
    with refused(error=DataError, value="red"):
        colours.compare(pandas.Series([1, 2, 3, 4], index=["red", "green", "blue", "red"]))


@pytest.mark.full
def test_sizes_of_a_population_come_by_level(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"answer": ["no", "yes"] * 300, "level": [1, 1, 2] * 200})
    reports = rrjax.read(frame, column="answer", epsilon=1.0, domain=["no", "yes"])
    sizes = {1: 1, 2: 3}
    for given in (sizes, {1.0: 1, "2": 3}, pandas.Series([3, 1], index=[2, 1])):
        assert reports.by("level", group="yes", population=given).columns["value"][-1] == pytest.approx(
            reports.by("level", group="yes", population=sizes).columns["value"][-1], abs=0
        )
    file = tmp_path / "sizes.csv"
    for one, other, odd in (("1.000", "950", True), ("45.125", "54.875", False), ("1.000", "9.5", False)):
        file.write_text(f"level,size\n1,{one}\n2,{other}\n")  # a thousand, in some countries
        if odd:
            with refused(error=DataError, file=str(file), column="size"):
                reports.by("level", group="yes", population=file)
        else:
            reports.by("level", group="yes", population=file)
    for odd in ([1, 3], {1: "x", 2: 3}, frame):
        with refused("population"):
            reports.by("level", group="yes", population=odd)
    for argument in ("by", "weights"):
        with refused(argument):
            reports.statements(group="yes", **{argument: ["level"]})


@pytest.mark.full
@pytest.mark.parametrize("forced", ["yes:1/4,no:3/4", {"yes": 0.25, "no": 0.75}, {"no": "3/4", "yes": "1/4"}])
def test_numbers_of_a_design_may_name_their_answers(tmp_path, forced):
    (tmp_path / "a.csv").write_text("a\n" + "yes\n" * 40 + "no\n" * 60)

    def shares(forced):
        given = {"mechanism": "forced-response", "parameters": {"truth": "2/3", "forced": forced}}
        return rrjax.read(tmp_path / "a.csv", domain=["no", "yes"], **given).shares().columns["likeliest"]

    np.testing.assert_array_equal(shares(forced), shares([0.75, 0.25]))
    with pytest.raises(ArgumentError):
        shares({"yes": 0.25, "maybe": 0.75})


@pytest.mark.long
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


@pytest.mark.full  # two kinds of reports
def test_levels_that_look_alike_are_one_wherever_they_are_named(tmp_path):
    """As within a column: 1 is 1.0, and é is é in both forms of Unicode."""
    (tmp_path / "two.csv").write_text("said,die\n" + "0,1\n1,2.0\n0,1.0\n1,2\n1,1\n0,2\n" * 50)
    given = {"column": "said", "domain": "0:1", "mechanism": "cheating-detection"}
    given["parameters"] = {"forced": [0.25, 0.75]}
    reports = rrjax.read(tmp_path / "two.csv", **given, sample="die=1,2")
    assert reports.counts.tolist() == [[50, 100], [100, 50]]
    assert np.bincount(reports.samples).tolist() == [150, 150]
    assert rrjax.read(tmp_path / "two.csv", **given, sample="die=1.0,2.0").counts.tolist() == reports.counts.tolist()

    cafes = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")]
    (tmp_path / "places.csv").write_text("a,place\n" + f"no,{cafes[0]}\nyes,{cafes[0]}\nno,bar\n" * 20)
    answers = rrjax.read(tmp_path / "places.csv", column="a", epsilon=1.0, domain=["no", "yes"])
    values = [answers.by("place", group="yes", population={name: 1, "bar": 3}).columns["value"][-1] for name in cafes]
    assert values[0] == values[1]
    with refused("population"):
        answers.by("place", group="yes", population={**dict.fromkeys(cafes, 1), "bar": 3})


LOOKING_ALIKE = [("0.1", "0.10"), ("1e-07", "0.0000001"), ("2026-01-01", "2026-01-01 00:00:00"), ("Bar", "bar")]


@pytest.mark.parametrize("pair", LOOKING_ALIKE)
@pytest.mark.full
def test_clusters_and_strata_that_may_be_one_have_a_warning(pair):
    """As of files with columns of several types: else their standard errors are too small in silence."""
    rows = {"a": ["no", "yes"] * 300, "place": [*pair, "other"] * 200}
    answers = rrjax.read(pytest.importorskip("pandas").DataFrame(rows), column="a", epsilon=1.0, domain=["no", "yes"])
    for columns in ({"clusters": "place"}, {"strata": "place"}):
        said = [each for each in answers.statements(group="yes", **columns).warnings if repr(pair[0]) in each]
        assert [repr(pair[1]) in each for each in said] == [True]
    rows["place"] = ["1.5", "2.5", "other"] * 200
    answers = rrjax.read(pytest.importorskip("pandas").DataFrame(rows), column="a", epsilon=1.0, domain=["no", "yes"])
    assert not [each for each in answers.statements(group="yes", clusters="place").warnings if "1.5" in each]


def test_codes_and_long_numbers_are_told_apart():
    for labels in (
        ["1e4567890123", "1e9999999", "0e99999999999999999999", "a3", ""],
        ["9" * 28 + "1", "9" * 28 + "2"],
        ["1e-999", "1e-998", "0"],
        ["9" * 5000, "inf", "nan", "1_0", "10"],
        ["2024-1-13", "2024-11-3", "8:00", "8:01", "8:00:01", "1-12", "11-2"],
    ):
        assert levels_alike("code", labels) == []
    numbers = ("1e3", "1000.0"), ("-.50", "-0.5"), ("1E+2", "100"), ("9" * 5000, "9" * 5000 + ".0")
    for pair in (*numbers, ("2024-01-03", "2024-1-3"), ("3.1.2024", "03.01.2024"), ("8:00", "08:00:00")):
        assert len(levels_alike("code", pair)) == 1


def test_a_sample_is_not_both_samples(tmp_path):
    (tmp_path / "two.csv").write_text("said,die\n" + "0,1\n1,2\n" * 50)
    given = {"column": "said", "domain": "0:1", "mechanism": "cheating-detection"}
    with refused("sample", value="die=1,1.0"):
        rrjax.read(tmp_path / "two.csv", **given, parameters={"forced": [0.25, 0.75]}, sample="die=1,1.0")
