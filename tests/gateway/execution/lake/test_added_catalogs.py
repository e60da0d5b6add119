"""Catalogs that are added and dropped while the gateway runs, over a real REST catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog

from benchmarks.object_store_server import ACCESS_KEY, ObjectStoreServer
from engines.duckdb.engine import DuckDBEngine
from gateway.catalog.lake.lake_tables import LakeTables
from gateway.planning.fairness import Requester
from gateway.security.principals import Principal, Role
from metastore.objects.access import CatalogAccess
from sql.errors import AccessDenied, UnknownTable
from tests.gateway.house import House, opened

VARIABLE = "FUSION_CATALOGS_TEST"
WRITER = Principal("ann", Role.WRITER)


@pytest.fixture
def catalog(server: ObjectStoreServer) -> Iterator[Catalog]:
    """Return the catalog with one table of two rows, as others see it."""
    rest = {"type": "rest", "uri": server.catalog, "warehouse": "s3://warehouse"}
    tokens = {"oauth2-server-uri": f"{server.catalog}/v1/oauth/tokens"}
    catalog = load_catalog("lake", **rest, **tokens, credential=f"{ACCESS_KEY}:{server.secret_key}")
    catalog.create_namespace("sales")
    rows = pa.table({"id": [1, 2]})
    catalog.create_table("sales.orders", rows.schema).append(rows)
    yield catalog
    catalog.drop_table("sales.orders")
    catalog.drop_namespace("sales")


@pytest.fixture
def house(
    tmp_path_factory: pytest.TempPathFactory,
    server: ObjectStoreServer,
    catalog: Catalog,
    duckdb: DuckDBEngine,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[House]:
    monkeypatch.setenv(VARIABLE, f"{ACCESS_KEY}:{server.secret_key}")
    home = tmp_path_factory.mktemp("added") / "home"
    with opened(home, duckdb, catalog={"iceberg_uris": (server.catalog,)}) as house:
        yield house


def create(server: ObjectStoreServer, name: str = "lake", **others: str) -> str:
    given = {"type": "rest", "uri": server.catalog, "warehouse": "s3://warehouse", "credential_env": VARIABLE}
    values = ", ".join(f"{key} = '{value}'" for key, value in (given | others).items())
    return f"CREATE CATALOG {name} WITH ({values})"


def test_a_catalog_is_added_used_and_dropped(house: House, server: ObjectStoreServer) -> None:
    counted = "SELECT count(*) AS n FROM lake.sales.orders"
    with pytest.raises(UnknownTable):
        house.done(counted)
    house.done(create(server))
    assert house.done("SHOW CATALOGS") == [{"catalog": "lake"}, {"catalog": "spark_catalog"}]
    assert house.done(counted) == [{"n": 2}]
    assert house.failed(create(server)) == "DATABASE_EXISTS"
    house.done(create(server).replace("CATALOG", "CATALOG IF NOT EXISTS"))
    state = house.gateway.catalogs.state("lake")
    assert (state.tables, state.error, state.is_added) == (1, None, True)
    house.done("DROP CATALOG lake")
    assert house.done("SHOW CATALOGS") == [{"catalog": "spark_catalog"}]
    with pytest.raises(UnknownTable):
        house.done(counted)
    assert house.failed("CREATE DATABASE lake.made") == "UNKNOWN_DATABASE"
    assert house.failed("DROP CATALOG lake") == "UNKNOWN_DATABASE"
    house.done("DROP CATALOG IF EXISTS lake")
    assert server.secret_key not in str(house.gateway.metastore.queries.search(limit=100))


def test_a_table_that_was_made_a_moment_after_the_last_list_is_there(
    house: House, server: ObjectStoreServer, catalog: Catalog
) -> None:
    house.done(create(server))
    for number in range(3):
        rows = pa.table({"id": [number]})
        catalog.create_table(f"sales.new{number}", rows.schema).append(rows)
        assert house.done(f"SELECT id FROM lake.sales.new{number}") == [{"id": number}]
        catalog.drop_table(f"sales.new{number}")
    house.done("DROP CATALOG lake")


def test_many_who_name_a_missing_table_have_one_list_made(
    house: House, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.done(create(server))
    lake = house.gateway.registration.lake
    lists = []

    def listing(access: CatalogAccess, requester: Requester) -> Mapping[str, Sequence[str]]:
        lists.append(access.name)
        return LakeTables.listing(lake, access, requester)

    monkeypatch.setattr(lake, "listing", listing)

    def ask(_: int) -> None:
        with pytest.raises(UnknownTable):
            house.done("SELECT * FROM lake.sales.missing")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    assert 1 <= len(lists) <= 2
    house.done("DROP CATALOG lake")


def test_another_gateway_of_the_metastore_has_it_too(
    house: House, server: ObjectStoreServer, duckdb: DuckDBEngine
) -> None:
    house.done(create(server))
    with opened(house.gateway.settings.home, duckdb, catalog={"iceberg_uris": (server.catalog,)}) as other:
        assert other.done("SELECT count(*) AS n FROM lake.sales.orders") == [{"n": 2}]
        house.done("DROP CATALOG lake")
        with pytest.raises(UnknownTable):
            other.done("SELECT count(*) AS n FROM lake.sales.orders")


def test_a_catalog_that_does_not_answer_is_not_added(
    house: House, server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"{ACCESS_KEY}:wrong")
    wrong, missing = house.ended(create(server)), house.ended(create(server, credential_env="FUSION_CATALOGS_NONE"))
    assert wrong.error is not None
    assert "does not accept the gateway's credentials" in wrong.error.message
    assert missing.error is not None
    assert "has no variable FUSION_CATALOGS_NONE" in missing.error.message
    assert house.done("SHOW CATALOGS") == [{"catalog": "spark_catalog"}]


def test_names_that_others_have_are_refused(house: House, server: ObjectStoreServer) -> None:
    house.done("CREATE DATABASE lake")
    assert house.failed(create(server)) == "DATABASE_EXISTS"
    house.done("DROP DATABASE lake")
    own = house.ended(create(server, "spark_catalog"))
    assert own.error is not None
    assert "the gateway's own catalog" in own.error.message
    house.done(create(server))
    assert house.failed("CREATE DATABASE lake") == "DATABASE_EXISTS"
    house.done("DROP CATALOG lake")


def test_operators_alone_may(house: House, server: ObjectStoreServer) -> None:
    for sql in (create(server), "DROP CATALOG lake"):
        with pytest.raises(AccessDenied, match="operator"):
            house.done(sql, principal=WRITER)
