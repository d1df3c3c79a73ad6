"""Numbers such as 1.200 may be thousands: they are asked about where they would be others, or have a warning."""

from pathlib import Path

import pandas as pd
import pytest
from refusals import refused
from written import written

import rrjax
from rrjax.data.errors import DataError
from rrjax.io import Source, count_reports, read_counts, read_values
from rrjax.io.domain import Domain
from rrjax.io.numbers import Bins, read_bins
from rrjax.io.read import count_by
from rrjax.io.rows import read_covariate
from rrjax.io.source import FrameRows, FrameSource
from rrjax.reports.functionals import read_weights

pytestmark = pytest.mark.once  # nothing here depends on the precision


@pytest.mark.long
def test_numbers_that_may_be_thousands_are_asked_about(tmp_path):
    """1.200 beside 800 was 1.2, as a weight, a covariate or a number of `--within`."""
    path = tmp_path / "a.csv"
    for one, other, odd in (
        ("1.200", "800", True),
        ("1.200", "0", False),
        ("1.200", "800.000", False),
        ("1.20", "800", False),
        ("1.200", "0.5", False),
        ("1.200", "999", False),
        ("-1.200", "-800", True),
        ("1.200", "-800", True),
        ("-3.2", "1.234,2", False),
        ("1.234", "1.5e-3,2", False),
    ):
        rows = "".join(f"no,{each}\n" for each in other.split(","))
        path.write_text(f"a,w\nyes,{one}\n{rows}no,\n")
        source = Source(str(path), column="w", missing=("999",))
        if odd:
            for read in (read_covariate, lambda given: read_bins(given, Bins(-1000, 1000, 4))):
                with refused(error=DataError, file=str(path), column="w"):
                    read(source)
            assert len(read_covariate(source, factor=True).levels or ()) == 2
        else:
            assert read_covariate(source).values[0] == float(one)
    path.write_text("a,w\nyes,1.200\nno,800\nno,v2\n")
    with refused(error=DataError, file=str(path), row=3):
        read_covariate(Source(str(path), column="w"))
    # Of numbers that all are written so, the range tells.
    path.write_text("w\n1.200\n2.350\n12.500\n")
    assert read_bins(Source(str(path)), Bins(0, 20, 4)).indices.tolist() == [0, 0, 2]
    for read in (read_covariate, read_weights):
        assert read(Source(str(path))).values.tolist() == [1.2, 2.35, 12.5]
        assert read(Source(str(path))).all_thousands
    for read in (
        lambda given: read_bins(given, Bins(0, 10_000, 4)),
        lambda given: read_weights(given, "population_size"),
    ):
        with refused(error=DataError, file=str(path)):
            read(Source(str(path)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("labels", "asked"),
    [
        ("500,1.000,2.500", True),
        ("500,1.000,2.5", False),
        ("1.000,2.000", True),
        ("1,1.125,2", False),
        ("1.125,1.250,1.375", False),
    ],
)
def test_labels_that_may_be_thousands_are_warned_about(labels, asked):
    names = labels.split(",")
    reports = rrjax.Reports.of_counts([100, 200, 150][: len(names)], 2.0, domain=names)
    plain_names = [str(2 * place) for place in range(len(names))]
    plainly = rrjax.Reports.of_counts(reports.counts, 2.0, domain=plain_names).statements(mean=True)
    assert len(reports.statements(mean=True).warnings) - len(plainly.warnings) == asked


@pytest.mark.parametrize(
    ("values", "last", "odd"),
    [
        ("500,1.000,2.000", 2000, True),
        ("1.000,2.000", 2000, True),
        ("+1.000,7", 1000, True),
        ("1.000,7", 999, False),  # no thousand is a category
        ("1.000,2.0", 2000, False),
        ("1.000,0.000", 2000, False),
    ],
)
def test_values_of_a_range_that_may_be_thousands_are_asked_about(tmp_path, values, last, odd):
    """1.000 beside 500 was 1, in reports and in what `rrjax randomize` randomizes."""
    cells, domain = values.split(","), Domain.range(0, last)
    texts = "".join(f'{{"a": "{each}", "n": 2}}\n' for each in cells)
    sources = [
        Source(written(tmp_path / "a.csv", "a,n\n" + "".join(f"{each},2\n" for each in cells)), column="a"),
        Source(written(tmp_path / "a.jsonl", texts), column="a"),
        FrameSource(column="a", rows=FrameRows(pd.DataFrame({"a": cells, "n": 2}))),
    ]
    for source in sources:
        for read in (count_reports, read_values, lambda given, known: read_counts(given, "n", known)):
            if odd:
                with refused(error=DataError, column="a"):
                    read(source, domain)
            else:
                read(source, domain)


def test_values_of_all_groups_tell_whether_they_are_thousands(tmp_path):
    """2.0 of one group shows what 1.000 of another one is. A count of −1000 is none."""
    source = Source(written(tmp_path / "a.csv", "a,g\n1.000,x\n5,x\n2.0,y\n7,y\n"), column="a")
    assert len(count_by(source, ["g"], Domain.range(0, 2000))) == 2
    source = Source(written(tmp_path / "b.csv", "a,g\n1.000,x\n5,x\n2,y\n7,y\n"), column="a")
    with refused(error=DataError, column="a"):
        count_by(source, ["g"], Domain.range(0, 2000))
    source = Source(written(tmp_path / "c.csv", "a,n\nx,-1.000\ny,5\n"), column="a")
    with refused(error=DataError, row=1, value="-1.000"):
        read_counts(source, "n", ["x", "y"])


def test_numbers_of_json_are_what_they_are(tmp_path):
    """Its programs write 2.0 as 2, beside 1.125."""
    rows = '{"a": "x", "w": 1.125}\n{"a": "y", "w": 2}\n{"a": "y", "w": 12.250}\n'
    source = Source(written(tmp_path / "a.jsonl", rows), column="w")
    assert read_covariate(source).values.tolist() == [1.125, 2, 12.25]
    assert read_bins(source, Bins(0, 100_000, 2)).indices.tolist() == [0, 0, 0]
    assert not read_covariate(source).all_thousands
    texts = '{"a": "x", "w": "1.125"}\n{"a": "y", "w": "2"}\n'
    with refused(error=DataError, column="w"):
        read_covariate(Source(written(tmp_path / "b.jsonl", texts), column="w"))


@pytest.mark.long
def test_numbers_within_a_class_that_all_may_be_thousands_have_a_warning(tmp_path):
    """So have the weights of totals; of means weights are ratios."""
    path = written(tmp_path / "a.csv", "a,w\n" + "yes,1.200\nno,2.350\nno,12.500\nyes,8.000\n" * 10)
    how = {"epsilon": 2.0, "domain": ["no", "yes"]}
    reports = rrjax.read(path, column="a", **how)
    plain = rrjax.read(written(tmp_path / "b.csv", Path(path).read_text().replace("12.500", "12.5")), column="a", **how)
    for ask, odd in (
        (lambda given: given.within("w"), True),
        (lambda given: given.statements(group="yes", weights="w", total=True), True),
        (lambda given: given.statements(group="yes", weights="w"), False),
    ):
        assert len(ask(reports).warnings) - len(ask(plain).warnings) == odd
