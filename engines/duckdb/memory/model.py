"""DuckDB's memory: pages, tables and buffers of its operators, and those that are alive at the same time.

Rows of joins, aggregates and sorts lie in pages of 256 KiB, divided by their hash and by the thread that adds them;
strings that are too long to lie in their row have pages of their own. A join then points into its rows from a table of
a power of two of entries, and an aggregate finds its groups through one. A join's build side that comes out of joins
keeps numbers of their rows in place of values. A scan holds the row groups that it reads and the next one. Which of
these are there together is in pipelines.py and schedule.py.

It is long because every kind of operator keeps other things.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from engines.duckdb.memory.layout import (
    CALIBRATED,
    Constants,
    combining_table_bytes,
    grouping_table_bytes,
    groups_kept,
    groups_met,
    join_table_bytes,
    occupied,
    pages_bytes,
    power_of_two,
)
from engines.duckdb.memory.pipelines import DEFAULT_ROW_GROUP_ROWS, graph_of
from engines.duckdb.memory.schedule import Moment, SinkState, peak
from engines.duckdb.memory.uncertainty import BOUNDS, NO_STATISTICS, uncertainty_of
from selector.cardinality.tree import EstimatedNode
from selector.estimate import UNKNOWN, MemoryEstimate, whole_bytes
from selector.memory.column_widths import (
    CACHED_COLUMNS,
    Row,
    dictionary_bytes,
    encoded_bytes,
    heap_bytes,
    row_of,
    stored_bytes,
)
from selector.memory.pipeline import operator_of, walk
from selector.plan import JoinType, Operator, PlanColumn, PlanNode
from selector.row_sample import SampleColumn
from selector.statistics import BOUNDS_SOURCE, TableStatistics
from selector.types import VALUE_BYTES, Group, names_of

UNIQUE_SHARE = 0.9  # distinct values of a column without duplicates, as they are counted, per row
SMALLEST_SAMPLE = 200  # rows that tell whether values lie together
CLUSTERED_SHARE = 0.05  # of the ranks, by which neighbours differ where they do

_CALL = re.compile(r"^(\w+)\((?:DISTINCT )?(.*)\)", re.DOTALL)
_PARTITION_BY = re.compile(r"PARTITION BY (.+?)(?: ORDER BY | ROWS | RANGE | GROUPS |\)$)")
_POSITION = re.compile(r"#(\d+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_GROWING_STATE = re.compile(
    r"(list|array_agg|string_agg|group_concat|listagg|median|mode|quantile|histogram|map)\w*\(|\w+\(DISTINCT ",
    re.IGNORECASE,
)
_STATE_BYTES = {"count": 8, "count_star": 8, "corr": 64} | dict.fromkeys(
    ("stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"), 24
)
_SUMS = ("sum", "avg", "mean")
SUM_STATE_BYTES = 24  # of integers and decimals, whose sum has 16 bytes
STATE_BYTES = 16
NARROW_STATE_BYTES = 8  # of the smallest or largest of values of up to four bytes
STRING_STATE_BYTES = 32


@functools.lru_cache(maxsize=CACHED_COLUMNS)
def is_clustered(column: SampleColumn) -> bool:
    """Tell whether a column's values lie together in the files: from a sample, whose rows are in their order.

    Of unordered values, every second differs from the one before it by more than 0.29 of the ranks.
    """
    if column.values.dtype == object or column.codes.size < SMALLEST_SAMPLE:
        return False
    ranks = column.codes.astype(np.int64)
    return float(np.median(np.abs(np.diff(ranks)))) < CLUSTERED_SHARE * float(ranks.max(initial=0))


def estimate(
    tree: EstimatedNode,
    statistics: Mapping[str, TableStatistics],
    *,
    threads: int,
    notes: tuple[str, ...] = (),
    constants: Constants = CALIBRATED,
) -> MemoryEstimate:
    """Return expected peak and upper bound of a plan that runs with this many threads."""
    if any(part.rows is None for _, part in walk(tree)):
        return replace(UNKNOWN, gaps=tree.all_gaps())
    model = _Model(tree, statistics, threads, constants)
    moment = model.peak()
    peak_bytes = moment.bytes + constants.base_bytes
    operators = tuple(operator_of(part, depth, model.held.get(id(part), 0.0)) for depth, part in walk(tree))
    driver = next((place for place, (_, part) in enumerate(walk(tree)) if part is moment.largest), None)
    tables = [part.table for part in operators if part.table is not None]
    uncertainty = uncertainty_of(operators, driver, description=_description(tables, statistics))
    return MemoryEstimate(
        whole_bytes(peak_bytes),
        whole_bytes(uncertainty.upper_bytes(peak_bytes)),
        operators,
        (*tree.all_gaps(), *notes),
        driver,
        uncertainty=uncertainty,
    )


def _description(tables: Sequence[str], statistics: Mapping[str, TableStatistics]) -> str:
    """Return the worst description of a plan's tables; empty: all have statistics."""
    if any(table not in statistics for table in tables):
        return NO_STATISTICS
    return BOUNDS if any(statistics[table].source == BOUNDS_SOURCE for table in tables) else ""


