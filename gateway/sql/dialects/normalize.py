"""What other dialects mean by names and signs that Spark has for something else.

The parser of a dialect knows most of it. What it passes on although Spark's meaning is another one is put here into
words of Spark's, or refused with what to write in its place. What has the same name and meaning, but other types and
corners (1.0 / 3 is a decimal, a CAST to a whole number cuts off), is Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from gateway.errors import NotAllowed
from gateway.sql.dialects import hive_functions, hive_patterns, hive_times
from gateway.sql.dialects.calls import whole_number
from gateway.sql.dialects.column_types import (
    BOOLEAN,
    NULL,
    NUMBERS,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    named,
    tell_type,
    type_of,
)
from gateway.sql.dialects.hive_moments import as_date, as_time, time_of
from gateway.sql.dialects.names import HIVE, HIVES, IMPALA
from gateway.sql.dialects.templates import filled
from gateway.sql.duckdb.expressions import RAISE
from gateway.sql.nodes import nodes, position_of
from selector.types import BITS, FLOATING, WHOLE

DUCKDB, TRINO = "duckdb", "trino"
NO_ESCAPE = frozenset({"duckdb", "trino", "ansi"})
"""Dialects in which LIKE has an escape only where it is told one."""

NULL_OF_NULL = frozenset({"trino"})
"""Dialects in which GREATEST and LEAST with a NULL are NULL, of those whose functions the parser knows."""

_CUTS_TEXTS = frozenset({HIVE, IMPALA, TRINO})  # dialects in which CAST AS VARCHAR(n) does
_MOMENT_AS_TEXT = "CASE WHEN a LIKE '%.%' THEN rpad(a, 29, '0') ELSE a END"  # nine digits behind the second, or none
_FLOATING_AS_DECIMAL = (  # Spark makes NULL of an infinite number
    "CASE WHEN isnan(a) OR abs(a) = CAST('Infinity' AS DOUBLE) THEN c ELSE b END"
)
_FLOATING_AS_TEXT = (  # no point in a whole number, no exponent between these
    "CASE WHEN a = floor(a) AND abs(a) < {0} THEN CAST(CAST(a AS BIGINT) AS STRING) "
    "WHEN abs(a) BETWEEN 0.001D AND 1e7D THEN CAST(a AS STRING) "
    "WHEN isnan(a) THEN 'nan' WHEN a = CAST('Infinity' AS DOUBLE) THEN 'inf' "
    "WHEN a = CAST('-Infinity' AS DOUBLE) THEN '-inf' WHEN a IS NOT NULL "
    "THEN raise_error('a very large or small DOUBLE as a text, which Impala writes otherwise: CAST it to DECIMAL') END"
)

_LOGARITHMS = {"2": "log2", "10": "log10"}  # LOG(10, x) is less exact
_PARTS = {  # of a time; a name is a part of Spark's, or with brackets a function
    TRINO: {
        "DOW": "DAYOFWEEK_ISO",
        "DAY_OF_WEEK": "DAYOFWEEK_ISO",
        "DAY_OF_YEAR": "DOY",
        "YOW": "YEAROFWEEK",
        "YEAR_OF_WEEK": "YEAROFWEEK",
        "SECOND": "second()",
    },
    DUCKDB: {
        "DOW": "DAYOFWEEK",
        "DAYOFWEEK": "DAYOFWEEK",
        "WEEKDAY": "DAYOFWEEK",
        "ISODOW": "DAYOFWEEK_ISO",
        "ISOYEAR": "YEAROFWEEK",
        "SECOND": "second()",
    },
}
_FROM_ZERO = ("DOW", "DAYOFWEEK", "WEEKDAY")  # parts that DuckDB counts from zero, for Sunday
_NAMES_IN_FULL: Mapping[type[exp.Expr], str] = {exp.Dayname: "EEEE", exp.Monthname: "MMMM"}
_OTHER_VALUES = {DUCKDB: ("hash",), TRINO: ("hash", "xxhash64")}

Rule = Callable[[exp.Expr, str], exp.Expr]


def put_into_sparks(tree: exp.Expr, dialect: str) -> None:
    """Replace what a tree of another dialect says by what means the same in Spark's. Raises NotAllowed.

    Where the dialect goes by types, its expressions have been told theirs (``column_types``).
    """
    for node in reversed(nodes(tree)):  # inner ones first
        meant = _meant(node, dialect)
        if meant is not node:
            if dialect in HIVES:
                tell_type(meant, type_of(node))
            node.replace(meant)


def _meant(node: exp.Expr, dialect: str) -> exp.Expr:
    if isinstance(node, exp.Cast):
        return _cast(node, dialect)
    if dialect in HIVES:
        if isinstance(node, exp.Anonymous):
            return hive_functions.put_function(_with_nulls_outside(node), dialect)
        rule = _RULES_OF_HIVES.get(type(node))
        return node if rule is None else rule(node, dialect)
    other = _RULES.get(type(node))
    return node if other is None else other(node, dialect)


def _with_nulls_outside(call: exp.Anonymous) -> exp.Anonymous:
    """Take IGNORE NULLS out of a window function's brackets; Spark has it behind them."""
    window = call.parent
    if not isinstance(window, exp.Window) or not call.expressions:
        return call
    inner = call.expressions[0]
    if isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        call.set("expressions", [inner.this, *call.expressions[1:]])
        window.set("this", type(inner)(this=call))
    return call


