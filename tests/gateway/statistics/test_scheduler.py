"""Schedules over real gateways and a real metastore; jobs are real processes that read no rows."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy.exc import OperationalError

from engines.errors import MemoryExceeded
from engines.protocol import EngineKind
from engines.scripted import Script, ScriptedEngine
from gateway import settings as settings_module
from gateway.errors import NotFound, ScheduleInvalid, SchedulePaused, ScheduleTaken
from gateway.routing.engines import EngineEntry, EngineRegistry
from gateway.server import wiring
from gateway.server.runtime import Gateway
from gateway.settings import MetastoreSettings, ScheduleSettings
from gateway.statements.statement import Statement
from gateway.statistics.jobs import JobRunner
from gateway.statistics.scheduled_statements import ScheduledStatements
from metastore.discovery.inspection import inspect
from metastore.records import (
    ALL_TABLES,
    AfterMisestimate,
    Cron,
    JobRequest,
    JobState,
    Mode,
    Schedule,
    Staleness,
    StatisticsJob,
    Trigger,
)
from sql.errors import UnknownTable
from tests.gateway import job_process
from tests.gateway.conftest import BY_MEMORY
from tests.gateway.scripted_gateway import PLAN, ROWS
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e  # jobs are real processes, and clocks are not turned

SECOND = dt.timedelta(seconds=1)
EVERY_5_S = Cron("*/5 * * * * *")
ON_TIME = 2 * SECOND
LIMIT_BYTES = 64 << 20
TOO_BIG = "SELECT title FROM books WHERE id < 77"
TOO_BIG_AS_WELL = "SELECT id FROM books WHERE id > 77"


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def schedule(trigger: Trigger, *tables: str, name: str = "s", mode: Mode = Mode.FULL) -> Schedule:
    return Schedule(name, tables or ("books",), trigger, now(), mode)


def seconds_from_now(*seconds: int) -> Cron:
    """Return an expression that is due so many full seconds from now, and again after a minute."""
    wanted = sorted({(now() + (second + 1) * SECOND).second for second in seconds})
    return Cron(f"{','.join(map(str, wanted))} * * * * *")


def jobs_of(gateway: Gateway, name: str = "s") -> list[StatisticsJob]:
    """Return a schedule's jobs, oldest first."""
    return [job for job in reversed(gateway.metastore.jobs.list()) if job.schedule == name]


