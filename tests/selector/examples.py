"""A small bookstore's statistics, with numbers that are easy to reckon with."""

from __future__ import annotations

import numpy as np

from selector.plan import TableShape
from selector.statistics import ColumnStatistics, Histogram, TableStatistics

BOOKS = 1_000
TRANSACTIONS = 10_000
CATEGORIES = 20
TOP_PRICE = 100.0


def uniform(low: float, high: float, buckets: int = 10) -> Histogram:
    return Histogram(np.linspace(low, high, buckets + 1))


def column(name: str, data_type: str, ndv: float, **more: object) -> ColumnStatistics:
    return ColumnStatistics(name=name, data_type=data_type, nulls=0, ndv=ndv, **more)  # type: ignore[arg-type]


def table(name: str, rows: int, *columns: ColumnStatistics) -> TableStatistics:
    by_name = {column.name: column for column in columns}
    return TableStatistics(name, version=1, rows=rows, bytes=rows * 50, columns=by_name, row_group_rows=rows)


BOOKS_STATISTICS = table(
    "books",
    BOOKS,
    column("id", "bigint", BOOKS, minimum=1.0, maximum=float(BOOKS), histogram=uniform(1, BOOKS)),
    column("price", "double", 500, minimum=0.0, maximum=TOP_PRICE, histogram=uniform(0, TOP_PRICE)),
    column("category", "string", CATEGORIES, average_length=8.0, maximum_length=12),
    column("publish_date", "date", 365, minimum=0.0, maximum=365.0, histogram=uniform(0, 365)),
)
TRANSACTIONS_STATISTICS = table(
    "transactions",
    TRANSACTIONS,
    column("id", "bigint", TRANSACTIONS),
    column("book_id", "bigint", 800),
    column("quantity", "int", 10, minimum=1.0, maximum=10.0),
)
STATISTICS = {"books": BOOKS_STATISTICS, "transactions": TRANSACTIONS_STATISTICS}
SHAPES = [
    TableShape(name, {c.name: c.data_type for c in statistics.columns.values()}, statistics.rows)
    for name, statistics in STATISTICS.items()
]
