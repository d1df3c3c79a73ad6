"""Longitudinal protocols on the command line: a memo, a file a round, estimates of each round and of all together."""

import importlib
import json
import os
import re
import shutil
import stat
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest
from pages import check_page
from refusals import refused

import rrjax
from rrjax import io
from rrjax.io.rounds import one_number, read_users
from rrjax.mechanisms import PROTOCOLS
from rrjax.reports.pages.kinds import spent
from rrjax.reports.rounds import PrivacyLoss

pytestmark = pytest.mark.once
TRUTH = np.array([0.5, 0.3, 0.2])
LRR = "longitudinal-randomized-response"


def values_of(day, changed=0):
    """A file of 4,000 users; the first `changed` hold the last app."""
    apps = np.repeat(["maps", "news", "chat"], (4000 * TRUTH).astype(int)).astype(object)
    apps[:changed] = "chat"
    users = np.array([f"u{number}" for number in range(4000)], object)
    order = np.random.default_rng(day).permutation(4000)  # the order of the rows does not matter
    io.write_table(f"day{day}.csv", {"id": users[order], "app": apps[order]})


@pytest.fixture
def week(invoke):
    """Two days without a change, and one with."""
    Path("apps.txt").write_text("maps\nnews\nchat\n")
    for day, changed in ((1, 0), (2, 0), (3, 400)):
        values_of(day, changed)
    return invoke


def line(day, name=LRR, *more, out=None):
    flags = ["--column", "app", "--user", "id", "--domain", "apps.txt", "--mechanism", name]
    flags += ["--epsilon", "4", "--first-epsilon", "2", "--memo", "memo.parquet", "--seed", "5", "--json"]
    return ("randomize", f"day{day}.csv", *flags, *more, "--out", out or f"day{day}.parquet")


def other(day, out="r.parquet", **flags):
    """The line of a day with other values of its flags."""
    given = list(line(day, out=out))
    for flag, value in flags.items():
        given[given.index(f"--{flag}") + 1] = value
    return given


@pytest.mark.full
@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_a_week(week, name):
    for day in (1, 2, 3):
        made = json.loads(week.done(*line(day, name)))
        assert (made["round"], made["num_users"]) == (day, 4000)
        if day == 2:
            assert made["num_new_answers"] == 0
    assert made["answers_per_user"] == {"median": 1, "most": 2}
    assert made["spent"] == {"median": 4.0, "most": 8.0}
    assert stat.S_IMODE(Path("memo.parquet").stat().st_mode) == 0o600
    columns = duckdb.sql("DESCRIBE SELECT * FROM 'day1.parquet'").fetchall()
    assert {row[0] for row in columns} == {"app", "id", "round"}

    found = {
        row["label"]: row for row in week.json("estimate", "day1.parquet", "day2.parquet", "--out", "two.csv")["top"]
    }
    for label, share in zip(("maps", "news", "chat"), TRUTH, strict=True):
        both, error = found[label]["all_rounds"], found[label]["all_rounds_standard_error"]
        assert abs(both - share) < 4 * error
        assert abs(found[label]["round_1"] - share) < 0.08
    code, out, _ = week("estimate", "day1.parquet", "--json")
    alone = json.loads(out)
    assert code == 0
    assert (alone["round"], alone["epsilon"]) == (1, pytest.approx(2))
    out = week.done("estimate", "day1.parquet", "day3.parquet")
    assert "round 3" in out
    assert len(week.json("test", "equal", "day1.parquet", "day3.parquet")["warnings"]) == 3
    # A test of two columns takes one round only: its rows are different users.
    pair = ("--column", "app", "--column", "round")
    week.refuses("REPORTS", "test", "independent", "day1.parquet", "day3.parquet", *pair)


