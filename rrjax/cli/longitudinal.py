"""`rrjax randomize` by a longitudinal protocol: permanent answers in a memo, and the reports of one round."""

from __future__ import annotations

import dataclasses
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from rrjax import io
from rrjax.cli import show
from rrjax.cli.interrupt import ending_at_once, finishing
from rrjax.cli.paths import Paths
from rrjax.cli.randomization import metadata_of, randomness
from rrjax.cli.reading import Files
from rrjax.data.errors import ArgumentError, DataError, UsageError
from rrjax.io.labels import MISSING
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.rounds import MemoFile, Memos, head_of, letters_of, numbers_in, one_number, read_users
from rrjax.io.rows import Values
from rrjax.io.write import CODINGS, ROUND, Kept
from rrjax.mechanisms.table import names_in
from rrjax.privacy.clients.longitudinal import LongitudinalClient
from rrjax.reports import form
from rrjax.reports.parameters import check_epsilon

if TYPE_CHECKING:
    import jax

PANEL = "Many reports of the same users"


@dataclasses.dataclass(frozen=True)
class Rounds:
    """The flags of a longitudinal protocol."""

    memo: Annotated[
        Path | None,
        typer.Option(
            help="The .parquet file of the permanent answers of all users: secret, made in the first round and needed "
            "in all others.",
            rich_help_panel=PANEL,
        ),
        Paths("writes", over=("memo",)),
    ] = None
    user: Annotated[
        str | None, typer.Option(help="The column that says whose value a row is.", rich_help_panel=PANEL)
    ] = None
    first_epsilon: Annotated[
        float | None,
        typer.Option(
            help="ε of a single report, in nats; --epsilon is that of all reports of one value.", rich_help_panel=PANEL
        ),
    ] = None
    round: Annotated[
        int | None,
        typer.Option(min=1, help="The number of this round; by default the next one.", rich_help_panel=PANEL),
    ] = None

    def check(self, mechanism: str) -> bool:
        """Whether the mechanism is a longitudinal protocol; refuses its flags for others, and a lack of them."""
        given = {"--memo": self.memo, "--user": self.user, "--first-epsilon": self.first_epsilon}
        if mechanism not in (protocols := names_in("PROTOCOLS")):
            odd = next((flag for flag, value in {**given, "--round": self.round}.items() if value is not None), None)
            if odd is not None:
                raise UsageError(
                    f"{odd} is for a longitudinal --mechanism ({', '.join(protocols)}), not for {mechanism}", flag=odd
                )
            return False
        lacking = next((flag for flag, value in given.items() if value is None), None)
        if lacking is not None:
            raise UsageError(f"--mechanism {mechanism} needs {lacking}", flag=lacking)
        if self.memo is not None and self.memo.suffix.lower() != ".parquet":
            raise UsageError.about("--memo", f"{self.memo}: the file of a memo is a .parquet", value=self.memo)
        assert self.first_epsilon is not None
        check_epsilon(self.first_epsilon, "first_epsilon")  # estimates refuse reports of another one
        return True


@dataclasses.dataclass(frozen=True)
class Reported:
    """The reports of one round that were written."""

    metadata: Metadata
    num_reports: int
    memos: Memos
    num_new: int
    """Permanent answers that were drawn in this round."""
    warnings: list[str]
    """About the ids of users."""


