"""What files say of themselves: how it is written, read once, and held against what is asked for."""

import dataclasses
import json

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from rrjax.data.errors import Contradiction, naming_flags
from rrjax.io import (
    DataError,
    Source,
    count_reports,
    read_counts,
    read_domain,
    read_metadata,
    read_values,
    source,
    write_reports,
)
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.io.rows import count_pairs

pytestmark = pytest.mark.once  # nothing here depends on the precision

MECHANISM = MechanismRecord("randomized-response", {"num_categories": 17034, "epsilon": 6.0})
METADATA = Metadata(MECHANISM, 5.999999999, Domain.range(1, 17034), "page", False, "0.1.0")

# As written before the mechanism was an object.
OLD_RANGE = (
    '{"mechanism": "randomized-response", "epsilon": 6.0, "effective_epsilon": 5.999999999, "domain": {"first": 1, '
    '"last": 17034}, "column": "page", "simulated": false, "version": "0.1.0", "domain_from_data": false, '
    '"num_categories": 17034}'
)
OLD_LABELS = (
    '{"mechanism": "randomized-response", "epsilon": 1.5, "effective_epsilon": 1.4999, "domain": {"labels": ["no", '
    '"été"]}, "column": "answer", "simulated": true, "version": "0.1.0", "domain_from_data": true, '
    '"num_categories": 2}'
)


def written(path, text, query="SELECT unnest([1, 2, 2]) AS page"):
    duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, KV_METADATA {{rrjax: '{text}'}})")
    return path


def changed(**changes):
    """The JSON of the metadata, with changes."""
    record = json.loads(METADATA.to_json())
    record["mechanism"] |= changes.pop("parameters", {})
    return json.dumps(record | changes)


def test_the_record_is_frozen():
    assert json.loads(METADATA.to_json()) == {
        "mechanism": {"name": "randomized-response", "num_categories": 17034, "epsilon": 6.0},
        "effective_epsilon": 5.999999999,
        "domain": {"first": 1, "last": 17034},
        "column": "page",
        "simulated": False,
        "version": "0.1.0",
        "domain_from_data": False,
    }
    assert Metadata.from_json(METADATA.to_json()) == METADATA
    assert (METADATA.epsilon, METADATA.num_categories) == (6.0, 17034)
    assert hash(METADATA) == hash(Metadata.from_json(METADATA.to_json()))


def test_older_records_are_read(tmp_path):
    assert Metadata.from_json(OLD_RANGE) == METADATA
    mechanism = MechanismRecord("randomized-response", {"num_categories": 2, "epsilon": 1.5})
    labels = Metadata(mechanism, 1.4999, Domain.of(["no", "été"]), "answer", True, "0.1.0", True)
    assert Metadata.from_json(OLD_LABELS) == labels
    old, new = written(tmp_path / "old.parquet", OLD_RANGE), tmp_path / "new.parquet"
    write_reports(new, np.arange(5), METADATA)
    assert read_metadata([old, new]) == METADATA
    counted = count_reports(Source([old, new]))
    assert counted.metadata == METADATA
    assert counted.counts[:5].tolist() == [2, 3, 1, 1, 1]


