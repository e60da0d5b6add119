from __future__ import annotations

import datetime as dt
import multiprocessing
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import pytest

from metastore.errors import TablesBusy
from metastore.records import JobRequest, JobState, Mode, StatisticsJob, TableProgress
from metastore.store import Metastore
from tests.metastore.examples import MINUTE, NOON

HERE = "here"
SILENCE_S = 120.0
RACERS = 8
ROUNDS = 6


def _job(name: str = "j1", *tables: str, at: dt.datetime = NOON) -> StatisticsJob:
    names = tables or ("books", "customers")
    return StatisticsJob(name, JobRequest(names), JobState.QUEUED, at, tuple(TableProgress(table) for table in names))


def test_a_life_that_ends_well(store: Metastore) -> None:
    job = _job()
    store.jobs.create(job)
    assert store.jobs.get("j1") == job
    store.jobs.started("j1", at=NOON + MINUTE, host=HERE, process_id=4711)
    books = TableProgress("books", JobState.RUNNING, 3, 7)
    store.jobs.progressed("j1", books, at=NOON + 2 * MINUTE)
    running = replace(
        job,
        state=JobState.RUNNING,
        tables=(books, TableProgress("customers")),
        host=HERE,
        process_id=4711,
        started_at=NOON + MINUTE,
        heartbeat_at=NOON + 2 * MINUTE,
    )
    assert store.jobs.get("j1") == running
    assert store.jobs.open_jobs() == (running,)
    books = TableProgress("books", JobState.FINISHED, 7, 7, rows=1 << 40, columns=9, seconds=1.25, version=4)
    customers = TableProgress("customers", JobState.FINISHED, 1, 1, rows=0, columns=2, seconds=0.5, version=1)
    for progress in (books, customers):
        store.jobs.progressed("j1", progress, at=NOON + 3 * MINUTE)
    assert store.jobs.heartbeat("j1", at=NOON + 4 * MINUTE)
    store.jobs.ended("j1", at=NOON + 5 * MINUTE)
    found = store.jobs.get("j1")
    assert found == replace(
        running,
        state=JobState.FINISHED,
        tables=(books, customers),
        heartbeat_at=NOON + 4 * MINUTE,
        finished_at=NOON + 5 * MINUTE,
    )
    assert found.tables_done == 2
    assert store.jobs.open_jobs() == ()


def test_what_was_asked_for_comes_back(store: Metastore) -> None:
    request = JobRequest(("books",), Mode.SAMPLE, ("price", "Ünï"), 0.125, ("year=2024/country=a%2Fb",))
    store.jobs.create(StatisticsJob("j1", request, JobState.QUEUED, NOON, schedule="nightly"))
    found = store.jobs.get("j1")
    assert found is not None
    assert (found.request, found.schedule, found.tables) == (request, "nightly", (TableProgress("books"),))


def test_a_cancelled_job_has_not_failed(store: Metastore) -> None:
    store.jobs.create(_job())
    store.jobs.ended("j1", at=NOON, error="The job was cancelled.", cancelled=True)
    ended = store.jobs.get("j1")
    assert ended is not None
    assert ended.state is JobState.CANCELLED
    assert ended.state.ended
    assert {table.state for table in ended.tables} == {JobState.CANCELLED}
    assert store.jobs.open_jobs() == ()


def test_an_ended_job_stays_as_it_ended(store: Metastore) -> None:
    store.jobs.create(_job())
    done = TableProgress("books", JobState.FINISHED, 1, 1)
    store.jobs.progressed("j1", done, at=NOON)
    store.jobs.ended("j1", at=NOON, error="killed")
    ended = store.jobs.get("j1")
    assert ended is not None
    assert (ended.state, ended.error, ended.finished_at) == (JobState.FAILED, "killed", NOON)
    assert ended.tables == (done, TableProgress("customers", JobState.FAILED, error="killed"))
    store.jobs.ended("j1", at=NOON + MINUTE)
    store.jobs.progressed("j1", TableProgress("customers", JobState.RUNNING), at=NOON + MINUTE)
    store.jobs.started("j1", at=NOON + MINUTE, host=HERE, process_id=1)
    assert not store.jobs.heartbeat("j1", at=NOON + MINUTE)
    assert store.jobs.get("j1") == ended


def test_progress_of_a_table_that_is_not_in_the_job(store: Metastore) -> None:
    store.jobs.create(_job())
    with pytest.raises(LookupError, match="table sales is not part of job j1"):
        store.jobs.progressed("j1", TableProgress("sales"), at=NOON)


