"""The scheduler library's view of our schedules: its job store and its trigger, over the metastore.

The library keeps time and threads; the metastore keeps everything else, as plain columns, also what runs. A job of
the library is made from a row whenever it asks for one, and nothing of it is ever stored.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import replace

from apscheduler.job import Job
from apscheduler.jobstores.base import BaseJobStore, ConflictingIdError
from apscheduler.triggers.base import BaseTrigger
from sqlalchemy.exc import SQLAlchemyError

from gateway.statistics.cron import next_time
from metastore.records import AfterMisestimate, Schedule, Staleness
from metastore.schedules import ScheduleExists, Schedules

log = logging.getLogger(__name__)

NO_LIMIT = 1 << 30  # of runs at once: the library learns of a run's end later than the metastore, which sees to it
LOOK_AGAIN = dt.timedelta(seconds=30)  # what another gateway wrote is seen no later


class ScheduleTrigger(BaseTrigger):
    """When a schedule is due. Times that have passed are skipped: what was missed is caught up once.

    check_every: how often a schedule on staleness is due, which is to look, not yet to compute.
    """

    def __init__(self, schedule: Schedule, check_every: dt.timedelta) -> None:
        self.schedule = schedule
        self._check_every = check_every

    def get_next_fire_time(self, previous_fire_time: dt.datetime | None, now: dt.datetime) -> dt.datetime | None:
        """Return the time after the previous one and after now; None where an event decides."""
        after = now.astimezone(dt.UTC)
        match self.schedule.trigger:
            case Staleness():
                return after if previous_fire_time is None else after + self._check_every
            case AfterMisestimate():
                return None
            case cron:
                return next_time(cron, after=after if previous_fire_time is None else max(previous_fire_time, after))


class MetastoreJobStore(BaseJobStore):
    """Schedules as jobs that call ``run`` with a schedule's name and what its run is known by.

    A due job is handed out by one gateway only, and not while the schedule runs.
    """

    def __init__(
        self, schedules: Schedules, run: Callable[[str, dt.datetime], None], check_every: dt.timedelta
    ) -> None:
        super().__init__()
        self._schedules = schedules
        self._run = run
        self._check_every = check_every
        self._open = True

    def shutdown(self) -> None:
        """Hand out nothing more: the library looks for due jobs once again while it stops, and could not run them."""
        self._open = False

    def lookup_job(self, job_id: str) -> Job | None:
        """Return the job of a schedule, or None."""
        schedule = self._schedules.get(job_id)
        return self._job(schedule) if schedule else None

    def get_all_jobs(self) -> list[Job]:
        """Return the jobs of all schedules."""
        return [self._job(schedule) for schedule in self._schedules.list()]

    def get_due_jobs(self, now: dt.datetime) -> list[Job]:
        """Claim what is due and return it: from here on, the metastore says when it is due again."""
        claimed: list[Job] = []
        if not self._open:
            return claimed
        try:
            for schedule in self._schedules.due(now):
                due_at = schedule.next_run_at
                assert due_at is not None
                after = ScheduleTrigger(schedule, self._check_every).get_next_fire_time(due_at, now)
                if schedule.running:
                    self._schedules.leave_out(schedule.name, due_at=due_at, next_run_at=after)
                elif self._schedules.claim(schedule.name, due_at=due_at, next_run_at=after, at=now):
                    claimed.append(self._job(replace(schedule, last_run_at=now, running=True)))
        except SQLAlchemyError as error:
            log.warning("the metastore does not answer, schedules wait: %s", error)
        return claimed

    def get_next_run_time(self) -> dt.datetime:
        """Return when to look again. The library does not survive an error here, so there is none."""
        soon = dt.datetime.now(dt.UTC) + LOOK_AGAIN
        try:
            due_at = self._schedules.next_due_at()
        except SQLAlchemyError:
            return soon
        return min(due_at, soon) if due_at else soon

    def add_job(self, job: Job) -> None:
        """Write the schedule that a job's trigger holds."""
        try:
            self._schedules.create(replace(job.trigger.schedule, next_run_at=job.next_run_time))
        except ScheduleExists as error:
            raise ConflictingIdError(job.id) from error

    def update_job(self, job: Job) -> None:
        """Leave the row alone: the claim wrote the next time already, and may be old by now."""

    def remove_job(self, job_id: str) -> None:
        """Leave the row alone: a job whose trigger knows no next time waits for an event."""

    def remove_all_jobs(self) -> None:
        """Delete all schedules."""
        for schedule in self._schedules.list():
            self._schedules.remove(schedule.name)

    def _job(self, schedule: Schedule) -> Job:
        job = Job(
            self._scheduler,
            id=schedule.name,
            name=schedule.name,
            func=self._run,
            args=(schedule.name, schedule.last_run_at),
            kwargs={},
            trigger=ScheduleTrigger(schedule, self._check_every),
            executor="default",
            coalesce=True,
            max_instances=NO_LIMIT,
            misfire_grace_time=None,
            next_run_time=schedule.next_run_at,
        )
        job._jobstore_alias = self._alias
        return job
