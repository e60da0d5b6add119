"""Conditions on aggregates: of correlated and other subqueries, and of groups, on plans that a real DuckDB made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tests.selector.cardinality.counted import Counted

ORDERS, ITEMS, KEYS, SHOPS = 900, 1_500, 120, 6
MANY_ORDERS, MANY_ITEMS, MANY_KEYS = 30_000, 60_000, 12_000
BY_KEY = 0.2  # chance of a key that its rows are sampled
SAMPLED = 0.1
KEY_GROUPS = (
    (("orders", "k"), ("items", "ik")),
    (("orders", "shop"), ("items", "ishop")),
    (("orders", "k,shop"), ("items", "ik,ishop")),
)


def some_tables(orders: int, items: int, keys: int) -> dict[str, pa.Table]:
    """Return orders and items: of a key's items the prices go with it, a third of the keys have none, some are NULL."""
    chance = np.random.default_rng(11)
    k, ik = chance.integers(0, keys, orders), (chance.zipf(1.5, items) * 7 + chance.integers(0, keys, items)) % keys
    ik = np.where(ik % 3 == 0, ik + 1, ik)
    missing = chance.random(items) < 0.1
    price = (ik % 17) * 5.0 + np.round(chance.exponential(10.0, items))
    return {
        "orders": pa.table(
            {
                "k": pa.array(k, mask=chance.random(orders) < 0.05),
                "shop": chance.integers(0, SHOPS, orders),
                "x": np.round(chance.exponential(40.0, orders)),
                "n": chance.integers(0, 30, orders),
                "day": pa.array(chance.integers(18_000, 18_100, orders).astype(np.int32), pa.date32()),
            }
        ),
        "items": pa.table(
            {
                "ik": pa.array(ik, mask=missing),
                "ishop": chance.integers(0, SHOPS, items),
                "price": pa.array(price, mask=chance.random(items) < 0.2),
                "k": chance.integers(0, keys, items),  # of the same name as the key of those that ask
                "sold": pa.array(chance.integers(18_000, 18_100, items).astype(np.int32), pa.date32()),
                "kind": [f"kind {number}" for number in chance.integers(0, 9, items).tolist()],
            }
        ),
    }


@pytest.fixture(scope="module")
def whole() -> Iterator[Counted]:
    made = Counted(some_tables(ORDERS, ITEMS, KEYS), KEY_GROUPS)
    yield made
    made.connection.close()


@pytest.fixture(scope="module")
def sampled() -> Iterator[Counted]:
    tables = some_tables(MANY_ORDERS, MANY_ITEMS, MANY_KEYS)
    made = Counted(tables, KEY_GROUPS, sampled=SAMPLED, by_key=BY_KEY)
    yield made
    made.connection.close()


def asking(condition: str) -> str:
    """Return a statement about orders."""
    return f"SELECT o.x FROM orders o WHERE {condition}"


ITEM = "FROM items i WHERE i.ik = o.k"
CORRELATED = [
    asking(condition)
    for condition in (
        f"o.x < (SELECT avg(i.price) {ITEM})",
        f"o.x >= (SELECT max(i.price) {ITEM})",
        f"o.x < (SELECT 0.5 * avg(i.price) {ITEM})",
        f"o.x > (SELECT avg(i.price) + 10 {ITEM})",
        f"2 * o.x <= (SELECT min(i.price) {ITEM})",
        f"o.n > (SELECT count(*) {ITEM})",
        f"(SELECT count(*) {ITEM}) = 0",
        f"(SELECT count(*) {ITEM} AND i.price > 30) = 1",
        f"(SELECT count(i.price) {ITEM}) >= 3",
        f"o.n < 20 AND o.x < (SELECT sum(i.price) {ITEM} AND i.ishop < 3)",
        f"o.day > (SELECT max(i.sold) {ITEM})",
        f"o.k < (SELECT max(i.k) {ITEM})",
        f"o.x <= (SELECT min(i.k) {ITEM})",
        "o.x < (SELECT avg(i.price) FROM items i WHERE i.ik = o.k AND i.ishop = o.shop)",
        "o.n = (SELECT count(*) FROM items i WHERE i.ik = o.k AND i.ishop = o.shop)",
        f"o.x > 5 AND o.x <= (SELECT min(i.price) {ITEM})",  # the engine passes 5 on to the groups
    )
]


@pytest.mark.parametrize("sql", CORRELATED)
def test_an_aggregate_of_a_subquery_is_looked_up_by_each_row(whole: Counted, sql: str) -> None:
    assert whole.rows(sql) == pytest.approx(whole.count(sql), abs=0.01)


def test_a_value_that_equals_an_aggregate_is_no_key(whole: Counted) -> None:
    sql = asking(f"o.x = (SELECT max(i.price) {ITEM})")
    assert whole.rows(sql) == pytest.approx(whole.count(sql), abs=0.01)


ALONE = [
    asking(condition)
    for condition in (
        "o.x > (SELECT avg(i.price) FROM items i)",
        "o.x > (SELECT avg(i.price) FROM items i WHERE i.ishop = 2)",
        "o.x < (SELECT 0.5 * max(i.price) FROM items i)",
        "o.day > (SELECT max(i.sold) FROM items i WHERE i.price > 100)",
    )
]


@pytest.mark.parametrize("sql", ALONE)
def test_an_aggregate_of_all_rows_is_one_value(whole: Counted, sql: str) -> None:
    assert whole.rows(sql) == pytest.approx(whole.count(sql), rel=0.01, abs=1.0)


GROUPS = [
    f"SELECT {keys}, count(*) AS n FROM {tables} GROUP BY {keys} HAVING {having}"
    for keys, tables, having in (
        ("ik", "items", "sum(price) > 200"),
        ("ik", "items", "avg(price) < 30"),
        ("ik", "items", "max(price) >= 60"),
        ("ik", "items", "sum(price) > 20 * count(*)"),
        ("ik, ishop", "items", "max(sold) > DATE '2019-06-15'"),
        ("n, kind", "orders JOIN items ON ik = orders.k AND ishop = shop WHERE x > 20", "count(*) = 2"),
    )
]


@pytest.mark.parametrize("sql", GROUPS)
def test_aggregates_of_groups_are_counted_on_whole_tables(whole: Counted, sql: str) -> None:
    assert whole.rows(sql) == pytest.approx(whole.count(sql), abs=0.01)


def q_error(tables: Counted, sql: str) -> float:
    estimated, true = max(1.0, tables.rows(sql)), max(1.0, tables.count(sql))
    return max(estimated / true, true / estimated)


@pytest.mark.parametrize("sql", CORRELATED)
def test_keys_that_were_sampled_stand_for_those_that_were_not(sampled: Counted, sql: str) -> None:
    assert q_error(sampled, sql) < 1.5


@pytest.mark.parametrize(
    "having", ["sum(price) > 200", "avg(price) < 30", "max(price) >= 60", "min(price) > 20", "count(*) = 5"]
)
def test_groups_that_were_sampled_as_a_whole_stand_for_others(sampled: Counted, having: str) -> None:
    assert q_error(sampled, f"SELECT ik, count(*) AS n FROM items GROUP BY ik HAVING {having}") < 1.5


def test_what_no_sampled_key_has_is_rare_but_not_impossible(sampled: Counted) -> None:
    sql = asking("o.x > 100000 + (SELECT count(*) FROM items i WHERE i.ik = o.k)")
    assert 0.0 < sampled.rows(sql) < ORDERS
