"""The catalog as the gateway sees it: what changes, what stays the same object, and what engines hear of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.catalog.snapshot import CatalogView
from metastore.store import Metastore
from sql.tables import Column, TableSource, View
from tests.metastore.examples import ID, MINUTE, NOON, YEAR, books, build, sales

CHEAP = View("cheap", "SELECT id FROM books WHERE price < 10", "spark", (Column("id", "bigint"),))


class Told:
    """An engine's side: all that it was told."""

    def __init__(self) -> None:
        self.tables: list[list[str]] = []

    def use_tables(self, tables: Sequence[TableSource]) -> None:
        self.tables.append([table.name for table in tables])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(f"sqlite:///{tmp_path / 'metastore.db'}") as store:
        store.catalog.put(books(), at=NOON)
        store.catalog.put(sales(), at=NOON)
        yield store


def test_engines_hear_of_tables_that_are_new_defined_otherwise_or_gone(store: Metastore) -> None:
    told = Told()
    catalog = CatalogView(store, told)
    catalog.current()
    catalog.current()
    assert told.tables == [["books", "sales"]]
    store.catalog.put(books(ID), at=NOON + MINUTE)
    assert catalog.current().tables["books"].columns == (ID,)
    store.catalog.remove("books")
    assert "books" not in catalog.current().tables
    other_place = replace(sales(), source=replace(sales().source, name="more", location="/data/more"))
    store.catalog.put(other_place, at=NOON)
    catalog.current()
    assert told.tables == [["books", "sales"], ["books", "sales"], ["sales"], ["more", "sales"]]


def test_rows_statistics_and_views_are_no_news_to_engines(store: Metastore) -> None:
    told = Told()
    catalog = CatalogView(store, told)
    first = catalog.current()
    store.catalog.put(replace(books(), rows=2_000), at=NOON + MINUTE)
    more_rows = catalog.current()
    assert more_rows.tables is first.tables
    assert more_rows.shapes["books"].rows == 2_000
    store.statistics.publish(build("sales", rows=500), at=NOON)
    described = catalog.current()
    assert described.tables is first.tables
    assert described.statistics["sales"].rows == 500
    store.views.put(CHEAP, at=NOON, replace=False)
    with_view = catalog.current()
    assert (with_view.tables, with_view.views) == (first.tables, {"cheap": CHEAP})
    store.catalog.set_owner("books", "ann")
    owned = catalog.current()
    assert owned.owners == {"books": "ann", "sales": None}
    assert owned.views is with_view.views
    assert len(told.tables) == 1


def test_a_table_is_of_the_version_in_which_it_or_its_statistics_changed(store: Metastore) -> None:
    catalog = CatalogView(store, Told())
    first = catalog.current()
    both = [first.tables[name] for name in ("books", "sales")]
    store.statistics.publish(build("sales"), at=NOON)
    second = catalog.current()
    assert second.version > first.version
    assert [second.changed_at([table]) for table in both] == [first.version, second.version]
    assert second.changed_at(both) == second.version
    assert second.shapes["books"] is first.shapes["books"]
    store.catalog.put(replace(books(ID, YEAR), rows=7), at=NOON + MINUTE)
    third = catalog.current()
    assert third.changed_at([third.tables["books"]]) == third.version
    assert third.changed_at([third.tables["sales"]]) == second.version
    assert third.changed_at([]) == 0


def test_a_build_that_was_dropped_and_made_again_is_seen(store: Metastore) -> None:
    """Both may be of version 1."""
    catalog = CatalogView(store, Told())
    store.statistics.publish(build("books", rows=10), at=NOON)
    assert catalog.current().statistics["books"].rows == 10
    store.statistics.drop("books", at=NOON)
    store.statistics.publish(build("books", rows=20), at=NOON + MINUTE)
    assert catalog.current().statistics["books"].rows == 20
    assert catalog.current().shapes["books"].rows == 20
