"""Values to put into a metastore."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np

from engines.files.listing import FileMark
from metastore.records import Inspection, Misestimate, Partition, QueryRecord, QueryState, StatisticsPart
from selector.join_keys import Bins, KeySample, KeyStatistics
from selector.row_sample import RowSample, SampleColumn
from selector.statistics import ColumnStatistics, CommonValues, Histogram, TableStatistics
from sql.tables import Column, TableSource

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
NOON_NS = 1_772_366_400_123_456_789
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


def full_build(bins: Bins) -> TableStatistics:
    """Return one build with everything that a build can have, with bytes that are no UTF-8. bins: of three bins."""
    keys = np.array([b"", b"a", "ü".encode()[:1], b"\xff" * 32], dtype="S32")
    isbn = ColumnStatistics(
        "isbn", "string", 1, 3.0, "", "ü", 1.0, 2, Histogram(keys), CommonValues(keys[1:], np.array([1 << 40, 2, 1]))
    )
    price = ColumnStatistics(
        "price",
        "double",
        0,
        2.0,
        common=CommonValues(np.array([9.5, -0.0]), np.array([7, 7])),
        manual=frozenset({"ndv"}),
    )
    whole = {
        "id": SampleColumn.of(np.array([1.0, 2.5, 2.5]), np.zeros(3, dtype=np.bool_)),
        "isbn": SampleColumn.of(np.array(["", "ü", "x"], dtype=object), np.array([False, False, True])),
    }
    ids = KeyStatistics(
        bins,
        np.array([1.0, 0.0, 3.0]),
        np.array([1.0, 0.0, 2.25]),
        np.array([1.0, 0.0, 2.0]),
        KeySample(0.125, RowSample(3, 0.125, whole)),
    )
    return replace(
        build(),
        columns={**build().columns, "isbn": isbn, "price": price},
        files=17,
        share=0.1,
        notes=("column tags (array<string>) is left out: nested",),
        manual=frozenset({"rows"}),
        source="hive",
        sample=RowSample(
            2,
            0.002,
            {
                "price": SampleColumn.of(np.array([1.5, 0.0]), np.array([False, True])),
                "isbn": SampleColumn.of(np.array(["b", "a"], dtype=object), np.array([False, False])),
            },
        ),
        keys={"id": ids, "id,isbn": replace(ids, sample=None)},
    )


def part(folder: str = "", *, at: dt.datetime = NOON, summary: bytes = b"\0\xff") -> StatisticsPart:
    """Return the summary of a part with two files."""
    marks = tuple(FileMark(f"{folder}/{n}.parquet".lstrip("/"), 1 << 40, NOON_NS + n) for n in range(2))
    return StatisticsPart(folder, marks, 1 << 33, 1 << 41, 0.25, at, summary)


def query(name: str = "q1", at: dt.datetime = NOON) -> QueryRecord:
    """Return a query that was just submitted."""
    return QueryRecord(name, "SELECT 1", "hive", "ann", "auto", QueryState.QUEUED, at)


def misestimate(
    *, engine: str = "duckdb", version: str = "books@1", limit_bytes: int = 1 << 33, at: dt.datetime = NOON
) -> Misestimate:
    """Return a misestimate about the fingerprint ``f``."""
    return Misestimate("f", engine, version, limit_bytes, "q1", "SELECT ?", 100, 200, at)
