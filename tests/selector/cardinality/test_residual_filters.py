"""Rows behind filters that stand above joins and groups, on plans that a real DuckDB printed over real tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import sqlglot

from engines.duckdb.plan_reader import read
from selector.cardinality.tree import EstimatedNode, estimate_rows
from selector.plan import Operator, TableShape
from selector.query_text import join_pairs, wording
from selector.statistics import TableStatistics
from tests.selector.described import described

ORDERS, CUSTOMERS, COUNTRIES = 60_000, 5_000, 20
TYPES = {
    "orders": {"okey": "bigint", "ocust": "bigint", "day": "date", "pieces": "bigint", "state": "string"},
    "customers": {"ckey": "bigint", "country": "bigint", "name": "string"},
    "countries": {"nkey": "bigint", "nation": "string"},
}
KEYS = {"orders": ("ocust",)}
MADE = {
    "orders": f"SELECT i AS okey, (hash(i) % {CUSTOMERS})::BIGINT AS ocust, "
    "DATE '2020-01-01' + (hash(i + 1) % 1000)::INT"
    f" AS day, (1 + hash(i + 2) % 50)::BIGINT AS pieces, 'S' || hash(i + 3) % 5 AS state FROM range({ORDERS}) t(i)",
    "customers": f"SELECT i AS ckey, (hash(i) % {COUNTRIES})::BIGINT AS country, 'name ' || i AS name "
    f"FROM range({CUSTOMERS}) t(i)",
    "countries": f"SELECT i AS nkey, 'nation ' || i AS nation FROM range({COUNTRIES}) t(i)",
}


class Shop:
    """Tables, their statistics, and the way from a statement to its rows."""

    def __init__(self, folder: Path) -> None:
        self.connection = duckdb.connect()
        self.statistics: dict[str, TableStatistics] = {}
        for name, sql in MADE.items():
            file = folder / f"{name}.parquet"
            self.connection.execute(f"COPY ({sql}) TO '{file}' (FORMAT parquet)")
            self.connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{file}')")
            rows: pa.Table = self.connection.sql(f"SELECT * FROM {name}").to_arrow_table()
            found = described(rows, TYPES[name], keys=KEYS.get(name, ()), sample_share=0.2)
            self.statistics[name] = replace(found, table=name, row_group_rows=found.rows)

    def estimated(self, sql: str) -> EstimatedNode:
        shapes = [TableShape(name, types, self.statistics[name].rows) for name, types in TYPES.items() if name in sql]
        tree = sqlglot.parse_one(sql, read="duckdb")
        columns = {name: frozenset(types) for name, types in TYPES.items()}
        ((_, text),) = self.connection.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()
        plan = read(text, shapes, join_pairs(tree, columns), None, wording(tree, dialect="duckdb"))
        return estimate_rows(plan, self.statistics, shapes)

    def rows(self, sql: str) -> int:
        ((found,),) = self.connection.execute(f"SELECT count(*) FROM ({sql})").fetchall()
        return int(found)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(tmp_path_factory.mktemp("shop"))
    yield made
    made.connection.close()


JOINED = "orders JOIN customers ON ocust = ckey"
STATEMENTS = [
    # grouping keys that others determine
    f"SELECT ocust, name, country, count(*) AS n FROM {JOINED} GROUP BY ocust, name, country",
    f"SELECT okey, day, name, sum(pieces) AS n FROM {JOINED} GROUP BY okey, day, name",
    f"SELECT country, state, count(*) AS n FROM {JOINED} GROUP BY country, state",
    # expressions, by the statement's own name for them
    "SELECT year(day) AS y, count(*) AS n FROM orders GROUP BY y",
    "SELECT date_trunc('month', day) AS m, state, sum(pieces) AS n FROM orders GROUP BY ALL",
    "SELECT pieces % 7 AS r, country, count(*) AS n FROM orders JOIN customers ON ocust = ckey GROUP BY ALL",
    # conditions on groups
    "SELECT ocust, count(*) AS n FROM orders GROUP BY ocust HAVING count(*) > 14",
    "SELECT ocust, sum(pieces) AS total FROM orders GROUP BY ocust HAVING sum(pieces) > 350",
    "SELECT ocust, max(pieces) AS most FROM orders GROUP BY ocust HAVING max(pieces) < 46",
    "SELECT * FROM (SELECT ocust, min(day) AS first FROM orders GROUP BY ocust) t WHERE first > DATE '2020-03-01'",
    # groups of counts
    "SELECT n, count(*) AS customers FROM (SELECT ocust, count(*) AS n FROM orders GROUP BY ocust) t GROUP BY n",
    # rows that met another one, or did not
    "SELECT okey FROM orders WHERE ocust IN (SELECT ckey FROM customers WHERE country < 4) OR pieces = 7",
    "SELECT ckey FROM customers WHERE ckey NOT IN (SELECT ocust FROM orders WHERE pieces < 3)",
    # a condition on two tables, whose parts scans apply already
    f"SELECT okey FROM {JOINED} WHERE (state = 'S1' AND country = 3) OR (state = 'S2' AND country = 4)",
    # so many of each partition
    "SELECT * FROM (SELECT ocust, okey, row_number() OVER (PARTITION BY ocust ORDER BY day) AS r FROM orders) t "
    "WHERE r <= 2",
    "SELECT * FROM (SELECT ocust, okey, rank() OVER (PARTITION BY state ORDER BY day) AS r FROM orders) t WHERE r < 40",
    # several relations
    "SELECT * FROM (SELECT state, pieces FROM orders WHERE pieces < 10 UNION ALL SELECT state, pieces FROM orders) t "
    "WHERE length(state) + pieces > 40",
    "SELECT ocust FROM (SELECT ocust FROM orders UNION ALL SELECT ckey FROM customers) t GROUP BY ocust",
]


@pytest.mark.parametrize("sql", STATEMENTS)
def test_rows_are_expected_as_they_come_out(shop: Shop, sql: str) -> None:
    found, true = shop.estimated(sql), shop.rows(sql)
    assert found.rows is not None
    assert found.upper is not None
    assert found.rows <= found.upper * (1 + 1e-9)
    assert max(found.rows, true) / max(1.0, min(found.rows, true)) < 1.6, f"{found.rows:,.0f} of {true:,}"


def test_a_filter_that_is_repeated_above_a_join_counts_once(shop: Shop) -> None:
    sql = f"SELECT okey FROM {JOINED} WHERE (state = 'S1' AND country = 3) OR (state = 'S1' AND country = 4)"
    assert shop.estimated(sql).rows == pytest.approx(shop.rows(sql), rel=0.3)


def test_a_late_read_of_the_first_rows_meets_each_once(shop: Shop) -> None:
    assert shop.estimated("SELECT * FROM orders ORDER BY pieces DESC, okey LIMIT 10").rows == 10


def test_an_unknown_condition_is_named(shop: Shop) -> None:
    sql = "SELECT ocust, median(pieces) AS m FROM orders GROUP BY ocust HAVING median(pieces) > 25"
    found = shop.estimated(sql)
    assert found.rows is not None
    assert 0 < found.rows <= CUSTOMERS
    assert any("median" in gap.lower() for gap in found.all_gaps())


def test_columns_are_followed_through_joins_that_leave_some_out(shop: Shop) -> None:
    sql = (
        "SELECT nation, name, state, sum(pieces) AS n FROM orders JOIN customers ON ocust = ckey "
        "JOIN countries ON country = nkey WHERE day > DATE '2021-01-01' GROUP BY nation, name, state"
    )
    (grouping,) = [node for _, node in _walk(shop.estimated(sql)) if node.node.operator is Operator.AGGREGATE]
    names = {column.name for column in grouping.node.group_keys}
    assert names <= {"nation", "name", "state", "country", "ckey"}
    assert {"state"} <= names


def _walk(part: EstimatedNode) -> Iterator[tuple[int, EstimatedNode]]:
    yield 0, part
    for child in part.children:
        yield from _walk(child)
