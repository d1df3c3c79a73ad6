"""The audit: its bound is Clopper and Pearson's, it holds for clients that keep their word, broken ones are caught."""

import itertools
import math
import tracemalloc

import jax
import numpy as np
import pytest
from refusals import refused
from scipy import stats

from rrjax import audit, secure
from rrjax.mechanisms import MECHANISMS
from rrjax.privacy.audit import values_to_try

pytestmark = pytest.mark.once  # a bound is moved down by what its precision may be off
every = pytest.mark.parametrize("name", MECHANISMS)


# --- The bound -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x64", [False, True])
def test_the_bound_is_that_of_clopper_and_pearson(x64):
    with jax.enable_x64(x64):
        for number in (10, 1000, 5_000_000, 10**11):
            for one, other in ((1, 0), (0.5, 0.25), (1e-3, 1e-4), (0.9, 0.0), (1, 0.5), (0.3, 0.3), (0.0, 0.2)):
                counts = round(one * number), round(other * number)
                for level in (0.9, 0.999):
                    tail = (1 - level) / 2
                    low = stats.beta.ppf(tail, counts[0], number - counts[0] + 1) if counts[0] else 0.0
                    high = stats.beta.isf(tail, counts[1] + 1, number - counts[1]) if counts[1] < number else 1.0
                    wanted = max(0.0, math.log(low / high)) if low else 0.0
                    found = audit.lower_bound(counts, number, level)
                    assert found <= wanted + 1e-12  # never above
                    assert found >= wanted - (1e-7 if x64 else 1e-4)


@pytest.mark.long
def test_the_bound_covers_at_its_level():
    """Of two thousand audits of a coin at its true ratio, no more than 1 − level are above it."""
    random, number, level = np.random.default_rng(0), 400, 0.8
    one, other = 0.3, 0.1
    found = [
        audit.lower_bound(tuple(pair), number, level)
        for pair in random.binomial(number, [one, other], size=(2000, 2)).tolist()
    ]
    above = np.mean(np.asarray(found) > math.log(one / other))
    assert above <= 1 - level + 4 * math.sqrt(level * (1 - level) / 2000)
    assert np.median(found) > 0.75  # of log 3 = 1.10: it is no trivial one


# --- Clients that keep their word ------------------------------------------------------------------------------


@every
def test_clients_are_below_their_epsilon_and_close(name, urandom):
    client = secure.client(name, 6, 1.0)
    result = audit.audit(client, num_draws=200_000)
    assert result.claimed == client.effective_epsilon
    assert 0.9 < result.lower <= result.claimed
    assert not result.violated
    assert result.num_values == 6
    assert result.num_draws == 100_000
    # The bound is that of the event's counts.
    assert result.lower == audit.lower_bound(result.counts, result.num_draws, result.level)
    # What says most is that one of the values is supported, and the other one is not.
    assert result.event == [2 if result.likelier < result.other else 1]


@pytest.mark.full  # twenty million reports of each mechanism
@pytest.mark.work
@pytest.mark.once
@every
def test_ten_million_reports_come_within_a_hundredth(name, urandom):
    result = audit.audit(secure.client(name, 4, 1.0), num_draws=10_000_000)
    assert 0.99 < result.lower <= result.claimed


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [name if name.startswith("hadamard") else pytest.param(name, marks=pytest.mark.long) for name in MECHANISMS]
)
def test_mechanisms_are_audited_by_their_own_reports(name):
    mechanism = MECHANISMS[name](4, 1.0)
    result = audit.audit(mechanism, num_draws=100_000, values=(1, 2))
    assert {result.likelier, result.other} == {1, 2}
    assert result.claimed == 1.0
    assert 0.9 < result.lower < 1.0
    assert result == audit.audit(mechanism, num_draws=100_000, values=(1, 2))


@pytest.mark.long
def test_an_event_is_found_among_the_reports_themselves(urandom):
    for name, event in (("randomized-response", {0}), ("hadamard-response", None), ("optimized-unary-encoding", None)):
        client = secure.client(name, 5, 1.5)
        result = audit.audit(client.randomize, values=[0, 4], num_draws=100_000, claimed=1.5)
        assert 1.35 < result.lower < 1.5, name
        if event:
            assert set(result.event) in (event, {4})
        else:
            # All reports that support one value and not the other, put together.
            reports = np.asarray(result.event)
            assert client.supports(reports, result.likelier).all()
            assert not client.supports(reports, result.other).any()


# --- Broken clients --------------------------------------------------------------------------------------------


