"""Numbers meet by their labels, never by their places: series, groups, orders of domains, levels in two spellings."""

import datetime
from functools import partial

import numpy as np
import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
pandas = pytest.importorskip("pandas", reason="frames need rrjax[frames]")

from refusals import refused  # noqa: E402

import rrjax  # noqa: E402
from rrjax.data.errors import ArgumentError, DataError  # noqa: E402
from rrjax.reports import Groups, test_equal, test_trend  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
test_equal.__test__ = test_trend.__test__ = False
LABELS = ["red", "green", "blue"]


@pytest.fixture(scope="module")
def colours():
    return rrjax.Reports.of_counts([600, 250, 150], 2.0, LABELS)


def true_shares(reports, truth):
    return reports.compare(truth, estimators=["inv"]).columns["truth"].tolist()


@pytest.mark.long
def test_an_array_of_xarray_is_taken_by_its_labels(colours):
    xarray = pytest.importorskip("xarray")
    for coords in ({"label": LABELS[::-1]}, {"colour": ("label", LABELS[::-1])}):
        truth = xarray.DataArray([0.2, 0.3, 0.5], dims="label", coords=coords)
        assert true_shares(colours, truth) == [0.5, 0.3, 0.2]
    assert true_shares(colours, xarray.DataArray([0.2, 0.3, 0.5], dims="label")) == [0.2, 0.3, 0.5]
    counts = xarray.DataArray([150, 250, 600], dims="label", coords={"label": LABELS[::-1]})
    assert rrjax.Reports.of_counts(counts, 2.0, LABELS).counts.tolist() == [600, 250, 150]
    assert rrjax.Reports.of_counts([1, 2, 3], 2.0, counts.label).labels.tolist() == LABELS[::-1]
    own = rrjax.Reports.of_counts([150, 250, 600], 2.0, LABELS[::-1]).shares().to_xarray()["closest"]
    np.testing.assert_allclose(true_shares(colours, own), colours.shares().columns["closest"])


def test_a_numbering_from_zero_is_labels_where_the_domain_has_them():
    numbered = pandas.Series([5, 9, 7])
    for domain, expected in (("0:2", [5, 9, 7]), ([2, 1, 0], [7, 9, 5]), (list("abc"), [5, 9, 7]), ("1:3", [5, 9, 7])):
        assert rrjax.Reports.of_counts(numbered, 1.0, domain).counts.tolist() == expected


@pytest.mark.long
def test_a_data_frame_is_no_series_and_no_domain(colours):
    frame = pandas.DataFrame({"count": [3, 2, 1]}, index=LABELS)
    for ask in (colours.compare, colours.test_fit, lambda given: rrjax.Reports.of_counts(given, 1.0, LABELS)):
        with pytest.raises(ArgumentError):
            ask(frame)
    with pytest.raises(DataError):
        rrjax.Reports.of_counts([1, 2], 1.0, pandas.DataFrame({"label": ["a", "b"], "people": [1, 2]}))


def test_groups_have_the_same_categories_in_the_same_order(colours):
    other = rrjax.Reports.of_counts([150, 250, 600], 1.0, LABELS[::-1])
    with refused("domain"):
        Groups({1: colours, 2: other})
    spelled = [rrjax.Reports.of_counts([60, 40], epsilon, domain) for epsilon, domain in ((1.0, "0:1"), (2.0, "0,1"))]
    assert Groups(dict(enumerate(spelled))).num_reports == 200


def test_a_frame_is_not_added_to_itself():
    frame = pandas.DataFrame({"v": LABELS * 50})
    one, again, copy = (rrjax.read(each, epsilon=1.0, domain=LABELS) for each in (frame, frame, frame.copy()))
    with pytest.raises(ArgumentError):
        one + again
    assert (one + copy).num_reports == 300


