"""Joins on keys that no two rows share, because of how the rows were made, in plans that a real DuckDB prints."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from selector.cardinality.keys.unique import Unique, UniqueKeys
from selector.plan import JoinType, Operator, Plan, PlanColumn, PlanNode
from tests.selector.cardinality.counted import Counted

SALES, ITEMS, STORES, MONTHS = 24_000, 400, 12, 12
NEAR = 2.0  # q-error

MONTHLY = (
    "monthly AS (SELECT category, brand, region, month, sum(amount) AS total, "
    "rank() OVER (PARTITION BY category, brand, region ORDER BY month) AS place FROM sales "
    "JOIN items ON item = item_id JOIN stores ON store = store_id GROUP BY category, brand, region, month)"
)
NUMBERED = (
    "numbered AS (SELECT store, month, sale, row_number() OVER (PARTITION BY store, month ORDER BY sale) AS place "
    "FROM sales)"
)
SAME = "a.category = b.category AND a.brand = b.brand AND a.region = b.region"
BEFORE = f"{SAME} AND a.place = b.place + 1"
BEHIND = "a.category = c.category AND a.brand = c.brand AND a.region = c.region AND a.place = c.place - 1"

UNIQUE = {  # statements whose joins meet each row once at most
    "rank of a grouping": f"WITH {MONTHLY} SELECT a.total, b.total FROM monthly a JOIN monthly b ON {BEFORE}",
    "three readings, as TPC-DS q47": f"WITH {MONTHLY} SELECT a.total, b.total, c.total FROM monthly a, monthly b, "
    f"monthly c WHERE {BEFORE} AND {BEHIND} AND a.month = 3",
    "rows that meet none": f"WITH {MONTHLY} SELECT a.total FROM monthly a LEFT JOIN monthly b ON {BEFORE}",
    "rows of both sides that meet none": f"WITH {MONTHLY} SELECT a.total FROM monthly a "
    f"FULL JOIN monthly b ON {BEFORE}",
    "behind a semi-join": f"WITH {MONTHLY} SELECT a.total FROM (SELECT * FROM monthly WHERE brand IN "
    f"(SELECT brand FROM items WHERE category = 2)) a JOIN monthly b ON {BEFORE}",
    "behind a limit": f"WITH {MONTHLY} SELECT a.total FROM (SELECT * FROM monthly ORDER BY total LIMIT 500) a "
    f"JOIN monthly b ON {SAME} AND a.place = b.place",
    "row numbers": f"WITH {NUMBERED} SELECT a.sale FROM numbered a JOIN numbered b "
    "ON a.store = b.store AND a.month = b.month AND a.place = b.place - 1",
    "other names": f"WITH {NUMBERED} SELECT a.z FROM (SELECT store AS x, month AS y, place AS z FROM numbered) a "
    "JOIN numbered b ON a.x = b.store AND a.y = b.month AND a.z + 1 = b.place",
    "ranks by an aggregate": "WITH n AS (SELECT store, item, sum(amount) AS total, dense_rank() OVER "
    "(PARTITION BY store ORDER BY sum(amount) DESC) AS place FROM sales GROUP BY store, item) "
    "SELECT a.total FROM n a JOIN n b ON a.store = b.store AND a.place = b.place + 1",
    "keys that are computed": "WITH n AS (SELECT item % 50 AS g, amount // 10 AS h, store, count(*) AS c FROM sales "
    "GROUP BY ALL) SELECT a.c FROM n a JOIN n b ON a.g = b.g AND a.h = b.h AND a.store = b.store",
}
MANY = {  # statements whose joins meet many, and look much like those
    "one of the keys is missing": f"WITH {MONTHLY} SELECT a.total FROM monthly a JOIN monthly b ON {SAME}",
    "ranks of rows that agree in the order": "WITH n AS (SELECT store, item, rank() OVER (PARTITION BY store "
    "ORDER BY month) AS place FROM sales) SELECT a.item FROM n a JOIN n b ON a.store = b.store AND a.place = b.place",
    "all rows of two groupings": "WITH g AS (SELECT item, store, count(*) AS n FROM sales GROUP BY ALL "
    "UNION ALL SELECT item, month, count(*) AS n FROM sales GROUP BY item, month) "
    "SELECT a.n FROM g a JOIN g b ON a.item = b.item AND a.store = b.store",
    "a join that multiplies between": "WITH g AS (SELECT item, store, count(*) AS n FROM sales GROUP BY item, store) "
    "SELECT g.n FROM g JOIN sales s ON g.store = s.store AND s.amount < 10 JOIN g h ON g.item = h.item "
    "AND g.store = h.store",
}


def _tables() -> dict[str, pa.Table]:
    chance = np.random.default_rng(11)
    return {
        "sales": pa.table(
            {
                "sale": np.arange(SALES),
                "item": chance.integers(0, ITEMS, SALES),
                "store": chance.integers(0, STORES, SALES),
                "month": chance.integers(0, MONTHS, SALES),
                "amount": chance.integers(1, 500, SALES),
            }
        ),
        "items": pa.table(
            {"item_id": np.arange(ITEMS), "brand": chance.integers(0, 40, ITEMS), "category": np.arange(ITEMS) % 5}
        ),
        "stores": pa.table({"store_id": np.arange(STORES), "region": np.arange(STORES) % 3}),
    }


@pytest.fixture(scope="module", params=[1.0, 0.1], ids=["all rows sampled", "a tenth sampled"])
def shop(request: pytest.FixtureRequest) -> Iterator[Counted]:
    made = Counted(_tables(), sampled=request.param)
    yield made
    made.connection.close()


@pytest.mark.parametrize("case", UNIQUE)
def test_a_join_on_unique_keys_meets_each_row_once(shop: Counted, case: str) -> None:
    found, true = shop.rows(UNIQUE[case]), shop.count(UNIQUE[case])
    assert max(found, true) <= NEAR * min(found, true), f"{found:,.0f} of {true:,}"


@pytest.mark.parametrize("case", MANY)
def test_a_join_on_anything_less_meets_many(shop: Counted, case: str) -> None:
    found, true = shop.rows(MANY[case]), shop.count(MANY[case])
    assert found >= true / NEAR, f"{found:,.0f} of {true:,}"


# ---------------------------------------------------------------------- plans written by hand

A, B, C, N = (PlanColumn(name, "bigint", "t", 1) for name in "abcn")
D, E = PlanColumn("d", "bigint", "u", 2), PlanColumn("e", "bigint", "u", 2)


def rows_of(*columns: PlanColumn) -> PlanNode:
    """Return a scan of a table without statistics."""
    return PlanNode(Operator.SCAN, "scan", columns=columns, scanned=columns, table=columns[0].table)


def grouped(*keys: PlanColumn, below: PlanNode | None = None) -> PlanNode:
    child = below if below is not None else rows_of(*keys, PlanColumn("x", "bigint", keys[0].table, keys[0].scan))
    return PlanNode(Operator.AGGREGATE, "group", (child,), columns=(*keys, PlanColumn("count_star()")), group_keys=keys)


def joined(left: PlanNode, right: PlanNode, kind: JoinType, *keys: tuple[PlanColumn, PlanColumn]) -> PlanNode:
    columns = (*left.columns, *right.columns)
    return PlanNode(Operator.HASH_JOIN, "join", (left, right), columns=columns, join_type=kind, join_keys=keys)


def filtered(below: PlanNode, *predicates: str) -> PlanNode:
    return PlanNode(Operator.FILTER, "filter", (below,), columns=below.columns, predicates=predicates)


def unique(node: PlanNode, *columns: PlanColumn) -> bool:
    return UniqueKeys(Plan(node, "duckdb"), {}).are_unique(columns, node)


def test_a_grouping_is_unique_in_all_of_its_keys() -> None:
    assert unique(grouped(A, B), A, B)
    assert unique(grouped(A, B), B, A, C)
    assert not unique(grouped(A, B), A)
    assert not unique(rows_of(A, B), A, B)


def test_a_global_aggregate_is_one_row() -> None:
    one = PlanNode(Operator.AGGREGATE, "group", (rows_of(A),), columns=(PlanColumn("count_star()"),))
    assert unique(one)
    crossed = PlanNode(Operator.NESTED_LOOP_JOIN, "join", (grouped(A), one), join_type=JoinType.CROSS)
    assert unique(crossed, A)
    assert unique(PlanNode(Operator.LIMIT, "limit", (rows_of(A),), columns=(A,), limit=1))


def test_a_constant_column_tells_no_rows_apart() -> None:
    assert unique(filtered(grouped(A, B), "((b = 3) AND (count_star() > 1))"), A)
    assert not unique(filtered(grouped(A, B), "(b > 3)"), A)
    assert not unique(filtered(grouped(A, B), "((b = 3) OR (a = 4))"), A)


def test_what_equals_a_key_stands_for_it() -> None:
    assert unique(filtered(grouped(A, B), "(b = a)"), A)
    found = joined(grouped(A, B), grouped(D), JoinType.INNER, (B, D))
    assert unique(found, A, D)
    assert not unique(joined(grouped(A, B), grouped(D), JoinType.LEFT, (B, D)), A, D)


def test_a_join_that_meets_each_row_once_keeps_what_the_other_side_has() -> None:
    pair = (B, D)
    assert unique(joined(grouped(A, B), grouped(D), JoinType.INNER, pair), A, B)
    assert unique(joined(grouped(A, B), grouped(D), JoinType.LEFT, pair), A, B)
    assert unique(joined(grouped(A, B), rows_of(D), JoinType.SEMI, pair), A, B)
    assert not unique(joined(grouped(A, B), rows_of(D), JoinType.INNER, pair), A, B)
    assert not unique(joined(grouped(A, B), grouped(D, E), JoinType.INNER, pair), A, B)
    assert unique(joined(grouped(A, B), grouped(D, E), JoinType.INNER, pair), A, B, E)
    assert not unique(joined(grouped(A, B), grouped(D), JoinType.FULL, pair), A, B)
    assert unique(joined(grouped(A, B), grouped(D), JoinType.RIGHT, pair), D, A)


def test_two_readings_of_one_expression_are_not_told_apart() -> None:
    """On a alone every b meets every other one: which of both is meant by b cannot be told."""
    twice = joined(grouped(A, B), grouped(A, B), JoinType.INNER, (A, A))
    assert not unique(twice, A, B)
    assert unique(joined(grouped(A, B), grouped(A, B), JoinType.INNER, (A, A), (B, B)), A, B)
    shifted = joined(grouped(A, B), grouped(A, B), JoinType.INNER, (A, A), (B, PlanColumn("(b + 1)")))
    assert unique(shifted, A, B)


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("(b + 1)", True),
        ("-b", True),
        ("CAST((b - 1) AS BIGINT)", True),
        ("(b % 2)", False),
        ("(b + a)", False),
        ("CAST(b AS DATE)", False),
        ("abs(b)", False),
    ],
)
def test_what_is_computed_one_to_one_stands_for_its_column(text: str, is_met: bool) -> None:
    assert unique(grouped(A, B), A, PlanColumn(text)) is is_met


@pytest.mark.parametrize(
    ("function", "is_met"),
    [
        ("row_number() OVER (PARTITION BY a ORDER BY c ASC NULLS LAST)", True),
        ("row_number() OVER (PARTITION BY b ORDER BY c ASC NULLS LAST)", False),
        ("row_number() OVER (ORDER BY c ASC NULLS LAST)", True),
        ("rank() OVER (PARTITION BY a ORDER BY c ASC NULLS LAST)", False),
        ("rank() OVER (PARTITION BY a ORDER BY b DESC NULLS LAST)", True),
        ("ntile(4) OVER (PARTITION BY a ORDER BY b)", False),
        ("sum(c) OVER (PARTITION BY a)", False),
    ],
)
def test_a_number_tells_rows_of_a_partition_apart(function: str, is_met: bool) -> None:
    number = PlanColumn(function, "bigint")
    below = grouped(A, B, below=rows_of(A, B, C))
    rows = PlanNode(Operator.PROJECT, "project", (below,), columns=(A, B, C))
    window = PlanNode(Operator.WINDOW, "window", (rows,), columns=(A, B, C, number))
    assert unique(window, A, number) is is_met
    named = PlanNode(Operator.PROJECT, "project", (window,), columns=(A, PlanColumn("place", "bigint")))
    plan = Plan(named, "duckdb", named={"place": (function,)})
    assert UniqueKeys(plan, {}).are_unique([A, PlanColumn("place")], named) is is_met


def test_keys_that_do_not_come_out_are_forgotten() -> None:
    projected = PlanNode(Operator.PROJECT, "project", (grouped(A, B),), columns=(A,))
    assert not unique(projected, A, B)


def test_the_shortest_keys_are_left() -> None:
    found = Unique().having([frozenset([("t", "a", 1)]), frozenset([("t", "a", 1), ("t", "b", 1)])])
    assert found.keys == {frozenset([("t", "a", 1)])}
