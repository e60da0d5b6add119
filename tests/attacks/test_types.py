"""Types, names and places of tables are data: in statements, in files, and in what is stored of a table."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attacks.conftest import DUCKDB
from tests.attacks.doors import Door, Refused, Served, served

DUCKDB_ALONE: dict[str, Any] = {
    "duckdb": DUCKDB,
    "spark": {"enabled": False},
}
SHELL = "id) as c from (select transform(1) using 'id' as (o string)) --"
HOSTILE_TYPES = [
    "decimal(`1,0)) as c from (select transform(1) using 'id' as (o string)) --`)",
    "decimal(1,`0)) as c from (select 1) --`)",
    "`int) as c, (select 1) --`",
    "int) as c, (select 1",
    "struct<a:int) as c --`>",
    "struct<`a:int>",
    "array<int>) using csv options (path '/etc/passwd') --",
    "varchar(1e3)",
    "map<`string`,int>",
    "interval",
    "${env:HOME}",
    "decimal(1,0) using csv location '/etc'",
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve a gateway of this file's own, whose metastore is tampered with."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed: pip install fusion-sql-gateway[duckdb]")
    folder = tmp_path_factory.mktemp("types")
    with served(folder / "home", **DUCKDB_ALONE, catalog={"roots": [str(folder)]}) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def data(gateway: Served) -> Path:
    return gateway.home.parent / "data"


def _written(folder: Path, table: pa.Table) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "a.parquet")
    return folder


def _stored(gateway: Served, sql: str, *values: object) -> None:
    """Change what is stored, as somebody could who has the metastore, or an older gateway that checked less."""
    with closing(sqlite3.connect(gateway.home / "metastore.db", timeout=30)) as connection, connection:
        assert connection.execute(sql, values).rowcount
        connection.execute("UPDATE catalog_tables SET registered_at = strftime('%Y-%m-%d %H:%M:%f', 'now')")
        connection.execute("UPDATE catalog_version SET version = version + 1")


def test_a_type_in_a_statement_is_a_type_or_refused(gateway: Served, door: Door) -> None:
    for data_type in HOSTILE_TYPES:
        with pytest.raises(Refused) as refused:
            gateway.ask(door, f"CREATE TABLE hostile (c {data_type})")
        assert (refused.value.sqlstate or "42601").startswith("42"), data_type
        assert refused.value.code != "INTERNAL"
    assert "hostile" not in {row[-1] for row in gateway.ask(Door.HTTP, "SHOW TABLES")}


def test_a_type_in_a_registration_is_a_type_or_refused(gateway: Served, data: Path) -> None:
    (data / "text").mkdir(parents=True, exist_ok=True)
    (data / "text" / "a.csv").write_text("1\n")
    for data_type in HOSTILE_TYPES:
        with pytest.raises(Refused) as refused:
            gateway.register("text", data / "text", columns=[{"name": "c", "type": data_type}])
        assert refused.value.code == "INVALID_BODY"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"options": {"delimiter": "', header=true) UNION SELECT 1 --"}}, "TABLE_UNREADABLE"),
        ({"options": {"header": "true, filename=true"}}, "TABLE_UNREADABLE"),
        ({"options": {"path": "/etc/passwd"}}, "TABLE_UNREADABLE"),
        ({"columns": [{"name": "a\0b", "type": "int"}]}, "INVALID_BODY"),
        ({"columns": [{"name": " ", "type": "int"}]}, "INVALID_BODY"),
        ({"name": "t`x"}, "INVALID_BODY"),
        ({"format": "csv) --"}, "TABLE_UNREADABLE"),
    ],
)
def test_names_and_options_of_a_registration_are_data(
    gateway: Served, data: Path, more: dict[str, Any], code: str
) -> None:
    (data / "more").mkdir(parents=True, exist_ok=True)
    (data / "more" / "a.csv").write_text("1\n")
    with pytest.raises(Refused) as refused:
        gateway.register(**{"name": "text", "location": data / "more", **more})
    assert refused.value.code == code


def test_names_in_files_are_data(gateway: Served, data: Path, door: Door) -> None:
    """Columns and fields may be called anything; what they are called is nowhere read as SQL."""
    names = ['a"; CREATE OR REPLACE VIEW t AS SELECT 1; --', "a`b", "a'b", "${env:HOME}", "ä b", "x) AS y FROM z --"]
    row = {name: [number] for number, name in enumerate(names)}
    row["s"] = [{name: 1 for name in names}]  # type: ignore[list-item]
    folder = _written(data / f"names {door}", pa.table(row))
    gateway.register(f"names_{door.replace('-', '_')}", folder)
    (found,) = gateway.ask(door, f"SELECT * FROM names_{door.replace('-', '_')}")
    assert list(found[: len(names)]) == list(range(len(names)))


def test_a_place_that_engines_would_read_as_a_pattern_is_refused(gateway: Served, data: Path) -> None:
    _written(data / "secret" / "inner", pa.table({"id": [1]}))
    with pytest.raises(Refused, match="holds none of") as refused:
        gateway.register("stars", _written(data / "s*" / "inner", pa.table({"id": [2]})))
    assert refused.value.code == "NOT_ALLOWED"


STORED = [
    "BIGINT) AS id; CREATE OR REPLACE VIEW victim AS SELECT 666 AS id; --",
    "BIGINT) AS id FROM read_csv('/etc/passwd', columns={'id': 'VARCHAR'}) --",
    "decimal(`1,0)) as c from (select transform(1) using 'id' as (o string)) --`)",
    "no_such_type",
]


def test_a_stored_type_harms_its_own_table_alone(gateway: Served, data: Path, door: Door) -> None:
    """Workers that start afterwards have the victim's rows, and the hostile table tells what is wrong with it."""
    gateway.register("victim", _written(data / "victim", pa.table({"id": [7]})))
    gateway.register("tampered", _written(data / "tampered", pa.table({"id": [1]})))
    change = "UPDATE catalog_columns SET data_type = ? WHERE table_id = (SELECT id FROM catalog_tables WHERE name = ?)"
    for stored in STORED if door is Door.HTTP else STORED[:1]:
        _stored(gateway, change, stored, "tampered")
        assert gateway.ask(door, "SELECT id FROM victim") == [(7,)]
        with pytest.raises(Refused, match="tampered cannot be used") as refused:
            gateway.ask(door, "SELECT * FROM tampered")
        assert refused.value.code in ("TABLE_UNREADABLE", None)
        gateway.ask(door, "REFRESH tampered")  # the files tell what it is
        assert gateway.ask(door, "SELECT id FROM tampered") == [(1,)]


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        ("format", "parquet') UNION SELECT 1 --"),
        ("options", '{"header": "true) UNION SELECT 1 --"}'),
        ("location", "/etc/pass*"),
        ("location", "/data/x\n', hive_partitioning=false) --"),
    ],
)
def test_what_else_is_stored_harms_its_own_table_alone(gateway: Served, data: Path, column: str, stored: str) -> None:
    gateway.register("victim", _written(data / "victim", pa.table({"id": [7]})))
    gateway.register("tampered", _written(data / "tampered", pa.table({"id": [1]})))
    _stored(gateway, f"UPDATE catalog_tables SET {column} = ? WHERE name = 'tampered'", stored)
    assert gateway.ask(Door.HTTP, "SELECT id FROM victim") == [(7,)]
    with pytest.raises(Refused, match="tampered cannot be used"):
        gateway.ask(Door.HTTP, "SELECT * FROM tampered")
    gateway.register("tampered", data / "tampered")
    assert gateway.ask(Door.HTTP, "SELECT id FROM tampered") == [(1,)]


