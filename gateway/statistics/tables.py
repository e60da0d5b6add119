"""SHOW TABLE STATS and SHOW COLUMN STATS, with the names and the order of columns that Impala 4 has.

https://impala.apache.org/docs/build/html/topics/impala_show.html; -1 is unknown there, and so it is here. One thing
differs: Location is relative to the table, because places on the server stay inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from metastore.discovery.inspection import DEFAULT_PARTITION
from metastore.records import CatalogTable, Partition, StatisticsPart
from selector.statistics import ColumnStatistics, TableStatistics
from selector.types import Kind, decimal_digits

UNKNOWN = -1
NOT_CACHED = "NOT CACHED"  # nothing is kept in memory for a table
NO_POLICY = "NONE"  # files are not erasure-coded as far as the gateway knows
FORMATS = {"csv": "TEXT"}  # Impala's word, where it is not ours in capitals
FIXED_BYTES = {kind.value: kind.row.impala_bytes for kind in Kind if kind.row.impala_bytes is not None}

TABLE_STATS = pa.schema(
    [
        ("#Rows", pa.int64()),
        ("#Files", pa.int64()),
        ("Size", pa.string()),
        ("Bytes Cached", pa.string()),
        ("Cache Replication", pa.string()),
        ("Format", pa.string()),
        ("Incremental stats", pa.string()),
        ("Location", pa.string()),
        ("EC Policy", pa.string()),
    ]
)
COLUMN_STATS = pa.schema(
    [
        ("Column", pa.string()),
        ("Type", pa.string()),
        ("#Distinct Values", pa.int64()),
        ("#Nulls", pa.int64()),
        ("Max Size", pa.int64()),
        ("Avg Size", pa.float64()),
        ("#Trues", pa.int64()),
        ("#Falses", pa.int64()),
    ]
)


def rows_of(schema: pa.Schema, rows: Sequence[Sequence[object]]) -> pa.Table:
    """Make a table of rows."""
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(list(values), field.type) for field, values in zip(schema, columns, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def texts_of(headings: Sequence[str], rows: Sequence[Sequence[str | None]]) -> pa.Table:
    """Make a table of texts."""
    return rows_of(pa.schema([(heading, pa.string()) for heading in headings]), rows)


def table_stats(
    table: CatalogTable, build: TableStatistics | None, parts: Mapping[str, StatisticsPart] = {}
) -> pa.Table:
    """Answer SHOW TABLE STATS: one row, or one per partition and a total. parts: by folder."""
    keys = table.source.partition_columns
    schema = pa.schema([*((key, pa.string()) for key in keys), *TABLE_STATS])
    whole = build.rows if build else UNKNOWN
    kind = FORMATS.get(table.source.format, table.source.format.upper())
    if not keys:
        size = [whole, table.files, size_text(table.bytes)]
        row = [*size, NOT_CACHED, NOT_CACHED, kind, _truth("" in parts), "", NO_POLICY]
        return rows_of(schema, [row])
    rows = []
    for partition in table.partitions:
        part = parts.get(partition.path)
        values = [_key(partition.values[key]) for key in keys]
        size = [part.rows if part else UNKNOWN, partition.files, size_text(partition.bytes)]
        incremental = _truth(part is not None)
        rows.append([*values, *size, NOT_CACHED, NOT_CACHED, kind, incremental, partition.path, NO_POLICY])
    total = ["Total", *("" for _ in keys[1:])]
    rows.append([*total, whole, table.files, size_text(table.bytes), size_text(0), "", "", "", "", ""])
    return rows_of(schema, rows)


def column_stats(table: CatalogTable, build: TableStatistics | None) -> pa.Table:
    """Answer SHOW COLUMN STATS: sizes of types that have one are always known, all else only from statistics."""
    column_statistics = build.columns if build else {}
    rows = []
    for column in table.source.columns:
        statistics = column_statistics.get(column.name)
        fixed = _fixed_bytes(column.data_type)
        largest = average = float(UNKNOWN)
        ndv = nulls = UNKNOWN
        if fixed is not None:
            largest = average = fixed
        elif statistics is not None:
            largest, average = _or_unknown(statistics.maximum_length), _or_unknown(statistics.average_length)
        if statistics is not None:
            ndv, nulls = round(statistics.ndv), _nulls(statistics)
        elif column.name in table.source.partition_columns:
            ndv, nulls = _of_folders(column.name, table.partitions)
        trues, falses = _truths(statistics, build)
        rows.append([column.name, column.data_type.upper(), ndv, nulls, int(largest), average, trues, falses])
    return rows_of(COLUMN_STATS, rows)


def _nulls(column: ColumnStatistics) -> int:
    made_up = column.manual and "nulls" not in column.manual and column.histogram is None and column.minimum is None
    return UNKNOWN if made_up else column.nulls


def _of_folders(column: str, partitions: Iterable[Partition]) -> tuple[int, int]:
    """Return what a partition column's folders tell: its distinct values, and that there are no NULLs."""
    values = {partition.values[column] for partition in partitions}
    return len(values - {DEFAULT_PARTITION}), UNKNOWN if DEFAULT_PARTITION in values else 0


def _truths(column: ColumnStatistics | None, build: TableStatistics | None) -> tuple[int, int]:
    """Return the rows that are true and that are false, of boolean columns."""
    if column is None or build is None or column.data_type != "boolean" or column.histogram is None:
        return UNKNOWN, UNKNOWN
    filled = build.rows - column.nulls
    falses = round(filled * column.histogram.share_up_to(0.0))
    return filled - falses, falses


def _fixed_bytes(data_type: str) -> int | None:
    """Return what a value takes in Impala's memory, None where that depends on the value."""
    digits = decimal_digits(data_type)
    if digits is not None:
        return 4 if digits[0] <= 9 else 8 if digits[0] <= 18 else 16
    return FIXED_BYTES.get(data_type)


def _or_unknown(value: float | None) -> float:
    return UNKNOWN if value is None else value


def _key(text: str) -> str:
    return "NULL" if text == DEFAULT_PARTITION else text


def _truth(value: bool) -> str:
    return "true" if value else "false"


def size_text(count: int) -> str:
    """Write bytes as Impala does: 24.56KB."""
    for unit, name in ((1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if count >= unit:
            return f"{count / unit:.2f}{name}"
    return f"{count}B"
