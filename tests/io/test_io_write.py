"""Files are written whole or not at all."""

import csv
import errno
import gzip
import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import numpy as np
import pytest
from refusals import refused
from written import written

from rrjax.io import DataError, Source, read_counts, read_domain, write_reports, write_table
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.write import Kept, make_folder, replacing

pytestmark = pytest.mark.once  # nothing here depends on the precision

MECHANISM = MechanismRecord("randomized-response", {"num_categories": 5, "epsilon": 1.0})
METADATA = Metadata(MECHANISM, 1.0, Domain.range(5, 9), "r", True, "0.1.0")
TABLE = {"label": np.array(["a,b", 'q"', "é\n"]), "count": np.array([1, 2, 3]), "θ": np.ones(3) / 3}


def test_reports_as_parquet(tmp_path):
    path = tmp_path / "r.parquet"
    write_reports(path, np.array([0, 4, 2], dtype=np.int32), METADATA)
    with duckdb.connect() as connection:
        assert connection.execute(f"FROM '{path}'").fetchall() == [(5,), (9,), (7,)]
        (column,) = connection.execute(f"DESCRIBE FROM '{path}'").fetchall()
        assert column[:2] == ("r", "BIGINT")
    assert [file.name for file in tmp_path.iterdir()] == ["r.parquet"]


def test_listed_reports_keep_their_order(tmp_path):
    labels = [f"label {number}" for number in range(1000)]
    indices = np.random.default_rng(0).integers(1000, size=500_000)
    path = tmp_path / "r.parquet"
    mechanism = MechanismRecord("rr", {"num_categories": 1000, "epsilon": 1.0})
    write_reports(path, indices, Metadata(mechanism, 1.0, Domain.of(labels), "r", True, "0"))
    written = duckdb.execute(f"FROM '{path}'").fetchnumpy()["r"]
    assert (written == np.array(labels, dtype=object)[indices]).all()


@pytest.mark.parametrize(
    ("name", "indices", "argument"),
    [
        ("r.csv", [0, 1], None),
        ("r.parquet", [0, 5], "reports"),
        ("r.parquet", [-1, 0], "reports"),
        ("r.parquet", [0.5], "reports"),
        ("r.parquet", [[1]], "reports"),
    ],
)
def test_reports_that_cannot_be(tmp_path, name, indices, argument):
    with refused(error=DataError, argument=argument, file=None if argument else str(tmp_path / name)):
        write_reports(tmp_path / name, np.array(indices), METADATA)
    assert not list(tmp_path.iterdir())


