"""Training on randomized labels: losses under predicted distributions, and response among public candidates.

A model predicts softmax(logits) for the value of a user; a mechanism makes the user's report. `rr_loss` is the negative
log-likelihood of the report under both, in log space throughout. It needs no K×K matrix and subtracts no nearly equal
numbers, so that it is accurate to the dtype for every ε.

Candidates are the labels that a prior finds likely, such as that of a model trained on private or public labels. A user
whose label is one of k candidates reports it with p = e^ε/(e^ε+k−1), and each other candidate with q = 1/(e^ε+k−1). A
user whose label is no candidate reports each candidate with 1/k. As k·q ≤ 1 ≤ k·p, the probabilities of a report under
two labels differ at most by the factor p/q = e^ε. With few candidates, a label among them is reported far more often
than by randomized response over all K.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_array, as_epsilons, as_values, check_key, float_dtype
from rrjax.data.categories import check_num_categories
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms import Channel, Mechanism, RandomizedResponse, SupportMechanism
from rrjax.mechanisms.draws import below, number_below, threshold
from rrjax.mechanisms.mechanism import LogRows, log_gain
from rrjax.models.results import require
from rrjax.numerics.pytrees import pytree
from rrjax.numerics.sharding import with_whole_axis
from rrjax.numerics.sums import expm1_epsilon, log_sum, short_sum

_SUM_TOLERANCE = 1e-2
"""Allowed difference of a prior's sum from one, such as the rounding of a softmax in bfloat16."""


@pytree()
class CandidateResponse:
    """Randomized response among candidates, different for each user (RRTopK). A pytree of arrays.

    `rr_loss` and `fit` take it as a mechanism. Its reports have no tally, because each has its own law.

    Args:
        candidates: `[*s, K]`, booleans: the candidates of each user, at least one. They must not depend on the user's
            label. With all labels it is k-ary randomized response; a single candidate is always reported.
        epsilon: Scalar or `[*s]`, nats, or what broadcasts to that.

    Raises:
        ValueError: Shapes that do not fit, or (not under tracing) a user without a candidate, or an ε that is not
            positive.

    Example:
        >>> import jax
        >>> from rrjax.models import CandidateResponse, rr_loss
        >>> mechanism = CandidateResponse([[True, True, False, False], [False, True, True, True]], epsilon=1.0)
        >>> reports = mechanism.randomize(jax.random.key(0), [0, 3])
        >>> reports.tolist()
        [1, 1]
        >>> [round(x, 3) for x in rr_loss(jax.numpy.zeros((2, 4)), reports, mechanism).tolist()]
        [0.693, 1.099]

    References:
        Ghazi, Golowich, Kumar, Manurangsi and Zhang, "Deep learning with label differential privacy", NeurIPS 2021:
        arXiv:2102.06062, algorithm 1.
    """

    candidates: Bool[Array, "*s K"]
    epsilon: Float[Array, "*s"]

    def __post_init__(self) -> None:
        """Checks the arguments, and broadcasts ε to the users."""
        given = as_array(self.candidates, "candidates")
        is_batch = given.ndim >= 1 and given.shape[-1] >= 2
        require(given.dtype == bool and is_batch, "candidates", "booleans of shape [..., K] with K >= 2", given)
        if not isinstance(given, Tracer):
            without = np.argwhere(~np.asarray(given).any(axis=-1))
            if len(without):
                place = _numbered("example", without[0])
                raise ArgumentError(
                    f"{place} has no candidates: each needs at least one, such as the likeliest label",
                    argument="candidates",
                )
        object.__setattr__(self, "candidates", jnp.asarray(given))
        object.__setattr__(self, "epsilon", as_epsilons(self.epsilon, given.shape[:-1], float_dtype()))

    def __getitem__(self, rows: Any) -> CandidateResponse:
        """The mechanism of some users, such as a minibatch: `mechanism[rows]` for `reports[rows]`."""
        return jax.tree.map(lambda leaf: leaf[rows], self)

    @property
    def num_categories(self) -> int:
        """K."""
        return self.candidates.shape[-1]

    @property
    def num_candidates(self) -> Int[Array, "*s"]:
        """Number of candidates of each user, k."""
        return jnp.sum(self.candidates, axis=-1, dtype=jnp.int32)

    def randomize(self, key: Array, labels: ArrayLike) -> Int[Array, "*s"]:
        """Randomized reports of labels, for simulations.

        A 64-bit draw decides whether a label among the candidates is kept, with p·2⁶⁴ rounded down, so that rounding
        never weakens ε. Another draw chooses among the other candidates.

        Args:
            key: A typed key, `jax.random.key(seed)`.
            labels: `[*s]`, integers in 0 … K − 1.

        Returns:
            Reports `[*s]`, int32, a candidate each. Under tracing, −1 for a label outside the domain, a user without a
            candidate, or an ε that is not positive.

        Raises:
            ValueError: Another shape, or (not under tracing) an invalid label.
        """
        check_key(key)
        return _randomize(key, self._of_users(labels, "labels"), self.candidates, self.epsilon)

    def log_rows(self, reports: ArrayLike) -> LogRows:
        """The likelihood of each report in logarithms: p·(e^−ε + (1 − e^−ε)·(θ_report + (1 − θ(candidates))/k)).

        Args:
            reports: `[*s]`, integers, each a candidate.

        Returns:
            `LogRows`; NaN under tracing for a report that is no candidate.

        Raises:
            ValueError: Another shape, or (not under tracing) a report that is not among its user's candidates.
        """
        reports = self._of_users(reports, "reports")
        named = _named(reports, self.candidates)
        valid = jnp.any(named, axis=-1)
        if not isinstance(valid, Tracer):
            wrong = np.argwhere(~np.asarray(valid))
            if len(wrong):
                place = tuple(wrong[0])
                known = np.flatnonzero(np.asarray(self.candidates)[place])
                shown = ", ".join(map(str, known[:8])) + (", …" if known.size > 8 else "")
                raise ArgumentError(
                    f"{_numbered('report', place)} is {int(reports[place])}, which is none of its candidates "
                    f"({shown}): reports and candidates must be of the same users, in the same order",
                    argument="reports",
                )
        number = self.num_candidates.astype(self.epsilon.dtype)
        gain = log_gain(self.epsilon)[..., None]
        outside = jnp.where(self.candidates, -jnp.inf, gain - jnp.log(number)[..., None])
        # NaN in the lift, too, so that derivatives of invalid reports are NaN.
        lift = jnp.where(valid[..., None], jnp.where(named, gain, outside), jnp.nan)
        return LogRows(-jnp.log1p((number - 1) * jnp.exp(-self.epsilon)), -self.epsilon, lift)

    def unmasked(self, possible: Bool[Array, "*s"]) -> CandidateResponse:
        """The mechanism with all labels as candidates of the masked users, which `rr_loss` omits."""
        masked = ~jnp.asarray(possible)
        return CandidateResponse(self.candidates | masked[..., None], jnp.where(masked, 1, self.epsilon))

    def _of_users(self, given, name):
        array = as_values(given, self.num_categories, name)
        users = self.candidates.shape[:-1]
        require(array.shape == users, name, f"one for each of the users {tuple(users)}", array)
        return array


