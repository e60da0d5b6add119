"""Cardinalities and memory over plans that a real DuckDB printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.estimate import MemoryEstimate
from selector.explain.duckdb import read
from selector.memory import paper
from selector.memory.paper import LOAD_FACTOR, POINTER_BYTES, UPPER_FACTOR
from selector.plan import JoinType, Operator, Plan, PlanNode, TableShape, UnreadablePlan
from tests.selector.examples import BOOKS, CATEGORIES, SHAPES, STATISTICS, TRANSACTIONS

pytest.importorskip("duckdb")

import duckdb

DISTINCT_BOOKS_SOLD = 800
BIGINT, DOUBLE, STRING, INT = 8, 8, 16, 4


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("bookstore")
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
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchone()
    assert row is not None
    return read(row[1], SHAPES)


def estimated(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[EstimatedNode, MemoryEstimate]:
    tree = estimate_rows(planned(connection, sql), STATISTICS, SHAPES)
    return tree, paper.estimate(tree, STATISTICS, threads=2)


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
    tree, estimate = estimated(connection, "SELECT count(*) FROM books WHERE price < 30")
    (scan,) = [part for part in _parts(tree) if part.node.operator is Operator.SCAN]
    assert scan.rows == pytest.approx(0.3 * BOOKS)
    assert tree.rows == 1.0
    assert estimate.confidence == 1.0


def test_q3_a_join_on_a_unique_key_keeps_the_filter_share(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT count(*) FROM transactions JOIN books ON transactions.book_id = books.id AND books.price < 30"
    tree, _ = estimated(connection, sql)
    (join,) = [part for part in _parts(tree) if part.node.operator is Operator.HASH_JOIN]
    assert join.rows == pytest.approx(TRANSACTIONS * 0.3)  # Eq. (1)


def test_a_filter_that_a_join_pushed_down_does_not_count_twice() -> None:
    def scan(columns: str, rows: int, *filters: str) -> dict[str, object]:
        info = {"Projections": columns, "Filters": list(filters), "Estimated Cardinality": str(rows)}
        return {"name": "READ_PARQUET", "extra_info": info}

    sides = [scan("book_id", TRANSACTIONS), scan("id", BOOKS, "(id <= 800)")]
    text = json.dumps([{"name": "HASH_JOIN", "extra_info": {"Conditions": "book_id = id"}, "children": sides}])
    tree = estimate_rows(read(text, SHAPES), STATISTICS, SHAPES)
    assert tree.rows == pytest.approx(TRANSACTIONS, rel=0.01)  # all 800 books that were sold pass


def test_q8_the_join_costs_eq_4_and_eq_5(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT * FROM transactions JOIN books ON transactions.book_id = books.id AND books.price < 80 LIMIT 10"
    tree, estimate = estimated(connection, sql)
    (join,) = [part for part in _parts(tree) if part.node.operator is Operator.HASH_JOIN]
    build_rows = 0.8 * BOOKS
    tuple_bytes = BIGINT + DOUBLE + STRING + 4  # id, price, category (8 bytes, inline), publish_date
    table_bytes = build_rows * tuple_bytes + POINTER_BYTES * build_rows / LOAD_FACTOR
    held = {part.operator: part.held_bytes for part in estimate.operators}
    assert join.node.children[1].table == "books"
    assert held["hash join"] == round(table_bytes)
    probe_buffers = 2 * paper.SCAN_BUFFERS_PER_THREAD * TRANSACTIONS * (BIGINT + BIGINT + INT)
    assert estimate.peak_bytes == round(table_bytes + probe_buffers)
    assert estimate.upper_bytes == round((table_bytes + probe_buffers) * UPPER_FACTOR / estimate.confidence)


def test_groups_are_counted_by_ndv(connection: duckdb.DuckDBPyConnection) -> None:
    tree, _ = estimated(connection, "SELECT category, count(*) FROM books GROUP BY category")
    (groups,) = [part for part in _parts(tree) if part.node.operator is Operator.AGGREGATE]
    assert groups.rows == pytest.approx(CATEGORIES, rel=0.01)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT id FROM books WHERE id IN (SELECT book_id FROM transactions)", DISTINCT_BOOKS_SOLD),
        ("SELECT b.id, t.id FROM books b LEFT JOIN transactions t ON t.book_id = b.id", TRANSACTIONS),
        ("SELECT a.id FROM books a CROSS JOIN books b", BOOKS * BOOKS),
        ("SELECT id FROM books UNION ALL SELECT id FROM transactions", BOOKS + TRANSACTIONS),
        ("SELECT id FROM books LIMIT 7", 7),
        ("SELECT id FROM books WHERE id < 0 AND id > 5", 0),
        (
            "WITH x AS MATERIALIZED (SELECT id FROM books WHERE price < 50) "
            "SELECT a.id FROM x a JOIN x b ON a.id = b.id",
            0.5 * BOOKS * 0.5 * BOOKS / BOOKS,
        ),
    ],
)
def test_shapes_of_queries(connection: duckdb.DuckDBPyConnection, sql: str, rows: float) -> None:
    tree, estimate = estimated(connection, sql)
    assert tree.rows == pytest.approx(rows, rel=0.02)
    assert estimate.peak_bytes is not None


@pytest.mark.parametrize("call", ["list(book_id)", "string_agg(book_id::VARCHAR, ',')", "median(book_id)"])
def test_aggregates_that_keep_their_inputs_are_costed_with_them(
    connection: duckdb.DuckDBPyConnection, call: str
) -> None:
    plain = estimated(connection, "SELECT quantity, sum(book_id) FROM transactions GROUP BY quantity")[1]
    keeping = estimated(connection, f"SELECT quantity, {call} FROM transactions GROUP BY quantity")[1]
    assert keeping.peak_bytes is not None
    assert plain.peak_bytes is not None
    assert keeping.peak_bytes - plain.peak_bytes >= TRANSACTIONS * BIGINT


def test_missing_statistics_lower_the_confidence_and_say_so(connection: duckdb.DuckDBPyConnection) -> None:
    plan = planned(connection, "SELECT category, count(*) FROM books WHERE price < 30 GROUP BY category")
    tree = estimate_rows(plan, {}, SHAPES)
    estimate = paper.estimate(tree, {}, threads=2)
    assert estimate.confidence < 0.5
    assert estimate.gaps == ("books has no statistics; run `fusion stats compute books`",)
    (scan,) = [part for part in _parts(tree) if part.node.operator is Operator.SCAN]
    assert scan.rows == BOOKS  # nothing is known of the filter, so nothing is taken off


def test_join_types_are_read(connection: duckdb.DuckDBPyConnection) -> None:
    plan = planned(connection, "SELECT id FROM books WHERE id NOT IN (SELECT book_id FROM transactions)")
    assert nodes(plan, Operator.HASH_JOIN)[0].join_type in (JoinType.MARK, JoinType.ANTI)


def test_estimates_repeat(connection: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT b.category, sum(t.quantity) FROM transactions t JOIN books b ON t.book_id = b.id GROUP BY 1 ORDER BY 2"
    )
    assert estimated(connection, sql)[1] == estimated(connection, sql)[1]


def _parts(tree: EstimatedNode) -> Iterator[EstimatedNode]:
    yield tree
    for child in tree.children:
        yield from _parts(child)
