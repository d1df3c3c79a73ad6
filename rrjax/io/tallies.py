"""From files that say how they were made to what the library estimates from: tallies, and mixtures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rrjax.data.errors import DataError
from rrjax.io.codings import CODINGS, count_numbers, read_bits, read_hashes
from rrjax.io.domain import Domain
from rrjax.io.metadata import Metadata
from rrjax.io.read import CountedReports, count_reports
from rrjax.io.source import Source

if TYPE_CHECKING:
    from jaxtyping import Array

    from rrjax.data.mixture import Mixture
    from rrjax.data.tally import Tally
    from rrjax.mechanisms import Mechanism

MOST_CELLS = 1 << 24
"""Reports × categories up to which the likelihood of whole reports is held as a matrix."""
MOST_SEEDS = 1 << 20
"""Seeds of local hashing that are compared with each other."""


@dataclass(frozen=True)
class Tallied:
    """Reports of any mechanism, counted.

    Attributes:
        counted: How often each category is supported, its domain, and what the files say.
        mechanism: How the reports were made, at the ε that was delivered.
        tally: The support counts with the mechanism's rates.
        mixture: The likelihood of whole reports; None where it would take more than `MOST_CELLS` cells.
        seeds: Of local hashing, how many of the first reports have the seed that most of them have, and how many were
            looked at; else None.
    """

    counted: CountedReports
    mechanism: Mechanism
    tally: Tally
    mixture: Mixture | None
    seeds: tuple[int, int] | None = None


def read_tally(source: Source | str) -> Tallied:
    """Counts reports of any mechanism, from Parquet files that say how they were made.

    Args:
        source: Files that `rrjax randomize` or `write_reports` wrote; a plain path is `Source(path)`.

    Returns:
        The tally, and the likelihood of whole reports where it is small enough.

    Raises:
        DataError: Files that cannot be read, that do not say how they were made, or whose reports are not what they
            say.

    Example:
        >>> tallied = read_tally("reports.parquet")  # doctest: +SKIP
        >>> rrjax.empirical_bayes(tallied.tally).theta  # doctest: +SKIP
    """
    source = source if isinstance(source, Source) else Source(source)
    metadata = source.metadata()
    if metadata is None:
        raise DataError(
            f"{source.files()[0]} does not say how it was randomized. Count it (rrjax.io.count_reports) and give the "
            "mechanism yourself."
        )
    mechanism = mechanism_of(metadata, source.files()[0])
    try:
        return _READERS[CODINGS[mechanism.name]](source, metadata, mechanism)
    except DataError:
        raise
    except ValueError as error:  # what a mechanism says of reports that are none of its own
        raise DataError(f"{source.files()[0]}: {error}") from error


def mechanism_of(metadata: Metadata, file: str) -> Mechanism:
    """The mechanism that a file names, at the ε that it delivered.

    Raises:
        DataError: This version of rrjax does not know it, or not its parameters.
    """
    parameters: dict[str, Any] = {**metadata.mechanism.parameters, "epsilon": metadata.effective_epsilon}
    wrote = f" (the file was written by {metadata.version})"
    return made(metadata.mechanism.name, parameters, file, wrote)


def made(name: str, parameters: dict[str, Any], file: str, wrote: str = "") -> Mechanism:
    """The mechanism of a name and its parameters, which a file has.

    Raises:
        DataError: This version of rrjax does not know it, or not its parameters.
    """
    import rrjax
    from rrjax.mechanisms import MECHANISMS

    if name not in MECHANISMS:
        raise DataError(
            f"{file} was made by the mechanism {name!r}, which rrjax {rrjax.__version__} does not know{wrote}; it "
            f"knows {', '.join(MECHANISMS)}. A newer version may: pip install -U rrjax"
        )
    try:
        return MECHANISMS[name](**parameters)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{parameter} = {value}" for parameter, value in parameters.items())
        why = "it has other parameters" if isinstance(error, TypeError) else str(error)
        raise DataError(
            f"{file} was made by {name} with {given}, which rrjax {rrjax.__version__} cannot make: {why}"
        ) from error


def _of_labels(source, metadata, mechanism):
    from rrjax.data.linear_maps import Scaling
    from rrjax.data.mixture import Mixture

    counted = count_reports(source)
    tally = tally_of_support(counted.counts, int(counted.counts.sum()), mechanism, counted.domain)
    lift = Scaling(mechanism.expm1_epsilon, mechanism.num_categories)
    return Tallied(counted, mechanism, tally, Mixture(counted.counts, 1.0, lift))


def _of_numbers(source, metadata, mechanism):
    columns = count_numbers(source, metadata, mechanism.num_columns)
    tally = tally_of_columns(columns, mechanism, metadata.domain)
    return Tallied(_counted(tally, metadata), mechanism, tally, mechanism.mixture_of_counts(columns))


def _of_bits(source, metadata, mechanism):
    kept, support, number = [], np.zeros(metadata.num_categories, np.int64), 0
    wanted = getattr(mechanism, "subset_size", None)
    for bits in read_bits(source, metadata):
        sizes = bits.sum(axis=1) if wanted is not None else None
        if sizes is not None and (sizes != wanted).any():
            row = int(np.argmax(sizes != wanted))
            raise DataError(
                f"{source.files()[0]}: report {number + row + 1:,} has {sizes[row]:,} members, and subsets of "
                f"{wanted:,} were reported."
            )
        support += bits.sum(axis=0)
        number += len(bits)
        if number * bits.shape[1] <= MOST_CELLS:
            kept.append(bits)
    return _summed(source.files()[0], support, number, kept, metadata, mechanism)


def _of_hashes(source, metadata, mechanism):
    kept, support, number = [], np.zeros(metadata.num_categories, np.int64), 0
    first = np.zeros(0, np.uint32)
    for hashes in read_hashes(source, metadata):
        support += np.asarray(mechanism.tally(hashes).support)
        number += len(hashes)
        first = np.concatenate([first, hashes[: MOST_SEEDS - len(first), 0]])
        if number * metadata.num_categories <= MOST_CELLS:
            kept.append(np.asarray(mechanism.supports(hashes)))
    found = _summed(source.files()[0], support, number, kept, metadata, mechanism)
    return replace(found, seeds=(int(np.unique(first, return_counts=True)[1].max()), len(first)))


_READERS = {"labels": _of_labels, "numbers": _of_numbers, "bits": _of_bits, "hashes": _of_hashes}


def _summed(file, support, number, kept, metadata, mechanism):
    """The tally of support counts, and the mixture of reports if all were kept."""
    from rrjax.mechanisms.mechanism import mixture_of_supports

    if number == 0:
        raise DataError(f"{file}: there is no report in it.", file=file)
    tally = tally_of_support(support, number, mechanism, metadata.domain)
    whole = number * metadata.num_categories <= MOST_CELLS
    mixture = mixture_of_supports(np.concatenate(kept), mechanism.expm1_epsilon) if whole else None
    return Tallied(_counted(tally, metadata), mechanism, tally, mixture)


def tally_of_support(support: np.ndarray, number: int, mechanism: Mechanism, domain: Domain | None = None) -> Tally:
    """The tally of so many reports that support each category so often, with the fingerprint of its domain.

    Raises:
        DataError: More than the default integers of JAX can count.
    """
    from rrjax.data.tally import Tally

    return Tally(whole(support), whole(np.int64(number)), rates=mechanism.rates, domain=domain)


def tally_of_columns(columns: np.ndarray, mechanism: Mechanism, domain: Domain | None = None) -> Tally:
    """The tally of reports of which so many name each column, with the fingerprint of its domain.

    Raises:
        DataError: More than the default integers of JAX can count.
    """
    whole(columns.sum())
    tally = mechanism.tally_of_counts(whole(columns))  # pyright: ignore[reportAttributeAccessIssue]
    return replace(tally, domain=domain)


def whole(counts: np.ndarray | np.integer) -> Array:
    """Counts as integers of JAX.

    Raises:
        DataError: Its default dtype cannot hold them.
    """
    import jax.numpy as jnp

    from rrjax.data.arguments import int_dtype

    if int(np.max(counts, initial=0)) > jnp.iinfo(int_dtype()).max:
        raise DataError(f"{np.max(counts):,} reports are more than 32 bits can count: set JAX_ENABLE_X64=1.")
    return jnp.asarray(counts, int_dtype())


def _counted(tally, metadata):
    support, number = np.asarray(tally.support, np.int64), int(tally.num_users)
    return CountedReports(support, metadata.domain, metadata.column, number, 0, metadata.domain_from_data, metadata)
