"""A query's plan as a tree of boxes: estimated and measured rows of each operator, coloured by their q-error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.presentation.formatting import cardinality, memory
from metastore.records import Attempt
from selector.decision import Decision
from selector.estimate import OperatorEstimate

BOX_WIDTH, BOX_HEIGHT, GAP_ACROSS, GAP_DOWN, MARGIN = 246.0, 82.0, 18.0, 34.0, 6.0
LABEL_CHARACTERS = 32
THICKEST = 9.0  # line between two boxes, of LINE_ROWS rows and more
LINE_ROWS = 1e8
NEAR, OFF = 2.0, 10.0
"""Largest q-errors of an estimate that is near, and of one that is off; above them it is far off."""


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One operator with its estimate and its measurement."""

    part: OperatorEstimate
    measured_rows: int | None
    """Rows that the engine counted; None: not measured."""

    @property
    def q_error(self) -> float | None:
        """Ratio of estimated and measured rows, at least 1; None where one is unknown. No row counts as one."""
        if self.measured_rows is None or self.part.rows is None:
            return None
        estimated, measured = max(1.0, self.part.rows), max(1.0, float(self.measured_rows))
        return max(estimated / measured, measured / estimated)

    @property
    def style(self) -> str:
        """CSS class of its q-error."""
        error = self.q_error
        if error is None:
            return "unmeasured"
        return "near" if error <= NEAR else "off" if error <= OFF else "far"

    @property
    def q_error_text(self) -> str:
        """Its q-error in words; empty where it is unknown."""
        error = self.q_error
        return "" if error is None else f"q-error {error:,.1f}" if error < OFF else f"q-error {error:,.0f}"


@dataclass(frozen=True, slots=True)
class PlanBox:
    """A box. x, y: its upper left corner."""

    x: float
    y: float
    style: str
    label: str
    estimated: str
    measured: str
    """Measured rows with their q-error; empty: not measured."""
    held: str
    tip: str


@dataclass(frozen=True, slots=True)
class PlanEdge:
    """A line from an operator up to the one that reads it; its width grows with the logarithm of the rows."""

    x1: float
    y1: float
    x2: float
    y2: float
    width: float
    tip: str


@dataclass(frozen=True, slots=True)
class PlanTree:
    """A drawing of a plan."""

    width: float
    height: float
    boxes: tuple[PlanBox, ...]
    edges: tuple[PlanEdge, ...]
    box: tuple[float, float] = (BOX_WIDTH, BOX_HEIGHT)
    worst: float | None = None
    """Largest q-error; None: nothing was measured."""

    @classmethod
    def of(cls, lines: Sequence[PlanLine]) -> PlanTree:
        """Draw operators, given parents first. Those that change nothing are left out."""
        root = _tree(lines)
        nodes = root.place() if root is not None else []
        leaves = max((node.column for node in nodes), default=0.0) + 1
        levels = max((node.level for node in nodes), default=0) + 1
        errors = [line.q_error for line in lines if line.q_error is not None]
        return cls(
            width=2 * MARGIN + leaves * (BOX_WIDTH + GAP_ACROSS) - GAP_ACROSS,
            height=2 * MARGIN + levels * (BOX_HEIGHT + GAP_DOWN) - GAP_DOWN,
            boxes=tuple(_box(node) for node in nodes),
            edges=tuple(_edge(child, node) for node in nodes for child in node.children),
            worst=max(errors, default=None),
        )


def plan_lines(decision: Decision, attempts: Sequence[Attempt]) -> tuple[PlanLine, ...]:
    """Return the operators of the estimated plan with the rows that its engine measured, where one ran that plan."""
    parts = decision.estimate.operators
    measured: tuple[int | None, ...] = (None,) * len(parts)
    for attempt in attempts:
        operators = attempt.actuals.operators if attempt.actuals is not None else ()
        is_same_plan = [operator.depth for operator in operators] == [part.depth for part in parts]
        if attempt.engine == decision.estimated_for and operators and is_same_plan:
            measured = tuple(operator.rows for operator in operators)
    return tuple(PlanLine(part, rows) for part, rows in zip(parts, measured, strict=True))


# ---------------------------------------------------------------------- layout


class _Node:
    """An operator and its place in the tree. column: in widths of a box; level: its distance from the root."""

    def __init__(self, line: PlanLine, children: list[_Node]) -> None:
        self.line, self.children = line, children
        self.column, self.level = 0.0, 0

    def place(self) -> list[_Node]:
        """Give all nodes their places, leaves side by side and parents above the middle; return them, parents first."""
        preorder = self._preorder()
        next_leaf = 0
        for node in preorder:
            for child in node.children:
                child.level = node.level + 1
            if not node.children:
                node.column = float(next_leaf)
                next_leaf += 1
        for node in reversed(preorder):
            if node.children:
                node.column = (node.children[0].column + node.children[-1].column) / 2
        return preorder

    def _preorder(self) -> list[_Node]:
        remaining, preorder = [self], []
        while remaining:
            node = remaining.pop()
            preorder.append(node)
            remaining += reversed(node.children)
        return preorder


def _tree(lines: Sequence[PlanLine]) -> _Node | None:
    """Return the root; None: there are no operators. lines: parents first, with their depths."""
    waiting: list[tuple[int, _Node]] = []  # of the operators behind, those whose parent is still to come
    for line in reversed(lines):
        children = []
        while waiting and waiting[-1][0] > line.part.depth:
            children.append(waiting.pop()[1])
        node = children[0] if len(children) == 1 and _changes_nothing(line, children[0].line) else _Node(line, children)
        waiting.append((line.part.depth, node))
    return waiting[-1][1] if waiting else None


def _changes_nothing(line: PlanLine, child: PlanLine) -> bool:
    """Return True if an operator holds no memory and returns as many rows as it reads."""
    return (
        not line.part.held_bytes
        and line.part.rows == child.part.rows
        and line.measured_rows == child.measured_rows
        and line.part.table is None
    )


def _box(node: _Node) -> PlanBox:
    line = node.line
    part, label = line.part, line.part.operator
    x, y = _corner(node)
    measured = ""
    if line.measured_rows is not None:
        measured = f"measured {cardinality(float(line.measured_rows))}"
        measured += f", {line.q_error_text}" if line.q_error_text else ""
    return PlanBox(
        x=x,
        y=y,
        style=line.style,
        label=label if len(label) <= LABEL_CHARACTERS else label[: LABEL_CHARACTERS - 1] + "…",
        estimated=f"estimated {cardinality(part.rows)} rows",
        measured=measured,
        held=f"holds {memory(part.held_bytes)}" if part.held_bytes else "",
        tip=f"{label}: {part.basis}",
    )


def _edge(child: _Node, parent: _Node) -> PlanEdge:
    (x1, y1), (x2, y2) = _corner(child), _corner(parent)
    line = child.line
    rows = line.part.rows if line.measured_rows is None else float(line.measured_rows)
    share = min(1.0, math.log1p(max(0.0, rows or 0.0)) / math.log1p(LINE_ROWS))
    return PlanEdge(
        x1=x1 + BOX_WIDTH / 2,
        y1=y1,
        x2=x2 + BOX_WIDTH / 2,
        y2=y2 + BOX_HEIGHT,
        width=round(1.0 + (THICKEST - 1.0) * share, 1),
        tip=f"{cardinality(rows)} rows",
    )


def _corner(node: _Node) -> tuple[float, float]:
    return MARGIN + node.column * (BOX_WIDTH + GAP_ACROSS), MARGIN + node.level * (BOX_HEIGHT + GAP_DOWN)
