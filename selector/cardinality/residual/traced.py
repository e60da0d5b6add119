"""Computed columns of a plan as aggregates of a grouping, traced through projections and joins.

Engines print computed columns by position (``avg(#1)``), by the alias of a subquery (``SUBQUERY``) or as the statement
has them (``0.5 * avg(x)``). All of them become an expression of aggregates over the columns that the grouping reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from selector.cardinality.keys.classes import origin
from selector.plan import MARK, Operator, Plan, PlanColumn, PlanNode

_SAME = {"sum_no_overflow": exp.Sum, "count_star": exp.Count}
_ROWS = (Operator.PROJECT, Operator.FILTER, Operator.HASH_JOIN, Operator.NESTED_LOOP_JOIN)


@dataclass(frozen=True, slots=True)
class Traced:
    """Computed column.

    grouping: node that computes its aggregates.
    expression: over these aggregates, whose arguments are columns that the grouping reads.
    """

    grouping: PlanNode
    expression: exp.Expr


class Tracer:
    """Tracer of computed columns of one plan to their groupings."""

    def __init__(self, plan: Plan) -> None:
        self._dialect = plan.dialect
        nodes = [node for _, node in plan.root.walk()]
        self._definitions = {
            node.reference: node.children[0] for node in nodes if node.operator is Operator.MATERIALIZE
        }

    def named(self, name: str, node: PlanNode) -> Traced | None:
        """Return the computed column of a name that no table has; None if it is ambiguous."""
        computed = [column for column in node.columns if column.table is None and column.name not in (MARK, "")]
        exact = [column for column in computed if column.name.lower() == name.lower()]
        meant = exact or computed
        return self.column(meant[0], node) if len({column.name for column in meant}) == 1 else None

    def column(self, column: PlanColumn, node: PlanNode) -> Traced | None:
        """Return a computed column of a node; None if it depends on no grouping, or on several."""
        if node.operator is Operator.AGGREGATE:
            computed = node.columns[len(node.group_keys) :]
            if any(origin(one) == origin(column) for one in computed):
                expression = self._parsed(column.name)
                return None if expression is None else self._of_inputs(expression, node)
            return None
        for below in self._below(node):
            if any(origin(one) == origin(column) for one in below.columns):
                return self.column(column, below)
        expression = self._parsed(column.name) if node.operator is Operator.PROJECT else None
        return None if expression is None else self._computed(expression, node.children[0])

    def grouping(self, node: PlanNode) -> PlanNode | None:
        """Return the only grouping whose aggregates a node outputs; None if there are several, or none."""
        groupings = list(self._groupings(node))
        return groupings[0] if len(groupings) == 1 else None

    def _groupings(self, node: PlanNode) -> Iterator[PlanNode]:
        if node.operator is Operator.AGGREGATE:
            if len(node.columns) > len(node.group_keys) and not _is_of_nothing(node):
                yield node
        elif node.operator in (*_ROWS, Operator.MATERIALIZE) or node.reference is not None:
            for below in self._below(node):
                yield from self._groupings(below)

    def scans(self, node: PlanNode) -> list[PlanNode]:
        """Return the scans whose rows a node outputs, without those of groupings below."""
        if node.operator is Operator.SCAN:
            return [node]
        if node.operator is Operator.AGGREGATE:
            return []
        return [scan for below in self._below(node) for scan in self.scans(below)]

    def _below(self, node: PlanNode) -> tuple[PlanNode, ...]:
        if node.operator is Operator.MATERIALIZE:
            return node.children[1:]
        definition = self._definitions.get(node.reference) if not node.children else None
        return node.children if definition is None else (definition,)

    def _parsed(self, text: str) -> exp.Expr | None:
        try:
            return sqlglot.parse_one(text, read=self._dialect)
        except SqlglotError:
            return None

    def _of_inputs(self, expression: exp.Expr, grouping: PlanNode) -> Traced | None:
        """Return an aggregate, with the columns that its grouping reads in place of positions."""
        rewritten = _positions_replaced(canonical(expression), lambda place: self._read(place, grouping.children[0]))
        return None if rewritten is None else Traced(grouping, rewritten)

    def _read(self, place: int, node: PlanNode) -> exp.Expr | None:
        """Return an output column of a node as an expression of table columns; None: unknown."""
        if place >= len(node.columns):
            return None
        column = node.columns[place]
        if column.table is not None:
            return exp.column(exp.to_identifier(column.name, quoted=True))
        for below in self._below(node):
            for at, one in enumerate(below.columns):
                if origin(one) == origin(column):
                    return self._read(at, below)
        expression = self._parsed(column.name) if node.operator is Operator.PROJECT else None
        if expression is None or isinstance(expression, exp.PositionalColumn):
            return None
        return _positions_replaced(expression, lambda at: self._read(at, node.children[0]))

    def _computed(self, expression: exp.Expr, node: PlanNode) -> Traced | None:
        """Return an expression of a projection, with positions or aggregates, over one grouping; None without one."""
        groupings: list[PlanNode] = []

        def meaning(place: int) -> exp.Expr | None:
            input_column = node.columns[place] if place < len(node.columns) else None
            traced = (
                self.column(input_column, node) if input_column is not None and input_column.table is None else None
            )
            if traced is None:
                return None
            groupings.append(traced.grouping)
            return traced.expression

        rewritten = _positions_replaced(canonical(expression), meaning)
        if rewritten is not None and rewritten.find(exp.AggFunc) and not groupings:
            only = self.grouping(node)
            groupings += [only] if only is not None else []
        if rewritten is None or not groupings or any(one is not groupings[0] for one in groupings):
            return None
        return Traced(groupings[0], rewritten)


def canonical(expression: exp.Expr) -> exp.Expr:
    """Return an expression with standard aggregates, and count for DuckDB's CASE that replaces a missing count by 0."""
    return expression.transform(_usual)


def _usual(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Anonymous):
        name = str(node.name).lower()
        if name in _SAME:
            return _SAME[name](this=canonical(node.expressions[0]) if node.expressions else exp.Star())
        if name == "/" and len(node.expressions) == 2:
            return exp.Div(this=canonical(node.expressions[0]), expression=canonical(node.expressions[1]))
    default = node.args.get("default") if isinstance(node, exp.Case) else None
    first = node.args["ifs"][0].this.unnest() if default is not None and len(node.args["ifs"]) == 1 else None
    if isinstance(first, exp.Is) and isinstance(first.this.unnest(), exp.PositionalColumn):
        assert isinstance(default, exp.Expr)
        return canonical(default)
    return node


def _positions_replaced(expression: exp.Expr, meaning: Callable[[int], exp.Expr | None]) -> exp.Expr | None:
    """Return an expression with positions replaced by ``meaning``; None if it returns None for one."""
    missing = False

    def replaced(node: exp.Expr) -> exp.Expr:
        nonlocal missing
        if not isinstance(node, exp.PositionalColumn):
            return node
        replacement = meaning(int(node.this.this))
        missing = missing or replacement is None
        return node if replacement is None else replacement.copy()

    changed = expression.transform(replaced)
    return None if missing else changed


def _is_of_nothing(node: PlanNode) -> bool:
    """Tell whether a grouping has no input rows: DuckDB computes the value of an empty count by it."""
    while node.children:
        node = node.children[0]
    return node.operator is Operator.EMPTY