Needed = frozenset[PlanColumn] | None  # columns that are used above; None: all of them


class _Model:
    """Memory model of one plan. held: bytes of each operator, by its identity."""

    def __init__(
        self, tree: EstimatedNode, statistics: Mapping[str, TableStatistics], threads: int, constants: Constants
    ) -> None:
        self._statistics = statistics
        self._threads = threads
        self._constants = constants
        self._stored_bytes: dict[str, float] = {}
        self._dictionaries: dict[int, Mapping[PlanColumn, float]] = {}
        self.graph = graph_of(tree, statistics, threads)
        self.held: dict[int, float] = {}
        self._fill(tree, None)
        for pipeline in self.graph.pipelines:
            if pipeline.scan is not None:
                pipeline.read_bytes, pipeline.scan_bytes = self._scan_bytes(pipeline.scan)
                self.held[id(pipeline.scan)] = (pipeline.read_bytes + pipeline.scan_bytes) * pipeline.tasks

    def peak(self) -> Moment:
        """Return the moment with most bytes."""
        return peak(self.graph.pipelines, self._threads)

    def _fill(self, part: EstimatedNode, needed: Needed) -> None:
        state = self.graph.states.get(id(part))
        if state is not None:
            self._fill_state(state, needed)
            self.held[id(part)] = max(state.filling_bytes + state.builders * state.task_bytes, state.held_bytes)
        for child, needs in zip(part.children, _needs(part.node, needed), strict=True):
            self._fill(child, needs)

    def _fill_state(self, state: SinkState, needed: Needed) -> None:
        """Compute the sizes of one operator's state."""
        part, constants = state.part, self._constants
        node = part.node
        match node.operator:
            case Operator.HASH_JOIN:
                rows, table, lasting = self._hash_join(part, needed, state.builders)
                state.filling_bytes, state.held_bytes, state.lasting_bytes = rows, rows + table + lasting, lasting
                state.floor_bytes = min(rows, constants.join_partitions * state.builders * constants.page_bytes)
            case Operator.NESTED_LOOP_JOIN:
                build = part.children[1]
                state.filling_bytes = state.held_bytes = self._stored(
                    build.rows or 0.0, row_of(_used(build.node, needed), self._statistics)
                )
            case Operator.AGGREGATE:
                inputs = self._input_state_bytes(part)
                state.filling_bytes = state.held_bytes = inputs
                if node.group_keys and node.label != "PERFECT_HASH_GROUP_BY":
                    filled, state.task_bytes, combined = self._grouping(part, state.builders)
                    state.filling_bytes, state.held_bytes = filled + inputs, combined + inputs
                    state.floor_bytes = min(filled, power_of_two(self._threads) * state.builders * constants.page_bytes)
                    state.repeats = (part.children[0].rows or 0.0) / max(1.0, part.rows or 0.0)
                    state.drained_bytes = state.held_bytes
            case Operator.WINDOW:
                filled, sorting = self._window(state)
                state.filling_bytes, state.held_bytes, state.drained_bytes = filled, filled + sorting, filled
            case Operator.SORT:
                held = self._sorted(node, part.children[0].rows or 0.0)  # a limit above may not take all
                state.filling_bytes, state.held_bytes, state.drained_bytes = constants.last_rows * held, held, held
            case Operator.TOP_N:
                limit = float((node.limit or 0) + node.offset) * self._threads
                state.filling_bytes = state.held_bytes = self._sorted(node, min(part.children[0].rows or 0.0, limit))
            case Operator.MATERIALIZE if state.readers:
                definition = part.children[0]
                state.filling_bytes = state.held_bytes = state.lasting_bytes = self._stored(
                    definition.rows or 0.0, row_of(_stored_columns(definition.node), self._statistics)
                )

    def _scan_bytes(self, part: EstimatedNode) -> tuple[float, float]:
        """Return the row group that a thread has read, and what it decodes of it."""
        table = self._statistics.get(part.node.table or "")
        if table is None or not table.rows:
            return 0.0, 0.0
        group_rows = min(table.row_group_rows or DEFAULT_ROW_GROUP_ROWS, table.rows)
        row_bytes = self._stored_bytes.get(table.table)
        if row_bytes is None:
            whole = [PlanColumn(name, column.data_type, table.table) for name, column in table.columns.items()]
            row_bytes = self._stored_bytes[table.table] = stored_bytes(whole, self._statistics)
        share = min(1.0, stored_bytes(part.node.scanned, self._statistics) / max(1e-9, row_bytes))
        compressed = group_rows * share * table.bytes / table.rows
        strings = sum(
            self._string_bytes(column, group_rows) for column in part.node.scanned if column.data_type == "string"
        )
        return compressed, self._constants.scan_decoded * compressed + self._constants.scan_strings * strings

    def _string_bytes(self, column: PlanColumn, rows: float) -> float:
        """Return the bytes of a row group's strings, of which those in a dictionary are there once."""
        dictionary = dictionary_bytes(column, self._statistics)
        return rows * encoded_bytes([column], self._statistics) if dictionary is None else dictionary

    def _hash_join(self, part: EstimatedNode, needed: Needed, threads: int) -> tuple[float, float, float]:
        """Return the bytes of a join's rows, of its hash table, and of the filter that it passes to a scan."""
        node, build = part.node, part.children[1]
        constants = self._constants
        keys = [key for _, key in node.join_keys]
        payload = [] if _matches_only(node) else [c for c in _used(build.node, needed) if c not in keys]
        row = self._narrowed(row_of([*keys, *payload], self._statistics), part, payload)
        mark_bytes = 1 if node.join_type in _MARKING else 0
        width = row.fixed_bytes + constants.hash_bytes + math.ceil(row.columns / 8) + mark_bytes
        width += constants.heap_size_bytes if row.has_strings else 0
        rows = build.rows or 0.0
        filled = pages_bytes(rows, width, constants.join_partitions, threads, constants)
        heap = pages_bytes(rows, row.heap_bytes, constants.join_partitions, threads, constants)
        if self._is_perfect(part):
            return filled + heap, 0.0, 0.0
        return filled + heap, join_table_bytes(rows, constants), self._filter_bytes(part, self._span(node))

    def _is_perfect(self, part: EstimatedNode) -> bool:
        """Tell whether a join's keys are positions of an array: unique integers that lie close."""
        node, span, rows = part.node, self._span(part.node), part.children[1].rows or 0.0
        if node.join_type is not JoinType.INNER or span is None or not rows <= span <= self._constants.perfect_range:
            return False
        return all(self._is_unique(key) for _, key in node.join_keys)

    def _narrowed(self, row: Row, part: EstimatedNode, payload: Sequence[PlanColumn]) -> Row:
        """Return a join's row; columns from a small table are stored as dictionary indices."""
        node, build = part.node, part.children[1]
        span = self._span(node)
        if node.join_type in _WITHOUT_NUMBERS or (span is not None and span <= self._constants.perfect_range):
            return row
        if any(below.operator is Operator.UNION for _, below in build.node.walk()):
            return row
        numbered = self._numbered(build)
        for column in payload:
            build_rows = numbered.get(column)
            if build_rows is None:
                continue
            alone = row_of([column], self._statistics)
            width = next(width for width, most in ((1, 1 << 8), (2, 1 << 16), (4, math.inf)) if build_rows <= most)
            if width < alone.fixed_bytes:
                row = replace(
                    row,
                    fixed_bytes=row.fixed_bytes - alone.fixed_bytes + width,
                    heap_bytes=row.heap_bytes - alone.heap_bytes,
                    strings=row.strings - alone.strings,
                )
        return row

    def _numbered(self, part: EstimatedNode) -> Mapping[PlanColumn, float]:
        """Return the columns that a join emits as dictionary indices, with the rows of its build side."""
        numbers = self._dictionaries.get(id(part))
        if numbers is None:
            numbers = self._dictionaries[id(part)] = self._numbers(part)
        return numbers

    def _numbers(self, part: EstimatedNode) -> Mapping[PlanColumn, float]:
        constants, node = self._constants, part.node
        match node.operator:
            case Operator.PROJECT:
                below = self._numbered(part.children[0])
                return {column: below[column] for column in node.columns if column in below}
            case Operator.FILTER:
                return self._numbered(part.children[0])
            case Operator.HASH_JOIN if node.join_type in _HANDING_ON:
                numbers = dict(self._numbered(part.children[0]))
                build, span = part.children[1], self._span(node)
                rows, probed = build.rows or 0.0, node.children[0].cardinality or 0.0
                if node.join_type is not JoinType.INNER:
                    return numbers
                payload = [column for column in build.node.columns if column in node.columns]
                if span is not None and self._is_perfect(part):
                    return numbers | dict.fromkeys(payload, span)
                through = self._numbered(build)
                if any(column in through for column in payload):
                    return numbers | {column: through[column] for column in payload if column in through}
                width = row_of(payload, self._statistics).fixed_bytes
                if probed >= max(constants.numbering_rows, constants.numbering_ratio * rows) and rows * width <= (
                    constants.numbering_bytes
                ):
                    return numbers | dict.fromkeys(payload, rows)
                return numbers
            case _:
                return {}

    def _filter_bytes(self, part: EstimatedNode, span: float | None) -> float:
        """Return the bytes of the filter on keys that a join passes to its probe side's scan."""
        constants, node, rows = self._constants, part.node, part.children[1].rows or 0.0
        if (
            node.join_type not in _FILTERING
            or len(node.join_keys) != 1
            or node.join_keys[0][0].scan is None
            or not rows
        ):
            return 0.0
        if rows > min(constants.filtering_rows, node.children[0].cardinality or math.inf):
            return 0.0
        if span is None or span > constants.exact_filter_range:
            return power_of_two(constants.bloom_bits * rows) / 8
        copies = 1 + (constants.join_partitions if rows > constants.parallel_join_rows else 1)
        return copies * span / 8

    def _span(self, node: PlanNode) -> float | None:
        """Return how many integers there are from the smallest to the largest key of a join's build side."""
        if len(node.join_keys) != 1:
            return None
        key = node.join_keys[0][1]
        table = self._statistics.get(key.table or "")
        column = table.columns.get(key.name) if table is not None else None
        if column is None or column.data_type not in _INTEGERS:
            return None
        if not isinstance(column.minimum, float) or not isinstance(column.maximum, float):
            return None
        return column.maximum - column.minimum + 1

    def _is_unique(self, key: PlanColumn) -> bool:
        table = self._statistics.get(key.table or "")
        column = table.columns.get(key.name) if table is not None else None
        return table is not None and column is not None and column.ndv >= UNIQUE_SHARE * table.rows

    def _grouping(self, part: EstimatedNode, threads: int) -> tuple[float, float, float]:
        """Return an aggregate's bytes: rows when all are in, each thread's table, and while groups are put together."""
        constants, node, below = self._constants, part.node, part.children[0]
        row = row_of(node.group_keys, self._statistics)
        calls = node.columns[len(node.group_keys) :]
        states = sum(_state_bytes(column, below.node) for column in calls)
        texts = sum(self._text_state_bytes(column, below.node) for column in calls if column.data_type == "string")
        width = row.fixed_bytes + constants.hash_bytes + math.ceil((row.columns + 1) / 8)
        width += constants.heap_size_bytes if row.has_strings else 0
        if states:
            width = _aligned(_aligned(width) + states)
        input_rows, groups = below.rows or 0.0, part.rows or 0.0
        grows = self._threads <= constants.growing_threads
        if self._comes_together(part):
            held_groups = groups
        elif grows:
            held_groups = groups_met(groups, input_rows, threads) * threads
        else:
            held_groups = groups_kept(groups, input_rows, threads, constants)
        parts = power_of_two(self._threads)
        rows = pages_bytes(held_groups, width, parts, threads, constants)
        rows += pages_bytes(held_groups, row.heap_bytes, parts, threads, constants) + held_groups * texts
        table = grouping_table_bytes(held_groups / threads if grows else 0.0, constants)
        filled = constants.last_rows * rows
        if table > constants.entry_bytes * constants.grouping_entries:  # it has grown: twice as large as the one before
            share = threads * table / 2 / constants.entry_bytes / constants.grouping_load / held_groups
            filled = max(filled, share * rows + threads * table * constants.growing_overlap / 2)
        return filled, table, rows + parts * combining_table_bytes(held_groups / parts, constants)

    def _text_state_bytes(self, column: PlanColumn, below: PlanNode) -> float:
        """Return the bytes of an aggregate's text per group: a longer text is allocated anew."""
        return self._constants.text_places * heap_bytes(_argument(column, below), self._statistics)

    def _input_state_bytes(self, part: EstimatedNode) -> float:
        """Return the bytes of states that grow with their input: lists, texts, distinct values, quantiles."""
        constants, node, below = self._constants, part.node, part.children[0]
        row_bytes = 0.0
        for column in node.columns[len(node.group_keys) :]:
            if not _GROWING_STATE.match(column.name):
                continue
            row = row_of([_argument(column, below.node)], self._statistics)
            row_bytes += constants.growing_state * (row.fixed_bytes + row.heap_bytes)
            if "DISTINCT " in column.name:
                keys = row_of(node.group_keys, self._statistics)
                row_bytes += keys.fixed_bytes + keys.heap_bytes + constants.hash_bytes
        return row_bytes * (below.rows or 0.0)

    def _comes_together(self, part: EstimatedNode) -> bool:
        """Tell whether the rows of a group come one after the other, as they lie in the files: one thread gets all."""
        source = _source(part.children[0].node)
        keys = [key for key in part.node.group_keys if key.scan is not None and key.scan == source.scan]
        table = self._statistics.get(source.table or "")
        if table is None or table.sample is None:
            return False
        sampled = [table.sample.columns[key.name] for key in keys if key.name in table.sample.columns]
        return any(is_clustered(column) for column in sampled)

    def _sorted(self, node: PlanNode, rows: float) -> float:
        """Return the bytes of rows that are sorted: their keys, from which they can be read again, and the rest."""
        constants = self._constants
        keys = row_of(node.sort_keys, self._statistics)
        rest = row_of([c for c in _stored_columns(node) if c not in node.sort_keys], self._statistics)
        pointer = constants.pointer_bytes if rest.columns else 0
        key_bytes = keys.fixed_bytes + keys.columns + pointer
        largest = float(constants.sort_key_bytes[-1])
        width = next((float(size) for size in constants.sort_key_bytes if key_bytes <= size), largest)
        if keys.has_strings:
            width = largest + keys.heap_bytes
        if rest.columns:
            width += self._row_bytes(rest)
        return rows * (width + constants.sort_scratch)

    def _window(self, state: SinkState) -> tuple[float, float]:
        """Return the bytes of a window's input, and of what is sorted at once: parts by their hash, or the whole."""
        constants, node, child = self._constants, state.part.node, state.part.children[0]
        rows, row = state.part.rows or 0.0, row_of(_stored_columns(child.node), self._statistics)
        width = self._row_bytes(row)
        if not any("PARTITION BY" in column.name for column in node.columns):
            return constants.last_rows * rows * (width + constants.pointer_bytes + constants.window_scratch), 0.0
        parts = constants.window_partitions
        while parts < constants.most_window_partitions and max(rows, node.cardinality or 0.0) > (
            parts * DEFAULT_ROW_GROUP_ROWS
        ):
            parts *= 4
        parts = max(1, round(occupied(parts, self._partitions(node, _stored_columns(child.node)))))
        held, written_rows = 0.0, sum(state.writers.values())
        for writer, written in state.writers.items():
            share = rows * written / written_rows if written_rows else 0.0
            held += pages_bytes(share, width - row.heap_bytes + constants.hash_bytes, parts, writer.tasks, constants)
            held += pages_bytes(share, row.heap_bytes, parts, writer.tasks, constants)
        return held, min(1.0, self._threads / parts) * rows * (width + constants.sort_key_bytes[-1])

    def _partitions(self, node: PlanNode, columns: Sequence[PlanColumn]) -> float:
        """Return how many partitions a window has at most: as many as its columns' values go together."""
        by_name = {column.name: column for column in columns}
        most = math.inf
        for text in (column.name for column in node.columns):
            keys = _PARTITION_BY.search(text)
            if keys is not None:
                distinct_counts = [self._distinct(by_name.get(name.strip())) for name in keys[1].split(",")]
                most = min(most, math.prod(distinct_counts))
        return most

    def _distinct(self, column: PlanColumn | None) -> float:
        table = self._statistics.get(column.table or "") if column is not None else None
        column_statistics = table.columns.get(column.name) if table is not None and column is not None else None
        return math.inf if column_statistics is None else column_statistics.ndv + 1.0  # and NULL

    def _row_bytes(self, row: Row) -> float:
        """Return the bytes of a whole row with its strings."""
        heap = self._constants.heap_size_bytes + row.heap_bytes if row.has_strings else 0.0
        return row.fixed_bytes + math.ceil(row.columns / 8) + heap

    def _stored(self, rows: float, row: Row) -> float:
        """Return the bytes of rows that lie in pages, undivided."""
        return rows * self._row_bytes(row)


