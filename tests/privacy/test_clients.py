"""Clients for real collection: the ε of their integers, the law of their reports, and what the server makes of them."""

import functools
import itertools
import math
import os
import subprocess
import sys
import tracemalloc
from decimal import Decimal
from fractions import Fraction

import jax
import mpmath
import numpy as np
import pytest
from cases import FLOAT
from channels import CHANNELS, channel
from laws import check_frequencies
from refusals import refused

import rrjax
from rrjax import secure
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import (
    MECHANISMS,
    ORDERED,
    ForcedResponse,
    Kuk,
    Mangat,
    NegativeQuestion,
    UnrelatedQuestion,
    Warner,
)
from rrjax.privacy.audit import audit
from rrjax.privacy.clients.base import below, numbers_below
from rrjax.privacy.clients.table import CLIENTS, Answers

pytestmark = pytest.mark.once  # clients know nothing of JAX's precision
every = pytest.mark.parametrize("name", MECHANISMS)
ordered = pytest.mark.parametrize("name", ORDERED)
every_client = pytest.mark.parametrize("name", CLIENTS)
HASHING = [name for name in MECHANISMS if name.endswith("local-hashing")]


@pytest.fixture
def seeded(monkeypatch):
    """Makes the operating system's random numbers those of a seed."""

    def seed(number):
        monkeypatch.setattr("os.urandom", np.random.default_rng(number).bytes)

    seed(0)
    return seed


def test_there_is_a_client_for_every_mechanism():
    assert set(CLIENTS) == {*MECHANISMS, *ORDERED}


# --- The ε of the integers -------------------------------------------------------------------------------------


def laws(client):
    """The exact law `[K][R]` of reports given each value, from the thresholds, over all reports of a small client.

    Of local hashing: of the bucket, given a seed; with the bucket that each value has.
    """
    size, whole = client.num_categories, 2**128
    if client.name == "geometric":
        return law_of_noise(client)
    if client.name == "square-wave":
        window, right = 2 * client.half_width + 1, Fraction(client._threshold, whole)
        return [
            [
                right / window if 0 <= report - value < window else (1 - right) / (size - 1)
                for report in range(size + window - 1)
            ]
            for value in range(size)
        ]
    if client.name.endswith("encoding"):
        own, other = Fraction(client._own, whole), Fraction(client._other, whole)
        return [
            [
                math.prod(chance if bit else 1 - chance for bit, chance in zip(report, bits, strict=True))
                for report in itertools.product([0, 1], repeat=size)
            ]
            for bits in ([own if i == value else other for i in range(size)] for value in range(size))
        ]
    if hasattr(client, "_keep"):
        number = getattr(client, "num_buckets", size)
        assert (whole - client._keep) % number == 0  # or the uniform choice would not be one
        uniform = Fraction(whole - client._keep, whole * number)
        return [[uniform + (i == j) * Fraction(client._keep, whole) for j in range(number)] for i in range(number)]
    _, _, there = channel(MECHANISMS[client.name](**client.parameters))
    right = Fraction(client._threshold, whole)
    own = there.sum(0).tolist()
    return [
        [right / own[value] if row[value] else (1 - right) / (len(there) - own[value]) for row in there.tolist()]
        for value in range(size)
    ]


