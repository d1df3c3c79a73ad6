"""The command line on reports of every mechanism: from values to an estimate, and refusals."""

import json
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy import special

import rrjax
from rrjax import io
from rrjax.cli.audit import WORDS_AN_HOUR
from rrjax.io.write import make_folder
from rrjax.mechanisms import DESIGNS, MECHANISMS, ORDERED, PROTOCOLS
from rrjax.mechanisms.table import ABBREVIATIONS

pytestmark = pytest.mark.once
SHARES = np.array([0.5, 0.2, 0.1, 0.1, 0.05, 0.05])


@pytest.fixture
def values(invoke):
    """A file of 6,000 users over six categories, in the folder where commands run."""
    numbers = np.repeat(np.arange(6), np.round(6000 * SHARES).astype(int))
    io.write_table("values.csv", {"answer": np.array(list("abcdef"))[numbers]})
    return invoke


def randomized(invoke, name, *more):
    return invoke(
        "randomize", "values.csv", "--epsilon", 2, "--mechanism", name, "--out", "r.parquet", "--force", *more
    )


def check(invoke, name):
    found = invoke.json("estimate", "r.parquet")
    assert found["mechanism"] == name
    assert found["num_reports"] == 6000
    mechanism = MECHANISMS[name](6, found["epsilon"])
    errors = np.sqrt(np.asarray([float(mechanism.rates.variance(share)) / 6000 for share in SHARES]))
    rows = {row["label"]: row for row in found["top"]}
    for label, share, error in zip("abcdef", SHARES, errors, strict=True):
        row = rows[label]
        assert abs(row["closest"] - share) < 5 * error
        assert row["lower"] - 1e-3 <= row["closest"] <= row["upper"] + 1e-3 or not row["discovered"]
        assert row["lower"] - 2 * error <= share <= row["upper"] + 2 * error
    assert found["likeliest"]["certificate"]["gap"] < 1e-4
    return found


@pytest.mark.full  # everything that an estimate takes is compiled for each mechanism
@pytest.mark.parametrize("name", MECHANISMS)
def test_from_values_to_an_estimate(name, values):
    for more in ((), ("--seed", 1)):
        code, out, err = randomized(values, name, *more)
        assert code == 0, err
        if name != "randomized-response":
            assert f"By {name}" in out
        metadata = io.read_metadata("r.parquet")
        assert metadata.mechanism.name == name
        assert metadata.effective_epsilon <= 2
        assert metadata.simulated == bool(more)
        check(values, name)
    out = values.done("estimate", "r.parquet", "--explain")
    assert "log-likelihood within" in out


@pytest.mark.long
def test_subsets_by_the_name_that_papers_give_them(values):
    code, out, _ = randomized(values, "SS", "--seed", 1)  # as papers call it
    assert code == 0
    assert "By subset-selection (subset size 1): a report supports its user's category with probability" in out
    assert randomized(values, "subset_selection", "--seed", 1)[0] == 0
    values.refuses("--draws", "test", "trend", "r.parquet", "r.parquet", "--draws", 99)


