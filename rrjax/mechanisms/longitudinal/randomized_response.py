"""Longitudinal randomized response: k-ary randomized response of a memo that k-ary randomized response made."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int

from rrjax.data.arguments import as_values, check_key
from rrjax.data.mixture import Mixture
from rrjax.mechanisms.longitudinal import histories
from rrjax.mechanisms.longitudinal.chain import Chain, times_named, times_supported
from rrjax.mechanisms.longitudinal.protocol import check_rounds, for_each_user, kinds
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.numerics.pytrees import register


@register(data_fields=["epsilon", "first_epsilon"], meta_fields=["num_categories"])
@dataclasses.dataclass(frozen=True)
class LongitudinalRandomizedResponse(Chain):
    """Longitudinal randomized response (L-GRR, L-RR). A pytree; `num_categories` is static.

    The memo is a category, drawn by randomized response at ε∞; a report is one too, drawn from the memo. Both in a row
    are randomized response at ε₁ for any K, because every path from one category to another is counted: with
    q = p1·q2 + q1·p2 + (K − 2)·q1·q2. Where the last term is left out, as it has been, a report delivers another ε than
    the one that is said, and estimates are biased for K > 2.

    Args:
        num_categories: K, an integer, at least 2.
        epsilon: ε∞, scalar, nats, of any number of reports of one value.
        first_epsilon: ε₁, scalar, nats, of a single report; less than ε∞.

    Raises:
        ValueError: K < 2, an ε that is a number and not positive, or ε₁ not below ε∞.

    Example:
        >>> import jax, rrjax
        >>> protocol = rrjax.longitudinal.LongitudinalRandomizedResponse(3, epsilon=3.0, first_epsilon=1.0)
        >>> print(f"{protocol.permanent.p:.3f} {protocol.instantaneous.p:.3f} {protocol.single_round.p:.3f}")
        0.909 0.614 0.576
        >>> memo = protocol.memoize(jax.random.key(0), [0, 0, 1, 2])
        >>> monday, tuesday = (protocol.report(jax.random.key(day), memo) for day in (1, 2))
        >>> int(protocol.tally(monday).num_users)
        4
        >>> print(f"{protocol.epsilon_after(2):.3f} {protocol.epsilon_after(100):.3f}")
        1.885 3.000

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, "Improving the utility of locally differentially private protocols for
        longitudinal and multidimensional frequency estimates", 2022: arXiv:2111.04636.
    """

    @property
    def num_answers(self) -> int:
        """K."""
        return self.num_categories

    @property
    def single_round(self) -> RandomizedResponse:
        """Randomized response at ε₁."""
        return RandomizedResponse(self.num_categories, self._first)

    def _loss(self, history, other):
        return histories.loss_of_answers(history, other, self.permanent, self.instantaneous, self.num_categories)

    def memoize(self, key: Array, values: ArrayLike) -> Int[Array, "*s"]:
        """The memo of each user for the value that the user has now: `Protocol.memoize`.

        Args:
            key: A typed key; the same in all rounds.
            values: Integers in 0 … K − 1, any shape: one a user, in the same order in all rounds.

        Returns:
            Int32, the shape of `values`. Under tracing, −1 for a value outside the domain.

        Raises:
            ValueError: Values that are not integers, or (not under tracing) outside the domain.
        """
        check_key(key)
        return _memoize(self, key, as_values(values, self.num_categories, "values"))

    def report(self, key: Array, memo: ArrayLike) -> Int[Array, "*s"]:
        """Makes the reports of one round.

        Args:
            key: A typed key, another one in every round.
            memo: From `memoize`.

        Returns:
            Reports, int32 in 0 … K − 1, the shape of `memo`; under tracing −1 where there is no memo.

        Raises:
            ValueError: A memo that is not of categories.
        """
        check_key(key)
        return self._randomized_again(key, as_values(memo, self.num_categories, "memo"))

    def mixture(self, reports: ArrayLike) -> Mixture:
        """The likelihood of all reports of each user together, whose value was the same in all rounds.

        A user whose reports name category z so many as n_z times has Σ_z R^{n_z} + (e^ε∞ − 1)·Σ_i R^{n_i}·θ_i, up to a
        factor, with R = e^ε₂.

        Args:
            reports: `[N, T]`, T reports of each of N users.

        Returns:
            `Mixture`, a row for every kind of user that is different (under tracing, for every user).

        Raises:
            ValueError: Another shape, no users, or as `rrjax.count`.
        """
        reports = as_values(reports, self.num_categories, "reports")
        check_rounds(reports, "[N, T]", 2)
        # In order, so that K numbers are needed for each kind of user and not for each user.
        histories, numbers = kinds(jnp.sort(reports.astype(jnp.int32), axis=1))
        return self._mixture(histories, times_supported(self, histories), times_named(histories), numbers)


@jax.jit
def _memoize(protocol, key, values):
    memo = for_each_user(protocol._permanent_answer, key, (values.ravel(),), 1)
    return memo.reshape(values.shape)