def test_table_in_every_format(tmp_path):
    rows = list(zip(*(array.tolist() for array in TABLE.values()), strict=True))
    for suffix, delimiter in ((".csv", ","), (".tsv", "\t"), (".csv.gz", ",")):
        path = tmp_path / f"t{suffix}"
        write_table(path, TABLE)
        opener = gzip.open if suffix.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8", newline="") as stream:
            header, *found = csv.reader(stream, delimiter=delimiter)
        assert header == ["label", "count", "θ"]
        assert [(label, int(count), float(theta)) for label, count, theta in found] == rows
    write_table(tmp_path / "t.jsonl", TABLE)
    lines = (tmp_path / "t.jsonl").read_text(encoding="utf-8").splitlines()
    assert [tuple(json.loads(line).values()) for line in lines] == rows
    write_table(tmp_path / "t.parquet", TABLE)
    assert duckdb.execute(f"FROM '{tmp_path / 't.parquet'}'").fetchall() == rows


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "'=x", "''=x", "plain", "a=b", "'quoted'"]
NUMBERS = ["-5", "+1.5e3", "-", "-.5"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet", ".jsonl"])
def test_no_cell_is_a_formula(tmp_path, suffix):
    labels = FORMULAS + NUMBERS
    path = tmp_path / f"t{suffix}"
    write_table(
        path, {"label": np.array(labels, object), "n": np.arange(1, len(labels) + 1), "=h": np.ones(len(labels))}
    )
    if suffix in (".csv", ".tsv"):
        with open(path, newline="") as stream:
            header, *rows = csv.reader(stream, delimiter="," if suffix == ".csv" else "\t")
        assert header == ["label", "n", "'=h"]
        assert [row[0] for row in rows] == [f"'{text}" for text in FORMULAS[:6]] + FORMULAS[6:] + NUMBERS
    # What reads tables of labels and of counts takes it for what it was.
    assert read_domain(path).listed == tuple(labels)
    counted = read_counts(Source(path, column="label"), "n", Domain.of(labels))
    assert counted.counts.tolist() == list(range(1, len(labels) + 1))


def test_a_sheet_has_all_digits_and_no_formula(tmp_path):
    pytest.importorskip("xlsxwriter", reason="sheets need rrjax[tables]")
    labels = [*FORMULAS, "007", "https://x.org", "<&>", "1e5"]
    shares = [1 / 3, np.nan, -np.inf, *np.linspace(1e-17, 1, len(labels) - 3) ** 3]
    write_table(tmp_path / "t.xlsx", {"=h": np.array(labels, object), "n": np.arange(len(labels)), "share": shares})
    with zipfile.ZipFile(tmp_path / "t.xlsx") as book:
        texts, sheet = (
            ElementTree.fromstring(book.read(f"xl/{name}.xml")) for name in ("sharedStrings", "worksheets/sheet1")
        )
    shared = ["".join(each.itertext()) for each in texts]
    rows = [
        [shared[int(text)] if cell.get("t") == "s" else float(text) for cell in row for text in cell.itertext()]
        for row in sheet.findall(".//{*}row")
    ]
    assert rows[0] == ["=h", "n", "share"]
    assert [row[:2] for row in rows[1:]] == [[label, place] for place, label in enumerate(labels)]
    assert [row[2] for row in rows[1:] if len(row) == 3] == pytest.approx([shares[0], *shares[3:]], rel=1e-15)
    with refused(error=DataError, file=str(tmp_path / "long.xlsx")):
        write_table(tmp_path / "long.xlsx", {"label": np.array(["x" * 32_768])})
    assert not (tmp_path / "long.xlsx").exists()


def test_table_takes_the_strings_of_a_domain(tmp_path):
    domain = Domain.of(["x", "y"])
    write_table(tmp_path / "t.csv", {"label": domain.labels(), "count": np.array([1, 2])})
    assert (tmp_path / "t.csv").read_text() == "label,count\nx,1\ny,2\n"


@pytest.mark.parametrize(
    ("name", "columns", "argument"),
    [
        ("t.ods", TABLE, None),
        ("t.xlsx.gz", TABLE, None),
        ("t.tex", TABLE, None),  # the tables of answers alone
        ("t.parquet.gz", TABLE, None),
        ("t.csv", {"a": np.arange(2), "b": np.arange(3)}, "columns"),
        ("t.csv", {}, "columns"),
        ("t.csv", {"a": np.ones((2, 2))}, "columns"),
        ("nowhere/t.csv", TABLE, None),
    ],
)
def test_tables_that_cannot_be(tmp_path, name, columns, argument):
    with refused(error=DataError, argument=argument, file=None if argument else str(tmp_path / name)):
        write_table(tmp_path / name, columns)
    assert not list(tmp_path.iterdir())


def test_replacing_keeps_the_old_file_until_the_new_is_whole(tmp_path):
    path = written(tmp_path / "figure.tar.png", "old")
    path.chmod(0o640)
    with replacing(path) as aside:
        assert aside.name.endswith(".tar.png")
        assert aside.parent == tmp_path
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_replacing_cleans_up_and_passes_errors_on(tmp_path, error):
    path = written(tmp_path / "a.png", "old")

    def fail():
        with replacing(path) as aside:
            aside.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_new_files_get_the_usual_permissions(tmp_path):
    mask = os.umask(0o027)
    try:
        write_table(tmp_path / "t.csv", TABLE)
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "t.csv").stat().st_mode) == 0o640


