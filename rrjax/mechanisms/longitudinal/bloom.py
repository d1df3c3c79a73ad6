"""Bloom filters of words, with the hash functions of the published RAPPOR client."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from rrjax.data.categories import as_integer
from rrjax.data.errors import ArgumentError


def bloom_filters(words: Sequence[str], num_bits: int, num_hashes: int, num_cohorts: int) -> Bool[np.ndarray, "m K k"]:
    """The Bloom filters of words, with the hash functions of the published client, so that its reports can be decoded.

    Hash number i of a word in a cohort is byte number i of the MD5 of the cohort, four bytes with the highest first,
    and the word in UTF-8; modulo the number of bits.

    Args:
        words: Candidates, different ones.
        num_bits: k, from 2 to 256.
        num_hashes: h, from 1 to 16.
        num_cohorts: m.

    Returns:
        `[m, K, k]`, which bits each word sets in each cohort: h of them, or fewer where hashes are equal.

    Raises:
        ValueError: Fewer than two words, a word twice, or a number out of range.

    Example:
        >>> import rrjax
        >>> filters = rrjax.longitudinal.bloom_filters(["yes", "no"], num_bits=16, num_hashes=2, num_cohorts=4)
        >>> filters.shape, filters.sum(axis=2).max()
        ((4, 2, 16), np.int64(2))
    """
    for name, value, least, most in (
        ("num_bits", num_bits, 2, 256),
        ("num_hashes", num_hashes, 1, 16),
        ("num_cohorts", num_cohorts, 1, 2**31),
    ):
        as_integer(value, name, least, most)
    words = list(words)
    if len(words) < 2 or len(set(words)) < len(words):
        raise ArgumentError(
            f"words must be at least two different ones, got {len(words)}, of which {len(set(words))} are",
            argument="words",
        )
    filters = np.zeros((num_cohorts, len(words), num_bits), bool)
    for cohort in range(num_cohorts):
        for place, word in enumerate(words):
            digest = hashlib.md5(cohort.to_bytes(4) + word.encode(), usedforsecurity=False).digest()
            filters[cohort, place, [byte % num_bits for byte in digest[:num_hashes]]] = True
    return filters
