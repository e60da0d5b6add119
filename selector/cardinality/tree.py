"""Our cardinality for every node of a plan.

Scans are filtered rows (base.py), inner joins a graph of relations (inner_joins.py), other joins are derived from inner
ones (outer_joins.py). Where a key has no statistics, a join follows System R and Swinger's containment assumption,
|L| * |R| / max(NDV): with a unique key on one side that is the paper's Eq. (1), cardinality * selectivity. Every node
has an expected value and an upper bound; for the bound, each row of a join matches as many rows as the most frequent
key of its cell.

It is long because every kind of node is estimated here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from selector.cardinality.base import Base
from selector.cardinality.derived import Derived, Groups, GroupsOfSize, InList, Opaque
from selector.cardinality.inner_joins import InnerJoins
from selector.cardinality.keys.classes import KeyClasses, Origin, origin
from selector.cardinality.keys.unique import UniqueKeys, determining
from selector.cardinality.outer_joins import OuterJoin
from selector.cardinality.predicates.conditions import columns_in, domain_of, parsed
from selector.cardinality.predicates.domains import Domain
from selector.cardinality.predicates.selectivity import Selectivity
from selector.cardinality.relation import Relation
from selector.cardinality.residual.aggregate_conditions import Measured
from selector.cardinality.residual.aggregates import Aggregates
from selector.cardinality.residual.filters import Joined, group_selectivity, residual_selectivity, size_condition
from selector.cardinality.union import Union
from selector.estimate import bounded_rows
from selector.plan import MARK, JoinType, Operator, Plan, PlanColumn, PlanNode, TableShape
from selector.statistics import BOUNDS_SOURCE, TableStatistics

UNNEST_ROWS = 5  # elements of a list without statistics, a guess
INEQUALITY_SHARE = 1 / 3  # selectivity of a join condition without an equality, a guess
ROW_NUMBERS = frozenset({"file_row_number", "rowid"})  # that engines read beside the columns
_MARKED = {MARK: JoinType.SEMI, f"NOT {MARK}": JoinType.ANTI}
_FIRST = re.compile(r"^arg_(?:min|max)\w*\(#\d+, #\d+, #(\d+)\)")
_CALL = re.compile(r"^(\w+)\((?:#(\d+)\))?")


@dataclass(frozen=True, slots=True)
class EstimatedNode:
    """A node with our cardinality.

    rows: expected number; None: unknown.
    basis: statistics that the estimate rests on, in words.
    gaps: missing statistics, in words.
    upper: upper bound of the rows, by the keys; None: unknown.
    """

    node: PlanNode
    rows: float | None
    basis: str
    children: tuple[EstimatedNode, ...] = ()
    gaps: tuple[str, ...] = ()
    upper: float | None = None

    def all_gaps(self) -> tuple[str, ...]:
        """Return the missing statistics of this node and all nodes below, without repetition."""
        gaps = [*self.gaps, *(gap for child in self.children for gap in child.all_gaps())]
        return tuple(dict.fromkeys(gaps))


def estimate_rows(plan: Plan, statistics: Mapping[str, TableStatistics], shapes: Sequence[TableShape]) -> EstimatedNode:
    """Return the plan's tree with our cardinalities. statistics, shapes: of the tables in the plan."""
    return _Estimator(plan, statistics, {shape.name: shape for shape in shapes}).visit(plan.root)[0]


Visited = tuple[EstimatedNode, Relation]
Answer = tuple[Relation, str, tuple[str, ...]]  # rows, basis, unanswered predicates


