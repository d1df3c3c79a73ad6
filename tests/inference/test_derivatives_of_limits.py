"""Derivatives of limits that a search finds: those of the limit, not of the search."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rrjax import inference
from rrjax.mechanisms import CheatingDetection, Product, RandomizedResponse, UnrelatedQuestionTwoSamples

FLOAT = jnp.result_type(float)
FEW, OTHER = jnp.asarray([60, 20, 10, 10]), jnp.asarray([40, 30, 15, 15])
MANY = jnp.asarray([600, 200, 100, 100])
VALUES = jnp.asarray([0.0, 0.7, 2.0, 3.1])


def functional(counts, epsilon, level, **given):
    return inference.linear_functional(counts, epsilon, values=VALUES, level=level, **given)


def difference(counts, epsilon, level):
    return inference.difference(counts, OTHER, epsilon, values=VALUES, level=level)


def stratified(counts, epsilon, level):
    shares = jnp.asarray([0.4, 0.6])
    both = jnp.stack([counts, OTHER])
    return inference.stratified(both, epsilon, shares=shares, values=VALUES, level=level, method="conservative")


def of_category(place, counts, epsilon, level, **given):
    return jax.tree.map(lambda leaf: leaf[place], inference.intervals(counts, epsilon, level, **given))


FORMS = {
    "few": (partial(functional, FEW), "upper"),
    "many": (partial(functional, MANY), "upper"),
    "looks": (partial(functional, MANY, looks="any"), "upper"),
    "difference": (partial(difference, FEW), "lower"),
    "upper difference": (partial(difference, FEW), "upper"),
    "stratified": (partial(stratified, MANY), "upper"),
    "profile": (partial(of_category, 0, MANY, method="profile"), "lower"),
    "upper profile": (partial(of_category, 0, MANY, method="profile"), "upper"),
    "profile of few": (partial(of_category, 2, MANY, method="profile"), "upper"),
    "intervals with looks": (partial(of_category, 3, MANY, looks="any"), "upper"),
}


@pytest.mark.full  # each compiles a search and its derivatives, in both modes
@pytest.mark.filterwarnings("ignore:intervals from the profile likelihood")
@pytest.mark.parametrize("what", FORMS)
@pytest.mark.parametrize("place", [0, 1])
def test_limits_have_their_derivatives_in_epsilon_and_level(what, place):
    """That of the level was zero, and that of ε wrong by up to a factor of ten."""
    form, end = FORMS[what]

    @jax.jit
    def limit(change):
        given = jnp.asarray([2.0, 0.9], FLOAT).at[place].add(change)
        return getattr(form(*given), end)

    # A search is exact to some 1e-4 of its first step: over many points it has no effect.
    width = [0.05, 0.04][place]
    changes = np.linspace(-width, width, 81)
    slope = np.polyfit(changes, np.asarray(jax.vmap(limit)(jnp.asarray(changes, FLOAT)), float), 3)[-2]
    zero = jnp.zeros((), FLOAT)
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(limit)(zero), slope, rtol=0.01, atol=3e-4)


@pytest.mark.parametrize("counts", [[0, 20, 10, 5], [0, 0, 1, 0], [300, 0, 0, 0]])
@pytest.mark.long
def test_derivatives_of_limits_at_the_ends_are_numbers(counts):
    """Where the limit is no root: at shares of zero and one, with rates that round to them."""
    counts = jnp.asarray(counts)
    for epsilon in (1.0, 50.0):
        for end in ("lower", "upper"):
            for form in (partial(functional, counts), partial(functional, counts, looks="any")):
                slopes = jax.grad(lambda x, form=form, end=end: getattr(form(*x), end))(
                    jnp.asarray([epsilon, 0.9], FLOAT)
                )
                value = getattr(form(epsilon, 0.9), end)
                assert np.isfinite(slopes).all() or np.isnan(value)
    looks = jax.jacrev(lambda level: inference.intervals(counts, 2.0, level, looks="any").lower)(
        jnp.asarray(0.9, FLOAT)
    )
    assert np.isfinite(looks).all()


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [20.0, 46.0, 80.0])
def test_derivatives_at_a_large_epsilon(epsilon):
    """1/y² left the range of float32, or a branch that is not taken had a derivative that is no number."""
    epsilon = jnp.asarray(epsilon, FLOAT)
    counts = jnp.asarray([60, 20, 20])
    # The point has a share of zero where 20 reports are: −60·ε.
    surface = jax.grad(lambda x: inference.log_likelihood_surface(counts, x, num_points=5).log_likelihood[0])(epsilon)
    without = inference.log_likelihood_surface(counts, 2.0, num_points=5).theta[0] == 0
    zeros = int(jnp.sum(jnp.where(without, counts, 0)))
    np.testing.assert_allclose(surface, -zeros, rtol=1e-5)
    for still in (
        lambda x: inference.expected_width(4, 100, x, 0.3),
        lambda x: inference.users_for_width(4, x, 0.2, 0.3),
        lambda x: inference.profile(FEW, x, 0)(0.5),
        lambda x: inference.intervals(FEW, x).upper[0],
    ):
        assert abs(jax.grad(still)(epsilon)) < 1e-4
    tail = jax.grad(lambda x: inference.p_values(FEW, x, log=True)[3])(epsilon)
    np.testing.assert_allclose(tail, -10, rtol=1e-4)


@pytest.mark.parametrize("place", [0, 1])
def test_association_refuses_derivatives(place):
    """In the level they were zero, and those in ε ended in a recursion."""
    table, key = jnp.asarray([[30, 10], [12, 25]]), jax.random.key(0)

    def lower(given):
        product = Product([RandomizedResponse(2, given[0]), RandomizedResponse(2, 2.0)])
        return inference.association(key, table, product, level=given[1], num_draws=19).cramers_v.lower

    given = jnp.asarray([2.0, 0.9], FLOAT)
    with pytest.raises(NotImplementedError, match="simulated"):
        jax.grad(lambda x: lower(given.at[place].set(x)))(given[place])


@pytest.mark.long
@pytest.mark.parametrize("place", [0, 1])
def test_two_samples_refuse_derivatives(place):
    """Those in the level were zero, and those in the parameters of limits and of `naive` were wrong."""
    counts, given = jnp.asarray([[60, 140], [120, 80]]), jnp.asarray([0.7, 0.9], FLOAT)

    def cheating(given):
        return inference.compliance(counts, CheatingDetection(jnp.stack([1 - given[0], given[1]])), level=given[1])

    def unrelated(given):
        truth = jnp.stack([given[0], 1 - given[0]])
        return inference.unrelated_question(counts, UnrelatedQuestionTwoSamples(truth), level=given[1])

    for form in (cheating, unrelated):
        assert np.isfinite(form(given).lower)
        with pytest.raises(NotImplementedError, match="two samples"):
            jax.grad(lambda x, form=form: form(given.at[place].set(x)).lower)(given[place])
