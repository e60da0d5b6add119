"""Comparison of two answers: the same names, types and rows, in any order that the query leaves open.

Numbers with a floating point are the same up to their last digits: engines add them up in other orders, and each has
its own sine. NaN is the same as NaN.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

DIGITS = 10  # of a floating-point number that have to agree
MOST_NEAR = 5_000  # rows that differ in their text, of which equal ones within the tolerance are looked for
ROWS_SHOWN = 5  # of each answer, of those that the other one has not

Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two answers. one, other: first rows that the other answer has not."""

    text: str
    one: tuple[Row, ...] = ()
    other: tuple[Row, ...] = ()

    def __str__(self) -> str:
        return self.text


def difference(
    one: pa.Table, other: pa.Table, *, names: bool = True, sorted_by: Sequence[int] = ()
) -> Difference | None:
    """Return what differs first; None: the answers are the same.

    names: whether names of columns count. sorted_by: positions of the columns by which both are sorted.
    """
    if names and one.schema.names != other.schema.names:
        return Difference(f"names: {one.schema.names} and {other.schema.names}")
    if one.num_columns != other.num_columns:
        return Difference(f"columns: {one.num_columns} and {other.num_columns}")
    for name, left, right in zip(one.schema.names, one.schema.types, other.schema.types, strict=True):
        if _plain(left) != _plain(right):
            return Difference(f"the type of {name}: {left} and {right}")
    left_rows, right_rows = _rows(one), _rows(other)
    left_counts, right_counts = Counter(left_rows), Counter(right_rows)
    left_only, right_only = left_counts - right_counts, right_counts - left_counts
    if one.num_rows != other.num_rows:
        return _differing(f"rows: {one.num_rows} and {other.num_rows}", left_only, right_only)
    if left_only.total() > MOST_NEAR:
        return _differing(f"{left_only.total()} rows", left_only, right_only)
    unmatched = list(right_only.elements())
    for row in left_only.elements():
        near = next((candidate for candidate in unmatched if _near(row, candidate)), None)
        if near is None:
            closest = max(right_only, key=lambda candidate: sum(a == b for a, b in zip(row, candidate, strict=True)))
            places = [place for place, (a, b) in enumerate(zip(row, closest, strict=True)) if not _close(a, b)]
            text = "; ".join(f"{one.schema.names[place]}: {row[place]!r} and {closest[place]!r}" for place in places)
            return _differing(text, left_only, right_only)
        unmatched.remove(near)
    for number, (row, facing) in enumerate(zip(left_rows, right_rows, strict=True)):
        if not all(_close(row[place], facing[place]) for place in sorted_by):
            return Difference(f"the order, from row {number + 1} on", (row,), (facing,))
    return None


def _differing(text: str, one: Counter[Row], other: Counter[Row]) -> Difference:
    first, second = (tuple(itertools.islice(rows.elements(), ROWS_SHOWN)) for rows in (one, other))
    return Difference(text, first, second)


def _rows(table: pa.Table) -> list[Row]:
    columns = ([_same(value) for value in _values(column)] for column in table.columns)
    return list(zip(*columns, strict=True)) if table.num_columns else []


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


def _near(row: Row, other: Row) -> bool:
    return all(_close(one, another) for one, another in zip(row, other, strict=True))


def _close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=10.0 ** (1 - DIGITS), abs_tol=1e-300)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_close, one, other))
    return one == other and isinstance(one, Decimal) == isinstance(other, Decimal)
