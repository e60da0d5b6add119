from __future__ import annotations

from dataclasses import replace

from engines.protocol import Column
from metastore.store import Metastore
from tests.metastore.examples import ID, MINUTE, NOON, PRICE, books, build, sales


def test_a_table_comes_back_as_it_was_put(store: Metastore) -> None:
    put = store.catalog.put(sales(), at=NOON)
    assert store.catalog.get("sales") == put
    assert put.source == sales().source
    assert put.partitions == sales().partitions
    assert (put.files, put.bytes, put.rows, put.registered_at) == (3, 300, 30, NOON)
    assert put.statistics_version is None


def test_names_do_not_depend_on_case(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    found = store.catalog.get("BOOKS")
    assert found is not None
    assert found.name == "books"
    assert found.source.options == {"delimiter": "|"}


def test_tables_are_listed_by_name(store: Metastore) -> None:
    store.catalog.put(sales(), at=NOON)
    store.catalog.put(books(), at=NOON)
    assert [table.name for table in store.catalog.list()] == ["books", "sales"]


def test_putting_again_replaces_files_and_partitions(store: Metastore) -> None:
    store.catalog.put(sales(), at=NOON)
    later = replace(sales(), files=1, bytes=100, rows=10, partitions=sales().partitions[:1])
    store.catalog.put(later, at=NOON + MINUTE)
    found = store.catalog.get("sales")
    assert found is not None
    assert found.partitions == later.partitions
    assert (found.files, found.registered_at) == (1, NOON + MINUTE)


def test_statistics_stay_with_the_same_columns_only(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(build(), at=NOON)
    assert store.catalog.put(books(), at=NOON).statistics_version == 1
    assert store.catalog.put(books(ID, Column("price", "float")), at=NOON).statistics_version is None
    assert store.statistics.current("books") is None


def test_a_removed_table_takes_its_statistics_along(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(build(), at=NOON)
    assert store.catalog.remove("Books")
    assert not store.catalog.remove("books")
    store.catalog.put(books(), at=NOON)
    assert store.statistics.current("books") is None


def test_every_change_advances_the_version(store: Metastore) -> None:
    seen = [store.catalog.version()]
    store.catalog.put(books(ID, PRICE), at=NOON)
    seen.append(store.catalog.version())
    store.statistics.publish(build(), at=NOON)
    seen.append(store.catalog.version())
    store.catalog.remove("books")
    seen.append(store.catalog.version())
    store.catalog.remove("books")
    assert seen == sorted(set(seen))
    assert store.catalog.version() == seen[-1]
