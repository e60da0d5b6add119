"""Schedules of statistics and statements: definitions, and the state of each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Delete, Engine, Update, case, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from metastore.database.models import ScheduleRow
from metastore.errors import ScheduleExists
from metastore.records import (
    ALL_TABLES,
    SMALLEST_SHARE,
    AfterMisestimate,
    Cron,
    Mode,
    Schedule,
    Staleness,
    Trigger,
)

_CRON, _STALENESS, _MISESTIMATE = "cron", "staleness", "misestimate"
_NOT_WAITING = ~ScheduleRow.running | (ScheduleRow.kind != _MISESTIMATE)


class Schedules:
    """All schedules, by name. Several gateways may work on them at once: each run is claimed by one of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, schedule: Schedule) -> None:
        """Write a new schedule. Raises ScheduleExists."""
        try:
            with Session(self._engine) as session, session.begin():
                session.add(
                    ScheduleRow(
                        name=schedule.name,
                        created_at=schedule.created_at,
                        owner=schedule.owner,
                        next_run_at=schedule.next_run_at,
                        awaited=list(schedule.awaited),
                        running=False,
                        failures=0,
                        retries=0,
                        **_definition(schedule),
                    )
                )
        except IntegrityError as error:
            raise ScheduleExists(schedule.name) from error

    def get(self, name: str) -> Schedule | None:
        """Return one schedule, or None."""
        with Session(self._engine) as session:
            row = session.get(ScheduleRow, name)
            return _record(row) if row else None

    def list(self) -> tuple[Schedule, ...]:
        """Return all schedules by name."""
        with Session(self._engine) as session:
            return tuple(_record(row) for row in session.scalars(select(ScheduleRow).order_by(ScheduleRow.name)))

    def define(self, schedule: Schedule, *, due_anew: bool) -> bool:
        """Change a schedule's definition, and pause or resume it. Returns False if there is none.

        due_anew: change its next time, too. Else that stays, as a gateway may be claiming it.
        """
        when = {"next_run_at": schedule.next_run_at} if due_anew else {}
        return self._change(_of(schedule.name).values(**_definition(schedule), **when))

    def remove(self, name: str) -> bool:
        """Delete a schedule; its jobs stay in the log. Returns False if there is none."""
        return self._change(delete(ScheduleRow).where(ScheduleRow.name == name))

    # ------------------------------------------------------------------ what is due

    def due(self, at: dt.datetime) -> tuple[Schedule, ...]:
        """Return the schedules that are due, the longest overdue first.

        Running schedules are included unless they wait for misestimates: those are due again after the run.
        """
        wanted = (
            select(ScheduleRow)
            .where(ScheduleRow.next_run_at <= at, _NOT_WAITING)
            .order_by(ScheduleRow.next_run_at, ScheduleRow.name)
        )
        with Session(self._engine) as session:
            return tuple(_record(row) for row in session.scalars(wanted))

    def next_due_at(self, *, after: dt.datetime | None = None) -> dt.datetime | None:
        """Return when the next schedule is due; None: none is. after: ignore schedules that are due by then."""
        wanted = select(func.min(ScheduleRow.next_run_at)).where(_NOT_WAITING)
        with Session(self._engine) as session:
            return session.scalar(wanted if after is None else wanted.where(ScheduleRow.next_run_at > after))

    def claim(self, name: str, *, due_at: dt.datetime, next_run_at: dt.datetime | None, at: dt.datetime) -> bool:
        """Claim a due run, and set the next one. Returns False if it runs, or another gateway was faster.

        at: identifies the run until it has a job.
        """
        return self._change(
            _of(name)
            .where(ScheduleRow.next_run_at == due_at, ~ScheduleRow.running)
            .values(next_run_at=next_run_at, last_run_at=at, last_query_id=None, running=True)
        )

    def leave_out(self, name: str, *, due_at: dt.datetime, next_run_at: dt.datetime | None) -> bool:
        """Skip a time that came while the schedule runs. Returns False if it ended, or its time changed, meanwhile."""
        return self._change(
            _of(name).where(ScheduleRow.next_run_at == due_at, ScheduleRow.running).values(next_run_at=next_run_at)
        )

    def due_now(self, name: str, *, at: dt.datetime) -> bool:
        """Let a schedule be due. Returns False if it runs, or is paused."""
        return self._change(_of(name).where(~ScheduleRow.running, ~ScheduleRow.paused).values(next_run_at=at))

    def misestimated(self, tables: Collection[str], *, due_at: dt.datetime) -> tuple[str, ...]:
        """Add tables to the schedules that wait for misestimates. Returns the names of those that became due."""
        woken = []
        waiting = (ScheduleRow.kind == _MISESTIMATE, ~ScheduleRow.paused)
        with Session(self._engine) as session, session.begin():
            session.execute(update(ScheduleRow).where(*waiting).values(kind=ScheduleRow.kind))  # first: the write lock
            for row in session.scalars(select(ScheduleRow).where(*waiting).order_by(ScheduleRow.name)):
                wanted = set(tables) if tuple(row.tables) == ALL_TABLES else set(tables) & set(row.tables)
                if not wanted:
                    continue
                row.awaited = sorted(wanted.union(row.awaited))
                if row.next_run_at is None:
                    row.next_run_at = due_at
                    woken.append(row.name)
        return tuple(woken)

    # ------------------------------------------------------------------ the end of a run

    # run_at: identifies the run, by its ``last_run_at``. Calls for another run, or a second call, change nothing and
    # return False: two gateways may watch the end of one job.

    def started(self, name: str, *, job_id: str, tables: Collection[str], at: dt.datetime) -> None:
        """Record the job of a run, and remove its tables from the awaited ones. at: identifies the run from now on."""
        with Session(self._engine) as session, session.begin():
            session.execute(_of(name).values(last_job_id=job_id, last_run_at=at, running=True))  # first: the write lock
            row = session.get(ScheduleRow, name)
            if row is not None:
                row.awaited = sorted(set(row.awaited) - set(tables))

    def began(self, name: str, *, query_id: str, run_at: dt.datetime, at: dt.datetime) -> bool:
        """Record that a run comes to its next statement. at: identifies the run from now on."""
        return self._change(_run(name, run_at).values(last_query_id=query_id, last_run_at=at))

    def succeeded(self, name: str, *, run_at: dt.datetime) -> bool:
        """Record that a run succeeded, or had no work."""
        return self._change(_run(name, run_at).values(running=False, last_error=None, failures=0, retries=0))

    def postponed(self, name: str, *, run_at: dt.datetime, until: dt.datetime) -> bool:
        """Record that a run has to wait, which is not a failure. A schedule that was paused meanwhile stays paused."""
        return self._change(_run(name, run_at).values(running=False, next_run_at=_unless_paused(until)))

    def failed(self, name: str, *, run_at: dt.datetime, error: str, retry_at: dt.datetime | None = None) -> bool:
        """Record that a run failed. retry_at: None: it is repeated at its next regular time."""
        values = {"running": False, "last_error": error, "failures": ScheduleRow.failures + 1, "retries": 0}
        if retry_at is not None:
            values |= {"retries": ScheduleRow.retries + 1, "next_run_at": _unless_paused(retry_at)}
        return self._change(_run(name, run_at).values(values))

    def _change(self, statement: Update | Delete) -> bool:
        with self._engine.begin() as connection:
            return connection.execute(statement).rowcount > 0


