"""Schedules as JSON. Names are fixed; fields may be added."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, Field

from gateway.errors import ScheduleInvalid
from gateway.http.models.common import RecordModel, RequestModel, SqlText, Words
from metastore.records import AfterMisestimate, Cron, Mode, Schedule, Staleness, Trigger

MOST_STATEMENTS = 100
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
Statements = Annotated[list[SqlText], Field(max_length=MOST_STATEMENTS, fail_fast=True)]
ONE_REASON = "A schedule runs for one reason: cron, stale_files and stale_days, or after_misestimate."


class _Definition(RequestModel):
    cron: str | None = Field(None, max_length=255, description="Five fields, or six with seconds first.")
    time_zone: str | None = Field(None, max_length=64, description="IANA name, for cron; null: UTC.")
    stale_files: float | None = Field(None, description="Share of changed files, above 0 and at most 1.")
    stale_days: float | None = Field(None, description="Age of the statistics.")
    after_misestimate: bool | None = Field(None, description="Computes tables after a misestimate of them.")
    mode: Mode | None = Field(None, strict=False, description="full, incremental or sample.")
    share: float | None = Field(None, description="Share of rows in a sample, 0.000001 to 1.")

    def trigger(self, before: Trigger | None = None) -> Trigger | None:
        """Return the trigger in the request, or None. before: trigger that the request may change in part."""
        triggers: list[Trigger] = []
        expression = self.cron
        if expression is None and self.time_zone is not None and isinstance(before, Cron):
            expression = before.expression
        if expression is not None:
            zone = self.time_zone or (before.time_zone if isinstance(before, Cron) else "UTC")
            triggers.append(Cron(expression, zone))
        elif self.time_zone is not None:
            raise ScheduleInvalid("time_zone is allowed with cron only.")
        if self.stale_files is not None or self.stale_days is not None:
            old = before if isinstance(before, Staleness) else Staleness()
            changed = old.changed_files if self.stale_files is None else self.stale_files
            triggers.append(Staleness(changed, old.days if self.stale_days is None else self.stale_days))
        if self.after_misestimate:
            triggers.append(AfterMisestimate())
        if len(triggers) > 1:
            raise ScheduleInvalid(ONE_REASON)
        return triggers[0] if triggers else None


def _sampled(mode: Mode, share: float | None) -> float:
    """Return the share for a mode. Raises ScheduleInvalid."""
    if (mode is Mode.SAMPLE) != (share is not None):
        raise ScheduleInvalid("share is required with mode sample, and not allowed with other modes.")
    return 1.0 if share is None else share


class ScheduleRequest(_Definition):
    """A schedule to add, with one trigger: cron, stale_files and stale_days, or after_misestimate."""

    name: str = Field(pattern=NAME, max_length=128)
    tables: Words = Field(default=[], description="Names, or * alone for all registered tables.")
    statements: Statements = Field(
        default=[], description="Run in turn as who adds it, by cron; in the place of tables."
    )

    def schedule(self, *, at: dt.datetime) -> Schedule:
        """Return the schedule. Raises ScheduleInvalid."""
        trigger = self.trigger()
        if trigger is None:
            raise ScheduleInvalid(f"The trigger is missing. {ONE_REASON}")
        mode = self.mode or (Mode.FULL if self.share is None else Mode.SAMPLE)
        share = _sampled(mode, self.share)
        return Schedule(self.name, tuple(self.tables), trigger, at, mode, share, statements=tuple(self.statements))


class ScheduleChange(_Definition):
    """Changes of a schedule; fields that are left out stay as they are."""

    paused: bool | None = None
    tables: Words | None = Field(None, min_length=1)
    statements: Statements | None = Field(None, min_length=1)

    def of(self, before: Schedule) -> Schedule:
        """Return a schedule with the changes. Raises ScheduleInvalid."""
        mode = self.mode or (before.mode if self.share is None else Mode.SAMPLE)
        share = self.share
        if share is None and mode is Mode.SAMPLE and before.mode is Mode.SAMPLE:
            share = before.share
        return replace(
            before,
            tables=before.tables if self.tables is None else tuple(self.tables),
            statements=before.statements if self.statements is None else tuple(self.statements),
            trigger=self.trigger(before.trigger) or before.trigger,
            mode=mode,
            share=_sampled(mode, share),
            paused=before.paused if self.paused is None else self.paused,
        )


class ScheduleReply(RecordModel):
    """A schedule and its state. next_run_at: null while it is paused or waits for a misestimate."""

    name: str
    tables: list[str]
    statements: list[str]
    kind: str
    cron: str | None = None
    time_zone: str | None = None
    stale_files: float | None = None
    stale_days: float | None = None
    mode: str
    share: float
    paused: bool
    created_at: dt.datetime
    next_run_at: dt.datetime | None
    awaited: list[str]
    last_run_at: dt.datetime | None
    running: bool
    last_job_id: str | None
    last_query_id: str | None
    last_error: str | None
    failures: int
    retries: int
    owner: str | None

    @classmethod
    def of(cls, schedule: Schedule) -> ScheduleReply:
        """Show a schedule."""
        when: dict[str, str | float | None]
        match schedule.trigger:
            case Cron(expression, time_zone):
                when = {"kind": "cron", "cron": expression, "time_zone": time_zone}
            case Staleness(changed_files, days):
                when = {"kind": "staleness", "stale_files": changed_files, "stale_days": days}
            case AfterMisestimate():
                when = {"kind": "misestimate"}
        return cls.showing(schedule, **when)


class ScheduleList(BaseModel):
    """All schedules, by name."""

    schedules: list[ScheduleReply]
