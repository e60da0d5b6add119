"""Normalization of trees of Hive and Impala to Spark.

Syntax with another meaning in Spark is replaced by syntax of Spark with the dialect's meaning, or refused with an
alternative. Where only types and corner cases differ (1.0 / 3 is a decimal), Spark's apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from selector.types import BITS, FLOATING, WHOLE
from sql.dialects import hive_functions, hive_patterns, hive_times
from sql.dialects.calls import call_of, refused, whole_number
from sql.dialects.column_types import (
    BOOLEAN,
    NULL,
    NUMBERS,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    Stored,
    annotate_types,
    set_type,
    short_name,
    type_of,
)
from sql.dialects.hive_moments import as_date, as_time, time_of
from sql.dialects.names import HIVE, IMPALA
from sql.dialects.templates import filled
from sql.guards import RAISE
from sql.nodes import find_all, nodes

_MOMENT_AS_TEXT = "CASE WHEN a LIKE '%.%' THEN rpad(a, 29, '0') ELSE a END"  # nine digits after the second, or none
_FLOATING_AS_DECIMAL = (  # Spark returns NULL for an infinite number
    "CASE WHEN isnan(a) OR abs(a) = CAST('Infinity' AS DOUBLE) THEN c ELSE b END"
)
_FLOATING_AS_TEXT = (  # no point in a whole number, no exponent between these
    "CASE WHEN a = floor(a) AND abs(a) < {0} THEN CAST(CAST(a AS BIGINT) AS STRING) "
    "WHEN abs(a) BETWEEN 0.001D AND 1e7D THEN CAST(a AS STRING) "
    "WHEN isnan(a) THEN 'nan' WHEN a = CAST('Infinity' AS DOUBLE) THEN 'inf' "
    "WHEN a = CAST('-Infinity' AS DOUBLE) THEN '-inf' WHEN a IS NOT NULL "
    "THEN raise_error('a very large or small DOUBLE as a text, which Impala writes differently: CAST it to DECIMAL') "
    "END"
)

_WRITE_TIMES = ("date_format", "from_unixtime")  # by a pattern

Rule = Callable[[exp.Expr, str], exp.Expr]


def normalize_to_spark(tree: exp.Expr, dialect: str, stored: Stored) -> None:
    """Replace expressions of Hive or Impala by expressions of Spark with the same meaning. Raises NotAllowed.

    stored: columns of tables and views, from which types of expressions follow.
    """
    if dialect == HIVE:
        _rewrite_weekdays(tree)
    annotate_types(tree, stored)
    for node in reversed(nodes(tree)):  # inner ones first
        rewritten = _rewritten(node, dialect)
        if rewritten is not node:
            set_type(rewritten, type_of(node))
            node.replace(rewritten)


def _rewrite_weekdays(tree: exp.Expr) -> None:
    """Rewrite the pattern ``u``, which Spark 3 removed: the day of the week, 1 for Monday, as text.

    Tools for Hive truncate times to weeks with it.
    """
    for call in find_all(tree, exp.Anonymous):
        if call.name.lower() not in _WRITE_TIMES or len(call.expressions) != len(("time", "pattern")):
            continue
        time, pattern = call.expressions
        if pattern.is_string and pattern.name == "u":
            if call.name.lower() == "from_unixtime":
                time = exp.Anonymous(this="from_unixtime", expressions=[time])
            day = exp.Anonymous(this="weekday", expressions=[exp.Anonymous(this="to_date", expressions=[time])])
            call.replace(exp.cast(exp.Paren(this=exp.Add(this=day, expression=exp.Literal.number(1))), "string"))


def _rewritten(node: exp.Expr, dialect: str) -> exp.Expr:
    if isinstance(node, exp.Cast):
        return _cast(node, dialect)
    if isinstance(node, exp.Anonymous):
        return hive_functions.normalize_function(_with_nulls_outside(node), dialect)
    rule = _RULES.get(type(node))
    return node if rule is None else rule(node, dialect)


def _with_nulls_outside(call: exp.Anonymous) -> exp.Anonymous:
    """Move IGNORE NULLS out of a window function's brackets; in Spark it stands after them."""
    window = call.parent
    if not isinstance(window, exp.Window) or not call.expressions:
        return call
    inner = call.expressions[0]
    if isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        call.set("expressions", [inner.this, *call.expressions[1:]])
        window.set("this", type(inner)(this=call))
    return call


