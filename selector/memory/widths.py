"""Bytes of columns: in a row of an in-memory hash table, and in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from selector.plan import PlanColumn
from selector.statistics import TableStatistics

_FIXED_BYTES = {
    "boolean": 1,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "bigint": 8,
    "float": 4,
    "double": 8,
    "date": 4,
    "timestamp": 8,
    "timestamp_ntz": 8,
}
_DECIMAL = re.compile(r"^decimal\((\d+),")
STRING_BYTES = 16  # length, prefix and pointer; a string of up to INLINE_BYTES lives in them
INLINE_BYTES = 12
LENGTH_BYTES = 4  # before each string in a file
UNKNOWN_BYTES = 16
UNKNOWN_LENGTH_BYTES = 16


def row_bytes(columns: Sequence[PlanColumn], statistics: Mapping[str, TableStatistics]) -> float:
    """Return the paper's tuple_size: average bytes of one row of these columns in a hash table."""
    return sum(_fixed_bytes(column) or _string_bytes(_length(column, statistics)) for column in columns)


def encoded_bytes(columns: Sequence[PlanColumn], statistics: Mapping[str, TableStatistics]) -> float:
    """Return the average bytes of one row of these columns in a file, before compression."""
    return sum(_fixed_bytes(column) or LENGTH_BYTES + _length(column, statistics) for column in columns)


def _fixed_bytes(column: PlanColumn) -> float | None:
    """Return the width of a type that has one; of an unknown type, what is usual; None for strings."""
    data_type = column.data_type
    if data_type is None:
        return UNKNOWN_BYTES
    decimal = _DECIMAL.match(data_type)
    if decimal:
        return 8 if int(decimal.group(1)) <= 18 else 16
    return _FIXED_BYTES.get(data_type)


def _string_bytes(length: float) -> float:
    return STRING_BYTES + (length if length > INLINE_BYTES else 0.0)


def _length(column: PlanColumn, statistics: Mapping[str, TableStatistics]) -> float:
    table = statistics.get(column.table or "")
    known = table.columns.get(column.name) if table is not None else None
    return known.average_length if known is not None and known.average_length is not None else UNKNOWN_LENGTH_BYTES
