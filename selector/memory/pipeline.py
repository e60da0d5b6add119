"""Bytes over time, in which operators share a plan: what is alive together, not a sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from selector.cardinality.tree import EstimatedNode
from selector.estimate import OperatorEstimate
from selector.plan import JoinType, Operator


@dataclass(frozen=True, slots=True)
class Largest:
    """The operator that holds most of what is alive at a moment. part: None for the one whose bytes are being told."""

    held_bytes: float = 0.0
    part: EstimatedNode | None = None

    def named(self, part: EstimatedNode) -> Largest:
        """Put a name to the operator that had none."""
        return replace(self, part=part) if self.part is None else self


NOBODY = Largest()


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes over time: the most that a subtree needs at once, and what it still holds while it hands out rows.

    draining_bytes: the part of what it holds that goes away with the rows. at_peak, while_handing: who holds most then;
    a matter of telling, which two peaks need not share to be equal.
    """

    peak_bytes: float
    held_bytes: float
    draining_bytes: float = 0.0
    at_peak: Largest = field(default=NOBODY, compare=False)
    while_handing: Largest = field(default=NOBODY, compare=False)

    def named(self, part: EstimatedNode) -> Peak:
        """Tell whose bytes these are."""
        return replace(self, at_peak=self.at_peak.named(part), while_handing=self.while_handing.named(part))

    def filling(self, own_bytes: float) -> float:
        """Return the most at once while an operator above fills with all the rows."""
        return self.held_bytes - self.draining_bytes + max(self.draining_bytes, own_bytes)

    def filled_by(self, own_bytes: float) -> tuple[float, Largest]:
        """Return the same with who holds most of it."""
        return self.filling(own_bytes), _largest(Largest(own_bytes), self.while_handing)


def streamed(own_bytes: float, below: list[Peak]) -> Peak:
    """Return the bytes of an operator that hands on rows as they come, beside all that is below it."""
    return Peak(
        own_bytes + sum(p.peak_bytes for p in below),
        own_bytes + sum(p.held_bytes for p in below),
        sum(p.draining_bytes for p in below),
        _largest(Largest(own_bytes), *(p.at_peak for p in below)),
        _largest(Largest(own_bytes), *(p.while_handing for p in below)),
    )


def gathered(filling_bytes: float, emptying_bytes: float, below: Peak, *, drains: bool = False) -> Peak:
    """Return the bytes of an operator that takes all rows before it hands out one, and lets go of what is below.

    drains: whether it gives rows back as it hands them out.
    """
    own = Largest(emptying_bytes)
    peak, most = _worst((below.peak_bytes, below.at_peak), below.filled_by(filling_bytes), (emptying_bytes, own))
    return Peak(peak, emptying_bytes, emptying_bytes if drains else 0.0, most, own)


def joined(filling_bytes: float, table_bytes: float, probe: Peak, build: Peak) -> Peak:
    """Return the bytes of a join: its build side fills it first, and it stays while the probe side runs."""
    own = Largest(table_bytes)
    probing = table_bytes + probe.peak_bytes, _largest(own, probe.at_peak)
    peak, most = _worst((build.peak_bytes, build.at_peak), build.filled_by(filling_bytes), probing)
    after = _largest(own, probe.while_handing)
    return Peak(peak, table_bytes + probe.held_bytes, probe.draining_bytes, most, after)


def materialized(own_bytes: float, definition: Peak, body: Peak) -> Peak:
    """Return the bytes of a common table expression that is kept while its readers run."""
    own = Largest(own_bytes)
    reading = own_bytes + body.peak_bytes, _largest(own, body.at_peak)
    peak, most = _worst((definition.peak_bytes, definition.at_peak), definition.filled_by(own_bytes), reading)
    after = _largest(own, body.while_handing)
    return Peak(peak, own_bytes + body.held_bytes, body.draining_bytes, most, after)


def fanned_out(definition: Peak, body: Peak) -> Peak:
    """Return the bytes of a common table expression whose readers get its rows while they are made."""
    reading = definition.held_bytes + body.peak_bytes, _largest(definition.while_handing, body.at_peak)
    peak, most = _worst((definition.peak_bytes, definition.at_peak), reading)
    return Peak(peak, body.held_bytes, at_peak=most, while_handing=body.while_handing)


def _largest(*some: Largest) -> Largest:
    return max(some, key=lambda one: one.held_bytes)


def _worst(*moments: tuple[float, Largest]) -> tuple[float, Largest]:
    return max(moments, key=lambda moment: moment[0])


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
        held_bytes=round(held_bytes),
        basis=part.basis,
        upper_rows=part.upper,
        table=part.node.table,
    )


def place_of(largest: Largest, tree: EstimatedNode) -> int | None:
    """Return the position of the operator that holds most, parents first; None where nobody holds anything."""
    if largest.held_bytes <= 0.0:
        return None
    return next(place for place, (_, part) in enumerate(walk(tree)) if part is largest.part)


def label(part: EstimatedNode) -> str:
    """Return what people call a node."""
    node = part.node
    if node.table:
        return f"{node.operator} of {node.table}"
    if node.join_type not in (None, JoinType.INNER):
        return f"{node.join_type} {node.operator}"
    return node.label.lower().replace("_", " ") if node.operator is Operator.OTHER else str(node.operator)
