"""Predicates on a row sample: SQL expressions over columns of numbers and strings, with SQL's three-valued logic.

Unknown functions and mixtures of types are not evaluated: a guess would look like a count. Values are on the lines of
``selector.statistics``: dates are days, timestamps microseconds, and strings are themselves.

The file is long because it has a method for each kind of expression; ``_HANDLERS`` lists them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from selector.cardinality.predicates.patterns import Like, found_in
from selector.cardinality.predicates.vectors import (
    DAY_US,
    MONTHS,
    NULL,
    OPERATORS,
    Bools,
    Kind,
    NotEvaluable,
    Vector,
    aligned,
    all_of,
    cast_kind,
    compared,
    days_of_months,
    either,
    from_text,
    interval_of,
    interval_text,
    is_in,
    kind_of,
    mapped,
    months_of,
    not_,
    rounded,
    shifted,
    text_value,
    truncated,
    unit_of,
)
from selector.row_sample import RowSample, SampleColumn

WHOLE_TEXT = 256  # characters; a sampled string as long as that may have been cut
MOST_CUT = 0.1  # share of cut strings in a column, above which it is not evaluated


def truth(expression: exp.Expr, sample: RowSample, types: Mapping[str, str], *, dialect: str) -> Bools | None:
    """Return True for each row of a sample that a predicate keeps, shape (rows,); None: not evaluable.

    types: of the columns, Spark's short form.
    """
    names = {_column_name(column.name, types) for column in expression.find_all(exp.Column)}
    only_column = sample.columns.get(next(iter(names)) or "") if len(names) == 1 else None
    if only_column is not None and only_column.size + 1 < sample.rows:  # evaluate each distinct value once
        name = next(iter(names)) or ""
        distinct_values = RowSample(only_column.size + 1, 1.0, {name: _distinct_values(only_column)})
        answers = truth(expression, distinct_values, types, dialect=dialect)
        return answers[only_column.codes] if answers is not None else None
    try:
        result = _Evaluator(sample, types, dialect).boolean(expression)
    except (NotEvaluable, OverflowError):
        return None
    return np.broadcast_to(np.logical_and(result.values, np.logical_not(result.nulls)), (sample.rows,))


def values_of(
    expression: str | exp.Expr, sample: RowSample, types: Mapping[str, str], *, dialect: str
) -> Vector | None:
    """Return the values of an expression (SQL text or parsed) on a sample; None: not evaluable."""
    try:
        read = sqlglot.parse_one(expression, read=dialect) if isinstance(expression, str) else expression
        return _Evaluator(sample, types, dialect).value(read)
    except (SqlglotError, NotEvaluable, OverflowError):
        return None


def constant(expression: exp.Expr, *, dialect: str) -> Vector | None:
    """Return the value of an expression without columns; None: not evaluable."""
    if expression.find(exp.Column):
        return None
    try:
        return _Evaluator(None, {}, dialect).value(expression)
    except (NotEvaluable, OverflowError):
        return None


class _Evaluator:
    """Evaluator of expressions over one sample; without a sample, of constant ones."""

    def __init__(self, sample: RowSample | None, types: Mapping[str, str], dialect: str) -> None:
        self._sample = sample
        self._types = types
        self._dialect = dialect

    def value(self, expression: exp.Expr) -> Vector:
        for kind in type(expression).__mro__:
            handler = _HANDLERS.get(kind)
            if handler is not None:
                with np.errstate(all="ignore"):
                    return handler(self, expression)
        raise NotEvaluable(type(expression).__name__)

    def boolean(self, expression: exp.Expr) -> Vector:
        value = self.value(expression)
        if value.kind is Kind.NULL:
            return Vector(Kind.BOOLEAN, np.False_, np.True_)
        if value.kind is not Kind.BOOLEAN:
            raise NotEvaluable(value.kind.value)
        return Vector(Kind.BOOLEAN, np.asarray(value.values).astype(np.bool_), value.nulls)

    def number(self, expression: exp.Expr) -> Vector:
        value = self.value(expression)
        if value.kind is Kind.NULL:
            return value
        if not value.kind.is_number:
            raise NotEvaluable(value.kind.value)
        return Vector(value.kind, np.asarray(value.values, dtype=np.float64), value.nulls)

    def text(self, expression: exp.Expr) -> Vector:
        value = self.value(expression)
        if value.kind not in (Kind.TEXT, Kind.NULL):
            raise NotEvaluable(value.kind.value)
        return value

    def time(self, expression: exp.Expr) -> Vector:
        """Return a date or timestamp; a constant string is converted."""
        value = self.value(expression)
        if value.kind is Kind.TEXT and value.is_constant:
            text = value.item()
            value = from_text(value, Kind.DATE if text is not None and len(text.strip()) <= 10 else Kind.TIMESTAMP)
        if value.kind not in (Kind.DATE, Kind.TIMESTAMP, Kind.NULL):
            raise NotEvaluable(value.kind.value)
        return value

    def whole(self, expression: exp.Expr | None) -> int:
        """Return a constant whole number."""
        value = self.value(expression) if expression is not None else NULL
        number = value.item() if value.is_constant and value.kind.is_number else None
        if number is None or number != int(number):
            raise NotEvaluable("not a whole number")
        return int(number)

    def unnest(self, expression: exp.Expr) -> Vector:
        return self.value(expression.this)

    def column(self, expression: exp.Expr) -> Vector:
        name = _column_name(expression.name, self._types)
        column = self._sample.columns.get(name) if self._sample is not None and name is not None else None
        kind = kind_of(self._types[name]) if name is not None else None
        if column is None or kind is None or (kind is Kind.TEXT and _is_cut(column)):
            raise NotEvaluable(expression.name)
        if (kind is Kind.TEXT) != column.is_text:
            raise NotEvaluable(expression.name)
        values: Any = column.rows
        return Vector(kind, values > 0.0 if kind is Kind.BOOLEAN else values, column.nulls)

    def literal(self, expression: exp.Expr) -> Vector:
        if expression.is_string:
            return text_value(expression.this)
        number = float(expression.this)
        plain = expression.this.isdecimal()
        return Vector(Kind.INTEGER if plain else Kind.DECIMAL, np.float64(number))

    def boolean_literal(self, expression: exp.Expr) -> Vector:
        return Vector(Kind.BOOLEAN, np.bool_(expression.this))

    def conjunction(self, expression: exp.Expr) -> Vector:
        return all_of(self.boolean(expression.this), self.boolean(expression.expression))

    def disjunction(self, expression: exp.Expr) -> Vector:
        return not_(all_of(not_(self.boolean(expression.this)), not_(self.boolean(expression.expression))))

    def negation(self, expression: exp.Expr) -> Vector:
        return not_(self.boolean(expression.this))

    def is_(self, expression: exp.Expr) -> Vector:
        if isinstance(expression.expression, exp.Null):
            return Vector(Kind.BOOLEAN, self.value(expression.this).nulls)
        if isinstance(expression.expression, exp.Boolean):
            operand = self.boolean(expression.this)
            is_equal = operand.values == bool(expression.expression.this)
            return Vector(Kind.BOOLEAN, is_equal & np.logical_not(operand.nulls))
        raise NotEvaluable("IS")

    def comparison(self, expression: exp.Expr) -> Vector:
        return compared(type(expression), self.value(expression.this), self.value(expression.expression))

    def null_safe(self, expression: exp.Expr) -> Vector:
        lhs, rhs = self.value(expression.this), self.value(expression.expression)
        both, any_null = np.logical_and(lhs.nulls, rhs.nulls), np.logical_or(lhs.nulls, rhs.nulls)
        equal = Vector(Kind.BOOLEAN, both)
        if Kind.NULL not in (lhs.kind, rhs.kind):
            equal = Vector(Kind.BOOLEAN, np.where(any_null, both, compared(exp.EQ, lhs, rhs).values))
        return equal if isinstance(expression, exp.NullSafeEQ) else not_(equal)

    def between(self, expression: exp.Expr) -> Vector:
        value = self.value(expression.this)
        low, high = self.value(expression.args["low"]), self.value(expression.args["high"])
        return all_of(compared(exp.GTE, value, low), compared(exp.LTE, value, high))

    def one_of(self, expression: exp.Expr) -> Vector:
        items = expression.expressions
        if not items or expression.args.get("query") or expression.args.get("unnest"):
            raise NotEvaluable("IN")
        value, others = self.value(expression.this), [self.value(item) for item in items]
        constants = [aligned(value, other)[1] for other in others if other.kind is not Kind.NULL]
        if all(other.is_constant for other in constants) and all(aligned(value, o)[0] is value for o in others):
            values = [other.item() for other in constants]
            is_member = is_in(value, values)
            has_null = len(constants) < len(others)
            nulls = np.logical_or(value.nulls, np.logical_not(is_member) if has_null else False)
            return Vector(Kind.BOOLEAN, is_member, nulls)
        return not_(reduce(all_of, (not_(compared(exp.EQ, value, other)) for other in others)))

    def like(self, expression: exp.Expr) -> Vector:
        escape = None if self._dialect == "duckdb" else "\\"
        return self._like(expression, escape)

    def escaped(self, expression: exp.Expr) -> Vector:
        if not isinstance(expression.this, exp.Like | exp.ILike):
            raise NotEvaluable("ESCAPE")
        return self._like(expression.this, self.constant_text(expression.expression))

    def _like(self, expression: exp.Expr, escape: str | None) -> Vector:
        subject = self.text(expression.this)
        pattern = self.value(expression.expression)
        if not pattern.is_constant or pattern.kind not in (Kind.TEXT, Kind.NULL):
            raise NotEvaluable("LIKE")
        text = pattern.item()
        if text is None:
            return Vector(Kind.BOOLEAN, np.False_, np.True_)
        like = Like(text, escape, ignore_case=isinstance(expression, exp.ILike))
        matched = mapped(subject, Kind.BOOLEAN, like.matches)
        return not_(matched) if expression.args.get("negate") else matched

    def constant_text(self, expression: exp.Expr | None) -> str:
        value = self.text(expression) if expression is not None else NULL
        text = value.item() if value.is_constant else None
        if not isinstance(text, str):
            raise NotEvaluable("not a constant string")
        return text

    def matches(self, expression: exp.Expr) -> Vector:
        flags = self.constant_text(expression.args["flag"]) if expression.args.get("flag") else ""
        if flags.strip("ic"):
            raise NotEvaluable(flags)
        subject = self.text(expression.this)
        texts = [value for value in set(np.atleast_1d(subject.values).tolist()) if isinstance(value, str)]
        answers = found_in(
            self.constant_text(expression.expression),
            texts,
            ignore_case="i" in flags or isinstance(expression, exp.RegexpILike),
            whole=isinstance(expression, exp.RegexpFullMatch | exp.SimilarTo),
        )
        if answers is None:
            raise NotEvaluable("a regular expression")
        answer_of = dict(zip(texts, answers, strict=True))
        return mapped(subject, Kind.BOOLEAN, lambda value: answer_of.get(value, False))

    def part_of_text(self, expression: exp.Expr) -> Vector:
        tests: dict[type[exp.Expr], Callable[[str, str], bool]] = {
            exp.StartsWith: str.startswith,
            exp.EndsWith: str.endswith,
            exp.Contains: operator.contains,
        }
        test, part = tests[type(expression)], self.constant_text(expression.expression)
        return mapped(self.text(expression.this), Kind.BOOLEAN, lambda value: test(value, part))

    def arithmetic(self, expression: exp.Expr) -> Vector:
        lhs, rhs = self.value(expression.this), self.value(expression.expression)
        if Kind.NULL in (lhs.kind, rhs.kind):
            return NULL
        if not (lhs.kind.is_number and rhs.kind.is_number):
            return self._moved(expression, lhs, rhs)
        a, b = np.asarray(lhs.values, dtype=np.float64), np.asarray(rhs.values, dtype=np.float64)
        nulls = np.logical_or(lhs.nulls, rhs.nulls)
        kinds = {lhs.kind, rhs.kind}
        kind = Kind.INTEGER if kinds <= {Kind.INTEGER, Kind.BOOLEAN} else Kind.DOUBLE
        if kind is Kind.DOUBLE and Kind.DOUBLE not in kinds:
            kind = Kind.DECIMAL
        match expression:
            case exp.Add():
                return Vector(kind, a + b, nulls)
            case exp.Sub():
                return Vector(kind, a - b, nulls)
            case exp.Mul():
                return Vector(kind, a * b, nulls)
        if np.any((b == 0.0) & np.logical_not(nulls)):
            raise NotEvaluable("division by zero")
        match expression:
            case exp.Div():
                return Vector(Kind.DOUBLE, a / b, nulls)
            case exp.Mod():
                return Vector(kind, np.fmod(a, b), nulls)
            case _:
                return Vector(Kind.INTEGER, np.trunc(a / b), nulls)

    def _moved(self, expression: exp.Expr, lhs: Vector, rhs: Vector) -> Vector:
        """Evaluate a sum or difference with a date or timestamp."""
        sign = -1.0 if isinstance(expression, exp.Sub) else 1.0
        if not isinstance(expression, exp.Add | exp.Sub):
            raise NotEvaluable("arithmetic on times")
        if sign > 0 and lhs.kind in (Kind.INTERVAL, Kind.INTEGER):
            lhs, rhs = rhs, lhs
        nulls = np.logical_or(lhs.nulls, rhs.nulls)
        if lhs.kind is Kind.DATE and rhs.kind is Kind.DATE and sign < 0:
            return Vector(Kind.INTEGER, lhs.values - rhs.values, nulls)
        if lhs.kind is Kind.DATE and rhs.kind is Kind.INTEGER:
            return Vector(Kind.DATE, lhs.values + sign * rhs.values, nulls)
        if lhs.kind in (Kind.DATE, Kind.TIMESTAMP) and rhs.kind is Kind.INTERVAL:
            return self._later(lhs, sign * rhs.values[0], sign * rhs.values[1])
        raise NotEvaluable("arithmetic on times")

    def _later(self, time: Vector, months: float, microseconds: float) -> Vector:
        if time.kind is Kind.NULL:
            return time
        us = shifted(time.values * (DAY_US if time.kind is Kind.DATE else 1.0), months, microseconds)
        if time.kind is Kind.DATE and self._dialect != "duckdb" and microseconds % DAY_US == 0.0:
            return Vector(Kind.DATE, us / DAY_US, time.nulls)
        return Vector(Kind.TIMESTAMP, us, time.nulls)

    def added(self, expression: exp.Expr) -> Vector:
        """Evaluate date_add and similar functions, which take a number of units."""
        sign = -1.0 if isinstance(expression, exp.DateSub | exp.TimestampSub) else 1.0
        by = self.value(expression.expression)
        if by.kind is Kind.INTERVAL:
            return self._later(self.time(expression.this), sign * by.values[0], sign * by.values[1])
        amount = self.whole(expression.expression)
        return self._later(
            self.time(expression.this), *interval_of(sign * amount, unit_of(expression.args.get("unit")))
        )

    def difference(self, expression: exp.Expr) -> Vector:
        later, earlier = self.time(expression.this), self.time(expression.expression)
        unit = unit_of(expression.args.get("unit"))
        if unit not in ("DAY", "MONTH", "YEAR") or (unit != "DAY" and self._dialect != "duckdb"):
            raise NotEvaluable(unit)
        if Kind.NULL in (later.kind, earlier.kind):
            return NULL
        ends = [np.asarray(truncated(time.values, time.kind, unit)) for time in (later, earlier)]
        if unit == "DAY":
            counts = [end / DAY_US for end in ends]
        else:
            counts = [months_of(end) / MONTHS[unit] for end in ends]
        return Vector(Kind.INTEGER, counts[0] - counts[1], np.logical_or(later.nulls, earlier.nulls))

    def interval(self, expression: exp.Expr) -> Vector:
        amount = expression.this
        while isinstance(amount, exp.Cast | exp.Paren):
            amount = amount.this
        unit = expression.args.get("unit")
        if isinstance(amount, exp.Literal) and amount.is_string and unit is None:
            return interval_text(amount.this)
        if isinstance(amount, exp.Literal) and isinstance(unit, exp.Var):
            try:
                return Vector(Kind.INTERVAL, interval_of(float(amount.this), unit_of(unit)))
            except ValueError as error:
                raise NotEvaluable(amount.this) from error
        return Vector(Kind.INTERVAL, interval_of(self.whole(amount), unit_of(unit)))

    def units(self, expression: exp.Expr) -> Vector:
        return Vector(Kind.INTERVAL, interval_of(self.whole(expression.this), "DAY"))

    def minus(self, expression: exp.Expr) -> Vector:
        operand = self.number(expression.this)
        return Vector(operand.kind, -operand.values, operand.nulls)

    def cast(self, expression: exp.Expr) -> Vector:
        kind = cast_kind(expression.args["to"])
        operand = self.value(expression.this)
        if kind is None:
            raise NotEvaluable(expression.args["to"].sql())
        return self._as(operand, kind)

    def _as(self, operand: Vector, kind: Kind) -> Vector:
        if operand.kind is Kind.NULL or operand.kind is kind:
            return operand
        values = operand.values
        match operand.kind, kind:
            case (Kind.TEXT, Kind.INTERVAL) if operand.is_constant and operand.item() is not None:
                return interval_text(operand.item())
            case (Kind.TEXT, _):
                return from_text(operand, kind)
            case (Kind.BOOLEAN | Kind.INTEGER | Kind.DECIMAL | Kind.DOUBLE, Kind.DECIMAL | Kind.DOUBLE):
                return Vector(kind, np.asarray(values, dtype=np.float64), operand.nulls)
            case (Kind.INTEGER | Kind.DECIMAL | Kind.DOUBLE, Kind.BOOLEAN):
                return Vector(kind, values != 0.0, operand.nulls)
            case (Kind.BOOLEAN, Kind.INTEGER):
                return Vector(kind, np.asarray(values, dtype=np.float64), operand.nulls)
            case (Kind.DECIMAL | Kind.DOUBLE, Kind.INTEGER):
                if self._dialect != "duckdb":
                    return Vector(kind, np.trunc(values), operand.nulls)
                whole = np.rint(values) if operand.kind is Kind.DOUBLE else rounded(values, 0)
                return Vector(kind, whole, operand.nulls)
            case (Kind.DATE, Kind.TIMESTAMP):
                return Vector(kind, values * DAY_US, operand.nulls)
            case (Kind.TIMESTAMP, Kind.DATE):
                return Vector(kind, np.floor(values / DAY_US), operand.nulls)
            case (Kind.INTEGER, Kind.TEXT):
                return mapped(operand, kind, lambda value: str(int(value)))
            case (Kind.DATE, Kind.TEXT):
                return mapped(operand, kind, lambda value: str(np.datetime64(int(value), "D")))
            case (Kind.BOOLEAN, Kind.TEXT):
                return mapped(operand, kind, lambda value: "true" if value else "false")
        raise NotEvaluable(f"{operand.kind.value} as {kind.value}")

    def date(self, expression: exp.Expr) -> Vector:
        if expression.args.get("expressions") or expression.args.get("zone") or expression.args.get("format"):
            raise NotEvaluable("date")
        return self._as(self.value(expression.this), Kind.DATE)

    def extract(self, expression: exp.Expr) -> Vector:
        return self._part(unit_of(expression.this), self.time(expression.expression))

    def date_part(self, expression: exp.Expr) -> Vector:
        return self._part(_PARTS[type(expression)], self.time(expression.this))

    def _part(self, part: str, time: Vector) -> Vector:
        if time.kind is Kind.NULL:
            return time
        us = np.asarray(time.values * DAY_US if time.kind is Kind.DATE else time.values)
        days = np.floor(us / DAY_US)
        months = months_of(us)
        match part:
            case "YEAR":
                values = np.floor(months / 12) + 1970
            case "QUARTER":
                values = np.floor(months % 12 / 3) + 1
            case "MONTH":
                values = months % 12 + 1
            case "DAY" | "DAYOFMONTH":
                values = days - days_of_months(months) + 1
            case "DOY" | "DAYOFYEAR":
                values = days - days_of_months(np.floor(months / 12) * 12) + 1
            case "DOW" | "DAYOFWEEK":
                values = (days + 4) % 7 + (0.0 if self._dialect == "duckdb" else 1.0)
            case "HOUR":
                values = np.floor(us / 3_600e6) % 24
            case "MINUTE":
                values = np.floor(us / 60e6) % 60
            case "SECOND":
                values = np.floor(us / 1e6) % 60
            case _:
                raise NotEvaluable(part)
        return Vector(Kind.INTEGER, values, time.nulls)

    def truncation(self, expression: exp.Expr) -> Vector:
        time = self.time(expression.this)
        if time.kind is Kind.NULL:
            return time
        return Vector(
            Kind.TIMESTAMP, truncated(time.values, time.kind, unit_of(expression.args.get("unit"))), time.nulls
        )

    def case(self, expression: exp.Expr) -> Vector:
        subject = expression.this
        result = self.value(expression.args["default"]) if expression.args.get("default") is not None else NULL
        for branch in reversed(expression.args["ifs"]):
            if subject is None:
                condition = self.boolean(branch.this)
            else:
                condition = compared(exp.EQ, self.value(subject), self.value(branch.this))
            result = either(condition, self.value(branch.args["true"]), result)
        return result

    def if_(self, expression: exp.Expr) -> Vector:
        otherwise = expression.args.get("false")
        condition = self.boolean(expression.this)
        return either(condition, self.value(expression.args["true"]), self.value(otherwise) if otherwise else NULL)

    def coalesce(self, expression: exp.Expr) -> Vector:
        options = [self.value(option) for option in (expression.this, *expression.expressions)]
        result = options[-1]
        for option in reversed(options[:-1]):
            result = either(Vector(Kind.BOOLEAN, np.logical_not(option.nulls)), option, result)
        return result

    def null_if(self, expression: exp.Expr) -> Vector:
        value = self.value(expression.this)
        return either(compared(exp.EQ, value, self.value(expression.expression)), NULL, value)

    def extreme(self, expression: exp.Expr) -> Vector:
        options = [self.number(option) for option in (expression.this, *expression.expressions)]
        pick = np.fmax if isinstance(expression, exp.Greatest) else np.fmin
        if self._dialect == "duckdb":  # NULLs are ignored
            values = reduce(pick, (np.where(o.nulls, np.nan, o.values) for o in options))
            nulls = reduce(np.logical_and, (o.nulls for o in options))
            return Vector(Kind.DOUBLE, np.where(nulls, 0.0, values), nulls)
        values = reduce(pick, (o.values for o in options))
        return Vector(Kind.DOUBLE, values, reduce(np.logical_or, (o.nulls for o in options)))

    def of_number(self, expression: exp.Expr) -> Vector:
        operand = self.number(expression.this)
        if operand.kind is Kind.NULL:
            return operand
        match expression:
            case exp.Abs():
                return Vector(operand.kind, np.abs(operand.values), operand.nulls)
            case exp.Floor() if expression.args.get("decimals") is None and expression.args.get("to") is None:
                return Vector(operand.kind, np.floor(operand.values), operand.nulls)
            case exp.Ceil() if expression.args.get("decimals") is None and expression.args.get("to") is None:
                return Vector(operand.kind, np.ceil(operand.values), operand.nulls)
            case exp.Round():
                decimals = self.whole(expression.args["decimals"]) if expression.args.get("decimals") else 0
                return Vector(operand.kind, rounded(operand.values, decimals), operand.nulls)
            case exp.Sqrt() if not np.any((operand.values < 0.0) & np.logical_not(operand.nulls)):
                return Vector(Kind.DOUBLE, np.sqrt(operand.values), operand.nulls)
            case exp.IsNan():
                return Vector(Kind.BOOLEAN, np.isnan(operand.values), operand.nulls)
        raise NotEvaluable(type(expression).__name__)

    def power(self, expression: exp.Expr) -> Vector:
        base, exponent = self.number(expression.this), self.number(expression.expression)
        return Vector(Kind.DOUBLE, np.power(base.values, exponent.values), np.logical_or(base.nulls, exponent.nulls))

    def changed(self, expression: exp.Expr) -> Vector:
        change = _CHANGES[type(expression)]
        if expression.args.get("expression") is not None or expression.args.get("position") is not None:
            raise NotEvaluable(type(expression).__name__)
        kind = Kind.INTEGER if isinstance(expression, exp.Length) else Kind.TEXT
        return mapped(self.text(expression.this), kind, change)

    def substring(self, expression: exp.Expr) -> Vector:
        start = self.whole(expression.args["start"]) if expression.args.get("start") else 1
        length = self.whole(expression.args["length"]) if expression.args.get("length") else None
        if start < 1 or (length is not None and length < 0):
            raise NotEvaluable("substring")
        end = None if length is None else start - 1 + length
        return mapped(self.text(expression.this), Kind.TEXT, lambda value: value[start - 1 : end])

    def side(self, expression: exp.Expr) -> Vector:
        size = self.whole(expression.expression)
        if size < 1:
            raise NotEvaluable("length")
        cut: Callable[[str], str] = (lambda v: v[:size]) if isinstance(expression, exp.Left) else (lambda v: v[-size:])
        return mapped(self.text(expression.this), Kind.TEXT, cut)

    def replaced(self, expression: exp.Expr) -> Vector:
        old = self.constant_text(expression.expression)
        new = self.constant_text(expression.args.get("replacement"))
        if not old:
            raise NotEvaluable("replace")
        return mapped(self.text(expression.this), Kind.TEXT, lambda value: value.replace(old, new))

    def position(self, expression: exp.Expr) -> Vector:
        if expression.args.get("position") is not None or expression.args.get("occurrence") is not None:
            raise NotEvaluable("position")
        part = self.constant_text(expression.args["substr"])
        return mapped(self.text(expression.this), Kind.INTEGER, lambda value: value.find(part) + 1)

    def joined(self, expression: exp.Expr) -> Vector:
        items = expression.expressions if isinstance(expression, exp.Concat) else list(expression.flatten())
        parts = [self._as(self.value(item), Kind.TEXT) for item in items]
        if isinstance(expression, exp.Concat) and expression.args.get("coalesce"):
            parts = [either(Vector(Kind.BOOLEAN, np.logical_not(part.nulls)), part, text_value("")) for part in parts]
        if any(part.kind is Kind.NULL for part in parts):
            return NULL
        texts = reduce(operator.add, (np.asarray(part.values, dtype=object) for part in parts))
        return Vector(Kind.TEXT, np.asarray(texts, dtype=object), reduce(np.logical_or, (p.nulls for p in parts)))

    def named(self, expression: exp.Expr) -> Vector:
        """Evaluate functions without a class in the parser."""
        arguments = expression.expressions
        match str(expression.this).lower(), len(arguments):
            case ("prefix" | "suffix") as name, 2:
                part = self.constant_text(arguments[1])
                test = str.startswith if name == "prefix" else str.endswith
                return mapped(self.text(arguments[0]), Kind.BOOLEAN, lambda value: test(value, part))
            case "date_part", 2:
                return self._part(unit_of(exp.var(self.constant_text(arguments[0]))), self.time(arguments[1]))
            case "zeroifnull", 1:
                return self.coalesce(exp.Coalesce(this=arguments[0], expressions=[exp.Literal.number(0)]))
            case "isnull", 2:
                return self.coalesce(exp.Coalesce(this=arguments[0], expressions=[arguments[1]]))
        raise NotEvaluable(str(expression.this))


def _distinct_values(column: SampleColumn) -> SampleColumn:
    """Return a column with each distinct value once, and NULL."""
    return SampleColumn(column.packed, np.arange(column.size + 1, dtype=np.uint32))


@lru_cache(maxsize=512)
def _is_cut(column: SampleColumn) -> bool:
    return sum(len(text) >= WHOLE_TEXT for text in column.values.tolist()) > MOST_CUT * column.size


def _column_name(name: str, types: Mapping[str, str]) -> str | None:
    if name in types:
        return name
    return next((column for column in types if column.lower() == name.lower()), None)


_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "YEAR",
    exp.Quarter: "QUARTER",
    exp.Month: "MONTH",
    exp.Day: "DAY",
    exp.DayOfMonth: "DAY",
    exp.DayOfWeek: "DOW",
    exp.DayOfYear: "DOY",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
    exp.Second: "SECOND",
}
_CHANGES: dict[type[exp.Expr], Callable[[str], Any]] = {
    exp.Lower: str.lower,
    exp.Upper: str.upper,
    exp.Length: len,
    exp.Trim: lambda value: value.strip(" "),
    exp.Reverse: lambda value: value[::-1],
}
_HANDLERS: dict[type[exp.Expr], Callable[[_Evaluator, Any], Vector]] = {
    exp.Paren: _Evaluator.unnest,
    exp.Column: _Evaluator.column,
    exp.Literal: _Evaluator.literal,
    exp.Boolean: _Evaluator.boolean_literal,
    exp.Null: lambda _, __: NULL,
    exp.And: _Evaluator.conjunction,
    exp.Or: _Evaluator.disjunction,
    exp.Not: _Evaluator.negation,
    exp.Is: _Evaluator.is_,
    **dict.fromkeys(OPERATORS, _Evaluator.comparison),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _Evaluator.null_safe),
    exp.Between: _Evaluator.between,
    exp.In: _Evaluator.one_of,
    **dict.fromkeys((exp.Like, exp.ILike), _Evaluator.like),
    exp.Escape: _Evaluator.escaped,
    **dict.fromkeys((exp.RegexpLike, exp.RegexpILike, exp.RegexpFullMatch, exp.SimilarTo), _Evaluator.matches),
    **dict.fromkeys((exp.StartsWith, exp.EndsWith, exp.Contains), _Evaluator.part_of_text),
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv), _Evaluator.arithmetic),
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.TimestampAdd, exp.TimestampSub), _Evaluator.added),
    exp.TsOrDsAdd: _Evaluator.added,
    exp.DateDiff: _Evaluator.difference,
    exp.Interval: _Evaluator.interval,
    exp.ToDays: _Evaluator.units,
    exp.Neg: _Evaluator.minus,
    exp.Cast: _Evaluator.cast,
    **dict.fromkeys((exp.Date, exp.TsOrDsToDate), _Evaluator.date),
    exp.Extract: _Evaluator.extract,
    **dict.fromkeys(_PARTS, _Evaluator.date_part),
    **dict.fromkeys((exp.TimestampTrunc, exp.DateTrunc), _Evaluator.truncation),
    exp.Case: _Evaluator.case,
    exp.If: _Evaluator.if_,
    exp.Coalesce: _Evaluator.coalesce,
    exp.Nullif: _Evaluator.null_if,
    **dict.fromkeys((exp.Greatest, exp.Least), _Evaluator.extreme),
    **dict.fromkeys((exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Sqrt, exp.IsNan), _Evaluator.of_number),
    exp.Pow: _Evaluator.power,
    **dict.fromkeys(_CHANGES, _Evaluator.changed),
    exp.Substring: _Evaluator.substring,
    **dict.fromkeys((exp.Left, exp.Right), _Evaluator.side),
    exp.Replace: _Evaluator.replaced,
    exp.StrPosition: _Evaluator.position,
    **dict.fromkeys((exp.Concat, exp.DPipe), _Evaluator.joined),
    exp.Anonymous: _Evaluator.named,
}
