"""What Impala's planner expects of a statement's memory, by its own formulas, from what it prints.

It adds up every fragment as if all of them were at their peak at once, and sizes a hash table by guessed cardinalities.
"""

from __future__ import annotations

import math

from selector.memory.impala import (
    BUCKET_BYTES,
    MIB,
    UNGROUPED_BYTES,
    buffer_bytes,
    distinct_keys,
    extra_pages,
    is_streaming,
    join_data_bytes,
    streaming_reservation_bytes,
    table_reservation_bytes,
)
from selector.plan import Distribution, Placement, Plan, PlanNode

MINIMUM_GROUPING_BYTES = 10 * MIB
UNKNOWN_JOIN_BYTES = 2048 * MIB
PREAGGREGATION_SKEW = 1.5  # the fullest instance's share of a first phase's input, in averages
PREAGGREGATION_REDUCTION = 2  # rows a group, below which a first phase hands its rows on
HAVING_SHARE = 0.1  # of the groups that the planner expects a condition to keep


def planned_join_bytes(node: PlanNode, *, threads: int | None = 1, host_bytes: float = math.inf) -> float | None:
    """Return the memory that the planner expects of one instance of a hash join, from the cardinalities it prints.

    threads: MT_DOP, by which it multiplies the reservation of a table that a host's instances share; None where costs
    decide how many they are. host_bytes: MEM_LIMIT, to which the instances on a host are held together where
    MEM_ESTIMATE_SCALE_FOR_SPILLING_OPERATOR is 1. None where the plan does not print the build side's width.
    """
    probe, build = node.children
    width = build.resources.row_bytes if build.resources else None
    rows = planned_rows(build)
    if rows is None:
        return UNKNOWN_JOIN_BYTES if node.resources else None
    if width is None:
        return None
    data = join_data_bytes(rows, width, distinct_keys(node, planned_rows(probe), rows, planned_rows(node)))
    if node.distribution is Distribution.PARTITIONED and node.placement:
        data //= node.placement.instances
    reservation = table_reservation_bytes(buffer_bytes(data), extra_pages(node))
    sharing = _per_host(node.placement) if threads is None else threads
    bound = host_bytes / _per_host(node.build_placement or node.placement)
    return max(min(data, bound), reservation * (sharing if _is_shared(node) else 1))


def planned_rows(node: PlanNode) -> float | None:
    """Return the rows that the planner sizes memory by: those before filters that joins send down while they run."""
    return node.cardinality if node.unfiltered is None else node.unfiltered


def planned_nested_loop_bytes(node: PlanNode) -> float | None:
    """Return the memory that the planner expects of one instance of a nested loop join: its whole build side."""
    build = node.children[1]
    rows = planned_rows(build)
    if rows is None:
        return UNKNOWN_JOIN_BYTES if node.resources else None
    width = build.resources.row_bytes if build.resources else None
    return None if width is None else math.ceil(rows * width)


def planned_aggregate_bytes(node: PlanNode) -> float | None:
    """Return the memory that the planner expects of one instance of an aggregate, as far as its groups are printed."""
    given, rows = planned_rows(node.children[0]), planned_rows(node)
    width = node.resources.row_bytes if node.resources else None
    if width is None or given is None or rows is None:
        return None
    if not node.group_keys:
        return UNGROUPED_BYTES
    instances = node.placement.instances if node.placement else 1
    groups = rows / (HAVING_SHARE if node.predicates else 1.0)
    if is_streaming(node):
        share = math.ceil(given / instances * PREAGGREGATION_SKEW) if instances > 1 else given
        data = min(groups, share // PREAGGREGATION_REDUCTION) * (width + BUCKET_BYTES)
        return max(data, MINIMUM_GROUPING_BYTES, streaming_reservation_bytes(buffer_bytes(data)))
    if node.children[0].distribution is Distribution.PARTITIONED and len(node.group_keys) == 1:
        groups /= instances
    data = min(groups, math.ceil(given / instances)) * (width + BUCKET_BYTES)
    return max(data, MINIMUM_GROUPING_BYTES, table_reservation_bytes(buffer_bytes(data)))


def planned_threads(plan: Plan) -> int:
    """Return MT_DOP as the plan gives it away.

    It is the largest number of instances on a host, or, where every fragment has fewer than it may, the multiple in
    the reservation of a table that instances share. Of a plan whose costs decide on instances it tells nothing.
    """
    threads = 1
    for _, node in plan.root.walk():
        if node.placement:
            threads = max(threads, node.placement.instances_per_host)
        reserved = node.resources.reservation_bytes if node.resources else None
        if _is_shared(node) and reserved and node.resources and node.resources.buffer_bytes:
            threads = max(threads, round(reserved / table_reservation_bytes(node.resources.buffer_bytes)))
    return threads


def _per_host(placement: Placement | None) -> int:
    return placement.instances_per_host if placement else 1


def _is_shared(node: PlanNode) -> bool:
    return node.build_placement is not None and node.distribution is Distribution.BROADCAST
