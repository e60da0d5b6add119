"""How many different values a column has: the k smallest of their hashes (KMV).

Bar-Yossef et al., "Counting Distinct Elements in a Data Stream", 2002: of n hashes spread evenly over 0 .. 1,
the k-th smallest lies near k / n. Fewer than k different hashes are all kept, and then the count is exact.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

KEPT = 8192  # standard error 1 / sqrt(KEPT - 2) = 1.1 %
LONG_BYTES = 256  # longer values are hashed one by one

Hashes = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_WORD_BYTES = 8


def hash_words(words: Hashes) -> Hashes:
    """Hash 64-bit values: the finaliser of splitmix64, a bijection."""
    mixed = words + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    result: Hashes = mixed ^ (mixed >> np.uint64(31))
    return result


def hash_texts(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashes:
    """Hash byte strings that lie in one buffer, eight bytes of all of them at a time.

    data: shape (bytes,). starts, lengths: shape (values,).
    """
    padded = np.concatenate((data, np.zeros(_WORD_BYTES, dtype=np.uint8)))
    words = np.ndarray((padded.size - _WORD_BYTES + 1,), dtype="<u8", buffer=padded, strides=(1,))
    hashes = hash_words(lengths.astype(np.uint64))
    longest = int(lengths.max(initial=0))
    for offset in range(0, min(longest, LONG_BYTES), _WORD_BYTES):
        rows = np.flatnonzero(lengths > offset)
        left = np.minimum(lengths[rows] - offset, _WORD_BYTES).astype(np.uint64)
        unused_bits = np.uint64(8) * (np.uint64(_WORD_BYTES) - left)
        word = words[starts[rows] + offset] << unused_bits
        hashes[rows] = hash_words(hashes[rows] ^ word)
    for row in np.flatnonzero(lengths > LONG_BYTES) if longest > LONG_BYTES else ():
        value = data[starts[row] : starts[row] + lengths[row]]
        hashes[row] = int.from_bytes(hashlib.blake2b(value.tobytes(), digest_size=8).digest(), "little")
    return hashes


def smallest(hashes: Hashes) -> Hashes:
    """Return the KEPT smallest different hashes, in order."""
    if hashes.size > 16 * KEPT:  # most of them are too large, unless few differ
        limit = np.uint64(4 * KEPT / hashes.size * 2.0**64)
        likely = np.unique(hashes[hashes < limit])
        if likely.size >= KEPT:
            return likely[:KEPT]
    return np.unique(hashes)[:KEPT]


def merge_smallest(a: Hashes, b: Hashes) -> Hashes:
    """Merge what two sets of rows kept."""
    return np.union1d(a, b)[:KEPT]


def distinct_values(kept: Hashes) -> float:
    """Estimate the number of different values behind the kept hashes."""
    if kept.size < KEPT:
        return float(kept.size)
    return (KEPT - 1) / ((float(kept[-1]) + 1.0) / 2.0**64)
