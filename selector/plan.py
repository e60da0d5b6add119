"""An engine's plan as the estimator reads it, whichever engine it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Operator(StrEnum):
    """What a node does; OTHER keeps no memory worth counting."""

    SCAN = "scan"
    FILTER = "filter"
    PROJECT = "project"
    HASH_JOIN = "hash join"
    NESTED_LOOP_JOIN = "nested loop join"
    AGGREGATE = "aggregate"
    SORT = "sort"
    TOP_N = "top-n"
    LIMIT = "limit"
    WINDOW = "window"
    UNION = "union"
    MATERIALIZE = "materialize"
    EMPTY = "empty"
    OTHER = "other"


class JoinType(StrEnum):
    """Which rows of a join come out."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"
    RIGHT_SEMI = "right semi"
    RIGHT_ANTI = "right anti"
    MARK = "mark"
    SINGLE = "single"
    CROSS = "cross"


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A column that flows through a node. table: where it came from, None for a computed one."""

    name: str
    data_type: str | None = None
    table: str | None = None


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One operator.

    cardinality: rows out, as the ENGINE estimates them; None where it does not say.
    children: probe side first, build side second for a join.
    scanned: columns that a scan decodes: those it hands on and those that only its filters need.
    predicates: filters of a scan or filter node, as SQL text of the engine's dialect.
    join_keys: pairs (probe side, build side). group_keys: of an aggregate, empty for a global one.
    limit: rows of a limit or top-n. reference: name of the common table expression that a MATERIALIZE node
    defines (children: definition, body) or that a leaf reads.
    """

    operator: Operator
    label: str
    children: tuple[PlanNode, ...] = ()
    cardinality: float | None = None
    columns: tuple[PlanColumn, ...] = ()
    table: str | None = None
    scanned: tuple[PlanColumn, ...] = ()
    predicates: tuple[str, ...] = ()
    join_type: JoinType | None = None
    join_keys: tuple[tuple[PlanColumn, PlanColumn], ...] = ()
    group_keys: tuple[PlanColumn, ...] = ()
    limit: int | None = None
    reference: str | None = None

    def walk(self, depth: int = 0) -> Iterator[tuple[int, PlanNode]]:
        """Yield (depth, node), parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan. dialect: of its predicates. notes: what could not be told apart while reading it."""

    root: PlanNode
    dialect: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a plan reader must know of a table. columns: name to Spark's type. rows: where known for certain."""

    name: str
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
