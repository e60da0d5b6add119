"""DuckDB's pipelines of a plan, their sinks, and their dependencies.

They are built in DuckDB's own order (``MetaPipeline``, ``PhysicalJoin::BuildJoinPipelines``,
``PhysicalUnion::BuildPipelines``, ``PhysicalCTE``; 2.0), which is the order in which those start that wait for nothing:
a join's build side comes before its probe side, an operator that needs all rows is where one pipeline ends and the next
one begins. Where a build side is large enough to keep all threads busy, large pipelines of the probe side wait for it.
Rows of a common table expression go straight into the pipelines that read them, and are kept only for those that
would have to wait for another reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from engines.duckdb.memory.schedule import CHUNK_ROWS, Pipeline, SinkState
from selector.cardinality.tree import EstimatedNode
from selector.plan import JoinType, Operator, PlanNode
from selector.statistics import TableStatistics

DEFAULT_ROW_GROUP_ROWS = 122_880
ROWS_PER_THREAD = 245_760  # two row groups: a source of fewer for each thread does not keep all of them busy
COST = {  # of a row, relative to reading one value of a file: what runs beside what is no matter of small differences
    Operator.HASH_JOIN: 4.0,
    Operator.NESTED_LOOP_JOIN: 2.0,
    Operator.AGGREGATE: 8.0,
    Operator.SORT: 12.0,
    Operator.WINDOW: 20.0,
    Operator.TOP_N: 2.0,
    Operator.MATERIALIZE: 2.0,
    Operator.FILTER: 1.0,
    Operator.PROJECT: 1.0,
}
FROM_BUILD_SIDE = frozenset({JoinType.RIGHT, JoinType.FULL, JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI})
_ONLY_FROM_BUILD_SIDE = frozenset({JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI})
_SINKS = frozenset({Operator.AGGREGATE, Operator.SORT, Operator.TOP_N, Operator.WINDOW})
_JOINS = (Operator.HASH_JOIN, Operator.NESTED_LOOP_JOIN)


class _Taking(IntEnum):
    """Ways in which a pipeline reads a common table expression: while it is made, or only if it is the only reader."""

    NOTHING = 0
    ROWS_ALONE = 1
    ROWS = 2


@dataclass(slots=True, eq=False)
class _Meta:
    """Pipelines that write into the same operator. sink: state of the operator; None: the result."""

    sink: SinkState | None
    pipelines: list[Pipeline] = field(default_factory=list)
    children: list[_Meta] = field(default_factory=list)

    def all(self) -> Iterable[_Meta]:
        """Yield it and all below it, in the order in which they were made."""
        yield self
        for child in self.children:
            yield from child.all()


@dataclass(slots=True, eq=False)
class _Shared:
    """A common table expression, and what reads it."""

    state: SinkState
    readers: list[Pipeline] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Graph:
    """Pipelines in the order in which they may start, and what they write into, by the operator's identity."""

    pipelines: list[Pipeline]
    states: dict[int, SinkState]


def graph_of(tree: EstimatedNode, statistics: Mapping[str, TableStatistics], threads: int) -> Graph:
    """Return a plan's pipelines."""
    builder = _Builder(statistics, threads)
    root = _Meta(None)
    builder.build(tree, builder.pipeline(root, tree.rows), root)
    pipelines = [one for meta in root.all() for one in meta.pipelines]
    return Graph(builder.resolved(pipelines), builder.states)


def row_groups(part: PlanNode, statistics: Mapping[str, TableStatistics]) -> int | None:
    """Return how many row groups a scan reads; None: its table has no row count."""
    table = statistics.get(part.table or "")
    if table is None or not table.rows:
        return None
    return math.ceil(table.rows / (table.row_group_rows or DEFAULT_ROW_GROUP_ROWS))


