"""The line of join keys: numbers lie where they are, strings and keys of several columns where their hash lies.

A hash spreads keys evenly over the line, so that its ranges hold equally many; equal keys of different tables lie at
one place. The statistics job and the estimator must agree on it bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from selector.hashing import LONG_BYTES, STEP, Hashes, hash_long, hash_words, mix_word
from selector.row_sample import PackedTexts, SampleColumn

Floats = NDArray[np.float64]
WORD_BYTES = 8
_SHIFT = np.uint64(11)  # leaves 53 bits, which a float64 holds exactly


def line_of_hashes(hashes: Hashes) -> Floats:
    """Return the place of each hash."""
    return (hashes >> _SHIFT).astype(np.float64)


def line_of_texts(texts: Sequence[bytes]) -> Floats:
    """Return the place of each string (UTF-8)."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    words = -(-min(int(lengths.max(initial=0)), LONG_BYTES) // WORD_BYTES)
    hashes = lengths.astype(np.uint64) * STEP
    if words:
        panel = np.array(texts, dtype=f"S{words * WORD_BYTES}").view(">u8").reshape(len(texts), words)
        for number in range(words):
            mixed = mix_word(hashes, panel[:, number].astype(np.uint64))
            hashes = np.where(lengths > number * WORD_BYTES, mixed, hashes)
    for row in np.flatnonzero(lengths > LONG_BYTES):
        hashes[row] = hash_long(texts[int(row)])
    return line_of_hashes(hash_words(hashes))


def line_together(lines: Sequence[Floats]) -> Floats:
    """Return the place of keys of several columns. lines: of each column, of the same shape."""
    hashes = np.zeros(lines[0].shape, dtype=np.uint64)
    for line in lines:
        hashes = hash_words(hashes ^ (line + 0.0).view(np.uint64))  # -0.0 becomes 0.0
    return line_of_hashes(hashes)


def line_of_sample(column: SampleColumn) -> Floats:
    """Return the places of a sampled column's different values, shape (n,)."""
    if isinstance(column.packed, PackedTexts):
        return _line_of_packed(column.packed)
    return np.asarray(column.values, dtype=np.float64)


@lru_cache(maxsize=256)
def _line_of_packed(texts: PackedTexts) -> Floats:
    return line_of_texts(texts.bytes_of_each())
