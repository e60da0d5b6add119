"""Small plans as Impala prints them."""

from __future__ import annotations

from selector.plan import Operator, PlanNode, Resources


def node(operator: Operator, rows: float | None, row_bytes: float, *children: PlanNode, **more: object) -> PlanNode:
    return PlanNode(operator, str(operator), children, rows, resources=Resources(row_bytes), **more)  # type: ignore[arg-type]


def scan(rows: float | None, row_bytes: float, **more: object) -> PlanNode:
    return node(Operator.SCAN, rows, row_bytes, **more)


def join(probe: PlanNode, build: PlanNode, rows: float, **more: object) -> PlanNode:
    return node(Operator.HASH_JOIN, rows, 8, probe, build, **more)
