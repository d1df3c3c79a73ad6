"""No command writes over a file that it reads, nor over a memo, reports or a tally."""

import inspect
import itertools
import json
import os
import shutil
import threading
import time
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from cases import READ
from refusals import blames, refused
from written import written

import rrjax
from rrjax import io
from rrjax.cli import paths
from rrjax.cli.app import COMMANDS
from rrjax.cli.paths import Paths, check_own_files, guarding, remembering
from rrjax.cli.test import app as hypotheses
from rrjax.data.errors import Contradiction, UsageError
from rrjax.io import write
from rrjax.io.write import check_writable, creating, replacing

pytestmark = pytest.mark.once  # nothing here depends on the precision

LRR = ("--mechanism", "longitudinal-randomized-response", "--first-epsilon", 1, "--memo", "memo.parquet")
READING = {"reports", "values", "files", "what", "domain", "truth", "against"}
"""Parameters whose texts may be paths that the command reads."""


def commands():
    """Every command, as a function."""
    names = [name for panel in COMMANDS.values() for name in panel if name != "test"]
    found = {name: getattr(import_module(f"rrjax.cli.{name}"), name) for name in names}
    return found | {f"test {each.callback.__name__}": each.callback for each in hypotheses.registered_commands}


@pytest.mark.parametrize("name", [*commands()])
def test_every_path_says_what_it_is_for(name):
    for parameter in inspect.signature(commands()[name]).parameters.values():
        annotation = parameter.annotation
        marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Paths)]
        is_path = "Path" in str(getattr(annotation, "__origin__", annotation))
        assert len(marks) == (is_path or parameter.name in READING), parameter


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The files of `collected`, once they are made."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def collected(beside_files, made):
    """`beside_files`, beside labels, a design, a population, and what cannot be made again."""
    if not list(made.iterdir()):
        make_files(beside_files)
        shutil.copytree(".", made, dirs_exist_ok=True)
    shutil.copytree(made, ".", dirs_exist_ok=True)
    return beside_files


def make_files(invoke):
    Path("labels.csv").write_text("label\n0\n1\n2\n3\n")
    Path("design.toml").write_text('mechanism = "warner"\ntruth_probability = 0.75\n')
    Path("yes.txt").write_text("1\n0\n")
    Path("people.csv").write_text("region,people\nnorth,3\nsouth,5\n")
    answers = io.read_values(io.Source("r.csv", column="answer"), "0:3").indices
    io.write_table("day.csv", {"id": np.arange(2000), "answer": answers})
    io.write_table("v.parquet", {"answer": answers})
    day = ("randomize", "day.csv", "--column", "answer", "--domain", "labels.csv", "--epsilon", 3)
    assert invoke(*day, "--user", "id", *LRR, "--out", "day.parquet")[0] == 0
    assert invoke(*day, "--out", "real.parquet")[0] == 0
    assert invoke(*day, "--seed", 1, "--out", "simulated.parquet")[0] == 0
    mechanism = rrjax.RandomizedResponse(2, 1.0)
    io.save_tally("tally.parquet", mechanism.tally(np.asarray([0, 1, 1])), mechanism)
    rrjax.secure.Memo("memo.json", "me", 4, 3.0, 1.0).report(1)


RANDOMIZE = ("randomize", "day.csv", "--column", "answer", "--epsilon", 3, "--force")
INPUTS = [
    (("estimate", *READ), "r.csv", "--out", "o.csv"),
    (("estimate", "*r.csv", *READ[1:]), "r.csv", "--plot", "o.png"),
    (("estimate", *READ[:-1], "labels.csv"), "labels.csv", "--out", "o.csv"),
    (("estimate", *READ[:-1], "labels.csv"), "labels.csv", "--plot", "o.svg"),
    (("estimate", *READ, "--by", "region", "--mean", "--population", "people.csv"), "people.csv", "--out", "o.tsv"),
    (("estimate", *READ[:3], "--domain", "yes.txt", "--design", "design.toml"), "design.toml", "--out", "o.csv"),
    (("compare", *READ, "--truth", "t.csv"), "t.csv", "--out", "o.csv"),
    (("compare", *READ, "--truth", "*t.csv"), "t.csv", "--plot", "o.pdf"),
    (("regress", "r.csv", "--outcome", "answer", "--covariates", "age", *READ[3:]), "r.csv", "--out", "o.csv"),
    (("report", *READ[:-1], "labels.csv", "--force"), "labels.csv", "--out", "o.html"),
    (("report", "day.parquet", "--memo", "memo.parquet", "--force"), "memo.parquet", "--out", "o.html"),
    (("plan", "--design", "design.toml", "--users", 9), "design.toml", "--plot", "o.png"),
    (RANDOMIZE, "day.csv", "--out", "o.parquet"),
    ((*RANDOMIZE, "--domain", "labels.csv"), "labels.csv", "--out", "o.parquet"),
    ((*RANDOMIZE, "--domain", "labels.csv", "--user", "id", *LRR[:-1]), "labels.csv", "--memo", "o.parquet"),
]