def test_through_a_link(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_table(tmp_path / "link.csv", TABLE)
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("label,")


def test_folders_and_devices(tmp_path):
    with refused(error=DataError, file=str(tmp_path)), replacing(tmp_path):
        pass
    with refused(error=DataError, file="/dev/full"), replacing("/dev/full"):
        pass


def test_folders_are_made(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
        assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "folder"):
        with refused(error=DataError, file=str(path)):
            make_folder(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with refused(error=DataError, file=str(tmp_path / "t.csv")):
            write_table(tmp_path / "t.csv", TABLE)
    finally:
        tmp_path.chmod(0o700)


FULL_DISK = """
import resource, signal, sys
import numpy as np
from rrjax.io import DataError, write_reports, write_table
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.write import replacing

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
path = sys.argv[1]
rng = np.random.default_rng(0)
try:
    if sys.argv[2] == "reports":
        domain = Domain.range(0, 10**6)
        mechanism = MechanismRecord("rr", {"num_categories": 10**6 + 1, "epsilon": 1.0})
        metadata = Metadata(mechanism, 1.0, domain, "r", True, "0")
        write_reports(path, rng.integers(10**6, size=200_000), metadata)
    elif sys.argv[2] == "table":
        write_table(path, {"a": rng.random(200_000)})
    else:
        with replacing(path) as aside:
            aside.write_bytes(bytes(200_000))
except DataError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("r.parquet", "reports"),
        ("t.csv", "table"),
        ("t.csv.gz", "table"),
        ("t.parquet", "table"),
        ("t.jsonl", "table"),
        ("figure.png", "plain"),
    ],
)
@pytest.mark.parametrize("old", [False, True])
def test_full_disk(tmp_path, name, what, old):
    path = tmp_path / name
    if old:
        path.write_text("old")
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path), what], capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert str(path) in done.stdout
    assert "no room left" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == [name] * old
    if old:
        assert path.read_text() == "old"


INTERRUPTED = """
import hashlib
import os
import pathlib
import signal
import sys
import threading
import time
import numpy as np
from rrjax.io import write_table

path = pathlib.Path(sys.argv[1])
columns = {f"c{number}": np.random.default_rng(number).random(400_000) for number in range(4)}
write_table(path, columns)  # loads all it takes
# A shell that runs tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)


def busy():
    while True:
        hashlib.sha256(columns["c0"]).digest()


# On a machine that has nothing else to do, DuckDB's threads hardly ever get in each other's way.
for _ in range(6):
    threading.Thread(target=busy, daemon=True).start()


def interrupt(after, done):
    while not done.is_set() and not any(file.stat().st_size for file in path.parent.glob(".rrjax-*")):
        time.sleep(0.001)
    if not done.wait(after):
        os.kill(os.getpid(), signal.SIGINT)


interrupted = 0
for attempt in range(8):
    done = threading.Event()
    thread = threading.Thread(target=interrupt, args=(0.01 * attempt, done))
    thread.start()
    try:
        write_table(path, columns)
        done.set()
        thread.join()
    except KeyboardInterrupt:
        interrupted += 1
print(interrupted)
"""


@pytest.mark.full
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_interrupts_end_it_and_leave_nothing_behind(tmp_path, name):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / name)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 1
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_an_error_of_the_removal_does_not_hide_that_of_the_writing(tmp_path, monkeypatch):
    def failing(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", failing)
    monkeypatch.setattr(Path, "unlink", failing)
    with refused(error=DataError, file=str(tmp_path / "a.csv")):
        write_table(tmp_path / "a.csv", {"a": np.arange(2)})


def test_kept_columns_are_those_of_the_values(tmp_path):
    # A column of reports may have the name that a kept column has within the query.
    (tmp_path / "v.csv").write_text("k0,age,k1\nyes,1,x\nno,2,y\n")
    kept = Kept(Source(str(tmp_path / "v.csv")), ("age", "k1"), None)
    mechanism = MechanismRecord("randomized-response", {"num_categories": 2, "epsilon": 1.0})
    metadata = Metadata(mechanism, 1.0, Domain.of(["no", "yes"]), "k0", True, "0")
    write_reports(tmp_path / "r.parquet", np.array([1, 0]), metadata, kept=kept)
    rows = duckdb.execute(f"SELECT k0, age, k1 FROM '{tmp_path / 'r.parquet'}'").fetchall()
    assert [tuple(map(str, row)) for row in rows] == [("yes", "1", "x"), ("no", "2", "y")]
