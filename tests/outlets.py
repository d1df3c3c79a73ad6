"""Whether the command line prints and writes what an answer says."""

import json

import numpy as np
import pytest

INVOCATION = {"command", "out", "plot"}
"""What only an invocation of the command line knows."""


def near(one, other, tolerance):
    """Whether two values of JSON are the same but for rounding: the command line compiles its programs otherwise."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(near, one, other, [tolerance] * len(one)))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=tolerance, abs=tolerance)
    return type(one) is type(other) and one == other


def check_outlets(answer, invoke, *line, top=10, tolerance=1e-9):
    """Checks that --json is what the answer says, and that the file of --out holds its table."""
    polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")
    code, out, error = invoke(*line, "--json", "--out", "written.parquet")
    assert code == 0, error
    printed = {key: value for key, value in json.loads(out).items() if key not in INVOCATION}
    said = json.loads(json.dumps(answer.to_dict(top)))
    assert printed.keys() == said.keys()
    for key in said:
        assert near(printed[key], said[key], tolerance), key
    written = polars.read_parquet("written.parquet")
    assert written.columns == list(answer.columns)
    for name, column in answer.columns.items():
        if column.dtype == object:
            assert written[name].to_list() == column.tolist()
        else:
            np.testing.assert_allclose(written[name].to_numpy(), column, rtol=tolerance, atol=tolerance)
