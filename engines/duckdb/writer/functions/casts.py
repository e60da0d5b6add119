"""Casts as Spark makes them: numbers lose their fraction, texts are read strictly, a bad value is an error or NULL.

What DuckDB would read otherwise than Spark, or would refuse although Spark may not, ends the statement on DuckDB, and
Spark has the last word.
"""

from __future__ import annotations

import datetime as dt
import re

from engines.duckdb.writer.kinds import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    NULL,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Kind,
)
from engines.duckdb.writer.values import Value, guard, quoted_text, raise_at_runtime
from engines.errors import NoEquivalent
from selector.types import BITS

DIGITS_OF_A_DOUBLE = 15
"""Digits of decimals that DuckDB makes doubles of exactly."""

_WHOLE_NUMBER = r"[+-]?[0-9]+"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_PLAIN_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_NO_NUMBERS = ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
_LIKE_A_NUMBER = r"(?i)[^ -~]|nan|inf|0x|[0-9.][fd]$|e[+-]?[0-9]{4}"
_LIKE_A_DAY = r"^[+0-9-]|[^ -~]"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_MOMENT = rf"{_DAY}(?: {_CLOCK})?"
_DAY_LITERAL = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?\s*")
_MOMENT_LITERAL = re.compile(rf"({_DAY})(?:[ T]({_CLOCK}))?(?:Z|\+00:00)?")
_INFINITE_AS_FLOAT = f"CAST({2.0**128 - 2.0**103!r} AS DOUBLE)"  # halfway between the largest float and the next power
_TRUE, _FALSE = "('t', 'true', 'y', 'yes', '1')", "('f', 'false', 'n', 'no', '0')"


def cast(value: Value, to: Kind, *, forgiving: bool = False) -> Value:
    """Return a value cast to a type. forgiving: NULL in place of an error. Raises NoEquivalent."""
    if value.kind == to:
        return value
    if value.kind == NULL:
        return Value(f"CAST(NULL AS {to.duckdb})", to)
    if not (value.kind.is_atomic and to.is_atomic):
        raise NoEquivalent(f"a cast from {value.kind} to {to}.")
    if to == STRING:
        return Value(as_text(value), STRING)
    if to.is_whole:
        return Value(_whole(value, to, forgiving), to)
    if to.is_floating:
        return Value(_floating(value, to, forgiving), to)
    if to.is_decimal:
        return Value(_decimal(value, to, forgiving), to)
    if to == BOOLEAN:
        return Value(_boolean(value, forgiving), to)
    if to == DATE:
        return Value(_date(value, forgiving), to)
    if to in (TIMESTAMP, TIMESTAMP_NTZ):
        return Value(_timestamp(value, to, forgiving), to)
    if to == BINARY and value.kind == STRING:
        return Value(f"encode({value.text})", to)
    raise NoEquivalent(f"a cast from {value.kind} to {to}.")


def as_text(value: Value) -> str:
    """Return a value as Spark writes it."""
    kind, text = value.kind, value.text
    if kind == STRING:
        return text
    if kind in (BINARY, FLOAT) or not (kind.is_atomic or kind == NULL):  # Java writes a float with other last digits
        raise NoEquivalent(f"a cast from {kind} to string.")
    if kind == DATE:
        outside = f"{text} < DATE '0001-01-01' OR {text} > DATE '9999-12-31'"
        return guard(outside, "the text of a date outside the years 1 to 9999", f"CAST({text} AS VARCHAR)", STRING)
    if kind in (TIMESTAMP, TIMESTAMP_NTZ):
        moment = f"CAST({text} AS TIMESTAMP)"
        outside = f"{moment} < TIMESTAMP '0001-01-01' OR {moment} >= TIMESTAMP '10000-01-01'"
        return guard(outside, "the text of a time outside the years 1 to 9999", f"CAST({moment} AS VARCHAR)", STRING)
    if kind.is_floating:
        plain = f"{text} = 0 OR (abs({text}) >= 1e-3 AND abs({text}) < 1e7)"
        return (
            f"CASE WHEN {text} IS NULL THEN NULL WHEN {plain} THEN CAST({text} AS VARCHAR) "
            f"WHEN isnan({text}) THEN 'NaN' WHEN {text} = CAST('inf' AS DOUBLE) THEN 'Infinity' "
            f"WHEN {text} = CAST('-inf' AS DOUBLE) THEN '-Infinity' "
            f"ELSE {raise_at_runtime('the text of a very large or very small number', STRING)} END"
        )
    if kind.is_decimal and value.decimal.precision == kind.scale:  # DuckDB would leave out the zero before the point
        if kind.scale == MAX_PRECISION:
            raise NoEquivalent(f"a cast from {kind} to string.")
        text = f"CAST({text} AS DECIMAL({kind.scale + 1}, {kind.scale}))"
    return f"CAST({text} AS VARCHAR)"