def _cast(node: exp.Cast, dialect: str) -> exp.Expr:
    """Write what a CAST to a text of some length, or of a truth or a text, gives where Spark's gives something else."""
    to = node.to.this if isinstance(node.to, exp.DataType) else None
    if dialect in _CUTS_TEXTS and to in (exp.DType.VARCHAR, exp.DType.CHAR) and node.to.expressions:
        if to is exp.DType.CHAR:
            raise _refused(node, "CHAR(n) pads with spaces: use VARCHAR(n), or rpad.")
        whole = exp.cast(node.this.copy(), exp.DType.TEXT)
        return filled("substring(a, 1, b)", a=whole, b=node.to.expressions[0].this)
    if dialect not in HIVES or to is None:
        return node
    return _cast_of_impala(node, named(to.value)) if dialect == IMPALA else _cast_of_hive(node, named(to.value))


def _cast_of_hive(node: exp.Cast, to: str) -> exp.Expr:
    of = type_of(node.this)
    if of == STRING and to in WHOLE:
        through = f"TRY_CAST(TRY_CAST(a AS DECIMAL(38, 18)) AS {to})"  # of a fraction, but of no exponent
        return filled(f"coalesce(TRY_CAST(a AS {to}), CASE WHEN NOT a RLIKE '[eE]' THEN {through} END)", a=node.this)
    if to == TIMESTAMP and of in WHOLE:  # which count milliseconds
        return filled("timestamp_millis(a)", a=node.this)
    return _strict(node) if to in WHOLE and of in NUMBERS else node


def _cast_of_impala(node: exp.Cast, to: str) -> exp.Expr:
    of = type_of(node.this)
    match to:
        case "string" if of == BOOLEAN:
            return filled("CASE WHEN a THEN '1' WHEN NOT a THEN '0' END", a=node.this)
        case "string" if of == TIMESTAMP:
            return filled(_MOMENT_AS_TEXT, a=exp.cast(node.this.copy(), exp.DType.TEXT))
        case "string" if of in FLOATING:
            return filled(_FLOATING_AS_TEXT.format("1e15D" if of == "double" else "1e7D"), a=node.this)
        case "timestamp" if of not in (TIMESTAMP, NULL):
            return as_time(node, node.this)
        case "date" if of == STRING:
            return as_date(node, node.this)
    if to in WHOLE and of == "decimal":
        return exp.Cast(this=_call("round", node.this, exp.Literal.number(0)), to=node.to.copy())
    if to == "decimal" and of in FLOATING:
        ended = _call(RAISE, exp.Literal.string("a DOUBLE that is no number as DECIMAL"))
        return filled(_FLOATING_AS_DECIMAL, a=node.this, b=_strict(node), c=exp.Cast(this=ended, to=node.to.copy()))
    return _strict(node) if to in (*WHOLE, "decimal") and of in (*NUMBERS, TIMESTAMP) else node


