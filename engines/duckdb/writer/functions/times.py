"""Dates and times; timestamps are moments, seen in UTC on both engines."""

from __future__ import annotations

import re

from sqlglot import exp

from engines.duckdb.writer.functions.casts import cast
from engines.duckdb.writer.kinds import BIGINT, DATE, INT, STRING, TIMESTAMP, TIMESTAMP_NTZ, Kind
from engines.duckdb.writer.values import Value, guard, require
from engines.errors import NoEquivalent

_DAYS = {"DAY": 1, "DAYS": 1, "WEEK": 7, "WEEKS": 7}
_MONTHS = {"MONTH": 1, "MONTHS": 1, "QUARTER": 3, "YEAR": 12, "YEARS": 12}
_SECONDS = {"HOUR": 3_600, "HOURS": 3_600, "MINUTE": 60, "MINUTES": 60, "SECOND": 1, "SECONDS": 1}
_WHOLE = re.compile(r"\s*[+-]?\d{1,9}\s*")

_PARTS = {
    "YEAR": "year({0})",
    "YEARS": "year({0})",
    "QUARTER": "quarter({0})",
    "MONTH": "month({0})",
    "MONTHS": "month({0})",
    "WEEK": "week({0})",
    "DAY": "day({0})",
    "DAYS": "day({0})",
    "DAYOFWEEK": "dayofweek({0}) + 1",
    "DOW": "dayofweek({0}) + 1",
    "DAYOFWEEK_ISO": "isodow({0})",
    "DOW_ISO": "isodow({0})",
    "DOY": "dayofyear({0})",
    "YEAROFWEEK": "isoyear({0})",
    "HOUR": "hour({0})",
    "HOURS": "hour({0})",
    "MINUTE": "minute({0})",
    "MINUTES": "minute({0})",
}
_UNITS = {
    "YEAR": "year",
    "YYYY": "year",
    "YY": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "MM": "month",
    "MON": "month",
    "WEEK": "week",
    "DAY": "day",
    "DD": "day",
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
}
_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_DAY_UNITS = ("year", "quarter", "month", "week")
_LETTERS = {  # of Java's patterns, in runs of this length -> strftime's
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSSSSS": "%f",
    "SSS": "%g",
    "DDD": "%j",
    "a": "%p",
    "hh": "%I",
    "D": "%-j",
    "E": "%a",
    "EEE": "%a",
    "EEEE": "%A",
    "MMM": "%b",
    "MMMM": "%B",
    "yy": "%y",
    "d": "%-d",
    "M": "%-m",
    "H": "%-H",
}
_RUNS = re.compile(r"([A-Za-z])\1*|'[^']*'|[^A-Za-z']")


def arithmetic(operator: str, lhs: Value, rhs: Value) -> Value:
    """Add days to a date or take them away."""
    if operator == "add" and rhs.kind == DATE:
        lhs, rhs = rhs, lhs
    if lhs.kind == DATE and rhs.kind.is_whole and rhs.kind != BIGINT and operator in ("add", "sub"):
        return Value(f"({lhs.text} {'+' if operator == 'add' else '-'} {cast(rhs, INT).text})", DATE)
    raise NoEquivalent(f"arithmetic with {lhs.kind} and {rhs.kind}.")


def shifted(value: Value, interval: exp.Interval, *, back: bool = False) -> Value:
    """Move a date or a time by an interval of whole units."""
    amount, unit = interval.this, interval.args.get("unit")
    text = amount.name if isinstance(amount, exp.Literal) else ""
    if isinstance(amount, exp.Neg) and isinstance(amount.this, exp.Literal):
        text = f"-{amount.this.name}"
    require(
        isinstance(unit, exp.Var) and bool(_WHOLE.fullmatch(text)), "an interval other than a whole number of one unit."
    )
    name = unit.name.upper() if unit is not None else ""
    count = -int(text) if back else int(text)
    if value.kind == STRING:
        raise NoEquivalent("a text and an interval.")
    require(value.kind.is_time, f"an interval and {value.kind}.")
    if value.kind == DATE:
        if name in _DAYS:
            return Value(f"({value.text} + {_signed(count * _DAYS[name])})", DATE)
        if name in _MONTHS:
            return add_months(value, Value(_signed(count * _MONTHS[name]), INT))
        value = cast(value, TIMESTAMP)
    if name in _MONTHS:
        step = f"to_months({count * _MONTHS[name]})"
    elif name in _DAYS:
        step = f"to_days({count * _DAYS[name]})"
    elif name in _SECONDS:
        step = f"to_seconds({count * _SECONDS[name]})"
    else:
        raise NoEquivalent(f"an interval of {name}.")
    moved = f"CAST({value.text} AS TIMESTAMP) + {step}"
    return Value(f"CAST({moved} AS TIMESTAMPTZ)" if value.kind == TIMESTAMP else f"({moved})", value.kind)


