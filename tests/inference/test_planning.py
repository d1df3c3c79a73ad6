"""Plans against the formulas, scipy's tails, and simulation."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import FLOAT, INT, X64
from refusals import refused
from scipy import stats

import rrjax
from rrjax import mechanisms
from rrjax.inference import (
    compare_mechanisms,
    detectable_share,
    epsilon_for_error,
    expected_rmse,
    expected_width,
    intervals,
    likelihood_ratio_test,
    power,
    users_for_error,
    users_for_width,
)
from rrjax.mechanisms import MECHANISMS, ForcedResponse, Kuk, Mangat, Triangular

TOLERANCE = 1e-10 if X64 else 2e-5


@pytest.mark.parametrize("num_categories", [2, 100, 1_423_000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("estimand", ["distribution", "users"])
def test_errors_users_and_epsilon_are_each_others_inverse(num_categories, epsilon, estimand):
    of = {"estimand": estimand}
    rmse = float(expected_rmse(num_categories, 10_000, epsilon, **of))
    ratio = math.exp(epsilon)
    total = (num_categories - 1) * (num_categories - 2 + 2 * ratio) / (ratio - 1) ** 2
    total += 1 - 1 / num_categories if estimand == "distribution" else 0
    assert rmse == pytest.approx(math.sqrt(total / num_categories / 10_000), rel=TOLERANCE)
    assert float(users_for_error(num_categories, epsilon, rmse, **of)) == pytest.approx(10_000, abs=1.01)
    assert float(epsilon_for_error(num_categories, 10_000, rmse, **of)) == pytest.approx(epsilon, rel=10 * TOLERANCE)


@pytest.mark.long
@pytest.mark.once
def test_the_expected_error_is_that_of_simulated_collections():
    theta, users, epsilon = jnp.array([0.6, 0.3, 0.1, 0], FLOAT), 2000, 1.0

    def squared(key):
        true, counts = rrjax.simulate.collect(key, theta, users, epsilon)
        return jnp.mean((rrjax.inv(counts, epsilon) - true.astype(FLOAT) / users) ** 2)

    found = np.asarray(jax.jit(jax.vmap(squared))(jax.random.split(jax.random.key(0), 5000)), float)
    error = found.std() / math.sqrt(5000)
    assert abs(found.mean() - float(expected_rmse(4, users, epsilon, estimand="users")) ** 2) <= 4 * error


@pytest.mark.long
@pytest.mark.once
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_expected_error_takes_in_who_was_drawn(epsilon):
    # Of the population, with equal shares: where drawing the users adds most.
    theta, users = jnp.full(3, 1 / 3, FLOAT), 100

    def squared(key):
        return jnp.mean((rrjax.inv(rrjax.simulate.counts(key, theta, users, epsilon), epsilon) - theta) ** 2)

    found = np.asarray(jax.jit(jax.vmap(squared))(jax.random.split(jax.random.key(1), 4000)), float)
    error = found.std() / math.sqrt(4000)
    assert abs(found.mean() - float(expected_rmse(3, users, epsilon)) ** 2) <= 4 * error


def test_people_are_planned_for_a_population():
    """The users who make an error small make an interval narrow, at an ε that hides nothing too."""
    assert float(users_for_error(3, 8.0, 0.02, estimand="users")) == 2
    number = float(users_for_error(3, 8.0, 0.02))
    assert 550 < number < 560
    assert float(expected_width(3, number, 8.0, 1 / 3)) == pytest.approx(2 * 1.96 * 0.02, rel=0.03)
    assert float(epsilon_for_error(3, 500, 0.02)) == math.inf  # drawing 500 users alone is off by more
    assert float(expected_rmse(3, number, 8.0)) == pytest.approx(
        compare_mechanisms(3, int(number), 8.0)[0].expected_rmse, rel=1e-5
    )


def test_two_categories_follow_the_well_known_law():
    # 1/(2·sinh(ε/2)·√N), which is 1/(ε√N) for small ε.
    for epsilon in (0.01, 0.5, 2.0):
        expected = 1 / (2 * math.sinh(epsilon / 2) * math.sqrt(1000))
        assert float(expected_rmse(2, 1000, epsilon, estimand="users")) == pytest.approx(expected, rel=TOLERANCE)
        assert float(rrjax.RandomizedResponse(2, epsilon).standard_error(1000)) == pytest.approx(expected, rel=1e-4)
    assert float(expected_rmse(2, 1000, 0.01, estimand="users")) == pytest.approx(
        1 / (0.01 * math.sqrt(1000)), rel=1e-4
    )


@pytest.mark.long
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("simultaneous", [None, "bonferroni"])
def test_widths_are_those_of_the_intervals(share, simultaneous):
    # A count that is just as expected, as nearly as whole numbers are.
    users, epsilon = 1_000_000, 2.0
    mechanism = rrjax.RandomizedResponse(10, epsilon)
    count = round(users * (float(mechanism.q) + float(mechanism.d) * share))
    counts = np.array([count, users - count, *[0] * 8], INT)
    lower, upper = intervals(counts, epsilon, 0.9, simultaneous=simultaneous)
    width = expected_width(10, users, epsilon, share, level=0.9, simultaneous=simultaneous)
    assert float(width) == pytest.approx(float(upper[0] - lower[0]), rel=2e-3)


def test_two_shares_that_add_up_to_one_need_no_wider_intervals():
    for mechanism, wider in ((rrjax.RandomizedResponse, False), (mechanisms.SymmetricUnaryEncoding, True)):
        given = {"mechanism": mechanism, "share": 0.3}
        alone, together = (expected_width(2, 1000, 1.0, simultaneous=way, **given) for way in (None, "bonferroni"))
        assert (together > alone * 1.05) == wider
        number, more = (users_for_width(2, 1.0, 0.1, simultaneous=way, **given) for way in (None, "bonferroni"))
        assert (more > number * 1.05) == wider


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_users_for_a_width(share):
    number = float(users_for_width(10, 1.0, 0.02, share))
    assert float(expected_width(10, number, 1.0, share)) <= 0.02 * (1 + 1e-4)
    assert float(expected_width(10, number * 0.999, 1.0, share)) > 0.02


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_shares_that_are_found_with_their_power(epsilon):
    users, num_categories, level = 20_000, 50, 0.05 / 50
    share = float(detectable_share(num_categories, users, epsilon, level=level, power=0.8))
    mechanism = rrjax.RandomizedResponse(num_categories, epsilon)
    q = 1 / (math.expm1(epsilon) + num_categories)
    critical = stats.binom.isf(level, users, q) + 1
    assert stats.binom.sf(critical - 1, users, q) <= level
    found = stats.binom.sf(critical - 1, users, q + float(mechanism.d) * share)
    assert found == pytest.approx(0.8, abs=1e-4)


@pytest.mark.long
def test_a_share_beyond_reach():
    assert float(detectable_share(1000, 5, 0.1)) > 1


@pytest.mark.long
def test_splits_have_the_errors_of_simulated_columns():
    """Users with any values: the spread of the unbiased vectors of one report, or of two."""
    sizes, number = (4, 5), 40_000
    rng = np.random.default_rng(0)
    rows = {(row.name, row.number): row for row in rrjax.inference.compare_splits(sizes, number, 2.0)}
    kinds = {("all", 2): 1.0, ("sampled", 1): 2.0, ("among fakes", 1): None}
    values = [rng.integers(0, size, number) for size in sizes]
    for place, (way, epsilon) in enumerate(kinds.items()):
        columns = [rrjax.RandomizedResponse(size, epsilon or 2.0) for size in sizes]
        kind = {"all": mechanisms.Product, "sampled": mechanisms.Sampled, "among fakes": mechanisms.SampledWithFakes}
        product = kind[way[0]](columns)
        reports = [np.asarray(each) for each in product.randomize(jax.random.key(place), values)]
        if way[0] == "among fakes":
            columns = [product.column(each) for each in range(2)]
        own = [np.asarray(column.debias(each[each >= 0])) for column, each in zip(columns, reports, strict=True)]
        shares = [np.mean(each.var(axis=0)) / len(each) for each in own]
        assert rows[way].share == pytest.approx(np.sqrt(np.mean(shares)), rel=0.03)
        if way[0] == "all":
            cells = own[0][:, :, None] * own[1][:, None, :]
            assert rows[way].cell == pytest.approx(np.sqrt(np.mean(cells.var(axis=0)) / number), rel=0.03)
        else:
            assert rows[way].cell == np.inf
    with refused("num_categories"):
        rrjax.inference.compare_splits([4], 10, 1.0)
    with refused("num_users"):
        rrjax.inference.compare_splits([4, 4], 0, 1.0)
    with refused("epsilon"):
        rrjax.inference.compare_splits([4, 4], 10, 0.0)


@pytest.mark.once
def test_the_rule_of_how_many_columns_to_report():
    """That of docs/choose/mechanism.md: ε of a reported column by log K, and what it loses to the best number."""
    mixed = [[2, 40, 16], [5, 2, 100, 3], [2, 3, 9, 40, 3, 16]]
    same = [[size] * number for size in (2, 4, 16, 100, 1000) for number in (2, 3, 6, 12)]
    for what, at_least, constant, limits in (("share", 1, 1.25, (1.02, 1.12)), ("cell", 2, 0.5, (1.1, 1.22))):
        for sizes in same + mixed:
            own = 1.3 * math.log(math.prod(sizes)) / len(sizes) + constant
            for epsilon in np.geomspace(0.1, 100, 16):
                rows = rrjax.inference.compare_splits(sizes, 1000, epsilon)
                number = min(max(round(epsilon / own), at_least), len(sizes))
                errors = {row.number: getattr(row, what) for row in rows if row.name != "among fakes"}
                assert errors[number] <= limits[sizes in mixed] * min(errors.values()), (what, sizes, epsilon)
                fakes = next(row for row in rows if row.name == "among fakes")
                # Hiding which column is drawn multiplies the error by √d, at every ε and K.
                if what == "share":
                    assert fakes.share == pytest.approx(math.sqrt(len(sizes)) * errors[1], rel=1e-9)


@pytest.mark.full
@pytest.mark.once
def test_power_counts_rejections():
    # The test of a point null with two categories is binomial: its power can be computed.
    epsilon, users = 1.0, 60
    truth, null = jnp.array([0.9, 0.1], FLOAT), jnp.array([0.5, 0.5], FLOAT)
    result = power(
        jax.random.key(0),
        lambda key: rrjax.simulate.counts(key, truth, users, epsilon),
        lambda key, counts: likelihood_ratio_test(key, counts, epsilon, null, num_draws=199),
        num_collections=400,
    )
    mechanism = rrjax.RandomizedResponse(2, epsilon)
    count = np.arange(users + 1)
    distance = np.abs(count - 30)
    law = stats.binom.pmf(count, users, 0.5)
    p_value = np.array([law[distance >= d].sum() for d in distance])
    exact = stats.binom.pmf(count, users, float(mechanism.q) + 0.9 * float(mechanism.d))[p_value <= 0.05].sum()
    # A simulated p-value next to the level falls on either side of it.
    assert abs(float(result.power) - exact) <= 4 * math.sqrt(exact * (1 - exact) / 400) + 0.05
    share = float(result.power)
    assert float(result.standard_error) == pytest.approx(math.sqrt(share * (1 - share) / 400), rel=1e-4)


def test_a_mechanism_that_cannot_take_so_many_categories_is_left_out():
    named = {row.name for row in compare_mechanisms(2**29, 1000, 1.0)}
    assert len(named) == len(MECHANISMS) - 1
    assert "projective geometry response" not in named


def test_mechanisms_against_their_published_variances():
    # Wang et al. 2017, of a category that nobody holds, times N.
    for num_categories, epsilon in ((10, 1.0), (1000, 3.0)):
        ratio = math.exp(epsilon)
        found = compare_mechanisms(num_categories, 1, epsilon, estimand="users")
        rows = {row.name: row.expected_rmse**2 * num_categories for row in found}
        assert len(rows) == len(MECHANISMS)
        noise = {
            "symmetric unary encoding": (math.sqrt(ratio) / (math.sqrt(ratio) - 1) ** 2, 0),
            "optimized unary encoding": (4 * ratio / (ratio - 1) ** 2, 1),
            "randomized response": (
                (num_categories - 2 + ratio) / (ratio - 1) ** 2,
                (num_categories - 2) / (ratio - 1),
            ),
        }
        for name, (variance, of_held) in noise.items():
            # A category's variance has another term, (1 − p* − q*)/(p* − q*) times its share.
            assert rows[name] == pytest.approx(num_categories * variance + of_held), name
        assert rows["randomized response"] == pytest.approx(
            float(rrjax.RandomizedResponse(num_categories, epsilon).expected_squared_error(1)), rel=1e-5
        )
        assert list(rows.values()) == sorted(rows.values())


def test_which_mechanism():
    assert compare_mechanisms(3, 100, 2.0)[0].name in ("randomized response", "subset selection")
    # With one category a subset, subset selection is randomized response.
    rows = {row.name: row for row in compare_mechanisms(5, 100, 4.0)}
    assert rows["subset selection"].expected_rmse == pytest.approx(rows["randomized response"].expected_rmse)
    # Where randomized response is not the best of all: ε = 2, K = 24.
    rows = {row.name: row for row in compare_mechanisms(24, 100, 2.0)}
    assert rows["subset selection"].expected_rmse < rows["randomized response"].expected_rmse
    assert compare_mechanisms(10_000, 100, 1.0)[-1].name == "randomized response"


def test_what_counting_takes():
    """Orders of what the literature says: N, N·K, N·ω, N + K·log K, and N + K·e^ε·log K."""
    size, users = 1000, 10**6
    rows = {row.name: row.operations for row in compare_mechanisms(size, users, 1.0)}
    assert rows["randomized response"] == users + size
    for name in ("symmetric unary encoding", "optimized unary encoding", "optimized local hashing"):
        assert rows[name] == users * size
    assert rows["subset selection"] == users * round(size / (math.e + 1)) + size
    assert rows["hadamard response"] == users + 2 * 1024 * 10
    # Seven coordinates over three elements are 1,093 points.
    assert rows["projective geometry response"] == users + 2 * 1093 * 3 * 7
    for row, double in zip(compare_mechanisms(50, 1, 1.0), compare_mechanisms(50, 2, 1.0), strict=True):
        assert row.operations < double.operations


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: expected_rmse(1, 10, 1.0), "num_categories"),
        (lambda: expected_rmse(2, 10, 1.0, estimand="people"), "estimand"),
        (lambda: users_for_width(10, 1.0, 0.01, level=2), "level"),
        (lambda: expected_width(10, 100, 1.0, simultaneous="holm"), "simultaneous"),
        (lambda: detectable_share(10, 100, 1.0, power=0.3), "power"),
        (lambda: compare_mechanisms(10, 0, 1.0), "num_users"),
        (lambda: compare_mechanisms(10, 10, 0.0), "epsilon"),
        (lambda: power(jax.random.key(0), None, None, num_collections=0), "num_collections"),
    ],
)
def test_bad_arguments(call, argument):
    with refused(argument):
        call()


@pytest.mark.long
def test_what_makes_no_sense_gives_nan():
    assert np.isnan(expected_rmse(10, 0, 1.0))
    assert np.isnan(users_for_error(10, 1.0, -0.1))
    assert np.isnan(epsilon_for_error(10, -5, 0.1))
    assert np.isnan(expected_width(10, 100, 1.0, 1.5))
    assert np.isnan(users_for_width(10, 1.0, 2.0))


@pytest.mark.long
def test_plans_batch():
    epsilons = np.linspace(0.5, 3, 5).astype(FLOAT)
    batch = jax.vmap(lambda e: users_for_width(10, e, 0.05, 0.2))(epsilons)
    np.testing.assert_allclose(batch, [users_for_width(10, e, 0.05, 0.2) for e in epsilons], rtol=1e-5)


@pytest.mark.parametrize(("num_categories", "users", "epsilon"), [(1000, 100, 6.0), (24, 200, 8.0), (100, 100, 4.0)])
def test_widths_of_counts_below_one(num_categories, users, epsilon):
    # Between the widths at the two whole counts next to the expected one.
    q = 1 / (math.expm1(epsilon) + num_categories)
    expected = users * q

    def width(count):
        limit = stats.beta.ppf(0.975, count + 1, users - count)
        lower = stats.beta.ppf(0.025, count, users - count + 1) if count else 0
        d = math.expm1(epsilon) * q
        return np.clip((limit - q) / d, 0, 1) - np.clip((lower - q) / d, 0, 1)

    below = math.floor(expected)
    share = expected - below
    wanted = (1 - share) * width(below) + share * width(below + 1)
    assert float(expected_width(num_categories, users, epsilon)) == pytest.approx(wanted, rel=1e-4)


def test_fewer_users_for_a_wider_interval():
    numbers = [float(users_for_width(1000, 8.0, width)) for width in (0.05, 0.02, 0.01)]
    assert numbers == sorted(numbers)
    for width, number in zip((0.05, 0.02, 0.01), numbers, strict=True):
        assert float(expected_width(1000, number, 8.0)) <= width * (1 + 1e-3)


def test_what_no_number_of_users_reaches():
    assert float(users_for_width(10, 1e-6, 1e-6)) == np.inf


def test_integers_beyond_the_dtype_do_not_wrap():
    assert float(expected_rmse(10, 2**32 + 100, 1.0)) == pytest.approx(
        float(expected_rmse(10, float(2**32 + 100), 1.0)), rel=1e-6
    )


@pytest.mark.long
def test_levels_and_powers_that_are_none_under_tracing():
    assert np.isnan(jax.jit(lambda level: detectable_share(10, 100, 1.0, level=level))(1.5))
    assert np.isnan(jax.jit(lambda power: detectable_share(10, 100, 1.0, power=power))(0.2))
    assert float(detectable_share(10, 100, 1.0, level=0.9, power=0.5)) >= 0


@pytest.mark.long
def test_the_power_of_a_test_that_is_nan():
    found = power(
        jax.random.key(0),
        lambda key: jnp.array([0, 0]),
        lambda key, counts: likelihood_ratio_test(key, counts, 1.0, [0.5, 0.5], num_draws=19),
        num_collections=3,
    )
    assert np.isnan(found.power)


def test_mechanisms_at_a_tiny_epsilon():
    rows = {row.name: row.expected_rmse for row in compare_mechanisms(10, 100, 1e-9)}
    assert rows["randomized response"] == pytest.approx(
        math.sqrt(9 * 8 + 18 * (1 + 1e-9)) / (math.sqrt(10 * 100) * math.expm1(1e-9))
    )
    assert math.isfinite(compare_mechanisms(10, 100, 1e-17)[0].expected_rmse)


# Rates that differ by category, and one design with a negative d.
DESIGNS = {
    "kuk": mechanisms.Kuk(0.5, 0.05),
    "mangat": mechanisms.Mangat(0.7),
    "kuk, few yes": mechanisms.Kuk(0.05, 0.5),
    "forced response": mechanisms.ForcedResponse(0.6, [0.7, 0.25, 0.05]),
    "nearly certain": mechanisms.ForcedResponse(0.99, [0.9, 0.05, 0.05]),
    "negative question": mechanisms.NegativeQuestion(3, own=0.1),
}


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("estimand", ["distribution", "users"])
def test_no_distribution_has_a_larger_error_than_planned(name, estimand):
    design = DESIGNS[name]
    size = design.num_categories
    always, truth = (np.asarray(each, float) for each in design.affine)
    steps = 100
    grid = np.indices((steps + 1,) * size).reshape(size, -1).T
    grid = grid[grid.sum(axis=1) == steps] / steps
    if estimand == "distribution":
        chance = always + truth * grid
        errors = np.sum(chance * (1 - chance), axis=1) / truth**2
    else:  # for each user the answer alone is random
        named = always + truth * np.eye(size)
        errors = grid @ np.sum(named * (1 - named), axis=1) / truth**2
    planned = size * 1000 * float(expected_rmse(size, 1000, 1.0, estimand=estimand, mechanism=lambda *_: design)) ** 2
    assert errors.max() <= planned * (1 + 1e-5)
    assert errors.max() == pytest.approx(planned, rel=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    "design", [Mangat(0.3), Triangular(0.25), ForcedResponse(0.75, [1.0, 0.0]), Kuk(1.0, 0.3)], ids=lambda d: d.name
)
def test_one_report_is_proof_of_a_category_that_chance_never_names(design):
    share = detectable_share(2, 1234, 1.0, mechanism=lambda *_: design, category=1)
    d = np.broadcast_to(np.abs(np.asarray(design.rates.d, float)), 2)[1]
    assert float(share) == pytest.approx((1 - 0.2 ** (1 / 1234)) / d, rel=1e-5)  # power 0.8


def test_widths_are_of_the_category_asked_for_or_of_the_noisiest():
    given = {"share": 0.1, "mechanism": lambda *_: DESIGNS["kuk"]}
    yes, no = (float(expected_width(2, 1000, 1.0, category=each, **given)) for each in (0, 1))
    assert yes < 0.65 * no
    assert float(expected_width(2, 1000, 1.0, **given)) == no
    # The noisiest at a share of one is another one.
    at_one = given | {"share": 1.0}
    assert float(expected_width(2, 1000, 1.0, **at_one)) == float(expected_width(2, 1000, 1.0, category=0, **at_one))
    assert float(users_for_width(2, 1.0, 0.08, category=0, **given)) == pytest.approx(1075, abs=1)
    with refused("category"):
        expected_width(2, 1000, 1.0, category=2, **given)