@pytest.mark.parametrize("more", [{}, {"num_buckets": 8, "radius": 0.25, "hash": "xxh3", "interactive": True}])
def test_a_mechanism_from_the_future_survives(tmp_path, more):
    path = tmp_path / "r.parquet"
    mechanism = MechanismRecord("of the future", {"num_categories": 5, "epsilon": 2, **more})
    metadata = Metadata(mechanism, 2.0, Domain.range(0, 4), "r", False, "9.0.0")
    write_reports(path, np.arange(5), metadata)
    found = read_metadata(path)
    assert found == metadata
    assert found.mechanism.parameters == mechanism.parameters
    assert [type(value) for value in found.mechanism.parameters.values()] == [
        type(value) for value in mechanism.parameters.values()
    ]
    assert found.epsilon == 2.0
    write_reports(path, np.arange(5), found)
    assert read_metadata(path) == metadata


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("{", None),
        ("[]", None),
        ("[" * 100_000, None),
        ("{}", "domain"),
        ('{"domain": {"first": 0, "last": 4}, "num_categories": 6}', "num_categories"),
        ('{"domain": {"first": 0, "last": 4}, "num_categories": 5}', "mechanism"),
        ('{"domain": {"first": 0, "last": 1}, "num_categories": 2, "mechanism": "rr", "epsilon": NaN}', "epsilon"),
        (changed(mechanism=3), "mechanism"),
        (changed(mechanism=["randomized-response"]), "mechanism"),
        (changed(mechanism={"num_categories": 17034, "epsilon": 1.0}), "mechanism"),
        (changed(parameters={"name": None}), "mechanism"),
        (changed(mechanism={"name": "x", "epsilon": 1.0}), "num_categories"),
        (changed(parameters={"num_categories": 17033}), "num_categories"),
        (changed(parameters={"num_categories": 17034.0}), "num_categories"),
        (changed(mechanism={"name": "x", "num_categories": 17034}), "epsilon"),
        (changed(parameters={"epsilon": 0}), "epsilon"),
        (changed(parameters={"epsilon": -1.0}), "epsilon"),
        (changed(parameters={"epsilon": float("nan")}), "epsilon"),
        (changed(parameters={"epsilon": True}), "epsilon"),
        (changed(parameters={"epsilon": "1"}), "epsilon"),
        (changed(effective_epsilon=0), "effective_epsilon"),
        (changed(effective_epsilon=float("inf")), "effective_epsilon"),
        (changed(effective_epsilon=float("nan")), "effective_epsilon"),
        (changed(effective_epsilon=6.1), "effective_epsilon"),  # more than was asked for
        (changed(effective_epsilon=10**400), "effective_epsilon"),
        (changed(parameters={"epsilon": 12.0}), "effective_epsilon"),  # a file with another label on it
        (changed(parameters={"epsilon": 1.0}), "effective_epsilon"),
        (changed(parameters={"epsilon": float("inf")}), "epsilon"),
        (changed(parameters={"radius": [1]}), "mechanism: radius"),
        (changed(parameters={"radius": {"a": {"b": None}}}), "mechanism: radius"),
        (changed(column=3), "column"),
        (changed(simulated="no"), "simulated"),
        (changed(version=None), "version"),
        (changed(domain_from_data=None), "domain_from_data"),
        (changed(domain={"first": 1}), "domain"),
        (OLD_RANGE.replace('categories": 17034', 'categories": 17033'), "num_categories"),
        (OLD_RANGE.replace("6.0", "0"), "epsilon"),
        (OLD_RANGE.replace('"mechanism": "randomized-response", ', ""), "mechanism"),
    ],
)
def test_damaged_records(tmp_path, text, argument):
    path = written(tmp_path / "a.parquet", text)
    for call in (lambda: read_metadata(path), lambda: count_reports(Source(path))):
        with refused(error=DataError, argument=argument, file=str(path)):
            call()


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from([10**400, 2**31, "\ud800", "a\0"])
)
JSON = st.recursive(
    SCALARS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=4), part, max_size=3),
    max_leaves=6,
)


@pytest.mark.full
@given(
    changes=st.dictionaries(st.sampled_from([*json.loads(METADATA.to_json()), "columns"]), JSON, max_size=2),
    parameters=st.dictionaries(st.sampled_from(["name", "epsilon", "num_categories", "x"]), JSON, max_size=2),
    domain=st.none() | st.dictionaries(st.sampled_from(["labels", "first", "last", "factors"]), JSON, max_size=2),
)
@settings(max_examples=300)
def test_any_metadata_are_refused_or_valid(changes, parameters, domain):
    record = json.loads(OLD_LABELS if domain is None else METADATA.to_json())
    record["mechanism"] = {"name": "randomized-response", "num_categories": 2, "epsilon": 1.5} | parameters
    record |= changes if domain is None else changes | {"domain": domain}
    try:
        found = Metadata.from_json(json.dumps(record))
    except DataError:
        return
    assert 0 < found.effective_epsilon < found.epsilon * 1.001 < np.inf
    assert Metadata.from_json(found.to_json()) == found
    found.to_json().encode()


