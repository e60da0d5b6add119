"""Cardinalities over plans that a real DuckDB printed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from engines.duckdb.plan_reader import read
from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.plan import JoinType, Operator, Plan, PlanNode, TableShape, UnreadablePlan
from tests.selector.examples import BOOKS, CATEGORIES, SHAPES, STATISTICS, TRANSACTIONS, column, table

pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")

import duckdb

from tests.selector.duckdb_plans import DISTINCT_BOOKS_SOLD, SHAPES_OF_QUERIES, bookstore, planned


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    with bookstore(tmp_path_factory.mktemp("bookstore")) as connection:
        yield connection


def estimated(connection: duckdb.DuckDBPyConnection, sql: str) -> EstimatedNode:
    return estimate_rows(planned(connection, sql), STATISTICS, SHAPES)


def nodes(plan: Plan, operator: Operator) -> list[PlanNode]:
    return [node for _, node in plan.root.walk() if node.operator is operator]


def test_scans_find_their_tables_by_columns_and_rows(connection: duckdb.DuckDBPyConnection) -> None:
    plan = planned(connection, "SELECT t.id, b.id FROM transactions t JOIN books b ON t.book_id = b.id")
    assert {scan.table for scan in nodes(plan, Operator.SCAN)} == {"books", "transactions"}
    (join,) = nodes(plan, Operator.HASH_JOIN)
    assert [(left.table, right.table) for left, right in join.join_keys] == [("transactions", "books")]
    assert plan.notes == ()


def test_a_scan_that_could_be_of_two_tables_is_noted() -> None:
    twins = [TableShape(name, {"id": "bigint"}, rows=10) for name in ("a", "b")]
    text = json.dumps([{"name": "READ_PARQUET", "extra_info": {"Projections": "id", "Estimated Cardinality": "10"}}])
    assert read(text, twins).notes == ("a scan of id may be of a or b",)


def test_columns_that_a_join_drops_do_not_shift_the_others() -> None:
    def node(name: str, *children: object, **info: object) -> dict[str, object]:
        return {"name": name, "extra_info": info, "children": list(children)}

    probe = node("READ_PARQUET", Projections=["book_id", "quantity"])
    build = node("READ_PARQUET", Projections=["id", "category", "price"])
    join = node("HASH_JOIN", probe, build, Conditions="book_id = id")
    plan = read(json.dumps([node("PROJECTION", join, Projections=["CAST(#0 AS TINYINT)", "#1", "#2"])]), SHAPES)
    assert [column.name for column in plan.root.columns] == ["quantity", "category", "price"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '[{"name": 3}]', '[{"name": "HASH_JOIN", "children": []}]', "null"])
def test_what_is_no_plan_is_told(text: str) -> None:
    with pytest.raises(UnreadablePlan):
        read(text, SHAPES)


def test_q1_a_filtered_count(connection: duckdb.DuckDBPyConnection) -> None:
    tree = estimated(connection, "SELECT count(*) FROM books WHERE price < 30")
    (scan,) = [part for part in _parts(tree) if part.node.operator is Operator.SCAN]
    assert scan.rows == pytest.approx(0.3 * BOOKS)
    assert tree.rows == 1.0


def test_q3_a_join_on_a_unique_key_keeps_the_filter_share(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT count(*) FROM transactions JOIN books ON transactions.book_id = books.id AND books.price < 30"
    tree = estimated(connection, sql)
    (join,) = [part for part in _parts(tree) if part.node.operator is Operator.HASH_JOIN]
    assert join.rows == pytest.approx(TRANSACTIONS * 0.3)  # Eq. (1)


def test_a_filter_that_a_join_pushed_down_does_not_count_twice() -> None:
    def scan(columns: str, rows: int, *filters: str) -> dict[str, object]:
        info = {"Projections": columns, "Filters": list(filters), "Estimated Cardinality": str(rows)}
        return {"name": "READ_PARQUET", "extra_info": info}

    sides = [scan("book_id", TRANSACTIONS), scan("id", BOOKS, "(id <= 800)")]
    text = json.dumps([{"name": "HASH_JOIN", "extra_info": {"Conditions": "book_id = id"}, "children": sides}])
    sold = column("book_id", "bigint", DISTINCT_BOOKS_SOLD, minimum=1.0, maximum=float(DISTINCT_BOOKS_SOLD))
    statistics = {**STATISTICS, "transactions": table("transactions", TRANSACTIONS, sold)}
    tree = estimate_rows(read(text, SHAPES), statistics, SHAPES)
    assert tree.rows == pytest.approx(TRANSACTIONS, rel=0.01)  # all 800 books that were sold pass


def test_groups_are_counted_by_ndv(connection: duckdb.DuckDBPyConnection) -> None:
    tree = estimated(connection, "SELECT category, count(*) FROM books GROUP BY category")
    (groups,) = [part for part in _parts(tree) if part.node.operator is Operator.AGGREGATE]
    assert groups.rows == pytest.approx(CATEGORIES, rel=0.01)


@pytest.mark.parametrize(("sql", "rows"), SHAPES_OF_QUERIES)
def test_shapes_of_queries(connection: duckdb.DuckDBPyConnection, sql: str, rows: float) -> None:
    assert estimated(connection, sql).rows == pytest.approx(rows, rel=0.02)


def test_missing_statistics_are_named(connection: duckdb.DuckDBPyConnection) -> None:
    plan = planned(connection, "SELECT category, count(*) FROM books WHERE price < 30 GROUP BY category")
    tree = estimate_rows(plan, {}, SHAPES)
    assert tree.all_gaps() == ("books has no statistics; run `fusion stats compute books`",)
    (scan,) = [part for part in _parts(tree) if part.node.operator is Operator.SCAN]
    assert scan.rows == BOOKS  # nothing is known of the filter, so nothing is taken off


def test_join_types_are_read(connection: duckdb.DuckDBPyConnection) -> None:
    plan = planned(connection, "SELECT id FROM books WHERE id NOT IN (SELECT book_id FROM transactions)")
    assert nodes(plan, Operator.HASH_JOIN)[0].join_type in (JoinType.MARK, JoinType.ANTI)


def _parts(tree: EstimatedNode) -> Iterator[EstimatedNode]:
    yield tree
    for child in tree.children:
        yield from _parts(child)
