"""Whether a regression leaves something out: score tests, which need no larger fit, and a test of goodness of fit."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from rrjax.data.arguments import check_key
from rrjax.data.checks import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import Channel, RandomizedResponse
from rrjax.mechanisms.rows import LogRows
from rrjax.models.data import Units, as_covariates, as_weights, covariates_dtype, standardized
from rrjax.models.fitted import Regression, check_plain
from rrjax.models.logistic import Data, on_coefficients, posteriors
from rrjax.models.loss import Law, MechanismOrEpsilon, rows_of
from rrjax.models.refusals import FitError
from rrjax.models.statements import ChiSquareTest, chi_square, predict
from rrjax.numerics.newton import factored, solved
from rrjax.numerics.sharding import aligned, refuse_spread

_DRAWS = 8
"""Reports that are drawn for each user, of mechanisms with too many to go through."""


def score_test(
    result: Regression,
    covariates: ArrayLike,
    added: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    weights: ArrayLike | None = None,
    key: Array | None = None,
) -> ChiSquareTest:
    """Tests whether the values depend on more covariates, by the slope of the likelihood where these mean nothing.

    The information is that expected of reports under the model: over all reports of randomized response and channels,
    over some drawn for each user from other mechanisms. What these very reports give may not be positive where there is
    no maximum.

    Args:
        result: Of `fit`, without the added covariates.
        covariates: `[N, D]`, those of the fit.
        added: `[N, A]`, or `[N]` of one: those to try.
        reports: Those of the fit.
        mechanism_or_epsilon: As for the fit.
        weights: Numbers of users, as for the fit. With survey weights or clusters use `wald_test` of a larger fit.
        key: A typed key for reports that are drawn; None is `jax.random.key(0)`.

    Returns:
        `ChiSquareTest`, with A·(K − 1) degrees of freedom.

    Raises:
        ValueError: Other covariates than were fitted, (not under tracing) added ones that these determine, or a fit
            with clusters or a sandwich.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, score_test
        >>> x = np.random.default_rng(0).normal(size=(20_000, 2))
        >>> values = (np.random.default_rng(1).random(20_000) < 1 / (1 + np.exp(-x[:, 0] * x[:, 1]))).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 1.0).randomize(jax.random.key(0), values)
        >>> result = fit(x, reports, 1.0, num_categories=2)
        >>> test = score_test(result, x, x[:, 0] * x[:, 1], reports, 1.0)
        >>> test.degrees, float(test.p_value) < 1e-6
        (1, True)

    References:
        Rao, "Large sample tests of statistical hypotheses concerning several parameters", 1948.
    """
    check_plain(result, "a score test")
    if key is not None:
        check_key(key)
    own, more = as_covariates(covariates), as_covariates(added)
    size, width = result.standard_coefficients.shape
    if own.shape[1] != size - result.intercept or more.shape[0] != own.shape[0]:
        raise ArgumentError(
            f"covariates must be the {size - result.intercept} of the fit, and the added ones of as many users; got "
            f"shapes {own.shape} and {more.shape}",
            argument="covariates" if own.shape[1] != size - result.intercept else "added",
        )
    library = jnp if isinstance(own, jax.Array) or isinstance(more, jax.Array) else np
    wide = np.promote_types(covariates_dtype(own), covariates_dtype(more))
    both, units = standardized(library.concatenate([own, more], axis=1, dtype=wide), result.intercept)
    dtype, number = result.standard_coefficients.dtype, own.shape[0]
    rows = _rows(reports, mechanism_or_epsilon, width + 1, number, dtype)
    data = Data(both.astype(dtype), rows, as_weights(weights, number, dtype))
    coefficients = jnp.concatenate([_in_units(result, units, size), jnp.zeros((more.shape[1], width), dtype)])
    each = _expected_information(
        jax.random.key(0) if key is None else key, data.covariates @ coefficients, mechanism_or_epsilon
    )
    return chi_square(_statistic(coefficients, data, each, size * width), more.shape[1] * width)


def _in_units(result: Regression, units: Units, size: int) -> Float[Array, "D k"]:
    """The coefficients of a fit in other units of the same covariates, which are nearly its own."""
    shift, scales = (each[:size].astype(result.units.scales.dtype) for each in units)
    slopes = result.standard_coefficients * (scales / result.units.scales)[:, None]
    if not result.intercept:
        return slopes
    moved = ((shift - result.units.shift) / result.units.scales)[1:] @ result.standard_coefficients[1:]
    return slopes.at[0].set(result.standard_coefficients[0] + moved)


def _rows(reports, mechanism_or_epsilon, num_categories, number, dtype):
    size = None if isinstance(mechanism_or_epsilon, Law) else num_categories
    rows = rows_of(reports, mechanism_or_epsilon, size, number)
    return LogRows(*(leaf.astype(dtype) for leaf in rows))


def _expected_information(key, logits, given) -> Float[Array, "N k k"]:
    """Of a report, on the logits: the mean square of its slope under the model."""
    number, width = logits.shape
    one, none = jnp.eye(width, dtype=logits.dtype), jnp.zeros((1, width), logits.dtype)
    # The logits themselves, as covariates whose coefficients are one.

    def seen(reports):
        return posteriors(one, logits, _rows(reports, given, width + 1, number, logits.dtype))

    drawn = isinstance(given, Law) and not isinstance(given, RandomizedResponse | Channel)

    def add(total, item):
        if drawn:
            of_values, of_reports = jax.random.split(item)
            whole = jnp.concatenate([jnp.broadcast_to(none[:, :1], (number, 1)), logits], axis=1)
            found = seen(given.randomize(of_reports, jax.random.categorical(of_values, whole)))
            share = jnp.full(number, 1 / _DRAWS, logits.dtype)
        else:
            found = seen(jnp.full(number, item, jnp.int32))
            share = jnp.exp(found.log_probabilities)
        slope = found.moved[:, 1:]
        return total + share[:, None, None] * slope[:, :, None] * slope[:, None, :], None

    if drawn:
        items = jax.random.split(key, _DRAWS)
    else:
        items = jnp.arange(given.matrix.shape[1] if isinstance(given, Channel) else width + 1, dtype=jnp.int32)
    return jax.lax.scan(add, aligned(jnp.zeros((number, width, width), logits.dtype), logits), items)[0]


@partial(jax.jit, static_argnums=3)
def _statistic(coefficients, data, each, fitted):
    moved = posteriors(coefficients, data.covariates, data.rows).moved
    slope = jnp.einsum("n,nd,nk->dk", data.weights, data.covariates, moved[:, 1:]).ravel()
    information = on_coefficients(each, data)

    def explained(size):
        part = slope[:size, None]
        return jnp.sum(part * solved(factored(information[:size, :size]), part))

    # The slope along what was fitted is zero, but for a prior.
    return explained(slope.shape[0]) - explained(fitted)


def goodness_of_fit_test(
    result: Regression,
    covariates: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    num_groups: int = 10,
    groups: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    key: Array | None = None,
) -> ChiSquareTest:
    """Tests whether the model fits in every part of the population: whether groups of users differ from what it says.

    The users are put into groups, and the score test is made of a constant for each group. Unlike Pearson's statistic,
    of which Hosmer and Lemeshow's test is one, it knows of how the reports were made, and its law is χ² whatever the
    mechanism.

    Args:
        result: Of `fit`.
        covariates: As for the fit.
        reports: As for the fit.
        mechanism_or_epsilon: As for the fit.
        num_groups: Of about equal weight, along the predicted share of all categories but the first; users of equal
            predictions are in one group.
        groups: `[N]`, in place of these: such as regions, or waves of a survey.
        weights: Numbers of users, as for the fit; not survey weights.
        key: As in `score_test`.

    Returns:
        `ChiSquareTest`, with K − 1 degrees of freedom for each group but the first, and but for those that the
        covariates, and the groups before, determine; under tracing NaN where there are any.

    Raises:
        ValueError: As `score_test`; fewer than two groups, or only some that the covariates determine.
        NotImplementedError: `jax.vmap` spreads it over a mesh with explicit axes; `jax.shard_map` can.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> from rrjax.models import fit, goodness_of_fit_test
        >>> x = np.random.default_rng(0).normal(size=20_000)
        >>> chance = 1 / (1 + np.exp(1 - x**2))
        >>> values = (np.random.default_rng(1).random(20_000) < chance).astype(int)
        >>> reports = rrjax.RandomizedResponse(2, 2.0).randomize(jax.random.key(0), values)
        >>> straight, bent = x, np.stack([x, x**2], axis=1)
        >>> for model in (straight, bent):
        ...     result = fit(model, reports, 2.0, num_categories=2)
        ...     print(float(goodness_of_fit_test(result, model, reports, 2.0).p_value) < 0.05)
        True
        False

    References:
        Tsiatis, "A note on a goodness-of-fit test for the logistic regression model", 1980; Fagerland, Hosmer and
        Bofin, "Multinomial goodness-of-fit tests for logistic regression models", 2008 (the groups).
    """
    reports = refuse_spread(reports, "goodness_of_fit_test")
    if groups is None:
        num_groups = as_integer(num_groups, "num_groups", 2)
        held = 1 - predict(result, covariates).shares[:, 0]
        codes, count = _along(held, as_weights(weights, held.shape[0], held.dtype), num_groups), num_groups
    else:
        names, codes = np.unique(np.asarray(groups), return_inverse=True)
        codes, count = jnp.asarray(codes.ravel(), jnp.int32), len(names)
        if count < 2:
            raise ArgumentError("groups must be two or more", argument="groups")
    dummies = codes[:, None] == jnp.arange(1, count, dtype=jnp.int32)
    if not isinstance(dummies, Tracer) and not isinstance(covariates, Tracer):
        dummies = _telling(as_covariates(covariates), np.asarray(dummies), result.intercept)
        if not dummies.shape[1]:
            raise FitError(
                f"the covariates tell the {count} groups apart, and the model fits them whatever they hold: give other "
                "groups",
                reason="groups",
                argument="groups",
                number=count,
            )
    dummies = dummies.astype(result.standard_coefficients.dtype)
    return score_test(result, covariates, dummies, reports, mechanism_or_epsilon, weights=weights, key=key)


def _along(held: Float[Array, " N"], weights: Float[Array, " N"], count: int) -> Int[Array, " N"]:
    """Groups of about equal weight, from the least to the largest; who is alike is in one group."""
    order = jnp.argsort(held)
    ranked, weight = held[order], weights[order]
    before = (jnp.cumsum(weight) - weight) / jnp.sum(weight)
    first = before[jnp.searchsorted(ranked, held)]
    return jnp.minimum((count * first).astype(jnp.int32), count - 1)


def _telling(covariates: np.ndarray, dummies: np.ndarray, intercept: bool) -> np.ndarray:
    """The columns that the ones before them, and the covariates, do not determine."""
    known = np.asarray(covariates, np.float64)
    known = (known - known.mean(0) * intercept) / np.maximum(known.std(0), 1e-300)
    ones = np.ones((len(known), int(intercept)))
    left = np.abs(np.diagonal(np.linalg.qr(np.concatenate([ones, known, dummies], axis=1), mode="r")))
    return dummies[:, left[known.shape[1] + intercept :] > 1e-6 * np.sqrt(len(known))]
