"""Files in and out, through DuckDB; and data frames, counted where they are.

Labels live here; the rest of the library knows categories by their 0-based number.
"""

from rrjax.io.codings import CODINGS, coded
from rrjax.io.counted import CountedReports, Pairs, Values
from rrjax.io.covariates import Covariate, read_covariate, read_covariates
from rrjax.io.datasets import load_acs_income, load_kosarak
from rrjax.io.domain import Domain
from rrjax.io.errors import Contradiction, DataError
from rrjax.io.frames import count_frame, tally_frame
from rrjax.io.labels import read_domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.read import (
    count_pairs,
    count_reports,
    read_counts,
    read_pairs,
    read_rows,
    read_values,
)
from rrjax.io.scan import column_names
from rrjax.io.source import Source, read_metadata
from rrjax.io.stored import StoredTally, load_tally, save_tally
from rrjax.io.tallies import MOST_CELLS, Tallied, mechanism_of, read_tally
from rrjax.io.write import (
    Kept,
    check_reports,
    check_reports_name,
    check_writable,
    make_folder,
    replacing,
    table_suffix,
    write_reports,
    write_table,
)

__all__ = [
    "CODINGS",
    "MOST_CELLS",
    "Contradiction",
    "CountedReports",
    "Covariate",
    "DataError",
    "Domain",
    "Kept",
    "MechanismRecord",
    "Metadata",
    "Pairs",
    "Source",
    "StoredTally",
    "Tallied",
    "Values",
    "check_reports",
    "check_reports_name",
    "check_writable",
    "coded",
    "column_names",
    "count_frame",
    "count_pairs",
    "count_reports",
    "load_acs_income",
    "load_kosarak",
    "load_tally",
    "make_folder",
    "mechanism_of",
    "read_counts",
    "read_covariate",
    "read_covariates",
    "read_domain",
    "read_metadata",
    "read_pairs",
    "read_rows",
    "read_tally",
    "read_values",
    "replacing",
    "save_tally",
    "table_suffix",
    "tally_frame",
    "write_reports",
    "write_table",
]
