"""Clients of longitudinal protocols: laws and ε in exact numbers; of the memo on file, one answer a value."""

import json
import math
import os
import pathlib
import random
import stat
import subprocess
import sys
import threading
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from laws import check_frequencies
from refusals import refused

from rrjax import secure
from rrjax.data.errors import DataError
from rrjax.mechanisms import PROTOCOLS
from rrjax.privacy.clients import Memo, locking
from rrjax.privacy.clients.longitudinal import LongitudinalClient, second_epsilon

pytestmark = pytest.mark.once  # no floating point between random bits and reports
NUM_USERS, LAST, FIRST = 40_000, 3.0, 1.0


def matrix(size, p, q):
    return np.where(np.eye(size, dtype=bool), p, q)


@pytest.mark.long
@pytest.mark.usefixtures("urandom")
def test_reports_have_the_law_of_two_randomized_responses(tmp_path):
    users = [Memo(tmp_path / str(user), f"user {user}", 3, 2.0, 1.0) for user in range(200)]
    rounds = np.array([[memo.report(1) for memo in users] for _ in range(2)])
    first, second = (
        matrix(3, math.exp(each), 1.0) / (math.exp(each) + 2) for each in (2.0, second_epsilon(3, 2.0, 1.0))
    )
    law = first[1] @ (second[:, :, None] * second[:, None, :]).reshape(3, 9)
    check_frequencies(np.bincount(rounds[0] * 3 + rounds[1], minlength=9), law)


def made(name, values, rounds=2):
    client = LongitudinalClient(name, 4, LAST, FIRST)
    seeds = client.seeds(len(values))
    answers = client.memoize(client.keys(seeds, values))
    return PROTOCOLS[name](**client.parameters), [client.report(seeds, answers) for _ in range(rounds)]


@pytest.mark.usefixtures("urandom")
@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_round_has_the_law_of_its_mechanism(name):
    protocol, (first, _) = made(name, np.full(NUM_USERS, 2))
    mechanism = protocol.single_round
    supported = np.asarray(mechanism.supports(first)).sum(axis=0)
    p, q = float(mechanism.rates.p), float(mechanism.rates.q)
    for category, number in enumerate(supported.tolist()):
        share = p if category == 2 else q
        check_frequencies([number, NUM_USERS - number], [share, 1 - share])


@pytest.mark.usefixtures("urandom")
@pytest.mark.parametrize("name", PROTOCOLS)
def test_two_rounds_share_their_permanent_answer(name):
    protocol, rounds = made(name, np.full(NUM_USERS, 2))
    both = np.logical_and(*(np.asarray(protocol.single_round.supports(each))[:, 2] for each in rounds)).sum()
    # Given the memo rounds are independent: P(both) = Σ_m P(m)·P(support | m)².
    p1, p2, q2 = (float(x) for x in (protocol.permanent.p, protocol.instantaneous.p, protocol.instantaneous.q))
    share = p1 * p2**2 + (1 - p1) * q2**2
    check_frequencies([int(both), NUM_USERS - int(both)], [share, 1 - share])


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_more_than_the_epsilons_asked_for(name):
    client = LongitudinalClient(name, 4, LAST, FIRST)
    assert LAST * (1 - 1e-8) < client.effective_epsilon <= LAST
    own, second = client._permanent.likelihood_ratio, client._instant.likelihood_ratio
    if name.endswith("unary-encoding"):
        return  # one bit of two: the law above
    size = client._num_answers
    # e^ε of two randomized responses in a row, in exact fractions.
    p1, p2 = own / (own + size - 1), second / (second + size - 1)
    q1, q2 = (1 - p1) / (size - 1), (1 - p2) / (size - 1)
    first = (p1 * p2 + (size - 1) * q1 * q2) / (p1 * q2 + q1 * p2 + (size - 2) * q1 * q2)
    assert isinstance(first, Fraction)
    assert FIRST * (1 - 1e-8) < math.log(first) <= FIRST * (1 + 1e-15)


def test_impossible_protocols_are_refused():
    with refused("name"):
        LongitudinalClient("randomized-response", 4, LAST, FIRST)
    with refused("first_epsilon"):
        LongitudinalClient("longitudinal-randomized-response", 4, FIRST, LAST)


