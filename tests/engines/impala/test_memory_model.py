"""Impala's memory: reservations beside those that it printed, and our peak over time in small plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.impala import plan_reader as impala
from engines.impala.memory_model import (
    BATCH_ROWS,
    BUCKET_BYTES,
    DEFAULT_BUFFER_BYTES,
    KIB,
    MAXIMUM_ROW_BYTES,
    MIB,
    MINIMUM_BUFFER_BYTES,
    PARTITIONS,
    READ_BUFFER_BYTES,
    buffer_bytes,
    distinct_keys,
    estimate,
    join_data_bytes,
    power_of_two,
    read_ahead_bytes,
    streaming_reservation_bytes,
    table_bytes,
    table_reservation_bytes,
)
from selector.cardinality.tree import EstimatedNode
from selector.plan import Distribution, Operator, Placement, Plan, PlanColumn, PlanNode
from tests.selector.impala_plans import join, node, scan

GOLDEN = Path(__file__).parent / "plan_reader" / "golden"
KEYS = (PlanColumn("category"),)
SMALLEST_TABLE = 15 * MINIMUM_BUFFER_BYTES + 2 * MAXIMUM_ROW_BYTES  # printed as 1.94MB


def counted(part: PlanNode) -> EstimatedNode:
    """Take the engine's cardinalities for true ones; a sink, which prints none, hands on its input's."""
    children = tuple(map(counted, part.children))
    handed_on = children[0].rows if children and part.label.endswith("SINK") else None
    return EstimatedNode(part, part.cardinality if handed_on is None else handed_on, "engine", children)


def peak(root: PlanNode, reserved: float | None = 0.0) -> float:
    plan = Plan(root, impala.DIALECT, reservation_bytes=reserved)
    found = estimate(counted(root), plan, {}).peak_bytes
    assert found is not None
    return found


def test_power_of_two_rounds_up() -> None:
    assert [power_of_two(number) for number in (0, 1, 2, 3, 1024, 1025)] == [1, 1, 2, 4, 1024, 2048]


@pytest.mark.parametrize(
    ("data", "printed_mib"),
    [(0, 1.94), (2 * MIB, 2.88), (4 * MIB, 4.75), (8 * MIB, 8.5), (16 * MIB, 17.0), (32 * MIB, 34.0), (1 << 40, 34.0)],
)
def test_reservations_are_those_that_impala_prints(data: float, printed_mib: float) -> None:
    assert table_reservation_bytes(buffer_bytes(data)) / MIB == pytest.approx(printed_mib, abs=0.005)


def test_a_first_phase_reserves_a_page_and_buckets_per_partition() -> None:
    assert streaming_reservation_bytes(MINIMUM_BUFFER_BYTES) == 2 * MIB
    assert streaming_reservation_bytes(DEFAULT_BUFFER_BYTES) == 34 * MIB


def test_a_build_side_has_rows_and_buckets() -> None:
    rows, width = 719_380, 16
    buckets = (1 << 21) * BUCKET_BYTES  # 3 * rows / 2, rounded up

    assert join_data_bytes(rows, width) == rows * width + buckets
    assert join_data_bytes(0, width) == BUCKET_BYTES


def test_reading_ahead_takes_up_to_three_buffers() -> None:
    assert read_ahead_bytes(3.08 * KIB) == READ_BUFFER_BYTES / 1024  # the smallest
    assert read_ahead_bytes(3 * MIB) == 4 * MIB
    assert read_ahead_bytes(9.84 * MIB) == 2 * READ_BUFFER_BYTES
    assert read_ahead_bytes(31.19 * MIB) == read_ahead_bytes(1 << 40) == 3 * READ_BUFFER_BYTES


def test_a_table_takes_whole_pages_and_whole_powers_of_two() -> None:
    rows, width, buffer = 50_440, 24, 128 * KIB  # 3152.5 rows a partition: one page, 8192 buckets

    assert table_bytes(rows, width, buffer) == PARTITIONS * (buffer + 8192 * BUCKET_BYTES)
    assert table_bytes(rows, width, buffer, duplicates=16) == PARTITIONS * (buffer + 8192 * BUCKET_BYTES + 64 * KIB)
    assert table_bytes(0, width, buffer) == 0.0


def test_a_plan_without_growth_takes_its_reservation_and_a_batch_per_operator() -> None:
    root = join(scan(10, 8), scan(10, 8), 10)

    assert peak(root, reserved=20.0 * MIB) == 20 * MIB + 2 * BATCH_ROWS * 8


def test_a_larger_build_side_never_takes_less() -> None:
    peaks = [peak(join(scan(10, 8), scan(rows, 100), 10)) for rows in (10, 10**4, 10**5, 10**6, 10**7)]

    assert peaks == sorted(peaks)
    assert peaks[-1] > 10**7 * 100


def test_a_broadcast_table_is_whole_on_every_host_and_a_partitioned_one_is_not() -> None:
    place = Placement("F00", hosts=4, instances=4)
    tables = scan(10, 8, placement=place), scan(10**7, 100, placement=place)

    broadcast = peak(join(*tables, 10, distribution=Distribution.BROADCAST, placement=place))
    parted = peak(join(*tables, 10, distribution=Distribution.PARTITIONED, placement=place))

    assert broadcast == pytest.approx(4 * parted, rel=0.15)


def test_instances_of_a_host_share_the_table_that_a_fragment_builds() -> None:
    place = Placement("F00", hosts=2, instances=8)
    tables = scan(10, 8), scan(10**6, 100)
    shared = join(
        *tables,
        10,
        distribution=Distribution.BROADCAST,
        placement=place,
        build_placement=Placement("F01", hosts=2, instances=2),
    )
    own = join(*tables, 10, distribution=Distribution.BROADCAST, placement=place)

    assert peak(own) == pytest.approx(4 * peak(shared), rel=0.05)


def test_build_sides_fill_together_only_where_fragments_run_side_by_side() -> None:
    def grouped(rows: float) -> PlanNode:
        return node(Operator.AGGREGATE, 10, 100, node(Operator.SORT, rows, 100, scan(rows, 100)), group_keys=KEYS)

    def chain(first: PlanNode, second: PlanNode) -> PlanNode:
        return join(join(scan(10, 8), first, 10), second, 10)

    def sent(below: PlanNode) -> PlanNode:
        return node(Operator.EXCHANGE, 10, 100, below)

    one, two = grouped(10**6), grouped(10**6)
    alone = peak(join(scan(10, 8), one, 10))

    assert peak(chain(one, two)) < 1.2 * alone
    assert peak(chain(sent(one), sent(two))) > 1.8 * alone


def test_a_blocking_operator_lets_go_of_what_is_below() -> None:
    below = join(scan(10, 8), scan(10**6, 100), 10)
    above = node(Operator.SORT, 10, 100, below)

    assert peak(join(scan(10, 8), above, 10)) < 1.1 * peak(below)


def test_what_an_expression_keeps_stays_until_its_readers_are_done() -> None:
    def kept(rows: float, body: PlanNode) -> PlanNode:
        return node(Operator.MATERIALIZE, 10, 8, scan(rows, 100), body, reference="x")

    small, large = scan(10, 8), join(scan(10, 8), scan(10**6, 100), 10)
    growth = 10**6 * 100 - 3 * DEFAULT_BUFFER_BYTES

    assert peak(kept(10**6, small)) == pytest.approx(growth, rel=0.002)
    assert peak(kept(10**6, large)) == pytest.approx(peak(large) + growth, rel=0.002)
    assert peak(kept(10, small), reserved=None) - peak(kept(10, small)) == 3 * DEFAULT_BUFFER_BYTES


def test_a_build_side_that_is_grouped_by_the_key_has_no_duplicates() -> None:
    probe_key, other = PlanColumn("id"), PlanColumn("price")
    groups = node(Operator.AGGREGATE, 100, 8, scan(1_000, 8), group_keys=KEYS)
    streaming = PlanNode(Operator.AGGREGATE, "STREAMING AGGREGATE", (scan(1_000, 8),), 100, group_keys=KEYS)

    def distinct(build: PlanNode, key: PlanColumn) -> float | None:
        return distinct_keys(join(scan(1_000, 8), build, 10_000, join_keys=((probe_key, key),)), 1_000, 100)

    assert distinct(node(Operator.EXCHANGE, 100, 8, groups), KEYS[0]) == 100
    assert distinct(groups, other) is None  # no inner join, whose rows would tell
    assert distinct(streaming, KEYS[0]) is None


def test_unknown_rows_are_an_unknown_peak() -> None:
    root = join(scan(10, 8), scan(None, 8), 10)

    found = estimate(counted(root), Plan(root, impala.DIALECT), {})

    assert found.peak_bytes is None
    assert found.upper_bytes is None


def test_operators_stand_in_the_plans_order_with_the_summarys_names() -> None:
    plan = impala.read((GOLDEN / "impala_parallel.txt").read_text(encoding="utf-8"))

    found = estimate(counted(plan.root), plan, {})

    assert [(o.depth, o.operator) for o in found.operators][:4] == [
        (0, "PLAN-ROOT SINK"),
        (1, "09:EXCHANGE"),
        (2, "00:UNION"),
        (3, "LIMIT"),
    ]
    assert found.operators[4].operator == "01:SCAN HDFS of shop.returns"
    assert found.peak_bytes is not None
    assert found.peak_bytes >= (plan.reservation_bytes or 0)
    assert (found.upper_bytes or 0) > found.peak_bytes


def test_a_plan_that_prints_no_reservation_gets_one_from_its_operators() -> None:
    root = join(scan(10, 8), scan(10, 8), 10)

    assert peak(root, reserved=None) - peak(root, reserved=0.0) == SMALLEST_TABLE