@pytest.mark.full  # a dozen programs
def test_questions_about_the_reports_of_every_mechanism(invoke):
    rng = np.random.default_rng(0)
    for name, shares in (("first", [0.4, 0.3, 0.2, 0.1]), ("second", [0.4, 0.3, 0.05, 0.25])):
        region = np.asarray(["north", "south"], object)[rng.integers(0, 2, 3000)]
        io.write_table(f"{name}.csv", {"value": rng.choice(4, 3000, p=shares), "region": region})
        for kind, epsilon in (("ss", 2), ("olh", 3), ("rr", 2)):
            flags = ("--column", "value", "--keep", "region", "--domain", "0:3", "--mechanism", kind, "--seed", 1)
            invoke.done("randomize", f"{name}.csv", *flags, "--epsilon", epsilon, "--out", f"{name}-{kind}.parquet")
    io.write_table("census.csv", {"value": np.arange(4), "n": np.array([40, 30, 20, 10])})
    io.write_table("sizes.csv", {"region": np.asarray(["south", "north"], object), "people": np.array([100, 300])})

    def answer(*line):
        (found,) = invoke.json("test", *line)["tests"]
        return found

    against = ("--against", "census.csv", "--against-column", "value", "--against-counts", "n")
    for kind in ("ss", "olh"):
        assert not answer("fit", f"first-{kind}.parquet")["rejected"]
        fit = answer("fit", f"first-{kind}.parquet", *against)
        assert (fit["rejected"], fit["simulated"], fit["standard_error"]) == (False, False, 0)
        fit = answer("fit", f"second-{kind}.parquet", *against)
        assert (fit["rejected"], fit["category"] in ("2", "3")) == (True, True)
        equal = answer("equal", f"first-{kind}.parquet", f"second-{kind}.parquet")
        assert (equal["rejected"], f"most in {equal['category']}" in equal["answer"]) == (True, True)
        trend = answer("trend", f"first-{kind}.parquet", f"second-{kind}.parquet", "--category", "3", "--draws", 199)
        assert (trend["rejected"], trend["category"], "upwards" in trend["answer"]) == (True, "3", True)
    assert answer("equal", "first-rr.parquet", "second-olh.parquet")["rejected"]
    assert answer("trend", "first-ss.parquet", "second-rr.parquet", "--draws", 199)["category"] in ("2", "3")
    out = invoke.done("test", "equal", "first-ss.parquet", "second-ss.parquet", "--explain")
    assert "(exact), significance 0.05." in out
    assert "Bonferroni" in out

    by = ("--quantile", "0.5", "--group", "few=2,3", "--by", "region")
    rows = {
        (row["statement"], row["of"]): row
        for row in invoke.json("estimate", "second-ss.parquet", *by, "--population", "sizes.csv")["statements"]
    }
    for level in ("all", "north", "south"):
        row = rows["median", level]
        assert int(row["lower"]) <= int(row["value"]) <= int(row["upper"]) <= 2
    each = [rows["few", level] for level in ("north", "south")]
    expected = 0.75 * each[0]["value"] + 0.25 * each[1]["value"]
    assert rows["few", "population"]["value"] == pytest.approx(expected, abs=1e-6)
    wide = rows["few", "population"]
    rows = {
        (row["statement"], row["of"]): row
        for row in invoke.json("estimate", "second-ss.parquet", *by, "--population", "sizes.csv", "--normal")[
            "statements"
        ]
    }
    assert wide["lower"] < rows["few", "population"]["lower"] < rows["few", "population"]["upper"] < wide["upper"]


@pytest.mark.long
def test_too_many_reports_for_their_likelihood(values, monkeypatch):
    monkeypatch.setattr("rrjax.io.tallies.MAX_CELLS", 1000)
    assert randomized(values, "oue", "--seed", 1)[0] == 0
    found = values.json("estimate", "r.parquet")
    assert "likeliest" not in found
    assert found["closest"]["certificate"]["gap"] is None
    assert values("estimate", "r.parquet", "--estimator", "mle")[0] == 2
    assert (values.error.flag, values.error.value) == ("--estimator", "mle")
    # What needs the tally alone is measured all the same, and what is not computed is said not to be.
    (row,) = values.json("compare", "r.parquet", "--truth", "values.csv", "--estimator", "inv_p")["estimators"]
    assert row["nll"] is None
    assert None not in row["errors"].values()


def test_mechanisms_that_there_are_not(values):
    code, _, err = randomized(values, "magic")
    assert code == 2
    assert "'magic' is none of randomized-response, " in err
    assert set(ABBREVIATIONS.values()) <= {*MECHANISMS, *ORDERED, *DESIGNS, *PROTOCOLS}
    assert rrjax.RandomizedResponse.name in MECHANISMS


