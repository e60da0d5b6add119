"""Numbers and times as people read them. Unknown is written as such, never as zero."""

from __future__ import annotations

import datetime as dt

from selector.decide import MIB, mebibytes

UNKNOWN = "unknown"
DASH = "–"  # noqa: RUF001 - an en dash, for what does not apply
SMALLEST_SHOWN_BYTES = 0.05 * MIB
EXACT_BELOW_ROWS = 10
DAYS_AS_DISTANCE = 30


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
    """Write a duration with the precision that its size deserves."""
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


def distance(then: dt.datetime, now: dt.datetime) -> str:
    """Write how long ago something was; old things by their date."""
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


def exact(moment: dt.datetime) -> str:
    """Write a moment to the second."""
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