def test_a_stored_view_harms_itself_alone(gateway: Served, data: Path, door: Door) -> None:
    gateway.register("victim", _written(data / "victim", pa.table({"id": [7]})))
    name = f"seen_{door.replace('-', '_')}"
    gateway.ask(door, f"CREATE OR REPLACE VIEW {name} AS SELECT id FROM victim")
    _stored(gateway, "UPDATE catalog_views SET columns = ? WHERE name = ?", '[["id", "int) --"]]', name)
    with pytest.raises(Refused, match="cannot be used"):
        gateway.ask(door, f"SELECT * FROM {name}")
    _stored(gateway, "UPDATE catalog_views SET columns = ? WHERE name = ?", '[["id", "bigint"]]', name)
    _stored(gateway, "UPDATE catalog_views SET sql = ? WHERE name = ?", "COPY victim TO '/data/x'", name)
    with pytest.raises(Refused):
        gateway.ask(door, f"SELECT * FROM {name}")
    assert gateway.ask(door, "SELECT id FROM victim") == [(7,)]


def test_files_that_end_or_hold_up_their_readers_concern_nobody_else(gateway: Served, data: Path) -> None:
    (data / "deep").mkdir(parents=True)
    (data / "deep" / "a.json").write_text('{"a":' + "[" * 150_000 + "]" * 150_000 + "}\n")
    os.mkfifo(data / "pipe.csv")
    with pytest.raises(Refused, match="ended the process") as refused:
        gateway.register("deep", data / "deep")
    assert refused.value.code == "TABLE_UNREADABLE"
    for place in (data / "pipe.csv", Path("/proc/kmsg"), Path("/dev/zero")):
        with pytest.raises(Refused):
            gateway.register("odd", place)
    assert gateway.process.is_running()
    assert gateway.ask(Door.HTTP, "SELECT 1") == [(1,)]


def test_a_table_whose_file_became_a_pipe_holds_up_nobody_else(gateway: Served, data: Path) -> None:
    gateway.register("victim", _written(data / "victim", pa.table({"id": [7]})))
    folder = _written(data / "swapped", pa.table({"id": [1]}))
    gateway.register("swapped", folder)
    (folder / "a.parquet").unlink()
    os.mkfifo(folder / "a.parquet")
    gateway.register("fresh", _written(data / "fresh", pa.table({"id": [9]})))  # so that all workers start anew
    assert gateway.ask(Door.HTTP, "SELECT v.id, f.id FROM victim v, fresh f") == [(7, 9)]


NOON = dt.time(12, 34, 56, 789000)


def test_a_table_with_a_time_can_be_queried(gateway: Served, data: Path, door: Door) -> None:
    """Its other columns here, where there is no Spark, which reads the time itself."""
    name = f"times_{door.replace('-', '_')}"
    table = pa.table({"id": [1, 2], "t": pa.array([NOON, None], pa.time64("us"))})
    gateway.register(name, _written(data / name, table))
    assert gateway.ask(door, f"SELECT id FROM {name} ORDER BY id") == [(1,), (2,)]
    with pytest.raises(Refused, match=r"a column of type time\(6\)"):
        gateway.ask(door, f"SELECT t FROM {name}")