@pytest.mark.long
def test_rounds_keep_their_permanent_answers(week):
    assert week(*line(1))[0] == week(*line(2))[0] == 0
    memo = duckdb.sql("SELECT \"user\", key, answer FROM 'memo.parquet'").fetchall()
    assert len(memo) == 4000
    before = {user: answer for user, _, answer in memo}
    assert week(*line(3))[0] == 0
    after = duckdb.sql("SELECT \"user\", key, answer FROM 'memo.parquet'").fetchall()
    assert set(memo) <= set(after)
    assert len(after) == 4000 + 400
    assert before["u0"] in (0, 1, 2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("more", "flag"),
    [
        (("--round", "1"), "--round"),
        (("--memo", "notes.txt"), "--memo"),
        (("--keep", "id"), "--keep"),
        (("--user", "app"), "--user"),
        (("--first-epsilon", "5"), "--first-epsilon"),
        (("--first-epsilon", "9e-7"), "--first-epsilon"),  # `estimate` refused the reports of its round
        (("--mechanism", "oue"), "--memo"),
    ],
)
def test_flags_that_cannot_be(week, more, flag):
    assert week(*line(1))[0] == 0
    before = Path("memo.parquet").read_bytes()
    given = list(line(2))
    if more[0] in given:
        given[given.index(more[0]) + 1] = more[1]
    else:
        given += more
    week.refuses(flag, *given)
    assert Path("memo.parquet").read_bytes() == before
    assert not Path("day2.parquet").exists()


@pytest.mark.long
def test_users_of_another_column(week):
    """The same people under other names would get new permanent answers."""
    Path("day9.csv").write_text("id,mail,app\nu1,a@x,maps\nu2,b@x,news\n")
    assert week(*line(9))[0] == 0
    before = Path("memo.parquet").read_bytes()
    assert week(*other(9, user="mail"))[0] == 3
    assert (week.error.argument, week.error.value) == ("user", "id")
    assert Path("memo.parquet").read_bytes() == before
    assert not Path("r.parquet").exists()


@pytest.mark.long
def test_a_memo_without_the_column_of_users(week):
    """Of an earlier version: the next round writes it."""
    assert week(*line(1))[0] == 0
    connection = duckdb.connect()
    record = json.loads(connection.execute("SELECT value FROM parquet_kv_metadata('memo.parquet')").fetchall()[0][0])
    assert (record.pop("user"), len(record.pop("sum"))) == ("id", 32)
    connection.execute("COPY (FROM 'memo.parquet') TO 'm.parquet' (KV_METADATA {rrjax_memos: ?})", [json.dumps(record)])
    assert week(*other(2, memo="m.parquet"))[0] == 0
    Path("day9.csv").write_text("mail,app\na@x,maps\n")
    assert week(*other(9, "s.parquet", memo="m.parquet", user="mail"))[0] == 3
    assert week.error.argument == "user"


@pytest.mark.long
def test_a_memo_that_is_not_the_last_one(week):
    """Neither lost, nor an old copy, nor a file with two names: in each, answers would be drawn again."""
    Path("day9.csv").write_text("id,app\nu1,maps\n")
    assert week(*other(9, "r4.parquet"), "--round", "4")[0] == 2
    assert (week.error.flag, week.error.value) == ("--round", 4)
    assert not Path("memo.parquet").exists()
    assert week(*other(9, "r1.parquet"))[0] == 0
    shutil.copy("memo.parquet", "old.parquet")
    Path("day9.csv").write_text("id,app\nu1,news\nu2,chat\n")
    assert week(*other(9, "r2.parquet"))[0] == 0
    last = Path("memo.parquet").read_bytes()

    def refused():
        memo = Path("memo.parquet")
        before = memo.read_bytes() if memo.exists() else None
        assert week(*other(9, "r3.parquet"))[0] == 3
        assert week.error.file == "memo.parquet"
        assert (memo.read_bytes() if memo.exists() else None) == before
        assert not Path("r3.parquet").exists()

    Path("memo.parquet").unlink()
    refused()
    shutil.copy("old.parquet", "memo.parquet")
    refused()
    Path("memo.parquet").write_bytes(last)
    Path("link.parquet").hardlink_to("memo.parquet")
    refused()
    Path("link.parquet").unlink()
    assert week(*other(9, "r3.parquet"))[0] == 0
    shutil.copy("old.parquet", "memo.parquet")
    Path("memo.parquet.lock").unlink()  # as the message says
    assert week(*other(9, "r4.parquet"))[0] == 0
    Path("memo.parquet").unlink()
    Path("memo.parquet.lock").write_bytes(b"{")  # damaged: as without
    assert week(*other(9, "r5.parquet"))[0] == 0
    for place, damaged in enumerate((b'{"generation": "x"}', b'{"generation": null}')):
        Path("memo.parquet.lock").write_bytes(damaged)
        assert week(*other(9, f"r{6 + place}.parquet"))[0] == 0


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_memo_is_secret_again_after_every_round(week):
    Path("day9.csv").write_text("id,app\nu1,maps\n")
    for number in (1, 2):
        assert week(*other(9, f"r{number}.parquet"))[0] == 0
        assert stat.S_IMODE(Path("memo.parquet").stat().st_mode) == 0o600
        Path("memo.parquet").chmod(0o644)


