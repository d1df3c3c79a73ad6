"""Refusals, held to what they say as data: the words are free to change."""

import pytest

from rrjax.data.errors import ArgumentError


def refused(argument=None, *, error=ArgumentError, **attributes):
    """`pytest.raises` of an error with these attributes: `refused("epsilon")`, `refused(error=DataError, row=3)`."""
    expected = attributes if argument is None else {"argument": argument, **attributes}
    return pytest.raises(
        error, check=lambda raised: all(getattr(raised, name, None) == value for name, value in expected.items())
    )


def blames(error, flag):
    """Whether an error of the command line is about this flag."""
    parameter = getattr(error, "param", None)
    if parameter is not None:  # of the parser
        return flag in parameter.opts
    return getattr(error, "flag", None) == flag
