"""Tallies on disk, for later sums; and what a command may read of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rrjax.data.errors import ArgumentError, DataError, option, refusal
from rrjax.io.database import connect, explaining, parquet, parquet_record, some
from rrjax.io.domain import Domain
from rrjax.io.metadata import TALLY_KEY
from rrjax.io.source import Source, only_file
from rrjax.io.tallies import Tallied, as_jax_integers, domain_of, make_mechanism
from rrjax.io.write import copy, replacing

if TYPE_CHECKING:
    from rrjax.data.tally import Tally
    from rrjax.mechanisms import SupportMechanism


@dataclass(frozen=True)
class StoredTally:
    """A tally from a file, with its mechanism and domain.

    Attributes:
        tally: The tally, equal to the stored one.
        mechanism: Mechanism of the reports, at the ε delivered; None if it was not stored.
        domain: The labels of the categories; None if the tally had none.
    """

    tally: Tally
    mechanism: SupportMechanism | None
    domain: Domain | None


def save_tally(path: str | PathLike[str], tally: Tally, mechanism: SupportMechanism | None = None) -> None:
    """Writes a tally to a Parquet file for `load_tally`.

    The file has a row for each category: its label or its number, and its support. Its metadata are the number of
    users, the rates, the fingerprint of the domain and the mechanism.

    Args:
        path: A .parquet file; a tally that it holds is replaced.
        tally: The tally.
        mechanism: Mechanism of the reports, of `rrjax.mechanisms.MECHANISMS`. None stores only the rates.

    Raises:
        ArgumentError: What `read_tally` or `load_tally` return: their tally is an attribute. Labels with blanks around
            them, which no file keeps.
        DataError: Another format, a mechanism without a name in files, with other rates or another K than the tally, or
            a file that cannot be written.

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
        message = f"{os.fspath(path)}: a tally is written as .parquet, which has a place for its rates."
        raise DataError(message, file=path)
    if isinstance(tally, Tallied | StoredTally):
        problem = f"is a {type(tally).__name__}, which holds one: give its .tally, and its .mechanism after it"
        raise ArgumentError.about("tally", problem)
    support, number = np.asarray(tally.support), np.asarray(tally.num_users)
    if support.ndim != 1:
        raise DataError(f"{os.fspath(path)}: a file holds one tally, not those of shape {support.shape}.", file=path)
    domain = domain_of(tally.domain)
    if domain is not None and domain.fingerprint != tally.domain:
        problem = "has labels that no file keeps, such as with blanks around them: give it a domain without them"
        raise ArgumentError.about("tally", problem)
    record = {
        "num_users": number.item(),
        "rates": {
            # A number on the host is stored as one, without a dtype.
            name: [
                np.asarray(weight).astype(float).tolist(),
                None if isinstance(weight, int | float) else np.asarray(weight).dtype.name,
            ]
            for name, weight in tally.rates._asdict().items()
        },
        "fingerprint": tally.domain,
        "labelled": domain is not None,
        "mechanism": None if mechanism is None else _record_of(mechanism, tally),
    }
    labels = np.arange(support.size) if domain is None else domain.labels()
    columns = {"label": labels.astype(object) if labels.dtype.kind == "T" else labels, "support": support}
    with replacing(path, over=("tally",)) as aside, connect() as connection:
        connection.register("tally", columns)
        copy(connection, "SELECT label, support FROM tally", aside, TALLY_KEY, json.dumps(record))


def load_tally(path: str | PathLike[str]) -> StoredTally:
    """The tally in a file of `save_tally`, equal to the written one, with its mechanism and domain: a `StoredTally`.

    Raises:
        DataError: A file that cannot be read or is no tally, a mechanism that this version of rrjax does not have, or
            more reports than the default integers of JAX can count.
    """
    import jax
    import jax.numpy as jnp

    from rrjax.data.mechanism_parameters import Rates
    from rrjax.data.tally import Tally

    file = only_file(Source(os.fspath(path), format="parquet"))
    with connect() as connection, explaining([file]):
        text = parquet_record(connection, file, TALLY_KEY)
        if text is None:
            raise DataError(f"{file} holds no tally. Reports are counted by read_tally.", file=file)
        columns = connection.execute(f"SELECT label, support FROM {parquet([file])}").fetchnumpy()
    record = json.loads(text)
    domain = _domain_of(columns["label"]) if record["labelled"] else None
    if domain is not None and domain.fingerprint != record["fingerprint"]:
        raise DataError(f"{file}: the labels are not those that the tally was stored with.", file=file, column="label")
    support = np.asarray(columns["support"])
    number = np.asarray(record["num_users"], support.dtype)
    if support.dtype.kind == "f":
        support, number = (jnp.asarray(x, jax.dtypes.canonicalize_dtype(x.dtype)) for x in (support, number))
    else:
        support, number = as_jax_integers(support), as_jax_integers(number)
    weights = {
        name: value if dtype is None else jnp.asarray(value, jax.dtypes.canonicalize_dtype(dtype))
        for name, (value, dtype) in record["rates"].items()
    }
    tally = Tally(support, number, rates=Rates(**weights), domain=record["fingerprint"] if domain is None else domain)
    described = record["mechanism"]
    mechanism = None if described is None else make_mechanism(described["name"], described["parameters"], file)
    return StoredTally(tally, mechanism, domain)