def _strict(node: exp.Cast) -> exp.Expr:
    """Make an error of a number that does not fit: the dialect would make another number of it."""
    return exp.Cast(this=node.this.copy(), to=node.to.copy())


def _part_of_hives(node: exp.Expr, dialect: str) -> exp.Expr:
    return hive_times.part(node, node.name, node.expression, dialect)


def _substring_of_hives(node: exp.Expr, dialect: str) -> exp.Expr:
    start = node.args.get("start")
    if start is None:
        return node
    return hive_functions.substring(node, node.this, start, node.args.get("length"), dialect)


def _pipes(node: exp.Expr, dialect: str) -> exp.Expr:
    """In Impala, || of truths is OR, and of anything but texts it is an error."""
    if dialect != IMPALA:
        return node
    sides = {type_of(side) for side in (node.this, node.expression)}
    if BOOLEAN in sides and sides <= {BOOLEAN, NULL, UNKNOWN}:
        return exp.paren(exp.Or(this=node.this.copy(), expression=node.expression.copy()), copy=False)
    if sides == {NULL} or (STRING in sides and sides <= {STRING, UNKNOWN}):
        return node
    raise _refused(node, "|| is OR of two truths or joins two texts: CAST both sides to STRING, or write OR.")


def _moved(node: exp.Expr, dialect: str) -> exp.Expr:
    """Add an interval to a time, which in Impala may be a text."""
    sign = 1 if isinstance(node, exp.Add) else -1
    if dialect != IMPALA:
        return node
    if isinstance(node.expression, exp.Interval):
        return hive_times.moved(time_of(node.this), node.expression, sign)
    if isinstance(node.this, exp.Interval) and sign > 0:
        return hive_times.moved(time_of(node.expression), node.this, sign)
    return node


def _quotient(node: exp.Expr, dialect: str) -> exp.Expr:
    """Divide a decimal by a whole number of the type that Impala has for it, by which it counts the digits."""
    number = whole_number(node.expression)
    if dialect != IMPALA or number is None or type_of(node.this) != "decimal":
        return node
    narrowest = next((kind for kind, bits in BITS.items() if abs(number) < 2 ** (bits - 1)), None)
    if narrowest is not None:
        node.set("expression", exp.Cast(this=node.expression.copy(), to=exp.DataType.build(narrowest)))
    return node


def _trim_of_hives(node: exp.Expr, dialect: str) -> exp.Expr:
    """In Impala, no letters to be cut off are none."""
    letters = node.args.get("expression")
    if dialect == IMPALA and letters is not None and not isinstance(letters, exp.Literal):
        node.set("expression", _call("coalesce", letters, exp.Literal.string("")))
    return node


