"""Files of reports of a longitudinal protocol: a file holds one round, users have reports in several rounds."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from rrjax.data.errors import DataError, number
from rrjax.io.database import (
    connect,
    declare_spelling,
    explaining,
    is_parquet,
    is_rounded,
    parquet,
    parquet_record,
    user_name,
)
from rrjax.io.domain import Domain
from rrjax.io.metadata import MEMO_KEY, MechanismRecord, Metadata
from rrjax.io.rows import read_rows
from rrjax.io.scan import Scan, error_at, place_of, scanning
from rrjax.io.source import Source
from rrjax.io.tallies import read_reports
from rrjax.io.write import CODINGS, DAMAGED_MEMO, copy, replacing
from rrjax.privacy.clients.locking import Lock, locked
from rrjax.privacy.clients.longitudinal import LongitudinalClient

_NUMBER = r"'?([+-]?([0-9]+([.,\u066b][0-9]*)?|[.,\u066b][0-9]+|[1-9]([.,][0-9]+)?[eE][+-]?[0-9]{1,3}))"
"""Pattern of a number, also after the apostrophe by which spreadsheets mark a text; of those with an exponent as they
show them, because eight digits of a hash may look like another one."""
_IN_THOUSANDS = r"'?([+-]?[0-9]{1,3}([,. _'’ʼ\u066c][0-9]{2,3})*[,. _'’ʼ\u066c][0-9]{3})([.,\u066b][0-9]*)?"  # noqa: RUF001
_PLAIN = r"0|-?[1-9][0-9]*"
_TIME = r"(.*[0-9])[T ]([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*[1-9])?)\.?0*(?:Z|\+00(?::?00)?)?"
INEXACT = "a number that was rounded: too large to be exact as a float, or without its last digits, as 1.2E+12"


def rounds_of(source: Source) -> dict[int, Source]:
    """The files of each round, in the order of the rounds; empty if they are not of a longitudinal protocol."""
    rounds: dict[int, list[str]] = {}
    for file in source.files():
        metadata = Source(file).metadata() if source.file_format() == "parquet" else None
        if metadata is None or metadata.round is None:
            return {}
        rounds.setdefault(metadata.round, []).append(file)
    return {number: Source(rounds[number]) for number in sorted(rounds)}


def several_rounds(source: Source) -> dict[int, Source]:
    """The files of each round by its number, if there are several rounds of a longitudinal protocol; else empty."""
    metadata = source.metadata()
    rounds = {} if metadata is None or metadata.round is None else rounds_of(source)
    if len(rounds) < 2:
        return {}
    return {number: dataclasses.replace(source, paths=each.files()) for number, each in rounds.items()}


def read_users(source: Source, column: str, *, new: bool = False) -> np.ndarray:
    """The user of each row, texts `[N]`, the same for 3, "3.0" and 3.0 and all forms of Unicode; as `check_users`.

    Of a `new` round texts such as 1.2E+12 are refused, too.
    """
    with _scanned(source, column, new) as (chosen, names):
        return np.asarray(chosen.connection.execute(names).fetchnumpy()["name"], object)


def check_users(source: Source, column: str) -> None:
    """Raises `DataError` for a row without a user, or with an id that is not exact, and for a user with two rows."""
    with _scanned(source, column):
        pass


def one_number(users: Iterable[str]) -> list[list[str]]:
    """The groups of different ids that are one number, such as 7, 007 and +7, or 1000, 1e3 and 1,000.

    Example:
        >>> one_number(["7", "8", "x7", "007", "1e3", "1000", "1.000"])
        [['7', '007'], ['1e3', '1000', '1.000']]
    """
    names = dict.fromkeys(users)
    odd = {name: numbers for name in names if not re.fullmatch(_PLAIN, name) and (numbers := numbers_in(name))}
    if not odd:  # the usual case: no two are one number
        return []
    groups: dict[Decimal, list[str]] = {}
    for name in names:
        for each in odd.get(name) or ({Decimal(name)} if re.fullmatch(_PLAIN, name) else ()):
            groups.setdefault(each, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def numbers_in(name: str) -> set[Decimal]:
    """The numbers that a text may be: 1.000 may be one, or a thousand."""
    texts = [match[1]] if (match := re.fullmatch(_NUMBER, name)) else []
    if match := re.fullmatch(_IN_THOUSANDS, name):
        texts.append(re.sub("[^0-9+-]", "", match[1]) + (match[3] or ""))
    return {Decimal(re.sub("[,\u066b]", ".", text)) for text in texts}


def time_of(name: str) -> str:
    """The text of a time as that of UTC without a zone, or as its day at midnight; other texts unchanged."""
    if time := re.fullmatch(_TIME, name):
        return time[1] if time[2] == "00:00:00" else time[1] + " " + time[2]
    return name


def letters_of(name: str, *, numbers: bool = False) -> str:
    """The letters and digits of an id, without capitals; a time at midnight is its day, and UTC needs no zone.

    With `numbers`, those with a sign between them are several: of a household and a person 1-12 and 11-2 are two.

    Example:
        >>> letters_of("Ab-12 c"), letters_of("2024-01-02 00:00:00"), letters_of("2024-01-02T10:30:00Z")
        ('ab12c', '20240102', '20240102103000')
        >>> letters_of("A 1-12", numbers=True)
        'a1-12'
    """
    if name.isalnum():  # the usual case
        return name.casefold()
    name = time_of(name)
    parts = re.split(r"(?<=[0-9])[\W_]+(?=[0-9])", name) if numbers else [name]
    return "-".join("".join(filter(_is_letter, each.casefold())) for each in parts)


def _is_letter(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"  # vowels of some scripts are marks


@contextmanager
def _scanned(source: Source, column: str, new: bool = False) -> Iterator[tuple[Scan, str]]:
    """The scan of a column of users, checked, and the query of their names in the order of the rows."""
    files = source.files()
    for file in files if len(files) > 1 else ():  # columns of two types are joined as a third one
        with _scanned(dataclasses.replace(source, paths=file), column, new):
            pass
    with scanning(dataclasses.replace(source, column=column, missing=())) as chosen:
        chosen.query("SET preserve_insertion_order = true")
        declare_spelling(chosen.connection)
        rounded = is_rounded(chosen.kind) if new or chosen.kind != "text" else "false"
        name = f"CASE WHEN NOT {rounded} THEN {user_name(chosen.kind)} END"
        names = f"SELECT {name} AS name FROM ({chosen.sql})"
        odd = chosen.query(
            "SELECT name IS NULL, min(place) AS first, max(place) FROM (SELECT row_number() OVER () - 1 AS place, name "
            f"FROM ({names})) GROUP BY name HAVING name IS NULL OR count(*) > 1 ORDER BY first LIMIT 1"
        )
        if odd:
            raise _unfit(chosen, *odd[0])
        yield chosen, names


def _unfit(chosen: Scan, nameless: bool, first: int, last: int) -> DataError:
    """The error about the first row without a name, or about the first and the last row of one name."""
    if nameless:
        return error_at(chosen, first, f"no user, or {INEXACT}")
    file, row = place_of(chosen, first)
    problem = f"another row of the user of {file}, row {row:,}; each user has one report a round"
    return error_at(chosen, last, problem)


def memos_of(sources: Iterable[Source]) -> dict[str, str]:
    """The memo of each file, by the random text that its rounds carry; without files of earlier versions."""
    told = {file: Source(file).metadata() for source in sources for file in source.files()}
    return {file: own.collection for file, own in told.items() if own is not None and own.collection is not None}


def users_of(rounds: dict[int, Source], metadata: Metadata) -> list[np.ndarray]:
    """The names of the users of each round, in the order of its rows.

    `DataError` for users with reports of several memos: their permanent answers to one value are as many.
    """
    column, memos = metadata.user or "", memos_of(rounds.values())
    users = [read_users(source, column) for source in rounds.values()]
    if len({*memos.values()}) < 2:
        return users
    of: dict[str, str] = {}
    several: dict[str, str] = {}  # users, and a file of another memo than that of their first one
    for file, memo in memos.items():
        for name in read_users(Source(file), column).tolist():
            if of.setdefault(name, memo) != memo:
                several.setdefault(name, file)
    if several:
        raise DataError.at(
            next(iter(several.values())),
            f"{number(len(several), 'user has', 'users have')} reports of other memos, too, each with a permanent "
            "answer of its own, which spends ε∞ again. Estimate the rounds of each memo by themselves.",
            value=len(several),
        )
    return users


def reports_per_user(users: list[np.ndarray]) -> np.ndarray:
    """The number of reports of each user in all rounds together, `[N]`; `users` as from `users_of`."""
    return np.unique(np.concatenate(users).astype(str), return_counts=True)[1]


def reports_of_users(rounds: dict[int, Source], metadata: Metadata, users: list[np.ndarray]) -> list[np.ndarray]:
    """The reports of each user in all rounds together: arrays `[N, T, …]`, one for each number T of rounds."""
    reports = []
    for source in rounds.values():
        if CODINGS[metadata.mechanism.name] == "labels":
            column = dataclasses.replace(source, column=metadata.column)
            reports.append(read_rows(column, metadata.domain).indices)
        else:
            reports.append(read_reports(source, metadata))
    codes = np.unique(np.concatenate(users).astype(str), return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    rows, numbers = np.concatenate(reports)[order], np.bincount(codes)
    firsts = np.cumsum(numbers) - numbers
    return [rows[firsts[numbers == each][:, None] + np.arange(each)] for each in np.unique(numbers)]


VERSION = 1
"""Version of the file format."""


def head_of(record: MechanismRecord, column: str, domain: Domain, simulated: bool, user: str | None) -> dict[str, Any]:
    """The `head` of the memo of reports with this protocol, column, domain and column of users."""
    own = {name: record.parameters[name] for name in ("num_categories", "epsilon", "first_epsilon")}
    common = {"column": column, "domain": domain.fingerprint, "simulated": simulated, "user": user}
    return {"mechanism": record.name, **own, **common}


@dataclass
class Memos:
    """The permanent answers of all users.

    Attributes:
        users: `[M]`, the name of the user of each answer.
        keys: `[M]`, the value or bucket that it is for.
        seeds: `[M]`, the seed of the user's hash function; zero without.
        answers: `[M]` integers, or `[M, K]` bits.
        rounds: The rounds that were reported, in ascending order.
        unmoved: The complete reports of the last round, and the file that they become by a move, which is the only step
            of the round after this memo was written; None without. Relative to the memo's folder where they can be.
        generation: How often the memo was written.
        collection: A random text that all rounds of the memo carry, and those of its copies; None in a simulation, and
            in a memo of an earlier version until its next round.
        writes: A random text for each time that the memo was written, so that copies that went on apart differ; none in
            a simulation, and by earlier versions.
    """

    users: np.ndarray
    keys: np.ndarray
    seeds: np.ndarray
    answers: np.ndarray
    rounds: list[int]
    unmoved: tuple[str, str] | None = None
    generation: int = 0
    collection: str | None = None
    writes: tuple[str, ...] = ()

    def with_answers(
        self, client: LongitudinalClient, users: np.ndarray, values: np.ndarray
    ) -> tuple[Memos, np.ndarray]:
        """All answers, the missing ones of these values drawn, and the place `[N]` of each user's among them."""
        names, seed_of, place_of = users.tolist(), {}, {}
        # Earlier versions took 3 and "3.0" for two users, with a seed and answers each: those of the first one count.
        columns = zip(self.users.tolist(), self.keys.tolist(), self.seeds.tolist(), strict=True)
        for place, (name, key, seed) in enumerate(columns):
            if seed_of.setdefault(name, seed) == seed:
                place_of.setdefault((name, key), place)
        fresh = [name for name in dict.fromkeys(names) if name not in seed_of]
        seed_of |= dict(zip(fresh, client.seeds(len(fresh)).tolist(), strict=True))
        seeds = np.asarray([seed_of[name] for name in names], np.uint32)
        wanted = list(zip(names, client.keys(seeds, values).tolist(), strict=True))
        new = [pair for pair in dict.fromkeys(wanted) if pair not in place_of]
        place_of |= {pair: len(self.users) + place for place, pair in enumerate(new)}
        places = np.asarray([place_of[pair] for pair in wanted], np.int64)
        if not new:
            return self, places
        keys = np.asarray([key for _, key in new], np.int32)
        drawn = client.memoize(keys)
        old = self.answers if len(self.answers) else drawn[:0]
        more = Memos(
            np.concatenate([self.users, np.asarray([name for name, _ in new], object)]),
            np.concatenate([self.keys, keys]),
            np.concatenate([self.seeds, np.asarray([seed_of[name] for name, _ in new], np.uint32)]),
            np.concatenate([old, drawn]),
            self.rounds,
            generation=self.generation,
            collection=self.collection,
            writes=self.writes,
        )
        return more, places

    @property
    def numbers(self) -> np.ndarray:
        """The number of permanent answers of each user."""
        return np.unique(self.users.astype(str), return_counts=True)[1]


