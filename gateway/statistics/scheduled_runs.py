"""Scheduled runs: the due tables and a job over them, or statements, and the handling of their end.

When a run begins: schedule_runner.py.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import threading
from collections.abc import Callable, Iterable

from sqlalchemy.exc import SQLAlchemyError

from gateway.catalog.snapshot import CatalogView
from gateway.errors import JobRunning
from gateway.settings import ScheduleSettings
from gateway.statistics.jobs import JobRunner
from gateway.statistics.scheduled_statements import Ended, ScheduledStatements
from gateway.statistics.staleness import Freshness
from metastore.discovery.inspection import InspectionFailed
from metastore.records import ALL_TABLES, AfterMisestimate, JobRequest, JobState, Schedule, Staleness, StatisticsJob
from metastore.store import Metastore
from sql.errors import UnknownTable
from sql.names import did_you_mean

log = logging.getLogger(__name__)

POLL_S = 0.25
LOOK_FOR_DEAD_JOBS_EVERY = 20  # polls
METASTORE_AWAY_S = 5.0
JOBS_LOOKED_AT = 20
END_NOTICED_WITHIN = dt.timedelta(seconds=10)  # by the gateway that started the job, if there still is one
CLAIM_HOLDS = dt.timedelta(minutes=10)  # for a run that has no job yet: the metastore may not answer


class ScheduledRuns:
    """Runs of schedules. Thread-safe. Every method may raise SQLAlchemyError unless its docstring says that it waits.

    stopped: event after which nothing is waited for any more.
    wake: function to call when a schedule may have become due.
    """

    def __init__(
        self,
        metastore: Metastore,
        *,
        jobs: JobRunner,
        catalog: CatalogView,
        freshness: Freshness,
        settings: ScheduleSettings,
        stopped: threading.Event,
        wake: Callable[[], None],
    ) -> None:
        self._metastore = metastore
        self._jobs = jobs
        self._catalog = catalog
        self._freshness = freshness
        self._settings = settings
        self._stopped = stopped
        self._wake = wake
        self._followers: list[threading.Thread] = []

    def run(self, name: str, run_at: dt.datetime, statements: ScheduledStatements) -> None:
        """Do what a claimed run asks for, and wait for its end, also for a metastore that does not answer."""
        while not self._stopped.is_set():
            try:
                self._attempt(name, run_at, statements)
                return
            except SQLAlchemyError as error:
                log.warning("schedule %s: the metastore does not answer: %s", name, error)
                self._stopped.wait(METASTORE_AWAY_S)

    def _attempt(self, name: str, run_at: dt.datetime, statements: ScheduledStatements) -> None:
        schedule = self._metastore.schedules.get(name)
        if schedule is None or not schedule.running or schedule.last_run_at != run_at:
            return  # while it waited for the metastore it was removed, run by hand, or taken over by another gateway
        if schedule.statements:
            self._end(schedule, statements.run(schedule, run_at))
            return
        try:
            due = self._due(schedule)
            if not due:
                self._metastore.schedules.succeeded(name, run_at=run_at)
                self._wake()
                return
            job = self.begin(schedule, due)
        except JobRunning as busy:
            until = _now() + dt.timedelta(seconds=self._settings.retry_first_s)
            log.info("schedule %s: waits until %s. %s", name, until, busy)
            self._metastore.schedules.postponed(name, run_at=run_at, until=until)
            self._wake()
            return
        except (UnknownTable, InspectionFailed, OSError) as error:
            self._failed(schedule, run_at, str(error), repeat=True)
            return
        self._wait_for_end(name, job, repeat=True)

    def _end(self, schedule: Schedule, ended: Ended | None) -> None:
        """Record the end of a schedule's statements; None: that is no longer a matter of this gateway."""
        if ended is None:
            return
        if ended.error is not None:
            self._failed(schedule, ended.run_at, ended.error, repeat=False)  # what it did is not done twice
        else:
            self._metastore.schedules.succeeded(schedule.name, run_at=ended.run_at)
            self._wake()

    def _due(self, schedule: Schedule) -> tuple[str, ...]:
        """Return the tables to compute, which may be none."""
        tables = self.tables(schedule)
        left_over = self._left_over(schedule) if schedule.retries else frozenset()
        match schedule.trigger:
            case AfterMisestimate():  # what was awaited while the failed job ran has no time of its own
                helped = {table for table in schedule.awaited if table in tables and self._helps(schedule, table)}
                return tuple(table for table in tables if table in left_over | helped)
            case _ if left_over:
                return tuple(table for table in tables if table in left_over)
            case Staleness() as limit:
                return tuple(self._stale(schedule, limit, tables))
            case _:
                return tables

    def tables(self, schedule: Schedule) -> tuple[str, ...]:
        """Return the tables that a schedule is about. Raises UnknownTable."""
        known_tables = self._catalog.current().tables
        if schedule.tables == ALL_TABLES:
            names = tuple(sorted(known_tables))
            if not names:
                raise UnknownTable("No table is registered.")
            return names
        for name in schedule.tables:
            if name not in known_tables:
                raise UnknownTable(f"There is no table {name}{did_you_mean(name, known_tables)}")
        return schedule.tables

    def _left_over(self, schedule: Schedule) -> frozenset[str]:
        """Return the tables that the failed job did not finish."""
        job = self._metastore.jobs.get(schedule.last_job_id or "")
        tables = job.tables if job else ()
        return frozenset(part.table for part in tables if part.state is not JobState.FINISHED)

    def _stale(self, schedule: Schedule, limit: Staleness, tables: Iterable[str]) -> Iterable[str]:
        snapshot = self._catalog.current()
        for table in tables:
            why = self._freshness.why_stale(limit, snapshot.tables[table], snapshot.statistics.get(table), at=_now())
            if why is not None:
                log.info("schedule %s: %s is due, %s", schedule.name, table, why)
                yield table

    def _helps(self, schedule: Schedule, table: str) -> bool:
        """Tell whether new statistics can differ: not from those that this schedule got from the very same files."""
        snapshot = self._catalog.current()
        build = snapshot.statistics.get(table)
        for job in self._metastore.jobs.list(limit=JOBS_LOOKED_AT, table=table):
            ours = job.schedule == schedule.name and any(
                part.table == table and build is not None and part.version == build.version for part in job.tables
            )
            if ours:
                drift = self._freshness.look(snapshot.tables[table], build)
                if drift is not None and not drift.share:
                    log.info("schedule %s: the statistics of %s cannot get any better", schedule.name, table)
                    return False
        return True

    def begin(self, schedule: Schedule, tables: tuple[str, ...]) -> StatisticsJob:
        """Start a schedule's job. Raises JobRunning."""
        job = self._jobs.start(
            JobRequest(tables, schedule.mode, share=schedule.share), schedule=schedule.name, owner=schedule.owner
        )
        self._metastore.schedules.started(schedule.name, job_id=job.id, tables=tables, at=job.created_at)
        log.info("schedule %s: job %s computes %s", schedule.name, job.id, ", ".join(tables))
        return job

    def _wait_for_end(self, name: str, begun: StatisticsJob, *, repeat: bool) -> None:
        """Wait for a job's end and take note of it, unless the gateway stops before."""
        for poll in itertools.count(1):
            if self._stopped.wait(POLL_S):
                return
            try:
                if poll % LOOK_FOR_DEAD_JOBS_EVERY == 0:
                    self._jobs.recover()
                job = self._metastore.jobs.get(begun.id)
                if job is None or job.state.ended:
                    self._take_note(name, begun.created_at, job, repeat=repeat)
                    return
            except SQLAlchemyError as error:
                log.warning("schedule %s: the metastore does not answer: %s", name, error)

    def follow(self, name: str, job: StatisticsJob, *, repeat: bool) -> None:
        """Follow a job to its end in a thread of its own. repeat: if it fails."""
        thread = threading.Thread(
            target=self._wait_for_end, args=(name, job), kwargs={"repeat": repeat}, name=f"schedule {name}", daemon=True
        )
        self._followers = [follower for follower in self._followers if follower.is_alive()] + [thread]
        thread.start()

    def _take_note(self, name: str, run_at: dt.datetime, job: StatisticsJob | None, *, repeat: bool) -> None:
        if job is not None and job.error is None:
            self._metastore.schedules.succeeded(name, run_at=run_at)
            self._wake()  # more may have become due while it ran
            return
        schedule = self._metastore.schedules.get(name)
        error = (job.error if job else None) or "The job is gone."
        if schedule is not None:
            cancelled = job is not None and job.state is JobState.CANCELLED
            self._failed(schedule, run_at, error, repeat=repeat and not cancelled)

    def _failed(self, schedule: Schedule, run_at: dt.datetime, error: str, *, repeat: bool) -> None:
        name, settings = schedule.name, self._settings
        if not repeat or schedule.retries >= settings.retries:
            if self._metastore.schedules.failed(name, run_at=run_at, error=error):
                log.warning("schedule %s: failed. %s", name, error)
        else:
            wait_s = min(settings.retry_first_s * 2.0**schedule.retries, settings.retry_longest_s)
            retry_at = _now() + dt.timedelta(seconds=wait_s)
            if self._metastore.schedules.failed(name, run_at=run_at, error=error, retry_at=retry_at):
                log.warning("schedule %s: failed, is repeated in %.0f s. %s", name, wait_s, error)
        self._wake()

    def recover(self) -> None:
        """Follow the jobs of an earlier gateway to their end, and repeat runs that had not got so far."""
        for schedule, run_at, job in self._open_runs():
            if job is not None:
                self.follow(schedule.name, job, repeat=True)
            elif schedule.last_query_id is None:
                self._metastore.schedules.postponed(schedule.name, run_at=run_at, until=_now())

    def take_over(self) -> None:
        """Record the end of runs whose gateway is gone."""
        self._jobs.recover()
        for schedule, run_at, job in self._open_runs():
            if schedule.last_query_id is not None:
                self._give_up(schedule, schedule.last_query_id, run_at)
            elif job is None and _now() - run_at > CLAIM_HOLDS:
                self._metastore.schedules.postponed(schedule.name, run_at=run_at, until=_now())
                self._wake()
            elif job is not None and job.finished_at and _now() - job.finished_at > END_NOTICED_WITHIN:
                self._take_note(schedule.name, run_at, job, repeat=True)

    def _give_up(self, schedule: Schedule, query_id: str, run_at: dt.datetime) -> None:
        """Record that a run failed, if its newest statement ended a while ago, or never was on record."""
        query = self._metastore.queries.get(query_id)
        ended_at = run_at + CLAIM_HOLDS if query is None else query.finished_at
        if ended_at is not None and _now() - ended_at > END_NOTICED_WITHIN:
            error = f"The gateway that ran it has ended; query {query_id} was its last one. Nothing is sent again."
            self._failed(schedule, run_at, error, repeat=False)

    def _open_runs(self) -> Iterable[tuple[Schedule, dt.datetime, StatisticsJob | None]]:
        """Yield the runs whose end has not been told: schedule, what the run is known by, and its job if it has one."""
        for schedule in self._metastore.schedules.list():
            if schedule.running and schedule.last_run_at is not None:
                job = self._metastore.jobs.get(schedule.last_job_id) if schedule.last_job_id else None
                ours = job is not None and job.created_at == schedule.last_run_at
                yield schedule, schedule.last_run_at, job if ours else None

    def join(self) -> None:
        """Wait for the threads that follow jobs; ``stopped`` is set by then."""
        for thread in self._followers:
            thread.join()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
