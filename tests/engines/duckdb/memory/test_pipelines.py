"""Pipelines of plans, as DuckDB builds them."""

from __future__ import annotations

import pytest

from engines.duckdb.memory.pipelines import ROWS_PER_THREAD, Graph, graph_of, row_groups
from engines.duckdb.memory.schedule import Pipeline, SinkState
from selector.cardinality.tree import EstimatedNode
from selector.plan import JoinType, Operator, PlanColumn
from tests.selector.memory.plans import BOOK_ID, ID, QUANTITY, STATISTICS, TITLE, join, node, scan

THREADS = 2
LARGE, SMALL = 10.0 * ROWS_PER_THREAD, 1_000.0
COUNT = PlanColumn("count_star()", "bigint")


def graph(tree: EstimatedNode) -> Graph:
    return graph_of(tree, STATISTICS, THREADS)


def grouped(below: EstimatedNode) -> EstimatedNode:
    return node(Operator.AGGREGATE, SMALL, below, columns=(BOOK_ID, COUNT), group_keys=(BOOK_ID,))


def ordered(below: EstimatedNode) -> EstimatedNode:
    return node(Operator.SORT, below.rows, below, columns=below.node.columns, sort_keys=(BOOK_ID,))


def kept_by(found: Graph, part: EstimatedNode) -> SinkState:
    return found.states[id(part)]


def writer(found: Graph, part: EstimatedNode) -> Pipeline:
    return next(iter(kept_by(found, part).writers))


def scan_of(rows: float) -> EstimatedNode:
    return scan("transactions", rows, BOOK_ID, QUANTITY)


def joined(probe: EstimatedNode, build: EstimatedNode, kind: JoinType = JoinType.INNER) -> EstimatedNode:
    columns = (*probe.node.columns, *build.node.columns)
    return node(Operator.HASH_JOIN, SMALL, probe, build, columns=columns, join_type=kind, join_keys=((BOOK_ID, ID),))


def test_an_operator_that_needs_all_rows_ends_one_pipeline_and_begins_the_next() -> None:
    tree = ordered(grouped(scan_of(LARGE)))
    found = graph(tree)
    first, second = writer(found, tree.children[0]), writer(found, tree)
    assert len(found.pipelines) == 3
    assert list(second.before()) == [first]
    assert kept_by(found, tree.children[0]).readers == {second}


def test_a_probe_side_needs_the_build_side_which_stays_until_it_is_done() -> None:
    tree = join(SMALL)
    found = graph(grouped(tree))
    probing = next(iter(kept_by(found, tree).readers))
    assert writer(found, tree) in set(probing.before())
    assert probing.scan is tree.children[0]


def test_a_join_that_hands_on_rows_of_its_build_side_does_so_after_probing() -> None:
    tree = join(SMALL, kind=JoinType.RIGHT)
    top = grouped(tree)
    found = graph(top)
    probing, handing_on = kept_by(found, top).writers
    assert probing in set(handing_on.before())
    assert kept_by(found, tree).readers == {probing, handing_on}


@pytest.mark.parametrize(("build_rows", "waits"), [(LARGE, True), (SMALL, False)])
def test_large_pipelines_of_a_probe_side_wait_for_a_large_build_side(build_rows: float, waits: bool) -> None:
    inner = grouped(scan_of(LARGE))
    tree = joined(inner, scan("books", build_rows, ID))
    found = graph(grouped(tree))
    assert (writer(found, tree) in set(writer(found, inner).before())) == waits


def union_of(*rows: float) -> tuple[EstimatedNode, list[EstimatedNode]]:
    inputs = [grouped(scan_of(each)) for each in rows]
    return ordered(node(Operator.UNION, SMALL, *inputs, columns=inputs[0].node.columns)), inputs


def test_two_inputs_of_a_union_run_at_once_and_a_large_third_one_waits() -> None:
    tree, inputs = union_of(LARGE, LARGE, LARGE)
    found = graph(tree)
    assert len(kept_by(found, tree).writers) == 3
    first, second, third = (writer(found, each) for each in inputs)
    read = {next(iter(kept_by(found, each).readers)) for each in inputs[1:2]}
    assert not set(first.before()) | set(second.before())
    assert read <= set(third.before())


def test_inputs_of_a_union_that_join_come_one_after_the_other() -> None:
    inputs = [joined(scan_of(LARGE), scan("books", SMALL, ID)) for _ in range(3)]
    top = grouped(node(Operator.UNION, LARGE, *inputs, columns=inputs[0].node.columns))
    found = graph(top)
    first, second, third = (next(iter(kept_by(found, each).readers)) for each in inputs)
    assert first in set(second.before())
    assert {first, second} <= set(third.before())
    scans = grouped(node(Operator.UNION, LARGE, scan_of(LARGE), scan_of(LARGE), columns=(BOOK_ID, QUANTITY)))
    assert not any(set(one.before()) for one in kept_by(graph(scans), scans).writers)


def test_a_join_counts_as_a_source_for_what_waits_for_a_large_build_side() -> None:
    inner = grouped(scan_of(LARGE))
    probing_much = joined(scan("books", SMALL, ID), grouped(scan_of(LARGE)))
    found = graph(grouped(joined(inner, probing_much)))
    assert next(iter(kept_by(found, probing_much).readers)) in set(writer(found, inner).before())


def test_small_inputs_of_a_union_wait_for_nothing() -> None:
    tree, inputs = union_of(SMALL, SMALL, SMALL)
    found = graph(tree)
    assert not any(set(writer(found, each).before()) for each in inputs)


def shared(*readers: EstimatedNode, body: EstimatedNode) -> EstimatedNode:
    definition = grouped(scan_of(LARGE))
    return node(Operator.MATERIALIZE, SMALL, definition, body, columns=body.node.columns, reference="1")


def reading() -> EstimatedNode:
    return node(Operator.OTHER, SMALL, columns=(BOOK_ID, COUNT), reference="1")


def test_groups_take_rows_of_a_common_table_expression_while_they_are_made() -> None:
    body = joined(grouped(reading()), grouped(scan("books", SMALL, ID)))
    tree = shared(body=grouped(body))
    found = graph(tree)
    assert not kept_by(found, tree).readers
    assert writer(found, body.children[0]) is writer(found, tree)


def test_joins_of_several_readers_and_sorts_read_rows_that_are_kept() -> None:
    join_of_both = joined(reading(), reading())
    for body, readers in ((grouped(join_of_both), 2), (ordered(reading()), 1)):
        tree = shared(body=body)
        assert len(kept_by(graph(tree), tree).readers) == readers


def test_a_reader_that_waits_for_another_one_reads_rows_that_are_kept() -> None:
    first = grouped(reading())
    tree = shared(body=grouped(joined(grouped(reading()), first)))
    second = tree.children[1].children[0].children[0]
    found = graph(tree)
    assert writer(found, first) is writer(found, tree)
    assert writer(found, second) is writer(found, tree)
    waiting = shared(body=grouped(node(Operator.NESTED_LOOP_JOIN, SMALL, reading(), first, columns=(BOOK_ID, COUNT))))
    assert len(kept_by(graph(waiting), waiting).readers) == 1


def test_a_scan_has_no_more_tasks_than_row_groups() -> None:
    assert row_groups(scan("books", SMALL, ID, TITLE).node, STATISTICS) == 33
    assert row_groups(scan("unknown", SMALL, ID).node, STATISTICS) is None
    tree = grouped(scan_of(LARGE))
    assert writer(graph(tree), tree).tasks == THREADS
    assert writer(graph_of(tree, STATISTICS, 1), tree).tasks == 1
