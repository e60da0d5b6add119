"""Times in rules: hours of the day, days of the week, in a time zone."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MINUTES = 60
_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Span:
    """Hours of a day, from begin (inclusive) to end (exclusive). An end not later than begin is on the next day."""

    begin: dt.time
    end: dt.time

    @classmethod
    def read(cls, text: str) -> Span:
        """Read ``22:00-06:00``; 24:00 is the end of a day. Raises ValueError."""
        begin, dash, end = text.replace(" ", "").partition("-")
        if not dash or begin == end:
            raise ValueError("a time of day is written as 22:00-06:00")
        return cls(_time(begin), _time("00:00" if end == "24:00" else end))

    def began(self, moment: dt.datetime) -> dt.date | None:
        """Return the day on which the span began that a moment lies in; None where it lies in none."""
        time = moment.time()
        if self.begin < self.end:
            return moment.date() if self.begin <= time < self.end else None
        if time >= self.begin:
            return moment.date()
        return moment.date() - _DAY if time < self.end else None


def days_of(text: str) -> tuple[str, ...]:
    """Read a day or several of them, ``mon`` or ``mon-fri``. Raises ValueError."""
    first, dash, last = (part.strip()[:3].lower() for part in text.partition("-"))
    if first not in DAYS or (dash and last not in DAYS):
        raise ValueError(f"a day is one of {', '.join(DAYS)}, or several of them as mon-fri")
    if not dash:
        return (first,)
    begin, count = DAYS.index(first), (DAYS.index(last) - DAYS.index(first)) % len(DAYS) + 1
    return tuple(DAYS[(begin + offset) % len(DAYS)] for offset in range(count))


def _time(text: str) -> dt.time:
    hours, colon, minutes = text.partition(":")
    digits = hours.isascii() and hours.isdigit() and minutes.isascii() and minutes.isdigit() and len(minutes) == 2
    if not colon or not digits or len(hours) > 2 or int(hours) > 23 or int(minutes) >= _MINUTES:
        raise ValueError("a time of day is written as 22:00-06:00")
    return dt.time(int(hours), int(minutes))
