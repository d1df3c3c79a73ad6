"""Whether the command line prints and writes what an answer says."""

import json

import numpy as np
import pytest

from rrjax.data.errors import ArgumentError, DataError

INVOCATION = {"command", "out", "plot"}
"""What only an invocation of the command line knows."""


def near(one, other, rel, absolute, skipped=()):
    """Whether two values of JSON are the same but for rounding: the command line compiles its programs otherwise."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = one.keys() - set(skipped)
        return one.keys() == other.keys() and all(near(one[key], other[key], rel, absolute, skipped) for key in keys)
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(near(*pair, rel, absolute, skipped) for pair in pairs)
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=rel, abs=absolute)
    return type(one) is type(other) and one == other


def check_outlets(answer, invoke, *line, top=10, tolerance=1e-9, absolute=None, spelt=(), skipped=(), out=True):
    """Checks that --json is what the answer says, and that the file of --out (if there is one) holds its table.

    Of the facts `spelt` only the number is compared, because flags and arguments are spelt otherwise; those `skipped`
    are of rounding alone.
    """
    polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")
    absolute = tolerance if absolute is None else absolute
    code, said, error = invoke(*line, "--json", *(("--out", "written.parquet") if out else ()))
    assert code == 0, error
    printed = {key: value for key, value in json.loads(said).items() if key not in INVOCATION}
    said = json.loads(json.dumps(answer.to_dict(top)))
    for name in spelt:
        assert len(printed.pop(name)) == len(said.pop(name))
    assert printed.keys() == said.keys()
    for key in said:
        assert near(printed[key], said[key], tolerance, absolute, skipped), (key, printed[key], said[key])
    written = polars.read_parquet("written.parquet") if out else answer.to_polars()
    assert written.columns == list(answer.columns)
    for name, column in answer.columns.items():
        if column.dtype.kind in "biuf":
            np.testing.assert_allclose(written[name].to_numpy(), column, rtol=tolerance, atol=absolute)
        else:
            assert written[name].to_list() == column.tolist()


def check_refusal(argument, ask):
    """Checks that a refusal names the argument, and no flag; returns it."""
    with pytest.raises((ArgumentError, DataError)) as caught:
        ask()
    assert caught.value.argument == argument
    assert "--" not in str(caught.value)
    return caught.value
