"""Bytes of columns: in a row of an in-memory hash table, and in a file."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selector.plan import PlanColumn
from selector.row_sample import PackedTexts, SampleColumn
from selector.statistics import ColumnStatistics, TableStatistics
from selector.types import decimal_digits, value_bytes

STRING_BYTES = 16  # length, prefix and pointer; a string of up to INLINE_BYTES lives in them
INLINE_BYTES = 12
LENGTH_BYTES = 4  # before each string in a file
DICTIONARY_BYTES = 1 << 20  # beyond which writers of Parquet give a dictionary up
UNKNOWN_BYTES = 16
UNKNOWN_NUMBER_BYTES = 8
UNKNOWN_LENGTH_BYTES = 16
_CUT = re.compile(r'^"?(?:substring|substr|left)"?\(.*, (\d+)\)$')  # a text of which so many characters are left
CACHED_COLUMNS = 4_096  # samples of string columns whose lengths are not counted again


@dataclass(frozen=True, slots=True)
class Row:
    """A row of an in-memory table. heap_bytes: of its strings that are too long to lie in it, on average."""

    columns: int
    fixed_bytes: float
    heap_bytes: float
    strings: int

    @property
    def has_strings(self) -> bool:
        """Tell whether it has a column of strings."""
        return self.strings > 0


def row_of(columns: Sequence[PlanColumn], statistics: Mapping[str, TableStatistics]) -> Row:
    """Return DuckDB's row of these columns. Of a computed column without a type, a number's width is assumed."""
    fixed = [_duckdb_bytes(column) for column in columns]
    strings = [column for column, width in zip(columns, fixed, strict=True) if width is None]
    return Row(
        columns=len(columns),
        fixed_bytes=sum(STRING_BYTES if width is None else width for width in fixed),
        heap_bytes=sum(heap_bytes(column, statistics) for column in strings),
        strings=len(strings),
    )


def heap_bytes(column: PlanColumn, statistics: Mapping[str, TableStatistics]) -> float:
    """Return the average bytes of a string column that lie outside its rows: of strings that are too long for them."""
    table = statistics.get(column.table or "")
    described = table.columns.get(column.name) if table is not None else None
    if described is not None and described.maximum_length is not None and described.maximum_length <= INLINE_BYTES:
        return 0.0
    length = _length(column, statistics)
    sampled = table.sample.columns.get(column.name) if table is not None and table.sample is not None else None
    if sampled is not None and sampled.is_text:
        return length * _long_share(sampled)
    return length if length > INLINE_BYTES else 0.0


@functools.lru_cache(maxsize=CACHED_COLUMNS)
def _long_share(sampled: SampleColumn) -> float:
    """Return which share of a string column's bytes is in strings that do not lie in their row."""
    assert isinstance(sampled.packed, PackedTexts)
    lengths = sampled.packed.lengths.astype(np.int64)
    held = lengths * sampled.held[:-1]
    return float(held[lengths > INLINE_BYTES].sum()) / max(1.0, float(held.sum()))


def row_bytes(columns: Sequence[PlanColumn], statistics: Mapping[str, TableStatistics]) -> float:
    """Return the paper's tuple_size: average bytes of one row of these columns in a hash table."""
    return sum(_fixed_bytes(column) or _string_bytes(_length(column, statistics)) for column in columns)


def encoded_bytes(columns: Sequence[PlanColumn], statistics: Mapping[str, TableStatistics]) -> float:
    """Return the average bytes of one row of these columns in a file, before compression."""
    return sum(_fixed_bytes(column) or LENGTH_BYTES + _length(column, statistics) for column in columns)


def stored_bytes(columns: Sequence[PlanColumn], statistics: Mapping[str, TableStatistics]) -> float:
    """Return the average bytes of one row of these columns in a file that numbers repeated values in a dictionary."""
    whole = 0.0
    for column in columns:
        plain = encoded_bytes([column], statistics)
        dictionary = dictionary_bytes(column, statistics)
        described = _known(column, statistics)
        if dictionary is not None and described is not None:
            plain = min(plain, math.log2(max(2.0, described.ndv)) / 8)
        whole += plain
    return whole


def dictionary_bytes(column: PlanColumn, statistics: Mapping[str, TableStatistics]) -> float | None:
    """Return the bytes of a column's distinct values; None where they are too many for a dictionary, or not counted."""
    described = _known(column, statistics)
    if described is None:
        return None
    size_bytes = described.ndv * encoded_bytes([column], statistics)
    return size_bytes if size_bytes <= DICTIONARY_BYTES else None


def _known(column: PlanColumn, statistics: Mapping[str, TableStatistics]) -> ColumnStatistics | None:
    table = statistics.get(column.table or "")
    return table.columns.get(column.name) if table is not None else None


def _fixed_bytes(column: PlanColumn) -> float | None:
    """Return the width of a type that has one; of an unknown type, what is usual; None for strings."""
    data_type = column.data_type
    if data_type is None:
        return UNKNOWN_BYTES
    return value_bytes(data_type)


def _duckdb_bytes(column: PlanColumn) -> float | None:
    """Return the width of a type as DuckDB keeps it: its decimals have four; None for strings."""
    data_type = column.data_type
    if data_type is None:
        return UNKNOWN_NUMBER_BYTES
    digits = decimal_digits(data_type)
    if digits is not None:
        return next((width for most, width in ((4, 2), (9, 4), (18, 8)) if digits[0] <= most), 16)
    return value_bytes(data_type)


def _string_bytes(length: float) -> float:
    return STRING_BYTES + (length if length > INLINE_BYTES else 0.0)


def _length(column: PlanColumn, statistics: Mapping[str, TableStatistics]) -> float:
    described = _known(column, statistics)
    if described is not None and described.average_length is not None:
        return described.average_length
    cut = _CUT.search(column.name) if column.table is None else None
    return float(cut[1]) if cut is not None else UNKNOWN_LENGTH_BYTES
