"""True values, as shares of all categories, for comparison with estimates."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rrjax import io
from rrjax.data.errors import ArgumentError, for_commands, option, refusal, reworded
from rrjax.io.domain import Domain
from rrjax.io.rows import count_pairs
from rrjax.io.source import Source
from rrjax.reports.reading import count_source
from rrjax.reports.reports import Reports, may_be_counts

if TYPE_CHECKING:
    from jaxtyping import ArrayLike

    Truth: TypeAlias = ArrayLike | Mapping[Any, float] | str | os.PathLike[str]
    """K shares or counts, a share or count for each label, or a file of true values."""

SUM_TOLERANCE = 1e-6
"""Limit of the distance of the sum of true shares from one, which rounding explains."""


def true_shares(
    truth: Truth, domain: Domain, read: Callable[[Source], np.ndarray], argument: str = "truth"
) -> np.ndarray:
    """The shares of all categories, `[K]`, float64; `read` reads those in a file. No message repeats a value."""
    if isinstance(truth, str | os.PathLike):
        return read(Source(truth).confidential())
    if isinstance(truth, Mapping):
        named = {str(label): amount for label, amount in truth.items()}
        amounts = [named.pop(str(label), 0) for label in domain.labels()]
        if named:
            raise ArgumentError.about(argument, f"has {len(named):,} labels that are not in {domain.describe()}")
    else:
        amounts = truth
    try:
        shares = np.asarray(amounts, np.float64)
    except (TypeError, ValueError):
        raise ArgumentError.about(argument, "must be numbers: K shares or counts") from None
    size = domain.num_categories
    if shares.shape != (size,) or not (np.isfinite(shares) & (shares >= 0)).all() or not shares.any():
        problem = f"must be {size:,} shares or counts, one for each category, none of them negative, and not all zero"
        raise ArgumentError.about(argument, problem)
    total = shares.sum()
    if shares.max() < 1 and abs(total - 1) > SUM_TOLERANCE:
        raise ArgumentError.about(argument, f"has shares that must sum to 1, and sum to {total:g}")
    return shares / total


def check_true(source: Source, argument: str = "truth") -> None:
    """Refuses files of randomized reports in place of true values."""
    if source.metadata() is not None:
        file = source.files()[0]
        raise refusal(argument, f"{option(argument)} {file} holds randomized reports, not true values", value=file)


def read_truth(source: Source, counts: str | None, reports: Reports, argument: str = "truth") -> np.ndarray:
    """The shares of the true values in files, or of those in a column of counts, `[K]`, float64."""
    check_true(source, argument)
    flag, counted = option(argument), reports.counted
    domain, metadata = counted.domain, counted.metadata
    try:
        if metadata is not None and metadata.columns and domain.factors and (source.column or counts) is None:
            pairs = count_pairs(source, metadata.columns, domain.factors)
            return pairs.counts.ravel() / pairs.counts.sum()
        try:
            found = count_source(source, domain, counts)
        except io.DataError:
            # Of several columns, take the one with the name of the column of reports.
            if source.column is not None:
                raise
            found = count_source(dataclasses.replace(source, column=counted.column), domain, counts)
        if counts is None and may_be_counts(source, found):
            file = source.files()[0]
            raise refusal(
                argument,
                f"{flag} {file} names each of its categories once, and has more columns. If one of them holds counts, "
                + (for_commands(f"name it with {flag}-counts") or "give a count for each label"),
                flag=f"{flag}-counts",
                value=file,
            )
    except io.DataError as error:
        hints = [for_commands(f"Its own flags are {flag}-column, {flag}-format and {flag}-counts")]
        if counted.domain_from_data:
            hints.append(f"the domain was taken from the reports, {option('domain')} sets it for both")
        said = "; ".join(filter(None, hints))
        raise reworded(error, f"{error} ({said}.)" if said else str(error)) from error
    return found.counts / found.counts.sum()
