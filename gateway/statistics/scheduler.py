"""Schedules: statistics by the clock, by staleness or after a misestimate, statements by the clock.

Here is what people ask for. When a run begins: schedule_runner.py; what it does: scheduled_runs.py.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from gateway.catalog.snapshot import CatalogView
from gateway.errors import JobRunning, NotFound, ScheduleInvalid, SchedulePaused, ScheduleTaken
from gateway.security.policy import Action, Owned, Policy
from gateway.security.principals import ANONYMOUS, IN_PROCESS, Principal
from gateway.settings import ScheduleSettings
from gateway.statements.statement import Run, Statement
from gateway.statistics import cron
from gateway.statistics.jobs import JobRunner
from gateway.statistics.schedule_runner import ScheduleRunner
from gateway.statistics.scheduled_runs import ScheduledRuns
from gateway.statistics.scheduled_statements import ScheduledStatements
from gateway.statistics.staleness import Freshness
from metastore.errors import ScheduleExists
from metastore.records import ALL_TABLES, Cron, JobRequest, Mode, Schedule, StatisticsJob
from metastore.store import Metastore
from sql.errors import AccessDenied
from sql.names import did_you_mean

log = logging.getLogger(__name__)


class Scheduler:
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
        self._settings = settings
        self._check_every = dt.timedelta(seconds=settings.check_s)
        self._runner = ScheduleRunner(metastore.schedules, places=settings.jobs, check_every=self._check_every)
        self._runs = ScheduledRuns(
            metastore,
            jobs=jobs,
            catalog=catalog,
            freshness=freshness,
            settings=settings,
            stopped=self._runner.stopped,
            wake=self._runner.wake,
        )
        self._started = False

    def start(
        self,
        *,
        submit: Callable[[Statement], Run],
        present: Callable[[str, bool, str], Principal],
        deadline_s: float,
    ) -> None:
        """Recover runs of an earlier process, then run due and missed schedules.

        submit, present, deadline_s: for statements, as ``ScheduledStatements`` takes them.
        """
        if self._settings.enabled and not self._started:
            self._started = True
            statements = ScheduledStatements(
                self._metastore.schedules,
                submit=submit,
                present=present,
                deadline_s=deadline_s,
                stopped=self._runner.stopped,
            )
            self._runs.recover()
            self._runner.start(partial(self._runs.run, statements=statements), take_over=self._runs.take_over)

    def stop(self) -> None:
        """Start no more runs. Running jobs are left to their runner; the next gateway records their end."""
        self._runner.stop()
        self._runs.join()

    # ------------------------------------------------------------------ what people ask for

    def add(self, schedule: Schedule, *, by: Principal = IN_PROCESS) -> Schedule:
        """Define a schedule, owned by its maker. Raises ScheduleInvalid, ScheduleTaken, UnknownTable, AccessDenied."""
        self._policy.require(by, Action.CREATE_SCHEDULE)
        wanted = replace(self._checked(schedule), owner=by.owner)
        try:
            self._metastore.schedules.create(replace(wanted, next_run_at=self._first(wanted)))
        except ScheduleExists as error:
            raise ScheduleTaken(f"There is a schedule {wanted.name} already.") from error
        self._runner.wake()
        return self.get(wanted.name)

    def get(self, name: str) -> Schedule:
        """Return one schedule. Raises NotFound."""
        schedule = self._metastore.schedules.get(name)
        if schedule is None:
            names = [schedule.name for schedule in self._metastore.schedules.list()]
            raise NotFound(f"There is no schedule {name}{did_you_mean(name, names)}")
        return schedule

    def change(self, wanted: Schedule, *, by: Principal = IN_PROCESS) -> Schedule:
        """Update a schedule, which may be paused. Raises ScheduleInvalid, UnknownTable, AccessDenied."""
        before = self._own(wanted.name, by)
        wanted = self._checked(wanted)
        if wanted.statements != before.statements and before.owner != by.owner:
            raise AccessDenied(
                f"The statements of {wanted.name} run as {before.owner or ANONYMOUS}, who alone may change them. "
                "Add a schedule of your own."
            )
        due_anew = (wanted.trigger, wanted.paused) != (before.trigger, before.paused)
        if due_anew:
            wanted = replace(wanted, next_run_at=self._first(wanted))
        self._metastore.schedules.define(wanted, due_anew=due_anew)
        self._runner.wake()
        return self.get(wanted.name)

    def remove(self, name: str, *, by: Principal = IN_PROCESS) -> None:
        """Delete a schedule; a job that it started goes on. Raises NotFound, AccessDenied."""
        self._own(name, by)
        self._metastore.schedules.remove(name)

    def run(self, name: str, *, by: Principal = IN_PROCESS) -> StatisticsJob | None:
        """Compute all of a schedule's tables, or run its statements, now, whatever it waits for. None: no job does.

        Raises SchedulePaused, JobRunning, AccessDenied.
        """
        schedule = self._own(name, by)
        if schedule.paused:
            raise SchedulePaused(f"The schedule {name} is paused; resume it first.")
        if schedule.statements:
            if not self._metastore.schedules.due_now(name, at=_now()):
                raise JobRunning(f"The schedule {name} runs already.")
            self._runner.wake()
            return None
        job = self._runs.begin(schedule, self._runs.tables(schedule))
        self._runs.follow(name, job, repeat=False)
        return job

    def _own(self, name: str, by: Principal) -> Schedule:
        schedule = self.get(name)
        self._policy.require(by, Action.CHANGE_SCHEDULE, Owned("schedule", name, schedule.owner))
        return schedule

    def misestimated(self, tables: Sequence[str]) -> None:
        """Record that a statement over these tables was misestimated."""
        due_at = _now() + dt.timedelta(seconds=self._settings.misestimate_wait_s)
        woken = self._metastore.schedules.misestimated(tables, due_at=due_at)
        if woken:
            names, over = ", ".join(woken), ", ".join(tables)
            log.info("schedules %s: due at %s after a misestimate over %s", names, due_at, over)
            self._runner.wake()

    def _first(self, schedule: Schedule) -> dt.datetime | None:
        if schedule.paused:
            return None
        return cron.next_due(schedule.trigger, previous=None, now=_now(), check_every=self._check_every)

    def _checked(self, schedule: Schedule) -> Schedule:
        wanted = replace(schedule, tables=tuple(dict.fromkeys(table.lower() for table in schedule.tables)))
        cron.check(wanted.trigger)
        if bool(wanted.tables) == bool(wanted.statements):
            raise ScheduleInvalid("A schedule has either tables, whose statistics it computes, or statements.")
        if wanted.statements:
            if not isinstance(wanted.trigger, Cron) or wanted.mode is not Mode.FULL:
                raise ScheduleInvalid("Statements run by the clock alone (cron), and without mode and share.")
            return wanted
        try:
            JobRequest(wanted.tables, wanted.mode, share=wanted.share)
        except ValueError as error:
            raise ScheduleInvalid(f"{error}.") from error
        if wanted.tables != ALL_TABLES:
            self._runs.tables(wanted)
        return wanted


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
