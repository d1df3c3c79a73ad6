"""Randomized response among public candidates: the labels that a prior finds likely.

A user whose label is one of k candidates reports it with p = e^ε/(e^ε+k−1), and each other candidate with
q = 1/(e^ε+k−1). A user whose label is no candidate reports each candidate with 1/k. As k·q ≤ 1 ≤ k·p, the probabilities
of a report under two labels differ at most by the factor p/q = e^ε. With few candidates, a label among them is reported
far more often than by randomized response over all K. A model trained on private or public labels can choose the
candidates.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_array, as_epsilons, as_values, check_key, float_dtype
from rrjax.data.errors import ArgumentError
from rrjax.mechanisms.draws import below, number_below, threshold
from rrjax.mechanisms.mechanism import LogRows, log_gain
from rrjax.models.results import require
from rrjax.numerics.pytrees import register
from rrjax.numerics.sharding import gathered
from rrjax.numerics.sums import expm1_epsilon

_SUM_TOLERANCE = 1e-2
"""Allowed difference of a prior's sum from one, such as the rounding of a softmax in bfloat16."""


@register(data_fields=["candidates", "epsilon"])
@dataclasses.dataclass(frozen=True)
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
    prior = gathered(_as_prior(prior))
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