def test_the_memo_of_another_collection_is_described_in_words(week):
    Path("day9.csv").write_text("id,app\nu1,maps\n")
    Path("turned.txt").write_text("news\nmaps\nchat\n")
    week.done(*other(9, "r1.parquet"))
    said = week.said(3, *other(9, "r2.parquet", domain="turned.txt"))
    assert (week.error.argument, week.error.value in said) == ("domain", False)
    unseeded = other(9, "r2.parquet")
    seed = unseeded.index("--seed")
    said = week.said(3, *unseeded[:seed], *unseeded[seed + 2 :])
    assert (week.error.argument, "--seed" in said) == ("simulated", True)


@pytest.mark.long
def test_the_memo_of_other_users_says_nothing_of_these(week):
    for user in ("u1", "v1"):
        Path("day9.csv").write_text(f"id,app\n{user},maps\n")
        week.done(*other(9, f"{user}.parquet", memo=f"memo-{user}.parquet"))
    metadata = io.read_metadata("u1.parquet")
    loss, rounds = PrivacyLoss(metadata, np.ones(1, np.int64)), {1: io.Source("u1.parquet")}
    assert spent(loss, rounds, Path("memo-u1.parquet"))
    with refused("memo", error=io.DataError, file="memo-v1.parquet"):
        spent(loss, rounds, Path("memo-v1.parquet"))


@pytest.mark.long
def test_rounds_of_two_memos_are_told(week):
    """With equal parameters and users they were read as rounds of one collection, without a word."""
    Path("day9.csv").write_text("id,app\nu1,maps\nu2,news\n")

    def collected(memo, out):
        given = other(9, out, memo=memo)
        place = given.index("--seed")
        del given[place : place + 2]
        week.done(*given)
        return io.read_metadata(out).collection

    first = [collected("a.parquet", "a1.parquet"), collected("a.parquet", "a2.parquet")]
    second = [collected("b.parquet", "b1.parquet"), collected("b.parquet", "b2.parquet")]
    assert first[0] == first[1] != second[0] == second[1]
    assert None not in (first[0], second[0])
    alike, mixed = (rrjax.read(files) for files in (["a1.parquet", "a2.parquet"], ["a1.parquet", "b2.parquet"]))
    assert len(mixed.warnings) == len(alike.warnings) + 1
    # What they spend was said to be as with one permanent answer.
    with refused(error=io.DataError, file="b2.parquet", value=2):
        mixed.shares()
    assert alike.shares().loss.most == 2
    Path("day9.csv").write_text("id,app\nv1,maps\nv2,news\n")
    collected("c.parquet", "c1.parquet")
    collected("c.parquet", "c2.parquet")
    # Other users, of whom some miss a round: a round has files of several memos, in any order.
    for files, most in ((["a1", "c2"], 1), (["a1", "c1", "c2"], 2), (["c2", "a1", "c1", "a2"], 2)):
        found = rrjax.read([f"{file}.parquet" for file in files])
        assert found.shares().loss.most == most
        assert len(found.warnings) == len(mixed.warnings)
    Path("day9.csv").write_text("id,app\nw1,maps\nu1,maps\n")
    collected("d.parquet", "d1.parquet")
    collected("d.parquet", "d2.parquet")
    with refused(error=io.DataError, file="d2.parquet", value=1):  # the second file of its round
        rrjax.read(["a1.parquet", "c1.parquet", "c2.parquet", "d2.parquet"]).shares()
    Path("day9.csv").write_text("id,app\nu1,maps\nu2,news\n")
    metadata, rounds = io.read_metadata("a1.parquet"), {1: io.Source("a1.parquet")}
    loss = PrivacyLoss(metadata, np.ones(2, np.int64))
    assert spent(loss, rounds, Path("a.parquet"))
    with refused("memo", error=io.DataError, file="b.parquet"):
        spent(loss, rounds, Path("b.parquet"))