class _Estimator:
    def __init__(self, plan: Plan, statistics: Mapping[str, TableStatistics], shapes: Mapping[str, TableShape]) -> None:
        self._dialect = plan.dialect
        self._statistics = statistics
        self._shapes = shapes
        self._classes = KeyClasses(plan, statistics)
        self._bases: dict[int, Base] = {}
        self._optional: dict[tuple[str | None, int | None], tuple[str, ...]] = {}
        for _, node in plan.root.walk():
            table_statistics = statistics.get(node.table or "") if node.operator is Operator.SCAN else None
            if table_statistics is not None:
                base = Base(table_statistics, node.predicates, node.scan, dialect=self._dialect)
                self._bases[id(node)] = base
                self._optional[table_statistics.table, node.scan] = node.optional
                self._constrain(base)
        for _, node in plan.root.walk():  # filters above a scan, on its rows
            filtered = self._read_by(node)
            if filtered is not None:
                self._constrain(filtered.behind(node.predicates))
            listed = self._listed(node) if node.join_type is JoinType.MARK else None
            if listed is not None:
                self._classes.constrain(node.join_keys[0][0], listed)
        self._definitions: dict[str, Visited] = {}
        self._relations: dict[int, Relation] = {}
        self._unique = UniqueKeys(plan, statistics)
        self._aggregates = Aggregates(plan, self._classes, self._relations)

    def _constrain(self, base: Base) -> None:
        """Add the domains of a scan's filters to the key classes, which get cut there."""
        for name, domain in base.filtered.domains.items():
            self._classes.constrain(PlanColumn(name, None, base.statistics.table, base.scan), domain)

    def _read_by(self, node: PlanNode) -> Base | None:
        """Return the scan whose rows a filter node reads; None for any other node."""
        if node.operator is not Operator.FILTER or any(" OVER (" in text for text in node.predicates):
            return None
        below = node.children[0]
        while below.operator in (Operator.FILTER, Operator.PROJECT):
            below = below.children[0]
        return self._bases.get(id(below))

    def visit(self, node: PlanNode) -> Visited:
        visited = self._visited(node)
        self._relations[id(node)] = visited[1]
        return visited

    def _visited(self, node: PlanNode) -> Visited:
        if node.operator is Operator.SCAN:
            return self._scan(node)
        if node.operator is Operator.MATERIALIZE:
            definition = self.visit(node.children[0])
            self._definitions[node.reference or ""] = definition
            body, relation = self.visit(node.children[1])
            both = (definition[0], body)
            return EstimatedNode(node, body.rows, "as its body", both, upper=body.upper), relation
        visited = [self.visit(child) for child in node.children]
        if not visited:
            return self._leaf(node)
        children = tuple(child for child, _ in visited)
        if any(child.rows is None for child in children):
            return EstimatedNode(node, None, "unknown below", children), Opaque(1.0)
        relation, basis, unanswered = self._inner(node, [below for _, below in visited])
        gaps = tuple(f"no statistic answers {text}" for text in unanswered)
        return EstimatedNode(node, relation.rows, basis, children, gaps, relation.upper), relation

    def _inner(self, node: PlanNode, below: Sequence[Relation]) -> Answer:
        first = below[0]
        match node.operator:
            case Operator.FILTER if isinstance(first, Base) and not any(" OVER (" in text for text in node.predicates):
                return _behind(first, node.predicates)
            case Operator.FILTER:
                return self._filter(node, first)
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
                return (*self._join(node, below[0], below[1]), ())
            case Operator.AGGREGATE:
                return (*self._groups(node, first), ())
            case Operator.TOP_N | Operator.LIMIT if node.limit is not None:
                most = float(node.limit)
                return Derived(first, min(first.rows, most), upper=most), "limit", ()
            case Operator.OTHER if node.label == "UNNEST":
                rows_per_group = _first_of_groups(node)
                if rows_per_group is not None and isinstance(first, Groups):
                    rows = first.rows * first.sizes.first_rows(rows_per_group)
                    upper = first.upper * rows_per_group
                    return Opaque(rows, upper=upper, members=below), "first rows of each group", ()
                basis = f"{UNNEST_ROWS} elements a row, a guess"
                return Opaque(first.rows * UNNEST_ROWS, members=below), basis, ()
            case Operator.UNION:
                return Union(below, [child.columns for child in node.children]), "sum", ()
            case _:
                return first, "as its input", ()

    def _leaf(self, node: PlanNode) -> Visited:
        if node.operator is Operator.EMPTY:
            return EstimatedNode(node, 0.0, "contradiction", upper=0.0), Opaque(0.0)
        definition = self._definitions.get(node.reference or "")
        if definition is not None:
            defined, relation = definition
            return EstimatedNode(node, defined.rows, "as its definition", upper=defined.upper), relation
        rows = bounded_rows(node.cardinality if node.cardinality is not None else 1.0)
        return EstimatedNode(node, rows, "engine", upper=rows), Opaque(rows)

    def _scan(self, node: PlanNode) -> Visited:
        statistics = self._statistics.get(node.table or "")
        if statistics is not None:
            relation = self._bases[id(node)]
            filtered = relation.filtered
            gaps = tuple(f"{statistics.table}: no statistic answers {text}" for text in filtered.unanswered)
            if statistics.source == BOUNDS_SOURCE:
                gaps += (
                    f"{statistics.table} has no statistics but the bounds in its log; "
                    f"run `fusion stats compute {statistics.table}`",
                )
            basis = filtered.basis or f"rows of {statistics.table}"
            estimated = EstimatedNode(node, relation.rows, basis, gaps=gaps, upper=relation.upper)
            return estimated, relation
        shape = self._shapes.get(node.table or "")
        gap = (
            f"{node.table} has no statistics; run `fusion stats compute {node.table}`"
            if node.table
            else (f"a scan of {', '.join(c.name for c in node.columns) or 'no columns'} could not be told apart")
        )
        if shape is not None and shape.rows is not None:
            rows, basis = float(shape.rows), f"rows in the files of {shape.name}"
        elif node.cardinality is not None:
            rows, basis = bounded_rows(node.cardinality), "the engine's guess"
        else:
            return EstimatedNode(node, None, "nothing known", gaps=(gap,)), Opaque(1.0)
        return EstimatedNode(node, rows, basis, gaps=(gap,), upper=rows), Opaque(rows)

    def _join(self, node: PlanNode, lhs: Relation, rhs: Relation) -> tuple[Relation, str]:
        kind = node.join_type or JoinType.INNER
        if kind is JoinType.CROSS:
            return self._crossed(lhs, rhs, 1.0), "product"
        if any(probe.name in ROW_NUMBERS and probe.table is None for probe, _ in node.join_keys):
            fewer = min(lhs, rhs, key=lambda side: side.rows)
            return Derived(lhs, fewer.rows, upper=fewer.upper), "each row once"
        residual = self._residual(node, lhs, rhs)
        share = residual.share
        if residual.unanswered and share >= 1.0:
            share *= INEQUALITY_SHARE
        listed = self._listed(node) if kind is JoinType.MARK else None
        if listed is not None:
            return InList(lhs, node.join_keys[0][0], listed), "a list of constants"
        lhs, rhs = lhs.without(rhs), rhs.without(lhs)
        of_aggregates = self._aggregates.equalities(node)
        keys = [
            (probe, build)
            for probe, build in node.join_keys
            if (lhs.holds(probe) or rhs.holds(build)) and (probe, build) not in of_aggregates
        ]
        if not keys:
            if not node.join_keys:
                return self._crossed(lhs, rhs, share, kind), residual.basis or "product"
            rows = lhs.rows * rhs.rows / max(1.0, min(lhs.rows, rhs.rows)) * share
            met = Opaque(_outer(kind, rows, lhs, rhs), upper=lhs.upper * rhs.upper, members=(lhs, rhs))
            limited = self._limited(met, node, lhs, rhs)
            return limited, "keys taken as unique on the smaller side"
        joined = (
            InnerJoins.of(lhs, rhs, keys, self._classes, share=share)
            if kind is JoinType.INNER
            else OuterJoin(lhs, rhs, keys, kind, self._classes, share=share)
        )
        counted = joined.by_bins and joined.is_read and len(keys) == len(node.join_keys)  # all keys, in any order
        limited = joined if counted else self._limited(joined, node, lhs, rhs)
        if joined.by_bins:
            basis = f"key bins of {keys[0][0].table}.{keys[0][0].name} and {keys[0][1].table}.{keys[0][1].name}"
            return limited, basis
        has_ndv = all(lhs.ndv(probe) is not None and rhs.ndv(build) is not None for probe, build in keys)
        if has_ndv:
            return limited, "containment of keys"
        return limited, "keys taken as unique on the smaller side"

    def _limited(self, joined: Relation, node: PlanNode, lhs: Relation, rhs: Relation) -> Relation:
        """Cap the rows of a join: with unique keys on one side, each row of the other one has at most one match."""
        sides = zip(zip(*node.join_keys, strict=True), node.children[:2], strict=True)
        lhs_unique, rhs_unique = (self._unique.are_unique(columns, child) for columns, child in sides)
        most, upper = (
            _most(node.join_type or JoinType.INNER, a, b, lhs_unique=lhs_unique, rhs_unique=rhs_unique)
            for a, b in ((lhs.rows, rhs.rows), (lhs.upper, rhs.upper))
        )
        if joined.rows > most:
            return Derived(joined, most, upper=upper)
        joined.upper = min(joined.upper, max(joined.rows, upper))
        return joined

    def _listed(self, node: PlanNode) -> Domain | None:
        """Return the constants of an IN list that is joined as rows: the scan of the column names them as well."""
        constants = node.children[1]
        if len(node.join_keys) != 1 or constants.children or constants.table is not None or node.predicates:
            return None
        column = node.join_keys[0][0]
        table_statistics = self._statistics.get(column.table or "")
        stats = table_statistics.columns.get(column.name) if table_statistics is not None else None
        for text in self._optional.get((column.table, column.scan), ()):
            conditions = parsed(text, self._dialect) or ()
            if stats is not None and len(conditions) == 1 and conditions[0].columns == {column.name.lower()}:
                return domain_of(conditions[0], stats.data_type)
        return None

    def _crossed(self, lhs: Relation, rhs: Relation, share: float, kind: JoinType = JoinType.INNER) -> Relation:
        rows = _outer(kind, lhs.rows * rhs.rows * share, lhs, rhs)
        return Opaque(rows, upper=lhs.upper * rhs.upper, members=(lhs, rhs))

    def _residual(self, node: PlanNode, lhs: Relation, rhs: Relation) -> Selectivity:
        """Return the selectivity of a join's conditions other than its keys."""
        joined = Joined((node.children[0].columns, node.children[1].columns), node.join_keys)
        both = Opaque(lhs.rows, members=(lhs, rhs))
        columns = [*joined.columns[0], *joined.columns[1]]
        predicates = [*node.predicates, *self._aggregates.equalities(node).values()]
        measured = self._measured(node)
        return residual_selectivity(predicates, columns, both, dialect=self._dialect, joined=joined, measured=measured)

    def _measured(self, node: PlanNode) -> Measured:
        return lambda condition, prior: self._aggregates.selectivity(condition, node, prior)

    def _groups(self, node: PlanNode, below: Relation) -> tuple[Relation, str]:
        if not node.group_keys:
            return Opaque(1.0), "one group"
        keys = self._counted_keys(determining(self._located(node, below), node, self._statistics), below, node)
        measures = self._measures(node, below)
        if keys is None:
            basis = "a grouping key without statistics: every row its own group"
            return self._grouped(below, below.rows, node, below.upper, measures), basis
        rows = min(below.distinct(keys) or below.rows, below.rows) if keys else min(1.0, below.rows)
        counts = [max(1.0, (below.ndv(key) or below.upper) + 1.0) for key in keys]
        upper = max(rows, min(below.upper, math.prod(counts)))
        groups = self._grouped(below, rows, node, upper, measures)
        return groups, "NDV of the grouping keys"

    def _grouped(
        self, below: Relation, rows: float, node: PlanNode, upper: float, measures: Mapping[PlanColumn, float]
    ) -> Groups:
        return Groups(below, rows, node.group_keys, upper=upper, classes=self._classes, measures=measures)

    def _counted_keys(self, keys: Sequence[PlanColumn], below: Relation, node: PlanNode) -> list[PlanColumn] | None:
        """Return the grouping keys with an NDV; None if a key without one is not determined by the others.

        Columns that a grouping below computes are determined by its keys.
        """
        counted_keys = [key for key in keys if below.ndv(key) is not None]
        if len(counted_keys) == len(keys):
            return counted_keys
        counted_origins = {origin(key) for key in counted_keys}
        is_determined = any(keys_below and keys_below <= counted_origins for keys_below in self._grouped_below(node))
        return counted_keys if is_determined else None

    def _grouped_below(self, node: PlanNode) -> Iterator[set[Origin]]:
        """Yield the keys of each grouping below a node."""
        for child in node.children:
            if child.operator is Operator.AGGREGATE:
                yield {origin(key) for key in child.group_keys}
            definition = self._definitions.get(child.reference or "")
            if definition is not None:
                yield from self._grouped_below(replace(child, children=(definition[0].node,)))
            yield from self._grouped_below(child)

    def _located(self, node: PlanNode, below: Relation) -> list[PlanColumn]:
        """Return the grouping keys; an expression over one scan's columns becomes a column of that scan."""
        scans = [scan for _, scan in node.walk() if scan.operator is Operator.SCAN and scan.table is not None]
        located: list[PlanColumn] = []
        for key in dict.fromkeys(node.group_keys):
            names = columns_in(key.name, self._dialect) if key.table is None and not below.holds(key) else None
            if names is None:
                located.append(key)
                continue
            sources = [[scan for scan in scans if name in {column.name for column in scan.scanned}] for name in names]
            common = [scan for scan in scans if all(any(scan is other for other in some) for some in sources)]
            if names and common:
                located.append(replace(key, table=common[0].table, scan=common[0].scan))
            elif names or key.name:
                located.append(key)
        return located

    def _measures(self, node: PlanNode, below: Relation) -> dict[PlanColumn, float]:
        """Return the NDV of the aggregates for which their form bounds it.

        Groups of k different sizes have at least k (k + 1) / 2 rows.
        """
        inputs = node.children[0].columns
        measures: dict[PlanColumn, float] = {}
        for call in node.columns[len(node.group_keys) :]:
            match = _CALL.match(call.name)
            if match is None:
                continue
            if match[1].startswith("count"):
                groups = self._grouped(below, below.distinct(node.group_keys) or below.rows, node, below.upper, {})
                measures[call] = min(groups.sizes.different + (match[2] is not None), math.sqrt(2.0 * below.rows))
            elif match[1] in ("min", "max", "first", "any_value"):
                place = int(match[2]) if match[2] is not None else None
                argument = inputs[place] if place is not None and place < len(inputs) else None
                values = below.ndv(argument) if argument is not None and below.holds(argument) else None
                if values is not None:
                    measures[call] = values + 1.0
        return measures

    def _filter(self, node: PlanNode, below: Relation) -> Answer:
        """Return the filtered rows of a grouping, of a mark join, or of any other node but a scan."""
        made = node.children[0]
        while made.operator in (Operator.PROJECT, Operator.FILTER):
            made = made.children[0]
        if below.is_marking:
            marks, others = self._marks(node.predicates)
            if len(set(marks)) == 1:
                chosen = below.chosen(marks[0], len(marks))
                if isinstance(chosen, Base) and others:
                    return _behind(chosen, others)
                selectivity = residual_selectivity(others, node.columns, chosen, dialect=self._dialect)
                basis = "; ".join(("rows that met another one", selectivity.basis)).rstrip("; ")
                relation = Derived(chosen, chosen.rows * selectivity.share) if others else chosen
                return relation, basis, selectivity.unanswered
        if isinstance(below, Groups) and made.operator is Operator.AGGREGATE:
            measured = self._measured(node)
            selectivity = group_selectivity(node.predicates, made, below, dialect=self._dialect, measured=measured)
            sized = size_condition(node.predicates, dialect=self._dialect)
            if sized is not None:
                groups = GroupsOfSize(below, below.rows * selectivity.share, sized)
                return groups, selectivity.basis, selectivity.unanswered
        else:
            measured = self._measured(node)
            selectivity = residual_selectivity(
                node.predicates, node.columns, below, dialect=self._dialect, measured=measured
            )
        return Derived(below, below.rows * selectivity.share), selectivity.basis, selectivity.unanswered

    def _marks(self, predicates: Sequence[str]) -> tuple[list[JoinType], list[str]]:
        """Return the join marks that a filter tests, and its other conjuncts; no marks if those contain one."""
        marks: list[JoinType] = []
        others: list[str] = []
        for text in predicates:
            for condition in parsed(text, self._dialect) or ():
                kind = _MARKED.get(condition.text.strip("() ").replace("(", ""))
                marks += [kind] if kind is not None else []
                others += [condition.text] if kind is None else []
            if parsed(text, self._dialect) is None:
                others.append(text)
        return ([], others) if any(MARK in other for other in others) else (marks, others)


