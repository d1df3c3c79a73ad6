"""A round of a longitudinal protocol that fails, or is killed, between any two writes: once made, or not at all."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

from rrjax import io
from rrjax.io.write import DAMAGED_MEMO, kind_of

pytestmark = pytest.mark.once
LINE = ["randomize", "day.csv", "--column", "app", "--user", "id", "--domain", "0:2", "--memo", "memo/m.parquet"]
LINE += ["--mechanism", "longitudinal-randomized-response", "--epsilon", "4", "--first-epsilon", "2"]
NUM_USERS = 200


@pytest.fixture
def day(invoke):
    """Values of a day; reports and memo have folders of their own."""
    io.write_table("day.csv", {"id": np.arange(NUM_USERS), "app": np.arange(NUM_USERS) % 3})
    for folder in ("memo", "reports"):
        Path(folder).mkdir()
    return invoke


def answers():
    """The permanent answers in the memo, by user and value; empty without a memo."""
    if not Path("memo/m.parquet").exists():
        return {}
    return {row[:2]: row[2:] for row in duckdb.connect().execute("FROM 'memo/m.parquet'").fetchall()}


def rounds():
    """The rounds of all complete files of reports, sorted."""
    found = [duckdb.connect().execute(f"SELECT DISTINCT round FROM '{file}'").fetchall() for file in complete()]
    return sorted(number for rows in found for (number,) in rows)


def complete():
    return [file for file in Path("reports").glob("[a-z]*.parquet") if kind_of(file) == "reports"]


def go_on(day, out):
    """Gives the command again until it is done, and checks that every round was made once and no answer twice."""
    before = answers()
    code, _, said = day(*LINE, "--out", out)
    if code == 3:  # the round was finished
        assert kind_of(out) == "reports"
        assert day.error.file == str(Path(out).resolve()), said
    assert before.items() <= answers().items()
    assert len(answers()) == NUM_USERS
    numbers = rounds()
    assert numbers == list(range(1, len(numbers) + 1))
    day.done(*LINE, "--out", "reports/next.parquet")
    assert rounds() == [*numbers, len(numbers) + 1]


@pytest.mark.long  # kept in every run: no memo and no report may be lost
@pytest.mark.parametrize("what", ["replace", "fsync", pytest.param("open", marks=pytest.mark.full)])
@pytest.mark.parametrize("first", [True, False])
def test_a_full_disk_at_every_write(day, monkeypatch, what, first):
    """All calls of the operating system from the k-th on fail, for every k."""
    if not first:
        assert day(*LINE, "--out", "reports/zero.parquet")[0] == 0
    for folder in ("memo", "reports"):
        shutil.copytree(folder, f"kept/{folder}")
    function, code, failures = getattr(os, what), None, 0
    while code != 0:
        calls = []

        def failing(*arguments, calls=calls, last=failures, **options):
            calls.append(arguments)
            if len(calls) > last:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*arguments, **options)

        shutil.copytree("kept", ".", dirs_exist_ok=True)  # in the same state for every k
        made = rounds()
        with monkeypatch.context() as patched:
            patched.setattr(os, what, failing)
            code, _, said = day(*LINE, "--out", "reports/new.parquet")
        assert code in (0, 3), said
        if code == 3:
            assert rounds() == made
            assert len([*Path().rglob(".rrjax-*")]) == (what == "replace" and failures == 1 + first)
        go_on(day, "reports/last.parquet" if code == 0 else "reports/new.parquet")
        for folder in ("memo", "reports"):
            shutil.rmtree(folder)
        failures += 1
    assert failures > 2


KILLED = """
import os, signal, sys
number, when, *arguments = sys.argv[1:]
replace, calls = os.replace, []

