"""Databases over a real DuckDB: names of two and three parts, whatever statement they stand in."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.statements.session import Session
from gateway.statements.statement import Statement
from metastore.discovery.inspection import inspect
from sql.errors import SqlError
from tests.gateway.commands.test_views import House, gateway

__all__ = ["gateway"]


def refused(house: House, sql: str, **fields: Any) -> str:
    with pytest.raises(SqlError) as caught:
        house.ended(sql, **fields)
    return caught.value.code


@pytest.fixture
def house(gateway: object, tmp_path: Path) -> Iterator[House]:
    """Add the database ``sales`` to a house, in which the table ``a`` has the ids 7 and 8, and ``orders`` 1 and 2."""
    house = House(gateway)  # type: ignore[arg-type]
    house.rows("CREATE DATABASE sales COMMENT 'what is sold' WITH DBPROPERTIES ('since' = '2020')")
    for name, ids in (("a", [7, 8]), ("orders", [1, 2])):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), tmp_path / name / "1.parquet")
        house.gateway.metastore.catalog.put(inspect(f"sales.{name}", tmp_path / name), at=dt.datetime.now(dt.UTC))
    yield house
    for view in house.gateway.metastore.views.list():
        house.gateway.metastore.views.remove(view.name)
    for name in ("a", "orders"):
        house.gateway.metastore.catalog.remove(f"sales.{name}")
    for database in ("sales", "other"):
        house.gateway.metastore.databases.remove(database)


@pytest.fixture
def in_sales(house: House) -> Session:
    session = house.session()
    house.rows("USE sales", session=session)
    return session


@pytest.mark.parametrize(
    ("sql", "ids"),
    [
        ("SELECT id FROM sales.a", [7, 8]),
        ("SELECT id FROM Sales.A", [7, 8]),
        ("SELECT sales.a.id FROM sales.a", [7, 8]),
        ("SELECT a.id FROM `sales`.`a`", [7, 8]),
        ("SELECT id FROM `sales.a`", [7, 8]),
        ("SELECT id FROM spark_catalog.sales.a", [7, 8]),
        ("SELECT id FROM default.a", [1, 2, 3]),
        ("SELECT x.id FROM a x JOIN sales.orders o ON x.id = o.id", [1, 2]),
        ("SELECT a.id FROM a JOIN sales.orders ON a.id = orders.id", [1, 2]),
        ("SELECT default.a.id + sales.a.id AS id FROM default.a CROSS JOIN sales.a WHERE sales.a.id = 7", [8, 9, 10]),
        ("WITH a AS (SELECT 5 AS id) SELECT id FROM a UNION ALL SELECT id FROM default.a", [1, 2, 3, 5]),
        ("WITH a AS (SELECT 5 AS id) SELECT id FROM a UNION ALL SELECT id FROM sales.a", [5, 7, 8]),
        ("SELECT id FROM sales.a WHERE id IN (SELECT max(id) FROM sales.a)", [8]),
    ],
)
@pytest.mark.parametrize("dialect", ["spark", "impala"])
def test_names_of_several_parts(house: House, sql: str, ids: list[int], dialect: str) -> None:
    assert sorted(house.rows(sql, dialect=dialect)) == [(each,) for each in ids]


@pytest.mark.parametrize(
    ("sql", "ids"),
    [
        ("SELECT id FROM a", [7, 8]),
        ("SELECT id FROM default.a", [1, 2, 3]),
        ("SELECT id FROM orders", [1, 2]),
        ("SELECT id FROM `default.a`", [1, 2, 3]),
    ],
)
def test_bare_names_are_of_the_database_in_use(house: House, in_sales: Session, sql: str, ids: list[int]) -> None:
    asked = in_sales.statement(sql)
    assert sorted(house.rows(sql, session=in_sales, database=asked.database)) == [(each,) for each in ids]
    assert house.gateway.coordinator.submit(asked).done.result(timeout=60).database == "sales"


@pytest.mark.parametrize(
    "sql", ["SELECT 1 FROM a x, orders x", "SELECT a.id FROM a, a", "SELECT 1 FROM a JOIN a ON a.id = 1"]
)
@pytest.mark.parametrize("dialect", ["spark", "impala"])
def test_one_name_for_two_tables_is_refused(house: House, sql: str, dialect: str) -> None:
    with pytest.raises(SqlError, match="different names with AS") as caught:
        house.ended(sql, dialect=dialect, database="sales")
    assert caught.value.code == "SYNTAX_ERROR"


def test_one_text_has_one_meaning_per_database(house: House) -> None:
    assert len(house.rows("SELECT id FROM a")) == 3
    assert len(house.rows("SELECT id FROM a", database="sales")) == 2
    assert len(house.rows("SELECT id FROM a")) == 3


def test_a_view_keeps_the_database_that_it_was_made_in(house: House) -> None:
    house.rows("CREATE VIEW big AS SELECT id FROM a WHERE id > 1", database="sales")
    house.rows("CREATE VIEW sales.small AS SELECT id FROM a WHERE id < 3")
    assert sorted(house.rows("SELECT id FROM sales.big")) == [(7,), (8,)]
    assert sorted(house.rows("SELECT id FROM small", database="sales")) == [(1,), (2,)]
    assert refused(house, "SELECT id FROM big") == "UNKNOWN_TABLE"
    assert house.rows("SHOW TABLES IN sales") == [("a",), ("big",), ("orders",), ("small",)]
    assert refused(house, "CREATE VIEW nowhere.v AS SELECT 1 AS one") == "UNKNOWN_DATABASE"
    house.rows("DROP VIEW sales.big")
    assert house.rows("SHOW TABLES IN sales 's*'") == [("small",)]


def test_a_temporary_view_hides_what_bare_names_mean_in_any_database(house: House, in_sales: Session) -> None:
    house.rows("CREATE TEMPORARY VIEW a AS SELECT id + 100 AS id FROM a", session=in_sales, database="sales")
    for database in ("sales", "default"):
        assert sorted(house.rows("SELECT id FROM a", session=in_sales, database=database)) == [(107,), (108,)]
    assert sorted(house.rows("SELECT id FROM sales.a", session=in_sales)) == [(7,), (8,)]
    assert refused(house, "CREATE TEMPORARY VIEW sales.b AS SELECT 1 AS one", session=in_sales) == "NOT_ALLOWED"


def test_what_is_said_of_a_database(house: House) -> None:
    house.rows("CREATE SCHEMA IF NOT EXISTS default")
    assert refused(house, "CREATE SCHEMA sales") == "DATABASE_EXISTS"
    assert house.rows("SHOW DATABASES") == [("default",), ("sales",)]
    assert house.rows("SHOW SCHEMAS LIKE 's*'") == [("sales",)]
    told = dict(house.rows("DESCRIBE DATABASE EXTENDED sales"))
    assert (told["Namespace Name"], told["Comment"], told["Properties"]) == ("sales", "what is sold", "((since,2020))")
    assert refused(house, "DESCRIBE SCHEMA nowhere") == "UNKNOWN_DATABASE"
    assert refused(house, "SHOW TABLES IN nowhere") == "UNKNOWN_DATABASE"
    assert refused(house, "CREATE DATABASE `odd name`") == "NOT_ALLOWED"


def test_use_is_for_sessions_and_for_databases_that_there_are(house: House, in_sales: Session) -> None:
    assert in_sales.database == "sales"
    assert refused(house, "USE nowhere", session=in_sales) == "UNKNOWN_DATABASE"
    assert house.failed("USE sales") == "NO_SESSION"
    house.rows("USE default", session=in_sales)
    assert in_sales.database == "default"


def test_commands_take_names_of_two_parts(house: House) -> None:
    assert house.rows("DESCRIBE sales.a") == [("id", "bigint", "")]
    assert house.rows("SHOW COLUMNS IN orders IN sales") == [("id",)]
    assert refused(house, "DESCRIBE orders") == "UNKNOWN_TABLE"
    house.rows("ALTER TABLE sales.orders SET TBLPROPERTIES ('numRows' = '2')")
    assert house.rows("SHOW TABLE STATS orders", database="sales") == house.rows("SHOW TABLE STATS sales.orders")


def test_what_is_recorded_of_a_statement_has_its_database(house: House) -> None:
    record = house.gateway.coordinator.submit(Statement(sql="SELECT id FROM a", database="sales")).done.result(60)
    stored = house.gateway.metastore.queries.get(record.id)
    assert stored is not None
    assert (stored.database, stored.rows) == ("sales", 2)
