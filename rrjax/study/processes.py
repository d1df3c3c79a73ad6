"""The processes of one study: checks that they run the same study; process 0 reads and writes the folder."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from rrjax.data.errors import PeerError, StudyError

_T = TypeVar("_T")


def check_agreement(description: dict[str, Any]) -> None:
    """Refuses processes with different studies, seeds or batch sizes."""
    if jax.process_count() == 1:
        return
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).digest()
    with _answering():
        found = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
    if (found != found[0]).any():
        raise StudyError(
            "the processes were given different studies, seeds or batch sizes: start all of them with the same "
            "arguments, except the number of the process"
        )


def on_first(make: Callable[[], _T]) -> _T | None:
    """The result of a function that only process 0 calls, on process 0; if it fails, all processes stop."""
    made, failure = None, None
    if jax.process_index() == 0:
        try:
            made = make()
        except Exception as error:
            failure = error
    if jax.process_count() > 1:
        with _answering():
            failed = bool(multihost_utils.broadcast_one_to_all(np.int32(failure is not None)))
        if failed and failure is None:
            raise StudyError("process 0 stopped; its message says why")
    if failure is not None:
        raise failure
    return made


def shared(value: _T) -> _T:
    """The value of process 0, on every process."""
    if jax.process_count() == 1:
        return value
    packed = np.frombuffer(pickle.dumps(value), np.uint8)
    with _answering():
        size = int(multihost_utils.broadcast_one_to_all(np.int32(packed.size)))
        padded = np.zeros(size, np.uint8)
        if jax.process_index() == 0:
            padded[:] = packed
        return pickle.loads(np.asarray(multihost_utils.broadcast_one_to_all(padded)).tobytes())


def gathered(arrays: _T) -> _T:
    """Arrays spread over the devices of all processes, gathered on every process."""
    if jax.process_count() == 1:
        return arrays
    with _answering():
        return multihost_utils.process_allgather(arrays, tiled=True)


@contextmanager
def _answering() -> Iterator[None]:
    """Raises a `PeerError` if an exchange fails. The error of JAX depends on the transport."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        raise PeerError(
            f"another process ended, or cannot be reached: start all of them again. ({str(error).splitlines()[0]})"
        ) from error