def make_round(
    files: Files, values: Values, out: Path, how: Rounds, name: str, epsilon: float, seed: int | None
) -> Reported:
    """Draws the permanent answers that are missing, keeps them, and writes the reports of one round."""
    assert how.memo is not None
    assert how.user is not None
    assert how.first_epsilon is not None
    for flag, column in (("--column", values.column), ("--user", how.user)):
        if column.casefold() == ROUND:
            problem = f"{column}: a column of this name has the number of the round. Rename yours"
            raise UsageError.about(flag, problem, value=column)
    if values.column.casefold() == how.user.casefold():
        raise UsageError.about("--user", f"{how.user}: this is the column of reports, too", value=how.user)
    with ending_at_once():
        device = _client(name, values.domain.num_categories, epsilon, how.first_epsilon, None, 1)
    users = read_users(files.source, how.user, new=True)
    if values.present is not None:
        users = users[values.present]
    domain = values.domain
    head = head_of(MechanismRecord(name, device.parameters), values.column, domain, seed is not None, how.user)
    file = MemoFile(how.memo, head)
    with ExitStack() as ending, file.opened() as memos:
        number = how.round or (memos.rounds[-1] + 1 if memos.rounds else 1)
        if memos.rounds and number <= memos.rounds[-1]:
            raise UsageError.about(
                "--round",
                f"{number}: {how.memo} has the rounds up to {memos.rounds[-1]} already; rounds are reported in "
                "their order, each once",
                value=number,
            )
        if number > 1 and not memos.rounds:
            raise UsageError.about(
                "--round",
                f"{number}: {how.memo} has no round before it. Give --memo the file of the rounds before: in "
                "a new one all users spend ε∞ again. The first round has the number 1",
                value=number,
            )
        if seed is not None:
            with ending_at_once():
                device = _client(name, domain.num_categories, epsilon, how.first_epsilon, seed, number)
        files.source.check_unchanged()  # values and users were read one after the other
        warnings = _check_ids(users, set(memos.users.tolist()), files, how, number)
        before = len(memos.users)
        with ending_at_once():
            memos, places = memos.with_answers(device, users, values.indices)
        if len(memos.users) > before:
            file.write(memos)  # before any report is made of them
        with ending_at_once():
            reports = device.report(memos.seeds[places], memos.answers[places])
        record = MechanismRecord(name, device.parameters)
        effective = epsilon if seed is not None else device.effective_epsilon
        metadata = metadata_of(
            values, record, effective, seed, round=number, user=how.user, collection=memos.collection
        )
        coded = io.coded(CODINGS[name], reports, domain.num_categories)

        def commit(aside: Path, place: Path) -> None:
            # An interruption before this leaves no reports of this round; after it, the next round moves them.
            files.source.check_unchanged()  # the column of users was read again, to write it
            ending.enter_context(finishing())
            file.add_round(memos, number, aside, place)

        io.write_reports(out, coded, metadata, kept=Kept(files.source, (how.user,), values.present), commit=commit)
        file.note_moved(memos)
    return Reported(metadata, len(reports), memos, len(memos.users) - before, warnings)


def _check_ids(users: np.ndarray, known: set[str], files: Files, how: Rounds, number: int) -> list[str]:
    """Warnings about ids that may be other spellings of a user's id, by which the user would spend ε∞ again.

    `DataError` for an id that is new, and the same number as one that the memo has and these files lack.
    """
    here = set(users.tolist())
    groups, added, absent = one_number([*known, *users.tolist()]), here - known, known - here
    twins = [(old, new) for group in groups for new in added.intersection(group) for old in absent.intersection(group)]
    if twins:
        old, new = twins[0]
        told = f": {new} for {old}" if files.reading.show_values else " (--show-values shows one)"
        raise DataError.at(
            files.source.files()[0],
            f"{form.number(len(twins), 'id of a new user is a number', 'ids of new users are numbers')} that "
            f"{how.memo} has, written otherwise{told}. Write these ids as in the rounds before: as new users they "
            "spend ε∞ again. If they are new users, give them ids that are other numbers, or none. Nothing was changed",
            column=how.user,
        )
    warnings, alike = [], [here.intersection(group) for group in groups]
    if num_same := len(set().union(*(each for each in alike if len(each) > 1))):
        warnings.append(
            f"{num_same:,} ids of {how.user!r} are the same numbers as others, as 7 and 007, and count as different "
            "users. If they are one, the user spends twice: write ids in one way."
        )
    before = {letters for name in absent if (letters := letters_of(name))}
    # Within a round numbers are others with a sign or a point.
    letters_here = {name: letters_of(name, numbers=True) for name in here if not numbers_in(name)} if added else {}
    beside = Counter(filter(None, letters_here.values()))
    alike_here = {name for name in added if beside[letters_here.get(name, "")] > 1}
    if num_alike := sum(name in alike_here or letters_of(name) in before for name in added):
        others = form.number(num_alike, "new id differs", "new ids differ")
        warnings.append(
            f"{others} from another id, of this round or of one before, in capitals, blanks or signs alone. If they "
            "are the same users, they spend ε∞ again: write ids in one way."
        )
    if odd := sorted(name for name in here if name in files.source.missing or name.casefold() in MISSING):
        warnings.append(
            f"{form.number(len(odd), 'id looks like a missing one', 'ids look like missing ones')}: "
            f"{', '.join(map(repr, odd))}. Whoever has it in another round gets the same permanent answers: leave "
            "rows without an id out."
        )
    if known and 2 * len(added) > len(here):
        warnings.append(
            f"{len(added):,} of {len(here):,} users are new in round {number}. If they had other ids in the rounds "
            "before, they spend ε∞ again."
        )
    return warnings


