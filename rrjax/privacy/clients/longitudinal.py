"""Clients of longitudinal protocols for real collection: permanent answers of many users, and reports made from them.

`Memo` keeps the answers of one user on a device. Here a collector who holds the true values keeps those of all users.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from rrjax.data.errors import ArgumentError
from rrjax.numerics.threefry import buckets_of
from rrjax.privacy.clients.base import random_words
from rrjax.privacy.clients.memo import second_epsilon
from rrjax.privacy.clients.table import client


@runtime_checkable
class Randomizer(Protocol):
    """What makes reports of values: a client, or a mechanism with the key of a simulation."""

    def randomize(self, values: np.ndarray) -> np.ndarray:
        """Reports of values `[N]`."""
        ...


class LongitudinalClient:
    """Makes the permanent answers and the reports of users by a longitudinal protocol.

    A permanent answer is drawn once for each *key* of a user: for each value or, with local hashing, for each bucket of
    the user's hash function. Whoever draws it keeps it; every report is made from it.

    Args:
        name: "longitudinal-randomized-response", "longitudinal-local-hashing", "longitudinal-unary-encoding" (the
            permanent answer by optimized, the report by symmetric unary encoding), or
            "longitudinal-symmetric-unary-encoding" (both by symmetric unary encoding: basic RAPPOR).
        num_categories: K, at least 2.
        epsilon: ε∞, nats, for any number of reports of one value.
        first_epsilon: ε₁, nats, for a single report; less than ε∞.
        num_buckets: g of local hashing; None is the best g for a single round.
        make: A function of the name of a mechanism, K and ε that returns a `Randomizer`. By default the clients of
            `rrjax.secure`.
        words: A function of N that returns N random words of 32 bits, the seeds of hash functions.

    Attributes:
        parameters: The arguments that recreate the protocol in `rrjax.mechanisms.PROTOCOLS`.

    Raises:
        ArgumentError: Another name, or parameters that make no protocol.

    Example:
        >>> import numpy as np
        >>> device = LongitudinalClient("longitudinal-randomized-response", 4, epsilon=3.0, first_epsilon=1.0)
        >>> seeds, values = device.seeds(3), np.array([0, 3, 2])
        >>> answers = device.memoize(device.keys(seeds, values))  # once
        >>> device.report(seeds, answers).shape  # in every round
        (3,)

    References:
        Arcolezi, Couchot, Al Bouna and Xiao, 2022: arXiv:2111.04636; Arcolezi, Pinzón, Palamidessi and Gambs, 2023:
        arXiv:2210.00262.
    """

    def __init__(
        self,
        name: str,
        num_categories: int,
        epsilon: float,
        first_epsilon: float,
        *,
        num_buckets: int | None = None,
        make: Callable[[str, int, float], Randomizer] = client,
        words: Callable[[int], np.ndarray] | None = None,
    ) -> None:
        """Checks the parameters."""
        self.name, self.num_categories = name, num_categories
        self.parameters: dict[str, Any] = {
            "num_categories": num_categories,
            "epsilon": epsilon,
            "first_epsilon": first_epsilon,
        }
        permanent, size = "randomized-response", num_categories
        if name == "longitudinal-local-hashing":
            known = client("optimized-local-hashing", num_categories, first_epsilon, num_buckets=num_buckets)
            size = self.parameters["num_buckets"] = known.parameters["num_buckets"]
        elif name == "longitudinal-unary-encoding":
            permanent, size = "optimized-unary-encoding", 2  # each bit is randomized again by itself
        elif name == "longitudinal-symmetric-unary-encoding":
            permanent, size = "symmetric-unary-encoding", 2
        elif name != "longitudinal-randomized-response":
            raise ArgumentError(f"no client for {name!r}", argument="name", value=name)
        if num_buckets is not None and "num_buckets" not in self.parameters:
            raise ArgumentError(f"{name} has no num_buckets: leave it out", argument="num_buckets", value=num_buckets)
        self._num_answers = size
        between = second_epsilon(size, epsilon, first_epsilon)
        if permanent == "symmetric-unary-encoding":  # each of its bits is a randomized response at half of ε
            between = second_epsilon(size, epsilon / 2, first_epsilon / 2)
        self._permanent = make(permanent, num_categories if permanent != "randomized-response" else size, epsilon)
        self._instant = make("randomized-response", size, between)
        self._words = words or (lambda number: random_words(number, 1)[:, 0].astype(np.uint32))

    @property
    def effective_epsilon(self) -> float:
        """The ε∞ delivered, nats: at most the one asked for. NaN for a simulation."""
        return getattr(self._permanent, "effective_epsilon", math.nan)

    @property
    def hashes(self) -> bool:
        """Whether users have hash functions."""
        return "num_buckets" in self.parameters

    def seeds(self, number: int) -> np.ndarray:
        """The seeds of the hash functions of new users, uint32 `[N]`; zero for other protocols."""
        return self._words(number) if self.hashes else np.zeros(number, np.uint32)

    def keys(self, seeds: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The key of each user's value, int32 `[N]`; the answer of a key is permanent."""
        if not self.hashes:
            return values.astype(np.int32)
        return buckets_of(seeds, values.astype(np.uint32), np.uint32(self._num_answers), np).astype(np.int32)

    def memoize(self, keys: np.ndarray) -> np.ndarray:
        """Permanent answers of new keys: integers `[N]`, or bits `[N, K]`."""
        return np.asarray(self._permanent.randomize(keys))

    def report(self, seeds: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Reports of one round from permanent answers: integers `[N]`, bits `[N, K]`, or seeds and buckets `[N, 2]`."""
        made = np.asarray(self._instant.randomize(answers.astype(np.int32)))
        if self.hashes:
            return np.stack([seeds, made.astype(np.uint32)], axis=1)
        return made.astype(bool) if answers.ndim == 2 else made
