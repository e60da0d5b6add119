"""The same on each kind of object store: Delta and Iceberg tables are read, written and maintained."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from engines.duckdb.engine import DuckDBEngine
from engines.spark.engine import SparkConnectEngine
from tests.ceph import ceph
from tests.gateway.execution.lake.test_object_writes import contents
from tests.gateway.house import House, opened
from tests.other_stores import Emulator, emulator

pytestmark = pytest.mark.spark

ROWS = pa.table({"id": range(50_000), "name": [f"n{i}" for i in range(50_000)]})


@pytest.fixture(scope="module", params=["azure", "gcs", pytest.param("ceph", marks=pytest.mark.thorough)])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("store")
    with ceph(folder) if request.param == "ceph" else emulator(request.param, folder) as store:
        yield store


@pytest.fixture(scope="module")
def house(
    tmp_path_factory: pytest.TempPathFactory,
    running: Emulator,
    duckdb: DuckDBEngine,
    spark_engine: SparkConnectEngine,
) -> Iterator[House]:
    folder, prefix = tmp_path_factory.mktemp("gateway"), running.store.prefix
    settings: dict[str, Any] = {
        "stores": {"plain": {"prefix": prefix, **running.settings}},
        "catalogs": {"ice": {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"{prefix}/ice"}},
    }
    with opened(folder / "home", duckdb, spark_engine, **settings) as house:
        yield house


def test_a_delta_table_is_read_and_written(house: House, running: Emulator) -> None:
    location, options = f"{running.store.prefix}/delta/orders", running.store.delta_options()
    write_deltalake(location, ROWS, storage_options=options)
    house.register("orders", location)
    assert house.done("SELECT count(*) AS n, max(id) AS m FROM orders", engine="duckdb") == [{"n": 50_000, "m": 49_999}]
    house.done("INSERT INTO orders VALUES (50000, 'x y')")
    house.done("DELETE FROM orders WHERE id < 40000")
    assert house.both("SELECT count(*) AS n, min(id) AS a, max(id) AS b FROM orders") == [
        {"n": 10_001, "a": 40_000, "b": 50_000}
    ]
    assert DeltaTable(location, storage_options=options).version() == 2
    assert house.done("SELECT count(*) AS n FROM orders VERSION AS OF 0") == [{"n": 50_000}]


def test_a_delta_table_is_made(house: House, running: Emulator) -> None:
    location = f"{running.store.prefix}/made/t"
    house.done(
        f"CREATE TABLE made USING delta PARTITIONED BY (day) LOCATION '{location}' AS "
        "SELECT id, CAST(id % 3 AS STRING) AS day FROM range(100)"
    )
    assert house.both("SELECT count(*) AS n FROM made WHERE day = '1'") == [{"n": 33}]
    read = DeltaTable(location, storage_options=running.store.delta_options())
    assert read.metadata().partition_columns == ["day"]


def test_an_iceberg_table_is_made_changed_and_maintained_in_its_catalog(house: House, running: Emulator) -> None:
    house.done("CREATE DATABASE ice.sales")
    house.done(
        "CREATE TABLE ice.sales.t USING iceberg PARTITIONED BY (bucket(2, id)) AS "
        "SELECT id, CAST(id AS STRING) AS name FROM range(100)"
    )
    house.done("INSERT INTO ice.sales.t VALUES (100, 'x')")
    house.done("DELETE FROM ice.sales.t WHERE id < 50")
    assert house.both("SELECT count(*) AS n, max(id) AS m FROM ice.sales.t") == [{"n": 51, "m": 100}]
    store = running.store
    with store.filesystem.open_output_stream(f"{store.key(store.prefix)}/ice/sales/t/data/stray.parquet") as stray:
        stray.write(b"left by a killed writer")
    assert house.done("VACUUM ice.sales.t DRY RUN") == []
    house.done("OPTIMIZE ice.sales.t")
    assert house.both("SELECT count(*) AS n, max(id) AS m FROM ice.sales.t") == [{"n": 51, "m": 100}]
    house.done("DROP TABLE ice.sales.t")


def test_secrets_are_in_no_file_no_log_and_no_process(
    house: House, running: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    location = f"{running.store.prefix}/secret/t"
    write_deltalake(location, ROWS.slice(0, 10), storage_options=running.store.delta_options())
    with caplog.at_level(logging.DEBUG):
        house.register("secretive", location)
        house.both("SELECT * FROM secretive")
        house.done("INSERT INTO secretive VALUES (-1, 'x')")
    secret = running.secret.encode()
    assert running.secret not in caplog.text
    assert running.secret not in repr((house.gateway.settings, house.gateway.settings.object_access, running.store))
    for path in house.gateway.settings.home.rglob("*"):
        if path.is_file():
            assert secret not in path.read_bytes(), path
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != running.process.pid:
            for name in ("cmdline", "environ"):
                assert secret not in contents(process / name), (process, name)


def test_a_deleted_file_is_told(house: House, running: Emulator) -> None:
    location, options = f"{running.store.prefix}/gone/t", running.store.delta_options()
    write_deltalake(location, ROWS.slice(0, 10), storage_options=options)
    house.register("gone", location)
    store = running.store
    (file,) = DeltaTable(location, storage_options=options).file_uris()
    store.filesystem.delete_file(store.key(file))
    assert house.failed("SELECT * FROM gone") == "TABLE_UNREADABLE"