def test_what_could_not_be_read_is_not_written():
    for change in ({"domain": Domain.range(0, 4)}, {"effective_epsilon": float("nan")}, {"column": None}):
        with pytest.raises(DataError):
            dataclasses.replace(METADATA, **change)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"parameters": {"name": "other"}}, "mechanism"),
        ({"parameters": {"epsilon": 5.0}, "effective_epsilon": 4.99}, "epsilon"),
        ({"parameters": {"radius": 3}}, "radius"),
        ({"effective_epsilon": 5.99}, "effective_epsilon"),
        ({"parameters": {"num_categories": 17035}, "domain": {"first": 0, "last": 17034}}, "domain"),
    ],
)
def test_files_that_disagree(tmp_path, changes, name):
    one, two = written(tmp_path / "1.parquet", METADATA.to_json()), written(tmp_path / "2.parquet", changed(**changes))
    with refused(name, error=DataError, file=str(two)):
        read_metadata([one, two])


def test_what_is_asked_for_is_held_against_the_file():
    METADATA.check("r.parquet")
    METADATA.check("r.parquet", column="page", epsilon=6 * (1 + 1e-12), domain=Domain.range(1, 17034))
    for name, value in {"column": "town", "epsilon": 2, "domain": Domain.range(0, 9)}.items():
        with refused(name, error=Contradiction, flag=f"--{name}", file="r.parquet") as caught:
            METADATA.check("r.parquet", **{name: value})
        assert str(caught.value).startswith(f"{name}=")
        with naming_flags(), refused(name, error=Contradiction) as caught:
            METADATA.check("r.parquet", **{name: value})
        assert str(caught.value).startswith(f"--{name}")
        assert f"{name}=" not in str(caught.value)
    assert issubclass(Contradiction, DataError)


def test_every_reader_holds_the_domain_against_the_file(tmp_path):
    query = "SELECT unnest([1, 2, 2]) AS page, unnest([3, 4, 5]) AS other"
    path = written(tmp_path / "a.parquet", METADATA.to_json(), query)
    page, wrong = Source(path, column="page"), Domain.range(0, 20_000)
    for call in (
        lambda: count_reports(page, wrong),
        lambda: read_values(page, wrong),
        lambda: read_counts(page, "other", wrong),
        lambda: count_pairs(page, ("page", "other"), (wrong, None)),
        lambda: count_pairs(page, ("other", "page"), (None, wrong)),
    ):
        with refused("domain", error=Contradiction, file=str(path)):
            call()
    assert read_values(page).domain == METADATA.domain
    assert read_counts(page, "other").counts[:2].tolist() == [3, 9]
    # The metadata are about one column; of others they say nothing.
    other = count_reports(dataclasses.replace(page, column="other"), wrong)
    assert other.domain == wrong
    assert other.metadata == METADATA
    pairs = count_pairs(page, ("page", "other"), (None, None))
    assert pairs.domains == (METADATA.domain, Domain.of("345"))
    assert pairs.from_data == (False, True)


@pytest.fixture
def looked(monkeypatch):
    """How often a file was looked for, and how often metadata were read."""
    counts = {"_check_file": 0, "metadata_of": 0}

    def count_calls(name):
        own = getattr(source, name)

        def counting(*arguments):
            counts[name] += 1
            return own(*arguments)

        monkeypatch.setattr(source, name, counting)

    for name in counts:
        count_calls(name)
    return counts


