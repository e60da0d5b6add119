"""Vectors of SQL values: kinds, comparisons, three-valued logic and calendar.

Values are on the lines of ``selector.statistics``: dates are days, timestamps microseconds, and strings are themselves.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from selector.statistics import as_number
from selector.types import Group, kind_named

DAY_US = 86_400_000_000.0
FARTHEST_DAY = 1e8  # days from 1970, limit of the calendar
MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_MICROSECONDS = {
    "WEEK": 7 * DAY_US,
    "DAY": DAY_US,
    "HOUR": 3_600e6,
    "MINUTE": 60e6,
    "SECOND": 1e6,
    "MILLISECOND": 1e3,
    "MICROSECOND": 1.0,
}

Bools = NDArray[np.bool_]


class Kind(Enum):
    """Kind of a value, which decides its line."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    DECIMAL = "decimal"
    DOUBLE = "double"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TEXT = "text"
    INTERVAL = "interval"

    @property
    def is_number(self) -> bool:
        """Tell whether its values are on the line of numbers; booleans are, as 0 or 1."""
        return self in (Kind.BOOLEAN, Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """Value per row, or one for all rows.

    values: shape (rows,) or (), undefined for NULLs; float64, bool for BOOLEAN, objects for TEXT, and a pair (months,
    microseconds) for INTERVAL.
    nulls: shape (rows,) or (), True for NULL.
    """

    kind: Kind
    values: Any
    nulls: Any = np.False_

    @property
    def is_constant(self) -> bool:
        """Tell whether it is one value for all rows."""
        return np.ndim(self.values) == 0 or self.kind is Kind.INTERVAL

    def item(self) -> Any:
        """Return a constant's value; None for NULL."""
        return None if self.kind is Kind.NULL or bool(self.nulls) else np.asarray(self.values).item()


NULL = Vector(Kind.NULL, np.float64(0.0), np.True_)


class NotEvaluable(Exception):
    """An expression has a part that is not supported here."""


def kind_of(data_type: str) -> Kind | None:
    """Return the kind of a column's values; None: not supported. data_type: Spark's short form."""
    type_kind = kind_named(data_type.partition(" ")[0])
    return _OF_GROUP.get(type_kind.row.group) if type_kind is not None else None


_OF_GROUP: Mapping[Group, Kind] = {
    Group.BOOLEAN: Kind.BOOLEAN,
    Group.WHOLE: Kind.INTEGER,
    Group.FLOATING: Kind.DOUBLE,
    Group.DECIMAL: Kind.DECIMAL,
    Group.TEXT: Kind.TEXT,
    Group.DATE: Kind.DATE,
    Group.MOMENT: Kind.TIMESTAMP,
}


def cast_kind(to: exp.Expr) -> Kind | None:
    """Return the kind of a cast's values; None: not supported."""
    if not isinstance(to, exp.DataType):
        return None
    if to.this in exp.DataType.INTEGER_TYPES:
        return Kind.INTEGER
    if to.this in exp.DataType.TEXT_TYPES:
        return Kind.TEXT
    name = to.this.name if isinstance(to.this, Enum) else str(to.this)
    if name.startswith("TIMESTAMP") or name == "DATETIME":
        return Kind.TIMESTAMP
    return {
        "BOOLEAN": Kind.BOOLEAN,
        "DECIMAL": Kind.DECIMAL,
        "FLOAT": Kind.DOUBLE,
        "DOUBLE": Kind.DOUBLE,
        "DATE": Kind.DATE,
        "INTERVAL": Kind.INTERVAL,
    }.get(name)


def unit_of(unit: exp.Expr | None) -> str:
    """Return the name of a unit of time, singular and in upper case."""
    text = str(unit.this if isinstance(unit, exp.Var | exp.Literal) else unit or "DAY").upper()
    return {"MM": "MONTH", "MON": "MONTH", "YYYY": "YEAR", "YY": "YEAR", "DD": "DAY", "Q": "QUARTER"}.get(
        text, text.removesuffix("S")
    )


def interval_of(amount: float, unit: str) -> tuple[float, float]:
    """Return an interval as (months, microseconds). Raises NotEvaluable."""
    if unit in MONTHS:
        return amount * MONTHS[unit], 0.0
    if unit in _MICROSECONDS:
        return 0.0, amount * _MICROSECONDS[unit]
    raise NotEvaluable(unit)


def truncated(days_or_us: Any, kind: Kind, unit: str) -> Any:
    """Return the beginning of the unit in which each date or timestamp lies, as microseconds. Raises NotEvaluable."""
    us = np.floor(days_or_us * DAY_US if kind is Kind.DATE else days_or_us)
    if unit == "WEEK":  # 1970-01-01 was a Thursday
        return np.floor((us + 3 * DAY_US) / (7 * DAY_US)) * (7 * DAY_US) - 3 * DAY_US
    if unit in MONTHS:
        months = np.floor(months_of(us) / MONTHS[unit]) * MONTHS[unit]
        return days_of_months(months) * DAY_US
    if unit in _MICROSECONDS:
        return np.floor(us / _MICROSECONDS[unit]) * _MICROSECONDS[unit]
    raise NotEvaluable(unit)


def shifted(us: Any, months: float, microseconds: float) -> Any:
    """Add an interval to timestamps; a day that a month does not have becomes its last one."""
    if months:
        first = truncated(us, Kind.TIMESTAMP, "MONTH")
        index = months_of(us) + months
        length = days_of_months(index + 1) - days_of_months(index)
        day = np.floor((us - first) / DAY_US)
        time = us - first - day * DAY_US
        us = (days_of_months(index) + np.minimum(day, length - 1)) * DAY_US + time
    return us + microseconds


def months_of(us: Any) -> Any:
    """Return the months since 1970-01 of timestamps. Raises NotEvaluable far beyond the calendar."""
    days = np.floor(np.asarray(us) / DAY_US)
    if not np.all(np.abs(days) <= FARTHEST_DAY):
        raise NotEvaluable("a time far away")
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(np.float64)


def days_of_months(months: Any) -> Any:
    """Return the first day of months since 1970-01. Raises NotEvaluable far beyond the calendar."""
    if not np.all(np.abs(months) <= FARTHEST_DAY / 28):
        raise NotEvaluable("a month far away")
    return np.asarray(months).astype("datetime64[M]").astype("datetime64[D]").astype(np.float64)


@lru_cache(maxsize=64)
def every_row(count: int) -> tuple[Bools, NDArray[np.intp]]:
    """Return a mask that keeps all rows, and their numbers, both of shape (count,) and read-only."""
    mask, numbers = np.ones(count, dtype=np.bool_), np.arange(count)
    mask.flags.writeable = numbers.flags.writeable = False
    return mask, numbers


def all_of(lhs: Vector, rhs: Vector) -> Vector:
    """Return lhs AND rhs, three-valued."""
    lhs_false = np.logical_and(np.logical_not(lhs.values), np.logical_not(lhs.nulls))
    rhs_false = np.logical_and(np.logical_not(rhs.values), np.logical_not(rhs.nulls))
    false = np.logical_or(lhs_false, rhs_false)
    nulls = np.logical_and(np.logical_or(lhs.nulls, rhs.nulls), np.logical_not(false))
    return Vector(Kind.BOOLEAN, np.logical_not(np.logical_or(false, nulls)), nulls)


def not_(value: Vector) -> Vector:
    """Return NOT value, three-valued."""
    return Vector(Kind.BOOLEAN, np.logical_not(value.values), value.nulls)


def either(condition: Vector, then: Vector, otherwise: Vector) -> Vector:
    """Return ``then`` for rows whose condition is true, else ``otherwise``."""
    met = np.logical_and(condition.values, np.logical_not(condition.nulls))
    if then.kind is Kind.NULL and otherwise.kind is Kind.NULL:
        return NULL
    if then.kind is Kind.NULL:
        return Vector(otherwise.kind, otherwise.values, np.logical_or(met, otherwise.nulls))
    if otherwise.kind is Kind.NULL:
        return Vector(then.kind, then.values, np.logical_or(np.logical_not(met), then.nulls))
    then, otherwise = aligned(then, otherwise)
    kind = then.kind if then.kind is otherwise.kind else Kind.DOUBLE
    values = np.where(met, then.values, otherwise.values)
    return Vector(kind, values, np.where(met, then.nulls, otherwise.nulls))


def aligned(lhs: Vector, rhs: Vector) -> tuple[Vector, Vector]:
    """Return two vectors on one line; a constant string is converted to the other's kind. Raises NotEvaluable."""
    if lhs.kind is rhs.kind or (lhs.kind.is_number and rhs.kind.is_number) or Kind.NULL in (lhs.kind, rhs.kind):
        return lhs, rhs
    if rhs.kind is Kind.TEXT and rhs.is_constant:
        return lhs, from_text(rhs, lhs.kind)
    if lhs.kind is Kind.TEXT and lhs.is_constant:
        return from_text(lhs, rhs.kind), rhs
    if lhs.kind is Kind.DATE and rhs.kind is Kind.TIMESTAMP:
        return Vector(Kind.TIMESTAMP, lhs.values * DAY_US, lhs.nulls), rhs
    if lhs.kind is Kind.TIMESTAMP and rhs.kind is Kind.DATE:
        return lhs, Vector(Kind.TIMESTAMP, rhs.values * DAY_US, rhs.nulls)
    raise NotEvaluable(f"{lhs.kind.value} and {rhs.kind.value}")


OPERATORS: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}


