"""Tallies on disk: what was counted on one day can be added to what is counted on another."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import DataError
from rrjax.io.database import connect, explaining, file_list, literal
from rrjax.io.domain import Domain
from rrjax.io.source import Source, only_file
from rrjax.io.tallies import made, whole
from rrjax.io.write import replacing

if TYPE_CHECKING:
    from rrjax.data.tally import Tally
    from rrjax.mechanisms import Mechanism

_KEY = "rrjax_tally"
"""Of the JSON in Parquet's key-value metadata."""


@dataclass(frozen=True)
class StoredTally:
    """A tally that was read, with what was stored beside it.

    Attributes:
        tally: The tally, equal to the one that was stored.
        mechanism: How the reports were made, at the ε that was delivered; None where it was not stored.
        domain: The labels of the categories; None where the tally did not know them.
    """

    tally: Tally
    mechanism: Mechanism | None
    domain: Domain | None


def save_tally(path: str | PathLike[str], tally: Tally, mechanism: Mechanism | None = None) -> None:
    """Writes a tally to a Parquet file, from which `load_tally` makes it again.

    The file has a row a category: its label, or its number, and its support. How many users there were, the rates, the
    fingerprint of the domain and the mechanism are in its metadata.

    Args:
        path: A .parquet file.
        tally: The tally.
        mechanism: How the reports were made, of `rrjax.mechanisms.MECHANISMS`. None stores the rates alone.

    Raises:
        DataError: Another format, a mechanism that files have no name for, or of other rates or another K than the
            tally, or a file that cannot be written.

    Example:
        >>> import tempfile, rrjax
        >>> from rrjax.io import load_tally, save_tally
        >>> mechanism = rrjax.RandomizedResponse(3, epsilon=1.0)
        >>> monday = rrjax.Tally([50, 30, 20], num_users=100, rates=mechanism.rates, domain=["no", "yes", "unsure"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_tally(f"{folder}/monday.parquet", monday, mechanism)
        ...     stored = load_tally(f"{folder}/monday.parquet")
        >>> stored.tally == monday, stored.mechanism == mechanism
        (True, True)
    """
    if not os.fspath(path).lower().endswith(".parquet"):
        raise DataError(
            f"{os.fspath(path)}: a tally is written as .parquet, which has a place for its rates.", file=path
        )
    support, number = np.asarray(tally.support), np.asarray(tally.num_users)
    if support.ndim != 1:
        raise DataError(f"{os.fspath(path)}: a file holds one tally, not those of shape {support.shape}.", file=path)
    domain = _domain_of(tally.domain)
    record = {
        "num_users": number.item(),
        "rates": {name: [float(weight), _dtype_of(weight)] for name, weight in tally.rates._asdict().items()},
        "fingerprint": tally.domain,
        "labelled": domain is not None,
        "mechanism": None if mechanism is None else _record_of(mechanism, tally),
    }
    labels = np.arange(support.size) if domain is None else domain.labels()
    columns = {"label": labels.astype(object) if labels.dtype.kind == "T" else labels, "support": support}
    with connect() as connection, replacing(path) as aside:
        connection.register("tally", columns)
        connection.execute(
            f"COPY (SELECT label, support FROM tally) TO {literal(str(aside))} (FORMAT parquet, COMPRESSION zstd, "
            f"USE_TMP_FILE false, KV_METADATA {{{_KEY}: {literal(json.dumps(record))}}})"
        )


def load_tally(path: str | PathLike[str]) -> StoredTally:
    """Reads a tally that `save_tally` wrote.

    Args:
        path: The file.

    Returns:
        The tally, equal to the one that was written, with the mechanism and the domain.

    Raises:
        DataError: A file that cannot be read or that holds no tally, a mechanism that this version of rrjax does not
            know, or more reports than the default integers of JAX can count.
    """
    import jax
    import jax.numpy as jnp

    from rrjax.data.mechanism_parameters import Rates
    from rrjax.data.tally import Tally

    file = only_file(Source(os.fspath(path), format="parquet"))
    with connect() as connection, explaining([file]):
        found = connection.execute(
            f"SELECT value FROM parquet_kv_metadata({file_list([file])}) WHERE key = ?", [_KEY.encode()]
        ).fetchall()
        if not found:
            raise DataError(f"{file} holds no tally. Reports are counted by read_tally.", file=file)
        columns = connection.execute(f"SELECT label, support FROM read_parquet({file_list([file])})").fetchnumpy()
    record = json.loads(found[0][0])
    domain = _domain_of_labels(columns["label"]) if record["labelled"] else None
    if domain is not None and domain.fingerprint != record["fingerprint"]:
        raise DataError(f"{file}: the labels are not those that the tally was stored with.", file=file, column="label")
    support = np.asarray(columns["support"])
    number = np.asarray(record["num_users"], support.dtype)
    if support.dtype.kind == "f":
        support, number = (jnp.asarray(x, jax.dtypes.canonicalize_dtype(x.dtype)) for x in (support, number))
    else:
        support, number = whole(support), whole(number)
    weights = {
        name: value if dtype is None else jnp.asarray(value, jax.dtypes.canonicalize_dtype(dtype))
        for name, (value, dtype) in record["rates"].items()
    }
    tally = Tally(support, number, rates=Rates(**weights), domain=record["fingerprint"] if domain is None else domain)
    described = record["mechanism"]
    mechanism = None if described is None else made(described["name"], described["parameters"], file)
    return StoredTally(tally, mechanism, domain)


def _domain_of(fingerprint: Any) -> Domain | None:
    labels = getattr(fingerprint, "labels", None)
    if labels is None:
        return None
    return Domain.range(labels.start, labels.stop - 1) if isinstance(labels, range) else Domain.of(labels)


def _domain_of_labels(labels):
    if labels.dtype.kind in "iu":
        return Domain.range(int(labels[0]), int(labels[-1]))
    return Domain.of(map(str, labels))


def _dtype_of(weight) -> str | None:
    """The dtype of an array; None of a number of the host, which stays one."""
    return None if isinstance(weight, int | float) else np.asarray(weight).dtype.name


def _record_of(mechanism: Mechanism, tally: Tally) -> dict[str, Any]:
    from rrjax.data.tally import equal_rates
    from rrjax.mechanisms import MECHANISMS

    if type(mechanism) is not MECHANISMS.get(mechanism.name):
        raise DataError(f"Files have no name for {type(mechanism).__name__}: leave the mechanism out.")
    if mechanism.num_categories != tally.num_categories or not equal_rates(mechanism.rates, tally.rates):
        ours, theirs = (
            f"{each.num_categories:,} categories, p = {float(each.rates.p):.9g} and q = {float(each.rates.q):.9g}"
            for each in (tally, mechanism)
        )
        raise DataError(f"The tally has {ours}; the mechanism has {theirs}: they are not of one collection.")
    parameters = {field.name: getattr(mechanism, field.name) for field in fields(mechanism)}
    return {"name": mechanism.name, "parameters": {**parameters, "epsilon": float(np.asarray(mechanism.epsilon))}}
