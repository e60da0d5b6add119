"""A small bookstore in a real DuckDB, and the plans that it prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from engines.duckdb.plan_reader import read
from selector.plan import Plan
from tests.selector.examples import BOOKS, CATEGORIES, SHAPES, TRANSACTIONS

DISTINCT_BOOKS_SOLD = 800
SHAPES_OF_QUERIES = [
    ("SELECT id FROM books WHERE id IN (SELECT book_id FROM transactions)", DISTINCT_BOOKS_SOLD),
    (
        "SELECT b.id, t.id FROM books b LEFT JOIN transactions t ON t.book_id = b.id",
        TRANSACTIONS + BOOKS - DISTINCT_BOOKS_SOLD,
    ),
    ("SELECT a.id FROM books a CROSS JOIN books b", BOOKS * BOOKS),
    ("SELECT id FROM books UNION ALL SELECT id FROM transactions", BOOKS + TRANSACTIONS),
    ("SELECT id FROM books LIMIT 7", 7),
    ("SELECT id FROM books WHERE id < 0 AND id > 5", 0),
    (
        "WITH x AS MATERIALIZED (SELECT id FROM books WHERE price < 50) SELECT a.id FROM x a JOIN x b ON a.id = b.id",
        0.5 * BOOKS * 0.5 * BOOKS / BOOKS,
    ),
]


@contextmanager
def bookstore(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a database with the tables books and transactions over Parquet files in a folder."""
    with duckdb.connect() as made:
        _table(
            made,
            folder,
            "books",
            f"SELECT i AS id, (i % 100)::DOUBLE AS price, 'category' || i % {CATEGORIES} AS category, "
            f"DATE '1970-01-01' + (i % 365)::INT AS publish_date FROM range({BOOKS}) t(i)",
        )
        _table(
            made,
            folder,
            "transactions",
            f"SELECT i AS id, i % {BOOKS} AS book_id, (1 + i % 10)::INT AS quantity FROM range({TRANSACTIONS}) t(i)",
        )
        yield made


def _table(connection: duckdb.DuckDBPyConnection, folder: Path, name: str, rows: str) -> None:
    file = folder / f"{name}.parquet"
    connection.execute(f"COPY ({rows}) TO '{file}' (FORMAT parquet)")
    connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{file}')")


def planned(connection: duckdb.DuckDBPyConnection, sql: str) -> Plan:
    """Return the plan of a statement."""
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchone()
    assert row is not None
    return read(row[1], SHAPES)
