from __future__ import annotations

from dataclasses import replace

import pytest

from metastore.errors import AlreadyExists
from metastore.store import Metastore
from sql.tables import Column, View
from tests.metastore.examples import MINUTE, NOON, books

CHEAP = View("cheap", "SELECT id FROM books WHERE price < 10", "spark", (Column("id", "bigint"),))


def test_a_view_comes_back_as_it_was_put_and_is_replaced_only_on_request(store: Metastore) -> None:
    before = store.catalog.version()
    store.views.put(CHEAP, at=NOON, replace=False)
    assert store.views.list() == (CHEAP,)
    assert store.catalog.version() > before
    other = replace(CHEAP, sql="SELECT 1 AS id", dialect="duckdb")
    with pytest.raises(AlreadyExists, match="cheap"):
        store.views.put(other, at=NOON, replace=False)
    assert store.views.list() == (CHEAP,)
    store.views.put(other, at=NOON + MINUTE, replace=True)
    assert store.views.list() == (other,)


def test_tables_and_views_share_their_names(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    with pytest.raises(AlreadyExists):
        store.views.put(replace(CHEAP, name="books"), at=NOON, replace=True)
    store.views.put(CHEAP, at=NOON, replace=False)
    cheap = replace(books(), source=replace(books().source, name="Cheap"))
    with pytest.raises(AlreadyExists):
        store.catalog.put(cheap, at=NOON)
    assert [table.name for table in store.catalog.list()] == ["books"]


def test_a_view_that_is_forgotten_is_gone(store: Metastore) -> None:
    store.views.put(CHEAP, at=NOON, replace=False)
    before = store.catalog.version()
    assert store.views.remove("CHEAP")
    assert not store.views.remove("cheap")
    assert store.views.list() == ()
    assert store.catalog.version() > before


def test_a_table_that_is_to_be_new_replaces_none(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON, new=True)
    with pytest.raises(AlreadyExists, match="books"):
        store.catalog.put(replace(books(), rows=7), at=NOON, new=True)
    found = store.catalog.get("books")
    assert found is not None
    assert found.rows == books().rows
