"""The command line: whole processes for what a user types, the same commands in this process for what goes wrong."""

import importlib
import io as io_of_python
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest

import rrjax
from rrjax import io
from rrjax.data.errors import Contradiction
from rrjax.estimators.catalogue import ESTIMATORS
from rrjax.io.domain import Domain
from rrjax.io.metadata import MechanismRecord, Metadata
from rrjax.reports import form

pytestmark = pytest.mark.once  # nothing here depends on the precision

DATA = Path(os.environ.get("RRJAX_DATA", Path(__file__).parents[3] / "shared" / "data"))


def run(*arguments, folder):
    """`rrjax` as a process of its own that succeeds, in `folder`, on a terminal wide enough not to wrap."""
    done = subprocess.run(
        [sys.executable, "-m", "rrjax", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    """A folder with true values, labels, and reports made of them by the command line."""
    folder = tmp_path_factory.mktemp("collection")
    cities = ["Zürich", "New York", 'Quote "d"', "a,b", "Oslo"]
    (folder / "cities.txt").write_text("\n".join(cities) + "\n", encoding="utf-8")
    choice = np.random.default_rng(7).choice(5, size=40_000, p=[0.5, 0.3, 0.15, 0.05, 0])
    io.write_table(folder / "values.csv", {"city": np.array(cities)[choice]})
    run(
        *("randomize", "values.csv", "--column", "city", "--epsilon", "2", "--domain", "cities.txt"),
        *("--seed", "1", "--out", "reports.parquet"),
        folder=folder,
    )
    return folder


@pytest.mark.full
def test_a_file_of_reports_is_enough(collection):
    done = run(
        *("estimate", "reports.parquet", "--out", "estimate.csv", "--plot", "estimate.png", "--explain"),
        folder=collection,
    )
    assert "certificate" in done.stdout
    assert "Zürich" in done.stdout
    table = duckdb.connect().execute(f"FROM read_csv('{collection / 'estimate.csv'}')").fetchnumpy()
    assert list(table) == ["label", "count", "closest", "likeliest", "lower", "upper", "discovered", "simulated"]
    assert ((table["lower"] <= table["upper"]) & (table["upper"] <= 1)).all()
    assert list(table["label"]) == ["Zürich", "New York", 'Quote "d"', "a,b", "Oslo"]
    assert table["count"].sum() == 40_000
    # What the file says are the estimates of its own counts at the file's ε.
    np.testing.assert_allclose(table["likeliest"], np.asarray(rrjax.mle_star(table["count"], 2.0)), atol=1e-6)
    closest = rrjax.empirical_bayes(table["count"], 2.0)
    np.testing.assert_allclose(table["closest"], closest.theta, atol=0.05 * float(closest.variances.max() ** 0.5))
    # Five standard errors of the unbiased estimate of one category.
    mechanism = rrjax.RandomizedResponse(5, 2.0)
    bound = 5 * math.sqrt(float(mechanism.p) * (1 - float(mechanism.p)) / 40_000) / float(mechanism.d)
    np.testing.assert_allclose(table["closest"], [0.5, 0.3, 0.15, 0.05, 0], atol=bound)
    assert (collection / "estimate.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
def test_compare_measures_all_estimators_against_the_truth(collection):
    done = run(
        *("compare", "reports.parquet", "--truth", "values.csv", "--truth-column", "city"),
        *("--json", "--out", "all.parquet", "--plot", "compare.pdf"),
        folder=collection,
    )
    result = json.loads(done.stdout)
    rows = {row["estimator"]: row for row in result["estimators"]}
    names = ["mle_star", "inv_p", "inv_n", "inv", "empirical_bayes", "ibu"]
    assert list(rows) == names
    best = rows["mle_star"]["nll"]
    for name in ("inv_p", "inv_n", "empirical_bayes", "ibu"):
        assert rows[name]["nll"] >= best - 1e-12
        # The certificate holds against the maximum itself.
        assert rows[name]["certificate"]["gap"] >= rows[name]["nll"] - best - 1e-12
    assert rows["ibu"]["certificate"]["gap"] <= 1e-10
    table = duckdb.connect().execute(f"FROM '{collection / 'all.parquet'}'").fetchnumpy()
    assert list(table) == ["label", "count", *names, "truth", "simulated"]
    error = ((table["mle_star"] - table["truth"]) ** 2).sum()
    assert rows["mle_star"]["errors"]["mse"] == pytest.approx(error)
    assert (collection / "compare.pdf").read_bytes().startswith(b"%PDF")
    read = run(*("compare", "reports.parquet", "--truth", "values.csv", "--truth-column", "city"), folder=collection)
    line = next(line for line in read.stdout.splitlines() if line.startswith("Emp. Bayes"))
    errors = [rows["empirical_bayes"]["errors"][name] for name in ("mse", "tv", "kl", "max_error")]
    np.testing.assert_allclose([float(number) for number in line.split()[-4:]], errors, rtol=6e-3)


@pytest.mark.long
def test_a_seed_repeats_and_its_absence_does_not(collection, invoke):
    line = ("randomize", collection / "values.csv", "--epsilon", "1", "--domain", collection / "cities.txt", "--out")
    for name, seed in (("a", ["--seed", "5"]), ("b", ["--seed", "5"]), ("c", []), ("d", [])):
        invoke.done(*line, f"{name}.parquet", *seed)
    reports = {name: io.read_values(io.Source(f"{name}.parquet")).indices for name in "abcd"}
    assert (reports["a"] == reports["b"]).all()
    assert (reports["c"] != reports["d"]).any()
    metadata = io.read_metadata("c.parquet")
    assert metadata is not None
    assert not metadata.simulated
    assert 0.999999 < metadata.effective_epsilon <= 1


@pytest.mark.full
def test_demo_takes_the_same_path(tmp_path):
    done = run("demo", "--users", "5000", "--categories", "20", "--explain", folder=tmp_path)
    assert "certificate" in done.stdout
    made = {path.name for path in (tmp_path / "rrjax-demo").iterdir()}
    assert made == {".rrjax-demo.digests", "values.parquet", "reports.parquet", "estimate.csv", "estimate.png"}
    # The lines it prints do what it did.
    lines = [line[2:] for line in done.stdout.splitlines() if line.startswith("$ ")]
    assert [line.split()[:2] for line in lines] == [["rrjax", each] for each in ("randomize", "estimate", "compare")]
    before = (tmp_path / "rrjax-demo" / "estimate.csv").read_bytes()
    assert run(*lines[1].split()[1:], folder=tmp_path).returncode == 0
    assert (tmp_path / "rrjax-demo" / "estimate.csv").read_bytes() == before


@pytest.mark.full
@pytest.mark.work
@pytest.mark.once
@pytest.mark.skipif(not (DATA / "adult.data.gz").exists(), reason="shared/data or RRJAX_DATA is not here")
def test_a_real_attribute_with_a_domain_of_a_million(tmp_path):
    adult = DATA / "adult.data.gz"
    read = ("--no-header", "--domain", "0:1484705")
    done = run(
        *("randomize", adult, "--format", "csv", "--column", "3", *read, "--epsilon", "8", "--out", "r.parquet"),
        folder=tmp_path,
    )
    done = run("estimate", "r.parquet", "--json", folder=tmp_path)
    result = json.loads(done.stdout)
    assert result["num_reports"] == 32_561
    assert result["num_categories"] == 1_484_706
    assert result["likeliest"]["certificate"]["gap"] < 1e-12


@pytest.mark.full
@pytest.mark.skipif(not (DATA / "kosarak-head.dat.gz").exists(), reason="shared/data or RRJAX_DATA is not here")
def test_the_head_of_kosarak_with_its_truth(tmp_path):
    sessions = DATA / "kosarak-head.dat.gz"
    line = ("randomize", sessions, "--epsilon", "8", "--domain", "1:17034", "--seed", "0", "--out", "r.parquet")
    done = run(*line, folder=tmp_path)
    done = run("compare", "r.parquet", "--truth", sessions, "--json", "--top", "5", folder=tmp_path)
    result = json.loads(done.stdout)
    truth = {row["label"]: row["truth"] * 36_683 for row in result["top"]}
    assert truth[11] == pytest.approx(10_571)
    assert truth[6] == pytest.approx(5_171)


def write(name, text):
    Path(name).write_text(text, encoding="utf-8")


ABC = "colour\n" + "red\nblue\nred\ngreen\n" * 50


@pytest.mark.parametrize("epsilon", ["0", "-1", "nan", "1e-12", "800", "inf"])
@pytest.mark.parametrize("command", ["estimate", "randomize"])
def test_an_impossible_epsilon(invoke, command, epsilon):
    write("a.csv", ABC)
    out = ("--out", "r.parquet")
    error = invoke.refuses("--epsilon", command, "a.csv", f"--epsilon={epsilon}", *out)
    assert float(epsilon) <= 0 or f"{float(epsilon):g}" in error
    assert not Path("r.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["a.csv"], 2, ["a.csv", "--epsilon"]),
        (["gone.csv", "--epsilon", "1"], 3, ["gone.csv"]),
        (["empty.csv", "--epsilon", "1"], 3, ["empty.csv"]),
        (["one.csv", "--epsilon", "1", "--domain", "0:9"], 3, ["one.csv"]),
        (["a.csv", "--epsilon", "1", "--column", "color"], 3, ["'colour'"]),
        (["a.csv", "--epsilon", "1", "--domain", "two.txt"], 3, ["'green'"]),
        (["a.csv", "--epsilon", "1", "--domain", "5:5"], 2, ["--domain"]),
        (["a.csv", "--epsilon", "1", "--domain", "gone.txt"], 3, ["gone.txt"]),
        (["a.csv", "--epsilon", "1", "--domain", "latin.txt"], 3, ["latin.txt", "UTF-8"]),
        (["a.csv", "--epsilon", "1", "--delimiter", ";;"], 2, ["';;'"]),
        (["a.csv", "--epsilon", "1", "--level", "95"], 2, ["--level", "0.95?"]),
        (["a.csv", "--epsilon", "1", "--level", "0"], 2, ["--level"]),
        (["a.csv", "--epsilon", "1", "--fdr", "5"], 2, ["--fdr", "0.05?"]),
        (["n.csv", "--epsilon", "1", "--counts", "n"], 3, ["n.csv", "2", "'-2'"]),
        (["a.csv", "--epsilon", "1", "--plot", "p.bmp"], 2, ["--plot", "p.bmp", ".png"]),
        (["a.csv", "--epsilon", "1", "--out", "p.xls"], 2, ["--out", "p.xls", ".csv"]),
        (["a.csv", "--epsilon", "1", "--out", "a.csv"], 2, ["a.csv"]),
        (["a.csv", "--epsilon", "1", "--plot", "x.png", "--out", "gone/p.csv"], 3, ["gone"]),
        (["n.csv", "--epsilon", "1", "--counts", "N"], 3, ["'N'"]),
        (["n.csv", "--epsilon", "1", "--counts", "n", "--column", "n"], 3, ["'n'"]),
        (["a.csv", "--epsilon", "1", "--out", "gone/p.csv"], 3, ["gone"]),
        (["a.csv", "--epsilon", "1", "--estimator", "best"], 2, ["mle_star"]),
    ],
)
def test_bad_input_is_named_and_leaves_nothing(invoke, arguments, code, named):
    write("a.csv", ABC)
    write("empty.csv", "")
    write("one.csv", "digit\n3\n")
    write("two.txt", "red\nblue\n")
    write("n.csv", "label,n\nx,3\ny,-2\n")
    Path("latin.txt").write_bytes("Köln\nBonn\n".encode("latin-1"))
    before = set(Path().iterdir())
    found, _, error = invoke("estimate", *arguments)
    assert found == code, error
    for each in named:
        assert each in error
    assert set(Path().iterdir()) == before


def test_what_is_no_percentage_is_not_taken_for_one(invoke):
    write("a.csv", ABC)
    assert "?" not in invoke.said(2, "estimate", "a.csv", "--epsilon", "1", "--level", "1.5")


def test_reports_are_written_where_their_metadata_have_a_place(invoke):
    write("a.csv", ABC)
    error = invoke.refuses("--out", "randomize", "a.csv", "--epsilon", "1", "--out", "o.csv")
    assert ".parquet" in error


def test_files_of_different_epsilon_are_told_what_takes_them_together(invoke):
    write("n.csv", "v\n" + "1\n2\n" * 5)
    for epsilon in (1, 2):
        invoke.done("randomize", "n.csv", "--domain", "1:2", "--epsilon", epsilon, "--out", f"{epsilon}.parquet")
    assert "`rrjax test difference`" in invoke.said(3, "test", "fit", "1.parquet", "2.parquet")


def test_categories_that_look_alike_are_said_before_they_are_randomized(invoke):
    write("n.csv", "v\n" + "1.0\n1\n2\n" * 5)
    write("d.txt", "1.0\n1\n2\n")
    line = ("randomize", "n.csv", "--epsilon", "1", "--seed", "1", "--out")
    given, found = invoke(*line, "o.parquet", "--domain", "d.txt")[2], invoke(*line, "p.parquet")[2]
    assert "'1.0' and '1'" in given
    assert "how they are written" in found  # of true values no message repeats labels
    assert "1.0" not in found


@pytest.mark.full
def test_a_domain_from_the_data_is_warned_about(invoke):
    write("a.csv", ABC)
    error = invoke.said(0, "estimate", "a.csv", "--epsilon", "1")
    assert "The domain was taken from the data" in error  # K is too small then, and the estimate biased


@pytest.mark.full
def test_missing_reports_are_named_and_counted(invoke):
    write("a.csv", "colour,id\n" + "red,1\n?,2\n,3\nblue,4\n" * 500)
    line = ("estimate", "a.csv", "--column", "colour", "--epsilon", "1", "--missing", "?", "--json")
    result = json.loads(invoke.done(*line))
    assert (result["num_missing"], result["num_reports"], result["column"]) == (1000, 1000, "colour")
    assert any("1,000" in warning and "'?'" in warning for warning in result["warnings"])


@pytest.mark.full  # programs that compile for seconds
def test_too_little_information_is_said(invoke):
    write("a.csv", ABC)
    write("abc.txt", "red\nblue\ngreen\n")
    error = invoke.said(0, "estimate", "a.csv", "--epsilon", "0.01", "--domain", "abc.txt")
    assert "carry little information" in error  # without which an estimate of pure noise would be believed


@pytest.mark.full
def test_what_the_metadata_say_need_not_be_given_and_cannot_be_contradicted(invoke, collection):
    reports = collection / "reports.parquet"
    assert invoke("estimate", reports, "--epsilon", "2", "--column", "city")[0] == 0
    for flag, value in (("--epsilon", "1"), ("--column", "town"), ("--domain", "0:4")):
        error = invoke.said(2, "estimate", reports, flag, value)
        assert isinstance(invoke.error, Contradiction)
        assert flag in error


@pytest.mark.long
def test_what_was_randomized_is_not_randomized_again(invoke, collection):
    reports = collection / "reports.parquet"
    assert "reports.parquet" in invoke.said(2, "randomize", reports, "--epsilon", "1", "--out", "again.parquet")
    assert not Path("again.parquet").exists()
    invoke.refuses("--truth", "compare", reports, "--truth", reports)


def test_a_user_is_randomized_once(invoke):
    write("t.dat", "1 2 3\n2 3\n")
    assert "m·ε" in invoke.said(
        2, "randomize", "t.dat", "--items", "all", "--epsilon", "1", "--domain", "1:3", "--out", "r.parquet"
    )
    assert not Path("r.parquet").exists()


def test_a_file_is_not_replaced_by_what_is_made_of_it(invoke):
    write("a.csv", ABC)
    for arguments in (
        ("randomize", "a.csv", "--epsilon", "1", "--out", "a.csv"),
        ("compare", "a.csv", "--epsilon", "1", "--truth", "a.csv", "--out", "./a.csv"),
    ):
        assert invoke(*arguments)[0] == 2
        assert Path("a.csv").read_text() == ABC


@pytest.mark.long
def test_a_domain_from_the_values_is_warned_of_where_they_are_randomized(invoke):
    write("a.csv", ABC)
    error = invoke.said(0, "randomize", "a.csv", "--epsilon", "1", "--out", "r.parquet")
    assert "disclosed without any privacy" in error  # a warning of privacy
    # The file's K is the mechanism's own: nothing is missing from it, and --domain would contradict it.
    assert "domain" not in invoke.said(0, "estimate", "r.parquet")


@pytest.mark.long
def test_the_smallest_epsilon_makes_the_round_trip(invoke):
    write("a.csv", ABC)
    write("abc.txt", "red\nblue\ngreen\n")
    line = ("randomize", "a.csv", "--epsilon", "1e-6", "--domain", "abc.txt", "--out", "r.parquet")
    assert invoke(*line)[0] == 0
    assert invoke("estimate", "r.parquet")[0] == 0


@pytest.mark.full
def test_a_column_called_row_is_read(invoke):
    write("a.csv", "row\n" + "7\n7\n8\n" * 100)
    line = ("randomize", "a.csv", "--epsilon", "20", "--domain", "0:9", "--seed", "0", "--out", "r.parquet")
    assert invoke(*line)[0] == 0
    assert [(row["label"], row["count"]) for row in invoke.json("estimate", "r.parquet", "--top", "2")["top"]] == [
        (7, 200),
        (8, 100),
    ]
    write("a.jsonl", '{"row": "a"}\n{"row": "b"}\n{"row": "a"}\n')
    assert io.count_reports("a.jsonl").counts.tolist() == [2, 1]


@pytest.mark.parametrize("bound", [1.4e-16, 3e-9, 9.99e-5, 1.0000001e-3, 0.5])
def test_a_printed_bound_is_a_bound(bound):
    for digits in (1, 2):
        assert bound <= float(form.at_most(bound, digits)) <= bound * (1 + 10 ** (1 - digits))


@pytest.mark.long
def test_labels_cannot_steer_the_terminal(invoke):
    write("a.csv", "x\n" + "\x1b[31mred\nblue\n\u202eabc\n" * 40)
    out = invoke.done("estimate", "a.csv", "--epsilon", "3")
    assert "\x1b[31mred" not in out
    assert "\\x1b[31mred" in out
    assert "\u202e" not in out


def test_a_pipe_is_refused_at_once(invoke):
    os.mkfifo("pipe.csv")
    assert "pipe.csv" in invoke.said(3, "estimate", "pipe.csv", "--epsilon", "1")


@pytest.mark.full
def test_a_terminal_without_greek(collection):
    done = subprocess.run(
        [sys.executable, "-m", "rrjax", "estimate", "reports.parquet"],
        cwd=collection,
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_labels_stay_apart_in_json_for_a_terminal_without_them(monkeypatch):
    """Question marks would make two labels one."""
    import rrjax.cli.show

    for encoding, shown in (("ascii", "\\u00e9"), ("latin-1", "é"), ("utf-8", "é")):
        stream = io_of_python.TextIOWrapper(io_of_python.BytesIO(), encoding=encoding, errors="replace")
        monkeypatch.setattr(sys, "stdout", stream)
        rrjax.cli.show.record({"label": "é", "other": "ü"})
        stream.flush()
        said = stream.buffer.getvalue().decode(encoding)
        assert shown in said
        assert json.loads(said) == {"label": "é", "other": "ü"}


@pytest.mark.full
def test_a_closed_terminal_is_no_error(collection):
    line = f"{sys.executable} -m rrjax estimate reports.parquet --out closed.csv >&- 2>&-"
    assert subprocess.run(["bash", "-c", line], cwd=collection, timeout=300, check=False).returncode == 0
    assert (collection / "closed.csv").exists()


@pytest.mark.full
@pytest.mark.parametrize("line", ["estimate reports.parquet", "--help", "--version", "estimate --help"])
def test_a_full_terminal_is_a_sentence(collection, line):
    line = f"{sys.executable} -m rrjax {line} > /dev/full"
    done = subprocess.run(["bash", "-c", line], cwd=collection, capture_output=True, timeout=300, check=False)
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr


def test_commands_without_sample_say_which_have_it(invoke):
    Path("c.csv").write_text("said\n" + "yes\nno\n" * 4)
    flags = (
        "--column",
        "said",
        "--domain",
        "yes,no",
        "--mechanism",
        "cheating-detection",
        "--parameter",
        "forced=1/4,3/4",
    )
    for command in (["compare"], ["report"], ["test", "fit"]):
        error = invoke.refuses("--mechanism", *command, "c.csv", *flags)
        assert "`rrjax estimate` and `rrjax regress` take it, with --sample" in error


def test_another_mechanism_is_refused(invoke):
    made = MechanismRecord("geometry", {"num_categories": 4, "epsilon": 1.0})
    metadata = Metadata(made, 1.0, Domain.range(0, 3), "x", False, "0")
    io.write_reports("r.parquet", np.array([0, 1, 2, 3]), metadata)
    error = invoke.said(3, "estimate", "r.parquet")
    assert "r.parquet" in error
    assert "'geometry'" in error
    assert "randomized-response" in error


@pytest.mark.full
def test_ready_counts_beyond_two_to_the_31(tmp_path):
    (tmp_path / "n.csv").write_text("label,n\nx,3000000000\ny,2000000000\nz,1000000000\n")
    done = run("estimate", "n.csv", "--counts", "n", "--epsilon", "1", "--json", folder=tmp_path)
    result = json.loads(done.stdout)
    assert result["num_reports"] == 6_000_000_000
    # z, a sixth of the reports, lies below q = 0.21 and is dropped; of the two left x has f = 3/5, and MLE* is
    # f + (m·f − 1)/(e − 1).
    assert result["top"][0]["likeliest"] == pytest.approx(0.6 + 0.2 / math.expm1(1), abs=1e-12)


@pytest.mark.long
def test_a_full_disk_leaves_no_file(collection):
    before = {path: path.stat().st_size for path in collection.iterdir()}
    line = [sys.executable, "-m", "rrjax", "randomize", "values.csv", "--epsilon", "1", "--domain", "cities.txt"]
    # No file may grow beyond 1 KiB, and the signal that says so is ignored, as on a full disk.
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 1; exec "$@"', "-", *line, "--out", "full.parquet"]
    done = subprocess.run(limited, cwd=collection, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3
    assert "full.parquet" in done.stderr
    assert {path: path.stat().st_size for path in collection.iterdir()} == before


@pytest.mark.full
def test_a_reader_that_leaves_is_no_error(collection):
    line = f"{sys.executable} -m rrjax estimate reports.parquet | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=collection, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("delay", [1.0, 1.4, 1.8])
def test_ctrl_c_ends_it_cleanly_wherever_it_comes(collection, delay):
    before = {path.name for path in collection.iterdir()}
    line = [sys.executable, "-m", "rrjax", "estimate", "reports.parquet", "--out", f"cut-{delay}.csv"]
    with subprocess.Popen(line, cwd=collection, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    # Interrupted, or already done; never a crash, a hang or half a file.
    assert process.returncode in (0, 130)
    assert b"Traceback" not in error
    assert {path.name for path in collection.iterdir()} - before <= {f"cut-{delay}.csv"}
    if (collection / f"cut-{delay}.csv").exists():  # written before the interrupt came, and whole
        assert io.read_counts(io.Source(collection / f"cut-{delay}.csv", column="label"), "count").num_rows == 40_000
    assert (process.returncode == 130) == (b"interrupted" in error)


HELP = """
import sys
from rrjax.cli import main
try:
    main()
finally:
    print(sorted({"jax", "numpy", "duckdb"} & set(sys.modules)))
"""


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_the_list_of_commands_needs_no_jax(flag):
    done = subprocess.run([sys.executable, "-c", HELP, flag], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_command_is_one_file_and_one_entry(invoke):
    """The help of a command is read from its file: whatever the file holds, the list shows its first line."""
    from rrjax.cli.app import COMMANDS

    out = invoke("--help")[1]
    for name in [name for names in COMMANDS.values() for name in names]:
        function = getattr(importlib.import_module(f"rrjax.cli.{name}"), name)
        first = function.__doc__.split("\n\n")[0]
        assert " ".join(first.split()) in " ".join(out.split()), name


@pytest.mark.full
def test_any_estimator_of_the_catalogue_by_either_spelling(invoke):
    write("a.csv", ABC)
    for name in (*ESTIMATORS, "mle-star", "empirical-bayes"):
        result = invoke.json("estimate", "a.csv", "--epsilon", "1", "--estimator", name)
        name = name.replace("-", "_")
        assert result[name]["estimator"] == name
        assert set(result["top"][0]) == {"label", "count", name, "lower", "upper", "discovered", "contradicted"}


@pytest.mark.full
def test_an_order_that_means_something(invoke):
    write("a.csv", "age\n" + "\n".join(str(20 + index % 9 * (index % 2)) for index in range(500)))
    asked = ("a.csv", "--domain", "18:30", "--epsilon", "1")
    for flags in ((), ("--ordered",)):
        rows = invoke.json("compare", *asked, *flags)["estimators"]
        assert ("ordered_bayes" in [row["estimator"] for row in rows]) == bool(flags)


@pytest.mark.full
def test_equal_shares_for_want_of_knowledge_are_said_to_be(invoke):
    # Counts that are all the same would contradict randomized response.
    values = np.random.default_rng(0).integers(0, 40, 400).tolist()
    write("a.csv", "age\n" + "\n".join(map(str, values)))
    said = invoke("estimate", "a.csv", "--domain", "0:39", "--epsilon", "1")[1]
    assert "hardly distinguish the categories" in said
    assert "closest" not in said
    assert "Report the intervals" in said
    write("b.csv", "age\n" + "\n".join(map(str, [3] * 300 + values)))
    assert "distinguish" not in invoke("estimate", "b.csv", "--domain", "0:39", "--epsilon", "1")[1]


@pytest.mark.full
@pytest.mark.parametrize("columns", [80, 60, 40])
def test_numbers_are_whole_however_narrow_the_terminal(invoke, monkeypatch, columns):
    names = [f"a town with quite a long name of number {index}" for index in range(4)]
    write("t.csv", "town\n" + "\n".join(names[index] for index in [0] * 40 + [1] * 30 + [2] * 20 + [3] * 10))
    assert invoke("randomize", "t.csv", "--epsilon", "2", "--seed", "1", "--out", "r.parquet")[0] == 0
    wide = invoke("compare", "r.parquet", "--truth", "t.csv")[1]
    monkeypatch.setenv("COLUMNS", str(columns))
    _, narrow, _ = invoke("compare", "r.parquet", "--truth", "t.csv")
    assert max(len(line) for line in narrow.splitlines()) <= columns
    tables = wide[wide.index("> 0") : wide.index("> 0, <")] + wide[wide.index("category  ") :]
    numbers = [word for word in tables.replace("\N{NO-BREAK SPACE}%", "%").split() if word[0].isdigit()]
    assert len(numbers) > 70
    for word in {*numbers, "squared", "truth", "InvN"}:
        assert word in narrow.replace("\N{NO-BREAK SPACE}%", "%"), word