@pytest.mark.long
@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize(("line", "read", "flag", "output"), INPUTS)
def test_no_input_is_replaced(collected, line, read, flag, output, link):
    before = Path(read).read_bytes()
    link(Path(read).absolute(), output)
    more = [] if flag == "--out" or line[0] != "randomize" else ["--out", "new.parquet"]
    given = [*line, flag, output, *more] if line[-1] != "--memo" else [*line, output, *more]
    collected.refuses(flag, *given)
    assert Path(read).read_bytes() == before
    assert os.path.samefile(read, output)


@pytest.mark.long
@pytest.mark.parametrize("name", ["./r.csv", "../{}/r.csv", "{0}/r.csv"])
def test_no_input_is_replaced_under_another_path(collected, tmp_path, name):
    before = Path("r.csv").read_bytes()
    path = {"../{}/r.csv": f"../{tmp_path.name}/r.csv", "{0}/r.csv": tmp_path / "r.csv"}.get(name, name)
    assert collected("estimate", *READ, "--out", path)[0] == 2
    assert Path("r.csv").read_bytes() == before


def test_a_study_does_not_write_over_its_data(collected):
    before = Path("v.parquet").read_bytes()
    assert collected("study", "data", "v.parquet", "--domain", "0:3", "--num-seeds", 2, "--out", ".")[0] == 2
    assert Path("v.parquet").read_bytes() == before


@pytest.mark.full
@pytest.mark.parametrize("file", ["memo.parquet", "memo.json", "real.parquet", "simulated.parquet", "tally.parquet"])
@pytest.mark.parametrize(
    ("line", "flag", "output"),
    [
        (("estimate", "r.csv", *READ[1:]), "--out", "o.parquet"),
        (("estimate", "real.parquet", "--group", "few=2:3"), "--out", "o.jsonl"),
        (("estimate", "r.csv", *READ[1:]), "--plot", "o.png"),
        (("compare", "r.csv", *READ[1:]), "--out", "o.csv"),
        (("regress", "r.csv", "--outcome", "answer", "--covariates", "age", *READ[3:]), "--plot", "o.svg"),
        (("report", "r.csv", *READ[1:], "--force"), "--out", "o.html"),
        (("plan", "--columns", "3,4", "--users", 99, "--epsilon", 1), "--plot", "o.pdf"),
        (RANDOMIZE, "--out", "o.parquet"),
        (("demo", "--users", 99), "--folder", "rrjax-demo/values.parquet"),
        (("study", "own.toml"), "--out", "rrjax-study-own/study.parquet"),
    ],
)
def test_what_cannot_be_made_again_is_kept(collected, line, flag, output, file):
    before = Path(file).read_bytes()
    Path(output).parent.mkdir(exist_ok=True)
    os.symlink(Path(file).absolute(), output)
    named = [] if "/" in output else [flag, output]
    if line is RANDOMIZE and file in ("real.parquet", "simulated.parquet"):  # which --force names
        assert collected(*line, *named)[0] == 0
        return
    assert collected(*line, *named)[0] == 2
    assert "/" in output or blames(collected.error, flag) or collected.error.flag == "--force"
    assert Path(file).read_bytes() == before


def test_a_folder_is_no_input(collected):
    """`rrjax study quick --out quick` goes on, although there is a path `quick` by then."""
    Path("quick").mkdir()
    io.write_table("quick/study.parquet", {"a": np.arange(2)})
    (what,) = (each for name, each in inspect.signature(commands()["study"]).parameters.items() if name == "what")
    with guarding([what], {"what": "quick"}):
        assert check_writable("quick/study.parquet").exists()
    Path("quick.toml").write_bytes(Path("quick/study.parquet").read_bytes())
    with guarding([what], {"what": "quick.toml"}), refused(error=Contradiction, file="quick.toml"):
        check_writable("quick.toml")


