"""Refusals of the command line: each is one sentence or more in plain words, without Python, with its flag as data."""

import datetime
import re
from pathlib import Path

import duckdb
import numpy as np
import pytest
from cases import READ

from rrjax import io
from rrjax.data.errors import UsageError

pytestmark = pytest.mark.once  # nothing here depends on the precision

PYTHON = re.compile(
    r"(?<![-\w])[a-z][a-z_0-9]*=(?!=)"  # a keyword of a function
    r"|\b(?:datetime|numpy|np|jnp|jax|rrjax|io|math)\.[a-z]\w*"  # a name in a module
    r"|\b(?:None|True|False|dtype|NaN|nan\b(?=\)))\b|\b[A-Z]\w+(?:Error|Exception)\b|<class|\bself\b|__|\w\(\)|Traceback"
    r"|array\(|\bNoneType\b|\b(?:u?int|float)(?:8|16|32|64)\b"
)
"""What a person who types commands need not know."""

WRONG_FLAGS = [
    *(("estimate", *READ, *flags) for flags in (
        ("--ordered", "--estimator", "inv"),
        ("--mean", "--at-once"),
        ("--mean", "--ordered"),
        ("--normal",),
        ("--quantile", "7"),
        ("--quantile", "0.5", "--weights", "age"),
        ("--population", "p.csv"),
        ("--population", "p.csv", "--by", "region", "--weights", "age"),
        ("--population", "p.csv", "--by", "region", "--quantile", "0.5"),
        ("--group", "x=9"),
        ("--group", "x=8:9"),
        ("--group", "x=0:3"),
        ("--group", "x=1", "--group", "x=2"),
        ("--plot", "p.bmp"),
        ("--out", "p.xls"),
    )),
    *(("compare", *READ, *flags) for flags in (
        ("--ordered", "--estimator", "inv"),
        ("--out", "p"),
    )),
    ("estimate", "texts.csv", "--epsilon", "1", "--mean"),
    ("estimate", "pgr.parquet", "--estimator", "mle_star"),
    ("study", "own.toml", "--out", "s", "--devices", "0"),
    ("study", "own.toml", "--out", "s", "--memory", "-1"),
    ("study", "own.toml", "--out", "s", "--processes", "2"),
]  # fmt: skip
"""Lines whose fault is a flag of the commands that this file is about."""