@pytest.mark.full
def test_files_that_cannot_be(week):
    assert week(*line(1))[0] == 0
    Path("old.parquet").write_bytes(Path("memo.parquet").read_bytes())
    assert week(*line(2))[0] == 0
    before = Path("memo.parquet").read_bytes()
    assert week("report", "day1.parquet", "day2.parquet", "--memo", "old.parquet")[0] == 3
    assert week.error.argument == "memo"
    assert week(*line(3, "loloha"))[0] == 3  # the memo of another protocol
    assert week.error.argument == "mechanism"
    Path("day3.csv").write_text("id,app\nu1,maps\nu2,news\nu1,chat\n")
    assert week(*line(3))[0] == 3
    assert week.error.row == 3
    assert Path("memo.parquet").read_bytes() == before
    week.refuses("REPORTS", "compare", "day1.parquet", "day2.parquet")
    for flags in (("--ordered",), ("--epsilon", "2")):
        week.refuses(flags[0], "report", "day1.parquet", "day2.parquet", *flags)
    assert week("report", "day1.parquet", "day2.parquet", "--memo", "none.parquet")[0] == 3
    assert week.error.file == "none.parquet"
    week.refuses("--memo", "report", "day3.csv", "--epsilon", "1", "--memo", "memo.parquet")
    assert week("estimate", "day1.parquet", "day2.parquet", "--mean")[0] == 2
    values_of(3)
    Path("other.parquet").write_bytes(Path("day1.parquet").read_bytes())
    given = list(line(3))
    given[given.index("memo.parquet")] = "other.parquet"
    week.refuses("--memo", *given)


def exact_loss(number):
    """ε of this many reports of one value at ε∞ = 4, ε₁ = 2 and K = 3, by enumeration of all reports."""
    d1, d = ((np.exp(epsilon) - 1) / (np.exp(epsilon) + 2) for epsilon in (4.0, 2.0))
    permanent, again = (share * np.eye(3) + (1 - share) / 3 for share in (d1, d / d1))
    reports = np.indices((3,) * number).reshape(number, -1)
    law = permanent @ np.prod(again[:, reports], axis=1)
    return float(np.log(law[0] / law[1]).max())


