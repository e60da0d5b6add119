"""Unique keys of a plan's nodes: sets of columns that have different values in every two rows.

START HERE: ``UniqueKeys``. A table has those of which its statistics count as many values as rows; a grouping has its
keys; a window that numbers rows has the number together with its partition. Filters, projections, limits and joins that
meet each row once keep them, and what equals a column stands for it. rank() gives one number to rows that agree in the
order: it counts as unique where partition and order are unique together, and where the order is by an aggregate, of
which ties are taken to be rare.

Two readings of one common table expression have the same columns: what holds for one of them alone is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from selector.cardinality.keys.classes import Origin, origin
from selector.cardinality.predicates.conditions import parsed
from selector.join_keys import SEPARATOR
from selector.plan import JoinType, Operator, Plan, PlanColumn, PlanNode
from selector.statistics import TableStatistics

UNIQUE_SHARE = 0.9  # distinct values of a key without duplicates, as they are counted, per row
MOST_KEYS = 8  # of a node: the shortest ones

_OF_LEFT = (JoinType.SEMI, JoinType.ANTI, JoinType.MARK, JoinType.SINGLE)
_OF_RIGHT = (JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI)
_OVER = " OVER ("
_NUMBERS = (exp.RowNumber, exp.Rank, exp.DenseRank)
_ONE_TO_ONE = (*exp.DataType.INTEGER_TYPES, exp.DataType.Type.DOUBLE, *exp.DataType.TEXT_TYPES)  # types to cast to

Columns = frozenset[Origin]

_ONE_ROW: Columns = frozenset()  # rows that must not agree in no column at all: there is one at most


@dataclass(frozen=True, slots=True)
class Unique:
    """Unique keys of one node.

    keys: sets of columns; the empty set for at most one row.
    equal: pairs of columns that have the same value in every row.
    """

    keys: frozenset[Columns] = frozenset()
    equal: tuple[tuple[Origin, Origin], ...] = ()

    def closed(self, columns: Iterable[Origin]) -> Columns:
        """Return columns and all that are equal to one of them."""
        closure, before = set(columns), -1
        while before < len(closure):
            before = len(closure)
            closure.update(*(pair for pair in self.equal if not closure.isdisjoint(pair)))
        return frozenset(closure)

    def is_met_by(self, columns: Iterable[Origin]) -> bool:
        """Return whether columns contain a unique key."""
        closed = self.closed(columns)
        return any(key <= closed for key in self.keys)

    def having(self, keys: Iterable[Columns]) -> Unique:
        """Return the same with other keys: the shortest ones, without supersets of others."""
        shortest_keys: list[Columns] = []
        for key in sorted(set(keys), key=lambda key: (len(key), sorted(map(str, key)))):
            if len(shortest_keys) < MOST_KEYS and not any(shorter <= key for shorter in shortest_keys):
                shortest_keys.append(key)
        return Unique(frozenset(shortest_keys), self.equal)

    def seen(self, columns: Iterable[PlanColumn]) -> Unique:
        """Return the keys that consist of output columns only."""
        closed = self.closed(map(origin, columns))
        return self.having(key for key in self.keys if key <= closed)


class UniqueKeys:
    """Unique keys of every node of one plan."""

    def __init__(self, plan: Plan, statistics: Mapping[str, TableStatistics]) -> None:
        self._dialect = plan.dialect
        self._named = plan.named
        self._statistics = statistics
        self._definitions = {
            node.reference: node.children[0] for _, node in plan.root.walk() if node.operator is Operator.MATERIALIZE
        }
        self._found: dict[int, Unique] = {}

    def are_unique(self, columns: Iterable[PlanColumn], node: PlanNode) -> bool:
        """Return whether columns, or one-to-one functions of them, contain a unique key of a node."""
        return self.of(node).is_met_by(self._meant(columns, node))

    def of(self, node: PlanNode) -> Unique:
        """Return the unique keys of a node."""
        if id(node) not in self._found:
            self._found[id(node)] = self._of(node)
        return self._found[id(node)]

    def _of(self, node: PlanNode) -> Unique:
        if not node.children:
            return self._of_leaf(node)
        below = self.of(node.children[0])
        match node.operator:
            case Operator.FILTER:
                return self._filtered(below, node)
            case Operator.WINDOW:
                return below.having((*below.keys, *self._numbered(below, node)))
            case Operator.PROJECT:
                return below.having((*below.keys, *self._numbered(below, node))).seen(node.columns)
            case Operator.AGGREGATE:
                keys = determining(node.group_keys, node, self._statistics)
                return below.having((frozenset(map(origin, keys)), *below.seen(node.group_keys).keys))
            case Operator.LIMIT | Operator.TOP_N if node.limit == 1:
                return below.having([_ONE_ROW])
            case Operator.LIMIT | Operator.TOP_N | Operator.SORT | Operator.EXCHANGE:
                return below
            case Operator.MATERIALIZE:
                return self.of(node.children[1])
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
                return self._joined(below, self.of(node.children[1]), node)
            case _:
                return Unique()

    def _of_leaf(self, node: PlanNode) -> Unique:
        definition, statistics = self._definitions.get(node.reference), self._statistics.get(node.table or "")
        if definition is not None:
            return self.of(definition)
        if statistics is None:
            return Unique(frozenset([_ONE_ROW] if node.operator is Operator.EMPTY else []))
        read = {column.name for column in node.scanned}
        candidates = [*((name,) for name in read), *(tuple(key.split(SEPARATOR)) for key in statistics.keys)]
        keys = [names for names in candidates if read.issuperset(names) and is_unique(names, statistics)]
        unique = Unique().having(frozenset((node.table, name, node.scan) for name in names) for names in keys)
        return self._filtered(unique, node)

    def _filtered(self, below: Unique, node: PlanNode) -> Unique:
        """Return the keys behind a filter: without constant columns, and with the equal ones."""
        keys, equal, constant = list(below.keys), list(below.equal), set[Origin]()
        inputs = node.scanned or node.columns
        for text in node.predicates:
            for condition in parsed(text, self._dialect) or ():
                if not isinstance(condition.expression, exp.EQ):
                    continue
                sides = condition.expression.this.unnest(), condition.expression.expression.unnest()
                columns = [column for side in sides if (column := self._column(side, inputs)) is not None]
                if not all(side.find(exp.Column) for side in sides):
                    constant.update(columns)
                    windows = [window for side in sides if (window := _numbering(side)) is not None]
                    keys += [key for window in windows for key in self._partition(window, below, node)]
                elif len(columns) == len(sides):
                    equal.append((columns[0], columns[1]))
        unique = Unique(equal=tuple(equal))
        same = unique.closed(constant)
        return unique.having(key - same for key in keys)

    def _numbered(self, below: Unique, node: PlanNode) -> Iterator[Columns]:
        """Yield the keys by window functions: the partition with the column of the row number."""
        child_columns = set(map(origin, node.children[0].columns))
        for column in node.columns:
            if column.table is None and origin(column) not in child_columns:
                windows = self._windows(self._named.get(column.name.lower(), (column.name,)))
                keys = {key for window in windows for key in self._partition(window, below, node)}
                if len(keys) == 1:
                    yield keys.pop() | {origin(column)}

    def _partition(self, window: exp.Window, below: Unique, node: PlanNode) -> list[Columns]:
        """Return the partition in which a window gives each row a different number; empty if it does not."""
        inputs = node.children[0].columns
        partition = self._partitioned(window, inputs)
        if partition is None:
            return []
        order = window.args["order"].expressions if window.args.get("order") is not None else ()
        by = [column for part in order if (column := self._column(part.this, inputs)) is not None]
        is_apart = (
            isinstance(window.this, exp.RowNumber)
            or any(table is None for table, _, _ in by)
            or below.is_met_by([*partition, *by])
        )
        return [partition] if is_apart else []

    def _partitioned(self, window: exp.Window, inputs: Sequence[PlanColumn]) -> Columns | None:
        """Return the columns of PARTITION BY; None if one is not identified."""
        columns = [self._column(part, inputs) for part in window.args.get("partition_by") or ()]
        return frozenset(column for column in columns if column is not None) if None not in columns else None

    def _joined(self, lhs: Unique, rhs: Unique, node: PlanNode) -> Unique:
        """Return the keys behind a join: a side with unique join keys adds no columns to the other side's keys."""
        kind, (probe, build) = node.join_type or JoinType.INNER, node.children[:2]
        if kind in _OF_LEFT or kind in _OF_RIGHT:
            return lhs if kind in _OF_LEFT else rhs
        by_lhs = lhs.closed(self._meant((a for a, _ in node.join_keys), probe))
        by_rhs = rhs.closed(self._meant((b for _, b in node.join_keys), build))
        pairs = [(origin(a), origin(b)) for a, b in node.join_keys if kind is JoinType.INNER]
        shared = set(map(origin, probe.columns)) & set(map(origin, build.columns)) - {a for a, b in pairs if a == b}
        ways = [(a, b - by_rhs, b, a - by_lhs) for a in lhs.keys for b in rhs.keys]
        lhs_keys = {a | more for a, more, _, _ in ways if not more & shared}
        rhs_keys = {b | more for _, _, b, more in ways if not more & shared}
        joined_keys = {
            JoinType.INNER: lhs_keys | rhs_keys,
            JoinType.CROSS: lhs_keys | rhs_keys,
            JoinType.LEFT: lhs_keys,  # rows that meet none have NULLs for the other side
            JoinType.RIGHT: rhs_keys,
        }.get(kind, set())
        keys = {key for key in joined_keys if not key & shared}
        if kind is JoinType.INNER:  # whichever side is meant
            keys |= {key for key in lhs_keys & rhs_keys if len(key & shared) == 1}
        equal = (pair for pair in pairs if shared.isdisjoint(pair))
        return Unique(equal=(*lhs.equal, *rhs.equal, *equal)).having(keys)

    # ------------------------------------------------------------------ what columns are meant

    def _meant(self, columns: Iterable[PlanColumn], node: PlanNode) -> Iterator[Origin]:
        """Yield columns of a node; for a one-to-one function of one column, that column."""
        child_columns = set(map(origin, node.columns))
        for column in columns:
            if column.table is not None or origin(column) in child_columns:
                yield origin(column)
                continue
            source = _source(_read(column.name, self._dialect))
            meant = self._column(source, node.columns)
            if meant is None and isinstance(source, exp.Column):
                meant = self._number(source.name, node.columns)
            if meant is not None:
                yield meant

    def _column(self, expression: exp.Expr | None, inputs: Sequence[PlanColumn]) -> Origin | None:
        """Return the column that an expression denotes, by its name or its text; None if several, or none.

        An expression that nobody has computed yet is a column as well: a projection may compute it.
        """
        if isinstance(expression, exp.PositionalColumn):
            place = int(expression.name)
            return origin(inputs[place]) if place < len(inputs) else None
        expression = expression.unnest() if expression is not None else exp.null()
        if not isinstance(expression, exp.Column):
            return (None, _bare_text(expression, self._dialect), None) if expression.find(exp.Column) else None
        name = expression.name.lower()
        origins = {origin(candidate) for candidate in inputs if candidate.name.lower() == name}
        if not origins:  # a grouping casts its keys
            computed = (candidate for candidate in inputs if candidate.table is None and name in candidate.name.lower())
            sources = ((candidate, _source(_read(candidate.name, self._dialect))) for candidate in computed)
            origins = {
                origin(candidate) for candidate, source in sources if source is not None and source.name.lower() == name
            }
        return origins.pop() if len(origins) == 1 else None

    def _number(self, name: str, inputs: Sequence[PlanColumn]) -> Origin | None:
        """Return the column of a window function that has a name in the statement, and its text in the plan."""
        meant = self._windows(self._named.get(name.lower(), ()))
        numberings = {(type(numbered.this), self._partitioned(numbered, inputs)) for numbered in meant}
        origins = {
            origin(column)
            for column in inputs
            if column.table is None
            for window in self._windows([column.name])
            if (type(window.this), self._partitioned(window, inputs)) in numberings
        }
        return origins.pop() if len(origins) == 1 else None

    def _windows(self, texts: Iterable[str]) -> list[exp.Window]:
        """Return the window functions among some texts that number rows."""
        windows = (_numbering(_read(text, self._dialect)) for text in texts if _OVER in text)
        return [window for window in windows if window is not None]


