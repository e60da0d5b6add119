"""Rows that an INSERT OVERWRITE must not lose, and settings that must not be accepted and ignored: every way in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.conftest import DUCKDB
from tests.attacks.doors import Door, Refused, Served, served

MODE = "spark.sql.sources.partitionOverwriteMode"
ROWS = "SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) v(n, d)"


@pytest.fixture(scope="module")
def own_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve an empty catalog over both engines, to be written to."""
    home: Path = tmp_path_factory.mktemp("written") / "home"
    with served(home, duckdb=DUCKDB) as gateway:
        yield gateway


def under(gateway: Served, door: Door, settings: dict[str, str], sql: str, *, dialect: str = "spark") -> None:
    """Run a statement under settings, however this way in takes them."""
    if door is Door.HTTP:
        body = {"sql": sql, "dialect": dialect, "settings": settings, "wait_s": 120}
        with gateway.http() as client:
            reply = client.post("/v1/queries", json=body).json()
        if reply.get("error"):
            raise Refused(reply["error"]["message"], code=reply["error"]["code"])
        return
    with closing(gateway.connect(door)) as connection, closing(connection.cursor()) as cursor:
        try:
            for name, value in {"fusion.dialect": dialect, **settings}.items():
                cursor.execute(f"SET {name} = {value}")
            cursor.execute(sql)
        except Exception as error:  # each driver has a tree of its own
            raise Refused(str(error)) from error


@pytest.mark.spark
def test_dynamic_partitions_that_get_no_rows_keep_theirs(own_gateway: Served, door: Door) -> None:
    def rows() -> list[tuple[Any, ...]]:
        return own_gateway.ask(Door.HTTP, f"SELECT n, d FROM {table} ORDER BY n", engine="duckdb")

    table = f"by_{door.name.lower()}"
    own_gateway.ask(Door.HTTP, f"CREATE TABLE {table} PARTITIONED BY (d) AS {ROWS}")
    overwrite = f"INSERT OVERWRITE TABLE {table} PARTITION (d) SELECT"
    own_gateway.ask(door, f"{overwrite} 20, 'b'", dialect="hive")
    assert rows() == [(1, "a"), (3, "c"), (20, "b")]
    own_gateway.ask(door, f"{overwrite} 30, 'c'", dialect="impala")
    assert rows() == [(1, "a"), (20, "b"), (30, "c")]
    under(own_gateway, door, {MODE: "dynamic"}, f"{overwrite} 21, 'b'")
    assert rows() == [(1, "a"), (21, "b"), (30, "c")]
    with pytest.raises(Refused, match="mode is strict"):
        under(own_gateway, door, {"hive.exec.dynamic.partition.mode": "strict"}, f"{overwrite} 22, 'b'", dialect="hive")
    own_gateway.ask(door, f"{overwrite} 9, 'z'")  # as Spark does where it is not told otherwise
    assert rows() == [(9, "z")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.session.timeZone", "Europe/Paris"),
        ("APPX_COUNT_DISTINCT", "true"),
        (MODE[:-1], "dynamic"),
        (MODE, "sideways"),
    ],
)
def test_a_setting_is_obeyed_or_refused(duckdb_gateway: Served, door: Door, name: str, value: str) -> None:
    with pytest.raises(Refused) as caught:
        under(duckdb_gateway, door, {name: value}, "SELECT 1")
    error = caught.value
    assert error.code in (None, "INVALID_SETTING" if name == MODE else "SETTING_NOT_OBEYED")
    assert name.lower() in error.message.lower()


def test_what_drivers_say_while_they_connect(duckdb_gateway: Served) -> None:
    hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
    host, _, port = duckdb_gateway.drivers.rpartition(":")

    def connected(**configuration: str) -> Any:
        settings = {name.replace("__", "."): value for name, value in configuration.items()}
        return hive.connect(host, port=int(port), configuration=settings)

    with pytest.raises(Exception, match="Times are in UTC here"):
        connected(spark__sql__session__timeZone="Europe/Paris")
    with closing(connected(spark__sql__ansi__enabled="false")) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("SELECT 2147483647 + 0")
        assert "SETTING_IGNORED: spark.sql.ansi.enabled = false" in "\n".join(cursor.fetch_logs())
        cursor.execute("SET spark.sql.ansi.enabled")
        assert cursor.fetchall()[0][:2] == ("spark.sql.ansi.enabled", "false")
        with pytest.raises(Exception, match="ANSI mode"):
            cursor.execute("SET spark.sql.ansi.enabled=false")
    with closing(connected(hive__nobody__knows="1", hive__execution__engine="tez")) as connection:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchall() == [(1,)]
            assert "SETTING_IGNORED: hive.nobody.knows" in "\n".join(cursor.fetch_logs())
