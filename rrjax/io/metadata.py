"""What a file of reports says about its own collection."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from rrjax.io.database import connect, explaining, file_list
from rrjax.io.domain import Domain
from rrjax.io.errors import DataError
from rrjax.io.source import Source

if TYPE_CHECKING:
    import duckdb

__all__ = ["KEY", "Metadata", "metadata_of", "read_metadata"]

# Key of the JSON in Parquet's key-value metadata.
KEY = "rrjax"


@dataclass(frozen=True)
class Metadata:
    """How reports were made.

    Attributes:
        mechanism: name of the mechanism, such as "randomized-response".
        epsilon: privacy parameter asked for, in nats.
        effective_epsilon: privacy parameter delivered by the integer arithmetic, in nats.
        domain: the K categories.
        column: name of the column of reports.
        simulated: whether the randomness came from a seed, which protects nobody.
        version: version of rrjax that wrote the file.
        domain_from_data: whether the domain is only what happened to be among the true values.
    """

    mechanism: str
    epsilon: float
    effective_epsilon: float
    domain: Domain
    column: str
    simulated: bool
    version: str
    domain_from_data: bool = False

    @property
    def num_categories(self) -> int:
        """The number of categories, K."""
        return self.domain.num_categories

    def to_json(self) -> str:
        """The metadata as JSON text."""
        record = {**asdict(self), "domain": self.domain.to_metadata()}
        return json.dumps({**record, "num_categories": self.num_categories}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The metadata that `to_json` wrote.

        Raises:
            DataError: no JSON, a field that is missing or has the wrong type, or K that does not
                fit the domain.
        """
        try:
            record = json.loads(text)
        except ValueError as error:
            raise DataError(f"the metadata are not JSON ({error})") from error
        if not isinstance(record, dict):
            raise DataError("the metadata are not a JSON object")
        domain = Domain.from_metadata(_field(record, "domain", dict))
        if _field(record, "num_categories", int) != domain.num_categories:
            raise DataError(f"the metadata say {record['num_categories']} categories and list {domain.num_categories}")
        return cls(
            mechanism=_field(record, "mechanism", str),
            epsilon=_positive(record, "epsilon"),
            effective_epsilon=_positive(record, "effective_epsilon"),
            domain=domain,
            column=_field(record, "column", str),
            simulated=_field(record, "simulated", bool),
            version=_field(record, "version", str),
            domain_from_data=_field(record, "domain_from_data", bool),
        )


def read_metadata(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
) -> Metadata | None:
    """What Parquet files say about their collection.

    Args:
        path: one file or several, or globs.

    Returns:
        The metadata that all files agree on, None where rrjax wrote none of them.

    Raises:
        DataError: files that cannot be read, damaged metadata, or files that disagree.
    """
    files = Source(path, format="parquet").files()
    with connect() as connection, explaining(files):
        return metadata_of(connection, files)


def metadata_of(connection: "duckdb.DuckDBPyConnection", files: Sequence[str]) -> Metadata | None:
    """As `read_metadata`, on a connection that is open."""
    texts: dict[str, str] = {}
    for file in files:
        rows = connection.execute(
            f"SELECT value FROM parquet_kv_metadata({file_list([file])}) WHERE key = ?",
            [KEY.encode()],
        ).fetchall()
        if rows:
            texts[file] = rows[0][0].decode("utf-8", "replace")
    if not texts:
        return None
    silent = [file for file in files if file not in texts]
    first = next(iter(texts))
    if silent:
        raise DataError(
            f"{first} says how it was collected and {silent[0]} does not: "
            "estimate them apart, or give files of one collection."
        )
    known: dict[str, Metadata] = {}
    for file, text in texts.items():
        if text not in known:
            try:
                known[text] = Metadata.from_json(text)
            except DataError as error:
                raise DataError(f"{file}: {error}. Write the file again with rrjax randomize.") from error
        _agree(first, known[texts[first]], file, known[text])
    return known[texts[first]]


def _agree(first: str, expected: Metadata, file: str, found: Metadata) -> None:
    # What was asked for tells more than the ε that followed from it.
    for name in sorted((item.name for item in fields(Metadata)), key="effective_epsilon".__eq__):
        # Who wrote a file does not change what its reports mean.
        ours, theirs = getattr(expected, name), getattr(found, name)
        if name != "version" and ours != theirs:
            if isinstance(ours, Domain):
                ours, theirs = ours.describe(), theirs.describe()
            raise DataError(
                f"{first} and {file} were not collected alike: {name} is {ours} in the first and "
                f"{theirs} in the second. Estimate them apart."
            )


def _field(record: dict[str, Any], name: str, kind: type) -> Any:
    value = record.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"the metadata lack a valid {name!r}")
    return value


def _positive(record: dict[str, Any], name: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise DataError(f"the metadata lack a valid {name!r}")
    return math.inf if value == math.inf else float(value)
