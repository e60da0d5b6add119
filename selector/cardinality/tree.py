"""Our cardinality for every node of a plan.

A join multiplies per bin of its keys where both sides were counted over the same ones (relations.py). Where they were
not it follows System R and Swinger's containment assumption, |L| * |R| / max(NDV): with a unique key on one side that
is the paper's Eq. (1), cardinality * selectivity. Every node has an expected value and an upper bound, in which each
row of a join meets as many rows as the most frequent key of its bin has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from selector.cardinality.predicates import Filtered, filter_of
from selector.cardinality.relations import Base, Derived, Groups, Joined, Opaque, Relation
from selector.plan import JoinType, Operator, Plan, PlanColumn, PlanNode, TableShape
from selector.statistics import RowSample, TableStatistics

NO_STATISTICS_CONFIDENCE = 0.5  # rows from the files, nothing about the columns
ENGINE_CONFIDENCE = 0.3  # only the engine's own guess
UNKNOWN_KEY_CONFIDENCE = 0.6  # a join or grouping key whose distinct values nobody counted
BINS_CONFIDENCE = 0.98  # keys counted over the same bins on both sides
JOIN_CONFIDENCE = 0.95  # containment and uniform frequencies assumed
UNNEST_ROWS = 5  # elements of a list that nobody counted
UNNEST_CONFIDENCE = 0.5
INEQUALITY_SHARE = 1 / 3  # pairs that a join without an equality keeps
SAMPLED_GROUPS = 0.3  # of the groups in a sample may be of one row each, if the sample is to tell their number


@dataclass(frozen=True, slots=True)
class EstimatedNode:
    """A node with our cardinality.

    rows: None where nothing is known. upper: rows that it has at most, as far as keys tell. confidence: 0..1, of this
    node's rows.
    """

    node: PlanNode
    rows: float | None
    confidence: float
    basis: str
    children: tuple[EstimatedNode, ...] = ()
    gaps: tuple[str, ...] = ()
    upper: float | None = None

    def all_gaps(self) -> tuple[str, ...]:
        """Return what was missing anywhere below, without repetition."""
        found = [*self.gaps, *(gap for child in self.children for gap in child.all_gaps())]
        return tuple(dict.fromkeys(found))


def estimate_rows(plan: Plan, statistics: Mapping[str, TableStatistics], shapes: Sequence[TableShape]) -> EstimatedNode:
    """Return the plan's tree with our cardinalities. statistics, shapes: of the tables in the plan."""
    return _Estimator(plan.dialect, statistics, {shape.name: shape for shape in shapes}).visit(plan.root)[0]


Visited = tuple[EstimatedNode, Relation]


