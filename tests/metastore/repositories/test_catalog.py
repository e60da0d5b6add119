from __future__ import annotations

from dataclasses import replace

import pytest

from metastore.errors import AlreadyExists, NoDatabase, TableHeld
from metastore.records import Cron, Database, JobRequest, JobState, Schedule, StatisticsJob, TableProgress
from metastore.store import Metastore
from selector.join_keys import ColumnRef, KeyPair
from sql.tables import Column
from tests.metastore.examples import ID, MINUTE, NOON, PRICE, books, build, sales


def test_tables_come_back_as_they_were_put(store: Metastore) -> None:
    put = store.catalog.put(sales(), at=NOON)
    assert store.catalog.get("sales") == put
    assert put.source == sales().source
    assert put.partitions == sales().partitions
    assert (put.files, put.bytes, put.rows, put.registered_at) == (3, 300, 30, NOON)
    assert put.statistics_version is None
    of_books = store.catalog.put(books(), at=NOON)
    assert (of_books.name, of_books.source.options) == ("books", {"delimiter": "|"})
    assert store.catalog.get("BOOKS") == of_books
    assert store.catalog.list() == (of_books, put)


def test_putting_again_replaces_files_and_partitions(store: Metastore) -> None:
    store.catalog.put(sales(), at=NOON)
    later = replace(sales(), files=1, bytes=100, rows=10, partitions=sales().partitions[:1])
    store.catalog.put(later, at=NOON + MINUTE)
    found = store.catalog.get("sales")
    assert found is not None
    assert found.partitions == later.partitions
    assert (found.files, found.registered_at) == (1, NOON + MINUTE)


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


def test_what_is_known_of_a_table_follows_its_name(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON, owner="ann")
    store.catalog.put(sales(), at=NOON)
    store.statistics.publish(build(), at=NOON)
    store.databases.add(Database("shop"))
    columns = [(ColumnRef("books", name), ColumnRef("sales", other)) for name, other in (("a", "y"), ("b", "x"))]
    store.keys.learn([KeyPair.together(columns), KeyPair.of(*columns[0])], source="declared", at=NOON)
    store.schedules.create(Schedule("nightly", ("books", "sales"), Cron("0 3 * * *", "UTC"), NOON))
    before = store.catalog.version()
    assert store.catalog.rename("Books", "shop.volumes")
    assert store.catalog.version() > before
    assert store.catalog.get("books") is None
    found = store.catalog.get("shop.volumes")
    assert found is not None
    assert (found.owner, found.statistics_version) == ("ann", 1)
    current = store.statistics.current("shop.volumes")
    assert current is not None
    assert current.table == "shop.volumes"
    renamed = [(ColumnRef("shop.volumes", left.column), right) for left, right in columns]
    assert set(store.keys.pairs()) == {KeyPair.together(renamed), KeyPair.of(*renamed[0])}
    schedule = store.schedules.get("nightly")
    assert schedule is not None
    assert schedule.tables == ("shop.volumes", "sales")
    assert not store.catalog.rename("books", "other")


def test_a_name_that_is_taken_or_held_stays(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.catalog.put(sales(), at=NOON)
    with pytest.raises(AlreadyExists):
        store.catalog.rename("books", "sales")
    with pytest.raises(NoDatabase):
        store.catalog.rename("books", "nowhere.books")
    progress = (TableProgress("books"),)
    store.jobs.create(StatisticsJob("j1", JobRequest(("books",)), JobState.QUEUED, NOON, progress))
    with pytest.raises(TableHeld):
        store.catalog.rename("books", "volumes")
    assert [table.name for table in store.catalog.list()] == ["books", "sales"]


def test_statistics_stay_where_columns_are_added(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(build(), at=NOON)
    wider = replace(books(), source=replace(books().source, columns=(*books().source.columns, Column("late", "int"))))
    assert store.catalog.put(wider, at=NOON).statistics_version == 1
    current = store.statistics.current("books")
    assert current is not None
    assert "late" not in current.columns