@pytest.mark.full
def test_what_users_have_spent(week):
    for day in (1, 2, 3):
        assert week(*line(day))[0] == 0
    # Users 0 to 399 have another value on the third day, and users from 3,000 have no report on the fourth.
    io.write_table("day4.csv", {"id": np.array([f"u{n}" for n in range(3000)]), "app": np.repeat("chat", 3000)})
    assert week(*line(4))[0] == 0
    given = ("day1.parquet", "day2.parquet", "day4.parquet")
    spent = week.json("estimate", *given)["spent"]
    assert (spent["num_users"], spent["reports_per_user"]) == (4000, {"median": 3, "most": 3})
    assert (spent["one_report"], spent["one_value"]) == (2, 4)
    assert spent["unchanged"]["most"] == pytest.approx(exact_loss(3), rel=1e-6)
    week.done("report", *given, "--memo", "memo.parquet", "--top", "2")
    assert {"4,000", "11,000", f"{exact_loss(3):.4g}", "7,000"} <= numbers_of("day1-report.html")
    assert "u399" not in Path("day1-report.html").read_text("utf-8")  # of the memo only counts
    week.done("report", "day2.parquet", "--out", "one.html")
    assert "7,000" not in numbers_of("one.html")


def numbers_of(page):
    html = Path(page).read_text("utf-8")
    check_page(html)
    return set(re.findall(r"\d[\d.,]*\d|\d", html))


@pytest.mark.full
def test_a_user_twice_in_one_round(week):
    assert week(*line(1))[0] == 0
    shutil.copy("day1.parquet", "copy.parquet")
    users = "SELECT * FROM 'day1.parquet' WHERE id IN ('u7', 'u9')"
    metadata = io.read_metadata("day1.parquet")
    assert metadata is not None
    duckdb.connect().execute(f"COPY ({users}) TO 'some.parquet' (KV_METADATA {{rrjax: ?}})", [metadata.to_json()])
    for command in (("estimate",), ("compare",), ("report", "--force"), ("estimate", "--mean")):
        for other, row in (("copy.parquet", None), ("some.parquet", 1)):
            assert week(command[0], "day1.parquet", other, *command[1:])[0] == 3
            assert (week.error.file, week.error.row) == (other, row)
            assert {"day1.parquet", other} <= {word.strip(",:") for word in str(week.error).split()}
    assert week("estimate", "some.parquet", "--json")[0] == 0


def ids(kind):
    """Users 1 to 20 of day 1 and day 2, in a file of their ids in this form."""
    if kind in ("INTEGER", "DOUBLE", "DECIMAL(9,2)", "FLOAT"):
        query = f"SELECT CAST(i AS {kind}) AS id, 'maps' AS app FROM range(1, 21) AS t(i)"
        duckdb.connect().execute(f"COPY ({query}) TO 'day9.parquet'")
        return "day9.parquet"
    Path("day9.csv").write_text("id,app\n" + "".join(f"{i}{kind},maps\n" for i in range(1, 21)))
    return "day9.csv"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["INTEGER", "DOUBLE", "FLOAT", "DECIMAL(9,2)", "", ".", ".0", ".000"])
def test_one_user_in_every_spelling(week, kind):
    made = {}
    for number, spelled in enumerate(("", kind)):
        given = list(line(9, out=f"r{number}.parquet"))
        given[1] = ids(spelled)
        made = json.loads(week.done(*given))
    assert (made["round"], made["num_users"], made["num_new_answers"]) == (2, 20, 0)
    assert read_users(io.Source("r1.parquet"), "id").tolist() == [str(number) for number in range(1, 21)]


@pytest.mark.long
def test_ids_that_are_other_users(week):
    Path("day9.csv").write_text("id,app\n7,maps\n007,maps\n7.5,maps\n-7,maps\nx7.0,maps\nx7,maps\n")
    made = json.loads(week.done(*line(9)))
    assert made["num_users"] == 6
    assert len(made["warnings"]) == 2  # of the simulation; of 7 and 007
    Path("day9.csv").write_text("id,app\n7,maps\n007,maps\n0,maps\n")
    assert len(json.loads(week(*other(9))[1])["warnings"]) == 2


FORMS = [
    ("e\u0301", "\u00e9"),
    ("u1", "\uff55\uff11"),
    ("u1", "\u00a0u1 "),
    ("u1", "u\u200b1\ufeff"),
    ("3", "\uff13.0"),
    ("31", "\u0663\u0661"),  # digits of Arabic
    ("-7", "\u22127"),  # a minus
    ("a-1", "a\u20101"),  # hyphens
    ("a-1", "a\u20131"),
    ("u1", "u1\u0001"),  # a control that is no blank
]


