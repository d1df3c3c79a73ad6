"""Domains: ranges, labels, files of labels."""

import gzip
import json

import numpy as np
import pytest
from refusals import refused
from written import written

from rrjax.io import DataError, count_reports, read_domain, write_table
from rrjax.io.domain import Domain

pytestmark = pytest.mark.once  # nothing here depends on the precision


def test_range_includes_both_ends_and_is_never_expanded():
    domain = Domain.range(0, 1_484_705)
    assert domain.num_categories == 1_484_706
    assert read_domain("0:1484705") == domain == read_domain(" 0 : 1484705 ")
    assert domain.to_metadata() == {"first": 0, "last": 1_484_705}
    labels = domain.labels()
    assert labels.dtype == np.int64
    assert labels[0] == 0
    assert labels[-1] == 1_484_705
    np.testing.assert_array_equal(read_domain("-3:2").labels(), np.arange(-3, 3))


def test_listed_labels_keep_order_and_text():
    domain = Domain.of(["b", "a", "007", 'q"u,o\nte', "é"])
    assert domain.num_categories == 5
    assert domain.labels().tolist() == ["b", "a", "007", 'q"u,o\nte', "é"]


@pytest.mark.parametrize("domain", [Domain.range(-5, 10**9), Domain.of(["x", 'y"\n', "é"])])
def test_metadata_round_trip(domain):
    assert Domain.from_metadata(json.loads(json.dumps(domain.to_metadata()))) == domain
    assert hash(domain) == hash(Domain.from_metadata(domain.to_metadata()))


@pytest.mark.parametrize(
    ("make", "row"),
    [
        (lambda: Domain.range(3, 3), None),
        (lambda: Domain.range(5, 0), None),
        (lambda: Domain.range(0, 2**31), None),
        (lambda: Domain.range(2**63 - 1, 2**63), None),
        (lambda: Domain.of([]), None),
        (lambda: Domain.of(["a"]), None),
        (lambda: Domain.of(["a", ""]), 2),
        (lambda: Domain.of(["a", "b", "a"]), 3),
        (lambda: Domain.of(["a", 3]), 2),
        (lambda: Domain.from_metadata({"first": 0}), None),
        (lambda: Domain.from_metadata({"first": 0, "last": 1.5}), None),
        (lambda: Domain.from_metadata({"labels": "abc"}), None),
        (lambda: Domain(), None),
        (lambda: read_domain("nowhere.txt"), None),
        (lambda: read_domain("0-99"), None),
    ],
)
def test_bad_domains(make, row):
    with refused("domain", error=DataError, row=row):
        make()


def test_a_label_that_is_there_twice_is_not_repeated():
    # What was taken for a file of labels may be one of values.
    with pytest.raises(DataError) as caught:
        Domain.of(["secret", "b", "secret"])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "labels"),
    [
        ("labels.txt", "\ufeffred\n 007 \nblue, dark\n\n".encode(), ("red", "007", "blue, dark")),
        ("labels.txt.gz", gzip.compress(b"a\nb\n", mtime=0), ("a", "b")),
        ("labels.txt.gz", gzip.compress(b"a\nb\n" * 99, mtime=0)[:-12], None),
        ("latin.txt", b"caf\xe9\nbar\n", None),
    ],
    ids=["marked", "packed", "cut", "latin"],
)
def test_text_files(tmp_path, name, data, labels):
    path = written(tmp_path / name, data)
    if labels is not None:
        assert read_domain(path).listed == labels
        return
    with refused(error=DataError, file=str(path)):
        read_domain(str(path))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz"])
def test_table_with_a_label_column(tmp_path, suffix):
    labels = ["z", "007", "1,5", 'say "no"', "two\nlines", "é"]
    path = tmp_path / f"estimate{suffix}"
    write_table(path, {"label": np.array(labels), "estimate": np.ones(6) / 6})
    assert read_domain(str(path)) == Domain.of(labels)


def test_table_with_one_column(tmp_path):
    path = written(tmp_path / "colours.jsonl", '{"colour": "red"}\n{"colour": "blue"}\n')
    assert read_domain(str(path)).listed == ("red", "blue")
    path = written(tmp_path / "colours.csv", "label\nred\nblue\n")
    assert read_domain(str(path)).listed == ("red", "blue")
    # The first line may be a label, or the name of the column; and names may be values.
    for text in ("colour\nred\nblue\n", "secret,x\nred,1\nblue,2\n"):
        path.write_text(text)
        with refused(error=DataError, file=str(path)) as caught:
            read_domain(str(path))
        assert "secret" not in str(caught.value)


def test_a_changed_bit_of_gzip_is_found(tmp_path):
    path, generator = tmp_path / "a.csv.gz", np.random.default_rng(2)
    whole = gzip.compress(("x\n" + "\n".join(map(str, generator.integers(0, 10, 5000))) + "\n").encode(), mtime=0)
    damaged = bytearray(whole)
    damaged[-8] ^= 1  # of the checksum, so that all values are as they were
    path.write_bytes(whole)
    assert count_reports(str(path), read_domain("0:9")).num_rows == 5000
    path.write_bytes(damaged)
    with refused(error=DataError, file=str(path)):
        count_reports(str(path), read_domain("0:9"))


@pytest.mark.parametrize(
    ("name", "text", "row"),
    [
        ("d.txt", "a\n\nb\n", 2),
        ("d.txt", "a\nb\na\n", 3),
        ("d.txt", "a\n", None),
        ("d.txt", "", None),
        ("d.csv", "label,n\na,1\n,2\n", 2),
        ("d.csv", "label\na\nb\nb\n", 3),
    ],
)
def test_bad_files(tmp_path, name, text, row):
    path = written(tmp_path / name, text)
    with refused(error=DataError, file=str(path), row=row):
        read_domain(str(path))


def test_describe():
    assert Domain.range(0, 9).describe() == "0:9 (10 integers)"
    assert Domain.of("abcde").describe() == "5 labels ('a', 'b', 'c', …)"
