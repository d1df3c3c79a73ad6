"""Reading and writing of files through DuckDB, and counts of data frames by their engines.

Only this package uses labels. The rest of the library uses the 0-based numbers of categories.
"""

from rrjax.data.errors import DataError
from rrjax.io.frames import count_frame, tally_frame
from rrjax.io.labels import read_domain
from rrjax.io.numbers import Bins, read_bins, read_number_reports
from rrjax.io.rappor import RapporCounts as RapporCounts
from rrjax.io.rappor import read_rappor
from rrjax.io.read import count_reports, read_counts
from rrjax.io.rows import read_values
from rrjax.io.source import Source, read_metadata
from rrjax.io.stored_tallies import load_tally, save_tally
from rrjax.io.tallies import read_tally
from rrjax.io.write import coded, write_reports, write_table

__all__ = [
    "Bins",
    "DataError",
    "Source",
    "coded",
    "count_frame",
    "count_reports",
    "load_tally",
    "read_bins",
    "read_counts",
    "read_domain",
    "read_metadata",
    "read_number_reports",
    "read_rappor",
    "read_tally",
    "read_values",
    "save_tally",
    "tally_frame",
    "write_reports",
    "write_table",
]
