"""The tail of an ORC file, read from the protocol buffer for values that pyarrow does not return.

ORC specification v1: a ``FileTail`` contains the ``Footer``, with the stripes and each column's statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

GREGORIAN_DAY = -141_427  # 1582-10-15: Spark reads earlier days by the Julian calendar
EARLIEST_MS, LATEST_MS = -9_223_372_036_854, 9_223_372_036_854  # 1677 to 2262: the range of Arrow's nanoseconds

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FOOTER = 2
_STRIPES, _STATISTICS = 3, 7
_INDEX_BYTES, _DATA_BYTES, _FOOTER_BYTES, _ROWS = 2, 3, 4, 5
_DATES, _TIMESTAMPS = 7, 9
_MINIMA, _MAXIMA = (1, 3), (2, 4)  # of timestamps twice, local and UTC


@dataclass(frozen=True, slots=True)
class Tail:
    """Tail of a file.

    stripes: rows and bytes of each.
    other_times: it has dates or times that only Spark reads correctly.
    """

    stripes: tuple[tuple[int, int], ...]
    other_times: bool


def read_tail(message: bytes) -> Tail:
    """Read a ``FileTail``."""
    stripes: list[tuple[int, int]] = []
    other_times = False
    for tag, footer in _fields(message):
        for part, content in _fields(footer) if tag == _FOOTER and isinstance(footer, bytes) else ():
            if part == _STRIPES and isinstance(content, bytes):
                stripe = {tag: value for tag, value in _fields(content) if isinstance(value, int)}
                size = sum(stripe.get(piece, 0) for piece in (_INDEX_BYTES, _DATA_BYTES, _FOOTER_BYTES))
                stripes.append((stripe.get(_ROWS, 0), size))
            elif part == _STATISTICS and isinstance(content, bytes):
                other_times = other_times or _other_times(content)
    return Tail(tuple(stripes), other_times)


def _other_times(column: bytes) -> bool:
    for kind, content in _fields(column):
        if kind not in (_DATES, _TIMESTAMPS) or not isinstance(content, bytes):
            continue
        ends = {tag: _signed(value) for tag, value in _fields(content) if isinstance(value, int)}
        lowest = min((ends[tag] for tag in _MINIMA if tag in ends), default=0)
        highest = max((ends[tag] for tag in _MAXIMA if tag in ends), default=0)
        if kind == _DATES and ends.get(_MINIMA[0], 0) < GREGORIAN_DAY:
            return True
        if kind == _TIMESTAMPS and (lowest < EARLIEST_MS or highest > LATEST_MS):
            return True
    return False


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message by number; numbers of fixed size stay bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield key >> 3, number
            continue
        size = 8 if kind == _FIXED_64 else 4
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind not in (_FIXED_64, _FIXED_32):
            raise ValueError(f"a field of kind {kind} in the tail of an ORC file")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)
