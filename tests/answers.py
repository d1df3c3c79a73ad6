"""Whether the command line says what an answer says."""

import json

import numpy as np
import polars
import pytest

INVOCATION = ("command", "out", "plot")
"""What only an invocation of the command line knows."""


def leaves(value, path=()):
    """The texts and numbers in an object of JSON, by their places; not certificates, which are of rounding alone."""
    if not isinstance(value, dict | list):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {
        place: leaf for key, each in items if key != "certificate" for place, leaf in leaves(each, (*path, key)).items()
    }


def check_outlets(invoke, line, answer, spelt=()):
    """Checks that JSON and file of a command line are those of the answer, but for the spelling of some facts."""
    code, out, error = invoke(*line, "--json", "--out", "all.parquet")
    assert code == 0, error
    printed, expected = json.loads(out), json.loads(json.dumps(answer.to_dict()))
    for name in INVOCATION:
        del printed[name]
    for name in spelt:
        assert len(printed.pop(name)) == len(expected.pop(name))
    # The command line compiles its programs otherwise than the tests.
    assert leaves(printed) == {
        place: pytest.approx(leaf, rel=1e-6, abs=1e-9) if isinstance(leaf, float) else leaf
        for place, leaf in leaves(expected).items()
    }
    written = polars.read_parquet("all.parquet")
    assert written.columns == list(answer.columns)
    for name, column in answer.columns.items():
        if column.dtype.kind in "biuf":
            np.testing.assert_allclose(written[name].to_numpy(), column, rtol=1e-6, atol=1e-9)
        else:
            assert written[name].to_list() == column.tolist()
