"""What is shared by protocols that randomize one of g answers twice, both times by randomized response."""

from __future__ import annotations

import abc
import dataclasses

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float, Int, Shaped

from rrjax.data.arguments import as_scalar, float_dtype
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates
from rrjax.mechanisms.longitudinal.protocol import TwoStages, as_positive, mixture_of_rows, second_odds
from rrjax.mechanisms.mechanism import numbers_if
from rrjax.mechanisms.randomized_response import RandomizedResponse
from rrjax.numerics.sharding import aligned, repeat
from rrjax.numerics.sums import expm1_epsilon


@dataclasses.dataclass(frozen=True)
class Chain(TwoStages):
    """A protocol whose memo is one of g answers, and whose reports are too."""

    @property
    @abc.abstractmethod
    def num_answers(self) -> int:
        """The number of answers, g."""

    @property
    def num_memos(self) -> int:
        """The largest number of memos of one user, g: g·ε∞ bounds the loss where memos have the same pattern."""
        return self.num_answers

    @property
    def permanent(self) -> Rates:
        """The first randomization, randomized response over g at ε∞."""
        return RandomizedResponse(self.num_answers, self.epsilon).rates

    @property
    def instantaneous(self) -> Rates:
        """The second one, randomized response over g: d₂ = d(ε₁)/d(ε∞)."""
        weights = Rates(1, self.num_answers - 1, self._second_odds)
        return weights.astype(float_dtype())

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        """The ε of so many reports of one value.

        log(1 + (e^ε∞ − 1)(R − 1)/(R + g − 2 + e^ε∞)) with R = e^{T·ε₂}: that of T reports that all name one answer.

        Args:
            num_reports: T, at least 1.

        Returns:
            Scalar, nats: ε₁ of one, and towards ε∞; NaN where a traced ε makes no sense.

        Raises:
            ValueError: T not a positive integer.
        """
        number = as_positive(num_reports, "num_reports")
        e_last = expm1_epsilon(as_scalar(self.epsilon, float_dtype()))
        repeated = number * jnp.log1p(self._second_odds)  # log R
        return jnp.log1p(e_last * -jnp.expm1(-repeated) / (1 + (self.num_answers - 1 + e_last) * jnp.exp(-repeated)))

    @property
    def _second_odds(self) -> Float[Array, ""]:
        return second_odds(self.num_answers, self.epsilon, self.first_epsilon)

    def _permanent_answer(self, key: Array, answer: Int[Array, ""]) -> Int[Array, ""]:
        """That to one answer, of a user with this secret: the same whenever it is drawn."""
        own = jax.random.fold_in(key, answer.astype(jnp.uint32))
        return RandomizedResponse(self.num_answers, self.epsilon).randomize(own, answer)

    def _randomized_again(self, key: Array, memo: Int[Array, "*s"]) -> Int[Array, "*s"]:
        return RandomizedResponse(self.num_answers, jnp.log1p(self._second_odds)).randomize(key, memo)

    def _mixture(
        self,
        answers: Int[Array, "N T"],
        supported: Int[Array, "U K"],
        named: Int[Array, "U T"],
        numbers: Int[Array, " U"],
    ) -> Mixture:
        """Σ_z R^{n_z} + (e^ε∞ − 1)·Σ_i R^{n_i}·θ_i, R = e^ε₂, of n_z reports that name z and n_i that support i.

        Args:
            answers: The reports.
            supported: Of each kind of user, how many reports support each category.
            named: Of each kind, `times_named`.
            numbers: Of users of each kind.

        Returns:
            `Mixture`. In log space: R^T is no float. Under tracing, unusable where an answer is none.
        """
        if isinstance(answers, Tracer):
            numbers = numbers_if((answers >= 0) & (answers < self.num_answers), numbers)
        return _likelihood(self, supported, named, numbers)


@jax.jit
def times_supported(protocol: Chain, reports: Shaped[Array, "N T *s"]) -> Int[Array, "N K"]:
    """How many of the reports of each user support each category."""

    def add(turn, counts):
        return counts + protocol.supports(reports[:, turn]).astype(jnp.int32)

    zeros = jnp.zeros((reports.shape[0], protocol.num_categories), jnp.int32)
    return repeat(jnp.int32(reports.shape[1]), add, aligned(zeros, reports))


@jax.jit
def times_named(answers: Int[Array, "N T"]) -> Int[Array, "N T"]:
    """How often the answer of each report is named by its user, in ascending order."""
    return jnp.sort(jnp.sum(answers[:, :, None] == answers[:, None, :], axis=2, dtype=jnp.int32), axis=1)


@jax.jit
def _likelihood(chain, supported, named, numbers):
    second = jnp.log1p(second_odds(chain.num_answers, chain.epsilon, chain.first_epsilon))
    e_last = expm1_epsilon(as_scalar(chain.epsilon, float_dtype()))
    most = named[:, -1:]

    def power(times):
        return jnp.exp((times - most).astype(second.dtype) * second)

    # Each report that names z adds its part of R^{n_z} − 1; answers that nobody names add 1 each.
    parts = power(named) * -jnp.expm1(-named.astype(second.dtype) * second) / named.astype(second.dtype)
    noise = chain.num_answers * power(jnp.zeros_like(most))[:, 0] + jnp.sum(parts, axis=1)
    return mixture_of_rows(numbers, noise, e_last * power(supported))
