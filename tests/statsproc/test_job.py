"""A job's row in the metastore, however the job ends."""

from __future__ import annotations

import datetime as dt
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from metastore.jobs import TablesBusy
from metastore.records import JobRequest, JobState, StatisticsJob
from metastore.store import Metastore
from statsproc.job import Stopped, run_job
from statsproc.session import SparkUnavailable
from tests.statsproc.runs import NOON, Recorder, Runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