def randomized(random, values, p, size):
    """Kept with probability p, else any other category."""
    other = (values + random.integers(1, size, values.size)) % size
    return np.where(random.random(values.size) < p, values, other)


def of_another_size(random, values):
    return randomized(random, values, math.e / (math.e + 3), 5)  # e^ε/(e^ε + K − 1), with K − 1 for K


def without_noise_for_one_value(random, values):
    return np.where(values == 4, 4, randomized(random, values, math.e / (math.e + 4), 5))


def in_steps_of_a_sixteenth(random, values):
    chance = math.ceil(16 * math.e / (math.e + 4)) / 16
    return randomized(random, values, chance, 5)


def out_of_the_subset(random, values):
    """Subset selection of 2 of 5 that fills up with the categories that come first."""
    own = random.random(values.size) < 2 * math.e / (2 * math.e + 3)
    first = np.where(values == 0, 1, 0)
    second = np.where(values <= 1, 2, 1)
    return np.sort(np.stack([first, np.where(own, values, second)], axis=1), axis=1)


@pytest.mark.parametrize(
    ("client", "delivered"),
    [
        (of_another_size, 1 + math.log(4 / 3)),
        (without_noise_for_one_value, math.inf),
        (in_steps_of_a_sixteenth, math.log(4 * 7 / 9)),
        (out_of_the_subset, math.inf),
    ],
)
def test_broken_clients_are_caught(client, delivered):
    random = np.random.default_rng(0)
    result = audit.audit(lambda values: client(random, values), values=[0, 4], num_draws=200_000, claimed=1.0)
    assert result.violated
    assert 1 < result.lower <= delivered
    if math.isfinite(delivered):
        assert result.lower > delivered - 0.06
    else:  # an event that one of the values never makes: as far as so many reports can tell
        assert result.counts[1] == 0
        assert result.lower > 9


def test_what_a_comparison_in_float32_gives_away_takes_very_many_reports():
    """At K = 1,423,000 and ε = 1 a float32 uniform delivers 1.05: ten million reports cannot tell, 10¹² can."""
    size, random = 1_423_000, np.random.default_rng(0)
    keep = math.ceil(math.expm1(1) / (math.e + size - 1) * 2**23) / 2**23  # u < d, on the grid of 2⁻²³
    chances = keep + (1 - keep) / size, (1 - keep) / size
    assert math.log(chances[0] / chances[1]) > 1.04
    bounds = [
        audit.lower_bound(tuple(random.binomial(number, chances).tolist()), number, 0.999) for number in (10**7, 10**12)
    ]
    assert bounds[0] < 1 < bounds[1] < 1.06


# --- How it is called ------------------------------------------------------------------------------------------


def test_batches_bound_the_memory_and_change_nothing_else(monkeypatch):
    monkeypatch.setattr("rrjax.privacy.audit.BATCH_SIZE", 300)
    seen = []

    def draw(values):
        seen.append(values.size)
        return np.zeros((values.size, 3), np.int32)

    result = audit.audit(draw, values=[2, 7], num_draws=2001)
    assert set(seen) == {300}
    assert len(seen) == 16
    assert result.num_draws == 1000
    assert result.lower == 0
    assert result.claimed is None
    assert not result.violated
    assert result.counts == (1000, 1000)