OTHERS = [
    *(("estimate", *READ, *flags) for flags in (
        ("--level", "2"),
        ("--fdr", "0"),
        ("--json", "--explain"),
        ("--by", "answer"),
        ("--by", "nowhere"),
        ("--by", "region", "--counts", "age"),
        ("--weights", "region"),
        ("--by", "region", "--mean", "--population", "p.csv"),
        ("--by", "region", "--mean", "--population", "r.csv"),
        ("--out", "gone/e.csv"),
        ("--out", "r.csv"),
        ("--delimiter", ";;"),
        ("--format", "parquet"),
        ("--counts", "gone"),
        ("--counts", "answer"),
    )),
    *(("estimate", "r.csv", "--column", "answer", "--epsilon", "2", "--domain", domain) for domain in (
        "0:1",
        "5",
        "3:1",
        "0:0",
        "gone.txt",
        "empty.csv",
    )),
    *(("estimate", "r.csv", "--domain", "0:3", "--epsilon", "2", *flags) for flags in (
        ("--column", "answr"),
        ("--column", "9"),
        ("--no-header", "--column", "1"),
        ("--no-header", "--column", "0"),
        ("--no-header", "--column", "answer"),
    )),
    *(("estimate", "r.csv", "--column", "answer", f"--epsilon={each}") for each in ("0", "-1", "1e-9", "99", "e")),
    ("estimate", "r.csv", "--epsilon", "1"),
    ("estimate", "r.csv"),
    ("estimate", "pgr.parquet", "--counts", "n"),
    ("estimate", "pgr.parquet", "--weights", "age"),
    ("compare", *READ, "--truth-column", "label"),
    ("report", *READ, "--out", "page.pdf"),
    ("estimate", "gone.csv", "--epsilon", "1"),
    ("estimate", "gone*.csv", "--epsilon", "1"),
    ("estimate", "empty.csv", "--epsilon", "1"),
    ("estimate", "head.csv", "--epsilon", "1"),
    ("estimate", "one.csv", "--epsilon", "1", "--domain", "0:3"),
    ("estimate", "latin.csv", "--epsilon", "1"),
    ("estimate", "ragged.csv", "--epsilon", "1", "--column", "a"),
    ("estimate", "r", "--epsilon", "1"),
    ("estimate", "-", "--epsilon", "1"),
    ("estimate", ".", "--epsilon", "1"),
    ("estimate", "dates.parquet", "--column", "day", "--epsilon", "1", "--domain", "0:3"),
    ("estimate", "dates.parquet", "--column", "day", "--epsilon", "1", "--domain", "days.txt"),
    ("estimate", "dates.parquet", "--column", "flag", "--epsilon", "1", "--domain", "0:3"),
    ("estimate", "dates.parquet", "--column", "float", "--epsilon", "1", "--domain", "0:3"),
    ("estimate", "pgr.parquet", "--epsilon", "2"),
    ("estimate", "pgr.parquet", "--column", "b"),
    ("estimate", "pgr.parquet", "--domain", "0:5"),
    ("compare", "pgr.parquet", "--truth", "pgr.parquet"),
    ("compare", *READ, "--truth", "gone.csv"),
    ("compare", *READ, "--truth", "texts.csv"),
    ("compare", *READ, "--truth", "t.csv", "--truth-column", "x"),
    ("randomize", "pgr.parquet", "--epsilon", "1", "--out", "o.parquet"),
    ("randomize", "r.csv", "--column", "age", "--epsilon", "1", "--out", "o.csv"),
    ("randomize", "r.csv", "--column", "age", "--epsilon", "1", "--out", "r.csv"),
    ("randomize", "r.csv", "--column", "age", "--column", "age", "--epsilon", "1", "--out", "o.parquet"),
    ("randomize", "r.csv", "--column", "age", "--epsilon", "1", "--domain", "0:3", "--out", "o.parquet"),
    ("randomize", "r.csv", "--column", "age", "--items", "all", "--epsilon", "1", "--out", "o.parquet"),
    ("randomize", "dates.parquet", "--column", "day", "--epsilon", "1", "--domain", "0:3", "--out", "o.parquet"),
    ("regress", "r.csv", "--outcome", "answer", "--epsilon", "2", "--covariates", "gone", "--domain", "0:3"),
    ("regress", "r.csv", "--outcome", "answer", "--epsilon", "2", "--covariates", "answer", "--domain", "0:3"),
    ("regress", "r.csv", "--outcome", "gone", "--epsilon", "2", "--covariates", "age", "--domain", "0:3"),
    ("regress", "dates.parquet", "--outcome", "flag", "--epsilon", "2", "--covariates", "day", "--domain", "0:1"),
    ("plan", "--categories", "1", "--users", "5", "--epsilon", "1"),
    ("plan", "--categories", "5"),
    ("plan", "--categories", "5", "--users", "0", "--epsilon", "1"),
    ("audit", "--categories", "1", "--epsilon", "1"),
    ("audit", "--categories", "5", "--epsilon", "-1"),
    ("test", "fit", *READ, "--significance", "9"),
    ("test", "equal", "r.csv", *READ[1:]),
    ("test", "trend", "r.csv", *READ, "--category", "9"),
    ("test", "independent", "r.csv"),
    ("study", "gone.toml", "--out", "s"),
    ("study", "odd.toml", "--out", "s"),
    ("study", "bad.toml", "--out", "s"),
    ("demo", "--epsilon", "0"),
]  # fmt: skip
"""Lines with other faults."""


@pytest.fixture
def odd_files(beside_files):
    """`beside_files`, beside files that cannot be read, or hold what is no report."""
    io.write_table("texts.csv", {"word": np.asarray(["a", "b", "b"], object)})
    io.write_table("p.csv", {"region": np.asarray(["west"], object), "people": np.asarray([2])})
    Path("empty.csv").write_text("")
    Path("head.csv").write_text("a\n")
    Path("one.csv").write_text("a\n1\n")
    Path("ragged.csv").write_text("a,b\n1,2\n1,2,3\n1\n")
    Path("latin.csv").write_bytes("Stadt\nKöln\nBonn\n".encode("latin-1"))
    Path("days.txt").write_text("2024-01-01\n2024-01-02\n")
    Path("odd.toml").write_text("num_categories = [1]\nseeds = 3\n")
    Path("bad.toml").write_text("num_categories = \n")
    day = datetime.date(2024, 1, 3)
    duckdb.connect().execute(
        "COPY (SELECT ?::DATE AS day, i % 2 = 0 AS flag, [i, i] AS list, i + 0.5 AS float FROM range(9) AS t(i)) "
        "TO 'dates.parquet'",
        [day],
    )
    line = ("randomize", "r.csv", "--column", "answer", "--epsilon", "1", "--domain", "0:3", "--seed", "1")
    assert beside_files(*line, "--mechanism", "pgr", "--out", "pgr.parquet")[0] == 0
    return beside_files


@pytest.mark.full
def test_refusals_are_in_plain_words(odd_files):
    """No Python, no doubled full stop, and an end."""
    faults = []
    for line in (*WRONG_FLAGS, *OTHERS):
        code, _, error = odd_files(*line)
        said = " ".join(error.split())
        wrong = [word for word in PYTHON.findall(said) if word not in " ".join(line)]
        wrong += re.findall(r"[^.]\.\.(?!\.)", said)
        if code not in (2, 3) or wrong or not said.endswith((".", "?", ".)", "╯")):
            faults.append((line, code, wrong, said))
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.full
def test_refused_flags_are_data(odd_files):
    for line in WRONG_FLAGS:
        assert odd_files(*line)[0] == 2, line
        error = odd_files.error
        assert isinstance(error, UsageError), line
        assert error.flag in line, line
