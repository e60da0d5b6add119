"""A job's row in the metastore, however the job ends."""

from __future__ import annotations

import datetime as dt
import signal
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.engine import ExceptionContext

from metastore.database.connection import sqlite_url
from metastore.errors import TablesBusy
from metastore.records import JobRequest, JobState, StatisticsJob
from metastore.store import Metastore
from selector.join_keys import ColumnRef, KeyPair
from sql.tables import Column
from statsproc.job.job import Stopped, run_job
from statsproc.spark.session import SparkUnavailable
from tests.metastore.same import assert_same
from tests.statsproc.runs import NOON, Recorder, Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEAT_S = 0.05
WAIT_S = 20.0


@pytest.mark.parametrize("failure", [SparkUnavailable("no Spark here"), Stopped()])
def test_a_job_ends_however_it_ends(store: Metastore, failure: BaseException) -> None:
    def fail() -> AbstractContextManager[SparkSession]:
        raise failure

    with pytest.raises(type(failure)):
        run_job(store, "j1", JobRequest(("a",)), fail, Recorder())
    job = store.jobs.get("j1")
    assert job is not None
    assert job.state is JobState.FAILED
    assert job.error == (str(failure) or "the job was stopped")
    assert (job.tables[0].state, job.tables[0].error) == (JobState.FAILED, job.error)
    store.jobs.create(StatisticsJob("j2", JobRequest(("a",)), JobState.QUEUED, NOON))  # the table is free


def test_a_table_that_another_job_holds(store: Metastore) -> None:
    def never() -> AbstractContextManager[SparkSession]:
        raise AssertionError("Spark was started in vain")

    now = dt.datetime.now(dt.UTC)
    store.jobs.create(StatisticsJob("j1", JobRequest(("a", "b")), JobState.QUEUED, now))
    with pytest.raises(TablesBusy, match="job j1 computes the statistics of b already"):
        run_job(store, "j2", JobRequest(("b", "c")), never, Recorder())
    assert store.jobs.get("j2") is None


@pytest.mark.spark
def test_a_job_that_ends_well(runs: Runs) -> None:
    for name in ("a", "b"):
        runs.write(name, pa.table({"id": range(10)}))
        runs.register(name)
    job = runs.run("a", "b")
    assert (job.state, job.tables_done, job.error, runs.errors) == (JobState.FINISHED, 2, None, {})
    assert [(t.files_done, t.files_all, t.rows, t.columns, t.version, t.error) for t in job.tables] == [
        (1, 1, 10, 1, 1, None)
    ] * 2
    assert all(table.seconds is not None and table.seconds > 0 for table in job.tables)
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.heartbeat_at is not None
    assert job.created_at <= job.started_at <= job.heartbeat_at <= job.finished_at
    assert job.process_id is not None
    assert runs.run("a").tables[0].version == 2


