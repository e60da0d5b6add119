"""Numbers and times as people read them. An unknown value is written as unknown, never as zero."""

from __future__ import annotations

import datetime as dt

from selector.wording import EPOCH, EPOCH_DATE, MIB, MICROSECOND, mebibytes, seconds_of

UNKNOWN = "unknown"
DASH = "–"  # noqa: RUF001 - an en dash, for what does not apply
SMALLEST_SHOWN_BYTES = 0.05 * MIB
EXACT_BELOW_ROWS = 10
DAYS_AS_DISTANCE = 30
EXACT_BELOW = 1e15  # whole numbers above are no longer exact


def memory(count: int | None, *, absent: str = UNKNOWN) -> str:
    """Write bytes in the unit that reasons use, so that every number on a page can be compared by eye."""
    if count is None:
        return absent
    if count == 0:
        return "0 MiB"
    return mebibytes(count) if count >= SMALLEST_SHOWN_BYTES else "< 0.1 MiB"


def cardinality(rows: float | None, *, absent: str = UNKNOWN) -> str:
    """Write a number of rows, which may be an expected value."""
    if rows is None:
        return absent
    if rows < EXACT_BELOW_ROWS and rows != round(rows):
        return f"{rows:.1f}"
    return f"{rows:,.0f}"


def counted(rows: int, noun: str) -> str:
    """Write a count with its noun: ``1 row``, ``1,200 rows``."""
    return f"{rows:,} {noun}" if rows == 1 else f"{rows:,} {noun}s"


def duration(seconds: float | None, *, absent: str = UNKNOWN) -> str:
    """Write a duration, a long one with less precision."""
    if seconds is None:
        return absent
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def engine_time(seconds: float) -> str:
    """Write seconds of engines, which may be negative and many."""
    sign, size = ("-" if seconds < 0 else ""), abs(seconds)
    return f"{sign}{size / 3_600:,.1f} h" if size >= 36_000 else f"{sign}{duration(size)}"


def distance(then: dt.datetime, now: dt.datetime) -> str:
    """Write the time since a moment; a date where that is long ago."""
    seconds = int((now - then).total_seconds())
    if seconds < 5:
        return "just now"
    if seconds < 60:
        return f"{seconds} s ago"
    if seconds < 3_600:
        return f"{seconds // 60} min ago"
    if seconds < 86_400:
        return f"{seconds // 3_600} h ago"
    days = seconds // 86_400
    if days <= DAYS_AS_DISTANCE:
        return "yesterday" if days == 1 else f"{days} days ago"
    return f"{then:%Y-%m-%d}"


def ahead(then: dt.datetime, now: dt.datetime) -> str:
    """Write the time until a moment."""
    seconds = int((then - now).total_seconds())
    if seconds < 1:
        return "now"
    if seconds < 60:
        return f"in {seconds} s"
    if seconds < 3_600:
        return f"in {seconds // 60} min"
    if seconds < 86_400:
        return f"in {seconds // 3_600} h {seconds % 3_600 // 60} min"
    days = seconds // 86_400
    return "tomorrow" if days == 1 else f"in {days} days"


def share(part: float) -> str:
    """Write a share as a percentage; only zero itself is written as 0."""
    if part == 0.0:
        return "0 %"
    if part < 0.001:
        return "< 0.1 %"
    return f"{100.0 * part:.1f} %" if part < 0.0995 else f"{100.0 * part:.0f} %"


def value(key: float | bytes | str | None, data_type: str) -> str:
    """Write a statistic's key as the value of the column that it stands for."""
    if key is None:
        return DASH
    if isinstance(key, bytes):
        return key.decode("utf-8", errors="replace")
    if isinstance(key, str):
        return key
    try:
        if data_type == "date":
            return f"{EPOCH_DATE + dt.timedelta(days=round(key)):%Y-%m-%d}"
        if data_type.startswith("timestamp"):
            return f"{EPOCH + key * MICROSECOND:%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"{key:,.6g}"
    if data_type == "boolean":
        return "true" if key else "false"
    return f"{key:,.0f}" if key == round(key) and abs(key) < EXACT_BELOW else f"{key:,.6g}"


def exact(moment: dt.datetime) -> str:
    """Write a moment to the second."""
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def in_short(place: int | None, expected_s: float | None) -> str:
    """Write a place in line: ``2nd, ~4.0 s``; empty where there is none."""
    parts = [] if place is None else [ordinal(place)]
    return ", ".join(parts if expected_s is None else [*parts, f"~{seconds_of(expected_s)}"])


def ordinal(number: int) -> str:
    """Write 1st, 2nd, 3rd, 4th, 11th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{'th' if number % 100 in (11, 12, 13) else ending}"
