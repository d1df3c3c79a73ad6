"""Files in and out: reports, values and counts, through DuckDB.

Labels live here; the rest of the library knows categories by their 0-based number.
"""

from rrjax.io.datasets import load_acs_income, load_kosarak
from rrjax.io.domain import Domain
from rrjax.io.errors import Contradiction, DataError
from rrjax.io.labels import read_domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.read import (
    CountedReports,
    Pairs,
    Values,
    count_pairs,
    count_reports,
    read_counts,
    read_pairs,
    read_values,
)
from rrjax.io.source import Source, read_metadata
from rrjax.io.write import (
    check_reports_name,
    check_writable,
    make_folder,
    replacing,
    table_suffix,
    write_reports,
    write_table,
)

__all__ = [
    "Contradiction",
    "CountedReports",
    "DataError",
    "Domain",
    "MechanismRecord",
    "Metadata",
    "Pairs",
    "Source",
    "Values",
    "check_reports_name",
    "check_writable",
    "count_pairs",
    "count_reports",
    "load_acs_income",
    "load_kosarak",
    "make_folder",
    "read_counts",
    "read_domain",
    "read_metadata",
    "read_pairs",
    "read_values",
    "replacing",
    "table_suffix",
    "write_reports",
    "write_table",
]
