"""Functions of Hive and Impala that take dates and times, as expressions of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from sql.dialects import hive_patterns
from sql.dialects.calls import call_of, is_text, refused, whole_number, wrong_count
from sql.dialects.column_types import DATE, STRING, type_of
from sql.dialects.hive_moments import (
    FIRST_SECOND,
    LAST_SECOND,
    as_clock,
    as_date,
    as_time,
    constant,
    leaves,
    no_time,
    time_of,
)
from sql.dialects.names import HIVE, IMPALA
from sql.dialects.templates import filled

Rule = Callable[[exp.Anonymous], exp.Expr]

_UNITS_OF_TRUNC = {
    **dict.fromkeys("SYYYY YYYY YEAR SYEAR YYY YY Y".split(), "YEAR"),
    **dict.fromkeys("MONTH MON MM RM".split(), "MONTH"),
    **dict.fromkeys("DDD DD J".split(), "DAY"),
    **dict.fromkeys("DAY DY D".split(), "WEEK"),
    **dict.fromkeys("HH HH12 HH24".split(), "HOUR"),
    **dict.fromkeys(("Q", "QUARTER"), "QUARTER"),  # Impala knows Q alone, and Superset writes it out
    "MI": "MINUTE",
}
_UNITS_OF_INTERVALS = frozenset("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND".split())
_DAYS_OF_TRUNC = {"WW": "dayofyear", "W": "day"}  # weeks that begin on the weekday of the year's or month's first day
_UNITS = {
    **{f"{unit}S": unit for unit in ("MICROSECOND", "MILLISECOND")},
    **{unit: unit for unit in "SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR".split()},
}


def trunc(call: exp.Anonymous) -> exp.Expr:
    """Return TRUNC of a time in Impala, with a unit; Spark's does not have all of them."""
    value, unit = call.expressions
    name = unit.name.upper() if isinstance(unit, exp.Literal) else ""
    _require_week(call, value, _UNITS_OF_TRUNC.get(name, name))
    if name in _DAYS_OF_TRUNC:
        template = f"date_trunc('DAY', a) - (({_DAYS_OF_TRUNC[name]}(a) - 1) % 7) * INTERVAL '1' DAY"
    elif name in _UNITS_OF_TRUNC:
        template = f"date_trunc('{_UNITS_OF_TRUNC[name]}', a)"
    else:
        raise refused(call, f"TRUNC takes one of {', '.join((*_UNITS_OF_TRUNC, *_DAYS_OF_TRUNC))} as a literal.")
    return _as_date(filled(template, a=value), value)


def _date_trunc(call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) != 2:
        raise wrong_count(call)
    unit, value = call.expressions
    name = _UNITS.get(unit.name.upper()) if isinstance(unit, exp.Literal) else None
    if name is None:
        raise refused(call, f"DATE_TRUNC takes one of {', '.join(_UNITS)} as a literal.")
    _require_week(call, value, name)
    return _as_date(filled(f"date_trunc('{name}', a)", a=value), value)


def _require_week(call: exp.Anonymous, value: exp.Expr, unit: str) -> None:
    """Refuse a week that begins before Impala's first timestamp."""
    moment = constant(value)
    is_time = moment is not None and type_of(value) != DATE
    if moment is not None and is_time and unit == "WEEK" and leaves(moment, "DAY", -moment.weekday()):
        raise refused(call, "This week begins before the year 1400, the first of Impala's timestamps.")


def _as_date(time: exp.Expr, of: exp.Expr) -> exp.Expr:
    return exp.cast(time, exp.DType.DATE) if type_of(of) == DATE else time


def _shift(unit: str, sign: int) -> Rule:
    """Add units to a timestamp, which stays one; Spark's functions of that name return dates."""

    def rule(call: exp.Anonymous) -> exp.Expr:
        if len(call.expressions) != 2:
            raise wrong_count(call)
        time, amount = call.expressions
        if isinstance(amount, exp.Interval):
            return moved(time, amount, sign)
        number, moment = whole_number(amount), constant(time)
        if number is not None:
            if moment is not None and type_of(time) != DATE and leaves(moment, unit, sign * number):
                return no_time()
            return filled(f"a + INTERVAL '{sign * number}' {unit}", a=time)
        return filled(f"a {'+' if sign > 0 else '-'} b * INTERVAL '1' {unit}", a=time, b=amount)

    return rule


def moved(time: exp.Expr, amount: exp.Interval, sign: int) -> exp.Expr:
    """Return the sum or difference of a time and an interval; NULL outside of Impala's range."""
    moment = constant(time)
    unit = amount.args["unit"].name.upper().removesuffix("S") if amount.args.get("unit") is not None else ""
    number = _whole(amount.this)
    if moment is not None and type_of(time) != DATE and number is not None and unit in _UNITS_OF_INTERVALS:
        if leaves(moment, unit, sign * number):
            return no_time()
    return filled("a + b" if sign > 0 else "a - b", a=time, b=amount)