def compared(kind: type[exp.Expr], lhs: Vector, rhs: Vector) -> Vector:
    """Return a comparison of two vectors. kind: its class. Raises NotEvaluable without a common line, and for NaN."""
    if Kind.NULL in (lhs.kind, rhs.kind):
        return Vector(Kind.BOOLEAN, np.False_, np.True_)
    lhs, rhs = aligned(lhs, rhs)
    a, b = lhs.values, rhs.values
    if lhs.kind is not Kind.TEXT:
        a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
        if np.isnan(a).any() or np.isnan(b).any():
            raise NotEvaluable("NaN")
    is_true = np.asarray(OPERATORS[kind](a, b), dtype=np.bool_)
    return Vector(Kind.BOOLEAN, is_true, np.logical_or(lhs.nulls, rhs.nulls))


def is_in(value: Vector, values: Sequence[Any]) -> Any:
    """Return True for each value that is in a list."""
    if value.kind is Kind.TEXT:
        texts = frozenset(values)
        return np.array([text in texts for text in np.atleast_1d(value.values)]).reshape(np.shape(value.values))
    return np.isin(np.asarray(value.values, dtype=np.float64), np.array(values, dtype=np.float64))


def mapped(vector: Vector, kind: Kind, change: Callable[[Any], Any]) -> Vector:
    """Return a function of each value, called once per distinct value. kind: of its results."""
    if vector.kind is Kind.NULL:
        return NULL
    dtype: Any = {Kind.BOOLEAN: np.bool_, Kind.TEXT: object}.get(kind, np.float64)
    values = np.atleast_1d(np.where(vector.nulls, "", vector.values) if vector.kind is Kind.TEXT else vector.values)
    changed = {value: change(value) for value in set(values.tolist())}
    result = np.empty(values.shape, dtype=dtype)
    result[:] = [changed[value] for value in values.tolist()]
    return Vector(kind, result.reshape(np.shape(vector.values)), vector.nulls)


