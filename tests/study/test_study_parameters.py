"""Mechanisms of a study that are parameters: survey designs, rounds of a protocol, columns apart."""

import jax
import numpy as np
import pytest
from cases import X64
from refusals import refused

import rrjax
from rrjax.data.errors import StudyError
from rrjax.mechanisms import ByRespondent, Crosswise, Direct, ForcedResponse, NegativeQuestion, Product, Warner
from rrjax.study import JointCounts, Study, read_study

DICE = {"mechanism": "forced-response", "truth": "2/3", "forced": ["1/2", "1/2"]}
LRR = {"mechanism": "longitudinal-randomized-response", "first_epsilon": 1.0}
APART = {"mechanism": "product", "columns": [2, 3]}
THETA = np.array([[0.3, 0.1, 0.05], [0.15, 0.05, 0.35]])
USERS = 3000


def of_designs(**given):
    arguments = {"estimators": ["inv", "inv_p"], "num_users": 500, "distributions": {"a": [0.2, 0.8]}}
    return Study(**arguments | {"num_seeds": 400} | given)


def of_rounds(**given):
    return of_designs(**{"distributions": {"a": [0.5, 0.3, 0.2]}, "epsilon": 2.0} | given)


def of_columns(**given):
    arguments = {"estimators": "inv", "num_users": USERS, "distributions": {"a": THETA.ravel()}, "epsilon": 2.0}
    arguments |= {"mechanism": {"apart": APART}, "estimand": "distribution"}
    return Study(**arguments | {"num_seeds": 400} | given)


@pytest.mark.full  # a program for each design
def test_the_error_of_designs():
    both = {"object": ForcedResponse(2 / 3, [0.5, 0.5]), "table": {"mechanism": "warner", "truth_probability": 0.75}}
    result = of_designs(mechanism=both).run(seed=3)
    assert float(result.epsilon.item()) == pytest.approx(np.log(5), abs=1e-6)  # the largest of the two
    for label, d, q in (("object", 2 / 3, 1 / 6), ("table", 0.5, 0.25)):
        mse = result.mse.sel(estimator="inv", mechanism=label).item()  # summed over both categories
        error = result.mse_se.sel(estimator="inv", mechanism=label).item()
        # Of given users, each answer has the variance q(1 − q) here, for both categories.
        assert abs(mse - 2 * q * (1 - q) / d**2 / 500) < 4 * error


@pytest.mark.full
def test_a_design_in_a_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(
        'estimators = ["inv_p"]\nnum_users = 100\nnum_seeds = 5\n[distributions]\na = [0.2, 0.8]\n'
        '[mechanism.dice]\nmechanism = "forced-response"\ntruth = "2/3"\nforced = ["1/2", "1/2"]\n'
    )
    found, _ = read_study(file)
    assert found.run().mse.equals(
        of_designs(estimators=["inv_p"], num_users=100, num_seeds=5, mechanism={"dice": DICE}).run().mse
    )
    assert found.describe() != of_designs(mechanism={"dice": DICE | {"truth": 0.5}}).describe()


HALVES = {
    "mechanism": "by-respondent",
    "designs": [{"mechanism": "direct"}, {"mechanism": "crosswise", "innocuous": 0.25}],
    "shares": [96, 310],
}


