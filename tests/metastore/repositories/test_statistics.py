from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Engine, select

from metastore.database.models import ColumnStatisticsRow, KeyStatisticsRow, StatisticsBuildRow, StatisticsPartRow
from metastore.errors import LockLost, NothingToAmend, TableChanged, TablesBusy
from metastore.records import Inspection, JobRequest, JobState, StatisticsJob, StatisticsPart
from metastore.repositories.statistics import KEPT_BUILDS, UnknownColumn, UnknownTable
from metastore.store import Metastore
from selector.join_keys import Bins, ColumnRef, KeyPair
from selector.statistics import ColumnStatistics
from sql.tables import Column
from tests.metastore.examples import ID, MINUTE, NOON, books, build, full_build, part, sales
from tests.metastore.same import assert_same

BINS = Bins(np.array([1.0, 2.0, 10.5]), "books.id", 1)


def _table(name: str) -> Inspection:
    return replace(books(), source=replace(books().source, name=name))


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


def test_all_that_a_build_can_hold_comes_back(url: str, store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    assert store.statistics.current("books") is None
    published = store.statistics.publish(full_build(BINS), at=NOON)
    assert_same(published, replace(full_build(BINS), version=1, built_at=NOON))
    with Metastore(url) as fresh:
        found = fresh.statistics.current("BOOKS")
        assert found is not None
        assert_same(found, published)
        assert fresh.statistics.current("books") is found  # a build is read once


def test_tables_share_the_bins_of_their_group(url: str, store: Metastore) -> None:
    newer = replace(BINS, version=2)
    for name in ("a", "b", "c"):
        store.catalog.put(_table(name), at=NOON)
    for name, bins in (("a", BINS), ("b", BINS), ("c", newer)):
        store.statistics.publish(replace(full_build(bins), table=name), at=NOON)
    with Metastore(url) as fresh:
        first = fresh.statistics.current_of(["a"])["a"].keys
        later = fresh.statistics.current_of(["b", "c"])
        assert later["b"].keys["id"].bins is first["id"].bins is first["id,isbn"].bins
        assert later["c"].keys["id"].bins.version == 2


def test_old_builds_go(engine: Engine, store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    for _ in range(KEPT_BUILDS + 3):
        store.statistics.publish(full_build(BINS), at=NOON)
    newest = KEPT_BUILDS + 3
    with engine.connect() as connection:
        for row in (StatisticsBuildRow, ColumnStatisticsRow, KeyStatisticsRow):
            versions = connection.scalars(select(row.version).distinct().order_by(row.version)).all()
            assert versions == list(range(newest - KEPT_BUILDS + 1, newest + 1))


def test_a_removed_table_leaves_nothing(engine: Engine, store: Metastore) -> None:
    pair = KeyPair.of(ColumnRef("books", "id"), ColumnRef("sales", "id"))
    other = KeyPair.of(ColumnRef("books2", "id"), ColumnRef("sales", "id"))
    store.keys.learn([pair, other], source="declared", at=NOON)
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(full_build(BINS), at=NOON, parts=[part()])
    assert store.catalog.remove("Books")
    assert not store.catalog.remove("books")
    with engine.connect() as connection:
        for row in (StatisticsBuildRow, ColumnStatisticsRow, KeyStatisticsRow, StatisticsPartRow):
            assert connection.execute(select(row.table_id)).all() == []
    assert store.keys.pairs() == (other,)
    assert store.statistics.current("books") is None
    store.catalog.put(books(), at=NOON + MINUTE)
    assert store.statistics.current("books") is None
    store.statistics.publish(build(rows=5), at=NOON + MINUTE)
    again = store.statistics.current("books")
    assert again is not None
    assert (again.version, again.rows) == (1, 5)


def test_a_build_that_ends_after_its_job_was_taken_for_dead(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.jobs.create(StatisticsJob("j1", JobRequest(("Books",)), JobState.QUEUED, NOON))
    published = store.statistics.publish(build(), at=NOON, job_id="j1")
    job = store.jobs.get("j1")
    assert job is not None
    assert job.tables[0].version == published.version
    store.jobs.ended("j1", at=NOON, error="silent for too long")
    with pytest.raises(LockLost, match="job j1 does not hold table books any more"):
        store.statistics.publish(build(rows=5), at=NOON, job_id="j1")
    store.jobs.create(StatisticsJob("j2", JobRequest(("books",)), JobState.QUEUED, NOON))
    with pytest.raises(LockLost):
        store.statistics.publish(build(rows=5), at=NOON, job_id="j1")
    assert store.statistics.current("books") is not None
    assert store.statistics.publish(build(), at=NOON, job_id="j2").version == published.version + 1


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


def test_builds_published_at_once_get_versions_of_their_own(store: Metastore) -> None:
    builds = 12
    store.catalog.put(books(), at=NOON)
    with ThreadPoolExecutor(4) as pool:
        published = list(pool.map(lambda _: store.statistics.publish(build(), at=NOON).version, range(builds)))
    assert sorted(published) == list(range(1, builds + 1))


def _folders(parts: Sequence[StatisticsPart]) -> list[str]:
    return [each.folder for each in parts]


def test_parts_come_back_as_they_were_published(store: Metastore) -> None:
    store.catalog.put(sales(), at=NOON)
    parts = [part("year=2024/country=a%2Fb"), part("year=2025", summary=bytes(range(256)) * 4000)]
    store.statistics.publish(build("sales"), at=NOON, parts=parts)
    for found, expected in zip(store.statistics.parts("Sales"), parts, strict=True):
        assert_same(found, expected)
    for found, expected in zip(store.statistics.part_marks("sales"), parts, strict=True):
        assert_same(found, replace(expected, summary=b""))
    assert store.statistics.parts("books") == ()


def test_publishing_replaces_all_parts(store: Metastore) -> None:
    store.catalog.put(sales(), at=NOON)
    store.statistics.publish(build("sales"), at=NOON, parts=[part("a"), part("b"), part("c")])
    changed = part("b", at=NOON + MINUTE, summary=b"new")
    kept = replace(part("c"), summary=b"", rows=0)  # known by folder and time: it is not written again
    store.statistics.publish(build("sales"), at=NOON, parts=[kept, changed, part("d")])
    found = {each.folder: each for each in store.statistics.parts("sales")}
    assert set(found) == {"b", "c", "d"}
    assert_same(found["b"], changed)
    assert_same(found["c"], part("c"))
    store.statistics.publish(build("sales"), at=NOON)
    assert store.statistics.parts("sales") == ()


def test_a_new_part_needs_its_summary(store: Metastore) -> None:
    store.catalog.put(sales(), at=NOON)
    store.statistics.publish(build("sales"), at=NOON, parts=[part("a")])
    with pytest.raises(ValueError, match="part 'b' is new and comes without a summary"):
        store.statistics.publish(build("sales"), at=NOON, parts=[part("a"), part("b", summary=b"")])
    current = store.statistics.current("sales")
    assert current is not None
    assert (current.version, _folders(store.statistics.parts("sales"))) == (1, ["a"])


def test_other_columns_retire_statistics_and_parts(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(build(), at=NOON, parts=[part()])
    assert store.catalog.put(books(), at=NOON).statistics_version == 1
    assert _folders(store.statistics.parts("books")) == [""]
    assert store.catalog.put(books(ID, Column("price", "float")), at=NOON).statistics_version is None
    assert store.statistics.current("books") is None
    assert store.statistics.parts("books") == ()
    assert store.statistics.publish(build(), at=NOON).version == 2


def test_dropped_statistics(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    assert not store.statistics.drop("books", at=NOON)
    store.statistics.publish(build(), at=NOON, parts=[part()])
    version = store.catalog.version()
    assert store.statistics.drop("Books", at=NOON)
    assert store.catalog.version() > version
    assert store.statistics.current("books") is None
    assert store.statistics.parts("books") == ()
    assert store.statistics.publish(build(), at=NOON).version == 2  # misestimates of version 1 do not come back
    with pytest.raises(UnknownTable):
        store.statistics.drop("nobody", at=NOON)


def test_values_set_by_hand_lie_on_top_of_the_build(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    before = store.statistics.publish(full_build(BINS), at=NOON, parts=[part()])
    amended = store.statistics.amend(
        "Books", at=NOON + MINUTE, rows=7, columns={"PRICE": {"ndv": 5, "nulls": 2.0, "maximum_length": 9.0}}
    )
    price = replace(
        before.columns["price"],
        ndv=5.0,
        nulls=2,
        maximum_length=9,
        manual=frozenset({"ndv", "nulls", "maximum_length"}),
    )
    expected = replace(
        before,
        version=2,
        rows=7,  # and as old as the build was
        manual=frozenset({"rows"}),
        columns={**before.columns, "price": price},
    )
    assert_same(amended, expected)
    assert_same(store.statistics.current("books"), expected)
    assert _folders(store.statistics.parts("books")) == [""]
    assert store.statistics.publish(build(), at=NOON).manual == frozenset()


def test_dropped_parts(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    newest = store.statistics.publish(build(), at=NOON, parts=[part("a"), part("b"), part("c")])
    assert store.statistics.drop_parts("Books", ["a", "c", "unknown"]) == 2
    assert _folders(store.statistics.parts("books")) == ["b"]
    assert store.statistics.drop_parts("books", ["a"]) == 0
    found = store.statistics.current("books")
    assert found is not None
    assert (found.version, found.built_at) == (newest.version, NOON)
    with pytest.raises(UnknownTable):
        store.statistics.drop_parts("nobody", ["a"])


def test_parts_of_a_table_that_a_job_works_on_are_not_dropped(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(build(), at=NOON, parts=[part("a"), part("b")])
    store.jobs.create(StatisticsJob("j1", JobRequest(("books",)), JobState.QUEUED, NOON))
    with pytest.raises(TablesBusy) as busy:
        store.statistics.drop_parts("books", ["a"])
    assert (busy.value.job_id, busy.value.tables) == ("j1", ("books",))
    published = store.statistics.publish(build(), at=NOON + MINUTE, parts=[part("a"), part("b")], job_id="j1")
    store.jobs.ended("j1", at=NOON)
    assert store.statistics.drop_parts("books", ["a"]) == 1
    found = store.statistics.current("books")
    assert found is not None
    assert (found.version, _folders(store.statistics.parts("books"))) == (published.version, ["b"])


@pytest.mark.e2e
def test_many_parts_are_dropped_at_once(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    folders = [f"day={n}" for n in range(40_000)]  # more than a statement of SQLite has places for
    marks = [part(folder) for folder in folders]
    store.statistics.publish(build(), at=NOON, parts=marks)
    assert store.statistics.drop_parts("books", folders[1:]) == len(folders) - 1
    assert _folders(store.statistics.part_marks("books")) == folders[:1]


def test_values_set_by_hand_without_a_build(store: Metastore) -> None:
    store.catalog.put(books(), at=NOON)
    with pytest.raises(NothingToAmend, match="set its rows too"):
        store.statistics.amend("books", at=NOON, columns={"price": {"ndv": 5}})
    with pytest.raises(NothingToAmend, match="set its number of distinct values too"):
        store.statistics.amend("books", at=NOON, rows=10, columns={"price": {"nulls": 5}})
    assert store.statistics.current("books") is None
    store.statistics.amend("books", at=NOON, rows=10, columns={"price": {"ndv": 5, "average_length": 8}})
    found = store.statistics.current("books")
    assert found is not None
    assert (found.version, found.rows, found.bytes, found.files, found.source) == (1, 10, 1 << 40, 2, "manual")
    assert found.manual == {"rows"}
    assert_same(
        found.columns["price"],
        ColumnStatistics("price", "double", 0, 5.0, average_length=8.0, manual=frozenset({"ndv", "average_length"})),
    )
    store.catalog.put(sales(), at=NOON)
    amended = store.statistics.amend("sales", at=NOON, columns={"id": {"ndv": 5}})  # its files count their rows
    assert (amended.rows, amended.manual) == (30, frozenset())


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ({"nope": {"ndv": 1}}, UnknownColumn, "table books has no column nope"),
        ({"price": {"minimum": 1}}, ValueError, "minimum of a column cannot be set"),
        ({"price": {"ndv": -1}}, ValueError, "ndv of price must be a number from 0 on"),
        ({"price": {"ndv": float("inf")}}, ValueError, "ndv of price must be a number"),
    ],
)
def test_values_that_cannot_be_set(
    store: Metastore, columns: dict[str, dict[str, float]], error: type[Exception], message: str
) -> None:
    store.catalog.put(books(), at=NOON)
    store.statistics.publish(build(), at=NOON)
    with pytest.raises(error, match=message):
        store.statistics.amend("books", at=NOON, columns=columns)
    found = store.statistics.current("books")
    assert found is not None
    assert found.version == 1


def test_readers_never_see_half_a_build(url: str, store: Metastore) -> None:
    """One process publishes, and removes and puts the table again, while another reads."""
    store.catalog.put(books(), at=NOON)
    whole = full_build(BINS)
    published = threading.Event()

    def publish() -> None:
        for n in range(30):
            store.statistics.publish(whole, at=NOON + n * MINUTE)
            if n % 10 == 9:
                store.catalog.remove("books")
                store.catalog.put(books(), at=NOON)
        published.set()

    seen = 0
    with ThreadPoolExecutor(1) as pool, Metastore(url) as reader:
        writing = pool.submit(publish)
        while not published.is_set() and not writing.done():
            found = reader.statistics.current("books")
            if found is not None:
                assert (len(found.columns), len(found.keys), found.sample is None) == (len(whole.columns), 2, False)
                seen += 1
        writing.result()
    assert seen


def test_statistics_of_another_table_of_that_name(store: Metastore) -> None:
    """What was read is of files that the name does not stand for any more, though its columns are the same."""
    read = store.catalog.put(books(), at=NOON)
    store.catalog.remove("books")
    with pytest.raises(UnknownTable, match="books"):
        store.statistics.publish(build(), at=NOON, of=read)
    elsewhere = books()
    store.catalog.put(replace(elsewhere, source=replace(elsewhere.source, location="/data/others")), at=NOON)
    with pytest.raises(TableChanged, match="try again"):
        store.statistics.publish(build(), at=NOON, of=read)
    assert store.statistics.current("books") is None
