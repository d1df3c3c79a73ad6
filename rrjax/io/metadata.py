"""Metadata of a file of reports: mechanism, ε, domain and column."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from rrjax.data.errors import Contradiction, DataError, for_commands, option, reworded
from rrjax.io.database import Connection, parquet_record
from rrjax.io.domain import Domain
from rrjax.mechanisms.table import TABLE

KEY, MEMO_KEY, TALLY_KEY = "rrjax", "rrjax_memos", "rrjax_tally"
"""Keys of the JSON in Parquet's key-value metadata: of reports, of memos, of tallies."""
_APART = "apart"
"""Key of the list of columns that were randomized apart."""
_TYPES = {
    "mechanism": str,
    "num_categories": int,
    "epsilon": float,
    "effective_epsilon": float,
    "column": str,
    "simulated": bool,
    "version": str,
    "domain_from_data": bool,
}
"""Types of the fields; a float is a positive, finite number."""
MOST_NUMBER = 1e300
"""Limit of the numbers of a range: their sums and differences are floats, too."""
_MIN_DELIVERED, _MAX_DELIVERED = 0.99, 1 + 1e-6
"""Limits of the ε delivered over the requested ε. Integer thresholds round down by at most 1e-4; float32 may
round up by 1e-7."""


@dataclass(frozen=True)
class MechanismRecord:
    """Name and parameters of a mechanism in a file; this version of rrjax may not have the mechanism.

    Attributes:
        name: Name such as "randomized-response".
        parameters: Parameters of the mechanism. `num_categories`, K, and `epsilon`, the requested ε in nats, are always
            among them, except for a survey design, which is made from other parameters.
    """

    name: str
    parameters: dict[str, Any] = field(hash=False)

    @property
    def is_design(self) -> bool:
        """Whether it is a survey design."""
        entry = TABLE.get(self.name) if isinstance(self.name, str) else None
        return entry is not None and entry.parameters is not None