def test_files_that_may_not_be_read_are_refused_as_files(collected, monkeypatch):
    """By what reads them, with exit code 3; the parser of the command line asks the system, and says 2."""
    Path("closed.csv").write_text("x")

    def read(path):
        if Path(path).name == "closed.csv":
            raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda *_, **__: False)
        patched.setattr(write, "kind_of", read)
        assert collected("estimate", *READ, "--out", "closed.csv")[0] == 3
        assert collected.error.file == "closed.csv"
    assert Path("closed.csv").read_text() == "x"


def test_force_replaces_reports_only(collected):
    for file in ("v.parquet", "gone.parquet", "real.parquet"):
        code = collected(*RANDOMIZE, "--out", file)[0]
        assert code == (2 if file == "v.parquet" else 0)
    assert rrjax.io.read_metadata("v.parquet") is None


@pytest.mark.parametrize("more", [(), ("--column", "id", "--apart", "--domain", "0:3", "--domain", "0:1999"), LRR])
def test_reports_that_another_process_wrote_meanwhile_are_kept(collected, monkeypatch, more):
    rounds, sync = os.stat("memo.parquet").st_mtime_ns, os.fsync
    user = ("--user", "id", "--domain", "labels.csv") if more is LRR else ()

    def other(opened):
        shutil.copy("simulated.parquet", "new.parquet")  # as soon as this one's reports are complete
        sync(opened)

    line = [each for each in RANDOMIZE if each != "--force"]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", other)
        assert collected(*line, *user, *more, "--out", "new.parquet")[0] == 2
    assert isinstance(collected.error, Contradiction)
    assert collected.error.file == "new.parquet"
    assert Path("new.parquet").read_bytes() == Path("simulated.parquet").read_bytes()
    assert os.stat("memo.parquet").st_mtime_ns == rounds
    assert not list(Path().glob(".rrjax-*"))


