"""Conjuncts of a predicate's text, and the domain of a column that a predicate is equivalent to.

A predicate over one column is a domain if it compares a monotone function of the column, or a piecewise monotone one:
``year(day) = 2020`` keeps the days between two cuts. Other predicates are evaluated on the sample.

The file is long because each kind of expression has an entry of a few lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from selector.cardinality.predicates.domains import TEXT_TOP, Cut, Domain, after_prefix
from selector.cardinality.predicates.evaluate import constant
from selector.cardinality.predicates.patterns import Like
from selector.cardinality.predicates.plain_text import read_plain
from selector.cardinality.predicates.vectors import (
    DAY_US,
    Kind,
    NotEvaluable,
    cast_kind,
    interval_of,
    kind_of,
    shifted,
    truncated,
    unit_of,
)
from selector.statistics import MOST_TEXT_BYTES, TEXT_KEY_BYTES, Key, as_key, as_text_key

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_PLAIN_PREFIX = re.compile(r"\^([\w \-]+)(\.\*)?\$?")
_POSITION = re.compile(r"#\[?\d")  # of an input, as DuckDB writes one that has no name
_JANUARY_1970 = 1970 * 12
_CONSTANT_OR_NULL = "constant_or_null"


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A predicate without AND at its top.

    columns: names of its columns, in lower case.
    alternatives: branches of an OR, each a conjunction; empty for any other predicate.
    """

    expression: exp.Expr
    columns: frozenset[str]
    dialect: str
    alternatives: tuple[tuple[Condition, ...], ...] = ()

    @property
    def text(self) -> str:
        """SQL text of the condition, in its dialect."""
        return self.expression.sql(dialect=self.dialect)


@lru_cache(maxsize=4096)
def parsed(text: str, dialect: str) -> tuple[Condition, ...] | None:
    """Return the conjuncts of a predicate; None for text that is no SQL expression."""
    expression = read_plain(text, dialect)
    if expression is None:
        try:
            expression = sqlglot.parse_one(text, read=dialect)
        except SqlglotError:
            return None
        if _CONSTANT_OR_NULL in text.lower():
            expression = expression.transform(_constant_or_null)
    return tuple(_condition(part, dialect) for part in _flat(_inward(expression, negated=False), exp.And))


def _constant_or_null(node: exp.Expr) -> exp.Expr:
    """Replace DuckDB's constant_or_null(constant, x) by a CASE: NULL where x is NULL, else the constant."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() != _CONSTANT_OR_NULL or len(node.expressions) < 2:
        return node
    constant_, column, *_ = node.expressions
    return exp.case().when(exp.Is(this=column, expression=exp.Null()), exp.Null()).else_(constant_)


@lru_cache(maxsize=4096)
def columns_in(text: str, dialect: str) -> tuple[str, ...] | None:
    """Return the distinct columns of a scalar expression; None for text that is none."""
    try:
        expression = sqlglot.parse_one(text, read=dialect)
    except SqlglotError:
        return None
    if expression.find(exp.AggFunc, exp.Query, exp.Window, exp.Parameter, exp.Placeholder) or _POSITION.search(text):
        return None
    return tuple(dict.fromkeys(column.name for column in expression.find_all(exp.Column)))


def _condition(expression: exp.Expr, dialect: str) -> Condition:
    if isinstance(expression, exp.Or):
        alternatives = tuple(
            tuple(_condition(part, dialect) for part in _flat(branch, exp.And)) for branch in _flat(expression, exp.Or)
        )
        columns = frozenset[str]().union(*(part.columns for branch in alternatives for part in branch))
        return Condition(expression, columns, dialect, alternatives)
    return Condition(expression, frozenset(column.name.lower() for column in columns_of(expression)), dialect)


def columns_of(expression: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns in an expression, in any order."""
    pending = [expression]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Column):
            yield node
        elif not isinstance(node, exp.Literal):
            pending.extend(node.iter_expressions())


