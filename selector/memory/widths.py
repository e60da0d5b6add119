"""Bytes of a column's values in a row of an in-memory hash table."""

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
UNKNOWN_BYTES = 16
UNKNOWN_LENGTH_BYTES = 16


def row_bytes(columns: Sequence[PlanColumn], statistics: Mapping[str, TableStatistics]) -> float:
    """Return the paper's tuple_size: average bytes of one row of these columns."""
    return sum(column_bytes(column, statistics) for column in columns)


def column_bytes(column: PlanColumn, statistics: Mapping[str, TableStatistics]) -> float:
    """Return the average bytes of one column's values."""
    data_type = column.data_type
    if data_type is None:
        return UNKNOWN_BYTES
    if data_type in _FIXED_BYTES:
        return _FIXED_BYTES[data_type]
    decimal = _DECIMAL.match(data_type)
    if decimal:
        digits = int(decimal.group(1))
        return 8 if digits <= 18 else 16
    table = statistics.get(column.table or "")
    known = table.columns.get(column.name) if table is not None else None
    length = known.average_length if known is not None and known.average_length is not None else UNKNOWN_LENGTH_BYTES
    return STRING_BYTES + (length if length > INLINE_BYTES else 0.0)
