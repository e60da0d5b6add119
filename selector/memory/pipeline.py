"""Bytes over time, in which operators share a plan: what is alive together, not a sum.

Pipelines that no thread has to wait for start at once, so that tables with few rows to build from are all there before
the first large scan begins, wherever they are in the plan. A large one waits for those that are on the build side of a
join above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from selector.cardinality.tree import EstimatedNode
from selector.estimate import OperatorEstimate, whole_bytes
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

    draining_bytes: the part of what it holds that goes away with the rows. early_bytes: what it holds from the start of
    the statement, until it hands out rows. is_early: whether it hands them out at the start, having few to read.
    lasting_bytes: what it holds until the end of the statement.
    at_peak, while_handing: who holds most then; a matter of telling, which two peaks need not share to be equal.
    """

    peak_bytes: float
    held_bytes: float
    draining_bytes: float = 0.0
    early_bytes: float = 0.0
    is_early: bool = False
    lasting_bytes: float = 0.0
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


def streamed(own_bytes: float, below: Sequence[Peak], *, is_early: bool = True) -> Peak:
    """Return the bytes of an operator that hands on rows as they come, from one input after the other.

    is_early: whether it has few rows to read itself.
    """
    own = Largest(own_bytes)
    if not below:
        return Peak(own_bytes, own_bytes, 0.0, 0.0, is_early, at_peak=own, while_handing=own)
    peak = held = draining = 0.0
    at_peak = while_handing = own
    lasting = 0.0
    for place, part in enumerate(below):
        beside = own_bytes + lasting + sum(later.early_bytes for later in below[place + 1 :])
        peak, at_peak = _worst((peak, at_peak), (beside + part.peak_bytes, _largest(own, part.at_peak)))
        if beside + part.held_bytes > held:
            held, draining, while_handing = (
                beside + part.held_bytes,
                part.draining_bytes,
                _largest(own, part.while_handing),
            )
        lasting += part.lasting_bytes
    early, at_once = sum(part.early_bytes for part in below), is_early and all(part.is_early for part in below)
    return Peak(peak, held, draining, early, at_once, lasting, at_peak, while_handing)


def gathered(filling_bytes: float, emptying_bytes: float, below: Peak, *, drains: bool = False) -> Peak:
    """Return the bytes of an operator that takes all rows before it hands out one, and lets go of what is below.

    drains: whether it gives rows back as it hands them out.
    """
    own, lasting = Largest(emptying_bytes), below.lasting_bytes
    held = emptying_bytes + lasting
    peak, most = _worst((below.peak_bytes, below.at_peak), below.filled_by(filling_bytes), (held, own))
    early = emptying_bytes if below.is_early else below.early_bytes
    return Peak(peak, held, emptying_bytes if drains else 0.0, early, below.is_early, lasting, most, own)


def joined(filling_bytes: float, table_bytes: float, probe: Peak, build: Peak, *, lasting_bytes: float = 0.0) -> Peak:
    """Return the bytes of a join: its build side fills it first, and it stays while the probe side runs.

    lasting_bytes: the part of its table that stays until the end of the statement.
    """
    own, lasting = Largest(table_bytes), build.lasting_bytes
    filling, filling_most = build.filled_by(filling_bytes)
    peak, most = _worst(
        (build.peak_bytes + probe.early_bytes, build.at_peak),
        (filling + probe.early_bytes, filling_most),
        (table_bytes + lasting + probe.peak_bytes, _largest(own, probe.at_peak)),
    )
    early = probe.early_bytes + (table_bytes if build.is_early else build.early_bytes)
    return Peak(
        peak,
        table_bytes + lasting + probe.held_bytes,
        probe.draining_bytes,
        early,
        build.is_early and probe.is_early,
        lasting + lasting_bytes + probe.lasting_bytes,
        most,
        _largest(own, probe.while_handing),
    )


def materialized(own_bytes: float, definition: Peak, body: Peak) -> Peak:
    """Return the bytes of a common table expression that is kept while its readers run."""
    own, lasting = Largest(own_bytes), definition.lasting_bytes
    filling, filling_most = definition.filled_by(own_bytes)
    peak, most = _worst(
        (definition.peak_bytes + body.early_bytes, definition.at_peak),
        (filling + body.early_bytes, filling_most),
        (own_bytes + lasting + body.peak_bytes, _largest(own, body.at_peak)),
    )
    return Peak(
        peak,
        own_bytes + lasting + body.held_bytes,
        body.draining_bytes,
        definition.early_bytes + body.early_bytes,
        definition.is_early and body.is_early,
        lasting + body.lasting_bytes,
        most,
        _largest(own, body.while_handing),
    )


def fanned_out(definition: Peak, body: Peak) -> Peak:
    """Return the bytes of a common table expression whose readers get its rows while they are made."""
    reading = definition.held_bytes + body.peak_bytes, _largest(definition.while_handing, body.at_peak)
    peak, most = _worst((definition.peak_bytes + body.early_bytes, definition.at_peak), reading)
    lasting = definition.lasting_bytes + body.lasting_bytes
    early = definition.early_bytes + body.early_bytes
    at_once = definition.is_early and body.is_early
    return Peak(peak, body.held_bytes, 0.0, early, at_once, lasting, most, body.while_handing)


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
        held_bytes=whole_bytes(held_bytes),
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
