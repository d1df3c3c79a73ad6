"""A design for each respondent: the likelihood of each answer is that of its own design."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import rrjax
from rrjax import inference, models
from rrjax.data.errors import ArgumentError
from rrjax.inference import distribution_tests
from rrjax.mechanisms import ByRespondent, Crosswise, Direct, ForcedResponse, RandomizedResponse
from rrjax.mechanisms.surveys import groups

X64 = jax.config.jax_enable_x64
DESIGNS = (Direct(3), ForcedResponse(0.6, [0.5, 0.3, 0.2]), RandomizedResponse(3, 2.0))
CHANNELS = [
    np.eye(3),
    0.6 * np.eye(3) + 0.4 * np.array([0.5, 0.3, 0.2]),
    (np.ones((3, 3)) + np.expm1(2.0) * np.eye(3)) / (np.expm1(2.0) + 3),
]


def log_likelihood(theta, which, reports):
    return sum(np.log(theta @ CHANNELS[design][:, report]) for design, report in zip(which, reports, strict=True))


@pytest.fixture
def answers():
    random = np.random.default_rng(5)
    which, reports = random.integers(0, 3, 60), random.integers(0, 3, 60)
    return ByRespondent(DESIGNS, which), which, reports


@pytest.mark.long
def test_each_answer_has_the_likelihood_of_its_design(answers):
    mechanism, which, reports = answers
    rows = mechanism.log_rows(reports)
    theta = np.array([0.5, 0.3, 0.2])
    found = rows.log_probability(jnp.broadcast_to(jnp.log(jnp.asarray(theta, rows.lift.dtype)), (60, 3)))
    wanted = [np.log(theta @ CHANNELS[design][:, report]) for design, report in zip(which, reports, strict=True)]
    np.testing.assert_allclose(found, wanted, atol=1e-12 if X64 else 2e-6)
    counts = mechanism.counts(reports)
    assert counts.sum() == 60
    assert all(counts[g, j] == ((which == g) & (reports == j)).sum() for g in range(3) for j in range(3))


def test_small_integers_do_not_wrap():
    mechanism = ByRespondent([RandomizedResponse(200, 1.0), Direct(200)], np.array([1, 0, 1], np.uint8))
    counts = np.asarray(mechanism.counts(np.array([199, 3, 100], np.uint8)))
    assert np.argwhere(counts).tolist() == [[0, 3], [1, 100], [1, 199]]


@pytest.mark.long
def test_the_maximum_is_that_of_an_own_likelihood(answers):
    mechanism, which, reports = answers
    mixture = mechanism.mixture(reports)

    def loss(free):
        weights = np.exp([*free, 0.0])
        return -log_likelihood(weights / weights.sum(), which, reports)

    best = np.exp([*optimize.minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x, 0.0])
    np.testing.assert_allclose(rrjax.mle(mixture), best / best.sum(), atol=1e-6 if X64 else 2e-3)
    traced = jax.jit(lambda reports: rrjax.mle(mechanism.mixture(reports)))(jnp.asarray(reports))
    np.testing.assert_allclose(traced, rrjax.mle(mixture), atol=1e-6 if X64 else 1e-3)
    tallies = mechanism.tallies(reports)
    assert [float(each.num_users) for each in tallies] == [(which == g).sum() for g in range(3)]
    assert float(jnp.sum(groups.inv(list(tallies)))) == pytest.approx(1, abs=1e-5)


@pytest.mark.full
def test_simulated_answers_and_collections_have_the_law_of_their_design():
    number = 20_000
    which, values = np.arange(3 * number) % 3, np.repeat([0, 1, 2], number)
    mechanism = ByRespondent(DESIGNS, which)
    reports = np.asarray(mechanism.randomize(jax.random.key(0), values))
    for g, channel in enumerate(CHANNELS):
        for value in range(3):
            seen = np.bincount(reports[(which == g) & (values == value)], minlength=3)
            spread = np.sqrt(seen.sum() * channel[value] * (1 - channel[value]))
            assert (np.abs(seen - seen.sum() * channel[value]) <= 4 * spread).all()
    true = np.array([[7, 2, 1], [600, 300, 100], [100, 200, 300]])
    tallies = mechanism.collect(jax.random.key(1), true)
    assert tallies[0].support.tolist() == [7, 2, 1]
    assert [int(each.num_users) for each in tallies] == [10, 1000, 600]


@pytest.mark.long
def test_standard_errors_of_pooled_groups_are_published_ones():
    """Six parameters of the crosswise model: a share of .270528 with the standard error .0318."""
    yes, number = np.array([105, 81, 43, 91, 91, 41]), np.array([153, 136, 66, 150, 144, 72])
    designs = [Crosswise(p) for p in (0.167, 0.197, 0.202, 0.230, 0.260, 0.304)]
    mixture = ByRespondent(designs).mixture_of_counts(np.stack([yes, number - yes], axis=1))
    assert float(rrjax.mle(mixture)[0]) == pytest.approx(0.270528, abs=1e-6 if X64 else 5e-5)
    assert float(inference.standard_errors(mixture)[0]) == pytest.approx(0.0318, abs=5e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("same", "share"), [([114, 104, 72, 71], 0.2941), ([137, 136, 53, 44], 0.0590), ([141, 136, 39, 43], 0.0213)]
)
def test_the_extended_crosswise_model_is_published_and_its_fit_that_of_an_own_likelihood(same, share):
    yes, number = np.asarray(same), np.array([172, 172, 170, 192])
    p = np.array([1 / 6, 1 / 4, 3 / 4, 5 / 6])
    counts = np.stack([yes, number - yes], axis=1)
    found = inference.design_fit_test(counts, ByRespondent([Crosswise(each) for each in p]))
    assert float(found.theta[0]) == pytest.approx(share, abs=6e-5 if X64 else 3e-4)

    def deviance(theta):
        said = p * theta + (1 - p) * (1 - theta)
        return 2 * (yes * np.log(yes / number / said) + (number - yes) * np.log((1 - yes / number) / (1 - said))).sum()

    least = optimize.minimize_scalar(deviance, bounds=(0, 1), method="bounded", options={"xatol": 1e-10}).fun
    assert float(found.statistic) == pytest.approx(least, rel=1e-9 if X64 else 1e-3)
    assert int(found.degrees) == 3


@pytest.mark.full
def test_the_fit_rejects_at_its_level_and_a_wrong_design():
    designs, theta = [Crosswise(0.2), Crosswise(0.7), Direct(2)], np.array([0.3, 0.7])
    mechanism, random = ByRespondent(designs), np.random.default_rng(0)
    laws = [np.asarray(each.channel(), float).T @ theta for each in designs]

    def p_values(laws, number=400):
        counts = np.stack([random.multinomial(300, law, number) for law in laws], axis=1)
        return np.asarray(
            jax.vmap(lambda each: inference.design_fit_test(each, mechanism).p_value)(jnp.asarray(counts))
        )

    rejected = (p_values(laws) <= 0.05).mean()
    assert abs(rejected - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 400)
    assert (p_values([laws[0], laws[1], np.array([0.1, 0.9])]) <= 0.05).mean() > 0.9


@pytest.mark.full
def test_the_fit_keeps_its_level_where_shares_are_zero():
    """With (G − 1)·(K − 1) degrees of freedom it rejected .12 of these."""
    designs, random, number = [RandomizedResponse(6, 1.0), RandomizedResponse(6, 2.0)], np.random.default_rng(1), 600
    mechanism, theta = ByRespondent(designs), np.array([1, 1, 1, 0, 0, 0]) / 3
    laws = [np.asarray(each.channel(), float).T @ theta for each in designs]
    counts = np.stack([random.multinomial(1000, law / law.sum(), number) for law in laws], axis=1)
    found = jax.vmap(lambda each: inference.design_fit_test(each, mechanism))(jnp.asarray(counts))
    assert abs((np.asarray(found.p_value) <= 0.05).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / number)
    zeros = (np.asarray(found.theta) < 1e-6).sum(axis=1)
    assert (np.asarray(found.degrees) >= 5 + zeros).all()
    assert (np.asarray(found.degrees) - 5).max() >= 2
    # Where float32 stops near zero, a zero is one all the same.
    designs = [Crosswise(0.2), Crosswise(0.4)]
    mechanism, laws = ByRespondent(designs), [np.asarray(each.channel(), float).T @ [0, 1] for each in designs]
    counts = np.stack([random.multinomial(500, law, number) for law in laws], axis=1)
    found = jax.vmap(lambda each: inference.design_fit_test(each, mechanism))(jnp.asarray(counts))
    assert abs((np.asarray(found.p_value) <= 0.05).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / number)
    assert abs((np.asarray(found.degrees) == 2).mean() - 0.5) < 0.1


@pytest.mark.long
def test_the_fit_of_ten_million_answers_is_that_of_float64():
    """In float32 an iteration stopped at a share of .001, which costs 76 where the maximum is at zero."""
    designs = ByRespondent([RandomizedResponse(2, 1.0), RandomizedResponse(2, 2.0)])
    test = inference.design_fit_test([[2690283, 7309717], [1190666, 8809334]], designs)
    assert float(test.theta[0]) < 1e-6
    assert float(test.statistic) == pytest.approx(2.15426, rel=1e-3)
    assert int(test.degrees) == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("designs", "users", "theta"),
    [
        ([RandomizedResponse(2, 1.0), RandomizedResponse(2, 2.0)], (10**8, 10**8), [0, 1]),
        ([RandomizedResponse(3, 1.0), RandomizedResponse(3, 3.0)], (10**7, 10**6), [0.5, 0.5, 0]),
        ([RandomizedResponse(3, 1.0), RandomizedResponse(3, 3.0)], (10**7, 10**6), [0.5, 0.4999, 0.0001]),
    ],
)
def test_the_fit_of_many_answers_keeps_its_level_next_to_zero(designs, users, theta):
    """In float32 1.00, .98 and .97 of these were rejected."""
    random, number = np.random.default_rng(5), 400
    laws = [np.asarray(each.channel(), float).T @ theta for each in designs]
    counts = [random.multinomial(size, law / law.sum(), number) for size, law in zip(users, laws, strict=True)]
    p_values = jax.vmap(lambda each: inference.design_fit_test(each, ByRespondent(designs)).p_value)(
        jnp.asarray(np.stack(counts, axis=1))
    )
    assert abs((np.asarray(p_values) <= 0.05).mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / number)


@pytest.mark.full
@pytest.mark.parametrize("more", [0, -1])
def test_the_fit_is_that_of_an_interior_maximum_on_both_sides_of_newton(more, monkeypatch):
    """All shares are equal, so the statistic is that of two tables of counts."""
    size = 60
    monkeypatch.setattr(distribution_tests, "MOST_NUMBERS", 2 * size**2 + more)
    designs = ByRespondent([RandomizedResponse(size, 6.0), RandomizedResponse(size, 6.0)])
    counts = np.random.default_rng(2).multinomial(10**6, np.full(size, 1 / size), 2)
    test = inference.design_fit_test(counts, designs)
    expected = counts.mean(axis=0)
    assert float(test.statistic) == pytest.approx(2 * (counts * np.log(counts / expected)).sum(), rel=1e-3)
    assert int(test.degrees) == size - 1


@pytest.mark.full
def test_groups_that_contradict_each_other_have_the_smallest_p_value_that_float64_has():
    counts = np.array([[300, 150, 50], [200, 100, 60], [90, 120, 210]])
    designs = RandomizedResponse(3, 1.0), RandomizedResponse(3, 3.0), Direct(3)
    one, other, _ = (rrjax.Reports.of_counts(*each) for each in zip(counts, (1.0, 3.0, Direct(3)), strict=True))
    found = rrjax.reports.Groups({1: one, 2: other, 3: _}).shares().fit
    laws = [
        np.asarray(each.channel().matrix if hasattr(each.channel(), "matrix") else each.channel(), float)
        for each in designs
    ]

    def deviance(free):
        theta = np.exp([*free, 0.0])
        theta /= theta.sum()
        parts = zip(counts, laws, strict=True)
        return 2 * sum((row * np.log(row / row.sum() / (theta @ law))).sum() for row, law in parts)

    least = optimize.minimize(deviance, [0.0, 0.0], method="BFGS", options={"gtol": 1e-8}).fun
    assert float(found.statistic) == pytest.approx(least, rel=1e-6)
    assert float(found.p_value) == pytest.approx(stats.chi2.sf(least, 4), rel=1e-3)
    assert 0 < float(found.p_value) < 1e-40


@pytest.mark.full  # fits of 4,000 rows
def test_a_regression_is_that_of_an_own_likelihood():
    random = np.random.default_rng(3)
    size = 4000
    x, which = random.normal(size=size), random.integers(0, 3, size)
    p = np.array([1.0, 0.25, 0.75])[which]
    true = random.random(size) < 1 / (1 + np.exp(1.0 - 0.7 * x))
    reports = (random.random(size) < np.where(true, p, 1 - p)).astype(int)  # 1 is yes
    designs = (Direct(2), Crosswise(0.25, yes_category=1), Crosswise(0.75, yes_category=1))
    result = models.fit(x[:, None], reports, ByRespondent(designs, which))

    def score(beta):
        share = 1 / (1 + np.exp(-beta[0] - beta[1] * x))
        said = p * share + (1 - p) * (1 - share)
        slope = np.where(reports == 1, 1 / said, -1 / (1 - said)) * (2 * p - 1) * share * (1 - share)
        return np.array([slope.sum(), (slope * x).sum()])

    best = optimize.root(score, [-1.0, 0.7], tol=1e-12)
    assert best.success
    np.testing.assert_allclose(np.ravel(result.coefficients), best.x, atol=1e-6 if X64 else 1e-3)


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: ByRespondent([]), "designs"),
        (lambda: ByRespondent([Direct(2), Direct(3)], [0]), "designs"),
        (lambda: ByRespondent([rrjax.mechanisms.OptimizedUnaryEncoding(2, 1.0)], [0]), "designs"),
        (lambda: ByRespondent([Direct(2)], [[0]]), "which"),
        (lambda: ByRespondent([Direct(2)], [0, 1]), "which"),
        (lambda: ByRespondent([Direct(2)], [0, 0]).mixture([1]), "reports"),
        (lambda: ByRespondent([Direct(2)]).mixture_of_counts([[1, 2, 3]]), "counts"),
        (lambda: ByRespondent([Direct(2)]).mixture_of_counts([[0, 0]]), "counts"),
        (lambda: ByRespondent([Direct(2)]).collect(jax.random.key(0), [1, 2]), "true_counts"),
    ],
)
def test_what_cannot_be_used_is_named(make, argument):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert caught.value.argument == argument


@pytest.mark.long
def test_an_impossible_answer_is_nan_under_tracing():
    mechanism = ByRespondent(DESIGNS, jnp.array([0, 1, 2]))
    rows = jax.jit(mechanism.log_rows)(jnp.array([0, 7, 2]))
    assert np.isnan(rows.scale).tolist() == [False, True, False]
    assert np.isnan(jax.jit(lambda reports: rrjax.mle(mechanism.mixture(reports)))(jnp.array([0, 7, 2]))).all()
    fit = jax.jit(lambda counts: inference.design_fit_test(counts, mechanism))(jnp.zeros((3, 3), int))
    assert np.isnan(fit.statistic)
    assert np.isnan(fit.p_value)


def test_a_respondent_of_no_design_gives_no_answer_under_tracing():
    @jax.jit
    def drawn(which):
        return ByRespondent(DESIGNS, which).randomize(jax.random.key(0), jnp.array([0, 1, 2]))

    assert drawn(jnp.array([0, 3, -1])).tolist() == [0, -1, -1]


def test_unbiased_vectors_are_those_of_each_design():
    which, answers = np.array([0, 1, 2, 1]), np.array([2, 0, 1, 1])
    mixed = ByRespondent(DESIGNS, which)
    expected = [DESIGNS[design].debias(answers)[place] for place, design in enumerate(which)]
    np.testing.assert_allclose(mixed.debias(answers), np.stack(expected), rtol=1e-6)
    traced = jax.jit(lambda given: ByRespondent(DESIGNS, which).debias(given))(answers.copy() + np.array([0, 0, 5, 0]))
    assert np.isnan(traced).all(axis=1).tolist() == [False, False, True, False]
