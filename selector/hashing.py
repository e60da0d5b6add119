"""Hashes of 64-bit words and of strings, many at a time, the same in the statistics job and in the estimator."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)
MIX = np.uint64(0xBF58476D1CE4E5B9)
FOLD = np.uint64(32)
LONG_BYTES = 256  # longer strings are hashed one by one
BLOCK = 1 << 13  # hashes that are worked on at once stay in the processor's cache
_MIX_LAST = np.uint64(0x94D049BB133111EB)


def hash_words(words: Hashes) -> Hashes:
    """Hash 64-bit values: the finaliser of splitmix64, a bijection."""
    hashes = words + STEP
    for at in range(0, hashes.size, BLOCK):
        mixed = hashes[at : at + BLOCK]
        mixed ^= mixed >> np.uint64(30)
        mixed *= MIX
        mixed ^= mixed >> np.uint64(27)
        mixed *= _MIX_LAST
        mixed ^= mixed >> np.uint64(31)
    return hashes


def mix_word(hashes: Hashes, words: Hashes) -> Hashes:
    """Change hashes by a word each."""
    mixed = (hashes ^ words) * MIX
    mixed ^= mixed >> FOLD
    return mixed


def hash_long(text: bytes) -> int:
    """Hash a string of more than LONG_BYTES, before the last mixing."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