def test_a_database_that_is_away_for_a_moment_does_not_end_the_signs_of_life(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("statsproc.job.job.HEARTBEAT_S", BEAT_S)
    path = tmp_path / "metastore.db"
    beats: list[dt.datetime | None] = []
    missed = threading.Event()

    def miss(context: ExceptionContext) -> None:
        missed.set()

    def last_beat(store: Metastore) -> dt.datetime | None:
        job = store.jobs.get("j1")
        assert job is not None
        return job.heartbeat_at

    with Metastore(sqlite_url(path)) as store:

        def fail() -> AbstractContextManager[SparkSession]:
            with closing(sqlite3.connect(path)) as other:
                other.execute("ALTER TABLE statistics_jobs RENAME TO away")
                assert missed.wait(WAIT_S)
                other.execute("ALTER TABLE away RENAME TO statistics_jobs")
            beats.append(last_beat(store))
            give_up_at = time.monotonic() + WAIT_S
            while last_beat(store) == beats[0] and time.monotonic() < give_up_at:
                time.sleep(BEAT_S)
            beats.append(last_beat(store))
            raise Stopped

        event.listen(Engine, "handle_error", miss)
        try:
            with pytest.raises(Stopped):
                run_job(store, "j1", JobRequest(("a",)), fail, Recorder())
        finally:
            event.remove(Engine, "handle_error", miss)
    before, after = beats
    assert before is not None
    assert after is not None
    assert after > before


def test_a_job_that_is_cancelled_at_any_gateway_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("statsproc.job.job.HEARTBEAT_S", BEAT_S)
    told = threading.Event()
    earlier = signal.signal(signal.SIGTERM, lambda *_: told.set())
    with Metastore(sqlite_url(tmp_path / "metastore.db")) as store:

        def cancelled() -> AbstractContextManager[SparkSession]:
            store.jobs.ended("j1", at=NOON, error="The job was cancelled.", cancelled=True)
            assert told.wait(WAIT_S)
            raise Stopped

        try:
            with pytest.raises(Stopped):
                run_job(store, "j1", JobRequest(("a",)), cancelled, Recorder())
        finally:
            signal.signal(signal.SIGTERM, earlier)
        job = store.jobs.get("j1")
    assert job is not None
    assert (job.state, job.error) == (JobState.CANCELLED, "The job was cancelled.")


@pytest.mark.spark
def test_columns_that_are_changed_while_the_table_is_read(runs: Runs) -> None:
    """What was found is of columns that the catalog does not have any more."""
    runs.write("a", pa.table({"id": range(10)}))
    runs.register("a")
    assert runs.statistics("a").rows == 10

    class Changer(Recorder):
        def progress(self, what: str, done: int, total: int) -> None:
            if what == "a":
                runs.register("a", columns=[Column("id", "decimal(20,0)")])

    errors = run_job(runs.store, "j1", JobRequest(("a",)), lambda: nullcontext(runs.spark), Changer())
    assert errors == {"a": "table a was dropped or registered with other columns or files meanwhile: try again"}
    assert runs.store.statistics.current("a") is None  # new columns have none


@pytest.mark.spark
def test_a_job_that_lost_its_table_publishes_nothing(runs: Runs) -> None:
    """It was taken for dead, and another one may hold the table by now."""
    runs.write("a", pa.table({"id": range(10)}))
    runs.register("a")

    class Taker(Recorder):
        def finished(self, what: str, summary: str, **facts: object) -> None:
            (job,) = runs.store.jobs.open_jobs()
            runs.store.jobs.ended(job.id, at=NOON, error="taken for dead")

    errors = run_job(runs.store, "j1", JobRequest(("a",)), lambda: nullcontext(runs.spark), Taker())
    assert set(errors) == {"a"}
    assert runs.store.statistics.current("a") is None
    job = runs.store.jobs.get("j1")
    assert job is not None
    assert job.error == "taken for dead"


# ---------------------------------------------------------------------- several tables


def _jobs_of_spark(runs: Runs) -> set[int]:
    return set(runs.spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def _small(runs: Runs, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        table = pa.table({"id": range(number, number + 500), "word": [f"{name} {n % 7}" for n in range(500)]})
        for file in ("a.parquet", "b.parquet"):
            runs.write(name, table, file)
        runs.register(name)


@pytest.mark.spark
def test_small_tables_are_read_in_one_job_of_spark(runs: Runs) -> None:
    """Those with keys in two: the first one looks at the keys of all."""
    names = [f"small_{number}" for number in range(6)]
    _small(runs, names)
    alone = {}
    for name in names:
        alone[name] = runs.statistics(name)
    before = _jobs_of_spark(runs)
    runs.run(*names)
    assert runs.errors == {}
    assert len(_jobs_of_spark(runs) - before) == 1
    for name in names:
        assert_same(replace(runs.current(name), version=1, built_at=None), replace(alone[name], built_at=None))

    keys = [ColumnRef(name, "id") for name in names]
    runs.store.keys.learn({KeyPair.of(keys[0], key) for key in keys[1:]}, source="workload", at=NOON)
    before = _jobs_of_spark(runs)
    runs.run(*names)
    assert runs.errors == {}
    assert len(_jobs_of_spark(runs) - before) == 2
    assert {tuple(runs.current(name).keys) for name in names} == {("id",)}
    assert len({runs.current(name).keys["id"].bins.version for name in names}) == 1


@pytest.mark.spark
@pytest.mark.parametrize("limit", ["TOGETHER_BYTES", "TOGETHER_COLUMNS"])
def test_what_is_read_at_once_is_bounded(runs: Runs, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    names = [f"small_{number}" for number in range(5)]
    _small(runs, names)
    size = max(table.bytes for table in runs.store.catalog.list())
    monkeypatch.setattr(f"statsproc.job.job.{limit}", {"TOGETHER_BYTES": 2.5 * size, "TOGETHER_COLUMNS": 5}[limit])
    large = pa.table({"id": np.random.default_rng(1).integers(0, 1 << 60, 20_000)})
    runs.write("large", large)  # more than is read at once
    runs.register("large")
    before = _jobs_of_spark(runs)
    runs.run(*names[:3], "large", *names[3:])
    assert runs.errors == {}
    assert len(_jobs_of_spark(runs) - before) == (4 if limit == "TOGETHER_BYTES" else 3)
    assert runs.current("large").rows == 20_000


@pytest.mark.spark
def test_a_table_without_rows_among_others_that_are_joined(runs: Runs) -> None:
    _small(runs, ["one", "two"])
    runs.write("empty", pa.table({"id": pa.array([], pa.int64())}))
    runs.register("empty")
    keys = [ColumnRef(name, "id") for name in ("one", "two", "empty")]
    runs.store.keys.learn({KeyPair.of(keys[0], key) for key in keys[1:]}, source="workload", at=NOON)
    runs.run("empty", "one", "two")
    assert runs.errors == {}
    assert runs.current("empty").rows == 0
    assert tuple(runs.current("two").keys) == ("id",)
    runs.run("empty")
    assert runs.errors == {}
