"""Selectivity of predicates on one table (the paper's Eqs. (2) and (3), and equi-height histograms).

Conjuncts on one column are taken together as one interval; different columns are taken as independent, and each
such assumption lowers the confidence. A predicate that no statistic answers keeps all rows: that errs towards
more memory, never towards less.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from selector.statistics import ColumnStatistics, Histogram, Key, Literal, TableStatistics, as_key

UNANSWERED_CONFIDENCE = 0.6  # a predicate about which nothing is known
INDEPENDENCE_CONFIDENCE = 0.9  # two columns multiplied as if they had nothing to do with each other
UNIFORM_CONFIDENCE = 0.9  # Eq. (2), Eq. (3): every value, every part of the range, equally likely


@dataclass(frozen=True, slots=True)
class Selectivity:
    """Share of rows kept, 0..1; how far to trust it, 0..1; the statistics that it rests on."""

    share: float
    confidence: float = 1.0
    basis: str = ""
    unanswered: tuple[str, ...] = ()


@dataclass(slots=True)
class _Interval:
    """Bounds that conjuncts put on one column, on its type's line."""

    low: Key | None = None
    high: Key | None = None
    low_inclusive: bool = True
    high_inclusive: bool = True
    texts: list[str] = field(default_factory=list)

    def raise_low(self, value: Key, *, inclusive: bool) -> None:
        if self.low is None or (value, not inclusive) > (self.low, not self.low_inclusive):
            self.low, self.low_inclusive = value, inclusive

    def lower_high(self, value: Key, *, inclusive: bool) -> None:
        if self.high is None or (value, inclusive) < (self.high, self.high_inclusive):
            self.high, self.high_inclusive = value, inclusive


_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


def selectivity(predicates: Sequence[str], statistics: TableStatistics | None, *, dialect: str) -> Selectivity:
    """Return the share of a table's rows that all predicates (SQL texts, ANDed) keep."""
    conjuncts: list[exp.Expr] = []
    unread: list[str] = []
    for text in predicates:
        try:
            conjuncts += _conjuncts(sqlglot.parse_one(text, read=dialect))
        except SqlglotError:
            unread.append(text)
    parts = [_unanswered(text) for text in unread] + _all_of(conjuncts, statistics)
    return _independent(parts)


def _conjuncts(expression: exp.Expr) -> list[exp.Expr]:
    expression = expression.unnest()
    if isinstance(expression, exp.And):
        return _conjuncts(expression.this) + _conjuncts(expression.expression)
    if isinstance(expression, exp.Between):
        column, low, high = expression.this, expression.args["low"], expression.args["high"]
        return [exp.GTE(this=column, expression=low), exp.LTE(this=column.copy(), expression=high)]
    return [expression]


def _all_of(conjuncts: Iterable[exp.Expr], statistics: TableStatistics | None) -> list[Selectivity]:
    """Return one part per column that has bounds, and one per other predicate."""
    intervals: dict[str, tuple[ColumnStatistics, _Interval]] = {}
    others: list[Selectivity] = []
    for conjunct in conjuncts:
        comparison = _comparison(conjunct, statistics)
        if comparison is not None and type(conjunct) in _MIRRORED:
            column, kind, value = comparison
            _, interval = intervals.setdefault(column.name, (column, _Interval()))
            interval.texts.append(conjunct.sql())
            if kind in (exp.LT, exp.LTE):
                interval.lower_high(value, inclusive=kind is exp.LTE)
            else:
                interval.raise_low(value, inclusive=kind is exp.GTE)
        else:
            others.append(_one(conjunct, statistics))
    rows = statistics.rows if statistics else 0
    return [_range(column, interval, rows) for column, interval in intervals.values()] + others


def _one(predicate: exp.Expr, statistics: TableStatistics | None) -> Selectivity:
    predicate = predicate.unnest()
    rows = statistics.rows if statistics else 0
    match predicate:
        case exp.And():
            return _independent(_all_of(_conjuncts(predicate), statistics))
        case exp.Or():
            return _either(_one(predicate.this, statistics), _one(predicate.expression, statistics))
        case exp.Not():
            kept = _one(predicate.this, statistics)
            return kept if kept.unanswered else Selectivity(1.0 - kept.share, kept.confidence, kept.basis)
        case exp.Boolean():
            return Selectivity(1.0 if predicate.this else 0.0, basis="constant")
        case exp.Is() if isinstance(predicate.expression, exp.Null):
            column = _column(predicate.this, statistics)
            if column is not None:
                return Selectivity(_null_share(column, rows), basis=f"nulls of {column.name}")
        case exp.EQ() | exp.NEQ():
            column, value = _column_and_literal(predicate, statistics)
            if column is not None and value is not None:
                equal = _equals(column, value, rows)
                if isinstance(predicate, exp.EQ):
                    return equal
                share = max(0.0, 1.0 - _null_share(column, rows) - equal.share)
                return Selectivity(share, equal.confidence, equal.basis)
        case exp.In() if predicate.expressions:
            column = _column(predicate.this, statistics)
            values = [_literal(item) for item in predicate.expressions]
            if column is not None and all(value is not None for value in values):
                each = [_equals(column, value, rows) for value in set(values) if value is not None]
                share = min(1.0 - _null_share(column, rows), sum(part.share for part in each))
                return Selectivity(max(0.0, share), min(p.confidence for p in each), each[0].basis)
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            if _comparison(predicate, statistics) is not None:
                return _independent(_all_of([predicate], statistics))
    return _unanswered(predicate.sql())


