"""Impala's memory per host: what a run takes at its peak, from the reservations that its planner makes.

A run takes less than the planner expects. It holds the plan's whole
reservation from its start to its end, and beyond that each operator grows only as far as its rows need: pages of a
table's sixteen partitions and their buckets, a scan's read-ahead, rows that wait between fragments. The peak is the
reservation plus the most growth that lives at once.

Fragments run side by side, so that all build sides of a chain of joins fill together; a plan of one fragment fills
them one after the other. A blocking operator lets go of what is below it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from selector.cardinality.tree import EstimatedNode
from selector.estimate import UNKNOWN, MemoryEstimate, OperatorEstimate, Uncertainty, whole_bytes
from selector.memory.column_widths import row_bytes as width_of
from selector.memory.pipeline import operator_of
from selector.plan import Distribution, FilesRead, JoinType, Operator, Placement, Plan, PlanColumn, PlanNode
from selector.statistics import TableStatistics

KIB, MIB = 1 << 10, 1 << 20

# Impala's planner and its default query options.
PARTITIONS = 16  # of a hash table
BUCKET_BYTES = 12
DUPLICATE_BYTES = 16
MINIMUM_BUFFER_BYTES = 64 * KIB
DEFAULT_BUFFER_BYTES = 2 * MIB
MAXIMUM_ROW_BYTES = 512 * KIB
UNGROUPED_BYTES = 16 * KIB

# The executors.
LOAD_FACTOR = 0.75
DUPLICATE_PAGE_BYTES = 64 * KIB
READ_BUFFER_BYTES = 8 * MIB
READ_AHEAD_BUFFERS = 3
MINIMUM_READ_BYTES = 8 * KIB
COLUMN_RESERVATION_BYTES = 4 * MIB  # at most, for one column; a scan that reserves less has no column so large
RANGE_BYTES = 128 * MIB  # a block, where the plan does not tell how far one range reaches
QUEUE_BYTES = 10 * MIB
SPOOLED_BYTES = 100 * MIB  # a result that waits to be fetched
BATCH_ROWS = 1024
SENDER_BATCH_BYTES = 32 * KIB  # that each sender has waiting at a receiver
CHANNEL_BYTES = 16 * KIB  # that each sender fills for each receiver

# Seen in profiles of runs, not derived.
QUEUE_FILL = 0.5  # of what may wait, waits: a receiver drains while it is filled
DECODED_BYTES_PER_COLUMN = 64 * KIB  # pages of columns, decompressed
COLUMN_BYTES = 8  # of a row, to tell the number of columns from a row's width
UNCERTAINTY = Uncertainty("plans", 0.0, 0.3)  # four measured peaks are too few to tell more


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes per host beyond the reservation: until the first row comes out, and while rows flow."""

    opening_bytes: float
    flowing_bytes: float

    @property
    def peak_bytes(self) -> float:
        """The most at any time."""
        return max(self.opening_bytes, self.flowing_bytes)


def power_of_two(number: float) -> int:
    """Round up to a power of two."""
    return 1 << max(0, math.ceil(number) - 1).bit_length()


