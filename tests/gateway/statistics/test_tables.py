"""What SHOW TABLE STATS and SHOW COLUMN STATS say of statistics that are known, by hand-made builds."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gateway.statistics.tables import COLUMN_STATS, column_stats, table_stats
from metastore.discovery.inspection import DEFAULT_PARTITION
from metastore.records import CatalogTable, Partition, StatisticsPart
from selector.statistics import ColumnStatistics, Histogram, TableStatistics
from sql.tables import Column, TableSource

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ROWS, NULLS, TRUES = 1_000, 100, 300


def table(*columns: tuple[str, str], partitions: tuple[Partition, ...] = (), bytes_: int = 0) -> CatalogTable:
    keys = tuple(partitions[0].values) if partitions else ()
    listed = tuple(Column(name, kind) for name, kind in columns)
    source = TableSource("t", "/data/t", "csv", listed, partition_columns=keys)
    return CatalogTable(source, 3, bytes_, None, partitions, NOON)


def build(*columns: ColumnStatistics) -> TableStatistics:
    return TableStatistics("t", 1, ROWS, 1, {column.name: column for column in columns})


def row_of(shown: pa.Table, column: str) -> dict[str, Any]:
    return next(row for row in shown.to_pylist() if row["Column"] == column)


def test_a_column_of_text_tells_its_sizes() -> None:
    text = ColumnStatistics("c", "string", NULLS, 12.4, "a", "z", average_length=5.25, maximum_length=9)
    row = row_of(column_stats(table(("c", "string")), build(text)), "c")
    assert list(row) == COLUMN_STATS.names
    assert list(row.values()) == ["c", "STRING", 12, NULLS, 9, 5.25, -1, -1]


def test_a_boolean_column_counts_both_values() -> None:
    falses = ROWS - NULLS - TRUES
    share = falses / (ROWS - NULLS)
    histogram = Histogram(np.array([0.0, 1.0]), below=np.array([0.0, share]), up_to=np.array([share, 1.0]))
    flag = ColumnStatistics("c", "boolean", NULLS, 2.0, 0.0, 1.0, histogram=histogram)
    row = row_of(column_stats(table(("c", "boolean")), build(flag)), "c")
    assert (row["#Trues"], row["#Falses"], row["Max Size"], row["Avg Size"]) == (TRUES, falses, 1, 1.0)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("decimal(9,2)", 4),
        ("decimal(18,2)", 8),
        ("decimal(38,10)", 16),
        ("timestamp", 16),
        ("smallint", 2),
        ("binary", -1),
        ("array<int>", -1),
    ],
)
def test_sizes_of_types_are_known_without_statistics(kind: str, size: int) -> None:
    row = row_of(column_stats(table(("c", kind)), None), "c")
    assert (row["Type"], row["Max Size"], row["Avg Size"]) == (kind.upper(), size, float(size))
    assert row["#Distinct Values"] == row["#Nulls"] == -1


def test_what_nobody_set_by_hand_stays_unknown() -> None:
    by_hand = ColumnStatistics("c", "string", 0, 7.0, manual=frozenset({"ndv"}))
    row = row_of(column_stats(table(("c", "string")), build(by_hand)), "c")
    assert (row["#Distinct Values"], row["#Nulls"], row["Max Size"], row["Avg Size"]) == (7, -1, -1, -1.0)
    corrected = ColumnStatistics("c", "string", 5, 7.0, "a", "z", manual=frozenset({"ndv"}))
    assert row_of(column_stats(table(("c", "string")), build(corrected)), "c")["#Nulls"] == 5


def test_folders_for_null_are_told() -> None:
    partitions = tuple(Partition(f"p={value}", {"p": value}, 1, 2_048) for value in ("a", "b", DEFAULT_PARTITION))
    partitioned = table(("id", "bigint"), ("p", "string"), partitions=partitions, bytes_=3 << 20)
    part = StatisticsPart("p=a", (), 10, 2_048, 1.0, NOON, b"")
    shown = table_stats(partitioned, build(), {"p=a": part})
    rows = [list(row.values()) for row in shown.to_pylist()]
    assert [row[0] for row in rows] == ["a", "b", "NULL", "Total"]
    assert [row[1] for row in rows] == [10, -1, -1, ROWS]
    assert [row[3] for row in rows] == ["2.00KB", "2.00KB", "2.00KB", "3.00MB"]
    assert [row[6] for row in rows] == ["TEXT", "TEXT", "TEXT", ""]
    assert [row[7] for row in rows] == ["true", "false", "false", ""]
    column = row_of(column_stats(partitioned, None), "p")
    assert (column["#Distinct Values"], column["#Nulls"]) == (2, -1)


@pytest.mark.parametrize(("count", "text"), [(0, "0B"), (1_023, "1023B"), (25_149, "24.56KB"), (5 << 30, "5.00GB")])
def test_sizes_are_written_as_impala_does(count: int, text: str) -> None:
    assert table_stats(table(("id", "bigint"), bytes_=count), None).column("Size").to_pylist() == [text]