def law_of_noise(client):
    """The law of the sum of a value and geometric noise, cut at the ends."""
    size = client.num_categories
    tails = [Fraction(1), *(Fraction(tail, 2**128) for tail in client._tails), Fraction(0)]

    def beyond(steps):
        """P(noise ≥ steps)."""
        return tails[steps] if steps > 0 else 1 - tails[1 - steps]

    rows = []
    for value in range(size):
        inner = [beyond(report - value) - beyond(report - value + 1) for report in range(1, size - 1)]
        # The ends hold all noise beyond: P(noise ≤ −v) = P(noise ≥ v) of v ≥ 1; of no steps it is 1 − t_1.
        ends = [tails[steps] if steps else 1 - tails[1] for steps in (value, size - 1 - value)]
        rows.append([ends[0], *inner, ends[1]])
    return rows


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        *itertools.product([*MECHANISMS, *ORDERED], [1e-3, 0.5, 1.0, 4.0, 10.0]),
        *((name, 30.0) for name in ORDERED),
    ],
)
def test_the_epsilon_of_the_integers_is_never_more_than_asked(name, size, epsilon):
    few = {"num_buckets": 8} if name == "optimized-local-hashing" and epsilon > 4 else {}  # they are written out
    client = secure.client(name, size, epsilon, **few)
    table = laws(client)
    assert all(sum(row) == 1 for row in table)
    ratio = max(max(column) / min(column) for column in zip(*table, strict=True))
    assert ratio == client.likelihood_ratio
    with mpmath.workdps(50):
        delivered = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert delivered <= mpmath.mpf(epsilon)
        assert (epsilon - delivered) / epsilon < 1e-9
        stated = client.effective_epsilon
        assert mpmath.mpf(stated) <= delivered <= mpmath.mpf(math.nextafter(stated, math.inf))
    if name in ORDERED:
        wanted = np.asarray(ORDERED[name](**client.parameters).channel().matrix)
        np.testing.assert_allclose(np.asarray(table, float), wanted, rtol=3e-7)


def most_categories(name):
    """The largest K, or what is left of it where a report needs tables or as many columns again."""
    return {"hadamard-response": 2**30 - 1, "projective-geometry-response": 10**6}.get(name, 2**31 - 1)


@every
@pytest.mark.parametrize("size", [2, 100, 1_423_000, None])
def test_what_is_delivered_is_at_most_a_billionth_less_than_asked(name, size):
    """From the likelihood ratio of the integers, for every ε that is not refused."""
    size, made = size or most_categories(name), 0
    for epsilon in (1e-40, 1e-25, 1e-18, 1e-12, 1e-10, 1e-6, 1e-3, 0.1, 1.0, 5.0, 15.0, 25.0, 34.0):
        try:
            client = secure.client(name, size, epsilon)
        except ArgumentError:
            assert epsilon < 1e-10 or epsilon > 15
            continue
        made += 1
        with mpmath.workdps(80):
            ratio = client.likelihood_ratio
            delivered = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
            assert delivered <= mpmath.mpf(epsilon)
            assert (epsilon - delivered) / epsilon <= mpmath.mpf(2) ** -30
        assert client.effective_epsilon <= epsilon
        assert client.parameters["epsilon"] == epsilon  # which is as close as that to what is delivered
    assert made >= 7


