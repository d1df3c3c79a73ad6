"""Losses of randomized reports under predicted distributions, for training models of the true values.

A model predicts softmax(logits) for the value of a user; a mechanism makes the user's report. `rr_loss` is the negative
log-likelihood of the report under both, in log space throughout. It needs no K×K matrix and subtracts no nearly equal
numbers, so that it is accurate to the dtype for every ε.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float

from rrjax.data.arguments import as_array, as_epsilons, as_values, float_dtype
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import Channel, Mechanism, RandomizedResponse, SupportMechanism
from rrjax.mechanisms.mechanism import LogRows, log_gain
from rrjax.models.candidates import CandidateResponse
from rrjax.models.results import require
from rrjax.numerics.sharding import gathered
from rrjax.numerics.sums import log_sum, short_sum

Law: TypeAlias = Mechanism | CandidateResponse
"""A mechanism with its own K, and a likelihood for each report."""
MechanismOrEpsilon: TypeAlias = Law | ArrayLike


def rr_loss(
    logits: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    where: Bool[ArrayLike, "*s K"] | None = None,
) -> Float[Array, "*s"]:
    """The negative log-likelihood of reports, −log P(report | softmax(logits)), nats: one for each report.

    It replaces `optax.softmax_cross_entropy_with_integer_labels`, and equals it at ε = ∞. For k-ary randomized response
    it is −log(q + (p − q)·softmax(logits)_report), the forward-corrected cross-entropy of Patrini et al. For other
    mechanisms it is the likelihood of the whole report, given its public part, such as a hash's seed.

    Args:
        logits: `[*s, K]`, floats.
        reports: Reports of the mechanism. For k-ary randomized response integers in 0 … K − 1 `[*s]`, or floats `[*s,
            K]`: the weight of each category in each example, such as a number of reports.
        mechanism_or_epsilon: A mechanism of `rrjax.mechanisms`, or ε of k-ary randomized response, nats: a scalar, or
            one for each example, `[*s]` or what broadcasts to it. A `CandidateResponse` has candidates for each
            example.
        where: Booleans `[*s, K]` or what broadcasts to it: the possible categories. An example without any has loss and
            derivative zero, and its report is not used: `[*s, 1]` masks examples.

    Returns:
        `[*s]`, in the dtype of the logits, at least float32. For float32 and k-ary randomized response within 1e-6 of
        float64, relative to the loss if that is above one, for ε from 1e-3 to 100 and K up to 100,000. Under tracing,
        NaN for an invalid report, or an ε that is not positive. Differentiable in logits, ε and float reports.

    Raises:
        ValueError: Shapes that do not fit, or (not under tracing) an invalid report or an ε that is not positive, with
            its place.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from rrjax.models import rr_loss
        >>> from rrjax.mechanisms import OptimizedUnaryEncoding
        >>> logits = jnp.asarray([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]])
        >>> [round(x, 3) for x in rr_loss(logits, [0, 2], 1.0).tolist()]
        [0.655, 1.099]
        >>> bits = [[True, False, True], [False, False, True]]
        >>> [round(x, 3) for x in rr_loss(logits, bits, OptimizedUnaryEncoding(3, 1.0)).tolist()]
        [2.395, 1.867]

    References:
        Patrini, Rozza, Menon, Nock and Qu, "Making deep neural networks robust to label noise: a loss correction
        approach", CVPR 2017: arXiv:1609.03683, theorem 2.
    """
    logits, reports, mechanism, possible = _checked(logits, reports, mechanism_or_epsilon, where)
    if mechanism is None:
        loss = _loss_of_categories(logits, reports, _as_epsilon(mechanism_or_epsilon, logits, possible), possible)
    else:
        rows = mechanism.log_rows(reports).where(possible, 0)  # or derivatives of masked examples could be NaN
        loss = -rows.log_probability(logits - log_sum(logits)[..., None])
    return jnp.where(possible, loss, 0)


def backward_loss(
    logits: ArrayLike,
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    *,
    where: Bool[ArrayLike, "*s K"] | None = None,
) -> Float[Array, "*s"]:
    """The backward-corrected cross-entropy: an unbiased estimate of the cross-entropy of the true value.

    −Σ_i v_i·log softmax(logits)_i, with v = `mechanism.debias(report)`. Its mean over reports estimates the
    cross-entropy of the true values, but it is not bounded from below: a flexible model can make it arbitrarily small.
    Train with `rr_loss`; this loss is for comparison.

    Args:
        logits: As in `rr_loss`.
        reports: As in `rr_loss`.
        mechanism_or_epsilon: As in `rr_loss`.
        where: As in `rr_loss`.

    Returns:
        `[*s]`, as in `rr_loss`; it may be negative.

    Raises:
        ValueError: As `rr_loss`; a channel that is not invertible; a `CandidateResponse`.

    Example:
        >>> import jax.numpy as jnp
        >>> from rrjax.models import backward_loss
        >>> [round(x, 3) for x in backward_loss(jnp.asarray([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]]), [0, 2], 1.0).tolist()]
        [-2.74, 1.099]

    References:
        Patrini et al., arXiv:1609.03683, theorem 1; Natarajan, Dhillon, Ravikumar and Tewari, "Learning with noisy
        labels", NeurIPS 2013.
    """
    logits, reports, mechanism, possible = _checked(logits, reports, mechanism_or_epsilon, where)
    if not (mechanism is None or isinstance(mechanism, SupportMechanism | Channel)):
        raise ArgumentError(
            f"there is no unbiased correction for reports of {type(mechanism).__name__}: use rr_loss",
            argument="reports",
        )
    log_theta = jnp.where(logits > -jnp.inf, logits - log_sum(logits)[..., None], 0)
    if mechanism is None:
        epsilon = _as_epsilon(mechanism_or_epsilon, logits, possible)
        reports, soft = _as_categories(reports, logits, possible)
        named = short_sum(_as_weights(reports) * log_theta) if soft else _entries(log_theta, reports)
        # A NaN factor for an invalid report: with a constant NaN the derivatives would be finite.
        inside = (reports >= 0) & (reports < logits.shape[-1])
        total = jnp.sum(_as_weights(reports), axis=-1) if soft else jnp.where(inside, 1, jnp.nan).astype(logits.dtype)
        loss = (total * short_sum(log_theta) - logits.shape[-1] * named) / jnp.expm1(epsilon) - named
    else:
        vectors = jnp.where(jnp.asarray(possible)[..., None], mechanism.debias(reports), 0)
        loss = -short_sum(vectors.astype(logits.dtype) * log_theta)
    return jnp.where(possible, loss, 0)


def rows_of(
    reports: ArrayLike,
    mechanism_or_epsilon: MechanismOrEpsilon,
    num_categories: int | None,
    number: int,
    dtype: jax.typing.DTypeLike,
) -> LogRows:
    """The likelihood of each report for each category, `[N, K]`; N reports and K are checked."""
    reports = as_array(reports, "reports")
    is_per_row = reports.ndim >= 1 and reports.shape[0] == number
    require(is_per_row, "reports", f"{number}, one for each row of covariates", reports)
    if isinstance(mechanism_or_epsilon, Law):
        if num_categories not in (None, mechanism_or_epsilon.num_categories):
            raise ArgumentError(
                f"the mechanism has {mechanism_or_epsilon.num_categories} categories: leave num_categories out "
                f"(got {num_categories})",
                argument="num_categories",
                value=num_categories,
            )
        rows = mechanism_or_epsilon.log_rows(reports)
        return LogRows(*(leaf.astype(dtype) for leaf in rows))
    if num_categories is None:
        raise ArgumentError.about("num_categories", "is missing: an epsilon does not say how many categories there are")
    check_num_categories(num_categories)
    epsilon = as_epsilons(mechanism_or_epsilon, (number,), float_dtype())
    reports = as_values(reports, num_categories, "reports")
    named = reports[:, None] == jnp.arange(num_categories, dtype=reports.dtype)
    rows = LogRows(_log_p(epsilon, num_categories), -epsilon, jnp.where(named, log_gain(epsilon)[:, None], -jnp.inf))
    return LogRows(*(leaf.astype(dtype) for leaf in rows.where(jnp.any(named, axis=1), jnp.nan)))


def _log_p(epsilon, num_categories):
    """Log p; neither it nor q/p overflows or cancels."""
    return -jnp.log1p((num_categories - 1) * jnp.exp(-epsilon))


def _checked(logits, reports, mechanism_or_epsilon, where):
    """The arguments of a loss, checked; the mechanism is None for k-ary randomized response."""
    logits, possible = _as_logits(logits, where)
    reports = _without_masked(reports, possible)
    return logits, reports, _as_mechanism(mechanism_or_epsilon, logits, possible), possible


def _as_mechanism(given, logits, possible) -> Law | None:
    """The mechanism, checked; None is k-ary randomized response, which is computed without rows."""
    if not isinstance(given, Law):
        if hasattr(given, "num_categories"):
            raise ArgumentError.about(
                "mechanism_or_epsilon",
                f"must be ε or a mechanism whose reports have a likelihood each, got {type(given).__name__}",
                value=given,
            )
        return None
    if given.num_categories != logits.shape[-1]:
        raise ArgumentError(
            f"the mechanism has {given.num_categories} categories and the logits {logits.shape[-1]}: they must be of "
            "the same values",
            argument="mechanism_or_epsilon",
        )
    if isinstance(given, CandidateResponse):
        if given.candidates.shape != logits.shape:
            raise ArgumentError(
                f"there are candidates for users {given.candidates.shape[:-1]} and logits for {logits.shape[:-1]}: "
                "take those of the same users, mechanism[rows]",
                argument="mechanism_or_epsilon",
            )
        return given.unmasked(possible)
    return None if isinstance(given, RandomizedResponse) else given


def _loss_of_categories(logits, reports, epsilon, possible):
    """The loss of k-ary randomized response."""
    reports, soft = _as_categories(reports, logits, possible)
    normalizer = log_sum(logits)
    if soft:
        log_share, epsilon = logits - normalizer[..., None], epsilon[..., None]
    else:
        log_share = _entries(logits, reports) - normalizer
    log_probability = _log_p(epsilon, logits.shape[-1]) + jnp.logaddexp(-epsilon, log_gain(epsilon) + log_share)
    if soft:
        return -short_sum(jnp.where(reports > 0, reports * log_probability, 0 * _as_weights(reports)))
    return -log_probability


def _as_weights(reports):
    """Reports that are weights of categories; NaN if one is negative."""
    return jnp.where(reports < 0, jnp.nan, reports)


def _entries(values, places):
    """The entry of each row at its place; NaN for a place outside."""
    inside = (places >= 0) & (places < values.shape[-1])
    found = jnp.take_along_axis(values, jnp.where(inside, places, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(inside, found, jnp.nan)


def _as_logits(logits, where):
    """The logits, −∞ for impossible categories; and whether each example has a possible one."""
    logits = as_array(logits, "logits")
    is_floating = jnp.issubdtype(logits.dtype, jnp.floating)
    is_batch = logits.ndim >= 1 and logits.shape[-1] >= 2
    require(is_floating and is_batch, "logits", "floats of shape [..., K] with K >= 2", logits)
    logits = gathered(jnp.asarray(logits, jax.dtypes.canonicalize_dtype(np.promote_types(np.float32, logits.dtype))))
    if where is None:
        return logits, _none_masked(logits.shape[:-1])
    where = as_array(where, "where")
    require(where.dtype == bool, "where", "booleans", where)
    try:
        where = (np if isinstance(where, np.ndarray) else jnp).broadcast_to(where, logits.shape)
    except ValueError:
        raise ArgumentError(
            f"where must broadcast to the logits' shape {logits.shape}, got {where.shape}", argument="where"
        ) from None
    possible = where.any(axis=-1)
    # Masked examples get logits of zero, so that no derivative is undefined there.
    return jnp.where(where, logits, jnp.where(jnp.asarray(possible)[..., None], -jnp.inf, 0)), possible


def _none_masked(shape):
    """True for each example; on the host, for checks, unless sizes are symbolic by `jax.export`."""
    return (np if all(isinstance(size, int) for size in shape) else jnp).ones(shape, bool)


def _without_masked(reports, possible):
    """The reports, with a valid report in place of each masked one."""
    reports = as_array(reports, "reports")
    is_per_example = reports.shape[: possible.ndim] == possible.shape
    require(is_per_example, "reports", f"one for each of the examples {tuple(possible.shape)}", reports)
    if isinstance(reports, Tracer) or isinstance(possible, Tracer):
        return reports
    known = np.asarray(possible)
    if known.all():
        return reports
    reports = np.array(reports)
    reports[~known] = reports[known][0] if known.any() else 0
    return reports


def _as_categories(reports, logits, possible):
    """Reports of randomized response, and whether they are weights of all categories; zero for masked examples."""
    soft = jnp.issubdtype(reports.dtype, jnp.floating)
    if soft:
        require(reports.shape == logits.shape, "reports", f"integers, or weights of shape {logits.shape}", reports)
        if not isinstance(reports, Tracer) and (np.asarray(reports) < 0).any():
            raise ArgumentError.about("reports", "that are floats are weights of categories, and one is negative")
        reports = jnp.asarray(reports, logits.dtype)
    else:
        is_per_example = reports.shape == logits.shape[:-1]
        require(is_per_example, "reports", f"integers of shape {logits.shape[:-1]}", reports)
        reports = as_values(reports, logits.shape[-1], "reports")
    possible = jnp.asarray(possible)
    return jnp.where(possible[..., None] if soft else possible, reports, 0), soft


def _as_epsilon(given, logits, possible):
    """ε of each example `[*s]`; NaN if it is not positive."""
    epsilon = given.epsilon if isinstance(given, RandomizedResponse) else given
    return as_epsilons(epsilon, logits.shape[:-1], logits.dtype, possible)
