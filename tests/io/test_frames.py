"""Counting in data frames: the same tally as of the reports in memory, whichever engine holds them."""

import itertools
import os
import sys
from decimal import Decimal

import jax
import numpy as np
import pytest
from cases import INT
from refusals import refused

import rrjax
from rrjax.data.errors import MissingPackage
from rrjax.io import DataError, Source, count_frame, count_reports, tally_frame
from rrjax.io.domain import Domain
from rrjax.mechanisms import MECHANISMS, Channel, HadamardResponse, OptimizedUnaryEncoding, SubsetSelection

nw = pytest.importorskip("narwhals.stable.v2", reason="data frames need rrjax[frames]")
duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

SIZE, NUMBER = 11, 500


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A session of Spark in this very place: one core, little memory, no user interface."""
    sql = pytest.importorskip(
        "pyspark.sql", reason="Spark is tested where it is installed: pip install --group cluster"
    )
    # What runs the workers is this very Python.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        session = (
            sql.SparkSession.builder.master("local[1]")
            .config("spark.driver.memory", "512m")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark")))
            .getOrCreate()
        )
    except Exception as error:  # PySpark says so in several ways
        pytest.skip(f"Spark does not start here (it needs Java): {error}")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    del os.environ["PYSPARK_PYTHON"]


def on(engine, table, request):
    """An Arrow table as a frame of an engine."""
    if engine == "dask":
        dask = pytest.importorskip("dask.dataframe", reason="Dask is tested where it is installed")
        return dask.from_pandas(table.to_pandas(types_mapper=pd.ArrowDtype), npartitions=3)
    if engine == "spark":
        return request.getfixturevalue("spark").createDataFrame(table).repartition(3)
    return {
        "pandas": table.to_pandas,
        "pandas-arrow": lambda: table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": lambda: pl.from_arrow(table),
        "lazy": lambda: pl.from_arrow(table).lazy(),
        "pyarrow": lambda: table,
        "duckdb": lambda: duckdb.from_arrow(table),
    }[engine]()


def long(value):
    return pytest.param(value, marks=pytest.mark.long)


clusters = [
    pytest.param(name, marks=(pytest.mark.long, pytest.mark.once, pytest.mark.filterwarnings("ignore")))
    for name in ("spark", "dask")
]
others = [long(name) for name in ("pandas", "pandas-arrow", "lazy", "pyarrow")]
engines = pytest.mark.parametrize("engine", ["polars", "duckdb", *others, *clusters])


def made(name, number=NUMBER):
    mechanism = MECHANISMS[name](SIZE, 1.5)
    values = np.random.default_rng(0).integers(0, SIZE, number)
    return mechanism, np.asarray(mechanism.randomize(jax.random.key(0), values))


def check(tally, mechanism, reports):
    wanted = mechanism.tally(reports)
    np.testing.assert_array_equal(tally.support, wanted.support)
    assert tally.support.dtype == INT
    assert int(tally.num_users) == int(wanted.num_users)
    assert float(tally.p) == float(wanted.p)
    assert float(tally.q) == float(wanted.q)


@engines
@pytest.mark.parametrize("name", ["randomized-response", "hadamard-response", long("projective-geometry-response")])
def test_labels_and_numbers(name, engine, request):
    mechanism, reports = made(name)
    check(tally_frame(on(engine, pa.table({"report": reports}), request), mechanism), mechanism, reports)


@engines
def test_numbers_of_32_bits_are_those_that_were_written(engine, request):
    """As in files: 0.1 was 0.10000000149011612, and not in a domain with 0.1."""
    table = pa.table({"report": pa.array([0.1, 0.25, 0.1, None, 3.0], pa.float32())})
    counted = count_frame(on(engine, table, request), ["0.1", "0.25", "3"], column="report")
    assert (counted.counts.tolist(), counted.num_missing) == ([2, 1, 1], 1)


def test_numbers_in_dictionaries_have_the_labels_of_numbers():
    """Categories of 32 bits were 0.10000000149011612, and decimals of dictionaries had zeros at the end."""
    domain = ["0.1", "2.5"]
    floats = pa.array([0.1, 2.5, 0.1], pa.float32())
    decimals = pa.array([Decimal("0.10"), Decimal("2.50"), Decimal("0.10")])
    frames = [pa.table({"report": each.dictionary_encode()}) for each in (floats, decimals)]
    categories = pa.table({"report": floats}).to_pandas().astype("category")
    ordered = categories.assign(report=categories["report"].cat.as_ordered())
    of_arrow = pd.DataFrame({"report": pd.Series(floats, dtype=pd.ArrowDtype(floats.type)).astype("category")})
    for frame in (*frames, categories, ordered, of_arrow):
        assert count_frame(frame, domain, column="report").counts.tolist() == [2, 1]
        assert count_frame(frame, None, column="report").domain.labels().tolist() == domain
    # Dictionaries of texts, in pandas, too; and of other columns, of what is no label.
    texts = pa.array(["0.1", "2.5", "0.1"]).dictionary_encode()
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int8()), pa.array([[1]]))
    for frame in (
        pa.table({"report": texts, "other": lists}),
        pd.DataFrame({"report": pd.Series(texts, dtype=pd.ArrowDtype(texts.type))}),
    ):
        assert count_frame(frame, domain, column="report").counts.tolist() == [2, 1]


@pytest.mark.long
@engines
@pytest.mark.parametrize("name", ["optimized-unary-encoding", long("symmetric-unary-encoding"), "subset-selection"])
def test_lists_of_categories(name, engine, request):
    mechanism, reports = made(name)
    sets = [np.flatnonzero(row) for row in reports] if reports.dtype == bool else list(reports)
    labels = [f"c{place}" for place in range(SIZE)]
    table = pa.table(
        {
            "report": pa.array(sets, pa.list_(pa.int32())),
            "names": pa.array([[labels[place] for place in row] for row in sets], pa.list_(pa.string())),
        }
    )
    frame = on(engine, table, request)
    if engine == "dask":
        with pytest.raises(DataError):
            tally_frame(frame, mechanism)
        return
    check(tally_frame(frame, mechanism), mechanism, reports)
    check(tally_frame(frame, mechanism, column="names", domain=Domain.of(labels)), mechanism, reports)


@engines
@pytest.mark.parametrize("name", ["optimized-unary-encoding", "subset-selection"])
@pytest.mark.parametrize("kind", [bool, np.int8])
def test_columns_of_bits(name, kind, engine, request):
    mechanism, reports = made(name)
    bits = np.asarray(mechanism.supports(reports)).astype(kind)
    names = [f"bit {place}" for place in range(SIZE)]
    frame = on(engine, pa.table(dict(zip(names, bits.T.copy(), strict=True))), request)
    check(tally_frame(frame, mechanism, column=names), mechanism, reports)


@engines
def test_ready_counts_are_exact(engine, request):
    # 10¹⁰ reports in all, and an odd one beside a count that float32 cannot hold.
    table = pa.table({"report": ["b", "a", "b", None, "c"], "n": [2**32, 2**24 + 1, 3, 5, 5_700_000_000]})
    counted = count_frame(on(engine, table, request), Domain.of(["a", "b", "c", "d"]), counts="n")
    assert counted.counts.dtype == np.int64
    assert counted.counts.tolist() == [2**24 + 1, 2**32 + 3, 5_700_000_000, 0]
    assert (counted.num_rows, counted.num_missing, counted.missing) == (10_011_744_521, 5, {"": 5})
    theta = rrjax.inv_p(counted.counts.astype(float), 2.0)
    assert float(theta.sum()) == pytest.approx(1, abs=1e-6)
    whole = on(engine, table.slice(0, 3), request)
    mechanism = rrjax.RandomizedResponse(4, 2.0)
    if INT.itemsize == 8:
        tally = tally_frame(whole, mechanism, domain=Domain.of(["a", "b", "c", "d"]), counts="n")
        assert tally.support.tolist() == [2**24 + 1, 2**32 + 3, 0, 0]
        assert int(tally.num_users) == 2**32 + 2**24 + 4
    else:
        with pytest.raises(DataError, match=r"4,294,967,299 reports are more than 32 bits.*JAX_ENABLE_X64"):
            tally_frame(whole, mechanism, domain=Domain.of(["a", "b", "c", "d"]), counts="n")


@pytest.mark.long
@engines
def test_a_frame_is_counted_as_a_file_is(engine, request, tmp_path):
    columns = {
        "text": ["1", " 2", "3.0", None, "", "?", "2", "1"],
        "number": [1.0, 2.0, 3.0, None, None, -1.0, 2.0, 1.0],
        "words": ["no", "yes ", "no", None, "", "?", "yes", "no"],
        "truth": [True, False, True, None, None, None, False, True],
    }
    table = pa.table(columns)
    if engine == "pandas":
        table = table.drop(["truth"])
    frame = on(engine, table, request)
    file = str(tmp_path / "table.parquet")
    duckdb.from_arrow(table).write_parquet(file)
    domains = {"text": Domain.range(0, 3), "number": Domain.range(0, 3), "words": Domain.of(["yes", "no"])}
    for column in table.column_names:
        for domain, minus in itertools.product((domains.get(column), None), ("-1", "-1.0")):
            missing = ("?", minus)
            found = count_frame(frame, domain, column=column, missing=missing)
            wanted = count_reports(Source(file, column=column, missing=missing), domain)
            assert found.domain == wanted.domain, column
            assert found.counts.tolist() == wanted.counts.tolist()
            assert found.domain_from_data == wanted.domain_from_data == (domain is None)
            assert (found.num_rows, found.num_missing, found.missing) == (8, wanted.num_missing, wanted.missing)
        if (domain := domains.get(column)) is not None:
            with refused("missing", error=DataError, column=column):  # a category of the domain
                count_frame(frame, domain, column=column, missing=("no", "2"))


BAD = [
    ({"report": [0, 1, 11, 12, 11]}, {}, r"'report': 3 reports are not in the domain 0:10 .*: '11', '12'\. Give"),
    ({"report": [0, None, None]}, {}, "'report': 2 reports are missing. Leave such rows out"),
    ({"report": pa.array([], pa.int64())}, {}, "'report': there are no rows"),
    ({"report": pa.array([None, None], pa.int64())}, {}, "'report': all 2 reports are missing"),
    ({"reports": [0, 1]}, {}, "no column 'report'; did you mean 'reports'. Its columns: 'reports'"),
    ({"report": [b"a", b"b"]}, {}, r"holds Binary.*count it from the Parquet files \(read_tally"),
    ({"report": [[1], [2]]}, {}, r"holds List\(Int64\), and reports that are labels"),
    ({"report": [0.5, 1.0]}, {}, "1 report is not in the domain 0:10 .*: '0.5'"),
    ({"report": ["yes", "no"]}, {}, "2 reports are not in the domain 0:10 .*: 'no', 'yes'"),
    (
        {"report": list(range(12_000))},
        {},
        "'report' has more than 10,022 different values.* is it the column of reports",
    ),
    ({"report": [0, 1], "n": [1.5, 2.0]}, {"counts": "n"}, "integers in a column of their own, and 'n' holds Float64"),
    ({"report": [0, 1]}, {"counts": "report"}, "a column of their own"),
    ({"report": [0, 1, 1], "n": [1, -2, None]}, {"counts": "n"}, "from 0 on: 2 are negative or missing"),
    ({"report": [0, 1], "n": [0, 0]}, {"counts": "n"}, "'n' are all 0"),
    ({"report": [0, None], "n": [0, 3]}, {"counts": "n"}, "all 3 reports are missing"),
    ({"report": [0, 1], "n": [1, 2]}, {"counts": "m"}, "no column 'm'"),
    ({"report": [0, 0], "n": [2**62, 2**62]}, {"counts": "n"}, r"add up to 2\^53 or more"),
    ({"report": [0, 1]}, {"domain": Domain.range(1, 9)}, "has 11 categories, and the domain has 1:9"),
    ({"report": [0, 1]}, {"column": ["report", "n"]}, "in one column, and 2 were named"),
]


@pytest.mark.once
@pytest.mark.parametrize("engine", ["polars", *others[3:], long("duckdb"), *clusters])
@pytest.mark.parametrize(("columns", "options", "message"), BAD)
def test_bad_labels_are_named(columns, options, message, engine, request):
    with pytest.raises(DataError, match=message):
        tally_frame(on(engine, pa.table(columns), request), rrjax.RandomizedResponse(SIZE, 1.0), **options)


BAD_SETS = [
    (OptimizedUnaryEncoding, [[0], [1, 1], [2, 2]], {}, "2 reports name a category more than once"),
    (OptimizedUnaryEncoding, [[0], None], {}, "1 report is missing: leave its row out"),
    (OptimizedUnaryEncoding, [[0], [1, None]], {}, "in lists 1 category is missing"),
    (OptimizedUnaryEncoding, [[0], [5, 4]], {}, "2 reports are not in the domain 0:3"),
    (OptimizedUnaryEncoding, [], {}, "there are no rows"),
    (OptimizedUnaryEncoding, [[0]], {"counts": "n"}, "counted row by row: leave counts='n' out"),
    (SubsetSelection, [[0], [0, 1], []], {}, "2 reports have other than 1 members"),
]


@pytest.mark.once
@pytest.mark.parametrize("engine", ["polars", long("duckdb"), *clusters[:1]])
@pytest.mark.parametrize(("kind", "sets", "options", "message"), BAD_SETS)
def test_bad_lists_are_named(kind, sets, options, message, engine, request):
    table = pa.table({"report": pa.array(sets, pa.list_(pa.int64()))})
    with pytest.raises(DataError, match=message):
        tally_frame(on(engine, table, request), kind(4, 1.0), **options)


@pytest.mark.once
def test_two_spellings_of_a_category_in_one_list():
    frame = pl.DataFrame({"report": [["1", "1.0"]]})
    with refused(error=DataError, column="report"):
        tally_frame(frame, OptimizedUnaryEncoding(4, 1.0))


BAD_BITS = [
    ({"a": [0, 1], "b": [1, 2]}, "'b': bits are 0 and 1, and it holds numbers from 1 to 2"),
    ({"a": [0, 1], "b": [-1, 1]}, "'b': bits are 0 and 1, and it holds numbers from -1 to 1"),
    ({"a": [0, 1], "b": [1, None]}, "'b': 1 bit is missing"),
    ({"a": [True, None], "b": [True, False]}, "'a': 1 bit is missing"),
    ({"a": [0, 1], "b": [0.0, 1.0]}, "'b' holds Float64, and bits are"),
    ({"a": [0, 1]}, "no column 'b'"),
    ({"a": pa.array([], pa.int8()), "b": pa.array([], pa.int8())}, "there are no rows"),
]


@pytest.mark.once
@pytest.mark.parametrize("engine", ["polars", *others[3:], long("duckdb"), *clusters[:1]])
@pytest.mark.parametrize(("columns", "message"), BAD_BITS)
def test_bad_bits_are_named(columns, message, engine, request):
    with pytest.raises(DataError, match=message):
        tally_frame(on(engine, pa.table(columns), request), OptimizedUnaryEncoding(2, 1.0), column=["a", "b"])


@pytest.mark.once
def test_bits_of_another_number_of_members_or_columns():
    frame = pl.DataFrame({"a": [0, 1], "b": [1, 1], "c": [0, 0]})
    with refused(error=DataError) as caught:
        tally_frame(frame, SubsetSelection(3, 1.0), column=["a", "b", "c"])
    assert "members" in str(caught.value)
    for columns in (["a", "b"], ["a", "b", "b"]):
        with refused(error=DataError, argument="column"):
            tally_frame(frame, OptimizedUnaryEncoding(3, 1.0), column=columns)


@pytest.mark.once
def test_what_cannot_be_counted_is_refused_by_name():
    frame = pl.DataFrame({"report": [0, 1]})
    for name in ("optimized-local-hashing", "binary-local-hashing"):
        with refused(error=DataError, argument="mechanism"):
            tally_frame(frame, MECHANISMS[name](3, 1.0))
    with refused(error=DataError, argument="mechanism"):
        tally_frame(frame, Channel(np.eye(2)))
    for other in ([0, 1], np.zeros(3, int), pl.Series([0, 1])):
        with refused(error=DataError, argument="frame"):
            tally_frame(other, rrjax.RandomizedResponse(3, 1.0))
    packed = pl.DataFrame({"report": [b"\x80"]})
    with refused(error=DataError, column="report"):
        tally_frame(packed, OptimizedUnaryEncoding(3, 1.0))
    with refused(error=DataError, column="report"):
        tally_frame(pl.DataFrame({"report": [[True, False, True]]}), OptimizedUnaryEncoding(3, 1.0))


@engines
def test_columns_may_have_the_names_that_are_used_inside(engine, request):
    table = pa.table({"amount": [0, 1, 1], "report": [5, 6, 7], "rough": [0, 0, 0]})
    tally = tally_frame(on(engine, table, request), rrjax.RandomizedResponse(3, 1.0), column="amount", counts="report")
    assert tally.support.tolist() == [5, 13, 0]


@pytest.mark.once
def test_names_of_columns_that_are_none():
    mechanism = rrjax.RandomizedResponse(3, 1.0)
    with refused(error=DataError, argument="frame"):
        tally_frame(pd.DataFrame([[0, 1]], columns=["report", "report"]), mechanism)
    with refused(error=DataError, argument="column"):
        tally_frame(pd.DataFrame({0: [0, 1]}), mechanism)


@pytest.mark.once
def test_without_narwhals_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "narwhals", None)
    with refused(error=MissingPackage, value="narwhals"):
        count_frame(pl.DataFrame({"report": [0, 1]}))


@engines
def test_counts_of_a_narrow_type_do_not_overflow(engine, request):
    # Spark has no unsigned integers.
    kind = pa.int32() if engine == "spark" else pa.uint32()
    table = pa.table({"report": [0, 1, 1], "n": pa.array([1, 2**31 - 1, 2**31 - 1], kind)})
    counted = count_frame(on(engine, table, request), Domain.range(0, 1), counts="n")
    assert counted.counts.tolist() == [1, 2**32 - 2]


def test_arrays_categories_and_wide_or_unsigned_integers():
    sets = pl.DataFrame({"report": [[0, 1], [1, 3]]}, schema={"report": pl.Array(pl.UInt8, 2)})
    assert tally_frame(sets, OptimizedUnaryEncoding(4, 1.0)).support.tolist() == [1, 2, 0, 1]
    frame = pl.DataFrame({"report": ["b", "a", "b"]}, schema={"report": pl.Categorical})
    assert count_frame(frame).counts.tolist() == [1, 2]
    frame = pl.DataFrame({"report": [2**63 + 1, 0]}, schema={"report": pl.UInt64})
    with refused(error=DataError, column="report"):
        count_frame(frame, "0:4")


@pytest.mark.long  # programs that compile for seconds
def test_counts_of_columns_have_a_likelihood():
    mechanism = HadamardResponse(SIZE, 1.5)
    reports = np.asarray(mechanism.randomize(jax.random.key(1), np.arange(200) % SIZE))
    counted = count_frame(pl.DataFrame({"report": reports}), Domain.range(0, mechanism.num_columns - 1))
    theta = np.full(SIZE, 1 / SIZE, mechanism.rates.p.dtype)
    found = rrjax.nll(theta, mechanism.mixture_of_counts(counted.counts))
    assert float(found) == float(rrjax.nll(theta, mechanism.mixture(reports)))


@pytest.mark.long
@pytest.mark.once
@pytest.mark.filterwarnings("ignore")
def test_spark_counts_hashes_where_they_are(spark):
    # What the refusal advises: the tally of each part, by the workers, and their sum here.
    mechanism, reports = made("optimized-local-hashing", 3_000)
    frame = spark.createDataFrame(
        pa.table({"seed": reports[:, 0].astype(np.int64), "bucket": reports[:, 1].astype(np.int64)})
    )

    def count(batches):
        for batch in batches:
            pairs = np.stack([batch.column(name).to_numpy() for name in ("seed", "bucket")], axis=1)
            tally = mechanism.tally(pairs)
            yield pa.RecordBatch.from_pydict(
                {"support": [np.asarray(tally.support, np.int64)], "number": [int(tally.num_users)]}
            )

    parts = frame.repartition(2).mapInArrow(count, "support array<long>, number long").toArrow().to_pylist()
    assert len(parts) >= 2
    tally = sum(
        rrjax.Tally(np.asarray(part["support"], INT), part["number"], mechanism.rates.p, mechanism.rates.q)
        for part in parts
    )
    wanted = mechanism.tally(reports)
    np.testing.assert_array_equal(tally.support, wanted.support)
    assert int(tally.num_users) == int(wanted.num_users) == 3_000


def test_a_file_of_labels_beyond_32_bits_is_refused_or_exact(monkeypatch, tmp_path):
    # N is beyond, each count is not: this was NaN without a word.
    from rrjax.io.tallies import tally_of_support

    mechanism = rrjax.RandomizedResponse(4, 1.0)
    support = np.full(4, 10**9)
    if INT.itemsize == 8:
        assert int(tally_of_support(support, 4 * 10**9, mechanism).num_users) == 4 * 10**9
    else:
        with pytest.raises(DataError, match="4,000,000,000 reports are more than 32 bits can count"):
            tally_of_support(support, 4 * 10**9, mechanism)


COLORS = ["red", "green", "blue"]
ANSWERS = ["red", "blue", "blue", "green", "red"]


@pytest.mark.parametrize(
    "frame",
    [
        lambda: pd.DataFrame({"report": pd.Categorical(ANSWERS, categories=[*COLORS[::-1], "other"])}),
        lambda: pd.DataFrame({"report": pd.Categorical(ANSWERS, categories=COLORS, ordered=True)}),
        lambda: pa.table({"report": pa.array(ANSWERS).dictionary_encode()}),
        lambda: pa.table(  # each chunk has a dictionary of its own
            {"report": pa.chunked_array([pa.array(part).dictionary_encode() for part in (ANSWERS[:2], ANSWERS[2:])])}
        ),
        lambda: pl.DataFrame({"report": pl.Series(ANSWERS, dtype=pl.Categorical)}),
        lambda: pl.DataFrame({"report": pl.Series(ANSWERS, dtype=pl.Enum(COLORS))}),
    ],
)
def test_categorical_columns_are_counted_by_their_labels(frame):
    mechanism = rrjax.RandomizedResponse(3, 1.0)
    for domain in (COLORS, Domain.of(COLORS), pd.CategoricalDtype(COLORS), pa.array(COLORS), pl.Series(COLORS)):
        tally = tally_frame(frame(), mechanism, domain=domain)
        assert tally.support.tolist() == [2, 1, 2]
        assert tally.domain == Domain.of(COLORS).fingerprint
    other = tally_frame(frame(), mechanism, domain=["blue", "red", "green"])
    assert other.support.tolist() == [2, 2, 1]
    with refused("domain"):
        tally + other
    assert count_frame(frame(), COLORS).counts.tolist() == [2, 1, 2]


def test_categories_that_are_numbers():
    mechanism = rrjax.RandomizedResponse(3, 1.0)
    for frame in (
        pd.DataFrame({"report": pd.Categorical([0, 1, 2, 2])}),
        pa.table({"report": pa.array([0, 1, 2, 2]).dictionary_encode()}),
    ):
        tally = tally_frame(frame, mechanism)
        assert tally.support.tolist() == [1, 1, 2]
        assert tally.domain is None
        assert tally_frame(frame, mechanism, domain=range(3)).domain == Domain.range(0, 2).fingerprint


@pytest.mark.parametrize(
    "rows",
    [[["red", "blue"], ["green", None]], [["red", "red"]], [["red"], None], ["red"], [3], [["red", "mauve"]], []],
)
@pytest.mark.parametrize("kind", ["pandas", "pyarrow"])
def test_lists_in_memory_that_are_no_reports_are_refused(rows, kind):
    mechanism = MECHANISMS["optimized-unary-encoding"](3, 1.0)
    frame = pd.DataFrame({"report": pd.Series(rows, dtype=object)}) if kind == "pandas" else pa.table({"report": rows})
    with refused(error=DataError):
        tally_frame(frame, mechanism, domain=COLORS)


@pytest.mark.once
@pytest.mark.parametrize(
    "domain", [set(COLORS), 3, ["red"], ["red", "green", "red"], ["red", None, "blue"], [1, "1", 2]]
)
def test_what_is_no_list_of_labels_is_refused(domain):
    with refused(error=DataError):
        count_frame(pl.DataFrame({"report": ANSWERS}), domain)


@pytest.mark.once
@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame, pa.table])
def test_leading_zeros_are_counted_where_they_are_lost(make):
    frame = make({"report": ["007", "7", "70", "0", "00", "07.0"], "n": [1, 2, 3, 4, 5, 6]})
    assert count_frame(frame, "0:99").num_padded == 3
    assert count_frame(frame, "0:99", counts="n").num_padded == 12
    assert count_frame(frame).num_padded == 0


@pytest.mark.once
def test_what_an_engine_cannot_count_is_said():
    with refused(error=DataError):
        count_frame(pd.DataFrame({"report": np.array([1, 2, 2], np.float16)}), "1:2")
