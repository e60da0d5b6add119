from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metastore.database import sqlite_url
from metastore.inspection import inspect
from metastore.records import CatalogTable, JobState
from metastore.store import Metastore
from selector.statistics import TableStatistics
from statsproc.build import STARTING, Stopped, build, run_job
from statsproc.session import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ROWS = 50_000
FILE_ROWS = 17_000
ROW_GROUP_ROWS = 7_000
RANK_ERROR = 0.001


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def progress(self, what: str, done: int, total: int) -> None:
        assert 0 <= done <= total

    def finished(self, what: str, summary: str, **facts: object) -> None:
        self.events.append(("finished", what))

    def failed(self, what: str, error: str) -> None:
        self.events.append(("failed", what))

    def done(self, **facts: object) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Metastore]:
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as store:
        yield store


def _table(name: str, location: Path) -> CatalogTable:
    found = inspect(name, location)
    return CatalogTable(found.source, found.files, found.bytes, found.rows, found.partitions, NOON)


def _example() -> pa.Table:
    random = np.random.default_rng(3)
    prices = random.lognormal(3.0, 1.0, ROWS).round(2)
    return pa.table(
        {
            "id": pa.array(np.arange(ROWS)),
            "price": pa.array(prices, mask=random.random(ROWS) < 0.1),
            "exact": pa.array([Decimal(int(cents)) / 100 for cents in prices * 100], pa.decimal128(38, 2)),
            "quantity": pa.array(random.zipf(1.5, ROWS).clip(max=100).astype(np.int32)),
            "born": pa.array(random.integers(-20_000, 10_000, ROWS).astype(np.int32), pa.date32()),
            "seen": pa.array(random.integers(-(10**15), 10**15, ROWS), pa.timestamp("us", tz="UTC")),
            "plain": pa.array(random.integers(0, 10**15, ROWS), pa.timestamp("us")),
            "flag": pa.array(random.random(ROWS) < 0.25),
            "name": pa.array([f"n{n % 3000}é" for n in range(ROWS)]),
            "blob": pa.array([b"\xff" * (n % 5) for n in range(ROWS)]),
            "nothing": pa.nulls(ROWS, pa.float64()),
            "tags": pa.array([[1, 2]] * ROWS),
        }
    )


@pytest.fixture(scope="module")
def example(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, TableStatistics]:
    """Give a table of all types, and its statistics as built by Spark."""
    folder, table = tmp_path_factory.mktemp("example"), _example()
    for number, first in enumerate(range(0, ROWS, FILE_ROWS)):
        pq.write_table(table.slice(first, FILE_ROWS), folder / f"{number}.parquet", row_group_size=ROW_GROUP_ROWS)
    return table, build(spark, _table("example", folder))


@pytest.mark.spark
def test_counts_bounds_and_lengths_are_exact(example: tuple[pa.Table, TableStatistics]) -> None:
    table, statistics = example
    assert (statistics.rows, statistics.row_group_rows) == (ROWS, ROW_GROUP_ROWS)
    assert list(statistics.columns) == [name for name in table.column_names if name != "tags"]
    assert all(column.nulls == table.column(name).null_count for name, column in statistics.columns.items())
    price = np.array([p for p in table.column("price").to_pylist() if p is not None])
    assert (statistics.columns["price"].minimum, statistics.columns["price"].maximum) == (price.min(), price.max())
    assert statistics.columns["exact"].maximum == float(max(table.column("exact").to_pylist()))
    name = statistics.columns["name"]
    texts = [text.encode() for text in table.column("name").to_pylist()]
    assert (name.minimum, name.maximum) == (min(texts).decode(), max(texts).decode())
    assert (name.average_length, name.maximum_length) == (sum(map(len, texts)) / ROWS, max(map(len, texts)))
    assert (statistics.columns["blob"].average_length, statistics.columns["blob"].minimum) == (2.0, None)
    nothing = statistics.columns["nothing"]
    assert (nothing.ndv, nothing.minimum, nothing.histogram) == (0.0, None, None)


@pytest.mark.spark
def test_numbers_of_distinct_values(example: tuple[pa.Table, TableStatistics]) -> None:
    table, statistics = example
    for name, column in statistics.columns.items():
        distinct = len(set(table.column(name).drop_null().to_pylist()))
        if distinct <= 4096:
            assert column.ndv == distinct, name
        else:
            assert column.ndv == pytest.approx(distinct, rel=0.05), name


@pytest.mark.spark
def test_histograms_are_near_exact(example: tuple[pa.Table, TableStatistics]) -> None:
    table, statistics = example
    for name in ("id", "price", "exact", "quantity", "born", "seen", "plain", "flag"):
        histogram = statistics.columns[name].histogram
        assert histogram is not None
        assert histogram.below is not None
        assert histogram.up_to is not None
        values = table.column(name).drop_null()
        if pa.types.is_temporal(values.type):
            values = values.cast(pa.int32() if name == "born" else pa.int64())
        ordered = np.sort(np.array(values.to_pylist(), dtype=np.float64))
        below = np.searchsorted(ordered, histogram.endpoints, side="left") / ordered.size
        up_to = np.searchsorted(ordered, histogram.endpoints, side="right") / ordered.size
        np.testing.assert_allclose(histogram.below, below, atol=RANK_ERROR, err_msg=name)
        np.testing.assert_allclose(histogram.up_to, up_to, atol=RANK_ERROR, err_msg=name)