@pytest.mark.full  # a program for each design
def test_designs_by_respondent_have_fixed_numbers_of_users(tmp_path):
    mixed = ByRespondent([Direct(2), Crosswise(0.25)], np.repeat([0, 1], [96, 310]))
    given = {"num_users": 406, "estimand": "distribution", "epsilon": 1.0}
    study = of_designs(mechanism={"object": mixed, "table": HALVES, "warner": Warner(0.25)}, **given)
    result = study.run(seed=3, keep_seeds=True)
    assert result.mse_seeds.sel(mechanism="warner").notnull().all()
    # By the law of two independent groups, at the weights of `surveys.groups.inv`: shares 0.2, both of one error.
    numbers, d, q = np.array([96, 310]), np.array([1, 0.5]), np.array([0, 0.25])
    weights = numbers / (0.25 / d**2)
    named = q + d * 0.2
    variance = ((weights / weights.sum()) ** 2 * named * (1 - named) / d**2 / numbers).sum()
    for label in ("object", "table"):
        cell = result.sel(mechanism=label, estimator="inv")
        assert abs(cell.mse.item() - 2 * variance) < 4 * cell.mse_se.item()
        point = next(each for each in study.configurations() if each.mechanism == label)
        _, counts = study.collection(point, 7, seed=3)
        assert isinstance(counts, JointCounts)
        assert counts.counts.sum(axis=1).tolist() == [96, 310]
        error = float(rrjax.metrics.squared_error(mixed.inv(counts.counts), np.array([0.2, 0.8])))
        assert cell.mse_seeds.squeeze().values[7] == pytest.approx(error, rel=1e-3)
    file = tmp_path / "study.toml"
    file.write_text(
        'estimators = ["inv", "inv_p"]\nnum_users = 406\nnum_seeds = 400\nestimand = "distribution"\nepsilon = 1\n'
        '[distributions]\na = [0.2, 0.8]\n[mechanism.table]\nmechanism = "by-respondent"\nshares = [96, 310]\n'
        'designs = [{mechanism = "direct"}, {mechanism = "crosswise", innocuous = 0.25}]\n'
    )
    found, _ = read_study(file)
    assert found.run(seed=3).mse.equals(result.mse.sel(mechanism=["table"]))
    assert of_designs(mechanism={"halves": HALVES}).epsilon == (np.inf,)


@pytest.mark.long
@pytest.mark.full  # a program for the maximum
def test_the_maximum_of_designs_by_respondent_is_that_of_all_their_answers():
    designs = [NegativeQuestion(3), ForcedResponse(0.5, [0.2, 0.3, 0.5]), rrjax.RandomizedResponse(3, 1.0)]
    mixed = ByRespondent(designs, np.repeat([0, 1, 2], [150, 250, 100]))
    study = of_designs(estimators=["mle"], mechanism={"a": mixed}, distributions={"a": [0.2, 0.3, 0.5]}, num_seeds=5)
    result = study.run(keep_seeds=True)
    for number in range(2):
        truth, counts = study.collection(study.configurations()[0], number)
        theta = rrjax.surveys.groups.mle([
            design.mixture_of_counts(row) for design, row in zip(mixed.designs, counts.counts, strict=True)
        ]).theta  # fmt: skip
        assert counts.counts.sum(axis=1).tolist() == [150, 250, 100]
        error = float(rrjax.metrics.squared_error(theta, truth))
        assert result.mse_seeds.squeeze().values[number] == pytest.approx(error, rel=0.05)


def error_of_rounds(rounds):
    """Of `inv` of all rounds, summed over the categories: the noise of the memos, and that of one round over T."""
    memo, once = (rrjax.RandomizedResponse(3, epsilon) for epsilon in (2.0, 1.0))
    of_memo, of_once = (float(each.expected_squared_error(500)) for each in (memo, once))
    return of_memo + (of_once - of_memo) / rounds


@pytest.mark.full
def test_the_error_of_several_rounds():
    mechanism = {"one": LRR, "five": LRR | {"rounds": 5}}
    result = of_rounds(mechanism=mechanism).run(seed=3)
    for label, rounds in (("one", 1), ("five", 5)):
        mse = result.mse.sel(estimator="inv", mechanism=label).item()
        error = result.mse_se.sel(estimator="inv", mechanism=label).item()
        assert abs(mse - error_of_rounds(rounds)) < 4 * error
    assert error_of_rounds(5) > 1.5 * error_of_rounds(1) / 5  # far from five times as many users


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
    other = of_rounds(estimators="inv_p", num_users=50, num_seeds=4, epsilon=[2.0, 3.0], mechanism={"rr": LRR})
    assert other.describe()["mechanism"]["rr"] != found.describe()["mechanism"]["rr"]


def error_of_columns(*epsilons):
    """Of `inv` from the distribution, summed over the cells, from inverses of the channels."""
    columns = map(rrjax.RandomizedResponse, (2, 3), epsilons)
    channels = [np.asarray(column.channel(), float) for column in columns]
    law = channels[0] @ THETA @ channels[1].T
    first, second = (np.linalg.inv(channel) ** 2 for channel in channels)
    return ((first @ law @ second.T) - THETA**2).sum() / USERS