def test_randomized_response_delivers_its_epsilon_among_two_billion_categories(seeded):
    """With 64 bits it was 1.9e-9 in place of 0.1, and every estimate had another ε than its reports."""
    size = 2**31 - 2
    client = secure.client("randomized-response", size, 0.1)
    assert 0.1 * (1 - 1e-12) < client.effective_epsilon <= 0.1
    reports = client.randomize(np.full(1000, size - 1))
    assert reports.min() >= 0
    assert reports.max() < size
    # Kept in one of 2·10¹⁰ reports: what is seen are the others, which are uniform.
    check_frequencies(np.bincount(reports // (2**31 // 8), minlength=8), np.full(8, 1 / 8))


def test_a_low_word_decides_where_the_high_one_does_not(monkeypatch):
    for bound in (2**100 + 7, 5 << 64, 2**64 - 1, 3):
        for draw in (bound - 1, bound, bound + 1):
            high, low = divmod(draw, 2**64)
            monkeypatch.setattr("os.urandom", lambda size, low=low: np.full(size // 8, low, np.uint64).tobytes())
            assert below(np.full(3, high, np.uint64), bound).tolist() == [draw < bound] * 3


@every_client
def test_epsilons_that_random_bits_cannot_deliver_are_refused(name):
    for epsilon in (80.0, 800.0, math.inf):
        with refused("epsilon", value=epsilon) as caught:
            secure.client(name, 4, epsilon)
    # Of the parameters that ε chose.
    largest = float(str(caught.value).split()[-1])
    parameters = secure.client(name, 4, largest - 0.1).parameters
    with refused("epsilon", value=largest + 0.2):
        secure.client(
            name,
            4,
            largest + 0.2,
            **{key: parameters[key] for key in parameters if key not in ("num_categories", "epsilon")},
        )
    for epsilon in (0, -1.0, math.nan, 1e-40, 5e-324, "1", True, None, [1.0, 2.0]):
        with refused("epsilon"):
            secure.client(name, 4, epsilon)


@ordered
def test_clients_of_numbers_deliver_what_is_asked(name):
    with refused("epsilon"):  # there are too few bits for the steps between so many integers
        secure.client("geometric", 1000, 1e-25)
    for size in (5, 100, 1423):
        for epsilon in (1e-9, 1e-3, 1.0, 20.0):
            client = secure.client(name, size, epsilon)
            assert (1 - 2**-30) * epsilon <= client.effective_epsilon <= epsilon
            assert secure.client(name, **client.parameters).parameters == client.parameters


def test_an_epsilon_between_two_floats_is_rounded_down():
    for epsilon in (Decimal("0.1"), Fraction(1, 10), Fraction(1, 3), Decimal(2) / 3):
        client = secure.client("randomized-response", 4, epsilon)
        assert client.epsilon <= epsilon
        assert math.nextafter(client.epsilon, 1) > epsilon
    assert secure.client("randomized-response", 4, np.float32(0.1)).epsilon == float(np.float32(0.1))
    assert secure.client("randomized-response", 4, np.int64(1)).epsilon == 1.0


# --- Parameters ------------------------------------------------------------------------------------------------


@every
def test_parameters_are_those_that_the_mechanism_chooses(name):
    for size in (2, 3, 10, 100, 5000):
        for epsilon in (0.01, 0.3, 1.0, 2.0, math.log(3), 4.0, 7.5):
            client = secure.client(name, size, epsilon)
            mechanism = MECHANISMS[name](size, epsilon)
            for parameter, value in client.parameters.items():
                assert getattr(mechanism, parameter) == value
            assert MECHANISMS[name](**client.parameters) == mechanism
            assert secure.client(name, **client.parameters).parameters == client.parameters


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "given", "other"),
    [
        ("subset-selection", {"subset_size": 5}, 2),
        ("optimized-local-hashing", {"num_buckets": 7}, 4),
        ("projective-geometry-response", {"field_order": 5}, 3),
    ],
)
def test_given_parameters_are_taken(name, given, other, seeded):
    client = secure.client(name, 8, 1.0, **given)
    assert client.parameters == {"num_categories": 8, "epsilon": 1.0, **given}
    assert secure.client(name, 8, 1.0).parameters[client.parameter] == other
    values = np.repeat(np.arange(8), 2000)
    tally = MECHANISMS[name](8, 1.0, **given).tally(client.randomize(values))
    found = np.asarray(rrjax.inv(tally), float)
    assert (np.abs(found - 1 / 8) < 4 * standard_errors(tally, 1 / 8)).all()


@pytest.mark.parametrize(
    ("name", "size", "given", "argument"),
    [
        ("rappor", 4, {}, "name"),
        ("randomized-response", 4, {"subset_size": 2}, "subset_size"),
        ("hadamard-response", 4, {"field_order": 2}, "field_order"),
        ("hadamard-response", 2**31 - 1, {}, "num_categories"),
        ("geometric", (1 << 20) + 1, {}, "num_categories"),
        ("geometric", 4, {"half_width": 1}, "half_width"),
        ("subset-selection", 4, {"subset_size": 4}, "subset_size"),
        ("subset-selection", 4, {"subset_size": 0}, "subset_size"),
        ("optimized-local-hashing", 4, {"num_buckets": 1}, "num_buckets"),
        ("binary-local-hashing", 4, {"num_buckets": 3}, "num_buckets"),
        ("projective-geometry-response", 4, {"field_order": 9}, "field_order"),
        ("subset-selection", 1, {}, "num_categories"),
        ("subset-selection", 4.0, {}, "num_categories"),
        ("subset-selection", True, {}, "num_categories"),
    ],
)
def test_what_no_client_can_be_made_of(name, size, given, argument):
    with refused(argument):
        secure.client(name, size, 1.0, **given)


@every_client
@pytest.mark.parametrize(
    "values", [[0, 5], [-1], [0.5], ["a"], [True, False], np.asarray([2**40]), np.asarray([2**63], np.uint64)]
)
def test_values_outside_the_domain_are_refused_and_not_shown(name, values):
    with refused("values") as caught:
        secure.client(name, 5, 1.0).randomize(values)
    assert not any(f"got {value}" in str(caught.value) for value in np.asarray(values).tolist())


@every_client
def test_integers_of_every_kind_are_values(name):
    client = secure.client(name, np.int64(2), np.float32(1))
    for dtype in (np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64):
        assert len(client.randomize(np.asarray([0, 1, 1], dtype))) == 3
    assert client.randomize(np.int64(1)).shape == client.randomize(1).shape == client.shape


# --- Reports ---------------------------------------------------------------------------------------------------


@functools.cache
def coded_by_jax(name):
    return np.asarray(MECHANISMS[name](5, 1.0).randomize(jax.random.key(0), np.zeros((2, 3), int)))


@every
def test_reports_are_coded_as_those_of_the_mechanism(name):
    client, wanted = secure.client(name, 5, 1.0), coded_by_jax(name)
    for values in (np.zeros((2, 3), int), np.zeros((2, 3), np.uint8), [[4, 4, 4], [0, 1, 2]]):
        reports = client.randomize(values)
        assert (reports.shape, reports.dtype) == (wanted.shape, wanted.dtype)
    for values, shape in (([], (0,)), (3, ())):
        assert client.randomize(values).shape == (*shape, *wanted.shape[2:])


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize("epsilon", [0.4, 1.2])
def test_reports_have_the_law_of_the_channel(name, epsilon, seeded):
    client, users = secure.client(name, 5, epsilon), 40_000
    reports, law, there = channel(MECHANISMS[name](**client.parameters))
    whole = reports.reshape(len(reports), -1)
    drawn = client.randomize(np.repeat(np.arange(5), users).reshape(5, -1)).reshape(5, users, -1)
    powers = 8 ** np.arange(whole.shape[1])
    for value in range(5):
        numbers, index, times = np.unique(
            np.concatenate([whole, drawn[value]]) @ powers, return_inverse=True, return_counts=True
        )
        assert len(numbers) == len(whole)
        check_frequencies(times[index[: len(whole)]] - 1, law[value])
        np.testing.assert_array_equal(client.supports(reports, value), there[:, value])


@ordered
def test_numbers_have_their_law(name, seeded):
    client, users = secure.client(name, 5, 1.2), 40_000
    reports = client.randomize(np.repeat(np.arange(5), users).reshape(5, -1))
    table = np.asarray(laws(client), float)
    mechanism = ORDERED[name](**client.parameters)
    for value in range(5):
        check_frequencies(np.asarray(mechanism.count(reports[value])), table[value])
    supported = client.supports(np.arange(table.shape[1]), 2)
    wanted = np.arange(5) == 2 if name == "geometric" else np.isclose(table[2], table[2].max())
    np.testing.assert_array_equal(supported, wanted)


@ordered
def test_an_audit_of_numbers_finds_most_of_epsilon(name, seeded):
    found = audit(secure.client(name, 8, 1.0), num_draws=200_000)
    assert 0.9 < found.lower <= found.claimed
    assert not found.violated


@pytest.mark.parametrize("name", HASHING)
def test_reports_of_local_hashing_name_their_bucket_by_randomized_response(name, seeded):
    client, users = secure.client(name, 6, 1.2), 100_000
    number = client.num_buckets
    values = np.resize(np.arange(6), users)
    reports = client.randomize(values)
    # Given its seed, the own bucket or any other one: by the hash of the mechanism, not of the client.
    supported = np.asarray(MECHANISMS[name](**client.parameters).supports(reports))
    for value in range(6):
        np.testing.assert_array_equal(client.supports(reports, value), supported[:, value])
    p = math.exp(1.2) / (math.exp(1.2) + number - 1)
    check_frequencies(np.bincount(supported[np.arange(users), values]), [1 - p, p])
    check_frequencies(np.bincount(reports[:, 1], minlength=number), np.full(number, 1 / number))
    check_frequencies(np.bincount(reports[:, 0] >> 28), np.full(16, 1 / 16))
    check_frequencies(np.bincount(reports[:, 0] & 15), np.full(16, 1 / 16))


def standard_errors(tally, truth):
    return np.sqrt(np.asarray(tally.rates.variance(np.asarray(truth, FLOAT)), float)) / math.sqrt(int(tally.num_users))


@pytest.mark.long
@every
def test_the_tally_of_a_clients_reports_is_unbiased(name, seeded):
    truth = np.asarray([0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02, 0.0])
    values = np.repeat(np.arange(8), np.round(100_000 * truth).astype(int))
    client = secure.client(name, 8, 1.0)
    tally = MECHANISMS[name](**client.parameters).tally(client.randomize(values))
    found = np.asarray(rrjax.inv(tally), float)
    assert (np.abs(found - truth) < 4 * standard_errors(tally, truth)).all()


@pytest.mark.long
@every
def test_many_categories_are_supported_as_often_as_they_should_be(name, seeded):
    size, users, epsilon = 3000, 2000, 2.0
    client = secure.client(name, size, epsilon)
    values = np.random.default_rng(1).integers(0, size, users)
    reports = client.randomize(values)
    rates = MECHANISMS[name](size, epsilon).rates_by(math.expm1)
    own = sum(int(client.supports(reports[i : i + 1], int(values[i]))[0]) for i in range(users))
    other = sum(int(client.supports(reports[i : i + 1], int(values[i - 1]))[0]) for i in range(users))
    for seen, chance in ((own, rates.p), (other, rates.q)):
        assert abs(seen - users * chance) <= 4 * math.sqrt(users * chance * (1 - chance)) + 4


# --- Random bits -----------------------------------------------------------------------------------------------


@every_client
def test_draws_are_chunked_without_a_seam(name, seeded, monkeypatch):
    client = secure.client(name, 5, 1.0)
    values = np.random.default_rng(0).integers(0, 5, (10, 33))
    seeded(1)
    whole = client.randomize(values)
    for chunk in (1, 32):
        monkeypatch.setattr("rrjax.secure.base.CHUNK", chunk)
        seeded(1)
        np.testing.assert_array_equal(client.randomize(values), whole)


@every_client
def test_collections_are_not_seeded(name):
    client = secure.client(name, 50, 0.5)
    assert len({client.randomize(np.zeros(64, int)).tobytes() for _ in range(3)}) == 3


@every
def test_boundaries_of_the_decision(name, monkeypatch):
    """The last draw that makes a report of the own kind, and the first one that does not."""
    client = secure.client(name, 4, 1.0)
    kept = hasattr(client, "_keep")
    bound = client._keep if kept else client._own if name.endswith("encoding") else client._threshold
    place = 1 if name in HASHING else 0
    for draw in (bound - 1, bound):
        first = np.arange(1, 64, dtype=np.uint64)
        first[place] = draw >> 64
        low = np.full(64, draw % 2**64, np.uint64)
        if kept:  # both words are drawn at once, else the low one afterwards
            first[place + 1] = low[0]
        drawn = iter([first.tobytes(), low.tobytes()])
        monkeypatch.setattr("os.urandom", lambda size, drawn=drawn: next(drawn)[:size])
        report = client.randomize([0])
        supported = bool(client.supports(report, 0)[0])
        if draw < bound or not kept:
            assert supported == (draw < bound)
        else:  # the first of the others is bucket 0 of all
            assert int(report[0] if name == "randomized-response" else report[0][1]) == 0


def test_numbers_below_a_bound_are_exactly_uniform(monkeypatch):
    """Each number has as many draws as any other one: beyond the last whole multiple it is drawn again."""
    monkeypatch.setattr("os.urandom", lambda size: np.full(size // 8, 5, np.uint64).tobytes())
    for bound in (1, 2, 3, 10, 2**31 - 1, 2**32, 2**63 + 1):
        end = 2**64 - 2**64 % bound
        draws = [draw for draw in (0, bound - 1, bound, end - 1, end, 2**64 - 1) if draw < 2**64]
        wanted = [draw % bound if draw < end else 5 % bound for draw in draws]
        found = numbers_below(np.asarray(draws, np.uint64), np.full(len(draws), bound, np.uint64))
        assert found.tolist() == wanted


def test_subsets_whose_keys_tie_are_drawn_again(monkeypatch):
    """Two bits of each word only: without the second draw a tie would favour the categories that come first."""
    random, calls = np.random.default_rng(0), []

    def coarse(size):
        calls.append(size)
        return (np.frombuffer(random.bytes(size), np.uint64) & np.uint64(3 << 62)).tobytes()

    client = secure.client("subset-selection", 6, 0.5, subset_size=2)
    monkeypatch.setattr("os.urandom", coarse)
    reports = client.randomize(np.full(20_000, 3))
    assert len(calls) > 2
    others = reports[~(reports == 3).any(1)]
    check_frequencies(np.bincount(others.ravel(), minlength=6)[[0, 1, 2, 4, 5]], np.full(5, 0.2))
    assert len(np.unique(others, axis=0)) == 10


@pytest.mark.long  # it draws some hundred megabytes
@every
def test_memory_is_bounded(name):
    for size, users in ((2_000_000, 2), (20, 200_000)):
        client = secure.client(name, size, 1.0)
        values = np.zeros(users, int)
        tracemalloc.start()
        reports = client.randomize(values)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak - reports.nbytes < 110e6


def test_abbreviations_are_names():
    assert secure.client("OUE", 4, 1.0).name == "optimized-unary-encoding"
    assert secure.client("subset_selection", 4, 1.0).name == "subset-selection"


def test_no_client_needs_jax():
    code = (
        "import sys; sys.modules['jax'] = None; sys.modules['jaxtyping'] = None\n"
        "import rrjax\n"
        "from rrjax.privacy.clients.table import CLIENTS\n"
        "for name in CLIENTS:\n"
        "    client = rrjax.secure.client(name, 9, 1.0)\n"
        "    print(name, client.randomize([0, 8]).shape, client.effective_epsilon <= 1)\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == len(CLIENTS)
    assert "False" not in run.stdout


# --- Survey designs --------------------------------------------------------------------------------------------

DESIGNS = [
    Warner(0.3),
    ForcedResponse(2 / 3, [0.5, 0.5]),
    UnrelatedQuestion(0.7, [0.2, 0.3, 0.5]),
    Kuk(0.8, 0.2),
    Mangat(0.7),
    NegativeQuestion(4, 0),
]


def client_of(design):
    return Answers(design.name, np.asarray(design.channel(), np.float64), {})


@pytest.mark.usefixtures("urandom")
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: design.name)
def test_answers_have_the_law_of_the_design(design):
    client, channel = client_of(design), np.asarray(design.channel(), np.float64)
    for value, law in enumerate(channel):
        counts = np.bincount(client.randomize(np.full(30_000, value)), minlength=len(law))
        assert not counts[law == 0].any()
        check_frequencies(counts[law > 0], law[law > 0] / law.sum())
    delivered, claimed = client.effective_epsilon, float(design.epsilon)
    assert delivered == claimed if math.isinf(claimed) else abs(delivered - claimed) < 1e-6 * claimed


@pytest.mark.usefixtures("urandom")
def test_the_epsilon_of_answers_is_exact():
    client = Answers("x", np.array([[0.75, 0.25], [0.25, 0.75]]), {})
    assert client.likelihood_ratio == Fraction(3)
    assert client.effective_epsilon <= math.log(3)
    found = audit(client, num_draws=100_000)
    assert not found.violated
    assert found.lower > 1.05


def test_matrices_that_are_no_channel():
    for wrong in (np.ones(2), np.full((2, 3), 1 / 3), np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[2, -1], [0, 1]])):
        with refused("channel"):
            Answers("x", wrong, {})