def _independent(parts: Sequence[Selectivity]) -> Selectivity:
    share, confidence = 1.0, 1.0
    for part in parts:
        share *= part.share
        confidence *= part.confidence
    answered = sum(1 for part in parts if not part.unanswered and part.share < 1.0)
    if answered > 1:
        confidence *= INDEPENDENCE_CONFIDENCE ** (answered - 1)
    basis = "; ".join(dict.fromkeys(part.basis for part in parts if part.basis))
    return Selectivity(share, confidence, basis, tuple(text for part in parts for text in part.unanswered))


def _either(left: Selectivity, right: Selectivity) -> Selectivity:
    share = min(1.0, left.share + right.share - left.share * right.share)
    basis = "; ".join(dict.fromkeys(part.basis for part in (left, right) if part.basis))
    return Selectivity(share, left.confidence * right.confidence, basis, (*left.unanswered, *right.unanswered))


def _unanswered(text: str) -> Selectivity:
    return Selectivity(1.0, UNANSWERED_CONFIDENCE, f"no statistic answers {text}", (text,))


def _range(column: ColumnStatistics, interval: _Interval, rows: int) -> Selectivity:
    present = 1.0 - _null_share(column, rows)
    if column.histogram is not None:
        histogram = column.histogram
        high = 1.0 if interval.high is None else _up_to(histogram, interval.high, interval.high_inclusive)
        low = 0.0 if interval.low is None else _up_to(histogram, interval.low, not interval.low_inclusive)
        return Selectivity(max(0.0, high - low) * present, basis=f"histogram of {column.name}")
    if isinstance(column.minimum, float | int) and isinstance(column.maximum, float | int):
        high = _linear(interval.high, column.minimum, column.maximum) if isinstance(interval.high, float) else 1.0
        low = _linear(interval.low, column.minimum, column.maximum) if isinstance(interval.low, float) else 0.0
        share = max(0.0, high - low) * present  # Eq. (3)
        return Selectivity(share, UNIFORM_CONFIDENCE, f"range of {column.name}")
    return _unanswered(" AND ".join(interval.texts))


def _up_to(histogram: Histogram, x: Key, inclusive: bool) -> float:
    return histogram.share_up_to(x) if inclusive else histogram.share_below(x)


def _linear(x: float, minimum: float, maximum: float) -> float:
    """Eq. (3): share of a uniform column below x."""
    if maximum <= minimum:
        return 1.0 if x > minimum else 0.0
    return min(1.0, max(0.0, (x - minimum) / (maximum - minimum)))


def _equals(column: ColumnStatistics, value: Literal, rows: int) -> Selectivity:
    """Eq. (2): 1 / NDV; a value that fills histogram endpoints is popular and has its own share."""
    present = 1.0 - _null_share(column, rows)
    key = as_key(value, column.data_type)
    if column.histogram is not None and key is not None:
        below, up_to = column.histogram.share_below(key), column.histogram.share_up_to(key)
        if up_to <= 0.0 or below >= 1.0:
            return Selectivity(0.0, basis=f"histogram of {column.name}")
        popular = up_to - below
        if popular > 0.0:
            return Selectivity(popular * present, basis=f"histogram of {column.name}")
    if column.ndv <= 0:
        return Selectivity(0.0, basis=f"NDV of {column.name}")
    return Selectivity(present / column.ndv, UNIFORM_CONFIDENCE, f"NDV of {column.name}")


def _null_share(column: ColumnStatistics, rows: int) -> float:
    return column.nulls / rows if rows else 0.0


def _comparison(
    predicate: exp.Expr, statistics: TableStatistics | None
) -> tuple[ColumnStatistics, type[exp.Expr], Key] | None:
    """Return (column, comparison as if the column stood left, value on its line)."""
    if type(predicate) not in _MIRRORED:
        return None
    column, value = _column_and_literal(predicate, statistics)
    if column is None or value is None:
        return None
    key = as_key(value, column.data_type)
    if key is None or (column.histogram is None and not isinstance(column.minimum, float | int)):
        return None
    kind = type(predicate)
    turned = _literal(predicate.this) is not None
    return column, _MIRRORED[kind] if turned else kind, key


def _column_and_literal(
    predicate: exp.Expr, statistics: TableStatistics | None
) -> tuple[ColumnStatistics | None, Literal | None]:
    left, right = predicate.this, predicate.expression
    column = _column(left, statistics)
    if column is not None:
        return column, _literal(right)
    return _column(right, statistics), _literal(left)


def _column(expression: exp.Expr, statistics: TableStatistics | None) -> ColumnStatistics | None:
    expression = expression.unnest()
    while isinstance(expression, exp.Cast) and expression.find(exp.Column):
        expression = expression.this.unnest()
    if statistics is None or not isinstance(expression, exp.Column):
        return None
    return statistics.columns.get(expression.name)


def _literal(expression: exp.Expr) -> Literal | None:
    expression = expression.unnest()
    match expression:
        case exp.Neg():
            value = _literal(expression.this)
            return -value if isinstance(value, int | float | Decimal) else None
        case exp.Cast() if isinstance(expression.this.unnest(), exp.Literal | exp.Neg):
            return _literal(expression.this)
        case exp.Boolean():
            return bool(expression.this)
        case exp.Literal() if expression.is_string:
            return str(expression.this)
        case exp.Literal():
            number = Decimal(expression.this)
            return int(number) if number == number.to_integral_value() else number
        case exp.Date() | exp.TsOrDsToDate() if expression.this is not None:
            value = _literal(expression.this)
            return dt.date.fromisoformat(value) if isinstance(value, str) else None
    return None
