"""Tables of Iceberg catalogs, by names of three parts: a REST catalog over a real object store, and an SQL one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from benchmarks.object_store_server import ACCESS_KEY, ObjectStoreServer
from engines.duckdb.engine import DuckDBEngine
from engines.spark.engine import SparkConnectEngine
from gateway.planning.fairness import Requester
from sql.errors import TableUnreadable, UnknownTable
from tests.gateway.house import House, opened

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def catalogs(tmp_path_factory: pytest.TempPathFactory, server: ObjectStoreServer) -> dict[str, Catalog]:
    """Return the catalogs as others see them, by the names that they have here."""
    folder = tmp_path_factory.mktemp("catalogs")
    rest = {"type": "rest", "uri": server.catalog, "warehouse": "s3://warehouse"}
    tokens = {"oauth2-server-uri": f"{server.catalog}/v1/oauth/tokens"}
    found = {
        "lake": load_catalog("lake", **rest, **tokens, credential=f"{ACCESS_KEY}:{server.secret_key}"),
        "here": load_catalog("here", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}/w"),
    }
    for catalog in found.values():
        catalog.create_namespace("sales")
    return found


@pytest.fixture(scope="module")
def house(
    tmp_path_factory: pytest.TempPathFactory,
    server: ObjectStoreServer,
    catalogs: dict[str, Catalog],
    duckdb: DuckDBEngine,
    spark_engine: SparkConnectEngine,
) -> Iterator[House]:
    here = catalogs["here"].properties
    settings: dict[str, Any] = {
        "lake": {
            "type": "rest",
            "uri": server.catalog,
            "warehouse": "s3://warehouse",
            "credential": f"{ACCESS_KEY}:{server.secret_key}",
        },
        "here": {"type": "sql", "uri": here["uri"], "warehouse": here["warehouse"]},
    }
    home = tmp_path_factory.mktemp("writes") / "home"  # without a store: the catalog gives keys for each table
    with opened(home, duckdb, spark_engine, catalogs=settings) as house:
        yield house


@pytest.mark.parametrize("name", ["lake", "here"])
def test_a_catalogs_tables_are_there_by_name(house: House, catalogs: dict[str, Catalog], name: str) -> None:
    rows = pa.table({"id": pa.array(range(1_000), pa.int64()), "region": ["north", "south"] * 500})
    table = catalogs[name].create_table("sales.orders", rows.schema)
    table.append(rows)
    assert house.both(f"SELECT count(*) AS n, max(id) AS m FROM {name}.sales.orders") == [{"n": 1_000, "m": 999}]
    assert house.both(f"SELECT {name}.sales.orders.id FROM {name}.sales.orders WHERE orders.id = 7") == [{"id": 7}]
    assert house.both(f"SELECT count(*) AS n FROM `{name}.sales`.`orders`") == [{"n": 1_000}]
    table.append(rows.slice(0, 10))
    assert house.both(f"SELECT count(*) AS n FROM {name}.sales.orders") == [{"n": 1_010}]
    assert house.done("SELECT count(*) AS n FROM orders", database=f"{name}.sales") == [{"n": 1_010}]
    assert "orders" in house.done(f"SHOW TABLES IN {name}.sales")[0].values()
    assert {name, "spark_catalog"} <= {row["catalog"] for row in house.done("SHOW CATALOGS")}
    assert house.done("SHOW CURRENT NAMESPACE", database=f"{name}.sales") == [{"catalog": name, "namespace": "sales"}]
    with pytest.raises(UnknownTable):
        house.done(f"SELECT 1 FROM {name}.sales.missing")
    catalogs[name].drop_table("sales.orders")
    with pytest.raises(UnknownTable):
        house.done(f"SELECT 1 FROM {name}.sales.orders")


@pytest.mark.parametrize("name", ["lake", "here"])
def test_a_table_is_made_changed_and_dropped_in_its_catalog(
    house: House, catalogs: dict[str, Catalog], name: str
) -> None:
    house.done(f"CREATE DATABASE {name}.made")
    house.done(
        f"CREATE TABLE {name}.made.t USING iceberg PARTITIONED BY (bucket(4, id)) AS "
        "SELECT id, CAST(id AS STRING) AS name FROM range(100)"
    )
    house.done(f"INSERT INTO {name}.made.t VALUES (100, 'x')")
    house.done(f"UPDATE {name}.made.t SET name = 'y' WHERE id < 10")
    house.done(f"DELETE FROM {name}.made.t WHERE id BETWEEN 50 AND 59")
    house.done(
        f"MERGE INTO {name}.made.t AS t USING (SELECT 1 AS id UNION ALL SELECT 1000) AS s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'new')"
    )
    house.done(f"ALTER TABLE {name}.made.t ADD COLUMNS (note STRING)")
    counted = f"SELECT count(*) AS n, count_if(name = 'y') AS y, count(note) AS c FROM {name}.made.t"
    assert house.both(counted) == [{"n": 91, "y": 9, "c": 0}]
    by_operation = f"SELECT operation, count(*) AS n FROM {name}.made.t.snapshots GROUP BY operation ORDER BY 1"
    operations = Counter(
        one.summary.operation.value for one in catalogs[name].load_table("made.t").snapshots() if one.summary
    )
    assert house.both(by_operation) == [{"operation": one, "n": n} for one, n in sorted(operations.items())]
    assert house.both(f"SELECT sum(record_count) AS n FROM {name}.made.t.data_files")[0]["n"] >= 91
    read = catalogs[name].load_table("made.t").scan().to_arrow()
    assert read.num_rows == 91
    assert read.column_names == ["id", "name", "note"]
    assert house.failed(f"DROP DATABASE {name}.made") == "NOT_ALLOWED"
    house.done(f"DROP TABLE {name}.made.t")
    assert not catalogs[name].table_exists("made.t")
    house.done(f"DROP DATABASE {name}.made")
    assert ("made",) not in catalogs[name].list_namespaces()


def test_rows_that_cannot_be_written_leave_no_table(house: House, catalogs: dict[str, Catalog]) -> None:
    record = house.ended(
        "CREATE TABLE here.sales.halves USING iceberg PARTITIONED BY (c) AS SELECT CAST('NaN' AS DOUBLE) AS c"
    )
    assert record.error is not None
    assert (record.error.code, "NaN" in record.error.message) == ("NOT_ALLOWED", True)
    assert not catalogs["here"].table_exists("sales.halves")
    house.done("CREATE TABLE here.sales.halves USING iceberg PARTITIONED BY (c) AS SELECT 0.5D AS c")
    house.done("DROP TABLE here.sales.halves")


def refreshed(house: House, name: str) -> None:
    """Have the tables of a catalog listed again."""
    house.gateway.catalogs.refresh(name, Requester("test", time.monotonic() + 60))


def test_names_with_capitals_are_used_in_any_case(house: House, catalogs: dict[str, Catalog]) -> None:
    name, catalog = "here", catalogs["here"]  # SeaweedFS takes no capitals
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "Region": ["north"] * 10})
    for levels in (("Shop",), ("Shop", "East")):
        catalog.create_namespace(levels)
        catalog.create_table((*levels, "BigOrders"), rows.schema).append(rows)
    counted = [{"n": 10}]
    assert house.both(f"SELECT count(*) AS n FROM {name}.SHOP.bigorders WHERE region = 'north'") == counted
    assert house.both(f"SELECT count(*) AS n FROM `{name}`.`Shop`.`BigOrders`") == counted
    assert house.done(f"SELECT count(*) AS n FROM {name}.shop.east.BIGORDERS") == counted
    assert house.done("SELECT count(*) AS n FROM BigOrders", database=f"{name}.shop") == counted
    assert "bigorders" in house.done(f"SHOW TABLES IN {name}.Shop")[0].values()
    assert {f"{name}.shop", f"{name}.shop.east"} <= {row["namespace"] for row in house.done("SHOW DATABASES")}
    assert "id" in house.done(f"DESCRIBE {name}.Shop.BigOrders")[0].values()
    house.done(f"INSERT INTO {name}.shop.BigOrders VALUES (10, 'south')")
    house.done(f"DELETE FROM {name}.SHOP.BIGORDERS WHERE id < 5")
    house.done(f"ANALYZE TABLE {name}.Shop.BigOrders COMPUTE STATISTICS FOR ALL COLUMNS")
    statistics = house.gateway.metastore.statistics.current(f"{name}.shop.bigorders")
    assert statistics is not None
    assert statistics.rows == 6
    assert catalog.load_table("Shop.BigOrders").scan().to_arrow().num_rows == 6
    house.done(f"CREATE TABLE {name}.Shop.Made USING iceberg AS SELECT 1 AS id")
    assert catalog.load_table("Shop.made").scan().to_arrow().to_pylist() == [{"id": 1}]
    catalog.create_table("Shop.Unlisted", rows.schema)
    assert house.failed(f"CREATE TABLE {name}.shop.unlisted (id BIGINT) USING iceberg") == "NOT_ALLOWED"
    for table in ("shop.EAST.bigorders", "Shop.bigOrders", "shop.made", "shop.unlisted"):
        house.done(f"DROP TABLE {name}.{table}")
    assert not catalog.table_exists("Shop.BigOrders")
    for database in ("shop.East", "Shop"):
        house.done(f"DROP DATABASE {name}.{database}")
    assert ("Shop",) not in catalog.list_namespaces()


def test_of_names_that_differ_by_case_alone_none_is_taken(house: House, catalogs: dict[str, Catalog]) -> None:
    name, catalog, rows = "here", catalogs["here"], pa.table({"id": [1, 2]})
    catalog.create_namespace("Twins")
    for table in ("Twins.Anna", "Twins.anna", "Twins.other"):
        catalog.create_table(table, rows.schema).append(rows)
    refreshed(house, name)
    assert house.done(f"SELECT count(*) AS n FROM {name}.twins.other") == [{"n": 2}]
    for sql in ("SELECT * FROM {}", "DESCRIBE {}", "INSERT INTO {} VALUES (3)"):
        with pytest.raises(TableUnreadable, match=r"Twins\.Anna and Twins\.anna, which differ by case alone"):
            house.done(sql.format(f"{name}.twins.anna"))
    assert house.failed(f"DROP TABLE {name}.twins.anna") == "NOT_ALLOWED"
    catalog.create_namespace("twins")
    catalog.create_table("twins.third", rows.schema).append(rows)
    refreshed(house, name)
    assert house.done(f"SELECT count(*) AS n FROM {name}.twins.third") == [{"n": 2}]
    assert house.failed(f"CREATE TABLE {name}.twins.fourth (id BIGINT) USING iceberg") == "NOT_ALLOWED"
    assert house.failed(f"DROP DATABASE {name}.twins CASCADE") == "NOT_ALLOWED"
    catalog.drop_table("Twins.anna")
    refreshed(house, name)
    assert house.done(f"SELECT count(*) AS n FROM {name}.twins.anna") == [{"n": 2}]


def test_names_that_would_be_an_older_snapshots_are_left_out(house: House, catalogs: dict[str, Catalog]) -> None:
    catalog, rows = catalogs["here"], pa.table({"id": [1]})
    for table in ("sales.x", "sales.x@y"):
        catalog.create_table(table, rows.schema).append(rows)
    refreshed(house, "here")
    assert "x@y" not in str(house.done("SHOW TABLES IN here.sales"))
    for sql in ("SELECT * FROM {}", "INSERT INTO {} VALUES (3)", "DROP TABLE {}"):
        with pytest.raises(UnknownTable):
            house.done(sql.format("here.sales.`x@y`"))
    assert house.done("SELECT * FROM here.sales.x") == [{"id": 1}]


def test_a_catalog_that_does_not_answer_stops_its_own_tables_alone(
    house: House, server: ObjectStoreServer, catalogs: dict[str, Catalog]
) -> None:
    rows = pa.table({"id": [1, 2]})
    for catalog in catalogs.values():
        catalog.create_table("sales.both", rows.schema).append(rows)
    for name in catalogs:
        refreshed(house, name)
        assert house.both(f"SELECT count(*) AS n FROM {name}.sales.both") == [{"n": 2}]
    server.pause()
    try:
        begun_s = time.monotonic()
        with pytest.raises(TableUnreadable, match="does not answer"):
            house.done("SELECT count(*) AS n FROM lake.sales.both")
        assert time.monotonic() - begun_s < 60
        assert house.done("SELECT count(*) AS n FROM here.sales.both", engine="duckdb") == [{"n": 2}]
    finally:
        server.resume()


def test_properties_of_a_table_do_not_choose_how_files_are_read(house: House, catalogs: dict[str, Catalog]) -> None:
    schema = pa.schema([("id", pa.int64())])
    catalogs["here"].create_table("sales.evil", schema, properties={"s3.endpoint": "http://127.0.0.1:1"})
    with pytest.raises(TableUnreadable, match="only its catalog may"):
        house.done("SELECT * FROM here.sales.evil")