def check_stored(source: Source, counts: str | None, **given: Any) -> dict[str, dict[str, Any]]:
    """The records of files of `save_tally`, for `check_rates`; other files have none.

    Raises:
        ArgumentError: About a mechanism, ε or number of users, of all files, other than those `given`; or about
            `counts`, if no column of counts is given.
        DataError: A file that cannot be read.
    """
    if source.file_format() != "parquet":
        return {}
    files = source.files()
    with connect() as connection, explaining(files):
        texts = [parquet_record(connection, file, TALLY_KEY) for file in files]
    records = {file: json.loads(text) for file, text in zip(files, texts, strict=True) if text is not None}
    of_all = sum(record["num_users"] for record in records.values()) if len(records) == len(files) else None
    for file, record in records.items():
        if counts is None:
            raise refusal("counts", f"{file} is a tally: its counts are in the column support ({option('counts')})")
        described = record["mechanism"] or {"name": None, "parameters": {}}
        epsilon = described["parameters"].get("epsilon")
        for name, said in (("mechanism", described["name"]), ("epsilon", epsilon), ("num_users", of_all)):
            value = given.get(name, said)
            if said is None or said == value or (name == "epsilon" and value and np.isclose(said, value, rtol=1e-6)):
                continue
            shown = f"{said:g}" if isinstance(said, float) else said
            whose = f"{some(files)}: the tally" if name == "num_users" else f"{file}: the tally"
            other = "; give it" if value is None else f", not {value}"
            raise refusal(name, f"{whose} has {name} = {shown}{other} ({option(name)})", value=value)
    return records


def stored_domain(records: dict[str, dict[str, Any]], source: Source) -> Domain | None:
    """The categories of stored tallies, in the order of the first; None if a file is none, or has other ones."""
    domains = []
    for file in records:
        with connect() as connection, explaining([file]):
            columns = connection.execute(f"SELECT label FROM {parquet([file])}").fetchnumpy()
        domains.append(_domain_of(columns["label"]))
    same = all(each == domains[0] or {*each.labels()} == {*domains[0].labels()} for each in domains)
    return domains[0] if domains and same and len(domains) == len(source.files()) else None


def _domain_of(labels: Any) -> Domain:
    ends = labels.dtype.kind in "iu" and (int(labels[0]), int(labels[-1]))
    return Domain.range(*ends) if ends else Domain.of(map(str, labels))


def check_rates(records: dict[str, dict[str, Any]], mechanism: SupportMechanism, domain: Domain) -> None:
    """Refuses tallies of other numbers of categories, or rates of labels, than the mechanism that they are read with.

    Raises:
        ArgumentError: About the domain or the mechanism.
    """
    if not records:  # the usual case, which compiles nothing
        return
    ours = _pairs(mechanism.rates)
    for file, record in records.items():
        with connect() as connection, explaining([file]):
            labels = [label for (label,) in connection.execute(f"SELECT label FROM {parquet([file])}").fetchall()]
        if len(labels) != domain.num_categories:
            problem = f"{file} is a tally of {len(labels):,} categories, not of {domain.num_categories:,}"
            raise refusal("domain", f"{problem} ({option('domain')})", value=domain)
        theirs = _pairs([weight for weight, _ in record["rates"].values()])
        if ours.ndim > 1 or theirs.ndim > 1:
            places = {str(label): place for place, label in enumerate(labels)}
            order = [places.get(str(label), place) for place, label in enumerate(domain.labels())]
            shape = len(labels), 2
            ours, theirs = np.broadcast_to(ours, shape), np.broadcast_to(theirs, shape)[order]
        if not np.allclose(ours, theirs, rtol=1e-5, atol=1e-12):
            described = record["mechanism"] or {"name": "another mechanism", "parameters": {}}
            said = ", ".join(f"{name} = {value}" for name, value in described["parameters"].items())
            whose = f"{described['name']}{f' with {said}' if said else ''}"
            problem = f"{file} is a tally with other rates than {mechanism.name} has here: those of {whose}"
            raise refusal("mechanism", problem, value=mechanism)


def _pairs(weights: Sequence[Any]) -> np.ndarray:
    """The p and q of rates: `[2]`, or `[K, 2]` if they differ by category."""
    always, never, truth = (np.asarray(weight, float) for weight in weights)
    return np.stack(np.broadcast_arrays(always + truth, always), axis=-1) / (always + never + truth)[..., None]


def _written(rate) -> str:
    return ", ".join(f"{float(each):.9g}" for each in np.ravel(np.asarray(rate)))


def _record_of(mechanism: SupportMechanism, tally: Tally) -> dict[str, Any]:
    from rrjax.data.tally import equal_rates
    from rrjax.mechanisms import DESIGNS, MECHANISMS

    if type(mechanism) is not (MECHANISMS | DESIGNS).get(getattr(mechanism, "name", "")):
        raise DataError(f"Files have no name for {type(mechanism).__name__}: leave the mechanism out.")
    if mechanism.num_categories != tally.num_categories or not equal_rates(mechanism.rates, tally.rates):
        ours, theirs = (
            f"{each.num_categories:,} categories, p = {_written(each.rates.p)} and q = {_written(each.rates.q)}"
            for each in (tally, mechanism)
        )
        raise DataError(f"The tally has {ours}; the mechanism has {theirs}: they are not of one collection.")
    parameters = {field.name: getattr(mechanism, field.name) for field in fields(cast("Any", mechanism))}
    numbers = {name: np.asarray(value).tolist() for name, value in parameters.items() if not isinstance(value, int)}
    return {"name": mechanism.name, "parameters": parameters | numbers}