@pytest.mark.work  # it draws a million reports of a thousand bits
@pytest.mark.once
def test_memory_is_bounded(urandom):
    client = secure.client("optimized-unary-encoding", 1000, 1.0)
    tracemalloc.start()
    audit.audit(client, num_draws=300_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6


def all_different():
    turns = itertools.count()
    return lambda values: np.arange(values.size) + values.size * next(turns)


@pytest.mark.long
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: audit.audit(lambda v: v, values=[1, 1]), "values"),
        (lambda: audit.audit(lambda v: v), "num_categories"),
        (lambda: audit.audit(lambda v: v, values=[3]), "values"),
        (lambda: audit.audit(lambda v: v, values=[3, 4, 3]), "values"),
        (lambda: audit.audit(lambda v: v, values=[0, 1], num_draws=1), "num_draws"),
        (lambda: audit.audit(lambda v: v, values=[0, 1], num_draws=4, claimed=math.nan), "claimed"),
        (lambda: audit.audit(lambda v: v, values=[0, 1], num_draws=4, claimed=-1.0), "claimed"),
        (lambda: audit.audit(lambda v: None, values=[0, 1], num_draws=4), "draw"),
        (lambda: audit.audit(secure.client("hadamard-response", 4, 1.0), claimed=0.5), "claimed"),
        (lambda: audit.audit(secure.client("hadamard-response", 4, 1.0), event=np.sign), "event"),
        (lambda: audit.audit(lambda v: v[:3], values=[0, 1], num_draws=20), "draw"),
        (lambda: audit.audit(lambda v: [1, 2], values=[0, 1], num_draws=20), "draw"),
        (lambda: audit.audit(all_different(), values=[0, 1], num_draws=300_000), "event"),
        (lambda: audit.audit(secure.client("hadamard-response", 4, 1.0), values=(2, 2)), "values"),
        (lambda: audit.audit(secure.client("hadamard-response", 4, 1.0), values=(2, 4)), "values"),
        (lambda: audit.audit("abc", values=[0, 1]), "draw"),
        (lambda: audit.audit(lambda v: v, values=[0, 1], event="abc"), "event"),
        (lambda: audit.audit(lambda v: v, values=[0, 1], num_draws="abc"), "num_draws"),
        (lambda: audit.audit(lambda v: v, values=[0, 1], num_draws=1e6), "num_draws"),
        (lambda: audit.audit(lambda v: v, values=[0, 1], claimed="abc"), "claimed"),
        (lambda: audit.audit(lambda v: v, values=[0, 1], level="abc"), "level"),
        (lambda: audit.audit(lambda v: v, values=5), "values"),
        (lambda: audit.audit(lambda v: v, values=[[1], [2]]), "values"),
        (lambda: audit.audit(lambda v: v, num_categories="abc"), "num_categories"),
        (lambda: audit.audit(secure.client("hadamard-response", 4, 1.0), num_draws="abc"), "num_draws"),
        (lambda: audit.audit(secure.client("hadamard-response", 4, 1.0), values="abc"), "values"),
        (lambda: audit.audit(secure.client("hadamard-response", 4, 1.0), values=[2]), "values"),
        (lambda: audit.draws_needed("abc", 0.9), "claimed"),
        (lambda: audit.draws_needed(1.0, 1.0), "level"),
        (lambda: audit.lower_bound((1, 0), 2, level="abc"), "level"),
        (lambda: audit.lower_bound("ab", 2, level=0.9), "counts"),
        (lambda: audit.lower_bound((1, 0), "ab", level=0.9), "num_draws"),
    ],
)
def test_what_no_audit_can_be_made_of(call, argument):
    with refused(argument):
        call()


# --- Which values, and which forms of reports --------------------------------------------------------------------


def told_apart(draw, *, size=10, num_draws=20_000, **given):
    return audit.audit(draw, num_categories=size, num_draws=num_draws, claimed=1.0, **given)


def noise(random, values):
    """Randomized response over ten categories at ε = 1."""
    return randomized(random, values, math.e / (math.e + 9), 10)


def one_value_alone(random, values, told):
    return np.where(values == told, told, noise(random, values))


def length_of_the_report(random, values, told):
    return ["x" * (1 + int(report) + (value == told)) for report, value in zip(values * 0, values, strict=True)]


def length_beside_contents_that_are_too_many(random, values, told):
    return [random.bytes(8 + (value == told)) for value in values]


def dtype(random, values, told):
    return noise(random, values).astype(np.int64 if (values == told).all() else np.int32)


def shape(random, values, told):
    return np.repeat(noise(random, values)[:, None], 1 if (values == told).all() else 2, axis=1)


def shape_beside_contents_that_are_too_many(random, values, told):
    return random.random((values.size, 1 if (values == told).all() else 2))


def one_bit(random, values, told):
    reports = random.random((values.size, 10)) < np.where(np.arange(10) == values[:, None], 0.5, 1 / (math.e + 1))
    reports[:, 3] |= values == told
    return reports


@pytest.mark.long
@pytest.mark.parametrize(
    "leak",
    [
        one_value_alone,
        length_of_the_report,
        length_beside_contents_that_are_too_many,
        dtype,
        shape,
        shape_beside_contents_that_are_too_many,
        one_bit,
    ],
)
@pytest.mark.parametrize("told", [9, 4])
def test_a_client_that_gives_one_value_away_is_found(leak, told, monkeypatch):
    """A pair without it proves nothing, so the pair has to be found; the first and the last value would miss it."""
    random = np.random.default_rng(1)
    monkeypatch.setattr("rrjax.privacy.audit.MAX_CONTENTS", 3000)
    result = told_apart(lambda values: leak(random, values, told))
    assert result.violated
    assert told in (result.likelier, result.other)
    assert result.num_values == 10
    assert result.lower > 4


