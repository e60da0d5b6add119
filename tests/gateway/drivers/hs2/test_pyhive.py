"""PyHive over real sockets, in each of its ways to connect."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from metastore.records import QueryState
from tests.gateway.drivers.hs2.conftest import EVERY_TYPE, MANY_ROWS, MOMENTS, WITHIN_S, Drivers
from tests.gateway.scripted_gateway import RAN_OUT, too_big
from tests.waiting import wait_until

hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
exceptions = pytest.importorskip("pyhive.exc")
TTransportException = pytest.importorskip("thrift.transport.TTransport").TTransportException

WAYS = ("NONE", "LDAP", "CUSTOM", "NOSASL", "http")
NESTED = {"many": ["[1,null]", "[]", None], "pairs": ['{"a":1}', "{}", None]}


def connect(drivers: Drivers, way: str, **options: Any) -> Any:
    if way == "http":
        return hive.connect(scheme="http", host=drivers.host, port=drivers.http_port, username="joe", **options)
    login = {"password": "any"} if way in ("LDAP", "CUSTOM") else {}
    return hive.connect(drivers.host, port=drivers.port, auth=way, username="joe", **login, **options)


@pytest.fixture(params=WAYS)
def cursor(drivers: Drivers, request: pytest.FixtureRequest) -> Iterator[Any]:
    with connect(drivers, request.param) as connection, connection.cursor() as made:
        yield made


def message_of(error: Any) -> str:
    text = error.args[0].status.errorMessage
    assert isinstance(text, str)
    return text


def test_a_query_is_its_users(cursor: Any, drivers: Drivers) -> None:
    cursor.execute("SELECT 1")
    assert cursor.fetchall() == [(42,), (43,)]
    record = drivers.last_query()
    assert (record.sql, record.user, record.dialect) == ("SELECT 1", "joe", "spark")


def test_every_type_comes_back_as_it_was(cursor: Any) -> None:
    cursor.execute("SELECT 'every type'")
    names = [column[0] for column in cursor.description]
    assert names == EVERY_TYPE.schema.names
    kinds = [column[1].removesuffix("_TYPE") for column in cursor.description]
    assert kinds == [
        *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE"),
        *("TIMESTAMP", "DECIMAL", "DECIMAL", "ARRAY", "MAP", "STRUCT"),
    ]
    columns = dict(zip(names, map(list, zip(*cursor.fetchall(), strict=True)), strict=True))
    for name in names[:8]:
        assert columns[name] == EVERY_TYPE[name].to_pylist(), name
    assert columns["raw"] == [b"\x00\xff", b"", None]
    assert columns["day"] == ["0001-01-01", "9999-12-31", None]
    assert columns["moment"] == MOMENTS
    assert columns["money"] == [Decimal("12345678.90"), Decimal("-0.01"), None]
    assert [str(value) for value in columns["money"]] == ["12345678.90", "-0.01", "None"]
    assert columns["exact"] == [Decimal("0.0000000001"), Decimal(-1), None]
    assert {name: columns[name] for name in NESTED} == NESTED
    assert [text and json.loads(text) for text in columns["parts"]] == EVERY_TYPE["parts"].to_pylist()


def test_a_failover_looks_like_one_query(cursor: Any, drivers: Drivers) -> None:
    cursor.execute(too_big())
    assert cursor.fetchall() == [(42,), (43,)]
    log = "\n".join(cursor.fetch_logs())
    assert "routed to duckdb: estimate" in log
    assert "of 384 MiB limit" in log
    assert f"attempt 1 on duckdb: {RAN_OUT.code}" in log
    assert "peak 380 MiB" in log
    assert "attempt 2 on spark: 2 rows" in log
    assert cursor.fetch_logs() == []
    assert [attempt.engine for attempt in drivers.last_query().attempts] == ["duckdb", "spark"]


@pytest.mark.parametrize(
    ("sql", "message", "sqlstate"),
    [
        ("SELECT a FROM nowhere", "There is no table nowhere. (line 1, column 15) [TABLE_OR_VIEW_NOT_FOUND]", "42S02"),
        ("SELECT (", None, "42601"),
        ("GRANT SELECT ON x TO y", None, "42S02"),
        ("SET fusion.engine_name = x", None, "42000"),
        ("USE other", "There is no database other; there is default. (line 1, column 5) [SCHEMA_NOT_FOUND]", "3D000"),
    ],
)
def test_an_error_is_told_in_our_words(cursor: Any, sql: str, message: str | None, sqlstate: str) -> None:
    with pytest.raises(exceptions.OperationalError) as caught:
        cursor.execute(sql)
    assert caught.value.args[0].status.sqlState == sqlstate
    assert message in (None, message_of(caught.value))
    cursor.execute("SELECT 1")
    assert cursor.fetchone() == (42,)


def test_many_rows_in_order(cursor: Any) -> None:
    cursor.execute("SELECT 'many rows'")
    total = 0
    for number, text in cursor:
        assert (number, text) == (total, f"row {total}")
        total += 1
    assert total == MANY_ROWS


def test_no_rows(cursor: Any) -> None:
    cursor.execute("SELECT 'no rows'")
    assert cursor.description[0][0] == "answer"
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []


@pytest.mark.parametrize(
    ("parameters", "sent"),
    [
        ({"a": "it's", "b": None}, "SELECT 'it\\'s', NULL"),
        ({"a": 7, "b": [1, "x"]}, "SELECT 7, (1,'x')"),
    ],
)
def test_parameters(cursor: Any, drivers: Drivers, parameters: dict[str, Any], sent: str) -> None:
    cursor.execute("SELECT %(a)s, %(b)s", parameters)
    assert drivers.last_query().sql == sent


def test_database_api(cursor: Any) -> None:
    """PEP 249: description before and after, arraysize, fetchmany, rownumber, closing."""
    assert (cursor.description, cursor.rowcount) == (None, -1)
    cursor.arraysize = 2
    cursor.execute("SELECT 'many rows'")
    assert [column[0] for column in cursor.description] == ["n", "text"]
    assert [row[0] for row in cursor.fetchmany()] == [0, 1]
    assert [row[0] for row in cursor.fetchmany(3)] == [2, 3, 4]
    assert cursor.rownumber == 5
    cursor.execute("SELECT 1")
    assert cursor.fetchone() == (42,)
    cursor.execute("USE default")
    assert cursor.description is None
    cursor.close()


def test_several_cursors_at_once(drivers: Drivers) -> None:
    with connect(drivers, "NONE") as connection:
        one, other = connection.cursor(), connection.cursor()
        one.execute("SELECT 'many rows'")
        other.execute("SELECT 1")
        assert one.fetchone() == (0, "row 0")
        assert other.fetchall() == [(42,), (43,)]
        assert one.fetchone() == (1, "row 1")


def test_a_session_keeps_its_settings(drivers: Drivers) -> None:
    with connect(drivers, "NONE", configuration={"fusion.engine": "spark", "hive.exec.x": "y"}) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT 1")
        assert drivers.last_query().engine == "spark"
        cursor.execute("SET fusion.engine = duckdb")
        cursor.execute("SELECT 1")
        assert drivers.last_query().engine == "duckdb"
        cursor.execute("SET")
        settings = {row[0]: row[1] for row in cursor.fetchall()}
        assert (settings["fusion.engine"], settings["hive.exec.x"]) == ("duckdb", "y")
        cursor.execute("RESET fusion.engine")
        cursor.execute("SET fusion.engine")
        assert cursor.fetchall() == [("fusion.engine", "auto", "REGULAR")]
    with connect(drivers, "NONE") as connection:
        cursor = connection.cursor()
        cursor.execute("SET hive.exec.x")
        assert cursor.fetchall() == [("hive.exec.x", "<undefined>", "UNKNOWN")]


def test_a_query_that_runs_is_told_and_cancelled(cursor: Any, drivers: Drivers) -> None:
    cursor.execute("SELECT 'forever'", async_=True)
    begun = time.monotonic()
    assert cursor.poll().operationState == 1
    assert time.monotonic() - begun < WITHIN_S
    cursor.cancel()
    wait_until(lambda: cursor.poll().operationState != 1)
    assert cursor.poll().operationState == 3
    assert drivers.last_query().state is QueryState.CANCELLED


def test_rows_of_a_query_that_runs_are_waited_for(drivers: Drivers) -> None:
    with connect(drivers, "NONE") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1", async_=True)
        assert cursor.fetchall() == [(42,), (43,)]


def test_a_client_that_leaves_takes_its_query_along(drivers: Drivers) -> None:
    """The connection breaks while the client waits for a statement's end."""
    connection = connect(drivers, "NONE")
    transport = connection._transport

    def execute() -> None:
        with pytest.raises((TTransportException, OSError)):
            connection.cursor().execute("SELECT 'forever'")

    thread = threading.Thread(target=execute)
    thread.start()
    wait_until(lambda: drivers.last_query().sql == "SELECT 'forever'" and not drivers.last_query().state.ended)
    transport._trans.handle.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: drivers.last_query().state is QueryState.CANCELLED)
    thread.join()
    transport.close()


def test_statements_of_a_closed_session_end(drivers: Drivers) -> None:
    connection = connect(drivers, "http")
    connection.cursor().execute("SELECT 'forever'", async_=True)
    connection.close()
    wait_until(lambda: drivers.last_query().state is QueryState.CANCELLED)


def test_rows_are_deleted_with_their_operation(drivers: Drivers) -> None:
    with connect(drivers, "NONE") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        query_id = drivers.last_query().id
        assert drivers.gateway.spool.has(query_id)
        cursor.close()
        assert not drivers.gateway.spool.has(query_id)
