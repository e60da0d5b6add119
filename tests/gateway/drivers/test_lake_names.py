"""Drivers over tables of an Iceberg catalog, whose names have three parts: reads, metadata, and the current schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import Engine, MetaData, Table, create_engine, func, inspect, select, text

from engines.duckdb.adapter import DuckDBSettings
from engines.spark.adapter import SparkSettings
from gateway.server import wiring
from gateway.settings import load
from tests.gateway.drivers.flight.conftest import flight_port
from tests.gateway.drivers.hs2.conftest import Drivers, driving
from tests.gateway.drivers.hs2.test_beeline import beeline, rows
from tests.waiting import wait_until

hive = pytest.importorskip("pyhive.hive", reason="needs the extra hive")
impala = pytest.importorskip("impala.dbapi", reason="needs the extra impala")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*will not make use of SQL compilation caching"),
    pytest.mark.filterwarnings("ignore:The dbapi\\(\\) classmethod"),
]
ORDERS = pa.table({"id": pa.array(range(100), pa.int64()), "region": ["north", "south"] * 50})
SCHEMA = "lake.sales"


@dataclass(frozen=True, slots=True)
class Doors:
    """Addresses of one gateway. flight: of Flight SQL."""

    hs2: Drivers
    flight: str


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("catalog")
    uri, warehouse = f"sqlite:///{folder}/c.db", f"file://{folder}/w"
    catalog = SqlCatalog("lake", uri=uri, warehouse=warehouse)
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", ORDERS.schema).append(ORDERS)
    gateway_settings = load(
        tmp_path_factory.mktemp("home"),
        duckdb=DuckDBSettings(workers=1, threads=1),
        spark=SparkSettings(enabled=False),
        catalogs={"lake": {"type": "sql", "uri": uri, "warehouse": warehouse}},
    )
    with (
        driving(wiring.build(gateway_settings)) as drivers,
        flight_port(drivers.gateway) as flight,
    ):
        wait_until(lambda: _is_listed(drivers), "the catalog is listed", 60)
        yield Doors(drivers, flight.address)


def _is_listed(drivers: Drivers) -> bool:
    try:
        with closing(hive.connect(drivers.host, drivers.port, username="joe", database=SCHEMA)) as connection:
            connection.cursor().execute("SELECT 1")
    except hive.OperationalError:
        return False
    return True


@pytest.fixture(params=["hive", "impala"])
def engine(doors: Doors, request: pytest.FixtureRequest) -> Iterator[Engine]:
    login = "?auth_mechanism=PLAIN&user=joe&password=any" if request.param == "impala" else ""
    user = "" if login else "joe@"
    made = create_engine(f"{request.param}://{user}{doors.hs2.host}:{doors.hs2.port}/default{login}")
    yield made
    made.dispose()


def test_sqlalchemy_reflects_them(engine: Engine) -> None:
    inspector = inspect(engine)
    assert SCHEMA in inspector.get_schema_names()
    assert inspector.get_table_names(schema=SCHEMA) == ["orders"]
    assert [column["name"] for column in inspector.get_columns("orders", schema=SCHEMA)] == ["id", "region"]
    assert inspector.has_table("orders", schema=SCHEMA)
    assert not inspector.has_table("nowhere", schema=SCHEMA)
    orders = Table("orders", MetaData(), schema=SCHEMA, autoload_with=engine).alias("o")
    north = select(func.count()).select_from(orders).where(orders.c.region == "north")
    with engine.connect() as connection:
        assert connection.execute(north).scalar() == 50
        assert connection.execute(text("SELECT max(id) FROM lake.sales.orders")).scalar() == 99


def test_impylas_dialect_names_the_schema_before_a_column(doors: Doors) -> None:
    """PyHive's dialect refuses a schema with a dot there by itself."""
    made = create_engine(f"impala://{doors.hs2.host}:{doors.hs2.port}/default?auth_mechanism=PLAIN&user=joe")
    orders = Table("orders", MetaData(), schema=SCHEMA, autoload_with=made)
    with made.connect() as connection:
        assert connection.execute(select(func.count()).where(orders.c.region == "north")).scalar() == 50
    made.dispose()