@pytest.mark.long
@pytest.mark.parametrize(("one", "form"), FORMS)
def test_one_user_in_every_form_of_unicode(week, one, form):
    for number, name in enumerate((one, form)):
        Path("day9.csv").write_text(f"id,app\nu0,maps\n{name},maps\n", encoding="utf-8")
        out = week.done(*other(9, f"r{number}.parquet"))
    assert json.loads(out)["num_users"] == 2
    Path("day9.csv").write_text(f"id,app\n{one},maps\n{form},maps\n", encoding="utf-8")
    assert week(*other(9))[0] == 3
    assert (week.error.column, week.error.row) == ("id", 2)
    Path("day9.csv").write_text("id,app\n\u00a0,maps\n", encoding="utf-8")
    assert week(*other(9))[0] == 3
    assert (week.error.column, week.error.row) == ("id", 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("one", "other_one"),
    [("Ann@x", "ann@x"), ("a b", "a  b"), ("12ab-34cd", "12ab34cd"), ("2024-01-02", "2024-01-02 00:00:00")]
    + [("2024-01-02T10:30:00Z", name) for name in ("2024-01-02 10:30:00", "2024-01-02T10:30:00.000+00:00")],
)
def test_ids_in_other_capitals_or_signs_are_told(week, one, other_one):
    warnings = []
    for names in (one, other_one, one):
        Path("day9.csv").write_text("id,app\n" + "".join(f"{name},maps\n" for name in (*"bcd", names)))
        out = week.done(*other(9, f"r{len(warnings)}.parquet"))
        warnings.append(len(json.loads(out)["warnings"]))
    assert warnings == [1, 2, 1]  # of the simulation; those of round 3 are both known


@pytest.mark.long
def test_users_who_report_in_more_rounds_count_once(week):
    """From the second day on the first half alone report, who are those of maps: 5/6 of the reports."""
    for day in range(1, 6):
        apps = np.repeat(["maps", "news"], 500)[: 1000 if day == 1 else 500]
        io.write_table(f"day{day}.csv", {"id": np.arange(len(apps)).astype(str), "app": apps})
        given = list(line(day))
        given[given.index("4")], given[given.index("2")] = "6", "4"
        week.done(*given)
    days = [f"day{day}.parquet" for day in range(1, 6)]
    found = {row["label"]: row for row in week.json("estimate", *days)["top"]}
    assert found["maps"]["lower"] < 0.5 < found["maps"]["upper"]
    assert abs(found["maps"]["all_rounds"] - 0.5) < 0.05  # weighted by reports .83
    assert "lean towards the former" in " ".join(week.done("estimate", *days).split())
    assert "lean" not in week.done("estimate", *days[1:])


@pytest.mark.long
def test_ids_of_one_round_in_other_capitals_or_signs_are_told(week):
    names = ["b", "ann", "7", "-7", "1-12", "11-2", "10.0.1.23", "10.0.12.3", "राम", "रमा", "علي", "علِي"]
    Path("day9.csv").write_text("id,app\n" + "".join(f"{name},maps\n" for name in names), encoding="utf-8")
    assert len(json.loads(week.done(*line(9)))["warnings"]) == 1  # of the simulation
    Path("day9.csv").write_text("id,app\nb,maps\nann,maps\nAnn,maps\n")
    assert len(json.loads(week.done(*other(9)))["warnings"]) == 2