def test_one_of_two_writers_at_once_makes_a_new_file(tmp_path):
    both, committed, refusals = threading.Barrier(2), [], []

    def write(text):
        try:
            with creating(tmp_path / "o"), replacing(tmp_path / "o", commit=lambda *_: committed.append(text)) as aside:
                aside.write_text(text)
                both.wait()
        except Contradiction as error:
            refusals.append(error.file)

    threads = [threading.Thread(target=write, args=(text,)) for text in "ab"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert committed == [(tmp_path / "o").read_text()]
    assert refusals == [str(tmp_path / "o")]
    with replacing(tmp_path / "o") as aside:  # otherwise a file is replaced
        aside.write_text("c")
    assert [each.name for each in tmp_path.iterdir()] == ["o"]


def test_one_file_for_two_outputs(collected):
    os.symlink("o.csv", "o.png")
    assert collected("estimate", *READ, "--out", "o.csv", "--plot", "o.png")[0] == 2
    given = (*RANDOMIZE, "--user", "id", *LRR)
    assert collected(*given[:-1], "new.parquet", "--out", "./new.parquet")[0] == 2
    assert not Path("o.csv").exists()
    assert not Path("new.parquet").exists()


def test_a_demonstration_keeps_the_values_of_others(collected):
    Path("rrjax-demo").mkdir()
    Path("v.parquet").rename("rrjax-demo/values.parquet")
    shutil.copy("simulated.parquet", "rrjax-demo/reports.parquet")
    collected.refuses("--folder", "demo", "--users", 99)


@pytest.mark.full
@pytest.mark.parametrize("name", ["values.parquet", "estimate.csv", "estimate.png"])
def test_a_demonstration_replaces_its_own_files_only(collected, name):
    line = ("demo", "--users", 99, "--categories", 4)
    assert collected(*line)[0] == 0
    assert collected(*line, "--seed", 1)[0] == 0
    file = written(Path("rrjax-demo") / name, b"mine")
    collected.refuses("--folder", *line)
    assert file.read_bytes() == b"mine"
    file.unlink()
    assert collected(*line)[0] == 0


@pytest.mark.parametrize("name", ["v.nc", "v.parquet", "v-differences.parquet", "report.html", "figures/mine.png"])
def test_a_study_replaces_its_own_files_only(collected, name):
    out = Path("folder")
    (out / "figures").mkdir(parents=True)
    (out / name).write_bytes(b"mine")
    study = (
        "study",
        "data",
        "v.csv",
        "--column",
        "a",
        "--domain",
        "0:3",
        "--epsilon",
        1,
        "--num-seeds",
        2,
        "--out",
        out,
    )
    Path("v.csv").write_text("a\n" + "0\n1\n2\n3\n" * 9)
    collected.refuses("--out", *study)
    assert (out / name).read_bytes() == b"mine"
    (out / "convergence.nc").write_bytes(b"mine")
    (out / name).unlink()
    assert collected("study", "paper", "--figure", 4, "--out", out)[0] == 2
    assert (out / "convergence.nc").read_bytes() == b"mine"


def test_files_of_a_command_are_known_by_what_is_in_them(tmp_path):
    file = tmp_path / "a.txt"
    for text in ("first", "second"):
        check_own_files(tmp_path, "study", [file], "--out")
        with remembering(tmp_path, "study"), replacing(file) as aside:
            aside.write_text(text)
    for text in ("changed", "first", "second"):
        file.write_text(text)
        with refused(error=UsageError) if text == "changed" else nullcontext():
            check_own_files(tmp_path, "study", [file], "--out")
        assert file.read_text() == text


def test_files_of_a_command_that_was_ended_are_known(tmp_path, monkeypatch):
    """Whenever it was ended: just before a file has its name, or while it wrote a line about it."""
    files = [tmp_path / name for name in "ab"]
    (tmp_path / ".rrjax-study.digests").write_text("0123")

    def check():
        check_own_files(tmp_path, "study", files, "--out")

    def replace(aside, place):
        move(aside, place)
        check()

    move = os.replace
    monkeypatch.setattr(os, "replace", replace)
    with remembering(tmp_path, "study"):
        for file in files:
            with replacing(file) as aside:
                aside.write_text(file.name)


def test_processes_that_fill_a_folder_together_know_the_files_of_each(tmp_path, monkeypatch):
    """Whatever one does between two steps of the other."""
    files = [tmp_path / name for name in "ab"]
    read, digest = paths._known, paths._digest

    def write_of_another():
        monkeypatch.undo()
        with remembering(tmp_path, "study"), replacing(files[1]) as aside:
            aside.write_text(str(next(numbers)))

    def between(step):
        def stepped(path):
            result = step(path)
            write_of_another()
            return result

        return stepped

    numbers = itertools.count()
    monkeypatch.setattr(paths, "_known", between(read))
    with remembering(tmp_path, "study"), replacing(files[0]) as aside:
        aside.write_text("a")
    check_own_files(tmp_path, "study", files, "--out")
    monkeypatch.setattr(paths, "_digest", between(digest))
    check_own_files(tmp_path, "study", files, "--out")
    assert next(numbers) == 2


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("name", ["memo.parquet", "text.txt"])
def test_a_record_that_is_a_link_is_not_written(collected, link, name):
    Path("text.txt").write_text("a")
    before = Path(name).read_bytes()
    link(name, ".rrjax-study.digests")
    with remembering(Path(), "study"), replacing("a.txt") as aside:
        aside.write_text("a")
    assert Path(name).read_bytes() == before
    assert Path("a.txt").read_text() == "a"


def test_unfinished_files_of_killed_processes_are_deleted_where_results_are_written(tmp_path):
    old = time.time() - 2 * write.STALE_AFTER_SECONDS
    for number in (1, 2):
        stray = written(tmp_path / f".rrjax-{number:016x}.png", b"unfinished")
        if number == 1:
            os.utime(stray, (old, old))
    with remembering(tmp_path, "study"), replacing(tmp_path / "a.png") as aside:
        aside.write_bytes(b"a")
    assert {file.name for file in tmp_path.glob("*.png")} == {"a.png", f".rrjax-{2:016x}.png"}


def test_what_is_no_lock_is_not_written(collected):
    line = ("randomize", "w.csv", "--column", "app", "--domain", "a,b", "--user", "id", "--epsilon", 4, *LRR[:-1])
    text = "id,app\nu1,a\nu2,b\n"
    Path("w.csv").write_text(text)
    Path("m1.parquet.lock").write_text(text)
    os.symlink("w.csv", "m2.parquet.lock")
    for memo in ("m1.parquet", "m2.parquet"):
        assert collected(*line, memo, "--out", "new.parquet")[0] == 3
        assert Path(f"{memo}.lock").read_text() == text
        assert not Path(memo).exists()


def test_a_memo_is_written_over_a_memo_only(collected):
    before = Path("real.parquet").read_bytes()
    for file in ("real.parquet", "tally.parquet", "v.parquet"):
        code = collected(*RANDOMIZE, "--user", "id", *LRR[:-1], file, "--out", "new.parquet")[0]
        assert code == (3 if file == "v.parquet" else 2)
    assert Path("real.parquet").read_bytes() == before
    assert json.loads(Path("memo.json").read_text())["user"] == "me"


@pytest.mark.long
def test_copies_among_collections_are_told(collected):
    Path("again.csv").write_bytes(Path("r.csv").read_bytes().replace(b"\n", b"\r\n"))
    out = collected.said(0, "test", "equal", "r.csv", "again.csv", *READ[1:])
    assert "r.csvandagain.csv" in "".join(out.split())  # however the lines are broken
    assert collected("estimate", "r.csv", "again.csv", *READ[1:])[0] == 3
    assert collected.error.file == "again.csv"


@pytest.mark.parametrize(
    "line",
    [
        ("randomize", "memo.parquet", "--column", "answer", "--epsilon", 1, "--out", "new.parquet"),
        ("estimate", "memo.parquet", "--column", "answer", "--epsilon", 1, "--domain", "0:3"),
        ("estimate", "day.parquet", "memo.parquet"),
        ("compare", *READ, "--truth", "memo.parquet", "--truth-column", "answer"),
        ("regress", "memo.parquet", "--outcome", "answer", "--covariates", "key", "--epsilon", 1),
        ("study", "data", "memo.parquet", "--column", "answer", "--num-seeds", 2),
    ],
)
def test_a_memo_is_read_as_a_memo_only(collected, line):
    assert collected(*line)[0] == 3
    assert Path(collected.error.file).name == "memo.parquet"
    assert not Path("new.parquet").exists()


@pytest.mark.parametrize("more", [("--keep", "id"), ("--column", "id"), ("--column", "id", "--apart")])
def test_a_file_that_changes_between_two_columns_makes_no_reports(collected, monkeypatch, more):
    """Rows that are sorted anew are as many as before, and belong to others."""
    rows, connect = Path("day.csv").read_text().splitlines(), write.connect

    def changed():
        Path("day.csv").write_text("\n".join([rows[0], *rows[:0:-1]]) + "\n")
        return connect()

    line = [each for each in RANDOMIZE if each != "--force"]
    with monkeypatch.context() as patched:
        patched.setattr(write, "connect", changed)  # values were read by then
        assert collected(*line, *more, "--out", "new.parquet")[0] == 3
    assert collected.error.file == "day.csv"
    assert not [*Path().glob("new.parquet"), *Path().glob(".rrjax-*")]


def test_secret_files_of_killed_processes_are_deleted(collected):
    old = time.time() - 2 * write.STALE_AFTER_SECONDS
    strays = {f".rrjax-{place:016x}.parquet": file for place, file in enumerate(("memo", "day", "v"))}
    for stray, file in strays.items():
        shutil.copy(f"{file}.parquet", stray)
        os.utime(stray, (old, old))
    memo, day, other = strays
    Path(other).write_bytes(b"PAR1 begun")
    os.utime(other, (old, old))
    shutil.copy("memo.parquet", ".rrjax-00000000000000ff.parquet")  # which may be written now
    shutil.copy("memo.parquet", ".rrjax-mine.parquet")
    os.utime(".rrjax-mine.parquet", (old, old))
    assert collected(*RANDOMIZE, "--out", "new.parquet")[0] == 0
    assert not Path(memo).exists()
    assert not Path(other).exists()
    # Complete reports may be those of a round, which its memo is to move.
    kept = {day, ".rrjax-00000000000000ff.parquet", ".rrjax-mine.parquet"}
    assert {each.name for each in Path().glob(".rrjax-*")} == kept


@pytest.mark.full
def test_a_study_goes_on_in_its_folder(collected):
    Path("mine/study/checkpoint").mkdir(parents=True)  # of an earlier run there
    for _ in range(2):  # the second one replaces the files of the first
        assert collected("study", "own.toml", "--out", "mine")[0] == 0
    Path("mine/study.nc").write_text("mine")
    collected.refuses("--out", "study", "own.toml", "--out", "mine")
    assert Path("mine/study.nc").read_text() == "mine"