def is_unique(names: Sequence[str], statistics: TableStatistics) -> bool:
    """Return whether columns are unique in a table, by its statistics."""
    counted = statistics.keys.get(SEPARATOR.join(names))
    column = statistics.columns.get(names[0]) if len(names) == 1 else None
    if column is not None:
        ndv, most = column.ndv, column.common.rows.max(initial=0) if column.common is not None else 1.0
    elif counted is not None:
        ndv, most = float(counted.ndv.sum()), counted.largest.max()
    else:
        return False
    return ndv >= UNIQUE_SHARE * statistics.rows > 0 and most * statistics.share < 2.0


def determining(
    keys: Sequence[PlanColumn], node: PlanNode, statistics: Mapping[str, TableStatistics]
) -> list[PlanColumn]:
    """Return the grouping keys without those that the others determine.

    A column with hardly any duplicates determines all others that were read with it, and a join key the one that it
    equals.
    """
    equal = [pair for _, below in node.walk() if below.operator is Operator.HASH_JOIN for pair in below.join_keys]

    def determines(column: PlanColumn) -> bool:
        table = statistics.get(column.table or "")
        stats = table.columns.get(column.name) if table is not None else None
        return table is not None and stats is not None and stats.ndv >= UNIQUE_SHARE * table.rows > 0

    def values(key: PlanColumn) -> float:
        table = statistics.get(key.table or "")
        stats = table.columns.get(key.name) if table is not None else None
        return stats.ndv if stats is not None else 0.0

    def follows(key: PlanColumn, others: Sequence[PlanColumn]) -> bool:
        columns = {origin(other) for other in others}
        scans = {(other.table, other.scan) for other in others if determines(other)}
        changed = True
        while changed:
            changed = False
            for pair in equal:
                for a, b in (pair, pair[::-1]):
                    is_determined = origin(a) in columns or (a.table is not None and (a.table, a.scan) in scans)
                    if is_determined and origin(b) not in columns:
                        columns.add(origin(b))
                        if determines(b):
                            scans.add((b.table, b.scan))
                        changed = True
        return origin(key) in columns or (key.table is not None and (key.table, key.scan) in scans)

    determinants = list(keys)
    for key in sorted(keys, key=values):
        others = [other for other in determinants if other is not key]
        if key.table is not None and others and follows(key, others):
            determinants = others
    return determinants


