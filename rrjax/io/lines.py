"""What is in a text, at the speed of memory: how many lines, which another reader has to find, and characters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from rrjax.io.database import opener_of

_PART_BYTES = 1 << 20
_QUOTE, _LF, _CR = b'"\n\r'


class _State(NamedTuple):
    """What is before a part of a text: whether a double quote is open, and the last byte."""

    is_open: int = 0
    last: int = _LF


def num_lines(file: str, *, blank: bool, quoted: bool) -> int | None:
    """The number of lines of a text that can be read, compressed or not.

    Args:
        file: The text, in which lines end in LF, CRLF or CR.
        blank: Whether lines without characters count.
        quoted: Whether line breaks between double quotes are part of a line.

    Returns:
        None if the last double quote is never closed.
    """
    number, state = 0, _State()
    for part in _parts(file):
        more, state = _ends(part, state, blank, quoted)
        number += more
    if state.is_open:
        return None
    return number + (state.last not in (_LF, _CR))


def holds(file: str, characters: bytes) -> bool:
    """Whether a text that can be read, compressed or not, has these characters, which are no line break."""
    before = b""
    for part in _parts(file):
        if characters in part or characters in before + part[: len(characters)]:
            return True
        before = part[1 - len(characters) :]
    return False


def _parts(file: str) -> Iterator[bytes]:
    """A text in parts, in which lines end in LF or CR."""
    with opener_of(file)(file, "rb") as stream:
        for part in iter(partial(stream.read, _PART_BYTES), b""):
            whole = part
            while whole.endswith(b"\r") and (more := stream.read(1)):
                whole += more
            yield whole.replace(b"\r\n", b"\n")


def _ends(part: bytes, state: _State, blank: bool, quoted: bool) -> tuple[int, _State]:
    """How many lines end in a part, and what is before the next one."""
    quotes = part.count(b'"') if quoted else 0
    after = _State((state.is_open + quotes) & 1, part[-1])
    if not quotes and not state.is_open and _CR not in part and (blank or b"\n\n" not in part):
        first_is_blank = not blank and state.last in (_LF, _CR) and part[0] == _LF
        return part.count(b"\n") - first_is_blank, after
    characters = np.frombuffer(part, np.uint8)
    places = np.flatnonzero((characters == _LF) | (characters == _CR))
    ends = np.full(places.shape, not state.is_open)
    if quotes:  # sums modulo 256 have the parity of sums
        ends ^= (np.cumsum(characters == _QUOTE, dtype=np.uint8) & 1).astype(bool)[places]
    if not blank:
        before = np.where(places > 0, characters[places - 1], state.last)
        ends &= (before != _LF) & (before != _CR)
    return int(ends.sum()), after
