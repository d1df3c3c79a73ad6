"""Survey designs among the mechanisms of a study: as objects, as tables, in TOML files."""

import numpy as np
import pytest
from refusals import refused

from rrjax.data.errors import StudyError
from rrjax.mechanisms import ForcedResponse, Warner
from rrjax.study import Study, read_study

SHARES = {"a": [0.2, 0.8]}
DICE = {"mechanism": "forced-response", "truth": "2/3", "forced": ["1/2", "1/2"]}


def study(**given):
    arguments = {"estimators": ["inv", "inv_p"], "num_users": 500, "distributions": SHARES, "num_seeds": 400}
    return Study(**arguments | given)


@pytest.mark.long  # a program for each design
def test_the_error_of_designs():
    both = {"object": ForcedResponse(2 / 3, [0.5, 0.5]), "table": {"mechanism": "warner", "truth_probability": 0.75}}
    result = study(mechanism=both).run(seed=3)
    assert float(result.epsilon.item()) == pytest.approx(np.log(5), abs=1e-6)  # the largest of the two
    for label, d, q in (("object", 2 / 3, 1 / 6), ("table", 0.5, 0.25)):
        mse = result.mse.sel(estimator="inv", mechanism=label).item()  # summed over both categories
        error = result.mse_se.sel(estimator="inv", mechanism=label).item()
        # Of given users, each answer has the variance q(1 − q) here, for both categories.
        assert abs(mse - 2 * q * (1 - q) / d**2 / 500) < 4 * error


@pytest.mark.long
def test_a_design_in_a_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(
        'estimators = ["inv_p"]\nnum_users = 100\nnum_seeds = 5\n[distributions]\na = [0.2, 0.8]\n'
        '[mechanism.dice]\nmechanism = "forced-response"\ntruth = "2/3"\nforced = ["1/2", "1/2"]\n'
    )
    found, _ = read_study(file)
    assert found.run().mse.equals(
        study(estimators=["inv_p"], num_users=100, num_seeds=5, mechanism={"dice": DICE}).run().mse
    )
    assert found.describe() != study(mechanism={"dice": DICE | {"truth": 0.5}}).describe()


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"mechanism": "warner"}, "mechanism"),
        ({"mechanism": {"w": {"mechanism": "warner"}}}, "mechanism"),
        ({"mechanism": {"w": {"mechanism": "oue", "epsilon": 1}}}, "mechanism"),
        ({"mechanism": {"w": {"mechanism": "warner", "truth_probability": 0.5}}}, "mechanism"),
        ({"mechanism": Warner(0.7), "distributions": {"a": [0.2, 0.3, 0.5]}}, "num_categories"),
        ({"mechanism": ["rr", Warner(0.7)]}, "epsilon"),
        ({}, "epsilon"),
    ],
)
def test_studies_that_cannot_be(given, argument):
    with refused(argument, error=StudyError):
        study(**given)
