"""Numbers, separate columns, rounds, groups and two samples: a notebook and the command line say the same."""

from pathlib import Path

import jax
import numpy as np
import pytest
from scipy import stats

pytest.importorskip("duckdb", reason="files need rrjax[cli]")
polars = pytest.importorskip("polars", reason="frames need rrjax[frames]")

from outlets import check_outlets, check_refusal  # noqa: E402
from refusals import refused  # noqa: E402

import rrjax  # noqa: E402
from rrjax import io  # noqa: E402
from rrjax.data.errors import ArgumentError, Contradiction, DataError, naming_flags  # noqa: E402
from rrjax.io.domain import Domain  # noqa: E402
from rrjax.mechanisms import TWO_SAMPLES, AnchoredCrosswise  # noqa: E402
from rrjax.models import fit  # noqa: E402
from rrjax.reports import Groups, Rounds, TwoSampleReports  # noqa: E402
from rrjax.reports.kind import NoSuchQuestion  # noqa: E402
from rrjax.reports.two_sample_designs import TwoSampleShares  # noqa: E402

pytestmark = pytest.mark.once  # questions compute in float64, whatever the setting
APPS = ["maps", "news", "chat"]
COUNTS = {"sensitive": (1427, 573), "anchor": (1541, 459)}
SAMPLE = "question=sensitive,anchor"
ANCHORED = {"innocuous": 0.15, "anchor": "0.15"}
WAVE = ("--mechanism", "square-wave", "--range", "0,100", "--bins", "10")
ROUNDED = {"tolerance": 1e-6, "absolute": 1e-9, "skipped": ("certificate",), "spelt": ("warnings",)}
"""One warning is about a seed, which is a flag or an argument."""
INTEGERS = ("--mechanism", "geometric", "--domain", "0:3")