def ended(gateway: Gateway, count: int, name: str = "s") -> list[StatisticsJob]:
    """Wait until so many of a schedule's jobs have ended and the schedule took note of the last one."""

    def all_ended() -> bool:
        jobs = jobs_of(gateway, name)[:count]
        known = gateway.metastore.schedules.get(name)
        return len(jobs) == count and all(job.state.ended for job in jobs) and known is not None and not known.running

    wait_until(all_ended)
    return jobs_of(gateway, name)[:count]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Make two tables of ten and two files."""
    for name, files in (("books", 10), ("sales", 2)):
        folder = tmp_path / "library" / name
        folder.mkdir(parents=True)
        for file in range(files):
            pq.write_table(pa.table({"id": [file], "title": [f"title {file}"]}), folder / f"part-{file}.parquet")
    return tmp_path / "library"


@pytest.fixture
def open_gateway(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Gateway]]:
    """Build and start gateways over one metastore; whoever closes one before the end says so with ``closed``."""
    opened: list[Gateway] = []
    monkeypatch.setattr(JobRunner, "_command", lambda _: job_process.COMMAND)
    monkeypatch.setenv(job_process.SECONDS, "0")

    def build(home: str = "home", **settings: float) -> Gateway:
        fast = ScriptedEngine("fast", kind=EngineKind.FAST)
        dependable = ScriptedEngine("dependable", kind=EngineKind.DEPENDABLE)
        for engine in (fast, dependable):
            engine.script("select", Script(steps=(ROWS,), plan=PLAN))
        fast.script("77", Script(steps=(MemoryExceeded("Out of memory"),), plan=PLAN))
        engines = EngineRegistry(
            [
                EngineEntry(fast, limit_bytes=LIMIT_BYTES),
                EngineEntry(dependable),
            ]
        )
        chosen = settings_module.load(
            tmp_path / home,
            metastore=MetastoreSettings(url=f"sqlite:///{tmp_path / 'metastore.db'}"),
            schedules=ScheduleSettings(**({"misestimate_wait_s": 0.5, "retry_first_s": 1.0, "retries": 2} | settings)),
            routing=BY_MEMORY,
        )
        gateway = wiring.assemble(chosen, engines)
        for table in sorted(library.iterdir()):
            gateway.metastore.catalog.put(inspect(table.name, table), at=now())
        gateway.start()
        opened.append(gateway)
        return gateway

    yield build
    for gateway in opened:
        gateway.close()


# ---------------------------------------------------------------------- by the clock


def test_a_schedule_fires_on_time_and_once_also_with_two_gateways(open_gateway: Callable[..., Gateway]) -> None:
    first, second = open_gateway("one"), open_gateway("two")
    added = first.schedules.add(schedule(EVERY_5_S, "books", "sales", mode=Mode.INCREMENTAL))
    assert added.next_run_at is not None
    second.schedules.change(added)  # wakes it: it would look after half a minute by itself
    jobs = ended(first, 3)
    slots = [job.created_at.replace(microsecond=0, second=job.created_at.second // 5 * 5) for job in jobs]
    assert slots == [added.next_run_at + n * 5 * SECOND for n in range(3)]
    assert all(job.created_at - slot < ON_TIME for job, slot in zip(jobs, slots, strict=True))
    assert {job.request for job in jobs} == {JobRequest(("books", "sales"), Mode.INCREMENTAL)}
    assert [job.error for job in jobs] == [None] * 3


def test_what_was_missed_while_nothing_ran_is_caught_up_once(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    gateway.schedules.add(schedule(seconds_from_now(3, 4, 5)))
    gateway.close()
    time.sleep(7)
    begun_at = now()
    again = open_gateway()
    (job,) = ended(again, 1)
    assert job.created_at - begun_at < ON_TIME
    time.sleep(3)
    assert len(jobs_of(again)) == 1
    known = again.schedules.get("s")
    assert known.next_run_at is not None and known.next_run_at > begun_at + 30 * SECOND


def test_runs_of_one_schedule_never_overlap(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(job_process.SECONDS, "2.5")
    gateway = open_gateway()
    gateway.schedules.add(schedule(Cron("* * * * * *")))
    first, second = ended(gateway, 2)
    assert first.finished_at is not None
    assert second.created_at >= first.finished_at
    assert (first.error, second.error) == (None, None)
    gateway.schedules.remove("s")


@pytest.mark.thorough
def test_a_table_that_is_busy_is_waited_for_without_a_failure(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(job_process.SECONDS, "3")
    gateway = open_gateway()
    other = gateway.jobs.start(JobRequest(("books",)))
    gateway.schedules.add(schedule(seconds_from_now(1)))
    wait_until(lambda: gateway.schedules.get("s").last_run_at is not None)
    (job,) = ended(gateway, 1)
    done = gateway.metastore.jobs.get(other.id)
    assert done is not None and done.finished_at is not None
    assert job.created_at > done.finished_at
    known = gateway.schedules.get("s")
    assert (known.failures, known.last_error, job.error) == (0, None, None)


def test_a_paused_schedule_does_not_run_until_it_is_resumed(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    added = gateway.schedules.add(schedule(Cron("* * * * * *")))
    paused = gateway.schedules.change(replace(added, paused=True))
    assert paused.next_run_at is None
    time.sleep(1.0)  # what was claimed just before is on record by then
    before = len(jobs_of(gateway))
    assert before <= 1
    with pytest.raises(SchedulePaused):
        gateway.schedules.run("s")
    time.sleep(2.5)
    assert len(jobs_of(gateway)) == before
    resumed = gateway.schedules.change(replace(paused, paused=False))
    assert resumed.next_run_at is not None
    ended(gateway, before + 1)


# ---------------------------------------------------------------------- failures


def test_a_failed_run_is_repeated_with_longer_waits_and_then_waits_for_its_time(
    open_gateway: Callable[..., Gateway], library: Path
) -> None:
    gateway = open_gateway()
    shutil.rmtree(library / "books")
    regular = seconds_from_now(1)
    gateway.schedules.add(schedule(regular, "books", "sales"))
    jobs = ended(gateway, 3)
    assert all(job.error is not None and "holds no data files" in job.error for job in jobs)
    assert [job.request.tables for job in jobs] == [("books", "sales"), ("books",), ("books",)]  # only what is left
    for number, (job, following) in enumerate(itertools.pairwise(jobs)):
        assert job.finished_at is not None
        assert following.created_at - job.finished_at > 2**number * SECOND
    known = gateway.schedules.get("s")
    assert (known.failures, known.retries) == (3, 0)
    assert known.last_error == jobs[-1].error
    assert known.next_run_at is not None
    assert known.next_run_at.second == int(regular.expression.split()[0])
    assert known.next_run_at > now() + 20 * SECOND


@pytest.mark.thorough
def test_a_success_ends_a_row_of_failures(open_gateway: Callable[..., Gateway], library: Path) -> None:
    gateway = open_gateway(retries=5.0)
    (library / "books").rename(library.parent / "elsewhere")
    gateway.schedules.add(schedule(seconds_from_now(1)))
    ended(gateway, 1)
    (library.parent / "elsewhere").rename(library / "books")
    wait_until(lambda: any(job.state is JobState.FINISHED for job in jobs_of(gateway)))
    wait_until(lambda: not gateway.schedules.get("s").running)
    known = gateway.schedules.get("s")
    assert (known.failures, known.retries, known.last_error) == (0, 0, None)


@pytest.mark.thorough
def test_a_run_that_ended_with_its_gateway_is_repeated_by_the_next_one(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(job_process.SECONDS, "60")
    gateway = open_gateway()
    gateway.schedules.add(schedule(seconds_from_now(1)))
    wait_until(lambda: any(job.state is JobState.RUNNING for job in jobs_of(gateway)))
    gateway.close()
    monkeypatch.setenv(job_process.SECONDS, "0")
    again = open_gateway()
    cut, repeated = ended(again, 2)
    assert (cut.state, repeated.state) == (JobState.FAILED, JobState.FINISHED)


@pytest.mark.thorough
def test_a_gateway_that_comes_up_leaves_a_run_of_another_one_alone(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(job_process.SECONDS, "4")
    first = open_gateway("one")
    first.schedules.add(schedule(Cron("* * * * * *")))
    wait_until(lambda: any(job.state is JobState.RUNNING for job in jobs_of(first)))
    time.sleep(2.5)  # times that come while it runs are left out, and say nothing about it
    (job,) = jobs_of(first)
    second = open_gateway("two")
    known = second.schedules.get("s")
    assert (known.running, known.last_run_at, known.last_job_id) == (True, job.created_at, job.id)
    done, following = ended(second, 2)
    assert (done.error, following.error) == (None, None)
    assert done.finished_at is not None and following.created_at >= done.finished_at
    first.schedules.remove("s")


def test_a_claim_without_a_job_is_given_up_once_it_was_taken_over(open_gateway: Callable[..., Gateway]) -> None:
    first = open_gateway("one", enabled=False)  # claims, and gets no thread for it
    added = first.schedules.add(schedule(Cron("0 3 * * *")))
    assert added.next_run_at is not None
    claimed_at, later = now(), added.next_run_at + dt.timedelta(days=1)
    assert first.metastore.schedules.claim("s", due_at=added.next_run_at, next_run_at=later, at=claimed_at)
    second = open_gateway("two")
    (job,) = ended(second, 1)
    statements = ScheduledStatements(
        first.metastore.schedules,
        submit=first.coordinator.submit,
        present=first.authenticator.present,
        deadline_s=60.0,
        stopped=threading.Event(),
    )
    first.schedules._runs.run("s", claimed_at, statements)  # its thread at last
    assert jobs_of(first) == [job]


def test_a_run_whose_gateway_went_away_is_repeated_by_another_one(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.statistics.schedule_runner.TAKE_OVER_EVERY_S", 0.5)
    monkeypatch.setattr("gateway.statistics.scheduled_runs.END_NOTICED_WITHIN", SECOND)
    monkeypatch.setenv(job_process.SECONDS, "60")
    first, second = open_gateway("one"), open_gateway("two")
    first.schedules.add(schedule(AfterMisestimate()))
    first.schedules.misestimated(["books"])
    wait_until(lambda: any(job.state is JobState.RUNNING for job in jobs_of(first)))
    (job,) = jobs_of(first)
    began, other = (first, second) if first.jobs.log_file(job.id).exists() else (second, first)
    monkeypatch.setenv(job_process.SECONDS, "0")
    began.close()
    cut, repeated = ended(other, 2)
    assert (cut.state, repeated.state) == (JobState.FAILED, JobState.FINISHED)
    assert other.jobs.log_file(repeated.id).exists()
    known = other.schedules.get("s")
    assert (known.awaited, known.failures, known.next_run_at) == ((), 0, None)


def test_a_metastore_that_is_away_for_a_moment_stops_nothing(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = open_gateway()
    asked = []

    def away(**_: object) -> None:
        asked.append(now())
        raise OperationalError("SELECT", {}, Exception("away"))

    monkeypatch.setattr("gateway.statistics.schedule_runner.LOOK_AGAIN_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(gateway.metastore.schedules, "next_due_at", away)
        gateway.schedules.add(schedule(seconds_from_now(2)))
        wait_until(lambda: len(asked) > 1)
    (job,) = ended(gateway, 1)
    assert job.error is None


def test_a_job_whose_end_cannot_be_written_is_closed_later(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = open_gateway()
    monkeypatch.setenv(job_process.SECONDS, "60")
    job = gateway.jobs.start(JobRequest(("books",)))
    wait_until(lambda: [open_job.state for open_job in gateway.metastore.jobs.open_jobs()] == [JobState.RUNNING])
    asked = []

    def away(job_id: str, **_: object) -> None:
        asked.append(job_id)
        raise OperationalError("DELETE", {}, Exception("away"))

    with monkeypatch.context() as patched:
        patched.setattr(gateway.metastore.jobs, "ended", away)
        gateway.jobs._processes[job.id].terminate()
        wait_until(lambda: not gateway.jobs._processes)
    assert asked == [job.id]
    gateway.jobs.recover()
    closed = gateway.metastore.jobs.get(job.id)
    assert closed is not None
    assert (closed.state, closed.error) == (JobState.FAILED, "The job's process ended before the job did.")


# ---------------------------------------------------------------------- once stale, after a misestimate, by hand


def test_only_stale_tables_are_computed(open_gateway: Callable[..., Gateway], library: Path) -> None:
    gateway = open_gateway(check_s=1.0)
    gateway.schedules.add(schedule(Staleness(changed_files=0.1), *ALL_TABLES))
    (first,) = ended(gateway, 1)
    assert first.request.tables == ("books", "sales")  # without statistics
    wait_until(lambda: (gateway.schedules.get("s").last_run_at or now()) > (first.finished_at or now()))
    assert len(jobs_of(gateway)) == 1
    pq.write_table(pa.table({"id": [1], "title": ["another"]}), library / "sales" / "part-2.parquet")  # 1 of 3
    _, second = ended(gateway, 2)
    assert second.request.tables == ("sales",)
    (library / "books" / "part-0.parquet").unlink()  # 1 of 10
    *_, third = ended(gateway, 3)
    assert third.request.tables == ("books",)


@pytest.mark.thorough
def test_statistics_grow_old(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway(check_s=1.0)
    gateway.schedules.add(schedule(Staleness(days=4 / 86_400)))
    first, second = ended(gateway, 2)
    assert first.finished_at is not None
    assert second.created_at - first.finished_at > 3 * SECOND


def test_a_misestimate_brings_new_statistics_of_the_tables_that_caused_it(
    open_gateway: Callable[..., Gateway], library: Path
) -> None:
    gateway = open_gateway()
    gateway.schedules.add(schedule(AfterMisestimate(), *ALL_TABLES))
    for _ in range(2):  # the second one is expected to run out of memory, and goes elsewhere
        record = gateway.coordinator.submit(Statement(TOO_BIG)).done.result(30)
        assert record.error is None
    (job,) = ended(gateway, 1)
    assert job.request.tables == ("books",)
    known = gateway.schedules.get("s")
    assert (known.awaited, known.next_run_at) == ((), None)
    # New statistics that change nothing are no new ground; a miss of another statement makes no better statistics.
    for sql in (TOO_BIG, TOO_BIG_AS_WELL):
        gateway.coordinator.submit(Statement(sql)).done.result(30)
    assert [missed.sql for missed in gateway.metastore.misestimates.list()] == [TOO_BIG_AS_WELL, TOO_BIG]
    wait_until(lambda: gateway.schedules.get("s").awaited == ("books",))
    wait_until(lambda: not gateway.schedules.get("s").running and gateway.schedules.get("s").next_run_at is None)
    assert len(jobs_of(gateway)) == 1
    pq.write_table(pa.table({"id": [1], "title": ["another"]}), library / "books" / "part-10.parquet")
    gateway.schedules.misestimated(["books"])
    ended(gateway, 2)


def test_a_misestimate_during_a_run_brings_another_run(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(job_process.SECONDS, "3")
    gateway = open_gateway()
    gateway.schedules.add(schedule(AfterMisestimate(), *ALL_TABLES))
    gateway.schedules.misestimated(["books"])
    wait_until(lambda: any(job.state is JobState.RUNNING for job in jobs_of(gateway)))
    gateway.schedules.misestimated(["sales"])
    time.sleep(1)  # longer than a misestimate waits: it becomes due while the job still runs
    assert not jobs_of(gateway)[0].state.ended
    first, second = ended(gateway, 2)
    assert (first.request.tables, second.request.tables) == (("books",), ("sales",))
    assert first.finished_at is not None
    assert 0 * SECOND <= second.created_at - first.finished_at < ON_TIME
    known = gateway.schedules.get("s")
    assert (known.awaited, known.next_run_at, known.last_error) == ((), None, None)


@pytest.mark.thorough
def test_a_misestimate_during_a_run_that_fails_is_part_of_its_repetition(
    open_gateway: Callable[..., Gateway], library: Path
) -> None:
    gateway = open_gateway(retry_first_s=2.0, retries=1)
    shutil.rmtree(library / "books")
    gateway.schedules.add(schedule(AfterMisestimate(), *ALL_TABLES))
    gateway.schedules.misestimated(["books"])
    wait_until(lambda: gateway.schedules.get("s").retries == 1)
    gateway.schedules.misestimated(["sales"])
    first, second = ended(gateway, 2)
    assert (first.request.tables, second.request.tables) == (("books",), ("books", "sales"))
    assert gateway.schedules.get("s").awaited == ()


def test_a_schedule_runs_by_hand_whatever_it_waits_for(open_gateway: Callable[..., Gateway], library: Path) -> None:
    gateway = open_gateway()
    gateway.schedules.add(schedule(AfterMisestimate(), "sales"))
    job = gateway.schedules.run("s")
    assert job is not None
    assert (job.schedule, job.request.tables) == ("s", ("sales",))
    ended(gateway, 1)
    shutil.rmtree(library / "sales")
    gateway.schedules.run("s")
    ended(gateway, 2)
    known = gateway.schedules.get("s")
    assert (known.failures, known.retries, known.next_run_at) == (1, 0, None)  # who ran it has seen it fail


# ---------------------------------------------------------------------- definitions


def test_what_cannot_be_is_refused(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    with pytest.raises(UnknownTable, match="did you mean books"):
        gateway.schedules.add(schedule(EVERY_5_S, "boks"))
    with pytest.raises(ScheduleInvalid, match="share lies in"):
        gateway.schedules.add(replace(schedule(EVERY_5_S), mode=Mode.SAMPLE, share=1.5))
    with pytest.raises(NotFound):
        gateway.schedules.run("nobody")
    added = gateway.schedules.add(schedule(Cron("0 3 * * *", "Europe/Berlin"), "Books", "books"))
    assert added.tables == ("books",)
    with pytest.raises(ScheduleTaken):
        gateway.schedules.add(schedule(EVERY_5_S))
    with pytest.raises(NotFound, match="did you mean nightly"):
        gateway.schedules.add(schedule(EVERY_5_S, name="nightly"))
        gateway.schedules.remove("nightli")
