"""impyla over real sockets, in each of its ways to connect."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from metastore.records import QueryState
from tests.gateway.drivers.hs2.conftest import EVERY_TYPE, MANY_ROWS, MOMENTS, Drivers
from tests.gateway.scripted_gateway import WRITTEN, too_big
from tests.waiting import wait_until

dbapi = pytest.importorskip("impala.dbapi", reason="needs the extra impala")
errors = pytest.importorskip("impala.error")

PASSWORD = "any"  # noqa: S105 - where nobody has one, all are right
WAYS = ("PLAIN", "LDAP", "NOSASL", "http")


def connect(drivers: Drivers, way: str) -> Any:
    if way == "http":
        over_http = {"use_http_transport": True, "http_path": "cliservice", "port": drivers.http_port}
        return dbapi.connect(drivers.host, auth_mechanism="PLAIN", user="joe", password=PASSWORD, **over_http)
    return dbapi.connect(drivers.host, drivers.port, auth_mechanism=way, user="joe", password=PASSWORD)


@pytest.fixture(params=WAYS)
def cursor(drivers: Drivers, request: pytest.FixtureRequest) -> Iterator[Any]:
    connection = connect(drivers, request.param)
    made = connection.cursor(user="joe")
    yield made
    made.close()
    connection.close()


def test_every_type_comes_back_as_it_was(cursor: Any) -> None:
    cursor.execute("SELECT 'every type'")
    names = [column[0] for column in cursor.description]
    assert names == EVERY_TYPE.schema.names
    precisions = {column[0]: column[4:6] for column in cursor.description}
    assert (precisions["money"], precisions["exact"]) == ((10, 2), (38, 10))
    columns = dict(zip(names, map(list, zip(*cursor.fetchall(), strict=True)), strict=True))
    for name in names[:8]:
        assert columns[name] == EVERY_TYPE[name].to_pylist(), name
    assert columns["day"] == [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]
    assert columns["moment"] == MOMENTS
    assert columns["money"] == [Decimal("12345678.90"), Decimal("-0.01"), None]
    assert columns["exact"] == [Decimal("0.0000000001"), Decimal(-1), None]
    assert columns["many"] == ["[1,null]", "[]", None]
    assert columns["pairs"] == ['{"a":1}', "{}", None]


def test_an_insert_tells_how_many_rows_it_wrote(cursor: Any) -> None:
    cursor.execute("CREATE TABLE IF NOT EXISTS answers AS SELECT 1 AS answer")
    cursor.execute("INSERT INTO answers SELECT 1 AS answer")
    assert cursor.rowcount == WRITTEN.num_rows
    cursor.execute("SET fusion.timeout_s = 60")
    assert cursor.rowcount == -1
    cursor.execute("DROP TABLE answers")


def test_views_are_among_the_tables(cursor: Any) -> None:
    cursor.execute("CREATE OR REPLACE TEMPORARY VIEW recent AS SELECT 42 AS answer")
    cursor.get_tables()
    assert ("default", "recent", "VIEW") in [row[1:4] for row in cursor.fetchall()]
    assert [column[:2] for column in cursor.get_table_schema("recent")] == [("answer", "BIGINT")]


def test_a_failover_looks_like_one_query(cursor: Any, drivers: Drivers) -> None:
    cursor.execute(too_big())
    for _ in range(2):  # it is the whole log each time, with how far the query is at its beginning
        assert "attempt 2 on spark" in cursor.get_log()
        assert cursor.get_log().startswith(f"Query {drivers.last_query().id}: 100% Complete\n")
    assert cursor.fetchall() == [(42,), (43,)]
    profile = cursor.get_profile()
    assert f"Query (id={drivers.last_query().id})" in profile
    assert "of 384 MiB limit" in profile
    assert "attempt 1 on duckdb: MEMORY_EXCEEDED" in profile
    summary = cursor.get_summary()
    assert [node.label for node in summary.nodes[:3]] == ["QUERY", "01:ATTEMPT 1", "02:ATTEMPT 2"]
    assert summary.nodes[1].exec_stats[0].memory_used == 380 << 20
    assert summary.error_logs


def test_an_error_is_told_in_our_words(cursor: Any) -> None:
    told = r"^There is no table nowhere\. \(line 1, column 15\) \[Could not resolve path\]$"
    with pytest.raises(errors.HiveServer2Error, match=told):
        cursor.execute("SELECT a FROM nowhere")


def test_an_error_of_a_query_that_runs_is_told_in_our_words(cursor: Any) -> None:
    cursor.execute_async("SET fusion.engine_name = x")
    with pytest.raises(errors.OperationalError, match=r"There is no setting fusion\.engine_name; there are fusion\."):
        cursor._wait_to_finish()


def test_many_rows_in_order(cursor: Any) -> None:
    cursor.execute("SELECT 'many rows'")
    assert [row[0] for row in cursor] == list(range(MANY_ROWS))


def test_database_api(cursor: Any) -> None:
    """PEP 249: description, arraysize, fetchmany, iteration, parameters."""
    assert cursor.description is None
    cursor.execute("SELECT 'many rows'")
    assert [row[0] for row in cursor.fetchmany(3)] == [0, 1, 2]
    assert cursor.fetchone() == (3, "row 3")
    assert next(cursor)[0] == 4
    cursor.execute("SELECT %(a)s", {"a": "it's"})
    assert cursor.fetchall() == [(42,), (43,)]
    cursor.execute("SELECT 'no rows'")
    assert cursor.fetchone() is None


def test_parameters(cursor: Any, drivers: Drivers) -> None:
    cursor.execute("SELECT ?, ?", ["a", 1], configuration={"paramstyle": "qmark"})
    assert drivers.last_query().sql == "SELECT 'a', 1"


def test_a_query_is_cancelled(cursor: Any, drivers: Drivers) -> None:
    cursor.execute_async("SELECT 'forever'")
    assert cursor.status() == "RUNNING_STATE"
    cursor.cancel_operation(reset_state=False)
    wait_until(lambda: cursor.status() == "CANCELED_STATE")
    assert drivers.last_query().state is QueryState.CANCELLED


def test_the_catalog(cursor: Any) -> None:
    cursor.get_databases()
    assert cursor.fetchall() == [("default", "")]
    cursor.get_tables()
    assert cursor.fetchall() == []
    assert cursor.database_exists("default")
    assert not cursor.table_exists("nowhere")
    cursor.get_functions()
    assert "abs" in {row[2] for row in cursor.fetchall()}


def test_settings_have_three_columns(cursor: Any) -> None:
    cursor.execute("SET ALL")
    assert ("fusion.engine", "auto", "REGULAR") in cursor.fetchall()
    cursor.set_arraysize(10)
    assert cursor.arraysize == 10
