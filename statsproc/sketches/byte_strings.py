"""Byte strings of a column, many at a time: as words to hash and to sort, as keys on the line of strings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from selector.statistics import TEXT_KEY_BYTES

WORD_BYTES = 8
PANEL_BYTES = 64  # of each string that are laid side by side; a multiple of a word, and more than a key
BLOCK = 1 << 13  # values that are worked on at once: what becomes of them stays in the processor's cache

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Strings whose first bytes lie side by side.

    values: the strings, as binary values. lengths: shape (strings,), in bytes. panel: shape (strings, bytes), uint8:
    the first PANEL_BYTES of each string, or fewer where none is so long, and at least a word of zeros behind its end.
    """

    values: pa.Array
    lengths: Integers
    panel: NDArray[np.uint8]

    @classmethod
    def of(cls, values: pa.Array) -> Texts:
        """Take strings or binary values without NULLs; a dictionary is not expected here."""
        flat = _flat(values)
        lengths: Integers = pc.binary_length(flat).to_numpy().astype(np.int64, copy=False)
        longest = int(lengths.max(initial=0))
        first = pc.binary_slice(flat, 0, PANEL_BYTES) if longest > PANEL_BYTES else flat
        width = (-(-min(longest, PANEL_BYTES) // WORD_BYTES) + 1) * WORD_BYTES
        unchecked = first.view(pa.large_string() if pa.types.is_large_binary(flat.type) else pa.string())
        padded = pc.ascii_rpad(unchecked, width=width, padding="\0")  # of bytes, whatever they mean
        panel = np.frombuffer(padded.buffers()[2] or b"", dtype=np.uint8, count=len(flat) * width)
        return cls(flat, lengths, panel.reshape(len(flat), width))

    def __len__(self) -> int:
        return int(self.lengths.size)

    def __getitem__(self, row: int) -> bytes:
        value: bytes = self.values[row].as_py()
        return value

    @property
    def longest(self) -> int:
        """Bytes of the longest string, 0 where there is none."""
        return int(self.lengths.max(initial=0))

    def ends(self) -> tuple[bytes, bytes]:
        """Return the smallest and the largest string."""
        words = self.words(0)
        low, high = (self.values.take(pa.array(np.flatnonzero(words == end))) for end in (words.min(), words.max()))
        return pc.min(low).as_py(), pc.max(high).as_py()

    def blocks(self) -> Iterator[Texts]:
        """Cut into blocks, without a copy."""
        for at in range(0, len(self), BLOCK):
            inside = slice(at, at + BLOCK)
            yield Texts(self.values.slice(at, BLOCK), self.lengths[inside], self.panel[inside])

    def some(self, rows: NDArray[np.intp]) -> Texts:
        """Take some of the strings."""
        return Texts(self.values.take(pa.array(rows)), self.lengths[rows], self.panel[rows])

    def behind(self, offset: int) -> Texts:
        """Return what lies behind an offset."""
        return Texts.of(pc.binary_slice(self.values, offset, max(offset, self.longest)))

    def words(self, offset: int) -> Words:
        """Return eight bytes of each string from an offset on, the first one highest, zeros behind its end."""
        if offset > self.panel.shape[1] - WORD_BYTES:
            return np.zeros(len(self), dtype=np.uint64)
        column = np.ndarray((len(self),), "<u8", buffer=self.panel, offset=offset, strides=self.panel.strides[:1])
        return column.byteswap()

    def keys(self) -> NDArray[np.bytes_]:
        """Return each string's place on the line of strings: its first bytes."""
        keys = np.zeros((len(self), TEXT_KEY_BYTES), dtype=np.uint8)
        first_bytes = self.panel[:, :TEXT_KEY_BYTES]
        keys[:, : first_bytes.shape[1]] = first_bytes
        return keys.view(f"S{TEXT_KEY_BYTES}").reshape(-1)


def _flat(values: pa.Array) -> pa.Array:
    """Return strings as binary values that lie in one buffer."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return values.view(pa.binary())
    return values.view(pa.large_binary()) if pa.types.is_large_string(kind) else values.cast(pa.large_binary())


def common_prefix(low: bytes, high: bytes) -> bytes:
    """Return what all strings between two have in common."""
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:length]
