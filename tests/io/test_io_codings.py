"""Reports of every mechanism in files: what is written is what is read, and what is none is named."""

import jax
import numpy as np
import pytest
from cases import INT
from refusals import refused

import rrjax
from rrjax import io
from rrjax.data.errors import ArgumentError
from rrjax.io import DataError
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.tallies import as_jax_integers, count_numbers
from rrjax.io.write import CODINGS
from rrjax.mechanisms import DESIGNS, MECHANISMS, ORDERED, PROTOCOLS

SIZE, NUMBER = 11, 200
QUICK = ("optimized-local-hashing", "subset-selection", "hadamard-response")
"""One of each coding; labels are tested elsewhere."""
every = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else (pytest.mark.long,)) for name in MECHANISMS]
)


def metadata(mechanism):
    parameters = {
        name: value
        for name in ("num_categories", "epsilon", "subset_size", "num_buckets", "field_order")
        if (value := getattr(mechanism, name, None)) is not None
    }
    record = MechanismRecord(mechanism.name, parameters)
    return Metadata(record, mechanism.epsilon, Domain.range(1, SIZE), "answer", True, "0")


def write(path, mechanism, reports):
    coding = CODINGS[mechanism.name]
    io.write_reports(path, io.coded(coding, reports, mechanism.num_categories), metadata(mechanism))


def made(name, number=NUMBER, seed=0):
    mechanism = MECHANISMS[name](SIZE, 1.5)
    values = np.random.default_rng(seed).integers(0, SIZE, number)
    return mechanism, np.asarray(mechanism.randomize(jax.random.key(seed), values))


@pytest.mark.parametrize("name", QUICK)
def test_reports_as_the_mechanism_makes_them_are_not_written(name, tmp_path):
    mechanism, reports = made(name)
    wrong = reports.astype(np.int64) if reports.ndim == 1 else reports[:, :1]
    with refused("reports", error=DataError):
        io.write_reports(tmp_path / "a.parquet", wrong, metadata(mechanism))
    assert not list(tmp_path.iterdir())


@pytest.mark.full
@every
def test_what_is_written_is_what_is_read(name, tmp_path):
    mechanism, reports = made(name)
    # Two files of one collection, one after the other.
    for file, part in (("a", reports[:150]), ("b", reports[150:])):
        write(tmp_path / f"{file}.parquet", mechanism, part)
    tallied = io.read_tally(io.Source([tmp_path / "a.parquet", tmp_path / "b.parquet"]))
    wanted = mechanism.tally(reports)
    assert tallied.mechanism == mechanism
    with refused(error=ArgumentError, argument="tally"):  # give its tally
        io.save_tally(tmp_path / "t.parquet", tallied)
    np.testing.assert_array_equal(tallied.tally.support, wanted.support)
    np.testing.assert_array_equal(tallied.counted.counts, wanted.support)
    assert int(tallied.tally.num_users) == tallied.counted.num_rows == NUMBER
    assert tallied.counted.domain == Domain.range(1, SIZE)
    np.testing.assert_allclose(tallied.tally.p, wanted.p)
    theta = np.random.default_rng(1).dirichlet(np.ones(SIZE)).astype(wanted.p.dtype)
    found, uniform = (rrjax.nll(t, tallied.mixture) for t in (theta, np.full_like(theta, 1 / SIZE)))
    own, own_uniform = (rrjax.nll(t, mechanism.mixture(reports)) for t in (theta, np.full_like(theta, 1 / SIZE)))
    assert float(found - uniform) == pytest.approx(float(own - own_uniform), abs=1e-5)


def test_all_mechanisms_have_a_coding():
    assert set(CODINGS) == {*DESIGNS, *MECHANISMS, *ORDERED, *PROTOCOLS}


