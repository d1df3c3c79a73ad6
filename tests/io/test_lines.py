"""The number of lines of a text, as another reader has to find it."""

import csv
import gzip
import io
import random
import re

import pytest

from rrjax.io import lines

pytestmark = pytest.mark.once
CELLS = ["", "a", "bc", '"a"', '"a\nb"', '"a\r\nb"', '"a\rb"', '"a""b"', '"\n\n"']
ENDS = ["\n", "\r\n", "\r"]


def texts(number):
    """Rows of one and two cells, some of them blank, with line ends of all kinds."""
    draw = random.Random(1)
    for _ in range(number):
        rows = [",".join(draw.choices(CELLS, k=draw.choice([1, 1, 2]))) for _ in range(draw.randint(0, 6))]
        text = "a" + "".join(draw.choice(ENDS) + row for row in rows)
        yield text + draw.choice(["", *ENDS])


@pytest.mark.parametrize("size", [1, 2, 3, 1 << 20])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_lines_are_those_of_pythons_readers(tmp_path, monkeypatch, size, suffix):
    """In parts of any size, whose ends are between any two characters."""
    monkeypatch.setattr(lines, "_PART_BYTES", size)
    file = str(tmp_path / f"a.csv{suffix}")
    for text in texts(150):
        content = text.encode()
        (tmp_path / f"a.csv{suffix}").write_bytes(gzip.compress(content, 1) if suffix else content)
        rows = [*csv.reader(io.StringIO(text, newline=""), strict=True)]
        assert lines.num_lines(file, blank=True, quoted=True) == len(rows), repr(text)
        assert lines.num_lines(file, blank=False, quoted=True) == sum(map(bool, rows)), repr(text)
        plain = re.split("\r\n|\n|\r", text)
        plain = plain if plain[-1] else plain[:-1]
        assert lines.num_lines(file, blank=True, quoted=False) == len(plain), repr(text)
        assert lines.num_lines(file, blank=False, quoted=False) == sum(map(bool, plain)), repr(text)


def test_a_quote_that_is_not_closed_has_no_lines(tmp_path):
    (tmp_path / "a.csv").write_text('a\n"b\nc\n')
    assert lines.num_lines(str(tmp_path / "a.csv"), blank=True, quoted=True) is None
    assert lines.num_lines(str(tmp_path / "a.csv"), blank=True, quoted=False) == 3