@pytest.mark.long
@pytest.mark.parametrize("of_file", [False, True])
def test_numbers_in_the_data_are_in_their_order(tmp_path, of_file):
    frame = pandas.DataFrame({"v": ["0.5"] * 500 + ["2.5"] * 300 + ["10.5"] * 150 + ["-1e1"] * 50})
    frame.to_csv(tmp_path / "v.csv", index=False)
    reports = rrjax.read(tmp_path / "v.csv" if of_file else frame, column="v", epsilon=9.0)
    assert reports.labels.tolist() == ["-1e1", "0.5", "2.5", "10.5"]
    found = reports.quantile(0.5, 0.9)
    assert found.columns["value"].tolist() == ["0.5", "10.5"]
    assert found.warnings == reports.warnings


@pytest.mark.full
def test_an_order_that_may_not_be_meant_is_said(colours):
    made = partial(rrjax.Reports.of_counts, [500, 300, 200], 2.0)
    for domain in (["10", "5", "7.5"], ["1", "10", "2"], ["3", "2", "1"]):
        assert len(made(domain).quantile(0.5).warnings) == len(made(domain).warnings) + 1
    for reports in (colours, made("1:3"), made("-1,0.5,2")):
        assert reports.quantile(0.5).warnings == reports.warnings
    odd = made(["1", "10", "2"])
    for answer in (odd.shares(ordered=True), odd.compare(estimators="ordered_bayes")):
        assert len(answer.warnings) == len(odd.warnings) + 1
    for answer in (odd.mean(), odd.shares(), odd.compare(estimators="inv")):
        assert answer.warnings == odd.warnings
    of_data = rrjax.read(pandas.DataFrame({"v": ["low", "mid", "high"] * 90}), epsilon=2.0)
    assert len(of_data.quantile(0.5).warnings) == len(of_data.warnings) + 1


@pytest.mark.full
def test_a_number_in_two_spellings_is_one_level(tmp_path):
    """pandas writes 1.0 in the file of which a value is missing; whose clusters were then others than 1."""
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame({"v": generator.choice(["a", "b"], 600), "g": generator.integers(1, 13, 600)})
    first, second = frame[:300].astype({"g": float}), frame[300:]
    found = []
    for kind in ("csv", "parquet"):
        paths = [tmp_path / f"{place}.{kind}" for place in (1, 2)]
        for part, path in zip((first, second), paths, strict=True):
            part.to_csv(path, index=False) if kind == "csv" else part.to_parquet(path, index=False)
        reports = rrjax.read(paths, column="v", epsilon=2.0, domain="a,b")
        asked = [reports.group("a", clusters="g"), reports.group("a", strata="g"), reports.by("g", group="a")]
        found.append([each.columns[name].tolist() for each in asked for name in ("of", "value", "standard_error")])
    assert found[0] == found[1]
    forms = pandas.DataFrame({"v": ["a", "b"] * 100, "g": ["\u00e9"] * 100 + ["e\u0301"] * 50 + ["a"] * 50})
    levels = rrjax.read(forms, column="v", epsilon=2.0, domain="a,b").by("g", group="a").columns["of"]
    assert levels.tolist()[:3] == ["all", "a", "\u00e9"]


def test_categories_that_look_alike_are_said(tmp_path):
    def warned(values, domain=None):
        return len(rrjax.read(pandas.DataFrame({"v": values * 100}), epsilon=1.0, domain=domain).warnings)

    told = warned(["yes", "no"])
    assert [warned(each) for each in (["yes", "no", "Yes"], ["1", "1.0", "2"], ["é", "e\u0301", "o"])] == [told + 1] * 3
    assert [warned(["e"], each) for each in (["e", "é", "e\u0301"], ["e", "E"], ["é", "e"])] == [1, 0, 0]
    for header, expected in (("label", 1), ("V", 1), ("x", 0)):
        (tmp_path / "d.txt").write_text(f"{header}\na\nb\n")
        assert warned(["a", "b"], tmp_path / "d.txt") == expected