def _whole(node: exp.Expr) -> int | None:
    """Return the whole number of an interval, which may be a string literal."""
    if not is_text(node):
        return whole_number(node)
    digits = node.name.removeprefix("-")
    return int(node.name) if digits.isdecimal() and len(digits) < 20 else None


def _add_months(dialect: str) -> Rule:
    """Return the last day of a month for the last day of a month; Impala keeps the time of day, Hive does not."""

    def rule(call: exp.Anonymous) -> exp.Expr:
        if len(call.expressions) != 2:
            raise refused(call, "ADD_MONTHS takes a date and a number of months; use date_format for a format.")
        time, amount = call.expressions
        if dialect == HIVE:
            template = "CASE WHEN to_date(a) = last_day(a) THEN last_day(add_months(a, b)) ELSE add_months(a, b) END"
            return filled(template, a=time, b=amount)
        shifted = _shift("MONTH", 1)(call)
        if type_of(time) == DATE:
            template = "CASE WHEN a = last_day(a) THEN last_day(b) ELSE b END"
        else:
            template = (
                "CASE WHEN to_date(a) = last_day(a) THEN b + datediff(last_day(b), b) * INTERVAL '1' DAY ELSE b END"
            )
        return filled(template, a=time, b=shifted)

    return rule


_PARTS = {
    **{name: f"{name}(a)" for name in ("year", "quarter", "month", "day", "hour", "minute", "second")},
    "epoch": "unix_seconds(CAST(a AS TIMESTAMP))",
    "millisecond": "second(a) * 1000 + CAST(date_format(a, 'SSS') AS INT)",
}
_PARTS_OF_HIVE = {"dayofweek": "dayofweek(a)", "week": "weekofyear(a)"}


def part(node: exp.Expr, unit: str, of: exp.Expr, dialect: str) -> exp.Expr:
    """Return a part of a time as a whole number. Raises NotAllowed for a part that the dialect does not have."""
    template = _PARTS.get(unit.lower()) or (_PARTS_OF_HIVE.get(unit.lower()) if dialect == HIVE else None)
    if template is None or (dialect == HIVE and unit.lower() in ("epoch", "millisecond")):
        raise refused(node, f"{unit.upper() or 'This'} is not a part of a time in {dialect.capitalize()}.")
    if dialect == IMPALA:
        of = time_of(of)
    elif is_text(of):
        of = exp.cast(of.copy(), exp.DType.TIMESTAMP)
    return filled(template, a=of)


def _date_part(dialect: str) -> Rule:
    def rule(call: exp.Anonymous) -> exp.Expr:
        if len(call.expressions) != 2 or not isinstance(call.expressions[0], exp.Literal):
            raise refused(call, "DATE_PART takes the name of a part as a literal, and a time.")
        return part(call, call.expressions[0].name, call.expressions[1], dialect)

    return rule


def _from_timestamp(call: exp.Anonymous) -> exp.Expr:
    """Format a time by a pattern."""
    if len(call.expressions) != 2:
        raise refused(call, f"{call.name.upper()} takes a time and a pattern.")
    time, pattern = call.expressions
    return call_of("date_format", time, exp.Literal.string(hive_patterns.time_pattern(call, pattern, reads=False)))


def _from_unixtime(call: exp.Anonymous) -> exp.Expr:
    """Format seconds since 1970 by a pattern, within Impala's range."""
    if len(call.expressions) not in (1, 2):
        raise refused(call, "FROM_UNIXTIME takes seconds and a pattern.")
    seconds, *patterns = call.expressions
    formats = [exp.Literal.string(hive_patterns.time_pattern(call, pattern, reads=False)) for pattern in patterns]
    return _of_impala(seconds, call_of("from_unixtime", seconds, *formats), 1)


def _from_micros(call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) != 1:
        raise refused(call, "UNIX_MICROS_TO_UTC_TIMESTAMP takes microseconds.")
    return _of_impala(call.expressions[0], call_of("timestamp_micros", call.expressions[0]), 1_000_000)


def _of_impala(count: exp.Expr, time: exp.Expr, parts: int) -> exp.Expr:
    """Return a time made of a count since 1970; NULL outside of Impala's range. parts: counts per second."""
    first, last = FIRST_SECOND * parts, LAST_SECOND * parts + parts - 1
    number = whole_number(count)
    if number is not None and first <= number <= last:
        return time
    return filled(f"CASE WHEN a BETWEEN {first} AND {last} THEN b END", a=count, b=time)