@pytest.mark.long
def test_an_audit_from_the_command_line(invoke):
    arguments = ("audit", "--mechanism", "hr", "--categories", 4, "--epsilon", 1, "--draws", 40_000)
    found = invoke.json(*arguments)
    assert 0.7 < found["lower"] <= found["claimed"] <= 1
    assert not found["violated"]
    out = invoke.done(*arguments)
    assert "nothing speaks against the client" in out
    assert invoke("audit", "--categories", 4, "--epsilon", 40)[0] == 2
    assert invoke("audit", "--categories", 1, "--epsilon", 1)[0] == 2
    assert (invoke.error.flag, invoke.error.value) == ("--categories", 1)
    assert invoke("audit", "--mechanism", "sue", "--categories", 4, "--epsilon", 36, "--json")[0] == 0
    assert invoke("audit", "--mechanism", "hr", "--categories", 2**31 - 1, "--epsilon", 1)[0] == 2
    assert (invoke.error.flag, invoke.error.value) == ("--categories", 2**31 - 1)


def test_an_audit_says_when_its_draws_are_too_few(invoke):
    out = invoke.done("audit", "--categories", 5, "--epsilon", 1, "--draws", 4)
    assert "nothing speaks against" not in out
    assert "at least 50 are needed" in out
    found = invoke.json("audit", "--categories", 5, "--epsilon", 1, "--draws", 4)
    assert found["powerless"]
    assert found["draws_needed"] == 50


def test_an_audit_that_would_take_hours_is_refused_before_it_begins(invoke):
    err = invoke.said(2, "audit", "--mechanism", "sue", "--categories", 5_000_000, "--epsilon", 1)
    assert (invoke.error.flag, invoke.error.value) == ("--draws", 1_000_000)
    fewer = int(err.split("for --draws ")[1].split(",")[0])
    assert 2 * fewer * 5_000_000 <= WORDS_AN_HOUR < 2 * (fewer + 1) * 5_000_000


def with_metadata(name, **changes):
    """Reports whose metadata were changed after they were written."""
    record = {
        "mechanism": {"name": "subset-selection", "num_categories": 3, "epsilon": 1.0, "subset_size": 1},
        "effective_epsilon": 1.0,
        "domain": {"first": 0, "last": 2},
        "column": "r",
        "simulated": True,
        "version": "0",
        "domain_from_data": False,
    }
    record["mechanism"] |= changes.pop("parameters", {})
    text = json.dumps(record | changes).replace("'", "''")
    duckdb.execute(
        f"COPY (SELECT 'a'::BLOB AS r FROM range(9)) TO '{name}' (FORMAT parquet, KV_METADATA {{rrjax: '{text}'}})"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"effective_epsilon": 1.1},
        {"effective_epsilon": float("inf")},
        {"effective_epsilon": float("nan")},
        {"effective_epsilon": 0.5},
        {"effective_epsilon": 1e-300, "parameters": {"epsilon": 1e-300}},
        {"effective_epsilon": 1e300, "parameters": {"epsilon": 1e300}},
        {"parameters": {"subset_size": 10**400}},
        {"parameters": {"subset_size": -1}},
        {"parameters": {"subset_size": [[1]]}},
        {"parameters": {"salt": 1}},
        {"parameters": {"name": "of the future"}},
        {"mechanism": [[[]]]},
        {"column": {"a": 1}},
        {"domain": {"factors": [{"factors": []}]}},
    ],
)
@pytest.mark.parametrize("command", ["estimate", "report"])
def test_damaged_metadata_are_bad_data(invoke, command, changes):
    with_metadata("r.parquet", **changes)
    code, out, _ = invoke(command, "r.parquet")
    assert (code, out) == (3, "")
    assert isinstance(invoke.error, io.DataError)


