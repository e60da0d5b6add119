"""Due times of schedules. Cron expressions mean what they mean to Debian's cron, also when clocks change.

A time that the clock skips comes right after the gap, and one that it shows twice counts the first time; hours that
are written with a star go on without a pause and without a repetition. Six fields, seconds first, are no expression of
cron's: they are matched against the clock as they stand.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo

from cronsim import CronSim, CronSimError

from gateway.errors import ScheduleInvalid, UnknownTimeZone
from metastore.records import AfterMisestimate, Cron, Staleness, Trigger
from sql.names import did_you_mean

FIELDS = "minute, hour, day of month, month, day of week"


def check(trigger: Trigger) -> None:
    """Refuse a trigger that can never be due. Raises ScheduleInvalid, UnknownTimeZone."""
    match trigger:
        case Cron(expression, time_zone):
            zones = zoneinfo.available_timezones()
            if time_zone not in zones:
                raise UnknownTimeZone(f"There is no time zone {time_zone}{did_you_mean(time_zone, zones)}")
            try:
                CronSim(_plain(expression), dt.datetime.now(dt.UTC))
            except CronSimError as error:
                raise ScheduleInvalid(_explained(expression, str(error))) from error
            if next_time(trigger, after=dt.datetime.now(dt.UTC)) is None:
                raise ScheduleInvalid(f'The cron expression "{expression}" names a time that never comes.')
        case Staleness(None, None):
            raise ScheduleInvalid("Say what is stale: a share of changed files, an age in days, or both.")
        case Staleness(changed_files, days):
            if changed_files is not None and not 0.0 < changed_files <= 1.0:
                raise ScheduleInvalid(f"The share of changed files is above 0 and at most 1, not {changed_files:g}.")
            if days is not None and not days > 0.0:
                raise ScheduleInvalid(f"The age in days is more than 0, not {days:g}.")


def next_time(trigger: Trigger, *, after: dt.datetime) -> dt.datetime | None:
    """Return the first time of a cron expression after a moment, in UTC; None for what the clock does not decide."""
    if not isinstance(trigger, Cron):
        return None
    start = after.astimezone(zoneinfo.ZoneInfo(trigger.time_zone))
    for fires_at in CronSim(_plain(trigger.expression), start):
        moment = fires_at.astimezone(dt.UTC)
        if moment > after:  # asked in an hour that comes twice, the first answer may lie in its first pass
            return moment
    return None


def next_due(
    trigger: Trigger, *, previous: dt.datetime | None, now: dt.datetime, check_every: dt.timedelta
) -> dt.datetime | None:
    """Return when a schedule is due after its previous time and after now; None where an event decides.

    Times that have passed are skipped: what was missed is caught up once. check_every: how often a schedule on
    staleness is due, which is to look, not yet to compute; the first time is now.
    """
    match trigger:
        case Staleness():
            return now if previous is None else now + check_every
        case AfterMisestimate():
            return None
        case Cron():
            return next_time(trigger, after=now if previous is None else max(previous, now))


def _plain(expression: str) -> str:
    """Return six fields that begin at second 0 as the five that cron knows."""
    fields = expression.split()
    return " ".join(fields[1:] if len(fields) == 6 and fields[0] == "0" else fields)


def _explained(expression: str, complaint: str) -> str:
    fields = expression.split()
    if not complaint.startswith("Bad "):
        return f'A cron expression has five fields ({FIELDS}), or six with seconds first; not "{expression}".'
    name = complaint.removeprefix("Bad ")
    names = ["minute", "hour", "day-of-month", "month", "day-of-week"]
    text = dict(zip(["second", *names] if len(fields) == 6 else names, fields, strict=True)).get(name, "")
    return f'The {name.replace("-", " ")} of the cron expression "{expression}" is wrong: {text}.'
