"""Statistics by themselves: by the clock, once they are stale, after a misestimate. Kept in the metastore.

APScheduler keeps time and threads. A run here is: which tables are due, a job over them, its end, and what
follows from that end.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import ConflictingIdError
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger
from sqlalchemy.exc import SQLAlchemyError

from gateway.catalog.snapshot import CatalogView
from gateway.errors import JobRunning, ScheduleInvalid, SchedulePaused, ScheduleTaken, ScheduleUnknown, UnknownTable
from gateway.security.policy import Action, Owned, Policy
from gateway.security.principals import IN_PROCESS, Principal
from gateway.settings import ScheduleSettings
from gateway.sql.names import did_you_mean
from gateway.statistics import cron
from gateway.statistics.jobs import CANCELLED, JobRunner
from gateway.statistics.schedule_store import MetastoreJobStore, ScheduleTrigger
from gateway.statistics.staleness import Freshness
from metastore.inspection import InspectionFailed
from metastore.records import ALL_TABLES, AfterMisestimate, JobRequest, JobState, Schedule, Staleness, StatisticsJob
from metastore.store import Metastore

log = logging.getLogger(__name__)

POLL_S = 0.25
LOOK_FOR_DEAD_JOBS_EVERY = 20  # polls
METASTORE_AWAY_S = 5.0
JOBS_LOOKED_AT = 20
TAKE_OVER_EVERY_S = 30.0
END_NOTICED_WITHIN = dt.timedelta(seconds=10)  # by the gateway that started the job, if there still is one
CLAIM_HOLDS = dt.timedelta(minutes=10)  # for a run that has no job yet: it may wait for a thread


class Schedules:
    """Defines schedules and runs them. Thread-safe. What has been started or stopped stays so."""

    def __init__(
        self,
        metastore: Metastore,
        *,
        jobs: JobRunner,
        catalog: CatalogView,
        freshness: Freshness,
        settings: ScheduleSettings,
        policy: Policy | None = None,
    ) -> None:
        self._metastore = metastore
        self._policy = policy or Policy()
        self._jobs = jobs
        self._catalog = catalog
        self._freshness = freshness
        self._settings = settings
        self._check_every = dt.timedelta(seconds=settings.check_s)
        self._stopped = threading.Event()
        self._followers: list[threading.Thread] = []
        self._scheduler = BackgroundScheduler(
            timezone=dt.UTC,
            executors={"default": ThreadPoolExecutor(settings.jobs), "aside": ThreadPoolExecutor(1)},
            jobstores={
                "default": MetastoreJobStore(metastore.schedules, self._run, self._check_every),
                "aside": MemoryJobStore(),
            },
        )
        self._scheduler.add_job(
            self._take_over,
            IntervalTrigger(seconds=TAKE_OVER_EVERY_S, timezone=dt.UTC),
            jobstore="aside",
            executor="aside",
            misfire_grace_time=None,
        )

    def start(self) -> None:
        """Take note of what an earlier process left behind, then run what is due, also what was missed."""
        if self._scheduler.running:
            return
        if self._settings.enabled:
            self._recover()
        self._scheduler.start(paused=not self._settings.enabled)

    def stop(self) -> None:
        """Start nothing more. Jobs that run are left to their runner; the next gateway takes note of their end."""
        self._stopped.set()
        if self._scheduler.running:
            self._scheduler.shutdown()
        for thread in self._followers:
            thread.join()

    # ------------------------------------------------------------------ what people ask for

    def add(self, schedule: Schedule, *, by: Principal = IN_PROCESS) -> Schedule:
        """Define a schedule, which is its maker's. Raises ScheduleError, UnknownTable, AccessDenied."""
        self._policy.require(by, Action.CREATE_SCHEDULE)
        wanted = replace(self._checked(schedule), owner=by.owner)
        try:
            self._scheduler.add_job(
                self._run,
                ScheduleTrigger(wanted, self._check_every),
                args=(wanted.name, wanted.created_at),
                id=wanted.name,
                name=wanted.name,
            )
        except ConflictingIdError as error:
            raise ScheduleTaken(f"There is a schedule {wanted.name} already.") from error
        return self.get(wanted.name)

    def get(self, name: str) -> Schedule:
        """Return one schedule. Raises ScheduleUnknown."""
        schedule = self._metastore.schedules.get(name)
        if schedule is None:
            known = [schedule.name for schedule in self._metastore.schedules.list()]
            raise ScheduleUnknown(f"There is no schedule {name}{did_you_mean(name, known)}")
        return schedule

    def change(self, wanted: Schedule, *, by: Principal = IN_PROCESS) -> Schedule:
        """Update a schedule, which may be paused. Raises ScheduleError, UnknownTable, AccessDenied."""
        before = self._own(wanted.name, by)
        wanted = self._checked(wanted)
        due_anew = (wanted.trigger, wanted.paused) != (before.trigger, before.paused)
        if due_anew:
            trigger = ScheduleTrigger(wanted, self._check_every)
            first = None if wanted.paused else trigger.get_next_fire_time(None, _now())
            wanted = replace(wanted, next_run_at=first)
        self._metastore.schedules.define(wanted, due_anew=due_anew)
        self._wake()
        return self.get(wanted.name)

    def remove(self, name: str, *, by: Principal = IN_PROCESS) -> None:
        """Forget a schedule; a job that it started goes on. Raises ScheduleUnknown, AccessDenied."""
        self._own(name, by)
        self._metastore.schedules.remove(name)

    def run(self, name: str, *, by: Principal = IN_PROCESS) -> StatisticsJob:
        """Compute all of a schedule's tables now, whatever it waits for.

        Raises ScheduleError, JobRunning, AccessDenied.
        """
        schedule = self._own(name, by)
        if schedule.paused:
            raise SchedulePaused(f"The schedule {name} is paused; resume it first, or compute its tables directly.")
        job = self._begin(schedule, self._tables(schedule))
        self._follow_aside(name, job, repeat=False)
        return job

    def _own(self, name: str, by: Principal) -> Schedule:
        schedule = self.get(name)
        self._policy.require(by, Action.CHANGE_SCHEDULE, Owned("schedule", name, schedule.owner))
        return schedule

    def misestimated(self, tables: Sequence[str]) -> None:
        """Hear that a statement over these tables did not fit where its estimate said it would."""
        due_at = _now() + dt.timedelta(seconds=self._settings.misestimate_wait_s)
        woken = self._metastore.schedules.misestimated(tables, due_at=due_at)
        if woken:
            log.info("schedules %s: due at %s after a misestimate over %s", _words(woken), due_at, _words(tables))
            self._wake()

    # ------------------------------------------------------------------ one run

    def _run(self, name: str, run_at: dt.datetime) -> None:
        """Do what a claimed run asks for; called by the library, in a thread of its pool."""
        while not self._stopped.is_set():
            try:
                self._attempt(name, run_at)
                return
            except SQLAlchemyError as error:
                log.warning("schedule %s: the metastore does not answer: %s", name, error)
                self._stopped.wait(METASTORE_AWAY_S)

    def _attempt(self, name: str, run_at: dt.datetime) -> None:
        schedule = self._metastore.schedules.get(name)
        if schedule is None or not schedule.running or schedule.last_run_at != run_at:
            return  # while it waited for a thread it was removed, run by hand, or taken over by another gateway
        try:
            due = self._due(schedule)
            if not due:
                self._metastore.schedules.succeeded(name, run_at=run_at)
                self._wake()
                return
            job = self._begin(schedule, due)
        except JobRunning as busy:
            until = _now() + dt.timedelta(seconds=self._settings.retry_first_s)
            log.info("schedule %s: waits until %s. %s", name, until, busy)
            self._metastore.schedules.postponed(name, run_at=run_at, until=until)
            self._wake()
            return
        except (UnknownTable, InspectionFailed, OSError) as error:
            self._failed(schedule, run_at, str(error), repeat=True)
            return
        self._follow(name, job, repeat=True)

    def _due(self, schedule: Schedule) -> tuple[str, ...]:
        """Return the tables to compute, which may be none."""
        tables = self._tables(schedule)
        left = self._left_over(schedule) if schedule.retries else frozenset()
        match schedule.trigger:
            case AfterMisestimate():  # what was awaited while the failed job ran has no time of its own
                helped = {table for table in schedule.awaited if table in tables and self._helps(schedule, table)}
                return tuple(table for table in tables if table in left | helped)
            case _ if left:
                return tuple(table for table in tables if table in left)
            case Staleness() as limit:
                return tuple(self._stale(schedule, limit, tables))
            case _:
                return tables

    def _tables(self, schedule: Schedule) -> tuple[str, ...]:
        known = self._catalog.current().tables
        if schedule.tables == ALL_TABLES:
            if not known:
                raise UnknownTable("No table is registered.")
            return tuple(sorted(known))
        for name in schedule.tables:
            if name not in known:
                raise UnknownTable(f"There is no table {name}{did_you_mean(name, known)}")
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

    def _begin(self, schedule: Schedule, tables: tuple[str, ...]) -> StatisticsJob:
        job = self._jobs.start(
            JobRequest(tables, schedule.mode, share=schedule.share), schedule=schedule.name, owner=schedule.owner
        )
        self._metastore.schedules.started(schedule.name, job_id=job.id, tables=tables, at=job.created_at)
        log.info("schedule %s: job %s computes %s", schedule.name, job.id, _words(tables))
        return job

    def _follow(self, name: str, begun: StatisticsJob, *, repeat: bool) -> None:
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

    def _follow_aside(self, name: str, job: StatisticsJob, *, repeat: bool) -> None:
        thread = threading.Thread(
            target=self._follow, args=(name, job), kwargs={"repeat": repeat}, name=f"schedule {name}", daemon=True
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
            self._failed(schedule, run_at, error, repeat=repeat and error != CANCELLED)

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

    # ------------------------------------------------------------------ help

    def _checked(self, schedule: Schedule) -> Schedule:
        wanted = replace(schedule, tables=tuple(dict.fromkeys(table.lower() for table in schedule.tables)))
        cron.check(wanted.trigger)
        try:
            JobRequest(wanted.tables, wanted.mode, share=wanted.share)
        except ValueError as error:
            raise ScheduleInvalid(f"{error}.") from error
        if wanted.tables != ALL_TABLES:
            self._tables(wanted)
        return wanted

    def _wake(self) -> None:
        if self._scheduler.running:
            self._scheduler.wakeup()

    def _recover(self) -> None:
        """Follow the jobs of an earlier gateway to their end, and repeat runs that had not got so far."""
        for name, run_at, job in self._open_runs():
            if job is None:
                self._metastore.schedules.postponed(name, run_at=run_at, until=_now())
            else:
                self._follow_aside(name, job, repeat=True)

    def _take_over(self) -> None:
        """Take note of runs that nobody follows any more, because another gateway went away."""
        try:
            self._jobs.recover()
            for name, run_at, job in self._open_runs():
                if job is None and _now() - run_at > CLAIM_HOLDS:
                    self._metastore.schedules.postponed(name, run_at=run_at, until=_now())
                    self._wake()
                elif job is not None and job.finished_at and _now() - job.finished_at > END_NOTICED_WITHIN:
                    self._take_note(name, run_at, job, repeat=True)
        except SQLAlchemyError as error:
            log.warning("schedules: the metastore does not answer: %s", error)

    def _open_runs(self) -> Iterable[tuple[str, dt.datetime, StatisticsJob | None]]:
        """Yield the runs whose end has not been told: schedule, what the run is known by, and its job if it has one."""
        for schedule in self._metastore.schedules.list():
            if schedule.running and schedule.last_run_at is not None:
                job = self._metastore.jobs.get(schedule.last_job_id) if schedule.last_job_id else None
                ours = job is not None and job.created_at == schedule.last_run_at
                yield schedule.name, schedule.last_run_at, job if ours else None


def _words(names: Iterable[str]) -> str:
    return ", ".join(names)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
