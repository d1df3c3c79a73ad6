"""True values, or their counts, for comparison with reports."""

from __future__ import annotations

import numpy as np

from rrjax import io
from rrjax.cli.reading import Files
from rrjax.data.errors import UsageError, reworded
from rrjax.io.rows import count_pairs
from rrjax.reports.reports import Reports, may_be_counts


def read_truth(files: Files, collection: Reports, flag: str) -> np.ndarray:
    """Reads the shares of true values over the domain of the reports, `[K]`, float64."""
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
            # Of several columns, take the one with the name of the column of reports.
            if files.reading.column is not None:
                raise
            counted = files.count(domain, collection.counted.column)
        if files.reading.counts is None and may_be_counts(files.source, counted):
            raise UsageError(
                f"{flag} {files.paths[0]} names each of its categories once, and has more columns. If one of them "
                f"holds counts, name it with {flag}-counts",
                flag=f"{flag}-counts",
                value=files.paths[0],
            )
    except io.DataError as error:
        hint = f"Its own flags are {flag}-column, {flag}-format and {flag}-counts"
        if collection.counted.domain_from_data:
            hint += "; the domain was taken from the reports, --domain sets it for both"
        raise reworded(error, f"{error} ({hint}.)") from error
    return counted.counts / counted.counts.sum()
