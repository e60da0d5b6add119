"""Byte strings of a column, many at a time: as words to hash and to sort, as keys on the line of strings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from selector.statistics import TEXT_KEY_BYTES

WORD_BYTES = 8

_KEPT_BITS = np.array([(1 << 64) - (1 << (64 - 8 * kept)) for kept in range(WORD_BYTES + 1)], dtype=np.uint64)

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Strings that lie in one buffer.

    data: shape (bytes + WORD_BYTES,), the buffer and some zeros. starts, lengths: shape (strings,).
    """

    data: NDArray[np.uint8]
    starts: Integers
    lengths: Integers

    @classmethod
    def of(cls, values: pa.Array) -> Texts:
        """Take strings or binary values without NULLs; a dictionary is not expected here."""
        flat = values if pa.types.is_large_binary(values.type) else values.cast(pa.large_binary())
        _, offsets, data = flat.buffers()
        if not len(flat):
            return cls(np.zeros(WORD_BYTES, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
        bounds = np.frombuffer(offsets, dtype=np.int64, count=len(flat) + 1, offset=8 * flat.offset)
        first, last = int(bounds[0]), int(bounds[-1])
        padded = np.zeros(last - first + WORD_BYTES, dtype=np.uint8)
        if last > first:
            padded[:-WORD_BYTES] = np.frombuffer(data, dtype=np.uint8, count=last - first, offset=first)
        return cls(padded, bounds[:-1] - first, np.diff(bounds))

    def __len__(self) -> int:
        return int(self.starts.size)

    def __getitem__(self, row: int) -> bytes:
        start = int(self.starts[row])
        return self.data[start : start + int(self.lengths[row])].tobytes()

    @property
    def longest(self) -> int:
        """Bytes of the longest string, 0 where there is none."""
        return int(self.lengths.max(initial=0))

    @property
    def shortest(self) -> int:
        """Bytes of the shortest string, 0 where there is none."""
        return int(self.lengths.min()) if self.lengths.size else 0

    def words(self, offset: int, rows: NDArray[np.intp] | None = None) -> Words:
        """Return eight bytes of each string from an offset on, the first one highest, zeros behind its end."""
        starts, lengths = (self.starts, self.lengths) if rows is None else (self.starts[rows], self.lengths[rows])
        everywhere = np.ndarray((self.data.size - WORD_BYTES + 1,), dtype="<u8", buffer=self.data, strides=(1,))
        left = lengths - offset
        if left.size and int(left.min()) >= WORD_BYTES:
            return everywhere[starts + offset].byteswap()
        at = np.minimum(starts + offset, everywhere.size - 1)
        found: Words = everywhere[at].byteswap()
        found &= _KEPT_BITS[np.clip(left, 0, WORD_BYTES)]
        return found

    def keys(self) -> NDArray[np.bytes_]:
        """Return each string's place on the line of strings: its first bytes."""
        keys = np.empty((len(self), TEXT_KEY_BYTES // WORD_BYTES), dtype=">u8")
        for word in range(keys.shape[1]):
            keys[:, word] = self.words(word * WORD_BYTES)
        return keys.view(f"S{TEXT_KEY_BYTES}").reshape(-1)


def common_prefix(low: bytes, high: bytes) -> bytes:
    """Return what all strings between two have in common."""
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:length]
