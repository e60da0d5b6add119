"""Estimates of statements as the gateway writes them for DuckDB: they are answered from the statement's own words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import sqlglot

from benchmarks.tables import explained
from engines.compiled import CompiledStatement, compiled
from engines.duckdb.plan_reader import read
from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.plan import Operator, TableShape
from selector.query_text import wording
from sql.parsing import ParserLimits
from sql.statement import check
from sql.tables import Column, TableSource
from tests.selector.cardinality.counted import SPARK_TYPES, Counted
from tests.writers import DUCKDB_SQL

COST = "engines.duckdb.cost"
SALES, ITEMS, STORES = 24_000, 400, 12


def _tables() -> dict[str, pa.Table]:
    chance = np.random.default_rng(7)
    return {
        "sales": pa.table(
            {
                "item": chance.integers(0, ITEMS, SALES),
                "store": chance.integers(0, STORES, SALES),
                "month": chance.integers(0, 12, SALES),
                "pieces": chance.integers(0, 20, SALES),
                "paid": chance.integers(1, 500, SALES),
            }
        ),
        "items": pa.table({"item_id": np.arange(ITEMS), "brand": chance.integers(0, 40, ITEMS)}),
    }


class Gateway:
    """Statements in Spark's words, as a gateway has DuckDB plan them."""

    def __init__(self) -> None:
        made = _tables()
        self.counted = Counted(made)
        self._catalog = {
            name: TableSource(
                name, f"/{name}", "parquet", tuple(Column(one.name, SPARK_TYPES[one.type]) for one in rows.schema)
            )
            for name, rows in made.items()
        }

    def compiled(self, sql: str) -> CompiledStatement:
        checked = check(sql, "spark", catalog=self._catalog, limits=ParserLimits())
        return compiled(checked, (DUCKDB_SQL,), {DUCKDB_SQL: COST})

    def estimated(self, sql: str) -> EstimatedNode:
        statement = self.compiled(sql)
        shapes = [
            TableShape(table.name, {column.name: column.data_type for column in table.columns})
            for table in statement.tables
        ]
        text = explained(self.counted.connection, statement.sql(DUCKDB_SQL))
        plan = read(text, shapes, statement.joined, statement.references, statement.wording[COST])
        return estimate_rows(plan, self.counted.statistics, shapes)

    def count(self, sql: str) -> int:
        return self.counted.count(self.compiled(sql).sql(DUCKDB_SQL))


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    made = Gateway()
    yield made
    made.counted.connection.close()


RATIO = "CASE WHEN pieces > 0 THEN paid / pieces ELSE NULL END"
GUARDED = [
    f"SELECT item FROM sales WHERE {RATIO} > 100",
    f"SELECT item FROM sales WHERE {RATIO} > 100 AND {RATIO} < 150 AND month < 6",
    f"SELECT item FROM (SELECT item, {RATIO} AS price FROM sales) WHERE price > 100",
    "SELECT item FROM sales WHERE pieces > 0 AND (paid * 2) / pieces < 20.50",
    "SELECT item FROM sales WHERE paid DIV (pieces + 1) > 100",
    "SELECT brand FROM sales JOIN items ON item = item_id WHERE paid % (pieces + 1) = 3",
]


@pytest.mark.parametrize("sql", GUARDED)
def test_what_is_written_anew_for_duckdb_is_answered_as_the_statement_has_it(gateway: Gateway, sql: str) -> None:
    found, true = gateway.estimated(sql), gateway.count(sql)
    assert found.rows == pytest.approx(true, rel=0.02)
    assert not found.all_gaps()


def test_what_nothing_answers_is_named_as_the_statement_has_it(gateway: Gateway) -> None:
    sql = (
        "SELECT total FROM (SELECT item, sum(paid) AS total, avg(sum(paid)) OVER (PARTITION BY item) AS mean "
        "FROM sales GROUP BY item, month) WHERE CASE WHEN mean > 0 THEN abs(total - mean) / mean END > 0.1"
    )
    gaps = " ".join(gateway.estimated(sql).all_gaps())
    assert "ABS((SUM(paid)) - " in gaps
    assert "meant otherwise" not in gaps
    assert "INT128" not in gaps


MONTHLY = (
    "WITH monthly AS (SELECT brand, store, month, sum(paid) AS total, avg(sum(paid)) OVER (PARTITION BY brand, store) "
    "AS mean, rank() OVER (PARTITION BY brand, store ORDER BY month) AS place "
    "FROM sales JOIN items ON item = item_id GROUP BY brand, store, month) "
)


def test_a_grouping_meets_itself_on_its_keys_and_a_rank_once(gateway: Gateway) -> None:
    """As TPC-DS q47 and q57 do: the keys are of two tables, and the rank is named by a projection."""
    sql = (
        f"{MONTHLY} SELECT a.total, b.total, c.total FROM monthly a, monthly b, monthly c WHERE a.brand = b.brand "
        "AND a.store = b.store AND a.brand = c.brand AND a.store = c.store AND a.place = b.place + 1 "
        "AND a.place = c.place - 1 AND a.mean > 0"
    )
    found = gateway.estimated(sql)
    joins = [
        part for part in _parts(found) if part.node.operator is Operator.HASH_JOIN and len(part.node.join_keys) > 1
    ]
    rows = gateway.count(f"{MONTHLY} SELECT * FROM monthly")
    assert len(joins) == 2
    for join in joins:
        assert join.rows is not None
        assert join.rows < 1.2 * rows


def _parts(part: EstimatedNode) -> Iterator[EstimatedNode]:
    yield part
    for child in part.children:
        yield from _parts(child)


@pytest.mark.parametrize(
    ("sql", "predicates"),
    [
        ("SELECT 1 FROM t WHERE a = 1 AND b IN (1, 2) AND c BETWEEN 1 AND 2 AND d IS NULL", ()),
        ("SELECT 1 FROM t WHERE t.a / t.b > 2 AND c = 1", ("a / b > 2",)),
        ("SELECT 1 FROM t JOIN u ON t.a = u.b AND abs(t.c - u.d) < 3", ("ABS(c - d) < 3",)),
        ("SELECT a FROM t GROUP BY a HAVING sum(b) > 3", ("SUM(b) > 3",)),
        ("SELECT 1 FROM (SELECT a + 1 AS x FROM t) WHERE x * 2 > 3", ("x * 2 > 3", "(a + 1) * 2 > 3")),
        ("SELECT 1 FROM (SELECT a + 1 AS x FROM t) WHERE x > 3", ("(a + 1) > 3",)),
        ("SELECT 1 FROM t WHERE a + 1 IN (SELECT b FROM u)", ()),
    ],
)
def test_conjuncts_that_compute_something(sql: str, predicates: tuple[str, ...]) -> None:

    assert wording(sqlglot.parse_one(sql, read="duckdb"), dialect="duckdb").predicates == predicates
