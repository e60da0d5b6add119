"""Statements that are made of a data set: of every kind, valid, the same from the same seed, with the truth."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import duckdb
import pytest

from benchmarks.claim import RunFailed
from benchmarks.data_sets import SCHEMA, TABLES
from benchmarks.generated_data import Knobs, write_shop
from benchmarks.generated_joins import MOST_JOINS, Schema, Statements
from benchmarks.generated_predicates import Predicates, Table
from benchmarks.generated_truth import answered, loaded, true_rows

SEED, EACH = 3, 4
CHANCE = random.Random(SEED)  # noqa: S311 - not for secrets
KINDS = 17 + MOST_JOINS - 1
SKEWED = Knobs(seed=1, rows=3_000, skew=4.0, by_frequency=1.0, nulls=0.4, dangling=0.1)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a small data set."""
    folder = tmp_path_factory.mktemp("data") / "shop"
    write_shop(folder, SKEWED)
    return folder


@pytest.fixture(scope="module")
def connection(shop: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give it as tables."""
    with loaded({file.stem: file for file in (shop / TABLES).iterdir()}) as connection:
        yield connection


@pytest.fixture(scope="module")
def schema(shop: Path, connection: duckdb.DuckDBPyConnection) -> Schema:
    return Schema(connection, json.loads((shop / SCHEMA).read_text(encoding="utf-8"))["joins"])


def _made(schema: Schema, kind: str, number: int = EACH, seed: int = SEED) -> list[str]:
    return list(islice(Statements(schema, seed).of(kind), number))


def test_sides_are_unique_where_no_two_rows_are_alike(schema: Schema) -> None:
    keys = {(join.left.table, join.left.columns, join.right.table) for join in schema.keys}
    assert ("orders", ("customer",), "customers") in keys
    assert ("lines", ("maker", "code"), "products") in keys
    assert ("customers", ("customer",), "orders") not in keys
    assert all(not (join.left.unique or join.right.unique) for join in schema.many)
    assert {("customers", "stores")} <= {(join.left.table, join.right.table) for join in schema.many}, "through regions"


def test_every_kind_is_made_and_planned(schema: Schema, connection: duckdb.DuckDBPyConnection) -> None:
    kinds = Statements(schema, SEED).kinds
    assert len(kinds) == KINDS
    for kind in kinds:
        made = _made(schema, kind)
        assert len(set(made)) == EACH, kind
        for sql in made:
            connection.execute(f"EXPLAIN {sql}")


def test_a_seed_always_makes_the_same(schema: Schema) -> None:
    for kind in Statements(schema, SEED).kinds:
        assert _made(schema, kind) == _made(schema, kind)
    assert _made(schema, "one predicate") != _made(schema, "one predicate", seed=SEED + 1)


@pytest.mark.parametrize("number", range(1, MOST_JOINS + 1))
def test_joins_along_keys_have_that_many_and_multiply_nothing(
    schema: Schema, connection: duckdb.DuckDBPyConnection, number: int
) -> None:
    largest = max(table.rows for table in schema.tables.values())
    for sql in _made(schema, f"{number} join{'s' * (number > 1)}"):
        plain = sql.partition(" WHERE ")[0]
        assert plain.count(" JOIN ") + plain.count(", ") == number
        rows = true_rows(connection, sql)
        assert rows == "empty" or (isinstance(rows, float) and rows <= largest)


def test_a_constant_stands_on_a_joined_column(schema: Schema) -> None:
    joined = {f"{side}.{column}" for join in schema.joins for side in "ab" for column in join.left.columns}
    for sql in _made(schema, "constant on key", 20):
        condition = sql.replace(" AND ", " WHERE ").split(" WHERE ")
        assert any(
            part.split()[0] in joined and not part.split()[2].startswith(("a.", "b."))
            for part in condition[1:]
            if len(part.split()) > 2
        ), sql


def test_truth_is_what_comes_out(schema: Schema, connection: duckdb.DuckDBPyConnection) -> None:
    found, left_out = answered(connection, Statements(schema, SEED), EACH)
    assert {one.kind for one in found} == set(Statements(schema, SEED).kinds)
    assert len({one.sql for one in found}) == len(found)
    assert set(left_out) <= {"empty", "too slow", "too many rows", "of another kind"}
    for one in found:
        rows = connection.execute(one.sql).fetchall()
        counts = len(rows) == 1 and connection.description is not None and len(connection.description) == 1
        assert one.true == (rows[0][0] if counts and "count" in str(connection.description) else len(rows)), one.sql


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT count(*) FROM stores a WHERE a.store < 10", 10.0),
        ("SELECT a.store, count(*) AS n FROM stores a GROUP BY a.store", 211.0),
        ("SELECT DISTINCT 1 AS c0 FROM stores a", 1.0),
        ("WITH q AS (SELECT * FROM stores a) SELECT count(*) FROM q JOIN stores b ON q.store = b.store", 211.0),
        ("SELECT count(*) FROM stores a WHERE a.store < 0", "empty"),
        ("SELECT count(*) FROM lines a, lines b, orders c", "too many rows"),
    ],
)
def test_a_statements_rows(connection: duckdb.DuckDBPyConnection, sql: str, rows: float | str) -> None:
    assert true_rows(connection, sql) == rows


def test_what_takes_too_long_is_left_out(connection: duckdb.DuckDBPyConnection) -> None:
    endless = "SELECT count(*) FROM lines a, lines b, lines c WHERE a.discount + b.discount + c.discount = 0.123"
    assert true_rows(connection, endless, longest_s=0.05) == "too slow"
    assert true_rows(connection, "SELECT count(*) FROM stores a") == 211.0, "the connection goes on"


def test_several_predicates_of_one_row_mostly_keep_it(connection: duckdb.DuckDBPyConnection) -> None:
    table = Table(connection, "orders")
    predicates = Predicates(CHANCE)
    made = [predicates.several(table, "a", 3, row) for row in table.sample[:40]]
    kept = [true_rows(connection, f"SELECT count(*) FROM orders a WHERE {' AND '.join(one)}") for one in made]
    assert sum(rows != "empty" for rows in kept) > len(kept) / 2


def test_a_row_is_found_again_by_its_values(connection: duckdb.DuckDBPyConnection) -> None:
    table = Table(connection, "lines")
    row = table.sample[0]
    key = {"maker": row["maker"], "code": row["code"]}
    found = table.matching(key, CHANCE)
    assert found is not None
    assert {name: found[name] for name in key} == key
    assert table.matching({"maker": -1}, CHANCE) is None
    assert table.matching({"maker": None}, CHANCE) is None


@pytest.mark.parametrize("wrong", ["orders(customer)", "orders(nothing) = stores(store)", "orders(store) = t(a)"])
def test_what_joins_nothing_is_told(connection: duckdb.DuckDBPyConnection, wrong: str) -> None:
    with pytest.raises(RunFailed):
        Schema(connection, [wrong])


def test_sides_of_a_join_have_as_many_columns(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(RunFailed, match="as many columns"):
        Schema(connection, ["orders(customer, store) = stores(store)"])


def test_tables_without_joins_have_only_their_own_kinds(connection: duckdb.DuckDBPyConnection) -> None:
    alone = Schema(connection, [])
    made = {kind for kind in Statements(alone, SEED).kinds if _made(alone, kind, 1)}
    assert made == {
        "one predicate", "several predicates", "non-equi join", "groups", "having", "distinct", "window",
    }  # fmt: skip


# The knobs do what they say


def _one(folder: Path, sql: str) -> float:
    with loaded({file.stem: file for file in (folder / TABLES).iterdir()}) as connection:
        row = connection.execute(sql).fetchone()
        assert row is not None
        return float(row[0])


_MOST = "SELECT max(n) FROM (SELECT customer, count(*) AS n FROM orders GROUP BY customer)"
_LOST = "SELECT avg((NOT EXISTS (FROM customers c WHERE c.customer = o.customer))::INTEGER) FROM orders o"
_NULLS = "SELECT avg((email IS NULL)::INTEGER) FROM customers"
_FOLLOWED = "SELECT avg((shipped - day = channel % 5)::INTEGER) FROM orders"
_FREQUENT = """SELECT corr(segment, n) FROM customers JOIN
    (SELECT customer, count(*) AS n FROM orders GROUP BY customer) USING (customer)"""


@pytest.mark.parametrize(
    ("knob", "low", "high", "measured", "apart"),
    [
        ("skew", 1.0, 4.0, _MOST, 20.0),
        ("dangling", 0.0, 0.3, _LOST, 0.2),
        ("nulls", 0.0, 0.5, _NULLS, 0.4),
        ("correlated", 0.0, 1.0, _FOLLOWED, 0.5),
        ("by_frequency", 1.0, 0.0, _FREQUENT, 0.1),
    ],
)
def test_a_knob(tmp_path: Path, knob: str, low: float, high: float, measured: str, apart: float) -> None:
    values = []
    for place, value in enumerate((low, high)):
        settings = {"seed": 1, "rows": 3_000, knob: value}
        write_shop(tmp_path / str(place), Knobs(**settings))  # type: ignore[arg-type]
        values.append(_one(tmp_path / str(place), measured))
    assert values[1] - values[0] > apart


def test_the_same_knobs_make_the_same_rows(tmp_path: Path, shop: Path) -> None:
    write_shop(tmp_path / "again", SKEWED)
    other = "SELECT count(*) FROM (FROM lines EXCEPT ALL FROM read_parquet('{}'))"
    assert _one(shop, other.format(tmp_path / "again" / TABLES / "lines.parquet")) == 0.0
    write_shop(tmp_path / "other", Knobs(seed=2, rows=3_000))
    assert _one(shop, other.format(tmp_path / "other" / TABLES / "lines.parquet")) > 0.0