def _flat(expression: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """Return the parts of an AND or OR, in order."""
    expression = expression.unnest()
    parts: list[exp.Expr] = []
    pending = [expression]
    while pending:
        part = pending.pop().unnest()
        if isinstance(part, kind):
            pending += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def _inward(expression: exp.Expr, *, negated: bool) -> exp.Expr:
    """Move NOT inward, past AND and OR."""
    expression = expression.unnest()
    if isinstance(expression, exp.Not):
        return _inward(expression.this, negated=not negated)
    if isinstance(expression, exp.And | exp.Or):
        is_and = isinstance(expression, exp.And) is not negated
        first, *others = (_inward(part, negated=negated) for part in _flat(expression, type(expression)))
        kind = exp.And if is_and else exp.Or
        return reduce(lambda tree, part: kind(this=tree, expression=_wrapped(part)), others, _wrapped(first))
    return exp.Not(this=expression) if negated else expression


def _wrapped(part: exp.Expr) -> exp.Expr:
    return exp.Paren(this=part) if isinstance(part, exp.Connector) else part


@lru_cache(maxsize=4096)
def domain_of(condition: Condition, data_type: str) -> Domain | None:
    """Return the domain that a condition on one column is equivalent to; None without one.

    data_type: of the column, Spark's short form.
    """
    kind = kind_of(data_type)
    if kind is None or len(condition.columns) != 1:
        return None
    try:
        return _Reader(data_type, kind, condition.dialect).read(condition.expression, negated=False)
    except (NotEvaluable, OverflowError):  # a constant beyond the calendar, or beyond floats
        return None


def truth_of(condition: Condition) -> bool | None:
    """Return the truth of a constant condition; None if it has columns or is not evaluable."""
    if condition.columns:
        return None
    value = constant(condition.expression, dialect=condition.dialect)
    if value is None or not value.is_constant or value.kind not in (Kind.BOOLEAN, Kind.NULL):
        return None
    return bool(value.item())


@dataclass(frozen=True, slots=True)
class _Image:
    """A function of the column.

    kind: of its values. preimage: maps a domain of its values to the domain of the column; None where there is none.
    """

    kind: Kind
    preimage: Callable[[Domain], Domain | None]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads predicates over one column of a type."""

    data_type: str
    kind: Kind
    dialect: str

    def read(self, expression: exp.Expr, *, negated: bool) -> Domain | None:
        expression = expression.unnest()
        match expression:
            case exp.Not():
                return self.read(expression.this, negated=not negated)
            case exp.And() | exp.Or():
                parts = [self.read(part, negated=negated) for part in _flat(expression, type(expression))]
                domains = [part for part in parts if part is not None]
                if len(domains) < len(parts):
                    return None
                both = isinstance(expression, exp.And) is not negated
                return Domain.all_of(domains) if both else Domain.any_of(domains)
            case exp.Boolean():
                return self._all_or_nothing(bool(expression.this) is not negated)
            case exp.Null():
                return self._all_or_nothing(False)
            case exp.Is():
                return self._is(expression, negated=negated)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                different = isinstance(expression, exp.NullSafeNEQ) is not negated
                return self._null_safe(expression, different=different)
            case exp.Between():
                low = exp.GTE(this=expression.this, expression=expression.args["low"])
                high = exp.LTE(this=expression.this, expression=expression.args["high"])
                ends = [self.read(end, negated=negated) for end in (low, high)]
                if ends[0] is None or ends[1] is None:
                    return None
                return ends[0] | ends[1] if negated else ends[0] & ends[1]
            case exp.In():
                return self._one_of(expression, negated=negated)
            case exp.Case() | exp.If():
                return self._cases(expression, negated=negated)
        if type(expression) in _COMPARISONS:
            return self._compared(expression, negated=negated)
        prefix = self._prefix(expression)
        if prefix is not None:
            return ~prefix if negated else prefix
        if isinstance(expression, exp.Column | exp.Cast):
            image = self.image(expression)
            if image is not None and image.kind is Kind.BOOLEAN:
                return image.preimage(Domain.where("=", 0.0 if negated else 1.0))
        return None

    def _all_or_nothing(self, everything: bool) -> Domain:
        text = self.kind is Kind.TEXT
        return Domain.everything(text=text, nulls=True) if everything else Domain.nothing(text=text)

    def _is(self, expression: exp.Expr, *, negated: bool) -> Domain | None:
        if isinstance(expression.expression, exp.Null):
            image = self.image(expression.this)
            if image is None:
                return None
            text = image.kind is Kind.TEXT
            return image.preimage(Domain.everything(text=text) if negated else Domain.nothing(text=text, nulls=True))
        if isinstance(expression.expression, exp.Boolean):
            domain = self.read(expression.this, negated=not expression.expression.this)
            return domain.otherwise() if domain is not None and negated else domain
        return None

    def _null_safe(self, expression: exp.Expr, *, different: bool) -> Domain | None:
        sides = self._sides(expression)
        if sides is None:
            return None
        image, value, _ = sides
        text = image.kind is Kind.TEXT
        same = Domain.nothing(text=text, nulls=True) if value is None else Domain.where("=", value)
        return image.preimage(same.otherwise() if different else same)

    def _compared(self, expression: exp.Expr, *, negated: bool) -> Domain | None:
        sides = self._sides(expression)
        if sides is None:
            return None
        image, value, turned = sides
        if value is None:
            return self._all_or_nothing(False)
        name = _COMPARISONS[type(expression)]
        name = _MIRRORED[name] if turned else name
        return image.preimage(Domain.where(_NEGATED[name] if negated else name, value))

    def _one_of(self, expression: exp.Expr, *, negated: bool) -> Domain | None:
        items = expression.expressions
        image = self.image(expression.this)
        if image is None or not items or expression.args.get("query") or expression.args.get("unnest"):
            return None
        values: list[Key] = []
        has_null = False
        for item in items:
            placed = self._place(item, image)
            if placed is None:
                return None
            image, value = placed
            if value is None:
                has_null = True
            else:
                values.append(value)
        if has_null and negated:
            return self._all_or_nothing(False)
        among = Domain.one_of(values, text=image.kind is Kind.TEXT)
        return image.preimage(~among if negated else among)

    def _cases(self, expression: exp.Expr, *, negated: bool) -> Domain | None:
        """Return the domain of a CASE whose branches are predicates."""
        unmatched = self._all_or_nothing(True)
        result_domain = self._all_or_nothing(False)
        for condition, result in _branches(expression):
            met = unmatched if condition is None else self.read(condition, negated=False)
            branch_domain = self.read(result, negated=negated)
            if met is None or branch_domain is None:
                return None
            result_domain |= unmatched & met & branch_domain
            unmatched &= met.otherwise()
        return result_domain

    def _prefix(self, expression: exp.Expr) -> Domain | None:
        """Return the domain of a pattern that is a constant or a prefix; None for any other expression."""
        prefix: str | None = None
        whole, negated = False, False
        match expression:
            case exp.Like() | exp.Escape():
                like = expression.this if isinstance(expression, exp.Escape) else expression
                escape: str | None = None if self.dialect == "duckdb" else "\\"
                if isinstance(expression, exp.Escape):
                    escape = self._text(expression.expression)
                pattern = self._text(like.expression) if isinstance(like, exp.Like) else None
                if pattern is None or not isinstance(like, exp.Like):
                    return None
                negated = bool(like.args.get("negate"))
                stem = Like(pattern, escape).stem
                if stem is None:
                    return None
                prefix, whole = stem
                subject = like.this
            case exp.StartsWith():
                prefix, subject = self._text(expression.expression), expression.this
            case exp.RegexpLike() if expression.args.get("flag") is None:
                plain = _PLAIN_PREFIX.fullmatch(self._text(expression.expression) or "")
                if plain is None or expression.expression.name.endswith("$"):
                    return None
                prefix, subject = plain[1], expression.this
            case exp.Anonymous() if str(expression.this).lower() == "prefix" and len(expression.expressions) == 2:
                prefix, subject = self._text(expression.expressions[1]), expression.expressions[0]
            case _:
                return None
        image = self.image(subject)
        if prefix is None or image is None or image.kind is not Kind.TEXT:
            return None
        if len(prefix.encode()) > MOST_TEXT_BYTES:
            return None
        key = as_text_key(prefix)
        domain = Domain.where("=", key) if whole else Domain.beginning_with(key)
        return image.preimage(~domain if negated else domain)

    def _text(self, expression: exp.Expr) -> str | None:
        value = constant(expression, dialect=self.dialect)
        return value.item() if value is not None and value.kind is Kind.TEXT and value.is_constant else None

    def _sides(self, comparison: exp.Expr) -> tuple[_Image, Key | None, bool] | None:
        """Return the function of the column, the constant on its line, and whether the constant is on the left."""
        lhs, rhs = comparison.this, comparison.expression
        turned = lhs.find(exp.Column) is None
        image = self.image(rhs if turned else lhs)
        placed = self._place(lhs if turned else rhs, image) if image is not None else None
        return (*placed, turned) if placed is not None else None

    def _place(self, expression: exp.Expr, image: _Image) -> tuple[_Image, Key | None] | None:
        """Return a constant on the line of a function's values, None for NULL; dates meet timestamps as timestamps."""
        value = constant(expression, dialect=self.dialect)
        if value is None or not value.is_constant or value.kind is Kind.INTERVAL:
            return None
        item = value.item()
        if item is None:
            return image, None
        if image.kind is Kind.DATE and value.kind is Kind.TIMESTAMP:
            return _Image(Kind.TIMESTAMP, _after(image, lambda us, side: (us / DAY_US, side))), float(item)
        if image.kind is Kind.TIMESTAMP and value.kind is Kind.DATE:
            return image, float(item) * DAY_US
        if value.kind is Kind.TEXT:
            key = as_key(item, "string" if image.kind is Kind.TEXT else image.kind.value)
            return (image, key) if key is not None else None
        if image.kind is value.kind or (image.kind.is_number and value.kind.is_number):
            return image, float(item)
        return None

    def image(self, expression: exp.Expr) -> _Image | None:
        """Return an expression as a function of the column; None if it has no preimages."""
        expression = expression.unnest()
        match expression:
            case exp.Column():
                return _Image(self.kind, lambda domain: domain)
            case exp.Cast():
                return self._cast(expression)
            case exp.Neg():
                return self._linear(expression.this, -1.0, 0.0)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.IntDiv():
                return self._arithmetic(expression)
            case exp.Date() | exp.TsOrDsToDate() if not expression.args.get("zone"):
                inner = self.image(expression.this)
                return self._to(inner, Kind.DATE) if inner is not None else None
            case exp.TsOrDsAdd() | exp.DateAdd() | exp.TimestampAdd():
                return self._moved_by_units(expression)
            case exp.Year():
                return self._years(expression.this)
            case exp.Extract() if unit_of(expression.this) == "YEAR":
                return self._years(expression.expression)
            case exp.Anonymous() if str(expression.this).lower() == "date_part" and len(expression.expressions) == 2:
                part = self._text(expression.expressions[0])
                return self._years(expression.expressions[1]) if part is not None and part.lower() == "year" else None
            case exp.TimestampTrunc() | exp.DateTrunc():
                return self._truncated(expression)
            case exp.Floor() | exp.Ceil() | exp.Round():
                return self._whole(expression)
            case exp.Abs():
                return self._magnitude(expression)
            case exp.Left() | exp.Substring():
                return self._beginning(expression)
            case exp.Coalesce():
                return self._coalesced(expression)
            case exp.Nullif():
                same = exp.EQ(this=expression.this, expression=expression.expression)
                return self._chosen([(same, exp.Null()), (None, expression.this)])
            case exp.Case() | exp.If():
                return self._chosen(_branches(expression))
        return None

    def _number(self, expression: exp.Expr) -> float | None:
        value = constant(expression, dialect=self.dialect)
        item = value.item() if value is not None and value.kind.is_number and value.is_constant else None
        return float(item) if item is not None else None

    def _linear(self, expression: exp.Expr, factor: float, offset: float) -> _Image | None:
        """Return factor * expression + offset."""
        inner = self.image(expression)
        if inner is None or not inner.kind.is_number:
            return None
        return _Image(
            inner.kind,
            _after(inner, lambda x, side: ((x - offset) / factor, side if factor > 0 else 1 - side), factor < 0),
        )

    def _arithmetic(self, expression: exp.Expr) -> _Image | None:
        lhs, rhs = expression.this, expression.expression
        lhs_is_constant = lhs.find(exp.Column) is None
        if (lhs_is_constant) == (rhs.find(exp.Column) is None):
            return None
        column, other = (rhs, lhs) if lhs_is_constant else (lhs, rhs)
        by = self._number(other)
        if by is None:
            return self._moved_by_interval(expression, column, other, lhs_is_constant=lhs_is_constant)
        inner = self.image(column)
        if inner is not None and inner.kind is Kind.DATE and isinstance(expression, exp.Add | exp.Sub):
            days = by if isinstance(expression, exp.Add) else -by
            return None if lhs_is_constant else _Image(Kind.DATE, _after(inner, lambda x, side: (x - days, side)))
        match expression:
            case exp.Add():
                return self._linear(column, 1.0, by)
            case exp.Sub():
                return self._linear(column, -1.0, by) if lhs_is_constant else self._linear(column, 1.0, -by)
            case exp.Mul() if by:
                return self._linear(column, by, 0.0)
            case exp.Div() if by and not lhs_is_constant:
                image = self._linear(column, 1.0 / by, 0.0)
                return _Image(Kind.DOUBLE, image.preimage) if image is not None else None
            case exp.IntDiv() if by > 0.0 and not lhs_is_constant:
                image = self._linear(column, 1.0 / by, 0.0)
                return _Image(Kind.INTEGER, _after(image, _truncation)) if image is not None else None
        return None

    def _moved_by_interval(
        self, expression: exp.Expr, column: exp.Expr, other: exp.Expr, *, lhs_is_constant: bool
    ) -> _Image | None:
        interval = constant(other, dialect=self.dialect)
        if interval is None or interval.kind is not Kind.INTERVAL or not isinstance(expression, exp.Add | exp.Sub):
            return None
        if isinstance(expression, exp.Sub) and lhs_is_constant:
            return None
        sign = 1.0 if isinstance(expression, exp.Add) else -1.0
        return self._moved(column, sign * interval.values[0], sign * interval.values[1])

    def _moved_by_units(self, expression: exp.Expr) -> _Image | None:
        by = self._number(expression.expression)
        if by is None:
            return self._moved_by_interval(exp.Add(), expression.this, expression.expression, lhs_is_constant=False)
        try:
            return self._moved(expression.this, *interval_of(by, unit_of(expression.args.get("unit"))))
        except NotEvaluable:
            return None

    def _moved(self, column: exp.Expr, months: float, microseconds: float) -> _Image | None:
        """Return a date or timestamp plus an interval. The inverse subtracts the months, which is approximate."""
        inner = self.image(column)
        if inner is None or inner.kind not in (Kind.DATE, Kind.TIMESTAMP):
            return None
        if inner.kind is Kind.DATE and microseconds % DAY_US == 0.0 and self.dialect != "duckdb":
            return _Image(
                Kind.DATE,
                _after(inner, lambda day, side: (float(shifted(day * DAY_US, -months, -microseconds)) / DAY_US, side)),
            )
        timed = self._to(inner, Kind.TIMESTAMP)
        if timed is None:
            return None
        return _Image(
            Kind.TIMESTAMP, _after(timed, lambda us, side: (float(shifted(us, -months, -microseconds)), side))
        )

    def _cast(self, expression: exp.Expr) -> _Image | None:
        inner, kind = self.image(expression.this), cast_kind(expression.args["to"])
        return self._to(inner, kind) if inner is not None and kind is not None else None

    def _to(self, inner: _Image, kind: Kind) -> _Image | None:
        if inner.kind is kind:
            return inner
        match inner.kind, kind:
            case (Kind.BOOLEAN | Kind.INTEGER, Kind.INTEGER | Kind.DECIMAL | Kind.DOUBLE):
                return _Image(kind, inner.preimage)
            case (Kind.DECIMAL | Kind.DOUBLE, Kind.DECIMAL | Kind.DOUBLE):
                return _Image(kind, inner.preimage)  # rounding is ignored
            case (Kind.DECIMAL | Kind.DOUBLE, Kind.INTEGER):
                return _Image(kind, _after(inner, _truncation if self.dialect != "duckdb" else _rounding(1.0)))
            case (Kind.DATE, Kind.TIMESTAMP):
                return _Image(kind, _after(inner, lambda us, side: (us / DAY_US, side)))
            case (Kind.TIMESTAMP, Kind.DATE):
                return _Image(kind, _after(inner, lambda day, side: (_whole_from(day, side) * DAY_US, 0)))
            case (Kind.TEXT, Kind.DATE):
                return _Image(kind, _after(inner, lambda day, side: (_iso(_whole_from(day, side)), 0), text=True))
            case (Kind.TEXT, Kind.TIMESTAMP):
                return _Image(kind, _after(inner, _iso_time, text=True))
            case (Kind.INTEGER, Kind.TEXT):
                return _Image(kind, _numbers_as_text(inner))
        return None

    def _years(self, expression: exp.Expr) -> _Image | None:
        inner = self.image(expression)
        timed = self._to(inner, Kind.TIMESTAMP) if inner is not None and inner.kind is not Kind.TEXT else None
        if timed is None:
            return None

        def start(year: float, side: int) -> Cut:
            return float(shifted(0.0, _whole_from(year, side) * 12 - _JANUARY_1970, 0.0)), 0

        return _Image(Kind.INTEGER, _after(timed, start))

    def _truncated(self, expression: exp.Expr) -> _Image | None:
        inner = self.image(expression.this)
        timed = self._to(inner, Kind.TIMESTAMP) if inner is not None and inner.kind is not Kind.TEXT else None
        unit = unit_of(expression.args.get("unit"))
        if timed is None:
            return None
        try:
            step = interval_of(1.0, unit)
            truncated(0.0, Kind.TIMESTAMP, unit)
        except NotEvaluable:
            return None

        def start(us: float, side: int) -> Cut:
            begin = float(truncated(us, Kind.TIMESTAMP, unit))
            return (begin if begin == us and not side else float(shifted(begin, *step))), 0

        return _Image(Kind.TIMESTAMP, _after(timed, start))

    def _whole(self, expression: exp.Expr) -> _Image | None:
        inner = self.image(expression.this)
        if inner is None or not inner.kind.is_number or expression.args.get("to") is not None:
            return None
        decimals = expression.args.get("decimals")
        digits = self._number(decimals) if decimals is not None else 0.0
        if digits is None:
            return None
        match expression:
            case exp.Floor() if decimals is None:
                return _Image(inner.kind, _after(inner, lambda x, side: (_whole_from(x, side), 0)))
            case exp.Ceil() if decimals is None:
                return _Image(inner.kind, _after(inner, lambda x, side: (_whole_from(x, side) - 1.0, 1)))
            case exp.Round():
                return _Image(inner.kind, _after(inner, _rounding(10.0**digits)))
        return None

    def _magnitude(self, expression: exp.Expr) -> _Image | None:
        inner = self.image(expression.this)
        if inner is None or not inner.kind.is_number:
            return None

        def preimage(domain: Domain) -> Domain | None:
            above = Domain(domain.cuts) & Domain.where(">=", 0.0)
            below = Domain(domain.cuts).mapped(lambda x, side: (_negative(x), 1 - side), falling=True)
            both = above | (below & Domain.where("<=", 0.0))
            return inner.preimage(Domain(both.cuts, domain.nulls))

        return _Image(inner.kind, preimage)

    def _beginning(self, expression: exp.Expr) -> _Image | None:
        """Return the function for a string's first characters."""
        if isinstance(expression, exp.Left):
            size = self._number(expression.expression)
        else:
            start, length = expression.args.get("start"), expression.args.get("length")
            first = self._number(start) if start is not None else None
            size = self._number(length) if length is not None and first == 1.0 else None
        inner = self.image(expression.this)
        if inner is None or inner.kind is not Kind.TEXT or size is None or not 1.0 <= size <= TEXT_KEY_BYTES / 4:
            return None
        characters = int(size)

        def place(key: Key, side: int) -> Cut:
            assert isinstance(key, bytes)
            text = key.decode("utf-8", "ignore")
            if len(text) < characters or (len(text) == characters and not side):
                return key, side
            return after_prefix(text[:characters].encode()) or (TEXT_TOP, 0)

        return _Image(Kind.TEXT, _after(inner, place, text=True))

    def _coalesced(self, expression: exp.Expr) -> _Image | None:
        options = [expression.this, *expression.expressions]
        present = [exp.Not(this=exp.Is(this=option.copy(), expression=exp.Null())) for option in options[:-1]]
        return self._chosen([*zip(present, options[:-1], strict=True), (None, options[-1])])

    def _chosen(self, branches: Sequence[tuple[exp.Expr | None, exp.Expr]]) -> _Image | None:
        """Return the function for the first branch whose condition holds; None: the condition of ELSE."""
        unmatched = self._all_or_nothing(True)
        parts: list[tuple[Domain, _Image | None, Key | None]] = []
        kind: Kind | None = None
        for condition, result in branches:
            met = unmatched if condition is None else self.read(condition, negated=False)
            if met is None:
                return None
            image = self.image(result) if result.find(exp.Column) else None
            value: Key | None = None
            if image is None:
                constant_value = constant(result, dialect=self.dialect)
                if constant_value is None or not constant_value.is_constant:
                    return None
                item = constant_value.item()
                value = as_text_key(item) if isinstance(item, str) else None if item is None else float(item)
                result_kind = constant_value.kind
            else:
                result_kind = image.kind
            if result_kind is not Kind.NULL:
                if kind is not None and result_kind is not kind and not (result_kind.is_number and kind.is_number):
                    return None
                kind = kind or result_kind
            parts.append((unmatched & met, image, value))
            unmatched &= met.otherwise()
        if kind is None:
            return None

        def preimage(domain: Domain) -> Domain | None:
            matching = self._all_or_nothing(False)
            for where, image, value in parts:
                if image is not None:
                    inner = image.preimage(domain)
                    if inner is None:
                        return None
                    matching |= where & inner
                elif domain.nulls if value is None else domain.holds(value):
                    matching |= where
            return matching

        return _Image(kind, preimage)


def _after(
    inner: _Image,
    place: Callable[[float, int], Cut] | Callable[[Key, int], Cut],
    falling: bool = False,
    *,
    text: bool = False,
) -> Callable[[Domain], Domain | None]:
    """Return the preimage of a monotone function applied to ``inner``: its domains, as domains of the column.

    place: the cut of the function's arguments for a cut of its values. falling: the function falls. text: its
    arguments are strings.
    """
    return lambda domain: inner.preimage(domain.mapped(place, falling=falling, text=text))  # type: ignore[arg-type]


def _branches(expression: exp.Expr) -> list[tuple[exp.Expr | None, exp.Expr]]:
    """Return the conditions and results of a CASE or IF; the last one has no condition."""
    if isinstance(expression, exp.If):
        return [(expression.this, expression.args["true"]), (None, expression.args.get("false") or exp.Null())]
    subject = expression.this
    branches: list[tuple[exp.Expr | None, exp.Expr]] = [
        (exp.EQ(this=subject, expression=branch.this) if subject is not None else branch.this, branch.args["true"])
        for branch in expression.args["ifs"]
    ]
    return [*branches, (None, expression.args.get("default") or exp.Null())]


def _whole_from(x: float, side: int) -> float:
    """Return the smallest whole number behind a cut."""
    return math.floor(x) + 1.0 if side else float(math.ceil(x))


def _truncation(x: float, side: int) -> Cut:
    """Return the cut of numbers for a cut of the same rounded towards zero."""
    whole = _whole_from(x, side)
    return (whole, 0) if whole > 0.0 else (whole - 1.0, 1)


def _rounding(scale: float) -> Callable[[float, int], Cut]:
    """Return the mapping of cuts for rounding to a multiple of 1 / scale, halves away from zero."""

    def place(x: float, side: int) -> Cut:
        whole = _whole_from(x * scale, side)
        return (whole - 0.5) / scale, 0 if whole > 0.0 else 1

    return place


def _negative(x: Key) -> float:
    assert isinstance(x, float)
    return -x


def _iso(day: float) -> bytes:
    """Return a day in ISO 8601, which sorts as days do."""
    return str(np.datetime64(int(day), "D")).encode()


def _iso_time(us: float, side: int) -> Cut:
    """Return the cut of strings in ISO 8601 (with a blank) for a cut of timestamps; a day stands for its midnight."""
    day = math.floor(us / DAY_US)
    if us == day * DAY_US and not side:
        return _iso(day), 0
    time = str(np.datetime64(int(us), "us")).replace("T", " ")
    return time.removesuffix(".000000").encode(), side


def _numbers_as_text(inner: _Image) -> Callable[[Domain], Domain | None]:
    """Return the preimage of numbers written as strings; only domains of single strings have one."""

    def preimage(domain: Domain) -> Domain | None:
        points = domain if len(domain.cuts) < 2 or domain.cuts[0] != domain.line[0] else ~domain
        keys = [low[0] for low, high in zip(points.cuts[::2], points.cuts[1::2], strict=True) if low[0] == high[0]]
        if 2 * len(keys) != len(points.cuts):
            return None
        texts = [key.decode("utf-8", "ignore") for key in keys if isinstance(key, bytes)]
        numbers = Domain.one_of((float(t) for t in texts if re.fullmatch(r"0|-?[1-9]\d*", t)), text=False)
        cuts = numbers.cuts if points is domain else (~numbers).cuts
        return inner.preimage(Domain(cuts, domain.nulls))

    return preimage