def date_literal(text: str) -> str | None:
    """Return a date that stands in a string literal in DuckDB's words; None where Spark reads none."""
    match = _DAY_LITERAL.fullmatch(text)
    if not match:
        return None
    try:
        day = dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None
    return f"DATE '{day.isoformat()}'"


def _converted(text: str, to: Kind, forgiving: bool) -> str:
    return f"{'TRY_CAST' if forgiving else 'CAST'}({text} AS {to.duckdb})"


def _read(value: Value, pattern: str, to: Kind, forgiving: bool, *, doubtful: str = r"[^ -~]") -> str:
    """Read a text that looks as it should; what looks otherwise is left to Spark.

    doubtful: what a text holds that looks otherwise and that Spark may read all the same; a forgiving cast makes NULL
    of all others.
    """
    if value.literal is not None:
        if re.fullmatch(pattern, value.literal.strip(" ")):
            return _converted(quoted_text(value.literal.strip(" ")), to, forgiving)
        if forgiving and not re.search(doubtful, value.literal.strip(" ")):
            return f"CAST(NULL AS {to.duckdb})"
        raise NoEquivalent(f"{quoted_text(value.literal)} as {to}.")
    text = f"trim({value.text}, ' ')"
    bad = f"NOT regexp_full_match({text}, {quoted_text(pattern)})"
    if forgiving:
        bad += f" AND regexp_matches({text}, {quoted_text(doubtful)})"
    return guard(
        bad,
        f"the conversion of a text to {to}",
        _converted(_matching(text, pattern) if forgiving else text, to, forgiving),
        to,
    )


def _matching(text: str, pattern: str) -> str:
    """Return a text that looks as it should, or NULL: DuckDB reads more than Spark does, such as 1_000."""
    return f"CASE WHEN regexp_full_match({text}, {quoted_text(pattern)}) THEN {text} END"


def _whole(value: Value, to: Kind, forgiving: bool) -> str:
    kind, text = value.kind, value.text
    if kind.is_decimal:
        whole = _converted(f"trunc({text})", to, forgiving)
        if to == BIGINT or not kind.scale or kind.precision <= DIGITS_OF_A_DOUBLE:
            return whole
        rounded = f"trunc({text}) <> trunc({_as_floating(value, DOUBLE)})"  # by which Spark goes
        return guard(rounded, f"the conversion of a decimal to {to}", whole, to)
    if kind.is_floating:
        end = 2.0 ** (BITS[to.name] - 1)  # which Spark takes for the greatest number, where it knows no better
        whole = _converted(f"trunc({text})", to, forgiving)
        if not forgiving or (kind, to) == (DOUBLE, INT) or to.name in ("tinyint", "smallint"):
            return whole
        return guard(f"{text} = CAST({end!r} AS DOUBLE)", f"the conversion of a number to {to}", whole, to)
    if kind.is_whole or kind == BOOLEAN:
        return _converted(text, to, forgiving)
    if kind == STRING:
        return _read(value, _WHOLE_NUMBER, to, forgiving)
    if kind == TIMESTAMP and to == BIGINT:
        return f"((epoch_us({text}) - ((epoch_us({text}) % 1000000) + 1000000) % 1000000) // 1000000)"
    raise NoEquivalent(f"a cast from {kind} to {to}.")


def _as_floating(value: Value, to: Kind) -> str:
    """Return a number as a float or a double: of a decimal of many digits, DuckDB has only the text exactly."""
    if value.kind.is_decimal and value.decimal.precision > DIGITS_OF_A_DOUBLE:
        return f"CAST(CAST({value.text} AS VARCHAR) AS {to.duckdb})"
    return f"CAST({value.text} AS {to.duckdb})"