def killing(*paths):
    calls.append(paths)
    if len(calls) == int(number) and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*paths)
    if len(calls) == int(number):
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = killing
from rrjax.cli.app import app
app(arguments)
"""


@pytest.mark.long  # kept in every run: no memo and no report may be lost
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_between_any_two_writes(day, number, when):
    """Of the new answers, of the memo that notes the round, and of the reports' name."""
    line = [sys.executable, "-c", KILLED, str(number), when, *LINE, "--out", "reports/first.parquet"]
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(answers()) == (0 if (number, when) == (1, "before") else NUM_USERS)
    if (number, when) == (3, "after"):
        assert rounds() == [1]
        assert day(*LINE, "--out", "reports/first.parquet")[0] == 2  # it is there
        go_on(day, "reports/second.parquet")
    else:
        assert rounds() == []
        go_on(day, "reports/first.parquet")
    assert day("estimate", *sorted(complete()))[0] == 0


STOPPED = """
import os, signal, sys
name, number, *arguments = sys.argv[1:]
write, calls = getattr(os, name), []

def stopping(*given):
    calls.append(given)
    if len(calls) == int(number):
        signal.raise_signal(signal.SIGINT)
    return write(*given)

setattr(os, name, stopping)
sys.argv[1:] = arguments
from rrjax.cli import main
main()
"""