def _regexp_of_hives(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect == IMPALA:
        node.set("expression", hive_patterns.regexp(node, node.expression))
    return node


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def _refused(node: exp.Expr, message: str) -> NotAllowed:
    return NotAllowed(message, position_of(node))


def _plus(node: exp.Expr, number: int) -> exp.Expr:
    kind = exp.Add if number > 0 else exp.Sub
    return exp.paren(kind(this=node, expression=exp.Literal.number(abs(number))), copy=False)


def _logarithm(node: exp.Expr, dialect: str) -> exp.Expr:
    number = node.args.get("expression")
    if number is None:
        return _call("log10", node.this) if dialect == DUCKDB else node
    name = _LOGARITHMS.get(node.this.name) if isinstance(node.this, exp.Literal) else None
    return _call(name, number) if name else node


def _day_of_week(node: exp.Expr, dialect: str) -> exp.Expr:
    return _plus(_call("dayofweek", node.this), -1) if dialect == DUCKDB else node


def _day_of_week_iso(node: exp.Expr, dialect: str) -> exp.Expr:
    return _plus(_call("weekday", node.this), 1)


def _part(name: str, of: exp.Expr, dialect: str) -> exp.Expr | None:
    """Return a part of a time in Spark's words; None where its name means the same there."""
    meant = _PARTS.get(dialect, {}).get(name.upper())
    if meant is None:
        return None
    if meant.endswith("()"):
        return _call(meant.removesuffix("()"), of)
    found = exp.Extract(this=exp.Var(this=meant), expression=of.copy())
    return _plus(found, -1) if dialect == DUCKDB and name.upper() in _FROM_ZERO else found


def _extract(node: exp.Expr, dialect: str) -> exp.Expr:
    return _part(node.name, node.expression, dialect) or node


def _named(node: exp.Expr, dialect: str) -> exp.Expr:
    """Put a function into words of which the parser knows no more than the name."""
    name, arguments = node.name.lower(), node.expressions
    if name in _OTHER_VALUES.get(dialect, ()):
        raise _refused(node, f"{name.upper()} gives other values in Spark, whose meaning the gateway goes by.")
    if dialect == DUCKDB and name == "weekday" and len(arguments) == 1:
        return _plus(_call("dayofweek", *arguments), -1)
    if name in ("date_part", "datepart") and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return _part(arguments[0].name, arguments[1], dialect) or node
    return node


def _in_full(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect != DUCKDB:
        return node
    return _call("date_format", node.this, exp.Literal.string(_NAMES_IN_FULL[type(node)]))


def _extreme(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect not in NULL_OF_NULL:
        return node
    values: Sequence[exp.Expr] = [node.this, *node.expressions]
    unknown = exp.or_(*(exp.Is(this=value.copy(), expression=exp.Null()) for value in values))
    return exp.Case(ifs=[exp.If(this=unknown, true=exp.Null())], default=_call(node.key, *values))


def _like(node: exp.Expr, dialect: str) -> exp.Expr:
    """Write a pattern in which the backslash stands for itself, as Spark reads it."""
    pattern = node.expression
    if dialect not in NO_ESCAPE or isinstance(node.parent, exp.Escape) or isinstance(pattern, exp.Any | exp.All):
        return node
    if not isinstance(pattern, exp.Literal):
        pattern = _call("replace", pattern, exp.Literal.string("\\"), exp.Literal.string("\\\\"))
    elif "\\" in pattern.name:
        pattern = exp.Literal.string(pattern.name.replace("\\", "\\\\"))
    node.set("expression", pattern)
    return node


def _regexp_replace(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect != DUCKDB:
        return node
    modifiers, replacement = node.args.get("modifiers"), node.args.get("replacement")
    if modifiers is None or "g" not in modifiers.name:
        raise _refused(node, "REGEXP_REPLACE without 'g' replaces one match, which Spark has no words for.")
    if not isinstance(replacement, exp.Literal) or set("\\$").intersection(replacement.name):
        raise _refused(node, "REGEXP_REPLACE takes groups as $1 in Spark: use the dialect spark.")
    return node


def _difference(node: exp.Expr, dialect: str) -> exp.Expr:
    """Count the ends of days, months or years between two times, as DuckDB does; Spark counts those that are full."""
    if dialect != DUCKDB:
        return node
    last, first = node.this, node.expression
    unit = node.args["unit"].name.upper() if node.args.get("unit") is not None else ""
    years = exp.Sub(this=_call("year", last), expression=_call("year", first))
    match unit:
        case "DAY":
            return _call("datediff", *(exp.cast(side.copy(), exp.DType.DATE) for side in (last, first)))
        case "YEAR":
            return exp.paren(years, copy=False)
        case "MONTH":
            months = exp.Sub(this=_call("month", last), expression=_call("month", first))
            in_years = exp.Mul(this=exp.paren(years, copy=False), expression=exp.Literal.number(12))
            return exp.paren(exp.Add(this=in_years, expression=exp.paren(months, copy=False)), copy=False)
        case _:
            raise _refused(node, f"DATE_DIFF counts full units in Spark; use the dialect spark for {unit or 'it'}.")


def _epoch(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect not in (DUCKDB, TRINO):
        return node
    micros = _call("unix_micros", exp.cast(node.this.copy(), exp.DType.TIMESTAMP))
    return exp.paren(exp.Div(this=micros, expression=exp.Literal.number("1e6")), copy=False)


def _digest(node: exp.Expr, dialect: str) -> exp.Expr:
    """Write a digest as the bytes that it is in Trino; Spark gives them as a text."""
    return exp.Unhex(this=node.copy()) if dialect == TRINO else node


def _chance(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect in (DUCKDB, TRINO) and any(node.args.values()):
        raise _refused(node, "RANDOM takes bounds here and a seed in Spark, whose meaning the gateway goes by.")
    return node


def _smallest(node: exp.Expr, dialect: str) -> exp.Expr:
    if node.args.get("expressions") or node.args.get("count"):
        raise _refused(node, f"{node.key.upper()} with a number of values gives an array.")
    return node


def _quantile(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect == DUCKDB:
        raise _refused(node, "QUANTILE gives a value between two others in Spark; use the dialect spark's percentile.")
    return node


def _within_group(node: exp.Expr, dialect: str) -> exp.Expr:
    """Write an exact percentile as one; the parser would make an approximate one of it."""
    kind, order = node.this, node.expression
    if not isinstance(kind, exp.PercentileCont | exp.PercentileDisc):
        return node
    keys = order.expressions
    if isinstance(kind, exp.PercentileDisc) or len(keys) != 1 or keys[0].args.get("desc"):
        raise _refused(node, "Of percentiles in a group, only PERCENTILE_CONT of one ascending key is known.")
    return _call("percentile", keys[0].this, kind.this)


def _from_zero(node: exp.Expr, dialect: str) -> exp.Expr:
    start = node.args.get("start")
    if dialect in (DUCKDB, TRINO) and isinstance(start, exp.Literal) and start.name == "0":
        raise _refused(node, "In Spark, a SUBSTRING from 0 starts at the first character.")
    return node


def _end(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect == DUCKDB and isinstance(node.expression, exp.Neg):
        raise _refused(node, f"In Spark, {node.key.upper()} of a negative number of characters is empty.")
    return node


_RULES_OF_HIVES: Mapping[type[exp.Expr], Callable[[exp.Expr, str], exp.Expr]] = {
    exp.Extract: _part_of_hives,
    exp.Substring: _substring_of_hives,
    exp.DPipe: _pipes,
    exp.Trim: _trim_of_hives,
    exp.Div: _quotient,
    **dict.fromkeys((exp.Add, exp.Sub), _moved),
    exp.RegexpLike: _regexp_of_hives,
}
_RULES: Mapping[type[exp.Expr], Rule] = {
    exp.Log: _logarithm,
    exp.DayOfWeek: _day_of_week,
    exp.DayOfWeekIso: _day_of_week_iso,
    exp.Extract: _extract,
    exp.Anonymous: _named,
    **dict.fromkeys(_NAMES_IN_FULL, _in_full),
    **dict.fromkeys((exp.Greatest, exp.Least), _extreme),
    **dict.fromkeys((exp.Like, exp.ILike), _like),
    exp.RegexpReplace: _regexp_replace,
    exp.DateDiff: _difference,
    exp.TimeToUnix: _epoch,
    **dict.fromkeys((exp.SHA, exp.SHA2Digest), _digest),
    exp.Rand: _chance,
    **dict.fromkeys((exp.Min, exp.Max), _smallest),
    exp.Quantile: _quantile,
    exp.WithinGroup: _within_group,
    exp.Substring: _from_zero,
    **dict.fromkeys((exp.Left, exp.Right), _end),
}