@pytest.fixture
def randomized(tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    ages = 100 * np.random.default_rng(0).beta(2, 3, 600)
    polars.DataFrame({"age": ages.round(1), "tens": ages.astype(int) // 25}).write_csv("v.csv")

    def made(*flags):
        column = "tens" if "geometric" in flags else "age"
        line = ("randomize", "v.csv", "--column", column, "--epsilon", "2", "--seed", "1", "--out", "r.parquet")
        code, _, error = invoke(*line, *flags)
        assert code == 0, error
        return rrjax.read("r.parquet")

    return made


@pytest.mark.full
@pytest.mark.parametrize("mechanism", [WAVE, INTEGERS])
def test_numbers_say_the_same_in_all_outlets(randomized, invoke, mechanism):
    numbers = randomized(*mechanism)
    check_outlets(numbers.statements(), invoke, "estimate", "r.parquet", **ROUNDED)
    asked = ("--quantile", "0.5", "--mean", "--level", "0.8")
    check_outlets(numbers.quantile(0.5, mean=True, level=0.8), invoke, "estimate", "r.parquet", *asked, **ROUNDED)
    column = "age" if mechanism == WAVE else "tens"
    polars.read_csv("v.csv").select(column).write_csv("truth.csv")
    found = numbers.compare("truth.csv")
    check_outlets(found, invoke, "compare", "r.parquet", "--truth", "truth.csv", **ROUNDED)
    width = 10 if column == "age" else 1
    counts = np.bincount(
        polars.read_csv("v.csv")[column].to_numpy().astype(int) // width, minlength=10 if width > 1 else 4
    )
    assert numbers.compare(counts).to_dict() == found.to_dict()
    assert "errors" not in numbers.compare().to_dict()["estimators"][0]


@pytest.mark.long
def test_questions_about_numbers_and_what_they_refuse(randomized):
    numbers = randomized(*INTEGERS)
    assert [each.name for each in numbers.mean().statements] == ["mean"]
    assert [each.probability for each in numbers.quantile(0.5, 0.9).statements] == [0.5, 0.9]
    assert len(numbers.quantile().statements) == 5
    assert len(numbers.statements().statements) == 6
    assert len(repr(numbers.statements()).splitlines()) < 20
    assert "<table>" in numbers.compare()._repr_html_()
    for argument, ask in (
        ("level", lambda: numbers.mean(95)),
        ("quantile", lambda: numbers.quantile(50)),
        ("truth", lambda: numbers.compare([1, 2])),
        ("truth", lambda: numbers.compare("r.parquet")),
        ("counts", lambda: rrjax.read("r.parquet", counts="n")),
        ("mechanism", lambda: rrjax.read("r.parquet", mechanism="kuk", parameters={"have": 0.8, "lack": 0.2})),
        ("missing", lambda: rrjax.read("r.parquet", missing=["NA"])),
    ):
        check_refusal(argument, ask)
    with pytest.raises(Contradiction):
        rrjax.read("r.parquet", epsilon=3.0)
    with pytest.raises(NoSuchQuestion):
        numbers.shares()


@pytest.mark.long
def test_reports_that_no_distribution_explains_say_so(randomized):
    metadata = randomized(*WAVE).counted.metadata
    io.write_reports("all.parquet", np.full(5000, 11, np.int32), metadata)  # each in the last place
    numbers = rrjax.read("all.parquet")
    assert numbers.contradicted
    statements = numbers.statements()
    assert not statements.facts["feasible"]
    assert np.isnan(statements.columns["lower"]).all()
    for answer in (statements, numbers.compare()):
        assert len(answer.warnings) == len(answer.to_dict()["warnings"]) == len(numbers.warnings) + 1


@pytest.mark.long
def test_the_figure_of_numbers(randomized):
    pytest.importorskip("matplotlib")
    numbers = randomized(*WAVE)
    assert len(numbers.mean().figure().axes) == 2
    with pytest.raises(ArgumentError):
        numbers.compare().figure()


def test_a_file_that_holds_no_numbers(tmp_path):
    (tmp_path / "r.csv").write_text("age\n1\n2\n")
    with pytest.raises(DataError):
        io.read_number_reports(str(tmp_path / "r.csv"))


@pytest.fixture
def survey(invoke):
    """900 users: smoking and drinking, which go together, and a coin; `sampled` has two of them of each user."""
    rng = np.random.default_rng(1)
    smokes = rng.integers(0, 2, 900)
    drinks = np.where(rng.random(900) < 0.7, smokes, rng.integers(0, 3, 900))
    io.write_table("v.csv", {"smokes": smokes, "drinks": drinks, "coin": rng.integers(0, 2, 900)})
    line = ["randomize", "v.csv", "--apart", "--epsilon", 9]
    for name, top in (("smokes", 1), ("drinks", 2), ("coin", 1)):
        line += ["--column", name, "--domain", f"0:{top}"]
    for name, more in (
        ("all", ()),
        ("sampled", ("--columns-per-user", 2, "--seed", 1)),
        ("single", ("--columns-per-user", 1)),
    ):
        assert invoke(*line, *more, "--out", f"{name}.parquet")[0] == 0
    return invoke


@pytest.mark.long
def test_a_file_of_several_columns_is_one_kind_of_reports(survey):
    reports = rrjax.read("all.parquet")
    assert isinstance(reports, rrjax.reports.SeparateColumns)
    assert reports.names == ("smokes", "drinks", "coin")
    assert (reports.num_users, reports.num_complete, reports.mechanism.shape) == (900, 900, (2, 3, 2))
    assert reports.epsilon == pytest.approx(9)
    one = rrjax.read("all.parquet", column="drinks")
    assert isinstance(one, rrjax.Reports)
    assert one.counts.tolist() == reports.column("drinks").counts.tolist()
    assert reports.warnings == []
    sampled = rrjax.read("sampled.parquet")
    assert (sampled.num_users, sampled.num_complete, sampled.sampled) == (900, 0, 2)
    assert sampled.epsilon == pytest.approx(9)
    assert len(sampled.warnings) == 1  # of the simulation, once


@pytest.mark.full
@pytest.mark.parametrize(
    ("flags", "ask"),
    [
        (("--joint", "smokes,drinks", "--level", 0.9), lambda reports: reports.joint(["smokes", "drinks"], 0.9)),
        (("--joint", "coin,drinks,smokes"), lambda reports: reports.joint(["coin", "drinks", "smokes"])),
        (("--all-pairs",), lambda reports: reports.pairs()),
        (("--tree",), lambda reports: reports.tree()),
        (("--tree", "--joint", "coin,smokes"), lambda reports: reports.tree(["coin", "smokes"])),
    ],
    ids=lambda given: "_".join(map(str, given)) if isinstance(given, tuple) else "",
)
def test_separate_columns_say_the_same_in_all_outlets(survey, flags, ask):
    answer = ask(rrjax.read("all.parquet"))
    check_outlets(answer, survey, "estimate", "all.parquet", *flags, "--top", 10)


@pytest.mark.full
def test_answers_are_shown_and_are_tables(survey):
    reports = rrjax.read("all.parquet")
    joint, pairs, tree = reports.joint(["smokes", "drinks"]), reports.pairs(), reports.tree()
    table = joint.to_xarray()
    assert table.closest.dims == ("smokes", "drinks")
    assert table.likeliest.shape == (2, 3)
    assert float(table.closest.sel(smokes=1, drinks=0)) == joint.columns["closest"][3]
    first = max(pairs.pairs, key=lambda pair: pair["cramers_v"])
    assert pairs.pairs[0] is first
    for name in ("columns", "cramers_v", "mutual_information_upper", "p_value"):
        assert first[name] == joint.association[name]
    assert first["p_value"] == 1e-4  # the smallest that the simulation can give
    assert pairs.cells().rows[0][-2].startswith("≤")
    assert not pairs.cells().rows[-1][-2].startswith("≤")
    assert pairs.significant[0] == first
    assert tree.edges[0]["columns"] == ["smokes", "drinks"]
    assert tree.to_polars()["share"].sum() == pytest.approx(2)
    assert tree.tree.table([0, 2]).sum() == pytest.approx(1)  # in the precision at hand
    for answer in (joint, pairs, tree):
        assert len(repr(answer).splitlines()) < 30
        assert "<table>" in answer._repr_html_()
        assert set(answer.words) >= {"Cramér's V"}
    assert len(reports.joint().cells(5).rows) == 5


@pytest.mark.full
def test_a_test_of_simulated_columns_says_that_they_are(survey):
    for name, number in (("sampled", 1), ("all", 0)):
        test = rrjax.reports.test_independence(rrjax.read(f"{name}.parquet"), ["smokes", "coin"], draws=99)
        assert sum("simulation" in warning for warning in test.warnings) == number


@pytest.mark.full
def test_answers_are_drawn(survey):
    pytest.importorskip("matplotlib", reason="figures need rrjax[plots]")
    reports = rrjax.read("all.parquet")
    for answer in (reports.pairs(), reports.tree(), reports.joint(["smokes", "drinks"])):
        assert answer.figure().axes
    with pytest.raises(ArgumentError) as caught:
        reports.joint().figure()
    assert caught.value.argument == "plot"
    code, _, error = survey("estimate", "all.parquet", "--tree", "--plot", "tree.png")
    assert code == 0, error
    assert Path("tree.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_a_column_that_contradicts_its_mechanism_is_warned_of(survey):
    import duckdb

    connection = duckdb.connect()
    ((key, text),) = connection.execute(
        "SELECT decode(key), decode(value) FROM parquet_kv_metadata('all.parquet') WHERE decode(key) LIKE 'rrjax%'"
    ).fetchall()

    def odd(columns):
        query = f"SELECT {columns} FROM 'all.parquet'"
        connection.execute(f"COPY ({query}) TO 'odd.parquet' (FORMAT parquet, KV_METADATA {{{key}: ?}})", [text])
        return rrjax.read("odd.parquet")

    warnings = odd("smokes, 0 AS drinks, coin").joint(["drinks", "coin"]).warnings
    assert [each.startswith("drinks: ") for each in warnings] == [False, True]
    # Each column may be sound and both be impossible: here the same random numbers have randomized both.
    copied = odd("coin AS smokes, drinks, coin")
    joint, pairs, tree = copied.joint(["smokes", "coin"]), copied.pairs(), copied.tree()
    for answer in (joint, pairs, tree, copied.joint()):
        assert sum("together" in each for each in answer.warnings) == 1
    assert "smokes × coin contradict" in pairs.warnings[0]
    assert np.isnan(joint.association["odds_ratio"])
    assert "odds ratio unknown" in repr(joint)
    for answer in (rrjax.read("all.parquet").pairs(), rrjax.read("all.parquet").joint()):
        assert answer.warnings == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("argument", "ask"),
    [
        ("columns", lambda: rrjax.read("all.parquet").joint(["smokes"])),
        ("columns", lambda: rrjax.read("all.parquet").joint(["smokes", "job"])),
        ("columns", lambda: rrjax.read("all.parquet").tree(["smokes", "smokes"])),
        ("columns", lambda: rrjax.read("sampled.parquet").joint()),
        ("columns", lambda: rrjax.read("single.parquet").pairs()),
        ("level", lambda: rrjax.read("all.parquet").joint(level=95)),
        ("level", lambda: rrjax.read("all.parquet").tree(level=0)),
        ("epsilon", lambda: rrjax.read("all.parquet", epsilon=1.0)),
        ("domain", lambda: rrjax.read("all.parquet", domain=["a", "b"])),
        ("column", lambda: rrjax.read("all.parquet").column("job")),
    ],
)
def test_errors_about_separate_columns_name_the_argument(survey, argument, ask):
    check_refusal(argument, ask)


@pytest.mark.long
def test_shares_are_those_of_one_column(survey):
    with pytest.raises(NoSuchQuestion):
        rrjax.read("all.parquet").shares()


def checked(invoke, ask, *line):
    """Compares an answer with the JSON and with the file of a command line, and returns it."""
    with naming_flags():
        answer = ask()
        check_outlets(answer, invoke, "estimate", *line, "--top", "10", tolerance=1e-6, absolute=1e-9)
    assert invoke("estimate", *line, "--explain")[0] == 0
    return answer


@pytest.fixture
def collected(invoke):
    """Two rounds of one protocol, and two files of one column that were randomized differently."""
    Path("apps.txt").write_text("\n".join(APPS) + "\n")
    for day in (1, 2):
        apps = np.repeat(APPS, (600, 300, 100))
        io.write_table("values.csv", {"id": np.arange(1000), "app": apps})
        line = ("randomize", "values.csv", "--column", "app", "--domain", "apps.txt", "--seed", day)
        protocol = ("--mechanism", "longitudinal-randomized-response", "--first-epsilon", 2, "--user", "id")
        memo = ("--epsilon", 4, "--memo", "memo.parquet")
        assert invoke(*line, *protocol, *memo, "--out", f"day{day}.parquet")[0] == 0
        assert invoke(*line, "--epsilon", day, "--out", f"way{day}.parquet")[0] == 0
    return invoke


@pytest.mark.full
@pytest.mark.parametrize(("names", "kind"), [("day", Rounds), ("way", Groups)])
def test_parts_say_the_same_in_all_outlets(collected, names, kind):
    files = [f"{names}{place}.parquet" for place in (1, 2)]
    reports = rrjax.read(files)
    assert isinstance(reports, kind)
    assert reports.questions() == ["shares"]
    with pytest.raises(NoSuchQuestion):
        reports.mean()
    shares = checked(collected, lambda: rrjax.read(files).shares(), *files)
    columns = shares.columns
    assert columns["simulated"].all()
    assert len(shares.warnings) == 1  # of both parts, said once
    every = columns[f"all_{shares.reports.part}s"]
    np.testing.assert_allclose(every, [0.6, 0.3, 0.1], atol=0.12)
    assert (columns["lower"] < every).all()
    wider = reports.shares(simultaneous=True).columns
    assert (wider["upper"] > columns["upper"]).all()
    assert len(shares.cells(2).rows) == 2
    assert APPS[0] in repr(shares)
    check_refusal("level", lambda: reports.shares(95))


@pytest.mark.full
def test_a_part_that_contradicts_its_mechanism_is_named(collected):
    reports = rrjax.read(["way1.parquet", "way2.parquet"])
    odd = rrjax.Reports.of_counts([1000, 1000, 0], 0.5, APPS)
    shares = Groups({1: reports.parts[1], 2: odd}).shares()
    assert odd.contradicted
    assert f"Group 2: {odd.warnings[0]}" in shares.warnings


@pytest.mark.long
def test_arguments_that_contradict_the_files_are_refused(collected):
    files = ["day1.parquet", "day2.parquet"]
    with pytest.raises(DataError):
        rrjax.read(files, epsilon=0.1)
    with pytest.raises(ArgumentError):
        rrjax.read(files, mechanism="warner", parameters={"truth_probability": 0.7}, domain=APPS)


@pytest.fixture
def asked(invoke):
    """The answers of two samples."""
    said = [label for yes, no in COUNTS.values() for label in ["same"] * yes + ["other"] * no]
    questions = [name for name, pair in COUNTS.items() for _ in range(sum(pair))]
    io.write_table("two.csv", {"question": np.array(questions), "said": np.array(said)})
    Path("same.txt").write_text("same\nother\n")
    return invoke


def read_two(**changed):
    given = {"column": "said", "domain": "same.txt", "sample": SAMPLE, "mechanism": "anchored-crosswise"}
    return rrjax.read("two.csv", **(given | {"parameters": ANCHORED | {"yes": "same"}} | changed))


@pytest.mark.long
def test_two_samples_say_the_same_in_all_outlets(asked):
    reports = read_two()
    assert isinstance(reports, TwoSampleReports)
    assert reports.counts.tolist() == [list(pair) for pair in COUNTS.values()]
    line = ["two.csv", "--column", "said", "--domain", "same.txt", "--mechanism", "anchored-crosswise"]
    for name, value in {**ANCHORED, "yes": "same"}.items():
        line += ["--parameter", f"{name}={value}"]
    line += ["--sample", SAMPLE, "--same-people"]
    shares = checked(asked, lambda: reports.shares(same_people=True), *line)
    assert f"{shares.numbers['share']:.4f} {shares.numbers['standard_error']:.4f}" == "0.1054 0.0222"
    assert read_two(mechanism=AnchoredCrosswise(0.15, 0.15), parameters={"yes": "same"}).shares().warnings == []
    exchanged = read_two(sample="question=anchor,sensitive").shares()
    assert len(exchanged.warnings) >= 2
    assert SAMPLE in exchanged.warnings[1]


def cheats(number=1500):
    """Answers to cheating detection, an age, and a region in which fewer follow the rule; one row without a sample."""
    rng = np.random.default_rng(3)
    age, north, die = rng.integers(18, 80, number), rng.random(number) < 0.5, rng.random(number) < 0.5
    share, cheat = 1 / (1 + np.exp(2 - 0.05 * age)), np.where(north, 0.1, 0.3)
    said = rng.random(number) < (1 - cheat) * (share + (1 - share) * np.where(die, 0.25, 0.75))
    columns = {"said": said.astype(int), "age": age, "region": np.where(north, "north", "south")}
    io.write_table("cheats.csv", columns | {"die": np.where(die, "A", "B").astype(object) * (np.arange(number) > 0)})
    return columns, np.where(die, 0, 1)


CHEATS = ("cheats.csv", "--domain", "0:1", "--mechanism", "cheating-detection", "--parameter", "forced=0.25,0.75")


def read_cheats(**changed):
    given = {"column": "said", "domain": "0:1", "mechanism": "cheating-detection", "sample": "die=A,B"}
    return rrjax.read("cheats.csv", **(given | {"parameters": {"forced": [0.25, 0.75]}} | changed))


@pytest.mark.full
def test_two_samples_regress_the_same_in_all_outlets(invoke):
    pytest.importorskip("matplotlib")
    columns, sample = cheats()
    reports = read_cheats()
    assert reports.questions() == ["shares", "regress"]
    line = (
        "regress",
        *CHEATS,
        "--outcome",
        "said",
        "--sample",
        "die=A,B",
        "--covariates",
        "age",
        "--nuisance",
        "region",
    )
    answer = reports.regress("age", nuisance=["region"])
    check_outlets(answer, invoke, *line, tolerance=1e-6)
    assert answer.reference == "0"  # the first category is the no
    with jax.enable_x64(True):
        design, kept = rrjax.mechanisms.CheatingDetection([0.25, 0.75]), slice(1, None)
        given = columns["age"][kept].astype(float), 1 - columns["said"][kept], design
        found = fit(*given, sample=sample[kept], nuisance=(columns["region"][kept] == "south").astype(float))
        limits, coefficients = np.asarray(found.profile_intervals()), np.asarray(found.coefficients)
    table = answer.columns
    np.testing.assert_allclose(table["estimate"][:2], -coefficients[:, 0], rtol=1e-6)
    np.testing.assert_allclose(table["estimate"][2:], found.nuisance_coefficients, rtol=1e-6)
    np.testing.assert_allclose(table["lower"], np.r_[-limits[:2, 1], limits[2:, 0]], rtol=1e-3)
    np.testing.assert_allclose(table["upper"], np.r_[-limits[:2, 0], limits[2:, 1]], rtol=1e-3)
    other = reports.regress("age", reference="1", robust=True)  # the yes is the reference: as the model has it
    assert other.columns["estimate"][1] == pytest.approx(-reports.regress("age").columns["estimate"][1])
    assert not other.second["profile"]
    assert len(answer.figure().axes) == 2


@pytest.mark.full
def test_regressions_of_two_samples_that_are_odd_say_so(invoke):
    cheats()
    exchanged = read_cheats(sample="die=B,A")
    with pytest.raises(DataError) as told:
        exchanged.regress("age")
    assert told.value.value < 1e-3  # the p-value of the samples under the design
    io.write_table("cheats.csv", {"said": [0, 1] * 50, "age": [1] * 100, "die": ["A", "A", "B", "B"] * 25})
    with refused(error=DataError, column="age"):
        read_cheats().regress("age")
    counted = np.array([[40, 60], [60, 40]])
    design = TWO_SAMPLES["cheating-detection"]([0.25, 0.75])
    check_refusal(
        "counts", lambda: TwoSampleReports(design, counted, Domain.range(0, 1), 1, ("d", "a", "b"), 0).regress("age")
    )
    one = rrjax.read("cheats.csv", column="said", epsilon=1.0, domain="0:1")
    check_refusal("nuisance", lambda: one.regress("age", nuisance=["die"]))
    code, _, error = invoke("regress", "cheats.csv", "--outcome", "said", "--covariates", "age", "--domain", "0:1",
                            "--epsilon", "1", "--sample", "die=A,B")  # fmt: skip
    assert code == 2
    assert "--sample" in error


@pytest.mark.full
@pytest.mark.usefixtures("invoke")
def test_the_second_share_of_clusters_has_the_limits_of_student():
    columns, sample = cheats()
    village = {"village": np.arange(len(sample)) % 8, "die": np.where(sample == 0, "A", "B")}
    io.write_table("cheats.csv", columns | village)
    second = read_cheats().regress("age", clusters="village").second
    half = stats.t.ppf(0.975, 7) * second["standard_error"]
    assert second["upper"] - second["share"] == pytest.approx(half, rel=1e-6)
    assert second["share"] - second["lower"] == pytest.approx(half, rel=1e-6)


@pytest.mark.long
def test_the_figure_of_two_samples_has_both_unknown_shares(asked):
    pytest.importorskip("matplotlib")
    (axes,) = read_two().shares().figure().axes
    assert len(axes.get_yticks()) == 2
    line = ("two.csv", "--column", "said", "--domain", "same.txt", "--sample", SAMPLE)
    cheating = ("--mechanism", "cheating-detection", "--parameter", "forced=0.25,0.75", "--parameter", "yes=same")
    assert asked("estimate", *line, *cheating, "--plot", "two.png")[0] == 0
    assert Path("two.png").exists()


@pytest.mark.parametrize(
    ("argument", "changed"),
    [
        ("sample", {"sample": None}),
        ("sample", {"sample": "question"}),
        ("sample", {"sample": "question=anchor,anchor"}),
        ("sample", {"sample": "question=anchor,nobody"}),
        ("sample", {"mechanism": "warner", "parameters": {"truth_probability": 0.7}}),
        ("domain", {"domain": None}),
        ("domain", {"domain": ["a", "b", "c"]}),
        ("domain", {"parameters": ANCHORED}),
        ("parameters", {"parameters": ANCHORED | {"yes": "nobody"}}),
        ("column", {"column": None}),
        ("epsilon", {"epsilon": 1.0}),
    ],
)
def test_two_samples_are_refused_by_argument(asked, argument, changed):
    check_refusal(argument, lambda: read_two(**changed))


@pytest.mark.full
def test_two_samples_of_the_same_people_where_they_must_differ():
    design = TWO_SAMPLES["unrelated-question-two-samples"]([0.7, 0.3])
    sample = ("die", "a", "b")
    reports = TwoSampleReports(design, np.array([[26, 74], [34, 66]]), Domain.of(["yes", "no"]), 0, sample, 1)
    check_refusal("same_people", lambda: reports.shares(same_people=True))
    assert isinstance(reports.shares(), TwoSampleShares)
    assert len(reports.warnings) == 1
