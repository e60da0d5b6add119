"""Casts of texts and numbers to Impala's timestamps and dates, as expressions of Spark, which reads other texts.

Impala's timestamps lie between the years 1400 and 9999; others are NULL. A text has a day, or a day and a clock with
seconds; a zone after a T is dropped, and so are digits after the microsecond. A value without an equivalent ends the
statement: a literal before it runs, others as it runs.
"""

from __future__ import annotations

import datetime as dt
import re

from sqlglot import exp

from selector.types import FLOATING
from sql.dialects.calls import is_text, refused
from sql.dialects.column_types import DATE, NUMBERS, STRING, TIMESTAMP, set_type, type_of
from sql.dialects.templates import filled

FIRST_YEAR, LAST_YEAR = 1400, 9999
FIRST_SECOND, LAST_SECOND = -17_987_443_200, 253_402_300_799
"""Of Impala's timestamps, in seconds since 1970."""

_BLANK = " \t\n\x0b\f\r"
_MOMENT = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:(?P<between> +|T)(?P<clock>\d{1,2}:\d{1,2}:\d{1,2})(?:\.(?P<fraction>\d+))?"
    r"(?P<zone>(?:Z|[+-]\d{2}(?::?\d{2})?)?))?",
    re.ASCII,
)
_CLOCK = "[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}"
_DAY = "^\\\\s*[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_PLAIN = f"{_DAY}([ T]{_CLOCK}(\\\\.[0-9]+)?)?\\\\s*$"
_ODD = f"{_DAY}[ T] *{_CLOCK}"
_PLAIN_DAY = f"^\\\\s*[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}([ T]{_CLOCK}(\\\\.[0-9]{{1,9}})?)?\\\\s*$"
_RAISE = "raise_error('a text as a time with a zone or several spaces, which Impala reads differently')"
_READ = (
    "CASE WHEN a RLIKE '^\\\\s*0' OR a RLIKE '^\\\\s*1[0-3]' THEN CAST(NULL AS TIMESTAMP) "
    f"WHEN a RLIKE '{_PLAIN}' THEN TRY_CAST(a AS TIMESTAMP) "
    f"WHEN a RLIKE '{_ODD}' THEN CAST({_RAISE} AS TIMESTAMP) END"
)
_READ_DAY = (
    f"CASE WHEN a IS NOT NULL THEN coalesce(CASE WHEN a RLIKE '{_PLAIN_DAY}' THEN TRY_CAST(a AS DATE) END, "
    "CAST(raise_error('a text that is not a date') AS DATE)) END"
)
_CLOCK_ALONE = "^\\\\s*[0-9]{2}:[0-9]{2}:[0-9]{2}(\\\\.[0-9]+)?\\\\s*$"
_CLOCK_OF_A_DAY = "TRY_CAST(concat('1970-01-01 ', trim(a)) AS TIMESTAMP)"
_READ_CLOCK = f"CASE WHEN a RLIKE '{_CLOCK_ALONE}' THEN {_CLOCK_OF_A_DAY} ELSE b END"
_OF_SECONDS = f"CASE WHEN a BETWEEN {FIRST_SECOND} AND {LAST_SECOND}.999999 THEN CAST(a AS TIMESTAMP) END"


def no_time() -> exp.Expr:
    """Return NULL as a timestamp."""
    return exp.cast(exp.Null(), exp.DType.TIMESTAMP)


def time_of(node: exp.Expr) -> exp.Expr:
    """Return an argument where Impala takes a timestamp: a text is cast to one. Raises NotAllowed."""
    return as_time(node, node) if type_of(node) == STRING else node


def as_time(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Return a CAST to TIMESTAMP. Raises NotAllowed. node: gives the position of an error."""
    kind = type_of(value)
    if is_text(value):
        text = read_literal(value.name)
        cast = no_time() if text is None else exp.cast(exp.Literal.string(text), exp.DType.TIMESTAMP)
    elif kind == STRING:
        cast = filled(_READ, a=value)
    elif kind in FLOATING:
        raise refused(node, "A DOUBLE as a TIMESTAMP may have nanoseconds, finer than here: CAST it to DECIMAL(18, 6).")
    elif kind in NUMBERS:
        cast = filled(_OF_SECONDS, a=value)
    elif kind == DATE:
        day = constant(value)
        if day is not None and day.year < FIRST_YEAR:
            raise refused(node, f"A TIMESTAMP of Impala lies in the years {FIRST_YEAR} to {LAST_YEAR}.")
        cast = exp.cast(value.copy(), exp.DType.TIMESTAMP)
    else:
        cast = exp.TryCast(this=value.copy(), to=exp.DataType.build("timestamp"))
    set_type(cast, TIMESTAMP)
    return cast


def as_date(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Return a CAST of a text to DATE; a text that is not a date ends the statement. Raises NotAllowed."""
    if is_text(value):
        match = _MOMENT.fullmatch(value.name.strip(_BLANK))
        text = f"{match['year']}-{match['month']:0>2}-{match['day']:0>2}" if match else ""
        if not _is_day(text):
            raise refused(node, "This text is not a date: write one such as '2024-02-29'.")
        cast: exp.Expr = exp.cast(exp.Literal.string(text), exp.DType.DATE)
    else:
        cast = filled(_READ_DAY, a=value)
    set_type(cast, DATE)
    return cast


def as_clock(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """Return a text as the timestamp whose hour, minute or second Impala takes: it may have no day."""
    if not is_text(value):
        return filled(_READ_CLOCK, a=value, b=time_of(value))
    text = value.name.strip(_BLANK)
    if len(text) < len("00:00:00") or not text[:8].replace(":", "0").isdecimal() or text[2] + text[5] != "::":
        return time_of(value)
    moment = exp.Literal.string(f"1970-01-01 {text}")
    moment.parent = value.parent
    set_type(moment, STRING)
    return as_time(node, moment)


def read_literal(text: str) -> str | None:
    """Return a literal of an Impala timestamp as a literal of Spark; None: Impala reads it as NULL."""
    match = _MOMENT.fullmatch(text.strip(_BLANK))
    if match is None or (match["zone"] and match["between"] != "T"):
        return None
    day = f"{match['year']}-{match['month']:0>2}-{match['day']:0>2}"
    if not _is_day(day) or int(match["year"]) < FIRST_YEAR:
        return None
    if not match["clock"]:
        return day
    hour, minute, second = map(int, match["clock"].split(":"))
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = (match["fraction"] or "")[:6].rstrip("0")
    return f"{day} {hour:02}:{minute:02}:{second:02}{'.' if fraction else ''}{fraction}"


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def constant(node: exp.Expr) -> dt.datetime | None:
    """Return the value of a literal date or timestamp; None: it is another expression."""
    match node:
        case exp.Paren():
            return constant(node.this)
        case exp.Cast() | exp.TryCast() if is_text(node.this) and type_of(node) in (DATE, TIMESTAMP):
            try:
                return dt.datetime.fromisoformat(node.this.name)
            except ValueError:
                return None
    return None


def leaves(moment: dt.datetime, unit: str, amount: int) -> bool:
    """Return True if a shifted timestamp is outside of Impala's range."""
    months = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}.get(unit)
    if months is not None:
        year = (moment.year * 12 + moment.month - 1 + months * amount) // 12
        return not FIRST_YEAR <= year <= LAST_YEAR
    try:
        name = "days" if unit == "DAY" else f"{unit.lower()}s"
        shifted = moment.replace(tzinfo=None) + dt.timedelta(**{name: amount})
    except OverflowError:
        return True
    return shifted.year < FIRST_YEAR
