"""What no study can be is refused by argument, and by file if it came from one."""

import re

import jax
import pytest

pytest.importorskip("xarray", reason="studies need xarray")

from cases import X64
from refusals import refused

import rrjax
from rrjax.study import Study, StudyError

ANYTHING = ("true", '"a"', "nan", "-1", "[]", "[1, 1]", '[1, "a"]', "[[1], [2, 3]]", "1979-05-27", "{}", "{a = 1}",
            '"os:path"', '"a:b"', '":"', f"1{'0' * 400}", '["inv", "INV"]', "{a = [1, 2], b = [1]}")  # fmt: skip
ARGUMENTS = ("estimators", "mechanism", "num_categories", "num_users", "epsilon", "zipf", "distributions", "users",
             "num_seeds", "estimand", "metrics", "seed", "quantiles", "keep_seeds", "batch_size")  # fmt: skip
GOOD = {("quantiles", "[]"), ("keep_seeds", "true")}


@pytest.mark.once
@pytest.mark.parametrize("name", ARGUMENTS)
def test_files_of_anything_are_refused_by_argument_and_file(name, tmp_path):
    file = tmp_path / "own.toml"
    given = {"estimators": '"inv"', "num_users": "20", "epsilon": "1", "num_seeds": "2"}
    given |= {} if name in ("distributions", "users") else {"zipf": "1", "num_categories": "4"}
    for value in ANYTHING:
        file.write_text("".join(f"{key} = {text}\n" for key, text in (given | {name: value}).items()))
        if (name, value) in GOOD:
            continue
        with pytest.raises(StudyError) as caught:
            rrjax.study.read_study(file)
        assert caught.value.argument in {name, "num_categories" if "[" in value else name}, (value, caught.value)
        assert caught.value.file == file
        said = str(caught.value)
        assert str(file) in said
        # In the words of TOML, which names its tables and keys.
        assert name in said or "num_categories" in said
        assert not re.search(r"\b(True|False|None|NoneType|dict|list|tuple|datetime|date\(|float64)\b|<|\{'", said), (
            said
        )


@pytest.mark.once
def test_files_that_are_no_studies_are_refused_by_file(tmp_path):
    file = tmp_path / "own.toml"
    text = 'estimators = "inv"\nnum_categories = 4\nnum_users = 9\nepsilon = 1\nzipf = 1\nnum_seeds = 2\n'
    for content, argument in (
        (b"", "estimators"),
        (b"\xff\xfe\x00", None),
        (b"a = = 1", None),
        (text.encode("utf-16"), None),
        ((text + "epsilom = 2").encode(), "epsilom"),
        ((text + "epsilon = 2").encode(), None),  # twice
        (text.replace("epsilon = 1\n", "").encode(), "epsilon"),
        ((text + "[distributions]\na = [0, 0, 0, 0]\n").replace("zipf = 1\n", "").encode(), "distributions"),
    ):
        file.write_bytes(content)
        with refused(argument, error=StudyError, file=file):
            rrjax.study.read_study(file)
    for path in (tmp_path, tmp_path / "missing.toml"):
        with refused(error=StudyError, file=path):
            rrjax.study.read_study(path)
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())  # as some editors write
    assert rrjax.study.read_study(str(file))[0].num_users == (9,)


def test_fixed_users_must_be_integers():
    with refused("users", error=StudyError, value="a"):
        Study(estimators="inv", epsilon=1.0, users={"a": [0.5, 0.5]})
    with refused("users", error=StudyError):
        Study(estimators="inv", epsilon=1.0, users={"a": [1, 2], "b": [2, 2]})


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"metrics": {"epsilon": rrjax.metrics.squared_error}}, "metrics"),
        ({"metrics": {"a/b": rrjax.metrics.squared_error}}, "metrics"),
        ({"metrics": {"mse_se": rrjax.metrics.squared_error}}, "metrics"),
        ({"estimators": {3: "mle_star", "3": "inv_p"}}, "estimators"),
        ({"estimators": {"inv": "mle_star"}}, "estimators"),
        ({"metrics": {"nll": "tv"}}, "metrics"),
        ({"metrics": {"error": "mse"}}, "metrics"),
        ({"estimators": [3]}, "estimators"),
        ({"estimators": ["inv", "inv"]}, "estimators"),
        ({"num_users": [[1], [2, 3]]}, "num_users"),
        ({"epsilon": 1e-300 if not X64 else 0.0}, "epsilon"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(change, argument):
    given = {"estimators": "inv", "num_categories": 3, "num_users": 10, "epsilon": 1.0, "zipf": 1.0, "num_seeds": 2}
    with refused(argument, error=StudyError):
        Study(**(given | change))


@pytest.mark.full
@pytest.mark.once
@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"quantiles": ["a"]}, "quantiles"),
        ({"quantiles": [1.5]}, "quantiles"),
        ({"batch_size": "1"}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"memory": float("nan")}, "memory"),
        ({"memory": 1000}, "memory"),
        ({"keep_seeds": "no"}, "keep_seeds"),
        ({"devices": []}, "devices"),
        ({"devices": [jax.devices()[0]] * 2}, "devices"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_run(change, argument):
    study = Study(estimators="inv", num_categories=3, num_users=10, epsilon=1.0, zipf=1.0, num_seeds=2)
    with refused(argument, error=StudyError):
        study.run(**change)
