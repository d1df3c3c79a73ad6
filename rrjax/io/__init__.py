"""Files in and out, through DuckDB; and data frames, counted where they are.

Labels live here; the rest of the library knows categories by their 0-based number.
"""

from rrjax.data.errors import Contradiction, DataError
from rrjax.io.codings import coded
from rrjax.io.counted import CountedReports, Values
from rrjax.io.datasets import load_acs_income, load_kosarak
from rrjax.io.domain import Domain
from rrjax.io.frames import count_frame, tally_frame
from rrjax.io.labels import read_domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.read import count_reports, read_counts, read_pairs, read_values
from rrjax.io.source import Source, read_metadata
from rrjax.io.stored import StoredTally, load_tally, save_tally
from rrjax.io.tallies import Tallied, read_tally
from rrjax.io.write import Kept, write_reports, write_table

__all__ = [
    "Contradiction",
    "CountedReports",
    "DataError",
    "Domain",
    "Kept",
    "MechanismRecord",
    "Metadata",
    "Source",
    "StoredTally",
    "Tallied",
    "Values",
    "coded",
    "count_frame",
    "count_reports",
    "load_acs_income",
    "load_kosarak",
    "load_tally",
    "read_counts",
    "read_domain",
    "read_metadata",
    "read_pairs",
    "read_tally",
    "read_values",
    "save_tally",
    "tally_frame",
    "write_reports",
    "write_table",
]