def _behind(base: Base, predicates: Sequence[str]) -> Answer:
    behind = base.behind(predicates)
    new = behind.filtered.unanswered[len(base.filtered.unanswered) :]
    return behind, behind.filtered.basis, new


def _first_of_groups(node: PlanNode) -> float | None:
    """Return the number of rows per group that UNNEST reads from arg_min or arg_max; None for any other input."""
    made = node.children[0]
    inputs = made.children[0].columns if made.operator is Operator.AGGREGATE and made.children else ()
    for call in made.columns[len(made.group_keys) :]:
        match = _FIRST.match(call.name)
        if match is not None and int(match[1]) < len(inputs) and inputs[int(match[1])].name.isdigit():
            return float(inputs[int(match[1])].name)
    return None


def _most(kind: JoinType, lhs_rows: float, rhs_rows: float, *, lhs_unique: bool, rhs_unique: bool) -> float:
    """Return the upper bound of a join's rows. lhs_unique, rhs_unique: the keys of that side are unique."""
    pairs = min(lhs_rows * rhs_rows, rhs_rows if lhs_unique else math.inf, lhs_rows if rhs_unique else math.inf)
    match kind:
        case JoinType.INNER:
            return pairs
        case JoinType.LEFT:
            return lhs_rows if rhs_unique else pairs + lhs_rows
        case JoinType.RIGHT:
            return rhs_rows if lhs_unique else pairs + rhs_rows
        case JoinType.FULL:
            return lhs_rows + rhs_rows + (0.0 if lhs_unique or rhs_unique else pairs)
        case _:
            return math.inf


def _outer(kind: JoinType, pairs: float, lhs: Relation, rhs: Relation) -> float:
    """Return the rows of a join of any kind, given only the number of matching pairs."""
    match kind:
        case JoinType.LEFT:
            return max(pairs, lhs.rows)
        case JoinType.RIGHT:
            return max(pairs, rhs.rows)
        case JoinType.FULL:
            return max(pairs, lhs.rows + rhs.rows)
        case JoinType.SEMI | JoinType.ANTI:
            return min(pairs, lhs.rows) if kind is JoinType.SEMI else max(lhs.rows - pairs, lhs.rows / 2)
        case JoinType.RIGHT_SEMI | JoinType.RIGHT_ANTI:
            return min(pairs, rhs.rows) if kind is JoinType.RIGHT_SEMI else max(rhs.rows - pairs, rhs.rows / 2)
        case JoinType.MARK | JoinType.SINGLE:
            return lhs.rows
        case _:
            return pairs