@pytest.mark.parametrize(
    "line",
    [
        ("randomize", "true.csv", "--column", "answer", "--epsilon", 1, "--domain", "0:2", "--out", "r.parquet"),
        ("compare", "r.csv", "--epsilon", 1, "--domain", "0:2", "--truth", "true.csv", "--truth-column", "answer"),
        ("study", "data", "true.csv", "--column", "answer", "--domain", "0:2"),
    ],
)
def test_true_values_do_not_reach_messages(beside_files, line):
    invoke = beside_files
    Path("true.csv").write_text("name,answer\nx,1\ny,4711\nz,4712\n")
    Path("r.csv").write_text("r\n0\n1\n2\n")
    code, out, err = invoke(*line)
    assert code == 3
    assert "471" not in out + err
    assert (invoke.error.column, invoke.error.value) == ("answer", None)
    assert "'4711'" in invoke.said(3, *line, "--show-values")


def test_reports_are_repeated_in_messages_and_covariates_are_not(beside_files):
    code, _, err = beside_files("estimate", "r.csv", "--column", "answer", "--epsilon", 1, "--domain", "0:2")
    assert (code, beside_files.error.value) == (3, "3")
    Path("c.csv").write_text("r,age\n0,30\n1,4711x\n0,50\n")
    line = ("regress", "c.csv", "--outcome", "r", "--covariates", "age", "--epsilon", 1)
    code, _, err = beside_files(*line)
    assert (code, "4711x" in err) == (3, False)
    assert (beside_files.error.file, beside_files.error.column, beside_files.error.row) == ("c.csv", "age", 2)
    code, _, err = beside_files(*line, "--show-values")
    assert (code, "4711x" in err) == (3, True)


def test_a_file_of_values_taken_for_one_of_labels(values):
    Path("people.txt").write_text("secret\nother\nsecret\n")
    line = ("randomize", "values.csv", "--epsilon", 1, "--out", "r.parquet", "--domain", "people.txt")
    code, _, err = values(*line)
    assert (code, "secret" in err) == (3, False)


def test_a_first_line_that_may_be_a_value_is_not_repeated(values):
    Path("values.csv").write_text("secret\nNo\nNo\n")
    code, _, err = values("randomize", "values.csv", "--epsilon", 1, "--domain", "no,yes", "--out", "r.parquet")
    assert (code, "secret" in err, "row 1" in err) == (3, False, True)


@pytest.mark.long
def test_reports_are_not_replaced(values):
    line = ("randomize", "values.csv", "--epsilon", 2, "--out", "r.parquet")
    assert values(*line)[0] == 0
    before = Path("r.parquet").read_bytes()
    for command in (
        line,
        ("estimate", "values.csv", "--epsilon", 2, "--out", "r.parquet"),
        ("estimate", "values.csv", "--epsilon", 2, "--group", "a=a", "--out", "r.parquet"),
        ("compare", "values.csv", "--epsilon", 2, "--out", "r.parquet"),
    ):
        values.refuses("--out", *command)
        assert Path("r.parquet").read_bytes() == before
    assert values(*line, "--force")[0] == 0
    assert Path("r.parquet").read_bytes() != before
    # Whatever else is there stays there, too.
    Path("other.parquet").write_text("mine")
    assert values(*line[:-1], "other.parquet")[0] == 2
    # A table of estimates can be made again.
    for _ in range(2):
        assert values("estimate", "r.parquet", "--out", "t.parquet")[0] == 0


def test_a_demonstration_does_not_replace_reports(values):
    make_folder("rrjax-demo")
    assert values("randomize", "values.csv", "--epsilon", 2, "--out", "rrjax-demo/reports.parquet")[0] == 0
    assert values("demo")[0] == 2


@pytest.mark.full
def test_a_page_takes_the_place_of_pages_only(values):
    assert randomized(values, "krr")[0] == 0
    for _ in range(2):
        assert values("report", "r.parquet", "--out", "page.html")[0] == 0
    Path("mine.html").write_text("<html>mine</html>")
    values.refuses("--out", "report", "r.parquet", "--out", "mine.html")
    assert Path("mine.html").read_text() == "<html>mine</html>"
    assert values("report", "r.parquet", "--out", "mine.html", "--force")[0] == 0


