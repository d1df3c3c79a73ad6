"""Text files, compressed or not: opened, and looked at where something is wrong with them."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from rrjax.data.errors import DataError

BAD_GZIP = "the gzip data are damaged or cut short. Download or copy the file again."
NOT_UTF8 = "the text is not UTF-8. Convert it first, for example with: iconv -f latin1 -t utf-8"
GZIP_MAGIC = b"\x1f\x8b"
_LARGEST_JSON = 2**26
"""A JSON text that is not a line a record is looked through up to here, in characters."""
_ZEROS = {"x0x0": "UTF-16LE", "0x0x": "UTF-16BE", "x000": "UTF-32LE", "000x": "UTF-32BE"}
_PARQUET = b"PAR1"
_SAVE = "which is not read: save it as CSV or Parquet"
_KINDS = {
    rb"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it with unzstd",
    rb"\xfd7zXZ\0": "compressed with xz: unpack it with unxz",
    rb"BZh[1-9]1AY&SY": "compressed with bzip2: unpack it with bunzip2",
    rb"\x04\x22\x4d\x18": "compressed with lz4: unpack it with unlz4",
    rb"PK\x03\x04": "a zip archive or a spreadsheet (.xlsx, .ods): unpack it, or save the sheet as CSV",
    rb"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it",
    rb"\xd0\xcf\x11\xe0": "a document of Excel or Word: save the sheet as CSV",
    rb"SQLite format 3\0": f"an SQLite database, {_SAVE}",
    rb"ARROW1\0": f"an Arrow (Feather) file, {_SAVE}",
    rb"Obj\x01": f"an Avro file, {_SAVE}",
    rb"\x89HDF|CDF[\x01\x02\x05]": f"an HDF5 or NetCDF file, {_SAVE}",
    rb"%PDF-": "a PDF: give the table that it was made from",
}
"""What a file is that begins so (a pattern), and what to do."""
START = 256
"""So many bytes of a file show its encoding."""
_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


@contextmanager
def opened(file: str) -> Iterator[IO[str]]:
    """Opens a file of text, compressed or not; what is wrong with it becomes a `DataError`."""
    opener = gzip.open if file.lower().endswith(".gz") else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            yield stream
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file}: {BAD_GZIP}", file=file) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: {NOT_UTF8}", file=file) from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}.", file=file) from error


def check_encoding(file: str, start: bytes) -> None:
    """Refuses files of other formats, and UTF-16 and UTF-32, by their first bytes.

    Raises:
        DataError: The file is one of these.
    """
    kind = next((kind for mark, kind in _KINDS.items() if re.match(mark, start)), None)
    if kind is not None:
        raise DataError(f"{file} is {kind}.", file=file)
    if start[:2] == GZIP_MAGIC:
        # What is wrong with the compression itself is said where all of it is read.
        with contextlib.suppress(OSError, EOFError, zlib.error), gzip.open(file) as stream:
            start = stream.read(START)
    encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if encoding is None:
        # Without a mark Latin letters tell, by which of their bytes are zero.
        encoding = _ZEROS.get("".join("0" if byte == 0 else "x" for byte in start[:4]))
    if encoding is not None:
        raise DataError(
            f"{file}: the text is {encoding}, and must be UTF-8. Save it as UTF-8, or convert it, for example with: "
            f"iconv -f {encoding} -t utf-8",
            file=file,
        )
    if b"\0" in start and not start.startswith(_PARQUET):
        raise DataError(
            f"{file}: there are zero bytes in it, so it is UTF-16, UTF-32 or no text at all, and must be UTF-8. "
            "Save it as that, or convert it, for example with: iconv -f utf-16le -t utf-8",
            file=file,
        )


def broken_json_line(file: str) -> int | None:
    """The number of the first line, from 1, that is no JSON object; None where it cannot be told."""
    try:
        with opened(file) as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip() and not _is_object(line):
                    if number > 1 or line.lstrip()[0] not in "[{":
                        return number
                    break
            else:
                return None
        # An array of objects, or objects over several lines.
        with opened(file) as stream:
            return _broken_record(stream.read(_LARGEST_JSON))
    except DataError:
        return None


def odd_line_end(file: str) -> tuple[int, str] | None:
    """The number, from 1, of the first line that ends otherwise than the first one, and how both end; None of none."""
    first = None
    try:
        with opened(file) as stream:
            for number, line in enumerate(stream, start=1):
                end = line[len(line.rstrip("\r\n")) :]
                first = first or end
                if end not in (first, ""):
                    return number, f"it ends with {end!r} where the first line ends with {first!r}"
    except DataError:
        pass
    return None


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _broken_record(text: str) -> int | None:
    """The line of the first thing that is no JSON, in a text of objects or of one array of them."""
    decoder, blanks, place = json.JSONDecoder(), re.compile(r"\s*"), 0
    while (place := cast(re.Match, blanks.match(text, place)).end()) < len(text):
        try:
            _, place = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            return None if len(text) == _LARGEST_JSON else error.lineno
    return None
