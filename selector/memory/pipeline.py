"""Bytes over time, in which operators share a plan: what is alive together, not a sum.

This is the paper's view of it, in which every table that can be built at the start is there from the start. What DuckDB
runs at once is in schedule.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from selector.cardinality.tree import EstimatedNode
from selector.estimate import OperatorEstimate, whole_bytes
from selector.plan import JoinType, Operator


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes over time: the most that a subtree needs at once, and what it still holds while it hands out rows.

    early_bytes: what it holds from the start of the statement, until it hands out rows. is_early: whether it hands them
    out at the start.
    """

    peak_bytes: float
    held_bytes: float
    early_bytes: float = 0.0
    is_early: bool = False


def streamed(own_bytes: float, below: Sequence[Peak]) -> Peak:
    """Return the bytes of an operator that hands on rows as they come, from one input after the other."""
    if not below:
        return Peak(own_bytes, own_bytes, is_early=True)
    peak = held = 0.0
    for place, part in enumerate(below):
        beside = own_bytes + sum(later.early_bytes for later in below[place + 1 :])
        peak, held = max(peak, beside + part.peak_bytes), max(held, beside + part.held_bytes)
    return Peak(peak, held, sum(part.early_bytes for part in below), all(part.is_early for part in below))


def gathered(own_bytes: float, below: Peak) -> Peak:
    """Return the bytes of an operator that takes all rows before it hands out one, and lets go of what is below."""
    early = own_bytes if below.is_early else below.early_bytes
    return Peak(max(below.peak_bytes, below.held_bytes + own_bytes), own_bytes, early, below.is_early)


def joined(own_bytes: float, probe: Peak, build: Peak) -> Peak:
    """Return the bytes of a join: its build side fills it first, and it stays while the probe side runs."""
    peak = max(
        build.peak_bytes + probe.early_bytes,
        build.held_bytes + own_bytes + probe.early_bytes,
        own_bytes + probe.peak_bytes,
    )
    early = probe.early_bytes + (own_bytes if build.is_early else build.early_bytes)
    return Peak(peak, own_bytes + probe.held_bytes, early, build.is_early and probe.is_early)


def materialized(own_bytes: float, definition: Peak, body: Peak) -> Peak:
    """Return the bytes of a common table expression that is kept while its readers run."""
    peak = max(
        definition.peak_bytes + body.early_bytes,
        definition.held_bytes + own_bytes + body.early_bytes,
        own_bytes + body.peak_bytes,
    )
    early = definition.early_bytes + body.early_bytes
    return Peak(peak, own_bytes + body.held_bytes, early, definition.is_early and body.is_early)


def walk(part: EstimatedNode, depth: int = 0) -> Iterator[tuple[int, EstimatedNode]]:
    """Yield (depth, node), parents first."""
    yield depth, part
    for child in part.children:
        yield from walk(child, depth + 1)


def operator_of(part: EstimatedNode, depth: int, held_bytes: float, *, name: str | None = None) -> OperatorEstimate:
    """Return an operator's part of an estimate. name: where the engine's people call it something else."""
    return OperatorEstimate(
        operator=name or label(part),
        depth=depth,
        rows=part.rows,
        engine_rows=part.node.cardinality,
        held_bytes=whole_bytes(held_bytes),
        basis=part.basis,
        upper_rows=part.upper,
        table=part.node.table,
    )


def label(part: EstimatedNode) -> str:
    """Return what people call a node."""
    node = part.node
    if node.table:
        return f"{node.operator} of {node.table}"
    if node.join_type not in (None, JoinType.INNER):
        return f"{node.join_type} {node.operator}"
    return node.label.lower().replace("_", " ") if node.operator is Operator.OTHER else str(node.operator)