@pytest.mark.full
def test_a_simulation_says_so_everywhere(values):
    code, _, err = randomized(values, "krr", "--seed", 1)
    assert (code, "protects nobody" in err) == (0, True)
    made = json.loads(randomized(values, "krr", "--seed", 1, "--json")[1])
    assert made["simulated"]
    assert any("protects nobody" in warning for warning in made["warnings"])
    code, out, err = values("estimate", "r.parquet", "--out", "e.csv")
    assert "protect nobody" in out.split("\n")[0]
    assert "protect nobody" in err
    assert values.json("estimate", "r.parquet")["simulated"] is True
    for name, more in (("s.csv", ("--group", "a=a")), ("e.csv", ())):
        assert values("estimate", "r.parquet", "--out", name, *more)[0] == 0
        table = np.genfromtxt(name, delimiter=",", names=True, dtype=None, encoding=None)
        assert np.all(table["simulated"])
    assert io.read_domain("e.csv").listed == tuple("abcdef")
    assert values("report", "r.parquet", "--out", "page.html")[0] == 0
    assert "protect nobody" in Path("page.html").read_text(encoding="utf-8")
    # Reports of real people do not.
    assert "protects nobody" not in randomized(values, "krr")[2]
    assert values("estimate", "r.parquet", "--out", "e.csv")[0] == 0
    with open("e.csv") as stream:
        assert "simulated" not in stream.readline()
    assert values.json("estimate", "r.parquet")["simulated"] is False


@pytest.fixture
def people(invoke):
    """A file of people, two of whom do not answer, in rows whose order can be told from their id."""
    rng = np.random.default_rng(2)
    age, region = rng.integers(20, 60, 3000), rng.integers(0, 2, 3000)
    yes = rng.random(3000) < (age - 15) / 60
    with open("people.csv", "w") as stream:
        stream.write("id,answer,age,region\n")
        for row in range(3000):
            answer = "" if row in (7, 2000) else "yes" if yes[row] else "no"
            stream.write(f"{row:05},{answer},{age[row]},{('north', 'south')[region[row]]}\n")
    duckdb.execute(
        "COPY (SELECT CAST(id AS INTEGER) AS id, answer, CAST(age AS DOUBLE) AS age, region, DATE '2020-01-01' AS "
        "day FROM read_csv('people.csv', all_varchar=true)) TO 'people.parquet'"
    )
    return invoke


KEPT = ("--column", "answer", "--epsilon", 3, "--out", "r.parquet", "--force")


@pytest.mark.full
@pytest.mark.parametrize("name", ["krr", "oue", "olh", "ss", "hr", "pgr"])
def test_columns_are_kept_beside_reports_of_every_coding(people, name):
    assert "protected by nothing: region, id, day, age" in people.said(
        0, "randomize", "people.parquet", *KEPT, "--keep", "region,id,day,age", "--mechanism", name
    )
    with duckdb.connect() as connection:
        described = connection.execute("DESCRIBE FROM 'r.parquet'").fetchall()
        assert [row[0] for row in described] == ["answer", "region", "id", "day", "age"]
        assert [row[1] for row in described][1:] == ["VARCHAR", "INTEGER", "DATE", "DOUBLE"]
        alike = "SELECT count(*) FROM 'r.parquet' AS r JOIN 'people.parquet' AS p USING (region, id, day, age)"
        assert connection.execute(alike).fetchall() == [(2998,)]
        ids = connection.execute("SELECT id FROM 'r.parquet'").fetchnumpy()["id"]
    np.testing.assert_array_equal(ids, np.delete(np.arange(3000), [7, 2000]))
    assert people.json("estimate", "r.parquet")["num_reports"] == 2998