def _unless_paused(at: dt.datetime) -> ColumnElement[dt.datetime | None]:
    return case((~ScheduleRow.paused, at), else_=ScheduleRow.next_run_at)


def _of(name: str) -> Update:
    return update(ScheduleRow).where(ScheduleRow.name == name)


def _run(name: str, run_at: dt.datetime) -> Update:
    return _of(name).where(ScheduleRow.running, ScheduleRow.last_run_at == run_at)


def _definition(schedule: Schedule) -> dict[str, Any]:
    trigger = schedule.trigger
    columns: dict[str, Any] = dict.fromkeys(("expression", "time_zone", "changed_files", "days"))
    match trigger:
        case Cron(expression, time_zone):
            columns |= {"kind": _CRON, "expression": expression, "time_zone": time_zone}
        case Staleness(changed_files, days):
            columns |= {"kind": _STALENESS, "changed_files": changed_files, "days": days}
        case AfterMisestimate():
            columns |= {"kind": _MISESTIMATE}
    return columns | {
        "tables": list(schedule.tables),
        "statements": list(schedule.statements),
        "mode": schedule.mode,
        "share": schedule.share,
        "paused": schedule.paused,
    }


def _trigger(row: ScheduleRow) -> Trigger:
    if row.kind == _CRON:
        return Cron(row.expression or "", row.time_zone or "")
    return Staleness(row.changed_files, row.days) if row.kind == _STALENESS else AfterMisestimate()


def _record(row: ScheduleRow) -> Schedule:
    return Schedule(
        name=row.name,
        tables=tuple(row.tables),
        trigger=_trigger(row),
        created_at=row.created_at,
        mode=Mode(row.mode),
        share=max(row.share, SMALLEST_SHARE),  # schedules of earlier releases had no limit
        paused=row.paused,
        next_run_at=row.next_run_at,
        awaited=tuple(row.awaited),
        last_run_at=row.last_run_at,
        running=row.running,
        last_job_id=row.last_job_id,
        last_error=row.last_error,
        failures=row.failures,
        retries=row.retries,
        owner=row.owner,
        statements=tuple(row.statements or ()),
        last_query_id=row.last_query_id,
    )
