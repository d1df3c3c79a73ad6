"""The published data sets, through stand-ins of the same layout."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from written import written

from rrjax.cli import datasets
from rrjax.cli.datasets import acs_income, kosarak
from rrjax.io import DataError

pytestmark = pytest.mark.once  # nothing here depends on the precision

DATA = Path(os.environ.get("RRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))
KOSARAK = DATA / "kosarak-head.dat.gz"

PERSONS = """RT,SERIALNO,PUMA,ST,PWGTP,AGEP,WKHP,PINCP
P,1,00100,{state},10,40,40,50000
P,2,70301,{state},10,17,1,101
P,3,00100,{state},10,16,40,50000
P,4,00100,{state},10,40,,50000
P,5,00100,{state},10,40,40,100
P,6,00100,{state},10,40,40,
P,7,00100,{state},10,40,40,-500
P,8,00100,{state},0,40,40,500
P,9,00101,{state},1,95,99,1423000
"""


@pytest.fixture
def states(tmp_path):
    folder = tmp_path / "2018" / "1-Year"
    folder.mkdir(parents=True)
    for state in ("01", "06", "11", "72"):
        (folder / f"psam_p{state}.csv").write_text(PERSONS.format(state=state))
    (folder / "psam_h06.csv").write_text("SERIALNO\n1\n")
    return tmp_path


def publish(monkeypatch, path):
    """Makes this file the published one."""
    known = {path.name: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())}
    monkeypatch.setattr(datasets, "DERIVED", known)


@pytest.mark.long
@pytest.mark.skipif(not KOSARAK.exists(), reason="kosarak-head.dat.gz is not here")
def test_head_of_kosarak(monkeypatch):
    with refused(error=DataError, file=str(KOSARAK)):
        kosarak(KOSARAK)
    monkeypatch.setattr(datasets, "SESSIONS", 36_683)
    with refused(error=DataError, file=str(KOSARAK)):  # the right sessions, but not all pages
        kosarak(KOSARAK)
    monkeypatch.setattr(datasets, "PAGES", 17_034)
    counted = kosarak(KOSARAK)
    assert counted.domain.num_categories == 41_270
    assert counted.num_rows == 36_683
    assert counted.counts[10] == 10_571
    assert not counted.domain_from_data


@pytest.mark.parametrize("header", ["", "0\n", "page\n"])
def test_derived_kosarak(tmp_path, monkeypatch, header):
    path = written(tmp_path / "kosarak.csv", header + "1\n11\n11\n41270\n")
    with refused(error=DataError, file=str(path)):
        kosarak(path)
    publish(monkeypatch, path)
    counted = kosarak(path)
    assert counted.counts[[0, 10, 41_269]].tolist() == [1, 2, 1]
    assert counted.num_rows == 4


def test_derived_file_of_the_right_size_only(tmp_path):
    path = written(tmp_path / "kosarak.csv", b"1\n" * (3_133_492 // 2))
    with refused(error=DataError, file=str(path)):
        kosarak(path)


@pytest.mark.parametrize("inside", [".", "2018/1-Year"])
def test_folktables_layout(states, monkeypatch, inside):
    folder = states / inside
    with refused(error=DataError, file=str(folder)):
        dict(acs_income(folder))
    # Three states: Folktables leaves out the District of Columbia (11).
    monkeypatch.setattr(datasets, "ROWS", 9)
    counted = dict(acs_income(folder))
    areas, incomes = counted["PUMA"], counted["PINCP"]
    assert areas.domain.num_categories == 70_202
    assert areas.num_rows == areas.counts.sum() == 9
    assert areas.counts[[0, 1, 70_201]].tolist() == [3, 3, 3]
    assert incomes.domain.num_categories == 1_423_000
    assert np.flatnonzero(incomes.counts).tolist() == [100, 49_999, 1_422_999]


@pytest.mark.parametrize("income", ["1423001", "100.5", "many"])
def test_value_outside_is_found_among_the_filtered_rows(states, monkeypatch, income):
    more = f"P,10,00100,06,1,95,99,{income}\n"
    (states / "2018" / "1-Year" / "psam_p06.csv").write_text(PERSONS.format(state="06") + more)
    monkeypatch.setattr(datasets, "ROWS", 9 + (income != "many"))  # a text does not pass the filter
    counted = acs_income(states)
    next(counted)
    if income == "many":
        assert next(counted)[1].num_rows == 9
        return
    with refused("PINCP", error=DataError, file=str(states)):
        next(counted)


def test_derived_acs_income(tmp_path, monkeypatch):
    path = written(tmp_path / "ACSIncome.csv", "PUMA,PINCP\n100,50000.0\n70301,104.0\n")
    with refused(error=DataError, file=str(path)):
        dict(acs_income(path))
    publish(monkeypatch, path)
    counted = dict(acs_income(path))
    assert counted["PINCP"].counts[[103, 49_999]].tolist() == [1, 1]
    assert counted["PUMA"].counts[[0, 70_201]].tolist() == [1, 1]


@pytest.mark.parametrize(("read", "name"), [(acs_income, "."), (acs_income, "ACSIncome.csv"), (kosarak, "kosarak.dat")])
def test_nothing_there(tmp_path, read, name):
    with refused(error=DataError, file=str(tmp_path / name)):
        dict(read(tmp_path / name))
