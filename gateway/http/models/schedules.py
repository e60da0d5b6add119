"""Schedules as JSON. Names are fixed; fields may be added."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from gateway.errors import ScheduleInvalid
from gateway.http.models.common import RecordModel
from metastore.records import AfterMisestimate, Cron, Mode, Schedule, Staleness, Trigger

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
ONE_REASON = "A schedule runs for one reason: cron, stale_files and stale_days, or after_misestimate."


class _Definition(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    cron: str | None = Field(None, max_length=255, description="Five fields; or six, seconds first.")
    time_zone: str | None = Field(None, max_length=64, description="IANA name, of cron; UTC without it.")
    stale_files: float | None = Field(None, description="Share of changed files, above 0 and at most 1.")
    stale_days: float | None = Field(None, description="Age of the statistics.")
    after_misestimate: bool | None = Field(None, description="Computes the tables of statements that did not fit.")
    mode: Mode | None = Field(None, strict=False, description="full, incremental or sample.")
    share: float | None = Field(None, description="Of a sample, 0.000001 to 1.")

    def trigger(self, before: Trigger | None = None) -> Trigger | None:
        """Return the reason to run that is asked for; None for none. before: what may be changed in part."""
        given: list[Trigger] = []
        expression = self.cron
        if expression is None and self.time_zone is not None and isinstance(before, Cron):
            expression = before.expression
        if expression is not None:
            zone = self.time_zone or (before.time_zone if isinstance(before, Cron) else "UTC")
            given.append(Cron(expression, zone))
        elif self.time_zone is not None:
            raise ScheduleInvalid("A time zone belongs to a cron expression.")
        if self.stale_files is not None or self.stale_days is not None:
            known = before if isinstance(before, Staleness) else Staleness()
            changed = known.changed_files if self.stale_files is None else self.stale_files
            given.append(Staleness(changed, known.days if self.stale_days is None else self.stale_days))
        if self.after_misestimate:
            given.append(AfterMisestimate())
        if len(given) > 1:
            raise ScheduleInvalid(ONE_REASON)
        return given[0] if given else None


def _sampled(mode: Mode, share: float | None) -> float:
    """Return the share that goes with a mode. Raises ScheduleInvalid."""
    if (mode is Mode.SAMPLE) != (share is not None):
        raise ScheduleInvalid("A sample has a share, and nothing else has one.")
    return 1.0 if share is None else share


class ScheduleRequest(_Definition):
    """A schedule to add. One of cron, stale_files or stale_days, and after_misestimate says when it runs."""

    name: str = Field(pattern=NAME)
    tables: list[str] = Field(min_length=1, description="Names, or * alone for all registered tables.")

    def schedule(self, *, at: dt.datetime) -> Schedule:
        """Return what is asked for. Raises ScheduleInvalid."""
        trigger = self.trigger()
        if trigger is None:
            raise ScheduleInvalid(f"Say when it runs. {ONE_REASON}")
        mode = self.mode or (Mode.FULL if self.share is None else Mode.SAMPLE)
        return Schedule(self.name, tuple(self.tables), trigger, at, mode, _sampled(mode, self.share))


class ScheduleChange(_Definition):
    """What shall be otherwise from now on; fields that are left out stay as they are."""

    paused: bool | None = None
    tables: list[str] | None = Field(None, min_length=1)

    def of(self, before: Schedule) -> Schedule:
        """Return a schedule with the changes. Raises ScheduleInvalid."""
        mode = self.mode or (before.mode if self.share is None else Mode.SAMPLE)
        share = self.share
        if share is None and mode is Mode.SAMPLE and before.mode is Mode.SAMPLE:
            share = before.share
        return replace(
            before,
            tables=before.tables if self.tables is None else tuple(self.tables),
            trigger=self.trigger(before.trigger) or before.trigger,
            mode=mode,
            share=_sampled(mode, share),
            paused=before.paused if self.paused is None else self.paused,
        )


class ScheduleReply(RecordModel):
    """A schedule and where it is. next_run_at: null while it is paused or waits for a misestimate."""

    name: str
    tables: list[str]
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