@pytest.mark.full
def test_the_error_of_the_joint_inversion():
    mechanism = {"apart": APART, "split": APART | {"split": [1, 3]}}
    result = of_columns(mechanism=mechanism).run(seed=1)
    for label, epsilons in (("apart", (1.0, 1.0)), ("split", (0.5, 1.5))):
        cell = result.sel(mechanism=label, estimator="inv")
        assert abs(cell.mse.item() - error_of_columns(*epsilons)) < 4 * cell.mse_se.item()
    assert error_of_columns(0.5, 1.5) > 1.2 * error_of_columns(1.0, 1.0)


def margins(counts, epsilon):
    """Both columns as if independent."""
    assert epsilon is None
    table = counts.unbiased.reshape(counts.product.shape)
    return (table.sum(1)[:, None] * table.sum(0)).ravel()


@pytest.mark.full
def test_estimators_are_those_of_joint_reports(tmp_path):
    names = ["inv", "inv_n", "inv_p", "base_pos", "ibu", "mle", "joint_bayes"]
    found = of_columns(estimators={name: name for name in names} | {"margins": margins}, num_seeds=3, estimand="users")
    result = found.run(seed=2, keep_seeds=True, folder=tmp_path)
    point = found.configurations()[0]
    truth, counts = found.collection(point, 1, seed=2)
    assert isinstance(counts, JointCounts)
    assert counts.counts.sum() == USERS
    product = Product([rrjax.RandomizedResponse(2, 1.0), rrjax.RandomizedResponse(3, 1.0)])
    unbiased = product.inv(counts.counts)
    above = np.maximum(unbiased, 0)
    order = np.sort(unbiased)[::-1]
    level = max((order[:k].sum() - 1) / k for k in range(1, 7))
    by_steps = rrjax.ibu(product.mixture_of_counts(counts.counts)).theta
    with jax.enable_x64(True):
        likeliest = rrjax.ibu(
            Product([rrjax.RandomizedResponse(2, 1.0), rrjax.RandomizedResponse(3, 1.0)]).mixture_of_counts(
                np.asarray(counts.counts)
            )
        ).theta
    expected = {"inv": unbiased, "inv_n": above / above.sum(), "base_pos": above}
    expected |= {"inv_p": np.maximum(unbiased - level, 0)}
    expected |= {"ibu": by_steps, "mle": np.asarray(likeliest), "margins": margins(counts, None)}
    expected["joint_bayes"] = rrjax.joint_bayes(product.mixture_of_counts(counts.counts), (2, 3)).theta
    for name, theta in expected.items():
        error = result.mse_seeds.sel(estimator=name).squeeze().values[1]
        # In float32 the certificate of `ibu` leaves it some room: here its error is 3 and 5 % less than that of the
        # maximum, which is 2e-7 nats a user more likely. The evidence leaves amplitudes, with x64 1e-13.
        close = {"ibu": 0.05, "joint_bayes": 1e-6 if X64 else 0.01}.get(name, 2e-3)
        assert error == pytest.approx(float(rrjax.metrics.squared_error(theta, truth)), rel=close), name
    again = found.run(seed=2, keep_seeds=True, folder=tmp_path)
    assert again.mse.equals(result.mse)
    assert again.attrs["runs"] == 1  # nothing was computed again
    with refused("folder", error=StudyError):
        of_columns(mechanism={"apart": APART | {"split": [2, 1]}}, num_seeds=3).run(seed=2, folder=tmp_path)


