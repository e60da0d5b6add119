"""Groups over columns of both sides of a join, in plans that a real DuckDB printed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.memory.pipeline import walk
from selector.plan import Operator
from tests.selector.examples import BOOKS, CATEGORIES, SHAPES, STATISTICS

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

import duckdb

from tests.selector.duckdb_plans import bookstore, planned


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with bookstore(tmp_path_factory.mktemp("bookstore")) as connection:
        yield connection


def groups(connection: duckdb.DuckDBPyConnection, sql: str) -> list[EstimatedNode]:
    tree = estimate_rows(planned(connection, sql), STATISTICS, SHAPES)
    return [part for _, part in walk(tree) if part.node.operator is Operator.AGGREGATE]


@pytest.mark.parametrize("key", ["t.book_id", "b.id"])
def test_a_key_says_the_same_from_either_side_of_a_join(connection: duckdb.DuckDBPyConnection, key: str) -> None:
    sql = f"SELECT {key}, b.publish_date, count(*) FROM transactions t JOIN books b ON t.book_id = b.id GROUP BY ALL"
    (found,) = groups(connection, sql)
    assert found.rows is not None
    assert found.rows <= BOOKS


def test_distinct_values_beside_another_aggregate_are_those_of_the_columns_that_are_named(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sql = (
        "SELECT b.category, count(DISTINCT b.id), max(b.publish_date) "
        "FROM transactions t JOIN books b ON t.book_id = b.id GROUP BY b.category"
    )
    rows = sorted(part.rows or 0.0 for part in groups(connection, sql))
    assert rows[:-1] == pytest.approx([CATEGORIES] * (len(rows) - 1), rel=0.1)
    assert rows[-1] <= BOOKS