_MARKING = frozenset({JoinType.RIGHT, JoinType.FULL, JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI})
_WITHOUT_NUMBERS = frozenset({JoinType.LEFT, JoinType.SINGLE, JoinType.FULL})
_HANDING_ON = frozenset({JoinType.INNER, JoinType.LEFT, JoinType.SEMI, JoinType.ANTI, JoinType.MARK})
_FILTERING = frozenset({JoinType.INNER, JoinType.SEMI, JoinType.RIGHT, JoinType.RIGHT_SEMI})
_INTEGERS = frozenset(names_of(Group.WHOLE, Group.DATE))
_IN_EIGHT_BYTES = frozenset(  # what sums of these have
    {*names_of(Group.FLOATING), *(name for name in names_of(Group.WHOLE) if VALUE_BYTES[name] <= 2)}
)
_NARROW = frozenset(name for name, width in VALUE_BYTES.items() if width <= 4)
_GATHERING = frozenset({Operator.AGGREGATE, Operator.SORT, Operator.TOP_N, Operator.WINDOW})


def _streams(node: PlanNode) -> bool:
    return node.operator not in _GATHERING


def _matches_only(node: PlanNode) -> bool:
    """Tell whether nothing of a join's build side comes out of it."""
    return node.join_type in (JoinType.SEMI, JoinType.ANTI, JoinType.MARK)