@pytest.mark.long
@pytest.mark.once
def test_more_reports_than_are_read_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("rrjax.io.tallies._REPORTS_PER_CHUNK", 30)
    monkeypatch.setattr("rrjax.io.tallies.MAX_CELLS", SIZE * (NUMBER - 1))
    for name in ("optimized-unary-encoding", "optimized-local-hashing"):
        mechanism, reports = made(name)
        write(tmp_path / "r.parquet", mechanism, reports)
        tallied = io.read_tally(str(tmp_path / "r.parquet"))
        np.testing.assert_array_equal(tallied.tally.support, mechanism.tally(reports).support)
        assert tallied.mixture is None  # a cell too many


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "rows", "attributes"),
    [
        ("hadamard-response", np.array([3, 16], np.int32), {"value": 16}),
        ("optimized-unary-encoding", np.zeros((2, 3), np.uint8), {"row": 1}),
        ("subset-selection", np.full((2, 2), 0xFF, np.uint8), {}),
        ("optimized-local-hashing", np.array([[1, 0], [2, 9]]), {}),
        ("optimized-unary-encoding", np.zeros((0, 2), np.uint8), {}),
        ("subset-selection", np.zeros((0, 2), np.uint8), {}),
        ("hadamard-response", np.zeros(0, np.int32), {"value": None}),
        ("projective-geometry-response", np.zeros(0, np.int32), {"value": None}),
        ("randomized-response", np.zeros(0, np.int32), {}),
        ("optimized-local-hashing", np.zeros((0, 2), np.uint32), {}),
    ],
)
def test_what_are_no_reports_is_named(name, rows, attributes, tmp_path, monkeypatch):
    mechanism = MECHANISMS[name](SIZE, 1.5)
    monkeypatch.setattr("rrjax.io.write.check_coded", lambda *_: None)  # as somebody else may have written them
    rows = rows.astype(np.uint32) if name.endswith("hashing") else rows
    io.write_reports(tmp_path / "r.parquet", rows, metadata(mechanism))
    with refused(error=DataError, **attributes) as caught:
        io.read_tally(str(tmp_path / "r.parquet"))
    assert str(tmp_path / "r.parquet") in str(caught.value)


@pytest.mark.once
def test_a_file_that_says_something_else(tmp_path):
    path = tmp_path / "r.parquet"
    mechanism = MECHANISMS["hadamard-response"](SIZE, 1.5)
    wrong = metadata(mechanism)
    write(path, mechanism, made("hadamard-response")[1])
    # The bits of another mechanism under the name of this one.
    io.write_reports(path, np.zeros((3, 2), np.uint8), metadata(MECHANISMS["optimized-unary-encoding"](SIZE, 1.5)))
    with refused(error=DataError, column="answer", file=str(path)):
        count_numbers(io.Source(path), wrong, 16)
    unary = metadata(MECHANISMS["optimized-unary-encoding"](SIZE, 1.5))
    io.write_reports(path, np.asarray([[0, 0], [255, 255]], np.uint8), unary)
    with refused(error=DataError, row=2):
        io.read_tally(str(path))
    unknown = Metadata(
        MechanismRecord("optimized-local-hashing", {"num_categories": SIZE, "epsilon": 1.5, "salt": 3}),
        1.5,
        Domain.range(1, SIZE),
        "answer",
        True,
        "9",
    )
    io.write_reports(path, np.array([[1, 0]], np.uint32), unknown)
    with refused(error=DataError) as caught:
        io.read_tally(str(path))
    assert "salt" in str(caught.value)
    path.unlink()
    io.write_table(path, {"answer": np.arange(3)})
    with refused(error=DataError, file=str(path)):
        io.read_tally(str(path))


@pytest.mark.skipif(np.dtype(INT).itemsize > 4, reason="64 bits count on")
@pytest.mark.once
def test_more_reports_than_the_dtype_counts():
    with pytest.raises(DataError, match="JAX_ENABLE_X64"):
        as_jax_integers(np.array([2**31, 1]))