def _floating(value: Value, to: Kind, forgiving: bool) -> str:
    if value.kind.is_number or value.kind == BOOLEAN:
        plain = _as_floating(value, to)
        if (value.kind, to) != (DOUBLE, FLOAT):
            return plain
        infinite = f"CAST(CASE WHEN {value.text} > 0 THEN 'inf' ELSE '-inf' END AS FLOAT)"
        large = f"isfinite({value.text}) AND abs({value.text}) >= {_INFINITE_AS_FLOAT}"
        return f"CASE WHEN {large} THEN {infinite} ELSE {plain} END"
    if value.literal is not None and value.literal.strip(" ").lower() in _NO_NUMBERS:
        return f"CAST({quoted_text(value.literal.strip(' '))} AS {to.duckdb})"
    if value.kind == STRING:
        return _read(value, _NUMBER, to, forgiving, doubtful=_LIKE_A_NUMBER)
    raise NoEquivalent(f"a cast from {value.kind} to {to}.")


def _decimal(value: Value, to: Kind, forgiving: bool) -> str:
    kind, text = value.kind, value.text
    if kind.is_whole or kind.is_decimal:
        return _converted(text, to, forgiving)
    if kind == BOOLEAN:
        return _converted(f"CAST({text} AS INTEGER)", to, forgiving)
    if kind.is_floating and to.precision == to.scale:  # DuckDB reads no 1e-9 as one
        raise NoEquivalent(f"a cast from {kind} to {to}.")
    if kind.is_floating:  # through its digits: 1.35 is a little less than that, and still becomes 1.4
        exact = f"CAST({text} AS DOUBLE)" if kind == FLOAT else text
        digits = _converted(f"CAST({exact} AS VARCHAR)", to, forgiving)
        large = f"NOT (abs({text}) < 1e15)"  # whose text has an exponent: DuckDB reads more of it than fits
        return guard(large, f"the conversion of a large number to {to}", digits, to)
    if kind == STRING:
        return _read(value, _PLAIN_NUMBER, to, forgiving, doubtful=r"[^ -~]|[eE]")
    raise NoEquivalent(f"a cast from {kind} to {to}.")


def _boolean(value: Value, forgiving: bool) -> str:
    if value.kind.is_number:
        return f"({value.text} <> 0)"
    if value.kind == STRING:
        word = f"lower(trim({value.text}, ' '))"
        rest = raise_at_runtime("the conversion of a text to boolean", BOOLEAN)
        if forgiving:  # Spark looks past control characters at both ends
            rest = f"CASE WHEN regexp_matches({value.text}, '[^ -~]') THEN {rest} END"
        return (
            f"CASE WHEN {value.text} IS NULL THEN NULL WHEN {word} IN {_TRUE} THEN TRUE "
            f"WHEN {word} IN {_FALSE} THEN FALSE ELSE {rest} END"
        )
    raise NoEquivalent(f"a cast from {value.kind} to boolean.")


def _date(value: Value, forgiving: bool) -> str:
    if value.kind.is_time:
        return f"CAST({value.text} AS DATE)"
    if value.literal is not None:
        literal = date_literal(value.literal)
        match = _DAY_LITERAL.fullmatch(value.literal)
        if literal is None and forgiving and match and int(match[1]) >= dt.MINYEAR:
            return "CAST(NULL AS DATE)"
        if literal is None:
            raise NoEquivalent(f"{quoted_text(value.literal)} as a date.")
        return literal
    if value.kind == STRING:
        return _read(value, _DAY, DATE, forgiving, doubtful=_LIKE_A_DAY)
    raise NoEquivalent(f"a cast from {value.kind} to date.")


def _timestamp(value: Value, to: Kind, forgiving: bool) -> str:
    if value.kind.is_time:
        return f"CAST({value.text} AS {to.duckdb})"
    if value.literal is not None:
        match = _MOMENT_LITERAL.fullmatch(value.literal.strip())
        if not match or date_literal(match[1]) is None:
            raise NoEquivalent(f"{quoted_text(value.literal)} as a timestamp.")
        moment = f"{match[1]} {match[2] or '00:00:00'}"
        zone = "+00" if to == TIMESTAMP else ""
        return f"CAST('{moment}{zone}' AS {to.duckdb})"
    if value.kind == STRING:
        return _read(value, _MOMENT, to, forgiving, doubtful=".")
    raise NoEquivalent(f"a cast from {value.kind} to {to}.")