def _source(node: PlanNode) -> PlanNode:
    """Return the leaf or the gathering operator whose rows come to a node as they are read."""
    while node.children and _streams(node):
        node = node.children[0]
    return node


def _stored_columns(node: PlanNode) -> list[PlanColumn]:
    """Return the columns that are stored of a node's rows."""
    return _once(_traced_columns(node))


def _once(columns: Sequence[PlanColumn]) -> list[PlanColumn]:
    """Return columns, each of a table once; computed ones of the same text are different ones."""
    unique: list[PlanColumn] = []
    for column in columns:
        if column.table is None or column not in unique:
            unique.append(column)
    return unique


def _traced_columns(node: PlanNode) -> Sequence[PlanColumn]:
    """Return a node's columns in order; those of a union from the input that tells most of them."""
    match node.operator:
        case Operator.UNION:
            inputs = zip(*map(_traced_columns, node.children), strict=False)
            return [max(some, key=lambda one: (one.table is not None, one.data_type is not None)) for some in inputs]
        case Operator.FILTER | Operator.LIMIT | Operator.SORT | Operator.TOP_N:
            return _traced_columns(node.children[0])
        case Operator.WINDOW:
            below = _traced_columns(node.children[0])
            return [*below, *node.columns[len(below) :]]
        case Operator.PROJECT:
            known_below = dict(zip(node.children[0].columns, _traced_columns(node.children[0]), strict=False))
            return [known_below.get(column, column) for column in node.columns]
        case Operator.MATERIALIZE:
            return _traced_columns(node.children[1])
        case _:
            return node.columns