def _read(call: exp.Anonymous) -> exp.Expr:
    """Parse a text by a pattern; a text that is longer than the pattern may have a zone, or more, and is refused."""
    if len(call.expressions) != 2:
        raise refused(call, f"{call.name.upper()} takes a text and a pattern.")
    text, pattern = call.expressions
    written = hive_patterns.time_pattern(call, pattern, reads=True)
    time = call_of("try_to_timestamp", text, exp.Literal.string(written))
    longest = hive_patterns.longest_time(pattern.name)
    if not is_text(text):
        template = f"CASE WHEN length(a) > {longest} THEN CAST({_TOO_LONG} AS TIMESTAMP) ELSE b END"
        return filled(template, a=text, b=time)
    if len(text.name) > longest:
        raise refused(call, "This text is longer than its pattern, and Impala reads only its beginning: shorten it.")
    return time


def _to_timestamp(call: exp.Anonymous) -> exp.Expr:
    return as_time(call, call.expressions[0]) if len(call.expressions) == 1 else _read(call)


def _unix_timestamp(call: exp.Anonymous) -> exp.Expr:
    if not call.expressions:
        return call
    if len(call.expressions) == 1:
        return call_of("unix_seconds", as_time(call, call.expressions[0]))
    return call_of("unix_seconds", _read(call))


def _next_day(call: exp.Anonymous) -> exp.Expr:
    if len(call.expressions) != 2 or isinstance(call.expressions[1], exp.Null):
        raise refused(call, "NEXT_DAY takes a date and the name of a day of the week.")
    return call


def _between_zones(call: exp.Anonymous) -> exp.Expr:
    moment = constant(call.expressions[0]) if call.expressions else None
    if moment is not None and leaves(moment, "DAY", -1):
        raise refused(call, "Impala's timestamps begin in the year 1400.")
    return call


_TOO_LONG = "raise_error('a text that is longer than its date and time pattern, of which Impala reads the beginning')"
_SHIFTS: Mapping[str, Rule] = {
    **{
        f"{unit.lower()}s_{verb}": _shift(unit, sign)
        for unit in "YEAR MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND".split()
        for verb, sign in (("add", 1), ("sub", -1))
    },
    **dict.fromkeys(("date_add", "adddate"), _shift("DAY", 1)),
    **dict.fromkeys(("date_sub", "subdate"), _shift("DAY", -1)),
}
RULES: Mapping[str, Mapping[str, Rule]] = {
    IMPALA: {
        **_SHIFTS,
        "date_trunc": _date_trunc,
        "add_months": _add_months(IMPALA),
        "date_part": _date_part(IMPALA),
        "from_timestamp": _from_timestamp,
        "from_unixtime": _from_unixtime,
        "to_timestamp": _to_timestamp,
        "unix_timestamp": _unix_timestamp,
        "unix_micros_to_utc_timestamp": _from_micros,
        "next_day": _next_day,
        **dict.fromkeys(("from_utc_timestamp", "to_utc_timestamp"), _between_zones),
    },
    HIVE: {"add_months": _add_months(HIVE), "date_part": _date_part(HIVE)},
}
"""Functions that are rewritten, by dialect."""

_FIRST = """
    year month day dayofmonth dayofweek dayofyear weekofyear week quarter hour minute second millisecond dayname
    monthname last_day next_day to_date from_timestamp from_utc_timestamp to_utc_timestamp utc_to_unix_micros trunc
    add_months
"""
_OF_CLOCKS = ("hour", "minute", "second", "millisecond")
_TIMES_AT: Mapping[str, Sequence[int]] = {
    **dict.fromkeys((*_FIRST.split(), *_SHIFTS), (0,)),
    **dict.fromkeys(("datediff", "months_between", "int_months_between", "timestamp_cmp", "date_cmp"), (0, 1)),
    **dict.fromkeys(("date_trunc", "date_part"), (1,)),
}


def read_times(call: exp.Anonymous) -> None:
    """Cast texts to timestamps or dates where a function of Impala takes those. Raises NotAllowed."""
    arguments, name = list(call.expressions), call.name.lower()
    if name == "trunc" and (len(arguments) != 2 or whole_number(arguments[1]) is not None):
        return
    places = [place for place in _TIMES_AT.get(name, ()) if place < len(arguments)]
    is_of_dates = name == "date_cmp" or (len(places) == 2 and DATE in {type_of(arguments[place]) for place in places})
    for place in places:
        argument = arguments[place]
        if type_of(argument) == STRING:
            read = as_date if is_of_dates else as_clock if name in _OF_CLOCKS else as_time
            arguments[place] = read(call, argument)
    call.set("expressions", arguments)