def rr_with_prior(
    prior: ArrayLike, epsilon: ArrayLike, *, num_candidates: ArrayLike | None = None
) -> CandidateResponse:
    """Randomized response among the k labels that a prior finds likeliest (RRWithPrior).

    By default k is chosen for each user to maximize the probability that the report is the label, under the prior:
    p_k·Σ_{top k} prior, with p_k = e^ε/(e^ε+k−1). It is the largest for any mechanism with this ε.

    Args:
        prior: `[*s, K]`, probabilities of the labels of each user, such as a model's softmax. They must not depend on
            the label that is randomized. Of equally likely labels the first one is preferred.
        epsilon: Scalar or `[*s]`, nats, or what broadcasts to that.
        num_candidates: k, an integer from 1 to K, or one for each user, `[*s]` (RRTopK); None chooses it.

    Returns:
        `CandidateResponse`. Under tracing, a user whose prior is no distribution has no candidates: reports are −1 and
        losses NaN. Not differentiable in the prior.

    Raises:
        ValueError: Shapes that do not fit, or (not under tracing) a row that is negative, NaN or does not add up to
            one, an ε that is not positive, or a k out of range.

    Example:
        >>> import jax
        >>> from rrjax.models import rr_with_prior
        >>> prior = [[0.6, 0.3, 0.05, 0.05], [0.25, 0.25, 0.25, 0.25]]
        >>> [rr_with_prior(prior, epsilon).num_candidates.tolist() for epsilon in (0.5, 2.0, 8.0)]
        [[1, 4], [2, 4], [4, 4]]

    References:
        Ghazi et al., arXiv:2102.06062, algorithm 2.
    """
    prior = with_whole_axis(_as_prior(prior))
    batch, size = prior.shape[:-1], prior.shape[-1]
    epsilon = as_epsilons(epsilon, batch, prior.dtype)
    order = jnp.argsort(prior, axis=-1, descending=True, stable=True)
    places = jnp.arange(size, dtype=jnp.int32)
    if num_candidates is None:
        cumulative = jnp.cumsum(jnp.take_along_axis(prior, order, axis=-1), axis=-1)
        kept = cumulative / (1 + places.astype(prior.dtype) * jnp.exp(-epsilon)[..., None])
        number = 1 + jnp.argmax(kept, axis=-1).astype(jnp.int32)
    else:
        given = as_array(num_candidates, "num_candidates")
        is_integer = given.dtype.kind in "iu" and given.shape in ((), batch)
        require(is_integer, "num_candidates", f"an integer, or one for each of the users {batch}", given)
        if not isinstance(given, Tracer):
            wrong = np.asarray(given)[~((np.asarray(given) >= 1) & (np.asarray(given) <= size))]
            if wrong.size:
                raise ArgumentError.about("num_candidates", f"must be from 1 to {size}, got {wrong.flat[0]}")
        number = jnp.broadcast_to(jnp.asarray(given).astype(jnp.int32), batch)
    usable = jnp.all(prior >= 0, axis=-1) & (jnp.abs(jnp.sum(prior, axis=-1) - 1) <= _SUM_TOLERANCE) & (number <= size)
    first = (places < number[..., None]) & usable[..., None]
    candidates = jnp.put_along_axis(jnp.zeros(prior.shape, bool), order, first, axis=-1, inplace=False)
    return CandidateResponse(candidates, epsilon)


