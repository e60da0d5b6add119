"""Number of distinct values (NDV): the values of the smallest hashes are kept, each with its rows.

Bar-Yossef et al., "Counting Distinct Elements in a Data Stream", 2002: of n hashes spread evenly over a line, as
many lie below a limit as the limit's share of n. A column of fewer values than are kept has all of them kept, and
then everything is exact. Since every part of a table keeps the same values, their rows add up exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from selector.hashing import LONG_BYTES, STEP, Hashes, hash_long, hash_words, mix_word
from statsproc.sketches.byte_strings import BLOCK, PANEL_BYTES, WORD_BYTES, Texts
from statsproc.sketches.equal_runs import runs

KEPT = 8192  # standard error 1 / sqrt(KEPT) = 1.1 %
EVERYTHING = 1 << 64

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Distinct:
    """Sketch of distinct values: those with the smallest hashes.

    hashes: shape (values,), increasing. rows: shape (values,), rows that hold each of them.
    limit: every value whose hash is smaller is among them; EVERYTHING where no value is left out.
    keys: shape (values,), the values on the line of join keys; None: not needed.
    """

    hashes: Hashes = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    rows: Counts = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    limit: int = EVERYTHING
    keys: Floats | None = None

    @property
    def share(self) -> float:
        """Share of the different values that are kept, 0..1."""
        return self.limit / EVERYTHING

    @property
    def count(self) -> float:
        """Different values, estimated where some were left out."""
        return self.hashes.size / self.share

    @property
    def once(self) -> float:
        """Values that a single row holds, estimated likewise."""
        return int(np.count_nonzero(self.rows == 1)) / self.share


def hash_texts(texts: Texts) -> Hashes:
    """Hash byte strings, eight bytes of many at a time."""
    hashes = texts.lengths.astype(np.uint64) * STEP
    _mix(hashes, texts)
    for offset in range(PANEL_BYTES, min(texts.longest, LONG_BYTES), PANEL_BYTES):
        rows = np.flatnonzero(texts.lengths > offset)
        longer = hashes[rows]
        _mix(longer, texts.some(rows).behind(offset))
        hashes[rows] = longer
    for row in np.flatnonzero(texts.lengths > LONG_BYTES):
        hashes[row] = hash_long(texts[int(row)])
    return hash_words(hashes)


def _mix(hashes: Hashes, texts: Texts) -> None:
    """Change hashes by the first words of their strings, each by as many as it has."""
    for number, block in enumerate(texts.blocks()):
        block_hashes = hashes[number * BLOCK : (number + 1) * BLOCK]
        shortest = int(block.lengths.min())
        for offset in range(0, min(block.longest, PANEL_BYTES), WORD_BYTES):
            mixed = mix_word(block_hashes, block.words(offset))
            block_hashes[...] = mixed if shortest > offset else np.where(block.lengths > offset, mixed, block_hashes)


def distinct_of(
    hashes: Hashes, rows: Counts | None = None, *, keys: Floats | None = None, capacity: int = KEPT
) -> Distinct:
    """Keep the smallest hashes. rows, keys: of each hash, which all differ then; rows=None where each is one row's."""
    limit = EVERYTHING
    if hashes.size > 4 * capacity:  # most are too large, unless few differ
        likely = int(2.0 * capacity / hashes.size * 2.0**64)
        small = np.flatnonzero(hashes < np.uint64(likely))
        if rows is not None:
            hashes, rows, limit = hashes[small], rows[small], likely
            keys = None if keys is None else keys[small]
        else:
            smallest, held = _counted(hashes[small])
            if smallest.size > capacity:
                return _smallest(smallest, held, None, likely, capacity)
    if rows is None:
        return _smallest(*_counted(hashes), None, limit, capacity)
    order = np.argsort(hashes)
    return _smallest(hashes[order], rows[order], None if keys is None else keys[order], limit, capacity)


def _counted(hashes: Hashes) -> tuple[Hashes, Counts]:
    """Return different hashes in order, and how many there are of each."""
    ordered = np.sort(hashes)
    starts, ends = runs(ordered)
    return ordered[starts], (ends - starts).astype(np.int64)


def merge_distinct(parts: Sequence[Distinct], *, capacity: int = KEPT) -> Distinct:
    """Merge the sketches of disjoint rows."""
    if not parts:
        return Distinct()
    parts = [part for part in parts if part.hashes.size or part.limit < EVERYTHING] or parts[:1]
    limit = min(part.limit for part in parts)
    hashes = np.concatenate([part.hashes for part in parts])
    order = np.argsort(hashes, kind="stable")
    if limit < EVERYTHING:
        order = order[: int(np.searchsorted(hashes, np.uint64(limit), sorter=order))]
    hashes = hashes[order]
    rows = np.concatenate([part.rows for part in parts])[order]
    starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1]))) if hashes.size else order
    rows = np.add.reduceat(rows, starts) if starts.size else rows
    keys = None
    if all(part.keys is not None for part in parts):
        keys = np.concatenate([part.keys for part in parts if part.keys is not None])[order][starts]
    return _smallest(hashes[starts], rows, keys, limit, capacity)


def _smallest(hashes: Hashes, rows: Counts, keys: Floats | None, limit: int, capacity: int) -> Distinct:
    if hashes.size <= capacity:
        return Distinct(hashes, rows, limit, keys)
    few = None if keys is None else keys[:capacity].copy()
    return Distinct(hashes[:capacity].copy(), rows[:capacity].copy(), int(hashes[capacity]), few)