@pytest.mark.long
def test_a_level_has_not_the_name_of_another_row():
    frame = pandas.DataFrame({"v": ["a", "b"] * 100, "g": ["all"] * 100 + ["population"] * 100})
    reports = rrjax.read(frame, column="v", epsilon=2.0, domain="a,b")
    with refused("by"):
        reports.by("g", group="a")
    frame["g"] = frame["g"].replace("all", "some")
    reports = rrjax.read(frame, column="v", epsilon=2.0, domain="a,b")
    assert reports.by("g", group="a").columns["of"].tolist()[1:3] == ["population", "some"]
    with refused("population"):
        reports.by("g", group="a", population={"population": 1, "some": 2})


@pytest.mark.full
def test_a_trend_says_that_ten_comes_before_two(tmp_path):
    for month, yes in ((1, 40), (2, 50), (10, 60)):
        pandas.DataFrame({"v": ["yes"] * yes + ["no"] * (100 - yes)}).to_csv(tmp_path / f"m{month}.csv", index=False)
    read = {month: rrjax.read(tmp_path / f"m{month}.csv", epsilon=2.0, domain="yes,no") for month in (1, 2, 10)}

    def warnings(*months, **given):
        return test_trend((read[month] for month in months), category="yes", draws=99, **given).warnings

    assert len(warnings(1, 10, 2)) == 1
    assert [warnings(1, 2, 10), warnings(10, 2, 1), warnings(1, 10, 2, times=[1, 10, 2])] == [[], [], []]
    assert test_equal((each for each in read.values()), draws=99).outcomes
    for times in (["1", "2", "10"], [datetime.date(2024, month, 1) for month in read]):
        with refused("times"):
            warnings(1, 2, 10, times=times)


@pytest.mark.full
def test_labels_in_arguments_are_texts_or_values():
    flags = pandas.DataFrame({"v": [True, False] * 200, "n": [1, 2] * 200, "x": [*range(400)]})
    asked = rrjax.read(flags, column="v", epsilon=2.0, domain=[False, True])
    assert asked.group({"x": [True]}).columns["value"] == asked.group("x=true").columns["value"]
    assert test_trend([asked, asked], category=True, draws=99).to_dict()["category"] == "true"
    numbers = rrjax.read(flags, column="n", epsilon=2.0, domain="1:2")
    assert numbers.group({"x": [1.0]}).columns["value"] == numbers.group("x=1").columns["value"]
    assert numbers.regress("x", reference=2).reference == "2"
    forced = {"mechanism": "forced-response", "parameters": {"truth": 0.4, "forced": {2.0: 0.1, 1.0: 0.5}}}
    np.testing.assert_allclose(rrjax.read(flags, column="n", domain="1:2", **forced).rates.always, [0.5, 0.1])
    kuk = {"mechanism": "kuk", "parameters": {"have": 0.8, "lack": 0.2, "yes": 2}}
    assert rrjax.read(flags, column="n", domain="1:2", **kuk).yes == 1


@pytest.mark.full
def test_levels_that_differ_in_capitals_are_told_apart_with_a_warning():
    """Of five questions, each of which compiles programs of its own."""
    rng, number = np.random.default_rng(0), 300
    columns = {"smokes": rng.choice(["no", "yes"], number), "age": rng.normal(40, 9, number)}
    columns |= {"region": rng.choice(["North", "north"], number), "sex": rng.choice(["f", "m"], number)}
    reports = rrjax.read(pandas.DataFrame(columns), column="smokes", epsilon=2.0, domain=["no", "yes"])
    for by, more in (("region", 1), ("sex", 0)):
        answers = [
            reports.statements(group="yes", by=by),
            reports.statements(group="yes", by=by, normal=True),
            reports.within("age", by=by),
            reports.regress(["age", by]),
            rrjax.reports.test_difference(reports, by=by),
        ]
        for answer in answers:
            assert len(answer.warnings) == more
            assert all("'North' and 'north'" in warning for warning in answer.warnings)