@pytest.mark.full
def test_what_is_kept_serves_subgroups_and_regression(people):
    people.done("randomize", "people.csv", *KEPT, "--keep", "age,region")
    # Each report is beside its own row: nearly all are true at ε = 3, and yes goes with age.
    found = people.json("estimate", "r.parquet", "--by", "region", "--group", "yes=yes")
    assert [row["of"] for row in found["statements"]][:3] == ["all", "north", "south"]
    found = people.json("regress", "r.parquet", "--outcome", "answer", "--covariates", "age,region")
    (age,) = [row for row in found["coefficients"] if row["term"] == "age"]
    assert age["estimate"] > 8 * age["standard_error"] > 0


def test_what_cannot_be_kept(people):
    for names, code, column in (
        ("answer", 2, "answer"),
        ("age,age", 2, None),
        ("Answer", 2, "Answer"),
        ("nothing", 3, "nothing"),
        ("", 2, None),
    ):
        assert people("randomize", "people.csv", *KEPT, "--keep", names)[0] == code
        assert people.error.flag == "--keep"
        assert getattr(people.error, "column", None) == column
    pair = ("randomize", "people.csv", *KEPT, "--column", "region", "--keep")
    assert people(*pair, "region")[0] == 2
    assert people(*pair, "age")[0] == 0
    assert len(duckdb.execute("FROM 'r.parquet'").fetchall()) == 2998


@pytest.mark.long
@pytest.mark.parametrize("weight", ["1e308", "1e200", "inf", "-1", "x"])
def test_weights_that_cannot_be(invoke, weight):
    Path("w.csv").write_text("r,w,g\n" + f"0,{weight},a\n1,{weight},b\n" * 5)
    read = ("w.csv", "--epsilon", 1, "--weights", "w")
    for command in (
        ("estimate", *read, "--column", "r", "--group", "a=0"),
        ("regress", *read, "--outcome", "r", "--covariates", "g"),
    ):
        code, out, _ = invoke(*command)
        assert (code, out) == (3, "")
        assert (invoke.error.file, invoke.error.column) == ("w.csv", "w")


def test_no_covariates(beside_files):
    line = ("regress", "r.csv", "--outcome", "answer", "--epsilon", 1, "--covariates")
    for names in ("", ",", " "):
        beside_files.refuses("--covariates", *line, names)


@pytest.mark.full
def test_codes_with_leading_zeros(invoke):
    Path("codes.csv").write_text("code\n" + "007\n7\n12\n" * 5)
    read = ("codes.csv", "--domain", "0:20", "--epsilon", 1)
    for command in (("estimate", *read), ("randomize", *read, "--out", "r.parquet")):
        code, _, err = invoke(*command)
        assert (code, "leading zeros" in err) == (0, True)
    assert "leading zeros" not in invoke("estimate", "r.parquet")[2]


def test_the_first_line_of_a_file_without_header_is_not_repeated(invoke):
    Path("people.csv").write_text("Alice,secret\nBob,other\nCarol,secret\n")
    for column in ("2", "3", "other", "Bobby"):
        code, _, err = invoke("randomize", "people.csv", "--column", column, "--epsilon", 1, "--out", "r.parquet")
        assert (code, "Alice" in err, "secret" in err) == (3, False, False)
        assert "--no-header" in err


@pytest.mark.full  # two commands and three programs
def test_whole_reports_are_used_and_the_advice_says_what_to_report(invoke):
    shares = np.array([0.3333, 0.0002, 0.0253, 0.3121, 0.3291])
    values = np.random.default_rng(4).choice(5, 20_000, p=shares / shares.sum())
    io.write_table("v.csv", {"x": values})
    line = ("--epsilon", "3", "--mechanism", "sue", "--seed", "4", "--domain", "0:4", "--out", "r.parquet")
    assert invoke("randomize", "v.csv", *line)[0] == 0
    found = invoke.json("estimate", "r.parquet", "--out", "e.csv")
    tallied = io.read_tally("r.parquet")
    expected = rrjax.empirical_bayes(tallied.tally, mixture=tallied.mixture).theta
    written = duckdb.execute("SELECT closest FROM 'e.csv' ORDER BY label").fetchnumpy()["closest"]
    np.testing.assert_allclose(written, expected, atol=1e-5)
    assert np.abs(written - rrjax.empirical_bayes(tallied.tally).theta).max() > 5e-4
    assert found["advice"].startswith('Report "closest"')
    assert "20,000 simulated users" in found["to_publish"]
    # The sentence is about the category of the largest share.
    assert f" have {int(np.argmax(written))} as x " in found["to_publish"]