class _Builder:
    def __init__(self, statistics: Mapping[str, TableStatistics], threads: int) -> None:
        self._statistics = statistics
        self._threads = threads
        self._shared: dict[str, _Shared] = {}
        self._busy: dict[int, int] = {}
        self._sources: dict[Pipeline, PlanNode] = {}
        self._taking: dict[Pipeline, _Taking] = {}
        self._builds: dict[Pipeline, list[SinkState]] = {}
        self._probing: set[Pipeline] = set()  # a hash join hands on rows after them, if any are left
        self._probing_much: set[Pipeline] = set()  # and counts as the source of these
        self.states: dict[int, SinkState] = {}

    def pipeline(self, meta: _Meta, rows: float | None, like: Pipeline | None = None) -> Pipeline:
        """Add a pipeline that writes so many rows into a sink. like: one whose operators it goes through, too."""
        made = Pipeline(sinks=[meta.sink] if meta.sink is not None else [])
        if like is not None:
            made.reads, made.needs, made.waits = list(like.reads), set(like.needs), set(like.waits)
            self._taking[made] = self._taking[like]
        else:
            self._taking[made] = _taking(meta.sink.part.node) if meta.sink is not None else _Taking.NOTHING
        if meta.sink is not None:
            meta.sink.writers[made] = rows or 0.0
        meta.pipelines.append(made)
        return made

    def build(self, part: EstimatedNode, current: Pipeline, meta: _Meta) -> None:
        """Add an operator and what is below it to a pipeline."""
        node = part.node
        self._work(current, part)
        if part.children and node.operator not in (*_SINKS, Operator.UNION, Operator.MATERIALIZE):
            self._taking[current] = min(self._taking[current], _taking(node))
        if node.operator in _JOINS and len(part.children) > 1:
            self._join(part, current, meta)
        elif node.operator is Operator.UNION:
            self._union(part, current, meta)
        elif node.operator is Operator.MATERIALIZE:
            self._materialize(part, current, meta)
        elif node.operator in _SINKS:
            below = part.children[0]
            child = self._child(meta, part, current, below.rows)
            self._source(current, part, 1 if _is_one_task(node) else self._threads, reads=child.sink)
            self.build(below, child.pipelines[0], child)
        elif part.children:
            self.build(part.children[0], current, meta)
        elif node.reference is not None and node.reference in self._shared:
            self._shared[node.reference].readers.append(current)
            self._source(current, part, math.ceil((part.rows or 0.0) / CHUNK_ROWS))
        else:
            groups = row_groups(node, self._statistics)
            self._source(current, part, self._threads if groups is None and node.table is None else groups or 1)
            current.scan = part

    def _child(self, meta: _Meta, part: EstimatedNode, current: Pipeline, rows: float | None) -> _Meta:
        """Add the pipelines that write into an operator, which the current one waits for."""
        state = self.states[id(part)] = SinkState(part)
        child = _Meta(state)
        meta.children.append(child)
        self.pipeline(child, rows)
        current.needs.add(state)
        return child

    def _source(self, current: Pipeline, part: EstimatedNode, tasks: int, reads: SinkState | None = None) -> None:
        self._sources[current] = part.node
        table = self._statistics.get(part.node.table or "") if not part.children else None
        current.read_rows = float(table.rows) if table is not None else part.rows or 0.0
        current.tasks = max(1, min(self._threads, tasks))
        if reads is not None:
            current.reads.append(reads)

    def _work(self, current: Pipeline, part: EstimatedNode) -> None:
        node = part.node
        if not part.children:
            table = self._statistics.get(node.table or "")
            rows = float(table.rows) if table is not None else part.rows or 0.0
            current.work += rows * max(1, len(node.scanned))
        elif node.operator in _JOINS:
            current.work += COST[node.operator] * ((part.children[0].rows or 0.0) + (part.rows or 0.0)) / 2
        elif node.operator is not Operator.MATERIALIZE:
            current.work += COST.get(node.operator, 0.0) * (part.rows or 0.0)

    def _join(self, part: EstimatedNode, current: Pipeline, meta: _Meta) -> None:
        probe, build = part.children[:2]
        child = self._child(meta, part, current, build.rows)
        child.pipelines[0].work += COST[part.node.operator] * (build.rows or 0.0)
        self.build(build, child.pipelines[0], child)
        state = self.states[id(part)]
        state.beside = self._builds.setdefault(current, [])  # all are filled before the first one's table is made
        state.beside.append(state)
        current.reads.append(state)
        if part.node.operator is Operator.HASH_JOIN:
            self._probing.add(current)
            if self._estimated_threads(part.node) > self._threads:
                self._probing_much.add(current)
        first = len(meta.pipelines)
        before = list(meta.all())
        upper = list(current.reads)
        self.build(probe, current, meta)
        if self._estimated_threads(build.node) >= self._threads:
            self._wait_recursively(meta, before, child.pipelines)
        if part.node.join_type in FROM_BUILD_SIDE:
            behind = self.pipeline(meta, part.rows)
            if part.node.join_type in _ONLY_FROM_BUILD_SIDE:
                for sink in current.sinks:
                    sink.writers[current] = 0.0
            behind.reads, behind.work = upper, part.rows or 0.0
            behind.waits |= {current, *meta.pipelines[first:-1]}
            self._source(behind, part, math.ceil((build.rows or 0.0) / ROWS_PER_THREAD))

    def _wait_recursively(self, meta: _Meta, before: list[_Meta], dependencies: Iterable[Pipeline]) -> None:
        """Let large pipelines that were made since wait for large ones."""
        large = [one for one in dependencies if self._is_large(one) or one in self._probing_much]
        earlier = set(map(id, before))
        for late in meta.all():
            if id(late) not in earlier:
                for pipeline in late.pipelines:
                    if self._is_large(pipeline):
                        pipeline.waits.update(large)

    def _is_large(self, pipeline: Pipeline) -> bool:
        source = self._sources.get(pipeline)
        if source is None or (source.operator is Operator.AGGREGATE and not source.group_keys):  # a single row
            return False
        return self._estimated_threads(source) > self._threads

    def _estimated_threads(self, node: PlanNode) -> int:
        """Return how many threads DuckDB expects a source to keep busy."""
        threads = self._busy.get(id(node))
        if threads is None:
            below = [self._estimated_threads(child) for child in node.children]
            if not below:
                threads = max(1, int((node.cardinality or 0.0) // ROWS_PER_THREAD))
            else:
                threads = sum(below) if node.operator is Operator.UNION else max(below)
            self._busy[id(node)] = threads
        return threads

    def _union(self, part: EstimatedNode, current: Pipeline, meta: _Meta) -> None:
        ordered = meta.sink is None  # the result keeps the order of its rows
        first, *rest = part.children
        copies = [self.pipeline(meta, child.rows, current) for child in reversed(rest)]
        for sink in current.sinks:
            sink.writers[current] = first.rows or 0.0
        if ordered:
            for place, copy in enumerate(reversed(copies)):
                copy.waits.update([current, *list(reversed(copies))[:place]])
        self.build(first, current, meta)
        busy = _gathers(first.node) and self._estimated_threads(first.node) >= self._threads
        for place, child in enumerate(rest, 1):
            copy = copies[len(rest) - place]
            before: list[_Meta] = []
            behind: list[Pipeline] = []
            previous = part.children[place - 1].node
            busy = busy or (_gathers(previous) and self._estimated_threads(previous) >= self._threads)
            if busy:
                earlier = [current, *reversed(copies[len(rest) - place + 1 :])]
                behind = [*meta.pipelines[meta.pipelines.index(copy) + 1 :], *(set(earlier) & self._probing)]
                copy.waits.update(behind)
                before = list(meta.all())
            self.build(child, copy, meta)
            if busy:
                self._wait_recursively(meta, before, behind)

    def _materialize(self, part: EstimatedNode, current: Pipeline, meta: _Meta) -> None:
        definition, body = part.children
        state = self.states[id(part)] = SinkState(part)
        child = _Meta(state)
        meta.children.append(child)
        self.pipeline(child, definition.rows).work += COST[Operator.MATERIALIZE] * (definition.rows or 0.0)
        self.build(definition, child.pipelines[0], child)
        self._shared[part.node.reference or ""] = _Shared(state)
        self.build(body, current, meta)

    def resolved(self, pipelines: list[Pipeline]) -> list[Pipeline]:
        """Return the pipelines that are scheduled, where those that read a common table expression run with it."""
        for shared in self._shared.values():
            for reader in shared.readers:
                reader.needs.add(shared.state)
        for shared in self._shared.values():
            for reader in shared.readers:
                taking = self._taking[reader]
                is_fed = taking is _Taking.ROWS or (taking is _Taking.ROWS_ALONE and len(shared.readers) == 1)
                if is_fed and not _waits_for(reader, shared.state):
                    pipelines.remove(reader)
                    _feed(reader, shared.state, pipelines)
                else:
                    reader.reads.append(shared.state)
        for one in pipelines:
            for state in one.reads:
                state.readers.add(one)
        return pipelines


def _waits_for(reader: Pipeline, shared: SinkState) -> bool:
    """Tell whether a pipeline has to wait for rows of a common table expression, besides those that it reads."""
    waiting = [*reader.waits, *(one for state in reader.needs - {shared} for one in state.writers)]
    seen: set[Pipeline] = set()
    while waiting:
        one = waiting.pop()
        if one in shared.writers:
            return True
        if one not in seen:
            seen.add(one)
            waiting.extend(one.before())
    return False


def _feed(reader: Pipeline, shared: SinkState, others: list[Pipeline]) -> None:
    """Merge a pipeline that reads a common table expression into the pipelines that make its rows."""
    makers = list(shared.writers)
    for state in reader.sinks:
        rows = state.writers.pop(reader) / len(makers)
        state.writers.update(dict.fromkeys(makers, rows))
    for maker in makers:
        maker.sinks += reader.sinks
        maker.reads += reader.reads
        maker.needs |= reader.needs - {shared}
        maker.waits |= reader.waits
        maker.work += reader.work / len(makers)
    for one in others:
        if reader in one.waits:
            one.waits.remove(reader)
            one.waits.update(maker for maker in makers if maker is not one)


def _taking(node: PlanNode) -> _Taking:
    """Return what an operator does with rows that are pushed into it (``GetExternalInputSupport``)."""
    if node.operator is Operator.HASH_JOIN:
        return _Taking.ROWS_ALONE
    handing_on = node.operator in (Operator.AGGREGATE, Operator.PROJECT, Operator.FILTER)
    return _Taking.ROWS if handing_on or node.label == "STREAMING_LIMIT" else _Taking.NOTHING


def _is_one_task(node: PlanNode) -> bool:
    """Tell whether one thread reads all that an operator hands out."""
    return node.operator is Operator.TOP_N or (
        node.operator is Operator.AGGREGATE and (not node.group_keys or node.label == "PERFECT_HASH_GROUP_BY")
    )


def _gathers(node: PlanNode) -> bool:
    return any(below.operator in (*_SINKS, *_JOINS) for _, below in node.walk())
