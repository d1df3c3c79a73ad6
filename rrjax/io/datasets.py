"""The two published data sets of the paper, from downloaded files."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from glob import escape, glob
from os import PathLike
from typing import Literal

from rrjax.data.errors import DataError, for_callers, number
from rrjax.io.database import opened
from rrjax.io.domain import Domain
from rrjax.io.read import CountedReports, count_filtered, count_reports
from rrjax.io.scan import Filter, scanning
from rrjax.io.source import Source, only_file

_KOSARAK_SESSIONS = 990_002
_KOSARAK_PAGES = 41_270
_ACS_INCOME_ROWS = 1_664_500
_DERIVED = {
    "kosarak.csv": (3_133_492, "80d34d9665016430b6e501872e683cb9ba69a3b016474a2e63bb8238f650b7f9"),
    "ACSIncome.csv": (21_293_505, "b5adc02279d74c615d9c467538cb2804a54f312cfeac5f778e8ad3293acdb0e8"),
}
"""Size in bytes and SHA-256 of the columns in the repository of the paper."""
_ACS_DOMAINS = {"PUMA": Domain.range(100, 70_301), "PINCP": Domain.range(1, 1_423_000)}
"""Domains: all PUMA codes of the census, and the incomes within the filter and the paper's K = 1,423,000."""
_UNVERIFIED = ", or accept the file as it is (verify=False)"
_ADULTS: tuple[Filter, ...] = (("AGEP", ">", 16), ("PINCP", ">", 100), ("WKHP", ">", 0), ("PWGTP", ">=", 1))


def load_kosarak(
    path: str | PathLike[str], items: Literal["first", "all"] = "first", verify: bool = True
) -> CountedReports:
    """Loads Kosarak: clicks on the pages of a Hungarian news portal.

    Args:
        path: FIMI's `kosarak.dat` or `kosarak.dat.gz`, one session per line; or the paper's derived `kosarak.csv`, with
            the first page of each session.
        items: The "first" page of each session, as in the paper, or "all" pages.
        verify: Whether to check that this is the published file: by sessions and pages of the original, or size and
            SHA-256 of the derived file. False accepts other files of the same layout.

    Returns:
        `CountedReports` with the true counts over the pages 1 to 41270, so K = 41,270.

    Raises:
        DataError: A file that cannot be read, is not the published one, or has other pages.

    References:
        F. Bodon, Frequent Itemset Mining Dataset Repository (FIMI), Kosarak.
    """
    domain = Domain.range(1, _KOSARAK_PAGES)
    if not os.fspath(path).lower().removesuffix(".gz").endswith(".csv"):
        sessions = Source(path, format="transactions", items=items)
        if verify:
            _verify_sessions(sessions)
        return count_reports(sessions, domain)
    if items != "first":
        raise DataError(
            f"{os.fspath(path)} keeps only the first page of each session; for all pages give the original "
            "kosarak.dat.",
            file=os.fspath(path),
            argument="items",
        )
    pages = Source(path, format="csv")
    if verify:
        _verify_derived(pages, "kosarak.csv")
    with opened(only_file(pages)) as stream:
        first = stream.readline(100).strip()
    # Page numbers start at 1, so a 0 is the name of the column.
    return count_reports(replace(pages, header=not first.isdecimal() or first == "0"), domain)


def load_acs_income(
    path: str | PathLike[str], column: Literal["PUMA", "PINCP"] = "PUMA", verify: bool = True
) -> CountedReports:
    """Loads ACSIncome: employed adults of the American Community Survey, 2018 1-Year, all states.

    Filter and states are those of Folktables: AGEP > 16, PINCP > 100, WKHP > 0, PWGTP >= 1; the fifty states and Puerto
    Rico, without the District of Columbia.

    Args:
        path: The folder of Folktables' downloads (or its `2018/1-Year`), with `psam_p01.csv` to `psam_p72.csv`; or the
            paper's derived `ACSIncome.csv`.
        column: "PUMA", the code of the area of residence, or "PINCP", the yearly income in dollars.
        verify: Whether to check for all 1,664,500 rows, or for size and SHA-256 of the derived file. False accepts a
            part of the states, or other files of the same layout.

    Returns:
        `CountedReports` with the true counts, one category for each code. The codes of PUMA are 100 to 70301, so
        K = 70,202; the paper cuts this range into K = 70,201 equal bins, the first with the codes 100 and 101. The
        incomes are 1 to 1423000, so K = 1,423,000 as in the paper.

    Raises:
        DataError: Files that cannot be read, missing files, or values outside the domain.

    References:
        F. Ding, M. Hardt, J. Miller, L. Schmidt, Retiring Adult: New Datasets for Fair Machine Learning, NeurIPS 2021.
    """
    if column not in _ACS_DOMAINS:
        raise DataError(f"The column must be PUMA or PINCP, not {column!r}.", argument="column", value=column)
    domain = _ACS_DOMAINS[column]
    folder = os.fspath(path)
    if not os.path.isdir(folder):
        rows = Source(folder, format="csv", column=column)
        if verify:
            _verify_derived(rows, "ACSIncome.csv")
        return count_reports(rows, domain)
    counted = count_filtered(Source(_state_files(folder), format="csv", column=column), domain, _ADULTS)
    if verify and counted.num_rows != _ACS_INCOME_ROWS:
        raise DataError.at(
            folder,
            f"{number(counted.num_rows, 'row passes', 'rows pass')} the filter of ACSIncome, {_ACS_INCOME_ROWS:,} were "
            "published for 2018, all states. Is a state missing, or another year among the files? Download "
            f"again{for_callers(_UNVERIFIED)}.",
        )
    return counted


def _state_files(folder: str) -> list[str]:
    for place in (folder, os.path.join(folder, "2018", "1-Year")):
        found = sorted(glob(os.path.join(escape(place), "psam_p[0-9][0-9].csv*")))
        # Folktables omits the District of Columbia.
        found = [file for file in found if not os.path.basename(file).startswith("psam_p11")]
        if found:
            return found
    raise DataError.at(
        folder,
        "there is no psam_p01.csv, psam_p02.csv, … here or in 2018/1-Year. Give the folder that Folktables downloads "
        "to (its root_dir).",
    )


def _verify_sessions(source: Source) -> None:
    with scanning(replace(source, items="first")) as first:
        sessions = first.scalar(f"SELECT count(*) FROM ({first.sql})")
    with scanning(replace(source, items="all")) as every:
        pages = every.scalar(f"SELECT count(DISTINCT value) FROM ({every.sql})")
    if (sessions, pages) != (_KOSARAK_SESSIONS, _KOSARAK_PAGES):
        raise DataError.at(
            source.files()[0],
            f"{number(sessions, 'session', 'sessions')} and {number(pages, 'page', 'pages')}; Kosarak has "
            f"{_KOSARAK_SESSIONS:,} and {_KOSARAK_PAGES:,}. Download it again{for_callers(_UNVERIFIED)}.",
        )


def _verify_derived(source: Source, name: str) -> None:
    file = only_file(source)
    size, digest = _DERIVED[name]
    found = os.path.getsize(file)
    if found == size:
        with open(file, "rb") as stream:
            found_digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if found_digest == digest:
            return
        came, published = f"the SHA-256 {found_digest[:16]}…", f"{digest[:16]}…"
    else:
        came, published = number(found, "byte", "bytes"), f"{size:,}"
    raise DataError(
        f"{file} is not the published {name}: it has {came}, not {published}. Download it again (a repository with "
        f"large-file storage hands out a small pointer at first){for_callers(_UNVERIFIED)}.",
        file=file,
    )
