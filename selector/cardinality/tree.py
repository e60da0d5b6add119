"""Our own cardinalities for every node of a plan, from statistics instead of the engine's guesses.

Joins follow Selinger's containment assumption, |L| * |R| / max(NDV), over the key columns' whole tables: with a
unique key on one side that is the paper's Eq. (1), cardinality * selectivity. Only a filter on the key itself makes its
NDV smaller; engines push one down from the other side of a join, and it must not count twice. Several keys, like
several grouping columns, are rarely independent; the second and later ones count by exponential back-off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from selector.cardinality.predicates import selectivity
from selector.plan import JoinType, Operator, Plan, PlanColumn, PlanNode, TableShape
from selector.statistics import ColumnStatistics, TableStatistics

NO_STATISTICS_CONFIDENCE = 0.5  # rows from the files, nothing about the columns
ENGINE_CONFIDENCE = 0.3  # only the engine's own guess
UNKNOWN_KEY_CONFIDENCE = 0.6  # a join or grouping key whose distinct values nobody counted
JOIN_CONFIDENCE = 0.95  # containment and uniform frequencies assumed
UNNEST_ROWS = 5  # elements of a list that nobody counted
UNNEST_CONFIDENCE = 0.5
INEQUALITY_SHARE = 1 / 3  # pairs that a join without an equality keeps


@dataclass(frozen=True, slots=True)
class EstimatedNode:
    """A node with our cardinality. rows: None where nothing is known. confidence: 0..1, of this node's rows."""

    node: PlanNode
    rows: float | None
    confidence: float
    basis: str
    children: tuple[EstimatedNode, ...] = ()
    gaps: tuple[str, ...] = ()

    def all_gaps(self) -> tuple[str, ...]:
        """Return what was missing anywhere below, without repetition."""
        found = [*self.gaps, *(gap for child in self.children for gap in child.all_gaps())]
        return tuple(dict.fromkeys(found))


def estimate_rows(plan: Plan, statistics: Mapping[str, TableStatistics], shapes: Sequence[TableShape]) -> EstimatedNode:
    """Return the plan's tree with our cardinalities. statistics, shapes: of the tables in the plan."""
    return _Estimator(plan.dialect, statistics, {shape.name: shape for shape in shapes}).visit(plan.root)


