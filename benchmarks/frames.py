"""Counts reports in data frames, on the engine that holds them, beside counting the same Parquet file."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import baselines
import duckdb
import jax
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import report
import timing
from report import Table
from timing import pretty, spread

import rrjax
from rrjax import io
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.write import CODINGS
from rrjax.mechanisms import OptimizedUnaryEncoding, PureMechanism, RandomizedResponse

NUM_CATEGORIES = 41_270
EPSILON = 4.0
EXPONENT = 1.3
NUM_BITS = 100
PART = 1 << 16
ROUNDS = 7


def spark_session() -> Any:
    """A session of Spark on all cores of this machine; None where PySpark or Java is not installed."""
    try:
        from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        session = (
            SparkSession.builder.master("local[*]")  # pyright: ignore[reportAttributeAccessIssue]
            .config("spark.driver.memory", "4g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", str(report.num_cores()))
            .getOrCreate()
        )
    except Exception as error:  # PySpark says so in several ways
        print(f"Spark is left out: {error}", file=sys.stderr)
        return None
    session.sparkContext.setLogLevel("OFF")
    return session


def write(path: str, mechanism: PureMechanism, reports: np.ndarray) -> None:
    """Writes reports as `rrjax randomize` does."""
    parameters: dict[str, Any] = {"num_categories": mechanism.num_categories, "epsilon": EPSILON}
    metadata = Metadata(
        mechanism=MechanismRecord(mechanism.name, parameters),
        effective_epsilon=EPSILON,
        domain=Domain.range(0, mechanism.num_categories - 1),
        column="report",
        simulated=True,
        version=rrjax.__version__,
    )
    coding = CODINGS[mechanism.name]
    io.write_reports(path, io.coded(coding, reports, mechanism.num_categories), metadata)


def timed(calls: dict[str, Callable[[], Any]], support: np.ndarray, rounds: int) -> dict[str, timing.Timing]:
    def inspect(name: str, tally: rrjax.Tally) -> None:
        if not np.array_equal(np.asarray(tally.support), support):
            sys.exit(f"{name}: other counts than those of the reports")

    return timing.interleaved(calls, rounds, inspect)


def labels(folder: str, session: Any, num_reports: int, rounds: int) -> dict[str, timing.Timing]:
    """Counts reports of randomized response."""
    counts = baselines.zipf_counts(1, NUM_CATEGORIES, EPSILON, num_reports, EXPONENT)[0]
    reports = np.repeat(np.arange(NUM_CATEGORIES, dtype=np.int32), counts)
    np.random.default_rng(1).shuffle(reports)
    mechanism = RandomizedResponse(NUM_CATEGORIES, EPSILON)
    file = str(Path(folder) / "labels.parquet")
    write(file, mechanism, reports)
    table = pa.table({"report": reports})
    frames: dict[str, Any] = {
        "pandas, in memory": table.to_pandas(),
        "PyArrow, in memory": table,
        "Polars, in memory": pl.from_arrow(table),
        "Polars, Parquet (lazy)": pl.scan_parquet(file),
        "DuckDB, Arrow in memory": duckdb.from_arrow(table),
        "DuckDB, Parquet": duckdb.read_parquet(file),
    }
    if session is not None:
        frames["Spark, Parquet"] = session.read.parquet(file)
    calls: dict[str, Callable[[], Any]] = {
        "read_tally, the same Parquet": lambda: io.read_tally(file).tally,
        "mechanism.tally, an array in memory": lambda: jax.block_until_ready(mechanism.tally(reports)),
    }
    for name, frame in frames.items():
        calls[name] = lambda frame=frame: io.tally_frame(frame, mechanism)
    return timed(calls, counts, rounds)


def bits(folder: str, session: Any, num_reports: int, rounds: int) -> dict[str, timing.Timing]:
    """Counts reports of optimized unary encoding: packed, as lists of categories, and as columns."""
    mechanism = OptimizedUnaryEncoding(NUM_BITS, EPSILON)
    values = np.random.default_rng(2).integers(0, NUM_BITS, num_reports)
    packed_file, lists_file, columns_file = (
        str(Path(folder) / f"{name}.parquet") for name in ("packed", "lists", "columns")
    )
    parts = [
        np.asarray(mechanism.randomize(jax.random.key(start), values[start : start + PART]))
        for start in range(0, num_reports, PART)
    ]
    reports = np.concatenate(parts)
    write(packed_file, mechanism, reports)
    ends = np.concatenate([[0], np.cumsum(reports.sum(axis=1))]).astype(np.int32)
    lists = pa.table({"report": pa.ListArray.from_arrays(ends, np.nonzero(reports)[1].astype(np.int32))})
    pq.write_table(lists, lists_file)
    names = [f"bit{place}" for place in range(NUM_BITS)]
    columns = pa.table(dict(zip(names, np.ascontiguousarray(reports.T), strict=True)))
    pq.write_table(columns, columns_file)
    frames: dict[str, tuple[Any, Any]] = {
        "Polars, lists, Parquet (lazy)": (pl.scan_parquet(lists_file), "report"),
        "DuckDB, lists, Parquet": (duckdb.read_parquet(lists_file), "report"),
        "pandas, columns, in memory": (columns.to_pandas(), names),
        "Polars, columns, Parquet (lazy)": (pl.scan_parquet(columns_file), names),
        "DuckDB, columns, Parquet": (duckdb.read_parquet(columns_file), names),
    }
    if session is not None:
        frames["Spark, lists, Parquet"] = session.read.parquet(lists_file), "report"
        frames["Spark, columns, Parquet"] = session.read.parquet(columns_file), names
    calls: dict[str, Callable[[], Any]] = {"read_tally, packed Parquet": lambda: io.read_tally(packed_file).tally}
    for name, (frame, column) in frames.items():
        calls[name] = lambda frame=frame, column=column: io.tally_frame(frame, mechanism, column=column)
    return timed(calls, reports.sum(axis=0), rounds)


def table_of(title: str, times: dict[str, timing.Timing], num_reports: int, note: str) -> Table:
    rows = [
        [name, pretty(time.median), spread(time), pretty(time.first), f"{num_reports / time.median / 1e6:.3g}"]
        for name, time in times.items()
    ]
    return Table(title, ["engine", "median", "range", "first call", "million reports a second"], rows, note)


def engines() -> str:
    """Versions that other results do not name."""
    found: list[str] = []
    for package in ("narwhals", "pandas", "polars", "pyarrow", "pyspark"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join(found) + "."


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--reports", type=int, default=10_000_000, help="of randomized response; a tenth of bits")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    if options.quick:
        options.reports, options.rounds = min(options.reports, 50_000), 1
    of_bits = max(1, options.reports // 10)
    session = None if options.quick else spark_session()
    with tempfile.TemporaryDirectory(prefix="rrjax-benchmark-") as folder:
        record = {
            "labels": labels(folder, session, options.reports, options.rounds),
            "bits": bits(folder, session, of_bits, options.rounds),
        }
    if session is not None:
        session.stop()
    tables = [
        table_of(
            f"randomized response, K = {NUM_CATEGORIES:,}, N = {options.reports:,}",
            record["labels"],
            options.reports,
            "Lazy frames read the file each time. Spark: local, on all cores, in a session that is running.",
        ),
        table_of(
            f"optimized unary encoding, K = {NUM_BITS}, N = {of_bits:,}",
            record["bits"],
            of_bits,
            "Lists name the categories that are supported, columns are K booleans. " + engines(),
        ),
    ]
    report.publish(options, "frames", "Counting in data frames", tables, record)


if __name__ == "__main__":
    main()
