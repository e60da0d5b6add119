"""Values to put into a metastore."""

from __future__ import annotations

import datetime as dt

import numpy as np

from engines.protocol import Column, TableSource
from metastore.records import Inspection, Misestimate, Partition, QueryRecord, QueryState
from selector.statistics import ColumnStatistics, Histogram, TableStatistics

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
MINUTE = dt.timedelta(minutes=1)

ID = Column("id", "bigint")
PRICE = Column("price", "double")
YEAR = Column("year", "int")


def books(*columns: Column) -> Inspection:
    """Return a table as inspected."""
    return Inspection(
        TableSource("Books", "/data/books", "csv", columns or (ID, PRICE), options={"delimiter": "|"}),
        files=2,
        bytes=1 << 40,
        rows=None,
    )


def sales() -> Inspection:
    """Return a partitioned table as inspected."""
    return Inspection(
        TableSource("sales", "/data/sales", "parquet", (ID, YEAR), partition_columns=("year",)),
        files=3,
        bytes=300,
        rows=30,
        partitions=(
            Partition("year=2024", {"year": "2024"}, 1, 100),
            Partition("year=2025", {"year": "2025"}, 2, 200),
        ),
    )


def build(table: str = "books", rows: int = 1000) -> TableStatistics:
    """Return one build of statistics, with one column of every kind."""
    prices = Histogram(
        np.array([1.0, 2.0, 2.0, 9.5]), np.array([0.0, 0.25, 0.25, 0.9]), np.array([0.01, 0.6, 0.6, 1.0])
    )
    return TableStatistics(
        table=table,
        version=0,
        rows=rows,
        bytes=1 << 35,
        row_group_rows=122_880,
        columns={
            "id": ColumnStatistics("id", "bigint", 0, 1000.0, 1.0, 1000.0),
            "price": ColumnStatistics("price", "double", 7, 123.25, 1.0, 9.5, histogram=prices),
            "isbn": ColumnStatistics("isbn", "string", 0, 1000.0, "978-0\x00", "978-9ü", 17.5, 19),
            "empty": ColumnStatistics("empty", "date", 1000, 0.0),
        },
    )


def query(name: str = "q1", at: dt.datetime = NOON) -> QueryRecord:
    """Return a query that was just submitted."""
    return QueryRecord(name, "SELECT 1", "ansi", "ann", "auto", QueryState.QUEUED, at)


def lesson(
    *, engine: str = "duckdb", version: str = "books@1", limit_bytes: int = 1 << 33, at: dt.datetime = NOON
) -> Misestimate:
    """Return a lesson about the fingerprint ``f``."""
    return Misestimate("f", engine, version, limit_bytes, "q1", "SELECT ?", 100, 200, at)
