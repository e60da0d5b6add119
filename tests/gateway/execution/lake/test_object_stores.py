"""Lake tables in a real object store: read on DuckDB, of copies that hold what was asked for and nothing else."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.object_store_server import ObjectStoreServer
from engines.duckdb.engine import DuckDBEngine
from engines.files.listing import InspectionFailed
from gateway.statements.statement import Statement, WaitsFor
from metastore.objects.transfer import Transfer
from metastore.records import QueryState
from sql.errors import LocationRefused, TableUnreadable
from tests.gateway.house import House, opened

ROWS = pa.table(
    {"id": range(200_000), "price": [i * 0.5 for i in range(200_000)], "name": [f"n{i}" for i in range(200_000)]}
)


@pytest.fixture
def house(tmp_path: Path, duckdb: DuckDBEngine, server: ObjectStoreServer) -> Iterator[House]:
    with opened(tmp_path / "home", duckdb, stores=settings_of(server)) as house:
        yield house


def settings_of(server: ObjectStoreServer) -> dict[str, Any]:
    """Return the settings of a gateway's object stores."""
    store = server.store()
    return {
        "plain": {
            "prefix": store.prefix,
            "endpoint": store.endpoint,
            "access_key": store.access_key,
            "secret_key": store.secret_key,
        }
    }


def test_a_delta_table_is_read_column_by_column(house: House, server: ObjectStoreServer) -> None:
    location = "s3://plain/delta/orders"
    write_deltalake(
        location, ROWS, storage_options=server.store().delta_options(), configuration={"delta.appendOnly": "false"}
    )
    house.register("orders", location)
    assert house.gateway.objects.cache is not None
    traffic = house.gateway.objects.cache.traffic
    assert house.done("SELECT count(*) AS n FROM orders") == [{"n": 200_000}]
    before = traffic.bytes
    assert house.done("SELECT sum(price) AS s FROM orders") == [{"s": sum(ROWS["price"].to_pylist())}]
    one_column = traffic.bytes - before
    before, requests = traffic.bytes, traffic.requests
    assert house.done("SELECT max(price) AS m FROM orders") == [{"m": 99_999.5}]
    assert (traffic.bytes, traffic.requests) == (before, requests)
    assert house.done("SELECT * FROM orders WHERE id = 77") == [{"id": 77, "price": 38.5, "name": "n77"}]
    assert traffic.bytes - before > one_column


def test_an_iceberg_table_of_a_folder_is_read(house: House, server: ObjectStoreServer, tmp_path: Path) -> None:
    properties = {
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": "s3://plain/ice",
        **server.store().iceberg_properties(),
    }
    catalog = SqlCatalog("c", **properties)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", ROWS.schema)
    table.append(ROWS)
    house.register("ice", table.location())
    assert house.done("SELECT count(*) AS n, min(name) AS m FROM ice") == [{"n": 200_000, "m": "n0"}]
    table.delete("id < 150000")
    assert house.done("SELECT count(*) AS n, min(id) AS m FROM ice") == [{"n": 50_000, "m": 150_000}]
    assert house.failed("INSERT INTO ice VALUES (1, 1, 'x')") == "NO_ENGINE_AVAILABLE"


@pytest.mark.parametrize(
    "location",
    [
        "s3://elsewhere/t",
        "s3://plainer/t",
        "s3://plain/../other/t",
        "s3://plain//t",
        "s3://Plain/t",
        "s3:///t",
        "s3://",
    ],
)
def test_locations_outside_the_stores_are_refused(house: House, location: str) -> None:
    with pytest.raises((LocationRefused, InspectionFailed)):
        house.register("t", location)


def test_what_lies_there_is_told(house: House, server: ObjectStoreServer) -> None:
    with pytest.raises(InspectionFailed, match="holds no delta or iceberg table"):
        house.register("t", "s3://plain/nothing")
    with pytest.raises(InspectionFailed, match="not read from object stores"):
        house.register("t", "s3://plain/nothing", format="csv")
    location = "s3://plain/delta/broken"
    write_deltalake(location, ROWS.slice(0, 10), storage_options=server.store().delta_options())
    house.register("broken", location)
    filesystem = server.store().filesystem
    (file,) = DeltaTable(location, storage_options=server.store().delta_options()).file_uris()
    filesystem.delete_file(file.removeprefix("s3://"))
    assert house.failed("SELECT * FROM broken") == "TABLE_UNREADABLE"
    with filesystem.open_output_stream(file.removeprefix("s3://")) as sink:
        sink.write(b"no Parquet")
    assert house.failed("SELECT * FROM broken") == "TABLE_UNREADABLE"
    filesystem.delete_dir("plain/delta/broken/_delta_log")
    with pytest.raises(TableUnreadable, match="put the log back"):
        house.done("SELECT * FROM broken")