def test_files_are_listed_and_metadata_read_once(tmp_path, looked):
    for name, page in (("1", "[1, 2, 2]"), ("2", "[2, 1, 2]")):
        query = f"SELECT unnest({page}) AS page, unnest([3, 4, 5]) AS other"
        written(tmp_path / f"{name}.parquet", METADATA.to_json(), query)
    files = Source(tmp_path / "*.parquet")
    assert looked == {"_check_file": 0, "metadata_of": 0}
    assert files.files() == (str(tmp_path / "1.parquet"), str(tmp_path / "2.parquet"))
    assert looked == {"_check_file": 2, "metadata_of": 0}
    assert files.metadata() == METADATA
    # The same files, whatever is read of them.
    page = dataclasses.replace(files, column="page")
    assert count_reports(page).counts[:2].tolist() == [2, 4]
    assert read_values(page).indices.tolist() == [0, 1, 1, 1, 0, 1]
    assert read_counts(page, "other").counts[:2].tolist() == [7, 17]
    assert count_pairs(files, ("page", "other"), (None, "3:5")).counts.sum() == 6
    assert looked == {"_check_file": 2, "metadata_of": 1}
    # Other files are other files, and read_metadata looks anew.
    one = dataclasses.replace(page, paths=tmp_path / "1.parquet")
    assert count_reports(one).num_rows == 3
    assert read_metadata(tmp_path / "*.parquet") == METADATA
    assert looked == {"_check_file": 5, "metadata_of": 3}


def test_one_call_looks_once(tmp_path, looked):
    path = written(tmp_path / "a.parquet", METADATA.to_json(), "SELECT unnest([1, 2, 2]) AS page, 3 AS other")
    for number, call in enumerate(
        (
            lambda files: count_reports(files),
            lambda files: read_values(files),
            lambda files: read_counts(files, "other"),
            lambda files: count_pairs(files, ("page", "other"), (None, "2:3")),
        ),
        start=1,
    ):
        call(Source(path, column="page"))
        assert looked == {"_check_file": number, "metadata_of": number}


def test_a_source_without_metadata(tmp_path, looked):
    path = tmp_path / "a.csv"
    missing = Source(path)
    with refused(error=DataError, file=str(path)):
        missing.metadata()
    path.write_text("a\n1\n2\n")
    # What was not there is looked for again.
    assert missing.metadata() is None
    assert count_reports(missing).num_rows == 2
    assert looked == {"_check_file": 2, "metadata_of": 0}
    plain = written(tmp_path / "a.parquet", METADATA.to_json())
    duckdb.execute(f"COPY (SELECT 1 AS page) TO '{plain}' (FORMAT parquet)")
    assert Source(plain).metadata() is None


def test_listings_do_not_tell_sources_apart(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    one, two = Source(tmp_path / "a.csv"), Source([str(tmp_path / "a.csv")])
    one.files()
    assert one == two
    assert hash(one) == hash(two)
    assert repr(one) == repr(two)
    assert "_listing=" not in repr(one)


def test_labels_come_from_one_file(tmp_path):
    for name in ("1", "2"):
        (tmp_path / f"{name}.txt").write_text(f"a\nb{name}\n")
    with refused(error=DataError, file=str(tmp_path / "1.txt")):
        read_domain(str(tmp_path / "*.txt"))


def test_the_record_of_pairs(tmp_path):
    domain = Domain.product(Domain.of(["no", "yes"]), Domain.range(1, 3))
    mechanism = MechanismRecord("randomized-response", {"num_categories": 6, "epsilon": 2.0})
    metadata = Metadata(mechanism, 2.0, domain, "a × b", False, "0.1.0", columns=("a", "b"))
    record = json.loads(metadata.to_json())
    assert record["columns"] == ["a", "b"]
    assert record["domain"] == {"factors": [{"labels": ["no", "yes"]}, {"first": 1, "last": 3}]}
    assert Metadata.from_json(metadata.to_json()) == metadata
    write_reports(tmp_path / "p.parquet", np.array([0, 5]), metadata)
    found = read_metadata(tmp_path / "p.parquet")
    assert found is not None
    assert found.domain.factors == domain.factors
    for changes in ({"columns": ["a"]}, {"columns": [1, 2]}, {"columns": None}, {"domain": {"first": 1, "last": 6}}):
        with refused("columns", error=DataError):
            Metadata.from_json(json.dumps(record | changes))
    with refused("domain", error=DataError):
        Metadata.from_json(json.dumps(record | {"domain": {"factors": [record["domain"], record["domain"]]}}))