def buffer_bytes(data_bytes: float) -> int:
    """Return the page size of a hash table: as large as a partition, within what the options allow."""
    return min(DEFAULT_BUFFER_BYTES, max(MINIMUM_BUFFER_BYTES, power_of_two(data_bytes // PARTITIONS)))


def table_reservation_bytes(buffer: float, extra_pages: int = 0) -> float:
    """Return what a hash table cannot do without: a page per partition and two that hold the widest row."""
    return buffer * (PARTITIONS - 1 + extra_pages) + 2 * max(buffer, MAXIMUM_ROW_BYTES)


def streaming_reservation_bytes(buffer: float) -> float:
    """Return what a first phase of an aggregate reserves: a page and the smallest buckets per partition."""
    return buffer * PARTITIONS + max(MINIMUM_BUFFER_BYTES * PARTITIONS, buffer)


def join_data_bytes(rows: float, row_bytes: float) -> int:
    """Return the bytes of a whole build side of distinct keys, as the planner expects them."""
    buckets = power_of_two(3 * rows // 2) * BUCKET_BYTES
    return math.ceil(rows * row_bytes + buckets)


def table_bytes(rows: float, row_bytes: float, buffer: float, duplicates: float = 0.0) -> float:
    """Return what a hash table of so many rows really takes: whole pages and whole powers of two, per partition."""
    if rows <= 0:
        return 0.0
    share = rows / PARTITIONS
    pages = math.ceil(share * row_bytes / buffer) * buffer
    buckets = power_of_two(share / LOAD_FACTOR) * BUCKET_BYTES
    chained = math.ceil(duplicates / PARTITIONS * DUPLICATE_BYTES / DUPLICATE_PAGE_BYTES) * DUPLICATE_PAGE_BYTES
    return PARTITIONS * (pages + buckets + chained)


def read_ahead_bytes(range_bytes: float) -> float:
    """Return the buffers that reading one range takes if it can: up to three of eight MiB."""
    if range_bytes < READ_BUFFER_BYTES:
        return max(MINIMUM_READ_BYTES, power_of_two(range_bytes))
    return min(READ_AHEAD_BUFFERS, math.ceil(range_bytes / READ_BUFFER_BYTES)) * READ_BUFFER_BYTES


def estimate(
    tree: EstimatedNode, plan: Plan, statistics: Mapping[str, TableStatistics], *, hosts: int = 1
) -> MemoryEstimate:
    """Return the expected peak of the fullest host and its upper bound. hosts: for a plan that does not print them."""
    model = _Model(plan, statistics, hosts)
    growth = model.growth(tree, 0)
    if growth is None:
        return replace(UNKNOWN, gaps=tree.all_gaps())
    reserved = plan.reservation_bytes if plan.reservation_bytes is not None else model.reserved_bytes
    peak = reserved + growth.peak_bytes
    gaps = (*tree.all_gaps(), *plan.notes)
    peak_bytes = whole_bytes(peak)
    upper_bytes = max(peak_bytes, whole_bytes(UNCERTAINTY.upper_bytes(peak)))
    operators = tuple(model.operators)
    return MemoryEstimate(peak_bytes, upper_bytes, operators, gaps, uncertainty=UNCERTAINTY)


class _Model:
    """Goes down the plan once. operators: in the plan's order; reserved_bytes: the sum of what they reserve."""

    def __init__(self, plan: Plan, statistics: Mapping[str, TableStatistics], hosts: int) -> None:
        self._statistics = statistics
        self._alone = Placement("", hosts, hosts)
        self._parallel = any(node.operator is Operator.EXCHANGE for _, node in plan.root.walk())
        self.operators: list[OperatorEstimate] = []
        self.reserved_bytes = 0.0

    def growth(self, part: EstimatedNode, depth: int) -> Growth | None:
        """Return a subtree's bytes beyond its reservation; None where a cardinality is unknown."""
        place = len(self.operators)
        below = [self.growth(child, depth + 1) for child in part.children]
        growths = [growth for growth in below if growth is not None]
        if part.rows is None or len(growths) < len(below):
            return None
        own, reserved = self._own(part)
        self.reserved_bytes += reserved
        self.operators.insert(place, operator_of(part, depth, own + reserved, name=_name(part.node)))
        return self._over_time(part.node, own, growths)

    def _over_time(self, node: PlanNode, own: float, below: list[Growth]) -> Growth:
        match node.operator:
            case Operator.HASH_JOIN | Operator.NESTED_LOOP_JOIN | Operator.MATERIALIZE:
                probe, build = reversed(below) if node.operator is Operator.MATERIALIZE else below
                filling = max(build.opening_bytes, build.flowing_bytes + own)
                together = filling + probe.opening_bytes
                one_by_one = max(filling, own + probe.opening_bytes)
                return Growth(together if self._parallel else one_by_one, own + probe.flowing_bytes)
            case Operator.AGGREGATE if not is_streaming(node):
                return Growth(max(below[0].opening_bytes, below[0].flowing_bytes + own), own)
            case Operator.SORT | Operator.TOP_N:
                return Growth(max(below[0].opening_bytes, below[0].flowing_bytes + own), own)
            case Operator.EXCHANGE:  # the fragment below does not wait until its rows are wanted
                return Growth(max(below[0].opening_bytes, below[0].flowing_bytes + own), below[0].flowing_bytes + own)
            case _:
                opening = sum(growth.opening_bytes for growth in below)
                return Growth(opening, own + sum(growth.flowing_bytes for growth in below))

    def _own(self, part: EstimatedNode) -> tuple[float, float]:
        """Return an operator's bytes per host: growth, and reservation."""
        node, rows = part.node, part.rows or 0.0
        placement = node.placement or self._alone
        width = self._width(node)
        batches = placement.instances_per_host * BATCH_ROWS * width
        match node.operator:
            case Operator.HASH_JOIN:
                growth, reserved = self._hash_join(part, placement)
            case Operator.NESTED_LOOP_JOIN:
                build, copies = part.children[1], self._copies(node, placement)
                growth, reserved = copies * self._share(node, build.rows, placement) * self._width(build.node), 0.0
            case Operator.AGGREGATE if node.group_keys:
                growth, reserved = self._grouping(part, placement, width)
            case Operator.AGGREGATE:
                growth, reserved = placement.instances_per_host * UNGROUPED_BYTES, 0.0
            case Operator.SORT:
                data = (part.children[0].rows or 0.0) * width / placement.instances
                pages = math.ceil(data / DEFAULT_BUFFER_BYTES) * DEFAULT_BUFFER_BYTES
                growth, reserved = _beyond(node, pages, 6 * DEFAULT_BUFFER_BYTES, placement.instances_per_host)
            case Operator.TOP_N:
                sorted_rows = rows + node.offset
                growth, reserved = placement.instances_per_host * sorted_rows * width, 0.0
            case Operator.WINDOW:
                growth, reserved = _beyond(node, 0.0, 2 * DEFAULT_BUFFER_BYTES, placement.instances_per_host)
            case Operator.SCAN:
                growth, reserved = self._scan(node, placement, width)
            case Operator.MATERIALIZE:
                growth, reserved = self._kept(part.children[0])
            case Operator.EXCHANGE:
                return self._exchange(part, placement), 0.0
            case Operator.OTHER if node.label == "PLAN-ROOT SINK":
                return self._result(part)
            case _:
                growth, reserved = 0.0, 0.0
        return growth + batches, reserved

    def _hash_join(self, part: EstimatedNode, placement: Placement) -> tuple[float, float]:
        node, build = part.node, part.children[1]
        rows = self._share(node, build.rows, placement)
        width = self._width(build.node)
        distinct = distinct_keys(part.node, part.children[0].rows, build.rows, part.rows)
        duplicates = rows * (1.0 - distinct / build.rows) if distinct and build.rows else 0.0
        printed = node.resources.buffer_bytes if node.resources else None
        buffer = printed or buffer_bytes(join_data_bytes(rows, width))
        needed = table_bytes(rows, width, buffer, duplicates) + 2 * (max(buffer, MAXIMUM_ROW_BYTES) - buffer)
        reserved = table_reservation_bytes(buffer, extra_pages(node))
        return _beyond(node, needed, reserved, self._copies(node, placement))

    def _kept(self, part: EstimatedNode) -> tuple[float, float]:
        """Return what the rows of a common table expression take that all who read it share."""
        placement = part.node.placement or self._alone
        data = (part.rows or 0.0) * self._width(part.node) / placement.instances
        return _beyond(part.node, data, 3 * DEFAULT_BUFFER_BYTES, placement.instances_per_host)

    def _grouping(self, part: EstimatedNode, placement: Placement, width: float) -> tuple[float, float]:
        node, rows = part.node, part.rows or 0.0
        input_rows = part.children[0].rows or 0.0
        streaming = is_streaming(node)
        groups = min(rows, input_rows / placement.instances) if streaming else rows / placement.instances
        printed = node.resources.buffer_bytes if node.resources else None
        buffer = printed or buffer_bytes(groups * (width + BUCKET_BYTES))
        needed = table_bytes(groups, width, buffer)
        if not streaming:
            needed += 2 * (max(buffer, MAXIMUM_ROW_BYTES) - buffer)
        reserved = streaming_reservation_bytes(buffer) if streaming else table_reservation_bytes(buffer)
        return _beyond(node, needed, reserved, placement.instances_per_host)

    def _scan(self, node: PlanNode, placement: Placement, width: float) -> tuple[float, float]:
        resources = node.resources
        if node.files is None:  # not of files: what the planner expects is all there is to know
            estimate_bytes = resources.estimate_bytes if resources else None
            return _beyond(node, estimate_bytes or 0.0, 0.0, placement.instances_per_host)
        printed = resources.reservation_bytes if resources else None
        expected = resources.estimate_bytes if resources else None
        largest, average, ranges = _ranges(node.files)
        by_rows = printed is not None and printed >= min(READ_BUFFER_BYTES, power_of_two(largest))
        enough = not by_rows and printed is not None and printed < COLUMN_RESERVATION_BYTES
        wanted = [
            0.0 if enough else read_ahead_bytes(size) if by_rows else _columns_bytes(size, node.files, width)
            for size in (largest, average)
        ]
        reserved = printed if printed is not None else min(READ_BUFFER_BYTES, read_ahead_bytes(largest))
        threads = max(1, round(expected / _planned_range_bytes(largest))) if expected else 1
        running = min(math.ceil(ranges / placement.hosts), placement.instances_per_host * threads)
        # One range is the largest. A further thread of the same instance has no reservation of its own.
        needed = [max(size, reserved) for size in wanted]
        used_bytes = needed[0] + (running - 1) * needed[1] if running else 0.0
        covered = placement.instances_per_host * reserved
        idle = max(0, placement.instances_per_host - running) * reserved
        decoded = 0.0 if by_rows else running * DECODED_BYTES_PER_COLUMN * _columns(width)
        return max(0.0, used_bytes + idle - covered) + decoded, covered

    def _exchange(self, part: EstimatedNode, placement: Placement) -> float:
        node, rows = part.node, part.rows or 0.0
        sender = part.children[0].node.placement or self._alone
        width = self._width(node) or self._width(part.children[0].node)
        data = rows * width if node.distribution is Distribution.BROADCAST else rows * width / placement.instances
        queues = sender.instances if node.label.startswith("MERGING") else 1
        waiting = QUEUE_FILL * min(queues * QUEUE_BYTES, data) + sender.instances * SENDER_BATCH_BYTES
        channels = 0.0
        if node.distribution is Distribution.PARTITIONED:
            channels = min(rows * width, sender.instances_per_host * placement.instances * CHANNEL_BYTES)
        return placement.instances_per_host * waiting + channels

    def _result(self, part: EstimatedNode) -> tuple[float, float]:
        """Return what a result takes that waits to be fetched; a plan that prints no reservation does not keep it."""
        node = part.node
        printed = node.resources.reservation_bytes if node.resources else 2.0 * DEFAULT_BUFFER_BYTES
        if not printed:
            return 0.0, 0.0
        data = (part.rows or 0.0) * sum(self._width(child.node) for child in part.children)
        return _beyond(node, min(SPOOLED_BYTES, data), printed, 1)

    def _share(self, node: PlanNode, rows: float | None, placement: Placement) -> float:
        """Return the rows that one table gets: all of a broadcast side, a part of what is divided by keys."""
        divided = node.distribution is Distribution.PARTITIONED
        return (rows or 0.0) / placement.instances if divided else rows or 0.0

    def _copies(self, node: PlanNode, placement: Placement) -> int:
        """Return the tables on one host: instances share a broadcast one that a fragment of its own builds."""
        return (node.build_placement or placement).instances_per_host

    def _width(self, node: PlanNode) -> float:
        printed = node.resources.row_bytes if node.resources else None
        return printed if printed is not None else width_of(node.columns, self._statistics)


def _beyond(node: PlanNode, needed: float, reserved: float, copies: int) -> tuple[float, float]:
    """Return growth and reservation of so many copies; a printed reservation counts before a computed one."""
    printed = node.resources.reservation_bytes if node.resources else None
    reservation = reserved if printed is None else printed
    return copies * max(0.0, needed - reservation), copies * reservation


def distinct_keys(
    node: PlanNode, probe_rows: float | None, build_rows: float | None, rows: float | None = None
) -> float | None:
    """Return the build side's distinct keys: all of them if it is grouped by them.

    Otherwise as an inner join's own cardinality gives them away: |L| * |R| / |out|.
    """
    if _is_grouped_by(node.children[1], {build for _, build in node.join_keys}):
        return build_rows
    rows = node.cardinality if rows is None else rows
    if node.join_type is not JoinType.INNER or not rows or probe_rows is None or build_rows is None:
        return None
    return min(build_rows, probe_rows * build_rows / rows)


def _is_grouped_by(node: PlanNode, keys: Set[PlanColumn]) -> bool:
    """Tell whether no two rows have the same values in these columns, since an aggregate groups by some of them."""
    while len(node.children) == 1 and node.operator in (Operator.EXCHANGE, Operator.LIMIT, Operator.OTHER):
        node = node.children[0]
    return node.operator is Operator.AGGREGATE and not is_streaming(node) and keys >= set(node.group_keys)


def _name(node: PlanNode) -> str:
    """Return what Impala's own summary of a run calls a node, and its table."""
    label = f"{node.identifier}:{node.label}" if node.identifier else node.label
    return f"{label} of {node.table}" if node.table else label


def extra_pages(node: PlanNode) -> int:
    """Return the pages that NOT IN needs more: for rows with a NULL key, and for two streams of its probe side."""
    if not node.label.startswith("NULL AWARE"):
        return 0
    return 1 if node.build_placement else 3


def is_streaming(node: PlanNode) -> bool:
    """Tell whether a node is the first phase of an aggregate, which hands rows on that it cannot group."""
    return node.label.startswith("STREAMING")


def _ranges(files: FilesRead) -> tuple[float, float, int]:
    """Return the bytes of the largest range and of an average one, and how many ranges there are."""
    if not files.count:
        return 0.0, 0.0, 0
    largest = files.range_bytes or min(RANGE_BYTES, files.bytes / files.count)
    ranges = max(files.count, math.ceil(files.bytes / max(largest, 1.0)))
    return largest, files.bytes / ranges, ranges


def _columns(width: float) -> int:
    return max(1, round(width / COLUMN_BYTES))


def _columns_bytes(range_bytes: float, files: FilesRead, width: float) -> float:
    """Return the buffers for one range of a columnar file, of which only some columns are read."""
    decoded = files.range_rows * width if files.range_rows else range_bytes
    return _columns(width) * read_ahead_bytes(min(range_bytes, decoded) / _columns(width))


def _planned_range_bytes(range_bytes: float) -> float:
    """Return what the planner expects one scanning thread to take."""
    return (min(math.ceil(range_bytes / READ_BUFFER_BYTES), 10) + 1) * READ_BUFFER_BYTES
