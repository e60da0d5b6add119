"""An engine's plan as the estimator reads it, whichever engine it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

MARK = "SUBQUERY"  # the column of a mark join that tells whether a row met any


class UnreadablePlan(ValueError):
    """A text is no plan of its engine; the message says what is odd about it."""


class Operator(StrEnum):
    """Operation of a node; OTHER holds no memory worth counting."""

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
    EXCHANGE = "exchange"
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


class Distribution(StrEnum):
    """Transport of a join's build side: whole to every host, or divided by its keys."""

    BROADCAST = "broadcast"
    PARTITIONED = "partitioned"


@dataclass(frozen=True, slots=True)
class Placement:
    """Fragment of a distributed plan in which a node runs. instances: over all hosts together."""

    fragment: str
    hosts: int
    instances: int

    @property
    def instances_per_host(self) -> int:
        """Instances on the host that has most."""
        return -(-self.instances // self.hosts)


@dataclass(frozen=True, slots=True)
class Resources:
    """Estimates of the engine's planner for one instance of a node; None: the plan does not have it.

    row_bytes: of an output row.
    estimate_bytes: expected memory.
    reservation_bytes: memory without which it does not start.
    buffer_bytes: size of a page.
    """

    row_bytes: float | None = None
    estimate_bytes: float | None = None
    reservation_bytes: float | None = None
    buffer_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class FilesRead:
    """The files of a scan that are left after pruning.

    range_bytes, range_rows: of the largest part that is read in one go; None where the engine does not say.
    """

    count: int
    bytes: float
    range_bytes: float | None = None
    range_rows: float | None = None


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """A column that flows through a node.

    table: where it came from, None for a computed one. scan: number of the scan that read it, which tells two readings
    of one table apart; None where the reader does not count.
    """

    name: str
    data_type: str | None = None
    table: str | None = None
    scan: int | None = None


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One operator.

    cardinality: rows out, as the ENGINE estimates them; None where it does not say.
    children: probe side first, build side second for a join.
    scanned: columns that a scan decodes: those it hands on and those that only its filters need.
    predicates: filters of a scan or filter node, as SQL text of the engine's dialect. optional: those by which a scan
    may leave rows out, which a join above does for certain.
    join_keys: pairs (probe side, build side). group_keys: of an aggregate, empty for a global one. sort_keys: of a sort
    or top-n, where the reader tells them.
    limit: rows of a limit or top-n. reference: name of the common table expression that a MATERIALIZE node
    defines (children: definition, body) or that a leaf reads.
    scan: number of a scan, as its columns have it. identifier: the engine's own, as its run-time report has it too.
    offset: rows of a top-n that are sorted but skipped.
    distribution: of a join or of the exchange below it. build_placement: where a join's table is built, if not where
    it is probed. These, placement, resources and files: of a distributed plan, where its text has them.
    """

    operator: Operator
    label: str
    children: tuple[PlanNode, ...] = ()
    cardinality: float | None = None
    columns: tuple[PlanColumn, ...] = ()
    table: str | None = None
    scanned: tuple[PlanColumn, ...] = ()
    predicates: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    join_type: JoinType | None = None
    join_keys: tuple[tuple[PlanColumn, PlanColumn], ...] = ()
    group_keys: tuple[PlanColumn, ...] = ()
    sort_keys: tuple[PlanColumn, ...] = ()
    limit: int | None = None
    reference: str | None = None
    scan: int | None = None
    identifier: str | None = None
    offset: int = 0
    distribution: Distribution | None = None
    placement: Placement | None = None
    build_placement: Placement | None = None
    resources: Resources | None = None
    files: FilesRead | None = None

    def walk(self, depth: int = 0) -> Iterator[tuple[int, PlanNode]]:
        """Yield (depth, node), parents first."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan. dialect: of its predicates. notes: what could not be told apart while reading it.

    named: the statement's expressions by their aliases, in lower case; one may mean several.
    reservation_bytes, estimate_bytes: per host, as the engine's planner adds them up; None where it does not say.
    """

    root: PlanNode
    dialect: str
    notes: tuple[str, ...] = ()
    named: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reservation_bytes: float | None = None
    estimate_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table as plan readers see it. columns: name to Spark's type. rows: None unless known for certain."""

    name: str
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