def from_text(texts: Vector, kind: Kind) -> Vector:
    """Return strings converted to another kind, NULL for invalid ones. Raises NotEvaluable."""
    if kind not in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE, Kind.DATE, Kind.TIMESTAMP, Kind.BOOLEAN):
        raise NotEvaluable(kind.value)
    data_type = kind.value

    def read(text: str) -> float:
        if kind is Kind.BOOLEAN:
            return {"true": 1.0, "t": 1.0, "false": 0.0, "f": 0.0}.get(text.strip().lower(), np.nan)
        number = as_number(text, data_type)
        return np.nan if number is None else number

    read_values = mapped(texts, Kind.DOUBLE, read).values
    nulls = np.logical_or(texts.nulls, np.isnan(read_values))
    values = np.where(nulls, 0.0, read_values)
    if kind is Kind.INTEGER:
        values = np.trunc(values)
    return Vector(kind, values > 0.0 if kind is Kind.BOOLEAN else values, nulls)


def rounded(values: Any, decimals: int) -> Any:
    """Return values rounded, halves away from zero."""
    scale = 10.0**decimals
    return np.copysign(np.floor(np.abs(values) * scale + 0.5), values) / scale


def text_value(value: str) -> Vector:
    """Return a constant string."""
    array = np.empty((), dtype=object)
    array[()] = value
    return Vector(Kind.TEXT, array)


def interval_text(text: str) -> Vector:
    """Return an interval from text such as '3 days' or '1 year 2 months'. Raises NotEvaluable."""
    words = text.split()
    months = microseconds = 0.0
    if not words or len(words) % 2:
        raise NotEvaluable(text)
    for amount, unit in zip(words[::2], words[1::2], strict=True):
        try:
            more = interval_of(float(amount), unit_of(exp.var(unit)))
        except ValueError as error:
            raise NotEvaluable(text) from error
        months, microseconds = months + more[0], microseconds + more[1]
    return Vector(Kind.INTERVAL, (months, microseconds))