@pytest.mark.full
def test_beside_other_mechanisms_in_a_file(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(
        'estimators = ["inv", "inv_p"]\nnum_users = 100\nnum_seeds = 4\nepsilon = [2.0, 3.0]\nzipf = 1.0\n'
        'num_categories = 6\n[mechanism]\ntogether = "randomized-response"\n'
        'apart = {mechanism = "product", columns = [3, 2]}\n'
    )
    found, _ = read_study(file)
    assert found.run().mse.notnull().all()
    shapes = {point.mechanism: found.collection(point, 0)[1] for point in found.configurations()}
    assert isinstance(shapes["together"], rrjax.Tally)
    assert shapes["apart"].counts.shape == (3, 2)
    assert jax.numpy.isclose(shapes["apart"].product.epsilon, 3.0)


@pytest.mark.parametrize(
    ("study", "given", "argument"),
    [
        (of_designs, {"mechanism": "warner"}, "mechanism"),
        (of_designs, {"mechanism": {"w": {"mechanism": "warner"}}}, "mechanism"),
        (of_designs, {"mechanism": {"w": {"mechanism": "oue", "epsilon": 1}}}, "mechanism"),
        (of_designs, {"mechanism": {"w": {"mechanism": "warner", "truth_probability": 0.5}}}, "mechanism"),
        (of_designs, {"mechanism": Warner(0.7), "distributions": {"a": [0.2, 0.3, 0.5]}}, "num_categories"),
        (of_designs, {"mechanism": ["rr", Warner(0.7)]}, "epsilon"),
        (of_designs, {}, "epsilon"),
        (of_rounds, {"mechanism": "loloha"}, "mechanism"),
        (of_rounds, {"mechanism": {"l": LRR | {"num_buckets": 2}}}, "mechanism"),
        (of_rounds, {"mechanism": {"l": LRR | {"rounds": 0}}}, "mechanism"),
        (of_rounds, {"mechanism": {"l": LRR | {"rounds": 2.5}}}, "mechanism"),
        (of_rounds, {"mechanism": {"l": LRR}, "epsilon": [0.5, 2.0]}, "mechanism"),
        (of_rounds, {"mechanism": {"l": LRR | {"first_epsilon": "high"}}}, "mechanism"),
        (of_rounds, {"mechanism": {"l": LRR | {"rounds": 10_000_000}}}, "num_users"),
        (of_designs, {"mechanism": {"h": HALVES | {"shares": [96]}}}, "mechanism"),
        (of_designs, {"mechanism": {"h": HALVES | {"shares": [96, 0]}}}, "mechanism"),
        (of_designs, {"mechanism": {"h": HALVES | {"designs": "direct"}}}, "mechanism"),
        (of_designs, {"mechanism": {"h": HALVES | {"designs": [{"mechanism": "oue"}, DICE]}}}, "mechanism"),
        (of_designs, {"mechanism": {"h": HALVES | {"designs": [APART, DICE]}}}, "mechanism"),
        (of_designs, {"mechanism": {"h": HALVES | {"which": [0, 1]}}}, "mechanism"),
        (of_designs, {"mechanism": ByRespondent([Direct(2), Warner(0.7)])}, "mechanism"),
        (of_designs, {"mechanism": {"h": HALVES}, "distributions": {"a": [0.2, 0.3, 0.5]}}, "mechanism"),
        (of_designs, {"mechanism": {"h": HALVES}, "estimators": "empirical_bayes"}, "estimators"),
        (of_designs, {"mechanism": {"h": HALVES}, "estimators": "joint_bayes"}, "estimators"),
        (of_columns, {"mechanism": {"p": {"mechanism": "product"}}}, "mechanism"),
        (of_columns, {"mechanism": {"p": APART | {"columns": [6]}}}, "mechanism"),
        (of_columns, {"mechanism": {"p": APART | {"columns": [2, 3.5]}}}, "mechanism"),
        (of_columns, {"mechanism": {"p": APART | {"split": [1, 0]}}}, "mechanism"),
        (of_columns, {"mechanism": {"p": APART | {"split": [1]}}}, "mechanism"),
        (of_columns, {"mechanism": {"p": APART | {"rounds": 2}}}, "mechanism"),
        (of_columns, {"mechanism": {"p": APART | {"columns": [2, 2]}}}, "num_categories"),
        (of_columns, {"estimators": ["inv", "empirical_bayes"]}, "estimators"),
        (of_columns, {"estimators": "mle_star"}, "estimators"),
        (of_columns, {"estimators": "ibu", "mechanism": {"p": APART, "rr": "rr"}}, "estimators"),
        (of_columns, {"estimators": "joint_bayes", "mechanism": {"p": APART, "rr": "rr"}}, "estimators"),
        (of_columns, {"estimators": "joint_bayes", "mechanism": None}, "estimators"),
        (of_columns, {"metrics": "nll"}, "metrics"),
    ],
)
def test_parameters_that_cannot_be(study, given, argument):
    with refused(argument, error=StudyError):
        study(**given)
