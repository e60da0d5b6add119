"""Ranges of columns outside of which no row of a table is in a query's answer, for files whose bounds are known.

Only what is certain counts: conjuncts of WHERE and of inner joins that compare a column with a literal of its type.
Each is false or unknown for rows outside of its range, and for NULL.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from selector.types import Group, Kind
from sql.nodes import find_all
from sql.tables import Column, TableSource

Value = int | Decimal | str | dt.date | dt.datetime

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d{1,6})?)?")
_NUMBER = re.compile(r"\d{1,38}(\.\d{1,38})?")
_TURNED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """Values of a column that matter. least, most: both included; None: there is no limit."""

    column: str
    least: Value | None = None
    most: Value | None = None


Reading = tuple[ColumnRange, ...]
"""Ranges that all hold for one use of a table in a query."""


def ranges_of(tree: exp.Expr, tables: Sequence[TableSource]) -> Mapping[str, tuple[Reading, ...]]:
    """Return what each table is read for, by its name; a table that is not there is read for all of its rows."""
    by_name = {table.name.lower(): table for table in tables}
    readings: dict[str, list[Reading]] = {}
    for select in find_all(tree, exp.Select):
        sources = _sources(select, by_name)
        for alias, table in sources.items():
            if table is not None:
                ranges = [one for conjunct in _conjuncts(select) for one in _range(conjunct, alias, sources)]
                readings.setdefault(table.name.lower(), []).append(tuple(ranges))
    uses = [node.name.lower() for node in find_all(tree, exp.Table)]
    return {
        name: tuple(dict.fromkeys(some))
        for name, some in readings.items()
        if len(some) == uses.count(name) and all(some)
    }


def _sources(select: exp.Select, tables: Mapping[str, TableSource]) -> dict[str, TableSource | None]:
    """Return the tables of a FROM by alias; None: what is no table, or may not be pruned by conjuncts."""
    clause = select.args.get("from_")
    if clause is None or select.args.get("laterals"):
        return {}
    sources: dict[str, TableSource | None] = {}
    for node in (clause.this, *(join.this for join in select.args.get("joins") or ())):
        alias = node.alias_or_name.lower()
        is_plain = (
            isinstance(node, exp.Table)
            and not node.alias_column_names
            and not any(node.args.get(key) for key in ("sample", "pivots", "joins", "laterals", "version"))
        )
        sources[alias] = tables.get(node.name.lower()) if is_plain and alias not in sources else None
    return sources


def _conjuncts(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield conditions that all rows of a SELECT meet."""
    conditions = [select.args["where"].this] if select.args.get("where") is not None else []
    joins = select.args.get("joins") or ()
    if not any(join.side or join.kind.upper() not in ("", "INNER", "CROSS") for join in joins):
        conditions += [join.args["on"] for join in joins if join.args.get("on") is not None]
    while conditions:
        condition = conditions.pop()
        if isinstance(condition, exp.Paren):
            conditions.append(condition.this)
        elif isinstance(condition, exp.And):
            conditions += [condition.this, condition.expression]
        else:
            yield condition


def _range(condition: exp.Expr, alias: str, sources: Mapping[str, TableSource | None]) -> Iterator[ColumnRange]:
    """Yield the range that a condition is about, if it is about a column of a source."""
    kind: type[exp.Expr] = type(condition)
    operand, values = condition.this, []
    match condition:
        case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            other = condition.expression
            if isinstance(other, exp.Column):
                operand, other, kind = other, operand, _TURNED[kind]
            values = [other]
        case exp.Between() if not condition.args.get("symmetric"):
            values = [condition.args["low"], condition.args["high"]]
        case exp.In() if condition.expressions and condition.args.get("query") is None:
            values = condition.expressions
        case _:
            return
    column = _column(operand, alias, sources)
    if column is None:
        return
    limits = [_value(value, column) for value in values]
    if None in limits:
        return
    least = most = None
    if kind is exp.Between:
        least, most = limits
    elif kind in (exp.EQ, exp.In):
        least, most = min(limits), max(limits)  # type: ignore[type-var]
    elif kind in (exp.LT, exp.LTE):
        most = limits[0]
    else:
        least = limits[0]
    yield ColumnRange(column.name, least, most)


def _column(node: exp.Expr, alias: str, sources: Mapping[str, TableSource | None]) -> Column | None:
    """Return the column of a source that a node names; None: it names none, or perhaps another one's."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.db:
        return None
    if node.table.lower() not in ("", alias):
        return None
    table = sources[alias]
    assert table is not None
    owners = [source for source in sources.values() if source is None or _named(source, node.name) is not None]
    if not node.table and len(owners) > 1:
        return None
    return _named(table, node.name)


def _named(table: TableSource, name: str) -> Column | None:
    return next((column for column in table.columns if column.name.lower() == name.lower()), None)


def _value(node: exp.Expr, column: Column) -> Value | None:
    """Return a literal as a value of a column; None: it is another expression, or of another type."""
    negative = isinstance(node, exp.Neg)
    node = node.this if negative else node
    cast_to = None
    if isinstance(node, exp.Cast) and type(node) is exp.Cast and node.args.get("format") is None:
        cast_to, node = node.to.this, node.this
    if not isinstance(node, exp.Literal) or column.collation:
        return None
    text = node.name
    try:
        match column.type.kind.row.group:
            case Group.WHOLE | Group.DECIMAL if not node.is_string and cast_to is None and _NUMBER.fullmatch(text):
                return Decimal(f"-{text}" if negative else text)
            case _ if negative:
                return None
            case Group.TEXT if node.is_string and cast_to is None:
                return text
            case _ if not node.is_string:
                return None
            case _ if column.type.kind is Kind.DATE and cast_to in (None, exp.DataType.Type.DATE):
                return dt.date.fromisoformat(text) if _DATE.fullmatch(text) else None
            case _ if column.type.kind is Kind.TIMESTAMP and cast_to is exp.DataType.Type.TIMESTAMPTZ:
                return dt.datetime.fromisoformat(text) if _TIMESTAMP.fullmatch(text) else None
            case _:
                return None
    except ValueError:  # no day of the calendar
        return None