class _Simulated:
    """A mechanism with the key of a simulation, in place of a client."""

    def __init__(self, mechanism: Any, key: jax.Array) -> None:
        self.mechanism, self.key = mechanism, key

    def randomize(self, values: np.ndarray) -> np.ndarray:
        """Reports, from another key in every call."""
        import jax

        self.key, own = jax.random.split(self.key)
        return np.asarray(self.mechanism.randomize(own, values))


def _client(
    name: str, num_categories: int, epsilon: float, first_epsilon: float, seed: int | None, number: int
) -> LongitudinalClient:
    import jax

    from rrjax.mechanisms import MECHANISMS

    try:
        if seed is None:
            return LongitudinalClient(name, num_categories, epsilon, first_epsilon)
        key = jax.random.fold_in(jax.random.key(seed), number)
        keys = iter(jax.random.split(key, 3))

        def make(mechanism: str, size: int, own: float) -> _Simulated:
            return _Simulated(MECHANISMS[mechanism](size, own), next(keys))

        def words(size: int) -> np.ndarray:
            return np.asarray(jax.random.bits(next(keys), (size,), np.uint32))

        return LongitudinalClient(name, num_categories, epsilon, first_epsilon, make=make, words=words)
    except ArgumentError as error:
        flag = {"first_epsilon": "--first-epsilon", "num_categories": "--domain"}.get(error.argument or "", "--epsilon")
        raise UsageError(f"{flag}: {error}", flag=flag, value=error.value) from error


def show_round(made: Reported, how: Rounds, out: Path, warnings: list[str], json: bool) -> None:
    """Prints what was written, and what the users have spent."""
    metadata, numbers, warnings = made.metadata, made.memos.numbers, [*warnings, *made.warnings]
    first, last = (float(metadata.mechanism.parameters[name]) for name in ("first_epsilon", "epsilon"))
    most, often = int(numbers.max()), int(np.median(numbers))
    facts = {
        "command": "randomize",
        "out": out,
        "memo": how.memo,
        "num_reports": made.num_reports,
        "round": metadata.round,
        "rounds": made.memos.rounds,
        "user": metadata.user,
        "column": metadata.column,
        "mechanism": metadata.mechanism.name,
        "num_categories": metadata.num_categories,
        "parameters": metadata.mechanism.parameters,
        "simulated": metadata.simulated,
        "num_users": len(numbers),
        "num_new_answers": made.num_new,
        "answers_per_user": {"median": often, "most": most},
        "spent": {"median": often * last, "most": most * last},
        "warnings": warnings,
    }
    if json:
        show.record(facts)
        return
    show.warn(warnings)
    show.say(
        f"Round {metadata.round}: {form.number(made.num_reports, 'report', 'reports')} {randomness(metadata)}, by "
        f"{metadata.mechanism.name}; domain: {metadata.domain.describe()}; ε = {first:g} nats a report, {last:g} for "
        "all reports of one value."
    )
    show.say(
        f"The memo has {form.number(len(made.memos.users), 'permanent answer', 'permanent answers')} of "
        f"{form.number(len(numbers), 'user', 'users')}, {made.num_new:,} of them new. Each spends {last:g} nats: a "
        f"user has spent {often * last:g} (median), at most {most * last:g}."
    )
    show.say("The times of changes are not protected: many reports show when a value changed, and whether it returned.")
    show.show_files({"Reports": out, "Memo (secret)": how.memo})