def test_sqlalchemy_begins_in_their_schema(doors: Doors) -> None:
    engine = create_engine(f"hive://joe@{doors.hs2.host}:{doors.hs2.port}/{SCHEMA}")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM orders")).scalar() == 100
    assert inspect(engine).get_table_names() == ["orders"]
    engine.dispose()


def test_pyhive_and_impyla_read_them(doors: Doors) -> None:
    address = (doors.hs2.host, doors.hs2.port)
    for made in (
        hive.connect(*address, username="joe", database=SCHEMA),
        impala.connect(*address, database=SCHEMA, auth_mechanism="PLAIN", user="joe"),
    ):
        with closing(made) as connection, closing(connection.cursor()) as cursor:
            cursor.execute("SELECT region, count(*) FROM orders GROUP BY region ORDER BY region")
            assert cursor.fetchall() == [("north", 50), ("south", 50)]
            cursor.execute("USE default")
            cursor.execute("SELECT count(*) FROM lake.sales.orders o JOIN lake.sales.orders p ON o.id = p.id")
            assert cursor.fetchall() == [(100,)]
            cursor.execute("USE lake.sales")
            cursor.execute("SELECT orders.id FROM orders WHERE sales.orders.id = 7")
            assert cursor.fetchall() == [(7,)]


def test_impyla_lists_them(doors: Doors) -> None:
    with closing(impala.connect(doors.hs2.host, doors.hs2.port, auth_mechanism="PLAIN", user="joe")) as connection:
        with closing(connection.cursor()) as cursor:
            cursor.get_databases()
            assert SCHEMA in [row[0] for row in cursor.fetchall()]
            cursor.get_tables(database_name=SCHEMA)
            assert [row[1:3] for row in cursor.fetchall()] == [(SCHEMA, "orders")]
            assert [column[0] for column in cursor.get_table_schema("orders", database_name=SCHEMA)] == ["id", "region"]
            assert cursor.table_exists("orders", database_name=SCHEMA)


def test_adbc_lists_and_reads_them(doors: Doors) -> None:
    with closing(adbc.connect(f"grpc://{doors.flight}", autocommit=True)) as connection:
        objects = connection.adbc_get_objects(depth="all", db_schema_filter=SCHEMA).read_all().to_pylist()
        (schema,) = [one for catalog in objects for one in catalog["catalog_db_schemas"]]
        (table,) = schema["db_schema_tables"]
        assert (schema["db_schema_name"], table["table_name"]) == (SCHEMA, "orders")
        assert [column["column_name"] for column in table["table_columns"]] == ["id", "region"]
        assert connection.adbc_get_table_schema("orders", db_schema_filter=SCHEMA).names == ["id", "region"]
        with closing(connection.cursor()) as cursor:
            cursor.execute("SELECT count(*) FROM lake.sales.orders WHERE region = ?", ("south",))
            assert cursor.fetchall() == [(50,)]
        connection.adbc_current_db_schema = SCHEMA
        with closing(connection.cursor()) as cursor:
            cursor.execute("SELECT count(*) FROM orders")
            assert cursor.fetchall() == [(100,)]


@pytest.mark.e2e
def test_beeline_reads_them(doors: Doors) -> None:
    address = f"jdbc:hive2://{doors.hs2.host}:{doors.hs2.port}/{SCHEMA}"
    printed, said = beeline(address, ["SELECT count(*) AS n FROM orders", "DESCRIBE lake.sales.orders", "!tables"])
    assert ["100"] in rows(printed), said
    assert ["region", "string", ""] in rows(printed) or any(row[:2] == ["region", "string"] for row in rows(printed))
    assert any(SCHEMA in row and "orders" in row for row in rows(printed)), printed