class _Estimator:
    def __init__(
        self, dialect: str, statistics: Mapping[str, TableStatistics], shapes: Mapping[str, TableShape]
    ) -> None:
        self._dialect = dialect
        self._statistics = statistics
        self._shapes = shapes
        self._definitions: dict[str, EstimatedNode] = {}

    def visit(self, node: PlanNode) -> EstimatedNode:
        if node.operator is Operator.SCAN:
            return self._scan(node)
        if node.operator is Operator.MATERIALIZE:
            definition = self.visit(node.children[0])
            self._definitions[node.reference or ""] = definition
            body = self.visit(node.children[1])
            confidence = definition.confidence * body.confidence
            return EstimatedNode(node, body.rows, confidence, "as its body", (definition, body))
        children = tuple(self.visit(child) for child in node.children)
        if not children:
            return self._leaf(node)
        if any(child.rows is None for child in children):
            return EstimatedNode(node, None, 0.0, "unknown below", children)
        rows, confidence, basis = self._inner(node, children)
        return EstimatedNode(node, rows, confidence * math.prod(c.confidence for c in children), basis, children)

    def _inner(self, node: PlanNode, children: tuple[EstimatedNode, ...]) -> tuple[float, float, str]:
        rows = children[0].rows or 0.0
        match node.operator:
            case Operator.FILTER:
                kept = selectivity(node.predicates, self._visible(node.columns), dialect=self._dialect)
                return rows * kept.share, kept.confidence, kept.basis
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
                return self._join(children, node)
            case Operator.AGGREGATE:
                return self._groups(node, rows)
            case Operator.TOP_N | Operator.LIMIT if node.limit is not None:
                return min(rows, float(node.limit)), 1.0, "limit"
            case Operator.OTHER if node.label == "UNNEST":
                return rows * UNNEST_ROWS, UNNEST_CONFIDENCE, f"{UNNEST_ROWS} elements a row, a guess"
            case Operator.UNION:
                return sum(child.rows or 0.0 for child in children), 1.0, "sum"
            case _:
                return rows, 1.0, "as its input"

    def _leaf(self, node: PlanNode) -> EstimatedNode:
        if node.operator is Operator.EMPTY:
            return EstimatedNode(node, 0.0, 1.0, "contradiction")
        definition = self._definitions.get(node.reference or "")
        if definition is not None:
            # Its confidence counts once, where the definition stands, however often it is read.
            return EstimatedNode(node, definition.rows, 1.0, "as its definition")
        return EstimatedNode(node, node.cardinality if node.cardinality is not None else 1.0, 1.0, "engine")

    def _scan(self, node: PlanNode) -> EstimatedNode:
        statistics = self._statistics.get(node.table or "")
        if statistics is not None:
            kept = selectivity(node.predicates, statistics, dialect=self._dialect)
            gaps = tuple(f"{statistics.table}: no statistic answers {text}" for text in kept.unanswered)
            basis = kept.basis or f"rows of {statistics.table}"
            return EstimatedNode(node, statistics.rows * kept.share, kept.confidence, basis, gaps=gaps)
        shape = self._shapes.get(node.table or "")
        gap = (
            f"{node.table} has no statistics; run `fusion stats compute {node.table}`"
            if node.table
            else (f"a scan of {', '.join(c.name for c in node.columns) or 'no columns'} could not be told apart")
        )
        if shape is not None and shape.rows is not None:
            basis = f"rows in the files of {shape.name}"
            return EstimatedNode(node, float(shape.rows), NO_STATISTICS_CONFIDENCE, basis, gaps=(gap,))
        return EstimatedNode(node, node.cardinality, ENGINE_CONFIDENCE, "the engine's guess", gaps=(gap,))

    def _join(self, children: tuple[EstimatedNode, ...], node: PlanNode) -> tuple[float, float, str]:
        left, right = children[0].rows or 0.0, children[1].rows or 0.0
        if node.join_type is JoinType.CROSS:
            return left * right, 1.0, "product"
        confidence, basis = JOIN_CONFIDENCE, "containment of keys"
        shares: list[float] = []
        left_matched: list[float] = []
        right_matched: list[float] = []
        for probe, build in node.join_keys:
            probe_ndv, build_ndv = self._key_ndv(probe, children[0]), self._key_ndv(build, children[1])
            if probe_ndv is None or build_ndv is None:
                confidence *= UNKNOWN_KEY_CONFIDENCE
                basis = "keys taken as unique on the smaller side"
            larger = max(probe_ndv or 0.0, build_ndv or 0.0) or max(1.0, min(left, right))
            shares.append(1.0 / larger)
            left_matched.append(min(1.0, (build_ndv or right) / (probe_ndv or max(left, 1.0))))
            right_matched.append(min(1.0, (probe_ndv or left) / (build_ndv or max(right, 1.0))))
        inner = left * right * (_backed_off(shares) if shares else INEQUALITY_SHARE)
        if node.predicates:
            confidence *= UNKNOWN_KEY_CONFIDENCE
        match node.join_type:
            case JoinType.LEFT:
                rows = max(inner, left)
            case JoinType.RIGHT:
                rows = max(inner, right)
            case JoinType.FULL:
                rows = max(inner, left + right)
            case JoinType.SEMI:
                rows = left * _backed_off(left_matched)
            case JoinType.ANTI:
                rows = left * (1.0 - _backed_off(left_matched))
            case JoinType.RIGHT_SEMI:
                rows = right * _backed_off(right_matched)
            case JoinType.RIGHT_ANTI:
                rows = right * (1.0 - _backed_off(right_matched))
            case JoinType.MARK | JoinType.SINGLE:
                rows = left
            case _:
                rows = inner
        return rows, confidence, basis

    def _groups(self, node: PlanNode, rows: float) -> tuple[float, float, str]:
        if not node.group_keys:
            return 1.0, 1.0, "one group"
        counts = [self._ndv(key) for key in node.group_keys]
        if any(count is None for count in counts):
            return rows, UNKNOWN_KEY_CONFIDENCE, "a grouping key without statistics: every row its own group"
        distinct = math.prod(count for count in counts if count is not None)
        if distinct <= 0:
            return 0.0, 1.0, "NDV of the grouping keys"
        # Expected distinct values among `rows` draws from `distinct` equally likely ones.
        return distinct * -math.expm1(-rows / distinct), 1.0, "NDV of the grouping keys"

    def _key_ndv(self, key: PlanColumn, below: EstimatedNode) -> float | None:
        """Return the distinct values of a join key that the filters on the key itself leave.

        Of groups there are no more than rows; a scan's filters on other columns do not make its key's domain smaller.
        """
        found = self._column(key)
        if found is None:
            return None
        own = [text for text in _predicates_below(below.node) if _names(text, self._dialect) == {key.name}]
        kept = selectivity(own, self._statistics.get(key.table or ""), dialect=self._dialect)
        distinct = found.ndv * kept.share
        grouped = any(part.operator is Operator.AGGREGATE for _, part in below.node.walk())
        return max(1.0, min(distinct, below.rows or 0.0) if grouped else distinct)

    def _ndv(self, column: PlanColumn) -> float | None:
        found = self._column(column)
        return max(1.0, found.ndv) if found is not None else None

    def _column(self, column: PlanColumn) -> ColumnStatistics | None:
        table = self._statistics.get(column.table or "")
        return table.columns.get(column.name) if table is not None else None

    def _visible(self, columns: Sequence[PlanColumn]) -> TableStatistics | None:
        """Return the statistics behind columns of one or several tables as if they were one table's."""
        names = {column.table for column in columns if column.table}
        tables = [self._statistics[name] for name in names if name in self._statistics]
        if len(tables) <= 1:
            return tables[0] if tables else None
        rows = max(table.rows for table in tables)
        merged: dict[str, ColumnStatistics] = {}
        for column in columns:
            found, table = self._column(column), self._statistics.get(column.table or "")
            if found is not None and table is not None and column.name not in merged:
                merged[column.name] = replace(found, nulls=round(found.nulls * rows / max(1, table.rows)))
        return TableStatistics(table="", version=0, rows=rows, bytes=0, columns=merged)


def _predicates_below(node: PlanNode) -> Iterator[str]:
    """Yield the filters of a node and of what feeds it, down to its scans."""
    for _, part in node.walk():
        if part.operator in (Operator.SCAN, Operator.FILTER):
            yield from part.predicates


def _names(predicate: str, dialect: str) -> set[str]:
    try:
        return {column.name for column in sqlglot.parse_one(predicate, read=dialect).find_all(exp.Column)}
    except SqlglotError:
        return set()


def _backed_off(shares: Sequence[float]) -> float:
    """Multiply shares, most selective first, each further one with half the weight."""
    return math.prod(math.pow(share, 0.5**position) for position, share in enumerate(sorted(shares)))