@pytest.mark.long  # kept in every run: an unfinished memo is as secret as a memo
@pytest.mark.parametrize(
    "place", [("fsync", 1), ("replace", 1), ("fsync", 3), ("fsync", 4), ("replace", 2), ("replace", 3)]
)
def test_an_interrupt_leaves_no_unfinished_file(day, place):
    """Before the memo notes the round there is no round; afterwards it is finished."""
    line = [sys.executable, "-c", STOPPED, *map(str, place), *LINE, "--out", "reports/first.parquet"]
    done = subprocess.run(line, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    made = rounds() == [1]
    assert done.returncode == (0 if made else 130), done.stderr
    assert made == (place in [("replace", 2), ("replace", 3), ("fsync", 4)])
    assert ("no partial file" in done.stderr) != made
    assert not [*Path("memo").glob(".rrjax-*"), *Path("reports").glob(".rrjax-*")]
    go_on(day, "reports/second.parquet")


SHOWN = """
import signal, sys
from importlib import import_module
from rrjax.cli import main
command = import_module("rrjax.cli.randomize")
show = command.show_round

def stopping(*given):
    signal.raise_signal(signal.SIGINT)
    return show(*given)

command.show_round = stopping
main()
"""


@pytest.mark.long
def test_an_interrupt_after_a_round_was_made_does_not_say_that_it_was_not(day):
    """Whoever believed it gave the command again, and made another round."""
    line = [sys.executable, "-c", SHOWN, *LINE, "--out", "reports/first.parquet"]
    done = subprocess.run(line, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (done.returncode, rounds()) == (0, [1]), done.stderr
    assert "no partial file" not in done.stderr
    assert "reports/first.parquet" in done.stdout


@pytest.mark.long
def test_an_interrupt_leaves_no_unfinished_reports_of_several_columns(day):
    line = ["randomize", "day.csv", "--apart", "--column", "app", "--column", "id", "--epsilon", "2"]
    line += ["--domain", "0:2", "--domain", f"0:{NUM_USERS - 1}", "--out", "reports/first.parquet"]
    done = subprocess.run([sys.executable, "-c", STOPPED, "fsync", "1", *line], check=False, stderr=subprocess.PIPE)
    assert done.returncode == 130, done.stderr
    assert not [*Path("reports").iterdir()]


@pytest.mark.long
def test_another_file_in_the_way_of_an_interrupted_round(day):
    line = [sys.executable, "-c", KILLED, "3", "before", *LINE, "--out", "reports/first.parquet"]
    subprocess.run(line, check=False, capture_output=True)
    Path("reports/first.parquet").write_text("mine")
    assert day(*LINE, "--out", "reports/second.parquet")[0] == 3
    assert Path("reports/first.parquet").read_text() == "mine"
    Path("reports/first.parquet").rename("elsewhere")
    assert day(*LINE, "--out", "reports/second.parquet")[0] == 3
    assert rounds() == [1]
    assert day(*LINE, "--out", "reports/second.parquet")[0] == 0
    assert rounds() == [1, 2]


@pytest.mark.long
@pytest.mark.parametrize("moved", ["all", "reports", "away"])
def test_an_interrupted_round_whose_folders_have_other_names(day, moved):
    Path("all").mkdir()
    for folder in ("memo", "reports"):
        Path(folder).rename(f"all/{folder}")
    shutil.copy("day.csv", "all/day.csv")
    line = [sys.executable, "-c", KILLED, "3", "before", *LINE, "--out", "reports/first.parquet"]
    assert subprocess.run(line, check=False, capture_output=True, cwd="all").returncode == -signal.SIGKILL
    Path("all").rename("renamed")
    os.chdir("renamed")
    (aside,) = Path("reports").glob(".rrjax-*")
    place = Path("reports/first.parquet").resolve()
    if moved == "reports":
        aside, place = aside.rename(f"memo/{aside.name}"), Path("memo/first.parquet").resolve()
    elif moved == "away":
        aside.rename(f"../{aside.name}")
        for _ in range(2):
            assert day(*LINE, "--out", "reports/second.parquet")[0] == 3
            assert day.error.file == str(place)
            assert {str(aside.resolve()), str(place)} <= {word.strip(",:") for word in str(day.error).split()}
            assert not complete()
        Path(f"../{aside.name}").rename(aside)
    assert day(*LINE, "--out", "reports/second.parquet")[0] == 3
    assert Path(day.error.file) == place
    assert kind_of(place) == "reports"
    assert day(*LINE, "--out", "reports/second.parquet")[0] == 0


@pytest.mark.long
def test_reports_that_were_moved_after_their_round(day):
    for number in (1, 2):
        assert day(*LINE, "--out", "reports/new.parquet")[0] == 0
        Path("reports/new.parquet").rename(f"{number}.parquet")
    assert io.read_metadata("2.parquet").round == 2


@pytest.mark.long
def test_a_memo_that_was_copied_without_its_lock(day):
    assert day(*LINE, "--out", "reports/first.parquet")[0] == 0
    Path("else/where").mkdir(parents=True)
    shutil.copy("memo/m.parquet", "else/where/m.parquet")
    line = ["else/where/m.parquet" if word == "memo/m.parquet" else word for word in LINE]
    code, _, said = day(*line, "--out", "reports/second.parquet")
    lock = Path("else/where/m.parquet.lock").resolve()
    assert code == 3
    assert str(lock) in str(day.error)
    assert not Path("reports/second.parquet").exists(), said
    shutil.copy("memo/m.parquet.lock", lock)
    assert day(*line, "--out", "reports/second.parquet")[0] == 0
    assert rounds() == [1, 2]


def test_a_lock_that_cannot_be_opened_is_named(day):
    """Not the memo alone, which may be read."""
    Path("memo/m.parquet.lock").mkdir()
    assert day(*LINE, "--out", "reports/first.parquet")[0] == 3
    assert "m.parquet.lock" in str(day.error)


def test_a_table_is_not_written_over_a_lock(day):
    assert day(*LINE, "--out", "reports/first.parquet")[0] == 0
    lock = Path("memo/m.parquet.lock")
    before = lock.read_bytes()
    Path("table.csv").symlink_to(lock)
    code, _, said = day("estimate", "reports/first.parquet", "--out", "table.csv")
    assert (code, lock.read_bytes()) == (2, before), said


@pytest.mark.full  # many rounds
@pytest.mark.parametrize("mechanism", ["longitudinal-randomized-response", "longitudinal-unary-encoding"])
def test_a_memo_of_which_a_byte_is_lost_is_refused(day, mechanism):
    """Parquet would read other answers, or other users, whose ε∞ would be spent again."""
    line = [mechanism if each.startswith("longitudinal") else each for each in LINE]
    assert day(*line, "--out", "reports/one.parquet")[0] == 0
    memo = Path("memo/m.parquet")
    lock = Path("memo/m.parquet.lock")
    whole, note, held = memo.read_bytes(), lock.read_bytes(), answers()
    read_wrong = 0
    for place in (0, *range(4, len(whole), 61)):
        memo.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with contextlib.suppress(duckdb.Error, UnicodeDecodeError):
            read_wrong += answers() != held
        code, _, _ = day(*line, "--out", "reports/two.parquet")
        if code == 0:  # a byte that holds nothing, as of statistics
            assert answers() == held
            Path("reports/two.parquet").unlink()
            memo.write_bytes(whole)
            lock.write_bytes(note)
        else:
            assert DAMAGED_MEMO in str(day.error), place
        assert not Path("reports/two.parquet").exists()
    assert read_wrong  # in silence without a sum


@pytest.mark.long
def test_a_memo_that_was_cut_short_is_to_be_brought_back(day):
    """With another file the answers would be drawn again."""
    assert day(*LINE, "--out", "reports/one.parquet")[0] == 0
    memo = Path("memo/m.parquet")
    whole = memo.read_bytes()
    for left in (len(whole) // 2, 8, len(whole) - 1):
        memo.write_bytes(whole[:left])
        assert day(*LINE, "--out", "reports/two.parquet")[0] == 3
        assert DAMAGED_MEMO in str(day.error)
        assert memo.read_bytes() == whole[:left]
    assert not Path("reports/two.parquet").exists()


@pytest.mark.parametrize("name", ["reports/one.parquet", "memo/m.parquet"])
def test_a_file_with_a_damaged_beginning_is_kept(day, name):
    """DuckDB reads it all the same."""
    assert day(*LINE, "--out", "reports/one.parquet")[0] == 0
    shutil.copy("reports/one.parquet", "read.parquet")
    damaged = b"p" + Path(name).read_bytes()[1:]
    Path(name).write_bytes(damaged)
    assert day("estimate", "read.parquet", "--out", name)[0] == 2
    assert Path(name).read_bytes() == damaged


@pytest.mark.long
@pytest.mark.parametrize("more", [0, 1])
def test_memos_whose_names_were_exchanged_are_refused(day, more):
    """Answers of one collection were drawn again into the memo of the other one, and ε∞ was spent again."""
    other = [*LINE[: LINE.index("--memo")], "--memo", "memo/other.parquet", *LINE[LINE.index("--memo") + 2 :]]
    day.done(*LINE, "--out", "reports/one.parquet")
    for number in range(1 + more):
        day.done(*other, "--out", f"reports/other{number}.parquet")
    memos = Path("memo/m.parquet"), Path("memo/other.parquet")
    contents = [memo.read_bytes() for memo in memos]
    for memo, content in zip(memos, contents[::-1], strict=True):
        memo.write_bytes(content)
    for line, memo in zip((LINE, other), memos, strict=True):
        said = day.said(3, *line, "--out", "reports/two.parquet")
        assert day.error.file == str(memo)
        assert "delete" in said
        assert f"{memo.name}.lock" in said
    assert [memo.read_bytes() for memo in memos] == contents[::-1]
    assert not Path("reports/two.parquet").exists()
    for memo, content in zip(memos, contents, strict=True):
        memo.write_bytes(content)
    day.done(*LINE, "--out", "reports/two.parquet")
    memos[0].write_bytes(contents[1])
    Path(f"{memos[0]}.lock").unlink()  # as the message says
    day.done(*LINE, "--out", "reports/three.parquet")


@pytest.mark.long
def test_copies_of_a_memo_that_went_on_apart_are_refused(day):
    """Each had answers that the other one lacked, and the same number of writes."""
    other = [*LINE[: LINE.index("--memo")], "--memo", "memo/copy.parquet", *LINE[LINE.index("--memo") + 2 :]]
    day.done(*LINE, "--out", "reports/one.parquet")
    memo, copy = Path("memo/m.parquet"), Path("memo/copy.parquet")
    shutil.copy(memo, copy)
    day.done(*LINE, "--out", "reports/two.parquet")
    mine = memo.read_bytes()
    for more in range(2):
        day.done(*other, "--out", f"reports/copy{more}.parquet")
        memo.write_bytes(copy.read_bytes())
        day.said(3, *LINE, "--out", "reports/three.parquet")
        assert day.error.file == str(memo)
        assert not Path("reports/three.parquet").exists()
    memo.write_bytes(mine)
    day.done(*LINE, "--out", "reports/three.parquet")
