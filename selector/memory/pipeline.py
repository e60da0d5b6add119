"""Bytes over time, in which operators share a plan: what is alive together, not a sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from selector.cardinality.tree import EstimatedNode
from selector.plan import JoinType, Operator


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes over time: the most that a subtree needs at once, and what it still holds while it hands out rows.

    draining_bytes: the part of what it holds that goes away with the rows.
    """

    peak_bytes: float
    held_bytes: float
    draining_bytes: float = 0.0

    def filling(self, own_bytes: float) -> float:
        """Return the most at once while an operator above fills with all the rows."""
        return self.held_bytes - self.draining_bytes + max(self.draining_bytes, own_bytes)


def streamed(own_bytes: float, below: list[Peak]) -> Peak:
    """Return the bytes of an operator that hands on rows as they come, beside all that is below it."""
    return Peak(
        own_bytes + sum(p.peak_bytes for p in below),
        own_bytes + sum(p.held_bytes for p in below),
        sum(p.draining_bytes for p in below),
    )


def gathered(filling_bytes: float, emptying_bytes: float, below: Peak, *, drains: bool = False) -> Peak:
    """Return the bytes of an operator that takes all rows before it hands out one, and lets go of what is below.

    drains: whether it gives rows back as it hands them out.
    """
    peak = max(below.peak_bytes, below.filling(filling_bytes), emptying_bytes)
    return Peak(peak, emptying_bytes, emptying_bytes if drains else 0.0)


def joined(filling_bytes: float, table_bytes: float, probe: Peak, build: Peak) -> Peak:
    """Return the bytes of a join: its build side fills it first, and it stays while the probe side runs."""
    peak = max(build.peak_bytes, build.filling(filling_bytes), table_bytes + probe.peak_bytes)
    return Peak(peak, table_bytes + probe.held_bytes, probe.draining_bytes)


def materialized(own_bytes: float, definition: Peak, body: Peak) -> Peak:
    """Return the bytes of a common table expression that is kept while its readers run."""
    peak = max(definition.peak_bytes, definition.filling(own_bytes), own_bytes + body.peak_bytes)
    return Peak(peak, own_bytes + body.held_bytes, body.draining_bytes)


def fanned_out(definition: Peak, body: Peak) -> Peak:
    """Return the bytes of a common table expression whose readers get its rows while they are made."""
    return Peak(max(definition.peak_bytes, definition.held_bytes + body.peak_bytes), body.held_bytes)


def walk(part: EstimatedNode, depth: int = 0) -> Iterator[tuple[int, EstimatedNode]]:
    """Yield (depth, node), parents first."""
    yield depth, part
    for child in part.children:
        yield from walk(child, depth + 1)


def label(part: EstimatedNode) -> str:
    """Return what people call a node."""
    node = part.node
    if node.table:
        return f"{node.operator} of {node.table}"
    if node.join_type not in (None, JoinType.INNER):
        return f"{node.join_type} {node.operator}"
    return node.label.lower().replace("_", " ") if node.operator is Operator.OTHER else str(node.operator)