# --- ε ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_one_report_never_delivers_more_than_the_first_epsilon():
    """From the integers of both clients, exactly; and no more than 2⁻²⁸ of it less."""
    draw = random.Random(0)
    for _ in range(600):
        size = draw.choice([2, 3, 4, 10, 1000, 2**31 - 1])
        last = 10 ** draw.uniform(-4, 1.3)
        first = last * draw.choice([draw.random(), 1e-3, 0.5, 1 - 1e-6])
        second = second_epsilon(size, last, first)
        keep = math.prod(Fraction(secure.base.keep_threshold(size, each), 2**128) for each in (last, second))
        ratio = 1 + size * keep / (1 - keep)
        with mpmath.workdps(80):
            delivered = mpmath.log1p(mpmath.mpf((ratio - 1).numerator) / (ratio - 1).denominator)
            assert delivered <= mpmath.mpf(first), (size, last, first)
            assert delivered >= mpmath.mpf(first) * (1 - mpmath.mpf(2) ** -28), (size, last, first)


def test_the_second_epsilon_is_the_float_below_the_exact_one():
    for size, last, first in (
        (2, 1.0, 0.5),
        (5, 3.0, 1.0),
        (50, 0.1, 1e-6),
        (3, 30.0, 29.0),
        (7, 800.0, 1e-30),
        (2, 5e300, 9.0),
    ):
        with mpmath.workdps(400):
            one, all_of_them = mpmath.mpf(first), mpmath.mpf(last)
            apart = -mpmath.expm1(one - all_of_them)
            more = (size - 1) * mpmath.exp(-all_of_them) + mpmath.exp(one - all_of_them)
            exact = one + mpmath.log1p(-mpmath.expm1(-one) * more / apart)
            found = second_epsilon(size, last, first)
            assert mpmath.mpf(found) <= exact < mpmath.mpf(math.nextafter(found, math.inf)), (size, last, first)


def test_an_epsilon_is_refused_before_it_is_asked(tmp_path):
    # The second one at which ε∞ itself can be delivered, but not the ε₂ that would make so much of it.
    for last, first in ((60.0, 1.0), (30.0, 30.0 - 1e-9), (2.0, 1e-40)):
        with refused("epsilon"):
            Memo(tmp_path / "memo", "x", 4, last, first)
    for last, first, argument in (
        (1.0, 1.0, "first_epsilon"),
        (math.inf, 1.0, "first_epsilon"),
        (1.0, 0.0, "first_epsilon"),
        (1.0, "0.5", "first_epsilon"),
        (math.nan, 0.5, "epsilon"),
        (True, 0.5, "epsilon"),
    ):
        with refused(argument):
            Memo(tmp_path / "memo", "x", 4, last, first)
    with refused("user"):
        Memo(tmp_path / "memo", ("survey", 17), 4, 1.0, 0.5)
    assert not list(tmp_path.iterdir())


def test_what_is_spent_is_never_too_little(tmp_path):
    for last in (0.1, 0.7, 1.1, 3.3):
        memo = Memo(tmp_path / str(last), "x", 12, last, last / 2)
        for value in range(12):
            memo.report(value)
            assert (
                (value + 1) * Fraction(last)
                <= Fraction(memo.spent)
                <= (value + 1) * Fraction(last) * (1 + Fraction(1, 2**51))
            )


# --- One answer a value ----------------------------------------------------------------------------------------


def answers_of(path):
    return {int(value): answer for value, answer in json.loads(path.read_text())["answers"].items()}


@pytest.mark.usefixtures("urandom")
def test_two_memos_on_one_file_have_one_answer(tmp_path):
    path = tmp_path / "memo.json"
    given = ("survey/17", 50, 2.0, 1.0)
    for value in range(20):  # by chance alike in one of twenty, where each drew its own
        one, two = Memo(path, *given), Memo(path, *given)
        one.report(value)
        before = answers_of(path)
        two.report(value)
        assert answers_of(path) == before
        assert one._answers[value] == two._answers[value]
    # What the one drew does not vanish when the other one writes.
    one, two = Memo(path, *given), Memo(path, *given)
    one.report(30)
    two.report(31)
    assert set(answers_of(path)) == {*range(20), 30, 31}
    assert two.spent == 22 * 2.0
    link = tmp_path / "link.json"
    link.symlink_to(path)
    Memo(link, *given).report(32)
    assert link.is_symlink()
    assert 32 in answers_of(path)


