"""The two published data sets of the paper, from downloaded files, for `rrjax study paper`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from glob import escape, glob
from pathlib import Path

import numpy as np

from rrjax.data.errors import DataError, number
from rrjax.io.database import connect, explaining, opened
from rrjax.io.domain import Domain
from rrjax.io.read import CountedReports, count_reports
from rrjax.io.scan import scanning, selected
from rrjax.io.source import Source, only_file

KOSARAK = Domain.range(1, 41_270)
"""The pages of Kosarak."""
SESSIONS, PAGES, ROWS = 990_002, 41_270, 1_664_500
"""Number of sessions of Kosarak and of the pages in them, and of employed adults of ACSIncome, 2018, all states."""
ACS_INCOME = {"PUMA": Domain.range(100, 70_301), "PINCP": Domain.range(1, 1_423_000)}
"""All PUMA codes of the census, and the incomes within the filter and the paper's K = 1,423,000."""
DERIVED = {
    "kosarak.csv": (3_133_492, "80d34d9665016430b6e501872e683cb9ba69a3b016474a2e63bb8238f650b7f9"),
    "ACSIncome.csv": (21_293_505, "b5adc02279d74c615d9c467538cb2804a54f312cfeac5f778e8ad3293acdb0e8"),
}
"""Size in bytes and SHA-256 of the columns in the repository of the paper."""


def kosarak(path: Path) -> CountedReports:
    """The first pages of all sessions of Kosarak: FIMI's `kosarak.dat` or `.dat.gz`, or the paper's `kosarak.csv`."""
    if not path.name.lower().removesuffix(".gz").endswith(".csv"):
        with scanning(Source(path, format="transactions", items="all")) as every:
            pages = every.scalar(f"SELECT count(DISTINCT value) FROM ({every.sql})")
        counted = count_reports(Source(path, format="transactions"), KOSARAK)
        if (counted.num_rows, pages) != (SESSIONS, PAGES):
            amounts = f"{number(counted.num_rows, 'session', 'sessions')} and {number(pages, 'page', 'pages')}"
            problem = f"{amounts}; Kosarak has {SESSIONS:,} and {PAGES:,}. Download it again."
            raise DataError.at(str(path), problem)
        return counted
    _verify(path, "kosarak.csv")
    with opened(str(path)) as stream:
        first = stream.readline(100).strip()
    # Page numbers start at 1, so a 0 is the name of the column.
    return count_reports(Source(path, format="csv", header=not first.isdecimal() or first == "0"), KOSARAK)


def acs_income(path: Path) -> Iterator[tuple[str, CountedReports]]:
    """Area and income of employed adults: the folder of Folktables' downloads, or the paper's `ACSIncome.csv`.

    Filter and states are those of Folktables (F. Ding et al., Retiring Adult, NeurIPS 2021). The codes of PUMA are 100
    to 70301, so K = 70,202; the paper cuts this range into 70,201 equal bins, the first with the codes 100 and 101.
    """
    if not path.is_dir():
        _verify(path, "ACSIncome.csv")
    for column, domain in ACS_INCOME.items():
        if path.is_dir():
            yield column, _of_states(path, column, domain)
        else:
            yield column, count_reports(Source(path, format="csv", column=column), domain)


def _of_states(folder: Path, column: str, domain: Domain) -> CountedReports:
    files = _state_files(str(folder))
    with connect() as connection, explaining(files):
        rows = selected(connection, Source(files, format="csv"), (column, "AGEP", "PINCP", "WKHP", "PWGTP"))
        adults = " AND ".join(
            f"TRY_CAST({name} AS DOUBLE) {limit}"
            for name, limit in {"k1": "> 16", "k2": "> 100", "k3": "> 0", "k4": ">= 1"}.items()
        )
        groups = f"SELECT TRY_CAST(k0 AS DOUBLE) AS value, count(*) AS times FROM ({rows}) WHERE {adults} GROUP BY 1"
        by_value = connection.execute(groups).fetchnumpy()
    first, last = domain.ends
    values, times = np.ma.filled(by_value["value"], np.nan), np.asarray(by_value["times"])
    outside = ~((values >= first) & (values <= last) & (values == np.floor(values)))
    if outside.any():
        given = f"{times[outside].sum():,} values of {column} are not in {domain.describe()}"
        raise DataError.at(str(folder), f"{given}. Is it another year? Download it again.", argument=column)
    if times.sum() != ROWS:
        raise DataError.at(
            str(folder),
            f"{number(times.sum(), 'row passes', 'rows pass')} the filter of ACSIncome, {ROWS:,} were published for "
            "2018, all states. Is a state missing, or another year among the files? Download it again.",
        )
    counts = np.zeros(domain.num_categories, np.int64)
    counts[values.astype(int) - first] = times
    return CountedReports(counts, domain, column, ROWS, 0, False)


def _state_files(folder: str) -> list[str]:
    for place in (folder, os.path.join(folder, "2018", "1-Year")):
        files = sorted(glob(os.path.join(escape(place), "psam_p[0-9][0-9].csv*")))
        # Folktables omits the District of Columbia.
        if files := [file for file in files if not os.path.basename(file).startswith("psam_p11")]:
            return files
    raise DataError.at(
        folder,
        "there is no psam_p01.csv, psam_p02.csv, … here or in 2018/1-Year. Give the folder that Folktables downloads "
        "to (its root_dir).",
    )


def _verify(path: Path, name: str) -> None:
    """Refuses a file that is not the one that was published."""
    file = only_file(Source(path, format="csv"))
    size, digest = DERIVED[name]
    length = os.path.getsize(file)
    if length == size:
        with open(file, "rb") as stream:
            own = hashlib.file_digest(stream, "sha256").hexdigest()
        if own == digest:
            return
        came, published = f"the SHA-256 {own[:16]}…", f"{digest[:16]}…"
    else:
        came, published = number(length, "byte", "bytes"), f"{size:,}"
    raise DataError(
        f"{file} is not the published {name}: it has {came}, not {published}. Download it again (a repository with "
        "large-file storage hands out a small pointer at first).",
        file=file,
    )
