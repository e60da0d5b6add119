from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from metastore.statistics import UnknownTable
from metastore.store import Metastore
from selector.statistics import ColumnStatistics, TableStatistics
from tests.metastore.examples import MINUTE, NOON, books, build, sales


class _FailsOnTheWay(Mapping[str, ColumnStatistics]):
    """Columns that end in an error after the first one was written."""

    def __init__(self, columns: Mapping[str, ColumnStatistics]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> ColumnStatistics:
        if name != next(iter(self._columns)):
            raise ConnectionError("killed")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _same(a: TableStatistics, b: TableStatistics) -> None:
    for field in ("table", "version", "rows", "bytes", "row_group_rows", "built_at", "source"):
        assert getattr(a, field) == getattr(b, field)
    assert list(a.columns) == list(b.columns)
    for name, column in a.columns.items():
        other = b.columns[name]
        assert repr(replace(column, histogram=None)) == repr(replace(other, histogram=None))
        assert (column.histogram is None) == (other.histogram is None)
        if column.histogram is not None and other.histogram is not None:
            for part in ("endpoints", "below", "up_to"):
                np.testing.assert_array_equal(getattr(column.histogram, part), getattr(other.histogram, part))


def test_a_build_comes_back_as_it_was_published(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    assert store.statistics.current("books") is None
    published = store.statistics.publish(build(), at=NOON)
    found = store.statistics.current("BOOKS")
    assert found is not None
    _same(found, published)
    assert (found.version, found.built_at) == (1, NOON)


def test_the_newest_build_is_in_force(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.catalog.put(sales(), at=NOON)
    store.statistics.publish(build(rows=1), at=NOON)
    store.statistics.publish(build(rows=2), at=NOON + MINUTE)
    store.statistics.publish(build("sales", rows=3), at=NOON)
    found = store.statistics.current_of(["books", "sales", "nobody"])
    assert {name: (each.version, each.rows) for name, each in found.items()} == {"books": (2, 2), "sales": (1, 3)}
    table = store.catalog.get("books")
    assert table is not None
    assert table.statistics_version == 2


def test_a_build_that_fails_on_the_way_leaves_the_old_one_in_force(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(build(rows=1), at=NOON)
    version = store.catalog.version()
    broken = replace(build(rows=2), columns=_FailsOnTheWay(build().columns))
    with pytest.raises(ConnectionError):
        store.statistics.publish(broken, at=NOON)
    found = store.statistics.current("books")
    assert found is not None
    assert (found.version, found.rows, len(found.columns)) == (1, 1, len(build().columns))
    assert store.catalog.version() == version
    assert store.statistics.publish(build(rows=3), at=NOON).version == 2


def test_a_build_that_the_database_refuses_leaves_the_old_one_in_force(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(build(rows=1), at=NOON)
    nameless = ColumnStatistics(None, "bigint", 0, 1.0)  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"(?i)null"):
        store.statistics.publish(replace(build(rows=2), columns={"x": nameless}), at=NOON)
    found = store.statistics.current("books")
    assert found is not None
    assert found.rows == 1


def test_an_unknown_table_is_refused(store: Metastore) -> None:
    with pytest.raises(UnknownTable, match="books"):
        store.statistics.publish(build(), at=NOON)


def test_builds_published_at_once_get_versions_of_their_own(store: Metastore) -> None:
    builds = 12
    store.catalog.put(books(), at=NOON)
    with ThreadPoolExecutor(4) as pool:
        published = list(pool.map(lambda _: store.statistics.publish(build(), at=NOON).version, range(builds)))
    assert sorted(published) == list(range(1, builds + 1))
