"""RAPPOR as published: words in a Bloom filter, cohorts with different hash functions, and lists of candidates.

A user sends a cohort and k bits. Each bit of the Bloom filter of the user's word is randomized once, for the memo: kept
with probability 1 − f, else drawn with even odds. Each bit of a report is set with probability q if the bit of the memo
is set, else with p. The collector has a list of candidates, and estimates the share of each. At f = 0 the memo is the
Bloom filter itself: every report spends ε₁ anew, without a limit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from rrjax.data.arguments import as_array, as_scalar, as_values, check_key, float_dtype
from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError
from rrjax.data.linear_maps import Dense
from rrjax.data.mixture import Mixture
from rrjax.data.tally import Rates
from rrjax.mechanisms.longitudinal import histories
from rrjax.mechanisms.longitudinal.protocol import again, check_rounds, drawn_bits, for_each_user, kinds
from rrjax.mechanisms.longitudinal.two_stages import BitsTwice, epsilon_of_bits
from rrjax.mechanisms.mechanism import CELLS, numbers_if
from rrjax.mechanisms.unary import are_bits, as_bits
from rrjax.numerics.products import einsum, matmul
from rrjax.numerics.pytrees import exportable, pytree
from rrjax.numerics.sharding import take_at
from rrjax.numerics.solvers import LeastSquares, least_squares


@exportable
class CohortBits(NamedTuple):
    """Memos or reports of RAPPOR.

    Attributes:
        cohorts: `[N]`, integers in 0 … m − 1.
        bits: `[N, k]`, or of T rounds `[N, T, k]`, booleans or integers 0 and 1.
    """

    cohorts: Any
    bits: Any


@pytree("num_hashes")
class Rappor:
    """RAPPOR: the client for simulations, and two decoders. A pytree; `num_hashes` is static.

    Args:
        filters: `[m, K, k]`, booleans, Bloom filters of the candidates, from `bloom_filters`. Category i is word number
            i.
        num_hashes: h, at least the number of bits that a word sets.
        f: Scalar in [0, 1), the share of bits of the memo that are drawn with even odds. At 0 nothing is permanent: ε∞
            is infinite, and T reports spend T·ε₁.
        p: Scalar in (0, 1), the probability that a bit not set in the memo is reported set.
        q: Scalar in (0, 1), the probability that a bit set in the memo is reported set; more than p.

    Raises:
        ValueError: Shapes or dtypes that do not fit, or (not under tracing) probabilities out of range.

    Example:
        >>> import jax, numpy as np, rrjax
        >>> words = ["red", "green", "blue", "black"]
        >>> rappor = rrjax.longitudinal.Rappor(rrjax.longitudinal.bloom_filters(words, 16, 2, num_cohorts=8), 2)
        >>> print(f"{rappor.epsilon:.2f} {rappor.first_epsilon:.2f}")
        4.39 1.07
        >>> memo = rappor.memoize(jax.random.key(0), np.repeat([0, 1, 2], [6000, 3000, 1000]))
        >>> reports = rappor.report(jax.random.key(1), memo)
        >>> print(f"{rrjax.ibu(rappor.mixture(reports)).theta[0]:.1f} {rappor.regression(reports).theta[0]:.1f}")
        0.6 0.6

    References:
        Erlingsson, Pihur and Korolova, "RAPPOR: Randomized aggregatable privacy-preserving ordinal response", 2014.
    """

    filters: Bool[ArrayLike, "m K k"]
    num_hashes: int
    f: ArrayLike = 0.5
    p: ArrayLike = 0.5
    q: ArrayLike = 0.75

    def __post_init__(self) -> None:
        filters = self.filters if isinstance(self.filters, jax.Array) else np.asarray(self.filters)
        object.__setattr__(self, "filters", filters)
        if filters.ndim != 3 or filters.dtype != bool or 0 in filters.shape:
            raise ArgumentError.about(
                "filters", f"must be booleans of shape [m, K, k], got {filters.dtype} of {filters.shape}"
            )
        if filters.shape[1] < 2:
            raise ArgumentError(
                "filters must have at least two candidates: with one there is nothing to estimate", argument="filters"
            )
        if not isinstance(filters, Tracer) and not 1 <= int(np.asarray(filters).sum(axis=2).max()) <= self.num_hashes:
            raise ArgumentError(
                f"filters set more bits a word than num_hashes = {self.num_hashes}, or none",
                argument="num_hashes",
                value=self.num_hashes,
            )
        numbers = {name: value for name in ("f", "p", "q") if isinstance(value := getattr(self, name), int | float)}
        for name, value in numbers.items():
            zero = " or be 0, without permanent noise" if name == "f" else ""
            if not (0 < value < 1 or (zero and value == 0)):
                raise ArgumentError.about(name, f"must lie between 0 and 1{zero}, got {value:g}", value=value)
        if "p" in numbers and "q" in numbers and not self.p < self.q:  # pyright: ignore[reportOperatorIssue]
            raise ArgumentError(f"p must be below q, got p = {self.p:g} and q = {self.q:g}", argument="p", value=self.p)

    @property
    def num_categories(self) -> int:
        """K, the number of candidates."""
        return np.shape(self.filters)[1]

    @property
    def permanent(self) -> Rates:
        """The first randomization of each bit: p1 = 1 − f/2 and q1 = f/2."""
        f = as_scalar(self.f, float_dtype(), "f")
        f = jnp.where((f >= 0) & (f < 1), f, jnp.nan)
        return Rates(f / 2, f / 2, 1 - f)

    @property
    def instantaneous(self) -> Rates:
        """The second randomization: q for set bits of the memo, p for the others."""
        p, q = (as_scalar(each, float_dtype(), name) for each, name in ((self.p, "p"), (self.q, "q")))
        possible = (p > 0) & (p < q) & (q < 1)
        return Rates(*(jnp.where(possible, weight, jnp.nan) for weight in (p, 1 - q, q - p)))

    @property
    def _bits(self) -> BitsTwice:
        return BitsTwice(self.permanent, self.instantaneous)

    @property
    def epsilon(self) -> Float[Array, ""]:
        """ε∞ = 2h·log((1 − f/2)/(f/2)), nats, of any number of reports of one word; for words without a common bit.

        Infinite at f = 0.
        """
        return self.num_hashes * epsilon_of_bits(self.permanent)

    @property
    def first_epsilon(self) -> Float[Array, ""]:
        """ε₁ = h·log(q*(1 − p*)/(p*(1 − q*))), nats, of one report, with q* and p* of both randomizations in a row."""
        return self.num_hashes * epsilon_of_bits(self._bits.rates)

    def epsilon_after(self, num_reports: int) -> Float[Array, ""]:
        """The ε of T reports of one word, nats: `Protocol.epsilon_after`."""
        number = as_integer(num_reports, "num_reports", 1)
        return self.num_hashes * self._bits.epsilon_after(number)

    def history_loss(self, history: ArrayLike, other: ArrayLike) -> float:
        """The privacy loss of two histories of words, in the cohort where it is largest: `Protocol.history_loss`.

        At most ε∞ for each memo if the histories have the same pattern, unbounded otherwise.
        """
        one, two, words = histories.numbered(history, other, self.num_categories)
        cohorts = np.asarray(self.filters)[:, words]
        return float(max(histories.loss_of_bits(one, two, *self._bits, held).max() for held in cohorts))

    def memoize(self, key: Array, values: ArrayLike) -> CohortBits:
        """The memo of each user for the current word: `Protocol.memoize`, with `values` of shape `[N]`.

        The key of user u is `fold_in(key, u)`; it determines the cohort and a memo for each word. Under tracing, the
        cohort of a value outside the domain is −1.
        """
        check_key(key)
        values = as_values(values, self.num_categories, "values")
        if values.ndim != 1:
            raise ArgumentError(f"values must have shape [N], one a user; got {values.shape}", argument="values")
        return _memoize(self, key, values)

    def report(self, key: Array, memo: CohortBits) -> CohortBits:
        """The reports of one round, from the memo of `memoize`: `Protocol.report`."""
        check_key(key)
        cohorts, bits = self._checked(memo, "[N, k]", 2)
        return CohortBits(cohorts, again(key, bits, self.instantaneous))

    def bit_counts(self, reports: CohortBits) -> tuple[Int[Array, " m"], Int[Array, "m k"]]:
        """The counts of the reports of one round, as `regression` needs them; counts of parts add up.

        Args:
            reports: Reports of one round.

        Returns:
            The number of users of each cohort, and of those among them whose reports set each bit. Under tracing, −1
            users if a report has no cohort, or an entry that is no bit.

        Raises:
            ValueError: As `report`.
        """
        cohorts, bits = self._checked(reports, "[N, k]", 2)
        number = np.shape(self.filters)[0]
        users = jnp.zeros(number, jnp.int32).at[cohorts].add(1)
        users = numbers_if((cohorts >= 0) & (cohorts < number), users)
        return users, jnp.zeros((number, bits.shape[1]), jnp.int32).at[cohorts].add(bits.astype(jnp.int32))

    def regression(self, reports: CohortBits | tuple[ArrayLike, ArrayLike], *, num_steps: int = 2000) -> LeastSquares:
        """Shares of the candidates by least squares, from the frequency of each bit in each cohort.

        Minimizes Σ N_i·(y_ij − Σ_c X_ijc·θ_c)² over cohorts i and bits j, for θ not negative, where y are the counts
        corrected for the noise and X the Bloom filters. The published decoder selects candidates by the lasso first.
        Here the sign constraint alone removes candidates, so there is no penalty to choose. If some users' words are no
        candidates, the sum is below one.

        Args:
            reports: Reports of one round, or their counts: the pair of `bit_counts`.
            num_steps: Number of gradient steps. Static.

        Returns:
            A `LeastSquares`. The share of a candidate that sets no bit in any cohort with users is NaN, because the
            counts do not depend on it. All NaN for impossible traced probabilities or counts.

        Raises:
            ValueError: As `report`, or (not under tracing) counts that no reports have.

        Example:
            The boolean mode of the published client: a yes sets the only bit, a no sets none.

            >>> import numpy as np, rrjax
            >>> rappor = rrjax.longitudinal.Rappor(np.array([[[True], [False]]]), 1, f=0, p=0.25, q=0.75)
            >>> [f"{share:.2f}" for share in rappor.regression(([1000], [[600]])).theta.tolist()]
            ['0.70', 'nan']
        """
        users, counts = self.bit_counts(reports) if isinstance(reports, CohortBits) else self._checked_counts(*reports)
        return _regression(self, users, counts, num_steps)

    def standard_errors(
        self, reports: CohortBits | tuple[ArrayLike, ArrayLike], theta: Float[ArrayLike, " K"]
    ) -> Float[Array, " K"]:
        """Standard errors of the shares of `regression`, of users who are drawn.

        The sandwich of least squares, with the covariance of a user's bits. It takes the candidates with a share of
        zero for absent, as if that were known.

        Args:
            reports: As of `regression`.
            theta: Its shares.

        Returns:
            `[K]`; NaN for shares of zero, which are at the boundary, and for those that are NaN.

        Raises:
            ValueError: As `regression`, or shares of another shape.

        Example:
            >>> import numpy as np, rrjax
            >>> rappor = rrjax.longitudinal.Rappor(np.array([[[True], [False]]]), 1, f=0, p=0.25, q=0.75)
            >>> counts = [1000], [[600]]
            >>> print(f"{rappor.standard_errors(counts, rappor.regression(counts).theta)[0]:.4f}")
            0.0310
        """
        users, counts = self.bit_counts(reports) if isinstance(reports, CohortBits) else self._checked_counts(*reports)
        if np.shape(theta) != (shape := (np.shape(self.filters)[1],)):
            raise ArgumentError.about("theta", f"must have shape {shape}, a share a candidate; got {np.shape(theta)}")
        return _standard_errors(self, users, counts, jnp.asarray(theta))

    def mixture(self, reports: CohortBits) -> Mixture:
        """The likelihood of whole reports of users who hold one candidate each, the same in all rounds.

        Unlike `regression`, it uses which bits of a report are set together.

        Args:
            reports: Reports of T rounds, `[N, T, k]`, or of one round, `[N, k]`.

        Returns:
            `Mixture`, one row for every different kind of user (under tracing, for every user, and unusable if one has
            no cohort, or an entry that is no bit).

        Raises:
            ValueError: As `report`, or no users.
        """
        if np.ndim(reports.bits) == 2:
            reports = CohortBits(reports.cohorts, jnp.asarray(reports.bits)[:, None])
        cohorts, bits = self._checked(reports, "[N, T, k]", 3)
        check_rounds(bits, "[N, T, k]")
        ones = jnp.sum(bits, axis=1, dtype=jnp.int32)
        rows, numbers = kinds(jnp.concatenate([cohorts[:, None], ones], axis=1))
        base, lift = _likelihood(self, rows[:, 0], rows[:, 1:], bits.shape[1])
        return Mixture(numbers_if(rows[:, 0] >= 0, numbers), base, Dense(lift))

    def _checked_counts(self, users, counts):
        num_cohorts, _, num_bits = np.shape(self.filters)
        users, counts = as_array(users, "users"), as_array(counts, "counts")
        whole = all(jnp.issubdtype(each.dtype, jnp.integer) for each in (users, counts))
        if not whole or (users.shape, counts.shape) != ((num_cohorts,), (num_cohorts, num_bits)):
            raise ArgumentError.about(
                "reports",
                f"in counts must be integers: users of shape [m] = [{num_cohorts}], and those whose reports set each "
                f"bit, [m, k] = [{num_cohorts}, {num_bits}]; got {users.dtype}, {users.shape} and {counts.dtype}, "
                f"{counts.shape}",
            )
        if not isinstance(users, Tracer) and not isinstance(counts, Tracer):
            wrong = np.argwhere((np.asarray(counts) < 0) | (np.asarray(counts) > np.asarray(users)[:, None]))
            if wrong.size:
                cohort, bit = wrong[0]
                raise ArgumentError(
                    f"cohort {cohort} has {users[cohort]:,} users, and bit {bit} is set in {counts[cohort, bit]:,} of "
                    "their reports: a count is from 0 to the number of users",
                    argument="reports",
                    row=int(cohort),
                )
        sound = (users >= 0) & jnp.all((counts >= 0) & (counts <= users[:, None]), axis=1)
        return numbers_if(sound, jnp.asarray(users)), jnp.asarray(counts)

    def _checked(self, reports, shape, num_axes):
        num_cohorts, _, num_bits = np.shape(self.filters)
        cohorts = as_values(reports.cohorts, num_cohorts, "cohorts").astype(jnp.int32)
        bits = reports.bits if isinstance(reports.bits, jax.Array) else np.asarray(reports.bits)
        if bits.ndim != num_axes or bits.shape[-1] != num_bits or cohorts.shape != bits.shape[:1]:
            raise ArgumentError(
                f"reports must have cohorts of shape [N] and bits of shape {shape}, with k = {num_bits}; got "
                f"{tuple(cohorts.shape)} and {tuple(bits.shape)}",
                argument="reports",
            )
        if isinstance(bits, Tracer):  # −1 marks a user with an entry that is no bit
            sound = jnp.all(are_bits(bits), axis=tuple(range(1, num_axes)))
            cohorts = jnp.where(sound, cohorts, -1)
        return cohorts, as_bits(bits, num_bits, "bits")


def bloom_filters(words: Sequence[str], num_bits: int, num_hashes: int, num_cohorts: int) -> Bool[np.ndarray, "m K k"]:
    """The Bloom filters of words, with the hash functions of the published RAPPOR client.

    Hash i of a word in a cohort is byte i of an MD5, modulo the number of bits. The MD5 is of the cohort, four bytes
    with the highest first, followed by the word in UTF-8.

    Args:
        words: Candidates, all different.
        num_bits: k, from 2 to 256.
        num_hashes: h, from 1 to 16.
        num_cohorts: m.

    Returns:
        `[m, K, k]`, the bits that each word sets in each cohort: h of them, or fewer if hashes are equal.

    Raises:
        ValueError: Fewer than two words, a word twice, or a number out of range.

    Example:
        >>> import rrjax
        >>> filters = rrjax.longitudinal.bloom_filters(["yes", "no"], num_bits=16, num_hashes=2, num_cohorts=4)
        >>> filters.shape, filters.sum(axis=2).max()
        ((4, 2, 16), np.int64(2))
    """
    as_integer(num_bits, "num_bits", 2, 256)
    as_integer(num_hashes, "num_hashes", 1, 16)
    as_integer(num_cohorts, "num_cohorts", 1, 2**31)
    words = list(words)
    if len(words) < 2 or len(set(words)) < len(words):
        raise ArgumentError.about(
            "words", f"must be at least two different ones, got {len(words)}, of which {len(set(words))} are different"
        )
    filters = np.zeros((num_cohorts, len(words), num_bits), bool)
    for cohort in range(num_cohorts):
        for place, word in enumerate(words):
            digest = hashlib.md5(cohort.to_bytes(4) + word.encode(), usedforsecurity=False).digest()
            filters[cohort, place, [byte % num_bits for byte in digest[:num_hashes]]] = True
    return filters


@jax.jit
def _memoize(rappor, key, values):
    num_cohorts, num_words, num_bits = np.shape(rappor.filters)

    def answer(key, value):
        key_of_cohort, key_of_memos = jax.random.split(key)
        cohort = jax.random.randint(key_of_cohort, (), 0, num_cohorts, jnp.int32)
        own = jax.random.fold_in(key_of_memos, value.astype(jnp.uint32))
        inside = (value >= 0) & (value < num_words)
        place = jnp.where(inside, value, 0).astype(jnp.int32)
        filter_ = take_at(flat, (cohort * num_words + place) * num_bits + jnp.arange(num_bits, dtype=jnp.int32))
        # At f = 0 no bit is drawn: thresholds are rounded, and would lose a bit in millions.
        bits = jnp.where(jnp.asarray(rappor.f) == 0, filter_, drawn_bits(own, filter_, rappor.permanent))
        return CohortBits(jnp.where(inside, cohort, -1), bits)

    flat = jnp.asarray(rappor.filters).ravel()
    return for_each_user(answer, key, (values,), num_bits)


@partial(jax.jit, static_argnums=3)
def _likelihood(rappor, cohorts, ones, num_reports):
    num_cohorts, num_words, num_bits = np.shape(rappor.filters)
    flat = jnp.asarray(rappor.filters).ravel()
    cells = jnp.arange(num_words * num_bits, dtype=jnp.int32).reshape(num_words, num_bits)

    def row(given):
        cohort, ones = given
        inside = (cohort >= 0) & (cohort < num_cohorts)
        own = take_at(flat, jnp.where(inside, cohort, 0) * (num_words * num_bits) + cells)
        shown = rappor._bits.log_ratios(ones, num_reports - ones)
        return jnp.where(inside, jnp.sum(jnp.where(own, shown, 0), axis=1), jnp.nan)

    size = max(1, min(cohorts.shape[0], CELLS // (num_words * num_bits)))
    logs = lax.map(row, (cohorts, ones), batch_size=size)
    high, low = jnp.max(logs, axis=1, keepdims=True), jnp.min(logs, axis=1, keepdims=True)
    return jnp.exp(low - high)[:, 0], jnp.exp(logs - high) * -jnp.expm1(low - logs)


@partial(jax.jit, static_argnums=3)
def _regression(rappor, users, counts, num_steps):
    rates = rappor._bits.rates
    dtype = rates.truth.dtype
    total = jnp.sum(users)
    weights = users.astype(dtype) / jnp.maximum(total, 1).astype(dtype)
    shares = rates.share(counts.astype(dtype) / jnp.maximum(users, 1).astype(dtype)[:, None])
    filters = jnp.asarray(rappor.filters).astype(dtype)
    gram = einsum("icj,idj,i->cd", filters, filters, weights)
    target = einsum("icj,ij,i->c", filters, shares, weights)
    usable = (rates.truth > 0) & (total > 0)  # −1 users mark a report without a cohort
    solution = least_squares(gram, jnp.where(usable, target, jnp.nan), num_steps)
    return solution._replace(theta=jnp.where(jnp.diagonal(gram) > 0, solution.theta, jnp.nan))


@jax.jit
def _standard_errors(rappor, users, counts, theta):
    rates = rappor._bits.rates
    dtype = rates.truth.dtype
    total = jnp.maximum(jnp.sum(users), 1).astype(dtype)
    weights = users.astype(dtype) / total
    seen = counts.astype(dtype) / jnp.maximum(users, 1).astype(dtype)[:, None]
    active = theta > 0
    shares = jnp.where(active, theta, 0).astype(dtype)
    held = jnp.where(active[:, None], jnp.asarray(rappor.filters), False).astype(dtype)
    bread = einsum("icj,idj,i->cd", held, held, weights) + jnp.diag(jnp.where(active, 0, 1).astype(dtype))

    def add(meat, cohort):
        """The bits of one user depend on each other by the word; what is left is the noise of each bit."""
        held, seen, weight = cohort
        chances = matmul(held.T, shares)
        noise = jnp.maximum(seen * (1 - seen) / rates.truth**2 - chances * (1 - chances), 0)
        alike, mean = matmul(held, held.T), matmul(held, chances)
        own = matmul(held * noise, held.T) + matmul(alike * shares, alike) - mean[:, None] * mean
        return meat + weight * own, None

    meat, _ = lax.scan(add, jnp.zeros_like(bread), (held, seen, weights / total))
    covariance = jnp.linalg.solve(bread, jnp.linalg.solve(bread, meat).T)
    return jnp.where(active, jnp.sqrt(jnp.maximum(jnp.diagonal(covariance), 0)), jnp.nan)