@pytest.mark.long
@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the time zone of a process cannot be set here")
def test_times_are_the_same_users_in_every_time_zone(week, monkeypatch):
    """Most are of winter, where London has UTC, so that a few would be new without a word."""
    rows = "SELECT TIMESTAMPTZ '2024-01-15 12:00:00+00' + INTERVAL (i) MONTH AS id, 'maps' AS app FROM range(5) AS t(i)"
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"COPY ({rows}) TO 'day9.parquet'")
    numbers = []
    for place, zone in enumerate(("UTC", "Europe/London")):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        given = list(line(9, out=f"r{place}.parquet"))
        given[1] = "day9.parquet"
        numbers.append(json.loads(week.done(*given))["num_new_answers"])
    monkeypatch.undo()
    time.tzset()
    assert numbers == [5, 0]


@pytest.mark.long
@pytest.mark.parametrize(("name", "warned"), [("?", True), ("NaN", True), ("-1", True), ("ann", False)])
def test_ids_that_look_like_missing_ones_are_told(week, name, warned):
    Path("day9.csv").write_text(f"id,app\nb,maps\n{name},maps\n")
    warnings = json.loads(week.done(*line(9), "--missing", "-1"))["warnings"]
    assert sum(repr(name) in warning for warning in warnings) == warned


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "now"),
    [("007", "7"), ("7", "+7"), ("1000", "1e3"), ("-7", "-07.0"), ("1234567", "1,234,567"), ("1001", "1.001")]
    + [("1001", f"1{sign}001") for sign in " _'"] + [("0.5", ".5"), ("3", "'3"), ("7", "7,0")]
    + [("1234567", name) for name in ("1,234,567.00", "1.234.567,00", "1\u02bc234\u02bc567", "12,34,567")],
)  # fmt: skip
def test_ids_that_are_one_number_in_the_next_round(week, before, now):
    """A spreadsheet that drops zeros, or that shows thousands, makes new users of all."""
    Path("day9.csv").write_text(f'id,app\n"{before}",maps\n')
    assert week(*line(9))[0] == 0
    memo = Path("memo.parquet").read_bytes()
    Path("day9.csv").write_text(f'id,app\n"{now}",maps\n')
    code, _, error = week(*other(9))
    assert (code, week.error.column, week.error.value) == (3, "id", None)
    assert f": {now} for {before}" not in error  # logs keep messages
    assert f": {now} for {before}" in week(*other(9), "--show-values")[2]
    assert Path("memo.parquet").read_bytes() == memo


@pytest.mark.long
@pytest.mark.parametrize("place", ["rrjax.cli.longitudinal.read_users", "rrjax.io.write.selected"])
def test_a_file_that_changes_while_it_is_read(week, monkeypatch, place):
    """Between the values and the users, and between these and their copy in the reports."""
    before, after = "id,app\nu1,maps\nu2,news\n", "id,app\nu2,news\nu1,maps\n"
    Path("day9.csv").write_text(before)
    assert week(*line(9))[0] == 0
    rounds = memo_rounds()
    module, name = place.rsplit(".", 1)
    read = getattr(importlib.import_module(module), name)

    def changed(*arguments, **more):
        Path("new.csv").write_text(after)
        Path("new.csv").replace("day9.csv")
        return read(*arguments, **more)

    monkeypatch.setattr(place, changed)
    assert week(*other(9))[0] == 3
    assert week.error.file == "day9.csv"
    assert memo_rounds() == rounds == [1]
    assert not Path("r.parquet").exists()


def memo_rounds():
    return json.loads(duckdb.sql("SELECT value FROM parquet_kv_metadata('memo.parquet')").fetchall()[0][0])["rounds"]


@pytest.mark.long
@pytest.mark.parametrize(("more", "warned"), [("", False), ("v2,maps\n", False), ("v2,maps\nv3,maps\n", True)])
def test_a_round_whose_users_are_new(week, more, warned):
    Path("day9.csv").write_text("id,app\nu1,maps\n")
    assert len(json.loads(week(*line(9))[1])["warnings"]) == 1  # of the simulation
    Path("day9.csv").write_text(f"id,app\nu1,maps\n{more}")
    assert len(json.loads(week.done(*other(9)))["warnings"]) == 1 + warned


