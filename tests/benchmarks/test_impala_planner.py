"""Impala's planner's formulas against numbers that it printed."""

from __future__ import annotations

import pytest

from benchmarks.impala_planner import (
    MINIMUM_GROUPING_BYTES,
    UNKNOWN_JOIN_BYTES,
    planned_aggregate_bytes,
    planned_join_bytes,
    planned_nested_loop_bytes,
    planned_threads,
)
from selector.explain import impala
from selector.memory.impala import (
    BUCKET_BYTES,
    MAXIMUM_ROW_BYTES,
    MIB,
    MINIMUM_BUFFER_BYTES,
    UNGROUPED_BYTES,
    join_data_bytes,
)
from selector.plan import Distribution, JoinType, Operator, Placement, Plan, PlanColumn, PlanNode, Resources
from tests.selector.impala_plans import join, node, scan

KEYS = (PlanColumn("category"),)
SMALLEST_TABLE = 15 * MINIMUM_BUFFER_BYTES + 2 * MAXIMUM_ROW_BYTES  # printed as 1.94MB


def test_orders_broadcast_to_lineitem_as_printed() -> None:
    root = join(scan(6e6, 231), scan(1.5e6, 171), 6e6, join_type=JoinType.INNER, distribution=Distribution.BROADCAST)

    assert (planned_join_bytes(root) or 0.0) / MIB == pytest.approx(292.49, rel=0.02)  # TPC-H at scale 1


def test_only_a_partitioned_build_side_is_divided() -> None:
    place = Placement("F00", hosts=3, instances=6)
    tables = scan(6e6, 231), scan(1.5e6, 171)
    data = join_data_bytes(1.5e6, 171)

    parted = join(*tables, 6e6, distribution=Distribution.PARTITIONED, placement=place)
    broadcast = join(*tables, 6e6, distribution=Distribution.BROADCAST, placement=place)

    assert planned_join_bytes(parted) == data // 6
    assert planned_join_bytes(broadcast) == data


def test_a_shared_table_reserves_for_every_thread() -> None:
    place, builder = Placement("F00", hosts=1, instances=12), Placement("F01", hosts=1, instances=1)
    root = join(
        scan(10, 8), scan(10, 8), 10, distribution=Distribution.BROADCAST, placement=place, build_placement=builder
    )
    parted = join(
        scan(10, 8), scan(10, 8), 10, distribution=Distribution.PARTITIONED, placement=place, build_placement=place
    )

    assert planned_join_bytes(root, threads=12) == 12 * SMALLEST_TABLE  # printed as 23.25MB
    assert planned_join_bytes(parted, threads=12) == SMALLEST_TABLE


def test_where_costs_decide_on_instances_a_table_reserves_for_those_of_its_own_fragment() -> None:
    place, builder = Placement("F00", hosts=10, instances=28), Placement("F01", hosts=10, instances=10)
    root = join(
        scan(10, 8), scan(10, 8), 10, distribution=Distribution.BROADCAST, placement=place, build_placement=builder
    )

    assert planned_join_bytes(root, threads=None) == 3 * SMALLEST_TABLE  # printed as 5.81MB


def test_rows_before_filters_of_joins_are_planned_for() -> None:
    filtered = PlanNode(Operator.SCAN, "SCAN HDFS", cardinality=10, unfiltered=1e6, resources=Resources(100))

    assert planned_join_bytes(join(scan(10, 8), filtered, 10)) == join_data_bytes(1e6, 100)
    assert planned_nested_loop_bytes(node(Operator.NESTED_LOOP_JOIN, 10, 8, scan(5, 8), filtered)) == 1e8


def test_instances_on_a_host_stay_within_its_memory_together_and_never_below_what_they_reserve() -> None:
    place, builder = Placement("F00", hosts=1, instances=4), Placement("F01", hosts=1, instances=1)
    tables = scan(10, 8), scan(1e9, 100)
    own = join(*tables, 10, distribution=Distribution.BROADCAST, placement=place)
    shared = join(*tables, 10, distribution=Distribution.BROADCAST, placement=place, build_placement=builder)

    assert planned_join_bytes(own, host_bytes=4096 * MIB) == 1024 * MIB
    assert planned_join_bytes(shared, host_bytes=4096 * MIB) == 4096 * MIB
    assert planned_join_bytes(own, host_bytes=MIB) == 34 * MIB


def test_threads_are_the_instances_or_the_multiple_of_a_reservation() -> None:
    few = Placement("F00", hosts=3, instances=3)
    reserved = Resources(8, 2 * SMALLEST_TABLE, 2 * SMALLEST_TABLE, MINIMUM_BUFFER_BYTES)
    root = PlanNode(
        Operator.HASH_JOIN,
        "HASH JOIN",
        (scan(10, 8), scan(10, 8)),
        distribution=Distribution.BROADCAST,
        placement=few,
        build_placement=few,
        resources=reserved,
    )

    assert planned_threads(Plan(root, impala.DIALECT)) == 2
    assert planned_threads(Plan(scan(10, 8, placement=Placement("F00", 3, 10)), impala.DIALECT)) == 4
    assert planned_threads(Plan(scan(10, 8), impala.DIALECT)) == 1


def test_not_in_reserves_for_rows_with_a_null_key() -> None:
    root = PlanNode(
        Operator.HASH_JOIN,
        "NULL AWARE HASH JOIN",
        (scan(10, 8), scan(10, 8)),
        10,
        join_type=JoinType.ANTI,
        resources=Resources(8),
    )

    assert planned_join_bytes(root) == SMALLEST_TABLE + 3 * MINIMUM_BUFFER_BYTES


def test_an_unknown_build_side_is_two_gigabytes_and_one_without_a_width_is_not_guessed() -> None:
    assert planned_join_bytes(join(scan(10, 8), scan(None, 8), 10)) == UNKNOWN_JOIN_BYTES
    assert planned_nested_loop_bytes(node(Operator.NESTED_LOOP_JOIN, 1, 8, scan(1, 8), scan(None, 8))) == (
        UNKNOWN_JOIN_BYTES
    )
    assert planned_join_bytes(join(scan(10, 8), PlanNode(Operator.SCAN, "SCAN HDFS", cardinality=10), 10)) is None


def test_a_nested_loop_join_keeps_its_build_side() -> None:
    assert planned_nested_loop_bytes(node(Operator.NESTED_LOOP_JOIN, 10, 8, scan(5, 8), scan(1_000, 24))) == 24_000


def test_aggregates_by_their_groups() -> None:
    few, many = (node(Operator.AGGREGATE, groups, 92, scan(600_120, 8), group_keys=KEYS) for groups in (10, 600_120))

    assert planned_aggregate_bytes(node(Operator.AGGREGATE, 1, 8, scan(10, 8))) == UNGROUPED_BYTES
    assert planned_aggregate_bytes(few) == MINIMUM_GROUPING_BYTES
    assert planned_aggregate_bytes(many) == 600_120 * (92 + BUCKET_BYTES)  # printed as 59.52MB, TPC-H's Q18