def test_an_object_that_took_the_place_of_another_one(house: House, server: ObjectStoreServer) -> None:
    files, place = server.store().filesystem, "plain/delta/nightly"

    def write(number: int) -> None:
        """Make the table anew, as a job does that has names of its own for its files."""
        rows = pa.table({"id": pa.array([number, number + 1], pa.int64())})
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="none", use_dictionary=False, write_statistics=False)
        content = sink.getvalue()
        sizes.add(content.size)
        schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
        log = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": str(uuid.uuid4()),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(schema),
                    "partitionColumns": [],
                    "configuration": {},
                }
            },
            {
                "add": {
                    "path": "part-0.parquet",
                    "partitionValues": {},
                    "size": content.size,
                    "modificationTime": 1_700_000_000_000 + number,
                    "dataChange": True,
                }
            },
        ]
        for name, text in (
            ("part-0.parquet", content),
            (f"_delta_log/{0:020}.json", "\n".join(map(json.dumps, log)).encode()),
        ):
            with files.open_output_stream(f"{place}/{name}") as stream:
                stream.write(text)

    sizes: set[int] = set()
    write(1)
    house.register("nightly", f"s3://{place}")
    for number in (1, 100, 7):
        if number > 1:
            time.sleep(1.1)  # stores tell times in seconds
            write(number)
        assert house.done("SELECT id FROM nightly ORDER BY id") == [{"id": number}, {"id": number + 1}]
    assert len(sizes) == 1


def test_a_slow_store_keeps_no_memory_from_others(
    house: House, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = "s3://plain/delta/slow"
    write_deltalake(location, ROWS, storage_options=server.store().delta_options())
    house.register("slow", location)
    goes_on = threading.Event()
    fetch = Transfer.writing

    @contextmanager
    def slow(transfer: Transfer, *arguments: Any) -> Iterator[Any]:
        with fetch(transfer, *arguments) as pieces:
            assert goes_on.wait(60)
            yield pieces

    monkeypatch.setattr(Transfer, "writing", slow)
    try:
        run = house.gateway.coordinator.submit(Statement(sql="SELECT sum(price) AS s, count(*) AS n FROM slow"))
        while not any(pending.reason is WaitsFor.OBJECTS for pending in run.pending):
            assert not run.done.done()
            time.sleep(0.01)
        waits_since = time.monotonic()
        assert house.done("SELECT 1 AS one") == [{"one": 1}]
        assert house.gateway.admission.leases() == ()
        waited_s = time.monotonic() - waits_since
    finally:
        goes_on.set()
    record = run.done.result(60)
    assert record.state is QueryState.FINISHED
    (attempt,) = record.attempts
    assert attempt.wall_s is not None
    assert attempt.run_s is not None
    # What a run takes is learned without the time of the store.
    assert attempt.run_s <= attempt.wall_s - waited_s


def test_files_without_rows_of_the_answer_are_not_fetched(house: House, server: ObjectStoreServer) -> None:
    location = "s3://plain/delta/days"
    for day in range(12):
        rows = ROWS.slice(day * 10_000, 10_000).append_column("day", pa.array([f"d{day}"] * 10_000))
        write_deltalake(
            location, rows, mode="append", partition_by=["day"], storage_options=server.store().delta_options()
        )
    house.register("days", location)
    assert house.gateway.objects.cache is not None
    traffic = house.gateway.objects.cache.traffic
    assert house.done("SELECT sum(id) AS s FROM days WHERE day = 'd3'") == [{"s": sum(range(30_000, 40_000))}]
    one_day = traffic.bytes
    assert house.done("SELECT count(*) AS n FROM days WHERE id BETWEEN 35000 AND 45000") == [{"n": 10_001}]
    assert traffic.bytes < 2.5 * one_day
    assert house.done("SELECT sum(id) AS s FROM days") == [{"s": sum(range(120_000))}]
    assert traffic.bytes > 8 * one_day


def test_a_table_is_fetched_before_it_is_read(house: House, server: ObjectStoreServer) -> None:
    location = "s3://plain/delta/warm"
    write_deltalake(location, ROWS, storage_options=server.store().delta_options())
    house.register("warm", location)
    registered = house.gateway.metastore.catalog.get("warm")
    assert registered is not None
    warm = registered.source
    objects = house.gateway.objects
    assert objects.cache is not None
    assert "fetched once" in house.done("CACHE LAZY TABLE warm")[0]["summary"]
    assert objects.bytes_here(warm) < 100_000  # footers
    assert "1 column(s)" in house.done("CACHE TABLE warm OPTIONS ('columns' = 'Price')")[0]["summary"]
    one_column, traffic = objects.bytes_here(warm), objects.cache.traffic
    fetched = traffic.bytes
    assert house.done("SELECT sum(price) AS s FROM warm") == [{"s": sum(ROWS["price"].to_pylist())}]
    assert traffic.bytes == fetched
    assert "All columns of warm" in house.done("CACHE TABLE warm")[0]["summary"]
    assert objects.bytes_here(warm) > 2 * one_column
    fetched = traffic.bytes
    assert house.done("SELECT max(name) AS n, max(id) AS i FROM warm") == [{"n": "n99999", "i": 199_999}]
    assert traffic.bytes == fetched