def _as_prior(prior):
    prior = as_array(prior, "prior")
    is_floating = jnp.issubdtype(prior.dtype, jnp.floating)
    is_batch = prior.ndim >= 1 and prior.shape[-1] >= 2
    require(is_floating and is_batch, "prior", "probabilities of shape [..., K] with K >= 2", prior)
    if not isinstance(prior, Tracer):
        known = np.asarray(prior, np.float64)
        wrong = np.argwhere(~((known >= 0).all(axis=-1) & (np.abs(known.sum(axis=-1) - 1) <= _SUM_TOLERANCE)))
        if len(wrong):
            row = known[tuple(wrong[0])]
            least, total = row.min(), row.sum()
            problem = "has NaN" if np.isnan(total) else f"has {least:g}" if least < 0 else f"adds up to {total:g}"
            raise ArgumentError(
                f"{_numbered('row', wrong[0])} of prior {problem}: each row is a distribution over the labels, such as "
                "jax.nn.softmax(logits)",
                argument="prior",
            )
    return jnp.asarray(prior, jax.dtypes.canonicalize_dtype(np.promote_types(np.float32, prior.dtype)))


def _numbered(noun, place):
    """A noun with its place; a single user has no place."""
    return f"{noun} {', '.join(map(str, place))}" if len(place) else f"the {noun}"


def _named(labels, candidates):
    """`[*s, K]`: true at the label, if it is a candidate."""
    return candidates & (labels[..., None] == jnp.arange(candidates.shape[-1], dtype=labels.dtype))


def _kept(number, epsilon):
    """The threshold of a label among `number` candidates: p·2⁶⁴, less the largest rounding error.

    The choice among the other candidates, which is uniform to k/2⁶⁴, also counts as an error.
    """
    e1 = expm1_epsilon(epsilon)
    number = number.astype(e1.dtype)
    return threshold((1 + e1) / (number + e1), -(4 * jnp.finfo(e1.dtype).eps + number * 2.0**-63))


@jax.jit
def _randomize(key, labels, candidates, epsilon):
    named = _named(labels, candidates)
    is_candidate = jnp.any(named, axis=-1)
    number = jnp.sum(candidates, axis=-1, dtype=jnp.uint32)
    own, other = jax.random.bits(key, (2, 2, *labels.shape), jnp.uint32)
    # A single candidate is certain.
    kept = is_candidate & ((number == 1) | below((own[0], own[1]), _kept(number, epsilon)))
    others = candidates & ~named
    place = number_below((other[0], other[1]), number - is_candidate.astype(jnp.uint32)).astype(jnp.int32)
    chosen = others & (jnp.cumsum(others, axis=-1, dtype=jnp.int32) == place[..., None] + 1)
    reports = jnp.where(kept, labels.astype(jnp.int32), jnp.argmax(chosen, axis=-1).astype(jnp.int32))
    usable = (labels >= 0) & (labels < candidates.shape[-1]) & (number > 0) & (epsilon > 0)
    return jnp.where(usable, reports, -1)


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
    entries = jnp.take_along_axis(values, jnp.where(inside, places, 0)[..., None], axis=-1)[..., 0]
    return jnp.where(inside, entries, jnp.nan)


def _as_logits(logits, where):
    """The logits, −∞ for impossible categories; and whether each example has a possible one."""
    logits = as_array(logits, "logits")
    is_floating = jnp.issubdtype(logits.dtype, jnp.floating)
    is_batch = logits.ndim >= 1 and logits.shape[-1] >= 2
    require(is_floating and is_batch, "logits", "floats of shape [..., K] with K >= 2", logits)
    logits = with_whole_axis(
        jnp.asarray(logits, jax.dtypes.canonicalize_dtype(np.promote_types(np.float32, logits.dtype)))
    )
    if where is None:
        # On the host, for checks, unless sizes are symbolic by `jax.export`.
        xp = np if all(isinstance(size, int) for size in logits.shape[:-1]) else jnp
        return logits, xp.ones(logits.shape[:-1], bool)
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