def _cast(node: exp.Cast, dialect: str) -> exp.Expr:
    """Rewrite a CAST whose result in Spark differs: to a text with a length, of a boolean or of a text."""
    to = node.to.this if isinstance(node.to, exp.DataType) else None
    if to in (exp.DType.VARCHAR, exp.DType.CHAR) and node.to.expressions:
        if to is exp.DType.CHAR:
            raise refused(node, "CHAR(n) pads with spaces: use VARCHAR(n), or rpad.")
        whole = exp.cast(node.this.copy(), exp.DType.TEXT)
        return filled("substring(a, 1, b)", a=whole, b=node.to.expressions[0].this)
    if to is None:
        return node
    cast = _cast_of_impala if dialect == IMPALA else _cast_of_hive
    return cast(node, short_name(to.value))


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
        return exp.Cast(this=call_of("round", node.this, exp.Literal.number(0)), to=node.to.copy())
    if to == "decimal" and of in FLOATING:
        ended = call_of(RAISE, exp.Literal.string("a DOUBLE that is not a number as DECIMAL"))
        return filled(_FLOATING_AS_DECIMAL, a=node.this, b=_strict(node), c=exp.Cast(this=ended, to=node.to.copy()))
    return _strict(node) if to in (*WHOLE, "decimal") and of in (*NUMBERS, TIMESTAMP) else node


def _strict(node: exp.Cast) -> exp.Expr:
    """Return a CAST that fails for a number that does not fit: the dialect would return another number."""
    return exp.Cast(this=node.this.copy(), to=node.to.copy())


def _part(node: exp.Expr, dialect: str) -> exp.Expr:
    return hive_times.part(node, node.name, node.expression, dialect)


def _substring(node: exp.Expr, dialect: str) -> exp.Expr:
    start = node.args.get("start")
    if start is None:
        return node
    return hive_functions.substring(node, node.this, start, node.args.get("length"), dialect)


def _pipes(node: exp.Expr, dialect: str) -> exp.Expr:
    """Return OR for || of booleans in Impala; of other types than texts it is an error."""
    if dialect != IMPALA:
        return node
    sides = {type_of(side) for side in (node.this, node.expression)}
    if BOOLEAN in sides and sides <= {BOOLEAN, NULL, UNKNOWN}:
        return exp.paren(exp.Or(this=node.this.copy(), expression=node.expression.copy()), copy=False)
    if sides == {NULL} or (STRING in sides and sides <= {STRING, UNKNOWN}):
        return node
    raise refused(node, "|| is OR of two booleans or joins two strings: CAST both sides to STRING, or write OR.")


def _moved(node: exp.Expr, dialect: str) -> exp.Expr:
    """Return a time plus or minus an interval; in Impala the time may be a text."""
    sign = 1 if isinstance(node, exp.Add) else -1
    if dialect != IMPALA:
        return node
    if isinstance(node.expression, exp.Interval):
        return hive_times.moved(time_of(node.this), node.expression, sign)
    if isinstance(node.this, exp.Interval) and sign > 0:
        return hive_times.moved(time_of(node.expression), node.this, sign)
    return node


def _quotient(node: exp.Expr, dialect: str) -> exp.Expr:
    """Cast a whole divisor of a decimal to the type that Impala gives it, on which the digits of the result depend."""
    number = whole_number(node.expression)
    if dialect != IMPALA or number is None or type_of(node.this) != "decimal":
        return node
    narrowest = next((kind for kind, bits in BITS.items() if abs(number) < 2 ** (bits - 1)), None)
    if narrowest is not None:
        node.set("expression", exp.Cast(this=node.expression.copy(), to=exp.DataType.build(narrowest)))
    return node


def _trim(node: exp.Expr, dialect: str) -> exp.Expr:
    """Trim nothing in Impala if the letters to trim are NULL."""
    letters = node.args.get("expression")
    if dialect == IMPALA and letters is not None and not isinstance(letters, exp.Literal):
        node.set("expression", call_of("coalesce", letters, exp.Literal.string("")))
    return node


def _regexp(node: exp.Expr, dialect: str) -> exp.Expr:
    if dialect == IMPALA:
        node.set("expression", hive_patterns.regexp(node, node.expression))
    return node


_RULES: Mapping[type[exp.Expr], Rule] = {
    exp.Extract: _part,
    exp.Substring: _substring,
    exp.DPipe: _pipes,
    exp.Trim: _trim,
    exp.Div: _quotient,
    **dict.fromkeys((exp.Add, exp.Sub), _moved),
    exp.RegexpLike: _regexp,
}