def _sum_of(record: Mapping[str, Any], users: Any, keys: Any, seeds: Any, answers: Any) -> str:
    """A hash of all that a memo holds: Parquet has no checksum of its own, and one byte may be a user's ε∞."""
    digest = hashlib.blake2b(json.dumps(record).encode(), digest_size=16)
    digest.update("\0".join(map(str, users)).encode())
    for column in (keys, seeds, answers):
        column = np.asarray(column)
        digest.update(b"".join(column.tolist()) if column.dtype == object else column.astype("<i8").tobytes())
    return digest.hexdigest()


def _noted(memos: Memos) -> dict[str, Any]:
    """What the lock notes of the memo that was written."""
    return {"generation": memos.generation} | ({"write": memos.writes[-1]} if memos.writes else {})


@dataclass
class MemoFile:
    """A Parquet file of `Memos`, readable by its owner alone, which is created with the first round.

    `head` is what all rounds have in common, in JSON's types: protocol, parameters, domain, columns.
    """

    path: Path
    head: dict[str, Any]
    _lock: Lock | None = field(default=None, init=False, repr=False)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Memos]:
        """Locks the file and reads it; empty memos if it is not there.

        `DataError`, and nothing is changed: it cannot be read or locked, is no memo, is one of another collection, has
        a second name, does not come from the one in its lock's note, or is not there while the note shows that it was.
        Also if the last round was interrupted before its reports had their name: now they have it.
        """
        try:
            with locked(Path(os.path.realpath(self.path)), self.path) as self._lock:
                if self.path.exists() and os.stat(self.path).st_nlink > 1:
                    raise self._refused(
                        "has a second name (a hard link), under which the answers of this round would be missing. Copy "
                        "it to a file of one name, use that one alone from now on, and delete the others"
                    )
                memos, note = self._read(), self._lock.note()
                if memos.collection is None and not self.head["simulated"]:
                    memos.collection = token_hex(8)  # written with this round
                last = note.get("generation", 0)
                if memos.generation < last or note.get("write") not in (None, *memos.writes):
                    raise self._not_the_last()
                if memos.unmoved is not None and not (note.get("moved") and memos.generation == last):
                    self._complete(memos, copied=not note)
                yield memos
        except OSError as error:
            file = f"{Path(error.filename).name}: " if isinstance(error.filename, str) else ""
            raise self._refused(f"cannot be locked or read ({file}{error.strerror or error})") from error

    def _complete(self, memos: Memos, copied: bool) -> None:
        """Finishes an interrupted last round, which is an error, because it may be the one that is asked for.

        A memo that was `copied` without its lock does not know whether the round was interrupted.
        """
        assert memos.unmoved is not None
        assert self._lock is not None
        folder, number = self._folder, memos.rounds[-1]
        aside, place = (
            Path(os.path.normpath(folder / each)) for each in memos.unmoved
        )  # an absolute path stays as it is
        if not aside.exists() and not place.exists() and (folder / aside.name).exists():  # moved to the memo
            aside, place = folder / aside.name, folder / place.name
        if not aside.exists():
            if place.exists():  # it was moved
                return
            if copied:
                raise self._refused(
                    f"does not know whether round {number} was finished; its lock does. From where the memo was "
                    f"copied, copy {self._lock.path.name} to {self._lock.path}, too, and give the command again. If it "
                    f"is lost, and the reports of round {number} are safe: put an empty file at {place} (make its "
                    "folder), give the command again, and delete that file"
                )
            raise DataError(
                f"Round {number} was written to {aside}, to become {place}, and neither is there: was the folder "
                "moved? Bring one of the two back, and give the command again. If you moved the reports or lost them, "
                f"put an empty file at {place}, give the command again, and delete it. No round was made.",
                file=str(place),
            )
        if place.exists():
            raise DataError(
                f"{place} is in the way of the reports of round {number}, which was interrupted: they are complete, in "
                f"{aside}. Move {place.name} to another folder, and give the command again.",
                file=str(place),
            )
        os.replace(aside, place)
        self.note_moved(memos)
        raise DataError(
            f"Round {number} was interrupted after the memo had noted it. Its reports are in {place} now, and nothing "
            "else was made. For the next round give the command again.",
            file=str(place),
        )

    def _not_the_last(self) -> DataError:
        assert self._lock is not None
        spent = "would be drawn again, which spends ε∞ again"
        if not self.path.exists():
            return self._refused(
                f"is not there, and {self._lock.path} shows that it was: its permanent answers {spent}. Bring it back; "
                f"for the first round of a new collection name another file, or delete {self._lock.path}"
            )
        return self._refused(
            f"is not the memo that was written here last, as {self._lock.path} shows, but an old copy of it, one that "
            f"went on apart, or that of another collection: answers that it lacks {spent}. Bring back the last one; if "
            f"it is lost, or this one is meant, delete {self._lock.path}"
        )

    def _read(self) -> Memos:
        if not self.path.exists():
            empty = np.zeros(0, np.int32)
            return Memos(np.zeros(0, object), empty, empty.astype(np.uint32), empty, [])
        record, rows = self._parts()
        for name, wanted in self._full_head.items():
            value = record.get(name)
            if value == wanted or (name == "user" and name not in record):  # written by the next round
                continue
            problem = "it is the memo of another collection, and answers must not be mixed"
            has = f"has {name} ="
            if name == "user":
                problem = "under other names the same people would spend ε∞ again. Name the column as before"
                has = "names its users by the column"
            values = f" {value!r}, not {wanted!r}"
            # Fingerprints and truth values say nothing to a person.
            if name == "domain":
                has, values = "has other categories, or these in another order", ""
            elif name == "simulated":
                has, values = f"was made {'with' if value else 'without'} --seed", ""
            raise self._refused(f"{has}{values}: {problem}", argument=name, value=value)
        answers = np.asarray(rows["answer"])
        if answers.dtype == object:
            size = self.head["num_categories"]
            packed = np.frombuffer(b"".join(answers.tolist()), np.uint8).reshape(len(answers), -1)
            answers = np.unpackbits(packed, axis=1, count=size).astype(bool)
        users = np.asarray(rows["user"], object)
        unmoved = record.get("unmoved")
        return Memos(
            users,
            np.asarray(rows["key"]),
            np.asarray(rows["seed"]),
            answers,
            list(record["rounds"]),
            unmoved and tuple(unmoved),
            record.get("generation", 0),
            record.get("collection"),
            tuple(record.get("writes", ())),
        )

    def _parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The record of the memo, and its rows, as they were written."""
        import duckdb

        file = str(self.path)
        try:
            known = is_parquet(file)
        except OSError as error:
            raise self._refused(f"cannot be read ({error.strerror or error})") from error
        if not known:
            raise self._refused("is no file of memos")
        try:
            with connect() as connection:
                text = parquet_record(connection, file, MEMO_KEY)
                record = None if text is None else dict(json.loads(text))
                declare_spelling(connection)
                user = user_name("text", '"user"')
                query = f'SELECT * REPLACE ({user} AS "user"), "user" AS written FROM {parquet([file])}'
                rows = {} if record is None else connection.execute(query).fetchnumpy()
                hashed = [rows[name] for name in ("written", "key", "seed", "answer")] if rows else []
                written = (record or {}).pop("sum", None)  # an earlier version wrote none
                is_whole = written is None or written == _sum_of(record or {}, *hashed)
        except (duckdb.OutOfMemoryException, duckdb.IOException, duckdb.InterruptException):
            with explaining([file]):
                raise
        except (duckdb.Error, ValueError, TypeError, KeyError) as error:
            raise self._refused(DAMAGED_MEMO) from error
        if record is None:  # a changed byte may have made another name of the record
            was_memo = self._lock is not None and self._lock.note()
            raise self._refused(DAMAGED_MEMO if was_memo else "is no file of memos")
        if not is_whole:
            raise self._refused(DAMAGED_MEMO)
        return record, rows

    def read(self) -> Memos:
        """The memos, of a file that must be there; errors as of `opened`."""
        if not self.path.exists():
            raise self._refused("is not there")
        return self._read()

    def write(self, memos: Memos) -> None:
        """Writes all answers aside, then renames; `DataError` for a file that cannot be written."""
        answers = memos.answers
        if answers.ndim == 2:
            rows = np.empty(len(answers), object)
            rows[:] = [row.tobytes() for row in np.packbits(answers, axis=1)]
            answers = rows
        columns = {"user": memos.users, "key": memos.keys, "seed": memos.seeds, "answer": answers}
        kind = "CAST(answer AS BLOB)" if memos.answers.ndim == 2 else "answer"
        state = {"rounds": memos.rounds, "unmoved": memos.unmoved, "generation": memos.generation + 1}
        writes = memos.writes
        if memos.collection is not None:
            writes = (*writes, token_hex(4))
            state |= {"collection": memos.collection, "writes": writes}
        held = {**self._full_head, **state}
        held["sum"] = _sum_of(held, memos.users, memos.keys, memos.seeds, answers)
        record = json.dumps(held, ensure_ascii=False)
        before = os.umask(0o077)  # the file is secret from its first byte
        try:
            # The new file gets the permissions of the old one, which may be missing, or somebody else's.
            with contextlib.suppress(OSError):
                os.chmod(self.path, 0o600)
            with replacing(self.path, over=("memo",)) as aside, connect() as connection:
                connection.register("memos", columns)
                rows = f'SELECT "user", key, seed, {kind} AS answer FROM memos'
                copy(connection, rows, aside, MEMO_KEY, record)
                os.chmod(aside, 0o600)
        finally:
            os.umask(before)
        memos.generation, memos.writes = memos.generation + 1, writes
        if self._lock is not None:
            self._lock.write(**_noted(memos))  # after the memo, so that the note is never ahead of it

    def add_round(self, memos: Memos, number: int, aside: Path, place: Path) -> None:
        """Writes that a round has been made: its complete reports are in `aside`, and their move to `place` is next."""
        names = []
        for path in (aside, place):
            try:
                names.append(os.path.relpath(path, self._folder))
            except ValueError:  # on another drive of Windows
                names.append(str(path))
        memos.rounds, memos.unmoved = [*memos.rounds, number], (names[0], names[1])
        self.write(memos)

    def note_moved(self, memos: Memos) -> None:
        """Notes that the reports of the last round have their name, so that they may be moved elsewhere."""
        if self._lock is not None:
            self._lock.write(**_noted(memos), moved=True)

    @property
    def _folder(self) -> Path:
        return Path(os.path.realpath(self.path)).parent

    @property
    def _full_head(self) -> dict[str, Any]:
        return {"format": "rrjax memos of a longitudinal collection", "version": VERSION, **self.head}

    def _refused(self, problem: str, **attributes: Any) -> DataError:
        return DataError(f"{self.path} {problem}; nothing was changed", file=str(self.path), **attributes)