@lru_cache(maxsize=4096)
def _read(text: str, dialect: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(text, read=dialect)
    except SqlglotError:
        return None


def _bare_text(expression: exp.Expr, dialect: str) -> str:
    """Return the text of an expression, without table names."""
    return expression.transform(lambda node: exp.column(node.this) if isinstance(node, exp.Column) else node).sql(
        dialect=dialect
    )


def _numbering(expression: exp.Expr | None) -> exp.Window | None:
    """Return an expression as a window function that numbers rows; None for any other."""
    while isinstance(expression, exp.Paren | exp.Cast):
        expression = expression.this
    return expression if isinstance(expression, exp.Window) and isinstance(expression.this, _NUMBERS) else None


def _source(expression: exp.Expr | None) -> exp.Expr | None:
    """Return the column of which an expression is a one-to-one function; None for any other expression."""
    while expression is not None and not isinstance(expression, exp.Column | exp.PositionalColumn):
        if isinstance(expression, exp.Paren | exp.Neg) or (
            isinstance(expression, exp.Cast) and expression.to.this in _ONE_TO_ONE
        ):
            expression = expression.this
        elif isinstance(expression, exp.Add | exp.Sub):
            sides = [
                side for side in (expression.this, expression.expression) if side.find(exp.Column, exp.PositionalColumn)
            ]
            expression = sides[0] if len(sides) == 1 else None
        else:
            expression = None
    return expression