def test_a_memo_of_two_names_gets_no_answer(tmp_path):
    """The write would leave the other name behind, without the answer."""
    names = [tmp_path / name for name in ("memo.json", "linked.json")]
    memo = Memo(names[0], "one", 4, 2.0, 1.0)
    memo.report(1)
    os.link(*names)
    content = names[0].read_text()
    with refused(error=DataError, file=names[0]):
        memo.report(2)
    memo.report(1)
    assert [name.read_text() for name in names] == [content, content]
    names[1].unlink()
    memo.report(2)


@pytest.mark.usefixtures("urandom")
def test_a_file_that_was_taken_away_or_exchanged(tmp_path):
    path = tmp_path / "memo.json"
    memo = Memo(path, "x", 50, 2.0, 1.0)
    memo.report(3)
    kept = answers_of(path)
    path.unlink()
    memo.report(4)
    assert answers_of(path).items() >= kept.items()
    content = json.loads(path.read_text())
    content["answers"]["3"] = (kept[3] + 1) % 50
    path.write_text(json.dumps(content))
    with refused(error=DataError, file=path):
        memo.report(5)
    assert set(answers_of(path)) == {3, 4}


def _answer(path, gate, size):
    gate.wait()
    memo = Memo(path, "x", size, 2.0, 1.0)
    for value in range(size):
        memo.report(value)
    return memo._answers


IN_PROCESS = """
import json, sys
from rrjax.privacy.clients.longitudinal import Memo
path, size = sys.argv[1], int(sys.argv[2])
memo = Memo(path, "x", size, 2.0, 1.0)
print("ready", flush=True)
sys.stdin.readline()
for value in range(size):
    memo.report(value)
print(json.dumps(list(memo._answers.items())))
"""