def _used(node: PlanNode, needed: Needed) -> list[PlanColumn]:
    unique = _once(node.columns)
    return unique if needed is None else [column for column in unique if column in needed]


def _needs(node: PlanNode, needed: Needed) -> list[Needed]:
    """Return which columns a node needs of each of its children."""
    match node.operator:
        case Operator.PROJECT:
            return [_named(node.columns, node.children[0])]
        case Operator.AGGREGATE:
            return [None]
        case Operator.FILTER | Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN if needed is not None:
            keys = {key for pair in node.join_keys for key in pair}
            return [needed | keys | _in_text(node.predicates, child) for child in node.children]
        case Operator.MATERIALIZE:
            return [None, needed]
        case Operator.LIMIT:
            return [needed]
        case _:
            return [None for _ in node.children]


def _named(columns: Sequence[PlanColumn], child: PlanNode) -> Needed:
    """Return a projection's inputs: those that it hands on, and those that its expressions name."""
    texts = [column.name for column in columns if column not in child.columns]
    if any(_POSITION.search(text) for text in texts):
        return None
    return frozenset(columns) | _in_text(texts, child)


def _in_text(texts: Sequence[str], child: PlanNode) -> frozenset[PlanColumn]:
    words = {word for text in texts for word in _WORD.findall(text)}
    return frozenset(column for column in child.columns if column.name in words or column.name in texts)


def _state_bytes(column: PlanColumn, below: PlanNode) -> float:
    """Return the bytes of an aggregate's state per group, without the text that it may keep.

    Observed: pages of a million groups by one integer, for each function and type of its argument.
    """
    call = _CALL.match(column.name)
    name = call.group(1) if call else ""
    if name in _STATE_BYTES:
        return _STATE_BYTES[name]
    if name in _SUMS:
        return STATE_BYTES if _argument(column, below).data_type in _IN_EIGHT_BYTES else SUM_STATE_BYTES
    if column.data_type == "string":
        return STRING_STATE_BYTES
    return NARROW_STATE_BYTES if column.data_type in _NARROW else STATE_BYTES


def _argument(column: PlanColumn, below: PlanNode) -> PlanColumn:
    """Return what an aggregate is called with, where its text gives a position; else what it is itself."""
    place = _POSITION.search(column.name)
    is_position = place is not None and int(place.group(1)) < len(below.columns)
    return below.columns[int(place.group(1))] if place is not None and is_position else column


def _aligned(width: float) -> float:
    return math.ceil(width / 8) * 8
