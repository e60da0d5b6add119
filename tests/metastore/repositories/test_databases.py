from __future__ import annotations

import pytest

from metastore.errors import AlreadyExists, DatabaseInUse, NoDatabase
from metastore.records import Database, Inspection
from metastore.store import Metastore
from sql.tables import Annotations, Column, TableSource, View
from tests.metastore.examples import NOON

SALES = Database("sales", "what is sold", {"since": "2020"}, owner="ann")


def orders(name: str) -> Inspection:
    return Inspection(
        TableSource(name, f"/data/{name}", "parquet", (Column("id", "bigint"),)), files=1, bytes=1, rows=1
    )


class Refused(Exception):
    pass


def refuse(owner: str | None) -> None:
    raise Refused(owner)


def test_databases_come_back_beside_the_default_one(store: Metastore) -> None:
    assert store.databases.list() == (Database("default"),)
    before = store.catalog.version()
    store.databases.add(SALES)
    assert store.databases.list() == (Database("default"), SALES)
    assert store.catalog.version() > before
    with pytest.raises(AlreadyExists):
        store.databases.add(Database("sales"))


def test_tables_and_views_need_their_database(store: Metastore) -> None:
    with pytest.raises(NoDatabase, match="sales"):
        store.catalog.put(orders("sales.orders"), at=NOON)
    with pytest.raises(NoDatabase, match="sales"):
        store.views.put(View("sales.v", "SELECT 1", "spark", ()), at=NOON, replace=False)
    store.databases.add(SALES)
    store.catalog.put(orders("Sales.Orders"), at=NOON)
    store.catalog.put(orders("orders"), at=NOON)
    assert [table.name for table in store.catalog.list()] == ["orders", "sales.orders"]


def test_a_database_that_holds_something_stays(store: Metastore) -> None:
    store.databases.add(SALES)
    store.catalog.put(orders("sales.orders"), at=NOON)
    store.catalog.put(orders("salesorders"), at=NOON)
    store.views.put(View("sales.v", "SELECT 1", "spark", ()), at=NOON, replace=False)
    with pytest.raises(DatabaseInUse) as caught:
        store.databases.remove("sales")
    assert caught.value.args[0] == ["sales.orders", "sales.v"]
    store.catalog.remove("sales.orders")
    store.views.remove("sales.v")
    with pytest.raises(Refused, match="ann"):
        store.databases.remove("sales", check=refuse)
    assert store.databases.remove("sales")
    assert not store.databases.remove("sales")


def test_an_owner_can_change(store: Metastore) -> None:
    store.databases.add(SALES)
    assert store.databases.set_owner("SALES", "bob")
    assert {database.name: database.owner for database in store.databases.list()} == {"default": None, "sales": "bob"}
    assert not store.databases.set_owner("nowhere", "bob")


def test_what_is_said_of_a_table_outlives_a_look_at_its_files(store: Metastore) -> None:
    said = Annotations("all orders", {"team": "shop"}, {"id": "its number"})
    store.catalog.put(orders("orders"), at=NOON, annotations=Annotations("first"))
    assert store.catalog.annotate("Orders", lambda before: said if before.comment == "first" else before)
    store.catalog.put(orders("orders"), at=NOON)
    table = store.catalog.get("orders")
    assert table is not None
    assert table.annotations == said
    with pytest.raises(Refused):
        store.catalog.annotate("orders", lambda before: before, check=refuse)
    assert not store.catalog.annotate("nowhere", lambda before: before)


def test_what_is_said_of_a_view_and_the_database_of_its_names(store: Metastore) -> None:
    said = Annotations("newest", columns={"id": "its number"})
    view = View("v", "SELECT 1 AS id", "spark", (Column("id", "int"),), database="sales", annotations=said)
    store.views.put(view, at=NOON, replace=False)
    assert store.views.list() == (view,)
    store.views.annotate("v", lambda before: Annotations(columns=before.columns))
    assert store.views.list()[0].annotations == Annotations(columns={"id": "its number"})