def test_jobs_are_listed_newest_first_and_open_ones_oldest_first(store: Metastore) -> None:
    for number, table in enumerate(("a", "b", "c")):
        store.jobs.create(_job(f"j{number}", table, at=NOON + number * MINUTE))
    store.jobs.ended("j1", at=NOON + MINUTE)
    assert [job.id for job in store.jobs.open_jobs()] == ["j0", "j2"]
    assert [job.id for job in store.jobs.list()] == ["j2", "j1", "j0"]
    assert [job.id for job in store.jobs.list(limit=2)] == ["j2", "j1"]
    assert [job.id for job in store.jobs.list(table="B")] == ["j1"]
    assert store.jobs.get("nobody") is None


def test_an_open_job_keeps_others_off_its_tables(store: Metastore) -> None:
    store.jobs.create(_job("j1", "a", "b", "c"))
    with pytest.raises(TablesBusy, match="job j1 computes the statistics of b, c already") as busy:
        store.jobs.create(_job("j2", "C", "d", "b"))
    assert (busy.value.job_id, busy.value.tables) == ("j1", ("b", "c"))
    assert store.jobs.get("j2") is None
    store.jobs.create(_job("j3", "d"))  # j2 left no lock behind
    store.jobs.ended("j1", at=NOON, error="killed")
    store.jobs.create(_job("j4", "b"))


def test_dead_jobs_are_found(store: Metastore) -> None:
    now = NOON + dt.timedelta(seconds=2 * SILENCE_S)
    recently = now - dt.timedelta(seconds=SILENCE_S / 2)
    for name, host, process_id, heard in (
        ("alive here, heard", HERE, 1, recently),
        ("its number used again", HERE, 1, NOON),
        ("gone here, heard", HERE, 2, recently),
        ("elsewhere, heard", "there", 2, recently),
        ("elsewhere, silent", "there", 1, NOON),
    ):
        store.jobs.create(_job(name, name))
        store.jobs.started(name, at=NOON, host=host, process_id=process_id)
        store.jobs.heartbeat(name, at=heard)
    store.jobs.create(_job("never taken up", "x", at=NOON))
    store.jobs.create(_job("just made", "y", at=recently))
    store.jobs.create(_job("ended", "z", at=NOON))
    store.jobs.ended("ended", at=NOON)
    dead = store.jobs.dead(host=HERE, alive={1}.__contains__, now=now, silence_s=SILENCE_S)
    expected = {"its number used again", "gone here, heard", "elsewhere, silent", "never taken up"}
    assert {job.id for job in dead} == expected


def _try(store: Metastore, name: str, tables: tuple[str, ...]) -> bool:
    try:
        store.jobs.create(_job(name, *tables))
    except TablesBusy:
        return False
    return True


def _race(store: Metastore, racer: int) -> list[int]:
    """Return the rounds that this racer won: three tables each, of which every two racers share one at least."""
    return [
        n for n in range(ROUNDS) if _try(store, f"{n}-{racer}", (f"r{n}-{racer % 2}", f"r{n}-all", f"r{n}-{racer}"))
    ]


def _race_in_a_process(url: str, racer: int) -> list[int]:
    with Metastore(url) as store:
        return _race(store, racer)


def _assert_one_winner(store: Metastore, won: Iterable[list[int]]) -> None:
    assert sorted(n for rounds in won for n in rounds) == list(range(ROUNDS))
    assert len(store.jobs.open_jobs()) == ROUNDS


def test_threads_that_want_one_table(store: Metastore) -> None:
    with ThreadPoolExecutor(RACERS) as pool:
        _assert_one_winner(store, list(pool.map(lambda racer: _race(store, racer), range(RACERS))))


@pytest.mark.e2e
def test_processes_that_want_one_table(url: str, store: Metastore) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(RACERS // 2, mp_context=context) as pool:
        won = list(pool.map(_race_in_a_process, [url] * RACERS, range(RACERS)))
    _assert_one_winner(store, won)


def test_a_table_goes_from_job_to_job(store: Metastore) -> None:
    """Racers that end their jobs at once: nobody waits for ever, and no lock outlives its job."""

    def run(racer: int) -> int:
        done = 0
        for n in range(ROUNDS):
            name = f"{racer}-{n}"
            if _try(store, name, ("b", "a") if racer % 2 else ("a", "b")):
                store.jobs.started(name, at=NOON, host=HERE, process_id=os.getpid())
                store.jobs.progressed(name, TableProgress("a", JobState.FINISHED), at=NOON)
                store.jobs.ended(name, at=NOON)
                done += 1
        return done

    with ThreadPoolExecutor(RACERS) as pool:
        assert sum(pool.map(run, range(RACERS))) > 0
    assert store.jobs.open_jobs() == ()
    assert _try(store, "last", ("a", "b"))
