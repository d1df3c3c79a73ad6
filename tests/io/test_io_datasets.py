"""The published data sets, through stand-ins of the same layout."""

import os
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from rrjax.io import DataError, load_acs_income, load_kosarak

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


@pytest.mark.skipif(not KOSARAK.exists(), reason="kosarak-head.dat.gz is not here")
def test_head_of_kosarak():
    with refused(error=DataError, file=str(KOSARAK)):
        load_kosarak(KOSARAK)
    counted = load_kosarak(KOSARAK, verify=False)
    assert counted.domain.num_categories == 41_270
    assert counted.num_rows == 36_683
    assert counted.counts[10] == 10_571
    assert not counted.domain_from_data
    everything = load_kosarak(KOSARAK, items="all", verify=False)
    assert np.count_nonzero(everything.counts) == 17_034


@pytest.mark.parametrize("header", ["", "0\n", "page\n"])
def test_derived_kosarak(tmp_path, header):
    path = tmp_path / "kosarak.csv"
    path.write_text(header + "1\n11\n11\n41270\n")
    with refused(error=DataError, file=str(path)):
        load_kosarak(path)
    with refused("items", error=DataError):
        load_kosarak(path, items="all", verify=False)
    counted = load_kosarak(path, verify=False)
    assert counted.counts[[0, 10, 41_269]].tolist() == [1, 2, 1]
    assert counted.num_rows == 4


def test_derived_file_of_the_right_size_only(tmp_path):
    path = tmp_path / "kosarak.csv"
    path.write_bytes(b"1\n" * (3_133_492 // 2))
    with refused(error=DataError, file=str(path)):
        load_kosarak(path)


@pytest.mark.parametrize("inside", [".", "2018/1-Year"])
def test_folktables_layout(states, inside):
    folder = states / inside
    areas = load_acs_income(folder, "PUMA", verify=False)
    assert areas.domain.num_categories == 70_202
    # Three states: Folktables leaves out the District of Columbia (11).
    assert areas.num_rows == 9
    assert areas.counts[[0, 1, 70_201]].tolist() == [3, 3, 3]
    incomes = load_acs_income(folder, "PINCP", verify=False)
    assert incomes.domain.num_categories == 1_423_000
    assert np.flatnonzero(incomes.counts).tolist() == [100, 49_999, 1_422_999]
    with refused(error=DataError, file=str(folder)):
        load_acs_income(folder)


def test_value_outside_is_found_among_the_filtered_rows(states):
    path = states / "2018" / "1-Year" / "psam_p06.csv"
    path.write_text(PERSONS.format(state="06") + "P,10,00100,06,1,95,99,1423001\n")
    with refused(error=DataError, file=str(path), column="PINCP", row=10, value="1423001"):
        load_acs_income(states, "PINCP", verify=False)


def test_derived_acs_income(tmp_path):
    path = tmp_path / "ACSIncome.csv"
    path.write_text("PUMA,PINCP\n100,50000.0\n70301,104.0\n")
    assert load_acs_income(path, "PINCP", verify=False).counts[[103, 49_999]].tolist() == [1, 1]
    assert load_acs_income(path, "PUMA", verify=False).counts[[0, 70_201]].tolist() == [1, 1]
    with refused(error=DataError, file=str(path)):
        load_acs_income(path)


def test_nothing_there(tmp_path):
    with refused(error=DataError, file=str(tmp_path)):
        load_acs_income(tmp_path)
    with refused(error=DataError, file=str(tmp_path / "ACSIncome.csv")):
        load_acs_income(tmp_path / "ACSIncome.csv")
    with refused(error=DataError, file=str(tmp_path / "kosarak.dat")):
        load_kosarak(tmp_path / "kosarak.dat")
    with refused("column", error=DataError, value="AGEP"):
        load_acs_income(tmp_path, "AGEP")  # pyright: ignore