@dataclass(frozen=True)
class Metadata:
    """The metadata of a file of reports: mechanism, ε, domain and columns.

    Attributes:
        mechanism: Name and parameters of the mechanism, a `MechanismRecord`.
        effective_epsilon: ε delivered by the integer arithmetic, nats; infinite for a survey design in which an answer
            can give its user away.
        domain: The K categories, an `rrjax.io.domain.Domain`.
        column: Name of the column of reports.
        simulated: Whether the randomness came from a seed, which gives no protection.
        version: Version of rrjax that wrote the file.
        domain_from_data: Whether the domain is only the different true values.
        columns: Names of the two columns of true values, for pairs that were randomized as one; None otherwise.
        round: The round of a longitudinal protocol; None otherwise.
        user: Name of the column of its users; None otherwise.
        collection: Random text that the memo of a longitudinal protocol gives its rounds; None for others, for a
            simulation, and of earlier versions.
        range: Least and largest number of bins of equal width, for numbers that were randomized in bins; None
            otherwise.
        sampled: How many of the columns that were randomized apart each user reports, drawn at random; None for all.

    Raises:
        DataError: A field or parameter is missing or has the wrong type, ε is not positive and finite, the ε delivered
            is not the requested one (rounding apart), K does not fit the domain, only one of columns and domain is for
            pairs, or a range that is none.
    """

    mechanism: MechanismRecord
    effective_epsilon: float
    domain: Domain
    column: str
    simulated: bool
    version: str
    domain_from_data: bool = False
    columns: tuple[str, str] | None = None
    round: int | None = None
    user: str | None = None
    range: tuple[float, float] | None = None
    sampled: int | None = None
    collection: str | None = None

    def __post_init__(self) -> None:
        """Checks all fields, so that every written file can be read."""
        fields = {**self.mechanism.parameters, **vars(self), "mechanism": self.mechanism.name}
        types = dict(_TYPES)
        if self.mechanism.is_design:
            fields = {"num_categories": self.num_categories, "epsilon": self.effective_epsilon, **fields}
            if self.effective_epsilon == math.inf:
                del types["epsilon"], types["effective_epsilon"]
        size = fields.get("num_categories")
        if isinstance(size, int) and size != self.num_categories:
            message = f"the metadata say {size} categories and list {self.num_categories}"
            raise DataError(message, argument="num_categories")
        for name, expected in types.items():
            value = fields.get(name)
            if not (_is_positive(value) if expected is float else type(value) is expected):
                raise _lacking(name)
        for name, value in self.mechanism.parameters.items():
            numbers = value if isinstance(value, list) and self.mechanism.is_design else [value]
            if not (isinstance(name, str) and all(isinstance(each, int | float | str | bool) for each in numbers)):
                raise _lacking(f"mechanism: {name}")
        if not _MIN_DELIVERED * self.epsilon <= self.effective_epsilon <= _MAX_DELIVERED * self.epsilon:
            raise DataError(
                f"the metadata say that ε = {self.epsilon:g} was asked for and {self.effective_epsilon:g} delivered; "
                "rounding does not make such a difference, so one of them was changed after the reports were made",
                argument="effective_epsilon",
                value=self.effective_epsilon,
            )
        if not all(_is_text(text) for text in (self.mechanism.name, self.column, *(self.domain.listed or ()))):
            raise DataError("the metadata hold a character that no file can: half of a surrogate pair")
        names = self.columns
        if (names is None) != (self.domain.factors is None) or (
            names is not None and [type(name) for name in names] != [str, str]
        ):
            raise _lacking("columns")
        if self.round is not None and (type(self.round) is not int or self.round < 1 or not isinstance(self.user, str)):
            raise _lacking("round")
        if not isinstance(self.collection, str | None):
            raise _lacking("collection")
        if self.range is not None and not _is_range(self.range):
            raise _lacking("range")
        if self.sampled is not None and (type(self.sampled) is not int or self.sampled < 1):
            raise _lacking("sampled")

    @property
    def num_categories(self) -> int:
        """The number of categories, K."""
        return self.domain.num_categories

    @property
    def epsilon(self) -> float:
        """The requested ε, nats; of a survey design the one delivered."""
        return float(self.mechanism.parameters.get("epsilon", self.effective_epsilon))

    def check(
        self, file: str, *, column: str | None = None, epsilon: float | None = None, domain: Domain | None = None
    ) -> None:
        """Compares a caller's arguments for a file with its metadata, and raises `Contradiction` if they differ."""
        if column is not None and column != self.column:
            fact = f"whose reports are in {self.column!r}"
            raise _contradiction("column", column, file, fact, column=self.column, value=column)
        if epsilon is not None and not math.isclose(epsilon, self.epsilon, rel_tol=1e-9):
            fact = f"which was randomized with epsilon = {self.epsilon:.12g}"
            raise _contradiction("epsilon", f"{epsilon:.12g}", file, fact, value=epsilon)
        if domain is not None and domain != self.domain:
            fact = f"which was collected with the domain {self.domain.describe()}, not {domain.describe()}"
            raise _contradiction("domain", "", file, fact)

    def to_json(self) -> str:
        """The metadata as JSON text."""
        mechanism = {"name": self.mechanism.name, **self.mechanism.parameters}
        record = {**vars(self), "mechanism": mechanism, "domain": self.domain.to_metadata()}
        if self.effective_epsilon == math.inf:
            record["effective_epsilon"] = None  # JSON has no infinity
        for name in ("columns", "range", "round", "user", "sampled", "collection"):
            if record[name] is None:
                del record[name]
        return json.dumps(record, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """The metadata from a text of `to_json`.

        Raises:
            DataError: The text is not JSON, or not such metadata.
        """
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"the metadata are not JSON ({error})") from error
        if not isinstance(record, dict):
            raise DataError("the metadata are not a JSON object")
        if not isinstance(record.get("domain"), dict):
            raise _lacking("domain")
        parameters = record.get("mechanism")
        if not isinstance(parameters, dict):
            # The oldest files have only the name, and separately two parameters.
            parameters = {"name": parameters, **{name: record.get(name) for name in ("num_categories", "epsilon")}}
        known: dict[str, Any] = {item.name: record.get(item.name) for item in fields(cls)}
        known["mechanism"] = MechanismRecord(cast(str, parameters.pop("name", None)), cast(dict, parameters))
        known["domain"] = Domain.from_metadata(record["domain"])
        if known["mechanism"].is_design and known["effective_epsilon"] is None:
            known["effective_epsilon"] = math.inf
        for name in ("columns", "range"):
            if isinstance(known[name], list):
                known[name] = tuple(known[name])
        return cls(**known)


def _lacking(name: str) -> DataError:
    return DataError(f"the metadata lack a valid {name!r}", argument=name)


