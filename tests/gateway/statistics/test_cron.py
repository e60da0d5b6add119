"""When cron expressions are due, above all on the two days a year on which clocks change."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from gateway.errors import ScheduleInvalid, UnknownTimeZone
from gateway.statistics.cron import check, next_due, next_time
from metastore.records import AfterMisestimate, Cron, Staleness, Trigger

BERLIN = "Europe/Berlin"
SPRING = dt.date(2026, 3, 29)  # 02:00 becomes 03:00
AUTUMN = dt.date(2026, 10, 25)  # 03:00 becomes 02:00
DAY, HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)


def times(expression: str, start: dt.datetime, count: int, zone: str = BERLIN) -> list[str]:
    """Return the next times as clocks in the zone show them, each asked for anew as a gateway does."""
    found = []
    at = start
    for _ in range(count):
        due = next_time(Cron(expression, zone), after=at)
        assert due is not None and due > at
        found.append(f"{due.astimezone(ZoneInfo(zone)):%m-%d %H:%M %Z}")
        at = due
    return found


def eve(day: dt.date) -> dt.datetime:
    return dt.datetime(day.year, day.month, day.day, 12, tzinfo=dt.UTC) - DAY


def test_a_time_that_the_clock_skips_comes_right_after_the_gap() -> None:
    assert times("30 2 * * *", eve(SPRING), 2) == ["03-29 03:00 CEST", "03-30 02:30 CEST"]


def test_a_time_that_the_clock_shows_twice_comes_once() -> None:
    assert times("30 2 * * *", eve(AUTUMN), 2) == ["10-25 02:30 CEST", "10-26 02:30 CET"]


@pytest.mark.parametrize("minutes_utc", [15, 30, 45, 75, 90, 105])
def test_nothing_in_the_double_hour_brings_the_first_pass_back(minutes_utc: int) -> None:
    midnight = dt.datetime(2026, 10, 25, tzinfo=dt.UTC)
    expected = "10-25 02:30 CEST" if minutes_utc < 30 else "10-26 02:30 CET"
    assert times("30 2 * * *", midnight + dt.timedelta(minutes=minutes_utc), 1) == [expected]


@pytest.mark.parametrize(("day", "hours"), [(SPRING, 23), (AUTUMN, 25)])
def test_each_hour_of_a_day_has_its_run_however_many_there_are(day: dt.date, hours: int) -> None:
    zone = ZoneInfo(BERLIN)
    start = dt.datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(dt.UTC)
    end = dt.datetime(day.year, day.month, day.day, tzinfo=zone).replace(day=day.day + 1).astimezone(dt.UTC)
    at, found = start - dt.timedelta(seconds=1), []
    while (due := next_time(Cron("0 * * * *", BERLIN), after=at)) is not None and due < end:
        found.append(due)
        at = due
    assert found == [start + n * HOUR for n in range(hours)]


def test_a_zone_without_such_days_has_none() -> None:
    assert times("30 2 * * *", eve(SPRING), 2, "Asia/Tokyo") == ["03-29 02:30 JST", "03-30 02:30 JST"]


def test_weekdays_are_those_of_cron() -> None:
    monday = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
    for expression in ("0 3 * * 0", "0 3 * * 7", "0 3 * * sun"):
        assert times(expression, monday, 1, "UTC") == ["03-08 03:00 UTC"]
    assert times("0 3 13 * 5", monday, 2, "UTC") == ["03-06 03:00 UTC", "03-13 03:00 UTC"]  # the 13th, or a Friday


def test_six_fields_begin_with_seconds() -> None:
    start = dt.datetime(2026, 3, 1, 12, 0, 7, 500_000, tzinfo=dt.UTC)
    assert next_time(Cron("*/5 * * * * *"), after=start) == start.replace(second=10, microsecond=0)
    assert times("0 30 2 * * *", eve(SPRING), 1) == ["03-29 03:00 CEST"]  # a star's breadth from cron's own five


def test_the_clock_does_not_decide_everything() -> None:
    assert next_time(AfterMisestimate(), after=eve(SPRING)) is None
    assert next_time(Staleness(0.1, 7.0), after=eve(SPRING)) is None


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        (Cron("61 * * * *"), r'minute of the cron expression "61 \* \* \* \*" is wrong: 61'),
        (Cron("0 25 * * *"), "hour of the cron expression .* is wrong: 25"),
        (Cron("0 3 30 2 *"), "day of month .* is wrong: 30"),
        (Cron("0 3 * 13 *"), "month .* is wrong: 13"),
        (Cron("0 3 * * fri-mon"), "day of week .* is wrong: fri-mon"),
        (Cron("60 0 3 * * *"), "second .* is wrong: 60"),
        (Cron("0 3 * *"), r"has five fields \(minute, hour, day of month, month, day of week\), or six"),
        (Cron("* * */31 2 1L"), "names a time that never comes"),
        (Staleness(), "Say what is stale"),
        (Staleness(1.5), "at most 1, not 1.5"),
        (Staleness(0.0), "above 0"),
        (Staleness(None, -1.0), "more than 0, not -1"),
    ],
)
def test_what_can_never_be_due_is_refused(trigger: Trigger, message: str) -> None:
    with pytest.raises(ScheduleInvalid, match=message):
        check(trigger)


def test_an_unknown_zone_is_refused_with_those_that_are_near() -> None:
    with pytest.raises(UnknownTimeZone, match="There is no time zone Europe/Berln; did you mean Europe/Berlin"):
        check(Cron("0 3 * * *", "Europe/Berln"))
    for outside in ("../etc/passwd", "Europe", ""):
        with pytest.raises(UnknownTimeZone):
            check(Cron("0 3 * * *", outside))


@pytest.mark.parametrize(
    ("trigger", "first", "following"),
    [
        (Cron("0 * * * *"), HOUR, 3 * HOUR),  # what was missed meanwhile is skipped
        (Staleness(days=1.0), 0 * HOUR, 2.5 * HOUR + DAY),
        (AfterMisestimate(), None, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_when_a_schedule_is_due_next(
    trigger: Trigger, first: dt.timedelta | None, following: dt.timedelta | None
) -> None:
    begin = eve(SPRING)
    due = next_due(trigger, previous=None, now=begin, check_every=DAY)
    assert due == (begin + first if first is not None else None)
    again = next_due(trigger, previous=due, now=begin + 2.5 * HOUR, check_every=DAY)
    assert again == (None if due is None or following is None else begin + following)


def test_a_time_that_was_put_off_is_not_due_twice() -> None:
    begin = eve(SPRING)
    late = next_due(Cron("0 * * * *"), previous=begin + 2 * HOUR, now=begin, check_every=DAY)
    assert late == begin + 3 * HOUR
