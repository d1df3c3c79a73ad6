"""Files of google/rappor: counts, parameters and candidates are decoded, with error bars."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from outlets import check_outlets
from refusals import refused
from scipy import optimize, stats

from rrjax.data.errors import DataError
from rrjax.io import read_rappor
from rrjax.mechanisms.longitudinal import Rappor, bloom_filters
from rrjax.reports.rappor import rappor_reports

pytestmark = pytest.mark.once
COHORTS, BITS, HASHES, CANDIDATES = 8, 128, 2, 300
NUMBER = 100_000


def write(folder, filters, users, counts, p=0.25, q=0.75, f=0.0):
    """The three files, in the layout of the published scripts."""
    size = filters.shape[2]
    (folder / "params.csv").write_text(f"k,h,m,p,q,f\n{size},{HASHES},{len(users)},{p},{q},{f}\n")
    lines = [",".join(map(str, [number, *row])) for number, row in zip(users, counts, strict=True)]
    (folder / "counts.csv").write_text("\n".join(lines) + "\n")
    places = [np.flatnonzero(held.ravel()) + 1 for held in filters.transpose(1, 0, 2)]
    words = [f"word-{number}" for number in range(len(places))]
    lines = [",".join([word, *map(str, each)]) for word, each in zip(words, places, strict=True)]
    (folder / "map.csv").write_text("\n".join(lines) + "\n")
    return folder / "counts.csv", folder / "params.csv", folder / "map.csv"


@pytest.fixture(scope="module")
def population():
    filters = bloom_filters([f"word-{number}" for number in range(CANDIDATES)], BITS, HASHES, COHORTS)
    shares = np.exp(-np.arange(CANDIDATES) / 15)
    return filters, shares / shares.sum()


def drawn(random, filters, theta, p=0.25, q=0.75):
    """Users and counts of a collection, by the law of each report."""
    users = random.multinomial(NUMBER, np.full(COHORTS, 1 / COHORTS))
    counts = np.zeros((COHORTS, BITS), int)
    for cohort, number in enumerate(users):
        held = random.multinomial(number, theta)
        for word in np.flatnonzero(held):
            counts[cohort] += random.binomial(held[word], np.where(filters[cohort, word], q, p))
    return users, counts


@pytest.mark.long
def test_files_are_decoded_as_by_non_negative_least_squares(tmp_path, population):
    filters, theta = population
    users, counts = drawn(np.random.default_rng(0), filters, theta)
    found = read_rappor(*write(tmp_path, filters, users, counts))
    assert (found.rappor.filters == filters).all()
    assert found.words[7] == "word-7"
    np.testing.assert_array_equal(found.users, users)
    np.testing.assert_array_equal(found.counts, counts)
    shares = np.asarray(found.rappor.regression((found.users, found.counts), num_steps=20_000).theta)
    root = np.sqrt(users / NUMBER)[:, None]
    design = (filters * root[:, None]).transpose(0, 2, 1).reshape(-1, CANDIDATES)
    target = ((counts / users[:, None] - 0.25) / 0.5 * root).ravel()
    best, _ = optimize.nnls(design, target)
    assert np.abs(shares - best).sum() < 1e-4
    with refused("theta"):
        found.rappor.standard_errors((found.users, found.counts), shares[:-1])


@pytest.mark.long  # programs of the command line
def test_the_command_line_decodes_files(invoke):
    filters = bloom_filters([f"word-{number}" for number in range(6)], 16, HASHES, 4)
    random, theta = np.random.default_rng(2), np.array([0.4, 0.3, 0.2, 0.1, 0, 0])
    users, counts = np.full(4, 5000), np.zeros((4, 16), int)
    for cohort in range(4):
        held = random.multinomial(5000, theta)
        for word in np.flatnonzero(held):
            counts[cohort] += random.binomial(held[word], np.where(filters[cohort, word], 0.75, 0.25))
    files = [str(each) for each in write(Path(), filters, users, counts)]
    answer = rappor_reports(*files).statements(level=0.9, top=6)
    found = read_rappor(*files)
    with jax.enable_x64(True):
        shares = np.asarray(found.rappor.regression((found.users, found.counts), num_steps=20_000).theta)
        errors = np.asarray(found.rappor.standard_errors((found.users, found.counts), shares))
    columns, order = answer.columns, np.argsort(-shares, kind="stable")
    assert columns["statement"].tolist() == [f"word-{place}" for place in order]
    np.testing.assert_allclose(columns["value"], shares[order], rtol=1e-9)
    np.testing.assert_allclose(columns["standard_error"], errors[order], rtol=1e-9)
    zero = columns["value"] == 0
    assert 0 < zero.sum() < 4
    assert (columns["upper"][zero] == 1).all()
    half = stats.norm.ppf(0.95) * columns["standard_error"]
    np.testing.assert_allclose((columns["upper"] - columns["value"])[~zero], half[~zero], rtol=1e-9)
    more = ("--params", files[1], "--map", files[2])
    check_outlets(answer, invoke, "estimate", files[0], *more, "--level", "0.9", "--top", "6")
    assert invoke("estimate", files[0], *more, "--plot", "r.png", "--explain")[0] == 0
    invoke.refuses("--map", "estimate", *files[:1], *more[:2])
    invoke.refuses("--params", "estimate", *files[:1], *more[2:])
    for flags in (("--fdr", "0.1"), ("--epsilon", "1"), ("--column", "x"), ("--mean",), ("--mechanism", "direct")):
        invoke.refuses(flags[0], "estimate", files[0], *more, *flags)
    assert invoke("estimate", *files[:2], *more)[0] == 2
    Path("counts.csv").write_text("0" + ",0" * 16 + "\n" + ("0" + ",0" * 16 + "\n") * 3)
    assert invoke("estimate", files[0], *more)[0] == 3


@pytest.mark.long
@pytest.mark.full  # 150 collections
def test_standard_errors_are_those_of_simulations(population):
    filters, theta = population
    rappor = Rappor(filters, HASHES, f=0.0, p=0.25, q=0.75)
    random, number = np.random.default_rng(1), 150
    draws = [drawn(random, filters, theta) for _ in range(number)]
    users, counts = (jnp.asarray(np.stack(each), jnp.int32) for each in zip(*draws, strict=True))
    shares = jax.lax.map(lambda each: rappor.regression(each, num_steps=4000).theta, (users, counts))
    errors = jax.lax.map(lambda each: rappor.standard_errors(each[:2], each[2]), (users, counts, shares))
    large = theta > 0.02
    ratio = np.mean(np.asarray(errors)[:, large], axis=0) / np.std(np.asarray(shares)[:, large], axis=0, ddof=1)
    # The standard deviation of each candidate has a relative error of 1/sqrt(2·150).
    assert large.sum() > 15
    assert abs(ratio.mean() - 1) < 0.05
    assert (np.abs(ratio - 1) < 4 / np.sqrt(2 * number)).all()


@pytest.mark.parametrize(
    ("name", "old", "new", "attributes"),
    [
        ("params.csv", "k,h", "k,j", {"row": 1}),
        ("params.csv", "0.25", "a", {"row": 2, "value": "a"}),
        ("params.csv", "\n4,", "\n0,", {"row": 2, "value": "0"}),
        ("params.csv", "4,2,", "4,0,", {"row": 2, "value": "0"}),
        ("params.csv", "0.25", "0.9", {}),
        ("counts.csv", "\n", ",1\n", {"row": 1}),
        ("counts.csv", "3,", "x,", {"row": 1}),
        ("counts.csv", "3,", "1,", {"row": 1}),
        ("counts.csv", "3,", "9" * 20 + ",", {"row": 1}),
        ("map.csv", "word-1,", "word-0,", {"row": 2}),
        ("map.csv", "\n", "", {"row": 1}),
        ("map.csv", "word-1,", "word-1,99,", {"row": 2}),
        ("map.csv", "word-1,", "word-1,no,", {"row": 2}),
        ("map.csv", "\n", "\ncut,1\n", {"row": 2, "value": "cut"}),
        ("map.csv", "\n", "\nmany,1,2,3,5\n", {"row": 2, "value": "many"}),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, name, old, new, attributes):
    filters = bloom_filters(["word-0", "word-1"], 4, HASHES, 2)
    files = write(tmp_path, filters, [3, 5], [[1, 2, 3, 0], [0, 5, 1, 1]])
    assert read_rappor(*files).counts.tolist() == [[1, 2, 3, 0], [0, 5, 1, 1]]
    path = tmp_path / name
    path.write_text(path.read_text().replace(old, new, 1))
    with refused(error=DataError, **attributes) as caught:
        read_rappor(*files)
    assert name in str(caught.value)


def test_parameters_of_no_bits_are_refused(tmp_path):
    files = write(tmp_path, np.zeros((2, 2, 0), bool), [3, 5], [[], []])
    with refused(error=DataError, row=2, value="0", file=files[1]):
        read_rappor(*files)
