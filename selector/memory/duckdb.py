"""DuckDB's memory: the pages, tables and buffers that its operators fill, and what of them is alive together.

Rows of joins, aggregates and sorts lie in pages of 256 KiB, divided by their hash and by the thread that adds them;
strings that are too long to lie in their row have pages of their own. A join then points into its rows from a table of
a power of two of entries, and an aggregate finds its groups through one. A scan holds the row groups that it reads and
the next one. A pipeline that ends in an operator which needs all rows lets go of what is below it when it is done.

It is long because every kind of operator keeps other things.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

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
from selector.memory.duckdb_layout import (
    CALIBRATED,
    Constants,
    grouping_table_bytes,
    groups_met,
    join_table_bytes,
    pages_bytes,
    power_of_two,
)
from selector.memory.pipeline import (
    Peak,
    fanned_out,
    gathered,
    joined,
    materialized,
    operator_of,
    place_of,
    streamed,
    walk,
)
from selector.memory.uncertainty import uncertainty_of
from selector.plan import JoinType, Operator, PlanColumn, PlanNode
from selector.row_sample import SampleColumn
from selector.statistics import TableStatistics
from selector.types import VALUE_BYTES, Group, names_of

DEFAULT_ROW_GROUP_ROWS = 122_880
UNIQUE_SHARE = 0.9  # distinct values of a column without duplicates, as they are counted, per row
SMALLEST_SAMPLE = 200  # rows that tell whether values lie together
CLUSTERED_SHARE = 0.05  # of the ranks, by which neighbours differ where they do

_CALL = re.compile(r"^(\w+)\((?:DISTINCT )?(.*)\)", re.DOTALL)
_POSITION = re.compile(r"#(\d+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_GROWING_STATE = re.compile(
    r"(list|array_agg|string_agg|group_concat|listagg|median|mode|quantile|histogram|map)\w*\(|\w+\(DISTINCT ",
    re.IGNORECASE,
)
_STATE_BYTES = {"count": 8, "count_star": 8, "stddev": 24, "variance": 24, "corr": 64}
STATE_BYTES = 16
NARROW_STATE_BYTES = 8  # of the smallest or largest of values of up to four bytes
STRING_STATE_BYTES = 24


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
    model = _Model(statistics, threads, constants)
    found = model.peak(tree, None)
    peak = found.peak_bytes + constants.base_bytes
    operators = tuple(operator_of(part, depth, model.held.get(id(part), 0.0)) for depth, part in walk(tree))
    driver = place_of(found.at_peak, tree)
    described = all(part.table is None or part.table in statistics for part in operators)
    uncertainty = uncertainty_of(operators, driver, described=described)
    return MemoryEstimate(
        whole_bytes(peak),
        whole_bytes(uncertainty.upper_bytes(peak)),
        max(0.01, tree.confidence),
        operators,
        (*tree.all_gaps(), *notes),
        driver,
        uncertainty=uncertainty,
    )


Needed = frozenset[PlanColumn] | None  # columns that are used above; None: all of them


class _Model:
    """Goes down the plan once, with the columns that are used above. held: bytes by the operator's identity."""

    def __init__(self, statistics: Mapping[str, TableStatistics], threads: int, constants: Constants) -> None:
        self._statistics = statistics
        self._threads = threads
        self._constants = constants
        self.held: dict[int, float] = {}

    def peak(self, part: EstimatedNode, needed: Needed) -> Peak:
        """Return a subtree's bytes over time."""
        below = [self.peak(child, needs) for child, needs in zip(part.children, _needs(part.node, needed), strict=True)]
        peak = self._over_time(part, needed, below).named(part)
        self.held[id(part)] = max(0.0, peak.held_bytes - sum(p.held_bytes for p in _beside(part.node, below)))
        return peak

    def _over_time(self, part: EstimatedNode, needed: Needed, below: list[Peak]) -> Peak:
        node = part.node
        match node.operator:
            case Operator.SCAN:
                return streamed(self._scan_bytes(part), below, is_early=self._is_short(node))
            case Operator.HASH_JOIN:
                rows, table, told = self._hash_join(part, needed)
                return joined(rows, rows + table + told, probe=below[0], build=below[1], lasting_bytes=told)
            case Operator.NESTED_LOOP_JOIN:
                build = part.children[1]
                rows = self._stored(build.rows or 0.0, row_of(_used(build.node, needed), self._statistics))
                probe = below[0]
                if all((child.rows or 0.0) <= 1.0 for child in part.children):  # neither has to wait for the other
                    probe = replace(probe, early_bytes=probe.peak_bytes)
                return joined(rows, rows, probe=probe, build=below[1])
            case Operator.AGGREGATE:
                inputs = self._kept_inputs(part)
                if not node.group_keys:
                    whole = gathered(inputs, inputs, below[0])
                    return replace(whole, early_bytes=whole.peak_bytes)  # one row that nothing has to wait for
                if node.label == "PERFECT_HASH_GROUP_BY":
                    return gathered(inputs, inputs, below[0])
                filled, found = self._grouping(part)
                return gathered(filled + inputs, found + inputs, below[0], drains=True)
            case Operator.SORT:
                kept = self._sorted(node, part.children[0].rows or 0.0)  # a limit above may not take all
                return gathered(self._constants.last_rows * kept, kept, below[0], drains=True)
            case Operator.TOP_N:
                limit = float((node.limit or 0) + node.offset) * self._threads
                kept = self._sorted(node, min(part.children[0].rows or 0.0, limit))
                return gathered(kept, kept, below[0])
            case Operator.WINDOW:
                kept = self._window(part)
                return gathered(self._constants.last_rows * kept, kept, below[0], drains=True)
            case Operator.MATERIALIZE if not _is_waited_for(node.children[1], node.reference):
                return fanned_out(*below)
            case Operator.MATERIALIZE:
                definition = part.children[0]
                own = self._stored(definition.rows or 0.0, row_of(definition.node.columns, self._statistics))
                return materialized(own, definition=below[0], body=below[1])
            case _:
                return streamed(0.0, below)

    def _is_short(self, node: PlanNode) -> bool:
        """Tell whether a leaf has too few rows to keep all threads busy, as DuckDB expects them."""
        return max(1.0, (node.cardinality or 0.0) // self._constants.rows_per_thread) < self._threads

    def _scan_bytes(self, part: EstimatedNode) -> float:
        """Return the row groups that threads read, and the strings that they decode."""
        table = self._statistics.get(part.node.table or "")
        if table is None or not table.rows:
            return 0.0
        group_rows = min(table.row_group_rows or DEFAULT_ROW_GROUP_ROWS, table.rows)
        whole = [PlanColumn(name, column.data_type, table.table) for name, column in table.columns.items()]
        scanned_bytes = stored_bytes(part.node.scanned, self._statistics)
        share = min(1.0, scanned_bytes / max(1e-9, stored_bytes(whole, self._statistics)))
        compressed = group_rows * share * table.bytes / table.rows
        strings = sum(
            self._string_bytes(column, group_rows) for column in part.node.scanned if column.data_type == "string"
        )
        constants = self._constants
        reading = min(self._threads, math.ceil(table.rows / group_rows))
        return reading * (constants.scan_compressed * compressed + constants.scan_strings * strings)

    def _string_bytes(self, column: PlanColumn, rows: float) -> float:
        """Return the bytes of a row group's strings, of which those in a dictionary are there once."""
        dictionary = dictionary_bytes(column, self._statistics)
        return rows * encoded_bytes([column], self._statistics) if dictionary is None else dictionary

    def _hash_join(self, part: EstimatedNode, needed: Needed) -> tuple[float, float, float]:
        """Return the bytes of a join's rows, of the table that points at them, and of what it tells a scan."""
        node, build = part.node, part.children[1]
        constants = self._constants
        keys = [key for _, key in node.join_keys]
        payload = [] if _matches_only(node) else [c for c in _used(build.node, needed) if c not in keys]
        row = row_of([*keys, *payload], self._statistics)
        found = 1 if node.join_type in _MARKING else 0
        width = row.fixed_bytes + constants.hash_bytes + math.ceil(row.columns / 8) + found
        width += constants.heap_size_bytes if row.has_strings else 0
        rows, threads = build.rows or 0.0, self._building(build)
        filled = pages_bytes(rows, width, constants.join_partitions, threads, constants)
        heap = pages_bytes(rows, row.heap_bytes, constants.join_partitions, threads, constants)
        span = self._span(node)
        if node.join_type is JoinType.INNER and span is not None and rows <= span <= constants.perfect_range:
            if all(self._is_unique(key) for key in keys):
                return filled + heap, 0.0, 0.0
        return filled + heap, join_table_bytes(rows, constants), self._filter_bytes(part, span)

    def _filter_bytes(self, part: EstimatedNode, span: float | None) -> float:
        """Return the bytes of what a join tells its probe side's scan about its keys."""
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

    def _grouping(self, part: EstimatedNode) -> tuple[float, float]:
        """Return the bytes of an aggregate when all rows are in, and while it puts its threads' groups together."""
        constants, node, below = self._constants, part.node, part.children[0]
        row = row_of(node.group_keys, self._statistics)
        calls = node.columns[len(node.group_keys) :]
        states = sum(_state_bytes(column) for column in calls)
        texts = sum(self._kept_text(column, below.node) for column in calls if column.data_type == "string")
        width = row.fixed_bytes + constants.hash_bytes + math.ceil((row.columns + 1) / 8)
        width += constants.heap_size_bytes if row.has_strings else 0
        if states:
            width = _aligned(_aligned(width) + states)
        given, groups, threads = below.rows or 0.0, part.rows or 0.0, self._building(below)
        found = groups if self._comes_together(part) else groups_met(groups, given, threads) * threads
        parts = power_of_two(self._threads)
        rows = pages_bytes(found, width, parts, threads, constants)
        rows += pages_bytes(found, row.heap_bytes, parts, threads, constants) + found * texts
        table = grouping_table_bytes(found / threads, constants)
        filled = constants.last_rows * (rows + threads * table)
        if table > constants.entry_bytes * constants.grouping_entries:  # it has grown: twice as large as the one before
            share = threads * table / 2 / constants.entry_bytes / constants.grouping_load / found
            filled = max(filled, share * rows + threads * table * (1 + constants.growing_overlap / 2))
        again = constants.combining_overlap * max(0.0, found - groups) * (width + row.heap_bytes)
        return filled, rows + again + threads * table

    def _kept_text(self, column: PlanColumn, below: PlanNode) -> float:
        """Return the bytes of the text that an aggregate keeps per group: a longer one takes a new place."""
        return self._constants.text_places * heap_bytes(_argument(column, below), self._statistics)

    def _kept_inputs(self, part: EstimatedNode) -> float:
        """Return the bytes of states that grow with their input: lists, texts, distinct values, quantiles."""
        constants, node, below = self._constants, part.node, part.children[0]
        kept = 0.0
        for column in node.columns[len(node.group_keys) :]:
            if not _GROWING_STATE.match(column.name):
                continue
            row = row_of([_argument(column, below.node)], self._statistics)
            kept += constants.growing_state * (row.fixed_bytes + row.heap_bytes)
            if "DISTINCT " in column.name:
                keys = row_of(node.group_keys, self._statistics)
                kept += keys.fixed_bytes + keys.heap_bytes + constants.hash_bytes
        return kept * (below.rows or 0.0)

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
        rest = row_of([c for c in dict.fromkeys(node.columns) if c not in node.sort_keys], self._statistics)
        pointer = constants.pointer_bytes if rest.columns else 0
        key_bytes = keys.fixed_bytes + keys.columns + pointer
        largest = float(constants.sort_key_bytes[-1])
        width = next((float(size) for size in constants.sort_key_bytes if key_bytes <= size), largest)
        if keys.has_strings:
            width = largest + keys.heap_bytes
        if rest.columns:
            width += self._row_bytes(rest)
        return rows * (width + constants.sort_scratch)

    def _window(self, part: EstimatedNode) -> float:
        """Return the bytes of a window's input: divided by its partitions' hash, or sorted as a whole."""
        constants, child = self._constants, part.children[0]
        rows, row = part.rows or 0.0, row_of(list(dict.fromkeys(child.node.columns)), self._statistics)
        parted = any("PARTITION BY" in column.name for column in part.node.columns)
        width = self._row_bytes(row) + (constants.hash_bytes if parted else constants.pointer_bytes)
        slack = constants.join_partitions * self._threads * constants.page_bytes / 2 if parted else 0.0
        return rows * (width + constants.window_scratch) + min(slack, rows * width)

    def _row_bytes(self, row: Row) -> float:
        """Return the bytes of a row and its strings, where it is kept whole."""
        heap = self._constants.heap_size_bytes + row.heap_bytes if row.has_strings else 0.0
        return row.fixed_bytes + math.ceil(row.columns / 8) + heap

    def _stored(self, rows: float, row: Row) -> float:
        """Return the bytes of rows that lie in pages, undivided."""
        return rows * self._row_bytes(row)

    def _building(self, part: EstimatedNode) -> int:
        """Return how many threads add the rows that come out of a node: no more than there are row groups to read."""
        table = self._statistics.get(_source(part.node).table or "")
        if table is None or not table.rows:
            return self._threads
        return max(1, min(self._threads, math.ceil(table.rows / (table.row_group_rows or DEFAULT_ROW_GROUP_ROWS))))


_MARKING = frozenset({JoinType.RIGHT, JoinType.FULL, JoinType.RIGHT_SEMI, JoinType.RIGHT_ANTI})
_FILTERING = frozenset({JoinType.INNER, JoinType.SEMI, JoinType.RIGHT, JoinType.RIGHT_SEMI})
_INTEGERS = frozenset(names_of(Group.WHOLE, Group.DATE))
_NARROW = frozenset(name for name, width in VALUE_BYTES.items() if width <= 4)
_GATHERING = frozenset({Operator.AGGREGATE, Operator.SORT, Operator.TOP_N, Operator.WINDOW})


def _streams(node: PlanNode) -> bool:
    return node.operator not in _GATHERING


def _beside(node: PlanNode, below: list[Peak]) -> list[Peak]:
    """Return those of a node's inputs that are alive while it hands out rows."""
    match node.operator:
        case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN:
            return below[:1]
        case Operator.MATERIALIZE:
            return below[1:]
        case _:
            return below if _streams(node) else []


def _matches_only(node: PlanNode) -> bool:
    """Tell whether nothing of a join's build side comes out of it."""
    return node.join_type in (JoinType.SEMI, JoinType.ANTI, JoinType.MARK)


def _is_waited_for(node: PlanNode, reference: str | None) -> bool:
    """Tell whether a reader of a common table expression has to wait for another one, so that its rows are kept.

    That is one on a join's probe side, where the build side reads it, too. Others get the rows as they come.
    """
    if node.operator in (Operator.HASH_JOIN, Operator.NESTED_LOOP_JOIN):
        probe, build = node.children
        if _source(probe).reference == reference and any(below.reference == reference for _, below in build.walk()):
            return True
    return any(_is_waited_for(child, reference) for child in node.children)


def _source(node: PlanNode) -> PlanNode:
    """Return the leaf or the gathering operator whose rows come to a node as they are read."""
    while node.children and _streams(node):
        node = node.children[0]
    return node


def _used(node: PlanNode, needed: Needed) -> list[PlanColumn]:
    unique = list(dict.fromkeys(node.columns))
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


def _state_bytes(column: PlanColumn) -> float:
    """Return the bytes of an aggregate's state per group, without the text that it may keep."""
    call = _CALL.match(column.name)
    known = _STATE_BYTES.get(call.group(1)) if call else None
    if known is not None:
        return known
    if column.data_type == "string":
        return STRING_STATE_BYTES
    return NARROW_STATE_BYTES if column.data_type in _NARROW else STATE_BYTES


def _argument(column: PlanColumn, below: PlanNode) -> PlanColumn:
    """Return what an aggregate is called with, where its text gives a position; else what it is itself."""
    place = _POSITION.search(column.name)
    known = place is not None and int(place.group(1)) < len(below.columns)
    return below.columns[int(place.group(1))] if place is not None and known else column


def _aligned(width: float) -> float:
    return math.ceil(width / 8) * 8