@pytest.mark.long
def test_two_processes_on_one_file_have_one_answer(tmp_path):
    path, size = tmp_path / "memo.json", 40
    command = [sys.executable, "-c", IN_PROCESS, str(path), str(size)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=dict(os.environ), **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [dict(json.loads(process.communicate(timeout=60)[0])) for process in processes]
    assert answers[0] == answers[1] == answers_of(path)
    assert len(answers[0]) == size


@pytest.mark.parametrize("locks", [True, False])
def test_threads_on_one_file_have_one_answer(tmp_path, monkeypatch, locks):
    if not locks:
        monkeypatch.setattr(locking, "fcntl", None)
    path, size, found = tmp_path / "memo.json", 15, []
    gate = threading.Barrier(3)
    threads = [threading.Thread(target=lambda: found.append(_answer(path, gate, size))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [answers_of(path)] * 3
    if not locks:
        assert not path.with_name("memo.json.lock").exists()


def test_a_lock_that_was_left_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(locking, "fcntl", None)
    monkeypatch.setattr(locking, "LOCK_TIMEOUT_SECONDS", 0.02)
    path = tmp_path / "memo.json"
    lock = tmp_path / "memo.json.lock"
    lock.touch()
    memo = Memo(path, "x", 4, 2.0, 1.0)
    with refused(error=DataError, file=str(lock)):
        memo.report(1)
    assert not path.exists()
    lock.unlink()
    memo.report(1)


# --- Files -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("urandom")
def test_a_memo_is_kept_and_taken_for_no_other(tmp_path, monkeypatch):
    path = tmp_path / "memo.json"
    given = (path, "survey/17", 4, 3.0, 1.0)
    with monkeypatch.context() as patch:  # stopped before the file was renamed
        patch.setattr(pathlib.Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("stopped")))
        memo = Memo(*given)
        with refused(error=DataError, file=path):
            memo.report(2)
    assert not path.exists()
    assert memo.spent == 0
    memo.report(2)
    memo.report(np.int32(0))
    content = json.loads(path.read_text())
    assert set(content["answers"]) == {"0", "2"}
    assert memo.spent == 6.0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Memo(*given)
    reports = [again.report(2) for _ in range(400)]
    assert json.loads(path.read_text()) == content
    assert again.spent == 6.0
    assert max(set(reports), key=reports.count) == content["answers"]["2"]
    for changed, name in (
        ((path, "survey/18", 4, 3.0, 1.0), "user"),
        ((path, "survey/17", 5, 3.0, 1.0), "num_categories"),
        ((path, "survey/17", 4, 2.0, 1.0), "epsilon"),
        ((path, "survey/17", 4, 3.0, 0.5), "first_epsilon"),
    ):
        with refused(error=DataError, file=path, column=name):
            Memo(*changed)
    for value in (4, -1, True, 1.0, "1", None, np.float64(1)):
        with refused("value") as caught:
            memo.report(value)
        assert f"got {value!r}" not in str(caught.value)
    whole = path.read_text()
    for damage in (
        json.dumps(content | {"version": 2}),
        json.dumps(content | {"answers": {"2": 4}}),
        json.dumps(content | {"answers": {"2": True}}),
        json.dumps(content | {"answers": {"2": 1.0}}),
        json.dumps(content | {"answers": {"a": 1}}),
        json.dumps(content | {"answers": [1]}),
        json.dumps({key: value for key, value in content.items() if key != "answers"}),
        whole[:-5],
        whole[: len(whole) // 2],
        "",
        "[]",
        "null",
        "[" * 100_000,
        "\udcff",
    ):
        path.write_bytes(damage.encode("utf-8", "surrogateescape"))
        with refused(error=DataError, file=path):
            Memo(*given)
        with refused(error=DataError, file=path):
            memo.report(3)  # which has been open all the while
        assert path.read_bytes() == damage.encode("utf-8", "surrogateescape")


def test_what_an_interrupted_write_left_is_no_obstacle(tmp_path, monkeypatch):
    path = tmp_path / "memo.json"
    memo = Memo(path, "x", 4, 2.0, 1.0)
    with monkeypatch.context() as patched:  # killed: the new file has not its name yet
        patched.setattr(pathlib.Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            memo.report(1)
    assert len(list(tmp_path.glob(".rrjax-*.new"))) == 1
    memo.report(1)
    assert set(answers_of(path)) == {1}
    assert {each.name for each in tmp_path.iterdir()} == {"memo.json", "memo.json.lock"}


def test_a_memo_whose_name_is_that_of_another_with_an_ending(tmp_path):
    """It was deleted, as what a killed process left."""
    other, memo = (Memo(tmp_path / name, "x", 4, 2.0, 1.0) for name in ("m.new", "m"))
    other.report(1)
    kept = (tmp_path / "m.new").read_bytes()
    memo.report(2)
    assert (tmp_path / "m.new").read_bytes() == kept


def test_files_that_cannot_be_read_or_written(tmp_path):
    with refused(error=DataError, file=tmp_path):
        Memo(tmp_path, "x", 4, 2.0, 1.0)
    nowhere = tmp_path / "no" / "memo.json"
    memo = Memo(nowhere, "x", 4, 2.0, 1.0)
    with refused(error=DataError, file=nowhere):
        memo.report(1)
    assert memo.spent == 0
    path = tmp_path / "memo.json"
    Memo(path, "x", 4, 2.0, 1.0).report(1)
    path.chmod(0o644)
    with pytest.warns(UserWarning, match="chmod 600"):
        Memo(path, "x", 4, 2.0, 1.0)


@pytest.mark.usefixtures("urandom")
def test_a_memo_outlasts_a_power_cut(tmp_path, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr("os.fsync", lambda file: (synced.append(stat.S_ISDIR(os.fstat(file).st_mode)), sync(file)))
    memo = Memo(tmp_path / "memo", "x", 4, 2.0, 1.0)
    memo.report(0)
    memo.report(0)
    assert synced == ([False, True] if hasattr(os, "O_DIRECTORY") else [False])