@pytest.mark.spark
def test_columns_in_folder_names(spark: SparkSession, tmp_path: Path) -> None:
    for year, rows in ((2023, 10), (2024, 30), ("__HIVE_DEFAULT_PARTITION__", 5)):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"id": pa.array(range(rows))}), tmp_path / f"year={year}" / "a.parquet")
    year_column = build(spark, _table("t", tmp_path)).columns["year"]
    assert (year_column.nulls, year_column.ndv, year_column.minimum, year_column.maximum) == (5, 2.0, 2023.0, 2024.0)
    assert year_column.histogram is not None
    assert year_column.histogram.share_up_to(2023) == pytest.approx(10 / 40)


@pytest.mark.spark
def test_delimited_text(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1|x|\n2||1.5\n3|yy|2.5\n")
    statistics = build(spark, _table("t", tmp_path))
    assert (statistics.rows, statistics.row_group_rows) == (3, None)
    assert [(c.nulls, c.ndv) for c in statistics.columns.values()] == [(0, 3.0), (1, 2.0), (1, 2.0)]


@pytest.mark.spark
@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_no_and_of_one_row(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64())}), tmp_path / "a.parquet")
    statistics = build(spark, _table("t", tmp_path))
    assert (statistics.rows, statistics.columns["id"].ndv) == (rows, float(rows))
    assert (statistics.columns["id"].histogram is not None) == (rows > 0)


@pytest.mark.spark
def test_a_table_of_nested_columns_only(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": pa.array([[1], [2, 3]])}), tmp_path / "a.parquet")
    statistics = build(spark, _table("t", tmp_path))
    assert (statistics.rows, dict(statistics.columns)) == (2, {})


def _register(store: Metastore, folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir()
        pq.write_table(pa.table({"id": pa.array(range(10))}), folder / name / "a.parquet")
        store.catalog.put(inspect(name, folder / name), at=NOON)


def _opens(spark: SparkSession) -> Callable[[], AbstractContextManager[SparkSession]]:
    return lambda: nullcontext(spark)


@pytest.mark.spark
def test_a_table_that_fails_does_not_stop_the_others(spark: SparkSession, store: Metastore, tmp_path: Path) -> None:
    _register(store, tmp_path, "a", "broken", "gone", "z")
    (tmp_path / "broken" / "a.parquet").write_bytes(b"PAR1 no longer PAR1")
    (tmp_path / "gone" / "a.parquet").unlink()
    (tmp_path / "gone").rmdir()
    recorder = Recorder()
    errors = run_job(store, "j1", ["a", "broken", "gone", "nobody", "z"], _opens(spark), recorder)
    assert set(errors) == {"broken", "gone", "nobody"}
    assert all("\n" not in error for error in errors.values())
    assert [event for event in recorder.events if event[1] != STARTING] == [
        ("finished", "a"),
        ("failed", "broken"),
        ("failed", "gone"),
        ("failed", "nobody"),
        ("finished", "z"),
    ]
    assert set(store.statistics.current_of(["a", "broken", "gone", "z"])) == {"a", "z"}
    job = store.jobs.get("j1")
    assert job is not None
    assert (job.state, job.tables_done) == (JobState.FAILED, 5)
    assert all(f"{table}: " in (job.error or "") for table in errors)


@pytest.mark.spark
def test_a_job_that_ends_well(spark: SparkSession, store: Metastore, tmp_path: Path) -> None:
    _register(store, tmp_path, "a")
    assert run_job(store, "j1", ["a"], _opens(spark), Recorder()) == {}
    assert run_job(store, "j2", ["a"], _opens(spark), Recorder()) == {}
    job = store.jobs.get("j1")
    assert job is not None
    assert (job.state, job.tables_done, job.error) == (JobState.FINISHED, 1, None)
    current = store.statistics.current("a")
    assert current is not None
    assert (current.version, current.rows, current.columns["id"].ndv) == (2, 10, 10.0)


@pytest.mark.parametrize("failure", [SparkUnavailable("no Spark here"), Stopped()])
def test_a_job_ends_however_it_ends(store: Metastore, failure: BaseException) -> None:
    def fail() -> AbstractContextManager[SparkSession]:
        raise failure

    with pytest.raises(type(failure)):
        run_job(store, "j1", ["a"], fail, Recorder())
    job = store.jobs.get("j1")
    assert job is not None
    assert job.state is JobState.FAILED
    assert job.error == (str(failure) or "the job was stopped")