class _Estimator:
    def __init__(
        self, dialect: str, statistics: Mapping[str, TableStatistics], shapes: Mapping[str, TableShape]
    ) -> None:
        self._dialect = dialect
        self._statistics = statistics
        self._shapes = shapes
        self._definitions: dict[str, Visited] = {}

    def visit(self, node: PlanNode) -> Visited:
        if node.operator is Operator.SCAN:
            return self._scan(node)
        if node.operator is Operator.MATERIALIZE:
            definition = self.visit(node.children[0])
            self._definitions[node.reference or ""] = definition
            body, relation = self.visit(node.children[1])
            confidence = definition[0].confidence * body.confidence
            both = (definition[0], body)
            return EstimatedNode(node, body.rows, confidence, "as its body", both, upper=body.upper), relation
        visited = [self.visit(child) for child in node.children]
        if not visited:
            return self._leaf(node)
        children = tuple(child for child, _ in visited)
        if any(child.rows is None for child in children):
            return EstimatedNode(node, None, 0.0, "unknown below", children), Opaque(1.0)
        relation, confidence, basis = self._inner(node, [below for _, below in visited])
        confidence *= math.prod(child.confidence for child in children)
        return EstimatedNode(node, relation.rows, confidence, basis, children, upper=relation.upper), relation

    def _inner(self, node: PlanNode, below: Sequence[Relation]) -> tuple[Relation, float, str]:
        first = below[0]
        match node.operator:
            case Operator.FILTER if isinstance(first, Base):
                behind = first.behind(node.predicates)
                return behind, behind.filtered.confidence / first.filtered.confidence, behind.filtered.basis
            case Operator.FILTER:
                kept = self._filter(node.predicates, node.columns)
                return Derived(first, first.rows * kept.share), kept.confidence, kept.basis
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
                return self._join(node, below[0], below[1])
            case Operator.AGGREGATE:
                return self._groups(node, first)
            case Operator.TOP_N | Operator.LIMIT if node.limit is not None:
                most = float(node.limit)
                return Derived(first, min(first.rows, most), upper=most), 1.0, "limit"
            case Operator.OTHER if node.label == "UNNEST":
                basis = f"{UNNEST_ROWS} elements a row, a guess"
                return Opaque(first.rows * UNNEST_ROWS, members=below), UNNEST_CONFIDENCE, basis
            case Operator.UNION:
                rows, upper = sum(part.rows for part in below), sum(part.upper for part in below)
                return Opaque(rows, upper=upper, members=below), 1.0, "sum"
            case _:
                return first, 1.0, "as its input"

    def _leaf(self, node: PlanNode) -> Visited:
        if node.operator is Operator.EMPTY:
            return EstimatedNode(node, 0.0, 1.0, "contradiction", upper=0.0), Opaque(0.0)
        definition = self._definitions.get(node.reference or "")
        if definition is not None:
            found, relation = definition
            # Its confidence counts once, where the definition stands, however often it is read.
            return EstimatedNode(node, found.rows, 1.0, "as its definition", upper=found.upper), relation
        rows = node.cardinality if node.cardinality is not None else 1.0
        return EstimatedNode(node, rows, 1.0, "engine", upper=rows), Opaque(rows)

    def _scan(self, node: PlanNode) -> Visited:
        statistics = self._statistics.get(node.table or "")
        if statistics is not None:
            relation = Base(statistics, node.predicates, node.scan, dialect=self._dialect)
            kept = relation.filtered
            gaps = tuple(f"{statistics.table}: no statistic answers {text}" for text in kept.unanswered)
            basis = kept.basis or f"rows of {statistics.table}"
            confidence = kept.confidence * statistics.confidence
            found = EstimatedNode(node, relation.rows, confidence, basis, gaps=gaps, upper=relation.upper)
            return found, relation
        shape = self._shapes.get(node.table or "")
        gap = (
            f"{node.table} has no statistics; run `fusion stats compute {node.table}`"
            if node.table
            else (f"a scan of {', '.join(c.name for c in node.columns) or 'no columns'} could not be told apart")
        )
        if shape is not None and shape.rows is not None:
            rows, confidence, basis = float(shape.rows), NO_STATISTICS_CONFIDENCE, f"rows in the files of {shape.name}"
        elif node.cardinality is not None:
            rows, confidence, basis = node.cardinality, ENGINE_CONFIDENCE, "the engine's guess"
        else:
            return EstimatedNode(node, None, ENGINE_CONFIDENCE, "nothing known", gaps=(gap,)), Opaque(1.0)
        return EstimatedNode(node, rows, confidence, basis, gaps=(gap,), upper=rows), Opaque(rows)

    def _join(self, node: PlanNode, left: Relation, right: Relation) -> tuple[Relation, float, str]:
        kind = node.join_type or JoinType.INNER
        if kind is JoinType.CROSS:
            return self._crossed(left, right, 1.0), 1.0, "product"
        confidence = UNKNOWN_KEY_CONFIDENCE if node.predicates else 1.0
        share = INEQUALITY_SHARE ** min(1, len(node.predicates))
        keys = [(probe, build) for probe, build in node.join_keys if left.holds(probe) and right.holds(build)]
        if not keys:
            if not node.join_keys:
                return self._crossed(left, right, share, kind), confidence, "a third of the pairs"
            rows = left.rows * right.rows / max(1.0, min(left.rows, right.rows)) * share
            met = Opaque(_outer(kind, rows, left, right), upper=left.upper * right.upper, members=(left, right))
            return met, UNKNOWN_KEY_CONFIDENCE, "keys taken as unique on the smaller side"
        joined = Joined(left, right, keys, kind, share=share)
        if joined.by_bins:
            basis = f"key bins of {keys[0][0].table}.{keys[0][0].name} and {keys[0][1].table}.{keys[0][1].name}"
            return joined, confidence * BINS_CONFIDENCE, basis
        known = all(left.ndv(probe) is not None and right.ndv(build) is not None for probe, build in keys)
        if known:
            return joined, confidence * JOIN_CONFIDENCE, "containment of keys"
        return joined, confidence * UNKNOWN_KEY_CONFIDENCE, "keys taken as unique on the smaller side"

    def _crossed(self, left: Relation, right: Relation, share: float, kind: JoinType = JoinType.INNER) -> Relation:
        rows = _outer(kind, left.rows * right.rows * share, left, right)
        return Opaque(rows, upper=left.upper * right.upper, members=(left, right))

    def _groups(self, node: PlanNode, below: Relation) -> tuple[Relation, float, str]:
        if not node.group_keys:
            return Opaque(1.0), 1.0, "one group"
        counts = [below.ndv(key) for key in node.group_keys]
        if any(count is None for count in counts):
            confidence, basis = UNKNOWN_KEY_CONFIDENCE, "a grouping key without statistics: every row its own group"
            return Derived(below, below.rows), confidence, basis
        known = [count for count in counts if count is not None]
        distinct = self._combinations(node.group_keys, known, below)
        # Expected distinct values among `rows` draws from `distinct` equally likely ones.
        rows = distinct * -math.expm1(-below.rows / distinct) if distinct > 0 else 0.0
        upper = min(below.upper, math.prod(max(1.0, count) for count in known))
        groups = Groups(below, min(rows, below.rows), node.group_keys, upper=upper)
        return groups, 1.0, "NDV of the grouping keys"

    def _combinations(self, keys: Sequence[PlanColumn], counts: Sequence[float], below: Relation) -> float:
        """Return how many combinations of grouping keys there are: seen in the sample, or backed off.

        Columns of one table are rarely independent: the second most numerous counts with half its weight, and so on.
        """
        if len(keys) == 1:
            return counts[0]
        ordered = sorted(counts, reverse=True)
        guessed = math.prod(math.pow(count, 0.5**place) for place, count in enumerate(ordered))
        tables = {key.table for key in keys}
        statistics = self._statistics.get(tables.pop() or "") if len(tables) == 1 else None
        seen = _groups_in_sample([key.name for key in keys], statistics.sample) if statistics is not None else None
        return max(ordered[0], min(math.prod(counts), guessed if seen is None else seen))

    def _filter(self, predicates: Sequence[str], columns: Sequence[PlanColumn]) -> Filtered:
        """Return what a filter above other nodes keeps, by the statistics of the one table that it names, if any."""
        tables = {column.table for column in columns if column.table}
        known = [self._statistics[name] for name in tables if name in self._statistics]
        best: Filtered | None = None
        for statistics in known:
            kept = filter_of(predicates, statistics, dialect=self._dialect)
            if best is None or len(kept.unanswered) < len(best.unanswered):
                best = kept
        return best if best is not None else filter_of(predicates, None, dialect=self._dialect)


