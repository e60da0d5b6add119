"""Intervals as Hive writes them, which every interface that sends texts does here."""

from __future__ import annotations

NANOSECONDS = 1_000_000_000  # of a second


def day_time(count: int, per_s: int) -> str:
    """Write an interval of days: ``1 02:03:04.000000000``. count: of units, of which a second has per_s."""
    seconds, part = divmod(abs(count), per_s)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    nanoseconds = part * (NANOSECONDS // per_s)
    return f"{'-' if count < 0 else ''}{days} {hour:02}:{minute:02}:{second:02}.{nanoseconds:09}"


def year_month(months: int) -> str:
    """Write an interval of months: ``1-2``."""
    years, rest = divmod(abs(months), 12)
    return f"{'-' if months < 0 else ''}{years}-{rest}"
