"""A plan as a tree of boxes: which rows were measured, how far off each estimate is, and where the boxes are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.protocol import Actuals, OperatorActual
from gateway.dashboard.drawings.plan import BOX_HEIGHT, BOX_WIDTH, GAP_DOWN, MARGIN, PlanLine, PlanTree, plan_lines
from metastore.records import Attempt, QueryState
from selector.decision import Decision
from selector.estimate import MemoryEstimate, OperatorEstimate

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
JOIN = OperatorEstimate("hash join", 0, 1_000.0, 900.0, 1 << 20, "containment of keys")
FACTS = OperatorEstimate("scan of facts", 1, 5_000.0, None, 1 << 10, "rows of facts", table="facts")
PROJECT = OperatorEstimate("project", 1, 40.0, None, 0, "as its input")
DIMENSION = OperatorEstimate("scan of books", 2, 40.0, None, 1 << 10, "histogram of price", table="books")
PARTS = (JOIN, FACTS, PROJECT, DIMENSION)
DECISION = Decision("duckdb", ("duckdb", "spark"), (), MemoryEstimate(1, 2, PARTS), 100, estimated_for="duckdb")


def ran(engine: str, *operators: OperatorActual) -> Attempt:
    return Attempt(1, engine, QueryState.FINISHED, NOON, actuals=Actuals(1, operators))


def counted(*rows: int, depths: Sequence[int] = (0, 1, 1, 2)) -> tuple[OperatorActual, ...]:
    return tuple(OperatorActual("X", count, depth) for count, depth in zip(rows, depths, strict=True))


def test_rows_of_the_same_plan_stand_beside_its_estimates() -> None:
    lines = plan_lines(DECISION, [ran("duckdb", *counted(30_000, 5_000, 10, 10))])
    assert [line.measured_rows for line in lines] == [30_000, 5_000, 10, 10]
    assert [line.q_error for line in lines] == [30.0, 1.0, 4.0, 4.0]
    assert [line.style for line in lines] == ["far", "near", "off", "off"]


@pytest.mark.parametrize(
    "attempt",
    [
        ran("spark", *counted(1, 2, 3, 4)),
        ran("duckdb", *counted(1, 2, 3, depths=(0, 1, 1))),
        ran("duckdb", *counted(1, 2, 3, 4, depths=(0, 1, 2, 3))),
        ran("duckdb"),
    ],
    ids=["another engine", "fewer operators", "another shape", "not counted"],
)
def test_rows_of_another_plan_are_not_mixed_with_it(attempt: Attempt) -> None:
    assert {line.measured_rows for line in plan_lines(DECISION, [attempt])} == {None}
    assert {line.style for line in plan_lines(DECISION, [attempt])} == {"unmeasured"}


def test_parents_stand_above_the_middle_of_their_children_and_idle_operators_are_left_out() -> None:
    tree = PlanTree.of(plan_lines(DECISION, []))
    boxes = {box.label: box for box in tree.boxes}
    assert list(boxes) == ["hash join", "scan of facts", "scan of books"]
    assert boxes["scan of facts"].y == boxes["scan of books"].y == MARGIN + BOX_HEIGHT + GAP_DOWN
    assert boxes["hash join"].x == (boxes["scan of facts"].x + boxes["scan of books"].x) / 2
    assert len(tree.edges) == 2
    assert tree.worst is None


def test_the_widest_line_is_that_of_most_rows() -> None:
    tree = PlanTree.of(plan_lines(DECISION, [ran("duckdb", *counted(30_000, 50_000_000, 10, 10))]))
    facts, books = tree.edges
    assert facts.width > books.width
    assert facts.tip == "50,000,000 rows"
    assert tree.worst == 50_000_000 / 5_000


def test_no_row_counts_as_one() -> None:
    assert PlanLine(replace(JOIN, rows=0.0), 0).q_error == 1.0
    assert PlanLine(replace(JOIN, rows=None), 10).q_error is None


@given(st.lists(st.integers(0, 3), max_size=40))
def test_boxes_of_any_tree_lie_inside_the_drawing_and_never_on_each_other(steps: list[int]) -> None:
    depths = [0]
    for step in steps:
        depths.append(max(1, depths[-1] + 1 - step))
    tree = PlanTree.of([PlanLine(replace(JOIN, depth=depth), None) for depth in depths])
    assert len(tree.boxes) == len(depths)
    assert len(tree.edges) == len(depths) - 1
    assert all(0 <= box.x <= tree.width - BOX_WIDTH and 0 <= box.y <= tree.height - BOX_HEIGHT for box in tree.boxes)
    for number, box in enumerate(tree.boxes):
        for other in tree.boxes[number + 1 :]:
            assert abs(box.x - other.x) >= BOX_WIDTH or abs(box.y - other.y) >= BOX_HEIGHT
