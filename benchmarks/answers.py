"""Whether two engines gave the same answer: the same names, types and rows, in any order.

Numbers with a floating point are the same up to the last digits: engines add them up in other orders, and each has its
own sine. NaN is the same as NaN.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import pyarrow as pa

DIGITS = 10  # of a floating-point number that have to agree


def difference(one: pa.Table, other: pa.Table, *, names: bool = True) -> str | None:
    """Say what differs first; None where the answers are the same. names: whether those of columns count."""
    if names and one.schema.names != other.schema.names:
        return f"names: {one.schema.names} and {other.schema.names}"
    for name, left, right in zip(one.schema.names, one.schema.types, other.schema.types, strict=True):
        if _plain(left) != _plain(right):
            return f"the type of {name}: {left} and {right}"
    if one.num_rows != other.num_rows:
        return f"rows: {one.num_rows} and {other.num_rows}"
    rows = [
        Counter(zip(*([_same(value) for value in _values(column)] for column in table.columns), strict=True))
        for table in (one, other)
    ]
    left_only, right_only = rows[0] - rows[1], rows[1] - rows[0]
    if not left_only:
        return None
    unmatched = list(right_only.elements())
    for row in left_only.elements():
        near = next((candidate for candidate in unmatched if _near(row, candidate)), None)
        if near is None:
            closest = max(right_only, key=lambda candidate: sum(a == b for a, b in zip(row, candidate, strict=True)))
            places = [place for place, (a, b) in enumerate(zip(row, closest, strict=True)) if not _close(a, b)]
            return "; ".join(f"{one.schema.names[place]}: {row[place]!r} and {closest[place]!r}" for place in places)
        unmatched.remove(near)
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _values(column: pa.ChunkedArray) -> list[object]:
    """Return values as Python has them; days and moments that it has not (after the year 9999) as numbers."""
    try:
        values: list[object] = column.to_pylist()
    except OverflowError:
        values = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64()).to_pylist()
    return values


def _same(value: object) -> object:
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return float(f"{value:.{DIGITS}g}") + 0.0
    if isinstance(value, list | tuple):
        return tuple(_same(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _same(item)) for name, item in value.items())
    return value


def _near(row: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return all(_close(one, another) for one, another in zip(row, other, strict=True))


def _close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=10.0 ** (1 - DIGITS), abs_tol=1e-300)
    return one == other and isinstance(one, Decimal) == isinstance(other, Decimal)