@pytest.mark.long
def test_ids_that_are_not_exact(week):
    """The limit itself is what the next integer is rounded to, which is another user."""
    for kind, largest in (("DOUBLE", 2**53 - 1), ("FLOAT", 2**24 - 1)):
        query = f"SELECT CAST({largest} + 2 * i AS {kind}) AS id, 'maps' AS app FROM range(2) AS t(i)"
        duckdb.connect().execute(f"COPY ({query}) TO 'day9.parquet'")
        given = list(line(9, out="r.parquet"))
        given[1] = "day9.parquet"
        assert week(*given)[0] == 3
        assert (week.error.column, week.error.row) == ("id", 2)
        for other_kind in ("INTEGER", "VARCHAR"):
            query = f"SELECT CAST(i AS {other_kind}) AS id, 'maps' AS app FROM range(1, 3) AS t(i)"
            duckdb.connect().execute(f"COPY ({query}) TO 'day8.parquet'")
            both = [given[0], "day8.parquet", *given[1:]]  # whose columns are joined as those of a third type
            assert week(*both)[0] == 3
            assert (week.error.file, week.error.row) == ("day9.parquet", 2)


def test_hashes_that_look_like_numbers_are_users():
    """Of eight digits in base 16, some ten thousandths are zero to the power of something."""
    assert one_number(["0e123456", "0e654321", "00000000", "001e5000", "12e45678", "10000000"]) == []
    assert one_number(["5000", "5e3", "5e+3", "5,000.0"]) == [["5000", "5e3", "5e+3", "5,000.0"]]


@pytest.mark.long
def test_ids_without_their_last_digits(week):
    """As spreadsheets show large numbers."""
    for name, odd in (
        *((name, True) for name in ("1.23457E+12", "1e+1", "1,23457E+12", "1.23457e12", "'1.2E+12", f"{2**53 + 3}.0")),
        *((name, False) for name in ("1.25E+2", "12e3", "1E5F", "+4712345", "1.25E1", f"{2**53 - 3}.0")),
    ):
        Path("day9.csv").write_text(f'id,app\nu1,maps\n"{name}",maps\n')
        assert week(*line(9, out=f"{name}.parquet"))[0] == 3 * odd
        if odd:
            assert (week.error.column, week.error.row) == ("id", 2)
            assert name not in str(week.error)


@pytest.mark.long
@pytest.mark.parametrize("name", [LRR, "longitudinal-local-hashing"])
def test_a_memo_of_an_earlier_version(week, name):
    """It may hold "3.0" beside 3: one user, whose first answers count."""
    Path("day9.csv").write_text("id,app\n3,maps\n3.5,news\n4,chat\n")
    assert week(*line(9, name))[0] == 0
    connection = duckdb.connect()
    record = json.loads(connection.execute("SELECT value FROM parquet_kv_metadata('memo.parquet')").fetchall()[0][0])
    del record["unmoved"], record["sum"]
    assert "collection" not in record  # of a simulation
    older = """SELECT CASE "user" WHEN '4' THEN '4.0' ELSE "user" END AS "user", * EXCLUDE ("user") FROM 'memo.parquet'
        UNION ALL SELECT '3.0', key, seed + 1, 1 - answer FROM 'memo.parquet' WHERE "user" = '3'"""
    connection.execute(f"COPY ({older}) TO 'older.parquet' (KV_METADATA {{rrjax_memos: ?}})", [json.dumps(record)])
    before = Path("older.parquet").read_bytes()
    Path("day8.csv").write_text("id,app\n3.0,maps\n3.5,news\n4,chat\n")
    given = list(line(8, name))
    given[given.index("memo.parquet")] = "older.parquet"
    made = json.loads(week.done(*given))
    assert (made["round"], made["num_users"], made["num_new_answers"]) == (2, 3, 0)
    assert made["answers_per_user"] == {"median": 1, "most": 2}  # the second answer was spent, too
    assert Path("older.parquet").read_bytes() != before
