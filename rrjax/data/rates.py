"""The two probabilities of a pure mechanism, and the variances that follow; JAX is not imported."""

from __future__ import annotations

from typing import Any, NamedTuple


class Rates(NamedTuple):
    """The two probabilities of a pure mechanism, as three weights in which nothing cancels.

    A report supports a category always, whoever holds it, with probability q; never with 1 − p; and if and only if its
    user holds it with d = p − q. The weights are these three up to a common factor: 1, K − 1 and e^ε − 1 for k-ary
    randomized response. Plain numbers, or scalars of JAX.

    Attributes:
        always: q.
        never: 1 − p.
        truth: d.
    """

    always: Any
    never: Any
    truth: Any

    @classmethod
    def of(cls, p: Any, q: Any) -> Rates:
        """The rates with these probabilities."""
        return cls(q, 1 - p, p - q)

    @classmethod
    def of_design(cls, e1: Any, size: Any, pairs: Any) -> Rates:
        """Those of a block design: a report is a block, drawn with e^ε to one from those that hold the category.

        Args:
            e1: e^ε − 1.
            size: For each block that holds a category, how many there are in all: b/r.
            pairs: Of the blocks that hold a category, how many hold another one too: λ/r, the share for any two.

        References:
            Nam and Lee, "Optimal private discrete distribution estimation with one-bit communication", 2024;
            arXiv:2508.05110.
        """
        return cls(1 + pairs * e1, size - 1, (1 - pairs) * e1)

    @property
    def total(self) -> Any:
        """The common factor."""
        return self.truth + (self.always + self.never)

    @property
    def p(self) -> Any:
        """How often a report supports the category that its user holds."""
        return (self.always + self.truth) / self.total

    @property
    def q(self) -> Any:
        """How often it supports any other one."""
        return self.always / self.total

    @property
    def d(self) -> Any:
        """How often what it supports depends on its user: p − q, without cancellation."""
        return self.truth / self.total

    @property
    def not_p(self) -> Any:
        """1 − p, without cancellation."""
        return self.never / self.total

    @property
    def not_q(self) -> Any:
        """1 − q, without cancellation."""
        return (self.truth + self.never) / self.total

    def share(self, reported: Any) -> Any:
        """The share of users that hold a category, from the probability that a report supports it; may be negative."""
        return reported + ((self.always + self.never) * reported - self.always) / self.truth

    def variance(self, share: Any) -> Any:
        """N times the variance of the unbiased estimate of a share of given users: [q(1−q) + θ(p(1−p) − q(1−q))]/d²."""
        noise = self.always * (1 + self.never / self.truth)
        return (noise + (self.never - self.always) * share) / self.truth

    def total_variance(self, num_categories: int) -> Any:
        """The same, summed over the categories: [p(1−p) + (K−1)·q(1−q)]/d², whatever the users hold."""
        spread = 1 + (num_categories - 1) * (self.always / self.never)
        return self.never * ((num_categories * self.always / self.truth + spread) / self.truth)

    def astype(self, dtype: Any) -> Rates:
        """The rates as scalars of JAX, in a floating dtype."""
        import jax.numpy as jnp  # here, because clients have rates too, and no JAX

        return Rates(*(jnp.asarray(weight, dtype) for weight in self))
