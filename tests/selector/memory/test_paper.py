"""The paper's memory model over plans that a real DuckDB printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.memory.paper import (
    LOAD_FACTOR,
    POINTER_BYTES,
    SCAN_BUFFERS_PER_THREAD,
    hash_join_bytes,
    hash_table_bytes,
    peak_bytes,
)
from selector.plan import Operator
from tests.selector.examples import BOOKS, SHAPES, STATISTICS, TRANSACTIONS

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

import duckdb

from tests.selector.duckdb_plans import SHAPES_OF_QUERIES, bookstore, planned

NOTHING_TO_READ = "SELECT id FROM books WHERE id < 0 AND id > 5"
BIGINT, DOUBLE, STRING, INT = 8, 8, 16, 4


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with bookstore(tmp_path_factory.mktemp("bookstore")) as connection:
        yield connection


def estimated(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[EstimatedNode, int]:
    tree = estimate_rows(planned(connection, sql), STATISTICS, SHAPES)
    peak = peak_bytes(tree, STATISTICS, threads=2)
    assert peak is not None
    return tree, peak


def test_q8_the_join_costs_eq_4_and_eq_5(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT * FROM transactions JOIN books ON transactions.book_id = books.id AND books.price < 80 LIMIT 10"
    tree, peak = estimated(connection, sql)
    (join,) = [part for part in _parts(tree) if part.node.operator is Operator.HASH_JOIN]
    build_rows = 0.8 * BOOKS
    tuple_bytes = BIGINT + DOUBLE + STRING + 4  # id, price, category (8 bytes, inline), publish_date
    table_bytes = build_rows * tuple_bytes + POINTER_BYTES * build_rows / LOAD_FACTOR
    assert join.node.children[1].table == "books"
    assert hash_join_bytes(build_rows, tuple_bytes) == pytest.approx(table_bytes)
    probe_buffers = 2 * SCAN_BUFFERS_PER_THREAD * TRANSACTIONS * (BIGINT + BIGINT + INT)
    assert peak == round(table_bytes + probe_buffers)


def test_a_partitioned_build_side_is_divided_by_the_hosts() -> None:
    assert hash_table_bytes(300) == POINTER_BYTES * 300 / LOAD_FACTOR
    assert hash_join_bytes(300, 20) == 300 * 20 + hash_table_bytes(300)
    assert hash_join_bytes(300, 20, hosts=3) == pytest.approx(hash_join_bytes(300, 20) / 3)


@pytest.mark.parametrize("call", ["list(book_id)", "string_agg(book_id::VARCHAR, ',')", "median(book_id)"])
def test_aggregates_that_keep_their_inputs_are_costed_with_them(
    connection: duckdb.DuckDBPyConnection, call: str
) -> None:
    plain = estimated(connection, "SELECT quantity, sum(book_id) FROM transactions GROUP BY quantity")[1]
    keeping = estimated(connection, f"SELECT quantity, {call} FROM transactions GROUP BY quantity")[1]
    assert keeping - plain >= TRANSACTIONS * BIGINT


@pytest.mark.parametrize("sql", [sql for sql, _ in SHAPES_OF_QUERIES])
def test_every_shape_of_query_has_a_peak(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    assert (estimated(connection, sql)[1] == 0) == (sql == NOTHING_TO_READ)


def test_without_statistics_the_engines_own_rows_do(connection: duckdb.DuckDBPyConnection) -> None:
    plan = planned(connection, "SELECT category, count(*) FROM books WHERE price < 30 GROUP BY category")
    assert peak_bytes(estimate_rows(plan, {}, SHAPES), {}, threads=2) is not None


def test_unknown_rows_are_an_unknown_peak(connection: duckdb.DuckDBPyConnection) -> None:
    tree, _ = estimated(connection, "SELECT category, count(*) FROM books GROUP BY category")
    assert peak_bytes(replace(tree, rows=None), STATISTICS, threads=2) is None


def test_estimates_repeat(connection: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT b.category, sum(t.quantity) FROM transactions t JOIN books b ON t.book_id = b.id GROUP BY 1 ORDER BY 2"
    )
    assert estimated(connection, sql)[1] == estimated(connection, sql)[1]


def _parts(tree: EstimatedNode) -> Iterator[EstimatedNode]:
    yield tree
    for child in tree.children:
        yield from _parts(child)
