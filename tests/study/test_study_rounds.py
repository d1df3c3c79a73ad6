"""Longitudinal protocols among the mechanisms of a study: the error of several rounds of the same users."""

import pytest
from refusals import refused

import rrjax
from rrjax.data.errors import StudyError
from rrjax.study import Study, read_study

LRR = {"mechanism": "longitudinal-randomized-response", "first_epsilon": 1.0}


def study(**given):
    shares = {"a": [0.5, 0.3, 0.2]}
    arguments = {"estimators": ["inv", "inv_p"], "num_users": 500, "distributions": shares, "epsilon": 2.0}
    return Study(**arguments | {"num_seeds": 400} | given)


def squared_error(rounds):
    """Of `inv` of all rounds, summed over the categories: the noise of the memos, and that of one round over T."""
    memo, once = (rrjax.RandomizedResponse(3, epsilon) for epsilon in (2.0, 1.0))
    of_memo, of_once = (float(each.expected_squared_error(500)) for each in (memo, once))
    return of_memo + (of_once - of_memo) / rounds


@pytest.mark.long
def test_the_error_of_several_rounds():
    mechanism = {"one": LRR, "five": LRR | {"rounds": 5}}
    result = study(mechanism=mechanism).run(seed=3)
    for label, rounds in (("one", 1), ("five", 5)):
        mse = result.mse.sel(estimator="inv", mechanism=label).item()
        error = result.mse_se.sel(estimator="inv", mechanism=label).item()
        assert abs(mse - squared_error(rounds)) < 4 * error
    assert squared_error(5) > 1.5 * squared_error(1) / 5  # far from five times as many users


@pytest.mark.long
@pytest.mark.full
def test_all_protocols_in_a_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(
        'estimators = ["inv_p"]\nnum_users = 50\nnum_seeds = 4\nepsilon = [2.0, 3.0]\n'
        "[distributions]\na = [0.5, 0.3, 0.2]\n"
        '[mechanism.rr]\nmechanism = "l-grr"\nfirst_epsilon = 1.0\nrounds = 5\n'
        '[mechanism.hashing]\nmechanism = "loloha"\nfirst_epsilon = 1.0\nrounds = 5\n'
        '[mechanism.unary]\nmechanism = "longitudinal-unary-encoding"\nfirst_epsilon = 1\nrounds = 5\n'
        'permanent_encoding = "symmetric"\n'
    )
    found, _ = read_study(file)
    result = found.run()
    assert result.mse.notnull().all()
    point = found.configurations()[0]
    assert int(found.collection(point, 0)[1].num_users) == 250
    other = study(estimators="inv_p", num_users=50, num_seeds=4, epsilon=[2.0, 3.0], mechanism={"rr": LRR})
    assert other.describe()["mechanism"]["rr"] != found.describe()["mechanism"]["rr"]


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"mechanism": "loloha"}, "mechanism"),
        ({"mechanism": {"l": LRR | {"num_buckets": 2}}}, "mechanism"),
        ({"mechanism": {"l": LRR | {"rounds": 0}}}, "mechanism"),
        ({"mechanism": {"l": LRR | {"rounds": 2.5}}}, "mechanism"),
        ({"mechanism": {"l": LRR}, "epsilon": [0.5, 2.0]}, "mechanism"),
        ({"mechanism": {"l": LRR | {"first_epsilon": "high"}}}, "mechanism"),
        ({"mechanism": {"l": LRR | {"rounds": 10_000_000}}}, "num_users"),
    ],
)
def test_rounds_that_cannot_be(given, argument):
    with refused(argument, error=StudyError):
        study(**given)
