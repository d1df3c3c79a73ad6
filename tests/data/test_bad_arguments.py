"""What is no number, no category, no key: refused by name of the argument, before JAX sees it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

import rrjax
from rrjax import inference, longitudinal, mechanisms, models, secure, shuffling

KEY = jax.random.key(0)
COUNTS = [50, 30, 20]
TWO = [COUNTS, [40, 40, 20]]
RAGGED = [[1, 2], [3]]
TALLY = rrjax.RandomizedResponse(3, 2.0).tally(np.array([0, 1, 2, 0]))


@pytest.mark.parametrize("number", [1.5, np.nan, np.inf, jnp.float32(5), -1, 2**70, None, "abc", True, [5], {}])
def test_numbers_of_users(number):
    with refused("num_users"):
        rrjax.simulate.values(KEY, [0.5, 0.5], number)


@pytest.mark.parametrize("number", [0, 5, np.int64(5), jnp.int32(5)])
def test_numbers_of_users_of_any_integer_type(number):
    assert rrjax.simulate.values(KEY, [0.5, 0.5], number).shape == (int(number),)


@pytest.mark.parametrize(
    "given", [None, "abc", {}, TALLY, True, [1.0, 2.0, 3.0, 4.0], [[1.0]], np.array([1.0, None]), RAGGED]
)
def test_one_number_or_one_for_each(given):
    with refused("epsilon"):
        inference.equality_test(KEY, TWO, given)
    with refused("epsilon"):
        inference.trend_test(KEY, TWO, given)
    with refused("epsilon"):
        inference.stratified(TWO, given, shares=[0.5, 0.5], values=[0, 1, 2])
    with refused("prior"):
        inference.posterior(KEY, COUNTS, 2.0, prior=given)


@pytest.mark.parametrize("category", ["abc", [1], object(), 1.0, True, 3, -1, 2**70, RAGGED])
def test_categories(category):
    with refused("category"):
        inference.trend_test(KEY, TWO, 2.0, category=category)
    with refused("category"):
        inference.profile(COUNTS, 2.0, category=category)


FAMILY = partial(models.zipf_logits, num_categories=3)
FITTED = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 1, 1, 0]), 2.0
REGRESSION = models.fit(*FITTED, num_categories=2, ridge=1.0)
INTEGERS = {
    "equality_test": ("num_draws", lambda given: inference.equality_test(KEY, TWO, 2.0, num_draws=given)),
    "goodness_of_fit_test": (
        "num_draws",
        lambda given: inference.goodness_of_fit_test(KEY, TWO[0], 2, num_draws=given),
    ),
    "draws": ("num_draws", lambda given: inference.posterior(KEY, COUNTS, 2.0, num_draws=given)),
    "warmup": ("num_warmup", lambda given: inference.posterior(KEY, COUNTS, 2.0, num_warmup=given)),
    "thin": ("thin", lambda given: inference.posterior(KEY, COUNTS, 2.0, thin=given)),
    "power": ("num_collections", lambda given: inference.power(KEY, None, None, num_collections=given)),
    "surface": ("num_points", lambda given: inference.log_likelihood_surface(COUNTS, 2.0, num_points=given)),
    "dirichlet draws": ("num_draws", lambda given: models.fit_dirichlet(KEY, TWO, 2.0, num_draws=given)),
    "fit_in_batches": ("batch_size", lambda given: models.fit_in_batches(KEY, *FITTED, batch_size=given)),
    "epochs": ("num_epochs", lambda given: models.fit_in_batches(KEY, *FITTED, num_epochs=given)),
    "ibu": ("max_iters", lambda given: rrjax.ibu(COUNTS, 2.0, max_iters=given)),
}
"""Functions with a number that shapes or loops depend on: its name, and a call with one."""


@pytest.mark.parametrize("name", INTEGERS)
def test_static_integers(name):
    argument, call = INTEGERS[name]
    for given in (np.nan, np.inf, 99.5, 2**70, -1, None, "abc", True):
        with refused(argument):
            call(given)


@pytest.mark.parametrize("start", ["abc", 1j, None, object(), True, {"s": "abc"}])
def test_starts_of_a_family(start):
    with refused("start"):
        models.fit_family(FAMILY, start, COUNTS, 2.0)


@pytest.mark.parametrize("given", [jnp.float32(5), np.float64(5), 5, None, [], "ab", {}])
def test_sequences(given):
    with refused("num_categories"):
        models.split_budget(2.0, given, 1000)
    for argument in () if given is None else ("names", "categories"):
        with refused(argument):
            models.summary(REGRESSION, **{argument: given})


VALUES = np.array([0, 1, 2])
PERMANENT = longitudinal.LongitudinalRandomizedResponse(3, 2.0, 1.0)
KEYED = {
    "values": lambda key: rrjax.simulate.values(key, [0.5, 0.5], 5),
    "true_counts": lambda key: rrjax.simulate.true_counts(key, [0.5, 0.5], 5),
    "counts": lambda key: rrjax.simulate.counts(key, [0.5, 0.5], 5, 1.0),
    "collect": lambda key: rrjax.simulate.collect(key, [0.5, 0.5], 5, 1.0),
    "randomized": lambda key: rrjax.simulate.randomized(key, [5, 5], 1.0),
    "equality_test": lambda key: inference.equality_test(key, TWO, 1.0),
    "trend_test": lambda key: inference.trend_test(key, TWO, 1.0),
    "independence_test": lambda key: inference.independence_test(key, TWO),
    "goodness_of_fit_test": lambda key: inference.goodness_of_fit_test(key, COUNTS, 1.0),
    "likelihood_ratio_test": lambda key: inference.likelihood_ratio_test(key, COUNTS, 1.0, [0.5, 0.3, 0.2]),
    "posterior": lambda key: inference.posterior(key, COUNTS, 1.0),
    "power": lambda key: inference.power(key, None, None),
    "fit_dirichlet": lambda key: models.fit_dirichlet(key, TWO, 1.0),
    "fit_in_batches": lambda key: models.fit_in_batches(key, *FITTED, num_categories=2),
    "family_test": lambda key: models.family_test(key, FAMILY, 1.0, COUNTS, 2.0),
    "channel": lambda key: mechanisms.Channel(np.array([[0.7, 0.3], [0.3, 0.7]])).randomize(key, VALUES[:2]),
    "square wave": lambda key: mechanisms.SquareWave(8, 1.0).randomize(key, [0.5]),
    "Warner": lambda key: mechanisms.Warner(0.7).randomize(key, VALUES[:2]),
    "negative question": lambda key: mechanisms.NegativeQuestion(3).randomize(key, VALUES),
    "forced response": lambda key: mechanisms.ForcedResponse(0.5, [0.3, 0.3, 0.4]).randomize(key, VALUES),
    "memoize": lambda key: PERMANENT.memoize(key, VALUES),
    "report": lambda key: PERMANENT.report(key, VALUES),
    "bits": lambda key: longitudinal.LongitudinalUnaryEncoding(3, 2.0, 1.0).memoize(key, VALUES),
    "attack": lambda key: longitudinal.averaging_attack(key, PERMANENT, 2),
}
"""Functions of a random key."""


NOT_KEYS = (0, None, "abc", np.arange(2), jnp.arange(3, dtype=jnp.uint32), KEY[None], jnp.float32(1))


@pytest.mark.parametrize("name", KEYED)
def test_keys(name):
    for key in NOT_KEYS:
        with refused("key"):
            KEYED[name](key)


@pytest.mark.parametrize("name", mechanisms.MECHANISMS)
def test_keys_of_mechanisms(name):
    mechanism = mechanisms.MECHANISMS[name](3, 2.0)
    for key in NOT_KEYS:
        with refused("key"):
            mechanism.randomize(key, VALUES)
        with refused("key"):
            mechanism.collect(key, COUNTS)


@pytest.mark.full
def test_keys_of_any_kind_and_under_tracing():
    draw = KEYED["counts"]
    assert draw(jax.random.PRNGKey(0)).tolist() == draw(KEY).tolist() == jax.jit(draw)(KEY).tolist()
    assert draw(jax.random.key(0, impl="rbg")).sum() == 5
    assert jax.vmap(draw)(jax.random.split(KEY, 3)).shape == (3, 2)


@pytest.mark.parametrize(
    "given", [None, "abc", {}, object(), True, 1j, [0.1, 0.2], jnp.asarray(True), np.array([None])]
)
def test_probabilities_of_survey_designs(given):
    mechanism, half = rrjax.RandomizedResponse(2, 1.0), [0.5, 0.5]
    for argument, design in {
        "truth_probability": mechanisms.Warner,
        "own": lambda own: mechanisms.NegativeQuestion(4, own),
        "ignoring": lambda ignoring: mechanisms.NonCompliance(mechanism, ignoring, half),
    }.items():
        with refused(argument):
            design(given)
    with refused("truth"):
        mechanisms.ForcedResponse(given, half)
    with refused("truth"):
        mechanisms.UnrelatedQuestion(given, half)


@pytest.mark.parametrize("given", [None, "abc", {}, 0.5, RAGGED, [True, False], jnp.asarray(0.5), jnp.asarray([True])])
def test_distributions_of_survey_designs(given):
    for argument, design in {
        "forced": mechanisms.ForcedResponse,
        "unrelated": mechanisms.UnrelatedQuestion,
        "answers": partial(mechanisms.NonCompliance, rrjax.RandomizedResponse(2, 1.0)),
    }.items():
        with refused(argument):
            design(0.5, given)
    with refused("mechanism"):
        mechanisms.NonCompliance(given, 0.5, [0.5, 0.5])


@pytest.mark.parametrize("number", [-1, 0, 1, True, None, "abc", 2.0, 2**31])
def test_numbers_of_categories(number):
    with refused("num_categories"):
        secure.client("randomized-response", number, 1.0)
    if number is not None:  # without a mechanism it need not be known
        with refused("num_categories"):
            shuffling.central_delta(1000, 2.0, 0.5, num_categories=number)


@pytest.mark.parametrize("number", [-1, 0, np.inf, np.nan, 1.5, None, "abc", True, 2**70])
def test_numbers_of_seeds(number):
    with refused("num_reports"):
        inference.repeated_seed_test(2, number)
    with refused("most"):
        inference.repeated_seed_test(number, 1000)


@pytest.mark.long
@pytest.mark.parametrize("theta", [[-0.7, 1.2, 0.5], [2.5, -0.75, -0.75], [np.nan, 0.5, 0.5], [3.0, 0.0, 0.0]])
def test_variances_of_what_no_reports_have_are_nan(theta):
    for estimand in ("distribution", "users"):
        for function in (inference.covariance, inference.variances):
            of_shares = partial(function, num_users=100, epsilon=1.0, estimand=estimand)
            assert np.isnan(of_shares(theta)).all()
            assert np.isnan(jax.jit(of_shares)(jnp.asarray(theta))).all()
            for possible in ([1.0, 0.0, 0.0], [0.7, -0.2, 0.5]):  # an unbiased estimate
                assert np.isfinite(of_shares(possible)).all()
