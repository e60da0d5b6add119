"""Lake tables in a real object store on both engines: writes, snapshots, failover, statistics."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, write_deltalake

from benchmarks.object_store_server import ObjectStoreServer
from engines.duckdb.engine import DuckDBEngine
from engines.spark.engine import SparkConnectEngine
from sql.errors import LocationRefused, NotAllowed
from tests.gateway.execution.lake.test_object_stores import settings_of
from tests.gateway.house import House, opened

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def house(
    tmp_path_factory: pytest.TempPathFactory,
    server: ObjectStoreServer,
    duckdb: DuckDBEngine,
    spark_engine: SparkConnectEngine,
) -> Iterator[House]:
    with opened(tmp_path_factory.mktemp("writes") / "home", duckdb, spark_engine, stores=settings_of(server)) as house:
        yield house


def table_at(server: ObjectStoreServer, location: str) -> DeltaTable:
    return DeltaTable(location, storage_options=server.store().delta_options())


def test_a_table_is_made_and_changed(house: House, server: ObjectStoreServer) -> None:
    location = "s3://plain/made/orders"
    house.done(
        f"CREATE TABLE orders USING delta PARTITIONED BY (day) LOCATION '{location}' AS "
        "SELECT id, id * 1.5D AS price, CAST(id % 3 AS STRING) AS day FROM range(100)"
    )
    house.done("INSERT INTO orders VALUES (100, 0, 'x y'), (101, NULL, NULL)")
    house.done("UPDATE orders SET price = -1 WHERE id < 3")
    house.done("DELETE FROM orders WHERE id = 50")
    house.done(
        "MERGE INTO orders USING (SELECT 7 AS id UNION ALL SELECT 700) AS s ON orders.id = s.id "
        "WHEN MATCHED THEN UPDATE SET price = 0 WHEN NOT MATCHED THEN INSERT (id, price, day) VALUES (s.id, 9, 'new')"
    )
    (row,) = house.both("SELECT count(*) AS n, sum(price) AS s, count(DISTINCT day) AS d FROM orders")
    read = table_at(server, location).to_pyarrow_table().to_pylist()
    assert row["n"] == len(read) == 102
    assert row["s"] == sum(one["price"] for one in read if one["price"] is not None)
    assert house.both("SELECT id FROM orders VERSION AS OF 1 WHERE id IN (50, 100)") == [{"id": 50}]
    assert len(house.done("DESCRIBE HISTORY orders")) == 6
    house.done("DROP TABLE orders")
    assert table_at(server, location).version() == 5


def test_answers_are_those_of_one_snapshot_while_others_commit(house: House, server: ObjectStoreServer) -> None:
    location = "s3://plain/busy/t"
    options = server.store().delta_options()
    write_deltalake(location, pa.table({"version": [0] * 1_000}), storage_options=options)
    house.register("busy", location)
    stopped = threading.Event()

    def commit() -> None:
        number = 0
        while not stopped.wait(0.1):
            number += 1
            rows = pa.table({"version": [number] * 1_000})
            write_deltalake(location, rows, mode="overwrite", storage_options=options)

    writer = threading.Thread(target=commit)
    writer.start()
    try:
        for number in range(12):
            engine = ("duckdb", "spark")[number % 2]
            (row,) = house.done("SELECT min(version) AS a, max(version) AS b, count(*) AS n FROM busy", engine=engine)
            assert row["a"] == row["b"]
            assert row["n"] == 1_000
    finally:
        stopped.set()
        writer.join()


def test_secrets_are_in_no_file_and_no_process(house: House, server: ObjectStoreServer) -> None:
    write_deltalake("s3://plain/s/t", pa.table({"a": [1]}), storage_options=server.store().delta_options())
    house.register("secretive", "s3://plain/s/t")
    house.both("SELECT * FROM secretive")
    for path in house.gateway.settings.home.rglob("*"):
        if path.is_file():
            assert server.secret_key.encode() not in path.read_bytes(), path
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != server.process.pid:
            for what in ("cmdline", "environ"):
                assert server.secret_key.encode() not in contents(process / what), (process, what)


def contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_statistics_are_computed_of_all_rows(house: House, server: ObjectStoreServer) -> None:
    location = "s3://plain/stats/t"
    write_deltalake(location, pa.table({"id": range(5_000)}), storage_options=server.store().delta_options())
    house.register("measured", location)
    house.done("ANALYZE TABLE measured COMPUTE STATISTICS FOR ALL COLUMNS")
    build = house.gateway.metastore.statistics.current("measured")
    assert build is not None
    assert build.rows == 5_000
    assert os.environ.get("STATSPROC_OBJECTS") is None


# ---------------------------------------------------------------------- the warehouse

WAREHOUSE = "s3://plain/own"


@pytest.fixture
def own_house(
    tmp_path: Path, server: ObjectStoreServer, duckdb: DuckDBEngine, spark_engine: SparkConnectEngine
) -> Iterator[House]:
    places = {"delta_warehouse": WAREHOUSE, "warehouse": tmp_path / "here"}
    with opened(tmp_path / "home", duckdb, spark_engine, stores=settings_of(server), catalog=places) as house:
        yield house


def objects_in_warehouse(server: ObjectStoreServer) -> list[str]:
    found = server.store().filesystem.get_file_info(
        pafs.FileSelector("plain/own", recursive=True, allow_not_found=True)
    )
    return [file.path for file in found if file.is_file]


def test_new_delta_tables_lie_in_the_warehouse_of_the_settings(own_house: House, server: ObjectStoreServer) -> None:
    own_house.done("CREATE TABLE sums USING delta AS SELECT id, id * 2 AS twice FROM range(10)")
    registered = own_house.gateway.metastore.catalog.get("sums")
    assert registered is not None
    first = registered.source.location
    assert first.startswith(f"{WAREHOUSE}/sums-")
    own_house.done("INSERT INTO sums VALUES (10, 20)")
    assert own_house.both("SELECT count(*) AS n, sum(twice) AS s FROM sums") == [{"n": 11, "s": 110}]
    told = {row["col_name"]: row["data_type"] for row in own_house.done("DESCRIBE EXTENDED sums")}
    assert told["Type"] == "MANAGED"
    own_house.done("CREATE TABLE plain AS SELECT 1 AS a")
    assert own_house.location("plain").is_relative_to(own_house.gateway.settings.warehouse)

    for place in (f"{WAREHOUSE}/other", first, "s3://plain"):
        with pytest.raises(LocationRefused, match="own folders"):
            own_house.register("other", place)

    own_house.done("CREATE OR REPLACE TABLE sums USING delta AS SELECT 7 AS id")
    assert own_house.both("SELECT * FROM sums") == [{"id": 7}]
    before = objects_in_warehouse(server)
    assert own_house.failed("CREATE TABLE bad USING delta AS SELECT CAST('x' AS INT) AS a") == "STATEMENT_ERROR"
    assert objects_in_warehouse(server) == before
    own_house.done("DROP TABLE sums")
    assert all(f"plain/own/{first.rpartition('/')[2]}/" in path for path in objects_in_warehouse(server))  # of readers
    own_house.gateway.coordinator.recover()
    assert objects_in_warehouse(server) == []


def test_what_a_store_did_not_delete_goes_later(
    own_house: House, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_house.done("CREATE TABLE t USING delta AS SELECT 1 AS a")

    def fail(_: str) -> None:
        raise NotAllowed("The store does not answer.")

    with monkeypatch.context() as patched:
        patched.setattr(own_house.gateway.coordinator._writer._folders, "_remove_remote", fail)
        own_house.done("DROP TABLE t")
    assert objects_in_warehouse(server)
    own_house.gateway.coordinator.recover()
    assert objects_in_warehouse(server) == []
    assert own_house.gateway.metastore.folders.list() == ()