def _is_positive(value: Any) -> bool:
    """Whether a value is a positive number within the range of floats."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= sys.float_info.max


def _is_range(ends: Any) -> bool:
    """Whether a value is two numbers up to `MOST_NUMBER`, the smaller one first."""
    numbers = [
        end for end in ends if isinstance(end, int | float) and not isinstance(end, bool) and abs(end) <= MOST_NUMBER
    ]
    return len(ends) == len(numbers) == 2 and numbers[0] < numbers[1]


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _contradiction(argument: str, shown: str, file: str, fact: str, **attributes: Any) -> Contradiction:
    """The error for a request that contradicts a file, in the terms of the caller: "--epsilon 2", "epsilon=2"."""
    name = option(argument)
    given = f"{name} {shown}" if shown and name.startswith("--") else name + shown
    message = f"{given} contradicts {file}, {fact}; leave it out"
    return Contradiction(message, file=file, argument=argument, flag=f"--{argument}", **attributes)


def columns_to_json(columns: Sequence[Metadata]) -> str:
    """The metadata of columns that were randomized apart, as JSON text."""
    return json.dumps({_APART: [json.loads(each.to_json()) for each in columns]}, ensure_ascii=False)


def columns_from_json(text: str) -> dict[str, Metadata]:
    """The metadata of each column of reports in a file."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    parts = record.get(_APART) if isinstance(record, dict) else None
    if not isinstance(parts, list):
        columns = [Metadata.from_json(text)]
    else:
        columns = [Metadata.from_json(json.dumps(part, ensure_ascii=False)) for part in parts]
    return {each.column: each for each in columns}


def metadata_of(connection: Connection, files: Sequence[str]) -> dict[str, Metadata]:
    """The metadata common to Parquet files, by column of reports; empty if rrjax wrote none of them."""
    records = {file: parquet_record(connection, file, KEY) for file in files}
    texts = {file: text for file, text in records.items() if text is not None}
    for file in records.keys() - texts.keys():
        if parquet_record(connection, file, MEMO_KEY) is not None:
            raise DataError(
                f"{file} is the memo of a longitudinal collection: its permanent answers are a secret, and neither "
                "values nor reports. Give the files of values, or of the reports of its rounds.",
                file=file,
            )
    if not texts:
        return {}
    first = next(iter(texts))
    without = next((file for file in files if file not in texts), None)
    if without is not None:
        message = f"{first} says how it was collected and {without} does not: estimate them apart."
        raise DataError(message, file=without)
    known: dict[str, dict[str, Metadata]] = {}
    for file, text in texts.items():
        if text not in known:
            try:
                known[text] = columns_from_json(text)
            except DataError as error:
                raise reworded(error, f"{file}: {error}. Was it changed after it was written?", file=file) from error
        ours, theirs = known[texts[first]], known[text]
        if ours.keys() != theirs.keys():
            one, other = (", ".join(map(repr, columns)) for columns in (ours, theirs))
            raise DataError(f"{first} has reports in {one}, and {file} in {other}: estimate them apart.", file=file)
        for column, metadata in ours.items():
            _agree(first, metadata, file, theirs[column])
    return known[texts[first]]


def _agree(first: str, expected: Metadata, file: str, actual: Metadata) -> None:
    ours, theirs = _meaning(expected), _meaning(actual)
    # The domain and ε come first, because these two follow from them.
    for name in sorted({**ours, **theirs}, key=("num_categories", "effective_epsilon").__contains__):
        if ours.get(name) != theirs.get(name):
            one, other = (
                value.describe() if isinstance(value := record.get(name), Domain) else value
                for record in (ours, theirs)
            )
            advice = "Estimate them apart."
            if name in ("mechanism", "epsilon", "effective_epsilon"):
                advice = "Their shares can be estimated together, all else of each alone." + for_commands(
                    " See `rrjax estimate`, `rrjax test equal` and `rrjax test difference`."
                )
            raise DataError(
                f"{first} and {file} were not collected alike: {name} is {one} in the first and {other} in the second. "
                f"{advice}",
                file=file,
                argument=name,
            )


def _meaning(metadata: Metadata) -> dict[str, Any]:
    """All metadata that determine the meaning of the reports: not the version of rrjax, the round, and its memo."""
    apart = "mechanism", "version", "round", "collection"
    others = {name: value for name, value in vars(metadata).items() if name not in apart}
    return {"mechanism": metadata.mechanism.name, **metadata.mechanism.parameters, **others}
