"""An answer is not written over a file that it was made from."""

import pathlib

import pytest

pytest.importorskip("duckdb", reason="files need rrjax[cli]")

from refusals import refused

import rrjax
from rrjax.data.errors import Contradiction

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
CELLS = "a,b,p,d\n" + "x,x,0.2,one\ny,x,0.2,two\nx,y,0.3,one\ny,y,0.3,two\n" * 20
READ = {"column": "a", "epsilon": 1.0, "domain": ["x", "y"]}


@pytest.fixture
def files(tmp_path):
    """Two files of CSV, which has no metadata that tells what it is; and a link to the first."""
    files = [tmp_path / each for each in ("in.csv", "other.csv")]
    for file in files:
        file.write_text(CELLS)
    (tmp_path / "link.csv").symlink_to(files[0])
    return files


def check_refused(answers, path):
    """All answers keep the file; their own tables, which are no input, they replace."""
    before = pathlib.Path(path).read_bytes()
    for answer in answers:
        with refused(error=Contradiction, file=str(path)):
            answer.write(path)
        for _ in range(2):
            answer.write(pathlib.Path(path).with_name("out.csv"))
    assert pathlib.Path(path).read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize("name", ["in.csv", "link.csv"])
def test_the_files_of_the_reports(files, name):
    """Of five questions, each of which compiles programs of its own."""
    first, second = (rrjax.read(file, **READ) for file in files)
    answers = [
        first.shares(),
        rrjax.reports.test_difference(second, first),
        first.test_fit(draws=99),
        (first + rrjax.Reports.of_counts([5, 6], 1.0, ["x", "y"], column="a")).shares(),
        rrjax.reports.Groups({1: second, 2: first}).shares(),
    ]
    check_refused(answers, files[0].with_name(name))
    rrjax.plan(num_categories=4, num_users=100, epsilon=1.0).write(files[0].with_name("out.csv"))


@pytest.mark.long
def test_the_file_as_it_was_named_from_another_folder(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shares = rrjax.read("in.csv", **READ).shares()
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    check_refused([shares], "../in.csv")


@pytest.mark.long
def test_the_files_of_a_truth_and_of_tested_columns(files):
    second = rrjax.read(files[1], **READ)
    tested = rrjax.reports.test_independence(str(files[0]), ["a", "b"], draws=99)
    check_refused([second.compare(files[0]), second.test_fit(files[0], draws=99), tested], files[0])


@pytest.mark.long
def test_the_file_of_the_labels(files, tmp_path):
    """Of five kinds of reports, each of which compiles programs of its own."""
    labels = tmp_path / "labels.csv"
    labels.write_text("label\nx\ny\n")
    read = {"column": "a", "domain": labels}
    answers = [
        rrjax.read(files[0], **read, epsilon=1.0).shares(),
        rrjax.Reports.of_counts([5, 6], 1.0, labels).shares(),
        rrjax.reports.test_independence(files[0], ["a", "b"], [labels, None], draws=99),
        rrjax.read(files[0], **read, mechanism="crosswise", parameters={"innocuous": "@p", "yes": "x"}).shares(),
    ]
    forced = {"mechanism": "cheating-detection", "parameters": {"forced": [0.25, 0.75], "yes": "x"}}
    answers.append(rrjax.read(files[0], **read, sample="d=one,two", **forced).shares())
    check_refused(answers, labels)


@pytest.mark.long
def test_the_file_of_a_population_and_of_respondents(files, tmp_path):
    sizes = tmp_path / "sizes.csv"
    sizes.write_text("b,size\nx,100\ny,300\n")
    answers = [rrjax.read(files[0], **READ).statements(group="x", by="b", population=sizes, normal=normal)
               for normal in (False, True)]  # fmt: skip
    check_refused(answers, sizes)
    given = {"column": "a", "domain": ["x", "y"], "mechanism": "crosswise"}
    respondents = rrjax.read(files[0], **given, parameters={"innocuous": "@p", "yes": "x"})
    check_refused([*answers, respondents.shares(), respondents.statements(group="y")], files[0])