@pytest.mark.parametrize("told", [2**20 - 1, 2**19, 1])
def test_of_many_values_those_at_the_ends_and_at_powers_of_two_are_looked_at(told):
    random, size = np.random.default_rng(0), 2**20
    result = told_apart(lambda values: np.where(values == told, 1, random.integers(0, 2, values.size)), size=size)
    assert result.num_values == 128
    assert result.violated
    assert told in (result.likelier, result.other)
    # The last bit, of every value.
    assert told_apart(lambda values: values & 1, size=size).violated
    only = audit.audit(lambda values: values == told, values=[5, told, 7], num_draws=1000, claimed=1.0)
    assert only.violated
    assert only.num_values == 3


@pytest.mark.parametrize("size", [2, 3, 128, 129, 10**6, 2**31 - 1])
def test_the_values_that_are_looked_at(size):
    for most in (2, 7, 128):
        found = values_to_try(size, most)
        assert found == sorted(set(found))
        assert len(found) == min(size, most)
        assert (found[0], found[-1]) == (0, size - 1)


@every
def test_a_planted_leak_of_a_client_is_found(name, urandom):
    """A client whose reports tell one of ten values: its own reports, those of another mechanism's law for the rest."""
    client = secure.client(name, 10, 1.0)
    honest, told = client.randomize, 7
    client.randomize = lambda values: (
        honest(values)[:, None] if np.all(values == told) else honest(values)  # another shape
    )
    client.supports = lambda reports, value, supports=client.supports: supports(
        reports.reshape(len(reports), *client.shape), value
    )
    result = audit.audit(client, num_draws=4000)
    assert result.violated
    assert told in (result.likelier, result.other)


@pytest.mark.long
@every
def test_the_level_holds_for_all_that_is_looked_at(name, urandom):
    """Forty audits of an honest client at 80 %: no more than so many are above its ε by chance."""
    client = secure.client(name, 12, 1.0)
    results = [audit.audit(client, num_draws=1500, level=0.8) for _ in range(40)]
    assert sum(result.violated for result in results) <= 40 * 0.2 + 3 * math.sqrt(40 * 0.2 * 0.8)
    assert len({(result.likelier, result.other) for result in results}) > 3  # chance chose them


@pytest.mark.long
def test_the_level_holds_where_the_event_is_chosen_among_many_reports():
    """Of what differs by chance alone, with a thousand different reports and ten values to choose from."""
    random = np.random.default_rng(0)
    results = [
        audit.audit(lambda values: random.integers(0, 1000, values.size), num_categories=10, num_draws=2000, level=0.8)
        for _ in range(60)
    ]
    assert sum(result.lower > 0 for result in results) <= 60 * 0.2 + 3 * math.sqrt(60 * 0.2 * 0.8)


@pytest.mark.parametrize("level", [0.9, 0.999])
@pytest.mark.parametrize("claimed", [0.1, 1.0, 5.0])
def test_too_few_draws_are_said_to_be_too_few(claimed, level):
    needed = audit.draws_needed(claimed, level)
    enough = audit.audit(lambda values: values, num_categories=2, num_draws=needed, claimed=claimed, level=level)
    assert enough.draws_needed == needed
    assert not enough.powerless
    assert enough.violated  # a client that hides nothing
    for fewer in (4, needed - 2):
        few = audit.audit(lambda values: values, num_categories=2, num_draws=fewer, claimed=claimed, level=level)
        assert few.powerless or fewer >= needed
        assert not few.violated or fewer >= needed
    assert audit.audit(lambda values: values, values=[0, 1], num_draws=4).powerless
    assert audit.audit(lambda values: values, values=[0, 1], num_draws=400, claimed=800.0).powerless


def test_values_may_be_labels_and_reports_may_be_no_numbers():
    for draw in (
        lambda values: np.where(values == "yes", np.nan, 0.0),
        lambda values: np.where((values == "yes")[:, None], [np.nan, 1], [1, np.nan]),
    ):
        assert audit.audit(draw, values=["no", "yes"], num_draws=400, claimed=1.0).violated
    for draw in (
        lambda values: [value or None for value in values],
        lambda values: [{"a": int(value)} for value in values],
    ):
        assert audit.audit(draw, values=[0, 1], num_draws=400, claimed=1.0).violated


@pytest.mark.long
def test_mechanisms_are_searched_too():
    result = audit.audit(MECHANISMS["randomized-response"](9, 3.0), num_draws=4000)
    assert result.num_values == 9
    assert not result.violated
    assert result.claimed == 3.0
