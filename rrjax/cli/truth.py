"""True values beside reports: the files of --truth and --against."""

from __future__ import annotations

import dataclasses

import numpy as np

from rrjax import io
from rrjax.cli.checks import check_rate as check_rate
from rrjax.cli.reading import Collection, Files, Format, Reading
from rrjax.data.errors import UsageError, reworded
from rrjax.io.rows import count_pairs


def read_truth(files: Files, collection: Collection, flag: str) -> np.ndarray:
    """Shares of the true values, over the domain of the reports. `[K]`, float64."""
    if files.source.metadata() is not None:
        raise UsageError(
            f"{flag} {files.paths[0]} holds randomized reports, not true values", flag=flag, value=files.paths[0]
        )
    domain, metadata = collection.counted.domain, collection.counted.metadata
    try:
        if (
            metadata is not None
            and metadata.columns
            and domain.factors
            and (files.reading.column or files.reading.counts) is None
        ):
            pairs = count_pairs(files.source, metadata.columns, domain.factors)
            return pairs.counts.ravel() / pairs.counts.sum()
        try:
            counted = files.count(domain)
        except io.DataError:
            # Of several columns, the one that is called like the reports'.
            if files.reading.column is not None:
                raise
            counted = files.count(domain, collection.counted.column)
    except io.DataError as error:
        hint = f"Its own flags are {flag}-column, {flag}-format and {flag}-counts"
        if collection.counted.domain_from_data:
            hint += "; the domain was taken from the reports, --domain sets it for both"
        raise reworded(error, f"{error} ({hint}.)") from error
    return counted.counts / counted.counts.sum()


def other_files(
    reading: Reading, paths: list[str] | None, column: str | None, form: Format | None, counts: str | None, flag: str
) -> Files | None:
    """A second set of files with a column, format and counts of its own, as of --truth; all else is read alike."""
    if paths:
        own = dataclasses.replace(reading, column=column, domain=None, counts=counts, format=form)
        return Files(paths, own, true_values=True)
    if column or form or counts:
        raise UsageError(f"{flag}-column, {flag}-format and {flag}-counts describe the file of {flag}", flag=flag)
    return None