def _outer(kind: JoinType, inner: float, left: Relation, right: Relation) -> float:
    """Return the rows of a join of any kind, of which nothing but the matching pairs is known."""
    match kind:
        case JoinType.LEFT:
            return max(inner, left.rows)
        case JoinType.RIGHT:
            return max(inner, right.rows)
        case JoinType.FULL:
            return max(inner, left.rows + right.rows)
        case JoinType.SEMI | JoinType.ANTI:
            return min(inner, left.rows) if kind is JoinType.SEMI else max(left.rows - inner, left.rows / 2)
        case JoinType.RIGHT_SEMI | JoinType.RIGHT_ANTI:
            return min(inner, right.rows) if kind is JoinType.RIGHT_SEMI else max(right.rows - inner, right.rows / 2)
        case JoinType.MARK | JoinType.SINGLE:
            return left.rows
        case _:
            return inner


def _groups_in_sample(names: Sequence[str], sample: RowSample | None) -> float | None:
    """Return how many different combinations a sample promises; None where it has seen too few of them twice.

    Haas and Stokes' Duj1, as for columns: n d / (n - f1 + f1 n / N).
    """
    if sample is None or not all(name in sample.columns for name in names) or sample.rows < 2:
        return None
    code = np.zeros(sample.rows, dtype=np.int64)
    for name in names:
        column = sample.columns[name]
        _, inverse = np.unique(
            column.values.astype(str) if column.values.dtype == object else column.values, return_inverse=True
        )
        code = code * (int(inverse.max()) + 2) + np.where(column.nulls, -1, inverse) + 1
        _, code = np.unique(code, return_inverse=True)
    held = np.bincount(code)
    held = held[held > 0]
    once = int(np.count_nonzero(held == 1))
    if once > SAMPLED_GROUPS * held.size:
        return None
    return float(sample.rows * held.size / (sample.rows - once + once * sample.share))