@pytest.mark.full  # six mechanisms, two regressions each
@pytest.mark.parametrize("name", ["oue", "olh", "ss", "hr", "pgr"])
def test_regressions_and_subgroups_of_every_mechanism(invoke, name):
    rng = np.random.default_rng(7)
    age, region = rng.integers(18, 81, 4000), rng.integers(0, 2, 4000)
    logits = np.column_stack([np.zeros(4000), -1 + 0.02 * age, -2 + 0.035 * age])
    chance = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    true = (rng.random(4000)[:, None] > chance.cumsum(1)).sum(1)
    regions = np.array(["north", "south"])[region]
    io.write_table("p.csv", {"answer": np.array(list("abc"))[true], "age": age, "region": regions})
    Path("abc.txt").write_text("a\nb\nc\n")
    line = ("p.csv", "--column", "answer", "--domain", "abc.txt", "--epsilon", 3, "--seed", 1, "--keep", "age,region")
    assert invoke("randomize", *line, "--mechanism", name, "--out", "r.parquet")[0] == 0
    slopes = {}
    for reference in "ac":
        asked = ("--outcome", "answer", "--covariates", "age", "--reference", reference, "--json")
        rows = [
            row
            for row in json.loads(invoke.done("regress", "r.parquet", *asked))["coefficients"]
            if row["term"] == "age"
        ]
        slopes[reference] = {row["category"]: row for row in rows}
    for category, slope in (("b", 0.02), ("c", 0.035)):
        found = slopes["a"][category]
        assert abs(found["estimate"] - slope) < 4 * found["standard_error"]
    # The same model, with another category to compare with.
    ours, theirs = slopes["a"], slopes["c"]
    assert theirs["a"]["estimate"] == pytest.approx(-ours["c"]["estimate"], abs=1e-4)
    difference = ours["b"]["estimate"] - ours["c"]["estimate"]
    assert theirs["b"]["estimate"] == pytest.approx(difference, abs=1e-4)
    found = {
        row["of"]: row for row in invoke.json("estimate", "r.parquet", "--group", "a=a", "--by", "region")["statements"]
    }
    reports = io.read_tally("r.parquet")
    assert found["all"]["value"] == pytest.approx(float(rrjax.inv(reports.tally)[0]), abs=1e-5)
    for place, level in enumerate(("north", "south")):
        share = np.mean(true[region == place] == 0)
        assert abs(found[level]["value"] - share) < 4.5 * found[level]["standard_error"]
        assert found[level]["num_reports"] == (region == place).sum()
    # One group of two categories: the supports of both depend on each other, which the reports themselves show.
    asked = ("--group", "ab=a,b", "--by", "region")
    texts = [invoke("estimate", "r.parquet", *asked, *more, "--json")[1] for more in ((), ("--normal",))]
    wide, narrow = (json.loads(text)["statements"] for text in texts)
    for one, other in zip(wide, narrow, strict=True):
        assert other["value"] == pytest.approx(one["value"], abs=1e-4)
        assert other["standard_error"] > 0
        assert other["upper"] - other["lower"] <= one["upper"] - one["lower"]
        width = other["upper"] - other["lower"]
        student = -special.stdtrit(other["degrees"], 0.025)
        assert width == pytest.approx(2 * student * other["standard_error"], rel=1e-4)
    share = np.mean(true < 2)
    assert abs(narrow[0]["value"] - share) < 4.5 * narrow[0]["standard_error"]
