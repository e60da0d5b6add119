from __future__ import annotations

from dataclasses import replace

from metastore.records import JobState, StatisticsJob
from metastore.store import Metastore
from tests.metastore.examples import MINUTE, NOON

JOB = StatisticsJob("j1", ("books", "customers"), JobState.QUEUED, NOON)


def test_a_life_that_ends_well(store: Metastore) -> None:
    store.jobs.create(JOB)
    assert store.jobs.get("j1") == JOB
    store.jobs.started("j1", at=NOON + MINUTE, process_id=4711)
    store.jobs.progressed("j1", tables_done=2)
    assert [job.id for job in store.jobs.open_jobs()] == ["j1"]
    store.jobs.ended("j1", at=NOON + 2 * MINUTE)
    assert store.jobs.get("j1") == replace(
        JOB,
        state=JobState.FINISHED,
        tables_done=2,
        process_id=4711,
        started_at=NOON + MINUTE,
        finished_at=NOON + 2 * MINUTE,
    )
    assert store.jobs.open_jobs() == ()


def test_an_ended_job_stays_as_it_ended(store: Metastore) -> None:
    store.jobs.create(JOB)
    store.jobs.ended("j1", at=NOON, error="books: gone")
    store.jobs.ended("j1", at=NOON + MINUTE)
    store.jobs.progressed("j1", tables_done=9)
    found = store.jobs.get("j1")
    assert found is not None
    assert (found.state, found.error, found.finished_at, found.tables_done) == (
        JobState.FAILED,
        "books: gone",
        NOON,
        0,
    )


def test_open_jobs_come_oldest_first(store: Metastore) -> None:
    store.jobs.create(replace(JOB, id="later", created_at=NOON + MINUTE))
    store.jobs.create(JOB)
    assert [job.id for job in store.jobs.open_jobs()] == ["j1", "later"]
    assert store.jobs.get("nobody") is None