def add_months(day: Value, months: Value) -> Value:
    """Move a date by months; a day that the month does not have becomes its last."""
    return Value(f"CAST({day.text} + to_months({months.text}) AS DATE)", DATE)


def part(name: str, value: Value) -> Value:
    """Return one part of a date or a time as a number."""
    template = _PARTS.get(name.upper())
    if template is None:
        raise NoEquivalent(f"the part {name}.")
    if value.kind == STRING:
        value = cast(value, TIMESTAMP if name.upper() in _SECONDS else DATE)
    require(value.kind.is_time, f"a part of {value.kind}.")
    if value.kind == DATE and name.upper() in _SECONDS:
        value = cast(value, TIMESTAMP_NTZ)
    return Value(f"CAST({template.format(naive(value))} AS INTEGER)", INT)


def naive(value: Value) -> str:
    """Return a date, or a time as a wall clock in UTC shows it."""
    return f"CAST({value.text} AS TIMESTAMP)" if value.kind == TIMESTAMP else value.text


def day_of(value: Value) -> Value:
    """Return a value as a date, as functions of dates take it."""
    return value if value.kind == DATE else cast(value, DATE)


def truncated(value: Value, unit: Value, to: Kind) -> Value:
    """Cut a time, or a date with TRUNC, to the beginning of a year, a month and so on."""
    require(unit.literal is not None, "a unit that is no literal.")
    word = _UNITS.get((unit.literal or "").upper())
    require(word is not None and (to == TIMESTAMP or word in _DAY_UNITS), f"the unit {unit.literal}.")
    if to == DATE:
        return Value(f"CAST(date_trunc('{word}', {day_of(value).text}) AS DATE)", DATE)
    moment = value if value.kind == TIMESTAMP else cast(value, TIMESTAMP)
    return Value(f"CAST(date_trunc('{word}', CAST({moment.text} AS TIMESTAMP)) AS TIMESTAMPTZ)", TIMESTAMP)


def next_weekday(day: Value, name: Value) -> Value:
    """Return the first day after a date that is a certain day of the week."""
    wanted = next(
        (at for at, full in enumerate(_WEEKDAYS) if (name.literal or "").upper() in (full, full[:3], full[:2])), None
    )
    if wanted is None:
        raise NoEquivalent("NEXT_DAY of anything but the name of a day.")
    days = f"CAST((isodow({day.text}) * 6 + {wanted + 7}) % 7 + 1 AS INTEGER)"
    return Value(f"({day.text} + {days})", DATE)


def formatted(value: Value, pattern: Value) -> Value:
    """Write a date or a time after one of Java's patterns."""
    if value.kind == STRING:
        value = cast(value, TIMESTAMP)
    require(value.kind.is_time and pattern.literal is not None, "a format that is no literal.")
    text = naive(value)
    outside = f"{text} < TIMESTAMP '0001-01-01' OR {text} >= TIMESTAMP '10000-01-01'"
    written = f"strftime({text}, {_strftime(pattern.literal or '')})"
    return Value(guard(outside, "the text of a date outside of the years 1 to 9999", written, STRING), STRING)


def _strftime(pattern: str) -> str:
    pieces = []
    for run in _RUNS.finditer(pattern):
        text = run[0]
        if run[1]:
            letters = _LETTERS.get(text)
            require(letters is not None, f"the pattern {text}.")
            pieces.append(letters or "")
        else:
            require(not text.startswith("'") and text not in "[]{}#", f"the pattern {pattern}.")
            pieces.append("%%" if text == "%" else text.replace("'", "''"))
    return "'" + "".join(pieces) + "'"


def _signed(number: int) -> str:
    return str(number) if number >= 0 else f"({number})"
