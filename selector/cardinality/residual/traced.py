"""Which aggregates of which grouping a computed column of a plan is made of, whatever projections and joins it passed.

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
    """A computed column. grouping: the node that makes it. expression: of aggregates over what the grouping reads."""

    grouping: PlanNode
    expression: exp.Expr


class Tracer:
    """Follows computed columns of one plan down to the groupings that make them."""

    def __init__(self, plan: Plan) -> None:
        self._dialect = plan.dialect
        nodes = [node for _, node in plan.root.walk()]
        self._definitions = {
            node.reference: node.children[0] for node in nodes if node.operator is Operator.MATERIALIZE
        }

    def named(self, name: str, node: PlanNode) -> Traced | None:
        """Return what a name means that no table has; of several computed columns the one that is called so."""
        found = [column for column in node.columns if column.table is None and column.name not in (MARK, "")]
        exact = [column for column in found if column.name.lower() == name.lower()]
        meant = exact or found
        return self.column(meant[0], node) if len({column.name for column in meant}) == 1 else None

    def column(self, column: PlanColumn, node: PlanNode) -> Traced | None:
        """Return what a computed column of a node is; None where it is of no grouping, or of several."""
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
        """Return the only grouping below a node whose aggregates come out of it."""
        found = list(self._groupings(node))
        return found[0] if len(found) == 1 else None

    def _groupings(self, node: PlanNode) -> Iterator[PlanNode]:
        if node.operator is Operator.AGGREGATE:
            if len(node.columns) > len(node.group_keys) and not _is_of_nothing(node):
                yield node
        elif node.operator in (*_ROWS, Operator.MATERIALIZE) or node.reference is not None:
            for below in self._below(node):
                yield from self._groupings(below)

    def scans(self, node: PlanNode, *, through: bool = False) -> list[PlanNode]:
        """Return the scans of the rows that come out of a node, without those of other groupings below.

        through: with those, because they only group rows in advance.
        """
        if node.operator is Operator.SCAN:
            return [node]
        if node.operator is Operator.AGGREGATE and not through:
            return []
        return [scan for below in self._below(node) for scan in self.scans(below, through=through)]

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
        """Write an aggregate over what its grouping reads."""
        found = _positions_replaced(canonical(expression), lambda place: self._read(place, grouping.children[0]))
        return None if found is None else Traced(grouping, found)

    def _read(self, place: int, node: PlanNode) -> exp.Expr | None:
        """Return a column that comes out of a node, as an expression of columns of tables."""
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
        """Write an expression of a projection, which has positions, or aggregates as the statement has them."""
        groupings: list[PlanNode] = []

        def meaning(place: int) -> exp.Expr | None:
            known = node.columns[place] if place < len(node.columns) else None
            traced = self.column(known, node) if known is not None and known.table is None else None
            if traced is None:
                return None
            groupings.append(traced.grouping)
            return traced.expression

        found = _positions_replaced(canonical(expression), meaning)
        if found is not None and found.find(exp.AggFunc) and not groupings:
            only = self.grouping(node)
            groupings += [only] if only is not None else []
        if found is None or not groupings or any(one is not groupings[0] for one in groupings):
            return None
        return Traced(groupings[0], found)


def is_in_parts(grouping: PlanNode) -> bool:
    """Tell whether a grouping puts together what others grouped before a join (DuckDB's eager aggregation)."""
    return any(column.name.startswith("combine_aggr(") for column in grouping.columns)


def canonical(expression: exp.Expr) -> exp.Expr:
    """Write aggregates under their usual names; of what a count is where no group is, the count."""
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
    """Put what positions mean in their places; None where one means nothing."""
    missing = False

    def replaced(node: exp.Expr) -> exp.Expr:
        nonlocal missing
        if not isinstance(node, exp.PositionalColumn):
            return node
        found = meaning(int(node.this.this))
        missing = missing or found is None
        return node if found is None else found.copy()

    changed = expression.transform(replaced)
    return None if missing else changed


def _is_of_nothing(node: PlanNode) -> bool:
    """Tell whether a grouping has no rows: DuckDB computes by it what a count is without rows."""
    while node.children:
        node = node.children[0]
    return node.operator is Operator.EMPTY
